//! How kernels and hosts depart from shares of a rate: tiles, small M, one kernel for two kinds of work, uneven routing,
//! waiting for each other.
//!
//! Knows: constants read off profiles and kernel tables, whose sources are beside them. Knows nothing about deployments.

use crate::accelerator::Accelerator;
use crate::model::largest_deviate;
use crate::operator::Matrix;

/// Rows that products of many are computed in at a time; vLLM's profiles on RTX 4090 and RTX PRO 6000 climb in such steps.
const TILE: f64 = 64.0;

/// The rows that a product of `rows` computes: whole tiles, where it is more than one.
pub fn tiled(rows: f64) -> f64 {
    if rows > TILE { (rows / TILE).ceil() * TILE } else { rows }
}

/// Weights or caches smaller than this may stay in a chip's L2, however large that is: 126 MB on B200, filled by up to five
/// copies that benchmarks rotate.
pub const BEYOND_CACHES: f64 = 64e6;

/// Rows and columns of the tiles that multiprocessors compute of a product.
const PRODUCT_TILE: f64 = 128.0;

/// How many times longer a product of `rows` and `outputs` takes where each of `multiprocessors` has its part of the chip's
/// rates and no more: whole waves of tiles over their number. 1 where the multiprocessors are not known.
pub fn waves(rows: f64, outputs: f64, multiprocessors: Option<u64>) -> f64 {
    let Some(at_once) = multiprocessors.filter(|count| *count > 0) else { return 1.0 };
    let waves = (rows / PRODUCT_TILE).ceil() * (outputs / PRODUCT_TILE).ceil() / at_once as f64;
    if waves > 0.0 { waves.ceil() / waves } else { 1.0 }
}

/// How a product's tiles fill the chip: see [`waves`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Tiles at once.
    pub multiprocessors: u64,
    /// How many times longer waves may be than tiles before computing is, and before reading is.
    pub hidden: [f64; 2],
}

impl Spread {
    /// How many times longer computing and reading of a product of `rows` are. Few tiles were timed in matrices beyond caches;
    /// in smaller ones launches hide them, which layers hold, or kernels split the sums of a tile.
    pub(super) fn longer(&self, rows: f64, matrix: &Matrix) -> [f64; 2] {
        if matrix.weight_bytes <= BEYOND_CACHES {
            return [1.0; 2];
        }
        let waves = waves(rows, matrix.outputs, Some(self.multiprocessors));
        self.hidden.map(|hidden| (waves / hidden.max(1.0)).max(1.0))
    }
}

/// What small-M GEMMs cost beyond their share of large ones: tiles that they do not fill, kernels that trade arithmetic
/// for streaming weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmallM {
    /// Rows of a large product that each row beyond the first costs on top of itself.
    pub each: f64,
    /// Rows' worth that this comes to at most.
    pub most: f64,
}

impl SmallM {
    /// Every row costs the same.
    pub const NONE: SmallM = SmallM { each: 0.0, most: 0.0 };

    /// How many rows of a large product take as long to compute as `rows` alone. A single row has a kernel of its own.
    pub fn worth(self, rows: f64) -> f64 {
        rows + (self.each * (rows - 1.0)).clamp(0.0, self.most)
    }
}

/// Tokens of context that starting a decode's tiles is worth beside prompts, and skipping the empty ones that it has for
/// each token of the longest piece of a prompt. Both from profiles of vLLM's FlashAttention 2 on RTX 4090 and RTX PRO 6000.
const STARTED: f64 = 100.0;
const SKIPPED: f64 = 0.2;

/// Queries of a tile.
const QUERIES: f64 = 128.0;

/// Queries whose keys all multiprocessors of `chip` could compute beside the last tile of queries; none where their number is
/// not known.
pub fn last_tiles(chip: &Accelerator) -> f64 {
    QUERIES * chip.flash_multiprocessors().unwrap_or(0) as f64
}

/// Keys of a tile: queries of prompts are computed in tiles of 128 with tiles of about as many keys (FlashAttention 2 and
/// 3, `tile_size.h`), masked where a query does not see them.
const KEYS: f64 = 128.0;

/// Masked keys that a prompt's query computes in the mean: half a tile at the diagonal, and a tile more where a window ends.
/// With windows of 128 vLLM's kernels take what 128 (FlashAttention 2) to 230 such keys come to (tables of 0.24).
pub fn masked_keys(windowed: bool) -> f64 {
    if windowed { 1.5 * KEYS } else { KEYS / 2.0 }
}

/// Keys that a decode reads at a time on `chip`: FlashAttention 3 and TensorRT-LLM's kernels work on 128, those of other
/// generations on 64 (`tile_size.h`; times of kernels of 8 to 256 keys).
pub fn key_tile(chip: &Accelerator) -> f64 {
    if matches!(chip.architecture.as_str(), "hopper" | "blackwell") { KEYS } else { KEYS / 2.0 }
}

