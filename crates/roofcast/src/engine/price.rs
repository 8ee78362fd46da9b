//! The price of a step in ticks, so that sums over steps are exact integers.
//!
//! Knows: a step of decodes alone is affine in the total context, which allows the engine to leap; times that depend
//! only on the number of rows or of decodes are computed once. All times come from [`crate::timing`]. Knows nothing
//! about schedules.

use crate::batch::{Seen, Sequences};
use crate::clock::{TICKS_PER_PS, Ticks};
use crate::operator::{Operator, Rows};
use crate::shares::BottleneckShares;
use crate::step::{Contexts, Pass};
use crate::tally::Tally;
use crate::timing::Timing;
use std::borrow::Cow;

/// Ticks per second.
const TICKS: f64 = 1e12 * TICKS_PER_PS;
/// Rows of a step up to which prices are cached.
const MOST_ROWS: usize = 1 << 16;

/// The price of a step of `n` decodes: `fixed + attending(seen)`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decode {
    /// Context-independent ticks.
    pub fixed: u64,
    /// Ticks per token seen.
    slope: u64,
    /// Ticks per token seen within each reach.
    slopes: Vec<u64>,
    /// Context-independent time, split by bottleneck.
    shares: BottleneckShares<u64>,
}

impl Decode {
    #[cold]
    fn of(timing: &Timing, n: u64) -> Decode {
        let step = timing.decode(n);
        let shares = ticks(step.fixed);
        let whole = |slope: f64| (slope * TICKS).round() as u64;
        let slopes = step.slopes.into_iter().map(whole).collect();
        Decode { fixed: shares.total(), slope: whole(step.slope), slopes, shares }
    }

    /// Ticks for the tokens seen, or for their growth: `slope · all + Σ slopes[r] · within[r]`.
    #[inline(always)]
    pub(crate) fn attending(&self, seen: Seen) -> u64 {
        let mut ticks = self.slope * seen.all;
        for (slope, tokens) in self.slopes.iter().zip(seen.within) {
            ticks += slope * tokens;
        }
        ticks
    }
}

/// A deployment's prices.
#[derive(Debug, Clone)]
pub struct StepPrices {
    timing: Timing,
    /// True if some operator's attention is memory-bound, for the breakdown by bottleneck.
    slopes_memory: bool,
    /// Prices of decodes alone by their number, computed on first use.
    decodes: Vec<Option<Box<Decode>>>,
    /// Times of the GEMMs by computed rows, and by sampled rows.
    products: [Products; 2],
}

/// Times of GEMMs by rows, computed on first use; NaN before.
type Products = Vec<[f64; 2]>;

impl StepPrices {
    /// Prices in ticks for the times of `timing` in seconds.
    pub fn new(timing: Timing) -> StepPrices {
        let slopes_memory = timing.attention_is_memory_bound();
        StepPrices { timing, slopes_memory, decodes: Vec::new(), products: Default::default() }
    }

    /// Sliding windows of operators without full attention, in tokens.
    pub(crate) fn reaches(&self) -> &[u64] {
        &self.timing.model.reaches
    }

    /// The price of a step of `n` decodes.
    #[inline(always)]
    pub(crate) fn decode(&mut self, n: u64) -> &Decode {
        let index = n as usize;
        if self.decodes.len() <= index {
            self.decodes.resize(index + 1, None);
        }
        let timing = &self.timing;
        self.decodes[index].get_or_insert_with(|| Box::new(Decode::of(timing, n)))
    }

    /// The price of a step of `n` decodes that see `seen`, and of `chunks`.
    #[inline(always)]
    pub(crate) fn mixed(
        &mut self,
        n: u64,
        seen: Seen,
        chunks: &[Sequences],
    ) -> (Ticks, BottleneckShares<u64>) {
        let (timing, known) = (&self.timing, &mut self.products);
        let contexts = Contexts::Seen(seen);
        // One stage has one pass, and an iterator over a single pass took as long as its price.
        let shares = if timing.model.parallelism.pp == 1 {
            priced(timing, known, &timing.model.pass(n, contexts, Cow::Borrowed(chunks)))
        } else {
            let passes = timing.model.passes(n, contexts, chunks);
            passes
                .map(|pass| priced(timing, known, &pass))
                .max_by_key(BottleneckShares::total)
                .unwrap_or_default()
        };
        (Ticks::from(shares.total()), shares)
    }

    /// Time that computing `tokens` tokens of a prompt, up to `context`, adds to a step that runs anyway: a step of them
    /// alone, less a step of one token.
    pub(crate) fn prompt(&mut self, tokens: u64, context: u64) -> Ticks {
        if tokens < 2 {
            return Ticks::ZERO;
        }
        let mut alone = |new| self.mixed(0, Seen::default(), &[Sequences::prompt(new, context, false)]).0;
        let (all, one) = (alone(tokens), alone(1));
        Ticks(all.0.saturating_sub(one.0))
    }

    /// Time that LoRA adapters add to a step, for `tokens` that use `adapters` distinct adapters, each like
    /// `adapter`.
    pub(crate) fn adapters(&self, adapter: &Operator, adapters: u64, tokens: u64) -> BottleneckShares<u64> {
        let tokens = tokens.div_ceil(self.timing.model.parallelism.attention_dp);
        ticks(self.timing.adapters(adapter, adapters, tokens))
    }

