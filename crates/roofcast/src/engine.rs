//! The serving engine in virtual time: one replica, scheduled by a policy and priced by the cost model.
//!
//! Knows: a step is scheduled, priced and applied; between two events all decodes advance in lockstep, so a run of
//! equal steps is taken at once (a leap). With [`decodes::Each`] this engine steps one by one and is the reference;
//! [`blocks`] runs vLLM's scheduler itself, [`sglang`] SGLang's. Knows nothing about where requests come from:
//! [`crate::simulate`] drives it.
//!
//! Parts of a step that are called from one place are `inline(always)`: left to the compiler, their calls take a
//! fifth of a run's instructions. Rare parts are separate functions, marked `cold` or `inline(never)`, so that they
//! take no room in a processor's 32 KiB of instruction cache between the code of every step.

pub(crate) mod blocks;
mod event;
mod link;
pub mod online;
pub mod price;
pub(crate) mod settings;
pub(crate) mod sglang;
mod speculation;

use crate::arrival::{Arrival, Departure, SequenceId};
use crate::batch::{Seen, Sequences};
use crate::clock::{Ticks, sum_of_run};
use crate::deployment::Deployment;
use crate::error::Result;
use crate::forecaster::Forecaster;
use crate::kv_cache::prefix::{Outputs, SharedPrefix};
use crate::memory;
use crate::scheduler::Policy;
use crate::scheduler::config::{EngineConfig, PrefixCaching};
use crate::scheduler::state::decodes::{Decodes, Each, Lockstep};
use crate::scheduler::state::{KvTransfer, State};
use crate::shares::BottleneckShares;
use crate::spec::SchedulerKind;
use crate::tally::Tally;
use crate::timeline::Timeline;
use crate::units::{ByteRate, Picoseconds};
use crate::workload::Prompt;
use blocks::Blocks;
use price::StepPrices;
use sglang::{Sglang, SglangConfig};
use speculation::Speculation;

/// One replica of any kind.
pub trait Replica {
    /// True if a request can be served at all: within the longest sequence, the cache, and the budget of a step if
    /// prompts are not split (a preempted request computes its previous output like a prompt).
    fn serves(&self, arrival: &Arrival) -> bool;
    /// Adds a request to the queue.
    fn arrive(&mut self, arrival: Arrival, prompt: Prompt);
    /// End of the last step.
    fn clock(&self) -> Ticks;
    /// Advances the clock to `time` without computing.
    fn wait_until(&mut self, time: Ticks);
    /// True if a new request is not considered before a running one leaves, because others wait already in order of
    /// arrival.
    fn blocked(&self) -> bool;
    /// True if no request is waiting, running or in transfer to this replica.
    fn is_empty(&self) -> bool;
    /// Number of requests, waiting or running.
    fn in_flight(&self) -> u64;
    /// Number of waiting requests.
    fn waiting(&self) -> u64;
    /// Prompt tokens of the requests without a token yet, if the server counts them.
    fn prompt_tokens(&self) -> u64 {
        0
    }
    /// Tokens of a prompt in the prefix cache, in whole blocks; 0 for caches that find nothing by content.
    fn cached(&self, prompt: &Prompt) -> u64;
    /// KV blocks that requests hold, and all KV blocks.
    fn blocks(&self) -> (u64, u64);
    /// Start of the next step, if there is work.
    fn due(&self) -> Option<Ticks> {
        (!self.is_empty()).then(|| self.clock())
    }
    /// Runs one step, or as many equal ones as start before `horizon`; requests that end are added to `departed`, in
    /// order. False if there is no work.
    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool;
    /// A request arrives at `at` with its first token, from a replica that keeps its cache until it is fetched. This
    /// and the next two are called only for replicas in prefill and decode pools.
    fn receive(&mut self, _guest: KvTransfer, _at: Ticks) {}
    /// Moves the transferred requests admitted since the last call to `into`: their numbers, and when their caches arrive.
    fn drain_admitted(&mut self, _into: &mut Vec<(u64, Ticks)>) {}
    /// Frees the blocks of a request whose cache has arrived at the other replica.
    fn release(&mut self, _id: SequenceId) {}
    /// Resets the replica to an empty cache; it must have no requests.
    fn restart(&mut self);
    /// Counters of the run.
    fn tally(&self) -> &Tally;
    /// Time of the run by bottleneck.
    fn shares(&mut self) -> BottleneckShares<Ticks>;
    /// Recording of the run over time; `None` unless a caller sets one.
    fn timeline(&mut self) -> &mut Option<Box<Timeline>>;
}

