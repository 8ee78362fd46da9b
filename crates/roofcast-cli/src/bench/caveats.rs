//! Caveats of a run's figures, one sentence each.
//!
//! Knows: which sums of a run show that its figures measure something else than intended. Pure. [`super::report`]
//! decides if a run is invalid because of its load or its client.

use super::classes::Class;
use super::scrape::ServerMetrics;
use super::tally::{Tally, share};

/// Largest fraction by which lengths of answers or prompts may differ from the requested lengths in a valid run.
const MOST_OFF: f64 = 0.05;

/// Fraction of cached prompt tokens from which a prefix cache is considered active. It is above zero because a chat
/// template alone makes prompts share a block or two.
const CACHED: f64 = 0.05;

/// Fraction of chunks that arrive together with the chunk before, from which a proxy is considered to buffer the
/// stream.
const TOGETHER: f64 = 0.5;

/// Number of values below which the 95th and 99th percentiles are nearly the maximum.
const FEW: u64 = 20;

/// Properties of a load that are known before it is offered.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Given {
    /// True if prompts share tokens that a prefix cache can hold: shared prefixes, conversations, hashes of a trace.
    pub(crate) shares_prompts: bool,
    /// True if the words come from a user's seed, and are thus equal in every run with that seed.
    pub(crate) seeded: bool,
    /// True if the request asks the server to generate up to the requested length (`ignore_eos`).
    pub(crate) runs_on: bool,
    /// True if the user asked to count one token per word, without probing the server.
    pub(crate) assumed: bool,
    /// True if the server's metrics are read.
    pub(crate) scraped: bool,
    /// True if words are those of the model's tokenizer.
    pub(crate) tokenized: bool,
    /// Remarks made before the run, one sentence each.
    pub(crate) notes: Vec<String>,
    /// Classes of requests, each with its SLO.
    pub(crate) classes: Vec<Class>,
}

/// One sentence on the run's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caveat {
    pub(super) text: String,
    /// True if the run measured something else than intended.
    pub(super) invalidates: bool,
}

impl Caveat {
    fn note(text: impl Into<String>) -> Caveat {
        Caveat { text: text.into(), invalidates: false }
    }
}

/// All caveats of a run with `completed` requests, of which `streamed` have a time of the first token.
pub(super) fn of(
    given: &Given,
    tally: &Tally,
    server: Option<&ServerMetrics>,
    completed: u64,
) -> Vec<Caveat> {
    let mut caveats: Vec<_> = given.notes.iter().map(Caveat::note).collect();
    caveats.extend(short(given, tally));
    caveats.extend(off(given, tally));
    caveats.extend(cached(given, tally, server));
    if let Some(fallen) = server.map(ServerMetrics::fallen).filter(|fallen| *fallen > 0) {
        caveats.push(Caveat::note(format!(
            "{fallen} of the server's counters fell during the run: they began anew, as after a restart, or one server did \
             not answer; their increase and shares from counters are not known"
        )));
    }
    if tally.uncounted > 0 {
        caveats.push(Caveat::note(format!(
            "the server did not count the tokens of {} answers: counted as the requested number where an answer ended by length, \
             else as many as its chunks",
            tally.uncounted
        )));
    }
    caveats.extend(counts(tally));
    if let Some(together) = share(tally.no_gaps, tally.gaps).filter(|share| *share > TOGETHER) {
        caveats.push(Caveat::note(format!(
            "{:.0} % of the chunks came together with the one before: something on the way holds streams back, and TTFT and \
             ITL are its, not the server's",
            together * 100.0
        )));
    }
    if tally.resent > 0 {
        caveats.push(Caveat::note(format!(
            "{} requests were sent twice: a kept connection ended between the request and its answer, and the server may \
             have worked on both",
            tally.resent
        )));
    }
    if completed == 1 {
        caveats.push(Caveat::note("one request: each percentile is its one value"));
    } else if (2..FEW).contains(&completed) {
        caveats.push(Caveat::note(format!(
            "{completed} requests: the 95th and 99th percentile are the largest value, but for an interpolation"
        )));
    }
    caveats
}

/// Caveats on tokens that the server counts and its streams show otherwise.
fn counts(tally: &Tally) -> Vec<Caveat> {
    let note = |answers: u64, text: String| (answers > 0).then(|| Caveat::note(text));
    let dense = tally.dense_tokens as f64 / tally.dense_chunks.max(1) as f64;
    let notes = [
        note(
            tally.hiding,
            format!(
                "{} reasoning tokens of {} answers are counted and not streamed: output tokens and TPOT are those of the \
                 streamed ones, and TTFT includes the time of the others",
                tally.hidden, tally.hiding
            ),
        ),
        note(
            tally.bundled,
            format!(
                "the first chunk of {} answers has several tokens by the server's count: their TPOT divides by these \
                 tokens too, and is too low",
                tally.bundled
            ),
        ),
        note(
            if tally.bundled == 0 { tally.dense } else { 0 },
            format!(
                "{} answers have {dense:.2} tokens a chunk: TPOT is right where the first chunk has one token, and ITL is \
                 between chunks",
                tally.dense
            ),
        ),
        note(
            tally.undercounted,
            format!(
                "the server counts fewer tokens than its stream has chunks in {} answers",
                tally.undercounted
            ),
        ),
        note(
            tally.at_once,
            format!("{} answers of several tokens came at one time: they have no TPOT", tally.at_once),
        ),
        note(
            tally.passed_over,
            format!("{} events with neither content nor counts were passed over", tally.passed_over),
        ),
    ];
    notes.into_iter().flatten().collect()
}

