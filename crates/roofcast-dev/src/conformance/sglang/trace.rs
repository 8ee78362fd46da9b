//! The trace file: settings, requests and recorded iterations.

use super::super::request::{self, MOST};
use roofcast_ask::spec::RetractionPolicy;
use roofcast_ask::spec::SchedulePolicy;
use roofcast_ask::spec::WritePolicy;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::scheduler::sglang::{HiCache, Rules, ServerArgs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A parsed trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Name of the scenario.
    pub(crate) name: String,
    /// Version of SGLang that made the decisions.
    pub(crate) version: String,
    /// Settings of the server.
    pub(crate) config: ServerArgs,
    /// Number of iterations until a copy to the host is reported, and until a load from the host is.
    pub(crate) delays: [u64; 2],
    /// Requests in order of arrival.
    pub requests: Vec<RecordedRequest>,
    /// Recorded iterations, in order.
    pub(crate) steps: Vec<RecordedStep>,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// Name of the request.
    pub(crate) id: String,
    /// Index of the iteration before which the request arrives.
    pub(crate) arrival_step: u64,
    /// The client's bound on output tokens.
    pub(crate) max_new_tokens: u64,
    /// Number of tokens that the request generates.
    pub(crate) output_len: u64,
    /// True if the request generates up to its bound (`ignore_eos`).
    pub(crate) ignore_eos: bool,
    /// Priority of the request.
    pub(crate) priority: Option<i64>,
    /// Parts of the prompt: segment, first token within the segment, length in tokens.
    pub(crate) prompt: Vec<(String, u64, u64)>,
    /// Name of the segment that holds the generated tokens.
    pub(crate) output_segment: String,
}

/// One recorded iteration of the loop. A field that the file omits has its value of the iteration before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedStep {
    /// Index of the iteration.
    pub(crate) step: u64,
    /// Requests queued before the decision.
    #[serde(default)]
    pub(crate) arrived: Vec<String>,
    /// Kind of batch.
    pub(crate) kind: String,
    /// The queue after sorting and before admission.
    #[serde(default)]
    pub(crate) sorted: Vec<String>,
    /// Requests of the batch with the tokens computed for each, in the order of the batch.
    pub(crate) scheduled: Vec<(String, u64)>,
    /// Cached tokens found at admission, by request.
    #[serde(default)]
    pub(crate) cached: BTreeMap<String, u64>,
    /// Request whose prompt is computed only in part.
    #[serde(default)]
    pub(crate) chunked: Option<String>,
    /// Requests preempted for a higher priority, in order.
    #[serde(default)]
    pub(crate) preempted: Vec<String>,
    /// Requests retracted for lack of memory, in order.
    #[serde(default)]
    pub(crate) retracted: Vec<String>,
    /// Requests aborted because the batch had no other request to retract and memory was still missing.
    #[serde(default)]
    pub(crate) aborted: Vec<String>,
    /// The running batch, in order.
    pub(crate) running: Vec<String>,
    /// True if the batch accepts no more requests.
    #[serde(default)]
    pub(crate) full: bool,
    /// The queue after the decision.
    pub(crate) waiting: Vec<String>,
    /// The new-token ratio before the decision.
    pub(crate) ratio: f64,
    /// The new-token ratio after the decision.
    pub(crate) ratio_after: Option<f64>,
    /// The new-token ratio at the end of the iteration.
    pub(crate) ratio_end: Option<f64>,
    /// Available and evictable tokens of the KV cache after the decision.
    pub(crate) kv: [u64; 2],
    /// Available and evictable tokens of the KV cache at the end of the iteration.
    pub(crate) kv_end: Option<[u64; 2]>,
    /// Requests that finished with the results of this iteration, in order.
    #[serde(default)]
    pub(crate) finished: Vec<String>,
    /// Events of the host tier, if there is one.
    #[serde(flatten)]
    pub(crate) tier: TierStep,
}

