//! Answers in vLLM's format: the events of a stream, and bodies in one piece.
//!
//! Knows: OpenAI's shapes with vLLM's keys, tested against recorded answers of vLLM 0.32; [`logprobs`] has the data of
//! single tokens; [`responses`], [`messages`], [`embeddings`], [`sglang`] and [`llama_cpp`] know the shapes of other
//! endpoints. Knows nothing about timing.

mod embeddings;
mod llama_cpp;
mod logprobs;
mod messages;
mod responses;
mod sglang;

use super::ask::{Ask, Endpoint};
use super::completion::{Completion, Part, PartKind};
use super::outlet::{Burst, Out};
use super::tokenizer::Tokenizer;
use super::tools::Choice;
pub(crate) use logprobs::Echoed;
use responses::Events;
use serde_json::{Value, json};
use std::sync::Arc;

/// A request with its generated answers, ready to be written.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) ask: Ask,
    /// Id of the answer for the client, as in `cmpl-…`.
    pub(crate) id: String,
    /// Time of creation, in seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) fingerprint: Arc<str>,
    /// Answers of all choices of all prompts, prompt by prompt.
    pub(crate) answers: Vec<Completion>,
    /// The prompts, if the client wants them back with log probabilities.
    pub(crate) echoed: Vec<Echoed>,
    /// Parameters by which another instance can continue the request.
    pub(crate) kv_transfer: Option<Value>,
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    /// Default length of an embedding: the model's width.
    pub(crate) width: u64,
}

/// Event that ends a stream.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// Beginning of the ids of a chat's tool calls.
const TOOL: &str = "chatcmpl-tool-";

