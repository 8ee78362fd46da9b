// Controls: each has a label, a value with its unit, and a line of explanation.

import { createContext, type ComponentChildren, type JSX } from "preact";
import { useContext, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { labelOf, type Refused } from "../fields";
import { names } from "../state";

/** The refusal of the last question, which the control of its field shows. */
export const Wrong = createContext<Refused | null>(null);

/** True if the last question was refused because of the key at `path`; the parallelism is refused by the names of its keys. */
function useWrong(path: string): boolean {
  const field = useContext(Wrong)?.field;
  return field === path || [`hardware.${field}`, `parallelism.${field}`].includes(path);
}

interface Labelled {
  label: string;
  hint?: string;
}

/** Text that is typed into a control and not yet applied. It survives a new rendering of the view, as each progress message of a plan causes. */
function useDraft(value: string, take: (text: string) => void) {
  const [draft, setDraft] = useState<string | null>(null);
  return {
    value: draft ?? value,
    onInput: (e: { currentTarget: HTMLInputElement }) => setDraft(e.currentTarget.value),
    onChange: (e: { currentTarget: HTMLInputElement }) => {
      take(e.currentTarget.value.trim());
      setDraft(null);
    },
  };
}

interface Numbered {
  /** Path of the key, whose label the control has unless `label` is given. */
  of: string;
  label?: string;
  unit?: string;
  /** Text as it was typed; empty is not given. */
  value: string;
  /** What holds while nothing is given. */
  empty?: string;
  change: (text: string) => void;
}

/** A number as text, which the server reads as it reads flags, as in `8k`. */
function Typed({ of, named, value, empty, change, id, described }: Omit<Numbered, "label"> & { named?: string; id: string; described?: string | undefined }): JSX.Element {
  const draft = useDraft(value, change);
  return (
    <input
      id={id}
      type="text"
      autocomplete="off"
      spellcheck={false}
      placeholder={empty}
      aria-label={named}
      aria-invalid={useWrong(of)}
      aria-describedby={described}
      {...draft}
    />
  );
}

/** A slider over whole numbers on a logarithmic scale, as for batches and contexts, with a field for any other number. */
export function Slider({ values, at, ...of }: Numbered & {
  /** Values of the slider; 0 is not given. */
  values: readonly number[];
  /** The number that the server read, for text that is not written plainly. */
  at?: number | undefined;
}): JSX.Element {
  const id = useId();
  const label = of.label ?? labelOf(of.of);
  const plain = of.value === "" ? 0 : Number(of.value);
  const value = Number.isFinite(plain) ? plain : (at ?? 0);
  const near = values.reduce((best, v, i) => (Math.abs(v - value) < Math.abs((values[best] ?? 0) - value) ? i : best), 0);
  const said = [of.value || of.empty, of.unit].filter(Boolean).join(" ");
  return (
    <div class="field slider">
      <label for={id}>{label}</label>
      <span class="with-unit exact">
        <Typed {...of} named={`${label}, as a number`} id={`${id}-exact`} />
        {of.unit ? <span class="unit">{of.unit}</span> : null}
      </span>
      <input
        id={id}
        type="range"
        min={0}
        max={values.length - 1}
        step={1}
        value={near}
        aria-valuetext={said}
        onInput={(e) => of.change(String(values[Number(e.currentTarget.value)] || ""))}
      />
    </div>
  );
}

/** Powers of two and the middle values between them: 1, 2, 3, 4, 6, 8, 12 … */
export function powers(least: number, most: number): number[] {
  const all: number[] = [];
  for (let v = least; v <= most; v *= 2) {
    all.push(v);
    const between = v * 1.5;
    if (Number.isInteger(between) && between < most && v >= 2) all.push(between);
  }
  if (all[all.length - 1] !== most) all.push(most);
  return all;
}

export function Field({ hint, ...of }: Numbered & { hint?: string }): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{of.label ?? labelOf(of.of)}</label>
      <span class="with-unit">
        <Typed {...of} id={id} described={hint ? `${id}-hint` : undefined} />
        {of.unit ? <span class="unit">{of.unit}</span> : null}
      </span>
      {hint ? <small id={`${id}-hint`}>{hint}</small> : null}
    </div>
  );
}

