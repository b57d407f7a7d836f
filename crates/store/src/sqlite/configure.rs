//! Writes the configuration: sources, destinations and routes.

use rusqlite::{Connection, OptionalExtension, params};
use surehook_core::{
    destination::DestinationSpec, route::RouteSpec, source::SourceSpec, store::ConfigChange,
};
use surehook_types::{
    ids::{DestinationId, Id, IdKind, RouteId, SourceId},
    time::Timestamp,
};

use super::{
    deleted_destinations, ordering_queue,
    row::{blob, corrupt_value, id},
    writer::{RowNumbers, WriteTransaction},
};

pub(super) fn load_row_numbers(connection: &Connection) -> rusqlite::Result<RowNumbers> {
    let sources = connection
        .prepare_cached("SELECT id, seq FROM sources WHERE deleted_at IS NULL")?
        .query_map([], |row| Ok((id(row, 0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let destinations = connection
        .prepare_cached("SELECT id, seq FROM destinations WHERE deleted_at IS NULL")?
        .query_map([], |row| Ok((id(row, 0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    Ok(RowNumbers { sources, destinations })
}

/// Implements `AdminStore::change`.
pub(super) fn apply_changes(
    tx: &mut WriteTransaction<'_, '_>,
    changes: &[ConfigChange],
    now: Timestamp,
) -> rusqlite::Result<()> {
    for change in changes {
        match change {
            ConfigChange::PutSource(id, spec) => put_source(tx, *id, spec, now)?,
            ConfigChange::PutDestination(id, spec) => put_destination(tx, *id, spec, now)?,
            ConfigChange::PutRoute(id, spec) => put_route(tx, *id, spec, now)?,
            ConfigChange::DeleteSource(id) => delete_source(tx, *id, now)?,
            ConfigChange::DeleteDestination(id) => delete_destination(tx, *id, now)?,
            ConfigChange::DeleteRoute(id) => {
                tx.connection.execute("DELETE FROM routes WHERE id = ?1", params![blob(*id)])?;
            }
        }
    }
    *tx.row_numbers = load_row_numbers(tx.connection)?;
    Ok(())
}

fn json<T: serde::Serialize>(spec: &T) -> rusqlite::Result<String> {
    serde_json::to_string(spec)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

// A deleted source that is put again starts over under its old id, with its history.
const PUT_SOURCE: &str = "
    INSERT INTO sources (id, name, spec, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
    ON CONFLICT (id) DO UPDATE
       SET name = ?2, spec = ?3, updated_at = ?4, deleted_at = NULL,
           created_at = iif(deleted_at IS NULL, created_at, ?4)";

fn put_source(
    tx: &WriteTransaction<'_, '_>,
    id: SourceId,
    spec: &SourceSpec,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let values = params![blob(id), spec.name.as_str(), json(spec)?, now.as_millis()];
    tx.connection.execute(PUT_SOURCE, values)?;
    if let Some(header) = spec.token_header() {
        let header = header.to_ascii_lowercase();
        let insert_header = "INSERT OR IGNORE INTO token_headers (name) VALUES (?1)";
        tx.connection.execute(insert_header, params![header])?;
    }
    Ok(())
}

const PUT_DESTINATION: &str = "
    INSERT INTO destinations (id, name, spec, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
    ON CONFLICT (id) DO UPDATE
       SET name = ?2, spec = ?3, updated_at = ?4, deleted_at = NULL,
           created_at = iif(deleted_at IS NULL, created_at, ?4)";

fn put_destination(
    tx: &mut WriteTransaction<'_, '_>,
    id: DestinationId,
    spec: &DestinationSpec,
    now: Timestamp,
) -> rusqlite::Result<()> {
    deleted_destinations::cancel_all(tx, id)?;
    let values = params![blob(id), spec.name.as_str(), json(spec)?, now.as_millis()];
    tx.connection.execute(PUT_DESTINATION, values)?;
    // Without ordering, nothing would ever release the held deliveries.
    if spec.order.is_none() { ordering_queue::release_all(tx, id, now) } else { Ok(()) }
}

// Routes refer to rows, not names, so they survive renames.
const PUT_ROUTE: &str = "
    INSERT INTO routes (id, source, destination, filter, created_at, updated_at, transform)
    SELECT ?1, s.seq, t.seq, ?4, ?5, ?5, ?6 FROM sources s, destinations t
     WHERE s.name = ?2 AND s.deleted_at IS NULL AND t.name = ?3 AND t.deleted_at IS NULL
    ON CONFLICT (id) DO UPDATE
       SET source = excluded.source, destination = excluded.destination,
           filter = excluded.filter, transform = excluded.transform, updated_at = excluded.updated_at";

fn put_route(
    tx: &WriteTransaction<'_, '_>,
    id: RouteId,
    spec: &RouteSpec,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let values = params![
        blob(id),
        spec.from.as_str(),
        spec.to.as_str(),
        spec.filter,
        now.as_millis(),
        spec.transform
    ];
    match tx.connection.execute(PUT_ROUTE, values)? {
        0 => Err(corrupt_value(0, "the route's source or destination does not exist")),
        _ => Ok(()),
    }
}

/// The row number of a source or destination that is not deleted. Not from `tx.row_numbers`, which
/// does not contain what an earlier change of the same list has added.
fn find_live_seq<K: IdKind>(
    tx: &WriteTransaction<'_, '_>,
    find: &str,
    id: Id<K>,
) -> rusqlite::Result<Option<i64>> {
    tx.connection.query_row(find, params![blob(id)], |row| row.get(0)).optional()
}

const LIVE_SOURCE: &str = "SELECT seq FROM sources WHERE id = ?1 AND deleted_at IS NULL";

fn delete_source(
    tx: &WriteTransaction<'_, '_>,
    id: SourceId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let Some(seq) = find_live_seq(tx, LIVE_SOURCE, id)? else { return Ok(()) };
    tx.connection.execute("DELETE FROM routes WHERE source = ?1", params![seq])?;
    tx.connection.execute(
        "UPDATE sources SET deleted_at = ?2 WHERE seq = ?1",
        params![seq, now.as_millis()],
    )?;
    Ok(())
}

const LIVE_DESTINATION: &str = "SELECT seq FROM destinations WHERE id = ?1 AND deleted_at IS NULL";

/// Deletes a destination. Its pending deliveries are cancelled; see `deleted_destinations`.
fn delete_destination(
    tx: &mut WriteTransaction<'_, '_>,
    id: DestinationId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let Some(seq) = find_live_seq(tx, LIVE_DESTINATION, id)? else { return Ok(()) };
    tx.connection.execute("DELETE FROM routes WHERE destination = ?1", params![seq])?;
    tx.connection.execute("DELETE FROM lane_states WHERE destination = ?1", params![seq])?;
    tx.connection.execute(
        "UPDATE destinations SET deleted_at = ?2 WHERE seq = ?1",
        params![seq, now.as_millis()],
    )?;
    deleted_destinations::start_cancelling(tx, seq, now)
}
