//! A histogram with fixed bounds, as in Prometheus.

/// Counts of values, by bound.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    bounds: Vec<f64>,
    /// Number of values in the bin below each bound; the last bin is beyond all bounds.
    bins: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(super) fn new(bounds: &[f64]) -> Histogram {
        Histogram { bounds: bounds.to_vec(), bins: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Creates a histogram with the bounds 1, 2, 5, 10, … up to `most`.
    pub(super) fn one_two_five(most: u64) -> Histogram {
        let decades = (0..16).map(|power| 10_u64.pow(power));
        let bounds = decades.flat_map(|decade| [decade, 2 * decade, 5 * decade]).take_while(|b| *b <= most);
        Histogram::new(&bounds.map(|b| b as f64).collect::<Vec<_>>())
    }

    pub(super) fn add(&mut self, value: f64) {
        let bin = self.bounds.partition_point(|bound| *bound < value);
        self.bins[bin] += 1;
        self.sum += value;
    }

    /// Each bound with the number of values up to it; the last entry has no bound and counts all values.
    pub(super) fn cumulated(&self) -> impl Iterator<Item = (Option<f64>, u64)> + '_ {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.bins.iter().scan(0, |sum, bin| {
            *sum += bin;
            Some(*sum)
        }))
    }

    /// Sum of two histograms with equal bounds.
    pub(super) fn plus(&self, other: &Histogram) -> Histogram {
        let bins = self.bins.iter().zip(&other.bins).map(|(one, two)| one + two).collect();
        Histogram { bounds: self.bounds.clone(), bins, sum: self.sum + other.sum }
    }

    pub(super) fn count(&self) -> u64 {
        self.bins.iter().sum()
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_within_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        [0.5, 1.0, 1.5, 2.0, 9.0].into_iter().for_each(|v| histogram.add(v));
        let all: Vec<_> = histogram.cumulated().collect();
        assert_eq!(all, [(Some(1.0), 2), (Some(2.0), 4), (None, 5)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 14.0));
        assert_eq!(Histogram::one_two_five(4096).bounds.last(), Some(&2000.0));
    }
}
