//! Replicas over time: the numbers of replicas that an ideal autoscaler runs.
//!
//! Knows: arrivals are divided into equal intervals. Simulations find the fewest replicas that serve the requests of
//! one interval alone within the SLO. Then the whole load is simulated with these numbers as the fleet's schedule, so
//! that requests in flight carry over, and each interval whose requests miss the SLO gets one replica more, until all
//! meet it. Step times are those that the required probability demands: the quantile of measured over forecast, and
//! never faster than forecast. The autoscaler is ideal: arrivals are known in advance, and a replica is ready exactly when its interval
//! begins and stops as soon as its last request is answered. Knows nothing about other deployments.

use super::bounded::{Bounded, against};
use super::chance::{Doubt, load};
use super::feasibility::deployment;
use super::proof::{Trial, missed};
use super::search::Search;
use super::space::{Candidate, CandidatePool};
use roofcast_ask::spec::{Metric, ScheduleSpec, Slo, Spec};
use roofcast_ask::summary::RunSummary;
use roofcast_ask::workload::{Arrivals, Request, Traffic, Workload};
use roofcast_cost::startup::{Startup, VOLUME_BYTES_PER_S};
use roofcast_facts::error::{Error, Result};
use roofcast_facts::record::Record;
use roofcast_facts::units::Picoseconds;
use roofcast_sim::simulate::{RunOptions, Simulation, simulate_while};
use serde::Serialize;

/// Most intervals.
const MOST_INTERVALS: usize = 2000;
/// Most simulations of the whole load.
const ROUNDS: usize = 24;

/// Replicas of a deployment over time, with their cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverTime {
    /// Length of an interval in seconds.
    pub interval_s: f64,
    /// Seconds from the start of a replica until it accepts requests.
    pub startup_s: f64,
    /// Probability with which step times are at most `slower` times the forecast, as the plan requires it.
    pub confidence: f64,
    /// Factor on the forecast's step times in all simulations of the schedule.
    pub slower: f64,
    /// Number of accelerators of one replica.
    pub accelerators_each: u64,
    /// Most accelerators that accept requests at one time.
    pub peak_accelerators: u64,
    /// Mean number of accelerators that are up, including start-up and last answers.
    pub mean_accelerators: f64,
    /// Accelerator-hours for the whole load.
    pub accelerator_hours: f64,
    /// Accelerator-hours of the plan's best deployment, which is always up.
    pub constant_accelerator_hours: f64,
    /// Dollars for `accelerator_hours`; `None` if the catalog has no price.
    pub dollars: Option<f64>,
    /// True if the requests of every interval meet the SLO in one simulation of the whole load.
    pub meets: bool,
    /// The intervals, in order of time.
    pub intervals: Vec<ScheduleInterval>,
}

/// Replicas and results of one interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleInterval {
    /// Start of the interval in seconds.
    pub from_s: f64,
    /// End of the interval in seconds; of the last interval the time of the last arrival.
    pub to_s: f64,
    /// Number of requests that arrive in the interval.
    pub requests: u64,
    /// Fewest replicas that serve the interval's requests alone within the SLO; 0 without requests, `None` if the most
    /// replicas of the search do not suffice.
    pub alone: Option<u64>,
    /// Number of replicas that accept requests in the interval.
    pub replicas: u64,
    /// True if the interval's requests meet the SLO in the simulation of the whole load.
    pub meets: bool,
    /// Each bound of the SLO, with its value for the interval's requests.
    pub bounds: Vec<Bounded>,
}

/// The length of intervals and the start-up time that a spec asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduleQuestion {
    interval_s: f64,
    /// Seconds of a start; `None` to compute the start of a replica.
    startup_s: Option<f64>,
}

/// A candidate whose step times are `slower` times the forecast.
#[derive(Debug, Clone, Copy)]
struct Slowed {
    candidate: Candidate,
    slower: f64,
}

