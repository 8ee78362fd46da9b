// Curves: throughput per accelerator against tokens per second of a user, and cost per token by latency.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { dollars, grouped, significant, time } from "../format";
import type { Curve, CurvesAnswer } from "../generated";
import { useWork } from "../parts/asking";
import { Drawn } from "../parts/drawn";
import { Failure, Table, Working, type Column } from "../parts/show";
import type { Spec } from "../spec";

type Point = Curve["points"][number];

/** A point with the curve that it is on. */
interface Row {
  curve: Curve;
  point: Point;
}

/** A point's replica in words, as in `h100-sxm, tp 2`. */
function replicaOf({ curve, point }: Row): string {
  const others = [["pp", point.pp], ["dp", point.attention_dp], ["ep", point.ep]].filter(([, n]) => Number(n) > 1).map(([name, n]) => ` ${name} ${n}`);
  const cut = `tp ${point.tp}${others.join("")}`;
  return curve.name.endsWith(cut) ? curve.name : `${curve.name}, ${cut}`;
}

const COLUMNS: Column<Row>[] = [
  { name: "replica", show: replicaOf, value: replicaOf },
  { name: "users", show: (r) => grouped(r.point.users), value: (r) => r.point.users, number: true },
  { name: "tokens/s of a user", show: (r) => significant(r.point.interactivity_tok_s), value: (r) => r.point.interactivity_tok_s, number: true },
  { name: "tokens/s of an accelerator", show: (r) => significant(r.point.output_tok_s_per_accelerator), value: (r) => r.point.output_tok_s_per_accelerator, number: true },
  { name: "$ per M output", show: (r) => dollars(r.point.cost_per_million_tokens), value: (r) => r.point.cost_per_million_tokens, number: true },
  { name: "J per token", show: (r) => significant(r.point.joules_per_token), value: (r) => r.point.joules_per_token, number: true },
  { name: "TTFT p99", show: (r) => time(r.point.ttft_p99_ms), value: (r) => r.point.ttft_p99_ms, number: true },
  { name: "TPOT p99", show: (r) => time(r.point.tpot_p99_ms), value: (r) => r.point.tpot_p99_ms, number: true },
  { name: "SLO", show: (r) => (r.point.missed === null ? "met" : "missed"), value: (r) => r.point.missed, title: (r) => r.point.missed ?? "every bound is kept" },
  { name: "based on", show: (r) => basis(r.point), value: (r) => basis(r.point) },
];

function basis(point: Point): string {
  if (point.evidence === null) return "the limit";
  return point.kernels ? `kernels of ${point.kernels.engine} ${point.kernels.version} on ${point.kernels.accelerator}` : (point.bands?.rests_on ?? "");
}

const keyOf = (r: Row): string => `${replicaOf(r)} ${r.point.users}`;

export function CurvesAnswerView({ answer }: { answer: CurvesAnswer }): JSX.Element {
  const { report, pictures } = answer;
  const best = report.curves.flatMap((curve): Row[] => (curve.best ? [{ curve, point: curve.best as Point }] : []));
  best.sort((a, b) => (a.point.cost_per_million_tokens ?? Infinity) - (b.point.cost_per_million_tokens ?? Infinity));
  const all = report.curves.flatMap((curve) => curve.points.map((point): Row => ({ curve, point })));
  if (all.length === 0) return <p class="empty">{`No accelerator of the search holds the model. ${report.left_out.join("; ")}.`}</p>;
  return (
    <>
      <figure class="picture" id="curves">
        <Drawn pictures={pictures} title={`Output tokens a second of an accelerator against those of one user, and cost against latency: ${report.curves.map((c) => c.name).join(", ")}`} />
        <figcaption class="quiet-text">Each point is one replica under a fixed number of users, simulated; point at it for its figures. A curve has the points of which none has more of both.</figcaption>
      </figure>
      <h3>The most load that keeps the SLO</h3>
      {best.length ? <Table rows={best} columns={COLUMNS} caption="The most load of each curve that keeps the SLO, cheapest first" file="roofcast-best-load.csv" keyed={keyOf} /> : <p class="empty">No point keeps the SLO.</p>}
      <h3>All points</h3>
      <Table rows={all} columns={COLUMNS} caption="Points of the curves, the fastest for a user first" file="roofcast-curves.csv" keyed={keyOf} />
      {report.left_out.map((why) => <p key={why} class="quiet-text">{`No curve: ${why}.`}</p>)}
    </>
  );
}

/** The curves for a plan's spec, asked for again whenever the spec changes. */
export function PlanCurves({ spec }: { spec: Spec }): JSX.Element {
  const work = useWork<CurvesAnswer>(null);
  const asked = JSON.stringify(spec);
  useEffect(() => work.start("/api/curves", { spec }), [asked]);
  return (
    <>
      {work.busy ? <Working done={work.progress?.done ?? 0} all={0} what="simulations" /> : null}
      {work.error ? <Failure error={work.error} /> : null}
      {work.answer ? <div class={work.busy || work.error ? "stale" : ""}><CurvesAnswerView answer={work.answer} /></div> : null}
    </>
  );
}