impl Reply {
    fn object(&self, stream: bool) -> &'static str {
        match (self.ask.endpoint, stream) {
            (Endpoint::Chat, true) => "chat.completion.chunk",
            (Endpoint::Chat, false) => "chat.completion",
            _ => "text_completion",
        }
    }

    fn prompt(&self, choice: usize) -> &[u32] {
        &self.ask.prompts[choice / self.ask.n]
    }

    fn prompt_text(&self, choice: usize) -> String {
        self.tokenizer.text(self.prompt(choice))
    }

    /// The prompt before a choice's text, if it is echoed; as in vLLM, empty if token ids are returned.
    fn echo(&self, choice: usize) -> String {
        match self.ask.echo && !self.ask.return_token_ids {
            true => self.prompt_text(choice),
            false => String::new(),
        }
    }

    /// A choice's text, without an echoed prompt.
    fn text(&self, choice: usize) -> &str {
        if self.ask.prompt_only { "" } else { &self.answers[choice].text }
    }

    /// Finish reason of an answer. For a call of the tool that the client named, it is OpenAI's `stop` rather than
    /// `tool_calls`.
    fn reason(&self, choice: usize) -> &'static str {
        let named = self.ask.calls.as_ref().is_some_and(|calls| calls.choice == Choice::Named);
        match &self.answers[choice] {
            answer if answer.aborted => "abort",
            answer if !answer.stops => "length",
            answer if answer.calls() && !named => "tool_calls",
            _ => "stop",
        }
    }

    /// Id of a tool call, made from the choice and the call's number, after the prefix of the API.
    fn call_id(&self, prefix: &str, choice: usize, number: usize) -> String {
        let id = self.id.split_once(['-', '_']).map_or(self.id.as_str(), |(_, id)| id);
        format!("{prefix}{id}{choice:02x}{number:02x}")
    }

    /// Token counts: the prompts' tokens and `said` tokens of the answers.
    fn usage(&self, said: u64) -> Value {
        let prompt_tokens: u64 = self.ask.prompts.iter().map(|p| p.len() as u64).sum();
        json!({"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + said, "completion_tokens": said})
    }

    /// Cuts the answers that the engine aborted to their released tokens; called when no more tokens come.
    pub(crate) fn settle(&mut self, out: &[Out]) {
        for (answer, out) in self.answers.iter_mut().zip(out) {
            if (out.tokens as usize) < answer.tokens.len() {
                answer.cut(out.tokens as usize);
            }
        }
    }

    /// The body of the response in one piece.
    pub(crate) fn body(&self, out: &[Out]) -> Vec<u8> {
        let body = match self.ask.endpoint {
            Endpoint::Completions | Endpoint::Chat => self.openai(out),
            Endpoint::Responses => self.response(out),
            Endpoint::Messages => self.anthropic(out),
            Endpoint::Embeddings => self.embeddings(),
            Endpoint::Generate => self.generated(out),
            Endpoint::LlamaCompletion => self.llama_completion(out),
        };
        body.to_string().into_bytes()
    }

    fn openai(&self, out: &[Out]) -> Value {
        let choices: Vec<Value> = (0..self.answers.len()).map(|choice| self.choice(choice)).collect();
        let output_tokens = self.answers.iter().map(|a| a.tokens.len() as u64).sum();
        let mut usage = self.usage(output_tokens);
        let cached: u64 = out.iter().map(|o| o.cached).sum();
        usage["prompt_tokens_details"] =
            if cached > 0 { json!({ "cached_tokens": cached }) } else { Value::Null };
        usage["completion_tokens_details"] = Value::Null;
        let mut body = json!({
            "id": self.id, "object": self.object(false), "created": self.created, "model": self.model,
            "choices": choices, "service_tier": null, "system_fingerprint": &*self.fingerprint, "usage": usage,
        });
        if self.ask.endpoint == Endpoint::Chat {
            for key in ["prompt_logprobs", "prompt_token_ids", "prompt_text"] {
                body[key] = Value::Null;
            }
            if self.ask.return_token_ids {
                body["prompt_token_ids"] = json!(self.prompt(0));
            }
        }
        for key in ["kv_transfer_params", "ec_transfer_params", "metrics"] {
            body[key] = Value::Null;
        }
        if let Some(params) = &self.kv_transfer {
            body["kv_transfer_params"] = params.clone();
        }
        body
    }

    fn choice(&self, choice: usize) -> Value {
        let answer = &self.answers[choice];
        let ids = if self.ask.return_token_ids { json!(*answer.tokens) } else { Value::Null };
        let logprobs = self.logprobs(choice, 0, answer.tokens.len());
        let reason = self.reason(choice);
        let stop = &answer.stop_reason;
        if self.ask.endpoint == Endpoint::Chat {
            return json!({
                "index": choice, "message": self.message(choice),
                "logprobs": logprobs, "finish_reason": reason, "stop_reason": stop, "token_ids": ids,
                "routed_experts": null,
            });
        }
        let prompt = if self.ask.return_token_ids { json!(self.prompt(choice)) } else { Value::Null };
        json!({
            "index": choice, "text": self.echo(choice) + self.text(choice), "logprobs": logprobs, "finish_reason": reason,
            "stop_reason": stop, "token_ids": ids, "prompt_logprobs": null, "prompt_token_ids": prompt,
            "routed_experts": null,
        })
    }

    /// The message of a chat's choice: a text, or tool calls.
    fn message(&self, choice: usize) -> Value {
        let answer = &self.answers[choice];
        let text = if answer.calls() { "" } else { &answer.text };
        let mut message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": null,
            "audio": null, "function_call": null});
        if answer.calls() {
            let call = |part: Part| {
                let PartKind::Call(name) = part.kind else { return None };
                let arguments = answer.span(part.tokens.start, part.tokens.end);
                Some(json!({"id": self.call_id(TOOL, choice, part.number), "type": "function",
                    "function": {"name": name, "arguments": arguments}}))
            };
            message["tool_calls"] = answer.parts().filter_map(call).collect();
        }
        message["reasoning"] = Value::Null;
        message
    }

    /// The pieces of tool calls in the chunk of the tokens `from` to `to`, one for each call; a call's first piece has its
    /// id and name.
    fn call_pieces(&self, choice: usize, from: usize, to: usize) -> Value {
        let answer = &self.answers[choice];
        let mut pieces: Vec<Value> = Vec::new();
        let mut begun = from;
        for index in from..to {
            let (number, _) = answer.call_of(index);
            if index + 1 < to && answer.call_of(index + 1).0 == number {
                continue;
            }
            let arguments = answer.span(begun, index + 1);
            pieces.push(match answer.call_of(begun) {
                (number, Some(name)) => {
                    json!({"id": self.call_id(TOOL, choice, number), "type": "function", "index": number,
                        "function": {"name": name, "arguments": arguments}})
                }
                (number, None) => json!({"index": number, "function": {"arguments": arguments}}),
            });
            begun = index + 1;
        }
        pieces.into()
    }
}

