//! Admission polling: the steps in which a scheduler considers waiting requests. Some engines poll every few steps,
//! some hold requests until they fill a step.
//!
//! Knows: SGLang receives requests every `scheduler_recv_interval` steps of decodes, and after every step with prompts
//! (0.5, `managers/scheduler_recv_skipper.py`). TensorRT-LLM holds prompts while other requests decode until the
//! prompts fill `batch_wait_max_tokens_ratio` of the budget or `batch_wait_timeout_iters` steps have passed; with
//! `attention_dp_enable_balance` until every data-parallel rank has a prompt or `attention_dp_time_out_iters` steps
//! have passed (1.1, `_torch/pyexecutor/py_executor.py`). An idle engine polls at once. Knows nothing about which
//! requests are then admitted.

use roofcast_facts::clock::Ticks;

/// Settings that delay the admission of waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PollingConfig {
    /// Number of steps of decodes from one poll for new requests to the next; 0 and 1 poll in each step.
    pub(crate) recv_interval: u64,
    /// Most steps that prompts wait while other requests decode.
    pub(crate) wait_steps: u64,
    /// Number of tokens, of waiting prompts and decodes together, that ends the wait.
    pub(crate) wait_tokens: u64,
    /// Number of waiting prompts that ends the wait.
    pub(crate) wait_prompts: u64,
    /// True if a step is scheduled while the previous one runs, so that requests that arrive meanwhile wait for the
    /// step after.
    pub(crate) overlaps: bool,
}

/// State of the polling.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AdmissionPolling {
    pub(crate) config: PollingConfig,
    /// Number of steps of decodes since the last poll.
    passed: u64,
    /// Time up to which arrived requests have been received.
    received: Ticks,
    /// Start of the last step.
    began: Ticks,
    /// Number of steps that prompts have waited.
    waited: u64,
    held: bool,
    /// True if every step considers every waiting request.
    open: bool,
}

impl AdmissionPolling {
    pub(crate) fn new(config: PollingConfig) -> AdmissionPolling {
        let open = config.recv_interval <= 1 && config.wait_steps == 0 && !config.overlaps;
        AdmissionPolling { config, open, ..AdmissionPolling::default() }
    }

    /// True if this step considers a request that arrived at `at`.
    pub(crate) fn admits(&self, at: Ticks) -> bool {
        self.open
            || !self.held
                && (at <= self.received || (self.config.recv_interval <= 1 && !self.config.overlaps))
    }

    /// Prepares a step: new requests are received if a poll is due or the engine is idle.
    pub(crate) fn poll(&mut self, now: Ticks, idle: bool) {
        if self.open {
            return;
        }
        self.held = false;
        if idle || self.passed == 0 {
            self.received = if self.config.overlaps && !idle { self.began } else { now };
            self.passed = 0;
        }
    }

    /// Decides whether the step holds back its `prompts` waiting prompts; `tokens` counts the tokens of prompts and
    /// decodes.
    pub(crate) fn hold(&mut self, prompts: u64, tokens: u64) {
        let few = tokens < self.config.wait_tokens || prompts < self.config.wait_prompts;
        self.held = few && self.waited < self.config.wait_steps;
    }

    /// True if every step considers every waiting request.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// True if requests are received only every few steps.
    pub(crate) fn polls(&self) -> bool {
        self.config.recv_interval > 1
    }

    /// Number of steps of decodes until waiting requests are considered.
    pub(crate) fn patience(&self) -> u64 {
        if self.held {
            self.config.wait_steps - self.waited
        } else {
            self.config.recv_interval.saturating_sub(self.passed).max(1)
        }
    }

    /// Counts `steps` steps of decodes, the last of which began at `began`. Requests that arrived before the last of
    /// these steps had arrived before the first.
    pub(crate) fn decoded(&mut self, steps: u64, began: Ticks) {
        if self.open {
            return;
        }
        if self.polls() {
            // A poll was due within these steps.
            if self.passed + steps > self.config.recv_interval {
                self.received = began;
            }
            self.passed = (self.passed + steps) % self.config.recv_interval;
        }
        self.began = began;
        self.waited += if self.held { steps } else { 0 };
    }

    /// Counts a step with prompts that began at `began`.
    pub(crate) fn prefilled(&mut self, began: Ticks) {
        self.began = began;
        (self.passed, self.waited) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With an interval of 3, polls are before steps 0, 3 and 6; after a step with prompts, the next step polls.
    #[test]
    fn requests_are_received_every_third_step() {
        let mut polling =
            AdmissionPolling::new(PollingConfig { recv_interval: 3, ..PollingConfig::default() });
        let admitted: Vec<bool> = (0..7)
            .map(|step| {
                polling.poll(Ticks(10 * step), false);
                let admits = polling.admits(Ticks(10 * step));
                polling.decoded(1, Ticks(10 * step));
                admits
            })
            .collect();
        assert_eq!(admitted, [true, false, false, true, false, false, true]);
        polling.poll(Ticks(70), false);
        assert!(!polling.admits(Ticks(70)) && polling.patience() == 2);
        polling.prefilled(Ticks(70));
        polling.poll(Ticks(80), false);
        assert!(polling.admits(Ticks(80)));
    }

    /// With an interval of 3, four steps taken at once include a poll before the fourth, which begins at 40: it
    /// receives a request that arrived at 5, but not one that arrived at 45. Two steps include no poll.
    #[test]
    fn polls_within_a_leap_count() {
        let after = |steps: u64, began: u128| {
            let mut polling =
                AdmissionPolling::new(PollingConfig { recv_interval: 3, ..PollingConfig::default() });
            polling.poll(Ticks(0), false);
            polling.decoded(steps, Ticks(began));
            polling.poll(Ticks(50), false);
            [5, 45].map(|at| polling.admits(Ticks(at)))
        };
        assert_eq!(after(4, 40), [true, false]);
        assert_eq!(after(2, 20), [false, false]);
    }

    /// 100 tokens wait until there are 900, for at most two steps; after a step with prompts the count restarts.
    #[test]
    fn prompts_are_held_until_they_fill_a_step_or_time_is_up() {
        let mut polling = AdmissionPolling::new(PollingConfig {
            wait_steps: 2,
            wait_tokens: 900,
            ..PollingConfig::default()
        });
        let mut holds = |tokens: u64| {
            polling.poll(Ticks::ZERO, false);
            polling.hold(1, tokens);
            let admits = polling.admits(Ticks::ZERO);
            if admits {
                polling.prefilled(Ticks::ZERO)
            } else {
                polling.decoded(1, Ticks::ZERO)
            }
            !admits
        };
        assert_eq!([100, 900].map(&mut holds), [true, false]);
        assert_eq!([100, 100, 100, 100].map(&mut holds), [true, true, false, true]);
    }
}
