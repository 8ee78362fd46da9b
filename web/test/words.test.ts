// Numbers and their units, the URL, the spec that controls ask, CSV, and lines of a stream.

import { describe, expect, it } from "vitest";
import { lines } from "../src/api";
import { csv } from "../src/csv";
import { bytes, dollars, percent, scaled, signed, significant, time } from "../src/format";
import { command, file, machine, memory, plan, run, without } from "../src/spec";
import { DEFAULTS, parse, write } from "../src/state";
import { opened } from "../src/views/common";
import { chosen, held, sweepable } from "../src/views/sweep";

describe("numbers", () => {
  it("have three digits and a unit", () => {
    expect([0.0012345, 1.2345, 12.345, 123.45, 12345, 0].map((v) => significant(v))).toEqual(["0.00123", "1.23", "12.3", "123", "12,345", "0"]);
    expect([scaled(3.35e12, "B/s"), bytes(80e9), scaled(999.9e9, "FLOP/s"), scaled(12, "B")]).toEqual(["3.35 TB/s", "80 GB", "1 TFLOP/s", "12 B"]);
    expect([time(0.0123), time(4.56), time(999.6), time(1500), time(180_000), time(0)]).toEqual(["12.3 µs", "4.56 ms", "1,000 ms", "1.5 s", "3 min", "0 ms"]);
    expect([percent(0.0456), percent(0.5), percent(1.234), signed(-0.1), signed(0.05)]).toEqual(["4.6 %", "50 %", "123 %", "−10 %", "+5 %"]);
    expect([dollars(2.5), dollars(1234.5)]).toEqual(["$2.50", "$1,235"]);
  });

  it("that are absent are a dash", () => {
    expect([significant(null), time(undefined), bytes(Number.NaN), percent(null), dollars(null)]).toEqual(["–", "–", "–", "–", "–"]);
  });
});

describe("own prices and power", () => {
  it("are tables of the search, by id", () => {
    const spec = plan({ ...DEFAULTS, prices: "h100-sxm=2.1, l4=0.6", power: "h100-sxm=1200" });
    expect([spec["search"]?.["prices"], spec["search"]?.["power_w"]]).toEqual([{ "h100-sxm": 2.1, l4: 0.6 }, { "h100-sxm": 1200 }]);
    expect(file(spec)).toContain("prices = {h100-sxm = 2.1, l4 = 0.6}\n");
    expect(command("plan", spec)).toContain("--set 'search.prices={h100-sxm = 2.1, l4 = 0.6}'");
    // What is no number is for the answer to refuse.
    expect(plan({ ...DEFAULTS, prices: "h100-sxm=dear" })["search"]?.["prices"]).toEqual({ "h100-sxm": "dear" });
    expect(plan(DEFAULTS)["search"]).not.toHaveProperty("prices");
  });
});

describe("the URL", () => {
  it("has what differs from the defaults and comes back", () => {
    expect(write(DEFAULTS)).toBe("#limits");
    const state = { ...DEFAULTS, view: "plan" as const, model: "Qwen/Qwen3-32B", batch: 8, pareto: true, labels: false };
    expect(write(state)).toBe("#plan?model=Qwen/Qwen3-32B&batch=8&pareto=1&labels=0");
    expect(parse(write(state))).toEqual(state);
  });

  it("that makes no sense is the default", () => {
    for (const hash of ["", "#", "#nowhere", "#limits?batch=many", "#limits?batch=-1", "#limits?batch=", "#limits?view=plan", "#limits?__proto__=1"]) {
      expect(parse(hash)).toEqual(DEFAULTS);
    }
  });

  it("keeps which sections are open", () => {
    expect(opened("", "memory", true)).toBe("memory");
    expect(opened("memory,time", "memory", false)).toBe("time");
    expect(opened("time", "time", true)).toBe("time");
  });
});

describe("the spec", () => {
  it("says the machine by the keys of spec files", () => {
    expect(machine(DEFAULTS)).toEqual({ model: { name: "meta-llama/Llama-3.1-8B-Instruct" }, hardware: { accelerator: "h100-sxm", count: 1 } });
    expect(machine({ ...DEFAULTS, tp: 2, weights: "fp8", kv: "fp8", engine: "sglang" })).toMatchObject({
      precision: { weights: "fp8", kv: "fp8" }, parallelism: { tp: 2 }, engine: { name: "sglang", scheduler: "sglang" },
    });
  });

  it("draws lengths around their mean", () => {
    // ln 1000 − 0.7²/2 = 6.907755 − 0.245.
    expect(run(DEFAULTS)["workload"]).toMatchObject({ input_len: { kind: "lognormal", mu: 6.662755, sigma: 0.7 }, arrivals: { kind: "poisson", rate: 10 } });
    expect(run({ ...DEFAULTS, spread: "fixed", load: "users" })["workload"]).toMatchObject({ input_len: 1000, arrivals: { kind: "closed_loop", concurrency: 32 } });
    expect(run({ ...DEFAULTS, workload: "sharegpt" })["workload"]).not.toHaveProperty("input_len");
    expect(plan(DEFAULTS)["workload"]).not.toHaveProperty("requests");
  });

  it("is a command line and a file", () => {
    expect(command("limits", machine({ ...DEFAULTS, weights: "fp8" }), ["--batch", "8"])).toBe(
      "roofcast limits --model meta-llama/Llama-3.1-8B-Instruct --hardware h100-sxm --count 1 --weights fp8 --batch 8",
    );
    expect(command("plan", { search: { accelerators: ["l4", "h100-sxm"] }, model: { name: "it's" } })).toBe(
      `roofcast plan --set 'search.accelerators=["l4", "h100-sxm"]' --model 'it'\\''s'`,
    );
    expect(file({ slo: { ttft_p99_ms: 5 }, workload: { input_len: { kind: "lognormal", mu: 1.5 } } })).toBe(
      `[slo]\nttft_p99_ms = 5\n\n[workload]\ninput_len = {kind = "lognormal", mu = 1.5}\n`,
    );
  });
});

