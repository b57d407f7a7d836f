//! Claims the due deliveries of lanes, several lanes in one transaction, with a handful of statements each.
//!
//! Waiting deliveries are read from the table `due`, in its order. A claim removes rows from it; as long as any
//! transaction on the server may still see them, nothing can clean them up, and reading from the first row
//! again would take longer with each claim. So the reads of a lane begin where the last one ended
//! ([`ClaimCursors`]). Deliveries with a damaged body are left to the step in [`crate::steps::claims`].

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use surehook_core::{
    delivery::{ClaimProof, LaneEpoch, state::DeliveryStatus},
    store::{ClaimBatch, ClaimedDelivery},
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    store_error::StoreError,
    time::Timestamp,
};
use surehook_webhooks::key::{DedupKey, fingerprint};
use tokio::runtime::Handle;
use tokio_postgres::types::Type;

use super::{
    admit::slices,
    committer::QueuedJob,
    connection::PgConnection,
    pool::{Access, Pool},
    transaction,
    writer::try_until_decided,
};
use crate::{
    sql::{Result, SqlConnection, SqlRow, params},
    steps::{
        claims::CLAIM_BYTES_MAX,
        counts::CountChanges,
        delivery_bodies,
        row::{blob, id, name, payload, status, time},
    },
};

/// Claims in one transaction.
pub(super) const BATCH_MAX: usize = 16;

/// How far before the end of the last read the next one begins once nothing else is due: a delivery may be
/// committed that long after the time at which it is due.
const LATE_COMMIT_MAX: Duration = Duration::from_secs(5);
/// How often everything that waits is read, for what was committed even later.
const FULL_READ_INTERVAL: Duration = Duration::from_secs(30);
/// A full read that takes long is repeated less often: it takes at most this part of the time.
const FULL_READ_SHARE: u32 = 20;

/// A claim of due deliveries; see `DeliveryStore::claim_due`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimJob {
    pub(super) destination: DestinationId,
    pub(super) now: Timestamp,
    pub(super) proof: ClaimProof,
    pub(super) limit: usize,
}

impl ClaimJob {
    fn owner(&self) -> LaneOwner {
        (self.destination, self.proof.epoch)
    }
}

/// The result of a claim; `None` if the step must decide.
pub(super) type DueClaimResult = Option<ClaimBatch>;

/// How far the due deliveries were read for a lane.
#[derive(Clone, Copy, Debug)]
struct ClaimCursor {
    /// Nothing is due before this time, except for what was committed late.
    from: Timestamp,
    full_read_at: Instant,
    full_read_took: Duration,
}

impl ClaimCursor {
    fn needs_full_read(&self) -> bool {
        let interval = FULL_READ_INTERVAL.max(self.full_read_took * FULL_READ_SHARE);
        self.full_read_at.elapsed() >= interval
    }
}

/// The owner of a lane, for whom a cursor holds.
type LaneOwner = (DestinationId, LaneEpoch);

/// Where the reads of each lane begin. A hint: what it hides is found by the next full read.
#[derive(Debug, Default)]
pub(super) struct ClaimCursors(Mutex<HashMap<LaneOwner, ClaimCursor>>);

/// More are forgotten, which costs a full read each: those of earlier epochs are never removed otherwise.
const CURSORS_MAX: usize = 10_000;

impl ClaimCursors {
    fn lock(&self) -> MutexGuard<'_, HashMap<LaneOwner, ClaimCursor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, owner: LaneOwner) -> Option<ClaimCursor> {
        self.lock().get(&owner).copied()
    }

    fn move_to(&self, owner: LaneOwner, cursor: ClaimCursor) {
        let mut cursors = self.lock();
        if cursors.len() >= CURSORS_MAX {
            cursors.clear();
        }
        cursors.insert(owner, cursor);
    }

    /// Where a search for the next due delivery of a destination begins.
    pub(super) fn search_start(&self, destination: DestinationId) -> Timestamp {
        let cursors = self.lock();
        let of_destination = cursors.iter().filter(|((other, _), _)| *other == destination);
        // The current epoch is the highest.
        match of_destination.max_by_key(|((_, epoch), _)| *epoch) {
            Some((_, cursor)) if !cursor.needs_full_read() => cursor.from - LATE_COMMIT_MAX,
            Some(_) | None => Timestamp::from_millis(0),
        }
    }

    /// Deliveries may have become due at this time, which may be in the past.
    pub(super) fn lower_all(&self, due_at: Timestamp) {
        for cursor in self.lock().values_mut() {
            cursor.from = cursor.from.min(due_at);
        }
    }
}

/// What the workers share.
pub(super) struct ClaimWorkerState {
    pub(super) pool: Pool,
    handle: Handle,
    pub(super) cursors: Arc<ClaimCursors>,
}

impl ClaimWorkerState {
    pub(super) fn new(pool: Pool, cursors: Arc<ClaimCursors>) -> Self {
        Self { pool, handle: Handle::current(), cursors }
    }
}

/// A claim that was made, and where the next one begins.
struct LaneClaim {
    decision: DueClaimResult,
    cursor: Option<ClaimCursor>,
}

