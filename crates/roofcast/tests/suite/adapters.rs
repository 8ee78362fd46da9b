//! LoRA adapters in simulations: their buffers, the loads and kernels for which steps wait, waits for a buffer, and the
//! requests that name them.

use super::fleets::{deployment, holds, spec};
use super::runs::workloads;
use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::capacity::{CapacityQuestion, capacity};
use roofcast::cost::Utilization;
use roofcast::deployment::{Deployment, DeploymentOptions};
use roofcast::limits::{LimitsQuestion, limits};
use roofcast::memory::Memory;
use roofcast::parallelism::RequestedParallelism;
use roofcast::router::Routing;
use roofcast::simulate;
use roofcast::spec::{EngineSpec, FleetSpec, RoutingSpec, VllmSpec};
use roofcast::units::Bytes;
use roofcast::workload::{Adapters, Traffic};
use roofcast::{Forecaster, Spec};

/// Bytes of an adapter of rank 16 for Llama-3.1-8B: in each of 32 layers 81,920 inputs and outputs, 2 bytes a weight.
const ADAPTER: f64 = 32.0 * 81_920.0 * 16.0 * 2.0;
/// Seconds of a load: 0.8 × 63 GB/s of an H100's PCIe 5 link, after a read from storage at 10 GB/s.
const COPY: f64 = ADAPTER / 50.4e9;
const READ: f64 = ADAPTER / 10e9;

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} is not {expected}");
}

/// Classes `a` and `b` with an adapter each, and class `base` without one, with equal shares.
const CLASSES: &str = "[[workload.classes]]\nname = \"a\"\nshare = 1\nadapter = \"one\"\n\
    [[workload.classes]]\nname = \"b\"\nshare = 1\nadapter = \"two\"\n\
    [[workload.classes]]\nname = \"base\"\nshare = 1\n";

/// One request of 100 tokens of prompt and 11 of output with an adapter takes eleven steps: the adapter is read from
/// storage and copied once, and each step reads its weights, 25.04 µs at 3.35 TB/s, which is longer than its FLOPs.
#[test]
fn one_request_by_hand() {
    let load =
        "[workload]\nrequests = 1\ninput_len = 100\noutput_len = 11\narrivals = { kind = \"offline\" }\n";
    let plain = spec(load).unwrap();
    assert!(plain.adapters.is_none());
    let run = spec(&format!("[engine]\nenable_lora = true\n{load}[workload.adapters]\ncount = 3\n")).unwrap();
    let used = run.adapters.unwrap();
    assert_eq!((used.adapters, used.max_loras, used.adapter_bytes), (3, 1, Bytes(ADAPTER as u64)));
    assert_eq!((used.loads, used.reads, used.waits, used.mean_wait_s), (1, 1, 0, None));
    close(used.loading_s, COPY + READ);
    close(used.computing_s, 11.0 * ADAPTER / 3.35e12);
    let end = |run: &roofcast::simulate::Simulation| run.records[0].finished.seconds();
    close(end(&run) - end(&plain), used.loading_s + used.computing_s);
    close(run.time.swap_s, used.loading_s);
}

/// Requests of two adapters, one at a time a second apart, with one buffer: every change of the adapter is a load, and
/// with two copies on the host only the first two are reads. With one copy on the host every load is a read; with two
/// buffers the third request and later ones load nothing.
#[test]
fn loads_by_hand() {
    let text = |keys: &str| {
        format!(
            "[engine]\nenable_lora = true\n{keys}\n[workload]\nseed = 1\nrequests = 20\ninput_len = 10\noutput_len = 3\n\
             arrivals = {{ kind = \"constant\", rate = 1.0 }}\nadapters = {{ count = 2 }}\n"
        )
    };
    let parsed = Spec::parse("test", &text("")).unwrap().workload.unwrap();
    let mut traffic = Traffic::new(&parsed, "test").unwrap();
    let named: Vec<u32> = std::iter::from_fn(|| traffic.next().map(|request| request.adapter)).collect();
    assert!(named.iter().all(|adapter| (1..=2).contains(adapter)));
    let changes = 1 + named.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    for (keys, loads, reads) in
        [("", changes, changes), ("max_cpu_loras = 2", changes, 2), ("max_loras = 2", 2, 2)]
    {
        let used = spec(&text(keys)).unwrap().adapters.unwrap();
        assert_eq!((used.loads, used.reads, used.waits), (loads, reads, 0), "{keys}");
        close(used.loading_s, loads as f64 * COPY + reads as f64 * READ);
    }
}

