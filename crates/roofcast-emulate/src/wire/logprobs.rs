//! Log probabilities, made up because no model is computed, with less likely alternatives.
//!
//! Source of the shapes: answers recorded from vLLM 0.32, and `_create_completion_logprobs` of its
//! `entrypoints/openai/completion/serving.py`. If a completion echoes its prompt, the prompt's tokens come first; the
//! very first token has no probability.

use super::super::ask::{Ask, Endpoint};
use super::super::tokenizer::Tokenizer;
use super::Reply;
use serde_json::{Value, json};

/// A prompt that is returned with log probabilities: the text of each token, and the number of characters of all.
#[derive(Debug, Clone)]
pub(crate) struct Echoed {
    pieces: Vec<String>,
    characters: usize,
}

impl Echoed {
    /// The echoed prompts of a request; empty if it asks for none.
    pub(crate) fn all(ask: &Ask, tokenizer: &dyn Tokenizer) -> Vec<Echoed> {
        let lists_prompts = ask.echo && ask.logprobs.is_some();
        let prompts = ask.prompts.iter().filter(|_| lists_prompts);
        prompts
            .map(|prompt| {
                let pieces = tokenizer.pieces(prompt);
                let characters = pieces.iter().map(|piece| piece.chars().count()).sum();
                Echoed { pieces, characters }
            })
            .collect()
    }
}

/// Columns of a completion's log probabilities, with one entry for each token.
#[derive(Default)]
struct Columns {
    offsets: Vec<usize>,
    logprobs: Vec<Value>,
    tokens: Vec<String>,
    top: Vec<Value>,
}

impl Columns {
    /// Adds a token whose text begins at character `offset`, with alternatives; a prompt's first token has no
    /// probability and no alternatives.
    fn push(&mut self, offset: usize, text: &str, likely: Option<(u32, usize)>) {
        self.offsets.push(offset);
        self.tokens.push(text.to_owned());
        self.logprobs.push(likely.map_or(Value::Null, |(token, _)| logprob(token, 0).into()));
        self.top.push(likely.map_or(Value::Null, |(token, beside)| {
            let rest = others(token, beside).map(|(text, p)| (text, p.into()));
            Value::Object([(text.to_owned(), logprob(token, 0).into())].into_iter().chain(rest).collect())
        }));
    }
}

impl Reply {
    /// Log probabilities of the tokens from `from` up to, not including, `to`.
    pub(super) fn logprobs(&self, choice: usize, from: usize, to: usize) -> Value {
        match self.ask.logprobs {
            None => Value::Null,
            Some(beside) if self.ask.endpoint == Endpoint::Chat => {
                self.chat_logprobs(choice, (from, to), beside)
            }
            Some(beside) => self.completion_logprobs(choice, (from, to), beside),
        }
    }

    fn chat_logprobs(&self, choice: usize, (from, to): (usize, usize), beside: usize) -> Value {
        let answer = &self.answers[choice];
        let entry = |token: &str, p: f64| json!({"token": token, "logprob": p, "bytes": token.as_bytes()});
        let token = |index: usize| {
            let text = answer.token_text(index);
            let p = logprob(answer.tokens[index], 0);
            let first = (beside > 0).then(|| entry(text, p));
            let rest = others(answer.tokens[index], beside).map(|(text, p)| entry(&text, p));
            let mut token = entry(text, p);
            token["top_logprobs"] = first.into_iter().chain(rest).collect();
            token
        };
        json!({ "content": (from..to).map(token).collect::<Vec<_>>() })
    }

    fn completion_logprobs(&self, choice: usize, (from, to): (usize, usize), beside: usize) -> Value {
        let answer = &self.answers[choice];
        let echoed = self.echoed.get(choice / self.ask.n);
        let mut columns = Columns::default();
        if let Some(echoed) = echoed.filter(|_| from == 0) {
            let mut offset = 0;
            for (index, (piece, token)) in echoed.pieces.iter().zip(self.prompt(choice)).enumerate() {
                columns.push(offset, piece, (index > 0).then_some((*token, beside)));
                offset += piece.chars().count();
            }
        }
        let before = echoed.map_or(0, |echoed| echoed.characters);
        for index in (from..to).filter(|_| !self.ask.prompt_only) {
            let offset = index.checked_sub(1).map_or(0, |before| answer.end(before)) as usize;
            columns.push(before + offset, answer.token_text(index), Some((answer.tokens[index], beside)));
        }
        json!({"text_offset": columns.offsets, "token_logprobs": columns.logprobs, "tokens": columns.tokens,
            "top_logprobs": columns.top})
    }
}

/// Texts and log probabilities of made-up alternatives to the token. There is one fewer than the client's parameter,
/// which counts the token itself, too.
fn others(token: u32, beside: usize) -> impl Iterator<Item = (String, f64)> {
    (1..beside).map(move |place| (format!(" alternative{place}"), logprob(token, place)))
}

/// A made-up log probability: of the token itself at `place` 0, else of the alternative at `place`.
fn logprob(token: u32, place: usize) -> f64 {
    let share = f64::from(token.wrapping_mul(0x9e37_79b9) >> 16) / 65_536.0;
    -0.05 - share - place as f64
}
