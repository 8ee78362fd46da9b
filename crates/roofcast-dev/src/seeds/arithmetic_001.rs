//! Seed 001: the arithmetic of a 52B model (64 layers, width 8192) on A100 40 GB.
//!
//! Knows: kipply's closed forms for 12·L·d² weights, read at 1.5 TB/s and multiplied at 312 TFLOP/s. Knows nothing
//! about other seeds. Source: <https://kipp.ly/transformer-inference-arithmetic/>.

use super::SeedVerdict::{Exact, Inconsistent, Rounded, Unit, WrongInput};
use super::{Claim, Setup, closed_forms, decode, held, prefill};
use roofcast_ask::deployment::Deployment;
use roofcast_cost::cost::Cost;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;
use roofcast_facts::model::{Family, OperatorKind};

const CACHE: &str = "kv cache";
const CAPACITY: &str = "capacity";
const PARALLEL: &str = "model parallelism: what a rank sends for one token";

const LAYERS: f64 = 64.0;
const WIDTH: f64 = 8192.0;
/// FLOP/s of an A100, as the text rounds it.
const FLOPS: f64 = 312e12;
/// Bandwidth of an A100 40 GB in bytes/s, as the text rounds it; the datasheet has 1.555e12.
const BANDWIDTH: f64 = 1.5e12;
/// KV cache of one token in GB, as the text rounds it.
const KV_GB: f64 = 0.002;

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let mut all = kv_cache(catalog)?;
    all.extend(forward(catalog)?);
    all.extend(memory(catalog)?);
    all.extend(parallel(catalog)?);
    Ok(all)
}

fn setup() -> Setup<'static> {
    Setup::new("kipply/52b", "a100-sxm-40gb", "fp16", "fp16")
}

/// FLOPs of the matrices of all layers in a decode step, without lm_head.
fn matrix_flops(cost: &Cost) -> f64 {
    let inner = cost.operators.iter().filter(|o| o.family == Family::Gemm && o.name != OperatorKind::LmHead);
    inner.map(|o| o.flops.as_f64()).sum()
}

/// 2·2·n_layers·d_model²: FLOPs of the key and value projections of one token, all layers.
fn kv_flops() -> f64 {
    2.0 * 2.0 * LAYERS * WIDTH * WIDTH
}

/// 2·12·n_layers·d_model²: bytes of the fp16 weights, which equal the FLOPs of one token.
fn forward_weights() -> f64 {
    2.0 * 12.0 * LAYERS * WIDTH * WIDTH
}

fn kv_cache(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = setup().resolve(catalog)?;
    let single_step = decode(&d, 1, 1);
    let forms = closed_forms(&d, 1, 2048);
    let share = forms.kv_cache.kv_flops_share;
    let ridge = forms.critical_batch.first().map_or(f64::NAN, |c| c.batch);
    let s = CACHE;
    Ok(vec![
        Claim::new(s, "KV FLOPs per token, 2·2·n_layers·d²", "17,179,869,184", "FLOP")
            .recomputed(kv_flops())
            .roofcast(matrix_flops(&single_step) * share),
        Claim::new(s, "reading the KV weights, FLOPs / 2 × 2 B / 1.5e12", "formula", "ms")
            .recomputed(kv_flops() / BANDWIDTH * 1e3)
            .roofcast(matrix_flops(&single_step) * share / d.bandwidth().0 * 1e3)
            .is(Exact, "the A100 40 GB moves 1.555 TB/s"),
        Claim::new(s, "computing K and V of one token, FLOPs / 312e12", "formula", "ms")
            .recomputed(kv_flops() / FLOPS * 1e3)
            .roofcast(matrix_flops(&single_step) * share / d.accelerator.peak(d.base)?.0 * 1e3),
        Claim::new(s, "tokens until compute-bound, 312/1.5", "208", "tokens")
            .recomputed(FLOPS / BANDWIDTH)
            .roofcast(ridge)
            .is(Exact, "at 1.555 TB/s the ridge is lower"),
        Claim::new(s, "K and V as a share of a token's forward pass", "1/6", "share")
            .recomputed(kv_flops() / forward_weights())
            .roofcast(share),
        Claim::new(s, "passes saved a step, n = 2048 cached tokens, n/6", "formula", "tokens")
            .recomputed(2048.0 * kv_flops() / forward_weights())
            .roofcast(2048.0 * share),
        Claim::new(s, "context up to which recomputing is free, batch 1", "small batch", "tokens")
            .recomputed(FLOPS / BANDWIDTH)
            .roofcast(forms.kv_cache.break_even_context as f64 - 1.0)
            .is(Exact, "below the ridge the weights are read anyway; from there on the cache is faster"),
    ])
}