/// Writer of a stream, with its progress.
#[derive(Debug)]
pub(crate) struct Writer {
    reply: Reply,
    /// Number of tokens written of each choice.
    written: Vec<usize>,
    /// Numbered events of a response.
    events: Events,
    /// Beginning that all chunks of the stream have in common.
    head: Vec<u8>,
    begun: bool,
    /// True if the chunks with the role, which begin a chat, are written.
    named: bool,
}

impl Writer {
    pub(crate) fn new(reply: Reply) -> Writer {
        let mut head = b"data: ".to_vec();
        let common = json!({"id": reply.id, "object": reply.object(true), "created": reply.created,
            "model": reply.model});
        head.extend(common.to_string().as_bytes());
        // The object's closing brace is removed, because the choices follow inside it.
        head.pop();
        head.extend(b",\"choices\":[");
        Writer {
            written: vec![0; reply.answers.len()],
            events: Events::default(),
            reply,
            head,
            begun: false,
            named: false,
        }
    }

    /// A buffer for the next write, which begins with the start of the stream if that is not written yet.
    pub(crate) fn begin(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        if !std::mem::replace(&mut self.begun, true) {
            match self.reply.ask.endpoint {
                Endpoint::Responses => self.events.begin(&self.reply, &mut bytes),
                Endpoint::Messages => self.reply.begin_anthropic(&mut bytes),
                _ => {}
            }
        }
        bytes
    }

    /// Writes the tokens that are released and not written yet: one event a step, of each choice in turn, as engines send
    /// them; `bursts` are the steps with several tokens, the others have one.
    pub(crate) fn write(&mut self, out: &[Out], bursts: &[Burst], into: &mut Vec<u8>) {
        let lengths = self.reply.answers.iter().map(|answer| answer.tokens.len());
        let until: Vec<usize> = out.iter().zip(lengths).map(|(o, n)| n.min(o.tokens as usize)).collect();
        let longest = until.iter().copied().max().unwrap_or(0);
        let shortest = self.written.iter().copied().min().unwrap_or(0);
        if longest > 0 {
            self.roles(into);
        }
        for index in shortest..longest {
            for (choice, until) in until.iter().enumerate() {
                if self.written[choice] == index && index < *until {
                    let burst = bursts.iter().find(|burst| burst.choice == choice && burst.from == index);
                    let to = burst.map_or(index + 1, |burst| burst.to.min(*until));
                    self.chunk(choice, to, &out[choice], into);
                }
            }
        }
    }

    /// Writes the end of the stream, after the last token or after an abort.
    pub(crate) fn end(&mut self, out: &[Out], into: &mut Vec<u8>) {
        let cut = (0..out.len()).filter(|c| self.written[*c] < self.reply.answers[*c].tokens.len());
        let cut: Vec<usize> = cut.collect();
        self.reply.settle(out);
        self.roles(into);
        match self.reply.ask.endpoint {
            Endpoint::Responses => return self.events.end(&self.reply, out, into),
            Endpoint::Messages => return self.reply.end_anthropic(out, into),
            Endpoint::LlamaCompletion => return self.reply.end_llama_completion(out, into),
            Endpoint::Completions | Endpoint::Chat => cut.into_iter().for_each(|c| self.aborted(c, into)),
            Endpoint::Generate | Endpoint::Embeddings => {}
        }
        if self.reply.ask.include_usage {
            into.extend(&self.head);
            into.extend(b"],\"usage\":");
            let output_tokens = self.written.iter().map(|n| *n as u64).sum();
            json(into, &self.reply.usage(output_tokens));
            self.fingerprint(into);
            into.extend(b"}\n\n");
        }
        into.extend(DONE);
    }

    /// Writes the last chunk of a choice that the engine aborted.
    fn aborted(&self, choice: usize, into: &mut Vec<u8>) {
        let chat = self.reply.ask.endpoint == Endpoint::Chat;
        let empty = if chat { json!({"delta": {"content": ""}}) } else { json!({"text": ""}) };
        let mut chunk =
            json!({"index": choice, "logprobs": null, "finish_reason": "abort", "stop_reason": null});
        if let (Some(chunk), Some(empty)) = (chunk.as_object_mut(), empty.as_object()) {
            chunk.extend(empty.clone());
        }
        into.extend(&self.head);
        json(into, &chunk);
        into.extend(b"]}\n\n");
    }

    fn fingerprint(&self, into: &mut Vec<u8>) {
        into.extend(b",\"system_fingerprint\":");
        json(into, &*self.reply.fingerprint);
    }

