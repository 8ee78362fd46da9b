//! State of one replica: waiting requests, running sequences, and the number of free KV blocks.
//!
//! Knows: the operations of which every policy consists (admit, continue, preempt, decode) and the effect of each on
//! the blocks. Knows nothing about when to use them ([`crate::scheduler`]) or how long steps take
//! ([`crate::engine::price`]).

mod cache;
pub mod decodes;
mod gaps;
mod identity;
mod kv_transfers;
mod leaving;
pub(crate) mod polling;
pub(crate) mod queue;
mod reservations;
mod ring;
mod room;
mod told;

pub(crate) use kv_transfers::KvPull;

use crate::kv_cache::prefix::SharedPrefix;
use crate::scheduler::config::{EngineConfig, Order, Reservation};
use crate::tally::Tally;
use crate::timeline::{Mark, Timeline};
use cache::Cache;
use decodes::{Decodes, Entry};
use polling::AdmissionPolling;
use queue::Queue;
use roofcast_ask::arrival::{Arrival, Departure, SequenceId};
use roofcast_ask::workload::Prompt;
use roofcast_facts::clock::Ticks;
use roofcast_facts::slab::Slab;

/// Phase of a sequence in this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Gone,
    Waiting,
    Prefill,
    Decode,
    /// The last token is sampled, but the blocks are not free yet.
    Ending,
    Swapped,
    /// The KV cache is in transfer to this replica.
    Travelling,
    /// The sequence has left, and its KV cache is kept until another replica fetches it.
    Kept,
}

/// A request from its arrival to its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sequence {
    /// The request as it arrived.
    pub(crate) arrival: Arrival,
    phase: Phase,
    /// Number of cached tokens; valid while the sequence does not decode.
    pub(crate) computed: u32,
    /// Number of tokens to compute before the sequence samples: the prompt, and tokens generated before a preemption.
    pub(crate) known: u32,
    /// Number of sampled tokens; valid while the sequence does not decode.
    pub(crate) generated: u32,
    /// Number of known tokens that the last look-up found in the cache.
    ready: u32,
    /// Number of prompt tokens that were cached when the sequence was first admitted.
    pub(crate) cached: u32,
    /// Number of blocks that the sequence holds, if it does not grow block by block.
    held: u64,
    /// Number in the order of admission; newer sequences have larger numbers.
    order: u64,
    /// Time of the first output token.
    pub(crate) first: Ticks,
    /// Time of the latest output token; valid while the sequence does not decode.
    pub(crate) last: Ticks,
    /// Number of times that the sequence was preempted.
    pub(crate) preemptions: u32,
    /// Number of tokens that the last preemption dropped and that the next admission begins to recompute.
    dropped: u32,
}

/// A chunk of a prompt that the step computes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefillChunk {
    /// Sequence to which the chunk belongs.
    pub(crate) id: SequenceId,
    /// Number of tokens in the chunk.
    pub(crate) new: u32,
}

/// State of one replica.
#[derive(Debug, Clone)]
pub struct State<D> {
    /// Settings of the replica.
    pub config: EngineConfig,
    /// Sequences that decode.
    pub(crate) decodes: D,
    /// Chunks of prompts that the next step computes together with the decodes.
    pub(crate) chunks: Vec<PrefillChunk>,
    /// Counters of the run.
    pub tally: Tally,
    /// End of the last step.
    pub(crate) clock: Ticks,
    /// Prompt tokens of the requests that have no output token yet.
    pub(crate) prompt_tokens: u64,
    /// Recording of the run over time; `None` if it is not recorded.
    pub(crate) timeline: Option<Box<Timeline>>,
    sequences: Slab<Sequence>,
    waiting: Queue,
    /// Decides in which steps waiting requests are considered.
    pub(crate) polling: AdmissionPolling,
    swapped: Vec<SequenceId>,
    /// Sequences with incomplete prompts, in order of admission.
    prefills: Vec<SequenceId>,
    /// True if the last decision admitted no more waiting requests because the token budget was exhausted.
    pub(crate) short_of_budget: bool,
    /// Number of sequences in [`Phase::Ending`].
    ending: u64,
    /// Number of requests that were preempted while their last token was in flight.
    dropped: u64,
    /// Running sequences in order of admission, with their numbers; entries of sequences that have left are skipped.
    stack: Vec<(u64, SequenceId)>,
    free: u64,
    /// State of the KV cache beyond the number of free blocks.
    cache: Cache,
    orders: u64,
    /// Number of tokens moved between device and host in this step.
    moved: u64,
    /// Number of tokens in the swap space of the host.
    parked: u64,
    /// End of the last step of decodes. `joined` holds the sequences that have joined since: time of their last token,
    /// and their number.
    decoded: Ticks,
    joined: Vec<(Ticks, u64)>,
    transfers: kv_transfers::KvTransfers,
    /// Requests that ended with an error, whose departures the engine has yet to report.
    pub(crate) failed: Vec<Departure>,
}

