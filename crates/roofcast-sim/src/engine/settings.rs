//! Conversion of a spec's engine keys to an engine's settings.
//!
//! Knows: the KV cache that fits memory, the defaults of each scheduler, and the settings that each scheduler refuses;
//! the latter two are in the [`Profile`] of the scheduler. Operations after this conversion cannot fail.

use crate::kv_cache::slots::{Rewinding, SlotCaching};
use crate::scheduler::config::{EngineConfig, Order, Preemption, PrefixCaching, RankSettings, Reservation};
use crate::scheduler::state::polling::PollingConfig;
use crate::scheduler::{Policy, vllm};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::engine_settings::{EngineSettings, OffloadSettings, Own, Profile};
use roofcast_ask::kv_cache::groups::Groups;
use roofcast_ask::kv_cache::tier::HostTier;
use roofcast_ask::spec::{KvLayout, PreemptionMode, QueuePolicy, ReservationKind, SchedulerKind};
use roofcast_cost::memory::{self, Memory, layer_groups};
use roofcast_facts::error::{Error, Result};

/// Cells of a server whose cache is sized by blocks or bytes.
const UNBOUNDED: u64 = 1 << 40;
/// Tokens of a prompt over which the bytes of a kept token are a mean.
const MANY_TOKENS: u64 = 4096;

impl EngineConfig {
    /// The settings of one replica of `deployment`, or of each of its data-parallel ranks if these are engines, and the
    /// policy. `context` is the mean length of requests in tokens; `shared` is true if prompts have tokens in common.
    pub fn resolve(deployment: &Deployment, context: u64, shared: bool) -> Result<(EngineConfig, Policy)> {
        let by_block = runs_by_block(&deployment.engine);
        let balance = Profile::of(deployment.engine.scheduler).balance;
        let count = deployment.parallelism.attention_dp;
        let ranks = balance.filter(|_| count > 1 && deployment.model.is_moe());
        let ranks = ranks.map(|balance| RankSettings { count, balance });
        EngineConfig::resolve_as(deployment, (context, shared), by_block, ranks)
    }

    /// The settings of SGLang's scheduler for a replica whose data-parallel ranks are scheduled as one.
    pub(super) fn resolve_as_one(deployment: &Deployment, context: u64) -> Result<EngineConfig> {
        let by_block = runs_by_block(&deployment.engine);
        Ok(EngineConfig::resolve_as(deployment, (context, true), by_block, None)?.0)
    }

    /// The settings of vLLM's own scheduler, which identifies every block, for requests that may have any tokens in
    /// common, and for a replica whose data-parallel ranks are scheduled as one; other schedulers are refused.
    pub(crate) fn resolve_by_block(
        deployment: &Deployment,
        context: u64,
    ) -> Result<(EngineConfig, vllm::SchedulerConfig)> {
        let scheduler = deployment.engine.scheduler;
        let (config, _) = EngineConfig::resolve_as(deployment, (context, true), true, None)?;
        match &config.by_block {
            Some(settings) if scheduler == SchedulerKind::Vllm => Ok((config.clone(), settings.clone())),
            _ => Err(Error::field(
                "engine",
                "scheduler",
                name(scheduler),
                "vllm or sglang, which can be driven request by request",
            )),
        }
    }

