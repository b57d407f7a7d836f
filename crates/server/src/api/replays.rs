//! `/api/v1/replays`: replay many deliveries as a background job.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use surehook_api::{
    Cursor, ListResponse,
    replays::{
        CreateReplayRequest, ReplayCounts, ReplayFilterSpec, ReplayJobResponse,
        ReplayPreviewResponse, ReprocessRequest,
    },
};
use surehook_core::{
    dead_letters::DeadLetterGroupFilter,
    idempotency::IdempotentRequest,
    replay::{
        ChangeReplayResult, PreviewDepth, REPLAY_ITEMS_MAX, ReplayAction, ReplayFilter,
        ReplayItemOutcome, ReplayPreview, ReplayProgress, ReplayRate, ReplayRow, ReplaySpec,
        ReplayState, ReplayTransition, SkipReason,
    },
    store::{Configuration, PageRequest},
};
use surehook_core::{destination::DestinationSpec, source::SourceSpec};
use surehook_types::ids::{DestinationId, ReplayId, SourceId};

use super::{
    LIMIT_MAX,
    deliveries::destination_names,
    extract::{JsonBody, PathParam, QueryParams},
    find_by_name,
    idempotency::IdempotencyContext,
    page_request, unfiltered_page,
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Page of a list of replay jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayQuery {
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    cursor: Option<ReplayId>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let create = |operation: Operation| {
        operation
            .returns::<ReplayJobResponse>(202)
            .returns::<ReplayPreviewResponse>(200)
            .problem(409, &["replay_overlaps"])
            .description("Returns 202 with the job, or 200 with a preview if `dry_run` is true.")
    };
    let jobs = "/api/v1/replays";
    let change = |api: ApiTable, action: &str, transition: ReplayTransition, summary: &str| {
        let operation = Operation::new(format!("{action}_replay"), summary)
            .path::<ReplayId>("id")
            .returns::<ReplayJobResponse>(200)
            .problem(409, &["replay_state"])
            .description("Repeating it changes nothing.");
        let handler = move |State(server): State<Arc<ServerState>>, PathParam(id): PathParam| async move {
            change_state(&server, &id, transition).await
        };
        api.post(&format!("{jobs}/{{id}}/{action}"), handler, operation)
    };
    let example = json!({ "verb": "retry_failed", "filter": { "destination": "crm" } });
    let create_replay_operation = create(Operation::new("create_replay", "Create a replay job."))
        .body::<CreateReplayRequest>(example);
    let reprocess_operation =
        create(Operation::new("reprocess_dead_letters", "Create a job that replays dead letters."))
            .body::<ReprocessRequest>(
                json!({ "filter": { "destination": "crm" }, "dry_run": true }),
            );
    let list = Operation::new("list_replays", "List replay jobs, newest first.")
        .query::<ReplayQuery>()
        .returns::<ListResponse<ReplayJobResponse>>(200);
    let get = Operation::new("get_replay", "Get a replay job and its progress.")
        .path::<ReplayId>("id")
        .returns::<ReplayJobResponse>(200);
    let api = api
        .get(jobs, list_replays, list)
        .post(jobs, create_replay, create_replay_operation)
        .get(&format!("{jobs}/{{id}}"), get_replay, get)
        .post("/api/v1/dead-letters/reprocess", reprocess_dead_letters, reprocess_operation);
    let cancel_summary = "Cancel a replay job. Deliveries already created continue.";
    let api = change(api, "pause", ReplayTransition::Pause, "Pause a replay job.");
    let api = change(api, "resume", ReplayTransition::Resume, "Resume a paused replay job.");
    change(api, "cancel", ReplayTransition::Cancel, cancel_summary)
}

fn build_spec(
    request: CreateReplayRequest,
    configuration: &Configuration,
) -> Result<ReplaySpec, Problem> {
    let ReplayFilterSpec {
        source,
        destination,
        kind,
        status,
        reason,
        group,
        class,
        code,
        since,
        until,
        key,
        search,
    } = request.filter;
    let destination_id =
        |name: Option<String>| find_by_name::<DestinationSpec>(configuration, name.as_ref());
    let spec = ReplaySpec {
        action: request.verb,
        filter: ReplayFilter {
            source: find_by_name::<SourceSpec>(configuration, source.as_ref())?,
            destination: destination_id(destination)?,
            kind,
            status,
            reason,
            group,
            class,
            code,
            since,
            until,
            key,
            search,
        },
        to: destination_id(request.to)?,
        rate: request.rate,
        note: request.note,
    };
    spec.check().map_err(|invalid| Problem::invalid(invalid.to_string()))?;
    Ok(spec)
}

async fn create_replay(
    State(server): State<Arc<ServerState>>,
    IdempotencyContext(identity): IdempotencyContext,
    JsonBody(request): JsonBody<CreateReplayRequest>,
) -> Result<Response, Problem> {
    create_or_preview(&server, identity, request).await
}

pub(super) async fn reprocess_dead_letters(
    State(server): State<Arc<ServerState>>,
    IdempotencyContext(identity): IdempotencyContext,
    JsonBody(request): JsonBody<ReprocessRequest>,
) -> Result<Response, Problem> {
    let ReprocessRequest { filter, rate, note, dry_run, quick } = request;
    let request = CreateReplayRequest {
        verb: ReplayAction::RetryFailed,
        filter,
        to: None,
        rate,
        note,
        dry_run,
        quick,
    };
    create_or_preview(&server, identity, request).await
}

async fn create_or_preview(
    server: &ServerState,
    identity: IdempotentRequest,
    request: CreateReplayRequest,
) -> Result<Response, Problem> {
    let configuration = server.engine.store().load_configuration().await?;
    let dry_run = request.dry_run;
    let depth = if request.quick { PreviewDepth::Quick } else { PreviewDepth::Whole };
    let mut spec = build_spec(request, &configuration)?;
    set_group_destination(server, &mut spec).await?;
    if dry_run {
        let preview = server.engine.preview_replay(spec.clone(), depth).await?;
        return Ok(Json(preview_response(&preview, spec.rate, &configuration)).into_response());
    }
    let id = match server.engine.create_replay(identity, spec).await? {
        Ok(id) => id,
        Err(other) => return Err(Problem::replay_overlaps(&other)),
    };
    let job = find_job(server, id).await?;
    Ok((StatusCode::ACCEPTED, Json(job_response(&job, &configuration))).into_response())
}

/// Adds the group's destination to the filter, so that jobs for groups of different destinations do not
/// count as overlapping. A group that no longer exists is treated as empty.
async fn set_group_destination(server: &ServerState, spec: &mut ReplaySpec) -> Result<(), Problem> {
    if spec.filter.group.is_none() || spec.filter.destination.is_some() {
        return Ok(());
    }
    let filter =
        DeadLetterGroupFilter { id: spec.filter.group, ..DeadLetterGroupFilter::default() };
    let groups = server
        .engine
        .store()
        .list_dead_letter_groups(filter, PageRequest { after: None, limit: 1 })
        .await?;
    spec.filter.destination = groups.rows.first().map(|group| group.destination);
    Ok(())
}

fn preview_response(
    preview: &ReplayPreview,
    rate: ReplayRate,
    configuration: &Configuration,
) -> ReplayPreviewResponse {
    let names = destination_names(configuration);
    // A job holds at most this many items.
    let count = preview.count.min(REPLAY_ITEMS_MAX);
    ReplayPreviewResponse {
        dry_run: true,
        count,
        complete: preview.complete && preview.count <= REPLAY_ITEMS_MAX,
        oldest: preview.oldest,
        newest: preview.newest,
        rate,
        estimate_seconds: rate.time_for(count).as_secs_f64().ceil(),
        by_destination: preview
            .by_destination
            .iter()
            .map(|(to, count)| (destination_name(&names, *to), *count))
            .collect(),
    }
}

/// A destination's name, or its id if it was deleted.
fn destination_name(names: &HashMap<DestinationId, String>, id: DestinationId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

/// A source's name, or its id if it was deleted.
fn source_name(configuration: &Configuration, id: SourceId) -> String {
    let source = configuration.sources.iter().find(|source| source.id == id);
    source.map_or_else(|| id.to_string(), |source| source.spec.name.to_string())
}

fn job_response(job: &ReplayRow, configuration: &Configuration) -> ReplayJobResponse {
    let names = destination_names(configuration);
    let ReplaySpec { action: verb, filter, to, rate, note } = job.spec.clone();
    let progress = job.progress();
    ReplayJobResponse {
        id: job.id,
        verb,
        filter: ReplayFilterSpec {
            source: filter.source.map(|id| source_name(configuration, id)),
            destination: filter.destination.map(|id| destination_name(&names, id)),
            kind: filter.kind,
            status: filter.status,
            reason: filter.reason,
            group: filter.group,
            class: filter.class,
            code: filter.code,
            since: filter.since,
            until: filter.until,
            key: filter.key,
            search: filter.search,
        },
        to: to.map(|to| destination_name(&names, to)),
        rate,
        note,
        state: job.state,
        created_at: job.created_at,
        ended_at: job.ended_at,
        capped: progress.selected >= REPLAY_ITEMS_MAX,
        destinations: job
            .by_destination
            .iter()
            .map(|(to, part)| (destination_name(&names, *to), replay_counts(part, job.state)))
            .collect(),
        counts: replay_counts(&progress, job.state),
    }
}

fn replay_counts(progress: &ReplayProgress, state: ReplayState) -> ReplayCounts {
    let skipped = |skip: &SkipReason| {
        (skip.as_str().to_owned(), progress.count(ReplayItemOutcome::Skipped(*skip)))
    };
    ReplayCounts {
        selected: progress.selected,
        dispatched: progress.dispatched(),
        succeeded: progress.count(ReplayItemOutcome::Succeeded),
        dead: progress.count(ReplayItemOutcome::Dead),
        cancelled: progress.count(ReplayItemOutcome::Cancelled),
        skipped: progress.skipped(),
        queued: progress.queued(state),
        in_flight: progress.in_flight(state),
        remaining: progress.remaining(state),
        waiting: progress.waiting(state),
        left: progress.left(state),
        skipped_by_reason: SkipReason::ALL
            .iter()
            .map(skipped)
            .filter(|(_, count)| *count > 0)
            .collect(),
    }
}

fn parse_id(id: &str) -> Result<ReplayId, Problem> {
    id.parse().map_err(|_| Problem::not_found("replay job"))
}

async fn find_job(server: &ServerState, id: ReplayId) -> Result<ReplayRow, Problem> {
    let job = server.engine.replay_store().find_replay(id).await?;
    job.ok_or_else(|| Problem::not_found("replay job"))
}

async fn list_replays(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<ReplayQuery>,
) -> Result<Json<ListResponse<ReplayJobResponse>>, Problem> {
    let page = page_request(query.limit, query.cursor)?;
    let rows = server.engine.replay_store().list_replays(page).await?;
    let configuration = server.engine.store().load_configuration().await?;
    Ok(unfiltered_page(
        page,
        rows.iter().map(|row| (row.id, job_response(row, &configuration))).collect(),
    ))
}

async fn get_replay(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<Json<ReplayJobResponse>, Problem> {
    let job = find_job(&server, parse_id(&id)?).await?;
    let configuration = server.engine.store().load_configuration().await?;
    Ok(Json(job_response(&job, &configuration)))
}

async fn change_state(
    server: &ServerState,
    id: &str,
    input: ReplayTransition,
) -> Result<Json<ReplayJobResponse>, Problem> {
    let id = parse_id(id)?;
    match server.engine.change_replay(id, input).await? {
        ChangeReplayResult::Changed(_) => {}
        // The job is already in the requested state.
        ChangeReplayResult::Refused(state) if input.is_met_by(state) => {}
        ChangeReplayResult::NotFound => return Err(Problem::not_found("replay job")),
        ChangeReplayResult::Refused(state) => {
            return Err(Problem::replay_state(state.as_str(), input.as_str()));
        }
    }
    let job = find_job(server, id).await?;
    let configuration = server.engine.store().load_configuration().await?;
    Ok(Json(job_response(&job, &configuration)))
}