/// Time in seconds of the matrices in a pass of `tokens` tokens: max(weights / 1.5e12, tokens·FLOPs / 312e12).
fn forward_s(tokens: f64) -> f64 {
    (forward_weights() / BANDWIDTH).max(tokens * forward_weights() / FLOPS)
}

fn forward(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = setup().resolve(catalog)?;
    let four = setup().tp(4).resolve(catalog)?;
    let ratio =
        |tokens: u64| prefill(&d, tokens, 1.0).limit.seconds() / prefill(&d, 208, 1.0).limit.seconds();
    let s = CACHE;
    let growth = "ours counts lm_head, whose one row does not grow, and attention";
    Ok(vec![
        Claim::new(s, "parameters, 12·n_layers·d²", "52B", "B")
            .recomputed(forward_weights() / 2.0 / 1e9)
            .roofcast(d.model.parameters().total as f64 / 1e9)
            .is(Rounded, "ours counts embedding, lm_head (an assumed vocabulary), biases and norms"),
        Claim::new(s, "a pass of 208 tokens, 12·2·n_layers·d²/1.5e12", "69 ms", "ms")
            .recomputed(forward_weights() / BANDWIDTH * 1e3)
            .roofcast(decode(&d, 1, 1).terms.weights.ms())
            .is(Exact, "ours: 1.555 TB/s, with lm_head"),
        Claim::new(s, "the same on 4 A100, 69/4", "17 ms", "ms")
            .recomputed(forward_weights() / BANDWIDTH / 4.0 * 1e3)
            .roofcast(decode(&four, 1, 1).terms.weights.ms()),
        Claim::new(s, "416 tokens over 208 tokens", "2", "×")
            .recomputed(forward_s(416.0) / forward_s(208.0))
            .roofcast(ratio(416))
            .is(Exact, growth),
        Claim::new(s, "312 tokens over 208 tokens, 312/208", "1.5", "×")
            .recomputed(forward_s(312.0) / forward_s(208.0))
            .roofcast(ratio(312))
            .is(Exact, growth),
    ])
}

