//! A distribution of time spans, in bins so narrow that a quantile is off by less than 0.1 %, in bounded memory.
//!
//! Knows: a bin is a 512th of an octave: the exponent and the upper nine bits of the mantissa of a float. Sums are
//! exact. Knows nothing about the meaning of spans.

use roofcast_ask::spec::Percentile;
use roofcast_ask::summary::Statistics;
use roofcast_facts::clock::{TICKS_PER_PS, Ticks, sum_of_run};
use roofcast_facts::units::float;

/// Number of bits of the mantissa that index a bin.
const BITS: u32 = 9;
const LOWER: u32 = 52 - BITS;

/// Distribution of weighted time spans.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    count: u64,
    sum: u128,
    /// Index of the first stored bin.
    first: usize,
    bins: Vec<u64>,
}

fn bin(span: Ticks) -> usize {
    (float(span.0).to_bits() >> LOWER) as usize
}

/// Smallest span of a bin, in ticks.
fn floor(bin: usize) -> f64 {
    f64::from_bits((bin as u64) << LOWER)
}

/// Rounds `ticks` up to a whole number.
fn ceil(ticks: f64) -> u64 {
    let whole = ticks as u64;
    whole + u64::from((whole as f64) < ticks)
}

impl Distribution {
    /// Adds a span `weight` times.
    #[inline(always)]
    pub(crate) fn add(&mut self, span: Ticks, weight: u64) {
        if weight == 0 {
            return;
        }
        self.count += weight;
        self.sum += span.0 * u128::from(weight);
        *self.slot(bin(span)) += weight;
    }

    /// Adds the spans of `steps` steps, `first`, `first + growth`, and so on, each `weight` times.
    #[inline(always)]
    pub(crate) fn add_run(&mut self, first: u64, growth: u64, steps: u64, weight: u64) {
        if weight == 0 || steps == 0 {
            return;
        }
        self.count += weight * steps;
        self.sum += sum_of_run(first, growth, steps) * u128::from(weight);
        let last = first + growth * (steps - 1);
        let first_bin = bin(Ticks::from(first));
        if first_bin == bin(Ticks::from(last)) {
            *self.slot(first_bin) += weight * steps;
        } else {
            self.spread(first, growth, steps, weight);
        }
    }

    /// Adds the spans of a run of steps, bin by bin.
    fn spread(&mut self, first: u64, growth: u64, steps: u64, weight: u64) {
        let mut at = first;
        let mut left = steps;
        while left > 0 {
            let bin = bin(Ticks::from(at));
            // Number of steps whose spans are below the next bin.
            let here =
                if left == 1 { left } else { (ceil(floor(bin + 1)) - at).div_ceil(growth).max(1).min(left) };
            *self.slot(bin) += weight * here;
            at += growth * here;
            left -= here;
        }
    }

    /// Adds all spans of another distribution.
    pub(crate) fn merge(&mut self, other: &Distribution) {
        if self.count == 0 {
            *self = other.clone();
            return;
        }
        self.count += other.count;
        self.sum += other.sum;
        for (index, weight) in other.bins.iter().enumerate().filter(|(_, w)| **w > 0) {
            *self.slot(other.first + index) += weight;
        }
    }

    #[inline(always)]
    fn slot(&mut self, bin: usize) -> &mut u64 {
        if bin.wrapping_sub(self.first) >= self.bins.len() {
            self.make_room(bin);
        }
        &mut self.bins[bin - self.first]
    }

    #[cold]
    fn make_room(&mut self, bin: usize) {
        if self.bins.is_empty() {
            self.first = bin;
        }
        if bin < self.first {
            // Room for one octave is reserved in front, so that a falling series does not move all bins with each
            // span.
            let first = bin.saturating_sub(1 << BITS);
            self.bins.splice(0..0, std::iter::repeat_n(0, self.first - first));
            self.first = first;
        }
        let bin_count = self.bins.len().max(bin - self.first + 1);
        self.bins.resize(bin_count, 0);
    }

    /// Number of spans.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The `q` quantile in milliseconds: the middle of the bin that contains it.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.count.saturating_sub(1) as f64) as u64;
        let mut below = 0;
        for (index, weight) in self.bins.iter().enumerate() {
            below += weight;
            if below > rank {
                let bin = self.first + index;
                return (floor(bin) + floor(bin + 1)) / 2.0 / (TICKS_PER_PS * 1e9);
            }
        }
        0.0
    }

    /// Exact mean, standard deviation and quantiles in milliseconds.
    pub(crate) fn statistics(&self) -> Statistics {
        if self.count == 0 {
            return Statistics::default();
        }
        let unit = TICKS_PER_PS * 1e9;
        let mean = self.sum as f64 / self.count as f64 / unit;
        let squares: f64 = self
            .bins
            .iter()
            .enumerate()
            .map(|(i, w)| {
                let bin = self.first + i;
                let middle = (floor(bin) + floor(bin + 1)) / 2.0 / unit;
                *w as f64 * (middle - mean).powi(2)
            })
            .sum();
        let [median, p90, p95, p99, p999] = Percentile::ALL.map(|p| self.quantile(p.share()));
        Statistics {
            count: self.count,
            mean,
            median,
            std: (squares / self.count as f64).sqrt(),
            p90,
            p95,
            p99,
            p999,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_facts::units::Picoseconds;

    #[test]
    fn a_run_is_its_steps_one_by_one() {
        for (first, growth, steps) in
            [(1_000_000, 7, 5_000), (655_360_000_000, 1_000_003, 900), (5, 0, 3), (1, 1, 40)]
        {
            let mut run = Distribution::default();
            let mut single = Distribution::default();
            run.add_run(first, growth, steps, 3);
            (0..steps).for_each(|k| single.add(Ticks::from(first + growth * k), 3));
            assert_eq!(run, single);
        }
    }

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut d = Distribution::default();
        // Spans from 1 to 1000 ms.
        let ms = |ms: u64| Ticks::from(Picoseconds(ms * 1_000_000_000));
        (1..=1000).rev().for_each(|n| d.add(ms(n), 1));
        let s = d.statistics();
        for (found, exact) in [(s.median, 500.0), (s.p99, 990.0), (s.mean, 500.5), (s.std, 288.675)] {
            assert!((found / exact - 1.0).abs() < 1e-3, "{found} {exact}");
        }
        // The ticks of a week exceed 64 bits.
        let mut long = Distribution::default();
        long.add(ms(7 * 86_400_000), 3);
        assert!(
            (long.quantile(0.5) / 604_800_000.0 - 1.0).abs() < 1e-3
                && long.statistics().mean == 604_800_000.0
        );
    }
}
