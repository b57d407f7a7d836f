//! Lookups on read-only connections. Lists are in `list`.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, Result, Row, params};
use surehook_core::{
    decision::decode_unrouted,
    event::Payload,
    route::RouteSpec,
    store::{
        AttemptRow, Configuration, DeliveryDetail, DeliveryRow, EVENT_ATTEMPTS_MAX, EventDetail,
        EventRow, PastConfiguration, PastSource, StoredObject,
    },
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId, Id, IdKind},
    store_error::StoreError,
    time::Timestamp,
};
use tokio::sync::Semaphore;

use super::{
    decisions, duplicates,
    prepared::CachedStatements,
    row::{
        self, ATTEMPT_COLUMNS, DELIVERY_COLUMNS, EVENT_COLUMNS, PAYLOAD_COLUMNS, blob,
        corrupt_value, id, name, optional_json, optional_text, time,
    },
    schema,
    sealing::{DataKeys, SealedPlace},
};

/// Concurrent readers. Each may keep the log from being reset, so they are few.
const READERS_MAX: usize = 4;

/// Read-only connections, opened when first needed.
pub(super) struct ReadPool {
    file: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadPool").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ReadPool {
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }

    /// Runs `query` on the blocking pool.
    pub(super) async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let store_error = |error: &dyn fmt::Display| StoreError::Refused(error.to_string());
        let permit =
            Arc::clone(&self.permits).acquire_owned().await.map_err(|error| store_error(&error))?;
        let (idle, file) = (Arc::clone(&self.idle), self.file.clone());
        let work = move || {
            let _permit = permit;
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = pooled.map_or_else(|| schema::open_reader(&file), Ok)?;
            let result = query(&connection);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result.map_err(|error| match row::damaged_event(&error) {
                Some(event) => StoreError::BodyDamaged(event),
                None => store_error(&error),
            }),
            Err(panicked) => Err(store_error(&panicked)),
        }
    }
}

fn read_stored<K: IdKind, S: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    keys: &DataKeys,
    sealed_place: fn([u8; 16]) -> SealedPlace,
) -> Result<StoredObject<Id<K>, S>> {
    let id: Id<K> = id(row, 0)?;
    let spec = keys.unseal_spec(sealed_place(blob(id)), row.get_ref(1)?.as_str()?)?;
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
    SELECT id, name, spec ->> '$.redact', coalesce(spec ->> '$.strip_secrets', 0) FROM sources
     WHERE deleted_at IS NOT NULL
       AND (spec ->> '$.redact' IS NOT NULL OR spec ->> '$.strip_secrets')
     ORDER BY id";

fn load_past_configuration(connection: &Connection) -> Result<PastConfiguration> {
    let token_headers = connection.read_all(TOKEN_HEADERS, [], |row| row.get(0))?;
    let sources = connection.read_all(PAST_SOURCES, [], |row| {
        Ok(PastSource {
            id: id(row, 0)?,
            name: name(row, 1)?,
            redact: optional_json(row, 2)?.unwrap_or_default(),
            strip_secrets: row.get(3)?,
        })
    })?;
    let lenient_sources = connection.read_all(LENIENT_SOURCES, [], |row| id(row, 0))?;
    Ok(PastConfiguration { token_headers, sources, lenient_sources })
}

pub(super) fn load_configuration(
    connection: &Connection,
    keys: &DataKeys,
) -> Result<Configuration> {
    let (source, destination) = (SealedPlace::source, SealedPlace::destination);
    Ok(Configuration {
        sources: connection.read_all(SOURCES, [], |row| read_stored(row, keys, source))?,
        destinations: connection
            .read_all(DESTINATIONS, [], |row| read_stored(row, keys, destination))?,
        routes: connection.read_all(ROUTES, [], |row| {
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
        past: load_past_configuration(connection)?,
    })
}

/// Implements `AdminStore::find_event_row`.
pub(super) fn find_event_row(connection: &Connection, event: EventId) -> Result<Option<EventRow>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN sources s ON s.seq = e.source WHERE e.id = ?1"
    );
    connection.find_one(&sql, params![blob(event)], row::event)
}

pub(super) fn find_event(connection: &Connection, id: EventId) -> Result<Option<EventDetail>> {
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

fn list_attempts(connection: &Connection, event: EventId) -> Result<Vec<AttemptRow>> {
    // Without response bodies, which are long and shown with each delivery.
    let columns = ATTEMPT_COLUMNS.replace("a.response", "NULL");
    let sql = format!(
        "SELECT {columns} FROM deliveries d JOIN attempts a ON a.delivery_id = d.id
          WHERE d.event_id = ?1 ORDER BY a.started_at, a.number LIMIT ?2"
    );
    connection.read_all(&sql, params![blob(event), EVENT_ATTEMPTS_MAX], row::attempt)
}

fn list_deliveries(connection: &Connection, event: EventId) -> Result<Vec<DeliveryRow>> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries d JOIN destinations t ON t.seq = d.destination
          WHERE d.event_id = ?1 ORDER BY d.id"
    );
    connection.read_all(&sql, params![blob(event)], row::delivery)
}

pub(super) fn find_payload(connection: &Connection, event: EventId) -> Result<Option<Payload>> {
    let sql = format!(
        "SELECT {PAYLOAD_COLUMNS} FROM events e JOIN payloads p ON p.seq = e.payload
          WHERE e.id = ?1"
    );
    connection.find_one(&sql, params![blob(event)], |row| row::intact_payload(row, 0, event))
}

pub(super) fn find_delivery(
    connection: &Connection,
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
    SELECT t.id, (SELECT min(d.due_at) FROM deliveries d
                   WHERE d.destination = t.seq AND d.due_at IS NOT NULL) AS oldest
      FROM destinations t WHERE t.deleted_at IS NULL AND oldest <= ?1";

pub(super) fn find_oldest_due(
    connection: &Connection,
    now: Timestamp,
) -> Result<BTreeMap<DestinationId, Timestamp>> {
    let read = |row: &Row<'_>| Ok((id(row, 0)?, time(row, 1)?));
    connection.read_all(OLDEST_DUE, params![now.as_millis()], read)
}
