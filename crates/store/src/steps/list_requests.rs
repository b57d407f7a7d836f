//! All received requests, merged from three lists: events, sightings of duplicates, and sampled
//! refused requests. Each list is read in its own order from where the previous page ended, so that
//! the merge stores nothing, and skips and repeats nothing.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    time::Duration,
};

use surehook_core::{
    event::DuplicateReason,
    refused::RefusedFilter,
    requests::{
        AcceptedRequest, DuplicateRequest, ListPosition, ReceivedRequest, RequestCursor,
        RequestFilter, RequestOutcome,
    },
    store::{ListPage, PageRequest},
};
use surehook_types::{
    ids::{EventId, RequestId, SourceId},
    time::Timestamp,
};

use super::{
    list::{HAS_SOURCE, IdRange, ListTable, SCAN_MAX, SqlListQuery, first_id_of_millisecond},
    refused,
    row::{blob, id, optional_text, time},
};
use crate::sql::{Result, SqlConnection, SqlRow, params};

/// Sightings answered from the cache are written a moment later, in any order, and much later if
/// the disk was full. Sightings that are later than this are not looked for.
const WRITE_DELAY_MAX: Duration = Duration::from_secs(3600);

/// The part of one list that was read for a page.
struct MergeInput<I> {
    rows: VecDeque<(I, ReceivedRequest)>,
    /// The last row that was read, and its time; `None` at the end of the list.
    last_read: Option<(I, Timestamp)>,
    rows_scanned: usize,
}

impl<I: Copy> MergeInput<I> {
    fn empty() -> Self {
        Self { rows: VecDeque::new(), last_read: None, rows_scanned: 0 }
    }

    /// The time of the next request, and whether it was read. Behind the last row only a bound of
    /// the time is known.
    fn peek(&self) -> Option<(Timestamp, bool)> {
        let front = self.rows.front().map(|(_, request)| (request.at(), true));
        front.or(self.last_read.map(|(_, at)| (at, false)))
    }

    fn take(&mut self, position: &mut ListPosition<I>) -> Option<ReceivedRequest> {
        let (id, request) = self.rows.pop_front()?;
        *position = ListPosition::After(id);
        Some(request)
    }

    /// Advances the position behind all rows that were read, if all of them were returned.
    fn finish(&self, position: &mut ListPosition<I>) {
        if self.rows.is_empty() {
            *position = self.last_read.map_or(ListPosition::End, |(id, _)| ListPosition::After(id));
        }
    }
}

/// Implements `AdminStore::list_requests`.
pub(crate) fn list_requests(
    connection: &impl SqlConnection,
    filter: &RequestFilter,
    page: PageRequest<RequestCursor>,
) -> Result<ListPage<ReceivedRequest, RequestCursor>> {
    let mut cursor = page.after.unwrap_or_default();
    let limit = page.limit;
    let mut accepted = read_accepted(connection, filter, cursor.accepted, limit)?;
    let mut duplicate = read_duplicates(connection, filter, cursor.duplicate, limit)?;
    let mut refused = read_refused(connection, filter, cursor.refused, limit)?;
    let rows_scanned = accepted.rows_scanned + duplicate.rows_scanned + refused.rows_scanned;
    let mut rows = Vec::new();
    while rows.len() < limit {
        let heads = [accepted.peek(), duplicate.peek(), refused.peek()];
        let newest = heads.iter().enumerate().filter_map(|(part, head)| Some(((*head)?, part)));
        // An unread request may be newer than all the others.
        let Some(((_, true), part)) = newest.max() else { break };
        rows.extend(match part {
            0 => accepted.take(&mut cursor.accepted),
            1 => duplicate.take(&mut cursor.duplicate),
            _ => refused.take(&mut cursor.refused),
        });
    }
    accepted.finish(&mut cursor.accepted);
    duplicate.finish(&mut cursor.duplicate);
    refused.finish(&mut cursor.refused);
    let next = Some(cursor).filter(|cursor| !cursor.is_at_end());
    Ok(ListPage { rows, next, rows_scanned, last: Some(cursor) })
}

const ACCEPTED_TABLE: ListTable<'_> = ListTable {
    columns: "e.id, e.request_id, s.id, e.received_at, e.body_bytes, p.path, p.query, p.remote",
    from: "events e JOIN sources s ON s.seq = e.source LEFT JOIN payloads p ON p.seq = e.payload",
    order_by: "e.id DESC",
};