    fn resolve_as(
        deployment: &Deployment,
        (context, shared): (u64, bool),
        by_block: bool,
        ranks: Option<RankSettings>,
    ) -> Result<(EngineConfig, Policy)> {
        let spec = &deployment.engine;
        let engine_keys = spec.own();
        let profile = Profile::of(spec.scheduler);
        let block_size = deployment.engine.block_size;
        let prefixes = prefixes(spec, &profile, shared);
        let counted = profile.frees_windows && prefixes == PrefixCaching::Unknown && !by_block;
        let memory = Memory::of(deployment);
        let pool = memory::pool(deployment);
        let (groups, room) = groups(deployment, &memory, counted, context.max(1));
        let engines = ranks.map_or(1, |ranks| ranks.count);
        memory.starts()?;
        let blocks = usable_blocks(spec, &profile, room / engines)?;
        let kv_tokens = groups.longest(blocks);
        let longest = deployment.longest().unwrap_or(u64::MAX).min(kv_tokens);
        let max_num_seqs = seats(deployment, &memory, &profile, engines)?;
        let divided = profile.has_slots && spec.max_model_len.is_none();
        let of_slot = if divided { longest.min(kv_tokens / max_num_seqs) } else { longest };
        let max_model_len = pool.map_or(of_slot, |pool| pool.slot_context);
        // Ranks that are scheduled as one; each engine has one rank if ranks are engines.
        let attention_dp = deployment.parallelism.attention_dp / engines;
        let budget = budget(deployment, &profile, engines);
        let max_num_seqs = match profile.bounds_sequences {
            true => within_budget(spec, max_num_seqs, budget)?.min(active_seqs(spec, attention_dp)),
            false => max_num_seqs,
        };
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let mut config = EngineConfig {
            images: None,
            blocks,
            groups,
            block_size: narrow(block_size),
            max_num_seqs,
            max_num_batched_tokens: narrow(budget),
            max_model_len: narrow(max_model_len),
            enable_chunked_prefill: chunks(spec, &profile),
            scheduler_reserve_full_isl: spec.scheduler_reserve_full_isl,
            prefixes,
            slots: (prefixes == PrefixCaching::Slots).then(|| slot_caching(deployment, max_num_seqs)),
            watermark_blocks: (spec.watermark * (blocks + profile.null_blocks) as f64) as u64,
            order: if spec.policy == QueuePolicy::Fcfs { profile.order } else { Order::Key },
            polling: polling(spec, budget, attention_dp),
            ahead: profile.decides_ahead && spec.is_in_order() && spec.overlaps(),
            attention_dp,
            ranks,
            reservation: match engine_keys {
                Own::Reserving(kind) => reserved(*kind),
                _ if profile.has_slots && pool.is_some_and(|pool| pool.unified) => Reservation::Grow,
                _ => profile.reservation,
            },
            preemption: match engine_keys {
                Own::VllmV0(PreemptionMode::Swap) => Preemption::Swap,
                _ => Preemption::Recompute,
            },
            contiguous: profile.reserves && spec.kv_layout.is_none_or(|l| l == KvLayout::Contiguous),
            layout: spec.kv_layout,
            swap_tokens: swap_tokens(deployment, spec, context),
            host: memory::host_tier(deployment, blocks * block_size * engines)?
                .map(|host| host.of_rank(engines, block_size)),
            scheduler: spec.scheduler,
            queue: spec.policy,
            cost: spec.cost,
            by_block: None,
            counts: true,
            hands_over: false,
        };
        check(spec, &profile, &config)?;
        config.counts = !by_block;
        let alike = spec.scheduler == SchedulerKind::Vllm && config.is_plain();
        config.by_block = (by_block || alike).then(|| vllm_settings(&config, spec));
        Ok((config, Policy::of(spec.scheduler)))
    }
}

/// Number of sequences that one of `engines` engines of a replica runs at once: as many as the spec or the scheduler
/// says, or fewer if its pool of recurrent states holds fewer.
fn seats(deployment: &Deployment, memory: &Memory, profile: &Profile, engines: u64) -> Result<u64> {
    let wanted_seats = match (deployment.engine.requested.max_num_seqs, profile.max_num_seqs) {
        (None, Some(own)) => own,
        _ => (deployment.seats() / engines).max(1),
    };
    match memory.running() {
        Some(0) => Err(Error::WillNotStart(format!(
            "{} does not start: its pool of recurrent states holds none for a running request; it would with more \
             memory, a larger mamba_full_memory_ratio or max_mamba_cache_size",
            deployment.engine.name()
        ))),
        Some(most) => Ok((most / engines).min(wanted_seats)),
        None => Ok(wanted_seats),
    }
}

/// Most sequences that vLLM schedules in one step over `ranks` data-parallel ranks.
fn active_seqs(spec: &EngineSettings, ranks: u64) -> u64 {
    let each = spec.vllm().and_then(|own| own.max_num_active_seqs);
    each.map_or(u64::MAX, |each| each.saturating_mul(ranks))
}

