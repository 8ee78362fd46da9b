//! Measured kernel times beside what the chip's datasheet allows for the same work.
//!
//! Knows: the columns of kernel tables as AIConfigurator publishes them (gemm, attention of prompts and of decodes, experts,
//! collectives). Knows nothing about fitting: that is [`crate::calibrate::kernels`]'s.

mod collective;
mod profile;

pub use profile::profile;

use crate::accelerator::{Accelerator, Topology};
use crate::catalog::Catalog;
use crate::coefficients::{
    BEYOND_CACHES, Coefficient, busiest, key_tile, last_tiles, masked_keys, skew, tiled, waves,
};
use crate::error::{Error, Result};
use crate::model::ffn::imbalance;
use crate::precision::Dtype;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Prompts shorter than this are launches more than work.
const LEAST_PROMPT: u64 = 256;
/// Decodes of fewer keys than this are not fitted: they start for longer than they read, and kernels overlap the two, which the
/// formula does not.
const LEAST_CONTEXT: f64 = 128.0;
/// Caches and experts smaller than this may stay in a chip's L2: 128 MB on an RTX PRO 6000, 126 MB on a B200. Their benchmarks
/// read one copy again and again; those of GEMMs rotate several ([`BEYOND_CACHES`]).
const LARGEST_L2: f64 = 128e6;

/// What a kernel does, which says what coefficients it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Matrix products.
    Gemm,
    /// Routed experts.
    Experts,
    /// Attention of prompts.
    Prefill,
    /// Attention of decodes.
    Decode,
    /// Attention of prompts and decodes in one kernel.
    Mixed,
    /// Norms and activation functions of a layer.
    Elementwise,
    /// All-reduce.
    AllReduce,
    /// Multi-head latent attention of prompts, keys and values expanded; the kernel alone.
    LatentPrefill,
    /// Multi-head latent attention of decodes, on the latent itself; the kernel alone.
    LatentDecode,
    /// A whole layer's latent attention of prompts, with its projections.
    LatentPrefillModule,
    /// A whole layer's latent attention of decodes, with its projections.
    LatentDecodeModule,
}

impl Part {
    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            Part::Gemm => "gemm",
            Part::Experts => "moe",
            Part::Prefill => "prefill attention",
            Part::Decode => "decode attention",
            Part::Mixed => "mixed attention",
            Part::Elementwise => "elementwise",
            Part::AllReduce => "all-reduce",
            Part::LatentPrefill => "MLA prefill",
            Part::LatentDecode => "MLA decode",
            Part::LatentPrefillModule => "MLA prefill module",
            Part::LatentDecodeModule => "MLA decode module",
        }
    }

    /// The coefficient of its FLOPs, the one of its bytes, and the one of what neither hides of the other or, in
    /// decodes' attention, of what further heads of a group add.
    pub fn coefficients(self) -> [Option<Coefficient>; 3] {
        match self {
            Part::Gemm => [
                Some(Coefficient::GemmCompute),
                Some(Coefficient::GemmMemory),
                Some(Coefficient::GemmExposed),
            ],
            Part::Experts => [
                Some(Coefficient::ExpertCompute),
                Some(Coefficient::ExpertMemory),
                Some(Coefficient::ExpertExposed),
            ],
            Part::Prefill => [Some(Coefficient::AttentionCompute), None, Some(Coefficient::AttentionExposed)],
            Part::Decode => [None, Some(Coefficient::KvMemory), Some(Coefficient::Group)],
            Part::Mixed
            | Part::LatentPrefill
            | Part::LatentDecode
            | Part::LatentPrefillModule
            | Part::LatentDecodeModule => [None; 3],
            Part::Elementwise => [None, Some(Coefficient::Elementwise), None],
            Part::AllReduce => [None, Some(Coefficient::Link), None],
        }
    }

    /// The coefficient of what crosses the bus between it and its neighbours.
    pub fn activation(self) -> Option<Coefficient> {
        match self {
            Part::Gemm => Some(Coefficient::GemmActivation),
            Part::Experts => Some(Coefficient::ExpertActivation),
            Part::Prefill => Some(Coefficient::AttentionActivation),
            _ => None,
        }
    }
}

