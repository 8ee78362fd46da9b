// Sweeps of Limits and Serve: one key over a list of values, drawn by the program.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { grouped } from "../format";
import type { LimitsSweepAnswer, Picture, RunSweepAnswer, Tabled } from "../generated";
import { useWork } from "../parts/asking";
import { Select, Text, Wrong } from "../parts/controls";
import { Drawn } from "../parts/drawn";
import { Command, Failure, Table, Working, type Column } from "../parts/show";
import { command, without, type Flags, type Spec } from "../spec";
import type { State } from "../state";
import type { ViewProps } from "./common";

/** A key that can be swept, and the values that it takes first. */
interface SweepKey {
  key: string;
  name: string;
  values: string;
}

const CHIPS = "l4,l40s,a100-sxm-80gb,h100-sxm,h200-sxm";

const LIMITS_KEYS: readonly SweepKey[] = [
  { key: "batch", name: "batch, in sequences", values: "1..512:x2" },
  { key: "context", name: "context, in tokens", values: "512..131072:x2" },
  { key: "prefill", name: "prompt, in tokens", values: "128..16384:x2" },
  { key: "tp", name: "tensor parallelism", values: "1,2,4,8" },
  { key: "hardware.accelerator", name: "accelerator", values: CHIPS },
  { key: "precision.weights", name: "weight format", values: "bf16,fp8" },
  { key: "precision.kv", name: "KV cache format", values: "16,fp8" },
  { key: "engine.name", name: "engine", values: "vllm,sglang,tensorrt-llm" },
];

const LOAD_KEYS: Readonly<Record<string, SweepKey>> = {
  rate: { key: "workload.arrivals.rate", name: "rate, in requests/s", values: "1..32:x2" },
  users: { key: "workload.arrivals.concurrency", name: "users at once", values: "1..128:x2" },
};

const SERVE_KEYS: readonly SweepKey[] = [
  { key: "hardware.count", name: "accelerators", values: "1,2,4,8" },
  { key: "hardware.accelerator", name: "accelerator", values: CHIPS },
  { key: "precision.weights", name: "weight format", values: "bf16,fp8" },
  { key: "precision.kv", name: "KV cache format", values: "16,fp8" },
  { key: "engine.max_num_seqs", name: "max_num_seqs", values: "8..512:x2" },
  { key: "engine.max_num_batched_tokens", name: "max_num_batched_tokens", values: "512..16384:x2" },
  { key: "engine.gpu_memory_utilization", name: "gpu_memory_utilization", values: "0.5,0.7,0.9" },
];

/** The key and the values of the controls; a key of another view is the first of `keys`. */
export function chosen(keys: readonly SweepKey[], state: Pick<State, "sweep" | "values">): SweepKey {
  const own = keys.find((one) => one.key === state.sweep);
  const first = own ?? (keys[0] as SweepKey);
  return own || state.sweep === "" ? { ...first, values: state.values || first.values } : first;
}

/** Quantities of the step that stay constant while `key` is swept, of those on which the step depends. */
export function held(key: string, state: Pick<State, "batch" | "context">): Record<string, string> {
  if (key === "prefill") return {};
  const { batch, context } = state;
  return Object.fromEntries(Object.entries({ batch, context }).filter(([name, text]) => name !== key && text !== ""));
}

/** A spec without what a sweep of `key` sets. */
export function sweepable(spec: Spec, key: string): Spec {
  const paths: Record<string, string[]> = { tp: ["parallelism.tp"] };
  return (paths[key] ?? [key]).reduce(without, spec);
}

interface Props {
  spec: Spec;
  state: State;
  set: ViewProps<never>["set"];
  flags: Flags;
}

type Value = boolean | number | string;
type Swept = { pictures: Picture[]; table: Tabled; report: { points: { values: Value[] }[] } };

/** A row of the table: the value of the key, and the cells that the answer declares. */
interface Row {
  value: Value;
  cells: Tabled["rows"][number];
}

