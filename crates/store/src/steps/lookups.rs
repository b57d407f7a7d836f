//! Lookups. Lists are in `list`.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use surehook_core::{
    decision::decode_unrouted,
    event::Payload,
    route::RouteSpec,
    store::{
        AttemptRow, ConfigVersion, Configuration, DeliveryDetail, DeliveryRow, EVENT_ATTEMPTS_MAX,
        EventDetail, EventRow, PastConfiguration, PastSource, StoredObject, WaitingCount,
    },
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, Id, IdKind},
    time::Timestamp,
};

use super::{
    decisions, duplicates,
    row::{
        self, ATTEMPT_COLUMNS, DELIVERY_COLUMNS, EVENT_COLUMNS, PAYLOAD_COLUMNS, blob,
        corrupt_value, id, json, name, optional_text, time,
    },
};
use crate::{
    sealing::{DataKeys, SealedPlace},
    sql::{Result, SqlConnection, SqlRow, params},
};

fn read_stored<K: IdKind, S: DeserializeOwned>(
    row: &dyn SqlRow,
    keys: &DataKeys,
    sealed_place: fn([u8; 16]) -> SealedPlace,
) -> Result<StoredObject<Id<K>, S>> {
    let id: Id<K> = id(row, 0)?;
    let spec = keys.unseal_spec(sealed_place(blob(id)), &row.get::<String>(1)?)?;
    Ok(StoredObject {
        id,
        // The position of the fault, not the text: it may be a secret.
        spec: serde_json::from_str(&spec).map_err(|error| {
            corrupt_value(1, &format!("a spec is invalid at column {}", error.column()))
        })?,
        created_at: time(row, 2)?,
        updated_at: time(row, 3)?,
    })
}

const SOURCES: &str = "
    SELECT id, spec, created_at, updated_at FROM sources WHERE deleted_at IS NULL ORDER BY name";
const DESTINATIONS: &str = "
    SELECT id, spec, created_at, updated_at FROM destinations WHERE deleted_at IS NULL
     ORDER BY name";
const ROUTES: &str = "
    SELECT r.id, s.name, t.name, r.filter, r.created_at, r.updated_at, r.transform
      FROM routes r JOIN sources s ON s.seq = r.source JOIN destinations t ON t.seq = r.destination
     ORDER BY r.seq";

const TOKEN_HEADERS: &str = "SELECT name FROM token_headers";
const LENIENT_SOURCES: &str = "
    SELECT l.id FROM lenient_sources l JOIN sources s ON s.id = l.id WHERE s.deleted_at IS NULL";
const PAST_SOURCES: &str = "
    SELECT id, name, spec FROM sources WHERE deleted_at IS NOT NULL ORDER BY id";

/// The fields of a deleted source's spec that still matter: its events are masked by them.
#[derive(Deserialize)]
struct MaskingFields<R> {
    redact: Option<R>,
    strip_secrets: Option<bool>,
}

fn load_past_configuration(connection: &impl SqlConnection) -> Result<PastConfiguration> {
    let token_headers = connection.read_all(TOKEN_HEADERS, params![], |row| row.get(0))?;
    let sources: Vec<Option<PastSource>> = connection.read_all(PAST_SOURCES, params![], |row| {
        let MaskingFields { redact, strip_secrets } = json(row, 2)?;
        let strip_secrets = strip_secrets.unwrap_or_default();
        if redact.is_none() && !strip_secrets {
            return Ok(None);
        }
        let (id, name) = (id(row, 0)?, name(row, 1)?);
        Ok(Some(PastSource { id, name, redact: redact.unwrap_or_default(), strip_secrets }))
    })?;
    let sources = sources.into_iter().flatten().collect();
    let lenient_sources = connection.read_all(LENIENT_SOURCES, params![], |row| id(row, 0))?;
    Ok(PastConfiguration { token_headers, sources, lenient_sources })
}

pub(crate) const CONFIGURATION_VERSION: &str =
    "SELECT value FROM counters WHERE name = 'configuration_version'";

