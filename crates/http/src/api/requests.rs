//! `/api/v1/requests`: what came to the door, and what became of it.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    ids::{EventId, RequestId, SourceId},
    name::Name,
    redact,
    refused::{RefusedRequest, advice},
    requests::{ReceivedRequest, RequestCursor, RequestFilter, RequestOutcome},
    store::{Configuration, PageRequest},
    time::Timestamp,
};

use super::{
    Bytes, HeaderLine, LIMIT_DEFAULT, LIMIT_MAX, List,
    export::{self, Format, Pages, export},
    hidden::{self, header_lines},
    input::{Asked, Segment},
    limit, time, word,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
    refusal,
};

/// Which requests are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestQuery {
    /// Only those that came to this: `accepted`, `duplicate` or `refused`.
    #[schemars(regex(pattern = "^(accepted|duplicate|refused)$"))]
    outcome: Option<String>,
    /// Only for the source of this name.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only refused for this reason: the code that the sender was told.
    reason: Option<String>,
    /// Only at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Only before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// At most this many; of a page 50 when left out, of an export all.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    cursor: Option<String>,
    /// `ndjson` and `csv` export the whole list; `Accept` says the same.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    format: Option<String>,
}

/// A request that came to the door, without its headers and body.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Request")]
pub(crate) struct ShownArrival {
    /// Null for a duplicate: of those only the event and the time are kept.
    id: Option<RequestId>,
    /// What became of it.
    #[schemars(with = "String", regex(pattern = "^(accepted|duplicate|refused)$"))]
    outcome: &'static str,
    /// The source that it was for; null when there is none of that name, or it was deleted.
    source: Option<String>,
    at: Timestamp,
    /// The event that it brought; of several the last. Of a duplicate the event that had come before.
    event: Option<EventId>,
    /// How many new events it brought; null if it was refused.
    events: Option<u64>,
    /// Whether a duplicate differs from what had come before; null for all others.
    bytes_differ: Option<bool>,
    /// Why it was refused: the code that the sender was told.
    reason: Option<String>,
    what_to_do: Option<&'static str>,
    /// The status that it was refused with.
    http_status: Option<u16>,
    /// Only of those that were refused.
    method: Option<String>,
    /// What may be a secret is hidden. Null for a duplicate, and when retention has removed the body.
    path: Option<String>,
    /// Secrets are hidden.
    query: Option<String>,
    remote: Option<String>,
    /// The length of the body, if it was read; of several events that of the one that is named.
    body_bytes: Option<u64>,
}

/// A refused request with all that was kept of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RefusedWhole {
    #[serde(flatten)]
    request: ShownArrival,
    headers: Vec<HeaderLine>,
    /// Only if the source keeps the bodies of refused requests; secrets are masked.
    body: Option<Bytes>,
    /// How many values of the body are masked.
    masked: usize,
}

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new("list_requests", "What came to the door, newest first.")
        .text(
            "Accepted requests are there while their events are. Of duplicates the first 100 of each event \
             are, and later ones that differ from it; each event that came again is an entry of its own, and \
             they are in order but for a moment. Of refused ones there is a sample: the newest 100 of each \
             source and reason. Messages that were sent over the API did not come to the door.",
        )
        .query::<RequestQuery>()
        .answers::<List<ShownArrival>>(200)
        .answers_as(200, export::KINDS)
        .refuses(503, &["too_many_exports"]);
    let find = Op::new("find_request", "A refused request with all that was kept of it.")
        .path::<RequestId>("id")
        .answers::<RefusedWhole>(200);
    api.get("/api/v1/requests", list_requests, list).get(
        "/api/v1/requests/{id}",
        find_request,
        find,
    )
}

/// What came to the door, newest first.
pub(crate) async fn list_requests(
    State(app): State<Arc<App>>,
    Asked(query): Asked<RequestQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::wanted(query.format.as_deref(), &headers)?;
    let limit = limit(query.limit.as_deref())?;
    let invalid = |_| Problem::invalid("cursor is not one of this list");
    let after = query.cursor.as_deref().map(|text| text.parse().map_err(invalid)).transpose()?;
    let configuration = app.engine.store().configuration().await?;
    let filter = filter(query, &configuration)?;
    if format != Format::Page {
        let app = Arc::clone(&app);
        let pages =
            ArrivalPages { app: Arc::clone(&app), configuration, filter, after, ended: false };
        return export(&app, format, pages, limit).await;
    }
    let page = PageRequest { after, limit: limit.unwrap_or(LIMIT_DEFAULT) };
    let page = app.engine.store().arrivals(filter, page).await?;
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    let data = page.rows.iter().map(|row| shown(row, &configuration)).collect();
    Ok(Json(List { data, next_cursor }).into_response())
}