/// Bytes per second between device and host: the part of PCIe 4.0 x16's 31.5 GB/s that large copies reach. An
/// assumption.
pub(crate) const HOST_LINK: ByteRate = ByteRate(25e9);
/// Time to launch one copy. vLLM v0 swaps keys and values of every layer block by block, each with a separate copy
/// (`swap_blocks` in `csrc/cache_kernels.cu`). An assumption, of the size of a `cudaMemcpyAsync`.
const COPY: Picoseconds = Picoseconds(5_000_000);

/// Time to move one token's KV between device and host.
fn swap_time(deployment: &Deployment, context: u64, block_size: u32) -> Ticks {
    let token = memory::sequence_bytes(deployment, 0, context.max(1)).as_f64() / context.max(1) as f64;
    let copies = 2.0 * deployment.model.layers.len() as f64 / f64::from(block_size);
    Ticks::from(Picoseconds::from_seconds(token / HOST_LINK.0 + copies * COPY.seconds()))
}

/// A replica with the settings of `config`, scheduled by `policy`; `context` is the mean length of requests, `seed`
/// decides which drafts are accepted. Without `leap` it takes every step singly and touches every sequence.
pub fn replica(
    forecaster: &Forecaster,
    (config, policy): (EngineConfig, Policy),
    context: u64,
    seed: u64,
    leap: bool,
) -> Result<Box<dyn Replica>> {
    if let Some(by_block) = config.by_block {
        let price = StepPrices::new(forecaster.timing(config.cost));
        let speculation = Speculation::resolve(forecaster, seed)?;
        return Ok(Box::new(Blocks::new(by_block, price, speculation).tiered(config.host)));
    }
    if config.scheduler == SchedulerKind::Sglang {
        let spec = &forecaster.deployment.engine;
        let price = StepPrices::new(forecaster.timing(config.cost));
        let config = SglangConfig::resolve(spec, &config)?;
        return Ok(match leap {
            true => Box::new(Sglang::<Lockstep>::new(config, price, true)),
            false => Box::new(Sglang::<Each>::new(config, price, false)),
        });
    }
    Ok(counting(forecaster, config, policy, context, leap))
}

fn counting(
    forecaster: &Forecaster,
    config: EngineConfig,
    policy: Policy,
    context: u64,
    leap: bool,
) -> Box<dyn Replica> {
    let deployment = &forecaster.deployment;
    let price = StepPrices::new(forecaster.timing(config.cost));
    let swap = swap_time(deployment, context, config.block_size);
    if leap {
        Box::new(Engine::<Lockstep>::new(config, policy, price, swap))
    } else {
        Box::new(Engine::<Each>::new(config, policy, price, swap))
    }
}

/// One replica that counts blocks instead of identifying them.
#[derive(Debug, Clone)]
pub struct Engine<D> {
    /// Waiting and running requests, and the blocks.
    pub state: State<D>,
    price: StepPrices,
    policy: Policy,
    /// Ticks to move one token's KV between device and host.
    swap: u64,
    ended: Vec<(SequenceId, u32)>,
    prompts: Vec<Sequences>,
    outputs: Outputs,
}

impl<D: Decodes> Engine<D> {
    /// An idle engine; `swap` is the time to move one token's KV between device and host.
    pub fn new(config: EngineConfig, policy: Policy, price: StepPrices, swap: Ticks) -> Engine<D> {
        Engine {
            state: State::new(config, price.reaches()),
            price,
            policy,
            swap: u64::try_from(swap.0).unwrap_or(u64::MAX),
            ended: Vec::new(),
            prompts: Vec::new(),
            outputs: Outputs::default(),
        }
    }

