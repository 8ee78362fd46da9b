//! Arguments of `roofcast emulate`: the served deployment, and the addresses that it listens on.

use super::DeploymentArgs;
use super::flags::{Flags, Routed};
use super::values::{address, milliseconds, percent, seconds, share_or_none, time_scale, within};
use clap::Args;
use roofcast_emulate::{Encoding, FailureType};
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct EmulateArgs {
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    #[command(flatten)]
    pub(crate) fleet: Flags<Routed>,
    /// The address to listen on; 0.0.0.0 makes it reachable from other machines.
    #[arg(long, default_value = "127.0.0.1", value_parser = address)]
    pub(crate) host: IpAddr,
    /// The port to listen on; 0 chooses a free one.
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// The model's name for clients; may be given several times [default: the model's name].
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Vec<String>,
    /// The model's tokenizer.json [default: a rule without a vocabulary].
    #[cfg(feature = "tokenizers")]
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Length in tokens of answers [default: drawn from the workload; else the request's bound, or without one, drawn
    /// from the lengths of ShareGPT].
    #[arg(long, value_name = "TOKENS", value_parser = within(1, 1_000_000))]
    pub(crate) output_len: Option<u64>,
    /// The environment variable that holds the API key of clients [default: no key].
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) api_key_env: Option<String>,
    /// Largest request body in MiB; a larger one is refused with 413.
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = within(1, 1024))]
    pub(crate) max_body: u64,
    /// Publish KV cache events over ZeroMQ: vLLM's JSON, with `endpoint`, `replay_endpoint`, `topic` and
    /// `buffer_steps`.
    #[arg(long, value_name = "JSON")]
    pub(crate) kv_events_config: Option<String>,
    /// Encoding of events: maps, or arrays for readers older than vLLM 0.20.
    #[arg(long, value_enum, default_value = "map", requires = "kv_events_config")]
    pub(crate) kv_events_encoding: Encoding,
    /// Bounds of vLLM's histograms by family, as {"request_latency": [0.01, 0.1, 1]}.
    #[arg(long, value_name = "JSON")]
    pub(crate) custom_histogram_buckets: Option<String>,
    /// Replicas are data-parallel ranks of one server, each with a port; `engine` labels and KV events have their numbers.
    #[arg(long)]
    pub(crate) data_parallel_external_lb: bool,
    /// A LoRA adapter that is loaded from the start, with --enable-lora; may be given several times.
    #[arg(long, value_name = "NAME=PATH")]
    pub(crate) lora_modules: Vec<String>,
    /// Serve /sleep, /wake_up and /is_sleeping.
    #[arg(long)]
    pub(crate) enable_sleep_mode: bool,
    /// Speed of the engine's clock: 10 makes everything ten times faster, 0 stops the clock until /admin/clock advances it.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = time_scale)]
    pub(crate) time_scale: f64,
    /// Fixed milliseconds to each first token, without queue, batches or cache.
    #[arg(long, value_name = "MS", visible_alias = "time-to-first-token", value_parser = milliseconds, requires = "itl",
        conflicts_with_all = ["kv_events_config", "enable_sleep_mode", "enable-lora"])]
    pub(crate) ttft: Option<f64>,
    /// Fixed milliseconds between tokens, with --ttft.
    #[arg(long, value_name = "MS", visible_alias = "inter-token-latency", value_parser = milliseconds, requires = "ttft")]
    pub(crate) itl: Option<f64>,
    /// Fraction of chats answered with tool calls if `tool_choice` is auto.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share_or_none)]
    pub(crate) auto_tool_calls: f64,
    /// Most tool calls of an answer if the client allows parallel calls; the number is drawn.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1, 64))]
    pub(crate) max_tool_calls: u64,
    /// Serve HTTPS with the certificate chain in this file, in PEM, leaf first.
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile")]
    pub(crate) ssl_certfile: Option<PathBuf>,
    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub(crate) ssl_keyfile: Option<PathBuf>,
    /// Seconds for running answers after SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub(crate) drain: f64,
    /// Allow faults: by the header `X-Roofcast-Fault` for one request, at `/admin/faults` for all; override gauges
    /// at `/admin/metrics`, and fixed latencies at `/admin/latencies`.
    #[arg(long)]
    pub(crate) allow_faults: bool,
    /// A host name, other than addresses and localhost, under which this server may be administered (/admin).
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// A fault injected from the start, as `{"status": 503, "share": 0.1}`; also allows faults by request.
    #[arg(long, value_name = "JSON")]
    pub(crate) fault: Option<String>,
    /// Percentage of requests that fail, as in llm-d-inference-sim; also allows faults by request.
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "fault")]
    pub(crate) failure_injection_rate: Option<f64>,
    /// Kinds of failure, in turn [default: every kind].
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',', requires = "failure_injection_rate")]
    pub(crate) failure_types: Vec<FailureType>,
    /// Seconds before listening, as if loading weights [default: 0].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) start_delay: Option<f64>,
    /// Return each request's `X-Request-Id` in its answer.
    #[arg(long)]
    pub(crate) enable_request_id_headers: bool,
}
