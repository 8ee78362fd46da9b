//! Conversion of a request to an engine's work, and of the results to an answer.
//!
//! Knows: the order of checks, the engine's input, and the head of a response. Knows nothing about the form of bodies.

use super::super::adapters::Adapter;
use super::super::ask::{Ask, Endpoint};
use super::super::completion::Completion;
use super::super::faults::Fault;
use super::super::group::RoutingKey;
use super::super::metrics::Facts;
use super::super::outlet::{Failure, Outlet};
use super::super::refusal::Refusal;
use super::super::replica::{EngineHandle, Job};
use super::super::response::{content_type, whole};
use super::super::stream::{Counted, InFlight, Stream};
use super::super::wire::{Echoed, Reply, Writer};
use super::{Answered, Dialect, REQUEST_ID, Service, now};
use bytes::Bytes;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Response, StatusCode};
use roofcast::clock::Ticks;
use roofcast::engine::online::OnlineRequest;
use roofcast_http::{self as http, server};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Size in bytes from which a body is parsed on a separate thread, so that it delays no other request.
const LONG: usize = 128 << 10;
/// Most tokens of a completion if the client gives no bound: OpenAI's default.
const COMPLETION_TOKENS: u64 = 16;
/// Header of a request that asks for the load in the response's head, and of the response that has it.
const LOAD_FORMAT: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
const LOAD: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// An accepted request, with its engine, its time of arrival and its model's name.
struct Admitted {
    ask: Ask,
    model: String,
    adapter: Option<Arc<Adapter>>,
    engine: Arc<EngineHandle>,
    key: RoutingKey,
    at: Ticks,
    /// Most tokens of the answer to each prompt.
    most: Vec<u64>,
    /// Number of the request's first choice; further choices have the next numbers.
    first: u64,
}

impl Service {
    /// Serves one request to a generating endpoint.
    pub(super) async fn complete(&self, endpoint: Endpoint, headers: &HeaderMap, body: Incoming) -> Answered {
        let counted = Counted::new(&self.load);
        let body = self.read(headers, body).await?;
        let fault = if self.settings.allow_faults { self.faults.next(headers)? } else { None };
        if let Some(refusal) = fault.as_ref().and_then(Fault::refusal) {
            return Err(refusal);
        }
        let at = self.group.pace().map_or(Ticks::ZERO, |pace| pace.now());
        let tokenizer = Arc::clone(self.author.tokenizer());
        let parse = move || Ask::parse(endpoint, &body, &*tokenizer);
        let ask = if http::length(headers).is_none_or(|length| length > LONG) {
            tokio::task::spawn_blocking(parse).await.map_err(|_| Refusal::dead())??
        } else {
            parse()?
        };
        let admitted = self.admit(ask, headers, at)?;
        let outlet = Arc::new(Outlet::new(admitted.ask.prompts.len() * admitted.ask.n));
        let engine = Arc::clone(&admitted.engine);
        let in_flight = self.in_flight(&admitted, &outlet, counted);
        let answers = self.begin(&admitted, &outlet);
        let reply = self.reply(admitted, headers, answers);
        if let Some(fault) = fault.as_ref().filter(|fault| fault.stall_seconds > 0.0) {
            tokio::time::sleep(Duration::from_secs_f64(fault.stall_seconds)).await;
        }
        let cut = fault.and_then(|fault| fault.cut_after_tokens);
        if cut.is_some() && !reply.ask.stream {
            let mut response = whole(StatusCode::OK, "", Bytes::new());
            response.extensions_mut().insert(server::Cut);
            return Ok(response);
        }
        if reply.ask.stream {
            let stream = Stream::new(in_flight, Writer::new(reply), cut);
            let mut response = Response::new(Either::Right(stream));
            content_type(&mut response, "text/event-stream; charset=utf-8");
            return Ok(response);
        }
        self.whole_answer(reply, in_flight, &engine, headers).await
    }

