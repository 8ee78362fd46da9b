// The question of the controls: as a spec, with the keys of a spec file, and as an equivalent command line.

import { typed } from "./fields";
import { DEFAULTS, names, type State } from "./state";

export type Value = string | number | boolean | Value[] | { [key: string]: Value };
export type Spec = Record<string, Record<string, Value>>;

/** Keys with the typed numbers that are given. */
function given(fields: Readonly<Record<string, string>>): Record<string, Value> {
  return Object.fromEntries(Object.entries(fields).filter(([, text]) => text !== "").map(([key, text]) => [key, typed(text)]));
}

/** Sections that are not empty. */
function sections(all: Spec): Spec {
  return Object.fromEntries(Object.entries(all).filter(([, keys]) => Object.keys(keys).length > 0));
}

/** Sections of the model, the hardware and the engine. */
export function machine(state: State): Spec {
  return sections({
    model: { name: state.model },
    hardware: { accelerator: state.hardware, ...given({ count: state.count }) },
    precision: { ...(state.weights ? { weights: state.weights } : {}), ...(state.kv === "auto" ? {} : { kv: state.kv }) },
    parallelism: given({ tp: state.tp }),
    engine: state.engine === DEFAULTS.engine ? {} : { name: state.engine },
  });
}

/** Engines that keep KV in host memory, each with its section of `[engine]` for `size` of it and, in vLLM, `storage` below it. */
export const HOST_TIERS: Readonly<Record<string, (size: string, storage: string) => Record<string, Value>>> = {
  vllm: (size, storage) => ({ vllm: given({ kv_offloading_size: size, kv_storage_size: storage }) }),
  sglang: (size) => ({ sglang: { enable_hierarchical_cache: true, ...given({ hicache_size: size }) } }),
};

