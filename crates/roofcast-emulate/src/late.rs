//! Warning that an engine's steps end late, because clients then measure this machine instead of the forecast.
//!
//! Knows: counts of late steps. Knows nothing about the reason.

use crate::metrics;
use crate::replica::EngineHandle;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the checks that an engine keeps up with its forecast times.
const LOOK: Duration = Duration::from_secs(5);
/// Fraction of late steps from which a warning is printed.
const LATE_SHARE: f64 = 0.05;

/// Warns on stderr, from a task, whenever more than [`LATE_SHARE`] of an engine's latest steps ended late.
pub(crate) fn warn(replica: &Arc<EngineHandle>) {
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
