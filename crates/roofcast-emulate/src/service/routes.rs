//! The routes of all imitated servers: each path once, with its methods, its servers and its action.
//!
//! Knows: which paths a server has, by its API and settings. Knows nothing about answers.

use super::Service;
use crate::ask::Endpoint;
use crate::dialect::Dialect;
use hyper::Method;

/// Path prefix of the routes that change the server.
pub(super) const ADMIN: &str = "/admin";

/// Action of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Generates, or embeds, at this endpoint.
    Complete(Endpoint),
    /// Counts the tokens of a message, in Anthropic's API.
    CountTokens,
    Description,
    Metrics,
    Models,
    /// One model, by the name at the end of the path.
    Model,
    Tokenize,
    Detokenize,
    /// Tells whether the server is up.
    Health,
    Version,
    Load,
    LoadAdapter,
    UnloadAdapter,
    Sleep,
    WakeUp,
    IsSleeping,
    ModelInfo,
    ServerInfo,
    FlushCache,
    /// Empties the prefix caches, by vLLM's path.
    ResetPrefixCache,
    Props,
    Slots,
    /// Reads or changes the fault that applies to all requests.
    Fault,
    /// Reads or changes the pinned gauges.
    Pins,
    /// Takes replicas down, or brings them up.
    Replicas,
    /// Reads or changes the fixed latencies.
    Latencies,
    /// Advances a stopped clock.
    Clock,
}

/// A path with its methods, the servers that have it, and its action.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) methods: &'static [Method],
    dialects: &'static [Dialect],
    pub(super) action: Action,
}

const EVERY: &[Dialect] = &[Dialect::Vllm, Dialect::Sglang, Dialect::LlamaCpp];
const PYTHON: &[Dialect] = &[Dialect::Vllm, Dialect::Sglang];
const VLLM: &[Dialect] = &[Dialect::Vllm];
const SGLANG: &[Dialect] = &[Dialect::Sglang];
const LLAMA_CPP: &[Dialect] = &[Dialect::LlamaCpp];

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const GET_OR_POST: &[Method] = &[Method::GET, Method::POST];
const POST_OR_PUT: &[Method] = &[Method::POST, Method::PUT];
const CHANGE: &[Method] = &[Method::GET, Method::POST, Method::DELETE];

const fn route(
    path: &'static str,
    methods: &'static [Method],
    dialects: &'static [Dialect],
    action: Action,
) -> Route {
    Route { path, methods, dialects, action }
}

