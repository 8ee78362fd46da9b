//! The engine: leaping is stepping, both are vLLM's scheduler, nothing is lost.

use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::deployment::{Deployment, Options};
use roofcast::engine::Engine;
use roofcast::engine::clock::Ticks;
use roofcast::engine::config::{Config, Preemption, Reservation};
use roofcast::engine::decodes::{Decodes, Each, Lockstep};
use roofcast::engine::price::Price;
use roofcast::engine::queue::Order;
use roofcast::engine::state::Arrival;
use roofcast::scheduler::{Policy, token_budget::TokenBudget};
use roofcast::simulate::{Results, Source, run};
use roofcast::spec::{CostKind, Slo};
use roofcast::units::Picoseconds;
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests in order of arrival; a closed loop's users send their next when the last ended.
struct Listed {
    due: VecDeque<Arrival>,
    later: VecDeque<Arrival>,
}

impl Source for Listed {
    fn peek(&self) -> Option<Ticks> {
        self.due.front().map(|a| a.at)
    }
    fn next(&mut self) -> Option<Arrival> {
        self.due.pop_front()
    }
    fn closed(&self) -> bool {
        !self.later.is_empty()
    }
    fn completed(&mut self, _user: u32, at: Ticks) {
        if let Some(next) = self.later.pop_front() {
            let place = self.due.partition_point(|a| a.at <= at);
            self.due.insert(place, Arrival { at, ..next });
        }
    }
}

fn deployment(name: &str) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    Deployment::resolve(model(name), accelerator, &Options::default()).unwrap()
}

fn config(blocks: u64, block_size: u32, seqs: u64, budget: u32) -> Config {
    Config {
        blocks,
        block_size,
        max_num_seqs: seqs,
        max_num_batched_tokens: budget,
        max_model_len: 1 << 20,
        enable_chunked_prefill: true,
        scheduler_reserve_full_isl: true,
        watermark_blocks: 0,
        order: Order::Arrival,
        reservation: Reservation::Grow,
        preemption: Preemption::Recompute,
        swap_tokens: 0,
    }
}

fn simulate<D: Decodes>(
    config: &Config,
    price: &Price,
    requests: &[(u64, u32, u32)],
    users: usize,
) -> (Results, Engine<D>) {
    let mut engine = Engine::<D>::new(config.clone(), Policy::Vllm(TokenBudget), price.clone(), Ticks::ZERO);
    let arrivals = requests.iter().enumerate().map(|(i, (us, input, output))| Arrival {
        number: i as u64,
        at: Ticks::from(Picoseconds(us * 1_000_000)),
        input: *input,
        output: *output,
        ..Arrival::default()
    });
    let mut due: VecDeque<Arrival> = arrivals.collect();
    let later = if users > 0 { due.split_off(users.min(due.len())) } else { VecDeque::new() };
    due.make_contiguous().sort_by_key(|a| a.at);
    let mut source = Listed { due, later };
    let mut results = Results::new(Slo::default(), true);
    run(&mut engine, &mut source, &mut results).unwrap();
    (results, engine)
}

fn agree(config: &Config, price: &Price, requests: &[(u64, u32, u32)], users: usize) {
    let (each, stepping) = simulate::<Each>(config, price, requests, users);
    let (leap, leaping) = simulate::<Lockstep>(config, price, requests, users);
    let pairs = each.records.iter().flatten().zip(leap.records.iter().flatten());
    if let Some((a, b)) = pairs.clone().find(|(a, b)| a != b) {
        panic!("stepping {}\nleaping  {}", a.to_line(), b.to_line());
    }
    let (a, b) = (&stepping.state.tally, &leaping.state.tally);
    assert_eq!((a.steps, a.preemptions, a.scheduled_tokens), (b.steps, b.preemptions, b.scheduled_tokens));
    assert_eq!(
        (a.token_steps, a.running_steps, a.blocks_peak),
        (b.token_steps, b.running_steps, b.blocks_peak)
    );
    assert_eq!((&a.itl, &a.decodes, a.waiting_peak), (&b.itl, &b.decodes, b.waiting_peak));
    // Nothing is lost, nothing ends twice, every token is paid for, every block comes back.
    let ids: std::collections::BTreeSet<u64> = leap.records.iter().flatten().map(|r| r.id).collect();
    assert_eq!((ids.len(), leap.completed + leap.refused), (requests.len(), requests.len() as u64));
    let served: u64 = leap
        .records
        .iter()
        .flatten()
        .filter(|r| r.first_token.is_some())
        .map(|r| r.input_len + r.output_len - 1)
        .sum();
    assert_eq!(b.scheduled_tokens, served + b.recomputed_tokens);
    assert_eq!(leaping.state.free(), config.blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn leaping_is_stepping(
        requests in proptest::collection::vec((0_u64..3_000_000, 1_u32..600, 1_u32..300), 1..60),
        blocks in 60_u64..400,
        block_size in prop_oneof![Just(1_u32), Just(8), Just(16), Just(32)],
        seqs in 1_u64..40,
        budget in 40_u32..700,
        users in prop_oneof![Just(0_usize), 1_usize..20],
        chunked in any::<bool>(),
        reserve in any::<bool>(),
        windowed in any::<bool>(),
    ) {
        let deployment = deployment(if windowed { "openai/gpt-oss-20b" } else { "meta-llama/Llama-3.1-8B-Instruct" });
        let price = Price::new(&deployment, CostKind::Forecast);
        let config = Config {
            enable_chunked_prefill: chunked,
            scheduler_reserve_full_isl: reserve,
            ..config(blocks, block_size, seqs, budget)
        };
        agree(&config, &price, &requests, users);
    }
}
