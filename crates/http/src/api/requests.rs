//! `/api/v1/requests`: a sample of what was refused at the door.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};
use surehook_core::refused::{RefusedFilter, RefusedRequest, advice};

use super::{
    List, events,
    hidden::Hidden,
    input::{Asked, Segment},
    list, page,
};
use crate::{App, problem::Problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestQuery {
    source: Option<String>,
    reason: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

/// Refused requests, newest first.
pub(crate) async fn list_requests(
    State(app): State<Arc<App>>,
    Asked(query): Asked<RequestQuery>,
) -> Result<Json<List<Value>>, Problem> {
    let page = page(query.limit.as_deref(), query.cursor.as_deref())?;
    let filter = RefusedFilter { source: query.source, code: query.reason };
    let rows = app.engine.store().refused(filter, page).await?;
    Ok(list(page, rows.into_iter().map(|row| (row.id, summary(&row))).collect()))
}

/// One refused request with all that was kept of it.
pub(crate) async fn find_request(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    let unknown = || Problem::not_found("refused request");
    let id = id.parse().map_err(|_| unknown())?;
    let row = app.engine.store().refused_request(id).await?.ok_or_else(unknown)?;
    let mut json = summary(&row);
    // What is secret was taken out before it was kept.
    json["headers"] = events::header_lines(row.headers.lines(), Hidden::of(None)).into();
    json["body"] = row.body.as_deref().map_or(Value::Null, events::text_or_base64);
    Ok(Json(json))
}

fn summary(row: &RefusedRequest) -> Value {
    json!({
        "id": row.id,
        "status": "refused",
        "source": row.source,
        "at": row.at,
        "reason": row.code,
        "what_to_do": advice(&row.code),
        "http_status": row.status,
        "method": row.method,
        "path": row.path,
        "query": row.query,
        "remote": row.remote,
        "body_bytes": row.body_bytes,
    })
}
