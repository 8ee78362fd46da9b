//! Routing policies that weigh cached prefixes against load.
//!
//! Knows: the formulas and settings ([`RoutingSpec`]) of NVIDIA Dynamo's KV router, llm-d's inference scheduler, SGLang's
//! model gateway, vLLM production stack's `kvaware`, vLLM's router and LMetric. SGLang's gateway and `cache_aware` of vLLM's
//! router remember the prompts that they sent; the others read the replicas' caches (KV events that arrive at once, or late by
//! [`RoutingSpec::event_delay_s`]). Both gateways, `kv_aware` and LMetric break ties by the order of their workers, the others
//! at random. Knows nothing about tokenization in the router, or caches below vLLM's host tier.

use super::Routing;
use super::backlog::Backlog;
use super::history::{History, Match};
use roofcast_ask::arrival::NamedAdapters;
use roofcast_ask::spec::RoutingSpec;
use roofcast_ask::workload::Prompt;
use std::cmp::Reverse;

/// A request that needs a replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoutedRequest<'a> {
    /// User that sent the request, or its session.
    pub(crate) user: u32,
    /// Identity of the prompt's tokens.
    pub(crate) prompt: &'a Prompt,
    /// Number of prompt tokens.
    pub(crate) input: u64,
    /// LoRA adapter that the request names; 0 without one.
    pub(crate) adapter: u32,
}

/// Load and caches that replicas report to a router, by replica index.
pub(crate) trait Replicas {
    /// Number of requests, waiting or running.
    fn in_flight(&self, index: usize) -> u64;
    /// Number of waiting requests.
    fn waiting(&self, index: usize) -> u64;
    /// Prompt tokens of the requests without an output token yet.
    fn prompt_tokens(&self, index: usize) -> u64;
    /// Prompt tokens of the requests without an output token yet, with those that the server reads.
    fn unanswered_tokens(&self, index: usize) -> u64 {
        self.prompt_tokens(index)
    }
    /// Number of KV blocks that requests hold, and number of all KV blocks.
    fn blocks(&self, index: usize) -> (u64, u64);
    /// Tokens of the routed request's prompt that are in the prefix cache, in whole blocks.
    fn cached(&self, index: usize) -> u64;
    /// Number of tokens of the routed request's prompt in the host tier that follow its tokens in the prefix cache.
    fn cached_on_host(&self, _index: usize) -> u64 {
        0
    }
    /// LoRA adapters of the replica's requests.
    fn adapters(&self, _index: usize) -> NamedAdapters {
        NamedAdapters::default()
    }
}

/// A cache-aware policy with its settings and its memory.
#[derive(Debug, Clone)]
pub(super) struct CachePolicy {
    routing: Routing,
    settings: RoutingSpec,
    /// Tokens per KV block.
    block: f64,
    history: History,
    backlog: Backlog,
}

/// Function that returns a random number below a count.
type Draw<'a> = &'a mut dyn FnMut(usize) -> usize;

impl CachePolicy {
    pub(super) fn new(routing: Routing, settings: RoutingSpec, block: u64) -> CachePolicy {
        let history = History::default();
        CachePolicy { routing, settings, block: block as f64, history, backlog: Backlog::default() }
    }

    /// Records that request `asked` was sent to replica `chosen`.
    pub(super) fn sent(&mut self, asked: &RoutedRequest, replicas: &dyn Replicas, chosen: usize) {
        match self.routing {
            Routing::CacheAware | Routing::VllmCacheAware => self.history.insert(chosen, asked.prompt),
            Routing::KvAware | Routing::Lmetric => {
                let uncached = self.to_prefill(asked, replicas, chosen);
                self.backlog.add(chosen, asked.input, uncached);
            }
            _ => {}
        }
    }

    /// Chooses one of at least two candidates: the one with the highest value, or, with Dynamo's temperature, a random
    /// one by the softmax of the values over their range.
    pub(super) fn choose(
        &mut self,
        asked: &RoutedRequest,
        replicas: &dyn Replicas,
        candidates: &[usize],
        draw: Draw,
    ) -> usize {
        match self.routing {
            Routing::CacheAware | Routing::VllmCacheAware => {
                return self.holder_or_idlest(asked, replicas, candidates);
            }
            Routing::KvAware | Routing::Lmetric => {
                return self.least_product(asked, replicas, candidates, draw);
            }
            _ => {}
        }
        let values = match self.routing {
            Routing::LlmD => self.scores(asked, replicas, candidates),
            Routing::Kvaware => self.holders(asked, replicas, candidates),
            _ => self.costs(asked, replicas, candidates).into_iter().map(|cost| -cost).collect(),
        };
        let [least, most] = extremes(&values);
        let temperature = self.settings.router_temperature;
        if self.routing != Routing::DynamoKv || temperature == 0.0 || least == most {
            return highest(candidates, &values, draw);
        }
        let weight = |value: &f64| libm::exp((value - most) / ((most - least) * temperature));
        by_weight(candidates, &values.iter().map(weight).collect::<Vec<f64>>(), draw)
    }

