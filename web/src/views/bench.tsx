// View of a run of `roofcast bench`, as `--html` writes it: measured values with forecast and limit.

import type { JSX } from "preact";
import { Curves } from "../charts/curves";
import { Bars, type Bar } from "../charts/stack";
import { grouped, percent, significant, time } from "../format";
import { Measured } from "../parts/controls";
import { Facts, Table } from "../parts/show";

/** The keys of `roofcast/bench/2` that the view shows (docs/json.md). */
export interface BenchAnswer {
  report: {
    url: string;
    model_id: string;
    valid: boolean;
    invalid_because: string[];
    completed: number;
    failed: number;
    duration: number;
    request_throughput: number;
    output_throughput: number;
    mean_ttft_ms: number;
    median_ttft_ms: number;
    p99_ttft_ms: number;
    mean_tpot_ms: number | null;
    median_tpot_ms: number | null;
    p99_tpot_ms: number | null;
    mean_e2el_ms: number;
    median_e2el_ms: number;
    p99_e2el_ms: number;
    achieved_concurrency: number;
    limit: { hardware: string; tpot_ms: number | null; ttft_ms: number; bound: string; tpot_share: number | null; advice: string } | null;
    forecast: { median_ttft_ms: number; median_tpot_ms: number | null; mean_e2el_ms: number; output_throughput: number } | null;
  };
  distributions: { metric: string; ms: number[]; shares: number[] }[];
}

export function BenchView({ answer }: { answer: BenchAnswer }): JSX.Element {
  const { report: r, distributions } = answer;
  const bars = (measured: number | null, forecast: number | null | undefined, limit: number | null | undefined): Bar[] => [
    ...(measured === null ? [] : [{ name: "measured", value: measured, tone: "s5" }]),
    ...(forecast === undefined || forecast === null ? [] : [{ name: "forecast", value: forecast, tone: "s0" }]),
    ...(limit === undefined || limit === null ? [] : [{ name: "limit", value: limit, tone: "s2" }]),
  ];
  const rows = (["ttft", "tpot", "e2el"] as const).map((metric) => ({ metric, mean: r[`mean_${metric}_ms`], median: r[`median_${metric}_ms`], p99: r[`p99_${metric}_ms`] }));
  return (
    <>
      <header class="headline">
        <p class="deployment">{`${r.model_id} at ${r.url}`}</p>
        {r.valid ? null : <p class="failure">{`Not to be believed: ${r.invalid_because.join("; ")}`}</p>}
        {r.limit ? <p>{r.limit.advice}.</p> : null}
        <Facts
          facts={[
            ["requests", <><b>{grouped(r.completed)}</b> <small>{`in ${time(r.duration * 1e3)}, ${grouped(r.failed)} failed`}</small></>],
            ["served", <b>{`${significant(r.request_throughput)} /s`}</b>],
            ["output", <b>{`${significant(r.output_throughput)} tokens/s`}</b>],
            ["in flight", <b>{significant(r.achieved_concurrency)}</b>],
            ...(r.limit ? [["bottleneck", <b>{r.limit.bound}</b>] as const, ["limit over measured TPOT", <b>{percent(r.limit.tpot_share)}</b>] as const] : []),
          ]}
        />
      </header>
      <div class="pair">
        <figure class="picture">
          <figcaption><h3>TTFT, median</h3></figcaption>
          <Measured>{(width) => <Bars bars={bars(r.median_ttft_ms, r.forecast?.median_ttft_ms, r.limit?.ttft_ms)} width={width} title="TTFT" label="ms" say={time} />}</Measured>
        </figure>
        <figure class="picture">
          <figcaption><h3>TPOT, median</h3></figcaption>
          <Measured>{(width) => <Bars bars={bars(r.median_tpot_ms, r.forecast?.median_tpot_ms, r.limit?.tpot_ms)} width={width} title="TPOT" label="ms" say={time} />}</Measured>
        </figure>
        {distributions.filter((d) => d.ms.length > 1).map((d) => (
          <figure class="picture" key={d.metric}>
            <figcaption><h3>{d.metric.toUpperCase()}</h3></figcaption>
            <Measured>{(width) => <Curves width={width} height={220} title={`${d.metric} as cumulative shares`} x={{ label: d.metric.toUpperCase(), log: true, tick: time }} y={{ label: "share of requests", most: 1, tick: percent }} curves={[{ name: "measured", tone: "s0", points: d.ms.map((ms, i): [number, number] => [ms, d.shares[i] ?? 0]) }]} />}</Measured>
          </figure>
        ))}
      </div>
      <Table rows={rows} caption="Latencies in milliseconds" file="roofcast-bench.csv" keyed={(l) => l.metric} columns={[
        { name: "ms", show: (l) => l.metric.toUpperCase(), value: (l) => l.metric },
        { name: "mean", show: (l) => significant(l.mean), value: (l) => l.mean, number: true },
        { name: "p50", show: (l) => significant(l.median), value: (l) => l.median, number: true },
        { name: "p99", show: (l) => significant(l.p99), value: (l) => l.p99, number: true },
      ]} />
    </>
  );
}
