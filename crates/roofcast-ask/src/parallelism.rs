//! Distribution of a model over the accelerators of a deployment.
//!
//! Knows: the ranks, and the part of the model on each. One replica has `pp` stages of `tp × attention_dp` ranks;
//! whole experts are spread over `ep` of the ranks, and each expert is sliced over the rest (vLLM's rule).

use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Indivisible, Model};
use serde::Serialize;

/// Degrees of parallelism, all at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parallelism {
    /// Degree of tensor parallelism.
    pub tp: u64,
    /// Number of pipeline stages.
    pub pp: u64,
    /// Number of expert-parallel ranks, at most `tp × attention_dp`.
    pub ep: u64,
    /// Degree of attention data parallelism within a replica.
    pub attention_dp: u64,
    /// Number of independent replicas.
    pub replicas: u64,
}

impl Parallelism {
    /// Total number of accelerators.
    pub fn count(&self) -> u64 {
        self.tp * self.pp * self.attention_dp * self.replicas
    }

    /// Number of ranks of one stage, over which experts are distributed.
    pub fn stage_ranks(&self) -> u64 {
        self.tp * self.attention_dp
    }

    /// Resolves a user's request; absent degrees are derived, see [`RequestedParallelism`]. `by_layers` is true if the
    /// engine gives layers to the accelerators of a replica unless it is told otherwise.
    pub(crate) fn resolve(
        request: &RequestedParallelism,
        model: &Model,
        by_layers: bool,
    ) -> Result<Parallelism> {
        let bad =
            |field: &str, found: u64, accepted: String| Error::field("parallelism", field, found, accepted);
        let named = [
            ("tp", request.tp),
            ("pp", request.pp),
            ("ep", request.ep),
            ("attention_dp", request.attention_dp),
            ("replicas", request.replicas),
            ("count", request.count),
        ];
        for (field, value) in named {
            if let Some(v) = value.filter(|v| *v == 0 || *v > 65_536) {
                return Err(bad(field, v, "1 to 65536".into()));
            }
        }
        let replicated = (request.attention_dp.unwrap_or(1) * request.replicas.unwrap_or(1)).max(1);
        let pp = match (request.pp, request.tp, request.count) {
            (Some(pp), ..) => pp,
            (None, None, Some(count)) if by_layers => most_stages(model, count / replicated),
            _ => 1,
        };
        let rest = pp * replicated;
        let several = |degree: Option<u64>| degree.is_some_and(|degree| degree > 1);
        let tp = match (request.tp, request.count) {
            (Some(tp), _) => tp,
            // With expert parallelism and without tp, every rank is an attention data-parallel rank.
            (None, Some(_)) if several(request.ep) || several(request.attention_dp) => 1,
            (None, Some(count)) => widest_tp(model, count / rest),
            (None, None) => 1,
        };
        let ep = request.ep.unwrap_or(1);
        let attention_dp = request.attention_dp.unwrap_or(if ep > tp { ep / tp } else { 1 });
        let replicas = match (request.replicas, request.count) {
            (Some(replicas), _) => replicas,
            (None, Some(count)) => (count / (tp * pp * attention_dp)).max(1),
            (None, None) => 1,
        };
        let all = Parallelism { tp, pp, ep, attention_dp, replicas };
        if let Some(count) = request.count.filter(|c| *c != all.count()) {
            return Err(bad(
                "count",
                count,
                format!(
                    "tp {tp} × pp {pp} × attention_dp {attention_dp} × replicas {replicas} = {}, or a multiple of it",
                    all.count()
                ),
            ));
        }
        all.check(model)?;
        Ok(all)
    }

    fn check(&self, model: &Model) -> Result<()> {
        let bad = |field: &str, found: u64, accepted: String| {
            Err(Error::field("parallelism", field, found, accepted))
        };
        if let Some(heads) = indivisible(model, self.tp) {
            return bad("tp", self.tp, format!("{heads} of {}", model.name));
        }
        if self.pp > model.most_stages() {
            let accepted = match model.passes {
                0 | 1 => format!("at most the {} layers of {}", model.layers.len(), model.name),
                passes => format!("1: a token passes the layers of {} {passes} times", model.name),
            };
            return bad("pp", self.pp, accepted);
        }
        if self.ep > 1 && !model.is_moe() {
            return bad("ep", self.ep, format!("1: {} has no experts", model.name));
        }
        if self.ep > self.stage_ranks() || !self.stage_ranks().is_multiple_of(self.ep) {
            return bad("ep", self.ep, format!("a divisor of tp × attention_dp = {}", self.stage_ranks()));
        }
        Ok(())
    }
}

/// Degrees of parallelism that a user requests; `None` for a derived degree.
///
/// If only `count` is given, `tp` is the widest degree that divides both `count` and the model's heads, and the other
/// accelerators form further replicas; under an engine that splits by layers, each accelerator is a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedParallelism {
    /// Total number of accelerators.
    pub count: Option<u64>,
    /// Degree of tensor parallelism.
    pub tp: Option<u64>,
    /// Number of pipeline stages.
    pub pp: Option<u64>,
    /// Number of expert-parallel ranks.
    pub ep: Option<u64>,
    /// Degree of attention data parallelism.
    pub attention_dp: Option<u64>,
    /// Number of independent replicas.
    pub replicas: Option<u64>,
}

/// Heads of the model that `tp` ranks cannot divide, if there are any.
pub fn indivisible(model: &Model, tp: u64) -> Option<Indivisible> {
    model.layers.iter().find_map(|layer| layer.mixer.indivisible(tp))
}

/// Largest number of pipeline stages that divides `count` and that the model's layers can fill.
fn most_stages(model: &Model, count: u64) -> u64 {
    let stage_limit = model.most_stages().clamp(1, count.max(1));
    (1..=stage_limit).rev().find(|stages| count.is_multiple_of(*stages)).unwrap_or(1)
}

/// Highest degree of tensor parallelism that divides both `count` and the model's heads.
pub(crate) fn widest_tp(model: &Model, count: u64) -> u64 {
    (1..=count.max(1))
        .rev()
        .find(|tp| count.is_multiple_of(*tp) && indivisible(model, *tp).is_none())
        .unwrap_or(1)
}
