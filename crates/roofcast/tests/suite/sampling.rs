//! Sampling errors of runs, costs of classes and of preemptions, and limits with drafts.

use super::fleets::{close, spec};
use crate::support::{catalog, model};
use roofcast::batch::Batch;
use roofcast::cost::{Utilization, limit};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::simulate::Simulation;
use std::sync::Arc;

/// Of twenty runs of 1,000 requests near saturation, about sixteen have means within the errors that they state around the mean of
/// a run of 40,000; errors that count requests as independent have half as many.
#[test]
fn means_of_seeds_are_within_their_sampling_errors() {
    let run = |seed: u64, requests: u64| -> Simulation {
        spec(&format!(
            "[workload]\nseed = {seed}\nrequests = {requests}\ninput_len = 1000\noutput_len = 100\n\
             arrivals = {{ kind = \"poisson\", rate = 44.0 }}\n"
        ))
        .unwrap()
    };
    let long = run(1, 40_000);
    assert!(!long.load.overloaded);
    let [mut within, mut alone] = [0; 2];
    for seed in 2..22 {
        let short = run(seed, 1000);
        let Some(error) = short.sampling.e2el else { continue };
        let off = (short.summary.e2el.mean / long.summary.e2el.mean - 1.0).abs();
        within += u32::from(off <= error.mean);
        let independent = 1.2816 * short.summary.e2el.std / short.summary.e2el.mean / 1000_f64.sqrt();
        alone += u32::from(off <= independent);
    }
    assert!((13..=20).contains(&within) && alone < within, "{within} {alone}");
}

/// The 99th percentile of a thousand requests has a larger error than that of a hundred thousand; a run of equal requests one by
/// one has no error.
#[test]
fn a_run_says_if_it_is_too_short_for_its_99th_percentile() {
    let run = |requests: u64, arrivals: &str| {
        let text = format!(
            "[workload]\nseed = 1\nrequests = {requests}\ninput_len = 1000\noutput_len = 20\narrivals = {arrivals}\n"
        );
        spec(&text).unwrap().sampling.ttft.unwrap()
    };
    let poisson = "{ kind = \"poisson\", rate = 40.0 }";
    let [short, long] = [400, 40_000].map(|requests| run(requests, poisson));
    assert!(short.requests_for_p99.unwrap() > 400 && long.requests_for_p99.is_none(), "{short:?} {long:?}");
    assert!(short.mean > 3.0 * long.mean);
    let even = run(400, "{ kind = \"constant\", rate = 1.0 }");
    assert_eq!((even.mean, even.requests_for_p99), (0.0, None));
}

/// A run of more requests than are served has no settled latency: no error, and no number of requests. A closed loop of 64 clients
/// with 640 requests begins with a tenth whose prompts queue together, which others do not meet.
#[test]
fn overload_and_a_first_wave_are_no_scatter() {
    let run = |requests: u64, output: u64, arrivals: &str| {
        let text = format!(
            "[workload]\nseed = 1\nrequests = {requests}\ninput_len = 1000\n\
             output_len = {output}\narrivals = {arrivals}\n"
        );
        spec(&text).unwrap()
    };
    let over = run(1000, 300, "{ kind = \"poisson\", rate = 60.0 }");
    assert!(over.load.overloaded);
    assert_eq!(over.sampling.unsettled, ["ttft", "tpot", "e2el"]);
    assert_eq!((over.sampling.ttft, over.sampling.tpot, over.sampling.e2el), (None, None, None));
    let wave = run(640, 100, "{ kind = \"closed_loop\", concurrency = 64 }");
    assert!(wave.sampling.unsettled.contains(&"ttft") && wave.sampling.ttft.is_none(), "{:?}", wave.sampling);
}