fn memory(catalog: &Catalog) -> Result<Vec<Claim>> {
    let three = setup().pp(3).resolve(catalog)?;
    let four = setup().tp(4).resolve(catalog)?;
    let held3 = held(&three, 2048, 1);
    let held4 = held(&four, 2048, 1);
    let kv = held3.kv_bytes_per_token.as_f64();
    let free =
        |d: &Deployment, count: u64| (d.accelerator.memory_bytes * count).saturating_sub(d.weight_bytes);
    let gib = "an A100 40 GB has 40 GiB = 42.9 GB";
    let s = CAPACITY;
    Ok(vec![
        Claim::new(s, "weights, 52e12 · 2 bytes", "104 GB", "GB")
            .recomputed(52e12 * 2.0 / 1e9)
            .roofcast(held3.weight_bytes.as_f64() / 1e9)
            .is(Inconsistent, "a slip: 52e9 · 2 bytes are 104 GB; 52e12 would be 104 TB"),
        Claim::new(s, "fewest A100 40 GB", "3", "GPUs")
            .recomputed((104.0_f64 / 40.0).ceil())
            .roofcast(held3.min_accelerators.map_or(f64::NAN, |n| n as f64)),
        Claim::new(s, "free on 3, 120 − 104", "16 GB", "GB")
            .recomputed(3.0 * 40.0 - 104.0)
            .roofcast(free(&three, 3).as_f64() / 1e9)
            .is(Unit, gib),
        Claim::new(s, "KV per token, 2·2·n_layers·d", "0.002 GB", "GB")
            .recomputed(2.0 * 2.0 * LAYERS * WIDTH / 1e9)
            .roofcast(kv / 1e9)
            .is(Rounded, format!("the exact size is {:.1} % more", (kv / 1e9 / KV_GB - 1.0) * 100.0)),
        Claim::new(s, "tokens on 3, 16/0.002", "8000", "tokens")
            .recomputed((3.0 * 40.0 - 104.0) / KV_GB)
            .roofcast(held3.kv_tokens as f64)
            .is(Unit, format!("{:.0} with the exact KV in 16 GB; {gib}", (16e9 / kv).floor())),
        Claim::new(s, "4 requests of 2048 on 3", "fits 16 GB", "GB")
            .recomputed(4.0 * 2048.0 * 2.0 * 2.0 * LAYERS * WIDTH / 1e9)
            .roofcast(held3.kv_bytes_per_sequence.as_f64() * 4.0 / 1e9)
            .is(Inconsistent, format!("more than 16 GB; {} requests fit the true memory", held3.max_batch)),
        Claim::new(s, "free on 4", "56 GB", "GB")
            .recomputed(4.0 * 40.0 - 104.0)
            .roofcast(free(&four, 4).as_f64() / 1e9)
            .is(Unit, format!("{gib}; 4·40 − 104, which answers the translator's \"why not 64?\"")),
        Claim::new(s, "tokens on 4, 56/0.002", "23000", "tokens")
            .recomputed((4.0 * 40.0 - 104.0) / KV_GB)
            .roofcast(held4.kv_tokens as f64)
            .is(Inconsistent, "not what 56/0.002 is"),
    ])
}

fn parallel(catalog: &Catalog) -> Result<Vec<Claim>> {
    let tp = setup().tp(4).resolve(catalog)?;
    let pp = setup().pp(4).resolve(catalog)?;
    let link = tp.accelerator.link.as_ref().map_or(f64::NAN, |l| l.bytes_per_s.0);
    let bytes = f64::from(tp.base.bits()) / 8.0;
    let layers = tp.model.layers.len() as f64;
    let sent = decode(&tp, 1, 1).communication.all_reduce.seconds() * link / bytes / layers;
    let passed = decode(&pp, 1, 1).communication.pipeline.seconds() * link / bytes / 3.0;
    let s = PARALLEL;
    Ok(vec![
        Claim::new(s, "A100 link, one direction", "300 GB/s", "GB/s")
            .recomputed(600.0 / 2.0)
            .roofcast(link / 1e9)
            .is(Exact, "600 GB/s counts both directions"),
        Claim::new(s, "tensor parallel: values a layer, N = 4", "N·d_model", "values")
            .recomputed(4.0 * WIDTH)
            .roofcast(sent)
            .is(WrongInput, "a rank of two ring all-reduces sends 4(N − 1)/N·d: it does not grow with N"),
        Claim::new(s, "pipeline: values a stage", "d_model", "values").recomputed(WIDTH).roofcast(passed),
        Claim::new(s, "intermediate values at 208 tokens", "negligible", "GB")
            .roofcast(activations(&tp) / 1e9)
            .is(Exact, "activation peak of one of 4 ranks; small beside 26 GB of weights"),
    ])
}

/// Bytes of the activations of a pass of 208 tokens on one rank: 208·(2·d + 2·4d/tp) values.
fn activations(d: &Deployment) -> f64 {
    let mut small = d.clone();
    small.engine.max_num_batched_tokens = 208;
    small.engine.max_num_seqs = 1;
    roofcast_cost::memory::activation_peak(&small).as_f64()
}
