// View Serve: a simulation of an engine under traffic, and a second one to compare with.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { follow } from "../api";
import { Curves, type Curve } from "../charts/curves";
import { Timeline, during, stepAt, tokensOf } from "../charts/timeline";
import { save } from "../csv";
import { counted, dollars, grouped, percent, significant, shortName, signed, time } from "../format";
import type { SeriesPoint, RunAnswer, Timeline as Events } from "../generated";
import { useWork } from "../parts/asking";
import { Field, Measured, Picker, Select, Wrong } from "../parts/controls";
import { LoadControls, MoreLoad, SloControls } from "../parts/load";
import { Command, Copied, Facts, Failure, Legend, Section, Table, Working, type Column } from "../parts/show";
import { command, file, run, type Spec, type Value } from "../spec";
import { ENGINES, KV, WEIGHTS, type ViewProps } from "./common";
import { Classes, Notes, ServedControls, extras } from "./served";
import { ServeSweep } from "./sweep";

/** A run that is kept for comparison, with its question. */
interface Kept {
  answer: RunAnswer;
  spec: Spec;
}

const SWITCH = [["", "the scheduler's"], ["on", "on"], ["off", "off"]] as const;

export function ServeView(props: ViewProps<RunAnswer>): JSX.Element {
  const { state, set, catalog, shown, toggle } = props;
  const work = useWork<RunAnswer>(shown);
  const [kept, keep] = useState<Kept | null>(null);
  const [asked, setAsked] = useState<Spec | null>(null);
  const spec = run(state);
  const go = () => {
    setAsked(spec);
    work.start("/api/simulate", { spec });
  };
  // A page opened by a link shows its answer without a press of the button.
  useEffect(() => {
    if (!shown) go();
  }, []);
  const changed = asked !== null && JSON.stringify(asked) !== JSON.stringify(spec);
  return (
    <Wrong.Provider value={work.error}>
      {shown ? null : (
        <form class="controls" aria-label="Traffic and engine" onSubmit={(e) => {
          e.preventDefault();
          go();
        }}>
          <Picker label="Model" value={state.model} options={catalog.models} change={(model) => set({ model, weights: "" })} />
          <Picker label="Accelerator" value={state.hardware} options={catalog.accelerators} change={(hardware) => set({ hardware })} />
          <Field of="hardware.count" value={state.count} empty="1" change={(count) => set({ count })} />
          <Select label="Engine" value={state.engine} options={ENGINES} change={(engine) => set({ engine })} />
          <LoadControls state={state} set={set} catalog={catalog} />
          <details class="more">
            <summary>More: published traffic, parallelism, engine settings, SLO, classes, failures, emissions</summary>
            <div class="controls">
              <MoreLoad state={state} set={set} catalog={catalog} />
              <Field of="workload.requests" value={state.requests} empty={state.load === "recorded" ? "all that were recorded" : "10000"} hint="at most 200,000" change={(requests) => set({ requests })} />
              <Field of="workload.seed" value={state.seed} empty="0" change={(seed) => set({ seed })} />
              <Field of="parallelism.tp" value={state.tp} empty="widest" change={(tp) => set({ tp })} />
              <Select label="Weight format" value={state.weights} options={WEIGHTS} change={(weights) => set({ weights })} />
              <Select label="KV cache" value={state.kv} options={KV} change={(kv) => set({ kv })} />
              <Field of="engine.max_num_seqs" value={state.seqs} empty="the engine's" change={(seqs) => set({ seqs })} />
              <Field of="engine.max_num_batched_tokens" value={state.tokens} empty="the engine's" change={(tokens) => set({ tokens })} />
              <Select label="Chunked prefill" value={state.chunked} options={SWITCH} change={(chunked) => set({ chunked })} />
              <Select label="Prefix caching" value={state.prefix} options={SWITCH} change={(prefix) => set({ prefix })} />
              <SloControls state={state} set={set} />
              <ServedControls state={state} set={set} />
            </div>
          </details>
          <div class="actions wide">
            <button type="submit" class="main">{changed ? "Run what is asked now" : "Run again"}</button>
            {work.busy ? <button type="button" onClick={work.stop}>Stop</button> : null}
            {work.answer && !kept ? <button type="button" onClick={() => keep(work.answer && asked && { answer: work.answer, spec: asked })}>Keep this run to compare</button> : null}
            {kept ? <button type="button" onClick={() => keep(null)}>Drop the kept run</button> : null}
          </div>
        </form>
      )}
      {work.busy ? <Working done={work.progress?.done ?? 0} all={work.progress?.all ?? 0} what="requests" /> : null}
      {work.error ? <Failure error={work.error} /> : null}
      {work.answer ? <div class={work.busy || work.error ? "stale" : ""}><Answer {...props} answer={work.answer} kept={kept} spec={asked} /></div> : null}
      {shown || asked === null ? null : (
        <Section name="sweep" title="Sweep" open={state.open.includes("sweep")} toggle={toggle} note="the run over one key">
          <ServeSweep spec={asked} state={state} set={set} flags={catalog.flags} />
        </Section>
      )}
      {shown || !work.answer ? null : (
        <Section name="link" title="Take it along" open={state.open.includes("link")} toggle={toggle}>
          <Command text={command(catalog.flags, "simulate", spec)} />
          <Copied label="As a spec file" text={file(spec)} />
          <Trace spec={spec} />
        </Section>
      )}
    </Wrong.Provider>
  );
}

