//! `/api/v1/events`.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use surehook_core::{
    attribute::{AttributeName, Attributes, EventKind, InvalidKind, VALUE_BYTES_MAX, Wanted},
    delivery::state::Status,
    event::RequestHead,
    ids::{DeliveryId, EventId, RequestId, SourceId},
    name::Name,
    store::{Configuration, DuplicateRow, EventDetail, EventFilter, EventRow, Page},
    story::{self, Entry},
    time::Timestamp,
};

use super::{
    Bytes, HeaderLine, Hidden, LIMIT_MAX, List, cursor,
    deliveries::{self, Delivery},
    export::{self, Format, Pages, export},
    header_lines,
    input::{Asked, Segment},
    limit, page,
    tagged::Tagged,
    time, word,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// The longest text that is searched for.
const SEARCH_BYTES_MAX: usize = 256;

/// Which events are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Only of this source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only the event that has this key now; needs `source`.
    #[schemars(length(min = 1))]
    key: Option<String>,
    /// Only of this kind.
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// Only about this message.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    message_id: Option<String>,
    /// Only about this thing: a payment, an order, an issue.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    object: Option<String>,
    /// Only within this conversation or thread.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    conversation: Option<String>,
    /// Only from or to this phone, in any form: `+55 (11) 98765-4321`, `551187654321`, a JID. A Brazilian
    /// one is found with and without its ninth digit.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    phone: Option<String>,
    /// Only from or to this address: `…@lid`, `…@g.us`, a BSUID, the id of a chat or channel.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    chat: Option<String>,
    /// Only with this email address.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    email: Option<String>,
    /// Only by this user of the provider.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    user: Option<String>,
    /// Only with this error code of the provider.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    error: Option<String>,
    /// Only of this account, number, instance, shop, repository or workspace.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    account: Option<String>,
    /// Only with this status of the provider: `delivered`, `read`, `failed`.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    provider_status: Option<String>,
    /// Only with a delivery that has this status.
    #[schemars(with = "Option<Status>")]
    status: Option<String>,
    /// Only with this text in the key, or in a body of up to 128 KiB.
    #[schemars(length(min = 1, max = 256))]
    search: Option<String>,
    /// Only received at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Only received before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// At most this many; of a page 50 when left out, of an export all.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<EventId>")]
    cursor: Option<String>,
    /// `ndjson` and `csv` export the whole list; `Accept` says the same.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    format: Option<String>,
}

impl EventQuery {
    /// What is wanted of each attribute.
    fn attribute(&self, name: AttributeName) -> Option<&str> {
        match name {
            AttributeName::MessageId => self.message_id.as_deref(),
            AttributeName::Object => self.object.as_deref(),
            AttributeName::Conversation => self.conversation.as_deref(),
            AttributeName::Phone => self.phone.as_deref(),
            AttributeName::Chat => self.chat.as_deref(),
            AttributeName::Email => self.email.as_deref(),
            AttributeName::User => self.user.as_deref(),
            AttributeName::Error => self.error.as_deref(),
            AttributeName::Account => self.account.as_deref(),
            AttributeName::ProviderStatus => self.provider_status.as_deref(),
        }
    }
}

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

impl From<Entry> for ShownEntry {
    fn from(Entry { at, kind, text, delivery, detail }: Entry) -> Self {
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

/// One sighting of a duplicate.
#[derive(Debug, Serialize, JsonSchema)]
struct ShownDuplicate {
    seen_at: Timestamp,
    bytes_differ: bool,
    /// The body, if it differs.
    body: Option<Bytes>,
}

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new("list_events", "Events, newest first.")
        .query::<EventQuery>()
        .answers::<List<Event>>(200)
        .answers_as(200, export::KINDS)
        .refuses(503, &["too_many_exports"]);
    let find = Op::new("find_event", "One event with its deliveries and duplicates.")
        .path::<EventId>("id")
        .answers::<EventWithStory>(200)
        .cached();
    let body = Op::new("read_body", "The body of an event, as it came.")
        .path::<EventId>("id")
        .answers_as(200, &["application/octet-stream"])
        .refuses(410, &["body_removed"]);
    api.get("/api/v1/events", list_events, list).get("/api/v1/events/{id}", find_event, find).get(
        "/api/v1/events/{id}/body",
        read_body,
        body,
    )
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

/// The source of that name, or what to say when there is none.
pub(super) fn find_source(
    configuration: &Configuration,
    name: Option<&str>,
) -> Result<Option<SourceId>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let found = configuration.sources.iter().find(|s| s.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("there is no source `{name}`"));
    found.map(|source| Some(source.id)).ok_or_else(unknown)
}

pub(super) fn status(word_given: Option<&str>) -> Result<Option<Status>, Problem> {
    let known: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
    word("status", word_given, Status::from_word, &known)
}

/// Reads the kind of the query.
pub(super) fn kind(text: Option<&str>) -> Result<Option<EventKind>, Problem> {
    let invalid = |error: InvalidKind| Problem::invalid(error.to_string());
    text.map(|text| EventKind::try_from(text.to_owned()).map_err(invalid)).transpose()
}

/// Reads the attributes of the query.
fn attributes(query: &EventQuery) -> Result<Vec<Wanted>, Problem> {
    let given =
        AttributeName::ALL.into_iter().filter_map(|name| Some((name, query.attribute(name)?)));
    given
        .map(|(name, text)| {
            let word = name.as_str();
            let invalid = || {
                let detail = format!("{word} has 1 to {VALUE_BYTES_MAX} printable bytes");
                Problem::invalid(detail)
            };
            Wanted::new(name, text).ok_or_else(invalid)
        })
        .collect()
}

fn filter(query: EventQuery, configuration: &Configuration) -> Result<EventFilter, Problem> {
    let source = find_source(configuration, query.source.as_deref())?;
    if query.key.is_some() && source.is_none() {
        return Err(Problem::invalid("a key is looked for within a source; give `source` too"));
    }
    if query.search.as_ref().is_some_and(|s| s.is_empty() || s.len() > SEARCH_BYTES_MAX) {
        let detail = format!("search is a text of 1 to {SEARCH_BYTES_MAX} bytes");
        return Err(Problem::invalid(detail));
    }
    Ok(EventFilter {
        source,
        kind: kind(query.kind.as_deref())?,
        attributes: attributes(&query)?,
        key: query.key,
        status: status(query.status.as_deref())?,
        search: query.search,
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    })
}

/// Events, newest first.
pub(crate) async fn list_events(
    State(app): State<Arc<App>>,
    Asked(query): Asked<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::wanted(query.format.as_deref(), &headers)?;
    let limit = limit(query.limit.as_deref())?;
    let after = cursor(query.cursor.as_deref())?;
    let configuration = app.engine.store().configuration().await?;
    let filter = filter(query, &configuration)?;
    let names = source_names(&configuration);
    if format != Format::Page {
        let pages = EventPages { app: Arc::clone(&app), filter, names, after, ended: false };
        return export(&app, format, pages, limit).await;
    }
    let page = app.engine.store().events(filter, page(limit, after)).await?;
    let next_cursor = page.next.map(|id| id.to_string());
    let data = page.rows.into_iter().map(|row| event(row, &names)).collect();
    Ok(Json(List { data, next_cursor }).into_response())
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
    type Row = Event;
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
    ];

