//! Seed 004: serving LLaMA-3-70B on TPU v5e, after chapter 8 of "How To Scale Your Model".
//!
//! Knows: the chapter's constants and closed forms, its tables and its exercises; the program at its end is in
//! [`curve`]. Knows nothing about other seeds. Source: <https://jax-ml.github.io/scaling-book/applied-inference/>, as
//! the Chinese text retells it.

mod curve;
mod exercises;
mod qps;

use super::SeedVerdict::{Exact, Inconsistent, Rounded, Unit, WrongInput};
use super::{Claim, SeedVerdict, Setup, chip, closed_forms, decode, held, prefill};
use roofcast_ask::deployment::Deployment;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;
use roofcast_facts::model::{Ffn, Model};
use roofcast_facts::precision::Dtype;
use roofcast_facts::units::Picoseconds;
use roofcast_plan::plan::flops_per_dollar;

const HARDWARE: &str = "hardware";
const CACHE: &str = "KV cache, int8";
const SMALLEST: &str = "smallest topology: batch 32 at 8192, int8";
const CRITICAL: &str = "critical batch";
const TOPOLOGIES: &str = "topologies by dtype, 8192 tokens";
const FLOOR: &str = "latency floor";
const ICI: &str = "tensor parallelism and ICI, bf16";
const PREFILL: &str = "prefill";
const PAGES: &str = "continuous batching: B 32, P 8192, G 4096";
const SERVERS: &str = "prefill to generate servers";

const LLAMA: &str = "meta-llama/Meta-Llama-3-70B";
const V5E: &str = "tpu-v5e";

/// Number of parameters as the chapter rounds it; the model has 70.55e9.
const PARAMETERS: f64 = 70e9;
/// Bytes of HBM per chip, as the chapter counts them.
const MEMORY: f64 = 16e9;
/// HBM bandwidth in bytes/s with which the chapter computes step times.
const STEP_BANDWIDTH: f64 = 8.1e11;
/// HBM bandwidth in bytes/s with which the chapter computes lower bounds and curves.
const BANDWIDTH: f64 = 8.2e11;
/// FLOP/s of one chip in bf16.
const FLOPS: f64 = 1.97e14;
/// Number of layers, number of KV heads and width of a head.
const LAYERS: f64 = 80.0;
const KV_HEADS: f64 = 8.0;
const HEAD: f64 = 128.0;
/// Width of the FFN.
const FFN: f64 = 28_672.0;
/// Time of a step in seconds in the chapter's tables: 16 GB at 8.2e11 B/s, cut to whole milliseconds.
const STEP: f64 = 0.019;
/// Median number of output tokens.
const GENERATED: f64 = 512.0;

/// A format of weights and KV cache in the chapter's tables.
#[derive(Clone, Copy)]
struct FormatPair {
    name: &'static str,
    bytes: f64,
    /// Number of chips of the smallest topology with this format.
    chips: u64,
}

const KINDS: [FormatPair; 3] = [
    FormatPair { name: "bf16", bytes: 2.0, chips: 16 },
    FormatPair { name: "int8", bytes: 1.0, chips: 8 },
    FormatPair { name: "int4", bytes: 0.5, chips: 4 },
];

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let mut all = hardware(catalog)?;
    all.extend(cache(catalog)?);
    all.extend(smallest(catalog)?);
    all.extend(critical(catalog)?);
    all.extend(topologies(catalog)?);
    all.extend(floor(catalog)?);
    all.extend(qps::claims(catalog)?);
    all.extend(ici(catalog)?);
    all.extend(prefilling(catalog)?);
    all.extend(pages());
    all.extend(servers(catalog)?);
    all.extend(curve::claims(catalog)?);
    all.extend(exercises::claims(catalog)?);
    Ok(all)
}

/// The chapter's model in one format on `chips` chips of TPU v5e.
fn serving(catalog: &Catalog, format: &'static str, chips: u64) -> Result<Deployment> {
    Setup::new(LLAMA, V5E, format, format).tp(chips).resolve(catalog)
}

/// 2·L·K·H·bytes: bytes of keys and values of one token.
fn kv_bytes(bytes: f64) -> f64 {
    2.0 * LAYERS * KV_HEADS * HEAD * bytes
}

