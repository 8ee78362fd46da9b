// View Accuracy: the evidence behind forecasts, and measured points with their forecasts by accelerator, model, topology and row.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Scatter, type Dot } from "../charts/scatter";
import { grouped, percent, shortName, signed, significant, time } from "../format";
import type { AccuracyAnswer, Band, Machine, Row } from "../generated";
import { useWork } from "../parts/asking";
import { Measured, Select } from "../parts/controls";
import { Drop, Failure, Section, Table, Working, type Column } from "../parts/show";
import type { State } from "../state";
import { BRIEFLY, EVIDENCE, type ViewProps } from "./common";

const METRICS = [["tpot_ms", "TPOT"], ["ttft_ms", "TTFT"], ["e2e_ms", "E2EL"], ["output_tok_s", "output tokens/s"], ["total_tok_s", "all tokens/s"]] as const;
type MetricKey = (typeof METRICS)[number][0];

/** Error of a row's metric: forecast over measured − 1; `null` without either. */
export function error(row: Row, metric: MetricKey): number | null {
  const [measured, forecast] = [row.measured[metric], row.forecast?.[metric]];
  return measured && forecast !== null && forecast !== undefined ? forecast / measured - 1 : null;
}

export interface Part {
  name: string;
  rows: Row[];
  n: number;
  /** Median of the absolute errors; the next field has the median of the signed errors. */
  size: number | null;
  bias: number | null;
}

const median = (values: number[]): number | null => {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(at)] ?? 0) + (sorted[Math.ceil(at)] ?? 0)) / 2;
};

/** Groups the rows by the name `of` gives; the largest group first. */
export function parts(rows: readonly Row[], of: (row: Row) => string, metric: MetricKey): Part[] {
  const by = new Map<string, Row[]>();
  for (const row of rows) by.set(of(row), [...(by.get(of(row)) ?? []), row]);
  return [...by].map(([name, some]) => {
    const errors = some.flatMap((row) => error(row, metric) ?? []);
    return { name, rows: some, n: errors.length, size: median(errors.map(Math.abs)), bias: median(errors) };
  }).sort((a, b) => b.rows.length - a.rows.length || a.name.localeCompare(b.name));
}

export function AccuracyView({ state, set, shown, toggle }: ViewProps<AccuracyAnswer>): JSX.Element {
  const work = useWork<AccuracyAnswer>(shown);
  useEffect(() => {
    if (!shown) work.start("/api/accuracy", undefined);
  }, []);
  const take = (files: File[]) => {
    const [first] = files;
    if (first) void first.text().then((text) => {
      set({ chip: "", subject: "", shape: "" });
      work.start("/api/validate", { name: first.name, text });
    });
  };
  const answer = work.answer;
  const open = (name: string) => state.open.includes(name);
  return (
    <>
      {shown ? null : <Drop label={<>Drop a CSV of measured points (<code>examples/measured.csv</code>, docs/accuracy.md) to see them here, or press to choose it</>} accept=".csv" take={take} />}
      {work.busy ? <Working done={work.progress?.done ?? 0} all={work.progress?.all ?? 0} what="rows" /> : null}
      {work.error ? <Failure error={work.error} /> : null}
      {answer?.measured ? <Rows rows={answer.measured.rows as Row[]} state={state} set={set} /> : null}
      {answer?.bands.length ? (
        <>
          <h3>What a band says</h3>
          <p class="quiet-text">In eight cases of ten what is measured lies between these factors of the forecast. How wide they are depends on what was measured before: nothing was fitted to the rows that judged them (docs/accuracy.md).</p>
          <Bands bands={answer.bands} />
          <Section name="machines" title="What has been measured" open={open("machines") || !answer.measured} toggle={toggle} note={`${answer.machines.length} accelerators`}>
            <Machines machines={answer.machines} />
          </Section>
        </>
      ) : null}
    </>
  );
}