/// Implements `AdminStore::load_configuration_version`. Before the first change there is no row.
pub(crate) fn load_configuration_version(connection: &impl SqlConnection) -> Result<ConfigVersion> {
    let version = connection.find_one(CONFIGURATION_VERSION, params![], |row| row.get(0))?;
    Ok(version.map_or_else(ConfigVersion::default, ConfigVersion))
}

/// Implements `AdminStore::load_configuration`. A change is planned for the version that is read here.
pub(crate) fn load_configuration<C: SqlConnection>(
    connection: &C,
    keys: &DataKeys,
) -> Result<Configuration> {
    connection.read_snapshot(|snapshot| {
        let (source, destination) = (SealedPlace::source, SealedPlace::destination);
        Ok(Configuration {
            version: load_configuration_version(snapshot)?,
            sources: snapshot.read_all(SOURCES, params![], |row| read_stored(row, keys, source))?,
            destinations: snapshot
                .read_all(DESTINATIONS, params![], |row| read_stored(row, keys, destination))?,
            routes: snapshot.read_all(ROUTES, params![], |row| {
                Ok(StoredObject {
                    id: id(row, 0)?,
                    spec: RouteSpec {
                        from: name(row, 1)?,
                        to: name(row, 2)?,
                        filter: row.get(3)?,
                        transform: row.get(6)?,
                    },
                    created_at: time(row, 4)?,
                    updated_at: time(row, 5)?,
                })
            })?,
            past: load_past_configuration(snapshot)?,
        })
    })
}

/// Implements `AdminStore::find_event_row`.
pub(crate) fn find_event_row(
    connection: &impl SqlConnection,
    event: EventId,
) -> Result<Option<EventRow>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN sources s ON s.seq = e.source WHERE e.id = ?1"
    );
    connection.find_one(&sql, params![blob(event)], row::event)
}

pub(crate) fn find_event(
    connection: &impl SqlConnection,
    id: EventId,
) -> Result<Option<EventDetail>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS}, p.seq IS NOT NULL, {PAYLOAD_COLUMNS}, e.verified_by, e.key_from,
                e.unrouted
           FROM events e JOIN sources s ON s.seq = e.source LEFT JOIN payloads p ON p.seq = e.payload
          WHERE e.id = ?1"
    );
    // The body (column 18) is not read; see [`find_payload`].
    connection.find_one(&sql, params![blob(id)], |row| {
        let mut event = row::event(row)?;
        let deliveries = list_deliveries(connection, id)?;
        for delivery in &deliveries {
            *event.deliveries.entry(delivery.status).or_default() += 1;
        }
        Ok(EventDetail {
            event,
            head: if row.get(13)? { Some(row::head(row, 14)?) } else { None },
            fingerprint: row.get(19)?,
            deliveries,
            duplicates: duplicates::list_for_event(connection, id)?,
            verified_by: row.get(20)?,
            key_from: row.get(21)?,
            unrouted: optional_text(row, 22, decode_unrouted)?.unwrap_or_default(),
            decisions: decisions::list_for_event(connection, id)?,
            attempts: list_attempts(connection, id)?,
        })
    })
}

fn list_attempts(connection: &impl SqlConnection, event: EventId) -> Result<Vec<AttemptRow>> {
    // Without response bodies, which are long and shown with each delivery.
    let columns = ATTEMPT_COLUMNS.replace("a.response", "NULL");
    let sql = format!(
        "SELECT {columns} FROM deliveries d JOIN attempts a ON a.delivery_id = d.id
          WHERE d.event_id = ?1 ORDER BY a.started_at, a.number LIMIT ?2"
    );
    connection.read_all(&sql, params![blob(event), EVENT_ATTEMPTS_MAX], row::attempt)
}

fn list_deliveries(connection: &impl SqlConnection, event: EventId) -> Result<Vec<DeliveryRow>> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries d JOIN destinations t ON t.seq = d.destination
          WHERE d.event_id = ?1 ORDER BY d.id"
    );
    connection.read_all(&sql, params![blob(event)], row::delivery)
}

