//! The step model: work of a deployment's forward pass, compiled once.
//!
//! Knows: the operators of all stages, their messages, quantities outside operators, and how a replica's step is
//! divided over microbatches and data-parallel ranks. Knows nothing about time: [`crate::timing`] evaluates the model
//! with coefficients.
//!
//! Pipeline stages work at one time on as many microbatches as there are stages, each with an equal part of the
//! decodes and every pp-th chunk of the prompts. The step ends when the longest microbatch has passed all stages:
//! shorter microbatches wait for it, and so do stages without a microbatch if there are too few sequences. This is
//! exact if stages and microbatches are equal; chunks of one prompt in several microbatches at one time are not
//! modelled. Stages of llama.cpp take turns (`step/stages.rs`).

mod kernels;
mod launched;
mod pass;
mod stages;

use crate::operator::collective::Links;
use crate::operator::exchange::Overlap;
use crate::operator::{self, Form, Operator, Rows};
use kernels::{pieces, small_kernels};
use launched::Launched;
use roofcast_ask::deployment::Deployment;
use roofcast_ask::parallelism::Parallelism;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::batch::{Batch, Seen, Sequences};
use roofcast_facts::model::{Dense, Ffn, Layer};
use roofcast_facts::units::ByteRate;
use roofcast_facts::version::precedes;
pub use stages::Stages;
use std::borrow::Cow;

/// Work of a deployment's forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct StepModel {
    /// Operators of all stages, in order of execution.
    pub(crate) operators: Vec<Operator>,
    /// Windows, in ascending tokens, of operators with sliding-window attention.
    pub reaches: Vec<u64>,
    /// Messages between ranks.
    pub(crate) links: Links,
    /// Quantities outside operators.
    pub(crate) surroundings: Surroundings,
    /// Overlap of exchanges with kernels, if the engine has it.
    pub(crate) overlap: Option<Overlap>,
    /// Memory bandwidth.
    pub(crate) bandwidth: ByteRate,
    /// Degrees of parallelism over which sequences are divided.
    pub parallelism: Parallelism,
    /// Pipeline stages that work at one time.
    pub stages: Stages,
}

/// Quantities of a step outside operators, by which the times of an engine are multiplied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Surroundings {
    /// Bytes of HBM traffic per token in norms and activation functions, over all layers.
    pub(crate) elementwise_bytes: f64,
    /// Bytes of HBM traffic per token, outside the experts' kernels, for the copies that experts compute, over all
    /// layers.
    pub(crate) unfused_expert_bytes: f64,
    /// Number of routed experts of a layer; 0 for dense models.
    pub(crate) experts: u64,
    /// Number of layers.
    pub(crate) layers: u64,
    /// Number of small kernels of a step: norms, rotary embedding, cache write, activation, routing.
    pub(crate) small_kernels: u64,
    /// Kernels that the host launches one by one outside captured graphs, in a step of decodes and in a step with
    /// prompts.
    pub(crate) launched: [Launched; 2],
    /// Number of attention kernels between captured pieces of vLLM's graphs, and true if decodes are captured in
    /// pieces, too.
    pub(crate) pieces: (u64, bool),
    /// Number of GEMMs of a step.
    pub(crate) products: u64,
    /// Number of vocabulary entries on one rank.
    pub(crate) vocabulary: u64,
    /// Tokens of the largest pass of decodes, and of the largest pass with prompts, that a captured graph covers.
    pub(crate) captured: [u64; 2],
    /// Single-thread speed of the host as a multiple of a DGX H100 host's speed.
    pub(crate) host_speed: f64,
    /// Tokens that one process of the server streams for each sequence of a rank's step.
    pub(crate) streams: f64,
}

