//! Seed 000: the time of a token and the requests that fit on 8 V100s, for LLaMA-13B and 65B.
//!
//! Knows: the text's four latency formulas (kipply's), its batch bounds and its remarks on arithmetic intensity. Knows
//! nothing about other seeds.

use super::SeedVerdict::{Exact, Inconsistent, Measured, Rounded, Unit, WrongInput};
use super::{Claim, GIB, Setup, closed_forms, decode, held, model};
use roofcast_ask::deployment::Deployment;
use roofcast_cost::capacity::{CapacityQuestion, capacity};
use roofcast_cost::cost::Bottleneck;
use roofcast_cost::limits::intensity;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::Result;

const LATENCY: &str = "1.1 latency formulas (LLaMA-13B fp16 on 8 V100)";
const INTENSITY: &str = "1.2 arithmetic intensity";
const CONCURRENCY_13B: &str = "2 concurrency, LLaMA-13B on 8 V100 at 2048 tokens";
const CONCURRENCY_65B: &str = "2 concurrency, LLaMA-65B on 8 V100 at 2048 tokens";

const M13: &str = "huggyllama/llama-13b";
const M65: &str = "huggyllama/llama-65b";
const V100: &str = "v100-32gb";

/// Batch at which the text's compute-bound formulas are evaluated: above the V100's ridge point of 139.
const LARGE_BATCH: u64 = 256;
/// `max_sequence_length` of LLaMA in tokens, the largest context in the text.
const CONTEXT: u64 = 2048;
/// FLOPs per weight and token: a multiply and an add.
const FLOPS_PER_WEIGHT: f64 = 2.0;
/// Bytes of an fp16 weight.
const FP16_BYTES: f64 = 2.0;
/// Memory of the node in GB, as the text writes it: 32*8.
const NODE_GB: f64 = 32.0 * 8.0;

pub(super) fn claims(catalog: &Catalog) -> Result<Vec<Claim>> {
    let mut all = latency(catalog)?;
    all.extend(arithmetic_intensity(catalog)?);
    all.extend(concurrency_13b(catalog)?);
    all.extend(concurrency_65b(catalog)?);
    Ok(all)
}

/// Inputs of the text's latency formulas, by the text's symbols.
struct Inputs {
    /// P: number of parameters.
    parameters: f64,
    /// N: number of GPUs.
    gpus: f64,
    /// A_bm: memory bandwidth of one GPU in bytes/s.
    bandwidth: f64,
    /// A_f: fp16 FLOP/s of one GPU.
    flops: f64,
    /// A_c: link bandwidth in bytes/s.
    link: f64,
    layers: f64,
    hidden: f64,
}

impl Inputs {
    /// compute = 2·P / (N·A_bm) in milliseconds: the fp16 weights are read once.
    fn weights_ms(&self) -> f64 {
        2.0 * self.parameters / (self.gpus * self.bandwidth) * 1e3
    }

    /// comms = 4·n_layers·8 µs in milliseconds: four messages per layer.
    fn messages_ms(&self) -> f64 {
        4.0 * self.layers * 8e-6 * 1e3
    }

    /// compute = B·2·P / (N·A_f) in milliseconds.
    fn flops_ms(&self, batch: f64) -> f64 {
        batch * 2.0 * self.parameters / (self.gpus * self.flops) * 1e3
    }

    /// comms = B·2·4·n_layers·d_model / A_c in milliseconds.
    fn volume_ms(&self, batch: f64) -> f64 {
        batch * 2.0 * 4.0 * self.layers * self.hidden / self.link * 1e3
    }
}