    /// Costs in blocks, by Dynamo 1.6.1 (`dynamo-custom-policy-builtin/src/default/scorer.rs`). Cost =
    /// `prefill_load_scale` × max((queued prompt tokens + prompt) / block − `overlap_score_credit` × cached blocks −
    /// `host_cache_hit_weight` × blocks on the host, 0) + blocks in use + `decode_active_request_weight` × requests.
    fn costs(&self, asked: &RoutedRequest, replicas: &dyn Replicas, candidates: &[usize]) -> Vec<f64> {
        let s = &self.settings;
        let cost = |&index: &usize| {
            let prefill = (replicas.prompt_tokens(index) + asked.input) as f64 / self.block;
            let host = s.host_cache_hit_weight * replicas.cached_on_host(index) as f64;
            let credit = (s.overlap_score_credit * replicas.cached(index) as f64 + host) / self.block;
            let requests = s.decode_active_request_weight * replicas.in_flight(index) as f64;
            s.prefill_load_scale * (prefill - credit).max(0.0) + replicas.blocks(index).0 as f64 + requests
        };
        candidates.iter().map(cost).collect()
    }

    /// Scores by llm-d inference scheduler 520af478 (`pkg/epp`): the sum of weight × score over five scores within 0
    /// and 1. Affinity: [`affinity`]. Prefix: cached tokens / prompt tokens. Host: tokens cached on any tier / prompt tokens. Queue: (longest
    /// queue − own queue) / (longest − shortest), 1 if all are equal. Cache: 1 − fraction of KV cache in use.
    fn scores(&self, asked: &RoutedRequest, replicas: &dyn Replicas, candidates: &[usize]) -> Vec<f64> {
        let s = &self.settings;
        let queues: Vec<f64> = candidates.iter().map(|index| replicas.waiting(*index) as f64).collect();
        let [shortest, longest] = extremes(&queues);
        let score = |(&index, queue): (&usize, &f64)| {
            let cached = replicas.cached(index);
            let prefix = cached as f64 / asked.input.max(1) as f64;
            let any_tier = (cached + replicas.cached_on_host(index)) as f64 / asked.input.max(1) as f64;
            let queue = if longest > shortest { (longest - queue) / (longest - shortest) } else { 1.0 };
            let (held, all) = replicas.blocks(index);
            let room = 1.0 - held as f64 / all.max(1) as f64;
            let prefixes = s.prefix_cache_weight * prefix + s.host_prefix_cache_weight * any_tier;
            let affinity = match s.lora_affinity_weight {
                0.0 => 0.0,
                weight => weight * affinity(&replicas.adapters(index), asked.adapter),
            };
            prefixes + affinity + s.queue_weight * queue + s.kv_cache_utilization_weight * room
        };
        candidates.iter().zip(&queues).map(score).collect()
    }

    /// Choice of SGLang's model gateway (`sglang-router` 0.3.2, policy `cache_aware`): the first with the fewest
    /// requests if most − least > `balance_abs_threshold` and most > `balance_rel_threshold` × least; else, if the
    /// longest match exceeds `cache_threshold` of the prompt, the replica to which the end of the match was sent first;
    /// else the first with the fewest requests.
    fn holder_or_idlest(
        &self,
        asked: &RoutedRequest,
        replicas: &dyn Replicas,
        candidates: &[usize],
    ) -> usize {
        let s = &self.settings;
        let [most, least] = extremes(&idle(replicas, candidates)).map(|value| -value);
        let idlest = candidates.iter().copied().min_by_key(|index| replicas.in_flight(*index)).unwrap_or(0);
        if most - least > s.balance_abs_threshold && most > least * s.balance_rel_threshold {
            return idlest;
        }
        let matched = |index: &usize| Some((self.history.matched(*index, asked.prompt)?, *index));
        let enough = |found: &Match| found.tokens as f64 > s.cache_threshold * asked.input as f64;
        let all = candidates.iter().filter_map(matched).filter(|(found, _)| enough(found));
        let holder = match self.routing {
            Routing::VllmCacheAware => all.max_by_key(|(found, index)| {
                (found.tokens, Reverse(replicas.in_flight(*index)), Reverse(*index))
            }),
            _ => all.max_by_key(|(found, _)| (found.tokens, Reverse(found.since))),
        };
        holder.map_or(idlest, |(_, index)| index)
    }

