//! `/api/v1/events`, and the inbox.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use surehook_core::{
    event::RequestHead,
    ids::{EventId, SourceId},
    store::{Configuration, DuplicateRow, EventDetail, EventFilter, EventRow},
    story::{self, Entry},
    time::Timestamp,
};

use super::{
    List, deliveries,
    hidden::{self, Hidden},
    input::{Asked, Segment},
    list, page,
};
use crate::{App, problem::Problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    source: Option<String>,
    key: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Event {
    id: String,
    request_id: String,
    source: Option<String>,
    key: Option<String>,
    no_key: bool,
    received_at: Timestamp,
    body_bytes: u64,
    duplicate_count: u64,
    last_duplicate_at: Option<Timestamp>,
    body_removed: bool,
}

fn source_names(configuration: &Configuration) -> HashMap<SourceId, String> {
    configuration.sources.iter().map(|s| (s.id, s.spec.name.to_string())).collect()
}

fn event(row: EventRow, sources: &HashMap<SourceId, String>) -> Event {
    Event {
        id: row.id.to_string(),
        request_id: row.request_id.to_string(),
        source: sources.get(&row.source).cloned(),
        no_key: row.key.is_none(),
        key: row.key,
        received_at: row.received_at,
        body_bytes: row.body_bytes,
        duplicate_count: row.duplicates,
        last_duplicate_at: row.last_duplicate_at,
        body_removed: row.body_removed,
    }
}

/// Events, newest first.
pub(crate) async fn list_events(
    State(app): State<Arc<App>>,
    Asked(query): Asked<EventQuery>,
) -> Result<Json<List<Event>>, Problem> {
    let page = page(query.limit.as_deref(), query.cursor.as_deref())?;
    let configuration = app.engine.store().configuration().await?;
    let source = query
        .source
        .map(|name| {
            let found = configuration.sources.iter().find(|s| s.spec.name.as_str() == name);
            found
                .map(|s| s.id)
                .ok_or_else(|| Problem::invalid(format!("there is no source `{name}`")))
        })
        .transpose()?;
    if query.key.is_some() && source.is_none() {
        return Err(Problem::invalid("a key is looked for within a source; give `source` too"));
    }
    let filter = EventFilter { source, key: query.key };
    let rows = app.engine.store().events(filter, page).await?;
    let names = source_names(&configuration);
    Ok(list(page, rows.into_iter().map(|row| (row.id, event(row, &names))).collect()))
}

fn parse(id: &str) -> Result<EventId, Problem> {
    id.parse().map_err(|_| Problem::not_found("event"))
}

/// One event with its story.
pub(crate) async fn find_event(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    let id = parse(&id)?;
    let detail = app.engine.store().event(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    let configuration = app.engine.store().configuration().await?;
    Ok(Json(shown(detail, &configuration)))
}

fn shown(detail: EventDetail, configuration: &Configuration) -> Value {
    let names = deliveries::destination_names(configuration);
    let story = story::tell(&detail, &|destination| names.get(&destination).cloned());
    let EventDetail { event: row, head, fingerprint, deliveries, duplicates, .. } = detail;
    let source = configuration.sources.iter().find(|source| source.id == row.source);
    let hidden = Hidden::of(source.map(|source| &source.spec));
    let deliveries: Vec<_> =
        deliveries.into_iter().map(|row| deliveries::delivery(row, &names)).collect();
    // A struct of texts, numbers and lists always becomes JSON.
    let mut json =
        serde_json::to_value(event(row, &source_names(configuration))).unwrap_or_default();
    json["sha256"] = json!(HEXLOWER.encode(&fingerprint));
    json["request"] = head.map_or(Value::Null, |head| request(&head, hidden));
    json["deliveries"] = serde_json::to_value(deliveries).unwrap_or_default();
    json["duplicates"] = duplicates.iter().map(duplicate).collect();
    json["decisions"] = story.iter().map(entry).collect();
    json
}

/// One line of the story; what only programs want stands beside it.
fn entry(entry: &Entry) -> Value {
    let mut json = json!({
        "at": entry.at,
        "kind": entry.kind,
        "text": entry.text,
        "delivery": entry.delivery,
    });
    if !entry.detail.is_null() {
        json["detail"] = entry.detail.clone();
    }
    json
}

fn duplicate(row: &DuplicateRow) -> Value {
    json!({
        "seen_at": row.seen_at,
        "bytes_differ": row.bytes_differ,
        "body": row.body.as_deref().map(text_or_base64),
    })
}

/// Bytes as text where they are text.
pub(super) fn text_or_base64(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": BASE64.encode(bytes) }),
    }
}

fn request(head: &RequestHead, hidden: Hidden<'_>) -> Value {
    json!({
        "path": head.path,
        "query": head.query.as_deref().map(|query| hidden.query(query)),
        "remote": head.remote,
        "headers": header_lines(head.headers.lines(), hidden),
    })
}

pub(super) fn header_lines<'a>(
    lines: impl Iterator<Item = (&'a str, &'a [u8])>,
    hidden: Hidden<'_>,
) -> Vec<Value> {
    lines
        .map(|(name, value)| {
            let mut line = match hidden.hides(name) {
                true => json!({ "text": hidden::MASK }),
                false => text_or_base64(value),
            };
            line["name"] = json!(name);
            line
        })
        .collect()
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
pub(super) fn download(name: &str, body: Bytes) -> Response {
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

/// The latest deliveries to `builtin:inbox`, newest first.
pub(crate) async fn read_inbox(State(app): State<Arc<App>>) -> Json<Value> {
    let data: Vec<Value> = app
        .engine
        .inbox()
        .arrivals()
        .into_iter()
        .map(|arrival| {
            let lines = arrival.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes()));
            json!({
                "arrived_at": arrival.at,
                "event": arrival.event,
                "headers": header_lines(lines, Hidden::of(None)),
                "body": text_or_base64(&arrival.body),
            })
        })
        .collect();
    Json(json!({ "data": data, "next_cursor": null }))
}
