//! Waiting for servers that are still loading their model.
//!
//! Knows: a server is ready if it answers `/v1/models` with any status but 5xx. vLLM does not listen before it is
//! ready; llama.cpp answers 503 until then.

use super::client::{self, Client};
use super::failure::Failure;
use super::servers::Servers;
use anyhow::{Result, bail};
use bytes::Bytes;
use hyper::Method;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between requests to a server.
const EVERY: Duration = Duration::from_millis(500);

/// Most bytes that are read of an answer.
const MOST: usize = 1 << 20;

/// Timeout of one request.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until all servers are ready, for at most `most`; the error names the server that is not.
pub(super) async fn wait(servers: &Servers, most: Duration) -> Result<()> {
    let end = Instant::now() + most;
    for client in servers.all() {
        while let Err(why) = ask(client).await {
            if Instant::now() + EVERY > end {
                let seconds = most.as_secs_f64();
                bail!("{}: not ready after {seconds} s (--wait-ready): {}", client.url(), why.message);
            }
            tokio::time::sleep(EVERY).await;
        }
    }
    Ok(())
}

async fn ask(client: &Client) -> Result<(), Failure> {
    let answer = async {
        let (parts, mut incoming) = client.send(Method::GET, "/v1/models", Bytes::new()).await?;
        if parts.status.is_server_error() {
            return Err(client::refusal(&parts, incoming).await);
        }
        incoming.head(MOST).await;
        Ok(())
    };
    let late = || Failure::new(roofcast::record::Outcome::Timeout, "no answer");
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(late()))
}
