//! Arguments of `roofcast bench`: the load, the form of requests, and the part of the run that counts.

use super::flags::{Flags, Load};
use super::values::*;
use super::{DeploymentArgs, OutputArgs};
use crate::bench::network::{self, NetworkLatency};
use crate::bench::target::Endpoint;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// URL of the server, as in http://127.0.0.1:8000; several servers get requests in turn.
    #[arg(long, required = true)]
    pub(crate) url: Vec<String>,
    /// API of the requests [default: by the URL's path, else completions].
    #[arg(long, value_enum)]
    pub(crate) endpoint: Option<Endpoint>,
    /// The model's name on the server [default: --model].
    #[arg(long = "served-model-name", alias = "served-model", value_name = "NAME")]
    pub(crate) served_model: Option<String>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) how: AskArgs,
    #[command(flatten)]
    pub(crate) judge: JudgeArgs,
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    /// One run per value of concurrency, rate, input-len or output-len: concurrency=1..128:x2.
    #[arg(long, value_name = "KEY=VALUES", conflicts_with_all = ["records", "baseline", "find_rate"])]
    pub(crate) sweep: Option<String>,
    /// Find the highest rate that keeps the SLO at the 99th percentile, as in 1..100.
    #[arg(long, value_name = "LOW..HIGH", conflicts_with_all = ["records", "baseline"])]
    pub(crate) find_rate: Option<String>,
    /// Find the most users of a closed loop that keep the SLO at the 99th percentile, as in 1..256.
    #[arg(long, value_name = "LOW..HIGH", conflicts_with_all = ["records", "baseline", "sweep", "find_rate"])]
    pub(crate) find_users: Option<String>,
    /// Repeat the load this many times and print 95 % intervals over the runs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000),
        conflicts_with_all = ["records", "baseline", "sweep", "find_rate", "find_users", "svg", "html", "detailed"])]
    pub(crate) runs: Option<u64>,
    /// Compare with an earlier result: roofcast's JSON, or any client's that validate reads.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) baseline: Vec<PathBuf>,
    /// Write a record of each request, as .jsonl or .csv.
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Write each valid point as a row for calibrate and validate; needs --hardware.
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["find_rate", "find_users"])]
    pub(crate) measurements: Option<PathBuf>,
    /// Draw latencies and requests in flight as SVG; of a sweep, latencies and throughput over its values.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the answer as one self-contained HTML file.
    #[arg(long, value_name = "OUT.html", conflicts_with_all = ["sweep", "find_rate", "find_users"])]
    pub(crate) html: Option<PathBuf>,
    /// With --json, add vLLM's per-request lists, in seconds.
    #[arg(long, requires = "json", conflicts_with_all = ["sweep", "find_rate", "find_users"])]
    pub(crate) detailed: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The load, over the spec's [workload].
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) flags: Flags<Load>,
    /// Stop sending after this many seconds; without --requests the only bound.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<f64>,
    /// Cancel this fraction of the requests, as users do; they do not count as failures.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) cancel_share: Option<f64>,
    /// Seconds after which --cancel-share requests are cancelled.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, requires = "cancel_share")]
    pub(crate) cancel_after: f64,
    /// Send at the rates of a file, linearly from point to point: aiperf's JSON of time_s and qps, or a CSV of time_s,rate.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "find_rate", "find_users"])]
    pub(crate) rate_series: Option<PathBuf>,
    /// Send at an even pace instead of at random (Poisson).
    #[arg(long, conflicts_with = "burstiness")]
    pub(crate) constant: bool,
}

