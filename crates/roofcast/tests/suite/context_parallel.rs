//! Decode context parallelism: ranks that share the cached tokens of sequences in place of copies.

use crate::support::{catalog, model};
use roofcast::batch::Batch;
use roofcast::cost::{Cost, Utilization, cost};
use roofcast::deployment::DeploymentOptions;
use roofcast::memory::Memory;
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::EngineSpec;
use roofcast::{Deployment, Error, Forecaster};
use std::sync::Arc;

fn resolved(name: &str, tp: u64, shared: u64) -> Result<Deployment, Error> {
    let parallelism = RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() };
    let engine = EngineSpec { decode_context_parallel_size: Some(shared), ..EngineSpec::default() };
    let chip = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
    let options = DeploymentOptions { parallelism, engine, ..DeploymentOptions::default() };
    Deployment::resolve(model(name), chip, &options)
}

fn decoding(name: &str, tp: u64, shared: u64) -> Cost {
    let forecaster = Forecaster::embedded(resolved(name, tp, shared).unwrap()).unwrap();
    cost(&forecaster, &Batch::decode(64, 32_768), Utilization::FULL)
}

/// DeepSeek-V3 on eight H200: without sharing every rank caches the latent of each token, 576 values of two bytes in 61
/// layers. Shared by eight ranks a token has an eighth of these bytes on each, so that eight times the tokens fit and a
/// step reads an eighth of the bytes. FLOPs of a rank stay: 16 heads for all tokens, or 128 for an eighth of them.
#[test]
fn a_latent_is_shared_by_hand() {
    let tokens = |shared| Memory::of(&resolved("deepseek-v3", 8, shared).unwrap()).tokens(4096) as f64;
    assert!((tokens(8) / tokens(1) / 8.0 - 1.0).abs() < 1e-3, "{} {}", tokens(1), tokens(8));
    let of = |shared| {
        let found = decoding("deepseek-v3", 8, shared);
        found.operators.iter().find(|o| o.name.name() == "latent_attention").cloned().unwrap()
    };
    let (copies, shared) = (of(1), of(8));
    assert_eq!(copies.kv_bytes.0, 64 * 32_768 * 576 * 2 * 61);
    assert_eq!(shared.kv_bytes.0 * 8, copies.kv_bytes.0);
    assert_eq!(shared.flops, copies.flops);
    assert!(shared.forecast < copies.forecast, "{shared:?} {copies:?}");
}

/// In each of 61 layers, 64 decodes gather 128 heads' queries of 576 values of two bytes, 8 · 128 logarithms of four bytes,
/// and scatter outputs of 512 values of two bytes: 147,456 + 4096 + 131,072 bytes, of which 7/8 cross a link of 450 GB/s.
#[test]
fn messages_of_shared_sequences_by_hand() {
    let communication = |shared| decoding("deepseek-v3", 8, shared).terms.communication.ms();
    let expected = 61.0 * 64.0 * (147_456.0 + 4096.0 + 131_072.0) * 7.0 / 8.0 / 450e9 * 1e3;
    let found = communication(8) - communication(1);
    assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
}

/// Llama-3.3-70B has 8 KV heads: sixteen ranks keep two copies of each, which two ranks can share instead.
#[test]
fn copies_of_heads_are_shared() {
    let tokens = |shared| Memory::of(&resolved("llama-3.3-70b", 16, shared).unwrap()).tokens(4096) as f64;
    assert!((tokens(2) / tokens(1) / 2.0 - 1.0).abs() < 1e-3);
    for (name, tp, shared) in
        [("llama-3.3-70b", 8, 2), ("deepseek-v3", 8, 16), ("deepseek-v3", 8, 3), ("openai/gpt-oss-20b", 8, 2)]
    {
        let error = resolved(name, tp, shared).unwrap_err().to_string();
        assert!(error.contains("decode_context_parallel_size"), "{error}");
    }
    assert!(resolved("deepseek-v3", 8, 1).is_ok());
}

/// No forecast is below its limit, and longer contexts gain more.
#[test]
fn sharing_keeps_the_limit() {
    for (name, tp, shared) in [("deepseek-v3", 8, 8), ("deepseek-v3", 8, 2), ("llama-3.3-70b", 16, 2)] {
        let (copies, shared) = (decoding(name, tp, 1), decoding(name, tp, shared));
        assert!(shared.forecast >= shared.limit_with_communication);
        assert!(shared.limit < copies.limit, "{name}");
    }
}
