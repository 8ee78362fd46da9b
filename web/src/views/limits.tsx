// View Limits: the limit of each operator on the machine, and its forecast.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Roofline, rooflineData } from "../charts/roofline";
import { Bars } from "../charts/stack";
import { bytes, grouped, percent, scaled, significant, shortName, time } from "../format";
import type { Accelerator, Cost, LimitsAnswer, OperatorCost, Rank } from "../generated";
import { useAnswer } from "../parts/asking";
import { Drawn } from "../parts/drawn";
import { Choice, Measured, Picker, Select, Slider, Wrong, powers } from "../parts/controls";
import { model as dropped, type Known } from "../parts/dropped";
import { MemoryBar } from "../parts/memory";
import { Command, Copied, Drop, Facts, Failure, Legend, Section, Table, type Column } from "../parts/show";
import { command, file, machine } from "../spec";
import type { State } from "../state";
import { COUNTS, DEGREES, ENGINES, KV, WEIGHTS, type ViewProps } from "./common";
import { LimitsSweep, held } from "./sweep";

export function LimitsView({ state, set, catalog, shown, toggle }: ViewProps<LimitsAnswer>): JSX.Element {
  const spec = machine(state);
  const asked = useAnswer<LimitsAnswer>("/api/limits", { spec, ...held("", state) }, shown);
  const read = asked.answer?.report;
  const [known, setKnown] = useState<Known | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const drop = (files: File[]) => {
    dropped(files)
      .then((found) => {
        setKnown(found);
        setFailed(null);
        set({ model: found.id, weights: "" });
      })
      .catch((error: unknown) => setFailed(error instanceof Error ? error.message : String(error)));
  };
  return (
    <Wrong.Provider value={asked.error}>
      {shown ? null : (
        <form class="controls" onSubmit={(e) => e.preventDefault()} aria-label="What is served, on what">
          <Picker label="Model" value={state.model} options={catalog.models} change={(model) => set({ model, weights: "" })} />
          <Picker label="Accelerator" value={state.hardware} options={catalog.accelerators} change={(hardware) => set({ hardware })} />
          <Slider of="batch" unit="sequences" empty="1" value={state.batch} at={read?.batch} values={powers(1, 4096)} change={(batch) => set({ batch })} />
          <Slider of="context" unit="tokens" empty="4096" value={state.context} at={read?.context} values={powers(128, 131072)} change={(context) => set({ context })} />
          <Slider of="hardware.count" empty="1" value={state.count} at={read?.count} values={COUNTS} change={(count) => set({ count })} />
          <Slider of="parallelism.tp" value={state.tp} empty="widest" values={DEGREES} change={(tp) => set({ tp })} />
          <Select label="Weight format" value={state.weights} options={WEIGHTS} change={(weights) => set({ weights })} />
          <details class="more">
            <summary>More: formats, engine, your own model</summary>
            <div class="controls">
              <Select label="KV cache" value={state.kv} options={KV} change={(kv) => set({ kv })} />
              <Select label="Engine" value={state.engine} options={ENGINES} change={(engine) => set({ engine })} />
              <Drop label={<>Drop a <code>config.json</code> (with a safetensors index or files in its folder) or a <code>.gguf</code>; only headers are read</>} accept=".json,.gguf,.safetensors" several take={drop} />
            </div>
          </details>
        </form>
      )}
      {failed ? <Failure error={failed} /> : null}
      {known && known.id === state.model ? <p class="said">{`Dropped: ${known.family}, ${significant(known.parameters / 1e9)} billion parameters, ${known.formats}${known.notes.length ? `; ${known.notes.join("; ")}` : ""}`}</p> : null}
      {asked.error ? <Failure error={asked.error} /> : null}
      {asked.answer ? (
        <div class={asked.error ? "stale" : ""} aria-busy={asked.busy}>
          <Answer answer={asked.answer} state={state} set={set} toggle={toggle} />
          {shown ? null : (
            <Section name="sweep" title="Sweep" open={state.open.includes("sweep")} toggle={toggle} note="the step over one quantity">
              <LimitsSweep spec={spec} state={state} set={set} flags={catalog.flags} />
            </Section>
          )}
          {shown ? null : (
            <Section name="link" title="Take it along" open={state.open.includes("link")} toggle={toggle}>
              <Command text={command(catalog.flags, "limits", spec, step(state))} />
              <Copied label="As a spec file" text={file(spec)} />
            </Section>
          )}
        </div>
      ) : asked.error ? null : <p class="quiet-text" role="status">Asking …</p>}
    </Wrong.Provider>
  );
}

