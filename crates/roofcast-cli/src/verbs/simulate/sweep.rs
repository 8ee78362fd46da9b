//! `roofcast simulate --sweep KEY=VALUES`: one run a value, several at a time.

mod picture;

use super::{Answer, about, applied, source};
use crate::args::SimulateArgs;
use crate::input::values::{refused, settings};
use crate::show::number::{grouped, percent, significant};
use crate::show::progress::Progress;
use crate::show::target::Target;
use crate::show::{self, table};
use crate::verbs::band_factors;
use crate::{exit, input};
use anyhow::{Context, Result};
use rayon::prelude::*;
use roofcast::report;
use roofcast::simulate::{Options, Simulation, simulate_while};
use roofcast::spec::Slo;
use roofcast::{Deployment, Error, Forecaster, Spec};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Short names of keys.
const KEYS: [(&str, &str); 18] = [
    ("rate", "workload.arrivals.rate"),
    ("concurrency", "workload.arrivals.concurrency"),
    ("burstiness", "workload.arrivals.burstiness"),
    ("requests", "workload.requests"),
    ("seed", "workload.seed"),
    ("input_len", "workload.input_len"),
    ("output_len", "workload.output_len"),
    ("scheduler", "engine.scheduler"),
    ("policy", "engine.policy"),
    ("cost", "engine.cost"),
    ("max_num_seqs", "engine.max_num_seqs"),
    ("max_num_batched_tokens", "engine.max_num_batched_tokens"),
    ("block_size", "engine.block_size"),
    ("num_gpu_blocks", "engine.num_gpu_blocks"),
    ("gpu_memory_utilization", "engine.gpu_memory_utilization"),
    ("replicas", "parallelism.replicas"),
    ("tp", "parallelism.tp"),
    ("router", "fleet.router"),
];

#[derive(Serialize)]
struct Sweep<'a> {
    sweep: &'a str,
    /// Whether values are missing, as Ctrl-C came before their runs had ended.
    interrupted: bool,
    points: Vec<Point<'a>>,
}

#[derive(Serialize)]
struct Point<'a> {
    value: &'a toml::Value,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// A run of the sweep.
struct Run {
    value: toml::Value,
    slo: Slo,
    deployment: Deployment,
    simulation: Simulation,
}

impl Run {
    fn point(&self) -> Point<'_> {
        let answer =
            Answer { about: about(&self.deployment, &self.simulation), simulation: &self.simulation };
        Point { value: &self.value, answer }
    }
}

pub(super) fn run(args: &SimulateArgs, text: &str, picture: Option<&Target>) -> Result<ExitCode> {
    let (key, values) = parse(args, text)?;
    let (place, spec) = source(args)?;
    let threads = args.threads.map_or(0, |n| n as usize);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let (asked, progress) = (values.len(), Progress::new("runs")?);
    progress.at(0, asked as u64);
    let one = |value: toml::Value| {
        let shown = format!("with {key} = {value}");
        let run = progress.goes_on().then(|| one(args, &place, &spec, key, value, &progress).context(shown));
        progress.more(1);
        run
    };
    // All results first: the error that is shown is that of the first value, whichever run ended first.
    let runs: Vec<Option<Result<Run>>> = pool.install(|| values.into_par_iter().map(one).collect());
    drop(progress);
    let mut runs = runs.into_iter().flatten().collect::<Result<Vec<Run>>>()?;
    runs.retain(|run| !run.simulation.interrupted);
    let interrupted = runs.len() < asked;
    if runs.is_empty() {
        return Err(Error::field("arguments", "--sweep", "interrupted", "one run that ends").into());
    }
    if let Some(picture) = picture {
        picture.text(&report::sweep::svg(&picture::of(key, &runs)))?;
    }
    if args.output.json {
        show::json(
            "roofcast/simulate-sweep/2",
            &Sweep { sweep: key, interrupted, points: runs.iter().map(Run::point).collect() },
        )?;
    } else if args.output.csv {
        show::csv(&header(key), &runs.iter().map(|run| row(run, interrupted)).collect::<Vec<_>>())?;
    } else {
        if interrupted {
            show::text(&format!("PARTIAL: interrupted when {} of {asked} runs had ended\n\n", runs.len()))?;
        }
        show::text(&people(key, &runs))?;
    }
    let served = runs.iter().any(|run| run.simulation.summary.completed > 0);
    Ok(match served {
        _ if interrupted => exit::invalid(),
        true => ExitCode::SUCCESS,
        false => exit::infeasible(),
    })
}

