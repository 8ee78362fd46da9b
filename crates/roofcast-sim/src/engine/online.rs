//! vLLM's or SGLang's engine for requests that arrive while it runs, with real tokens: the engine behind a real-time
//! server.
//!
//! Knows: the [`Blocks`] or [`Sglang`] that a simulation uses, one step at a time, and the events of single requests.
//! The driver hands over the requests that arrived until the last step ended, asks for the next step, and publishes the
//! events of that step when it ends. Knows no clock: times come from the driver or are computed for steps.

mod seats;

use super::Replica;
use super::blocks::{Adapters, Blocks};
pub use super::event::{Event, HostCopy};
use super::price::StepPrices;
use super::settings::slot_caching;
use super::sglang::{Sglang, SglangConfig};
use super::speculation::Speculation;
pub use crate::kv_cache::paged::Change;
use crate::kv_cache::prefix::SharedPrefix;
use crate::scheduler::config::EngineConfig;
use crate::scheduler::state::decodes::Each;
use roofcast_ask::arrival::Departure;
use roofcast_ask::arrival::{Arrival, SequenceId};
use roofcast_ask::kv_cache::tier::HostTier;
use roofcast_ask::spec::{EngineKind, SchedulerKind};
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::clock::Ticks;
use roofcast_facts::error::{Error, Result};
use seats::Seats;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A request with its real tokens.
#[derive(Debug, Clone)]
pub struct OnlineRequest {
    /// Unique request id.
    pub number: u64,
    /// Time of arrival.
    pub at: Ticks,
    /// Tokens of the prompt, at least one.
    pub prompt: Arc<[u32]>,
    /// Tokens of the answer, at least one.
    pub output: Arc<[u32]>,
    /// The client's bound on output tokens.
    pub max_tokens: u64,
    /// True if the request generates up to its bound (`ignore_eos`).
    pub ignore_eos: bool,
    /// Priority; smaller is served first if the queue has priorities.
    pub priority: i64,
    /// Prompt tokens whose KV cache was transferred from another instance. SGLang's engine ignores this and computes
    /// them.
    pub transferred: u64,
    /// LoRA adapter of the request; 0 without one. Requests share blocks only if they use one adapter.
    pub adapter: u32,
    /// Slot of llama.cpp's server that the request asks for; numbers from the number of slots on wrap around. Other
    /// engines ignore it.
    pub id_slot: Option<i32>,
}

impl OnlineRequest {
    fn arrival(&self) -> Arrival {
        let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let output = narrow(self.output.len() as u64);
        Arrival {
            number: self.number,
            sent: self.at,
            at: self.at,
            input: narrow(self.prompt.len() as u64),
            output,
            max_tokens: narrow(self.max_tokens).max(output),
            ignore_eos: self.ignore_eos,
            key: self.priority,
            adapter: self.adapter,
            ..Arrival::default()
        }
    }
}

/// Result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Time at which the step ends.
    pub end: Ticks,
    /// Number of tokens that the step computed.
    pub tokens: u64,
}

/// Current load of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Levels {
    /// Number of running requests.
    pub running: u64,
    /// Number of waiting requests.
    pub waiting: u64,
    /// Number of waiting requests that vLLM's scheduler skipped, so that later ones could be admitted.
    pub deferred: u64,
    /// Number of KV blocks that requests hold.
    pub blocks: u64,
}

/// Limits of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Most tokens of a request, prompt and output together.
    pub max_model_len: u64,
    /// Most requests that run at one time.
    pub max_num_seqs: u64,
    /// Number of KV blocks, as the engine counts them.
    pub num_gpu_blocks: u64,
    /// Tokens per block.
    pub block_size: u64,
    /// True if the prefix cache is on.
    pub enable_prefix_caching: bool,
}

/// One replica.
#[derive(Debug, Clone)]
pub struct Online {
    engine: Driven,
    capacity: EngineLimits,
    host: Option<HostTier>,
    /// Requests in the engine by number, with their sequence id in vLLM's engine.
    present: BTreeMap<u64, SequenceId>,
    gone: Vec<Departure>,
    watched: bool,
    /// Slots of llama.cpp's server, which keep prompts in place of a cache of blocks; `None` for other engines.
    seats: Option<Seats>,
}

#[derive(Debug, Clone)]
enum Driven {
    Vllm(Box<Blocks>),
    Sglang(Box<Sglang<Each>>),
}

impl Driven {
    fn replica(&self) -> &dyn Replica {
        match self {
            Driven::Vllm(engine) => &**engine,
            Driven::Sglang(engine) => &**engine,
        }
    }

    fn replica_mut(&mut self) -> &mut dyn Replica {
        match self {
            Driven::Vllm(engine) => &mut **engine,
            Driven::Sglang(engine) => &mut **engine,
        }
    }
}

