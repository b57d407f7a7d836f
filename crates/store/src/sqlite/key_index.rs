//! The index of dedup keys: sorted blocks of keys, one block per row of `key_blocks_young` or
//! `key_blocks`.
//!
//! A row per key made merging expensive, so neighbours share a row: a *block* of up to eighty keys,
//! sorted by digest. A block holds every key from its `first` position up to the next block's. The
//! position of a key is the upper half of its digest. New keys are merged into their block together;
//! a block that grows too large is split.
//!
//! There are two levels. A merge writes every page that one of its keys belongs to, so keys are merged
//! into the *young* level, which has few pages, and moved from there to the *old* one when a few million
//! have gathered: then many go to each of its pages.
//!
//! Keys only move forward, into a block split off behind the one they were in, or from the young level
//! to the old one. So a reader that reads all blocks in this order, a few per read, misses no key that
//! was there when it started.
//!
//! Called by `recent_keys` (merging), `ingest` (lookups) and `prune`.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension as _, Result, Statement, params};
use surehook_types::{ids::EventId, time::Timestamp};
use surehook_webhooks::key::KeyDigest;
use uuid::Uuid;

use super::{
    cache::{KeyEntry, ShortFingerprint},
    prepared::CachedStatements,
    prepared::PreparedStatements,
};

// Key batches: encoded keys one after the other in one blob. A row of `key_packs` has the keys of
// one commit in insertion order, a row of `key_blocks` has them sorted by digest.

/// Digest, event id, short fingerprint of the body, expiry.
const KEY_BYTES: usize = 16 + 16 + 8 + 8;

type EncodedKey = [u8; KEY_BYTES];

pub(super) fn push_key(batch: &mut Vec<u8>, key: KeyDigest, entry: KeyEntry) {
    batch.reserve(KEY_BYTES);
    batch.extend_from_slice(&key.to_bytes());
    batch.extend_from_slice(entry.event.uuid().as_bytes());
    batch.extend_from_slice(&entry.body.to_bytes());
    batch.extend_from_slice(&entry.expires_at.as_millis().to_be_bytes());
}

fn encoded_keys(batch: &[u8]) -> &[EncodedKey] {
    batch.as_chunks().0
}

fn decode_digest(key: &EncodedKey) -> KeyDigest {
    KeyDigest::from_bytes(std::array::from_fn(|index| key[index]))
}

fn decode_entry(key: &EncodedKey) -> KeyEntry {
    KeyEntry {
        event: EventId::from_uuid(Uuid::from_bytes(std::array::from_fn(|index| key[16 + index]))),
        body: ShortFingerprint::from_bytes(std::array::from_fn(|index| key[32 + index])),
        expires_at: Timestamp::from_millis(i64::from_be_bytes(std::array::from_fn(|index| {
            key[40 + index]
        }))),
    }
}

fn count_keys(batch: &[u8]) -> usize {
    batch.len() / KEY_BYTES
}

pub(super) fn batch_keys(batch: &[u8]) -> impl Iterator<Item = (KeyDigest, KeyEntry)> + '_ {
    encoded_keys(batch).iter().map(|key| (decode_digest(key), decode_entry(key)))
}

fn digest_at(batch: &[u8], index: usize) -> Option<KeyDigest> {
    encoded_keys(batch).get(index).map(decode_digest)
}

/// The keys of a range of a batch; a range that ends after the end of the batch is cut.
fn batch_range(batch: &[u8], range: Range<usize>) -> &[u8] {
    let end = range.end.min(count_keys(batch));
    &batch[range.start * KEY_BYTES..end * KEY_BYTES]
}

pub(super) fn retain_keys(
    batch: &[u8],
    mut should_keep: impl FnMut(KeyDigest, KeyEntry) -> bool,
) -> Vec<u8> {
    let mut retained = Vec::with_capacity(batch.len());
    for key in encoded_keys(batch) {
        if should_keep(decode_digest(key), decode_entry(key)) {
            retained.extend_from_slice(key);
        }
    }
    retained
}

/// Finds a key in a sorted batch.
fn find_in_batch(batch: &[u8], key: KeyDigest) -> Option<KeyEntry> {
    let keys = encoded_keys(batch);
    let index = keys.binary_search_by_key(&key, decode_digest).ok()?;
    Some(decode_entry(&keys[index]))
}

