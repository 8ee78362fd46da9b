//! The price of a step in ticks: integers, so that sums over steps are exact.
//!
//! Knows: the time of a step that only decodes is affine in the total context, which allows the engine to leap; times
//! that depend only on the number of rows or of decodes are computed once. All times come from [`roofcast_cost::timing`]. Knows
//! nothing about schedules.

mod book;
mod table;

use crate::tally::Tally;
pub use book::PriceBook;
use roofcast_cost::operator::{AdaptedTokens, Rows};
use roofcast_cost::step::{Contexts, Pass};
use roofcast_cost::timing::{AffineStep, Timing};
use roofcast_facts::batch::{Seen, Sequences};
use roofcast_facts::clock::{TICKS_PER_PS, Ticks, sum_of_run};
use roofcast_facts::shares::BottleneckShares;
use std::borrow::Cow;
use std::sync::Arc;
use table::Table;

/// Ticks per second.
const TICKS: f64 = 1e12 * TICKS_PER_PS;
/// The price of a step of `n` decodes in ticks: `fixed + attending(seen)`, at least `floor`.
#[derive(Debug, Clone, Default)]
pub struct Decode {
    /// Ticks that do not depend on the context.
    fixed: u64,
    /// Least ticks of the step: the engine's loop or its server.
    floor: u64,
    /// True if the floor is the server's.
    server: bool,
    /// Ticks per token of context that full attention reads.
    slope: u64,
    /// Ticks per token of context that lies within each window; one value for each of [`StepPrices::reaches`].
    slopes: Vec<u64>,
    /// Ticks of either half of the times by context that exchanges of tokens hide.
    hidden: [u64; 2],
    /// Time that does not depend on the context, split by bottleneck.
    shares: BottleneckShares<u64>,
}

/// Equal steps of decodes one after the other, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeSteps {
    /// Ticks of the first step.
    pub first: u64,
    /// Ticks by which each step is longer than the one before.
    pub growth: u64,
    /// Number of steps, from one, for which the growth holds.
    pub most: u64,
    /// Ticks of the device in the first step, and their growth.
    busy: [u64; 2],
    /// True if the steps last as long as the server's messages, false if as long as the engine's loop; `None` if the device
    /// determines them.
    paced: Option<bool>,
}

impl DecodeSteps {
    /// One step of `ticks`.
    pub(super) fn single(ticks: u64) -> DecodeSteps {
        DecodeSteps { first: ticks, growth: 0, most: 1, busy: [ticks, 0], paced: None }
    }

    /// Ticks of `steps` steps by bottleneck, if host or server determine their length.
    pub(super) fn paced(&self, steps: u64) -> Option<BottleneckShares<u128>> {
        let [busy, growth] = self.busy;
        let time = sum_of_run(self.first, self.growth, steps);
        let overlapped = sum_of_run(busy, growth, steps);
        self.paced.map(|server| BottleneckShares::paced(server, time, overlapped))
    }
}

impl Decode {
    #[cold]
    pub(super) fn of(step: AffineStep) -> Decode {
        let shares = ticks(step.fixed);
        let whole = |slope: f64| (slope * TICKS).round() as u64;
        let slopes = step.slopes.into_iter().map(whole).collect();
        Decode {
            fixed: shares.total(),
            floor: whole(step.floor.seconds),
            server: step.floor.server,
            slope: whole(step.slope),
            slopes,
            hidden: step.hidden.map(whole),
            shares,
        }
    }

    /// Ticks of a step whose sequences see `seen` tokens of context.
    #[inline(always)]
    pub fn time(&self, seen: Seen) -> u64 {
        (self.fixed + self.attending(seen)).max(self.floor)
    }

    /// Steps whose context is `seen` in the first and grows by `growth` in each.
    #[inline(always)]
    pub fn steps(&self, seen: Seen, growth: Seen) -> DecodeSteps {
        let busy = self.fixed + self.attending(seen);
        let grows = self.reading(growth);
        let paced = (busy <= self.floor).then_some(self.server);
        if self.hidden != [0; 2] {
            return DecodeSteps { busy: [busy, 0], paced, ..DecodeSteps::single(busy.max(self.floor)) };
        }
        if paced.is_none() {
            return DecodeSteps { first: busy, growth: grows, most: u64::MAX, busy: [busy, grows], paced };
        }
        let most = (self.floor - busy).checked_div(grows).map_or(u64::MAX, |steps| steps + 1);
        DecodeSteps { first: self.floor, growth: 0, most, busy: [busy, grows], paced }
    }

