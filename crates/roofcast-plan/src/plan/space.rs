//! The deployments of a search.
//!
//! Knows: the replicas that can be formed on each chip, the numbers of replicas that the search allows, and the spec of
//! a combination. Disaggregated combinations are formed in [`super::apart`]. Knows nothing about performance.

use super::chips::{chips, not_searched};
use super::link::{between, within};
use super::told::{ReplicaSettings, listed, told};
use roofcast_ask::deployment::batch_defaults;
use roofcast_ask::deployment::support;
use roofcast_ask::parallelism::indivisible;
use roofcast_ask::spec::{EngineKind, EngineSpec, PoolSpec, SchedulerKind, SearchSpec, Spec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use roofcast_facts::precision::{KvFormat, WeightFormat};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Default of the most accelerators.
const DEFAULT_MOST: u64 = 16;
/// Default token budgets of a step: the engine's default, a small and a large one.
const BUDGETS: [Option<u64>; 3] = [None, Some(2048), Some(16_384)];

/// Parallelism of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cut {
    /// Tensor-parallel degree.
    pub tp: u64,
    /// Number of pipeline stages.
    pub pp: u64,
    /// Number of expert-parallel ranks.
    pub ep: u64,
    /// Number of data-parallel ranks of attention.
    pub attention_dp: u64,
}

impl Cut {
    /// Number of accelerators of a replica.
    pub(crate) fn ranks(&self) -> u64 {
        self.tp * self.pp * self.attention_dp
    }
}

impl fmt::Display for Cut {
    /// Writes the tensor-parallel degree and all other degrees above one: `tp 4 pp 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tp {}", self.tp)?;
        let others = [("pp", self.pp), ("dp", self.attention_dp), ("ep", self.ep)];
        others.into_iter().filter(|(_, n)| *n > 1).try_for_each(|(name, n)| write!(f, " {name} {n}"))
    }
}

/// One replica: a chip, formats, parallelism and the scheduler's settings; the spec applies to `None` values.
#[derive(Debug, Clone)]
pub(super) struct ReplicaShape {
    pub(super) chip: Arc<Accelerator>,
    pub(super) weights: Option<String>,
    pub(super) kv: Option<String>,
    pub(super) cut: Cut,
    pub(super) max_num_batched_tokens: Option<u64>,
    pub(super) max_num_seqs: Option<u64>,
    pub(super) told: ReplicaSettings,
    /// GiB of the host tier of each engine.
    pub(super) host_gib: f64,
}

impl ReplicaShape {
    /// The spec of a replica of this shape, from `base` without its search.
    pub(super) fn spec(&self, base: &Spec) -> Spec {
        let mut spec = base.clone();
        spec.search = None;
        spec.hardware.accelerator = Some(self.chip.id.clone());
        spec.hardware.count = None;
        spec.precision.weights = self.weights.clone().or(spec.precision.weights);
        spec.precision.kv = self.kv.clone().or(spec.precision.kv);
        let Cut { tp, pp, ep, attention_dp } = self.cut;
        let parallelism = &mut spec.parallelism;
        (parallelism.tp, parallelism.pp, parallelism.ep, parallelism.attention_dp) =
            (Some(tp), Some(pp), Some(ep), Some(attention_dp));
        parallelism.replicas = None;
        spec.engine.max_num_batched_tokens =
            self.max_num_batched_tokens.or(spec.engine.max_num_batched_tokens);
        spec.engine.max_num_seqs = self.max_num_seqs.or(spec.engine.max_num_seqs);
        self.told.lay(&mut spec);
        spec
    }

    /// True if `other` has equal formats and settings.
    pub(super) fn alike(&self, other: &ReplicaShape) -> bool {
        let formats = self.weights == other.weights && self.kv == other.kv;
        formats && self.told == other.told
    }

    /// Name of the replica's engine.
    pub(super) fn engine<'a>(&'a self, base: &'a Spec) -> &'a str {
        self.told.engine.as_deref().unwrap_or(base.engine.name())
    }

    /// Scheduler of the replica's engine.
    pub(super) fn scheduler(&self, base: &Spec) -> SchedulerKind {
        self.told
            .engine
            .as_deref()
            .and_then(|name| EngineKind::of(name).scheduler())
            .unwrap_or_else(|| base.engine.scheduler())
    }
}

