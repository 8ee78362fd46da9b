//! The serving engine in virtual time: one replica, scheduled by a policy and priced by the cost model.
//!
//! Knows: which of three engines runs. [`counting`] counts blocks and takes equal steps at once, for every policy;
//! [`blocks`] runs vLLM's own scheduler and is the reference for counting its blocks; [`sglang`] runs SGLang's
//! scheduler. Knows nothing about where requests come from: [`crate::simulate`] drives the engine.

pub(crate) mod blocks;
mod counting;
mod event;
mod link;
pub mod online;
pub mod price;
mod ranks;
pub(crate) mod settings;
pub(crate) mod sglang;
mod speculation;

pub use counting::Engine;

use crate::kv_cache::paged::Change;
use crate::scheduler::Policy;
use crate::scheduler::config::EngineConfig;
use crate::scheduler::state::KvPull;
use crate::scheduler::state::decodes::{Each, Lockstep};
use crate::tally::Tally;
use crate::timeline::Timeline;
use blocks::{Adapters, Blocks};
use price::{PriceBook, StepPrices};
use ranks::{Rank, Ranks};
use roofcast_ask::arrival::{Arrival, Departure, NamedAdapters, SequenceId};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::SchedulerKind;
use roofcast_ask::workload::Prompt;
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::memory;
use roofcast_facts::clock::{Ticks, sum_of_run};
use roofcast_facts::error::Result;
use roofcast_facts::shares::BottleneckShares;
use roofcast_facts::units::{ByteRate, Picoseconds};
use sglang::{Sglang, SglangConfig};
use speculation::Speculation;
use std::borrow::Cow;

/// One replica, whichever scheduler it runs.
pub trait Replica {
    /// True if a request can be served at all: if it is within the longest sequence, the cache and, if prompts are not
    /// split, the token budget of a step (a preempted request computes its previous output like a prompt).
    fn serves(&self, arrival: &Arrival) -> bool;
    /// Adds a request to the waiting queue.
    fn arrive(&mut self, arrival: Arrival, prompt: Prompt);
    /// End of the last step.
    fn clock(&self) -> Ticks;
    /// Advances the clock to `time` without computing.
    fn wait_until(&mut self, time: Ticks);
    /// True if a new request is considered only after a running one leaves, because earlier requests of a queue in
    /// order of arrival wait already.
    fn blocked(&self) -> bool;
    /// True if no request is waiting, running or in transfer to this replica.
    fn is_empty(&self) -> bool;
    /// Number of requests in flight, waiting or running.
    fn in_flight(&self) -> u64;
    /// Number of waiting requests.
    fn waiting(&self) -> u64;
    /// Prompt tokens of the requests that have no output token yet; 0 if the server does not count them.
    fn prompt_tokens(&self) -> u64 {
        0
    }
    /// Tokens of a prompt that are in the prefix cache, in whole blocks; 0 for caches that do not find blocks by
    /// content.
    fn cached(&self, prompt: &Prompt) -> u64;
    /// Number of a prompt's tokens in vLLM's host tier that follow its tokens in the prefix cache.
    fn cached_on_host(&self, _prompt: &Prompt) -> u64 {
        0
    }
    /// LoRA adapters of the requests; none for engines without adapters.
    fn adapters(&self) -> NamedAdapters {
        NamedAdapters::default()
    }
    /// Number of KV blocks that requests hold, and number of all KV blocks.
    fn blocks(&self) -> (u64, u64);
    /// Start time of the next step; `None` if there is no work.
    fn due(&self) -> Option<Ticks> {
        (!self.is_empty()).then(|| self.clock())
    }
    /// Runs one step, or as many equal steps as start before `horizon`; requests that end are appended to `departed`,
    /// in order. Returns false if there is no work.
    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool;
    /// True if the last call of [`Replica::step`] took equal steps after a first one, whose results the counts of
    /// requests and prompt tokens show: the last of these steps began with the counts of now.
    fn has_leapt(&self) -> bool {
        false
    }
    /// Receives at time `at` a request with its first token from a replica that keeps its KV cache until this one
    /// fetches it. Only replicas in prefill and decode pools receive requests, admit them ([`Replica::drain_admitted`])
    /// and release their blocks ([`Replica::release`]).
    fn receive(&mut self, _guest: Departure, _at: Ticks) {}
    /// Moves the transferred requests admitted since the last call to `into`.
    fn drain_admitted(&mut self, _into: &mut Vec<KvPull>) {}
    /// Notes that the KV cache of an admitted request has arrived.
    fn landed(&mut self, _pull: KvPull) {}
    /// Frees the blocks of a request whose KV cache has arrived at the decode replica.
    fn release(&mut self, _id: SequenceId) {}
    /// Starts to record the blocks that are stored in and removed from the prefix cache; only a replica that identifies
    /// blocks does.
    fn watch_cache(&mut self) {}
    /// Moves the records of stored and removed blocks to `into`. The owner of a block is a request number.
    fn take_changes(&mut self, _into: &mut Vec<Change>) {}
    /// Drops all requests and empties the cache. Counters and clock go on.
    fn restart(&mut self);
    /// Counters of the run.
    fn tally(&self) -> Cow<'_, Tally>;
    /// Time of the run, split by bottleneck.
    fn shares(&mut self) -> BottleneckShares<Ticks>;
    /// Recording of the run over time; `None` unless a caller sets one.
    fn timeline(&mut self) -> &mut Option<Box<Timeline>>;
}

