//! Stages without simulation: memory, the limit and a steady state on means rule out deployments.
//!
//! Knows: the stages in this order, each with its reason. Knows nothing about simulations.
//!
//! * memory: requests of full length must fit in a replica; if a constant number is in flight and no bound limits their
//!   waiting time, all of them must fit at one time. The engine's own utilization applies.
//! * limit: if the limit of a long prompt, of the shortest step or of the rate already misses the SLO or the load, no
//!   engine can meet it. This stage is exact.
//! * estimate: the steady state on means, with [`SLACK`] granted, misses the SLO or the load. This stage is a forecast;
//!   `--exhaustive` skips it, and a test checks that the best deployment does not change.

use super::demand::TrafficDemand;
use super::estimate::{Estimate, ReplicaRates};
use super::space::{Candidate, CandidatePool, SearchSpace};
use roofcast_ask::deployment::{Deployment, DeploymentOptions};
use roofcast_ask::spec::{MOST_WEIGHT, Metric, SloBound, Spec};
use roofcast_cost::capacity::missing;
use roofcast_cost::forecaster::Forecaster;
use roofcast_cost::memory::Memory;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use roofcast_facts::units::Bytes;
use serde::Serialize;
use std::sync::Arc;

/// Factor by which an estimate must miss a bound to rule a deployment out.
pub(super) const SLACK: f64 = 1.2;
/// Margin for rounding, so that a load exactly at the limit is not ruled out.
const ROUNDING: f64 = 1.001;

/// Stages that judge a deployment, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SearchStage {
    /// Ruled out, because the deployment does not fit in memory.
    Memory,
    /// Ruled out, because the limit misses the SLO.
    Limit,
    /// Ruled out, because the steady state on means misses the SLO.
    Estimate,
    /// Judged by a simulation.
    Simulation,
}

/// The reason why a deployment misses the SLO.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Miss {
    /// The stage that ruled the deployment out.
    pub(crate) stage: SearchStage,
    /// Text of the reason.
    pub reason: String,
    /// Found value over accepted value; above 1.
    pub(crate) factor: f64,
}

/// A shape with the resolved model and its estimate.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    /// Times of the shape; limits if memory does not hold one request.
    pub(super) forecaster: Forecaster,
    pub(super) estimate: Estimate,
}

/// The shapes of a search with their models, and the demand that they must serve.
pub(super) struct Judge<'a> {
    pub(super) spec: &'a Spec,
    pub(super) space: &'a SearchSpace,
    pub(super) demand: &'a TrafficDemand,
    /// For each shape of the space, the resolved model, or the error if formats or parallelism are impossible on the
    /// chip.
    pub(super) fitted: Vec<Result<Fitted, String>>,
}

