//! `surehook replay`: previews, creates and follows replay jobs.

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};
use surehook_api::{
    ApiTransport as _, calls,
    replays::{CreateReplayRequest, ReplayJobResponse, ReplayPreviewResponse},
};
use surehook_core::replay::{ReplayState, StatusPattern};
use surehook_engine::system::SystemClock;
use surehook_types::time::{Clock as _, HumanDuration, Timestamp};

use super::list::print_page;
use crate::{
    cli::{GatewayArgs, PageArgs},
    client::ApiClient,
    error::CliError,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Create a replay job: preview, confirm, and follow its progress
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Create(Box<ReplayCreateArgs>),
    /// List replay jobs, newest first
    List {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a replay job
    Show(ReplayJobArgs),
    /// Follow a replay job until it ends
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Watch(ReplayJobArgs),
    /// Pause a replay job
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Pause(ReplayJobArgs),
    /// Resume a replay job
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Resume(ReplayJobArgs),
    /// Cancel a replay job; deliveries already created continue
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Cancel(ReplayJobArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayJobArgs {
    /// Replay job id
    id: String,
    #[command(flatten)]
    remote: GatewayArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayCreateArgs {
    /// Action: retry-failed, send-missing or force-resend
    #[arg(long, default_value = "retry-failed",
          value_parser = ["retry-failed", "send-missing", "force-resend"])]
    verb: String,
    /// Destination of missing events (with --verb send-missing)
    #[arg(long)]
    to: Option<String>,
    /// Filter by delivery status: dead or succeeded
    #[arg(long)]
    status: Option<String>,
    #[command(flatten)]
    filter: ReplayFilterArgs,
    #[command(flatten)]
    run: ReplayRunArgs,
    #[command(flatten)]
    remote: GatewayArgs,
}

/// Selects the events and deliveries to replay.
#[derive(Debug, Default, Args, Serialize)]
pub(crate) struct ReplayFilterArgs {
    /// Filter by source
    #[arg(long)]
    source: Option<String>,
    /// Filter by event kind
    #[arg(long)]
    kind: Option<String>,
    /// Filter by destination
    #[arg(long)]
    destination: Option<String>,
    /// Filter by reason of death
    #[arg(long)]
    reason: Option<String>,
    /// Filter by dead letter group; see `surehook dlq groups`
    #[arg(long)]
    group: Option<String>,
    /// Filter by failure class of the last attempt: transient, throttled, permanent, config, ambiguous
    #[arg(long)]
    class: Option<String>,
    /// Filter by HTTP status of the last attempt: 503, or 5xx
    #[arg(long)]
    code: Option<StatusPattern>,
    /// Events received since this time (2026-11-15T08:00:00Z) or within this duration (2h)
    #[arg(long, value_parser = parse_moment)]
    since: Option<Timestamp>,
    /// Events received before this time, or longer ago than this duration
    #[arg(long, value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// Filter by deduplication key
    #[arg(long)]
    key: Option<String>,
    /// Filter by text in the key or in the detail of the last attempt
    #[arg(long)]
    search: Option<String>,
}

/// Options for creating and following a job.
#[derive(Debug, Args)]
pub(crate) struct ReplayRunArgs {
    /// Rate limit, such as 50/s or 300/m [default: 50/s]
    #[arg(long)]
    rate: Option<String>,
    /// Note (visible to your team)
    #[arg(long)]
    note: Option<String>,
    /// Only show a preview
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Do not wait for the job to end
    #[arg(long)]
    detach: bool,
}

/// Parses a time, or a duration before now.
pub(super) fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(duration) = text.parse::<HumanDuration>() {
        return Ok(SystemClock.now() - duration.0);
    }
    text.parse().map_err(|_| {
        "expected a time such as 2026-11-15T08:00:00Z, or a duration such as 2h".to_owned()
    })
}

impl ReplayFilterArgs {
    pub(super) fn is_empty(&self) -> bool {
        self.to_json().is_empty()
    }

    /// The filter as JSON for the API.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let Value::Object(mut fields) = json!(self) else { return Map::new() };
        fields.retain(|_, value| !value.is_null());
        fields
    }
}

const COLUMNS: [(&str, &str); 11] = [
    ("job", "id"),
    ("verb", "verb"),
    ("state", "state"),
    ("selected", "selected"),
    ("queued", "queued"),
    ("in flight", "in_flight"),
    ("succeeded", "succeeded"),
    ("dead", "dead"),
    ("skipped", "skipped"),
    ("remaining", "remaining"),
    ("created", "created_at"),
];

const COUNTS: [&str; 9] = [
    "selected",
    "queued",
    "in_flight",
    "succeeded",
    "dead",
    "cancelled",
    "skipped",
    "remaining",
    "left",
];

const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long to wait for a gateway that restarts: its jobs resume.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn run(command: ReplayCommand) -> Result<(), CliError> {
    match command {
        ReplayCommand::Create(args) => create(&args).await,
        ReplayCommand::List { page } => {
            let call = calls::list_replays();
            print_page(&page, call, &COLUMNS, "No replay jobs.").await
        }
        ReplayCommand::Show(ReplayJobArgs { id, remote }) => {
            let job = ApiClient::new(&remote)?.call(calls::get_replay(&id)).await?;
            print_job(&remote, &job)
        }
        ReplayCommand::Watch(ReplayJobArgs { id, remote }) => {
            watch(&ApiClient::new(&remote)?, &remote, &id).await
        }
        ReplayCommand::Pause(args) => change_state(&args, "pause").await,
        ReplayCommand::Resume(args) => change_state(&args, "resume").await,
        ReplayCommand::Cancel(args) => change_state(&args, "cancel").await,
    }
}

