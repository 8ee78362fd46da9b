//! Answers of llama.cpp's `/completion`.
//!
//! Source: answers recorded from llama.cpp b11434, whose keys a test compares. Only generation settings that affect the
//! emulated answer are included.

use super::{Out, Reply, json as write};
use serde_json::{Value, json};
use std::ops::Range;

impl Reply {
    /// The final object of a choice; in a stream, without the text, which was sent already.
    fn llama_end(&self, choice: usize, out: &Out) -> Value {
        let ask = &self.ask;
        let answer = &self.answers[choice];
        let output_tokens = answer.tokens.len() as u64;
        let prompt_tokens = self.prompt(choice).len() as u64;
        let max_tokens = ask.max_tokens.map_or(-1, |most| most as i64);
        let (text, tokens) =
            if ask.stream { ("", Vec::new()) } else { (&*answer.text, answer.tokens.to_vec()) };
        let kind = match (answer.stops, &answer.stop_reason) {
            _ if answer.aborted => "none",
            (true, Some(_)) => "word",
            (true, None) => "eos",
            _ => "limit",
        };
        let settings = json!({"seed": ask.seed, "temperature": 1.0, "stop": ask.stop, "max_tokens": max_tokens,
            "n_predict": max_tokens, "ignore_eos": ask.ignore_eos, "stream": ask.stream});
        json!({
            "index": choice, "content": text, "tokens": tokens, "id_slot": out.slot.unwrap_or_default(), "stop": true, "model": self.model,
            "tokens_predicted": output_tokens, "tokens_evaluated": prompt_tokens, "generation_settings": settings,
            "prompt": self.prompt_text(choice), "has_new_line": answer.text.contains('\n'),
            "truncated": false, "stop_type": kind, "stopping_word": answer.stop_reason.as_deref().unwrap_or_default(),
            "tokens_cached": (prompt_tokens + output_tokens).saturating_sub(1), "timings": timings(prompt_tokens, output_tokens, out),
        })
    }

    /// The body of the response in one piece; a list for several prompts.
    pub(super) fn llama_completion(&self, out: &[Out]) -> Value {
        let mut all: Vec<Value> =
            out.iter().enumerate().map(|(choice, out)| self.llama_end(choice, out)).collect();
        if self.ask.listed { all.into() } else { all.pop().unwrap_or_default() }
    }

    /// Writes the chunk of some tokens.
    pub(super) fn llama_chunk(&self, choice: usize, said: Range<usize>, into: &mut Vec<u8>) {
        let answer = &self.answers[choice];
        let chunk = json!({"index": choice, "content": answer.span(said.start, said.end),
            "tokens": &answer.tokens[said.clone()], "stop": false, "id_slot": -1, "tokens_predicted": said.end,
            "tokens_evaluated": self.prompt(choice).len()});
        into.extend(b"data: ");
        write(into, &chunk);
        into.extend(b"\n\n");
    }

    /// Writes the end of a stream.
    pub(super) fn end_llama_completion(&self, out: &[Out], into: &mut Vec<u8>) {
        for (choice, out) in out.iter().enumerate() {
            into.extend(b"data: ");
            write(into, &self.llama_end(choice, out));
            into.extend(b"\n\n");
        }
    }
}

/// Milliseconds and rates of the prompt and the answer.
fn timings(asked: u64, said: u64, out: &Out) -> Value {
    let computed = asked.saturating_sub(out.cached);
    let rate = |tokens: u64, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    let each = |tokens: u64, seconds: f64| 1e3 * seconds / tokens.max(1) as f64;
    json!({
        "cache_n": out.cached, "prompt_n": computed, "prompt_ms": 1e3 * out.prefill,
        "prompt_per_token_ms": each(computed, out.prefill), "prompt_per_second": rate(computed, out.prefill),
        "predicted_n": said, "predicted_ms": 1e3 * out.decode, "predicted_per_token_ms": each(said, out.decode),
        "predicted_per_second": rate(said, out.decode),
    })
}
