//! Requests per second per chip in seed 004: the smallest topologies and the doubled ones.
//!
//! Knows: the chapter's rule (batch over the time of 512 steps of 19 ms, over the number of chips) and the library's
//! answer. Knows nothing about the chapter's other tables.

use super::super::Claim;
use super::super::SeedVerdict::{Exact, Inconsistent, Rounded, WrongInput};
use super::super::{decode, held};
use super::{FLOPS, GENERATED, KINDS, STEP, batch, critical_batch, serving};
use roofcast_ask::deployment::Deployment;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;

const QPS: &str = "QPS per chip, 512 tokens a request";

/// Requests per second per chip: batch / (19 ms × 512) / chips.
fn queries(batch: f64, chips: u64) -> f64 {
    batch / (STEP * GENERATED) / chips as f64
}

/// The library's answer: its largest batch of sequences of 8192 tokens, the decode limit of that batch in seconds, and
/// requests per second per chip.
fn library_queries(d: &Deployment) -> (f64, f64, f64) {
    let batch = held(d, 8192, 1).max_batch;
    let step = decode(d, batch, 8192).limit.seconds();
    (batch as f64, step, batch as f64 / (step * GENERATED) / d.parallelism.count() as f64)
}

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let smallest = [("0.27", "cut, not rounded"), ("0.55", ""), ("1.11", "rounded up")];
    let doubled = [
        ("4×8", "140", "0.44", Rounded, Exact, "rounded up"),
        ("4×4", "~90", "0.90", Inconsistent, Rounded, "90 looks like the digits of the QPS; 0.90 needs 140"),
        (
            "2×4",
            "~80",
            "1.80",
            Inconsistent,
            WrongInput,
            "80 looks like the digits of the QPS; 1.80 needs 140",
        ),
    ];
    let mut all = Vec::new();
    for (kind, (said, why)) in KINDS.into_iter().zip(smallest) {
        let ours = library_queries(&serving(catalog, kind.name, kind.chips)?).2;
        let verdict = if why.is_empty() { Exact } else { Rounded };
        all.push(
            Claim::new(QPS, format!("{} on {} chips", kind.name, kind.chips), said, "req/s")
                .recomputed(queries(batch(kind, kind.chips), kind.chips))
                .roofcast(ours)
                .is(verdict, why),
        );
    }
    for (kind, (shape, batch_said, qps_said, on_batch, on_qps, why)) in KINDS.into_iter().zip(doubled) {
        let chips = 2 * kind.chips;
        let (most, step, ours) = library_queries(&serving(catalog, kind.name, chips)?);
        let words = |what: &str| format!("{} on {shape}: {what}", kind.name);
        let critical = critical_batch(FLOPS, kind.bytes);
        let from = if on_qps == Exact { "from 138" } else { "from a batch of 140" };
        let loose = if most > critical {
            format!(
                "{from}; above the critical batch of {critical:.0} a step takes {:.1} ms, not 19",
                step * 1e3
            )
        } else {
            from.to_owned()
        };
        all.extend([
            Claim::new(QPS, words("batch"), batch_said, "batch")
                .recomputed(batch(kind, chips))
                .roofcast(most)
                .is(on_batch, why),
            Claim::new(QPS, words("QPS per chip"), qps_said, "req/s")
                .recomputed(queries(batch(kind, chips), chips))
                .roofcast(ours)
                .is(on_qps, loose),
        ]);
    }
    Ok(all)
}
