//! The clock of a recording: how many distinct times it has, and requests spread between them.
//!
//! Knows: a clock that ticks every few seconds puts many requests at one time, which no service saw; the smallest gap
//! between two times is its tick. Knows nothing about formats.

use super::Trace;
use roofcast_facts::units::Picoseconds;

/// The times of a recording by a coarse clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoarseClock {
    /// Number of distinct times.
    pub times: u64,
    /// Smallest gap between two times.
    pub tick: Picoseconds,
}

/// Requests for each distinct time from which on a clock is coarse.
const COARSE: usize = 4;

impl Trace {
    /// The clock of the first `count` single requests if it is coarse: at least four requests have one time, on average.
    pub fn coarse_clock(&self, count: usize) -> Option<CoarseClock> {
        if !self.timed || !self.sessions.is_empty() {
            return None;
        }
        let requests = &self.requests[..count.min(self.requests.len())];
        let mut times: Vec<Picoseconds> = requests.iter().map(|request| request.at).collect();
        times.dedup();
        let tick = times.windows(2).map(|pair| Picoseconds(pair[1].0 - pair[0].0)).min()?;
        (requests.len() >= COARSE * times.len()).then_some(CoarseClock { times: times.len() as u64, tick })
    }

    /// The recording with the requests of one time spread evenly until the next tick; unchanged without a coarse clock.
    pub(in crate::workload) fn spread(&self) -> Trace {
        let mut spread = self.clone();
        let Some(clock) = self.coarse_clock(usize::MAX) else { return spread };
        for group in spread.requests.chunk_by_mut(|a, b| a.at == b.at) {
            let count = group.len() as u64;
            for (index, request) in group.iter_mut().enumerate() {
                request.at = Picoseconds(request.at.0 + clock.tick.0 / count * index as u64);
            }
        }
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Trace, TraceFormat};

    /// Four requests at 0 s, eight at 3 s and four at 9 s: the tick is 3 s, so they come 0.75 s and 0.375 s apart.
    #[test]
    fn requests_of_one_tick_are_spread_over_it() {
        let rows = |at: u32, count: usize| format!("{at},100,10\n").repeat(count);
        let text = format!("arrival_s,input_len,output_len\n{}{}{}", rows(0, 4), rows(3, 8), rows(9, 4));
        let trace = Trace::parse("t.csv", &text, Some(TraceFormat::Own)).unwrap();
        let clock = trace.coarse_clock(usize::MAX).unwrap();
        // The first five requests have two times.
        assert_eq!(trace.coarse_clock(5), None);
        assert_eq!(trace.coarse_clock(12).unwrap().times, 2);
        assert_eq!((clock.times, clock.tick.seconds()), (3, 3.0));
        let spread = trace.spread();
        let at: Vec<f64> = spread.requests.iter().map(|request| request.at.seconds()).collect();
        assert_eq!(at[..6], [0.0, 0.75, 1.5, 2.25, 3.0, 3.375]);
        assert_eq!((at.len(), at[15], spread.coarse_clock(usize::MAX)), (16, 11.25, None));
        // A clock with a time for every request is not coarse.
        let fine = "arrival_s,input_len,output_len\n0,1,1\n1,1,1\n2,1,1\n";
        assert_eq!(Trace::parse("t.csv", fine, None).unwrap().coarse_clock(3), None);
    }
}