    /// Writes the first chunk of each choice of a chat.
    fn roles(&mut self, into: &mut Vec<u8>) {
        if self.reply.ask.endpoint == Endpoint::Chat && !std::mem::replace(&mut self.named, true) {
            (0..self.reply.answers.len()).for_each(|choice| self.role(choice, into));
        }
    }

    /// Writes the first chunk of a choice of a chat, which has the role.
    fn role(&self, choice: usize, into: &mut Vec<u8>) {
        into.extend(&self.head);
        into.extend(b"{\"index\":");
        json(into, &choice);
        into.extend(br#","delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]"#);
        self.running_usage(0, into);
        let prompt = self.reply.ask.return_token_ids.then(|| self.reply.prompt(choice));
        into.extend(b",\"prompt_token_ids\":");
        json(into, &prompt);
        into.extend(b",\"prompt_text\":null}\n\n");
    }

    fn running_usage(&self, said: u64, into: &mut Vec<u8>) {
        if self.reply.ask.continuous_usage {
            let mut usage = self.reply.usage(said);
            usage["completion_tokens_details"] = Value::Null;
            into.extend(b",\"usage\":");
            json(into, &usage);
        }
    }

    /// Writes the tokens of a choice up to, not including, `to`, in the format of the endpoint.
    fn chunk(&mut self, choice: usize, to: usize, out: &Out, into: &mut Vec<u8>) {
        let from = self.written[choice];
        match self.reply.ask.endpoint {
            Endpoint::Completions | Endpoint::Chat => return self.openai(choice, to, into),
            Endpoint::Responses => self.events.tokens(&self.reply, from..to, into),
            Endpoint::Messages => self.reply.anthropic_delta(from..to, into),
            // Embeddings are never streamed.
            Endpoint::Embeddings => {}
            Endpoint::Generate => self.reply.generated_chunk(choice, to, out, into),
            Endpoint::LlamaCompletion => self.reply.llama_chunk(choice, from..to, into),
        }
        self.written[choice] = to;
    }

    /// Writes the tokens up to, not including, `to` in OpenAI's format.
    fn openai(&mut self, choice: usize, to: usize, into: &mut Vec<u8>) {
        let reply = &self.reply;
        let index = self.written[choice];
        let answer = &reply.answers[choice];
        let chat = reply.ask.endpoint == Endpoint::Chat;
        let last = to == answer.tokens.len();
        into.extend(&self.head);
        into.extend(b"{\"index\":");
        json(into, &choice);
        into.extend(match (chat, answer.calls()) {
            (true, true) => &b",\"delta\":{\"tool_calls\":"[..],
            (true, false) => b",\"delta\":{\"content\":",
            (false, _) => b",\"text\":",
        });
        if answer.calls() {
            json(into, &reply.call_pieces(choice, index, to));
        } else if index == 0 && reply.ask.echo {
            let text = if reply.ask.prompt_only { "" } else { answer.span(0, to) };
            json(into, &(reply.echo(choice) + text));
        } else {
            json(into, answer.span(index, to));
        }
        into.extend(if chat { &b"},\"logprobs\":"[..] } else { b",\"logprobs\":" });
        json(into, &reply.logprobs(choice, index, to));
        into.extend(b",\"finish_reason\":");
        json(into, &last.then(|| reply.reason(choice)));
        if last || !chat {
            into.extend(b",\"stop_reason\":");
            json(into, &answer.stop_reason.as_ref().filter(|_| last));
        }
        let ids = reply.ask.return_token_ids;
        if !chat {
            into.extend(b",\"prompt_token_ids\":");
            // As in vLLM, the first chunk has the prompt, as text or as token ids.
            let prompt = (ids || reply.ask.echo) && index == 0;
            json(into, &prompt.then(|| reply.prompt(choice)));
        }
        into.extend(b",\"token_ids\":");
        json(into, &ids.then(|| &answer.tokens[index..to]));
        into.extend(b"}]");
        self.written[choice] = to;
        self.running_usage(self.written[choice] as u64, into);
        let whole = self.written.iter().zip(&self.reply.answers).all(|(n, a)| *n == a.tokens.len());
        if whole && !self.reply.ask.include_usage {
            self.fingerprint(into);
        }
        into.extend(b"}\n\n");
    }
}

/// Appends a value as JSON; this cannot fail for the types used here.
fn json<T: serde::Serialize + ?Sized>(into: &mut Vec<u8>, value: &T) {
    _ = serde_json::to_writer(into, value);
}
