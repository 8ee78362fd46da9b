//! Replicas of a plan's best deployment over time, for people.

use crate::show::number::{dollars, grouped, percent, significant};
use crate::show::table;
use roofcast::plan::{Choice, OverTime, Plan, ScheduleInterval};

/// Most rows that are printed without `--wide`.
const ROWS: usize = 12;

/// The table of replicas over time; empty if a schedule was not asked for.
pub(super) fn people(found: &Plan, wide: bool) -> String {
    let best_over_time = found.over_time.as_ref().zip(found.best.as_ref());
    best_over_time.map_or_else(String::new, |(over_time, best)| of_best(over_time, best, wide))
}

fn of_best(o: &OverTime, best: &Choice, wide: bool) -> String {
    let bounds = o.intervals.iter().find(|interval| !interval.bounds.is_empty()).map(|first| &first.bounds);
    let names: Vec<String> =
        bounds.into_iter().flatten().map(|b| format!("{} {}", b.metric, b.percentile)).collect();
    let mut header = vec!["from", "to", "requests/s", "replicas", "accelerators", "SLO"];
    header.extend(names.iter().map(String::as_str));
    let spans = spans(&o.intervals);
    // Intervals that miss the SLO are shown whatever their number.
    let shown =
        |(at, span): &(usize, &&[ScheduleInterval])| wide || *at < ROWS || span.iter().any(|i| !i.meets);
    let rows: Vec<Vec<String>> =
        spans.iter().enumerate().filter(shown).map(|(_, span)| row(o, span)).collect();
    let mut text = format!(
        "ideal autoscaling: replicas of {} {} per interval of {} s\n\n",
        o.accelerators_each,
        best.accelerator,
        significant(o.interval_s)
    );
    if o.slower != 1.0 {
        text += &table::line(&format!(
            "latencies with steps {} times the forecast, as --confidence demands: {} of measured steps are at most that slow",
            significant(o.slower),
            percent(o.confidence)
        ));
        text += "\n";
    }
    text += &table::table(&header, &rows, 0);
    if rows.len() < spans.len() {
        text += &format!("{} more rows: --wide\n\n", spans.len() - rows.len());
    }
    let saved = 1.0 - o.accelerator_hours / o.constant_accelerator_hours.max(f64::MIN_POSITIVE);
    let all = format!(
        "{} accelerators at the peak, {} on average: {} accelerator-hours (${}), against {} at constant size ({:+.0} %)",
        grouped(o.peak_accelerators),
        significant(o.mean_accelerators),
        significant(o.accelerator_hours),
        dollars(o.dollars),
        significant(o.constant_accelerator_hours),
        -saved * 100.0
    );
    text += &table::line(&all);
    let verdict = match o.intervals.iter().filter(|interval| !interval.meets).count() {
        0 => "Simulated as a whole, the requests of every interval keep the SLO.".to_owned(),
        n => format!(
            "In {n} of {} intervals the SLO is missed: --max-accelerators allows no more.",
            o.intervals.len()
        ),
    };
    let startup = match o.startup_s {
        0.0 => "without a start-up".to_owned(),
        s => format!("ready when its interval begins, started {} s before", significant(s)),
    };
    text += &table::line(&format!(
        "{verdict} Ideal: arrivals are known in advance; a replica is {startup}, and stops with its last answer. A real autoscaler \
         needs more"
    ));
    text + "\n"
}

/// Groups consecutive intervals with equal numbers of replicas and an equal verdict.
fn spans(intervals: &[ScheduleInterval]) -> Vec<&[ScheduleInterval]> {
    intervals.chunk_by(|a, b| (a.replicas, a.meets) == (b.replicas, b.meets)).collect()
}

/// The row of a span of intervals, with the highest value of each bounded latency.
fn row(o: &OverTime, span: &[ScheduleInterval]) -> Vec<String> {
    let Some((first, last)) = span.first().zip(span.last()) else { return Vec::new() };
    let seconds = last.to_s - first.from_s;
    let requests: u64 = span.iter().map(|interval| interval.requests).sum();
    let mut row = vec![format!("{} s", significant(first.from_s)), format!("{} s", significant(last.to_s))];
    row.push(significant(requests as f64 / seconds));
    row.extend([first.replicas, first.replicas * o.accelerators_each].map(grouped));
    row.push(if first.meets { "met" } else { "missed" }.to_owned());
    let worst = |at: usize| span.iter().filter_map(|i| Some(i.bounds.get(at)?.ms)).fold(0.0, f64::max);
    row.extend((0..first.bounds.len()).map(|at| significant(worst(at))));
    row
}