/// Latencies of a run in which replicas start hold for the course of its load alone.
#[test]
fn a_run_with_started_replicas_has_not_settled() {
    let run = spec(
        "[workload]\nseed = 1\nrequests = 600\ninput_len = 1000\noutput_len = 100\n\
         arrivals = { kind = \"poisson\", rate = 20.0 }\n[fleet.autoscale]\ntarget_in_flight = 4\nmax_replicas = 4\n\
         startup_s = 5\nidle_s = 60\n",
    )
    .unwrap();
    assert!(run.fleet.autoscale.unwrap().started > 0);
    assert_eq!(run.sampling.unsettled, ["ttft", "tpot", "e2el"]);
}

fn llama() -> Deployment {
    let chip = catalog().accelerator("h100-sxm").unwrap().clone();
    let model = model("meta-llama/Llama-3.1-8B-Instruct");
    Deployment::resolve(model, Arc::new(chip), &DeploymentOptions::default()).unwrap()
}

/// At the limit and one request at a time, a class of prompts of 4,000 tokens without answers costs the time of that prompt, and one
/// of 100 tokens with 101 of output a prompt and 100 steps at the mean context of 150 tokens.
#[test]
fn a_class_costs_its_prompts_and_its_part_of_steps() {
    let run = spec(
        "[workload]\nseed = 1\nrequests = 40\narrivals = { kind = \"closed_loop\", concurrency = 1 }\n\
         [[workload.classes]]\nname = \"prompts\"\nshare = 1\ninput_len = 4000\noutput_len = 1\n\
         [[workload.classes]]\nname = \"chat\"\nshare = 1\ninput_len = 100\noutput_len = 101\n",
    )
    .unwrap();
    let deployment = llama();
    let seconds =
        |batch: &Batch| limit(&deployment, batch, Utilization::FULL).limit_with_communication.seconds();
    let chat = seconds(&Batch::prefill(1, 100)) + 100.0 * seconds(&Batch::decode(1, 151));
    let each = [seconds(&Batch::prefill(1, 4000)), chat];
    let counts = [0, 1].map(|class| run.classes[class].summary.completed as f64);
    let whole: f64 = (0..2).map(|class| counts[class] * each[class]).sum();
    for class in 0..2 {
        let expense = run.classes[class].expense;
        let share = counts[class] * each[class] / whole;
        assert!((expense.share / share - 1.0).abs() < 1e-3, "{expense:?} {share}");
        let dollars = run.expense.dollars_per_hour.unwrap() * expense.share * run.summary.duration / 3600.0;
        close(expense.dollars_per_request.unwrap(), dollars / counts[class]);
    }
}

/// Three drafts of which none is accepted: 200 steps verify four tokens and give one, and the prompt's step has no drafts. The mean
/// of 600 / 201 = 2.985 drafts is between the limits of steps with two and with three.
#[test]
fn the_limit_of_a_token_counts_the_drafts_that_its_step_verifies() {
    let text = |keys: &str| {
        spec(&format!(
            "{keys}[workload]\nrequests = 1\ninput_len = 100\noutput_len = 201\narrivals = {{ kind = \"offline\" }}\n"
        ))
        .unwrap()
    };
    let drafts =
        "[engine.speculative]\nnum_speculative_tokens = 3\nacceptance_rate = 0.0\ndraft_cost = 0.0\n";
    let [plain, drafted] = ["", drafts].map(text);
    let deployment = llama();
    let ms = |drafts: u64| {
        let batch = Batch::verify(1, 200, drafts);
        limit(&deployment, &batch, Utilization::FULL).limit_with_communication.ms()
    };
    assert_eq!(
        ms(0),
        limit(&deployment, &Batch::decode(1, 200), Utilization::FULL).limit_with_communication.ms()
    );
    assert!((plain.limit_tpot_ms / ms(0) - 1.0).abs() < 1e-3, "{}", plain.limit_tpot_ms);
    let mean = 0.015 * ms(2) + 0.985 * ms(3);
    assert!((drafted.limit_tpot_ms / mean - 1.0).abs() < 1e-2, "{} {mean}", drafted.limit_tpot_ms);
    assert!(drafted.limit_tpot_ms > plain.limit_tpot_ms);
}
