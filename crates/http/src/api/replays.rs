//! `/api/v1/replays`: delivering again in bulk, as a job.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use surehook_core::{
    delivery::{Class, DeadReason, state::Status},
    ids::{DestinationId, ReplayId, SourceId},
    replay::{
        ChangedReplay, Code, ITEMS_MAX, Outcome, Pace, Preview, Progress, ReplayFilter,
        ReplayInput, ReplayRow, ReplaySpec, ReplayState, Skip, Verb,
    },
    store::Configuration,
    time::Timestamp,
};

use super::{
    List,
    deliveries::destination_names,
    input::{Asked, Input, Segment},
    list, page,
};
use crate::{App, problem::Problem};

/// A filter with names where the store has ids.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NamedFilter {
    source: Option<String>,
    destination: Option<String>,
    status: Option<Status>,
    reason: Option<DeadReason>,
    class: Option<Class>,
    code: Option<Code>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    key: Option<String>,
    search: Option<String>,
}

/// A job that is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJob {
    verb: Verb,
    #[serde(default)]
    filter: NamedFilter,
    to: Option<String>,
    #[serde(default)]
    rate: Pace,
    note: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// The same for dead letters, which says the verb.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reprocess {
    #[serde(default)]
    filter: NamedFilter,
    #[serde(default)]
    rate: Pace,
    note: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobQuery {
    limit: Option<String>,
    cursor: Option<String>,
}

/// The routes below `/replays`.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(list_jobs).post(create_job))
        .route("/{id}", get(find_job))
        .route("/{id}/pause", post(pause_job))
        .route("/{id}/resume", post(resume_job))
        .route("/{id}/cancel", post(cancel_job))
}

fn source(configuration: &Configuration, name: &str) -> Result<SourceId, Problem> {
    let found = configuration.sources.iter().find(|source| source.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("there is no source `{name}`"));
    found.map(|source| source.id).ok_or_else(unknown)
}

fn destination(configuration: &Configuration, name: &str) -> Result<DestinationId, Problem> {
    let found = configuration.destinations.iter().find(|to| to.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("there is no destination `{name}`"));
    found.map(|to| to.id).ok_or_else(unknown)
}

fn meant(job: NewJob, configuration: &Configuration) -> Result<ReplaySpec, Problem> {
    let NamedFilter { status, reason, class, code, since, until, key, search, .. } = job.filter;
    let spec = ReplaySpec {
        verb: job.verb,
        filter: ReplayFilter {
            source: job.filter.source.map(|name| source(configuration, &name)).transpose()?,
            destination: job
                .filter
                .destination
                .map(|name| destination(configuration, &name))
                .transpose()?,
            status,
            reason,
            class,
            code,
            since,
            until,
            key,
            search,
        },
        to: job.to.map(|name| destination(configuration, &name)).transpose()?,
        rate: job.rate,
        note: job.note,
    };
    spec.check().map_err(|invalid| Problem::invalid(invalid.to_string()))?;
    Ok(spec)
}

/// Makes a job, or says what it would do.
async fn create_job(
    State(app): State<Arc<App>>,
    Input(job): Input<NewJob>,
) -> Result<Response, Problem> {
    create(&app, job).await
}

/// A job for dead letters.
pub(crate) async fn reprocess(
    State(app): State<Arc<App>>,
    Input(asked): Input<Reprocess>,
) -> Result<Response, Problem> {
    let Reprocess { filter, rate, note, dry_run } = asked;
    let job = NewJob { verb: Verb::RetryFailed, filter, to: None, rate, note, dry_run };
    create(&app, job).await
}

async fn create(app: &App, job: NewJob) -> Result<Response, Problem> {
    let configuration = app.engine.store().configuration().await?;
    let dry_run = job.dry_run;
    let spec = meant(job, &configuration)?;
    if dry_run {
        let preview = app.engine.preview_replay(spec.clone()).await?;
        return Ok(Json(previewed(&preview, spec.rate, &configuration)).into_response());
    }
    let id = match app.engine.create_replay(spec).await? {
        Ok(id) => id,
        Err(other) => return Err(Problem::replay_overlaps(&other)),
    };
    let job = found(app, id).await?;
    Ok((StatusCode::ACCEPTED, Json(shown(&job, &configuration))).into_response())
}

fn previewed(preview: &Preview, rate: Pace, configuration: &Configuration) -> Value {
    let names = destination_names(configuration);
    let by_destination: Map<String, Value> =
        preview.by_destination.iter().map(|(to, many)| (name(&names, *to), json!(many))).collect();
    // A job takes no more than this, whatever there is.
    let count = preview.count.min(ITEMS_MAX);
    json!({
        "dry_run": true,
        "count": count,
        "complete": preview.complete && preview.count <= ITEMS_MAX,
        "oldest": preview.oldest,
        "newest": preview.newest,
        "rate": rate,
        "estimate_seconds": rate.time_for(count).as_secs_f64().ceil(),
        "by_destination": by_destination,
    })
}

