//! `/api/v1/events`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use data_encoding::HEXLOWER;
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use surehook_core::{
    attribute::{Attributes, EventKind},
    event::RequestHead,
    ids::{DeliveryId, EventId, RequestId, SourceId},
    redact::{self, SecretNames},
    store::{Configuration, EventDetail, EventFilter, EventRow, PageRequest},
    time::Timestamp,
    timeline::{self, TimelineEntry},
};

use super::{
    HeaderLine, cursor,
    deliveries::{self, Delivery},
    duplicates::{self, ShownDuplicate},
    event_query::{EventQuery, filter},
    export::{self, Format, Pages, export},
    hidden::{self, ABOUT_BODIES, BodyQuery, header_lines},
    input::{Asked, AskedOfBody, Segment},
    limit, page,
    tagged::Tagged,
};
use crate::{
    App,
    auth::Insight,
    openapi::{Api, Op},
    problem::Problem,
};

/// An event without its body.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Event {
    id: EventId,
    request_id: RequestId,
    /// The name of its source; null when that was deleted.
    source: Option<String>,
    /// What makes it a duplicate of another.
    key: Option<String>,
    no_key: bool,
    /// What sort of thing happened, if its source can tell.
    kind: Option<EventKind>,
    /// What it can be found by.
    attributes: Attributes,
    received_at: Timestamp,
    body_bytes: u64,
    /// How often it came again.
    duplicate_count: u64,
    last_duplicate_at: Option<Timestamp>,
    /// Retention has removed its body.
    body_removed: bool,
}

/// An event with its story.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventWithStory {
    #[serde(flatten)]
    event: Event,
    /// Of the body.
    sha256: String,
    /// The request it came with; null when its body was removed.
    request: Option<ShownRequest>,
    /// Oldest first.
    deliveries: Vec<Delivery>,
    /// The first sightings of duplicates, oldest first.
    duplicates: Vec<ShownDuplicate>,
    /// Everything that happened to it, oldest first.
    decisions: Vec<ShownEntry>,
}

/// One line of the story.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Decision")]
struct ShownEntry {
    at: Timestamp,
    /// What happened; for programs, and stable.
    kind: &'static str,
    /// The same for people.
    text: String,
    /// Which delivery it is about.
    delivery: Option<DeliveryId>,
    /// What else a program may want.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Map<String, Value>")]
    detail: Value,
}

impl From<TimelineEntry> for ShownEntry {
    fn from(TimelineEntry { at, kind, text, delivery, detail }: TimelineEntry) -> Self {
        Self { at, kind, text, delivery, detail }
    }
}

/// The head of a request, secrets hidden.
#[derive(Debug, Serialize, JsonSchema)]
struct ShownRequest {
    path: String,
    query: Option<String>,
    remote: String,
    headers: Vec<HeaderLine>,
}

/// What is said of a list that can be narrowed by any value.
const ABOUT_VALUES: &str = "`body.PATH=value` finds events by a value in a body that is JSON and has up \
    to 128 KiB: `body.data.object.id=42`. Names are separated by dots, and the number of an entry stands \
    for it: `body.items.0.sku=A1`; a path that begins with `/` is a JSON pointer. A text is \
    compared by what it says, a number as it is spelled. Up to ten may be given, and all must hold. \
    Bodies are looked into one after the other, so that a page may be short: `searched` says how far it came. \
    For viewers, `body.PATH` and `search` look at bodies as they are shown to them, secrets masked.";

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new("list_events", "Events, newest first.")
        .query::<EventQuery>()
        .text(ABOUT_VALUES)
        .answers::<EventList>(200)
        .answers_as(200, export::KINDS)
        .refuses(503, &["too_many_exports"]);
    let find = Op::new("find_event", "One event with its deliveries and duplicates.")
        .path::<EventId>("id")
        .answers::<EventWithStory>(200)
        .cached();
    let body = Op::new("read_body", "The body of an event, as it came but for its secrets.")
        .text(ABOUT_BODIES)
        .path::<EventId>("id")
        .query::<BodyQuery>()
        .answers_as(200, &["application/octet-stream"])
        .refuses(409, &["body_opaque"])
        .refuses(410, &["body_removed"]);
    api.get("/api/v1/events", list_events, list).get("/api/v1/events/{id}", find_event, find).get(
        "/api/v1/events/{id}/body",
        read_body,
        body,
    )
}