it("CSV quotes what needs it", () => {
  expect(csv(["a", "b"], [[1, "x"], [null, 'say "hi", twice']])).toBe('a,b\r\n1,x\r\n,"say ""hi"", twice"\r\n');
});

it("lines are cut where they end", () => {
  expect(lines('{"a":1}\n{"b"')).toEqual([['{"a":1}'], '{"b"']);
  expect(lines("")).toEqual([[], ""]);
  expect(lines("a\nb\n")).toEqual([["a", "b"], ""]);
});

describe("a run", () => {
  it("has classes, failures and emissions where they are asked for", () => {
    const spec = run({ ...DEFAULTS, classes: "chat 0.8 500 200 1000 50; batch 0.2 4000 800;", mtbf: 600, grid: 400, pue: 1.2 });
    expect(spec["workload"]?.["classes"]).toEqual([
      { name: "chat", share: 0.8, input_len: 500, output_len: 200, slo: { ttft_p99_ms: 1000, tpot_p99_ms: 50 } },
      { name: "batch", share: 0.2, input_len: 4000, output_len: 800 },
    ]);
    expect(spec["workload"]).not.toHaveProperty("input_len");
    expect(spec["fleet"]).toEqual({ failures: { mtbf_s: 600, restart_s: 60 } });
    expect(spec["hardware"]).toEqual({ accelerator: "h100-sxm", count: 1, grid_g_per_kwh: 400, pue: 1.2 });
    expect(run(DEFAULTS)).not.toHaveProperty("fleet");
    // A plan has one class of requests, and the grid of its site.
    const planned = plan({ ...DEFAULTS, classes: "chat 1 500 200", grid: 400 });
    expect([planned["workload"]?.["classes"], planned["hardware"]]).toEqual([undefined, { grid_g_per_kwh: 400 }]);
    // What is no number is for the answer to refuse.
    expect(run({ ...DEFAULTS, classes: "chat much 1 2" })["workload"]?.["classes"]).toEqual([{ name: "chat", share: "much", input_len: 1, output_len: 2 }]);
  });
});

describe("a question about memory", () => {
  it("has the engine's share, its longest request and its host memory by the engine's own keys", () => {
    expect(memory(DEFAULTS)).toEqual(machine(DEFAULTS));
    const tight = memory({ ...DEFAULTS, share: 0.8, longest: 8192, host: 32 });
    expect(tight["engine"]).toEqual({ gpu_memory_utilization: 0.8, max_model_len: 8192, vllm: { kv_offloading_size: 32 } });
    expect(file(tight)).toContain("vllm = {kv_offloading_size = 32}\n");
    expect(command("capacity", tight)).toContain("--set 'engine.vllm={kv_offloading_size = 32}'");
    const stored = memory({ ...DEFAULTS, host: 32, storage: 500 });
    expect(stored["engine"]).toEqual({ vllm: { kv_offloading_size: 32, kv_storage_size: 500 } });
    const sglang = memory({ ...DEFAULTS, engine: "sglang", host: 64 });
    expect(sglang["engine"]).toEqual({ name: "sglang", scheduler: "sglang", sglang: { enable_hierarchical_cache: true, hicache_size: 64 } });
    // An engine without a host tier is not given one.
    expect(memory({ ...DEFAULTS, engine: "llama.cpp", host: 64 })["engine"]).not.toHaveProperty("sglang");
  });
});

describe("a sweep", () => {
  const keys = [{ key: "batch", name: "batch", values: "1..512:x2" }, { key: "prefill", name: "prompt", values: "128..16384:x2" }];

  it("is of the key and the values of the URL, else of the first key", () => {
    const of = (sweep: string, values: string) => { const { key, values: v } = chosen(keys, { sweep, values }); return [key, v]; };
    expect(of("", "")).toEqual(["batch", "1..512:x2"]);
    expect(of("prefill", "")).toEqual(["prefill", "128..16384:x2"]);
    expect(of("prefill", "1,2")).toEqual(["prefill", "1,2"]);
    // A key of another view, whose values would mean nothing here.
    expect(of("workload.arrivals.rate", "1,2")).toEqual(["batch", "1..512:x2"]);
  });

  it("holds what it does not vary, and leaves out what it sets", () => {
    expect(held("batch", { batch: 8, context: 512 })).toEqual({ context: 512 });
    expect(held("tp", { batch: 8, context: 512 })).toEqual({ batch: 8, context: 512 });
    expect(held("prefill", { batch: 8, context: 512 })).toEqual({});
    const spec = { model: { name: "m" }, precision: { weights: "fp8", kv: "fp8" }, parallelism: { tp: 2 }, engine: { name: "sglang", scheduler: "sglang" } };
    expect(without(spec, "precision.weights")["precision"]).toEqual({ kv: "fp8" });
    expect(without(spec, "engine.max_num_seqs")).toEqual(spec);
    expect(sweepable(spec, "tp")).not.toHaveProperty("parallelism");
    expect(sweepable(spec, "engine.name")).not.toHaveProperty("engine");
    // An empty section would be written as a heading without keys.
    expect(sweepable(spec, "batch")).toEqual(spec);
  });
});
