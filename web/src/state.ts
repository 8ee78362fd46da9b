// The state of the controls, in the URL after `#`, so that a link reproduces the view. Only values that differ from the defaults are written.

export const VIEWS = ["limits", "capacity", "serve", "plan", "measure", "accuracy"] as const;
export type ViewName = (typeof VIEWS)[number];

/** Default of every control of the page. Text is kept as it was typed. */
export const DEFAULTS = {
  view: "limits" as ViewName,
  // Model, hardware and engine, common to all views.
  model: "meta-llama/Llama-3.1-8B-Instruct",
  hardware: "h100-sxm",
  count: 1,
  tp: 0,
  weights: "",
  kv: "auto",
  engine: "vllm",
  // View Limits.
  batch: 32,
  context: 4096,
  phase: "decode",
  open: "",
  // Sweep of Limits and of Serve: a key, and its values.
  sweep: "",
  values: "",
  // View Capacity.
  share: 0,
  longest: 0,
  host: 0,
  storage: 0,
  crowd: 0,
  over: 100,
  // View Serve.
  load: "rate",
  rate: 10,
  users: 32,
  workload: "",
  input: 1000,
  output: 250,
  spread: "lognormal",
  requests: 2000,
  seed: 0,
  seqs: 0,
  tokens: 0,
  chunked: "",
  prefix: "",
  classes: "",
  mtbf: 0,
  restart: 60,
  grid: 0,
  pue: 1,
  // SLO, common to Serve and Plan.
  ttft: 2000,
  tpot: 50,
  // View Plan.
  chips: "rtx-4090,l4,l40s,a100-sxm-80gb,h100-sxm,h200-sxm,mi300x",
  most: 16,
  proof: 0,
  formats: "",
  minimise: "cost_per_hour",
  apart: false,
  why: "",
  prices: "",
  power: "",
  x: "interactivity",
  y: "throughput",
  logx: false,
  logy: false,
  pareto: false,
  labels: true,
  // View Measure.
  version: "",
  // View Accuracy.
  chip: "",
  subject: "",
  shape: "",
  metric: "tpot_ms",
};

export type State = typeof DEFAULTS;
export type Key = keyof State;

/** Parses the state from a URL's hash; a value that its key does not allow becomes the default. */
export function parse(hash: string): State {
  const [view = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const state: Record<string, unknown> = { ...DEFAULTS };
  if ((VIEWS as readonly string[]).includes(view)) state["view"] = view;
  for (const [key, text] of new URLSearchParams(query)) {
    if (key === "view" || !Object.hasOwn(DEFAULTS, key)) continue;
    const like: unknown = DEFAULTS[key as Key];
    if (typeof like === "number") {
      const value = Number(text);
      if (text.trim() !== "" && Number.isFinite(value) && value >= 0) state[key] = value;
    } else {
      state[key] = typeof like === "boolean" ? text === "1" : text;
    }
  }
  return state as State;
}

/** Formats a state as a URL's hash. */
export function write(state: State): string {
  const query = new URLSearchParams();
  for (const key of Object.keys(DEFAULTS) as Key[]) {
    const value = state[key];
    if (key === "view" || value === DEFAULTS[key]) continue;
    query.set(key, typeof value === "boolean" ? (value ? "1" : "0") : String(value));
  }
  // Commas, slashes and colons are legal in a hash, and easier to read unescaped.
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return `#${state.view}${text ? `?${text}` : ""}`;
}

/** Splits a list of names at its commas. */
export const names = (text: string): string[] => text.split(",").map((name) => name.trim()).filter(Boolean);
