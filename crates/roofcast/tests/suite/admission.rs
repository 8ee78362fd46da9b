//! Requests that vLLM's server refuses because of its queue limits, and prefill intervals of a data-parallel engine.

use super::fleets::{deployment, holds, spec};
use super::runs::workloads;
use proptest::prelude::*;
use roofcast::parallelism::RequestedParallelism;
use roofcast::record::Outcome;
use roofcast::simulate::{OversizedRequests, Simulation};
use roofcast::spec::{EngineSpec, FleetSpec, QueuePolicy, VllmSpec};

/// Ten requests of 100 tokens arrive at once. With room for four requests the first four are accepted. With room for
/// 250 prompt tokens the first three are: the fourth finds 300 waiting tokens and is refused.
#[test]
fn who_comes_beyond_a_limit_is_turned_away() {
    let workload =
        "[workload]\nrequests = 10\ninput_len = 100\noutput_len = 5\narrivals = { kind = \"offline\" }\n";
    for (limit, served) in [
        ("max_num_queued_reqs = 4", 4),
        ("max_num_queued_tokens = 250", 3),
        ("max_num_queued_tokens = 300", 3),
        ("max_num_queued_tokens = 301", 4),
        ("max_num_queued_reqs = 2\nmax_num_queued_tokens = 301", 2),
        ("max_num_queued_reqs = 0", 0),
    ] {
        let run = spec(&format!("[engine]\n{limit}\n{workload}")).unwrap();
        let count = (run.summary.completed, run.rejected, run.refused, run.summary.failed);
        assert_eq!(count, (served, 10 - served, 0, 10 - served), "{limit}");
        let let_in = |r: &&roofcast::record::Record| r.outcome == Outcome::Completed;
        assert!(run.records.iter().filter(let_in).map(|r| r.id).eq(0..served), "{limit}");
    }
    // A request counts until its last token is generated, and its prompt until the first. Two requests arrive 1 ms
    // apart, which is shorter than either, so the second finds the first.
    let apart = "[workload]\nrequests = 2\ninput_len = 1000\noutput_len = 50\narrivals = { kind = \"constant\", rate = 1000.0 }\n";
    assert_eq!(spec(&format!("[engine]\nmax_num_queued_reqs = 1\n{apart}")).unwrap().rejected, 1);
    assert_eq!(spec(&format!("[engine]\nmax_num_queued_tokens = 1000\n{apart}")).unwrap().rejected, 1);
    // Two requests that arrive a second apart do not find one another.
    let late = apart.replace("1000.0", "1.0");
    assert_eq!(spec(&format!("[engine]\nmax_num_queued_reqs = 1\n{late}")).unwrap().rejected, 0);
    // When the second arrives after 100 ms, the first decodes: 50 output tokens take longer than that, a prompt of 1000
    // does not.
    let between = apart.replace("1000.0", "10.0");
    assert_eq!(spec(&format!("[engine]\nmax_num_queued_reqs = 1\n{between}")).unwrap().rejected, 1);
    assert_eq!(spec(&format!("[engine]\nmax_num_queued_tokens = 1000\n{between}")).unwrap().rejected, 0);
}

/// A prompt of 1000 tokens has its first token long before the next request comes, half a second later, in the middle of its
/// 200 tokens: no request finds another one's prompt, whether or not the engine leaps and identifies blocks.
#[test]
fn a_leap_shows_the_first_tokens_before_it() {
    let workload = "[workload]\nrequests = 20\ninput_len = 1000\noutput_len = 200\n\
                    arrivals = { kind = \"constant\", rate = 2.0 }\n";
    for keys in
        ["", "policy = \"priority\"\n", "enforce_eager = true\n", "long_prefill_token_threshold = 5000\n"]
    {
        let run = spec(&format!("[engine]\nmax_num_queued_tokens = 400\n{keys}{workload}")).unwrap();
        assert_eq!((run.rejected, run.summary.completed), (0, 20), "{keys}");
    }
}

/// Two prompts of 640 tokens in a pool of 100 blocks of 16: the first takes 40 blocks of 100, and the second needs 40 of
/// the 60 left. With 15 blocks kept free while others run both run, with 25 the second waits for the first.
#[test]
fn a_watermark_keeps_blocks_free_while_others_run() {
    let running = |scheduler: &str, watermark: f64| {
        let engine = format!(
            "scheduler = \"{scheduler}\"\nwatermark = {watermark}\nnum_gpu_blocks = 100\nblock_size = 16\n"
        );
        let load = "requests = 2\ninput_len = 640\noutput_len = 5\narrivals = { kind = \"offline\" }\n";
        let run = spec(&format!("[engine]\n{engine}[workload]\n{load}")).unwrap();
        assert_eq!(run.summary.completed, 2);
        run.activity.max_running
    };
    for scheduler in ["vllm-v0", "sarathi"] {
        assert_eq!([0.15, 0.25].map(|watermark| running(scheduler, watermark)), [2, 1], "{scheduler}");
    }
}

