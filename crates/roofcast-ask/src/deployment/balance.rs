//! Loads of ranks with experts of unequal popularity, with and without load balancing.
//!
//! Knows: popularity by Zipf's law, the k-th expert's load is k^−s. Without balancing, experts are on ranks in an order
//! that does not depend on popularity; s is the exponent with which the busiest rank of such orders has, on average, the
//! stated load. With balancing, second copies go one by one to the expert with the highest load per copy, and copies, the
//! most loaded first, to the least loaded rank that has a free slot (deepseek-ai/EPLB, `eplb.py`, without groups of
//! nodes). Loads are known exactly: real ones change between two placements.

/// Orders of experts over which the unbalanced load is averaged.
const ORDERS: u64 = 32;
/// Steps of the bisection for Zipf's exponent.
const BISECTIONS: u32 = 30;
/// Largest exponent: the first expert has more than half of all tokens from about 2 on.
const STEEPEST: f64 = 8.0;

/// (max − mean)/mean of the ranks' loads with load balancing, if it is `stated` without: `experts` experts and
/// `redundant` second copies on `ranks` ranks.
pub(super) fn balanced(experts: u64, redundant: u64, ranks: u64, stated: f64) -> f64 {
    let loads = zipf(experts, exponent(experts, ranks, stated));
    packed(&copied(&loads, redundant), ranks)
}

/// Zipf's exponent with which unbalanced ranks have the mean imbalance `stated`.
fn exponent(experts: u64, ranks: u64, stated: f64) -> f64 {
    let orders: Vec<Vec<usize>> = (1..=ORDERS).map(|seed| order(experts as usize, seed)).collect();
    let mean = |exponent: f64| {
        let loads = zipf(experts, exponent);
        let exponents = orders.iter().map(|order| unbalanced(&loads, order, ranks as usize));
        exponents.sum::<f64>() / ORDERS as f64
    };
    let mut low = 0.0;
    let mut high = STEEPEST;
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if mean(middle) < stated { low = middle } else { high = middle }
    }
    high
}

/// Loads of experts, the most popular first.
fn zipf(experts: u64, exponent: f64) -> Vec<f64> {
    (1..=experts).map(|k| libm::pow(k as f64, -exponent)).collect()
}

/// A pseudorandom order of `count` experts, by Knuth's MMIX generator.
fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, next(at + 1));
    }
    order
}

/// Imbalance of ranks that have equally many experts each, in `order`.
fn unbalanced(loads: &[f64], order: &[usize], ranks: usize) -> f64 {
    let each = order.len().div_ceil(ranks).max(1);
    let ranked: Vec<f64> =
        order.chunks(each).map(|rank| rank.iter().map(|expert| loads[*expert]).sum()).collect();
    imbalance(&ranked, ranks)
}

/// Loads of all copies, if the expert with the highest load per copy gets each of `redundant` copies in turn.
fn copied(loads: &[f64], redundant: u64) -> Vec<f64> {
    let mut copies = vec![1.0; loads.len()];
    for _ in 0..redundant {
        let per_copy = |expert: &usize| loads[*expert] / copies[*expert];
        let busiest = (0..loads.len()).max_by(|a, b| per_copy(a).total_cmp(&per_copy(b)).then(b.cmp(a)));
        if let Some(busiest) = busiest {
            copies[busiest] += 1.0;
        }
    }
    let shares = loads.iter().zip(&copies);
    shares.flat_map(|(load, copies)| std::iter::repeat_n(load / copies, *copies as usize)).collect()
}

/// Imbalance of ranks with equally many of `copies` each: the most loaded first, to the least loaded rank.
fn packed(copies: &[f64], ranks: u64) -> f64 {
    let slots = copies.len().div_ceil(ranks as usize);
    let mut sorted = copies.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut packs = vec![(0.0_f64, 0_usize); ranks as usize];
    for load in sorted {
        let free = packs.iter_mut().filter(|(_, taken)| *taken < slots);
        if let Some((sum, taken)) = free.min_by(|a, b| a.0.total_cmp(&b.0)) {
            *sum += load;
            *taken += 1;
        }
    }
    imbalance(&packs.iter().map(|(sum, _)| *sum).collect::<Vec<_>>(), ranks as usize)
}

/// (max − mean)/mean of the loads of `ranks` ranks.
fn imbalance(loads: &[f64], ranks: usize) -> f64 {
    let mean = loads.iter().sum::<f64>() / ranks as f64;
    (loads.iter().copied().fold(0.0, f64::max) / mean - 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads 6, 3, 2, 1: a copy goes to the first, 3 + 3. Two ranks with three slots take 3 | 3, then 3 | 2 and 1: the
    /// ranks have 6 and 6. Without copies 6 | 3, then 2 and 1 to the second: 6 and 6 would need three slots, but each
    /// rank has two: 6 + 1 and 3 + 2, 7/6 − 1.
    #[test]
    fn packing_by_hand() {
        let loads = [6.0, 3.0, 2.0, 1.0];
        assert_eq!(copied(&loads, 1), [3.0, 3.0, 3.0, 2.0, 1.0]);
        assert_eq!(copied(&loads, 2), [2.0, 2.0, 2.0, 3.0, 2.0, 1.0]);
        assert!((packed(&loads, 2) - 1.0 / 6.0).abs() < 1e-12);
        assert_eq!(packed(&copied(&loads, 1), 2), 0.0);
    }

    /// Two ranks in the order 0 1 | 2 3 have 9 and 3 of the same loads: 9/6 − 1.
    #[test]
    fn unbalanced_ranks_by_hand() {
        assert!((unbalanced(&[6.0, 3.0, 2.0, 1.0], &[0, 1, 2, 3], 2) - 0.5).abs() < 1e-12);
    }

    /// The fitted exponent gives the stated imbalance, and balancing leaves less, with copies less again.
    #[test]
    fn balancing_helps() {
        for stated in [0.2, 1.0, 1.564] {
            let loads = zipf(256, exponent(256, 32, stated));
            let exponents = (1..=ORDERS).map(|seed| unbalanced(&loads, &order(256, seed), 32)).sum::<f64>();
            assert!((exponents / ORDERS as f64 - stated).abs() < 1e-3);
            let [alone, copies] = [0, 32].map(|redundant| balanced(256, redundant, 32, stated));
            assert!(copies <= alone && alone < stated, "{stated} {alone} {copies}");
        }
        assert!(balanced(256, 32, 32, 0.0) < 1e-6);
    }
}
