//! Statistics of the requests that a workload draws.
//!
//! Knows: means and percentiles of their lengths, and the prompt tokens that no earlier request had. Every answer is
//! taken as immediate, so that conversations go through all their turns. Knows nothing about servers.

use super::request::{Prompt, Request};
use super::{Traffic, Workload};
use roofcast_facts::error::Result;
use roofcast_facts::units::Picoseconds;
use std::collections::BTreeMap;

/// Most requests that are drawn.
const SAMPLE: u64 = 10_000;

/// Statistics of a length in tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LengthStatistics {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// True if all lengths are equal.
    pub constant: bool,
}

/// Statistics of the requests of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrawnLoad {
    /// Number of prompt tokens, with shared prefixes and earlier turns.
    pub input: LengthStatistics,
    /// Number of generated tokens.
    pub output: LengthStatistics,
    /// Mean number of prompt tokens that no earlier prompt had.
    pub new_input: f64,
    /// Mean requests per second from the first request to the last; `None` if all arrive at once, if clients wait for
    /// answers, or if the run has more requests than were drawn.
    pub per_s: Option<f64>,
}

impl DrawnLoad {
    /// Draws the requests of a run of `workload`, or its first ones; `place` names the workload in errors.
    ///
    /// # Errors
    /// The workload is refused, or its files are not loaded.
    pub fn of(workload: &Workload, place: &str) -> Result<DrawnLoad> {
        let mut traffic = Traffic::new(workload, place)?;
        let mut inputs = Vec::new();
        let mut outputs = Vec::new();
        let mut new = 0_u64;
        let mut first = None;
        let mut last = Picoseconds::ZERO;
        let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
        // Segments of answers, which later turns repeat.
        let mut answers = crate::workload::request::OWN_SEGMENTS;
        while let Some(request) = traffic.next().filter(|_| (inputs.len() as u64) < SAMPLE) {
            inputs.push(u64::from(request.input_len));
            outputs.push(u64::from(request.output_len));
            new += unseen(&request, &mut seen);
            first.get_or_insert(request.at);
            last = request.at;
            traffic.completed(request.user, request.at, answers);
            answers = answers.wrapping_add(1).max(crate::workload::request::OWN_SEGMENTS);
        }
        let new_input = new as f64 / inputs.len().max(1) as f64;
        let span_s = Picoseconds(last.0 - first.unwrap_or(last).0).seconds();
        let is_whole = workload.arrivals.rate().is_some() && inputs.len() as u64 == workload.total();
        let per_s = (is_whole && span_s > 0.0).then(|| (inputs.len() - 1) as f64 / span_s);
        Ok(DrawnLoad { input: statistics(inputs), output: statistics(outputs), new_input, per_s })
    }
}

/// Number of prompt tokens of `request` that no prompt had before; `seen` has the end of each known segment.
fn unseen(request: &Request, seen: &mut BTreeMap<u32, u64>) -> u64 {
    let mut known = |segment: u32, start: u64, length: u64| {
        let end = seen.entry(segment).or_insert(0);
        let cached = (*end).clamp(start, start + length) - start;
        *end = (*end).max(start + length);
        cached
    };
    let cached = match &request.prompt {
        Prompt::Own => 0,
        Prompt::Shared { segment, length } => known(*segment, 0, u64::from(*length)),
        Prompt::Runs(runs) => runs.iter().map(|run| known(run.segment, run.start, run.length)).sum(),
    };
    u64::from(request.input_len).saturating_sub(cached)
}

fn statistics(mut values: Vec<u64>) -> LengthStatistics {
    values.sort_unstable();
    let count = values.len().max(1);
    // The smallest value that at least the share of all values does not exceed.
    let at = |share: f64| {
        let rank = (share * count as f64).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    LengthStatistics {
        mean: values.iter().sum::<u64>() as f64 / count as f64,
        p50: at(0.5),
        p99: at(0.99),
        constant: values.first() == values.last(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    fn drawn(workload: &str) -> DrawnLoad {
        let spec = Spec::parse("t", &format!("[workload]\n{workload}")).unwrap();
        DrawnLoad::of(&spec.workload.unwrap(), "t").unwrap()
    }

    /// Turn k has k times 100 new tokens and k − 1 answers of 10: 100, 210, 320, 430, in the mean 265. An earlier answer
    /// is new to the prompts: (100 + 3 × 110)/4 = 107.5.
    #[test]
    fn later_turns_repeat_what_was_said() {
        let load = drawn(
            "requests = 40\ninput_len = 100\noutput_len = 10\n\
             arrivals = { kind = \"sessions\", concurrency = 10, turns = 4 }",
        );
        assert_eq!((load.input.mean, load.input.p50, load.input.p99), (265.0, 210, 430));
        assert_eq!((load.output.mean, load.output.constant, load.new_input), (10.0, true, 107.5));
    }

    /// Ten requests a quarter of a second apart have nine gaps, 4 a second; one request has none, and a run of which only
    /// the first requests are drawn has no rate of its own here.
    #[test]
    fn requests_of_a_run_have_a_rate() {
        let constant = "input_len = 50\noutput_len = 10\narrivals = { kind = \"constant\", rate = 4 }";
        let load = |requests: u64| drawn(&format!("requests = {requests}\n{constant}"));
        assert_eq!(load(10).per_s, Some(4.0));
        assert_eq!(load(1).per_s, None);
        assert_eq!(load(SAMPLE + 1).per_s, None);
    }

    /// The first of 100 prompts has 1000 + 50 new tokens, the others have 50: (1050 + 99 × 50)/100 = 60.
    #[test]
    fn a_shared_prefix_is_new_once() {
        let load = drawn(
            "requests = 100\ninput_len = 50\noutput_len = 10\nprefix = { length = 1000 }\n\
             arrivals = { kind = \"poisson\", rate = 1 }",
        );
        assert_eq!((load.input.mean, load.input.constant, load.new_input), (1050.0, true, 60.0));
    }
}
