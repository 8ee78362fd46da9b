//! Reads a Hugging Face `config.json` into a [`Model`].
//!
//! Knows: the meaning of each `model_type`'s keys, and the defaults of keys that a config omits. Keys of an unknown
//! type are read as llama's, and every assumption is noted. Architectures that cannot be modelled are refused by type
//! and by key. Of multimodal configs the text part is read; towers and multi-token-prediction layers are not counted,
//! and the assumptions say so.
//! Sources: `modeling_*.py` and `configuration_*.py` of Hugging Face transformers 4.57 and 5, and of the models
//! named.

mod architecture;
mod attention;
mod feed_forward;
mod habits;
mod json;
mod latent;
mod omitted;
mod outer;
mod patterns;
mod recurrent;
mod refused;
mod saved;

use super::keys::{Keys, Reads};
use super::quantization::Quantization;
use super::{Ffn, Layer, Mixer, Model, Tower};
use crate::error::Result;
use crate::precision::Dtype;
use architecture::architecture;
use habits::{Habits, LLAMA, QkNorm, habits};
use serde_json::Value;

pub(crate) use json::parse as parse_json;

/// Most accepted layers, more than any model has; a config with more is damaged.
const MOST_LAYERS: u64 = 2048;
/// Most matches of patterns against layers that are accepted. Real files need some 10,000; more would make every
/// resolution slow.
const MOST_MATCHES: usize = 100_000;
/// Most accepted parameters, more than any model has; larger products of dimensions are refused.
const MOST_PARAMETERS: u64 = 1_000_000_000_000_000;

/// Smallest share of a type's parameters by which a reading as a Llama's may be wrong, as one over this number:
/// learned factors and the like.
const MOST_APART: u64 = 1000;

/// Parses the text of a `config.json`; `place` names the file in errors, `name` the model.
pub fn parse(name: &str, place: &str, text: &str) -> Result<Model> {
    let mut config = json::parse(place, text)?;
    let filled = complete(&mut config);
    let reads = Reads::default();
    let mut model = read_noting(name, place, &config, &reads)?;
    // Flags are many and mostly off; the numbers are worth a line.
    let is_filled = |key: &&String| reads.has(key) && number(&config, key).is_some_and(|number| number > 0);
    let filled_keys: Vec<String> = filled
        .iter()
        .filter(is_filled)
        .filter_map(|key| Some(format!("{key} {}", number(&config, key)?)))
        .collect();
    if !filled_keys.is_empty() {
        model.assumptions.push(format!(
            "the file omits keys, which are taken as transformers {} takes them: {}",
            architecture::VERSION,
            filled_keys.join(", ")
        ));
    }
    Ok(model)
}

/// Completes a parsed `config.json`: keys that it omits follow from its `model_type`, and names that transformers 5
/// saves become the makers'. Returns the names of the keys that were filled in.
pub(crate) fn complete(config: &mut Value) -> Vec<String> {
    saved::without_second_text(config);
    let filled = omitted::fill(config);
    saved::rename(config);
    filled
}

/// Treatment of configs of a `model_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Read by the meaning of its keys, with the defaults of the type.
    Read,
    /// Refused; the text names the part that is not modelled.
    Refused(&'static str),
    /// Unknown: read as a Llama's config, unless a key shows a part that a Llama lacks.
    Unknown,
}

/// Returns how configs of `model_type` are treated.
pub fn standing(model_type: &str) -> Standing {
    match (refused::why(model_type), habits(model_type)) {
        (Some(why), _) => Standing::Refused(why),
        (None, Some(_)) => Standing::Read,
        (None, None) => Standing::Unknown,
    }
}

/// Reads a parsed `config.json` whose keys are all stated, as the catalog's are.
pub fn read(name: &str, place: &str, config: &Value) -> Result<Model> {
    read_noting(name, place, config, &Reads::default())
}

