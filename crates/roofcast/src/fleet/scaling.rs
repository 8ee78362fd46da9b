//! Autoscaling: replicas that start where requests are many and stop where there are none for them.
//!
//! Knows: which replicas are up, since when, and from when on each takes requests. As many take them as are wanted, the
//! first ones; the others have nothing to do before long. It looks when a request comes: nothing else gives a replica
//! work, so which replicas have stopped before is known to the tick; [`Scaling::settle`] says so between two requests. Knows
//! nothing about which replica a request goes to.

use crate::engine::clock::Ticks;
use crate::spec::AutoscaleSpec;
use crate::units::Picoseconds;

/// Replicas over time.
#[derive(Debug, Clone)]
pub struct Scaling {
    spec: AutoscaleSpec,
    startup: Ticks,
    patience: Ticks,
    up: Vec<Option<Up>>,
    /// How long each was up before it last stopped, its start-ups among it.
    past: Vec<Ticks>,
    /// Replicas that were started beside the first.
    pub started: u64,
    /// Replicas that were stopped.
    pub stopped: u64,
    /// The most that were up at once.
    pub peak: usize,
}

/// A replica that is up.
#[derive(Debug, Clone, Copy)]
struct Up {
    since: Ticks,
    ready: Ticks,
}

impl Scaling {
    /// No replica is up.
    pub fn new(spec: AutoscaleSpec) -> Scaling {
        let ticks = |s: f64| Ticks::from(Picoseconds::from_seconds(s));
        let count = spec.max_replicas as usize;
        Scaling {
            spec,
            startup: ticks(spec.startup_s),
            patience: ticks(spec.idle_s),
            up: vec![None; count],
            past: vec![Ticks::ZERO; count],
            started: 0,
            stopped: 0,
            peak: 0,
        }
    }

    /// A request comes at `at` beside `in_flight` others: replicas stop and start, and `open` are those that may take it.
    /// `idle_since` says since when a replica has nothing to do, where it has nothing. Those that start, whose caches are
    /// empty.
    pub fn look(
        &mut self,
        at: Ticks,
        in_flight: u64,
        idle_since: &dyn Fn(usize) -> Option<Ticks>,
        open: &mut Vec<usize>,
    ) -> Vec<usize> {
        let first = self.peak == 0;
        self.stop(at, idle_since);
        let wanted = (1 + in_flight).div_ceil(self.spec.target_in_flight);
        let wanted = wanted.clamp(self.spec.min_replicas, self.spec.max_replicas) as usize;
        let missing = wanted.saturating_sub(self.count_up());
        let down = (0..self.up.len()).filter(|index| self.up[*index].is_none());
        let starting: Vec<usize> = down.take(missing).collect();
        for &index in &starting {
            let warm = first && index < self.always();
            let ready = if warm { at } else { at + self.startup };
            self.up[index] = Some(Up { since: at, ready });
            self.started += u64::from(!warm);
        }
        self.peak = self.peak.max(self.count_up());
        let ready = |up: &Option<Up>| up.is_some_and(|up| up.ready <= at);
        open.clear();
        open.extend((0..self.up.len()).filter(|index| ready(&self.up[*index])).take(wanted));
        starting
    }

    /// Brings it up to `at`, when no request comes: replicas that were idle for long enough have stopped, and those that never
    /// stop are up from the first time on.
    pub fn settle(&mut self, at: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        self.stop(at, idle_since);
        if self.peak == 0 {
            let always = self.always();
            self.up.iter_mut().take(always).for_each(|up| *up = Some(Up { since: at, ready: at }));
            self.peak = self.count_up();
        }
    }

    /// Replicas that are up, those that still start among them.
    pub fn count_up(&self) -> usize {
        self.up.iter().flatten().count()
    }

    /// The first replicas never stop.
    fn always(&self) -> usize {
        self.spec.min_replicas as usize
    }

    /// Stops the replicas that have been idle for long enough by `at`.
    fn stop(&mut self, at: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        for index in self.always()..self.up.len() {
            let (Some(up), Some(idle)) = (self.up[index], idle_since(index)) else { continue };
            let end = up.ready.max(idle) + self.patience;
            if end <= at {
                self.up[index] = None;
                self.past[index] += end - up.since;
                self.stopped += 1;
            }
        }
    }

    /// No more requests arrive, and the last one has ended at `end`.
    pub(super) fn close(&mut self, end: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        self.stop(end, idle_since);
        for (past, up) in self.past.iter_mut().zip(&mut self.up) {
            *past += up.take().map_or(Ticks::ZERO, |up| end - up.since);
        }
    }

    /// Replicas that may be up.
    pub fn count(&self) -> usize {
        self.past.len()
    }

    /// How long a replica was up, of a run that has ended.
    pub fn lasted(&self, index: usize) -> Ticks {
        self.past[index]
    }
}
