// Points by two quantities: deployments of a plan, or measured values against forecasts.

import { line } from "d3-shape";
import type { JSX } from "preact";
import { Frame, across, box, scale, upward } from "./frame";

export interface Dot {
  key: string;
  name: string;
  x: number;
  y: number;
  tone: string;
  /** True if the point is on the Pareto front. */
  front?: boolean;
  /** True if the point is the answer, which has a ring and is labelled first. */
  best?: boolean;
}

interface Props {
  dots: readonly Dot[];
  width: number;
  height?: number;
  title: string;
  x: { label: string; log: boolean; tick?: (v: number) => string };
  y: { label: string; log: boolean; tick?: (v: number) => string };
  /** True to draw a line through the front; the next field, to draw the line y = x. */
  joined?: boolean;
  diagonal?: boolean;
  labels?: boolean;
  chosen?: string | null;
  choose?: (key: string) => void;
  say: (dot: Dot) => string;
}

/** Keys of the dots on the Pareto front; `right` and `up` are true if larger values are better on that axis. */
export function front(dots: readonly Dot[], right: boolean, up: boolean): Set<string> {
  const better = (a: number, b: number, more: boolean) => (more ? a >= b : a <= b);
  const beats = (a: Dot, b: Dot) =>
    better(a.x, b.x, right) && better(a.y, b.y, up) && (a.x !== b.x || a.y !== b.y);
  return new Set(dots.filter((one) => !dots.some((other) => beats(other, one))).map((one) => one.key));
}

export function Scatter({ dots, width, height = 380, title, x: ax, y: ay, joined, diagonal, labels, chosen, choose, say }: Props): JSX.Element {
  const b = box(width, height, 62);
  const both = diagonal ? dots.flatMap((d) => [d.x, d.y]) : null;
  const x = scale(both ?? dots.map((d) => d.x), across(b), ax.log);
  const y = scale(both ?? dots.map((d) => d.y), upward(b), ay.log);
  const path = line<Dot>((d) => x(d.x), (d) => y(d.y));
  const best = dots.filter((d) => d.front).sort((a, z) => a.x - z.x);
  const axis = (a: { label: string; tick?: (v: number) => string }, s: ReturnType<typeof scale>) =>
    a.tick ? { label: a.label, scale: s, tick: a.tick } : { label: a.label, scale: s };
  const [low, high] = x.domain() as [number, number];
  // Other dots get labels only where there is room.
  const placed = labels ? shownLabels([...best, ...dots.filter((d) => !d.front)], x, y, width) : shownLabels(dots.filter((d) => d.best), x, y, width);
  return (
    <Frame box={b} pressed={choose !== undefined} title={title} x={axis(ax, x)} y={axis(ay, y)}>
      {diagonal ? <line class="diagonal" x1={x(low)} y1={y(low)} x2={x(high)} y2={y(high)} /> : null}
      {joined && best.length > 1 ? <path class="front" d={path(best) ?? ""} /> : null}
      {dots.map((d) => (
        <g
          key={d.key}
          class={`dot ${d.front === false ? "behind" : ""} ${chosen === d.key ? "chosen" : ""}`}
          {...(choose ? { tabIndex: 0, role: "button", "aria-pressed": chosen === d.key, "aria-label": say(d), onClick: () => choose(d.key), onFocus: () => choose(d.key), onMouseEnter: () => choose(d.key) } : {})}
        >
          <circle class={`fill-${d.tone}`} cx={x(d.x)} cy={y(d.y)} r={chosen === d.key ? 7 : 5} />
          {d.best ? <circle class="ringed" cx={x(d.x)} cy={y(d.y)} r={10} /> : null}
          {choose ? null : <title>{say(d)}</title>}
          {placed.has(d.key) ? (
            <text class="mark-name" aria-hidden="true" x={x(d.x) + (x(d.x) > width * 0.66 ? -1 : 1) * (d.best ? 14 : 9)} y={y(d.y) + 4} text-anchor={x(d.x) > width * 0.66 ? "end" : "start"}>{d.name}</text>
          ) : null}
        </g>
      ))}
    </Frame>
  );
}

/** Keys of the dots whose labels do not overlap; earlier dots take precedence. */
function shownLabels(dots: readonly Dot[], x: (v: number) => number, y: (v: number) => number, width: number): Set<string> {
  const taken: [number, number, number][] = [];
  const shown = new Set<string>();
  for (const d of dots) {
    const long = d.name.length * 6.6 + 12;
    const left = x(d.x) > width * 0.66 ? x(d.x) - long : x(d.x);
    const top = y(d.y);
    if (long > width * 0.7 || left < 40) continue;
    if (taken.some(([l, t, w]) => Math.abs(t - top) < 14 && left < l + w && l < left + long)) continue;
    taken.push([left, top, long]);
    shown.add(d.key);
  }
  return shown;
}
