//! Lists, newest first, page by page; those of events are in `list_events`.
//!
//! A list is narrowed in two ways. What an index serves (the time, the source, the destination, the
//! event, what is dead, of which group, what waits, a kind or an attribute) is found without looking at anything else. Everything else is
//! asked of each row on the way, newest first, and a page gives up after [`LOOKS_MAX`] rows: it may
//! be short, and says where the next one goes on.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, params_from_iter, types::Value};
use surehook_core::{
    delivery::state::DeliveryStatus,
    ids::{DeliveryId, EventId, Id, IdKind},
    store::{DeliveryFilter, DeliveryRow, ListPage, PageRequest},
    time::Timestamp,
};

use super::{
    lanes::{holds, shown_status},
    row::{self, DELIVERY_COLUMNS, blob, hex_list, id},
};

/// Rows that a page looks at, at most.
pub(super) const LOOKS_MAX: usize = 10_000;

/// A query that is being put together.
pub(super) struct Query {
    /// The ids of the list: before the first, and from the second on.
    pub(super) range: [[u8; 16]; 2],
    /// What an index serves.
    narrow: String,
    /// What is asked of each row.
    wanted: String,
    pub(super) values: Vec<Value>,
    pub(super) looks_max: usize,
    /// Whoever reads the rows may not want all of them.
    pub(super) is_picky: bool,
}

impl Query {
    /// Before `page`, and within the times.
    pub(super) fn within<K: IdKind>(
        page: PageRequest<Id<K>>,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        column: &str,
    ) -> Self {
        let [top, bottom] = id_range(page.after, since, until);
        let mut query = Self {
            range: [top, bottom],
            narrow: "1".to_owned(),
            wanted: String::new(),
            values: Vec::new(),
            looks_max: LOOKS_MAX,
            is_picky: false,
        };
        query.narrow(&format!("{column} < {{}}"), top.to_vec());
        if since.is_some() {
            query.narrow(&format!("{column} >= {{}}"), bottom.to_vec());
        }
        query
    }

    pub(super) fn place(&mut self, clause: &str, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        clause.replace("{}", &format!("?{}", self.values.len()))
    }

    pub(super) fn narrow(&mut self, clause: &str, value: impl Into<Value>) {
        let clause = self.place(clause, value);
        self.narrow = format!("{} AND {clause}", self.narrow);
    }

    pub(super) fn want(&mut self, clause: &str, value: impl Into<Value>) {
        let clause = self.place(clause, value);
        self.want_placed(&clause);
    }

    /// Wants something whose values are in their places.
    pub(super) fn want_placed(&mut self, clause: &str) {
        let and = if self.wanted.is_empty() { "" } else { " AND " };
        self.wanted = format!("{}{and}{clause}", self.wanted);
    }

    /// `columns` begin with the id; `from` names the tables.
    pub(super) fn select(&self, columns: &str, from: &str) -> String {
        let wanted = if self.wanted.is_empty() { "1" } else { &self.wanted };
        let narrow = &self.narrow;
        format!("SELECT {columns}, coalesce({wanted}, 0) AS wanted FROM {from} WHERE {narrow}")
    }

    /// Runs it. `read` says nothing of a row that it does not want after all.
    pub(super) fn run<R, K: IdKind>(
        mut self,
        connection: &Connection,
        (columns, from, order): (&str, &str, &str),
        page: PageRequest<Id<K>>,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<Option<R>>,
    ) -> rusqlite::Result<ListPage<R, Id<K>>> {
        // Where every row is wanted, the page itself is the bound.
        let wants_all = self.wanted.is_empty() && !self.is_picky;
        let looks_max = if wants_all { page.limit } else { self.looks_max };
        let limit = self.place("{}", i64::try_from(looks_max).unwrap_or(i64::MAX));
        let select = self.select(columns, from);
        let sql = format!("{select} ORDER BY {order} DESC LIMIT {limit}");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(self.values))?;
        let (mut rows, mut last, mut looks) = (Vec::new(), None, 0);
        while rows.len() < page.limit
            && let Some(row) = found.next()?
        {
            looks += 1;
            last = Some(id(row, 0)?);
            if row.get("wanted")? {
                rows.extend(read(row)?);
            }
        }
        let more = rows.len() == page.limit || looks == looks_max;
        Ok(ListPage { rows, next: last.filter(|_| more), looks, last })
    }
}

const OF_EVENTS: &str = "json_each(?1) j
    CROSS JOIN deliveries d INDEXED BY deliveries_by_event ON d.event_id = unhex(j.value)
    JOIN destinations t ON t.seq = d.destination";

/// See `AdminStore::deliveries_of`.
pub(super) fn deliveries_of(
    connection: &Connection,
    events: &[EventId],
) -> rusqlite::Result<Vec<DeliveryRow>> {
    let ids: BTreeSet<[u8; 16]> = events.iter().map(|event| blob(*event)).collect();
    let sql = of_events();
    let mut found = connection.prepare_cached(&sql)?;
    found.query_map([hex_list(ids.iter().map(|id| &id[..]))], row::delivery)?.collect()
}

