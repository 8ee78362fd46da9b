//! Levels over time in bounded memory: running and waiting requests, blocks held, tokens per second.
//!
//! Knows: time is divided into equal intervals, initially of a millisecond. When a run has outgrown [`MOST`] intervals,
//! neighbours are merged in pairs and every interval doubles, so that any run of more than a second has 1000 to 2000
//! intervals. An interval stores the change of each level within it, and the area of those changes until its end; both
//! add exactly when neighbours merge, and events may come in any order. Within a leap, blocks and tokens grow linearly.
//! Knows nothing about how levels are drawn.

use super::{Mark, Segment};
use roofcast_facts::clock::Ticks;
use roofcast_facts::units::Picoseconds;
use serde::Serialize;

/// Most intervals.
pub(crate) const MOST: usize = 2000;

const RUNNING: usize = 0;
const WAITING: usize = 1;
const BLOCKS: usize = 2;
const PREEMPTIONS: usize = 3;
const PREFILL: usize = 4;
const OUTPUT: usize = 5;
const LEVELS: usize = 6;

/// Change of one level within an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    change: i64,
    /// Σ change × ticks from the change to the end of the interval.
    area: i128,
}

/// The levels of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    width: i128,
    intervals: Vec<[Cell; LEVELS]>,
    /// End of the last step, and number of blocks held at that time.
    end: Ticks,
    blocks: u64,
}

/// The levels within one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeriesPoint {
    /// Start of the interval in milliseconds.
    pub start_ms: f64,
    /// End of the interval in milliseconds.
    pub end_ms: f64,
    /// Mean number of running requests.
    pub running: f64,
    /// Mean number of waiting requests, preempted ones included.
    pub waiting: f64,
    /// Mean number of KV blocks held.
    pub blocks: f64,
    /// Number of preemptions from the start of the run to the end of the interval.
    pub preemptions: i64,
    /// Prompt tokens computed per second.
    pub prefill_tokens_per_s: f64,
    /// Output tokens sampled per second.
    pub output_tokens_per_s: f64,
}

impl Default for Series {
    fn default() -> Series {
        let width = ticks(Ticks::from(Picoseconds::from_seconds(1e-3)));
        Series { width, intervals: Vec::new(), end: Ticks::ZERO, blocks: 0 }
    }
}

fn ticks(time: Ticks) -> i128 {
    i128::try_from(time.0).unwrap_or(i128::MAX)
}

impl Series {
    pub(super) fn arrived(&mut self, at: Ticks) {
        self.jump(WAITING, at, 1);
    }

    pub(super) fn mark(&mut self, mark: Mark, at: Ticks) {
        match mark {
            Mark::Admitted | Mark::Resumed => {
                self.jump(WAITING, at, -1);
                self.jump(RUNNING, at, 1);
            }
            Mark::Preempted => {
                self.jump(RUNNING, at, -1);
                self.jump(WAITING, at, 1);
                self.jump(PREEMPTIONS, at, 1);
            }
            Mark::Finished => self.jump(RUNNING, at, -1),
            Mark::Dropped => self.jump(WAITING, at, -1),
            Mark::Decoding => {}
        }
    }

    pub(super) fn computed(&mut self, segment: &Segment) {
        let Segment { start, end, blocks: [first, last], .. } = *segment;
        if start > self.end {
            // In an idle gap between two steps, running requests hold no blocks.
            self.hold(self.end, 0);
        }
        self.hold(start, first);
        self.rise(BLOCKS, start, end, last as i64 - first as i64);
        self.blocks = last;
        self.rise(PREFILL, start, end, segment.prefill_tokens as i64);
        self.rise(OUTPUT, start, end, segment.output_tokens as i64);
        self.end = end;
    }

    fn hold(&mut self, at: Ticks, blocks: u64) {
        self.jump(BLOCKS, at, blocks as i64 - self.blocks as i64);
        self.blocks = blocks;
    }

    fn jump(&mut self, level: usize, at: Ticks, change: i64) {
        self.rise(level, at, at, change);
    }

    /// Changes a level by `change` in total, linearly from time `from` to time `to`.
    fn rise(&mut self, level: usize, from: Ticks, to: Ticks, change: i64) {
        if change == 0 {
            return;
        }
        let from = ticks(from);
        let to = ticks(to);
        while to / self.width >= MOST as i128 {
            self.merge();
        }
        let last = (to / self.width) as usize;
        if self.intervals.len() <= last {
            self.intervals.resize(last + 1, Default::default());
        }
        let until = |t: i128| if to > from { i128::from(change) * (t - from) / (to - from) } else { 0 };
        for index in (from / self.width) as usize..=last {
            let start = index as i128 * self.width;
            let end = (index as i128 + 1) * self.width;
            let left = from.max(start);
            let right = to.min(end);
            let part = if to > from { until(right) - until(left) } else { i128::from(change) };
            let cell = &mut self.intervals[index][level];
            cell.change += part as i64;
            cell.area += part * (end - (left + right) / 2);
        }
    }

    /// Merges each pair of neighbouring intervals into one.
    fn merge(&mut self) {
        let width = self.width;
        let pair = |pair: &[[Cell; LEVELS]]| {
            let second = pair.get(1).copied().unwrap_or_default();
            std::array::from_fn(|level| {
                let a = pair[0][level];
                let b = second[level];
                Cell { change: a.change + b.change, area: a.area + i128::from(a.change) * width + b.area }
            })
        };
        self.intervals = self.intervals.chunks(2).map(pair).collect();
        self.width *= 2;
    }

