//! Conversion of arguments to a client that is ready to measure.

use super::beside::OfferedLoad;
use super::{Beside, Point, Subject, date, speech};
use crate::args::{AskArgs, BenchArgs, JudgeArgs};
use crate::bench::load::{Bounds, Cancelling};
use crate::bench::pixels;
use crate::bench::report::Judge;
use crate::bench::request::Form;
use crate::bench::target::{Endpoint, Target};
use crate::bench::window::Window;
use crate::bench::{Bench, How, Told};
use crate::input::scenario::{EMPTY, Scenario, Source};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use roofcast::record::Record;
use roofcast::spec::settings::Setting;
use roofcast::spec::{Metric, Percentile, Slo, slo_key};
use roofcast::workload::{Arrivals, Workload, series};
use roofcast::{Deployment, Error, Spec};
use std::io::Write;
use std::time::{Duration, SystemTime};

/// Settings of a load that come from flags and have no key in the workload.
#[derive(Debug, Clone, Copy)]
struct LoadGiven {
    /// True if the gaps between arrivals are constant.
    constant: bool,
    /// True if a duration ends the run, rather than the number of requests.
    timed: bool,
    /// Number of prompts in the file, which is the default number of requests.
    texts: Option<u64>,
}

/// Everything that a measurement needs.
pub(super) struct Setup {
    bench: Bench,
    pub(super) spec: Spec,
    /// Source of the load's spec; the next field is its name in errors.
    source: Source,
    place: String,
    given: LoadGiven,
    pub(super) workload: Workload,
    pub(super) judge: Judge,
    /// Deployment behind the server, if its hardware is named.
    pub(super) deployment: Option<Deployment>,
    pub(super) url: String,
    endpoint: Endpoint,
    model: String,
    tokenizer: Option<String>,
    date: String,
    /// Timeout of a response.
    patience: Duration,
}

impl Setup {
    /// Prepares a measurement. `first` is the first value of each swept key, without which the load may be incomplete.
    pub(super) fn new(args: &BenchArgs, first: &[Setting]) -> Result<Setup> {
        let source = source(args)?;
        let scenario = source.scenario(first)?;
        let spec = scenario.spec.clone();
        let place = args.deployment.spec.as_ref();
        let place = place.map_or("arguments".to_owned(), |path| path.display().to_string());
        let endpoint = endpoint(args)?;
        let speech = speech::of(args, endpoint)?;
        let texts = Some(speech.texts.len() as u64).filter(|texts| *texts > 0);
        let given = LoadGiven { texts, ..LoadGiven::of(args) };
        let workload = load(&scenario, given, &place)?;
        // Limit and forecast exist only for endpoints that generate tokens.
        let named = spec.hardware.accelerator.is_some() && endpoint.generates();
        let deployment = if named { Some(scenario.deployment()?) } else { None };
        let model = match &args.served_model {
            Some(name) => name.clone(),
            None => scenario.model_name()?,
        };
        let targets: Vec<_> =
            args.url.iter().map(|url| target(url, endpoint, &args.how)).collect::<Result<_>>()?;
        let url = targets.iter().map(|target| target.url.as_str()).collect::<Vec<_>>().join(",");
        let form = Form::new(endpoint, &model, !args.how.no_stream, args.how.extra_body.as_deref())?;
        let how = How {
            timeout: Duration::from_secs_f64(args.how.timeout),
            scrape: args.how.metrics,
            bounds: Bounds {
                duration: args.load.duration.map(Duration::from_secs_f64),
                most_failures: args.judge.max_failures,
                oversaturation: args.judge.stop_oversaturated,
            },
            cancelling: Cancelling {
                share: args.load.cancel_share.unwrap_or(0.0),
                after: Duration::from_secs_f64(args.load.cancel_after),
            },
            repeats: args.how.retry_after,
            ready: args.how.wait_ready.map(Duration::from_secs_f64),
            resets: args.how.reset_cache,
            network: args.judge.network_latency,
        };
        let mut judge = judge(&args.judge, &spec);
        // Requests sent while users begin are not judged, as in a simulation.
        judge.window.warmup_s = judge.window.warmup_s.max(workload.arrivals.ramped().seconds());
        super::search::check(args, &judge.slo, &workload)?;
        if let Some(images) = &workload.images {
            pixels::check(&place, images)?;
            let sees = [Endpoint::Chat, Endpoint::Responses, Endpoint::Messages].contains(&endpoint);
            if !sees || args.how.prompts.is_some() {
                let accepted = "--endpoint chat, responses or messages, without --prompts, whose rows have their own images";
                return Err(Error::field(&place, "workload.images", "set", accepted).into());
            }
        }
        let power = args.how.power.iter().map(|url| exporter(url, &args.how)).collect::<Result<_>>()?;
        let bench = Bench::new((targets, power), form, how, speech, &mut |told| match told {
            Told::Probing => probing(&url),
            _ => silent(&url, how.timeout),
        })?;
        let tokenizer = args.how.tokenizer.as_ref().map(|path| path.display().to_string());
        let date = date::of(SystemTime::now());
        Ok(Setup {
            bench,
            spec,
            source,
            place,
            given,
            workload,
            judge,
            deployment,
            url,
            endpoint,
            model,
            tokenizer,
            date,
            patience: how.timeout,
        })
    }

