// The question of the controls: as a spec, with the keys of a spec file, and as an equivalent command line.

import { DEFAULTS, names, type State } from "./state";

export type Value = string | number | boolean | Value[] | { [key: string]: Value };
export type Spec = Record<string, Record<string, Value>>;

/** Section `[engine]`: an engine and its scheduler have one name. */
const engineOf = (state: State): Record<string, Value> => ({ name: state.engine, scheduler: state.engine });

/** Sections of the model, the hardware and the engine. */
export function machine(state: State): Spec {
  const spec: Spec = {
    model: { name: state.model },
    hardware: { accelerator: state.hardware, count: state.count },
  };
  const precision: Record<string, Value> = {};
  if (state.weights) precision["weights"] = state.weights;
  if (state.kv !== "auto") precision["kv"] = state.kv;
  if (Object.keys(precision).length) spec["precision"] = precision;
  if (state.tp) spec["parallelism"] = { tp: state.tp };
  if (state.engine !== DEFAULTS.engine) spec["engine"] = engineOf(state);
  return spec;
}

/** Engines that keep KV in host memory, each with its section of `[engine]` for `size` of it and, in vLLM, `storage` below it. */
export const HOST_TIERS: Readonly<Record<string, (size: number, storage: number) => Record<string, Value>>> = {
  vllm: (size, storage) => ({ vllm: { kv_offloading_size: size, ...(storage ? { kv_storage_size: storage } : {}) } }),
  sglang: (size) => ({ sglang: { enable_hierarchical_cache: true, hicache_size: size } }),
};

/** The spec of a question about memory. */
export function memory(state: State): Spec {
  const { engine = {}, ...spec } = machine(state);
  const all: Record<string, Value> = { ...engine };
  if (state.share) all["gpu_memory_utilization"] = state.share;
  if (state.longest) all["max_model_len"] = state.longest;
  if (state.host) Object.assign(all, HOST_TIERS[state.engine]?.(state.host, state.storage));
  return Object.keys(all).length ? { ...spec, engine: all } : spec;
}

/** A spec without the key at `path`, as in `precision.weights`. */
export function without(spec: Spec, path: string): Spec {
  const [section = "", key = ""] = path.split(".");
  const { [key]: _, ...kept } = spec[section] ?? {};
  const { [section]: _section, ...rest } = spec;
  return Object.keys(kept).length ? { ...spec, [section]: kept } : rest;
}

/** Spread of a log-normal length around its mean: σ of its logarithm. */
export const SIGMA = 0.7;

function length(mean: number, spread: string): Value {
  if (spread !== "lognormal") return mean;
  // The mean of a log-normal distribution is exp(μ + σ²/2), which is solved for μ.
  return { kind: "lognormal", mu: Number((Math.log(mean) - (SIGMA * SIGMA) / 2).toFixed(6)), sigma: SIGMA };
}

function workload(state: State): Record<string, Value> {
  const arrivals: Value = state.load === "rate"
    ? { kind: "poisson", rate: state.rate }
    : { kind: "closed_loop", concurrency: state.users };
  const all: Record<string, Value> = { requests: state.requests, seed: state.seed, arrivals };
  if (state.workload) return { preset: state.workload, ...all };
  if (state.classes) return { ...all, classes: classes(state.classes) };
  return { ...all, input_len: length(state.input, state.spread), output_len: length(state.output, state.spread) };
}

/** Parses `name share prompt answer [TTFT [TPOT]]; …`. Text that is not a number is kept, so that the server refuses it with a message. */
function classes(text: string): Value[] {
  const number = (word: string): Value => (word !== "" && Number.isFinite(Number(word)) ? Number(word) : word);
  return text.split(";").map((one) => one.trim()).filter(Boolean).map((one) => {
    const [name = "", share = "", input = "", output = "", ttft, tpot] = one.split(/\s+/);
    const bounds: Record<string, Value> = {};
    if (ttft) bounds["ttft_p99_ms"] = number(ttft);
    if (tpot) bounds["tpot_p99_ms"] = number(tpot);
    return { name, share: number(share), input_len: number(input), output_len: number(output), ...(ttft ? { slo: bounds } : {}) };
  });
}

