//! Settings by vLLM's names.

/// Settings of a scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// Tokens of a KV block.
    pub block_size: u64,
    /// Number of blocks, the reserved null block included.
    pub num_gpu_blocks: u32,
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// A second bound on requests that run at one time.
    pub max_num_active_seqs: Option<u64>,
    /// Most tokens of one step.
    pub max_num_batched_tokens: u64,
    /// Most tokens of a request, prompt and output.
    pub max_model_len: u64,
    /// True if a prompt may be split over steps.
    pub enable_chunked_prefill: bool,
    /// True if blocks are found again by their content.
    pub enable_prefix_caching: bool,
    /// Most tokens of one request in a step while others wait; 0 means no bound.
    pub long_prefill_token_threshold: u64,
    /// True if the threshold grows as fewer requests share the budget.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Order of the queue.
    pub policy: SchedulingPolicy,
    /// True if admission needs room for the whole known sequence, not only for its first chunk.
    pub scheduler_reserve_full_isl: bool,
    /// Fraction of the blocks kept free when admitting while others run.
    pub watermark: f64,
    /// Interval of steps that may compute prompts while others decode; 1 means every step. vLLM 0.32 applies it in
    /// data-parallel engines only (`DPEngineCoreProc` of `v1/engine/core.py`).
    pub prefill_schedule_interval: u64,
    /// True for asynchronous scheduling, with two batches in flight: a sampled token is counted before its value is
    /// known.
    pub async_scheduling: bool,
    /// Tokens drafted after each sampled one; with asynchronous scheduling 0.
    pub num_speculative_tokens: u64,
    /// Tokens beyond a step's that a running request has room for: the drafts of the next step.
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