pub(super) fn of_events() -> String {
    format!("SELECT {DELIVERY_COLUMNS} FROM {OF_EVENTS} ORDER BY d.id")
}

/// The ids of a list: before the first, and from the second on.
pub(super) fn id_range<K: IdKind>(
    after: Option<Id<K>>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
) -> [[u8; 16]; 2] {
    // Ids begin with the time, and before the newest possible one means "from the top".
    let edge = |at: Timestamp| first_of(blob(Id::<K>::new(at, 0)));
    let top = after.map_or([0xff; 16], blob);
    [until.map_or(top, |at| top.min(edge(at))), since.map_or([0; 16], edge)]
}

/// The smallest id of the millisecond that `id` is of.
pub(super) fn first_of(mut id: [u8; 16]) -> [u8; 16] {
    id[6..].fill(0);
    id
}

pub(super) const SOURCE_SEQ: &str = "(SELECT seq FROM sources WHERE id = {})";

/// See `AdminStore::deliveries`.
pub(super) fn deliveries(
    connection: &Connection,
    filter: DeliveryFilter,
    page: PageRequest<DeliveryId>,
) -> rusqlite::Result<ListPage<DeliveryRow, DeliveryId>> {
    let mut query = Query::within(page, filter.since, filter.until, "d.id");
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
        // All of them are dead. Spelled out, because left alone SQLite may take another index.
        (Some(_), None | Some(DeliveryStatus::Dead)) => "INDEXED BY deliveries_by_group",
        (_, Some(status)) => of_status(&mut query, status, connection)?,
        (None, None) => "",
    };
    if let Some(reason) = filter.reason {
        query.want("d.reason = {}", reason.as_str().to_owned());
    }
    if let Some(source) = filter.source {
        let of_event = "(SELECT e.source FROM events e WHERE e.id = d.event_id)";
        query.want(&format!("{of_event} = {SOURCE_SEQ}"), blob(source).to_vec());
    }
    if let Some(kind) = filter.kind {
        let of_event = "(SELECT e.kind FROM events e WHERE e.id = d.event_id)";
        query.want(&format!("{of_event} = {{}}"), kind.as_str().to_owned());
    }
    if let Some(class) = filter.class {
        query.want(LAST_HAS_CLASS, class.as_str().to_owned());
    }
    if let Some(code) = filter.code {
        let (low, high) = code.range();
        query.want(LAST_HAS_CODE_FROM, i64::from(low));
        query.want(LAST_HAS_CODE_TO, i64::from(high));
    }
    let tables = format!("deliveries d {index} JOIN destinations t ON t.seq = d.destination");
    query.run(connection, (DELIVERY_COLUMNS, &tables, "d.id"), page, |found| {
        row::delivery(found).map(Some)
    })
}

// Of the last attempt of a delivery `d`.
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

pub(super) const IS_SHOWN_AS: &str = concat!(shown_status!(), " = {}");

// Each part by the index that holds it: what waits for its turn, and what waits for a destination
// that is paused or left alone.
pub(super) const HELD: &str = concat!(
    "SELECT id FROM deliveries INDEXED BY deliveries_line
      WHERE order_key IS NOT NULL AND ended_at IS NULL AND state = 'held'
      UNION ALL
     SELECT w.id FROM lane_states l
       CROSS JOIN deliveries w INDEXED BY deliveries_due ON w.destination = l.destination
      WHERE w.due_at IS NOT NULL AND ",
    holds!()
);

/// Narrows by status; says which index `SQLite` must take.
///
/// What waits or runs has an index, but not in the order of the list. While there are few, all of
/// them are looked at and sorted; when there are many, they are among the newest rows anyway.
fn of_status(
    query: &mut Query,
    status: DeliveryStatus,
    connection: &Connection,
) -> rusqlite::Result<&'static str> {
    let word = status.as_str().to_owned();
    let (index, few, narrow) = match status {
        // Spelled out, because a partial index is only used for the words it was made with.
        DeliveryStatus::Dead => {
            query.narrow("d.state = 'dead' AND d.state = {}", word);
            return Ok("");
        }
        DeliveryStatus::Pending | DeliveryStatus::Scheduled => (
            "INDEXED BY deliveries_due",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL",
            format!("d.due_at IS NOT NULL AND {IS_SHOWN_AS}"),
        ),
        DeliveryStatus::InFlight => (
            "INDEXED BY deliveries_leased",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_leased WHERE lease_until IS NOT NULL",
            "d.lease_until IS NOT NULL AND d.state = {}".to_owned(),
        ),
        DeliveryStatus::Held => ("", HELD, format!("d.id IN ({HELD}) AND {IS_SHOWN_AS}")),
        DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
            query.want("d.state = {}", word);
            return Ok("");
        }
    };
    let sql = format!("SELECT count(*) FROM ({few} LIMIT {LOOKS_MAX})");
    let waiting: usize = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    if waiting == LOOKS_MAX {
        query.want(IS_SHOWN_AS, word);
        return Ok("");
    }
    query.narrow(&narrow, word);
    Ok(index)
}
