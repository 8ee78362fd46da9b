//! The engine against formulas: the limits of one request and of a steady batch, and two formulas of seed 004.

use super::runs::{deployment, served};
use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::Forecaster;
use roofcast::batch::Batch;
use roofcast::cost::{Utilization, limit};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::simulate;
use roofcast::spec::{CostKind, EngineSpec};
use roofcast::workload::{Arrivals, Length, Prefix, Workload};
use std::sync::Arc;

/// A single request takes the limit of its prefill, and the limit of a decode at every following context.
#[test]
fn one_request_is_the_limits() {
    for (name, chip, tp, layout) in [
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", 1, ""),
        ("meta-llama/Llama-3.1-8B-Instruct", "h100-sxm", 1, "kv_layout = \"flashinfer\"\nblock_size = 1\n"),
        ("deepseek-ai/DeepSeek-V3", "h200-sxm", 8, "kv_layout = \"paged\"\n"),
        ("openai/gpt-oss-120b", "h100-sxm", 2, ""),
        ("openai/gpt-oss-120b", "h100-sxm", 2, "kv_layout = \"paged\"\n"),
    ] {
        let text = format!(
            "[model]\nname = \"{name}\"\n[hardware]\naccelerator = \"{chip}\"\n[parallelism]\ntp = {tp}\n\
             [engine]\n{layout}cost = \"limit\"\n[workload]\nrequests = 1\ninput_len = 1000\noutput_len = 200\n\
             arrivals = {{ kind = \"constant\", rate = 1.0 }}\n"
        );
        let spec = roofcast::Spec::parse("test", &text).unwrap();
        let accelerator = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let deployment =
            Deployment::resolve(model(name), accelerator, &DeploymentOptions::of(&spec)).unwrap();
        let one = |batch: Batch| limit(&deployment, &batch, Utilization::FULL).limit_with_communication.ms();
        let prompt = one(Batch::prefill(1, 1000));
        // The second token is computed with 1001 tokens of context, the last of 200 with 1199.
        let decodes: f64 = (1001..=1199).map(|context| one(Batch::decode(1, context))).sum();
        let options = simulate::RunOptions { leap: true, ..Default::default() };
        let run =
            simulate::simulate(&Forecaster::embedded(deployment.clone()).unwrap(), &spec, "test", options)
                .unwrap()
                .summary;
        let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-6;
        assert!(close(run.ttft.mean, prompt), "{name}: {} against {prompt}", run.ttft.mean);
        assert!(close(run.e2el.mean, prompt + decodes), "{name}: {} {}", run.e2el.mean, prompt + decodes);
        assert!(close(run.tpot.mean, decodes / 199.0), "{name}");
    }
}

/// A degree of 1 is the default: 8 accelerators hold DeepSeek-V3 with tp 8, whether or not it is given.
#[test]
fn a_degree_of_one_changes_nothing() {
    let of = |spread: &str| {
        let text = format!("[hardware]\naccelerator = \"h200-sxm\"\ncount = 8\n[parallelism]\n{spread}");
        let options = DeploymentOptions::of(&roofcast::Spec::parse("test", &text).unwrap());
        let accelerator = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        Deployment::resolve(model("deepseek-ai/DeepSeek-V3"), accelerator, &options).unwrap().parallelism
    };
    let plain = of("");
    assert_eq!((plain.tp, plain.attention_dp, plain.ep, plain.replicas), (8, 1, 1, 1));
    assert_eq!(of("attention_dp = 1\n"), plain);
    assert_eq!(of("ep = 1\n"), plain);
}

