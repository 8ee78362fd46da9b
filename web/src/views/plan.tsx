// View Plan: deployments that meet the SLO, plotted by any two quantities and ranked; commands that start the best; the reason why another lost.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Scatter, front, type Dot } from "../charts/scatter";
import { dollars, grouped, percent, scaled, significant, time } from "../format";
import type { Choice as Deployment, PlanAnswer } from "../generated";
import { useWork } from "../parts/asking";
import { Check, Field, Measured, Picker, Select, Several, Text, Wrong } from "../parts/controls";
import { LoadControls, MoreLoad, SloControls } from "../parts/load";
import { Command, Copied, Facts, Failure, Legend, Section, Table, Working, type Column, type Fact } from "../parts/show";
import { command, file, plan, type Spec } from "../spec";
import { AXES, type State } from "../state";
import { ENGINES, type ViewProps } from "./common";
import { PlanCurves } from "./curves";

/** A quantity of a deployment that can be plotted on an axis. */
export interface Quantity {
  name: string;
  unit: string;
  more: boolean;
  of: (d: Deployment, answer: PlanAnswer) => number | null;
}

const perMillion = (d: Deployment, tokensPerS: number): number | null =>
  d.cost_per_hour === null || tokensPerS <= 0 ? null : (d.cost_per_hour / 3600 / tokensPerS) * 1e6;

/** Prompt tokens per output token, in the mean. */
const ratio = (answer: PlanAnswer): number | null =>
  answer.input_mean === null || !answer.output_mean ? null : answer.input_mean / answer.output_mean;

export const QUANTITIES: Readonly<Record<(typeof AXES)[number], Quantity>> = {
  throughput: { name: "output per accelerator", unit: "tokens/s", more: true, of: (d) => d.output_tok_s_per_accelerator },
  interactivity: { name: "interactivity", unit: "tokens/s of a user", more: true, of: (d) => (d.tpot_ms > 0 ? 1000 / d.tpot_ms : null) },
  e2el: { name: "mean E2EL", unit: "ms", more: false, of: (d) => d.e2el_ms },
  ttft: { name: "TTFT p99", unit: "ms", more: false, of: (d) => d.ttft_p99_ms },
  tpot: { name: "TPOT p99", unit: "ms", more: false, of: (d) => d.tpot_p99_ms },
  hour: { name: "price", unit: "$ an hour", more: false, of: (d) => d.cost_per_hour },
  output: { name: "output tokens", unit: "$ per million", more: false, of: (d) => d.cost_per_million_tokens },
  input: { name: "input tokens", unit: "$ per million", more: false, of: (d, a) => perMillion(d, d.output_tok_s * (ratio(a) ?? 0)) },
  total: { name: "all tokens", unit: "$ per million", more: false, of: (d, a) => { const r = ratio(a); return r === null ? null : perMillion(d, d.output_tok_s * (1 + r)); } },
  joules: { name: "energy", unit: "J per output token", more: false, of: (d) => d.joules_per_token },
  megawatt: { name: "output per power", unit: "tokens/s per MW", more: true, of: (d) => (d.joules_per_token ? 1e6 / d.joules_per_token : null) },
};

const NAMED_AXES = Object.entries(QUANTITIES).map(([key, q]) => [key, `${q.name}, ${q.unit}`] as const);
/** The quantity that shows an objective, so that the best looks best. */
const SHOWS: Readonly<Record<string, (typeof AXES)[number]>> = { cost_per_hour: "hour", cost_per_million_tokens: "output", accelerators: "hour", energy: "joules" };
const MINIMISE = [["cost_per_hour", "dollars an hour"], ["cost_per_million_tokens", "dollars per million tokens"], ["accelerators", "accelerators"], ["energy", "energy"]] as const;

