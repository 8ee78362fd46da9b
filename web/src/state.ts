// The state of the controls, in the URL after `#`, so that a link reproduces the view. Only values that differ from the defaults are written.

export const VIEWS = ["limits", "capacity", "serve", "plan", "measure", "accuracy"] as const;
export type ViewName = (typeof VIEWS)[number];

/** Quantities by which a plan is drawn. */
export const AXES = ["throughput", "interactivity", "e2el", "ttft", "tpot", "hour", "output", "input", "total", "joules", "megawatt"] as const;

/** Default of every control of the page. Numbers are text as it was typed, which the server reads as it reads flags; empty is not given. */
export const DEFAULTS = {
  view: "limits" as ViewName,
  // Model, hardware and engine, common to all views.
  model: "meta-llama/Llama-3.1-8B-Instruct",
  hardware: "h100-sxm",
  count: "1",
  tp: "",
  weights: "",
  kv: "auto",
  engine: "vllm",
  // View Limits.
  batch: "32",
  context: "4096",
  phase: "decode",
  open: "",
  // Sweep of Limits and of Serve: a key, and its values.
  sweep: "",
  values: "",
  // View Capacity.
  share: "",
  longest: "",
  host: "",
  storage: "",
  crowd: "",
  over: "",
  // Load, common to Serve and Plan.
  load: "rate",
  rate: "10",
  users: "32",
  turns: "4",
  think: "",
  workload: "",
  pace: "",
  input: "1000",
  output: "250",
  spread: "fixed",
  shared: "",
  prefixes: "",
  sharing: "",
  // View Serve.
  requests: "",
  seed: "",
  seqs: "",
  tokens: "",
  chunked: "",
  prefix: "",
  classes: "",
  mtbf: "",
  restart: "",
  grid: "",
  pue: "",
  // SLO, common to Serve and Plan.
  ttft: "2000",
  tpot: "50",
  // View Plan.
  chips: "rtx-4090,l4,l40s,a100-sxm-80gb,h100-sxm,h200-sxm,mi300x",
  most: "16",
  proof: "",
  formats: "",
  minimise: "cost_per_hour",
  apart: false,
  why: "",
  prices: "",
  power: "",
  x: "interactivity",
  y: "",
  logx: false,
  logy: true,
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

/** Values of choices that the page itself reads; other values mean nothing. */
const CHOICES: Readonly<Record<string, readonly string[]>> = {
  phase: ["decode", "prefill"],
  load: ["rate", "users", "talks", "talk-rate", "offline", "recorded"],
  spread: ["fixed", "lognormal"],
  chunked: ["", "on", "off"],
  prefix: ["", "on", "off"],
  minimise: ["cost_per_hour", "cost_per_million_tokens", "accelerators", "energy"],
  x: AXES,
  y: ["", ...AXES],
  metric: ["tpot_ms", "ttft_ms", "e2e_ms", "output_tok_s", "total_tok_s"],
};

export type State = typeof DEFAULTS;
export type Key = keyof State;

/** Parses the state from a URL's hash; `unknown` has the parts of the hash that mean nothing here. */
export function parse(hash: string): { state: State; unknown: string[] } {
  const [view = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const state: Record<string, unknown> = { ...DEFAULTS };
  const unknown: string[] = [];
  if ((VIEWS as readonly string[]).includes(view)) state["view"] = view;
  else if (view) unknown.push(view);
  for (const [key, text] of new URLSearchParams(query)) {
    const like: unknown = key !== "view" && Object.hasOwn(DEFAULTS, key) ? DEFAULTS[key as Key] : undefined;
    if (typeof like === "string" && (CHOICES[key]?.includes(text) ?? true)) state[key] = text;
    else if (typeof like === "boolean" && ["0", "1"].includes(text)) state[key] = text === "1";
    else unknown.push(text ? `${key}=${text}` : key);
  }
  return { state: state as State, unknown };
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
