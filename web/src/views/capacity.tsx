// View Capacity: the memory of weights and KV cache, the requests that fit by their length, and the engine's verdict at start-up.

import type { JSX } from "preact";
import { bytes, counted, grouped, percent, significant, shortName } from "../format";
import type { CapacityAnswer, Length, SmallestTopology } from "../generated";
import { useAnswer } from "../parts/asking";
import { Field, Picker, Select, Slider, Wrong, powers } from "../parts/controls";
import { Drawn } from "../parts/drawn";
import { MemoryBar } from "../parts/memory";
import { Command, Copied, Facts, Failure, Section, Table, type Column, type Fact } from "../parts/show";
import { HOST_TIERS, command, file, memory } from "../spec";
import type { State } from "../state";
import { COUNTS, DEGREES, ENGINES, KV, WEIGHTS, type ViewProps } from "./common";

/** Fields that this view calls otherwise. */
const LABELS = { context: "Length of a request", batch: "Requests to hold" };

export function CapacityView({ state, set, catalog, shown, toggle }: ViewProps<CapacityAnswer>): JSX.Element {
  const spec = memory(state);
  const { context, batch, crowd, over } = state;
  const question = Object.fromEntries(Object.entries({ context, batch, users: crowd, oversubscription: over }).filter(([, text]) => text !== ""));
  const asked = useAnswer<CapacityAnswer>("/api/capacity", { spec, ...question }, shown);
  const read = asked.answer?.report;
  const flags = Object.entries(question).flatMap(([name, text]) => [`--${name}`, text]);
  return (
    <Wrong.Provider value={asked.error}>
      <form class="controls" onSubmit={(e) => e.preventDefault()} aria-label="What is served, on what">
        <Picker label="Model" value={state.model} options={catalog.models} change={(model) => set({ model, weights: "" })} />
        <Picker label="Accelerator" value={state.hardware} options={catalog.accelerators} change={(hardware) => set({ hardware })} />
        <Slider of="hardware.count" empty="1" value={state.count} at={read?.count} values={COUNTS} change={(count) => set({ count })} />
        <Slider of="parallelism.tp" value={state.tp} empty="widest" values={DEGREES} change={(tp) => set({ tp })} />
        <Slider of="context" label={LABELS.context} unit="tokens" empty="4096" value={context} at={read?.context} values={powers(128, 131072)} change={(v) => set({ context: v })} />
        <Slider of="batch" label={LABELS.batch} unit="at once" empty="1" value={batch} at={read?.batch} values={powers(1, 4096)} change={(v) => set({ batch: v })} />
        <details class="more">
          <summary>More: formats, engine, its share of memory, host memory, storage, users</summary>
          <div class="controls">
            <Select label="Weight format" value={state.weights} options={WEIGHTS} change={(weights) => set({ weights })} />
            <Select label="KV cache" value={state.kv} options={KV} change={(kv) => set({ kv })} />
            <Select label="Engine" value={state.engine} options={ENGINES} change={(engine) => set({ engine, host: "" })} />
            <Field of="engine.gpu_memory_utilization" value={state.share} empty="the engine's" hint="fraction of memory for the engine" change={(share) => set({ share })} />
            <Field of="engine.max_model_len" unit="tokens" value={state.longest} empty="the model's" hint="longest request that is served" change={(longest) => set({ longest })} />
            {HOST_TIERS[state.engine] ? <Field of={state.engine === "vllm" ? "engine.vllm.kv_offloading_size" : "engine.sglang.hicache_size"} unit={state.engine === "vllm" ? "GiB" : "GB per rank"} value={state.host} empty="none" change={(host) => set({ host })} /> : null}
            {state.engine === "vllm" && state.host ? <Field of="engine.vllm.kv_storage_size" unit="GiB" value={state.storage} empty="none" hint="a disk or file server below host memory" change={(storage) => set({ storage })} /> : null}
            <Field of="users" value={crowd} empty="not asked" hint="counts the deployments that serve them" change={(v) => set({ crowd: v })} />
            <Field of="oversubscription" value={over} empty="1" hint="users who are served, over users who fit at full length" change={(v) => set({ over: v })} />
          </div>
        </details>
      </form>
      {asked.error ? <Failure error={asked.error} labels={LABELS} /> : null}
      {asked.answer ? (
        <div class={asked.error ? "stale" : ""} aria-busy={asked.busy}>
          <Answer answer={asked.answer} state={state} toggle={toggle} />
          <Section name="link" title="Take it along" open={state.open.includes("link")} toggle={toggle}>
            <Command text={command(catalog.flags, "capacity", spec, flags)} />
            <Copied label="As a spec file" text={file(spec)} />
          </Section>
        </div>
      ) : asked.error ? null : <p class="quiet-text" role="status">Asking …</p>}
    </Wrong.Provider>
  );
}

