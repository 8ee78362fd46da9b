//! Capacity: parameters, KV cache, batch, users, and the smallest machine for them.
//!
//! Knows: memory arithmetic. Knows nothing about time, except that the smallest topology must not be link-bound,
//! which [`crate::cost`] decides.

use crate::cost::{self, Bottleneck, Utilization};
use crate::memory::{self, Memory, Rank};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::parallelism::{RequestedParallelism, indivisible};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::batch::Batch;
use roofcast_facts::model::{Model, Parameters};
use roofcast_facts::units::Bytes;
use serde::Serialize;

/// Most accelerators that a search considers.
const MOST_ACCELERATORS: u64 = 65_536;
/// Most accelerators of a topology that is tried.
const MOST_TOPOLOGY: u64 = 4096;
/// Most ways to divide the accelerators into pipeline stages that are tried.
const MOST_SHAPES: usize = 16;

/// Question for [`capacity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityQuestion {
    /// Context of each sequence in tokens.
    pub context: u64,
    /// Sequences that must fit.
    pub batch: u64,
    /// Tokens of context that are promised to users, over tokens that fit, in percent: 200 promises every token twice.
    pub oversubscription_percent: u64,
    /// Number of users that the answer's `deployments_for_users` must serve.
    pub users: Option<u64>,
}

/// Answer of [`capacity`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// True if the weights fit and leave room for the batch of the question: it is at most `max_batch`.
    pub fits: bool,
    /// Bytes that are missing on the fullest accelerator for the weights and the batch of the question; 0 if both fit, and
    /// where requests are bounded by the pool of recurrent states.
    pub short_by_bytes: Bytes,
    /// Parameter counts.
    pub parameters: Parameters,
    /// Bytes of the weights of one replica.
    pub weight_bytes: Bytes,
    /// Bytes that the last token of the context adds to a sequence's KV cache.
    pub kv_bytes_per_token: Bytes,
    /// Bytes of the KV cache of one sequence of the whole context.
    pub kv_bytes_per_sequence: Bytes,
    /// Bytes of llama.cpp's compute buffer on one accelerator per token of context, in addition to the KV cache.
    pub compute_bytes_per_token: Bytes,
    /// KV-cache tokens that fit in accelerator memory, over the whole deployment.
    pub kv_tokens: u64,
    /// KV-cache tokens that fit in the host tier, in addition to `kv_tokens`; `None` without a host tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_kv_tokens: Option<u64>,
    /// KV tokens that storage below the host tier holds; `None` without storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_kv_tokens: Option<u64>,
    /// Number of sequences of the context that fit at one time.
    pub max_batch: u64,
    /// Longest single sequence in tokens, at most the model's maximum.
    pub longest_context: u64,
    /// Number of users that the deployment serves, over-subscription included.
    pub users: u64,
    /// Number of deployments that serve the users of the question.
    pub deployments_for_users: Option<u64>,
    /// Fewest accelerators whose total memory holds the weights and the batch of the question, beyond the sizes that do not.
    pub min_accelerators: Option<u64>,
    /// The smallest deployment of this chip that holds weights and batch, with its actual sharding.
    pub smallest_topology: Option<SmallestTopology>,
    /// The deployment's accelerators divided into pipeline stages, if that holds the batch of the question while the
    /// deployment itself cannot hold one sequence.
    pub in_stages: Option<SmallestTopology>,
    /// Memory of the busiest accelerator of each pipeline stage.
    pub ranks: Vec<Rank>,
}

/// The smallest topology that holds weights and batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SmallestTopology {
    /// Number of accelerators.
    pub count: u64,
    /// Tensor-parallel degree.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Lengths of the axes of a torus slice, in chips; `None` without a torus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
    /// Bottleneck of a decode step of the batch on this topology.
    pub decode_bound: Bottleneck,
}

