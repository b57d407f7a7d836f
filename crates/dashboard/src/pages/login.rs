//! `/login` and `/logout`.
//!
//! A single-use link shows a button first, so that link previews of chats and mail scanners do not use
//! it up.

use std::sync::Arc;

use askama::Template;
use axum::{
    Extension, Form, Router,
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use surehook_core::access::ClientAddress;

use crate::{
    Dashboard, DashboardState, cookies,
    current_user::{CurrentUser, Preferences},
    gateway::{Credential, SignInError},
    lang::Lang,
    page::{local_path, render},
    translations::LoginTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/login", get(show_login).post(sign_in)).route("/logout", post(sign_out))
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    preferences: Preferences,
    t: &'static LoginTexts,
    next: String,
    code: String,
    problem: Option<&'static str>,
}

#[derive(Deserialize)]
struct LoginQuery {
    #[serde(default)]
    next: String,
    #[serde(default)]
    code: String,
    /// Language chosen on the login page.
    lang: Option<String>,
}

async fn show_login(Query(query): Query<LoginQuery>, headers: HeaderMap) -> Response {
    let mut preferences = Preferences::from_headers(&headers);
    let chosen = query.lang.as_deref().and_then(Lang::from_tag);
    preferences.lang = chosen.unwrap_or(preferences.lang);
    let t = LoginTexts::of(preferences.lang);
    let page = LoginPage { preferences, t, next: query.next, code: query.code, problem: None };
    let response = render(StatusCode::OK, &page);
    match chosen {
        Some(lang) => {
            let cookie = cookies::set(cookies::LANG, lang.tag(), super::preferences::YEAR, false);
            ([(header::SET_COOKIE, cookie)], response).into_response()
        }
        None => response,
    }
}

#[derive(Deserialize)]
struct LoginForm {
    #[serde(default)]
    token: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    next: String,
}

async fn sign_in(
    State(dashboard): DashboardState,
    headers: HeaderMap,
    client: Option<Extension<ClientAddress>>,
    Form(form): Form<LoginForm>,
) -> Response {
    let is_secure = dashboard.is_secure(&headers);
    let client = client.map(|Extension(client)| client);
    let credential = if form.code.is_empty() {
        Credential::ApiToken(form.token.trim())
    } else {
        Credential::LoginLink(form.code.trim())
    };
    match dashboard.gateway.sign_in(credential, client.as_ref()).await {
        Ok(session) => {
            let name = cookies::session_name(is_secure);
            let cookie = cookies::set(name, &session.secret, session.lifetime_secs, is_secure);
            ([(header::SET_COOKIE, cookie)], Redirect::to(local_path(&form.next))).into_response()
        }
        Err(error) => {
            let preferences = Preferences::from_headers(&headers);
            let t = LoginTexts::of(preferences.lang);
            let (status, problem) = match error {
                SignInError::InvalidCredential => (StatusCode::UNAUTHORIZED, t.refused),
                SignInError::Throttled { .. } => (StatusCode::TOO_MANY_REQUESTS, t.throttled),
                SignInError::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, t.unavailable),
            };
            let (next, code) = (form.next, String::new());
            let page = LoginPage { preferences, t, next, code, problem: Some(problem) };
            let response = render(status, &page);
            match error {
                SignInError::Throttled { retry_after_secs } => {
                    ([(header::RETRY_AFTER, retry_after_secs)], response).into_response()
                }
                SignInError::InvalidCredential | SignInError::Unavailable => response,
            }
        }
    }
}

async fn sign_out(State(dashboard): DashboardState, user: CurrentUser) -> Response {
    dashboard.gateway.sign_out(user.session()).await;
    let is_secure = user.is_secure();
    let expired = cookies::set(cookies::session_name(is_secure), "", 0, is_secure);
    ([(header::SET_COOKIE, expired)], Redirect::to("/login")).into_response()
}
