//! One replica in steady state with the workload's mean lengths: requests that memory holds, limits, and forecast.
//!
//! Knows: with B requests in flight, G output tokens each, and t_prefill for the time that one prompt adds to a step,
//!
//! * a step that also computes its share of prompts takes `τ(B) = t_decode(B) + B/G · t_prefill`, which is the TPOT;
//! * B requests in flight are served at `B / (G · τ(B))` requests per second.
//!
//! At the limit a request takes at least its FLOPs over the peak rate, and at least its KV bytes and its share of the
//! weights in the fullest batch over the bandwidth: a replica's rate is below the inverse of the larger time. Knows
//! nothing about queues, which are simulated.

use super::demand::TrafficDemand;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::{CostKind, Metric, Percentile, Slo, SloBound};
use roofcast_cost::cost::{Terms, Utilization, limit};
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::memory::Memory;
use roofcast_cost::timing::Timing;
use roofcast_facts::batch::Batch;
use roofcast_sim::fleet::Ingest;

/// Most prompts that are computed together when a step's share of prompts is priced.
const MOST_PROMPTS: u64 = 16;

/// Capacity and rates of one replica.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    /// Number of requests of full length that fit in memory.
    pub(super) held: u64,
    /// Tokens of the longest served request; `None` without a bound.
    pub(super) longest: Option<u64>,
    /// Number of requests with mean context that memory and the engine hold.
    pub(super) batch: u64,
    /// Shortest step at the limit in milliseconds.
    pub(super) step_limit_ms: f64,
    /// The long prompt for the highest bounded percentile of TTFT; without such a bound, for the goodput or the 99th
    /// percentile.
    pub(super) prompt: LongPrompt,
    /// The long prompt for every bound on TTFT.
    pub(super) prompts: Vec<(SloBound, LongPrompt)>,
    /// Limit of the requests per second: for whole requests, for prefill only, and for decode only.
    pub(super) limit_rates: ReplicaRates,
    /// Forecast requests per second with the fullest batch.
    pub(super) rates: ReplicaRates,
    /// Forecast prompts per second of a replica for prefill, with a prefix cache without bound.
    uncached_rate: f64,
    /// Number of requests in flight and rate at the highest load whose mean TPOT meets the bound; `None` if one request
    /// already misses it.
    pub(super) within: Option<(u64, f64)>,
    /// Like [`Estimate::within`], for decode only.
    pub(super) within_decode: Option<(u64, f64)>,
}

/// Times in milliseconds of a long prompt that is computed alone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LongPrompt {
    /// Limit of the time in milliseconds.
    pub(super) limit_ms: f64,
    /// Time by the chosen cost model in milliseconds.
    pub(super) ms: f64,
}

/// Requests per second of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReplicaRates {
    pub(super) whole: f64,
    pub(super) prefill: f64,
    pub(super) decode: f64,
}

impl Estimate {
    /// The estimate for a replica whose memory does not hold one request of full length, without times; `None` if it holds one.
    pub(super) fn of_none(deployment: &Deployment, demand: &TrafficDemand) -> Option<Estimate> {
        let nothing = ReplicaRates { whole: 0.0, prefill: 0.0, decode: 0.0 };
        (Memory::of(deployment).sequences(demand.full()) == 0).then(|| Estimate {
            held: 0,
            longest: deployment.longest(),
            batch: 0,
            step_limit_ms: 0.0,
            prompt: LongPrompt::default(),
            prompts: Vec::new(),
            limit_rates: nothing,
            rates: nothing,
            uncached_rate: 0.0,
            within: None,
            within_decode: None,
        })
    }

    /// The estimate for `forecaster`'s replica by the chosen cost model; `slack` is the factor by which TPOT may exceed
    /// its bound.
    pub(super) fn of(
        forecaster: &Forecaster,
        demand: &TrafficDemand,
        cost: CostKind,
        slo: &Slo,
        slack: f64,
    ) -> Estimate {
        let d = &forecaster.deployment;
        let memory = Memory::of(d);
        let fitting = memory.sequences(demand.full());
        let seats = d.seats();
        let batch = memory.sequences(demand.context()).min(seats);
        let ideal = Pricer::new(forecaster, CostKind::Limit, demand);
        let priced = Pricer::new(forecaster, cost, demand);
        let bound = slo.lowest(Metric::Tpot).map(|ms| ms * slack);
        let alone = |kept: f64| {
            let tokens = demand.long_input(kept);
            let server = Ingest::of(forecaster, cost).map_or(0.0, |server| server.alone(tokens).ms());
            LongPrompt { limit_ms: ideal.alone_ms(tokens), ms: priced.alone_ms(tokens) + server }
        };
        let prompts: Vec<(SloBound, LongPrompt)> =
            slo.of(Metric::Ttft).map(|bound| (bound, alone(slo.kept(&bound)))).collect();
        let usual = || alone(slo.goodput.unwrap_or(Percentile::P99.share()));
        Estimate {
            held: fitting,
            longest: d.longest(),
            batch,
            step_limit_ms: ideal.step_ms(1, 1),
            prompt: prompts.first().map_or_else(usual, |(_, prompt)| *prompt),
            prompts,
            limit_rates: limit_rates(d, demand, seats),
            rates: priced.rates(batch),
            uncached_rate: 1e3 / priced.prompt_ms(d, demand.uncached.round().max(1.0) as u64),
            within: priced.highest(batch, bound, true),
            within_decode: priced.highest(batch, bound, false),
        }
    }

