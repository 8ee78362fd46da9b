//! vLLM's or SGLang's engine for requests that come while it runs, with tokens of their own: what drives a server in real time.
//!
//! Knows: the same [`Blocks`] or [`Sglang`] as a simulation, a step at a time, and the events of single requests in it. Its driver hands
//! over the requests that came until the last step ended, asks for the next, and lets what it said be heard when that one
//! ends. Knows no clock: times are those it is given and those that steps take.

use super::Replica;
use super::blocks::Blocks;
pub use super::event::Event;
use super::price::Price;
use super::settings::runs_by_block;
use super::sglang::{Sglang, SglangConfig};
use super::speculation::Speculation;
use crate::arrival::Departure;
use crate::arrival::{Arrival, SequenceId};
use crate::clock::Ticks;
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::forecaster::Forecaster;
pub use crate::kv_cache::paged::Change;
use crate::kv_cache::prefix::Prefix;
use crate::operator;
use crate::scheduler::config::EngineConfig;
use crate::scheduler::state::decodes::Each;
use crate::spec::SchedulerKind;
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
    /// The client's bound on them.
    pub max_tokens: u64,
    /// Whether the client says that it goes on to its bound.
    pub ignore_eos: bool,
    /// Smaller goes first where the queue has priorities.
    pub priority: i64,
    /// Tokens of the prompt whose keys and values came from another instance, and are here; SGLang's computes them.
    pub transferred: u64,
    /// The LoRA adapter that it asks for; 0 is none. Its blocks are found by requests of the same adapter alone.
    pub adapter: u32,
}

impl Asked {
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
            ..Arrival::default()
        }
    }
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
    /// Of those, the ones that vLLM's scheduler went by without blocking its queue.
    pub deferred: u64,
    /// KV blocks that requests hold.
    pub blocks: u64,
}

/// What an engine holds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Tokens of a request, prompt and output.
    pub max_model_len: u64,
    /// Requests that run at once.
    pub max_num_seqs: u64,
    /// KV blocks, as the engine counts them.
    pub num_gpu_blocks: u64,
    /// Tokens of one.
    pub block_size: u64,
    /// Whether they are found again by their content.
    pub enable_prefix_caching: bool,
}

/// One replica.
#[derive(Debug, Clone)]
pub struct Online {
    engine: Driven,
    capacity: Capacity,
    /// Requests that are here, by number, with the index that vLLM's engine has of them.
    present: BTreeMap<u64, SequenceId>,
    gone: Vec<Departure>,
    watched: bool,
    /// Whether a step is scheduled while the one before it runs, as in a simulation that counts; one that runs block by block has
    /// its own order.
    ahead: bool,
    /// When the last step began, or the first request came after a pause.
    began: Ticks,
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
    /// An idle engine; `context` is what requests have in the mean, `seed` says which drafts are accepted.
    pub fn new(forecaster: &Forecaster, context: u64, seed: u64) -> Result<Online> {
        let deployment = &forecaster.deployment;
        let (engine, capacity, ahead) = match deployment.options.engine.scheduler() {
            SchedulerKind::Sglang => {
                let (config, _) = EngineConfig::resolve(deployment, context, true)?;
                let mut settings = SglangConfig::resolve(&deployment.options.engine, &config)?;
                settings.scheduler.records = true;
                let capacity = Capacity {
                    max_model_len: settings.max_model_len,
                    max_num_seqs: settings.scheduler.max_running_requests,
                    num_gpu_blocks: config.blocks,
                    block_size: settings.scheduler.page_size,
                    enable_prefix_caching: !settings.scheduler.disable_radix_cache,
                };
                let price = Price::new(forecaster.timing(config.cost));
                (Driven::Sglang(Box::new(Sglang::new(settings, price, false).reporting())), capacity, false)
            }
            _ => {
                let (config, settings) = EngineConfig::resolve_by_block(deployment, context)?;
                let capacity = Capacity {
                    max_model_len: settings.max_model_len,
                    max_num_seqs: settings.max_num_seqs,
                    num_gpu_blocks: u64::from(settings.num_gpu_blocks),
                    block_size: settings.block_size,
                    enable_prefix_caching: settings.enable_prefix_caching,
                };
                let price = Price::new(forecaster.timing(config.cost));
                let speculation = Speculation::resolve(forecaster, seed)?;
                let ahead = config.polling.overlaps && !runs_by_block(&deployment.options.engine);
                (
                    Driven::Vllm(Box::new(Blocks::new(settings, price, speculation).reporting())),
                    capacity,
                    ahead,
                )
            }
        };
        Ok(Online {
            engine,
            capacity,
            present: BTreeMap::new(),
            gone: Vec::new(),
            watched: false,
            ahead,
            began: Ticks::ZERO,
        })
    }

    /// What it holds at most.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Whether a request can be served at all.
    pub fn serves(&self, asked: &Asked) -> bool {
        self.engine.replica().serves(&asked.arrival())
    }