function Answer({ answer, state, toggle }: { answer: CapacityAnswer; state: State; toggle: ViewProps<never>["toggle"] }): JSX.Element {
  const { report, accelerator, start, refusal } = answer;
  const open = (name: string) => state.open.includes(name);
  const p = report.parallelism;
  const shape = [["tp", p.tp], ["pp", p.pp], ["ep", p.ep]].filter(([, n]) => Number(n) > 1).map(([name, n]) => `, ${name} ${n}`).join("");
  const replicas = p.replicas > 1 ? `, ${p.replicas} replicas` : "";
  const share = report.max_batch > 0 ? Math.min(1, report.batch / report.max_batch) : 0;
  return (
    <>
      <header class="headline">
        <p class="deployment">{`${shortName(report.model)} on ${report.count} × ${accelerator.name}${shape}${replicas}, ${report.weights} weights, ${report.kv} KV cache`}</p>
        <Facts facts={headline(answer)} />
        {refusal === null ? null : <p class="bad" role="status" id="refusal">{refusal}.</p>}
      </header>
      <h3>{report.ranks.length > 1 ? "Memory of the fullest accelerator of each pipeline stage" : "Memory of the fullest accelerator"}</h3>
      {report.ranks.map((rank, i) => {
        const title = report.ranks.length > 1 ? `Stage ${i + 1}` : "Memory";
        return (
          <div key={i}>
            {report.ranks.length > 1 ? <p class="quiet-text">{title}</p> : null}
            <MemoryBar rank={rank} accelerator={accelerator} used={rank.kv_bytes * share} sequences={Math.min(report.batch, report.max_batch)} title={title} />
          </div>
        );
      })}
      <figure class="picture" id="lengths"><Drawn pictures={answer.pictures} title={`Requests that fit at one time by their length: ${answer.lengths.map((l) => `${grouped(l.max_batch)} of ${grouped(l.tokens)} tokens`).join(", ")}`} /></figure>
      <Section name="lengths" title="Requests by length" open={open("lengths")} toggle={toggle} note={`up to ${counted(start.max_model_len, "token")}`}>
        <Table rows={answer.lengths} columns={LENGTHS} caption="Requests that fit at one time by their length" file="roofcast-capacity.csv" keyed={(l) => String(l.tokens)} />
      </Section>
      <Section name="tiers" title="KV cache" open={open("tiers")} toggle={toggle} note={tiers(answer)}>
        <Facts
          facts={[
            ["of a token", bytes(report.kv_bytes_per_token), "what the last token of the context adds, over the whole deployment"],
            ["of a request", `${bytes(report.kv_bytes_per_sequence)} at ${counted(report.context, "token")}`],
            ["in accelerator memory", <b id="kv-tokens" data-value={report.kv_tokens}>{counted(report.kv_tokens, "token")}</b>],
            ["in host memory", report.host_kv_tokens ? <b id="host-tokens" data-value={report.host_kv_tokens}>{counted(report.host_kv_tokens, "token")}</b> : "none"],
            ["in storage", report.storage_kv_tokens ? <b id="storage-tokens" data-value={report.storage_kv_tokens}>{counted(report.storage_kv_tokens, "token")}</b> : "none"],
            ...(report.compute_bytes_per_token ? [["compute buffer", `${bytes(report.compute_bytes_per_token)} per token of context`] as Fact] : []),
          ]}
        />
      </Section>
      <Section name="start" title="At start" open={open("start")} toggle={toggle} note={`as the engine logs it`}>
        <Facts
          facts={[
            ["weights", `${bytes(start.weight_bytes)} per accelerator`],
            ["KV cache", `${bytes(start.kv_bytes)}, ${counted(start.kv_tokens, "token")}`, "each engine for itself"],
            ["at once", `${significant(start.max_concurrency)} requests of ${counted(start.max_model_len, "token")}`],
            ...(start.max_running_requests ? [["running", `at most ${counted(start.max_running_requests, "request")}`, "by the pool of recurrent states"] as Fact] : []),
          ]}
        />
      </Section>
      {report.assumptions.length ? <ul class="plain">{report.assumptions.map((a) => <li key={String(a)}>Assumed: {String(a)}.</li>)}</ul> : null}
    </>
  );
}

