//! Keys on their way into the index.
//!
//! A key falls on a random page of the index, so each new key would make a commit write a page of its
//! own, and the copying of the log another. So the new keys of a commit are first one appended row of
//! `key_packs`, and kept in memory, where they are looked for. When enough have gathered they are
//! *folded* into the index (see `blocks`) in its own order, so that neighbours share a block: a few with
//! every commit, until all are there. Then their packs are removed.
//!
//! A key is in the file from the commit that stores its event, in one table or the other. Memory
//! holds nothing that the packs do not, and is read from there at the start.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, OptionalExtension as _, params};
use surehook_core::{ids::EventId, key::KeyDigest, time::Timestamp};

use super::{
    blocks::{self, Block},
    filter::KeyFilter,
    memory::Remembered,
    pack,
    prepared::Prepared,
};

/// So many fresh keys, and folding begins.
pub(super) const FOLD_AT: usize = 131_072;
/// Keys folded beside each new one, at least. More than one, or it would never end.
const FOLDED_PER_NEW: usize = 2;
/// Folded packs that are removed with one commit. More than one, or it would never end.
const CLEARED_PER_COMMIT: usize = 16;

/// A key that is not in the index, or not for sure.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The number of its pack.
    pack: i64,
    known: Remembered,
}

/// A part of the fresh keys, on its way into the index in the index's order.
#[derive(Debug)]
struct Fold {
    keys: Vec<KeyDigest>,
    /// How many of them are in the index.
    done: usize,
    /// The last pack that belongs to it.
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
    /// Folding has begun, from packs of which the last may not be committed.
    has_begun: bool,
    /// Folding has ended and its packs are gone.
    is_cleared: bool,
}

/// The fresh keys, some of which may not be committed yet. The writer changes them; whoever looks for a
/// key looks here, as the packs have no index.
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
    /// The keys that the transaction at hand added, as they will be written.
    pack: Vec<u8>,
    /// The number that they get. It never goes back, not even with a transaction: that all packs up
    /// to a number are folded is why they may be removed, so no new one may get such a number.
    next_pack: i64,
    /// No key expires before this.
    earliest: Timestamp,
    fold: Option<Fold>,
    doing: Doing,
}

const LOAD: &str = "SELECT seq, keys FROM key_packs ORDER BY seq";

const READ: &str = "SELECT keys FROM key_packs WHERE seq = ?1";

const INSERT: &str = "INSERT INTO key_packs (seq, keys) VALUES (?1, ?2)";

const REPLACE: &str = "UPDATE key_packs SET keys = ?2 WHERE seq = ?1";

const DELETE: &str = "DELETE FROM key_packs WHERE seq = ?1";

const CLEAR: &str = "
    DELETE FROM key_packs WHERE seq IN
        (SELECT seq FROM key_packs WHERE seq <= ?1 ORDER BY seq LIMIT ?2)";

