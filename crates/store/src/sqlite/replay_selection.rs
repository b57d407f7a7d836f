//! The items of a replay job: selected in slices, in id order.
//!
//! Every slice reads a bounded number of rows, however few of them match: a filter that matches one in
//! a million must not block anything. The scan covers the ids up to the creation of the job and takes
//! only what had ended by then, so later events and later failures are never included, however long
//! the scan takes.

use std::{collections::BTreeMap, time::Duration};

use rusqlite::{Connection, OptionalExtension as _, ToSql, params, params_from_iter};
use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::{
        PreviewDepth, REPLAY_ITEMS_MAX, ReplayAction, ReplayPreview, ReplaySpec, ReplayState,
        ReplayTransition, SelectionReport,
    },
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, ReplayId},
    store_error::StoreError,
    time::Timestamp,
};

use super::{
    read::ReadPool,
    replay_jobs::{ReplayJob, apply_transition, find_job},
    row::{blob, id, optional_id, time},
    writer::WriteTransaction,
};

/// Rows read by one scan.
const SCAN_MAX: usize = 5000;
/// Items inserted by one transaction: a few milliseconds of the writer's time.
const ITEMS_PER_SLICE: usize = 200;
/// Scans of a preview, after which it reports that there may be more.
const fn preview_scans_max(depth: PreviewDepth) -> usize {
    match depth {
        PreviewDepth::Quick => 4,
        PreviewDepth::Whole => 400,
    }
}

const TICK: Duration = Duration::from_millis(1);

struct SelectedItem {
    event: EventId,
    delivery: Option<DeliveryId>,
    /// Row number.
    destination: i64,
    destination_id: DestinationId,
    received_at: Timestamp,
}

struct SelectionScan {
    found: Vec<SelectedItem>,
    /// Where to continue; `None` at the end.
    cursor: Option<[u8; 16]>,
}

/// Scanned items, to be inserted.
pub(super) struct SelectionSlice {
    id: ReplayId,
    from: Option<[u8; 16]>,
    scan: SelectionScan,
}

/// A cursor before everything that a job can select. Ids begin with their time, and no delivery is
/// older than its event.
pub(super) fn first_cursor(spec: &ReplaySpec) -> [u8; 16] {
    spec.filter.since.map_or([0; 16], |since| blob(EventId::new(since - TICK, u128::MAX)))
}

/// Scans for the next slice; returns `None` if the job does not exist.
pub(super) fn scan_next(
    connection: &Connection,
    id: ReplayId,
) -> rusqlite::Result<Option<SelectionSlice>> {
    let Some(job) = find_job(connection, id)? else { return Ok(None) };
    let ReplayJob { spec, state, created_at, cursor, .. } = job;
    let scan = match (state, cursor) {
        (ReplayState::Selecting, Some(cursor)) => {
            scan_rows(connection, &spec, created_at, cursor, ITEMS_PER_SLICE)?
        }
        (ReplayState::Selecting, None)
        | (
            ReplayState::Running | ReplayState::Paused | ReplayState::Done | ReplayState::Cancelled,
            _,
        ) => SelectionScan { found: Vec::new(), cursor: None },
    };
    Ok(Some(SelectionSlice { id, from: cursor, scan }))
}

struct SelectionQuery {
    sql: String,
    values: Vec<Box<dyn ToSql>>,
    filters: Vec<String>,
}

impl SelectionQuery {
    /// Binds a value; returns its placeholder.
    fn bind(&mut self, value: impl ToSql + 'static) -> String {
        self.values.push(Box::new(value));
        format!("?{}", self.values.len())
    }

    fn filter(&mut self, text: impl Into<String>) {
        self.filters.push(text.into());
    }
}

