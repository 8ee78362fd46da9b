//! vLLM's engine for requests that come while it runs, with tokens of their own: what drives a server in real time.
//!
//! Knows: the same [`Blocks`] as a simulation, a step at a time, and the events of single requests in it. Its driver hands
//! over the requests that came until the last step ended, asks for the next, and lets what it said be heard when that one
//! ends. Knows no clock: times are those it is given and those that steps take.

use super::arrival::{Arrival, SequenceId};
use super::blocks::Blocks;
use super::clock::Ticks;
use super::config::EngineConfig;
pub use super::event::Event;
use super::price::Price;
use super::speculation::Speculation;
use super::{Departure, Replica};
use crate::deployment::Deployment;
use crate::error::Result;
use crate::forecaster::Forecaster;
pub use crate::kv_cache::paged::Change;
use crate::kv_cache::prefix::Prefix;
use crate::operator;
use crate::scheduler::vllm;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request with its tokens.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its number, of which there is no other here.
    pub number: u64,
    /// When it came.
    pub at: Ticks,
    /// The tokens of its prompt, at least one.
    pub prompt: Arc<[u32]>,
    /// The tokens that it will be answered with, at least one.
    pub output: Arc<[u32]>,
    /// Smaller goes first where the queue has priorities.
    pub priority: i64,
    /// Tokens of the prompt whose keys and values came from another instance, and are here.
    pub transferred: u64,
    /// The LoRA adapter that it asks for; 0 is none. Its blocks are found by requests of the same adapter alone.
    pub adapter: u32,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// When it ended.
    pub end: Ticks,
    /// Tokens that it computed.
    pub tokens: u64,
}

/// How full an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Levels {
    /// Requests that are computed.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// KV blocks that requests hold.
    pub blocks: u64,
}

/// One replica.
#[derive(Debug, Clone)]
pub struct Online {
    blocks: Blocks,
    config: EngineConfig,
    settings: vllm::SchedulerConfig,
    present: BTreeMap<u64, SequenceId>,
    gone: Vec<Departure>,
    watched: bool,
}

impl Online {
    /// An idle engine; `context` is what requests have in the mean, `seed` says which drafts are accepted.
    pub fn new(forecaster: &Forecaster, context: u64, seed: u64) -> Result<Online> {
        let (config, settings) = EngineConfig::resolve_by_block(&forecaster.deployment, context)?;
        let price = Price::new(forecaster.timing(config.cost));
        let speculation = Speculation::resolve(forecaster, seed)?;
        let blocks = Blocks::new(settings.clone(), price, speculation).reporting();
        Ok(Online { blocks, config, settings, present: BTreeMap::new(), gone: Vec::new(), watched: false })
    }

    /// The engine's settings.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Those of its scheduler.
    pub fn settings(&self) -> &vllm::SchedulerConfig {
        &self.settings
    }

    /// Whether a request of so many tokens can be served at all.
    pub fn serves(&self, input: u32, output: u32) -> bool {
        self.blocks.serves(&Arrival { input, output, ..Arrival::default() })
    }

    /// A request joins the queue; an idle engine has waited for it.
    pub fn arrive(&mut self, asked: &Asked) {
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        if self.blocks.is_empty() {
            self.blocks.wait_until(asked.at);
        }
        let arrival = Arrival {
            number: asked.number,
            at: asked.at,
            input: narrow(asked.prompt.len()),
            output: narrow(asked.output.len()),
            max_tokens: narrow(asked.output.len()),
            key: asked.priority,
            ..Arrival::default()
        };
        let prefix = match asked.adapter {
            0 => Prefix::of_tokens(&asked.prompt, Arc::clone(&asked.output)),
            adapter => Prefix::of_tokens(&apart(&asked.prompt, adapter), apart(&asked.output, adapter)),
        };
        let id = self.blocks.join(arrival, prefix, (asked.transferred, asked.adapter));
        self.present.insert(asked.number, id as SequenceId);
    }

    /// Takes a request out, wherever it is: its blocks are free. False where it is not here.
    pub fn abort(&mut self, number: u64) -> bool {
        let Some(id) = self.present.remove(&number) else { return false };
        self.blocks.abort(id as usize);
        true
    }

    /// One step; none where there is nothing to compute. Its events are appended to `events`.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Option<Done> {
        let before = self.blocks.tally().scheduled_tokens;
        if self.blocks.is_empty() || !self.blocks.step(Ticks::NEVER) {
            return None;
        }
        self.blocks.drain(&mut self.gone);
        self.gone.drain(..).for_each(|gone| _ = self.present.remove(&gone.arrival.number));
        self.blocks.take_events(events);
        let tokens = self.blocks.tally().scheduled_tokens - before;
        Some(Done { end: self.blocks.clock(), tokens })
    }

    /// Keeps what the prefix cache takes in and lets go, until it is taken.
    pub fn watch_cache(&mut self) {
        self.watched = true;
        self.blocks.watch_cache();
    }

    /// Lets requests of at most so many LoRA adapters run at once, each of this rank; a step takes longer for those in it.
    pub fn serve_adapters(&mut self, deployment: &Deployment, most: usize, rank: u64) {
        self.blocks.serve_adapters(most, operator::adapter(deployment, rank));
    }

    /// Nothing happens until `time`.
    pub fn wait_until(&mut self, time: Ticks) {
        self.blocks.wait_until(time);
    }

    /// Empties the prefix cache; false where requests are here, who need theirs.
    pub fn flush(&mut self) -> bool {
        if !self.blocks.is_empty() {
            return false;
        }
        self.blocks.restart();
        if self.watched {
            self.blocks.watch_cache();
        }
        true
    }

    /// Moves what the prefix cache took in and let go since the last call to `into`; owners are numbers of requests.
    pub fn take_changes(&mut self, into: &mut Vec<Change>) {
        self.blocks.take_changes(into);
    }

    /// When the last step ended, or nothing happened until.
    pub fn clock(&self) -> Ticks {
        self.blocks.clock()
    }

    /// Whether the engine is empty.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How full it is.
    pub fn levels(&self) -> Levels {
        let waiting = self.blocks.waiting();
        Levels { running: self.blocks.in_flight() - waiting, waiting, blocks: self.blocks.held_blocks() }
    }
}

/// Tokens as an adapter has them: no others', so that blocks of one adapter are none of another's.
fn apart(tokens: &[u32], adapter: u32) -> Arc<[u32]> {
    // Mixed, so that adapters differ in more than the low bits by which tokens differ.
    let mark = adapter.wrapping_mul(0x9e37_79b9).rotate_left(7);
    tokens.iter().map(|token| token ^ mark).collect()
}