impl Fresh {
    /// Reads what an earlier run had not folded yet. Of equal keys the last one counts; those that were
    /// folded already are folded once more, to the same effect.
    pub(super) fn load(
        connection: &Connection,
        file: &Path,
        fold_at: usize,
    ) -> rusqlite::Result<Self> {
        let mut fresh = Self {
            fold_at,
            filter: KeyFilter::begin(file),
            rows: FreshKeys::default(),
            pack: Vec::new(),
            next_pack: 1,
            earliest: Timestamp::from_millis(0),
            fold: None,
            doing: Doing::default(),
        };
        let mut rows = fresh.rows.lock();
        read_packs(connection, |number, key, known| {
            fresh.next_pack = number + 1;
            rows.insert(key, Row { pack: number, known });
        })?;
        drop(rows);
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
            self.unpack(sql, &[(key, past.pack)])?;
        }
        pack::add(&mut self.pack, key, known);
        self.earliest = self.earliest.min(known.expires_at);
        self.change(key, Some(Row { pack: self.next_pack, known }));
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
        sql: &mut Prepared<'_>,
        now: Timestamp,
        limit: usize,
    ) -> rusqlite::Result<usize> {
        if now < self.earliest {
            return Ok(0);
        }
        let past: Vec<(KeyDigest, i64)> = {
            let rows = self.rows.lock();
            let past = rows.iter().filter(|(_, row)| row.known.expires_at <= now).take(limit);
            past.map(|(key, row)| (*key, row.pack)).collect()
        };
        self.unpack(sql, &past)?;
        for &(key, _) in &past {
            // A run that ended in the middle of folding has left it there as well.
            if !self.filter.excludes(key) {
                blocks::remove(sql, key)?;
            }
            self.change(key, None);
        }
        if past.len() < limit {
            let earliest = self.rows.lock().values().map(|row| row.known.expires_at).min();
            self.earliest = earliest.unwrap_or(Timestamp::from_millis(i64::MAX));
        }
        Ok(past.len())
    }

    /// Takes keys out of their packs. Those of one pack mostly expire together, and it goes as a whole.
    fn unpack(
        &mut self,
        sql: &mut Prepared<'_>,
        gone: &[(KeyDigest, i64)],
    ) -> rusqlite::Result<()> {
        // So that all are in the file.
        self.write_pack(sql)?;
        let mut by_pack: BTreeMap<i64, HashSet<KeyDigest>> = BTreeMap::new();
        for (key, pack) in gone {
            by_pack.entry(*pack).or_default().insert(*key);
        }
        for (number, gone) in by_pack {
            let before: Option<Vec<u8>> =
                sql.get(READ)?.query_row([number], |row| row.get(0)).optional()?;
            let Some(before) = before else { continue };
            let after = pack::filtered(&before, |key, _| !gone.contains(&key));
            if after.is_empty() {
                sql.get(DELETE)?.execute([number])?;
            } else {
                sql.get(REPLACE)?.execute(params![number, after])?;
            }
        }
        Ok(())
    }

    /// Writes the keys that the transaction added, and folds a few in step with them.
    pub(super) fn write(&mut self, sql: &mut Prepared<'_>) -> rusqlite::Result<()> {
        self.write_pack(sql)?;
        self.fold(sql)
    }

    fn write_pack(&mut self, sql: &mut Prepared<'_>) -> rusqlite::Result<()> {
        if !self.pack.is_empty() {
            sql.get(INSERT)?.execute(params![self.next_pack, self.pack])?;
            self.pack.clear();
            self.next_pack += 1;
        }
        Ok(())
    }

    fn fold(&mut self, sql: &mut Prepared<'_>) -> rusqlite::Result<()> {
        if self.fold.is_none() && self.rows.lock().len() >= self.fold_at {
            self.fold = Some(self.begin());
            self.doing.has_begun = true;
        }
        let Some(fold) = &self.fold else { return Ok(()) };
        if fold.done == fold.keys.len() {
            let cleared = sql.get(CLEAR)?.execute(params![fold.upto, CLEARED_PER_COMMIT])?;
            self.doing.is_cleared = cleared < CLEARED_PER_COMMIT;
            return Ok(());
        }
        let enough = (fold.done + self.doing.added * FOLDED_PER_NEW).min(fold.keys.len());
        let mut done = fold.done;
        while done < enough {
            let block = Block::of(sql, fold.keys[done])?;
            let share = &fold.keys[done..][..block.share(&fold.keys[done..])];
            let new = still_fresh(&self.rows.lock(), share, fold.upto);
            new.iter().for_each(|(key, _)| self.filter.add(*key));
            if !new.is_empty() {
                block.merge(sql, &new)?;
            }
            done += share.len();
        }
        self.doing.folded = Some(done);
        Ok(())
    }

    fn begin(&self) -> Fold {
        let mut keys: Vec<KeyDigest> = self.rows.lock().keys().copied().collect();
        keys.sort_unstable();
        Fold { keys, done: 0, upto: self.next_pack - 1 }
    }

    /// The transaction is in the file: what was folded is found there.
    pub(super) fn committed(&mut self) {
        self.filter.tend();
        let doing = std::mem::take(&mut self.doing);
        if let (Some(fold), Some(done)) = (&mut self.fold, doing.folded) {
            let mut rows = self.rows.lock();
            for key in &fold.keys[fold.done..done] {
                if rows.get(key).is_some_and(|row| row.pack <= fold.upto) {
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
        self.pack.clear();
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

/// What is known of these keys, without those that are gone, or taken over by an event of a pack after
/// `upto`, which has its own turn.
fn still_fresh(
    rows: &HashMap<KeyDigest, Row, ahash::RandomState>,
    keys: &[KeyDigest],
    upto: i64,
) -> Vec<(KeyDigest, Remembered)> {
    let known = |key: &KeyDigest| {
        let row = rows.get(key).filter(|row| row.pack <= upto)?;
        Some((*key, row.known))
    };
    keys.iter().filter_map(known).collect()
}

/// Calls `each` with the number of the pack, the key and what is known, for all that is in packs, in
/// the order in which they came.
pub(super) fn read_packs(
    connection: &Connection,
    mut each: impl FnMut(i64, KeyDigest, Remembered),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(LOAD)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number = row.get(0)?;
        let packed = row.get_ref(1)?.as_blob()?;
        pack::keys(packed).for_each(|(key, known)| each(number, key, known));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
