//! Lists of events, newest first, in pages.
//!
//! A filter that matches few events is evaluated first: a key, an attribute, a kind, or deliveries of
//! which there are few, such as dead ones. The events it finds (*candidates*) are looked up one by
//! one in list order. Without candidates the newest events are read in order. Either way a page reads a
//! bounded number of rows; see `list`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
};

use surehook_core::{
    delivery::state::DeliveryStatus,
    event::HeaderBlock,
    replay::StatusPattern,
    store::{EventDeliveryFilter, EventFilter, EventRow, ListPage, PageRequest},
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DestinationId, EventId, SourceId},
    redact,
};
use surehook_webhooks::{
    attribute::{AttributeFilter, SearchTerm},
    body_value::BodyValueFilter,
    key::{DedupKey, KeyDigest, KeyNamespace},
};

use super::{
    displayed_status::displayed_status,
    list::{
        HAS_DESTINATION, HAS_DISPLAYED_STATUS, HAS_SOURCE, HELD, IdRange, LAST_HAS_CLASS,
        LAST_HAS_CODE_FROM, LAST_HAS_CODE_TO, ListTable, SCAN_MAX, SqlListQuery, is_match,
    },
    row::{self, EVENT_COLUMNS, blob, id, id_list},
};
use crate::sql::{Dialect, Result, SqlConnection, SqlParameter, SqlRow, params};

/// Rows read for one page if bodies are searched.
const BODY_SCAN_MAX: usize = 500;

const EVENTS: &str = "events e JOIN sources s ON s.seq = e.source";

const EVENT_TABLE: ListTable<'_> =
    ListTable { columns: EVENT_COLUMNS, from: EVENTS, order_by: "e.id DESC" };

/// Finds events by their keys and search terms, for which each database has its own index.
pub(crate) trait EventIndex {
    /// The events that hold these keys now.
    fn find_by_keys(&self, keys: &[KeyDigest]) -> Result<BTreeSet<EventId>>;

    /// Up to `limit` events with a term, newest first.
    fn find_with_term(
        &self,
        term: SearchTerm,
        range: IdRange,
        limit: usize,
    ) -> Result<Vec<EventId>>;

    /// The same for several terms, in all ids.
    fn find_with_each_term(
        &self,
        terms: &[SearchTerm],
        limit: usize,
    ) -> Result<HashMap<SearchTerm, Vec<EventId>>>;
}

/// Implements `AdminStore::list_events`.
pub(crate) fn list_events<C: SqlConnection>(
    connection: &C,
    index: &impl EventIndex,
    filter: &EventFilter,
    page: PageRequest<EventId>,
) -> Result<ListPage<EventRow, EventId>> {
    let range = IdRange::new(page.after, filter.since, filter.until);
    let query = build_query::<C::Dialect>(filter, range);
    let read = |row: &dyn SqlRow| {
        let event = row::event(row)?;
        let matches = filter.matches(&event) && matches_body(connection, filter, &event)?;
        Ok(Some(event).filter(|_| matches))
    };
    let candidates = find_candidates(connection, index, filter, range, query.scan_max)?;
    let mut list = match candidates {
        Some(events) => run_on_candidates(query, connection, events, page.limit, read)?,
        None => query.read_page(connection, EVENT_TABLE, page.limit, |row| id(row, 0), read)?,
    };
    count_deliveries(connection, std::slice::from_mut(&mut list.rows))?;
    Ok(list)
}

/// Implements `AdminStore::list_events_with_each`.
pub(crate) fn list_with_each<C: SqlConnection>(
    connection: &C,
    index: &impl EventIndex,
    filters: &[AttributeFilter],
    limit: usize,
) -> Result<Vec<Vec<EventRow>>> {
    let terms: Vec<SearchTerm> = filters.iter().map(AttributeFilter::term).collect();
    let events_by_term = index.find_with_each_term(&terms, SCAN_MAX)?;
    let mut lists = Vec::new();
    for (filter, term) in filters.iter().zip(terms) {
        let events = events_by_term.get(&term).cloned().unwrap_or_default();
        let read = |row: &dyn SqlRow| {
            Ok(Some(row::event(row)?).filter(|event| event.attributes.matches(filter)))
        };
        let query = build_query::<C::Dialect>(&EventFilter::default(), IdRange::ALL);
        lists.push(run_on_candidates(query, connection, events, limit, read)?.rows);
    }
    count_deliveries(connection, &mut lists)?;
    Ok(lists)
}

