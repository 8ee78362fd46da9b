//! Blocks of DeepSeek-V4 in vLLM: pages of different bytes, packed side by side in blocks of one pool.
//!
//! Knows: a layer has pages for its window and, if it compresses, for its entries, its compressor's states and its
//! indexer's keys and states. Pages of one retention and block size form a bucket; buckets with more layers than
//! others are split, so that all groups fill blocks of equal bytes. A compressor keeps one state per token of its
//! window, so that tokens in flight occupy far more than tokens that are done. Knows nothing about other mixers.
//!
//! Sources: `models/deepseek_v4` (`attention.py`, `compressor.py`), `v1/attention/backends/mla/sparse_swa.py`;
//! `_get_kv_cache_groups_uniform_groups` and `_get_kv_cache_config_deepseek_v4` of `v1/core/kv_cache_utils.py` in vLLM
//! 0.22 to 0.28; `_get_packed_kv_cache_groups` of the same file in 0.30, of `v1/core/kv_cache_planning.py` in 0.33.

use super::{Kept, RetentionClass, mixers};
use roofcast_ask::deployment::Deployment;
use roofcast_facts::model::Mixer;
use roofcast_facts::model::mixer::{Compressed, Indexer};
use roofcast_facts::units::Bytes;
use std::collections::BTreeMap;

/// First version that packs a group's pages as they are; before, pages of windows and states are padded to pages of
/// entries, and each group has room for a page of every size. 0.28 pads, 0.29 was not read.
const PACKED: &str = "0.30.0";

/// Tokens of a block of entries and of index keys, the only size of the attention kernels.
const ENTRY_TOKENS: u64 = 256;
/// Tokens of a block of a window.
const WINDOW_TOKENS: u64 = 64;
/// Bytes of a cached vector in 8 bits: 448 values in fp8, 64 rotated ones in bf16, 8 bytes of scales.
const VECTOR: u64 = 584;
/// Multiple to which pages of such vectors, and pages beside them, are padded.
const VECTOR_ALIGNMENT: u64 = 576;
/// Multiple of pages if vectors are in 16 bits.
const PLAIN_ALIGNMENT: u64 = 512;
/// Bytes of a value of a compressor's state.
const STATE_VALUE: u64 = 4;

/// Pages with equal retention and tokens per block: the number of layers by bytes of a page.
#[derive(Debug, Clone)]
struct Bucket {
    kept: Kept,
    tokens: u64,
    pages: BTreeMap<u64, u64>,
}

impl Bucket {
    /// Number of layers with pages of the most frequent size.
    fn layers(&self) -> u64 {
        self.pages.values().copied().max().unwrap_or(0)
    }

    /// True if equally many layers have pages of each size.
    fn is_balanced(&self) -> bool {
        self.pages.values().all(|layers| *layers == self.layers())
    }

    /// Bytes of the pages of the largest of `groups` groups.
    fn widest(&self, groups: u64) -> u64 {
        self.pages.iter().map(|(page, layers)| page * layers.div_ceil(groups)).sum()
    }
}

/// Bytes of a block, and the groups, of a stage whose layers all attend to compressed entries; `None` for other
/// stages.
pub(super) fn pool(deployment: &Deployment, stage: usize) -> Option<(Bytes, Vec<RetentionClass>)> {
    let buckets = buckets(deployment, stage)?;
    let packed = deployment.engine.is_since(PACKED);
    let (block, groups) = if packed { as_they_are(&buckets) } else { padded(&buckets) };
    let class = |(bucket, groups): (&Bucket, u64)| RetentionClass {
        kept: bucket.kept,
        groups,
        tokens: bucket.tokens,
    };
    Some((Bytes(block), buckets.iter().zip(groups).map(class).collect()))
}

/// Buckets of a stage; the bucket of entries is the first.
fn buckets(deployment: &Deployment, stage: usize) -> Option<Vec<Bucket>> {
    let mut buckets: BTreeMap<(Kept, u64), BTreeMap<u64, u64>> = BTreeMap::new();
    let plain = deployment.kv.width.as_f64() > 8.0;
    for (mixer, layers) in mixers(deployment, stage)? {
        let Mixer::Compressed(layer) = mixer else { return None };
        for (kept, tokens, page) in pages(layer, plain) {
            *buckets.entry((kept, tokens)).or_default().entry(page).or_default() += layers;
        }
    }
    let bucket = |((kept, tokens), pages)| Bucket { kept, tokens, pages };
    let buckets: Vec<Bucket> = buckets.into_iter().map(bucket).collect();
    buckets.first().is_some_and(|bucket| bucket.kept == Kept::All).then_some(buckets)
}

