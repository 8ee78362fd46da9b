// Requests to the server, and long answers that arrive as lines of progress.

import { Refused } from "./fields";

/** A refusal as the server writes it. */
interface Refusal {
  error: string;
  field?: string;
}

const refused = ({ error, field }: Refusal): Refused => new Refused(error, field ?? null);

async function sent(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const raw = body instanceof Uint8Array;
  const init: RequestInit = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": raw ? "application/octet-stream" : "application/json" },
    body: raw ? (body as BodyInit) : JSON.stringify(body),
  };
  if (signal) init.signal = signal;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The server does not answer: is `roofcast serve` still running?");
  }
  if (!response.ok) {
    const told = (await response.json().catch(() => null)) as Refusal | null;
    throw told ? refused(told) : new Refused(`${response.status} ${response.statusText}`);
  }
  return response;
}

export async function ask<T>(path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await (await sent(path, body, signal)).json()) as T;
}

export interface Progress {
  done: number;
  all: number;
}

type Line<T> = { progress: Progress } | { answer: T } | Refusal;

/** Splits `text` into complete lines and the rest after the last line end. */
export function lines(text: string): [string[], string] {
  const all = text.split("\n");
  return [all.slice(0, -1).filter(Boolean), all[all.length - 1] ?? ""];
}

/** Resolves to the answer in the last line; calls `hear` for each line of progress. */
export async function follow<T>(path: string, body: unknown, signal: AbortSignal, hear: (progress: Progress) => void): Promise<T> {
  const response = await sent(path, body, signal);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) throw new Refused("The server ended the answer early.");
    const [whole, left] = lines(rest + part.value);
    rest = left;
    for (const line of whole) {
      const said = JSON.parse(line) as Line<T>;
      if ("progress" in said) hear(said.progress);
      else if ("error" in said) throw refused(said);
      else return said.answer;
    }
  }
}
