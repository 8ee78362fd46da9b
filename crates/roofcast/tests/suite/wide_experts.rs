//! Experts over many data-parallel ranks: exchanges by DeepEP, their overlap with kernels, skewed loads and balancing.

use crate::support::{catalog, model};
use roofcast::accelerator::Accelerator;
use roofcast::batch::Batch;
use roofcast::cost::{Cost, Utilization, cost};
use roofcast::deployment::DeploymentOptions;
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::{All2AllBackend, EngineSpec, ExpertsSpec};
use roofcast::{Deployment, Error, Forecaster};
use std::sync::Arc;

const DEEPSEEK: &str = "deepseek-ai/DeepSeek-V3";
const BACKENDS: [All2AllBackend; 4] = [
    All2AllBackend::AllgatherReducescatter,
    All2AllBackend::DeepepHighThroughput,
    All2AllBackend::DeepepLowLatency,
    All2AllBackend::DeepepAuto,
];

fn resolved(chip: Accelerator, ranks: u64, experts: ExpertsSpec) -> Result<Deployment, Error> {
    let parallelism = RequestedParallelism {
        tp: Some(1),
        ep: Some(ranks),
        attention_dp: Some(ranks),
        ..RequestedParallelism::default()
    };
    let engine = EngineSpec { experts, ..EngineSpec::default() };
    Deployment::resolve(
        model(DEEPSEEK),
        Arc::new(chip),
        &DeploymentOptions { parallelism, engine, ..DeploymentOptions::default() },
    )
}

fn h200() -> Accelerator {
    catalog().accelerator("h200-sxm").unwrap().clone()
}

fn step(chip: Accelerator, ranks: u64, batch: &Batch, experts: ExpertsSpec) -> Cost {
    let forecaster = Forecaster::embedded(resolved(chip, ranks, experts).unwrap()).unwrap();
    cost(&forecaster, batch, Utilization::FULL)
}

fn decoding(ranks: u64, each: u64, experts: ExpertsSpec) -> Cost {
    step(h200(), ranks, &Batch::decode(ranks * each, 2048), experts)
}

fn of(backend: All2AllBackend) -> ExpertsSpec {
    ExpertsSpec { all2all_backend: Some(backend), ..ExpertsSpec::default() }
}

fn near(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "{found} instead of {expected}");
}

/// DeepEP's low-latency kernels on 32 H200 (SGLang's table of 0.5.6, 7168 values, 8 of 256 experts): 128 tokens a rank are
/// dispatched in 142.97 µs and combined in 263.27 µs, in each of 58 layers: 23.56 ms. Codes of times are within 0.27 %.
/// At the limit, 8 · 24/32 copies of 7168 · (1 + 4/128) and 7168 · 2 bytes leave a rank at 50 GB/s: 6 · 21,728 bytes
/// for each of 128 tokens in each of 58 layers.
#[test]
fn measured_exchanges_by_hand() {
    let found = decoding(32, 128, of(All2AllBackend::DeepepLowLatency));
    near(found.beside.links.ms(), 58.0 * (0.14297 + 0.26327), 3e-3);
    near(found.terms.communication.ms(), 58.0 * 128.0 * 6.0 * 21_728.0 / 50e9 * 1e3, 1e-4);
}

/// With all-gather and reduce-scatter a rank receives the 31 · 128 tokens of the other ranks in BF16 and sends as many
/// back: 2 · 3968 · 14,336 bytes at 50 GB/s in each of 58 layers.
#[test]
fn gathering_by_hand() {
    let found = decoding(32, 128, of(All2AllBackend::AllgatherReducescatter));
    near(found.terms.communication.ms(), 58.0 * 2.0 * 3968.0 * 14_336.0 / 50e9 * 1e3, 1e-4);
    let low_latency = decoding(32, 128, of(All2AllBackend::DeepepLowLatency));
    assert!(
        found.forecast > low_latency.forecast
            && found.limit_with_communication > low_latency.limit_with_communication
    );
}