    /// Takes steps of decodes alone, up to the next event.
    #[inline(always)]
    fn leap(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) {
        let state = &mut self.state;
        let n = state.decodes.len();
        let price = self.price.decode(n);
        let attending = price.attending(state.decodes.seen());
        let growth = price.attending(state.decodes.growth());
        let first = price.fixed + attending;
        let steady = state.decodes.steady().min(self.policy.patience(state)).min(state.polling_patience());
        let left = if horizon == Ticks::NEVER { horizon } else { horizon - state.clock };
        let used = state.used();
        let steps = state.take_blocks_of(steps_within(first, growth, left, steady));
        let time = sum_of_run(first, growth, steps);
        let end = state.clock + Ticks(time);
        state.tally.decoded(n, steps, time);
        state.decoded(steps, first, growth, end);
        count(state, n, n * steps, steps);
        if state.timeline.is_some() {
            let bound = self.price.bound(n, attending);
            state.tell_of_decodes(end, steps, used, bound);
        }
        state.clock = end;
        let last = u128::from(first) + u128::from(growth) * u128::from(steps - 1);
        state.polling.decoded(steps, Ticks(end.0 - last));
        self.advance(steps, departed);
    }

    /// Takes a step with chunks of prompts, or one that moves caches between device and host.
    #[inline(always)]
    fn mixed(&mut self, decode: bool, swapped: u64, departed: &mut Vec<Departure>) {
        let state = &mut self.state;
        let n = if decode { state.decodes.len() } else { 0 };
        self.prompts.clear();
        let (mut new, mut sampled) = (0, 0);
        for chunk in &state.chunks {
            let sequence = state.sequence(chunk.id);
            let context = sequence.computed + chunk.new;
            let samples = context == sequence.known;
            sampled += u64::from(samples);
            new += u64::from(chunk.new);
            self.prompts.push(Sequences::prompt(u64::from(chunk.new), u64::from(context), samples));
        }
        let seen = if decode { state.decodes.seen() } else { Seen::default() };
        let (time, shares) = self.price.mixed(n, seen, &self.prompts);
        let moving = Ticks::from(swapped * self.swap);
        let end = state.clock + time + moving;
        state.tally.swapping += moving;
        state.tally.mixed.add(shares);
        if state.timeline.is_some() {
            let bound = if moving > time { "swap" } else { shares.largest() };
            state.tell_of_chunks(end, n, [new, n + sampled], bound);
        }
        if decode {
            let ticks = u64::try_from((time + moving).0).unwrap_or(u64::MAX);
            state.decoded(1, ticks, 0, end);
        }
        count(state, state.running(), n + new, 1);
        state.polling.prefilled(state.clock);
        state.clock = end;
        if decode {
            self.advance(1, departed);
        }
        self.apply_chunks(departed);
    }

    /// Applies computed chunks; complete prompts sample their first token.
    #[inline(always)]
    fn apply_chunks(&mut self, departed: &mut Vec<Departure>) {
        let chunks = std::mem::take(&mut self.state.chunks);
        let longest = self.policy.longest(&self.state, &chunks);
        for chunk in &chunks {
            if self.state.computed(*chunk) && self.state.sampled(chunk.id, longest) {
                let computed = self.state.sequence(chunk.id).computed;
                departed.push(self.state.finish(chunk.id, computed));
            }
        }
        self.state.chunks = chunks;
    }

    #[inline(always)]
    fn advance(&mut self, steps: u64, departed: &mut Vec<Departure>) {
        self.ended.clear();
        self.state.decodes.advance(steps, &mut self.ended);
        for (id, computed) in &self.ended {
            departed.push(self.state.finish(*id, *computed));
        }
    }
}

impl<D: Decodes> Replica for Engine<D> {
    fn serves(&self, arrival: &Arrival) -> bool {
        let config = &self.state.config;
        let output = if config.hands_over { 1 } else { arrival.output };
        let whole = arrival.input.saturating_add(output);
        let unsplit = if config.preempts() { whole } else { arrival.input };
        whole <= config.max_model_len
            && config.groups.blocks(u64::from(whole)) <= config.blocks
            && (config.enable_chunked_prefill || u64::from(unsplit) <= config.rank_budget())
    }

    fn arrive(&mut self, arrival: Arrival, prompt: Prompt) {
        if self.state.config.prefixes == PrefixCaching::Unknown {
            return self.state.arrive(arrival, SharedPrefix::default());
        }
        let prefix = self.outputs.prefix(prompt);
        self.state.arrive(Arrival { output_segment: prefix.output_segment, ..arrival }, prefix);
    }

    fn clock(&self) -> Ticks {
        self.state.clock
    }

    fn wait_until(&mut self, time: Ticks) {
        self.state.tally.idle += time - self.state.clock;
        self.state.clock = self.state.clock.max(time);
    }

