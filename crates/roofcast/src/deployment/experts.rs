//! Settings of experts on several ranks, resolved: the exchange of tokens, its overlap, and the load of the busiest
//! rank.
//!
//! Knows: combinations that engines refuse or ignore. DeepEP's kernels serve data-parallel ranks of attention; dual-batch
//! overlap needs them (vLLM 0.33, `config/vllm.py`; SGLang 0.5.23, `server_args.py`); load balancing divides
//! experts and their copies evenly over ranks (vLLM 0.33, `distributed/eplb`). [`super::balance`] computes loads.

use super::{Block, Deployment, PipelineStage, balance};
use crate::accelerator::Accelerator;
use crate::error::{Error, Result};
use crate::model::{Ffn, Model, largest_deviate};
use crate::parallelism::Parallelism;
use crate::spec::{All2AllBackend, EngineKind, EngineSpec};

const PLACE: &str = "engine.experts";
/// Tokens of a rank from which vLLM splits a step of decodes, and a step with prompts (`config/parallel.py`).
const THRESHOLDS: [u64; 2] = [32, 512];
/// Steps from one placement of experts to the next: vLLM's `EPLBConfig.step_interval`, and SGLang's
/// `eplb_rebalance_num_iterations`.
const STEP_INTERVALS: [u64; 2] = [3000, 1000];

impl Deployment {
    /// Seconds in which ranks exchange all their experts at the rate of the slowest link, the most that a placement can
    /// move, and the number of steps between two placements; `None` without load balancing.
    pub(crate) fn rebalancing(&self) -> Option<(f64, f64)> {
        let steps = self.experts.step_interval?;
        let held = |stage: &PipelineStage| -> f64 {
            let of = |(block, layers): &(Block, u64)| {
                block.experts.as_ref().map_or(0.0, |e| e.bytes.as_f64() * (e.local * layers) as f64)
            };
            stage.blocks.iter().map(of).sum()
        };
        let most = self.stages.iter().map(held).fold(0.0, f64::max);
        let (rate, _) = self.accelerator.slowest_link(self.parallelism.stage_ranks());
        Some((most / rate.0, steps as f64))
    }
}

/// Load of the busiest rank with experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BusiestRank {
    /// Tokens of the busiest rank over the mean of all ranks, in the long run.
    pub(crate) mean: f64,
    /// Largest deviation from the mean in a single step, in standard deviations.
    deviate: f64,
}

impl BusiestRank {
    /// The same load on every rank.
    pub(crate) const EVEN: BusiestRank = BusiestRank { mean: 1.0, deviate: 0.0 };

    /// Tokens of the busiest rank over the mean of all ranks in a step in which ranks compute `copies` tokens on average:
    /// the standard deviation of a Poisson variable is the root of its mean.
    pub(crate) fn of_step(&self, copies: f64) -> f64 {
        self.mean + self.deviate / copies.max(1.0).sqrt()
    }
}