/** A button that simulates the run again and downloads its first steps as a trace for Perfetto. */
function Trace({ spec }: { spec: Spec }): JSX.Element {
  const [state, setState] = useState("");
  const load = () => {
    setState("The run is traced …");
    follow<string>("/api/trace", { spec }, new AbortController().signal, () => undefined)
      .then((text) => {
        save("roofcast-trace.json", text, "application/json");
        setState("Saved: open it at ui.perfetto.dev, which reads it in the browser.");
      })
      .catch((error: unknown) => setState(String(error)));
  };
  return <p><button type="button" onClick={load}>Download a trace for Perfetto</button> <span class="quiet-text" role="status">{state}</span></p>;
}

const METRICS = ["ttft", "tpot", "itl", "e2el"] as const;
const STATISTICS = ["mean", "p50", "p90", "p95", "p99"] as const;
const MEANING: Record<(typeof METRICS)[number], string> = {
  ttft: "time to first token: first content token − send",
  tpot: "time per output token: (E2EL − TTFT) / (output tokens − 1)",
  itl: "gap between two tokens",
  e2el: "end to end: last token − send",
};

const figure = (answer: RunAnswer, metric: string, statistic: string): number =>
  Number((answer.report as unknown as Record<string, unknown>)[`${statistic}_${metric}_ms`]);

interface Line {
  metric: (typeof METRICS)[number];
  run: string;
  answer: RunAnswer;
}

/** Keys whose values differ between two specs, as in `workload.arrivals.rate: 10, kept 5`. */
export function differing(now: Spec, then: Spec): string[] {
  const flat = (value: Value | Spec, path: string): [string, string][] =>
    typeof value === "object" && !Array.isArray(value)
      ? Object.entries(value).flatMap(([key, inner]) => flat(inner, path ? `${path}.${key}` : key))
      : [[path, String(value)]];
  const [a, b] = [new Map(flat(now, "")), new Map(flat(then, ""))];
  const keys = [...new Set([...a.keys(), ...b.keys()])].filter((key) => a.get(key) !== b.get(key));
  return keys.map((key) => `${key}: ${a.get(key) ?? "not said"}, kept ${b.get(key) ?? "not said"}`);
}

/** A figure of the present run and of the kept run. */
interface Pair {
  name: string;
  of: (answer: RunAnswer) => number | null;
  say: (value: number | null) => string;
}

