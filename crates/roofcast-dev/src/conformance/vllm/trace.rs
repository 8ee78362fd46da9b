//! The trace file: requests, settings and recorded steps.

use super::super::request::{self, MOST};
use roofcast_ask::spec::EvictionPolicy;
use roofcast_facts::error::{Error, Result};
use roofcast_sim::scheduler::vllm::{OffloadConfig, Rules, SchedulerConfig, SchedulingPolicy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Largest accepted number of groups of layers.
const MOST_GROUPS: usize = 64;

/// A parsed trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Name of the scenario.
    pub(crate) name: String,
    /// Version of the engine that made the decisions.
    pub(crate) version: String,
    /// Settings of the scheduler.
    pub(crate) config: SchedulerConfig,
    /// Most LoRA adapters that one step may use.
    pub(crate) max_loras: usize,
    /// Requests in order of arrival.
    pub requests: Vec<RecordedRequest>,
    /// Recorded steps, in order.
    pub(crate) steps: Vec<RecordedStep>,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// Name of the request.
    pub(crate) id: String,
    /// Index of the step before which the request arrives.
    pub(crate) arrival_step: u64,
    /// Number of tokens to generate.
    pub(crate) output_len: u64,
    /// Priority; smaller is served first.
    pub(crate) priority: i64,
    /// LoRA adapter of the request; 0 without one.
    pub(crate) lora: u32,
    /// Number of accepted drafts in each step that verifies drafts, in order.
    pub(crate) accept: Vec<u64>,
    /// Parts of the prompt: segment, first token within the segment, length in tokens.
    pub(crate) prompt: Vec<(String, u64, u64)>,
    /// Name of the segment that holds the generated tokens.
    pub(crate) output_segment: String,
}

/// One recorded step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedStep {
    /// Index of the `schedule()` call.
    pub(crate) step: u64,
    /// Requests added just before the call.
    pub(crate) arrived: Vec<String>,
    /// Scheduled requests with the tokens computed for each, in the scheduler's order.
    pub(crate) scheduled: Vec<(String, u64)>,
    /// Requests scheduled for the first time.
    pub(crate) new: Vec<String>,
    /// Requests scheduled again after a preemption.
    pub(crate) resumed: Vec<String>,
    /// Preempted requests, in order.
    pub(crate) preempted: Vec<String>,
    /// Tokens found in the prefix cache, by request.
    pub(crate) cached: BTreeMap<String, u64>,
    /// Free blocks after `schedule()`.
    pub(crate) free_blocks: u64,
    /// Running requests in order, or their number.
    pub(crate) running: RecordedQueue,
    /// Waiting requests in order, or their number.
    pub(crate) waiting: RecordedQueue,
    /// Number of drafts scheduled with each request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) drafts: BTreeMap<String, u64>,
    /// Number of sampled tokens, for requests that sampled more than one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sampled: BTreeMap<String, u64>,
    /// Requests whose last token was sampled in this step.
    pub(crate) finished: Vec<String>,
    /// Free blocks after the results of the step are applied.
    pub(crate) free_blocks_end: u64,
    /// Events of the host tier, if there is one.
    #[serde(flatten)]
    pub(crate) tier: TierStep,
}

/// Events of the host tier in one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TierStep {
    /// Loads from the host: job, request, tokens on the device, tokens to load, 1 if synchronous.
    pub(crate) loads: Vec<Vec<Value>>,
    /// Copies to the host: job, request, chunks as numbers of their contents.
    pub(crate) stores: Vec<(u64, String, Vec<Vec<u64>>)>,
    /// Numbers of the contents that were evicted from the host, in order.
    pub(crate) evicted: Vec<u64>,
    /// Requests whose chunks did not fit on the host.
    pub(crate) store_refused: Vec<String>,
    /// Requests that the connector postponed to a later step.
    pub(crate) later: Vec<String>,
    /// Jobs that the worker must finish before the step runs.
    pub(crate) flush: Vec<u64>,
    /// Requests that wait for a load, after the decision.
    pub(crate) loading: Vec<String>,
    /// Requests that wait while they hold blocks.
    pub(crate) kv_waiting: Vec<String>,
    /// Chunks on the host after the decision: resident, idle, and being copied there.
    pub(crate) host: Option<[u64; 3]>,
    /// Chunks on the host at the end of the step, in the order of `host`.
    pub(crate) host_end: Option<[u64; 3]>,
    /// Jobs that were reported as done with the output of this step; the replay takes them from the trace.
    pub(crate) done: Vec<u64>,
}

/// A recorded queue, by names or by length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum RecordedQueue {
    /// Number of requests.
    Count(u64),
    /// Names of the requests, in order.
    Ids(Vec<String>),
}

impl RecordedStep {
    /// True for a step without any event; traces omit such steps.
    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
            && self.scheduled.is_empty()
            && self.preempted.is_empty()
            && self.finished.is_empty()
            && [&self.tier.loading, &self.tier.later].into_iter().all(Vec::is_empty)
            && self.tier.stores.is_empty()
            && self.tier.done.is_empty()
    }
}

