//! The items of a replay job: selected in slices, in id order.
//!
//! Every slice reads a bounded number of rows, however few of them match: a filter that matches one in
//! a million must not block anything. The scan covers the ids up to the creation of the job and takes
//! only what had ended by then, so later events and later failures are never included, however long
//! the scan takes.

use std::{collections::BTreeMap, time::Duration};

use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::{
        PreviewDepth, REPLAY_ITEMS_MAX, ReplayAction, ReplayFilter, ReplayPreview, ReplaySpec,
        ReplayState, ReplayTransition, SelectionReport, StatusPattern,
    },
    store::ListPage,
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, ReplayId},
    time::Timestamp,
};

use super::{
    StepTransaction,
    list::{HAS_DESTINATION, HAS_SOURCE, IS_IN_GROUP, ListTable, SqlListQuery},
    replay_jobs::{ReplayJob, apply_transition, find_job},
    row::{blob, id, optional_id, time},
};
use crate::sql::{Dialect, Result, SqlConnection, SqlRow, params};

/// Rows read by one scan.
const SCAN_MAX: usize = 5000;
/// Items inserted by one transaction: a few milliseconds of the writer's time.
const ITEMS_PER_SLICE: usize = 200;
/// Maximum number of scans of a preview; it reports then that there may be more.
const fn preview_scans_max(depth: PreviewDepth) -> usize {
    match depth {
        PreviewDepth::Quick => 4,
        PreviewDepth::Whole => 400,
    }
}

/// The resolution of a timestamp.
const TICK: Duration = Duration::from_millis(1);

struct SelectedItem {
    event: EventId,
    delivery: Option<DeliveryId>,
    /// Row number.
    destination_seq: i64,
    destination_id: DestinationId,
    received_at: Timestamp,
}

/// Scanned items, to be inserted.
pub(crate) struct SelectionSlice {
    id: ReplayId,
    /// Cursor of the job before the scan.
    start: Option<[u8; 16]>,
    scan: ListPage<SelectedItem, [u8; 16]>,
}

/// A cursor before everything that a job can select. Ids begin with their time, and no delivery is
/// older than its event.
pub(crate) fn first_cursor(spec: &ReplaySpec) -> [u8; 16] {
    spec.filter.since.map_or([0; 16], |since| blob(EventId::new(since - TICK, u128::MAX)))
}

/// Scans for the next slice; returns `None` if the job does not exist.
pub(crate) fn scan_next(
    connection: &impl SqlConnection,
    id: ReplayId,
) -> Result<Option<SelectionSlice>> {
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
        ) => ListPage::empty(),
    };
    Ok(Some(SelectionSlice { id, start: cursor, scan }))
}

/// Reads at most [`SCAN_MAX`] rows after `cursor`, until `limit` items match. The filter of the job
/// is checked on each row, so that the number of rows read is limited, not the number of matches.
fn scan_rows<C: SqlConnection>(
    connection: &C,
    spec: &ReplaySpec,
    created_at: Timestamp,
    cursor: [u8; 16],
    limit: usize,
) -> Result<ListPage<SelectedItem, [u8; 16]>> {
    let mut query = SqlListQuery::new(SCAN_MAX);
    let (from, columns, order_by) = match spec.action {
        ReplayAction::SendMissing => (
            select_events::<C::Dialect>(&mut query, spec, created_at, cursor),
            "e.id, e.id, NULL, t.seq, t.id, e.received_at",
            "e.id",
        ),
        ReplayAction::RetryFailed | ReplayAction::ForceResend => (
            select_deliveries::<C::Dialect>(&mut query, spec, created_at, cursor),
            "d.id, d.event_id, d.id, d.destination, t.id, e.received_at",
            "d.id",
        ),
    };
    let table = ListTable { columns, from: &from, order_by };
    query.read_page(connection, table, limit, |row| row.get(0), |row| read_item(row).map(Some))
}

fn read_item(row: &dyn SqlRow) -> Result<SelectedItem> {
    Ok(SelectedItem {
        event: id(row, 1)?,
        delivery: optional_id(row, 2)?,
        destination_seq: row.get(3)?,
        destination_id: id(row, 4)?,
        received_at: time(row, 5)?,
    })
}

