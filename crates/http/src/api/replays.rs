//! `/api/v1/replays`: delivering again in bulk, as a job.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use surehook_core::{
    attribute::EventKind,
    dead_letters::DeadLetterGroupFilter,
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    idempotency::IdempotentRequest,
    ids::{DestinationId, GroupId, ReplayId, SourceId},
    name::Name,
    object,
    replay::{
        ChangeReplayResult, NOTE_CHARS_MAX, PreviewDepth, REPLAY_ITEMS_MAX, ReplayAction,
        ReplayFilter, ReplayItemOutcome, ReplayPreview, ReplayProgress, ReplayRate, ReplayRow,
        ReplaySpec, ReplayState, ReplayTransition, SEARCH_CHARS_MAX, SkipReason, StatusPattern,
    },
    store::{Configuration, PageRequest},
    time::Timestamp,
};

use super::{
    LIMIT_MAX, List, cursor,
    deliveries::destination_names,
    idempotent::Wished,
    input::{Asked, Input, Segment},
    limit, page, whole_page,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// A filter with names where the store has ids.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NamedFilter {
    /// Events of this source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Events of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<EventKind>,
    /// Deliveries to this destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Deliveries with this status: `dead` or `succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<DeliveryStatus>,
    /// Deliveries that died of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<DeadReason>,
    /// Deliveries that are dead and in this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupId>,
    /// Deliveries whose last attempt failed in this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<FailureClass>,
    /// Deliveries whose last attempt was answered with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<StatusPattern>,
    /// Events received at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Events received before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Events with exactly this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    key: Option<String>,
    /// This text is part of the event's key or of the detail of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SEARCH_CHARS_MAX))]
    search: Option<String>,
}

/// A job that is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewJob {
    /// What to do.
    verb: ReplayAction,
    /// With what.
    #[serde(default, deserialize_with = "object::required")]
    filter: NamedFilter,
    /// Where missing events go; goes with `send_missing` alone.
    #[schemars(with = "Option<Name>")]
    to: Option<String>,
    /// How fast.
    #[serde(default)]
    rate: ReplayRate,
    /// Why, for people.
    #[schemars(length(max = NOTE_CHARS_MAX))]
    note: Option<String>,
    /// Only says what it would do.
    #[serde(default)]
    dry_run: bool,
    /// With `dry_run`: looks at 20,000 rows at most, for whoever waits.
    #[serde(default)]
    quick: bool,
}

/// A job for dead letters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reprocess {
    /// Which of them.
    #[serde(default, deserialize_with = "object::required")]
    filter: NamedFilter,
    /// How fast.
    #[serde(default)]
    rate: ReplayRate,
    /// Why, for people.
    #[schemars(length(max = NOTE_CHARS_MAX))]
    note: Option<String>,
    /// Only says what it would do.
    #[serde(default)]
    dry_run: bool,
    /// With `dry_run`: looks at 20,000 rows at most, for whoever waits.
    #[serde(default)]
    quick: bool,
}

/// Which jobs are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobQuery {
    /// At most this many; 50 when left out.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<ReplayId>")]
    cursor: Option<String>,
}

/// A job and how far it is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReplayJob")]
pub(crate) struct Job {
    id: ReplayId,
    verb: ReplayAction,
    filter: NamedFilter,
    /// Where missing events go.
    to: Option<String>,
    rate: ReplayRate,
    note: Option<String>,
    state: ReplayState,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// Whether there is more than a job takes; the rest needs another one.
    capped: bool,
    /// The numbers for each destination.
    destinations: BTreeMap<String, Numbers>,
    #[serde(flatten)]
    numbers: Numbers,
}

/// The numbers of a job, or of its part for one destination. They add up:
/// `selected = succeeded + dead + cancelled + skipped + waiting + left`.
#[derive(Debug, Serialize, JsonSchema)]
struct Numbers {
    selected: u64,
    /// Of these a delivery was made.
    dispatched: u64,
    succeeded: u64,
    dead: u64,
    cancelled: u64,
    /// Left out.
    skipped: u64,
    /// Still to come.
    waiting: u64,
    /// Never to come, because the job was cancelled.
    left: u64,
    skipped_by_reason: BTreeMap<&'static str, u64>,
}

/// What a job would do.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReplayPreview")]
pub(crate) struct Previewed {
    dry_run: bool,
    count: u64,
    /// Whether all was looked at; if not, there are at least `count`.
    complete: bool,
    /// When the oldest of the events was received.
    oldest: Option<Timestamp>,
    newest: Option<Timestamp>,
    rate: ReplayRate,
    estimate_seconds: f64,
    by_destination: BTreeMap<String, u64>,
}

