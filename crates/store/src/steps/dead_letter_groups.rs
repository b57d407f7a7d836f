//! Dead letters grouped by cause: each dead delivery refers to its group, each group counts its
//! deliveries.
//!
//! Both change, with the counts, in the transaction that moves the delivery, only through [`add_delivery`] and
//! [`remove_delivery`]. A group without deliveries is deleted.

use surehook_core::{
    dead_letters::{
        DeadLetterCause, DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter,
        GROUP_SCAN_MAX, SAMPLE_BYTES_MAX,
    },
    store::{ListPage, PageRequest},
};
use surehook_retry::{AttemptFailure, DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, DestinationId},
    time::Timestamp,
};
use surehook_webhooks::key::{DedupKey, KeyDigest, KeyNamespace};

use super::{
    StepTransaction,
    list::{HAS_SOURCE, ListTable, SqlListQuery},
    row::{blob, id, optional_text, text, time},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

const ADD_TO_GROUP: &str = "
    INSERT INTO dead_groups (id, destination, class, code, failure, reason, shape, count, first_seen,
                             last_seen)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?8)
    ON CONFLICT (id) DO UPDATE
       SET count = dead_groups.count + 1,
           reason = CASE WHEN ?8 >= dead_groups.last_seen THEN ?6 ELSE dead_groups.reason END,
           first_seen = CASE WHEN ?8 < dead_groups.first_seen THEN ?8 ELSE dead_groups.first_seen END,
           last_seen = CASE WHEN ?8 > dead_groups.last_seen THEN ?8 ELSE dead_groups.last_seen END
    RETURNING seq";
const SET_GROUP: &str = "UPDATE deliveries SET dead_group = ?2 WHERE id = ?1";
const DESTINATION_ID: &str = "SELECT id FROM destinations WHERE seq = ?1";

/// Adds a delivery that has just died to the counts and to the group of its cause, and removes the
/// key of its event from the cache: a duplicate of the event must reach the database, where it can
/// revive it. `destination` is a row number.
pub(crate) fn add_delivery(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    destination: i64,
    cause: &DeadLetterCause,
    reason: DeadReason,
    at: Timestamp,
) -> Result<()> {
    tx.counts().count_death(reason, destination, at);
    let destination_id: DestinationId =
        tx.read_one(DESTINATION_ID, params![destination], |row| id(row, 0))?;
    let values = params![
        blob(cause.group_id(destination_id)),
        destination,
        cause.class.map(FailureClass::as_str),
        cause.http_status,
        cause.failure.map(AttemptFailure::as_str),
        reason.as_str(),
        cause.shape,
        at.as_millis(),
    ];
    let group: i64 = tx.read_one(ADD_TO_GROUP, values, |row| row.get(0))?;
    tx.run(SET_GROUP, params![blob(delivery), group])?;
    uncache_key(tx, delivery)
}

const KEY_OF_DELIVERY: &str = "
    SELECT s.id, e.key FROM deliveries d
      JOIN events e ON e.id = d.event_id JOIN sources s ON s.seq = e.source
     WHERE d.id = ?1 AND e.key IS NOT NULL";

fn uncache_key(tx: &mut impl StepTransaction, delivery: DeliveryId) -> Result<()> {
    let read = |row: &dyn SqlRow| Ok((id(row, 0)?, row.get::<String>(1)?));
    let source_and_key = tx.find_one(KEY_OF_DELIVERY, params![blob(delivery)], read)?;
    if let Some((source, key)) = source_and_key
        && let Some(key) = DedupKey::new(&key)
    {
        for namespace in [KeyNamespace::Body, KeyNamespace::Header] {
            tx.uncache_key(KeyDigest::in_namespace(source, namespace, &key));
        }
    }
    Ok(())
}

const GROUP_OF: &str = "SELECT dead_group FROM deliveries WHERE id = ?1 AND dead_group IS NOT NULL";
const CLEAR_GROUP: &str = "UPDATE deliveries SET dead_group = NULL WHERE id = ?1";
const SUBTRACT_FROM_GROUP: &str =
    "UPDATE dead_groups SET count = count - 1 WHERE seq = ?1 RETURNING count";
const DELETE_GROUP: &str = "DELETE FROM dead_groups WHERE seq = ?1";

