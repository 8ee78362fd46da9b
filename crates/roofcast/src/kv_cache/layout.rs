//! How a request's tokens lie in memory, and what an attention kernel reads to find them.
//!
//! Knows: vLLM hands kernels a table with a row of block numbers a sequence, FlashInfer the rows in use one after another
//! with a pointer to each; vAttention and single pieces need neither, and vAttention's pages are of memory, not of tokens.
//! Lengths, which every kernel gets, are not counted. Knows nothing about who holds what, or when.
//!
//! Sources: vLLM 0.11 `v1/worker/block_table.py` (rows of `cdiv(max_model_len, block_size)` 32-bit numbers, of which those
//! of running requests are copied to the device with every step); FlashInfer (MLSys 2025, arXiv 2501.01005), whose
//! `plan` takes 32-bit `indptr` and `indices`; vAttention (ASPLOS 2025, arXiv 2405.04437): each layer's keys and values
//! grow in pages of 2 MiB a request.

use crate::deployment::Deployment;
use crate::error::{Error, Result};
use crate::model::Mixer;
use crate::spec::KvLayout;
use crate::units::Bytes;

/// Bytes of a block's number or a pointer.
const ENTRY: u128 = 4;
/// A page of device memory, as CUDA's driver hands them out.
const PAGE: u64 = 2 << 20;

/// Blocks of `block` tokens in which the last `seen` of `context` tokens lie.
pub fn span(seen: u64, context: u64, block: u64) -> u64 {
    context.div_ceil(block) - context.saturating_sub(seen) / block
}

impl KvLayout {
    /// Bytes that a layer's kernel reads to find `blocks` blocks of `sequences`; the end of FlashInfer's last list, 4
    /// bytes a step, is left out.
    pub fn read(self, sequences: u128, blocks: u128) -> u128 {
        ENTRY
            * match self {
                KvLayout::Paged => blocks,
                KvLayout::Flashinfer => blocks + sequences,
                KvLayout::Vattention | KvLayout::Contiguous => 0,
            }
    }

    /// Bytes that the host sends to the device for the same, where a sequence has at most `longest` blocks.
    pub fn sent(self, sequences: u128, blocks: u128, longest: u128) -> u128 {
        match self {
            KvLayout::Paged => ENTRY * sequences * longest,
            other => other.read(sequences, blocks),
        }
    }
}

/// Tokens of one layer's keys that a page of memory holds on a rank: the block of vAttention's cache, since all layers'
/// keys and values grow by a page at the same token.
pub fn page_tokens(deployment: &Deployment) -> Result<u64> {
    let refused = |field, found: String, accepted| Err(Error::field("engine", field, found, accepted));
    if deployment.accelerator.vendor != "nvidia" {
        let accepted = "paged: vattention needs the virtual memory of CUDA's driver";
        return refused("kv_layout", format!("vattention on {}", deployment.accelerator.id), accepted);
    }
    if deployment.options.engine.speculative.is_some() {
        let accepted =
            "paged or flashinfer: drafts stand in the model's blocks, and pages of two models differ";
        return refused("kv_layout", "vattention with drafts".to_owned(), accepted);
    }
    if let Some(size) = deployment.options.engine.block_size {
        let accepted = "left out: vattention's blocks are pages of 2 MiB";
        return refused("block_size", size.to_string(), accepted);
    }
    let mixers = deployment.stages.iter().flat_map(|s| s.blocks.iter().map(|(block, _)| &block.mixer));
    let mut sizes = mixers.map(|mixer| token_bytes(deployment, mixer));
    let first = sizes.next().flatten();
    match first.filter(|size| sizes.all(|other| other == Some(*size)) && PAGE.is_multiple_of(size.0)) {
        Some(size) => Ok(PAGE / size.0),
        None => {
            let accepted = "paged: vattention needs layers that keep the same keys and values of every token, of bytes \
                            that divide 2 MiB";
            refused("kv_layout", format!("vattention for {}", deployment.model.name), accepted)
        }
    }
}

/// Bytes of one token's keys, and of its values, in one layer of a rank; none where they are not alike.
fn token_bytes(deployment: &Deployment, mixer: &Mixer) -> Option<Bytes> {
    let Mixer::Attention(a) = mixer else { return None };
    let plain = a.window.is_none() && a.chunk.is_none() && a.index.is_none() && !a.shared_kv;
    if !plain || a.head_dim != a.v_head_dim {
        return None;
    }
    let elements = u128::from(a.kv_heads * a.head_dim).div_ceil(u128::from(deployment.kv_parts(a.kv_heads)));
    Some(deployment.kv.width.bytes(elements)).filter(|bytes| *bytes > Bytes::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_by_hand() {
        use KvLayout::*;
        // 1000 tokens fill 62 blocks of 16 and half of another. The last 128 of them are tokens 872 to 999, in blocks 54
        // to 62; the last 128 of 1008 are 880 to 1007, in blocks 55 to 62.
        assert_eq!([span(1000, 1000, 16), span(128, 1000, 16), span(128, 1008, 16)], [63, 9, 8]);
        // Two sequences of 63 and 10 blocks: 73 numbers of 4 bytes, and two pointers.
        let all = [Paged, Flashinfer, Vattention, Contiguous];
        assert_eq!(all.map(|layout| layout.read(2, 73)), [292, 300, 0, 0]);
        // Rows for 131,072 tokens have 8192 numbers each.
        assert_eq!(all.map(|layout| layout.sent(2, 73, 8192)), [65_536, 300, 0, 0]);
    }
}
