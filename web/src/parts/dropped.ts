// Models that are dropped: the few bytes that say what they are. Weights stay where they lie.

import { Refused, ask } from "../api";

export interface Known {
  id: string;
  family: string;
  parameters: number;
  active: number;
  max_context: number | null;
  formats: string;
  notes: string[];
}

/** Of a GGUF, which holds its vocabulary before its tensors. */
const GGUF_START = 48 << 20;
/** The longest header that safetensors allows is 100 MB; real ones have up to a few. */
const HEADER_MOST = 32 << 20;

/** The JSON at the start of a safetensors file. */
export async function safetensorsHeader(file: Blob): Promise<string> {
  const length = Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
  if (length > HEADER_MOST || length > file.size - 8) throw new Refused("No safetensors file: its header would be longer than it.");
  return await file.slice(8, 8 + length).text();
}

/** What the files describe: a GGUF, or a `config.json` with safetensors and their index beside it. */
export async function model(files: readonly File[]): Promise<Known> {
  const ends = (end: string) => files.filter((file) => file.name.toLowerCase().endsWith(end));
  const [gguf] = ends(".gguf");
  if (gguf) return await ask<Known>("/api/models", new Uint8Array(await gguf.slice(0, GGUF_START).arrayBuffer()));
  const [index] = ends(".index.json");
  const config = ends(".json").find((file) => file !== index);
  if (!config) {
    throw new Refused(index || ends(".safetensors").length
      ? "Tensors alone do not say what they mean: drop the config.json with them."
      : "Drop a config.json, with a safetensors index or files beside it, or a .gguf.");
  }
  const headers = await Promise.all(ends(".safetensors").map(async (file) => ({ name: file.name, text: await safetensorsHeader(file), length: file.size })));
  const body = { name: config.name, config: await config.text(), headers, ...(index ? { index: await index.text() } : {}) };
  return await ask<Known>("/api/models", body);
}