/** Flags of the step. */
const step = ({ batch, context }: State): string[] => [...(batch ? ["--batch", batch] : []), ...(context ? ["--context", context] : [])];

function Answer({ answer, state, set, toggle }: { answer: LimitsAnswer; state: State; set: ViewProps<LimitsAnswer>["set"]; toggle: ViewProps<LimitsAnswer>["toggle"] }): JSX.Element {
  const { report, capacity, accelerator } = answer;
  const [chosen, choose] = useState<string | null>(null);
  const prefill = state.phase === "prefill";
  const cost: Cost = prefill ? report.prefill : report.decode;
  const rank = capacity.ranks.reduce<Rank | undefined>((full, r) => (!full || r.kv_bytes < full.kv_bytes ? r : full), undefined);
  const operator = cost.operators.find((o) => o.name === chosen) ?? null;
  const open = (name: string) => state.open.includes(name);
  const rate = prefill ? report.prefill_tokens_per_s : report.decode_tokens_per_s;
  return (
    <>
      <header class="headline">
        <p class="deployment">{`${shortName(report.model)} on ${report.count} × ${accelerator.name}${report.parallelism.tp > 1 ? `, tp ${report.parallelism.tp}` : ""}${report.parallelism.replicas > 1 ? `, ${report.parallelism.replicas} replicas` : ""}, ${report.weights} weights, ${report.kv} KV cache`}</p>
        <Facts
          facts={[
            ["limit", <b id="limit" data-ms={cost.limit_with_communication_ms}>{time(cost.limit_with_communication_ms)}</b>, "Σ over operators of max(FLOPs / peak, bytes / bandwidth), and every message over the slowest link"],
            ["forecast", <><b id="forecast" data-ms={cost.forecast_ms}>{time(cost.forecast_ms)}</b> <small><a href="#accuracy">{`${time(cost.forecast_band_ms[0])} to ${time(cost.forecast_band_ms[1])}`}</a></small></>, `80 % interval of measurements against this forecast; calibration: ${cost.forecast_source}`],
            ["bottleneck", <b>{cost.bound}</b>],
            [prefill ? "prompt tokens/s, at most" : "output tokens/s, at most", <b>{grouped(rate)}</b>, "of the whole deployment at the limit with communication"],
            ["starts", answer.refusal === null ? <b id="starts">yes</b> : <b id="starts" class="bad">no</b>, "by the engine's own rule at start, for requests as long as max_model_len, which is the model's longest where nothing else is said"],
            ["fits", report.fits ? <b>{`yes, up to ${grouped(capacity.max_batch)} sequences`}</b> : <b class="bad">{capacity.kv_tokens > 0 ? `no: ${grouped(capacity.max_batch)} of ${grouped(report.batch)} sequences do` : `no: ${bytes(capacity.short_by_bytes)} short`}</b>],
          ]}
        />
        {answer.refusal === null ? null : <p class="bad" role="status">{answer.refusal}.</p>}
        <Choice label="Phase" value={state.phase} options={[["decode", `Decode: a step of ${grouped(report.batch)}`], ["prefill", `Prefill: a prompt of ${grouped(report.prompt)}`]]} change={(phase) => set({ phase })} />
      </header>
      <figure class="picture">
        <Measured>
          {(width) => (
            <Roofline data={rooflineData(cost.operators, peaks(accelerator), accelerator.bandwidth_bytes_per_s)} width={width} height={width < 520 ? 320 : 400} chosen={chosen} choose={choose} />
          )}
        </Measured>
        <figcaption>
          <Legend parts={[["ring", "limit, on the roof"], ["s0", "forecast, memory-bound"], ["s1", "forecast, compute-bound; area: share of the time"]]} />
          <p class="readout" aria-live="polite">{operator ? reading(operator, accelerator) : "Point at an operator for its formula."}</p>
        </figcaption>
      </figure>
      <Section name="time" title="Step time by term" open={open("time")} toggle={toggle} note={`limit ${time(cost.limit_with_communication_ms)}, forecast ${time(cost.forecast_ms)}`}>
        <Measured>
          {(width) => (
            <Bars
              width={width}
              title="Step time by term"
              label="ms"
              say={time}
              bars={[
                { name: "weights", value: cost.terms.weights_ms, tone: "s0" },
                { name: "KV cache", value: cost.terms.kv_ms, tone: "s2" },
                { name: "FLOPs", value: cost.terms.flops_ms, tone: "s1" },
                { name: "communication", value: cost.terms.communication_ms, tone: "s3" },
                { name: "limit", value: cost.limit_with_communication_ms, tone: "s4" },
                { name: "forecast", value: cost.forecast_ms, tone: "s5", band: cost.forecast_band_ms as [number, number] },
              ]}
            />
          )}
        </Measured>
        <p class="quiet-text">Each term is what it would take alone: weights and KV over {scaled(accelerator.bandwidth_bytes_per_s, "B/s")}, FLOPs over their peaks, messages over the slowest link. They overlap, so they do not add up to the limit.</p>
      </Section>
      {answer.economy.length > 0 ? (
        <Section name="economy" title="Cost against latency" open={open("economy")} toggle={toggle} note="over the batch, to the end of memory">
          <Drawn pictures={answer.economy} title="Cost of output tokens against their latency, over the batch, at three contexts" />
        </Section>
      ) : null}
      {rank ? (
        <Section name="memory" title="Memory" open={open("memory")} toggle={toggle} note={[capacity.kv_tokens > 0 ? `${grouped(capacity.kv_tokens)} tokens fit` : "does not fit", fitsFrom(answer)].filter(Boolean).join("; ")}>
          <Memory rank={rank} answer={answer} />
        </Section>
      ) : null}
      <Section name="operators" title="Operators" open={open("operators")} toggle={toggle} note={`${cost.operators.length} kinds`}>
        <Table rows={cost.operators} columns={columns(accelerator)} caption={`Operators of the ${state.phase} step`} file={`roofcast-operators-${state.phase}.csv`} keyed={(o) => `${o.name} ${o.dtype}`} />
      </Section>
      <Section name="sources" title="Assumptions and sources" open={open("sources")} toggle={toggle}>
        <ul class="plain">
          {report.assumptions.map((a) => <li key={a}>Assumed: {a}.</li>)}
          {accelerator.sources.map((s) => <li key={s.url}>{`${accelerator.name}, ${s.of}: `}<span class="address">{s.url}</span></li>)}
          {accelerator.price ? <li>{`Price: $${accelerator.price.usd_per_hour} an hour, ${accelerator.price.date}: `}<span class="address">{accelerator.price.source}</span></li> : null}
          <li>Formulas: docs/cost-model.md; how far forecasts are off: the view Accuracy and docs/accuracy.md.</li>
        </ul>
      </Section>
    </>
  );
}