/// The experts behind the exchange: 4096 tokens of 32 ranks take 124.192 µs with even routing (SGLang's table of 0.5.10),
/// in each of 58 layers. The experts of steps with prompts have another kernel.
#[test]
fn experts_behind_an_exchange_by_hand() {
    let experts = |backend| {
        let found = decoding(32, 128, of(backend));
        found.operators.iter().find(|o| o.name.name() == "experts").unwrap().forecast.ms()
    };
    near(experts(All2AllBackend::DeepepLowLatency), 58.0 * 0.124_192, 3e-3);
    assert_eq!(experts(All2AllBackend::DeepepAuto), experts(All2AllBackend::DeepepLowLatency));
    assert!(experts(All2AllBackend::DeepepHighThroughput) > experts(All2AllBackend::DeepepLowLatency));
}

/// 256 decodes a rank in two microbatches of 128, each dispatched in 142.97 µs and combined in 263.27 µs in each of 58
/// layers. Multiprocessors work as long as for the exchange on one node, 35.119 and 67.745 µs, of each microbatch.
/// Kernels around the experts last longer than the rest of an exchange, and experts, 124.192 µs, longer than the rest of
/// a dispatch, but not of a combination: 263.27 − 67.745 − 124.192 µs are exposed, and the last combination. Below the
/// threshold nothing is split.
#[test]
fn overlapped_exchanges_by_hand() {
    let low_latency = of(All2AllBackend::DeepepLowLatency);
    let both = ExpertsSpec { enable_dbo: true, ..low_latency };
    let (alone, overlapped) = (decoding(32, 256, low_latency), decoding(32, 256, both));
    let work = 2.0 * 58.0 * (0.035_119 + 0.067_745);
    let exposed = 58.0 * (0.263_27 - 0.067_745 - 0.124_192) + 0.263_27;
    near(overlapped.beside.links.ms(), work + exposed, 1e-2);
    assert!(overlapped.forecast < alone.forecast);
    // Each microbatch reads the weights of 8 experts.
    let experts =
        |cost: &Cost| cost.operators.iter().find(|o| o.name.name() == "experts").unwrap().forecast.ms();
    near(experts(&overlapped), 2.0 * 58.0 * 0.124_192, 3e-3);
    // At the limit, the exchange hides behind the kernels or the kernels behind the exchange.
    let longer = alone.limit.max(alone.terms.communication);
    near(overlapped.limit_with_communication.ms(), longer.ms(), 1e-9);
    let above = ExpertsSpec { dbo_decode_token_threshold: Some(257), ..both };
    assert_eq!(decoding(32, 256, above).forecast, alone.forecast);
}

/// A rank with 1.5 times the mean number of tokens computes and exchanges 1.5 times as many; the limit's FLOPs of experts
/// are 1.5 times as many, and so is the time of the exchange.
#[test]
fn the_busiest_rank_decides() {
    let even = of(All2AllBackend::DeepepLowLatency);
    let skewed = ExpertsSpec { expert_imbalance: Some(0.5), ..even };
    let (even, skewed) = (decoding(32, 256, even), decoding(32, 256, skewed));
    let flops =
        |cost: &Cost| cost.operators.iter().find(|o| o.name.name() == "experts").unwrap().flops.0 as f64;
    near(flops(&skewed) / flops(&even), 1.5, 1e-9);
    near(skewed.terms.communication.ms() / even.terms.communication.ms(), 1.5, 1e-6);
    assert!(skewed.forecast > even.forecast);
}

/// Load balancing with 32 second copies: 288 experts on 32 ranks are nine a rank instead of eight, one more of 3 · 7168 ·
/// 2048 weights in 8 bits, with a 32-bit scale for every 128 × 128, in each of 58 layers. It evens out a skew.
#[test]
fn balancing_costs_memory_and_evens_out() {
    let low_latency = of(All2AllBackend::DeepepLowLatency);
    let skewed = ExpertsSpec { expert_imbalance: Some(1.5), ..low_latency };
    let balanced = ExpertsSpec { enable_eplb: true, num_redundant_experts: Some(32), ..skewed };
    let bytes = |experts| resolved(h200(), 32, experts).unwrap().stages[0].weight_bytes.as_f64();
    let one = 3.0 * 7168.0 * 2048.0 * (1.0 + 4.0 / (128.0 * 128.0));
    near(bytes(balanced) - bytes(skewed), 58.0 * one, 1e-4);
    let [even, skewed, balanced] = [low_latency, skewed, balanced].map(|e| decoding(32, 256, e).forecast);
    // In a step of 2048 tokens a rank the busiest has √2048 · 2.04 more: 4.5 %.
    assert!(even < balanced && balanced < skewed, "{even:?} {balanced:?} {skewed:?}");
    near(balanced.ms(), even.ms(), 0.06);
}