/// Merges sorted keys into a sorted batch. A key that is already present is replaced.
fn merge_into_batch(batch: &[u8], new: &[(KeyDigest, KeyEntry)]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(batch.len() + new.len() * KEY_BYTES);
    let mut rest = encoded_keys(batch);
    for (key, entry) in new {
        let split = rest.partition_point(|other| decode_digest(other) < *key);
        let (before, from) = rest.split_at(split);
        merged.extend_from_slice(before.as_flattened());
        let is_present = from.first().is_some_and(|other| decode_digest(other) == *key);
        rest = &from[usize::from(is_present)..];
        push_key(&mut merged, *key, *entry);
    }
    merged.extend_from_slice(rest.as_flattened());
    merged
}

/// As many keys as fit on half a page of the file (a whole one where pages are small), together
/// with the overhead of the row.
const BLOCK_KEYS_MAX: usize = 80;

/// The statements of one level of the index. Of a key that is in both, the young one has the
/// later entry. A reader that looks there first does not miss a key that moves to the old one.
pub(super) struct IndexLevel {
    block_containing: &'static str,
    next_block_start: &'static str,
    insert: &'static str,
    replace: &'static str,
    delete: &'static str,
    pub(super) blocks_from: &'static str,
}

macro_rules! index_level {
    ($table:literal) => {
        IndexLevel {
            block_containing: concat!(
                "SELECT first, keys FROM ",
                $table,
                " WHERE first <= ?1 ORDER BY first DESC LIMIT 1"
            ),
            next_block_start: concat!(
                "SELECT first FROM ",
                $table,
                " WHERE first > ?1 ORDER BY first LIMIT 1"
            ),
            insert: concat!("INSERT INTO ", $table, " (first, keys) VALUES (?1, ?2)"),
            replace: concat!("UPDATE ", $table, " SET keys = ?2 WHERE first = ?1"),
            delete: concat!("DELETE FROM ", $table, " WHERE first = ?1"),
            blocks_from: concat!(
                "SELECT first, keys FROM ",
                $table,
                " WHERE first >= ?1 ORDER BY first LIMIT ?2"
            ),
        }
    };
}

/// Small, so that few pages are written for the keys merged into it.
pub(super) static YOUNG: IndexLevel = index_level!("key_blocks_young");
/// All other keys.
pub(super) static OLD: IndexLevel = index_level!("key_blocks");
/// In the order in which a reader looks for a key.
pub(super) static LEVELS: [&IndexLevel; 2] = [&YOUNG, &OLD];

/// The position of a key in the index: a number that sorts as the digest does.
pub(super) fn key_position(key: KeyDigest) -> i64 {
    let digest = key.to_bytes();
    let (halves, _) = digest.as_chunks::<8>();
    // SQLite integers are signed.
    i64::from_be_bytes(halves[0]) ^ i64::MIN
}