/// Twelve requests at once, of two adapters and of none, with one buffer: those of one adapter and of none run first,
/// and the others wait from the start until these have ended. With two buffers nobody waits. Classes report their adapters.
#[test]
fn requests_wait_for_a_buffer() {
    let text = |most: u64| {
        format!(
            "[engine]\nenable_lora = true\nmax_loras = {most}\n[workload]\nrequests = 12\ninput_len = 10\n\
             output_len = 30\narrivals = {{ kind = \"offline\" }}\n{CLASSES}"
        )
    };
    let run = spec(&text(1)).unwrap();
    let adapters: Vec<_> = run.classes.iter().map(|class| class.adapter.as_deref()).collect();
    assert_eq!(adapters, [Some("one"), Some("two"), None]);
    let used = run.adapters.unwrap();
    assert_eq!((used.adapters, used.loads, used.reads), (2, 2, 2));
    let [a, b, _] = [0, 1, 2].map(|class| run.classes[class].requests);
    assert!([a, b].contains(&used.waits), "{used:?}");
    let first = run.records.iter().map(|r| r.finished.seconds()).fold(f64::MAX, f64::min);
    close(used.mean_wait_s.unwrap(), first);
    let used = spec(&text(2)).unwrap().adapters.unwrap();
    assert_eq!((used.waits, used.mean_wait_s), (0, None));
}

/// Qwen3-30B-A3B on four data-parallel ranks that share experts: adapters that nobody names change no time, and of those that
/// requests name each rank loads its own: two requests at once go to two ranks, which each load the one adapter. What vLLM
/// lacks is refused: ranks before 0.21, DeepEP, both sides divided, and ranks of a model without experts.
#[test]
fn ranks_have_adapters() {
    let run = |engine: &str, parallelism: &str, load: &str| {
        let text = format!(
            "[parallelism]\n{parallelism}\n[engine]\nnum_gpu_blocks = 2000\n{engine}\n[workload]\nrequests = 2\ninput_len = 100\n\
             output_len = 11\narrivals = {{ kind = \"offline\" }}\n{load}"
        );
        let spec = Spec::parse("test", &text).unwrap();
        let options = DeploymentOptions::of(&spec);
        let chip = std::sync::Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
        let deployment = Deployment::resolve(model("Qwen/Qwen3-30B-A3B"), chip, &options)?;
        let options = simulate::RunOptions { leap: true, records: true, ..simulate::RunOptions::default() };
        simulate::simulate(&Forecaster::embedded(deployment)?, &spec, "test", options)
    };
    let ranks = "ep = 4\nattention_dp = 4";
    let lora = "enable_lora = true";
    let plain = run("", ranks, "").unwrap();
    let idle = run(lora, ranks, "").unwrap();
    assert_eq!(plain.summary, idle.summary);
    let used = run(lora, ranks, "[workload.adapters]\ncount = 1\n").unwrap();
    let adapters = used.adapters.unwrap();
    assert_eq!((adapters.loads, adapters.reads, adapters.waits), (2, 2, 0));
    assert!(used.summary.e2el.mean > plain.summary.e2el.mean);
    // Experts of tensor-parallel ranks alone, each with all tokens.
    assert!(
        run(lora, "ep = 4\ntp = 4", "[workload.adapters]\ncount = 1\n").unwrap().adapters.unwrap().loads == 1
    );
    let refused = |engine: &str, parallelism: &str| run(engine, parallelism, "").err().unwrap().to_string();
    assert!(refused("enable_lora = true\nversion = \"0.20.2\"", ranks).contains("vLLM from 0.21 on"));
    assert!(refused("enable_lora = true\nfully_sharded_loras = true", ranks).contains("fully_sharded_loras"));
    let deepep = "enable_lora = true\nexperts.all2all_backend = \"deepep_low_latency\"";
    assert!(refused(deepep, ranks).contains("allgather_reducescatter"));
}

