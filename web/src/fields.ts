// Fields of a question in the words of the page: the label of the control of each key, and refusals that name it.

/** A refusal by the server: its message, and the field that it is about, if there is one. */
export class Refused extends Error {
  constructor(message: string, readonly field: string | null = null) {
    super(message);
  }
}

/** Labels of controls, by the paths of their keys. */
export const LABELS: Readonly<Record<string, string>> = {
  "model.name": "Model",
  "hardware.accelerator": "Accelerator",
  "hardware.count": "Accelerators",
  "hardware.grid_g_per_kwh": "Grid",
  "hardware.pue": "Power usage effectiveness",
  "precision.weights": "Weight format",
  "precision.kv": "KV cache",
  "parallelism.tp": "Tensor parallelism",
  "engine.name": "Engine",
  "engine.enable_chunked_prefill": "Chunked prefill",
  "engine.enable_prefix_caching": "Prefix caching",
  "engine.vllm.kv_offloading_size": "Host memory for KV",
  "engine.sglang.hicache_size": "Host memory for KV",
  "engine.vllm.kv_storage_size": "Storage for KV",
  "workload.preset": "Published traffic",
  "workload.requests": "Requests",
  "workload.seed": "Seed",
  "workload.rate": "Mean rate",
  "workload.arrivals": "Arrivals",
  "workload.arrivals.rate": "Rate",
  "workload.arrivals.concurrency": "Users",
  "workload.arrivals.turns": "Turns of a conversation",
  "workload.arrivals.think_s": "Think time",
  "workload.input_len": "Prompt length",
  "workload.output_len": "Answer length",
  "workload.prefix.length": "Shared prefix",
  "workload.prefix.count": "Different prefixes",
  "workload.prefix.share": "Share with a prefix",
  "workload.classes": "Classes of requests",
  "fleet.failures.mtbf_s": "Failures: mean time between",
  "fleet.failures.restart_s": "Restart after a failure",
  "slo.ttft_p99_ms": "TTFT p99, at most",
  "slo.tpot_p99_ms": "TPOT p99, at most",
  "search.accelerators": "Accelerators to choose from",
  "search.max_accelerators": "Accelerators at most",
  "search.requests": "Requests of a proof",
  "search.weights": "Weight formats",
  "search.disaggregated": "Also disaggregated",
  "search.prices": "Own prices",
  "search.power_w": "Own power",
  batch: "Batch",
  context: "Context",
  users: "Users",
  oversubscription: "Over-subscription",
  sweep: "Over the values",
  why: "Why did this lose?",
  count: "Accelerators",
  tp: "Tensor parallelism",
};

/** The label of a field: of a setting of the engine its own name, of a key without a control its path. */
export const labelOf = (field: string): string => LABELS[field] ?? field.replace(/^engine\.(\w+)$/, "$1");

/** A server's message in the words of the page: fields by the labels of their controls, without the part of the program that refused. */
export function inWords(message: string, labels: Readonly<Record<string, string>> = {}): string {
  const named = (field: string): string => labels[field] ?? labelOf(field);
  return message
    .replace(/^(the request|arguments|spec|parallelism|deployment): /, "")
    .replace(/`([\w.-]+)`/g, (quoted, field: string) => (named(field) === field ? quoted : named(field)))
    .replace(/\b[a-z]+\.[\w.]+\b/g, (field) => (named(field) === field ? field : `“${named(field)}”`));
}

/** A typed number as JSON has it if it is written plainly; other text stays, and the server reads it as it reads flags. */
export const typed = (text: string): string | number => (/^\d{1,15}(\.\d+)?$/.test(text) ? Number(text) : text);
