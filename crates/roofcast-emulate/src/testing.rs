//! Entry point for fuzzers and the corpus test: the parser of requests, and the writers of their answers.
//!
//! Knows: results are dropped, because a fuzzer looks only for panics, hangs and excessive memory.

use crate::ask::{Ask, Endpoint};
use crate::completion::{Author, Calling, Lengths};
use crate::outlet::Out;
use crate::tokenizer::Rule;
use crate::wire::{Echoed, Reply, Writer};
use std::sync::{Arc, LazyLock};

/// Most choices and tokens of an answer that [`request`] writes, to keep it fast.
const FEW: usize = 8;

/// Parses `body` as a request to every endpoint and, if it is a valid request, writes the complete answer and the stream.
pub fn request(body: &[u8]) {
    static AUTHOR: LazyLock<Author> = LazyLock::new(|| {
        Author::by_rule(Lengths { stated: vec![3, 7], usual: Vec::new() }, Calling { share: 0.5, most: 3 })
    });
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
        let id = "fuzz".to_owned();
        let model = "fuzz".to_owned();
        let fingerprint = Arc::from("");
        let tokenizer = Arc::clone(AUTHOR.tokenizer());
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
        writer.write(&half, &[], &mut bytes);
        writer.end(&half, &mut bytes);
    }
}
