//! Curves of throughput per accelerator against interactivity, over the number of users.
//!
//! Knows: the replicas of a search, each under closed loops of 1, 2, 4, … users, up to the number of requests that its
//! memory and engine hold; the Pareto front of each curve; and the cheapest point of a curve that meets the SLO. In
//! steady state n users with answers of G tokens get `n · G / (E2EL + turn-round)` tokens per second; the start and the
//! end of a run do not lower this figure. Points that the estimate on means puts far below the curve are not simulated.
//! Knows nothing about numbers of replicas: a replica's figures per accelerator hold for any number of replicas with
//! users in proportion.

mod point;
mod speeds;

pub use point::{AtSpeed, Curve, CurvePoint, Curves};

use super::answer::emitted;
use super::demand::TrafficDemand;
use super::estimate::tpots;
use super::feasibility::Judge;
use super::largest::Range;
use super::pareto::front;
use super::proof::{self, Trial, missed};
use super::space::{ReplicaShape, SearchSpace};
use super::told::ReplicaSettings;
use super::{PlanQuestion, timed};
use roofcast_ask::spec::{CostKind, Spec};
use roofcast_ask::workload::{Arrivals, TURN_ROUND, Workload};
use roofcast_facts::accelerator::Accelerator;
use roofcast_facts::catalog::Catalog;
use roofcast_facts::error::{Error, Result};
use roofcast_facts::model::Model;
use roofcast_sim::simulate::{PriceBook, Simulation};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Fewest requests of a run; if the SLO has bounds, each user sends 20.
const REQUESTS: u64 = 200;
/// Factor by which another point must exceed a point in both estimated figures, for the point not to be simulated.
const FAR: f64 = 1.1;
/// Number of simulations that are requested at one time.
const WAVE: usize = 64;

/// One replica with a number of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    shape: usize,
    users: u64,
}

/// Simulates the curves for `spec`: one for each accelerator and format of its search, or one for each parallelism if
/// the search names one accelerator and format.
///
/// # Errors
/// Errors of [`super::plan()`]; also a workload from a trace or of conversations, whose pace is not set by a number of
/// users.
pub fn curves(spec: &Spec, model: &Arc<Model>, catalog: &Catalog, question: &PlanQuestion) -> Result<Curves> {
    let missing =
        || Error::field("spec", "workload", "missing", "[workload] with arrivals, input_len, output_len");
    let workload = spec.workload.as_ref().ok_or_else(missing)?;
    check(spec, workload)?;
    let requests = proof::asked(spec)?.unwrap_or(REQUESTS);
    let demand = TrafficDemand::of(workload, "spec")?;
    super::refused::too_long(spec, model, demand.full())?;
    let space = SearchSpace::of(spec, model, catalog, demand.shared)?;
    let judge = Judge::new(spec, model, &space, &demand, question.slower)?;
    let drawing = Drawing {
        judge: &judge,
        workload,
        asked: requests,
        question,
        simulated: Cell::new(0),
        prices: Arc::default(),
    };
    let shapes = drawing.shapes();
    let by_name = named(&space, &shapes);
    let mut runs = drawing.grid(&by_name, question.exhaustive)?;
    let mut curves = Vec::new();
    for (name, shapes) in &by_name {
        let best = drawing.best(shapes, &mut runs)?;
        curves.extend(drawing.curve(name, shapes, &runs, best));
    }
    let at_speed = drawing.at_speeds(&by_name, &mut runs)?;
    let interrupted = !(question.goes_on)();
    Ok(Curves {
        curves,
        at_speed,
        left_out: drawing.left_out(&shapes),
        simulated: drawing.simulated.get(),
        interrupted,
    })
}

/// Refuses specs for which there are no curves.
fn check(spec: &Spec, workload: &Workload) -> Result<()> {
    super::refused::check(spec, workload)?;
    let search = spec.search.as_ref();
    let set = [
        ("search.disaggregated", search.is_some_and(|search| search.disaggregated)),
        ("search.mixed", search.is_some_and(|search| search.mixed)),
        ("search.interval_s", search.is_some_and(|search| search.interval_s.is_some())),
    ];
    if let Some((field, _)) = set.into_iter().find(|(_, set)| *set) {
        let accepted = "omitted: a curve is of one kind of replica under a number of users";
        return Err(Error::field("spec", field, "set", accepted));
    }
    match &workload.arrivals {
        Arrivals::Sessions { .. } | Arrivals::Trace(_) => {
            let accepted = "lengths of single requests: a curve sets the number of users who send them";
            Err(Error::field("spec", "workload.arrivals", "conversations or a trace", accepted))
        }
        _ => Ok(()),
    }
}