const OF_MILLISECOND: &str = "SELECT id, request_id FROM events WHERE id BETWEEN ?1 AND ?2";

/// The requests of one millisecond: for each its number of events and the newest of them.
///
/// All events of a request have the same time, and so ids with the same prefix, possibly
/// interleaved with those of other requests. They are read once per millisecond, so that a request
/// with thousands of events costs one more lookup per event, not thousands.
#[derive(Default)]
struct MillisecondRequests {
    first: [u8; 16],
    requests: HashMap<[u8; 16], (u64, [u8; 16])>,
}

impl MillisecondRequests {
    /// The number of events of the request, if `event` is its newest one, which represents it in
    /// the list.
    fn count_if_representative(
        &mut self,
        connection: &impl SqlConnection,
        event: EventId,
        request: RequestId,
    ) -> Result<Option<u64>> {
        let first = first_id_of_millisecond(blob(event));
        if self.first != first || self.requests.is_empty() {
            *self = Self::read(connection, first)?;
        }
        let found = self.requests.get(&blob(request));
        Ok(found.filter(|(_, newest)| *newest == blob(event)).map(|(events, _)| *events))
    }

    fn read(connection: &impl SqlConnection, first: [u8; 16]) -> Result<Self> {
        let mut last = first;
        last[6..].fill(0xff);
        let mut requests = HashMap::new();
        connection.read_while(OF_MILLISECOND, params![first, last], |row| {
            let event: [u8; 16] = row.get(0)?;
            let (events, newest) = requests.entry(row.get(1)?).or_insert((0, event));
            *events += 1;
            *newest = event.max(*newest);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self { first, requests })
    }
}

fn read_accepted(
    connection: &impl SqlConnection,
    filter: &RequestFilter,
    position: ListPosition<EventId>,
    limit: usize,
) -> Result<MergeInput<EventId>> {
    let is_unknown_source = matches!(filter.source, Some((_, None)));
    if position == ListPosition::End
        || !filter.includes(RequestOutcome::Accepted)
        || is_unknown_source
    {
        return Ok(MergeInput::empty());
    }
    let range = IdRange::new(position.after(), filter.since, filter.until);
    let query = build_accepted_query(filter, range);
    let mut millisecond = MillisecondRequests::default();
    let read = |row: &dyn SqlRow| {
        let event: EventId = id(row, 0)?;
        let request: RequestId = id(row, 1)?;
        let represented = millisecond.count_if_representative(connection, event, request)?;
        let Some(events) = represented else { return Ok(None) };
        Ok(Some(AcceptedRequest {
            request,
            event,
            events,
            source: id(row, 2)?,
            at: time(row, 3)?,
            body_bytes: row.get(4)?,
            path: row.get(5)?,
            query: row.get(6)?,
            remote: row.get(7)?,
        }))
    };
    let found = query.read_page(connection, ACCEPTED_TABLE, limit, |row| id(row, 0), read)?;
    let last_read = found.next.map(|event: EventId| (event, event.created_at()));
    let rows =
        found.rows.into_iter().map(|row| (row.event, ReceivedRequest::Accepted(row))).collect();
    Ok(MergeInput { rows, last_read, rows_scanned: found.rows_scanned })
}

fn build_accepted_query(filter: &RequestFilter, range: IdRange) -> SqlListQuery {
    let mut query = SqlListQuery::in_range("e.id", range);
    query.has_row_filter = true;
    let source = filter.source.as_ref().and_then(|(_, source)| *source);
    query.narrow(HAS_SOURCE, source.map(blob));
    let has_other_source = "e.source IS DISTINCT FROM (SELECT seq FROM sources WHERE id = {})";
    query.filter_rows(has_other_source, filter.exclude_source.map(blob));
    query
}

const SIGHTINGS: &str = "
    SELECT x.seq, x.event_id, s.id, x.seen_at, x.body IS NOT NULL OR x.body_removed = 1,
           CASE WHEN x.body IS NULL AND x.body_removed = 0 THEN e.body_bytes ELSE length(x.body) END,
           x.reason
      FROM duplicates x CROSS JOIN events e CROSS JOIN sources s
     WHERE e.id = x.event_id AND s.seq = e.source AND x.seq < ?1 ORDER BY x.seq DESC LIMIT ?2";

fn read_duplicates(
    connection: &impl SqlConnection,
    filter: &RequestFilter,
    position: ListPosition<i64>,
    limit: usize,
) -> Result<MergeInput<i64>> {
    if position == ListPosition::End || !filter.includes(RequestOutcome::Duplicate) {
        return Ok(MergeInput::empty());
    }
    let mut part = MergeInput::empty();
    let before = position.after().unwrap_or(i64::MAX);
    let (mut last, mut is_past_since) = (None, false);
    connection.read_while(SIGHTINGS, params![before, SCAN_MAX], |row| {
        if part.rows.len() == limit {
            return Ok(ControlFlow::Break(()));
        }
        let duplicate = read_duplicate(row)?;
        part.rows_scanned += 1;
        last = Some((duplicate.number, duplicate.at));
        if filter.since.is_some_and(|since| duplicate.at + WRITE_DELAY_MAX < since) {
            is_past_since = true;
            return Ok(ControlFlow::Break(()));
        }
        if matches(filter, &duplicate) {
            part.rows.push_back((duplicate.number, ReceivedRequest::Duplicate(duplicate)));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !is_past_since && (part.rows.len() == limit || part.rows_scanned == SCAN_MAX) {
        part.last_read = last;
    }
    Ok(part)
}

fn read_duplicate(row: &dyn SqlRow) -> Result<DuplicateRequest> {
    Ok(DuplicateRequest {
        number: row.get(0)?,
        event: id(row, 1)?,
        source: id(row, 2)?,
        at: time(row, 3)?,
        bytes_differ: row.get(4)?,
        body_bytes: row.get(5)?,
        reason: optional_text(row, 6, DuplicateReason::parse)?.unwrap_or_default(),
    })
}

fn matches(filter: &RequestFilter, duplicate: &DuplicateRequest) -> bool {
    let is_same_source = |source: &(String, Option<SourceId>)| source.1 == Some(duplicate.source);
    filter.source.as_ref().is_none_or(is_same_source)
        && filter.exclude_source != Some(duplicate.source)
        && filter.since.is_none_or(|since| duplicate.at >= since)
        && filter.until.is_none_or(|until| duplicate.at < until)
}

fn read_refused(
    connection: &impl SqlConnection,
    filter: &RequestFilter,
    position: ListPosition<RequestId>,
    limit: usize,
) -> Result<MergeInput<RequestId>> {
    if position == ListPosition::End || !filter.includes(RequestOutcome::Refused) {
        return Ok(MergeInput::empty());
    }
    let refused_filter = RefusedFilter {
        source: filter.source.as_ref().map(|(name, _)| name.clone()),
        code: filter.reason.clone(),
        since: filter.since,
        until: filter.until,
    };
    let rows =
        refused::list(connection, &refused_filter, PageRequest { after: position.after(), limit })?;
    let last_read = rows.last().filter(|_| rows.len() == limit).map(|row| (row.id, row.at));
    let rows_scanned = rows.len();
    let rows =
        rows.into_iter().map(|row| (row.id, ReceivedRequest::Refused(Box::new(row)))).collect();
    Ok(MergeInput { rows, last_read, rows_scanned })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::query_plan;

    #[test]
    fn each_list_is_read_in_its_own_order_without_sorting() {
        let ListTable { columns, from, order_by } = ACCEPTED_TABLE;
        let at = Timestamp::from_millis(1);
        let of_one = RequestFilter {
            source: Some(("shop".to_owned(), Some(SourceId::new(at, 1)))),
            exclude_source: Some(SourceId::new(at, 2)),
            ..RequestFilter::default()
        };
        for (filter, plan_step) in [
            (RequestFilter::default(), "SEARCH e USING PRIMARY KEY (id<?)"),
            (of_one, "SEARCH e USING INDEX events_by_source (source=? AND id<?)"),
        ] {
            let select = build_accepted_query(&filter, IdRange::ALL).select(columns, from);
            let steps = query_plan(&format!("{select} ORDER BY {order_by} LIMIT 10"));
            assert!(steps.iter().any(|step| step == plan_step), "{plan_step}: {steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
        }
        let steps = query_plan(SIGHTINGS);
        assert_eq!(steps[0], "SEARCH x USING INTEGER PRIMARY KEY (rowid<?)", "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
        assert_eq!(query_plan(OF_MILLISECOND), ["SEARCH events USING PRIMARY KEY (id>? AND id<?)"]);
    }
}