/** Name of a deployment, as in `4 × h100-sxm, tp 2 × 2`. */
export function nameOf(d: Deployment): string {
  const cut = [["tp", d.tp], ["pp", d.pp], ["dp", d.attention_dp], ["ep", d.ep]].filter(([, n]) => Number(n) > 1).map(([k, n]) => `${k} ${n}`).join(" ");
  const replicas = d.prefill ? `${d.prefill.replicas}P${d.replicas}D` : d.beside ? `${d.replicas} + ${d.beside.replicas} replicas` : d.replicas > 1 ? `${d.replicas} replicas` : "";
  const chips = [...new Set([d.prefill?.accelerator, d.accelerator, d.beside?.accelerator].filter(Boolean))].join(" + ");
  return [`${d.count} × ${chips}`, [replicas, cut].filter(Boolean).join(" of ")].filter(Boolean).join(", ");
}

const keyOf = (d: Deployment): string =>
  [d.accelerator, d.count, d.tp, d.pp, d.ep, d.attention_dp, d.replicas, d.prefill?.accelerator ?? "", d.prefill?.replicas ?? 0, d.beside?.accelerator ?? "", d.beside?.replicas ?? 0, d.weights, d.kv, d.max_num_batched_tokens, d.max_num_seqs].join("|");

/** For each multiple of `step` in interactivity (tokens/s of a user), the deployment with the highest throughput per accelerator that reaches it. */
export function readOff(answer: PlanAnswer, step = 10): { at: number; best: Deployment }[] {
  const speed = (d: Deployment) => 1000 / d.tpot_ms;
  const most = Math.max(0, ...answer.report.ranked.map(speed));
  const found: { at: number; best: Deployment }[] = [];
  for (let at = step; at <= most; at += step) {
    const able = answer.report.ranked.filter((d) => speed(d) >= at);
    const best = able.reduce<Deployment | null>((b, d) => (!b || d.output_tok_s_per_accelerator > b.output_tok_s_per_accelerator ? d : b), null);
    if (best) found.push({ at, best });
  }
  return found;
}

/** The spec for curves, which have replicas of one kind each. */
function curved({ search = {}, ...rest }: Spec): Spec {
  const { disaggregated: _, ...kept } = search;
  return { ...rest, search: kept };
}

