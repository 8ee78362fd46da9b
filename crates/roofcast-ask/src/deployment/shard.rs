//! Sharding of a model's tensors over pipeline stages and ranks.
//!
//! Knows: the part of each tensor on the busiest rank of a stage. Knows nothing about batches.

use super::formats::Formats;
use super::host::Places;
use super::{Block, Deployment, ExpertShard, Gemm, Held, PipelineStage};
use crate::spec::{DraftMethod, EncoderTpMode, EngineKind};
use roofcast_facts::error::Result;
use roofcast_facts::model::{Ffn, Layer, Mixer, Model, OperatorKind, Split, Tensor, TensorRole};
use roofcast_facts::precision::{Dtype, Format};
use roofcast_facts::units::Bytes;

/// Computes the stages and the weight bytes of `deployment`.
pub(super) fn share(deployment: &mut Deployment, formats: &Formats, mut places: Places) -> Result<()> {
    let model = deployment.model.clone();
    let stages = deployment.parallelism.pp;
    let mut total = Bytes::ZERO;
    let mut first = 0;
    let mut tensors = Vec::new();
    for stage in 0..stages {
        // Layers on the host stand before those of the first card.
        let on_host = places.layers_on_host();
        let count = stage_layers(model.layers.len() - on_host, stages as usize, stage as usize)
            + if stage == 0 { on_host } else { 0 };

        let mut share = Share {
            deployment,
            formats,
            places,
            held: Bytes::ZERO,
            on_host: Bytes::ZERO,
            largest_on_host: Bytes::ZERO,
            whole: Bytes::ZERO,
            tensors: std::mem::take(&mut tensors),
        };
        let mut blocks: Vec<(Block, u64)> = Vec::new();
        for index in first..first + count {
            let block = share.block(&model.layers[index], index)?;
            match blocks.iter_mut().find(|(b, _)| *b == block) {
                Some((_, times)) => *times += 1,
                None => blocks.push((block, 1)),
            }
        }
        first += count;
        let (outer, embedding_row) = share.outer(stage == 0, stage + 1 == stages)?;
        let tower = if stage == 0 { tower(share.deployment) } else { Bytes::ZERO };
        let weight_bytes = share.held + tower + absorbed(share.deployment, &blocks);
        total += share.whole;
        let host_bytes = share.on_host;
        let largest_on_host = share.largest_on_host;
        places = share.places;
        places.at_next_stage();
        tensors = share.tensors;
        deployment.stages.push(PipelineStage {
            blocks,
            outer,
            embedding_row,
            weight_bytes,
            host_bytes,
            largest_on_host,
            ahead: None,
        });
    }
    total = as_in_files(deployment, formats, total) + ahead(deployment, formats);
    deployment.weight_bytes = total;
    deployment.tensors = tensors;
    Ok(())
}

/// Makes the weights of all ranks those of the model's files together, and returns their bytes: files may hold tensors
/// that the model has no name for. `total` are the bytes by the model's tensors.
fn as_in_files(deployment: &mut Deployment, formats: &Formats, total: Bytes) -> Bytes {
    let Some(files) = formats.files(&deployment.model).filter(|_| total.0 > 0) else { return total };
    for stage in &mut deployment.stages {
        stage.weight_bytes = stage.weight_bytes.scale(files.0, total.0);
    }
    files
}

