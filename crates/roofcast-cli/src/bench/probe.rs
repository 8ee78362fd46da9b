//! Short requests before a run that show how a server counts tokens.
//!
//! Knows: the places of a token count, and the reasons why there is none. [`super::prompt`] chooses the texts.

use super::ask::{Asker, Question};
use super::prompt::Prompts;
use super::stop::Stop;
use super::turn::Turn;
use super::{SILENCE, Told};
use roofcast::record::Outcome;
use roofcast::units::Picoseconds;
use serde_json::Map;
use std::cell::RefCell;

/// Result of the probes.
pub(super) enum Probed {
    /// Prompts that have exactly the requested tokens by the server's count.
    Learnt(Prompts),
    /// The server reports no counts, for this reason.
    Untold(String),
    /// There is no server, for this reason.
    Unreachable(String),
    /// The user stopped the bench.
    Stopped,
}

/// Sends probes until it is known how the server counts, or that it reports no counts.
pub(super) async fn probe(
    asker: &Asker,
    prompts: &Prompts,
    stop: &mut Stop,
    tell: &mut dyn FnMut(Told),
) -> Probed {
    let why = RefCell::new((None, "the server counts the same for every text".to_owned()));
    let tell = RefCell::new(tell);
    let more = || (tell.borrow_mut())(Told::Probing);
    let start = asker.servers.clock.now();
    let mut learning = std::pin::pin!(prompts.learnt(|text| count(asker, text, &why), more));
    let mut silence = std::pin::pin!(tokio::time::sleep(SILENCE));
    let mut is_silent = false;
    loop {
        tokio::select! {
            biased;
            _ = stop.recv() => return Probed::Stopped,
            learnt = &mut learning => return match learnt {
                Some(prompts) => Probed::Learnt(prompts),
                None => match why.take() {
                    (Some(Outcome::Connect), why) => Probed::Unreachable(why),
                    (_, why) => Probed::Untold(why),
                },
            },
            () = &mut silence, if !is_silent => {
                is_silent = true;
                if !asker.servers.was_read_since(start) {
                    (tell.borrow_mut())(Told::Silent);
                }
            }
        }
    }
}

/// Prompt tokens of `text` by the server's count: in its answer, else by its tokenizer. Without a count, `why` receives
/// the reason, with the outcome of a probe that failed.
async fn count(asker: &Asker, text: String, why: &RefCell<(Option<Outcome>, String)>) -> Option<u64> {
    let turns = vec![Turn::user(text)];
    let tokenizing = asker.form.tokenizing(&turns);
    let scheduled = Picoseconds::ZERO;
    let question = Question {
        id: 0,
        scheduled,
        input_len: 0,
        output_len: 1,
        turns,
        keys: Map::new(),
        given_up_after: None,
        repeats_until: None,
    };
    let answer = asker.ask(question).await;
    if answer.counted.is_some() {
        return answer.counted;
    }
    let answers = matches!(answer.record.outcome, Outcome::Completed | Outcome::Empty);
    let counted = if answers { asker.tokenized(tokenizing).await } else { None };
    if counted.is_none() {
        *why.borrow_mut() = match answer.record.error {
            Some(error) if answer.record.outcome == Outcome::Connect => (Some(Outcome::Connect), error),
            Some(error) if !answers => (Some(answer.record.outcome), format!("a probe failed: {error}")),
            _ => (None, "its answers have no `usage`, and it has no /tokenize".to_owned()),
        };
    }
    counted
}
