//! The planner, first form: enumerate deployments, keep what fits and keeps the SLO, rank what is left.
//!
//! Knows: steady-state arithmetic on the workload's means, on step times of [`crate::cost`]. Knows nothing about single
//! requests: percentiles of a real queue are the simulator's. The formulas:
//!
//! * period of a step that also carries its share of prefills: `τ(B) = t_decode(B) + B/G · t_prefill`;
//! * requests per second of a replica with B in flight: `B / (G · τ(B))`; TPOT is `τ(B)`;
//! * TTFT: `t_prefill + t_decode(B) + W`, W by Kingman: `ρ/(1 − ρ) · (c_a² + c_s²)/2 · t_prefill`, ρ = rate · t_prefill;
//!   its 99th percentile takes W · ln 100, the tail of an exponential wait.

mod pareto;
mod replica;

pub use pareto::front;

use crate::accelerator::Accelerator;
use crate::bands::{Bands, Means};
use crate::catalog::Catalog;
use crate::cost::Bound;
use crate::deployment::{Deployment, Options};
use crate::error::{Error, Result};
use crate::forecaster::Forecaster;
use crate::model::Model;
use crate::parallelism::{Request, indivisible};
use crate::precision::{KvFormat, WeightFormat};
use crate::spec::{CostKind, Objective, SearchSpec, Slo, Spec};
use crate::workload::{Arrivals, Workload};
use replica::{Load, Replica};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Accelerators that a search spans where the spec does not say.
const DEFAULT_MOST: u64 = 16;

/// The answer of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Deployments looked at.
    pub considered: u64,
    /// Of these, those that fit and keep the SLO under the load.
    pub feasible: u64,
    /// Why the others were left out, with counts.
    pub left_out: Vec<LeftOut>,
    /// What has least of what is minimised.
    pub best: Option<Choice>,
    /// Deployments that no other beats in the objective, TPOT and TTFT at once; best first.
    pub pareto: Vec<Choice>,
    /// Of each accelerator what has least of what is minimised; best first.
    pub by_accelerator: Vec<Choice>,
    /// Of each accelerator the highest rate per accelerator within the SLO; best first.
    pub throughput: Vec<Choice>,
    /// Arithmetic per dollar.
    pub flops_per_dollar: Vec<FlopsPerDollar>,
}

/// A reason and how many deployments it left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// In words.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// One deployment under the workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Catalog id.
    pub accelerator: String,
    /// Accelerators in all.
    pub count: u64,
    /// Tensor parallelism.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Whole copies.
    pub replicas: u64,
    /// Weight format.
    pub weights: String,
    /// KV format.
    pub kv: String,
    /// Requests in flight per replica under the load.
    pub batch: u64,
    /// Requests that fit the memory of one replica at full length.
    pub max_batch: u64,
    /// Time per output token, mean.
    pub tpot_ms: f64,
    /// Time to first token, mean.
    pub ttft_ms: f64,
    /// Time to first token, 99th percentile by the exponential tail.
    pub ttft_p99_ms: f64,
    /// End-to-end latency, mean.
    pub e2el_ms: f64,
    /// Step and prompt at the machine's limits.
    pub limit: Times,
    /// The same as forecast.
    pub forecast: Times,
    /// What binds a decode step.
    pub bound: Bound,
    /// Load as a share of the highest rate that keeps the SLO.
    pub utilization: f64,
    /// Highest rate of the deployment that keeps the SLO.
    pub max_requests_per_s: f64,
    /// The same per accelerator.
    pub qps_per_accelerator: f64,
    /// Output tokens per second at the load.
    pub output_tok_s: f64,
    /// Output tokens per second at the highest rate that keeps the SLO.
    pub max_output_tok_s: f64,
    /// Dollars per hour; none where the catalog has no price.
    pub cost_per_hour: Option<f64>,
    /// Dollars per million output tokens at the load.
    pub cost_per_million_tokens: Option<f64>,
    /// Joules per output token at the load and board power.
    pub joules_per_token: Option<f64>,
    /// Prefill servers of this shape for one decode server, if the two are apart.
    pub prefill_per_decode: f64,
    /// What the means, and the output at the highest rate, may turn out to be; none at the limit.
    pub bands: Option<Bands>,
    /// How to start one replica.
    pub command: String,
}

/// Step and prompt times by one price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// TPOT at the load.
    pub tpot_ms: f64,
    /// One prompt alone.
    pub prefill_ms: f64,
}

