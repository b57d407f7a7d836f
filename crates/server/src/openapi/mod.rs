//! The table of all endpoints, and the OpenAPI 3.1 document generated from it.
//!
//! An endpoint is registered together with its description, so none is undocumented. Schemas come
//! from the types that are parsed and serialized (`JsonSchema` beside serde's derives). To add an
//! endpoint, register it in `add_routes` of its file in `api/`:
//!
//! ```text
//! api.post("/api/v1/things/{id}/pause", pause_thing, Operation::new("pause_thing", "Pause a thing.")
//!     .path::<ThingId>("id").returns::<Thing>(200).problem(409, &["not_now"]))
//! ```
//!
//! and regenerate the committed document: `cargo run -- openapi > docs/openapi.json`.

mod document;
mod operation;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use axum::{
    Router,
    handler::Handler,
    routing::{MethodFilter, MethodRouter, on},
};

pub(crate) use self::operation::{OneOf, Operation};
use crate::{ServerState, router::api_table};

#[derive(Debug)]
pub(crate) struct Endpoint {
    method: &'static str,
    path: String,
    operation: Operation,
}

/// The table of endpoints while it is built.
#[derive(Debug, Default)]
pub(crate) struct ApiTable {
    /// Endpoints that need a token.
    pub(crate) authenticated: Router<Arc<ServerState>>,
    /// Endpoints that need no token.
    pub(crate) public: Router<Arc<ServerState>>,
    endpoints: Vec<Endpoint>,
}

impl ApiTable {
    pub(crate) fn get<T: 'static>(
        self,
        path: &str,
        handler: impl Handler<T, Arc<ServerState>>,
        operation: Operation,
    ) -> Self {
        self.add("get", path, on(MethodFilter::GET, handler), operation)
    }

    pub(crate) fn post<T: 'static>(
        self,
        path: &str,
        handler: impl Handler<T, Arc<ServerState>>,
        operation: Operation,
    ) -> Self {
        self.add("post", path, on(MethodFilter::POST, handler), operation.with_idempotency_key())
    }

    pub(crate) fn put<T: 'static>(
        self,
        path: &str,
        handler: impl Handler<T, Arc<ServerState>>,
        operation: Operation,
    ) -> Self {
        self.add("put", path, on(MethodFilter::PUT, handler), operation)
    }

    pub(crate) fn delete<T: 'static>(
        self,
        path: &str,
        handler: impl Handler<T, Arc<ServerState>>,
        operation: Operation,
    ) -> Self {
        self.add("delete", path, on(MethodFilter::DELETE, handler), operation)
    }

    fn add(
        mut self,
        method: &'static str,
        path: &str,
        route: MethodRouter<Arc<ServerState>>,
        operation: Operation,
    ) -> Self {
        if operation.is_public() {
            self.public = self.public.route(path, route);
        } else {
            self.authenticated = self.authenticated.route(path, route);
        }
        self.describe(method, path, operation)
    }

    /// Describes an endpoint that the router does not serve.
    pub(crate) fn describe(
        mut self,
        method: &'static str,
        path: &str,
        operation: Operation,
    ) -> Self {
        self.endpoints.push(Endpoint { method, path: path.to_owned(), operation });
        self
    }

    /// Method and path of the endpoints that need a token.
    #[cfg(test)]
    pub(crate) fn authenticated_endpoints(&self) -> impl Iterator<Item = (&str, &str)> {
        let endpoints = self.endpoints.iter().filter(|endpoint| !endpoint.operation.is_public());
        endpoints.map(|endpoint| (endpoint.method, endpoint.path.as_str()))
    }

    /// Adds the endpoints of one file.
    pub(crate) fn with(self, routes: impl FnOnce(Self) -> Self) -> Self {
        routes(self)
    }
}

/// The OpenAPI document, as committed in `docs/openapi.json` and served.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| document::render(&api_table().endpoints))
}
