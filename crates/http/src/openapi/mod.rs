//! The table of all calls, and the OpenAPI 3.1 document that is made of it.
//!
//! A call enters the table together with its description, so that there is none without. What goes
//! in and out is described by the very types that are read and written (`JsonSchema` beside serde's
//! derives). To add a call, add one line to `routes` of its file in `api/`:
//!
//! ```text
//! api.post("/api/v1/things/{id}/pause", pause_thing, Op::new("pause_thing", "Pauses a thing.")
//!     .path::<ThingId>("id").answers::<Thing>(200).refuses(409, &["not_now"]))
//! ```
//!
//! and renew the committed document: `cargo run -- openapi > docs/openapi.json`.

mod document;
mod op;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use axum::{
    Router,
    handler::Handler,
    routing::{MethodFilter, on},
};

pub(crate) use self::op::{Either, Op};
use crate::{App, front};

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    op: Op,
}

/// The table while it is put together.
#[derive(Debug, Default)]
pub(crate) struct Api {
    /// Calls that need a token.
    pub(crate) guarded: Router<Arc<App>>,
    /// Calls that need none.
    pub(crate) open: Router<Arc<App>>,
    calls: Vec<Call>,
}

impl Api {
    pub(crate) fn get<H, T>(self, path: &str, handler: H, op: Op) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.on((MethodFilter::GET, "get"), path, handler, op)
    }

    pub(crate) fn post<H, T>(self, path: &str, handler: H, op: Op) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.on((MethodFilter::POST, "post"), path, handler, op.posted())
    }

    pub(crate) fn put<H, T>(self, path: &str, handler: H, op: Op) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.on((MethodFilter::PUT, "put"), path, handler, op)
    }

    pub(crate) fn delete<H, T>(self, path: &str, handler: H, op: Op) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        self.on((MethodFilter::DELETE, "delete"), path, handler, op)
    }

    fn on<H, T>(
        mut self,
        (filter, method): (MethodFilter, &'static str),
        path: &str,
        handler: H,
        op: Op,
    ) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        let route = on(filter, handler);
        if op.is_open() {
            self.open = self.open.route(path, route);
        } else {
            self.guarded = self.guarded.route(path, route);
        }
        self.calls.push(Call { method, path: path.to_owned(), op });
        self
    }

    /// Describes a call that is answered elsewhere.
    pub(crate) fn elsewhere(mut self, method: &'static str, path: &str, op: Op) -> Self {
        self.calls.push(Call { method, path: path.to_owned(), op });
        self
    }

    /// Adds the calls of one file.
    /// The calls that need a token, by method and address.
    #[cfg(test)]
    pub(crate) fn guarded_calls(&self) -> impl Iterator<Item = (&str, &str)> {
        let guarded = self.calls.iter().filter(|call| !call.op.is_open());
        guarded.map(|call| (call.method, call.path.as_str()))
    }

    pub(crate) fn with(self, routes: impl FnOnce(Self) -> Self) -> Self {
        routes(self)
    }
}

/// The document, as it is committed and served.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| document::render(&front::table().calls))
}
