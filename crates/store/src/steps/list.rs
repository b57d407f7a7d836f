//! Lists of deliveries, newest first, in pages, and the query builder of all lists.
//!
//! Conditions that an index serves (time, source, destination, event, dead, group, pending, kind,
//! attribute) narrow the rows that are read. Other conditions are checked on each row, newest
//! first, and a page ends after [`SCAN_MAX`] rows: it may be short, and returns where the next one
//! continues.

use std::{collections::BTreeSet, ops::ControlFlow};

use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::StatusPattern,
    store::{DeliveryFilter, DeliveryRow, ListPage, PageRequest},
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DeliveryId, EventId, Id, IdKind},
    time::Timestamp,
};

use super::{
    displayed_status::{displayed_status, is_holding},
    row::{self, DELIVERY_COLUMNS, blob, id, id_list},
};
use crate::sql::{Dialect, Result, SqlConnection, SqlParameter, SqlRow, params};

/// Rows read for one page.
pub(crate) const SCAN_MAX: usize = 10_000;

/// A range of ids: below `top`, from `bottom` on.
#[derive(Clone, Copy)]
pub(crate) struct IdRange {
    pub(crate) top: [u8; 16],
    pub(crate) bottom: [u8; 16],
}

impl IdRange {
    pub(crate) const ALL: Self = Self { top: [0xff; 16], bottom: [0; 16] };

    /// The ids of a list that follow `after`, within a time span.
    pub(crate) fn new<K: IdKind>(
        after: Option<Id<K>>,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Self {
        // Ids begin with their time.
        let edge = |at: Timestamp| first_id_of_millisecond(blob(Id::<K>::new(at, 0)));
        let top = after.map_or(Self::ALL.top, blob);
        Self {
            top: until.map_or(top, |at| top.min(edge(at))),
            bottom: since.map_or(Self::ALL.bottom, edge),
        }
    }

    pub(crate) fn contains(&self, id: [u8; 16]) -> bool {
        id < self.top && id >= self.bottom
    }
}

/// The columns, tables and order of a list.
#[derive(Clone, Copy)]
pub(crate) struct ListTable<'a> {
    pub(crate) columns: &'a str,
    pub(crate) from: &'a str,
    pub(crate) order_by: &'a str,
}

/// A list query under construction. In a condition, `{}` stands for its value.
pub(crate) struct SqlListQuery {
    /// Conditions that an index serves.
    pub(crate) index_conditions: Vec<String>,
    /// Conditions checked on each row.
    pub(crate) row_conditions: Vec<String>,
    pub(crate) values: Vec<Box<dyn SqlParameter>>,
    pub(crate) scan_max: usize,
    /// The caller filters rows as well.
    pub(crate) has_row_filter: bool,
}

impl SqlListQuery {
    /// A query without conditions, which scans up to `scan_max` rows.
    pub(crate) fn new(scan_max: usize) -> Self {
        Self {
            index_conditions: Vec::new(),
            row_conditions: Vec::new(),
            values: Vec::new(),
            scan_max,
            has_row_filter: false,
        }
    }

    /// The rows whose id, which is in `column`, is in a range.
    pub(crate) fn in_range(column: &str, range: IdRange) -> Self {
        let mut query = Self::new(SCAN_MAX);
        query.narrow(&format!("{column} < {{}}"), Some(range.top));
        let bottom = Some(range.bottom).filter(|bottom| *bottom != IdRange::ALL.bottom);
        query.narrow(&format!("{column} >= {{}}"), bottom);
        query
    }

    /// Binds the value of a condition, if there is one.
    pub(crate) fn bind(
        &mut self,
        condition: &str,
        value: Option<impl SqlParameter + 'static>,
    ) -> Option<String> {
        self.values.push(Box::new(value?));
        Some(condition.replace("{}", &format!("?{}", self.values.len())))
    }

    /// Adds a condition that an index serves, if it has a value.
    pub(crate) fn narrow(&mut self, condition: &str, value: Option<impl SqlParameter + 'static>) {
        let condition = self.bind(condition, value);
        self.index_conditions.extend(condition);
    }

    /// Adds a condition that is checked on each row, if it has a value.
    pub(crate) fn filter_rows(
        &mut self,
        condition: &str,
        value: Option<impl SqlParameter + 'static>,
    ) {
        let condition = self.bind(condition, value);
        self.row_conditions.extend(condition);
    }