/// Shapes by the name of their curve: the accelerator, with formats if several are searched; or the parallelism if all
/// shapes have one accelerator and format.
fn named(space: &SearchSpace, shapes: &[usize]) -> Vec<(String, Vec<usize>)> {
    let words = |s: &ReplicaShape| [s.weights.clone(), s.kv.clone(), s.told.engine.clone()];
    let all = || shapes.iter().map(|index| &space.shapes[*index]);
    let Some(first) = all().next() else { return Vec::new() };
    let differ: [bool; 3] = std::array::from_fn(|at| all().any(|s| words(s)[at] != words(first)[at]));
    let is_alike = all().all(|shape| shape.chip.id == first.chip.id) && differ == [false; 3];
    let name = |shape: &ReplicaShape| {
        let shown = words(shape).into_iter().zip(differ).filter(|(_, differ)| *differ);
        let words = shown.filter_map(|(word, _)| word);
        let cut = is_alike.then(|| shape.cut.to_string());
        [shape.chip.id.clone()].into_iter().chain(words).chain(cut).collect::<Vec<_>>().join(", ")
    };
    let mut by_name: Vec<(String, Vec<usize>)> = Vec::new();
    for index in shapes {
        let name = name(&space.shapes[*index]);
        match by_name.iter_mut().find(|(known, _)| *known == name) {
            Some((_, shapes)) => shapes.push(*index),
            None => by_name.push((name, vec![*index])),
        }
    }
    by_name
}

type Runs = BTreeMap<Load, Result<Simulation>>;

/// State while curves are simulated.
struct Drawing<'a> {
    judge: &'a Judge<'a>,
    workload: &'a Workload,
    /// Fewest requests of a run, by the spec or by default.
    asked: u64,
    question: &'a PlanQuestion<'a>,
    simulated: Cell<u64>,
    /// Prices of steps, which runs on one shape share.
    prices: Arc<PriceBook>,
}

