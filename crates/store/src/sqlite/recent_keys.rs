//! Dedup keys that are not in the index yet, and a filter of those that are.
//!
//! A key belongs on a random page of the index, so writing it there directly would cost each new key
//! a page write in the commit and another in the checkpoint. Instead, the new keys of a commit are
//! appended as one *batch* (a row of `key_packs`) and kept in memory, where they are looked up. While
//! too many are there they are *merged* into the index (see `key_index`) in index order, so that
//! neighbours share a block, some with every commit. A batch goes when all its keys are merged.
//!
//! They are merged range by range: while the others are merged, each range gathers keys, twice as many
//! as if all were merged together. From the young level of the index, keys are moved on to the old one.
//!
//! A key is on disk from the commit that stores its event, in a batch or in the index. The memory
//! holds nothing that the batches do not; it is loaded from them when the store is opened. How far
//! each range is merged is stored with it: a key in the index may have expired there since.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, TryRecvError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension as _, Result, params};
use surehook_types::{ids::EventId, time::Timestamp};
use surehook_webhooks::key::KeyDigest;

use super::{
    cache::KeyEntry,
    key_index::{self, KeyBlock},
    prepared::{CachedStatements, PreparedStatements},
    row::time,
    schema,
};

/// Number of recent keys above which they are merged. A little more, and a hash table of them takes
/// twice the memory.
pub(super) const MERGE_AT: usize = 220_000;
/// The index is merged in as many ranges, one after the other. The table `key_ranges` depends on it.
const KEY_RANGES: usize = 16;
/// The young level of the index may have as many times the keys that memory may have.
const YOUNG_FACTOR: usize = 8;
/// Keys moved to the old level per key merged into the young one. Must be more than one, or the young
/// one would grow.
const MOVED_PER_MERGED: usize = 2;
/// Keys merged per new key, at least. Must be more than one, or there would be ever more recent keys.
const MERGED_PER_NEW: usize = 2;
/// Merged batches deleted per commit. Must be more than one, or there would be ever more batches.
const BATCHES_REMOVED_PER_COMMIT: usize = 16;

/// A key that may not be in the index yet.
#[derive(Clone, Copy, Debug)]
struct RecentKey {
    batch: i64,
    entry: KeyEntry,
}

type KeyMap = HashMap<KeyDigest, RecentKey, ahash::RandomState>;

/// The range of the index that a key belongs to.
fn range_of(key: KeyDigest) -> usize {
    usize::from(key.to_bytes()[0]) * KEY_RANGES / 256
}

/// A merge of one range in progress.
#[derive(Debug)]
struct KeyMerge {
    range: usize,
    /// Sorted as the index is.
    keys: Vec<KeyDigest>,
    /// How many of them are in the index.
    merged: usize,
    /// The last batch that is part of this merge.
    last_batch: i64,
}

/// Changes of the current transaction, kept to be applied on commit or undone on rollback.
#[derive(Debug, Default)]
struct KeyChanges {
    /// Each key that was written, with its previous value.
    previous: Vec<(KeyDigest, Option<RecentKey>)>,
    added: usize,
    merged_until: Option<usize>,
    /// A merge was started from batches of which the last one may not be committed.
    merge_started: bool,
    /// All batches up to this one are deleted.
    removed_through: Option<i64>,
    /// The young level after the transaction.
    young: Option<YoungLevel>,
}

/// The young level of the index, from which keys are moved in index order, again and again.
#[derive(Clone, Copy, Debug)]
struct YoungLevel {
    /// About how many keys it has: those that were pruned are still counted. `None` until the index has
    /// been read; nothing is moved before.
    count: Option<usize>,
    /// The position at which moving continues.
    next: i64,
}

/// A shared handle to the recent keys, some of which may not be committed yet. Only the writer
/// changes them. Readers look keys up here because the batches have no index.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentKeyMap(Arc<Mutex<KeyMap>>);

impl RecentKeyMap {
    /// Finds the event of a key. A reader must look here first and then in the index: a key that is
    /// merged in between is then found in the index.
    pub(super) fn find_event(&self, key: KeyDigest) -> Option<EventId> {
        self.lock().get(&key).map(|recent| recent.entry.event)
    }

