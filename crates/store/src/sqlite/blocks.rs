//! The index of keys: neighbours share a row.
//!
//! To put each key into an index by itself was most of what folding cost (see `fresh`). So a row holds
//! a *block*: up to eighty keys in their order, in the form of a pack. A block has all keys from its
//! `first` place on to that of the next one, and the place of a key is the upper half of its digest. New
//! keys are merged into the block that they belong to, all at once; one that grows too large is cut.
//!
//! Keys move only forward, into a block that is cut off behind the one they were in: whoever reads all
//! blocks in their order, in slices, misses none that was there before.

use rusqlite::{Connection, OptionalExtension as _, Statement, params};
use surehook_core::{key::KeyDigest, time::Timestamp};

use super::{memory::Remembered, pack, prepared::Prepared};

/// As many keys as fit on half a page of the file together with what the row has beside them; on a whole
/// one where pages are small.
const KEYS_MAX: usize = 80;

const BLOCK_OF: &str = "
    SELECT first, keys FROM key_blocks WHERE first <= ?1 ORDER BY first DESC LIMIT 1";

const NEXT_AFTER: &str = "SELECT first FROM key_blocks WHERE first > ?1 ORDER BY first LIMIT 1";

const INSERT: &str = "INSERT INTO key_blocks (first, keys) VALUES (?1, ?2)";

const REPLACE: &str = "UPDATE key_blocks SET keys = ?2 WHERE first = ?1";

const DELETE: &str = "DELETE FROM key_blocks WHERE first = ?1";

/// Where a key belongs, as a number that sorts as the digest does.
pub(super) fn place(key: KeyDigest) -> i64 {
    let digest = key.to_bytes();
    let (halves, _) = digest.as_chunks::<8>();
    // Numbers of SQLite have a sign.
    i64::from_be_bytes(halves[0]) ^ i64::MIN
}

/// What the index knows of a key.
pub(super) fn find(sql: &mut Prepared<'_>, key: KeyDigest) -> rusqlite::Result<Option<Remembered>> {
    find_with(sql.get(BLOCK_OF)?, key)
}

/// The same for whoever only reads.
pub(super) fn look_up(
    connection: &Connection,
    key: KeyDigest,
) -> rusqlite::Result<Option<Remembered>> {
    find_with(&mut *connection.prepare_cached(BLOCK_OF)?, key)
}

fn find_with(block_of: &mut Statement<'_>, key: KeyDigest) -> rusqlite::Result<Option<Remembered>> {
    let found = block_of.query_row([place(key)], |row| {
        let keys = row.get_ref(1)?.as_blob()?;
        Ok(pack::find(keys, key))
    });
    Ok(found.optional()?.flatten())
}

/// Takes a key out of the index; says whether it was there.
pub(super) fn remove(sql: &mut Prepared<'_>, key: KeyDigest) -> rusqlite::Result<bool> {
    let Some((first, before)) = block_of(sql, key)? else { return Ok(false) };
    let after = pack::filtered(&before, |other, _| other != key);
    if after.len() == before.len() {
        return Ok(false);
    }
    write(sql, first, &after)?;
    Ok(true)
}

