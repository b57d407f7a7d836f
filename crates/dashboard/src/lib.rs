//! The dashboard: server-rendered pages.
//!
//! - [`gateway`]: what the dashboard needs from the server; all data comes from the API.
//! - `current_user`, `page`: the signed-in user, and the frame around every page.
//! - `health`: the health of a destination in words.
//! - `pages`: one module per page, with its template in `templates/` and its texts in `translations/`.
//! - `security`, `cookies`, `assets`: headers and checks for every response, cookies, scripts and styles.

mod assets;
mod body;
mod client;
mod cookies;
mod curl;
mod current_user;
mod filter;
mod form_fields;
mod format;
pub mod gateway;
mod health;
mod lang;
mod list_page;
mod page;
mod pages;
mod security;
mod sse;
mod tail;
mod translations;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};

use gateway::DashboardGateway;
use http::{HeaderMap, Method, StatusCode};

/// State shared by all pages.
pub(crate) struct Dashboard {
    gateway: Arc<dyn DashboardGateway>,
    /// The public URL says that browsers connect over TLS.
    has_https_url: bool,
}

impl Dashboard {
    /// Whether the browser connects over TLS, so that cookies are marked `Secure`: by the public URL,
    /// or by the word of the proxy. A forged word only locks out the one who forges it.
    fn is_secure(&self, headers: &HeaderMap) -> bool {
        let proxied = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
        let first = proxied.and_then(|value| value.split(',').next());
        self.has_https_url || first.is_some_and(|scheme| scheme.trim() == "https")
    }
}

type DashboardState = State<Arc<Dashboard>>;

/// Builds the router with all pages and assets.
pub fn router(gateway: Arc<dyn DashboardGateway>) -> Router {
    let has_https_url = gateway.public_url().is_some_and(|url| url.starts_with("https://"));
    let dashboard = Arc::new(Dashboard { gateway, has_https_url });
    Router::new()
        .merge(pages::routes().layer(middleware::from_fn_with_state(
            Arc::clone(&dashboard),
            page::render_error_pages,
        )))
        .route("/assets/{*name}", get(assets::serve))
        .layer(middleware::from_fn(clear_shown_flash))
        .layer(middleware::from_fn(redirect_form_address))
        .layer(middleware::from_fn(security::protect))
        .with_state(dashboard)
}

/// Redirects a `GET` of an address that only takes forms to the page above it. Browsers request such
/// an address after "back" or "reload".
async fn redirect_form_address(request: Request, next: Next) -> Response {
    let path = (*request.method() == Method::GET).then(|| request.uri().path().to_owned());
    let response = next.run(request).await;
    match path {
        Some(path) if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let parent = if parent.is_empty() { "/" } else { parent };
            Redirect::to(page::local_path(parent)).into_response()
        }
        _ => response,
    }
}

async fn clear_shown_flash(request: Request, next: Next) -> Response {
    // A script reads only parts of a page, so the message would be lost.
    let had_flash = cookies::get(request.headers(), cookies::FLASH).is_some()
        && !current_user::is_script_request(request.headers());
    page::clear_flash(had_flash, next.run(request).await)
}
