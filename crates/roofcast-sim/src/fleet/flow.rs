//! Detection of overload: the number of requests in flight grows for as long as requests arrive.
//!
//! Knows: counts of arrivals and departures in equal intervals, in bounded memory; events may come in any order. If λ
//! requests arrive and μ < λ depart each second, the requests in flight grow by λ − μ per second. Over the second half
//! of the arrivals the requests in flight are averaged in batches, each at least as long as a request decodes (so that
//! batches hold different requests), and a line is fitted to these means. The verdict is growth if the slope is at
//! least [`MATERIAL`] of the arrival rate and a slope that steep has less than 1 % probability in level traffic
//! (Student's t), and if the rise over all batches is beyond chance: where every request is served at once, the number
//! in flight is Poisson distributed (M/G/∞), so that it differs by the root of its mean between times that share no
//! request, and long answers last for several batches. Knows nothing about replicas.

use roofcast_facts::clock::Ticks;

/// Most intervals; if more are needed, the width of an interval doubles.
const MOST: usize = 512;
/// Initial width of an interval: a millisecond.
const FIRST: Ticks = Ticks(256_000_000_000);
/// Most batches over the second half of the arrivals.
const BATCHES: usize = 8;
/// Fewest batches for a verdict.
const FEWEST: usize = 4;
/// Shortest duration of arrivals for a verdict, in decode times of a request: two times [`FEWEST`], and one more for
/// intervals that are cut short.
pub(super) const DECODES: f64 = 9.0;
/// Fraction of the arrivals that must stay unanswered to count as growth.
const MATERIAL: f64 = 0.01;
/// Fewest standard deviations of the requests in flight by which they rise in an overload.
const BEYOND_CHANCE: f64 = 3.0;
/// 99th percentile of Student's t by degrees of freedom, from 2.
const STUDENT: [f64; 5] = [6.965, 4.541, 3.747, 3.365, 3.143];

/// Counts of arrivals and departures over time.
#[derive(Debug, Clone)]
pub struct Flow {
    width: Ticks,
    intervals: Vec<[i64; 2]>,
    /// Index and start of the interval of the last event, kept because the next event is usually in that interval.
    index: usize,
    begins: Ticks,
}

/// Trend of the requests in flight during the arrivals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trend {
    /// Requests in flight stay level.
    Level,
    /// Requests in flight grow by this many per second.
    Growing(f64),
    /// The duration of the arrivals is too short for a verdict.
    Short,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow { width: FIRST, intervals: vec![[0, 0]], index: 0, begins: Ticks::ZERO }
    }
}

impl Flow {
    /// Counts an arrival at time `at`.
    #[inline(always)]
    pub fn arrived(&mut self, at: Ticks) {
        self.interval(at)[0] += 1;
    }

    /// Counts a departure at time `at`.
    #[inline(always)]
    pub fn left(&mut self, at: Ticks) {
        self.interval(at)[1] += 1;
    }

    #[inline(always)]
    fn interval(&mut self, at: Ticks) -> &mut [i64; 2] {
        if at < self.begins || at - self.begins >= self.width {
            self.look_up(at);
        }
        &mut self.intervals[self.index]
    }

    fn look_up(&mut self, at: Ticks) {
        let mut index = at / self.width;
        while index >= MOST as u128 {
            self.width = Ticks(2 * self.width.0);
            index /= 2;
            let merged = self
                .intervals
                .chunks(2)
                .map(|pair| pair.iter().fold([0, 0], |[came, left], [c, l]| [came + c, left + l]));
            self.intervals = merged.collect();
        }
        let index = index as usize;
        if self.intervals.len() <= index {
            self.intervals.resize(index + 1, [0, 0]);
        }
        (self.index, self.begins) = (index, Ticks(index as u128 * self.width.0));
    }