fn build_query<D: Dialect>(filter: &EventFilter, range: IdRange) -> SqlListQuery {
    let mut query = SqlListQuery::in_range("e.id", range);
    query.narrow(HAS_SOURCE, filter.source.map(blob));
    if let Some(has_conflict) = filter.key_conflict {
        let exists = if has_conflict { "EXISTS" } else { "NOT EXISTS" };
        query
            .row_conditions
            .push(format!("{exists} (SELECT 1 FROM key_conflicts k WHERE k.event_id = e.id)"));
    }
    filter_by_delivery(&mut query, filter.delivery_filter);
    // Masked text is not searched by SQL: the number of rows read would reveal it.
    let text = filter.search.clone().filter(|_| filter.masked_by.is_none());
    let has_text = format!(
        "({} OR (e.body_bytes <= {BODY_BYTES_SEARCHED}
          AND EXISTS (SELECT 1 FROM payloads p WHERE p.seq = e.payload AND {})))",
        D::text_contains("coalesce(e.key, '')", "{}"),
        D::bytes_contain("p.body", "{}"),
    );
    query.filter_rows(&has_text, text);
    if !filter.body.is_empty() || filter.search.is_some() {
        query.scan_max = BODY_SCAN_MAX;
        query.has_row_filter = true;
    }
    query
}

/// All conditions must hold for the same delivery. Searched by event: SQLite does not know that a
/// destination may have millions of deliveries.
fn filter_by_delivery(query: &mut SqlListQuery, delivery: EventDeliveryFilter) {
    let code = delivery.code.map(StatusPattern::range);
    let conditions = [
        query.bind(HAS_DISPLAYED_STATUS, delivery.status.map(DeliveryStatus::as_str)),
        query.bind(HAS_DESTINATION, delivery.destination.map(blob)),
        query.bind("d.reason = {}", delivery.reason.map(DeadReason::as_str)),
        query.bind(LAST_HAS_CLASS, delivery.class.map(FailureClass::as_str)),
        query.bind(LAST_HAS_CODE_FROM, code.map(|(low, _)| low)),
        query.bind(LAST_HAS_CODE_TO, code.map(|(_, high)| high)),
    ];
    let conditions: Vec<String> = conditions.into_iter().flatten().collect();
    if !conditions.is_empty() {
        query.row_conditions.push(format!(
            "EXISTS (SELECT 1 FROM deliveries d INDEXED BY deliveries_by_event
                      WHERE d.event_id = e.id AND {})",
            conditions.join(" AND ")
        ));
    }
}

const HAS_ID: &str = "e.id = {}";

/// Runs a query on candidates. Each is looked up separately, and only as many as the page needs.
fn run_on_candidates(
    mut query: SqlListQuery,
    connection: &impl SqlConnection,
    events: Vec<EventId>,
    page_limit: usize,
    read: impl Fn(&dyn SqlRow) -> Result<Option<EventRow>>,
) -> Result<ListPage<EventRow, EventId>> {
    query.narrow(HAS_ID, Some([0; 16]));
    let sql = query.select(EVENT_COLUMNS, EVENTS);
    let mut events = events.into_iter();
    let (mut rows, mut last, mut rows_scanned) = (Vec::new(), None, 0);
    while rows.len() < page_limit
        && let Some(event) = events.next()
    {
        rows_scanned += 1;
        last = Some(event);
        if let Some(value) = query.values.last_mut() {
            *value = Box::new(blob(event));
        }
        let event_row = connection.find_one(&sql, &query.parameters(), |row| {
            if is_match(row)? { read(row) } else { Ok(None) }
        })?;
        rows.extend(event_row.flatten());
    }
    let has_more = rows.len() == page_limit || rows_scanned == query.scan_max;
    Ok(ListPage { rows, next: last.filter(|_| has_more), rows_scanned, last })
}

