//! Deployments as rows: for people, and as CSV.

use crate::show::number::{counted, dollars, grouped, percent, significant};
use crate::show::table;
use roofcast::plan::{Choice, Near, Plan, PoolChoice};
use roofcast::spec::Metric;

pub(super) const CSV: [&str; 45] = [
    "accelerator",
    "count",
    "tp",
    "pp",
    "ep",
    "attention_dp",
    "replicas",
    "prefill_accelerator",
    "prefill_replicas",
    "prefill_tp",
    "beside_accelerator",
    "beside_replicas",
    "beside_tp",
    "weights",
    "kv",
    "engine",
    "router",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "host_tier_gib",
    "num_speculative_tokens",
    "max_num_batched_tokens",
    "max_num_seqs",
    "stage",
    "bound",
    "evidence",
    "batch",
    "max_batch",
    "tpot_ms",
    "tpot_p99_ms",
    "ttft_ms",
    "ttft_p99_ms",
    "e2el_p99_ms",
    "itl_p99_ms",
    "chance",
    "max_requests_per_s",
    "output_tok_s",
    "output_tok_s_per_accelerator",
    "interactivity_tok_s",
    "cost_per_hour",
    "cost_per_million_tokens",
    "joules_per_token",
    "pareto",
    "pareto_throughput",
    "interrupted",
];

/// One row for each deployment that meets the SLO, best first.
pub(super) fn csv_rows(found: &Plan) -> Vec<Vec<String>> {
    let row = |c: &Choice| {
        let on = [found.pareto.contains(c), found.pareto_throughput.contains(c), found.interrupted];
        csv_row(c).into_iter().chain(on.map(|on| on.to_string())).collect()
    };
    found.ranked.iter().map(row).collect()
}

fn csv_row(c: &Choice) -> Vec<String> {
    let some = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    let pool = |pool: &Option<PoolChoice>| {
        let column = |of: fn(&PoolChoice) -> String| pool.as_ref().map_or_else(String::new, of);
        [
            column(|p| p.accelerator.clone()),
            column(|p| p.replicas.to_string()),
            column(|p| p.cut.tp.to_string()),
        ]
    };
    let mut row = vec![c.accelerator.clone()];
    row.extend([c.count, c.tp, c.pp, c.ep, c.attention_dp, c.replicas].map(|n| n.to_string()));
    row.extend(pool(&c.prefill).into_iter().chain(pool(&c.beside)));
    row.extend([c.weights.clone(), c.kv.clone()]);
    row.extend([c.engine.clone(), c.router.to_owned()]);
    row.extend([c.enable_chunked_prefill, c.enable_prefix_caching].map(|on| on.to_string()));
    row.push(some(c.host_tier_gib));
    row.push(c.num_speculative_tokens.map_or_else(String::new, |n| n.to_string()));
    row.extend([c.max_num_batched_tokens, c.max_num_seqs].map(|n| n.to_string()));
    row.extend([word(c.stage), c.bound.to_owned(), c.evidence.map_or_else(String::new, word)]);
    row.extend([c.batch.to_string(), c.max_batch.to_string()]);
    row.extend([c.tpot_ms, c.tpot_p99_ms, c.ttft_ms, c.ttft_p99_ms].map(|v| v.to_string()));
    row.extend([c.e2el_p99_ms, c.itl_p99_ms].map(|v| v.to_string()));
    row.extend([some(c.chance), some(c.max_requests_per_s)]);
    let rates = [c.output_tok_s, c.output_tok_s_per_accelerator, c.interactivity_tok_s];
    row.extend(rates.map(|v| v.to_string()));
    row.extend([c.cost_per_hour, c.cost_per_million_tokens, c.joules_per_token].map(some));
    row
}

/// Name of an enum's variant in a spec.
pub(super) fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The replicas of a choice in words: `4 × tp 2`, `2P tp 4 + 1D tp 8` for prefill and decode.
pub(super) fn pools(c: &Choice) -> String {
    let cut = |tp: u64, pp: u64, dp: u64, ep: u64| {
        let degrees = [("pp", pp), ("dp", dp), ("ep", ep)].into_iter().filter(|(_, n)| *n > 1);
        degrees.fold(format!("tp {tp}"), |text, (name, n)| format!("{text} {name} {n}"))
    };
    let serving_cut = cut(c.tp, c.pp, c.attention_dp, c.ep);
    let pool_cut = |p: &PoolChoice| cut(p.cut.tp, p.cut.pp, p.cut.attention_dp, p.cut.ep);
    match (&c.prefill, &c.beside) {
        (Some(p), _) => format!("{}P {} + {}D {serving_cut}", p.replicas, pool_cut(p), c.replicas),
        (None, Some(p)) => format!("{} × {serving_cut} + {} × {}", c.replicas, p.replicas, pool_cut(p)),
        (None, None) => format!("{} × {serving_cut}", c.replicas),
    }
}

/// The accelerators of a choice: `h200-sxm`, or for two kinds `h100 + h200`, each name shortened after its first part
/// with a digit.
fn chips(c: &Choice) -> String {
    fn short(id: &str) -> &str {
        let digit = id.find(|c: char| c.is_ascii_digit()).unwrap_or(id.len());
        id[digit..].find('-').map_or(id, |end| &id[..digit + end])
    }
    match c.kinds().as_slice() {
        [one, other] if short(one) != short(other) => format!("{} + {}", short(one), short(other)),
        _ => c.accelerators(),
    }
}

