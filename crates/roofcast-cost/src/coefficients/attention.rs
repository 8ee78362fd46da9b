//! HBM traffic of a decode's attention, as a multiple of one read of its KV cache, by attention backend.
//!
//! Knows: the thread blocks that a backend starts for a batch, and its intermediate writes and reads. Knows nothing
//! about the bandwidth that a full chip reaches.

use crate::operator::ContextForm;
use roofcast_ask::engine_settings::EngineSettings;
use roofcast_ask::spec::{AttentionBackend, EngineKind};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::batch::Sequences;

/// Bytes of HBM traffic per attention score: written by the first GEMM, read and written by softmax, read by the
/// second GEMM; four passes over 16-bit values.
const SCORE_BYTES: f64 = 4.0 * 2.0;

/// Requested attention backend on a chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttentionKernel {
    backend: AttentionBackend,
    /// Number of streaming multiprocessors; a deployment whose backend needs the number is refused if it is unknown.
    multiprocessors: f64,
    /// True if each step rewrites the whole cache: transformers' `DynamicCache` joins old and new keys by
    /// `torch.cat`.
    concatenates: bool,
}

impl AttentionKernel {
    /// Returns the backend that `engine` requests; `None` if none is requested, or if it is Flash-Decoding, which
    /// splits contexts exactly as the measured kernels do.
    pub(crate) fn of(engine: &EngineSettings, chip: &Accelerator) -> Option<AttentionKernel> {
        let backend = engine.attention_backend.filter(|b| *b != AttentionBackend::FlashDecoding)?;
        Some(AttentionKernel {
            backend,
            multiprocessors: chip.flash_multiprocessors().map_or(1.0, |n| n as f64),
            concatenates: backend == AttentionBackend::Naive && engine.kind() == EngineKind::Transformers,
        })
    }

    /// HBM traffic of the KV cache that `form` reads, as a multiple of one read at full bandwidth, in a decode of
    /// `sequences` sequences.
    ///
    /// One thread block per sequence and query head reads the head's keys separately, so that the cache is read
    /// `group` times, and a chip of S multiprocessors runs blocks in whole waves: the efficiency of bandwidth is
    /// `blocks / (⌈blocks/S⌉ S)`. Naive attention instead expands the keys of a group to all its heads (written and
    /// read `group` times), and writes and reads scores.
    pub(crate) fn crossings(&self, form: &ContextForm, sequences: u64) -> f64 {
        let [heads, group] = form.shape.heads_and_group().map(|n| n as f64);
        match self.backend {
            AttentionBackend::FlashDecoding => 1.0,
            AttentionBackend::FlashAttention => group / self.occupancy(form, sequences),
            AttentionBackend::Naive => {
                let token = form.token_bytes();
                let scores = if token > 0.0 { SCORE_BYTES * heads / token } else { 0.0 };
                let expanded = if group > 1.0 { 2.0 * group } else { 0.0 };
                1.0 + expanded + scores + if self.concatenates { 2.0 } else { 0.0 }
            }
        }
    }

    /// Mean fraction of the chip's multiprocessors that are busy, averaged over all waves of thread blocks.
    pub(crate) fn occupancy(&self, form: &ContextForm, sequences: u64) -> f64 {
        let blocks = (sequences.max(1) * form.shape.heads_and_group()[0].max(1)) as f64;
        match self.backend {
            AttentionBackend::FlashAttention => {
                blocks / ((blocks / self.multiprocessors).ceil() * self.multiprocessors)
            }
            AttentionBackend::Naive | AttentionBackend::FlashDecoding => 1.0,
        }
    }

    /// Bytes of HBM traffic for the scores of prompt chunks: naive attention computes the score of every query with
    /// every token, including masked later tokens.
    pub(crate) fn score_bytes(&self, form: &ContextForm, chunks: &[Sequences]) -> f64 {
        if self.backend != AttentionBackend::Naive {
            return 0.0;
        }
        let pairs: f64 = chunks.iter().map(|c| (c.count * c.new) as f64 * c.context as f64).sum();
        SCORE_BYTES * form.shape.heads_and_group()[0] as f64 * pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{DecodeForm, KernelShape, Scores, SequenceForm, Work};

    fn kernel(backend: AttentionBackend, concatenates: bool) -> AttentionKernel {
        AttentionKernel { backend, multiprocessors: 108.0, concatenates }
    }

    /// 16 query heads over 2 key heads of 128 elements in 16 bits: 1024 bytes per token.
    fn form() -> ContextForm {
        let term = Work { flops: 0.0, weight_bytes: 0.0, kv_bytes: 1024.0 };
        ContextForm {
            sequence: SequenceForm::Scores(Scores { ratio: 1, flops_per_pair: 0.0, bytes_per_key: 1024.0 }),
            decode: DecodeForm { fixed: Work::default(), terms: vec![(u64::MAX, term)] },
            shape: KernelShape::Grouped { heads: 16, group: 8, head_dim: 128, window: 0 },
            narrow: false,
            weight_bytes: 0.0,
        }
    }

    /// Four sequences make 64 thread blocks on 108 multiprocessors; 16 sequences make 256 blocks in three waves.
    /// Every block separately reads the keys that 8 query heads share.
    #[test]
    fn one_block_a_sequence_and_head() {
        let flash = kernel(AttentionBackend::FlashAttention, false);
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
        near(flash.crossings(&form(), 4), 8.0 * 108.0 / 64.0);
        near(flash.crossings(&form(), 16), 8.0 * 324.0 / 256.0);
        near(kernel(AttentionBackend::FlashDecoding, false).crossings(&form(), 1), 1.0);
    }

    /// The cache is read once, expanded to 16 heads (8 times written, 8 times read), and 16 scores take 4 passes of 2
    /// bytes per 1024 bytes of cache; concatenation adds two more passes.
    #[test]
    fn naive_attention_writes_what_it_reads_again() {
        assert_eq!(kernel(AttentionBackend::Naive, false).crossings(&form(), 1), 1.0 + 16.0 + 0.125);
        assert_eq!(kernel(AttentionBackend::Naive, true).crossings(&form(), 1), 3.0 + 16.0 + 0.125);
        let chunks = [Sequences { count: 2, ..Sequences::prompt(10, 10, true) }];
        assert_eq!(kernel(AttentionBackend::Naive, false).score_bytes(&form(), &chunks), 8.0 * 16.0 * 200.0);
    }
}
