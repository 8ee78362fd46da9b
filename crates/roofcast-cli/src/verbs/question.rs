//! The question in the words of an answer: the load and the SLO.
//!
//! Knows: how to describe arrivals, lengths and bounds in a line each; lengths are means and percentiles of
//! drawn requests. Knows nothing about the results.

use crate::show::number::{grouped, percent, significant};
use roofcast::spec::{Slo, SloBound};
use roofcast::workload::{Arrivals, DrawnLoad, Length, LengthKind, LengthStatistics, Replay, Workload};

/// Relative difference below which a run has the rate of its whole recording.
const SAME_RATE: f64 = 0.05;

/// True if the rate of a run differs from that of its whole recording.
fn differs(run: f64, whole: f64) -> bool {
    (run / whole - 1.0).abs() > SAME_RATE
}

/// The load in words, as in `10 requests/s, 1000 prompt and 200 output tokens each`.
pub(super) fn load(workload: &Workload) -> String {
    let parts = [arrivals(workload), lengths(workload)].join(", ");
    [parts].into_iter().chain(features(workload)).collect::<Vec<_>>().join("; ")
}

/// The load and the SLO in words, as in `10 requests/s, 1000 prompt and 200 output tokens each; SLO: TPOT p99 ≤ 50 ms`.
pub(super) fn asked(workload: Option<&Workload>, bounds: &Slo) -> String {
    let load = workload.map(|workload| load(workload) + "; ").unwrap_or_default();
    format!("{load}SLO: {}", slo(bounds))
}

/// The arrivals in words, as in `10 requests/s`.
pub(super) fn arrivals(workload: &Workload) -> String {
    let per_s = |rate: f64| format!("{} requests/s", significant(rate));
    match &workload.arrivals {
        Arrivals::Poisson { rate } => per_s(*rate),
        Arrivals::Constant { rate } => per_s(*rate) + " evenly spaced",
        Arrivals::Gamma { rate, burstiness } => format!("{} of burstiness {burstiness}", per_s(*rate)),
        Arrivals::Profile { rate, .. } => {
            let drawn = DrawnLoad::of(workload, "workload").ok().and_then(|drawn| drawn.per_s);
            match drawn.filter(|drawn| differs(*drawn, *rate)) {
                Some(drawn) => {
                    let whole = significant(*rate);
                    format!("{}, changing as recorded ({whole} over the whole recording)", per_s(drawn))
                }
                None => per_s(*rate) + " on average, changing as recorded",
            }
        }
        Arrivals::Ramp { from, to, over_s } => {
            let from = significant(*from);
            format!("{from} to {} over {} s", per_s(*to), significant(*over_s))
        }
        Arrivals::Series { points } => {
            let mean = workload.arrivals.rate().unwrap_or(0.0);
            format!("{} on average, by a series of {} points", per_s(mean), grouped(points.len() as u64))
        }
        Arrivals::Burst { size: Some(size), every_s: Some(every) } => {
            format!("{} requests at once every {} s", grouped(*size), significant(*every))
        }
        Arrivals::Offline | Arrivals::Burst { .. } => {
            format!("{} requests, all at the start", grouped(workload.total()))
        }
        Arrivals::ClosedLoop { concurrency, think_s, .. } => match think_s.filter(|s| *s > 0.0) {
            None => format!("{} requests always in flight", grouped(*concurrency)),
            Some(think) => format!(
                "{} users who think {} s on average before each request",
                grouped(*concurrency),
                significant(think)
            ),
        },
        Arrivals::PacedUsers { concurrency, every_s } => {
            format!("{} users who each send every {} s", grouped(*concurrency), significant(*every_s))
        }
        Arrivals::Sessions { rate: Some(rate), .. } => format!("{} conversations/s", significant(*rate)),
        Arrivals::Sessions { concurrency, .. } => {
            format!("{} conversations at a time", grouped(concurrency.unwrap_or(0)))
        }
        Arrivals::Trace(replay) => recorded(replay, workload.total()),
    }
}

