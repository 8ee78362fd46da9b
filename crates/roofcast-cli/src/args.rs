//! Command-line arguments. Flags and spec files say the same things; flags win.

use crate::bench::target::Endpoint;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Forecasts how large language models are served: limits, capacity and plans from one cost model.
#[derive(Debug, Parser)]
#[command(name = "roofcast", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// What the machine's limits allow: step times by operator, ridge and critical batch, links.
    Limits(LimitsArgs),
    /// What fits: parameters, KV cache, batch, users, smallest topology.
    Capacity(CapacityArgs),
    /// What to deploy: the cheapest deployments that meet the SLO.
    Plan(PlanArgs),
    /// What a serving engine does under traffic: latency, throughput, preemptions, percentiles.
    Simulate(SimulateArgs),
    /// What a live OpenAI-compatible server does: latency and throughput beside the limit, and whether to believe them.
    Bench(Box<BenchArgs>),
    /// The texts that roofcast grew from, figure by figure: what each says, what its rules give, what we say.
    Seeds(SeedsArgs),
    /// Lists the embedded accelerators and models, or shows one.
    Catalog(CatalogArgs),
    /// Replays decisions recorded from vLLM's scheduler: exit 0 when all agree, else 1.
    Conformance(ConformanceArgs),
    /// Measures the machine that this runs on.
    Hardware(HardwareArgs),
    /// Forecasts beside what was measured: errors by metric, kind, engine, hardware and group.
    Validate(ValidateArgs),
    /// Fits a calibration to measured points, and judges it on groups left out in turn.
    Calibrate(CalibrateArgs),
    /// Prints a completion script for a shell.
    Completions(CompletionsArgs),
}

