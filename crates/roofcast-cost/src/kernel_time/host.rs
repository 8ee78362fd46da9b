//! Times of operators whose weights or cache lie in the host's memory.
//!
//! Knows: llama.cpp's host computes a step of few rows itself, at its own rates, and from [`COPIED_FROM`] rows on the
//! operator's weights or cache are copied to the accelerator first, once for each micro-batch
//! (`GGML_OP_OFFLOAD_MIN_BATCH`, 32 in ggml b11549, `ggml-cuda.cu`); vLLM's kernels read pinned host memory over the
//! link, so that reads and arithmetic overlap; SGLang copies a layer's parameters, all experts included, before it computes the
//! layer, once a step (`_ModuleOffloader` of `python/sglang/srt/offloader.py`).
//! Knows nothing about which tensors lie there.

use super::formula::of_family;
use crate::coefficients::{Coefficients, KernelTimes};
use crate::memory;
use crate::operator::{Form, Operator, Work};
use roofcast_ask::deployment::Deployment;
use roofcast_ask::spec::EngineKind;
use roofcast_facts::units::number;

/// Rows from which on llama.cpp copies to the accelerator.
const COPIED_FROM: u64 = 32;
/// Tokens that choose every expert.
const EVERY_EXPERT: u64 = 1 << 30;
/// FLOPs of a host's processor for each byte of its memory's bandwidth: 16 cores of a Ryzen 9 7950X at 4.5 GHz with 32
/// operations a cycle, over 83.2 GB/s
/// (www.amd.com/en/products/processors/desktops/ryzen/7000-series/amd-ryzen-9-7950x.html).
const FLOPS_PER_BYTE: f64 = 16.0 * 4.5e9 * 32.0 / 83.2e9;

/// Time of one operator on the host, or with reads over the host's link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostTime {
    /// Seconds per byte over the link.
    link: f64,
    /// True if arithmetic waits for the copies.
    waits: bool,
    /// Bytes that each step copies, whatever it reads; `None` for the bytes that it reads.
    whole: Option<f64>,
    /// Rows of a micro-batch, for each of which everything is copied anew.
    micro_batch: u64,
    /// Seconds per FLOP and per byte on the host, and the smallest number of rows that it does not compute; `None` if
    /// the accelerator computes all.
    host: Option<([f64; 2], u64)>,
}

impl HostTime {
    /// The times of `operator`; `None` if its weights and cache are on the accelerator.
    pub(super) fn of(
        deployment: &Deployment,
        coefficients: &Coefficients,
        operator: &Operator,
    ) -> Option<HostTime> {
        if !operator.on_host {
            return None;
        }
        let [nominal, reached] = memory::host_link(deployment).map(|rate| rate.0);
        let family = operator.kind.family();
        let (link, [compute, memory], forecast) = match &coefficients.kernels {
            KernelTimes::Ideal { mfu, mbu } => (nominal * mbu, [*mfu, *mbu], false),
            KernelTimes::Measured { host, .. } => (reached, of_family(host, family), true),
        };
        let factor = coefficients.factor;
        let bandwidth = deployment.host_bandwidth.0;
        let copies_cache = deployment.requested_engine().llama_cpp.no_kv_offload != Some(true);
        let copies = copies_cache || !matches!(operator.form, Form::Context(_));
        let rates = [factor / (bandwidth * FLOPS_PER_BYTE * compute), factor / (bandwidth * memory)];
        let llama_cpp = deployment.engine.kind() == EngineKind::LlamaCpp;
        let sglang = deployment.engine.kind() == EngineKind::Sglang;
        Some(HostTime {
            link: factor / link,
            waits: (llama_cpp || sglang) && forecast,
            whole: if sglang { whole(&operator.form) } else { None },
            micro_batch: if llama_cpp { deployment.engine.slots.n_ubatch } else { u64::MAX },
            host: llama_cpp.then_some((rates, if copies { COPIED_FROM } else { u64::MAX })),
        })
    }

    /// Compute-bound and memory-bound seconds of `work` on `rows` rows, which takes `near` with all its bytes in the
    /// accelerator's memory.
    pub(crate) fn time(&self, work: Work, rows: u64, near: [f64; 2]) -> [f64; 2] {
        let bytes = self.whole.unwrap_or(work.weight_bytes + work.kv_bytes);
        let copying = bytes * number(rows.div_ceil(self.micro_batch)) * self.link;
        match self.host {
            Some(([flop, byte], first)) if rows < first => {
                let [computing, moving] = [work.flops * flop, bytes * byte];
                if computing > moving { [computing, 0.0] } else { [0.0, moving] }
            }
            _ if self.waits => [near[0], near[1] + copying],
            _ if copying > near[0] + near[1] => [0.0, copying],
            _ => near,
        }
    }
}

/// Bytes of all weights of an operator in one layer; `None` without a matrix.
fn whole(form: &Form) -> Option<f64> {
    match form {
        Form::Product { matrix, .. } => Some(matrix.weight_bytes),
        Form::Experts(experts) => Some(experts.demand(EVERY_EXPERT).weight_bytes),
        Form::Context(_) | Form::Lookup { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work { flops: 2e9, weight_bytes: 1e9, kv_bytes: 0.0 };

    /// 1 GB from memory of 50 GB/s takes 20 ms, and 2 GFLOP at 1 TFLOP/s 2 ms. From 32 rows on a copy at 25 GB/s takes 40
    /// ms, and 1024 rows are two micro-batches: 80 ms before the accelerator's 5 ms.
    #[test]
    fn few_rows_are_computed_by_the_host() {
        let host = HostTime {
            link: 1.0 / 25e9,
            waits: true,
            whole: None,
            micro_batch: 512,
            host: Some(([1e-12, 1.0 / 50e9], COPIED_FROM)),
        };
        assert_eq!(host.time(WORK, 31, [0.0, 5e-3]), [0.0, 0.02]);
        assert_eq!(host.time(Work { flops: 5e11, ..WORK }, 31, [0.0, 5e-3]), [0.5, 0.0]);
        assert_eq!(host.time(WORK, 32, [5e-3, 0.0]), [5e-3, 0.04]);
        assert_eq!(host.time(WORK, 1024, [5e-3, 0.0]), [5e-3, 0.08]);
        // The cache of `-nkvo` stays where it is.
        let stays = HostTime { host: Some(([1e-12, 1.0 / 50e9], u64::MAX)), ..host };
        assert_eq!(stays.time(WORK, 1024, [5e-3, 0.0]), [0.0, 0.02]);
    }

    /// Reads over a link of 25 GB/s take 40 ms, whatever the rows, and hide arithmetic that takes less.
    #[test]
    fn reads_over_the_link_overlap_with_arithmetic() {
        let host =
            HostTime { link: 1.0 / 25e9, waits: false, whole: None, micro_batch: u64::MAX, host: None };
        assert_eq!(host.time(WORK, 1, [0.0, 1e-3]), [0.0, 0.04]);
        assert_eq!(host.time(WORK, 1 << 20, [0.05, 0.0]), [0.05, 0.0]);
    }

    /// SGLang copies the 4 GB of all experts, of which a step reads one: 160 ms at 25 GB/s before the accelerator's 5.
    #[test]
    fn whole_layers_are_copied_before_they_compute() {
        let host =
            HostTime { link: 1.0 / 25e9, waits: true, whole: Some(4e9), micro_batch: u64::MAX, host: None };
        assert_eq!(host.time(WORK, 1, [5e-3, 0.0]), [5e-3, 0.16]);
    }
}