    /// The response in one piece, after all tokens are released.
    async fn whole_answer(
        &self,
        mut reply: Reply,
        mut in_flight: InFlight,
        engine: &EngineHandle,
        headers: &HeaderMap,
    ) -> Answered {
        let out = in_flight.outlet.whole().await;
        in_flight.over = true;
        let out = out.map_err(|failure| match failure {
            Failure::Aborted => Refusal::dead(),
            Failure::Overflow => Refusal::overflow(),
        })?;
        reply.settle(&out);
        let mut response = whole(StatusCode::OK, "application/json", reply.body(&out).into());
        if let Some(load) = headers.get(LOAD_FORMAT).and_then(|format| self.load(engine, format)) {
            response.headers_mut().insert(LOAD, load);
        }
        Ok(response)
    }

    /// Checks a request, and chooses its engine.
    fn admit(&self, mut ask: Ask, headers: &HeaderMap, at: Ticks) -> Result<Admitted, Refusal> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<i64>().ok());
        ask.priority = number("x-vllm-priority").unwrap_or(ask.priority);
        let model = self.model(ask.model.as_deref())?;
        let adapter = self.adapters.get(&model);
        let bounds = self.bounds(&ask)?;
        let first = self.group.number((ask.prompts.len() * ask.n) as u64);
        let rank = number("x-data-parallel-rank").map(|rank| self.rank(rank)).transpose()?.flatten();
        let session = text("x-session-id").or(ask.user.as_deref());
        let prompt = ask.prompts.first().map_or(&[][..], |prompt| prompt);
        let key = RoutingKey::new(prompt, session, first, rank);
        let engine = self.group.choose(key, at);
        let engine = engine.ok_or_else(|| if self.is_dead() { Refusal::dead() } else { Refusal::busy() })?;
        let here = [engine.in_flight(), engine.queued_tokens()];
        // The order of the checks follows vLLM's `check_admission`.
        let full = here.iter().zip(&self.settings.max_queued).position(|(here, bounds)| here >= bounds);
        if let Some(reason) = full {
            engine.metrics().rejected(reason);
            return Err(Refusal::busy());
        }
        Ok(Admitted { ask, model, adapter, engine, key, at, most: bounds, first })
    }

    /// The engine of a data-parallel rank; vLLM refuses an unknown rank, other servers ignore ranks.
    fn rank(&self, rank: i64) -> Result<Option<usize>, Refusal> {
        let count = self.group.engines().len();
        let rank_index = usize::try_from(rank).ok().filter(|rank| *rank < count);
        if rank_index.is_none() && self.settings.dialect == Dialect::Vllm {
            return Err(Refusal::bad(format!("data_parallel_rank {rank} is out of range [0, {count}).")));
        }
        Ok(rank_index)
    }

    fn in_flight(&self, admitted: &Admitted, outlet: &Arc<Outlet>, counted: Counted) -> InFlight {
        let choices = (admitted.ask.prompts.len() * admitted.ask.n) as u64;
        InFlight {
            engines: self.group.engines_of(&admitted.engine),
            outlet: Arc::clone(outlet),
            numbers: (admitted.first..admitted.first + choices).collect(),
            over: false,
            _counted: counted,
        }
    }

    /// Sends all choices to the engine; returns their generated answers.
    fn begin(&self, admitted: &Admitted, outlet: &Arc<Outlet>) -> Vec<Completion> {
        let Admitted { ask, engine, at, .. } = admitted;
        let choices = ask.prompts.len() * ask.n;
        let mut answers = Vec::with_capacity(choices);
        for choice in 0..choices {
            let index = choice / ask.n;
            let prompt = &ask.prompts[index];
            let bound = admitted.most[index];
            let answer = self.author.answer(ask, prompt, choice % ask.n, bound);
            let facts = Facts {
                max_tokens: bound,
                stops: answer.stops,
                streams: ask.stream,
                choices: ((choice + 1) % ask.n == 0).then_some(ask.n as u64),
            };
            let tokens = prompt.len() as u64;
            let comes = ask.kv_transfer.do_remote_prefill;
            let request = OnlineRequest {
                number: admitted.first + choice as u64,
                at: if comes { *at + self.travel(tokens) } else { *at },
                prompt: Arc::clone(prompt),
                output: Arc::clone(&answer.tokens),
                max_tokens: bound,
                ignore_eos: ask.ignore_eos,
                priority: ask.priority,
                transferred: if comes { tokens } else { 0 },
                adapter: admitted.adapter.as_ref().map_or(0, |adapter| adapter.number),
                // Further choices of a prompt get any slot.
                id_slot: ask.id_slot.filter(|_| choice % ask.n == 0),
            };
            answers.push(answer);
            let adapter = admitted.adapter.clone();
            let outlet = Arc::clone(outlet);
            let job = Job { asked: request, since: *at, outlet, choice, facts, adapter, onward: None };
            self.group.send(engine, job, admitted.key);
        }
        answers
    }

    /// Transfer time of a KV cache of `tokens` tokens from another instance.
    fn travel(&self, tokens: u64) -> Ticks {
        self.settings.link.as_ref().map_or(Ticks::ZERO, |way| way.time(tokens) + way.latency)
    }

    fn reply(&self, admitted: Admitted, headers: &HeaderMap, answers: Vec<Completion>) -> Reply {
        let Admitted { ask, model, first, .. } = admitted;
        let given = headers.get(REQUEST_ID).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let mixed = (first ^ self.started << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = given.or(ask.request_id.clone()).unwrap_or_else(|| format!("{mixed:016x}"));
        let kv_transfer = ask.kv_transfer.do_remote_decode.then(|| self.handed_over(&id, &ask));
        let id = match ask.endpoint {
            Endpoint::Chat => format!("chatcmpl-{id}"),
            Endpoint::Completions => format!("cmpl-{id}"),
            Endpoint::Responses => format!("resp_{id}"),
            Endpoint::Messages => format!("msg_{id}"),
            Endpoint::Embeddings => format!("embd-{id}"),
            Endpoint::Generate | Endpoint::LlamaCompletion => id,
        };
        let fingerprint = Arc::clone(&self.fingerprint);
        let tokenizer = Arc::clone(self.author.tokenizer());
        let echoed = Echoed::all(&ask, &*tokenizer);
        let width = self.settings.hidden;
        Reply { id, created: now(), model, fingerprint, answers, echoed, ask, kv_transfer, tokenizer, width }
    }

    /// Parameters that a decode instance needs to fetch a prompt's KV cache (`request_finished` of vLLM 0.32's
    /// `distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py`). The engine's blocks have no ids, so the
    /// stated ids count from 1.
    fn handed_over(&self, id: &str, ask: &Ask) -> Value {
        let tokens = ask.prompts.first().map_or(0, |prompt| prompt.len() as u64);
        let size = self.fixed().map_or(16, |fixed| fixed.block_size).max(1);
        let blocks: Vec<u64> = (1..=tokens.div_ceil(size)).collect();
        json!({"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [blocks],
            "remote_engine_id": &*self.fingerprint, "remote_request_id": id, "remote_host": "127.0.0.1",
            "remote_port": 5600, "tp_size": self.settings.tp, "dcp_size": 1, "pp_size": 1,
            "remote_num_tokens": tokens})
    }

    /// Computes the most tokens of the answer to each prompt.
    fn bounds(&self, ask: &Ask) -> Result<Vec<u64>, Refusal> {
        let longest = self.max_model_len;
        let bound = |prompt: &Arc<[u32]>| {
            let input = prompt.len() as u64;
            let room = longest.checked_sub(input).filter(|room| *room > 0);
            let room = room.ok_or_else(|| Refusal::too_long(longest, input))?;
            match (ask.max_tokens, ask.endpoint) {
                // SGLang and llama.cpp stop at the end of the context instead of refusing the request.
                (Some(asked), _) if self.settings.dialect != Dialect::Vllm => Ok(asked.min(room)),
                (Some(asked), _) if asked > room => Err(Refusal::too_many(longest, input, asked)),
                (Some(asked), _) => Ok(asked),
                (None, Endpoint::Completions) => Ok(COMPLETION_TOKENS.max(ask.min_tokens).min(room)),
                (None, _) => Ok(room),
            }
        };
        ask.prompts.iter().map(bound).collect()
    }
}