    /// The trend of requests in flight between the arrivals `first` and `last`; a request decodes for `decode_s`
    /// seconds on average.
    pub fn trend(&self, first: Ticks, last: Ticks, decode_s: f64) -> Trend {
        let middle = first.0 + (last.0 - first.0) / 2;
        let mut in_flight = 0;
        let mut levels = Vec::new();
        for (index, [came, left]) in self.intervals.iter().enumerate() {
            in_flight += came - left;
            let start = index as u128 * self.width.0;
            if start >= middle && start + self.width.0 <= last.0 {
                levels.push(in_flight as f64);
            }
        }
        let width_s = self.width.seconds();
        let half_s = levels.len() as f64 * width_s;
        let batches = if decode_s > 0.0 { (half_s / decode_s) as usize } else { BATCHES };
        let batches = batches.min(BATCHES).min(levels.len());
        if batches < FEWEST {
            return Trend::Short;
        }
        let size = levels.len() / batches;
        let means: Vec<f64> = levels
            .rchunks(size)
            .take(batches)
            .map(|b| b.iter().sum::<f64>() / b.len() as f64)
            .rev()
            .collect();
        let came: i64 = self.intervals.iter().map(|[came, _]| came).sum();
        let offered = came as f64 / Ticks(last.0 - first.0).seconds();
        let (rise, error) = line(&means);
        let per_s = rise / (size as f64 * width_s);
        let level = means.iter().sum::<f64>() / means.len() as f64;
        let rise_of_all = rise * (means.len() - 1) as f64;
        let certain =
            rise > STUDENT[batches - FEWEST] * error && rise_of_all > BEYOND_CHANCE * level.max(1.0).sqrt();
        if certain && per_s > MATERIAL * offered { Trend::Growing(per_s) } else { Trend::Level }
    }
}

/// Slope per index of the least-squares line through `values`, and the slope's standard error.
fn line(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / n;
    let offset = |(index, value): (usize, &f64)| (index as f64 - middle, value - mean);
    let offsets = || values.iter().enumerate().map(offset);
    let spread: f64 = offsets().map(|(x, _)| x * x).sum();
    let rise = offsets().map(|(x, y)| x * y).sum::<f64>() / spread;
    let residues: f64 = offsets().map(|(x, y)| (y - rise * x).powi(2)).sum();
    (rise, (residues / (n - 2.0) / spread).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_facts::units::Picoseconds;

    fn at(seconds: f64) -> Ticks {
        Picoseconds::from_seconds(seconds).into()
    }

    /// One arrival per second; request k leaves at `leaves(k)` seconds.
    fn flow(requests: u32, leaves: impl Fn(f64) -> f64) -> Flow {
        let mut flow = Flow::default();
        for k in 0..requests {
            flow.arrived(at(f64::from(k)));
            flow.left(at(leaves(f64::from(k))));
        }
        flow
    }

    #[test]
    fn a_line_is_found_with_its_error() {
        // 1, 2, 3, 4 rise by 1 without error. For 0, 2, 1, 3: Σxy = -1.5·-1.5 - 0.5·0.5 + 0.5·-0.5 + 1.5·1.5 = 4 over
        // Σx² = 5 gives 0.8; residuals -0.3, 0.9, -0.9, 0.3: Σ of squares = 1.8, / (4 - 2) / 5 = 0.18.
        assert_eq!(line(&[1.0, 2.0, 3.0, 4.0]), (1.0, 0.0));
        let (rise, error) = line(&[0.0, 2.0, 1.0, 3.0]);
        assert!((rise - 0.8).abs() < 1e-12 && (error - 0.18_f64.sqrt()).abs() < 1e-12, "{rise} {error}");
    }

    #[test]
    fn what_leaves_as_fast_as_it_comes_is_level() {
        let level = flow(1000, |k| k + 20.0);
        assert_eq!(level.trend(at(0.0), at(999.0), 20.0), Trend::Level);
    }

    #[test]
    fn a_queue_that_grows_is_seen_and_measured() {
        // One request arrives each second and one leaves each 1.25 s: 0.2 more are in flight each second.
        let growing = flow(1000, |k| 20.0 + 1.25 * k);
        let Trend::Growing(per_s) = growing.trend(at(0.0), at(999.0), 20.0) else { panic!("level") };
        assert!((per_s - 0.2).abs() < 0.01, "{per_s}");
    }

    /// One arrival a second. 4 in flight that become 6 are a line without error, and rise by less than 3 · √5; 40 that
    /// become 60 rise by 20 · 7/8 < 3 · √50 = 21; 40 that become 100 by 52 > 3 · √70 = 25.
    #[test]
    fn a_rise_within_chance_is_no_overload() {
        let risen = |from: f64, to: f64| {
            let stays = move |k: f64| if k < 500.0 { from } else { from + (to - from) * (k - 500.0) / 500.0 };
            flow(1000, |k| k + stays(k)).trend(at(0.0), at(999.0), from)
        };
        assert_eq!(risen(4.0, 6.0), Trend::Level);
        assert_eq!(risen(40.0, 60.0), Trend::Level);
        assert!(matches!(risen(40.0, 100.0), Trend::Growing(_)));
    }

    #[test]
    fn a_run_of_a_few_lifetimes_says_nothing() {
        // The second half of 100 s has two batches of 25 s.
        assert_eq!(flow(100, |k| k + 25.0).trend(at(0.0), at(99.0), 25.0), Trend::Short);
        assert_eq!(Flow::default().trend(at(0.0), at(0.0), 0.0), Trend::Short);
    }
}
