// Points by two quantities: deployments of a plan, or measured values against forecasts.

import { line } from "d3-shape";
import type { JSX } from "preact";
import { Frame, across, axisOf, box, scale, upward, type AxisText, type Box } from "./frame";

export interface Dot {
  key: string;
  name: string;
  x: number;
  y: number;
  tone: string;
  /** True if the point is on the Pareto front. */
  front?: boolean;
  /** True if the point is drawn faded, because it is less certain than the others. */
  faded?: boolean;
  /** True if the point is the answer, which has a ring and is labelled first. */
  best?: boolean;
}

interface Props {
  dots: readonly Dot[];
  width: number;
  height?: number;
  title: string;
  x: AxisText;
  y: AxisText;
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
  const [low, high] = x.domain() as [number, number];
  const asked = labels ? [...dots.filter((d) => d.best), ...best, ...dots.filter((d) => !d.front)] : dots.filter((d) => d.best);
  const placed = placedLabels(asked, dots.map((d) => [x(d.x), y(d.y)]), x, y, b);
  return (
    <Frame box={b} pressed={choose !== undefined} title={title} x={axisOf(ax, x)} y={axisOf(ay, y)}>
      {diagonal ? <line class="diagonal" x1={x(low)} y1={y(low)} x2={x(high)} y2={y(high)} /> : null}
      {joined && best.length > 1 ? <path class="front" d={path(best) ?? ""} /> : null}
      {dots.map((d) => (
        <g
          key={d.key}
          class={`dot ${d.faded ? "faded" : ""} ${chosen === d.key ? "chosen" : ""}`}
          {...(choose ? { tabIndex: 0, role: "button", "aria-pressed": chosen === d.key, "aria-label": say(d), onClick: () => choose(d.key), onFocus: () => choose(d.key), onMouseEnter: () => choose(d.key) } : {})}
        >
          <circle class={`fill-${d.tone}`} cx={x(d.x)} cy={y(d.y)} r={chosen === d.key ? 7 : 5} />
          {d.best ? <circle class="ringed" cx={x(d.x)} cy={y(d.y)} r={10} /> : null}
          {choose ? null : <title>{say(d)}</title>}
          {placed.has(d.key) ? <text class="mark-name" aria-hidden="true" x={placed.get(d.key)?.left} y={(placed.get(d.key)?.top ?? 0) + 11}>{d.name}</text> : null}
        </g>
      ))}
    </Frame>
  );
}

interface Place {
  left: number;
  top: number;
  width: number;
}

/** Height of a label in pixels, and width of a letter. */
const [LINE, LETTER] = [14, 6.6];

/** Places of the labels that cover neither a label nor a dot of `marks`; earlier dots take precedence, and labels without room are left out. */
export function placedLabels(dots: readonly Dot[], marks: readonly (readonly [number, number])[], x: (v: number) => number, y: (v: number) => number, b: Box): Map<string, Place> {
  const placed = new Map<string, Place>();
  const named = new Set<string>();
  const free = ({ left, top, width }: Place): boolean =>
    left >= b.left && left + width <= b.width - 2 && top >= b.top - LINE && top + LINE <= b.height - b.bottom
    && ![...placed.values()].some((p) => Math.abs(p.top - top) < LINE && left < p.left + p.width && p.left < left + width)
    && !marks.some(([at, up]) => up > top - 3 && up < top + LINE + 3 && at > left - 5 && at < left + width + 5);
  for (const d of dots) {
    // Deployments that differ only in settings have one name.
    if (placed.has(d.key) || named.has(d.name)) continue;
    const [at, up] = [x(d.x), y(d.y)];
    const [width, gap] = [d.name.length * LETTER, d.best ? 14 : 9];
    const sides = [[at + gap, up - 7], [at - gap - width, up - 7], [at - width / 2, up - gap - LINE], [at - width / 2, up + gap - 2], [at + 2, up - gap - LINE], [at - width - 2, up - gap - LINE]] as const;
    const place = sides.map(([left, top]): Place => ({ left, top, width })).find(free);
    if (!place) continue;
    placed.set(d.key, place);
    named.add(d.name.replace(/^best: /, ""));
  }
  return placed;
}
