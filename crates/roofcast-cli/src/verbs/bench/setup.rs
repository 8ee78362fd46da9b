//! From arguments to a client that is ready to measure.

use super::{Beside, Point, Subject, date};
use crate::args::{AskArgs, BenchArgs, JudgeArgs, LoadArgs};
use crate::bench::report::Judge;
use crate::bench::request::Form;
use crate::bench::target::{Endpoint, Target};
use crate::bench::window::Window;
use crate::bench::{Bench, How, Speech, texts, vocabulary};
use crate::input;
use crate::input::scenario::{EMPTY, Source};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use roofcast::record::Record;
use roofcast::spec::Slo;
use roofcast::spec::settings::Setting;
use roofcast::workload::{Arrivals, Length, Workload};
use roofcast::{Deployment, Error, Spec};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All that a measurement needs.
pub(super) struct Setup {
    bench: Bench,
    pub(super) spec: Spec,
    /// Where the workload is, in errors.
    place: String,
    pub(super) workload: Workload,
    pub(super) judge: Judge,
    /// The machine under the server, where it is named.
    pub(super) deployment: Option<Deployment>,
    pub(super) url: String,
    endpoint: Endpoint,
    model: String,
    tokenizer: Option<String>,
    date: String,
}

impl Setup {
    pub(super) fn new(args: &BenchArgs) -> Result<Setup> {
        let scenario = input::scenario(&args.deployment)?;
        let spec = scenario.spec.clone();
        let (place, mut workload) = workload(args, &spec)?;
        let speech = speech(args)?;
        if args.load.requests.is_none() && !speech.texts.is_empty() {
            workload.requests = Some(speech.texts.len() as u64);
        }
        let named = spec.hardware.accelerator.is_some();
        let deployment = if named { Some(scenario.deployment()?) } else { None };
        let model = match &args.served_model {
            Some(name) => name.clone(),
            None => scenario.model_name()?,
        };
        let target = target(&args.url, &args.how)?;
        let url = target.url.clone();
        let form = Form::new(args.endpoint, &model, !args.how.no_stream, args.how.extra_body.as_deref())?;
        let how = How { timeout: Duration::from_secs_f64(args.how.timeout), scrape: args.how.metrics };
        let judge = judge(&args.judge, &spec);
        let bench = Bench::new(target, form, how, speech)?;
        let endpoint = args.endpoint;
        let tokenizer = args.how.tokenizer.as_ref().map(|path| path.display().to_string());
        let date = date::of(SystemTime::now());
        Ok(Setup { bench, spec, place, workload, judge, deployment, url, endpoint, model, tokenizer, date })
    }

    /// One run.
    pub(super) fn measure(&mut self, workload: &Workload) -> Result<(Point, Vec<Record>)> {
        let bar = progress(workload.total());
        let told = |done| bar.set_position(done);
        let measured = self.bench.run(workload, &self.place, &self.judge, told)?;
        bar.finish_and_clear();
        let report = measured.report;
        let beside = match &self.deployment {
            Some(deployment) => Beside::of(deployment, &self.spec, &self.place, workload, &report)?,
            None => Beside::default(),
        };
        let point = Point {
            num_prompts: measured.records.len() as u64,
            request_rate: report.requested.rate.map_or("inf".into(), Into::into),
            // vLLM's burstiness is the shape of gamma gaps: 1 is Poisson, and where there are none.
            burstiness: match report.requested.rate {
                Some(_) => Some(1.0 / workload.arrivals.cv2()).filter(|b| b.is_finite()),
                None => Some(1.0),
            },
            max_concurrency: report.requested.concurrency,
            report,
            beside,
            server: measured.server,
        };
        Ok((point, measured.records))
    }

    /// What the server calls the model.
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
        }
    }
}

/// Prints the spec that a measurement would have, load and SLO among it.
pub(super) fn dump(args: &BenchArgs) -> Result<()> {
    let machine = &args.deployment;
    let flags = machine.flags.settings.as_slice();
    let source = Source::read(machine.spec.as_deref(), EMPTY, &machine.source, &[flags])?;
    let asked = source.scenario(&[])?;
    let (_, load) = workload(args, &asked.spec)?;
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut settings = vec![Setting::new("workload.seed", whole(load.seed))];
    settings.extend(load.requests.map(|n| Setting::new("workload.requests", whole(n))));
    for (path, length) in [("workload.input_len", &load.input_len), ("workload.output_len", &load.output_len)]
    {
        if let Length::Tokens(tokens) = length {
            settings.push(Setting::new(path, whole(*tokens)));
        }
    }
    let number = |key: &str, v: f64| Setting::new(&format!("workload.arrivals.{key}"), v);
    match &load.arrivals {
        Arrivals::ClosedLoop { concurrency, .. } => {
            settings.push(Setting::new("workload.arrivals.concurrency", whole(*concurrency)));
        }
        Arrivals::Poisson { rate } => settings.push(number("rate", *rate)),
        Arrivals::Constant { rate } => {
            settings.extend([Setting::new("workload.arrivals.kind", "constant"), number("rate", *rate)]);
        }
        Arrivals::Gamma { rate, burstiness } => {
            settings.extend([number("rate", *rate), number("burstiness", *burstiness)]);
        }
        // Only a spec says these, and then they are in it.
        _ => {}
    }
    let slo = judge(&args.judge, &asked.spec).slo;
    for (key, bound) in [("ttft", slo.ttft_p99_ms), ("tpot", slo.tpot_p99_ms), ("e2el", slo.e2el_p99_ms)] {
        settings.extend(bound.map(|ms| Setting::new(&format!("slo.{key}_p99_ms"), ms)));
    }
    let scenario = source.scenario(&settings)?;
    let named = scenario.spec.hardware.accelerator.is_some();
    let deployment = if named { Some(scenario.deployment()?) } else { None };
    scenario.dump(&format!("bench SPEC.toml --url {}", args.url), deployment.as_ref(), &SECTIONS)
}

