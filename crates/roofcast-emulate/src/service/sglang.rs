//! Endpoints of SGLang's server in addition to OpenAI's API.
//!
//! Source: `entrypoints/http_server.py` of SGLang 0.5.23.

use super::super::response::{text, whole};
use super::super::stream::Sent;
use super::Service;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// Version of SGLang whose API is imitated.
const VERSION: &str = "0.5.23";

/// Body of `/flush_cache` on success.
const FLUSHED: &str = "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting \
                       requests, the operation will not be performed.)\n";

impl Service {
    /// `/flush_cache`: empties the prefix caches, which only idle engines can.
    pub(super) fn flush_cache(&self) -> Response<Sent> {
        if self.group.engines().iter().all(|engine| engine.flush()) {
            return text(FLUSHED);
        }
        let refusal = "Flush cache failed.\n".into();
        whole(StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", refusal)
    }

    /// `/model_info`.
    pub(super) fn model_info(&self) -> Value {
        let root = &self.settings.root;
        json!({"model_path": root, "served_model_name": self.settings.names.first(), "tokenizer_path": root,
            "is_generation": true, "preferred_sampling_params": null, "weight_version": "default",
            "load_format": "auto", "reasoning_parser": null, "tool_call_parser": null,
            "disaggregation_mode": "null", "has_image_understanding": false, "has_audio_understanding": false,
            "model_type": null, "architectures": null})
    }

    /// The settings of this server by SGLang's names, and the state of each engine.
    pub(super) fn server_info(&self) -> Value {
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