/// A destination's name; its id if it was deleted.
fn name(names: &HashMap<DestinationId, String>, id: DestinationId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

fn shown(job: &ReplayRow, configuration: &Configuration) -> Value {
    let names = destination_names(configuration);
    // A filter of words, times and texts always becomes JSON.
    let mut filter = serde_json::to_value(&job.spec.filter).unwrap_or_default();
    if let Some(id) = job.spec.filter.destination {
        filter["destination"] = json!(name(&names, id));
    }
    if let Some(id) = job.spec.filter.source {
        let source = configuration.sources.iter().find(|source| source.id == id);
        filter["source"] = json!(source.map_or(id.to_string(), |s| s.spec.name.to_string()));
    }
    let destinations: Map<String, Value> = job
        .by_destination
        .iter()
        .map(|(to, part)| (name(&names, *to), Value::Object(numbers(part, job.state))))
        .collect();
    let progress = job.progress();
    let mut json = json!({
        "id": job.id,
        "verb": job.spec.verb,
        "filter": filter,
        "to": job.spec.to.map(|to| name(&names, to)),
        "rate": job.spec.rate,
        "note": job.spec.note,
        "state": job.state,
        "created_at": job.created_at,
        "ended_at": job.ended_at,
        "capped": progress.selected >= ITEMS_MAX,
        "destinations": destinations,
    });
    if let Value::Object(json) = &mut json {
        json.append(&mut numbers(&progress, job.state));
    }
    json
}

/// The numbers of a job or of its part for one destination. They add up:
/// `selected = succeeded + dead + cancelled + skipped + waiting + left`.
fn numbers(progress: &Progress, state: ReplayState) -> Map<String, Value> {
    let by_reason: Map<String, Value> = Skip::ALL
        .iter()
        .map(|skip| (skip, progress.count(Outcome::Skipped(*skip))))
        .filter(|(_, many)| *many > 0)
        .map(|(skip, many)| (skip.as_str().to_owned(), json!(many)))
        .collect();
    let numbers = [
        ("selected", progress.selected),
        ("dispatched", progress.dispatched()),
        ("succeeded", progress.count(Outcome::Succeeded)),
        ("dead", progress.count(Outcome::Dead)),
        ("cancelled", progress.count(Outcome::Cancelled)),
        ("skipped", progress.skipped()),
        ("waiting", progress.waiting(state)),
        ("left", progress.left(state)),
    ];
    let mut map: Map<String, Value> =
        numbers.into_iter().map(|(name, many)| (name.to_owned(), json!(many))).collect();
    map.insert("skipped_by_reason".to_owned(), Value::Object(by_reason));
    map
}

fn parse(id: &str) -> Result<ReplayId, Problem> {
    id.parse().map_err(|_| Problem::not_found("replay job"))
}

async fn found(app: &App, id: ReplayId) -> Result<ReplayRow, Problem> {
    let job = app.engine.replay_store().find_replay(id).await?;
    job.ok_or_else(|| Problem::not_found("replay job"))
}

/// Jobs, newest first.
async fn list_jobs(
    State(app): State<Arc<App>>,
    Asked(query): Asked<JobQuery>,
) -> Result<Json<List<Value>>, Problem> {
    let page = page(query.limit.as_deref(), query.cursor.as_deref())?;
    let rows = app.engine.replay_store().list_replays(page).await?;
    let configuration = app.engine.store().configuration().await?;
    Ok(list(page, rows.iter().map(|row| (row.id, shown(row, &configuration))).collect()))
}

/// One job with its progress.
async fn find_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    let job = found(&app, parse(&id)?).await?;
    let configuration = app.engine.store().configuration().await?;
    Ok(Json(shown(&job, &configuration)))
}

/// Hands out nothing more for now.
async fn pause_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    change(&app, &id, ReplayInput::Pause).await
}

/// Goes on.
async fn resume_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    change(&app, &id, ReplayInput::Resume).await
}

/// Hands out nothing more, ever. What was handed out goes on.
async fn cancel_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Value>, Problem> {
    change(&app, &id, ReplayInput::Cancel).await
}

async fn change(app: &App, id: &str, input: ReplayInput) -> Result<Json<Value>, Problem> {
    let id = parse(id)?;
    match app.engine.change_replay(id, input).await? {
        ChangedReplay::Changed(_) => {}
        ChangedReplay::NotFound => return Err(Problem::not_found("replay job")),
        ChangedReplay::Refused(state) => {
            return Err(Problem::replay_state(state.as_str(), input.as_str()));
        }
    }
    let job = found(app, id).await?;
    let configuration = app.engine.store().configuration().await?;
    Ok(Json(shown(&job, &configuration)))
}
