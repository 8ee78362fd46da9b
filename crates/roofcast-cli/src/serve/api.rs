//! Questions of the page, answered with the verbs' answers.
//!
//! Knows: the answer to each question. Knows nothing about HTTP.

use super::accuracy::Accuracy;
use super::measure;
use super::models::{Known, Models};
use super::question::{
    self, AccuracyAsked, CapacityAsked, LimitsAsked, LimitsSweepAsked, MOST_REQUESTS, MeasureAsked,
    PlanAsked, SimulateAsked, SimulateSweepAsked,
};
use super::work::{Desk, Lines, Work};
use crate::args::StepArgs;
use crate::args::flags::{self, Machine, Planned, Traffic};
use crate::input::scenario::{Scenario, Source};
use crate::verbs::{capacity, limits, plan, simulate};
use anyhow::Result;
use bytes::Bytes;
use rayon::prelude::*;
use roofcast::capacity::CapacityQuestion;
use roofcast::catalog::{EntryKind, EntryLine};
use roofcast::cost::Utilization;
use roofcast::limits::LimitsQuestion;
use roofcast::memory;
use roofcast::plan::Trial;
use roofcast::report::chrome;
use roofcast::simulate::{RunOptions, Simulation, simulate_while};
use roofcast::{Catalog, Error, Forecaster, Model};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use toml::Table;

/// Most events of a downloaded trace.
const TRACED: u64 = 200_000;

/// Choices that the page offers: models, accelerators, engines and workloads.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CatalogAnswer"))]
pub(crate) struct Listing<'a> {
    pub(super) version: &'static str,
    pub(super) models: Vec<Cow<'a, EntryLine>>,
    pub(super) accelerators: Vec<Cow<'a, EntryLine>>,
    pub(super) workloads: Vec<Recorded<'a>>,
    /// Flags of each verb, by the paths of their keys.
    pub(super) flags: BTreeMap<&'static str, BTreeMap<&'static str, &'static str>>,
}

/// A published workload that the page offers.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Recorded<'a> {
    id: &'a str,
    about: &'a str,
    rate: Option<f64>,
}

/// Function that searches and writes the answer as JSON.
type Told = fn(&Scenario, &Arc<Model>, &roofcast::plan::PlanQuestion) -> Result<String>;

/// Everything that answers the page's questions: the catalog, dropped models, tables of measured points.
pub(crate) struct Api {
    catalog: Cow<'static, Catalog>,
    listing: Bytes,
    models: Models,
    desk: Desk,
    accuracy: Accuracy,
}

impl Api {
    /// Creates an API for a catalog, and for files of measured points by name and contents.
    pub(crate) fn new(catalog: Cow<'static, Catalog>, measured: Vec<(String, String)>) -> Result<Api> {
        let listing = serde_json::to_vec(&Listing::of(&catalog)?)?.into();
        let accuracy = Accuracy::new(measured);
        Ok(Api { catalog, listing, models: Models::default(), desk: Desk::new(), accuracy })
    }

    /// The choices that the page offers, as JSON.
    pub(super) fn listing(&self) -> Bytes {
        self.listing.clone()
    }

    fn source(&self, mut spec: Table) -> Result<Source> {
        question::texts(&mut spec)?;
        Ok(Source::received(spec, self.catalog.clone(), self.models.all()))
    }

    fn scenario(&self, spec: Table) -> Result<Scenario> {
        self.source(spec)?.scenario(&[])
    }

    /// The machine's limits, and memory capacity.
    pub(super) fn limits(&self, body: &[u8]) -> Result<String> {
        let request: LimitsAsked = question::read(body)?;
        let scenario = self.scenario(request.spec)?;
        let mut deployment = scenario.deployment()?;
        let batch = question::count("batch", request.batch.as_ref())?;
        let context = question::count("context", request.context.as_ref())?;
        let prefill = question::count("prefill", request.prefill.as_ref())?;
        let context = crate::input::context(context, &mut deployment);
        let question = LimitsQuestion {
            batch: batch.unwrap_or(1),
            context,
            prefill: prefill.unwrap_or(context),
            utilization: Utilization::FULL,
        };
        let forecaster = question.forecaster(deployment)?;
        let answer = roofcast::limits::limits(&forecaster, &question);
        let capacity = limits::view::capacity_of(&forecaster.deployment, &question);
        let view = limits::view::View::of(&forecaster, &question, &answer, &capacity);
        Ok(serde_json::to_string(&view)?)
    }