const PAIRS: readonly Pair[] = [
  { name: "requests/s served", of: (a) => a.report.request_throughput, say: significant },
  { name: "requests/s within the SLO", of: (a) => a.report.request_goodput, say: significant },
  { name: "output tokens/s", of: (a) => a.report.output_throughput, say: significant },
  ...METRICS.flatMap((metric) => (["mean", "p99"] as const).map((s): Pair => ({ name: `${metric.toUpperCase()} ${s}`, of: (a) => figure(a, metric, s), say: time }))),
  { name: "$ per million output tokens", of: (a) => a.report.expense.dollars_per_million_output_tokens, say: dollars },
  { name: "mean running", of: (a) => a.report.activity.mean_running, say: significant },
  { name: "preemptions", of: (a) => a.report.activity.preemptions, say: grouped },
];

/** Differences from the kept run, in the question and in the answer. */
function Compared({ answer, spec, kept }: { answer: RunAnswer; spec: Spec | null; kept: Kept }): JSX.Element {
  const change = (p: Pair): number | null => {
    const [now, then] = [p.of(answer), p.of(kept.answer)];
    return now === null || !then ? null : now / then - 1;
  };
  const asked = spec ? differing(spec, kept.spec) : [];
  return (
    <div id="compared">
      <h3>Against the kept run</h3>
      <p class="quiet-text">{asked.length ? `Asked otherwise: ${asked.join("; ")}.` : "Asked alike."}</p>
      <Table rows={PAIRS} caption="This run against the kept run" file="roofcast-compared.csv" keyed={(p) => p.name} columns={[
        { name: "figure", show: (p) => p.name, value: (p) => p.name },
        { name: "this run", show: (p) => p.say(p.of(answer)), value: (p) => p.of(answer), number: true },
        { name: "kept run", show: (p) => p.say(p.of(kept.answer)), value: (p) => p.of(kept.answer), number: true },
        { name: "change", show: (p) => signed(change(p)), value: change, number: true },
      ]} />
    </div>
  );
}

function Answer({ answer, kept, spec, state, toggle }: ViewProps<RunAnswer> & { answer: RunAnswer; kept: Kept | null; spec: Spec | null }): JSX.Element {
  const r = answer.report;
  const runs: [string, RunAnswer][] = kept ? [["this run", answer], ["kept run", kept.answer]] : [["", answer]];
  const open = (name: string) => state.open.includes(name);
  const rows: Line[] = METRICS.flatMap((metric) => runs.map(([run, one]) => ({ metric, run, answer: one })));
  const columns: Column<Line>[] = [
    { name: "ms", show: (l) => `${l.metric.toUpperCase()}${l.run ? `, ${l.run}` : ""}`, value: (l) => `${l.metric} ${l.run}`.trim(), title: (l) => MEANING[l.metric] },
    ...STATISTICS.map((s): Column<Line> => ({ name: s, show: (l) => significant(figure(l.answer, l.metric, s), 4), value: (l) => figure(l.answer, l.metric, s), number: true })),
  ];
  return (
    <>
      <header class="headline">
        {runs.map(([name, one]) => <Headline key={name} name={name} answer={one} />)}
        {r.load.overloaded ? <p class="failure">{`Overload: ${significant(r.load.offered_per_s)} requests a second come and ${significant(r.load.stable_per_s)} are served; the queue grows for as long as they come.`}</p> : null}
        {r.load.too_short_below ? <p class="quiet-text">{`Too short to tell whether this load can be sustained: about ${grouped(r.load.too_short_below as number)} requests would show it.`}</p> : null}
        <Notes answer={answer} />
        {r.completed === 0 ? <p class="failure">No request was served: each is longer than this engine takes.</p> : null}
      </header>
      {kept ? <Compared answer={answer} spec={spec} kept={kept} /> : null}
      <Classes answer={answer} />
      <div class="pair">
        {(["ttft", "tpot", "e2el"] as const).map((metric) => (
          <figure key={metric} class="picture">
            <figcaption><h3>{metric.toUpperCase()}</h3></figcaption>
            <Measured>{(width) => <Cdf metric={metric} runs={runs} width={width} />}</Measured>
          </figure>
        ))}
        <div>
          <h3>Latencies</h3>
          <Table rows={rows} columns={columns} caption="Latencies in milliseconds" file="roofcast-latencies.csv" keyed={(l) => `${l.metric} ${l.run}`} />
        </div>
      </div>
      <Section name="levels" title="Queue, batch and KV cache over time" open={open("levels")} toggle={toggle} note={`${grouped(r.activity.max_waiting)} waiting at most, ${grouped(r.activity.preemptions)} preemptions`}>
        <Levels answer={answer} />
      </Section>
      <Section name="steps" title="Step by step" open={open("steps")} toggle={toggle} note="which request got which tokens">
        <Steps timelines={answer.timelines} />
      </Section>
      <Section name="where" title="Where the time went" open={open("where")} toggle={toggle}>
        <Where answer={answer} />
      </Section>
    </>
  );
}