/// A number of replicas of the shape with this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CandidatePool {
    pub(super) shape: usize,
    pub(super) replicas: u64,
}

/// A deployment to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Replicas that only compute prompts; `None` unless prefill is disaggregated.
    pub(super) prefill: Option<CandidatePool>,
    /// Replicas that decode; they also compute prompts unless prefill is disaggregated.
    pub(super) serving: CandidatePool,
    /// Replicas on another kind of accelerator that also serve whole requests; `None` without them.
    pub(super) beside: Option<CandidatePool>,
    /// Total number of accelerators.
    pub(super) accelerators: u64,
}

/// All deployments of a search.
#[derive(Debug, Clone)]
pub(super) struct SearchSpace {
    pub(super) chips: Vec<Arc<Accelerator>>,
    /// Catalog ids of accelerators that the search does not include but could.
    pub(super) not_searched: Vec<String>,
    pub(super) shapes: Vec<ReplicaShape>,
    pub(super) least: u64,
    pub(super) most: u64,
    /// Dollars per hour for one GiB of host memory.
    host_price: f64,
}

/// The error for an empty search: its engines run on none of its accelerators, or no number of accelerators allows the
/// requested parallelism.
fn nothing(spec: &Spec, search: &SearchSpec, chips: &[Arc<Accelerator>], most: u64) -> Error {
    let named: Vec<&str> = search.engines.iter().chain(&spec.engine.name).map(String::as_str).collect();
    let runs = |name: &&str| chips.iter().any(|chip| support::runs_on(EngineKind::of(name), chip));
    if !named.is_empty() && !named.iter().any(runs) {
        let runs =
            |chip: &Arc<Accelerator>| format!("{} ({})", chip.id, support::engines_of(chip).join(", "));
        let accepted = format!(
            "an engine that runs on {}, or other accelerators",
            chips.iter().map(runs).collect::<Vec<_>>().join("; ")
        );
        return Error::field("engine", "name", named.join(", "), accepted);
    }
    let accepted = format!(
        "sizes whose product is a count of accelerators that is tried, at most max_accelerators ({most}), and that the \
         model's heads and layers allow"
    );
    Error::field("search", "tp, pp, ep, attention_dp", "nothing to choose from", accepted)
}

impl SearchSpace {
    /// The space that `spec` searches; `shared` is true if prompts share tokens.
    pub(super) fn of(spec: &Spec, model: &Model, catalog: &Catalog, shared: bool) -> Result<SearchSpace> {
        let search = spec.search.clone().unwrap_or_default();
        check(&search)?;
        let variants = told(&search, spec, shared)?;
        let chips = chips(&search, catalog, spec.hardware.accelerator.as_deref())?;
        let listed_chips = !search.accelerators.is_empty() || spec.hardware.accelerator.is_some();
        let not_searched = not_searched(catalog, &chips, listed_chips)?;
        let accelerator_limit = search.max_accelerators.unwrap_or(DEFAULT_MOST);
        let mut shapes = Vec::new();
        for chip in &chips {
            let cuts = |by_layers| {
                cuts(&search, chip, model, accelerator_limit, by_layers).map(move |cut| (cut, by_layers))
            };
            for (cut, by_layers) in cuts(false).chain(cuts(true)) {
                for weights in listed(&search.weights) {
                    for kv in listed(&search.kv) {
                        let shape = |variants: &ReplicaSettings, (tokens, seqs)| ReplicaShape {
                            chip: Arc::clone(chip),
                            weights: weights.clone(),
                            kv: kv.clone(),
                            cut,
                            max_num_batched_tokens: tokens,
                            max_num_seqs: seqs,
                            told: variants.clone(),
                            host_gib: variants.host_gib(spec),
                        };
                        for variants in variants.iter().filter(|variants| variants.runs_on(chip, spec)) {
                            let engine_keys = variants.engine_spec(&spec.engine);
                            if (EngineKind::of(engine_keys.name()) == EngineKind::LlamaCpp) != by_layers {
                                continue;
                            }
                            shapes.extend(
                                settings(&search, spec, &engine_keys, chip).map(|set| shape(variants, set)),
                            );
                        }
                    }
                }
            }
        }
        if shapes.is_empty() {
            return Err(nothing(spec, &search, &chips, accelerator_limit));
        }
        Ok(SearchSpace {
            chips,
            not_searched,
            shapes,
            least: search.min_accelerators.unwrap_or(1),
            most: accelerator_limit,
            host_price: search.host_memory_price.unwrap_or(0.0),
        })
    }