/// Answers `question` for `deployment`.
pub fn capacity(deployment: &Deployment, question: &CapacityQuestion) -> Capacity {
    let model = &deployment.model;
    let context = question.context.max(1);
    let replicas = deployment.parallelism.replicas;
    let memory = Memory::of(deployment);
    let sequences = memory.sequences(context);
    let tokens = memory.tokens(context);
    let kv_tokens = tokens.saturating_mul(replicas);
    let host = memory::host_tier(deployment, tokens).ok().flatten();
    let max_batch = sequences.saturating_mul(replicas);
    let fits = max_batch >= question.batch.max(1);
    let each = question.batch.max(1).div_ceil(replicas * deployment.parallelism.attention_dp);
    let short_by_bytes = if fits { Bytes::ZERO } else { missing(&memory, context, each) };
    let smallest_topology = topologies(deployment, context, question.batch);
    let min_accelerators =
        fewest(&memory, context, question.batch, smallest_topology.as_ref().map(|found| found.count));
    let users =
        u64::try_from(u128::from(sequences * replicas) * u128::from(question.oversubscription_percent) / 100)
            .unwrap_or(u64::MAX);
    Capacity {
        fits,
        short_by_bytes,
        parameters: model.parameters(),
        weight_bytes: deployment.weight_bytes,
        kv_bytes_per_token: per_token(deployment, context),
        kv_bytes_per_sequence: per_sequence(deployment, context),
        compute_bytes_per_token: memory::compute_buffer(deployment),
        kv_tokens,
        host_kv_tokens: host.map(|host| host.tokens.saturating_mul(replicas)),
        storage_kv_tokens: host
            .and_then(|host| host.storage)
            .map(|storage| storage.tokens.saturating_mul(replicas)),
        max_batch,
        longest_context: longest_context(&memory),
        users,
        deployments_for_users: question.users.filter(|_| users > 0).map(|wanted| wanted.div_ceil(users)),
        min_accelerators,
        smallest_topology,
        in_stages: if sequences == 0 { in_stages(deployment, context, question.batch) } else { None },
        ranks: memory.ranks().to_vec(),
    }
}

fn per_sequence(deployment: &Deployment, context: u64) -> Bytes {
    deployment.model.kv_bytes_per_sequence(deployment.kv, context)
}

fn per_token(deployment: &Deployment, context: u64) -> Bytes {
    deployment.model.kv_bytes_per_token(deployment.kv, context)
}

/// Bytes that are missing on the fullest rank to hold weights, reserves and `batch` sequences of `context` tokens.
pub fn missing(memory: &Memory, context: u64, batch: u64) -> Bytes {
    let deployment = memory.deployment;
    if deployment.ideal {
        let pool = deployment.accelerator.memory_bytes
            * (deployment.parallelism.stage_ranks() * deployment.parallelism.pp);
        return (deployment.weight_bytes + per_sequence(deployment, context) * batch).saturating_sub(pool);
    }
    let context = memory::padded(deployment, context);
    let lacks = |(stage, rank): (usize, &Rank)| {
        (memory::sequence_bytes(deployment, stage, context) * batch + rank.short_by_bytes)
            .saturating_sub(rank.kv_bytes)
            .max(rank.short_by_bytes)
    };
    memory.ranks().iter().enumerate().map(lacks).max().unwrap_or(Bytes::ZERO)
}

/// The longest sequence that fits, in tokens; found by bisection, because memory grows with context.
fn longest_context(memory: &Memory) -> u64 {
    let longest = memory.deployment.longest().unwrap_or(1 << 24);
    let fits = |context: u64| memory.sequences(context) >= 1;
    let mut below = 0;
    let mut above = longest + 1;
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if fits(middle) { below = middle } else { above = middle }
    }
    below
}

/// Fewest accelerators that hold `batch` sequences: by [`pooled`], but more than every size that was tried in vain before
/// `smallest`, the size of the smallest topology.
fn fewest(memory: &Memory, context: u64, batch: u64, smallest: Option<u64>) -> Option<u64> {
    let deployment = memory.deployment;
    let parallelism = &deployment.parallelism;
    // Reserves are those of this deployment, and a smaller one may reserve less.
    let by_memory = pooled(memory, context, batch)?.min(smallest.unwrap_or(u64::MAX));
    let holds = memory.sequences(context) >= batch;
    if holds && parallelism.attention_dp > 1 {
        return Some(by_memory);
    }
    let chip = &deployment.accelerator;
    let mut sizes = chip.sizes(MOST_TOPOLOGY);
    sizes.retain(|count| shape_of(&deployment.model, chip, *count).is_some());
    if !holds && parallelism.attention_dp == 1 && !deployment.ideal {
        sizes.push(parallelism.tp * parallelism.pp);
    }
    let is_vain = |count: &u64| smallest.is_none_or(|smallest| *count < smallest);
    let above = sizes.into_iter().filter(is_vain).max().map_or(1, |count| count + 1);
    match smallest {
        Some(_) => Some(by_memory.max(above)),
        None => Some(by_memory).filter(|count| *count >= above),
    }
}