function Headline({ name, answer }: { name: string; answer: RunAnswer }): JSX.Element {
  const r = answer.report;
  const bands = r.bands;
  return (
    <>
      <p class="deployment">{`${name ? `${name}: ` : ""}${shortName(r.model)} on ${r.fleet.accelerators} × ${r.hardware}, ${r.settings.scheduler}, ${r.weights} weights, ${r.kv} KV cache`}</p>
      <p class="quiet-text question">{answer.question}</p>
      <Facts
        facts={[
          ["requests", <><b data-figure="completed">{grouped(r.completed)}</b> <small>{`of ${grouped(r.requests)} in ${time(r.duration * 1e3)}`}</small></>],
          ["served", <b data-figure="request_throughput" data-value={r.request_throughput}>{`${significant(r.request_throughput)} /s`}</b>],
          ["within the SLO", <b>{r.request_goodput === null ? "–" : `${significant(r.request_goodput)} /s`}</b>],
          ["output", <b>{`${significant(r.output_throughput)} tokens/s`}</b>],
          ["mean TTFT", <><b data-figure="mean_ttft_ms" data-value={r.mean_ttft_ms}>{time(r.mean_ttft_ms)}</b> {bands ? <small><a href="#accuracy">{`${time(bands.ttft_ms.range[0])} to ${time(bands.ttft_ms.range[1])}`}</a></small> : null}</>, MEANING.ttft],
          ["mean TPOT", <><b>{time(r.mean_tpot_ms)}</b> {bands?.tpot_ms ? <small><a href="#accuracy">{`${time(bands.tpot_ms.range[0])} to ${time(bands.tpot_ms.range[1])}`}</a></small> : null}</>, `${MEANING.tpot}; at the limit ${time(r.limit_tpot_ms)}`],
          ["output tokens", <b>{r.expense.dollars_per_million_output_tokens === null ? "–" : `${dollars(r.expense.dollars_per_million_output_tokens)} per million`}</b>],
        ]}
      />
    </>
  );
}

function Cdf({ metric, runs, width }: { metric: "ttft" | "tpot" | "e2el"; runs: readonly (readonly [string, RunAnswer])[]; width: number }): JSX.Element {
  const curves = runs.map(([name, answer], i): Curve => {
    const found = answer.distributions.find((d) => d.metric === metric);
    const points = (found?.ms ?? []).map((ms, at): [number, number] => [ms, found?.shares[at] ?? 0]);
    return { name, tone: `s${i}`, dashed: i > 0, points };
  });
  const slo = runs[0]?.[1].slo;
  const bound = metric === "ttft" ? slo?.ttft_p99_ms : metric === "tpot" ? slo?.tpot_p99_ms : slo?.e2el_p99_ms;
  const most = Math.max(...curves.flatMap((c) => c.points.map((p) => p[0])));
  // A bound far beyond the curve is left out, because it would compress the curve.
  const marks = bound && bound < most * 4 ? [{ at: bound, name: `SLO p99 ${time(bound)}` }] : [];
  return <Curves curves={curves} width={width} height={220} marks={marks} title={`${metric.toUpperCase()} as cumulative shares of the requests`} x={{ label: metric.toUpperCase(), log: true, tick: time }} y={{ label: "share of requests", most: 1, tick: percent }} />;
}