/// What is served, on what, and how: shared by the verbs.
#[derive(Debug, Args)]
pub(crate) struct DeploymentArgs {
    /// A spec file; flags override it.
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Option<PathBuf>,
    /// Catalog id, or a path to a Hugging Face config.json or its folder.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Accelerator, as in h100-sxm, or a TOML file with one.
    #[arg(long, value_name = "ID")]
    pub(crate) hardware: Option<String>,
    /// Accelerators in all.
    #[arg(long)]
    pub(crate) count: Option<u64>,
    /// Tensor parallelism [default: the widest that --count and the heads allow].
    #[arg(long)]
    pub(crate) tp: Option<u64>,
    /// Pipeline stages.
    #[arg(long)]
    pub(crate) pp: Option<u64>,
    /// Expert-parallel ranks.
    #[arg(long)]
    pub(crate) ep: Option<u64>,
    /// Data parallelism of attention.
    #[arg(long)]
    pub(crate) attention_dp: Option<u64>,
    /// Weight format: bf16, fp16, fp8, nvfp4, w8, w4, gptq-int4, q4_k_m, … [default: the checkpoint's].
    #[arg(long)]
    pub(crate) weights: Option<String>,
    /// Dtype that computes on quantized weights, as in int8.
    #[arg(long, value_parser = dtype)]
    pub(crate) activations: Option<roofcast::precision::Dtype>,
    /// KV-cache format: auto, 16, 8, fp8, int8, q8_0, …
    #[arg(long)]
    pub(crate) kv: Option<String>,
    /// Nominal memory, perfect sharing, nothing reserved.
    #[arg(long)]
    pub(crate) ideal: bool,
    /// Compute by another text's rules and units.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) convention: ConventionArg,
    /// Share of device memory that the engine may take [default: 0.9].
    #[arg(long)]
    pub(crate) gpu_memory_utilization: Option<f64>,
    /// Token budget of a step [default: vLLM's for the chip].
    #[arg(long)]
    pub(crate) max_num_batched_tokens: Option<u64>,
    /// Sequences that run at once [default: vLLM's for the chip].
    #[arg(long)]
    pub(crate) max_num_seqs: Option<u64>,
    /// Tokens of a KV block [default: 16].
    #[arg(long)]
    pub(crate) block_size: Option<u64>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConventionArg {
    /// Exact bytes, decimal bandwidth.
    Default,
    /// Nominal bits on every weight with lm_head, no input embedding, no norms, GiB/s.
    #[value(name = "seed-003")]
    Seed003,
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
    /// Sequences that decode together, over the whole deployment.
    #[arg(long, default_value_t = 1, value_parser = positive())]
    pub(crate) batch: u64,
    /// Tokens of each sequence [default: 4096, or the model's maximum].
    #[arg(long, value_parser = positive())]
    pub(crate) context: Option<u64>,
    /// Tokens of a prompt [default: the context].
    #[arg(long, value_parser = positive())]
    pub(crate) prefill: Option<u64>,
    /// Share of the peak FLOPs that counts as reachable.
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    pub(crate) mfu: f64,
    /// Share of the memory bandwidth that counts as reachable.
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    pub(crate) mbu: f64,
    /// Vary one quantity: batch, context, prefill or tp, as in batch=1..512, batch=1..512:x2, context=1024,8192.
    #[arg(long, value_name = "KEY=VALUES")]
    pub(crate) sweep: Option<String>,
    /// Intensity of one layer of ROWSxCOLUMNS against batch, as in 4096x4096.
    #[arg(long, value_name = "ROWSxCOLUMNS", conflicts_with = "sweep")]
    pub(crate) intensity: Option<String>,
    /// Write the roofline as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CapacityArgs {
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    /// Tokens of each sequence [default: 4096, or the model's maximum].
    #[arg(long, value_parser = positive())]
    pub(crate) context: Option<u64>,
    /// Sequences that the fewest accelerators must hold.
    #[arg(long, default_value_t = 1, value_parser = positive())]
    pub(crate) batch: u64,
    /// How often every token is sold: 2 serves twice the users that fit at full context.
    #[arg(long, default_value_t = 1.0, value_parser = factor)]
    pub(crate) oversubscription: f64,
    /// Users to serve: says how many such deployments that takes.
    #[arg(long, value_parser = positive())]
    pub(crate) users: Option<u64>,
    /// Show parameters, bytes and FLOPs tensor by tensor.
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A spec with [model], [workload], [slo] and [search] [default: Llama-3.1-8B for a chat].
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Option<PathBuf>,
    /// Catalog id or config.json, instead of the spec's.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Search this accelerator alone: an id, or a TOML file with one.
    #[arg(long, value_name = "ID")]
    pub(crate) hardware: Option<String>,
    /// Price steps at the machine's limits or at the forecast, instead of what the spec says.
    #[arg(long, value_enum)]
    pub(crate) cost: Option<CostArg>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    /// Write the Pareto picture as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// A spec with [model], [hardware], [engine] and [workload] [default: Llama-3.1-8B on an H100 under chat traffic].
    #[arg(value_name = "SPEC.toml")]
    pub(crate) spec: Option<PathBuf>,
    /// Requests, instead of the spec's.
    #[arg(long, value_parser = positive())]
    pub(crate) requests: Option<u64>,
    /// Seed of every draw, instead of the spec's.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Price steps at the machine's limits or at the forecast, instead of what the spec says.
    #[arg(long, value_enum)]
    pub(crate) cost: Option<CostArg>,
    /// Take every step by itself: the same results, slower.
    #[arg(long)]
    pub(crate) no_leap: bool,
    /// Write each request: .jsonl, .csv, or .parquet.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Write each replica's running and waiting requests, KV blocks, preemptions and tokens a second over time as CSV.
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) series: Option<PathBuf>,
    /// Write steps and requests as a Chrome trace, which Perfetto opens.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
    /// Events of the trace at most; it ends there.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000), requires = "trace")]
    pub(crate) trace_limit: u64,
    /// Draw latencies, queue and KV cache as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// One run for each value of a key, as in rate=1..32:x2, scheduler=vllm,orca, seed=0..9, engine.watermark=0,0.01.
    #[arg(long, value_name = "KEY=VALUES", conflicts_with_all = ["records", "series", "trace", "svg"])]
    pub(crate) sweep: Option<String>,
    /// Runs of a sweep at the same time; the answer is the same for any number [default: as many as there are cores].
    #[arg(long, requires = "sweep", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The server, as in http://127.0.0.1:8000.
    #[arg(long)]
    pub(crate) url: String,
    /// Which API to ask.
    #[arg(long, value_enum, default_value = "completions")]
    pub(crate) endpoint: Endpoint,
    /// What the server calls the model [default: --model].
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model: Option<String>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) how: AskArgs,
    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    /// One run a value: of concurrency, rate, input-len or output-len, as in concurrency=1..128:x2.
    #[arg(long, value_name = "KEY=VALUES", conflicts_with_all = ["records", "baseline", "find_rate"])]
    pub(crate) sweep: Option<String>,
    /// Find the highest rate that keeps the SLO at the 99th percentile, as in 1..100.
    #[arg(long, value_name = "LOW..HIGH", conflicts_with_all = ["records", "baseline"])]
    pub(crate) find_rate: Option<String>,
    /// Compare with an earlier result: vLLM's, aiperf's or roofcast's JSON.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) baseline: Vec<PathBuf>,
    /// Write a record of each request, as .jsonl or .csv.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Write each valid point as a row that calibrate and validate take; needs --hardware.
    #[arg(long, value_name = "FILE.csv", conflicts_with = "find_rate")]
    pub(crate) measurements: Option<PathBuf>,
    /// With --json, add vLLM's lists of a value a request, in seconds.
    #[arg(long, requires = "json", conflicts_with_all = ["sweep", "find_rate"])]
    pub(crate) detailed: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The load, over the spec's [workload].
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Users who each have one request in flight [default: 1].
    #[arg(long, value_parser = positive(), conflicts_with = "rate")]
    pub(crate) concurrency: Option<u64>,
    /// Requests per second, sent whether or not others are answered.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Send at an even pace instead of at random (Poisson).
    #[arg(long)]
    pub(crate) constant: bool,
    /// Gamma gaps of that shape instead: below 1 burstier than Poisson, above 1 evener, as vLLM's client has it.
    #[arg(long, value_name = "SHAPE", conflicts_with = "constant")]
    pub(crate) burstiness: Option<f64>,
    /// Requests in all [default: 10 a user, at least 100].
    #[arg(long, value_parser = positive())]
    pub(crate) requests: Option<u64>,
    /// Prompt tokens, a chat template's among them [default: 512].
    #[arg(long, value_parser = positive())]
    pub(crate) input_len: Option<u64>,
    /// Tokens of an answer [default: 128].
    #[arg(long, value_parser = positive())]
    pub(crate) output_len: Option<u64>,
    /// Seed of every draw.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// How each request is made.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Say these prompts in turn: JSON Lines with `prompt`, or ShareGPT's `conversations` [default: words of --input-len].
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) prompts: Option<PathBuf>,
    /// The model's tokenizer.json: prompts are words that it holds whole, even where the server counts nothing.
    #[arg(long, value_name = "FILE.json", conflicts_with = "prompts")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Ask for whole answers: no TTFT then.
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Seconds that an answer may take.
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// A header of every request, as in `X-Team: serving`.
    #[arg(long)]
    pub(crate) header: Vec<String>,
    /// The environment variable that holds the API key.
    #[arg(long, value_name = "VARIABLE", default_value = "OPENAI_API_KEY")]
    pub(crate) api_key_env: String,
    /// A JSON object laid over every request's body; null takes a key away.
    #[arg(long, value_name = "JSON")]
    pub(crate) extra_body: Option<String>,
    /// Take a word for a token instead of learning from two short requests how the server counts.
    #[arg(long)]
    pub(crate) assume_tokens: bool,
    /// Read the server's /metrics every second beside the run.
    #[arg(long)]
    pub(crate) metrics: bool,
}

