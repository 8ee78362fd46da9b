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

    pub(super) fn add(&self, rows: f64, shares: &mut Shares<f64>) {
        let turned = self.turns.partition_point(|turn| rows > *turn);
        let [compute, computing, memory, moving] = self.rungs[turned];
        shares.compute += compute + computing * rows;
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
