//! One step of a job: what has ended is counted, and more is handed out.
//!
//! The look is made beside the writer, over the deliveries of the job that have not ended; there are
//! never more of them than a bound for each destination. What it finds stays true: a delivery that
//! has ended does not begin again, and one that was replayed keeps what it ended with.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use surehook_core::{
    delivery::state::DeliveryStatus,
    ids::{DeliveryId, DestinationId, EventId, ReplayId},
    replay::{
        AdvanceReport, ReplayItemOutcome, ReplayState, ReplayTransition, SkipReason, distribute,
    },
    time::Timestamp,
};

use super::{Job, apply, job};
use crate::sqlite::{
    replay,
    row::{blob, corrupt, id, optional_id, reason},
    writer::Tx,
};

/// Ends that one step counts.
const ENDED_MAX: usize = 500;

/// What is asked of a step.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) id: ReplayId,
    pub(super) limit: usize,
    pub(super) open_max: u64,
    pub(super) now: Timestamp,
}

/// An item of a job, by its place.
#[derive(Clone, Copy)]
struct Place {
    destination: i64,
    number: i64,
}

/// A job's part for one destination.
struct Lane {
    destination: i64,
    id: DestinationId,
    selected: u64,
    taken: u64,
    open: u64,
}

impl Lane {
    /// How many more it may be handed now.
    fn room(&self, open_max: u64) -> usize {
        let room = (self.selected - self.taken).min(open_max.saturating_sub(self.open));
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}

/// What a look found.
pub(super) struct Seen {
    state: ReplayState,
    ended: Vec<(Place, ReplayItemOutcome)>,
    can_hand_out: bool,
    open: u64,
    queued: u64,
}

impl Seen {
    pub(super) fn is_worth_writing(&self) -> bool {
        let is_finished = self.state == ReplayState::Running && self.open + self.queued == 0;
        !self.ended.is_empty() || self.can_hand_out || is_finished
    }

    /// The answer when there is nothing to write.
    pub(super) fn unchanged(&self) -> AdvanceReport {
        AdvanceReport {
            state: self.state,
            dispatched: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            open: self.open,
            queued: self.queued,
        }
    }
}

const ENDED: &str = "
    SELECT i.destination, i.number, d.state, d.reason
      FROM replay_items i INDEXED BY replay_items_open
           LEFT JOIN deliveries d ON d.id = i.new_delivery
     WHERE i.replay = ?1 AND i.new_delivery IS NOT NULL AND i.outcome IS NULL
       AND (d.id IS NULL OR d.ended_at IS NOT NULL)
     LIMIT ?2";

pub(super) fn look(connection: &Connection, step: Step) -> rusqlite::Result<Option<Seen>> {
    let Some(job) = job(connection, step.id)? else { return Ok(None) };
    let lanes = lanes(connection, &job)?;
    let ended = connection
        .prepare_cached(ENDED)?
        .query_map(params![job.seq, ENDED_MAX], |row| {
            let place = Place { destination: row.get(0)?, number: row.get(1)? };
            let word: Option<String> = row.get(2)?;
            Ok((place, outcome(word.as_deref(), reason(row, 3)?.is_some())?))
        })?
        .collect::<Result<_, _>>()?;
    let running = job.state == ReplayState::Running && step.limit > 0;
    Ok(Some(Seen {
        state: job.state,
        ended,
        can_hand_out: running && lanes.iter().any(|lane| lane.room(step.open_max) > 0),
        open: lanes.iter().map(|lane| lane.open).sum(),
        queued: lanes.iter().map(|lane| lane.selected - lane.taken).sum(),
    }))
}

/// What a delivery that has ended came to. One that was replayed later counts as what it was.
fn outcome(word: Option<&str>, died: bool) -> rusqlite::Result<ReplayItemOutcome> {
    let Some(word) = word else { return Ok(ReplayItemOutcome::Skipped(SkipReason::Forgotten)) };
    match DeliveryStatus::from_word(word) {
        Some(DeliveryStatus::Succeeded) => Ok(ReplayItemOutcome::Succeeded),
        Some(DeliveryStatus::Dead) => Ok(ReplayItemOutcome::Dead),
        Some(DeliveryStatus::Replayed) => {
            Ok(if died { ReplayItemOutcome::Dead } else { ReplayItemOutcome::Succeeded })
        }
        Some(DeliveryStatus::Cancelled) => Ok(ReplayItemOutcome::Cancelled),
        Some(
            DeliveryStatus::Pending
            | DeliveryStatus::InFlight
            | DeliveryStatus::Scheduled
            | DeliveryStatus::Held,
        )
        | None => Err(corrupt(2, word)),
    }
}

const LANES: &str = "
    SELECT l.destination, t.id, l.selected, l.taken, l.open
      FROM replay_lanes l JOIN destinations t ON t.seq = l.destination
     WHERE l.replay = ?1 ORDER BY l.taken, l.destination";

/// All lanes, the one that got least first.
fn lanes(connection: &Connection, job: &Job) -> rusqlite::Result<Vec<Lane>> {
    connection
        .prepare_cached(LANES)?
        .query_map(params![job.seq], |row| {
            Ok(Lane {
                destination: row.get(0)?,
                id: id(row, 1)?,
                selected: row.get(2)?,
                taken: row.get(3)?,
                open: row.get(4)?,
            })
        })?
        .collect()
}

const SET_LANE: &str =
    "UPDATE replay_lanes SET taken = ?3, open = ?4 WHERE replay = ?1 AND destination = ?2";

pub(super) fn advance(
    tx: &mut Tx<'_, '_>,
    step: Step,
    seen: &Seen,
) -> rusqlite::Result<Option<AdvanceReport>> {
    let Some(job) = job(tx.connection, step.id)? else { return Ok(None) };
    let mut lanes = lanes(tx.connection, &job)?;
    let mut counts: BTreeMap<(i64, ReplayItemOutcome), u64> = BTreeMap::new();
    count_ended(tx.connection, &job, seen, &mut lanes, &mut counts)?;
    let mut dispatched = BTreeMap::new();
    if job.state == ReplayState::Running {
        let rooms: Vec<usize> = lanes.iter().map(|lane| lane.room(step.open_max)).collect();
        for (lane, share) in lanes.iter_mut().zip(distribute(step.limit, &rooms)) {
            let skipped = hand_out(tx, &job, step, lane, share)?;
            if share > skipped.len() {
                dispatched.insert(lane.id, share - skipped.len());
            }
            for skip in skipped {
                *counts.entry((lane.destination, ReplayItemOutcome::Skipped(skip))).or_default() +=
                    1;
            }
        }
    }
    for lane in &lanes {
        let values = params![job.seq, lane.destination, lane.taken, lane.open];
        tx.connection.prepare_cached(SET_LANE)?.execute(values)?;
    }
    let outcomes = write_counts(tx.connection, &job, &counts)?;
    let open = lanes.iter().map(|lane| lane.open).sum();
    let queued = lanes.iter().map(|lane| lane.selected - lane.taken).sum();
    let state = if open + queued == 0 {
        apply(tx.connection, &job, ReplayTransition::Finish, step.now)?.unwrap_or(job.state)
    } else {
        job.state
    };
    Ok(Some(AdvanceReport { state, dispatched, outcomes, open, queued }))
}

const END: &str = "
    UPDATE replay_items SET outcome = ?4
     WHERE replay = ?1 AND destination = ?2 AND number = ?3 AND outcome IS NULL";

fn count_ended(
    connection: &Connection,
    job: &Job,
    seen: &Seen,
    lanes: &mut [Lane],
    counts: &mut BTreeMap<(i64, ReplayItemOutcome), u64>,
) -> rusqlite::Result<()> {
    let mut end = connection.prepare_cached(END)?;
    for (place, outcome) in &seen.ended {
        let values = params![job.seq, place.destination, place.number, outcome.as_str()];
        // Two that look at the same time see the same; the first one counts it.
        if end.execute(values)? == 0 {
            continue;
        }
        *counts.entry((place.destination, *outcome)).or_default() += 1;
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.destination == place.destination) {
            lane.open -= 1;
        }
    }
    Ok(())
}

