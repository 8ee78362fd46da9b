// The common layout of all charts: a plot with axes, ticks, a grid, and names with units. Pure: data in, SVG out.

import type { ScaleContinuousNumeric } from "d3-scale";
import { scaleLinear, scaleLog } from "d3-scale";
import type { ComponentChildren, JSX } from "preact";
import { significant, time } from "../format";

export type Scale = ScaleContinuousNumeric<number, number>;

export interface Axis {
  label: string;
  scale: Scale;
  /** Text of a tick. */
  tick?: (value: number) => string;
  /** True for counts, which have no ticks between whole numbers. */
  whole?: boolean;
}

/** What a chart says of an axis before it has a scale. */
export interface AxisText {
  label: string;
  log?: boolean;
  tick?: (value: number) => string;
  whole?: boolean;
}

export const axisOf = ({ label, tick, whole = false }: AxisText, scale: Scale): Axis => ({ label, scale, whole, ...(tick ? { tick } : {}) });

export interface Box {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** Size of a chart and its margins, which hold the labels of the axes, in pixels. */
export const box = (width: number, height: number, left = 56): Box => ({ width, height, left, right: 14, top: 22, bottom: 42 });

export const across = (b: Box): [number, number] => [b.left, b.width - b.right];
export const upward = (b: Box): [number, number] => [b.height - b.bottom, b.top];

/** A scale over `values`: from 0 if linear, over whole decades if logarithmic. */
export function scale(values: readonly number[], range: [number, number], log = false): Scale {
  const finite = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  if (!log) {
    const most = Math.max(0, ...finite);
    return scaleLinear().domain([0, most || 1]).range(range).nice(5);
  }
  const least = Math.min(...(finite.length ? finite : [1]));
  const most = Math.max(...(finite.length ? finite : [10]));
  const low = least * 0.8;
  const high = most * 1.25;
  return scaleLog().domain([low, high === low ? low * 10 : high]).range(range);
}

/** Ticks of a scale, as many as fit in `room`; on a logarithmic scale every number of each decade, or 1, 2 and 5, or only decades. */
export function ticks(s: Scale, room: number, whole = false): number[] {
  const count = Math.max(2, Math.floor(room));
  const all = s.ticks(count).filter((v) => !whole || Number.isInteger(v));
  if (!("base" in s)) return all;
  const lead = (v: number) => Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9));
  for (const leads of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const some = all.filter((v) => leads.includes(lead(v)));
    if (some.length >= 2 && some.length <= count) return some;
  }
  const decades = all.filter((v) => lead(v) === 1);
  const step = Math.ceil(decades.length / count);
  const few = decades.filter((_, i) => i % Math.max(1, step) === 0);
  return few.length ? few : all.slice(0, 1);
}

/** Possible distances of time ticks in milliseconds: 1, 2 and 5 of a decade below a second, then 1, 2, 5, 10, 15 and 30 of a unit. */
const TIMES: readonly number[] = [
  ...[-3, -2, -1, 0, 1, 2].flatMap((decade) => [1, 2, 5].map((lead) => Number((lead * 10 ** decade).toPrecision(1)))),
  ...[1e3, 6e4].flatMap((unit) => [1, 2, 5, 10, 15, 30].map((n) => n * unit)),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * 3.6e6),
];

/** Ticks of a scale of milliseconds. */
export function timeTicks(s: Scale, room: number): number[] {
  const count = Math.max(2, Math.floor(room));
  const [low, high] = s.domain() as [number, number];
  if ("base" in s) {
    const all = TIMES.filter((v) => v >= low && v <= high);
    // A narrow range has few round times, and so the ticks of a linear scale.
    if (all.length < 3) return timeTicks(scaleLinear().domain([low, high]), room);
    const every = Math.ceil(all.length / count);
    return all.filter((_, i) => i % Math.max(1, every) === 0);
  }
  const step = TIMES.find((v) => (high - low) / v <= count) ?? (high - low) / count;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

/** Text of a tick in milliseconds, in the largest unit in which it is a whole number. */
export function timeTick(ms: number): string {
  const unit = ([[3.6e6, "h"], [6e4, "min"], [1e3, "s"]] as const).find(([size]) => ms >= size && Number.isInteger(Number((ms / size).toPrecision(9))));
  return unit ? `${Math.round(ms / unit[0])} ${unit[1]}` : time(ms);
}

interface FrameProps {
  box: Box;
  x: Axis;
  y: Axis;
  title: string;
  /** True if marks can be pressed: the chart is then a group for assistive technology instead of an image. */
  pressed?: boolean;
  children?: ComponentChildren;
}

/** The centre of a text that stays within the picture's right edge; a letter takes about 7 pixels. */
const inside = (at: number, text: string, b: Box): number => Math.min(at, b.width - text.length * 3.5);

export function Frame({ box: b, x, y, title, pressed, children }: FrameProps): JSX.Element {
  const [x0, x1] = across(b);
  const [y0, y1] = upward(b);
  const say = (axis: Axis) => (axis.tick === time ? timeTick : axis.tick) ?? ((v: number) => significant(v));
  const between = (axis: Axis, room: number) => (axis.tick === time ? timeTicks(axis.scale, room) : ticks(axis.scale, room, axis.whole));
  const xs = between(x, (x1 - x0) / 62);
  // A chart of rows has no vertical scale, hence no ticks.
  const ys = y.scale.domain()[0] === y.scale.domain()[1] ? [] : between(y, (y0 - y1) / 34);
  return (
    <svg class="chart" width={b.width} height={b.height} viewBox={`0 0 ${b.width} ${b.height}`} role={pressed ? "group" : "img"} aria-label={title}>
      <g class="grid" aria-hidden="true">
        {ys.map((v) => <line key={v} x1={x0} x2={x1} y1={y.scale(v)} y2={y.scale(v)} />)}
        {xs.map((v) => <line key={v} x1={x.scale(v)} x2={x.scale(v)} y1={y0} y2={y1} />)}
      </g>
      <g class="axis" aria-hidden="true">
        <line x1={x0} x2={x1} y1={y0} y2={y0} />
        {xs.map((v) => <text key={v} x={inside(x.scale(v), say(x)(v), b)} y={y0 + 16} text-anchor="middle">{say(x)(v)}</text>)}
        {ys.map((v) => <text key={v} x={x0 - 7} y={y.scale(v) + 4} text-anchor="end">{say(y)(v)}</text>)}
        <text class="name" x={x1} y={b.height - 6} text-anchor="end">{x.label}</text>
        <text class="name" x={4} y={12} text-anchor="start">{y.label}</text>
      </g>
      {children}
    </svg>
  );
}
