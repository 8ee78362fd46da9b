// Numbers and their units, the URL, the spec that controls ask, CSV, and lines of a stream.

import { describe, expect, it } from "vitest";
import { lines } from "../src/api";
import { csv } from "../src/csv";
import { bytes, dollars, percent, scaled, signed, significant, time } from "../src/format";
import { command, file, machine, memory, plan, run, without } from "../src/spec";
import { inWords, typed } from "../src/fields";
import { DEFAULTS, parse, write } from "../src/state";
import { opened } from "../src/views/common";
import { chosen, columnsOf, held, sweepable } from "../src/views/sweep";

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

/** Some flags, as the server lists them. */
const MACHINE = { "model.name": "model", "hardware.accelerator": "hardware", "hardware.count": "count", "precision.weights": "weights", "engine.vllm.kv_offloading_size": "kv-offloading-size", "engine.name": "engine" };
const LOAD = { "workload.arrivals.rate": "rate", "workload.arrivals.concurrency": "concurrency", "workload.arrivals.turns": "turns", "workload.arrivals.think_s": "think-s", "workload.input_len": "input-len", "workload.output_len": "output-len", "workload.requests": "requests", "workload.prefix.length": "prefix-len", "workload.preset": "workload", "slo.ttft_p99_ms": "ttft-p99", "slo.tpot_p99_ms": "tpot-p99" };
const FLAGS = { limits: MACHINE, capacity: MACHINE, simulate: { ...MACHINE, ...LOAD }, plan: { "model.name": "model", "engine.name": "engine", ...LOAD, "search.accelerators": "hardware", "search.prices": "price", "search.disaggregated": "disaggregated", "search.minimise": "minimise", "search.max_accelerators": "max-accelerators" } };

describe("own prices and power", () => {
  it("are tables of the search, by id", () => {
    const spec = plan({ ...DEFAULTS, prices: "h100-sxm=2.1, l4=0.6", power: "h100-sxm=1200" });
    // The server reads the numbers, as those of a flag; what is none is for it to refuse.
    expect([spec["search"]?.["prices"], spec["search"]?.["power_w"]]).toEqual([{ "h100-sxm": "2.1", l4: "0.6" }, { "h100-sxm": "1200" }]);
    expect(file(spec)).toContain("prices = {h100-sxm = 2.1, l4 = 0.6}\n");
    expect(command(FLAGS, "plan", spec)).toContain("--price h100-sxm=2.1,l4=0.6");
    expect(command(FLAGS, "plan", spec)).toContain("--set 'search.power_w={h100-sxm = 1200}'");
    expect(plan({ ...DEFAULTS, prices: "h100-sxm=dear" })["search"]?.["prices"]).toEqual({ "h100-sxm": "dear" });
    expect(plan(DEFAULTS)["search"]).not.toHaveProperty("prices");
  });
});

