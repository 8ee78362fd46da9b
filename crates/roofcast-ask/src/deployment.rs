//! A deployment: model, accelerator, formats and parallelism, resolved once and valid from then on.
//!
//! Knows: the weights on each rank of each pipeline stage, their formats, and the peak rate of their arithmetic.
//! Knows nothing about batches: `operator` and `cost` compute the cost of a forward pass.

mod balance;
mod defaults;
mod drafter;
mod encoder;
mod experts;
mod formats;
mod host;
mod pages;
mod refused;
mod sequences;
mod server;
mod shard;
mod states;
pub mod support;
mod utilization;
mod windows;

pub use defaults::batch as batch_defaults;
pub use experts::{BusiestRank, ExpertRanks};

use crate::engine_settings::EngineSettings;
use crate::parallelism::{Parallelism, RequestedParallelism};

use crate::spec::{Convention, DraftMethod, EngineKind, EngineSpec, KvLayout, PrecisionSpec, Spec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::{acceptance, usual_acceptance};
use roofcast_facts::error::{Error, Result};
pub use roofcast_facts::model::{Experts, Mixer, Model, OperatorKind, Tensor};
use roofcast_facts::precision::{Dtype, Format, KvFormat};
use roofcast_facts::units::{ByteRate, Bytes, FlopRate};
use std::sync::Arc;

/// Model, accelerator and settings: all inputs of a forward pass and of a memory plan.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// Model that is served.
    pub model: Arc<Model>,
    /// Accelerator of every rank.
    pub accelerator: Arc<Accelerator>,
    /// Degrees of parallelism.
    pub parallelism: Parallelism,
    /// Name of the weight format.
    pub weights: String,
    /// KV-cache format.
    pub kv: KvFormat,
    /// Dtype of activations and of unquantized tensors.
    pub base: Dtype,
    /// Engine settings, defaults filled in.
    pub engine: EngineSettings,
    /// Settings of experts on several ranks.
    pub experts: ExpertRanks,
    /// Ranks over which the cached tokens of a sequence are sharded; 1 if each rank has all tokens.
    pub sequence_ranks: u64,
    /// True to use the nominal memory, to shard perfectly and to reserve nothing.
    pub ideal: bool,
    /// Bytes of each accelerator's memory that other processes hold when the engine starts.
    pub memory_used: Bytes,
    /// Bandwidth of the host's memory, from which its processor reads weights that lie there.
    pub host_bandwidth: ByteRate,
    /// Bytes of one replica's weights, unsharded; tied and replicated weights are counted once.
    pub weight_bytes: Bytes,
    /// Every weight tensor with its format; equal tensors of several layers are merged.
    pub tensors: Vec<Held>,
    /// Pipeline stages, from first to last.
    pub stages: Vec<PipelineStage>,
    /// Assumptions about values that the input does not state, as sentences for reports.
    pub assumptions: Vec<String>,
    /// Options that were resolved, kept as a base for variations.
    asked: DeploymentOptions,
    /// Deployment of the draft model, on the same ranks as this model.
    pub draft: Option<Box<Deployment>>,
    /// Deployment on the second accelerator of a fleet of two kinds.
    pub other: Option<Box<Deployment>>,
}

/// Weight tensor with its number format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// Tensor of the model.
    pub tensor: Tensor,
    /// Format of the tensor.
    pub(crate) format: Format,
    /// Number of layers with such a tensor; 1 outside the layers.
    pub layers: u64,
}

/// Layers of one pipeline stage; equal layers are merged.
#[derive(Debug, Clone)]
pub struct PipelineStage {
    /// Distinct layers, each with the number of layers equal to it.
    pub blocks: Vec<(Block, u64)>,
    /// GEMMs outside the layers, such as lm_head on the last stage.
    pub outer: Vec<Gemm>,
    /// Bytes of the embedding row that each token reads, per rank.
    pub embedding_row: Bytes,
    /// Bytes of weights on one rank's accelerator.
    pub weight_bytes: Bytes,
    /// Bytes of one rank's weights in the host's memory.
    pub host_bytes: Bytes,
    /// Bytes of the largest tensor among `host_bytes`.
    pub largest_on_host: Bytes,
    /// Mixer and number of multi-token-prediction layers, if they draft; they are not among `blocks`.
    pub ahead: Option<(Mixer, u64)>,
}

/// Work of one rank for one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// GEMMs with dense weights, by operator.
    pub gemms: Vec<Gemm>,
    /// Token mixer: attention or a recurrence.
    pub mixer: Mixer,
    /// Routed experts, if the layer has any.
    pub experts: Option<ExpertShard>,
    /// Number of all-reduces of the residual stream under tensor parallelism.
    pub all_reduces: u64,
    /// True if the mixer's cache or state lies in the host's memory.
    pub cache_on_host: bool,
}