/// Reads at most [`SCAN_MAX`] rows after `cursor`, until `limit` items match.
fn scan_rows(
    connection: &Connection,
    spec: &ReplaySpec,
    created_at: Timestamp,
    cursor: [u8; 16],
    limit: usize,
) -> rusqlite::Result<SelectionScan> {
    let query = match spec.action {
        ReplayAction::SendMissing => event_query(spec, created_at, cursor),
        ReplayAction::RetryFailed | ReplayAction::ForceResend => {
            delivery_query(spec, created_at, cursor)
        }
    };
    let mut statement = connection.prepare_cached(&query.sql)?;
    let values = query.values.iter().map(|value| &**value);
    let mut rows = statement.query(params_from_iter(values))?;
    let mut scan = SelectionScan { found: Vec::new(), cursor: None };
    let mut scanned = 0;
    while let Some(row) = rows.next()? {
        scanned += 1;
        if row.get::<_, Option<bool>>(6)? == Some(true) {
            scan.found.push(SelectedItem {
                event: id(row, 1)?,
                delivery: optional_id(row, 2)?,
                destination: row.get(3)?,
                destination_id: id(row, 4)?,
                received_at: time(row, 5)?,
            });
        }
        if scanned == SCAN_MAX || scan.found.len() == limit {
            scan.cursor = Some(row.get(0)?);
            break;
        }
    }
    Ok(scan)
}

/// Ended deliveries. The filter is a column of the result, not a condition of the scan, so that the
/// number of rows read is limited, not the number of matches.
fn delivery_query(spec: &ReplaySpec, created_at: Timestamp, cursor: [u8; 16]) -> SelectionQuery {
    let mut query = SelectionQuery { sql: String::new(), values: Vec::new(), filters: Vec::new() };
    let filter = &spec.filter;
    let (after, upper_bound) = (query.bind(cursor), bind_upper_bound(&mut query, created_at));
    let to = filter.destination.map(|to| {
        let to = query.bind(blob(to));
        format!("d.destination = (SELECT seq FROM destinations WHERE id = {to})")
    });
    // Dead deliveries and their groups have an index; succeeded ones are found by destination or by
    // a full scan.
    let only_dead = !spec.selects(DeliveryStatus::Succeeded);
    let group = filter.group.map(|group| {
        let group = query.bind(blob(group));
        format!("d.dead_group = (SELECT seq FROM dead_groups WHERE id = {group})")
    });
    let (table, within) = match (group, only_dead, &to) {
        (Some(group), _, _) => ("deliveries d INDEXED BY deliveries_by_group", group),
        (None, true, _) => {
            ("deliveries d INDEXED BY deliveries_dead", "d.state = 'dead'".to_owned())
        }
        (None, false, Some(to)) => {
            ("deliveries d INDEXED BY deliveries_by_destination", to.clone())
        }
        (None, false, None) => ("deliveries d NOT INDEXED", "true".to_owned()),
    };
    if let (true, Some(to)) = (only_dead, to) {
        query.filter(to);
    }
    let statuses: Vec<String> = [DeliveryStatus::Dead, DeliveryStatus::Succeeded]
        .into_iter()
        .filter(|status| spec.selects(*status))
        .map(|status| format!("d.state = '{}'", status.as_str()))
        .collect();
    query.filter(format!("({})", statuses.join(" OR ")));
    let created = query.bind(created_at.as_millis());
    query.filter(format!("d.ended_at <= {created}"));
    if let Some(reason) = filter.reason.map(DeadReason::as_str) {
        let reason = query.bind(reason);
        query.filter(format!("d.reason = {reason}"));
    }
    if let Some(class) = filter.class.map(FailureClass::as_str) {
        let class = query.bind(class);
        query.filter(format!("a.class = {class}"));
    }
    if let Some((low, high)) = filter.code.map(surehook_core::replay::StatusPattern::range) {
        let (low, high) = (query.bind(low), query.bind(high));
        query.filter(format!("a.status BETWEEN {low} AND {high}"));
    }
    filter_events(&mut query, spec, &["e.key", "a.detail"]);
    let matches = query.filters.join(" AND ");
    query.sql = format!(
        "SELECT d.id, d.event_id, d.id, d.destination, t.id, e.received_at, {matches}
           FROM {table} CROSS JOIN events e ON e.id = d.event_id
                CROSS JOIN destinations t ON t.seq = d.destination
                LEFT JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts
          WHERE {within} AND d.id > {after} AND d.id < {upper_bound} ORDER BY d.id LIMIT {SCAN_MAX}"
    );
    query
}

