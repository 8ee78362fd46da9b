// The frame around the views: the choice of the view, the theme, and the state in the URL.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "./api";
import { bytes, dollars, scaled } from "./format";
import type { AccuracyAnswer, CapacityAnswer, CatalogAnswer, CurvesAnswer, LimitsAnswer, MeasureAnswer, PlanAnswer, RunAnswer, ValidateAnswer } from "./generated";
import type { BenchAnswer } from "./views/bench";
import { Failure } from "./parts/show";
import { VIEWS, parse, write, type State, type ViewName } from "./state";
import { AccuracyView } from "./views/accuracy";
import { BenchView } from "./views/bench";
import { CapacityView } from "./views/capacity";
import { opened, type Catalog, type ViewProps } from "./views/common";
import { CurvesAnswerView } from "./views/curves";
import { LimitsView } from "./views/limits";
import { MeasureView } from "./views/measure";
import { PlanView } from "./views/plan";
import { ServeView } from "./views/serve";

/** The answer in a stand-alone file that `--html` wrote. */
export type Shown =
  | { view: "limits"; answer: LimitsAnswer }
  | { view: "serve"; answer: RunAnswer }
  | { view: "plan"; answer: PlanAnswer }
  | { view: "curves"; answer: CurvesAnswer }
  | { view: "measure"; answer: BenchAnswer }
  | { view: "accuracy"; answer: ValidateAnswer };

const NAMES: Record<ViewName, [string, string]> = {
  limits: ["Limits", "What the machine allows: the time of a step, operator by operator, and what is forecast below it."],
  capacity: ["Capacity", "What fits: the memory of weights and KV cache, the requests that it holds, and whether the engine starts."],
  serve: ["Serve", "What an engine does under traffic: latencies, queue and cache, step by step."],
  plan: ["Plan", "What to deploy: the cheapest deployments that meet the SLO, proven by simulation."],
  measure: ["Measure", "What your server did against forecast and limit, its bottleneck, and what to change first."],
  accuracy: ["Accuracy", "How far forecasts are from what was measured, down to the row."],
};

/** The view that shows an answer; curves are shown by Plan. */
const viewOf = ({ view }: Shown): ViewName => (view === "curves" ? "plan" : view);

const EMPTY: Catalog = { models: [], accelerators: [], rented: [], workloads: [], recorded: [], flags: {} };

function choices(answer: CatalogAnswer): Catalog {
  return {
    models: answer.models.map((m) => [m.id, `${scaled(m.parameters, "")} parameters, ${m.formats}`]),
    accelerators: answer.accelerators.map((a) => [a.id, `${bytes(a.bytes)}, ${scaled(a.bandwidth_bytes_per_s, "B/s")}`]),
    rented: answer.accelerators
      .filter((a) => a.usd_per_hour !== null)
      .sort((a, b) => b.bytes - a.bytes || a.id.localeCompare(b.id))
      .map((a) => [a.id, `${bytes(a.bytes)}, ${dollars(a.usd_per_hour)} an hour`]),
    workloads: answer.workloads.map((w) => [w.id, w.about]),
    recorded: answer.workloads.filter((w) => w.rate !== null).map((w) => w.id),
    flags: answer.flags,
  };
}

type Theme = "light" | "dark";

/** The theme: the user's choice, else the system's setting. */
function useTheme(): [Theme, () => void] {
  const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const kept = (): Theme | null => {
    try {
      const text = localStorage.getItem("theme");
      return text === "dark" || text === "light" ? text : null;
    } catch {
      return null; // The browser blocks local storage.
    }
  };
  const [theme, setTheme] = useState<Theme>(() => kept() ?? system());
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  const turn = () => {
    const next = theme === "dark" ? "light" : "dark";
    setTheme(next);
    try {
      localStorage.setItem("theme", next);
    } catch {
      // Without local storage the choice lasts until the page is closed.
    }
  };
  return [theme, turn];
}

