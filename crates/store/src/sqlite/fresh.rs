//! Keys on their way into the index.
//!
//! A key falls on a random page of the index, so each new key would make a commit write a page of its
//! own, and the copying of the log another. So new keys are first appended to `keys_fresh`, in the
//! order in which they came, and kept in memory, where they are looked for. When enough have
//! gathered they are *folded* into the index `keys` in its own order, so that neighbours share a
//! page: a few with every commit, until all are there.
//!
//! A key is in the file from the commit that stores its event, in one table or the other. Memory
//! holds nothing that `keys_fresh` does not, and is read from there at the start.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, params};
use surehook_core::{ids::EventId, key::KeyDigest, time::Timestamp};

use super::{
    filter::KeyFilter,
    memory::Remembered,
    prepared::Prepared,
    row::{blob, id, time},
};

/// So many fresh keys, and folding begins.
pub(super) const FOLD_AT: usize = 131_072;
/// Keys folded beside each new one. More than one, or it would never end.
const FOLDED_PER_NEW: usize = 2;
/// Folded rows that are removed with one commit, at least, and beside each new one.
const CLEARED_PER_COMMIT: usize = 1024;
const CLEARED_PER_NEW: usize = 4;

/// A row of `keys_fresh`.
#[derive(Clone, Copy, Debug)]
struct Row {
    seq: i64,
    known: Remembered,
}

/// A part of the fresh keys, on its way into the index in the index's order.
#[derive(Debug)]
struct Fold {
    keys: Vec<KeyDigest>,
    /// How many of them are in the index.
    done: usize,
    /// The last row of `keys_fresh` that belongs to it.
    upto: i64,
}

/// What the transaction at hand did, to be made good or undone with it.
#[derive(Debug, Default)]
struct Doing {
    /// Each key that was written, and what memory had of it before.
    changed: Vec<(KeyDigest, Option<Row>)>,
    added: usize,
    /// How far folding has come.
    folded: Option<usize>,
    /// Folding has begun, from rows of which some may not be committed.
    has_begun: bool,
    /// Folding has ended and its rows are gone.
    is_cleared: bool,
}

/// The rows of `keys_fresh` by their keys, some of which may not be committed yet. The writer changes
/// them; whoever looks for a key looks here, as the table has no index.
#[derive(Clone, Debug, Default)]
pub(super) struct FreshKeys(Arc<Mutex<HashMap<KeyDigest, Row, ahash::RandomState>>>);

impl FreshKeys {
    /// The event that has a key, if that is among these. Whoever does not find it here, and looks into
    /// the index after that, does not miss it.
    pub(super) fn event(&self, key: KeyDigest) -> Option<EventId> {
        self.lock().get(&key).map(|row| row.known.event)
    }

    /// A panic while this is held cannot leave it half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<KeyDigest, Row, ahash::RandomState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fresh keys, as the writer has them.
pub(super) struct Fresh {
    fold_at: usize,
    filter: KeyFilter,
    rows: FreshKeys,
    /// The number of the next row. It never goes back, not even with a transaction: that all rows up
    /// to a number are folded is why they may be removed, so no new row may get such a number.
    next_seq: i64,
    /// No key expires before this.
    earliest: Timestamp,
    fold: Option<Fold>,
    doing: Doing,
}

const LOAD: &str = "
    SELECT seq, digest, event_id, body, expires_at FROM keys_fresh ORDER BY seq";

const INSERT: &str = "
    INSERT INTO keys_fresh (seq, digest, event_id, body, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)";

const DELETE: &str = "DELETE FROM keys_fresh WHERE seq = ?1";

// One that is there already was folded by a run that ended before it could say so.
const FOLD: &str = "
    INSERT OR REPLACE INTO keys (digest, event_id, body, expires_at) VALUES (?1, ?2, ?3, ?4)";

const CLEAR: &str = "
    DELETE FROM keys_fresh WHERE seq IN
        (SELECT seq FROM keys_fresh WHERE seq <= ?1 ORDER BY seq LIMIT ?2)";

impl Fresh {
    /// Reads what an earlier run had not folded yet. Of rows with the same key the last one counts;
    /// those that were folded already are folded once more, to the same effect.
    pub(super) fn load(
        connection: &Connection,
        file: &Path,
        fold_at: usize,
    ) -> rusqlite::Result<Self> {
        let mut fresh = Self {
            fold_at,
            filter: KeyFilter::begin(file),
            rows: FreshKeys::default(),
            next_seq: 1,
            earliest: Timestamp::from_millis(0),
            fold: None,
            doing: Doing::default(),
        };
        let mut statement = connection.prepare(LOAD)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            fresh.next_seq = seq + 1;
            let key = KeyDigest::from_bytes(row.get(1)?);
            let known =
                Remembered { event: id(row, 2)?, body: row.get(3)?, expires_at: time(row, 4)? };
            fresh.rows.lock().insert(key, Row { seq, known });
        }
        Ok(fresh)
    }

