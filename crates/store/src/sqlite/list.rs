//! Lists of events and deliveries, newest first, page by page.
//!
//! A list is narrowed in two ways. What an index serves (the time, the source, the destination, the
//! event, what is dead, of which group, what waits, a kind or an attribute) is found without looking at anything else. Everything else is
//! asked of each row on the way, newest first, and a page gives up after [`LOOKS_MAX`] rows: it may
//! be short, and says where the next one goes on.

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter, types::Value};
use surehook_core::{
    attribute::Term,
    delivery::state::Status,
    ids::{DeliveryId, EventId, Id, Kind},
    key::{DedupKey, KeyDigest},
    store::{DeliveryFilter, DeliveryRow, EventFilter, EventRow, Listed, Page},
    time::Timestamp,
};

use super::{
    lanes::{holds, shown_status},
    row::{self, DELIVERY_COLUMNS, EVENT_COLUMNS, blob, id},
    terms::events_with_term,
};

/// Rows that a page looks at, at most.
const LOOKS_MAX: usize = 10_000;
/// The same, where bodies are looked into.
const LOOKS_INTO_BODIES_MAX: usize = 500;
/// Larger bodies are not looked into.
const BODY_BYTES_SEARCHED: u64 = 128 * 1024;

/// A query that is being put together.
struct Query {
    /// The ids of the list: before the first, and from the second on.
    range: [[u8; 16]; 2],
    /// What an index serves.
    narrow: String,
    /// What is asked of each row.
    wanted: String,
    values: Vec<Value>,
    looks_max: usize,
}

impl Query {
    /// Before `page`, and within the times.
    fn within<K: Kind>(
        page: Page<Id<K>>,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        column: &str,
    ) -> Self {
        // Ids begin with the time, and before the newest possible one means "from the top".
        let edge = |at: Timestamp| first_of(blob(Id::<K>::new(at, 0)));
        let top = page.after.map_or([0xff; 16], blob);
        let top = until.map_or(top, |at| top.min(edge(at)));
        let mut query = Self {
            range: [top, since.map_or([0; 16], edge)],
            narrow: "1".to_owned(),
            wanted: String::new(),
            values: Vec::new(),
            looks_max: LOOKS_MAX,
        };
        query.narrow(&format!("{column} < {{}}"), top.to_vec());
        if let Some(at) = since {
            query.narrow(&format!("{column} >= {{}}"), edge(at).to_vec());
        }
        query
    }

    fn place(&mut self, clause: &str, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        clause.replace("{}", &format!("?{}", self.values.len()))
    }

    fn narrow(&mut self, clause: &str, value: impl Into<Value>) {
        let clause = self.place(clause, value);
        self.narrow = format!("{} AND {clause}", self.narrow);
    }

    fn want(&mut self, clause: &str, value: impl Into<Value>) {
        let clause = self.place(clause, value);
        let and = if self.wanted.is_empty() { "" } else { " AND " };
        self.wanted = format!("{}{and}{clause}", self.wanted);
    }

    /// `columns` begin with the id; `from` names the tables.
    fn select(&self, columns: &str, from: &str) -> String {
        let wanted = if self.wanted.is_empty() { "1" } else { &self.wanted };
        let narrow = &self.narrow;
        format!("SELECT {columns}, coalesce({wanted}, 0) AS wanted FROM {from} WHERE {narrow}")
    }

    /// Runs it.
    fn run<R, K: Kind>(
        mut self,
        connection: &Connection,
        (columns, from, order): (&str, &str, &str),
        page: Page<Id<K>>,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<R>,
    ) -> rusqlite::Result<Listed<R, Id<K>>> {
        // Where every row is wanted, the page itself is the bound.
        let looks_max = if self.wanted.is_empty() { page.limit } else { self.looks_max };
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
                rows.push(read(row)?);
            }
        }
        let more = rows.len() == page.limit || looks == looks_max;
        Ok(Listed { rows, next: last.filter(|_| more) })
    }

    /// Runs it over the events that a term may belong to. Each is looked up by itself, so that
    /// only as many are taken from the index as the page needs.
    fn run_by_term(
        mut self,
        connection: &Connection,
        term: Term,
        page: Page<EventId>,
        is_meant: impl Fn(&EventRow) -> bool,
    ) -> rusqlite::Result<Listed<EventRow, EventId>> {
        let looks_max = self.looks_max;
        let mut candidates = events_with_term(connection, term, self.range, looks_max)?.into_iter();
        let this = self.place("e.id = {}", Value::Null);
        let sql = format!("{} AND {this}", self.select(EVENT_COLUMNS, EVENTS));
        let mut lookup = connection.prepare_cached(&sql)?;
        let (mut rows, mut last, mut looks) = (Vec::new(), None, 0);
        while rows.len() < page.limit
            && let Some(event) = candidates.next()
        {
            looks += 1;
            last = Some(event);
            if let Some(value) = self.values.last_mut() {
                *value = Value::Blob(blob(event).to_vec());
            }
            let found = lookup
                .query_row(params_from_iter(&self.values), |row| {
                    Ok(if row.get("wanted")? { Some(row::event(row)?) } else { None })
                })
                .optional()?
                .flatten();
            rows.extend(found.filter(&is_meant));
        }
        let more = rows.len() == page.limit || looks == looks_max;
        Ok(Listed { rows, next: last.filter(|_| more) })
    }
}

