//! The transaction of a step.

use surehook_core::delivery::LaneEpoch;
use surehook_types::{
    ids::{DestinationId, EventId, SourceId},
    time::Timestamp,
};
use surehook_webhooks::key::KeyDigest;

use super::counts::CountChanges;
use crate::sql::{Result, SqlConnection, SqlParameter, SqlRow};

/// A transaction, with what its steps collect until the commit.
pub(crate) trait StepTransaction: SqlConnection {
    /// Like `run`, for a statement of the few that run for every event or attempt.
    fn run_prepared(&mut self, sql: &'static str, values: &[&dyn SqlParameter]) -> Result<usize>;

    /// Like `find_one`, for a statement of the few that run for every event or attempt.
    fn find_prepared<T>(
        &mut self,
        sql: &'static str,
        values: &[&dyn SqlParameter],
        read: impl FnOnce(&dyn SqlRow) -> Result<T>,
    ) -> Result<Option<T>>;

    /// The changes of the counts, which are written at the end of the transaction.
    fn counts(&mut self) -> &mut CountChanges;

    fn hints(&self) -> &PresenceHints;

    fn hints_mut(&mut self) -> &mut PresenceHints;

    /// The row number of a source that is not deleted.
    fn source_seq(&self, source: SourceId) -> Result<Option<i64>>;

    /// The row number of a destination that is not deleted.
    fn destination_seq(&self, destination: DestinationId) -> Result<Option<i64>>;

    /// Reads the row numbers again, after a change of the configuration.
    fn reload_row_numbers(&mut self) -> Result<()>;

    /// Whether this is the epoch of the owner of a lane; the destination is a row number.
    fn is_current_epoch(&self, destination: i64, epoch: LaneEpoch) -> Result<bool>;

    /// Lets retention look at an event at `now` if it may have passed it already: a new event that waited
    /// long for its commit or has an earlier time because the clock went back, or an old one that got
    /// another delivery or ended late.
    fn defer_pruning(&mut self, event: EventId, now: Timestamp) -> Result<()>;

    /// Removes a key from the cache of known duplicates once the transaction is committed.
    fn uncache_key(&mut self, key: KeyDigest);
}

/// Whether tables that only messages use may have rows. Gateways that send no messages never query them.
/// A hint is set with the first row and stays set; after a rollback it may be set for an empty table,
/// never unset for a filled one. Opening the store empties the first two tables.
#[expect(clippy::struct_excessive_bools, reason = "one for each table")]
#[derive(Debug, Default)]
pub(crate) struct PresenceHints {
    /// Table `wills`.
    pub(crate) crash_outcomes: bool,
    /// Table `said`.
    pub(crate) stored_statuses: bool,
    /// Table `awaited`.
    pub(crate) awaited_statuses: bool,
    /// Table `callbacks`.
    pub(crate) callbacks: bool,
}