/// Contexts of the sequences that decode one token.
#[derive(Debug, Clone, PartialEq)]
pub enum Contexts<'a> {
    /// Tokens of context summed over the sequences.
    Seen(Seen<'a>),
    /// Groups of sequences.
    Groups(Cow<'a, [Sequences]>),
}

/// One microbatch through all stages, from the view of the busiest rank of each stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass<'a> {
    /// Number of tokens that the rank computes.
    pub rows: u64,
    /// Number of rows whose logits the rank samples.
    pub sampled: u64,
    /// Number of sequences of the rank that sample tokens.
    pub sequences: u64,
    /// Number of tokens of the replica, which all reach the experts.
    pub tokens: u64,
    /// Number of sequences of the rank that decode one token.
    pub decodes: u64,
    /// Fraction of all decoding sequences that the rank computes.
    pub share: f64,
    /// Contexts: sums over all decoding sequences, or groups of the rank's sequences.
    pub contexts: Contexts<'a>,
    /// Prompt chunks, and sequences that verify drafts, on the rank.
    pub chunks: Cow<'a, [Sequences]>,
    /// Tokens of the longest prompt chunk in the microbatch; 0 without prompts.
    pub longest: u64,
    /// True if a prompt ends in the microbatch.
    pub ends: bool,
}

impl StepModel {
    /// Compiles the work of `deployment`.
    pub fn compile(deployment: &Deployment) -> StepModel {
        let operators = operator::operators(deployment);
        let terms = operators.iter().filter_map(|o| match &o.form {
            Form::Context(form) => Some(&form.decode.terms),
            _ => None,
        });
        let all = terms.flatten().map(|(reach, _)| *reach);
        let mut reaches: Vec<u64> = all.filter(|reach| *reach != u64::MAX).collect();
        reaches.sort_unstable();
        reaches.dedup();
        let links = Links::of(deployment);
        StepModel {
            surroundings: Surroundings::of(deployment, &operators, &links),
            operators,
            reaches,
            links,
            overlap: Overlap::of(deployment),
            bandwidth: deployment.bandwidth(),
            parallelism: deployment.parallelism,
            stages: Stages::of(deployment),
        }
    }

    /// Part of the time of all stages, one after the other, that `pass` takes.
    pub(crate) fn pipelined(&self, pass: &Pass) -> f64 {
        self.stages.part(pass.rows, pass.has_prompts())
    }

    /// The model of steps whose tokens all choose the same routed experts.
    #[must_use]
    pub(crate) fn alike(mut self) -> StepModel {
        for operator in &mut self.operators {
            if let Form::Experts(experts) = &mut operator.form {
                *experts = experts.clone().alike();
            }
        }
        self
    }

    /// Microbatches of one replica's step: `n` sequences that decode one token each, and `chunks`.
    pub fn passes<'a>(
        &'a self,
        n: u64,
        contexts: Contexts<'a>,
        chunks: &'a [Sequences],
    ) -> impl Iterator<Item = Pass<'a>> {
        let microbatches = self.stages.microbatches;
        (0..microbatches.min(1 + chunks.len() as u64)).map(move |number| {
            let chunks =
                if microbatches == 1 { Cow::Borrowed(chunks) } else { dealt(chunks, microbatches, number) };
            self.pass(n, contexts.clone(), chunks)
        })
    }

    /// Microbatches of `batch` on its busiest replica.
    pub fn passes_of(&self, batch: &Batch) -> Vec<Pass<'static>> {
        let replica = batch.local(self.parallelism.replicas);
        let groups = replica.groups.into_iter().filter(|g| g.count > 0);
        let (decodes, chunks): (Vec<Sequences>, Vec<Sequences>) =
            groups.partition(|g| !g.is_prompt() && g.new == 1);
        let n = decodes.iter().map(|s| s.count).sum();
        let contexts = Contexts::Groups(Cow::Owned(decodes));
        let microbatches = self.stages.microbatches;
        let dealt = |number| dealt(&chunks, microbatches, number);
        (0..microbatches).map(|number| self.pass(n, contexts.clone(), dealt(number))).collect()
    }

    /// Creates a microbatch with its part of the `n` decoding sequences and with `chunks`.
    #[inline(always)]
    pub fn pass<'a>(&self, n: u64, contexts: Contexts<'a>, chunks: Cow<'a, [Sequences]>) -> Pass<'a> {
        let ranks = self.parallelism.attention_dp;
        let per_stage = part(n, self.stages.microbatches);
        let rank = |rows: u64| part(rows, ranks);
        let mut new = 0;
        let mut sampled = 0;
        let mut sampling = 0;
        let mut longest = 0;
        let mut ends = false;
        for chunk in chunks.iter() {
            new += chunk.tokens();
            sampled += chunk.count * chunk.sampled;
            sampling += if chunk.sampled > 0 { chunk.count } else { 0 };
            if chunk.is_prompt() {
                longest = longest.max(chunk.new);
                ends |= chunk.sampled > 0;
            }
        }
        let decodes = rank(per_stage);
        let contexts = match contexts {
            Contexts::Groups(groups) => {
                let local =
                    |s: &Sequences| Sequences { count: rank(part(s.count, self.stages.microbatches)), ..*s };
                Contexts::Groups(groups.iter().map(local).collect())
            }
            seen => seen,
        };
        let busiest = if ranks == 1 { chunks } else { busiest(&chunks, ranks) };
        Pass {
            rows: decodes + if ranks == 1 { new } else { busiest.iter().map(Sequences::tokens).sum() },
            sampled: rank(per_stage + sampled),
            sequences: rank(per_stage + sampling),
            tokens: per_stage + new,
            decodes,
            share: match n {
                0 => 0.0,
                n if n == decodes => 1.0,
                n => decodes as f64 / n as f64,
            },
            contexts,
            chunks: busiest,
            longest,
            ends,
        }
    }
}

