//! `prefill_schedule_interval`: the steps that compute prompts together with decodes.
//!
//! Knows: which steps may compute prompts. Knows nothing about blocks or budgets. Source: vLLM 0.33,
//! `v1/core/sched/scheduler.py`; 0.32, `DPEngineCoreProc` of `v1/engine/core.py`.

/// State of the interval, which counts the steps so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Interval {
    /// Number of steps from one with prompts to the next; 1 for every step.
    interval: u64,
    since_prefill: bool,
    /// Number of steps that computed anything; up to 0.32, number of steps decided since a request arrived at the idle
    /// engine.
    steps: u64,
    /// Number of the last step that computed a prompt.
    last: Option<u64>,
    /// True if a step that computed prompts left requests waiting, so that the next step computes prompts as well.
    wait: bool,
}

impl Interval {
    pub(super) fn new(interval: u64, since_prefill: bool) -> Interval {
        Interval { interval: interval.max(1), since_prefill, ..Interval::default() }
    }

    /// True if the next step holds prompts back while sequences decode; `idle` is true if no request ran before it.
    pub(super) fn holds(&mut self, idle: bool) -> bool {
        if self.interval == 1 {
            return false;
        }
        if self.since_prefill {
            return !self.wait && self.last.is_some_and(|last| self.steps + 1 - last < self.interval);
        }
        self.steps = if idle { 0 } else { self.steps };
        let off_beat = !self.steps.is_multiple_of(self.interval);
        self.steps += 1;
        off_beat && !self.wait
    }

    /// Number of next steps of decodes alone that are decided as the last one was; `waits` is true if requests wait, none
    /// of which the last decision admitted.
    pub(super) fn equal_steps(&self, waits: bool) -> u64 {
        if self.interval == 1 || self.wait || !waits {
            return u64::MAX;
        }
        if self.since_prefill {
            return self.last.map_or(0, |last| (self.interval - 1).saturating_sub(self.steps - last));
        }
        self.steps.next_multiple_of(self.interval) - self.steps
    }

    /// Passes `count` such steps.
    pub(super) fn pass(&mut self, count: u64, waits: bool) {
        self.steps += count;
        self.wait &= waits || count == 0;
    }

    /// Records that a step without this restriction has considered the waiting requests; `left` is true if some of
    /// these still wait.
    pub(super) fn considered(&mut self, left: bool) {
        self.wait = left;
    }

    /// Records that a step with any computation is decided; `prompts` is true if prompts are part of the step.
    pub(super) fn decided(&mut self, prompts: bool) {
        if self.since_prefill {
            self.steps += 1;
            self.last = if prompts { Some(self.steps) } else { self.last };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step of decodes alone; true if it holds prompts back.
    fn step(interval: &mut Interval, waits: bool) -> bool {
        let holds = interval.holds(false);
        if !holds {
            interval.considered(waits);
        }
        interval.decided(false);
        holds
    }

    /// After a step with prompts every fourth step may compute prompts. Steps that are passed at once hold prompts back as
    /// single steps do, and leave the state of single steps; with requests that wait, the step after them is decided
    /// differently.
    #[test]
    fn passing_is_stepping() {
        for since_prefill in [false, true] {
            for (before, left, waits) in
                (0..9).flat_map(|n| [(n, false, true), (n, true, true), (n, true, false)])
            {
                let mut single = Interval::new(4, since_prefill);
                single.considered(left);
                single.decided(true);
                for _ in 0..before {
                    step(&mut single, false);
                }
                let last_holds = step(&mut single, waits);
                let equal_steps = single.equal_steps(waits);
                let mut passed = single;
                passed.pass(equal_steps.min(20), waits);
                for _ in 0..equal_steps.min(20) {
                    assert!(step(&mut single, waits) == last_holds || !waits);
                }
                assert_eq!(format!("{single:?}"), format!("{passed:?}"));
                assert!(equal_steps > 20 || step(&mut single, waits) != last_holds);
            }
        }
    }
}
