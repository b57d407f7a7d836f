//! Dead letters grouped by cause: each dead delivery refers to its group, each group counts its
//! deliveries.
//!
//! Both change in the transaction that moves the delivery, only through [`add_delivery`] and
//! [`remove_delivery`]. A group without deliveries is deleted.

use rusqlite::{
    Connection, OptionalExtension, Row, ToSql,
    functions::{Context, FunctionFlags},
    params, params_from_iter,
};
use surehook_core::{
    dead_letters::{
        self, DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter, DeathCause,
        GROUP_SCAN_MAX, SAMPLE_BYTES_MAX,
    },
    store::{ListPage, PageRequest},
};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};
use uuid::Uuid;

use super::{
    row::{blob, corrupt_value, id, parse_text, reason, time},
    writer::WriteTransaction,
};

const ADD_TO_GROUP: &str = "
    UPDATE dead_groups
       SET count = count + 1, reason = iif(?3 >= last_seen, ?2, reason),
           first_seen = min(first_seen, ?3), last_seen = max(last_seen, ?3)
     WHERE id = ?1
    RETURNING seq";
const INSERT_GROUP: &str = "
    INSERT INTO dead_groups (id, destination, class, code, failure, reason, shape, count, first_seen,
                             last_seen)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?8)
    RETURNING seq";
const SET_GROUP: &str = "UPDATE deliveries SET dead_group = ?2 WHERE id = ?1";

/// A delivery that has just died.
pub(super) struct DeadDelivery<'a> {
    pub(super) delivery: DeliveryId,
    /// Row number.
    pub(super) destination: i64,
    pub(super) cause: &'a DeathCause,
    pub(super) reason: DeadReason,
    pub(super) at: Timestamp,
}

const DESTINATION_ID: &str = "SELECT id FROM destinations WHERE seq = ?1";

pub(super) fn add_delivery(
    tx: &WriteTransaction<'_, '_>,
    death: &DeadDelivery<'_>,
) -> rusqlite::Result<()> {
    let DeadDelivery { delivery, destination, cause, reason, at } = death;
    let destination_id: DestinationId = tx
        .connection
        .prepare_cached(DESTINATION_ID)?
        .query_row(params![destination], |row| id(row, 0))?;
    let group = blob(cause.group_id(destination_id));
    let existing: Option<i64> = tx
        .connection
        .prepare_cached(ADD_TO_GROUP)?
        .query_row(params![group, reason.as_str(), at.as_millis()], |row| row.get(0))
        .optional()?;
    let seq = match existing {
        Some(seq) => seq,
        None => tx.connection.prepare_cached(INSERT_GROUP)?.query_row(
            params![
                group,
                destination,
                cause.class.map(FailureClass::as_str),
                cause.code,
                cause.failure.map(AttemptFailure::as_str),
                reason.as_str(),
                cause.shape,
                at.as_millis(),
            ],
            |row| row.get::<_, i64>(0),
        )?,
    };
    tx.connection.prepare_cached(SET_GROUP)?.execute(params![blob(*delivery), seq])?;
    Ok(())
}

const GROUP_OF: &str = "SELECT dead_group FROM deliveries WHERE id = ?1 AND dead_group IS NOT NULL";
const CLEAR_GROUP: &str = "UPDATE deliveries SET dead_group = NULL WHERE id = ?1";
const SUBTRACT_FROM_GROUP: &str =
    "UPDATE dead_groups SET count = count - 1 WHERE seq = ?1 RETURNING count";
const DELETE_GROUP: &str = "DELETE FROM dead_groups WHERE seq = ?1";

/// Removes a delivery that is no longer dead, or is about to be deleted, from its group.
pub(super) fn remove_delivery(
    tx: &WriteTransaction<'_, '_>,
    delivery: DeliveryId,
) -> rusqlite::Result<()> {
    let key = params![blob(delivery)];
    let group: Option<i64> =
        tx.connection.prepare_cached(GROUP_OF)?.query_row(key, |row| row.get(0)).optional()?;
    let Some(group) = group else { return Ok(()) };
    tx.connection.prepare_cached(CLEAR_GROUP)?.execute(key)?;
    let count: i64 = tx
        .connection
        .prepare_cached(SUBTRACT_FROM_GROUP)?
        .query_row(params![group], |row| row.get(0))?;
    if count == 0 {
        tx.connection.prepare_cached(DELETE_GROUP)?.execute(params![group])?;
    }
    Ok(())
}