/// Kind of prefix cache: the kind that the spec asks for, else on if prompts have tokens in common. vLLM and SGLang
/// always look up prefixes, which matters only to preempted requests if prompts have no common tokens.
fn prefixes(spec: &EngineSettings, profile: &Profile, shared: bool) -> PrefixCaching {
    if profile.prefixes == PrefixCaching::Tree {
        return match spec.sglang() {
            Some(own) if !own.disable_radix_cache => PrefixCaching::Tree,
            _ => PrefixCaching::Unknown,
        };
    }
    let shareable = spec.kv_layout != Some(KvLayout::Vattention);
    let shares = (shared || spec.offload().is_some()) && shareable;
    if spec.enable_prefix_caching.unwrap_or(shares) { profile.prefixes } else { PrefixCaching::Unknown }
}

/// Rules by which llama.cpp's server keeps the prompts of its `count` slots.
pub(crate) fn slot_caching(deployment: &Deployment, count: u64) -> SlotCaching {
    let slots = deployment.engine.slots;
    let pool = memory::pool(deployment);
    let n_ctx = pool.map_or(UNBOUNDED, |pool| pool.cells);
    let window = deployment.model.layers.iter().filter_map(|layer| layer.mixer.window()).min();
    let recurrent = deployment.model.layers.iter().any(|layer| layer.mixer.state_bytes() > 0);
    let rewinding = match window.filter(|_| !slots.swa_full) {
        _ if recurrent => Rewinding::Never,
        Some(tokens) => {
            // Slots that share the cells of a window leave each other one window.
            let others = if slots.unified { count.saturating_sub(1) } else { 0 };
            let cells = slots.window_cells(tokens, n_ctx).saturating_sub(others * tokens);
            Rewinding::Window { tokens, cells: cells.max(tokens) }
        }
        None => Rewinding::Freely,
    };
    let bytes_per_token = memory::sequence_bytes(deployment, 0, MANY_TOKENS).as_f64() / MANY_TOKENS as f64;
    let host_tokens = match slots.cache_ram {
        ..0 => n_ctx,
        mib => (mib as f64 * f64::from(1 << 20) / bytes_per_token.max(1.0)) as u64,
    };
    SlotCaching {
        count,
        unified: slots.unified,
        similarity: slots.prompt_similarity,
        n_cache_reuse: slots.cache_reuse,
        host_tokens,
        checkpoints: slots.ctx_checkpoints,
        n_ubatch: slots.n_ubatch,
        rewinding,
    }
}

/// Groups of layers with separate blocks, and the number of blocks that fit. vLLM frees blocks outside a window; for
/// other engines, and with identified blocks, the room is computed once for requests of `context` tokens.
fn groups(deployment: &Deployment, memory: &Memory, counted: bool, context: u64) -> (Groups, u64) {
    let block = deployment.engine.block_size;
    if let Some(pool) = memory::pool(deployment) {
        let null_blocks = Profile::of(deployment.engine.scheduler).null_blocks;
        return (Groups::one(block), pool.cells.div_ceil(block) + null_blocks);
    }
    match layer_groups(deployment, block).filter(|_| counted) {
        Some((groups, bytes)) => (groups, memory.blocks(bytes)),
        None => (Groups::one(block), memory.tokens(context) / block),
    }
}

/// Number of blocks that requests can hold: vLLM reserves one block as the null block.
fn usable_blocks(spec: &EngineSettings, profile: &Profile, room: u64) -> Result<u64> {
    let reserved = profile.null_blocks;
    match spec.num_gpu_blocks {
        None if room <= reserved => Err(Error::field(
            "deployment",
            "KV cache",
            format!("{room} blocks after the weights"),
            "more memory or smaller weights (`roofcast capacity` says how much is missing), or num_gpu_blocks",
        )),
        asked => Ok(asked.unwrap_or(room).min(u64::from(u32::MAX) - 1) - reserved),
    }
}

/// True if a prompt may be split over steps.
fn chunks(spec: &EngineSettings, profile: &Profile) -> bool {
    let by_default = match spec.scheduler {
        SchedulerKind::Sglang => spec.sglang().is_some_and(|own| own.chunked_prefill_size.is_some()),
        _ => profile.enable_chunked_prefill,
    };
    spec.enable_chunked_prefill.unwrap_or(by_default)
}