impl Drawing<'_> {
    /// Shapes that hold the model. Shapes that differ only in settings for many replicas are omitted: in the router,
    /// and in token budgets that the spec does not ask for.
    fn shapes(&self) -> Vec<usize> {
        let space = self.judge.space;
        let budgets = self.judge.spec.search.as_ref().is_some_and(|s| !s.max_num_batched_tokens.is_empty());
        let key = |index: usize| {
            let ReplicaShape {
                chip,
                weights,
                kv,
                cut,
                max_num_batched_tokens,
                max_num_seqs,
                told,
                host_gib: _,
            } = &space.shapes[index];
            let unrouted = ReplicaSettings { router: None, ..told.clone() };
            let tokens = max_num_batched_tokens.filter(|_| budgets);
            (chip.id.clone(), weights.clone(), kv.clone(), *cut, tokens, *max_num_seqs, unrouted)
        };
        let mut seen = BTreeSet::new();
        (0..space.shapes.len())
            .filter(|index| self.judge.estimate(*index).is_some() && self.judge.holds(*index).is_none())
            .filter(|index| seen.insert(key(*index)))
            .collect()
    }

    /// The workload with `users` users, who begin one after another.
    fn load(&self, users: u64) -> Result<Workload> {
        let turn_round_s = match self.workload.arrivals {
            Arrivals::ClosedLoop { turn_round_s, .. } => turn_round_s,
            _ => None,
        };
        let arrivals = Arrivals::ClosedLoop { concurrency: users, think_s: None, ramp_s: None, turn_round_s };
        let workload = Workload { arrivals, requests: None, ..self.workload.clone() };
        let demand = self.judge.demand.of_users(users);
        Ok(proof::lengthened(&workload, &demand, &self.judge.spec.slo, Some(self.asked)))
    }

    /// Numbers of users of a curve: powers of two up to the number of requests that a replica holds, and that number.
    fn users(&self, shape: usize) -> Vec<u64> {
        let user_limit = self.judge.estimate(shape).map_or(0, |estimate| estimate.batch);
        let powers = (0..63).map(|n| 1_u64 << n).take_while(|users| *users < user_limit);
        powers.chain((user_limit > 0).then_some(user_limit)).collect()
    }

    /// Runs of the points of every curve, without the points far below it unless `all` is set.
    fn grid(&self, by_name: &[(String, Vec<usize>)], all: bool) -> Result<Runs> {
        let mut loads: Vec<Load> = Vec::new();
        for (_, shapes) in by_name {
            let mut estimated: Vec<(Load, [f64; 2])> = Vec::new();
            for shape in shapes {
                let Ok(fitted) = &self.judge.fitted[*shape] else { continue };
                let users = self.users(*shape);
                let cost = self.judge.spec.engine.cost;
                let times = tpots(&fitted.forecaster, self.judge.demand, cost, &users);
                let ranks = self.judge.space.shapes[*shape].cut.ranks() as f64;
                estimated.extend(users.iter().zip(times).map(|(users, ms)| {
                    (Load { shape: *shape, users: *users }, [1.0 / ms, *users as f64 / (ms * ranks)])
                }));
            }
            let far = |[speed, rate]: [f64; 2]| {
                estimated.iter().any(|(_, [s, r])| *s > speed * FAR && *r > rate * FAR)
            };
            loads.extend(estimated.iter().filter(|(_, at)| all || !far(*at)).map(|(load, _)| *load));
        }
        let mut runs = Runs::new();
        for wave in loads.chunks(WAVE) {
            self.run(wave, &mut runs)?;
        }
        Ok(runs)
    }

    /// Simulates `loads`; runs that were stopped are omitted.
    fn run(&self, loads: &[Load], runs: &mut Runs) -> Result<()> {
        if !(self.question.goes_on)() {
            return Ok(());
        }
        let trials = loads.iter().map(|load| self.trial(*load)).collect::<Result<Vec<Trial>>>()?;
        let done = (self.question.runner)(&trials);
        let stopped = !(self.question.goes_on)();
        let whole = |run: &Result<Simulation>| !stopped || run.as_ref().is_ok_and(|run| !run.interrupted);
        runs.extend(loads.iter().copied().zip(done).filter(|(_, run)| whole(run)));
        self.simulated.set(self.simulated.get() + trials.len() as u64);
        (self.question.progress)(self.simulated.get(), self.simulated.get());
        Ok(())
    }

    fn trial(&self, load: Load) -> Result<Trial> {
        let base = Spec { workload: Some(self.load(load.users)?), ..self.judge.spec.clone() };
        let mut spec = self.judge.space.shapes[load.shape].spec(&base);
        spec.parallelism.replicas = Some(1);
        let fitted = self.judge.fitted[load.shape].as_ref();
        let fitted =
            fitted.map_err(|why| Error::field("plan", "search", why, "formats that the chip has"))?;
        let prices = Arc::clone(&self.prices);
        Ok(Trial { spec, forecaster: fitted.forecaster.clone(), end_when_missed: false, prices })
    }

    /// True if the run of `load` meets the SLO; `None` if it was stopped.
    fn keeps(&self, load: Load, runs: &mut Runs) -> Result<Option<bool>> {
        if !runs.contains_key(&load) {
            self.run(&[load], runs)?;
        }
        Ok(runs.get(&load).map(|run| missed(run, &self.judge.spec.slo).is_none()))
    }

    /// The load of a curve with the most tokens per accelerator that meets the SLO: starts from the best point of the
    /// grid and adds users of its replica by bisection. `None` if no point meets the SLO.
    fn best(&self, shapes: &[usize], runs: &mut Runs) -> Result<Option<Load>> {
        let slo = &self.judge.spec.slo;
        let met =
            runs.iter().filter(|(load, run)| shapes.contains(&load.shape) && missed(run, slo).is_none());
        let rate = |(load, run): &(&Load, &Result<Simulation>)| {
            run.as_ref().map_or(0.0, |run| self.rate(**load, run) / self.ranks(load.shape) as f64)
        };
        let best = met.max_by(|a, b| rate(a).total_cmp(&rate(b))).map(|(load, _)| *load);
        let Some(Load { shape, users }) = best else { return Ok(None) };
        let Some(next) = self.users(shape).into_iter().find(|more| *more > users) else { return Ok(best) };
        let range = Range { low: users as f64, high: next as f64, whole: true };
        let largest = range.largest(&mut |users| self.keeps(Load { shape, users: users as u64 }, runs))?;
        Ok(Some(Load { shape, users: largest.best.map_or(users, |users| users as u64) }))
    }

    fn ranks(&self, shape: usize) -> u64 {
        self.judge.space.shapes[shape].cut.ranks()
    }

    /// Output tokens per second in steady state.
    fn rate(&self, load: Load, run: &Simulation) -> f64 {
        let turn_round_s = match self.workload.arrivals {
            Arrivals::ClosedLoop { turn_round_s: Some(seconds), .. } => seconds,
            _ => TURN_ROUND,
        };
        let s = &run.summary;
        let tokens = s.total_output_tokens as f64 / s.completed.max(1) as f64;
        load.users as f64 * tokens / (s.e2el.mean / 1e3 + turn_round_s)
    }

    /// The Pareto front of a curve with its best point, in order of descending interactivity; `None` if nothing was
    /// simulated.
    fn curve(&self, name: &str, shapes: &[usize], runs: &Runs, best: Option<Load>) -> Option<Curve> {
        // Only the result of the bisection is a point of the curve.
        let grid = |load: &Load| self.users(load.shape).contains(&load.users) || Some(*load) == best;
        let own_runs = runs.iter().filter(|(load, _)| shapes.contains(&load.shape) && grid(load));
        let all: Vec<(Load, CurvePoint)> =
            own_runs.filter_map(|(load, run)| Some((*load, self.point(*load, run)?))).collect();
        let best_point = all.iter().find(|(load, _)| Some(*load) == best).cloned();
        let mut points = front(all, |(_, p)| vec![-p.output_tok_s_per_accelerator, -p.interactivity_tok_s]);
        // The best point belongs to its curve even if a neighbour that misses the SLO beats it.
        points.extend(best_point.filter(|best_point| !points.contains(best_point)));
        points.sort_by(|(_, a), (_, b)| b.interactivity_tok_s.total_cmp(&a.interactivity_tok_s));
        let chip = &self.judge.space.shapes[*shapes.first()?].chip;
        let at = points.iter().position(|(load, _)| Some(*load) == best);
        let points: Vec<CurvePoint> = points.into_iter().map(|(_, point)| point).collect();
        (!points.is_empty()).then(|| Curve {
            name: name.to_owned(),
            accelerator: chip.id.clone(),
            usd_per_hour: chip.price.as_ref().map(|price| price.usd_per_hour),
            best: at.and_then(|at| points.get(at).cloned()),
            points,
        })
    }

    fn point(&self, load: Load, simulated: &Result<Simulation>) -> Option<CurvePoint> {
        let run = simulated.as_ref().ok()?;
        let ReplicaShape { chip, cut, .. } = &self.judge.space.shapes[load.shape];
        let price = &chip.price;
        let forecaster = self.judge.fitted[load.shape].as_ref().ok().map(|fitted| &fitted.forecaster);
        let deployment = forecaster.map(|f| &f.deployment);
        let cost = self.judge.spec.engine.cost;
        let s = &run.summary;
        let output_tok_s = self.rate(load, run);
        let each = output_tok_s / cut.ranks() as f64;
        Some(CurvePoint {
            users: load.users,
            count: cut.ranks(),
            cut: *cut,
            weights: deployment.map_or_else(String::new, |d| d.weights.clone()),
            kv: deployment.map_or_else(String::new, |d| d.kv.name.to_owned()),
            engine: self.judge.space.shapes[load.shape].engine(self.judge.spec).to_owned(),
            interactivity_tok_s: if s.tpot.mean > 0.0 { 1e3 / s.tpot.mean } else { 0.0 },
            output_tok_s,
            output_tok_s_per_accelerator: each,
            tpot_ms: s.tpot.mean,
            tpot_p99_ms: s.tpot.p99,
            limit_tpot_ms: run.limit_tpot_ms.min(s.tpot.mean),
            ttft_ms: s.ttft.mean,
            ttft_p99_ms: s.ttft.p99,
            e2el_ms: s.e2el.mean,
            cost_per_million_tokens: price.as_ref().map(|price| price.usd_per_hour / 3600.0 / each * 1e6),
            joules_per_token: run.expense.watts.map(|watts| watts / output_tok_s),
            grams_co2e_per_million_tokens: emitted(self.judge.spec, run.expense.watts, output_tok_s),
            bound: run.bound,
            missed: missed(simulated, &self.judge.spec.slo).map(|miss| miss.reason),
            evidence: run.bands.as_ref().map(|bands| bands.evidence),
            kernels: forecaster.and_then(|f| timed(f, cost)),
            bands: run.bands.clone().filter(|_| cost == CostKind::Forecast),
        })
    }

    /// For each accelerator without a shape in `shapes`, the reason.
    fn left_out(&self, shapes: &[usize]) -> Vec<String> {
        let space = self.judge.space;
        let drawn = |chip: &Accelerator| shapes.iter().any(|index| space.shapes[*index].chip.id == chip.id);
        let reason = |chip: &Arc<Accelerator>| {
            let mut of_chip = (0..space.shapes.len()).filter(|index| space.shapes[*index].chip.id == chip.id);
            // The last shape of a chip is its largest replica.
            let why = of_chip.next_back().and_then(|index| match &self.judge.fitted[index] {
                Err(why) => Some(why.clone()),
                Ok(_) => self.judge.holds(index).map(|miss| miss.reason),
            });
            format!("{}: {}", chip.id, why.as_deref().unwrap_or("no replica of it is in the search"))
        };
        space.chips.iter().filter(|chip| !drawn(chip)).map(reason).collect()
    }
}