    /// Where others may look for them.
    pub(super) fn keys(&self) -> FreshKeys {
        self.rows.clone()
    }

    /// The event that holds a key, if the key is among the fresh ones and its time has not passed.
    pub(super) fn find(&self, key: KeyDigest, now: Timestamp) -> Option<Remembered> {
        let row = *self.rows.lock().get(&key)?;
        (row.known.expires_at > now).then_some(row.known)
    }

    /// Whether a key that is not among the fresh ones is certainly new.
    pub(super) fn is_new(&self, key: KeyDigest) -> bool {
        self.filter.excludes(key)
    }

    /// Takes a key for an event.
    pub(super) fn insert(
        &mut self,
        sql: &mut Prepared<'_>,
        key: KeyDigest,
        known: Remembered,
    ) -> rusqlite::Result<()> {
        // One whose time has passed makes room, in the file as well.
        let past = self.rows.lock().get(&key).copied();
        if let Some(past) = past {
            sql.get(DELETE)?.execute(params![past.seq])?;
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        sql.get(INSERT)?.execute(params![
            seq,
            key.to_bytes(),
            blob(known.event),
            known.body,
            known.expires_at.as_millis(),
        ])?;
        self.earliest = self.earliest.min(known.expires_at);
        self.change(key, Some(Row { seq, known }));
        self.doing.added += 1;
        Ok(())
    }

    fn change(&mut self, key: KeyDigest, row: Option<Row>) {
        let before = match row {
            Some(row) => self.rows.lock().insert(key, row),
            None => self.rows.lock().remove(&key),
        };
        self.doing.changed.push((key, before));
    }

    /// Forgets up to `limit` keys whose time has passed; says how many it were.
    pub(super) fn prune(
        &mut self,
        connection: &Connection,
        now: Timestamp,
        limit: usize,
    ) -> rusqlite::Result<usize> {
        if now < self.earliest {
            return Ok(0);
        }
        let past: Vec<(KeyDigest, i64)> = {
            let rows = self.rows.lock();
            let past = rows.iter().filter(|(_, row)| row.known.expires_at <= now).take(limit);
            past.map(|(key, row)| (*key, row.seq)).collect()
        };
        for &(key, seq) in &past {
            connection.prepare_cached(DELETE)?.execute(params![seq])?;
            // A run that ended in the middle of folding has left it there as well.
            if !self.filter.excludes(key) {
                remove_folded(connection, key)?;
            }
            self.change(key, None);
        }
        if past.len() < limit {
            let earliest = self.rows.lock().values().map(|row| row.known.expires_at).min();
            self.earliest = earliest.unwrap_or(Timestamp::from_millis(i64::MAX));
        }
        Ok(past.len())
    }

    /// Folds a few keys, in step with those that the transaction added.
    pub(super) fn fold(&mut self, sql: &mut Prepared<'_>) -> rusqlite::Result<()> {
        if self.fold.is_none() && self.rows.lock().len() >= self.fold_at {
            self.fold = Some(self.begin());
            self.doing.has_begun = true;
        }
        let Some(fold) = &self.fold else { return Ok(()) };
        if fold.done == fold.keys.len() {
            // In step with what is new, or it would never end.
            let limit = CLEARED_PER_COMMIT.max(CLEARED_PER_NEW * self.doing.added);
            let cleared = sql.get(CLEAR)?.execute(params![fold.upto, limit])?;
            self.doing.is_cleared = cleared < limit;
            return Ok(());
        }
        let upto = (fold.done + self.doing.added * FOLDED_PER_NEW).min(fold.keys.len());
        for key in &fold.keys[fold.done..upto] {
            // Gone, or taken over by a later event, which has its own turn.
            let row = self.rows.lock().get(key).copied().filter(|row| row.seq <= fold.upto);
            if let Some(row) = row {
                self.filter.add(*key);
                sql.get(FOLD)?.execute(params![
                    key.to_bytes(),
                    blob(row.known.event),
                    row.known.body,
                    row.known.expires_at.as_millis(),
                ])?;
            }
        }
        self.doing.folded = Some(upto);
        Ok(())
    }

    fn begin(&self) -> Fold {
        let (mut keys, upto) = {
            let rows = self.rows.lock();
            let upto = rows.values().map(|row| row.seq).max().unwrap_or(0);
            (rows.keys().copied().collect::<Vec<KeyDigest>>(), upto)
        };
        keys.sort_unstable();
        Fold { keys, done: 0, upto }
    }

    /// The transaction is in the file: what was folded is found there.
    pub(super) fn committed(&mut self) {
        self.filter.tend();
        let doing = std::mem::take(&mut self.doing);
        if let (Some(fold), Some(done)) = (&mut self.fold, doing.folded) {
            let mut rows = self.rows.lock();
            for key in &fold.keys[fold.done..done] {
                if rows.get(key).is_some_and(|row| row.seq <= fold.upto) {
                    rows.remove(key);
                }
            }
            fold.done = done;
        }
        if doing.is_cleared {
            self.fold = None;
        }
    }

    /// The transaction did not happen, and so did nothing of what it changed here.
    pub(super) fn rolled_back(&mut self) {
        let doing = std::mem::take(&mut self.doing);
        if doing.has_begun {
            self.fold = None;
        }
        let mut rows = self.rows.lock();
        for (key, before) in doing.changed.into_iter().rev() {
            match before {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
        }
    }
}

/// Takes a key out of the index.
pub(super) fn remove_folded(connection: &Connection, key: KeyDigest) -> rusqlite::Result<usize> {
    connection
        .prepare_cached("DELETE FROM keys WHERE digest = ?1")?
        .execute(params![key.to_bytes()])
}

#[cfg(test)]
mod tests {
    use surehook_core::{ids::SourceId, key::DedupKey};

    use super::*;
    use crate::sqlite::{memory::BodyMark, schema};

    const FOREVER: Timestamp = Timestamp::from_millis(i64::MAX);

    fn digest(key: &str) -> KeyDigest {
        let source = SourceId::new(Timestamp::from_millis(1), 1);
        KeyDigest::of(source, &DedupKey::new(key).unwrap())
    }

    fn insert(fresh: &mut Fresh, sql: &mut Prepared<'_>, key: &str) {
        let event = EventId::new(Timestamp::from_millis(1), 1);
        let known = Remembered { event, body: BodyMark::of(&[0; 32]), expires_at: FOREVER };
        fresh.insert(sql, digest(key), known).unwrap();
    }

    #[test]
    fn a_fold_that_is_undone_takes_no_later_key_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("surehook.db");
        let connection = schema::open_writer(&file).unwrap();
        let mut sql = Prepared::new(&connection);
        let mut fresh = Fresh::load(&connection, &file, 4).unwrap();

        // The commit that begins a fold fails, as it does on a full disk.
        connection.execute_batch("BEGIN").unwrap();
        ["a", "b", "c", "d"].iter().for_each(|key| insert(&mut fresh, &mut sql, key));
        fresh.fold(&mut sql).unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
        fresh.rolled_back();
        // Too few to begin another fold, enough to end the one that was undone.
        let late: Vec<String> = (0..3).map(|number| format!("late-{number}")).collect();
        for key in &late {
            connection.execute_batch("BEGIN").unwrap();
            insert(&mut fresh, &mut sql, key);
            fresh.fold(&mut sql).unwrap();
            connection.execute_batch("COMMIT").unwrap();
            fresh.committed();
        }

        let again = Fresh::load(&connection, &file, 4).unwrap();
        for key in &late {
            let folded = remove_folded(&connection, digest(key)).unwrap() == 1;
            assert!(folded || again.find(digest(key), Timestamp::from_millis(0)).is_some());
        }
        assert!(again.find(digest("a"), Timestamp::from_millis(0)).is_none());
    }

    #[test]
    fn a_key_is_found_by_whoever_looks_until_it_is_in_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("surehook.db");
        let connection = schema::open_writer(&file).unwrap();
        let mut sql = Prepared::new(&connection);
        let mut fresh = Fresh::load(&connection, &file, 4).unwrap();
        let shared = fresh.keys();
        let all: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
        let in_index = |key: &str| {
            let count = "SELECT count(*) FROM keys WHERE digest = ?1";
            let bytes = digest(key).to_bytes();
            connection.query_row(count, [bytes], |row| row.get::<_, i64>(0)).unwrap() == 1
        };

        for (many, key) in all.iter().enumerate() {
            connection.execute_batch("BEGIN").unwrap();
            insert(&mut fresh, &mut sql, key);
            fresh.fold(&mut sql).unwrap();
            connection.execute_batch("COMMIT").unwrap();
            fresh.committed();
            for known in &all[..=many] {
                assert!(shared.event(digest(known)).is_some() || in_index(known), "case: {known}");
            }
        }
        assert!(in_index("key-0") && shared.event(digest("key-0")).is_none());
        let again = Fresh::load(&connection, &file, 4).unwrap().keys();
        assert!(all.iter().all(|key| again.event(digest(key)).is_some() || in_index(key)));
    }
}
