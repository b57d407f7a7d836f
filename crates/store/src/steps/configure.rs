//! Writes the configuration: sources, destinations and routes.

use std::collections::HashMap;

use serde::Serialize;
use surehook_core::{
    destination::DestinationSpec,
    route::RouteSpec,
    source::SourceSpec,
    store::{ConfigChange, ConfigChangeResult, ConfigVersion},
};
use surehook_types::{
    ids::{DestinationId, Id, IdKind, RouteId, SourceId},
    name::Name,
    time::Timestamp,
};

use super::{
    StepTransaction, deleted_destinations, lookups, ordering_queue,
    row::{blob, corrupt_value, id, to_json},
};
use crate::{
    sealing::{DataKeys, SealedPlace},
    sql::{Result, SqlConnection, params},
};

/// Row numbers of the sources and destinations that are not deleted. The large tables refer to them
/// by number, which is shorter than the id.
#[derive(Debug, Default)]
pub(crate) struct RowNumbers {
    pub(crate) sources: HashMap<SourceId, i64>,
    pub(crate) destinations: HashMap<DestinationId, i64>,
}

pub(crate) fn load_row_numbers(connection: &impl SqlConnection) -> Result<RowNumbers> {
    let sources = "SELECT id, seq FROM sources WHERE deleted_at IS NULL";
    let destinations = "SELECT id, seq FROM destinations WHERE deleted_at IS NULL";
    Ok(RowNumbers {
        sources: connection.read_all(sources, params![], |row| Ok((id(row, 0)?, row.get(1)?)))?,
        destinations: connection
            .read_all(destinations, params![], |row| Ok((id(row, 0)?, row.get(1)?)))?,
    })
}

// A file of an older version has no row.
const RAISE_VERSION: &str = "
    INSERT INTO counters (name, value) VALUES ('configuration_version', 1)
    ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value";

/// Implements `AdminStore::change`.
pub(crate) fn change(
    tx: &mut impl StepTransaction,
    keys: &DataKeys,
    changes: &[ConfigChange],
    expected: ConfigVersion,
    now: Timestamp,
) -> Result<ConfigChangeResult> {
    let current = lookups::load_configuration_version(tx)?;
    if current != expected {
        return Ok(ConfigChangeResult::Outdated(current));
    }
    if changes.is_empty() {
        return Ok(ConfigChangeResult::Changed(current));
    }
    apply_changes(tx, keys, changes, now)?;
    let version = tx.read_one(RAISE_VERSION, params![], |row| row.get(0))?;
    Ok(ConfigChangeResult::Changed(ConfigVersion(version)))
}

fn apply_changes(
    tx: &mut impl StepTransaction,
    keys: &DataKeys,
    changes: &[ConfigChange],
    now: Timestamp,
) -> Result<()> {
    for change in changes {
        match change {
            ConfigChange::PutSource(id, spec) => put_source(tx, keys, *id, spec, now)?,
            ConfigChange::PutDestination(id, spec) => put_destination(tx, keys, *id, spec, now)?,
            ConfigChange::PutRoute(id, spec) => put_route(tx, *id, spec, now)?,
            ConfigChange::DeleteSource(id) => drop(delete(tx, "source", *id, now)?),
            ConfigChange::DeleteDestination(id) => delete_destination(tx, *id, now)?,
            ConfigChange::DeleteRoute(id) => {
                tx.run("DELETE FROM routes WHERE id = ?1", params![blob(*id)])?;
            }
        }
    }
    tx.reload_row_numbers()
}

/// Puts a source or destination into its table. A deleted one starts over under its old id, with
/// its history.
fn put(
    connection: &impl SqlConnection,
    keys: &DataKeys,
    place: SealedPlace,
    name: &Name,
    spec: &impl Serialize,
    now: Timestamp,
) -> Result<()> {
    let table = place.table;
    let sql = format!(
        "INSERT INTO {table} (id, name, spec, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)
         ON CONFLICT (id) DO UPDATE
            SET name = ?2, spec = ?3, updated_at = ?4, deleted_at = NULL,
                created_at = CASE WHEN {table}.deleted_at IS NULL THEN {table}.created_at ELSE ?4 END"
    );
    let sealed = keys.seal_spec(place, &to_json(spec)?)?;
    connection.run(&sql, params![place.row, name.as_str(), sealed, now.as_millis()])?;
    Ok(())
}

fn put_source(
    connection: &impl SqlConnection,
    keys: &DataKeys,
    id: SourceId,
    spec: &SourceSpec,
    now: Timestamp,
) -> Result<()> {
    put(connection, keys, SealedPlace::source(blob(id)), &spec.name, spec, now)?;
    connection.run("DELETE FROM lenient_sources WHERE id = ?1", params![blob(id)])?;
    if let Some(header) = spec.token_header() {
        let insert_header =
            "INSERT INTO token_headers (name) VALUES (?1) ON CONFLICT (name) DO NOTHING";
        connection.run(insert_header, params![header.to_ascii_lowercase()])?;
    }
    Ok(())
}

fn put_destination(
    tx: &mut impl StepTransaction,
    keys: &DataKeys,
    id: DestinationId,
    spec: &DestinationSpec,
    now: Timestamp,
) -> Result<()> {
    deleted_destinations::cancel_all(tx, id)?;
    put(tx, keys, SealedPlace::destination(blob(id)), &spec.name, spec, now)?;
    // Without ordering, nothing would ever release the held deliveries.
    if spec.order.is_none() {
        ordering_queue::release_all(tx, id, now)?;
    }
    Ok(())
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
    connection: &impl SqlConnection,
    id: RouteId,
    spec: &RouteSpec,
    now: Timestamp,
) -> Result<()> {
    let values = params![
        blob(id),
        spec.from.as_str(),
        spec.to.as_str(),
        spec.filter,
        now.as_millis(),
        spec.transform
    ];
    match connection.run(PUT_ROUTE, values)? {
        0 => Err(corrupt_value(0, "the route's source or destination does not exist")),
        _ => Ok(()),
    }
}

/// Marks a source or destination as deleted and removes its routes; returns its row number, unless
/// it does not exist. Reads the table, not the row numbers of the transaction, which lack what an earlier change of the same
/// list has added.
fn delete<K: IdKind>(
    connection: &impl SqlConnection,
    kind: &str,
    id: Id<K>,
    now: Timestamp,
) -> Result<Option<i64>> {
    let sql = format!(
        "UPDATE {kind}s SET deleted_at = ?2 WHERE id = ?1 AND deleted_at IS NULL RETURNING seq"
    );
    let found = connection.find_one(&sql, params![blob(id), now.as_millis()], |row| row.get(0))?;
    if let Some(seq) = found {
        let remove_routes = format!("DELETE FROM routes WHERE {kind} = ?1");
        connection.run(&remove_routes, params![seq])?;
    }
    Ok(found)
}

/// Deletes a destination. Its pending deliveries are cancelled; see `deleted_destinations`.
fn delete_destination(
    tx: &mut impl StepTransaction,
    id: DestinationId,
    now: Timestamp,
) -> Result<()> {
    let Some(seq) = delete(tx, "destination", id, now)? else { return Ok(()) };
    tx.run("DELETE FROM lane_states WHERE destination = ?1", params![seq])?;
    deleted_destinations::start_cancelling(tx, seq, now)?;
    Ok(())
}
