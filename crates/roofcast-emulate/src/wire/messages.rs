//! Answers of Anthropic's `/v1/messages`: one message of content blocks, in one piece or as events.
//!
//! Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming and `entrypoints/anthropic/serving.py` of
//! vLLM 0.32.

use super::{Out, Part, PartKind, Reply};
use serde_json::{Value, json};
use std::ops::Range;

impl Reply {
    fn stop_reason(&self) -> &'static str {
        match self.answers.first() {
            Some(answer) if answer.stop_reason.is_some() => "stop_sequence",
            Some(answer) if !answer.stops => "max_tokens",
            Some(answer) if answer.calls() => "tool_use",
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

    /// A content block with `text`. A call that was cut off has arguments that are no JSON, and is returned without them.
    fn anthropic_block(&self, part: &Part, text: &str) -> Value {
        match part.kind {
            PartKind::Thinking => json!({"type": "thinking", "thinking": text, "signature": ""}),
            PartKind::Text => json!({"type": "text", "text": text}),
            PartKind::Call(name) => {
                let input = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": self.call_id("toolu_", 0, part.number), "name": name, "input": input})
            }
        }
    }

    /// The body of the response in one piece.
    pub(super) fn anthropic(&self, out: &[Out]) -> Value {
        let Some(answer) = self.answers.first() else { return Value::Null };
        let cached = out.iter().map(|out| out.cached).sum();
        let usage = self.anthropic_usage(answer.tokens.len() as u64, cached);
        let block = |part: Part| {
            let mut block = self.anthropic_block(&part, answer.span(part.tokens.start, part.tokens.end));
            if part.kind == PartKind::Thinking {
                block["signature"] = self.id.as_str().into();
            }
            block
        };
        let content = answer.parts().map(block).collect();
        self.anthropic_message(content, self.stop_reason().into(), json!(answer.stop_reason), usage)
    }

    /// Writes the start of a stream.
    pub(super) fn begin_anthropic(&self, into: &mut Vec<u8>) {
        let empty = self.anthropic_message(json!([]), Value::Null, Value::Null, self.anthropic_usage(0, 0));
        event(into, "message_start", json!({ "message": empty }));
    }

    /// Writes the events of some tokens: a delta for each block that they belong to, and the starts and ends of blocks.
    pub(super) fn anthropic_delta(&self, said: Range<usize>, into: &mut Vec<u8>) {
        let Some(answer) = self.answers.first() else { return };
        for part in answer.parts() {
            let [from, to] = [part.tokens.start.max(said.start), part.tokens.end.min(said.end)];
            if from >= to {
                continue;
            }
            if from == part.tokens.start {
                let block = self.anthropic_block(&part, "");
                event(into, "content_block_start", json!({"index": part.number, "content_block": block}));
            }
            let text = answer.span(from, to);
            let delta = match part.kind {
                PartKind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
                PartKind::Text => json!({"type": "text_delta", "text": text}),
                PartKind::Call(_) => json!({"type": "input_json_delta", "partial_json": text}),
            };
            event(into, "content_block_delta", json!({"index": part.number, "delta": delta}));
            if to == part.tokens.end {
                self.end_block(&part, into);
            }
        }
    }

    /// Writes the end of a block; thinking has a signature.
    fn end_block(&self, part: &Part, into: &mut Vec<u8>) {
        if part.kind == PartKind::Thinking {
            let delta = json!({"type": "signature_delta", "signature": self.id});
            event(into, "content_block_delta", json!({"index": part.number, "delta": delta}));
        }
        event(into, "content_block_stop", json!({"index": part.number}));
    }

    /// Writes the end of a stream: two events, or an error if the engine aborted the answer.
    pub(super) fn end_anthropic(&self, out: &[Out], into: &mut Vec<u8>) {
        let Some(answer) = self.answers.first() else { return };
        if answer.aborted {
            let error = json!({"type": "api_error", "message": "the engine gave the request up"});
            return event(into, "error", json!({ "error": error }));
        }
        let cached = out.iter().map(|out| out.cached).sum();
        let usage = self.anthropic_usage(answer.tokens.len() as u64, cached);
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": answer.stop_reason});
        event(into, "message_delta", json!({"delta": delta, "usage": usage}));
        event(into, "message_stop", json!({}));
    }
}

fn event(into: &mut Vec<u8>, name: &str, mut data: Value) {
    data["type"] = name.into();
    into.extend(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}