/// Fewest accelerators whose total memory, less reserves, holds the weights that are not on the host, and `batch`
/// sequences.
///
/// ceil((weights + batch × sequence) / free bytes of one accelerator), with the activations of `deployment`.
fn pooled(memory: &Memory, context: u64, batch: u64) -> Option<u64> {
    let deployment = memory.deployment;
    let hosted: Bytes = deployment.stages.iter().map(|stage| stage.host_bytes).sum();
    let hosted = hosted * deployment.parallelism.stage_ranks();
    let needed = deployment.weight_bytes.saturating_sub(hosted) + per_sequence(deployment, context) * batch;
    let rank = memory.ranks().first()?;
    let room = rank.budget_bytes.min(rank.free_bytes).saturating_sub(rank.beside_weights());
    let count = needed.0.div_ceil(room.0.max(1));
    (room > Bytes::ZERO && count <= MOST_ACCELERATORS).then_some(count.max(1))
}

/// The smaller of the deployment itself, if it holds `batch` sequences, and of [`smallest`].
fn topologies(deployment: &Deployment, context: u64, batch: u64) -> Option<SmallestTopology> {
    let parallelism = &deployment.parallelism;
    let by_search = smallest(deployment, context, batch);
    let count = parallelism.tp * parallelism.pp;
    let is_smaller = by_search.as_ref().is_none_or(|found| count < found.count);
    let is_plain = parallelism.attention_dp == 1 && !deployment.ideal;
    let itself = || holding(deployment, [parallelism.tp, parallelism.pp], context, batch);
    if is_smaller && is_plain { itself().or(by_search) } else { by_search }
}

/// The smallest legal deployment with this chip, these formats and this engine that holds `batch` sequences: tensor
/// parallelism within a node, then pipeline stages over nodes.
fn smallest(deployment: &Deployment, context: u64, batch: u64) -> Option<SmallestTopology> {
    let chip = &deployment.accelerator;
    let sizes = chip.sizes(MOST_TOPOLOGY);
    sizes.into_iter().find_map(|count| {
        let (tp, pp) = shape_of(&deployment.model, chip, count)?;
        holding(deployment, [tp, pp], context, batch)
    })
}

/// The accelerators of `deployment`, divided into pipeline stages with the widest tensor parallelism that holds `batch`
/// sequences. A torus is not divided into stages.
fn in_stages(deployment: &Deployment, context: u64, batch: u64) -> Option<SmallestTopology> {
    let chip = &deployment.accelerator;
    let model = &deployment.model;
    let count = deployment.parallelism.count();
    let widest = count.min(chip.node_size);
    let widths =
        (1..=widest).rev().filter(|tp| count.is_multiple_of(*tp) && indivisible(model, *tp).is_none());
    let staged = |tp: &u64| count / tp > 1 && count / tp <= model.most_stages();
    let shapes = widths.filter(staged).filter(|_| chip.torus_shape(count).is_none());
    shapes.take(MOST_SHAPES).find_map(|tp| holding(deployment, [tp, count / tp], context, batch))
}

/// The topology of `deployment` with degrees `tp` and `pp`, if it holds `batch` sequences.
fn holding(
    deployment: &Deployment,
    [tp, pp]: [u64; 2],
    context: u64,
    batch: u64,
) -> Option<SmallestTopology> {
    let other = reshaped(deployment, tp, pp)?;
    if Memory::of(&other).sequences(context) < batch {
        return None;
    }
    let decode = cost::limit(&other, &Batch::decode(batch, context), Utilization::FULL);
    let count = tp * pp;
    let shape = deployment.accelerator.torus_shape(count);
    Some(SmallestTopology { count, tp, pp, shape, decode_bound: decode.bound })
}

/// Tensor and pipeline degrees for `count` accelerators: tensor parallelism within the node as far as the heads divide,
/// pipeline stages beyond.
fn shape_of(model: &Model, chip: &Accelerator, count: u64) -> Option<(u64, u64)> {
    let widest = count.min(chip.node_size);
    let tp = (1..=widest).rev().find(|tp| count.is_multiple_of(*tp) && indivisible(model, *tp).is_none())?;
    let pp = count / tp;
    (pp <= model.most_stages()).then_some((tp, pp))
}