/// Token budget of a step over the data-parallel ranks of one of `engines` engines: ranks have separate budgets, or
/// divide one.
fn budget(deployment: &Deployment, profile: &Profile, engines: u64) -> u64 {
    let spec = &deployment.engine;
    let engine_budget = match spec.scheduler {
        SchedulerKind::Sglang => spec.sglang().map(|own| own.step_tokens),
        _ => profile.max_num_batched_tokens,
    };
    let budget = match (spec.requested.max_num_batched_tokens, engine_budget) {
        (None, Some(engine_budget)) => engine_budget,
        _ => deployment.engine.max_num_batched_tokens,
    };
    if profile.divides_budget {
        (budget / engines).max(1)
    } else {
        budget.saturating_mul(deployment.parallelism.attention_dp / engines)
    }
}

/// The largest `max_num_seqs` that the token budget of a step can serve.
fn within_budget(spec: &EngineSettings, max_num_seqs: u64, budget: u64) -> Result<u64> {
    if max_num_seqs <= budget {
        return Ok(max_num_seqs);
    }
    match spec.requested.max_num_seqs {
        None => Ok(budget),
        Some(asked) => {
            let accepted = format!("at most max_num_batched_tokens ({budget}), as vLLM demands");
            Err(Error::field("engine", "max_num_seqs", asked, accepted))
        }
    }
}

/// The steps in which waiting requests are considered.
fn polling(spec: &EngineSettings, budget: u64, ranks: u64) -> PollingConfig {
    let tensorrt = match spec.own() {
        Own::TensorrtLlm(own) => Some(own),
        _ => None,
    };
    let balance_steps = tensorrt.and_then(|own| own.balance_steps).filter(|_| ranks > 1);
    let ratio = tensorrt.map_or(0.0, |own| own.batch_wait_max_tokens_ratio);
    PollingConfig {
        recv_interval: spec.sglang().map_or(0, |own| own.scheduler_recv_interval),
        wait_steps: tensorrt.map_or(0, |own| own.batch_wait_timeout_iters).max(balance_steps.unwrap_or(0)),
        wait_prompts: if balance_steps.is_some() { ranks } else { 0 },
        overlaps: tensorrt.is_some_and(|own| own.overlaps) && spec.is_in_order(),
        wait_tokens: (ratio * budget as f64) as u64,
    }
}

/// KV-cache tokens that fit in the swap space: `swap_space` GiB of host memory per accelerator.
fn swap_tokens(deployment: &Deployment, spec: &EngineSettings, context: u64) -> u64 {
    let gib = spec.swap_space;
    let bytes_per_token =
        memory::sequence_bytes(deployment, 0, context.max(1)).as_f64() / context.max(1) as f64;
    (gib * f64::from(1 << 30) / bytes_per_token.max(1.0)) as u64
}

/// Refuses settings that the scheduler does not support.
fn check(spec: &EngineSettings, profile: &Profile, config: &EngineConfig) -> Result<()> {
    let anywhere = vllm::Rules::of(spec.release.version.as_deref()).interval_since_prefill;
    let parallel = config.attention_dp * config.engines() > 1;
    let ignored = |steps: &u64| *steps > 1 && !parallel && !anywhere;
    let interval = spec.vllm().and_then(|own| own.prefill_schedule_interval);
    if let Some(steps) = interval.filter(ignored) {
        let accepted = "1, or attention_dp above 1: before 0.33 vLLM uses it only in data-parallel engines";
        return Err(Error::field("engine", "prefill_schedule_interval", steps, accepted));
    }
    check_prefixes(spec, config)?;
    check_layout(spec, profile)
}