export type Option = readonly [value: string, name: string];

export function Select({ label, hint, value, options, change }: Labelled & {
  value: string;
  options: readonly Option[];
  change: (value: string) => void;
}): JSX.Element {
  const id = useId();
  const known = options.some(([v]) => v === value);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(e) => change(e.currentTarget.value)}>
        {known ? null : <option value={value}>{value}</option>}
        {options.map(([v, name]) => <option key={v} value={v}>{name}</option>)}
      </select>
      {hint ? <small>{hint}</small> : null}
    </div>
  );
}

/** A name of the catalog, typed or chosen from a list; typed text is applied when the control loses focus or a name is chosen. */
export function Picker({ label, hint, value, options, change }: Labelled & {
  value: string;
  options: readonly Option[];
  change: (value: string) => void;
}): JSX.Element {
  const id = useId();
  const draft = useDraft(value, (text) => {
    if (text) change(text);
  });
  return (
    <div class="field picker">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="text"
        list={`${id}-list`}
        title={value}
        autocomplete="off"
        spellcheck={false}
        onFocus={(e) => e.currentTarget.select()}
        {...draft}
      />
      <datalist id={`${id}-list`}>
        {options.map(([v, name]) => <option key={v} value={v}>{name}</option>)}
      </datalist>
      {hint ? <small>{hint}</small> : null}
    </div>
  );
}

export function Text({ of = "", label, hint, value, wide = true, change }: Labelled & { of?: string; value: string; wide?: boolean; change: (value: string) => void }): JSX.Element {
  const id = useId();
  const draft = useDraft(value, change);
  return (
    <div class={wide ? "field wide" : "field"}>
      <label for={id}>{label}</label>
      <input id={id} type="text" spellcheck={false} autocomplete="off" aria-invalid={useWrong(of)} {...draft} />
      {hint ? <small>{hint}</small> : null}
    </div>
  );
}

/** Several names, typed with commas between them or ticked in a list. */
export function Several({ of, label, hint, value, options, change }: Labelled & {
  of: string;
  value: string;
  options: readonly Option[];
  change: (value: string) => void;
}): JSX.Element {
  const chosen = names(value);
  const turn = (name: string, on: boolean) => change((on ? [...chosen, name] : chosen.filter((one) => one !== name)).join(","));
  return (
    <div class="wide several">
      <Text of={of} label={label} value={value} change={change} {...(hint ? { hint } : {})} />
      <details class="more">
        <summary>{`Tick them in a list (${chosen.length} of ${options.length})`}</summary>
        <div class="picks" role="group" aria-label={label}>
          {options.map(([name, about]) => (
            <label key={name} class="check">
              <input type="checkbox" checked={chosen.includes(name)} onChange={(e) => turn(name, e.currentTarget.checked)} />
              <span>{name} <small>{about}</small></span>
            </label>
          ))}
        </div>
      </details>
    </div>
  );
}

export function Check({ label, value, change }: { label: string; value: boolean; change: (value: boolean) => void }): JSX.Element {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(e) => change(e.currentTarget.checked)} />
      {label}
    </label>
  );
}

/** A choice of one of a few options, shown side by side. */
export function Choice({ label, value, options, change }: { label: string; value: string; options: readonly Option[]; change: (value: string) => void }): JSX.Element {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([v, name]) => (
        <button key={v} type="button" aria-pressed={v === value} onClick={() => change(v)}>{name}</button>
      ))}
    </div>
  );
}

/** Passes the available width in pixels to a chart, and renders it again when the width changes. */
export function Measured({ children }: { children: (width: number) => ComponentChildren }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = place.current;
    if (!element) return;
    const look = () => setWidth(Math.floor(element.clientWidth));
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return <div class="measured" ref={place}>{width > 0 ? children(width) : null}</div>;
}