/// One kernel time. All times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// What it does.
    pub part: Part,
    /// Whose kernel: an engine, or NCCL.
    pub backend: String,
    /// The engine's version; empty where a table names none.
    pub version: String,
    /// The kernel, as the table names it; empty where it names none.
    pub source: String,
    /// The table it stands in, with the version of whose kernel it is.
    pub table: Arc<str>,
    /// Catalog id.
    pub accelerator: String,
    /// The chip's generation.
    pub architecture: String,
    /// How chips are joined.
    pub link: Option<Topology>,
    /// The weight format, for what has weights.
    pub weights: Option<String>,
    /// Its FLOPs at the chip's peak.
    pub compute: f64,
    /// Its bytes at the chip's bandwidth, or the link's.
    pub memory: f64,
    /// The same two of attention in a module, whose projections the others are of; 0 of other parts.
    pub attention: [f64; 2],
    /// One crossing of what the kernel takes and passes on, of a product what it passes on alone, at the chip's bandwidth; 0
    /// where that is not counted.
    pub passed: f64,
    /// One crossing of what a product takes; 0 of other parts.
    pub inputs: f64,
    /// Values that a product sums for each that it gives; 0 of other parts.
    pub depth: f64,
    /// What the multiprocessors could compute while the last tile of a prompt's queries ends; 0 of other parts.
    pub tail: f64,
    /// Times that a product's whole waves of tiles come to of its tiles; 1 of other parts.
    pub waves: f64,
    /// One crossing of all tokens' copies, one for each expert that a token passes on any rank; 0 of other parts than experts.
    pub copies: f64,
    /// Experts that some token passes on the rank; 0 of other parts.
    pub touched: f64,
    /// Keys that each sequence of a decode reads; 0 of other parts.
    pub context: f64,
    /// Sequences of a decode times their KV heads; 0 where that is not known, and of other parts.
    pub pairs: f64,
    /// Keys that a decode reads at a time.
    pub tile: f64,
    /// Whether a value of the cache that a decode reads has 8 bits.
    pub narrow: bool,
    /// Query heads that read the same keys, in attention.
    pub group: f64,
    /// Values of a head's keys, in attention of prompts; else 0.
    pub head_dim: u64,
    /// The base latency of the link, for collectives.
    pub latency: f64,
    /// Ranks of a collective; 0 of other parts.
    pub ranks: u64,
    /// What it took.
    pub measured: f64,
}

impl Kernel {
    /// Whether it is an all-reduce whose pieces go from chip to chip, filling a pipeline; not over PCIe.
    pub fn is_pipelined(&self) -> bool {
        self.part == Part::AllReduce && !self.link.is_some_and(Topology::is_pcie)
    }

    fn new(part: Part, chip: &Accelerator, work: [f64; 2], latency_ms: f64) -> Kernel {
        Kernel {
            part,
            backend: String::new(),
            version: String::new(),
            source: String::new(),
            table: Arc::default(),
            accelerator: chip.id.clone(),
            architecture: chip.architecture.clone(),
            link: chip.link.as_ref().map(|l| l.topology),
            weights: None,
            compute: work[0],
            memory: work[1],
            attention: [0.0; 2],
            passed: 0.0,
            inputs: 0.0,
            depth: 0.0,
            tail: 0.0,
            copies: 0.0,
            touched: 0.0,
            waves: 1.0,
            context: 0.0,
            pairs: 0.0,
            tile: key_tile(chip),
            narrow: false,
            group: 1.0,
            head_dim: 0,
            latency: 0.0,
            ranks: 0,
            measured: latency_ms / 1e3,
        }
    }
}

