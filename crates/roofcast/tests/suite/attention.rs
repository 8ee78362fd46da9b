//! Attention backends beside kernel times that were published, and what they do to steps.

use roofcast::cost::Utilization;
use roofcast::deployment::Options;
use roofcast::limits::Question;
use roofcast::limits::alternatives::{Alternative, Comparison, alternatives};
use roofcast::model::config;
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::{AttentionBackend, EngineSpec};
use roofcast::{Catalog, Deployment};
use std::sync::Arc;

/// One layer of 16 query heads of 128 over 2 KV heads: the example that the chapter asks about.
fn layer(chip: &str, engine: EngineSpec) -> Result<Deployment, roofcast::Error> {
    let text = std::fs::read_to_string("../../examples/one-layer-of-codellama/config.json").unwrap();
    let model = Arc::new(config::parse("one layer", "example", &text).unwrap());
    let chip = Arc::new(Catalog::embedded().unwrap().accelerator(chip).unwrap().clone());
    let options = Options { parallelism: RequestedParallelism::default(), engine, ..Options::default() };
    Deployment::resolve(model, chip, &options)
}

fn compared(batch: u64, context: u64) -> Vec<Alternative> {
    let question = Question { batch, context, prefill: 1, utilization: Utilization::FULL };
    let deployment = layer("a100-sxm-80gb", EngineSpec::default()).unwrap();
    alternatives(&deployment, Comparison::Attention, &question)
}

/// pytorch.org/blog/flash-decoding: FlashAttention 2.0.9 and Flash-Decoding on an A100 in µs. Split contexts are forecast
/// within 19 %. What one block a sequence and head takes is too much by 1.24 to 1.54 times, which is the share of the bandwidth
/// that serving in fp16 gave this chip; its shape over sequences and contexts is that of the occupancy, within 12 % of one
/// constant, and 1 % from one to four sequences.
#[test]
fn occupancy_is_what_was_measured() {
    let measured = [
        (256, 256, 390.5, 63.4),
        (128, 512, 366.3, 67.7),
        (64, 1024, 364.8, 77.7),
        (32, 2048, 352.0, 58.5),
        (16, 4096, 401.7, 57.0),
        (8, 8192, 529.2, 56.4),
        (4, 16_384, 582.7, 58.2),
        (2, 32_768, 1156.1, 60.3),
        (1, 65_536, 2300.6, 64.4),
        (1, 131_072, 4592.2, 106.6),
    ];
    let mut constants = Vec::new();
    for (batch, context, flash, decoding) in measured {
        let found = compared(batch, context);
        let names: Vec<&str> = found.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["naive", "flash-attention", "flash-decoding"]);
        let us = |index: usize| found[index].attention.seconds() * 1e6;
        assert!((us(2) / decoding - 1.0).abs() < 0.19, "{batch} × {context}: {} of {decoding}", us(2));
        constants.push((batch, us(1) / flash));
    }
    // Where the fewest blocks run, one of each sequence and head, the constant shows best.
    let (_, constant) = constants[constants.len() - 1];
    for (batch, ratio) in constants {
        let most = if batch <= 4 { 0.013 } else { 0.125 };
        assert!((ratio / constant - 1.0).abs() < most, "{batch}: {ratio} against {constant}");
    }
}

/// One block a sequence and head fills 108 multiprocessors no better at twice the context: twice the time; a split context
/// reads what the cache holds, so that its time is that of the calibration itself.
#[test]
fn backends_differ_in_what_they_read() {
    let attention =
        |context| compared(1, context).into_iter().map(|a| a.attention.seconds()).collect::<Vec<_>>();
    for (once, twice) in attention(8192).into_iter().zip(attention(16_384)) {
        assert!((twice / once - 2.0).abs() < 1e-6, "{once} {twice}");
    }
    let split =
        EngineSpec { attention_backend: Some(AttentionBackend::FlashDecoding), ..EngineSpec::default() };
    let question = Question { batch: 4, context: 4096, prefill: 512, utilization: Utilization::FULL };
    let forecast = |engine| {
        let deployment = layer("a100-sxm-80gb", engine).unwrap();
        let forecaster = roofcast::Forecaster::embedded(deployment).unwrap();
        roofcast::limits::decode(&forecaster, &question).forecast
    };
    assert_eq!(forecast(split), forecast(EngineSpec::default()));
}

#[test]
fn a_backend_that_cannot_run_is_refused_by_name() {
    let flash =
        EngineSpec { attention_backend: Some(AttentionBackend::FlashAttention), ..EngineSpec::default() };
    let message = layer("mi300x", flash).unwrap_err().to_string();
    assert!(message.contains("multiprocessors") && message.contains("mi300x"), "{message}");
}
