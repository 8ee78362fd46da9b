//! The cheapest replica for each speed of a user, by bisection over its users.
//!
//! Knows: more users of a replica make each slower and each token cheaper, so the cheapest load at a speed is the largest
//! that keeps it. The grid of a curve brackets that load. Knows nothing about simulations.

use super::point::AtSpeed;
use super::{Drawing, Load, Runs};
use crate::plan::largest::Range;
use roofcast_facts::error::Result;

/// Output tokens per second of one user for which the lowest cost per token is sought.
const SPEEDS: [f64; 6] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0];

/// A replica that may be the cheapest at a speed.
struct Bracket {
    shape: usize,
    /// The most users of the grid that keep the speed.
    good: u64,
    /// The fewest users of the grid above `good`, which are too slow; `None` if the replica holds no more than `good`.
    slow: Option<u64>,
    /// Dollars per token at the end of the bracket that costs less.
    least: f64,
}

impl Drawing<'_> {
    /// The cheapest load for each speed that a curve reaches.
    pub(super) fn at_speeds(
        &self,
        by_name: &[(String, Vec<usize>)],
        runs: &mut Runs,
    ) -> Result<Vec<AtSpeed>> {
        let mut found = Vec::new();
        for speed in SPEEDS {
            let Some(load) = self.cheapest_at(speed, by_name, runs)? else { continue };
            let name = by_name.iter().find(|(_, shapes)| shapes.contains(&load.shape)).map(|(name, _)| name);
            let point = runs.get(&load).and_then(|run| self.point(load, run));
            found.extend(name.zip(point).map(|(name, point)| AtSpeed {
                tok_s: speed,
                curve: name.clone(),
                point,
            }));
        }
        Ok(found)
    }

    fn cheapest_at(
        &self,
        speed: f64,
        by_name: &[(String, Vec<usize>)],
        runs: &mut Runs,
    ) -> Result<Option<Load>> {
        let shapes = by_name.iter().flat_map(|(_, shapes)| shapes);
        let mut brackets: Vec<Bracket> =
            shapes.filter_map(|shape| self.bracket(*shape, speed, runs)).collect();
        brackets.sort_by(|a, b| a.least.total_cmp(&b.least));
        let mut best: Option<(f64, Load)> = None;
        for Bracket { shape, good, slow, least } in brackets {
            // Brackets come in the order of the lowest cost that they may hold.
            if best.is_some_and(|(cost, _)| cost <= least) {
                break;
            }
            let mut users = good;
            if let Some(slow) = slow {
                let range = Range { low: good as f64, high: slow as f64, whole: true };
                let largest = range.largest(&mut |users| {
                    let load = Load { shape, users: users as u64 };
                    if !runs.contains_key(&load) {
                        self.run(&[load], runs)?;
                    }
                    Ok(self.figures(load, runs).map(|[tok_s, _]| tok_s >= speed))
                })?;
                users = largest.best.map_or(good, |users| users as u64);
            }
            let load = Load { shape, users };
            if let Some([_, cost]) = self.figures(load, runs)
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, load));
            }
        }
        // Where requests wait, more users of a replica may cost more: a smaller load that was simulated can be cheaper.
        for load in runs.keys() {
            if let Some([tok_s, cost]) = self.figures(*load, runs)
                && tok_s >= speed
                && best.is_none_or(|(least, _)| cost < least)
            {
                best = Some((cost, *load));
            }
        }
        Ok(best.map(|(_, load)| load))
    }

    /// The loads of the grid between which `shape` falls below `speed`; `None` if it never reaches it.
    fn bracket(&self, shape: usize, speed: f64, runs: &Runs) -> Option<Bracket> {
        let grid = self.users(shape);
        let figures = |users: u64| self.figures(Load { shape, users }, runs);
        let good = grid
            .iter()
            .copied()
            .filter(|users| figures(*users).is_some_and(|[tok_s, _]| tok_s >= speed))
            .max()?;
        let slow = grid.into_iter().find(|users| *users > good);
        let [_, cost] = figures(good)?;
        let least = slow.and_then(figures).map_or(cost, |[_, beyond]| beyond.min(cost));
        Some(Bracket { shape, good, slow, least })
    }

    /// Output tokens per second of a user, and dollars per million output tokens; `None` without a run or a price.
    fn figures(&self, load: Load, runs: &Runs) -> Option<[f64; 2]> {
        let point = self.point(load, runs.get(&load)?)?;
        Some([point.interactivity_tok_s, point.cost_per_million_tokens?])
    }
}
