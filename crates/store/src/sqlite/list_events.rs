//! Lists of events, newest first, page by page.
//!
//! Whatever finds few events is asked first: a key, an attribute, a kind, and then deliveries of
//! which there are few, such as dead ones. Each event found is then looked up by itself, in the
//! order of the list. Where nothing finds few, the newest events are looked at one after the other. Either way
//! a page looks at a bounded number of rows; see `list`.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter, types::Value};
use surehook_core::{
    attribute::{Term, Wanted},
    delivery::state::DeliveryStatus,
    ids::EventId,
    replay::StatusPattern,
    store::{EventDeliveryFilter, EventFilter, EventRow, ListPage, PageRequest},
};

use self::candidates::candidates;
use super::{
    fresh::FreshKeys,
    lanes::shown_status,
    list::{
        IS_SHOWN_AS, LAST_HAS_CLASS, LAST_HAS_CODE_FROM, LAST_HAS_CODE_TO, LOOKS_MAX, Query,
        SOURCE_SEQ,
    },
    row::{self, EVENT_COLUMNS, blob, hex_list, id},
    search_bodies::{self, BODY_BYTES_SEARCHED},
    terms::events_with_each_term,
};

/// Rows that a page looks at where bodies are looked into, at most.
const LOOKS_INTO_BODIES_MAX: usize = 500;

const EVENTS: &str = "events e JOIN sources s ON s.seq = e.source";

/// See `AdminStore::events`.
pub(super) fn events(
    connection: &Connection,
    fresh: Option<&FreshKeys>,
    filter: &EventFilter,
    page: PageRequest<EventId>,
) -> rusqlite::Result<ListPage<EventRow, EventId>> {
    let query = asked(filter, page);
    let read = |found: &Row<'_>| {
        let event = row::event(found)?;
        let is_meant =
            filter.matches(&event) && search_bodies::is_meant(connection, filter, &event)?;
        Ok(Some(event).filter(|_| is_meant))
    };
    let mut listed = match candidates(connection, fresh, filter, &query)? {
        Some(events) => run_over(query, connection, events, page, read)?,
        None => query.run(connection, (EVENT_COLUMNS, EVENTS, "e.id"), page, read)?,
    };
    count_deliveries(connection, &mut listed.rows)?;
    Ok(listed)
}

/// See `AdminStore::events_with_each`.
pub(super) fn with_each(
    connection: &Connection,
    wanted: &[Wanted],
    limit: usize,
) -> rusqlite::Result<Vec<Vec<EventRow>>> {
    let page = PageRequest { after: None, limit };
    let terms: Vec<Term> = wanted.iter().map(Wanted::term).collect();
    let found = events_with_each_term(connection, &terms, LOOKS_MAX)?;
    let mut all = Vec::new();
    let mut ends = Vec::new();
    for (wanted, term) in wanted.iter().zip(terms) {
        let events = found.get(&term).cloned().unwrap_or_default();
        let read = |found: &Row<'_>| {
            Ok(Some(row::event(found)?).filter(|event| event.attributes.has(wanted)))
        };
        let query = asked(&EventFilter::default(), page);
        all.extend(run_over(query, connection, events, page, read)?.rows);
        ends.push(all.len());
    }
    count_deliveries(connection, &mut all)?;
    let mut all = all.into_iter();
    let mut begin = 0;
    let split = ends.into_iter().map(|end| {
        let many = end - std::mem::replace(&mut begin, end);
        all.by_ref().take(many).collect()
    });
    Ok(split.collect())
}