const peaks = (chip: Accelerator): Record<string, number> => chip.peak_flops;

/** The formula of an operator's time, with its figures inserted. */
export function reading(o: OperatorCost, chip: Accelerator): string {
  const peak = peaks(chip)[o.dtype];
  const moved = o.weight_bytes + o.kv_bytes;
  const bandwidth = chip.bandwidth_bytes_per_s;
  return `${o.name} (${o.dtype}, ${o.layers} layers): max(${scaled(o.flops, "FLOP")} / ${scaled(peak, "FLOP/s")}, ${bytes(moved)} / ${scaled(bandwidth, "B/s")}) = limit ${time(o.limit_ms)}, ${o.bound}-bound; forecast ${time(o.forecast_ms)}, ${significant(o.forecast_ms / o.limit_ms)} times the limit.`;
}

function columns(chip: Accelerator): Column<OperatorCost>[] {
  const formula = (o: OperatorCost) => reading(o, chip);
  return [
    { name: "operator", show: (o) => o.name, value: (o) => o.name, title: formula },
    { name: "dtype", show: (o) => o.dtype, value: (o) => o.dtype },
    { name: "layers", show: (o) => o.layers, value: (o) => o.layers, number: true },
    { name: "FLOPs", show: (o) => scaled(o.flops, "FLOP"), value: (o) => o.flops, number: true },
    { name: "weights", show: (o) => bytes(o.weight_bytes), value: (o) => o.weight_bytes, number: true },
    { name: "KV", show: (o) => bytes(o.kv_bytes), value: (o) => o.kv_bytes, number: true },
    { name: "FLOP/B", show: (o) => significant(o.intensity), value: (o) => o.intensity, number: true },
    { name: "bottleneck", show: (o) => o.bound, value: (o) => o.bound },
    { name: "limit", show: (o) => time(o.limit_ms), value: (o) => o.limit_ms, number: true },
    { name: "forecast", show: (o) => time(o.forecast_ms), value: (o) => o.forecast_ms, number: true },
    { name: "efficiency", show: (o) => `${Math.round(100 * o.share)} %`, value: (o) => o.share, number: true },
    { name: "based on", show: (o) => o.rests_on?.kernel ?? "–", value: (o) => o.rests_on?.kernel ?? "" },
    { name: "formula", show: (o) => <span class="formula">{formulaOf(o, chip)}</span>, value: formula },
  ];
}

