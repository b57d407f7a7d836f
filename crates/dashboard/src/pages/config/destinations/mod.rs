//! `/destinations`: where events go, how those places do, and what an operator can do about it.

mod acts;
mod fields;
mod list;
mod page;
mod state;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};
use serde::Deserialize;

use self::{
    fields::Destination,
    state::{Numbers, State},
};
use super::{Thing as _, editor};
use crate::Dashboard;

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/destinations", get(list::list))
        .route("/destinations/{name}", get(page::one))
        .route("/destinations/{name}/pause", post(acts::pause))
        .route("/destinations/{name}/resume", post(acts::resume))
        .route("/destinations/{name}/probe", post(acts::probe))
        .route("/destinations/{name}/test", post(acts::test))
        .merge(editor::routes::<Destination>())
}

/// What is shown where there is nothing to show.
const NOTHING: &str = "–";

#[derive(Deserialize)]
struct Found {
    name: String,
    #[serde(default = "http")]
    kind: String,
    #[serde(default)]
    url: String,
    rate: Option<String>,
    state: Option<State>,
}

fn http() -> String {
    Destination::USUAL.to_owned()
}

#[derive(Default, Deserialize)]
struct Stats {
    #[serde(default)]
    destinations: Vec<Numbers>,
}

/// An address without what may let somebody in: its user, its password and its query.
fn without_secrets(url: &str) -> String {
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
    fn an_address_is_shown_without_what_lets_somebody_in() {
        for (url, expected) in [
            ("https://a.example/in", "https://a.example/in"),
            ("https://u:p@a.example/in?token=x", "https://•••@a.example/in?•••"),
            ("https://u:p%40q@a@b.example", "https://•••@b.example"),
            ("https://a.example/x@y", "https://a.example/x@y"),
            ("builtin:inbox", "builtin:inbox"),
            ("env:REDIS", "env:REDIS"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(url), expected, "case: {url}");
        }
    }
}
