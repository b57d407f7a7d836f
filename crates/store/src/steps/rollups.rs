//! Counts by time: collected with each transaction, added to buckets every few seconds.
//!
//! ```text
//!  a batch ──► PendingRollups ──► one row of rollup_facts, in the batch's transaction
//!                                    │  roll_up, every few seconds, in its own transaction
//!                                    ▼
//!                                  rollups: 10 s, 1 min, 1 h of each source and destination
//! ```
//!
//! Updating the buckets of a hundred destinations in every batch would cost more than the
//! deliveries themselves; one row does not. The row is removed in the transaction that adds it to
//! the buckets, so a crash neither loses nor doubles it. Queries read both.

use std::{collections::BTreeMap, ops::ControlFlow};

use surehook_core::rollup::{
    BucketWidth, DecodeRollupError, DestinationRollup, RollupCounts, RollupQuery, RollupSubject,
    read_varint, write_varint,
};
use surehook_types::{ids::DestinationId, time::Timestamp};

use super::row::{blob, corrupt_value, id, time};
use crate::sql::{Result, SqlConnection, SqlError, SqlRow, params};

/// Rows of `rollup_facts` per slice; a few seconds of traffic at the highest rate.
const ROWS_PER_SLICE: usize = 1000;
/// A slice ends with the row that reaches this many ten-second buckets. Each is read and written
/// three times, at about 5 µs.
const BUCKETS_PER_SLICE: usize = 300;

/// A source or destination, by row number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SubjectSeq {
    Source(i64),
    Destination(i64),
}

impl SubjectSeq {
    fn kind(self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Destination(_) => "destination",
        }
    }

    fn seq(self) -> i64 {
        match self {
            Self::Source(seq) | Self::Destination(seq) => seq,
        }
    }
}

/// Counts by ten-second bucket.
#[derive(Debug, Default)]
pub(crate) struct PendingRollups(BTreeMap<(SubjectSeq, Timestamp), RollupCounts>);

impl PendingRollups {
    pub(crate) fn bucket(&mut self, subject: SubjectSeq, at: Timestamp) -> &mut RollupCounts {
        self.0.entry((subject, BucketWidth::TenSeconds.start(at))).or_default()
    }

    fn encode(&self, to: &mut Vec<u8>) {
        for ((subject, start), counts) in &self.0 {
            to.push(matches!(subject, SubjectSeq::Destination(_)).into());
            write_varint(subject.seq().cast_unsigned(), to);
            write_varint(start.as_millis().cast_unsigned(), to);
            counts.encode(to);
        }
    }

    /// Adds the counts of an encoded row.
    fn decode_and_add(&mut self, mut from: &[u8]) -> Result<(), DecodeRollupError> {
        while let Some((kind, rest)) = from.split_first() {
            from = rest;
            let seq = read_varint(&mut from)?.cast_signed();
            let subject = match kind {
                0 => SubjectSeq::Source(seq),
                1 => SubjectSeq::Destination(seq),
                _ => return Err(DecodeRollupError),
            };
            let start = Timestamp::from_millis(read_varint(&mut from)?.cast_signed());
            self.bucket(subject, start).merge(&RollupCounts::decode(&mut from)?);
        }
        Ok(())
    }

    /// Inserts the counts of a batch in its transaction.
    pub(crate) fn insert(&self, connection: &impl SqlConnection) -> Result<()> {
        if let Some(facts) = self.to_facts() {
            connection.run("INSERT INTO rollup_facts (facts) VALUES (?1)", params![facts])?;
        }
        Ok(())
    }

    /// The row of `rollup_facts`, if there is anything to count.
    pub(crate) fn to_facts(&self) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let mut facts = Vec::with_capacity(64 * self.0.len());
        self.encode(&mut facts);
        Some(facts)
    }
}

fn damaged_counts(_: DecodeRollupError) -> SqlError {
    corrupt_value(0, "counts that cannot be decoded")
}

/// Reads the counts of a bucket.
fn counts(row: &dyn SqlRow, column: usize) -> Result<RollupCounts> {
    RollupCounts::decode(&mut row.bytes(column)?).map_err(damaged_counts)
}

const NEXT_PENDING: &str = "SELECT seq, facts FROM rollup_facts ORDER BY seq LIMIT ?1";

