//! Emptying the prefix caches of servers before a run.
//!
//! Knows: vLLM's `/reset_prefix_cache`, which its server has with `VLLM_SERVER_DEV_MODE=1`, and SGLang's `/flush_cache`.

use super::client::Client;
use super::servers::Servers;
use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::Method;
use std::time::Duration;

/// Paths that empty a cache, in the order in which they are tried.
const PATHS: [&str; 2] = ["/reset_prefix_cache", "/flush_cache"];
/// Most bytes that are read of an answer.
const MOST: usize = 1 << 16;
/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Empties the cache of every server; the error names the server that does not.
pub(super) async fn reset(servers: &Servers) -> Result<()> {
    for client in servers.all() {
        let mut refusals = Vec::new();
        for path in PATHS {
            match tokio::time::timeout(PATIENCE, ask(client, path)).await {
                Ok(Ok(())) => {
                    refusals.clear();
                    break;
                }
                Ok(Err(why)) => refusals.push(format!("{path}: {why}")),
                Err(_) => refusals.push(format!("{path}: no answer")),
            }
        }
        if !refusals.is_empty() {
            bail!(
                "arguments: `--reset-cache` is not answered by {} ({}); accepted: vLLM with VLLM_SERVER_DEV_MODE=1, SGLang, or \
                 the flag omitted",
                client.url(),
                refusals.join("; ")
            );
        }
    }
    Ok(())
}

async fn ask(client: &Client, path: &str) -> Result<(), String> {
    let answer = client.send(Method::POST, path, Bytes::new()).await;
    let (parts, mut incoming) = answer.map_err(|failure| failure.message.to_string())?;
    incoming.head(MOST).await;
    if parts.status.is_success() { Ok(()) } else { Err(parts.status.to_string()) }
}