    /// The numbers of replicas, with `ranks` accelerators each, that the search allows.
    fn counts(&self, ranks: u64) -> std::ops::RangeInclusive<u64> {
        self.least.div_ceil(ranks).max(1)..=self.most / ranks
    }

    /// Deployments of equal replicas of one shape.
    pub(super) fn together(&self, shape: usize) -> impl Iterator<Item = Candidate> {
        let ranks = self.shapes[shape].cut.ranks();
        self.counts(ranks).map(move |replicas| Candidate {
            prefill: None,
            serving: CandidatePool { shape, replicas },
            beside: None,
            accelerators: ranks * replicas,
        })
    }

    /// The sum of `of` over all accelerators of a deployment; `None` if `of` is unknown for one kind.
    pub(super) fn total(
        &self,
        candidate: &Candidate,
        of: impl Fn(&Accelerator) -> Option<f64>,
    ) -> Option<f64> {
        let sides = self.sides(candidate).into_iter();
        sides.flatten().map(|(chip, count)| Some(of(chip)? * count as f64)).sum()
    }

    /// Dollars per hour for all host tiers of a deployment.
    pub(super) fn host_dollars(&self, candidate: &Candidate) -> f64 {
        let engines = |pool: CandidatePool| {
            let shape = &self.shapes[pool.shape];
            shape.host_gib * (pool.replicas * shape.cut.attention_dp) as f64
        };
        self.host_price * (engines(candidate.serving) + candidate.beside.map_or(0.0, engines))
    }

    /// The accelerators of a deployment by kind, with their number: first of the decode replicas, then of the other
    /// pool if it is of another kind.
    pub(super) fn sides(&self, candidate: &Candidate) -> [Option<(&Accelerator, u64)>; 2] {
        let serving = &self.shapes[candidate.serving.shape];
        match self.elsewhere(candidate) {
            None => [Some((&serving.chip, candidate.accelerators)), None],
            Some(pool) => {
                let other = &self.shapes[pool.shape];
                let count = other.cut.ranks() * pool.replicas;
                [Some((&serving.chip, candidate.accelerators - count)), Some((&other.chip, count))]
            }
        }
    }

    /// The pool on other accelerators than the decode replicas; `None` if there is none.
    pub(super) fn elsewhere(&self, candidate: &Candidate) -> Option<CandidatePool> {
        let chip = |pool: CandidatePool| &self.shapes[pool.shape].chip.id;
        let other = candidate.prefill.or(candidate.beside);
        other.filter(|pool| chip(*pool) != chip(candidate.serving))
    }

    /// The spec of `candidate`, from `base`.
    pub(super) fn spec(&self, base: &Spec, candidate: &Candidate) -> Spec {
        let serving = &self.shapes[candidate.serving.shape];
        let mut spec = serving.spec(base);
        let mixed = self.elsewhere(candidate).is_some();
        let pool = |pool: CandidatePool| {
            let ReplicaShape { chip, cut, .. } = &self.shapes[pool.shape];
            PoolSpec {
                accelerator: mixed.then(|| chip.id.clone()),
                replicas: Some(pool.replicas),
                tp: Some(cut.tp),
                pp: Some(cut.pp),
                ep: Some(cut.ep),
                attention_dp: Some(cut.attention_dp),
                ..PoolSpec::default()
            }
        };
        let Some(prefill) = candidate.prefill else {
            spec.parallelism.replicas = Some(candidate.serving.replicas);
            spec.fleet.beside = candidate.beside.map(pool);
            return spec;
        };
        spec.fleet.prefill = Some(pool(prefill));
        spec.fleet.decode = Some(pool(candidate.serving));
        let wanted_link = base.search.as_ref().and_then(|search| search.link);
        let usual_link = || match mixed {
            true => between(&self.shapes[prefill.shape].chip, &serving.chip),
            false => within(&serving.chip, candidate.accelerators),
        };
        spec.fleet.link = Some(wanted_link.unwrap_or_else(usual_link));
        spec
    }
}

