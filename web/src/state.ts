// What is asked stands in the URL behind `#`: a link reproduces the view. Only what differs from the defaults is written.

export const VIEWS = ["limits", "serve", "plan", "measure", "accuracy"] as const;
export type ViewName = (typeof VIEWS)[number];

/** Every control of the page. Text stands as it was typed. */
export const DEFAULTS = {
  view: "limits" as ViewName,
  // What is served, on what.
  model: "meta-llama/Llama-3.1-8B-Instruct",
  hardware: "h100-sxm",
  count: 1,
  tp: 0,
  weights: "",
  kv: "auto",
  engine: "vllm",
  // Limits.
  batch: 32,
  context: 4096,
  phase: "decode",
  open: "",
  // Serve.
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
  // SLO.
  ttft: 2000,
  tpot: 50,
  // Plan.
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
  // Measure.
  version: "",
  // Accuracy.
  chip: "",
  subject: "",
  shape: "",
  metric: "tpot_ms",
};

export type State = typeof DEFAULTS;
export type Key = keyof State;

/** The state that a hash says; what is no value of its key is left at the default. */
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

/** The hash of a state. */
export function write(state: State): string {
  const query = new URLSearchParams();
  for (const key of Object.keys(DEFAULTS) as Key[]) {
    const value = state[key];
    if (key === "view" || value === DEFAULTS[key]) continue;
    query.set(key, typeof value === "boolean" ? (value ? "1" : "0") : String(value));
  }
  // Commas and slashes are legal there and easier to read.
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return `#${state.view}${text ? `?${text}` : ""}`;
}

/** Names in a list with commas. */
export const names = (text: string): string[] => text.split(",").map((name) => name.trim()).filter(Boolean);
