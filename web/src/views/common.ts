// Common parts of the views: their properties, and lists to choose from.

import type { Option } from "../parts/controls";
import type { Flags } from "../spec";
import type { State } from "../state";

export interface Catalog {
  models: readonly Option[];
  accelerators: readonly Option[];
  /** Accelerators that have a rental price. */
  rented: readonly Option[];
  workloads: readonly Option[];
  /** Workloads that have arrivals of their own. */
  recorded: readonly string[];
  /** Flags of each verb, for the command lines. */
  flags: Flags;
}

export interface ViewProps<T> {
  state: State;
  set: (change: Partial<State>) => void;
  catalog: Catalog;
  /** The answer embedded in a stand-alone file, which has no server to ask; `null` if there is a server. */
  shown: T | null;
  toggle: (name: string, open: boolean) => void;
}

/** Numbers of accelerators, and degrees of tensor parallelism (0: the widest), of sliders. */
export const COUNTS = [1, 2, 4, 8, 16, 32];
export const DEGREES = [0, 1, 2, 4, 8, 16];

export const ENGINES: readonly Option[] = [["vllm", "vLLM"], ["sglang", "SGLang"], ["tensorrt-llm", "TensorRT-LLM"], ["llama.cpp", "llama.cpp"]];

export const WEIGHTS: readonly Option[] = [
  ["", "as published"], ["bf16", "bf16"], ["fp16", "fp16"], ["fp8", "fp8"], ["nvfp4", "nvfp4"], ["mxfp4", "mxfp4"],
  ["w8", "w8: int8, weight-only"], ["w4", "w4: int4, weight-only"], ["gptq-int4", "gptq-int4"], ["q8_0", "q8_0 (GGUF)"], ["q4_k_m", "q4_k_m (GGUF)"],
];

export const KV: readonly Option[] = [["auto", "auto"], ["16", "16 bits"], ["fp8", "fp8"], ["int8", "int8"]];

/** Adds a section to the URL's list of open sections, or removes it. */
export function opened(list: string, name: string, open: boolean): string {
  const all = list.split(",").filter((one) => one && one !== name);
  return (open ? [...all, name] : all).join(",");
}

/** Depth of evidence in few words, for a column of the table of engines. */
export const BRIEFLY: Readonly<Record<string, string>> = {
  engine: "measured",
  accelerator: "other engines",
  architecture: "its generation",
  family: "in part",
  nothing: "nothing",
};

/** Depth of evidence: how much of a deployment has been measured. */
export const EVIDENCE: Readonly<Record<string, string>> = {
  engine: "the engine on this chip",
  accelerator: "this chip, with other engines",
  architecture: "other chips of its generation",
  family: "its generation, without some kernels",
  nothing: "nothing like it",
};
