//! Contents of a checkpoint's files, read from their headers alone: tensor names, shapes, types and true sizes.
//!
//! Knows: the headers of safetensors and GGUF, and how their tensors compare with a [`Model`]'s. Knows nothing about
//! files: callers pass readers, so that gigabytes of weights are never read. Every count in a header is checked
//! against a bound before memory is allocated.

pub mod compare;
pub mod gguf;
pub mod safetensors;

use crate::units::Bytes;

/// One tensor as stored in a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stored {
    /// Name in the file.
    pub(crate) name: String,
    /// Type in the file, in lower case: `bf16`, `q4_k`, …
    pub(crate) dtype: String,
    /// Dimensions, outermost first.
    pub(crate) shape: Vec<u64>,
    /// Number of values.
    pub(crate) elements: u64,
    /// Bytes of the values as stored.
    pub(crate) bytes: Bytes,
}

/// Most tensors accepted in a file, more than any checkpoint has.
const MOST_TENSORS: u64 = 1 << 20;
/// Most dimensions accepted of a tensor, more than any tensor has.
const MOST_DIMENSIONS: usize = 8;

/// The product of dimensions; `None` if it exceeds 64 bits.
fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |product, n| product.checked_mul(*n))
}

/// Totals of each type, as name, number of tensors, values and bytes; largest bytes first.
pub fn by_type(tensors: &[Stored]) -> Vec<(String, u64, u64, Bytes)> {
    let mut sums: std::collections::BTreeMap<&str, (u64, u64, Bytes)> = std::collections::BTreeMap::new();
    for tensor in tensors {
        let sum = sums.entry(&tensor.dtype).or_default();
        sum.0 += 1;
        sum.1 = sum.1.saturating_add(tensor.elements);
        sum.2 += tensor.bytes;
    }
    let mut list: Vec<_> =
        sums.into_iter().map(|(name, (n, elements, bytes))| (name.to_owned(), n, elements, bytes)).collect();
    list.sort_by(|a, b| b.3.cmp(&a.3).then(a.0.cmp(&b.0)));
    list
}