    /// The statement without its order. Its last column tells whether the row matches.
    pub(crate) fn select(&self, columns: &str, from: &str) -> String {
        let all = |conditions: &[String]| match conditions {
            [] => "TRUE".to_owned(),
            conditions => conditions.join(" AND "),
        };
        let (matches, within) = (all(&self.row_conditions), all(&self.index_conditions));
        format!(
            "SELECT {columns}, coalesce({matches}, FALSE) AS matches FROM {from} WHERE {within}"
        )
    }

    pub(crate) fn parameters(&self) -> Vec<&dyn SqlParameter> {
        self.values.iter().map(Box::as_ref).collect()
    }

    /// Reads a page. `read` returns `None` for a row that the caller filters out.
    pub(crate) fn read_page<R, C: Copy>(
        mut self,
        connection: &impl SqlConnection,
        table: ListTable<'_>,
        page_limit: usize,
        read_cursor: impl Fn(&dyn SqlRow) -> Result<C>,
        mut read: impl FnMut(&dyn SqlRow) -> Result<Option<R>>,
    ) -> Result<ListPage<R, C>> {
        // Without a row filter, the page size is the limit.
        let returns_all = self.row_conditions.is_empty() && !self.has_row_filter;
        let scan_max = if returns_all { page_limit } else { self.scan_max };
        self.values.push(Box::new(i64::try_from(scan_max).unwrap_or(i64::MAX)));
        let select = self.select(table.columns, table.from);
        let sql = format!("{select} ORDER BY {} LIMIT ?{}", table.order_by, self.values.len());
        let (mut rows, mut last, mut rows_scanned) = (Vec::new(), None, 0);
        connection.read_while(&sql, &self.parameters(), |row| {
            if rows.len() == page_limit {
                return Ok(ControlFlow::Break(()));
            }
            rows_scanned += 1;
            last = Some(read_cursor(row)?);
            if is_match(row)? {
                rows.extend(read(row)?);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let has_more = rows.len() == page_limit || rows_scanned == scan_max;
        Ok(ListPage { rows, next: last.filter(|_| has_more), rows_scanned, last })
    }
}

/// Whether a row of [`SqlListQuery::select`] matches the conditions that are checked on each row.
pub(crate) fn is_match(row: &dyn SqlRow) -> Result<bool> {
    row.get(row.column_count() - 1)
}

/// Implements `AdminStore::list_deliveries_of`.
pub(crate) fn list_for_events(
    connection: &impl SqlConnection,
    events: &[EventId],
) -> Result<Vec<DeliveryRow>> {
    let ids: BTreeSet<[u8; 16]> = events.iter().map(|event| blob(*event)).collect();
    of_listed_events(connection, &ids)
}

fn of_listed_events<C: SqlConnection>(
    connection: &C,
    ids: &BTreeSet<[u8; 16]>,
) -> Result<Vec<DeliveryRow>> {
    connection.read_all(&delivery_query::<C::Dialect>(), params![id_list(ids)], row::delivery)
}

pub(crate) fn delivery_query<D: Dialect>() -> String {
    let (list, id) = (D::ID_LIST, D::LISTED_ID);
    format!(
        "SELECT {DELIVERY_COLUMNS} FROM {list}
          CROSS JOIN deliveries d INDEXED BY deliveries_by_event
          JOIN destinations t ON t.seq = d.destination
         WHERE d.event_id = {id} ORDER BY d.id"
    )
}

/// The smallest id of the same millisecond.
pub(crate) fn first_id_of_millisecond(mut id: [u8; 16]) -> [u8; 16] {
    id[6..].fill(0);
    id
}

// Conditions on events `e` and deliveries `d`.
pub(crate) const HAS_SOURCE: &str = "e.source = (SELECT seq FROM sources WHERE id = {})";
pub(crate) const HAS_DESTINATION: &str =
    "d.destination = (SELECT seq FROM destinations WHERE id = {})";
pub(crate) const IS_IN_GROUP: &str = "d.dead_group = (SELECT seq FROM dead_groups WHERE id = {})";

/// Implements `AdminStore::list_deliveries`.
pub(crate) fn list_deliveries(
    connection: &impl SqlConnection,
    filter: DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> Result<ListPage<DeliveryRow, DeliveryId>> {
    let range = IdRange::new(page.after, filter.since, filter.until);
    let mut query = SqlListQuery::in_range("d.id", range);
    query.narrow(HAS_DESTINATION, filter.destination.map(blob));
    query.narrow(IS_IN_GROUP, filter.group.map(blob));
    query.narrow("d.event_id = {}", filter.event.map(blob));
    let index = match (filter.group, filter.status) {
        // INDEXED BY: SQLite may choose a worse index.
        (Some(_), None | Some(DeliveryStatus::Dead)) => "INDEXED BY deliveries_by_group",
        (_, Some(status)) => narrow_by_status(&mut query, status, connection)?,
        (None, None) => "",
    };
    let of_event = |condition: &str| {
        format!("EXISTS (SELECT 1 FROM events e WHERE e.id = d.event_id AND {condition})")
    };
    query.filter_rows("d.reason = {}", filter.reason.map(DeadReason::as_str));
    query.filter_rows(&of_event(HAS_SOURCE), filter.source.map(blob));
    let kind = filter.kind.map(|kind| kind.as_str().to_owned());
    query.filter_rows(&of_event("e.kind = {}"), kind);
    query.filter_rows(LAST_HAS_CLASS, filter.class.map(FailureClass::as_str));
    let code = filter.code.map(StatusPattern::range);
    query.filter_rows(LAST_HAS_CODE_FROM, code.map(|(low, _)| low));
    query.filter_rows(LAST_HAS_CODE_TO, code.map(|(_, high)| high));
    let from = &format!("deliveries d {index} JOIN destinations t ON t.seq = d.destination");
    let table = ListTable { columns: DELIVERY_COLUMNS, from, order_by: "d.id DESC" };
    query.read_page(
        connection,
        table,
        page.limit,
        |row| id(row, 0),
        |row| row::delivery(row).map(Some),
    )
}

// A condition on the last attempt of a delivery `d`.
macro_rules! last_attempt {
    ($clause:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM attempts a WHERE a.delivery_id = d.id
                        AND a.number = d.attempts AND ",
            $clause,
            ")"
        )
    };
}
pub(crate) const LAST_HAS_CLASS: &str = last_attempt!("a.class = {}");
pub(crate) const LAST_HAS_CODE_FROM: &str = last_attempt!("a.status >= {}");
pub(crate) const LAST_HAS_CODE_TO: &str = last_attempt!("a.status <= {}");

pub(crate) const HAS_DISPLAYED_STATUS: &str = concat!(displayed_status!(), " = {}");

// Each part by its own index: deliveries held by their ordering queue, and those held by a lane
// that is paused or whose circuit is open.
pub(crate) const HELD: &str = concat!(
    "SELECT id FROM deliveries INDEXED BY deliveries_line
      WHERE order_key IS NOT NULL AND ended_at IS NULL AND state = 'held'
      UNION ALL
     SELECT w.id FROM lane_states l
       CROSS JOIN deliveries w INDEXED BY deliveries_due
      WHERE w.destination = l.destination AND w.due_at IS NOT NULL AND ",
    is_holding!()
);

/// Narrows by status; returns the index that SQLite must use.
///
/// Unfinished deliveries have an index, but not in list order. A small number of them is read and
/// sorted; a large number is among the newest rows anyway.
fn narrow_by_status(
    query: &mut SqlListQuery,
    status: DeliveryStatus,
    connection: &impl SqlConnection,
) -> Result<&'static str> {
    let value = Some(status.as_str());
    let (index, probe, narrow) = match status {
        // The literal is needed: SQLite uses a partial index only for a condition with the same
        // literal. PostgreSQL has no index by state, but lists what is in a group.
        DeliveryStatus::Dead => {
            let conditions = ["d.state = 'dead'", "d.dead_group IS NOT NULL"];
            query.index_conditions.extend(conditions.map(str::to_owned));
            return Ok("");
        }
        DeliveryStatus::Pending | DeliveryStatus::Scheduled => (
            "INDEXED BY deliveries_due",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL",
            format!("d.due_at IS NOT NULL AND {HAS_DISPLAYED_STATUS}"),
        ),
        DeliveryStatus::InFlight => (
            "INDEXED BY deliveries_leased",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_leased WHERE lane_epoch IS NOT NULL",
            "d.lane_epoch IS NOT NULL AND d.state = {}".to_owned(),
        ),
        DeliveryStatus::Held => ("", HELD, format!("d.id IN ({HELD}) AND {HAS_DISPLAYED_STATUS}")),
        DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
            query.filter_rows("d.state = {}", value);
            return Ok("");
        }
    };
    let sql = format!("SELECT count(*) FROM ({probe} LIMIT {SCAN_MAX}) AS waiting");
    let waiting: usize = connection.read_one(&sql, params![], |row| row.get(0))?;
    if waiting == SCAN_MAX {
        query.filter_rows(HAS_DISPLAYED_STATUS, value);
        return Ok("");
    }
    query.narrow(&narrow, value);
    Ok(index)
}
