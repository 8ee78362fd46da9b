//! Answers of SGLang's `/generate`: text and token counts so far, with metadata of the request.
//!
//! Source: `_wait_one_response` and `_handle_batch_output` of `managers/tokenizer_manager.py` of SGLang 0.5.23. As
//! there, each event of a stream repeats the text from its beginning.

use super::{Out, Reply, json as write};
use serde_json::{Value, json};

impl Reply {
    /// The answer of a choice as it is after `tokens` tokens.
    fn generated_until(&self, choice: usize, tokens: usize, out: &Out) -> Value {
        let answer = &self.answers[choice];
        let last = tokens == answer.tokens.len();
        let reason = match (last, answer.stops, &answer.stop_reason) {
            (false, ..) => Value::Null,
            _ if answer.aborted => json!({"type": "abort", "message": "Aborted"}),
            (_, true, Some(stop)) => json!({"type": "stop", "matched": stop}),
            (_, true, None) => json!({"type": "stop", "matched": 0}),
            _ => json!({"type": "length", "length": tokens}),
        };
        let many = self.answers.len() > 1;
        let id = if many { format!("{}_{choice}", self.id) } else { self.id.clone() };
        let mut meta = json!({"id": id, "finish_reason": reason, "prompt_tokens": self.prompt(choice).len(),
            "weight_version": "default", "num_retractions": 0, "completion_tokens": tokens,
            "cached_tokens": out.cached});
        if last && out.prefill > 0.0 {
            meta["e2e_latency"] = (out.prefill + out.decode).into();
        }
        let text = tokens.checked_sub(1).map_or("", |last| answer.text_until(last));
        json!({"text": text, "output_ids": &answer.tokens[..tokens], "meta_info": meta})
    }

    /// The body of the response in one piece; a list for several prompts or choices.
    pub(super) fn generated(&self, out: &[Out]) -> Value {
        let whole = |(choice, out)| self.generated_until(choice, self.answers[choice].tokens.len(), out);
        let mut all: Vec<Value> = out.iter().enumerate().map(whole).collect();
        match all.pop() {
            Some(one) if all.is_empty() && !self.ask.listed => one,
            last => all.into_iter().chain(last).collect(),
        }
    }

    /// Writes the event of a step, after which the answer has `tokens` tokens.
    pub(super) fn generated_chunk(&self, choice: usize, tokens: usize, out: &Out, into: &mut Vec<u8>) {
        let mut chunk = self.generated_until(choice, tokens, out);
        if self.answers.len() > 1 || self.ask.listed {
            chunk["index"] = choice.into();
        }
        into.extend(b"data: ");
        write(into, &chunk);
        into.extend(b"\n\n");
    }
}