    /// The load with `setting` applied.
    pub(super) fn at(&self, setting: Setting) -> Result<Workload> {
        load(&self.source.scenario(&[setting])?, self.given, &self.place)
    }

    /// Measures one run of a workload.
    pub(super) fn measure(&mut self, workload: &Workload) -> Result<(Point, Vec<Record>)> {
        let bar = progress(workload.total(), self.given.timed);
        let url = self.url.clone();
        let patience = self.patience;
        let on_event = |told| match told {
            Told::Answers(done) => bar.set_position(done),
            Told::Silent => bar.suspend(|| silent(&url, patience)),
            Told::Timing => bar.suspend(|| timing(&url)),
            Told::Probing => {}
        };
        let measured = self.bench.run(workload, &self.place, &self.judge, on_event)?;
        bar.finish_and_clear();
        let report = measured.report;
        let mut offered = workload.clone();
        if self.given.timed {
            offered.requests = Some(measured.records.len().max(1) as u64);
        }
        let load = OfferedLoad::of(offered, self.given.texts.is_none(), &report);
        let beside = match &self.deployment {
            Some(deployment) => Beside::of(deployment, &self.spec, &self.place, &load, &report)?,
            None => Beside::default(),
        };
        let point = Point {
            num_prompts: measured.records.len() as u64,
            request_rate: report.requested.rate.map_or("inf".into(), Into::into),
            // vLLM's burstiness is the shape parameter of gamma-distributed gaps between arrivals: 1 is Poisson. vLLM
            // reports 1 also without a rate.
            burstiness: match report.requested.rate {
                Some(_) => Some(1.0 / workload.arrivals.cv2()).filter(|b| b.is_finite()),
                None => Some(1.0),
            },
            max_concurrency: report.requested.concurrency,
            workload: serde_json::to_value(&load.workload)?,
            report,
            beside,
            server: measured.server,
            energy: measured.energy,
        };
        Ok((point, measured.records))
    }

    /// Name by which the server knows the model.
    pub(super) fn served(&self) -> &str {
        &self.model
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            url: &self.url,
            endpoint: self.endpoint.path(),
            backend: self.endpoint.vllm_name(),
            endpoint_type: self.endpoint.vllm_name(),
            model_id: &self.model,
            tokenizer_id: self.tokenizer.as_deref().unwrap_or(&self.model),
            date: self.date.clone(),
            assumptions: self.deployment.as_ref().map_or(&[], |deployment| &deployment.assumptions),
        }
    }
}

