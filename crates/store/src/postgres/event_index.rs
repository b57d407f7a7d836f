//! Finds events by their keys and search terms.

use std::collections::{BTreeSet, HashMap};

use surehook_types::ids::EventId;
use surehook_webhooks::{attribute::SearchTerm, key::KeyDigest};

use super::connection::PgConnection;
use crate::{
    sql::{Result, SqlConnection, params},
    steps::{list::IdRange, list_events::EventIndex, row::id},
};

const HOLDER: &str = "SELECT event_id FROM keys WHERE digest = ?1";
const WITH_TERM: &str = "
    SELECT event_id FROM terms WHERE term = ?1 AND event_id < ?2 AND event_id >= ?3
     ORDER BY event_id DESC LIMIT ?4";

impl EventIndex for PgConnection<'_> {
    fn find_by_keys(&self, keys: &[KeyDigest]) -> Result<BTreeSet<EventId>> {
        let mut holders = BTreeSet::new();
        for key in keys {
            holders.extend(self.find_one(HOLDER, params![key.to_bytes()], |row| id(row, 0))?);
        }
        Ok(holders)
    }

    fn find_with_term(
        &self,
        term: SearchTerm,
        range: IdRange,
        limit: usize,
    ) -> Result<Vec<EventId>> {
        let values = params![term.to_bytes(), range.top, range.bottom, limit];
        self.read_all(WITH_TERM, values, |row| id(row, 0))
    }

    fn find_with_each_term(
        &self,
        terms: &[SearchTerm],
        limit: usize,
    ) -> Result<HashMap<SearchTerm, Vec<EventId>>> {
        let find =
            |term: &SearchTerm| Ok((*term, self.find_with_term(*term, IdRange::ALL, limit)?));
        terms.iter().map(find).collect()
    }
}
