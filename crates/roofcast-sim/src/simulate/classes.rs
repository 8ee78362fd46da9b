//! Results of a run by class of requests.
//!
//! Knows: counts, latencies and goodput of each class, against the SLO of the class, and the part of the machines' time and
//! dollars that its tokens take. Knows nothing about how requests were served.

use super::Simulation;
use super::provision::Provision;
use crate::fleet::results::Results;
use crate::tally::distribution::Distribution;
use roofcast_ask::spec::CostKind;
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::Class;
use roofcast_cost::forecaster::Forecaster;
use roofcast_facts::batch::{Batch, Sequences};
use roofcast_facts::slo::Slo;
use serde::Serialize;

/// Results of one class of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassResults {
    /// Name of the class.
    pub name: String,
    /// LoRA adapter that the class names; `None` if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Number of requests of the class that arrived.
    pub requests: u64,
    /// Number of requests of the class that no engine with these settings could serve.
    pub refused: u64,
    /// Number of requests of the class that a queue limit or a rate limit rejected.
    pub rejected: u64,
    /// Latency bounds of the class.
    pub slo: Slo,
    /// Number of requests that met every bound of the class; `None` if the class has none.
    pub good: Option<u64>,
    /// Latencies and throughput of the class by vLLM's keys, per second of the whole run. Gaps between tokens are not
    /// counted by class.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// The class's part of what the run costs.
    pub expense: ClassExpense,
}

/// The part of a run's cost that a class has: prompts cost the time in which they are computed alone, less what a prefix cache
/// had, and output tokens their part of a decode step of the mean batch, at the class's mean lengths. Time in which machines wait
/// is divided likewise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassExpense {
    /// Share of the run's cost.
    pub share: f64,
    /// Dollars per hour; `None` if a price is unknown.
    pub dollars_per_hour: Option<f64>,
    /// Dollars per request of the class; `None` if a price is unknown.
    pub dollars_per_request: Option<f64>,
    /// Dollars per million output tokens of the class; `None` if a price is unknown.
    pub dollars_per_million_output_tokens: Option<f64>,
}

/// Time in seconds that the prompts and the output tokens of a class take.
type Work = [f64; 2];

/// Time that the completed requests of `results` take in a run of mean batch `batch`. Prompts are computed by `prompts`, tokens
/// decoded by `decodes`.
fn work([prompts, decodes]: [&Forecaster; 2], cost: CostKind, batch: f64, results: &Results) -> Work {
    let [fresh, input, output] = results.mean_tokens();
    let whole = |tokens: f64| tokens.round().max(1.0) as u64;
    let seconds = |forecaster: &Forecaster, batch: &Batch| {
        let timing = forecaster.timing(cost);
        timing.step(timing.model.passes_of(batch).into_iter()).total()
    };
    let prompt = Batch { groups: vec![Sequences::prompt(whole(fresh), whole(input), true)] };
    let replicas = decodes.deployment.parallelism.replicas;
    let step = Batch::decode(whole(batch) * replicas, whole(input + output / 2.0));
    let each = (output - 1.0).max(0.0) * seconds(decodes, &step) / (whole(batch) * replicas) as f64;
    [seconds(prompts, &prompt), each].map(|each| each * results.completed as f64)
}

/// Expenses of classes whose requests took `all`. `pools` has dollars per hour of replicas that compute prompts and of replicas that
/// decode, if they are separate.
fn expenses(
    all: &[Work],
    pools: Option<[f64; 2]>,
    run: &Simulation,
    results: &[Results],
) -> Vec<ClassExpense> {
    let sums = [0, 1].map(|part| all.iter().map(|work| work[part]).sum::<f64>());
    let weights = match pools {
        Some([prompts, decodes]) => [prompts, decodes].map(|usd| usd / (prompts + decodes)),
        None => sums.map(|sum| sum / (sums[0] + sums[1])),
    };
    let share = |work: &Work| {
        let parts =
            [0, 1].map(|part| if sums[part] > 0.0 { weights[part] * work[part] / sums[part] } else { 0.0 });
        parts[0] + parts[1]
    };
    let hours = run.summary.duration / 3600.0;
    let expense = |(work, results): (&Work, &Results)| {
        let share = share(work);
        let usd = run.expense.dollars_per_hour.map(|usd| usd * share);
        let [_, _, output] = results.mean_tokens();
        let per = |count: f64| usd.filter(|_| count > 0.0).map(|usd| usd * hours / count);
        ClassExpense {
            share,
            dollars_per_hour: usd,
            dollars_per_request: per(results.completed as f64),
            dollars_per_million_output_tokens: per(output * results.completed as f64 / 1e6),
        }
    };
    all.iter().zip(results).map(expense).collect()
}

/// Results of `classes` in `run` on the replicas of `provision`.
pub(super) fn results(
    classes: &[Class],
    results: &[Results],
    provision: &Provision,
    run: &Simulation,
) -> Vec<ClassResults> {
    let prompts = provision.prefill.as_ref().unwrap_or(&provision.serving);
    let forecasters = [&prompts.forecaster, &provision.serving.forecaster];
    let works: Vec<Work> =
        results.iter().map(|class| work(forecasters, run.cost, run.activity.mean_running, class)).collect();
    let pools = run.fleet.prefill.as_ref().and_then(|pool| {
        Some([pool.dollars_per_hour?, run.fleet.serving.dollars_per_hour?])
            .filter(|usd| usd[0] + usd[1] > 0.0)
    });
    let expenses = expenses(&works, pools, run, results);
    let duration = run.summary.duration;
    let class_results = |((class, results), expense): ((&Class, &Results), ClassExpense)| {
        let summary = RunSummary { duration, ..results.summary(&Distribution::default()) };
        let requests = results.judged;
        let good = summary.good;
        ClassResults {
            name: class.name.clone(),
            adapter: class.adapter.clone(),
            requests,
            refused: results.refused,
            rejected: results.rejected,
            slo: class.slo,
            good,
            summary,
            expense,
        }
    };
    classes.iter().zip(results).zip(expenses).map(class_results).collect()
}
