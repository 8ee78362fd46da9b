// A replica's steps, and the requests that they serve: a row for each request, a block for each phase, a line at the pointer.

import { scaleLinear } from "d3-scale";
import type { JSX } from "preact";
import { time } from "../format";
import type { Life, Step } from "../generated";
import { Frame, across, box, upward } from "./frame";

/** Index of the step in progress at `ms`, else of the next step; the number of steps after the last. */
export function stepAt(steps: readonly Step[], ms: number): number {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle] as Step).end_ms <= ms) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Output tokens of a request after the steps that end before `ms`: the end of its prompt gives one, each decode one more. */
export function tokensOf(life: Life, steps: readonly Step[], ms: number): number {
  const decode = life.phases.filter((p) => p.phase === "decode");
  const first = decode[0];
  if (!first || first.start_ms > ms) return 0;
  let tokens = 1;
  for (const span of decode) {
    for (let i = stepAt(steps, span.start_ms); i < steps.length; i++) {
      const step = steps[i] as Step;
      if (step.start_ms >= span.end_ms || step.start_ms >= ms) break;
      const share = step.end_ms <= ms ? 1 : (ms - step.start_ms) / (step.end_ms - step.start_ms);
      tokens += Math.floor(step.steps * share + 1e-9);
    }
  }
  return Math.min(tokens, life.output);
}

/** The requests present at `ms`, each with its phase then. */
export function during(lives: readonly Life[], ms: number): { life: Life; phase: string }[] {
  return lives.flatMap((life) => {
    const span = life.phases.find((p) => p.start_ms <= ms && ms < p.end_ms);
    return span ? [{ life, phase: span.phase }] : [];
  });
}

interface Props {
  lives: readonly Life[];
  steps: readonly Step[];
  width: number;
  from: number;
  to: number;
  at: number;
}

const ROW = 9;
const MOST = 60;

/** The timeline of the requests in a window of time; if there are too many, the first ones. */
export function Timeline({ lives, steps, width, from, to, at }: Props): JSX.Element {
  const here = lives.filter((l) => l.phases.some((p) => p.start_ms < to && p.end_ms > from));
  const rows = here.slice(0, MOST);
  const b = { ...box(width, Math.max(120, rows.length * ROW + 92), 52), top: 40 };
  const x = scaleLinear().domain([from, to]).range(across(b)).clamp(true);
  const y = (row: number) => b.top + row * ROW + 2;
  const shown = steps.filter((s) => s.start_ms < to && s.end_ms > from);
  return (
    <Frame
      box={b}
      title={`Timeline from ${time(from)} to ${time(to)}: ${here.length} requests, ${shown.length} steps`}
      x={{ label: "time", scale: x, tick: time }}
      y={{ label: here.length > MOST ? `first ${MOST} of ${here.length} requests; steps above` : "a row a request; steps above", scale: scaleLinear().domain([0, 0]).range([0, 0]), tick: () => "" }}
    >
      <g>
        {shown.map((s, i) => (
          <rect key={i} class={`step ${s.chunks > 0 ? "prefill" : "decode"}`} x={x(s.start_ms)} y={20} width={Math.max(0.6, x(s.end_ms) - x(s.start_ms) - 0.4)} height={14} />
        ))}
      </g>
      {rows.map((life, row) => (
        <g key={life.number}>
          {life.phases.filter((p) => p.start_ms < to && p.end_ms > from).map((p, i) => (
            <rect key={i} class={`phase ${p.phase}`} x={x(p.start_ms)} y={y(row)} width={Math.max(0.6, x(p.end_ms) - x(p.start_ms))} height={ROW - 2} />
          ))}
          {row % 5 === 0 ? <text class="row-name" x={b.left - 6} y={y(row) + 7} text-anchor="end">{`#${life.number}`}</text> : null}
        </g>
      ))}
      <line class="cursor" x1={x(at)} x2={x(at)} y1={16} y2={upward(b)[0]} />
    </Frame>
  );
}