/// The pace of a replay of `total` requests in words.
fn recorded(replay: &Replay, total: u64) -> String {
    if let Some(sessions) = replay.concurrency {
        return format!("{} recorded sessions at a time{}", grouped(sessions), protocol(replay));
    }
    if let Some(rate) = replay.rate {
        return format!("{} recorded sessions/s{}", significant(rate), protocol(replay));
    }
    let what = if replay.has_sessions() { "sessions" } else { "requests" };
    let rate = replay.first_per_s(total);
    let whole = replay.first_per_s(u64::MAX).filter(|whole| rate.is_some_and(|rate| differs(rate, *whole)));
    let whole =
        whole.map_or_else(String::new, |whole| format!(" ({} over the whole recording)", significant(whole)));
    let rate = rate.map_or_else(|| what.to_owned(), |rate| format!("{} {what}/s", significant(rate)));
    let run = usize::try_from(total).unwrap_or(usize::MAX);
    let clock = replay.recorded.as_ref().and_then(|trace| trace.coarse_clock(run)).map_or_else(
        String::new,
        |clock| {
            format!(
                " at {} times, {} s apart or more (arrivals.spread = true spreads them between)",
                grouped(clock.times),
                significant(clock.tick.seconds())
            )
        },
    );
    let spread = if replay.spread == Some(true) { ", spread between ticks of their clock" } else { "" };
    match replay.scale.filter(|scale| *scale != 1.0) {
        None => format!("{rate} as they were recorded{whole}{clock}{spread}"),
        Some(scale) => format!(
            "{rate} as they were recorded{whole}{clock}{spread}, times scaled by {}",
            significant(scale)
        ),
    }
}

/// Text on the changes that a benchmark of agents makes to a replay of recorded sessions.
fn protocol(replay: &Replay) -> String {
    let seconds = |words: &str, cap: Option<f64>| cap.map(|cap| format!("{words} {} s", significant(cap)));
    let within = replay.trajectory_start_min_ratio.or(replay.trajectory_start_max_ratio).is_some();
    let parts = [
        within.then(|| "the first begun within".to_owned()),
        seconds("warmed up for", replay.ramp_s.filter(|_| within)),
        (replay.recycle == Some(true)).then(|| "begun anew when all have begun".to_owned()),
        seconds("waits at most", replay.inter_turn_delay_cap_s),
        seconds("idle at most", replay.system_idle_gap_cap_s),
    ];
    parts.into_iter().flatten().map(|part| format!(", {part}")).collect()
}

/// The parts of the load that not all loads have: turns, shared prefixes, images, adapters, classes, and the client's
/// bound on requests in flight.
pub(super) fn features(workload: &Workload) -> Vec<String> {
    let mut parts = Vec::new();
    if workload.recorded.is_some() && !matches!(workload.arrivals, Arrivals::Trace(_)) {
        parts.push("recorded requests in their order".to_owned());
    }
    if let Arrivals::Sessions { turns, think_s, .. } = &workload.arrivals {
        let think = think_s.filter(|s| *s > 0.0);
        let think =
            think.map_or_else(String::new, |s| format!(", {} s of thinking between them", significant(s)));
        parts.push(format!("{} a conversation, whose prompts repeat what was said{think}", turned(turns)));
    }
    let some = |share: f64| if share < 1.0 { format!(" by {}", percent(share)) } else { String::new() };
    if let Some(prefix) = &workload.prefix {
        let count =
            if prefix.count > 1 { format!(" of {} prefixes", grouped(prefix.count)) } else { String::new() };
        parts.push(format!("{} tokens shared{count}{}", grouped(prefix.length), some(prefix.share)));
    }
    if let Some(images) = &workload.images {
        let size = match (images.tokens, images.width, images.height) {
            (None, Some(width), Some(height)) => format!("{width} × {height} pixels"),
            (tokens, ..) => format!("{} tokens", grouped(tokens.unwrap_or(0))),
        };
        parts.push(match images.frames {
            Some(frames) => {
                format!("{} video(s) of {} frames of {size}", grouped(images.count), grouped(frames))
            }
            None => format!("{} image(s) of {size}", grouped(images.count)),
        });
    }
    if let Some(adapters) = &workload.adapters {
        parts.push(format!("{} LoRA adapters named{}", grouped(adapters.count), some(adapters.share)));
    }
    if !workload.classes.is_empty() {
        let whole: f64 = workload.classes.iter().map(|class| class.share).sum();
        let class =
            |class: &roofcast::workload::Class| format!("{} {}", class.name, percent(class.share / whole));
        parts.push(format!("classes {}", workload.classes.iter().map(class).collect::<Vec<_>>().join(", ")));
    }
    if let Some(most) = workload.max_concurrency {
        parts.push(format!("at most {} in flight", grouped(most)));
    }
    parts
}

