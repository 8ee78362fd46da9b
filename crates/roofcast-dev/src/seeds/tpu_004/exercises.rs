//! The exercises that seed 004 leaves open: the lower bound of LLaMA-3-405B, an 8B model at batch 240, and 405B within
//! 15 ms.
//!
//! Knows: the answers by the chapter's rules (round parameter counts, 8.2e11 B/s, 16e9 bytes) and by the library. Knows
//! nothing about the chapter's tables.

use super::super::SeedVerdict::Open;
use super::super::{Claim, Setup, decode, held};
use super::{BANDWIDTH, FLOPS, MEMORY, V5E, chips_for, number};
use roofcast_ask::deployment::Deployment;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;

const Q1: &str = "question 1: LLaMA-3-405B, one token";
const Q2: &str = "question 2: LLaMA-3-8B, int8, batch 240 at 8192";
const Q3: &str = "question 3: LLaMA-3-405B, int8 weights, bf16 FLOPs, 15 ms a token";

const BIG: &str = "meta-llama/Llama-3.1-405B";
const SMALL: &str = "meta-llama/Meta-Llama-3-8B";
/// Number of parameters of LLaMA-3-405B, as the exercises count them.
const BIG_PARAMETERS: f64 = 405e9;
const SMALL_PARAMETERS: f64 = 8e9;

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let mut all = first(catalog)?;
    all.extend(second(catalog)?);
    all.extend(third(catalog)?);
    Ok(all)
}

fn open(section: &'static str, words: &str, unit: &'static str, theirs: f64, ours: f64) -> Claim {
    Claim::new(section, words, "?", unit).recomputed(theirs).roofcast(ours).is(Open, "")
}

fn first(catalog: &Catalog) -> Result<Vec<Claim>> {
    let at = |weights| Setup::new(BIG, V5E, weights, "int8").resolve(catalog).map(|d| decode(&d, 1, 1));
    let bf16 = at("bf16")?;
    let int8 = at("int8")?;
    let flops: f64 = bf16.operators.iter().map(|o| o.flops.as_f64()).sum();
    let why = "ours: the exact parameters, without the input embedding; per chip, over N for N chips";
    Ok(vec![
        open(Q1, "FLOPs per token, 2P", "GFLOP", 2.0 * BIG_PARAMETERS / 1e9, flops / 1e9).is(Open, why),
        open(
            Q1,
            "FLOPs-bound, batch 1 on one chip",
            "ms",
            2.0 * BIG_PARAMETERS / FLOPS * 1e3,
            bf16.terms.flops.ms(),
        ),
        open(
            Q1,
            "bandwidth-bound on one chip, bf16",
            "ms",
            2.0 * BIG_PARAMETERS / BANDWIDTH * 1e3,
            bf16.terms.weights.ms(),
        ),
        open(
            Q1,
            "bandwidth-bound on one chip, int8",
            "ms",
            BIG_PARAMETERS / BANDWIDTH * 1e3,
            int8.terms.weights.ms(),
        )
        .is(Open, "ours reads lm_head at 16 bits"),
    ])
}

fn second(catalog: &Catalog) -> Result<Vec<Claim>> {
    let mut d = Setup::new(SMALL, V5E, "int8", "int8").resolve(catalog)?;
    let batch = 240;
    let context = 8192;
    let memory = held(&d, context, batch);
    let hidden = d.model.hidden as f64;
    let ffn = super::ffn_width(&d.model) as f64;
    // Bytes of KV cache: 2 · L · K · H = 2 · 32 · 8 · 128 values of one byte per token, 8192 tokens, 240 sequences.
    let kv = 2.0 * 32.0 * 8.0 * 128.0 * 8192.0 * 240.0;
    let total = kv + SMALL_PARAMETERS;
    d.engine.max_num_batched_tokens = batch;
    d.engine.max_num_seqs = batch;
    let activations = roofcast_cost::memory::activation_peak(&d).as_f64();
    Ok(vec![
        open(Q2, "parameters", "GB", SMALL_PARAMETERS / 1e9, memory.weight_bytes.as_f64() / 1e9)
            .is(Open, "ours keeps embedding and lm_head at 16 bits"),
        open(Q2, "KV cache", "GB", kv / 1e9, memory.kv_bytes_per_sequence.as_f64() * 240.0 / 1e9),
        open(
            Q2,
            "activations, B·(2·D + 3·F) in bf16",
            "GB",
            240.0 * (2.0 * hidden + 3.0 * ffn) * 2.0 / 1e9,
            activations / 1e9,
        )
        .is(Open, "ours: sampling 240 rows of 128,256 logits takes more than a layer does"),
        open(Q2, "fewest chips", "chips", chips_for(total), number(memory.min_accelerators)),
        open(
            Q2,
            "topology",
            "chips",
            chips_for(total).log2().ceil().exp2(),
            number(memory.smallest_topology.map(|t| t.count)),
        ),
    ])
}

