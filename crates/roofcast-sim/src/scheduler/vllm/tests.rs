use super::*;

fn config() -> SchedulerConfig {
    SchedulerConfig {
        block_size: 16,
        num_gpu_blocks: 101,
        max_num_seqs: 8,
        max_num_active_seqs: None,
        max_num_batched_tokens: 64,
        max_model_len: 1000,
        enable_chunked_prefill: true,
        enable_prefix_caching: false,
        long_prefill_token_threshold: 0,
        long_prefill_token_threshold_adaptive: false,
        policy: SchedulingPolicy::Fcfs,
        scheduler_reserve_full_isl: true,
        watermark: 0.0,
        prefill_schedule_interval: 3,
        async_scheduling: false,
        num_speculative_tokens: 0,
        num_lookahead_tokens: 0,
        eagle: false,
        windows: vec![None],
        offload: None,
        rules: Rules::of(Some("0.32")),
    }
}

/// With an interval of 3 the steps 0, 3 and 6 compute prompts while requests decode. The first prompt is alone: step 0.
/// The second arrives before step 1 and waits until step 3. The third, of 100 tokens, arrives before step 4; step 6
/// computes 62 of them together with two decodes and leaves no request waiting, so that the other 38 wait until step 9.
/// Then the fourth and the fifth arrive together, with 70 each. Step 12 has 61 tokens for the two and leaves the fifth
/// waiting, so that step 13 continues with both. Step 13 leaves none waiting: the fifth's other 18 wait until step 15.
#[test]
fn prompts_are_computed_in_every_third_step_beside_decodes() {
    let mut scheduler = Scheduler::new(config());
    let mut prompts = [(0, 40), (1, 30), (4, 100), (10, 70), (10, 70)].into_iter().peekable();
    let mut seen = Vec::new();
    for step in 0..16 {
        while let Some((_, input_len)) = prompts.next_if(|(at, _)| *at <= step) {
            let prefix = SharedPrefix::default();
            scheduler.add(NewRequest {
                input_len,
                prefix,
                output_len: 100,
                priority: 0,
                transferred: 0,
                adapter: 0,
            });
        }
        let decided = scheduler.schedule();
        seen.push(decided.work.iter().filter(|w| !w.decodes).map(|w| w.new).collect::<Vec<_>>());
        scheduler.update(&decided);
    }
    let expected: [(usize, &[u64]); 7] =
        [(0, &[40]), (3, &[30]), (6, &[62]), (9, &[38]), (12, &[61]), (13, &[9, 52]), (15, &[18])];
    let prompt_steps = seen.iter().enumerate().filter(|(_, new)| !new.is_empty());
    assert!(prompt_steps.map(|(step, new)| (step, new.as_slice())).eq(expected), "{seen:?}");
}
