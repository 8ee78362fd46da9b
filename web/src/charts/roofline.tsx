// The roofline: every operator at its limit, which lies on a roof, joined by a line to its forecast below.

import { line } from "d3-shape";
import type { JSX } from "preact";
import { percent, scaled, significant, time } from "../format";
import { Frame, across, box, scale, upward } from "./frame";

export interface RooflinePoint {
  name: string;
  /** Arithmetic intensity in FLOP/byte. */
  intensity: number;
  /** FLOP/s at the limit; the next field has the forecast. */
  limit: number;
  forecast: number;
  /** Fraction of the step's forecast time. */
  share: number;
  bound: string;
  limitMs: number;
  forecastMs: number;
}

export interface Roof {
  dtype: string;
  /** Peak rate in FLOP/s. */
  peak: number;
}

export interface RooflineData {
  points: readonly RooflinePoint[];
  roofs: readonly Roof[];
  /** Memory bandwidth in bytes per second. */
  bandwidth: number;
}

interface Operator {
  name: string;
  dtype: string;
  flops: number;
  intensity: number;
  bound: string;
  limit_ms: number;
  forecast_ms: number;
}

/** Data of a step's roofline: the operators with FLOPs, and the roofs of the dtypes in which they compute. */
export function rooflineData(operators: readonly Operator[], peaks: Readonly<Record<string, number>>, bandwidth: number): RooflineData {
  const all = operators.reduce((sum, o) => sum + o.forecast_ms, 0);
  const points = operators
    .filter((o) => o.flops > 0 && o.intensity > 0 && o.limit_ms > 0)
    .map((o) => ({
      name: o.name,
      intensity: o.intensity,
      limit: o.flops / (o.limit_ms / 1e3),
      forecast: o.flops / (o.forecast_ms / 1e3),
      share: all > 0 ? o.forecast_ms / all : 0,
      bound: o.bound,
      limitMs: o.limit_ms,
      forecastMs: o.forecast_ms,
    }));
  const used = [...new Set(operators.map((o) => o.dtype))];
  const roofs = used.flatMap((dtype) => {
    const peak = peaks[dtype];
    return peak ? [{ dtype, peak }] : [];
  });
  return { points, roofs: roofs.sort((a, b) => b.peak - a.peak), bandwidth };
}

interface Props {
  data: RooflineData;
  width: number;
  height?: number;
  chosen?: string | null;
  choose?: (name: string) => void;
}