/** The spec of a question about memory. */
export function memory(state: State): Spec {
  const { engine = {}, ...spec } = machine(state);
  const tier = state.host ? HOST_TIERS[state.engine]?.(state.host, state.storage) : {};
  return sections({ ...spec, engine: { ...engine, ...given({ gpu_memory_utilization: state.share, max_model_len: state.longest }), ...tier } });
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

function length(text: string, spread: string): Value {
  const mean = typed(text);
  if (spread !== "lognormal" || typeof mean !== "number") return mean;
  // The mean of a log-normal distribution is exp(μ + σ²/2), which is solved for μ.
  return { kind: "lognormal", mu: Number((Math.log(mean) - (SIGMA * SIGMA) / 2).toFixed(6)), sigma: SIGMA };
}

/** Kinds of arrivals, each with the keys of `[workload.arrivals]`. A recording has its own. */
const ARRIVALS: Readonly<Record<string, (state: State) => Record<string, Value>>> = {
  rate: (s) => ({ kind: "poisson", ...given({ rate: s.rate }) }),
  users: (s) => ({ kind: "closed_loop", ...given({ concurrency: s.users, think_s: s.think }) }),
  talks: (s) => ({ kind: "sessions", ...given({ concurrency: s.users, turns: s.turns, think_s: s.think }) }),
  "talk-rate": (s) => ({ kind: "sessions", ...given({ rate: s.rate, turns: s.turns, think_s: s.think }) }),
  offline: () => ({ kind: "offline" }),
};

function workload(state: State): Record<string, Value> {
  const arrivals = ARRIVALS[state.load]?.(state);
  const prefix = state.shared ? { prefix: given({ length: state.shared, count: state.prefixes, share: state.sharing }) } : {};
  const all = { ...given({ seed: state.seed }), ...(arrivals ? { arrivals } : given({ rate: state.pace })), ...prefix };
  if (state.workload) return { preset: state.workload, ...all };
  if (state.classes) return { ...all, classes: classes(state.classes) };
  return { ...all, input_len: length(state.input, state.spread), output_len: length(state.output, state.spread) };
}

/** Requests of a run whose number is not given, as `roofcast simulate` has them; a recording has all of its own. */
export const requestsOf = (state: State): string => state.requests || (state.load === "recorded" ? "" : "10000");

/** Parses `name share prompt answer [TTFT [TPOT]]; …`. Text that is not a number is kept, so that the server refuses it with a message. */
function classes(text: string): Value[] {
  return text.split(";").map((one) => one.trim()).filter(Boolean).map((one) => {
    const [name = "", share = "", input = "", output = "", ttft = "", tpot = ""] = one.split(/\s+/);
    const slo = given({ ttft_p99_ms: ttft, tpot_p99_ms: tpot });
    return { name, ...given({ share, input_len: input, output_len: output }), ...(ttft ? { slo } : {}) };
  });
}

/** Keys of `[hardware]` for emissions. */
const site = (state: State): Record<string, Value> => (state.grid ? given({ grid_g_per_kwh: state.grid, pue: state.pue }) : {});

const slo = (state: State): Record<string, Value> => given({ ttft_p99_ms: state.ttft, tpot_p99_ms: state.tpot });

/** The spec of a simulation. */
export function run(state: State): Spec {
  const { hardware, ...rest } = machine(state);
  const engine: Record<string, Value> = { name: state.engine, ...given({ max_num_seqs: state.seqs, max_num_batched_tokens: state.tokens }) };
  if (state.chunked) engine["enable_chunked_prefill"] = state.chunked === "on";
  if (state.prefix) engine["enable_prefix_caching"] = state.prefix === "on";
  return sections({
    ...rest,
    hardware: { ...hardware, ...site(state) },
    engine,
    workload: { ...given({ requests: requestsOf(state) }), ...workload(state) },
    slo: slo(state),
    fleet: state.mtbf ? { failures: given({ mtbf_s: state.mtbf, restart_s: state.restart || "60" }) } : {},
  });
}

/** The spec of a plan, which has one class of requests. */
export function plan(state: State): Spec {
  const search: Record<string, Value> = {
    accelerators: names(state.chips),
    ...given({ max_accelerators: state.most, requests: state.proof }),
    minimise: state.minimise,
  };
  if (state.formats) search["weights"] = names(state.formats);
  if (state.apart) search["disaggregated"] = true;
  if (state.prices) search["prices"] = values(state.prices);
  if (state.power) search["power_w"] = values(state.power);
  return sections({
    model: { name: state.model },
    hardware: site(state),
    engine: { name: state.engine },
    workload: workload({ ...state, classes: "" }),
    slo: slo(state),
    search,
  });
}

/** Parses `id=2.1,other=3`. The server reads the numbers. */
function values(text: string): Value {
  return Object.fromEntries(names(text).map((pair) => {
    const [id = "", value = ""] = pair.split("=").map((word) => word.trim());
    return [id, value];
  }));
}

const bare = (key: string): string => (/^[\w-]+$/.test(key) ? key : JSON.stringify(key));

function toml(value: Value): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(toml).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([k, v]) => `${bare(k)} = ${toml(v)}`).join(", ")}}`;
  return String(value);
}

/** Sections whose numbers a spec file writes plainly, by accelerator. */
const BY_NAME: readonly string[] = ["search.prices", "search.power_w"];

const plain = (value: Value): Value =>
  typeof value === "object" && !Array.isArray(value) ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, typed(String(v))])) : value;

/** Formats a spec as a TOML file. */
export function file(spec: Spec): string {
  const section = ([name, keys]: [string, Record<string, Value>]) =>
    `[${name}]\n${Object.entries(keys).map(([key, value]) => `${key} = ${toml(BY_NAME.includes(`${name}.${key}`) ? plain(value) : value)}\n`).join("")}`;
  return Object.entries(spec).map(section).join("\n");
}

const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** Flags of each verb, by the paths of their keys, as the server lists them. */
export type Flags = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Arrivals that their own flags imply: the kind is not written. */
const IMPLIED: readonly Value[] = ["closed_loop", "sessions"];

/** The command line of a spec: keys by their flags, other keys by `--set`. */
export function command(flags: Flags, verb: string, spec: Spec, more: readonly string[] = []): string {
  const own = flags[verb] ?? {};
  const recorded = spec["workload"]?.["preset"] !== undefined;
  const words = ["roofcast", verb];
  const add = (path: string, value: Value): void => {
    const flag = own[path];
    if (path === "workload.arrivals.kind" && (IMPLIED.includes(value) || (value === "poisson" && !recorded))) return;
    if (typeof value === "object" && !Array.isArray(value) && !("kind" in value && path !== "workload.arrivals")) {
      const pairs = Object.entries(value);
      if (flag) words.push(`--${flag}`, quoted(pairs.map(([id, number]) => `${id}=${String(number)}`).join(",")));
      else if (BY_NAME.includes(path)) words.push("--set", quoted(`${path}=${toml(plain(value))}`));
      else for (const [key, inner] of pairs) add(`${path}.${key}`, inner);
    } else if (flag && typeof value === "boolean") {
      words.push(`--${flag}=${String(value)}`);
    } else if (flag && typeof value !== "object") {
      words.push(`--${flag}`, quoted(String(value)));
    } else if (flag && Array.isArray(value) && value.every((one) => typeof one === "string")) {
      words.push(`--${flag}`, quoted(value.join(",")));
    } else {
      words.push("--set", quoted(`${path}=${typeof value === "string" ? value : toml(value)}`));
    }
  };
  for (const [section, keys] of Object.entries(spec)) for (const [key, value] of Object.entries(keys)) add(`${section}.${key}`, value);
  // A plan without bounds has to say so: those of its default would hold.
  if (verb === "plan" && !spec["slo"]) words.push("--ttft-p99", "none", "--tpot-p99", "none");
  return [...words, ...more].join(" ");
}