/// Size of the largest part if `n` is divided into `parts` nearly equal parts.
#[inline]
fn part(n: u64, parts: u64) -> u64 {
    // Avoids the division in the usual case of one part, because a simulation divides in every step.
    if parts == 1 { n } else { n.div_ceil(parts) }
}

/// Every `parts`-th sequence, beginning with number `part`.
fn dealt<'a>(sequences: &[Sequences], parts: u64, part: u64) -> Cow<'a, [Sequences]> {
    let mut before = 0;
    let mut share = Vec::new();
    for s in sequences {
        let below = |n: u64| (n + parts - 1 - part) / parts;
        let count = below(before + s.count) - below(before);
        before += s.count;
        if count > 0 {
            share.push(Sequences { count, ..*s });
        }
    }
    Cow::Owned(share)
}

/// Prompt chunks of the busiest data-parallel rank: prompts are dealt to ranks one by one, and the rank with the most
/// tokens is busiest; sequences that verify drafts are spread evenly.
fn busiest<'a>(chunks: &[Sequences], ranks: u64) -> Cow<'a, [Sequences]> {
    let (prompts, verifying): (Vec<Sequences>, Vec<Sequences>) = chunks.iter().partition(|c| c.is_prompt());
    let tokens = |dealt: &Cow<[Sequences]>| dealt.iter().map(Sequences::tokens).sum::<u64>();
    let busiest_rank =
        (0..ranks.min(prompts.len() as u64 + 1)).map(|rank| dealt(&prompts, ranks, rank)).max_by_key(tokens);
    let busiest_prompts = busiest_rank.into_iter().flat_map(Cow::into_owned);
    busiest_prompts.chain(dealt(&verifying, ranks, 0).into_owned()).collect()
}

/// Bytes of HBM traffic per token in norms and activation functions, over all layers: the two norms of a layer read
/// and write the hidden state, with the residual sum in caches; the activation function of an MLP reads its inner
/// width, twice if gated, and writes it. Activation functions of routed experts are part of the expert kernel.
fn elementwise_bytes(deployment: &Deployment) -> f64 {
    let model = &deployment.model;
    let [hidden, gated, bits] = elements_and_bits(deployment);
    let inner = |mlp: &Dense| {
        (if mlp.gated { gated } else { 2 }) * mlp.intermediate.div_ceil(deployment.parallelism.tp)
    };
    let layer = |layer: &Layer| {
        let mlps = match &layer.ffn {
            Ffn::Dense(dense) => inner(dense),
            Ffn::Experts(experts) => experts.shared.iter().chain(&experts.beside).map(inner).sum(),
            Ffn::None => 0,
        };
        hidden * model.hidden + mlps
    };
    let elements: u64 = model.layers.iter().map(layer).sum();
    elements as f64 * bits as f64 / 8.0
}