/// Columns that are shown only if rows differ in them, and if all columns are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) wide: bool,
    pub(super) engines: bool,
    pub(super) routers: bool,
    /// True to show the token budget of a step, because rows are otherwise equal.
    pub(super) tokens: bool,
}

/// The highest percentile of a latency that the SLO bounds, and its value in milliseconds; the 99th if the SLO bounds
/// none.
pub(super) fn latency(c: &Choice, metric: Metric) -> (&'static str, f64) {
    let bound = c.bounds.iter().find(|bound| bound.metric == metric.name());
    bound.map_or_else(
        || match metric {
            Metric::Ttft => ("p99", c.ttft_p99_ms),
            Metric::Tpot => ("p99", c.tpot_p99_ms),
            Metric::E2el => ("p99", c.e2el_p99_ms),
            Metric::Itl => ("p99", c.itl_p99_ms),
        },
        |bound| (bound.percentile, bound.ms),
    )
}

/// A probability in whole percents, rounded down, so that 79.6 % is not shown as the 80 % that was required.
pub(super) fn chance(share: f64) -> String {
    percent((share * 100.0).floor() / 100.0)
}

/// Table of deployments that meet the SLO.
pub(super) fn choices<'a>(list: impl IntoIterator<Item = &'a Choice>, columns: Columns) -> String {
    let wide = columns.wide;
    let list: Vec<&Choice> = list.into_iter().collect();
    let [ttft, tpot] = [Metric::Ttft, Metric::Tpot].map(|metric| {
        let percentile = list.first().map_or("p99", |c| latency(c, metric).0);
        format!("{} {percentile}", metric.name())
    });
    let mut header = vec!["count", "accelerator", "as", "formats", &ttft, &tpot];
    // A narrow line has room for only one of the two columns.
    let bound = wide || !columns.tokens;
    header.extend(bound.then_some("bottleneck"));
    header.push("chance");
    if columns.engines {
        header.insert(2, "engine");
    }
    if columns.routers {
        header.insert(2, "router");
    }
    if columns.tokens {
        header.push("tokens");
    }
    if wide {
        header.extend(["running", "TTFT", "TPOT", "limit TPOT", "evidence", "tok/s/GPU"]);
        header.extend(["requests/s", "$/M output"]);
    }
    header.push("$/h");
    let row = |c: &Choice| {
        let formats = format!("{} / {}", c.weights, c.kv);
        let mut row = vec![c.count.to_string(), chips(c)];
        row.extend(columns.routers.then(|| c.router.to_owned()));
        row.extend(columns.engines.then(|| c.engine.clone()));
        row.extend([pools(c), formats]);
        row.extend([Metric::Ttft, Metric::Tpot].map(|metric| significant(latency(c, metric).1)));
        row.extend(bound.then(|| c.bound.to_owned()));
        row.push(c.chance.map_or_else(|| "–".to_owned(), chance));
        row.extend(columns.tokens.then(|| grouped(c.max_num_batched_tokens)));
        if wide {
            row.push(significant(c.batch));
            row.extend([c.ttft_ms, c.tpot_ms, c.limit.tpot_ms].map(significant));
            row.push(c.evidence.map_or_else(|| "limit".to_owned(), word));
            row.push(significant(c.output_tok_s_per_accelerator));
            row.push(c.max_requests_per_s.map_or_else(|| "–".to_owned(), significant));
            row.push(dollars(c.cost_per_million_tokens));
        }
        row.push(dollars(c.cost_per_hour));
        row
    };
    let words = 4 + usize::from(columns.engines) + usize::from(columns.routers);
    table::table(&header, &list.into_iter().map(row).collect::<Vec<_>>(), words)
}

/// The first row of each deployment, where deployments that differ only in scheduler settings count as one.
pub(super) fn distinct(list: &[Choice]) -> Vec<&Choice> {
    let mut seen = std::collections::BTreeSet::new();
    let key = |c: &Choice| {
        (c.accelerators(), pools(c), c.weights.clone(), c.kv.clone(), c.engine.clone(), c.router)
    };
    list.iter().filter(|c| seen.insert(key(c))).collect()
}

/// Table of throughput per accelerator against tokens per second of one user.
pub(super) fn throughput(list: &[Choice]) -> String {
    let header = ["count", "accelerator", "as", "formats", "tok/s/GPU", "tok/s/user", "$/M output"];
    let row = |c: &Choice| {
        let mut row = vec![c.count.to_string(), chips(c), pools(c)];
        row.push(format!("{} / {}", c.weights, c.kv));
        row.extend([c.output_tok_s_per_accelerator, c.interactivity_tok_s].map(significant));
        row.push(dollars(c.cost_per_million_tokens));
        row
    };
    table::table(&header, &list.iter().map(row).collect::<Vec<_>>(), 4)
}

/// Table of deployments that miss the SLO or were requested by name, each with its result.
pub(super) fn near(list: &[Near]) -> String {
    let mut text = String::new();
    for n in list {
        let stage = n.stage.map_or_else(|| "not simulated".to_owned(), word);
        text += &format!("  {}, ${}/h\n    {stage}: {}\n", n.deployment, dollars(n.cost_per_hour), n.reason);
        let rate = n.meets_at_requests_per_s.map(|rate| format!("{} requests/s", significant(rate)));
        if let Some(load) = rate.or_else(|| n.meets_at_users.map(|users| counted(users, "user"))) {
            text += &format!("    it would do at {load}\n");
        }
    }
    text.push('\n');
    text
}