function Bands({ bands }: { bands: readonly Band[] }): JSX.Element {
  const one = (name: string, of: (b: Band) => number): Column<Band> => ({ name, show: (b) => `× ${(1 / of(b)).toFixed(2)} to ${of(b).toFixed(2)}`, value: of, number: true });
  return (
    <Table rows={bands} caption="Bands of closed loops by what was measured" file="roofcast-bands.csv" keyed={(b) => b.evidence} columns={[
      { name: "measured before", show: (b) => EVIDENCE[b.evidence] ?? b.evidence, value: (b) => b.evidence },
      one("TTFT", (b) => b.closed_loop.ttft), one("TPOT", (b) => b.closed_loop.tpot), one("E2EL", (b) => b.closed_loop.e2e), one("throughput", (b) => b.closed_loop.throughput),
    ]} />
  );
}

function Machines({ machines }: { machines: readonly Machine[] }): JSX.Element {
  const engines = [...new Set(machines.flatMap((m) => m.engines.map((e) => e.engine)))];
  const of = (m: Machine, engine: string) => m.engines.find((e) => e.engine === engine)?.evidence ?? null;
  return (
    <Table rows={machines} caption="Evidence by accelerator and engine" file="roofcast-evidence.csv" keyed={(m) => m.accelerator} columns={[
      { name: "accelerator", show: (m) => m.accelerator, value: (m) => m.accelerator },
      { name: "generation", show: (m) => m.architecture, value: (m) => m.architecture },
      ...engines.map((engine): Column<Machine> => ({ name: engine, show: (m) => BRIEFLY[of(m, engine) ?? ""] ?? "does not run", value: (m) => of(m, engine), title: (m) => EVIDENCE[of(m, engine) ?? ""] ?? "" })),
    ]} />
  );
}

function Rows({ rows, state, set }: { rows: readonly Row[]; state: State; set: ViewProps<AccuracyAnswer>["set"] }): JSX.Element {
  const [chosen, choose] = useState<string | null>(null);
  const metric = (METRICS.some(([key]) => key === state.metric) ? state.metric : "tpot_ms") as MetricKey;
  const say = metric.endsWith("_ms") ? time : (v: number | null | undefined) => significant(v);
  const within = rows.filter((r) => (!state.chip || r.hardware === state.chip) && (!state.subject || r.model === state.subject) && (!state.shape || r.topology === state.shape));
  const level = !state.chip ? "chip" : !state.subject ? "subject" : !state.shape ? "shape" : "row";
  const of = (row: Row) => (level === "chip" ? row.hardware : level === "subject" ? row.model : row.topology);
  const key = (row: Row) => `${row.id} ${rows.indexOf(row)}`;
  const name = METRICS.find(([k]) => k === metric)?.[1] ?? "";
  const dots = within.flatMap((row): Dot[] => {
    const [measured, forecast] = [row.measured[metric], row.forecast?.[metric]];
    return measured && forecast ? [{ key: key(row), name: `${row.hardware}, ${shortName(row.model)}`, x: measured, y: forecast, tone: "s0" }] : [];
  });
  const one = within.find((row) => key(row) === chosen);
  const off = parts(within, () => "all", metric)[0];
  return (
    <>
      <nav class="crumbs" aria-label="Where">
        <button type="button" class="quiet" onClick={() => set({ chip: "", subject: "", shape: "" })}>All accelerators</button>
        {state.chip ? <>› <button type="button" class="quiet" onClick={() => set({ subject: "", shape: "" })}>{state.chip}</button></> : null}
        {state.subject ? <>› <button type="button" class="quiet" onClick={() => set({ shape: "" })}>{shortName(state.subject)}</button></> : null}
        {state.shape ? <>› <span>{state.shape}</span></> : null}
      </nav>
      <div class="controls"><Select label="Metric" value={metric} options={METRICS} change={(v) => set({ metric: v })} /></div>
      <p>{`${grouped(within.length)} rows, ${grouped(off?.n ?? 0)} with a forecast of ${name}: half of them within ${percent(off?.size ?? null)}, in the median ${signed(off?.bias ?? null)}.`}</p>
      {dots.length ? (
        <figure class="picture">
          <Measured>{(width) => <Scatter dots={dots} width={width} height={Math.min(420, width)} diagonal title={`${name}: measured against forecast of ${dots.length} rows`} x={{ label: `measured ${name}`, log: true, tick: say }} y={{ label: `forecast ${name}`, log: true, tick: say }} chosen={chosen} choose={choose} say={(d) => `${d.name}: measured ${say(d.x)}, forecast ${say(d.y)}`} />}</Measured>
          <figcaption><p class="readout" aria-live="polite">{one ? told(one, metric, say) : "On the dashed line a forecast is what was measured; above it is too high."}</p></figcaption>
        </figure>
      ) : <p class="empty">{`No row here has both a measured and a forecast ${name}.`}</p>}
      {level === "row" ? <RowTable rows={within} metric={metric} say={say} keyed={key} chosen={chosen} choose={choose} /> : (
        <Table rows={parts(within, of, metric)} caption={`Errors of ${name}`} file={`roofcast-errors-${level}.csv`} keyed={(p) => p.name} choose={(v) => set({ [level]: v })} columns={[
          { name: level === "chip" ? "accelerator" : level === "subject" ? "model" : "topology", show: (p) => p.name, value: (p) => p.name },
          { name: "rows", show: (p) => grouped(p.rows.length), value: (p) => p.rows.length, number: true },
          { name: "forecast", show: (p) => grouped(p.n), value: (p) => p.n, number: true },
          { name: "median |error|", show: (p) => percent(p.size), value: (p) => p.size, number: true },
          { name: "median error", show: (p) => signed(p.bias), value: (p) => p.bias, number: true },
        ]} />
      )}
    </>
  );
}