fn latency(catalog: &Catalog) -> Result<Vec<Claim>> {
    let d = Setup::new(M13, V100, "fp16", "fp16").tp(8).resolve(catalog)?;
    let inputs = Inputs {
        parameters: d.model.parameters().total as f64,
        gpus: 8.0,
        bandwidth: d.accelerator.bandwidth_bytes_per_s.0,
        flops: d.accelerator.peak(d.base)?.0,
        link: d.accelerator.link.as_ref().map_or(f64::NAN, |l| l.bytes_per_s.0),
        layers: d.model.layers.len() as f64,
        hidden: d.model.hidden as f64,
    };
    // The text omits reads of the KV cache, so the context is the least possible: one token.
    let single_step = decode(&d, 1, 1);
    let many = decode(&d, LARGE_BATCH, 1);
    let hops =
        closed_forms(&d, 1, 1).all_reduce.iter().map(|a| a.bandwidth + a.latency).min().unwrap_or_default();
    let messages = hops * single_step.communication.all_reduces;
    let batch = LARGE_BATCH as f64;
    Ok(vec![
        Claim::new(LATENCY, "small batch: weights, 2P/(N·A_bm)", "formula", "ms")
            .recomputed(inputs.weights_ms())
            .roofcast(single_step.terms.weights.ms())
            .is(Exact, "the input embedding is looked up, not streamed; such a time is a lower bound, which the text calls an upper one"),
        Claim::new(LATENCY, "small batch: comms, 4·n_layers·8 µs", "formula", "ms")
            .recomputed(inputs.messages_ms())
            .roofcast(messages.ms())
            .is(Exact, "8 µs is assumed; ours: two all-reduces a layer by the best of ring and tree at the catalog's latency a hop"),
        Claim::new(LATENCY, format!("batch {LARGE_BATCH}: FLOPs, B·2P/(N·A_f)"), "formula", "ms")
            .recomputed(inputs.flops_ms(batch))
            .roofcast(many.terms.flops.ms())
            .is(Exact, "the input embedding multiplies nothing"),
        Claim::new(LATENCY, format!("batch {LARGE_BATCH}: comms, B·8·n_layers·d_model/A_c"), "formula", "ms")
            .recomputed(inputs.volume_ms(batch))
            .roofcast(many.terms.communication.ms())
            .is(Rounded, "a ring sends (N − 1)/N of that"),
    ])
}

/// AI = B / (1 + 2B/n) in FLOPs per byte: a square fp16 layer of width n, with its inputs and outputs.
fn square_layer(batch: f64, n: f64) -> f64 {
    batch / (1.0 + 2.0 * batch / n)
}

/// The batch from which a square fp16 layer of width `n` reaches `ridge` FLOPs per byte: B = R / (1 − 2R/n), rounded
/// up.
fn crossover(ridge: f64, n: f64) -> f64 {
    (ridge / (1.0 - 2.0 * ridge / n)).ceil()
}

/// The same crossover by the library: the first batch with which the layer is compute-bound.
fn library_crossover(d: &Deployment) -> f64 {
    let batches: Vec<u64> = (1..=1024).collect();
    let points = intensity(d, 4096, 4096, 2.0, &batches);
    points.iter().find(|p| p.bound == Bottleneck::Compute).map_or(f64::NAN, |p| p.batch as f64)
}