/// An event in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ListedEvent")]
pub(crate) struct ListedEvent {
    #[serde(flatten)]
    event: Event,
    /// How many of its deliveries have each status; those that none has are left out.
    #[schemars(with = "BTreeMap<String, u64>")]
    deliveries: BTreeMap<&'static str, u64>,
}

/// A page of events, where it goes on, and how far was looked for it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ListOfEvent")]
pub(crate) struct EventList {
    data: Vec<ListedEvent>,
    /// Give it as `cursor` for the next page; null at the end. A page may be short and not the last.
    next_cursor: Option<String>,
    searched: Searched,
}

/// How far was looked for a page. One with a filter that finds little gives up after a while.
#[derive(Debug, Serialize, JsonSchema)]
struct Searched {
    /// So many events were looked at.
    events: usize,
    /// When the oldest of them came; null if there was none to look at.
    until: Option<Timestamp>,
}

fn source_names(configuration: &Configuration) -> HashMap<SourceId, String> {
    configuration.sources.iter().map(|s| (s.id, s.spec.name.to_string())).collect()
}

fn event(row: EventRow, sources: &HashMap<SourceId, String>) -> Event {
    Event {
        id: row.id,
        request_id: row.request_id,
        source: sources.get(&row.source).cloned(),
        no_key: row.key.is_none(),
        key: row.key,
        kind: row.kind,
        attributes: row.attributes,
        received_at: row.received_at,
        body_bytes: row.body_bytes,
        duplicate_count: row.duplicates,
        last_duplicate_at: row.last_duplicate_at,
        body_removed: row.body_removed,
    }
}

fn listed(row: EventRow, sources: &HashMap<SourceId, String>) -> ListedEvent {
    let counted = row.deliveries.iter().map(|(status, count)| (status.as_str(), *count));
    ListedEvent { deliveries: counted.collect(), event: event(row, sources) }
}

/// Events, newest first.
pub(crate) async fn list_events(
    State(app): State<Arc<App>>,
    Extension(insight): Extension<Insight>,
    AskedOfBody(query, body): AskedOfBody<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::wanted(query.format.as_deref(), &headers)?;
    let limit = limit(query.limit.as_deref())?;
    let after = cursor(query.cursor.as_deref())?;
    let configuration = app.engine.store().configuration().await?;
    let mut filter = filter(query, &body, &configuration)?;
    let names = source_names(&configuration);
    filter.masked_by = (!insight.0).then(|| Arc::new(configuration));
    if format != Format::Page {
        let pages = EventPages { app: Arc::clone(&app), filter, names, after, ended: false };
        return export(&app, format, pages, limit).await;
    }
    let page = app.engine.store().events(filter, page(limit, after)).await?;
    let next_cursor = page.next.map(|id| id.to_string());
    let searched = Searched { events: page.looks, until: page.last.map(|id| id.at()) };
    let data = page.rows.into_iter().map(|row| listed(row, &names)).collect();
    Ok(Json(EventList { data, next_cursor, searched }).into_response())
}

/// A list of events, to its end.
struct EventPages {
    app: Arc<App>,
    filter: EventFilter,
    names: HashMap<SourceId, String>,
    after: Option<EventId>,
    ended: bool,
}