    /// A request joins the queue; an idle engine has waited for it.
    pub fn arrive(&mut self, asked: &Asked) {
        if self.is_empty() {
            self.wait_until(asked.at);
            self.began = self.clock();
        }
        let arrival = asked.arrival();
        let prefix = match asked.adapter {
            0 => Prefix::of_tokens(&asked.prompt, Arc::clone(&asked.output)),
            adapter => Prefix::of_tokens(&apart(&asked.prompt, adapter), apart(&asked.output, adapter)),
        };
        let id = match &mut self.engine {
            Driven::Vllm(blocks) => blocks.join(arrival, prefix, (asked.transferred, asked.adapter)),
            Driven::Sglang(engine) => {
                engine.join(arrival, prefix);
                0
            }
        };
        self.present.insert(asked.number, id as SequenceId);
    }

    /// Takes a request out, wherever it is: its blocks are free, behind SGLang's scheduler with its next token. False where it
    /// is not here.
    pub fn abort(&mut self, number: u64) -> bool {
        let Some(id) = self.present.remove(&number) else { return false };
        match &mut self.engine {
            Driven::Vllm(blocks) => blocks.abort(id as usize),
            Driven::Sglang(engine) => _ = engine.abort(number),
        }
        true
    }

    /// One step; none where there is nothing to compute. Its events are appended to `events`.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Option<Done> {
        let before = self.engine.replica().tally().scheduled_tokens;
        self.began = self.clock();
        if self.is_empty() {
            return None;
        }
        let gone = &mut self.gone;
        if !self.engine.replica_mut().step(Ticks::NEVER, gone) {
            return None;
        }
        self.gone.drain(..).for_each(|gone| _ = self.present.remove(&gone.arrival.number));
        match &mut self.engine {
            Driven::Vllm(blocks) => blocks.take_events(events),
            Driven::Sglang(engine) => engine.take_events(events),
        }
        let tokens = self.engine.replica().tally().scheduled_tokens - before;
        Some(Done { end: self.clock(), tokens })
    }

    /// vLLM's engine, for what it alone has; an error names the key of `[engine]` that chooses it.
    fn blocks(&mut self) -> Result<&mut Blocks> {
        match &mut self.engine {
            Driven::Vllm(blocks) => Ok(blocks),
            Driven::Sglang(_) => Err(Error::field(
                "engine",
                "scheduler",
                "sglang",
                "vllm, which alone has adapters and tells of its cache",
            )),
        }
    }

    /// Keeps what the prefix cache takes in and lets go, until it is taken; vLLM's alone tells.
    pub fn watch_cache(&mut self) -> Result<()> {
        self.blocks()?.watch_cache();
        self.watched = true;
        Ok(())
    }

    /// Lets requests of at most so many LoRA adapters run at once, each of this rank; a step takes longer for those in it. vLLM's
    /// alone has adapters.
    pub fn serve_adapters(&mut self, deployment: &Deployment, most: usize, rank: u64) -> Result<()> {
        self.blocks()?.serve_adapters(most, operator::adapter(deployment, rank));
        Ok(())
    }

    /// Nothing happens until `time`.
    pub fn wait_until(&mut self, time: Ticks) {
        self.engine.replica_mut().wait_until(time);
    }

    /// Empties the prefix cache; false where requests are here, who need theirs.
    pub fn flush(&mut self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.engine.replica_mut().restart();
        if let (Driven::Vllm(blocks), true) = (&mut self.engine, self.watched) {
            blocks.watch_cache();
        }
        true
    }

    /// Moves what the prefix cache took in and let go since the last call to `into`; owners are numbers of requests.
    pub fn take_changes(&mut self, into: &mut Vec<Change>) {
        if let Driven::Vllm(blocks) = &mut self.engine {
            blocks.take_changes(into);
        }
    }

    /// When the last step ended, or nothing happened until.
    pub fn clock(&self) -> Ticks {
        self.engine.replica().clock()
    }

    /// The next step considers requests that have come until then, beside those that it has: where it is scheduled while the
    /// last one runs, until that one began.
    pub fn received(&self) -> Ticks {
        if self.ahead { self.began } else { self.clock() }
    }

    /// Whether the engine is empty.
    pub fn is_empty(&self) -> bool {
        self.engine.replica().is_empty()
    }

    /// How full it is.
    pub fn levels(&self) -> Levels {
        let waiting = self.engine.replica().waiting();
        let (present, blocks, deferred) = match &self.engine {
            Driven::Vllm(blocks) => (blocks.in_flight(), blocks.held_blocks(), blocks.deferred()),
            Driven::Sglang(engine) => (engine.present(), engine.held_blocks(), 0),
        };
        Levels { running: present.saturating_sub(waiting), waiting, deferred, blocks }
    }
}

/// Tokens as an adapter has them: no others', so that blocks of one adapter are none of another's.
fn apart(tokens: &[u32], adapter: u32) -> Arc<[u32]> {
    // Mixed, so that adapters differ in more than the low bits by which tokens differ.
    let mark = adapter.wrapping_mul(0x9e37_79b9).rotate_left(7);
    tokens.iter().map(|token| token ^ mark).collect()
}
