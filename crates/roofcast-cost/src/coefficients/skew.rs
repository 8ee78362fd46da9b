//! Skew of expert choice in real traffic.
//!
//! Knows: the load of the busiest of several expert-parallel ranks, for kernels that were timed without skew. Other
//! tables of kernel times already include the skew.

use roofcast_facts::model::largest_deviate;

/// Standard deviation of the tokens of an expert, over their mean, as in a power law with exponent 1.01 (the
/// distribution of kernel tables) at 64 tokens.
pub(crate) const SKEW: f64 = 1.0;

/// Tokens of the busiest rank over the mean of all ranks, if `ranks` ranks hold `experts` experts: 1 + skew
/// √(ranks/experts) z, with z the expected largest standard normal deviate among the ranks.
pub(crate) fn busiest(experts: u64, ranks: u64, skew: f64) -> f64 {
    if ranks < 2 {
        return 1.0;
    }
    let n = ranks as f64;
    (1.0 + skew * (n / experts.max(1) as f64).sqrt() * largest_deviate(ranks)).min(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One rank has all tokens; of 8 ranks with 256 experts, the busiest has 1 + √(8/256) · 0.61 · 3^0.75 = 1.2458
    /// times the mean.
    #[test]
    fn routing_is_uneven() {
        assert_eq!(busiest(256, 1, SKEW), 1.0);
        assert!((busiest(256, 8, SKEW) - 1.2458).abs() < 1e-4);
        assert_eq!(busiest(2, 2, 100.0), 2.0);
    }
}
