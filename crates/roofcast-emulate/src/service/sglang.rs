//! Endpoints of SGLang's server in addition to OpenAI's API.
//!
//! Source: `entrypoints/http_server.py` of SGLang 0.5.23.

use super::super::ask::Endpoint;
use super::super::response::{said, text, whole};
use super::{Answered, Service};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

/// Version of SGLang whose API is imitated.
const VERSION: &str = "0.5.23";

/// Body of `/flush_cache` on success.
const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting \
                       requests, the operation will not be performed.)\n";

/// The methods that a path supports; `None` for an unknown path.
pub(super) fn methods(path: &str) -> Option<&'static [Method]> {
    match path {
        "/generate" => Some(&[Method::POST, Method::PUT]),
        "/flush_cache" => Some(&[Method::GET, Method::POST]),
        "/tokenize" | "/v1/tokenize" | "/detokenize" | "/v1/detokenize" => Some(&[Method::POST]),
        "/health" | "/health_generate" | "/ready" | "/ping" | "/get_model_info" | "/model_info" => {
            Some(&[Method::GET])
        }
        "/get_server_info" | "/server_info" => Some(&[Method::GET]),
        _ => None,
    }
}

impl Service {
    pub(super) async fn route_sglang(&self, parts: &Parts, body: Incoming) -> Answered {
        match parts.uri.path() {
            "/generate" => self.complete(Endpoint::Generate, &parts.headers, body).await,
            "/v1/models" => Ok(said(&self.models())),
            "/tokenize" | "/v1/tokenize" => self.tokenize(&self.read(&parts.headers, body).await?),
            "/detokenize" | "/v1/detokenize" => {
                Ok(said(&json!({ "text": self.detokenized(&self.read(&parts.headers, body).await?)? })))
            }
            "/get_model_info" | "/model_info" => Ok(said(&self.model_info())),
            "/get_server_info" | "/server_info" => Ok(said(&self.server_info())),
            "/flush_cache" if self.group.engines().iter().all(|engine| engine.flush()) => Ok(text(FLUSHED)),
            "/flush_cache" => Ok(whole(
                StatusCode::BAD_REQUEST,
                "text/plain; charset=utf-8",
                "Flush cache failed.\n".into(),
            )),
            // /health, /health_generate, /ready and /ping.
            _ => Ok(whole(StatusCode::OK, "", Bytes::new())),
        }
    }

    fn model_info(&self) -> Value {
        let root = &self.settings.root;
        json!({"model_path": root, "served_model_name": self.settings.names.first(), "tokenizer_path": root,
            "is_generation": true, "preferred_sampling_params": null, "weight_version": "default",
            "load_format": "auto", "reasoning_parser": null, "tool_call_parser": null,
            "disaggregation_mode": "null", "has_image_understanding": false, "has_audio_understanding": false,
            "model_type": null, "architectures": null})
    }

    /// The settings of this server by SGLang's names, and the state of each engine.
    fn server_info(&self) -> Value {
        let fixed = self.fixed();
        let state = |engine: &super::super::replica::EngineHandle| {
            let metrics = engine.metrics();
            let (usage, waiting) = metrics.load();
            json!({"#running_req": metrics.running(), "#waiting_req": waiting, "token_usage": usage})
        };
        let states: Vec<Value> = self.group.engines().iter().map(|engine| state(engine)).collect();
        json!({
            "model_path": self.settings.root, "served_model_name": self.settings.names.first(),
            "tp_size": self.settings.tp, "dp_size": states.len(), "context_length": self.max_model_len,
            "page_size": fixed.as_ref().map(|f| f.block_size), "max_running_requests": fixed.as_ref().map(|f| f.max_num_seqs),
            "max_total_num_tokens": fixed.as_ref().map(|f| f.num_gpu_blocks.saturating_sub(1) * f.block_size),
            "internal_states": states, "version": VERSION, "frontend": "python",
        })
    }
}
