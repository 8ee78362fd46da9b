//! A model's architecture: its layers in order and every tensor they hold.
//!
//! Knows: dimensions, parameter counts, and what each layer keeps per token. Knows nothing about machines or how work
//! is shared; reading a `config.json` is [`config`]'s, number formats are [`quantization`]'s.

pub mod config;
pub mod ffn;
mod keys;
pub mod mixer;
mod operator_kind;
pub mod quantization;
pub mod tensor;
mod tower;

pub(crate) use keys::brief;

pub use ffn::{Dense, Experts, Ffn, largest_deviate};
pub use mixer::{Attention, Indivisible, Latent, Mixer};
pub use operator_kind::{Family, OperatorKind};
pub use quantization::Quantization;
pub use tensor::{Role, Split, Tensor};
pub use tower::Tower;

use crate::precision::{Dtype, Format, KvFormat};
use crate::units::Bytes;
use std::collections::BTreeMap;

/// A decoder-only language model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Hugging Face id or path, as given.
    pub name: String,
    /// `model_type` of the config.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Tokens that embedding and lm_head know.
    pub vocab: u64,
    /// Longest context that the config allows.
    pub max_context: Option<u64>,
    /// The dtype of unquantized weights and of activations.
    pub dtype: Dtype,
    /// Whether lm_head is the embedding.
    pub tied: bool,
    /// The layers that a token passes, first to last.
    pub layers: Vec<Layer>,
    /// How many times a token passes the same weights (Ouro), each time with a cache of its own: `layers` has those of every
    /// pass, one pass after the other.
    pub passes: u64,
    /// Tensors outside the layers: embeddings, final norm, lm_head.
    pub outer: Vec<Tensor>,
    /// How the checkpoint is quantized, if it is.
    pub quantization: Option<Quantization>,
    /// How checkpoints with these weights in other formats are quantized, by their ids.
    pub published: Vec<(String, Quantization)>,
    /// The format of each tensor where a file says it (GGUF); it goes before `quantization`.
    pub stored: Option<StoredFormats>,
    /// Whether `name` is that of a checkpoint with these weights.
    pub checkpoint: Checkpoint,
    /// The tower for images that is loaded beside it.
    pub tower: Option<Tower>,
    /// What was assumed where the config is silent.
    pub assumptions: Vec<String>,
}

/// What is known of the checkpoint that a model's weights come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checkpoint {
    /// The model is named by it.
    #[default]
    Named,
    /// The model's name is that of the unquantized one; its format was said beside.
    Unquantized,
    /// The model's name is that of another of its shape.
    OfItsShape,
}

/// The formats of a file's tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredFormats {
    /// What the file is, for reports: `gguf`.
    pub name: &'static str,
    /// By module path, as in `layers.3.self_attn.q_proj`.
    pub formats: BTreeMap<String, Format>,
    /// Of what is not named: norms and biases.
    pub other: Format,
}

/// One transformer block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layer {
    /// What mixes tokens.
    pub mixer: Mixer,
    /// What works on each token.
    pub ffn: Ffn,
    /// Elements of the norms around both.
    pub norms: u64,
    /// Whether attention and FFN run side by side and share one all-reduce (GPT-J, NeoX, Falcon).
    pub parallel: bool,
    /// What belongs to neither: hyper-connections, per-layer inputs, a linear layer in the place of one of the two.
    pub extra: Vec<Tensor>,
}

impl Layer {
    /// Every tensor of the layer.
    pub fn tensors(&self, hidden: u64) -> Vec<Tensor> {
        let mut tensors = self.mixer.tensors(hidden);
        tensors.extend(self.ffn.tensors(hidden));
        tensors.push(Tensor::vector("norms", OperatorKind::Norms, self.norms, Split::Replicated));
        tensors.extend(&self.extra);
        tensors
    }
}

/// Parameter counts of a model. Multi-token-prediction layers and vision towers are not in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Parameters {
    /// Every weight once; tied weights count once.
    pub total: u64,
    /// What one token touches: everything but the routed experts that it does not choose and, where there are such, an
    /// untied input embedding, of which it looks one row up. So makers count: gpt-oss-20b 3.6B, Nemotron-3-Nano 3.2B.
    /// lm_head counts; dense models have all parameters active.
    pub active: u64,
    /// The input embedding.
    pub embedding: u64,
    /// lm_head; equal to the embedding and not counted twice in `total` where the two are tied.
    pub lm_head: u64,
}

impl Model {
    /// The layers whose weights are held: those of the first pass.
    pub fn held_layers(&self) -> &[Layer] {
        let count = self.layers.len() / self.passes.max(1) as usize;
        &self.layers[..count]
    }

    /// Pipeline stages at most: a layer each, one where every stage would need all weights again.
    pub fn most_stages(&self) -> u64 {
        if self.passes > 1 { 1 } else { self.layers.len() as u64 }
    }

