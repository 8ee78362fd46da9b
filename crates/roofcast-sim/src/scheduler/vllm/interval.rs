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
