//! Arguments of `roofcast emulate`: the served deployment, and the addresses that it listens on.

use super::DeploymentArgs;
use super::flags::{Flags, Routed};
use super::values::{address, factor, milliseconds, percent, seconds, share_or_none, within};
use crate::emulate::faults::FailureType;
use crate::emulate::kv_events::Encoding;
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    #[command(flatten)]
    pub(crate) fleet: Flags<Routed>,
    /// The address to listen on; others than this machine reach it only if it says so.
    #[arg(long, default_value = "127.0.0.1", value_parser = address)]
    pub(crate) host: IpAddr,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// The model's name for clients; may be given several times [default: the model's name].
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Vec<String>,
    /// The model's tokenizer.json, whose tokens prompts and answers are then in [default: a rule that needs no vocabulary].
    #[cfg(feature = "tokenizers")]
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// The environment variable that holds the key which clients must send; none is asked for without.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) api_key_env: Option<String>,
    /// Largest body, in MiB; beyond, it is refused with 413.
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = within(1, 1024))]
    pub(crate) max_body: u64,
    /// Tell what the prefix cache takes in and lets go over ZeroMQ: vLLM's JSON, with `endpoint`, `replay_endpoint`, `topic` and
    /// `buffer_steps`.
    #[arg(long, value_name = "JSON")]
    pub(crate) kv_events_config: Option<String>,
    /// Encoding of events: maps, or arrays for readers older than vLLM 0.20.
    #[arg(long, value_enum, default_value = "map", requires = "kv_events_config")]
    pub(crate) kv_events_encoding: Encoding,
    /// Replicas are data-parallel ranks of one server with a port each: their numbers are in `engine` labels and KV events.
    #[arg(long)]
    pub(crate) data_parallel_external_lb: bool,
    /// Serve LoRA adapters, which clients load and unload at /v1/load_lora_adapter and /v1/unload_lora_adapter.
    #[arg(long)]
    pub(crate) enable_lora: bool,
    /// Adapters whose requests may run at once.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "enable_lora", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_loras: u32,
    /// The rank that adapters' matrices are computed with, whatever their own is.
    #[arg(long, value_name = "RANK", default_value_t = 16, requires = "enable_lora", value_parser = within(1, 512))]
    pub(crate) max_lora_rank: u64,
    /// An adapter that is loaded from the start; may be given several times.
    #[arg(long, value_name = "NAME=PATH", requires = "enable_lora")]
    pub(crate) lora_modules: Vec<String>,
    /// Let clients send it to sleep and wake it: /sleep, /wake_up, /is_sleeping.
    #[arg(long)]
    pub(crate) enable_sleep_mode: bool,
    /// Seconds of the engine in a second: 10 makes everything ten times faster.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(crate) time_scale: f64,
    /// Milliseconds to each answer's first token in place of the engine's: nothing is queued, batched or cached then.
    #[arg(long, value_name = "MS", visible_alias = "time-to-first-token", value_parser = milliseconds, requires = "itl",
        conflicts_with_all = ["kv_events_config", "enable_sleep_mode", "enable_lora"])]
    pub(crate) ttft: Option<f64>,
    /// Milliseconds from each token to the next, with --ttft.
    #[arg(long, value_name = "MS", visible_alias = "inter-token-latency", value_parser = milliseconds, requires = "ttft")]
    pub(crate) itl: Option<f64>,
    /// The share of the chats that are answered with calls of their tools where `tool_choice` leaves it to the model.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share_or_none)]
    pub(crate) auto_tool_calls: f64,
    /// Calls of tools in an answer at most, of which as many as are drawn are made, where the client lets several be.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, 64))]
    pub(crate) max_tool_calls: u64,
    /// Serve HTTPS with the certificate chain in this file, in PEM, leaf first.
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile")]
    pub(crate) ssl_certfile: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub(crate) ssl_keyfile: Option<PathBuf>,
    /// Seconds that answers under way may take after SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub(crate) drain: f64,
    /// Let clients ask for faults, by the header `X-Roofcast-Fault` for one request, at `/admin/faults` for all; pin gauges
    /// at `/admin/metrics`; and change stated latencies at `/admin/latencies`.
    #[arg(long)]
    pub(crate) allow_faults: bool,
    /// A host name, other than addresses and localhost, under which this server may be administered (/admin).
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// A fault that meets requests from the start, as `{"status": 503, "share": 0.1}`; also lets clients ask for others.
    #[arg(long, value_name = "JSON")]
    pub(crate) fault: Option<String>,
    /// Percent of the requests that fail, evenly, as llm-d-inference-sim has it; also lets clients ask for faults.
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "fault")]
    pub(crate) failure_injection_rate: Option<f64>,
    /// Kinds of failure, in turn [default: every kind].
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',', requires = "failure_injection_rate")]
    pub(crate) failure_types: Vec<FailureType>,
    /// Seconds until it listens, as a server that loads its weights [default: at once].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) start_delay: Option<f64>,
    /// Say each request's `X-Request-Id` in its answer, too.
    #[arg(long)]
    pub(crate) enable_request_id_headers: bool,
}
