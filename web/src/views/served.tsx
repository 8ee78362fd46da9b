// Parts of view Serve: classes of requests with their SLOs, failures, the first wave, storage and emissions of a run.

import type { JSX } from "preact";
import { bytes, counted, grouped, percent, significant, time } from "../format";
import type { ClassResults, RunAnswer, Slo } from "../generated";
import { Field, Text } from "../parts/controls";
import { Table, type Column, type Fact } from "../parts/show";
import type { State } from "../state";

/** Controls of classes, failures and emissions. */
export function ServedControls({ state, set }: { state: State; set: (some: Partial<State>) => void }): JSX.Element {
  return (
    <>
      <Text of="workload.classes" label="Classes of requests" value={state.classes} hint="name, share, prompt and answer tokens, then TTFT and TPOT p99 in ms if bounded, as in chat 0.8 500 200 1000 50; batch 0.2 4000 800" change={(classes) => set({ classes })} />
      <Field of="fleet.failures.mtbf_s" unit="s" value={state.mtbf} empty="none" hint="of each replica" change={(mtbf) => set({ mtbf })} />
      <Field of="fleet.failures.restart_s" unit="s" value={state.restart} empty="60" change={(restart) => set({ restart })} />
      <Field of="hardware.grid_g_per_kwh" unit="g CO₂e/kWh" value={state.grid} empty="no emissions" change={(grid) => set({ grid })} />
      <Field of="hardware.pue" value={state.pue} empty="1" hint="energy of the site over energy of its machines" change={(pue) => set({ pue })} />
    </>
  );
}

/** The bounds of an SLO in words, as in `ttft p99 ≤ 500 ms`. */
export function bounds(slo: Slo): string {
  const of = ([key, ms]: [string, unknown]) => {
    const [, metric, percentile] = /^(\w+)_(p\d+)_ms$/.exec(key) ?? [];
    return metric && typeof ms === "number" ? [`${metric.toUpperCase()} ${percentile} ≤ ${time(ms)}`] : [];
  };
  return Object.entries(slo).flatMap(of).join(", ") || "none";
}

const share = (c: ClassResults): number | null => (c.good === null ? null : c.good / Math.max(1, c.requests));

const CLASSES: readonly Column<ClassResults>[] = [
  { name: "class", show: (c) => c.name, value: (c) => c.name },
  { name: "SLO", show: (c) => bounds(c.slo), value: (c) => bounds(c.slo) },
  { name: "requests", show: (c) => grouped(c.requests), value: (c) => c.requests, number: true },
  { name: "within the SLO", show: (c) => percent(share(c)), value: share, number: true },
  { name: "TTFT p50", show: (c) => time(c.p50_ttft_ms), value: (c) => c.p50_ttft_ms, number: true },
  { name: "TTFT p99", show: (c) => time(c.p99_ttft_ms), value: (c) => c.p99_ttft_ms, number: true },
  { name: "TPOT p50", show: (c) => time(c.p50_tpot_ms), value: (c) => c.p50_tpot_ms, number: true },
  { name: "TPOT p99", show: (c) => time(c.p99_tpot_ms), value: (c) => c.p99_tpot_ms, number: true },
  { name: "E2EL p99", show: (c) => time(c.p99_e2el_ms), value: (c) => c.p99_e2el_ms, number: true },
];

/** Results of each class of requests; nothing without classes. */
export function Classes({ answer }: { answer: RunAnswer }): JSX.Element | null {
  const { classes = [] } = answer.report;
  if (!classes.length) return null;
  return (
    <div id="classes">
      <h3>Classes of requests</h3>
      <Table rows={classes} columns={CLASSES} caption="Results of each class of requests" file="roofcast-classes.csv" keyed={(c) => c.name} />
    </div>
  );
}

/** Failures and the first wave of a run, a line each. */
export function Notes({ answer }: { answer: RunAnswer }): JSX.Element {
  const { fleet, first_wave: wave, mean_ttft_ms } = answer.report;
  const failed = fleet.failures;
  return (
    <>
      {failed ? <p class="quiet-text" id="failures">{`${counted(failed.count, "failure")}: ${counted(failed.retried, "request")} sent again, ${grouped(failed.lost)} lost; replicas up ${percent(failed.availability)} of the time.`}</p> : null}
      {wave ? <p class="quiet-text" id="first-wave">{`All users begin at once: the first ${counted(wave.completed, "request")} wait ${time(wave.mean_ttft_ms)} for a first token, all together ${time(mean_ttft_ms)} on average.`}</p> : null}
    </>
  );
}

/** Emissions and tiers of the KV cache, where the run has them. */
export function extras(answer: RunAnswer): Fact[] {
  const { expense, kv_cache: k } = answer.report;
  const facts: Fact[] = [];
  if (expense.carbon) {
    const million = expense.carbon.grams_per_million_output_tokens;
    facts.push(["emissions", <span id="carbon">{`${significant(expense.carbon.grams)} g CO₂e, ${million === null ? "–" : significant(million)} g per million output tokens`}</span>, `${significant(expense.carbon.grid_g_per_kwh)} g/kWh, PUE ${significant(expense.carbon.pue)}`]);
  }
  if (k.host) facts.push(["host tier", `${percent(k.host.host_hit_rate)} of prompt tokens, ${bytes(k.host.loaded_bytes)} loaded`]);
  if (k.host?.storage) facts.push(["storage", `${percent(k.host.storage.hit_rate)} of prompt tokens, ${bytes(k.host.storage.loaded_bytes)} read`]);
  return facts;
}