/// Events of the host tier in one iteration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TierStep {
    /// Requests that load from the host: name, tokens on the device, tokens loaded.
    pub(crate) loads: Vec<(String, u64, u64)>,
    /// Requests whose tokens on the host were not loaded: name, tokens.
    pub(crate) load_failed: Vec<(String, u64)>,
    /// Nodes of the radix tree copied to the host: number, tokens before the node on its path, tokens of the node.
    pub(crate) stores: Vec<[u64; 3]>,
    /// Numbers of the nodes whose copies were reported as complete.
    pub(crate) stored: Vec<u64>,
    /// Nodes for which the host had no room: tokens before the node on its path, tokens of the node.
    pub(crate) store_failed: Vec<[u64; 2]>,
    /// Tokens freed on the host.
    pub(crate) host_evicted: u64,
    /// Tokens freed on the device.
    pub(crate) device_evicted: u64,
    /// Tokens freed on the device without a copy on the host, so that their KV is lost.
    pub(crate) dropped: u64,
    /// State of the host tier after the decision: free tokens, copies to the host in flight, loads in flight.
    pub(crate) host: Option<[u64; 3]>,
    /// State of the host tier at the end of the iteration, in the order of `host`.
    pub(crate) host_end: Option<[u64; 3]>,
    /// Tokens on the device that are locked after the decision.
    pub(crate) protected: Option<u64>,
}

impl super::super::Recorded for RecordedStep {
    fn step(&self) -> u64 {
        self.step
    }

