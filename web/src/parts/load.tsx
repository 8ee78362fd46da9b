// Controls of the traffic: how requests come, how long they are, what they share.

import type { JSX } from "preact";
import type { State } from "../state";
import { Field, Picker, Select, Slider, powers, type Option } from "./controls";

interface Props {
  state: State;
  set: (change: Partial<State>) => void;
  /** Published workloads, and those that have arrivals of their own. */
  catalog: { workloads: readonly Option[]; recorded: readonly string[] };
}

const ARRIVALS: readonly Option[] = [
  ["rate", "requests at a rate"],
  ["users", "users, each with one request"],
  ["talks", "conversations at a time"],
  ["talk-rate", "conversations at a rate"],
  ["offline", "all at the start (offline job)"],
];

const SPREAD: readonly Option[] = [["fixed", "none: all alike"], ["lognormal", "log-normal, σ 0.7"]];

/** Arrivals, lengths and their spread, in sight. */
export function LoadControls({ state, set, catalog }: Props): JSX.Element {
  const kinds: readonly Option[] = state.workload && catalog.recorded.includes(state.workload) ? [["recorded", "as they were recorded"], ...ARRIVALS] : ARRIVALS;
  const talks = state.load === "talks" || state.load === "talk-rate";
  return (
    <>
      <Select label="Arrivals" value={state.load} options={kinds} change={(load) => set({ load })} />
      {state.load === "rate" || state.load === "talk-rate"
        ? <Field of="workload.arrivals.rate" unit={talks ? "conversations/s" : "requests/s"} value={state.rate} change={(rate) => set({ rate })} />
        : null}
      {state.load === "users" || state.load === "talks"
        ? <Slider of="workload.arrivals.concurrency" label={talks ? "Conversations at a time" : "Users"} value={state.users} values={powers(1, 1024)} change={(users) => set({ users })} />
        : null}
      {state.load === "recorded" ? <Field of="workload.rate" unit="requests/s" value={state.pace} empty="as recorded" change={(pace) => set({ pace })} /> : null}
      {talks ? <Field of="workload.arrivals.turns" value={state.turns} hint="each prompt is all that was said before, and the prompt length below" change={(turns) => set({ turns })} /> : null}
      {talks || state.load === "users" ? <Field of="workload.arrivals.think_s" unit="s" value={state.think} empty="0" hint="mean time from an answer to the user's next request" change={(think) => set({ think })} /> : null}
      {state.workload ? null : (
        <>
          <Field of="workload.input_len" unit="tokens" value={state.input} change={(input) => set({ input })} />
          <Field of="workload.output_len" unit="tokens" value={state.output} change={(output) => set({ output })} />
          <Select label="Spread of lengths" value={state.spread} options={SPREAD} change={(spread) => set({ spread })} />
        </>
      )}
      <Field of="workload.prefix.length" unit="tokens" value={state.shared} empty="none" hint="in addition to each prompt" change={(shared) => set({ shared })} />
    </>
  );
}

/** What is asked more rarely: published traffic, and how many prefixes there are. */
export function MoreLoad({ state, set, catalog }: Props): JSX.Element {
  const choose = (name: string) => {
    const workload = name === "none" ? "" : name;
    const load = catalog.recorded.includes(workload) ? "recorded" : state.load === "recorded" ? "rate" : state.load;
    set({ workload, load });
  };
  return (
    <>
      <Picker label="Published traffic" value={state.workload || "none"} options={[["none", "lengths as given"], ...catalog.workloads]} change={choose} />
      {state.shared ? (
        <>
          <Field of="workload.prefix.count" value={state.prefixes} empty="1" change={(prefixes) => set({ prefixes })} />
          <Field of="workload.prefix.share" value={state.sharing} empty="1" hint="fraction of the requests, or of the conversations" change={(sharing) => set({ sharing })} />
        </>
      ) : null}
    </>
  );
}

/** Bounds of the SLO, which may be left empty. */
export function SloControls({ state, set }: Omit<Props, "catalog">): JSX.Element {
  return (
    <>
      <Field of="slo.ttft_p99_ms" unit="ms" value={state.ttft} empty="no bound" change={(ttft) => set({ ttft })} />
      <Field of="slo.tpot_p99_ms" unit="ms" value={state.tpot} empty="no bound" change={(tpot) => set({ tpot })} />
    </>
  );
}
