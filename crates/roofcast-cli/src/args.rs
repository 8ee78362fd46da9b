//! Command-line arguments. A flag of a spec's key sets that key, and takes precedence over the spec file.

#[cfg(feature = "network")]
mod bench;
mod calibrate;
mod catalog;
#[cfg(feature = "network")]
mod emulate;
mod files;
pub(crate) mod flags;
pub(crate) mod foreign;
mod help;
mod images;
mod keys;
mod later;
#[cfg(feature = "schema")]
mod schema;
#[cfg(feature = "network")]
mod serve;
mod validate;
pub(crate) mod values;

#[cfg(feature = "network")]
pub(crate) use bench::{AskArgs, BenchArgs, JudgeArgs};
pub(crate) use calibrate::{CalibrateArgs, RunsArgs};
pub(crate) use catalog::{AddArgs, CatalogArgs, CatalogVerb, FilterArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
#[cfg(feature = "network")]
pub(crate) use emulate::EmulateArgs;
pub(crate) use files::Files;
use flags::{Flags, Machine, Planned, Traffic};
pub(crate) use help::grouped;
pub(crate) use keys::KeysArgs;
pub(crate) use later::{Later, signed};
#[cfg(feature = "schema")]
pub(crate) use schema::SchemaArgs;
#[cfg(feature = "network")]
pub(crate) use serve::ServeArgs;
use std::path::PathBuf;
pub(crate) use validate::{SplitArg, ValidateArgs};
use values::*;

/// Forecasts how large language models are served: limits, capacity and plans from one cost model.
#[derive(Debug, Parser)]
#[command(name = "roofcast", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// Print all columns of tables, and do not wrap lines at 100 characters.
    #[arg(long, global = true)]
    pub(crate) wide: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

// Verbs with subcommands are not deferred, because `help` lists the subcommands, too.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Limits of a machine: step times by operator, ridge and critical batch, links.
    Limits(Later<LimitsArgs>),
    /// Memory: parameters, KV cache, batch, users, smallest topology.
    Capacity(Later<CapacityArgs>),
    /// Search: the cheapest deployments that meet the SLO.
    Plan(Later<PlanArgs>),
    /// A serving engine under traffic: latency, throughput, preemptions, percentiles.
    Simulate(Later<SimulateArgs>),
    /// Measurement of a live OpenAI-compatible server: latency and throughput, limit and forecast, and whether the run
    /// is valid.
    #[cfg(feature = "network")]
    Bench(Later<BenchArgs>),
    /// A vLLM server without a GPU: the engine of simulate on the wall clock, behind an OpenAI-compatible port.
    #[cfg(feature = "network")]
    Emulate(Later<EmulateArgs>),
    /// Serves a page for the browser on this machine: limits, runs, plans and measurements.
    #[cfg(feature = "network")]
    Serve(Later<ServeArgs>),
    /// Lists the embedded accelerators, models and workloads, shows one, or adds a model.
    Catalog(Box<CatalogArgs>),
    /// Lists the keys of a spec with their flags: all, or the matches of a search.
    Keys(Later<KeysArgs>),
    /// Prints the JSON Schema of a document of --json, or lists the documents.
    #[cfg(feature = "schema")]
    Schema(Later<SchemaArgs>),
    /// Writes a starting spec: every key with its meaning.
    Init(Later<InitArgs>),
    /// Figures of the source texts: as printed, as recomputed by their rules, and as forecast.
    Seeds(Later<SeedsArgs>),
    /// Replays decisions recorded from vLLM's scheduler: exit 0 when all agree, else 1.
    Conformance(Later<ConformanceArgs>),
    /// Measures the machine that this runs on.
    Hardware(HardwareArgs),
    /// Forecasts against measurements: errors by metric, kind, engine, hardware and group.
    Validate(Later<ValidateArgs>),
    /// Fits a calibration to measured points, and judges it by cross-validation over groups.
    Calibrate(Later<CalibrateArgs>),
    /// Prints a completion script for a shell.
    Completions(Later<CompletionsArgs>),
    /// Prints the man page of roofcast or of a verb.
    Man(Later<ManArgs>),
}

