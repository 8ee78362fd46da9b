//! `roofcast bench`: a live server under load.

use crate::args::{AskArgs, BenchArgs, JudgeArgs, LoadArgs};
use crate::bench::Bench;
use crate::bench::report::{Judge, Report};
use crate::bench::request::Form;
use crate::bench::target::Target;
use crate::bench::window::Window;
use crate::show::number::{grouped, percent, significant};
use crate::show::{self, table};
use crate::{exit, input};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use roofcast::spec::Slo;
use roofcast::workload::{Arrivals, Length, Workload};
use roofcast::{Error, Spec};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Serialize)]
struct Answer<'a> {
    url: &'a str,
    endpoint: &'static str,
    backend: &'static str,
    model_id: &'a str,
    num_prompts: u64,
    request_rate: serde_json::Value,
    max_concurrency: Option<u64>,
    #[serde(flatten)]
    report: &'a Report,
}

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    let spec = input::spec(args.deployment.spec.as_deref())?;
    let (place, workload) = workload(args, &spec)?;
    let model = served_model(args, &spec)?;
    let judge = judge(&args.judge, &spec);
    let target = target(&args.url, &args.how)?;
    let url = target.url.clone();
    let form = Form::new(args.endpoint, &model, !args.how.no_stream, args.how.extra_body.as_deref())?;
    let timeout = Duration::from_secs_f64(args.how.timeout);
    let bench = Bench::new(target, form, timeout, workload.seed, !args.how.assume_tokens)?;
    let bar = progress(workload.total());
    let (report, records) = bench.run(&workload, &place, &judge, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    if let Some(path) = &args.records {
        show::lines(path, records.iter().map(|r| r.to_line()))?;
    }
    let answer = Answer {
        url: &url,
        endpoint: args.endpoint.path(),
        backend: args.endpoint.vllm_name(),
        model_id: &model,
        num_prompts: records.len() as u64,
        request_rate: report.requested.rate.map_or("inf".into(), Into::into),
        max_concurrency: report.requested.concurrency,
        report: &report,
    };
    if args.output.json {
        show::json("roofcast/bench/1", &answer)?;
    } else {
        show::text(&people(&answer))?;
    }
    Ok(if report.valid { ExitCode::SUCCESS } else { exit::invalid() })
}

/// What the server calls the model.
fn served_model(args: &BenchArgs, spec: &Spec) -> Result<String> {
    match &args.served_model {
        Some(name) => Ok(name.clone()),
        None => input::named(&args.deployment, spec),
    }
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
        },
        window: Window { warmup: args.warmup, cooldown: args.cooldown },
        most_lag_ms: args.max_lag,
    }
}

/// The spec's workload with the flags over it, loaded; and its place in errors.
fn workload(args: &BenchArgs, spec: &Spec) -> Result<(String, Workload)> {
    let load = &args.load;
    let place = args.deployment.spec.as_ref().map_or("arguments".to_owned(), |p| p.display().to_string());
    let given = arrivals(load);
    let mut workload = spec.workload.clone().unwrap_or_else(|| Workload {
        requests: None,
        seed: 0,
        arrivals: Arrivals::ClosedLoop { concurrency: 1, think_s: None },
        input_len: Length::Tokens(512),
        output_len: Length::Tokens(128),
        prefix: None,
        priorities: Vec::new(),
    });
    workload.arrivals = given.unwrap_or(workload.arrivals);
    workload.seed = load.seed.unwrap_or(workload.seed);
    workload.input_len = load.input_len.map_or(workload.input_len, Length::Tokens);
    workload.output_len = load.output_len.map_or(workload.output_len, Length::Tokens);
    let asked = load.requests.or(workload.requests);
    workload.requests = asked.or_else(|| default_requests(&workload.arrivals));
    let folder = args.deployment.spec.as_deref().and_then(std::path::Path::parent);
    workload.load(&place, |path| input::text(&folder.unwrap_or("".as_ref()).join(path)))?;
    if load.rate.is_some_and(|r| !(r > 0.0)) {
        return Err(
            Error::field("arguments", "--rate", format!("{:?}", load.rate), "a number above 0").into()
        );
    }
    workload.check(&place)?;
    Ok((place, workload))
}

fn arrivals(load: &LoadArgs) -> Option<Arrivals> {
    match (load.concurrency, load.rate) {
        (Some(concurrency), _) => Some(Arrivals::ClosedLoop { concurrency, think_s: None }),
        (None, Some(rate)) if load.constant => Some(Arrivals::Constant { rate }),
        (None, Some(rate)) => Some(Arrivals::Poisson { rate }),
        (None, None) => None,
    }
}

/// Ten a user, and a hundred; all of a trace.
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

fn people(answer: &Answer) -> String {
    let r = answer.report;
    let s = &r.summary;
    let mut text = format!("{} at {}{}\n\n", answer.model_id, answer.url, answer.endpoint);
    let good = s.request_goodput().map_or(String::new(), |g| format!(", {} /s met the SLO", significant(g)));
    let mut pairs = vec![
        (
            "requests",
            format!(
                "{} in {} s: {} /s{good}",
                grouped(s.completed),
                significant(s.duration),
                significant(s.request_throughput())
            ),
        ),
        (
            "throughput",
            format!(
                "{} output tok/s, {} with prompts",
                significant(s.output_throughput()),
                significant(s.total_token_throughput())
            ),
        ),
        ("load", load(r)),
        (
            "client",
            format!(
                "lag {} ms (p99), sent {} ms late (p99), {} CPU-s per 1,000 tokens",
                significant(r.client.lag_ms_p99),
                significant(r.client.send_delay_ms_p99),
                significant(r.client.cpu_s_per_1k_tokens)
            ),
        ),
    ];
    if let Some(exact) = r.exact_prompts {
        pairs.push(("prompts", format!("{} of exactly the length asked for", percent(exact))));
    }
    text += &table::pairs(&pairs);
    let scheduled = [("ttft*", &r.ttft_from_schedule), ("e2el*", &r.e2el_from_schedule)];
    let rows = s.metrics().into_iter().chain(scheduled).map(|(name, s)| {
        let figures = [s.mean, s.median, s.p90, s.p95, s.p99].map(significant);
        [name.to_uppercase()].into_iter().chain(figures).collect::<Vec<_>>()
    });
    text += &table::table(&["ms", "mean", "p50", "p90", "p95", "p99"], &rows.collect::<Vec<_>>(), 1);
    text += "* from the scheduled time\n\n";
    for (kind, failures) in &r.failures {
        let kind = serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(str::to_owned));
        text += &format!("{} × {}: {}\n", failures.count, kind.unwrap_or_default(), failures.first);
    }
    for reason in &r.invalid_because {
        text += &format!("INVALID: {reason}\n");
    }
    text
}

fn load(r: &Report) -> String {
    let concurrency = match r.requested.concurrency {
        Some(users) => format!("{} of {} requests in flight", significant(r.achieved_concurrency), users),
        None => format!("{} requests in flight", significant(r.achieved_concurrency)),
    };
    match (r.requested.rate, r.achieved_rate) {
        (Some(rate), Some(achieved)) => {
            format!("{} of {} /s sent, {concurrency}", significant(achieved), significant(rate))
        }
        _ => concurrency,
    }
}