    fn lock(&self) -> MutexGuard<'_, KeyMap> {
        // A panic while the lock is held cannot leave the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recent keys as the writer holds them.
pub(super) struct RecentKeys {
    merge_at: usize,
    filter: KeyFilter,
    map: RecentKeyMap,
    /// Keys added by the current transaction, encoded as they will be written.
    batch: Vec<u8>,
    /// The number that `batch` gets. It never decreases, not even after a rollback: all batches up
    /// to a merge's last one are deleted, so no later batch may reuse such a number.
    next_batch: i64,
    /// Keys of events before this were stored without namespaces; `None` if there are none.
    namespaces_since: Option<Timestamp>,
    /// No recent key expires before this.
    earliest_expiry: Timestamp,
    merge: Option<KeyMerge>,
    /// For each range the last batch whose keys are in the index.
    merged_through: [i64; KEY_RANGES],
    /// All batches up to this one are deleted.
    removed_through: i64,
    young: YoungLevel,
    changes: KeyChanges,
}

const NAMESPACES_SINCE: &str = "SELECT since FROM key_namespaces";

const READ_ALL: &str = "SELECT seq, keys FROM key_packs ORDER BY seq";

const LAST_BATCH: &str = "SELECT coalesce(max(seq), 0) FROM key_packs";

const READ_RANGES: &str = "SELECT range, merged_through FROM key_ranges";

const STORE_RANGE: &str =
    "INSERT OR REPLACE INTO key_ranges (range, merged_through) VALUES (?1, ?2)";

const READ: &str = "SELECT keys FROM key_packs WHERE seq = ?1";

const INSERT: &str = "INSERT INTO key_packs (seq, keys) VALUES (?1, ?2)";

const REPLACE: &str = "UPDATE key_packs SET keys = ?2 WHERE seq = ?1";

const DELETE: &str = "DELETE FROM key_packs WHERE seq = ?1";

const DELETE_UP_TO: &str = "
    DELETE FROM key_packs WHERE seq IN
        (SELECT seq FROM key_packs WHERE seq <= ?1 ORDER BY seq LIMIT ?2)";

impl RecentKeys {
    /// Loads the batches. Of equal keys the last one wins; keys of a range whose merge was interrupted
    /// are merged again, with the same result.
    pub(super) fn load(connection: &Connection, file: &Path, merge_at: usize) -> Result<Self> {
        let merged_through = read_merged_through(connection)?;
        // No later batch may have a number that counts as merged.
        let last_batch: i64 = connection.query_row(LAST_BATCH, [], |row| row.get(0))?;
        let last_batch = merged_through.iter().copied().fold(last_batch, i64::max);
        let keys = Self {
            merge_at,
            filter: KeyFilter::start(file),
            map: RecentKeyMap::default(),
            batch: Vec::new(),
            next_batch: last_batch + 1,
            namespaces_since: connection.find_one(NAMESPACES_SINCE, [], |row| Ok(time(row, 0)?))?,
            earliest_expiry: Timestamp::from_millis(0),
            merge: None,
            merged_through,
            removed_through: 0,
            young: YoungLevel { count: None, next: i64::MIN },
            changes: KeyChanges::default(),
        };
        let mut map = keys.map.lock();
        read_batches(connection, |batch, key, entry| {
            map.insert(key, RecentKey { batch, entry });
        })?;
        drop(map);
        Ok(keys)
    }

    pub(super) fn shared_map(&self) -> RecentKeyMap {
        self.map.clone()
    }

    /// Whether a key without a namespace that this event holds is one of an earlier version.
    pub(super) fn is_from_before_namespaces(&self, event: EventId) -> bool {
        self.namespaces_since.is_some_and(|since| event.created_at() < since)
    }

    /// Whether there may be keys without a namespace.
    pub(super) fn has_keys_from_before_namespaces(&self) -> bool {
        self.namespaces_since.is_some()
    }

    /// Finds an unexpired recent key.
    pub(super) fn find(&self, key: KeyDigest, now: Timestamp) -> Option<KeyEntry> {
        let recent = *self.map.lock().get(&key)?;
        (recent.entry.expires_at > now).then_some(recent.entry)
    }

    /// Whether a key that is not among the recent ones is certainly not in the index either.
    pub(super) fn is_certainly_new(&self, key: KeyDigest) -> bool {
        self.filter.excludes(key)
    }