/// Adapters need an engine that serves them, and data-parallel ranks that share experts.
#[test]
fn refusals_name_the_key() {
    let refused = |text: &str| spec(text).err().unwrap().to_string();
    let load = "[workload]\nrequests = 1\ninput_len = 9\noutput_len = 9\narrivals = { kind = \"offline\" }\n";
    let adapters = "[workload.adapters]\ncount = 3\n";
    let [enabled, sglang] = ["enable_lora = true", "name = \"sglang\"\nenable_lora = true"];
    for (text, says) in [
        (format!("{load}{adapters}"), "enable_lora"),
        (format!("[engine]\nmax_loras = 2\n{load}"), "enable_lora"),
        (format!("[engine]\n{enabled}\nmax_lora_rank = 20\n{load}"), "1, 8, 16, 32, 64, 128, 256, 320, 512"),
        (format!("[engine]\n{enabled}\nmax_loras = 4\nmax_cpu_loras = 2\n{load}"), "max_cpu_loras"),
        (format!("[engine]\n{sglang}\n{load}"), "the scheduler vllm"),
        (format!("[engine]\n{enabled}\n{load}[workload.adapters]\ncount = 0\n"), "workload.adapters.count"),
        (format!("[parallelism]\nattention_dp = 2\n[engine]\n{enabled}\n{load}"), "attention_dp"),
    ] {
        let error = refused(&text);
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// Every buffer takes the bytes of one adapter from the KV cache; on each of two ranks an adapter has 55,296 inputs and
/// outputs a layer. `limits` adds the bytes of one adapter for each sequence, up to the number of buffers.
#[test]
fn buffers_and_limits_by_hand() {
    let with = |most: u64, tp: u64| {
        let vllm = VllmSpec { enable_lora: Some(true), max_loras: Some(most), ..VllmSpec::default() };
        let parallelism = RequestedParallelism { tp: Some(tp), ..RequestedParallelism::default() };
        deployment(parallelism, EngineSpec { vllm, ..EngineSpec::default() })
    };
    let without = deployment(RequestedParallelism::default(), EngineSpec::default());
    let of = |d: &roofcast::Deployment| Memory::of(d).ranks()[0];
    assert_eq!(of(&without).adapter_bytes, None);
    let four = of(&with(4, 1));
    assert_eq!(four.adapter_bytes, Some(Bytes(4 * ADAPTER as u64)));
    assert_eq!(of(&without).kv_bytes.0 - four.kv_bytes.0, 4 * ADAPTER as u64);
    let halves = (4.0 * 32.0 * 55_296.0 * 16.0 * 2.0) as u64;
    assert_eq!(of(&with(4, 2)).adapter_bytes, Some(Bytes(halves)));
    let question = CapacityQuestion { context: 100, batch: 1, oversubscription_percent: 100, users: None };
    assert!(capacity(&with(4, 1), &question).kv_tokens < capacity(&without, &question).kv_tokens);
    let question = LimitsQuestion { batch: 3, context: 100, prefill: 100, utilization: Utilization::FULL };
    let cost = limits(&Forecaster::embedded(with(4, 1)).unwrap(), &question).adapters.unwrap();
    assert_eq!((cost.adapters, cost.bytes), (3, Bytes(ADAPTER as u64)));
    close(cost.limit.seconds(), 3.0 * ADAPTER / 3.35e12);
    close(cost.load.seconds(), COPY);
    assert!(cost.forecast > cost.limit);
}

/// Two replicas with one buffer each: llm-d's affinity sends requests of an adapter to the replica that runs it, and
/// loads less often than round robin.
#[test]
fn affinity_loads_less() {
    let loads = |router: Routing, lora_affinity_weight: f64| {
        let keys = "[workload]\nrequests = 200\ninput_len = 50\noutput_len = 20\n\
                    arrivals = { kind = \"poisson\", rate = 60.0 }\nadapters = { count = 2 }\n";
        let workload = Spec::parse("test", keys).unwrap().workload.unwrap();
        let vllm = VllmSpec { enable_lora: Some(true), ..VllmSpec::default() };
        let parallelism = RequestedParallelism { replicas: Some(2), ..RequestedParallelism::default() };
        let deployment = deployment(parallelism, EngineSpec { vllm, ..EngineSpec::default() });
        let routing = RoutingSpec { lora_affinity_weight, ..RoutingSpec::default() };
        let fleet = FleetSpec { router, routing, ..FleetSpec::default() };
        holds(&deployment, &workload, fleet).adapters.unwrap().loads
    };
    let (turns, affine) = (loads(Routing::RoundRobin, 0.0), loads(Routing::LlmD, 10.0));
    assert!(2 * affine < turns, "{affine} of {turns}");
}

/// The k-th of four adapters has weight 1/k: 48, 24, 16 and 12 of 100, of 80 % of the requests.
#[test]
fn popularity_by_hand() {
    let keys = "[workload]\nrequests = 20000\ninput_len = 9\noutput_len = 9\narrivals = { kind = \"offline\" }\n\
                adapters = { count = 4, share = 0.8, skew = 1.0 }\n";
    let workload = Spec::parse("test", keys).unwrap().workload.unwrap();
    let mut traffic = Traffic::new(&workload, "test").unwrap();
    let mut counts = [0_u32; 5];
    while let Some(request) = traffic.next() {
        counts[request.adapter as usize] += 1;
    }
    for (count, share) in counts.into_iter().zip([0.2, 0.8 * 0.48, 0.8 * 0.24, 0.8 * 0.16, 0.8 * 0.12]) {
        let error = (f64::from(count) / 20_000.0 - share).abs();
        assert!(error < 5.0 * (share * (1.0 - share) / 20_000.0_f64).sqrt(), "{counts:?}");
    }
}

/// An adapter's prefix is not another's: two requests with one prefix and different adapters share no tokens.
#[test]
fn adapters_share_no_prefixes() {
    let text = |count: u64| {
        format!(
            "[engine]\nenable_lora = true\nmax_loras = 2\n[workload]\nrequests = 8\ninput_len = 16\noutput_len = 4\n\
             prefix = {{ length = 160 }}\narrivals = {{ kind = \"constant\", rate = 1.0 }}\nadapters = {{ count = {count} }}\n"
        )
    };
    let cached = |count| spec(&text(count)).unwrap().activity.cached_tokens;
    // The first request of each adapter computes the prefix.
    assert_eq!((cached(1), cached(2)), (7 * 160, 6 * 160));
}

/// A trace's adapters are numbered in order of appearance; a request without a name has none.
#[test]
fn a_trace_names_adapters() {
    let keys = "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\n";
    let mut workload = Spec::parse("test", keys).unwrap().workload.unwrap();
    let rows = "arrival_s,input_len,output_len,adapter\n0,10,5,sql\n1,10,5,\n2,10,5,chat\n3,10,5,sql\n";
    workload.load("test", |_| Ok::<_, roofcast::Error>(rows.to_owned())).unwrap();
    let mut traffic = Traffic::new(&workload, "test").unwrap();
    let named: Vec<u32> = std::iter::from_fn(|| traffic.next().map(|request| request.adapter)).collect();
    assert_eq!((named, workload.adapter_count()), (vec![1, 0, 2, 1], 2));
}

/// Adapters are drawn for the requests of a trace that names none, in place of the times and lengths of its rows; a trace that
/// names some, or whose prompts share tokens, has none drawn.
#[test]
fn adapters_are_drawn_for_a_trace() {
    let load = |rows: &str| {
        let keys =
            "[workload]\narrivals = { kind = \"trace\", path = \"t.csv\" }\nadapters = { count = 3 }\n";
        let mut workload = Spec::parse("test", keys).unwrap().workload.unwrap();
        let text = format!("arrival_s,input_len,output_len,adapter\n{rows}");
        workload.load("test", |_| Ok::<_, roofcast::Error>(text.clone())).map(|()| workload)
    };
    let workload = load("0,10,5,\n1,20,5,\n2,30,5,\n3,40,5,\n").unwrap();
    assert_eq!(workload.adapter_count(), 3);
    let mut traffic = Traffic::new(&workload, "test").unwrap();
    let requests: Vec<_> = std::iter::from_fn(|| traffic.next()).collect();
    assert!(requests.iter().all(|request| (1..=3).contains(&request.adapter)));
    assert_eq!(requests.iter().map(|request| request.input_len).collect::<Vec<_>>(), [10, 20, 30, 40]);
    let error = load("0,10,5,sql\n").err().unwrap().to_string();
    assert!(
        error.contains("workload.adapters") && error.contains("name adapters or share tokens"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every request ends and every token is paid for, whatever the buffers; loads are at least the adapters that
    /// appear, and reads no more than loads.
    #[test]
    fn adapters_conserve_tokens(
        workload in workloads(),
        (count, most, host) in (1_u64..8, 1_u64..5, 0_u64..5),
        asynchronous in any::<bool>(),
    ) {
        let vllm = VllmSpec {
            enable_lora: Some(true),
            max_loras: Some(most),
            max_cpu_loras: Some(most + host),
            async_scheduling: Some(asynchronous),
            ..VllmSpec::default()
        };
        let workload = roofcast::workload::Workload {
            adapters: Some(Adapters { count, share: 0.7, skew: 1.0 }),
            ..workload
        };
        let engine = EngineSpec { vllm, num_gpu_blocks: Some(400), ..EngineSpec::default() };
        let deployment = deployment(RequestedParallelism::default(), engine);
        let used = holds(&deployment, &workload, FleetSpec::default()).adapters.unwrap();
        prop_assert!(used.reads <= used.loads);
        prop_assert!(count > most || used.loads <= count);
    }
}
