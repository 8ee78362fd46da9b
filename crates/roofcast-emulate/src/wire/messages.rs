//! Answers of Anthropic's `/v1/messages`: one message, in one piece or as events.
//!
//! Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming and `entrypoints/anthropic/serving.py` of
//! vLLM 0.32.

use super::{Out, Reply};
use serde_json::{Value, json};
use std::ops::Range;

impl Reply {
    fn stop_reason(&self) -> &'static str {
        match self.answers.first() {
            Some(answer) if answer.stop_reason.is_some() => "stop_sequence",
            Some(answer) if !answer.stops => "max_tokens",
            _ => "end_turn",
        }
    }

    fn anthropic_usage(&self, said: u64, cached: u64) -> Value {
        let prompt_tokens: u64 = self.ask.prompts.iter().map(|prompt| prompt.len() as u64).sum();
        json!({"input_tokens": prompt_tokens - cached.min(prompt_tokens), "output_tokens": said,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached})
    }

    fn anthropic_message(&self, content: Value, reason: Value, stop: Value, usage: Value) -> Value {
        json!({"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": stop, "usage": usage})
    }

    /// The body of the response in one piece.
    pub(super) fn anthropic(&self, out: &[Out]) -> Value {
        let Some(answer) = self.answers.first() else { return Value::Null };
        let cached = out.iter().map(|out| out.cached).sum();
        let usage = self.anthropic_usage(answer.tokens.len() as u64, cached);
        let content = json!([{"type": "text", "text": answer.text}]);
        self.anthropic_message(content, self.stop_reason().into(), json!(answer.stop_reason), usage)
    }

    /// Writes the start of a stream: two events.
    pub(super) fn begin_anthropic(&self, into: &mut Vec<u8>) {
        let empty = self.anthropic_message(json!([]), Value::Null, Value::Null, self.anthropic_usage(0, 0));
        event(into, "message_start", json!({ "message": empty }));
        event(
            into,
            "content_block_start",
            json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
        );
    }

    /// Writes the event of some tokens.
    pub(super) fn anthropic_delta(&self, said: Range<usize>, into: &mut Vec<u8>) {
        let Some(answer) = self.answers.first() else { return };
        let delta = json!({"type": "text_delta", "text": answer.span(said.start, said.end)});
        event(into, "content_block_delta", json!({"index": 0, "delta": delta}));
    }

    /// Writes the end of a stream: three events, or an error if the engine aborted the answer.
    pub(super) fn end_anthropic(&self, out: &[Out], into: &mut Vec<u8>) {
        let Some(answer) = self.answers.first() else { return };
        if answer.aborted {
            let error = json!({"type": "api_error", "message": "the engine gave the request up"});
            return event(into, "error", json!({ "error": error }));
        }
        let cached = out.iter().map(|out| out.cached).sum();
        let usage = self.anthropic_usage(answer.tokens.len() as u64, cached);
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": answer.stop_reason});
        event(into, "content_block_stop", json!({"index": 0}));
        event(into, "message_delta", json!({"delta": delta, "usage": usage}));
        event(into, "message_stop", json!({}));
    }
}

fn event(into: &mut Vec<u8>, name: &str, mut data: Value) {
    data["type"] = name.into();
    into.extend(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}