describe("the URL", () => {
  it("has what differs from the defaults and comes back", () => {
    expect(write(DEFAULTS)).toBe("#limits");
    const state = { ...DEFAULTS, view: "plan" as const, model: "Qwen/Qwen3-32B", batch: "8k", pareto: true, labels: false };
    expect(write(state)).toBe("#plan?model=Qwen/Qwen3-32B&batch=8k&pareto=1&labels=0");
    expect(parse(write(state))).toEqual({ state, unknown: [] });
  });

  it("says what means nothing", () => {
    expect(["", "#", "#limits"].map(parse)).toEqual(Array(3).fill({ state: DEFAULTS, unknown: [] }));
    for (const [hash, unknown] of [["#nowhere", "nowhere"], ["#limits?btach=8", "btach=8"], ["#limits?view=plan", "view=plan"], ["#limits?__proto__=1", "__proto__=1"], ["#plan?pareto=yes", "pareto=yes"], ["#serve?load=offlien", "load=offlien"], ["#plan?y=dollars", "y=dollars"], ["#limits?x%26y", "x&y"]] as const) {
      expect(parse(hash).unknown).toEqual([unknown]);
    }
    // What a number means is for the server to say.
    expect(parse("#limits?batch=many")).toEqual({ state: { ...DEFAULTS, batch: "many" }, unknown: [] });
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
    expect(machine({ ...DEFAULTS, tp: "2", weights: "fp8", kv: "fp8", engine: "sglang" })).toMatchObject({
      precision: { weights: "fp8", kv: "fp8" }, parallelism: { tp: 2 }, engine: { name: "sglang" },
    });
  });

  it("has constant lengths, unless they are drawn around their mean", () => {
    expect(run(DEFAULTS)["workload"]).toEqual({ requests: 10000, arrivals: { kind: "poisson", rate: 10 }, input_len: 1000, output_len: 250 });
    // ln 1000 − 0.7²/2 = 6.907755 − 0.245.
    expect(run({ ...DEFAULTS, spread: "lognormal" })["workload"]).toMatchObject({ input_len: { kind: "lognormal", mu: 6.662755, sigma: 0.7 } });
    expect(run({ ...DEFAULTS, load: "users" })["workload"]).toMatchObject({ input_len: 1000, arrivals: { kind: "closed_loop", concurrency: 32 } });
    expect(run({ ...DEFAULTS, workload: "sharegpt" })["workload"]).not.toHaveProperty("input_len");
    expect(plan(DEFAULTS)["workload"]).not.toHaveProperty("requests");
  });

  it("has conversations, think time, shared prefixes and offline jobs", () => {
    const of = (state: Partial<typeof DEFAULTS>) => run({ ...DEFAULTS, ...state })["workload"];
    expect(of({ load: "users", think: "500ms" })).toMatchObject({ arrivals: { kind: "closed_loop", concurrency: 32, think_s: "500ms" } });
    expect(of({ load: "talks", users: "8", think: "5" })).toMatchObject({ arrivals: { kind: "sessions", concurrency: 8, turns: 4, think_s: 5 } });
    expect(of({ load: "talk-rate", turns: "3" })).toMatchObject({ arrivals: { kind: "sessions", rate: 10, turns: 3 } });
    expect(of({ load: "offline" })).toMatchObject({ arrivals: { kind: "offline" } });
    expect(of({ shared: "2k", prefixes: "4", sharing: "0.5" })).toMatchObject({ prefix: { length: "2k", count: 4, share: 0.5 } });
    // A recording has its own arrivals, at its own rate or at another, and all its requests.
    expect(of({ workload: "azure-conv-2023", load: "recorded" })).toEqual({ preset: "azure-conv-2023" });
    expect(of({ workload: "azure-conv-2023", load: "recorded", pace: "5" })).toEqual({ preset: "azure-conv-2023", rate: 5 });
  });

  it("is a command of flags", () => {
    const of = (state: Partial<typeof DEFAULTS>) => command(FLAGS, "simulate", run({ ...DEFAULTS, ...state })).replace(/^.* --engine vllm /, "");
    expect(of({})).toBe("--requests 10000 --rate 10 --input-len 1000 --output-len 250 --ttft-p99 2000 --tpot-p99 50");
    expect(of({ load: "talks", input: "8k", shared: "500", ttft: "", tpot: "" })).toBe("--requests 10000 --concurrency 32 --turns 4 --prefix-len 500 --input-len 8k --output-len 250");
    expect(of({ load: "offline", ttft: "", tpot: "" })).toBe("--requests 10000 --set workload.arrivals.kind=offline --input-len 1000 --output-len 250");
    // Poisson gaps in place of a recording's own.
    expect(of({ workload: "azure-conv-2023", ttft: "", tpot: "" })).toBe("--requests 10000 --workload azure-conv-2023 --set workload.arrivals.kind=poisson --rate 10");
    // The default of a plan has bounds, so a plan without bounds says so.
    expect(command(FLAGS, "plan", plan({ ...DEFAULTS, ttft: "", tpot: "" }))).toMatch(/ --ttft-p99 none --tpot-p99 none$/);
    expect(command(FLAGS, "plan", plan({ ...DEFAULTS, apart: true }))).toContain(" --hardware rtx-4090,l4,l40s,a100-sxm-80gb,h100-sxm,h200-sxm,mi300x --max-accelerators 16 --minimise cost_per_hour --disaggregated=true");
  });

  it("is a command line and a file", () => {
    expect(command(FLAGS, "limits", machine({ ...DEFAULTS, weights: "fp8" }), ["--batch", "8"])).toBe(
      "roofcast limits --model meta-llama/Llama-3.1-8B-Instruct --hardware h100-sxm --count 1 --weights fp8 --batch 8",
    );
    expect(command({}, "plan", { search: { accelerators: ["l4", "h100-sxm"] }, model: { name: "it's" }, slo: { ttft_p99_ms: 5 } })).toBe(
      `roofcast plan --set 'search.accelerators=["l4", "h100-sxm"]' --set 'model.name=it'\\''s' --set slo.ttft_p99_ms=5`,
    );
    expect(file({ slo: { ttft_p99_ms: 5 }, workload: { input_len: { kind: "lognormal", mu: 1.5 } } })).toBe(
      `[slo]\nttft_p99_ms = 5\n\n[workload]\ninput_len = {kind = "lognormal", mu = 1.5}\n`,
    );
  });
});