/// Number of whole chips that hold `bytes`.
fn chips_for(bytes: f64) -> f64 {
    (bytes / MEMORY).ceil()
}

/// A count as a float; NaN if it is missing.
fn number(count: Option<u64>) -> f64 {
    count.map_or(f64::NAN, |n| n as f64)
}

fn hardware(catalog: &Catalog) -> Result<Vec<Claim>> {
    let rows = [
        ("h100-sxm", 9.9e14, 10.8, "3.3e17", Exact, ""),
        ("tpu-v5p", 4.59e14, 4.2, "3.9e17", Exact, ""),
        ("tpu-v5e", FLOPS, 1.2, "5.8e17", Inconsistent, "it is 5.9e17"),
    ];
    let mut all = Vec::new();
    for (name, flops, dollars, said, verdict, why) in rows {
        let bought = flops_per_dollar(chip(catalog, name)?.as_ref());
        let price = bought.as_ref().map_or(f64::NAN, |b| b.usd_per_hour);
        let why = if (price - dollars).abs() > 0.005 {
            format!("ours at the catalog's {price} $/h")
        } else {
            why.to_owned()
        };
        all.push(
            Claim::new(HARDWARE, format!("{name}: {flops:e} FLOP/s at {dollars} $/h"), said, "FLOP/$")
                .recomputed(flops * 3600.0 / dollars)
                .roofcast(bought.map_or(f64::NAN, |b| b.flops_per_dollar))
                .is(verdict, why),
        );
    }
    Ok(all)
}

fn cache(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = serving(catalog, "int8", 1)?;
    let memory = held(&d, 32_768, 240);
    let sequence = memory.kv_bytes_per_sequence.as_f64();
    let s = CACHE;
    Ok(vec![
        Claim::new(s, "per token, 2·L·K·H", "160 KB", "kB")
            .recomputed(kv_bytes(1.0) / 1e3)
            .roofcast(memory.kv_bytes_per_token.as_f64() / 1e3)
            .is(Unit, "160 KiB"),
        Claim::new(s, "per sequence of 32,768, 160 KB × 32768", "5.3 GB", "GB")
            .recomputed(160e3 * 32_768.0 / 1e9)
            .roofcast(sequence / 1e9)
            .is(Unit, "does not follow from 160 kB; 162 kB gives 5.3"),
        Claim::new(s, "of 240 such sequences, 5.3 GB × 240", "1.3 TB", "TB")
            .recomputed(5.3e9 * 240.0 / 1e12)
            .roofcast(sequence * 240.0 / 1e12),
        Claim::new(s, "parameters, int8", "70 GB", "GB")
            .recomputed(PARAMETERS / 1e9)
            .roofcast(memory.weight_bytes.as_f64() / 1e9)
            .is(Rounded, "70.55e9 parameters; ours keeps embedding and lm_head at 16 bits"),
        Claim::new(s, "chips for both", "about 86", "chips")
            .recomputed(chips_for(1.3e12 + PARAMETERS))
            .roofcast(number(memory.min_accelerators))
            .is(
                Rounded,
                format!(
                    "{} with the exact KV and 70 GB; 16-bit embedding and lm_head add one again",
                    chips_for(sequence * 240.0 + PARAMETERS)
                ),
            ),
    ])
}