/// The dotted key and its values.
fn parse<'a>(args: &SimulateArgs, text: &'a str) -> Result<(&'a str, Vec<toml::Value>), Error> {
    let bad = || {
        let names: Vec<&str> = KEYS.iter().map(|(short, _)| *short).collect();
        let accepted = format!(
            "{} or a dotted key of the spec, then = and 1..32, 1..32:4, 1..32:x2 or a list as 0.5,1,2",
            names.join(", ")
        );
        Error::field("arguments", "--sweep", format!("{text:?}"), accepted)
    };
    let (name, values) = text.split_once('=').ok_or_else(bad)?;
    let short = KEYS.iter().find(|(short, _)| *short == name).map(|(_, key)| *key);
    let key = short.or_else(|| name.contains('.').then_some(name)).ok_or_else(bad)?;
    let flags = [
        ("--requests", args.requests.is_some(), "workload.requests"),
        ("--seed", args.seed.is_some(), "workload.seed"),
        ("--cost", args.cost.is_some(), "engine.cost"),
    ];
    if let Some((flag, ..)) = flags.iter().find(|(_, given, own)| *given && *own == key) {
        return Err(Error::field("arguments", "--sweep", format!("{name} beside {flag}"), "one of the two"));
    }
    Ok((key, settings(values).map_err(|why| refused(text, &why))?))
}

fn one(
    args: &SimulateArgs,
    place: &str,
    text: &str,
    key: &str,
    value: toml::Value,
    progress: &Progress,
) -> Result<Run> {
    let spec = Spec::parse_with(place, text, key, value.clone())?;
    let file = args.spec.as_deref().unwrap_or(Path::new(""));
    let spec = applied(args, input::with_traces(spec, place, file)?);
    let deployment = input::resolve(&spec, args.spec.as_deref(), &args.catalog)?;
    let options = Options { leap: !args.no_leap, ..Options::default() };
    let forecaster = Forecaster::embedded(deployment)?;
    let mut simulation = simulate_while(&forecaster, &spec, place, options, &mut |_, _| progress.goes_on())
        .map_err(|e| input::of_file(args.spec.as_deref(), e))?;
    // Many runs are kept until the last has ended, and nobody draws these.
    simulation.latencies = Default::default();
    Ok(Run { value, slo: spec.slo, deployment: forecaster.deployment, simulation })
}

fn header(key: &str) -> Vec<&str> {
    let rest = [
        "completed",
        "refused",
        "duration",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        "mean_ttft_ms",
        "p50_ttft_ms",
        "p99_ttft_ms",
        "mean_tpot_ms",
        "p50_tpot_ms",
        "p99_tpot_ms",
        "p99_itl_ms",
        "mean_e2el_ms",
        "p50_e2el_ms",
        "p99_e2el_ms",
        "mean_running",
        "max_waiting",
        "preemptions",
        "mean_usage",
        "internal_fragmentation",
        "external_fragmentation",
        "overloaded",
        "dollars_per_million_output_tokens",
        "interrupted",
    ];
    std::iter::once(key).chain(rest).collect()
}

fn row(run: &Run, interrupted: bool) -> Vec<String> {
    let s = &run.simulation;
    let (sum, optional) = (&s.summary, |v: Option<f64>| v.map_or_else(String::new, |v| v.to_string()));
    let mut row = vec![word(&run.value), sum.completed.to_string(), s.refused.to_string()];
    row.extend([sum.duration, sum.request_throughput()].map(|v| v.to_string()));
    row.push(optional(sum.request_goodput()));
    row.extend([sum.output_throughput(), sum.total_token_throughput()].map(|v| v.to_string()));
    for latency in [&sum.ttft, &sum.tpot] {
        row.extend([latency.mean, latency.median, latency.p99].map(|v| v.to_string()));
    }
    row.extend([sum.itl.p99, sum.e2el.mean, sum.e2el.median, sum.e2el.p99].map(|v| v.to_string()));
    row.push(s.activity.mean_running.to_string());
    row.extend([s.activity.max_waiting, s.activity.preemptions].map(|v| v.to_string()));
    let k = &s.kv_cache;
    row.extend([k.mean_usage, k.internal_fragmentation, k.external_fragmentation].map(|v| v.to_string()));
    row.push(s.load.overloaded.to_string());
    row.push(optional(s.expense.dollars_per_million_output_tokens));
    row.push(interrupted.to_string());
    row
}

