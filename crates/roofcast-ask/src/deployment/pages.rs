//! The pages of device memory that vAttention allocates, in tokens.
//!
//! Knows: the bytes of a page, and the bytes of a token on a rank. Knows nothing about requests.

use super::Deployment;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Mixer;
use roofcast_facts::units::Bytes;

/// Bytes of a page of device memory: the allocation unit of CUDA's driver.
const PAGE: u64 = 2 << 20;

/// Tokens of one layer's keys that fill a page of memory on a rank. It is the block size of vAttention's cache,
/// because the keys and values of all layers need their next page at one token.
pub(super) fn page_tokens(deployment: &Deployment) -> Result<u64> {
    let refused = |field, found: String, accepted| Err(Error::field("engine", field, found, accepted));
    if deployment.accelerator.vendor != "nvidia" {
        let accepted = "paged: vattention needs the virtual memory of CUDA's driver";
        return refused("kv_layout", format!("vattention on {}", deployment.accelerator.id), accepted);
    }
    if deployment.engine.speculative.is_some() {
        let accepted =
            "paged or flashinfer: drafts are in the model's blocks, and pages of two models differ";
        return refused("kv_layout", "vattention with drafts".to_owned(), accepted);
    }
    if let Some(size) = deployment.engine.requested.block_size {
        let accepted = "omitted: vattention's blocks are pages of 2 MiB";
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

/// Bytes of one token's keys in one layer of a rank; `None` if values differ from keys in size.
fn token_bytes(deployment: &Deployment, mixer: &Mixer) -> Option<Bytes> {
    let Mixer::Attention(a) = mixer else { return None };
    let plain = a.window.is_none() && a.chunk.is_none() && a.index.is_none() && !a.shared_kv;
    if !plain || a.head_dim != a.v_head_dim {
        return None;
    }
    let elements = u128::from(a.kv_heads * a.head_dim).div_ceil(u128::from(deployment.kv_parts(a.kv_heads)));
    Some(deployment.kv.width.bytes(elements)).filter(|bytes| *bytes > Bytes::ZERO)
}