const ITEMS: &str = "
    SELECT number, event_id, delivery_id FROM replay_items
     WHERE replay = ?1 AND destination = ?2 AND number > ?3 ORDER BY number LIMIT ?4";
const MARK: &str = "
    UPDATE replay_items SET new_delivery = ?4, outcome = ?5
     WHERE replay = ?1 AND destination = ?2 AND number = ?3";

/// Hands out the next `share` items of a lane; says why some of them did not become deliveries.
fn hand_out(
    tx: &mut Tx<'_, '_>,
    job: &Job,
    step: Step,
    lane: &mut Lane,
    share: usize,
) -> rusqlite::Result<Vec<SkipReason>> {
    let items: Vec<(i64, EventId, Option<DeliveryId>)> = tx
        .connection
        .prepare_cached(ITEMS)?
        .query_map(params![job.seq, lane.destination, lane.taken, share], |row| {
            Ok((row.get(0)?, id(row, 1)?, optional_id(row, 2)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut skipped = Vec::new();
    for (number, event, old) in items {
        let new = match old {
            Some(old) => replay::deliver_again(tx, old, (step.id, &job.spec), step.now)?,
            None => replay::deliver_missing(tx, event, lane.destination, step.id, step.now)?,
        };
        let (new, skip) = match new {
            Ok(new) => (Some(blob(new)), None),
            Err(skip) => (None, Some(skip)),
        };
        tx.connection.prepare_cached(MARK)?.execute(params![
            job.seq,
            lane.destination,
            number,
            new,
            skip.map(SkipReason::as_str),
        ])?;
        lane.taken += 1;
        lane.open += u64::from(skip.is_none());
        skipped.extend(skip);
    }
    Ok(skipped)
}

const COUNT: &str = "
    INSERT INTO replay_counts (replay, destination, outcome, many) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (replay, destination, outcome) DO UPDATE SET many = many + excluded.many";

/// Writes the sums; gives them back over all destinations.
fn write_counts(
    connection: &Connection,
    job: &Job,
    counts: &BTreeMap<(i64, ReplayItemOutcome), u64>,
) -> rusqlite::Result<BTreeMap<ReplayItemOutcome, u64>> {
    let mut outcomes = BTreeMap::new();
    for ((destination, outcome), many) in counts {
        let values = params![job.seq, destination, outcome.as_str(), many];
        connection.prepare_cached(COUNT)?.execute(values)?;
        *outcomes.entry(*outcome).or_default() += many;
    }
    Ok(outcomes)
}
