//! The price of a step from a few sums, flattened out of the cost model once per deployment.
//!
//! Knows: every operator's FLOPs and bytes are linear in rows, in query-key pairs and in the tokens that a sequence
//! still sees of its context; their coefficients are read off [`crate::operator::work`] by probing it, so that there is
//! one cost model. A step of decodes alone is affine in the total context, which is what lets the engine leap. Ticks are
//! 2⁻⁸ ps, so that sums over steps are exact integers. Knows nothing about schedules.
//!
//! Pipeline stages work on as many microbatches at once as there are stages, each with an equal part of the decodes and
//! every pp-th piece of a prompt. All have computed once when the longest has passed through all stages: shorter ones
//! wait for it, as do stages without a microbatch where there are too few sequences. With equal stages and microbatches
//! that is exact; one prompt's pieces in several microbatches at once are not modelled.

mod ladder;
mod load;
mod op;
mod probe;
mod shares;

use super::clock::{TICKS_PER_PS, Ticks};
use crate::cost::circumstances;
use crate::deployment::Deployment;
use crate::efficiency::{Figure, tiled, waiting};
use crate::operator::collective::communication;
use crate::operator::{Batch, Work};
use crate::spec::CostKind;
use crate::units::Picoseconds;
use ladder::Ladder;
use load::Load;
use op::{Kind, Op};
use probe::Probe;
pub use shares::Shares;
use std::borrow::Cow;

/// A piece of a prompt in a step, or a token and drafts that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Tokens that it computes.
    pub new: u32,
    /// Tokens that the sequence has then, the new ones among them.
    pub context: u32,
    /// Rows of it that are sampled: one where it ends what the sequence has to compute first, all where it verifies drafts.
    pub sampled: u32,
}

impl Chunk {
    /// Whether it is of a prompt, if only of one token.
    fn is_prompt(&self) -> bool {
        self.new > self.sampled.max(1) || self.new == self.context
    }
}

/// The price of a step of `n` decodes: `fixed + Σ slope[r] · seen[r]`.
#[derive(Debug, Clone, Default)]
pub struct Decode {
    /// Whatever the context.
    pub fixed: u64,
    /// Per token seen, by reach.
    pub slope: Vec<u64>,
    /// What of `fixed` is bound by what.
    pub shares: Shares<u64>,
}

/// A deployment's prices.
#[derive(Debug, Clone)]
pub struct Price {
    deployment: Deployment,
    /// Operators that every row of every step passes.
    ladder: Ladder,
    /// The same from so many rows on, where their weights are unpacked first, and the ticks of that.
    unpacked: Option<(u64, Ladder, f64)>,
    /// The others.
    ops: Vec<Op>,
    /// Whether rows are computed in whole tiles: not at the limit.
    in_tiles: bool,
    /// Time of the calls of all operators.
    calls: f64,
    /// Tokens of context beyond which operators see no more, ascending; the last is no bound.
    reaches: Vec<u64>,
    /// Whether the attention of some operator is bound by memory, for the shares.
    slopes_memory: bool,
    /// Whether every chunk's attention has a closed form here.
    closed: bool,
    /// Ticks per token on the links.
    link: f64,
    /// Ticks a step, a step with prompts, one in which prompts end, a sequence and a token, beside the operators.
    step: f64,
    prefill: f64,
    ending: f64,
    sequence: f64,
    token: f64,
    /// Ticks of a token of the replica at the experts.
    routed: f64,
    /// Ticks of the host's launches, which everything but attention hides.
    launches: f64,
    /// Prices of decodes alone by their number, as they are met.
    decodes: Vec<Option<Box<Decode>>>,
}