impl super::super::Recorded for RecordedStep {
    fn step(&self) -> u64 {
        self.step
    }

    fn differing(&self, other: &RecordedStep) -> Vec<&'static str> {
        let fields = [
            ("arrived", self.arrived == other.arrived),
            ("scheduled", self.scheduled == other.scheduled),
            ("new", self.new == other.new),
            ("resumed", self.resumed == other.resumed),
            ("preempted", self.preempted == other.preempted),
            ("cached", self.cached == other.cached),
            ("free_blocks", self.free_blocks == other.free_blocks),
            ("running", self.running == other.running),
            ("waiting", self.waiting == other.waiting),
            ("drafts", self.drafts == other.drafts),
            ("sampled", self.sampled == other.sampled),
            ("finished", self.finished == other.finished),
            ("free_blocks_end", self.free_blocks_end == other.free_blocks_end),
            ("loads", self.tier.loads == other.tier.loads),
            ("stores", self.tier.stores == other.tier.stores),
            ("evicted", self.tier.evicted == other.tier.evicted),
            ("store_refused", self.tier.store_refused == other.tier.store_refused),
            ("later", self.tier.later == other.tier.later),
            ("flush", self.tier.flush == other.tier.flush),
            ("loading", self.tier.loading == other.tier.loading),
            ("kv_waiting", self.tier.kv_waiting == other.tier.kv_waiting),
            ("host", self.tier.host == other.tier.host),
            ("host_end", self.tier.host_end == other.tier.host_end),
            ("done", self.tier.done == other.tier.done),
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
    vllm_version: String,
    scheduler: String,
}

#[derive(Deserialize)]
struct Settings {
    block_size: u64,
    num_gpu_blocks: u32,
    max_num_seqs: u64,
    max_num_batched_tokens: u64,
    max_model_len: u64,
    enable_chunked_prefill: bool,
    enable_prefix_caching: bool,
    long_prefill_token_threshold: u64,
    #[serde(default)]
    long_prefill_token_threshold_adaptive: bool,
    policy: String,
    scheduler_reserve_full_isl: bool,
    watermark: f64,
    max_num_active_seqs: Option<u64>,
    prefill_schedule_interval: Option<u64>,
    max_loras: Option<usize>,
    kv_groups: Option<Vec<LayerGroup>>,
    #[serde(default)]
    spec_tokens: u64,
    #[serde(default)]
    spec_method: Method,
    offload: Option<OffloadLine>,
}

/// Settings of the host tier, by vLLM's names.
#[derive(Deserialize, Clone, Copy)]
struct OffloadLine {
    chunks: u64,
    blocks_per_chunk: u64,
    policy: EvictionPolicy,
    store_threshold: u32,
    offload_prompt_only: bool,
    sync_load_budget_tokens: u64,
}

/// A group of layers with separate blocks.
#[derive(Deserialize)]
struct LayerGroup {
    kind: GroupKind,
    sliding_window: Option<u64>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum GroupKind {
    Full,
    SlidingWindow,
}

/// Source of drafts.
#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Method {
    #[default]
    Ngram,
    Eagle,
}

#[derive(Deserialize)]
struct RequestLine {
    id: String,
    arrival_step: u64,
    prompt_len: u64,
    output_len: u64,
    priority: i64,
    prompt: Vec<(String, u64, u64)>,
    #[serde(default)]
    lora: u32,
    #[serde(default)]
    accept: Vec<u64>,
}

pub(in crate::conformance) fn parse(place: &str, text: &str) -> Result<Trace> {
    let file: File = super::super::json(place, text)?;
    let async_scheduling = match file.meta.scheduler.as_str() {
        "Scheduler" => false,
        "AsyncScheduler" => true,
        other => {
            return Err(Error::field(
                place,
                "meta.scheduler",
                format!("{other:?}"),
                "Scheduler, AsyncScheduler",
            ));
        }
    };
    let mut config = settings(place, &file.config, async_scheduling, &file.meta.vllm_version)?;
    config.offload = file.config.offload.map(|line| offload(place, line, &config)).transpose()?;
    let requests = file.requests.into_iter().map(|r| parsed(place, r)).collect::<Result<Vec<_>>>()?;
    request::in_order(place, requests.iter().map(|r| r.arrival_step))?;
    let mut steps = file.steps;
    for step in &mut steps {
        step.tier.host_end = step.tier.host_end.or(step.tier.host);
    }
    Ok(Trace {
        name: file.name,
        version: file.meta.vllm_version,
        config,
        max_loras: file.config.max_loras.unwrap_or(usize::MAX),
        requests,
        steps,
    })
}

fn settings(place: &str, s: &Settings, async_scheduling: bool, version: &str) -> Result<SchedulerConfig> {
    let bounds = [
        ("block_size", s.block_size, 1 << 20),
        ("num_gpu_blocks", s.num_gpu_blocks.into(), 1 << 26),
        ("max_num_seqs", s.max_num_seqs, 1 << 30),
        ("max_num_batched_tokens", s.max_num_batched_tokens, 1 << 40),
        ("max_model_len", s.max_model_len, 1 << 40),
        ("prefill_schedule_interval", s.prefill_schedule_interval.unwrap_or(1), 1 << 30),
        ("spec_tokens", s.spec_tokens.max(1), 1 << 10),
    ];
    for (field, value, most) in bounds {
        if value == 0 || value > most {
            return Err(Error::field(place, format!("config.{field}"), value, format!("1 to {most}")));
        }
    }
    if !(0.0..=1.0).contains(&s.watermark) {
        return Err(Error::field(place, "config.watermark", s.watermark, "0 to 1"));
    }
    let policy = match s.policy.as_str() {
        "fcfs" => SchedulingPolicy::Fcfs,
        "priority" => SchedulingPolicy::Priority,
        other => return Err(Error::field(place, "config.policy", format!("{other:?}"), "fcfs, priority")),
    };
    Ok(SchedulerConfig {
        block_size: s.block_size,
        num_gpu_blocks: s.num_gpu_blocks,
        max_num_seqs: s.max_num_seqs,
        max_num_active_seqs: s.max_num_active_seqs,
        max_num_batched_tokens: s.max_num_batched_tokens,
        max_model_len: s.max_model_len,
        enable_chunked_prefill: s.enable_chunked_prefill,
        enable_prefix_caching: s.enable_prefix_caching,
        long_prefill_token_threshold: s.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive: s.long_prefill_token_threshold_adaptive,
        policy,
        scheduler_reserve_full_isl: s.scheduler_reserve_full_isl,
        watermark: s.watermark,
        prefill_schedule_interval: s.prefill_schedule_interval.unwrap_or(1),
        async_scheduling,
        num_speculative_tokens: s.spec_tokens,
        num_lookahead_tokens: if s.spec_method == Method::Eagle { s.spec_tokens } else { 0 },
        eagle: s.spec_method == Method::Eagle,
        windows: windows(place, s.kv_groups.as_deref())?,
        offload: None,
        rules: Rules::of(Some(version)),
    })
}

/// Reads the settings of a trace's host tier.
fn offload(place: &str, line: OffloadLine, config: &SchedulerConfig) -> Result<OffloadConfig> {
    let refused = |field: &str, found: String, accepted: &str| {
        Err(Error::field(place, format!("config.{field}"), found, accepted.to_owned()))
    };
    for (field, value) in [("chunks", line.chunks), ("blocks_per_chunk", line.blocks_per_chunk)] {
        if value == 0 || value > 1 << 26 {
            return refused(&format!("offload.{field}"), value.to_string(), "1 to 2^26");
        }
    }
    if config.policy != SchedulingPolicy::Fcfs || config.num_speculative_tokens > 0 {
        let accepted = "fcfs, and no drafts, with a host tier";
        return refused("policy", "priority, or drafts".into(), accepted);
    }
    Ok(OffloadConfig {
        storage_chunks: None,
        chunks: line.chunks as usize,
        blocks_per_chunk: line.blocks_per_chunk as usize,
        eviction_policy: line.policy,
        store_threshold: line.store_threshold,
        offload_prompt_only: line.offload_prompt_only,
        sync_load_budget_tokens: line.sync_load_budget_tokens,
    })
}

/// The windows in tokens of a trace's groups of layers; one group without a window by default.
fn windows(place: &str, groups: Option<&[LayerGroup]>) -> Result<Vec<Option<u64>>> {
    let Some(groups) = groups else { return Ok(vec![None]) };
    if groups.is_empty() || groups.len() > MOST_GROUPS {
        let accepted = format!("1 to {MOST_GROUPS} groups");
        return Err(Error::field(place, "config.kv_groups", groups.len(), accepted));
    }
    let window = |group: &LayerGroup| match (&group.kind, group.sliding_window) {
        (GroupKind::Full, _) => Ok(None),
        (GroupKind::SlidingWindow, Some(window)) if (1..=MOST).contains(&window) => Ok(Some(window)),
        (GroupKind::SlidingWindow, found) => {
            let written = found.map_or("none".into(), |window| window.to_string());
            Err(Error::field(place, "config.kv_groups.sliding_window", written, format!("1 to {MOST}")))
        }
    };
    groups.iter().map(window).collect()
}

fn parsed(place: &str, r: RequestLine) -> Result<RecordedRequest> {
    request::check(place, &r.id, r.arrival_step, (r.prompt_len, &r.prompt))?;
    if r.output_len == 0 || r.output_len > MOST {
        let length = format!("output_len {}", r.output_len);
        return Err(Error::field(place, format!("requests.{}", r.id), length, format!("1 to {MOST}")));
    }
    let output_segment = format!("out:{}", r.id);
    Ok(RecordedRequest {
        id: r.id,
        arrival_step: r.arrival_step,
        output_len: r.output_len,
        priority: r.priority,
        lora: r.lora,
        accept: r.accept,
        prompt: r.prompt,
        output_segment,
    })
}