fn arithmetic_intensity(catalog: &Catalog) -> Result<Vec<Claim>> {
    let a100 = Setup::new(M13, "a100-sxm-40gb", "fp16", "fp16").resolve(catalog)?;
    let a100_80 = Setup::new(M13, "a100-sxm-80gb", "fp16", "fp16").resolve(catalog)?;
    let ridge =
        |d: &Deployment| Ok::<f64, roofcast_facts::Error>(d.accelerator.peak(d.base)?.0 / d.bandwidth().0);
    let mut all: Vec<Claim> = [1, 16, 64, 128, 256, 1024]
        .iter()
        .zip(intensity(&a100, 4096, 4096, 2.0, &[1, 16, 64, 128, 256, 1024]))
        .map(|(batch, point)| {
            Claim::new(INTENSITY, format!("4096×4096 layer, batch {batch}"), "curve", "FLOP/B")
                .recomputed(square_layer(*batch as f64, 4096.0))
                .roofcast(point.flops_per_byte)
        })
        .collect();
    for (name, d) in [("A100 40 GB", &a100), ("A100 80 GB", &a100_80)] {
        all.push(
            Claim::new(
                INTENSITY,
                format!("that layer is compute-bound on {name} from"),
                "above 128",
                "batch",
            )
            .recomputed(crossover(ridge(d)?, 4096.0))
            .roofcast(library_crossover(d))
            .is(Rounded, "safe but loose"),
        );
    }
    let v100 = Setup::new(M13, V100, "fp16", "fp16");
    let balance = ridge(&v100.resolve(catalog)?)?;
    let critical =
        |d: &Deployment| closed_forms(d, 1, 1).critical_batch.first().map_or(f64::NAN, |c| c.batch);
    all.extend([
        Claim::new(INTENSITY, "an fp16 decoder at batch 1", "about 2", "FLOP/B")
            .recomputed(FLOPS_PER_WEIGHT / FP16_BYTES)
            .roofcast(intensity(&a100, 4096, 4096, 2.0, &[1]).first().map_or(f64::NAN, |p| p.flops_per_byte))
            .is(Inconsistent, "2 FLOPs per weight of 2 bytes is 1"),
        Claim::new(INTENSITY, "tokens below which latency is flat on 8 V100", "ops:byte · N", "tokens")
            .recomputed(balance * 8.0)
            .roofcast(critical(&v100.tp(8).resolve(catalog)?))
            .is(Inconsistent, "tensor parallelism multiplies FLOPs and bandwidth alike: N drops out"),
        Claim::new(
            INTENSITY,
            "prompts of 8 tokens with flat latency, 4 to 8 V100",
            "below 16 to 32",
            "prompts",
        )
        .roofcast(balance / 8.0)
        .is(Measured, "the ridge of one V100 over 8 tokens"),
    ]);
    Ok(all)
}

/// 4·n_layers·d_model bytes: fp16 keys and values of one token, for multi-head attention only.
fn kv_bytes(layers: u64, hidden: u64) -> f64 {
    (4 * layers * hidden) as f64
}

/// (memory − weights) / request, all three in one unit.
fn batch_bound(weights: f64, request: f64) -> f64 {
    (NODE_GB - weights) / request
}

