//! Limit and forecast of a step, operator by operator, with the overhead outside the operators.

use crate::show::number::{ms, percent, significant};
use crate::show::table;
use roofcast::coefficients::Evidence;
use roofcast::cost::{AddedTimes, Cost, OperatorCost};
use roofcast::kernel_time::Basis;
use roofcast::units::{Bytes, Picoseconds};

/// The operators of a step as a table for people.
pub(super) fn table(cost: &Cost) -> String {
    let header = [
        "operator",
        "bottleneck",
        "layers",
        "FLOPs",
        "weights",
        "KV",
        "FLOP/B",
        "limit ms",
        "forecast ms",
        "efficiency",
        "based on",
    ];
    // Indices of the columns that a narrow page drops, in this order; a wide page also shows the operators' shapes.
    const SPARE: [usize; 5] = [10, 3, 6, 2, 5];
    let size = |b: Bytes| if b == Bytes::ZERO { "–".to_owned() } else { b.gb() };
    let row = |o: &OperatorCost| {
        vec![
            format!("{} ({}{})", o.name, if o.on_host { "host, " } else { "" }, o.dtype),
            o.bound.name().to_owned(),
            o.layers.to_string(),
            o.flops.human(),
            size(o.weight_bytes),
            size(o.kv_bytes),
            significant(o.intensity),
            ms(o.limit),
            ms(o.forecast),
            percent(o.share),
            rests_on(o),
        ]
    };
    let more = beside(cost).map(|(name, limit, forecast, what)| {
        let mut cells = vec![String::new(); header.len()];
        cells[0] = name.to_owned();
        cells[7] = ms(limit);
        cells[8] = ms(forecast);
        // An overhead without a limit has no efficiency.
        let links = limit > Picoseconds::ZERO && forecast > Picoseconds::ZERO;
        cells[9] = if links { percent(limit.seconds() / forecast.seconds()) } else { "–".to_owned() };
        cells[10] = what;
        cells
    });
    let rows: Vec<_> = cost.operators.iter().map(row).chain(more).collect();
    table::fitted(&header, &rows, 2, &SPARE)
}

/// Name, limit, forecast and content of each time outside operators.
fn beside(cost: &Cost) -> impl Iterator<Item = (&'static str, Picoseconds, Picoseconds, String)> {
    let AddedTimes { small_kernels, launches, host, server, links } = cost.beside;
    let replaced = cost.all_reduces_rest_on.as_ref().filter(|basis| basis.in_place_of.is_some());
    let messages = replaced.map_or_else(|| "messages between ranks".to_owned(), measurement);
    let times = [
        ("small kernels", Picoseconds::ZERO, small_kernels, "counted per layer".to_owned()),
        ("launches", Picoseconds::ZERO, launches, "launches without a CUDA graph".to_owned()),
        ("host", Picoseconds::ZERO, host, "host time not overlapped".to_owned()),
        ("server", Picoseconds::ZERO, server, "waits for the server's messages to clients".to_owned()),
        ("links", cost.terms.communication, links, messages),
    ];
    times.into_iter().filter(|(_, limit, forecast, _)| *limit + *forecast > Picoseconds::ZERO)
}

/// Measurement behind an operator's forecast; empty for a limit.
pub(super) fn rests_on(operator: &OperatorCost) -> String {
    operator.rests_on.as_ref().map_or(String::new(), measurement)
}

/// Name of a measured kernel, marked `=` if this exact shape was timed, `~` if a similar one was, and the kernel in whose place it counts.
fn measurement(basis: &Basis) -> String {
    let sign = match (basis.evidence, basis.exact) {
        (Evidence::Nothing, _) => "",
        (_, true) => "= ",
        (_, false) => "~ ",
    };
    let named = basis.in_place_of.as_ref().map_or(String::new(), |kernel| format!(", for {kernel}"));
    format!("{sign}{}{named}", basis.kernel)
}

/// Rows of a step in CSV: operators and the times outside them, which sum to the time of the step.
pub(super) fn csv_rows(phase: &str, cost: &Cost) -> Vec<Vec<String>> {
    let more = beside(cost).map(|(name, limit, forecast, what)| {
        let mut row = vec![String::new(); 13];
        row[0] = phase.to_owned();
        row[1] = name.to_owned();
        row[9] = limit.ms().to_string();
        row[10] = forecast.ms().to_string();
        row[12] = what;
        row
    });
    cost.operators.iter().map(|operator| csv_row(phase, operator)).chain(more).collect()
}

/// The row of an operator in CSV.
fn csv_row(phase: &str, o: &OperatorCost) -> Vec<String> {
    vec![
        phase.to_owned(),
        o.name.name().to_owned(),
        o.layers.to_string(),
        o.dtype.to_string(),
        o.flops.0.to_string(),
        o.weight_bytes.0.to_string(),
        o.kv_bytes.0.to_string(),
        o.intensity.to_string(),
        o.bound.name().to_owned(),
        o.limit.ms().to_string(),
        o.forecast.ms().to_string(),
        o.share.to_string(),
        rests_on(o),
    ]
}
