//! The GGUF header: metadata and tensor types of llama.cpp's files.
//!
//! Knows: versions 2 and 3, little endian, and the `config.json` equivalents of GGUF's keys. Long arrays
//! (vocabularies) are skipped; short arrays of numbers are kept. Source: `docs/gguf.md` of ggml and the type traits
//! of `ggml.c`.

mod attention;
mod keys;
mod metadata;
mod recurrent;
mod table;
#[cfg(test)]
mod tests;

use super::{MOST_DIMENSIONS, MOST_TENSORS, Stored, elements};
use crate::error::{Error, Result};
use crate::model::{Model, StoredFormats, config as reader};
use crate::precision::{Format, Width};
use crate::units::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use table::Named;

/// Largest accepted header, in bytes. Headers of real files have up to some 30 MB, nearly all vocabulary.
const MOST_HEADER: u64 = 256 << 20;
const MOST_KEYS: u64 = 65_536;
const MOST_STRING: u64 = 1 << 20;
/// Longest array of numbers that is kept, such as a list with one value per layer.
const KEPT_ARRAY: u64 = 4096;

/// Most values of all arrays that are kept: 64 arrays of the longest kind.
const KEPT_VALUES: u64 = 64 * KEPT_ARRAY;

/// Contents of a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Keys and values. A long array is represented by its length alone, under `KEY.length`.
    pub(crate) metadata: Map<String, Value>,
    /// The tensors in file order.
    pub tensors: Vec<Stored>,
}

impl Header {
    /// Number of files of a model in several files; `None` for one in a single file.
    pub fn parts(&self) -> Option<u64> {
        self.metadata.get("split.count")?.as_u64().filter(|count| (2..=MOST_PARTS).contains(count))
    }

    /// Joins the headers of a model in several files, in their order; `None` for no header.
    pub fn join(parts: Vec<Header>) -> Option<Header> {
        parts.into_iter().reduce(|mut first, part| {
            first.tensors.extend(part.tensors);
            first
        })
    }
}

/// Beginning of the names of a model's `count` files, by the name of one of them (`gguf-split` of llama.cpp).
pub fn stem(name: &str, count: u64) -> Option<&str> {
    let (stem, number) = name.strip_suffix(&format!("-of-{count:05}.gguf"))?.rsplit_once('-')?;
    number.parse::<u64>().ok().map(|_| stem)
}

/// Name of the model that a file is of, or is a part of.
pub fn model_of(name: &str) -> &str {
    let count = name.strip_suffix(".gguf").and_then(|name| name.rsplit_once("-of-")?.1.parse().ok());
    count.and_then(|count| stem(name, count)).unwrap_or(name)
}

/// Most files of one model that are accepted.
const MOST_PARTS: u64 = 1000;

/// Reads a header from the start of a file; `place` names the file in errors.
pub fn header(place: &str, reader: impl Read) -> Result<Header> {
    let mut file = HeaderReader { place, reader: reader.take(MOST_HEADER), room: KEPT_VALUES };
    if file.bytes::<4>("magic")? != *b"GGUF" {
        return Err(file.bad("magic", "something else", "GGUF"));
    }
    let version = file.u32("version")?;
    if !(2..=3).contains(&version) {
        return Err(file.bad("version", version, "2 or 3, little endian"));
    }
    let tensors = file.u64("tensor_count")?;
    let keys = file.u64("metadata_kv_count")?;
    if tensors > MOST_TENSORS {
        return Err(file.bad("tensor_count", tensors, format!("at most {MOST_TENSORS}")));
    }
    if keys > MOST_KEYS {
        return Err(file.bad("metadata_kv_count", keys, format!("at most {MOST_KEYS}")));
    }
    let mut metadata = Map::new();
    for _ in 0..keys {
        let key = file.string("a key")?;
        let kind = file.u32(&key)?;
        file.value(&key, kind, &mut metadata)?;
    }
    // The capacity grows with the entries that were really read, because the claimed length may be false.
    let mut list = Vec::new();
    for _ in 0..tensors {
        list.push(file.tensor()?);
    }
    Ok(Header { metadata, tensors: list })
}

