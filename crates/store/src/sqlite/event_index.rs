//! Finds events by their keys and search terms, which `SQLite` keeps in its own indexes.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use rusqlite::Connection;
use surehook_types::ids::EventId;
use surehook_webhooks::{attribute::SearchTerm, key::KeyDigest};

use super::{
    key_index,
    recent_keys::{self, RecentKeyMap},
    search_terms::{find_events_with_each_term, find_events_with_term},
};
use crate::{
    sql::Result,
    steps::{list::IdRange, list_events::EventIndex},
};

pub(super) struct SqliteEventIndex<'a> {
    pub(super) connection: &'a Connection,
    /// `None` in a store that is opened read-only.
    pub(super) recent_keys: Option<&'a RecentKeyMap>,
}

impl EventIndex for SqliteEventIndex<'_> {
    fn find_by_keys(&self, keys: &[KeyDigest]) -> Result<BTreeSet<EventId>> {
        // Recent keys first: a key that is merged meanwhile is then found in the index.
        let mut holders = self.find_recent(keys)?;
        for key in keys {
            if let Entry::Vacant(vacant) = holders.entry(*key)
                && let Some(entry) = key_index::find_read_only(self.connection, *key)?
            {
                vacant.insert(entry.event);
            }
        }
        Ok(holders.into_values().collect())
    }

    fn find_with_term(
        &self,
        term: SearchTerm,
        range: IdRange,
        limit: usize,
    ) -> Result<Vec<EventId>> {
        Ok(find_events_with_term(self.connection, term, range, limit)?)
    }

    fn find_with_each_term(
        &self,
        terms: &[SearchTerm],
        limit: usize,
    ) -> Result<HashMap<SearchTerm, Vec<EventId>>> {
        Ok(find_events_with_each_term(self.connection, terms, limit)?)
    }
}

impl SqliteEventIndex<'_> {
    fn find_recent(&self, keys: &[KeyDigest]) -> Result<HashMap<KeyDigest, EventId>> {
        if let Some(recent_keys) = self.recent_keys {
            let entry = |key: &KeyDigest| Some((*key, recent_keys.find_event(*key)?));
            return Ok(keys.iter().filter_map(entry).collect());
        }
        // A read-only store has only the batches, which have no index: one scan for all sources.
        let mut holders = HashMap::new();
        recent_keys::read_batches(self.connection, |_, key, entry| {
            if keys.contains(&key) {
                // The later batch wins.
                holders.insert(key, entry.event);
            }
        })?;
        Ok(holders)
    }
}
