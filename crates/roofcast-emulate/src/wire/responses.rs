//! Answers of `/v1/responses`: a message or calls of functions, in one piece or as OpenAI's events.
//!
//! Source: `entrypoints/openai/responses/protocol.py` and `streaming_events.py` of vLLM 0.32.

use super::{Out, Part, PartKind, Reply};
use serde_json::{Value, json};
use std::ops::Range;

impl Reply {
    fn content(&self, text: &str) -> Value {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": null})
    }

    /// Id of the output item that a part is.
    fn item_id(&self, part: &Part) -> String {
        match part.kind {
            PartKind::Call(_) => self.call_id("fc_", 0, part.number),
            _ => format!("msg_{}", self.id.trim_start_matches("resp_")),
        }
    }

    /// The output item that a part is; without `text`, at its start.
    fn item(&self, part: &Part, text: Option<&str>) -> Value {
        let status = if text.is_some() { "completed" } else { "in_progress" };
        let id = self.item_id(part);
        match part.kind {
            PartKind::Call(name) => json!({"id": id, "type": "function_call", "status": status, "name": name,
                "call_id": self.call_id("call_", 0, part.number), "arguments": text.unwrap_or_default()}),
            _ => {
                let content: Vec<Value> = text.map(|text| self.content(text)).into_iter().collect();
                json!({"id": id, "type": "message", "role": "assistant", "status": status, "content": content})
            }
        }
    }

    /// The response object, in progress or final.
    fn shell(&self, status: &str, output: Vec<Value>, usage: Value) -> Value {
        let max_output_tokens = self.ask.max_tokens;
        let incomplete =
            if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        let mut shell = json!({
            "id": self.id, "created_at": self.created, "incomplete_details": incomplete, "instructions": null,
            "metadata": null, "model": self.model, "object": "response", "output": output,
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "background": false, "max_output_tokens": max_output_tokens, "max_tool_calls": null, "previous_response_id": null,
            "prompt": null, "reasoning": null, "service_tier": "auto", "status": status, "text": null,
            "top_logprobs": null, "truncation": "disabled", "usage": usage, "user": self.ask.user, "error": null,
        });
        for (key, value) in &self.ask.repeated {
            shell[key] = value.clone();
        }
        shell
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
        let output_tokens = answer.map_or(0, |answer| answer.tokens.len() as u64);
        let item = |part: Part| {
            let text = answer.map(|answer| answer.span(part.tokens.start, part.tokens.end));
            self.item(&part, Some(text.unwrap_or_default()))
        };
        let output = answer.into_iter().flat_map(|answer| answer.parts()).map(item).collect();
        let input_tokens: u64 = self.ask.prompts.iter().map(|prompt| prompt.len() as u64).sum();
        let cached: u64 = out.iter().map(|out| out.cached).sum();
        let usage = json!({"input_tokens": input_tokens, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output_tokens, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input_tokens + output_tokens});
        self.shell(self.status(), output, usage)
    }
}

/// Writer of a response's events, which are numbered.
#[derive(Debug, Default)]
pub(super) struct Events {
    written: usize,
}

impl Events {
    fn event(&mut self, into: &mut Vec<u8>, name: &str, mut data: Value) {
        data["type"] = name.into();
        data["sequence_number"] = self.written.into();
        into.extend(format!("event: {name}\ndata: {data}\n\n").as_bytes());
        self.written += 1;
    }

    /// Writes the start of a stream: two events.
    pub(super) fn begin(&mut self, reply: &Reply, into: &mut Vec<u8>) {
        let shell = reply.shell("in_progress", Vec::new(), Value::Null);
        self.event(into, "response.created", json!({ "response": shell }));
        self.event(into, "response.in_progress", json!({ "response": shell }));
    }

    /// Writes the events of some tokens: a delta for each item that they belong to, and the starts and ends of items.
    pub(super) fn tokens(&mut self, reply: &Reply, said: Range<usize>, into: &mut Vec<u8>) {
        let Some(answer) = reply.answers.first() else { return };
        for part in answer.parts() {
            let [from, to] = [part.tokens.start.max(said.start), part.tokens.end.min(said.end)];
            if from >= to {
                continue;
            }
            if from == part.tokens.start {
                self.begin_item(reply, &part, into);
            }
            let id = reply.item_id(&part);
            let delta = answer.span(from, to);
            match part.kind {
                PartKind::Call(_) => {
                    let data = json!({"item_id": id, "output_index": part.number, "delta": delta});
                    self.event(into, "response.function_call_arguments.delta", data);
                }
                _ => {
                    let data = json!({"item_id": id, "output_index": part.number, "content_index": 0,
                        "delta": delta, "logprobs": []});
                    self.event(into, "response.output_text.delta", data);
                }
            }
            if to == part.tokens.end {
                self.end_item(reply, &part, answer.span(part.tokens.start, to), into);
            }
        }
    }

    fn begin_item(&mut self, reply: &Reply, part: &Part, into: &mut Vec<u8>) {
        let index = part.number;
        let item = json!({"output_index": index, "item": reply.item(part, None)});
        self.event(into, "response.output_item.added", item);
        if !matches!(part.kind, PartKind::Call(_)) {
            let content = json!({"item_id": reply.item_id(part), "output_index": index, "content_index": 0,
                "part": reply.content("")});
            self.event(into, "response.content_part.added", content);
        }
    }

    fn end_item(&mut self, reply: &Reply, part: &Part, text: &str, into: &mut Vec<u8>) {
        let id = reply.item_id(part);
        let index = part.number;
        match part.kind {
            PartKind::Call(name) => {
                let done = json!({"item_id": id, "output_index": index, "name": name, "arguments": text});
                self.event(into, "response.function_call_arguments.done", done);
            }
            _ => {
                let done = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text, "logprobs": []});
                self.event(into, "response.output_text.done", done);
                let content = json!({"item_id": id, "output_index": index, "content_index": 0, "part": reply.content(text)});
                self.event(into, "response.content_part.done", content);
            }
        }
        let item = json!({"output_index": index, "item": reply.item(part, Some(text))});
        self.event(into, "response.output_item.done", item);
    }

    /// Writes the last event. As in vLLM, it is `response.completed` even if the response ended at its token limit
    /// (`responses_stream_generator` of `entrypoints/openai/responses/serving.py`).
    pub(super) fn end(&mut self, reply: &Reply, out: &[Out], into: &mut Vec<u8>) {
        self.event(into, "response.completed", json!({ "response": reply.response(out) }));
    }
}