/// Peak 16-bit operations that a dollar buys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlopsPerDollar {
    /// Catalog id.
    pub accelerator: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Peak × 3600 / price.
    pub flops_per_dollar: f64,
}

/// Searches as `spec` says. `progress` hears (done, total) after each replica shape.
pub fn plan(
    spec: &Spec,
    model: &Arc<Model>,
    catalog: &Catalog,
    mut progress: impl FnMut(u64, u64),
) -> Result<Plan> {
    let workload = spec.workload.as_ref().ok_or_else(|| {
        Error::field("spec", "workload", "missing", "[workload] with arrivals, input_len, output_len")
    })?;
    workload.check_steady("spec")?;
    if spec.engine.speculative.is_some() {
        let accepted = "left out: a plan reckons a token a step; `roofcast simulate` runs drafts";
        return Err(Error::field("spec", "engine.speculative", "set", accepted));
    }
    let search = spec.search.clone().unwrap_or_default();
    let chips = chips(&search, catalog, spec.hardware.accelerator.as_deref())?;
    check_formats(&search)?;
    let shapes = shapes(&search, &chips, model);
    let mut found = Search {
        spec,
        workload,
        objective: search.minimise,
        considered: 0,
        left_out: BTreeMap::new(),
        choices: Vec::new(),
    };
    let most = search.max_accelerators.unwrap_or(DEFAULT_MOST);
    for (index, shape) in shapes.iter().enumerate() {
        found.shape(shape, model, most)?;
        progress(index as u64 + 1, shapes.len() as u64);
    }
    Ok(found.finish(&chips))
}

/// One replica shape to look at.
struct Shape {
    chip: Arc<Accelerator>,
    tp: u64,
    pp: u64,
    weights: Option<String>,
    kv: Option<String>,
}

fn chips(search: &SearchSpec, catalog: &Catalog, named: Option<&str>) -> Result<Vec<Arc<Accelerator>>> {
    let names: Vec<&str> = search.accelerators.iter().map(String::as_str).collect();
    let names = if names.is_empty() { named.into_iter().collect() } else { names };
    if names.is_empty() {
        let rented =
            |a: &&Accelerator| a.price.is_some() && ["nvidia", "amd", "google"].contains(&a.vendor.as_str());
        return Ok(catalog.accelerators()?.into_iter().filter(rented).cloned().map(Arc::new).collect());
    }
    names.into_iter().map(|name| catalog.accelerator(name).cloned().map(Arc::new)).collect()
}

fn check_formats(search: &SearchSpec) -> Result<()> {
    search.weights.iter().try_for_each(|w| w.parse::<WeightFormat>().map(drop))?;
    search.kv.iter().filter(|k| *k != "auto").try_for_each(|k| k.parse::<KvFormat>().map(drop))?;
    match search.max_accelerators {
        Some(n) if n == 0 || n > 4096 => Err(Error::field("spec", "search.max_accelerators", n, "1 to 4096")),
        _ => Ok(()),
    }
}

/// Every replica shape: tp within a node, pipeline stages over whole nodes, each weight and KV format.
fn shapes(search: &SearchSpec, chips: &[Arc<Accelerator>], model: &Model) -> Vec<Shape> {
    let choices =
        |list: &[String]| if list.is_empty() { vec![None] } else { list.iter().cloned().map(Some).collect() };
    let most = search.max_accelerators.unwrap_or(DEFAULT_MOST);
    let mut shapes = Vec::new();
    for chip in chips {
        for size in chip.sizes(most) {
            let tp = size.min(chip.node_size);
            let pp = size / tp;
            let legal = indivisible(model, tp).is_none() && pp <= model.layers.len() as u64;
            if !legal || !(search.tp.is_empty() || search.tp.contains(&tp)) {
                continue;
            }
            for weights in choices(&search.weights) {
                for kv in choices(&search.kv) {
                    shapes.push(Shape { chip: Arc::clone(chip), tp, pp, weights: weights.clone(), kv });
                }
            }
        }
    }
    shapes
}

struct Search<'a> {
    spec: &'a Spec,
    workload: &'a Workload,
    objective: Objective,
    considered: u64,
    left_out: BTreeMap<String, u64>,
    choices: Vec<Choice>,
}

