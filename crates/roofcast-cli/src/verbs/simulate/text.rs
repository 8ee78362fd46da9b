//! The text of a simulation for people.

use super::cache::{cache, gaps, host, storage, tables};
use super::{About, classes, sampling, special};
use crate::show::number::{dollars, grouped, percent, significant};
use crate::show::table;
use crate::verbs::{bands, question};
use roofcast::Spec;
use roofcast::fleet::{FoundPrefixes, OracleHits};
use roofcast::plan::judged_load;
use roofcast::simulate::{FailureUse, FirstWave, PoolUse, RecordedSessions, Simulation};
use roofcast::spec::{CostKind, Percentile};
use roofcast::workload::Workload;

pub(super) fn people(about: &About, (spec, defaults): (&Spec, &[&str]), s: &Simulation) -> String {
    let mut text = about.title() + &asked(spec, defaults);
    if s.interrupted {
        let ended = grouped(s.summary.completed + s.summary.failed);
        text += &format!("PARTIAL: interrupted after {ended} requests; all figures describe these\n\n");
    }
    if s.summary.completed == 0 {
        let why = match (s.refused, s.rejected) {
            (0, 0) if s.overflowed > 0 => format!("all failed: {}", overflowed(s)),
            (0, 0) => "none had ended".to_owned(),
            (0, n) => format!("all {} were {}", grouped(n), rejected(s)),
            (n, 0) => format!("all {} were refused: longer than {}", grouped(n), longest(s)),
            (n, m) => {
                format!("{} were too long, {} {}", grouped(n), grouped(m), rejected(s))
            }
        };
        return text + &format!("no request was served: {why}\n");
    }
    let mut facts = vec![("requests", requests(s))];
    facts.extend(s.first_wave.as_ref().map(|wave| ("first wave", first_wave(s, wave))));
    facts.extend([
        ("throughput", throughput(s)),
        ("fleet", fleet(s)),
        ("steps", steps(s)),
        ("KV cache", cache(s)),
    ]);
    facts.extend(s.sessions.as_ref().map(|ended| ("sessions", sessions(ended))));
    facts.extend(s.fleet.failures.as_ref().map(|failed| ("failures", failures(failed))));
    facts.extend(s.fleet.prefixes.as_ref().map(|prefixes| ("routing", routing(prefixes))));
    facts.extend(s.fleet.oracle.as_ref().map(|hits| ("oracle", oracle(hits))));
    facts.extend(Some(s).filter(|s| s.activity.drafted_tokens > 0).map(|s| ("drafts", drafts(s))));
    facts.extend(s.images.as_ref().map(|images| ("images", special::images(images))));
    facts.extend(s.adapters.as_ref().map(|used| ("LoRA", special::adapters(used))));
    facts.extend(gaps(s).into_iter().chain(tables(s)).chain(host(s)).chain(storage(s)));
    facts.push(("time", time(s)));
    facts.extend(s.lifted_by.as_ref().map(|flag| ("lifted by", lifted(flag))));
    facts.extend([("preemptions", preemptions(s)), ("cost", expense(s))]);
    text += &table::pairs(&facts);
    // This percentile is shown only if the SLO bounds it, because few users need it.
    let last = spec.slo.bounds().any(|bound| bound.percentile == Percentile::P999);
    let rows = s.summary.metrics().map(|(name, s)| {
        let figures = [s.mean, s.median, s.p90, s.p95, s.p99].into_iter().chain(last.then_some(s.p999));
        let figures = figures.map(|v| if s.count > 0 { significant(v) } else { "–".to_owned() });
        [name.to_uppercase()].into_iter().chain(figures).collect::<Vec<_>>()
    });
    let header = ["ms", "mean", "p50", "p90", "p95", "p99", "p99.9"];
    text += &table::table(&header[..header.len() - usize::from(!last)], &rows, 1);
    text += &classes::people(s);
    if let Some(b) = &s.bands {
        text += &table::line(&format!("80 % interval of the means: {}", bands(b)));
    }
    text += &sampling::people(s);
    text += &load(s);
    text
}