/// Settings of experts on several ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ExpertRanks {
    /// Exchange of tokens; `None` if it is not stated.
    pub(crate) backend: Option<All2AllBackend>,
    /// Tokens of a rank from which a step is split into two microbatches: of decodes alone, and with prompts; `None`
    /// without overlap.
    pub(crate) overlap: Option<[u64; 2]>,
    /// Stated (max − mean)/mean of the ranks' tokens, without balancing.
    pub(crate) imbalance: Option<f64>,
    /// (max − mean)/mean of the ranks' tokens as the experts are placed; `None` if it is not stated.
    pub(crate) placed: Option<f64>,
    /// Number of second copies of experts in each layer.
    pub(crate) redundant: u64,
    /// Steps from one placement of experts to the next; `None` without load balancing.
    pub(crate) step_interval: Option<u64>,
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
        let refused =
            |field: &str, found: &str, accepted: String| Err(Error::field(PLACE, field, found, accepted));
        let ranks = parallelism.ep;
        let several = "experts on several ranks (parallelism.ep above 1)".to_owned();
        let deepep = spec.all2all_backend.is_some_and(All2AllBackend::is_deepep);
        if deepep && (ranks < 2 || parallelism.attention_dp < 2) {
            let accepted = "omitted without experts over data-parallel ranks (parallelism.ep and parallelism.attention_dp above 1)";
            return refused("all2all_backend", "DeepEP", accepted.to_owned());
        }
        if deepep && !["nvidia", "amd"].contains(&chip.vendor.as_str()) {
            return refused(
                "all2all_backend",
                "DeepEP",
                format!("omitted: DeepEP has no kernels for {}", chip.id),
            );
        }
        if spec.enable_dbo && !deepep {
            return refused(
                "enable_dbo",
                "true",
                "true with one of the deepep values of all2all_backend".to_owned(),
            );
        }
        if spec.enable_eplb && ranks < 2 {
            return refused("enable_eplb", "true", several);
        }
        let redundant = spec.num_redundant_experts.unwrap_or(0);
        let sglang = engine.kind() == EngineKind::Sglang;
        if redundant > 0 && !spec.enable_eplb && !sglang {
            return refused(
                "num_redundant_experts",
                &redundant.to_string(),
                "0 without enable_eplb".to_owned(),
            );
        }
        let experts = model.layers.iter().find_map(|layer| match &layer.ffn {
            Ffn::Experts(experts) => Some(experts.count),
            Ffn::Dense(_) | Ffn::None => None,
        });
        let experts = experts.unwrap_or(0);
        if redundant > 4 * experts || redundant > 0 && !(experts + redundant).is_multiple_of(ranks) {
            let accepted = format!(
                "a number that makes {experts} experts and their copies a multiple of {ranks} ranks, at most {}",
                4 * experts
            );
            return refused("num_redundant_experts", &redundant.to_string(), accepted);
        }
        if let Some(found) = spec.expert_imbalance {
            let most = (ranks - 1) as f64;
            if !(0.0..most.max(f64::MIN_POSITIVE)).contains(&found) || ranks < 2 {
                let accepted =
                    if ranks < 2 { several } else { format!("0 to less than {most}: ranks − 1") };
                return refused("expert_imbalance", &found.to_string(), accepted);
            }
        }
        if spec.eplb_step_interval == Some(0) {
            return refused("eplb_step_interval", "0", "1 or more steps".to_owned());
        }
        let placed = spec.expert_imbalance.map(|stated| match spec.enable_eplb {
            true => balance::balanced(experts, redundant, ranks, stated),
            false => stated,
        });
        let interval = STEP_INTERVALS[usize::from(sglang)];
        let thresholds = [
            spec.dbo_decode_token_threshold.unwrap_or(THRESHOLDS[0]),
            spec.dbo_prefill_token_threshold.unwrap_or(THRESHOLDS[1]),
        ];
        Ok(ExpertRanks {
            backend: spec.all2all_backend,
            overlap: spec.enable_dbo.then_some(thresholds),
            imbalance: spec.expert_imbalance,
            placed,
            redundant,
            step_interval: spec.enable_eplb.then(|| spec.eplb_step_interval.unwrap_or(interval)),
        })
    }

    /// Tokens of the busiest rank over the mean of all ranks; 1 if no imbalance is stated.
    pub(crate) fn busiest(&self) -> f64 {
        1.0 + self.placed.unwrap_or(0.0)
    }

    /// Load of the busiest of `ranks` ranks, if an imbalance is stated. A stated one includes the scatter of single
    /// steps; with balancing, a step's tokens still scatter around the ranks' mean like Poisson variables.
    pub(crate) fn load(&self, ranks: u64) -> Option<BusiestRank> {
        let deviate = if self.step_interval.is_some() { largest_deviate(ranks) } else { 0.0 };
        self.placed.map(|imbalance| BusiestRank { mean: 1.0 + imbalance, deviate })
    }

    /// DeepEP's kernels, if they exchange the tokens.
    pub(crate) fn deepep(&self) -> Option<All2AllBackend> {
        self.backend.filter(|backend| backend.is_deepep())
    }
}
