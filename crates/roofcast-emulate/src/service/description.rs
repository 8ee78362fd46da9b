//! `/openapi.json`: the available paths, for clients that read it first.
//!
//! Knows: paths and methods, taken from the routes. Bodies are described only as objects, because other modules check
//! them.

use super::Service;
use serde_json::{Map, Value, json};

/// Paths of all imitated servers together.
const PATHS: [&str; 21] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/models",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/tokenize",
    "/detokenize",
    "/generate",
    "/health",
    "/ping",
    "/version",
    "/load",
    "/metrics",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/get_model_info",
    "/get_server_info",
];

impl Service {
    /// Description of this server's paths.
    pub(super) fn description(&self) -> Value {
        let mut paths = Map::new();
        for path in PATHS {
            let Some(methods) = self.methods(path) else { continue };
            let each = methods.iter().map(|method| {
                let mut operation = json!({"summary": path.rsplit('/').next().unwrap_or_default(),
                    "responses": {"200": {"description": "Successful Response"}}});
                if method == hyper::Method::POST {
                    operation["requestBody"] =
                        json!({"content": {"application/json": {"schema": {"type": "object"}}}, "required": true});
                }
                (method.as_str().to_ascii_lowercase(), operation)
            });
            paths.insert(path.to_owned(), Value::Object(each.collect()));
        }
        json!({"openapi": "3.1.0", "info": {"title": "FastAPI", "version": "0.1.0"}, "paths": paths})
    }
}