/// Events without a delivery to the destination.
fn event_query(spec: &ReplaySpec, created_at: Timestamp, cursor: [u8; 16]) -> SelectionQuery {
    let mut query = SelectionQuery { sql: String::new(), values: Vec::new(), filters: Vec::new() };
    let (after, upper_bound) = (query.bind(cursor), bind_upper_bound(&mut query, created_at));
    let to = query.bind(spec.to.map(blob));
    let created = query.bind(created_at.as_millis());
    query.filter(format!("e.received_at <= {created}"));
    // INDEXED BY: an event has few deliveries, a destination has many.
    query.filter(
        "NOT EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_by_event
                      WHERE d.event_id = e.id AND d.destination = t.seq)",
    );
    filter_events(&mut query, spec, &["e.key"]);
    let table = match spec.filter.source {
        Some(_) => "events e INDEXED BY events_by_source",
        None => "events e NOT INDEXED",
    };
    let within = match spec.filter.source {
        Some(source) => {
            let source = query.bind(blob(source));
            format!("e.source = (SELECT seq FROM sources WHERE id = {source})")
        }
        None => "true".to_owned(),
    };
    let matches = query.filters.join(" AND ");
    query.sql = format!(
        "SELECT e.id, e.id, NULL, t.seq, t.id, e.received_at, {matches}
           FROM {table} CROSS JOIN destinations t
          WHERE t.id = {to} AND {within} AND e.id > {after} AND e.id < {upper_bound}
          ORDER BY e.id LIMIT {SCAN_MAX}"
    );
    query
}

/// Binds the first id after the creation of the job.
fn bind_upper_bound(query: &mut SelectionQuery, created_at: Timestamp) -> String {
    query.bind(blob(EventId::new(created_at + TICK, 0)))
}

/// Adds the conditions on events; `searched` are the columns that a text search covers.
fn filter_events(query: &mut SelectionQuery, spec: &ReplaySpec, searched: &[&str]) {
    let filter = &spec.filter;
    if let Some(source) = filter.source {
        let source = query.bind(blob(source));
        query.filter(format!("e.source = (SELECT seq FROM sources WHERE id = {source})"));
    }
    if let Some(kind) = &filter.kind {
        let kind = query.bind(kind.as_str().to_owned());
        query.filter(format!("e.kind = {kind}"));
    }
    if let Some(since) = filter.since {
        let since = query.bind(since.as_millis());
        query.filter(format!("e.received_at >= {since}"));
    }
    if let Some(until) = filter.until {
        let until = query.bind(until.as_millis());
        query.filter(format!("e.received_at < {until}"));
    }
    if let Some(key) = &filter.key {
        let key = query.bind(key.clone());
        query.filter(format!("e.key = {key}"));
    }
    if let Some(text) = &filter.search {
        let text = query.bind(text.clone());
        let found: Vec<String> = searched
            .iter()
            .map(|column| format!("instr(lower(coalesce({column}, '')), lower({text})) > 0"))
            .collect();
        query.filter(format!("({})", found.join(" OR ")));
    }
}

const LANE_SELECTED: &str =
    "SELECT selected FROM replay_lanes WHERE replay = ?1 AND destination = ?2";
const ADD_LANE: &str = "INSERT INTO replay_lanes (replay, destination) VALUES (?1, ?2)";
const SET_LANE: &str =
    "UPDATE replay_lanes SET selected = ?3 WHERE replay = ?1 AND destination = ?2";
const ADD_ITEM: &str = "
    INSERT INTO replay_items (replay, destination, number, event_id, delivery_id)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (replay, event_id, destination) DO NOTHING";