/// Model, machine and engine: shared by the verbs.
#[derive(Debug, Args)]
pub(crate) struct DeploymentArgs {
    /// A spec file; flags override it.
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags<Machine>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// Further settings over a spec, and printing it: shared by the verbs.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Read an engine's command line as a deployment: vllm serve …, python -m sglang.launch_server …
    #[arg(long, value_name = "COMMAND", group = "running")]
    pub(crate) from_command: Option<String>,
    /// Read the command of the one engine in a cluster's manifest: a Deployment, a LeaderWorkerSet, kubectl get -o
    /// json.
    #[arg(long, value_name = "FILE.yaml", group = "running")]
    pub(crate) from_manifest: Option<PathBuf>,
    /// Set any key of the spec, as in engine.watermark=0.01.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print the whole spec as TOML instead of an answer, with defaults filled in and units in comments.
    #[arg(long)]
    pub(crate) dump_spec: bool,
    /// A TOML file of accelerators and models, in addition to the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON with a versioned schema.
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print CSV.
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    #[command(flatten)]
    pub(crate) step: StepArgs,
    /// Also draw measured steps from a CSV of measured points: those with this model, hardware, engine, weights and
    /// batch.
    #[arg(long, value_name = "FILE.csv", requires_all = ["sweep", "svg"])]
    pub(crate) measured: Option<PathBuf>,
    /// Vary batch, context, prefill, tp, position (of a token in the output, after --prefill tokens) or a key of the spec:
    /// batch=1..512, batch=1..512:x2, context=1024,8192, weights=bf16,fp8. Several keys give every combination.
    #[arg(long, value_name = "KEY=VALUES")]
    pub(crate) sweep: Vec<String>,
    #[command(flatten)]
    pub(crate) image: images::ImageArgs,
    /// Intensity of one layer of ROWSxCOLUMNS against batch, as in 4096x4096.
    #[arg(long, value_name = "ROWSxCOLUMNS", conflicts_with_all = ["sweep", "batch", "context", "prefill", "mfu", "mbu"])]
    pub(crate) intensity: Option<String>,
    /// Write the roofline as SVG; with --sweep or --intensity, its curve.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the answer as one self-contained HTML file.
    #[arg(long, value_name = "OUT.html", conflicts_with_all = ["sweep", "compare", "intensity"])]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The quantities of a step, and the settings with which it is compared.
#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Sequences that decode together, over the whole deployment [default: 1].
    #[arg(long, value_parser = positive())]
    pub(crate) batch: Option<u64>,
    /// Tokens of each sequence [default: 4096, or the model's maximum].
    #[arg(long, value_parser = positive())]
    pub(crate) context: Option<u64>,
    /// Tokens of a prompt [default: the context].
    #[arg(long, value_parser = positive())]
    pub(crate) prefill: Option<u64>,
    /// Fraction of the peak FLOPs that the limit assumes.
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    pub(crate) mfu: f64,
    /// Fraction of the memory bandwidth that the limit assumes.
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    pub(crate) mbu: f64,
    /// Mean output tokens: a sweep then counts KV tokens released per step; --context is the final length.
    #[arg(long, value_parser = positive(), requires = "sweep")]
    pub(crate) output_len: Option<u64>,
    /// Forecast the step with each setting of a kind.
    #[arg(long, value_enum, conflicts_with = "intensity")]
    pub(crate) compare: Option<CompareArg>,
}

