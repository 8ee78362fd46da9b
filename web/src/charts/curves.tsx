// Curves over one axis: cumulative distributions of latencies, and levels over time.

import { area, curveStepAfter, line } from "d3-shape";
import type { JSX } from "preact";
import { Frame, across, axisOf, box, scale, upward, type AxisText } from "./frame";

export interface Curve {
  name: string;
  tone: string;
  dashed?: boolean;
  filled?: boolean;
  points: readonly (readonly [number, number])[];
}

export interface Mark {
  at: number;
  name: string;
}

interface Props {
  curves: readonly Curve[];
  width: number;
  height?: number;
  title: string;
  x: AxisText;
  y: AxisText & { most?: number };
  /** Vertical lines, as for a bound or a point in time. */
  marks?: readonly Mark[];
  step?: boolean;
}

export function Curves({ curves, width, height = 240, title, x: ax, y: ay, marks = [], step = false }: Props): JSX.Element {
  const b = { ...box(width, height), top: curves.length > 1 ? 40 : 22 };
  const points = curves.flatMap((c) => c.points);
  const x = scale([...points.map((p) => p[0]), ...marks.map((m) => m.at)], across(b), ax.log ?? false);
  const y = scale(ay.most === undefined ? points.map((p) => p[1]) : [ay.most], upward(b));
  const low = x.domain()[0] as number;
  const at = (v: number) => x(Math.max(v, low));
  const stroke = line<readonly [number, number]>((p) => at(p[0]), (p) => y(p[1]));
  const fill = area<readonly [number, number]>((p) => at(p[0]), y(0), (p) => y(p[1]));
  if (step) {
    stroke.curve(curveStepAfter);
    fill.curve(curveStepAfter);
  }
  // Names stand in a row above the plot, off every curve.
  const lefts = curves.map((_, i) => curves.slice(0, i).reduce((left, c) => left + c.name.length * 6.6 + 44, b.left));
  return (
    <Frame box={b} title={title} x={axisOf(ax, x)} y={axisOf(ay, y)}>
      {marks.map((m) => (
        <g key={m.name} class="bound">
          <line x1={at(m.at)} x2={at(m.at)} y1={upward(b)[0]} y2={upward(b)[1]} />
          <text x={at(m.at) + (at(m.at) > width * 0.7 ? -5 : 5)} y={upward(b)[0] - 6} text-anchor={at(m.at) > width * 0.7 ? "end" : "start"}>{m.name}</text>
        </g>
      ))}
      {curves.map((c) => (
        <g key={c.name}>
          {c.filled ? <path class={`area-${c.tone}`} d={fill(c.points as [number, number][]) ?? ""} /> : null}
          <path class={`stroke-${c.tone} ${c.dashed ? "dashed" : ""}`} d={stroke(c.points as [number, number][]) ?? ""} />
        </g>
      ))}
      {curves.length > 1 ? (
        <g class="legend" aria-hidden="true">
          {curves.map((c, i) => (
            <g key={c.name}>
              <path class={`stroke-${c.tone} ${c.dashed ? "dashed" : ""}`} d={`M${lefts[i]},26h16`} />
              <text x={(lefts[i] ?? 0) + 22} y={30}>{c.name}</text>
            </g>
          ))}
        </g>
      ) : null}
    </Frame>
  );
}