export function PlanView(props: ViewProps<PlanAnswer>): JSX.Element {
  const { state, set, catalog, shown, toggle } = props;
  const work = useWork<PlanAnswer>(shown);
  const [asked, setAsked] = useState<Spec | null>(null);
  const spec = plan(state);
  const more = state.why ? { why: state.why } : {};
  const go = () => {
    setAsked(spec);
    work.start("/api/plan", { spec, ...more });
  };
  // A page opened by a link shows its answer without a press of the button.
  useEffect(() => {
    if (!shown) go();
  }, []);
  const changed = asked !== null && JSON.stringify(asked) !== JSON.stringify(spec);
  return (
    <Wrong.Provider value={work.error}>
      {shown ? null : (
        <form class="controls" aria-label="Question" onSubmit={(e) => {
          e.preventDefault();
          go();
        }}>
          <Picker label="Model" value={state.model} options={catalog.models} change={(model) => set({ model, weights: "" })} />
          <LoadControls state={state} set={set} catalog={catalog} />
          <SloControls state={state} set={set} />
          <Select label="Least" value={state.minimise} options={MINIMISE} change={(minimise) => set({ minimise })} />
          <Several of="search.accelerators" label="Accelerators to choose from" value={state.chips} hint="catalog ids with commas between them" options={catalog.rented} change={(chips) => set({ chips })} />
          <details class="more">
            <summary>More: published traffic, search, prices, power, why another lost</summary>
            <div class="controls">
              <MoreLoad state={state} set={set} catalog={catalog} />
              <Field of="search.max_accelerators" value={state.most} empty="16" change={(most) => set({ most })} />
              <Field of="search.requests" value={state.proof} empty="10000" hint="or as many as show that a queue grows" change={(proof) => set({ proof })} />
              <Text of="search.weights" label="Weight formats" value={state.formats} hint="as in bf16,fp8; empty: as published" change={(formats) => set({ formats })} />
              <Select label="Engine" value={state.engine} options={ENGINES} change={(engine) => set({ engine })} />
              <Text of="search.prices" label="Own prices" value={state.prices} hint="dollars of an accelerator an hour, as in h100-sxm=2.1,l4=0.6; empty: the catalog's" change={(prices) => set({ prices })} />
              <Text of="search.power_w" label="Own power" value={state.power} hint="watts of an accelerator with its share of the server, as in h100-sxm=1200; empty: its board power" change={(power) => set({ power })} />
              <Field of="hardware.grid_g_per_kwh" unit="g CO₂e/kWh" value={state.grid} empty="no emissions" change={(grid) => set({ grid })} />
              <Text of="why" label="Why did this lose?" value={state.why} hint="as in accelerator=h100-sxm tp=4 replicas=2; run again to hear" change={(why) => set({ why })} />
              <Check label="Also disaggregated" value={state.apart} change={(apart) => set({ apart })} />
            </div>
          </details>
          <div class="actions wide">
            <button type="submit" class="main">{changed ? "Plan what is asked now" : "Plan again"}</button>
            {work.busy ? <button type="button" onClick={work.stop}>Stop</button> : null}
          </div>
        </form>
      )}
      {work.busy ? <Working done={work.progress?.done ?? 0} all={0} what="simulations" /> : null}
      {work.error ? <Failure error={work.error} /> : null}
      {work.answer ? (
        <div class={work.busy || work.error || changed ? "stale" : ""}>
          {work.busy || changed ? <p class="quiet-text">What follows answers the question before, of {work.answer.report.model}.</p> : null}
          <Answer {...props} answer={work.answer} />
        </div>
      ) : null}
      {shown || asked === null ? null : (
        <Section name="curves" title="Throughput against interactivity" open={state.open.includes("curves")} toggle={toggle} note="a curve for each accelerator, over the number of users">
          <PlanCurves spec={curved(asked)} />
        </Section>
      )}
      {shown || !work.answer ? null : (
        <Section name="link" title="Take it along" open={state.open.includes("link")} toggle={toggle}>
          <Command text={command(catalog.flags, "plan", spec, state.why ? ["--why", `'${state.why}'`] : [])} />
          <Copied label="As a spec file" text={file(spec)} />
        </Section>
      )}
    </Wrong.Provider>
  );
}