/// What a file of kernel times says.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// The times.
    pub all: Vec<Kernel>,
    /// Rows that say nothing of the coefficients: formats that are not modelled, work that fits into caches, launches alone.
    pub skipped: u64,
}

/// The first line that is no comment.
fn header(text: &str) -> &str {
    text.lines().find(|l| !l.starts_with('#')).unwrap_or_default()
}

/// Whether `text` is a table of kernel times.
pub fn is_table(text: &str) -> bool {
    let header = header(text);
    header.split(',').any(|c| c.trim() == "latency_ms") && header.starts_with("system,")
}

/// Reads one table; `place` names it in errors.
pub fn read(place: &str, text: &str, catalog: &Catalog) -> Result<Kernels> {
    let header = header(text);
    let table = Table { place, text, catalog };
    let has = |column: &str| header.split(',').any(|c| c.trim() == column);
    if has("num_experts") {
        table.kernels(experts)
    } else if has("kv_len") {
        table.kernels(decode)
    } else if has("isl") {
        table.kernels(prompt)
    } else if has("op_name") {
        table.kernels(collective::all_reduce)
    } else if has("m") && has("n") && has("k") {
        table.kernels(gemm)
    } else {
        let accepted = "m,n,k, or isl, or kv_len, or num_experts, or op_name beside system and latency_ms";
        Err(Error::field(place, "columns", header, accepted))
    }
}

struct Table<'a> {
    place: &'a str,
    text: &'a str,
    catalog: &'a Catalog,
}

/// A row of any table.
trait Measured: DeserializeOwned {
    fn system(&self) -> &str;
    fn backend(&self) -> &str;
    fn version(&self) -> &str;
    fn latency_ms(&self) -> f64;
}

impl Table<'_> {
    fn kernels<R: Measured>(&self, kernel: impl Fn(&Accelerator, &R) -> Option<Kernel>) -> Result<Kernels> {
        let mut kernels = Kernels::default();
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(self.text.as_bytes());
        let broken = |e: csv::Error| Error::Parse { place: self.place.to_owned(), message: e.to_string() };
        let header = reader.headers().map_err(broken)?.clone();
        let mut tables: BTreeMap<(String, String), Arc<str>> = BTreeMap::new();
        for record in reader.records() {
            let record = record.map_err(broken)?;
            let line = record.position().map_or(0, csv::Position::line);
            let place = format!("{}:{line}", self.place);
            let row: R = record
                .deserialize(Some(&header))
                .map_err(|e| Error::Parse { place: place.clone(), message: e.to_string() })?;
            let chip = self.catalog.accelerator(&row.system().replace('_', "-"))?;
            let took = row.latency_ms();
            if !(took.is_finite() && took > 0.0) {
                return Err(Error::field(place, "latency_ms", took, "a number above 0"));
            }
            let table =
                tables.entry((row.backend().to_owned(), row.version().to_owned())).or_insert_with(|| {
                    let file = self.place.rsplit('/').next().unwrap_or_default();
                    format!("{file}: {} {}", row.backend(), row.version()).trim().into()
                });
            match kernel(chip, &row) {
                Some(kernel) => {
                    let (backend, table) = (row.backend().to_owned(), Arc::clone(table));
                    kernels.all.push(Kernel { backend, table, ..kernel });
                }
                None => kernels.skipped += 1,
            }
        }
        Ok(kernels)
    }
}

