//! Settings of experts on several ranks, resolved: the exchange of tokens, its overlap, and the load of the busiest
//! rank.
//!
//! Knows: combinations that engines refuse or ignore. DeepEP's kernels serve data-parallel ranks of attention; dual-batch
//! overlap needs them (vLLM 0.33, `config/vllm.py`; SGLang 0.5.23, `server_args.py`); load balancing divides
//! experts and their copies evenly over ranks (vLLM 0.33, `distributed/eplb`). [`super::balance`] computes loads.

use super::{Block, Deployment, PipelineStage, balance};
use crate::parallelism::Parallelism;
use crate::spec::{All2AllBackend, EngineKind, EngineSpec, ExpertsSpec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Ffn, Layer, Model, largest_deviate};

const PLACE: &str = "engine.experts";
/// Tokens of a rank from which a step of decodes, and a step with prompts, is split: vLLM's (`config/parallel.py`), and
/// SGLang's, which splits every step (`two_batch_overlap.py`).
const THRESHOLDS: [[u64; 2]; 2] = [[32, 512], [2, 2]];
/// Steps from one placement of experts to the next: vLLM's `EPLBConfig.step_interval`, and SGLang's
/// `eplb_rebalance_num_iterations`.
const STEP_INTERVALS: [u64; 2] = [3000, 1000];

impl Deployment {
    /// Sentence about the load of the busiest rank, with and without load balancing; `None` if no imbalance is stated.
    pub(super) fn balance(&self) -> Option<String> {
        let experts = &self.experts;
        let ranks = self.parallelism.ep;
        let stated = experts.imbalance?;
        let placed = experts.placed?;
        let busiest =
            format!("the busiest of {ranks} expert-parallel ranks computes {:.2} × the mean", 1.0 + stated);
        let Some((seconds, steps)) = self.rebalancing() else {
            let count = self.model.layers.iter().find_map(experts_of).unwrap_or(0);
            let [alone, copies] =
                [0, ranks].map(|copies| 1.0 + balance::balanced(count, copies, ranks, stated));
            return Some(format!(
                "{busiest}; balancing (--enable-eplb) would leave {alone:.2} ×, with {ranks} redundant experts {copies:.2} ×"
            ));
        };
        let balanced = 1.0 + placed;
        Some(format!(
            "{busiest}, balanced {balanced:.2} × and the scatter of a step; moving all experts of a rank takes {seconds:.2} s \
             every {steps:.0} steps"
        ))
    }

    /// Seconds in which ranks exchange all their experts at the rate of the slowest link, the most that a placement can
    /// move, and the number of steps between two placements; `None` without load balancing.
    pub fn rebalancing(&self) -> Option<(f64, f64)> {
        let steps = self.experts.step_interval?;
        let stage_bytes = |stage: &PipelineStage| -> f64 {
            let block_bytes = |(block, layers): &(Block, u64)| {
                block.experts.as_ref().map_or(0.0, |e| e.bytes.as_f64() * (e.local * layers) as f64)
            };
            stage.blocks.iter().map(block_bytes).sum()
        };
        let largest_stage = self.stages.iter().map(stage_bytes).fold(0.0, f64::max);
        let (rate, _) = self.accelerator.slowest_link(self.parallelism.stage_ranks());
        Some((largest_stage / rate.0, steps as f64))
    }
}

/// Load of the busiest rank with experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BusiestRank {
    /// Tokens of the busiest rank over the mean of all ranks, in the long run.
    pub mean: f64,
    /// Largest deviation from the mean in a single step, in standard deviations.
    deviate: f64,
}

impl BusiestRank {
    /// The same load on every rank.
    pub const EVEN: BusiestRank = BusiestRank { mean: 1.0, deviate: 0.0 };

    /// Tokens of the busiest rank over the mean of all ranks in a step in which ranks compute `copies` tokens on average:
    /// the standard deviation of a Poisson variable is the root of its mean.
    pub fn of_step(&self, copies: f64) -> f64 {
        self.mean + self.deviate / copies.max(1.0).sqrt()
    }
}

/// Number of routed experts of `layer`.
fn experts_of(layer: &Layer) -> Option<u64> {
    match &layer.ffn {
        Ffn::Experts(experts) => Some(experts.count),
        Ffn::Dense(_) | Ffn::None => None,
    }
}

/// Refuses exchanges and overlaps that do not run on these ranks.
fn check_exchange(spec: &ExpertsSpec, chip: &Accelerator, parallelism: Parallelism) -> Result<()> {
    let refused = |field: &str, found: &str, accepted: &str| Err(Error::field(PLACE, field, found, accepted));
    let deepep = spec.all2all_backend.is_some_and(All2AllBackend::is_deepep);
    if deepep && (parallelism.ep < 2 || parallelism.attention_dp < 2) {
        let accepted = "omitted without experts over data-parallel ranks (parallelism.ep and parallelism.attention_dp above 1)";
        return refused("all2all_backend", "DeepEP", accepted);
    }
    if deepep && !["nvidia", "amd"].contains(&chip.vendor.as_str()) {
        let accepted = format!("omitted: DeepEP has no kernels for {}", chip.id);
        return refused("all2all_backend", "DeepEP", &accepted);
    }
    if spec.enable_dbo && !deepep {
        return refused("enable_dbo", "true", "true with one of the deepep values of all2all_backend");
    }
    Ok(())
}

