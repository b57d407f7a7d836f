//! `/nodes`: the processes that use the store, the lanes that they own, and the database.

use std::{sync::Arc, time::Duration};

use askama::Template;
use axum::{Router, routing::get};
use surehook_api::{
    ApiTransport as _, calls,
    nodes::{DatabaseResponse, NodeStatus, NodesResponse},
};
use surehook_core::store::Duty;

use crate::{
    Dashboard,
    current_user::CurrentUser,
    format::{Badge, format_duration, format_size},
    lang::{Lang, fill},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::NodeTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/nodes", get(show_nodes))
}

/// A snapshot this far behind keeps rows from being cleaned up that slow down every query.
const SNAPSHOT_AGE_WARNING: u64 = 10_000_000;
/// Open transactions of the gateway last milliseconds.
const TRANSACTION_WARNING_SECONDS: u64 = 300;
/// Leases end by the clock of the database, but times that people see are those of the nodes.
const CLOCK_WARNING_MS: u64 = 2_000;

#[derive(Template)]
#[template(path = "nodes.html")]
struct NodesPage {
    frame: PageFrame,
    t: &'static NodeTexts,
    report: NodesResponse,
    database: Vec<DatabaseFact>,
}

/// A line about the database.
struct DatabaseFact {
    name: &'static str,
    value: String,
    /// Set if something should be done about it.
    warning: Option<&'static str>,
}

async fn show_nodes(user: CurrentUser) -> PageResult {
    let t = NodeTexts::of(user.lang());
    let report = user.call(calls::get_nodes()).await?;
    let database = report.database.as_ref();
    let database =
        database.map(|database| database_facts(database, user.lang(), t)).unwrap_or_default();
    let frame = PageFrame::of_menu(&user, NavItem::Nodes);
    render_page(&NodesPage { frame, t, report, database })
}

fn state_badge(state: NodeStatus, t: &NodeTexts) -> Badge {
    match state {
        NodeStatus::Alive => Badge::new("ok", "check", t.alive),
        NodeStatus::Leaving => Badge::new("warn", "clock", t.leaving),
        NodeStatus::Lost => Badge::new("bad", "cross", t.lost),
    }
}

fn duty_name(duty: Duty, t: &NodeTexts) -> &'static str {
    match duty {
        Duty::Prune => t.duty_prune,
        Duty::RollUp => t.duty_roll_up,
        Duty::CancelDeleted => t.duty_cancel_deleted,
        Duty::ReplayJobs => t.duty_replay_jobs,
        Duty::Callbacks => t.duty_callbacks,
        Duty::Alerts => t.duty_alerts,
    }
}

fn database_facts(database: &DatabaseResponse, lang: Lang, t: &NodeTexts) -> Vec<DatabaseFact> {
    let fact = |name, value, warning| DatabaseFact { name, value, warning };
    let standby = match (database.waits_for_standby, database.standbys.len()) {
        (true, count) => fill(t.standby_synchronous, &[&count]),
        (false, 0) => t.standby_none.to_owned(),
        (false, count) => fill(t.standby_asynchronous, &[&count]),
    };
    let of = |part: u64, whole: u64| fill(t.of, &[&lang.number(part), &lang.number(whole)]);
    let transaction = Duration::from_secs(database.oldest_transaction_seconds);
    let is_old = database.oldest_transaction_seconds > TRANSACTION_WARNING_SECONDS
        || database.oldest_snapshot_age > SNAPSHOT_AGE_WARNING;
    let is_crowded = database.connections * 10 > database.connections_max * 9;
    let is_bloated = database.dead_rows > database.live_rows.max(1_000_000);
    let is_off = database.clock_offset_ms.unsigned_abs() > CLOCK_WARNING_MS;
    vec![
        fact(t.database_version, database.version.clone(), None),
        fact(t.database_size, format_size(lang, database.size_bytes), None),
        fact(t.standby, standby, (!database.waits_for_standby).then_some(t.standby_warning)),
        fact(
            t.connections,
            of(database.connections, database.connections_max),
            is_crowded.then_some(t.connections_warning),
        ),
        fact(
            t.oldest_transaction,
            format_duration(lang, transaction),
            is_old.then_some(t.oldest_transaction_warning),
        ),
        fact(
            t.dead_rows,
            of(database.dead_rows, database.live_rows),
            is_bloated.then_some(t.dead_rows_warning),
        ),
        fact(
            t.clock_offset,
            format!("{} ms", database.clock_offset_ms),
            is_off.then_some(t.clock_offset_warning),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fact_warns_only_when_something_should_be_done() {
        let healthy = DatabaseResponse {
            version: "PostgreSQL 15.6".to_owned(),
            size_bytes: 1 << 30,
            connections: 24,
            connections_max: 100,
            oldest_transaction_seconds: 1,
            oldest_snapshot_age: 500,
            dead_rows: 10_000,
            live_rows: 5_000_000,
            waits_for_standby: true,
            standbys: Vec::new(),
            clock_offset_ms: -3,
        };
        let ill = DatabaseResponse {
            connections: 95,
            oldest_transaction_seconds: 900,
            dead_rows: 9_000_000,
            waits_for_standby: false,
            clock_offset_ms: -5_000,
            ..healthy.clone()
        };
        let t = NodeTexts::of(Lang::En);
        let warnings = |database| {
            let facts = database_facts(database, Lang::En, t);
            facts.iter().filter(|fact| fact.warning.is_some()).count()
        };
        assert_eq!((warnings(&healthy), warnings(&ill)), (0, 5));
    }
}
