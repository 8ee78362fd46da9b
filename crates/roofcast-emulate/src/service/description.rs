//! `/openapi.json`: the available paths, for clients that read it first.
//!
//! Knows: paths and methods, taken from the routes. Bodies are described only as objects, because other modules check
//! them.

use super::Service;
use super::routes::{ADMIN, Action, Route};
use serde_json::{Map, Value, json};

impl Service {
    /// Description of this server's paths.
    pub(super) fn description(&self) -> Value {
        let mut paths = Map::new();
        for route in self.routes().filter(|route| is_described(route)) {
            let each = route.methods.iter().map(|method| {
                let mut operation = json!({"summary": route.path.rsplit('/').next().unwrap_or_default(),
                    "responses": {"200": {"description": "Successful Response"}}});
                if method == hyper::Method::POST {
                    operation["requestBody"] =
                        json!({"content": {"application/json": {"schema": {"type": "object"}}}, "required": true});
                }
                (method.as_str().to_ascii_lowercase(), operation)
            });
            paths.insert(route.path.to_owned(), Value::Object(each.collect()));
        }
        json!({"openapi": "3.1.0", "info": {"title": "FastAPI", "version": "0.1.0"}, "paths": paths})
    }
}

/// True if a server lists a route: neither the description itself nor the emulator's own paths.
fn is_described(route: &Route) -> bool {
    route.action != Action::Description && !route.path.starts_with(ADMIN)
}
