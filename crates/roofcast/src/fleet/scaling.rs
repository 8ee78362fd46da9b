//! Autoscaling: replicas start when many requests are in flight and stop when idle.
//!
//! Knows: which replicas are up, since when, and from when on each accepts requests. The first ones, as many as are
//! wanted, accept requests; the others soon become idle. The scaler runs when a request arrives: nothing else gives a
//! replica work, so stops before that time are known to the tick; [`Scaling::settle`] applies them between two
//! requests. Knows nothing about routing.

use crate::clock::Ticks;
use crate::spec::AutoscaleSpec;
use crate::units::Picoseconds;

/// Up-times of replicas.
#[derive(Debug, Clone)]
pub struct Scaling {
    spec: AutoscaleSpec,
    startup: Ticks,
    patience: Ticks,
    up: Vec<Option<Up>>,
    /// Time that each replica was up before it last stopped, start-up included.
    past: Vec<Ticks>,
    /// Number of replica starts after the first.
    pub started: u64,
    /// Number of replica stops.
    pub stopped: u64,
    /// Most replicas that were up at one time.
    pub peak: usize,
}

/// A replica that is up.
#[derive(Debug, Clone, Copy)]
struct Up {
    since: Ticks,
    ready: Ticks,
}

impl Scaling {
    /// State with no replica up.
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

    /// Applies scaling for a request that arrives at `at` while `in_flight` others are in flight: replicas stop and
    /// start, and `open` is set to those that may accept it. `idle_since` returns the time since when a replica is
    /// idle, if it is. Returns the replicas that start, whose caches are empty.
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

    /// Advances to `at` without a request: replicas that were idle long enough have stopped, and permanent replicas
    /// are up from the first time on.
    pub fn settle(&mut self, at: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        self.stop(at, idle_since);
        if self.peak == 0 {
            let always = self.always();
            self.up.iter_mut().take(always).for_each(|up| *up = Some(Up { since: at, ready: at }));
            self.peak = self.count_up();
        }
    }

    /// Number of replicas that are up or starting.
    pub fn count_up(&self) -> usize {
        self.up.iter().flatten().count()
    }

    /// Number of replicas that never stop, the first ones.
    fn always(&self) -> usize {
        self.spec.min_replicas as usize
    }

    /// Stops the replicas that have been idle long enough by `at`.
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

    /// Ends the run: no more requests arrive, and the last one has ended at `end`.
    pub(super) fn close(&mut self, end: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        self.stop(end, idle_since);
        for (past, up) in self.past.iter_mut().zip(&mut self.up) {
            *past += up.take().map_or(Ticks::ZERO, |up| end - up.since);
        }
    }

    /// Number of replicas that may be up.
    pub fn count(&self) -> usize {
        self.past.len()
    }

    /// Total time that a replica was up, in a finished run.
    pub fn lasted(&self, index: usize) -> Ticks {
        self.past[index]
    }
}
