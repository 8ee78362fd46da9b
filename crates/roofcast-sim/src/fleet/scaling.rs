//! Autoscaling: replicas start when many requests are in flight and stop when idle, start and stop at planned times, or
//! by the rule of an autoscaler.
//!
//! Knows: which replicas are up, since when, and from when on each accepts requests. The first replicas, as many as are
//! wanted, accept requests; the others soon become idle. Without a rule the scaler runs when a request arrives: nothing else
//! gives a replica work, so that earlier stops are known to the tick; [`Scaling::settle`] applies them between two
//! requests. A rule decides at its own times ([`ruled`]). Knows nothing about routing.

mod dynamo;
mod hpa;
mod observed;
mod ray_serve;
mod rule;
mod ruled;

use super::failures::LostRequest;
use super::schedule::Schedule;
use observed::ticks;
use roofcast_ask::spec::{AutoscaleSpec, ScheduleSpec};
use roofcast_facts::clock::Ticks;
use rule::Rule;
use ruled::Ruled;

/// Times at which replicas are up.
#[derive(Debug, Clone)]
pub struct Scaling {
    rule: ScalingCause,
    up: Vec<Option<Up>>,
    /// For each replica, total time of its earlier periods up, start-up included.
    past: Vec<Ticks>,
    /// Number of replica starts after the initial ones.
    pub(crate) started: u64,
    /// Number of replica stops.
    pub(crate) stopped: u64,
    /// Most replicas that were up at one time.
    pub(crate) peak: usize,
    /// Requests for which no replica was ready.
    pub(super) parked: Vec<LostRequest>,
    /// Tokens per KV block.
    pub(super) block: u64,
}

/// Cause of starts and stops.
#[derive(Debug, Clone)]
enum ScalingCause {
    /// Replicas follow the number of requests in flight.
    Load { target: u64, min: u64, max: u64, startup: Ticks, patience: Ticks },
    /// Replicas follow the decisions of an autoscaler.
    Ruled(Box<Ruled>),
    /// Replicas follow planned times. `next` is the number of each replica's next window, `paid` the time until which
    /// the replica was up.
    Planned { schedule: Schedule, next: Vec<usize>, paid: Vec<Ticks> },
}

/// A replica that is up.
#[derive(Debug, Clone, Copy)]
struct Up {
    since: Ticks,
    ready: Ticks,
    /// Time before which the replica does not stop: the end of its planned window, or of its being wanted by a rule.
    until: Ticks,
}

impl Scaling {
    /// State with no replica up, which follows the load.
    pub fn new(spec: &AutoscaleSpec) -> Scaling {
        let startup = ticks(spec.startup_s);
        let cause = match Rule::of(spec) {
            Some(rule) => ScalingCause::Ruled(Box::new(Ruled::new(rule, startup, spec.min_replicas))),
            None => ScalingCause::Load {
                target: spec.target_in_flight.unwrap_or(1),
                min: spec.min_replicas,
                max: spec.max_replicas,
                startup,
                patience: ticks(spec.idle_s.unwrap_or(0.0)),
            },
        };
        Scaling::of(cause, spec.max_replicas as usize)
    }

    /// State with no replica up, which follows a schedule.
    pub(crate) fn planned(spec: &ScheduleSpec) -> Scaling {
        let schedule = Schedule::new(spec);
        let count = schedule.most();
        Scaling::of(
            ScalingCause::Planned { schedule, next: vec![0; count], paid: vec![Ticks::ZERO; count] },
            count,
        )
    }

    /// Returns the state for replicas with KV blocks of `block` tokens.
    pub(crate) fn with_blocks(self, block: u64) -> Scaling {
        Scaling { block, ..self }
    }

    fn of(rule: ScalingCause, count: usize) -> Scaling {
        let past = vec![Ticks::ZERO; count];
        Scaling {
            rule,
            up: vec![None; count],
            past,
            started: 0,
            stopped: 0,
            peak: 0,
            parked: Vec::new(),
            block: 1,
        }
    }

    /// Applies scaling when a request arrives at `at` while `in_flight` others are in flight: replicas stop and start,
    /// and `open` is set to the replicas that may accept the request. `idle_since` returns the time at which a replica
    /// became idle, `down` is true of replicas that have failed. Returns the replicas that start; their caches are empty.
    pub fn look(
        &mut self,
        at: Ticks,
        in_flight: u64,
        idle_since: &dyn Fn(usize) -> Option<Ticks>,
        down: &dyn Fn(usize) -> bool,
        open: &mut Vec<usize>,
    ) -> Vec<usize> {
        self.stop(at, idle_since);
        let (wanted, starting) = match &self.rule {
            ScalingCause::Load { target, min, max, .. } => {
                let wanted = (1 + in_flight).div_ceil(*target).clamp(*min, *max) as usize;
                (wanted, self.start_for(wanted, at))
            }
            ScalingCause::Ruled(_) => return self.arrive(at, open),
            ScalingCause::Planned { schedule, .. } => (schedule.wanted(at), self.start_planned(at)),
        };
        self.peak = self.peak.max(self.count_up());
        open.clear();
        open.extend(
            (0..self.up.len()).filter(|index| self.is_ready(*index, at) && !down(*index)).take(wanted),
        );
        starting
    }

    /// True if replica `index` has started by `at`.
    pub(super) fn is_ready(&self, index: usize, at: Ticks) -> bool {
        self.up[index].is_some_and(|up| up.ready <= at)
    }