/// Removes a delivery that is no longer dead, or is about to be deleted, from the counts and from
/// its group.
pub(crate) fn remove_delivery(
    tx: &mut impl StepTransaction,
    delivery: DeliveryId,
    reason: DeadReason,
) -> Result<()> {
    tx.counts().change_dead_count(reason, -1);
    let key = params![blob(delivery)];
    let group: Option<i64> = tx.find_one(GROUP_OF, key, |row| row.get(0))?;
    let Some(group) = group else { return Ok(()) };
    tx.run(CLEAR_GROUP, key)?;
    let count: i64 = tx.read_one(SUBTRACT_FROM_GROUP, params![group], |row| row.get(0))?;
    if count == 0 {
        tx.run(DELETE_GROUP, params![group])?;
    }
    Ok(())
}

/// Groups read for one page if not all of them match.
const SCAN_MAX: usize = 500;

// The newest delivery is looked up, not stored: it may be replayed while others of its group stay.
const GROUP_TABLE: ListTable<'_> = ListTable {
    columns: "g.id, t.id, g.class, g.code, g.failure, g.reason, g.shape, g.count, g.first_seen,
              g.last_seen, d.id, d.event_id, a.detail",
    from: "dead_groups g CROSS JOIN destinations t CROSS JOIN deliveries d
           LEFT JOIN attempts a ON a.delivery_id = d.id AND a.number = d.attempts",
    order_by: "g.last_seen DESC, g.id DESC",
};

const GROUP_JOINS: [&str; 2] = [
    "t.seq = g.destination",
    "d.id = (SELECT n.id FROM deliveries n WHERE n.dead_group = g.seq ORDER BY n.id DESC LIMIT 1)",
];

/// Implements `AdminStore::list_dead_letter_groups`.
pub(crate) fn list(
    connection: &impl SqlConnection,
    filter: DeadLetterGroupFilter,
    page: PageRequest<DeadLetterGroupCursor>,
) -> Result<ListPage<DeadLetterGroup, DeadLetterGroupCursor>> {
    let columns = &format!("{}, substr(a.response, 1, {SAMPLE_BYTES_MAX})", GROUP_TABLE.columns);
    let table = ListTable { columns, ..GROUP_TABLE };
    let read_cursor =
        |row: &dyn SqlRow| Ok(DeadLetterGroupCursor { last_seen: time(row, 9)?, id: id(row, 0)? });
    let query = build_query(filter, page.after);
    query.read_page(connection, table, page.limit, read_cursor, |row| read_group(row).map(Some))
}

fn build_query(
    filter: DeadLetterGroupFilter,
    after: Option<DeadLetterGroupCursor>,
) -> SqlListQuery {
    let mut query = SqlListQuery::new(SCAN_MAX);
    query.index_conditions.extend(GROUP_JOINS.map(str::to_owned));
    let has_destination = "g.destination = (SELECT seq FROM destinations WHERE id = {})";
    query.narrow(has_destination, filter.destination.map(blob));
    query.narrow("g.id = {}", filter.id.map(blob));
    if let Some(id) = query.bind("{}", after.map(|after| blob(after.id))) {
        let follows = format!("(g.last_seen, g.id) < ({{}}, {id})");
        query.narrow(&follows, after.map(|after| after.last_seen.as_millis()));
    }
    let has_source = format!(
        "EXISTS (SELECT 1 FROM (SELECT event_id FROM deliveries WHERE dead_group = g.seq
                                 ORDER BY id DESC LIMIT {GROUP_SCAN_MAX}) n
                   JOIN events e ON e.id = n.event_id WHERE {HAS_SOURCE})"
    );
    query.filter_rows(&has_source, filter.source.map(blob));
    query
}

fn read_group(row: &dyn SqlRow) -> Result<DeadLetterGroup> {
    Ok(DeadLetterGroup {
        id: id(row, 0)?,
        destination: id(row, 1)?,
        cause: DeadLetterCause {
            class: optional_text(row, 2, FailureClass::parse)?,
            http_status: row.get(3)?,
            failure: optional_text(row, 4, AttemptFailure::parse)?,
            shape: row.get(6)?,
        },
        reason: text(row, 5, DeadReason::parse)?,
        count: row.get(7)?,
        first_seen: time(row, 8)?,
        last_seen: time(row, 9)?,
        newest_delivery: id(row, 10)?,
        newest_event: id(row, 11)?,
        sample_detail: row.get(12)?,
        sample_response: row.get::<Option<Vec<u8>>>(13)?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use surehook_types::ids::{GroupId, SourceId};
    use uuid::Uuid;

    use super::*;
    use crate::sqlite::query_plan;

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
                let ListTable { columns, from, order_by } = GROUP_TABLE;
                let select = build_query(filter, after).select(columns, from);
                let steps = query_plan(&format!("{select} ORDER BY {order_by} LIMIT 10"));
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
