//! Detects during a run that a server does not keep up with the offered rate.
//!
//! Knows: the times of requests and answers. The growth of requests in flight is judged by the library's rule, which
//! also defines overload in `simulate`. The rule is evaluated whenever the run has become a quarter longer, and its
//! result accepted when two checks in a row agree.

use roofcast::clock::Ticks;
use roofcast::fleet::flow::{Flow, Trend};
use roofcast::units::Picoseconds;

/// Factor by which a run must have grown before the next check.
const LONGER: f64 = 1.25;
/// Seconds of a run before which no verdict is given.
const EARLIEST: f64 = 5.0;
/// Number of checks in a row that must agree.
const LOOKS: u32 = 2;

/// State of the detector.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    flow: Flow,
    first: Option<Ticks>,
    last: Ticks,
    answers: u64,
    decoded_s: f64,
    /// Time of the last check, in seconds.
    looked: f64,
    /// Number of checks in a row that found growth.
    grew: u32,
}

impl Saturation {
    /// Records a sent request.
    pub(super) fn sent(&mut self, at: Picoseconds) {
        self.last = at.into();
        self.first.get_or_insert(self.last);
        self.flow.arrived(self.last);
    }

    /// Records an answered request, which took `decode` from its first token to its last. Returns the growth of
    /// requests in flight, in requests per second, once it is certain.
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

    /// Time and growth at which a run would be ended, for ten requests a second over a minute, if the request sent at
    /// `t` s is answered at `answered(t)`.
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

    /// Answers that take half a second leave the number in flight constant. If eight of ten requests a second are
    /// answered, two more are in flight each second, 1.5 t + 4 on average over the second half of t seconds. Their rise
    /// of 2 · t/2 · 7/8 is beyond three roots of that from 20 s on, and two checks are at most 1.25² times as late.
    #[test]
    fn a_server_that_falls_behind_is_found() {
        assert_eq!(ended(|at| at + 0.5), None);
        let (at, per_s) = ended(|at| at * 1.25 + 0.5).unwrap();
        assert!((20.0..31.25).contains(&at) && (per_s - 2.0).abs() < 0.3, "{at} s, {per_s}");
    }
}