    /// Time of a step whose sequences see `seen` tokens of context, by bottleneck; attention is memory-bound if `memory`.
    pub(super) fn shares(&self, seen: Seen, memory: bool) -> BottleneckShares<u64> {
        let mut shares = self.shares;
        let attending = self.attending(seen);
        let busy = self.fixed + attending;
        if busy <= self.floor {
            return BottleneckShares::paced(self.server, self.floor, busy);
        }
        *(if memory { &mut shares.memory } else { &mut shares.compute }) += attending;
        shares
    }

    /// Ticks in which attention reads tokens of context, or their growth: `slope · all + Σ slopes[r] · within[r]`.
    #[inline(always)]
    fn reading(&self, seen: Seen) -> u64 {
        let windows = self.slopes.iter().zip(seen.within).map(|(slope, tokens)| slope * tokens);
        self.slope * seen.all + windows.sum::<u64>()
    }

    /// Ticks in which attention reads tokens of context, beyond the hidden ones.
    #[inline(always)]
    fn attending(&self, seen: Seen) -> u64 {
        let ticks = self.reading(seen);
        if self.hidden == [0; 2] {
            return ticks;
        }
        let halves = [ticks / 2, ticks - ticks / 2];
        halves.iter().zip(self.hidden).map(|(half, hidden)| half.saturating_sub(hidden)).sum()
    }
}

/// Equal steps that several data-parallel ranks take together.
#[derive(Debug, Clone, Copy)]
pub(super) struct JointSteps {
    /// Number of steps.
    pub(super) count: u64,
    /// Time of the first step in ticks, by bottleneck.
    pub(super) shares: BottleneckShares<u64>,
    /// Ticks by which each step is longer than the one before.
    pub(super) growth: u64,
    /// Tokens of all ranks whose requests name LoRA adapters.
    pub(super) adapted: AdaptedTokens,
}

/// The price of steps that is set from outside.
#[derive(Debug, Clone)]
struct Imposed {
    decode: Decode,
    steps: JointSteps,
}

/// Prices of a deployment's steps. Clones share what they compute, so that equal replicas compute it once, and so do the runs of
/// a [`PriceBook`].
#[derive(Debug, Clone)]
pub struct StepPrices {
    timing: Arc<Timing>,
    /// True if the attention of some operator is memory-bound; decides the bottleneck to which context-dependent time
    /// counts.
    slopes_memory: bool,
    /// Price of the next step, if it is set from outside because other data-parallel ranks take part in the step.
    imposed: Option<Imposed>,
    /// Prices of steps of decodes alone, by the number of decodes.
    decodes: Table<Box<Decode>>,
    /// Price of the last step of more decodes than a table has places.
    many: Option<Box<Decode>>,
    /// Times of the GEMMs by the number of computed rows, and by the number of sampled rows.
    products: [Products; 2],
}

/// Times of GEMMs by rows.
pub(super) type Products = Table<[f64; 2]>;

impl StepPrices {
    /// Prices in ticks from the times of `timing`, which are in seconds.
    pub fn new(timing: Timing) -> StepPrices {
        let slopes_memory = timing.attention_is_memory_bound();
        StepPrices {
            timing: Arc::new(timing),
            slopes_memory,
            imposed: None,
            decodes: Table::default(),
            many: None,
            products: Default::default(),
        }
    }

    /// Times of the steps, and the tables of their GEMMs, for steps that several ranks take together.
    pub(super) fn shared(&self) -> (Arc<Timing>, [Products; 2]) {
        (Arc::clone(&self.timing), self.products.clone())
    }

    /// Sets the price of every step until the next call, in ticks by bottleneck; `None` lets steps be priced again.
    pub(super) fn impose(&mut self, price: Option<JointSteps>) {
        self.imposed = price.map(|steps| {
            let shares = steps.shares;
            Imposed { decode: Decode { fixed: shares.total(), shares, ..Decode::default() }, steps }
        });
    }

    /// The steps whose price is set from outside.
    #[inline(always)]
    pub(super) fn joint(&self) -> Option<JointSteps> {
        self.imposed.as_ref().map(|imposed| imposed.steps)
    }

    /// Sliding windows of the operators without full attention, in tokens.
    pub fn reaches(&self) -> &[u64] {
        &self.timing.model.reaches
    }

