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
mod listing;
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
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};

use gateway::Gateway;
use http::{Method, StatusCode};

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
        .layer(middleware::from_fn(lead_back))
        .layer(middleware::from_fn(guard::protect))
        .with_state(dashboard)
}

/// Who opens the address of a form, as by going back or asking anew, is led to the page above it.
async fn lead_back(request: Request, next: Next) -> Response {
    let path = (*request.method() == Method::GET).then(|| request.uri().path().to_owned());
    let response = next.run(request).await;
    match path {
        Some(path) if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            Redirect::to(page::local(if above.is_empty() { "/" } else { above })).into_response()
        }
        _ => response,
    }
}

async fn say_once(request: Request, next: Next) -> Response {
    // What a script fetches is seen by nobody as a whole.
    let had_one = cookies::get(request.headers(), cookies::FLASH).is_some()
        && !visitor::is_of_script(request.headers());
    page::spend_flash(had_one, next.run(request).await)
}

type Shared = State<Arc<Dashboard>>;