/// Groups read for one page if not all of them match.
const SCAN_MAX: usize = 500;

/// Implements `AdminStore::list_dead_letter_groups`.
pub(super) fn list(
    connection: &Connection,
    filter: DeadLetterGroupFilter,
    page: PageRequest<DeadLetterGroupCursor>,
) -> rusqlite::Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>> {
    let checks_each_group = filter.source.is_some();
    let scan_max = if checks_each_group { SCAN_MAX } else { page.limit };
    let (sql, values) = build_query(filter, page.after, scan_max);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query(params_from_iter(values))?;
    let (mut rows, mut last, mut looks) = (Vec::new(), None, 0);
    while rows.len() < page.limit
        && let Some(row) = found.next()?
    {
        looks += 1;
        last = Some(DeadLetterGroupCursor { last_seen: time(row, 9)?, id: id(row, 0)? });
        if row.get("matches")? {
            rows.push(read_group(row)?);
        }
    }
    let more = rows.len() == page.limit || looks == scan_max;
    Ok(ListPage { rows, next: last.filter(|_| more), rows_scanned: looks, last })
}

type Values = Vec<Box<dyn ToSql>>;

fn build_query(
    filter: DeadLetterGroupFilter,
    after: Option<DeadLetterGroupCursor>,
    scan_max: usize,
) -> (String, Values) {
    let mut values: Values = Vec::new();
    let mut bind = |value: Box<dyn ToSql>| {
        values.push(value);
        format!("?{}", values.len())
    };
    let mut narrow = "true".to_owned();
    if let Some(destination) = filter.destination {
        let destination = bind(Box::new(blob(destination)));
        narrow += &format!(
            " AND g.destination = (SELECT seq FROM destinations WHERE id = {destination})"
        );
    }
    if let Some(group) = filter.id {
        narrow += &format!(" AND g.id = {}", bind(Box::new(blob(group))));
    }
    if let Some(DeadLetterGroupCursor { last_seen, id }) = after {
        let last_seen = bind(Box::new(last_seen.as_millis()));
        narrow +=
            &format!(" AND (g.last_seen, g.id) < ({last_seen}, {})", bind(Box::new(blob(id))));
    }
    let matches = match filter.source {
        None => "true".to_owned(),
        Some(source) => {
            let source = bind(Box::new(blob(source)));
            format!(
                "EXISTS (SELECT 1 FROM (SELECT event_id FROM deliveries WHERE dead_group = g.seq
                                         ORDER BY id DESC LIMIT {GROUP_SCAN_MAX}) n
                           JOIN events e ON e.id = n.event_id
                          WHERE e.source = (SELECT seq FROM sources WHERE id = {source}))"
            )
        }
    };
    let limit = bind(Box::new(i64::try_from(scan_max).unwrap_or(i64::MAX)));
    // The newest delivery is looked up, not stored: it may be replayed while others of its group
    // stay.
    let sql = format!(
        "SELECT g.id, t.id, g.class, g.code, g.failure, g.reason, g.shape, g.count, g.first_seen,
                g.last_seen, d.id, d.event_id, a.detail,
                substr(a.response, 1, {SAMPLE_BYTES_MAX}), {matches} AS matches
           FROM dead_groups g CROSS JOIN destinations t ON t.seq = g.destination
                CROSS JOIN deliveries d
                  ON d.id = (SELECT max(n.id) FROM deliveries n WHERE n.dead_group = g.seq)
                LEFT JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts
          WHERE {narrow} ORDER BY g.last_seen DESC, g.id DESC LIMIT {limit}"
    );
    (sql, values)
}