fn smallest(catalog: &Catalog) -> Result<Vec<Claim>> {
    let eight = serving(catalog, "int8", 8)?;
    let sixteen = serving(catalog, "int8", 16)?;
    let memory = held(&eight, 8192, 32);
    let kv = memory.kv_bytes_per_sequence.as_f64() * 32.0;
    let total = kv + memory.weight_bytes.as_f64();
    let step = |chips: f64| 112e9 / (chips * STEP_BANDWIDTH);
    let t8 = decode(&eight, 32, 8192).limit;
    let t16 = decode(&sixteen, 32, 8192).limit;
    let chosen = memory.smallest_topology.map(|t| t.count);
    let s = SMALLEST;
    Ok(vec![
        Claim::new(s, "KV, 160 KB × 8192 × 32", "41.9 GB", "GB")
            .recomputed(160e3 * 8192.0 * 32.0 / 1e9)
            .roofcast(kv / 1e9)
            .is(Unit, "160 KiB a token"),
        Claim::new(s, "with 70 GB of parameters", "112 GB", "GB")
            .recomputed((160e3 * 8192.0 * 32.0 + PARAMETERS) / 1e9)
            .roofcast(total / 1e9)
            .is(Unit, format!("{:.2} with the exact KV and 70 GB", (kv + PARAMETERS) / 1e9)),
        Claim::new(s, "fewest chips, 112/16", "7", "chips")
            .recomputed(chips_for(160e3 * 8192.0 * 32.0 + PARAMETERS))
            .roofcast(number(memory.min_accelerators))
            .is(Unit, "the exact KV does not fit 7: the answer flips to 8"),
        Claim::new(s, "topology that holds it", "4×2", "chips").recomputed(8.0).roofcast(number(chosen)),
        Claim::new(s, "step on 4×2", "17 ms", "ms").recomputed(step(8.0) * 1e3).roofcast(t8.ms()),
        Claim::new(s, "throughput on 4×2", "1882 tok/s", "tok/s")
            .recomputed(32.0 / step(8.0))
            .roofcast(32.0 / t8.seconds())
            .is(Rounded, "from 17 ms"),
        Claim::new(s, "throughput per chip on 4×2", "235 tok/s", "tok/s")
            .recomputed(32.0 / step(8.0) / 8.0)
            .roofcast(32.0 / t8.seconds() / 8.0)
            .is(Rounded, "from 17 ms"),
        Claim::new(s, "step on 4×4", "8.5 ms", "ms")
            .recomputed(step(16.0) * 1e3)
            .roofcast(t16.ms())
            .is(Rounded, "half of 17"),
        Claim::new(s, "throughput per chip on 4×4", "235 tok/s", "tok/s")
            .recomputed(32.0 / step(16.0) / 16.0)
            .roofcast(32.0 / t16.seconds() / 16.0)
            .is(Rounded, "unchanged, as the text says: bytes per chip and time both halve"),
    ])
}

/// B_crit = FLOPs / bandwidth × bytes per weight / 2, in sequences.
fn critical_batch(flops: f64, weight_bytes: f64) -> f64 {
    flops / BANDWIDTH * weight_bytes / 2.0
}

fn critical(catalog: &Catalog) -> Result<Vec<Claim>> {
    let forms = closed_forms(&serving(catalog, "bf16", 16)?, 1, 1);
    let batch_of = |bits: u32, dtype: Dtype| {
        let critical = forms.critical_batch.iter().find(|c| c.weight_bits == bits && c.dtype == dtype);
        critical.map_or(f64::NAN, |c| c.batch)
    };
    let row = |words: &str, said: &str, recomputed: f64, ours: f64| {
        Claim::new(CRITICAL, words, said, "batch").recomputed(recomputed).roofcast(ours)
    };
    Ok(vec![
        row("bf16 weights, bf16 FLOPs", "240", critical_batch(FLOPS, 2.0), batch_of(16, Dtype::Bf16)),
        row("int8 weights, bf16 FLOPs", "120", critical_batch(FLOPS, 1.0), batch_of(8, Dtype::Bf16)),
        row("int8 weights, int8 FLOPs", "240", critical_batch(2.0 * FLOPS, 1.0), batch_of(8, Dtype::Int8)),
    ])
}

/// Bytes that remain free on `chips` chips of 16 GB after the parameters.
fn free(kind: FormatPair, chips: u64) -> f64 {
    chips as f64 * MEMORY - PARAMETERS * kind.bytes
}

/// Number of sequences of 8192 tokens that fit in the free bytes.
fn batch(kind: FormatPair, chips: u64) -> f64 {
    (free(kind, chips) / (kv_bytes(kind.bytes) * 8192.0)).floor()
}

