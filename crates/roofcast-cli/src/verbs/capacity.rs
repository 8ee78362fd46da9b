//! `roofcast capacity`: the memory that a deployment needs, and the requests that fit.

mod parts;
mod startup;
pub(crate) mod sweep;
pub(crate) mod view;

use super::{About, MACHINE};
use crate::args::CapacityArgs;
use crate::input::checkpoint::{self, Checkpoint};
use crate::show::column::{Column, Columns, Figure};
use crate::show::number::{count, grouped};
use crate::show::{self, table};
use crate::{exit, input};
use roofcast::capacity::{Capacity, CapacityQuestion, capacity};
use roofcast::checkpoint::by_type;
use roofcast::checkpoint::compare::Difference;
use roofcast::explain::{TensorRow, explain};
use roofcast::memory::log::{Logged, Term, TermComparison, beside};
use roofcast::memory::{self, Memory, Start};
use roofcast::startup::{Startup, VOLUME_BYTES_PER_S};
use roofcast::units::{Bytes, Flops};
use roofcast::{Deployment, Error};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Name and version of the answer's schema.
pub(crate) const SCHEMA: &str = "roofcast/capacity/1";

/// Capacity: the sequences and tokens that fit in memory, and the memory of everything else.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Capacity"))]
pub(crate) struct Answer<'a> {
    #[serde(flatten)]
    about: About<'a>,
    /// Requested tokens of context of each sequence.
    context: u64,
    /// Requested number of sequences.
    batch: u64,
    /// Users per sequence in memory.
    oversubscription: f64,
    #[serde(flatten)]
    capacity: &'a Capacity,
    /// Time of a replica's start, with weights from a network volume.
    startup: Startup,
    /// The engine's start-up report, by the rules of each engine; absent unless `engine.max_model_len`,
    /// `hardware.memory_used_gib` or a command is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Start>,
    /// Comparison with the log of `--measured-log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
    /// Tensors of the model, with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<TensorRow>>,
    /// Contents of the files of the checkpoint, with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Files>,
}

impl<'a> Answer<'a> {
    pub(crate) fn of(
        deployment: &'a Deployment,
        question: &CapacityQuestion,
        capacity: &'a Capacity,
    ) -> Answer<'a> {
        Answer {
            about: About::of(deployment),
            context: question.context,
            batch: question.batch,
            oversubscription: question.oversubscription_percent as f64 / 100.0,
            capacity,
            startup: Startup::of(deployment, VOLUME_BYTES_PER_S),
            start: None,
            measured: None,
            tensors: None,
            checkpoint: None,
        }
    }
}

/// Tensors in the checkpoint's files, and their differences from the model.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CheckpointFiles"))]
struct Files {
    /// Size of all tensors.
    bytes: Bytes,
    /// Tensors by type.
    types: Vec<Type>,
    /// Differences from the config.
    differences: Vec<Difference>,
}

/// The tensors of one type in a checkpoint.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "CheckpointType"))]
struct Type {
    /// Name of the type in the files.
    dtype: String,
    /// Number of tensors.
    tensors: u64,
    /// Number of elements.
    elements: u64,
    /// Size of the tensors.
    bytes: Bytes,
}

impl Files {
    fn of(checkpoint: Checkpoint) -> Files {
        let kind = |(dtype, tensors, elements, bytes)| Type { dtype, tensors, elements, bytes };
        let types: Vec<Type> = by_type(&checkpoint.tensors).into_iter().map(kind).collect();
        Files { bytes: types.iter().map(|t| t.bytes).sum(), types, differences: checkpoint.differences }
    }

    fn people(&self) -> String {
        let row = |t: &Type| vec![t.dtype.clone(), grouped(t.tensors), grouped(t.elements), t.bytes.gb()];
        let mut text = format!("the files hold {}\n\n", self.bytes.gb());
        text += &table::table(
            &["type", "tensors", "values", "bytes"],
            &self.types.iter().map(row).collect::<Vec<_>>(),
            1,
        );
        if self.differences.is_empty() {
            return text;
        }
        text += "where they differ from the config\n\n";
        let row =
            |d: &Difference| vec![d.place.clone(), grouped(d.config), grouped(d.file), d.tensors.join(", ")];
        text + &table::table(
            &["place", "by config", "in the file", "tensors"],
            &self.differences.iter().map(row).collect::<Vec<_>>(),
            1,
        )
    }
}

