//! Reads a Hugging Face `config.json` into a [`Model`].
//!
//! Knows: what each `model_type` means by its keys and leaves unsaid (biases, norms, tied weights). Where a type is
//! not known its keys are read as llama's, and every assumption is noted. What cannot be modelled is refused by key.
//! Sources: `modeling_*.py` and `configuration_*.py` of Hugging Face transformers 4.57.

mod ffns;
mod habits;
mod mixers;

use super::ffn::Ffn;
use super::keys::{Keys, brief};
use super::quantization::Quantization;
use super::tensor::{Role, Split, Tensor};
use super::{Layer, Model};
use crate::error::{Error, Result};
use crate::precision::Dtype;
use habits::Habits;
use serde_json::Value;
use std::borrow::Cow;

/// Deeper than any model; a config that claims more is damaged.
const MOST_LAYERS: u64 = 2048;
/// More parameters than any model; products of dimensions beyond this are refused.
const MOST_PARAMETERS: u64 = 1_000_000_000_000_000;

/// Keys of mixers that are none of ours; to read them as attention would be wrong.
const NOT_MODELLED: &[&str] = &[
    "attn_layer_period", // Jamba's Mamba-1
    "mamba_d_ssm",       // Falcon-H1's parallel mixers
    "conv_L_cache",      // LFM2's convolutions
    "lru_width",         // RecurrentGemma
    "rescale_every",     // RWKV
    "layer_group_size",  // Ring's lightning attention in groups
    "hybrid_layer_ids",  // Zamba2's shared blocks
    "zero_expert_num",   // LongCat's experts that do nothing
];

/// Parses the text of a `config.json`; `place` names the file in errors, `name` the model.
pub fn parse(name: &str, place: &str, text: &str) -> Result<Model> {
    let value: Value = serde_json::from_str(&without_infinities(text))
        .map_err(|e| Error::Parse { place: place.into(), message: e.to_string() })?;
    read(name, place, &value)
}

/// The text with bare `NaN` and `Infinity`, which Python writes and JSON does not know, as null: no key that is read
/// here has them.
fn without_infinities(text: &str) -> Cow<'_, str> {
    if !text.contains("Infinity") && !text.contains("NaN") {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    // Every second part is inside quotes; escaped quotes do not part.
    let mut quoted = false;
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        let (part, after) = rest.split_at(at);
        let backslashes = part.len() - part.trim_end_matches('\\').len();
        let escaped = quoted && backslashes % 2 == 1;
        if quoted {
            plain.push_str(part)
        } else {
            plain.push_str(&nulls(part))
        }
        plain.push('"');
        quoted = quoted == escaped;
        rest = &after[1..];
    }
    plain.push_str(&if quoted { rest.to_owned() } else { nulls(rest) });
    Cow::Owned(plain)
}

fn nulls(text: &str) -> String {
    text.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null")
}

/// Reads a parsed `config.json`.
pub fn read(name: &str, place: &str, config: &Value) -> Result<Model> {
    let keys = Keys::new(place, config)?;
    if let Some(key) = keys.any(NOT_MODELLED) {
        return Err(keys.bad(key, "present", "architectures without it: its attention is not modelled yet"));
    }
    Reader::new(keys)?.model(name, config)
}

/// A config on its way to a model.
struct Reader<'a> {
    keys: Keys<'a>,
    model_type: &'a str,
    habits: Habits,
    hidden: u64,
    layers: u64,
    /// What each layer is where a pattern says so; empty elsewhere.
    pattern: Vec<Part>,
    assumptions: Vec<String>,
}

/// What a layer consists of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// A mixer and an FFN: the usual.
    Both,
    /// Attention alone.
    Attention,
    /// Mamba-2 alone.
    Mamba,
    /// An MLP alone.
    Ffn,
    /// Experts alone.
    Experts,
}

/// The parts of a hybrid: Nemotron-H's `hybrid_override_pattern` or `layers_block_type`.
fn pattern(keys: Keys) -> Result<Option<Vec<Part>>> {
    if let Some(text) = keys.text("hybrid_override_pattern")? {
        let part = |c: char| match c {
            'M' => Ok(Part::Mamba),
            '*' => Ok(Part::Attention),
            '-' => Ok(Part::Ffn),
            'E' => Ok(Part::Experts),
            other => Err(keys.bad("hybrid_override_pattern", format!("{other:?}"), "M, *, - and E")),
        };
        return text.chars().take(MOST_LAYERS as usize + 1).map(part).collect::<Result<_>>().map(Some);
    }
    let Some(list) = keys.list("layers_block_type", 1)? else { return Ok(None) };
    let part = |v: &Value| match v.as_str() {
        Some("mamba" | "mamba2") => Ok(Part::Mamba),
        Some("attention") => Ok(Part::Attention),
        Some("mlp") => Ok(Part::Ffn),
        Some("moe") => Ok(Part::Experts),
        _ => Err(keys.bad("layers_block_type", brief(v), "mamba, attention, mlp, moe")),
    };
    list.iter().take(MOST_LAYERS as usize + 1).map(part).collect::<Result<_>>().map(Some)
}