fn filter(query: RequestQuery, configuration: &Configuration) -> Result<RequestFilter, Problem> {
    let known = RequestOutcome::ALL.map(RequestOutcome::as_str);
    let outcome = word("outcome", query.outcome.as_deref(), RequestOutcome::from_word, &known)?;
    if query.reason.is_some() && outcome.is_some_and(|outcome| outcome != RequestOutcome::Refused) {
        return Err(Problem::invalid("a reason goes with outcome=refused"));
    }
    // Of a source that was deleted there may still be some, so that only the form is looked at.
    if let Some(Err(error)) = query.source.as_deref().map(str::parse::<Name>) {
        return Err(Problem::invalid(format!("source: {error}")));
    }
    let sources = &configuration.sources;
    let source = query.source.map(|name| {
        let found = sources.iter().find(|stored| stored.spec.name.as_str() == name);
        (name, found.map(|stored| stored.id))
    });
    Ok(RequestFilter {
        outcome,
        source,
        reason: query.reason,
        not_of: sources.iter().find(|stored| stored.spec.is_outbox()).map(|stored| stored.id),
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    })
}

/// A list of arrivals, to its end.
struct ArrivalPages {
    app: Arc<App>,
    configuration: Configuration,
    filter: RequestFilter,
    after: Option<RequestCursor>,
    ended: bool,
}

impl Pages for ArrivalPages {
    type Row = ShownArrival;
    const NAME: &'static str = "requests";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "outcome",
        "source",
        "at",
        "event",
        "events",
        "bytes_differ",
        "reason",
        "what_to_do",
        "http_status",
        "method",
        "path",
        "query",
        "remote",
        "body_bytes",
    ];

    async fn next(&mut self, limit: usize) -> Result<Option<Vec<ShownArrival>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let page = PageRequest { after: self.after, limit };
        let page = self.app.engine.store().arrivals(self.filter.clone(), page).await?;
        (self.after, self.ended) = (page.next, page.next.is_none());
        Ok(Some(page.rows.iter().map(|row| shown(row, &self.configuration)).collect()))
    }
}

/// One refused request with all that was kept of it.
pub(crate) async fn find_request(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<RefusedWhole>, Problem> {
    let unknown = || Problem::not_found("refused request");
    let id = id.parse().map_err(|_| unknown())?;
    let row = app.engine.store().refused_request(id).await?.ok_or_else(unknown)?;
    // Most of it was taken out before it was kept. The source may have got another name since, so
    // that whatever is secret for anybody is not shown.
    let names = app.engine.store().configuration().await?.all_secret_names();
    let body = row.body.as_deref().map(|body| hidden::body(&row.headers.to_map(), body, &names));
    let (body, masked) = body.map_or((None, 0), |(body, masked)| (Some(body), masked));
    let headers = header_lines(row.headers.lines(), &names);
    Ok(Json(RefusedWhole { request: refused(&row), headers, body, masked }))
}

fn shown(arrival: &ReceivedRequest, configuration: &Configuration) -> ShownArrival {
    let name = |id: SourceId| {
        let found = configuration.sources.iter().find(|stored| stored.id == id);
        found.map(|stored| stored.spec.name.to_string())
    };
    match arrival {
        ReceivedRequest::Refused(row) => refused(row),
        ReceivedRequest::Accepted(row) => {
            let hidden = configuration.secret_names(row.source);
            ShownArrival {
                id: Some(row.request),
                source: name(row.source),
                event: Some(row.event),
                events: Some(row.events),
                path: row.path.clone(),
                query: row.query.as_deref().map(|query| redact::mask_query(query, &hidden)),
                remote: row.remote.clone(),
                body_bytes: Some(row.body_bytes),
                ..bare(RequestOutcome::Accepted, row.at)
            }
        }
        ReceivedRequest::Duplicate(row) => ShownArrival {
            source: name(row.source),
            event: Some(row.event),
            events: Some(0),
            bytes_differ: Some(row.bytes_differ),
            body_bytes: row.body_bytes,
            ..bare(RequestOutcome::Duplicate, row.at)
        },
    }
}

/// An arrival of which nothing else is known.
fn bare(outcome: RequestOutcome, at: Timestamp) -> ShownArrival {
    ShownArrival {
        id: None,
        outcome: outcome.as_str(),
        source: None,
        at,
        event: None,
        events: None,
        bytes_differ: None,
        reason: None,
        what_to_do: None,
        http_status: None,
        method: None,
        path: None,
        query: None,
        remote: None,
        body_bytes: None,
    }
}

fn refused(row: &RefusedRequest) -> ShownArrival {
    ShownArrival {
        id: Some(row.id),
        source: row.source.clone(),
        reason: Some(row.code.clone()),
        what_to_do: Some(advice(&row.code)),
        http_status: Some(row.status),
        method: Some(row.method.clone()),
        // Those of older versions were kept as they came.
        path: Some(refusal::shown_path(&row.path)),
        query: row.query.clone(),
        remote: Some(row.remote.clone()),
        body_bytes: row.body_bytes,
        ..bare(RequestOutcome::Refused, row.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_column() {
        let schema = schemars::schema_for!(ShownArrival).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = ArrivalPages::COLUMNS.to_vec();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
}