/// Selects ended deliveries; returns the tables to read.
fn select_deliveries<D: Dialect>(
    query: &mut SqlListQuery,
    spec: &ReplaySpec,
    created_at: Timestamp,
    cursor: [u8; 16],
) -> String {
    let filter = &spec.filter;
    let joins = ["e.id = d.event_id", "t.seq = d.destination"];
    query.index_conditions.extend(joins.map(str::to_owned));
    query.narrow("d.id > {}", Some(cursor));
    query.narrow("d.id < {}", Some(first_id_after(created_at)));
    // Dead deliveries and their groups have an index; succeeded ones are found by destination or by
    // a full scan.
    let only_dead = !spec.selects(DeliveryStatus::Succeeded);
    let destination = filter.destination.map(blob);
    let index = if filter.group.is_some() {
        query.narrow(IS_IN_GROUP, filter.group.map(blob));
        "INDEXED BY deliveries_by_group"
    } else if only_dead {
        query.index_conditions.push("d.state = 'dead'".to_owned());
        "INDEXED BY deliveries_dead"
    } else if destination.is_some() {
        query.narrow(HAS_DESTINATION, destination);
        "INDEXED BY deliveries_by_destination"
    } else {
        "NOT INDEXED"
    };
    query.filter_rows(HAS_DESTINATION, destination.filter(|_| only_dead));
    let statuses: Vec<String> = [DeliveryStatus::Dead, DeliveryStatus::Succeeded]
        .into_iter()
        .filter(|status| spec.selects(*status))
        .map(|status| format!("d.state = '{}'", status.as_str()))
        .collect();
    query.row_conditions.push(format!("({})", statuses.join(" OR ")));
    query.filter_rows("d.ended_at <= {}", Some(created_at.as_millis()));
    query.filter_rows("d.reason = {}", filter.reason.map(DeadReason::as_str));
    query.filter_rows("a.class = {}", filter.class.map(FailureClass::as_str));
    let code = filter.code.map(StatusPattern::range);
    query.filter_rows("a.status >= {}", code.map(|(low, _)| low));
    query.filter_rows("a.status <= {}", code.map(|(_, high)| high));
    filter_events::<D>(query, filter, &["e.key", "a.detail"]);
    format!(
        "deliveries d {index} CROSS JOIN events e CROSS JOIN destinations t
         LEFT JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts"
    )
}

/// Selects events without a delivery to the destination; returns the tables to read.
fn select_events<D: Dialect>(
    query: &mut SqlListQuery,
    spec: &ReplaySpec,
    created_at: Timestamp,
    cursor: [u8; 16],
) -> String {
    query.narrow("t.id = {}", Some(spec.to.map(blob)));
    query.narrow("e.id > {}", Some(cursor));
    query.narrow("e.id < {}", Some(first_id_after(created_at)));
    query.narrow(HAS_SOURCE, spec.filter.source.map(blob));
    query.filter_rows("e.received_at <= {}", Some(created_at.as_millis()));
    // INDEXED BY: an event has few deliveries, a destination has many.
    query.row_conditions.push(
        "NOT EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_by_event
                      WHERE d.event_id = e.id AND d.destination = t.seq)"
            .to_owned(),
    );
    filter_events::<D>(query, &spec.filter, &["e.key"]);
    let index = spec.filter.source.map_or("NOT INDEXED", |_| "INDEXED BY events_by_source");
    format!("events e {index} CROSS JOIN destinations t")
}

/// The first id after the creation of the job.
fn first_id_after(created_at: Timestamp) -> [u8; 16] {
    blob(EventId::new(created_at + TICK, 0))
}

/// Adds the conditions on events; `searched` are the columns that a text search covers.
fn filter_events<D: Dialect>(query: &mut SqlListQuery, filter: &ReplayFilter, searched: &[&str]) {
    query.filter_rows(HAS_SOURCE, filter.source.map(blob));
    query.filter_rows("e.kind = {}", filter.kind.as_ref().map(|kind| kind.as_str().to_owned()));
    query.filter_rows("e.received_at >= {}", filter.since.map(Timestamp::as_millis));
    query.filter_rows("e.received_at < {}", filter.until.map(Timestamp::as_millis));
    query.filter_rows("e.key = {}", filter.key.clone());
    let text_conditions: Vec<String> = searched
        .iter()
        .map(|column| D::text_contains(&format!("lower(coalesce({column}, ''))"), "lower({})"))
        .collect();
    query.filter_rows(&format!("({})", text_conditions.join(" OR ")), filter.search.clone());
}