/// Making of requests.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Send these prompts in turn: JSON Lines with `prompt`, `messages` or ShareGPT's `conversations` [default: words of
    /// --input-len].
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) prompts: Option<PathBuf>,
    /// The model's tokenizer.json: prompts are made of words of one token each, so that their length is exact.
    #[arg(long, value_name = "FILE.json", conflicts_with = "prompts")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Request answers without streaming; TTFT is then absent.
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Timeout of an answer in seconds.
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// Accept any certificate of an https server, such as a self-signed one.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Wait up to this many seconds until the server is ready: until it answers /v1/models with anything but 5xx.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait_ready: Option<f64>,
    /// Repeat a request that is refused with 429, 503 or 529 after the time in Retry-After; its times count from the first
    /// try.
    #[arg(long)]
    pub(crate) retry_after: bool,
    /// A header of every request, as in `X-Team: serving`.
    #[arg(long)]
    pub(crate) header: Vec<String>,
    /// The environment variable that holds the API key.
    #[arg(long, value_name = "VARIABLE", default_value = "OPENAI_API_KEY")]
    pub(crate) api_key_env: String,
    /// A JSON object merged into every request's body; null removes a key.
    #[arg(long, value_name = "JSON")]
    pub(crate) extra_body: Option<String>,
    /// Count one token per word, without the short requests that measure the server's tokenizer.
    #[arg(long)]
    pub(crate) assume_tokens: bool,
    /// Empty the server's prefix cache before each run, by vLLM's /reset_prefix_cache (VLLM_SERVER_DEV_MODE=1) or SGLang's
    /// /flush_cache.
    #[arg(long)]
    pub(crate) reset_cache: bool,
    /// Begin each prompt of the file with a word of its own, other ones in every run, so that no prefix cache has it.
    #[arg(long, requires = "prompts")]
    pub(crate) cache_bust: bool,
    /// Read the server's /metrics every second during the run.
    #[arg(long)]
    pub(crate) metrics: bool,
    /// Read energy during the run: from a Prometheus exporter (DCGM's, nvidia_gpu_exporter, AMD's, node_exporter), or
    /// `local`, this machine's own counters (RAPL, amdgpu).
    #[arg(long, value_name = "URL|local")]
    pub(crate) power: Vec<String>,
}

/// Judgement of requests and of the run.
#[derive(Debug, Args)]
pub(crate) struct JudgeArgs {
    /// Requests at the start that are not measured, or seconds, as in 30s.
    #[arg(long, value_name = "N|SECONDSs", default_value = "0", value_parser = edge)]
    pub(crate) warmup: Edge,
    /// Requests at the end that are not measured, or seconds, as in 30s.
    #[arg(long, value_name = "N|SECONDSs", default_value = "0", value_parser = edge)]
    pub(crate) cooldown: Edge,
    /// Stop sending after this many failures.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_failures: Option<u64>,
    /// End a run once requests in flight are certain to grow without bound.
    #[arg(long)]
    pub(crate) stop_oversaturated: bool,
    /// Goodput: bound on the time to first token.
    #[arg(long = "slo-ttft", alias = "ttft-p99", value_name = "MS", value_parser = bound("ttft"))]
    pub(crate) slo_ttft: Option<f64>,
    /// Goodput: bound on the time per output token.
    #[arg(long = "slo-tpot", alias = "tpot-p99", value_name = "MS", value_parser = bound("tpot"))]
    pub(crate) slo_tpot: Option<f64>,
    /// Goodput: bound on the end-to-end latency.
    #[arg(long = "slo-e2el", alias = "e2el-p99", value_name = "MS", value_parser = bound("e2el"))]
    pub(crate) slo_e2el: Option<f64>,
    /// Report the run by intervals of this many seconds as well, in which requests were sent.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) slice_duration: Option<f64>,
    /// Latency of the network to take off TTFT and end-to-end latencies: milliseconds, or `measure` for the least time of ten
    /// requests to /health before each run.
    #[arg(long, value_name = "MS|measure", value_parser = network::parse)]
    pub(crate) network_latency: Option<NetworkLatency>,
    /// Largest p99 of the client's own lag in a valid run.
    #[arg(long, value_name = "MS", default_value_t = 20.0, value_parser = milliseconds)]
    pub(crate) max_lag: f64,
}

/// An end of a run that does not count: requests or seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Edge {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
}

/// Parses an edge of the run: `100` is a number of requests, `30s` is seconds.
fn edge(text: &str) -> Result<Edge, String> {
    match text.strip_suffix('s') {
        Some(time) => Ok(Edge { seconds: seconds(time)?, ..Edge::default() }),
        None => {
            let requests =
                text.parse().map_err(|_| "accepted: requests as 100, or seconds as 30s".to_owned())?;
            Ok(Edge { requests, ..Edge::default() })
        }
    }
}