    /// Tokens of the request's prompt that the replica has to prefill. `kv_aware` credits whole blocks, none for the block of the
    /// last token, and a share of those in the host tier; what a share leaves of a token counts whole (vLLM's router 0.1.17,
    /// `src/policies/kv_aware.rs`, `credited_tokens`).
    fn to_prefill(&self, asked: &RoutedRequest, replicas: &dyn Replicas, index: usize) -> u64 {
        let cached = replicas.cached(index);
        let last = asked.input.saturating_sub(1);
        if self.routing == Routing::Lmetric {
            return asked.input - cached.min(last);
        }
        let whole = |tokens: u64| (tokens as f64 / self.block).floor() * self.block;
        let on_device = whole(cached.min(last));
        let host = self.settings.kv_penalty_host * replicas.cached_on_host(index) as f64;
        (asked.input as f64 - (on_device + host).min(last as f64)).ceil() as u64
    }

    /// The replica with the least (tokens to prefill, of its prompts without a first token and of this one) × (requests + 1),
    /// the first of equals; `kv_aware` with a temperature draws by the softmax of minus the products. Source: Zhang et al., LMetric,
    /// arXiv 2603.15202; vLLM's router 0.1.17, `src/policies/kv_aware.rs`, `MultiplicativeScorer` and `TemperaturePicker`.
    fn least_product(
        &mut self,
        asked: &RoutedRequest,
        replicas: &dyn Replicas,
        candidates: &[usize],
        draw: Draw,
    ) -> usize {
        let product = |index: &usize| {
            let waiting = self.backlog.uncached(*index, replicas.unanswered_tokens(*index));
            let tokens = waiting + self.to_prefill(asked, replicas, *index);
            tokens as f64 * (replicas.in_flight(*index) + 1) as f64
        };
        let products: Vec<f64> = candidates.iter().map(product).collect();
        let [least, _] = extremes(&products);
        let temperature = self.settings.router_temperature;
        if self.routing == Routing::KvAware && temperature > 0.0 {
            let weights: Vec<f64> = products.iter().map(|p| libm::exp((least - p) / temperature)).collect();
            return by_weight(candidates, &weights, draw);
        }
        candidates.iter().zip(&products).find(|(_, p)| **p == least).map_or(0, |(index, _)| *index)
    }

    /// Values by vLLM production stack a6c01db0 (`routers/routing_logic.py`, `kvaware`): the cached tokens if at most
    /// `kv_aware_threshold` tokens of the prompt are outside the longest cached prefix, else minus the requests in
    /// flight.
    fn holders(&self, asked: &RoutedRequest, replicas: &dyn Replicas, candidates: &[usize]) -> Vec<f64> {
        let cached: Vec<f64> = candidates.iter().map(|index| replicas.cached(*index) as f64).collect();
        let longest = extremes(&cached)[1];
        let near = longest > 0.0 && asked.input as f64 - longest <= self.settings.kv_aware_threshold;
        if near { cached } else { idle(replicas, candidates) }
    }
}

/// Affinity of a replica to an adapter by llm-d's `lora-affinity-scorer`: 1 if requests of the adapter run, else 0.8 if
/// the replica has room for one more adapter, else 0.6 if requests of the adapter wait, else 0.
fn affinity(named: &NamedAdapters, adapter: u32) -> f64 {
    if named.running.contains(&adapter) {
        1.0
    } else if named.running.union(&named.waiting).count() < named.most {
        0.8
    } else if named.waiting.contains(&adapter) {
        0.6
    } else {
        0.0
    }
}

/// Minus the number of requests in flight on each candidate.
fn idle(replicas: &dyn Replicas, candidates: &[usize]) -> Vec<f64> {
    candidates.iter().map(|index| -(replicas.in_flight(*index) as f64)).collect()
}

/// Smallest and largest of the values.
fn extremes(values: &[f64]) -> [f64; 2] {
    values.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(*v), high.max(*v)])
}

/// The candidate with the highest value; ties are broken at random.
fn highest(candidates: &[usize], values: &[f64], draw: Draw) -> usize {
    let highest = extremes(values)[1];
    let equals: Vec<usize> = candidates
        .iter()
        .zip(values)
        .filter(|(_, value)| **value == highest)
        .map(|(index, _)| *index)
        .collect();
    match equals.as_slice() {
        [only] => *only,
        _ => equals[draw(equals.len())],
    }
}

/// A random candidate, with probability in proportion to its weight.
fn by_weight(candidates: &[usize], weights: &[f64], draw: Draw) -> usize {
    const STEPS: usize = 1 << 20;
    let mut left = weights.iter().sum::<f64>() * draw(STEPS) as f64 / STEPS as f64;
    for (index, weight) in candidates.iter().zip(weights) {
        left -= weight;
        if left < 0.0 {
            return *index;
        }
    }
    candidates[candidates.len() - 1]
}

#[cfg(test)]
mod tests;