/// Reads and writes of the hidden state per layer, reads and writes of the inner width of a gated MLP, and the bits
/// of a value. In ggml, activations have 32 bits, and each operation is a kernel: two norms and their weights read
/// and write, and so does the rotation; two residual additions read two values and write one; the activation function
/// reads and writes, and the gate's multiplication reads two values and writes one. Since b5780 (June 2025), norms
/// are fused with their weights and activation functions with their gates (llama.cpp's pull requests 14158, 14800 and
/// 15631).
fn elements_and_bits(deployment: &Deployment) -> [u64; 3] {
    let engine = &deployment.engine;
    let old = |version: &String| precedes(version, "5780 (2025-06)");
    match engine.kind() {
        EngineKind::LlamaCpp if engine.release.version.as_ref().is_some_and(old) => [16, 5, 32],
        EngineKind::LlamaCpp => [8, 3, 32],
        _ => [4, 3, u64::from(deployment.base.bits())],
    }
}

impl Surroundings {
    fn of(deployment: &Deployment, operators: &[Operator], links: &Links) -> Surroundings {
        let layers = &deployment.model.layers;
        let experts = layers.iter().filter_map(|layer| match &layer.ffn {
            Ffn::Experts(experts) => Some(experts.count),
            Ffn::Dense(_) | Ffn::None => None,
        });
        let products =
            |o: &&Operator| matches!(&o.form, Form::Product { matrix, .. } if matrix.elements > 0.0);
        let count = |operators: &mut dyn Iterator<Item = &Operator>| operators.map(|o| o.layers).sum::<u64>();
        let products = count(&mut operators.iter().filter(products));
        let others = count(&mut operators.iter().filter(|o| matches!(o.form, Form::Context(_))));
        let head = |o: &Operator| match &o.form {
            Form::Product { rows: Rows::Sampled, matrix } => Some(matrix.outputs as u64),
            _ => None,
        };
        Surroundings {
            elementwise_bytes: elementwise_bytes(deployment),
            unfused_expert_bytes: unfused_expert_bytes(deployment),
            experts: experts.max().unwrap_or(0),
            layers: layers.len() as u64,
            small_kernels: layers.iter().map(small_kernels).sum(),
            launched: Launched::of(deployment, operators, links),
            pieces: pieces(deployment, others),
            products,
            vocabulary: operators.iter().filter_map(head).max().unwrap_or(0),
            captured: launched::captured(deployment),
            host_speed: deployment.accelerator.host_speed,
            streams: deployment.streams(),
        }
    }
}

