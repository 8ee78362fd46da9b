//! The Pareto front.

/// The Pareto front of `items`: an item is omitted if another item is at least as good in every value and better in
/// one. Smaller values are better.
///
/// Of items that are equal in every value only the first is kept.
pub fn front<T>(items: Vec<T>, values: impl Fn(&T) -> Vec<f64>) -> Vec<T> {
    let points: Vec<Vec<f64>> = items.iter().map(&values).collect();
    let beats = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| x <= y);
    let beaten = |i: usize| {
        points
            .iter()
            .enumerate()
            .any(|(j, other)| j != i && beats(other, &points[i]) && (j < i || !beats(&points[i], other)))
    };
    let keep: Vec<bool> = (0..items.len()).map(|i| !beaten(i)).collect();
    items.into_iter().zip(keep).filter_map(|(item, keep)| keep.then_some(item)).collect()
}

#[cfg(test)]
mod tests {
    use super::front;

    #[test]
    fn only_what_is_beaten_falls_out() {
        let front_points =
            front(vec![(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (9.0, 1.0), (2.0, 5.0)], |p| vec![p.0, p.1]);
        assert_eq!(front_points, [(1.0, 9.0), (2.0, 5.0), (9.0, 1.0)]);
    }
}