/// One operator's weights on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Operator of the weights, as in `qkv_proj`.
    pub operator: OperatorKind,
    /// Matrix elements; each costs one multiplication and one addition per token.
    pub elements: u64,
    /// Output values per row of the input.
    pub outputs: u64,
    /// Bytes of weights read from memory, biases included.
    pub weight_bytes: Bytes,
    /// True if the weights lie in the host's memory.
    pub on_host: bool,
    /// Dtype of the arithmetic.
    pub dtype: Dtype,
    /// Peak FLOP/s in `dtype`.
    pub rate: FlopRate,
}

/// The routed experts that one rank holds.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertShard {
    /// Routed experts of the whole layer.
    pub experts: Experts,
    /// Number of experts on this rank.
    pub local: u64,
    /// Elements of one expert on this rank: a slice under tensor parallelism.
    pub elements: u64,
    /// Bytes of one expert's slice on this rank.
    pub bytes: Bytes,
    /// Fraction of these bytes in the host's memory.
    pub host_share: f64,
    /// Dtype of the arithmetic.
    pub dtype: Dtype,
    /// Peak FLOP/s in `dtype`.
    pub rate: FlopRate,
}

/// Inputs of [`Deployment::resolve`] in addition to model and accelerator.
#[derive(Debug, Clone, Default)]
pub struct DeploymentOptions {
    /// Requested number formats.
    pub precision: PrecisionSpec,
    /// Degrees of parallelism.
    pub parallelism: RequestedParallelism,
    /// Engine settings.
    pub engine: EngineSpec,
    /// True to count weights by the rule of calculations on paper: the nominal bits for every matrix, lm_head
    /// included, but neither the input embedding nor norms.
    pub nominal: bool,
    /// True to use the nominal memory, to shard perfectly and to reserve nothing.
    pub ideal: bool,
    /// Limit of the board power in watts; the accelerator's own board power if absent.
    pub power_limit_w: Option<f64>,
    /// GB/s of the host's memory; the default of the accelerator's node if absent.
    pub host_bandwidth_gb_s: Option<f64>,
    /// GiB of each accelerator's memory that other processes hold when the engine starts; 0 if absent.
    pub memory_used_gib: Option<f64>,
    /// Model named by `engine.speculative.draft_model`.
    pub draft: Option<Arc<Model>>,
    /// Second accelerator of a fleet of two kinds: `fleet.prefill.accelerator` or `fleet.beside.accelerator`.
    pub other: Option<Arc<Accelerator>>,
    /// Sentences on parts of the load that are not counted.
    pub notes: Vec<String>,
}

impl DeploymentOptions {
    /// Takes the options from a spec.
    pub fn of(spec: &Spec) -> DeploymentOptions {
        let p = spec.parallelism;
        DeploymentOptions {
            notes: spec.workload.iter().flat_map(|workload| workload.notes()).collect(),
            precision: spec.precision.clone(),
            parallelism: RequestedParallelism {
                count: spec.hardware.count,
                tp: p.tp,
                pp: p.pp,
                ep: p.ep,
                attention_dp: p.attention_dp,
                replicas: p.replicas,
            },
            engine: spec.engine.clone(),
            power_limit_w: spec.hardware.power_limit_w,
            host_bandwidth_gb_s: spec.hardware.host_bandwidth_gb_s,
            memory_used_gib: spec.hardware.memory_used_gib,
            ideal: spec.hardware.ideal,
            ..DeploymentOptions::default()
        }
    }

    /// Returns these options and `chip` under the rules of `convention`. Seed 003 (noooop/zerollama,
    /// `tutorial/advance/0x02/parameters.py`) counts nominal bits on every weight with lm_head, no input embedding,
    /// no norms, nominal memory without reserves, and reads the datasheet's GB/s as GiB/s.
    pub fn counted(self, convention: Convention, chip: &Accelerator) -> (DeploymentOptions, Accelerator) {
        match convention {
            Convention::Default => (self, chip.clone()),
            Convention::Seed003 => {
                let gib_per_s = chip.bandwidth_bytes_per_s.0 / 1e9 * f64::from(1 << 30);
                let chip = Accelerator { bandwidth_bytes_per_s: ByteRate(gib_per_s), ..chip.clone() };
                (DeploymentOptions { nominal: true, ideal: true, ..self }, chip)
            }
        }
    }
}