fn topologies(catalog: &Catalog) -> Result<Vec<Claim>> {
    let table = [
        ["140GB", "324KB", "9", "16", "116GB", "43"],
        ["70GB", "162KB", "5", "8", "58GB", "43"],
        ["35GB", "81KB", "3", "4", "29GB", "43"],
    ];
    let s = TOPOLOGIES;
    let mut all = Vec::new();
    for (kind, table) in KINDS.into_iter().zip(table) {
        let d = serving(catalog, kind.name, kind.chips)?;
        let memory = held(&d, 8192, 1);
        let words = |what: &str| format!("{}: {what}", kind.name);
        let left = (d.accelerator.memory_bytes * kind.chips).saturating_sub(d.weight_bytes);
        let parameters =
            if kind.bytes < 2.0 { "ours keeps embedding and lm_head at 16 bits" } else { "70.55e9" };
        let holding = "ours with one sequence of 8192";
        all.extend([
            Claim::new(s, words("parameters"), table[0], "GB")
                .recomputed(PARAMETERS * kind.bytes / 1e9)
                .roofcast(memory.weight_bytes.as_f64() / 1e9)
                .is(Exact, parameters),
            Claim::new(s, words("KV per token"), table[1], "kB")
                .recomputed(kv_bytes(kind.bytes) / 1e3)
                .roofcast(memory.kv_bytes_per_token.as_f64() / 1e3)
                .is(Unit, "2 × 162 and the like: neither kB nor KiB"),
            Claim::new(s, words("fewest chips"), table[2], "chips")
                .recomputed(chips_for(PARAMETERS * kind.bytes))
                .roofcast(number(memory.min_accelerators))
                .is(Exact, holding),
            Claim::new(s, words("topology"), table[3], "chips")
                .recomputed(chips_for(PARAMETERS * kind.bytes).log2().ceil().exp2())
                .roofcast(number(memory.smallest_topology.as_ref().map(|t| t.count))),
            Claim::new(s, words("free HBM"), table[4], "GB")
                .recomputed(free(kind, kind.chips) / 1e9)
                .roofcast(left.as_f64() / 1e9),
            Claim::new(s, words("largest batch"), table[5], "batch")
                .recomputed(batch(kind, kind.chips))
                .roofcast(memory.max_batch as f64)
                .is(Exact, "ours with the exact parameters"),
        ]);
    }
    Ok(all)
}

fn floor(catalog: &Catalog) -> Result<Vec<Claim>> {
    let v5e = chip(catalog, V5E)?;
    let full = Picoseconds::moving(v5e.memory_bytes, v5e.bandwidth_bytes_per_s);
    let int4 = decode(&serving(catalog, "int4", 4)?, 1, 1);
    Ok(vec![
        Claim::new(FLOOR, "reading all of HBM, 16 GB / 8.2e11", "19 ms", "ms")
            .recomputed(MEMORY / BANDWIDTH * 1e3)
            .roofcast(full.ms())
            .is(Rounded, "down; 20 is nearer"),
        Claim::new(FLOOR, "a request of 512 tokens, 19 ms × 512", "9.7 s", "s")
            .recomputed(STEP * GENERATED)
            .roofcast(full.seconds() * GENERATED)
            .is(Exact, "on the rounded step"),
        Claim::new(FLOOR, "int4 parameters alone on 2×2", "10 ms", "ms")
            .recomputed(PARAMETERS * 0.5 / (4.0 * BANDWIDTH) * 1e3)
            .roofcast(int4.terms.weights.ms())
            .is(Rounded, "down; ours reads lm_head at 16 bits"),
    ])
}

fn ici(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = serving(catalog, "bf16", 32)?;
    let forms = closed_forms(&d, 64, 8192);
    let step = &forms.decode;
    let hbm = (PARAMETERS * 2.0 + 64.0 * 8192.0 * kv_bytes(2.0)) / (32.0 * BANDWIDTH);
    let flops = 64.0 * 2.0 * PARAMETERS / (32.0 * FLOPS);
    Ok(vec![
        Claim::new(ICI, "widest when compute-bound, F·M/2200, M = 2", "26", "chips")
            .recomputed(FFN * 2.0 / 2200.0)
            .roofcast(forms.tensor_parallel.compute_bound_width)
            .is(Exact, "2200 = 1.97e14 / 9e10; better than the book's 2550, which is the v5p's"),
        Claim::new(ICI, "widest at batch 64, F/(8·B)", "56", "chips")
            .recomputed(FFN / (8.0 * 64.0))
            .roofcast(forms.tensor_parallel.memory_bound_width)
            .is(Rounded, "8 stands for 8.1e11/9e10 = 9; 32 chips still pass"),
        Claim::new(ICI, "4×8, batch 64 at 8192: HBM time", "binds", "ms")
            .recomputed(hbm * 1e3)
            .roofcast(step.limit.ms()),
        Claim::new(ICI, "4×8, batch 64 at 8192: FLOPs time", "–", "ms")
            .recomputed(flops * 1e3)
            .roofcast(step.terms.flops.ms())
            .is(Exact, "ours with attention"),
        Claim::new(ICI, "4×8, batch 64 at 8192: ICI time", "no problem", "ms")
            .recomputed(ici_s(64.0, 2.0) * 1e3)
            .roofcast(step.terms.communication.ms())
            .is(WrongInput, "two all-reduces a layer over both axes; a v5e closes axes of 16 chips alone, so 4×8 sends one way"),
    ])
}