/// Reader that names the file in errors.
struct HeaderReader<'a, R> {
    place: &'a str,
    reader: R,
    /// Values of arrays that may still be kept.
    room: u64,
}

impl<R: Read> HeaderReader<'_, R> {
    fn bad(&self, field: &str, found: impl std::fmt::Display, accepted: impl std::fmt::Display) -> Error {
        Error::field(self.place, field, found, accepted)
    }

    fn bytes<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|_| self.bad(field, "cut off", "a whole GGUF header"))?;
        Ok(bytes)
    }

    fn u32(&mut self, field: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(field)?))
    }

    fn u64(&mut self, field: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(field)?))
    }

    fn string(&mut self, field: &str) -> Result<String> {
        let length = self.u64(field)?;
        if length > MOST_STRING {
            return Err(self.bad(
                field,
                format!("a string of {length} bytes"),
                format!("at most {MOST_STRING}"),
            ));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(length).read_to_end(&mut bytes).unwrap_or(0);
        if read as u64 != length {
            return Err(self.bad(field, "cut off", "a whole GGUF header"));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the value of `key` into `metadata`.
    fn value(&mut self, key: &str, kind: u32, metadata: &mut Map<String, Value>) -> Result<()> {
        if kind != 9 {
            let value = self.scalar(key, kind)?;
            metadata.insert(key.to_owned(), value);
            return Ok(());
        }
        let inner = self.u32(key)?;
        let length = self.u64(key)?;
        metadata.insert(format!("{key}.length"), json!(length));
        let mut items = Vec::new();
        // Every round reads at least one byte, so that a false length ends at the end of the file.
        for _ in 0..length {
            let value = self.scalar(key, inner)?;
            if length <= self.room.min(KEPT_ARRAY) && !value.is_string() {
                items.push(value);
            }
        }
        self.room -= items.len() as u64;
        if !items.is_empty() {
            metadata.insert(key.to_owned(), Value::Array(items));
        }
        Ok(())
    }

    fn scalar(&mut self, key: &str, kind: u32) -> Result<Value> {
        Ok(match kind {
            0 => json!(self.bytes::<1>(key)?[0]),
            1 => json!(i8::from_le_bytes(self.bytes(key)?)),
            2 => json!(u16::from_le_bytes(self.bytes(key)?)),
            3 => json!(i16::from_le_bytes(self.bytes(key)?)),
            4 => json!(u32::from_le_bytes(self.bytes(key)?)),
            5 => json!(i32::from_le_bytes(self.bytes(key)?)),
            6 => json!(f32::from_le_bytes(self.bytes(key)?)),
            7 => json!(self.bytes::<1>(key)?[0] != 0),
            8 => json!(self.string(key)?),
            10 => json!(u64::from_le_bytes(self.bytes(key)?)),
            11 => json!(i64::from_le_bytes(self.bytes(key)?)),
            12 => json!(f64::from_le_bytes(self.bytes(key)?)),
            other => {
                return Err(self.bad(
                    key,
                    format!("a value of type {other}"),
                    "types 0 to 12, arrays not nested",
                ));
            }
        })
    }

    fn tensor(&mut self) -> Result<Stored> {
        let name = self.string("a tensor's name")?;
        let dimensions = self.u32(&name)? as usize;
        if dimensions > MOST_DIMENSIONS {
            return Err(self.bad(
                &name,
                format!("{dimensions} dimensions"),
                format!("at most {MOST_DIMENSIONS}"),
            ));
        }
        // GGUF writes the innermost dimension first.
        let mut shape = (0..dimensions).map(|_| self.u64(&name)).collect::<Result<Vec<_>>>()?;
        shape.reverse();
        let code = self.u32(&name)?;
        let _offset = self.u64(&name)?;
        let Some(kind) = table::by_code(code) else {
            return Err(self.bad(&name, format!("type {code}"), "a type of ggml"));
        };
        let Some(elements) = elements(&shape) else {
            return Err(self.bad(&name, format!("{shape:?}"), "dimensions of a real tensor"));
        };
        let size = u128::from(elements).div_ceil(u128::from(kind.values)) * u128::from(kind.bytes);
        let bytes = Bytes(u64::try_from(size).unwrap_or(u64::MAX));
        Ok(Stored { name, dtype: kind.name.to_owned(), shape, elements, bytes })
    }
}

/// Converts a header's metadata to the keys of a `config.json`, so that one parser reads both.
pub(crate) fn config(place: &str, header: &Header) -> Result<Value> {
    let architecture = header.metadata.get("general.architecture").and_then(Value::as_str);
    let architecture = architecture.ok_or_else(|| {
        Error::field(place, "general.architecture", "missing", "a GGUF of a language model")
    })?;
    let model_type = model_type(place, architecture, header)?;
    let metadata = metadata::Metadata::new(place, architecture, header)?;
    Ok(Value::Object(keys::translated(&metadata, model_type)?))
}

/// Type whose keys describe an architecture. One that is not known is refused where its keys say more than a Llama's:
/// recurrences, experts, latents, indexers.
fn model_type<'a>(place: &str, architecture: &'a str, header: &Header) -> Result<&'a str> {
    let refused = |found: String| {
        let accepted = "an architecture that is known, or a config.json in the file's folder";
        Err(Error::field(place, "general.architecture", found, accepted))
    };
    match table::named(architecture) {
        Some(Named::As(model_type)) => return Ok(model_type),
        Some(Named::Refused(why)) => {
            return refused(format!("{architecture:?}, which is not modelled: {why}"));
        }
        None if reader::standing(architecture) != reader::Standing::Unknown => return Ok(architecture),
        None => {}
    }
    let more = ["ssm.", "expert", "lora_rank", "_mla", "indexer", "wkv", "shortconv", "linear_attn", "kda."];
    let set = |value: &Value| value.as_u64() != Some(0);
    let telling = header.metadata.iter().find(|(key, value)| {
        let is_telling =
            key.strip_prefix(architecture).is_some_and(|rest| more.iter().any(|part| rest.contains(part)));
        is_telling && set(value)
    });
    match telling {
        Some((key, _)) => refused(format!("{architecture:.80?}, which is not known, with `{key:.80}`")),
        None => Ok(architecture),
    }
}