function told(row: Row, metric: MetricKey, say: (v: number | null | undefined) => string): string {
  const load = row.concurrency ? `${grouped(row.concurrency)} at once` : row.request_rate ? `${significant(row.request_rate)} requests/s` : row.kind;
  return `${row.model} on ${row.hardware}, ${row.topology}, ${row.engine} ${row.engine_version}, ${row.weights || "as published"}, ${load}: measured ${say(row.measured[metric])}, forecast ${say(row.forecast?.[metric])} (${signed(error(row, metric))}), limit ${say(row.limit[metric])}. Source: ${row.source}, row ${row.id}. Band: ${EVIDENCE[row.evidence] ?? row.evidence} measured.`;
}

function RowTable({ rows, metric, say, keyed, chosen, choose }: { rows: readonly Row[]; metric: MetricKey; say: (v: number | null | undefined) => string; keyed: (row: Row) => string; chosen: string | null; choose: (key: string) => void }): JSX.Element {
  return (
    <Table rows={rows} caption="Rows" file="roofcast-rows.csv" keyed={keyed} chosen={chosen} choose={choose} columns={[
      { name: "row", show: (r) => (r.id.length > 36 ? `${r.id.slice(0, 34)}…` : r.id), value: (r) => r.id, title: (r) => r.id },
      { name: "engine", show: (r) => r.engine, value: (r) => `${r.engine} ${r.engine_version}`.trim() },
      { name: "weights", show: (r) => r.weights, value: (r) => r.weights },
      { name: "in flight", show: (r) => grouped(r.concurrency), value: (r) => r.concurrency, number: true },
      { name: "prompt", show: (r) => grouped(r.input_len), value: (r) => r.input_len, number: true },
      { name: "answer", show: (r) => grouped(r.output_len), value: (r) => r.output_len, number: true },
      { name: "measured", show: (r) => say(r.measured[metric]), value: (r) => r.measured[metric], number: true },
      { name: "forecast", show: (r) => say(r.forecast?.[metric]), value: (r) => r.forecast?.[metric], number: true },
      { name: "limit", show: (r) => say(r.limit[metric]), value: (r) => r.limit[metric], number: true },
      { name: "error", show: (r) => signed(error(r, metric)), value: (r) => error(r, metric), number: true },
      { name: "left out", show: (r) => r.left_out ?? "", value: (r) => r.left_out },
      { name: "source", show: (r) => r.source, value: (r) => r.source },
    ]} />
  );
}