impl Online {
    /// An idle engine. `context` is the mean length of requests in tokens; `seed` decides which drafts are accepted.
    pub fn new(forecaster: &Forecaster, context: u64, seed: u64) -> Result<Online> {
        let deployment = &forecaster.deployment;
        let mut seats = None;
        let (engine, capacity, host) = match deployment.engine.scheduler {
            SchedulerKind::Sglang => {
                let config = EngineConfig::resolve_as_one(deployment, context)?;
                let mut settings = SglangConfig::resolve(&deployment.engine, &config)?;
                settings.scheduler.records = true;
                let capacity = EngineLimits {
                    max_model_len: settings.max_model_len,
                    max_num_seqs: settings.scheduler.max_running_requests,
                    num_gpu_blocks: config.blocks,
                    block_size: settings.scheduler.page_size,
                    enable_prefix_caching: !settings.scheduler.disable_radix_cache,
                };
                let price = StepPrices::new(forecaster.timing(config.cost));
                (Driven::Sglang(Box::new(Sglang::new(settings, price, false).reporting())), capacity, None)
            }
            _ => {
                let (config, mut settings) = EngineConfig::resolve_by_block(deployment, context)?;
                let capacity = EngineLimits {
                    max_model_len: settings.max_model_len,
                    max_num_seqs: settings.max_num_seqs,
                    num_gpu_blocks: u64::from(settings.num_gpu_blocks),
                    block_size: settings.block_size,
                    enable_prefix_caching: settings.enable_prefix_caching,
                };
                if settings.enable_prefix_caching && deployment.engine.kind() == EngineKind::LlamaCpp {
                    settings.enable_prefix_caching = false;
                    seats = Some(Seats::new(slot_caching(deployment, settings.max_num_seqs)));
                }
                let price = StepPrices::new(forecaster.timing(config.cost));
                let speculation = Speculation::resolve(forecaster, seed)?;
                let blocks = Blocks::new(settings, price, speculation)
                    .tiered(config.host)
                    .adapting(Adapters::served(deployment))
                    .reporting();
                (Driven::Vllm(Box::new(blocks)), capacity, config.host)
            }
        };
        Ok(Online {
            engine,
            capacity,
            host,
            present: BTreeMap::new(),
            gone: Vec::new(),
            watched: false,
            seats,
        })
    }

    /// Limits of the engine.
    pub fn capacity(&self) -> EngineLimits {
        self.capacity
    }

    /// vLLM's host tier, if the engine has one.
    pub fn host_tier(&self) -> Option<HostTier> {
        self.host
    }

    /// True if a request can be served at all.
    pub fn serves(&self, asked: &OnlineRequest) -> bool {
        self.engine.replica().serves(&asked.arrival())
    }

    /// Adds a request to the queue; an idle engine first advances to the arrival time.
    pub fn arrive(&mut self, asked: &OnlineRequest) {
        if self.is_empty() {
            self.wait_until(asked.at);
        }
        if let Some(seats) = &mut self.seats {
            seats.arrive(asked);
            return self.seat();
        }
        let arrival = asked.arrival();
        let prefix = match asked.adapter {
            0 => SharedPrefix::of_tokens(&asked.prompt, Arc::clone(&asked.output)),
            adapter => SharedPrefix::of_tokens(&apart(&asked.prompt, adapter), apart(&asked.output, adapter)),
        };
        let id = match &mut self.engine {
            Driven::Vllm(blocks) => blocks.join(arrival, prefix, asked.transferred),
            Driven::Sglang(engine) => {
                engine.join(arrival, prefix);
                0
            }
        };
        self.present.insert(asked.number, id as SequenceId);
    }

    /// Lets waiting requests into the free slots of llama.cpp's server.
    fn seat(&mut self) {
        let (Some(seats), Driven::Vllm(blocks)) = (&mut self.seats, &mut self.engine) else { return };
        while let Some((asked, prefix, cached)) = seats.next() {
            let id = blocks.join(asked.arrival(), prefix, cached);
            self.present.insert(asked.number, id as SequenceId);
        }
    }

    /// Frees the slot of a request that has left.
    fn unseat(&mut self, number: u64) {
        if let Some(seats) = &mut self.seats {
            seats.leave(number);
            self.seat();
        }
    }

    /// Number of the slot of a request, where the engine has slots.
    pub fn slot(&self, number: u64) -> Option<usize> {
        Some(self.seats.as_ref()?.seated(number)?.slot)
    }

    /// True if the engine has slots and a request waits for one.
    pub fn awaits_slot(&self, number: u64) -> bool {
        self.seats.as_ref().is_some_and(|seats| seats.seated(number).is_none())
    }

    /// Numbers of the slots that have a request.
    pub fn busy_slots(&self) -> BTreeSet<usize> {
        self.seats.iter().flat_map(Seats::busy).collect()
    }

    /// Aborts a request in any state and frees its blocks; SGLang's scheduler frees them with the request's next token.
    /// Returns false if the request is unknown.
    pub fn abort(&mut self, number: u64) -> bool {
        if self.seats.as_mut().is_some_and(|seats| seats.withdraw(number)) {
            return true;
        }
        let Some(id) = self.present.remove(&number) else { return false };
        match &mut self.engine {
            Driven::Vllm(blocks) => blocks.abort(id as usize),
            Driven::Sglang(engine) => _ = engine.abort(number),
        }
        self.unseat(number);
        true
    }