async fn change_state(args: &ReplayJobArgs, action: &str) -> Result<(), CliError> {
    let ReplayJobArgs { id, remote } = args;
    let job = ApiClient::new(remote)?.call(calls::change_replay(id, action)).await?;
    print_job(remote, &job)
}

async fn create(args: &ReplayCreateArgs) -> Result<(), CliError> {
    let mut filter = args.filter.to_json();
    if let Some(status) = &args.status {
        filter.insert("status".to_owned(), json!(status));
    }
    let job = json!({ "verb": args.verb.replace('-', "_"), "filter": filter, "to": args.to });
    start(&args.remote, job, &args.run).await
}

/// Previews a job, asks for confirmation, creates it and follows it.
pub(super) async fn start(
    remote: &GatewayArgs,
    mut job: Value,
    run: &ReplayRunArgs,
) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    if let Some(rate) = &run.rate {
        job["rate"] = json!(rate);
    }
    job["note"] = json!(run.note);
    let mut job: CreateReplayRequest = serde_json::from_value(job).map_err(CliError::refused)?;
    job.dry_run = true;
    let preview = client.call(calls::preview_replay(&job)).await?;
    let summary = preview_summary(&preview);
    if run.dry_run || preview.count == 0 {
        return output::print_result(remote.json, &json!(preview), &summary);
    }
    // With --json, standard output carries only the job.
    output::note(&summary);
    if !run.yes {
        confirm()?;
    }
    job.dry_run = false;
    let created = client.call(calls::create_replay(&job)).await?;
    let id = created.id.to_string();
    if run.detach {
        let text = format!("{id} started. Follow it with `surehook replay watch {id}`");
        return output::print_result(remote.json, &json!(created), &text);
    }
    watch(&client, remote, &id).await
}

/// A preview in one sentence.
fn preview_summary(preview: &ReplayPreviewResponse) -> String {
    let ReplayPreviewResponse { count, estimate_seconds, rate, .. } = preview;
    if *count == 0 {
        return "Nothing to replay: no delivery matches.".to_owned();
    }
    let per_destination: Vec<String> =
        preview.by_destination.iter().map(|(name, count)| format!("{count} to {name}")).collect();
    let more = if preview.complete { "" } else { " or more" };
    let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    format!(
        "{count}{more} to replay ({}), received from {} to {}; about {estimate_seconds} s at {rate}.",
        per_destination.join(", "),
        time(preview.oldest),
        time(preview.newest),
    )
}

fn confirm() -> Result<(), CliError> {
    let mut stdin = std::io::stdin().lock();
    if !stdin.is_terminal() {
        let error = anyhow!("not a terminal: pass --yes or --dry-run");
        return Err(CliError::refused(error));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "Continue? [y/N] ")?;
    stderr.flush()?;
    let mut reply = String::new();
    stdin.read_line(&mut reply)?;
    if matches!(reply.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(CliError::refused(anyhow!("not confirmed; nothing was changed")))
}

/// Follows a job until it and all its deliveries have ended.
async fn watch(client: &ApiClient, remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    // indicatif draws only on a terminal.
    let bar = if remote.json { ProgressBar::hidden() } else { ProgressBar::new(0) };
    bar.set_style(bar_style()?);
    let mut last = String::new();
    let mut answered_at = Instant::now();
    let ended = loop {
        match client.call(calls::get_replay(id)).await {
            Ok(job) => {
                answered_at = Instant::now();
                update_bar(&bar, &job);
                let line = json!(job).to_string();
                if remote.json && line != last {
                    output::print_line(&line)?;
                }
                if has_ended(&job) {
                    break job;
                }
                last = line;
            }
            // The job survives a restart of the gateway and resumes.
            Err(failure)
                if failure.is_unreachable() && answered_at.elapsed() < RECONNECT_TIMEOUT =>
            {
                bar.set_message("the gateway does not respond");
            }
            Err(failure) => return Err(failure),
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                let text = format!("the job continues; follow it with `surehook replay watch {id}`");
                return Err(CliError::interrupted(anyhow!(text)));
            }
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    };
    bar.finish_and_clear();
    if !remote.json {
        print_job(remote, &ended)?;
    }
    match ended.counts.dead {
        0 => Ok(()),
        dead => {
            let error = anyhow!("{dead} of {} deliveries failed again", ended.counts.dispatched);
            Err(CliError::partial(error))
        }
    }
}

fn has_ended(job: &ReplayJobResponse) -> bool {
    match job.state {
        ReplayState::Done => true,
        ReplayState::Cancelled => job.counts.waiting == 0,
        ReplayState::Selecting | ReplayState::Running | ReplayState::Paused => false,
    }
}

fn bar_style() -> Result<ProgressStyle, CliError> {
    let template = "{msg} [{wide_bar}] {pos}/{len} {percent}% {eta}";
    Ok(ProgressStyle::with_template(template)?.progress_chars("=> "))
}

fn update_bar(bar: &ProgressBar, job: &ReplayJobResponse) {
    let counts = &job.counts;
    bar.set_length(counts.selected);
    bar.set_position(counts.selected.saturating_sub(counts.waiting));
    let state = output::format_value(&json!(job.state));
    bar.set_message(match counts.dead {
        0 => state,
        dead => format!("{state}, {dead} dead"),
    });
}

fn print_job(remote: &GatewayArgs, job: &ReplayJobResponse) -> Result<(), CliError> {
    let mut object = json!(job);
    if !remote.json {
        object["skipped_for"] = object["skipped_by_reason"].take();
    }
    let details = ["id", "verb", "filter", "to", "rate", "note", "state", "created_at", "ended_at"];
    let mut names = details.to_vec();
    names.extend(COUNTS);
    if job.counts.skipped != 0 {
        names.push("skipped_for");
    }
    output::print_object(remote.json, &object, &names)
}