/// Time in seconds of a step of 405B on `chips` chips, with int8 weights and KV at 8192 tokens:
/// max(2PB FLOPs, P bytes) + B · KV.
fn step(chips: f64, batch: u64, kv: f64) -> f64 {
    let batch = batch as f64;
    let matrices = (2.0 * BIG_PARAMETERS * batch / (chips * FLOPS)).max(BIG_PARAMETERS / (chips * BANDWIDTH));
    matrices + batch * 8192.0 * kv / (chips * BANDWIDTH)
}

/// The largest batch whose step takes at most 15 ms, found by bisection.
fn within(most: u64, step: impl Fn(u64) -> f64) -> f64 {
    let mut below = 0;
    let mut above = most + 1;
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if step(middle) <= 15e-3 { below = middle } else { above = middle }
    }
    below as f64
}

fn third(catalog: &Catalog) -> Result<Vec<Claim>> {
    let on = |chips: u64| Setup::new(BIG, V5E, "int8", "int8").tp(chips).resolve(catalog);
    let half = on(32)?;
    let full = on(64)?;
    let weights = |d: &Deployment| decode(d, 1, 1).terms.weights.ms();
    let floor = |chips: f64| BIG_PARAMETERS / (chips * BANDWIDTH) * 1e3;
    let fewest = held(&half, 1, 1);
    // KV bytes per token: 2 · 126 layers · 8 KV heads · 128, one byte each.
    let kv = 2.0 * 126.0 * 8.0 * 128.0;
    // Seconds per sequence of two all-reduces per layer of 16,384 bf16 values: 2 · 63/64 of each value over both
    // directions of two axes of 45 GB/s.
    let links = 126.0 * 2.0 * 16_384.0 * 2.0 * (2.0 * 63.0 / 64.0) / (4.0 * 45e9);
    let memory = (64.0 * MEMORY - BIG_PARAMETERS) / (kv * 8192.0);
    Ok(vec![
        open(
            Q3,
            "chips for the weights",
            "chips",
            chips_for(BIG_PARAMETERS),
            number(fewest.min_accelerators),
        ),
        open(Q3, "least step on 32 chips", "ms", floor(32.0), weights(&half)).is(Open, "above 15 ms"),
        open(Q3, "least step on 8×8", "ms", floor(64.0), weights(&full)),
        open(
            Q3,
            "largest batch within 15 ms on 8×8, 8192 tokens",
            "batch",
            within(memory as u64, |b| step(64.0, b, kv)),
            within(held(&full, 8192, 1).max_batch, |b| decode(&full, b, 8192).limit.seconds()),
        ),
        open(
            Q3,
            "the same with the time on ICI",
            "batch",
            within(memory as u64, |b| step(64.0, b, kv) + b as f64 * links),
            within(held(&full, 8192, 1).max_batch, |b| {
                decode(&full, b, 8192).limit_with_communication.seconds()
            }),
        )
        .is(
            Open,
            "at batch 143 the messages take 12.9 ms more than the 15, over rings; 8×8 of a v5e has lines, as ours",
        ),
        open(
            Q3,
            "the same without KV",
            "batch",
            within(4096, |b| step(64.0, b, 0.0)),
            within(4096, |b| decode(&full, b, 1).limit.seconds()),
        ),
    ])
}