pub(super) fn find_in_index(
    sql: &mut PreparedStatements<'_>,
    key: KeyDigest,
) -> Result<Option<KeyEntry>> {
    for level in LEVELS {
        if let Some(entry) = find_by_statement(sql.get(level.block_containing)?, key)? {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// [`find_in_index`] on a read-only connection.
pub(super) fn find_read_only(connection: &Connection, key: KeyDigest) -> Result<Option<KeyEntry>> {
    for level in LEVELS {
        let mut statement = connection.prepare_cached(level.block_containing)?;
        if let Some(entry) = find_by_statement(&mut statement, key)? {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

fn find_by_statement(
    block_containing: &mut Statement<'_>,
    key: KeyDigest,
) -> Result<Option<KeyEntry>> {
    let found = block_containing.query_row([key_position(key)], |row| {
        let keys = row.get_ref(1)?.as_blob()?;
        Ok(find_in_batch(keys, key))
    });
    Ok(found.optional()?.flatten())
}

/// Removes a key; returns whether it was present.
pub(super) fn remove_from_index(sql: &mut PreparedStatements<'_>, key: KeyDigest) -> Result<bool> {
    let mut is_removed = false;
    for level in LEVELS {
        let Some((first, before)) = level.read_block(sql, key)? else { continue };
        let after = retain_keys(&before, |other, _| other != key);
        if after.len() < before.len() {
            level.write_remaining(sql, first, &after)?;
            is_removed = true;
        }
    }
    Ok(is_removed)
}

impl IndexLevel {
    /// Reads blocks in order, beginning with the one that `key` belongs to.
    pub(super) fn read_blocks_containing(
        &self,
        connection: &Connection,
        key: KeyDigest,
        blocks_max: usize,
    ) -> Result<BlockSlice> {
        let position = key_position(key);
        let first = connection.find_one(self.block_containing, [position], |row| row.get(0))?;
        read_blocks(connection, self, first.unwrap_or(i64::MIN), blocks_max)
    }

    fn read_block(
        &self,
        sql: &mut PreparedStatements<'_>,
        key: KeyDigest,
    ) -> Result<Option<(i64, Vec<u8>)>> {
        sql.get(self.block_containing)?
            .query_row([key_position(key)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
    }

    /// Writes the remaining keys of a block, or deletes it if none remain.
    fn write_remaining(
        &self,
        sql: &mut PreparedStatements<'_>,
        first: i64,
        keys: &[u8],
    ) -> Result<()> {
        if keys.is_empty() {
            sql.get(self.delete)?.execute([first])?;
        } else {
            sql.get(self.replace)?.execute(params![first, keys])?;
        }
        Ok(())
    }
}

/// A block that new keys are merged into.
pub(super) struct KeyBlock {
    level: &'static IndexLevel,
    /// `None` if the index has no block for these keys yet.
    first: Option<i64>,
    keys: Vec<u8>,
    /// The position at which the next block begins.
    end: Option<i64>,
}

impl KeyBlock {
    /// The block of a level that `key` belongs to.
    pub(super) fn containing(
        sql: &mut PreparedStatements<'_>,
        level: &'static IndexLevel,
        key: KeyDigest,
    ) -> Result<Self> {
        let (first, keys) = match level.read_block(sql, key)? {
            Some((first, keys)) => (Some(first), keys),
            None => (None, Vec::new()),
        };
        let end = sql
            .get(level.next_block_start)?
            .query_row([key_position(key)], |row| row.get(0))
            .optional()?;
        Ok(Self { level, first, keys, end })
    }

    /// How many of these sorted keys belong to the block; at most as many as are merged at once.
    pub(super) fn count_belonging(&self, keys: &[KeyDigest]) -> usize {
        let at_once = &keys[..keys.len().min(BLOCK_KEYS_MAX)];
        at_once.partition_point(|key| self.end.is_none_or(|end| key_position(*key) < end))
    }

    /// Merges sorted keys that belong to the block. A key that is already present is replaced.
    pub(super) fn merge_keys(
        self,
        sql: &mut PreparedStatements<'_>,
        new: &[(KeyDigest, KeyEntry)],
    ) -> Result<()> {
        let merged = merge_into_batch(&self.keys, new);
        let mut parts = split_into_blocks(&merged);
        if let Some((_, keys)) = parts.next() {
            match self.first {
                Some(first) => sql.get(self.level.replace)?.execute(params![first, keys])?,
                // This is the first block of the index.
                None => sql.get(self.level.insert)?.execute(params![i64::MIN, keys])?,
            };
        }
        for (first, keys) in parts {
            sql.get(self.level.insert)?.execute(params![first, keys])?;
        }
        Ok(())
    }
}

/// Splits sorted keys into blocks of nearly equal size, each with its first position. Keys of the
/// same position stay together.
fn split_into_blocks(keys: &[u8]) -> impl Iterator<Item = (i64, &[u8])> {
    let count = count_keys(keys);
    let size = count.div_ceil(count.div_ceil(BLOCK_KEYS_MAX).max(1));
    let position_at = |index: usize| digest_at(keys, index).map(key_position);
    let mut start = 0;
    std::iter::from_fn(move || {
        let first = position_at(start)?;
        let mut end = start + size;
        while position_at(end).is_some() && position_at(end) == position_at(end - 1) {
            end += 1;
        }
        let block = batch_range(keys, start..end);
        start = end;
        Some((first, block))
    })
}

/// Some blocks in order.
pub(super) struct BlockSlice {
    /// Each with its first position.
    pub(super) blocks: Vec<(i64, Vec<u8>)>,
    /// The position at which to continue; `None` at the end of the index.
    pub(super) next: Option<i64>,
}

/// Reads the next blocks of a level from a position on.
pub(super) fn read_blocks(
    connection: &Connection,
    level: &IndexLevel,
    from: i64,
    blocks_max: usize,
) -> Result<BlockSlice> {
    let blocks: Vec<(i64, Vec<u8>)> =
        connection.read_all(level.blocks_from, params![from, blocks_max], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let is_full = blocks.len() == blocks_max;
    let next = blocks.last().filter(|_| is_full).and_then(|(last, _)| last.checked_add(1));
    Ok(BlockSlice { blocks, next })
}

/// Blocks that are read to estimate the number of keys; a sample of some ten thousand keys.
const ESTIMATE_BLOCKS: usize = 500;

/// About how many keys a level has. Digests are scattered evenly, so the share of all positions that the
/// first blocks cover tells the number of all blocks.
pub(super) fn estimate_key_count(connection: &Connection, level: &IndexLevel) -> Result<usize> {
    let BlockSlice { blocks, next } = read_blocks(connection, level, i64::MIN, ESTIMATE_BLOCKS)?;
    let count = |blocks: &[(i64, Vec<u8>)]| blocks.iter().map(|(_, keys)| count_keys(keys)).sum();
    match &blocks[..] {
        // The last block ends where the next one begins, which is not known: it is not counted.
        [sample @ .., (end, _)] if next.is_some() => {
            let covered = u128::from((end ^ i64::MIN).cast_unsigned()).max(1);
            let count: usize = count(sample);
            Ok(usize::try_from(((count as u128) << 64) / covered).unwrap_or(usize::MAX))
        }
        all => Ok(count(all)),
    }
}

/// Moves at least `count` keys from the young level to the old one, beginning with the block at or
/// behind `from`; returns how many, and where to continue unless that was the last block.
pub(super) fn move_to_old(
    connection: &Connection,
    sql: &mut PreparedStatements<'_>,
    from: i64,
    count: usize,
) -> Result<(usize, Option<i64>)> {
    let blocks_max = count.div_ceil(BLOCK_KEYS_MAX / 2).max(1);
    let BlockSlice { blocks, next } = read_blocks(connection, &YOUNG, from, blocks_max)?;
    let mut moved = 0;
    for (first, block) in blocks {
        let keys: Vec<(KeyDigest, KeyEntry)> = batch_keys(&block).collect();
        merge_sorted_keys(sql, &OLD, &keys)?;
        sql.get(YOUNG.delete)?.execute([first])?;
        moved += keys.len();
    }
    Ok((moved, next))
}

/// Merges any number of sorted keys into a level.
pub(super) fn merge_sorted_keys(
    sql: &mut PreparedStatements<'_>,
    level: &'static IndexLevel,
    mut rest: &[(KeyDigest, KeyEntry)],
) -> Result<()> {
    while let Some((key, _)) = rest.first() {
        let block = KeyBlock::containing(sql, level, *key)?;
        let keys: Vec<KeyDigest> = rest.iter().take(BLOCK_KEYS_MAX).map(|(key, _)| *key).collect();
        let (new, later) = rest.split_at(block.count_belonging(&keys));
        block.merge_keys(sql, new)?;
        rest = later;
    }
    Ok(())
}

/// Removes expired keys from the next blocks of a level; returns how many, and where to continue if
/// there may be more.
pub(super) fn prune_blocks(
    connection: &Connection,
    sql: &mut PreparedStatements<'_>,
    level: &IndexLevel,
    from: i64,
    blocks_max: usize,
    now: Timestamp,
) -> Result<(usize, Option<i64>)> {
    let BlockSlice { blocks, next } = read_blocks(connection, level, from, blocks_max)?;
    let mut removed = 0;
    for (first, before) in blocks {
        let after = retain_keys(&before, |_, entry| entry.expires_at > now);
        if after.len() < before.len() {
            removed += count_keys(&before) - count_keys(&after);
            level.write_remaining(sql, first, &after)?;
        }
    }
    Ok((removed, next))
}

#[cfg(test)]
pub(super) mod tests;