/// Refuses loads and copies that `experts` experts on `ranks` ranks cannot have.
fn check_balance(spec: &ExpertsSpec, experts: u64, ranks: u64) -> Result<()> {
    let refused =
        |field: &str, found: String, accepted: &str| Err(Error::field(PLACE, field, found, accepted));
    let several = "experts on several ranks (parallelism.ep above 1)";
    if spec.enable_eplb && ranks < 2 {
        return refused("enable_eplb", "true".to_owned(), several);
    }
    let redundant = spec.num_redundant_experts.unwrap_or(0);
    let limit = 4 * experts;
    if redundant > limit || redundant > 0 && !(experts + redundant).is_multiple_of(ranks) {
        let accepted = format!(
            "a number that makes {experts} experts and their copies a multiple of {ranks} ranks, at most {limit}"
        );
        return refused("num_redundant_experts", redundant.to_string(), &accepted);
    }
    match spec.expert_imbalance {
        Some(found) if ranks < 2 => return refused("expert_imbalance", found.to_string(), several),
        Some(found) if !(0.0..(ranks - 1) as f64).contains(&found) => {
            let accepted = format!("0 to less than {}: ranks − 1", ranks - 1);
            return refused("expert_imbalance", found.to_string(), &accepted);
        }
        _ => {}
    }
    if spec.eplb_step_interval == Some(0) {
        return refused("eplb_step_interval", "0".to_owned(), "1 or more steps");
    }
    Ok(())
}

/// Settings of experts on several ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertRanks {
    /// Exchange of tokens; `None` if it is not stated.
    pub backend: Option<All2AllBackend>,
    /// Tokens of a rank from which a step is split into two microbatches: of decodes alone, and with prompts; `None`
    /// without overlap.
    pub overlap: Option<[u64; 2]>,
    /// Stated (max − mean)/mean of the ranks' tokens, without balancing.
    pub(crate) imbalance: Option<f64>,
    /// (max − mean)/mean of the ranks' tokens as the experts are placed; `None` if it is not stated.
    pub(crate) placed: Option<f64>,
    /// Number of second copies of experts in each layer.
    pub redundant: u64,
    /// Steps from one placement of experts to the next; `None` without load balancing.
    pub step_interval: Option<u64>,
}

impl ExpertRanks {
    /// Resolves the settings of `engine` for `model` on ranks of `chip`.
    pub(super) fn resolve(
        engine: &EngineSpec,
        model: &Model,
        chip: &Accelerator,
        parallelism: Parallelism,
    ) -> Result<ExpertRanks> {
        let spec = &engine.experts;
        let ranks = parallelism.ep;
        let experts = model.layers.iter().find_map(experts_of).unwrap_or(0);
        check_exchange(spec, chip, parallelism)?;
        check_balance(spec, experts, ranks)?;
        let redundant = spec.num_redundant_experts.unwrap_or(0);
        let sglang = engine.kind() == EngineKind::Sglang;
        // SGLang also loads copies that it does not move.
        if redundant > 0 && !spec.enable_eplb && !sglang {
            return Err(Error::field(PLACE, "num_redundant_experts", redundant, "0 without enable_eplb"));
        }
        let placed = spec.expert_imbalance.map(|stated| match spec.enable_eplb {
            true => balance::balanced(experts, redundant, ranks, stated),
            false => stated,
        });
        let [decode, prefill] = THRESHOLDS[usize::from(sglang)];
        let thresholds = [
            spec.dbo_decode_token_threshold.unwrap_or(decode),
            spec.dbo_prefill_token_threshold.unwrap_or(prefill),
        ];
        let interval = spec.eplb_step_interval.unwrap_or(STEP_INTERVALS[usize::from(sglang)]);
        Ok(ExpertRanks {
            backend: spec.all2all_backend,
            overlap: spec.enable_dbo.then_some(thresholds),
            imbalance: spec.expert_imbalance,
            placed,
            redundant,
            step_interval: spec.enable_eplb.then_some(interval),
        })
    }

    /// Tokens of the busiest rank over the mean of all ranks; 1 if no imbalance is stated.
    pub fn busiest(&self) -> f64 {
        1.0 + self.placed.unwrap_or(0.0)
    }

    /// Load of the busiest of `ranks` ranks, if an imbalance is stated. A stated one includes the scatter of single
    /// steps; with balancing, a step's tokens still scatter around the ranks' mean like Poisson variables.
    pub fn load(&self, ranks: u64) -> Option<BusiestRank> {
        let deviate = if self.step_interval.is_some() { largest_deviate(ranks) } else { 0.0 };
        self.placed.map(|imbalance| BusiestRank { mean: 1.0 + imbalance, deviate })
    }

    /// DeepEP's kernels, if they exchange the tokens.
    pub fn deepep(&self) -> Option<All2AllBackend> {
        self.backend.filter(|backend| backend.is_deepep())
    }
}
