//! Keys whose time has passed.

use rusqlite::params;
use surehook_core::{key::KeyDigest, time::Timestamp};

use super::super::{fresh, row::time, writer::Tx};

const KEYS_PER_SLICE: usize = 2000;

/// Removes expired keys from the next slice of all keys; says how many, and whether there is more
/// to look at.
pub(super) fn prune(tx: &mut Tx<'_, '_>, now: Timestamp) -> rusqlite::Result<(usize, bool)> {
    let fresh = tx.fresh.prune(tx.sql, now, KEYS_PER_SLICE)?;
    let folded = sweep(tx, now)?;
    Ok((fresh + folded, fresh == KEYS_PER_SLICE || tx.sweep.keys.is_some()))
}

pub(super) const NEXT_KEYS: &str = "
    SELECT digest, expires_at FROM keys WHERE digest > ?1 ORDER BY digest LIMIT ?2";

/// Removes keys whose time has passed from the next slice of all keys, in their order.
///
/// There is no index by time: it would cost every event a write, and this costs a read of each key
/// now and then.
fn sweep(tx: &mut Tx<'_, '_>, now: Timestamp) -> rusqlite::Result<usize> {
    // Nothing sorts before all digests: it is shorter.
    let after = tx.sweep.keys.take().map_or_else(Vec::new, |last| last.to_bytes().to_vec());
    let slice: Vec<(KeyDigest, Timestamp)> = tx
        .connection
        .prepare_cached(NEXT_KEYS)?
        .query_map(params![after, KEYS_PER_SLICE], |row| {
            Ok((KeyDigest::from_bytes(row.get(0)?), time(row, 1)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut removed = 0;
    for (key, _) in slice.iter().filter(|(_, expires_at)| *expires_at <= now) {
        removed += fresh::remove_folded(tx.sql, *key)?;
    }
    if slice.len() == KEYS_PER_SLICE {
        tx.sweep.keys = slice.last().map(|(key, _)| *key);
    }
    Ok(removed)
}