    fn blocked(&self) -> bool {
        // If prompts are held until they fill a step, every new request counts. An empty queue is checked first,
        // because it is the usual case and this is called before every step.
        let held = || self.state.config.polling.wait_steps > 0;
        self.state.waiting() > 0 && !held() && self.state.head().is_some() && self.state.in_order()
    }

    fn is_empty(&self) -> bool {
        // A busy replica usually has decodes, which are checked first.
        self.state.decodes.is_empty() && self.in_flight() == 0
    }

    fn in_flight(&self) -> u64 {
        let state = &self.state;
        state.waiting() + state.running() + state.travelling() + state.swapped().len() as u64
    }

    fn waiting(&self) -> u64 {
        self.state.waiting()
    }

    fn prompt_tokens(&self) -> u64 {
        self.state.prompt_tokens
    }

    fn cached(&self, prompt: &Prompt) -> u64 {
        self.state.cached(prompt)
    }

    fn blocks(&self) -> (u64, u64) {
        let all = self.state.config.blocks;
        (all.saturating_sub(self.state.free()), all)
    }

    fn step(&mut self, horizon: Ticks, departed: &mut Vec<Departure>) -> bool {
        self.state.chunks.clear();
        self.state.land();
        self.state.poll();
        let before = self.state.tally.preemptions;
        let decode = self.policy.schedule(&mut self.state) && !self.state.decodes.is_empty();
        if !decode && self.state.chunks.is_empty() {
            return false;
        }
        let swapped = self.state.moved();
        if self.state.chunks.is_empty() && swapped == 0 && before == self.state.tally.preemptions {
            self.leap(horizon.min(self.state.landing()), departed);
        } else {
            self.mixed(decode, swapped, departed);
        }
        true
    }

    fn receive(&mut self, transfer: KvTransfer, at: Ticks) {
        self.state.receive(transfer, at);
    }

    fn drain_admitted(&mut self, into: &mut Vec<(u64, Ticks)>) {
        self.state.drain_admitted(into);
    }

    fn release(&mut self, id: SequenceId) {
        self.state.release(id);
    }

    fn restart(&mut self) {
        self.state.restart();
    }

    fn tally(&self) -> &Tally {
        &self.state.tally
    }

    fn shares(&mut self) -> BottleneckShares<Ticks> {
        self.price.account(&self.state.tally)
    }

    fn timeline(&mut self) -> &mut Option<Box<Timeline>> {
        &mut self.state.timeline
    }
}

/// Counts `steps` equal steps of `running` sequences that compute `tokens` in all.
#[inline(always)]
fn count<D: Decodes>(state: &mut State<D>, running: u64, tokens: u64, steps: u64) {
    let (held, shared) = (state.held_tokens(), state.shared_tokens());
    let growth = if state.chunks.is_empty() { state.decodes.len() } else { 0 };
    let used = state.config.blocks - state.free();
    let tally = &mut state.tally;
    tally.steps += steps;
    tally.scheduled_tokens += tokens;
    tally.running_steps += running * steps;
    tally.running_peak = tally.running_peak.max(running);
    tally.blocks_peak = tally.blocks_peak.max(used);
    tally.token_steps += sum_of_run(held, growth, steps);
    tally.shared_steps += u128::from(shared) * u128::from(steps);
}

/// Number of steps that start before `left` has passed, at least one and at most `most`: the first takes `first`
/// ticks, each later one `growth` more.
#[inline(always)]
fn steps_within(first: u64, growth: u64, left: Ticks, most: u64) -> u64 {
    let most = most.min(u64::from(u32::MAX));
    let spent = |steps: u64| sum_of_run(first, growth, steps);
    if left == Ticks::NEVER || spent(most - 1) < left.0 {
        return most;
    }
    // Solve growth/2 · m² + (first − growth/2) · m = left in floats, then correct the result in integers.
    let (a, b, c) = (growth as f64 / 2.0, first as f64 - growth as f64 / 2.0, left.narrow() as f64);
    let guess = if growth == 0 { c / b } else { (2.0 * c) / (b + (b * b + 4.0 * a * c).sqrt()) };
    let mut steps = (guess as u64).clamp(1, most);
    while steps > 1 && spent(steps - 1) >= left.0 {
        steps -= 1;
    }
    while steps < most && spent(steps) < left.0 {
        steps += 1;
    }
    steps
}
