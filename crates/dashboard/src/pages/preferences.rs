//! `POST /preferences`: language, theme, time zone and shortcuts, stored in cookies of this browser.

use std::sync::Arc;

use axum::{
    Form, Router,
    response::{AppendHeaders, IntoResponse, Redirect, Response},
    routing::post,
};
use http::{HeaderValue, header};
use serde::Deserialize;

use crate::{
    Dashboard, cookies,
    current_user::{Theme, is_zone_name},
    lang::Lang,
    page::local_path,
};

/// Lifetime of preference cookies, in seconds.
pub(super) const YEAR: u64 = 365 * 24 * 60 * 60;

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/preferences", post(save))
}

/// Missing fields stay unchanged.
#[derive(Deserialize)]
struct PreferencesForm {
    lang: Option<String>,
    theme: Option<String>,
    zone: Option<String>,
    keys: Option<String>,
    #[serde(default)]
    next: String,
}

async fn save(Form(form): Form<PreferencesForm>) -> Response {
    let lang = form.lang.as_deref().and_then(Lang::from_tag).map(Lang::tag);
    let theme = form.theme.as_deref().and_then(Theme::parse).map(Theme::as_str);
    let zone = form.zone.as_deref().filter(|zone| is_zone_name(zone));
    let keys = form.keys.as_deref().filter(|keys| matches!(*keys, "on" | "off"));
    let chosen = [
        (cookies::LANG, lang),
        (cookies::THEME, theme),
        (cookies::ZONE, zone),
        (cookies::KEYS, keys),
    ];
    let lines = chosen.into_iter().filter_map(|(name, value)| {
        let value = value?;
        let seconds = if value.is_empty() { 0 } else { YEAR };
        Some((header::SET_COOKIE, cookies::set(name, value, seconds, false)))
    });
    let lines: Vec<(_, HeaderValue)> = lines.collect();
    (AppendHeaders(lines), Redirect::to(local_path(&form.next))).into_response()
}