impl Deployment {
    /// Resolves and validates a deployment; later operations on it do not fail.
    pub fn resolve(
        model: Arc<Model>,
        accelerator: Arc<Accelerator>,
        options: &DeploymentOptions,
    ) -> Result<Deployment> {
        let accelerator = match options.power_limit_w {
            Some(watts) => Arc::new(accelerator.limited(watts)?),
            None => accelerator,
        };
        let memory_used = memory_used(&accelerator, options.memory_used_gib)?;
        let host_bandwidth = host::bandwidth(&accelerator, options.host_bandwidth_gb_s)?;
        let model = states::stored(windows::read(model, &options.engine), &options.engine)?;
        let named = options.engine.name.as_deref().map(EngineKind::of).filter(|_| !options.ideal);
        let by_layers = named == Some(EngineKind::LlamaCpp);
        let parallelism = Parallelism::resolve(&options.parallelism, &model, by_layers)?;
        let mut assumptions = [model.assumptions.as_slice(), &options.notes].concat();
        let model = encoder::with_processor(model, &options.engine, &mut assumptions)?;
        support::check_chip(named, &accelerator)?;
        let formats = formats::Formats::resolve(&model, &accelerator, options, &mut assumptions)?;
        if !options.ideal {
            support::check_formats(named, &accelerator, &formats.name(), formats.kv)?;
        }
        let model = states::with_rows(model, named, &accelerator);
        let engine = EngineSettings::resolve(
            &options.engine,
            defaults::of(&options.engine, &accelerator, parallelism, &model),
        )?;
        let experts = ExpertRanks::resolve(&options.engine, &model, &accelerator, parallelism)?;
        let sequence_ranks = sequences::ranks(&options.engine, &model, parallelism)?;
        assumptions.extend(engine.release.assumption());
        if memory_used > Bytes::ZERO {
            let alone = "times are those of this engine alone: processes that hold memory take bandwidth and arithmetic, too, while they run";
            assumptions.push(alone.to_owned());
        }
        let weights = formats.name();
        let mut deployment = Deployment {
            weights,
            kv: formats.kv,
            base: formats.base,
            model,
            accelerator,
            parallelism,
            engine,
            experts,
            sequence_ranks,
            ideal: options.ideal,
            memory_used,
            host_bandwidth,
            weight_bytes: Bytes::ZERO,
            tensors: Vec::new(),
            stages: Vec::new(),
            assumptions,
            asked: options.clone(),
            draft: None,
            other: None,
        };
        deployment.kernels()?;
        deployment.adapters()?;
        deployment.look_up_acceptance()?;
        let places = host::Places::of(options, &deployment.model, &deployment.accelerator)?;
        shard::share(&mut deployment, &formats, places)?;
        deployment.assumptions.extend(host::assumption(&deployment));
        deployment.assumptions.extend(deployment.balance());
        if deployment.engine.kv_layout == Some(KvLayout::Vattention) {
            deployment.engine.block_size = pages::page_tokens(&deployment)?;
        }
        deployment.engine.block_size *= sequence_ranks;
        deployment.add_drafter()?;
        deployment.other = deployment.elsewhere()?.map(Box::new);
        Ok(deployment)
    }

    /// Returns the deployment with further assumptions.
    pub fn noting(mut self, notes: impl IntoIterator<Item = String>) -> Deployment {
        self.assumptions.extend(notes);
        self
    }

    /// Replaces the name of published acceptance figures by the figures, and notes their source.
    fn look_up_acceptance(&mut self) -> Result<()> {
        let Some(spec) = &mut self.engine.speculative else { return Ok(()) };
        let Some(asked) = spec.acceptance.take() else {
            let method = (!spec.states_acceptance()).then_some(spec.method).flatten();
            let usual = method
                .filter(|method| *method == DraftMethod::Mtp)
                .and_then(|_| usual_acceptance(&self.model.name, spec.num_speculative_tokens, "MTP"));
            if let Some(usual) = usual {
                self.assumptions.push(format!(
                    "acceptance of drafts, which --acceptance-rate states, is that of {}",
                    usual.origin
                ));
                spec.accepted_per_position = Some(usual.kept);
            }
            return Ok(());
        };
        if spec.accepted_per_position.is_some() {
            let accepted = "acceptance, or accepted_per_position in its place";
            return Err(Error::field("engine.speculative", "acceptance", "one of several", accepted));
        }
        let published = acceptance(&self.model.name, spec.num_speculative_tokens, &asked)?;
        self.assumptions.push(format!("acceptance of drafts is that of {}", published.origin));
        spec.accepted_per_position = Some(published.kept);
        Ok(())
    }

    /// Resolves the deployment on the second accelerator.
    fn elsewhere(&self) -> Result<Option<Deployment>> {
        let Some(accelerator) = &self.asked.other else { return Ok(None) };
        self.on(Arc::clone(accelerator)).map(Some).map_err(|e| e.within(&format!("on {}", accelerator.id)))
    }