    /// The intervals up to `end`, at which the run is over and the replica is empty.
    fn points(mut self, end: Ticks) -> Vec<SeriesPoint> {
        self.hold(self.end, 0);
        let end = ticks(end);
        self.intervals.resize(((end + self.width - 1) / self.width) as usize, Default::default());
        let mut before = [0_i64; LEVELS];
        let mut points = Vec::with_capacity(self.intervals.len());
        for (index, cells) in self.intervals.iter().enumerate() {
            let start = index as i128 * self.width;
            let stop = (start + self.width).min(end);
            let span = Ticks((stop - start).unsigned_abs());
            // All levels are zero after the end of the run, so that the last interval's area belongs to its shortened
            // duration.
            let cut = start + self.width - stop;
            let mean = |level: usize| {
                let after = i128::from(before[level] + cells[level].change) * cut;
                let area = cells[level].area + i128::from(before[level]) * self.width - after;
                area as f64 / (stop - start) as f64
            };
            let rate = |level: usize| cells[level].change as f64 / span.seconds();
            points.push(SeriesPoint {
                start_ms: Ticks(start.unsigned_abs()).ms(),
                end_ms: Ticks(stop.unsigned_abs()).ms(),
                running: mean(RUNNING),
                waiting: mean(WAITING),
                blocks: mean(BLOCKS),
                preemptions: before[PREEMPTIONS] + cells[PREEMPTIONS].change,
                prefill_tokens_per_s: rate(PREFILL),
                output_tokens_per_s: rate(OUTPUT),
            });
            before.iter_mut().zip(cells).for_each(|(sum, cell)| *sum += cell.change);
        }
        points
    }
}

/// The intervals of all replicas, over equal intervals of time up to `end`.
pub fn together(mut all: Vec<Series>, end: Ticks) -> Vec<Vec<SeriesPoint>> {
    let fits = |width: i128| end.0 <= width.unsigned_abs() * MOST as u128;
    while let Some(width) = all.iter().map(|s| s.width).max() {
        match all.iter_mut().find(|s| s.width < width || !fits(s.width)) {
            Some(narrow) => narrow.merge(),
            None => break,
        }
    }
    all.into_iter().map(|series| series.points(end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: f64) -> Ticks {
        Ticks::from(Picoseconds::from_seconds(ms / 1e3))
    }

    fn segment(start: f64, end: f64, blocks: [u64; 2], output_tokens: u64) -> Segment {
        Segment {
            start: at(start),
            end: at(end),
            steps: 1,
            running: 1,
            decodes: 1,
            waiting: 0,
            chunks: 0,
            prefill_tokens: 0,
            output_tokens,
            blocks,
            bound: "memory",
        }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    /// One request waits from 0.25 to 1.5 ms and runs until 2.5 ms, while the blocks rise from 2 to 4; the run ends at
    /// 2.5 ms. Means by hand: waiting 0.75, 0.5, 0; running 0, 0.5, 1; blocks 0, (2 + 3)/2 · 0.5 = 1.25, (3 + 4)/2 =
    /// 3.5.
    #[test]
    fn means_by_hand() {
        let mut series = Series::default();
        series.mark(Mark::Admitted, at(1.5));
        // This arrival is reported late.
        series.arrived(at(0.25));
        series.computed(&segment(1.5, 2.5, [2, 4], 100));
        series.mark(Mark::Finished, at(2.5));
        let points = series.points(at(2.5));
        let columns = points.iter().map(|p| [p.waiting, p.running, p.blocks, p.output_tokens_per_s]);
        // 50 tokens in a millisecond, and 50 in half a millisecond.
        let expected = [[0.75, 0.0, 0.0, 0.0], [0.5, 0.5, 1.25, 50e3], [0.0, 1.0, 3.5, 100e3]];
        assert_eq!(points.len(), 3);
        columns.zip(expected).for_each(|(found, expected)| {
            found.iter().zip(expected).for_each(|(found, expected)| near(*found, expected));
        });
        near(points[2].end_ms, 2.5);
    }

    #[test]
    fn a_long_run_keeps_what_it_adds_up_to() {
        let mut series = Series::default();
        // 100 s in steps of 10 ms, each followed by a pause of 10 ms: 2 blocks for half of the time, 1 token per step.
        for step in 0..5000 {
            let start = f64::from(step) * 20.0;
            series.computed(&segment(start, start + 10.0, [2, 2], 1));
        }
        // 100,000 intervals of a millisecond, merged until at most 2000 remain: 64 ms each.
        let points = series.points(at(100_000.0));
        assert_eq!(points.len(), 100_000_usize.div_ceil(64));
        let sum = |of: fn(&SeriesPoint) -> f64| -> f64 {
            points.iter().map(|p| of(p) * (p.end_ms - p.start_ms) / 1e3).sum()
        };
        near(sum(|p| p.output_tokens_per_s), 5000.0);
        // 2 blocks are held for 50 s.
        near(sum(|p| p.blocks), 100.0);
    }

    #[test]
    fn replicas_share_their_intervals() {
        let mut long = Series::default();
        long.arrived(at(5000.0));
        let all = together(vec![Series::default(), long], at(6000.0));
        // 6000 ms are divided into intervals of 4 ms.
        assert_eq!((all[0].len(), all[1].len()), (1500, 1500));
    }
}