/// What counts, and when a run is to be believed.
#[derive(Debug, Args)]
pub(crate) struct JudgeArgs {
    /// First requests that do not count.
    #[arg(long, default_value_t = 0)]
    pub(crate) warmup: u64,
    /// Last requests that do not count.
    #[arg(long, default_value_t = 0)]
    pub(crate) cooldown: u64,
    /// Time to first token that a good request keeps.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(crate) slo_ttft: Option<f64>,
    /// Time per output token that a good request keeps.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(crate) slo_tpot: Option<f64>,
    /// End-to-end latency that a good request keeps.
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub(crate) slo_e2el: Option<f64>,
    /// Largest 99th percentile of the client's own lag in a valid run.
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = milliseconds)]
    pub(crate) max_lag: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostArg {
    /// What the machine's limits allow.
    Limit,
    /// What is expected.
    Forecast,
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
pub(crate) struct CatalogArgs {
    /// An accelerator or model to show.
    pub(crate) name: Option<String>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// Traces in the form vllm-sched-trace/1.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print JSON with a versioned schema.
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Threads to measure with beside one [default: all].
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Short repeats and a small buffer: rates are rougher.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON with a versioned schema.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// CSV files of measured points, results of `vllm bench serve` (.json), records (.jsonl), and folders of recorded
    /// runs (meta.json, requests.jsonl).
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Only rows whose group and kind hold every one of these words, as in "splitwise 70b h100".
    #[arg(long, value_name = "WORDS")]
    pub(crate) group: Option<String>,
    /// Draw measured times over batch, prompt or context as SVG, beside their forecasts and limits.
    #[arg(long, value_name = "OUT.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Write measured, forecast and limit of every row as CSV.
    #[arg(long, value_name = "OUT.csv")]
    pub(crate) per_row: Option<PathBuf>,
    /// A calibration in place of the embedded one.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) calibration: Option<PathBuf>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    /// Print JSON with a versioned schema.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// CSV files of measured points or of kernel times, `.gz` or not, results of `vllm bench serve` (.json), records (.jsonl)
    /// and folders of an engine's profile.
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Write the calibration as TOML.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) out: Option<PathBuf>,
    /// Write measured, forecast without its group, and limit of every row as CSV.
    #[arg(long, value_name = "OUT.csv")]
    pub(crate) per_row: Option<PathBuf>,
    /// What the calibration says of its data [default: the files' names].
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// A TOML file of accelerators and models beside the embedded catalog; its entries win.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Vec<PathBuf>,
    /// Print JSON with a versioned schema.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the runs of `.json` and `.jsonl` files ran on: those files do not say.
#[derive(Debug, Args)]
#[command(next_help_heading = "What .json and .jsonl files were measured on")]
pub(crate) struct RunsArgs {
    /// Catalog id of the model, or a config.json.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Accelerator, as in h100-sxm, or its .toml.
    #[arg(long, value_name = "ID")]
    pub(crate) hardware: Option<String>,
    /// Accelerators in all [default: as many as --tp].
    #[arg(long, value_parser = positive())]
    pub(crate) count: Option<u64>,
    /// Tensor parallelism.
    #[arg(long, default_value_t = 1, value_parser = positive())]
    pub(crate) tp: u64,
    /// Weight format [default: the checkpoint's].
    #[arg(long)]
    pub(crate) weights: Option<String>,
    /// KV-cache format.
    #[arg(long, default_value = "auto")]
    pub(crate) kv: String,
    /// vllm, sglang, tensorrt-llm, llama.cpp, …
    #[arg(long, default_value = "vllm")]
    pub(crate) engine: String,
    /// The engine's version, as in 0.19.0.
    #[arg(long, value_name = "VERSION")]
    pub(crate) engine_version: Option<String>,
    /// Requests that were always in flight, for .jsonl.
    #[arg(long, value_parser = positive(), conflicts_with = "rate")]
    pub(crate) concurrency: Option<u64>,
    /// Requests that came a second, for .jsonl.
    #[arg(long, value_parser = rate)]
    pub(crate) rate: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// A count from 1 to 2^30.
fn positive() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1 << 30)
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=1024).contains(&n) => Ok(n),
        _ => Err("accepted: 1 to 1024".into()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 1.0 => Ok(v),
        _ => Err("accepted: a number above 0, at most 1".into()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.01..=1000.0).contains(&v) => Ok(v),
        _ => Err("accepted: 0.01 to 1000".into()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (1e-6..=1e6).contains(&v) => Ok(v),
        _ => Err("accepted: requests a second from 0.000001 to 10^6".into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.001..=1e6).contains(&v) => Ok(v),
        _ => Err("accepted: seconds from 0.001 to 10^6".into()),
    }
}

fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v <= 1e9 => Ok(v),
        _ => Err("accepted: milliseconds above 0".into()),
    }
}

fn dtype(text: &str) -> Result<roofcast::precision::Dtype, String> {
    serde_json::from_value(text.to_lowercase().into())
        .map_err(|_| "accepted: bf16, fp16, fp8, int8, fp4, int4".to_owned())
}