/// The load and the SLO in words.
fn asked(spec: &Spec, defaults: &[&str]) -> String {
    let load = spec.workload.as_ref().map(|workload| ("load", question::load(workload)));
    let users =
        spec.workload.as_ref().and_then(|workload| users(spec, workload)).map(|users| ("users", users));
    let slo = [("SLO", question::slo(&spec.slo))].into_iter().chain(question::defaults(defaults));
    table::pairs(&load.into_iter().chain(users).chain(slo).collect::<Vec<_>>())
}

/// The start of users in words, with the flag for the start that a plan assumes.
fn users(spec: &Spec, workload: &Workload) -> Option<String> {
    let users = question::users(workload)?;
    let ramp_s = |workload: Workload| workload.arrivals.ramped().seconds();
    let planned = judged_load(spec, "spec").map(ramp_s).ok().filter(|_| workload.arrivals.ramped().0 == 0);
    let other = planned
        .filter(|seconds| *seconds > 0.0)
        .map(|seconds| format!(" (of a plan one after another: --ramp-s {})", significant(seconds)));
    Some(users + &other.unwrap_or_default())
}

/// Times to first token and good requests of the first wave and of later requests.
fn first_wave(s: &Simulation, wave: &FirstWave) -> String {
    let later = s.summary.completed.saturating_sub(wave.completed).max(1);
    let all = s.summary.ttft.mean * s.summary.completed as f64;
    let later_ms = (all - wave.mean_ttft_ms * wave.completed as f64) / later as f64;
    let met = |good: Option<u64>, of: u64| {
        good.map_or(String::new(), |good| format!(", {} met the SLO", percent(good as f64 / of as f64)))
    };
    let later_good = s.summary.good.zip(wave.good).map(|(all, first)| all.saturating_sub(first));
    format!(
        "{} requests: TTFT {} ms on average{}; later ones: {} ms{}",
        grouped(wave.completed),
        significant(wave.mean_ttft_ms),
        met(wave.good, wave.completed),
        significant(later_ms),
        met(later_good, later)
    )
}

/// Requests completed per second while others arrived. After the last arrival a run only drains, which does not show
/// the sustainable rate, so that time is left out. If too little remains, the whole run counts.
pub(super) fn answered_per_s(s: &Simulation) -> f64 {
    let ended = s.summary.completed + s.summary.failed;
    let long_enough = !s.interrupted && s.load.too_short_below.is_none();
    match (s.load.stable_per_s, s.load.offered_per_s.filter(|_| long_enough)) {
        (Some(stable), _) => stable,
        (None, Some(offered)) => offered * s.summary.completed as f64 / ended.max(1) as f64,
        (None, None) => s.summary.request_throughput(),
    }
}

/// Seconds from the last arrival to the last answer, if they are a considerable part of the run.
fn drain_s(s: &Simulation) -> Option<f64> {
    let came = s.summary.completed + s.summary.failed;
    let span = came.saturating_sub(1) as f64 / s.load.offered_per_s.filter(|_| !s.interrupted)?;
    Some(s.summary.duration - span).filter(|drain| *drain >= 0.05 * s.summary.duration)
}

/// Goodput: completed requests per second that met the SLO; `None` without an SLO.
pub(super) fn good_per_s(s: &Simulation) -> Option<f64> {
    s.summary.good.map(|good| answered_per_s(s) * good as f64 / s.summary.completed.max(1) as f64)
}

fn requests(s: &Simulation) -> String {
    let refused = match s.refused {
        0 => String::new(),
        n => format!(", {} refused: longer than {}", grouped(n), longest(s)),
    };
    let rejected = match s.rejected {
        0 => String::new(),
        n => format!(", {} {}", grouped(n), rejected(s)),
    };
    let failed = if s.overflowed > 0 { format!(", {}", overflowed(s)) } else { String::new() };
    let whole = significant(s.summary.request_throughput());
    let arriving = Some(significant(answered_per_s(s))).filter(|rate| *rate != whole);
    let rate =
        arriving.map_or(format!("{whole}/s"), |rate| format!("{whole}/s; {rate}/s while requests arrived"));
    let good = good_per_s(s).map_or(String::new(), |g| format!(", {}/s met the SLO", significant(g)));
    let drain =
        drain_s(s).map_or(String::new(), |d| format!(", the last {} after the last arrival", significant(d)));
    format!(
        "{} in {} s{drain}: {rate}{good}{refused}{rejected}{failed}",
        grouped(s.summary.completed),
        significant(s.summary.duration)
    )
}