/// Routes of all servers. Sources: vLLM 0.32 and SGLang 0.5.23 as FastAPI lists them, and llama.cpp's
/// `tools/server/README.md`; the paths below `/admin` are the emulator's own.
const ROUTES: &[Route] = &[
    route("/v1/completions", POST, EVERY, Action::Complete(Endpoint::Completions)),
    route("/v1/chat/completions", POST, EVERY, Action::Complete(Endpoint::Chat)),
    route("/v1/responses", POST, EVERY, Action::Complete(Endpoint::Responses)),
    route("/v1/messages", POST, EVERY, Action::Complete(Endpoint::Messages)),
    route("/v1/messages/count_tokens", POST, EVERY, Action::CountTokens),
    route("/v1/embeddings", POST, EVERY, Action::Complete(Endpoint::Embeddings)),
    route("/generate", POST_OR_PUT, SGLANG, Action::Complete(Endpoint::Generate)),
    route("/completion", POST, LLAMA_CPP, Action::Complete(Endpoint::LlamaCompletion)),
    route("/completions", POST, LLAMA_CPP, Action::Complete(Endpoint::LlamaCompletion)),
    route("/v1/models", GET, EVERY, Action::Models),
    route("/models", GET, LLAMA_CPP, Action::Models),
    route("/v1/models/{model}", GET, PYTHON, Action::Model),
    route("/v1/load_lora_adapter", POST, VLLM, Action::LoadAdapter),
    route("/v1/unload_lora_adapter", POST, VLLM, Action::UnloadAdapter),
    route("/tokenize", POST, EVERY, Action::Tokenize),
    route("/v1/tokenize", POST, SGLANG, Action::Tokenize),
    route("/detokenize", POST, EVERY, Action::Detokenize),
    route("/v1/detokenize", POST, SGLANG, Action::Detokenize),
    route("/health", GET, EVERY, Action::Health),
    route("/ping", GET_OR_POST, VLLM, Action::Health),
    route("/ping", GET, SGLANG, Action::Health),
    route("/health_generate", GET, SGLANG, Action::Health),
    route("/ready", GET, SGLANG, Action::Health),
    route("/v1/health", GET, LLAMA_CPP, Action::Health),
    route("/version", GET, VLLM, Action::Version),
    route("/load", GET, VLLM, Action::Load),
    route("/metrics", GET, EVERY, Action::Metrics),
    route("/sleep", POST, VLLM, Action::Sleep),
    route("/wake_up", POST, VLLM, Action::WakeUp),
    route("/is_sleeping", GET, VLLM, Action::IsSleeping),
    route("/get_model_info", GET, SGLANG, Action::ModelInfo),
    route("/model_info", GET, SGLANG, Action::ModelInfo),
    route("/get_server_info", GET, SGLANG, Action::ServerInfo),
    route("/server_info", GET, SGLANG, Action::ServerInfo),
    route("/flush_cache", GET_OR_POST, SGLANG, Action::FlushCache),
    route("/reset_prefix_cache", POST, VLLM, Action::ResetPrefixCache),
    route("/props", GET, LLAMA_CPP, Action::Props),
    route("/slots", GET, LLAMA_CPP, Action::Slots),
    route("/openapi.json", GET, PYTHON, Action::Description),
    route("/admin/faults", CHANGE, EVERY, Action::Fault),
    route("/admin/metrics", CHANGE, EVERY, Action::Pins),
    route("/admin/replicas", CHANGE, EVERY, Action::Replicas),
    route("/admin/latencies", CHANGE, EVERY, Action::Latencies),
    route("/admin/clock", GET_OR_POST, EVERY, Action::Clock),
];

impl Route {
    /// True if a request to `path` is for this route; a name in braces at the end stands for any text, slashes included.
    pub(super) fn is_of(&self, path: &str) -> bool {
        match self.path.split_once('{') {
            None => self.path == path,
            Some((before, _)) => path.strip_prefix(before).is_some_and(|name| !name.is_empty()),
        }
    }

    /// True if vLLM accepts only JSON bodies at the path (`validate_json_request` of its
    /// `entrypoints/serve/utils/api_utils.py`).
    pub(super) fn takes_json(&self) -> bool {
        matches!(
            self.action,
            Action::Complete(_)
                | Action::CountTokens
                | Action::Tokenize
                | Action::Detokenize
                | Action::LoadAdapter
                | Action::UnloadAdapter
        )
    }
}

impl Service {
    /// The routes of this server.
    pub(super) fn routes(&self) -> impl Iterator<Item = &'static Route> {
        let dialect = &self.settings.dialect;
        ROUTES.iter().filter(move |route| route.dialects.contains(dialect) && self.offers(route.action))
    }

    /// True if the settings of this server allow an action.
    fn offers(&self, action: Action) -> bool {
        let settings = &self.settings;
        match action {
            Action::Fault | Action::Pins | Action::Replicas => settings.allow_faults,
            Action::Latencies => settings.allow_faults && settings.latencies.is_some(),
            Action::Clock => self.group.pace().is_some_and(|pace| pace.is_stopped()),
            Action::Sleep | Action::WakeUp | Action::IsSleeping => settings.sleeps,
            Action::LoadAdapter | Action::UnloadAdapter => settings.adapters.is_some(),
            _ => true,
        }
    }
}