/// The smallest id of the millisecond that `id` is of.
fn first_of(mut id: [u8; 16]) -> [u8; 16] {
    id[6..].fill(0);
    id
}

const EVENTS: &str = "events e JOIN sources s ON s.seq = e.source";

const SOURCE_SEQ: &str = "(SELECT seq FROM sources WHERE id = {})";

// The newest of the fresh ones, or the folded one: whoever has the key now. Knows nothing of the
// row, so that it is asked once and the event is found by its id.
const HAS_KEY: &str = "e.id = coalesce(
    (SELECT event_id FROM keys_fresh WHERE digest = {} ORDER BY seq DESC LIMIT 1),
    (SELECT event_id FROM keys WHERE digest = {}))";

const HAS_DELIVERY: &str = concat!(
    "EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND ",
    shown_status!(),
    " = {})"
);

/// See `AdminStore::events`.
pub(super) fn events(
    connection: &Connection,
    filter: &EventFilter,
    page: Page<EventId>,
) -> rusqlite::Result<Listed<EventRow, EventId>> {
    let mut query = Query::within(page, filter.since, filter.until, "e.id");
    if let Some(source) = filter.source {
        query.narrow(&format!("e.source = {SOURCE_SEQ}"), blob(source).to_vec());
        if let Some(key) = &filter.key {
            // What cannot be a key is nobody's.
            let Some(key) = DedupKey::new(key) else {
                return Ok(Listed { rows: Vec::new(), next: None });
            };
            query.narrow(HAS_KEY, KeyDigest::of(source, &key).to_bytes().to_vec());
        }
    }
    if let Some(status) = filter.status {
        query.want(HAS_DELIVERY, status.as_str().to_owned());
    }
    if let Some(text) = &filter.search {
        query.looks_max = LOOKS_INTO_BODIES_MAX;
        let clause = format!(
            "(instr(coalesce(e.key, ''), {{}}) > 0 OR (e.body_bytes <= {BODY_BYTES_SEARCHED}
              AND EXISTS (SELECT 1 FROM payloads p WHERE p.seq = e.payload
                             AND instr(p.body, CAST({{}} AS BLOB)) > 0)))"
        );
        query.want(&clause, text.clone());
    }
    // A key says more than any term: there is one event that has it.
    match filter.term().filter(|_| filter.key.is_none()) {
        Some(term) => query.run_by_term(connection, term, page, |event| filter.matches(event)),
        None => {
            let mut page =
                query.run(connection, (EVENT_COLUMNS, EVENTS, "e.id"), page, row::event)?;
            page.rows.retain(|event| filter.matches(event));
            Ok(page)
        }
    }
}

/// See `AdminStore::deliveries`.
pub(super) fn deliveries(
    connection: &Connection,
    filter: DeliveryFilter,
    page: Page<DeliveryId>,
) -> rusqlite::Result<Listed<DeliveryRow, DeliveryId>> {
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
        (Some(_), None | Some(Status::Dead)) => "INDEXED BY deliveries_by_group",
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
    let last_attempt = "EXISTS (SELECT 1 FROM attempts a WHERE a.delivery_id = d.id
                                  AND a.number = d.attempts AND";
    if let Some(class) = filter.class {
        query.want(&format!("{last_attempt} a.class = {{}})"), class.as_str().to_owned());
    }
    if let Some(code) = filter.code {
        query.want(&format!("{last_attempt} a.status = {{}})"), i64::from(code));
    }
    let tables = format!("deliveries d {index} JOIN destinations t ON t.seq = d.destination");
    query.run(connection, (DELIVERY_COLUMNS, &tables, "d.id"), page, row::delivery)
}

const IS_SHOWN_AS: &str = concat!(shown_status!(), " = {}");

// Each part by the index that holds it: what waits for its turn, and what waits for a destination
// that is paused or left alone.
const HELD: &str = concat!(
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
    status: Status,
    connection: &Connection,
) -> rusqlite::Result<&'static str> {
    let word = status.as_str().to_owned();
    let (index, few, narrow) = match status {
        // Spelled out, because a partial index is only used for the words it was made with.
        Status::Dead => {
            query.narrow("d.state = 'dead' AND d.state = {}", word);
            return Ok("");
        }
        Status::Pending | Status::Scheduled => (
            "INDEXED BY deliveries_due",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_due WHERE due_at IS NOT NULL",
            format!("d.due_at IS NOT NULL AND {IS_SHOWN_AS}"),
        ),
        Status::InFlight => (
            "INDEXED BY deliveries_leased",
            "SELECT 1 FROM deliveries INDEXED BY deliveries_leased WHERE lease_until IS NOT NULL",
            "d.lease_until IS NOT NULL AND d.state = {}".to_owned(),
        ),
        Status::Held => ("", HELD, format!("d.id IN ({HELD}) AND {IS_SHOWN_AS}")),
        Status::Succeeded | Status::Cancelled | Status::Replayed => {
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
