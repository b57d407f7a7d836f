//! Exact totals, updated in the same transaction as the rows they count.
//!
//! Counting millions of rows is too slow for a dashboard, and a count in memory alone is wrong
//! after a crash. So each batch collects its changes and writes them once, at its end.

use std::{collections::BTreeMap, ops::ControlFlow};

use surehook_core::{delivery::state::DeliveryStatus, rollup::RollupMetric, store::StoreCounts};
use surehook_retry::DeadReason;
use surehook_types::time::Timestamp;

use super::rollups::{PendingRollups, SubjectSeq};
use crate::sql::{Result, SqlConnection, params};

/// The changes of one batch.
#[derive(Debug, Default)]
pub(crate) struct CountChanges {
    changes: BTreeMap<String, i64>,
    counters: [i64; 6],
    by_status: [i64; 8],
    /// The same by time; see `rollups`.
    pub(crate) rollups: PendingRollups,
}

/// Counters that have no label.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Events,
    NoKey,
    KeyConflicts,
    Duplicates,
    Attempts,
    Retries,
}

const COUNTERS: [(Counter, &str); 6] = [
    (Counter::Events, "events"),
    (Counter::NoKey, "no_key"),
    (Counter::KeyConflicts, "key_conflicts"),
    (Counter::Duplicates, "duplicates"),
    (Counter::Attempts, "attempts"),
    (Counter::Retries, "retries"),
];

impl CountChanges {
    pub(crate) fn add(&mut self, counter: Counter, amount: i64) {
        self.counters[counter as usize] += amount;
    }

    pub(crate) fn count_move(&mut self, from: Option<DeliveryStatus>, to: Option<DeliveryStatus>) {
        if let Some(from) = from {
            self.by_status[from as usize] -= 1;
        }
        if let Some(to) = to {
            self.by_status[to as usize] += 1;
        }
    }

    pub(crate) fn count_moves(&mut self, from: DeliveryStatus, to: DeliveryStatus, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.by_status[from as usize] -= count;
        self.by_status[to as usize] += count;
    }

    /// Counts a delivery that died.
    pub(crate) fn count_death(&mut self, reason: DeadReason, destination: i64, at: Timestamp) {
        self.rollups
            .bucket(SubjectSeq::Destination(destination), at)
            .add(RollupMetric::dead(reason), 1);
        *self.changes.entry(format!("dead_total:{}", reason.as_str())).or_default() += 1;
        self.change_dead_count(reason, 1);
    }

    /// Changes the number of deliveries that are dead now.
    pub(crate) fn change_dead_count(&mut self, reason: DeadReason, amount: i64) {
        *self.changes.entry(format!("dead:{}", reason.as_str())).or_default() += amount;
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The counters that change, and by how much; in the same order for all transactions.
    pub(crate) fn changed_counters(&self) -> impl Iterator<Item = (String, i64)> + '_ {
        let counters = COUNTERS
            .iter()
            .map(|(counter, name)| ((*name).to_owned(), self.counters[*counter as usize]));
        let status = DeliveryStatus::ALL.iter().map(|status| {
            (format!("status:{}", status.as_str()), self.by_status[*status as usize])
        });
        let named = self.changes.iter().map(|(name, change)| (name.clone(), *change));
        counters.chain(status).chain(named).filter(|(_, change)| *change != 0)
    }

    pub(crate) fn write(&self, connection: &impl SqlConnection) -> Result<()> {
        for (name, change) in self.changed_counters() {
            add_to_counter(connection, &name, change)?;
        }
        self.rollups.insert(connection)
    }

    pub(crate) fn apply(&self, counts: &mut StoreCounts) {
        for (name, change) in self.changed_counters() {
            add_to_counts(counts, &name, change);
        }
    }
}

// Not an upsert: SQLite checks the constraint on the row that would be inserted, and a change may
// be negative where the total is not.
const ADD_TO_COUNTER: &str = "UPDATE counters SET value = value + ?2 WHERE name = ?1";
const INSERT_COUNTER: &str = "INSERT INTO counters (name, value) VALUES (?1, ?2)";

fn add_to_counter(connection: &impl SqlConnection, name: &str, change: i64) -> Result<()> {
    if connection.run(ADD_TO_COUNTER, params![name, change])? == 0 {
        connection.run(INSERT_COUNTER, params![name, change])?;
    }
    Ok(())
}

pub(crate) fn load(connection: &impl SqlConnection) -> Result<StoreCounts> {
    load_from(connection, "SELECT name, value FROM counters")
}

/// Loads the totals that a query returns by their names.
pub(crate) fn load_from(connection: &impl SqlConnection, query: &str) -> Result<StoreCounts> {
    let mut counts = StoreCounts::default();
    connection.read_while(query, params![], |row| {
        let name: String = row.get(0)?;
        add_to_counts(&mut counts, &name, row.get(1)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(counts)
}

fn add_to_counts(counts: &mut StoreCounts, name: &str, change: i64) {
    let add = |value: &mut u64| *value = value.saturating_add_signed(change);
    match name.split_once(':') {
        None => match name {
            "events" => add(&mut counts.events),
            "no_key" => add(&mut counts.no_key),
            "key_conflicts" => add(&mut counts.key_conflicts),
            "duplicates" => add(&mut counts.duplicates),
            "attempts" => add(&mut counts.attempts),
            "retries" => add(&mut counts.retries),
            _ => {}
        },
        Some(("status", code)) => {
            if let Some(status) = DeliveryStatus::parse(code) {
                add(counts.by_status.entry(status).or_default());
            }
        }
        Some(("dead_total", code)) => {
            if let Some(reason) = DeadReason::parse(code) {
                add(&mut counts.dead.entry(reason).or_default().total);
            }
        }
        Some(("dead", code)) => {
            if let Some(reason) = DeadReason::parse(code) {
                add(&mut counts.dead.entry(reason).or_default().pending);
            }
        }
        Some(_) => {}
    }
}
