//! Counts of a run beside its records: what the server counted, what it left uncounted, what its cache had.
//!
//! Knows: how answers add up. What follows from the sums is [`super::caveats`]'s.

use super::ask::Asked;
use roofcast::record::Outcome;

/// Sums over the requests of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Prompts of a known length whose tokens the server counted.
    pub(super) prompts_counted: u64,
    /// Of them, prompts of exactly the length asked for.
    pub(super) prompts_exact: u64,
    /// Tokens of those prompts, as asked for and by the server's count.
    pub(super) prompt_tokens_asked: u64,
    pub(super) prompt_tokens: u64,
    /// Completed answers with fewer tokens than asked for.
    pub(super) short: u64,
    /// Tokens of completed answers, as asked for and as they came.
    pub(super) tokens_asked: u64,
    pub(super) tokens: u64,
    /// Completed answers whose tokens the server did not count.
    pub(super) uncounted: u64,
    /// Prompt tokens of the answers that say what a prefix cache had, and what it had.
    pub(super) cache_told: u64,
    pub(super) cached: u64,
    /// Gaps between chunks of completed answers, and those in which no time passed.
    pub(super) gaps: u64,
    pub(super) no_gaps: u64,
    /// Requests that were sent twice.
    pub(super) resent: u64,
    /// Prompts that had been said before, in this run or an earlier one.
    pub(super) repeated: u64,
}

impl Tally {
    /// Adds what came of a request. `input_len` is its prompt's length, where that was asked for.
    pub(super) fn add(&mut self, asked: &Asked, input_len: Option<u64>) {
        if let (Some(counted), Some(wanted)) = (asked.counted, input_len) {
            self.prompts_counted += 1;
            self.prompts_exact += u64::from(counted == wanted);
            self.prompt_tokens += counted;
            self.prompt_tokens_asked += wanted;
        }
        if asked.cache_told {
            self.cache_told += asked.record.input_len;
            self.cached += asked.record.cached_tokens;
        }
        if asked.record.outcome == Outcome::Completed {
            self.short += u64::from(asked.record.output_len < asked.tokens_asked);
            self.tokens_asked += asked.tokens_asked;
            self.tokens += asked.record.output_len;
            self.uncounted += u64::from(!asked.tokens_counted);
            self.gaps += asked.record.itl.len() as u64;
            self.no_gaps += asked.record.itl.iter().filter(|gap| gap.0 == 0).count() as u64;
        }
    }

    /// Share of the prompts that have exactly the length asked for; none where the server counts none.
    pub(super) fn exact(&self) -> Option<f64> {
        share(self.prompts_exact, self.prompts_counted)
    }

    /// Share of the prompts' tokens that a prefix cache had; none where the server does not say.
    pub(super) fn cached_share(&self) -> Option<f64> {
        share(self.cached, self.cache_told)
    }
}

/// `part` of `whole`; none of nothing.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
