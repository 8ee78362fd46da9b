//! The network's part of a request's time: given by the user, or measured by short requests before a run.
//!
//! Knows: the least time of several requests to `/health`, which no engine computes. Knows nothing about a run.

use super::Told;
use super::servers::Servers;
use super::stop::Stop;
use bytes::Bytes;
use hyper::Method;
use roofcast::record::Record;
use roofcast::units::Picoseconds;
use std::time::{Duration, Instant};

/// Latency of the network between client and server, there and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NetworkLatency {
    /// Milliseconds that the user gave.
    Given(f64),
    /// Measured before each run.
    Measured,
}

/// Requests of a measurement.
const TRIES: usize = 10;
/// Most bytes that are read of an answer.
const MOST: usize = 1 << 16;
/// Longest measurement: what it has by then is the result.
const LONGEST: Duration = Duration::from_secs(5);
/// Time after which the user is told that the network is measured.
const QUIET: Duration = Duration::from_secs(1);

/// Parses milliseconds, or `measure`.
pub(crate) fn parse(text: &str) -> Result<NetworkLatency, String> {
    let given = || text.trim_end_matches("ms").parse().ok().filter(|ms: &f64| (0.0..=60_000.0).contains(ms));
    match text {
        "measure" => Ok(NetworkLatency::Measured),
        _ => given()
            .map(NetworkLatency::Given)
            .ok_or_else(|| "accepted: milliseconds as 12, or measure".to_owned()),
    }
}

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Latency {
    /// The latency.
    Known(Picoseconds),
    /// No server answers.
    Unknown,
    /// The user stopped the bench.
    Stopped,
}

impl NetworkLatency {
    /// Returns the latency; `stop` ends the measurement, and `tell` is called if it is long.
    pub(super) async fn of(self, servers: &Servers, stop: &mut Stop, tell: &mut impl FnMut(Told)) -> Latency {
        let NetworkLatency::Given(ms) = self else { return measured(servers, stop, tell).await };
        Latency::Known(Picoseconds::from_seconds(ms / 1e3))
    }
}

/// The least time of requests to the first server, on a connection that is open already.
async fn measured(servers: &Servers, stop: &mut Stop, tell: &mut impl FnMut(Told)) -> Latency {
    let (_, client) = servers.of(0);
    let mut least_time: Option<Duration> = None;
    let asking = async {
        for attempt in 0..=TRIES {
            let began = Instant::now();
            let Ok((_, mut incoming)) = client.send(Method::GET, "/health", Bytes::new()).await else {
                return;
            };
            incoming.head(MOST).await;
            // The first request may open the connection.
            if attempt > 0 {
                let time = began.elapsed();
                least_time = Some(least_time.map_or(time, |least| least.min(time)));
            }
        }
    };
    let is_stopped = {
        let mut bounded = std::pin::pin!(tokio::time::timeout(LONGEST, asking));
        let mut quiet = std::pin::pin!(tokio::time::sleep(QUIET));
        let mut is_told = false;
        loop {
            tokio::select! {
                biased;
                () = stop.recv() => break true,
                _ = &mut bounded => break false,
                () = &mut quiet, if !is_told => {
                    is_told = true;
                    tell(Told::Timing);
                }
            }
        }
    };
    if is_stopped {
        return Latency::Stopped;
    }
    least_time.map_or(Latency::Unknown, |time| Latency::Known(Picoseconds::from_seconds(time.as_secs_f64())))
}

/// `record` as if its request had been sent later by `latency`, but not after its first token.
pub(super) fn without(record: &Record, latency: Picoseconds) -> Record {
    let first = record.first_token.unwrap_or(record.finished);
    let later = |at: Picoseconds| Picoseconds((at.0.saturating_add(latency.0)).min(first.0.max(at.0)));
    Record { sent: later(record.sent), scheduled: later(record.scheduled), ..record.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_or_a_measurement() {
        assert_eq!(parse("12.5"), Ok(NetworkLatency::Given(12.5)));
        assert_eq!(parse("12ms"), Ok(NetworkLatency::Given(12.0)));
        assert_eq!(parse("measure"), Ok(NetworkLatency::Measured));
        for text in ["-1", "nan", "soon", ""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