#[test]
fn the_interval_is_for_data_parallel_engines_before_0_33() {
    let of = |version: &str| {
        spec(&format!(
            "[engine]\nversion = \"{version}\"\nprefill_schedule_interval = 2\n[workload]\nrequests = 3\n\
             arrivals = {{ kind = \"offline\" }}\ninput_len = 9\noutput_len = 9\n"
        ))
    };
    let error = of("0.32.0").err().unwrap().to_string();
    assert!(error.contains("prefill_schedule_interval") && error.contains("attention_dp"), "{error}");
    assert_eq!(of("0.33.0").unwrap().summary.completed, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping_with_limits(
        workload in workloads(),
        requests in proptest::option::of(0_u64..20),
        tokens in proptest::option::of(0_u64..3000),
        blocks in 40_u64..400,
        by_block in any::<bool>(),
        async_scheduling in proptest::option::of(any::<bool>()),
        threshold in proptest::option::of(16_u64..600),
    ) {
        let engine = EngineSpec {
            policy: if by_block { QueuePolicy::Priority } else { QueuePolicy::Fcfs },
            vllm: VllmSpec {
                async_scheduling,
                long_prefill_token_threshold: threshold,
                max_num_queued_reqs: requests,
                max_num_queued_tokens: tokens,
                ..VllmSpec::default()
            },
            num_gpu_blocks: Some(blocks),
            ..EngineSpec::default()
        };
        let run = holds(&deployment(RequestedParallelism::default(), engine), &workload, FleetSpec::default());
        prop_assert!(run.activity.max_running <= requests.unwrap_or(u64::MAX));
    }

    /// Prompts that wait for the next prefill step are all computed in the end.
    #[test]
    fn nothing_is_lost_between_prefill_steps(
        workload in workloads(),
        interval in 1_u64..9,
        blocks in 80_u64..400,
        async_scheduling in proptest::option::of(any::<bool>()),
    ) {
        let engine = EngineSpec {
            vllm: VllmSpec {
                async_scheduling,
                prefill_schedule_interval: Some(interval),
                ..VllmSpec::default()
            },
            num_gpu_blocks: Some(blocks),
            ..EngineSpec::default()
        };
        let parallelism = RequestedParallelism { tp: Some(1), attention_dp: Some(2), ..RequestedParallelism::default() };
        holds(&deployment(parallelism, engine), &workload, FleetSpec::default());
    }
}

/// Simulates `requests` requests of 10 + 5 tokens, `rate` a second at equal distances, with the keys `limits`.
fn limited(rate: f64, requests: u64, limits: &str) -> roofcast::Result<Simulation> {
    super::fleets::spec(&format!(
        "[workload]\nrequests = {requests}\ninput_len = 10\noutput_len = 5\n\
         arrivals = {{ kind = \"constant\", rate = {rate} }}\n{limits}"
    ))
}

/// Eight requests a second against a bucket of 4 that fills by 2 a second: it gives its 4, and a quarter for each request after
/// the first, so that of 33 requests in 4 s 4 + 8 = 12 are admitted. A bucket of tokens of 15 each, 60 that fill by 30 a second, is the same. A request
/// larger than the bucket is never admitted, and both limits together admit no more than either.
#[test]
fn buckets_by_hand() {
    let requests = "[fleet.rate_limit]\nrequests_per_s = 2\nrequest_burst = 4\n";
    let tokens = "[fleet.rate_limit]\ntokens_per_s = 30\ntoken_burst = 60\n";
    let both = format!("{requests}tokens_per_s = 30\ntoken_burst = 60\n");
    for limits in [requests, tokens, both.as_str()] {
        let run = limited(8.0, 33, limits).unwrap();
        assert_eq!((run.summary.completed, run.rejected, run.refused), (12, 21, 0), "{limits}");
    }
    let large = limited(10.0, 5, "[fleet.rate_limit]\ntokens_per_s = 30\ntoken_burst = 14\n").unwrap();
    assert_eq!((large.summary.completed, large.rejected), (0, 5));
    let OversizedRequests { requests, smallest, burst, key } = large.oversized.unwrap();
    assert_eq!((requests, smallest, burst, key.as_str()), (5, 15, 14.0, "fleet.rate_limit.token_burst"));
    let all = |run: &Simulation| run.records.iter().map(|record| record.outcome).collect::<Vec<_>>();
    assert_eq!(
        all(&limited(10.0, 2, "[fleet.rate_limit]\ntokens_per_s = 14\n").unwrap()),
        [Outcome::Rejected; 2]
    );
    let wide = limited(8.0, 33, "[fleet.rate_limit]\nrequests_per_s = 11\n").unwrap();
    assert_eq!((wide.summary, wide.rejected), (limited(8.0, 33, "").unwrap().summary, 0));
}

/// A class without a bucket of its own passes; the one with a bucket of one request that hardly fills has one answer.
#[test]
fn classes_have_buckets() {
    let classes = "[[workload.classes]]\nname = \"chat\"\nshare = 1\n[[workload.classes]]\nname = \"batch\"\nshare = 1\n";
    let limit = "[fleet.rate_limit.classes]\nbatch = { requests_per_s = 1e-9, request_burst = 1 }\n";
    let run = limited(10.0, 40, &format!("{classes}{limit}")).unwrap();
    let [chat, batch] = run.classes.as_slice() else { panic!("{:?}", run.classes) };
    assert_eq!((run.rejected, batch.rejected, chat.rejected), (batch.requests - 1, batch.requests - 1, 0));
    assert!(run.oversized.is_none());
    assert_eq!(run.summary.completed, chat.requests + 1);
}

#[test]
fn rate_limits_that_cannot_be_are_refused() {
    for (keys, says) in [
        ("[fleet.rate_limit]\n", "requests_per_s, tokens_per_s or classes"),
        ("[fleet.rate_limit]\nrequests_per_s = 0\n", "fleet.rate_limit.requests_per_s"),
        ("[fleet.rate_limit]\nrequest_burst = 5\n", "with requests_per_s"),
        ("[fleet.rate_limit]\ntokens_per_s = 5\ntoken_burst = 0.5\n", "1 to 10^12"),
        ("[fleet.rate_limit.classes]\nvip = { requests_per_s = 1 }\n", "of which there are none"),
    ] {
        let error = limited(1.0, 2, keys).err().unwrap().to_string();
        assert!(error.contains(says), "{keys}: {error}");
    }
}