/// DeepSeek-V3 on 8 data-parallel ranks: each of 58 layers with experts gathers the 7168 values of a token, 2 bytes each,
/// from 7 other ranks and scatters its sums back, without expert parallelism: 2 · 7 · 14,336 = 200,704 bytes a layer and
/// row. 256 decodes are 32 rows of a rank: 58 · 32 · 200,704 B at 450 GB/s are 0.8278 ms. With `ep = 8`, 8 copies of a
/// token cross the links, 7/8 of them to other ranks: as many bytes.
#[test]
fn ranks_that_share_slices_of_experts_gather_their_tokens() {
    let of = |spread: &str, batch: Batch| {
        let text = format!("[parallelism]\n{spread}");
        let spec = roofcast::Spec::parse("test", &text).unwrap();
        let accelerator = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
        let deepseek = model("deepseek-ai/DeepSeek-V3");
        let deployment = Deployment::resolve(deepseek, accelerator, &DeploymentOptions::of(&spec)).unwrap();
        limit(&deployment, &batch, Utilization::FULL).terms.communication.ms()
    };
    for spread in ["attention_dp = 8\nep = 1\n", "attention_dp = 8\nep = 8\n"] {
        let found = of(spread, Batch::decode(256, 1000));
        assert!((found / 0.8278 - 1.0).abs() < 1e-3, "{spread}: {found}");
    }
    // A prompt of 1000 tokens on one rank alone leaves it once and comes back: 58 · 2 · 14,336 B · 1000 in 3.695 ms.
    let alone = of("attention_dp = 8\nep = 1\n", Batch::prefill(1, 1000));
    assert!((alone / 3.695 - 1.0).abs() < 1e-3, "{alone}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A steady batch at the limit takes the times that `limits` gives, for every parallelism: each round of `users`
    /// sequences takes one decode step of the batch, with pipeline stages and data-parallel ranks. No forecast is
    /// faster.
    #[test]
    fn a_steady_batch_is_the_limits(
        shape in prop::sample::select(vec![
            ("meta-llama/Llama-3.1-8B-Instruct", [1, 1, 1, 1]),
            ("meta-llama/Llama-3.1-8B-Instruct", [2, 2, 1, 1]),
            ("meta-llama/Llama-3.1-70B-Instruct", [4, 1, 1, 1]),
            ("meta-llama/Llama-3.1-70B-Instruct", [1, 4, 1, 1]),
            ("Qwen/Qwen3-30B-A3B", [4, 1, 4, 1]),
            ("Qwen/Qwen3-30B-A3B", [1, 2, 1, 1]),
            ("deepseek-ai/DeepSeek-V3", [8, 1, 8, 1]),
            ("deepseek-ai/DeepSeek-V3", [1, 1, 8, 8]),
            ("openai/gpt-oss-120b", [2, 1, 1, 1]),
        ]),
        users in 1_u64..70,
    ) {
        let (name, [tp, pp, ep, attention_dp]) = shape;
        let text = |cost: &str| format!(
            "[model]\nname = \"{name}\"\n[hardware]\naccelerator = \"b200-sxm\"\n[parallelism]\ntp = {tp}\npp = {pp}\nep = {ep}\n\
             attention_dp = {attention_dp}\n[engine]\ncost = \"{cost}\"\n[workload]\nrequests = {users}\ninput_len = 20\n\
             output_len = 30\narrivals = {{ kind = \"closed_loop\", concurrency = {users}, turn_round_s = 0 }}\n"
        );
        let run = |cost: &str| {
            let spec = roofcast::Spec::parse("test", &text(cost)).unwrap();
            let accelerator = Arc::new(catalog().accelerator("b200-sxm").unwrap().clone());
            let deployment = Deployment::resolve(model(name), accelerator, &DeploymentOptions::of(&spec)).unwrap();
            let forecaster = Forecaster::embedded(deployment).unwrap();
            let options = simulate::RunOptions { leap: true, ..Default::default() };
            (simulate::simulate(&forecaster, &spec, "test", options).unwrap().summary, forecaster)
        };
        let (at_limit, forecaster) = run("limit");
        // All 70 · 20 prompt tokens fit in a step, so all sequences decode from 21 tokens of context to 49.
        let step = |context| {
            let batch = Batch::decode(users, context);
            limit(&forecaster.deployment, &batch, Utilization::FULL).limit_with_communication.ms()
        };
        let expected = (21..=49).map(step).sum::<f64>() / 29.0;
        prop_assert!(
            (at_limit.tpot.mean / expected - 1.0).abs() < 1e-5,
            "{name} tp {tp} pp {pp} ep {ep} dp {attention_dp}, {users} users: {} against {expected}", at_limit.tpot.mean
        );
        let (forecast, _) = run("forecast");
        prop_assert!(forecast.tpot.mean >= expected * (1.0 - 1e-9));
        prop_assert!(forecast.ttft.mean >= at_limit.ttft.mean);
    }
}

/// Seed 004: while B requests of P prompt and G output tokens are always generating, B (P + G)/G tokens of KV leave the
/// cache in every step. Each request holds P + G − 1 tokens at its end, because its last token is never computed.
#[test]
fn a_batch_evicts_its_share_of_the_cache_every_step() {
    for (batch, prompt, output) in [(32_u64, 1024_u64, 512_u64), (43, 8192, 512), (16, 100, 900)] {
        let spec =
            EngineSpec { num_gpu_blocks: Some(1 << 20), max_num_seqs: Some(batch), ..EngineSpec::default() };
        let workload = Workload {
            requests: Some(batch * 40),
            seed: 1,
            arrivals: Arrivals::ClosedLoop {
                concurrency: batch,
                think_s: None,
                ramp_s: None,
                turn_round_s: Some(0.0),
            },
            input_len: Length::Tokens(prompt),
            output_len: Length::Tokens(output),
            prefix: None,
            images: None,
            adapters: None,
            priorities: Vec::new(),
            classes: Vec::new(),
            max_tokens: None,
            max_concurrency: None,
            recorded: None,
        };
        let fleet = served(&deployment("meta-llama/Llama-3.1-8B-Instruct", spec), &workload, true);
        let tally = fleet.replicas[0].tally();
        let evicted = (batch * 40 * (prompt + output - 1)) as f64 / tally.decode_steps as f64;
        let formula = (batch * (prompt + output)) as f64 / output as f64;
        // Prompts are computed together with decodes, in steps in which their own request does not generate yet: at
        // most one step for each of the G output tokens, and one for each token budget that a wave's prompts fill.
        let prefills = (batch * prompt).div_ceil(8192) as f64;
        let most = 1.0 + (1.0 + prefills) / output as f64;
        assert!(
            evicted <= formula * 1.001 && evicted * most >= formula * 0.999,
            "{evicted} {formula} {most}"
        );
    }
}

/// One server only prefills and one only decodes: the first one's throughput over the second's is
/// B·t_prefill/(G·t_step).
#[test]
fn servers_of_prompts_for_one_that_generates() {
    for (batch, prompt, output) in [(32_u64, 8192_u64, 512_u64), (8, 2048, 256)] {
        let spec = EngineSpec {
            max_num_seqs: Some(batch),
            enable_prefix_caching: Some(true),
            cost: CostKind::Limit,
            ..EngineSpec::default()
        };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let rate = |concurrency: u64, input_len: u64, output_len: u64, cached: u64| {
            let prefix = Prefix { length: cached, count: 1, share: 1.0, skew: 0.0 };
            let workload = Workload {
                requests: Some(batch * 20),
                seed: 1,
                arrivals: Arrivals::ClosedLoop {
                    concurrency,
                    think_s: None,
                    ramp_s: None,
                    turn_round_s: Some(0.0),
                },
                input_len: Length::Tokens(input_len),
                output_len: Length::Tokens(output_len),
                prefix: (cached > 0).then_some(prefix),
                images: None,
                adapters: None,
                priorities: Vec::new(),
                classes: Vec::new(),
                max_tokens: None,
                max_concurrency: None,
                recorded: None,
            };
            (batch * 20) as f64 / served(&deployment, &workload, true).results.end.seconds()
        };
        // The decode server finds all of a prompt except a block in its prefix cache.
        let (prefill, generate) = (rate(2, prompt, 1, 0), rate(batch, 16, output, prompt - 16));
        let limit =
            |batch: &Batch| limit(&deployment, batch, Utilization::FULL).limit_with_communication.seconds();
        let t_prefill = limit(&Batch::prefill(1, prompt));
        let t_step = limit(&Batch::decode(batch, prompt + output / 2));
        let formula = batch as f64 * t_prefill / (output as f64 * t_step);
        let found = generate / prefill;
        // The decode server also computes a block of each prompt, in one of G steps, and the prefix once in twenty
        // waves: less than a percent of its time.
        assert!((found / formula - 1.0).abs() < 0.01, "{found} {formula}");
    }
}
