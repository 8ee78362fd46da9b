//! Storage of KV caches: tables, pages of memory, groups of layers, and the return of every block at the end.

use super::runs::{conserved, deployment, records, same, schedulers, served, workloads};
use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::Forecaster;
use roofcast::arrival::Arrival;
use roofcast::batch::Batch;
use roofcast::clock::Ticks;
use roofcast::cost::{Utilization, limit};
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::engine::price::StepPrices;
use roofcast::engine::{Engine, Replica};
use roofcast::memory::layer_groups;
use roofcast::scheduler::config::EngineConfig;
use roofcast::scheduler::state::decodes::Lockstep;
use roofcast::simulate;
use roofcast::spec::{CostKind, EngineSpec, KvLayout, VllmSpec};
use roofcast::workload::{Arrivals, Length, LengthKind, Prompt, Workload};
use std::sync::Arc;

/// A request of 100 tokens generates 50, in blocks of 16. Its 49 decode steps have contexts of 101 to 149 tokens, which
/// occupy 7 blocks (101 to 112, 12 steps), 8 (113 to 128, 16), 9 (129 to 144, 16) and 10 (145 to 149, 5): 406 blocks in
/// all. vLLM's kernel reads 4 bytes per block, FlashInfer's 4 more per step for a pointer, vAttention's none. The host
/// sends rows for 1024 tokens, 64 blocks (vLLM), or the entries that the kernel reads (FlashInfer), or nothing
/// (vAttention).
#[test]
fn tables_of_a_request_by_hand() {
    for (layout, read, sent) in [("paged", 406, 49 * 64), ("flashinfer", 455, 455), ("vattention", 0, 0)] {
        let text = format!(
            "[model]\nname = \"meta-llama/Llama-3.1-8B-Instruct\"\n[hardware]\naccelerator = \"h100-sxm\"\n\
             [engine]\nkv_layout = \"{layout}\"\nmax_model_len = 1024\n[workload]\nrequests = 1\ninput_len = 100\n\
             output_len = 50\narrivals = {{ kind = \"constant\", rate = 1.0 }}\n"
        );
        let spec = roofcast::Spec::parse("test", &text).unwrap();
        let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let model = model("meta-llama/Llama-3.1-8B-Instruct");
        let deployment = Deployment::resolve(model, accelerator, &DeploymentOptions::of(&spec)).unwrap();
        let options = simulate::RunOptions { leap: true, ..Default::default() };
        let cache = simulate::simulate(&Forecaster::ideal(deployment.clone()), &spec, "test", options)
            .unwrap()
            .kv_cache;
        let tables = cache.tables.unwrap();
        assert_eq!(
            (tables.read_bytes, tables.sent_bytes),
            (f64::from(4 * read) / 49.0, f64::from(4 * sent) / 49.0)
        );
        // A token's keys in a layer are 8 heads × 128 × 2 bytes; 2 MiB hold 1024 such tokens.
        assert_eq!(cache.block_size, if layout == "vattention" { 1024 } else { 16 });
    }
}

/// Reading a block table adds HBM traffic to a step: 40 sequences of 1000 tokens have 63 blocks of 16 each, in 32
/// layers.
#[test]
fn tables_are_read_like_the_cache() {
    let step = |layout| {
        let spec = EngineSpec { kv_layout: layout, ..EngineSpec::default() };
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let step = limit(&deployment, &Batch::decode(40, 1000), Utilization::FULL);
        step.operators.iter().map(|o| o.kv_bytes.0).sum::<u64>()
    };
    let cache = 40 * 1000 * 32 * 2 * 8 * 128 * 2;
    assert_eq!(step(None), cache);
    assert_eq!(step(Some(KvLayout::Paged)), cache + 40 * 63 * 4 * 32);
    assert_eq!(step(Some(KvLayout::Flashinfer)), cache + 40 * 64 * 4 * 32);
    assert_eq!(step(Some(KvLayout::Contiguous)), cache);
}

