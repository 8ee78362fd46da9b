//! Values of one metric of a run, in bounded memory.
//!
//! Knows: values stored singly while they are few, in bins beyond. Knows nothing about requests.

use crate::tally::distribution::Distribution;
use roofcast_ask::summary::Statistics;
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;
use std::borrow::Cow;

/// Values of one metric: stored singly while they are few, in bins beyond.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    few: Vec<Ticks>,
    many: Option<Distribution>,
}

/// Most values that are stored singly.
const FEW: usize = 10_000;

impl FromIterator<Picoseconds> for Sample {
    fn from_iter<I: IntoIterator<Item = Picoseconds>>(values: I) -> Sample {
        let mut sample = Sample::default();
        values.into_iter().for_each(|value| sample.add(Ticks::from(value)));
        sample
    }
}

impl Sample {
    #[inline(always)]
    pub(super) fn add(&mut self, span: Ticks) {
        match &mut self.many {
            Some(bins) => bins.add(span, 1),
            None => self.add_to_few(span),
        }
    }

    #[inline(never)]
    fn add_to_few(&mut self, span: Ticks) {
        self.few.push(span);
        if self.few.len() > FEW {
            let mut bins = Distribution::default();
            self.few.drain(..).for_each(|t| bins.add(t, 1));
            self.many = Some(bins);
        }
    }

    /// Puts the single values in ascending order, so that quantiles and sums are found without another sort.
    pub(super) fn sort(&mut self) {
        self.few.sort_unstable();
    }

    /// The single values in ascending order.
    fn ascending(&self) -> Cow<'_, [Ticks]> {
        if self.few.is_sorted() {
            return Cow::Borrowed(&self.few);
        }
        let mut few = self.few.clone();
        few.sort_unstable();
        Cow::Owned(few)
    }

    /// The value in milliseconds that a fraction `share` of the values does not exceed; 0 without values.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        match &self.many {
            Some(bins) => bins.quantile(share),
            None => {
                let rank = (share * self.few.len().saturating_sub(1) as f64).round() as usize;
                self.ascending().get(rank).map_or(0.0, |t| t.ms())
            }
        }
    }

    /// Cumulative distribution in `count` even steps, each a value and the fraction of values that do not exceed it;
    /// empty without values.
    pub fn shares(&self, count: usize) -> Vec<(f64, f64)> {
        let few = self.ascending();
        let value = |step: usize| match &self.many {
            Some(bins) => Some(bins.quantile(step as f64 / count as f64)),
            None => few.get((step * few.len()).div_ceil(count).saturating_sub(1)).map(|t| t.ms()),
        };
        (1..=count).filter_map(|step| Some((value(step)?, step as f64 / count as f64))).collect()
    }

    /// Statistics of the values: exact while they are few; quantiles are within 0.1 % beyond.
    pub(crate) fn statistics(&self) -> Statistics {
        match &self.many {
            Some(bins) => bins.statistics(),
            // Sums are of ascending values, so that they do not depend on the order of the replicas.
            None => Statistics::of_ascending(&self.ascending().iter().map(|t| t.ms()).collect::<Vec<f64>>()),
        }
    }
}