// Returns the number of items of the lane, which may exist already.
const ADD_LANE: &str = "
    INSERT INTO replay_lanes (replay, destination) VALUES (?1, ?2)
    ON CONFLICT (replay, destination) DO UPDATE SET selected = replay_lanes.selected
    RETURNING selected";
const SET_LANE: &str =
    "UPDATE replay_lanes SET selected = ?3 WHERE replay = ?1 AND destination = ?2";
const ADD_ITEM: &str = "
    INSERT INTO replay_items (replay, destination, number, event_id, delivery_id)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (replay, event_id, destination) DO NOTHING";
const COUNT_SELECTED: &str =
    "SELECT CAST(coalesce(sum(selected), 0) AS bigint) FROM replay_lanes WHERE replay = ?1";
const SET_CURSOR: &str = "UPDATE replays SET cursor = ?2 WHERE seq = ?1";

/// Inserts a slice, unless the job has moved on since the scan.
pub(crate) fn insert_slice(
    tx: &mut impl StepTransaction,
    slice: &SelectionSlice,
) -> Result<SelectionReport> {
    let Some(job) = find_job(tx, slice.id)? else { return Ok(SelectionReport::NotFound) };
    if job.state != ReplayState::Selecting || job.cursor != slice.start {
        return Ok(SelectionReport::InState(job.state));
    }
    let selected_before: u64 = tx.read_one(COUNT_SELECTED, params![job.seq], |row| row.get(0))?;
    let items_left =
        usize::try_from(REPLAY_ITEMS_MAX.saturating_sub(selected_before)).unwrap_or(usize::MAX);
    let mut lanes: BTreeMap<i64, u64> = BTreeMap::new();
    for item in slice.scan.rows.iter().take(items_left) {
        let selected = match lanes.get(&item.destination_seq) {
            Some(selected) => *selected,
            None => {
                tx.read_one(ADD_LANE, params![job.seq, item.destination_seq], |row| row.get(0))?
            }
        };
        let added = tx.run(
            ADD_ITEM,
            params![
                job.seq,
                item.destination_seq,
                selected + 1,
                blob(item.event),
                item.delivery.map(blob),
            ],
        )?;
        lanes.insert(item.destination_seq, selected + u64::try_from(added).unwrap_or(0));
    }
    for (destination, selected) in &lanes {
        tx.run(SET_LANE, params![job.seq, destination, selected])?;
    }
    let is_full = slice.scan.rows.len() >= items_left;
    let cursor = slice.scan.next.filter(|_| !is_full);
    tx.run(SET_CURSOR, params![job.seq, cursor])?;
    let state = match cursor {
        Some(_) => None,
        None => apply_transition(tx, &job, ReplayTransition::Selected, job.created_at)?,
    };
    Ok(SelectionReport::InState(state.unwrap_or(job.state)))
}

/// A preview under construction: one scan after the other, each a read of its own, so that none keeps
/// the log from being reset for long.
pub(crate) struct PreviewScan {
    spec: ReplaySpec,
    now: Timestamp,
    cursor: [u8; 16],
    scans_left: usize,
    pub(crate) preview: ReplayPreview,
}

impl PreviewScan {
    pub(crate) fn new(spec: ReplaySpec, now: Timestamp, depth: PreviewDepth) -> Self {
        let cursor = first_cursor(&spec);
        let scans_left = preview_scans_max(depth);
        Self { spec, now, cursor, scans_left, preview: ReplayPreview::default() }
    }

    /// Reads the next rows.
    pub(crate) fn scan_once(mut self, connection: &impl SqlConnection) -> Result<Self> {
        let scan = scan_rows(connection, &self.spec, self.now, self.cursor, usize::MAX)?;
        self.scans_left = self.scans_left.saturating_sub(1);
        let preview = &mut self.preview;
        for item in scan.rows {
            preview.count += 1;
            *preview.by_destination.entry(item.destination_id).or_default() += 1;
            let at = item.received_at;
            preview.oldest = Some(preview.oldest.map_or(at, |oldest| oldest.min(at)));
            preview.newest = Some(preview.newest.map_or(at, |newest| newest.max(at)));
        }
        match scan.next {
            Some(next) => self.cursor = next,
            None => preview.complete = true,
        }
        Ok(self)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.preview.complete || self.scans_left == 0
    }
}