impl Slowed {
    /// The candidate with the step times that the required probability demands.
    fn of(found: &Search, candidate: Candidate) -> Result<Slowed> {
        let trial = found.trial(&candidate, found.base)?;
        let doubt = Doubt::of(&trial.forecaster, &found.base.slo, load(&trial.spec));
        let slower = doubt.map_or(1.0, |doubt| doubt.step_at(found.confidence)).max(1.0);
        Ok(Slowed { candidate, slower })
    }

    /// The simulation of the candidate with `replicas` replicas under the workload of `base`.
    fn trial(self, found: &Search, replicas: u64, base: &Spec) -> Result<Trial> {
        let serving = CandidatePool { replicas, ..self.candidate.serving };
        let mut trial = found.trial(&Candidate { serving, ..self.candidate }, base)?;
        trial.forecaster = trial.forecaster.slowed(self.slower);
        Ok(trial)
    }
}

/// Reads `search.interval_s` and `search.startup_s`; `None` if the interval is not set.
///
/// # Errors
/// A value is out of range, or replicas over time are not defined for the load or the SLO.
pub(super) fn asked(spec: &Spec, workload: &Workload) -> Result<Option<ScheduleQuestion>> {
    let Some(search) = &spec.search else { return Ok(None) };
    let Some(interval_s) = search.interval_s else {
        return match search.startup_s {
            Some(s) => Err(Error::field("spec", "search.startup_s", s, "together with search.interval_s")),
            None => Ok(None),
        };
    };
    let schedule = ScheduleSpec { interval_s, startup_s: search.startup_s.unwrap_or(0.0), replicas: vec![1] };
    schedule.check("spec", "search")?;
    let refuse =
        |found: &str, accepted: &str| Err(Error::field("spec", "search.interval_s", found, accepted));
    let sessions = matches!(&workload.arrivals, Arrivals::Trace(replay) if replay.has_sessions());
    if sessions || matches!(workload.arrivals, Arrivals::ClosedLoop { .. } | Arrivals::Sessions { .. }) {
        return refuse("beside arrivals that wait for answers", "a rate, a ramp or a trace with times");
    }
    if !spec.slo.is_bounded() {
        return refuse("without an SLO", "a bound beside it, as ttft_p99_ms");
    }
    if spec.slo.of(Metric::Itl).next().is_some() {
        return refuse(
            "beside a bound on ITL",
            "bounds on TTFT, TPOT and E2EL, which are of single requests",
        );
    }
    if search.disaggregated || search.mixed {
        return refuse("beside disaggregated or mixed", "fleets of equal replicas");
    }
    Ok(Some(ScheduleQuestion { interval_s, startup_s: search.startup_s }))
}

/// The requests of `workload` by interval, with times from the start of the run.
fn cut(workload: &Workload, interval_s: f64) -> Result<Vec<Vec<Request>>> {
    let mut traffic = Traffic::new(workload, "spec")?;
    let mut intervals: Vec<Vec<Request>> = Vec::new();
    while let Some(request) = traffic.next() {
        let at = number(request.at, interval_s);
        if at >= MOST_INTERVALS {
            let accepted = format!("longer intervals: at most {MOST_INTERVALS} of them");
            return Err(Error::field("spec", "search.interval_s", interval_s, accepted));
        }
        intervals.resize(intervals.len().max(at + 1), Vec::new());
        intervals[at].push(request);
    }
    Ok(intervals)
}

/// Number of the interval that contains a time.
fn number(at: Picoseconds, interval_s: f64) -> usize {
    (at.0 / Picoseconds::from_seconds(interval_s).0) as usize
}

