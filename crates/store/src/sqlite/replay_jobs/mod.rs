//! Replay jobs: made, moved, looked at, and removed.
//!
//! - `select`: what a job takes, written down in slices.
//! - `advance`: what has ended is counted, and more is handed out.

mod advance;
mod select;

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::from_str;
use surehook_core::{
    ids::{DestinationId, ReplayId},
    replay::{
        AdvanceReport, ChangeReplayResult, CreateReplayResult, NewReplay, PreviewDepth,
        ReplayItemOutcome, ReplayPreview, ReplayProgress, ReplayRow, ReplaySpec, ReplayState,
        ReplayStore, ReplayTransition, SelectionReport,
    },
    store::{PageRequest, StoreError},
    time::Timestamp,
};

use super::{
    SqliteStore,
    row::{blob, corrupt, id, optional_time, time},
    writer::Tx,
};

/// Items that are removed at a time.
const ITEMS_PER_SLICE: usize = 1000;

#[async_trait]
impl ReplayStore for SqliteStore {
    async fn create_replay(&self, job: NewReplay) -> Result<CreateReplayResult, StoreError> {
        self.writer.write(move |tx| create(tx, &job)).await
    }

    async fn preview_replay(
        &self,
        spec: ReplaySpec,
        now: Timestamp,
        depth: PreviewDepth,
    ) -> Result<ReplayPreview, StoreError> {
        select::preview(&self.readers, spec, now, depth).await
    }

    async fn select_replay(&self, id: ReplayId) -> Result<SelectionReport, StoreError> {
        // Looked for beside the writer, which only writes down what was found.
        let found = self.readers.read(move |connection| select::look(connection, id)).await?;
        let Some(slice) = found else { return Ok(SelectionReport::NotFound) };
        self.writer.write(move |tx| select::write_down(tx, &slice)).await
    }

    async fn advance_replay(
        &self,
        id: ReplayId,
        limit: usize,
        open_max: u64,
        now: Timestamp,
    ) -> Result<Option<AdvanceReport>, StoreError> {
        let step = advance::Step { id, limit, open_max, now };
        let seen = self.readers.read(move |connection| advance::look(connection, step)).await?;
        match seen {
            None => Ok(None),
            Some(seen) if !seen.is_worth_writing() => Ok(Some(seen.unchanged())),
            Some(seen) => self.writer.write(move |tx| advance::advance(tx, step, &seen)).await,
        }
    }

    async fn change_replay(
        &self,
        id: ReplayId,
        input: ReplayTransition,
        now: Timestamp,
    ) -> Result<ChangeReplayResult, StoreError> {
        self.writer.write(move |tx| change(tx, id, input, now)).await
    }

    async fn find_replay(&self, id: ReplayId) -> Result<Option<ReplayRow>, StoreError> {
        self.readers.read(move |connection| find(connection, id)).await
    }

    async fn list_replays(
        &self,
        page: PageRequest<ReplayId>,
    ) -> Result<Vec<ReplayRow>, StoreError> {
        self.readers.read(move |connection| list(connection, page)).await
    }

    async fn unfinished_replays(&self) -> Result<Vec<ReplayId>, StoreError> {
        self.readers.read(unfinished).await
    }

    async fn prune_replays(&self, before: Timestamp) -> Result<bool, StoreError> {
        self.writer.write(move |tx| prune(tx, before)).await
    }
}

/// What every step needs to know of a job.
struct Job {
    seq: i64,
    spec: ReplaySpec,
    state: ReplayState,
    created_at: Timestamp,
    cursor: Option<[u8; 16]>,
}

const JOB: &str = "SELECT seq, spec, state, created_at, cursor FROM replays WHERE id = ?1";

fn job(connection: &Connection, id: ReplayId) -> rusqlite::Result<Option<Job>> {
    connection
        .prepare_cached(JOB)?
        .query_row(params![blob(id)], |row| {
            Ok(Job {
                seq: row.get(0)?,
                spec: spec(row, 1)?,
                state: state(row, 2)?,
                created_at: time(row, 3)?,
                cursor: row.get(4)?,
            })
        })
        .optional()
}

fn spec(row: &Row<'_>, column: usize) -> rusqlite::Result<ReplaySpec> {
    let text: String = row.get(column)?;
    from_str(&text).map_err(|error| corrupt(column, &error.to_string()))
}

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<ReplayState> {
    let text: String = row.get(column)?;
    ReplayState::from_word(&text).ok_or_else(|| corrupt(column, &text))
}

const NOT_ENDED: &str = "SELECT id, spec FROM replays WHERE ended_at IS NULL";
const INSERT: &str = "
    INSERT INTO replays (id, spec, state, created_at, cursor) VALUES (?1, ?2, 'selecting', ?3, ?4)";

fn create(tx: &mut Tx<'_, '_>, new: &NewReplay) -> rusqlite::Result<CreateReplayResult> {
    if job(tx.connection, new.id)?.is_some() {
        return Ok(CreateReplayResult::Known);
    }
    let others: Vec<(ReplayId, ReplaySpec)> = tx
        .connection
        .prepare_cached(NOT_ENDED)?
        .query_map([], |row| Ok((id(row, 0)?, spec(row, 1)?)))?
        .collect::<Result<_, _>>()?;
    if let Some((other, _)) = others.iter().find(|(_, other)| new.spec.may_overlap(other)) {
        return Ok(CreateReplayResult::Overlaps(*other));
    }
    let text = serde_json::to_string(&new.spec)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    tx.connection.prepare_cached(INSERT)?.execute(params![
        blob(new.id),
        text,
        new.created_at.as_millis(),
        select::first_cursor(&new.spec),
    ])?;
    Ok(CreateReplayResult::Created)
}

