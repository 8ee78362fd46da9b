//! The program at the end of seed 004: latency and throughput over batch, int8 on 16 chips.
//!
//! Knows: `latency = max(2PB FLOPs, P bytes) + KV bytes` over all chips, and the text's conclusions from it. Knows
//! nothing about the chapter's tables.

use super::super::SeedVerdict::{Exact, Inconsistent};
use super::super::{Claim, decode, held};
use super::{BANDWIDTH, FLOPS, MEMORY, PARAMETERS, kv_bytes, serving};
use roofcast_ask::deployment::Deployment;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;

const PROGRAM: &str = "the program: int8 on 16 chips at 8192 tokens";
const CONCLUSIONS: &str = "what the curves show, int8 on 16 chips";

const CHIPS: f64 = 16.0;

/// The program's `get_max_batch_size`: the largest B for which B·kv + P is within 16 × 16e9 bytes.
fn max_batch(context: f64) -> u64 {
    ((CHIPS * MEMORY - PARAMETERS) / (kv_bytes(1.0) * context)) as u64
}

/// The program's `latency`, in seconds.
fn latency(batch: u64, context: f64) -> f64 {
    let batch = batch as f64;
    let mlp = (2.0 * PARAMETERS * batch / (CHIPS * FLOPS)).max(PARAMETERS / (CHIPS * BANDWIDTH));
    mlp + batch * context * kv_bytes(1.0) / (CHIPS * BANDWIDTH)
}

/// The program's `throughput` in tokens per millisecond and chip.
fn throughput(batch: u64, context: f64) -> f64 {
    batch as f64 / (latency(batch, context) * 1e3 * CHIPS)
}

/// The largest batch up to `most` whose step takes at most `times` the step of batch 1, and the factor by which a token
/// is less expensive with that batch. Found by bisection, because step times grow with the batch.
pub(super) fn cheaper(most: u64, times: f64, step: impl Fn(u64) -> f64) -> (u64, f64) {
    let mut below = 1;
    let mut above = most.max(1) + 1;
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if step(middle) <= times * step(1) { below = middle } else { above = middle }
    }
    (below, below as f64 * step(1) / step(below))
}

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = serving(catalog, "int8", 16)?;
    let ours = held(&d, 8192, 1).max_batch;
    let largest_batch = max_batch(8192.0);
    let mut all = vec![
        Claim::new(PROGRAM, "max_bs", "printed by it", "batch")
            .recomputed(largest_batch as f64)
            .roofcast(ours as f64)
            .is(Exact, "ours with the exact parameters"),
    ];
    for batch in [1, 8, 32, 64, 120, largest_batch] {
        let step = decode(&d, batch, 8192).limit;
        all.push(
            Claim::new(PROGRAM, format!("latency at batch {batch}"), "plotted", "ms")
                .recomputed(latency(batch, 8192.0) * 1e3)
                .roofcast(step.ms()),
        );
        all.push(
            Claim::new(PROGRAM, format!("throughput at batch {batch}"), "plotted", "tok/ms/chip")
                .recomputed(throughput(batch, 8192.0))
                .roofcast(batch as f64 / step.ms() / CHIPS),
        );
    }
    all.extend(conclusions(&d));
    Ok(all)
}

fn conclusions(d: &Deployment) -> Vec<Claim> {
    let s = CONCLUSIONS;
    let mut all = Vec::new();
    for context in [2048, 8192, 32_768] {
        let theirs = cheaper(max_batch(context as f64), 2.0, |b| latency(b, context as f64));
        let ours = cheaper(held(d, context, 1).max_batch, 2.0, |b| decode(d, b, context).limit.seconds());
        all.push(
            Claim::new(s, format!("cost saved by twice the latency, {context} tokens"), "100 ×", "×")
                .recomputed(theirs.1)
                .roofcast(ours.1)
                .is(Inconsistent, format!("at batch {}", theirs.0)),
        );
    }
    let ours = |batch: u64| batch as f64 / decode(d, batch, 2048).limit.seconds();
    all.push(
        Claim::new(s, "throughput at batch 240 over batch 120, 2048 tokens", "flat", "×")
            .recomputed(throughput(240, 2048.0) / throughput(120, 2048.0))
            .roofcast(ours(240) / ours(120)),
    );
    all.push(
        Claim::new(s, "largest batch at 32,768 tokens, to reach 120", "too small", "batch")
            .recomputed(max_batch(32_768.0) as f64)
            .roofcast(held(d, 32_768, 1).max_batch as f64),
    );
    let largest_batch = max_batch(8192.0);
    let step = decode(d, largest_batch, 8192);
    let kv = largest_batch as f64 * 8192.0 * kv_bytes(1.0) / (CHIPS * BANDWIDTH);
    all.push(
        Claim::new(
            s,
            format!("share of KV in the step at batch {largest_batch}, 8192 tokens"),
            "dominates",
            "share",
        )
        .recomputed(kv / latency(largest_batch, 8192.0))
        .roofcast(step.terms.kv.seconds() / step.limit.seconds()),
    );
    all
}
