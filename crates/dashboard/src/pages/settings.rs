//! `/settings`: tokens, signed-in browsers, retention, and how somebody likes his pages.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::Path,
    response::Response,
    routing::{get, post},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Dashboard,
    client::{Address, List},
    lang::fill,
    page::{Frame, Nav, Shown, show},
    show::size,
    visitor::Visitor,
    words::Settings,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/settings", get(settings))
        .route("/settings/tokens", post(make))
        .route("/settings/tokens/{id}/revoke", post(revoke))
}

#[derive(Deserialize)]
struct Token {
    id: String,
    name: Option<String>,
    role: String,
    created_at: String,
    expires_at: Option<String>,
    expired: bool,
    session: bool,
}

#[derive(Deserialize)]
struct About {
    version: String,
    now: String,
    public_url: Option<String>,
    retention: String,
    body_bytes_max: u64,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    t: &'static Settings,
    about: About,
    body_max: String,
    /// Nothing for those who may not see them.
    tokens: Option<Vec<Token>>,
    sessions: Vec<Token>,
    own: String,
    /// A token that was just made; it is shown this once.
    made: Option<String>,
    /// Why the token that was wanted was not made.
    problem: Option<String>,
    typed: Wanted,
}

async fn settings(visitor: Visitor) -> Shown {
    page(visitor, None, None, Wanted::default()).await
}

async fn page(
    visitor: Visitor,
    made: Option<String>,
    problem: Option<String>,
    typed: Wanted,
) -> Shown {
    let t = Settings::of(visitor.lang());
    let about: About =
        visitor.get(Address::new(&["about"])).await.map_err(|trouble| visitor.failed(trouble))?;
    let tokens = if visitor.administers() {
        let found = visitor.get::<List<Token>>(Address::new(&["tokens"])).await;
        Some(found.map_err(|trouble| visitor.failed(trouble))?.data)
    } else {
        None
    };
    let (sessions, tokens) = match tokens {
        Some(all) => {
            let (sessions, tokens): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|token| token.session);
            (sessions.into_iter().filter(|session| !session.expired).collect(), Some(tokens))
        }
        None => (Vec::new(), None),
    };
    let body_max = size(visitor.lang(), about.body_bytes_max);
    let frame = Frame::new(&visitor, Nav::Settings, t.title);
    let own = visitor.caller().id.to_string();
    show(&SettingsPage { frame, t, about, body_max, tokens, sessions, own, made, problem, typed })
}

#[derive(Default, Deserialize)]
struct Wanted {
    #[serde(default)]
    name: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    expires_in: String,
}

#[derive(Deserialize)]
struct Made {
    token: String,
}

/// The answer is the page itself: what is shown once is in no address and in no cookie.
async fn make(visitor: Visitor, Form(wanted): Form<Wanted>) -> Shown {
    let mut body = json!({ "role": wanted.role, "name": wanted.name.trim() });
    if !wanted.expires_in.trim().is_empty() {
        body["expires_in"] = Value::from(wanted.expires_in.trim());
    }
    match visitor.post::<Made>(Address::new(&["tokens"]), Some(body)).await {
        Ok(made) => page(visitor, Some(made.token), None, Wanted::default()).await,
        Err(trouble) => page(visitor, None, Some(trouble.detail), wanted).await,
    }
}

async fn revoke(visitor: Visitor, Path(id): Path<String>) -> Response {
    let t = Settings::of(visitor.lang());
    match visitor.call::<Value>(Method::DELETE, Address::new(&["tokens", &id]), None).await {
        Ok(_) => visitor.done("/settings", fill(t.revoked, &[])),
        Err(trouble) => visitor.refused("/settings", &trouble),
    }
}