/// Adds the weights of multi-token-prediction layers that draft to the last stage, and returns their bytes, each
/// counted once. Engines run them with drafts of neither another model nor n-grams; published checkpoints of 4 bits
/// keep them in 16 (`mtp*` and the layers beyond the last in the `exclude_modules` of NVIDIA's), except AutoRound's.
/// Files of llama.cpp have them, `eh_proj` included, in the formats of other layers; it runs them if asked by name alone
/// (`draft-mtp`).
fn ahead(deployment: &mut Deployment, formats: &Formats) -> Bytes {
    let model = deployment.model.clone();
    let drafts_itself = deployment.engine.speculative.as_ref().is_some_and(|spec| {
        let by_layers = spec.method.is_none_or(|method| method == DraftMethod::Mtp);
        spec.draft_model.is_none() && by_layers && spec.draft_cost != Some(0.0)
    });
    let counts = drafts_itself && !deployment.ideal && !deployment.is_nominal();
    let in_gguf = deployment.engine.kind() == EngineKind::LlamaCpp;
    let named = deployment.engine.speculative.as_ref().is_some_and(|s| s.method == Some(DraftMethod::Mtp));
    let runs = counts && (named || !in_gguf);
    let Some((index, layer)) = model.layer_ahead().filter(|_| runs) else { return Bytes::ZERO };
    let share = Share {
        deployment,
        formats,
        places: Places::Accelerator,
        held: Bytes::ZERO,
        on_host: Bytes::ZERO,
        largest_on_host: Bytes::ZERO,
        whole: Bytes::ZERO,
        tensors: Vec::new(),
    };
    let rounded = model.name.to_ascii_lowercase().contains("autoround");
    let bits = |tensor: &Tensor| {
        let width = formats.of(&model, tensor, Some(index), false).width;
        if width.as_f64() < 8.0 && !rounded && !in_gguf { formats.unquantized().width } else { width }
    };
    let tensors = layer.tensors(model.hidden);
    // The projection of a token's embedding and the last hidden state, side by side.
    let output = tensors.iter().find(|tensor| in_gguf && tensor.operator == OperatorKind::OProj);
    let width = output.map_or(formats.unquantized().width, bits);
    let joined = width.bytes(2 * u128::from(model.hidden) * u128::from(model.hidden));
    let tensor_bytes: Bytes = tensors.iter().map(|tensor| bits(tensor).bytes(share.share_of(tensor))).sum();
    let whole: Bytes = tensors.iter().map(|tensor| bits(tensor).bytes(tensor.elements())).sum();
    if let Some(stage) = deployment.stages.last_mut() {
        stage.weight_bytes += (tensor_bytes + joined) * model.ahead;
        stage.ahead = Some((layer.mixer, model.ahead));
    }
    let omitted = Model::without_ahead(model.ahead);
    deployment.assumptions.retain(|sentence| *sentence != omitted);
    deployment.assumptions.push(format!(
        "{} multi-token-prediction layers draft: their weights and cache are counted, as layers like the last",
        model.ahead
    ));
    (whole + joined) * model.ahead
}

impl Deployment {
    /// Bytes of the vision tower on a rank of the first stage.
    pub fn tower_bytes(&self) -> Bytes {
        tower(self)
    }

    /// Bytes of the second copies of MLA's up-projections on a rank of the first stage.
    pub fn absorbed_bytes(&self) -> Bytes {
        self.stages.first().map_or(Bytes::ZERO, |stage| absorbed(self, &stage.blocks))
    }
}

/// Bytes of the vision tower on a rank, which vLLM and SGLang load by default; whole if ranks divide images.
fn tower(deployment: &Deployment) -> Bytes {
    let engine = &deployment.engine;
    let loads = loads_in_torch(engine.kind()) && !engine.language_model_only;
    let tower = deployment.model.tower.filter(|_| loads && !deployment.ideal && !deployment.is_nominal());
    let parameters = tower.map_or(0, |tower| tower.parameters);
    let parts = match engine.mm_encoder_tp_mode {
        EncoderTpMode::Weights => deployment.parallelism.tp,
        EncoderTpMode::Data => 1,
    };
    Bytes(parameters.div_ceil(parts)).scale(16, 8)
}

/// Bytes of a second copy of MLA's up-projections on a rank. vLLM and SGLang keep per-head matrices in 16 bits, which
/// multiply queries and outputs, in addition to the checkpoint's matrix (`process_weights_after_loading` of vLLM's
/// `MLACommonImpl`, `w_kc` and `w_vc` of SGLang's `deepseek_v2.py`).
fn absorbed(deployment: &Deployment, blocks: &[(Block, u64)]) -> Bytes {
    if !loads_in_torch(deployment.engine.kind()) || deployment.ideal {
        return Bytes::ZERO;
    }
    let absorbed_elements = |(block, layers): &(Block, u64)| match &block.mixer {
        Mixer::Latent(l) => {
            let heads = l.heads.div_ceil(deployment.parallelism.tp);
            u128::from(heads * (l.qk_nope_head_dim + l.v_head_dim)) * u128::from(l.kv_lora_rank * layers)
        }
        _ => 0,
    };
    Bytes(clamp(blocks.iter().map(absorbed_elements).sum::<u128>() * 2))
}

