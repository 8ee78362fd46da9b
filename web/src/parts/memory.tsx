// The memory of one accelerator as a bar: weights, KV cache, and what the engine needs beside them.

import type { JSX } from "preact";
import { Stack } from "../charts/stack";
import { bytes, counted } from "../format";
import type { Accelerator, Rank } from "../generated";
import { Measured } from "./controls";
import { Legend } from "./show";

/** `used` is the part of the KV cache, in bytes, that `sequences` sequences take. */
export function MemoryBar({ rank, accelerator, used, sequences, title }: {
  rank: Rank;
  accelerator: Accelerator;
  used: number;
  sequences: number;
  title: string;
}): JSX.Element {
  const engine = rank.activation_bytes + rank.runtime_bytes + rank.state_bytes;
  const card = accelerator.memory_bytes;
  const outside = Math.max(0, card - Math.max(rank.budget_bytes, rank.weight_bytes + engine));
  const parts = [
    { name: "weights", value: rank.weight_bytes, tone: "s0" },
    { name: `KV of ${counted(sequences, "sequence")}`, value: used, tone: "s2" },
    { name: "KV free", value: rank.kv_bytes - used, tone: "s6" },
    { name: "recurrent states", value: rank.state_bytes, tone: "s4" },
    { name: "activations", value: rank.activation_bytes, tone: "s1" },
    { name: "runtime", value: rank.runtime_bytes, tone: "s3" },
    { name: "left to the driver and others", value: outside, tone: "free" },
  ];
  return (
    <>
      <Measured>{(width) => <Stack parts={parts} width={width} title={title} say={bytes} end={{ at: card, name: `end of the card, ${bytes(card)}` }} />}</Measured>
      <Legend parts={parts.filter((p) => p.value > 0).map((p) => [p.tone, `${p.name} ${bytes(p.value)}`] as const)} />
    </>
  );
}