/// A table's rows: its struct and how it names chip and time.
macro_rules! rows {
    ($name:ident { $($field:ident : $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        struct $name { system: String, #[serde(alias = "source", default)] backend: String, #[serde(default)] version: String, latency_ms: f64, $($field: $type),* }
        impl Measured for $name {
            fn system(&self) -> &str { &self.system }
            fn backend(&self) -> &str { &self.backend }
            fn version(&self) -> &str { &self.version }
            fn latency_ms(&self) -> f64 { self.latency_ms }
        }
    };
}

rows!(GemmRow { dtype: String, m: f64, n: f64, k: f64 });
rows!(PromptRow {
    attn_dtype: String,
    kv_cache_dtype: String,
    batch_size: f64,
    isl: u64,
    nq: f64,
    nkv: f64,
    head_dim: f64
});
rows!(DecodeRow { kv_cache_dtype: String, batch_size: f64, kv_len: f64, nq: f64, nkv: f64, head_dim: f64 });
rows!(ExpertRow {
    moe_dtype: String,
    num_tokens: f64,
    hidden_size: f64,
    inter_size: f64,
    topk: f64,
    num_experts: f64,
    moe_tp_size: f64,
    moe_ep_size: f64,
    distribution: String,
});
rows!(CollectiveRow { variant: String, op_name: String, num_gpus: u64, bytes: u64 });

/// Name, computing dtype and bits a weight of a table's format.
type Format = (&'static str, Dtype, f64);

fn format(dtype: &str) -> Option<Format> {
    match dtype {
        "bfloat16" => Some(("bf16", Dtype::Bf16, 16.0)),
        "float16" | "half" => Some(("fp16", Dtype::Fp16, 16.0)),
        "fp8" => Some(("fp8", Dtype::Fp8, 8.0)),
        "fp8_block" => Some(("fp8-block", Dtype::Fp8, 8.0)),
        "nvfp4" => Some(("nvfp4", Dtype::Fp4, 4.5)),
        _ => None,
    }
}

/// Seconds of FLOPs at the peak of `dtype`, and of bytes at the bandwidth.
fn least(chip: &Accelerator, dtype: Dtype, flops: f64, bytes: f64) -> Option<[f64; 2]> {
    Some([flops / chip.peak(dtype).ok()?.0, bytes / chip.bandwidth_bytes_per_s.0])
}

/// C[m, n] = A[m, k] B[k, n]: 2 m n k FLOPs in whole tiles of rows, k n weights; m (n + k) values of two bytes pass.
fn gemm(chip: &Accelerator, row: &GemmRow) -> Option<Kernel> {
    product(chip, format(&row.dtype)?, row)
}

fn product(chip: &Accelerator, (name, dtype, bits): Format, row: &GemmRow) -> Option<Kernel> {
    let bytes = row.n * row.k * bits / 8.0;
    let work =
        least(chip, dtype, 2.0 * tiled(row.m) * row.n * row.k, bytes).filter(|_| bytes > BEYOND_CACHES)?;
    let [inputs, passed] = [row.k, row.n].map(|values| row.m * values * 2.0 / chip.bandwidth_bytes_per_s.0);
    let waves = waves(row.m, row.n, chip.multiprocessors);
    let kernel = Kernel::new(Part::Gemm, chip, work, row.latency_ms);
    Some(Kernel { weights: Some(name.into()), passed, inputs, depth: row.k, waves, ..kernel })
}

/// Causal attention of whole prompts: 4 FLOPs a head, dimension, and pair of tokens, with what tiles come to beside.
fn prompt(chip: &Accelerator, row: &PromptRow) -> Option<Kernel> {
    let plain = row.attn_dtype == "bfloat16" && row.kv_cache_dtype == "bfloat16";
    let isl = row.isl as f64;
    let rows = row.batch_size * row.nq * (isl / 2.0 + masked_keys(false));
    let flops = 4.0 * row.head_dim * isl * rows;
    // Keys and values, queries, and what comes of them, of two bytes each.
    let bytes = row.batch_size * isl * (row.nkv + row.nq) * row.head_dim * 4.0;
    let work = least(chip, Dtype::Bf16, flops, bytes).filter(|_| plain && row.isl >= LEAST_PROMPT)?;
    let passed = row.batch_size * isl * row.nq * row.head_dim * 4.0 / chip.bandwidth_bytes_per_s.0;
    let [tail, _] = least(chip, Dtype::Bf16, 4.0 * row.head_dim * isl * last_tiles(chip), 0.0)?;
    let head_dim = row.head_dim as u64;
    Some(Kernel { head_dim, passed, tail, ..Kernel::new(Part::Prefill, chip, work, row.latency_ms) })
}

/// A token of each sequence against its keys and values.
fn decode(chip: &Accelerator, row: &DecodeRow) -> Option<Kernel> {
    let (_, _, bits) = format(&row.kv_cache_dtype)?;
    let tokens = row.batch_size * row.kv_len;
    let bytes = tokens * row.nkv * row.head_dim * 2.0 * bits / 8.0;
    let flops = 4.0 * tokens * row.nq * row.head_dim;
    let counts = bytes > LARGEST_L2 && row.kv_len >= LEAST_CONTEXT;
    let work = least(chip, Dtype::Bf16, flops, bytes).filter(|_| counts)?;
    let (group, narrow) = ((row.nq / row.nkv).max(1.0), bits <= 8.0);
    let kernel = Kernel::new(Part::Decode, chip, work, row.latency_ms);
    Some(Kernel { group, narrow, context: row.kv_len, pairs: row.batch_size * row.nkv, ..kernel })
}

/// Gated experts on the busiest rank, with routing about as skewed as in traffic.
fn experts(chip: &Accelerator, row: &ExpertRow) -> Option<Kernel> {
    routed(chip, format(&row.moe_dtype)?, row)
}

/// The experts of a layer that some of the T tokens pass in tables of a power law of 1.01. An expert's tokens are drawn from
/// 1 to 0.8 T (from 0.01 to 2 where the T k copies are no more than the E experts), scaled to T k together, and rounded
/// (aiconfigurator, `collector/helper.py`): x is equally likely in equal parts of the span L = ln(high/low), and the
/// E (1 − ln(x0)/L) above what rounds to none are touched, x0 = E (e^L − 1)/(2 L T k). The times of fewer copies than experts
/// are those of E (1 − (1 − k/E)^T).
fn touched(row: &ExpertRow) -> f64 {
    let (experts, copies) = (row.num_experts, row.num_tokens * row.topk);
    let span = if copies > experts { 0.8 * row.num_tokens } else { 200.0 }.ln();
    if copies < experts || span <= 0.0 {
        return experts * (1.0 - (1.0 - row.topk / experts).powf(row.num_tokens));
    }
    let rounds_to_none = experts * span.exp_m1() / (2.0 * span * copies);
    (experts * (1.0 - rounds_to_none.ln() / span).clamp(0.0, 1.0)).min(copies)
}

fn routed(chip: &Accelerator, (name, dtype, bits): Format, row: &ExpertRow) -> Option<Kernel> {
    let all = touched(row);
    let expert = 3.0 * row.hidden_size * row.inter_size / row.moe_tp_size;
    let copies = row.num_tokens * row.topk / row.moe_ep_size;
    let ranks = row.moe_ep_size as u64;
    let touched = (all / row.moe_ep_size * imbalance(row.num_experts, all, ranks))
        .min(row.num_experts / row.moe_ep_size);
    let bytes = touched * expert * bits / 8.0;
    let counts = row.distribution == "power_law_1.01" && bytes > LARGEST_L2;
    let busiest = busiest(row.num_experts as u64, ranks, skew(row.num_tokens));
    let work = least(chip, dtype, 2.0 * copies * busiest * expert, bytes).filter(|_| counts)?;
    let one = copies * row.hidden_size * 2.0 / chip.bandwidth_bytes_per_s.0;
    let (passed, copies) = (one * busiest, one * row.moe_ep_size);
    let kernel = Kernel::new(Part::Experts, chip, work, row.latency_ms);
    Some(Kernel { weights: Some(name.into()), passed, copies, touched, ..kernel })
}

#[cfg(test)]
mod tests;