export function Roofline({ data, width, height = 380, chosen = null, choose }: Props): JSX.Element {
  const b = box(width, height, 64);
  const peak = Math.max(...data.roofs.map((r) => r.peak), 1);
  const ridge = peak / data.bandwidth;
  const intensities = data.points.map((p) => p.intensity);
  const x = scale([Math.min(0.5, ...intensities), Math.max(ridge * 8, ...intensities)], across(b), true);
  const [left, right] = x.domain() as [number, number];
  const y = scale([Math.min(peak / 300, ...data.points.map((p) => p.forecast * 0.5)), peak * 1.3], upward(b), true);
  const low = y.domain()[0] as number;
  const path = line<[number, number]>((p) => x(p[0]), (p) => y(Math.max(p[1], low)));
  // A roof starts at the intensity at which the bandwidth's line enters the picture.
  const from = Math.max(left, low / data.bandwidth);
  const roof = (top: number) => path([[from, from * data.bandwidth], [top / data.bandwidth, top], [right, top]]) ?? "";
  const biggest = [...data.points].sort((a, b) => b.share - a.share);
  const names = labels(biggest, (p) => [x(p.intensity), y(p.forecast)], chosen);
  return (
    <Frame
      box={b}
      pressed
      title={`Roofline: ${data.points.length} operators under a bandwidth of ${scaled(data.bandwidth, "B/s")} and a peak of ${scaled(peak, "FLOP/s")}`}
      x={{ label: "intensity, FLOP per byte", scale: x }}
      y={{ label: "FLOP/s of one accelerator", scale: y, tick: (v) => scaled(v, "") }}
    >
      {data.roofs.map((r) => (
        <g key={r.dtype}>
          <path class="roof" d={roof(r.peak)} />
          <text class="roof-name" x={across(b)[1] - 2} y={y(r.peak) - 6} text-anchor="end">{`${r.dtype} ${scaled(r.peak, "FLOP/s")}`}</text>
        </g>
      ))}
      <text class="roof-name" transform={`translate(${x(Math.sqrt(from * ridge))},${y(Math.sqrt(from * ridge) * data.bandwidth) - 8}) rotate(${slope(x, y, from, ridge, data.bandwidth)})`} text-anchor="middle">
        {scaled(data.bandwidth, "B/s")}
      </text>
      {biggest.map((p) => (
        <g
          key={p.name}
          class={`operator ${p.bound} ${chosen === p.name ? "chosen" : ""}`}
          tabIndex={0}
          role="button"
          aria-pressed={chosen === p.name}
          aria-label={`${names.get(p.name) ?? p.name}: ${p.bound}-bound, ${significant(p.intensity)} FLOP per byte, limit ${time(p.limitMs)}, forecast ${time(p.forecastMs)}, ${percent(p.share)} of the operators' time`}
          onClick={() => choose?.(p.name)}
          onMouseEnter={() => choose?.(p.name)}
          onFocus={() => choose?.(p.name)}
        >
          <line x1={x(p.intensity)} x2={x(p.intensity)} y1={y(p.limit)} y2={y(p.forecast)} />
          <circle class="limit" cx={x(p.intensity)} cy={y(p.limit)} r={3.5} />
          <circle class="forecast" cx={x(p.intensity)} cy={y(p.forecast)} r={4 + 9 * Math.sqrt(p.share)} />
          {names.has(p.name) ? label(names.get(p.name) ?? "", p.share, [x(p.intensity), y(p.forecast)], width) : null}
        </g>
      ))}
    </Frame>
  );
}

/** One label for marks that overlap: the name of the largest, or of the chosen one, and the number of others. */
export function labels(points: readonly RooflinePoint[], at: (p: RooflinePoint) => readonly [number, number], chosen: string | null): Map<string, string> {
  const groups: RooflinePoint[][] = [];
  for (const p of points) {
    const [left, top] = at(p);
    const near = groups.find(([first]) => {
      const [x, y] = at(first as RooflinePoint);
      return Math.abs(x - left) < 90 && Math.abs(y - top) < 13;
    });
    if (near) near.push(p);
    else groups.push([p]);
  }
  const named = groups.map((group): [string, string] => {
    const first = group.find((p) => p.name === chosen) ?? (group[0] as RooflinePoint);
    return [first.name, group.length > 1 ? `${first.name} and ${group.length - 1} more` : first.name];
  });
  return new Map(named);
}

/** A label next to its mark, on the side that has room. */
function label(name: string, share: number, [left, top]: readonly [number, number], width: number): JSX.Element {
  const reach = 4 + 9 * Math.sqrt(share) + 5;
  const long = name.length * 7;
  if (left + reach + long <= width) return <text class="mark-name" aria-hidden="true" x={left + reach} y={top + 4}>{name}</text>;
  if (left - reach - long >= 64) return <text class="mark-name" aria-hidden="true" x={left - reach} y={top + 4} text-anchor="end">{name}</text>;
  return <text class="mark-name" aria-hidden="true" x={width - 14} y={top + reach + 12} text-anchor="end">{name}</text>;
}

/** Angle of the bandwidth's line on the screen, in degrees. */
function slope(x: (v: number) => number, y: (v: number) => number, from: number, to: number, bandwidth: number): number {
  return (Math.atan2(y(to * bandwidth) - y(from * bandwidth), x(to) - x(from)) * 180) / Math.PI;
}