impl StepArgs {
    /// A step without flags, at the full rates of the machine.
    pub(crate) fn of(batch: Option<u64>, context: Option<u64>, prefill: Option<u64>) -> StepArgs {
        StepArgs { batch, context, prefill, mfu: 1.0, mbu: 1.0, output_len: None, compare: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareArg {
    /// Attention backends: naive, one thread block per sequence and head, split over the context.
    Attention,
    /// CUDA graphs against launches from the host, fused layers against separate ones.
    Launches,
    /// Kernels that multiply the quantized weights.
    Kernels,
    /// Layouts of the KV cache and sizes of its blocks.
    Layouts,
}

#[derive(Debug, Args)]
pub(crate) struct CapacityArgs {
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    /// Tokens of each sequence [default: 4096, or the model's maximum].
    #[arg(long, value_parser = positive())]
    pub(crate) context: Option<u64>,
    /// Sequences that must fit.
    #[arg(long, default_value_t = 1, value_parser = positive())]
    pub(crate) batch: u64,
    /// Over-subscription of the KV cache: 2 serves twice the users that fit at full context.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub(crate) oversubscription: f64,
    /// Users to serve: prints how many such deployments are needed.
    #[arg(long, value_parser = positive())]
    pub(crate) users: Option<u64>,
    /// Show parameters, bytes and FLOPs tensor by tensor.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Compare the terms of an engine's start-up log with the forecast: vLLM, SGLang, TensorRT-LLM or llama.cpp.
    #[arg(long, value_name = "FILE")]
    pub(crate) measured_log: Option<PathBuf>,
    /// Vary context, batch or a key of the spec: context=1k..128k:x2, weights=bf16,fp8, count=1,2,4. One row per
    /// combination.
    #[arg(long, value_name = "KEY=VALUES", conflicts_with_all = ["explain", "measured_log"])]
    pub(crate) sweep: Vec<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A spec with [model], [workload], [slo] and [search] [default: Llama-3.1-8B for a chat].
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags<Planned>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Simulate every deployment that fits, without pruning by limit and estimate: slower, and the best is equal.
    #[arg(long)]
    pub(crate) exhaustive: bool,
    /// Print the result of one deployment, such as "accelerator=h100-sxm tp=4 replicas=2 weights=fp8".
    #[arg(long, value_name = "KEY=VALUE …")]
    pub(crate) why: Option<String>,
    /// A client's result (`vllm bench serve --save-result`, roofcast bench --json) against the deployment of
    /// --from-command or --from-manifest on hardware.accelerator; it calibrates the plan.
    #[arg(long, value_name = "FILE.json", requires = "running")]
    pub(crate) measured: Option<PathBuf>,
    /// Write commands, manifests, the spec and the line of roofcast bench for the best into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) launch_dir: Option<PathBuf>,
    /// An offline job: this many requests, as 500k or 2M, to end --within a time; it bounds no latency by itself.
    #[arg(long, value_name = "N", value_parser = requests, requires = "within", conflicts_with_all = ["rate", "concurrency", "measured", "curve"])]
    pub(crate) batch: Option<u64>,
    /// The time that --batch has, as in 12h.
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "batch")]
    pub(crate) within: Option<f64>,
    /// Print every section: tables, Pareto fronts, evidence, what-ifs; --wide prints all columns, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// Instead of a search, draw throughput against tokens/s of a user: a curve per accelerator, over its users.
    #[arg(long, conflicts_with_all = ["why", "measured", "launch_dir"])]
    pub(crate) curve: bool,
    /// Write the Pareto pictures as SVG, or the curves.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the answer as one self-contained HTML file.
    #[arg(long, value_name = "OUT.html")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// A spec; flags override it, several are compared [default: Llama-3.1-8B on an H100 under chat traffic].
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) machine: Flags<Machine>,
    #[command(flatten)]
    pub(crate) traffic: Flags<Traffic>,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Simulate every step one by one: equal results, slower.
    #[arg(long)]
    pub(crate) no_leap: bool,
    /// Say how many prompt tokens the best router and eviction could find in the caches: Belady's bound.
    #[arg(long, conflicts_with_all = ["sweep", "find"])]
    pub(crate) oracle: bool,
    /// Measured mean TPOT of this deployment under this load, to compare with the forecast.
    #[arg(long, value_name = "MS", value_parser = milliseconds, conflicts_with = "sweep")]
    pub(crate) measured_tpot: Option<f64>,
    /// Write each request: .jsonl, .csv, or .parquet.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Write each replica's running and waiting requests, KV blocks, preemptions and tokens/s over time as CSV.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) series: Option<PathBuf>,
    /// Write steps and requests as a Chrome trace, which Perfetto opens.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
    /// Most events of the trace; later ones are dropped.
    #[arg(long, default_value_t = 100_000, value_parser = within(1, 10_000_000), requires = "trace")]
    pub(crate) trace_limit: u64,
    /// Draw latencies, queue and KV cache as SVG; of a sweep, latencies and throughput over its values.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the answer as one self-contained HTML file.
    #[arg(long, value_name = "OUT.html", conflicts_with = "sweep")]
    pub(crate) html: Option<PathBuf>,
    /// One run per value of a key: rate=1..32:x2, scheduler=vllm,orca, engine.watermark=0,0.01. Several keys give every
    /// combination.
    #[arg(long, value_name = "KEY=VALUES", conflicts_with_all = ["records", "series", "trace"])]
    pub(crate) sweep: Vec<String>,
    /// The largest value of a key that keeps the SLO, by bisection: rate=1..100, users=1..256, max-num-seqs=8..1024,
    /// max-num-batched-tokens=512..32768 or another key with numbers.
    #[arg(
        long,
        value_name = "KEY=LOW..HIGH",
        conflicts_with_all = ["sweep", "records", "series", "trace", "svg", "html", "measured_tpot", "csv"]
    )]
    pub(crate) find: Option<String>,
    /// Concurrent runs of a sweep; the answer does not depend on it [default: the number of cores].
    #[arg(long, value_parser = within(1, 1024))]
    pub(crate) threads: Option<u64>,
    #[cfg(feature = "parquet")]
    #[command(flatten)]
    pub(crate) cells: CellsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Runs of a sweep in separate files, for several machines and for restarts.