const MOVE: &str = "UPDATE replays SET state = ?2, ended_at = ?3 WHERE seq = ?1";

/// Moves a job as the law says; `None` if the law says no.
fn apply(
    connection: &Connection,
    job: &Job,
    input: ReplayTransition,
    now: Timestamp,
) -> rusqlite::Result<Option<ReplayState>> {
    let Some(state) = job.state.apply(input) else { return Ok(None) };
    let ended_at = state.is_final().then(|| now.as_millis());
    connection.prepare_cached(MOVE)?.execute(params![job.seq, state.as_str(), ended_at])?;
    Ok(Some(state))
}

fn change(
    tx: &mut Tx<'_, '_>,
    id: ReplayId,
    input: ReplayTransition,
    now: Timestamp,
) -> rusqlite::Result<ChangeReplayResult> {
    let Some(job) = job(tx.connection, id)? else { return Ok(ChangeReplayResult::NotFound) };
    let moved = apply(tx.connection, &job, input, now)?;
    Ok(moved.map_or(ChangeReplayResult::Refused(job.state), ChangeReplayResult::Changed))
}

const ROWS: &str = "SELECT seq, id, spec, state, created_at, ended_at FROM replays";

fn row(row: &Row<'_>) -> rusqlite::Result<(i64, ReplayRow)> {
    let shown = ReplayRow {
        id: id(row, 1)?,
        spec: spec(row, 2)?,
        state: state(row, 3)?,
        created_at: time(row, 4)?,
        ended_at: optional_time(row, 5)?,
        by_destination: BTreeMap::new(),
    };
    Ok((row.get(0)?, shown))
}

fn find(connection: &Connection, id: ReplayId) -> rusqlite::Result<Option<ReplayRow>> {
    let sql = format!("{ROWS} WHERE id = ?1");
    let found = connection.prepare_cached(&sql)?.query_row(params![blob(id)], row).optional()?;
    found.map(|found| with_progress(connection, found)).transpose()
}

fn list(connection: &Connection, page: PageRequest<ReplayId>) -> rusqlite::Result<Vec<ReplayRow>> {
    let sql = format!("{ROWS} WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
    let border = page.after.map_or([0xff; 16], blob);
    let rows: Vec<(i64, ReplayRow)> = connection
        .prepare_cached(&sql)?
        .query_map(params![border, page.limit], row)?
        .collect::<Result<_, _>>()?;
    rows.into_iter().map(|row| with_progress(connection, row)).collect()
}

const LANES: &str = "
    SELECT t.id, l.selected, l.taken
      FROM replay_lanes l JOIN destinations t ON t.seq = l.destination WHERE l.replay = ?1";
const COUNTS: &str = "
    SELECT t.id, c.outcome, c.many
      FROM replay_counts c JOIN destinations t ON t.seq = c.destination WHERE c.replay = ?1";

fn with_progress(
    connection: &Connection,
    (seq, mut shown): (i64, ReplayRow),
) -> rusqlite::Result<ReplayRow> {
    shown.by_destination = connection
        .prepare_cached(LANES)?
        .query_map(params![seq], |row| {
            let (selected, taken) = (row.get(1)?, row.get(2)?);
            Ok((id(row, 0)?, ReplayProgress { selected, taken, outcomes: BTreeMap::new() }))
        })?
        .collect::<Result<_, _>>()?;
    let mut statement = connection.prepare_cached(COUNTS)?;
    let mut rows = statement.query(params![seq])?;
    while let Some(row) = rows.next()? {
        let destination: DestinationId = id(row, 0)?;
        let word: String = row.get(1)?;
        let outcome = ReplayItemOutcome::from_word(&word).ok_or_else(|| corrupt(1, &word))?;
        let part = shown.by_destination.entry(destination).or_default();
        part.outcomes.insert(outcome, row.get(2)?);
    }
    Ok(shown)
}

const UNFINISHED: &str = "
    SELECT r.id FROM replays r
     WHERE r.ended_at IS NULL
        OR EXISTS (SELECT 1 FROM replay_lanes l WHERE l.replay = r.seq AND l.open > 0)
     ORDER BY r.seq";

fn unfinished(connection: &Connection) -> rusqlite::Result<Vec<ReplayId>> {
    connection.prepare_cached(UNFINISHED)?.query_map([], |row| id(row, 0))?.collect()
}

const PRUNABLE: &str = "
    SELECT r.seq FROM replays r
     WHERE r.ended_at < ?1
       AND NOT EXISTS (SELECT 1 FROM replay_lanes l WHERE l.replay = r.seq AND l.open > 0)
     ORDER BY r.seq LIMIT 1";
const PRUNE_ITEMS: &str = "
    DELETE FROM replay_items WHERE (replay, destination, number) IN
           (SELECT replay, destination, number FROM replay_items WHERE replay = ?1 LIMIT ?2)";

fn prune(tx: &mut Tx<'_, '_>, before: Timestamp) -> rusqlite::Result<bool> {
    let old: Option<i64> = tx
        .connection
        .prepare_cached(PRUNABLE)?
        .query_row(params![before.as_millis()], |row| row.get(0))
        .optional()?;
    let Some(seq) = old else { return Ok(false) };
    let removed =
        tx.connection.prepare_cached(PRUNE_ITEMS)?.execute(params![seq, ITEMS_PER_SLICE])?;
    if removed < ITEMS_PER_SLICE {
        for sql in [
            "DELETE FROM replay_counts WHERE replay = ?1",
            "DELETE FROM replay_lanes WHERE replay = ?1",
            "DELETE FROM replays WHERE seq = ?1",
        ] {
            tx.connection.prepare_cached(sql)?.execute(params![seq])?;
        }
    }
    Ok(true)
}