/// Model of a GGUF file, each tensor in its stored format; `name` is the model's name in reports.
pub fn model(name: &str, place: &str, header: &Header) -> Result<Model> {
    Ok(holding(reader::read(name, place, &config(place, header)?)?, header))
}

/// The model with the formats of a file's tensors; all tensors of the file together are its weights.
pub fn holding(mut model: Model, header: &Header) -> Model {
    let mut formats = BTreeMap::new();
    for tensor in &header.tensors {
        let Some(kind) = table::by_name(&tensor.dtype) else { continue };
        let width = Width::grouped(0, kind.bytes as u32 * 8, kind.values as u32);
        let format = Format { name: kind.name, width, compute: None };
        formats.extend(paths(&tensor.name).into_iter().map(|path| (path, format)));
    }
    let bytes: Bytes = header.tensors.iter().map(|tensor| tensor.bytes).sum();
    let elements = header.tensors.iter().fold(0_u64, |sum, tensor| sum.saturating_add(tensor.elements));
    let mean = Format { name: "gguf", width: Width::mean(bytes, elements), compute: None };
    for (index, layer) in model.held_layers().iter().enumerate() {
        let matrices = layer.tensors(model.hidden).into_iter().filter(|t| t.role.is_matrix());
        for tensor in matrices {
            formats.entry(format!("layers.{index}.{}", tensor.name)).or_insert(mean);
        }
    }
    // GGUF quantizes matrices and tables only; norms and biases are kept in 32 bits.
    let other = Format { compute: None, ..Format::FP32 };
    model.stored = Some(StoredFormats { name: "gguf", formats, other, bytes });
    model
}

