//! Choices of the policies: recorded from the real routers, or by hand.

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

/// Choices among three replicas by recorded ones, in a table of sent and ended requests: event, request, number of the text that
/// begins the prompt, tokens of that text, tokens of the prompt, replica.
fn repeats(routing: Routing, recorded: &str) -> usize {
    let mut router = Router::new(routing, 1).weighing_caches(RoutingSpec::default(), 16);
    let mut loads = Reported(vec![[0; 5]; 3]);
    let mut served: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    for line in recorded.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |cell: usize| cells[cell].parse::<u64>();
        let request = number(1).unwrap();
        if cells[0] == "end" {
            let (replica, tokens) = served[&request];
            loads.0[replica][0] -= 1;
            loads.0[replica][2] -= tokens;
            continue;
        }
        let length = number(3).unwrap() as u32;
        let prompt = number(2).map_or(Prompt::Own, |text| Prompt::Shared { segment: text as u32, length });
        let input = number(4).unwrap();
        let routed = RoutedRequest { user: 0, prompt: &prompt, input, adapter: 0 };
        let chosen = router.choose_by_cache(&routed, &loads, &[0, 1, 2]);
        assert_eq!(chosen as u64, number(5).unwrap(), "{line}");
        loads.0[chosen][0] += 1;
        loads.0[chosen][2] += input;
        served.insert(request, (chosen, input));
    }
    served.len()
}

/// 121 choices of each real router among three stubs: prompts of 160 to 3,200 characters (`sglang-router` 0.3.2) or tokens
/// (`vllm-router` 0.1.17), of which 0 to 480 begin one of four texts; a request ends when a line says so. The stubs publish no
/// KV events and send nothing before a request's end, so that `kv_aware` finds no cached block and every prompt waits; there the
/// requests of a replica end in the order in which they were sent.
#[test]
fn routers_choose_as_the_real_ones_did() {
    for (routing, recorded) in [
        (Routing::CacheAware, include_str!("../sglang-router-0.3.2.csv")),
        (Routing::VllmCacheAware, include_str!("../vllm-router-0.1.17.csv")),
        (Routing::KvAware, include_str!("../vllm-router-0.1.17-kv-aware.csv")),
    ] {
        assert_eq!(repeats(routing, recorded), 121, "{}", routing.name());
    }
}

/// 1600 tokens in blocks of 16. Replica A has 2 requests and none of the prompt; B has 9 and 1280 tokens. The products are 1600
/// × 3 = 4800 and 320 × 10 = 3200; with 15 requests B's is 320 × 16 = 5120.
#[test]
fn products_weigh_uncached_tokens_and_requests() {
    for routing in [Routing::Lmetric, Routing::KvAware] {
        let with = |requests| [[2, 0, 0, 0, 0], [requests, 0, 0, 0, 1280]];
        assert_eq!(chosen(routing, RoutingSpec::default(), 1600, &with(9)), 1);
        assert_eq!(chosen(routing, RoutingSpec::default(), 1600, &with(15)), 0);
        // Idle replicas of equal caches: the first.
        assert_eq!(chosen(routing, RoutingSpec::default(), 1600, &[[0; 5]; 3]), 0);
    }
}

/// A prompt of 1600 tokens that is cached whole has its last block to prefill, 16 tokens, under `kv_aware`, and its last token
/// under LMetric: with 7 requests 16 × 8 = 128 and 1 × 8 = 8. An idle replica that has all but 100 tokens, in blocks all but
/// 112, is chosen by the first (112) and not by the second (100).
#[test]
fn the_block_of_the_last_token_is_prefilled() {
    let reported = [[7, 0, 0, 0, 1600], [0, 0, 0, 0, 1500]];
    assert_eq!(chosen(Routing::KvAware, RoutingSpec::default(), 1600, &reported), 1);
    assert_eq!(chosen(Routing::Lmetric, RoutingSpec::default(), 1600, &reported), 0);
}

/// 800 tokens of 1600 on the host of replica B, which has 7 waiting requests, count 0.8 each under `kv_aware`: 960 tokens to
/// prefill, 640 fewer than on A, and none under LMetric. With 4 requests on B the products are 1600 × 3 and 960 × 5, equal,
/// so that A is chosen; with 3 they are 4800 and 3840.
#[test]
fn kv_aware_credits_the_host() {
    let reported = |requests| [[2, 0, 0, 0, 0], [requests, 7, 0, 0, 0]];
    let choice = |routing, requests| chosen(routing, RoutingSpec::default(), 1600, &reported(requests));
    assert_eq!(
        [choice(Routing::KvAware, 4), choice(Routing::KvAware, 3), choice(Routing::Lmetric, 3)],
        [0, 1, 0]
    );
    let whole = RoutingSpec { kv_penalty_host: 1.0, ..RoutingSpec::default() };
    assert_eq!(chosen(Routing::KvAware, whole, 1600, &reported(4)), 1);
}

/// Prompts of 1000 tokens, of which replica 0 has 900 cached and replica 1 nothing: 100 × 1 against 1000 × 1, then (100 + 100) ×
/// 2 = 400, (200 + 100) × 3 = 900 and (300 + 100) × 4 = 1600 against 1000: the fourth goes to replica 1. Once replica 0 has
/// answered its prompts with first tokens, and still decodes them, 100 × 4 = 400 against (1000 + 1000) × 2.
#[test]
fn prompts_without_a_first_token_count_with_what_was_uncached() {
    for routing in [Routing::Lmetric, Routing::KvAware] {
        let mut router = Router::new(routing, 1).weighing_caches(RoutingSpec::default(), 100);
        let prompt = Prompt::Own;
        let routed = RoutedRequest { user: 0, prompt: &prompt, input: 1000, adapter: 0 };
        let mut loads = Reported(vec![[0, 0, 0, 0, 900], [0; 5]]);
        let mut send = |loads: &mut Reported| {
            let to = router.choose_by_cache(&routed, loads, &[0, 1]);
            loads.0[to][0] += 1;
            loads.0[to][2] += 1000;
            to
        };
        assert_eq!([(); 4].map(|()| send(&mut loads)), [0, 0, 0, 1]);
        loads.0[0][2] = 0;
        assert_eq!(send(&mut loads), 0);
    }
}

/// Products 400 (112 of 512 tokens are cached) and 512 with temperature 100: weights 1 and e^-1.12.
#[test]
fn kv_aware_draws_by_its_own_temperature() {
    let settings = RoutingSpec { router_temperature: 100.0, ..RoutingSpec::default() };
    let reported = Reported(vec![[0, 0, 0, 0, 112], [0; 5]]);
    let prompt = Prompt::Own;
    let request = RoutedRequest { user: 0, prompt: &prompt, input: 512, adapter: 0 };
    let mut fresh = Router::new(Routing::KvAware, 7).weighing_caches(settings, 16);
    let mut second = 0;
    for _ in 0..10_000 {
        second += fresh.choose_by_cache(&request, &reported, &[0, 1]);
    }
    let expected = 10_000.0 / (1.0 + std::f64::consts::E.powf(1.12));
    assert!((second as f64 - expected).abs() < 200.0, "{second} of {expected}");
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
