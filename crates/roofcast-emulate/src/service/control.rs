//! Control of a server: faults, pinned gauges, fixed latencies, replicas that go down, a stopped clock, sleep.

use super::super::faults::Fault;
use super::super::fields::Fields;
use super::super::metrics;
use super::super::refusal::Refusal;
use super::super::replica::Latencies;
use super::super::response::{said, whole};
use super::super::sleep::PauseMode;
use super::super::stream::Sent;
use super::{Answered, Dialect, Service};
use hyper::header::HeaderValue;
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::PoisonError;

/// Most seconds by which one request advances a stopped clock.
const LONGEST_ADVANCE: f64 = 1e6;

impl Service {
    /// Shows, sets or removes the fault that applies to all requests.
    pub(super) fn change_fault(&self, method: &Method, body: &[u8]) -> Answered {
        match *method {
            Method::POST => {
                let text = std::str::from_utf8(body).map_err(|_| Refusal::bad("The body is no text."))?;
                self.faults.set(Some(Fault::parse(text).map_err(Refusal::bad)?));
            }
            Method::DELETE => self.faults.set(None),
            _ => {}
        }
        Ok(said(&json!({ "fault": self.faults.standing() })))
    }

    /// Shows, adds or removes pins of gauges.
    pub(super) fn pin(&self, method: &Method, body: &[u8]) -> Answered {
        match *method {
            Method::POST => {
                let text = self.group.metrics(&self.pins.values(), &self.http);
                self.pins.set(body, |name| metrics::is_gauge(&text, name)).map_err(Refusal::bad)?;
            }
            Method::DELETE => self.pins.clear(),
            _ => {}
        }
        Ok(said(&json!({ "pinned": self.pins.all() })))
    }