    /// Counts parameters tensor by tensor.
    pub fn parameters(&self) -> Parameters {
        let mut total = 0_u128;
        let mut idle = 0_u128;
        for layer in self.held_layers() {
            for tensor in layer.tensors(self.hidden) {
                total += tensor.elements();
            }
            if let Ffn::Experts(experts) = &layer.ffn {
                idle += experts.idle_elements(self.hidden);
            }
        }
        let outer =
            |role: Role| self.outer.iter().filter(|t| t.role == role).map(Tensor::elements).sum::<u128>();
        total += self.outer.iter().map(Tensor::elements).sum::<u128>();
        if self.tied {
            total -= outer(Role::Head);
        }
        if idle > 0 && !self.tied {
            idle += outer(Role::Embedding);
        }
        let count = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        Parameters {
            total: count(total),
            active: count(total.saturating_sub(idle)),
            embedding: count(outer(Role::Embedding)),
            lm_head: count(outer(Role::Head)),
        }
    }

    /// Names of the formats that the checkpoint is published in, that of most weights first.
    pub fn weight_formats(&self) -> Vec<&'static str> {
        match (&self.stored, &self.quantization) {
            (Some(stored), _) => vec![stored.name],
            (None, Some(q)) => {
                q.mix().map_or_else(|| q.formats().iter().map(|f| f.name).collect(), |m| vec![m.name()])
            }
            (None, None) => vec![self.unquantized().name],
        }
    }

    /// The KV cache that the checkpoint asks for, else its own 16 or 32 bits.
    pub fn kv_format(&self) -> KvFormat {
        let asked = self.quantization.as_ref().and_then(|q| q.kv);
        asked.unwrap_or(match self.dtype {
            Dtype::Fp32 => KvFormat::FP32,
            Dtype::Fp16 => KvFormat::FP16,
            _ => KvFormat::BF16,
        })
    }

    fn unquantized(&self) -> Format {
        match self.dtype {
            Dtype::Fp32 => Format::FP32,
            Dtype::Fp16 => Format::FP16,
            _ => Format::BF16,
        }
    }

    /// Bytes of the weights in the formats of its `quantization`, tied weights once.
    pub fn weight_bytes(&self) -> Bytes {
        let bytes = |tensor: &Tensor, layer: Option<usize>| {
            let format = self.quantization.as_ref().and_then(|q| q.format(tensor, layer));
            format.unwrap_or_else(|| self.unquantized()).width.bytes(tensor.elements())
        };
        let layers = self.held_layers().iter().enumerate();
        let inner: Bytes = layers
            .map(|(index, layer)| layer.tensors(self.hidden).iter().map(|t| bytes(t, Some(index))).sum())
            .sum();
        let outer = self.outer.iter().filter(|t| !(self.tied && t.role == Role::Head));
        inner + outer.map(|t| bytes(t, None)).sum::<Bytes>()
    }

    /// Whether any layer routes tokens to experts.
    pub fn is_moe(&self) -> bool {
        self.layers.iter().any(|l| matches!(l.ffn, Ffn::Experts(_)))
    }

    /// Bytes that one sequence of `context` tokens keeps, whole: keys and values in the format `kv`, windows at most
    /// full, index keys and recurrent states in formats of their own.
    pub fn kv_bytes_per_sequence(&self, kv: KvFormat, context: u64) -> Bytes {
        self.layers.iter().map(|l| l.mixer.sequence_bytes(kv, context)).sum()
    }

    /// Bytes that a token adds at `context`: the marginal cost, without states and full windows. Where several tokens
    /// share an entry (DeepSeek-V4) it is the mean over those.
    pub fn kv_bytes_per_token(&self, kv: KvFormat, context: u64) -> Bytes {
        let (context, span) = self.last_entry(context);
        let before = self.kv_bytes_per_sequence(kv, context - span);
        self.kv_bytes_per_sequence(kv, context).saturating_sub(before).scale(1, span)
    }

    /// The context, at least one token, and how many of its last tokens share an entry in some layer.
    fn last_entry(&self, context: u64) -> (u64, u64) {
        let ratio = |layer: &Layer| match &layer.mixer {
            Mixer::Compressed(c) => c.ratio.unwrap_or(1),
            Mixer::Latent(l) => l.indexer.as_ref().map_or(1, |i| i.pool),
            _ => 1,
        };
        let context = context.max(1);
        (context, self.layers.iter().map(ratio).max().unwrap_or(1).clamp(1, context))
    }

    /// KV elements that `layer`-wise sum to one sequence's cache at `context` tokens.
    pub fn kv_elements_per_sequence(&self, context: u64) -> u128 {
        self.layers.iter().map(|l| l.mixer.kv_elements(context)).sum()
    }

    /// KV elements that the last of `context` tokens added: layers whose window is full add none.
    pub fn kv_elements_per_token(&self, context: u64) -> u64 {
        let (context, span) = self.last_entry(context);
        let before = self.kv_elements_per_sequence(context - span);
        let added = self.kv_elements_per_sequence(context).saturating_sub(before);
        u64::try_from(added.div_ceil(u128::from(span))).unwrap_or(u64::MAX)
    }
}
