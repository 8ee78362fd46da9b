//! Fits shares of peak and bandwidth to kernel times, by part, chip and format.
//!
//! Knows: how to fit a part's parameters robustly on one half of the rows and judge them on the other, when the rows cannot
//! tell one. The formulas are those of [`form`]. Knows nothing about steps of engines.

mod form;
mod levels;

use crate::accelerator::Topology;
use crate::coefficients::Coefficient;
use crate::kernel::{Kernel, Part};
use crate::summary::Statistics;
use form::{
    ATTENTION_COMPUTE, ATTENTION_MEMORY, COMPUTE, COMPUTE_SPREAD, COPIES, CROSSINGS, DEPTH, EXPOSED, FEWER,
    FILL, INPUTS, LAUNCH, MEMORY, MEMORY_SPREAD, NARROW, PAIRS, Parameters, START, TAIL, TOUCHED, search,
    time,
};
pub use levels::levels;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Rows bound by a term, below which its share is not told.
const ENOUGH: usize = 20;
/// Keys beyond which what starting a decode costs does not show.
const SHORT: f64 = 2048.0;
/// Sequences times KV heads below which a decode may draw less than its share of the bandwidth.
const FEW_PAIRS: f64 = 32.0;

/// One fit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fitted {
    /// The chip.
    pub accelerator: String,
    /// Whose kernel.
    pub backend: String,
    /// The engine's version, where the tables name it.
    pub version: Option<String>,
    /// The kernel, where the tables name it.
    pub source: Option<String>,
    /// What it does.
    pub part: Part,
    /// The weight format, for what has weights.
    pub weights: Option<String>,
    /// Rows, half of them to judge by.
    pub rows: usize,
    /// Rows faster than their own limit, left out.
    pub faster: usize,
    /// Share of the peak, where the rows tell it.
    pub compute: Option<f64>,
    /// Share of the bandwidth, where the rows tell it.
    pub memory: Option<f64>,
    /// Share of the shorter of both times that the longer does not hide, where the rows tell it.
    pub exposed: Option<f64>,
    /// Share by which each further query head of a group lengthens a decode's reading; next to nothing where all groups are
    /// alike, for then it is in the bandwidth. None of other parts.
    pub group: Option<f64>,
    /// Rows that a decode computes beside prompts, where one kernel works on both and the rows tell; none of other parts.
    pub mixed_rows: Option<f64>,
    /// How often what the kernel takes and passes on crosses the bus, where that is counted.
    pub crossings: Option<f64>,
    /// How often what a product takes crosses the bus, as where its kernel quantizes it; none of other parts.
    pub inputs: Option<f64>,
    /// What each value of a product's sums takes, nanoseconds; none of other parts.
    pub depth_ns: Option<f64>,
    /// Part of the multiprocessors that waits for the last tile of a prompt's queries; none of other parts.
    pub tail: Option<f64>,
    /// Times that a product's waves of tiles may be longer than its tiles before its computing is, and before its reading is,
    /// where the rows tell it; none of other parts.
    pub spread: Option<[f64; 2]>,
    /// How often the copies of all tokens, on whichever rank, cross the bus, where the rows tell it; none of other parts than
    /// experts.
    pub copies: Option<f64>,
    /// What an expert takes that some token passes, beside its bytes, microseconds; none of other parts.
    pub expert_us: Option<f64>,
    /// What a byte of an 8-bit cache takes of one of 16 bits, where the rows tell it; none of other parts than decodes.
    pub narrow: Option<f64>,
    /// Tokens of context that a decode is longer by than its own, half a tile of keys among them; none of other parts.
    pub start_tokens: Option<f64>,
    /// Sequences times KV heads from which on decodes draw their share of the bandwidth, where the rows tell it; none of other
    /// parts.
    pub pairs: Option<f64>,
    /// Shares of peak and bandwidth in the attention of a module; none of other parts.
    pub attention: Option<[f64; 2]>,
    /// Times of the share of the peak that prompts reach with heads of other sizes than 128, by size.
    pub heads: BTreeMap<u64, f64>,
    /// What filling the pipeline of an all-reduce takes for each rank beyond the first, microseconds; none of other parts and
    /// over PCIe.
    pub fill_us: Option<f64>,
    /// Times of the link's share for each time that ranks are halved from eight; none where `fill_us` is.
    pub fewer: Option<f64>,
    /// Beside both, microseconds.
    pub launch_us: f64,
    /// Median error on the half that was not fitted; a share.
    pub median_error: f64,
    /// 90th percentile of it.
    pub p90_error: f64,
    /// The same rows' median error at the limit alone.
    pub limit_median_error: f64,
    /// The tables it was fitted to.
    pub tables: BTreeSet<String>,
    #[serde(skip)]
    at: Place,
}