/// Makes the claims of a batch and answers them.
pub(super) fn run_batch(state: &ClaimWorkerState, jobs: Vec<QueuedJob<ClaimJob, DueClaimResult>>) {
    let claimed = try_until_decided(|| {
        let work = |connection: PgConnection<'_>| {
            let mut counts = CountChanges::default();
            let claimed: Result<Vec<LaneClaim>> = jobs
                .iter()
                .map(|job| claim(&connection, job.job, &state.cursors, &mut counts))
                .collect();
            let claimed = claimed?;
            transaction::write_counts(&connection, &counts)?;
            Ok(claimed)
        };
        state.pool.transact(&state.handle, Access::Write, work)
    });
    match claimed {
        Ok(claimed) => {
            for (job, claimed) in jobs.into_iter().zip(claimed) {
                if let Some(cursor) = claimed.cursor {
                    state.cursors.move_to(job.job.owner(), cursor);
                }
                job.answer(Ok(claimed.decision));
            }
        }
        Err(error) if error.is_of_a_statement() => {
            for job in jobs {
                job.answer(Ok(None));
            }
        }
        Err(error) => {
            let error = StoreError::from(error);
            for job in jobs {
                job.answer(Err(error.clone()));
            }
        }
    }
}

// Nothing, if the destination is deleted or the epoch is outdated. The list is read before anything is
// joined, so that nothing else can decide the order. What another lane of the destination claims at this
// moment is skipped.
const FIND_DUE: &str = "
    SELECT d.id, w.due_at, d.event_id, d.state, d.attempts, d.throttled, d.created_at,
           d.order_key IS NOT NULL, w.destination,
           coalesce((SELECT length(b.body) FROM delivery_bodies b WHERE b.delivery_id = d.id),
                    (SELECT e.body_bytes FROM events e WHERE e.id = d.event_id), 0)
      FROM (SELECT destination, due_at, delivery_id FROM due
             WHERE destination = (SELECT t.seq FROM destinations t
                                    JOIN lane_owners l ON l.destination = t.seq
                                   WHERE t.id = $1 AND t.deleted_at IS NULL
                                     AND l.epoch = $2 AND l.node IS NOT NULL)
               AND due_at >= $3 AND due_at <= $4
             ORDER BY due_at, delivery_id LIMIT $5 FOR UPDATE SKIP LOCKED) w
      JOIN deliveries d ON d.id = w.delivery_id
     ORDER BY w.due_at, w.delivery_id";

const LOAD_CONTENT: &str = "
    SELECT u.id, s.name, e.key, e.received_at, p.path, p.query, p.remote, p.headers, p.body,
           e.fingerprint, b.delivery_id IS NOT NULL
      FROM unnest($1::bytea[], $2::bytea[]) AS u (id, event_id)
      JOIN events e ON e.id = u.event_id JOIN payloads p ON p.seq = e.payload
      JOIN sources s ON s.seq = e.source
      LEFT JOIN delivery_bodies b ON b.delivery_id = u.id";

// `DeliveryTransition::Claim`. In the order of the ids, as everything that locks many deliveries.
const CLAIM: &str = "
    WITH u AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::bigint[]) AS u (id, due_at) ORDER BY 1
    ), claimed AS (
        UPDATE deliveries d
           SET state = 'in_flight', due_at = NULL, claim_number = $3, lane_epoch = $4
          FROM u WHERE d.id = u.id AND d.due_at = u.due_at
        RETURNING d.id, d.destination, d.shard, u.due_at
    ), listed AS (
        INSERT INTO in_flight (destination, delivery_id, lane_epoch, shard)
        SELECT destination, id, $4, shard FROM claimed
    ), unlisted AS (
        DELETE FROM due w USING claimed c
         WHERE w.destination = c.destination AND w.due_at = c.due_at AND w.delivery_id = c.id
    )
    SELECT id FROM claimed";

struct DueDelivery {
    id: DeliveryId,
    due_at: Timestamp,
    event: EventId,
    status: DeliveryStatus,
    attempts: u32,
    throttled: u32,
    created_at: Timestamp,
    ordered: bool,
    body_bytes: usize,
}

fn read_due(row: &dyn SqlRow) -> Result<DueDelivery> {
    Ok(DueDelivery {
        id: id(row, 0)?,
        due_at: time(row, 1)?,
        event: id(row, 2)?,
        status: status(row, 3)?,
        attempts: row.get(4)?,
        throttled: row.get(5)?,
        created_at: time(row, 6)?,
        ordered: row.get(7)?,
        body_bytes: row.get(9)?,
    })
}

fn find_due(
    connection: &PgConnection<'_>,
    job: ClaimJob,
    from: Timestamp,
) -> Result<Vec<DueDelivery>> {
    let values = params![
        blob(job.destination),
        job.proof.epoch.0,
        from.as_millis(),
        job.now.as_millis(),
        job.limit
    ];
    connection.read_all(FIND_DUE, values, read_due)
}