impl<'a> Judge<'a> {
    /// Resolves `model` on every shape; steps take `slower` times the forecast.
    ///
    /// # Errors
    /// The first shape's error, if no shape can hold the model.
    pub(super) fn new(
        spec: &'a Spec,
        model: &Arc<Model>,
        space: &'a SearchSpace,
        demand: &'a TrafficDemand,
        slower: f64,
    ) -> Result<Judge<'a>> {
        let fit = |shape: &super::space::ReplicaShape| -> Result<Fitted> {
            let deployment = deployment(&shape.spec(spec), model, &shape.chip)?;
            // The kernels of a shape that does not hold a request price nothing.
            if let Some(estimate) = Estimate::of_none(&deployment, demand) {
                return Ok(Fitted { forecaster: Forecaster::ideal(deployment), estimate });
            }
            let forecaster = Forecaster::embedded(deployment)?.under(spec.workload.as_ref())?.slowed(slower);
            let estimate = Estimate::of(&forecaster, demand, spec.engine.cost, &spec.slo, SLACK);
            Ok(Fitted { forecaster, estimate })
        };
        let fitted: Vec<Result<Fitted>> = space.shapes.iter().map(fit).collect();
        let usable = |f: &Result<Fitted>| f.is_ok() || matches!(f, Err(Error::NoRate { .. }));
        if let Some(Err(first)) = fitted.iter().find(|f| f.is_err()).filter(|_| !fitted.iter().any(usable)) {
            return Err(first.clone());
        }
        let fitted = fitted.into_iter().map(|f| f.map_err(|e| e.to_string())).collect();
        Ok(Judge { spec, space, demand, fitted })
    }

    /// True if disaggregated deployments are considered as well.
    pub(super) fn apart(&self) -> bool {
        self.spec.search.as_ref().is_some_and(|search| search.disaggregated)
    }

    /// The estimate for a replica of the shape; `None` if the model cannot be resolved on the shape.
    pub(super) fn estimate(&self, shape: usize) -> Option<&Estimate> {
        self.fitted.get(shape)?.as_ref().ok().map(|fitted| &fitted.estimate)
    }

    /// The miss of a shape whose replica does not hold the model and whole requests; `None` if it holds them.
    pub(super) fn holds(&self, shape: usize) -> Option<Miss> {
        let estimate = self.estimate(shape)?;
        let full = self.demand.full();
        if estimate.held == 0 {
            let gb = self.lacks(shape).as_f64() / 1e9;
            let reason = format!("weights and one request of {full} tokens lack {gb:.1} GB an accelerator");
            let factor = f64::INFINITY;
            return Some(Miss { stage: SearchStage::Memory, reason, factor });
        }
        if let Some(Ok(fitted)) = self.fitted.get(shape)
            && let Err(refused) = Memory::of(&fitted.forecaster.deployment).starts()
        {
            let reason = refused.to_string();
            return Some(Miss { stage: SearchStage::Memory, reason, factor: f64::INFINITY });
        }
        let reason = if estimate.longest.is_some_and(|most| full > most) {
            format!("requests of {full} tokens exceed the longest served")
        } else {
            return None;
        };
        Some(Miss { stage: SearchStage::Memory, reason, factor: f64::INFINITY })
    }

    /// The miss of `candidate` that is known without a simulation; `None` if there is none. With `memory_only`, checks
    /// only memory.
    pub(super) fn miss(&self, candidate: &Candidate, memory_only: bool) -> Option<Miss> {
        let mut pools = candidate.prefill.iter().chain([&candidate.serving]).chain(&candidate.beside);
        let room = pools
            .find_map(|pool| self.holds(pool.shape))
            .or_else(|| self.crowded(candidate, self.demand.users));
        if room.is_some() || memory_only {
            return room;
        }
        self.limit(candidate).or_else(|| self.steady(candidate))
    }

    /// The spec of `candidate`, from `base`. With two kinds of replicas, each gets load in proportion to its rate
    /// within the bound on TPOT.
    pub(super) fn deployed(&self, base: &Spec, candidate: &Candidate) -> Spec {
        let mut spec = self.space.spec(base, candidate);
        let within =
            |pool: CandidatePool| self.estimate(pool.shape).and_then(|e| e.within).map(|(_, rate)| rate);
        let rates = candidate.beside.and_then(|beside| within(beside).zip(within(candidate.serving)));
        let weight = |(beside, serving): (f64, f64)| (beside / serving).clamp(1.0 / MOST_WEIGHT, MOST_WEIGHT);
        spec.fleet.beside_weight = rates.map(|rates| (weight(rates) * 1e3).round() / 1e3);
        spec
    }

    /// Bytes that are missing for weights and one request on the fullest accelerator of a shape's replica.
    pub(super) fn lacks(&self, shape: usize) -> Bytes {
        let fitted = self.fitted.get(shape).and_then(|fitted| fitted.as_ref().ok());
        fitted.map_or(Bytes::ZERO, |f| missing(&Memory::of(&f.forecaster.deployment), self.demand.full(), 1))
    }

    /// The miss if `users` requests are always in flight, do not all fit, and may not wait.
    pub(super) fn crowded(&self, candidate: &Candidate, users: Option<u64>) -> Option<Miss> {
        let slo = &self.spec.slo;
        let each = users?.div_ceil(candidate.serving.replicas);
        let fitting = self.estimate(candidate.serving.shape)?.held;
        let waits = slo.lowest(Metric::Ttft).or(slo.lowest(Metric::E2el)).is_some();
        (!waits && each > fitting).then(|| Miss {
            stage: SearchStage::Memory,
            reason: format!("{each} requests in flight a replica, of which {fitting} fit"),
            factor: each as f64 / fitting as f64,
        })
    }

    fn limit(&self, candidate: &Candidate) -> Option<Miss> {
        let serving = self.estimate(candidate.serving.shape)?;
        let prompts = self.estimate(candidate.prefill.unwrap_or(candidate.serving).shape)?;
        let beside = candidate.beside.and_then(|pool| self.estimate(pool.shape));
        self.limit_of(prompts, serving)
            .or_else(|| beside.and_then(|beside| self.limit_of(beside, beside)))
            .or_else(|| self.rate(candidate, SearchStage::Limit, |e| e.limit_rates, ROUNDING))
    }

    /// The miss if the limit of a prompt on `prompts`, or of a step or an answer on `serving`, misses the SLO.
    fn limit_of(&self, prompts: &Estimate, serving: &Estimate) -> Option<Miss> {
        let stage = SearchStage::Limit;
        let slo = &self.spec.slo;
        let step = serving.step_limit_ms;
        let mut slow = prompts.prompts.iter();
        let prompt =
            slow.find_map(|(bound, p)| exceeds(stage, bound, "a prompt takes", p.limit_ms, bound.ms));
        if prompt.is_some() || !self.a_token_a_step() {
            return prompt;
        }
        let answer = |bound: SloBound| {
            let tokens = self.demand.long_output(slo.kept(&bound));
            exceeds(stage, &bound, "an answer takes", tokens.saturating_sub(1) as f64 * step, bound.ms)
        };
        slo.of(Metric::Tpot)
            .chain(slo.of(Metric::Itl))
            .find_map(|bound| exceeds(stage, &bound, "a step takes", step, bound.ms))
            .or_else(|| slo.of(Metric::E2el).find_map(answer))
    }

    /// True if one replica of a shape can meet the SLO, at the limit and in steady state.
    pub(super) fn keeps(&self, shape: usize) -> bool {
        self.estimate(shape).is_some_and(|e| {
            let prompts = e.prompts.iter().all(|(bound, prompt)| prompt.ms <= bound.ms * 1.02);
            self.limit_of(e, e).is_none() && prompts && e.within.is_some()
        })
    }

    /// The smallest numbers of replicas on each side with which, at the limit, pools of these shapes can serve the
    /// load; `None` if they miss the SLO in any number.
    pub(super) fn least_at_the_limit(&self, prefill: usize, decode: usize) -> Option<[u64; 2]> {
        let pool = |shape| CandidatePool { shape, replicas: u64::MAX };
        let prompts = Some(pool(prefill));
        let serving = pool(decode);
        let largest = Candidate { prefill: prompts, serving, beside: None, accelerators: u64::MAX };
        if self.limit(&largest).is_some() {
            return None;
        }
        let [prompts, others] = [self.estimate(prefill)?.limit_rates, self.estimate(decode)?.limit_rates];
        let enough = |rate: f64| match self.demand.rate {
            Some(offered) => ((offered / (rate * ROUNDING)).ceil() as u64).max(1),
            None => 1,
        };
        Some([enough(prompts.prefill), enough(others.decode)])
    }

    /// True if a step yields exactly one token.
    fn a_token_a_step(&self) -> bool {
        self.spec.engine.speculative.is_none()
    }

    fn steady(&self, candidate: &Candidate) -> Option<Miss> {
        let stage = SearchStage::Estimate;
        if !self.a_token_a_step() {
            return None;
        }
        // Means do not decide a bound that some requests may miss.
        if self.spec.slo.goodput.is_some() {
            return self.rate(candidate, stage, |e| e.rates, SLACK);
        }
        let serving = self.estimate(candidate.serving.shape)?;
        let prompts = self.estimate(candidate.prefill.unwrap_or(candidate.serving).shape)?;
        let mut waits = prompts.prompts.iter();
        let slow = waits.find_map(|(bound, prompt)| {
            exceeds(stage, bound, "a long prompt takes", prompt.ms, bound.ms * 1.02)
        });
        if slow.is_some() {
            return slow;
        }
        let within = if candidate.prefill.is_some() { serving.within_decode } else { serving.within };
        let Some((in_flight, rate)) = within else {
            let reason = "TPOT: even one request at a time is too slow".to_owned();
            return Some(Miss { stage, reason, factor: SLACK });
        };
        if let Some(each) = self.demand.users.map(|users| users.div_ceil(candidate.serving.replicas)) {
            let running = each.min(serving.batch);
            return (running > in_flight).then(|| Miss {
                stage,
                reason: format!("TPOT: {running} requests in flight a replica, of which {in_flight} keep it"),
                factor: running as f64 / in_flight as f64,
            });
        }
        // Convert replicas of the other kind to an equivalent number of this kind.
        let beside =
            |pool: CandidatePool| Some(self.estimate(pool.shape)?.within?.1 / rate * pool.replicas as f64);
        let alike = candidate.serving.replicas as f64 + candidate.beside.and_then(beside).unwrap_or(0.0);
        let offered = self.demand.rate? / alike;
        let factor = offered / (rate * SLACK);
        (factor > 1.0)
            .then(|| Miss {
                stage,
                reason: format!("TPOT: {offered:.3} requests/s a replica, of which about {rate:.3} keep it"),
                factor: offered / rate,
            })
            .or_else(|| self.rate(candidate, stage, |e| e.rates, SLACK))
    }

    /// The miss if the load exceeds `slack` times the rate of the pools.
    fn rate(
        &self,
        candidate: &Candidate,
        stage: SearchStage,
        of: fn(&Estimate) -> ReplicaRates,
        slack: f64,
    ) -> Option<Miss> {
        let offered = self.demand.rate?;
        let serving = of(self.estimate(candidate.serving.shape)?);
        let decoders = candidate.serving.replicas as f64;
        let beside = |pool: CandidatePool| Some(of(self.estimate(pool.shape)?).whole * pool.replicas as f64);
        let highest_rate = match candidate.prefill {
            None => serving.whole * decoders + candidate.beside.and_then(beside).unwrap_or(0.0),
            Some(pool) => {
                let prompts = of(self.estimate(pool.shape)?).prefill * pool.replicas as f64;
                prompts.min(serving.decode * decoders)
            }
        };
        (offered > highest_rate * slack).then(|| Miss {
            stage,
            reason: format!("{offered} requests/s come, {highest_rate:.3} can be served"),
            factor: offered / highest_rate,
        })
    }
}

/// The deployment of `spec` on `chip`, by the spec's counting convention.
pub(super) fn deployment(spec: &Spec, model: &Arc<Model>, chip: &Accelerator) -> Result<Deployment> {
    let (options, chip) = DeploymentOptions::of(spec).counted(spec.hardware.convention, chip);
    Deployment::resolve(Arc::clone(model), Arc::new(chip), &options)
}

fn shown(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}

/// The miss of `bound` if `ms` exceeds `most`.
fn exceeds(stage: SearchStage, bound: &SloBound, what: &str, ms: f64, most: f64) -> Option<Miss> {
    let at = if stage == SearchStage::Limit { " at the limit" } else { "" };
    let reason =
        format!("{}: {what} {}{at}, {} are allowed", bound.metric.name(), shown(ms), shown(bound.ms));
    (ms > most).then(|| Miss { stage, reason, factor: ms / bound.ms })
}