pub(crate) fn run(args: &CapacityArgs) -> anyhow::Result<ExitCode> {
    let source = input::source(&args.deployment)?;
    if !args.sweep.is_empty() && !args.deployment.source.dump_spec {
        return sweep::run(args, &source);
    }
    let scenario = source.scenario(&[])?;
    let mut deployment = scenario.deployment()?;
    if args.deployment.source.dump_spec {
        scenario.dump(&format!("capacity SPEC.toml{}", asked(args)), Some(&deployment), &MACHINE)?;
        return Ok(ExitCode::SUCCESS);
    }
    let start = scenario.start(&deployment);
    let length = args.context.or(start.as_ref().map(|start| start.max_model_len));
    memory::host_tier(&deployment, 0)?;
    let question = question_of(args, length, &mut deployment);
    let context = question.context;
    let capacity_found = capacity(&deployment, &question);
    let log = args.measured_log.as_deref().map(logged).transpose()?;
    let measured =
        log.map(|log| Measured::of(&log, &capacity_found, &Memory::of(&deployment).start(context)));
    let files = if args.explain { checkpoint::asked(&scenario.model_name()?)?.map(Files::of) } else { None };
    if args.output.json {
        let answer = Answer {
            oversubscription: args.oversubscription,
            start: start.clone(),
            measured,
            tensors: args.explain.then(|| explain(&deployment)),
            checkpoint: files,
            ..Answer::of(&deployment, &question, &capacity_found)
        };
        show::json(SCHEMA, &answer)?;
    } else if args.output.csv && args.explain {
        show::csv(&TENSORS, &explain(&deployment).iter().map(csv_row).collect::<Vec<_>>())?;
    } else if args.output.csv {
        let columns = Columns::of(COLUMNS, std::iter::once(&capacity_found), true);
        show::csv(&columns.names().collect::<Vec<_>>(), &[columns.row(&capacity_found).collect()])?;
    } else {
        let tensors = if args.explain { tensors(&deployment) } else { String::new() };
        let tensors = tensors + &files.map_or(String::new(), |f| f.people());
        let title = About::of(&deployment).title();
        let refused = start.as_ref().is_some_and(|start| start.refusal.is_some());
        let started = start.as_ref().map_or(String::new(), |start| {
            told(&deployment, (start, capacity_found.kv_tokens), scenario.refusal(&deployment, start))
        });
        let measured = measured.as_ref().map_or(String::new(), Measured::people);
        show::text(
            &(title
                + &people(&deployment, &question, (&capacity_found, refused))
                + &started
                + &measured
                + &tensors),
        )?;
    }
    // A server may start with shorter sequences alone; a question without a command, or of a batch, is about whole ones.
    let is_started = start.map(|start| start.refusal.is_none() && capacity_found.kv_tokens > 0);
    let is_feasible = match is_started {
        Some(is_started) if question.batch == 1 => is_started,
        is_started => is_started.unwrap_or(true) && capacity_found.fits,
    };
    Ok(if is_feasible { ExitCode::SUCCESS } else { exit::infeasible() })
}

/// The question that the flags ask, for sequences of `context` tokens.
fn question_of(args: &CapacityArgs, context: Option<u64>, deployment: &mut Deployment) -> CapacityQuestion {
    CapacityQuestion {
        context: input::context(context, deployment),
        batch: args.batch,
        oversubscription_percent: (args.oversubscription * 100.0).round() as u64,
        users: args.users,
    }
}

/// Reads a start-up log that reports memory.
fn logged(path: &Path) -> anyhow::Result<Logged> {
    let accepted = "a log with lines as \"Model loading took … GiB\" or \"GPU KV cache size: … tokens\"";
    let logged = Logged::read(&input::text(path)?);
    logged
        .ok_or_else(|| Error::field(path.display(), "the log", "without figures of memory", accepted).into())
}

/// The memory terms in an engine's log, compared with the forecast.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MeasuredStart"))]
struct Measured {
    /// Terms of the log, each with its forecast.
    terms: Vec<TermComparison>,
    /// Bytes of the log's budget that no term of the log explains.
    #[serde(skip_serializing_if = "Option::is_none")]
    unexplained_bytes: Option<f64>,
}

impl Measured {
    fn of(log: &Logged, found: &Capacity, start: &Start) -> Measured {
        let fullest = found.ranks.iter().min_by_key(|rank| rank.kv_bytes);
        let terms = fullest.map_or_else(Vec::new, |rank| beside(log, rank, start));
        Measured { terms, unexplained_bytes: log.unexplained() }
    }

    fn people(&self) -> String {
        let shown = |term: Term, figure: f64| match term {
            Term::KvTokens => grouped(figure as u64),
            Term::Concurrency => format!("{:.2}", figure / 100.0),
            _ => gib(figure),
        };
        let row = |b: &TermComparison| {
            let off = format!("{:+.1} %", (b.forecast / b.measured - 1.0) * 100.0);
            vec![b.term.name().to_owned(), shown(b.term, b.measured), shown(b.term, b.forecast), off]
        };
        let mut rows: Vec<Vec<String>> = self.terms.iter().map(row).collect();
        if let Some(bytes) = self.unexplained_bytes {
            rows.push(vec!["not in the log's terms".into(), gib(bytes), String::new(), String::new()]);
        }
        table::table(&["per accelerator at start-up", "measured", "forecast", "error"], &rows, 1)
    }
}