fn asked(filter: &EventFilter, page: PageRequest<EventId>) -> Query {
    let mut query = Query::within(page, filter.since, filter.until, "e.id");
    if let Some(source) = filter.source {
        query.narrow(&format!("e.source = {SOURCE_SEQ}"), blob(source).to_vec());
    }
    want_delivery(&mut query, filter.owes);
    // What is masked is not looked for by SQL: how many rows a page looked at would tell of it.
    if let Some(text) = filter.search.as_ref().filter(|_| filter.masked_by.is_none()) {
        query.looks_max = LOOKS_INTO_BODIES_MAX;
        let clause = format!(
            "(instr(coalesce(e.key, ''), {{}}) > 0 OR (e.body_bytes <= {BODY_BYTES_SEARCHED}
              AND EXISTS (SELECT 1 FROM payloads p WHERE p.seq = e.payload
                             AND instr(p.body, CAST({{}} AS BLOB)) > 0)))"
        );
        query.want(&clause, text.clone());
    }
    if !filter.body.is_empty() || filter.search.is_some() {
        query.looks_max = LOOKS_INTO_BODIES_MAX;
        query.is_picky = true;
    }
    query
}

/// One delivery must be all that is wanted. By the event, whatever else could be used: `SQLite` does
/// not know that a destination may have millions.
fn want_delivery(query: &mut Query, owes: EventDeliveryFilter) {
    let mut clauses = vec!["d.event_id = e.id".to_owned()];
    let mut and = |clause: &str, value: Value| clauses.push(query.place(clause, value));
    if let Some(status) = owes.status {
        and(IS_SHOWN_AS, status.as_str().to_owned().into());
    }
    if let Some(destination) = owes.destination {
        and(IS_TO, blob(destination).to_vec().into());
    }
    if let Some(reason) = owes.reason {
        and("d.reason = {}", reason.as_str().to_owned().into());
    }
    if let Some(class) = owes.class {
        and(LAST_HAS_CLASS, class.as_str().to_owned().into());
    }
    if let Some((low, high)) = owes.code.map(StatusPattern::range) {
        and(LAST_HAS_CODE_FROM, i64::from(low).into());
        and(LAST_HAS_CODE_TO, i64::from(high).into());
    }
    if clauses.len() > 1 {
        let all = clauses.join(" AND ");
        query.want_placed(&format!(
            "EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_by_event WHERE {all})"
        ));
    }
}

const IS_TO: &str = "d.destination = (SELECT seq FROM destinations WHERE id = {})";

/// Runs a query over the only events that can be meant. Each is looked up by itself, so that only as
/// many are looked at as the page needs.
fn run_over(
    mut query: Query,
    connection: &Connection,
    events: Vec<EventId>,
    page: PageRequest<EventId>,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<Option<EventRow>>,
) -> rusqlite::Result<ListPage<EventRow, EventId>> {
    let looks_max = query.looks_max;
    let this = query.place("e.id = {}", Value::Null);
    let sql = format!("{} AND {this}", query.select(EVENT_COLUMNS, EVENTS));
    let mut lookup = connection.prepare_cached(&sql)?;
    let mut events = events.into_iter();
    let (mut rows, mut last, mut looks) = (Vec::new(), None, 0);
    while rows.len() < page.limit
        && let Some(event) = events.next()
    {
        looks += 1;
        last = Some(event);
        if let Some(value) = query.values.last_mut() {
            *value = Value::Blob(blob(event).to_vec());
        }
        let found = lookup
            .query_row(params_from_iter(&query.values), |row| {
                if row.get("wanted")? { read(row) } else { Ok(None) }
            })
            .optional()?
            .flatten();
        rows.extend(found);
    }
    let more = rows.len() == page.limit || looks == looks_max;
    Ok(ListPage { rows, next: last.filter(|_| more), looks, last })
}

const COUNT_DELIVERIES: &str = concat!(
    "SELECT d.event_id, ",
    shown_status!(),
    " AS shown, count(*) FROM json_each(?1) j
        CROSS JOIN deliveries d INDEXED BY deliveries_by_event ON d.event_id = unhex(j.value)
       GROUP BY 1, 2"
);

