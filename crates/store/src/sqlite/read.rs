//! Lookups on read-only connections. Lists are in `list`.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde_json::from_str;
use surehook_core::{
    decision::{UnroutedRoute, read_unrouted},
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
    row::{
        self, ATTEMPT_COLUMNS, DELIVERY_COLUMNS, EVENT_COLUMNS, PAYLOAD_COLUMNS, blob,
        corrupt_value, id, time,
    },
    schema,
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
        f.debug_struct("Readers").field("file", &self.file).finish_non_exhaustive()
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
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let refused = |error: &dyn fmt::Display| StoreError::Refused(error.to_string());
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|e| refused(&e))?;
        let (idle, file) = (Arc::clone(&self.idle), self.file.clone());
        let work = move || {
            let _place = permit;
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = pooled.map_or_else(|| schema::open_reader(&file), Ok)?;
            let answer = query(&connection);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            answer
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer.map_err(|error| refused(&error)),
            Err(panicked) => Err(refused(&panicked)),
        }
    }
}

pub(super) fn collect_rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(values, read)?.collect()
}

fn read_stored<K: IdKind, S: serde::de::DeserializeOwned>(
    row: &Row<'_>,
) -> rusqlite::Result<StoredObject<Id<K>, S>> {
    let spec: String = row.get(1)?;
    Ok(StoredObject {
        id: id(row, 0)?,
        spec: from_str(&spec).map_err(|error| corrupt_value(1, &error.to_string()))?,
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
const PAST_SOURCES: &str = "
    SELECT id, name, spec ->> '$.redact', coalesce(spec ->> '$.strip_secrets', 0) FROM sources
     WHERE deleted_at IS NOT NULL
       AND (spec ->> '$.redact' IS NOT NULL OR spec ->> '$.strip_secrets')
     ORDER BY id";

fn load_past_configuration(connection: &Connection) -> rusqlite::Result<PastConfiguration> {
    let token_headers = collect_rows(connection, TOKEN_HEADERS, [], |row| row.get(0))?;
    let sources = collect_rows(connection, PAST_SOURCES, [], |row| {
        let (name, redact): (String, Option<String>) = (row.get(1)?, row.get(2)?);
        let redact = redact.map(|list| from_str(&list)).transpose();
        Ok(PastSource {
            id: id(row, 0)?,
            name: name.parse().map_err(|_| corrupt_value(1, &name))?,
            redact: redact
                .map_err(|error| corrupt_value(2, &error.to_string()))?
                .unwrap_or_default(),
            strip_secrets: row.get(3)?,
        })
    })?;
    Ok(PastConfiguration { token_headers: token_headers.into_iter().collect(), sources })
}

pub(super) fn load_configuration(connection: &Connection) -> rusqlite::Result<Configuration> {
    let name = |row: &Row<'_>, column: usize| {
        let text: String = row.get(column)?;
        text.parse().map_err(|_| corrupt_value(column, &text))
    };
    Ok(Configuration {
        sources: collect_rows(connection, SOURCES, [], read_stored)?,
        destinations: collect_rows(connection, DESTINATIONS, [], read_stored)?,
        routes: collect_rows(connection, ROUTES, [], |row| {
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
pub(super) fn find_event_row(
    connection: &Connection,
    event: EventId,
) -> rusqlite::Result<Option<EventRow>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN sources s ON s.seq = e.source WHERE e.id = ?1"
    );
    connection.prepare_cached(&sql)?.query_row(params![blob(event)], row::event).optional()
}

pub(super) fn find_event(
    connection: &Connection,
    id: EventId,
) -> rusqlite::Result<Option<EventDetail>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS}, p.seq IS NOT NULL, {PAYLOAD_COLUMNS}, e.verified_by, e.key_from,
                e.unrouted
           FROM events e JOIN sources s ON s.seq = e.source LEFT JOIN payloads p ON p.seq = e.payload
          WHERE e.id = ?1"
    );
    // The body (column 16) is not read; see [`find_payload`].
    let found = connection
        .prepare_cached(&sql)?
        .query_row(params![blob(id)], |found| {
            let head = if found.get(11)? { Some(row::head(found, 12)?) } else { None };
            Ok(EventDetail {
                event: row::event(found)?,
                head,
                fingerprint: found.get(17)?,
                deliveries: Vec::new(),
                duplicates: Vec::new(),
                verified_by: found.get(18)?,
                key_from: found.get(19)?,
                unrouted: read_unrouted_routes(found, 20)?,
                decisions: Vec::new(),
                attempts: Vec::new(),
            })
        })
        .optional()?;
    let Some(mut event) = found else { return Ok(None) };
    let deliveries = list_deliveries(connection, id)?;
    for delivery in &deliveries {
        *event.event.deliveries.entry(delivery.status).or_default() += 1;
    }
    Ok(Some(EventDetail {
        deliveries,
        duplicates: duplicates::list_for_event(connection, id)?,
        decisions: decisions::list_for_event(connection, id)?,
        attempts: list_attempts(connection, id)?,
        ..event
    }))
}

fn read_unrouted_routes(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<UnroutedRoute>> {
    let Some(text) = row.get::<_, Option<String>>(column)? else { return Ok(Vec::new()) };
    read_unrouted(&text).ok_or_else(|| corrupt_value(column, &text))
}

fn list_attempts(connection: &Connection, event: EventId) -> rusqlite::Result<Vec<AttemptRow>> {
    // Without response bodies, which are long and shown with each delivery.
    let columns = ATTEMPT_COLUMNS.replace("a.response", "NULL");
    let sql = format!(
        "SELECT {columns} FROM deliveries d JOIN attempts a ON a.delivery_id = d.id
          WHERE d.event_id = ?1 ORDER BY a.started_at, a.number LIMIT ?2"
    );
    collect_rows(connection, &sql, params![blob(event), EVENT_ATTEMPTS_MAX], row::attempt)
}

fn list_deliveries(connection: &Connection, event: EventId) -> rusqlite::Result<Vec<DeliveryRow>> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries d JOIN destinations t ON t.seq = d.destination
          WHERE d.event_id = ?1 ORDER BY d.id"
    );
    collect_rows(connection, &sql, params![blob(event)], row::delivery)
}

pub(super) fn find_payload(
    connection: &Connection,
    event: EventId,
) -> rusqlite::Result<Option<Payload>> {
    let sql = format!(
        "SELECT {PAYLOAD_COLUMNS} FROM events e JOIN payloads p ON p.seq = e.payload
          WHERE e.id = ?1"
    );
    connection
        .prepare_cached(&sql)?
        .query_row(params![blob(event)], |found| row::payload(found, 0))
        .optional()
}

pub(super) fn find_delivery(
    connection: &Connection,
    id: DeliveryId,
) -> rusqlite::Result<Option<DeliveryDetail>> {
    let sql = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries d JOIN destinations t ON t.seq = d.destination
          WHERE d.id = ?1"
    );
    let found =
        connection.prepare_cached(&sql)?.query_row(params![blob(id)], row::delivery).optional()?;
    let Some(delivery) = found else { return Ok(None) };
    let sql = format!(
        "SELECT {ATTEMPT_COLUMNS} FROM attempts a JOIN deliveries d ON d.id = a.delivery_id
          WHERE a.delivery_id = ?1 ORDER BY a.number"
    );
    let attempts = collect_rows(connection, &sql, params![blob(id)], row::attempt)?;
    Ok(Some(DeliveryDetail { delivery, attempts }))
}

const OLDEST_DUE: &str = "
    SELECT t.id, (SELECT min(d.due_at) FROM deliveries d
                   WHERE d.destination = t.seq AND d.due_at IS NOT NULL) AS oldest
      FROM destinations t WHERE t.deleted_at IS NULL AND oldest <= ?1";

pub(super) fn find_oldest_due(
    connection: &Connection,
    now: Timestamp,
) -> rusqlite::Result<BTreeMap<DestinationId, Timestamp>> {
    connection
        .prepare_cached(OLDEST_DUE)?
        .query_map(params![now.as_millis()], |row| Ok((id(row, 0)?, time(row, 1)?)))?
        .collect()
}
