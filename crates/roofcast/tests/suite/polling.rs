//! Time that a new request waits until a scheduler considers it, in decode steps.

use crate::runs::{deployment, records, served};
use roofcast::parallelism::RequestedParallelism;
use roofcast::spec::{CostKind, EngineSpec, SchedulerKind, SglangSpec, TensorrtLlmSpec, VllmSpec};

/// Milliseconds of a decode step of one sequence: all weights but the embedding's 128,256 × 4096, in 2 bytes.
pub(super) const STEP_MS: f64 = (8_030_261_248.0 - 525_336_576.0) * 2.0 / 3.35e12 * 1e3;

/// Time of the first token of the second of two requests of 16 tokens, in milliseconds; it arrives `after_s` seconds
/// after the first.
pub(super) fn second(engine: EngineSpec, after_s: f64, leap: bool) -> f64 {
    second_on(RequestedParallelism::default(), engine, after_s, leap)
}

/// Time of the first token as [`second`] returns it, on accelerators with this parallelism.
fn second_on(parallelism: RequestedParallelism, engine: EngineSpec, after_s: f64, leap: bool) -> f64 {
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\n";
    let mut workload = roofcast::Spec::parse("test", keys).unwrap().workload.unwrap();
    let two = format!("arrival_s,input_len,output_len\n0,16,200\n{after_s},16,2\n");
    workload.load("test", |_| Ok::<_, roofcast::Error>(two.clone())).unwrap();
    let mut deployed =
        deployment("meta-llama/Llama-3.1-8B-Instruct", EngineSpec { cost: CostKind::Limit, ..engine });
    if parallelism != RequestedParallelism::default() {
        deployed = deployed.varied(|options| options.parallelism = parallelism).unwrap();
    }
    let fleet = served(&deployed, &workload, leap);
    records(&fleet)[1].first_token.unwrap().ms()
}

/// Number of decode steps that a new request waits with `paced` but not with `plain`. A decode step takes 4.49 ms at
/// the limit (15.0 GB over 3.35 TB/s), and so does a prompt of 16 tokens: at 6 ms the first request is in its first
/// decode.
fn later(paced: EngineSpec, plain: EngineSpec) -> f64 {
    let wait = |leap| (second(paced.clone(), 0.006, leap) - second(plain.clone(), 0.006, leap)) / STEP_MS;
    assert_eq!(wait(true), wait(false));
    wait(true)
}

pub(super) fn near(found: f64, steps: f64) {
    assert!((found - steps).abs() < 0.02, "{found} steps, not {steps}");
}

/// SGLang looks for new requests before steps 0, 5, 10 after a prompt, so a request that arrives in step 0 waits four
/// steps longer than without polling. In the overlap loop step 0 is decided while the prompt is computed, and step 1
/// when the prompt ends: a request that arrives then is considered before step 2 without polling, and before step 5
/// with it.
#[test]
fn sglang_looks_every_so_many_steps() {
    for (disable, steps) in [(true, 4.0), (false, 3.0)] {
        let plain = EngineSpec {
            scheduler: Some(SchedulerKind::Sglang),
            sglang: SglangSpec { disable_overlap_schedule: Some(disable), ..SglangSpec::default() },
            ..EngineSpec::default()
        };
        let paced = EngineSpec {
            sglang: SglangSpec { scheduler_recv_interval: Some(5), ..plain.sglang.clone() },
            ..plain.clone()
        };
        near(later(paced, plain), steps);
    }
}

/// TensorRT-LLM schedules the step after the current one before a new request arrives, which therefore waits a step.
#[test]
fn tensorrt_llm_schedules_beside_the_step_before() {
    let overlapped = EngineSpec { scheduler: Some(SchedulerKind::TensorrtLlm), ..EngineSpec::default() };
    let alone = EngineSpec {
        tensorrt_llm: TensorrtLlmSpec {
            disable_overlap_scheduler: Some(true),
            ..overlapped.tensorrt_llm.clone()
        },
        ..overlapped.clone()
    };
    near(later(overlapped, alone), 1.0);
}

/// vLLM schedules a step ahead by default from 0.14 on, and before that only if set.
#[test]
fn vllm_schedules_beside_the_step_before_since_0_14() {
    let of = |version: Option<&str>, ahead| EngineSpec {
        version: version.map(str::to_owned),
        vllm: VllmSpec { async_scheduling: ahead, ..VllmSpec::default() },
        ..EngineSpec::default()
    };
    let alone = of(None, Some(false));
    for (version, steps) in [(None, 1.0), (Some("0.14.0"), 1.0), (Some("0.26.0"), 1.0), (Some("0.13.0"), 0.0)]
    {
        near(later(of(version, None), alone.clone()), steps);
    }
    near(later(of(Some("0.26.0"), Some(false)), alone.clone()), 0.0);
    near(later(of(Some("0.11.0"), Some(true)), alone), 1.0);
}

/// 16 tokens and a decode are far below half of 8192, so the prompt is held for all seven steps. They are above a
/// thousandth, 8, so with that threshold it is not held.
#[test]
fn tensorrt_llm_holds_prompts_together() {
    let plain = EngineSpec {
        scheduler: Some(SchedulerKind::TensorrtLlm),
        tensorrt_llm: TensorrtLlmSpec { disable_overlap_scheduler: Some(true), ..TensorrtLlmSpec::default() },
        ..EngineSpec::default()
    };
    let held = |ratio: f64| EngineSpec {
        tensorrt_llm: TensorrtLlmSpec {
            batch_wait_timeout_iters: Some(7),
            batch_wait_max_tokens_ratio: Some(ratio),
            ..plain.tensorrt_llm.clone()
        },
        ..plain.clone()
    };
    near(later(held(0.5), plain.clone()), 7.0);
    near(later(held(0.001), plain.clone()), 0.0);
}

/// With two data-parallel ranks, a single prompt is held for all seven steps. With one rank, or if ranks need not be
/// balanced, it is not held.
#[test]
fn tensorrt_llm_waits_for_a_prompt_on_every_rank() {
    let balanced = |ranks, balance| {
        let engine = EngineSpec {
            scheduler: Some(SchedulerKind::TensorrtLlm),
            tensorrt_llm: TensorrtLlmSpec {
                disable_overlap_scheduler: Some(true),
                attention_dp_enable_balance: Some(balance),
                attention_dp_time_out_iters: Some(7),
                ..TensorrtLlmSpec::default()
            },
            ..EngineSpec::default()
        };
        let parallelism = RequestedParallelism {
            tp: Some(1),
            attention_dp: Some(ranks),
            ..RequestedParallelism::default()
        };
        [true, false].map(|leap| second_on(parallelism, engine.clone(), 0.006, leap))
    };
    for ranks in [1, 2] {
        let [[held, stepped], [plain, _]] = [true, false].map(|balance| balanced(ranks, balance));
        assert_eq!(held, stepped);
        near((held - plain) / STEP_MS, if ranks > 1 { 7.0 } else { 0.0 });
    }
}
