//! `/destinations`: where events are sent, their health, and actions.

mod actions;
mod fields;
mod list;
mod page;
mod state;
mod what_if;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use self::fields::DestinationResource;
use super::editor;
use crate::Dashboard;

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/destinations", get(list::list_destinations))
        .route("/destinations/{name}", get(page::show_destination))
        .route("/destinations/{name}/pause", post(actions::pause_destination))
        .route("/destinations/{name}/resume", post(actions::resume_destination))
        .route("/destinations/{name}/probe", post(actions::probe_destination))
        .route("/destinations/{name}/test", post(actions::test_destination))
        .route(
            "/destinations/{name}/what-if",
            get(what_if::show_what_if).post(what_if::apply_change),
        )
        .route("/destinations/{name}/what-if/preview", get(what_if::preview_change))
        .merge(editor::routes::<DestinationResource>())
}

/// Placeholder for missing values.
const NO_VALUE: &str = "–";

/// Masks user, password and query of a URL: they may contain credentials.
fn mask_url_secrets(url: &str) -> String {
    const HIDDEN: &str = "•••";
    let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?•••"));
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url}{query}") };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = match host.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => host.to_owned(),
    };
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_masked() {
        for (url, expected) in [
            ("https://a.example/in", "https://a.example/in"),
            ("https://u:p@a.example/in?token=x", "https://•••@a.example/in?•••"),
            ("https://u:p%40q@a@b.example", "https://•••@b.example"),
            ("https://a.example/x@y", "https://a.example/x@y"),
            ("builtin:inbox", "builtin:inbox"),
            ("env:REDIS", "env:REDIS"),
            ("", ""),
        ] {
            assert_eq!(mask_url_secrets(url), expected, "case: {url}");
        }
    }
}
