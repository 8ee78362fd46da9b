//! Layout of a request's tokens in memory, and the tables that an attention kernel reads to find them.
//!
//! Knows: vLLM passes kernels a table with one row of block numbers per sequence; FlashInfer gets only the used part
//! of each row, one after another, with a pointer to each. vAttention and contiguous pieces need no table, because
//! vAttention maps pages of memory, not of tokens. Sequence lengths, which every kernel reads, are not counted. Knows
//! nothing about which request holds which blocks, or when.
//!
//! Sources: vLLM 0.11 `v1/worker/block_table.py` (rows of `cdiv(max_model_len, block_size)` 32-bit numbers; the rows
//! of running requests are copied to the device with every step); FlashInfer (MLSys 2025, arXiv 2501.01005), whose
//! `plan` takes 32-bit `indptr` and `indices`; vAttention (ASPLOS 2025, arXiv 2405.04437): each layer's keys and
//! values grow in pages of 2 MiB a request.

use crate::spec::KvLayout;

/// Bytes of a block number or a pointer.
const ENTRY: u128 = 4;

/// Number of blocks of `block` tokens that contain the last `seen` of `context` tokens.
pub fn span(seen: u64, context: u64, block: u64) -> u64 {
    context.div_ceil(block) - context.saturating_sub(seen) / block
}

impl KvLayout {
    /// Table bytes that the kernel of one layer reads to find `blocks` blocks of `sequences` sequences; the end
    /// pointer of FlashInfer's last row, 4 bytes a step, is left out.
    pub fn read(self, sequences: u128, blocks: u128) -> u128 {
        ENTRY
            * match self {
                KvLayout::Paged => blocks,
                KvLayout::Flashinfer => blocks + sequences,
                KvLayout::Vattention | KvLayout::Contiguous => 0,
            }
    }

    /// Table bytes that the host sends to the device per step, if a sequence has at most `longest` blocks.
    pub fn sent(self, sequences: u128, blocks: u128, longest: u128) -> u128 {
        match self {
            KvLayout::Paged => ENTRY * sequences * longest,
            other => other.read(sequences, blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_by_hand() {
        use KvLayout::*;
        // 1000 tokens fill 62 blocks of 16 and half of another. Of 1000, the last 128 tokens are numbers 872 to 999,
        // in blocks 54 to 62; of 1008, they are 880 to 1007, in blocks 55 to 62.
        assert_eq!([span(1000, 1000, 16), span(128, 1000, 16), span(128, 1008, 16)], [63, 9, 8]);
        // Two sequences have 63 and 10 blocks: 73 numbers of 4 bytes, and two pointers for FlashInfer.
        let all = [Paged, Flashinfer, Vattention, Contiguous];
        assert_eq!(all.map(|layout| layout.read(2, 73)), [292, 300, 0, 0]);
        // vLLM's rows for 131,072 tokens have 8192 block numbers each.
        assert_eq!(all.map(|layout| layout.sent(2, 73, 8192)), [65_536, 300, 0, 0]);
    }
}