impl<'a> Reader<'a> {
    fn new(keys: Keys<'a>) -> Result<Reader<'a>> {
        let model_type = keys.text("model_type")?.unwrap_or("");
        let mut assumptions = Vec::new();
        let habits = habits::habits(model_type).unwrap_or_else(|| {
            let named = if model_type.is_empty() { "missing".into() } else { format!("{model_type:?}") };
            assumptions
                .push(format!("model_type is {named}, which is not known: its keys are read as llama's"));
            habits::LLAMA
        });
        let pattern = pattern(keys)?;
        let layers =
            match (&pattern, keys.count(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?) {
                (Some(pattern), None) => pattern.len() as u64,
                (Some(pattern), Some(n)) if pattern.len() as u64 != n => {
                    return Err(keys.bad(
                        "num_hidden_layers",
                        n,
                        format!("the {} layers of the pattern", pattern.len()),
                    ));
                }
                (_, Some(n)) => n,
                (None, None) => keys.required(&["num_hidden_layers"])?,
            };
        if layers > MOST_LAYERS {
            return Err(keys.bad("num_hidden_layers", layers, format!("1 to {MOST_LAYERS}")));
        }
        let hidden = keys.required(&["hidden_size", "n_embd", "d_model"])?;
        Ok(Reader {
            keys,
            model_type,
            habits,
            hidden,
            layers,
            pattern: pattern.unwrap_or_default(),
            assumptions,
        })
    }

    fn model(mut self, name: &str, config: &Value) -> Result<Model> {
        self.leave_out()?;
        let vocab = self.keys.required(&["vocab_size", "padded_vocab_size"])?;
        let tied = self.keys.flag("tie_word_embeddings", self.habits.tied)?;
        let max_context = self.keys.count(&[
            "max_position_embeddings",
            "n_positions",
            "seq_length",
            "n_ctx",
            "max_sequence_length",
            "model_max_length",
        ])?;
        let layers = (0..self.layers).map(|i| self.layer(i)).collect::<Result<Vec<_>>>()?;
        let outer = self.outer(vocab, max_context)?;
        let model = Model {
            name: name.to_owned(),
            architecture: self.model_type.to_owned(),
            hidden: self.hidden,
            vocab,
            max_context,
            dtype: self.dtype()?,
            tied,
            layers,
            outer,
            quantization: Quantization::read(self.keys.place, config)?,
            stored: None,
            assumptions: {
                self.assumptions.dedup();
                self.assumptions
            },
        };
        if model.parameters().total > MOST_PARAMETERS {
            return Err(self.keys.bad(
                "hidden_size",
                "a model of over 10^15 parameters",
                "the dimensions of a real model",
            ));
        }
        Ok(model)
    }

    /// Notes what a checkpoint has beside the language model: it is counted nowhere.
    fn leave_out(&mut self) -> Result<()> {
        if self.keys.any(&["vision_config", "audio_config"]).is_some() {
            self.assumptions.push("the text part alone: towers for images or sound are not counted".into());
        }
        let names = ["num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_transformer_layers"];
        let layers = self.keys.count_or_zero(&names)?;
        if layers > 0 {
            self.assumptions.push(format!("{layers} multi-token-prediction layers are not counted"));
        }
        Ok(())
    }

    fn dtype(&self) -> Result<Dtype> {
        let named = self.keys.text("torch_dtype")?.or(self.keys.text("dtype")?);
        Ok(match named {
            Some("float16" | "half") => Dtype::Fp16,
            Some("float32" | "float") => Dtype::Fp32,
            _ => Dtype::Bf16,
        })
    }

    fn layer(&mut self, index: u64) -> Result<Layer> {
        let mixer = self.mixer(index)?;
        let ffn = self.ffn(index)?;
        let per_norm = if self.norm_bias()? { 2 * self.hidden } else { self.hidden };
        let parallel = match self.model_type {
            "gpt_neox" => self.keys.flag("use_parallel_residual", true)?,
            "falcon" => self.keys.flag("parallel_attn", true)? || self.new_falcon()?,
            _ => self.habits.parallel,
        };
        let norms = match self.model_type {
            "falcon" if self.new_falcon()? => self.keys.count(&["num_ln_in_parallel_attn"])?.unwrap_or(2),
            "falcon" if !parallel => 2,
            _ => self.habits.norms,
        };
        // Gemma 4 norms the dense and the routed path apart; DeepSeek-V4 widens the residual stream, and mixes it
        // before and after both parts.
        let more = match (self.model_type, &ffn) {
            (t, Ffn::Experts(_)) if t.starts_with("gemma4") => 3 * self.hidden,
            _ => match self.keys.count(&["hc_mult"])? {
                Some(width) => 2 * width * self.hidden * (2 + width) * width,
                None => 0,
            },
        };
        Ok(Layer { mixer, ffn, norms: norms * per_norm + more, parallel })
    }

    fn norm_bias(&self) -> Result<bool> {
        match self.model_type {
            "falcon" | "gpt2" => Ok(true),
            _ => Ok(self.habits.norm_bias),
        }
    }

    /// What layer `index` consists of.
    fn part(&self, index: u64) -> Result<Part> {
        Ok(self.pattern.get(index as usize).copied().unwrap_or(Part::Both))
    }

    /// nemotron-nas: the searched configuration of one part of layer `index`.
    fn block(&self, index: u64, part: &str) -> Option<Keys<'_>> {
        let block = self.keys.value("block_configs")?.as_array()?.get(index as usize)?.get(part)?;
        Keys::new(self.keys.place, block).ok()
    }

    fn new_falcon(&self) -> Result<bool> {
        self.keys.flag("new_decoder_architecture", false)
    }

    /// Embeddings, final norm and lm_head.
    fn outer(&mut self, vocab: u64, max_context: Option<u64>) -> Result<Vec<Tensor>> {
        let width = self.keys.count(&["word_embed_proj_dim"])?.unwrap_or(self.hidden);
        let table = |name, rows| {
            Tensor::linear(name, "embedding", rows, width, Split::Even).with_role(Role::Embedding)
        };
        let mut outer = vec![table("embed_tokens", vocab)];
        let positions = match self.model_type {
            "gpt2" | "megatron-gpt" => max_context.unwrap_or(1024),
            // OPT's table starts at an offset of two.
            "opt" => max_context.unwrap_or(2048) + 2,
            _ => 0,
        };
        if positions > 0 {
            outer.push(Tensor::vector(
                "embed_positions",
                "embedding",
                positions * self.hidden,
                Split::Replicated,
            ));
        }
        if width != self.hidden {
            outer.push(Tensor::linear("project_in", "project_in", self.hidden, width, Split::Replicated));
            outer.push(Tensor::linear("project_out", "project_out", width, self.hidden, Split::Replicated));
        }
        let mut norm = if self.norm_bias()? { 2 * self.hidden } else { self.hidden };
        if self.model_type == "bloom" {
            norm *= 2; // a norm behind the embedding, too
        }
        let final_norm = self.keys.flag("do_layer_norm_before", true)?;
        outer.push(Tensor::vector("norm", "norms", if final_norm { norm } else { 0 }, Split::Replicated));
        outer.push(Tensor::linear("lm_head", "lm_head", vocab, width, Split::Even).with_role(Role::Head));
        outer.extend(self.per_layer_embeddings()?);
        if matches!(self.model_type, "gptj" | "phi" | "phimoe") {
            outer.push(Tensor::vector("lm_head.bias", "lm_head", vocab, Split::Even));
        }
        Ok(outer)
    }

    /// Gemma 3n and 4: an embedding per layer, looked up, and what brings it into the residual stream.
    fn per_layer_embeddings(&self) -> Result<Vec<Tensor>> {
        let width = self.keys.count_or_zero(&["hidden_size_per_layer_input"])?;
        if width == 0 {
            return Ok(Vec::new());
        }
        let rows = self.keys.required(&["vocab_size_per_layer_input"])?;
        let all = width * self.layers;
        let whole = Split::Replicated;
        Ok(vec![
            Tensor::linear("embed_tokens_per_layer", "embedding", rows, all, Split::Even)
                .with_role(Role::Embedding),
            Tensor::linear("per_layer_model_projection", "per_layer_proj", all, self.hidden, whole),
            Tensor::linear("per_layer_gates", "per_layer_proj", 2 * all, self.hidden, whole),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::without_infinities;

    #[test]
    fn infinities_outside_strings_become_null() {
        let text = r#"{"a": [0.0, Infinity], "b": -Infinity, "c": "NaN \" Infinity", "d": "\\", "e": NaN}"#;
        let plain = r#"{"a": [0.0, null], "b": null, "c": "NaN \" Infinity", "d": "\\", "e": null}"#;
        assert_eq!(without_infinities(text), plain);
    }
}