/// How far traffic's routing is from even: the standard deviation of an expert's tokens over their mean. [`skew`] has it of
/// 64 tokens.
pub const SKEW: f64 = 1.0;

/// The same in tables of kernels, which take for traffic's a power law of 1.01 from 1 to x, x = 0.8 times the tokens: its
/// square is ln(x)/2 · (x + 1)/(x − 1) − 1.
pub fn skew(tokens: f64) -> f64 {
    let most = (0.8 * tokens).max(1.01);
    (most.ln() / 2.0 * (most + 1.0) / (most - 1.0) - 1.0).max(0.0).sqrt()
}

/// The busiest rank's part of the tokens over the mean, where `ranks` share `experts`: 1 + skew √(ranks/experts) z, with the
/// largest deviate z of so many ranks.
pub fn busiest(experts: u64, ranks: u64, skew: f64) -> f64 {
    if ranks < 2 {
        return 1.0;
    }
    let n = ranks as f64;
    (1.0 + skew * (n / experts.max(1) as f64).sqrt() * largest_deviate(ranks)).min(n)
}

/// Tokens of context that each decode's attention costs more in a kernel that works on prompts, too.
pub fn mixed_tokens(longest_chunk: u64) -> f64 {
    STARTED + SKIPPED * longest_chunk as f64
}

/// How sharply the longer of device and host hides the shorter: each waits for the other now and then, so that both near
/// each other take longer than either.
const SHARP: f64 = 3.0;

/// What the device's time grows by where the host's launches go on beside it.
pub fn waiting(device: f64, launches: f64) -> f64 {
    if launches == 0.0 {
        return 0.0;
    }
    (device.powf(SHARP) + launches.powf(SHARP)).powf(1.0 / SHARP) - device
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row beyond the first costs 3 more, 10 at most: 1, 2 + 3, 4 + 9, 8 + 10.
    #[test]
    fn a_small_m_gemm_costs_more_than_its_share() {
        let small_m = SmallM { each: 3.0, most: 10.0 };
        assert_eq!(
            [1.0, 2.0, 4.0, 8.0, 512.0].map(|rows| small_m.worth(rows)),
            [1.0, 5.0, 13.0, 18.0, 522.0]
        );
        assert_eq!(SmallM::NONE.worth(7.0), 7.0);
    }

    /// ln(51.2)/2 · 52.2/50.2 − 1 = 1.0463 of 64 tokens, and its root is near SKEW. One rank has all; of 8 with 256 experts
    /// the busiest has 1 + √(8/256) · 0.61 · 3^0.75 = 1.2458 times the mean, never more than all.
    #[test]
    fn routing_is_uneven() {
        assert!((skew(64.0) - 1.0463f64.sqrt()).abs() < 1e-4 && skew(1.0) < 0.01);
        assert_eq!(busiest(256, 1, SKEW), 1.0);
        assert!((busiest(256, 8, SKEW) - 1.2458).abs() < 1e-4);
        assert_eq!(busiest(2, 2, 100.0), 2.0);
    }

    /// One row is one; 65 are two tiles of 64; 300 are five.
    #[test]
    fn many_rows_are_computed_in_whole_tiles() {
        assert_eq!([1.0, 64.0, 65.0, 256.0, 300.0].map(tiled), [1.0, 64.0, 128.0, 256.0, 320.0]);
    }

    /// A host without launches delays nothing; the cube root of 1 + 1 is 1.26; far apart the longer counts.
    #[test]
    fn host_and_device_wait_for_each_other_where_they_are_near() {
        assert_eq!(waiting(3.0, 0.0), 0.0);
        assert!((waiting(1.0, 1.0) - (2.0_f64.powf(1.0 / 3.0) - 1.0)).abs() < 1e-12);
        assert!((waiting(1.0, 10.0) - 9.0).abs() < 0.004 && waiting(10.0, 1.0) < 0.004);
    }

    /// 512 rows of 8192 outputs are 4 · 64 tiles of 128: two waves of 148, 296/256 times as long as their tiles. 128 rows of
    /// 1024 outputs are 8 tiles, and a wave is 18.5 times as long.
    #[test]
    fn waves_are_longer_than_tiles() {
        let spread = Spread { multiprocessors: 148, hidden: [1.1, 5.0] };
        let matrix = |outputs, weight_bytes| Matrix { elements: outputs * 8192.0, outputs, weight_bytes };
        assert_eq!(spread.longer(512.0, &matrix(8192.0, 134e6)), [296.0 / 256.0 / 1.1, 1.0]);
        assert_eq!(spread.longer(128.0, &matrix(1024.0, 134e6)), [18.5 / 1.1, 18.5 / 5.0]);
        // What stays within caches was not timed.
        assert_eq!(spread.longer(128.0, &matrix(1024.0, 17e6)), [1.0; 2]);
    }
}