    pub(super) fn insert(
        &mut self,
        sql: &mut PreparedStatements<'_>,
        key: KeyDigest,
        entry: KeyEntry,
    ) -> Result<()> {
        // An expired key, or one with a key conflict, is replaced, on disk as well.
        let replaced = self.map.lock().get(&key).copied();
        if let Some(replaced) = replaced {
            self.remove_from_batches(sql, &[(key, replaced.batch)])?;
        }
        key_index::push_key(&mut self.batch, key, entry);
        self.earliest_expiry = self.earliest_expiry.min(entry.expires_at);
        self.change(key, Some(RecentKey { batch: self.next_batch, entry }));
        self.changes.added += 1;
        Ok(())
    }

    fn change(&mut self, key: KeyDigest, recent: Option<RecentKey>) {
        let previous = match recent {
            Some(recent) => self.map.lock().insert(key, recent),
            None => self.map.lock().remove(&key),
        };
        self.changes.previous.push((key, previous));
    }

    /// Removes up to `limit` expired keys; returns how many.
    pub(super) fn prune_expired(
        &mut self,
        sql: &mut PreparedStatements<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize> {
        if now < self.earliest_expiry {
            return Ok(0);
        }
        let expired: Vec<(KeyDigest, i64)> = {
            let map = self.map.lock();
            let expired = map.iter().filter(|(_, recent)| recent.entry.expires_at <= now);
            expired.take(limit).map(|(key, recent)| (*key, recent.batch)).collect()
        };
        self.remove_from_batches(sql, &expired)?;
        for &(key, _) in &expired {
            // A process that ended during a merge may have left the key in the index as well.
            if !self.filter.excludes(key) {
                key_index::remove_from_index(sql, key)?;
            }
            self.change(key, None);
        }
        if expired.len() < limit {
            let earliest = self.map.lock().values().map(|recent| recent.entry.expires_at).min();
            self.earliest_expiry = earliest.unwrap_or(Timestamp::from_millis(i64::MAX));
        }
        Ok(expired.len())
    }

    /// Removes keys from their batches. The keys of a batch mostly expire together, and then the
    /// whole row is deleted.
    fn remove_from_batches(
        &mut self,
        sql: &mut PreparedStatements<'_>,
        keys: &[(KeyDigest, i64)],
    ) -> Result<()> {
        // Keys of the current transaction must be on disk to be removed there.
        self.write_batch(sql)?;
        let mut by_batch: BTreeMap<i64, HashSet<KeyDigest>> = BTreeMap::new();
        for (key, batch) in keys {
            by_batch.entry(*batch).or_default().insert(*key);
        }
        for (batch, removed) in by_batch {
            let before: Option<Vec<u8>> =
                sql.get(READ)?.query_row([batch], |row| row.get(0)).optional()?;
            let Some(before) = before else { continue };
            let after = key_index::retain_keys(&before, |key, _| !removed.contains(&key));
            if after.is_empty() {
                sql.get(DELETE)?.execute([batch])?;
            } else {
                sql.get(REPLACE)?.execute(params![batch, after])?;
            }
        }
        Ok(())
    }

    /// Writes the keys that the transaction added, and merges some in proportion.
    pub(super) fn write_and_merge(
        &mut self,
        connection: &Connection,
        sql: &mut PreparedStatements<'_>,
    ) -> Result<()> {
        self.write_batch(sql)?;
        let merged = self.merge_some(sql)?;
        self.move_some(connection, sql, merged)
    }

    /// Moves some keys to the old level of the index, in proportion to those merged.
    fn move_some(
        &mut self,
        connection: &Connection,
        sql: &mut PreparedStatements<'_>,
        merged: usize,
    ) -> Result<()> {
        let YoungLevel { count: Some(count), next } = self.young else { return Ok(()) };
        let mut young = YoungLevel { count: Some(count + merged), next };
        if merged > 0 && count + merged > YOUNG_FACTOR * self.merge_at {
            let wanted = MOVED_PER_MERGED * merged;
            let (moved, next) = key_index::move_to_old(connection, sql, young.next, wanted)?;
            let is_empty = moved == 0 && young.next == i64::MIN;
            let remaining = if is_empty { 0 } else { (count + merged).saturating_sub(moved) };
            young = YoungLevel { count: Some(remaining), next: next.unwrap_or(i64::MIN) };
        }
        self.changes.young = Some(young);
        Ok(())
    }

    fn write_batch(&mut self, sql: &mut PreparedStatements<'_>) -> Result<()> {
        if !self.batch.is_empty() {
            sql.get(INSERT)?.execute(params![self.next_batch, self.batch])?;
            self.batch.clear();
            self.next_batch += 1;
        }
        Ok(())
    }

    /// Returns how many keys were merged.
    fn merge_some(&mut self, sql: &mut PreparedStatements<'_>) -> Result<usize> {
        self.remove_merged_batches(sql)?;
        if self.merge.is_none() && self.map.lock().len() >= self.merge_at {
            self.merge = Some(self.start_merge());
            self.changes.merge_started = true;
        }
        let Some(merge) = &self.merge else { return Ok(0) };
        let target = (merge.merged + self.changes.added * MERGED_PER_NEW).min(merge.keys.len());
        let (mut merged, mut new_count) = (merge.merged, 0);
        while merged < target {
            let block = KeyBlock::containing(sql, &key_index::YOUNG, merge.keys[merged])?;
            let remaining = &merge.keys[merged..];
            let keys = &remaining[..block.count_belonging(remaining)];
            let new = still_unmerged(&self.map.lock(), keys, merge.last_batch);
            new.iter().for_each(|(key, _)| self.filter.add(*key));
            if !new.is_empty() {
                block.merge_keys(sql, &new)?;
                new_count += new.len();
            }
            merged += keys.len();
        }
        if merged == merge.keys.len() {
            sql.get(STORE_RANGE)?.execute(params![merge.range, merge.last_batch])?;
        }
        self.changes.merged_until = Some(merged);
        Ok(new_count)
    }

    /// Starts to merge the range whose last merge is the longest ago.
    fn start_merge(&self) -> KeyMerge {
        let oldest = (0..KEY_RANGES).min_by_key(|range| self.merged_through[*range]);
        let range = oldest.unwrap_or_default();
        let in_range = |key: &KeyDigest| range_of(*key) == range;
        let mut keys: Vec<KeyDigest> = self.map.lock().keys().copied().filter(in_range).collect();
        keys.sort_unstable();
        KeyMerge { range, keys, merged: 0, last_batch: self.next_batch - 1 }
    }

    /// Deletes some of the batches whose keys are in the index, whatever their range.
    fn remove_merged_batches(&mut self, sql: &mut PreparedStatements<'_>) -> Result<()> {
        let merged_through = self.merged_through.iter().copied().min().unwrap_or_default();
        if merged_through > self.removed_through {
            let values = params![merged_through, BATCHES_REMOVED_PER_COMMIT];
            let removed = sql.get(DELETE_UP_TO)?.execute(values)?;
            self.changes.removed_through =
                (removed < BATCHES_REMOVED_PER_COMMIT).then_some(merged_through);
        }
        Ok(())
    }

    /// Forgets merged keys: from this commit on they are found in the index.
    pub(super) fn on_commit(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if let (Some(merge), Some(merged)) = (&mut self.merge, changes.merged_until) {
            let mut map = self.map.lock();
            for key in &merge.keys[merge.merged..merged] {
                if map.get(key).is_some_and(|recent| recent.batch <= merge.last_batch) {
                    map.remove(key);
                }
            }
            merge.merged = merged;
            if merged == merge.keys.len() {
                self.merged_through[merge.range] = merge.last_batch;
                self.merge = None;
            }
        }
        if let Some(removed) = changes.removed_through {
            self.removed_through = removed;
        }
        if let Some(young) = changes.young {
            self.young = young;
        }
        if let Some(count) = self.filter.poll_scan() {
            self.young.count = Some(count);
        }
    }

    /// Undoes what the transaction changed in memory.
    pub(super) fn on_rollback(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.batch.clear();
        if changes.merge_started {
            self.merge = None;
        }
        let mut map = self.map.lock();
        for (key, previous) in changes.previous.into_iter().rev() {
            match previous {
                Some(recent) => map.insert(key, recent),
                None => map.remove(&key),
            };
        }
    }
}

/// The entries of these keys, without removed ones and those that a batch after `last_batch` has
/// replaced: these belong to the next merge.
fn still_unmerged(map: &KeyMap, keys: &[KeyDigest], last_batch: i64) -> Vec<(KeyDigest, KeyEntry)> {
    let entry = |key: &KeyDigest| {
        let recent = map.get(key).filter(|recent| recent.batch <= last_batch)?;
        Some((*key, recent.entry))
    };
    keys.iter().filter_map(entry).collect()
}

/// For each range the last batch whose keys are in the index; zero if there is none.
fn read_merged_through(connection: &Connection) -> Result<[i64; KEY_RANGES]> {
    let mut merged_through = [0; KEY_RANGES];
    let ranges: Vec<(usize, i64)> =
        connection.read_all(READ_RANGES, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (range, batch) in ranges {
        if let Some(merged) = merged_through.get_mut(range) {
            *merged = batch;
        }
    }
    Ok(merged_through)
}

/// Calls `each` with batch number, key and entry for every key in a batch that is not known to be in
/// the index, in insertion order.
pub(super) fn read_batches(
    connection: &Connection,
    mut each: impl FnMut(i64, KeyDigest, KeyEntry),
) -> Result<()> {
    let merged_through = read_merged_through(connection)?;
    let mut statement = connection.prepare_cached(READ_ALL)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let batch = row.get(0)?;
        let keys = row.get_ref(1)?.as_blob()?;
        let unmerged = |(key, _): &(KeyDigest, KeyEntry)| batch > merged_through[range_of(*key)];
        key_index::batch_keys(keys)
            .filter(unmerged)
            .for_each(|(key, entry)| each(batch, key, entry));
    }
    Ok(())
}

/// Twelve bits per key: about one lookup in a hundred is a false positive.
const BITS_PER_KEY: usize = 12;
const BITS_SET: u32 = 6;
/// A block is one cache line, so that each key costs one memory access.
const BLOCK_WORDS: usize = 8;
/// Capacity of the smallest filter, in keys: 1.5 MiB.
const CAPACITY_MIN: usize = 1 << 20;
const BLOCKS_PER_READ: usize = 100;
/// A filter has room for this part more of the keys that are there. The next one is read while it is
/// still in use, so both take memory for a moment.
const FILTER_ROOM_DIVISOR: usize = 4;
/// Pause after a failed scan.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A blocked Bloom filter of 64-bit hashes.
struct BloomFilter {
    blocks: Vec<[u64; BLOCK_WORDS]>,
    count: usize,
    capacity: usize,
}

impl BloomFilter {
    fn with_capacity(capacity: usize) -> Self {
        let blocks = capacity * BITS_PER_KEY / (64 * BLOCK_WORDS) + 1;
        Self { blocks: vec![[0; BLOCK_WORDS]; blocks], count: 0, capacity }
    }