impl<D: Decodes> State<D> {
    /// An idle replica with an empty cache.
    pub(crate) fn new(config: EngineConfig, reaches: &[u64]) -> State<D> {
        State {
            decodes: D::new(&config.groups, reaches),
            chunks: Vec::new(),
            tally: Tally::default(),
            clock: Ticks::ZERO,
            prompt_tokens: 0,
            timeline: None,
            sequences: Slab::default(),
            waiting: Queue::new(config.order),
            polling: AdmissionPolling::new(config.polling),
            swapped: Vec::new(),
            prefills: Vec::new(),
            short_of_budget: false,
            ending: 0,
            dropped: 0,
            stack: Vec::new(),
            free: config.blocks,
            cache: Cache::new(&config),
            orders: 0,
            moved: 0,
            parked: 0,
            decoded: Ticks::ZERO,
            joined: Vec::new(),
            transfers: kv_transfers::KvTransfers::default(),
            failed: Vec::new(),
            config,
        }
    }

    /// Drops all requests and empties the cache; counters, with the steps of the dropped decodes, and clock go on.
    pub(crate) fn restart(&mut self, reaches: &[u64]) {
        self.count_decodes();
        let State { config, tally, clock, timeline, .. } =
            std::mem::replace(self, State::new(self.config.clone(), reaches));
        *self = State { tally, clock, timeline, ..State::new(config, reaches) };
    }

