//! `roofcast emulate`: the engine of a simulation on the wall clock, behind a vLLM server's API.
//!
//! Knows: a request is read, its answer written at once, its tokens given to an engine that says when each is out, and
//! the answer sent as they are. Only [`replica`] knows the engine, only [`service`] the routes.

mod ask;
mod completion;
pub(crate) mod faults;
mod fields;
pub(crate) mod kv_events;
pub(crate) mod metrics;
mod outlet;
pub(crate) mod pace;
mod refusal;
pub(crate) mod replica;
pub(crate) mod service;
mod stream;
mod tokenizer;
mod tools;
mod wire;

pub(crate) use completion::Author;

use replica::EngineHandle;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How often an engine is asked whether it keeps up.
const LOOK: Duration = Duration::from_secs(5);
/// The share of steps that may end late before it is said.
const LATE_SHARE: f64 = 0.05;

/// Says on stderr when an engine's steps end late: what clients measure then is this machine, not the forecast.
pub(crate) fn warn_when_late(replica: &Arc<EngineHandle>) {
    let replica = Arc::downgrade(replica);
    tokio::spawn(async move {
        let mut before = (0, 0);
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(replica) = replica.upgrade() else { return };
            let (late, steps) = replica.metrics().late();
            if (late - before.0) as f64 > LATE_SHARE * (steps - before.1) as f64 {
                let what = format!("{} of {} steps", late - before.0, steps - before.1);
                let limit = metrics::LATE.as_millis();
                let text =
                    format!("warning: {what} ended over {limit} ms late: this machine does not keep up");
                drop(writeln!(std::io::stderr(), "{text}"));
            }
            before = (late, steps);
        }
    });
}