    /// The block of a hash (by its upper half) and the bits in it (by its lower half).
    fn bit_positions(&self, hash: u64) -> (usize, impl Iterator<Item = (usize, u64)> + use<>) {
        let block = ((hash >> 32) * self.blocks.len() as u64) >> 32;
        let bits = (0..BITS_SET).scan(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15), |state, _| {
            let bit = *state >> 55;
            *state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            Some(((bit / 64) as usize, 1 << (bit % 64)))
        });
        (block as usize, bits)
    }

    fn insert(&mut self, hash: u64) {
        let (block, bits) = self.bit_positions(hash);
        for (word, bit) in bits {
            self.blocks[block][word] |= bit;
        }
        self.count += 1;
    }

    fn may_contain(&self, hash: u64) -> bool {
        let (block, mut bits) = self.bit_positions(hash);
        bits.all(|(word, bit)| self.blocks[block][word] & bit != 0)
    }
}

/// The result of a scan of the index.
struct ScannedIndex {
    bloom: BloomFilter,
    /// The number of keys in the young level.
    young_keys: usize,
}

/// A thread that reads the index into a new filter.
struct IndexScan {
    result: Receiver<ScannedIndex>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Keys merged since the scan started, which it may have missed.
    added_since: Vec<u64>,
}

impl Drop for IndexScan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Without a filter the index itself is searched; nothing is lost.
            let _panicked = thread.join();
        }
    }
}