#[cfg(feature = "parquet")]
#[derive(Debug, Args)]
pub(crate) struct CellsArgs {
    /// Store every run of the sweep in this folder and run only the missing ones; --merge prints the sweep.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cells: Option<PathBuf>,
    /// Run the share I of N of the sweep, as in 2/8: every Nth run from the Ith.
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "cells")]
    pub(crate) shard: Option<(usize, usize)>,
    /// Run only these runs of the sweep, by number from 0.
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        requires = "cells",
        conflicts_with = "shard",
        hide_short_help = true
    )]
    pub(crate) numbers: Option<Vec<usize>>,
    /// Time limit of a run in seconds; a longer run is skipped and reported.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "cells")]
    pub(crate) cell_time_limit: Option<f64>,
    /// Run nothing: print the sweep from the runs in --cells, byte for byte as one machine would have printed it, as
    /// JSON or CSV.
    #[arg(long, requires = "cells", conflicts_with_all = ["shard", "numbers", "svg"])]
    pub(crate) merge: bool,
    /// With --merge: print the numbers of the missing runs, from 0, as JSON.
    #[arg(long, requires = "merge")]
    pub(crate) missing: bool,
    /// With --merge: print the runs found, though some are missing.
    #[arg(long, requires = "merge")]
    pub(crate) partial: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SeedsArgs {
    /// 000, 001, 003 or 004 [default: all].
    #[arg(value_name = "SEED")]
    pub(crate) seed: Option<roofcast::seeds::Seed>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Traces in the forms vllm-sched-trace/1, /2, vllm-tier-trace/1, sglang-sched-trace/1 and sglang-tier-trace/1.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct HardwareArgs {
    #[command(subcommand)]
    pub(crate) verb: HardwareVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HardwareVerb {
    /// Bandwidth and FLOP rates of this CPU, as an accelerator for --hardware; lists GPUs.
    Measure(MeasureArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Write the accelerator as TOML, for --hardware.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) output: Option<PathBuf>,
    /// Threads of the parallel measurement; one thread is also measured [default: all].
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Short repeats and a small buffer: faster, less precise.
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The verb [default: the program].
    #[arg(value_name = "VERB")]
    pub(crate) verb: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Path; an existing file is left as it is [default: standard output].
    #[arg(value_name = "SPEC.toml")]
    pub(crate) file: Option<PathBuf>,
}