/** Sums the levels over all replicas, in at most `most` intervals. */
export function levels(series: readonly (readonly SeriesPoint[])[], most = 400): SeriesPoint[] {
  const [first = []] = series;
  const size = Math.max(1, Math.ceil(first.length / most));
  const all: SeriesPoint[] = [];
  for (let i = 0; i < first.length; i += size) {
    const sum: SeriesPoint = { start_ms: first[i]?.start_ms ?? 0, end_ms: 0, running: 0, waiting: 0, blocks: 0, preemptions: 0, prefill_tokens_per_s: 0, output_tokens_per_s: 0 };
    for (const points of series) {
      const some = points.slice(i, i + size);
      const mean = (of: (p: SeriesPoint) => number) => some.reduce((total, p) => total + of(p), 0) / Math.max(1, some.length);
      sum.end_ms = some[some.length - 1]?.end_ms ?? sum.end_ms;
      sum.running += mean((p) => p.running);
      sum.waiting += mean((p) => p.waiting);
      sum.blocks += mean((p) => p.blocks);
      sum.preemptions += some[some.length - 1]?.preemptions ?? 0;
      sum.prefill_tokens_per_s += mean((p) => p.prefill_tokens_per_s);
      sum.output_tokens_per_s += mean((p) => p.output_tokens_per_s);
    }
    all.push(sum);
  }
  return all;
}

function Levels({ answer }: { answer: RunAnswer }): JSX.Element {
  const points = levels(answer.series);
  const blocks = answer.report.kv_cache.blocks * Math.max(1, answer.series.length);
  const over = (of: (p: SeriesPoint) => number): [number, number][] => points.map((p) => [p.start_ms, of(p)]);
  const x = { label: "time", tick: time };
  return (
    <div class="pair">
      <Measured>{(width) => <Curves step width={width} title="Requests running and waiting over time" x={x} y={{ label: "requests", tick: grouped, whole: true }} curves={[{ name: "running", tone: "s0", filled: true, points: over((p) => p.running) }, { name: "waiting", tone: "s1", points: over((p) => p.waiting) }]} />}</Measured>
      <Measured>{(width) => <Curves step width={width} title="KV cache held over time" x={x} y={{ label: "KV blocks held", most: 1, tick: percent }} curves={[{ name: "held", tone: "s2", filled: true, points: over((p) => p.blocks / blocks) }]} />}</Measured>
      <Measured>{(width) => <Curves step width={width} title="Tokens a second over time" x={x} y={{ label: "tokens/s" }} curves={[{ name: "prompts", tone: "s1", points: over((p) => p.prefill_tokens_per_s) }, { name: "output", tone: "s0", points: over((p) => p.output_tokens_per_s) }]} />}</Measured>
      <Measured>{(width) => <Curves step width={width} title="Preemptions up to each moment" x={x} y={{ label: "preemptions so far", tick: grouped, whole: true }} curves={[{ name: "preemptions", tone: "s3", points: over((p) => p.preemptions) }]} />}</Measured>
    </div>
  );
}

