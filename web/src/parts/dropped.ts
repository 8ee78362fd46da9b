// Models dropped on the page: only headers and configs are read and sent to the server, never weights.

import { ask } from "../api";
import { Refused } from "../fields";

export interface Known {
  id: string;
  family: string;
  parameters: number;
  active: number;
  max_context: number | null;
  formats: string;
  notes: string[];
}

/** Bytes read from the start of a GGUF, whose header includes the vocabulary. */
const GGUF_START = 48 << 20;
/** Most bytes of a safetensors header, 32 MiB. The format allows 100 MB; real headers have a few. */
const HEADER_MOST = 32 << 20;

/** Reads the JSON header at the start of a safetensors file. */
export async function safetensorsHeader(file: Blob): Promise<string> {
  const length = Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
  if (length > HEADER_MOST || length > file.size - 8) throw new Refused("No safetensors file: its header would be longer than it.");
  return await file.slice(8, 8 + length).text();
}

/** Sends the model that the files describe: a GGUF, or a `config.json` with safetensors files and their index. */
export async function model(files: readonly File[]): Promise<Known> {
  const ends = (end: string) => files.filter((file) => file.name.toLowerCase().endsWith(end));
  const [gguf] = ends(".gguf");
  if (gguf) return await ask<Known>("/api/models", new Uint8Array(await gguf.slice(0, GGUF_START).arrayBuffer()));
  const [index] = ends(".index.json");
  const config = ends(".json").find((file) => file !== index);
  if (!config) {
    throw new Refused(index || ends(".safetensors").length
      ? "Tensors alone do not say what they mean: drop the config.json with them."
      : "Drop a config.json, with a safetensors index or files in its folder, or a .gguf.");
  }
  const headers = await Promise.all(ends(".safetensors").map(async (file) => ({ name: file.name, text: await safetensorsHeader(file), length: file.size })));
  const body = { name: config.name, config: await config.text(), headers, ...(index ? { index: await index.text() } : {}) };
  return await ask<Known>("/api/models", body);
}
