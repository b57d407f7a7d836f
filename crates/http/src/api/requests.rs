//! `/api/v1/requests`: a sample of what was refused at the door.

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
    ids::RequestId,
    name::Name,
    refused::{RefusedFilter, RefusedRequest, advice},
    store::Page,
    time::Timestamp,
};

use super::{
    Bytes, HeaderLine, LIMIT_MAX, List, cursor,
    export::{self, Format, Pages, export},
    hidden::{self, header_lines},
    input::{Asked, Segment},
    limit, page, whole_page,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
    refusal,
};

/// Which refused requests are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestQuery {
    /// Only for the source of this name.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only for this reason: the code that the sender was told.
    reason: Option<String>,
    /// At most this many; of a page 50 when left out, of an export all.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<RequestId>")]
    cursor: Option<String>,
    /// `ndjson` and `csv` export the whole list; `Accept` says the same.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    format: Option<String>,
}

/// A request that was refused, without its headers and body.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RefusedRequest")]
pub(crate) struct Refused {
    id: RequestId,
    #[schemars(with = "String", regex(pattern = "^refused$"))]
    status: &'static str,
    /// The source that it was for; null when there is none of that name.
    source: Option<String>,
    at: Timestamp,
    /// Why: the code that the sender was told.
    reason: String,
    what_to_do: &'static str,
    /// The status that it was answered with.
    http_status: u16,
    method: String,
    /// What may be a secret is hidden.
    path: String,
    /// Secrets are hidden.
    query: Option<String>,
    remote: String,
    /// The length of the body, if it was read.
    body_bytes: Option<u64>,
}

/// A refused request with all that was kept of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RefusedWhole {
    #[serde(flatten)]
    request: Refused,
    headers: Vec<HeaderLine>,
    /// Only if the source keeps the bodies of refused requests; secrets are masked.
    body: Option<Bytes>,
    /// How many values of the body are masked.
    masked: usize,
}

pub(crate) fn routes(api: Api) -> Api {
    let list =
        Op::new("list_requests", "A sample of the requests that were refused, newest first.")
            .query::<RequestQuery>()
            .answers::<List<Refused>>(200)
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

/// Refused requests, newest first.
pub(crate) async fn list_requests(
    State(app): State<Arc<App>>,
    Asked(query): Asked<RequestQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = Format::wanted(query.format.as_deref(), &headers)?;
    let limit = limit(query.limit.as_deref())?;
    let after = cursor(query.cursor.as_deref())?;
    // Of a source that was deleted there may still be some, so that only the form is looked at.
    if let Some(Err(error)) = query.source.as_deref().map(str::parse::<Name>) {
        return Err(Problem::invalid(format!("source: {error}")));
    }
    let filter = RefusedFilter { source: query.source, code: query.reason };
    if format != Format::Page {
        let pages = RefusedPages { app: Arc::clone(&app), filter, after, ended: false };
        return export(&app, format, pages, limit).await;
    }
    let page = page(limit, after);
    let rows = app.engine.store().refused(filter, page).await?;
    let rows = rows.into_iter().map(|row| (row.id, summary(&row))).collect();
    Ok(whole_page(page, rows).into_response())
}

/// A list of refused requests, to its end.
struct RefusedPages {
    app: Arc<App>,
    filter: RefusedFilter,
    after: Option<RequestId>,
    ended: bool,
}

impl Pages for RefusedPages {
    type Row = Refused;
    const NAME: &'static str = "requests";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "status",
        "source",
        "at",
        "reason",
        "what_to_do",
        "http_status",
        "method",
        "path",
        "query",
        "remote",
        "body_bytes",
    ];

    async fn next(&mut self, limit: usize) -> Result<Option<Vec<Refused>>, Problem> {
        if self.ended {
            return Ok(None);
        }
        let page = Page { after: self.after, limit };
        let rows = self.app.engine.store().refused(self.filter.clone(), page).await?;
        self.after = rows.last().map(|row| row.id);
        self.ended = rows.len() < limit;
        Ok(Some(rows.iter().map(summary).collect()))
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
    Ok(Json(RefusedWhole { request: summary(&row), headers, body, masked }))
}

fn summary(row: &RefusedRequest) -> Refused {
    Refused {
        id: row.id,
        status: "refused",
        source: row.source.clone(),
        at: row.at,
        reason: row.code.clone(),
        what_to_do: advice(&row.code),
        http_status: row.status,
        method: row.method.clone(),
        // Those of older versions were kept as they came.
        path: refusal::shown_path(&row.path),
        query: row.query.clone(),
        remote: row.remote.clone(),
        body_bytes: row.body_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_column() {
        let schema = schemars::schema_for!(Refused).to_value();
        let mut fields: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns = RefusedPages::COLUMNS.to_vec();
        fields.sort_unstable();
        columns.sort_unstable();
        assert_eq!(columns, fields);
    }
}