function Steps({ timelines }: { timelines: readonly Events[] }): JSX.Element {
  const [replica, setReplica] = useState(0);
  const [index, setIndex] = useState(0);
  const [span, setSpan] = useState(2000);
  const all = timelines[Math.min(replica, timelines.length - 1)];
  const steps = all?.steps ?? [];
  const step = steps[Math.min(index, steps.length - 1)];
  if (!all || !step) return <p class="empty">No step was taken.</p>;
  const at = (step.start_ms + step.end_ms) / 2;
  const last = steps[steps.length - 1]?.end_ms ?? 0;
  const wide = Math.min(span, last);
  const from = Math.max(0, Math.min(at - wide / 2, last - wide));
  const here = during(all.requests, at);
  return (
    <>
      <div class="controls">
        <div class="field slider wide scrub">
          <label for="scrub">Step</label>
          <output for="scrub">{`${grouped(index + 1)} of ${grouped(steps.length)}, at ${time(step.start_ms)}`}</output>
          <input id="scrub" type="range" min={0} max={steps.length - 1} value={index} aria-valuetext={`step ${index + 1}, at ${time(step.start_ms)}`} onInput={(e) => setIndex(Number(e.currentTarget.value))} />
        </div>
        <Select label="Window" value={String(span)} options={[["200", "200 ms"], ["2000", "2 s"], ["20000", "20 s"], ["1e12", "all that was kept"]]} change={(v) => setSpan(Number(v))} />
        {timelines.length > 1 ? <Select label="Replica" value={String(replica)} options={timelines.map((_, i) => [String(i), `replica ${i}`] as const)} change={(v) => {
          setReplica(Number(v));
          setIndex(stepAt(timelines[Number(v)]?.steps ?? [], at));
        }} /> : null}
      </div>
      <Measured>{(width) => <Timeline lives={all.requests} steps={steps} width={width} from={from} to={from + wide} at={at} />}</Measured>
      <Legend parts={[["s0", "decode"], ["s1", "prefill, or a step with prompts"], ["free", "queued"], ["bad", "preempted"]]} />
      <Facts
        facts={[
          [step.steps > 1 ? `${step.steps} equal steps` : "this step", <b>{time(step.end_ms - step.start_ms)}</b>],
          ["bottleneck", step.bound],
          ["batch", `${counted(step.running, "request")}: ${counted(step.decodes, "decodes", "decode")}, ${counted(step.chunks, "chunk of a prompt", "chunks of prompts")}`],
          ["waiting", grouped(step.waiting)],
          ["prompt tokens", grouped(step.prefill_tokens)],
          ["output tokens", grouped(step.output_tokens)],
          ["KV blocks", grouped(step.kv_blocks)],
        ]}
      />
      <Table
        rows={here.slice(0, 200)}
        caption="Requests at this step"
        file={`roofcast-step-${index + 1}.csv`}
        keyed={(h) => String(h.life.number)}
        columns={[
          { name: "request", show: (h) => `#${h.life.number}`, value: (h) => h.life.number },
          { name: "phase", show: (h) => h.phase, value: (h) => h.phase },
          { name: "gets", show: (h) => (h.phase === "decode" ? `${step.steps} ${step.steps > 1 ? "tokens" : "token"}` : h.phase === "prefill" ? "prompt computed" : "nothing"), value: (h) => (h.phase === "decode" ? step.steps : 0) },
          { name: "prompt, tokens", show: (h) => grouped(h.life.input), value: (h) => h.life.input, number: true },
          { name: "answer so far", show: (h) => grouped(tokensOf(h.life, steps, step.start_ms)), value: (h) => tokensOf(h.life, steps, step.start_ms), number: true },
          { name: "of", show: (h) => grouped(h.life.output), value: (h) => h.life.output, number: true },
        ]}
      />
      {all.cut_at_ms ? <p class="quiet-text">{`The first steps, up to ${time(all.cut_at_ms)}, are kept; the run goes on.`}</p> : null}
    </>
  );
}

function Where({ answer }: { answer: RunAnswer }): JSX.Element {
  const { time: t, settings: s, kv_cache: k, activity: a, fleet, expense } = answer.report;
  const all = t.memory_s + t.compute_s + t.communication_s + t.host_s + t.server_s + t.swap_s + t.idle_s;
  const share = (v: number) => percent(v / all);
  return (
    <Facts
      facts={[
        ["memory", share(t.memory_s)], ["compute", share(t.compute_s)], ["communication", share(t.communication_s)], ["host", share(t.host_s)], ["server", share(t.server_s)], ["idle", share(t.idle_s)],
        ["steps", grouped(a.steps)], ["mean running", significant(a.mean_running)], ["most running", grouped(a.max_running)],
        ["prefix cache hits", `${grouped(a.cached_tokens)} tokens`], ["recomputed", `${grouped(a.recomputed_tokens)} tokens`],
        ["KV cache", `${grouped(k.blocks)} blocks of ${k.block_size} tokens, ${percent(k.mean_usage)} used on average`],
        ["busy", percent(fleet.serving.busy)],
        ["max_num_seqs", grouped(s.max_num_seqs)], ["max_num_batched_tokens", grouped(s.max_num_batched_tokens)],
        ["cost", `${dollars(expense.dollars_per_hour)} an hour`], ["energy", expense.joules_per_output_token === null ? "–" : `${significant(expense.joules_per_output_token)} J per output token`],
        ...extras(answer),
      ]}
    />
  );
}
