//! Lists of deliveries, newest first, in pages, and the query builder of all lists.
//!
//! Conditions that an index serves (time, source, destination, event, dead, group, pending, kind,
//! attribute) narrow the rows that are read. Other conditions are checked on each row, newest
//! first, and a page ends after [`SCAN_MAX`] rows: it may be short, and returns where the next one
//! continues.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, params_from_iter, types::Value};
use surehook_core::{
    delivery::state::DeliveryStatus,
    store::{DeliveryFilter, DeliveryRow, ListPage, PageRequest},
};
use surehook_types::{
    ids::{DeliveryId, EventId, Id, IdKind},
    time::Timestamp,
};

use super::{
    lanes::{displayed_status, is_holding},
    row::{self, DELIVERY_COLUMNS, blob, hex_json_list, id},
};

/// Rows read for one page.
pub(super) const SCAN_MAX: usize = 10_000;

/// A range of ids: below `top`, from `bottom` on.
#[derive(Clone, Copy)]
pub(super) struct IdRange {
    pub(super) top: [u8; 16],
    pub(super) bottom: [u8; 16],
}

impl IdRange {
    pub(super) const ALL: Self = Self { top: [0xff; 16], bottom: [0; 16] };

    /// The ids of a list that follow `after`, within a time span.
    pub(super) fn new<K: IdKind>(
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

    pub(super) fn contains(&self, id: [u8; 16]) -> bool {
        id < self.top && id >= self.bottom
    }
}

/// What a list selects from.
#[derive(Clone, Copy)]
pub(super) struct ListTable<'a> {
    /// Begin with the id.
    pub(super) columns: &'a str,
    pub(super) from: &'a str,
    pub(super) order_by: &'a str,
}

/// A list query under construction.
pub(super) struct SqlListQuery {
    pub(super) range: IdRange,
    /// Conditions that an index serves.
    narrow: String,
    /// Conditions checked on each row.
    row_filter: String,
    pub(super) values: Vec<Value>,
    pub(super) scan_max: usize,
    /// The caller filters rows as well.
    pub(super) has_row_filter: bool,
}

impl SqlListQuery {
    /// The rows after `page.after`, within a time span.
    pub(super) fn for_page<K: IdKind>(
        page: PageRequest<Id<K>>,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        column: &str,
    ) -> Self {
        let range = IdRange::new(page.after, since, until);
        let mut query = Self {
            range,
            narrow: "1".to_owned(),
            row_filter: String::new(),
            values: Vec::new(),
            scan_max: SCAN_MAX,
            has_row_filter: false,
        };
        query.narrow(&format!("{column} < {{}}"), range.top.to_vec());
        if since.is_some() {
            query.narrow(&format!("{column} >= {{}}"), range.bottom.to_vec());
        }
        query
    }

    pub(super) fn bind(&mut self, clause: &str, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        clause.replace("{}", &format!("?{}", self.values.len()))
    }

    pub(super) fn narrow(&mut self, clause: &str, value: impl Into<Value>) {
        let clause = self.bind(clause, value);
        self.narrow = format!("{} AND {clause}", self.narrow);
    }

    pub(super) fn filter_rows(&mut self, clause: &str, value: impl Into<Value>) {
        let clause = self.bind(clause, value);
        self.filter_rows_bound(&clause);
    }

    /// Adds a condition whose values are already bound.
    pub(super) fn filter_rows_bound(&mut self, clause: &str) {
        let and = if self.row_filter.is_empty() { "" } else { " AND " };
        self.row_filter = format!("{}{and}{clause}", self.row_filter);
    }

    /// `columns` must begin with the id.
    pub(super) fn select(&self, columns: &str, from: &str) -> String {
        let row_filter = if self.row_filter.is_empty() { "1" } else { &self.row_filter };
        let narrow = &self.narrow;
        format!("SELECT {columns}, coalesce({row_filter}, 0) AS matches FROM {from} WHERE {narrow}")
    }

    /// Runs the query. `read` returns `None` for a row that the caller filters out.
    pub(super) fn run<R, K: IdKind>(
        mut self,
        connection: &Connection,
        table: ListTable<'_>,
        page: PageRequest<Id<K>>,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<Option<R>>,
    ) -> rusqlite::Result<ListPage<R, Id<K>>> {
        // Without a row filter, the page size is the limit.
        let returns_all = self.row_filter.is_empty() && !self.has_row_filter;
        let scan_max = if returns_all { page.limit } else { self.scan_max };
        let limit = self.bind("{}", i64::try_from(scan_max).unwrap_or(i64::MAX));
        let select = self.select(table.columns, table.from);
        let sql = format!("{select} ORDER BY {} DESC LIMIT {limit}", table.order_by);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(self.values))?;
        let (mut rows, mut last, mut looks) = (Vec::new(), None, 0);
        while rows.len() < page.limit
            && let Some(row) = found.next()?
        {
            looks += 1;
            last = Some(id(row, 0)?);
            if row.get("matches")? {
                rows.extend(read(row)?);
            }
        }
        let more = rows.len() == page.limit || looks == scan_max;
        Ok(ListPage { rows, next: last.filter(|_| more), rows_scanned: looks, last })
    }
}

const FROM_EVENTS: &str = "json_each(?1) j
    CROSS JOIN deliveries d INDEXED BY deliveries_by_event ON d.event_id = unhex(j.value)
    JOIN destinations t ON t.seq = d.destination";

/// Implements `AdminStore::list_deliveries_of`.
pub(super) fn list_for_events(
    connection: &Connection,
    events: &[EventId],
) -> rusqlite::Result<Vec<DeliveryRow>> {
    let ids: BTreeSet<[u8; 16]> = events.iter().map(|event| blob(*event)).collect();
    let sql = delivery_query();
    let mut found = connection.prepare_cached(&sql)?;
    found.query_map([hex_json_list(ids.iter().map(|id| &id[..]))], row::delivery)?.collect()
}