/** Keys of `[hardware]` for emissions. */
function site(state: State): Record<string, Value> {
  if (!state.grid) return {};
  return { grid_g_per_kwh: state.grid, ...(state.pue === 1 ? {} : { pue: state.pue }) };
}

function slo(state: State): Record<string, Value> {
  const bounds: Record<string, Value> = {};
  if (state.ttft) bounds["ttft_p99_ms"] = state.ttft;
  if (state.tpot) bounds["tpot_p99_ms"] = state.tpot;
  return bounds;
}

/** The spec of a simulation. */
export function run(state: State): Spec {
  const engine: Record<string, Value> = { ...engineOf(state) };
  if (state.seqs) engine["max_num_seqs"] = state.seqs;
  if (state.tokens) engine["max_num_batched_tokens"] = state.tokens;
  if (state.chunked) engine["enable_chunked_prefill"] = state.chunked === "on";
  if (state.prefix) engine["enable_prefix_caching"] = state.prefix === "on";
  const { hardware, ...rest } = machine(state);
  const spec: Spec = { ...rest, hardware: { ...hardware, ...site(state) }, engine, workload: workload(state), slo: slo(state) };
  if (state.mtbf) spec["fleet"] = { failures: { mtbf_s: state.mtbf, restart_s: state.restart } };
  return spec;
}

/** The spec of a plan. */
export function plan(state: State): Spec {
  const search: Record<string, Value> = {
    accelerators: names(state.chips),
    max_accelerators: state.most,
    minimise: state.minimise,
  };
  if (state.formats) search["weights"] = names(state.formats);
  if (state.apart) search["disaggregated"] = true;
  if (state.proof) search["requests"] = state.proof;
  if (state.prices) search["prices"] = values(state.prices);
  if (state.power) search["power_w"] = values(state.power);
  // A plan has one class of requests.
  const { requests: _, ...traffic } = workload({ ...state, classes: "" });
  const hardware = site(state);
  const own = Object.keys(hardware).length ? { hardware } : {};
  return { model: { name: state.model }, ...own, engine: engineOf(state), workload: traffic, slo: slo(state), search };
}

/** Parses `id=2.1,other=3`. Text that is not a number is kept, so that the server refuses it with a message. */
function values(text: string): Value {
  return Object.fromEntries(names(text).map((pair) => {
    const [id = "", value = ""] = pair.split("=").map((word) => word.trim());
    return [id, value !== "" && Number.isFinite(Number(value)) ? Number(value) : value];
  }));
}

const bare = (key: string): string => (/^[\w-]+$/.test(key) ? key : JSON.stringify(key));

function toml(value: Value): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(toml).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([k, v]) => `${bare(k)} = ${toml(v)}`).join(", ")}}`;
  return String(value);
}

/** Formats a spec as a TOML file. */
export function file(spec: Spec): string {
  const section = ([name, keys]: [string, Record<string, Value>]) =>
    `[${name}]\n${Object.entries(keys).map(([key, value]) => `${key} = ${toml(value)}\n`).join("")}`;
  return Object.entries(spec).map(section).join("\n");
}

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The command line of a spec. Keys are given by `--set`, which accepts every key, except those with a flag here. */
export function command(verb: string, spec: Spec, more: readonly string[] = []): string {
  const flags: Record<string, string> = {
    "model.name": "--model", "hardware.accelerator": "--hardware", "hardware.count": "--count",
    "precision.weights": "--weights", "precision.kv": "--kv", "parallelism.tp": "--tp",
  };
  const words = ["roofcast", verb];
  for (const [section, keys] of Object.entries(spec)) {
    for (const [key, value] of Object.entries(keys)) {
      const path = `${section}.${key}`;
      const flag = flags[path];
      if (flag) words.push(flag, quoted(String(value)));
      else words.push("--set", quoted(`${path}=${typeof value === "string" ? value : toml(value)}`));
    }
  }
  return [...words, ...more].join(" ");
}