/// The number of turns in words.
fn turned(turns: &Length) -> String {
    match turns {
        Length::Tokens(count) | Length::Drawn(LengthKind::Fixed { value: count }) => {
            format!("{} turns", grouped(*count))
        }
        Length::Drawn(LengthKind::Uniform { min, max }) => format!("{min} to {max} turns"),
        Length::Drawn(_) => "turns of varying number".to_owned(),
    }
}

/// The start of the users of a closed loop in words; `None` for other arrivals and a single user.
pub(super) fn users(workload: &Workload) -> Option<String> {
    match &workload.arrivals {
        Arrivals::ClosedLoop { concurrency: 2.., ramp_s, .. } => {
            Some(match ramp_s.filter(|seconds| *seconds > 0.0) {
                Some(seconds) => format!(
                    "begin one after another over {} s; requests sent until then are not judged",
                    significant(seconds)
                ),
                None => "all begin at once, as in a benchmark".to_owned(),
            })
        }
        _ => None,
    }
}

/// The lengths in words, as in `1000 prompt and 200 output tokens each`, or with percentiles if they vary.
pub(super) fn lengths(workload: &Workload) -> String {
    // The tokens of an image of some size depend on the model.
    let images = workload.images.filter(|images| images.tokens.is_some());
    let Ok(drawn) = DrawnLoad::of(&Workload { images, ..workload.clone() }, "workload") else {
        let [input, output] = [workload.input_mean(), workload.output_mean()];
        return format!("{input:.0} prompt and {output:.0} output tokens on average");
    };
    let part = |of: LengthStatistics, kind: &str| match of.constant {
        true => format!("{:.0} {kind}", of.mean),
        false => format!("{:.0} {kind} (p50 {}, p99 {})", of.mean, of.p50, of.p99),
    };
    let how = if drawn.input.constant && drawn.output.constant { "each" } else { "on average" };
    format!("{} and {} tokens {how}", part(drawn.input, "prompt"), part(drawn.output, "output"))
}

/// The parts of load and SLO that are defaults, as in `prompt lengths, TTFT bound: not given`; `None` if there are none.
pub(super) fn defaults(names: &[&str]) -> Option<(&'static str, String)> {
    (!names.is_empty()).then(|| ("defaults", format!("{}: not given", names.join(", "))))
}

/// The SLO in words, as in `TTFT p99 ≤ 2000 ms, TPOT p99 ≤ 50 ms`, or a text that there is none.
pub(super) fn slo(slo: &Slo) -> String {
    let share = slo.goodput.map(|share| format!("for {} of the requests", percent(share)));
    let bound = |b: SloBound| match slo.goodput {
        Some(_) => format!("{} ≤ {} ms", b.metric.name(), b.ms),
        None => format!("{} ≤ {} ms", b.name(), b.ms),
    };
    let all: Vec<_> = slo.bounds().map(bound).chain(share).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
