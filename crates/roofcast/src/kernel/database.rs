//! Kernel times in the layout of AIConfigurator's database: a table for each system, engine, version and operator.
//!
//! Knows: which operators are read, their columns, and the work of a row beside what the chip's datasheet allows for it.
//! Knows nothing about files or their formats: rows are handed in, one at a time.

use super::{CollectiveRow, DecodeRow, ExpertRow, Format, GemmRow, Kernel, Part, PromptRow, least};
use crate::accelerator::Accelerator;
use crate::catalog::Catalog;
use crate::coefficients::masked_keys;
use crate::error::{Error, Result};
use crate::precision::Dtype;
use std::sync::Arc;

/// Rows of one table that are fitted; of a longer one an even sample is taken.
const MOST_ROWS: u64 = 8192;
/// What a table's file name ends with, before its extension.
const SUFFIX: &str = "_perf";
const ACCEPTED_PATH: &str = "SYSTEM/ENGINE/VERSION/OPERATOR_perf.parquet, or SYSTEM/FAMILY/ENGINE/VERSION/…, \
                             as in h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet";

/// DeepSeek-V3's latent attention, whose modules were timed (`config.json` of deepseek-ai/DeepSeek-V3).
mod deepseek_v3 {
    pub(super) const NAME: &str = "deepseek-ai/DeepSeek-V3";
    pub(super) const HIDDEN: f64 = 7168.0;
    pub(super) const Q_LORA: f64 = 1536.0;
    pub(super) const LATENT: f64 = 512.0;
    pub(super) const ROPE: f64 = 64.0;
    pub(super) const NOPE: f64 = 128.0;
    pub(super) const VALUE: f64 = 128.0;
}

/// A row of a table, by column.
pub trait Row {
    /// A column of words.
    fn text(&self, column: &str) -> Option<&str>;
    /// A column of numbers, whole ones included.
    fn number(&self, column: &str) -> Option<f64>;
}

/// What a table is of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Gemm,
    Prompt,
    Decode,
    Experts,
    Collective,
    Latent { decode: bool, module: bool },
}

impl Operator {
    fn named(name: &str) -> Option<Operator> {
        let latent = |decode, module| Operator::Latent { decode, module };
        Some(match name {
            "gemm" => Operator::Gemm,
            "context_attention" => Operator::Prompt,
            "generation_attention" => Operator::Decode,
            "moe" => Operator::Experts,
            "custom_allreduce" | "nccl" => Operator::Collective,
            "context_mla" => latent(false, false),
            "generation_mla" => latent(true, false),
            "mla_context_module" => latent(false, true),
            "mla_generation_module" => latent(true, true),
            _ => return None,
        })
    }
}

/// One table: what its path says of every row.
#[derive(Debug)]
pub struct Table<'a> {
    place: String,
    chip: &'a Accelerator,
    operator: Operator,
    engine: String,
    version: String,
    /// What a calibration says it was fitted to.
    table: Arc<str>,
}

/// What a table or a row turns out to be.
#[derive(Debug)]
pub enum Found<T> {
    /// What was asked for.
    Read(T),
    /// A row that says nothing of the coefficients: work that fits into caches, launches alone, a format without a peak rate.
    Skipped,
    /// Something that is not modelled, by name: an operator, an accelerator, a dtype.
    Unread(String),
}

/// Whether row `index` of a table with `rows` is taken: all of a short table, of a longer one a sample that is the same
/// on every run. A hash, not a stride: tables repeat their shapes with a period.
pub fn taken(index: u64, rows: u64) -> bool {
    // SplitMix64 (Steele, Lea and Flood 2014).
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    rows <= MOST_ROWS || (u128::from(z) * u128::from(rows)) >> 64 < u128::from(MOST_ROWS)
}

