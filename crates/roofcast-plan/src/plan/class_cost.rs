//! The parts of a deployment's cost that classes of requests have.
//!
//! Knows: the shares of a simulation, at the offered load. Knows nothing about how shares are computed.

use roofcast_sim::simulate::{ClassResults, Simulation};
use serde::Serialize;

/// The part of a deployment's cost that a class of requests has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassCost {
    /// Name of the class.
    pub name: String,
    /// Share of the cost: prompts by the time in which they are computed alone, output tokens by their part of a decode step.
    pub share: f64,
    /// Dollars per request of the class, at the offered load; `None` if the catalog has no price.
    pub dollars_per_request: Option<f64>,
}

impl ClassCost {
    /// The costs of the classes of `run` on a deployment of `dollars` per hour that serves `requests_per_s`.
    pub(super) fn of(run: &Simulation, dollars: Option<f64>, requests_per_s: f64) -> Vec<ClassCost> {
        let class = |class: &ClassResults| {
            let part = class.summary.completed as f64 / run.summary.completed.max(1) as f64;
            let usd = dollars.map(|usd| usd / 3600.0 * class.expense.share / (requests_per_s * part));
            ClassCost {
                name: class.name.clone(),
                share: class.expense.share,
                dollars_per_request: usd.filter(|usd| usd.is_finite()),
            }
        };
        run.classes.iter().map(class).collect()
    }
}
