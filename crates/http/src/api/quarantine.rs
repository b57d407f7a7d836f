//! `/api/v1/quarantine`: requests that did not verify and that their sender never sends again.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use surehook_core::{
    ids::RequestId,
    name::Name,
    quarantine::QuarantinedRequest,
    redact::{self, SecretNames},
    refused::advice,
    source::SourceSpec,
    store::Configuration,
    time::Timestamp,
};
use surehook_engine::{
    ingest::{ReadySource, ReceivedEvent},
    quarantine::{BulkReleaseReport, ReleaseError},
};

use super::{
    Bytes, HeaderLine, LIMIT_MAX, List, cursor,
    hidden::{self, header_lines},
    input::{Asked, Input, Segment, Wish},
    limit, page, resources, whole_page,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// Which of them are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    /// Only for this source, by name or id.
    source: Option<String>,
    /// At most this many; 50 when left out.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<RequestId>")]
    cursor: Option<String>,
}

/// A request in quarantine, without its headers and body.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QuarantinedRequest")]
pub(crate) struct Aside {
    id: RequestId,
    #[schemars(with = "String", regex(pattern = "^quarantined$"))]
    status: &'static str,
    /// The source that it was for; null when that was deleted.
    source: Option<Name>,
    /// When it came first.
    received_at: Timestamp,
    /// When it came last.
    seen_at: Timestamp,
    /// How often it came.
    times: u64,
    /// Why it was not let in.
    reason: String,
    what_to_do: &'static str,
    method: String,
    /// What follows the source's name. What may be a secret is hidden.
    path: String,
    /// Secrets are hidden.
    query: Option<String>,
    remote: String,
    body_bytes: u64,
}

/// A request in quarantine, whole. Secrets are hidden.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "QuarantinedWhole")]
pub(crate) struct AsideWhole {
    #[serde(flatten)]
    request: Aside,
    headers: Vec<HeaderLine>,
    body: Bytes,
    /// How many fields of the body are hidden.
    masked: usize,
}

/// How one is released.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseWish {
    /// Also if it still does not verify. Its events say that it was released by hand.
    #[serde(default)]
    force: bool,
}

/// What it became.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReleasedShown {
    /// `accepted`, or `duplicate` when everything in it had come in meanwhile.
    status: &'static str,
    events: Vec<EventShown>,
}

/// One event of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReleasedEvent")]
pub(crate) struct EventShown {
    id: String,
    key: Option<String>,
    status: &'static str,
}

/// Whose are released.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseAllWish {
    /// The source, by name or id.
    source: String,
    /// Goes on after the call that gave this as `next`.
    after: Option<RequestId>,
}

/// What became of them.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReleasedAll {
    /// Requests that are out of quarantine.
    released: u64,
    /// Events that they became.
    events: u64,
    /// Events that had come in meanwhile.
    duplicates: u64,
    /// Requests that still do not verify, and stay.
    left: u64,
    /// Give it as `after` to go on; null at the end.
    next: Option<RequestId>,
}

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new("list_quarantine", "Requests that are kept aside, newest first.")
        .query::<QuarantineQuery>()
        .answers::<List<Aside>>(200)
        .refuses(404, &["not_found"]);
    let find = Op::new("find_quarantined", "A request that is kept aside, whole.")
        .path::<RequestId>("id")
        .answers::<AsideWhole>(200);
    let release = Op::new("release_quarantined", "Takes a request in, if it verifies by now.")
        .path::<RequestId>("id")
        .may_have_body::<ReleaseWish>(json!({ "force": false }))
        .answers::<ReleasedShown>(200)
        .refuses(409, &["still_wrong", "source_gone"]);
    let release_all =
        Op::new("release_quarantine", "Takes in all of a source that verify by now, oldest first.")
            .text("At most 500 in one call; `next` says where the next one goes on.")
            .body::<ReleaseAllWish>(json!({ "source": "whatsapp" }))
            .answers::<ReleasedAll>(200)
            .refuses(404, &["not_found"])
            .refuses(409, &["source_gone"]);
    let discard = Op::new("discard_quarantined", "Throws a request away.")
        .path::<RequestId>("id")
        .answers_nothing(204);
    let one = "/api/v1/quarantine/{id}";
    api.get("/api/v1/quarantine", list_quarantine, list)
        .get(one, find_quarantined, find)
        .post("/api/v1/quarantine/{id}/release", release_one, release)
        .post("/api/v1/quarantine/release", release_many, release_all)
        .delete(one, discard_one, discard)
}

