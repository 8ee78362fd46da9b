//! The tables of an engine's profile: times of the operators of one layer.
//!
//! Knows: an operator's FLOPs and bytes are those of the step model. Knows nothing about fitting.

use super::{Kernel, Kernels, LEAST_PROMPT, Part};
use crate::batch::{Batch, Sequences};
use crate::coefficients::{BEYOND_CACHES, Coefficients, mixed_tokens, tiled, waves};
use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::model::{Family, OperatorKind};
use crate::operator::{Demand, Form, Matrix, Operator};
use crate::step::StepModel;
use crate::timing::Timing;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Caches of decodes beyond which each head of a group reads them again beside prompts.
const MOST_MIXED: f64 = 512e6;

/// Rows of a profile that are norms and activation functions, and how often a layer has each.
const ELEMENTWISE: [(&str, f64); 4] =
    [("act_fn", 1.0), ("layernorm", 2.0), ("qk_norm", 1.0), ("rotary_emb", 1.0)];

#[derive(Deserialize)]
struct Dense {
    layer: String,
    tokens: u64,
    time_us: f64,
}

#[derive(Deserialize)]
struct Attending {
    prefill_chunk: u64,
    kv_prefill: u64,
    n_decode: u64,
    kv_decode: u64,
    time_us: f64,
}

/// Reads an engine's profile of one layer of `deployment`: `dense.csv` (layer, tokens, time_us) and `attention.csv`
/// (prefill_chunk, kv_prefill, n_decode, kv_decode, time_us).
pub fn profile(place: &str, dense: &str, attention: &str, deployment: &Deployment) -> Result<Kernels> {
    let mut kernels = Kernels::default();
    let backend = deployment.options.engine.name().to_owned();
    let layer = Profiled::of(deployment);
    let folder: Vec<&str> = place.rsplit('/').take(2).collect();
    let table: Arc<str> = folder.into_iter().rev().collect::<Vec<_>>().join("/").into();
    let mut take = |kernel: Option<Kernel>| match kernel {
        Some(kernel) => {
            let (backend, table) = (backend.clone(), Arc::clone(&table));
            kernels.all.push(Kernel { backend, table, ..kernel });
        }
        None => kernels.skipped += 1,
    };
    let mut elementwise: BTreeMap<u64, f64> = BTreeMap::new();
    for row in rows::<Dense>(&format!("{place}/dense.csv"), dense) {
        let row = row?;
        match ELEMENTWISE.iter().find(|(name, _)| *name == row.layer) {
            Some((_, times)) => *elementwise.entry(row.tokens).or_default() += times * row.time_us,
            None => take(layer.operator(&Batch::decode(row.tokens, 1), &row.layer, row.time_us)),
        }
    }
    for (tokens, time_us) in elementwise {
        take(layer.elementwise(tokens, time_us));
    }
    for row in rows::<Attending>(&format!("{place}/attention.csv"), attention) {
        let row = row?;
        let (chunk, kv) = (row.prefill_chunk, row.kv_prefill);
        let prompt = Sequences::prompt(chunk, chunk.saturating_add(kv), true);
        let batch = match (chunk, row.n_decode) {
            (0, n) => Batch::decode(n, row.kv_decode),
            (_, 0) => Batch { groups: vec![prompt] },
            _ => {
                take(layer.mixed(prompt, &row));
                continue;
            }
        };
        let alone = chunk >= LEAST_PROMPT || chunk == 0 && !batch.groups.is_empty();
        take(layer.operator(&batch, "attention", row.time_us).filter(|_| alone));
    }
    Ok(kernels)
}

fn rows<'a, R: DeserializeOwned + 'a>(place: &str, text: &'a str) -> impl Iterator<Item = Result<R>> + 'a {
    let place = place.to_owned();
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().enumerate().map(move |(index, row)| {
        row.map_err(|e: csv::Error| Error::Parse {
            place: format!("{place}:{}", index + 2),
            message: e.to_string(),
        })
    })
}

/// A deployment whose layers were profiled, with what its operators do.
struct Profiled<'a> {
    deployment: &'a Deployment,
    limit: Timing,
}

