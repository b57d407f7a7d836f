//! Decisions: what happened to an event after it was received, other than attempts.

use serde_json::Value;
use surehook_core::decision::{EventDecision, EventDecisionKind};
use surehook_types::{
    ids::{DeliveryId, EventId},
    time::Timestamp,
};

use super::{
    claims::EndedEpochs,
    row::{blob, id, optional_id, optional_json, text, time},
};
use crate::sql::{Result, SqlConnection, params};

/// Rows per event and kind, so that endless repetitions do not grow the table.
const ROWS_PER_KIND_MAX: u32 = 100;

const INSERT: &str = "
    INSERT INTO decisions (event_id, delivery_id, at, kind, detail)
    SELECT ?1, ?2, ?3, ?4, ?5
     WHERE (SELECT count(*) FROM decisions WHERE event_id = ?1 AND kind = ?4) < ?6
       AND EXISTS (SELECT 1 FROM events WHERE id = ?1)";

/// Inserts a decision in the transaction that carries it out.
pub(crate) fn insert(connection: &impl SqlConnection, decision: &EventDecision) -> Result<()> {
    let detail = (!decision.detail.is_null()).then(|| decision.detail.to_string());
    connection.run(
        INSERT,
        params![
            blob(decision.event),
            decision.delivery.map(blob),
            decision.at.as_millis(),
            decision.kind.as_str(),
            detail,
            ROWS_PER_KIND_MAX,
        ],
    )?;
    Ok(())
}

/// Inserts a decision about a delivery that needs no detail.
pub(crate) fn insert_for_delivery(
    connection: &impl SqlConnection,
    event: EventId,
    delivery: DeliveryId,
    kind: EventDecisionKind,
    at: Timestamp,
) -> Result<()> {
    let decision = EventDecision { event, delivery: Some(delivery), at, kind, detail: Value::Null };
    insert(connection, &decision)
}

const INSERT_FOR_EPOCHS: &str = "
    INSERT INTO decisions (event_id, delivery_id, at, kind)
    SELECT d.event_id, d.id, ?2, ?3 FROM deliveries d INDEXED BY deliveries_leased
     WHERE d.lane_epoch BETWEEN ?1 AND ?6 AND (d.destination = ?5 OR ?5 IS NULL)
       AND (SELECT count(*) FROM decisions o WHERE o.event_id = d.event_id AND o.kind = ?3) < ?4";

/// Inserts a decision for each delivery that was claimed under these epochs. Called before the deliveries
/// are moved.
pub(crate) fn insert_for_epochs(
    connection: &impl SqlConnection,
    kind: EventDecisionKind,
    epochs: EndedEpochs,
    now: Timestamp,
) -> Result<()> {
    let EndedEpochs { first, last, destination } = epochs;
    let kind = kind.as_str();
    let values = params![first.0, now.as_millis(), kind, ROWS_PER_KIND_MAX, destination, last.0];
    connection.run(INSERT_FOR_EPOCHS, values)?;
    Ok(())
}

const SELECT_FOR_EVENT: &str = "
    SELECT event_id, delivery_id, at, kind, detail FROM decisions WHERE event_id = ?1 ORDER BY seq";

pub(crate) fn list_for_event(
    connection: &impl SqlConnection,
    event: EventId,
) -> Result<Vec<EventDecision>> {
    connection.read_all(SELECT_FOR_EVENT, params![blob(event)], |row| {
        Ok(EventDecision {
            event: id(row, 0)?,
            delivery: optional_id(row, 1)?,
            at: time(row, 2)?,
            kind: text(row, 3, EventDecisionKind::parse)?,
            detail: optional_json(row, 4)?.unwrap_or_default(),
        })
    })
}