    /// Memory, the requests that fit, and the engine's verdict at start-up.
    pub(super) fn capacity(&self, body: &[u8]) -> Result<String> {
        let request: CapacityAsked = question::read(body)?;
        let mut deployment = self.scenario(request.spec)?.deployment()?;
        let batch = question::count("batch", request.batch.as_ref())?;
        let context = question::count("context", request.context.as_ref())?;
        let percent = question::percent("oversubscription", request.oversubscription.as_ref())?;
        let users = question::count("users", request.users.as_ref())?;
        memory::host_tier(&deployment, 0)?;
        let question = CapacityQuestion {
            context: crate::input::context(context, &mut deployment),
            batch: batch.unwrap_or(1),
            oversubscription_percent: percent.unwrap_or(100),
            users,
        };
        let answer = roofcast::capacity::capacity(&deployment, &question);
        Ok(serde_json::to_string(&capacity::view::View::of(&deployment, &question, &answer))?)
    }

    /// A sweep of one key over steps, streamed as deployments are compiled.
    pub(super) fn limits_sweep(&self, body: &[u8]) -> Result<Lines> {
        let request: LimitsSweepAsked = question::read(body)?;
        let batch = question::count("batch", request.batch.as_ref())?;
        let context = question::count("context", request.context.as_ref())?;
        let prefill = question::count("prefill", request.prefill.as_ref())?;
        let source = self.source(request.spec)?;
        let step = StepArgs::of(batch, context, prefill);
        Ok(self.desk.start(move |work| {
            let sweep = [request.sweep];
            let question = limits::sweep::Question { sweep: &sweep, step: &step, given: &[] };
            let swept = limits::sweep::Swept::of(&question, &source, &|done, all| work.at(done, all))?;
            Ok(serde_json::to_string(&swept.view())?)
        }))
    }

    /// A sweep of one key over simulations, streamed as runs end.
    pub(super) fn simulate_sweep(&self, body: &[u8]) -> Result<Lines> {
        let request: SimulateSweepAsked = question::read(body)?;
        let source = self.source(request.spec)?;
        Ok(self.desk.start(move |work| {
            let largest = AtomicU64::new(0);
            let goes_on = |requests| {
                largest.fetch_max(requests, Ordering::Relaxed).max(requests) <= MOST_REQUESTS
                    && work.goes_on()
            };
            let report = |done, all| {
                work.at(done, all);
            };
            let space = simulate::sweep::Space::received(source, &request.sweep)?;
            let swept = simulate::sweep::Swept::of(space, &report, &goes_on)?;
            question::requests(largest.into_inner())?;
            Ok(serde_json::to_string(&swept.view())?)
        }))
    }

    /// A simulation, streamed as it progresses.
    pub(super) fn simulate(&self, body: &[u8]) -> Result<Lines> {
        let request: SimulateAsked = question::read(body)?;
        let scenario = self.scenario(request.spec)?;
        Ok(self.desk.start(move |work| {
            let trace = Some(simulate::view::EVENTS);
            let (forecaster, run) = run(&scenario, work, RunOptions { series: true, trace, ..LEAPING })?;
            let view = simulate::view::View::of(&forecaster.deployment, &run, &scenario.spec);
            Ok(serde_json::to_string(&view)?)
        }))
    }

    /// A simulation as a trace that Perfetto opens, in a JSON string; streamed.
    pub(super) fn trace(&self, body: &[u8]) -> Result<Lines> {
        let request: SimulateAsked = question::read(body)?;
        let scenario = self.scenario(request.spec)?;
        Ok(self.desk.start(move |work| {
            let (_, run) = run(&scenario, work, RunOptions { trace: Some(TRACED), ..LEAPING })?;
            let lines: Vec<String> = chrome::lines(run.traces, run.kv_cache.blocks).collect();
            Ok(serde_json::to_string(&lines.join("\n"))?)
        }))
    }

    /// A plan, streamed as the search progresses.
    pub(super) fn plan(&self, body: &[u8]) -> Result<Lines> {
        self.searched(body, |scenario, model, question| {
            let planned = roofcast::plan::plan(&scenario.spec, model, &scenario.catalog, question);
            let answer = planned.map_err(|e| scenario.told(e))?;
            Ok(serde_json::to_string(&plan::view::View::of(scenario, model, &answer))?)
        })
    }

    /// Curves of throughput against interactivity, streamed as simulations end.
    pub(super) fn curves(&self, body: &[u8]) -> Result<Lines> {
        self.searched(body, |scenario, model, question| {
            let planned = roofcast::plan::curves(&scenario.spec, model, &scenario.catalog, question);
            let answer = planned.map_err(|e| scenario.told(e))?;
            Ok(serde_json::to_string(&plan::curves::View::of(scenario, model, &answer))?)
        })
    }

