//! Counters of a run in addition to its records: tokens counted by the server, uncounted answers, cached tokens.
//!
//! Knows: how answers are summed. [`super::caveats`] interprets the sums.

use super::ask::Asked;
use roofcast::record::Outcome;

/// Sums over the requests of a run, in requests, tokens or gaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Prompts of a planned length whose tokens the server counted.
    pub(super) prompts_counted: u64,
    /// Prompts that have exactly the planned length by the server's count.
    pub(super) prompts_exact: u64,
    /// Tokens of the counted prompts as planned; the next field has the server's count.
    pub(super) prompt_tokens_asked: u64,
    pub(super) prompt_tokens: u64,
    /// Completed answers with fewer tokens than requested.
    pub(super) short: u64,
    /// Tokens of completed answers as requested; the next field has the received ones.
    pub(super) tokens_asked: u64,
    pub(super) tokens: u64,
    /// Completed answers whose tokens the server did not count.
    pub(super) uncounted: u64,
    /// Prompt tokens of the answers that report cached tokens; the next field has the cached ones.
    pub(super) cache_told: u64,
    pub(super) cached: u64,
    /// Gaps between chunks of completed answers; the next field counts gaps of zero length.
    pub(super) gaps: u64,
    pub(super) no_gaps: u64,
    /// Completed answers with reasoning tokens that the stream does not show; the next field counts these tokens.
    pub(super) hiding: u64,
    pub(super) hidden: u64,
    /// Completed answers whose first chunk has several tokens by the server's count.
    pub(super) bundled: u64,
    /// Completed streams with more counted tokens than chunks; the next fields have their tokens and chunks.
    pub(super) dense: u64,
    pub(super) dense_tokens: u64,
    pub(super) dense_chunks: u64,
    /// Completed streams with fewer counted tokens than chunks.
    pub(super) undercounted: u64,
    /// Completed streams of several tokens that came at one time.
    pub(super) at_once: u64,
    /// Events without content that the API defines.
    pub(super) passed_over: u64,
    /// Tries that the server refused and that were repeated.
    pub(super) retried: u64,
    /// Requests that were sent twice.
    pub(super) resent: u64,
    /// Prompts that had been sent before, in this run or an earlier one.
    pub(super) repeated: u64,
}

impl Tally {
    /// Adds the result of a request. `input_len` is the planned length of its prompt in tokens, if there is one.
    pub(super) fn add(&mut self, asked: &Asked, input_len: Option<u64>) {
        if let (Some(counted), Some(wanted)) = (asked.counted, input_len) {
            self.prompts_counted += 1;
            self.prompts_exact += u64::from(counted == wanted);
            self.prompt_tokens += counted;
            self.prompt_tokens_asked += wanted;
        }
        self.retried += asked.repeated;
        if asked.cache_told {
            self.cache_told += asked.record.input_len;
            self.cached += asked.record.cached_tokens;
        }
        if asked.record.outcome == Outcome::Completed {
            self.short += u64::from(asked.generated < asked.tokens_asked);
            self.tokens_asked += asked.tokens_asked;
            self.tokens += asked.generated;
            self.add_shown(asked);
            self.uncounted += u64::from(!asked.tokens_counted);
            self.gaps += asked.record.itl.len() as u64;
            self.no_gaps += asked.record.itl.iter().filter(|gap| gap.0 == 0).count() as u64;
        }
    }

    /// Adds the differences between the stream of a completed answer and the server's counts.
    fn add_shown(&mut self, asked: &Asked) {
        let shown = asked.shown;
        let record = &asked.record;
        self.passed_over += shown.passed_over;
        let Some(first) = record.first_token else { return };
        self.hiding += u64::from(shown.hidden > 0);
        self.hidden += shown.hidden;
        self.bundled += u64::from(shown.first > 1);
        self.at_once += u64::from(record.output_len > 1 && first == record.finished);
        if asked.tokens_counted && record.output_len > shown.chunks {
            self.dense += 1;
            self.dense_tokens += record.output_len;
            self.dense_chunks += shown.chunks;
        }
        self.undercounted += u64::from(asked.tokens_counted && record.output_len < shown.chunks);
    }

    /// Fraction of the counted prompts that have exactly the planned length; `None` if the server counts none.
    pub(super) fn exact(&self) -> Option<f64> {
        share(self.prompts_exact, self.prompts_counted)
    }

    /// Fraction of prompt tokens that the server took from a prefix cache; `None` if the server does not report it.
    pub(super) fn cached_share(&self) -> Option<f64> {
        share(self.cached, self.cache_told)
    }
}

/// `part` over `whole`; `None` if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