/// Assumed rate of copies between device and host, in bytes per second: the part of PCIe 4.0 x16's 31.5 GB/s that large
/// copies reach.
pub(crate) const HOST_LINK: ByteRate = ByteRate(25e9);
/// Assumed time to launch one copy, about the time of a `cudaMemcpyAsync`. vLLM v0 swaps keys and values of every layer
/// block by block, each with a separate copy (`swap_blocks` in `csrc/cache_kernels.cu`).
const COPY: Picoseconds = Picoseconds(5_000_000);

/// Time to move one token's KV between device and host.
pub(crate) fn swap_time(deployment: &Deployment, context: u64, block_size: u32) -> Ticks {
    let token = memory::sequence_bytes(deployment, 0, context.max(1)).as_f64() / context.max(1) as f64;
    let copies = 2.0 * deployment.model.layers.len() as f64 / f64::from(block_size);
    Ticks::from(Picoseconds::from_seconds(token / HOST_LINK.0 + copies * COPY.seconds()))
}

/// A replica with the settings of `config`, scheduled by `policy`. `context` is the mean length of requests in tokens;
/// `seed` decides which drafts are accepted. Without `leap` the replica takes every step singly and updates every
/// sequence in each.
pub fn replica(
    forecaster: &Forecaster,
    settings: (EngineConfig, Policy),
    context: u64,
    seed: u64,
    leap: bool,
) -> Result<Box<dyn Replica>> {
    replicas(forecaster, settings, (context, seed), leap, &PriceBook::default())?()
}

/// Function that makes equal replicas, which share the prices of steps that `prices` has, with the arguments of [`replica`].
pub(crate) fn replicas(
    forecaster: &Forecaster,
    (config, policy): (EngineConfig, Policy),
    (context, seed): (u64, u64),
    leap: bool,
    prices: &PriceBook,
) -> Result<impl Fn() -> Result<Box<dyn Replica>>> {
    let price = prices.prices(forecaster, &config)?;
    Ok(move || {
        let engine = || {
            let settings = (config.clone(), policy.clone());
            one(forecaster, settings, price.clone(), (context, seed), leap)
        };
        let Some(ranks) = config.ranks else { return Ok(engine()? as Box<dyn Replica>) };
        let all = (0..ranks.count).map(|_| engine()).collect::<Result<Vec<_>>>()?;
        Ok(Box::new(Ranks::new(all, ranks, &price)))
    })
}

/// One engine, whose steps have the prices of `price`.
fn one(
    forecaster: &Forecaster,
    (config, policy): (EngineConfig, Policy),
    price: StepPrices,
    (context, seed): (u64, u64),
    leap: bool,
) -> Result<Box<dyn Rank>> {
    if let Some(by_block) = config.by_block.clone().filter(|_| !(leap && config.counts)) {
        let speculation = Speculation::resolve(forecaster, seed)?;
        return Ok(Box::new(
            Blocks::new(by_block, price, speculation)
                .tiered(config.host)
                .leaping(leap && config.ranks.is_none())
                .adapting(Adapters::served(&forecaster.deployment)),
        ));
    }
    if config.scheduler == SchedulerKind::Sglang {
        let spec = &forecaster.deployment.engine;
        let settings = SglangConfig::resolve(spec, &config)?;
        return Ok(match leap {
            // Ranks that step together take as many equal batches as the slowest of them allows.
            true => Box::new(Sglang::<Lockstep>::new(settings, price, config.ranks.is_none())),
            false => Box::new(Sglang::<Each>::new(settings, price, false)),
        });
    }
    let swap = swap_time(&forecaster.deployment, context, config.block_size);
    Ok(match leap {
        true => Box::new(Engine::<Lockstep>::new(config, policy, price, swap)),
        false => Box::new(Engine::<Each>::new(config, policy, price, swap)),
    })
}

/// Number of steps that start before `left` has passed, from one to `most`. The first step takes `first` ticks, each
/// later one `growth` more than the step before.
#[inline(always)]
fn steps_within(first: u64, growth: u64, left: Ticks, most: u64) -> u64 {
    let limit = most.min(u64::from(u32::MAX));
    let spent = |steps: u64| sum_of_run(first, growth, steps);
    if left == Ticks::NEVER || spent(limit - 1) < left.0 {
        return limit;
    }
    // Solve growth/2 · m² + (first − growth/2) · m = left in floating point, then correct m in integers.
    let a = growth as f64 / 2.0;
    let b = first as f64 - growth as f64 / 2.0;
    let c = left.narrow() as f64;
    let guess = if growth == 0 { c / b } else { (2.0 * c) / (b + (b * b + 4.0 * a * c).sqrt()) };
    let mut steps = (guess as u64).clamp(1, limit);
    while steps > 1 && spent(steps - 1) >= left.0 {
        steps -= 1;
    }
    while steps < limit && spent(steps) < left.0 {
        steps += 1;
    }
    steps
}
