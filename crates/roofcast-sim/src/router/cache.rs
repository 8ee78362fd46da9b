//! Routing policies that weigh cached prefixes against load.
//!
//! Knows: the formulas and settings ([`RoutingSpec`]) of NVIDIA Dynamo's KV router, llm-d's inference scheduler,
//! SGLang's model gateway and vLLM production stack's `kvaware`. Dynamo, llm-d and `kvaware` read the replicas' caches
//! (KV events that arrive at once, or late by [`RoutingSpec::event_delay_s`]); SGLang's gateway remembers the prompts
//! that it sent, and breaks ties by the order of its workers; the others break them at random. Knows nothing about tokenization in the router, or caches below vLLM's host
//! tier.

use super::Routing;
use super::history::History;
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
}

/// Function that returns a random number below a count.
type Draw<'a> = &'a mut dyn FnMut(usize) -> usize;

impl CachePolicy {
    pub(super) fn new(routing: Routing, settings: RoutingSpec, block: u64) -> CachePolicy {
        CachePolicy { routing, settings, block: block as f64, history: History::default() }
    }

    /// Records that request `asked` was sent to replica `chosen`.
    pub(super) fn sent(&mut self, asked: &RoutedRequest, chosen: usize) {
        if self.routing == Routing::CacheAware {
            self.history.insert(chosen, asked.prompt);
        }
    }