/// A value without the quotes of TOML.
fn word(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn people(key: &str, runs: &[Run]) -> String {
    let titles: Vec<String> =
        runs.iter().map(|run| about(&run.deployment, &run.simulation).title()).collect();
    let same = titles.iter().all(|title| *title == titles[0]);
    let title = if same { titles[0].as_str() } else { "" };
    let short = key.rsplit('.').next().unwrap_or(key);
    let judged = runs.iter().any(|run| run.simulation.summary.request_goodput().is_some());
    let mut header = vec![short, "req/s"];
    header.extend(judged.then_some("good/s"));
    header.extend(["output tok/s", "TTFT p50", "p99", "TPOT p50", "p99", "ITL p99", "E2EL p50", "E2EL p99"]);
    header.extend(["running", "KV held", "empty", "preempted"]);
    let rows: Vec<Vec<String>> = runs.iter().map(|run| shown(run, judged)).collect();
    let overloaded: Vec<String> =
        runs.iter().filter(|run| run.simulation.load.overloaded).map(|run| word(&run.value)).collect();
    let note = if overloaded.is_empty() {
        String::new()
    } else {
        format!("Overload at {}: the queue grows for as long as requests come.\n", overloaded.join(", "))
    };
    // By name, as goodput is not always there.
    let spare = ["preempted", "empty", "ITL p99", "E2EL p50", "KV held", "running"];
    let spare: Vec<usize> =
        spare.iter().filter_map(|name| header.iter().position(|column| column == name)).collect();
    let text = table::fitted(&header, &rows, 1, &spare);
    format!("{title}{text}{}{note}{}", caches(short, runs), spans(runs))
}

/// How far off the forecasts may be, a line for all values that are known alike.
fn spans(runs: &[Run]) -> String {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let Some(bands) = &run.simulation.bands else { continue };
        let line = band_factors(bands);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, values)) => values.push(word(&run.value)),
            None => lines.push((line, vec![word(&run.value)])),
        }
    }
    let of = |values: &[String]| {
        if values.len() == runs.len() { String::new() } else { format!(", at {}", values.join(", ")) }
    };
    let text = |(line, values): &(String, Vec<String>)| {
        table::line(&format!("means, 10th to 90th percentile{}: {line}", of(values)))
    };
    lines.iter().map(text).collect()
}

/// What lies between pieces and what finds blocks, where a run has either.
fn caches(short: &str, runs: &[Run]) -> String {
    let all = || runs.iter().map(|run| run.simulation.kv_cache);
    let (gaps, tables) = (all().any(|k| k.external_fragmentation > 0.0), all().any(|k| k.tables.is_some()));
    if !gaps && !tables {
        return String::new();
    }
    let mut header = vec![short, "blocks", "of tokens"];
    header.extend(gaps.then_some(["free beside longest gap", "scattered refusals"]).into_iter().flatten());
    header.extend(tables.then_some(["table bytes a layer reads", "sent a step"]).into_iter().flatten());
    let row = |run: &Run| {
        let k = run.simulation.kv_cache;
        let mut row = vec![word(&run.value), grouped(k.blocks), grouped(k.block_size)];
        if gaps {
            row.extend([percent(k.external_fragmentation), grouped(k.scattered_refusals)]);
        }
        if tables {
            let bytes = k.tables.map_or([0.0; 2], |t| [t.read_bytes, t.sent_bytes]);
            row.extend(bytes.map(|bytes| grouped(bytes.round() as u64)));
        }
        row
    };
    table::table(&header, &runs.iter().map(row).collect::<Vec<_>>(), 1)
}

/// `judged` says whether there is an SLO to meet.
fn shown(run: &Run, judged: bool) -> Vec<String> {
    let (sum, s) = (&run.simulation.summary, &run.simulation);
    let significant = |v: f64| if sum.completed == 0 { "–".to_owned() } else { significant(v) };
    let mut row = vec![word(&run.value), significant(sum.request_throughput())];
    let good = || sum.request_goodput().map_or_else(|| "–".to_owned(), significant);
    row.extend(judged.then(good));
    row.push(significant(sum.output_throughput()));
    row.extend([sum.ttft.median, sum.ttft.p99, sum.tpot.median, sum.tpot.p99].map(significant));
    row.extend([sum.itl.p99, sum.e2el.median, sum.e2el.p99].map(significant));
    row.push(significant(s.activity.mean_running));
    row.extend([s.kv_cache.mean_usage, s.kv_cache.internal_fragmentation].map(percent));
    row.push(grouped(s.activity.preemptions));
    row
}
