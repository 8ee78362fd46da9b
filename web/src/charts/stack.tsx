// A bar divided into parts with a legend, and a chart of several bars on one axis.

import { scaleLinear } from "d3-scale";
import type { JSX } from "preact";
import { Frame, across, box, scale, upward } from "./frame";

export interface Part {
  name: string;
  value: number;
  /** Class of the colour: `s0` to `s6`, or `free`. */
  tone: string;
}

/** A bar divided in proportion to its parts, with a mark at `end`; parts of size zero are left out. */
export function Stack({ parts, width, title, say, end }: {
  parts: readonly Part[];
  width: number;
  title: string;
  say: (value: number) => string;
  end: { at: number; name: string };
}): JSX.Element {
  const shown = parts.filter((p) => p.value > 0);
  const whole = Math.max(end.at, shown.reduce((sum, p) => sum + p.value, 0));
  const x = scaleLinear().domain([0, whole || 1]).range([0, width - 2]);
  const mark = x(end.at) + 1;
  const left = mark > width / 2;
  let from = 0;
  return (
    <svg class="chart" width={width} height={52} viewBox={`0 0 ${width} 52`} role="img" aria-label={`${title}: ${shown.map((p) => `${p.name} ${say(p.value)}`).join(", ")}; ${end.name}`}>
      {shown.map((p) => {
        const start = x(from);
        from += p.value;
        return (
          <rect key={p.name} class={`fill-${p.tone}`} x={start} y={18} width={Math.max(0.5, x(from) - start - 1)} height={30}>
            <title>{`${p.name}: ${say(p.value)}`}</title>
          </rect>
        );
      })}
      <line class="card-end" x1={mark} x2={mark} y1={4} y2={52} />
      <text x={mark + (left ? -6 : 6)} y={13} text-anchor={left ? "end" : "start"} aria-hidden="true">{end.name}</text>
    </svg>
  );
}

export interface Bar {
  name: string;
  value: number;
  tone: string;
  /** Lower and upper end of a band around the value. */
  band?: readonly [number, number];
}

/** Horizontal bars from zero. */
export function Bars({ bars, width, title, label, say }: { bars: readonly Bar[]; width: number; title: string; label: string; say: (value: number) => string }): JSX.Element {
  const left = Math.min(150, width * 0.36);
  const b = { ...box(width, bars.length * 30 + 54, left), top: 8 };
  const [x0, x1] = across(b);
  const x = scale(bars.flatMap((bar) => [bar.value, ...(bar.band ?? [])]), [x0, x1 - 64]);
  const y = scaleLinear().domain([0, bars.length]).range([b.top, upward(b)[0]]);
  return (
    <Frame box={b} title={`${title}: ${bars.map((bar) => `${bar.name} ${say(bar.value)}`).join(", ")}`} x={{ label, scale: x }} y={{ label: "", scale: scaleLinear().domain([0, 0]).range([0, 0]), tick: () => "" }}>
      {bars.map((bar, i) => {
        const top = y(i) + 5;
        const end = Math.max(x(bar.value), x(bar.band?.[1] ?? 0));
        return (
          <g key={bar.name}>
            <text class="bar-name" x={x0 - 8} y={top + 14} text-anchor="end">{bar.name}</text>
            <rect class={`fill-${bar.tone}`} x={x0} y={top} width={Math.max(1, x(bar.value) - x0)} height={20} />
            {bar.band ? <Whisker from={x(bar.band[0])} to={x(bar.band[1])} top={top} /> : null}
            <text class="bar-value" x={end + 6} y={top + 14}>{say(bar.value)}</text>
          </g>
        );
      })}
    </Frame>
  );
}

/** A band, drawn with an outline so that it is visible on any bar. */
function Whisker({ from, to, top }: { from: number; to: number; top: number }): JSX.Element {
  const d = `M${from},${top + 10}H${to}M${from},${top + 5}v10M${to},${top + 5}v10`;
  return <><path class="whisker-back" d={d} /><path class="whisker" d={d} /></>;
}
