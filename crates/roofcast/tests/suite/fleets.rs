//! Replicas of more than one accelerator, and fleets of unequal replicas.

use super::runs::{records, same, schedulers, served, workloads};
use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::memory::{Memory, Rank};
use roofcast::parallelism::RequestedParallelism;
use roofcast::router::Routing;
use roofcast::simulate::{self, Simulation, simulate};
use roofcast::spec::{CostKind, EngineSpec, FleetSpec, LinkKind, PoolSpec, SchedulerKind};
use roofcast::units::Bytes;
use roofcast::workload::{Arrivals, Length, Workload};
use roofcast::{Forecaster, Spec};
use std::sync::Arc;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";

pub(super) fn deployment(parallelism: RequestedParallelism, engine: EngineSpec) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    let options = DeploymentOptions { parallelism, engine, ..DeploymentOptions::default() };
    Deployment::resolve(model(LLAMA), accelerator, &options).unwrap()
}

/// Simulates a workload and keeps its records.
pub(super) fn run(deployment: &Deployment, workload: &Workload, fleet: FleetSpec, leap: bool) -> Simulation {
    let spec = Spec { workload: Some(workload.clone()), fleet, ..Spec::default() };
    let options = simulate::RunOptions { leap, records: true, ..simulate::RunOptions::default() };
    simulate(&Forecaster::embedded(deployment.clone()).unwrap(), &spec, "test", options).unwrap()
}

/// Asserts that stepping, leaping and a second leaping run agree, that nothing is lost, and that every token is
/// accounted for.
pub(super) fn holds(deployment: &Deployment, workload: &Workload, fleet: FleetSpec) -> Simulation {
    let all = [false, true, true].map(|leap| run(deployment, workload, fleet.clone(), leap));
    let [stepping, leaping, again] = &all;
    for (one, other) in [(stepping, leaping), (leaping, again)] {
        same(&one.records, &other.records);
        assert_eq!(one.activity, other.activity);
        assert_eq!((one.kv_cache, one.time, &one.fleet), (other.kv_cache, other.time, &other.fleet));
        assert_eq!(one.summary, other.summary);
    }
    let records = &leaping.records;
    assert!(records.iter().map(|r| r.id).eq(0..workload.requests.unwrap()));
    let tokens: u64 =
        records.iter().filter_map(|r| r.first_token.map(|_| r.input_len + r.output_len - 1)).sum();
    let a = &leaping.activity;
    assert_eq!(a.scheduled_tokens + a.cached_tokens, tokens + a.recomputed_tokens + a.idle_tokens);
    for record in records.iter().filter(|r| r.first_token.is_some()) {
        let first = record.first_token.unwrap();
        assert!(record.sent < first && first <= record.finished, "{}", record.to_line());
    }
    let [_, leaping, _] = all;
    leaping
}

fn pools() -> impl Strategy<Value = FleetSpec> {
    let router =
        || proptest::sample::select(vec![Routing::RoundRobin, Routing::LeastLoaded, Routing::PowerOfTwo]);
    let pool = || {
        (1_u64..4, router(), 1_u64..20, 300_u64..800, 60_u64..300).prop_map(
            |(replicas, router, seqs, budget, blocks)| PoolSpec {
                replicas: Some(replicas),
                router: Some(router),
                max_num_seqs: Some(seqs),
                max_num_batched_tokens: Some(budget),
                num_gpu_blocks: Some(blocks),
                ..PoolSpec::default()
            },
        )
    };
    let link = proptest::sample::select(vec![LinkKind::Nvlink, LinkKind::Network, LinkKind::Pcie]);
    (pool(), pool(), link).prop_map(|(prefill, decode, link)| FleetSpec {
        prefill: Some(prefill),
        decode: Some(decode),
        link: Some(link),
        ..FleetSpec::default()
    })
}