    /// The price of a step of `n` decodes.
    #[inline(always)]
    pub fn decode(&mut self, n: u64) -> &Decode {
        if let Some(imposed) = &self.imposed {
            return &imposed.decode;
        }
        let timing = &self.timing;
        let priced = || Box::new(Decode::of(timing.decode(n)));
        match self.decodes.place(n) {
            Some(known) => known.get_or_init(priced),
            None => self.many.insert(priced()),
        }
    }

    /// The price of a step with `n` decodes that read the context `seen`, and with `chunks` of prompts.
    #[inline(always)]
    pub fn mixed(&mut self, n: u64, seen: Seen, chunks: &[Sequences]) -> (Ticks, BottleneckShares<u64>) {
        match &self.imposed {
            Some(imposed) => (Ticks::from(imposed.decode.fixed), imposed.decode.shares),
            None => self.of_alone(n, seen, chunks),
        }
    }

    /// The price that [`StepPrices::mixed`] computes for a step in which no other rank takes part.
    #[inline(always)]
    fn of_alone(&mut self, n: u64, seen: Seen, chunks: &[Sequences]) -> (Ticks, BottleneckShares<u64>) {
        let timing = &self.timing;
        let known = &self.products;
        let contexts = Contexts::Seen(seen);
        // A deployment with one microbatch has one pass; an iterator over a single pass took as long as pricing the pass.
        let shares = if timing.model.stages.microbatches == 1 {
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

    /// Time that `tokens` prompt tokens, up to `context`, add to a step that runs anyway: a step of these tokens alone,
    /// less a step of one token.
    pub(crate) fn prompt(&mut self, tokens: u64, context: u64) -> Ticks {
        if tokens < 2 {
            return Ticks::ZERO;
        }
        let mut alone = |new| self.of_alone(0, Seen::default(), &[Sequences::prompt(new, context, false)]).0;
        let all = alone(tokens);
        let single = alone(1);
        Ticks(all.0.saturating_sub(single.0))
    }

    /// Time that LoRA adapters add to a step for the tokens `adapted`: of this rank if the price is set from outside, else
    /// of all ranks, which are equally busy.
    pub(crate) fn adapters(&self, adapted: AdaptedTokens) -> BottleneckShares<u64> {
        let ranks = self.timing.model.parallelism.attention_dp;
        let equal = || AdaptedTokens { tokens: adapted.tokens.div_ceil(ranks), ..adapted };
        ticks(match self.joint() {
            Some(steps) => self.timing.adapters(adapted, steps.adapted),
            None => self.timing.adapters(equal(), adapted),
        })
    }

    /// Bottleneck of a step of `n` decodes whose sequences see `seen` tokens of context.
    pub(crate) fn bound(&mut self, n: u64, seen: Seen) -> &'static str {
        let memory = self.slopes_memory;
        self.decode(n).shares(seen, memory).largest()
    }

    /// Time of a whole run, split by bottleneck.
    pub(crate) fn account(&mut self, tally: &Tally) -> BottleneckShares<Ticks> {
        let mut shares = tally.mixed;
        let memory = self.slopes_memory;
        // The time of decodes beyond the part that does not depend on the context is the time of attention.
        let mut attending = tally.decoding;
        for (n, steps) in tally.decodes.iter().enumerate().filter(|(_, steps)| **steps > 0) {
            let Decode { fixed, shares: by, .. } = self.decode(n as u64);
            let steps = u128::from(*steps);
            attending -= u128::from(*fixed) * steps;
            shares = shares.plus(by.map(|part| u128::from(part) * steps));
        }
        *(if memory { &mut shares.memory } else { &mut shares.compute }) += attending;
        shares.map(Ticks)
    }
}

/// Price of one forward pass in ticks.
#[inline(always)]
pub(super) fn priced(
    timing: &Timing,
    [computed, sampled]: &[Products; 2],
    pass: &Pass,
) -> BottleneckShares<u64> {
    let computed = products(timing, computed, (Rows::Computed, pass.rows));
    let sampled = products(timing, sampled, (Rows::Sampled, pass.sampled));
    ticks(timing.pass(pass, [computed, sampled]))
}

/// Times of the GEMMs with `rows` rows, from the table if they are known.
#[inline(always)]
fn products(timing: &Timing, known: &Products, (kind, rows): (Rows, u64)) -> [f64; 2] {
    match known.place(rows) {
        Some(place) => *place.get_or_init(|| timing.products(kind, rows)),
        None => timing.products(kind, rows),
    }
}

fn ticks(seconds: BottleneckShares<f64>) -> BottleneckShares<u64> {
    seconds.scaled(TICKS).whole()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::Deployment;
    use roofcast_ask::spec::CostKind;
    use roofcast_cost::forecaster::Forecaster;

    fn llama_on_an_h100() -> Forecaster {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = roofcast_facts::model::config::read(&entry.id, "catalog", &entry.config).unwrap();
        let chip = catalog.accelerator("h100-sxm").unwrap().clone();
        let deployment = Deployment::resolve(model.into(), Arc::new(chip), &Default::default()).unwrap();
        Forecaster::embedded(deployment).unwrap()
    }

    /// 10 tokens at 2 ticks each, and 4 tokens within a window at 3 ticks each: 20 + 12.
    #[test]
    fn contexts_and_windows_have_prices_of_their_own() {
        let decode = Decode { slope: 2, slopes: vec![3], ..Decode::default() };
        assert_eq!(decode.attending(Seen { all: 10, within: &[4] }), 32);
    }

    /// 100 ticks beside attention and 2 a token of context, on a host that takes 120: with 4 tokens in the first step and one more
    /// in each, the device takes 108, 110, …, 120 ticks of 120 in seven steps, all of which the host determines; then each step takes
    /// two ticks more, and the device determines it.
    #[test]
    fn a_step_takes_at_least_the_host_s_time() {
        let decode = Decode { fixed: 100, floor: 120, slope: 2, ..Decode::default() };
        let seen = |all| Seen { all, within: &[] };
        let steps = decode.steps(seen(4), seen(1));
        assert_eq!((steps.first, steps.growth, steps.most), (120, 0, 7));
        let loop_bound = |steps: u128, busy| Some(BottleneckShares::paced(false, 120 * steps, busy));
        assert_eq!(steps.paced(1), loop_bound(1, 108));
        assert_eq!(steps.paced(7), loop_bound(7, 108 + 110 + 112 + 114 + 116 + 118 + 120));
        let later = decode.steps(seen(11), seen(1));
        assert_eq!((later.first, later.growth, later.most, later.paced(9)), (122, 2, u64::MAX, None));
        assert_eq!((4..12).map(|all| decode.time(seen(all))).max(), Some(122));
        assert_eq!(decode.shares(seen(4), true), BottleneckShares::paced(false, 120, 108));
        let served = Decode { server: true, ..decode };
        assert_eq!(served.shares(seen(4), true).largest(), "server");
    }

    /// The price of a whole step agrees with its affine form: it grows by the slope per token of context.
    #[test]
    fn a_step_grows_by_its_slope() {
        let timing = llama_on_an_h100().timing(CostKind::Forecast);
        for n in [1, 3, 16, 100, 700] {
            let step = |all| {
                let seen = Contexts::Seen(Seen { all, within: &[] });
                timing.step(timing.model.passes(n, seen, &[])).total()
            };
            let slope = timing.decode(n).slope;
            let [near, far] = [10_000_000, 20_000_000];
            assert!(((step(far) - step(near)) / (1e7 * slope) - 1.0).abs() < 1e-6, "{n} {slope}");
            let none = timing.decode(n);
            assert!((step(0) / none.fixed.total().max(none.floor.seconds) - 1.0).abs() < 1e-9);
        }
    }

    /// One token of Llama-3.1-8B's context has 2 · 32 · 8 · 128 values of two bytes, 131,072 bytes, which an H100 reads
    /// in 39.126 ns: three steps of two sequences with contexts of 200, 202 and 204 tokens in total take 23.71 µs more
    /// than three steps without context.
    #[test]
    fn what_decodes_take_for_their_context_is_attentions() {
        let mut price = StepPrices::new(llama_on_an_h100().timing(CostKind::Limit));
        let Decode { fixed, slope, .. } = price.decode(2).clone();
        let took = |seen: [u64; 3]| seen.map(|seen| u128::from(fixed + slope * seen)).iter().sum();
        let mut account = |seen| {
            let mut tally = Tally::default();
            tally.decoded(2, 3, took(seen), None);
            price.account(&tally)
        };
        let with = account([200, 202, 204]);
        let without = account([0; 3]);
        let read = (with.memory - without.memory).seconds();
        assert!((read / (606.0 * 131_072.0 / 3.35e12) - 1.0).abs() < 1e-4, "{read}");
        assert_eq!((with.compute, with.host), (without.compute, without.host));
    }
}
