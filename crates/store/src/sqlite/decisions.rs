//! Decisions: what happened to an event after it was received, other than attempts.
//!
//! Steps that move many deliveries at once insert theirs with one statement; see
//! [`insert_for_deliveries`].

use rusqlite::{Connection, params};
use serde_json::Value;
use surehook_core::decision::{EventDecision, EventDecisionKind};
use surehook_types::{ids::EventId, time::Timestamp};

use super::row::{blob, corrupt_value, id, optional_id, time};

/// Rows per event and kind, so that endless repetitions do not grow the table.
const ROWS_PER_KIND_MAX: u32 = 100;

const INSERT: &str = "
    INSERT INTO decisions (event_id, delivery_id, at, kind, detail)
    SELECT ?1, ?2, ?3, ?4, ?5
     WHERE (SELECT count(*) FROM decisions WHERE event_id = ?1 AND kind = ?4) < ?6
       AND EXISTS (SELECT 1 FROM events WHERE id = ?1)";

/// Inserts a decision in the transaction that carries it out.
pub(super) fn insert(connection: &Connection, decision: &EventDecision) -> rusqlite::Result<()> {
    let detail = (!decision.detail.is_null()).then(|| decision.detail.to_string());
    connection.prepare_cached(INSERT)?.execute(params![
        blob(decision.event),
        decision.delivery.map(blob),
        decision.at.as_millis(),
        decision.kind.as_str(),
        detail,
        ROWS_PER_KIND_MAX,
    ])?;
    Ok(())
}

/// Inserts a decision for each delivery `d` that matches `condition`, which uses `?1`. Called
/// before the deliveries are moved.
pub(super) fn insert_for_deliveries(
    connection: &Connection,
    kind: EventDecisionKind,
    condition: &str,
    value: i64,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO decisions (event_id, delivery_id, at, kind)
         SELECT d.event_id, d.id, ?2, ?3 FROM deliveries d
          WHERE {condition}
            AND (SELECT count(*) FROM decisions o WHERE o.event_id = d.event_id AND o.kind = ?3) < ?4"
    );
    let values = params![value, now.as_millis(), kind.as_str(), ROWS_PER_KIND_MAX];
    connection.prepare_cached(&sql)?.execute(values)?;
    Ok(())
}

const OF_EVENT: &str = "
    SELECT event_id, delivery_id, at, kind, detail FROM decisions WHERE event_id = ?1 ORDER BY seq";

pub(super) fn list_for_event(
    connection: &Connection,
    event: EventId,
) -> rusqlite::Result<Vec<EventDecision>> {
    connection
        .prepare_cached(OF_EVENT)?
        .query_map(params![blob(event)], |row| {
            let kind: String = row.get(3)?;
            let detail: Option<String> = row.get(4)?;
            let detail = detail.as_deref().map(serde_json::from_str).transpose();
            Ok(EventDecision {
                event: id(row, 0)?,
                delivery: optional_id(row, 1)?,
                at: time(row, 2)?,
                kind: EventDecisionKind::parse(&kind).ok_or_else(|| corrupt_value(3, &kind))?,
                detail: detail
                    .map_err(|error| corrupt_value(4, &error.to_string()))?
                    .unwrap_or(Value::Null),
            })
        })?
        .collect()
}