impl Pages for EventPages {
    type Row = ListedEvent;
    const NAME: &'static str = "events";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "request_id",
        "source",
        "key",
        "no_key",
        "kind",
        "attributes",
        "received_at",
        "body_bytes",
        "duplicate_count",
        "last_duplicate_at",
        "body_removed",
        "deliveries",
    ];

    async fn next(&mut self, limit: usize) -> Result<Option<Vec<ListedEvent>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let page = PageRequest { after: self.after, limit };
        let page = self.app.engine.store().events(self.filter.clone(), page).await?;
        (self.after, self.ended) = (page.next, page.next.is_none());
        Ok(Some(page.rows.into_iter().map(|row| listed(row, &self.names)).collect()))
    }
}

pub(super) fn parse(id: &str) -> Result<EventId, Problem> {
    id.parse().map_err(|_| Problem::not_found("event"))
}

/// One event with its story.
pub(crate) async fn find_event(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Tagged<EventWithStory>, Problem> {
    let id = parse(&id)?;
    let detail = app.engine.store().event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    let configuration = app.engine.store().configuration().await?;
    Ok(Tagged(StatusCode::OK, shown(detail, &configuration)))
}

fn shown(detail: EventDetail, configuration: &Configuration) -> EventWithStory {
    let names = deliveries::destination_names(configuration);
    let story = timeline::build_timeline(&detail, &|destination| names.get(&destination).cloned());
    let EventDetail { event: row, head, fingerprint, deliveries, duplicates, .. } = detail;
    let hidden = configuration.secret_names(row.source);
    let headers = head.as_ref().map(|head| head.headers.to_map()).unwrap_or_default();
    EventWithStory {
        event: event(row, &source_names(configuration)),
        sha256: HEXLOWER.encode(&fingerprint),
        request: head.map(|head| request(&head, &hidden)),
        deliveries: deliveries.into_iter().map(|row| deliveries::delivery(row, &names)).collect(),
        duplicates: duplicates
            .iter()
            .map(|row| duplicates::shown(row, &headers, &hidden))
            .collect(),
        decisions: story.into_iter().map(ShownEntry::from).collect(),
    }
}

fn request(head: &RequestHead, hidden: &SecretNames) -> ShownRequest {
    ShownRequest {
        path: head.path.clone(),
        query: head.query.as_deref().map(|query| redact::mask_query(query, hidden)),
        remote: head.remote.to_string(),
        headers: header_lines(head.headers.lines(), hidden),
    }
}

/// The body as a download, its secrets masked unless it is wanted exactly.
pub(crate) async fn read_body(
    State(app): State<Arc<App>>,
    Extension(insight): Extension<Insight>,
    Segment(id): Segment,
    Asked(query): Asked<BodyQuery>,
) -> Result<Response, Problem> {
    let (id, exact) = (parse(&id)?, query.is_exact(insight)?);
    match app.engine.store().body(id).await? {
        Some(payload) => {
            let names = secret_names(&app, id).await?;
            hidden::download(&id.to_string(), payload, &names, exact)
        }
        None => {
            let gone = without_body(&app, id).await?;
            Err(gone.unwrap_or_else(|| Problem::not_found("event with a body")))
        }
    }
}

/// What is secret in the body of an event.
pub(super) async fn secret_names(app: &App, id: EventId) -> Result<SecretNames, Problem> {
    let store = app.engine.store();
    let detail = store.event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    Ok(store.configuration().await?.secret_names(detail.event.source))
}

/// Why the body of an event is not there: there is no such event, or retention removed it.
pub(super) async fn without_body(app: &App, id: EventId) -> Result<Option<Problem>, Problem> {
    let store = app.engine.store();
    let Some(event) = store.event_row(id).await? else {
        return Ok(Some(Problem::not_found("event")));
    };
    if !event.body_removed {
        return Ok(None);
    }
    let sources = store.configuration().await?.sources;
    let source = sources.iter().find(|source| source.id == event.source);
    Ok(Some(Problem::body_removed(
        source.map(|source| (&source.spec.name, app.engine.retention_policy(&source.spec))),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_column() {
        let schema = schemars::schema_for!(ListedEvent).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = EventPages::COLUMNS.to_vec();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
}
