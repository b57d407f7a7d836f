//! Keys whose time has passed.

use rusqlite::params;
use surehook_core::time::Timestamp;

use super::super::{row::time, writer::Tx};

const KEYS_PER_SLICE: usize = 2000;

/// Removes expired keys from the next slice of all keys; says how many, and whether there is more
/// to look at.
pub(super) fn prune(tx: &mut Tx<'_, '_>, now: Timestamp) -> rusqlite::Result<(usize, bool)> {
    let fresh = tx.fresh.prune(tx.connection, now, KEYS_PER_SLICE)?;
    let folded = sweep(tx, now)?;
    Ok((fresh + folded, fresh == KEYS_PER_SLICE || tx.sweep.keys.is_some()))
}

const NEXT_KEYS: &str = "
    SELECT source, key, expires_at FROM keys
     WHERE (source, key) > (?1, ?2) ORDER BY source, key LIMIT ?3";

/// Removes keys whose time has passed from the next slice of all keys, in their order.
///
/// There is no index by time: it would cost every event a write, and this costs a read of each key
/// now and then.
fn sweep(tx: &mut Tx<'_, '_>, now: Timestamp) -> rusqlite::Result<usize> {
    let after = tx.sweep.keys.take().unwrap_or((i64::MIN, String::new()));
    let slice: Vec<(i64, String, Timestamp)> = tx
        .connection
        .prepare_cached(NEXT_KEYS)?
        .query_map(params![after.0, after.1, KEYS_PER_SLICE], |row| {
            Ok((row.get(0)?, row.get(1)?, time(row, 2)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut removed = 0;
    for (source, key, _) in slice.iter().filter(|(_, _, expires_at)| *expires_at <= now) {
        removed += tx
            .connection
            .prepare_cached("DELETE FROM keys WHERE source = ?1 AND key = ?2")?
            .execute(params![source, key])?;
    }
    if slice.len() == KEYS_PER_SLICE {
        tx.sweep.keys = slice.into_iter().last().map(|(source, key, _)| (source, key));
    }
    Ok(removed)
}