impl<'a> Table<'a> {
    /// The table at `path`, whose folders are separated by `/`.
    pub fn of(path: &str, catalog: &'a Catalog) -> Result<Found<Table<'a>>> {
        let broken = || Error::field(path, "path", path, ACCEPTED_PATH);
        let mut parts = path.rsplit('/').filter(|p| !p.is_empty());
        let file = parts.next().ok_or_else(broken)?;
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        let name = stem.strip_suffix(SUFFIX).unwrap_or(stem);
        let (version, engine) = (parts.next().ok_or_else(broken)?, parts.next().ok_or_else(broken)?);
        // The system's folder holds the engine's, or a family's between them.
        let above: Vec<&str> = parts.take(2).collect();
        let system = above.last().ok_or_else(broken)?;
        let Some(operator) = Operator::named(name) else {
            return Ok(Found::Unread(format!("operator {name}")));
        };
        let Some(chip) = above.iter().find_map(|folder| catalog.device(folder)) else {
            return Ok(Found::Unread(format!("accelerator {system}")));
        };
        let table = format!("{system}/{file}: {engine} {version}").into();
        let [place, engine, version] = [path, engine, version].map(str::to_owned);
        Ok(Found::Read(Table { place, chip, operator, engine, version, table }))
    }

    /// Reads row `index`, counted from 0.
    pub fn row(&self, index: u64, row: &impl Row) -> Result<Found<Kernel>> {
        let row = Cells { row, place: format!("{}:{}", self.place, index + 1) };
        let latency = row.number("latency")?;
        if !(latency.is_finite() && latency > 0.0) {
            return Err(Error::field(row.place, "latency", latency, "milliseconds above 0"));
        }
        let found = match self.operator {
            Operator::Gemm => self.gemm(&row, latency)?,
            Operator::Prompt => self.prompt(&row, latency)?,
            Operator::Decode => self.decode(&row, latency)?,
            Operator::Experts => self.experts(&row, latency)?,
            Operator::Collective => self.collective(&row, latency)?,
            Operator::Latent { decode, module } => self.latent(&row, latency, decode, module)?,
        };
        Ok(match found {
            Found::Read(kernel) => Found::Read(Kernel {
                backend: self.engine.clone(),
                version: self.version.clone(),
                source: row.row.text("kernel_source").unwrap_or_default().to_owned(),
                table: Arc::clone(&self.table),
                ..kernel
            }),
            other => other,
        })
    }

    fn gemm<R: Row>(&self, row: &Cells<'_, R>, latency_ms: f64) -> Result<Found<Kernel>> {
        let dtype = row.text("gemm_dtype")?;
        let Some(format) = format(dtype) else { return Ok(unread("gemm", dtype)) };
        let (m, n, k) = (row.number("m")?, row.number("n")?, row.number("k")?);
        let shape = GemmRow {
            system: String::new(),
            backend: String::new(),
            version: String::new(),
            latency_ms,
            dtype: String::new(),
            m,
            n,
            k,
        };
        Ok(found(super::product(self.chip, format, &shape)))
    }

    fn prompt<R: Row>(&self, row: &Cells<'_, R>, latency_ms: f64) -> Result<Found<Kernel>> {
        let (isl, nq) = (row.number("isl")?, row.number("num_heads")?);
        // A window that hides nothing is none; one that does is another kernel's work.
        let window = row.row.number("window_size").unwrap_or(0.0);
        if window > 0.0 && window < isl {
            return Ok(Found::Skipped);
        }
        let prompts = PromptRow {
            system: String::new(),
            backend: String::new(),
            version: String::new(),
            latency_ms,
            attn_dtype: row.text("attn_dtype")?.to_owned(),
            kv_cache_dtype: row.text("kv_cache_dtype")?.to_owned(),
            batch_size: row.number("batch_size")?,
            isl: isl as u64,
            nq,
            nkv: row.kv_heads(nq)?,
            head_dim: row.number("head_dim")?,
        };
        Ok(found(super::prompt(self.chip, &prompts)))
    }

    fn decode<R: Row>(&self, row: &Cells<'_, R>, latency_ms: f64) -> Result<Found<Kernel>> {
        let nq = row.number("num_heads")?;
        let context = row.number("isl")? + row.number("step")?;
        let window = row.row.number("window_size").unwrap_or(0.0);
        let decodes = DecodeRow {
            system: String::new(),
            backend: String::new(),
            version: String::new(),
            latency_ms,
            kv_cache_dtype: row.text("kv_cache_dtype")?.to_owned(),
            batch_size: row.number("batch_size")?,
            kv_len: if window > 0.0 { context.min(window) } else { context },
            nq,
            nkv: row.kv_heads(nq)?,
            head_dim: row.number("head_dim")?,
        };
        Ok(found(super::decode(self.chip, &decodes)))
    }

    fn experts<R: Row>(&self, row: &Cells<'_, R>, latency_ms: f64) -> Result<Found<Kernel>> {
        let dtype = row.text("moe_dtype")?;
        let Some(format) = format(dtype) else { return Ok(unread("moe", dtype)) };
        let experts = ExpertRow {
            system: String::new(),
            backend: String::new(),
            version: String::new(),
            latency_ms,
            moe_dtype: String::new(),
            num_tokens: row.number("num_tokens")?,
            hidden_size: row.number("hidden_size")?,
            inter_size: row.number("inter_size")?,
            topk: row.number("topk")?,
            num_experts: row.number("num_experts")?,
            moe_tp_size: row.number("moe_tp_size")?,
            moe_ep_size: row.number("moe_ep_size")?,
            distribution: row.text("distribution")?.to_owned(),
        };
        // Two matrices where nothing gates, of which the rest counts three.
        let share = if row.row.text("kernel_source").is_some_and(|s| s.contains("nongated")) {
            2.0 / 3.0
        } else {
            1.0
        };
        let kernel = super::routed(self.chip, format, &experts);
        Ok(found(kernel.map(|k| Kernel { compute: share * k.compute, memory: share * k.memory, ..k })))
    }

    fn collective<R: Row>(&self, row: &Cells<'_, R>, latency_ms: f64) -> Result<Found<Kernel>> {
        // Messages are counted in elements.
        let dtype = row.row.text("nccl_dtype").or(row.row.text("allreduce_dtype")).unwrap_or("bfloat16");
        let width = match dtype {
            "int8" | "fp8" => 1.0,
            "half" | "float16" | "bfloat16" => 2.0,
            _ => return Ok(unread("all-reduce", dtype)),
        };
        let message = CollectiveRow {
            system: String::new(),
            backend: self.engine.clone(),
            version: self.version.clone(),
            latency_ms,
            variant: row.text("kernel_source")?.to_owned(),
            op_name: row.text("op_name")?.to_owned(),
            num_gpus: row.number("num_gpus")? as u64,
            bytes: (row.number("message_size")? * width) as u64,
        };
        Ok(found(super::collective::all_reduce(self.chip, &message)))
    }

    /// Multi-head latent attention of `num_heads` heads on this rank: prompts expand keys of 192 and values of 128 a head,
    /// decodes read a latent of 576 a token once for all heads; a module has the projections, too.
    fn latent<R: Row>(
        &self,
        row: &Cells<'_, R>,
        latency_ms: f64,
        decode: bool,
        module: bool,
    ) -> Result<Found<Kernel>> {
        use deepseek_v3::{HIDDEN, LATENT, NAME, NOPE, Q_LORA, ROPE, VALUE};
        let cache = row.text("kv_cache_dtype")?;
        let Some((_, _, cache_bits)) = format(cache) else { return Ok(unread("MLA cache", cache)) };
        let (heads, sequences) = (row.number("num_heads")?, row.number("batch_size")?);
        let (new, before) = (row.number("isl")?, row.number("step")?);
        let rows = sequences * new;
        // Prompts compute what is masked in their tiles, too.
        let masked = if decode { 0.0 } else { rows * masked_keys(false) };
        let pairs = sequences * (new * before + new * (new + 1.0) / 2.0) + masked;
        let pair = if decode { 2.0 * LATENT + ROPE } else { NOPE + ROPE + VALUE };
        let read = sequences * (new + before) * (LATENT + ROPE) * cache_bits / 8.0;
        let Some(attention) = least(self.chip, Dtype::Bf16, 2.0 * heads * pairs * pair, read) else {
            return Ok(Found::Skipped);
        };
        let part = match (decode, module) {
            (false, false) => Part::LatentPrefill,
            (true, false) => Part::LatentDecode,
            (false, true) => Part::LatentPrefillModule,
            (true, true) => Part::LatentDecodeModule,
        };
        if !module {
            return Ok(Found::Read(Kernel::new(part, self.chip, attention, latency_ms)));
        }
        let model = row.text("model")?;
        if model != NAME {
            return Ok(Found::Unread(format!("MLA of {model}")));
        }
        let dtype = row.text("gemm_type")?;
        let Some((name, computing, bits)) = format(dtype) else { return Ok(unread("MLA", dtype)) };
        let head = Q_LORA * (NOPE + ROPE) + LATENT * (NOPE + VALUE) + HIDDEN * VALUE;
        let each = HIDDEN * (Q_LORA + LATENT + ROPE) + heads * head;
        let Some(projections) = least(self.chip, computing, 2.0 * rows * each, each * bits / 8.0) else {
            return Ok(Found::Skipped);
        };
        // Queries, keys and values of every head in two bytes, written and read, and the hidden state and latents.
        let heads = heads * 2.0 * (NOPE + ROPE + VALUE);
        let passed = rows * 2.0 * (heads + 2.0 * (HIDDEN + Q_LORA + LATENT));
        Ok(Found::Read(Kernel {
            weights: Some(name.to_owned()),
            attention,
            passed: passed / self.chip.bandwidth_bytes_per_s.0,
            ..Kernel::new(part, self.chip, projections, latency_ms)
        }))
    }
}

fn found(kernel: Option<Kernel>) -> Found<Kernel> {
    kernel.map_or(Found::Skipped, Found::Read)
}

fn unread(what: &str, dtype: &str) -> Found<Kernel> {
    Found::Unread(format!("{what} dtype {dtype}"))
}

/// Formats of these tables beside those that both kinds of tables have. Weight-only ones compute in 16 bits; four-bit
/// integers have a scale and a zero for 128 (GPTQ, 4 + 20/128 bits), MXFP4 a scale for 32.
fn format(dtype: &str) -> Option<Format> {
    match dtype {
        "int8_wo" => Some(("w8", Dtype::Bf16, 8.0)),
        "int4_wo" => Some(("gptq-int4", Dtype::Bf16, 4.0 + 20.0 / 128.0)),
        "w4a16_mxfp4" => Some(("mxfp4", Dtype::Bf16, 4.25)),
        "w4a8_mxfp4_mxfp8" => Some(("mxfp4-fp8", Dtype::Fp8, 4.25)),
        _ => super::format(dtype),
    }
}

/// A row with where it stands.
struct Cells<'a, R> {
    row: &'a R,
    place: String,
}

impl<R: Row> Cells<'_, R> {
    fn text(&self, column: &str) -> Result<&str> {
        self.row.text(column).ok_or_else(|| Error::field(&self.place, column, "missing", "a column of words"))
    }

    fn number(&self, column: &str) -> Result<f64> {
        self.row
            .number(column)
            .ok_or_else(|| Error::field(&self.place, column, "missing", "a column of numbers"))
    }

    /// Heads of keys and values; 0 says as many as of queries.
    fn kv_heads(&self, query_heads: f64) -> Result<f64> {
        let heads = self.number("num_key_value_heads")?;
        Ok(if heads > 0.0 { heads } else { query_heads })
    }
}

#[cfg(test)]
mod tests;