    /// Starts a search; `told` writes its answer as JSON.
    fn searched(&self, body: &[u8], told: Told) -> Result<Lines> {
        let request: PlanAsked = question::read(body)?;
        let scenario = self.scenario(request.spec)?;
        question::bounded(scenario.spec.workload.as_ref())?;
        question::searched(&scenario.spec)?;
        Ok(self.desk.start(move |work| {
            let model = scenario.model()?;
            let run_of = |trial: &Trial| trial.run_while(&mut |_, _| work.goes_on());
            let question = roofcast::plan::PlanQuestion {
                why: request.why.as_deref(),
                runner: &|trials| trials.par_iter().map(run_of).collect(),
                progress: &|simulated, _| {
                    work.at(simulated, 0);
                },
                goes_on: &|| work.goes_on(),
                ..roofcast::plan::PlanQuestion::default()
            };
            told(&scenario, &model, &question)
        }))
    }

    /// Comparison of a benchmark client's results with forecast and limit, streamed.
    pub(super) fn measure(&self, body: &[u8]) -> Result<Lines> {
        let request: MeasureAsked = question::read(body)?;
        let catalog = self.catalog.clone();
        let models = self.models.all();
        Ok(self
            .desk
            .start(move |_| Ok(serde_json::to_string(&measure::found(&request, &catalog, &models)?)?)))
    }

    /// Comparison of the measured points that the server was started with and their forecasts, streamed.
    pub(super) fn accuracy(&self) -> Lines {
        let accuracy = self.accuracy.clone();
        let catalog = self.catalog.clone();
        self.desk.start(move |work| accuracy.answer(&catalog, work))
    }

    /// Comparison of measured points that were dropped on the page and their forecasts, streamed.
    pub(super) fn dropped_accuracy(&self, body: &[u8]) -> Result<Lines> {
        let request: AccuracyAsked = question::read(body)?;
        let accuracy = Accuracy::new(vec![(request.name, request.text)]);
        let catalog = self.catalog.clone();
        Ok(self.desk.start(move |work| accuracy.answer(&catalog, work)))
    }

    /// Stores a model that was dropped on the page as a `config.json`.
    pub(super) fn model(&self, body: &[u8]) -> Result<String> {
        said(&self.models.config(&question::read(body)?)?)
    }

    /// Stores a model that was dropped on the page as a GGUF, of which the page sends the header.
    pub(super) fn gguf(&self, name: &str, body: &[u8]) -> Result<String> {
        said(&self.models.gguf(name, body)?)
    }
}

fn said(known: &Known) -> Result<String> {
    Ok(serde_json::to_string(known)?)
}

/// Options of a run that simulates equal steps at once and keeps only sums, for speed.
const LEAPING: RunOptions = RunOptions {
    leap: true,
    records: false,
    series: false,
    trace: None,
    end_when_missed: false,
    oracle: false,
};

fn run(scenario: &Scenario, work: &Work, options: RunOptions) -> Result<(Forecaster, Simulation)> {
    question::bounded(scenario.spec.workload.as_ref())?;
    let forecaster = Forecaster::embedded(scenario.deployment()?)?.under(scenario.spec.workload.as_ref())?;
    // A session of a trace has several requests, so its requests are counted as they are generated.
    let mut too_many = None;
    let watch = &mut |done, all| {
        too_many = Some(all).filter(|all| *all > MOST_REQUESTS);
        too_many.is_none() && work.at(done, all)
    };
    let run = simulate_while(&forecaster, &scenario.spec, &scenario.place, options, watch)
        .map_err(|e| scenario.told(e))?;
    question::requests(too_many.unwrap_or(0))?;
    Ok((forecaster, run))
}

impl<'a> Listing<'a> {
    pub(super) fn of(catalog: &'a Catalog) -> Result<Listing<'a>> {
        let lines = || catalog.listing().map(|all| all.into_iter().map(|listed| listed.line));
        let lines_of = |kind: EntryKind| Ok::<_, Error>(lines()?.filter(|line| line.kind == kind).collect());
        let traffic =
            |w: &&'a roofcast::preset::Preset| Recorded { id: &w.id, about: &w.about, rate: w.rate };
        Ok(Listing {
            version: env!("CARGO_PKG_VERSION"),
            models: lines_of(EntryKind::Model)?,
            accelerators: lines_of(EntryKind::Accelerator)?,
            workloads: catalog.workloads()?.iter().map(traffic).collect(),
            flags: BTreeMap::from([
                ("limits", flags::by_path::<Machine>()),
                ("capacity", flags::by_path::<Machine>()),
                (
                    "simulate",
                    flags::by_path::<Machine>().into_iter().chain(flags::by_path::<Traffic>()).collect(),
                ),
                ("plan", flags::by_path::<Planned>()),
            ]),
        })
    }
}