const COUNT_SELECTED: &str =
    "SELECT coalesce(sum(selected), 0) FROM replay_lanes WHERE replay = ?1";
const SET_CURSOR: &str = "UPDATE replays SET cursor = ?2 WHERE seq = ?1";

/// Inserts a slice, unless the job has moved on since the scan.
pub(super) fn insert_slice(
    tx: &mut WriteTransaction<'_, '_>,
    slice: &SelectionSlice,
) -> rusqlite::Result<SelectionReport> {
    let Some(job) = find_job(tx.connection, slice.id)? else {
        return Ok(SelectionReport::NotFound);
    };
    if job.state != ReplayState::Selecting || job.cursor != slice.from {
        return Ok(SelectionReport::Now(job.state));
    }
    let selected_before: u64 = tx
        .connection
        .prepare_cached(COUNT_SELECTED)?
        .query_row(params![job.seq], |row| row.get(0))?;
    let room =
        usize::try_from(REPLAY_ITEMS_MAX.saturating_sub(selected_before)).unwrap_or(usize::MAX);
    let mut lanes: BTreeMap<i64, u64> = BTreeMap::new();
    for found in slice.scan.found.iter().take(room) {
        let selected = match lanes.get(&found.destination) {
            Some(selected) => *selected,
            None => find_or_insert_lane(tx.connection, job.seq, found.destination)?,
        };
        let added = tx.connection.prepare_cached(ADD_ITEM)?.execute(params![
            job.seq,
            found.destination,
            selected + 1,
            blob(found.event),
            found.delivery.map(blob),
        ])?;
        lanes.insert(found.destination, selected + u64::try_from(added).unwrap_or(0));
    }
    for (destination, selected) in &lanes {
        let values = params![job.seq, destination, selected];
        tx.connection.prepare_cached(SET_LANE)?.execute(values)?;
    }
    let is_full = slice.scan.found.len() >= room;
    let cursor = slice.scan.cursor.filter(|_| !is_full);
    tx.connection.prepare_cached(SET_CURSOR)?.execute(params![job.seq, cursor])?;
    let state = match cursor {
        Some(_) => None,
        None => apply_transition(tx.connection, &job, ReplayTransition::Selected, job.created_at)?,
    };
    Ok(SelectionReport::Now(state.unwrap_or(job.state)))
}

/// How many items a destination has; inserts its lane if there is none.
fn find_or_insert_lane(
    connection: &Connection,
    replay: i64,
    destination: i64,
) -> rusqlite::Result<u64> {
    let found = connection
        .prepare_cached(LANE_SELECTED)?
        .query_row(params![replay, destination], |row| row.get(0))
        .optional()?;
    match found {
        Some(selected) => Ok(selected),
        None => {
            connection.prepare_cached(ADD_LANE)?.execute(params![replay, destination])?;
            Ok(0)
        }
    }
}

/// Implements `ReplayStore::preview_replay`. Each scan is a separate read, so that none keeps the
/// log from being reset for long.
pub(super) async fn preview_selection(
    readers: &ReadPool,
    spec: ReplaySpec,
    now: Timestamp,
    depth: PreviewDepth,
) -> Result<ReplayPreview, StoreError> {
    let mut preview = ReplayPreview::default();
    let mut cursor = first_cursor(&spec);
    for _ in 0..preview_scans_max(depth) {
        let scanned_spec = spec.clone();
        let scan = readers
            .read(move |connection| scan_rows(connection, &scanned_spec, now, cursor, usize::MAX))
            .await?;
        for found in scan.found {
            preview.count += 1;
            *preview.by_destination.entry(found.destination_id).or_default() += 1;
            let at = found.received_at;
            preview.oldest = Some(preview.oldest.map_or(at, |oldest| oldest.min(at)));
            preview.newest = Some(preview.newest.map_or(at, |newest| newest.max(at)));
        }
        match scan.cursor {
            Some(next) => cursor = next,
            None => {
                preview.complete = true;
                break;
            }
        }
    }
    Ok(preview)
}
