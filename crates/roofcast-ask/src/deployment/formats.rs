//! Number format of each tensor on a given chip: the user's request, else the checkpoint's format, else 16 bits.
//!
//! Knows: requested formats, the formats of checkpoints, and the dtypes of a chip. Knows nothing about ranks.

use super::{DeploymentOptions, support};
use crate::spec::{EngineKind, EngineSpec, PrecisionSpec};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::{Mixer, Model, Quantization, Tensor, TensorRole};
use roofcast_facts::precision::{Dtype, Format, GgufMix, KvFormat, WeightFormat};
use roofcast_facts::units::Bytes;

/// Rules that give every tensor its number format.
pub(super) struct Formats {
    rule: DtypeRule,
    /// Format of unquantized tensors.
    unquantized: Format,
    /// Dtype of activations.
    pub(super) base: Dtype,
    /// Format of KV-cache elements.
    pub(super) kv: KvFormat,
    /// Dtype that the user requests for activations, if any.
    activations: Option<Dtype>,
    /// Dtypes in which the chip computes.
    rates: Vec<Dtype>,
    /// True if the chip computes in NVFP4.
    has_nvfp4: bool,
}

enum DtypeRule {
    /// One format for linear layers and experts.
    Linear(Format),
    /// Mixture of GGUF types.
    Gguf(GgufMix),
    /// Formats of a checkpoint, adapted to the chip.
    Checkpoint(Box<Quantization>),
    /// The formats that the model's file records for each tensor.
    Stored(&'static str),
}

/// Format of a model with experts in a GGUF: llama.cpp's only files in MXFP4 have the experts in it and 8 bits in the other
/// matrices (`LLAMA_FTYPE_MOSTLY_MXFP4_MOE`, `src/llama-quant.cpp`).
fn in_gguf(wish: WeightFormat, model: &Model, engine: EngineKind) -> WeightFormat {
    let is_mxfp4 = matches!(&wish, WeightFormat::Uniform(format) if format.name == Format::MXFP4.name);
    if engine == EngineKind::LlamaCpp && is_mxfp4 && model.is_moe() {
        WeightFormat::Gguf(GgufMix::Mxfp4Moe)
    } else {
        wish
    }
}

impl Formats {
    pub(super) fn resolve(
        model: &Model,
        chip: &Accelerator,
        options: &DeploymentOptions,
        assumptions: &mut Vec<String>,
    ) -> Result<Formats> {
        let wish = options.precision.weights.as_deref().map(str::parse::<WeightFormat>).transpose()?;
        let wish = wish.map(|wish| in_gguf(wish, model, options.engine.kind()));
        let other_format =
            model.quantization.as_ref().and_then(Quantization::by_id).filter(|said| Some(*said) != wish);
        let id_format = other_format
            .filter(|other_format| !(is_fp8(wish) && other_format.name() == Format::FP8_BLOCK.name));
        if let (Some(wish), Some(id_format)) = (wish, id_format) {
            assumptions.push(format!(
                "weights {} as asked, not {} as the id says",
                wish.name(),
                id_format.name()
            ));
        }
        let text = options.precision.weights.as_deref().map(|w| w.trim().to_ascii_lowercase());
        // `16` accepts any 16-bit dtype that both model and chip support; a dtype by name is used or refused.
        let named = match wish {
            Some(WeightFormat::Uniform(f)) if !matches!(text.as_deref(), Some("16" | "w16")) => {
                match f.name {
                    "fp16" => Some(Dtype::Fp16),
                    "bf16" => Some(Dtype::Bf16),
                    "fp32" => Some(Dtype::Fp32),
                    _ => None,
                }
            }
            _ => None,
        };
        let dtype = named.unwrap_or(model.dtype);
        let base = if named.is_some() { chip.peak(dtype).map(|_| dtype)? } else { chip.sixteen_bit(dtype) };
        chip.peak(base)?;
        if base != dtype {
            assumptions
                .push(format!("{} has no {dtype} rate: what is not quantized computes in {base}", chip.id));
        }
        let unquantized = match dtype {
            Dtype::Fp32 => Format::FP32,
            Dtype::Fp16 => Format::FP16,
            _ => Format::BF16,
        };
        let wish = wish.or_else(|| gguf(model, options.engine.kind(), assumptions));
        let rule = rule(model, chip, wish, unquantized, &options.precision, assumptions)?;
        let kv = kv(model, options.precision.kv.as_deref(), dtype, &options.engine)?;
        let rates = chip.peak_flops.keys().copied().collect();
        let activations = activations(&rule, chip, options.precision.activations, assumptions)?;
        let has_nvfp4 = chip.computes(&Format::NVFP4);
        Ok(Formats { rule, unquantized, base, kv, activations, rates, has_nvfp4 })
    }

