//! A request in an engine, from the time when it joins the queue until it has all its tokens.

use super::super::kv_events::Chain;
use super::super::metrics::{Ended, Metrics};
use super::super::pace::Pace;
use super::Job;
use roofcast::clock::Ticks;

/// A request in the engine.
pub(super) struct Life {
    pub(super) job: Box<Job>,
    pub(super) admitted: Option<Ticks>,
    pub(super) first: Option<Ticks>,
    last: Ticks,
    tokens: u64,
    /// Prompt tokens found on the device, and prompt tokens loaded from a host tier.
    pub(super) cached: u64,
    pub(super) loaded: u64,
    pub(super) preemptions: u64,
    /// True if the request is running, false if it waits.
    pub(super) runs: bool,
    /// Hashes of the request's blocks that were published.
    pub(super) chain: Chain,
}

impl Life {
    pub(super) fn new(job: Box<Job>) -> Life {
        Life {
            job,
            admitted: None,
            first: None,
            last: Ticks::ZERO,
            tokens: 0,
            cached: 0,
            loaded: 0,
            preemptions: 0,
            runs: false,
            chain: Chain::new(),
        }
    }

    /// Counts `tokens` newly sampled tokens at time `at`.
    pub(super) fn sampled(&mut self, tokens: u64, at: Ticks, pace: &Pace, metrics: &mut Metrics) {
        match self.first {
            None => {
                self.first = Some(at);
                let seconds = pace.seconds(at - self.job.since);
                metrics.first_token(self.prompt(), self.cached, self.external(), seconds, self.job.facts);
            }
            Some(_) => metrics.next_tokens(tokens, pace.seconds(at - self.last)),
        }
        metrics.generated(tokens, self.job.facts);
        self.last = at;
        self.tokens += tokens;
        self.job.outlet.say(self.job.choice, tokens, false);
    }

    /// Number of tokens of the prompt and of the answer so far.
    pub(super) fn held(&self) -> u64 {
        self.prompt() + self.tokens
    }

    fn prompt(&self) -> u64 {
        self.job.asked.prompt.len() as u64
    }

    /// Prompt tokens that were loaded from a host tier, or that another instance transferred and the cache did not
    /// have.
    pub(super) fn external(&self) -> u64 {
        self.loaded.max(self.job.asked.transferred.min(self.prompt()).saturating_sub(self.cached))
    }

    pub(super) fn ended(&self, pace: &Pace) -> Ended {
        let since = self.job.since;
        let admitted = self.admitted.unwrap_or(since);
        // vLLM counts queue time from the time when the engine receives a request.
        let queued = if self.job.asked.transferred == 0 { self.job.asked.at } else { since };
        let first = self.first.unwrap_or(self.last);
        let span = |from: Ticks, to: Ticks| pace.seconds(to - from);
        Ended {
            e2e: span(since, self.last),
            queue: span(queued, admitted),
            prefill: span(admitted, first),
            decode: span(first, self.last),
            inference: span(admitted, self.last),
            prompt_tokens: self.prompt(),
            computed_prompt_tokens: self.prompt() - self.cached - self.external(),
            generation_tokens: self.tokens,
            preemptions: self.preemptions,
        }
    }
}