/// The reason for which requests were rejected.
fn rejected(s: &Simulation) -> String {
    let Some(large) = &s.oversized else { return "rejected: queue or rate limit reached".to_owned() };
    let which = match s.rejected.saturating_sub(large.requests) {
        0 => "each takes".to_owned(),
        _ => format!("queue or rate limit reached; {} of them take", grouped(large.requests)),
    };
    format!(
        "rejected: {which} more tokens than a full bucket holds ({} = {}, the smallest takes {})",
        large.key,
        significant(large.burst),
        grouped(large.smallest)
    )
}

/// Number of requests that ended with an error, and the reason.
fn overflowed(s: &Simulation) -> String {
    let cells = s.kv_cache.blocks * s.kv_cache.block_size;
    format!(
        "{} failed: all that ran as the {} cells of the shared cache overflowed",
        grouped(s.overflowed),
        grouped(cells)
    )
}

/// The longest request that the deployment can serve.
fn longest(s: &Simulation) -> String {
    let tokens = |n: u32| grouped(u64::from(n));
    let settings = &s.settings;
    if s.fleet.prefill.is_some() {
        return "the replicas of both pools allow".to_owned();
    }
    let context = format!("{} tokens", tokens(settings.max_model_len));
    if settings.enable_chunked_prefill || settings.max_num_batched_tokens >= settings.max_model_len {
        return context;
    }
    format!(
        "{context}, or than the step budget of {} tokens (no chunked prefill)",
        tokens(settings.max_num_batched_tokens)
    )
}

fn throughput(s: &Simulation) -> String {
    format!(
        "{} output tok/s, {} including prompts",
        significant(s.summary.output_throughput()),
        significant(s.summary.total_token_throughput())
    )
}

fn steps(s: &Simulation) -> String {
    let priced = match s.cost {
        CostKind::Limit => "step times at the limit".to_owned(),
        CostKind::Forecast => {
            let of = match s.activity.drafted_tokens {
                0 => "a mean decode step",
                _ => "a token, of a mean step that verifies drafts over the tokens that it gains,",
            };
            format!("step times as forecast; the limit of {of} is {} ms", significant(s.limit_tpot_ms))
        }
    };
    let others = s.fleet.prefill.iter().chain(&s.fleet.beside).map(|p| p.replicas);
    let replicas = s.fleet.serving.replicas + others.sum::<u64>();
    let each = if replicas > 1 { format!(" on {replicas} replicas") } else { String::new() };
    format!(
        "{}{each}, mean {} running, at most {}; {priced}",
        grouped(s.activity.steps),
        significant(s.activity.mean_running),
        grouped(s.activity.max_running)
    )
}

fn drafts(s: &Simulation) -> String {
    let a = &s.activity;
    let accepted = 1.0 - a.rejected_tokens as f64 / a.drafted_tokens as f64;
    format!("{} verified, {} accepted", grouped(a.drafted_tokens), percent(accepted))
}

/// Times of recorded sessions, from the first turn to the last answer.
fn sessions(s: &RecordedSessions) -> String {
    let [mean, median, p90] = [s.mean_task_s, s.median_task_s, s.p90_task_s].map(significant);
    format!(
        "{} completed; first turn to last answer: mean {mean} s, p50 {median} s, p90 {p90} s",
        grouped(s.completed)
    )
}

/// Prompt tokens found in the prefix cache of the chosen replica, and in the best replica's.
fn routing(prefixes: &FoundPrefixes) -> String {
    let share = |tokens: u64| percent(tokens as f64 / prefixes.prompt_tokens as f64);
    let found_share = share(prefixes.found_tokens);
    let best_share = share(prefixes.most_tokens);
    format!(
        "{found_share} of prompt tokens cached on the chosen replica, {best_share} on the best replica for each prompt"
    )
}

/// Prompt tokens that the caches found, and the most that any router and eviction could find.
fn oracle(hits: &OracleHits) -> String {
    let share = |tokens: u64| percent(tokens as f64 / hits.prompt_tokens.max(1) as f64);
    format!(
        "{} of prompt tokens found, at most {} with any router and eviction (Belady's, one cache of {} tokens)",
        share(hits.found_tokens),
        share(hits.most_tokens),
        grouped(hits.capacity_tokens)
    )
}

