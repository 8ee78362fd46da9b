//! The limit of a shape according to the chip's datasheet, which bounds and scales measured times.
//!
//! Knows: FLOPs over the peak rate and bytes over the bandwidth of each table's work. [`roofcast_cost::cost`] computes the
//! limits of models.

use super::names;
use super::reading::SectionKey;
use roofcast_cost::profile::KernelTable;
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::precision::Dtype;

/// Cached values per token of DeepSeek-V3's latent attention: the latent with its rotary part (`config.json` of
/// deepseek-ai/DeepSeek-V3).
const LATENT: f64 = 576.0;
const LATENT_VALUE: f64 = 512.0;
const EXPANDED: f64 = 192.0 + 128.0;

/// Fraction of the experts by [`touched`] that is taken as certainly read, because draws of few tokens scatter.
const TOUCHED: f64 = 0.8;

/// Limits of one section's shapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) table: KernelTable,
    /// Bandwidth of memory, or of a link, in bytes per second.
    bandwidth: f64,
    link: Option<f64>,
    /// Peak rate in FLOPs per second.
    peak: f64,
    /// Bytes per weight, or per cached value.
    bytes: f64,
    /// Number of matrices of an expert: 3, or 2 without a gate.
    matrices: f64,
}

impl Limit {
    /// Creates the limits of a section; `None` if the chip has no peak rate for its format.
    pub(super) fn of(place: &SectionKey, chip: &Accelerator) -> Option<Limit> {
        let table = place.table;
        let (dtype, bits) = match table {
            KernelTable::Gemm
            | KernelTable::Experts
            | KernelTable::MaskedExperts
            | KernelTable::SortedExperts => {
                let format = names::weights_named(&place.format)?;
                (format.dtype, format.bits)
            }
            _ => {
                let dtype = if place.kernel.ends_with("-fp8") { Dtype::Fp8 } else { Dtype::Bf16 };
                (dtype, names::cache(&place.format)?.1)
            }
        };
        let link = chip.link.as_ref().map(|link| link.bytes_per_s.0);
        let bandwidth = chip.bandwidth_bytes_per_s.0;
        let peak = chip.peak(dtype).ok()?.0;
        let matrices = if place.kernel.ends_with("nongated") { 2.0 } else { 3.0 };
        Some(Limit { table, bandwidth, link, peak, bytes: bits / 8.0, matrices })
    }

    /// Bytes per weight, or per cached value.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Limit in seconds of a shape at a size, and for decodes at a context.
    pub(super) fn seconds(&self, shape: &[u32], size: f64, context: f64) -> f64 {
        let axis = |at: usize| f64::from(shape.get(at).copied().unwrap_or(0));
        let both = |flops: f64, bytes: f64| (flops / self.peak).max(bytes / self.bandwidth);
        match self.table {
            KernelTable::Gemm => {
                let values = axis(0) * axis(1);
                both(2.0 * size * values, values * self.bytes)
            }
            KernelTable::Experts | KernelTable::MaskedExperts | KernelTable::SortedExperts => {
                let [hidden, inter, top_k, experts, tp, ep] = [0, 1, 2, 3, 4, 5].map(axis);
                let expert = self.matrices * hidden * inter / tp;
                let touched = TOUCHED * touched(size, top_k, experts) / ep;
                both(2.0 * size * top_k / ep * expert, touched * expert * self.bytes)
            }
            KernelTable::Decode => {
                let [heads, kv_heads, dim, window] = [0, 1, 2, 3].map(axis);
                let tokens = size * within(context, window);
                both(4.0 * heads * dim * tokens, 2.0 * kv_heads * dim * tokens * self.bytes)
            }
            KernelTable::Prefill => {
                let [heads, _, dim, window] = [0, 1, 2, 3].map(axis);
                let seen = within(size, window);
                both(4.0 * heads * dim * (size * seen - seen * seen / 2.0), 0.0)
            }
            KernelTable::LatentDecode => {
                let tokens = size * context;
                both(2.0 * axis(0) * (LATENT + LATENT_VALUE) * tokens, LATENT * tokens * self.bytes)
            }
            KernelTable::LatentPrefill => both(axis(0) * EXPANDED * size * size, 0.0),
            KernelTable::RecurrentDecode
            | KernelTable::RecurrentPrefill
            | KernelTable::Dispatch
            | KernelTable::Combine => 0.0,
            KernelTable::AllReduce => self.link.map_or(0.0, |link| size / link),
        }
    }
}

/// Number of tokens of a context that are within a window; a window of 0 means no window.
pub(super) fn within(context: f64, window: f64) -> f64 {
    if window > 0.0 { context.min(window) } else { context }
}

/// Expected number of experts of a layer that T tokens choose in tables with a power law of 1.01.
///
/// The loads of experts are drawn from 1 to 0.8 T (from 0.01 to 2 if the T k copies are at most the E experts),
/// scaled to a sum of T k, and rounded (aiconfigurator, `collector/helper.py`). Draws are uniform in the logarithm
/// over L = ln(high/low), so that E (1 − ln(x0)/L) experts are above the value that rounds to zero, with x0 = E (e^L
/// − 1)/(2 L T k). With fewer copies than experts the number is E (1 − (1 − k/E)^T).
fn touched(tokens: f64, top_k: f64, experts: f64) -> f64 {
    let copies = tokens * top_k;
    let span = libm::log(if copies > experts { 0.8 * tokens } else { 200.0 });
    if copies < experts || span <= 0.0 {
        return experts * (1.0 - libm::pow(1.0 - top_k / experts, tokens));
    }
    let rounds_to_none = experts * libm::expm1(span) / (2.0 * span * copies);
    (experts * (1.0 - libm::log(rounds_to_none) / span).clamp(0.0, 1.0)).min(copies)
}