    /// Starts replicas until `wanted` are up.
    fn start_for(&mut self, wanted: usize, at: Ticks) -> Vec<usize> {
        let ScalingCause::Load { startup, .. } = self.rule else { return Vec::new() };
        let first = self.peak == 0;
        let missing = wanted.saturating_sub(self.count_up());
        let down = (0..self.up.len()).filter(|index| self.up[*index].is_none());
        let starting: Vec<usize> = down.take(missing).collect();
        for &index in &starting {
            let warm = first && index < self.always();
            let ready = if warm { at } else { at + startup };
            self.up[index] = Some(Up { since: at, ready, until: Ticks::NEVER });
            self.started += u64::from(!warm);
        }
        starting
    }

    /// Starts the replicas whose window has begun by `at`. Windows that ended before any request arrived count as well.
    fn start_planned(&mut self, at: Ticks) -> Vec<usize> {
        let ScalingCause::Planned { schedule, next, paid } = &mut self.rule else { return Vec::new() };
        let mut starting = Vec::new();
        for index in 0..self.up.len() {
            while self.up[index].is_none()
                && let Some(window) = schedule.window(index, next[index]).filter(|w| w.since <= at)
            {
                next[index] += 1;
                self.started += u64::from(window.ready > Ticks::ZERO);
                if window.until <= at {
                    self.past[index] += Ticks(window.until.0.saturating_sub(window.since.max(paid[index]).0));
                    paid[index] = paid[index].max(window.until);
                    self.stopped += 1;
                } else {
                    let since = window.since.max(paid[index]);
                    self.up[index] = Some(Up { since, ready: window.ready, until: window.until });
                    starting.push(index);
                }
            }
        }
        starting
    }

    /// Advances to `at` without a request: replicas that were idle long enough have stopped, and permanent replicas are
    /// up from the first call on.
    pub fn settle(&mut self, at: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        self.stop(at, idle_since);
        if self.peak == 0 {
            let always = self.always();
            let up = Up { since: at, ready: at, until: Ticks::NEVER };
            self.up.iter_mut().take(always).for_each(|one| *one = Some(up));
            self.peak = self.count_up();
        }
    }

    /// Number of replicas that are up or starting.
    pub fn count_up(&self) -> usize {
        self.up.iter().flatten().count()
    }

    /// Number of replicas that never stop for lack of load; they are the first ones.
    fn always(&self) -> usize {
        match &self.rule {
            ScalingCause::Load { min, .. } => *min as usize,
            ScalingCause::Planned { .. } | ScalingCause::Ruled(_) => 0,
        }
    }

    /// Stops the replicas that by `at` have been idle long enough, or are idle after the end of their window.
    fn stop(&mut self, at: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        for index in self.always()..self.up.len() {
            let (Some(up), Some(idle)) = (self.up[index], idle_since(index)) else { continue };
            let end = match &self.rule {
                ScalingCause::Load { patience, .. } => up.ready.max(idle) + *patience,
                ScalingCause::Planned { .. } | ScalingCause::Ruled(_) => up.until.max(idle),
            };
            if end <= at {
                self.up[index] = None;
                self.past[index] += end - up.since;
                self.stopped += 1;
                if let ScalingCause::Planned { paid, .. } = &mut self.rule {
                    paid[index] = end;
                }
            }
        }
    }

    /// Ends the run: no more requests arrive, and the last one has ended at `end`.
    pub(super) fn close(&mut self, end: Ticks, idle_since: &dyn Fn(usize) -> Option<Ticks>) {
        self.stop(end, idle_since);
        self.start_planned(end);
        for (past, up) in self.past.iter_mut().zip(&mut self.up) {
            *past += up.take().map_or(Ticks::ZERO, |up| end - up.since);
        }
    }

    /// Most replicas that may be up.
    pub(crate) fn count(&self) -> usize {
        self.past.len()
    }

    /// Total time that replica `index` was up, in a finished run.
    pub(crate) fn lasted(&self, index: usize) -> Ticks {
        self.past[index]
    }
}

#[cfg(test)]
mod tests {
    use super::ticks as at;
    use super::*;

    /// With one request in flight and one wanted per replica, a second request at time 0 starts replica 1, which is ready
    /// after 10 s. It stops 30 s after it became idle, and not before it was 30 s ready.
    #[test]
    fn a_replica_stops_when_it_has_been_idle_long_enough() {
        let keys = "target_in_flight = 1\nmax_replicas = 2\nstartup_s = 10\nidle_s = 30";
        let spec: AutoscaleSpec = toml::from_str(keys).unwrap();
        for (idle, end) in [(15.0, 45.0), (5.0, 40.0)] {
            let mut scaling = Scaling::new(&spec);
            let busy = |_| None;
            let mut open = Vec::new();
            assert_eq!(scaling.look(at(0.0), 1, &busy, &|_| false, &mut open), [0, 1]);
            // The permanent replica accepts at once.
            assert_eq!(open, [0]);
            scaling.settle(at(100.0), &busy);
            assert_eq!(scaling.count_up(), 2);
            let idle_since = |index| (index == 1).then(|| at(idle));
            scaling.settle(at(end - 0.001), &idle_since);
            assert_eq!(scaling.count_up(), 2, "idle since {idle}");
            scaling.settle(at(end), &idle_since);
            assert_eq!((scaling.count_up(), scaling.lasted(1)), (1, at(end)), "idle since {idle}");
        }
    }
}
