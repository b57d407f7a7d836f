//! Bodies of deliveries that differ from the event's body: the results of route transforms.

use bytes::Bytes;
use surehook_core::event::{NewDeliveryBody, Payload, PendingRoute};
use surehook_types::ids::DeliveryId;
use surehook_webhooks::{attribute::EventKind, key::fingerprint};

use super::{
    StepTransaction,
    row::{PAYLOAD_COLUMNS, blob, damaged_body, id, intact_payload},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

// A delivery to a destination that was just deleted was not inserted, and needs no body.
const INSERT: &str = "
    INSERT INTO delivery_bodies (delivery_id, route_id, body, fingerprint, filter_failed)
    SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM deliveries WHERE id = ?1)";

pub(crate) fn insert(tx: &mut impl StepTransaction, new: &NewDeliveryBody) -> Result<()> {
    let body = new.body.as_deref();
    tx.run_prepared(
        INSERT,
        params![
            blob(new.delivery),
            blob(new.route),
            body,
            body.map(fingerprint),
            new.filter_failed,
        ],
    )?;
    Ok(())
}

const COPY_BODY: &str = "
    INSERT INTO delivery_bodies (delivery_id, route_id, body, fingerprint, filter_failed)
    SELECT ?2, route_id, body, fingerprint, filter_failed FROM delivery_bodies WHERE delivery_id = ?1";

/// A replayed delivery sends the same body as the original one.
pub(crate) fn copy_body(
    connection: &impl SqlConnection,
    old: DeliveryId,
    new: DeliveryId,
) -> Result<()> {
    connection.run(COPY_BODY, params![blob(old), blob(new)])?;
    Ok(())
}

const FIND: &str = "
    SELECT b.route_id, b.body, b.fingerprint, b.filter_failed,
           (SELECT e.kind FROM deliveries d JOIN events e ON e.id = d.event_id
             WHERE d.id = b.delivery_id AND b.body IS NULL)
      FROM delivery_bodies b WHERE b.delivery_id = ?1";

/// The payload that a delivery sends, and the route that must be applied first. `None` if the stored
/// body is damaged.
pub(crate) fn load_for_delivery(
    connection: &impl SqlConnection,
    delivery: DeliveryId,
    original: Payload,
) -> Result<Option<(Payload, Option<PendingRoute>)>> {
    let read = |row: &dyn SqlRow| {
        let kind: Option<String> = row.get(4)?;
        let kind = kind.as_deref().and_then(EventKind::new);
        let route = PendingRoute { id: id(row, 0)?, runs_filter: row.get(3)?, kind };
        Ok((route, row.get::<Option<Vec<u8>>>(1)?, row.get(2)?))
    };
    Ok(match connection.find_one(FIND, params![blob(delivery)], read)? {
        None => Some((original, None)),
        Some((route, None, _)) => Some((original, Some(route))),
        Some((_, Some(body), stored_fingerprint)) => {
            let sent = original.with_transformed_body(Bytes::from(body));
            (Some(sent.fingerprint) == stored_fingerprint).then_some((sent, None))
        }
    })
}

/// Implements `AdminStore::find_delivery_body`.
pub(crate) fn find_body(
    connection: &impl SqlConnection,
    delivery: DeliveryId,
) -> Result<Option<Payload>> {
    let sql = format!(
        "SELECT {PAYLOAD_COLUMNS}, e.id FROM deliveries d JOIN events e ON e.id = d.event_id
           JOIN payloads p ON p.seq = e.payload WHERE d.id = ?1"
    );
    let found = connection.find_one(&sql, params![blob(delivery)], |row| {
        let event = id(row, 6)?;
        Ok((intact_payload(row, 0, event)?, event))
    })?;
    let Some((original, event)) = found else { return Ok(None) };
    let (sent, pending_route) =
        load_for_delivery(connection, delivery, original)?.ok_or_else(|| damaged_body(event))?;
    Ok(pending_route.is_none().then_some(sent))
}