/// Requests that are kept aside, newest first.
pub(crate) async fn list_quarantine(
    State(app): State<Arc<App>>,
    Asked(query): Asked<QuarantineQuery>,
) -> Result<Json<List<Aside>>, Problem> {
    let page = page(limit(query.limit.as_deref())?, cursor(query.cursor.as_deref())?);
    let configuration = app.engine.store().configuration().await?;
    let source = match &query.source {
        Some(wanted) => Some(resources::find_in::<SourceSpec>(&configuration, wanted)?.id),
        None => None,
    };
    let rows = app.engine.quarantine_store().quarantined(source, page).await?;
    let shown = rows.iter().map(|row| (row.id, summary(&app, &configuration, row)));
    Ok(whole_page(page, shown.collect()))
}

/// One with its headers and body.
pub(crate) async fn find_quarantined(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<AsideWhole>, Problem> {
    let id = id.parse().map_err(|_| unknown())?;
    let row = app.engine.quarantine_store().quarantined_request(id).await?.ok_or_else(unknown)?;
    let configuration = app.engine.store().configuration().await?;
    let names = secret_names(&app, &configuration, &row);
    let headers = header_lines(row.headers.lines(), &names);
    let body = row.body.as_deref().unwrap_or_default();
    let (body, masked) = hidden::body(&row.headers.to_map(), body, &names);
    let request = summary(&app, &configuration, &row);
    Ok(Json(AsideWhole { request, headers, body, masked }))
}

/// Takes one in.
pub(crate) async fn release_one(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    Wish(wish): Wish<ReleaseWish>,
) -> Result<Json<ReleasedShown>, Problem> {
    let id = id.parse().map_err(|_| unknown())?;
    let outcome = app.engine.release_quarantined(id, wish.force).await?;
    let word = |duplicate| if duplicate { "duplicate" } else { "accepted" };
    let received = outcome.received;
    let all_known = !received.is_empty() && received.iter().all(|event| event.duplicate);
    let event = |event: &ReceivedEvent| EventShown {
        id: event.event.to_string(),
        key: event.key.as_ref().map(|key| key.as_str().to_owned()),
        status: word(event.duplicate),
    };
    let events = received.iter().map(event).collect();
    Ok(Json(ReleasedShown { status: word(all_known), events }))
}

/// Takes in all of a source that verify.
pub(crate) async fn release_many(
    State(app): State<Arc<App>>,
    Input(wish): Input<ReleaseAllWish>,
) -> Result<Json<ReleasedAll>, Problem> {
    let configuration = app.engine.store().configuration().await?;
    let source = resources::find_in::<SourceSpec>(&configuration, &wish.source)?.id;
    let BulkReleaseReport { released, events, duplicates, left, next } =
        app.engine.release_verified(source, wish.after).await?;
    Ok(Json(ReleasedAll { released, events, duplicates, left, next }))
}

/// Throws one away.
pub(crate) async fn discard_one(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<StatusCode, Problem> {
    let id = id.parse().map_err(|_| unknown())?;
    match app.engine.quarantine_store().discard(id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}

fn unknown() -> Problem {
    Problem::not_found("request in quarantine")
}

fn source_of<'c>(
    configuration: &'c Configuration,
    row: &QuarantinedRequest,
) -> Option<&'c SourceSpec> {
    let stored = configuration.sources.iter().find(|source| source.id == row.source);
    stored.map(|stored| &stored.spec)
}

/// What nobody is shown: what is secret for anybody, and the header that the preset looks at.
fn secret_names(app: &App, configuration: &Configuration, row: &QuarantinedRequest) -> SecretNames {
    let mut names = configuration.all_secret_names();
    let open = app.engine.source_by_id(row.source);
    if let Some(header) = open.as_ref().and_then(ReadySource::secret_header) {
        names.add_header(header.as_str());
    }
    names
}

fn summary(app: &App, configuration: &Configuration, row: &QuarantinedRequest) -> Aside {
    let source = source_of(configuration, row);
    let names = secret_names(app, configuration, row);
    Aside {
        id: row.id,
        status: "quarantined",
        source: source.map(|source| source.name.clone()),
        received_at: row.received_at,
        seen_at: row.seen_at,
        times: row.times,
        reason: row.code.clone(),
        what_to_do: advice(&row.code),
        method: row.method.clone(),
        path: redact::mask_path(&row.path),
        query: row.query.as_deref().map(|query| redact::mask_query(query, &names)),
        remote: row.remote.clone(),
        body_bytes: row.body_bytes,
    }
}

impl From<ReleaseError> for Problem {
    fn from(error: ReleaseError) -> Self {
        let conflict = |code, detail| Self::new(StatusCode::CONFLICT, code, detail);
        match error {
            ReleaseError::NotFound => unknown(),
            ReleaseError::SourceGone => conflict("source_gone", error.to_string()),
            ReleaseError::NotVerified(why) => {
                let detail = format!(
                    "{why}; it stays in quarantine: mend `secrets` or `verify` of the source, or \
                     give force = true to take it in as it is"
                );
                conflict("still_wrong", detail)
            }
            ReleaseError::Store(error) => Self::from(error),
        }
    }
}