fn count_query<D: Dialect>() -> String {
    let (list, id) = (D::ID_LIST, D::LISTED_ID);
    let shown = displayed_status!();
    format!(
        "SELECT d.event_id, {shown} AS shown, count(*) FROM {list}
          CROSS JOIN deliveries d INDEXED BY deliveries_by_event
         WHERE d.event_id = {id} GROUP BY 1, 2"
    )
}

fn count_deliveries<C: SqlConnection>(connection: &C, lists: &mut [Vec<EventRow>]) -> Result<()> {
    // An event can be listed more than once.
    let ids: BTreeSet<[u8; 16]> = lists.iter().flatten().map(|event| blob(event.id)).collect();
    let mut counted: HashMap<EventId, BTreeMap<DeliveryStatus, u64>> = HashMap::new();
    connection.read_while(&count_query::<C::Dialect>(), params![id_list(&ids)], |row| {
        let of_event = counted.entry(id(row, 0)?).or_default();
        of_event.insert(row::status(row, 1)?, row.get(2)?);
        Ok(ControlFlow::Continue(()))
    })?;
    for event in lists.iter_mut().flatten() {
        event.deliveries = counted.get(&event.id).cloned().unwrap_or_default();
    }
    Ok(())
}

/// The only events that can match, newest first and within the range of the page, if a filter
/// matches few; `None` otherwise.
pub(crate) fn find_candidates(
    connection: &impl SqlConnection,
    index: &impl EventIndex,
    filter: &EventFilter,
    range: IdRange,
    scan_max: usize,
) -> Result<Option<Vec<EventId>>> {
    // A key is more selective than any term: few events have it.
    let events = if let Some(key) = &filter.key {
        let holders = find_by_key(connection, index, filter.source, key)?;
        add_earlier_holders(connection, holders, scan_max)?
    } else if filter.key_conflict == Some(true) {
        let values = params![range.top, range.bottom, scan_max];
        return connection.read_all(KEY_CONFLICTS, values, |row| id(row, 0)).map(Some);
    } else if let Some(term) = filter.most_selective_term() {
        return index.find_with_term(term, range, scan_max).map(Some);
    } else {
        match find_by_deliveries(connection, filter.delivery_filter)? {
            Some(events) => events,
            None => return Ok(None),
        }
    };
    let in_range = events.into_iter().rev().filter(|event| range.contains(blob(*event)));
    Ok(Some(in_range.take(scan_max).collect()))
}

const KEY_CONFLICTS: &str = "
    SELECT event_id FROM key_conflicts WHERE event_id < ?1 AND event_id >= ?2
     ORDER BY event_id DESC LIMIT ?3";

/// Adds the events that held the key before, with other bodies.
fn add_earlier_holders(
    connection: &impl SqlConnection,
    mut events: BTreeSet<EventId>,
    limit: usize,
) -> Result<BTreeSet<EventId>> {
    let sql = "SELECT holder FROM key_conflicts WHERE event_id = ?1";
    let mut next: Vec<EventId> = events.iter().copied().collect();
    while let Some(event) = next.pop()
        && events.len() < limit
    {
        let holder = connection.find_one(sql, params![blob(event)], |row| id(row, 0))?;
        next.extend(holder.filter(|holder| events.insert(*holder)));
    }
    Ok(events)
}

/// The events that hold a key now: of one source, or of all.
fn find_by_key(
    connection: &impl SqlConnection,
    index: &impl EventIndex,
    source: Option<SourceId>,
    key: &str,
) -> Result<BTreeSet<EventId>> {
    // An invalid key belongs to no event.
    let Some(key) = DedupKey::new(key) else { return Ok(BTreeSet::new()) };
    let sources: Vec<SourceId> = match source {
        Some(source) => vec![source],
        None => connection.read_all("SELECT id FROM sources", params![], |row| id(row, 0))?,
    };
    let namespaces = [KeyNamespace::Body, KeyNamespace::Header];
    let digests = namespaces.into_iter().flat_map(|namespace| {
        let digest = |source: &SourceId| KeyDigest::in_namespace(*source, namespace, &key);
        sources.iter().map(digest).collect::<Vec<_>>()
    });
    let digests: Vec<_> = digests.collect();
    index.find_by_keys(&digests)
}

/// A set of deliveries that an index finds. Whether it is small is determined from the index alone.
struct DeliveryProbe {
    from: String,
    /// The destination, if it selects the deliveries.
    value: Option<[u8; 16]>,
}