impl Search<'_> {
    /// Looks at every number of replicas of one shape.
    fn shape(&mut self, shape: &Shape, model: &Arc<Model>, most: u64) -> Result<()> {
        let mut options = Options::of(self.spec);
        options.precision.weights = shape.weights.clone().or(options.precision.weights);
        options.precision.kv = shape.kv.clone().or(options.precision.kv);
        options.parallelism = Request { tp: Some(shape.tp), pp: Some(shape.pp), ..Request::default() };
        let counts = most / (shape.tp * shape.pp);
        self.considered += counts;
        let deployment = match Deployment::resolve(Arc::clone(model), Arc::clone(&shape.chip), &options) {
            Ok(deployment) => deployment,
            Err(e @ Error::NoRate { .. }) => {
                self.leave(e.to_string(), counts);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let forecaster = Forecaster::embedded(deployment)?;
        let replica = Replica::new(&forecaster, self.workload, self.spec.engine.cost);
        if replica.max_batch == 0 {
            self.leave(format!("{}: weights or one request do not fit", shape.chip.id), counts);
            return Ok(());
        }
        for replicas in 1..=counts {
            match self.choice(&replica, replicas) {
                Ok(choice) => self.choices.push(choice),
                Err(reason) => self.leave(format!("{}: {reason}", shape.chip.id), 1),
            }
        }
        Ok(())
    }

    fn leave(&mut self, reason: String, count: u64) {
        *self.left_out.entry(reason).or_default() += count;
    }

    /// The deployment of `replicas` such replicas under the load, or why it is no answer.
    fn choice(&self, replica: &Replica, replicas: u64) -> Result<Choice, &'static str> {
        let slo = self.spec.slo;
        let top = replica.highest(slo).ok_or("the SLO is missed even by one request at a time")?;
        let load = match &self.workload.arrivals {
            Arrivals::ClosedLoop { concurrency, .. } => {
                let each = concurrency.div_ceil(replicas);
                if each > replica.max_batch {
                    return Err("the requests in flight do not fit");
                }
                replica.at(each)
            }
            arrivals => {
                let each = arrivals.rate().unwrap_or(0.0) / replicas as f64;
                replica.under(each).ok_or("the load is more than it can serve")?
            }
        };
        if !load.keeps(slo) {
            return Err("the SLO is missed");
        }
        let offered = self.workload.arrivals.rate().unwrap_or(load.requests_per_s * replicas as f64);
        Ok(self.describe(replica, replicas, &load, &top, offered))
    }

    fn describe(&self, replica: &Replica, replicas: u64, load: &Load, top: &Load, offered: f64) -> Choice {
        let d = &replica.forecaster.deployment;
        let count = d.parallelism.count() * replicas;
        let output = self.workload.output_mean();
        let output_tok_s = offered * output;
        let per_hour = d.accelerator.price.as_ref().map(|p| p.usd_per_hour * count as f64);
        let most = top.requests_per_s * replicas as f64;
        let limit = replica.times(load.batch, CostKind::Limit);
        let means = Means {
            ttft_ms: load.ttft_ms,
            tpot_ms: load.tpot_ms,
            limit_tpot_ms: limit.tpot_ms,
            e2el_ms: load.e2el_ms,
            output_tok_s: Some(most * output),
        };
        Choice {
            accelerator: d.accelerator.id.clone(),
            count,
            tp: d.parallelism.tp,
            pp: d.parallelism.pp,
            replicas,
            weights: d.weights.clone(),
            kv: d.kv.name.to_owned(),
            batch: load.batch,
            max_batch: replica.max_batch,
            tpot_ms: load.tpot_ms,
            ttft_ms: load.ttft_ms,
            ttft_p99_ms: load.ttft_p99_ms,
            e2el_ms: load.e2el_ms,
            limit,
            forecast: replica.times(load.batch, CostKind::Forecast),
            bound: load.bound,
            utilization: offered / most,
            max_requests_per_s: most,
            qps_per_accelerator: most / count as f64,
            output_tok_s,
            max_output_tok_s: most * output,
            cost_per_hour: per_hour,
            cost_per_million_tokens: per_hour.map(|usd| usd / 3600.0 / output_tok_s * 1e6),
            joules_per_token: d.accelerator.power_w.map(|w| w * count as f64 / output_tok_s),
            prefill_per_decode: load.prefill_per_decode,
            bands: Bands::of(&replica.forecaster.coefficients, self.spec.engine.cost, &means),
            command: command(d),
        }
    }

    fn finish(self, chips: &[Arc<Accelerator>]) -> Plan {
        let objective = self.objective;
        let mut left_out: Vec<_> =
            self.left_out.into_iter().map(|(reason, count)| LeftOut { reason, count }).collect();
        let (ranked, unpriced): (Vec<Choice>, Vec<Choice>) =
            self.choices.into_iter().partition(|c| value(c, objective).is_finite());
        if !unpriced.is_empty() {
            left_out.push(LeftOut {
                reason: "no price or power in the catalog".into(),
                count: unpriced.len() as u64,
            });
        }
        let mut pareto = front(ranked.clone(), |c| vec![value(c, objective), c.tpot_ms, c.ttft_ms]);
        pareto.sort_by(|a, b| order(a, b, objective));
        Plan {
            considered: self.considered,
            feasible: ranked.len() as u64,
            best: pareto.first().cloned(),
            by_accelerator: best_of_each(&ranked, |a, b| order(a, b, objective)),
            throughput: best_of_each(&ranked, |a, b| {
                b.qps_per_accelerator.total_cmp(&a.qps_per_accelerator).then(order(a, b, objective))
            }),
            pareto,
            left_out,
            flops_per_dollar: chips.iter().filter_map(|c| flops_per_dollar(c)).collect(),
        }
    }
}