    /// Shows or sets which engines are down; an empty list brings all up.
    pub(super) fn change_replicas(&self, method: &Method, body: &[u8]) -> Answered {
        match *method {
            Method::POST => {
                let fields = Fields::parse(body)?;
                let given = fields.need("down")?;
                let count = self.group.engines().len();
                let index =
                    |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|index| *index < count);
                let down: Option<Vec<usize>> =
                    given.as_array().and_then(|all| all.iter().map(index).collect());
                let accepted = format!("a list of numbers of engines, below {count}");
                self.group.set_down(&down.ok_or_else(|| Refusal::value("down", given, &accepted))?);
            }
            Method::DELETE => self.group.set_down(&[]),
            _ => {}
        }
        Ok(said(&json!({ "down": self.group.down() })))
    }

    /// Shows or sets the fixed latencies; a body without any restores the latencies from the start.
    pub(super) fn change_latencies(&self, method: &Method, body: &[u8]) -> Answered {
        let mut now = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        match *method {
            Method::POST => {
                let accepted = "milliseconds from 0 to 3600000, as {\"ttft_ms\": 200, \"itl_ms\": 20}";
                let stated: Latencies = serde_json::from_slice(body)
                    .map_err(|e| Refusal::bad(format!("{e}; accepted: {accepted}")))?;
                let bounds = 0.0..=3.6e6;
                if !bounds.contains(&stated.ttft_ms) || !bounds.contains(&stated.itl_ms) {
                    return Err(Refusal::bad(format!("accepted: {accepted}")));
                }
                *now = Some(stated);
            }
            Method::DELETE => *now = self.settings.latencies,
            _ => return Ok(said(&json!({ "latencies": *now }))),
        }
        if let Some(stated) = *now {
            self.group.engines().iter().for_each(|engine| engine.state(stated));
        }
        Ok(said(&json!({ "latencies": *now })))
    }

    /// Shows or advances the engines' stopped clock.
    pub(super) fn change_clock(&self, method: &Method, body: &[u8]) -> Answered {
        let pace = self.group.pace();
        if *method == Method::POST {
            let fields = Fields::parse(body)?;
            let given = fields.need("advance_seconds")?;
            let seconds = given.as_f64().filter(|seconds| (0.0..=LONGEST_ADVANCE).contains(seconds));
            let accepted = format!("seconds from 0 to {LONGEST_ADVANCE}");
            let seconds = seconds.ok_or_else(|| Refusal::value("advance_seconds", given, &accepted))?;
            pace.iter().for_each(|pace| pace.advance(seconds));
        }
        Ok(said(&json!({ "seconds": pace.map(|pace| pace.now().seconds()) })))
    }

    /// True if all engines are down.
    pub(super) fn is_dead(&self) -> bool {
        self.group.down().len() == self.group.engines().len()
    }

    pub(super) fn metrics(&self) -> Response<Sent> {
        let kind = match self.settings.dialect {
            Dialect::Vllm => "text/plain; version=1.0.0; charset=utf-8",
            Dialect::Sglang | Dialect::LlamaCpp => "text/plain; version=0.0.4; charset=utf-8",
        };
        whole(StatusCode::OK, kind, self.group.metrics(&self.pins.values(), &self.http).into())
    }

    /// The load in ORCA's format (vLLM's `entrypoints/serve/utils/orca_metrics.py`); `None` for an unknown format.
    pub(super) fn load(
        &self,
        engine: &super::super::replica::EngineHandle,
        format: &HeaderValue,
    ) -> Option<HeaderValue> {
        let (usage, waiting) = engine.metrics().load();
        let pinned = self.pins.values();
        let pinned_or = |name: &str, value: f64| pinned.get(name).copied().unwrap_or(value);
        let usage = pinned_or("vllm:kv_cache_usage_perc", usage);
        let waiting = pinned_or("vllm:num_requests_waiting", waiting);
        let text = match format.to_str().ok()?.to_ascii_lowercase().as_str() {
            "text" => format!(
                "TEXT named_metrics.kv_cache_usage_perc={usage:?}, named_metrics.num_requests_waiting={waiting:?}"
            ),
            "json" => format!(
                "JSON {{\"named_metrics\": {{\"kv_cache_usage_perc\": {usage:?}, \"num_requests_waiting\": {waiting:?}}}}}"
            ),
            _ => return None,
        };
        HeaderValue::from_str(&text).ok()
    }

    /// Puts the engines to sleep, with the `level` and `mode` in a query. Responds when the requests in flight are
    /// aborted or served, as vLLM's `EngineCore.sleep` does.
    pub(super) async fn fall_asleep(&self, query: &str) -> Answered {
        let wrong = |field: &str, found: &str, accepted: &str| {
            let message = format!("{field} must be {accepted}, got {found}.");
            Refusal::value(field, &Value::from(found), &message)
        };
        let level_text = parameter(query, "level").next().unwrap_or("1");
        let level = level_text.parse().ok().filter(|level| *level <= 2);
        let level = level.ok_or_else(|| wrong("level", level_text, "0, 1 or 2"))?;
        let given = parameter(query, "mode").next().unwrap_or("abort");
        let mode = PauseMode::of(given).ok_or_else(|| wrong("mode", given, "abort, wait or keep"))?;
        self.sleep.begin(level);
        let mut paused = Vec::new();
        for engine in self.group.engines() {
            paused.push(engine.pause(mode, level > 0));
            engine.metrics().sleeps(Some(level));
        }
        for paused in paused {
            // An error means that the engine was woken meanwhile, so there is nothing to wait for.
            _ = paused.await;
        }
        Ok(said(&json!({"status": "sleeping", "level": level})))
    }

    /// Wakes memory by the tags in a query, and the engines once all their memory is awake.
    pub(super) fn wake_up(&self, query: &str) -> Response<Sent> {
        let tags: Vec<String> = parameter(query, "tags").map(str::to_owned).collect();
        let awake = self.sleep.wake(&tags);
        if awake {
            for engine in self.group.engines() {
                engine.metrics().sleeps(None);
                engine.wake();
            }
        }
        let shown = if tags.is_empty() { Value::Null } else { json!(tags) };
        said(&json!({"status": if awake { "awake" } else { "sleeping" }, "tags": shown}))
    }
}

/// The values of a parameter in a query, without percent-decoding.
fn parameter<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query
        .split('&')
        .filter_map(move |pair| pair.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, v)| v)
}