function Answer({ answer, state, set, toggle }: ViewProps<PlanAnswer> & { answer: PlanAnswer }): JSX.Element {
  const { report } = answer;
  const open = (name: string) => state.open.includes(name);
  const best = report.best;
  return (
    <>
      <header class="headline">
        {best && !report.confident ? <p role="status">{`No deployment of this search meets the SLO with a chance of ${percent(report.confidence)}: this is the most likely one.`}</p> : null}
        <p class="deployment" id="best">{best ? `${nameOf(best)}, ${best.weights} weights, ${best.kv} KV cache` : "No searched deployment meets the SLO."}</p>
        <p class="quiet-text question">{`${report.model}; ${answer.question}`}</p>
        {best ? (
          <Facts
            facts={[
              ["price", <b data-figure="cost_per_hour" data-value={best.cost_per_hour ?? ""}>{`${dollars(best.cost_per_hour)} an hour`}</b>],
              ["chance to meet the SLO", <b>{percent(best.chance)}</b>, "simulated at quantiles of the step times"],
              ["output tokens", <b>{`${dollars(best.cost_per_million_tokens)} per million`}</b>],
              ...(best.grams_co2e_per_million_tokens === undefined ? [] : [["emissions", <b id="carbon">{`${significant(best.grams_co2e_per_million_tokens)} g CO₂e per million`}</b>] as Fact]),
              ["TTFT p99", <b>{time(best.ttft_p99_ms)}</b>],
              ["TPOT p99", <b>{time(best.tpot_p99_ms)}</b>],
              ["bottleneck", <b>{best.bound}</b>],
              ["carries", <b>{best.max_requests_per_s === null ? "–" : `${significant(best.max_requests_per_s)} requests/s`}</b>],
            ]}
          />
        ) : null}
        <p class="quiet-text">{`${grouped(report.considered)} deployments considered; ruled out by memory ${grouped(report.pruned.memory)}, by the limit ${grouped(report.pruned.limit)}, by an estimate ${grouped(report.pruned.estimate)}; ${grouped(report.simulated)} simulations of ${grouped(report.requests)} requests, ${grouped(report.feasible)} met the SLO, ${grouped(report.dearer)} more expensive ones skipped.`}</p>
      </header>
      {report.ranked.length ? <Pareto answer={answer} state={state} set={set} /> : null}
      <Section name="ranked" title="Ranked" open={open("ranked")} toggle={toggle} note={`${grouped(report.ranked.length)} met the SLO as forecast${report.cheaper.length ? `, ${grouped(report.cheaper.length)} of them cheaper than the best and less likely` : ""}`}>
        <Ranked answer={answer} />
      </Section>
      <Section name="read" title="Read off" open={open("read")} toggle={toggle} note="output per accelerator by tokens/s of a user">
        <Table
          rows={readOff(answer)}
          caption="Best output per accelerator at each interactivity"
          file="roofcast-read-off.csv"
          keyed={(r) => String(r.at)}
          columns={[
            { name: "minimum tokens/s of a user", show: (r) => r.at, value: (r) => r.at, number: true },
            { name: "output tokens/s of an accelerator", show: (r) => significant(r.best.output_tok_s_per_accelerator), value: (r) => r.best.output_tok_s_per_accelerator, number: true },
            { name: "deployment", show: (r) => nameOf(r.best), value: (r) => nameOf(r.best) },
            { name: "$ per million output tokens", show: (r) => dollars(r.best.cost_per_million_tokens), value: (r) => r.best.cost_per_million_tokens, number: true },
          ]}
        />
      </Section>
      <Section name="lost" title="Why others lost" open={open("lost") || report.why.length > 0 || !best} toggle={toggle} note={`${report.nearest.length} came near`}>
        <Lost answer={answer} />
      </Section>
      <Section name="launch" title="How to start it" open={open("launch")} toggle={toggle}>
        {report.launch.map((l, i) => l.command
          ? <Copied key={i} label={`${l.replicas} × ${l.role} with ${l.engine}${l.note ? `: ${l.note}` : ""}`} text={l.command} />
          : <p key={i} class="quiet-text">{`${l.engine}: ${l.note}`}</p>)}
        {report.spec ? <Copied label="The best as a spec file: roofcast simulate repeats its proof" text={report.spec} /> : null}
        {report.launch.length === 0 ? <p class="empty">Nothing to start: no deployment met the SLO.</p> : null}
      </Section>
      {report.what_if.length ? (
        <Section name="whatif" title="What if" open={open("whatif")} toggle={toggle}>
          <Table rows={report.what_if} caption="What becomes of the best when something changes" file="roofcast-what-if.csv" keyed={(w) => w.change} columns={[
            { name: "change", show: (w) => w.change, value: (w) => w.change },
            { name: "meets the SLO", show: (w) => (!w.meets ? "no" : w.chance !== null && w.chance < report.confidence ? "as forecast" : "yes"), value: (w) => w.meets },
            { name: "because", show: (w) => w.because, value: (w) => w.because },
            { name: "chance", show: (w) => percent(w.chance), value: (w) => w.chance, number: true },
            { name: "replicas that would do", show: (w) => grouped(w.replicas as number | null), value: (w) => w.replicas as number | null, number: true },
          ]} />
        </Section>
      ) : null}
    </>
  );
}