fn claim(
    connection: &PgConnection<'_>,
    job: ClaimJob,
    cursors: &ClaimCursors,
    counts: &mut CountChanges,
) -> Result<LaneClaim> {
    let known = cursors.find(job.owner());
    let mut cursor = known.unwrap_or_else(|| ClaimCursor {
        from: Timestamp::from_millis(0),
        full_read_at: Instant::now(),
        full_read_took: Duration::ZERO,
    });
    let mut due = Vec::new();
    if known.is_none() || cursor.needs_full_read() {
        let started = Instant::now();
        due = find_due(connection, job, Timestamp::from_millis(0))?;
        cursor.full_read_at = Instant::now();
        cursor.full_read_took = started.elapsed();
    } else {
        if cursor.from < job.now {
            due = find_due(connection, job, cursor.from)?;
        }
        if due.len() < job.limit {
            due = find_due(connection, job, cursor.from.min(job.now - LATE_COMMIT_MAX))?;
        }
    }
    let found = due.len();
    let mut bytes = 0;
    let fitting = due.iter().take_while(|delivery| {
        let has_room = bytes < CLAIM_BYTES_MAX;
        bytes += delivery.body_bytes;
        has_room
    });
    let fitting = fitting.count();
    due.truncate(fitting);
    cursor.from = match due.last() {
        Some(last) if fitting < found || found == job.limit => last.due_at,
        Some(_) | None => job.now,
    };
    let Some(contents) = load_contents(connection, job, &due)? else {
        return Ok(LaneClaim { decision: None, cursor: None });
    };
    if due.is_empty() {
        let decision = Some(ClaimBatch::default());
        return Ok(LaneClaim { decision, cursor: Some(cursor) });
    }
    let ids: Vec<[u8; 16]> = due.iter().map(|delivery| blob(delivery.id)).collect();
    let due_times: Vec<i64> = due.iter().map(|delivery| delivery.due_at.as_millis()).collect();
    let rows = connection.query_arrays(
        CLAIM,
        &[
            (&slices(&ids), Type::BYTEA_ARRAY),
            (&due_times, Type::INT8_ARRAY),
            (&job.proof.number, Type::INT8),
            (&job.proof.epoch.0, Type::INT8),
        ],
    )?;
    // Waiting deliveries are moved only by steps, which cannot run now, and by claims, which are locked out.
    if rows.len() != due.len() {
        return Err(crate::sql::SqlError::RowMissing);
    }
    for delivery in &due {
        counts.count_move(Some(delivery.status), Some(DeliveryStatus::InFlight));
    }
    let decision = Some(ClaimBatch { claimed: contents, damaged: Vec::new() });
    Ok(LaneClaim { decision, cursor: Some(cursor) })
}

/// Loads what the deliveries send, in their order; `None` if a body is missing or damaged.
fn load_contents(
    connection: &PgConnection<'_>,
    job: ClaimJob,
    due: &[DueDelivery],
) -> Result<Option<Vec<ClaimedDelivery>>> {
    if due.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let ids: Vec<[u8; 16]> = due.iter().map(|delivery| blob(delivery.id)).collect();
    let events: Vec<[u8; 16]> = due.iter().map(|delivery| blob(delivery.event)).collect();
    let rows = connection.query_arrays(
        LOAD_CONTENT,
        &[(&slices(&ids), Type::BYTEA_ARRAY), (&slices(&events), Type::BYTEA_ARRAY)],
    )?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let row: &dyn SqlRow = row;
        found.insert(id(row, 0)?, row);
    }
    let mut contents = Vec::with_capacity(due.len());
    for delivery in due {
        let Some(row) = found.get(&delivery.id) else { return Ok(None) };
        let mut payload = payload(*row, 4)?;
        if fingerprint(&payload.body) != payload.fingerprint {
            return Ok(None);
        }
        let mut pending_route = None;
        if row.get(10)? {
            match delivery_bodies::load_for_delivery(connection, delivery.id, payload)? {
                Some(sent) => (payload, pending_route) = sent,
                None => return Ok(None),
            }
        }
        contents.push(ClaimedDelivery {
            id: delivery.id,
            event: delivery.event,
            destination: job.destination,
            source: name(*row, 1)?,
            key: row.get::<Option<String>>(2)?.and_then(|key| DedupKey::new(&key)),
            proof: job.proof,
            attempts: delivery.attempts,
            throttled: delivery.throttled,
            created_at: delivery.created_at,
            received_at: time(*row, 3)?,
            payload,
            pending_route,
            ordered: delivery.ordered,
        });
    }
    Ok(Some(contents))
}

const NEXT_DUE: &str = "
    SELECT due_at FROM due
     WHERE destination = (SELECT seq FROM destinations WHERE id = $1 AND deleted_at IS NULL)
       AND due_at >= $2
     ORDER BY due_at LIMIT 1";

/// Implements `DeliveryStore::find_next_due`.
pub(super) fn next_due(
    connection: &PgConnection<'_>,
    destination: DestinationId,
    from: Timestamp,
) -> Result<Option<Timestamp>> {
    let values = params![blob(destination), from.as_millis()];
    connection.find_one(NEXT_DUE, values, |row| time(row, 0))
}