pub(super) fn delivery_query() -> String {
    format!("SELECT {DELIVERY_COLUMNS} FROM {FROM_EVENTS} ORDER BY d.id")
}

/// The smallest id of the same millisecond.
pub(super) fn first_id_of_millisecond(mut id: [u8; 16]) -> [u8; 16] {
    id[6..].fill(0);
    id
}

pub(super) const SOURCE_SEQ: &str = "(SELECT seq FROM sources WHERE id = {})";

/// Implements `AdminStore::list_deliveries`.
pub(super) fn list_deliveries(
    connection: &Connection,
    filter: DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> rusqlite::Result<ListPage<DeliveryRow, DeliveryId>> {
    let mut query = SqlListQuery::for_page(page, filter.since, filter.until, "d.id");
    if let Some(destination) = filter.destination {
        let clause = "d.destination = (SELECT seq FROM destinations WHERE id = {})";
        query.narrow(clause, blob(destination).to_vec());
    }
    if let Some(group) = filter.group {
        let clause = "d.dead_group = (SELECT seq FROM dead_groups WHERE id = {})";
        query.narrow(clause, blob(group).to_vec());
    }
    if let Some(event) = filter.event {
        query.narrow("d.event_id = {}", blob(event).to_vec());
    }
    let index = match (filter.group, filter.status) {
        // INDEXED BY: SQLite may choose a worse index.
        (Some(_), None | Some(DeliveryStatus::Dead)) => "INDEXED BY deliveries_by_group",
        (_, Some(status)) => narrow_by_status(&mut query, status, connection)?,
        (None, None) => "",
    };
    if let Some(reason) = filter.reason {
        query.filter_rows("d.reason = {}", reason.as_str().to_owned());
    }
    if let Some(source) = filter.source {
        let of_event = "(SELECT e.source FROM events e WHERE e.id = d.event_id)";
        query.filter_rows(&format!("{of_event} = {SOURCE_SEQ}"), blob(source).to_vec());
    }
    if let Some(kind) = filter.kind {
        let of_event = "(SELECT e.kind FROM events e WHERE e.id = d.event_id)";
        query.filter_rows(&format!("{of_event} = {{}}"), kind.as_str().to_owned());
    }
    if let Some(class) = filter.class {
        query.filter_rows(LAST_HAS_CLASS, class.as_str().to_owned());
    }
    if let Some(code) = filter.code {
        let (low, high) = code.range();
        query.filter_rows(LAST_HAS_CODE_FROM, i64::from(low));
        query.filter_rows(LAST_HAS_CODE_TO, i64::from(high));
    }
    let tables = format!("deliveries d {index} JOIN destinations t ON t.seq = d.destination");
    let table = ListTable { columns: DELIVERY_COLUMNS, from: &tables, order_by: "d.id" };
    query.run(connection, table, page, |found| row::delivery(found).map(Some))
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
pub(super) const LAST_HAS_CLASS: &str = last_attempt!("a.class = {}");
pub(super) const LAST_HAS_CODE_FROM: &str = last_attempt!("a.status >= {}");
pub(super) const LAST_HAS_CODE_TO: &str = last_attempt!("a.status <= {}");

pub(super) const HAS_DISPLAYED_STATUS: &str = concat!(displayed_status!(), " = {}");

// Each part by its own index: deliveries held by their ordering queue, and those held by a lane
// that is paused or whose circuit is open.
pub(super) const HELD: &str = concat!(
    "SELECT id FROM deliveries INDEXED BY deliveries_line
      WHERE order_key IS NOT NULL AND ended_at IS NULL AND state = 'held'
      UNION ALL
     SELECT w.id FROM lane_states l
       CROSS JOIN deliveries w INDEXED BY deliveries_due ON w.destination = l.destination
      WHERE w.due_at IS NOT NULL AND ",
    is_holding!()
);

/// Narrows by status; returns the index that SQLite must use.
///
/// Unfinished deliveries have an index, but not in list order. A small number of them is read and
/// sorted; a large number is among the newest rows anyway.
fn narrow_by_status(
    query: &mut SqlListQuery,
    status: DeliveryStatus,
    connection: &Connection,
) -> rusqlite::Result<&'static str> {
    let word = status.as_str().to_owned();
    let (index, probe, narrow) = match status {
        // The literal is needed: SQLite uses a partial index only for a condition with the same
        // literal.
        DeliveryStatus::Dead => {
            query.narrow("d.state = 'dead' AND d.state = {}", word);
            return Ok("");
        }
        DeliveryStatus::Pending | DeliveryStatus::Scheduled => (
            "INDEXED BY deliveries_due",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL",
            format!("d.due_at IS NOT NULL AND {HAS_DISPLAYED_STATUS}"),
        ),
        DeliveryStatus::InFlight => (
            "INDEXED BY deliveries_leased",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_leased WHERE lease_until IS NOT NULL",
            "d.lease_until IS NOT NULL AND d.state = {}".to_owned(),
        ),
        DeliveryStatus::Held => ("", HELD, format!("d.id IN ({HELD}) AND {HAS_DISPLAYED_STATUS}")),
        DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
            query.filter_rows("d.state = {}", word);
            return Ok("");
        }
    };
    let sql = format!("SELECT count(*) FROM ({probe} LIMIT {SCAN_MAX})");
    let waiting: usize = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    if waiting == SCAN_MAX {
        query.filter_rows(HAS_DISPLAYED_STATUS, word);
        return Ok("");
    }
    query.narrow(&narrow, word);
    Ok(index)
}