const formulaOf = (o: OperatorCost, chip: Accelerator): string =>
  `max(${scaled(o.flops, "")} / ${scaled(peaks(chip)[o.dtype], "")}, ${scaled(o.weight_bytes + o.kv_bytes, "")} / ${scaled(chip.bandwidth_bytes_per_s, "")})`;

/** The smallest number of accelerators of this kind that hold the model and the batch, as text. */
export function fitsFrom({ capacity, accelerator }: LimitsAnswer): string {
  const least = capacity.smallest_topology;
  if (!least) return "no number of these accelerators holds the batch";
  const stages = (least.pp ?? 1) > 1 ? ` pp ${least.pp}` : "";
  return `fits from ${grouped(least.count)} × ${accelerator.name}${least.count > 1 ? `, tp ${least.tp}${stages}` : ""}`;
}

function Memory({ rank, answer }: { rank: Rank; answer: LimitsAnswer }): JSX.Element {
  const { capacity, report, accelerator, start } = answer;
  const used = capacity.max_batch > 0 ? rank.kv_bytes * Math.min(1, report.batch / capacity.max_batch) : 0;
  return (
    <>
      <MemoryBar rank={rank} accelerator={accelerator} used={used} sequences={Math.min(report.batch, capacity.max_batch)} title="Memory of the fullest accelerator" />
      <Facts
        facts={[
          ["KV of a token", bytes(capacity.kv_bytes_per_token), "what the last token of the context adds, over the whole deployment"],
          ["KV of a sequence", bytes(capacity.kv_bytes_per_sequence)],
          ["largest batch", grouped(capacity.max_batch)],
          ["batch of ".concat(grouped(report.batch)), <span id="fits-from">{fitsFrom(answer)}</span>, "the smallest legal number of accelerators that holds the weights and the batch at this context"],
          ["at start", `${grouped(start.kv_tokens)} KV tokens, ${significant(start.max_concurrency)} requests of ${grouped(start.max_model_len)} at once`, "what the engine's log says, each engine for itself"],
          ["longest context", `${grouped(capacity.longest_context)} tokens`],
          ["parameters", `${significant(capacity.parameters.total / 1e9)} billion, ${percent(capacity.parameters.active / capacity.parameters.total)} active`],
          ["memory", `${bytes(accelerator.memory_bytes)} nominal`],
        ]}
      />
    </>
  );
}