/// Schedulers that support disaggregated pools.
fn pooled() -> impl Strategy<Value = SchedulerKind> {
    use SchedulerKind::{TensorrtLlm, TensorrtLlmMaxUtilization, Vllm};
    proptest::sample::select(vec![Vllm, Vllm, TensorrtLlm, TensorrtLlmMaxUtilization])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    /// Naming the pool's accelerator explicitly, although it is the others', changes nothing, to the last digit.
    #[test]
    fn one_kind_named_twice_is_one_kind(workload in workloads(), fleet in pools()) {
        let plain = deployment(RequestedParallelism::default(), EngineSpec::default());
        let twice = plain.varied(|options| options.other = Some(plain.accelerator.clone())).unwrap();
        let [one, other] = [plain, twice].map(|d| run(&d, &workload, fleet.clone(), true));
        same(&one.records, &other.records);
        prop_assert_eq!(serde_json::to_value(&one).unwrap(), serde_json::to_value(&other).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leaping_is_stepping_through_stages(workload in workloads(), spec in schedulers(), pp in 2_u64..5) {
        let deployment = deployment(RequestedParallelism { pp: Some(pp), ..RequestedParallelism::default() }, spec);
        let (stepping, leaping) = (served(&deployment, &workload, false), served(&deployment, &workload, true));
        same(records(&stepping), records(&leaping));
        let (a, b) = (stepping.replicas[0].tally(), leaping.replicas[0].tally());
        prop_assert_eq!((a.steps, &a.itl, &a.decodes, a.mixed), (b.steps, &b.itl, &b.decodes, b.mixed));
    }

    #[test]
    fn pools_lose_nothing(workload in workloads(), fleet in pools(), scheduler in pooled()) {
        let engine = EngineSpec { scheduler: Some(scheduler), ..EngineSpec::default() };
        let deployment = deployment(RequestedParallelism::default(), engine);
        let run = holds(&deployment, &workload, fleet);
        // Every request with more than one token was handed over, once.
        let handed = run.records.iter().filter(|r| r.first_token.is_some() && r.output_len > 1).count();
        prop_assert_eq!(run.fleet.transfers.unwrap().count, handed as u64);
    }
}

/// Simulates a spec: Llama-3.1-8B on an H100, followed by `text`.
pub(super) fn spec(text: &str) -> roofcast::Result<Simulation> {
    on("h100-sxm", text)
}

/// Simulates a spec: Llama-3.1-8B on `accelerator`, followed by `text`.
fn on(accelerator: &str, text: &str) -> roofcast::Result<Simulation> {
    let head = format!("[model]\nname = \"{LLAMA}\"\n[hardware]\naccelerator = \"{accelerator}\"\n");
    let mut spec = Spec::parse("test", &format!("{head}{text}"))?;
    spec.engine.cost = CostKind::Limit;
    let own = spec.hardware.accelerator.as_deref();
    let [prompts, serving] = spec
        .fleet
        .accelerators(own)
        .map(|name| Arc::new(catalog().accelerator(name.unwrap()).unwrap().clone()));
    let other = (prompts.id != serving.id).then_some(prompts);
    let options = DeploymentOptions { other, ..DeploymentOptions::of(&spec) };
    let deployment = Deployment::resolve(model(LLAMA), serving, &options)?;
    let options = simulate::RunOptions { leap: true, records: true, ..simulate::RunOptions::default() };
    simulate(&Forecaster::embedded(deployment.clone()).unwrap(), &spec, "test", options)
}

pub(super) fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
}

pub(super) const ONE: &str = "[workload]\nrequests = 1\ninput_len = 1000\noutput_len = 3\narrivals = { kind = \"constant\", rate = 1.0 }\n";

/// One request: its prompt, the transfer of its cache, two decodes.
#[test]
fn a_cache_travels_at_the_rate_of_its_link() {
    let together = spec(ONE).unwrap().summary;
    // 1000 tokens of 131,072 bytes are 131.072 MB. From one rank to one rank they take, at the catalog's rates,
    // 0.291271 ms over NVLink (450 GB/s), 2.62144 ms over the network (50 GB/s), 5.24288 ms through the host (25 GB/s).
    // If both ends have two ranks, each transfers half.
    let chip = catalog().accelerator("h100-sxm").unwrap();
    let (link, network) = (chip.link.as_ref().unwrap(), chip.network.as_ref().unwrap());
    assert_eq!((link.bytes_per_s.0, network.bytes_per_s.0), (450e9, 50e9));
    for (name, travel, latency) in [
        ("nvlink", 0.131_072e3 / 450.0, link.latency_s),
        ("network", 0.131_072e3 / 50.0, network.latency_s),
        ("pcie", 0.131_072e3 / 25.0, 10e-6),
    ] {
        let apart =
            spec(&format!("{ONE}[fleet]\nlink = \"{name}\"\nprefill = {{}}\ndecode = {{}}\n")).unwrap();
        close(apart.summary.ttft.mean, together.ttft.mean);
        close(apart.summary.e2el.mean, together.e2el.mean + travel + latency * 1e3);
        let transfers = apart.fleet.transfers.unwrap();
        assert_eq!((transfers.count, apart.fleet.accelerators), (1, 2));
        close(transfers.mean_ms, travel);
        // The first gap is the transfer and a decode, the second a decode, so the mean gap is longer by half of the
        // transfer.
        close(apart.summary.itl.mean, together.itl.mean + (travel + latency * 1e3) / 2.0);
        let both = spec(&format!(
            "{ONE}[fleet]\nlink = \"{name}\"\nprefill = {{ tp = 2 }}\ndecode = {{ tp = 2, replicas = 3 }}\n"
        ));
        let both = both.unwrap().fleet;
        assert_eq!(both.accelerators, 2 + 3 * 2);
        close(both.transfers.unwrap().mean_ms, travel / 2.0);
    }
}

/// Two prompts of one step are fetched by two decode replicas at once: each gets half of the sender's link, so that both take
/// twice the 2.62144 ms of 131.072 MB at 50 GB/s. From two senders, or by one receiver one after the other, each takes it alone.
#[test]
fn receivers_share_the_link_of_their_sender() {
    let two = ONE.replace("requests = 1", "requests = 2").replace("\"constant\", rate = 1.0", "\"offline\"");
    let travel = 0.131_072e3 / 50.0;
    for (prefill, decode, times) in [(1, 2, 2.0), (2, 2, 1.0), (1, 1, 1.0), (2, 1, 1.0)] {
        let fleet = format!(
            "[fleet]\nlink = \"network\"\nprefill = {{ replicas = {prefill} }}\ndecode = {{ replicas = {decode} }}\n"
        );
        let transfers = spec(&format!("{two}{fleet}")).unwrap().fleet.transfers.unwrap();
        assert_eq!(transfers.count, 2);
        close(transfers.mean_ms, times * travel);
        close(transfers.alone_ms, travel);
    }
}

/// One request: its prompt on an H100, its transfer over the slower of two networks, its decodes on an A100.
#[test]
fn prompts_and_decodes_on_accelerators_of_two_kinds() {
    let fleet =
        "[fleet]\nlink = \"network\"\nprefill = { accelerator = \"h100-sxm\" }\ndecode = { tp = 2 }\n";
    let apart = on("a100-sxm-80gb", &format!("{ONE}{fleet}")).unwrap();
    let [h100, a100] = ["h100-sxm", "a100-sxm-80gb"].map(|name| catalog().accelerator(name).unwrap().clone());
    let [fast, slow] = [&h100, &a100].map(|chip| chip.network.as_ref().unwrap());
    assert!(fast.bytes_per_s.0 > slow.bytes_per_s.0);
    // 1000 tokens of 131,072 bytes leave the H100's only rank.
    let travel = 131.072e6 / slow.bytes_per_s.0 * 1e3;
    close(apart.fleet.transfers.unwrap().mean_ms, travel);
    let prompt = spec(ONE).unwrap().summary.ttft.mean;
    let decodes = on("a100-sxm-80gb", &format!("{ONE}[parallelism]\ntp = 2\n")).unwrap().summary;
    close(apart.summary.ttft.mean, prompt);
    let latency = fast.latency_s.max(slow.latency_s) * 1e3;
    close(apart.summary.e2el.mean, prompt + travel + latency + decodes.e2el.mean - decodes.ttft.mean);
    // Dollars: one H100 and two A100. Joules: 0.18 of the board power always, and the energy of each pool's work.
    let [dollars, watts] = [
        [&h100, &a100].map(|chip| chip.price.as_ref().unwrap().usd_per_hour),
        [&h100, &a100].map(|chip| chip.power_w.unwrap()),
    ];
    close(apart.expense.dollars_per_hour.unwrap(), dollars[0] + 2.0 * dollars[1]);
    let sides = [apart.fleet.prefill.as_ref().unwrap(), &apart.fleet.serving];
    assert_eq!(sides.map(|side| side.accelerator.as_str()), ["h100-sxm", "a100-sxm-80gb"]);
    for (side, (dollars, count)) in sides.iter().zip([(dollars[0], 1.0), (dollars[1], 2.0)]) {
        close(side.dollars_per_hour.unwrap(), dollars * count);
    }
    let lasted = apart.time.busy_s() + apart.time.idle_s;
    // 1000 tokens of a prompt take 15.0e12 FLOPs of weights, without lm_head, and little more: 15.2 ms at 989 TFLOP/s, each second
    // of which adds 0.82 / 0.69 of the board power, but no more than 0.82 while the pool is busy.
    let idle = |watts: f64| 0.18 * watts * lasted / 2.0;
    let busy = |side: &simulate::PoolUse| side.busy * lasted / 2.0;
    close(sides[0].joules.unwrap(), idle(watts[0]) + 0.82 * watts[0] * busy(sides[0]));
    // Decodes read weights and cache at full bandwidth at the limit, for all but the time of their links.
    let read = (sides[1].joules.unwrap() - idle(2.0 * watts[1])) / (0.61 * 2.0 * watts[1] * busy(sides[1]));
    assert!(0.9 < read && read < 1.1, "{read}");
    close(apart.expense.joules.unwrap(), sides.iter().map(|side| side.joules.unwrap()).sum());
    // Each of the two A100 has more memory left after weights than the H100: 80 GB less half of the weights, against 80
    // GB less all of the weights.
    assert!(sides.iter().all(|side| side.blocks > 0) && sides[0].blocks < sides[1].blocks);
    let message = on("a100-sxm-80gb", &format!("{ONE}{}", fleet.replace("network", "nvlink"))).unwrap_err();
    let accepted = "network or pcie, which h100-sxm and a100-sxm-80gb have both";
    assert!(message.to_string().contains(accepted), "{message}");
}

/// Conversations of two turns begin at 2 or 2000 a second. 2000 conversations of two turns ask for 4000 requests/s, more
/// than one accelerator answers; the load of as many users as answers allow is never more than it answers.
#[test]
fn conversations_that_begin_too_fast_are_overload() {
    let with = |arrivals: &str| {
        let lengths = "requests = 600\ninput_len = 300\noutput_len = 20\n";
        spec(&format!("[workload]\n{lengths}arrivals = {{ kind = \"sessions\", turns = 2, {arrivals} }}\n"))
            .unwrap()
            .load
    };
    let [calm, flood, users] = ["rate = 2", "rate = 2000", "concurrency = 64"].map(with);
    assert!(!calm.overloaded && calm.too_short_below.is_none(), "{calm:?}");
    // 2 conversations a second are 4 turns a second; their last turns end after the last begins.
    assert!((calm.offered_per_s.unwrap() / 4.0 - 1.0).abs() < 0.1, "{calm:?}");
    assert!(flood.overloaded && flood.offered_per_s == Some(4000.0), "{flood:?}");
    assert!(flood.stable_per_s.unwrap() < 4000.0, "{flood:?}");
    assert_eq!((users.overloaded, users.offered_per_s), (false, None));
}

/// A client sends far more requests than are served. With at most 4 in flight it behaves as 4 users; with a cap as high
/// as the number of requests, as an open loop.
#[test]
fn a_capped_client_is_between_users_and_an_open_loop() {
    let with = |arrivals: &str, cap: &str| {
        let lengths = "requests = 60\ninput_len = 700\noutput_len = 30\n";
        spec(&format!("[workload]\n{lengths}{cap}arrivals = {{ {arrivals} }}\n")).unwrap()
    };
    let flood = "kind = \"constant\", rate = 1e6";
    let users = with("kind = \"closed_loop\", concurrency = 4", "");
    let capped = with("kind = \"offline\"", "max_concurrency = 4\n");
    close(capped.summary.duration, users.summary.duration);
    close(capped.summary.ttft.mean, users.summary.ttft.mean);
    let capped = with(flood, "max_concurrency = 4\n");
    // Requests wait at the client, not in the server's queue: the server is not overloaded, and no first token is late.
    assert!(!capped.load.overloaded && capped.load.offered_per_s.is_none());
    let [free, open] = [with(flood, "max_concurrency = 60\n"), with(flood, "")];
    assert_eq!(free.records, open.records);
    assert!(open.summary.ttft.mean > 5.0 * capped.summary.ttft.mean);
}

/// One H100 of weight 1 and two L40S of weight 0.25: of 600 requests they receive 400, 100 and 100.
#[test]
fn two_kinds_of_replicas_get_their_shares() {
    let with = |more: &str| {
        let text = format!(
            "[fleet]\n{more}\nbeside = {{ accelerator = \"l40s\", replicas = 2 }}\n[workload]\nrequests = 600\ninput_len = 500\noutput_len = \
             20\narrivals = {{ kind = \"poisson\", rate = 20 }}\n"
        );
        spec(&text)
    };
    let run = with("beside_weight = 0.25").unwrap();
    let served = |replica: u64| run.records.iter().filter(|r| r.replica == replica).count();
    assert_eq!([0, 1, 2].map(served), [400, 100, 100]);
    assert_eq!((run.fleet.accelerators, run.fleet.serving.accelerator.as_str()), (3, "h100-sxm"));
    assert_eq!(run.fleet.beside.as_ref().unwrap().accelerator, "l40s");
    // At the limit a step reads the weights, so speeds differ by 3.35 TB/s over 0.864 TB/s, 3.9.
    let mean = |replicas: &[u64]| {
        let times = run.records.iter().filter(|r| replicas.contains(&r.replica)).filter_map(|r| r.tpot());
        let all: Vec<f64> = times.map(|t| t.ms()).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    assert!(mean(&[1, 2]) > 3.0 * mean(&[0]), "{} {}", mean(&[1, 2]), mean(&[0]));
    for (wrong, named) in
        [("beside_weight = 0.0", "fleet.beside_weight"), ("beside_weight = 2000.0", "0.001 to 1000")]
    {
        let refused = with(wrong).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
}

/// A prefill replica keeps a cache until the decode replica fetches it: with room for one prompt, and `max_num_seqs =
/// 1` on the decode replica, prompts wait.
#[test]
fn a_full_decode_pool_holds_prefill_back() {
    let load = "[workload]\nrequests = 4\ninput_len = 1000\noutput_len = 100\narrivals = { kind = \"constant\", rate = 1e6 }\n";
    let fleet = |blocks: u64| {
        let text = format!(
            "{load}[fleet]\nlink = \"nvlink\"\ndecode = {{ max_num_seqs = 1 }}\nprefill = {{ num_gpu_blocks = {blocks} }}\n"
        );
        spec(&text).unwrap().records
    };
    // A prompt takes 63 blocks of 16 tokens, and vLLM keeps a null block.
    let (narrow, wide) = (fleet(64), fleet(1000));
    let first = |r: &[roofcast::record::Record], n: usize| r[n].first_token.unwrap();
    assert_eq!(first(&narrow, 0), first(&wide, 0));
    // The second prompt is computed after the first cache has left, which takes 131.072 MB at 450 GB/s and the link's
    // latency.
    let latency = catalog().accelerator("h100-sxm").unwrap().link.as_ref().unwrap().latency_s;
    close(first(&narrow, 1).ms(), 2.0 * first(&narrow, 0).ms() + 0.131_072e3 / 450.0 + latency * 1e3);
    // The third prompt is computed after the decode replica is free: after the first request has ended and the second
    // cache has left.
    assert!(first(&narrow, 2) > narrow[0].finished && first(&wide, 2) < wide[0].finished);
    assert!(first(&narrow, 3) > narrow[1].finished);
}

/// Two equal prompts are computed in one step, and the decode replica runs one request. The second cache is fetched only
/// once the first request has ended, although it was still in transfer when the second one could have been admitted: the
/// second request ends as long after the first as the first after its own first token.
#[test]
fn a_cache_in_transfer_counts_in_max_num_seqs() {
    let run = spec(
        "[workload]\nrequests = 2\ninput_len = 1000\noutput_len = 20\narrivals = { kind = \"offline\" }\n\
         [fleet]\nlink = \"pcie\"\nprefill = {}\ndecode = { max_num_seqs = 1 }\n",
    );
    let records = run.unwrap().records;
    let [one, two] = [0, 1].map(|n: usize| (records[n].first_token.unwrap().ms(), records[n].finished.ms()));
    assert_eq!(one.0, two.0);
    close(two.1 - one.1, one.1 - one.0);
}

/// 1000 and 3 tokens need 63 blocks of 16, in addition to vLLM's null block; a prompt with its first token needs as
/// many, so either pool can be too small.
#[test]
fn what_one_pool_cannot_hold_is_refused() {
    for (prefill, decode, refused) in [(64, 64, 0), (63, 64, 1), (64, 63, 1), (2, 1000, 1)] {
        let text = format!(
            "{ONE}[fleet]\nlink = \"nvlink\"\nprefill = {{ num_gpu_blocks = {prefill} }}\ndecode = {{ num_gpu_blocks = {decode} }}\n"
        );
        let run = spec(&text).unwrap();
        assert_eq!((run.refused, run.summary.completed), (refused, 1 - refused), "{prefill} {decode}");
        assert_eq!(run.fleet.transfers.unwrap().count, 1 - refused);
    }
}

/// Two prompts go to one decode replica: the second cache is transferred after the first on one link.
#[test]
fn caches_follow_one_another() {
    let load = "[workload]\nrequests = 2\ninput_len = 1000\noutput_len = 2\narrivals = { kind = \"constant\", rate = 1e9 }\n";
    let text = "[fleet]\nlink = \"pcie\"\nprefill = { replicas = 2 }\ndecode = {}\n";
    let records = spec(&format!("{load}{text}")).unwrap().records;
    // The prompts are computed in parallel, 1 ns apart. Each cache takes 131.072 MB / 25 GB/s = 5.24288 ms and arrives
    // 10 µs after its last byte was sent. A decode reads 15 GB at 3.35 TB/s in 4.5 ms, and so ends before the second
    // cache arrives.
    let gap = |n: usize| records[n].finished.ms() - records[n].first_token.unwrap().ms();
    assert!((4.4..5.24).contains(&(gap(0) - 5.24288 - 0.01)), "{}", gap(0));
    close(gap(1) - gap(0), 5.24288 - 1e-6);
}

#[test]
fn what_cannot_be_a_fleet_is_refused() {
    for (text, parts) in [
        ("[fleet]\nprefill = {}\n", ["fleet.decode", "missing"]),
        ("[fleet]\ndecode = {}\n", ["fleet.prefill", "missing"]),
        ("[fleet]\nprefill = {}\ndecode = {}\n", ["fleet.link", "nvlink, network or pcie"]),
        ("[fleet]\nlink = \"tin\"\n", ["fleet.link", "tin"]),
        ("[fleet.prefill]\nchips = 1\n", ["fleet.prefill", "chips"]),
        ("[fleet]\nlink = \"network\"\nprefill = { replicas = 0 }\ndecode = {}\n", ["fleet.prefill", "1 to"]),
        ("[fleet]\nlink = \"network\"\nprefill = {}\ndecode = { tp = 3 }\n", ["fleet.decode", "divisor"]),
        (
            "[fleet]\nlink = \"network\"\nprefill = {}\ndecode = {}\n[parallelism]\nreplicas = 2\n",
            ["replicas", "omitted"],
        ),
        (
            "[fleet]\nlink = \"network\"\nprefill = {}\ndecode = {}\n[engine]\nscheduler = \"orca\"\n",
            ["scheduler", "vllm"],
        ),
        (
            "[fleet]\nlink = \"network\"\nprefill = {}\ndecode = {}\n[engine]\nscheduler = \"sglang\"\n",
            ["tensorrt-llm", "SGLang's queues"],
        ),
        ("[fleet]\nlink = \"network\"\n", ["fleet.link", "prefill"]),
    ] {
        let message = spec(&format!("{ONE}{text}")).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }
}

/// The server takes 2 ms for a request and 1 µs for each of its 1,000 tokens, serially, and 5 ms in parallel with other
/// requests: a single request is 8 ms later. Of three simultaneous requests the first is in a step by itself, while
/// without a server all three would be in one step.
#[test]
fn a_server_takes_its_time_of_each_request() {
    let deployment = deployment(RequestedParallelism::default(), EngineSpec::default());
    let ran = |arrivals: Arrivals, [request, ingest, token]: [f64; 3]| {
        let mut forecaster = Forecaster::embedded(deployment.clone()).unwrap();
        let mut coefficients = (*forecaster.coefficients).clone();
        coefficients.engine.request = request;
        coefficients.engine.request_serial = ingest;
        coefficients.engine.prompt_token = token;
        forecaster.coefficients = Arc::new(coefficients);
        let workload = Workload {
            requests: Some(3),
            seed: 1,
            arrivals,
            input_len: Length::Tokens(1000),
            output_len: Length::Tokens(10),
            prefix: None,
            images: None,
            adapters: None,
            priorities: Vec::new(),
            classes: Vec::new(),
            max_tokens: None,
            max_concurrency: None,
            recorded: None,
        };
        let spec = Spec { workload: Some(workload), ..Spec::default() };
        let options = simulate::RunOptions { leap: true, records: true, ..simulate::RunOptions::default() };
        let run = simulate(&forecaster, &spec, "test", options).unwrap();
        run.records.iter().map(|r| r.first_token.unwrap().ms() - r.sent.ms()).collect::<Vec<_>>()
    };
    let apart = Arrivals::Constant { rate: 1.0 };
    let together =
        Arrivals::ClosedLoop { concurrency: 3, think_s: None, ramp_s: None, turn_round_s: Some(0.0) };
    let server = [5e-3, 2e-3, 1e-6];
    let (alone, without) = (ran(apart.clone(), server), ran(apart, [0.0; 3]));
    for (with, without) in alone.iter().zip(&without) {
        assert!((with - without - 8.0).abs() < 1e-6, "{with} {without}");
    }
    let (first, at_once) = (ran(together.clone(), server)[0], ran(together, [0.0; 3])[0]);
    assert!((first - alone[0]).abs() < 1e-6 && at_once > without[0] * 1.5, "{first} {at_once}");
}

/// vLLM uses 0.92 of the memory and puts its cache in the part that weights and activations leave; TensorRT-LLM's cache
/// takes nine tenths of the memory that is then free.
#[test]
fn tensorrt_llm_takes_its_share_of_what_is_free() {
    let rank = |name: &str| {
        let engine = EngineSpec { name: Some(name.to_owned()), ..EngineSpec::default() };
        let of = deployment(RequestedParallelism::default(), engine);
        (Memory::of(&of).ranks()[0], of.accelerator.usable_bytes)
    };
    let ((vllm, usable), (trt, _)) = (rank("vllm"), rank("tensorrt-llm"));
    let rest_of = |rank: Rank| rank.weight_bytes + rank.activation_bytes + rank.runtime_bytes;
    // Rounding may take a byte.
    let same = |bytes: Bytes, expected: u64| bytes.0.abs_diff(expected) <= 1;
    assert!(same(vllm.kv_bytes, usable.0 * 92 / 100 - rest_of(vllm).0), "{vllm:?}");
    assert!(same(trt.kv_bytes, (usable.0 - rest_of(trt).0) * 9 / 10), "{trt:?}");
}

/// 4096 sequences sample from 128,256 tokens: vLLM takes 22 bytes for each, 11.6 GB (38 bytes in versions that sorted),
/// in addition to the output of 8192 tokens, 4096 values of 2 bytes each; TensorRT-LLM's 6 bytes are 3.15 GB.
#[test]
fn tensorrt_llm_samples_without_a_sort() {
    let activations = |name: &str, version: Option<&str>| {
        let (name, version) = (Some(name.to_owned()), version.map(str::to_owned));
        let engine = EngineSpec { name, version, max_num_seqs: Some(4096), ..EngineSpec::default() };
        Memory::of(&deployment(RequestedParallelism::default(), engine)).ranks()[0].activation_bytes
    };
    let output = 8192 * 4096 * 2;
    assert_eq!(activations("vllm", None), Bytes(4096 * 128_256 * 22 + output));
    assert_eq!(activations("vllm", Some("0.16.0")), Bytes(4096 * 128_256 * 38 + output));
    assert_eq!(activations("tensorrt-llm", None), Bytes(4096 * 128_256 * 6));
}

/// vLLM's defaults for accelerators of 70 GiB or more exclude the A100; other engines' do not.
#[test]
fn an_a100_has_the_defaults_of_small_chips_under_vllm() {
    let settings = |chip: &str, engine: &str| {
        let accelerator = Arc::new(catalog().accelerator(chip).unwrap().clone());
        let engine = EngineSpec { name: Some(engine.to_owned()), ..EngineSpec::default() };
        let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
        let settings = Deployment::resolve(model(LLAMA), accelerator, &options).unwrap().engine;
        (settings.max_num_batched_tokens, settings.max_num_seqs)
    };
    assert_eq!(settings("a100-sxm-80gb", "vllm"), (2048, 256));
    // SGLang caps requests at 2,048 (`resolve_max_num_reqs`) and computes chunks of 8,192 tokens on this card.
    assert_eq!(settings("a100-sxm-80gb", "sglang"), (8192, 2048));
    assert_eq!(settings("h100-sxm", "vllm"), (8192, 1024));
}

/// Since 0.8, vLLM captures CUDA graphs of steps with prompts up to twice its sequences, 512 tokens at most; an eager
/// engine and other engines capture none. From 0.28 on the bound of B200 and B300 is 1024, that of RTX PRO 6000 is not.
#[test]
fn graphs_hold_what_the_engine_captures() {
    let captured = |name: &str, version: &str, max_num_seqs, eager, asked| {
        let engine = EngineSpec {
            name: Some(name.to_owned()),
            version: Some(version.to_owned()),
            max_num_seqs,
            enforce_eager: Some(eager),
            max_cudagraph_capture_size: asked,
            ..EngineSpec::default()
        };
        deployment(RequestedParallelism::default(), engine).engine.max_cudagraph_capture_size
    };
    assert_eq!(captured("vllm", "0.19.0", None, false, None), 512);
    assert_eq!(captured("vllm", "0.19.0", Some(4), false, None), 8);
    assert_eq!(captured("vllm", "0.7.3", None, false, None), 0);
    assert_eq!(captured("sglang", "0.5.9", None, false, None), 0);
    assert_eq!(captured("sglang", "0.5.9", None, false, Some(2048)), 2048);
    assert_eq!(captured("vllm", "0.19.0", None, true, Some(2048)), 0);
    let on = |chip: &str, version: &str, name: &str| {
        let engine = EngineSpec { version: Some(version.to_owned()), ..EngineSpec::default() };
        let options = DeploymentOptions { engine, ..DeploymentOptions::default() };
        let chip = Arc::new(catalog().accelerator(chip).unwrap().clone());
        Deployment::resolve(model(name), chip, &options).unwrap().engine.max_cudagraph_capture_size
    };
    let dense = "meta-llama/Llama-3.1-8B-Instruct";
    assert_eq!([on("b200", "0.28.0", dense), on("b300", "0.33.0", dense)], [1024, 1024]);
    assert_eq!([on("b200", "0.27.1", dense), on("rtx-pro-6000", "0.33.0", dense)], [512, 512]);
    assert_eq!(on("h100-sxm", "0.19.0", "openai/gpt-oss-20b"), 1024);
}

/// Prompts of 10 to 200 tokens. With a bound of 100, by Dynamo's key or by llm-d's as 101, the longer ones alone are handed over;
/// without a bound all are. If every prompt is short, a pool of one decode replica serves as the replica alone does, and the
/// prefill replica serves none.
#[test]
fn short_prompts_stay_on_decode_replicas() {
    let run = |keys: &str| {
        spec(&format!(
            "[workload]\nrequests = 40\noutput_len = 20\narrivals = {{ kind = \"poisson\", rate = 30 }}\n\
             input_len = {{ kind = \"uniform\", min = 10, max = 200 }}\n{keys}"
        ))
    };
    let pools =
        |more: &str| run(&format!("[fleet]\nlink = \"nvlink\"\nprefill = {{}}\ndecode = {{}}\n{more}\n"));
    let handed_over = |run: &Simulation| run.fleet.transfers.as_ref().unwrap().count;
    let all = pools("").unwrap();
    assert_eq!(handed_over(&all), 40);
    let long = all.records.iter().filter(|r| r.input_len > 100).count() as u64;
    assert!(0 < long && long < 40);
    for bound in ["max_local_prefill_length = 100", "non_cached_tokens = 101"] {
        let run = pools(bound).unwrap();
        assert_eq!((handed_over(&run), run.summary.completed), (long, 40), "{bound}");
        assert!(run.records.iter().all(|r| r.first_token.is_some()));
    }
    let alone = run("").unwrap();
    for bound in ["max_local_prefill_length = 200", "non_cached_tokens = 0"] {
        let local = pools(bound).unwrap();
        assert_eq!((handed_over(&local), &local.summary), (0, &alone.summary), "{bound}");
    }
    let refused = |run: roofcast::Result<Simulation>| run.err().unwrap().to_string();
    let both = pools("max_local_prefill_length = 1\nnon_cached_tokens = 2");
    assert!(refused(both).contains("fleet.non_cached_tokens"));
    assert!(refused(run("[fleet]\nnon_cached_tokens = 2\n")).contains("without fleet.prefill"));
}

/// Four replicas in turn, which run apart: within its bounds a run that may end early is the run to the end. Beyond them it ends
/// before its last request, with the bound exceeded at its percentile.
#[test]
fn a_run_of_replicas_apart_may_end_early() {
    let parallelism = RequestedParallelism { replicas: Some(4), ..RequestedParallelism::default() };
    let forecaster = Forecaster::embedded(deployment(parallelism, EngineSpec::default())).unwrap();
    let run = |rate: u32, end_when_missed: bool| {
        let text = format!(
            "[slo]\nttft_p99_ms = 1000\n[workload]\nrequests = 10000\ninput_len = 1000\noutput_len = 50\n\
             arrivals = {{ kind = \"poisson\", rate = {rate}.0 }}\n"
        );
        let options = simulate::RunOptions { leap: true, end_when_missed, ..simulate::RunOptions::default() };
        simulate(&forecaster, &Spec::parse("test", &text).unwrap(), "test", options).unwrap()
    };
    let [to_the_end, early] = [false, true].map(|early| run(40, early));
    assert!(!early.ended_early);
    let [to_the_end, early] = [to_the_end, early].map(|run| serde_json::to_string(&run).unwrap());
    assert_eq!(to_the_end, early);
    let overloaded = run(1000, true);
    assert!(overloaded.ended_early && overloaded.summary.completed < 5000);
    assert!(overloaded.summary.ttft.p99 > 1000.0);
}