/// Retention, tokens per block and bytes of each of a layer's pages; with vectors in 16 bits if `plain`.
fn pages(layer: &Compressed, plain: bool) -> Vec<(Kept, u64, u64)> {
    let (vector, alignment) =
        if plain { (2 * layer.head_dim, PLAIN_ALIGNMENT) } else { (VECTOR, VECTOR_ALIGNMENT) };
    let page = |bytes: u64| bytes.next_multiple_of(alignment);
    let mut pages = vec![(Kept::Window(layer.window), WINDOW_TOKENS, page(WINDOW_TOKENS * vector))];
    let Some(ratio) = layer.ratio else { return pages };
    let entries = (ENTRY_TOKENS / ratio).max(1);
    // Values and scores; windows of a sparse layer's compressor overlap by half.
    let overlap = if layer.indexer.is_some() { 2 } else { 1 };
    let retention = Kept::Window(overlap * ratio);
    let tokens = if layer.indexer.is_some() { 4 } else { 8 };
    let state = |width: u64| page(tokens * 2 * overlap * width * STATE_VALUE);
    pages.push((Kept::All, ENTRY_TOKENS, page(entries * vector)));
    pages.push((retention, tokens, state(layer.head_dim)));
    if let Some(indexer) = &layer.indexer {
        pages.push((Kept::All, ENTRY_TOKENS, page(entries * Indexer::key_bytes(indexer.width()))));
        pages.push((retention, tokens, state(indexer.width())));
    }
    pages
}

/// Bytes of a block with a page of every size of entries for each layer of a group, and the number of groups of each
/// bucket.
fn padded(buckets: &[Bucket]) -> (u64, Vec<u64>) {
    let counts: Vec<u64> = buckets.iter().map(Bucket::layers).collect();
    let smallest = counts.first().copied().unwrap_or(1);
    let size = group_size(&counts, smallest);
    let groups: Vec<u64> = counts.iter().map(|layers| layers.div_ceil(size)).collect();
    let deepest = counts.iter().zip(&groups).map(|(layers, groups)| layers.div_ceil(*groups)).max();
    let sizes: u64 = buckets.first().map_or(0, |entries| entries.pages.keys().sum());
    (sizes * deepest.unwrap_or(1), groups)
}

/// Bytes of the largest group's pages, and the number of groups of each bucket.
fn as_they_are(buckets: &[Bucket]) -> (u64, Vec<u64>) {
    let balanced = || buckets.iter().filter(|bucket| bucket.is_balanced());
    let counts: Vec<u64> = balanced().map(Bucket::layers).collect();
    let size = balanced()
        .filter(|bucket| bucket.pages.len() > 1)
        .map(Bucket::layers)
        .max()
        .map(|least| group_size(&counts, least));
    let anchor = buckets.iter().map(|bucket| match (bucket.kept, size) {
        (Kept::Window(_), None) => bucket.widest(bucket.pages.values().sum()),
        (_, Some(size)) if bucket.is_balanced() => bucket.widest(bucket.layers().div_ceil(size)),
        _ => bucket.widest(1),
    });
    let anchor = anchor.max().unwrap_or(0);
    let groups = buckets.iter().map(|bucket| match (bucket.kept, size) {
        (Kept::Window(_), None) => {
            let page = bucket.pages.keys().next().copied().unwrap_or(1);
            bucket.pages.values().sum::<u64>().div_ceil((anchor / page).max(1))
        }
        (_, Some(size)) if bucket.is_balanced() => bucket.layers().div_ceil(size),
        _ => 1,
    });
    let groups: Vec<u64> = groups.collect();
    let block = buckets.iter().zip(&groups).map(|(bucket, groups)| bucket.widest(*groups)).max();
    (block.unwrap_or(0), groups)
}

/// Number of layers in each group, at least `least`, with which the fewest layers are padded; the larger of equals.
fn group_size(counts: &[u64], least: u64) -> u64 {
    let padding = |size: u64| counts.iter().map(|layers| layers.next_multiple_of(size) - layers).sum::<u64>();
    let largest = counts.iter().copied().max().unwrap_or(1);
    (least.max(1)..=largest).rev().min_by_key(|size| padding(*size)).unwrap_or(least.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DeepSeek-V4-Flash's layers: 2 with the window alone, 21 sparse, 20 heavily compressed.
    fn flash() -> Vec<Bucket> {
        let bucket = |kept, tokens, pages: &[(u64, u64)]| Bucket {
            kept,
            tokens,
            pages: pages.iter().copied().collect(),
        };
        vec![
            bucket(Kept::All, 256, &[(37_440, 21), (8640, 21), (1728, 20)]),
            bucket(Kept::Window(8), 4, &[(32_832, 21), (8640, 21)]),
            bucket(Kept::Window(128), 8, &[(32_832, 20)]),
            bucket(Kept::Window(128), 64, &[(37_440, 43)]),
        ]
    }

    /// Groups of 22 layers pad the fewest: 1 of 21, 2 of 20, 1 of 43 in two groups. A padded block has 22 pages of
    /// each of three sizes, a packed one as many bytes as entries and keys.
    #[test]
    fn groups_by_hand() {
        assert_eq!(group_size(&[21, 21, 20, 43], 21), 22);
        assert_eq!(padded(&flash()), (22 * (37_440 + 8640 + 1728), vec![1, 1, 1, 2]));
        assert_eq!(as_they_are(&flash()), (21 * (37_440 + 8640) + 20 * 1728, vec![1, 1, 1, 2]));
    }
}
