//! A table by its path: its chip, engine and version, and the columns that it must have.
//!
//! Knows: the layout of AIConfigurator's database, `SYSTEM/FAMILY/ENGINE/VERSION/OPERATOR_perf.parquet`. Knows
//! nothing about rows.

use super::exchange_mode::ExchangeMode;
use super::names;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::version::Version;

/// Suffix of a table's file name, before its extension.
const SUFFIX: &str = "_perf";
const ACCEPTED_PATH: &str = "SYSTEM/ENGINE/VERSION/OPERATOR_perf.parquet, or SYSTEM/FAMILY/ENGINE/VERSION/…, \
                             as in h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet";

/// Kind of work that a table times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimedWork {
    Gemm,
    Experts,
    Attention {
        decode: bool,
    },
    Latent {
        decode: bool,
    },
    Recurrent(&'static str),
    AllReduce,
    Collective(&'static str),
    /// Experts behind DeepEP's exchange, with its mode.
    Exchanged(ExchangeMode),
    /// Dispatch and combination by DeepEP, with its mode.
    Exchange(ExchangeMode),
}

impl TimedWork {
    fn named(name: &str) -> Option<TimedWork> {
        Some(match name {
            "gemm" => TimedWork::Gemm,
            "moe" => TimedWork::Experts,
            "generation_attention" => TimedWork::Attention { decode: true },
            "context_attention" => TimedWork::Attention { decode: false },
            "generation_mla" => TimedWork::Latent { decode: true },
            "context_mla" => TimedWork::Latent { decode: false },
            "gdn" => TimedWork::Recurrent("gdn"),
            "kda" => TimedWork::Recurrent("kda"),
            "custom_allreduce" => TimedWork::AllReduce,
            "nccl" => TimedWork::Collective("nccl"),
            "oneccl" => TimedWork::Collective("oneccl"),
            "wideep_generation_moe" => TimedWork::Exchanged(ExchangeMode::LowLatency),
            "wideep_context_moe" => TimedWork::Exchanged(ExchangeMode::Normal),
            "wideep_deepep_ll" => TimedWork::Exchange(ExchangeMode::LowLatency),
            "wideep_deepep_normal" => TimedWork::Exchange(ExchangeMode::Normal),
            _ => return None,
        })
    }
}

/// Table of measured times, as its path describes it.
#[derive(Debug)]
pub struct TableSource<'a> {
    pub(super) path: String,
    pub(super) chip: &'a Accelerator,
    pub(super) engine: String,
    /// Version of the engine with its text; `None` if it has no order.
    pub(super) version: Option<(Version, String)>,
    pub(super) operator: TimedWork,
}

impl<'a> TableSource<'a> {
    /// Interprets `path`, whose folders are separated by `/`; the inner `Err` names a table that this project does
    /// not use.
    pub fn of(path: &str, catalog: &'a Catalog) -> Result<std::result::Result<TableSource<'a>, String>> {
        let broken = || Error::field(path, "path", path, ACCEPTED_PATH);
        let mut parts = path.rsplit('/').filter(|p| !p.is_empty());
        let file = parts.next().ok_or_else(broken)?;
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        let name = stem.strip_suffix(SUFFIX).unwrap_or(stem);
        let version = parts.next().ok_or_else(broken)?;
        let engine = parts.next().ok_or_else(broken)?;
        // The system's folder contains the folder of the engine, or the folder of a family that contains it.
        let above: Vec<&str> = parts.take(2).collect();
        let system = above.last().ok_or_else(broken)?;
        let Some(operator) = TimedWork::named(name) else {
            return Ok(Err(format!("table {name}")));
        };
        let Some(chip) = above.iter().find_map(|folder| catalog.device(folder)) else {
            return Ok(Err(format!("accelerator {system}")));
        };
        let engine = match operator {
            TimedWork::Collective(library) => library.to_owned(),
            _ => names::engine(engine).to_owned(),
        };
        let version = Version::parse(version).map(|parsed| (parsed, version.to_owned()));
        Ok(Ok(TableSource { path: path.to_owned(), chip, engine, version, operator }))
    }

    /// Names of the columns of words to read, if present.
    pub fn words(&self) -> &'static [&'static str] {
        match self.operator {
            TimedWork::Gemm => &["kernel_source", "gemm_dtype"],
            TimedWork::Experts | TimedWork::Exchanged(_) => &["kernel_source", "moe_dtype", "distribution"],
            TimedWork::Attention { .. } => &["kernel_source", "kv_cache_dtype", "attn_dtype"],
            TimedWork::Latent { .. } => &["kernel_source", "kv_cache_dtype", "mla_dtype"],
            TimedWork::Recurrent(_) => &["kernel_source", "phase"],
            TimedWork::AllReduce => &["kernel_source", "allreduce_dtype"],
            TimedWork::Collective(_) => &["kernel_source", "nccl_dtype", "op_name"],
            TimedWork::Exchange(_) => &["kernel_source"],
        }
    }

    /// Names of the columns of numbers to read, if present.
    pub fn numbers(&self) -> &'static [&'static str] {
        match self.operator {
            TimedWork::Gemm => &["latency", "n", "k", "m"],
            TimedWork::Experts | TimedWork::Exchanged(_) => &[
                "latency",
                "hidden_size",
                "inter_size",
                "topk",
                "num_experts",
                "moe_tp_size",
                "moe_ep_size",
                "num_tokens",
            ],
            TimedWork::Attention { .. } => &[
                "latency",
                "num_heads",
                "num_key_value_heads",
                "head_dim",
                "window_size",
                "batch_size",
                "isl",
                "step",
            ],
            TimedWork::Latent { .. } => &["latency", "num_heads", "batch_size", "isl", "step"],
            TimedWork::Recurrent(_) => &[
                "latency",
                "num_k_heads",
                "head_k_dim",
                "num_v_heads",
                "head_v_dim",
                "batch_size",
                "seq_len",
            ],
            TimedWork::AllReduce | TimedWork::Collective(_) => &["latency", "num_gpus", "message_size"],
            TimedWork::Exchange(mode) => mode.numbers(),
        }
    }
}
