//! Settings of the publisher of KV events, as vLLM's `--kv-events-config` has them, and its start.
//!
//! Knows: vLLM's keys, and how the ports of replicas follow from one endpoint. Knows nothing about events.

use super::KvEvents;
use super::encoding::Encoding;
use super::hashes::SEED;
use super::publisher::{Endpoints, publish};
use anyhow::{Context, Result};
use roofcast::Error;
use roofcast::engine::online::Online;
use serde::Deserialize;
use tokio::runtime::Runtime;

/// Settings of the publishers of a server's replicas.
#[derive(Debug, Clone)]
pub struct KvEventsConfig {
    keys: Keys,
    encoding: Encoding,
}

/// Value of `--kv-events-config`, with vLLM's keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default = "yes")]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    #[serde(default = "default_endpoint")]
    endpoint: String,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: String,
    #[serde(default = "default_buffer")]
    buffer_steps: usize,
    /// vLLM's bounds on queues, which are accepted and ignored.
    #[serde(rename = "hwm")]
    _hwm: Option<u64>,
    #[serde(rename = "max_queue_size")]
    _max_queue_size: Option<u64>,
}

fn yes() -> bool {
    true
}

fn default_endpoint() -> String {
    "tcp://127.0.0.1:5557".to_owned()
}

fn default_buffer() -> usize {
    10_000
}

fn wrong(found: &str, accepted: String) -> Error {
    Error::field("arguments", "--kv-events-config", found, accepted)
}

impl KvEventsConfig {
    /// Parses vLLM's JSON; `None` if it disables events. The error names the flag `--kv-events-config`, the found value and
    /// the accepted form.
    pub fn parse(text: &str, encoding: Encoding) -> roofcast::Result<Option<KvEventsConfig>> {
        let keys: Keys = serde_json::from_str(text).map_err(|e| {
            wrong(text, format!("vLLM's JSON, as {{\"endpoint\": \"tcp://127.0.0.1:5557\"}} ({e})"))
        })?;
        match keys.publisher.as_deref() {
            Some("null") => Ok(None),
            None | Some("zmq") => {
                Ok(keys.enable_kv_cache_events.then_some(KvEventsConfig { keys, encoding }))
            }
            Some(other) => Err(wrong(other, "the publisher zmq".to_owned())),
        }
    }

    /// Starts the publisher of the cache events of `engine`, which is replica `index` and data-parallel rank `rank`; also
    /// returns the addresses of its sockets.
    pub(crate) fn start(
        &self,
        (index, rank): (u64, u64),
        engine: &mut Online,
        runtime: &Runtime,
    ) -> Result<(KvEvents, Vec<String>)> {
        let Keys { endpoint, replay_endpoint, topic, buffer_steps, .. } = &self.keys;
        let shifted = |endpoint: &str| {
            let moved = offset(endpoint, index);
            moved.ok_or_else(|| wrong(endpoint, "an endpoint as tcp://127.0.0.1:5557".to_owned()))
        };
        if let Some(replay) = replay_endpoint.as_deref().filter(|replay| meet([endpoint, replay], index)) {
            let accepted = format!(
                "a replay_endpoint whose port is {} or more from endpoint's: every replica counts up from both",
                index + 1
            );
            return Err(wrong(replay, accepted).into());
        }
        let endpoints = Endpoints {
            publish: shifted(endpoint)?,
            replay: replay_endpoint.as_deref().map(shifted).transpose()?,
            topic: topic.clone(),
            encoding: self.encoding,
            kept: *buffer_steps,
            rank,
        };
        engine.watch_cache()?;
        let place = endpoints.publish.clone();
        let (outbox, bound) =
            runtime.block_on(publish(endpoints)).with_context(|| format!("KV events at {place}"))?;
        let seed = std::env::var("PYTHONHASHSEED").unwrap_or_else(|_| SEED.to_owned());
        Ok((KvEvents::new(&seed, engine.capacity().block_size, outbox), bound))
    }
}

/// True if one endpoint's port of replica `index` is the other endpoint's port of an earlier replica.
fn meet(endpoints: [&str; 2], index: u64) -> bool {
    let port = |endpoint: &str| endpoint.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    match endpoints.map(port) {
        [Some(one), Some(other)] if one > 0 && other > 0 => u64::from(one.abs_diff(other)) <= index,
        _ => false,
    }
}

/// An endpoint with its port offset by the replica's number, as vLLM offsets it by the rank; port 0 stays 0.
fn offset(endpoint: &str, index: u64) -> Option<String> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let port = if port == 0 { 0 } else { u64::from(port) + index };
    let host = if host == "*" { "0.0.0.0" } else { host };
    Some(format!("tcp://{host}:{port}"))
}