fn block_of(sql: &mut Prepared<'_>, key: KeyDigest) -> rusqlite::Result<Option<(i64, Vec<u8>)>> {
    sql.get(BLOCK_OF)?.query_row([place(key)], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Writes what is left of a block.
fn write(sql: &mut Prepared<'_>, first: i64, keys: &[u8]) -> rusqlite::Result<()> {
    if keys.is_empty() {
        sql.get(DELETE)?.execute([first])?;
    } else {
        sql.get(REPLACE)?.execute(params![first, keys])?;
    }
    Ok(())
}

/// The block that new keys are merged into.
pub(super) struct Block {
    /// `None`: it is not in the index yet.
    first: Option<i64>,
    keys: Vec<u8>,
    /// Where the next one begins.
    end: Option<i64>,
}

impl Block {
    /// The block that a key belongs to.
    pub(super) fn of(sql: &mut Prepared<'_>, key: KeyDigest) -> rusqlite::Result<Self> {
        let (first, keys) = match block_of(sql, key)? {
            Some((first, keys)) => (Some(first), keys),
            None => (None, Vec::new()),
        };
        let end = sql.get(NEXT_AFTER)?.query_row([place(key)], |row| row.get(0)).optional()?;
        Ok(Self { first, keys, end })
    }

    /// How many of these keys, which are in order, belong to it; not more than may be merged at once.
    pub(super) fn share(&self, keys: &[KeyDigest]) -> usize {
        let at_once = &keys[..keys.len().min(KEYS_MAX)];
        at_once.partition_point(|key| self.end.is_none_or(|end| place(*key) < end))
    }

    /// Puts keys in, which are in order and belong to it. One that is there already is replaced.
    pub(super) fn merge(
        self,
        sql: &mut Prepared<'_>,
        new: &[(KeyDigest, Remembered)],
    ) -> rusqlite::Result<()> {
        let merged = pack::merged(&self.keys, new);
        let mut parts = cut(&merged);
        if let Some((_, keys)) = parts.next() {
            match self.first {
                Some(first) => sql.get(REPLACE)?.execute(params![first, keys])?,
                // No other block is before it.
                None => sql.get(INSERT)?.execute(params![i64::MIN, keys])?,
            };
        }
        for (first, keys) in parts {
            sql.get(INSERT)?.execute(params![first, keys])?;
        }
        Ok(())
    }
}

/// Cuts keys into blocks of nearly one size, each with its first place. Keys of one place stay together.
fn cut(keys: &[u8]) -> impl Iterator<Item = (i64, &[u8])> {
    let many = pack::len(keys);
    let size = many.div_ceil(many.div_ceil(KEYS_MAX).max(1));
    let place_at = |index: usize| pack::digest_at(keys, index).map(place);
    let mut begin = 0;
    std::iter::from_fn(move || {
        let first = place_at(begin)?;
        let mut end = begin + size;
        while place_at(end).is_some() && place_at(end) == place_at(end - 1) {
            end += 1;
        }
        let block = pack::range(keys, begin..end);
        begin = end;
        Some((first, block))
    })
}

/// Reads blocks in their order, from a place on.
pub(super) const FROM: &str = "
    SELECT first, keys FROM key_blocks WHERE first >= ?1 ORDER BY first LIMIT ?2";

/// Some blocks, each with its first place, and where to go on if there may be more.
pub(super) type Slice = (Vec<(i64, Vec<u8>)>, Option<i64>);

/// The next blocks from a place on.
pub(super) fn slice(
    connection: &Connection,
    from: i64,
    blocks_max: usize,
) -> rusqlite::Result<Slice> {
    let blocks: Vec<(i64, Vec<u8>)> = connection
        .prepare_cached(FROM)?
        .query_map(params![from, blocks_max], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let is_whole = blocks.len() == blocks_max;
    let next = blocks.last().filter(|_| is_whole).and_then(|(last, _)| last.checked_add(1));
    Ok((blocks, next))
}

/// Removes keys whose time has passed from the next blocks; says how many, and where to go on if there
/// may be more.
pub(super) fn sweep(
    connection: &Connection,
    sql: &mut Prepared<'_>,
    (from, blocks_max): (i64, usize),
    now: Timestamp,
) -> rusqlite::Result<(usize, Option<i64>)> {
    let (blocks, next) = slice(connection, from, blocks_max)?;
    let mut removed = 0;
    for (first, before) in blocks {
        let after = pack::filtered(&before, |_, known| known.expires_at > now);
        if after.len() < before.len() {
            removed += pack::len(&before) - pack::len(&after);
            write(sql, first, &after)?;
        }
    }
    Ok((removed, next))
}

#[cfg(test)]
pub(super) mod tests;