/// Rules out that a new key is in the index, mostly without reading the file. Without it, reading random
/// blocks in search of new keys took a quarter of the writer's time.
///
/// A false positive costs a lookup; a key in the index is never excluded. The filter is not stored:
/// when the store is opened, a thread reads all keys into a new one, a few blocks per transaction so
/// that none stays open for long. Until it is done, the index is searched every time.
struct KeyFilter {
    file: PathBuf,
    bloom: Option<BloomFilter>,
    scan: Option<IndexScan>,
    /// Set after a failed scan.
    retry_at: Option<Instant>,
}

impl KeyFilter {
    /// Starts to read the index of `file`.
    fn start(file: &Path) -> Self {
        let mut filter = Self { file: file.to_owned(), bloom: None, scan: None, retry_at: None };
        filter.scan = filter.start_scan();
        filter
    }

    fn start_scan(&self) -> Option<IndexScan> {
        let (report, result) = sync_channel(1);
        let known_keys = self.bloom.as_ref().map_or(0, |bloom| bloom.count);
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("surehook-filter".to_owned()).spawn({
            let (file, stop) = (self.file.clone(), Arc::clone(&stop));
            move || match schema::open_reader(&file).and_then(|file| read_index(&file, known_keys, &stop)) {
                // The receiver is gone if the store was closed in the meantime.
                Ok(scanned) => drop(report.send(scanned)),
                Err(error) => {
                    tracing::warn!(%error, "could not read the key index; continuing without a filter");
                }
            }
        });
        let thread = thread
            .inspect_err(|error| tracing::warn!(%error, "could not start the key filter thread"));
        Some(IndexScan { result, stop, thread: Some(thread.ok()?), added_since: Vec::new() })
    }

