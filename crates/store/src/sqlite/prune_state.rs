//! Retention runs in many short transactions (slices): what it remembers in between, and its walk over
//! the key index.

use rusqlite::{Connection, Result};
use surehook_types::{ids::EventId, time::Timestamp};
use uuid::Uuid;

use super::{key_index, writer::WriteTransaction};
use crate::steps::prune::{KeyPruneReport, PruneProgress};

const RECENT_KEYS_PER_SLICE: usize = 2000;
/// About two thousand keys as well: a block has at most 80.
const KEY_BLOCKS_PER_SLICE: usize = 40;

/// After a rollback the state may be ahead of the database. At worst more events than necessary are deferred
/// (see `StepTransaction::defer_pruning`), never too few.
#[derive(Debug)]
pub(super) struct PruneState {
    pub(super) progress: PruneProgress,
    /// The highest of the cursors: no later event has been visited.
    pub(super) max_cursor: EventId,
    /// Where the walk over the key index continues.
    pub(super) next_key_position: Option<KeyPosition>,
}

impl PruneState {
    pub(super) fn load(connection: &Connection) -> Result<Self> {
        let max_cursor: Option<[u8; 16]> =
            connection
                .query_row("SELECT max(event_id) FROM prune_cursors", [], |row| row.get(0))?;
        Ok(Self {
            progress: PruneProgress::default(),
            max_cursor: EventId::from_uuid(Uuid::from_bytes(max_cursor.unwrap_or_default())),
            next_key_position: None,
        })
    }
}

/// A position in one of the [`key_index::LEVELS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPosition {
    level: usize,
    position: i64,
}

impl KeyPosition {
    const START: Self = Self { level: 0, position: i64::MIN };

    /// Where the walk continues in the same level, or else with the next one.
    fn following(self, next: Option<i64>) -> Option<Self> {
        match next {
            Some(position) => Some(Self { position, ..self }),
            None if self.level + 1 < key_index::LEVELS.len() => {
                Some(Self { level: self.level + 1, ..Self::START })
            }
            None => None,
        }
    }
}

/// Removes expired keys from the next part of the key index.
///
/// There is no index by time: it would cost a write per event, the walk costs an occasional read per
/// key.
pub(super) fn prune_keys(
    tx: &mut WriteTransaction<'_, '_>,
    now: Timestamp,
) -> Result<KeyPruneReport> {
    let recent = tx.recent_keys.prune_expired(tx.sql, now, RECENT_KEYS_PER_SLICE)?;
    let mut from = tx.prune_state.next_key_position.unwrap_or(KeyPosition::START);
    let mut indexed = 0;
    let next = loop {
        let level = key_index::LEVELS[from.level];
        let blocks = KEY_BLOCKS_PER_SLICE;
        let (removed, next) =
            key_index::prune_blocks(tx.connection, tx.sql, level, from.position, blocks, now)?;
        indexed += removed;
        match from.following(next) {
            // The rest of a level is less than a slice.
            Some(following) if following.level != from.level => from = following,
            following => break following,
        }
    };
    tx.prune_state.next_key_position = next;
    let more = recent == RECENT_KEYS_PER_SLICE || next.is_some();
    Ok(KeyPruneReport { removed: recent + indexed, more })
}

#[cfg(test)]
mod tests {
    use super::{super::schema::query_plan, *};

    #[test]
    fn next_keys_are_found_by_position() {
        let steps = query_plan(key_index::OLD.blocks_from);
        assert!(
            !steps.is_empty() && steps.iter().all(|step| step.starts_with("SEARCH")),
            "{steps:#?}"
        );
    }
}