    /// Chooses one of at least two candidates: the one with the highest value, or, with Dynamo's temperature, a random
    /// one by the softmax of the values over their range.
    pub(super) fn choose(
        &self,
        asked: &RoutedRequest,
        replicas: &dyn Replicas,
        candidates: &[usize],
        draw: Draw,
    ) -> usize {
        if self.routing == Routing::CacheAware {
            return self.holder_or_idlest(asked, replicas, candidates);
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
        let longest = candidates
            .iter()
            .filter_map(matched)
            .max_by_key(|(found, _)| (found.tokens, Reverse(found.since)));
        let holder =
            longest.filter(|(found, _)| found.tokens as f64 > s.cache_threshold * asked.input as f64);
        holder.map_or(idlest, |(_, index)| index)
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
mod tests {
    use super::*;
    use crate::router::Router;
    use std::collections::{BTreeMap, BTreeSet};

    /// For each replica: requests in flight, waiting requests, queued prompt tokens, blocks in use of 1000, cached
    /// tokens. A replica with 7 waiting requests has 800 tokens more on its host.
    /// Adapter n runs on replica n, with room for two; adapter 5 waits on replica 1.
    struct Reported(Vec<[u64; 5]>);

    impl Replicas for Reported {
        fn in_flight(&self, index: usize) -> u64 {
            self.0[index][0]
        }
        fn waiting(&self, index: usize) -> u64 {
            self.0[index][1]
        }
        fn prompt_tokens(&self, index: usize) -> u64 {
            self.0[index][2]
        }
        fn blocks(&self, index: usize) -> (u64, u64) {
            (self.0[index][3], 1000)
        }
        fn cached(&self, index: usize) -> u64 {
            self.0[index][4]
        }
        fn cached_on_host(&self, index: usize) -> u64 {
            if self.0[index][1] == 7 { 800 } else { 0 }
        }
        fn adapters(&self, index: usize) -> NamedAdapters {
            let waiting = if index == 1 { [5].into() } else { BTreeSet::new() };
            NamedAdapters { running: [index as u32].into(), waiting, most: 2 }
        }
    }

    fn chosen(routing: Routing, settings: RoutingSpec, input: u64, reported: &[[u64; 5]]) -> usize {
        let mut router = Router::new(routing, 1).weighing_caches(settings, 16);
        let prompt = Prompt::Shared { segment: 1, length: input as u32 };
        let candidates: Vec<usize> = (0..reported.len()).collect();
        let request = RoutedRequest { user: 0, prompt: &prompt, input, adapter: 0 };
        router.choose_by_cache(&request, &Reported(reported.to_vec()), &candidates)
    }

    #[test]
    fn dynamo_weighs_uncached_blocks_against_blocks_in_use() {
        // 1600 tokens are 100 blocks of 16. Replica A: no cached blocks, 10 blocks in use: 100 + 10 = 110. Replica B:
        // 80 blocks cached, 85 in use: 20 + 85 = 105. With half the credit the cost of B is 60 + 85 = 145.
        let reported = [[1, 0, 0, 10, 0], [4, 0, 0, 85, 1280]];
        let whole = RoutingSpec::default();
        assert_eq!(chosen(Routing::DynamoKv, whole, 1600, &reported), 1);
        let half = RoutingSpec { overlap_score_credit: 0.5, ..whole };
        assert_eq!(chosen(Routing::DynamoKv, half, 1600, &reported), 0);
    }

    #[test]
    fn llm_d_adds_prefix_queue_and_room() {
        // Replica A: 3 × 0 + 2 × 1 + 2 × 0.9 = 3.8. Replica B: 3 × 0.8 + 2 × 0 + 2 × 0.5 = 3.4. With a prefix weight of
        // 4: 3.8 and 4.2.
        let reported = [[1, 0, 0, 100, 0], [9, 5, 0, 500, 1280]];
        assert_eq!(chosen(Routing::LlmD, RoutingSpec::default(), 1600, &reported), 0);
        let prefix = RoutingSpec { prefix_cache_weight: 4.0, ..RoutingSpec::default() };
        assert_eq!(chosen(Routing::LlmD, prefix, 1600, &reported), 1);
    }

    /// 1600 tokens are 100 blocks of 16, and replica B has 800 tokens, 50 blocks, on its host. Dynamo: A costs 100 + 10
    /// = 110. B costs 100 − 0.75 × 50 + 60 = 122.5 with 60 blocks in use, and 100 − 1 × 50 + 55 = 105 with 55 and a
    /// weight of 1. llm-d: A scores 2 + 2 × 0.99 = 3.98. B scores 2 × 0.945 = 1.89, 3.39 with 3 × 0.5 more, 4.39 with 5
    /// × 0.5 more.
    #[test]
    fn tokens_on_the_host_count() {
        let weighed = |weight| RoutingSpec { host_cache_hit_weight: weight, ..RoutingSpec::default() };
        let reported = [[1, 0, 0, 10, 0], [4, 7, 0, 60, 0]];
        assert_eq!(chosen(Routing::DynamoKv, weighed(0.75), 1600, &reported), 0);
        let reported = [[1, 0, 0, 10, 0], [4, 7, 0, 55, 0]];
        assert_eq!(chosen(Routing::DynamoKv, weighed(1.0), 1600, &reported), 1);
        let any = |weight| RoutingSpec { host_prefix_cache_weight: weight, ..RoutingSpec::default() };
        assert_eq!(chosen(Routing::LlmD, any(3.0), 1600, &reported), 0);
        assert_eq!(chosen(Routing::LlmD, any(5.0), 1600, &reported), 1);
    }

    /// Three equal replicas, of which the affinity alone decides. Adapter 2 runs on replica 2: 1 against 0.8 on replica
    /// 0 and 0 on replica 1, whose adapters 1 and 5 leave no room. Adapter 5 waits on replica 1: 0.6 against 0.8.
    #[test]
    fn llm_d_follows_adapters() {
        let prompt = Prompt::Own;
        let settings = RoutingSpec { lora_affinity_weight: 1.0, ..RoutingSpec::default() };
        let chosen = |adapter, candidates: &[usize]| {
            let mut router = Router::new(Routing::LlmD, 1).weighing_caches(settings, 16);
            let request = RoutedRequest { user: 0, prompt: &prompt, input: 100, adapter };
            router.choose_by_cache(&request, &Reported(vec![[0; 5]; 3]), candidates)
        };
        assert_eq!([chosen(2, &[0, 1, 2]), chosen(2, &[0, 1]), chosen(5, &[0, 1])], [2, 0, 0]);
        let named = |index| Reported(vec![[0; 5]; 3]).adapters(index);
        assert_eq!([affinity(&named(1), 1), affinity(&named(1), 5), affinity(&named(1), 9)], [1.0, 0.6, 0.0]);
        assert_eq!(affinity(&named(0), 9), 0.8);
    }

    #[test]
    fn kvaware_follows_the_cache_up_to_its_threshold() {
        // 5000 tokens with 3200 cached leave 1800 uncached, below 2000; with 2400 cached they leave 2600.
        let near = [[1, 0, 0, 0, 0], [9, 0, 0, 0, 3200]];
        let far = [[1, 0, 0, 0, 0], [9, 0, 0, 0, 2400]];
        assert_eq!(chosen(Routing::Kvaware, RoutingSpec::default(), 5000, &near), 1);
        assert_eq!(chosen(Routing::Kvaware, RoutingSpec::default(), 5000, &far), 0);
    }

    #[test]
    fn the_gateway_follows_its_history_while_loads_are_balanced() {
        let prompt = Prompt::Shared { segment: 1, length: 1000 };
        let request = RoutedRequest { user: 0, prompt: &prompt, input: 1200, adapter: 0 };
        let mut router = Router::new(Routing::CacheAware, 1).weighing_caches(RoutingSpec::default(), 16);
        let idle = Reported(vec![[0; 5]; 3]);
        let first = router.choose_by_cache(&request, &idle, &[0, 1, 2]);
        // 1000 of 1200 tokens match: 0.83 > 0.3.
        assert_eq!(router.choose_by_cache(&request, &idle, &[0, 1, 2]), first);
        // A prompt without a match goes to the first of the idle replicas, whatever it has had.
        let other = Prompt::Shared { segment: 2, length: 1000 };
        let other = RoutedRequest { prompt: &other, ..request };
        assert_eq!(router.choose_by_cache(&other, &idle, &[0, 1, 2]), first);
        // 65 requests more than the least loaded replica, and over 1.5 times as many: the shortest queue is chosen.
        let mut busy = vec![[10, 0, 0, 0, 0]; 3];
        busy[first] = [75, 0, 0, 0, 0];
        assert_ne!(router.clone().choose_by_cache(&request, &Reported(busy.clone()), &[0, 1, 2]), first);
        busy[first] = [74, 0, 0, 0, 0];
        assert_eq!(router.choose_by_cache(&request, &Reported(busy), &[0, 1, 2]), first);
    }

    /// 121 choices of the real gateway among three workers, recorded with `sglang-router` 0.3.2 in front of stubs: prompts
    /// of 160 to 3,200 characters (here tokens), of which 0 to 480 begin one of four texts; a request ends when a line says so.
    #[test]
    fn the_gateway_chooses_as_the_real_one_did() {
        let mut router = Router::new(Routing::CacheAware, 1).weighing_caches(RoutingSpec::default(), 16);
        let mut loads = Reported(vec![[0; 5]; 3]);
        let mut served: BTreeMap<u64, usize> = BTreeMap::new();
        for line in include_str!("sglang-router-0.3.2.csv").lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |cell: usize| cells[cell].parse::<u64>();
            let request = number(1).unwrap();
            if cells[0] == "end" {
                loads.0[served[&request]][0] -= 1;
                continue;
            }
            let length = number(3).unwrap() as u32;
            let prompt =
                number(2).map_or(Prompt::Own, |text| Prompt::Shared { segment: text as u32, length });
            let routed = RoutedRequest { user: 0, prompt: &prompt, input: number(4).unwrap(), adapter: 0 };
            let chosen = router.choose_by_cache(&routed, &loads, &[0, 1, 2]);
            assert_eq!(chosen as u64, number(5).unwrap(), "{line}");
            loads.0[chosen][0] += 1;
            served.insert(request, chosen);
        }
        assert_eq!(served.len(), 121);
    }

    /// Unrelated prompts one by one all go to one replica, in flight together to all alike.
    #[test]
    fn an_idle_fleet_sends_new_prompts_to_one_replica() {
        let spread = |held: bool| {
            let mut router = Router::new(Routing::CacheAware, 1).weighing_caches(RoutingSpec::default(), 16);
            let mut loads = Reported(vec![[0; 5]; 3]);
            let mut counts = [0; 3];
            for segment in 0..30 {
                let prompt = Prompt::Shared { segment, length: 320 };
                let request = RoutedRequest { user: 0, prompt: &prompt, input: 320, adapter: 0 };
                let chosen = router.choose_by_cache(&request, &loads, &[0, 1, 2]);
                counts[chosen] += 1;
                loads.0[chosen][0] += u64::from(held);
            }
            counts
        };
        assert_eq!([spread(false), spread(true)], [[30, 0, 0], [10, 10, 10]]);
    }

    #[test]
    fn a_temperature_draws_among_costs() {
        // Costs 110 and 105, range 5, temperature 1: weights e^-1 and 1, so the more expensive replica is chosen 27 %
        // of the time.
        let reported = Reported(vec![[1, 0, 0, 10, 0], [4, 0, 0, 85, 1280]]);
        let settings = RoutingSpec { router_temperature: 1.0, ..RoutingSpec::default() };
        let mut router = Router::new(Routing::DynamoKv, 7).weighing_caches(settings, 16);
        let prompt = Prompt::Own;
        let request = RoutedRequest { user: 0, prompt: &prompt, input: 1600, adapter: 0 };
        let first = (0..10_000).filter(|_| router.choose_by_cache(&request, &reported, &[0, 1]) == 0).count();
        let expected = 10_000.0 / (1.0 + std::f64::consts::E);
        assert!((first as f64 - expected).abs() < 200.0, "{first} of {expected}");
    }
}
