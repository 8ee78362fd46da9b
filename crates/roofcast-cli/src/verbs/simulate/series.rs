//! Levels over time as CSV, a row for each replica and interval.

use roofcast::simulate::Simulation;
use roofcast::timeline::series::SeriesPoint;

const HEADER: &str = "replica,start_ms,end_ms,running,waiting,kv_blocks,kv_usage,preemptions,prefill_tokens_per_s,output_tokens_per_s";

/// The lines of the file.
pub(super) fn lines(simulation: &Simulation) -> impl Iterator<Item = String> + '_ {
    let all = simulation.kv_cache.blocks as f64;
    let rows = simulation.series.iter().enumerate();
    let rows = rows.flat_map(move |(replica, points)| points.iter().map(move |p| line(replica, p, all)));
    std::iter::once(HEADER.to_owned()).chain(rows)
}

fn line(replica: usize, p: &SeriesPoint, blocks: f64) -> String {
    let SeriesPoint { start_ms, end_ms, running, waiting, preemptions, .. } = p;
    format!(
        "{replica},{start_ms},{end_ms},{running},{waiting},{},{},{preemptions},{},{}",
        p.blocks,
        p.blocks / blocks,
        p.prefill_tokens_per_s,
        p.output_tokens_per_s
    )
}
