//! The engine: leaping is stepping, both are vLLM's scheduler, nothing is lost.

use super::support::{catalog, model};
use proptest::prelude::*;
use roofcast::deployment::{Deployment, Options};
use roofcast::engine::Engine;
use roofcast::engine::clock::Ticks;
use roofcast::engine::config::Config;
use roofcast::engine::decodes::{Decodes, Each, Lockstep};
use roofcast::engine::price::Price;
use roofcast::engine::state::Arrival;
use roofcast::scheduler::Policy;
use roofcast::simulate::{Results, Source, run};
use roofcast::spec::{
    CostKind, EngineSpec, PreemptionMode, QueuePolicy, ReservationKind, SchedulerKind, Slo,
};
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

fn deployment(name: &str, engine: EngineSpec) -> Deployment {
    let accelerator = Arc::new(catalog().accelerator("h100-sxm").unwrap().clone());
    Deployment::resolve(model(name), accelerator, &Options { engine, ..Options::default() }).unwrap()
}

fn simulate<D: Decodes>(
    setting: &(Config, Policy),
    price: &Price,
    requests: &[(u64, u32, u32)],
    users: usize,
) -> (Results, Engine<D>) {
    let swap = Ticks::from(Picoseconds(5_000));
    let mut engine = Engine::<D>::new(setting.0.clone(), setting.1.clone(), price.clone(), swap);
    let arrivals = requests.iter().enumerate().map(|(i, (us, input, output))| Arrival {
        number: i as u64,
        at: Ticks::from(Picoseconds(us * 1_000_000)),
        input: *input,
        output: *output,
        key: i64::from(*output),
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

fn agree(setting: &(Config, Policy), price: &Price, requests: &[(u64, u32, u32)], users: usize) {
    let (each, stepping) = simulate::<Each>(setting, price, requests, users);
    let (leap, leaping) = simulate::<Lockstep>(setting, price, requests, users);
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
    assert_eq!(b.scheduled_tokens, served + b.recomputed_tokens + b.idle_tokens);
    assert_eq!(leaping.state.free(), setting.0.blocks);
}

fn schedulers() -> impl Strategy<Value = EngineSpec> {
    use SchedulerKind::*;
    let kinds = [
        Static,
        Orca,
        VllmV0,
        Vllm,
        Vllm,
        Vllm,
        Sarathi,
        Splitfuse,
        Lightllm,
        Sglang,
        LlamaCpp,
        TensorrtLlm,
        TensorrtLlmMaxUtilization,
    ];
    let sizes = (60_u64..400, 1_u64..40, 40_u64..700, any::<bool>(), 0_usize..3, 0_usize..3);
    (proptest::sample::select(kinds.to_vec()), sizes).prop_map(|(scheduler, sizes)| {
        let (blocks, seqs, budget, flag, order, reservation) = sizes;
        let plain = matches!(scheduler, Vllm | Splitfuse);
        let size = match scheduler {
            Vllm => [1, 8, 16][order],
            Lightllm => 1,
            _ => 16,
        };
        EngineSpec {
            scheduler,
            num_gpu_blocks: Some(if size == 1 { blocks * 16 } else { blocks }),
            block_size: Some(size),
            max_num_seqs: Some(seqs),
            max_num_batched_tokens: plain.then_some(budget),
            enable_chunked_prefill: (scheduler == Vllm).then_some(flag),
            scheduler_reserve_full_isl: plain.then_some(!flag),
            policy: [QueuePolicy::Fcfs, QueuePolicy::Fcfs, QueuePolicy::Sjf][order],
            preemption_mode: if scheduler == VllmV0 && flag {
                PreemptionMode::Swap
            } else {
                PreemptionMode::Recompute
            },
            swap_space: Some(0.05),
            reservation: match scheduler {
                Static | Orca => {
                    [ReservationKind::Max, ReservationKind::Pow2, ReservationKind::Oracle][reservation]
                }
                _ => ReservationKind::Max,
            },
            max_model_len: matches!(scheduler, Static | Orca | LlamaCpp).then_some(900),
            ..EngineSpec::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn leaping_is_stepping(
        requests in proptest::collection::vec((0_u64..3_000_000, 1_u32..600, 1_u32..300), 1..60),
        spec in schedulers(),
        users in prop_oneof![Just(0_usize), 1_usize..20],
        windowed in any::<bool>(),
    ) {
        let name = if windowed { "openai/gpt-oss-20b" } else { "meta-llama/Llama-3.1-8B-Instruct" };
        let deployment = deployment(name, spec);
        let price = Price::new(&deployment, CostKind::Forecast);
        agree(&Config::resolve(&deployment, 1000).unwrap(), &price, &requests, users);
    }
}