/// Sections of a spec that a measurement reads.
const SECTIONS: [&str; 7] = ["model", "hardware", "precision", "parallelism", "engine", "workload", "slo"];

fn speech(args: &BenchArgs) -> Result<Speech> {
    let how = &args.how;
    let place = |path: &Path| path.display().to_string();
    let texts = match &how.prompts {
        Some(path) => texts::parse(&place(path), &input::text(path)?)?,
        None => Vec::new(),
    };
    let vocabulary = match &how.tokenizer {
        Some(path) => Some(vocabulary::parse(&place(path), &input::text(path)?)?),
        None => None,
    };
    Ok(Speech { texts, vocabulary, seed: args.load.seed.unwrap_or_else(any_seed), learn: !how.assume_tokens })
}

/// Where no seed is given, words that no earlier run has said.
fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64)
}

fn target(url: &str, how: &AskArgs) -> Result<Target> {
    let key = std::env::var(&how.api_key_env).ok().filter(|k| !k.trim().is_empty());
    Target::resolve(url, &how.header, key.as_deref())
}

fn judge(args: &JudgeArgs, spec: &Spec) -> Judge {
    Judge {
        slo: Slo {
            ttft_p99_ms: args.slo_ttft.or(spec.slo.ttft_p99_ms),
            tpot_p99_ms: args.slo_tpot.or(spec.slo.tpot_p99_ms),
            e2el_p99_ms: args.slo_e2el.or(spec.slo.e2el_p99_ms),
            goodput: None,
        },
        window: Window { warmup: args.warmup, cooldown: args.cooldown },
        most_lag_ms: args.max_lag,
    }
}

/// The spec's workload with the flags over it, and its place in errors.
fn workload(args: &BenchArgs, spec: &Spec) -> Result<(String, Workload)> {
    let load = &args.load;
    let place = args.deployment.spec.as_ref().map_or("arguments".to_owned(), |p| p.display().to_string());
    let mut workload = spec.workload.clone().unwrap_or_else(|| Workload {
        requests: None,
        seed: 0,
        arrivals: Arrivals::ClosedLoop { concurrency: 1, think_s: None },
        input_len: Length::Tokens(512),
        output_len: Length::Tokens(128),
        prefix: None,
        priorities: Vec::new(),
        max_tokens: None,
    });
    if load.rate.is_some_and(|r| !(1e-6..=1e9).contains(&r)) {
        let found = load.rate.unwrap_or_default();
        return Err(Error::field("arguments", "--rate", found, "requests per second above 0").into());
    }
    let paced = load.rate.is_some()
        || args.find_rate.is_some()
        || args.sweep.as_deref().is_some_and(|s| s.starts_with("rate="));
    if (load.constant || load.burstiness.is_some()) && !paced {
        let accepted = "--rate, --find-rate or --sweep rate=VALUES with them";
        return Err(Error::field("arguments", "--constant, --burstiness", "without a rate", accepted).into());
    }
    workload.arrivals = arrivals(load).unwrap_or(workload.arrivals);
    workload.seed = load.seed.unwrap_or(workload.seed);
    workload.input_len = load.input_len.map_or(workload.input_len, Length::Tokens);
    workload.output_len = load.output_len.map_or(workload.output_len, Length::Tokens);
    let asked = load.requests.or(workload.requests);
    workload.requests = asked.or_else(|| default_requests(&workload.arrivals));
    workload.check(&place)?;
    Ok((place, workload))
}

fn arrivals(load: &LoadArgs) -> Option<Arrivals> {
    match (load.concurrency, load.rate) {
        (Some(concurrency), _) => Some(Arrivals::ClosedLoop { concurrency, think_s: None }),
        (None, Some(rate)) => Some(open(rate, load)),
        (None, None) => None,
    }
}

/// An open loop at a rate.
pub(super) fn open(rate: f64, load: &LoadArgs) -> Arrivals {
    match load.burstiness {
        Some(burstiness) => Arrivals::Gamma { rate, burstiness },
        None if load.constant => Arrivals::Constant { rate },
        None => Arrivals::Poisson { rate },
    }
}

/// Ten a user, and at least a hundred; all of a trace.
fn default_requests(arrivals: &Arrivals) -> Option<u64> {
    match arrivals {
        Arrivals::ClosedLoop { concurrency, .. } => Some((concurrency * 10).max(100)),
        Arrivals::Trace { .. } => None,
        _ => Some(100),
    }
}

fn progress(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} answers, {elapsed}") {
        bar.set_style(style);
    }
    bar
}