impl Price {
    /// Flattens `deployment`'s cost model.
    pub fn new(deployment: &Deployment, cost: CostKind) -> Price {
        let probe = Probe { deployment };
        let reaches = probe.reaches();
        let efficiency = match cost {
            CostKind::Limit => None,
            CostKind::Forecast => Some(&*deployment.efficiency),
        };
        let flattened = |works: &[Work]| -> Vec<Op> {
            works.iter().enumerate().map(|(i, work)| probe.op(i, work, &reaches, efficiency)).collect()
        };
        let ops = flattened(&probe.decode(1, 1));
        let unpacked = efficiency.and_then(|e| {
            let from = e.dequantizes_from?;
            let works = probe.decode(from, 1);
            let unpacking: Picoseconds = works.iter().map(|w| e.unpacking(w, deployment.bandwidth())).sum();
            Some((from, Ladder::new(&flattened(&works)), unpacking.0 as f64 * TICKS_PER_PS))
        });
        let tokens = 1 << 16;
        let ranks = deployment.parallelism.replicas * deployment.parallelism.attention_dp;
        let sent = communication(deployment, &Batch::decode(tokens * ranks, 1));
        let ticks = |t: Picoseconds| t.0 as f64 * TICKS_PER_PS;
        let overhead =
            efficiency.map(|e| e.overhead(&circumstances(deployment, sent.all_reduces))).unwrap_or_default();
        let link = efficiency.map_or(1.0, |e| e.figures.get(Figure::Link));
        let closed = ops.iter().all(|op| !matches!(op.kind, Kind::Attend { closed: None, .. }));
        let slopes_memory = ops.iter().any(|op| match &op.kind {
            Kind::Attend { terms, .. } => terms.iter().any(|[f, b]| b * op.memory > f * op.compute),
            _ => false,
        });
        Price {
            deployment: deployment.clone(),
            ladder: Ladder::new(&ops),
            unpacked,
            in_tiles: efficiency.is_some(),
            calls: ops.iter().map(|op| op.layers * op.call).sum(),
            ops: ops.into_iter().filter(|op| !matches!(op.kind, Kind::Rows { sampled: false, .. })).collect(),
            reaches,
            slopes_memory,
            closed,
            link: ticks(sent.total()) / link / tokens as f64,
            step: ticks(overhead.step),
            prefill: ticks(overhead.prefill),
            ending: ticks(overhead.ending),
            sequence: ticks(overhead.sequence),
            token: overhead.token * 1e12 * TICKS_PER_PS,
            routed: overhead.routed * 1e12 * TICKS_PER_PS,
            launches: ticks(overhead.launches),
            decodes: Vec::new(),
        }
    }

    /// Tokens of context beyond which operators see no more; the last is no bound.
    pub fn reaches(&self) -> &[u64] {
        &self.reaches
    }

    /// The price of a step of `n` decodes.
    pub fn decode(&mut self, n: u64) -> &Decode {
        let index = n as usize;
        if self.decodes.len() <= index {
            self.decodes.resize(index + 1, None);
        }
        if self.decodes[index].is_none() {
            self.decodes[index] = Some(Box::new(self.price_decodes(n)));
        }
        // Filled just above; the empty price stands in for the impossible.
        self.decodes[index].get_or_insert_default()
    }

    fn price_decodes(&self, n: u64) -> Decode {
        let mut shares = Shares::<f64>::default();
        let mut attention = Shares::<f64>::default();
        let share = self.share(n);
        let one = self.microbatch(n);
        self.add_products(self.rows(one), &mut shares);
        let mut slope = vec![0.0; self.reaches.len()];
        for op in &self.ops {
            self.add(op, one, &[], if op.attends() { &mut attention } else { &mut shares }, None);
            if let Kind::Attend { terms, .. } = &op.kind {
                for (slope, [flops, bytes]) in slope.iter_mut().zip(terms) {
                    *slope += op.layers * op.time(*flops, *bytes).iter().sum::<f64>() * share;
                }
            }
        }
        self.add_overheads(one, self.rows(one), &mut shares);
        shares.memory += self.routed * one as f64;
        shares.host += waiting(shares.total(), self.launches);
        let shares = shares.plus(attention).whole();
        Decode {
            fixed: shares.total(),
            slope: slope.into_iter().map(|s: f64| s.round() as u64).collect(),
            shares,
        }
    }

