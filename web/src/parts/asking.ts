// Questions that follow the controls: a new question aborts the one before it, and an answer stays on screen until the next arrives.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, follow, type Progress } from "../api";
import { Refused } from "../fields";

export interface Asked<T> {
  answer: T | null;
  error: Refused | null;
  busy: boolean;
}

const told = (error: unknown): Refused => (error instanceof Refused ? error : new Refused(String(error)));

/** Asks whenever the body changes; if `shown` has an embedded answer, nothing is asked. */
export function useAnswer<T>(path: string, body: unknown, shown: T | null): Asked<T> {
  const [state, setState] = useState<Asked<T>>({ answer: shown, error: null, busy: shown === null });
  const text = JSON.stringify(body);
  useEffect(() => {
    if (shown !== null) return;
    const control = new AbortController();
    setState((old) => ({ ...old, busy: true }));
    ask<T>(path, body, control.signal)
      .then((answer) => setState({ answer, error: null, busy: false }))
      .catch((error: unknown) => {
        if (!control.signal.aborted) setState((old) => ({ ...old, error: told(error), busy: false }));
      });
    return () => control.abort();
  }, [path, text]);
  return state;
}

export interface Followed<T> extends Asked<T> {
  progress: Progress | null;
  start: (path: string, body: unknown) => void;
  stop: () => void;
}

/** Long work that the user starts and may stop. */
export function useWork<T>(shown: T | null): Followed<T> {
  const [state, setState] = useState<Asked<T> & { progress: Progress | null }>({ answer: shown, error: null, busy: false, progress: null });
  const control = useRef<AbortController | null>(null);
  const stop = () => {
    control.current?.abort();
    setState((old) => ({ ...old, busy: false, progress: null }));
  };
  useEffect(() => () => control.current?.abort(), []);
  const start = (path: string, body: unknown) => {
    control.current?.abort();
    const mine = new AbortController();
    control.current = mine;
    setState((old) => ({ ...old, error: null, busy: true, progress: null }));
    follow<T>(path, body, mine.signal, (progress) => setState((old) => ({ ...old, progress })))
      .then((answer) => setState({ answer, error: null, busy: false, progress: null }))
      .catch((error: unknown) => {
        if (!mine.signal.aborted) setState((old) => ({ ...old, error: told(error), busy: false, progress: null }));
      });
  };
  return { ...state, start, stop };
}