fn read_noting(name: &str, place: &str, config: &Value, reads: &Reads) -> Result<Model> {
    let keys = Keys::new(place, config)?;
    refused::known(&keys)?;
    let model_type = keys.text("model_type")?.unwrap_or("");
    if habits(model_type).is_none() {
        resembles(&keys, model_type)?;
    }
    let model = Reader::new(keys.noting(reads))?.model(name, config)?;
    if habits(model_type).is_none() {
        refused::unread(&keys, model_type, reads)?;
    }
    Ok(model)
}

/// Refuses an unknown type of transformers whose layers are not a Llama's with the parts in the table: the
/// default model of its class must have the class's own number of parameters.
fn resembles(keys: &Keys, model_type: &str) -> Result<()> {
    let Some(own) = architecture(model_type).and_then(|row| row.parameters()) else { return Ok(()) };
    let mut default = serde_json::json!({ "text_config": { "model_type": model_type } });
    complete(&mut default);
    let read = Keys::new(keys.place, &default)
        .and_then(|keys| Reader::new(keys)?.model(model_type, &default))
        .map_or(0, |model| model.parameters().total);
    if own.abs_diff(read) * MOST_APART <= own {
        return Ok(());
    }
    let mismatch = format!(
        "{model_type:?}, whose layers are not a Llama's: the default model of its class in transformers has {own} \
         parameters, and {read} with a Llama's layers"
    );
    Err(keys.bad("model_type", mismatch, "a known type"))
}

/// Number or list of numbers under `key` in `config` or its text part.
fn number(config: &Value, key: &str) -> Option<u64> {
    let number_in = |value: &Value| value.get(key)?.as_u64();
    number_in(config).or_else(|| config.as_object()?.values().find_map(number_in))
}