/// Counts the deliveries of all events of a page, in one query.
fn count_deliveries(connection: &Connection, events: &mut [EventRow]) -> rusqlite::Result<()> {
    // Each once: an event may be there for several reasons.
    let ids: BTreeSet<[u8; 16]> = events.iter().map(|event| blob(event.id)).collect();
    let mut count = connection.prepare_cached(COUNT_DELIVERIES)?;
    let mut rows = count.query([hex_list(ids.iter().map(|id| &id[..]))])?;
    let mut counted: HashMap<EventId, BTreeMap<DeliveryStatus, u64>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let of_event = counted.entry(id(row, 0)?).or_default();
        of_event.insert(row::status(row, 1)?, row.get(2)?);
    }
    for event in events {
        event.deliveries = counted.get(&event.id).cloned().unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use surehook_core::{
        delivery::{DeadReason, FailureClass},
        ids::{DestinationId, SourceId},
        time::Timestamp,
    };

    use super::{super::schema::plan, *};

    fn page() -> PageRequest<EventId> {
        PageRequest { after: None, limit: 50 }
    }

    fn everything() -> EventFilter {
        let at = Timestamp::from_millis(1);
        EventFilter {
            owes: EventDeliveryFilter {
                status: Some(DeliveryStatus::Dead),
                destination: Some(DestinationId::new(at, 1)),
                reason: Some(DeadReason::MaxRetries),
                class: Some(FailureClass::Transient),
                code: "5xx".parse().ok(),
            },
            search: Some("x".to_owned()),
            ..EventFilter::default()
        }
    }

    #[test]
    fn a_page_walks_the_events_in_order_and_asks_each_by_its_own_rows() {
        let at = Timestamp::from_millis(1);
        let of_source = EventFilter { source: Some(SourceId::new(at, 1)), ..everything() };
        for (filter, walk) in [
            (everything(), "SEARCH e USING PRIMARY KEY (id<?)"),
            (of_source, "SEARCH e USING INDEX events_by_source (source=? AND id<?)"),
        ] {
            let select = asked(&filter, page()).select(EVENT_COLUMNS, EVENTS);
            let steps = plan(&format!("{select} ORDER BY e.id DESC LIMIT 10"));
            assert!(steps.iter().any(|step| step == walk), "{walk}: {steps:?}");
            let by_event = "SEARCH d USING INDEX deliveries_by_event (event_id=?)";
            assert!(steps.iter().any(|step| step == by_event), "{steps:?}");
            for step in &steps {
                assert!(!step.contains("SCAN") || step.contains("CONSTANT"), "{step}: {steps:?}");
                assert!(!step.contains("TEMP B-TREE"), "{step}: {steps:?}");
            }
        }
    }

    #[test]
    fn an_event_that_may_be_meant_is_looked_up_by_its_id() {
        let mut query = asked(&everything(), page());
        let this = query.place("e.id = {}", Value::Null);
        let steps = plan(&format!("{} AND {this}", query.select(EVENT_COLUMNS, EVENTS)));
        assert!(steps.iter().any(|step| step == "SEARCH e USING PRIMARY KEY (id=?)"), "{steps:?}");
    }

    #[test]
    fn the_deliveries_of_many_events_are_found_by_their_events() {
        let steps = plan(&super::super::list::of_events());
        let by_event = "SEARCH d USING INDEX deliveries_by_event (event_id=?)";
        assert!(steps.iter().any(|step| step == by_event), "{steps:?}");
        let of_list = |step: &String| step.starts_with("SCAN j VIRTUAL TABLE");
        assert!(steps.iter().all(|step| !step.contains("SCAN") || of_list(step)), "{steps:?}");
    }

    #[test]
    fn deliveries_are_counted_by_their_events() {
        let steps = plan(COUNT_DELIVERIES);
        let by_event = "SEARCH d USING INDEX deliveries_by_event (event_id=?)";
        assert!(steps.iter().any(|step| step == by_event), "{steps:?}");
        assert!(
            plan(search_bodies::BODY)
                .iter()
                .any(|step| step == "SEARCH e USING PRIMARY KEY (id=?)")
        );
    }
}