    /// Runs one step and appends its events to `events`; `None` if there is no work.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Option<Done> {
        let before = self.engine.replica().tally().scheduled_tokens;
        if self.is_empty() {
            return None;
        }
        let gone = &mut self.gone;
        if !self.engine.replica_mut().step(Ticks::NEVER, gone) {
            return None;
        }
        let first = events.len();
        match &mut self.engine {
            Driven::Vllm(blocks) => blocks.take_events(events),
            Driven::Sglang(engine) => engine.take_events(events),
        }
        if let Some(seats) = &mut self.seats {
            events[first..].iter_mut().for_each(|event| seen_by_slots(seats, event));
        }
        for gone in std::mem::take(&mut self.gone) {
            self.present.remove(&gone.arrival.number);
            self.unseat(gone.arrival.number);
        }
        let tokens = self.engine.replica().tally().scheduled_tokens - before;
        Some(Done { end: self.clock(), tokens })
    }

    /// vLLM's engine, for features that SGLang's engine does not support; the error names the key of `[engine]` that
    /// selects vLLM's.
    fn blocks(&mut self) -> Result<&mut Blocks> {
        match &mut self.engine {
            Driven::Vllm(blocks) => Ok(blocks),
            Driven::Sglang(_) => {
                Err(Error::field("engine", "scheduler", "sglang", "vllm, the only engine with cache events"))
            }
        }
    }

    /// Starts to record changes of the prefix cache. Only vLLM's engine supports this.
    pub fn watch_cache(&mut self) -> Result<()> {
        self.blocks()?.watch_cache();
        self.watched = true;
        Ok(())
    }

    /// Advances the clock to `time` without computing.
    pub fn wait_until(&mut self, time: Ticks) {
        self.engine.replica_mut().wait_until(time);
    }

    /// Empties the prefix cache. Returns false, with the cache unchanged, while requests are in the engine.
    pub fn flush(&mut self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.engine.replica_mut().restart();
        self.seats.iter_mut().for_each(Seats::clear);
        if let (Driven::Vllm(blocks), true) = (&mut self.engine, self.watched) {
            blocks.watch_cache();
        }
        true
    }

    /// Moves the recorded changes of the prefix cache to `into`. The owner of a block is a request number.
    pub fn take_changes(&mut self, into: &mut Vec<Change>) {
        if let Driven::Vllm(blocks) = &mut self.engine {
            blocks.take_changes(into);
        }
    }

    /// Moves the copies to and from the host tier that ended since the last call to `into`.
    pub fn take_copies(&mut self, into: &mut Vec<HostCopy>) {
        if let Driven::Vllm(blocks) = &mut self.engine {
            blocks.take_copies(into);
        }
    }

    /// Number of tokens that are being copied to the host tier, and back.
    pub fn copying(&self) -> [u64; 2] {
        match &self.engine {
            Driven::Vllm(blocks) => blocks.copying(),
            Driven::Sglang(_) => [0, 0],
        }
    }

    /// End of the last step, or of the last idle wait.
    pub fn clock(&self) -> Ticks {
        self.engine.replica().clock()
    }

    /// True if the engine has no requests.
    pub fn is_empty(&self) -> bool {
        self.engine.replica().is_empty()
    }

    /// Current load.
    pub fn levels(&self) -> Levels {
        let waiting = self.engine.replica().waiting();
        let (present, blocks, deferred) = match &self.engine {
            Driven::Vllm(blocks) => (blocks.in_flight(), blocks.held_blocks(), blocks.deferred()),
            Driven::Sglang(engine) => (engine.present(), engine.held_blocks(), 0),
        };
        let running = present.saturating_sub(waiting);
        let waiting = waiting + self.seats.as_ref().map_or(0, Seats::waiting);
        Levels { running, waiting, deferred, blocks }
    }
}

/// Puts the tokens that a slot had into an admission, and counts the tokens that a request has generated.
fn seen_by_slots(seats: &mut Seats, event: &mut Event) {
    match event {
        Event::Admitted { number, cached, resumed: false, .. } => {
            *cached = seats.seated(*number).map_or(0, |seated| seated.cached);
        }
        Event::Sampled { number, tokens } => seats.sampled(*number, *tokens),
        _ => {}
    }
}

/// Tokens of a prompt under an adapter, distinct from the tokens under any other adapter, so that adapters never share
/// blocks.
fn apart(tokens: &[u32], adapter: u32) -> Arc<[u32]> {
    // Mix the adapter's bits, so that adapters differ in more than the low bits in which tokens differ.
    let mark = adapter.wrapping_mul(0x9e37_79b9).rotate_left(7);
    tokens.iter().map(|token| token ^ mark).collect()
}