/// Prints the spec of the measurement, including load and SLO.
pub(super) fn dump(args: &BenchArgs, first: &[Setting]) -> Result<()> {
    let source = source(args)?;
    let mut settings = first.to_vec();
    let described = source.scenario(&settings)?;
    let load = load(&described, LoadGiven::of(args), "arguments")?;
    if args.load.constant {
        settings.push(Setting::new("workload.arrivals.kind", "constant"));
    }
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    settings.extend(load.requests.map(|n| Setting::new("workload.requests", whole(n))));
    let slo = judge(&args.judge, &described.spec).slo;
    settings.extend(
        slo.bounds().map(|b| Setting::new(&format!("slo.{}", slo_key(b.metric, b.percentile)), b.ms)),
    );
    settings.extend(slo.goodput.map(|share| Setting::new("slo.goodput", share)));
    let scenario = source.scenario(&settings)?;
    let named = scenario.spec.hardware.accelerator.is_some();
    let deployment = if named { Some(scenario.deployment()?) } else { None };
    scenario.dump(
        &format!("bench SPEC.toml --url {}", args.url.join(" --url ")),
        deployment.as_ref(),
        &SECTIONS,
    )
}

/// Sections of a spec that a measurement reads.
const SECTIONS: [&str; 7] = ["model", "hardware", "precision", "parallelism", "engine", "workload", "slo"];