impl DeliveryProbe {
    fn for_status(status: DeliveryStatus) -> Option<Self> {
        let from = match status {
            DeliveryStatus::Dead => {
                "deliveries d INDEXED BY deliveries_dead WHERE d.state = 'dead'".into()
            }
            DeliveryStatus::Pending | DeliveryStatus::Scheduled => {
                "deliveries d INDEXED BY deliveries_due WHERE d.due_at IS NOT NULL".into()
            }
            DeliveryStatus::InFlight => {
                "deliveries d INDEXED BY deliveries_leased WHERE d.lane_epoch IS NOT NULL".into()
            }
            DeliveryStatus::Held => {
                format!("({HELD}) h CROSS JOIN deliveries d WHERE d.id = h.id")
            }
            DeliveryStatus::Succeeded | DeliveryStatus::Cancelled | DeliveryStatus::Replayed => {
                return None;
            }
        };
        Some(Self { from, value: None })
    }

    fn for_destination(destination: DestinationId) -> Self {
        let condition = HAS_DESTINATION.replace("{}", "?1");
        let from = format!("deliveries d INDEXED BY deliveries_by_destination WHERE {condition}");
        Self { from, value: Some(blob(destination)) }
    }

    fn select(&self) -> String {
        format!("SELECT d.event_id FROM {}", self.from)
    }

    /// Returns a row if there are too many.
    fn too_many_query(&self) -> String {
        format!("SELECT 1 FROM {} LIMIT 1 OFFSET {SCAN_MAX}", self.from)
    }

    fn find_if_few(&self, connection: &impl SqlConnection) -> Result<Option<BTreeSet<EventId>>> {
        let values = self.value.iter().map(|value| value as &dyn SqlParameter);
        let values: Vec<&dyn SqlParameter> = values.collect();
        if connection.exists(&self.too_many_query(), &values)? {
            return Ok(None);
        }
        connection.read_all(&self.select(), &values, |row| id(row, 0)).map(Some)
    }
}

/// The events of the deliveries that can match, if there are few.
fn find_by_deliveries(
    connection: &impl SqlConnection,
    delivery: EventDeliveryFilter,
) -> Result<Option<BTreeSet<EventId>>> {
    let probes = [
        delivery.status.and_then(DeliveryProbe::for_status),
        delivery.destination.map(DeliveryProbe::for_destination),
    ];
    for probe in probes.into_iter().flatten() {
        if let Some(events) = probe.find_if_few(connection)? {
            return Ok(Some(events));
        }
    }
    Ok(None)
}

/// Larger bodies are not searched.
pub(crate) const BODY_BYTES_SEARCHED: u64 = 128 * 1024;

pub(crate) const BODY: &str = "
    SELECT p.headers, p.body FROM events e JOIN payloads p ON p.seq = e.payload
     WHERE e.id = ?1 AND e.body_bytes <= ?2";

/// Whether an event has the requested body values and text. Unmasked text is searched by the query
/// itself.
pub(crate) fn matches_body(
    connection: &impl SqlConnection,
    filter: &EventFilter,
    event: &EventRow,
) -> Result<bool> {
    let text = filter.search.as_ref().filter(|_| filter.masked_by.is_some());
    let in_key = |text: &String| event.key.as_ref().is_some_and(|key| key.contains(text.as_str()));
    let text = text.filter(|text| !in_key(text));
    if filter.body.is_empty() && text.is_none() {
        return Ok(true);
    }
    let matches =
        connection.find_one(BODY, params![blob(event.id), BODY_BYTES_SEARCHED], |row| {
            let headers = HeaderBlock::from_bytes(row.get(0)?).to_map();
            let stored = row.bytes(1)?;
            let body = match &filter.masked_by {
                None => Cow::Borrowed(stored),
                Some(configuration) => {
                    let names = configuration.secret_names(event.source);
                    match redact::mask_body(&headers, stored, &names) {
                        Ok(masked) => masked.body,
                        // A body that is not displayed cannot be searched.
                        Err(_) => return Ok(false),
                    }
                }
            };
            let has_text = text.is_none_or(|text| contains_text(&body, text));
            let values = &filter.body;
            Ok(has_text
                && (values.is_empty() || BodyValueFilter::all_match(values, &headers, &body)))
        })?;
    Ok(matches.unwrap_or(false))
}

