//! `roofcast simulate`: what a benchmark client would measure.

mod series;
mod sweep;
pub(crate) mod view;

use super::{About, bands};
#[cfg(feature = "parquet")]
use crate::args::MergeArgs;
use crate::args::SimulateArgs;
use crate::input::scenario::{Base, Source};
use crate::page::Alone;
use crate::show::number::{dollars, grouped, percent, significant};
use crate::show::progress::Progress;
use crate::show::records::Records;
use crate::show::target::Target;
use crate::show::{self, table};
use crate::{exit, host};
use anyhow::Result;
use roofcast::report::{chrome, run};
use roofcast::simulate::{Options, PoolUse, Simulation, simulate_while};
use roofcast::spec::{CostKind, Slo};
use roofcast::{Deployment, Error, Forecaster};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use view::View;

/// What `roofcast simulate` does when nothing is asked for.
pub(super) const DEFAULT: Base = ("the default simulation", include_str!("simulate/default.toml"));

/// Sections of a spec that a simulation reads.
const SECTIONS: [&str; 8] =
    ["model", "hardware", "precision", "parallelism", "engine", "workload", "fleet", "slo"];

/// The answer's schema.
const SCHEMA: &str = "roofcast/simulate/2";

#[derive(Serialize)]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    #[serde(flatten)]
    simulation: &'a Simulation,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode> {
    if args.source.dump_spec {
        return dump(args);
    }
    if args.spec.len() > 1 || !args.sweep.is_empty() || sweep::keeps(args) {
        files_of_one_run(args)?;
        let picture = Target::asked("--svg", args.svg.as_ref())?;
        return sweep::run(args, picture.as_ref());
    }
    let files = Files::asked(args)?;
    let scenario = source(args, args.spec.first())?.scenario(&[])?;
    let deployment = scenario.deployment()?;
    let options = Options {
        leap: !args.no_leap,
        records: args.records.is_some() || host::wants_records(),
        series: args.series.is_some() || args.svg.is_some() || args.html.is_some(),
        trace: match (&args.trace, &args.html) {
            (Some(_), _) => Some(args.trace_limit),
            (None, html) => html.as_ref().map(|_| view::EVENTS),
        },
        end_when_missed: false,
    };
    let forecaster = Forecaster::embedded(deployment)?;
    let deployment = &forecaster.deployment;
    let progress = Progress::new("requests")?;
    let watch = &mut |done, all| progress.at(done, all);
    let mut simulation = simulate_while(&forecaster, &scenario.spec, &scenario.place, options, watch)
        .map_err(|e| scenario.told(e))?;
    drop(progress);
    if let Some(page) = &files.page {
        page.write("serve", &View::of(deployment, &simulation, &scenario.spec.slo))?;
    }
    files.write(&about(deployment, &simulation).name(), &scenario.spec.slo, &mut simulation)?;
    host::recorded(&mut simulation.records);
    if args.output.json {
        show::json(SCHEMA, &Answer { about: about(deployment, &simulation), simulation: &simulation })?;
    } else if args.output.csv {
        let interrupted = simulation.interrupted;
        let rows = latencies(&simulation).map(|(name, s)| csv_row(name, s, interrupted));
        let header = ["metric", "mean_ms", "std_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "interrupted"];
        show::csv(&header, &rows)?;
    } else {
        show::text(&people(deployment, &simulation))?;
    }
    Ok(match &simulation {
        s if s.interrupted => exit::invalid(),
        s if s.summary.completed == 0 => exit::infeasible(),
        _ => ExitCode::SUCCESS,
    })
}

#[cfg(feature = "parquet")]
/// `roofcast merge`: what a sweep would print, from cells that were kept.
pub(crate) fn merge(args: &MergeArgs) -> Result<ExitCode> {
    sweep::merge(args)
}

/// The deployment, with the accelerators of all pools.
fn about<'a>(deployment: &'a Deployment, s: &Simulation) -> About<'a> {
    let about = About { count: s.fleet.accelerators, ..About::of(deployment) };
    let (prompts, serving, beside) = (&s.fleet.prefill, &s.fleet.serving.accelerator, &s.fleet.beside);
    let other = prompts.as_ref().or(beside.as_ref()).map(|pool| &pool.accelerator);
    match other.filter(|other| *other != serving) {
        Some(other) => {
            let (first, second) = if prompts.is_some() { (other, serving) } else { (serving, other) };
            let both = format!("{first} + {second}");
            About { hardware: both.into(), ..about }
        }
        None => about,
    }
}