function Pareto({ answer, state, set }: { answer: PlanAnswer; state: State; set: ViewProps<PlanAnswer>["set"] }): JSX.Element {
  const [chosen, choose] = useState<string | null>(null);
  const axis = (name: string) => AXES.find((one) => one === name);
  const x = QUANTITIES[axis(state.x) ?? "interactivity"];
  const upward = axis(state.y) ?? SHOWS[state.minimise] ?? "hour";
  const y = QUANTITIES[upward];
  const unlikely = (d: Deployment): boolean => d.chance !== null && d.chance < answer.report.confidence;
  const chips = [...new Set(answer.report.ranked.map((d) => d.accelerator))];
  const all = answer.report.ranked.flatMap((d): Dot[] => {
    const [at, up] = [x.of(d, answer), y.of(d, answer)];
    if (at === null || up === null) return [];
    const own = answer.report.best && keyOf(d) === keyOf(answer.report.best);
    return [{ key: keyOf(d), name: own ? `best: ${nameOf(d)}` : nameOf(d), x: at, y: up, tone: `s${chips.indexOf(d.accelerator) % 6}`, best: own ?? false, faded: unlikely(d) }];
  });
  const likely = all.filter((d) => !d.faded);
  const best = front(likely.length ? likely : all, x.more, y.more);
  const dots = all.map((d) => ({ ...d, front: best.has(d.key) })).filter((d) => d.front || d.best || !state.pareto);
  const one = answer.report.ranked.find((d) => keyOf(d) === chosen);
  const tick = (q: Quantity) => (q.unit === "ms" ? time : (v: number) => scaled(v, ""));
  return (
    <figure class="picture">
      <div class="controls">
        <Select label="Upward" value={upward} options={NAMED_AXES} change={(v) => set({ y: v })} />
        <Select label="Across" value={state.x} options={NAMED_AXES} change={(v) => set({ x: v })} />
        <div class="actions wide">
          <Check label="log upward" value={state.logy} change={(logy) => set({ logy })} />
          <Check label="log across" value={state.logx} change={(logx) => set({ logx })} />
          <Check label="Pareto only" value={state.pareto} change={(pareto) => set({ pareto })} />
          <Check label="names" value={state.labels} change={(labels) => set({ labels })} />
        </div>
      </div>
      {dots.length === 0 ? <p class="empty">No deployment has both quantities: the catalog lacks a price or a power.</p> : (
        <Measured>
          {(width) => (
            <Scatter
              dots={dots}
              width={width}
              height={width < 520 ? 320 : 400}
              title={`${dots.length} deployments by ${x.name} and ${y.name}`}
              x={{ label: `${x.name}, ${x.unit}`, log: state.logx, tick: tick(x) }}
              y={{ label: `${y.name}, ${y.unit}`, log: state.logy, tick: tick(y) }}
              joined
              labels={state.labels}
              chosen={chosen}
              choose={choose}
              say={(d) => `${d.name}: ${significant(d.x)} ${x.unit}, ${significant(d.y)} ${y.unit}`}
            />
          )}
        </Measured>
      )}
      <Legend
        parts={[
          ...(chips.length > 1 ? chips.map((chip, i) => [`s${i % 6}`, chip] as const) : []),
          ...(all.some((d) => d.best) ? [["ring", "the best"] as const] : []),
          ...(dots.some((d) => d.faded) ? [["faded", `faded: meets the SLO as forecast, with a chance below ${percent(answer.report.confidence)}`] as const] : []),
        ]}
      />
      <figcaption><p class="readout" aria-live="polite">{one ? `${nameOf(one)}, ${one.weights} weights, ${one.kv} KV: TTFT p99 ${time(one.ttft_p99_ms)}, TPOT p99 ${time(one.tpot_p99_ms)}, ${significant(one.output_tok_s_per_accelerator)} output tokens/s of an accelerator, ${dollars(one.cost_per_hour)} an hour, ${dollars(one.cost_per_million_tokens)} per million output tokens; ${one.bound} binds.` : `Point at a deployment. ${x.more ? "To the right" : "To the left"} and ${y.more ? "higher" : "lower"} is better; the line joins those that no other beats in both.`}</p></figcaption>
    </figure>
  );
}