    /// Parts into which `tp` ranks divide data per KV head. On GPU engines at most the number of heads, because
    /// further ranks replicate heads (vLLM's `QKVParallelLinear`). JAX engines on TPU then shard the cache by
    /// sequences, and an ideal machine shards everything.
    pub fn kv_parts(&self, heads: u64) -> u64 {
        let tp = self.parallelism.tp;
        if self.ideal || self.accelerator.vendor == "google" { tp } else { tp.min(heads) }
    }

    /// Parts into which the ranks divide a layer's cache of keys and values of `heads` heads, or of latents without heads:
    /// by heads, and by tokens under decode context parallelism.
    pub fn cache_parts(&self, heads: Option<u64>) -> u64 {
        heads.map_or(1, |heads| self.kv_parts(heads)) * self.sequence_ranks
    }

    /// Longest sequence in tokens that is served: the smaller of the model's and the engine's bound; `None` without
    /// bounds.
    pub fn longest(&self) -> Option<u64> {
        [self.model.max_context, self.engine.longest()].into_iter().flatten().min()
    }

    /// Sequences that one replica runs at one time. In vLLM each data-parallel rank is an engine with its own
    /// `max_num_seqs`; SGLang divides `max_running_requests` among the ranks (`model_runner_kv_cache_mixin.py`,
    /// 0.5.8).
    pub fn seats(&self) -> u64 {
        let each = self.engine.kind() == EngineKind::Vllm;
        let ranks = if each { self.parallelism.attention_dp } else { 1 };
        self.engine.max_num_seqs.saturating_mul(ranks)
    }

    /// The deployment while its weights are loaded, if it holds more then: vLLM before 0.14 loads a checkpoint of 16
    /// bits whole before `--quantization fp8` quantizes it (`Fp8LinearMethod.process_weights_after_loading` of
    /// `model_executor/layers/quantization/fp8.py`).
    pub fn loading(&self) -> Option<Deployment> {
        let online = self.asked.precision.weights.as_deref() == Some("fp8")
            && self.model.quantization.is_none()
            && self.model.stored.is_none()
            && (self.asked.precision.online
                || !self
                    .model
                    .published
                    .iter()
                    .any(|(_, published)| published.format.name.starts_with("fp8")));
        let whole = self.engine.kind() == EngineKind::Vllm && !self.engine.is_since("0.14.0");
        let sixteen = || self.varied(|options| options.precision.weights = None).ok();
        if online && whole && !self.ideal { sixteen() } else { None }
    }

    /// Resolves a deployment of this model and accelerator with options that `change` modifies.
    ///
    /// # Errors
    /// Fails for the reasons of [`Deployment::resolve`].
    pub fn varied(&self, change: impl FnOnce(&mut DeploymentOptions)) -> Result<Deployment> {
        let mut options = self.asked.clone();
        change(&mut options);
        Deployment::resolve(Arc::clone(&self.model), Arc::clone(&self.accelerator), &options)
    }

    /// Resolves a deployment of this model with these options on another accelerator.
    ///
    /// # Errors
    /// Fails for the reasons of [`Deployment::resolve`].
    pub fn on(&self, accelerator: Arc<Accelerator>) -> Result<Deployment> {
        let options = DeploymentOptions { other: None, ..self.asked.clone() };
        Deployment::resolve(Arc::clone(&self.model), accelerator, &options)
    }

    /// Requested formats, which the command of a deployment repeats.
    pub fn requested_formats(&self) -> &PrecisionSpec {
        &self.asked.precision
    }

    /// Requested settings of the engine, which the command of a deployment repeats.
    pub fn requested_engine(&self) -> &EngineSpec {
        &self.asked.engine
    }

    /// Requested degrees of parallelism.
    pub fn requested_shares(&self) -> RequestedParallelism {
        self.asked.parallelism
    }

    /// True if weights are counted by the rule of calculations on paper; see [`DeploymentOptions::nominal`].
    pub fn is_nominal(&self) -> bool {
        self.asked.nominal
    }

    /// Memory bandwidth in bytes per second.
    pub fn bandwidth(&self) -> ByteRate {
        self.accelerator.bandwidth_bytes_per_s
    }
}

/// Converts `gib`, the memory of `accelerator` that other processes hold, to bytes; 0 if absent.
fn memory_used(accelerator: &Accelerator, gib: Option<f64>) -> Result<Bytes> {
    let Some(gib) = gib else { return Ok(Bytes::ZERO) };
    let unit = f64::from(1 << 30);
    let whole = accelerator.usable_bytes.as_f64() / unit;
    if !(0.0..whole).contains(&gib) {
        let accepted = format!("0 to less than {whole:.2} (the memory of {})", accelerator.id);
        return Err(Error::field("hardware", "memory_used_gib", gib, accepted));
    }
    Ok(Bytes::from_f64(gib * unit))
}
