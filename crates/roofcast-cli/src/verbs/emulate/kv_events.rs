//! `--kv-events-config`: publishes the events of a replica's KV cache on its sockets.

use crate::args::EmulateArgs;
use crate::emulate::kv_events::{Endpoints, KvEvents, SEED, publish};
use anyhow::{Context, Result};
use roofcast::Error;
use roofcast::engine::online::Online;
use serde::Deserialize;
use tokio::runtime::Runtime;

/// Value of `--kv-events-config`, with vLLM's keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KvEventsConfig {
    #[serde(default = "yes")]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: String,
    buffer_steps: Option<usize>,
    /// vLLM's bounds on queues, which are accepted and ignored.
    #[serde(rename = "hwm")]
    _hwm: Option<u64>,
    #[serde(rename = "max_queue_size")]
    _max_queue_size: Option<u64>,
}

fn yes() -> bool {
    true
}

/// The publisher of KV cache events of replica `index`, and its rank, if publishing is configured; its sockets are
/// listed in `text`.
pub(super) fn kv_events(
    args: &EmulateArgs,
    (index, rank): (u64, u64),
    engine: &mut Online,
    runtime: &Runtime,
    text: &mut String,
) -> Result<Option<KvEvents>> {
    let Some(given) = &args.kv_events_config else { return Ok(None) };
    let wrong =
        |found: &str, accepted: String| Error::field("arguments", "--kv-events-config", found, accepted);
    let config: KvEventsConfig = serde_json::from_str(given).map_err(|e| {
        wrong(given, format!("vLLM's JSON, as {{\"endpoint\": \"tcp://127.0.0.1:5557\"}} ({e})"))
    })?;
    if let Some(other) = config.publisher.as_ref().filter(|p| *p != "zmq" && *p != "null") {
        return Err(wrong(other, "the publisher zmq".to_owned()).into());
    }
    if !config.enable_kv_cache_events || config.publisher.as_deref() == Some("null") {
        return Ok(None);
    }
    let shifted = |endpoint: &str| {
        let moved = offset(endpoint, index);
        moved.ok_or_else(|| wrong(endpoint, "an endpoint as tcp://127.0.0.1:5557".to_owned()))
    };
    let endpoint = config.endpoint.as_deref().unwrap_or("tcp://127.0.0.1:5557");
    if let Some(replay) = config.replay_endpoint.as_deref().filter(|replay| meet([endpoint, replay], index)) {
        let accepted = format!(
            "a replay_endpoint whose port is {} or more from endpoint's: every replica counts up from both",
            index + 1
        );
        return Err(wrong(replay, accepted).into());
    }
    let endpoints = Endpoints {
        publish: shifted(endpoint)?,
        replay: config.replay_endpoint.as_deref().map(shifted).transpose()?,
        topic: config.topic,
        encoding: args.kv_events_encoding,
        kept: config.buffer_steps.unwrap_or(10_000),
        rank,
    };
    engine.watch_cache()?;
    let place = endpoints.publish.clone();
    let (outbox, bound) =
        runtime.block_on(publish(endpoints)).with_context(|| format!("KV events at {place}"))?;
    bound.iter().for_each(|endpoint| text.push_str(&format!("KV events at {endpoint}\n")));
    let seed = std::env::var("PYTHONHASHSEED").unwrap_or_else(|_| SEED.to_owned());
    Ok(Some(KvEvents::new(&seed, engine.capacity().block_size, outbox)))
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
