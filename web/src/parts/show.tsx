// Parts that show answers: sections that unfold, tables with their CSV, facts, messages, commands.

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { csv, save, type Cell } from "../csv";
import { inWords } from "../fields";

/** A section that unfolds; the URL lists the open sections. */
export function Section({ name, title, note, open, toggle, children }: {
  name: string;
  title: string;
  note?: ComponentChildren;
  open: boolean;
  toggle: (name: string, open: boolean) => void;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <details
      class="section"
      open={open}
      onToggle={(e) => {
        if (e.currentTarget.open !== open) toggle(name, e.currentTarget.open);
      }}
    >
      <summary><h2>{title}</h2>{note ? <span class="note">{note}</span> : null}</summary>
      {open ? <div class="inside">{children}</div> : null}
    </details>
  );
}

export interface Column<T> {
  name: string;
  /** Content of a cell; `value` is its plain value, for sorting and the CSV. */
  show: (row: T) => ComponentChildren;
  value: (row: T) => Cell;
  number?: boolean;
  title?: (row: T) => string;
}

/** A table, sorted by the column whose header is pressed. */
export function Table<T>({ rows, columns, caption, file, keyed, chosen, choose }: {
  rows: readonly T[];
  columns: readonly Column<T>[];
  caption: string;
  file: string;
  keyed: (row: T) => string;
  chosen?: string | null;
  choose?: (key: string) => void;
}): JSX.Element {
  const [by, setBy] = useState<{ column: number; down: boolean } | null>(null);
  const column = by ? columns[by.column] : undefined;
  const order = (a: T, b: T): number => {
    const [x, y] = [column?.value(a), column?.value(b)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * (by?.down ? -1 : 1);
  };
  const shown = column ? [...rows].sort(order) : rows;
  const press = (index: number) => setBy((old) => (old?.column === index ? { column: index, down: !old.down } : { column: index, down: Boolean(columns[index]?.number) }));
  return (
    <div class="table">
      {/* A narrow screen shows rows as cards, which have no headers to press. */}
      <label class="sort">
        Sorted by
        <select value={by ? String(by.column) : ""} onChange={(e) => setBy(e.currentTarget.value === "" ? null : { column: Number(e.currentTarget.value), down: Boolean(columns[Number(e.currentTarget.value)]?.number) })}>
          <option value="">the answer</option>
          {columns.map((c, i) => <option key={c.name} value={String(i)}>{c.name}</option>)}
        </select>
      </label>
      <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <caption class="hidden">{caption}</caption>
          <thead>
            <tr>
              {columns.map((c, i) => (
                <th key={c.name} scope="col" class={c.number ? "number" : ""} aria-sort={by?.column === i ? (by.down ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => press(i)}>{c.name}<span aria-hidden="true">{by?.column === i ? (by.down ? " ↓" : " ↑") : ""}</span></button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={keyed(row)} class={chosen === keyed(row) ? "chosen" : ""} {...(choose ? { onClick: () => choose(keyed(row)) } : {})}>
                {columns.map((c, i) => {
                  const cell = choose && i === 0
                    ? <button type="button" class="plain" aria-pressed={chosen === keyed(row)}>{c.show(row)}</button>
                    : c.show(row);
                  return <td key={c.name} class={c.number ? "number" : ""} data-name={c.name} title={c.title?.(row)}>{cell}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <button type="button" class="quiet" onClick={() => save(file, csv(columns.map((c) => c.name), shown.map((row) => columns.map((c) => c.value(row)))))}>
        Download CSV
      </button>
    </div>
  );
}

export type Fact = readonly [name: string, value: ComponentChildren, title?: string];

export function Facts({ facts }: { facts: readonly Fact[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value, title]) => (
        <div key={name} title={title}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Legend({ parts }: { parts: readonly (readonly [tone: string, name: ComponentChildren])[] }): JSX.Element {
  return (
    <ul class="key">
      {parts.map(([tone, name], i) => <li key={i}><span class={`swatch swatch-${tone}`} aria-hidden="true" />{name}</li>)}
    </ul>
  );
}

/** A refusal in the words of the page; `labels` has the fields that a view calls otherwise. */
export function Failure({ error, labels = {} }: { error: string | Error; labels?: Readonly<Record<string, string>> }): JSX.Element {
  return <div class="failure" role="alert">{inWords(typeof error === "string" ? error : error.message, labels)}</div>;
}

/** The equivalent command line, to copy. */
export function Command({ text }: { text: string }): JSX.Element {
  // Lines end between words, not within a flag.
  const words = text.split(" ").flatMap((word, i) => [i ? " " : "", <span key={i} class={word.length < 40 ? "word" : ""}>{word}</span>]);
  return <Copied label="The same on the command line" text={text}>{words}</Copied>;
}

export function Copied({ label, text, children }: { label: string; text: string; children?: ComponentChildren }): JSX.Element {
  const [copied, setCopied] = useState(false);
  return (
    <figure class="command">
      <figcaption>
        <span>{label}</span>
        <button
          type="button"
          class="quiet"
          onClick={() => void navigator.clipboard?.writeText(text).then(() => {
            setCopied(true);
            setTimeout(() => setCopied(false), 1500);
          })}
        >
          {copied ? "Copied" : "Copy"}
        </button>
      </figcaption>
      <pre tabIndex={0}>{children ?? text}</pre>
    </figure>
  );
}

/** An area on which files are dropped, or from which a file dialog opens. */
export function Drop({ label, accept, several, take }: { label: ComponentChildren; accept: string; several?: boolean; take: (files: File[]) => void }): JSX.Element {
  const [over, setOver] = useState(false);
  return (
    <label
      class={`drop ${over ? "over" : ""}`}
      onDragOver={(e) => {
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(e) => {
        e.preventDefault();
        setOver(false);
        const files = [...(e.dataTransfer?.files ?? [])];
        if (files.length) take(files);
      }}
    >
      <input
        type="file"
        accept={accept}
        multiple={several ?? false}
        onChange={(e) => {
          const files = [...(e.currentTarget.files ?? [])];
          e.currentTarget.value = "";
          if (files.length) take(files);
        }}
      />
      <span>{label}</span>
    </label>
  );
}

export function Working({ done, all, what }: { done: number; all: number; what: string }): JSX.Element {
  return (
    <div class="working" role="status">
      {all > 0 ? <progress max={all} value={done} aria-label={what} /> : <progress aria-label={what} />}
      <span>{all > 0 ? `${done.toLocaleString("en-US")} of ${all.toLocaleString("en-US")} ${what}` : `${done.toLocaleString("en-US")} ${what}`}</span>
    </div>
  );
}