/// Implements `AdminStore::roll_up`.
pub(crate) fn roll_up(connection: &impl SqlConnection) -> Result<bool> {
    let mut pending = PendingRollups::default();
    let mut last = None;
    let mut rows_read = 0;
    connection.read_while(NEXT_PENDING, params![ROWS_PER_SLICE], |row| {
        pending.decode_and_add(row.bytes(1)?).map_err(damaged_counts)?;
        last = Some(row.get::<i64>(0)?);
        rows_read += 1;
        let is_full = pending.0.len() >= BUCKETS_PER_SLICE;
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let Some(last) = last else { return Ok(false) };
    add_to_buckets(connection, &pending)?;
    // A row number may be reused after this, for a new row.
    connection.run("DELETE FROM rollup_facts WHERE seq <= ?1", params![last])?;
    Ok(rows_read == ROWS_PER_SLICE || pending.0.len() >= BUCKETS_PER_SLICE)
}

const FIND_BUCKET: &str = "
    SELECT tally FROM rollups WHERE width = ?1 AND kind = ?2 AND subject = ?3 AND start = ?4";
const PUT_BUCKET: &str = "
    INSERT INTO rollups (width, kind, subject, start, tally) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (width, kind, subject, start) DO UPDATE SET tally = excluded.tally";

fn add_to_buckets(connection: &impl SqlConnection, pending: &PendingRollups) -> Result<()> {
    let mut bytes = Vec::new();
    for width in BucketWidth::ALL {
        let mut buckets: BTreeMap<(SubjectSeq, Timestamp), RollupCounts> = BTreeMap::new();
        for ((subject, start), counts) in &pending.0 {
            buckets.entry((*subject, width.start(*start))).or_default().merge(counts);
        }
        for ((subject, start), mut added) in buckets {
            let (width, kind) = (width.secs(), subject.kind());
            let (seq, start) = (subject.seq(), start.as_millis());
            let values = params![width, kind, seq, start];
            if let Some(stored) = connection.find_one(FIND_BUCKET, values, |row| counts(row, 0))? {
                added.merge(&stored);
            }
            bytes.clear();
            added.encode(&mut bytes);
            connection.run(PUT_BUCKET, params![width, kind, seq, start, bytes])?;
        }
    }
    Ok(())
}

// Up to the first one beyond the limit, if there are more.
const PRUNE_BUCKETS: &str = "
    DELETE FROM rollups
     WHERE width = ?1 AND kind = ?2 AND subject = ?3
       AND start < coalesce((SELECT start FROM rollups
                              WHERE width = ?1 AND kind = ?2 AND subject = ?3 AND start < ?4
                              ORDER BY start LIMIT 1 OFFSET ?5), ?4)";

/// Removes expired buckets of a source or destination, oldest first and at most `limit`; returns
/// how many.
pub(crate) fn prune_buckets(
    connection: &impl SqlConnection,
    subject: SubjectSeq,
    now: Timestamp,
    limit: usize,
) -> Result<usize> {
    let mut removed = 0;
    for width in BucketWidth::ALL {
        let cutoff = (now - width.prune_after()).as_millis();
        let values = params![width.secs(), subject.kind(), subject.seq(), cutoff, limit - removed];
        removed += connection.run(PRUNE_BUCKETS, values)?;
    }
    Ok(removed)
}

// CROSS JOIN: one range per subject; in the other order SQLite would read all buckets of a width.
const OF_SOURCES: &str = "
    SELECT r.start, r.tally FROM sources s CROSS JOIN rollups r
     WHERE r.width = ?1 AND r.kind = 'source' AND r.subject = s.seq
       AND r.start >= ?2 AND r.start < ?3
       AND (s.seq = ?4 OR ?4 IS NULL)";
const OF_DESTINATIONS: &str = "
    SELECT r.start, r.tally FROM destinations t CROSS JOIN rollups r
     WHERE r.width = ?1 AND r.kind = 'destination' AND r.subject = t.seq
       AND r.start >= ?2 AND r.start < ?3
       AND (t.seq = ?4 OR ?4 IS NULL)";

/// Implements `AdminStore::list_rollups`.
pub(crate) fn query_buckets(
    connection: &impl SqlConnection,
    query: RollupQuery,
) -> Result<Vec<(Timestamp, RollupCounts)>> {
    // One snapshot of both tables: no row may move from one to the other in between.
    connection.read_snapshot(|snapshot| query_snapshot(snapshot, query))
}

fn query_snapshot(
    snapshot: &impl SqlConnection,
    query: RollupQuery,
) -> Result<Vec<(Timestamp, RollupCounts)>> {
    let (kind, id, sql) = match query.subject {
        RollupSubject::Source(id) => ("source", id.map(blob), OF_SOURCES),
        RollupSubject::Destination(id) => ("destination", id.map(blob), OF_DESTINATIONS),
    };
    let mut subject_seq = None;
    if let Some(id) = id {
        let find_seq = format!("SELECT seq FROM {kind}s WHERE id = ?1");
        subject_seq = snapshot.find_one(&find_seq, params![id], |row| row.get(0))?;
        // An unknown id has no counts.
        if subject_seq.is_none() {
            return Ok(Vec::new());
        }
    }
    let mut buckets: BTreeMap<Timestamp, RollupCounts> = BTreeMap::new();
    let (since, until) = (query.since.as_millis(), query.until.as_millis());
    snapshot.read_while(sql, params![query.width.secs(), since, until, subject_seq], |row| {
        buckets.entry(time(row, 0)?).or_default().merge(&counts(row, 1)?);
        Ok(ControlFlow::Continue(()))
    })?;
    for ((subject, start), counts) in read_pending(snapshot)?.0 {
        let start = query.width.start(start);
        let is_wanted = subject.kind() == kind
            && subject_seq.is_none_or(|subject_seq: i64| subject_seq == subject.seq());
        if is_wanted && (query.since..query.until).contains(&start) {
            buckets.entry(start).or_default().merge(&counts);
        }
    }
    Ok(buckets.into_iter().collect())
}

// CROSS JOIN: see [`OF_DESTINATIONS`].
const OF_EACH_DESTINATION: &str = "
    SELECT t.seq, r.start, r.tally FROM destinations t CROSS JOIN rollups r
     WHERE r.width = ?1 AND r.kind = 'destination' AND r.subject = t.seq AND r.start >= ?2
       AND t.deleted_at IS NULL";
const LIVE_DESTINATIONS: &str = "SELECT seq, id FROM destinations WHERE deleted_at IS NULL";

/// Implements `AdminStore::list_destination_rollups`.
pub(crate) fn list_for_destinations(
    connection: &impl SqlConnection,
    width: BucketWidth,
    since: Timestamp,
) -> Result<Vec<DestinationRollup>> {
    // One snapshot of both tables, as for `query_buckets`.
    connection.read_snapshot(|snapshot| {
        let mut buckets: BTreeMap<(i64, Timestamp), RollupCounts> = BTreeMap::new();
        snapshot.read_while(
            OF_EACH_DESTINATION,
            params![width.secs(), since.as_millis()],
            |row| {
                buckets.insert((row.get(0)?, time(row, 1)?), counts(row, 2)?);
                Ok(ControlFlow::Continue(()))
            },
        )?;
        for ((subject, start), counts) in read_pending(snapshot)?.0 {
            let start = width.start(start);
            if let SubjectSeq::Destination(seq) = subject
                && start >= since
            {
                buckets.entry((seq, start)).or_default().merge(&counts);
            }
        }
        let live: BTreeMap<i64, DestinationId> =
            snapshot
                .read_all(LIVE_DESTINATIONS, params![], |row| Ok((row.get(0)?, id(row, 1)?)))?;
        let rollup = |((seq, start), counts): ((i64, Timestamp), RollupCounts)| {
            live.get(&seq).map(|id| DestinationRollup { destination: *id, start, counts })
        };
        Ok(buckets.into_iter().filter_map(rollup).collect())
    })
}

/// The counts that are not in buckets yet.
fn read_pending(connection: &impl SqlConnection) -> Result<PendingRollups> {
    let mut pending = PendingRollups::default();
    connection.read_while("SELECT facts FROM rollup_facts", params![], |row| {
        pending.decode_and_add(row.bytes(0)?).map_err(damaged_counts)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(pending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn buckets_are_found_by_primary_key() {
        let of_subject = "(width=? AND kind=? AND subject=?";
        for (name, sql) in [("find", FIND_BUCKET), ("expire", PRUNE_BUCKETS)] {
            let steps = query_plan(sql);
            let search = format!("SEARCH rollups USING PRIMARY KEY {of_subject}");
            let is_bounded =
                |step: &String| step.starts_with(&search) || step == "SCALAR SUBQUERY 1";
            assert!(!steps.is_empty() && steps.iter().all(is_bounded), "case: {name}: {steps:#?}");
        }
        let steps = query_plan(OF_EACH_DESTINATION);
        let range = format!("SEARCH r USING PRIMARY KEY {of_subject} AND start>?)");
        assert_eq!(steps[1..], [range], "each destination");
        for (name, sql) in [("sources", OF_SOURCES), ("destinations", OF_DESTINATIONS)] {
            let steps = query_plan(sql);
            // All sources or destinations, and for each a range of its buckets.
            assert!(steps[0].starts_with("SCAN"), "case: {name}: {steps:#?}");
            let range = format!("SEARCH r USING PRIMARY KEY {of_subject} AND start>? AND start<?)");
            assert_eq!(steps[1..], [range], "case: {name}");
        }
    }

    #[test]
    fn pending_rollups_are_decoded_as_encoded() {
        let at = Timestamp::from_millis(1_800_000_004_321);
        let mut pending = PendingRollups::default();
        pending
            .bucket(SubjectSeq::Source(7), at)
            .add(surehook_core::rollup::RollupMetric::Accepted, 3);
        pending
            .bucket(SubjectSeq::Destination(7), at)
            .latency
            .record(std::time::Duration::from_millis(20));
        let mut bytes = Vec::new();
        pending.encode(&mut bytes);

        let mut twice = PendingRollups::default();
        twice.decode_and_add(&bytes).unwrap();
        assert_eq!(twice.0, pending.0);
        twice.decode_and_add(&bytes).unwrap();

        let accepted = surehook_core::rollup::RollupMetric::Accepted;
        assert_eq!(twice.bucket(SubjectSeq::Source(7), at).get(accepted), 6);
        assert_eq!(twice.decode_and_add(&[2]), Err(DecodeRollupError));
        assert_eq!(twice.decode_and_add(&bytes[..bytes.len() - 1]), Err(DecodeRollupError));
    }
}