    /// Name of the weight format; several formats of a checkpoint are joined.
    pub(super) fn name(&self) -> String {
        match &self.rule {
            DtypeRule::Checkpoint(q) => q.formats().iter().map(|f| f.name).collect::<Vec<_>>().join("+"),
            DtypeRule::Linear(format) => format.name.to_owned(),
            DtypeRule::Gguf(mix) => mix.name().to_owned(),
            DtypeRule::Stored(name) => (*name).to_owned(),
        }
    }

    /// Format of tensors that are not quantized.
    pub(super) fn unquantized(&self) -> Format {
        self.unquantized
    }

    /// Bytes of the model's files, if their formats are used.
    pub(super) fn files(&self, model: &Model) -> Option<Bytes> {
        let stored = model.stored.as_ref().filter(|_| matches!(self.rule, DtypeRule::Stored(_)));
        stored.map(|stored| stored.bytes).filter(|bytes| bytes.0 > 0)
    }

    /// Adapts a checkpoint's format to this chip: weight-only quantization if the chip cannot compute in it.
    fn adapted(&self, format: Format) -> Format {
        let format = with_activations(format, self.activations).unwrap_or(format);
        let is_emulated = format.name == Format::NVFP4.name && !self.has_nvfp4;
        match format.compute {
            Some(dtype) if dtype != Dtype::Fp32 && (is_emulated || !self.rates.contains(&dtype)) => {
                Format { compute: None, ..format }
            }
            _ => format,
        }
    }

    /// Gives weight-only block formats the dtype of activations as compute dtype, if it is known.
    fn blocks(&self, format: Format) -> Format {
        if format.compute.is_some() || format.width.as_f64() >= 16.0 {
            return format;
        }
        with_activations(format, self.activations).unwrap_or(format)
    }