function headline({ report, refusal }: CapacityAnswer): Fact[] {
  const holds = report.max_batch >= report.batch;
  const facts: Fact[] = [
    ["starts", refusal === null ? <b id="starts">yes</b> : <b id="starts" class="bad">no</b>, "by the engine's own rule at start, for requests as long as max_model_len"],
    ["weights", <b>{bytes(report.weight_bytes)}</b>],
    report.kv_tokens > 0
      ? ["KV cache", <b>{counted(report.kv_tokens, "token")}</b>]
      : ["does not fit", <b class="bad">{`${bytes(report.short_by_bytes)} short`}</b>, "on the fullest accelerator"],
    [`requests of ${counted(report.context, "token")}`, <b id="most" data-value={report.max_batch} class={holds ? "" : "bad"}>{`${grouped(report.max_batch)} at once`}</b>],
    ["longest request", <b>{counted(report.longest_context, "token")}</b>],
    [`for ${grouped(report.batch)} at once`, report.smallest_topology ? `${topology(report.smallest_topology)}` : "no number of these accelerators", "the smallest legal number of accelerators of this kind that holds the weights and the requests"],
  ];
  if (report.in_stages) facts.push(["fits in stages", topology(report.in_stages), "these accelerators, divided into pipeline stages"]);
  if (report.oversubscription !== 1 || report.deployments_for_users !== null) facts.push(["users of a deployment", grouped(report.users), `over-subscription ${significant(report.oversubscription)}`]);
  if (report.deployments_for_users !== null) facts.push(["deployments for the users", <b id="deployments">{grouped(report.deployments_for_users)}</b>]);
  facts.push(["parameters", `${significant(report.parameters.total / 1e9)} billion, ${percent(report.parameters.active / report.parameters.total)} active`]);
  return facts;
}

function topology(least: SmallestTopology): string {
  const parts = [least.tp > 1 ? `tp ${least.tp}` : "", least.pp > 1 ? `pp ${least.pp}` : ""].filter(Boolean);
  return [counted(least.count, "accelerator"), ...parts].join(", ");
}

function tiers({ report }: CapacityAnswer): string {
  const host = report.host_kv_tokens ? `, ${grouped(report.host_kv_tokens)} in the host's` : "";
  const below = report.storage_kv_tokens ? `, ${grouped(report.storage_kv_tokens)} in storage` : "";
  return `${counted(report.kv_tokens, "token")} in accelerator memory${host}${below}`;
}

const LENGTHS: readonly Column<Length>[] = [
  { name: "tokens of a request", show: (l) => grouped(l.tokens), value: (l) => l.tokens, number: true },
  { name: "requests at once", show: (l) => grouped(l.max_batch), value: (l) => l.max_batch, number: true },
  { name: "KV of one", show: (l) => bytes(l.kv_bytes_per_sequence), value: (l) => l.kv_bytes_per_sequence, number: true },
];