/// Formats bytes in GiB, as an engine's log does.
fn gib(bytes: f64) -> String {
    format!("{:.2} GiB", bytes / f64::from(1 << 30))
}

/// Columns of `--explain --csv`.
const TENSORS: [&str; 10] =
    ["tensor", "operator", "format", "bits", "layers", "copies", "outputs", "inputs", "parameters", "bytes"];

fn csv_row(r: &TensorRow) -> Vec<String> {
    let [outputs, inputs] = r.shape;
    let mut row = vec![r.tensor.to_owned(), r.operator.name().to_owned(), r.format.to_string()];
    row.push(r.bits.to_string());
    row.extend([r.layers, r.copies, outputs, inputs, r.parameters, r.bytes.0].map(|n| n.to_string()));
    row
}

/// The flags that have no key in a spec, as text.
fn asked(args: &CapacityArgs) -> String {
    let context = args.context.map_or(String::new(), |n| format!(" --context {n}"));
    let users = args.users.map_or(String::new(), |n| format!(" --users {n}"));
    let explain = if args.explain { " --explain" } else { "" };
    format!("{context} --batch {} --oversubscription {}{users}{explain}", args.batch, args.oversubscription)
}

/// The figures of a capacity.
const COLUMNS: &[Column<Capacity>] = &[
    Column::csv("fits", |c| Figure::Count(u64::from(c.fits))),
    Column::csv("short_by_bytes", |c| Figure::Size(c.short_by_bytes)),
    Column::csv("parameters_total", |c| Figure::Count(c.parameters.total)),
    Column::csv("parameters_active", |c| Figure::Count(c.parameters.active)),
    Column::new("weight bytes", "weight_bytes", |c| Figure::Size(c.weight_bytes)),
    Column::csv("kv_bytes_per_token", |c| Figure::Size(c.kv_bytes_per_token)),
    Column::new("KV a sequence", "kv_bytes_per_sequence", |c| Figure::Size(c.kv_bytes_per_sequence)),
    Column::new("KV tokens", "kv_tokens", |c| Figure::Count(c.kv_tokens)),
    Column::csv("host_kv_tokens", |c| Figure::Count(c.host_kv_tokens.unwrap_or(0))),
    Column::csv("storage_kv_tokens", |c| Figure::Count(c.storage_kv_tokens.unwrap_or(0))),
    Column::new("largest batch", "max_batch", |c| Figure::Count(c.max_batch)),
    Column::new("longest context", "longest_context", |c| Figure::Count(c.longest_context)),
    Column::csv("users", |c| Figure::Count(c.users)),
    Column::csv("min_accelerators", |c| Figure::Count(c.min_accelerators.unwrap_or(0))),
];

/// The answer; `refused` is true if the engine does not start, and then nothing is said of what its cache would hold.
fn people(deployment: &Deployment, question: &CapacityQuestion, (c, refused): (&Capacity, bool)) -> String {
    let both = |b: Bytes| format!("{} ({})", b.gb(), b.gib());
    let p = c.parameters;
    let mut pairs = vec![
        (
            "parameters",
            format!("{} total, {} active, {} embedding", count(p.total), count(p.active), count(p.embedding)),
        ),
        ("weights", both(c.weight_bytes) + &parts::held_elsewhere(deployment, c)),
        ("KV per token", format!("{} B", grouped(c.kv_bytes_per_token.0))),
        (
            "KV per sequence",
            format!("{} at {} tokens", both(c.kv_bytes_per_sequence), grouped(question.context)),
        ),
    ];
    if c.compute_bytes_per_token > Bytes::ZERO {
        let bytes = grouped(c.compute_bytes_per_token.0);
        pairs.push(("compute buffer", format!("{bytes} B per token of context, in addition to KV")));
    }
    if refused && deployment.memory_used > Bytes::ZERO {
        return table::pairs(&pairs) + &parts::of_ranks(deployment, c);
    }
    if c.kv_tokens > 0 {
        pairs.push(("KV tokens", grouped(c.kv_tokens)));
        let below = [("in host memory", c.host_kv_tokens), ("in storage", c.storage_kv_tokens)];
        let below = below.into_iter().filter_map(|(name, tokens)| Some((name, grouped(tokens?))));
        pairs.extend(below.map(|(name, tokens)| (name, format!("{tokens} tokens"))));
        pairs.push((
            "largest batch",
            format!("{} of {} tokens", grouped(c.max_batch), grouped(question.context)),
        ));
        if c.max_batch > 0 && !c.fits {
            pairs.push(("does not fit", parts::crowded(question, c.short_by_bytes)));
        }
        pairs.push(("longest context", grouped(c.longest_context)));
    } else {
        pairs.push(("does not fit", format!("{} short on the fullest accelerator", both(c.short_by_bytes))));
    }
    if question.oversubscription_percent != 100 || question.users.is_some() {
        pairs.push((
            "users",
            format!(
                "{} (over-subscription {:.2})",
                grouped(c.users),
                question.oversubscription_percent as f64 / 100.0
            ),
        ));
    }
    if let (Some(users), Some(nodes)) = (question.users, c.deployments_for_users) {
        pairs.push(("deployments", format!("{} for {} users", grouped(nodes), grouped(users))));
    }
    if c.kv_tokens > 0 && c.max_batch == 0 {
        pairs.push((
            "no sequence fits",
            format!(
                "of {} tokens; the longest that does has {}",
                grouped(question.context),
                grouped(c.longest_context)
            ),
        ));
    }
    if let Some(least) = c.min_accelerators {
        pairs.push((
            "accelerators",
            format!(
                "{} hold the weights and {} × {} tokens",
                grouped(least),
                question.batch,
                grouped(question.context)
            ),
        ));
    }
    let topologies = [("smallest topology", &c.smallest_topology), ("fits in stages", &c.in_stages)];
    if !deployment.ideal {
        pairs.push(("start", startup::told(&Startup::of(deployment, VOLUME_BYTES_PER_S))));
    }
    let fitting =
        topologies.into_iter().filter_map(|(name, found)| Some((name, parts::topology(found.as_ref()?))));
    pairs.extend(fitting);
    table::pairs(&pairs) + &parts::of_ranks(deployment, c)
}

