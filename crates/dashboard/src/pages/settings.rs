//! `/settings`: preferences, API tokens, sessions and information about the gateway.

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
    client::{ApiList, ApiPath},
    current_user::CurrentUser,
    format::format_size,
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::SettingsTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/settings", get(show_settings))
        .route("/settings/tokens", post(create_token))
        .route("/settings/tokens/{id}/revoke", post(revoke_token))
}

#[derive(Deserialize)]
struct TokenItem {
    id: String,
    name: Option<String>,
    role: String,
    created_at: String,
    expires_at: Option<String>,
    expired: bool,
    session: bool,
}

#[derive(Deserialize)]
struct GatewayInfo {
    version: String,
    now: String,
    public_url: Option<String>,
    retention: String,
    body_bytes_max: u64,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: PageFrame,
    t: &'static SettingsTexts,
    about: GatewayInfo,
    body_max: String,
    /// `None` if the user may not see tokens.
    tokens: Option<Vec<TokenItem>>,
    sessions: Vec<TokenItem>,
    own_session: String,
    /// Set once, directly after creation.
    new_token: Option<String>,
    /// Why the token was not created.
    problem: Option<String>,
    typed: NewTokenForm,
}

async fn show_settings(user: CurrentUser) -> PageResult {
    settings_page(user, None, None, NewTokenForm::default()).await
}

async fn settings_page(
    user: CurrentUser,
    new_token: Option<String>,
    problem: Option<String>,
    typed: NewTokenForm,
) -> PageResult {
    let t = SettingsTexts::of(user.lang());
    let about: GatewayInfo = user.get(ApiPath::new(&["about"])).await?;
    let tokens = if user.can_administer() {
        Some(user.get::<ApiList<TokenItem>>(ApiPath::new(&["tokens"])).await?.data)
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
    let body_max = format_size(user.lang(), about.body_bytes_max);
    let frame = PageFrame::of_menu(&user, NavItem::Settings);
    let own_session = user.session().id.to_string();
    render_page(&SettingsPage {
        frame,
        t,
        about,
        body_max,
        tokens,
        sessions,
        own_session,
        new_token,
        problem,
        typed,
    })
}

#[derive(Default, Deserialize)]
struct NewTokenForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    expires_in: String,
}

#[derive(Deserialize)]
struct CreatedToken {
    token: String,
}

/// The response is the page itself, so that the token is in no URL and no cookie.
async fn create_token(user: CurrentUser, Form(form): Form<NewTokenForm>) -> PageResult {
    let mut body = json!({ "role": form.role, "name": form.name.trim() });
    if !form.expires_in.trim().is_empty() {
        body["expires_in"] = Value::from(form.expires_in.trim());
    }
    match user.post::<CreatedToken>(ApiPath::new(&["tokens"]), Some(body)).await {
        Ok(new_token) => {
            settings_page(user, Some(new_token.token), None, NewTokenForm::default()).await
        }
        Err(error) => settings_page(user, None, Some(error.detail), form).await,
    }
}

async fn revoke_token(user: CurrentUser, Path(id): Path<String>) -> Response {
    let t = SettingsTexts::of(user.lang());
    let address = ApiPath::new(&["tokens", &id]);
    let revoked = user.call_api::<Value>(Method::DELETE, address, None).await;
    user.redirect_with_result("/settings", revoked, t.revoked)
}