/// `deployment` with degree `tp`, on as many accelerators as were asked for, else with its replicas; `None` if the degree
/// is not valid.
pub fn widened(deployment: &Deployment, tp: u64) -> Option<Deployment> {
    let shares = deployment.requested_shares();
    let replicas = shares.replicas.filter(|_| shares.count.is_none());
    let parallelism = RequestedParallelism { tp: Some(tp), replicas, ..shares };
    deployment.varied(|options| options.parallelism = parallelism).ok()
}

/// `deployment` with degrees `tp` and `pp` and one replica; `None` if these degrees are not valid.
pub fn reshaped(deployment: &Deployment, tp: u64, pp: u64) -> Option<Deployment> {
    let varied = deployment.varied(|options| {
        options.parallelism =
            RequestedParallelism { tp: Some(tp), pp: Some(pp), ..RequestedParallelism::default() };
        options.ideal = deployment.ideal;
    });
    varied.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    /// Weights of 104.7 GB and a cache of 4.3 GB. Tensor parallelism over three fails, because 64 heads do not divide
    /// by 3, and one accelerator of 42.9 GB is too small; three pipeline stages have 3 × 42.9 GB.
    #[test]
    fn stages_fit_where_tensor_parallelism_cannot() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model("kipply/52b").unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let chip = Arc::new(catalog.accelerator("a100-sxm-40gb").unwrap().clone());
        let answer_for = |count| {
            let parallelism = RequestedParallelism { count: Some(count), ..RequestedParallelism::default() };
            let options = DeploymentOptions { parallelism, ideal: true, ..DeploymentOptions::default() };
            let deployment = Deployment::resolve(Arc::clone(&model), Arc::clone(&chip), &options).unwrap();
            let question =
                CapacityQuestion { context: 2048, batch: 1, oversubscription_percent: 100, users: None };
            capacity(&deployment, &question)
        };
        let three = answer_for(3);
        let stages = three.in_stages.as_ref().map(|s| (s.count, s.tp, s.pp));
        assert_eq!((three.max_batch, stages), (0, Some((3, 1, 3))));
        let four = answer_for(4);
        assert!(four.max_batch > 0 && four.in_stages.is_none());
    }

    /// A batch fits if it is at most the largest one, and then no more accelerators are needed; one more sequence needs more.
    #[test]
    fn a_batch_fits_up_to_the_largest() {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let models = ["Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-27B", "google/gemma-3-27b-it", "openai/gpt-oss-20b"];
        let others = ["meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V2-Lite", "Qwen/Qwen3-30B-A3B"];
        let mut asked = 0;
        for (id, (chip, weights)) in models.iter().chain(&others).flat_map(|id| {
            [("rtx-5090", "nvfp4"), ("h100-sxm", "fp8"), ("mi300x", "bf16")].map(|machine| (id, machine))
        }) {
            let entry = catalog.model(id).unwrap();
            let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
            let chip = Arc::new(catalog.accelerator(chip).unwrap().clone());
            let precision =
                roofcast_ask::spec::PrecisionSpec { weights: Some(weights.into()), ..Default::default() };
            let parallelism = RequestedParallelism { tp: Some(1), ..RequestedParallelism::default() };
            let options = DeploymentOptions { precision, parallelism, ..DeploymentOptions::default() };
            let Ok(deployment) = Deployment::resolve(model, chip, &options) else { continue };
            let answer_for = |batch| {
                let context = 4096;
                capacity(
                    &deployment,
                    &CapacityQuestion { context, batch, oversubscription_percent: 100, users: None },
                )
            };
            let largest = answer_for(1).max_batch;
            for batch in [1, largest.saturating_sub(1), largest, largest + 1, largest + 2] {
                if batch == 0 {
                    continue;
                }
                let answer = answer_for(batch);
                let place = format!("{id} on {} with {batch}", deployment.accelerator.id);
                let on_itself = answer.smallest_topology.as_ref().is_some_and(|found| found.count == 1);
                assert_eq!(
                    (answer.fits, on_itself, answer.min_accelerators == Some(1)),
                    (batch <= largest, batch <= largest, batch <= largest),
                    "{place}"
                );
                asked += 1;
            }
        }
        assert!(asked > 50, "{asked}");
    }
}
