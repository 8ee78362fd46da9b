//! Look-ups of waiting requests in vLLM's host tier, and the loads that follow.
//!
//! Knows: whole chunks are found, in every group of layers. In a group with full attention they are found from the
//! first chunk on until one is missing; in a group with a window they are found from the end, and only the window's
//! chunks are loaded. Chunks that only storage has are promoted to the host first. Knows nothing about stores.

use super::{Job, Phase, window_chunks};
use crate::kv_cache::names::Name;
use crate::kv_cache::offload::{Chunks, Offload, Residence};
use crate::kv_cache::prefix::Tokens;
use crate::scheduler::vllm::request::RequestState;
use crate::scheduler::vllm::transfers::{External, Load};
use crate::scheduler::vllm::{RequestId, Scheduler};
use roofcast_ask::workload::Prompt;
use std::ops::Range;

/// Chunks of a request in the first group of layers, in order, that a look-up found on the host. They are there as long
/// as nothing is evicted, so that the look-ups of a request that waits go on where the last one ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    first: usize,
    /// End of the chunks that are ready.
    ready: usize,
    end: usize,
    /// Number of the host's evictions before the look-up.
    evicted: u64,
}

impl Run {
    /// Looks up the chunks from `first` up to `most`, from the end of an earlier look-up on if that still holds; `chunks`
    /// gives the chunks in a range.
    fn look_up(
        earlier: Option<Run>,
        (first, most): (usize, usize),
        host: &Offload,
        chunks: impl Fn(Range<usize>) -> Vec<Chunks>,
    ) -> Run {
        let evicted = host.evicted();
        let holds = |run: &Run| run.evicted == evicted && (run.first..=run.end).contains(&first);
        let (ready, end) =
            earlier.filter(holds).map_or((first, first), |run| (run.ready.max(first), run.end));
        let find = |range: Range<usize>, is_end: fn(Residence) -> bool| {
            let ends = |chunks: Chunks| {
                let at = chunks.names.clone().position(|name| is_end(host.residence(name)));
                at.map(|at| chunks.first as usize + at)
            };
            chunks(range).into_iter().find_map(ends)
        };
        let end = find(end..most, |state| state == Residence::Absent).unwrap_or(end.max(most));
        let ready = find(ready..end, |state| state != Residence::Ready).unwrap_or(end);
        Run { first, ready, end, evicted }
    }
}

impl Scheduler {
    /// Number of tokens of `prompt` on the host that follow its tokens in the prefix cache, in whole chunks.
    pub(crate) fn cached_on_host(&self, prompt: &Prompt) -> u64 {
        let Some(tier) = &self.tier else { return 0 };
        let names = self.names.known(&Tokens::of_prompt(prompt));
        tier.found(&names, self.config.block_size, self.cached(prompt))
    }

    /// Tokens of a waiting request that are on the host, after `local` tokens on the device.
    pub(in crate::scheduler::vllm) fn external(&mut self, id: RequestId, local: u64) -> External {
        if self.tier.is_none() {
            return External::Sync(0);
        }
        self.name_contents(id, usize::MAX);
        let known = self.requests[id].known();
        let (Some(tier), r) = (&mut self.tier, &self.requests[id]) else { return External::Sync(0) };
        let Some(state) = tier.states.get_mut(&id) else { return External::Sync(0) };
        (state.next, state.phase) = (0, Phase::None);
        (state.seen, state.covered) = (0, 0);
        if !state.jobs.is_empty() {
            return External::Later;
        }
        let windowed = self.config.windows.iter().any(Option::is_some);
        let per = tier.config.blocks_per_chunk;
        let chunk = per as u64 * self.config.block_size;
        let lookup_limit =
            (if windowed { known - 1 } else { known }).min((r.contents[0].len() / per) as u64 * chunk);
        if lookup_limit < local + chunk {
            return External::Sync(0);
        }
        let first = (local / chunk) as usize;
        let end = (lookup_limit / chunk) as usize;
        let of_first_group = |range: Range<usize>| r.chunks(per, 0, range.start as u32..range.end as u32);
        let earlier = state.run.take();
        let mut run = Run::look_up(earlier, (first, end), &tier.host, of_first_group);
        if tier.storage.is_some() {
            if !tier.promote(id, &of_first_group(run.end..end)) {
                return External::Later;
            }
            run = Run::look_up(Some(run), (first, end), &tier.host, of_first_group);
        }
        if let Some(state) = tier.states.get_mut(&id) {
            state.run = Some(run);
        }
        let windows = &self.config.windows;
        let alone = windows.len() == 1 && !windowed;
        let residence = |(group, index): (usize, usize)| {
            r.contents[group].get((index + 1) * per - 1).map(|name| tier.host.residence(name))
        };
        let is_resident = |at| residence(at).is_some_and(|state| state != Residence::Absent);
        let last = if alone { run.end } else { agreed(windows, first..end, chunk, is_resident) };
        let needed = needed(r, (windows, per), first..last, chunk);
        let stores = |name: Name| tier.host.residence(name) == Residence::Storing;
        let waits = match alone {
            true => run.ready < run.end,
            false => needed.iter().any(|chunks| chunks.names.clone().any(stores)),
        };
        if waits {
            return External::Later;
        }
        let end = last as u64 * chunk;
        if end < local + chunk {
            return External::Sync(0);
        }
        if self.config.enable_prefix_caching && tier.loads(&needed) {
            return External::Later;
        }
        let tokens = end - local;
        let budget = tier.config.sync_load_budget_tokens;
        if budget > 0 && end < known && tier.sync_tokens + tokens <= budget {
            tier.sync_tokens += tokens;
            return External::Sync(tokens);
        }
        External::Async(tokens)
    }

