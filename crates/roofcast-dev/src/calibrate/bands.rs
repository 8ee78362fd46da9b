//! Widths of intervals, from the residuals of cross-validation.
//!
//! Knows: a width is the 80th percentile of the errors' absolute logarithms, by class of load, metric and depth of
//! evidence; each row counts with the weight of its deployment. Depths are pooled (isotonic regression) if few rows were
//! measured at one, or if a deeper one would be wider than a shallower one, so that more evidence never widens an
//! interval. Where kernels were not timed, a width is at least [`UNTIMED`]. Knows nothing about fitting.

use super::Residual;
use roofcast_cost::coefficients::{Band, Evidence, Load, UNTIMED, Widths};

/// Fewest residuals that give a depth of evidence, or a metric, a width of its own.
const MIN_ROWS: usize = 30;
/// Width of an interval without any residuals, and least width of a depth below the shallowest measured one.
const UNKNOWN: f64 = UNTIMED;
const TTFT: usize = 0;
const TPOT: usize = 1;
const E2E: usize = 2;
const THROUGHPUT: usize = 3;

/// Widths of one metric by depth of evidence, in the order of [`Evidence::ALL`].
type ByDepth = [f64; Evidence::ALL.len()];

/// Derives one band for each depth of evidence.
pub(super) fn of(residuals: &[Residual]) -> Vec<Band> {
    let of_load = |load: Load| -> [ByDepth; 4] {
        let of_metric = |metric| by_depth(residuals, metric, load);
        let ttft = of_metric(TTFT);
        let tpot = of_metric(TPOT);
        let times = tpot.or(ttft).unwrap_or([UNKNOWN; Evidence::ALL.len()]);
        // An end-to-end latency consists of steps, whose common error it has.
        let e2e = of_metric(E2E).or(of_metric(THROUGHPUT)).unwrap_or(times);
        let e2e = std::array::from_fn(|depth| e2e[depth].max(times[depth]));
        [ttft.unwrap_or(times), times, e2e, of_metric(THROUGHPUT).unwrap_or(e2e)]
    };
    let loads = Load::ALL.map(of_load);
    let band = |(depth, evidence): (usize, &Evidence)| {
        Band::of_loads(*evidence, |load| {
            let [ttft, tpot, e2e, throughput] = loads[load as usize].map(|by_depth| by_depth[depth]);
            Widths { ttft, tpot, e2e, throughput }
        })
    };
    Evidence::ALL.iter().enumerate().map(band).collect()
}

/// Adjacent depths with one width.
struct Block<'a> {
    /// Index of the deepest depth in the block.
    deepest: usize,
    residuals: Vec<&'a Residual>,
}

impl Block<'_> {
    fn is_small(&self) -> bool {
        self.residuals.len() < MIN_ROWS
    }
}

/// Widths of `metric` under `load`; `None` if fewer than [`MIN_ROWS`] rows were measured at all depths together.
fn by_depth(residuals: &[Residual], metric: usize, load: Load) -> Option<ByDepth> {
    let mut blocks: Vec<Block> = Vec::new();
    for (depth, evidence) in Evidence::ALL.iter().enumerate() {
        let at_depth =
            residuals.iter().filter(|r| r.metric == metric && r.load == load && r.evidence == *evidence);
        let mut block = Block { deepest: depth, residuals: at_depth.collect() };
        // Merged into the shallower block while either is small or the deeper one is wider.
        while let Some(shallower) = blocks.last() {
            if !block.is_small()
                && !shallower.is_small()
                && width(&shallower.residuals) >= width(&block.residuals)
            {
                break;
            }
            let shallower = blocks.pop().map(|block| block.residuals).unwrap_or_default();
            block.residuals.extend(shallower);
        }
        blocks.push(block);
    }
    if blocks.iter().all(Block::is_small) {
        return None;
    }
    let shallowest = Evidence::ALL
        .iter()
        .position(|e| residuals.iter().any(|r| r.metric == metric && r.load == load && r.evidence == *e))?;
    let of_depth = |depth: usize| {
        let block = blocks.iter().find(|block| block.deepest >= depth);
        let width = block.map_or(UNKNOWN, |block| width(&block.residuals));
        let untimed = Evidence::ALL[depth] <= Evidence::Family;
        if untimed || depth < shallowest { width.max(UNKNOWN) } else { width }
    };
    Some(std::array::from_fn(of_depth))
}

/// 80th percentile of the factor by which a measurement differs from its forecast, in either direction; rounded to
/// three decimal places, more than the data support.
fn width(residuals: &[&Residual]) -> f64 {
    let mut all: Vec<(f64, f64)> = residuals.iter().map(|r| (r.log.abs(), r.weight)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = all.iter().map(|(_, weight)| weight).sum();
    let mut before = 0.0;
    let reached = all.iter().find(|(_, weight)| {
        before += weight;
        before >= 0.8 * total
    });
    (reached.map_or(0.0, |(log, _)| *log).exp() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(evidence: Evidence, logs: impl Iterator<Item = f64>) -> Vec<Residual> {
        let row = |log| Residual { metric: TPOT, log, weight: 1.0, evidence, load: Load::ClosedLoop };
        logs.map(row).collect()
    }

    fn tpot(bands: &[Band]) -> [f64; 5] {
        std::array::from_fn(|depth| bands[depth].closed_loop.tpot)
    }

    /// 40 rows of an engine with errors of 1/100 to 40/100 in logarithm, every other one negative: the 32nd of 40
    /// reaches 80 %, e^0.32 = 1.377. Depths that nobody measured have at least 2, whole metrics without rows the widths
    /// of TPOT, and classes of load without rows 2.
    #[test]
    fn a_width_by_hand() {
        let signed = |n: i32| f64::from(if n % 2 == 0 { n } else { -n }) / 100.0;
        let bands = of(&rows(Evidence::Engine, (1..=40).map(signed)));
        assert_eq!(tpot(&bands), [2.0, 2.0, 2.0, 2.0, 1.377]);
        assert_eq!(bands[4].closed_loop.all(), [1.377; 4]);
        assert_eq!(bands[4].step.all(), [2.0; 4]);
    }

    /// A sibling chip with 40 rows of error 0.1 and an engine with 40 rows of error 0.3 are pooled: the 64th of 80 has
    /// 0.3, e^0.3 = 1.35, at both depths. With errors of 0.3 and 0.1 each has its own.
    #[test]
    fn more_evidence_is_never_wider() {
        let of_two = |sibling: f64, engine: f64| {
            let mut all = rows(Evidence::Architecture, std::iter::repeat_n(sibling, 40));
            all.extend(rows(Evidence::Engine, std::iter::repeat_n(engine, 40)));
            tpot(&of(&all))
        };
        assert_eq!(of_two(0.1, 0.3), [2.0, 2.0, 1.35, 1.35, 1.35]);
        assert_eq!(of_two(0.3, 0.1), [2.0, 2.0, 1.35, 1.35, 1.105]);
    }

    /// Ten rows are too few: they are pooled with the 40 rows of the neighbouring depth, whose kernels nobody timed, so that its own
    /// width is at least 2.
    #[test]
    fn a_depth_with_few_rows_has_its_neighbours_width() {
        let mut all = rows(Evidence::Nothing, std::iter::repeat_n(0.5, 40));
        all.extend(rows(Evidence::Engine, std::iter::repeat_n(0.1, 10)));
        // The 40th of 50 has an error of 0.5.
        assert_eq!(tpot(&of(&all)), [2.0, 2.0, 1.649, 1.649, 1.649]);
    }
}
