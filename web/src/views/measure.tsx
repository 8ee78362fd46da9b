// View Measure: a benchmark client's results with forecast and limit.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Bars } from "../charts/stack";
import { grouped, percent, significant, time } from "../format";
import type { MeasureAnswer, Run } from "../generated";
import { useWork } from "../parts/asking";
import { Field, Measured, Picker, Select, Text, Wrong } from "../parts/controls";
import { Drop, Facts, Failure, Table, Working, type Column } from "../parts/show";
import { ENGINES, EVIDENCE, KV, WEIGHTS, type ViewProps } from "./common";

interface Metric {
  key: keyof Run["measured"];
  name: string;
  index: number;
  rate: boolean;
}

const METRICS: readonly Metric[] = [
  { key: "ttft_ms", name: "TTFT", index: 0, rate: false },
  { key: "tpot_ms", name: "TPOT", index: 1, rate: false },
  { key: "e2e_ms", name: "E2EL", index: 2, rate: false },
  { key: "output_tok_s", name: "output", index: 3, rate: true },
];

/** Largest file that is read, in bytes; a detailed result of many requests has tens of MB. */
const MOST = 48 << 20;

export function MeasureView({ state, set, catalog }: ViewProps<MeasureAnswer>): JSX.Element {
  const work = useWork<MeasureAnswer>(null);
  const [file, setFile] = useState<{ name: string; text: string } | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const ask = (from: { name: string; text: string }) => {
    const optional = { ...(state.version ? { engine_version: state.version } : {}), ...(state.weights ? { weights: state.weights } : {}) };
    work.start("/api/measure", {
      name: from.name, text: from.text, model: state.model, hardware: state.hardware, tp: state.tp || "1", count: state.count || "1",
      engine: state.engine, kv: state.kv, ...optional,
    });
  };
  const take = ([first]: File[]) => {
    if (!first) return;
    if (first.size > MOST) {
      setFailed(`${first.name} has ${grouped(first.size)} bytes; accepted: at most ${grouped(MOST)}.`);
      return;
    }
    void first.text().then((text) => {
      setFailed(null);
      const next = { name: first.name, text };
      setFile(next);
      ask(next);
    });
  };
  return (
    <Wrong.Provider value={work.error}>
      <form class="controls" aria-label="What it was measured on" onSubmit={(e) => {
        e.preventDefault();
        if (file) ask(file);
      }}>
        <Picker label="Model" value={state.model} options={catalog.models} change={(model) => set({ model, weights: "" })} />
        <Picker label="Accelerator" value={state.hardware} options={catalog.accelerators} change={(hardware) => set({ hardware })} />
        <Field of="count" value={state.count} empty="1" change={(count) => set({ count })} />
        <Field of="tp" value={state.tp} empty="1" change={(tp) => set({ tp })} />
        <Select label="Engine" value={state.engine} options={ENGINES} change={(engine) => set({ engine })} />
        <Text wide={false} label="Engine's version" value={state.version} hint="as in 0.11.2; empty: the newest known" change={(version) => set({ version })} />
        <Select label="Weight format" value={state.weights} options={WEIGHTS} change={(weights) => set({ weights })} />
        <Select label="KV cache" value={state.kv} options={KV} change={(kv) => set({ kv })} />
        <Drop
          label={file ? `${file.name}: drop another file to replace it` : <>Drop the JSON of <code>vllm bench serve --save-result</code>, <code>roofcast bench --json</code>, aiperf or guidellm, or press to choose it</>}
          accept=".json"
          take={take}
        />
        {file ? <div class="actions wide"><button type="submit" class="main">Forecast it on this machine</button></div> : null}
      </form>
      {failed ? <Failure error={failed} /> : null}
      {work.busy ? <Working done={0} all={0} what="runs forecast" /> : null}
      {work.error ? <Failure error={work.error} /> : null}
      {work.answer ? <Answer answer={work.answer} /> : file ? null : <p class="empty">Nothing is measured yet. Results do not say what they ran on, so say it above, then drop them.</p>}
    </Wrong.Provider>
  );
}

function load(run: Run): string {
  const how = run.concurrency ? `${grouped(run.concurrency)} at once` : run.request_rate ? `${significant(run.request_rate)} requests/s` : "all at once";
  return `${how}, prompts of ${grouped(run.input_len)} and answers of ${grouped(run.output_len)} tokens on average`;
}