/// GGUF's name of the tensor at module path `module` of a layer, or outside the layers. A tensor that has no name here
/// keeps its module path, beside the layer's name.
pub fn tensor_name(module: &str, layer: Option<usize>) -> String {
    let (path, kind) = module.strip_suffix(".bias").map_or((module, "weight"), |path| (path, "bias"));
    let Some(layer) = layer else {
        return match path {
            "embed_tokens" => "token_embd.weight".to_owned(),
            "lm_head" => "output.weight".to_owned(),
            other => format!("{other}.{kind}"),
        };
    };
    let named = TENSORS.iter().filter(|(_, modules)| modules.iter().any(|module| path.ends_with(module)));
    // A tensor of its own comes before one that files may fuse with others.
    let named = named.min_by_key(|(_, modules)| modules.len());
    format!("blk.{layer}.{}.{kind}", named.map_or(path, |(name, _)| name))
}

/// Module paths of the model for a GGUF tensor: several if the file fuses tensors that the model keeps separate.
fn paths(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('.').collect();
    match parts.as_slice() {
        ["token_embd", "weight"] => vec!["embed_tokens".into()],
        ["output", "weight"] => vec!["lm_head".into()],
        ["position_embd", "weight"] => vec!["embed_positions".into()],
        ["blk", layer, tensor @ .., "weight"] => {
            let tensor = tensor.join(".");
            let ours = TENSORS.iter().filter(|(theirs, _)| *theirs == tensor);
            ours.flat_map(|(_, ours)| ours.iter()).map(|ours| format!("layers.{layer}.{ours}")).collect()
        }
        _ => Vec::new(),
    }
}

/// GGUF's names of a layer's matrices, each with the model's module paths.
const TENSORS: &[(&str, &[&str])] = &[
    ("attn_q", &["self_attn.q_proj"]),
    ("attn_k", &["self_attn.k_proj"]),
    ("attn_v", &["self_attn.v_proj"]),
    ("attn_qkv", &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    ("attn_output", &["self_attn.o_proj"]),
    ("attn_q_a", &["self_attn.q_a_proj"]),
    ("attn_q_b", &["self_attn.q_b_proj"]),
    ("attn_kv_a_mqa", &["self_attn.kv_a_proj_with_mqa"]),
    ("attn_kv_b", &["self_attn.kv_b_proj"]),
    ("attn_k_b", &["self_attn.kv_b_proj"]),
    ("attn_qkv", &["linear_attn.in_proj_qkv"]),
    ("attn_gate", &["linear_attn.in_proj_z", "self_attn.g_proj"]),
    ("ssm_in", &["mamba.in_proj"]),
    ("ssm_x", &["mamba.x_proj"]),
    ("ssm_dt", &["mamba.dt_proj"]),
    ("ssm_out", &["mamba.out_proj", "linear_attn.out_proj"]),
    ("ssm_ba", &["linear_attn.in_proj_ba"]),
    ("ssm_alpha", &["linear_attn.in_proj_ba"]),
    ("ssm_f_a", &["self_attn.f_a_proj"]),
    ("ssm_f_b", &["self_attn.f_b_proj"]),
    ("ssm_g_a", &["self_attn.g_a_proj"]),
    ("ssm_g_b", &["self_attn.g_b_proj"]),
    ("ssm_beta", &["self_attn.b_proj"]),
    ("shortconv.in_proj", &["conv.in_proj"]),
    ("shortconv.out_proj", &["conv.out_proj"]),
    ("indexer.attn_q_b", &["self_attn.indexer.wq_b"]),
    ("indexer.attn_k", &["self_attn.indexer.wk"]),
    ("indexer.proj", &["self_attn.indexer.weights_proj"]),
    ("ffn_gate", &["mlp.gate_proj"]),
    ("ffn_up", &["mlp.up_proj"]),
    ("ffn_down", &["mlp.down_proj"]),
    ("ffn_gate_inp", &["mlp.gate"]),
    ("ffn_gate_up_exps", &["mlp.experts.0.gate_proj", "mlp.experts.0.up_proj"]),
    ("ffn_gate_exps", &["mlp.experts.0.gate_proj"]),
    ("ffn_up_exps", &["mlp.experts.0.up_proj"]),
    ("ffn_down_exps", &["mlp.experts.0.down_proj"]),
    ("ffn_gate_shexp", &["mlp.shared_experts.gate_proj"]),
    ("ffn_up_shexp", &["mlp.shared_experts.up_proj"]),
    ("ffn_down_shexp", &["mlp.shared_experts.down_proj"]),
];