/// The figures that the engine logs at start-up: weights, KV cache, and how often the longest request fits in the KV
/// cache.
fn told(deployment: &Deployment, (start, decoding_tokens): (&Start, u64), refusal: Option<String>) -> String {
    let engine = deployment.engine.name();
    if let Some(refusal) = refusal {
        return format!("{refusal}\n\n");
    }
    let ranks = deployment.parallelism.attention_dp * deployment.parallelism.replicas;
    let each = if ranks > 1 { format!(", each of {ranks} engines") } else { String::new() };
    let mut pairs = vec![
        ("weights", format!("{} per accelerator", gib(start.weight_bytes.as_f64()))),
        ("KV cache", format!("{}, {} tokens{each}", gib(start.kv_bytes.as_f64()), grouped(start.kv_tokens))),
        (
            "concurrency",
            format!("{:.2} requests of {} tokens", start.max_concurrency, grouped(start.max_model_len)),
        ),
    ];
    if let Some(most) = start.max_running_requests {
        pairs.push((
            "running",
            format!("at most {} requests, by the pool of recurrent states{each}", grouped(most)),
        ));
    }
    let mut text = format!("as {engine} logs at start-up\n{}", table::pairs(&pairs));
    // Whole blocks alone make a smaller difference.
    if deployment.engine.vllm().is_some()
        && start.kv_tokens.saturating_mul(ranks) < decoding_tokens / 100 * 99
    {
        text += &table::line(&format!(
            "{engine} counts a request at its largest, in pages of one size for all groups of layers: a window also \
             holds the tokens of a step in flight. \"KV tokens\" and \"largest batch\" are of requests that decode, \
             whose windows hold no more than the window."
        ));
    }
    text
}

/// Table of every tensor, and of the sums that make up the totals.
fn tensors(deployment: &Deployment) -> String {
    let rows = explain(deployment);
    let line = |r: &TensorRow| {
        let [outputs, inputs] = r.shape;
        let copies = if r.copies > 1 { format!("{} × ", r.copies) } else { String::new() };
        vec![
            r.tensor.to_owned(),
            r.operator.name().to_owned(),
            format!("{} ({:.2} bits)", r.format, r.bits),
            r.layers.to_string(),
            format!("{copies}{outputs} × {inputs}"),
            grouped(r.parameters),
            r.bytes.gb(),
            Flops(r.flops_per_token.into()).human(),
        ]
    };
    let mut lines: Vec<_> = rows.iter().map(line).collect();
    let sum = |of: fn(&TensorRow) -> u64| rows.iter().map(of).sum::<u64>();
    let mut total = vec!["all".to_owned()];
    total.extend(std::iter::repeat_n(String::new(), 4));
    total.extend([
        grouped(sum(|r| r.parameters)),
        Bytes(sum(|r| r.bytes.0)).gb(),
        Flops(sum(|r| r.flops_per_token).into()).human(),
    ]);
    lines.push(total);
    let header = ["tensor", "operator", "format", "layers", "shape", "parameters", "bytes", "FLOPs/token"];
    table::fitted(&header, &lines, 3, &[1, 7, 3])
}