/// Failures of replicas, and what became of their requests.
fn failures(f: &FailureUse) -> String {
    let lost = if f.lost > 0 { format!(", {} lost", grouped(f.lost)) } else { String::new() };
    format!(
        "{}, {} requests sent again{lost}; replicas up {} of the time",
        grouped(f.count),
        grouped(f.retried),
        percent(f.availability)
    )
}

/// The replicas that serve, by pool.
fn fleet(s: &Simulation) -> String {
    let f = &s.fleet;
    let apart = f.prefill.iter().chain(&f.beside).any(|p| p.accelerator != f.serving.accelerator);
    let pool = |p: &PoolUse| {
        let what = if apart { p.accelerator.as_str() } else { "accelerators" };
        format!("{} × {} {what}, busy {} of the time", p.replicas, p.accelerators_each, percent(p.busy))
    };
    if let Some(a) = &f.autoscale {
        return format!(
            "{}; mean {} running and at most {}, {} started, {} stopped",
            pool(&f.serving),
            significant(a.mean_replicas),
            a.max_replicas,
            grouped(a.started),
            grouped(a.stopped)
        );
    }
    if let Some(beside) = &f.beside {
        return format!("{}; in addition {}", pool(&f.serving), pool(beside));
    }
    match (&f.prefill, &f.transfers) {
        (Some(prefill), Some(t)) => format!(
            "prefill {}; decode {}; {} KV transfers, mean {} ms{}",
            pool(prefill),
            pool(&f.serving),
            grouped(t.count),
            significant(t.mean_ms),
            if t.mean_ms > 1.005 * t.alone_ms {
                format!(" on shared links, {} alone", significant(t.alone_ms))
            } else {
                String::new()
            }
        ),
        _ => pool(&f.serving),
    }
}

fn time(s: &Simulation) -> String {
    let t = &s.time;
    let parts = [
        ("memory", t.memory_s),
        ("compute", t.compute_s),
        ("communication", t.communication_s),
        ("host", t.host_s),
        ("server", t.server_s),
        ("swap", t.swap_s),
        ("idle", t.idle_s),
    ];
    let all: f64 = parts.iter().map(|(_, v)| v).sum();
    let share = |(name, v): &(&str, f64)| format!("{name} {}", percent(v / all));
    parts.iter().filter(|(_, v)| *v > 0.0).map(share).collect::<Vec<_>>().join(", ")
}

/// The flag that lifts the bound of the server's messages.
fn lifted(flag: &str) -> String {
    format!("{flag}: most steps last as long as the server's messages to clients")
}

fn preemptions(s: &Simulation) -> String {
    let e = &s.activity;
    let mut text = grouped(e.preemptions);
    for (tokens, what) in [
        (e.recomputed_tokens, "tokens recomputed"),
        (e.swapped_tokens, "tokens swapped"),
        (e.cached_tokens, "prompt tokens cached"),
        (e.idle_tokens, "tokens computed for finished requests"),
    ] {
        if tokens > 0 {
            text += &format!(", {} {what}", grouped(tokens));
        }
    }
    if let Some(costs) = &s.preemption {
        text += &format!(
            "; of {} tokens each: {} ms to swap out and in, {} ms to compute again",
            grouped(costs.tokens),
            significant(costs.swap_ms),
            significant(costs.recompute_ms)
        );
    }
    text
}

fn expense(s: &Simulation) -> String {
    let e = &s.expense;
    let joules = e
        .joules_per_output_token
        .map_or(String::new(), |j| format!(", {} J per output token", significant(j)));
    let carbon = e.carbon.and_then(|carbon| carbon.grams_per_million_output_tokens);
    let carbon = carbon.map_or(String::new(), |g| format!(", {} g CO2e per million", significant(g)));
    let joules = joules + &carbon;
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
            "Overload: {} requests/s arrive and {} requests/s are served; the queue grows without bound.",
            significant(offered),
            significant(stable)
        )),
        (_, _, Some(enough)) => table::line(&format!(
            "Too short to tell whether this load can be sustained: about {} requests are needed.",
            grouped(enough)
        )),
        _ => String::new(),
    }
}