/// Combinations of token budget and most running requests; `None` leaves the value to the spec or the engine. `own` are
/// the settings of the engine that is combined; SGLang's chunk is its token budget.
fn settings(
    search: &SearchSpec,
    spec: &Spec,
    own: &EngineSpec,
    chip: &Accelerator,
) -> impl Iterator<Item = (Option<u64>, Option<u64>)> {
    let given = |list: &[u64]| -> Vec<Option<u64>> { list.iter().copied().map(Some).collect() };
    let is_set = own.max_num_batched_tokens.is_some() || own.sglang.chunked_prefill_size.is_some();
    let budgets = match &search.max_num_batched_tokens {
        asked if !asked.is_empty() => given(asked),
        _ if is_set => vec![None],
        _ => BUDGETS.into_iter().filter(|n| *n != Some(batch_defaults(&spec.engine, chip).0)).collect(),
    };
    let seqs = if search.max_num_seqs.is_empty() { vec![None] } else { given(&search.max_num_seqs) };
    budgets.into_iter().flat_map(move |tokens| seqs.clone().into_iter().map(move |seqs| (tokens, seqs)))
}

/// All parallelisms of a replica: tensor parallelism within a node, pipeline stages over whole nodes, experts whole on
/// ranks or sliced, and data-parallel attention if the model has experts or the spec asks for it. An engine that splits
/// `by_layers` has a stage on each accelerator, and tensor parallelism where the search names its degrees.
fn cuts(
    search: &SearchSpec,
    chip: &Accelerator,
    model: &Model,
    most: u64,
    by_layers: bool,
) -> impl Iterator<Item = Cut> + use<> {
    let mut cuts = Vec::new();
    let accepts = |list: &[u64], value: u64| list.is_empty() || list.contains(&value);
    for size in chip.sizes(most) {
        let wide = size.min(chip.node_size);
        let mut ways = vec![(wide, size / wide, 1)];
        if by_layers {
            ways.retain(|_| !search.tp.is_empty());
            ways.push((1, size, 1));
        } else if model.is_moe() || !search.attention_dp.is_empty() {
            let parts = (1..=wide).filter(|tp| size.is_multiple_of(*tp) && *tp < size && *tp <= wide);
            ways.extend(parts.map(|tp| (tp, 1, size / tp)));
        }
        for (tp, pp, attention_dp) in ways {
            let legal = indivisible(model, tp).is_none() && pp <= model.most_stages();
            let wanted = accepts(&search.tp, tp)
                && accepts(&search.pp, pp)
                && accepts(&search.attention_dp, attention_dp);
            if !legal
                || !wanted
                || cuts.iter().any(|c: &Cut| (c.tp, c.pp, c.attention_dp) == (tp, pp, attention_dp))
            {
                continue;
            }
            let ranks = tp * attention_dp;
            let spread = if model.is_moe() && ranks > 1 { vec![ranks, 1] } else { vec![1] };
            let spread = spread.into_iter().filter(|ep| accepts(&search.ep, *ep));
            cuts.extend(spread.map(|ep| Cut { tp, pp, ep, attention_dp }));
        }
    }
    cuts.into_iter()
}

fn check(search: &SearchSpec) -> Result<()> {
    search.weights.iter().try_for_each(|w| w.parse::<WeightFormat>().map(drop))?;
    search.kv.iter().filter(|k| *k != "auto").try_for_each(|k| k.parse::<KvFormat>().map(drop))?;
    let accelerator_limit = search.max_accelerators.unwrap_or(DEFAULT_MOST);
    if accelerator_limit == 0 || accelerator_limit > 4096 {
        return Err(Error::field("spec", "search.max_accelerators", accelerator_limit, "1 to 4096"));
    }
    if let Some(price) = search.host_memory_price.filter(|price| !(0.0..=1e3).contains(price)) {
        return Err(Error::field(
            "spec",
            "search.host_memory_price",
            price,
            "0 to 1000 dollars per GiB and hour",
        ));
    }
    let fewest = search.min_accelerators.unwrap_or(1);
    if fewest == 0 || fewest > accelerator_limit {
        let accepted = format!("1 to max_accelerators ({accelerator_limit})");
        return Err(Error::field("spec", "search.min_accelerators", fewest, accepted));
    }
    Ok(())
}