/// What a choice has of what is minimised.
fn value(choice: &Choice, objective: Objective) -> f64 {
    match objective {
        Objective::CostPerHour => choice.cost_per_hour,
        Objective::CostPerMillionTokens => choice.cost_per_million_tokens,
        Objective::Accelerators => Some(choice.count as f64),
        Objective::Energy => choice.joules_per_token,
    }
    .unwrap_or(f64::INFINITY)
}

/// Least of the objective first; then fewer accelerators, then faster tokens, then the name: a total order.
fn order(a: &Choice, b: &Choice, objective: Objective) -> std::cmp::Ordering {
    let name = |c: &Choice| (c.accelerator.clone(), c.weights.clone(), c.kv.clone(), c.tp, c.pp);
    value(a, objective)
        .total_cmp(&value(b, objective))
        .then(a.count.cmp(&b.count))
        .then(a.tpot_ms.total_cmp(&b.tpot_ms))
        .then(a.ttft_ms.total_cmp(&b.ttft_ms))
        .then(name(a).cmp(&name(b)))
}

/// The first choice of each accelerator by `order`, in that order.
fn best_of_each(choices: &[Choice], order: impl Fn(&Choice, &Choice) -> std::cmp::Ordering) -> Vec<Choice> {
    let mut sorted: Vec<&Choice> = choices.iter().collect();
    sorted.sort_by(|a, b| order(a, b));
    let mut seen = BTreeSet::new();
    sorted.into_iter().filter(|c| seen.insert(c.accelerator.as_str())).cloned().collect()
}

/// Peak 16-bit operations per second × 3600 over the hourly price; none without a price.
pub fn flops_per_dollar(chip: &Accelerator) -> Option<FlopsPerDollar> {
    let usd_per_hour = chip.price.as_ref()?.usd_per_hour;
    let peak = chip.peak(chip.sixteen_bit(crate::precision::Dtype::Bf16)).ok()?;
    Some(FlopsPerDollar {
        accelerator: chip.id.clone(),
        usd_per_hour,
        flops_per_dollar: peak.0 * 3600.0 / usd_per_hour,
    })
}

/// vLLM's command for one replica.
fn command(d: &Deployment) -> String {
    let mut words = vec![
        "vllm serve".to_owned(),
        d.model.name.clone(),
        format!("--tensor-parallel-size {}", d.parallelism.tp),
    ];
    if d.parallelism.pp > 1 {
        words.push(format!("--pipeline-parallel-size {}", d.parallelism.pp));
    }
    match d.weights.as_str() {
        "fp8" if d.model.quantization.is_none() => words.push("--quantization fp8".into()),
        "bf16" | "fp16" => {
            words.push(format!("--dtype {}", if d.weights == "bf16" { "bfloat16" } else { "float16" }))
        }
        _ => {}
    }
    if d.kv.name == "fp8" {
        words.push("--kv-cache-dtype fp8".into());
    }
    words.push(format!("--gpu-memory-utilization {}", d.engine.gpu_memory_utilization));
    words.push(format!("--max-num-seqs {}", d.engine.max_num_seqs));
    words.push(format!("--max-num-batched-tokens {}", d.engine.max_num_batched_tokens));
    words.join(" ")
}

impl Load {
    /// Whether the bounds are kept, on the values that stand for percentiles here.
    fn keeps(&self, slo: Slo) -> bool {
        let within = |value: f64, bound: Option<f64>| bound.is_none_or(|b| value <= b);
        within(self.tpot_ms, slo.tpot_p99_ms)
            && within(self.ttft_p99_ms, slo.ttft_p99_ms)
            && within(self.e2el_ms, slo.e2el_p99_ms)
    }
}
