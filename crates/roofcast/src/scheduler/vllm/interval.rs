//! `prefill_schedule_interval`: in which steps prompts are computed beside decodes.
//!
//! Source: vLLM 0.33, `v1/core/sched/scheduler.py`; 0.32, `DPEngineCoreProc` of `v1/engine/core.py`.

/// The steps that have passed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Interval {
    /// Every so many steps; 1 is each.
    interval: u64,
    since_prefill: bool,
    /// Steps that computed something; up to 0.32 those decided since a request arrived at the empty engine.
    steps: u64,
    /// The last of them with a prompt.
    last: Option<u64>,
    /// Whether one that was to compute prompts left some waiting, so that the next does, too.
    wait: bool,
}

impl Interval {
    pub(super) fn new(interval: u64, since_prefill: bool) -> Interval {
        Interval { interval: interval.max(1), since_prefill, ..Interval::default() }
    }

    /// Whether the step that begins holds prompts back where sequences decode; `idle` says that nothing ran before it.
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

    /// The waiting requests of a step that holds none back have been considered: `left` wait that it had no room for.
    pub(super) fn considered(&mut self, left: bool) {
        self.wait = left;
    }

    /// A step is decided, which computes something, of prompts or not.
    pub(super) fn decided(&mut self, prompts: bool) {
        if self.since_prefill {
            self.steps += 1;
            self.last = if prompts { Some(self.steps) } else { self.last };
        }
    }
}