    /// Bottleneck of a step of `n` decodes whose context-dependent part takes `attending`.
    pub(crate) fn bound(&mut self, n: u64, attending: u64) -> &'static str {
        let memory = self.slopes_memory;
        let mut shares = self.decode(n).shares;
        *(if memory { &mut shares.memory } else { &mut shares.compute }) += attending;
        shares.largest()
    }

    /// Time of a run by bottleneck.
    pub(crate) fn account(&mut self, tally: &Tally) -> BottleneckShares<Ticks> {
        let mut shares = tally.mixed;
        let memory = self.slopes_memory;
        // The time of decodes beyond their context-independent part is attention's.
        let mut attending = tally.decoding;
        for (n, steps) in tally.decodes.iter().enumerate().filter(|(_, steps)| **steps > 0) {
            let Decode { fixed, shares: by, .. } = self.decode(n as u64);
            let steps = u128::from(*steps);
            attending -= u128::from(*fixed) * steps;
            shares.memory += u128::from(by.memory) * steps;
            shares.compute += u128::from(by.compute) * steps;
            shares.communication += u128::from(by.communication) * steps;
            shares.host += u128::from(by.host) * steps;
        }
        *(if memory { &mut shares.memory } else { &mut shares.compute }) += attending;
        BottleneckShares {
            memory: Ticks(shares.memory),
            compute: Ticks(shares.compute),
            communication: Ticks(shares.communication),
            host: Ticks(shares.host),
        }
    }
}

/// Price of a pass in ticks.
#[inline(always)]
fn priced(timing: &Timing, [computed, sampled]: &mut [Products; 2], pass: &Pass) -> BottleneckShares<u64> {
    let computed = products(timing, computed, (Rows::Computed, pass.rows));
    let sampled = products(timing, sampled, (Rows::Sampled, pass.sampled));
    ticks(timing.pass(pass, [computed, sampled]))
}

/// Times of the GEMMs of `rows` rows, from the cache if known.
#[inline(always)]
fn products(timing: &Timing, met: &mut Products, (of, rows): (Rows, u64)) -> [f64; 2] {
    let index = rows as usize;
    match met.get(index) {
        Some(known) if !known[0].is_nan() => *known,
        _ => first_met(timing, met, (of, rows)),
    }
}

/// Computes and caches the times of the GEMMs of `rows` rows.
#[cold]
fn first_met(timing: &Timing, met: &mut Products, (of, rows): (Rows, u64)) -> [f64; 2] {
    let (index, products) = (rows as usize, timing.products(of, rows));
    if index < MOST_ROWS {
        if met.len() <= index {
            met.resize(index + 1, [f64::NAN; 2]);
        }
        met[index] = products;
    }
    products
}

fn ticks(seconds: BottleneckShares<f64>) -> BottleneckShares<u64> {
    seconds.scaled(TICKS).whole()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::Deployment;
    use crate::forecaster::Forecaster;
    use crate::spec::CostKind;
    use std::sync::Arc;

    fn llama_on_an_h100() -> Forecaster {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = crate::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
        let chip = catalog.accelerator("h100-sxm").unwrap().clone();
        let deployment = Deployment::resolve(model.into(), Arc::new(chip), &Default::default()).unwrap();
        Forecaster::embedded(deployment).unwrap()
    }

    /// 10 tokens at 2 ticks, and 4 within a window at 3: 20 + 12.
    #[test]
    fn contexts_and_windows_have_prices_of_their_own() {
        let decode = Decode { slope: 2, slopes: vec![3], ..Decode::default() };
        assert_eq!(decode.attending(Seen { all: 10, within: &[4] }), 32);
    }

    /// A step priced as a whole agrees with its affine form: it grows by its slope per token of context.
    #[test]
    fn a_step_grows_by_its_slope() {
        let timing = llama_on_an_h100().timing(CostKind::Forecast);
        for n in [1, 3, 16, 100, 700] {
            let step = |all| {
                let seen = Contexts::Seen(Seen { all, within: &[] });
                timing.step(timing.model.passes(n, seen, &[])).total()
            };
            let slope = timing.decode(n).slope;
            assert!(((step(2000) - step(1000)) / (1000.0 * slope) - 1.0).abs() < 1e-6, "{n} {slope}");
            assert!((step(0) / timing.decode(n).fixed.total() - 1.0).abs() < 1e-9);
        }
    }

    /// A token of Llama-3.1-8B's context has 2 · 32 · 8 · 128 values of two bytes, 131,072 bytes, which an H100 reads
    /// in 39.126 ns: three steps of two sequences that see 200, 202 and 204 tokens read 23.71 µs more than steps that
    /// see none.
    #[test]
    fn what_decodes_take_for_their_context_is_attentions() {
        let mut price = StepPrices::new(llama_on_an_h100().timing(CostKind::Limit));
        let Decode { fixed, slope, .. } = price.decode(2).clone();
        let took = |seen: [u64; 3]| seen.map(|seen| u128::from(fixed + slope * seen)).iter().sum();
        let mut account = |seen| {
            let mut tally = Tally::default();
            tally.decoded(2, 3, took(seen));
            price.account(&tally)
        };
        let (with, without) = (account([200, 202, 204]), account([0; 3]));
        let read = (with.memory - without.memory).seconds();
        assert!((read / (606.0 * 131_072.0 / 3.35e12) - 1.0).abs() < 1e-4, "{read}");
        assert_eq!((with.compute, with.host), (without.compute, without.host));
    }
}
