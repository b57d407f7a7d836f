//! Exact sums, moved in the same transaction as what they count.
//!
//! A count over millions of rows is too slow for a dashboard, and a count kept only in memory is
//! wrong after a crash. So each batch carries its changes and writes them once, at its end.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use surehook_core::{
    delivery::{DeadReason, state::DeliveryStatus},
    rollup::RollupMetric,
    store::StoreCounts,
    time::Timestamp,
};

use super::rollups::{Facts, Subject};

/// What a batch changes.
#[derive(Debug, Default)]
pub(super) struct Delta {
    changes: BTreeMap<String, i64>,
    plain: [i64; 5],
    by_status: [i64; 8],
    /// The same by time; see `rollups`.
    pub(super) facts: Facts,
}

/// Sums without a further name.
#[derive(Clone, Copy)]
pub(super) enum Sum {
    Events,
    NoKey,
    Duplicates,
    Attempts,
    Retries,
}

const SUMS: [(Sum, &str); 5] = [
    (Sum::Events, "events"),
    (Sum::NoKey, "no_key"),
    (Sum::Duplicates, "duplicates"),
    (Sum::Attempts, "attempts"),
    (Sum::Retries, "retries"),
];

impl Delta {
    pub(super) fn add(&mut self, sum: Sum, amount: i64) {
        self.plain[sum as usize] += amount;
    }

    /// Counts a delivery out of one status and into another.
    pub(super) fn moved(&mut self, from: Option<DeliveryStatus>, to: Option<DeliveryStatus>) {
        self.moved_many(from, to, 1);
    }

    pub(super) fn moved_many(
        &mut self,
        from: Option<DeliveryStatus>,
        to: Option<DeliveryStatus>,
        many: usize,
    ) {
        let many = i64::try_from(many).unwrap_or(i64::MAX);
        if let Some(from) = from {
            self.by_status[from as usize] -= many;
        }
        if let Some(to) = to {
            self.by_status[to as usize] += many;
        }
    }

    /// Counts a delivery to `destination` that died.
    pub(super) fn died(&mut self, reason: DeadReason, destination: i64, at: Timestamp) {
        self.facts.tally(Subject::Destination(destination), at).add(RollupMetric::dead(reason), 1);
        *self.changes.entry(format!("dead_total:{}", reason.as_str())).or_default() += 1;
        self.dead_now(reason, 1);
    }

    /// Changes how many are dead now.
    pub(super) fn dead_now(&mut self, reason: DeadReason, amount: i64) {
        *self.changes.entry(format!("dead:{}", reason.as_str())).or_default() += amount;
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn entries(&self) -> impl Iterator<Item = (String, i64)> + '_ {
        let plain = SUMS.iter().map(|(sum, name)| ((*name).to_owned(), self.plain[*sum as usize]));
        let status = DeliveryStatus::ALL.iter().map(|status| {
            (format!("status:{}", status.as_str()), self.by_status[*status as usize])
        });
        let named = self.changes.iter().map(|(name, change)| (name.clone(), *change));
        plain.chain(status).chain(named).filter(|(_, change)| *change != 0)
    }

    /// Writes the changes into the transaction.
    pub(super) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        for (name, change) in self.entries() {
            bump(connection, &name, change)?;
        }
        self.facts.keep(connection)
    }

    /// Adds the changes to what is shown.
    pub(super) fn apply(&self, counts: &mut StoreCounts) {
        for (name, change) in self.entries() {
            set(counts, &name, change);
        }
    }
}

// Not an upsert: SQLite checks the constraint on the row that would be inserted, and a change may
// be below zero where the sum is not.
const BUMP: &str = "UPDATE counters SET value = value + ?2 WHERE name = ?1";
const BEGIN_SUM: &str = "INSERT INTO counters (name, value) VALUES (?1, ?2)";

fn bump(connection: &Connection, name: &str, change: i64) -> rusqlite::Result<()> {
    if connection.prepare_cached(BUMP)?.execute(params![name, change])? == 0 {
        connection.prepare_cached(BEGIN_SUM)?.execute(params![name, change])?;
    }
    Ok(())
}

/// Reads all sums.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<StoreCounts> {
    let mut counts = StoreCounts::default();
    let mut statement = connection.prepare("SELECT name, value FROM counters")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        set(&mut counts, &name, row.get(1)?);
    }
    Ok(counts)
}

fn set(counts: &mut StoreCounts, name: &str, change: i64) {
    let add = |value: &mut u64| *value = value.saturating_add_signed(change);
    match name.split_once(':') {
        None => match name {
            "events" => add(&mut counts.events),
            "no_key" => add(&mut counts.no_key),
            "duplicates" => add(&mut counts.duplicates),
            "attempts" => add(&mut counts.attempts),
            "retries" => add(&mut counts.retries),
            _ => {}
        },
        Some(("status", word)) => {
            if let Some(status) = DeliveryStatus::from_word(word) {
                add(counts.by_status.entry(status).or_default());
            }
        }
        Some(("dead_total", word)) => {
            if let Some(reason) = DeadReason::from_word(word) {
                add(&mut counts.dead.entry(reason).or_default().total);
            }
        }
        Some(("dead", word)) => {
            if let Some(reason) = DeadReason::from_word(word) {
                add(&mut counts.dead.entry(reason).or_default().pending);
            }
        }
        Some(_) => {}
    }
}