pub(crate) fn find_payload(
    connection: &impl SqlConnection,
    event: EventId,
) -> Result<Option<Payload>> {
    let sql = format!(
        "SELECT {PAYLOAD_COLUMNS} FROM events e JOIN payloads p ON p.seq = e.payload
          WHERE e.id = ?1"
    );
    connection.find_one(&sql, params![blob(event)], |row| row::intact_payload(row, 0, event))
}

pub(crate) fn find_delivery(
    connection: &impl SqlConnection,
    id: DeliveryId,
) -> Result<Option<DeliveryDetail>> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries d JOIN destinations t ON t.seq = d.destination
          WHERE d.id = ?1"
    );
    let delivery = connection.find_one(&sql, params![blob(id)], row::delivery)?;
    let Some(delivery) = delivery else { return Ok(None) };
    let sql = format!(
        "SELECT {ATTEMPT_COLUMNS} FROM attempts a JOIN deliveries d ON d.id = a.delivery_id
          WHERE a.delivery_id = ?1 ORDER BY a.number"
    );
    let attempts = connection.read_all(&sql, params![blob(id)], row::attempt)?;
    Ok(Some(DeliveryDetail { delivery, attempts }))
}

const OLDEST_DUE: &str = "
    SELECT id, oldest
      FROM (SELECT t.id AS id, (SELECT min(d.due_at) FROM deliveries d INDEXED BY deliveries_due
                                 WHERE d.destination = t.seq AND d.due_at IS NOT NULL) AS oldest
              FROM destinations t WHERE t.deleted_at IS NULL) AS waiting
     WHERE oldest <= ?1";

pub(crate) fn find_oldest_due(
    connection: &impl SqlConnection,
    now: Timestamp,
) -> Result<BTreeMap<DestinationId, Timestamp>> {
    let read = |row: &dyn SqlRow| Ok((id(row, 0)?, time(row, 1)?));
    connection.read_all(OLDEST_DUE, params![now.as_millis()], read)
}

// A count stops at the limit: it must not take longer the more there are.
const WAITING: &str = "
    SELECT t.id,
           (SELECT count(*) FROM (SELECT 1 FROM deliveries d INDEXED BY deliveries_due
                                   WHERE d.destination = t.seq AND d.due_at IS NOT NULL
                                   LIMIT ?2) AS waiting),
           (SELECT count(*) FROM (SELECT 1 FROM deliveries d INDEXED BY deliveries_due
                                   WHERE d.destination = t.seq AND d.due_at <= ?1
                                   LIMIT ?2) AS due),
           (SELECT count(*) FROM (SELECT 1 FROM deliveries d INDEXED BY deliveries_line
                                   WHERE d.destination = t.seq AND d.order_key IS NOT NULL
                                     AND d.ended_at IS NULL AND d.state = 'held'
                                   LIMIT ?2) AS in_order)
      FROM destinations t WHERE t.deleted_at IS NULL";

/// Implements `AdminStore::count_waiting`.
pub(crate) fn count_waiting(
    connection: &impl SqlConnection,
    now: Timestamp,
    limit: u64,
) -> Result<BTreeMap<DestinationId, WaitingCount>> {
    let read = |row: &dyn SqlRow| {
        let (waiting, due, in_order): (u64, u64, u64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((id(row, 0)?, WaitingCount { waiting: waiting + in_order, due }))
    };
    connection.read_all(WAITING, params![now.as_millis(), limit], read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn waiting_deliveries_are_counted_in_their_indexes() {
        let steps = query_plan(WAITING);
        let of_deliveries: Vec<_> =
            steps.iter().filter(|step| step.starts_with("SEARCH d ")).collect();
        assert_eq!(of_deliveries.len(), 3, "{steps:#?}");
        for (step, index) in
            of_deliveries.iter().zip(["deliveries_due", "deliveries_due", "deliveries_line"])
        {
            assert!(step.contains(&format!("INDEX {index} (destination=?")), "{steps:#?}");
        }
        assert!(steps.iter().all(|step| !step.starts_with("SCAN d ")), "{steps:#?}");
    }
}