fn read_group(row: &Row<'_>) -> rusqlite::Result<DeadLetterGroup> {
    Ok(DeadLetterGroup {
        id: id(row, 0)?,
        destination: id(row, 1)?,
        cause: DeathCause {
            class: parse_text(row, 2, FailureClass::parse)?,
            code: row.get(3)?,
            failure: parse_text(row, 4, AttemptFailure::parse)?,
            shape: row.get(6)?,
        },
        reason: reason(row, 5)?.ok_or_else(|| corrupt_value(5, "NULL"))?,
        count: row.get(7)?,
        first_seen: time(row, 8)?,
        last_seen: time(row, 9)?,
        newest_delivery: id(row, 10)?,
        newest_event: id(row, 11)?,
        sample_detail: row.get(12)?,
        sample_response: row.get::<_, Option<Vec<u8>>>(13)?.unwrap_or_default(),
    })
}

/// Functions for the migration that groups existing dead letters.
///
/// - `dead_shape(reason, class, status, failure, detail, response)`: the shape of the cause; all
///   but the
///   reason are those of the last attempt, or null.
/// - `dead_group(destination, class, status, failure, shape)`: the id of the group.
pub(super) fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("dead_shape", 6, flags, |call| {
        let class = parse_argument(call, 1, FailureClass::parse)?;
        let (status, failure) = (call.get(2)?, parse_argument(call, 3, AttemptFailure::parse)?);
        let detail: Option<String> = call.get(4)?;
        let response: Option<Vec<u8>> = call.get(5)?;
        if class.is_some() {
            let response = response.unwrap_or_default();
            return Ok(dead_letters::shape(status, failure, detail.as_deref(), &response));
        }
        let reason = parse_argument(call, 0, DeadReason::parse)?;
        Ok(DeathCause::without_attempts(reason.unwrap_or(DeadReason::Unrecoverable)).shape)
    })?;
    connection.create_scalar_function("dead_group", 5, flags, |call| {
        let destination = DestinationId::from_uuid(Uuid::from_bytes(call.get(0)?));
        let class = parse_argument(call, 1, FailureClass::parse)?;
        let failure = parse_argument(call, 3, AttemptFailure::parse)?;
        let cause = DeathCause { class, code: call.get(2)?, failure, shape: call.get(4)? };
        Ok(blob(cause.group_id(destination)).to_vec())
    })
}

fn parse_argument<T>(
    call: &Context<'_>,
    at: usize,
    from_word: fn(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    Ok(call.get::<Option<String>>(at)?.as_deref().and_then(from_word))
}

#[cfg(test)]
mod tests {
    use surehook_types::ids::{GroupId, SourceId};

    use super::{super::schema::query_plan, *};

    #[test]
    fn no_group_list_scans_a_table_or_sorts() {
        let nil = Uuid::nil();
        let destination = Some(DestinationId::from_uuid(nil));
        let source = Some(SourceId::from_uuid(nil));
        let cursor = DeadLetterGroupCursor {
            last_seen: Timestamp::from_millis(1),
            id: GroupId::from_uuid(nil),
        };
        let all = DeadLetterGroupFilter::default();
        let cases = [
            (all, "dead_groups_by_time"),
            (DeadLetterGroupFilter { destination, ..all }, "dead_groups_by_destination"),
            (DeadLetterGroupFilter { source, ..all }, "dead_groups_by_time"),
            (DeadLetterGroupFilter { destination, source, ..all }, "dead_groups_by_destination"),
            (
                DeadLetterGroupFilter { id: Some(cursor.id), ..all },
                "sqlite_autoindex_dead_groups_1",
            ),
        ];
        for (filter, index) in cases {
            for after in [None, Some(cursor)] {
                let steps = query_plan(&build_query(filter, after, 10).0);
                assert!(steps[0].contains(index), "{filter:?} {steps:#?}");
                let is_cheap = |step: &String| {
                    !step.contains("TEMP B-TREE")
                        && !step.starts_with("SCAN d")
                        && !step.starts_with("SCAN n USING")
                        && !step.starts_with("SCAN a")
                };
                assert!(steps[1..].iter().all(is_cheap), "{filter:?} {steps:#?}");
                let newest = "SEARCH n USING COVERING INDEX deliveries_by_group (dead_group=?)";
                assert!(steps.iter().any(|step| step == newest), "{filter:?} {steps:#?}");
            }
        }
    }
}
