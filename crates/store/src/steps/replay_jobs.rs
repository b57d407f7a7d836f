//! Replay jobs: creating, advancing, changing, listing and pruning them.
//!
//! `replay_selection` fills a job with items. A step of a running job then counts the items whose new
//! delivery has ended and dispatches more. The scan for ended items runs on a reader, over the open
//! items only, of which each destination has a bounded number. Its result cannot become wrong before it
//! is written: an ended delivery never restarts, and one that was replayed keeps its outcome.

use std::{collections::BTreeMap, ops::ControlFlow};

use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, ReplayItemOutcome,
        ReplayProgress, ReplayRow, ReplaySpec, ReplayState, ReplayTransition, SkipReason,
        distribute,
    },
    store::PageRequest,
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, ReplayId},
    time::Timestamp,
};

use super::{
    StepTransaction, replay, replay_selection,
    row::{
        blob, corrupt_value, id, json, optional_id, optional_text, optional_time, reason, text,
        time, to_json,
    },
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const ITEMS_PER_SLICE: usize = 1000;

pub(crate) struct ReplayJob {
    pub(crate) seq: i64,
    pub(crate) spec: ReplaySpec,
    pub(crate) state: ReplayState,
    pub(crate) created_at: Timestamp,
    pub(crate) cursor: Option<[u8; 16]>,
}

const FIND_JOB: &str = "SELECT seq, spec, state, created_at, cursor FROM replays WHERE id = ?1";

pub(crate) fn find_job(connection: &impl SqlConnection, id: ReplayId) -> Result<Option<ReplayJob>> {
    connection.find_one(FIND_JOB, params![blob(id)], |row| {
        Ok(ReplayJob {
            seq: row.get(0)?,
            spec: json(row, 1)?,
            state: text(row, 2, ReplayState::parse)?,
            created_at: time(row, 3)?,
            cursor: row.get(4)?,
        })
    })
}

const NOT_ENDED: &str = "SELECT id, spec FROM replays WHERE ended_at IS NULL";
const INSERT: &str = "
    INSERT INTO replays (id, spec, state, created_at, cursor) VALUES (?1, ?2, 'selecting', ?3, ?4)";

pub(crate) fn create_job(
    connection: &impl SqlConnection,
    new: &NewReplay,
) -> Result<CreateReplayResult> {
    if find_job(connection, new.id)?.is_some() {
        return Ok(CreateReplayResult::AlreadyExists);
    }
    let others: Vec<(ReplayId, ReplaySpec)> =
        connection.read_all(NOT_ENDED, params![], |row| Ok((id(row, 0)?, json(row, 1)?)))?;
    if let Some((other, _)) = others.iter().find(|(_, other)| new.spec.may_overlap(other)) {
        return Ok(CreateReplayResult::Overlaps(*other));
    }
    connection.run(
        INSERT,
        params![
            blob(new.id),
            to_json(&new.spec)?,
            new.created_at.as_millis(),
            replay_selection::first_cursor(&new.spec),
        ],
    )?;
    Ok(CreateReplayResult::Created)
}

const SET_STATE: &str = "UPDATE replays SET state = ?2, ended_at = ?3 WHERE seq = ?1";

/// Applies a state transition; returns `None` if it is not allowed.
pub(crate) fn apply_transition(
    connection: &impl SqlConnection,
    job: &ReplayJob,
    input: ReplayTransition,
    now: Timestamp,
) -> Result<Option<ReplayState>> {
    let Some(state) = job.state.apply(input) else { return Ok(None) };
    let ended_at = state.is_final().then(|| now.as_millis());
    connection.run(SET_STATE, params![job.seq, state.as_str(), ended_at])?;
    Ok(Some(state))
}

pub(crate) fn change_state(
    connection: &impl SqlConnection,
    id: ReplayId,
    input: ReplayTransition,
    now: Timestamp,
) -> Result<ChangeReplayResult> {
    let Some(job) = find_job(connection, id)? else { return Ok(ChangeReplayResult::NotFound) };
    let new_state = apply_transition(connection, &job, input, now)?;
    Ok(new_state.map_or(ChangeReplayResult::Refused(job.state), ChangeReplayResult::Changed))
}

const ROWS: &str = "SELECT seq, id, spec, state, created_at, ended_at FROM replays";

fn read_replay(row: &dyn SqlRow) -> Result<(i64, ReplayRow)> {
    let replay = ReplayRow {
        id: id(row, 1)?,
        spec: json(row, 2)?,
        state: text(row, 3, ReplayState::parse)?,
        created_at: time(row, 4)?,
        ended_at: optional_time(row, 5)?,
        by_destination: BTreeMap::new(),
    };
    Ok((row.get(0)?, replay))
}

pub(crate) fn find_replay(
    connection: &impl SqlConnection,
    id: ReplayId,
) -> Result<Option<ReplayRow>> {
    let sql = format!("{ROWS} WHERE id = ?1");
    let found = connection.find_one(&sql, params![blob(id)], read_replay)?;
    found.map(|(seq, replay)| add_progress(connection, seq, replay)).transpose()
}

pub(crate) fn list_replays(
    connection: &impl SqlConnection,
    page: PageRequest<ReplayId>,
) -> Result<Vec<ReplayRow>> {
    let sql = format!("{ROWS} WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
    let before_id = page.after.map_or([0xff; 16], blob);
    let rows: Vec<(i64, ReplayRow)> =
        connection.read_all(&sql, params![before_id, page.limit], read_replay)?;
    rows.into_iter().map(|(seq, replay)| add_progress(connection, seq, replay)).collect()
}

const LANES: &str = "
    SELECT t.id, l.selected, l.taken
      FROM replay_lanes l JOIN destinations t ON t.seq = l.destination WHERE l.replay = ?1";
const COUNTS: &str = "
    SELECT t.id, c.outcome, c.many
      FROM replay_counts c JOIN destinations t ON t.seq = c.destination WHERE c.replay = ?1";

fn add_progress(
    connection: &impl SqlConnection,
    seq: i64,
    mut replay: ReplayRow,
) -> Result<ReplayRow> {
    replay.by_destination = connection.read_all(LANES, params![seq], |row| {
        let (selected, taken) = (row.get(1)?, row.get(2)?);
        Ok((id(row, 0)?, ReplayProgress { selected, taken, outcomes: BTreeMap::new() }))
    })?;
    connection.read_while(COUNTS, params![seq], |row| {
        let part = replay.by_destination.entry(id(row, 0)?).or_default();
        part.outcomes.insert(text(row, 1, ReplayItemOutcome::parse)?, row.get(2)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(replay)
}

const UNFINISHED: &str = "
    SELECT r.id FROM replays r
     WHERE r.ended_at IS NULL
        OR EXISTS (SELECT 1 FROM replay_lanes l WHERE l.replay = r.seq AND l.open > 0)
     ORDER BY r.seq";

pub(crate) fn list_unfinished(connection: &impl SqlConnection) -> Result<Vec<ReplayId>> {
    connection.read_all(UNFINISHED, params![], |row| id(row, 0))
}

const PRUNABLE: &str = "
    SELECT r.seq FROM replays r
     WHERE r.ended_at < ?1
       AND NOT EXISTS (SELECT 1 FROM replay_lanes l WHERE l.replay = r.seq AND l.open > 0)
     ORDER BY r.seq LIMIT 1";
const PRUNE_ITEMS: &str = "
    DELETE FROM replay_items WHERE (replay, destination, number) IN
           (SELECT replay, destination, number FROM replay_items WHERE replay = ?1 LIMIT ?2)";

pub(crate) fn prune_finished(connection: &impl SqlConnection, before: Timestamp) -> Result<bool> {
    let old: Option<i64> =
        connection.find_one(PRUNABLE, params![before.as_millis()], |row| row.get(0))?;
    let Some(seq) = old else { return Ok(false) };
    let removed = connection.run(PRUNE_ITEMS, params![seq, ITEMS_PER_SLICE])?;
    if removed < ITEMS_PER_SLICE {
        for sql in [
            "DELETE FROM replay_counts WHERE replay = ?1",
            "DELETE FROM replay_lanes WHERE replay = ?1",
            "DELETE FROM replays WHERE seq = ?1",
        ] {
            connection.run(sql, params![seq])?;
        }
    }
    Ok(true)
}

const ENDED_MAX: usize = 500;

#[derive(Clone, Copy)]
pub(crate) struct AdvanceStep {
    pub(crate) id: ReplayId,
    pub(crate) limit: usize,
    pub(crate) open_max: u64,
    pub(crate) now: Timestamp,
}

/// An item whose new delivery has ended.
struct EndedItem {
    destination: i64,
    number: i64,
    outcome: ReplayItemOutcome,
}

/// The items of a job for one destination.
struct ReplayLane {
    destination: i64,
    id: DestinationId,
    selected: u64,
    taken: u64,
    open: u64,
}

impl ReplayLane {
    /// How many more items may be dispatched now.
    fn dispatchable(&self, open_max: u64) -> usize {
        let items = (self.selected - self.taken).min(open_max.saturating_sub(self.open));
        usize::try_from(items).unwrap_or(usize::MAX)
    }
}

/// The result of the scan on a reader.
pub(crate) struct AdvanceScan {
    ended: Vec<EndedItem>,
    can_dispatch: bool,
    /// The report if there is nothing to write.
    pub(crate) unchanged: AdvanceReport,
}

impl AdvanceScan {
    pub(crate) fn has_changes(&self) -> bool {
        let AdvanceReport { state, open, queued, .. } = self.unchanged;
        let is_finished = state == ReplayState::Running && open + queued == 0;
        !self.ended.is_empty() || self.can_dispatch || is_finished
    }
}

const ENDED: &str = "
    SELECT i.destination, i.number, d.state, d.reason
      FROM replay_items i INDEXED BY replay_items_open
           LEFT JOIN deliveries d ON d.id = i.new_delivery
     WHERE i.replay = ?1 AND i.new_delivery IS NOT NULL AND i.outcome IS NULL
       AND (d.id IS NULL OR d.ended_at IS NOT NULL)
     LIMIT ?2";

pub(crate) fn scan_items(
    connection: &impl SqlConnection,
    step: AdvanceStep,
) -> Result<Option<AdvanceScan>> {
    let Some(job) = find_job(connection, step.id)? else { return Ok(None) };
    let lanes = load_lanes(connection, &job)?;
    let ended = connection.read_all(ENDED, params![job.seq, ENDED_MAX], |row| {
        let status = optional_text(row, 2, DeliveryStatus::parse)?;
        let outcome = item_outcome(status, reason(row, 3)?.is_some())?;
        Ok(EndedItem { destination: row.get(0)?, number: row.get(1)?, outcome })
    })?;
    let running = job.state == ReplayState::Running && step.limit > 0;
    let can_dispatch = running && lanes.iter().any(|lane| lane.dispatchable(step.open_max) > 0);
    let unchanged = AdvanceReport {
        state: job.state,
        dispatched: BTreeMap::new(),
        outcomes: BTreeMap::new(),
        open: lanes.iter().map(|lane| lane.open).sum(),
        queued: lanes.iter().map(|lane| lane.selected - lane.taken).sum(),
    };
    Ok(Some(AdvanceScan { ended, can_dispatch, unchanged }))
}

/// The outcome of an ended delivery. One that was replayed later keeps its outcome.
fn item_outcome(status: Option<DeliveryStatus>, died: bool) -> Result<ReplayItemOutcome> {
    match status {
        None => Ok(ReplayItemOutcome::Skipped(SkipReason::DeliveryGone)),
        Some(DeliveryStatus::Dead) => Ok(ReplayItemOutcome::Dead),
        Some(DeliveryStatus::Replayed) if died => Ok(ReplayItemOutcome::Dead),
        Some(DeliveryStatus::Succeeded | DeliveryStatus::Replayed) => {
            Ok(ReplayItemOutcome::Succeeded)
        }
        Some(DeliveryStatus::Cancelled) => Ok(ReplayItemOutcome::Cancelled),
        Some(
            unfinished @ (DeliveryStatus::Pending
            | DeliveryStatus::InFlight
            | DeliveryStatus::Scheduled
            | DeliveryStatus::Held),
        ) => Err(corrupt_value(2, unfinished.as_str())),
    }
}

const LANES_BY_TAKEN: &str = "
    SELECT l.destination, t.id, l.selected, l.taken, l.open
      FROM replay_lanes l JOIN destinations t ON t.seq = l.destination
     WHERE l.replay = ?1 ORDER BY l.taken, l.destination";

/// All lanes, the one with the fewest taken items first.
fn load_lanes(connection: &impl SqlConnection, job: &ReplayJob) -> Result<Vec<ReplayLane>> {
    connection.read_all(LANES_BY_TAKEN, params![job.seq], |row| {
        Ok(ReplayLane {
            destination: row.get(0)?,
            id: id(row, 1)?,
            selected: row.get(2)?,
            taken: row.get(3)?,
            open: row.get(4)?,
        })
    })
}

const SET_LANE: &str =
    "UPDATE replay_lanes SET taken = ?3, open = ?4 WHERE replay = ?1 AND destination = ?2";

pub(crate) fn apply_step(
    tx: &mut impl StepTransaction,
    step: AdvanceStep,
    scan: &AdvanceScan,
) -> Result<Option<AdvanceReport>> {
    let Some(job) = find_job(tx, step.id)? else { return Ok(None) };
    let mut lanes = load_lanes(tx, &job)?;
    let mut counts: BTreeMap<(i64, ReplayItemOutcome), u64> = BTreeMap::new();
    record_ended(tx, &job, scan, &mut lanes, &mut counts)?;
    let mut dispatched = BTreeMap::new();
    if job.state == ReplayState::Running {
        let limits: Vec<usize> =
            lanes.iter().map(|lane| lane.dispatchable(step.open_max)).collect();
        for (lane, share) in lanes.iter_mut().zip(distribute(step.limit, &limits)) {
            let skipped = dispatch(tx, &job, step, lane, share)?;
            if share > skipped.len() {
                dispatched.insert(lane.id, share - skipped.len());
            }
            for skip in skipped {
                let outcome = ReplayItemOutcome::Skipped(skip);
                *counts.entry((lane.destination, outcome)).or_default() += 1;
            }
        }
    }
    for lane in &lanes {
        tx.run(SET_LANE, params![job.seq, lane.destination, lane.taken, lane.open])?;
    }
    let outcomes = add_outcome_counts(tx, &job, &counts)?;
    let open = lanes.iter().map(|lane| lane.open).sum();
    let queued = lanes.iter().map(|lane| lane.selected - lane.taken).sum();
    let state = match open + queued {
        0 => apply_transition(tx, &job, ReplayTransition::Finish, step.now)?,
        _ => None,
    };
    let state = state.unwrap_or(job.state);
    Ok(Some(AdvanceReport { state, dispatched, outcomes, open, queued }))
}

const SET_OUTCOME: &str = "
    UPDATE replay_items SET outcome = ?4
     WHERE replay = ?1 AND destination = ?2 AND number = ?3 AND outcome IS NULL";

fn record_ended(
    connection: &impl SqlConnection,
    job: &ReplayJob,
    scan: &AdvanceScan,
    lanes: &mut [ReplayLane],
    counts: &mut BTreeMap<(i64, ReplayItemOutcome), u64>,
) -> Result<()> {
    for item in &scan.ended {
        let values = params![job.seq, item.destination, item.number, item.outcome.as_str()];
        // Concurrent scans find the same items; the first one counts them.
        if connection.run(SET_OUTCOME, values)? == 0 {
            continue;
        }
        *counts.entry((item.destination, item.outcome)).or_default() += 1;
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.destination == item.destination) {
            lane.open -= 1;
        }
    }
    Ok(())
}

const ITEMS: &str = "
    SELECT number, event_id, delivery_id FROM replay_items
     WHERE replay = ?1 AND destination = ?2 AND number > ?3 ORDER BY number LIMIT ?4";
const SET_DISPATCHED: &str = "
    UPDATE replay_items SET new_delivery = ?4, outcome = ?5
     WHERE replay = ?1 AND destination = ?2 AND number = ?3";

/// Dispatches the next `share` items of a lane; returns why some were skipped.
fn dispatch(
    tx: &mut impl StepTransaction,
    job: &ReplayJob,
    step: AdvanceStep,
    lane: &mut ReplayLane,
    share: usize,
) -> Result<Vec<SkipReason>> {
    let values = params![job.seq, lane.destination, lane.taken, share];
    let items: Vec<(i64, EventId, Option<DeliveryId>)> =
        tx.read_all(ITEMS, values, |row| Ok((row.get(0)?, id(row, 1)?, optional_id(row, 2)?)))?;
    let mut skipped = Vec::new();
    for (number, event, old) in items {
        let new = match old {
            Some(old) => replay::replay_for_job(tx, old, step.id, &job.spec, step.now)?,
            None => replay::deliver_missing(tx, event, lane.destination, step.id, step.now)?,
        };
        let (new, skip) = match new {
            Ok(new) => (Some(blob(new)), None),
            Err(skip) => (None, Some(skip)),
        };
        let outcome = skip.map(SkipReason::as_str);
        tx.run(SET_DISPATCHED, params![job.seq, lane.destination, number, new, outcome])?;
        lane.taken += 1;
        lane.open += u64::from(skip.is_none());
        skipped.extend(skip);
    }
    Ok(skipped)
}

const ADD_COUNT: &str = "
    INSERT INTO replay_counts (replay, destination, outcome, many) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (replay, destination, outcome) DO UPDATE SET many = replay_counts.many + excluded.many";

/// Adds to the outcome counts; returns their sums over all destinations.
fn add_outcome_counts(
    connection: &impl SqlConnection,
    job: &ReplayJob,
    counts: &BTreeMap<(i64, ReplayItemOutcome), u64>,
) -> Result<BTreeMap<ReplayItemOutcome, u64>> {
    let mut outcomes = BTreeMap::new();
    for ((destination, outcome), count) in counts {
        connection.run(ADD_COUNT, params![job.seq, destination, outcome.as_str(), count])?;
        *outcomes.entry(*outcome).or_default() += count;
    }
    Ok(outcomes)
}