/** Columns of the answer's own table. */
export const columnsOf = (table: Tabled): Column<Row>[] =>
  table.names.map((name, i) => ({
    name,
    show: (row) => row.cells[i]?.shown,
    value: (row) => row.cells[i]?.number ?? row.cells[i]?.shown,
    number: table.rows.some((cells) => cells[i]?.number !== null),
  }));

function Sweep<T extends Swept>({ path, keys, body, words, title, state, set }: Omit<Props, "spec" | "flags"> & {
  path: string;
  keys: readonly SweepKey[];
  /** The question about a key, without the sweep. */
  body: (key: string) => Record<string, unknown>;
  /** The command line of the question about a key. */
  words: (key: string, sweep: string) => string;
  title: string;
}): JSX.Element {
  const { key, name, values } = chosen(keys, state);
  const work = useWork<T>(null);
  const question = { ...body(key), sweep: `${key}=${values}` };
  const asked = JSON.stringify(question);
  useEffect(() => work.start(path, question), [asked]);
  const rows = (work.answer?.report.points ?? []).map(({ values: [value = ""] }, i): Row => ({ value, cells: work.answer?.table.rows[i] ?? [] }));
  const first: Column<Row> = {
    name,
    show: ({ value }) => (typeof value === "number" ? grouped(value) : String(value)),
    value: ({ value }) => (typeof value === "boolean" ? String(value) : value),
    number: rows.every(({ value }) => typeof value === "number"),
  };
  return (
    <Wrong.Provider value={work.error}>
      <form class="controls" aria-label="What varies" onSubmit={(e) => e.preventDefault()}>
        <Select label="Vary" value={key} options={keys.map((one) => [one.key, one.name] as const)} change={(sweep) => set({ sweep, values: "" })} />
        <Text of="sweep" label="Over the values" value={values} hint="as in 1..512:x2, 8..64:8 or 1,2,4" change={(text) => set({ sweep: key, values: text })} />
      </form>
      {work.busy ? <Working done={work.progress?.done ?? 0} all={work.progress?.all ?? 0} what="values" /> : null}
      {work.error ? <Failure error={work.error} /> : null}
      {work.answer ? (
        <div class={work.busy || work.error ? "stale" : ""} aria-busy={work.busy}>
          <figure class="picture swept"><Drawn pictures={work.answer.pictures} title={`${title} over ${name}`} /></figure>
          <Table rows={rows} columns={[first, ...columnsOf(work.answer.table)]} caption={`${title} over ${name}`} file="roofcast-sweep.csv" keyed={(row) => String(row.value)} />
          <p class="quiet-text">Columns are those of the text on the command line; times without a unit are milliseconds.</p>
        </div>
      ) : null}
      <Command text={words(key, `${key}=${values}`)} />
    </Wrong.Provider>
  );
}

export function LimitsSweep({ spec, state, set, flags }: Props): JSX.Element {
  const of = (key: string) => sweepable(spec, key);
  const step = (key: string) => Object.entries(held(key, state)).flatMap(([name, text]) => [`--${name}`, text]);
  return (
    <Sweep<LimitsSweepAnswer>
      path="/api/limits-sweep"
      keys={LIMITS_KEYS}
      body={(key) => ({ spec: of(key), ...held(key, state) })}
      words={(key, sweep) => command(flags, "limits", of(key), ["--sweep", sweep, ...step(key)])}
      title="Time of a step and its throughput"
      state={state}
      set={set}
    />
  );
}

export function ServeSweep({ spec, state, set, flags }: Props): JSX.Element {
  const load = LOAD_KEYS[state.load];
  return (
    <Sweep<RunSweepAnswer>
      path="/api/simulate-sweep"
      keys={load ? [load, ...SERVE_KEYS] : SERVE_KEYS}
      body={(key) => ({ spec: sweepable(spec, key) })}
      words={(key, sweep) => command(flags, "simulate", sweepable(spec, key), ["--sweep", sweep])}
      title="Latencies and throughput"
      state={state}
      set={set}
    />
  );
}