function Answer({ answer }: { answer: MeasureAnswer }): JSX.Element {
  const [index, setIndex] = useState(0);
  const run = answer.runs[Math.min(index, answer.runs.length - 1)];
  if (!run) return <p class="empty">The file has no run.</p>;
  return (
    <>
      {answer.runs.length > 1 ? <Select label="Run" value={String(index)} options={answer.runs.map((r, i) => [String(i), `${i + 1}: ${load(r)}`] as const)} change={(v) => setIndex(Number(v))} /> : null}
      <header class="headline">
        <p class="deployment">{`${answer.file} (${run.source}): ${load(run)}`}</p>
        <p id="advice">{`${run.advice.charAt(0).toUpperCase()}${run.advice.slice(1)}.`}</p>
        {run.left_out ? <Failure error={`No forecast: ${run.left_out}`} /> : null}
        <Facts
          facts={[
            ["binds a decode step", <b>{run.bound}</b>],
            ["limit over measured TPOT", <b>{percent(run.limit_share)}</b>, "how much of the machine's limit was reached"],
            ["weights alone", time(run.terms.weights_ms)],
            ["KV alone", time(run.terms.kv_ms)],
            ["FLOPs alone", time(run.terms.flops_ms)],
            ["links alone", time(run.terms.communication_ms)],
            ["forecast based on", <a href="#accuracy">{`measurements of ${EVIDENCE[run.evidence] ?? run.evidence}`}</a>],
          ]}
        />
      </header>
      <div class="pair">
        {METRICS.filter((m) => run.measured[m.key] !== null).map((m) => (
          <figure class="picture" key={m.key}>
            <figcaption><h3>{`${m.name}, ${m.rate ? "tokens/s" : "mean"}`}</h3></figcaption>
            <Measured>{(width) => <Beside run={run} metric={m} width={width} />}</Measured>
          </figure>
        ))}
      </div>
      <Table rows={METRICS.filter((m) => run.measured[m.key] !== null)} columns={columns(run)} caption="Measured, forecast and limit" file="roofcast-measured.csv" keyed={(m) => m.key} />
    </>
  );
}

function Beside({ run, metric, width }: { run: Run; metric: Metric; width: number }): JSX.Element {
  const forecast = run.forecast?.[metric.key] ?? null;
  const band = run.bands[metric.index];
  const bars = [
    { name: "measured", value: run.measured[metric.key] ?? 0, tone: "s5" },
    ...(forecast === null ? [] : [{ name: "forecast", value: forecast, tone: "s0", ...(band ? { band: [forecast * (band[0] ?? 1), forecast * (band[1] ?? 1)] as const } : {}) }]),
    ...(run.limit[metric.key] ? [{ name: "limit", value: run.limit[metric.key] ?? 0, tone: "s2" }] : []),
  ];
  return <Bars bars={bars} width={width} title={metric.name} label={metric.rate ? "tokens/s" : "ms"} say={metric.rate ? (v) => `${significant(v)}/s` : time} />;
}

function columns(run: Run): Column<Metric>[] {
  const say = (m: Metric, v: number | null | undefined) => (m.rate ? significant(v) : time(v));
  const ratio = (m: Metric) => {
    const [measured, forecast] = [run.measured[m.key], run.forecast?.[m.key]];
    return measured && forecast ? measured / forecast : null;
  };
  const inside = (m: Metric) => {
    const [r, band] = [ratio(m), run.bands[m.index]];
    return r === null || !band ? "–" : r >= (band[0] ?? 0) && r <= (band[1] ?? 0) ? "yes" : "no";
  };
  return [
    { name: "metric", show: (m) => m.name, value: (m) => m.key },
    { name: "measured", show: (m) => say(m, run.measured[m.key]), value: (m) => run.measured[m.key], number: true },
    { name: "forecast", show: (m) => say(m, run.forecast?.[m.key]), value: (m) => run.forecast?.[m.key], number: true },
    { name: "limit", show: (m) => say(m, run.limit[m.key]), value: (m) => run.limit[m.key], number: true },
    { name: "measured / forecast", show: (m) => significant(ratio(m)), value: ratio, number: true },
    { name: "in the band", show: inside, value: inside },
  ];
}