    /// Ratio of prefill to decode replicas of this shape that balances the two, if prefill and decode were
    /// disaggregated.
    pub(super) fn prefill_per_decode(&self) -> f64 {
        self.rates.decode / self.uncached_rate
    }
}

/// TPOT in milliseconds in steady state, for each of `users` as the number of requests in flight.
pub(super) fn tpots(
    forecaster: &Forecaster,
    demand: &TrafficDemand,
    cost: CostKind,
    users: &[u64],
) -> Vec<f64> {
    let priced = Pricer::new(forecaster, cost, demand);
    users.iter().map(|batch| priced.tpot_ms(*batch, true)).collect()
}

/// Step times of one deployment by one cost model.
struct Pricer {
    timing: Timing,
    context: u64,
    output: f64,
    /// Time in milliseconds of a prompt that is computed together with others; 0 if it may be in the prefix cache.
    prompt_ms: f64,
}

impl Pricer {
    fn new(forecaster: &Forecaster, cost: CostKind, demand: &TrafficDemand) -> Pricer {
        let d = &forecaster.deployment;
        let timing = forecaster.timing(cost);
        let mut pricer =
            Pricer { timing, context: demand.context(), output: demand.output.max(1.0), prompt_ms: 0.0 };
        let tokens = demand.fresh.round() as u64;
        if tokens > 0 {
            pricer.prompt_ms = pricer.prompt_ms(d, tokens);
        }
        pricer
    }

    /// Time in milliseconds of a prompt of `tokens` tokens that is computed together with others.
    fn prompt_ms(&self, d: &Deployment, tokens: u64) -> f64 {
        let each = (d.engine.max_num_batched_tokens / tokens).clamp(1, MOST_PROMPTS);
        let lanes = d.parallelism.attention_dp * d.parallelism.pp;
        self.ms(&Batch::prefill(each * lanes, tokens)) / (each * lanes) as f64
    }

    fn ms(&self, batch: &Batch) -> f64 {
        self.timing.step(self.timing.model.passes_of(batch).into_iter()).total() * 1e3
    }

    fn step_ms(&self, batch: u64, context: u64) -> f64 {
        self.ms(&Batch::decode(batch, context))
    }

    /// Time in milliseconds of a prompt of `tokens` tokens that is computed alone.
    fn alone_ms(&self, tokens: u64) -> f64 {
        self.ms(&Batch::prefill(1, tokens.max(1)))
    }

    /// TPOT in milliseconds with `batch` requests in flight; `prompts` is true if steps also compute prompts.
    fn tpot_ms(&self, batch: u64, prompts: bool) -> f64 {
        let prompts = if prompts { batch as f64 / self.output * self.prompt_ms } else { 0.0 };
        self.step_ms(batch, self.context) + prompts
    }

    fn rate(&self, batch: u64, prompts: bool) -> f64 {
        batch as f64 / (self.output * self.tpot_ms(batch, prompts)) * 1e3
    }

    fn rates(&self, batch: u64) -> ReplicaRates {
        let batch = batch.max(1);
        ReplicaRates {
            whole: self.rate(batch, true),
            prefill: if self.prompt_ms > 0.0 { 1e3 / self.prompt_ms } else { f64::INFINITY },
            decode: self.rate(batch, false),
        }
    }

    /// The largest number of requests in flight whose TPOT is within `bound`, and their rate. Bisection, because TPOT
    /// grows with the number.
    fn highest(&self, most: u64, bound: Option<f64>, prompts: bool) -> Option<(u64, f64)> {
        let keeps = |batch: u64| bound.is_none_or(|ms| self.tpot_ms(batch, prompts) <= ms);
        let limit = most.max(1);
        if !keeps(1) {
            return None;
        }
        let mut below = 1;
        let mut above = limit + 1;
        if keeps(limit) {
            below = limit;
        }
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if keeps(middle) { below = middle } else { above = middle }
        }
        Some((below, self.rate(below, prompts)))
    }
}

/// Upper bounds of a replica's rates with at most `batch` requests in flight.
fn limit_rates(deployment: &Deployment, demand: &TrafficDemand, batch: u64) -> ReplicaRates {
    let batch = batch.max(1);
    let terms = |batch: &Batch| -> Terms { limit(deployment, batch, Utilization::FULL).terms };
    let tokens = demand.fresh.round() as u64;
    let lanes = deployment.parallelism.attention_dp * deployment.parallelism.pp;
    let prompt_s = match tokens {
        0 => 0.0,
        tokens => terms(&Batch::prefill(lanes, tokens)).flops.seconds() / lanes as f64,
    };
    let step = terms(&Batch::decode(batch, demand.context()));
    // Subtract the first token, which comes with the prefill.
    let tokens = (demand.output - 1.0).max(0.0) / batch as f64;
    let computing = step.flops.seconds() * tokens;
    let moving = (step.weights.seconds() + step.kv.seconds()) * tokens;
    ReplicaRates {
        whole: 1.0 / (prompt_s + computing).max(moving),
        prefill: 1.0 / prompt_s,
        decode: 1.0 / computing.max(moving),
    }
}