/// The search in a string takes linear time for any text.
fn contains_text(body: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(body).contains(text)
}

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::*;
    use crate::{
        sqlite::{SqliteDialect, query_plan},
        steps::list::delivery_query,
    };

    fn filter_with_all_conditions() -> EventFilter {
        let at = Timestamp::from_millis(1);
        EventFilter {
            delivery_filter: EventDeliveryFilter {
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
    fn page_reads_events_in_order_and_deliveries_by_event() {
        let at = Timestamp::from_millis(1);
        let of_source =
            EventFilter { source: Some(SourceId::new(at, 1)), ..filter_with_all_conditions() };
        for (filter, expected) in [
            (filter_with_all_conditions(), "SEARCH e USING PRIMARY KEY (id<?)"),
            (of_source, "SEARCH e USING INDEX events_by_source (source=? AND id<?)"),
        ] {
            let select =
                build_query::<SqliteDialect>(&filter, IdRange::ALL).select(EVENT_COLUMNS, EVENTS);
            let steps = query_plan(&format!("{select} ORDER BY e.id DESC LIMIT 10"));
            assert!(steps.iter().any(|step| step == expected), "{expected}: {steps:?}");
            let by_event = "SEARCH d USING INDEX deliveries_by_event (event_id=?)";
            assert!(steps.iter().any(|step| step == by_event), "{steps:?}");
            for step in &steps {
                assert!(!step.contains("SCAN") || step.contains("CONSTANT"), "{step}: {steps:?}");
                assert!(!step.contains("TEMP B-TREE"), "{step}: {steps:?}");
            }
        }
    }

    #[test]
    fn candidate_is_looked_up_by_its_id() {
        let mut query = build_query::<SqliteDialect>(&filter_with_all_conditions(), IdRange::ALL);
        query.narrow(HAS_ID, Some([0; 16]));
        let steps = query_plan(&query.select(EVENT_COLUMNS, EVENTS));
        assert!(steps.iter().any(|step| step == "SEARCH e USING PRIMARY KEY (id=?)"), "{steps:?}");
    }

    #[test]
    fn deliveries_of_many_events_are_found_by_event() {
        let steps = query_plan(&delivery_query::<SqliteDialect>());
        let by_event = "SEARCH d USING INDEX deliveries_by_event (event_id=?)";
        assert!(steps.iter().any(|step| step == by_event), "{steps:?}");
        let of_list = |step: &String| step.starts_with("SCAN j VIRTUAL TABLE");
        assert!(steps.iter().all(|step| !step.contains("SCAN") || of_list(step)), "{steps:?}");
    }

    #[test]
    fn deliveries_are_counted_by_event() {
        let steps = query_plan(&count_query::<SqliteDialect>());
        let by_event = "SEARCH d USING INDEX deliveries_by_event (event_id=?)";
        assert!(steps.iter().any(|step| step == by_event), "{steps:?}");
        assert!(query_plan(BODY).iter().any(|step| step == "SEARCH e USING PRIMARY KEY (id=?)"));
    }

    #[test]
    fn delivery_probes_use_an_index() {
        let to = DeliveryProbe::for_destination(DestinationId::new(Timestamp::from_millis(1), 1));
        for (probe, index) in [
            (DeliveryProbe::for_status(DeliveryStatus::Dead).unwrap(), "deliveries_dead"),
            (DeliveryProbe::for_status(DeliveryStatus::Scheduled).unwrap(), "deliveries_due"),
            (DeliveryProbe::for_status(DeliveryStatus::InFlight).unwrap(), "deliveries_leased"),
            (DeliveryProbe::for_status(DeliveryStatus::Held).unwrap(), "deliveries_line"),
            (to, "deliveries_by_destination"),
        ] {
            for sql in [probe.too_many_query(), probe.select()] {
                let steps = query_plan(&sql);
                assert!(steps.iter().any(|step| step.contains(index)), "{sql}: {steps:?}");
                assert!(!steps.iter().any(|step| step == "SCAN d"), "{sql}: {steps:?}");
            }
        }
    }
}