/// In the mean, half a page per sequence is empty in vAttention's layout.
#[test]
fn half_a_page_of_a_sequence_is_empty() {
    let spec = EngineSpec { kv_layout: Some(KvLayout::Vattention), ..EngineSpec::default() };
    let workload = Workload {
        requests: Some(2000),
        seed: 1,
        arrivals: Arrivals::ClosedLoop {
            concurrency: 40,
            think_s: None,
            ramp_s: None,
            turn_round_s: Some(0.0),
        },
        input_len: Length::Drawn(LengthKind::Uniform { min: 1, max: 4096 }),
        output_len: Length::Tokens(512),
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
    // Inputs are spread evenly over whole pages, and so are contexts. Before a token is added, a page of b = 1024
    // tokens has ⌈(c + 1)/b⌉ b − c empty places at context c, b/2 + 1/2 on average. 2000 lengths of standard deviation
    // b/√12 put the mean within five standard errors: 5 × 296/√2000 = 33.
    let empty = tally.slack_steps as f64 / tally.decoding_steps as f64;
    assert!((empty - 512.5).abs() < 33.0, "{empty}");
}

/// gpt-oss-20b has 12 layers with full attention and 12 with a window of 128 tokens: one group each. A block of a group
/// is 12 layers of 8 heads × 64 × K and V × 2 bytes × 16 tokens. 1000 tokens take ⌈1000/16⌉ = 63 blocks and ⌈127/16⌉ +
/// 1 = 9. Gemma 3 27B has 10 full layers and 52 with a window of 1024: groups of 10 layers, one full and six with a
/// window. 1000 tokens do not fill a window: 7 × 63 blocks; 4000 take 250 + 6 × (⌈1023/16⌉ + 1 = 65).
#[test]
fn groups_of_models_by_hand() {
    let groups = |name: &str| layer_groups(&deployment(name, EngineSpec::default()), 16).unwrap();
    let (oss, bytes) = groups("openai/gpt-oss-20b");
    assert_eq!((oss.count(), bytes.0, oss.blocks(1000)), (2, 12 * 8 * 64 * 2 * 2 * 16, 72));
    let (gemma, bytes) = groups("google/gemma-3-27b-it");
    assert_eq!((gemma.count(), bytes.0), (7, 10 * 16 * 128 * 2 * 2 * 16));
    assert_eq!([1000, 4000].map(|tokens| gemma.blocks(tokens)), [441, 640]);
    // There is one group if all layers attend to all tokens, and if layers keep latents.
    for name in ["meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3"] {
        assert!(layer_groups(&deployment_of_eight(name), 16).is_none());
    }
}

fn deployment_of_eight(name: &str) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h200-sxm").unwrap().clone());
    let parallelism = roofcast::parallelism::RequestedParallelism { tp: Some(8), ..Default::default() };
    Deployment::resolve(
        model(name),
        accelerator,
        &DeploymentOptions { parallelism, ..DeploymentOptions::default() },
    )
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// After every step, the taken blocks are exactly those that the running requests' tokens need in each group; at
    /// the end none are taken, unless steps are decided ahead. Leaping equals stepping.
    #[test]
    fn windows_give_their_blocks_back(
        workload in workloads(),
        sizes in (150_u64..900, 1_u64..20, 30_u64..700, 0_usize..4),
        (gemma, ahead) in (any::<bool>(), any::<bool>()),
        requests in proptest::collection::vec((1_u32..2000, 1_u32..300), 1..40),
    ) {
        let (blocks, seqs, budget, size) = sizes;
        let size = [1, 4, 16, 48][size];
        // In Gemma six windowed groups have blocks for each block of the full group.
        let scale = if gemma { 6 } else { 1 } * (48 / size);
        let spec = EngineSpec {
            num_gpu_blocks: Some(blocks * scale),
            block_size: Some(size),
            max_num_seqs: Some(seqs),
            max_num_batched_tokens: Some(budget),
            enable_prefix_caching: Some(false),
            vllm: VllmSpec {
                async_scheduling: Some(ahead),
                ..VllmSpec::default()
            },
            ..EngineSpec::default()
        };
        let name = if gemma { "google/gemma-3-12b-it" } else { "openai/gpt-oss-20b" };
        let deployment = deployment(name, spec);
        let (stepping, leaping) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
        same(records(&stepping), records(&leaping));
        conserved(&leaping, workload.requests.unwrap());
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, a.preemptions, a.blocks_peak), (b.steps, b.preemptions, b.blocks_peak));
        prop_assert_eq!((a.slack_steps, a.spread_steps), (b.slack_steps, b.spread_steps));

        let (config, policy) = EngineConfig::resolve(&deployment, 1000, false).unwrap();
        prop_assert!(config.groups.count() > 1);
        let config = EngineConfig { ahead: false, ..config };
        let groups = config.groups.clone();
        let mut engine = Engine::<Lockstep>::new(config, policy, StepPrices::new(Forecaster::ideal(deployment.clone()).timing(CostKind::Limit)), Ticks::ZERO);
        let needed = |engine: &Engine<Lockstep>| {
            let tokens = |id| u64::from(engine.state.progress(id).0);
            engine.state.in_admission_order().map(|id| groups.blocks(tokens(id))).sum::<u64>()
        };
        for (number, (input, output)) in (0..).zip(requests) {
            let arrival = Arrival { number, input, output, ..Arrival::default() };
            if engine.serves(&arrival) {
                engine.arrive(arrival, Prompt::Own);
            }
            if number % 3 == 0 {
                engine.step(Ticks::NEVER, &mut Vec::new());
                prop_assert_eq!(engine.state.used(), needed(&engine));
            }
        }
        while engine.step(Ticks::NEVER, &mut Vec::new()) {
            prop_assert_eq!(engine.state.used(), needed(&engine));
        }
        prop_assert!(engine.is_empty() && engine.state.used() == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// For every scheduler, with shared prefixes, preemption and swapping: the taken blocks never exceed the existing
    /// ones, suffice for the requests, and are all free at the end.
    #[test]
    fn every_block_comes_back(
        spec in schedulers(),
        requests in proptest::collection::vec((1_u32..700, 1_u32..250, 0_u32..3, 0_u32..700), 1..40),
    ) {
        let deployment = deployment("meta-llama/Llama-3.1-8B-Instruct", spec);
        let (config, policy) = EngineConfig::resolve(&deployment, 1000, false).unwrap();
        let reserves = !config.preempts();
        let price = StepPrices::new(Forecaster::ideal(deployment.clone()).timing(CostKind::Limit));
        let mut engine = Engine::<Lockstep>::new(config, policy, price, Ticks::from(1));
        let mut left = Vec::new();
        for (number, (input, output, segment, length)) in (0..).zip(requests) {
            let arrival = Arrival { number, input, output, ..Arrival::default() };
            if engine.serves(&arrival) {
                engine.arrive(arrival, Prompt::Shared { segment, length: length.min(input) });
            }
            if number % 3 == 0 {
                engine.step(Ticks::NEVER, &mut left);
            }
        }
        while engine.step(Ticks::NEVER, &mut left) {
            let state = &engine.state;
            prop_assert!(state.used() <= state.config.blocks);
            let held = state.held_tokens() - state.shared_tokens();
            // Rows of a static batch compute on after their request has ended, beyond their reservation.
            let kept = held <= state.used() * u64::from(state.config.block_size);
            prop_assert!(kept || reserves && state.tally.idle_tokens > 0, "{held} {}", state.used());
        }
        prop_assert!(engine.is_empty());
        prop_assert_eq!(engine.state.used(), 0);
    }
}