    /// The price of a step of `n` decodes that see `seen` tokens within each reach, and of `chunks`.
    pub fn mixed(&self, n: u64, seen: &[u64], chunks: &[Chunk]) -> (Ticks, Shares<u64>) {
        let stages = self.deployment.parallelism.pp as usize;
        let shares = if stages == 1 {
            self.passed(n, seen, chunks)
        } else {
            let dealt = |k: usize| chunks.iter().skip(k).step_by(stages).copied().collect::<Vec<_>>();
            let all = (0..stages).map(|k| self.passed(n, seen, &dealt(k)));
            all.max_by_key(Shares::total).unwrap_or_default()
        };
        (Ticks::from(shares.total()), shares)
    }

    /// What a microbatch with its part of the `n` decodes and with `chunks` takes through all stages.
    fn passed(&self, n: u64, seen: &[u64], chunks: &[Chunk]) -> Shares<u64> {
        let mut shares = Shares::<f64>::default();
        let busiest = self.busiest(chunks);
        let probed =
            if self.closed { Vec::new() } else { Probe { deployment: &self.deployment }.chunks(&busiest) };
        let new: u64 = chunks.iter().map(|c| u64::from(c.new)).sum();
        let sampled = chunks.iter().map(|c| u64::from(c.sampled)).sum();
        let sampling = chunks.iter().filter(|c| c.sampled > 0).count() as u64;
        let prompts = || chunks.iter().filter(|c| c.is_prompt());
        let longest = prompts().map(|c| u64::from(c.new)).max().unwrap_or(0);
        let load = Load { seen, share: self.share(n), new, sampled, probed: &probed, longest };
        let one = self.microbatch(n);
        let rows = self.rows(one) + busiest.iter().map(|c| u64::from(c.new)).sum::<u64>();
        self.add_products(rows, &mut shares);
        let mut attention = Shares::<f64>::default();
        for op in &self.ops {
            let shares = if op.attends() { &mut attention } else { &mut shares };
            self.add(op, one, &busiest, shares, Some(&load));
        }
        self.add_overheads(one + sampling, rows, &mut shares);
        shares.memory += self.routed * (one + new) as f64;
        shares.host += if longest > 0 { self.prefill } else { 0.0 };
        shares.host += if prompts().any(|c| c.sampled > 0) { self.ending } else { 0.0 };
        shares.host += waiting(shares.total(), self.launches);
        shares.plus(attention).whole()
    }