    fn differing(&self, other: &RecordedStep) -> Vec<&'static str> {
        let fields = [
            ("arrived", self.arrived == other.arrived),
            ("kind", self.kind == other.kind),
            ("sorted", self.sorted == other.sorted),
            ("scheduled", self.scheduled == other.scheduled),
            ("cached", self.cached == other.cached),
            ("chunked", self.chunked == other.chunked),
            ("preempted", self.preempted == other.preempted),
            ("retracted", self.retracted == other.retracted),
            ("aborted", self.aborted == other.aborted),
            ("running", self.running == other.running),
            ("full", self.full == other.full),
            ("waiting", self.waiting == other.waiting),
            ("ratio", self.ratio == other.ratio),
            ("ratio_after", self.ratio_after == other.ratio_after),
            ("ratio_end", self.ratio_end == other.ratio_end),
            ("kv", self.kv == other.kv),
            ("kv_end", self.kv_end == other.kv_end),
            ("finished", self.finished == other.finished),
            ("loads", self.tier.loads == other.tier.loads),
            ("load_failed", self.tier.load_failed == other.tier.load_failed),
            ("stores", self.tier.stores == other.tier.stores),
            ("stored", self.tier.stored == other.tier.stored),
            ("store_failed", self.tier.store_failed == other.tier.store_failed),
            ("host_evicted", self.tier.host_evicted == other.tier.host_evicted),
            ("device_evicted", self.tier.device_evicted == other.tier.device_evicted),
            ("dropped", self.tier.dropped == other.tier.dropped),
            ("host", self.tier.host == other.tier.host),
            ("host_end", self.tier.host_end == other.tier.host_end),
            ("protected", self.tier.protected == other.tier.protected),
        ];
        fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

#[derive(Deserialize)]
struct File {
    name: String,
    meta: Meta,
    config: Settings,
    requests: Vec<RequestLine>,
    steps: Vec<RecordedStep>,
}

#[derive(Deserialize)]
struct Meta {
    sglang_version: String,
}

#[derive(Deserialize)]
struct Settings {
    schedule_policy: String,
    schedule_conservativeness: f64,
    max_total_tokens: u64,
    max_running_requests: u64,
    max_prefill_tokens: u64,
    chunked_prefill_size: i64,
    enable_mixed_chunk: bool,
    page_size: u64,
    disable_radix_cache: bool,
    enable_priority_scheduling: bool,
    schedule_low_priority_values_first: bool,
    priority_scheduling_preemption_threshold: i64,
    disable_priority_preemption: bool,
    retraction_policy: RetractionPolicy,
    prefill_max_requests: Option<u64>,
    disable_overlap_schedule: bool,
    radix_eviction_policy: String,
    hicache_ratio: Option<f64>,
    #[serde(default)]
    hicache_write_policy: WritePolicy,
    load_delay: Option<u64>,
    store_delay: Option<u64>,
}

#[derive(Deserialize)]
struct RequestLine {
    id: String,
    arrival_step: u64,
    prompt_len: u64,
    output_len: u64,
    max_new_tokens: u64,
    ignore_eos: bool,
    priority: Option<i64>,
    prompt: Vec<(String, u64, u64)>,
}

pub(in crate::conformance) fn parse(place: &str, text: &str) -> Result<Trace> {
    let mut file: File = super::super::json(place, text)?;
    let config = settings(place, &file.config, &file.meta.sglang_version)?;
    let requests = file.requests.into_iter().map(|r| parsed(place, r)).collect::<Result<Vec<_>>>()?;
    request::in_order(place, requests.iter().map(|r| r.arrival_step))?;
    for step in &mut file.steps {
        let after = *step.ratio_after.get_or_insert(step.ratio);
        step.ratio_end.get_or_insert(after);
        step.kv_end.get_or_insert(step.kv);
        step.tier.host_end = step.tier.host_end.or(step.tier.host);
    }
    let delays = [file.config.store_delay, file.config.load_delay].map(|delay| delay.unwrap_or(0));
    let Meta { sglang_version: version } = file.meta;
    Ok(Trace { name: file.name, version, config, delays, requests, steps: file.steps })
}

fn settings(place: &str, s: &Settings, version: &str) -> Result<ServerArgs> {
    let refused = |field: &str, found: String, accepted: &str| {
        Err(Error::field(place, format!("config.{field}"), found, accepted.to_owned()))
    };
    let chunked = u64::try_from(s.chunked_prefill_size).ok().filter(|size| *size > 0);
    let bounds = [
        ("max_total_tokens", s.max_total_tokens),
        ("max_running_requests", s.max_running_requests),
        ("max_prefill_tokens", s.max_prefill_tokens),
        ("chunked_prefill_size", chunked.unwrap_or(1)),
        ("prefill_max_requests", s.prefill_max_requests.unwrap_or(1)),
    ];
    for (field, value) in bounds {
        if value == 0 || value > 1 << 30 {
            return refused(field, value.to_string(), "1 to 2^30");
        }
    }
    if s.page_size == 0 || s.page_size > 1 << 16 {
        return refused("page_size", s.page_size.to_string(), "1 to 65536");
    }
    if !(0.0..=1e3).contains(&s.schedule_conservativeness) {
        return refused("schedule_conservativeness", s.schedule_conservativeness.to_string(), "0 to 1000");
    }
    if let Some(ratio) = s.hicache_ratio.filter(|ratio| !(0.0..=1e3).contains(ratio)) {
        return refused("hicache_ratio", ratio.to_string(), "0 to 1000");
    }
    if s.radix_eviction_policy != "lru" {
        return refused("radix_eviction_policy", format!("{:?}", s.radix_eviction_policy), "lru");
    }
    let schedule_policy = match s.schedule_policy.as_str() {
        "fcfs" => SchedulePolicy::Fcfs,
        "lpm" => SchedulePolicy::Lpm,
        other => return refused("schedule_policy", format!("{other:?}"), "fcfs, lpm"),
    };
    let config = ServerArgs {
        schedule_policy,
        schedule_conservativeness: s.schedule_conservativeness,
        max_total_tokens: s.max_total_tokens,
        max_running_requests: s.max_running_requests,
        max_prefill_tokens: s.max_prefill_tokens,
        chunked_prefill_size: chunked,
        enable_mixed_chunk: s.enable_mixed_chunk && chunked.is_some(),
        page_size: s.page_size,
        disable_radix_cache: s.disable_radix_cache,
        enable_priority_scheduling: s.enable_priority_scheduling,
        schedule_low_priority_values_first: s.schedule_low_priority_values_first,
        priority_scheduling_preemption_threshold: s.priority_scheduling_preemption_threshold,
        disable_priority_preemption: s.disable_priority_preemption,
        retraction_policy: s.retraction_policy,
        prefill_max_requests: s.prefill_max_requests,
        disable_overlap_schedule: s.disable_overlap_schedule,
        hicache: s
            .hicache_ratio
            .map(|ratio| HiCache::of_ratio(ratio, s.max_total_tokens, s.page_size, s.hicache_write_policy)),
        rules: Rules::of(Some(version)),
        records: true,
    };
    match config.check() {
        Some((field, found, accepted)) => refused(field, found, accepted),
        None => Ok(config),
    }
}

fn parsed(place: &str, r: RequestLine) -> Result<RecordedRequest> {
    request::check(place, &r.id, r.arrival_step, (r.prompt_len, &r.prompt))?;
    if r.output_len == 0 || r.output_len > r.max_new_tokens || r.max_new_tokens > MOST {
        let lengths = format!("output_len {}, max_new_tokens {}", r.output_len, r.max_new_tokens);
        let accepted = format!("1 to max_new_tokens, and that at most {MOST}");
        return Err(Error::field(place, format!("requests.{}", r.id), lengths, accepted));
    }
    let output_segment = format!("out:{}", r.id);
    Ok(RecordedRequest {
        id: r.id,
        arrival_step: r.arrival_step,
        max_new_tokens: r.max_new_tokens,
        output_len: r.output_len,
        ignore_eos: r.ignore_eos,
        priority: r.priority,
        prompt: r.prompt,
        output_segment,
    })
}