/// Caveat on answers with fewer tokens than requested.
fn short(given: &Given, tally: &Tally) -> Option<Caveat> {
    let tokens_asked = tally.tokens_asked as f64;
    let came = tally.tokens as f64;
    (tally.short > 0).then(|| Caveat {
        text: format!(
            "{} answers are shorter than requested: {} of {} tokens in total",
            tally.short, tally.tokens, tally.tokens_asked
        ),
        invalidates: given.runs_on && came < (1.0 - MOST_OFF) * tokens_asked,
    })
}

/// Caveat on prompts whose length by the server's count is not the requested one.
fn off(given: &Given, tally: &Tally) -> Option<Caveat> {
    let prompt_tokens = tally.prompt_tokens_asked as f64;
    let counted = tally.prompt_tokens as f64;
    ((counted - prompt_tokens).abs() > MOST_OFF * prompt_tokens).then(|| Caveat {
        text: format!(
            "prompts have {counted} tokens by the server's count where {prompt_tokens} were asked for{}",
            match (given.assumed, given.tokenized) {
                (true, _) => ", as --assume-tokens takes a word for a token",
                (false, true) => {
                    "; accepted: the --tokenizer of the served model, or --assume-tokens to take a word for a token"
                }
                (false, false) => {
                    "; accepted: a server that answers the probes, --tokenizer, or --assume-tokens to take a word for a token"
                }
            }
        ),
        invalidates: !given.assumed,
    })
}

/// Caveat on cached prompts, by the server's report if there is one, else by properties of the load.
fn cached(given: &Given, tally: &Tally, server: Option<&ServerMetrics>) -> Option<Caveat> {
    let share_told = tally.cached_share().or_else(|| server?.cached_share());
    if let Some(share) = share_told.filter(|share| *share >= CACHED && !given.shares_prompts) {
        return Some(Caveat::note(format!(
            "{:.0} % of the prompts' tokens came from the server's prefix cache, though the load shares none: TTFT and \
             throughput are those of prompts that an earlier run said; accepted: another --seed, more prompts, or a \
             server without its cache",
            share * 100.0
        )));
    }
    if share_told.is_some() {
        return None;
    }
    if tally.repeated > 0 {
        return Some(Caveat::note(format!(
            "{} prompts had been said before, and the server does not say what its prefix cache had of them",
            tally.repeated
        )));
    }
    given.seeded.then(|| {
        let asks = if given.scraped { " or metrics" } else { " (--metrics asks for it)" };
        Caveat::note(format!(
            "every run with this --seed says the same prompts: after an earlier one a prefix cache has them, which this \
             server does not tell in its answers{asks}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(given: &Given, tally: &Tally, completed: u64) -> Vec<(bool, String)> {
        of(given, tally, None, completed).into_iter().map(|c| (c.invalidates, c.text)).collect()
    }

    #[test]
    fn nothing_is_said_of_what_is_as_asked() {
        let tally = Tally {
            prompts_counted: 30,
            prompts_exact: 30,
            prompt_tokens_asked: 3000,
            prompt_tokens: 3100,
            tokens_asked: 600,
            tokens: 600,
            cache_told: 3100,
            cached: 100,
            ..Tally::default()
        };
        assert_eq!(said(&Given { runs_on: true, seeded: true, ..Given::default() }, &tally, 30), []);
    }

    #[test]
    fn short_answers_invalidate_where_the_server_was_to_go_on() {
        // Two answers of 64 tokens each, of 200 requested.
        let tally = Tally { short: 2, tokens_asked: 400, tokens: 128, ..Tally::default() };
        let runs_on = |runs_on| said(&Given { runs_on, ..Given::default() }, &tally, 100);
        let text = "2 answers are shorter than requested: 128 of 400 tokens in total".to_owned();
        assert_eq!((runs_on(true), runs_on(false)), (vec![(true, text.clone())], vec![(false, text)]));
        // One missing token of 400 is within tolerance.
        let tally = Tally { short: 1, tokens: 399, ..tally };
        assert!(!said(&Given { runs_on: true, ..Given::default() }, &tally, 100)[0].0);
    }

    #[test]
    fn prompts_that_are_off_invalidate_unless_assumed() {
        let tally =
            Tally { prompts_counted: 1, prompt_tokens_asked: 100, prompt_tokens: 106, ..Tally::default() };
        let assumed = |assumed| said(&Given { assumed, ..Given::default() }, &tally, 100)[0].0;
        assert_eq!((assumed(false), assumed(true)), (true, false));
        let tally = Tally { prompt_tokens: 105, ..tally };
        assert_eq!(said(&Given::default(), &tally, 100), []);
    }

    #[test]
    fn streams_that_were_held_back_are_said() {
        let said_of =
            |no_gaps| said(&Given::default(), &Tally { gaps: 100, no_gaps, ..Tally::default() }, 100);
        assert_eq!(said_of(50), []);
        assert!(said_of(87)[0].1.starts_with("87 % of the chunks"));
    }

    #[test]
    fn a_warm_prefix_cache_is_named_by_what_is_known_of_it() {
        let count_of = |given: &Given, tally: &Tally, word: &str| {
            said(given, tally, 100).iter().filter(|(_, text)| text.contains(word)).count()
        };
        let cached_tally = Tally { cache_told: 1000, cached: 410, repeated: 3, ..Tally::default() };
        assert_eq!(count_of(&Given::default(), &cached_tally, "41 %"), 1);
        assert_eq!(count_of(&Given { shares_prompts: true, ..Given::default() }, &cached_tally, ""), 0);
        let untold = Tally { repeated: 3, ..Tally::default() };
        let seeded = Given { seeded: true, ..Given::default() };
        assert_eq!(
            (count_of(&seeded, &untold, "3 prompts"), count_of(&seeded, &Tally::default(), "--seed")),
            (1, 1)
        );
    }
}