/// Where the chip stands.
#[derive(Debug, Clone, PartialEq, Default)]
struct Place {
    architecture: String,
    link: Option<Topology>,
    latency: f64,
}

/// The size of heads that shares of the peak are told for, and other sizes.
const HEAD: u64 = 128;
const OTHER_HEADS: [(u64, Coefficient); 3] =
    [(64, Coefficient::Head64), (256, Coefficient::Head256), (512, Coefficient::Head512)];

/// Fits every part of every chip, format, backend, version and kernel.
pub fn fit(kernels: &[Kernel]) -> Vec<Fitted> {
    let mut parts: BTreeMap<_, Vec<&Kernel>> = BTreeMap::new();
    for kernel in kernels {
        let whose = [&kernel.backend, &kernel.version, &kernel.source].map(String::as_str);
        let key = (kernel.accelerator.as_str(), kernel.part, kernel.weights.as_deref(), whose);
        parts.entry(key).or_default().push(kernel);
    }
    let parts: Vec<_> = parts.into_values().collect();
    parts.par_iter().filter_map(|rows| one(rows)).collect()
}

fn one(all: &[&Kernel]) -> Option<Fitted> {
    let first = all.first()?;
    let rows: Vec<&Kernel> = all.iter().filter(|k| k.measured >= form::limit(k)).copied().collect();
    // Tables are ordered by shape: every other row has the same shapes in both halves.
    let half = |odd: usize| rows.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>();
    let (fitted, judged) = (half(0), half(1));
    // Tables of all-reduces have few rows, most of them of messages that are all start.
    let [least, few] = match first.part {
        // Tables through the host have two ranks alone, a third of the rows.
        Part::AllReduce if first.link == Some(Topology::Host) => [ENOUGH / 2, ENOUGH / 4],
        _ if first.is_pipelined() => [ENOUGH, ENOUGH / 2],
        _ => [ENOUGH; 2],
    };
    if fitted.len() < least {
        return None;
    }
    let (x, heads) = by_heads(&fitted);
    let errors = |time: &dyn Fn(&Kernel) -> f64| {
        Statistics::of(&mut judged.iter().map(|k| (time(k) / k.measured - 1.0).abs()).collect::<Vec<_>>())
    };
    let took = |k: &Kernel| time(k, &x, heads.get(&k.head_dim).copied().unwrap_or(1.0));
    let enough = |test: &dyn Fn(&Kernel) -> bool| fitted.iter().filter(|k| test(k)).count() >= few;
    // Experts pass on so much that neither is half of their time, and pipelines fill for as long.
    let much = if first.part == Part::Experts || first.is_pipelined() { 1.0 / 3.0 } else { 0.5 };
    let bound = |by: &dyn Fn([f64; 2]) -> f64| enough(&|k| by(form::both(k, &x, 1.0)) >= much * took(k));
    // Where the shorter is less than a tenth, how much of it shows is not told.
    let both = bound(&|[computing, moving]| 10.0 * computing.min(moving));
    let unseen = errors(&took);
    let of = |index: usize, told: bool| Some(x[index].exp()).filter(|_| told);
    let compute = of(COMPUTE, bound(&|[computing, _]| computing));
    let second = of(MEMORY, bound(&|[_, moving]| moving));
    let part = first.part;
    let (mixed, decode) = (part == Part::Mixed, part == Part::Decode);
    let experts = part == Part::Experts;
    let reduces = first.is_pipelined();
    let waved = part == Part::Gemm && enough(&|k| k.waves > 1.2);
    let module = matches!(part, Part::LatentPrefillModule | Part::LatentDecodeModule);
    let caches = decode && enough(&|k| k.narrow) && enough(&|k| !k.narrow);
    let few_pairs = decode && enough(&|k| k.pairs > 0.0 && k.pairs < FEW_PAIRS);
    let short = decode && enough(&|k| k.context > 0.0 && k.context < SHORT);
    Some(Fitted {
        accelerator: first.accelerator.clone(),
        backend: first.backend.clone(),
        version: Some(first.version.clone()).filter(|v| !v.is_empty()),
        source: Some(first.source.clone()).filter(|s| !s.is_empty()),
        part,
        weights: first.weights.clone(),
        rows: rows.len(),
        faster: all.len() - rows.len(),
        compute,
        memory: second.filter(|_| !mixed),
        exposed: of(EXPOSED, both && !decode && !mixed),
        group: of(EXPOSED, decode),
        mixed_rows: compute.zip(second).map(|(prompt, row)| prompt / row).filter(|_| mixed),
        crossings: of(CROSSINGS, enough(&|k| k.passed > 0.0)),
        inputs: of(INPUTS, part == Part::Gemm),
        depth_ns: of(DEPTH, part == Part::Gemm).map(|seconds| seconds * 1e9),
        tail: of(TAIL, part == Part::Prefill && enough(&|k| k.tail > 0.0)),
        spread: Some([x[COMPUTE_SPREAD].exp(), x[MEMORY_SPREAD].exp()]).filter(|_| waved),
        copies: of(COPIES, experts && enough(&|k| k.copies > 1.5 * k.passed)),
        expert_us: of(TOUCHED, experts).map(|seconds| seconds * 1e6),
        narrow: of(NARROW, caches),
        start_tokens: of(START, short).map(|tokens| tokens + first.tile / 2.0),
        pairs: of(PAIRS, few_pairs),
        attention: Some([x[ATTENTION_COMPUTE].exp(), x[ATTENTION_MEMORY].exp()]).filter(|_| module),
        fill_us: of(FILL, reduces).map(|seconds| seconds * 1e6),
        fewer: of(FEWER, reduces),
        launch_us: x[LAUNCH].exp() * 1e6,
        median_error: unseen.median,
        p90_error: unseen.p90,
        limit_median_error: errors(&form::limit).median,
        tables: rows.iter().map(|k| k.table.to_string()).collect(),
        at: Place { architecture: first.architecture.clone(), link: first.link, latency: first.latency },
        heads,
    })
}

