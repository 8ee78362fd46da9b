//! Whether a server keeps up with the rate that it is offered, told while it is.
//!
//! Knows: when requests were sent and answered. When requests in flight grow is the library's rule, which `simulate` calls an
//! overload by; it is asked again whenever a run is a quarter longer, and believed when it says so twice in a row.

use roofcast::clock::Ticks;
use roofcast::fleet::flow::{Flow, Trend};
use roofcast::units::Picoseconds;

/// A run is looked at again when it is so many times as long.
const LONGER: f64 = 1.25;
/// Seconds before which nothing is certain.
const EARLIEST: f64 = 5.0;
/// Looks in a row that must say the same.
const LOOKS: u32 = 2;

/// What is known of a run so far.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    flow: Flow,
    first: Option<Ticks>,
    last: Ticks,
    answers: u64,
    decoded_s: f64,
    /// Seconds at the last look.
    looked: f64,
    /// Looks in a row that saw growth.
    grew: u32,
}

impl Saturation {
    /// A request was sent.
    pub(super) fn sent(&mut self, at: Picoseconds) {
        self.last = at.into();
        self.first.get_or_insert(self.last);
        self.flow.arrived(self.last);
    }

    /// One was answered, whose tokens after the first took `decode`. By how many requests in flight grow each second, where
    /// that is certain.
    pub(super) fn answered(&mut self, at: Picoseconds, decode: Picoseconds) -> Option<f64> {
        self.flow.left(at.into());
        self.answers += 1;
        self.decoded_s += decode.seconds();
        let first = self.first?;
        let seconds = at.seconds();
        if seconds < EARLIEST.max(self.looked * LONGER) || self.last <= first {
            return None;
        }
        self.looked = seconds;
        match self.flow.trend(first, self.last, self.decoded_s / self.answers as f64) {
            Trend::Growing(per_s) => {
                self.grew += 1;
                (self.grew >= LOOKS).then_some(per_s)
            }
            Trend::Level | Trend::Short => {
                self.grew = 0;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten requests a second for a minute, each answered at `answered`; when a run would be ended, and by which growth.
    fn ended(answered: impl Fn(f64) -> f64) -> Option<(f64, f64)> {
        let mut events: Vec<(f64, bool)> = Vec::new();
        for k in 0..600 {
            let at = f64::from(k) / 10.0;
            events.extend([(at, true), (answered(at), false)]);
        }
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut watch = Saturation::default();
        for (at, sent) in events {
            let at = Picoseconds::from_seconds(at);
            if sent {
                watch.sent(at);
            } else if let Some(per_s) = watch.answered(at, Picoseconds::from_seconds(0.2)) {
                return Some((at.seconds(), per_s));
            }
        }
        None
    }

    /// Answers come after half a second: level. Of ten that come eight are answered: two more in flight each second.
    #[test]
    fn a_server_that_falls_behind_is_found() {
        assert_eq!(ended(|at| at + 0.5), None);
        let (at, per_s) = ended(|at| at * 1.25 + 0.5).unwrap();
        assert!((5.0..30.0).contains(&at) && (per_s - 2.0).abs() < 0.3, "{at} s, {per_s}");
    }
}