/// Replicas over time for the candidate with this index; `None` if the search was stopped.
pub(super) fn over_time(
    found: &mut Search,
    index: usize,
    asked: ScheduleQuestion,
) -> Result<Option<OverTime>> {
    let candidate = found.candidates[index];
    let slowed = Slowed::of(found, candidate)?;
    let Some(workload) = found.base.workload.clone() else { return Ok(None) };
    let intervals = cut(&workload, asked.interval_s)?;
    let same =
        |c: &&Candidate| c.serving.shape == candidate.serving.shape && c.prefill.or(c.beside).is_none();
    let replica_limit = found.candidates.iter().filter(same).map(|c| c.serving.replicas).max().unwrap_or(1);
    let Some(alone) = fewest(found, slowed, &workload, (&intervals, asked.interval_s), replica_limit)? else {
        return Ok(None);
    };
    let start = |alone: &Option<u64>| alone.unwrap_or(replica_limit).max(1);
    let mut replicas: Vec<u64> = alone.iter().map(start).collect();
    let whole = workload.replayed(intervals.iter().flatten().cloned().collect());
    for round in 1..=ROUNDS {
        let Some(run) = scheduled(found, slowed, &whole, &replicas, asked)? else { return Ok(None) };
        let judged = judged(&run.records, &found.base.slo, asked.interval_s, intervals.len());
        let raised = |(n, summary): (&u64, &RunSummary)| {
            if kept(summary, &found.base.slo) { *n } else { (*n + 1).min(replica_limit) }
        };
        let more: Vec<u64> = replicas.iter().zip(&judged).map(raised).collect();
        if more == replicas || round == ROUNDS {
            return Ok(Some(answer(found, slowed, &run, (&alone, &replicas, &judged), asked)));
        }
        replicas = more;
    }
    Ok(None)
}

/// For each interval, the fewest replicas, at most `most`, that serve its requests alone within the SLO; found by
/// bisection of all intervals together. `None` if the search was stopped.
fn fewest(
    found: &mut Search,
    slowed: Slowed,
    workload: &Workload,
    (intervals, interval_s): (&[Vec<Request>], f64),
    most: u64,
) -> Result<Option<Vec<Option<u64>>>> {
    let length = Picoseconds::from_seconds(interval_s);
    let alone = |(number, requests): (usize, &Vec<Request>)| {
        let start = length.0 * number as u64;
        let shifted = requests.iter().map(|r| Request { at: Picoseconds(r.at.0 - start), ..r.clone() });
        Spec { workload: Some(workload.replayed(shifted.collect())), ..found.base.clone() }
    };
    let specs: Vec<Spec> = intervals.iter().enumerate().map(alone).collect();
    // For each interval, the largest number known to miss the SLO, and the smallest known to meet it.
    let mut open: Vec<(u64, u64)> =
        intervals.iter().map(|requests| (0, if requests.is_empty() { 0 } else { most + 1 })).collect();
    loop {
        let undecided: Vec<usize> = (0..open.len()).filter(|at| open[*at].0 + 1 < open[*at].1).collect();
        if undecided.is_empty() {
            let fewest = |(_, keeps): (u64, u64)| Some(keeps).filter(|keeps| *keeps <= most);
            return Ok(Some(open.into_iter().map(fewest).collect()));
        }
        let trial = |at: &usize| {
            let replicas = open[*at].0.midpoint(open[*at].1);
            slowed.trial(found, replicas, &specs[*at])
        };
        let trials = undecided.iter().map(trial).collect::<Result<Vec<Trial>>>()?;
        let slo = found.base.slo;
        let Some(runs) = found.runs(&trials) else { return Ok(None) };
        for (at, run) in undecided.into_iter().zip(runs) {
            let (misses, keeps) = open[at];
            let middle = misses.midpoint(keeps);
            open[at] = if missed(&run, &slo).is_some() { (middle, keeps) } else { (misses, middle) };
        }
    }
}

/// The run of all requests with these numbers of replicas over time; `None` if the search was stopped.
fn scheduled(
    found: &mut Search,
    slowed: Slowed,
    whole: &Workload,
    replicas: &[u64],
    asked: ScheduleQuestion,
) -> Result<Option<Simulation>> {
    let base = Spec { workload: Some(whole.clone()), ..found.base.clone() };
    let trial = slowed.trial(found, slowed.candidate.serving.replicas, &base)?;
    let mut spec = trial.spec;
    spec.parallelism.replicas = None;
    let interval_s = asked.interval_s;
    let startup_s = startup_s(found, slowed, asked);
    spec.fleet.schedule = Some(ScheduleSpec { interval_s, startup_s, replicas: replicas.to_vec() });
    let shape = &found.judge.space.shapes[slowed.candidate.serving.shape];
    let scheduled_deployment = deployment(&spec, &trial.forecaster.deployment.model, &shape.chip)?;
    let forecaster = trial.forecaster.reshaped(scheduled_deployment);
    let options = RunOptions { leap: true, records: true, ..RunOptions::default() };
    found.simulated += 1;
    let run = simulate_while(&forecaster, &spec, "plan", options, &mut |_, _| (found.goes_on)())?;
    Ok(Some(run).filter(|run| !run.interrupted))
}