/// Reports on stderr that short requests precede the run.
fn probing(url: &str) {
    let text = format!(
        "probing: {url} counts some words as several tokens; up to 65 more short requests, 16 at a time, find words of one \
         token (--assume-tokens sends none)"
    );
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Reports on stderr that short requests measure the network.
fn timing(url: &str) {
    let text = format!(
        "measuring: ten requests to {url}/health, for at most 5 s, tell the network's latency (--network-latency measure)"
    );
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Reports on stderr, while no answer arrives, that the client is waiting.
fn silent(url: &str, patience: Duration) {
    let text = format!(
        "waiting: nothing has come from {url} for 5 s; an answer may take {} s (--timeout), Ctrl-C ends the run",
        patience.as_secs_f64()
    );
    // If stderr is closed, only this line is lost.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// The endpoint: as the flag names it, else by the end of the URL.
fn endpoint(args: &BenchArgs) -> Result<Endpoint> {
    let named = |url: &String| Endpoint::of_path(url.split(['?', '#']).next().unwrap_or_default());
    let by_url = args.url.iter().find_map(named);
    match (args.endpoint, by_url) {
        (Some(flag), Some(url)) if flag != url => {
            let endpoint = format!("{} together with a URL that ends in {}", flag.path(), url.path());
            Err(Error::field("arguments", "--endpoint", endpoint, "one endpoint").into())
        }
        (flag, url) => Ok(flag.or(url).unwrap_or(Endpoint::Completions)),
    }
}

fn target(url: &str, endpoint: Endpoint, how: &AskArgs) -> Result<Target> {
    let key = std::env::var(&how.api_key_env).ok().filter(|k| !k.trim().is_empty());
    let mut target = Target::resolve(url, &how.header, key.as_deref(), |name| std::env::var(name).ok())?;
    target.insecure = how.insecure;
    if endpoint == Endpoint::Messages {
        target.speak_anthropic(key.as_deref())?;
    }
    Ok(target)
}

/// Target of the power exporter at `url`, which gets none of the measured server's headers; `None` for `local`, this
/// machine's counters.
fn exporter(url: &str, how: &AskArgs) -> Result<Option<Target>> {
    if url == "local" {
        return Ok(None);
    }
    // A URL may end with the default path of metrics, or without it.
    let url = url.trim_end_matches('/').trim_end_matches("/metrics");
    let resolved = Target::resolve(url, &[], None, |name| std::env::var(name).ok());
    let mut target = resolved.map_err(|_| {
        let accepted = "local, or an exporter as http://HOST:9400";
        Error::field("arguments", "--power", format!("{url:?}"), accepted)
    })?;
    target.insecure = how.insecure;
    Ok(Some(target))
}

fn judge(args: &JudgeArgs, spec: &Spec) -> Judge {
    let bounds = [args.slo_ttft, args.slo_tpot, args.slo_e2el];
    let with_bound = |slo: Slo, (metric, ms): (Metric, Option<f64>)| match ms {
        Some(ms) => slo.with(metric, Percentile::P99, Some(ms)),
        None => slo,
    };
    Judge {
        slo: Metric::OF_A_REQUEST.into_iter().zip(bounds).fold(spec.slo, with_bound),
        window: Window {
            warmup: args.warmup.requests,
            cooldown: args.cooldown.requests,
            warmup_s: args.warmup.seconds,
            cooldown_s: args.cooldown.seconds,
        },
        most_lag_ms: args.max_lag,
        network: None,
        slice_s: args.slice_duration,
    }
}

/// The load of a measurement whose spec and flags have none.
const LOAD: &str = "input_len = 512\noutput_len = 128\n[arrivals]\nkind = \"closed_loop\"\nconcurrency = 1";

/// The spec with the flags applied, and with a default load.
fn source(args: &BenchArgs) -> Result<Source> {
    let given = |path: &str| args.load.flags.get(path).is_some();
    let series = series(args)?;
    if !series.is_empty()
        && ["rate", "concurrency"].iter().any(|key| given(&format!("workload.arrivals.{key}")))
    {
        let accepted = "one pace: --rate-series, --rate or --concurrency";
        return Err(Error::field("arguments", "--rate-series", "together with another pace", accepted).into());
    }
    let flags = [args.deployment.flags.settings.as_slice(), &args.load.flags.settings, &series];
    let source = Source::read(args.deployment.spec.as_deref(), EMPTY, &args.deployment.source, &flags)?;
    let source = source.or("workload", LOAD.parse()?);
    let paced = given("workload.arrivals.rate")
        || args.find_rate.is_some()
        || args.sweep.as_deref().is_some_and(|s| s.starts_with("rate="));
    if (args.load.constant || given("workload.arrivals.burstiness")) && !paced {
        let accepted = "--rate, --find-rate or --sweep rate=VALUES with them";
        return Err(Error::field("arguments", "--constant, --burstiness", "without a rate", accepted).into());
    }
    Ok(source)
}

/// The arrivals of the file of `--rate-series`.
fn series(args: &BenchArgs) -> Result<Vec<Setting>> {
    let Some(path) = &args.load.rate_series else { return Ok(Vec::new()) };
    let place = path.display().to_string();
    let text = crate::input::text(path)?;
    let points = series::read(&place, &text)?;
    let points: Vec<toml::Value> = points.iter().map(|point| point.to_vec().into()).collect();
    let mut arrivals = toml::Table::new();
    arrivals.insert("kind".into(), "series".into());
    arrivals.insert("points".into(), points.into());
    Ok(vec![Setting::new("workload.arrivals", arrivals)])
}

impl LoadGiven {
    fn of(args: &BenchArgs) -> LoadGiven {
        LoadGiven { constant: args.load.constant, timed: args.load.duration.is_some(), texts: None }
    }
}

/// A number of requests that no run reaches, for runs that end after a duration.
const ENDLESS: u64 = 100_000_000;

/// The load of a scenario, with as many requests as the prompt file has or the users need, if the number is not given.
fn load(scenario: &Scenario, given: LoadGiven, place: &str) -> Result<Workload> {
    let lacking = || Error::field(place, "workload", "missing", "a load");
    let mut workload = scenario.spec.workload.clone().ok_or_else(lacking)?;
    workload.without_adapters(place, "omitted in a measurement, whose requests name one model")?;
    match workload.arrivals {
        Arrivals::Poisson { rate } if given.constant => workload.arrivals = Arrivals::Constant { rate },
        _ => {}
    }
    let recorded = matches!(workload.arrivals, Arrivals::Trace(_));
    let timed = (given.timed && !recorded).then(|| workload.arrivals.most_requests().min(ENDLESS));
    let requests = workload.requests.or(timed).or(given.texts);
    workload.requests = requests.or_else(|| default_requests(&workload.arrivals));
    workload.check(place)?;
    Ok(workload)
}

/// Number of requests by default: ten per user and at least a hundred; `None` for a trace, which is replayed whole.
fn default_requests(arrivals: &Arrivals) -> Option<u64> {
    match arrivals {
        Arrivals::ClosedLoop { concurrency, .. } => Some((concurrency * 10).max(100)),
        Arrivals::Trace(_) | Arrivals::Series { .. } => None,
        _ => Some(100),
    }
}

fn progress(total: u64, timed: bool) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let line =
        if timed { "{spinner} {pos} answers, {elapsed}" } else { "{bar:40} {pos}/{len} answers, {elapsed}" };
    if let Ok(style) = ProgressStyle::with_template(line) {
        bar.set_style(style);
    }
    bar
}