/// The files asked for.
struct Files {
    records: Option<Records>,
    series: Option<Target>,
    trace: Option<Target>,
    picture: Option<Target>,
    page: Option<Alone>,
}

impl Files {
    fn asked(args: &SimulateArgs) -> Result<Files> {
        Ok(Files {
            records: Records::asked(args.records.as_ref())?,
            series: Target::asked("--series", args.series.as_ref())?,
            trace: Target::asked("--trace", args.trace.as_ref())?,
            picture: Target::asked("--svg", args.svg.as_ref())?,
            page: Alone::asked(args.html.as_ref())?,
        })
    }

    fn write(&self, title: &str, slo: &Slo, simulation: &mut Simulation) -> Result<()> {
        if let Some(records) = &self.records {
            records.write(&simulation.records)?;
        }
        if let Some(file) = &self.series {
            file.lines(series::lines(simulation))?;
        }
        if let Some(file) = &self.trace {
            let traces = std::mem::take(&mut simulation.traces);
            file.lines(chrome::lines(traces, simulation.kv_cache.blocks))?;
        }
        if let Some(file) = &self.picture {
            file.text(&run::svg(title, simulation, slo))?;
        }
        Ok(())
    }
}

/// A spec file, or the default, with flags over it.
fn source(args: &SimulateArgs, file: Option<&PathBuf>) -> Result<Source> {
    let flags = [args.machine.settings.as_slice(), &args.traffic.settings];
    Source::read(file.map(PathBuf::as_path), DEFAULT, &args.source, &flags)
}

/// Every spec asked for.
fn sources(args: &SimulateArgs) -> Result<Vec<Source>> {
    match args.spec.as_slice() {
        [] => Ok(vec![source(args, None)?]),
        files
            if files.len() > 1
                && (args.source.from_command.is_some() || args.source.from_manifest.is_some()) =>
        {
            let accepted = "it with one spec, or none";
            Err(Error::field("arguments", "--from-command", "beside several specs", accepted).into())
        }
        files => files.iter().map(|file| source(args, Some(file))).collect(),
    }
}

/// Refuses what only one run has, beside several specs.
fn files_of_one_run(args: &SimulateArgs) -> Result<()> {
    let flags = [
        ("--records", args.records.is_some()),
        ("--series", args.series.is_some()),
        ("--trace", args.trace.is_some()),
        ("--html", args.html.is_some()),
    ];
    match flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            let accepted = "it with one spec and without --sweep: it is of one run";
            Err(Error::field("arguments", flag, "beside several runs", accepted).into())
        }
        None => Ok(()),
    }
}

/// The spec as it was resolved, with what it has no key for in the first line.
fn dump(args: &SimulateArgs) -> Result<ExitCode> {
    if args.spec.len() > 1 {
        return Err(Error::field("arguments", "--dump-spec", "beside several specs", "one spec").into());
    }
    let scenario = source(args, args.spec.first())?.scenario(&[])?;
    let sweeps: String = args.sweep.iter().map(|text| format!(" --sweep {text}")).collect();
    let leap = if args.no_leap { " --no-leap" } else { "" };
    scenario.dump(&format!("simulate SPEC.toml{sweeps}{leap}"), Some(&scenario.deployment()?), &SECTIONS)?;
    Ok(ExitCode::SUCCESS)
}