    /// Adds a request to the queue; `prefix` describes the part of its tokens that other requests can share.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, arrival: Arrival, prefix: SharedPrefix) {
        if let Some(timeline) = &mut self.timeline {
            timeline.arrived(&arrival);
        }
        let known = arrival.input;
        self.prompt_tokens += u64::from(known);
        let id = self.take_in(Sequence { arrival, phase: Phase::Waiting, known, ..Sequence::default() });
        self.cache.arrive(id, &arrival, prefix);
    }

    /// Adds a sequence to the queue and returns its id.
    #[inline(always)]
    fn take_in(&mut self, sequence: Sequence) -> SequenceId {
        let id = self.sequences.insert(sequence) as SequenceId;
        self.waiting.push(id, sequence.arrival.key, sequence.arrival.number);
        self.tally.waiting_peak = self.tally.waiting_peak.max(self.waiting.len());
        id
    }

    /// The sequence with this id.
    pub(crate) fn sequence(&self, id: SequenceId) -> &Sequence {
        &self.sequences[id as usize]
    }

    /// The request that is admitted next; `None` if no waiting request is considered in this step.
    pub(crate) fn head(&self) -> Option<SequenceId> {
        self.waiting.front().filter(|id| self.polling.admits(self.sequence(*id).arrival.at))
    }

    /// Decides before a step which waiting requests the step considers.
    pub(crate) fn poll(&mut self) {
        if self.polling.is_open() {
            return;
        }
        self.polling.poll(self.clock, self.running() == 0);
        if self.polling.config.wait_steps > 0 {
            self.hold();
        }
    }

    /// Decides whether this step holds prompts back, because there are too few prompts or tokens.
    #[inline(never)]
    fn hold(&mut self) {
        let enough = [self.polling.config.wait_prompts, self.polling.config.wait_tokens];
        let slots = self.config.max_num_seqs.saturating_sub(self.running());
        if slots == 0 || self.decodes.is_empty() || self.head().is_none() {
            return;
        }
        let mut waiting_work = [0, self.decodes.len()];
        for id in self.waiting.iter().take(usize::try_from(slots).unwrap_or(usize::MAX)) {
            if waiting_work.iter().zip(enough).all(|(waiting_work, enough)| *waiting_work >= enough) {
                break;
            }
            waiting_work[0] += 1;
            waiting_work[1] += u64::from(self.sequence(id).known);
        }
        let [prompts, tokens] = waiting_work;
        self.polling.hold(prompts, tokens);
    }

    /// Number of steps of decodes until a waiting request is considered.
    pub(crate) fn polling_patience(&self) -> u64 {
        if self.waiting() == 0 || self.head().is_some() { u64::MAX } else { self.polling.patience() }
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.len()
    }

    /// Sorts the waiting requests by the length of their prompts.
    #[cfg(test)]
    pub(crate) fn sort_waiting(&mut self) {
        let sequences = &self.sequences;
        self.waiting.sort_by(|id| u64::from(sequences[id as usize].known));
    }

    /// True if requests are admitted in order of arrival, so that a new request does not affect earlier ones.
    pub(crate) fn in_order(&self) -> bool {
        self.config.order == Order::Arrival
    }

    /// Number of running requests, including requests with incomplete prompts and ending requests.
    pub(crate) fn running(&self) -> u64 {
        self.decodes.len() + self.prefills.len() as u64 + self.ending
    }

    /// Number of requests whose last token is sampled but whose blocks are not free yet.
    pub(crate) fn ending(&self) -> u64 {
        self.ending
    }

    /// Sequences with incomplete prompts, in order of admission.
    pub(crate) fn prefills(&self) -> &[SequenceId] {
        &self.prefills
    }

    /// Sequences swapped out to the host, in the order in which they were swapped out.
    pub(crate) fn swapped(&self) -> &[SequenceId] {
        &self.swapped
    }

    /// Number of tokens of `prompt` in the prefix cache, in whole blocks.
    pub(crate) fn cached(&self, prompt: &Prompt) -> u64 {
        self.cache.holds(prompt)
    }

    /// Number of free blocks.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Number of blocks that requests hold.
    pub fn used(&self) -> u64 {
        self.config.blocks - self.free
    }

    /// Running sequences, in order of admission.
    pub fn in_admission_order(&self) -> impl Iterator<Item = SequenceId> + '_ {
        let here = |(order, id): &&(u64, SequenceId)| self.runs(*order, *id);
        self.stack.iter().filter(here).map(|(_, id)| *id)
    }

    /// Number of cached tokens of a running sequence, and number of tokens that it has yet to sample.
    pub fn progress(&self, id: SequenceId) -> (u32, u32) {
        let s = self.sequence(id);
        match s.phase {
            Phase::Decode => self.decodes.progress(id),
            _ => (s.computed, s.arrival.output - s.generated),
        }
    }

    /// Number of cached tokens, and number of tokens to compute, of the request at the head of the queue.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, id: SequenceId) -> (u32, u32) {
        let known = self.sequence(id).known;
        let ready = match self.comes_with(id) {
            0 => self.cache.find(id, known),
            tokens => tokens,
        };
        self.sequences[id as usize].ready = ready;
        (ready, known - ready)
    }

    /// Admits the request at the head of the queue and computes `tokens` tokens of its prompt in this step.
    #[inline(always)]
    pub(crate) fn admit(&mut self, tokens: u32) {
        let Some(id) = self.waiting.pop() else { return };
        if self.pull(id) {
            return;
        }
        let blocks = self.admission_blocks(id, tokens);
        self.free -= blocks;
        self.cache.admit(id, (blocks, self.sequences[id as usize].known), tokens);
        self.enter(id);
        let sequence = &mut self.sequences[id as usize];
        sequence.phase = Phase::Prefill;
        sequence.computed = sequence.ready;
        sequence.held = match self.cache {
            Cache::Blocks(_) => u64::from((sequence.ready + tokens).div_ceil(self.config.block_size)),
            Cache::Counted | Cache::Reservations(_) | Cache::Slots(_) => blocks,
        };
        self.tally.cached_tokens += u64::from(sequence.ready);
        self.tally.recomputed_tokens += u64::from(std::mem::take(&mut sequence.dropped));
        if sequence.generated == 0 && sequence.preemptions == 0 {
            sequence.cached = sequence.ready;
        }
        self.prefills.push(id);
        self.chunks.push(PrefillChunk { id, new: tokens });
        self.tally.admitted += 1;
        self.mark(id, Mark::Admitted);
    }

    #[inline(always)]
    fn enter(&mut self, id: SequenceId) {
        self.orders += 1;
        self.sequences[id as usize].order = self.orders;
        if self.stack.len() as u64 > 64 + 2 * self.running() {
            let stack = std::mem::take(&mut self.stack);
            self.stack = stack.into_iter().filter(|(order, id)| self.runs(*order, *id)).collect();
        }
        self.stack.push((self.orders, id));
    }

    fn runs(&self, order: u64, id: SequenceId) -> bool {
        let s = &self.sequences[id as usize];
        let here = match s.phase {
            Phase::Prefill | Phase::Decode => true,
            // The KV cache of a request that another replica decodes is kept until that replica fetches it.
            Phase::Ending => !self.config.hands_over,
            _ => false,
        };
        here && s.order == order
    }

    /// Computes `tokens` further tokens of a prompt in this step; the blocks must be free.
    #[inline(always)]
    pub(crate) fn continue_prefill(&mut self, id: SequenceId, tokens: u32) {
        let blocks = self.continuation_blocks(id, tokens);
        self.free -= blocks;
        let s = &mut self.sequences[id as usize];
        s.held += blocks;
        if let Cache::Blocks(identity) = &mut self.cache {
            identity.extend(id, u64::from(s.computed + tokens));
        }
        self.chunks.push(PrefillChunk { id, new: tokens });
    }

    /// Applies a computed chunk; returns true if its sequence has sampled a token with it.
    #[inline(always)]
    pub(crate) fn computed(&mut self, chunk: PrefillChunk) -> bool {
        let s = &mut self.sequences[chunk.id as usize];
        s.computed += chunk.new;
        if s.computed < s.known {
            return false;
        }
        let at = self.prefills.iter().position(|id| *id == chunk.id);
        at.map(|at| self.prefills.remove(at));
        true
    }

    /// Applies the token that a sequence with a complete prompt samples at `at`: the sequence ends or decodes. Returns
    /// true if it ends. In a batch that runs until its longest output ends, the sequence decodes for `longest` steps.
    #[inline(always)]
    pub(crate) fn sampled(&mut self, id: SequenceId, at: Ticks, longest: Option<u32>) -> bool {
        let s = &mut self.sequences[id as usize];
        if s.generated == 0 {
            self.prompt_tokens -= u64::from(s.arrival.input);
            s.first = at;
        } else {
            let gap = at - s.last;
            self.tally.itl.add(gap, 1);
        }
        s.generated += 1;
        s.last = at;
        let true_length = s.arrival.output - s.generated;
        let remaining = if self.config.hands_over { 0 } else { longest.unwrap_or(true_length) };
        self.tally.idle_tokens += u64::from(remaining.saturating_sub(true_length));
        if remaining == 0 {
            return true;
        }
        s.phase = Phase::Decode;
        let entry = Entry { id, computed: s.computed, remaining, order: s.order };
        self.decodes.insert(entry);
        self.join(at);
        false
    }

    /// Records that a sequence decodes after its first token, unless it was preempted meanwhile.
    #[inline(always)]
    pub(crate) fn mark_decoding(&mut self, id: SequenceId) {
        if self.timeline.is_some() && self.sequence(id).phase == Phase::Decode {
            self.mark(id, Mark::Decoding);
        }
    }

    /// Number of cached tokens that sequences hold in addition to a token's first holder.
    pub fn shared_tokens(&self) -> u64 {
        self.cache.shared_tokens()
    }

    /// Number of cached tokens of decodes and of incomplete prompts; a shared token counts for each sequence.
    pub fn held_tokens(&self) -> u64 {
        self.decodes.held()
            + self.prefills.iter().map(|id| u64::from(self.sequence(*id).computed)).sum::<u64>()
    }
}