const RANKED: Column<Deployment>[] = [
  { name: "deployment", show: nameOf, value: nameOf },
  { name: "chance", show: (d) => percent(d.chance), value: (d) => d.chance, number: true, title: () => "to meet the SLO, simulated at quantiles of the step times" },
  { name: "$ an hour", show: (d) => dollars(d.cost_per_hour), value: (d) => d.cost_per_hour, number: true },
  { name: "weights / KV", show: (d) => `${d.weights} / ${d.kv}`, value: (d) => `${d.weights}/${d.kv}` },
  { name: "step tokens", show: (d) => grouped(d.max_num_batched_tokens), value: (d) => d.max_num_batched_tokens, number: true },
  { name: "$ per M output", show: (d) => dollars(d.cost_per_million_tokens), value: (d) => d.cost_per_million_tokens, number: true },
  { name: "TTFT p99", show: (d) => time(d.ttft_p99_ms), value: (d) => d.ttft_p99_ms, number: true },
  { name: "TPOT p99", show: (d) => time(d.tpot_p99_ms), value: (d) => d.tpot_p99_ms, number: true },
  { name: "limit TPOT", show: (d) => time(d.limit.tpot_ms), value: (d) => d.limit.tpot_ms, number: true },
  { name: "tokens/s each", show: (d) => significant(d.output_tok_s_per_accelerator), value: (d) => d.output_tok_s_per_accelerator, number: true },
  { name: "running", show: (d) => significant(d.batch), value: (d) => d.batch, number: true },
  { name: "bottleneck", show: (d) => d.bound, value: (d) => d.bound },
  { name: "evidence", show: (d) => d.evidence ?? "limit", value: (d) => d.evidence },
];

function Ranked({ answer }: { answer: PlanAnswer }): JSX.Element {
  if (!answer.report.ranked.length) return <p class="empty">No deployment met the SLO: loosen it, allow more accelerators, or look at what came near.</p>;
  return <Table rows={answer.report.ranked} columns={RANKED} caption="Deployments that met the SLO, best first" file="roofcast-plan.csv" keyed={keyOf} />;
}

function Lost({ answer }: { answer: PlanAnswer }): JSX.Element {
  const { why, nearest, left_out } = answer.report;
  const rows = [...why.map((n) => ({ ...n, asked: true })), ...nearest.map((n) => ({ ...n, asked: false }))];
  return (
    <>
      {rows.length ? (
        <Table rows={rows} caption="Deployments that are no answer" file="roofcast-lost.csv" keyed={(n) => `${n.asked} ${n.deployment}`} columns={[
          { name: "deployment", show: (n) => <>{n.asked ? <b>asked: </b> : null}{n.deployment}</>, value: (n) => n.deployment },
          { name: "ruled out by", show: (n) => n.stage ?? "not simulated", value: (n) => n.stage },
          { name: "reason", show: (n) => n.reason, value: (n) => n.reason },
          { name: "found / allowed", show: (n) => significant(n.factor), value: (n) => n.factor, number: true },
          { name: "$ an hour", show: (n) => dollars(n.cost_per_hour), value: (n) => n.cost_per_hour, number: true },
        ]} />
      ) : <p class="quiet-text">Ask by name above (“Why did this lose?”).</p>}
      {left_out.length ? (
        <>
          <h3>Reasons, with how many each left out</h3>
          <ul class="plain">{left_out.map((l) => <li key={l.reason}>{`${grouped(l.count)}: ${l.reason}`}</li>)}</ul>
        </>
      ) : null}
    </>
  );
}