describe("typed numbers", () => {
  it("are numbers where they are written plainly, else text for the server", () => {
    expect(["1000", "0.5", "8k", "4O", "1e4", "-1", "2s"].map(typed)).toEqual([1000, 0.5, "8k", "4O", "1e4", "-1", "2s"]);
  });

  it("are refused by the label of their control", () => {
    expect(inWords('the request: `workload.input_len` is "4O"; accepted: a whole number, as 4096 or 8k')).toBe('Prompt length is "4O"; accepted: a whole number, as 4096 or 8k');
    expect(inWords("the request: `batch` is 0; accepted: 1 to 8", { batch: "Requests to hold" })).toBe("Requests to hold is 0; accepted: 1 to 8");
    expect(inWords("parallelism: `count` is 3; accepted: tp 2 or a multiple of it")).toBe("Accelerators is 3; accepted: tp 2 or a multiple of it");
    expect(inWords("vllm does not start; accepted: engine.max_model_len up to 4096, or a larger hardware.count")).toBe("vllm does not start; accepted: “max_model_len” up to 4096, or a larger “Accelerators”");
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
    const spec = run({ ...DEFAULTS, classes: "chat 0.8 500 200 1000 50; batch 0.2 4000 800;", mtbf: "600", grid: "400", pue: "1.2" });
    expect(spec["workload"]?.["classes"]).toEqual([
      { name: "chat", share: 0.8, input_len: 500, output_len: 200, slo: { ttft_p99_ms: 1000, tpot_p99_ms: 50 } },
      { name: "batch", share: 0.2, input_len: 4000, output_len: 800 },
    ]);
    expect(spec["workload"]).not.toHaveProperty("input_len");
    expect(spec["fleet"]).toEqual({ failures: { mtbf_s: 600, restart_s: 60 } });
    expect(spec["hardware"]).toEqual({ accelerator: "h100-sxm", count: 1, grid_g_per_kwh: 400, pue: 1.2 });
    expect(run(DEFAULTS)).not.toHaveProperty("fleet");
    // A plan has one class of requests, and the grid of its site.
    const planned = plan({ ...DEFAULTS, classes: "chat 1 500 200", grid: "400" });
    expect([planned["workload"]?.["classes"], planned["hardware"]]).toEqual([undefined, { grid_g_per_kwh: 400 }]);
    // What is no number is for the answer to refuse.
    expect(run({ ...DEFAULTS, classes: "chat much 1 2" })["workload"]?.["classes"]).toEqual([{ name: "chat", share: "much", input_len: 1, output_len: 2 }]);
  });
});

describe("a question about memory", () => {
  it("has the engine's share, its longest request and its host memory by the engine's own keys", () => {
    expect(memory(DEFAULTS)).toEqual(machine(DEFAULTS));
    const tight = memory({ ...DEFAULTS, share: "0.8", longest: "8192", host: "32" });
    expect(tight["engine"]).toEqual({ gpu_memory_utilization: 0.8, max_model_len: 8192, vllm: { kv_offloading_size: 32 } });
    expect(file(tight)).toContain("vllm = {kv_offloading_size = 32}\n");
    expect(command(FLAGS, "capacity", tight)).toContain("--kv-offloading-size 32");
    const stored = memory({ ...DEFAULTS, host: "32", storage: "500" });
    expect(stored["engine"]).toEqual({ vllm: { kv_offloading_size: 32, kv_storage_size: 500 } });
    const sglang = memory({ ...DEFAULTS, engine: "sglang", host: "64" });
    expect(sglang["engine"]).toEqual({ name: "sglang", sglang: { enable_hierarchical_cache: true, hicache_size: 64 } });
    // An engine without a host tier is not given one.
    expect(memory({ ...DEFAULTS, engine: "llama.cpp", host: "64" })["engine"]).not.toHaveProperty("sglang");
  });
});

it("a table has the columns that the answer declares", () => {
  const cell = (shown: string, number: number | null = null) => ({ shown, number });
  const columns = columnsOf({ names: ["limit ms", "fits"], rows: [[cell("4.64", 4.637), cell("yes")], [cell("–"), cell("no")]] });
  const row = { value: 1, cells: [cell("4.64", 4.637), cell("yes")] };
  expect(columns.map((c) => [c.name, c.number, c.show(row), c.value(row)])).toEqual([["limit ms", true, "4.64", 4.637], ["fits", false, "yes", "yes"]]);
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
    expect(held("batch", { batch: "8", context: "512" })).toEqual({ context: "512" });
    expect(held("tp", { batch: "8", context: "512" })).toEqual({ batch: "8", context: "512" });
    expect(held("tp", { batch: "8", context: "" })).toEqual({ batch: "8" });
    expect(held("prefill", { batch: "8", context: "512" })).toEqual({});
    const spec = { model: { name: "m" }, precision: { weights: "fp8", kv: "fp8" }, parallelism: { tp: 2 }, engine: { name: "sglang" } };
    expect(without(spec, "precision.weights")["precision"]).toEqual({ kv: "fp8" });
    expect(without(spec, "engine.max_num_seqs")).toEqual(spec);
    expect(sweepable(spec, "tp")).not.toHaveProperty("parallelism");
    expect(sweepable(spec, "engine.name")).not.toHaveProperty("engine");
    // An empty section would be written as a heading without keys.
    expect(sweepable(spec, "batch")).toEqual(spec);
  });
});