pub(crate) fn routes(api: Api) -> Api {
    let creates = |op: Op| {
        op.answers::<Job>(202)
            .answers::<Previewed>(200)
            .refuses(409, &["replay_overlaps"])
            .text("202 with the job; 200 with what it would do, if `dry_run` is true.")
    };
    let changes = |id: &str, summary: &str| {
        Op::new(id, summary)
            .path::<ReplayId>("id")
            .answers::<Job>(200)
            .refuses(409, &["replay_state"])
            .text("A job that is so already is answered as it is.")
    };
    let example = json!({ "verb": "retry_failed", "filter": { "destination": "crm" } });
    let create = creates(Op::new("create_replay", "Delivers again in bulk, as a job."))
        .body::<NewJob>(example);
    let dead = creates(Op::new("reprocess_dead_letters", "Delivers dead letters again, as a job."))
        .body::<Reprocess>(json!({ "filter": { "destination": "crm" }, "dry_run": true }));
    let list = Op::new("list_replays", "Replay jobs, newest first.")
        .query::<JobQuery>()
        .answers::<List<Job>>(200);
    let find = Op::new("find_replay", "One job with its progress.")
        .path::<ReplayId>("id")
        .answers::<Job>(200);
    let cancel = changes("cancel_replay", "Hands out nothing more, ever; what was goes on.");
    let jobs = "/api/v1/replays";
    api.get(jobs, list_jobs, list)
        .post(jobs, create_job, create)
        .get(&format!("{jobs}/{{id}}"), find_job, find)
        .post(
            &format!("{jobs}/{{id}}/pause"),
            pause_job,
            changes("pause_replay", "Hands out nothing more for now."),
        )
        .post(
            &format!("{jobs}/{{id}}/resume"),
            resume_job,
            changes("resume_replay", "Goes on with a job that is paused."),
        )
        .post(&format!("{jobs}/{{id}}/cancel"), cancel_job, cancel)
        .post("/api/v1/dead-letters/reprocess", reprocess, dead)
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
    let NamedFilter { kind, status, reason, group, class, code, since, until, key, search, .. } =
        job.filter;
    let spec = ReplaySpec {
        verb: job.verb,
        filter: ReplayFilter {
            source: job.filter.source.map(|name| source(configuration, &name)).transpose()?,
            destination: job
                .filter
                .destination
                .map(|name| destination(configuration, &name))
                .transpose()?,
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
    Wished(wish): Wished,
    Input(job): Input<NewJob>,
) -> Result<Response, Problem> {
    create(&app, wish, job).await
}

/// A job for dead letters.
async fn reprocess(
    State(app): State<Arc<App>>,
    Wished(wish): Wished,
    Input(asked): Input<Reprocess>,
) -> Result<Response, Problem> {
    let Reprocess { filter, rate, note, dry_run, quick } = asked;
    let job =
        NewJob { verb: ReplayAction::RetryFailed, filter, to: None, rate, note, dry_run, quick };
    create(&app, wish, job).await
}

async fn create(app: &App, wish: IdempotentRequest, job: NewJob) -> Result<Response, Problem> {
    let configuration = app.engine.store().configuration().await?;
    let dry_run = job.dry_run;
    let depth = if job.quick { PreviewDepth::Quick } else { PreviewDepth::Whole };
    let mut spec = meant(job, &configuration)?;
    place_group(app, &mut spec).await?;
    if dry_run {
        let preview = app.engine.preview_replay(spec.clone(), depth).await?;
        return Ok(Json(previewed(&preview, spec.rate, &configuration)).into_response());
    }
    let id = match app.engine.create_replay(wish, spec).await? {
        Ok(id) => id,
        Err(other) => return Err(Problem::replay_overlaps(&other)),
    };
    let job = found(app, id).await?;
    Ok((StatusCode::ACCEPTED, Json(shown(&job, &configuration))).into_response())
}

/// A group belongs to one destination for good. Said in the filter, jobs for groups of different
/// destinations are known to be apart. There may be no such group any more: it is taken as empty.
async fn place_group(app: &App, spec: &mut ReplaySpec) -> Result<(), Problem> {
    if spec.filter.group.is_none() || spec.filter.destination.is_some() {
        return Ok(());
    }
    let filter =
        DeadLetterGroupFilter { id: spec.filter.group, ..DeadLetterGroupFilter::default() };
    let found =
        app.engine.store().dead_groups(filter, PageRequest { after: None, limit: 1 }).await?;
    spec.filter.destination = found.rows.first().map(|group| group.destination);
    Ok(())
}

fn previewed(
    preview: &ReplayPreview,
    rate: ReplayRate,
    configuration: &Configuration,
) -> Previewed {
    let names = destination_names(configuration);
    // A job takes no more than this, whatever there is.
    let count = preview.count.min(REPLAY_ITEMS_MAX);
    Previewed {
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
            .map(|(to, many)| (name(&names, *to), *many))
            .collect(),
    }
}

/// A destination's name; its id if it was deleted.
fn name(names: &HashMap<DestinationId, String>, id: DestinationId) -> String {
    names.get(&id).cloned().unwrap_or_else(|| id.to_string())
}

/// A source's name; its id if it was deleted.
fn source_name(configuration: &Configuration, id: SourceId) -> String {
    let found = configuration.sources.iter().find(|source| source.id == id);
    found.map_or_else(|| id.to_string(), |source| source.spec.name.to_string())
}

fn shown(job: &ReplayRow, configuration: &Configuration) -> Job {
    let names = destination_names(configuration);
    let ReplaySpec { verb, filter, to, rate, note } = job.spec.clone();
    let progress = job.progress();
    Job {
        id: job.id,
        verb,
        filter: NamedFilter {
            source: filter.source.map(|id| source_name(configuration, id)),
            destination: filter.destination.map(|id| name(&names, id)),
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
        to: to.map(|to| name(&names, to)),
        rate,
        note,
        state: job.state,
        created_at: job.created_at,
        ended_at: job.ended_at,
        capped: progress.selected >= REPLAY_ITEMS_MAX,
        destinations: job
            .by_destination
            .iter()
            .map(|(to, part)| (name(&names, *to), numbers(part, job.state)))
            .collect(),
        numbers: numbers(&progress, job.state),
    }
}

fn numbers(progress: &ReplayProgress, state: ReplayState) -> Numbers {
    let skipped =
        |skip: &SkipReason| (skip.as_str(), progress.count(ReplayItemOutcome::Skipped(*skip)));
    Numbers {
        selected: progress.selected,
        dispatched: progress.dispatched(),
        succeeded: progress.count(ReplayItemOutcome::Succeeded),
        dead: progress.count(ReplayItemOutcome::Dead),
        cancelled: progress.count(ReplayItemOutcome::Cancelled),
        skipped: progress.skipped(),
        waiting: progress.waiting(state),
        left: progress.left(state),
        skipped_by_reason: SkipReason::ALL
            .iter()
            .map(skipped)
            .filter(|(_, many)| *many > 0)
            .collect(),
    }
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
) -> Result<Json<List<Job>>, Problem> {
    let page = page(limit(query.limit.as_deref())?, cursor(query.cursor.as_deref())?);
    let rows = app.engine.replay_store().list_replays(page).await?;
    let configuration = app.engine.store().configuration().await?;
    Ok(whole_page(page, rows.iter().map(|row| (row.id, shown(row, &configuration))).collect()))
}

/// One job with its progress.
async fn find_job(State(app): State<Arc<App>>, Segment(id): Segment) -> Result<Json<Job>, Problem> {
    let job = found(&app, parse(&id)?).await?;
    let configuration = app.engine.store().configuration().await?;
    Ok(Json(shown(&job, &configuration)))
}

/// Hands out nothing more for now.
async fn pause_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Job>, Problem> {
    change(&app, &id, ReplayTransition::Pause).await
}

/// Goes on.
async fn resume_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Job>, Problem> {
    change(&app, &id, ReplayTransition::Resume).await
}

/// Hands out nothing more, ever. What was handed out goes on.
async fn cancel_job(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Json<Job>, Problem> {
    change(&app, &id, ReplayTransition::Cancel).await
}

async fn change(app: &App, id: &str, input: ReplayTransition) -> Result<Json<Job>, Problem> {
    let id = parse(id)?;
    match app.engine.change_replay(id, input).await? {
        ChangeReplayResult::Changed(_) => {}
        // The same wish again: what it asks for holds.
        ChangeReplayResult::Refused(state) if input.is_met_by(state) => {}
        ChangeReplayResult::NotFound => return Err(Problem::not_found("replay job")),
        ChangeReplayResult::Refused(state) => {
            return Err(Problem::replay_state(state.as_str(), input.as_str()));
        }
    }
    let job = found(app, id).await?;
    let configuration = app.engine.store().configuration().await?;
    Ok(Json(shown(&job, &configuration)))
}