fn concurrency_13b(catalog: &Catalog) -> Result<Vec<Claim>> {
    let setup = Setup::new(M13, V100, "fp16", "fp16").tp(8);
    let d = setup.resolve(catalog)?;
    let fp16 = held(&d, CONTEXT, 1);
    let int8 = held(&Setup { weights: "w8", ..setup }.resolve(catalog)?, CONTEXT, 1);
    let kv8 = held(&Setup { kv: "int8", ..setup }.resolve(catalog)?, CONTEXT, 1);
    let m = model(catalog, M13)?;
    let kv = kv_bytes(m.layers.len() as u64, m.hidden);
    let nodes = capacity(
        &d,
        &CapacityQuestion { context: CONTEXT, batch: 1, oversubscription_percent: 100, users: Some(10_000) },
    );
    let s = CONCURRENCY_13B;
    Ok(vec![
        Claim::new(s, "KV per token, 4·n_layers·d_model", "formula", "B")
            .recomputed(kv)
            .roofcast(fp16.kv_bytes_per_token.as_f64())
            .is(Exact, "for multi-head attention"),
        Claim::new(s, "KV per token", "about 1 MB", "MB")
            .recomputed(kv / 1e6)
            .roofcast(fp16.kv_bytes_per_token.as_f64() / 1e6)
            .is(WrongInput, "contradicts the formula above it"),
        Claim::new(s, "KV per request", "2 GB", "GiB")
            .recomputed(kv * CONTEXT as f64 / GIB)
            .roofcast(fp16.kv_bytes_per_sequence.as_f64() / GIB)
            .is(WrongInput, "from the 1 MB"),
        Claim::new(s, "fp16 weights", "24.6", "GiB")
            .recomputed(2.0 * m.parameters().total as f64 / GIB)
            .roofcast(fp16.weight_bytes.as_f64() / GIB)
            .is(Rounded, "2 × 13.2e9 B would be 24.6 GiB"),
        Claim::new(s, "largest batch, fp16: (32*8 − 24.6)/2", "115.7", "requests")
            .recomputed(batch_bound(24.6, 2.0))
            .roofcast(fp16.max_batch as f64)
            .is(WrongInput, "rests on 2 GB a request; and only whole requests run"),
        Claim::new(s, "largest batch, int8: (32*8 − 24.6/2)/2", "121.85", "requests")
            .recomputed(batch_bound(24.6 / 2.0, 2.0))
            .roofcast(int8.max_batch as f64)
            .is(WrongInput, "the same; ours keeps embedding and lm_head at 16 bits"),
        Claim::new(s, "batch that DeepSpeed reached", "about 50", "requests")
            .roofcast(fp16.max_batch as f64)
            .is(Measured, "a third of what the memory holds"),
        Claim::new(s, "nodes for 10,000 users at 50 each", "200", "nodes")
            .recomputed(10_000.0 / 50.0)
            .roofcast(10_000_f64 / 50.0),
        Claim::new(s, "nodes for 10,000 users at the largest batch", "–", "nodes")
            .recomputed((10_000.0 / batch_bound(24.6, 2.0).floor()).ceil())
            .roofcast(nodes.deployments_for_users.map_or(f64::NAN, |n| n as f64))
            .is(WrongInput, "as the largest batch"),
        Claim::new(s, "batch with int8 KV over batch with fp16 KV", "2", "×")
            .recomputed(2.0)
            .roofcast(kv8.max_batch as f64 / fp16.max_batch as f64),
    ])
}

fn concurrency_65b(catalog: &Catalog) -> Result<Vec<Claim>> {
    let setup = Setup::new(M65, V100, "fp16", "fp16").tp(8);
    let fp16 = held(&setup.resolve(catalog)?, CONTEXT, 1);
    let int8 = held(&Setup { weights: "w8", ..setup }.resolve(catalog)?, CONTEXT, 1);
    let m = model(catalog, M65)?;
    let kv = kv_bytes(m.layers.len() as u64, m.hidden);
    let s = CONCURRENCY_65B;
    Ok(vec![
        Claim::new(s, "KV per token", "2.5 MB", "MiB")
            .recomputed(kv / f64::from(1 << 20))
            .roofcast(fp16.kv_bytes_per_token.as_f64() / f64::from(1 << 20))
            .is(Unit, "MiB; 2.62 MB"),
        Claim::new(s, "KV per request", "5 GB", "GiB")
            .recomputed(kv * CONTEXT as f64 / GIB)
            .roofcast(fp16.kv_bytes_per_sequence.as_f64() / GIB)
            .is(Unit, "GiB; with weights and memory in GiB, too, the bounds below are consistent"),
        Claim::new(s, "fp16 weights", "121.6", "GiB")
            .recomputed(2.0 * m.parameters().total as f64 / GIB)
            .roofcast(fp16.weight_bytes.as_f64() / GIB),
        Claim::new(s, "largest batch, fp16: (32*8 − 121.6)/5", "26.88", "requests")
            .recomputed(batch_bound(121.6, 5.0))
            .roofcast(fp16.max_batch as f64)
            .is(Exact, "only whole requests run"),
        Claim::new(s, "largest batch, int8: (32*8 − 121.6/2)/5", "39.04", "requests")
            .recomputed(batch_bound(121.6 / 2.0, 5.0))
            .roofcast(int8.max_batch as f64)
            .is(Exact, "ours keeps embedding and lm_head at 16 bits, which costs one request"),
    ])
}
