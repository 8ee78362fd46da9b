//! Operators that every row of every step passes, priced together.
//!
//! Knows: each takes a time that is linear in rows between the rows at which it turns from memory to arithmetic, or at which
//! a product is no longer one of few rows; so does their sum, between the turns of all of them.

use super::op::{Kind, Op};
use super::shares::Shares;
use crate::efficiency::FewRows;

/// A sum of times that is linear in rows between turns.
#[derive(Debug, Clone, Default)]
pub(super) struct Ladder {
    /// Rows from which on the next rung holds, ascending.
    turns: Vec<f64>,
    /// One more than turns: what is bound by arithmetic, fixed and a row, and what is bound by memory.
    rungs: Vec<[f64; 4]>,
}

impl Ladder {
    pub(super) fn new(ops: &[Op]) -> Ladder {
        let all: Vec<Line> = ops.iter().filter_map(Line::new).collect();
        let mut turns: Vec<f64> = all.iter().flat_map(Line::turns).collect();
        turns.sort_by(f64::total_cmp);
        turns.dedup();
        let ends = turns.iter().copied().chain([turns.last().map_or(1.0, |last| 2.0 * last)]);
        let mut from = 0.0;
        let mut rungs = Vec::new();
        for end in ends {
            let mut rung = [0.0; 4];
            for line in &all {
                let at = line.at((from + end) / 2.0);
                rung.iter_mut().zip(at).for_each(|(sum, part)| *sum += part);
            }
            rungs.push(rung);
            from = end;
        }
        Ladder { turns, rungs }
    }

    /// Adds what `rows` take that are computed as `tiled` ones.
    pub(super) fn add(&self, rows: f64, tiled: f64, shares: &mut Shares<f64>) {
        let turned = self.turns.partition_point(|turn| tiled > *turn);
        let [compute, computing, memory, moving] = self.rungs[turned];
        shares.compute += compute + computing * tiled;
        shares.memory += memory + moving * rows;
    }
}

/// One operator: what a row computes, what is moved whatever the rows, and for each row.
struct Line {
    computing: f64,
    fixed: f64,
    moving: f64,
    exposed: f64,
    few: FewRows,
}

impl Line {
    fn new(op: &Op) -> Option<Line> {
        let Kind::Rows { flops, bytes, sampled: false } = op.kind else { return None };
        Some(Line {
            computing: op.layers * flops * op.compute,
            fixed: op.layers * op.bytes * op.memory,
            moving: op.layers * bytes * op.memory,
            exposed: op.exposed,
            few: op.few,
        })
    }

    /// Rows from which on few are many.
    fn many(&self) -> f64 {
        let FewRows { each, most } = self.few;
        if each > 0.0 { 1.0 + most / each } else { f64::INFINITY }
    }

    /// Of arithmetic at `rows` and around: fixed, and a row.
    fn arithmetic(&self, rows: f64) -> [f64; 2] {
        let FewRows { each, most } = self.few;
        let [fixed, row] = if rows < self.many() { [-each, 1.0 + each] } else { [most, 1.0] };
        [self.computing * fixed, self.computing * row]
    }

    /// Rows at which it turns.
    fn turns(&self) -> impl Iterator<Item = f64> {
        let many = self.many();
        let crossing = |rows: f64| {
            let [fixed, row] = self.arithmetic(rows);
            (self.fixed - fixed) / (row - self.moving)
        };
        let few = Some(crossing(0.0)).filter(|turn| *turn < many);
        let more = Some(crossing(f64::MAX)).filter(|turn| *turn > many);
        [few, Some(many), more].into_iter().flatten().filter(|turn| turn.is_finite() && *turn > 0.0)
    }

    /// What it adds to a rung that holds at `rows`.
    fn at(&self, rows: f64) -> [f64; 4] {
        let [fixed, row] = self.arithmetic(rows);
        let longer = fixed + row * rows > self.fixed + self.moving * rows;
        let (compute, memory) = if longer { (1.0, self.exposed) } else { (self.exposed, 1.0) };
        [fixed * compute, row * compute, self.fixed * memory, self.moving * memory]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(flops: f64, bytes: f64, exposed: f64, few: FewRows) -> Op {
        let kind = Kind::Rows { flops, bytes: 0.25, sampled: false };
        Op { layers: 3.0, compute: 1.0, memory: 1.0, exposed, few, mixed_rows: 1.0, call: 0.0, bytes, kind }
    }

    /// At every number of rows the ladder says what its operators take one by one, turns among them.
    #[test]
    fn a_ladder_is_the_sum_of_its_operators() {
        let few = FewRows { each: 3.0, most: 10.0 };
        let ops = [
            op(1.0, 7.0, 0.0, FewRows::NONE),
            op(2.0, 300.0, 0.4, FewRows::NONE),
            op(1.0, 5.0, 0.3, few),
            op(1.0, 16.0, 1.0, few),
            op(1.0, 40.0, 0.2, few),
            op(0.0, 9.0, 0.5, few),
            // As many bytes a row as FLOPs: it never turns.
            op(0.25, 9.0, 0.5, FewRows::NONE),
        ];
        let ladder = Ladder::new(&ops);
        for rows in (1..2000).map(f64::from) {
            let mut found = Shares::default();
            ladder.add(rows, rows, &mut found);
            let mut expected = [0.0; 2];
            for op in &ops {
                let Kind::Rows { flops, bytes, .. } = op.kind else { continue };
                let time = op.time(flops * op.few.worth(rows), bytes * rows + op.bytes);
                expected.iter_mut().zip(time).for_each(|(sum, t)| *sum += op.layers * t);
            }
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.max(1.0);
            // Where both are alike it does not matter which is called the longer.
            let whole = near(found.compute + found.memory, expected.iter().sum());
            assert!(whole, "{rows}: {found:?} {expected:?}");
        }
    }
}
