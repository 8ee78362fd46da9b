//! Admission polling: the steps in which a scheduler considers waiting requests. Some engines poll for them every few
//! steps, some hold them until they fill a step.
//!
//! Knows: SGLang receives requests every `scheduler_recv_interval` steps of decodes, and after every step with
//! prompts (0.5, `managers/scheduler_recv_skipper.py`); TensorRT-LLM holds prompts while others decode until they
//! fill `batch_wait_max_tokens_ratio` of the budget or `batch_wait_timeout_iters` steps have passed, and with
//! `attention_dp_enable_balance` until every data-parallel rank has one or `attention_dp_time_out_iters` steps have
//! (1.1, `_torch/pyexecutor/py_executor.py`). An idle engine polls at once. Knows nothing about which requests are
//! then admitted.

use crate::clock::Ticks;

/// Settings that delay waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PollingConfig {
    /// Steps of decodes between two polls for new requests; up to 1 each step polls.
    pub recv_interval: u64,
    /// Most steps that prompts wait while others decode.
    pub wait_steps: u64,
    /// Tokens, of the prompts and the decodes, that end the wait.
    pub wait_tokens: u64,
    /// Number of prompts that ends the wait.
    pub wait_prompts: u64,
    /// True if a step is scheduled while the previous one runs, so that requests that arrive meanwhile wait for the
    /// next.
    pub overlaps: bool,
}

/// The state of the polling.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AdmissionPolling {
    pub(crate) config: PollingConfig,
    /// Steps of decodes since the last poll.
    passed: u64,
    /// Requests that arrived by this time have been received.
    received: Ticks,
    /// Start of the last step.
    began: Ticks,
    /// Steps that prompts have waited.
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

    /// True if this step considers a request that arrived `at`.
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

    /// Decides whether the step holds back its `prompts` waiting prompts; `tokens` counts them and the decodes.
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

    /// Steps of decodes until waiting requests are considered.
    pub(crate) fn patience(&self) -> u64 {
        if self.held {
            self.config.wait_steps - self.waited
        } else {
            self.config.recv_interval.saturating_sub(self.passed).max(1)
        }
    }

    /// Counts `steps` steps of decodes, the last of which began at `began`. Requests that arrived before the last one
    /// did so before the first.
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

    /// With an interval of 3 polls are before the steps 0, 3, 6; after a step with prompts, at once.
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

    /// With an interval of 3, four steps taken at once have a poll before the fourth, which begins at 40: a request
    /// of time 5 is received then, one of time 45 is not. Two steps have no poll between them.
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

    /// 100 tokens wait until 900 are there, two steps at most; after a step with prompts the count restarts.
    #[test]
    fn prompts_are_held_until_they_fill_a_step_or_time_is_up() {
        let mut polling = AdmissionPolling::new(PollingConfig {
            wait_steps: 2,
            wait_tokens: 900,
            ..PollingConfig::default()
        });
        let mut held = |tokens: u64| {
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
        assert_eq!([100, 900].map(&mut held), [true, false]);
        assert_eq!([100, 100, 100, 100].map(&mut held), [true, true, false, true]);
    }
}