/// The parameters of heads of 128 values, or of all where those are few, and how many times their share of the peak heads of
/// other sizes reach.
fn by_heads(rows: &[&Kernel]) -> (Parameters, BTreeMap<u64, f64>) {
    let of = |head_dim: u64| rows.iter().filter(|k| k.head_dim == head_dim).copied().collect::<Vec<_>>();
    let usual = of(HEAD);
    if usual.len() < ENOUGH {
        return (search(rows), BTreeMap::new());
    }
    let x = search(&usual);
    let others = OTHER_HEADS.into_iter().map(|(head_dim, _)| (head_dim, of(head_dim)));
    let factor = |rows: &[&Kernel]| {
        let cost =
            |factor: f64| rows.iter().map(|k| (time(k, &x, factor) / k.measured).ln().abs()).sum::<f64>();
        let factors = (-150..=100).map(|percent| (f64::from(percent) / 100.0).exp());
        let possible = factors.filter(|factor| factor * x[0].exp() <= 1.0);
        possible.min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
    };
    let told = others.filter(|(_, rows)| rows.len() >= ENOUGH);
    (x, told.filter_map(|(head_dim, rows)| Some((head_dim, factor(&rows)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Selector;

    pub(super) fn kernel(compute: f64, memory: f64) -> Kernel {
        Kernel {
            part: Part::Gemm,
            backend: "vllm".into(),
            version: String::new(),
            source: String::new(),
            table: "made.csv: vllm 1".into(),
            accelerator: "h100-sxm".into(),
            architecture: "hopper".into(),
            link: Some(Topology::Switch),
            weights: Some("bf16".into()),
            compute,
            memory,
            attention: [0.0; 2],
            passed: 0.0,
            inputs: 0.0,
            depth: 0.0,
            tail: 0.0,
            copies: 0.0,
            touched: 0.0,
            waves: 1.0,
            context: 0.0,
            pairs: 0.0,
            tile: 64.0,
            narrow: false,
            group: 1.0,
            head_dim: 0,
            latency: 2e-6,
            ranks: 0,
            // 80 % of the peak, 90 % of the bandwidth, 30 % of the shorter shows, 4 µs.
            measured: (compute / 0.8).max(memory / 0.9) + 0.3 * (compute / 0.8).min(memory / 0.9) + 4e-6,
        }
    }

    #[test]
    fn shares_that_made_the_times_are_found() {
        // From launches alone to 200 µs of either.
        let size = |i: i32| f64::from(i * i) * 0.5e-6;
        let rows: Vec<Kernel> = (0..400).map(|i| kernel(size(i / 20), size(i % 20 + 1))).collect();
        let fits = fit(&rows);
        let [one] = &fits[..] else { panic!("{fits:?}") };
        assert!((one.compute.unwrap() - 0.8).abs() < 0.005, "{one:?}");
        assert!((one.memory.unwrap() - 0.9).abs() < 0.005, "{one:?}");
        assert!((one.exposed.unwrap() - 0.3).abs() < 0.01, "{one:?}");
        assert!((one.launch_us - 4.0).abs() < 0.05 && one.median_error < 0.01, "{one:?}");
        let levels = levels(&fits);
        // The chip's own, and what its generation borrows: with one chip the same.
        let of = |at: Selector| {
            levels.iter().find(|l| l.at == at).map(|l| l.coefficients[&Coefficient::GemmCompute])
        };
        let weights = Some("bf16".to_owned());
        let own = Selector {
            accelerator: Some("h100-sxm".into()),
            weights: weights.clone(),
            ..Selector::default()
        };
        let borrowed = Selector { architecture: Some("hopper".into()), weights, ..Selector::default() };
        assert!(
            (of(own).unwrap() - 0.8).abs() < 0.005 && of(borrowed).is_some_and(|b| (b - 0.8).abs() < 0.005)
        );
        // Each once for the engine whose kernels these are, and once for all engines.
        assert_eq!(levels.len(), 4);
        assert!(levels.iter().all(|l| (l.coefficients[&Coefficient::GemmCompute] - 0.8).abs() < 0.005));
    }

    /// Experts that pass what they pass on eight times, and decodes of 64 rows beside prompts, both at 80 % of the peak.
    #[test]
    fn crossings_and_rows_beside_prompts_are_found() {
        let size = |i: i32| f64::from(i * i) * 0.5e-6;
        let of = |part, rows: f64, made: &dyn Fn(f64, f64, f64) -> (f64, f64)| -> Vec<Kernel> {
            let row = |i: i32| {
                let (a, b, c) = (size(i / 64), size(i / 8 % 8 + 1) / rows, size(i % 8 + 1) / 10.0);
                let (passed, measured) = made(a, b, c);
                Kernel { part, passed, measured, ..kernel(a, b) }
            };
            (0..512).map(row).collect()
        };
        let experts = of(Part::Experts, 1.0, &|compute, memory, passed| {
            (passed, (compute / 0.8).max(memory / 0.9) + 8.0 * passed + 4e-6)
        });
        let fits = fit(&experts);
        assert!((fits[0].crossings.unwrap() - 8.0).abs() < 0.2, "{:?}", fits[0]);
        let mixed = of(Part::Mixed, 64.0, &|prompt, decode, _| (0.0, (prompt + 64.0 * decode) / 0.8 + 4e-6));
        let levels = levels(&fit(&mixed));
        let own = levels.iter().find(|l| l.at.accelerator.is_some()).unwrap();
        assert!((own.coefficients[&Coefficient::MixedRows] - 64.0).abs() < 1.0, "{own:?}");
        // Another engine has another kernel.
        assert!(levels.iter().all(|l| l.at.engine.as_deref() == Some("vllm")) && levels.len() == 2);
    }

    /// One kernel draws 80 % of the bandwidth in 400 shapes, another 40 % in 100.
    #[test]
    fn the_attention_kernel_of_most_shapes_counts() {
        let of = |source: &str, share: f64, count: i32| {
            let row = |i: i32| {
                let memory = f64::from(i % 20 + 1) * 1e-5;
                let (source, measured) = (source.to_owned(), memory / share + 4e-6);
                Kernel { part: Part::Decode, weights: None, source, measured, ..kernel(0.0, memory) }
            };
            (0..count).map(row).collect::<Vec<_>>()
        };
        let fits = fit(&[of("mha", 0.8, 400), of("triton", 0.4, 100)].concat());
        assert_eq!(fits.len(), 2);
        let levels = levels(&fits);
        assert!(
            levels.iter().all(|l| (l.coefficients[&Coefficient::KvMemory] - 0.8).abs() < 0.01),
            "{levels:?}"
        );
    }

    /// Heads of 64 at half the share of the peak that heads of 128 reach.
    #[test]
    fn heads_of_other_sizes_are_told_apart() {
        let size = |i: i32| f64::from(i * i) * 0.5e-6;
        let row = |i: i32| {
            let (compute, memory) = (size(i / 40 + 1), size(i / 2 % 20) / 10.0);
            let head_dim = if i % 4 < 2 { 128 } else { 64 };
            let share = if head_dim == 128 { 0.6 } else { 0.3 };
            let measured = (compute / share).max(memory / form::READING) + 4e-6;
            Kernel { part: Part::Prefill, head_dim, weights: None, measured, ..kernel(compute, memory) }
        };
        let rows: Vec<Kernel> = (0..800).map(row).collect();
        let fits = fit(&rows);
        let [one] = &fits[..] else { panic!("{fits:?}") };
        assert!((one.compute.unwrap() - 0.6).abs() < 0.01, "{one:?}");
        assert!((one.heads[&64] - 0.5).abs() < 0.01 && one.heads.len() == 1, "{one:?}");
        let levels = levels(&fits);
        assert!(levels.iter().all(|l| (l.coefficients[&Coefficient::Head64] - 0.5).abs() < 0.01));
    }

    /// All-reduces at 0.9 of the link among eight ranks and 0.9 · 0.8² of it among two, 1 µs to fill for each rank beyond the
    /// first, 5 µs to start. What NCCL takes by itself is no level where an engine has kernels of its own.
    #[test]
    fn what_fills_an_all_reduce_is_found() {
        let row = |i: i32| {
            let (ranks, memory) = ([2, 4, 8][i as usize % 3], 1e-7 * 1.2_f64.powi(i / 3));
            let share = 0.9 * [0.64, 0.8, 1.0][i as usize % 3];
            let filling = 2.0 * (1e-6 * (ranks - 1) as f64 * memory / share).sqrt();
            let measured = memory / share + filling + 5e-6;
            Kernel { part: Part::AllReduce, weights: None, ranks, measured, ..kernel(0.0, memory) }
        };
        let engine: Vec<Kernel> = (0..180).map(row).collect();
        let nccl = engine.iter().map(|k| Kernel {
            backend: "nccl".into(),
            source: "NCCL".into(),
            measured: 3.0 * k.measured,
            ..k.clone()
        });
        let fits = fit(&engine.iter().cloned().chain(nccl).collect::<Vec<_>>());
        assert_eq!(fits.len(), 2);
        let levels = levels(&fits);
        let own = levels.iter().find(|l| l.at.accelerator.is_some()).unwrap();
        // What fills is told by the messages between those that start and those that move, and least of all.
        for (coefficient, value, within) in [
            (Coefficient::Link, 0.9, 0.02),
            (Coefficient::LinkFewer, 0.8, 0.02),
            (Coefficient::AllReduceFill, 1e-6, 0.1),
            (Coefficient::AllReduce, 5e-6, 0.02),
        ] {
            let found = own.coefficients[&coefficient];
            assert!((found / value - 1.0).abs() < within, "{coefficient:?} {found}");
        }
    }

    /// Two cards through the host's memory, in a table of 24 messages: a quarter of the link and 20 µs to start. That is a level
    /// of all such links, and none of the card, whose newer tables are of cards that reach each other: 0.6 of it, and 5 µs.
    #[test]
    fn cards_through_the_host_are_told_apart() {
        let table = |link, version: &str, share: f64, start: f64| -> Vec<Kernel> {
            let row = |i: i32| {
                let memory = 1e-7 * 2.0_f64.powi(i);
                let measured = memory / share + start;
                let version = version.to_owned();
                let made = kernel(0.0, memory);
                Kernel {
                    part: Part::AllReduce,
                    weights: None,
                    ranks: 2,
                    link: Some(link),
                    version,
                    measured,
                    ..made
                }
            };
            (0..24).map(row).collect()
        };
        let mut rows = table(Topology::Host, "0.19.0", 0.25, 20e-6);
        rows.extend((0..4).flat_map(|_| table(Topology::Pcie, "0.24.0", 0.6, 5e-6)));
        let levels = levels(&fit(&rows));
        let found: Vec<_> = levels
            .iter()
            .map(|l| {
                (l.at.name(), l.coefficients[&Coefficient::Link], l.coefficients[&Coefficient::AllReduce])
            })
            .collect();
        let expected =
            [("link pcie", 0.6, 5e-6), ("link host", 0.25, 20e-6), ("accelerator h100-sxm", 0.6, 5e-6)];
        assert_eq!(found.len(), 3, "{found:?}");
        for (name, share, start) in expected {
            let (_, link, launch) = found.iter().find(|(of, ..)| of == name).unwrap();
            assert!((link / share - 1.0).abs() < 0.01 && (launch / start - 1.0).abs() < 0.02, "{found:?}");
        }
    }

    /// Rows that never wait for FLOPs say nothing of the peak, and rows faster than their limit are left out.
    #[test]
    fn what_rows_do_not_tell_is_not_said() {
        let mut rows: Vec<Kernel> = (1..=100).map(|i| kernel(1e-9, f64::from(i) * 1e-5)).collect();
        rows[7].measured = 1e-9;
        let fits = fit(&rows);
        assert_eq!((fits[0].compute, fits[0].exposed), (None, None));
        assert_eq!((fits[0].faster, fits[0].rows), (1, 99));
        assert!((fits[0].memory.unwrap() - 0.9).abs() < 0.02);
        assert!(fit(&rows[..10]).is_empty());
    }
}
