//! Answers of `/v1/responses`: one message, in one piece or as OpenAI's events.
//!
//! Source: `entrypoints/openai/responses/protocol.py` and `streaming_events.py` of vLLM 0.32.

use super::{Out, Reply};
use serde_json::{Value, json};
use std::ops::Range;

impl Reply {
    fn message_id(&self) -> String {
        format!("msg_{}", self.id.trim_start_matches("resp_"))
    }

    fn part(&self, text: &str) -> Value {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": null})
    }

    fn item(&self, status: &str, content: Vec<Value>) -> Value {
        json!({"id": self.message_id(), "type": "message", "role": "assistant", "status": status, "content": content})
    }

    /// The response object, in progress or final.
    fn shell(&self, status: &str, output: Vec<Value>, usage: Value) -> Value {
        let max_output_tokens = self.ask.max_tokens;
        let incomplete =
            if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        json!({
            "id": self.id, "created_at": self.created, "incomplete_details": incomplete, "instructions": null,
            "metadata": null, "model": self.model, "object": "response", "output": output,
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "background": false, "max_output_tokens": max_output_tokens, "max_tool_calls": null, "previous_response_id": null,
            "prompt": null, "reasoning": null, "service_tier": "auto", "status": status, "text": null,
            "top_logprobs": null, "truncation": "disabled", "usage": usage, "user": self.ask.user, "error": null,
        })
    }

    fn status(&self) -> &'static str {
        match self.answers.first() {
            Some(answer) if answer.aborted => "cancelled",
            Some(answer) if !answer.stops => "incomplete",
            _ => "completed",
        }
    }

    /// The body of the response in one piece.
    pub(super) fn response(&self, out: &[Out]) -> Value {
        let answer = self.answers.first();
        let (text, said) =
            answer.map_or(("", 0), |answer| (answer.text.as_str(), answer.tokens.len() as u64));
        let input_tokens: u64 = self.ask.prompts.iter().map(|prompt| prompt.len() as u64).sum();
        let cached: u64 = out.iter().map(|out| out.cached).sum();
        let usage = json!({"input_tokens": input_tokens, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": said, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input_tokens + said});
        self.shell(self.status(), vec![self.item("completed", vec![self.part(text)])], usage)
    }

    /// Writes the start of a stream: four events.
    pub(super) fn begin_response(&self, into: &mut Vec<u8>) {
        let shell = self.shell("in_progress", Vec::new(), Value::Null);
        event(into, "response.created", 0, json!({ "response": shell }));
        event(into, "response.in_progress", 1, json!({ "response": shell }));
        let item = self.item("in_progress", Vec::new());
        event(into, "response.output_item.added", 2, json!({"output_index": 0, "item": item}));
        let part = json!({"item_id": self.message_id(), "output_index": 0, "content_index": 0, "part": self.part("")});
        event(into, "response.content_part.added", 3, part);
    }

    /// Writes the event of some tokens, the `number`-th with tokens.
    pub(super) fn response_delta(&self, said: Range<usize>, number: usize, into: &mut Vec<u8>) {
        let Some(answer) = self.answers.first() else { return };
        let delta = json!({"item_id": self.message_id(), "output_index": 0, "content_index": 0,
            "delta": answer.span(said.start, said.end), "logprobs": []});
        event(into, "response.output_text.delta", 3 + number, delta);
    }

    /// Writes the end of a stream: four events. As in vLLM, the last is `response.completed` even if the response ended
    /// at its token limit (`responses_stream_generator` of `entrypoints/openai/responses/serving.py`).
    pub(super) fn end_response(&self, out: &[Out], deltas: usize, into: &mut Vec<u8>) {
        let Some(answer) = self.answers.first() else { return };
        let next = 4 + deltas;
        let id = self.message_id();
        let text = &answer.text;
        let done =
            json!({"item_id": id, "output_index": 0, "content_index": 0, "text": text, "logprobs": []});
        event(into, "response.output_text.done", next, done);
        let part = json!({"item_id": id, "output_index": 0, "content_index": 0, "part": self.part(text)});
        event(into, "response.content_part.done", next + 1, part);
        let item = self.item("completed", vec![self.part(text)]);
        event(into, "response.output_item.done", next + 2, json!({"output_index": 0, "item": item}));
        event(into, "response.completed", next + 3, json!({ "response": self.response(out) }));
    }
}

fn event(into: &mut Vec<u8>, name: &str, number: usize, mut data: Value) {
    data["type"] = name.into();
    data["sequence_number"] = number.into();
    into.extend(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}
