//! Arguments of `surehook replay` and `surehook dlq replay`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use surehook_core::replay::StatusPattern;
use surehook_engine::system::SystemClock;
use surehook_types::time::{Clock as _, HumanDuration, Timestamp};

use super::{GatewayArgs, PageArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Create a replay job: preview, confirm, and follow its progress
    #[command(mut_arg("data", |data| data.hide(true)))]
    Create(Box<ReplayCreateArgs>),
    /// List replay jobs, newest first
    List {
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Show a replay job
    Show(ReplayJobArgs),
    /// Follow a replay job until it ends
    #[command(mut_arg("data", |data| data.hide(true)))]
    Watch(ReplayJobArgs),
    /// Pause a replay job
    #[command(mut_arg("data", |data| data.hide(true)))]
    Pause(ReplayJobArgs),
    /// Resume a replay job
    #[command(mut_arg("data", |data| data.hide(true)))]
    Resume(ReplayJobArgs),
    /// Cancel a replay job; deliveries already created continue
    #[command(mut_arg("data", |data| data.hide(true)))]
    Cancel(ReplayJobArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReplayJobArgs {
    /// Replay job id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayCreateArgs {
    /// Action: retry-failed, send-missing or force-resend
    #[arg(long, default_value = "retry-failed",
          value_parser = ["retry-failed", "send-missing", "force-resend"])]
    pub(crate) verb: String,
    /// Destination of missing events (with --verb send-missing)
    #[arg(long)]
    pub(crate) to: Option<String>,
    /// Filter by delivery status: dead or succeeded
    #[arg(long)]
    pub(crate) status: Option<String>,
    #[command(flatten)]
    pub(crate) filter: ReplayFilterArgs,
    #[command(flatten)]
    pub(crate) run: ReplayRunArgs,
    #[command(flatten)]
    pub(crate) remote: GatewayArgs,
}

/// Selects the events and deliveries to replay.
#[derive(Debug, Default, Args)]
pub(crate) struct ReplayFilterArgs {
    /// Filter by source
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Filter by event kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Filter by destination
    #[arg(long)]
    pub(crate) destination: Option<String>,
    /// Filter by reason of death
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Filter by dead letter group; see `surehook dlq groups`
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Filter by failure class of the last attempt: transient, throttled, permanent, config, ambiguous
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Filter by HTTP status of the last attempt: 503, or 5xx
    #[arg(long)]
    pub(crate) code: Option<StatusPattern>,
    /// Events received since this time (2026-11-15T08:00:00Z) or within this duration (2h)
    #[arg(long, value_parser = parse_moment)]
    pub(crate) since: Option<Timestamp>,
    /// Events received before this time, or longer ago than this duration
    #[arg(long, value_parser = parse_moment)]
    pub(crate) until: Option<Timestamp>,
    /// Filter by deduplication key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Filter by text in the key or in the detail of the last attempt
    #[arg(long)]
    pub(crate) search: Option<String>,
}

/// Options for creating and following a job.
#[derive(Debug, Args)]
pub(crate) struct ReplayRunArgs {
    /// Rate limit, such as 50/s or 300/m [default: 50/s]
    #[arg(long)]
    pub(crate) rate: Option<String>,
    /// Note (visible to your team)
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Only show a preview
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Do not wait for the job to end
    #[arg(long)]
    pub(crate) detach: bool,
}

/// Parses a time, or a duration before now.
fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(span) = text.parse::<HumanDuration>() {
        return Ok(SystemClock.now() - span.0);
    }
    text.parse().map_err(|_| {
        "expected a time such as 2026-11-15T08:00:00Z, or a duration such as 2h".to_owned()
    })
}

impl ReplayFilterArgs {
    pub(crate) fn is_empty(&self) -> bool {
        self.to_json().is_empty()
    }

    /// The filter as JSON for the API.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        let time = |at: Option<Timestamp>| at.map(|at| json!(at));
        let fields = [
            ("source", text(&self.source)),
            ("kind", text(&self.kind)),
            ("destination", text(&self.destination)),
            ("reason", text(&self.reason)),
            ("group", text(&self.group)),
            ("class", text(&self.class)),
            ("code", self.code.map(|code| json!(code))),
            ("since", time(self.since)),
            ("until", time(self.until)),
            ("key", text(&self.key)),
            ("search", text(&self.search)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
