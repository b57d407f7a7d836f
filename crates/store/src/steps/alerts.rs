//! The log of alerts: one value, replaced as a whole by who has read its current version.

use surehook_core::{alert::log::AlertLog, store::StoredAlerts};

use super::row::{corrupt_value, json, to_json};
use crate::sql::{Result, SqlConnection, params};

const LOAD: &str = "
    SELECT v.value, l.value FROM meta v JOIN meta l ON l.name = 'alerts'
     WHERE v.name = 'alerts_version'";

/// Implements `AdminStore::load_alerts`.
pub(crate) fn load(connection: &impl SqlConnection) -> Result<StoredAlerts> {
    let stored = connection.find_one(LOAD, params![], |row| {
        let version: String = row.get(0)?;
        let version = version.parse().map_err(|_| corrupt_value(0, "it is no number"))?;
        Ok(StoredAlerts { version, log: json(row, 1)? })
    })?;
    Ok(stored.unwrap_or_default())
}

const BEGIN: &str = "
    INSERT INTO meta (name, value) VALUES ('alerts_version', ?1) ON CONFLICT (name) DO NOTHING";
// The condition holds also if another node changes the row at the same time.
const ADVANCE: &str = "UPDATE meta SET value = ?1 WHERE name = 'alerts_version' AND value = ?2";
const SAVE: &str = "
    INSERT INTO meta (name, value) VALUES ('alerts', ?1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// Implements `AdminStore::save_alerts`.
pub(crate) fn save(
    connection: &impl SqlConnection,
    expected: u64,
    log: &AlertLog,
) -> Result<Option<u64>> {
    let next = expected + 1;
    let is_current = match expected {
        0 => connection.run(BEGIN, params![next.to_string()])? > 0,
        _ => connection.run(ADVANCE, params![next.to_string(), expected.to_string()])? > 0,
    };
    if !is_current {
        return Ok(None);
    }
    connection.run(SAVE, params![to_json(log)?])?;
    Ok(Some(next))
}
