//! Settings by vLLM's names.

/// Settings of a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// Tokens of a KV block.
    pub block_size: u64,
    /// Blocks, one reserved null block among them.
    pub num_gpu_blocks: u32,
    /// Requests that run at once.
    pub max_num_seqs: u64,
    /// Requests that run at once, a second bound.
    pub max_num_active_seqs: Option<u64>,
    /// Tokens of one step.
    pub max_num_batched_tokens: u64,
    /// Tokens of a request, prompt and output.
    pub max_model_len: u64,
    /// Whether a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// Whether blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Most tokens of one request in a step while others wait; 0 is no bound.
    pub long_prefill_token_threshold: u64,
    /// The threshold grows as fewer requests share the budget.
    pub long_prefill_token_threshold_adaptive: bool,
    /// The order of the queue.
    pub policy: SchedulingPolicy,
    /// Admission needs room for the whole known sequence, not for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Share of the blocks kept free when admitting beside running requests.
    pub watermark: f64,
    /// Beside decodes prompts are computed in every so many steps; 1 is in each. vLLM 0.32 heeds it in data-parallel
    /// engines alone (`DPEngineCoreProc` of `v1/engine/core.py`).
    pub prefill_schedule_interval: u64,
    /// Two batches in flight: a sampled token is known to exist before it is known.
    pub async_scheduling: bool,
    /// Tokens that a draft proposes after each that is sampled; with asynchronous scheduling none.
    pub num_speculative_tokens: u64,
    /// Tokens beyond those of a step that a running request has room for: those that a model drafts next.
    pub num_lookahead_tokens: u64,
}

/// The order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// First come, first served; the last admitted is preempted.
    Fcfs,
    /// Smaller value first, ties by arrival; the largest is preempted.
    Priority,
}
