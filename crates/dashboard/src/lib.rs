//! The dashboard: pages for people, made on the server.
//!
//! - [`gateway`]: all that it needs of a gateway, as a trait; it is a client of the API.
//! - `visitor`, `page`: who looks, and the frame around what he sees.
//! - `pages`: one file a page, with its template in `templates/` and its words in `words/`.
//! - `guard`, `cookies`, `assets`: what stands around every page, and what browsers fetch.

mod assets;
mod body;
mod client;
mod cookies;
mod curl;
mod fields;
mod filter;
pub mod gateway;
mod guard;
mod lang;
mod page;
mod pages;
mod show;
mod tail;
mod visitor;
mod words;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
    routing::get,
};

use gateway::Gateway;

/// What all pages share.
pub(crate) struct Dashboard {
    gateway: Arc<dyn Gateway>,
    /// Browsers reach us over TLS, so cookies are for TLS only.
    is_secure: bool,
}

/// All pages, on top of a gateway.
pub fn router(gateway: Arc<dyn Gateway>) -> Router {
    let is_secure = gateway.public_url().is_some_and(|url| url.starts_with("https://"));
    let dashboard = Arc::new(Dashboard { gateway, is_secure });
    Router::new()
        .merge(pages::routes())
        .route("/assets/{*name}", get(assets::serve))
        .layer(middleware::from_fn(say_once))
        .layer(middleware::from_fn(guard::protect))
        .with_state(dashboard)
}

async fn say_once(request: Request, next: Next) -> Response {
    let had_one = cookies::get(request.headers(), cookies::FLASH).is_some();
    page::spend_flash(had_one, next.run(request).await)
}

type Shared = State<Arc<Dashboard>>;
