//! `roofcast emulate`: the engine of a simulation on the wall clock, behind an inference server's API.
//!
//! Knows: a request is read, its whole answer is generated at once, its tokens are given to an engine, which decides
//! when each is released, and the answer is sent as its tokens are released. Only [`replica`] knows the engine, only
//! [`service`] the routes.

mod adapters;
mod ask;
mod completion;
pub(crate) mod dialect;
pub(crate) mod faults;
mod fields;
mod form;
pub(crate) mod group;
pub(crate) mod kv_events;
pub(crate) mod metrics;
mod outlet;
pub(crate) mod pace;
mod pins;
mod refusal;
pub(crate) mod replica;
mod response;
pub(crate) mod service;
mod sleep;
mod stream;
pub(crate) mod tokenizer;
mod tools;
mod wire;

pub(crate) use completion::Author;

use ask::{Ask, Endpoint};
pub(crate) use completion::Calling;
use outlet::Out;
use replica::EngineHandle;
use std::io::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokenizer::Rule;
use wire::{Echoed, Reply, Writer};

/// Interval of the checks that an engine keeps up with its forecast times.
const LOOK: Duration = Duration::from_secs(5);
/// Fraction of late steps from which a warning is printed.
const LATE_SHARE: f64 = 0.05;

/// Warns on stderr when an engine's steps end late, because clients then measure this machine instead of the forecast.
pub(crate) fn warn_when_late(replica: &Arc<EngineHandle>) {
    let replica = Arc::downgrade(replica);
    tokio::spawn(async move {
        let mut before = (0, 0);
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(replica) = replica.upgrade() else { return };
            let (late, steps) = replica.metrics().late();
            if (late - before.0) as f64 > LATE_SHARE * (steps - before.1) as f64 {
                let what = format!("{} of {} steps", late - before.0, steps - before.1);
                let limit = metrics::LATE.as_millis();
                let text =
                    format!("warning: {what} ended over {limit} ms late: this machine does not keep up");
                drop(writeln!(std::io::stderr(), "{text}"));
            }
            before = (late, steps);
        }
    });
}

/// Most choices and tokens of an answer that [`exercise`] writes, to keep it fast.
const FEW: usize = 8;

/// Reads a body as each endpoint does and, if it is a valid request, writes the complete answer and the stream; for
/// fuzzing.
pub(crate) fn exercise(body: &[u8]) {
    static AUTHOR: LazyLock<Author> =
        LazyLock::new(|| Author::new(Arc::new(Rule), vec![3, 7], Calling { share: 0.5, most: 3 }));
    let endpoints = [
        Endpoint::Completions,
        Endpoint::Chat,
        Endpoint::Responses,
        Endpoint::Messages,
        Endpoint::Embeddings,
        Endpoint::Generate,
        Endpoint::LlamaCompletion,
    ];
    for endpoint in endpoints {
        let Ok(ask) = Ask::parse(endpoint, body, &Rule) else { continue };
        if ask.n * ask.prompts.len() > FEW {
            continue;
        }
        let choices = 0..ask.n * ask.prompts.len();
        let answer = |c: usize| AUTHOR.answer(&ask, &ask.prompts[c / ask.n], c % ask.n, FEW as u64);
        let answers: Vec<_> = choices.map(answer).collect();
        let out: Vec<Out> = answers
            .iter()
            .map(|answer| Out { tokens: answer.tokens.len() as u64, ..Out::default() })
            .collect();
        let (id, model) = ("fuzz".to_owned(), "fuzz".to_owned());
        let (fingerprint, tokenizer) = (Arc::from(""), Arc::clone(AUTHOR.tokenizer()));
        let echoed = Echoed::all(&ask, &Rule);
        let reply = Reply {
            id,
            created: 0,
            model,
            fingerprint,
            answers,
            echoed,
            ask,
            kv_transfer: None,
            tokenizer,
            width: 8,
        };
        drop(reply.body(&out));
        let mut writer = Writer::new(reply);
        let mut bytes = writer.begin();
        // The stream releases half of the answer, then ends early.
        let half: Vec<Out> = out.iter().map(|out| Out { tokens: out.tokens / 2, ..*out }).collect();
        writer.write(&half, &mut bytes);
        writer.end(&half, &mut bytes);
    }
}