/// Bytes per token of the hidden state's copies, one for each expert that computes the token on a rank with an even
/// load, over all layers. Counted for kernels that do not gather and sum the copies themselves: llama.cpp's.
fn unfused_expert_bytes(deployment: &Deployment) -> f64 {
    if deployment.engine.kind() != EngineKind::LlamaCpp {
        return 0.0;
    }
    let copies = |layer: &Layer| match &layer.ffn {
        Ffn::Experts(experts) => experts.per_token * experts.width(deployment.model.hidden),
        Ffn::Dense(_) | Ffn::None => 0,
    };
    let elements: u64 = deployment.model.layers.iter().map(copies).sum();
    elements as f64 / deployment.parallelism.ep as f64 * f64::from(deployment.base.bits()) / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofcast_ask::deployment::DeploymentOptions;
    use roofcast_ask::parallelism::RequestedParallelism;
    use roofcast_facts::model::config;
    use std::sync::Arc;

    fn compiled(model: &str, tp: u64, ep: u64) -> StepModel {
        let parallelism = RequestedParallelism {
            count: Some(tp),
            tp: Some(tp),
            ep: Some(ep),
            ..RequestedParallelism::default()
        };
        compiled_with(model, &DeploymentOptions { parallelism, ..DeploymentOptions::default() })
    }

    pub(super) fn compiled_with(model: &str, options: &DeploymentOptions) -> StepModel {
        let catalog = roofcast_facts::Catalog::embedded().unwrap();
        let entry = catalog.model(model).unwrap();
        let model = Arc::new(config::read(&entry.id, "catalog", &entry.config).unwrap());
        let accelerator = Arc::new(catalog.accelerator("h100-sxm").unwrap().clone());
        StepModel::compile(&Deployment::resolve(model, accelerator, options).unwrap())
    }

    /// Llama-3.1-8B: 32 layers of 4·4096 and 3·14,336 values of two bytes; each of four ranks has 3·3584 of the
    /// latter.
    #[test]
    fn norms_and_activation_functions_by_hand() {
        let llama = |tp| compiled("meta-llama/Llama-3.1-8B-Instruct", tp, 1).surroundings.elementwise_bytes;
        assert_eq!(llama(1), 32.0 * 2.0 * (16_384.0 + 43_008.0));
        assert_eq!(llama(4), 32.0 * 2.0 * (16_384.0 + 10_752.0));
    }

    /// Llama-3.1-8B under llama.cpp: 8·4096 and 3·14,336 values of four bytes, and 16·4096 and 5·14,336 before b5780.
    #[test]
    fn activations_of_ggml_have_32_bits() {
        let bytes = |version: Option<&str>| {
            let mut options = DeploymentOptions::default();
            options.engine.name = Some("llama.cpp".to_owned());
            options.engine.version = version.map(str::to_owned);
            compiled_with("meta-llama/Llama-3.1-8B-Instruct", &options).surroundings.elementwise_bytes
        };
        for new in [None, Some("b5780"), Some("2026-02")] {
            assert_eq!(bytes(new), 32.0 * 4.0 * (8.0 * 4096.0 + 3.0 * 14_336.0));
        }
        for old in ["b3000", "2024-05/06"] {
            assert_eq!(bytes(Some(old)), 32.0 * 4.0 * (16.0 * 4096.0 + 5.0 * 14_336.0));
        }
    }

    /// A layer of Llama-3.1-8B has two norms, a rotary embedding, a cache write and an activation: 32 · 5 kernels. A
    /// layer of DeepSeek-V3 has two norms and six kernels of latent attention, plus an activation in three layers,
    /// and plus the router's top-k and the shared expert's activation and sum in 58: 61 · 8 + 3 + 58 · 3.
    #[test]
    fn small_kernels_by_hand() {
        let kernels = |model: &str| compiled(model, 8, 1).surroundings.small_kernels;
        assert_eq!(kernels("meta-llama/Llama-3.1-8B-Instruct"), 160);
        assert_eq!(kernels("deepseek-ai/DeepSeek-V3"), 665);
    }

    /// Llama-3.1-8B: four GEMMs in each of 32 layers, and lm_head.
    #[test]
    fn products_by_hand() {
        let llama = |tp| compiled("meta-llama/Llama-3.1-8B-Instruct", tp, 1).surroundings;
        assert_eq!(llama(1).products, 129);
        assert_eq!((llama(1).vocabulary, llama(2).vocabulary), (128_256, 64_128));
    }

    /// Qwen3-30B-A3B under llama.cpp: 48 layers, 8 experts per token, 2048 values of two bytes. vLLM's kernels gather
    /// the copies themselves.
    #[test]
    fn what_passes_between_experts_by_hand() {
        let qwen = |engine: &str| {
            let mut options = DeploymentOptions::default();
            options.engine.name = Some(engine.to_owned());
            compiled_with("Qwen/Qwen3-30B-A3B", &options).surroundings.unfused_expert_bytes
        };
        assert_eq!([qwen("llama.cpp"), qwen("vllm")], [48.0 * 8.0 * 2048.0 * 2.0, 0.0]);
    }

    /// Seven prompts in two groups, 4 of 10 tokens and 3 of 20, dealt to three ranks: sequences 0, 3 and 6; 1 and 4;
    /// 2 and 5.
    #[test]
    fn sequences_are_dealt_one_by_one() {
        let group = |count, new| Sequences { count, ..Sequences::prompt(new, new, true) };
        let all = [group(4, 10), group(3, 20)];
        let counts = |part| dealt(&all, 3, part).iter().map(|s| s.count).collect::<Vec<_>>();
        assert_eq!([counts(0), counts(1), counts(2)], [vec![2, 1], vec![1, 1], vec![1, 1]]);
        let tokens: u64 = busiest(&all, 3).iter().map(Sequences::tokens).sum();
        assert_eq!(tokens, 2 * 10 + 20);
    }
}