    async fn next(&mut self, limit: usize) -> Result<Option<Vec<Event>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let page = Page { after: self.after, limit };
        let page = self.app.engine.store().events(self.filter.clone(), page).await?;
        (self.after, self.ended) = (page.next, page.next.is_none());
        Ok(Some(page.rows.into_iter().map(|row| event(row, &self.names)).collect()))
    }
}

fn parse(id: &str) -> Result<EventId, Problem> {
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
    let story = story::tell(&detail, &|destination| names.get(&destination).cloned());
    let EventDetail { event: row, head, fingerprint, deliveries, duplicates, .. } = detail;
    let source = configuration.sources.iter().find(|source| source.id == row.source);
    let hidden = Hidden::of(source.map(|source| &source.spec));
    EventWithStory {
        event: event(row, &source_names(configuration)),
        sha256: HEXLOWER.encode(&fingerprint),
        request: head.map(|head| request(&head, hidden)),
        deliveries: deliveries.into_iter().map(|row| deliveries::delivery(row, &names)).collect(),
        duplicates: duplicates.into_iter().map(duplicate).collect(),
        decisions: story.into_iter().map(ShownEntry::from).collect(),
    }
}

fn duplicate(row: DuplicateRow) -> ShownDuplicate {
    ShownDuplicate {
        seen_at: row.seen_at,
        bytes_differ: row.bytes_differ,
        body: row.body.map(|body| Bytes::from(&body[..])),
    }
}

fn request(head: &RequestHead, hidden: Hidden<'_>) -> ShownRequest {
    ShownRequest {
        path: head.path.clone(),
        query: head.query.as_deref().map(|query| hidden.query(query)),
        remote: head.remote.clone(),
        headers: header_lines(head.headers.lines(), hidden),
    }
}

/// The body as it came, as a download: whatever it says it is, a browser must not run it.
pub(crate) async fn read_body(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    match app.engine.store().body(id).await? {
        Some(payload) => Ok(download(&id.to_string(), payload.body)),
        None => {
            let gone = without_body(&app, id).await?;
            Err(gone.unwrap_or_else(|| Problem::not_found("event with a body")))
        }
    }
}

/// Bytes as a file.
pub(super) fn download(name: &str, body: bytes::Bytes) -> Response {
    let file = format!("attachment; filename=\"{name}.bin\"");
    let disposition =
        HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment"));
    let kind = HeaderValue::from_static("application/octet-stream");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, disposition)];
    (headers, body).into_response()
}

/// Why the body of an event is not there: there is no such event, or retention removed it.
pub(super) async fn without_body(app: &App, id: EventId) -> Result<Option<Problem>, Problem> {
    let store = app.engine.store();
    let Some(detail) = store.event(id).await? else {
        return Ok(Some(Problem::not_found("event")));
    };
    if !detail.event.body_removed {
        return Ok(None);
    }
    let sources = store.configuration().await?.sources;
    let source = sources.iter().find(|source| source.id == detail.event.source);
    Ok(Some(Problem::body_removed(
        source.map(|source| (&source.spec.name, app.engine.keep(&source.spec))),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_column() {
        let schema = schemars::schema_for!(Event).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = EventPages::COLUMNS.to_vec();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
}