/// Time in seconds of two all-reduces per layer of B·D bf16 values over `axes` axes of 9e10 B/s each: L · 2 · 2·(2·B·D)
/// / (axes · 9e10).
fn ici_s(batch: f64, axes: f64) -> f64 {
    LAYERS * 2.0 * 2.0 * (2.0 * batch * 8192.0) / (axes * 9e10)
}

fn prefilling(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = serving(catalog, "bf16", 16)?;
    Ok(vec![
        Claim::new(PREFILL, "8192 tokens on 16 chips at 40 % MFU", "0.91 s", "s")
            .recomputed(prefill_s())
            .roofcast(prefill(&d, 8192, 0.4).limit.seconds())
            .is(
                Exact,
                format!(
                "2PT leaves attention out (+{:.1} %, causal); ours looks the embedding up and heads one row",
                attention_share() * 100.0
            ),
            ),
    ])
}

/// FLOPs of causal attention over FLOPs of the parameters for a prompt of T = 8192 tokens: (4·L·D·T²/2) / (2·P·T).
fn attention_share() -> f64 {
    4.0 * LAYERS * 8192.0 * 8192.0 / 2.0 / (2.0 * PARAMETERS)
}

/// Time in seconds of the prefill of the chapter's prompt: 2·P·T / (16 · FLOPs · 0.4).
fn prefill_s() -> f64 {
    2.0 * PARAMETERS * 8192.0 / (16.0 * FLOPS * 0.4)
}

/// Claims on pages: B·(P + G)/G and its parts.
fn pages() -> Vec<Claim> {
    let b = 32.0;
    let p = 8192.0;
    let g = 4096.0;
    let row = |words: &str, said: &str, unit: &'static str, value: f64, verdict: SeedVerdict, why: &str| {
        Claim::new(PAGES, words, said, unit).recomputed(value).roofcast(value).is(verdict, why)
    };
    vec![
        row("requests finished a step, B/G", "0.008", "requests", b / g, Exact, ""),
        row("steps between two, G/B", "125", "steps", g / b, Rounded, "125 = 1/0.008"),
        row("KV of a finished request, P + G", "12288", "tokens", p + g, Exact, ""),
        row("KV evicted a step, B·(P + G)/G", "96", "tokens", b * (p + g) / g, Exact, ""),
    ]
}

fn servers(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = serving(catalog, "bf16", 16)?;
    let fill = prefill(&d, 8192, 0.4).limit.seconds();
    let ratio = |batch: u64| batch as f64 / (decode(&d, batch, 8192).limit.seconds() * GENERATED) * fill;
    let theirs = |batch: f64| batch * prefill_s() / (STEP * GENERATED);
    Ok(vec![
        Claim::new(SERVERS, "at B = 32, 32·0.91/(0.019·512)", "3", "P/G")
            .recomputed(theirs(32.0))
            .roofcast(ratio(32))
            .is(Exact, "B = 32 does not cost 19 ms: it reads less than all of HBM"),
        Claim::new(SERVERS, "at B = 43, which costs 19 ms", "3", "P/G")
            .recomputed(theirs(43.0))
            .roofcast(ratio(held(&d, 8192, 1).max_batch))
            .is(Inconsistent, "4 at the batch that fills HBM; ours at the exact largest batch"),
    ])
}

/// Width of the widest FFN of a model.
fn ffn_width(model: &Model) -> u64 {
    model
        .layers
        .iter()
        .map(|l| if let Ffn::Dense(d) = &l.ffn { d.intermediate } else { 0 })
        .max()
        .unwrap_or(0)
}