/// Number of layers of stage `stage` of `stages`. Remaining layers go to the last stages except the very last, as in
/// vLLM's `get_pp_indices`.
fn stage_layers(layers: usize, stages: usize, stage: usize) -> usize {
    let extra = layers % stages;
    let from_end = stages - stage;
    layers / stages + usize::from((2..extra + 2).contains(&from_end))
}

/// Format and place of a tensor.
#[derive(Clone, Copy)]
struct Stored {
    format: Format,
    /// True if the tensor lies in the host's memory.
    on_host: bool,
}

struct Share<'a> {
    deployment: &'a Deployment,
    formats: &'a Formats,
    places: Places,
    /// Bytes of weights on one rank's accelerator.
    held: Bytes,
    /// Bytes of one rank's weights on the host.
    on_host: Bytes,
    /// Bytes of the largest tensor on the host.
    largest_on_host: Bytes,
    /// Bytes of all tensors of the model, each counted once.
    whole: Bytes,
    /// All tensors of the model, each listed once.
    tensors: Vec<Held>,
}

impl Share<'_> {
    fn block(&mut self, layer: &Layer, index: usize) -> Result<Block> {
        let model = &self.deployment.model;
        let mut gemms: Vec<Gemm> = Vec::new();
        let mut expert_elements = 0;
        let mut expert_bytes = Bytes::ZERO;
        let mut host_bytes = Bytes::ZERO;
        let mut expert_format = Format::BF16;
        for tensor in layer.tensors(model.hidden) {
            let Some(stored) = self.hold(&tensor, Some(index)) else { continue };
            if tensor.split == Split::Experts {
                // Number of slices into which one expert is cut.
                let slices = self.deployment.parallelism.stage_ranks() / self.deployment.parallelism.ep;
                let expert = Tensor { copies: 1, ..tensor };
                let bytes = stored.format.width.bytes(expert.elements().div_ceil(u128::from(slices)));
                expert_bytes += bytes;
                host_bytes += if stored.on_host { bytes } else { Bytes::ZERO };
                if tensor.role == TensorRole::Expert {
                    expert_elements += clamp(expert.elements().div_ceil(u128::from(slices)));
                    expert_format = stored.format;
                }
            } else {
                self.add(&mut gemms, &tensor, stored)?;
            }
        }
        let experts = match &layer.ffn {
            Ffn::Experts(experts) => Some(ExpertShard {
                experts: experts.with_copies(self.deployment.experts.redundant),
                local: self.copies(experts.count),
                elements: expert_elements,
                bytes: expert_bytes,
                host_share: host_bytes.as_f64() / expert_bytes.as_f64().max(1.0),
                dtype: self.dtype(expert_format),
                rate: self.deployment.accelerator.peak(self.dtype(expert_format))?,
            }),
            _ => None,
        };
        let mixes = !matches!(layer.mixer, Mixer::None);
        let feeds = !matches!(layer.ffn, Ffn::None);
        let all_reduces = if layer.parallel { 1 } else { u64::from(mixes) + u64::from(feeds) };
        let cache_on_host = self.places.keeps_cache_on_host(index);
        Ok(Block { gemms, mixer: layer.mixer.clone(), experts, all_reduces, cache_on_host })
    }

    /// GEMMs outside the layers, and the bytes of the embedding row that one token reads.
    fn outer(&mut self, first: bool, last: bool) -> Result<(Vec<Gemm>, Bytes)> {
        let model = self.deployment.model.clone();
        let mut gemms = Vec::new();
        let mut row = Bytes::ZERO;
        for tensor in &model.outer {
            let here = match tensor.role {
                TensorRole::Embedding => first,
                _ if matches!(tensor.operator, OperatorKind::Embedding | OperatorKind::ProjectIn) => first,
                _ => last,
            };
            if !here {
                continue;
            }
            if tensor.role == TensorRole::Head && model.tied && first && last && !self.deployment.is_nominal()
            {
                // A tied head is stored with the embedding, but its weights are still read.
                let format = self.formats.of(&model, tensor, None, false);
                let on_host = self.places.are_on_host(&model, tensor, None, Bytes::ZERO);
                self.add(&mut gemms, tensor, Stored { format, on_host })?;
                continue;
            }
            let Some(stored) = self.hold(tensor, None) else { continue };
            if tensor.role == TensorRole::Embedding {
                let columns = tensor.columns.div_ceil(self.deployment.parallelism.tp);
                row += stored.format.width.bytes(u128::from(columns) * u128::from(tensor.copies));
            } else if tensor.operator != OperatorKind::Embedding {
                self.add(&mut gemms, tensor, stored)?;
            }
        }
        if model.tied && last && !first {
            // A tied head on the last stage is a second copy: it counts in that rank's memory, but not in the total
            // of the model.
            self.whole = self.whole.saturating_sub(self.head_bytes());
        }
        Ok((gemms, row))
    }

    fn head_bytes(&self) -> Bytes {
        let model = &self.deployment.model;
        let head = model.outer.iter().filter(|t| t.role == TensorRole::Head);
        head.map(|t| self.formats.of(model, t, None, self.deployment.is_nominal()).width.bytes(t.elements()))
            .sum()
    }

    /// Counts the bytes of a tensor and returns its format and place; `None` for tensors that the accounting leaves
    /// out.
    fn hold(&mut self, tensor: &Tensor, layer: Option<usize>) -> Option<Stored> {
        let d = self.deployment;
        if d.is_nominal() && (tensor.operator == OperatorKind::Norms || tensor.role == TensorRole::Embedding)
        {
            return None;
        }
        let layer_count = d.model.held_layers().len();
        let format =
            self.formats.of(&d.model, tensor, layer.map(|index| index % layer_count), d.is_nominal());
        if layer.is_some_and(|index| index >= layer_count) {
            // A later pass through a looped model reuses weights that are already counted.
            return Some(Stored { format, on_host: false });
        }
        match self.tensors.iter_mut().find(|h| h.tensor == *tensor && h.format == format) {
            Some(known) => known.layers += 1,
            None => self.tensors.push(Held { tensor: *tensor, format, layers: 1 }),
        }
        self.whole += format.width.bytes(tensor.elements());
        let loaded = format.width.bytes(self.loaded(tensor, format));
        let on_host = self.places.are_on_host(&d.model, tensor, layer, loaded);
        if on_host {
            self.on_host += loaded;
            self.largest_on_host = self.largest_on_host.max(loaded);
        } else {
            self.held += loaded;
        }
        Some(Stored { format, on_host })
    }

    /// Elements of `tensor` that one rank loads, with padding: vLLM pads the experts of MXFP4 checkpoints to the size
    /// that its kernel for the chip needs (`Mxfp4MoEMethod.create_weights` in vLLM 0.11: Triton on Hopper,
    /// TensorRT-LLM's kernel on data-centre Blackwell, Marlin elsewhere).
    fn loaded(&self, tensor: &Tensor, format: Format) -> u128 {
        let d = self.deployment;
        let padded = d.engine.kind() == EngineKind::Vllm && format.name == "mxfp4" && !d.ideal;
        if !padded || tensor.role != TensorRole::Expert {
            return self.share_of(tensor);
        }
        let inner = match d.accelerator.architecture.as_str() {
            "hopper" => 1,
            "blackwell" | "cdna3" | "cdna4" => 256,
            _ => 128,
        };
        let slices = d.parallelism.stage_ranks() / d.parallelism.ep;
        let experts = u128::from(self.copies(tensor.copies));
        let (hidden, wide) = if tensor.columns == d.model.hidden {
            (tensor.columns, tensor.rows)
        } else {
            (tensor.rows, tensor.columns)
        };
        let wide = wide.div_ceil(slices).next_multiple_of(inner);
        u128::from(hidden.next_multiple_of(256)) * u128::from(wide) * experts
    }

    /// Experts of a layer on one rank, second copies of load balancing included.
    fn copies(&self, experts: u64) -> u64 {
        (experts + self.deployment.experts.redundant).div_ceil(self.deployment.parallelism.ep)
    }

    /// Elements of `tensor` on one rank, without padding.
    fn share_of(&self, tensor: &Tensor) -> u128 {
        let p = self.deployment.parallelism;
        let parts = match tensor.split {
            Split::Even => p.tp,
            Split::KvHeads(heads) => self.deployment.kv_parts(heads),
            Split::Experts => {
                let experts = u128::from(self.copies(tensor.copies));
                let expert = Tensor { copies: 1, ..*tensor };
                return expert.elements().div_ceil(u128::from(p.stage_ranks() / p.ep)) * experts;
            }
            Split::Replicated if self.deployment.ideal => p.tp,
            Split::Replicated => 1,
        };
        tensor.elements().div_ceil(u128::from(parts))
    }

    /// Output values per row of `tensor` on one rank; projections to the hidden size are cut along their inputs, so
    /// they keep all outputs.
    fn outputs_of(&self, tensor: &Tensor) -> u64 {
        if tensor.role == TensorRole::Vector {
            return 0;
        }
        if matches!(tensor.operator, OperatorKind::OProj | OperatorKind::DownProj) {
            return tensor.rows;
        }
        clamp(self.share_of(tensor) / u128::from(tensor.columns.max(1)))
    }

    fn add(&self, gemms: &mut Vec<Gemm>, tensor: &Tensor, stored: Stored) -> Result<()> {
        let Stored { format, on_host } = stored;
        let dtype = self.dtype(format);
        let elements = self.share_of(tensor);
        let weight_bytes = format.width.bytes(elements);
        let elements = if tensor.role == TensorRole::Vector { 0 } else { clamp(elements) };
        let outputs = self.outputs_of(tensor);
        // A bias belongs to its operator, whatever the dtype of the arithmetic.
        let vector = tensor.role == TensorRole::Vector;
        let joins = |g: &&mut Gemm| {
            g.operator == tensor.operator && (vector || g.dtype == dtype) && g.on_host == on_host
        };
        match gemms.iter_mut().find(joins) {
            Some(gemm) => {
                gemm.elements = gemm.elements.saturating_add(elements);
                gemm.outputs = gemm.outputs.saturating_add(outputs);
                gemm.weight_bytes += weight_bytes;
            }
            None => {
                let rate = self.deployment.accelerator.peak(dtype)?;
                let operator = tensor.operator;
                gemms.push(Gemm { operator, elements, outputs, weight_bytes, on_host, dtype, rate });
            }
        }
        Ok(())
    }

    /// Dtype of the arithmetic with weights in `format`.
    fn dtype(&self, format: Format) -> Dtype {
        match format.compute {
            Some(Dtype::Fp32) => self.deployment.base,
            Some(dtype) => dtype,
            None => self.deployment.base,
        }
    }
}

fn clamp(elements: u128) -> u64 {
    u64::try_from(elements).unwrap_or(u64::MAX)
}

/// True for engines that load vision towers and keep the second copy of MLA's up-projections.
fn loads_in_torch(kind: EngineKind) -> bool {
    matches!(kind, EngineKind::Vllm | EngineKind::Sglang)
}

#[cfg(test)]
mod tests {
    use super::stage_layers;

    #[test]
    fn stages_share_layers_as_vllm_does() {
        // 64 layers in 3 stages are 21 each; the remaining layer goes to the stage before the last.
        assert_eq!([0, 1, 2].map(|s| stage_layers(64, 3, s)), [21, 22, 21]);
        assert_eq!([0, 1, 2, 3].map(|s| stage_layers(62, 4, s)), [15, 16, 16, 15]);
    }
}