    /// Format of `tensor` in layer `layer`, or outside the layers if `layer` is `None`.
    pub(super) fn of(&self, model: &Model, tensor: &Tensor, layer: Option<usize>, nominal: bool) -> Format {
        if let (true, DtypeRule::Linear(format)) = (nominal, &self.rule) {
            return *format;
        }
        let matrix = matches!(tensor.role, TensorRole::Linear | TensorRole::Expert);
        match &self.rule {
            DtypeRule::Linear(format) if matrix && layer.is_some() => *format,
            DtypeRule::Linear(format)
                if format.covers_ends()
                    && matches!(tensor.role, TensorRole::Embedding | TensorRole::Head) =>
            {
                *format
            }
            DtypeRule::Checkpoint(quantization) => {
                quantization.format(tensor, layer).map_or(self.unquantized, |f| self.adapted(f))
            }
            // llama.cpp's files of such checkpoints keep the experts whatever the name of the mixture
            // (ggml-org/gpt-oss-120b-GGUF; the files of 2 to 8 bits that others publish differ in the rest alone).
            DtypeRule::Gguf(_) if tensor.role == TensorRole::Expert && experts_are_stored(model) => {
                self.blocks(Format::MXFP4)
            }
            DtypeRule::Gguf(mix)
                if tensor.role != TensorRole::Vector && tensor.role != TensorRole::Router =>
            {
                let index = layer.unwrap_or(0);
                let count = model.layers.len();
                self.blocks(mix.format(gguf_place(tensor), index, count, tensor.columns, model.tied))
            }
            DtypeRule::Stored(_) => self.blocks(stored(model, tensor, layer).unwrap_or(self.unquantized)),
            // GGUF keeps norms, biases and routers in 32 bits.
            DtypeRule::Gguf(_) => Format { compute: None, ..Format::FP32 },
            _ => self.unquantized,
        }
    }
}

/// True for a model whose checkpoint has its experts, and nothing else, in 4-bit floats.
fn experts_are_stored(model: &Model) -> bool {
    model.quantization.as_ref().is_some_and(Quantization::of_experts_only)
}

/// The format that the model's file records for `tensor`.
fn stored(model: &Model, tensor: &Tensor, layer: Option<usize>) -> Option<Format> {
    let stored = model.stored.as_ref()?;
    let path =
        layer.map_or_else(|| tensor.name.to_owned(), |index| format!("layers.{index}.{}", tensor.name));
    Some(stored.formats.get(&path).copied().unwrap_or(stored.other))
}

fn gguf_place(tensor: &Tensor) -> roofcast_facts::precision::GgufTensor {
    use roofcast_facts::precision::GgufTensor as Place;
    match (tensor.role, tensor.name) {
        (TensorRole::Embedding, _) => Place::Embedding,
        (TensorRole::Head, _) => Place::Output,
        (_, "self_attn.v_proj") => Place::AttentionValue,
        (_, "self_attn.o_proj") => Place::AttentionOutput,
        (TensorRole::Expert, name) if name.ends_with("down_proj") => Place::ExpertDown,
        (TensorRole::Expert, _) => Place::Expert,
        (_, name) if name.ends_with("down_proj") => Place::FfnDown,
        _ => Place::Other,
    }
}

/// llama.cpp's mixture for a checkpoint in which only the experts are quantized, to MXFP4: its GGUF files keep the
/// experts and store the rest in q8_0 (ggml-org/gpt-oss-20b-GGUF). `None` for other engines, and for files that
/// record a format per tensor.
fn gguf(model: &Model, engine: EngineKind, assumptions: &mut Vec<String>) -> Option<WeightFormat> {
    if engine != EngineKind::LlamaCpp || !experts_are_stored(model) || model.stored.is_some() {
        return None;
    }
    let mix = GgufMix::Mxfp4Moe;
    assumptions.push(format!("weights {}: experts as in the checkpoint, all else in q8_0", mix.name()));
    Some(WeightFormat::Gguf(mix))
}

fn rule(
    model: &Model,
    chip: &Accelerator,
    wish: Option<WeightFormat>,
    unquantized: Format,
    precision: &PrecisionSpec,
    assumptions: &mut Vec<String>,
) -> Result<DtypeRule> {
    let activations = precision.activations;
    let mix = model.quantization.as_ref().and_then(Quantization::mix).map(WeightFormat::Gguf);
    let is_own = |id: &str| id == model.name;
    let wished =
        wish.and_then(|wish| checkpoint(model, wish)).filter(|(id, _)| !precision.online || is_own(id));
    let rule = match (wish.or(mix), &model.quantization) {
        (Some(_), own) if let Some((id, quantization)) = wished => {
            if own.as_ref() != Some(quantization) {
                assumptions.push(format!("weights {} as in {id}", quantization.format.name));
            }
            computes(quantization, chip, activations, assumptions)?;
            DtypeRule::Checkpoint(Box::new(quantization.clone()))
        }
        (None, _) if model.stored.is_some() => {
            DtypeRule::Stored(model.stored.as_ref().map_or("", |s| s.name))
        }
        (Some(WeightFormat::Gguf(mix)), _) => DtypeRule::Gguf(mix),
        (Some(WeightFormat::Uniform(f)), _) if f.width.as_f64() >= 16.0 => DtypeRule::Linear(unquantized),
        (Some(WeightFormat::Uniform(f)), _) => {
            let format = with_activations(f, activations)?;
            let stores = f.name == "nvfp4" || model.quantization.as_ref().is_some_and(stores_fp8);
            let may = stores && activations.is_none();
            let format = if activations.is_none() { in_mxfp4(format, chip, assumptions) } else { format };
            DtypeRule::Linear(if may { unpacked(format, chip, assumptions) } else { format })
        }
        (None, None) => DtypeRule::Linear(unquantized),
        (None, Some(q)) => {
            computes(q, chip, activations, assumptions)?;
            DtypeRule::Checkpoint(Box::new(q.clone()))
        }
    };
    if let DtypeRule::Linear(format) = &rule {
        supported(format, chip, activations)?;
    }
    Ok(rule)
}

/// Finds a checkpoint of the model with weights in the requested format; the model's own precedes other published
/// ones. `fp8` without a word on scales means a checkpoint that is published with a scale per block, if there is one.
fn checkpoint(model: &Model, wish: WeightFormat) -> Option<(&str, &Quantization)> {
    if matches!(wish, WeightFormat::Gguf(_)) {
        return None;
    }
    let of_format = |name: &str| {
        let own_checkpoint = model.quantization.iter().map(|q| (model.name.as_str(), q));
        let others = model.published.iter().map(|(id, q)| (id.as_str(), q));
        own_checkpoint.chain(others).find(|(_, q)| q.mix().is_none() && q.format.name == name)
    };
    let in_blocks = || of_format(Format::FP8_BLOCK.name).filter(|_| is_fp8(Some(wish)));
    of_format(wish.name()).or_else(in_blocks)
}

/// True for `fp8`, which says nothing about scales.
fn is_fp8(wish: Option<WeightFormat>) -> bool {
    wish.is_some_and(|wish| wish.name() == Format::FP8.name)
}

/// Formats that engines unpack in the product on NVIDIA chips without a rate for them: vLLM's Marlin kernels
/// (`model_executor/layers/quantization/utils/marlin_utils_fp8.py`, `marlin_utils_fp4.py`).
const UNPACKED: [&str; 3] = ["fp8", "fp8-block", "nvfp4"];

/// True for a checkpoint whose weights are 8-bit floats.
fn stores_fp8(quantization: &Quantization) -> bool {
    quantization.format.name.starts_with("fp8")
}

/// Refuses a format in whose dtype, or with whose scales, `chip` does not compute; `activations` is the dtype that the user requests.
fn supported(format: &Format, chip: &Accelerator, activations: Option<Dtype>) -> Result<()> {
    format.compute.map_or(Ok(()), |dtype| chip.peak(dtype).map(drop))?;
    if chip.computes(format) {
        return Ok(());
    }
    let lacks = format!("{} does not compute in {}", chip.id, format.name);
    Err(match activations {
        Some(dtype) => Error::field("precision", "activations", dtype, format!("bf16: {lacks}")),
        None => Error::field("precision", "weights", format.name, format!("mxfp4, w4 or bf16: {lacks}")),
    })
}

/// True if an engine unpacks `format` to 16 bits on `chip`, which does not compute in it: vLLM has one kernel for NVFP4 under ROCm,
/// which does not ask for a generation (`_POSSIBLE_NVFP4_KERNELS` in `vllm/model_executor/kernels/linear/__init__.py`,
/// `EmulationNvFp4LinearKernel`).
fn is_emulated(format: &Format, chip: &Accelerator) -> bool {
    format.name == Format::NVFP4.name && chip.vendor == "amd"
}

/// Note on weights that an engine emulates on `chip`.
fn emulated(chip: &Accelerator) -> String {
    format!(
        "{} does not compute in nvfp4; vLLM emulates nvfp4 on AMD's chips: weights count as weight-only, without the time of \
         unpacking them to 16 bits in each step",
        chip.id
    )
}

/// Returns MXFP4 with activations in 4-bit floats on AMD's chips that have them: those of AMD's checkpoints by Quark are in MXFP4, and
/// vLLM computes in it there (`supports_mx` in `vllm/platforms/rocm.py`: gfx95).
fn in_mxfp4(format: Format, chip: &Accelerator, assumptions: &mut Vec<String>) -> Format {
    if format.name != Format::MXFP4.name || chip.vendor != "amd" || !chip.has(Dtype::Fp4) {
        return format;
    }
    assumptions.push(format!("activations in mxfp4 on {}, as in AMD's checkpoints by Quark", chip.id));
    format.computing_in(Dtype::Fp4)
}

/// Returns `format` as weight-only where `chip` does not compute in it and engines unpack it, with a note.
fn unpacked(format: Format, chip: &Accelerator, assumptions: &mut Vec<String>) -> Format {
    let Some(dtype) = format.compute.filter(|_| !chip.computes(&format)) else { return format };
    if is_emulated(&format, chip) {
        assumptions.push(emulated(chip));
        return Format { compute: None, ..format };
    }
    if chip.vendor != "nvidia" || !UNPACKED.contains(&format.name) {
        return format;
    }
    assumptions
        .push(format!("{} has no {dtype} rate: weights {} are weight-only there", chip.id, format.name));
    Format { compute: None, ..format }
}

/// Refuses a dtype that the chip does not support, if the user requests it for activations. A checkpoint's own format
/// becomes weight-only instead, with a note.
fn computes(
    quantization: &Quantization,
    chip: &Accelerator,
    activations: Option<Dtype>,
    assumptions: &mut Vec<String>,
) -> Result<()> {
    let format = with_activations(quantization.format, activations)?;
    if activations.is_some() {
        return supported(&format, chip, activations);
    }
    let others = quantization.formats().into_iter().filter(|format| !chip.computes(format));
    assumptions.extend(others.filter_map(|format| {
        let dtype = format.compute?;
        let lacking = if chip.has(dtype) { format.name } else { dtype.name() };
        Some(match is_emulated(&format, chip) {
            true => emulated(chip),
            false => format!(
                "{} has no {lacking} rate: the checkpoint's {} is weight-only there",
                chip.id, quantization.method
            ),
        })
    }));
    Ok(())
}

/// Dtype of activations for quantized weights, as the user requests it. llama.cpp's CPU kernels always round
/// activations to blocks of 8 bits, whatever the blocks of the weights (`vec_dot_type` in its
/// `ggml/src/ggml-cpu/ggml-cpu.c`).
fn activations(
    rule: &DtypeRule,
    chip: &Accelerator,
    named: Option<Dtype>,
    assumptions: &mut Vec<String>,
) -> Result<Option<Dtype>> {
    let gguf = match rule {
        DtypeRule::Gguf(_) | DtypeRule::Stored(_) => true,
        DtypeRule::Linear(_) | DtypeRule::Checkpoint(_) => false,
    };
    match named {
        Some(dtype) if gguf && !matches!(dtype, Dtype::Bf16 | Dtype::Fp16) => {
            with_activations(Format::BF16, named)?;
            chip.peak(dtype)?;
            Ok(named)
        }
        None if gguf && chip.vendor == "cpu" && chip.has(Dtype::Int8) => {
            assumptions
                .push("quantized blocks compute in int8, as llama.cpp's kernels for processors do".into());
            Ok(Some(Dtype::Int8))
        }
        _ => Ok(named),
    }
}

/// Returns `format` with the dtype of activations that the user requests; 16-bit activations make it weight-only.
fn with_activations(format: Format, activations: Option<Dtype>) -> Result<Format> {
    match activations {
        None => Ok(format),
        Some(Dtype::Bf16 | Dtype::Fp16) => Ok(Format { compute: None, ..format }),
        Some(dtype @ (Dtype::Fp8 | Dtype::Int8 | Dtype::Fp4 | Dtype::Int4)) => Ok(format.computing_in(dtype)),
        Some(other) => {
            Err(Error::field("precision", "activations", other, "bf16, fp16, fp8, int8, fp4, int4"))
        }
    }
}

/// Format of the KV cache: the one asked for, else the checkpoint's, else the model's dtype. A cache of 8 bits is one of
/// floats under a named engine whose only 8-bit elements are floats. vLLM keeps DeepSeek-V4's vectors in 8 bits with 64 of
/// 512 values in bf16 (`fp8_ds_mla`), the default of its attention (`_resolve_dsv4_kv_cache_dtype`, vLLM 0.33).
fn kv(model: &Model, wish: Option<&str>, dtype: Dtype, engine: &EngineSpec) -> Result<KvFormat> {
    let compresses = || model.layers.iter().any(|layer| matches!(layer.mixer, Mixer::Compressed(_)));
    let named = engine.name.as_deref().map(EngineKind::of);
    match wish {
        Some(name) if name.trim() == "8" && named.is_some_and(support::floats_alone) => Ok(KvFormat::FP8),
        Some(name) if !name.eq_ignore_ascii_case("auto") => name.parse(),
        _ if engine.kind() == EngineKind::Vllm && compresses() => Ok(KvFormat::FP8),
        _ => match (model.quantization.as_ref().and_then(|q| q.kv), dtype) {
            (Some(kv), _) => Ok(kv),
            (None, Dtype::Fp32) => "fp32".parse(),
            (None, Dtype::Fp16) => "fp16".parse(),
            _ => Ok(KvFormat::BF16),
        },
    }
}