/// Reader of one config, with the keys and defaults of its type, which collects assumptions.
struct Reader<'a> {
    keys: Keys<'a>,
    model_type: &'a str,
    habits: Habits,
    hidden: u64,
    layers: u64,
    assumptions: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(keys: Keys<'a>) -> Result<Reader<'a>> {
        let model_type = keys.text("model_type")?.unwrap_or("");
        let mut assumptions = Vec::new();
        let habits = habits(model_type).unwrap_or_else(|| {
            let named = if model_type.is_empty() { "missing".into() } else { format!("{model_type:?}") };
            assumptions
                .push(format!("model_type is {named}, which is not known: its keys are read as llama's"));
            architecture(model_type).and_then(|row| row.habits()).unwrap_or(LLAMA)
        });
        // LongCat's `num_layers` counts blocks of two attentions and two MLPs; the experts of a block run in parallel
        // with both MLPs.
        let blocks =
            if model_type.starts_with("longcat_flash") { keys.count(&["num_layers"])? } else { None };
        let named = match blocks {
            Some(blocks) => Some(2 * blocks),
            None => keys.count(&["num_hidden_layers", "n_layer", "num_layers", "n_layers"])?,
        };
        let layers = match named {
            Some(layers) => layers,
            None => match patterns::length(&keys) {
                Some(layers) => layers,
                None => keys.required(&["num_hidden_layers"])?,
            },
        };
        if layers > MOST_LAYERS {
            return Err(keys.bad("num_hidden_layers", layers, format!("1 to {MOST_LAYERS}")));
        }
        let hidden = keys.required(&["hidden_size", "n_embd", "d_model"])?;
        Ok(Reader { keys, model_type, habits, hidden, layers, assumptions })
    }

    fn model(mut self, name: &str, config: &Value) -> Result<Model> {
        let vocab = self.keys.required(&["vocab_size", "padded_vocab_size"])?;
        let tied = self.keys.flag("tie_word_embeddings", self.habits.tied)?;
        let max_context = self.keys.count(&[
            "max_position_embeddings",
            "n_positions",
            "seq_length",
            "n_ctx",
            "max_sequence_length",
            "max_seq_len",
            "model_max_length",
        ])?;
        self.note_what_is_left_out()?;
        let mut layers = (0..self.layers).map(|i| self.layer(i)).collect::<Result<Vec<_>>>()?;
        let passes = self.passes()?;
        layers = (0..passes).flat_map(|_| layers.iter().cloned()).collect();
        let outer = self.outer(vocab, max_context)?;
        let mut seen = std::collections::HashSet::new();
        self.assumptions.retain(|a| seen.insert(a.clone()));
        let model = Model {
            name: name.to_owned(),
            architecture: self.model_type.to_owned(),
            hidden: self.hidden,
            vocab,
            max_context,
            dtype: self.dtype()?,
            tied,
            layers,
            passes,
            outer,
            quantization: Quantization::read(self.keys.place, config)?,
            published: Vec::new(),
            stored: None,
            checkpoint: super::Checkpoint::default(),
            tower: Tower::read(&self.keys, self.model_type, self.hidden),
            ahead: self.ahead()?,
            assumptions: self.assumptions,
        };
        let patterns = model.quantization.as_ref().map_or(0, Quantization::patterns) * model.layers.len();
        if patterns > MOST_MATCHES {
            let pattern_count = format!("{patterns} patterns over all layers");
            return Err(self.keys.bad(
                "quantization_config",
                pattern_count,
                format!("at most {MOST_MATCHES}"),
            ));
        }
        if model.parameters().total > MOST_PARAMETERS {
            return Err(self.keys.bad(
                "hidden_size",
                "a model of over 10^15 parameters",
                "the dimensions of a real model",
            ));
        }
        Ok(model)
    }

    /// Number of passes of a token through the layers: Ouro's universal-transformer steps, each with a separate KV
    /// cache. The model may end a token earlier (`early_exit_threshold`), which engines do not implement.
    fn passes(&mut self) -> Result<u64> {
        if self.model_type != "ouro" {
            return Ok(1);
        }
        let passes = self.keys.count(&["total_ut_steps"])?.unwrap_or(4);
        if self.layers * passes > MOST_LAYERS {
            return Err(self.keys.bad(
                "total_ut_steps",
                passes,
                format!("at most {MOST_LAYERS} layers in all passes"),
            ));
        }
        self.assumptions
            .push(format!("every token passes the layers {passes} times, none leaves them earlier"));
        Ok(passes)
    }

    /// Number of multi-token-prediction layers.
    fn ahead(&self) -> Result<u64> {
        self.keys.count_or_zero(&["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
    }

    /// Notes the parts of a checkpoint that the model omits, and its dtype if engines load another one.
    fn note_what_is_left_out(&mut self) -> Result<()> {
        if self.keys.any(&["vision_config", "audio_config", "vision_tower"]).is_some() {
            self.assumptions.push(Model::WITHOUT_TOWERS.to_owned());
        }
        let ahead = self.ahead()?;
        if ahead > 0 {
            self.assumptions.push(Model::without_ahead(ahead));
        }
        match self.named_dtype()? {
            Some("bfloat16" | "float16" | "half" | "auto") | None => {}
            Some("float32" | "float") => self.assumptions.push(
                "a float32 checkpoint is loaded in 16 bits, as dtype auto does; precision.weights = fp32 keeps 32".into(),
            ),
            Some(other) => self.assumptions.push(format!(
                "dtype {other:.80} is no number format that is known: tensors without a format of their own are bf16"
            )),
        }
        Ok(())
    }

    /// Number format in which unquantized tensors are served. A float32 checkpoint is loaded in 16 bits: vLLM's
    /// `--dtype auto` takes the first dtype that the platform supports (`_resolve_auto_dtype` in
    /// `vllm/config/model.py`, bfloat16 from compute capability 8.0 on), SGLang's float16 (`model_config.py`:
    /// "Downcasting torch.float32").
    fn dtype(&self) -> Result<Dtype> {
        Ok(match self.named_dtype()? {
            Some("float16" | "half") => Dtype::Fp16,
            _ => Dtype::Bf16,
        })
    }

    fn named_dtype(&self) -> Result<Option<&str>> {
        let named = self.keys.text("torch_dtype")?.or(self.keys.text("dtype")?);
        Ok(named.map(|name| name.strip_prefix("torch.").unwrap_or(name)))
    }

    /// Bytes of an activation element, which is also the format of a convolution's cached inputs.
    fn element(&self) -> Result<u64> {
        Ok(u64::from(self.dtype()?.bits() / 8))
    }

    fn layer(&mut self, index: u64) -> Result<Layer> {
        let common = self.keys;
        if let Some(over) = per_layer(&common, index) {
            self.keys = common.under(over);
        }
        let layer = self.layer_by_keys(index);
        self.keys = common;
        layer
    }

    /// Reads layer `index` by the keys that hold for it.
    fn layer_by_keys(&mut self, index: u64) -> Result<Layer> {
        if let Some(layer) = self.patterned(index)? {
            return Ok(layer);
        }
        let mixer = self.mixer(index)?;
        let ffn = if self.model_type.contains("mamba") { Ffn::None } else { self.ffn(index)? };
        let per_norm = if self.norm_bias()? { 2 * self.hidden } else { self.hidden };
        let parallel = match self.model_type {
            "gpt_neox" => self.keys.flag("use_parallel_residual", true)?,
            "falcon" => self.keys.flag("parallel_attn", true)? || self.new_falcon()?,
            _ => self.habits.parallel,
        };
        let norms = match self.model_type {
            "falcon" if self.new_falcon()? => self.keys.count(&["num_ln_in_parallel_attn"])?.unwrap_or(2),
            "falcon" if !parallel => 2,
            "lfm3" if !self.keys.flag("use_sandwich_norm", true)? => 2,
            "hyperclovax" if !self.keys.flag("use_post_norm", true)? => 2,
            // A.X K1 has a further norm, on the output of its experts.
            "axk1" if matches!(&ffn, Ffn::Experts(_)) => self.habits.norms + 1,
            "grok" | "grok-1" | "git" | "longcat_flash" | "longcat_flash_ngram" => self.habits.norms,
            // Gemma 4 has three further norms: on the input of its experts, and on the outputs of experts and dense
            // MLP.
            _ if matches!(&ffn, Ffn::Experts(e) if e.beside.is_some()) => self.habits.norms + 3,
            _ => self.habits.norms,
        };
        Ok(Layer { mixer, ffn, norms: norms * per_norm, parallel, extra: self.layer_extras()? })
    }

    /// Reads the mixer of layer `index`.
    fn mixer(&mut self, index: u64) -> Result<Mixer> {
        if let Some(recurrent) = self.recurrent(index)? {
            return Ok(recurrent);
        }
        if self.keys.value("compress_ratios").is_some() {
            return self.compressed(index);
        }
        if self.keys.value("kv_lora_rank").is_some() {
            return self.latent(index);
        }
        let attention = self.attention(index)?;
        match self.model_type {
            "falcon_h1" => Ok(Mixer::Both(attention, self.mamba2()?)),
            _ => Ok(Mixer::Attention(attention)),
        }
    }

    fn norm_bias(&self) -> Result<bool> {
        match self.model_type {
            "falcon" | "gpt2" => Ok(true),
            _ => Ok(self.habits.norm_bias),
        }
    }

    fn new_falcon(&self) -> Result<bool> {
        self.keys.flag("new_decoder_architecture", false)
    }
}

/// Keys that a config states for layer `index` alone (`per_layer_config` of transformers 5).
fn per_layer<'a>(keys: &Keys<'a>, index: u64) -> Option<&'a Value> {
    let layers = keys.value("per_layer_config")?.as_object()?;
    layers.iter().find(|(number, _)| number.parse() == Ok(index)).map(|(_, over)| over)
}
