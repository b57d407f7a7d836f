//! `/login`, `/logout`: the way in and out.
//!
//! A link that opens once shows a button: what only looks at links, as chats and mail scanners do,
//! does not use it up.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Query, State},
    response::{Html, IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::{
    Dashboard, Shared, cookies,
    gateway::{Proof, Refused},
    lang::Lang,
    page::local,
    visitor::{Taste, Visitor},
    words::Login,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/login", get(ask).post(enter)).route("/logout", post(leave))
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    taste: Taste,
    t: &'static Login,
    next: String,
    code: String,
    problem: Option<&'static str>,
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    next: String,
    #[serde(default)]
    code: String,
    /// Another language, before anybody is known.
    lang: Option<String>,
}

async fn ask(Query(asked): Query<Asked>, headers: HeaderMap) -> Response {
    let mut taste = Taste::of(&headers);
    let chosen = asked.lang.as_deref().and_then(Lang::from_tag);
    taste.lang = chosen.unwrap_or(taste.lang);
    let t = Login::of(taste.lang);
    let page = LoginPage { taste, t, next: asked.next, code: asked.code, problem: None };
    let response = render(StatusCode::OK, &page);
    match chosen {
        Some(lang) => {
            let cookie = cookies::set(cookies::LANG, lang.tag(), super::preferences::YEAR, false);
            ([(header::SET_COOKIE, cookie)], response).into_response()
        }
        None => response,
    }
}

fn render(status: StatusCode, page: &LoginPage) -> Response {
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[derive(Deserialize)]
struct Given {
    #[serde(default)]
    token: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    next: String,
}

async fn enter(State(dashboard): Shared, headers: HeaderMap, Form(given): Form<Given>) -> Response {
    let proof = if given.code.is_empty() {
        Proof::Token(given.token.trim())
    } else {
        Proof::Link(given.code.trim())
    };
    match dashboard.gateway.sign_in(proof).await {
        Ok(session) => {
            let cookie = cookies::set(
                cookies::session(dashboard.is_secure),
                &session.secret,
                session.seconds,
                dashboard.is_secure,
            );
            ([(header::SET_COOKIE, cookie)], Redirect::to(local(&given.next))).into_response()
        }
        Err(refused) => {
            let taste = Taste::of(&headers);
            let t = Login::of(taste.lang);
            let (status, problem) = match refused {
                Refused::Unknown => (StatusCode::UNAUTHORIZED, t.refused),
                Refused::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, t.unavailable),
            };
            let (next, code) = (given.next, String::new());
            render(status, &LoginPage { taste, t, next, code, problem: Some(problem) })
        }
    }
}

async fn leave(State(dashboard): Shared, visitor: Visitor) -> Response {
    dashboard.gateway.sign_out(visitor.caller()).await;
    let gone = cookies::set(cookies::session(dashboard.is_secure), "", 0, dashboard.is_secure);
    ([(header::SET_COOKIE, gone)], Redirect::to("/login")).into_response()
}
