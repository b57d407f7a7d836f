//! Keys whose time has passed.

use surehook_core::time::Timestamp;

use super::super::{blocks, writer::Tx};

const FRESH_PER_SLICE: usize = 2000;
/// Some two thousand keys as well.
const BLOCKS_PER_SLICE: usize = 40;

/// Removes expired keys from the next slice of all keys; says how many, and whether there is more
/// to look at.
///
/// There is no index by time: it would cost every event a write, and this costs a read of each key
/// now and then.
pub(super) fn prune(tx: &mut Tx<'_, '_>, now: Timestamp) -> rusqlite::Result<(usize, bool)> {
    let fresh = tx.fresh.prune(tx.sql, now, FRESH_PER_SLICE)?;
    let slice = (tx.sweep.keys.unwrap_or(i64::MIN), BLOCKS_PER_SLICE);
    let (folded, next) = blocks::sweep(tx.connection, tx.sql, slice, now)?;
    tx.sweep.keys = next;
    Ok((fresh + folded, fresh == FRESH_PER_SLICE || next.is_some()))
}