/// Low-latency buffers of DeepSeek-V3: four times 256 experts, 256 tokens and 7168 · 2 + 56 · 4 bytes, 3.82 GB, and 1 GiB
/// for NVLink. High throughput has 1 GiB within a node, and 2 GiB between nodes.
#[test]
fn buffers_by_hand() {
    let runtime = |ranks, experts| {
        let deployment = resolved(h200(), ranks, experts).unwrap();
        roofcast::memory::Memory::of(&deployment).ranks()[0].runtime_bytes.0
    };
    let more = |ranks, backend| runtime(ranks, of(backend)) - runtime(ranks, ExpertsSpec::default());
    assert_eq!(more(32, All2AllBackend::DeepepLowLatency), 4 * 256 * 256 * 14_560 + (1 << 30));
    assert_eq!(more(8, All2AllBackend::DeepepHighThroughput), 1 << 30);
    assert_eq!(more(32, All2AllBackend::DeepepHighThroughput), 2 << 30);
}

/// The answer says what balancing leaves. A placement moves at most nine experts of 44.05 MB in each of 58 layers, 22.99 GB
/// at 50 GB/s.
#[test]
fn the_answer_says_what_balancing_gives() {
    let skewed = ExpertsSpec { expert_imbalance: Some(1.5), ..of(All2AllBackend::DeepepLowLatency) };
    let said = |experts| resolved(h200(), 32, experts).unwrap().assumptions.join("\n");
    let without = said(skewed);
    assert!(without.contains("2.50 × the mean") && without.contains("--enable-eplb"), "{without}");
    let with = said(ExpertsSpec { enable_eplb: true, num_redundant_experts: Some(32), ..skewed });
    assert!(with.contains("balanced 1.00 ×") && with.contains("0.46 s every 3000 steps"), "{with}");
}

#[test]
fn what_does_not_fit_together_is_refused_by_name() {
    let low_latency = of(All2AllBackend::DeepepLowLatency);
    let refused = |ranks, experts: ExpertsSpec, field: &str| {
        let error = resolved(h200(), ranks, experts).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    };
    refused(1, low_latency, "all2all_backend");
    refused(8, ExpertsSpec { enable_dbo: true, ..ExpertsSpec::default() }, "enable_dbo");
    refused(8, ExpertsSpec { enable_dbo: true, ..of(All2AllBackend::AllgatherReducescatter) }, "enable_dbo");
    refused(1, ExpertsSpec { enable_eplb: true, ..ExpertsSpec::default() }, "enable_eplb");
    refused(8, ExpertsSpec { num_redundant_experts: Some(8), ..low_latency }, "num_redundant_experts");
    refused(
        8,
        ExpertsSpec { enable_eplb: true, num_redundant_experts: Some(3), ..low_latency },
        "num_redundant_experts",
    );
    refused(8, ExpertsSpec { expert_imbalance: Some(7.0), ..low_latency }, "expert_imbalance");
    refused(8, ExpertsSpec { expert_imbalance: Some(-0.1), ..low_latency }, "expert_imbalance");
}

/// No forecast is below its limit, and a faster network never makes a step slower, with any exchange.
#[test]
fn exchanges_keep_the_limit() {
    let batches = [Batch::decode(32, 512), Batch::decode(32 * 200, 4096), Batch::prefill(64, 2048)];
    for backend in BACKENDS {
        for enable_dbo in [false, backend != All2AllBackend::AllgatherReducescatter] {
            for batch in &batches {
                let experts = ExpertsSpec { enable_dbo, expert_imbalance: Some(0.3), ..of(backend) };
                let mut faster = h200();
                faster.network.as_mut().unwrap().bytes_per_s.0 *= 2.0;
                let [now, then] = [h200(), faster].map(|chip| step(chip, 32, batch, experts));
                assert!(now.forecast >= now.limit_with_communication, "{backend:?} {enable_dbo} {now:?}");
                assert!(then.forecast <= now.forecast, "{backend:?} {enable_dbo}");
                assert!(then.limit_with_communication <= now.limit_with_communication);
            }
        }
    }
}