/// Name of a scheduler in a spec.
fn name(kind: SchedulerKind) -> String {
    serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Refuses prefix caches that the scheduler does not support, and queue order by prefix without a prefix cache.
fn check_prefixes(spec: &EngineSettings, config: &EngineConfig) -> Result<()> {
    if spec.enable_prefix_caching == Some(true) && config.prefixes == PrefixCaching::Unknown {
        let accepted = "scheduler vllm, sglang or llama.cpp, or omit the key";
        return Err(Error::field("engine", "enable_prefix_caching", "set", accepted));
    }
    if config.prefixes != PrefixCaching::Unknown && spec.kv_layout == Some(KvLayout::Vattention) {
        let accepted = "omitted with vattention, which shares no pages";
        return Err(Error::field("engine", "enable_prefix_caching", "set", accepted));
    }
    Ok(())
}

/// Refuses parallel layouts that the scheduler does not support.
fn check_layout(spec: &EngineSettings, profile: &Profile) -> Result<()> {
    let Some(layout) = spec.kv_layout.filter(|layout| !profile.layouts.contains(layout)) else {
        return Ok(());
    };
    let have = SchedulerKind::ALL.iter().filter(|kind| Profile::of(**kind).layouts.contains(&layout));
    let have: Vec<String> = have.map(|kind| name(*kind)).collect();
    let accepted = format!("with the schedulers {}", have.join(", "));
    Err(Error::field("engine", "kv_layout", layout.name(), accepted))
}

/// The reservation of memory that a scheduler of this kind makes for a request.
fn reserved(kind: ReservationKind) -> Reservation {
    match kind {
        ReservationKind::Max => Reservation::Max,
        ReservationKind::Pow2 => Reservation::Pow2,
        ReservationKind::Oracle => Reservation::Oracle,
    }
}

/// True if the settings break lockstep, so that vLLM's scheduler must run block by block.
pub(crate) fn runs_by_block(spec: &EngineSettings) -> bool {
    let has_vllm_keys = spec.vllm().is_some_and(|own| {
        own.long_prefill_token_threshold.is_some_and(|t| t > 0)
            || own.prefill_schedule_interval.is_some_and(|steps| steps > 1)
            || spec.policy == QueuePolicy::Priority
    });
    has_vllm_keys || spec.speculative.is_some() || spec.offload().is_some() || spec.lora.is_some()
}

/// Settings of the scheduler that identifies blocks.
fn vllm_settings(config: &EngineConfig, spec: &EngineSettings) -> vllm::SchedulerConfig {
    let vllm = spec.vllm().copied().unwrap_or_default();
    let drafts = spec.speculative.as_ref();
    let modelled = drafts.filter(|s| s.draft_model.is_some());
    let block_size = u64::from(config.block_size);
    vllm::SchedulerConfig {
        block_size,
        num_gpu_blocks: u32::try_from(config.blocks + 1).unwrap_or(u32::MAX),
        max_num_seqs: config.max_num_seqs,
        max_num_active_seqs: vllm.max_num_active_seqs.map(|each| each.saturating_mul(config.attention_dp)),
        max_num_batched_tokens: u64::from(config.max_num_batched_tokens),
        max_model_len: u64::from(config.max_model_len),
        enable_chunked_prefill: config.enable_chunked_prefill,
        enable_prefix_caching: config.prefixes == PrefixCaching::Blocks,
        long_prefill_token_threshold: vllm
            .long_prefill_token_threshold
            .unwrap_or(if config.attention_dp > 1 { config.rank_budget() } else { 0 }),
        long_prefill_token_threshold_adaptive: false,
        policy: if spec.policy == QueuePolicy::Fcfs {
            vllm::SchedulingPolicy::Fcfs
        } else {
            vllm::SchedulingPolicy::Priority
        },
        scheduler_reserve_full_isl: config.scheduler_reserve_full_isl,
        watermark: spec.watermark,
        prefill_schedule_interval: vllm.prefill_schedule_interval.unwrap_or(1),
        async_scheduling: spec.decides_ahead(),
        num_speculative_tokens: drafts.map_or(0, |s| s.num_speculative_tokens),
        num_lookahead_tokens: modelled.map_or(0, |s| s.num_speculative_tokens),
        eagle: false,
        windows: vec![None],
        offload: spec.offload().zip(config.host).map(|(asked, host)| offload(asked, host, block_size)),
        rules: vllm::Rules::of(spec.release.version.as_deref()),
    }
}

/// Settings of vLLM's host tier and the storage below it; each block of `block` tokens is one chunk.
fn offload(asked: &OffloadSettings, host: HostTier, block: u64) -> vllm::OffloadConfig {
    let chunks = |tokens: u64| usize::try_from(tokens / block).unwrap_or(usize::MAX);
    vllm::OffloadConfig {
        chunks: chunks(host.tokens),
        storage_chunks: host.storage.map(|storage| chunks(storage.tokens)),
        blocks_per_chunk: 1,
        eviction_policy: asked.eviction_policy,
        store_threshold: asked.store_threshold,
        offload_prompt_only: asked.offload_prompt_only,
        sync_load_budget_tokens: 0,
    }
}