    /// Chunks that the busiest data-parallel rank computes: of prompts, which are dealt to ranks one by one, those of the
    /// rank that gets most tokens, and of the sequences that verify drafts, which are spread evenly, its part.
    fn busiest<'a>(&self, chunks: &'a [Chunk]) -> Cow<'a, [Chunk]> {
        let ranks = self.deployment.parallelism.attention_dp as usize;
        if ranks == 1 {
            return Cow::Borrowed(chunks);
        }
        let (verifying, prompts): (Vec<Chunk>, Vec<Chunk>) = chunks.iter().partition(|c| c.sampled > 1);
        let dealt = (0..ranks.min(prompts.len())).map(|rank| prompts.iter().skip(rank).step_by(ranks));
        let most = dealt.max_by_key(|dealt| dealt.clone().map(|c| u64::from(c.new)).sum::<u64>());
        Cow::Owned(most.into_iter().flatten().copied().chain(verifying.into_iter().step_by(ranks)).collect())
    }

    /// What most of a step of `n` decodes goes to, of which what they see takes `attending`.
    pub fn bound(&mut self, n: u64, attending: u64) -> &'static str {
        let memory = self.slopes_memory;
        let mut shares = self.decode(n).shares;
        *(if memory { &mut shares.memory } else { &mut shares.compute }) += attending;
        shares.largest()
    }

    /// Whether decode attention is bound by memory, of what its slope adds.
    pub fn slopes_are_memory(&self) -> bool {
        self.slopes_memory
    }

    /// Adds one operator's time to what binds it. Without `load`: `n` decodes whose context is priced by slopes.
    fn add(&self, op: &Op, n: u64, chunks: &[Chunk], shares: &mut Shares<f64>, load: Option<&Load>) {
        let (new, sampled) = load.map_or((0, 0), |l| (l.new, l.sampled));
        let rank = |rows: u64| self.rows(rows) as f64;
        let [compute, memory] = match &op.kind {
            Kind::Rows { flops, bytes, .. } => {
                let rows = rank(n + sampled);
                op.time(flops * op.few.worth(self.tiled(rows)), bytes * rows + op.bytes)
            }
            Kind::Experts { flops, bytes, experts } => {
                let ranks = if self.in_tiles { self.deployment.parallelism.ep } else { 1 };
                let crowded = experts.crowded(n + new, ranks);
                let touched = experts.distinct(n + new) * crowded / experts.count as f64;
                op.time(flops * (n + new) as f64, bytes * touched + op.bytes)
            }
            Kind::Attend { fixed, terms, .. } => {
                let decodes = fixed.map(|f| f * rank(n));
                match load {
                    None => op.time(decodes[0], decodes[1] + op.bytes),
                    Some(load) => {
                        let first = fixed[0] + terms.iter().map(|t| t[0]).sum::<f64>();
                        load.attend(op, decodes, first * rank(n), chunks)
                    }
                }
            }
        };
        shares.compute += op.layers * compute;
        shares.memory += op.layers * memory;
    }

    /// Adds the operators that every row passes, of a rank's rows.
    fn add_products(&self, rows: u64, shares: &mut Shares<f64>) {
        let ladder = match &self.unpacked {
            Some((from, ladder, unpacking)) if rows >= *from => {
                shares.memory += unpacking;
                ladder
            }
            _ => &self.ladder,
        };
        ladder.add(rows as f64, self.tiled(rows as f64), shares);
    }

    /// The rows that are computed for `rows`.
    fn tiled(&self, rows: f64) -> f64 {
        if self.in_tiles { tiled(rows) } else { rows }
    }

    /// Adds what a step has besides, of so many sequences and a rank's rows.
    fn add_overheads(&self, sequences: u64, rows: u64, shares: &mut Shares<f64>) {
        shares.communication += self.link * rows as f64;
        shares.host += self.calls;
        shares.host += self.step + self.sequence * self.rows(sequences) as f64;
        shares.memory += self.token * rows as f64;
    }

    /// Rows of the busiest data-parallel rank.
    fn rows(&self, rows: u64) -> u64 {
        match self.deployment.parallelism.attention_dp {
            1 => rows,
            ranks => rows.div_ceil(ranks),
        }
    }

    /// Sequences of the largest microbatch.
    fn microbatch(&self, n: u64) -> u64 {
        match self.deployment.parallelism.pp {
            1 => n,
            stages => n.div_ceil(stages),
        }
    }

    /// The share of `n` sequences that the busiest rank has in the largest microbatch.
    fn share(&self, n: u64) -> f64 {
        if n == 0 { 0.0 } else { self.rows(self.microbatch(n)) as f64 / n as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Utilization, cost};
    use crate::deployment::Options;
    use crate::model::config;
    use crate::operator::Sequences;
    use crate::parallelism::Request;
    use std::sync::Arc;

    fn spread_out(model: &str, chip: &str, parallelism: Request) -> Deployment {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator(chip).unwrap().clone());
        Deployment::resolve(model, accelerator, &Options { parallelism, ..Options::default() }).unwrap()
    }

    /// A step priced from sums is the step priced by the cost model, at the limit and as forecast: here of an engine with
    /// kernels for few rows of its own, with one for the attention of prompts and decodes, that unpacks weights, and whose host
    /// launches every kernel where there are several ranks.
    #[test]
    fn prices_are_the_cost_models() {
        for (model, chip, tp, dp) in [
            ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", 1, 1),
            ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm", 4, 1),
            ("deepseek-ai/DeepSeek-V3", "h200-sxm", 8, 1),
            ("deepseek-ai/DeepSeek-V3", "h200-sxm", 1, 8),
            ("openai/gpt-oss-120b", "h100-sxm", 2, 1),
            ("Qwen/Qwen3-30B-A3B", "h100-sxm", 1, 1),
            ("google/gemma-3-27b-it", "h100-sxm", 2, 1),
        ] {
            let count = Some(tp * dp);
            let spread = Request { count, tp: Some(tp), attention_dp: Some(dp), ..Request::default() };
            let mut deployment = spread_out(model, chip, spread);
            deployment.options.engine.enforce_eager = Some(tp > 1);
            let mut efficiency = (*deployment.efficiency).clone();
            for figures in [&mut efficiency.figures, &mut efficiency.plain] {
                figures.0[Figure::FewRows as usize] = 4.0;
                figures.0[Figure::Group as usize] = 0.1;
                figures.0[Figure::MixedRows as usize] = 64.0;
            }
            efficiency.dequantizes_from = Some(256);
            deployment.efficiency = Arc::new(efficiency);
            let mut prices = [CostKind::Limit, CostKind::Forecast].map(|kind| Price::new(&deployment, kind));
            for (n, context, new, prompt) in
                [(1, 2, 0, 0), (7, 100, 0, 0), (64, 5000, 0, 0), (3, 700, 128, 128), (40, 9000, 512, 4096)]
            {
                let mut groups = vec![Sequences { count: n, new: 1, context }];
                let mut chunks = Vec::new();
                if new > 0 {
                    groups.push(Sequences { count: 1, new, context: prompt });
                    chunks.push(Chunk { new: new as u32, context: prompt as u32, sampled: 1 });
                }
                let expected = cost(&deployment, &Batch { groups }, Utilization::FULL);
                let expected = [expected.limit_with_communication, expected.forecast];
                // As forecast, what is exposed of a decode's own token is told apart from what is of its context.
                for ((price, expected), near) in prices.iter_mut().zip(expected).zip([1e-6, 1e-5]) {
                    let seen: Vec<u64> = price.reaches().iter().map(|r| n * context.min(*r)).collect();
                    let found = if chunks.is_empty() {
                        let decode = price.decode(n).clone();
                        let slopes: u64 = decode.slope.iter().zip(&seen).map(|(s, c)| s * c).sum();
                        Ticks::from(decode.fixed + slopes)
                    } else {
                        price.mixed(n, &seen, &chunks).0
                    };
                    let off = (found.ms() / expected.ms() - 1.0).abs();
                    assert!(off < near, "{model} {n} {context} {new}: {found:?} {expected:?}");
                }
            }
        }
    }

    /// Sequences that verify four drafts each are priced as the cost model prices five tokens of each, with data-parallel
    /// attention, too. It samples one row of each where these sample five; few enough to hide behind the bytes of lm_head.
    #[test]
    fn verifying_is_the_cost_models() {
        let spread = Request { count: Some(8), tp: Some(1), attention_dp: Some(8), ..Request::default() };
        let plain = Request { count: Some(4), tp: Some(4), ..Request::default() };
        for (model, chip, parallelism) in [
            ("meta-llama/Llama-3.1-70B-Instruct", "h100-sxm", plain),
            ("openai/gpt-oss-120b", "h100-sxm", plain),
            ("deepseek-ai/DeepSeek-V3", "h200-sxm", spread),
            ("Qwen/Qwen3-30B-A3B", "h100-sxm", spread),
        ] {
            let deployment = spread_out(model, chip, parallelism);
            let price = Price::new(&deployment, CostKind::Limit);
            for (n, context) in [(8, 5), (16, 300), (32, 9000)] {
                let groups = vec![Sequences { count: n, new: 5, context }];
                let expected =
                    cost(&deployment, &Batch { groups }, Utilization::FULL).limit_with_communication;
                let chunk = Chunk { new: 5, context: context as u32, sampled: 5 };
                let none = vec![0; price.reaches().len()];
                let found = price.mixed(0, &none, &vec![chunk; n as usize]).0;
                assert!(
                    (found.ms() / expected.ms() - 1.0).abs() < 1e-6,
                    "{model} {n} {context}: {found:?} {expected:?}"
                );
            }
        }
    }

    /// Two equal stages on a machine of 100 TFLOP/s, 1 TB/s and links of 100 GB/s.
    #[test]
    fn two_stages_by_hand() {
        let catalog = crate::Catalog::embedded().unwrap();
        let entry = catalog.model("meta-llama/Llama-3.1-8B-Instruct").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(crate::accelerator::tests::round_machine());
        let parallelism = Request { pp: Some(2), ..Request::default() };
        let options = Options { parallelism, ..Options::default() };
        let mut price =
            Price::new(&Deployment::resolve(model, accelerator, &options).unwrap(), CostKind::Limit);
        // 8,030,261,248 weights without the 128,256 × 4096 of the embedding, in 2 bytes: 15.00985 GB, 15.00985 ms. A token
        // of KV: 2 × 8 × 128 × 32 × 2 = 131,072 bytes, 131.072 ns. A sequence looks 8192 bytes of the embedding up, 8.192
        // ns, and sends as many from stage to stage, 81.92 ns.
        let weights = (8_030_261_248.0 - 128_256.0 * 4096.0) * 2.0 / 1e12 * 1e3;
        let row = (8.192 + 81.92) / 1e6;
        let decode = |price: &mut Price, n: u64, context: u64| {
            let Decode { fixed, slope, .. } = price.decode(n).clone();
            Ticks::from(fixed + slope[0] * n * context).ms()
        };
        let close = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        };
        // One sequence passes both stages alone, and so do two, one in each stage.
        for n in [1, 2] {
            close(decode(&mut price, n, 1000), weights + 0.131_072 + row);
        }
        // Seven: the larger microbatch has four of them, and of their 7000 tokens 4000.
        close(decode(&mut price, 7, 1000), weights + 4.0 * (0.131_072 + row));
        // Two prompts of 4000 tokens are in a microbatch each: both take what one takes alone, half of what one machine
        // would need, and the decodes beside them lengthen it.
        let chunk = Chunk { new: 4000, context: 4000, sampled: 1 };
        let mixed = |n: u64, chunks: &[Chunk]| price.mixed(n, &[n * 1000], chunks).0.ms();
        // The layers' matrices take 2 × 6,979,321,856 FLOP a token at 100 TFLOP/s, lm_head's one row its bytes.
        let layers = 2.0 * 6_979_321_856.0 * 4000.0 / 100e12 * 1e3;
        // 4000 × 4001/2 pairs of 32 layers × 4 × 4096 FLOP.
        let attention = 4000.0 * 4001.0 / 2.0 * 32.0 * 4.0 * 4096.0 / 100e12 * 1e3;
        let head = 128_256.0 * 4096.0 * 2.0 / 1e12 * 1e3;
        close(mixed(0, &[chunk]), layers + attention + head + 4000.0 * row);
        assert_eq!(mixed(0, &[chunk; 2]), mixed(0, &[chunk]));
        assert_eq!(mixed(0, &[chunk; 3]), mixed(0, &[chunk; 4]));
        assert!(mixed(8, &[chunk]) > mixed(0, &[chunk]));
    }
}
