//! `/settings`: preferences, API tokens, sessions and information about the gateway.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::Path,
    response::Response,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_api::{ApiTransport as _, calls, gateway::AboutResponse, tokens::TokenResponse};
use surehook_types::ids::TokenId;

use crate::{
    Dashboard,
    client::parse_request,
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

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: PageFrame,
    t: &'static SettingsTexts,
    about: AboutResponse,
    body_max: String,
    /// `None` if the user may not see tokens.
    tokens: Option<Vec<TokenResponse>>,
    sessions: Vec<TokenResponse>,
    own_session: TokenId,
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
    let about = user.call(calls::get_about()).await?;
    let tokens = if user.can_administer() {
        Some(user.call(calls::list_tokens()).await?.data)
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
    let body_max = format_size(user.lang(), about.body_bytes_max as u64);
    let frame = PageFrame::of_menu(&user, NavItem::Settings);
    let own_session = user.session().id;
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
    /// Separated by spaces or commas.
    #[serde(default)]
    namespaces: String,
}

/// The response is the page itself, so that the token is in no URL and no cookie.
async fn create_token(user: CurrentUser, Form(form): Form<NewTokenForm>) -> PageResult {
    let mut body = json!({ "role": form.role, "name": form.name.trim() });
    if !form.expires_in.trim().is_empty() {
        body["expires_in"] = Value::from(form.expires_in.trim());
    }
    let separators = |c: char| c == ',' || c.is_whitespace();
    let namespaces: Vec<&str> =
        form.namespaces.split(separators).filter(|name| !name.is_empty()).collect();
    if !namespaces.is_empty() {
        body["namespaces"] = Value::from(namespaces);
    }
    let created = match parse_request(body) {
        Ok(request) => user.call(calls::create_token(&request)).await,
        Err(error) => Err(error),
    };
    match created {
        Ok(new_token) => {
            settings_page(user, Some(new_token.token), None, NewTokenForm::default()).await
        }
        Err(error) => settings_page(user, None, Some(error.detail), form).await,
    }
}

async fn revoke_token(user: CurrentUser, Path(id): Path<String>) -> Response {
    let t = SettingsTexts::of(user.lang());
    let revoked = user.call(calls::revoke_token(&id)).await;
    user.redirect_with_result("/settings", revoked, t.revoked)
}