/// A summary of the requests of each interval.
fn judged(records: &[Record], slo: &Slo, interval_s: f64, count: usize) -> Vec<RunSummary> {
    let mut by: Vec<Vec<Record>> = vec![Vec::new(); count];
    for record in records {
        if let Some(of) = by.get_mut(number(record.sent, interval_s)) {
            of.push(record.clone());
        }
    }
    by.iter().map(|records| RunSummary::of(records, slo)).collect()
}

/// True if the requests of `summary` meet `slo`.
fn kept(summary: &RunSummary, slo: &Slo) -> bool {
    let all = summary.completed + summary.failed;
    match slo.needed(all) {
        Some(needed) => summary.good.unwrap_or(summary.completed) >= needed,
        None => summary.failed * 100 <= all && slo.bounds().all(|bound| summary.bounded(&bound) <= bound.ms),
    }
}

/// Seconds of a start: as given, else the start of a replica whose weights come from a network volume.
fn startup_s(found: &Search, slowed: Slowed, asked: ScheduleQuestion) -> f64 {
    let fitted = found.judge.fitted[slowed.candidate.serving.shape].as_ref();
    let replica = || fitted.ok().map(|fitted| &fitted.forecaster.deployment);
    let start = || replica().map_or(0.0, |replica| Startup::of(replica, VOLUME_BYTES_PER_S).seconds);
    asked.startup_s.unwrap_or_else(start)
}

fn answer(
    found: &Search,
    slowed: Slowed,
    run: &Simulation,
    (alone, replicas, judged): (&[Option<u64>], &[u64], &[RunSummary]),
    asked: ScheduleQuestion,
) -> OverTime {
    let Slowed { candidate, slower } = slowed;
    let slo = &found.base.slo;
    let each = found.judge.space.shapes[candidate.serving.shape].cut.ranks();
    let interval = |(number, ((alone, replicas), summary)): (usize, ((&Option<u64>, &u64), &RunSummary))| {
        ScheduleInterval {
            from_s: number as f64 * asked.interval_s,
            to_s: (number + 1) as f64 * asked.interval_s,
            requests: summary.completed + summary.failed,
            alone: *alone,
            replicas: *replicas,
            meets: kept(summary, slo),
            bounds: against(summary, slo),
        }
    };
    let mut intervals: Vec<ScheduleInterval> =
        alone.iter().zip(replicas).zip(judged).enumerate().map(interval).collect();
    // The last interval goes on after the last arrival, without requests.
    let last = run.records.iter().map(|record| record.sent.seconds()).fold(0.0, f64::max);
    if let Some(interval) = intervals.last_mut().filter(|interval| last > interval.from_s) {
        interval.to_s = last;
    }
    let seconds = run.fleet.autoscale.map_or(0.0, |used| used.replica_seconds);
    let hours = |replica_seconds: f64| replica_seconds * each as f64 / 3600.0;
    let duration = run.summary.duration;
    let per_hour = found.per_hour(&candidate).map(|usd| usd / candidate.accelerators as f64);
    OverTime {
        interval_s: asked.interval_s,
        startup_s: startup_s(found, slowed, asked),
        confidence: found.confidence,
        slower,
        accelerators_each: each,
        peak_accelerators: replicas.iter().copied().max().unwrap_or(0) * each,
        mean_accelerators: seconds * each as f64 / duration.max(f64::MIN_POSITIVE),
        accelerator_hours: hours(seconds),
        constant_accelerator_hours: hours(candidate.serving.replicas as f64 * duration),
        dollars: per_hour.map(|usd| usd * hours(seconds)),
        meets: intervals.iter().all(|interval| interval.meets),
        intervals,
    }
}