fn latencies(simulation: &Simulation) -> [(&'static str, &roofcast::summary::Statistics); 4] {
    simulation.summary.metrics()
}

fn csv_row(name: &str, s: &roofcast::summary::Statistics, interrupted: bool) -> Vec<String> {
    let figures = [s.mean, s.std, s.median, s.p90, s.p95, s.p99];
    let figures = figures.map(|v| if s.count > 0 { v.to_string() } else { String::new() });
    [name.to_owned()].into_iter().chain(figures).chain([interrupted.to_string()]).collect()
}

fn people(deployment: &Deployment, s: &Simulation) -> String {
    let mut text = about(deployment, s).title();
    if s.interrupted {
        let ended = grouped(s.summary.completed + s.refused);
        text +=
            &format!("PARTIAL: interrupted when {ended} requests had ended; all figures are of those\n\n");
    }
    if s.summary.completed == 0 {
        let why = match (s.refused, s.rejected) {
            (0, 0) => "none had ended".to_owned(),
            (0, n) => format!("all {} that came were turned away: too much was queued", grouped(n)),
            (n, 0) => format!("all {} that came were refused: longer than {}", grouped(n), longest(s)),
            (n, m) => format!("{} that came were too long, {} turned away", grouped(n), grouped(m)),
        };
        return text + &format!("no request was served: {why}\n");
    }
    let mut facts = vec![
        ("requests", requests(s)),
        ("throughput", throughput(s)),
        ("fleet", fleet(s)),
        ("steps", steps(s)),
        ("KV cache", cache(s)),
    ];
    facts.extend(Some(s).filter(|s| s.activity.drafted_tokens > 0).map(|s| ("drafts", drafts(s))));
    facts.extend(gaps(s).into_iter().chain(tables(s)));
    facts.extend([("time", time(s)), ("preemptions", preemptions(s)), ("cost", expense(s))]);
    text += &table::pairs(&facts);
    let rows = latencies(s).map(|(name, s)| {
        let figures = [s.mean, s.median, s.p90, s.p95, s.p99];
        let figures = figures.map(|v| if s.count > 0 { significant(v) } else { "–".to_owned() });
        [name.to_uppercase()].into_iter().chain(figures).collect::<Vec<_>>()
    });
    text += &table::table(&["ms", "mean", "p50", "p90", "p95", "p99"], &rows, 1);
    if let Some(b) = &s.bands {
        text += &table::line(&format!("means, 10th to 90th percentile: {}", bands(b)));
    }
    text += &load(s);
    text
}

fn requests(s: &Simulation) -> String {
    let refused = match s.refused {
        0 => String::new(),
        n => format!(", {} refused: longer than {}", grouped(n), longest(s)),
    };
    let rejected = match s.rejected {
        0 => String::new(),
        n => format!(", {} turned away: too much was queued", grouped(n)),
    };
    let good =
        s.summary.request_goodput().map_or(String::new(), |g| format!(", {} /s met the SLO", significant(g)));
    format!(
        "{} in {} s: {} /s{good}{refused}{rejected}",
        grouped(s.summary.completed),
        significant(s.summary.duration),
        significant(s.summary.request_throughput())
    )
}

/// The longest request that is served.
fn longest(s: &Simulation) -> String {
    let tokens = |n: u32| grouped(u64::from(n));
    let settings = &s.settings;
    if s.fleet.prefill.is_some() {
        return "what the replicas of both pools hold".to_owned();
    }
    let context = format!("{} tokens", tokens(settings.max_model_len));
    if settings.enable_chunked_prefill || settings.max_num_batched_tokens >= settings.max_model_len {
        return context;
    }
    format!(
        "{context}, or than the {} of a step, as prompts are not split",
        tokens(settings.max_num_batched_tokens)
    )
}

fn throughput(s: &Simulation) -> String {
    format!(
        "{} output tok/s, {} with prompts",
        significant(s.summary.output_throughput()),
        significant(s.summary.total_token_throughput())
    )
}

fn steps(s: &Simulation) -> String {
    let priced = match s.cost {
        CostKind::Limit => "at the limit".to_owned(),
        CostKind::Forecast => {
            format!(
                "as forecast; a decode of this batch takes {} ms at the limit",
                significant(s.limit_tpot_ms)
            )
        }
    };
    let others = s.fleet.prefill.iter().chain(&s.fleet.beside).map(|p| p.replicas);
    let replicas = s.fleet.serving.replicas + others.sum::<u64>();
    let each = if replicas > 1 { format!(" on {replicas} replicas") } else { String::new() };
    format!(
        "{}{each}, {} running in the mean, {} at most; {priced}",
        grouped(s.activity.steps),
        significant(s.activity.mean_running),
        grouped(s.activity.max_running)
    )
}

fn drafts(s: &Simulation) -> String {
    let a = &s.activity;
    let accepted = 1.0 - a.rejected_tokens as f64 / a.drafted_tokens as f64;
    format!("{} verified, {} became output", grouped(a.drafted_tokens), percent(accepted))
}

/// The replicas that serve, by pools.
fn fleet(s: &Simulation) -> String {
    let f = &s.fleet;
    let apart = f.prefill.iter().chain(&f.beside).any(|p| p.accelerator != f.serving.accelerator);
    let pool = |p: &PoolUse| {
        let what = if apart { p.accelerator.as_str() } else { "accelerators" };
        format!("{} × {} {what}, busy {} of the time", p.replicas, p.accelerators_each, percent(p.busy))
    };
    if let Some(a) = &f.autoscale {
        return format!(
            "{}; {} up in the mean and {} at most, {} started, {} stopped",
            pool(&f.serving),
            significant(a.mean_replicas),
            a.max_replicas,
            grouped(a.started),
            grouped(a.stopped)
        );
    }
    if let Some(beside) = &f.beside {
        return format!("{}; beside {}", pool(&f.serving), pool(beside));
    }
    match (&f.prefill, &f.transfers) {
        (Some(prefill), Some(t)) => format!(
            "prefill {}; decode {}; {} caches handed over, {} ms each",
            pool(prefill),
            pool(&f.serving),
            grouped(t.count),
            significant(t.mean_ms)
        ),
        _ => pool(&f.serving),
    }
}

fn cache(s: &Simulation) -> String {
    let k = &s.kv_cache;
    let groups = if k.groups > 1 { format!(" for {} groups of layers", k.groups) } else { String::new() };
    format!(
        "{} blocks of {}{groups}: {} used in the mean, {} at most; {} of it room without tokens",
        grouped(k.blocks),
        k.block_size,
        percent(k.mean_usage),
        percent(k.max_blocks as f64 / k.blocks as f64),
        percent(k.internal_fragmentation)
    )
}

/// What lies between pieces, where requests lie in one each.
fn gaps(s: &Simulation) -> Option<(&'static str, String)> {
    let k = Some(&s.kv_cache).filter(|k| k.external_fragmentation > 0.0)?;
    let text = format!(
        "{} of the free room outside its longest gap; {} attempts to admit failed though enough was free in all",
        percent(k.external_fragmentation),
        grouped(k.scattered_refusals)
    );
    Some(("gaps", text))
}

/// What finds blocks, where that is counted.
fn tables(s: &Simulation) -> Option<(&'static str, String)> {
    let t = s.kv_cache.tables?;
    let [read, sent] = [t.read_bytes, t.sent_bytes].map(|bytes| grouped(bytes.round() as u64));
    Some(("tables", format!("{read} bytes read by each layer of a decode step, {sent} sent to the device")))
}

fn time(s: &Simulation) -> String {
    let t = &s.time;
    let parts = [
        ("memory", t.memory_s),
        ("compute", t.compute_s),
        ("communication", t.communication_s),
        ("host", t.host_s),
        ("swap", t.swap_s),
        ("idle", t.idle_s),
    ];
    let all: f64 = parts.iter().map(|(_, v)| v).sum();
    let share = |(name, v): &(&str, f64)| format!("{name} {}", percent(v / all));
    parts.iter().filter(|(_, v)| *v > 0.0).map(share).collect::<Vec<_>>().join(", ")
}

fn preemptions(s: &Simulation) -> String {
    let e = &s.activity;
    let mut text = grouped(e.preemptions);
    for (tokens, what) in [
        (e.recomputed_tokens, "tokens computed again"),
        (e.swapped_tokens, "tokens swapped"),
        (e.cached_tokens, "tokens found in the prefix cache"),
        (e.idle_tokens, "tokens computed for requests that had ended"),
    ] {
        if tokens > 0 {
            text += &format!(", {} {what}", grouped(tokens));
        }
    }
    text
}

fn expense(s: &Simulation) -> String {
    let e = &s.expense;
    let joules = e
        .joules_per_output_token
        .map_or(String::new(), |j| format!(", {} J per output token", significant(j)));
    match e.dollars_per_million_output_tokens {
        Some(_) => format!(
            "{} dollars an hour, {} per million output tokens{joules}",
            dollars(e.dollars_per_hour),
            dollars(e.dollars_per_million_output_tokens)
        ),
        None if e.dollars_per_hour.is_some() => format!("{} dollars an hour", dollars(e.dollars_per_hour)),
        None => format!("no price known{joules}"),
    }
}

fn load(s: &Simulation) -> String {
    match (s.load.offered_per_s, s.load.stable_per_s, s.load.too_short_below) {
        (Some(offered), Some(stable), _) => table::line(&format!(
            "Overload: {} requests come a second and {} are served; the queue grows for as long as they come.",
            significant(offered),
            significant(stable)
        )),
        (_, _, Some(enough)) => table::line(&format!(
            "Too short to tell whether this load can be sustained: about {} requests would show it.",
            grouped(enough)
        )),
        _ => String::new(),
    }
}
