//! `/`: how the gateway does.

use std::sync::Arc;

use askama::Template;
use axum::{Router, routing::get};
use serde::Deserialize;

use crate::{
    Dashboard,
    client::Address,
    page::{Frame, Nav, Shown, show},
    visitor::Visitor,
    words::Overview,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/", get(overview))
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    t: &'static Overview,
    dead: String,
    oldest: Option<u64>,
}

#[derive(Deserialize)]
struct Stats {
    dlq_size: u64,
    oldest_pending_age_seconds: Option<u64>,
}

async fn overview(visitor: Visitor) -> Shown {
    let stats: Stats =
        visitor.get(Address::new(&["stats"])).await.map_err(|trouble| visitor.failed(trouble))?;
    let t = Overview::of(visitor.lang());
    show(&OverviewPage {
        frame: Frame::new(&visitor, Nav::Overview, t.title),
        t,
        dead: visitor.lang().number(stats.dlq_size),
        oldest: stats.oldest_pending_age_seconds,
    })
}