    /// Starts the load of `tokens` tokens after `local` ones; the request has the blocks for them.
    pub(in crate::scheduler::vllm) fn start_load(
        &mut self,
        id: RequestId,
        local: u64,
        tokens: u64,
        sync: bool,
    ) {
        let (Some(tier), r) = (&mut self.tier, &self.requests[id]) else { return };
        let per = tier.config.blocks_per_chunk;
        let chunk = per as u64 * self.config.block_size;
        let first = (local / chunk) as usize;
        let last = (local + tokens).div_ceil(chunk) as usize;
        let chunks = needed(r, (&self.config.windows, per), first..last, chunk);
        tier.host.load(r.number, &chunks);
        let contents: Vec<Range<Name>> = chunks.into_iter().map(|chunks| chunks.names).collect();
        // A chunk that is loaded again after a preemption comes from the host.
        let promoted = tier.states.get_mut(&id).map_or(0, |state| {
            let of_storage = contents.iter().map(|names| state.promoted.remove(names));
            (of_storage.sum::<usize>() as u64 * chunk).min(tokens)
        });
        let job = tier.start(Job { id, contents, blocks: None, sync });
        let blocks = self.config.windows.iter().map(|window| {
            let from = from(*window, &(first..last), chunk);
            [from, last - from].map(|chunks| (chunks * per) as u64)
        });
        tier.transfers.loads.push(Load { job, id, local, tokens, promoted, blocks: blocks.collect(), sync });
        r.tables.iter().for_each(|table| tier.taken.extend(&table.blocks, 0));
        if let Some(state) = tier.states.get_mut(&id) {
            state.next = last;
            state.phase = if sync { Phase::None } else { Phase::Loading };
        }
    }
}

/// End of the longest run of chunks in `range`, from its start, for which every group has `found` the chunks that it
/// needs: all of them for full attention, the chunks in the window before the end otherwise.
fn agreed(
    windows: &[Option<u64>],
    range: Range<usize>,
    chunk: u64,
    found: impl Fn((usize, usize)) -> bool,
) -> usize {
    let mut end = range.end;
    loop {
        let before = end;
        for (group, _) in windows.iter().enumerate().filter(|(_, window)| window.is_none()) {
            end = (range.start..end).find(|index| !found((group, *index))).unwrap_or(end);
        }
        for (group, window) in windows.iter().enumerate() {
            let Some(window) = window else { continue };
            let mut run = 0;
            let within = window_chunks(*window, chunk);
            for index in (range.start..end).rev() {
                if run >= within {
                    break;
                }
                run += 1;
                if !found((group, index)) {
                    (end, run) = (index, 0);
                }
            }
        }
        if end == before || windows.len() == 1 {
            return end;
        }
    }
}

/// The chunks of a request in `range`, of `per` blocks each, that a hit needs.
fn needed(
    r: &RequestState,
    (windows, per): (&[Option<u64>], usize),
    range: Range<usize>,
    chunk: u64,
) -> Vec<Chunks> {
    let of_group = |(group, window): (usize, &Option<u64>)| {
        r.chunks(per, group, from(*window, &range, chunk) as u32..range.end as u32)
    };
    windows.iter().enumerate().flat_map(of_group).collect()
}

/// The first chunk of `range` that a group needs for a hit at the end of `range`.
fn from(window: Option<u64>, range: &Range<usize>, chunk: u64) -> usize {
    let within = window.map_or(usize::MAX, |window| window_chunks(window, chunk));
    range.start.max(range.end.saturating_sub(within))
}
