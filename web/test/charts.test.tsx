// Charts are functions from data to SVG: where marks stand is computed by hand here.

import { render } from "preact-render-to-string";
import { describe, expect, it } from "vitest";
import { Curves } from "../src/charts/curves";
import { across, box, scale, ticks, timeTick, timeTicks, upward } from "../src/charts/frame";
import { Roofline, rooflineData } from "../src/charts/roofline";
import { Scatter, front, type Dot } from "../src/charts/scatter";
import { Bars, Stack } from "../src/charts/stack";
import { Timeline, during, stepAt, tokensOf } from "../src/charts/timeline";
import type { Life, Step } from "../src/generated";
import { fitting } from "../src/parts/drawn";
import type { Spec } from "../src/spec";
import { differing } from "../src/views/serve";

const attribute = (svg: string, tag: RegExp, name: string): number[] =>
  [...svg.matchAll(new RegExp(tag.source + `[^>]* ${name}="([^"]*)"`, "g"))].map((m) => Number(m[1]));

describe("scales", () => {
  it("start at zero where linear and keep within the range where logarithmic", () => {
    expect(scale([3, 9], [0, 100]).domain()).toEqual([0, 10]);
    const log = scale([1, 100], [0, 100], true);
    // From 0.8 to 125: log(1/0.8) of log(156.25) of the range.
    expect(log(1)).toBeCloseTo((Math.log(1 / 0.8) / Math.log(125 / 0.8)) * 100, 9);
  });

  it("have no more ticks than fit", () => {
    const log = scale([1e-3, 1e6], [0, 300], true);
    expect(ticks(log, 5).length).toBeLessThanOrEqual(6);
    expect(ticks(log, 5).length).toBeGreaterThanOrEqual(2);
    expect(ticks(scale([4, 40], [0, 300], true), 6)).toEqual([5, 10, 20, 30, 50]);
    // Within a decade every number has room.
    expect(ticks(scale([1.6, 8], [0, 300], true), 10)).toEqual([2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  it("count what is whole in whole numbers", () => {
    expect(ticks(scale([1], [0, 100]), 6)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(scale([1], [0, 100]), 6, true)).toEqual([0, 1]);
    const svg = render(<Curves curves={[{ name: "preemptions", tone: "s3", points: [[0, 0], [10, 1]] }]} width={400} title="t" x={{ label: "x" }} y={{ label: "y", tick: (v) => `n${Math.round(v)}`, whole: true }} />);
    expect([...svg.matchAll(/>(n\d)</g)].map((m) => m[1])).toEqual(["n0", "n1"]);
  });

  it("divide times by whole seconds, minutes and hours", () => {
    const said = (values: number[], room: number, log = false) => timeTicks(scale(values, [0, 600], log), room).map(timeTick);
    // 200 s in six parts: steps of 30 s are the first of which seven fit, and no tick says 3.33 min.
    expect(said([200_000], 7)).toEqual(["0 ms", "30 s", "1 min", "90 s", "2 min", "150 s", "3 min"]);
    expect(said([50], 6)).toEqual(["0 ms", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]);
    // 4 h are 14.4e6 ms, on a scale that ends at 20e6, 5.6 h: an hour has no room for five.
    expect(said([4 * 3.6e6], 5)).toEqual(["0 ms", "2 h", "4 h"]);
    expect(said([4 * 3.6e6], 6)).toEqual(["0 ms", "1 h", "2 h", "3 h", "4 h", "5 h"]);
    // From 40 to 250 000 ms: 50 to 500 ms, 1 to 30 s and 1 and 2 min are 12; in a room of six each second.
    // From 1.6 to 3.25 s only 2 s is round: steps of 500 ms, as on a linear scale.
    expect(said([2000, 2600], 6, true)).toEqual(["2 s", "2.5 s", "3 s"]);
    expect(said([50, 200_000], 6, true)).toEqual(["50 ms", "200 ms", "1 s", "5 s", "15 s", "1 min"]);
  });

  it("do without values", () => {
    expect(scale([], [0, 10]).domain()).toEqual([0, 1]);
    expect(scale([Number.NaN], [0, 10], true).domain().every(Number.isFinite)).toBe(true);
  });
});

it("a picture of the program is the widest that has room", () => {
  const pictures = [1000, 640, 350].map((width) => ({ width, svg: `<svg width='${width}'/>` }));
  // Up to 15 % are taken off a picture's size; below the narrowest it shrinks.
  expect([1040, 900, 700, 560, 390, 280].map((width) => fitting(pictures, width)?.width)).toEqual([1000, 1000, 640, 640, 350, 350]);
});

it("two questions differ in the keys that are not alike", () => {
  const spec = (rate: number): Spec => ({ model: { name: "m" }, workload: { arrivals: { kind: "poisson", rate }, ...(rate > 4 ? { seed: 1 } : {}) } });
  expect(differing(spec(8), spec(4))).toEqual(["workload.arrivals.rate: 8, kept 4", "workload.seed: 1, kept not said"]);
  expect(differing(spec(4), spec(4))).toEqual([]);
});

describe("roofline", () => {
  const operator = (name: string, flops: number, intensity: number, limit: number, forecast: number) =>
    ({ name, dtype: "bf16", flops, intensity, bound: "memory", limit_ms: limit, forecast_ms: forecast });
  // 1e12 FLOP in 2 ms are 5e14 FLOP/s, in 4 ms half of it; 4 of 5 ms are 80 %.
  const data = rooflineData([operator("gate_up", 1e12, 100, 2, 4), operator("norm", 0, 0, 0, 0), operator("lm_head", 1e11, 1, 0.5, 1)], { bf16: 1e15, fp8: 2e15 }, 1e12);

  it("has the operators that compute, at FLOPs over time", () => {
    expect(data.points.map((p) => [p.name, p.limit, p.forecast, p.share])).toEqual([["gate_up", 5e14, 2.5e14, 0.8], ["lm_head", 2e14, 1e14, 0.2]]);
    expect(data.roofs).toEqual([{ dtype: "bf16", peak: 1e15 }]);
  });

  it("draws the forecast below the limit, at the same intensity", () => {
    const svg = render(<Roofline data={data} width={600} />);
    const limits = attribute(svg, /<circle class="limit"/, "cy");
    const forecasts = attribute(svg, /<circle class="forecast"/, "cy");
    expect(limits).toHaveLength(2);
    // A factor of two in time is the same distance for both on a logarithmic axis.
    const [a = 0, b = 0] = forecasts.map((cy, i) => cy - (limits[i] ?? 0));
    expect(a).toBeGreaterThan(0);
    expect(a).toBeCloseTo(b, 6);
    expect(attribute(svg, /<circle class="limit"/, "cx")).toEqual(attribute(svg, /<circle class="forecast"/, "cx"));
    expect(svg).toContain('aria-label="gate_up: memory-bound, 100 FLOP per byte, limit 2 ms, forecast 4 ms, 80 % of the operators&#39; time"'.replace("&#39;", "'"));
  });

  it("stays within its frame on a phone", () => {
    const svg = render(<Roofline data={data} width={340} height={300} />);
    for (const cx of attribute(svg, /<circle class="limit"/, "cx")) expect(cx).toBeGreaterThanOrEqual(64);
    for (const cx of attribute(svg, /<circle class="limit"/, "cx")) expect(cx).toBeLessThanOrEqual(340 - 14);
  });
});

describe("bars", () => {
  it("parts of a stack add up to its width", () => {
    const bar = (end: number) => render(<Stack width={202} end={{ at: end, name: "end of the card" }} title="Memory" say={String} parts={[{ name: "weights", value: 30, tone: "s0" }, { name: "none", value: 0, tone: "s1" }, { name: "KV", value: 10, tone: "s2" }]} />);
    const svg = bar(40);
    // 30 of 40 are 150 of 200 points, less the gap of one.
    expect(attribute(svg, /<rect/, "width")).toEqual([149, 49]);
    expect(attribute(svg, /<rect/, "x")).toEqual([0, 150]);
    expect(svg).toContain('aria-label="Memory: weights 30, KV 10; end of the card"');
    // The card ends at the bar's end; a card of 20 ends in its middle, and one of 80 is half full.
    expect([svg, bar(20), bar(80)].map((one) => attribute(one, /<line/, "x1")[0])).toEqual([201, 101, 201]);
    expect(attribute(bar(80), /<rect/, "width")).toEqual([74, 24]);
  });

  it("bars are as long as their values, and a band has its whisker", () => {
    const svg = render(<Bars width={400} title="Time" label="ms" say={String} bars={[{ name: "limit", value: 5, tone: "s4" }, { name: "forecast", value: 10, tone: "s5", band: [8, 10] }]} />);
    const [limit = 0, forecast = 0] = attribute(svg, /<rect class="fill-s[45]"/, "width");
    expect(forecast / limit).toBeCloseTo(2, 9);
    expect(svg.match(/class="whisker"/g)).toHaveLength(1);
  });
});

it("names of curves stand above the plot, beside one another", () => {
  const curve = (name: string) => ({ name, tone: "s0", points: [[0, 1], [10, 1]] as [number, number][] });
  const svg = render(<Curves curves={[curve("this run"), curve("kept run")]} width={400} title="t" x={{ label: "x" }} y={{ label: "y" }} />);
  const names = [...svg.matchAll(/<text x="([\d.]+)" y="30">/g)].map((m) => Number(m[1]));
  // 56 of the axis, 22 behind the line; the second begins 8 letters and 44 further.
  expect(names).toEqual([78, 78 + 8 * 6.6 + 44]);
  expect(Math.min(...attribute(svg, /<line/, "y1"))).toBeGreaterThan(30);
});

it("curves go through their points, and marks stand where they say", () => {
  const svg = render(<Curves width={500} height={240} title="TTFT" x={{ label: "ms" }} y={{ label: "share", most: 1 }} marks={[{ at: 50, name: "SLO" }]} curves={[{ name: "this", tone: "s0", points: [[0, 0], [100, 1]] }]} />);
  const b = box(500, 240);
  const [x0, x1] = across(b);
  const [y0, y1] = upward(b);
  expect(svg).toContain(`d="M${x0},${y0}L${x1},${y1}"`);
  expect(svg).toContain(`x1="${(x0 + x1) / 2}" x2="${(x0 + x1) / 2}"`);
});

describe("scatter", () => {
  const dot = (key: string, x: number, y: number): Dot => ({ key, name: key, x, y, tone: "s0" });
  const dots = [dot("a", 1, 9), dot("b", 5, 5), dot("c", 4, 4), dot("d", 9, 1), dot("b2", 5, 5)];

  it("knows which dots no other beats", () => {
    expect([...front(dots, true, true)]).toEqual(["a", "b", "d", "b2"]);
    // Where less is better in both, 4/4 beats 5/5.
    expect([...front(dots, false, false)]).toEqual(["a", "c", "d"]);
  });

  it("draws the same scale both ways where measured and forecast meet", () => {
    const svg = render(<Scatter dots={[dot("p", 10, 10), dot("q", 100, 50)]} width={400} height={400} diagonal title="t" x={{ label: "x", log: true }} y={{ label: "y", log: true }} say={(d) => d.name} />);
    const [x = 0] = attribute(svg, /<circle class="fill-s0"/, "cx");
    const [y = 0] = attribute(svg, /<circle class="fill-s0"/, "cy");
    const b = box(400, 400, 62);
    const along = (x - across(b)[0]) / (across(b)[1] - across(b)[0]);
    const up = (upward(b)[0] - y) / (upward(b)[0] - upward(b)[1]);
    expect(along).toBeCloseTo(up, 9);
  });
});

describe("timeline", () => {
  const step = (start: number, end: number, steps: number): Step =>
    ({ start_ms: start, end_ms: end, steps, running: 1, decodes: 1, waiting: 0, chunks: 0, prefill_tokens: 0, output_tokens: steps, kv_blocks: 1, bound: "memory" });
  // A prompt until 10, then 4 steps of 10 ms, and after a pause 2 of 10 ms.
  const steps = [step(0, 10, 1), step(10, 50, 4), step(60, 80, 2)];
  const life: Life = { number: 7, input: 100, output: 7, phases: [{ phase: "prefill", start_ms: 0, end_ms: 10 }, { phase: "decode", start_ms: 10, end_ms: 80 }] };

  it("finds the step of a moment", () => {
    expect([0, 9.9, 10, 49, 50, 55, 79].map((ms) => stepAt(steps, ms))).toEqual([0, 0, 1, 1, 2, 2, 2]);
    expect(stepAt(steps, 80)).toBe(3);
  });

  it("counts the tokens of a request", () => {
    // None before its prompt is done, then the first; two more after 20 ms of equal steps, all 4 at their end, 7 at the end.
    expect([5, 10, 30, 50, 70, 80].map((ms) => tokensOf(life, steps, ms))).toEqual([0, 1, 3, 5, 6, 7]);
  });

  it("says who does what", () => {
    expect(during([life], 5).map((h) => h.phase)).toEqual(["prefill"]);
    expect(during([life], 40).map((h) => h.phase)).toEqual(["decode"]);
    expect(during([life], 90)).toEqual([]);
  });

  it("draws what is in its window", () => {
    const svg = render(<Timeline lives={[life]} steps={steps} width={500} from={0} to={40} at={20} />);
    expect(svg.match(/class="step decode"/g)).toHaveLength(2);
    expect(svg.match(/class="phase /g)).toHaveLength(2);
  });
});