impl Profiled<'_> {
    fn of(deployment: &Deployment) -> Profiled<'_> {
        let model = Arc::new(StepModel::compile(deployment));
        Profiled { deployment, limit: Timing::new(model, Arc::new(Coefficients::ideal(1.0, 1.0))) }
    }

    /// The first operator of a kind, and what it demands for `batch` in one layer.
    fn demand(&self, batch: &Batch, kind: OperatorKind) -> Option<(&Operator, Demand)> {
        let model = &self.limit.model;
        let index = model.operators.iter().position(|o| o.kind == kind)?;
        let pass = model.passes_of(batch).into_iter().next()?;
        Some((&model.operators[index], self.limit.demand(index, &pass)))
    }

    /// A piece of a prompt and decodes in one kernel: the one's FLOPs, and in place of bytes those that the others would be
    /// if each computed one row. Caches that do not fit the chip's own, times their heads, are read again: left out.
    fn mixed(&self, prompt: Sequences, row: &Attending) -> Option<Kernel> {
        let seconds = |batch: &Batch| {
            let (operator, demand) = self.demand(batch, OperatorKind::Attention)?;
            Some((demand.flops / operator.rate.0, demand.kv_bytes))
        };
        let (prompts, _) = seconds(&Batch { groups: vec![prompt] })?;
        let (decodes, bytes) = seconds(&Batch::decode(row.n_decode, row.kv_decode))?;
        let (first, _) = seconds(&Batch::decode(row.n_decode, 1))?;
        let work = [prompts, decodes + first * mixed_tokens(row.prefill_chunk)];
        let counts = row.time_us > 0.0 && prompt.new >= LEAST_PROMPT && bytes < MOST_MIXED;
        let chip = &self.deployment.accelerator;
        Some(Kernel::new(Part::Mixed, chip, work, row.time_us / 1e3)).filter(|_| counts)
    }

    /// What norms and activation functions of one layer take for `tokens`.
    fn elementwise(&self, tokens: u64, time_us: f64) -> Option<Kernel> {
        let layers = self.deployment.model.layers.len() as f64;
        let bytes = tokens as f64 * self.limit.model.surroundings.elementwise_bytes / layers;
        let chip = &self.deployment.accelerator;
        let moving = bytes / chip.bandwidth_bytes_per_s.0;
        let counts = time_us > 0.0 && bytes > BEYOND_CACHES / 2.0;
        Some(Kernel::new(Part::Elementwise, chip, [0.0, moving], time_us / 1e3)).filter(|_| counts)
    }

    /// The operator `name` of one layer, where it works beyond the caches.
    fn operator(&self, batch: &Batch, name: &str, time_us: f64) -> Option<Kernel> {
        let (operator, demand) = self.demand(batch, OperatorKind::named(name)?)?;
        let bytes = demand.weight_bytes + demand.kv_bytes;
        let decodes = batch.groups.iter().all(|g| g.new == 1);
        let part = match operator.kind.family() {
            Family::Gemm => Part::Gemm,
            Family::Attention if decodes => Part::Decode,
            Family::Attention => Part::Prefill,
            _ => return None,
        };
        let counts = time_us > 0.0 && (part == Part::Prefill || bytes > BEYOND_CACHES / 2.0);
        let rows = (batch.tokens() as f64).max(1.0);
        let computed = if operator.kind.is_product() { tiled(rows) / rows } else { 1.0 };
        let chip = &self.deployment.accelerator;
        let bandwidth = chip.bandwidth_bytes_per_s.0;
        let limits = |flops| [flops / operator.rate.0, bytes / bandwidth];
        let kernel = match &operator.form {
            Form::Context(form) if decodes => Kernel {
                group: form.group as f64,
                context: batch.groups.first().map_or(0.0, |g| g.context as f64),
                pairs: batch.tokens() as f64 * (form.heads as f64 / form.group as f64).max(1.0),
                narrow: form.narrow,
                ..Kernel::new(part, chip, limits(demand.flops), time_us / 1e3)
            },
            Form::Context(form) => {
                let [computing, moving] = limits(demand.flops + form.tiles(&batch.groups, 0.0));
                let passed = form.row_bytes(&batch.groups) / bandwidth;
                let kernel = Kernel::new(part, chip, [computing, moving + passed], time_us / 1e3);
                let [tail, _] = limits(form.tiles(&batch.groups, 1.0) - form.tiles(&batch.groups, 0.0));
                Kernel { head_dim: form.head_dim, passed, tail, ..kernel }
            }
            Form::Product { matrix, .. } => {
                let Matrix { elements, outputs, .. } = *matrix;
                let depth = elements / outputs.max(1.0);
                Kernel {
                    waves: waves(rows, outputs, chip.multiprocessors),
                    passed: rows * outputs * 2.0 / bandwidth,
                    inputs: rows * depth * 2.0 / bandwidth,
                    depth,
                    ..Kernel::new(part, chip, limits(computed * demand.flops), time_us / 1e3)
                }
            }
            _ => return None,
        };
        let weights = (part == Part::Gemm).then(|| self.deployment.weights.clone());
        Some(Kernel { weights, ..kernel }).filter(|_| counts)
    }
}