export function App({ shown }: { shown: Shown | null }): JSX.Element {
  const start = useMemo(() => {
    const link = parse(location.hash);
    return shown ? { ...link, state: { ...link.state, view: viewOf(shown), open: link.state.open || "time,memory,operators" } } : link;
  }, []);
  const [state, setState] = useState<State>(start.state);
  const [unknown, setUnknown] = useState(start.unknown);
  const [catalog, setCatalog] = useState(EMPTY);
  const [error, setError] = useState<string | null>(null);
  const [theme, turn] = useTheme();
  const title = useRef<HTMLParagraphElement>(null);
  const set = (change: Partial<State>) => setState((old) => ({ ...old, ...change }));
  const toggle = (name: string, open: boolean) => setState((old) => ({ ...old, open: opened(old.open, name, open) }));
  useEffect(() => {
    const hash = write(state);
    // All questions of one view share one entry of the browser's history.
    if (!shown && hash !== location.hash) history.replaceState(null, "", hash);
    document.title = `roofcast: ${NAMES[state.view][0]}`;
  }, [state]);
  useEffect(() => {
    if (shown) return;
    const moved = () => {
      const link = parse(location.hash);
      setState(link.state);
      setUnknown(link.unknown);
    };
    addEventListener("hashchange", moved);
    ask<CatalogAnswer>("/api/catalog").then((answer) => setCatalog(choices(answer))).catch((e: unknown) => setError(String(e)));
    return () => removeEventListener("hashchange", moved);
  }, []);
  const props = { state, set, catalog, toggle };
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => {
        e.preventDefault();
        document.getElementById("main")?.focus();
      }}>To the answer</a>
      <header class="top">
        <h1>roofcast</h1>
        {shown ? <nav aria-label="Views" /> : (
          <nav aria-label="Views">
            {VIEWS.map((view) => (
              <a key={view} href={write({ ...state, view })} aria-current={view === state.view ? "page" : undefined}>{NAMES[view][0]}</a>
            ))}
          </nav>
        )}
        <button type="button" class="quiet" onClick={turn} title="Change the theme">{theme === "dark" ? "Light theme" : "Dark theme"}</button>
      </header>
      <main id="main" tabIndex={-1}>
        <h2 class="hidden">{NAMES[state.view][0]}</h2>
        <p class="about" ref={title}>{NAMES[state.view][1]}</p>
        {error ? <Failure error={error} /> : null}
        {unknown.length ? <p class="failure" role="status" id="unknown">{`Parts of the link mean nothing here and are left out: ${unknown.join(", ")}.`}</p> : null}
        <View shown={shown} props={props} />
      </main>
      <footer>{shown ? "Written by roofcast --html. This file asks for nothing: all that it shows stands in it." : "Served by roofcast on this machine; nothing leaves it. The address of this page reproduces what it shows."}</footer>
    </>
  );
}

function View({ shown, props }: { shown: Shown | null; props: Omit<ViewProps<never>, "shown"> }): JSX.Element {
  switch (props.state.view) {
    case "limits":
      return <LimitsView {...props} shown={shown?.view === "limits" ? shown.answer : null} />;
    case "capacity":
      return <CapacityView {...props} shown={null as CapacityAnswer | null} />;
    case "serve":
      return <ServeView {...props} shown={shown?.view === "serve" ? shown.answer : null} />;
    case "plan":
      if (shown?.view === "curves") return <CurvesAnswerView answer={shown.answer} />;
      return <PlanView {...props} shown={shown?.view === "plan" ? shown.answer : null} />;
    case "measure":
      return shown?.view === "measure" ? <BenchView answer={shown.answer} /> : <MeasureView {...props} shown={null as MeasureAnswer | null} />;
    case "accuracy":
      return <AccuracyView {...props} shown={shown?.view === "accuracy" ? accuracyOf(shown.answer) : null} />;
  }
}

/** Data for the view Accuracy from a file of `validate`, which has measured rows and nothing about the calibration. */
const accuracyOf = (answer: ValidateAnswer): AccuracyAnswer => ({ bands: [], machines: [], tables: [], measured: answer as NonNullable<AccuracyAnswer["measured"]> });