    /// Whether the index certainly does not contain a key.
    fn excludes(&self, key: KeyDigest) -> bool {
        self.bloom.as_ref().is_some_and(|bloom| !bloom.may_contain(key.half()))
    }

    /// Adds a key that is put into the index. After a rollback the filter merely has one false
    /// positive more.
    fn add(&mut self, key: KeyDigest) {
        let hash = key.half();
        if let Some(bloom) = &mut self.bloom {
            bloom.insert(hash);
        }
        if let Some(scan) = &mut self.scan {
            scan.added_since.push(hash);
        }
    }

    /// Takes over the result of a finished scan, and returns about how many keys are in the young level
    /// now; starts another scan when the filter is full.
    fn poll_scan(&mut self) -> Option<usize> {
        if let Some(scan) = &mut self.scan {
            match scan.result.try_recv() {
                Ok(ScannedIndex { mut bloom, young_keys }) => {
                    let young_keys = young_keys + scan.added_since.len();
                    scan.added_since.drain(..).for_each(|hash| bloom.insert(hash));
                    self.bloom = Some(bloom);
                    self.scan = None;
                    return Some(young_keys);
                }
                Err(TryRecvError::Disconnected) => {
                    self.scan = None;
                    self.retry_at = Some(Instant::now() + RETRY_AFTER);
                }
                Err(TryRecvError::Empty) => {}
            }
        } else if self.bloom.as_ref().is_none_or(|bloom| bloom.count > bloom.capacity)
            && self.retry_at.is_none_or(|at| Instant::now() >= at)
        {
            self.retry_at = None;
            self.scan = self.start_scan();
        }
        None
    }
}

/// Reads all keys into a filter that has room for some more.
/// `known_keys` are there at least: the estimate is too low where the young level has few keys in its
/// first positions.
fn read_index(
    connection: &Connection,
    known_keys: usize,
    stop: &AtomicBool,
) -> Result<ScannedIndex> {
    // Estimated instead of collecting all keys first, which took more memory than the filter itself.
    let mut keys = 0;
    for level in key_index::LEVELS {
        keys += key_index::estimate_key_count(connection, level)?;
    }
    let keys = keys.max(known_keys);
    let mut bloom =
        BloomFilter::with_capacity((keys + keys / FILTER_ROOM_DIVISOR).max(CAPACITY_MIN));
    let mut young_keys = 0;
    for level in key_index::LEVELS {
        let mut next = Some(i64::MIN);
        while let Some(from) = next.filter(|_| !stop.load(Ordering::Relaxed)) {
            let slice = key_index::read_blocks(connection, level, from, BLOCKS_PER_READ)?;
            next = slice.next;
            for (_, block) in slice.blocks {
                key_index::batch_keys(&block).for_each(|(key, _)| bloom.insert(key.half()));
            }
        }
        if std::ptr::eq(level, &key_index::YOUNG) {
            young_keys = bloom.count;
        }
    }
    Ok(ScannedIndex { bloom, young_keys })
}

#[cfg(test)]
mod tests;
