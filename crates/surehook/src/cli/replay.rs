//! The flags of commands that deliver again in bulk.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use surehook_core::{
    replay::StatusPattern,
    time::{Clock as _, HumanDuration, Timestamp},
};
use surehook_engine::system::SystemClock;

use super::{Paging, Remote};

#[derive(Debug, Subcommand)]
pub(crate) enum ReplayCommand {
    /// Make a job: shows what it would do, asks, and follows it to its end
    #[command(mut_arg("data", |data| data.hide(true)))]
    Create(Box<CreateArgs>),
    /// The newest jobs
    List {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        remote: Remote,
    },
    /// One job with its numbers
    Show(JobArgs),
    /// Follow a job to its end
    #[command(mut_arg("data", |data| data.hide(true)))]
    Watch(JobArgs),
    /// Hand out nothing more for now
    #[command(mut_arg("data", |data| data.hide(true)))]
    Pause(JobArgs),
    /// Go on
    #[command(mut_arg("data", |data| data.hide(true)))]
    Resume(JobArgs),
    /// Hand out nothing more, ever; what was handed out goes on
    #[command(mut_arg("data", |data| data.hide(true)))]
    Cancel(JobArgs),
}

/// Which job.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// The job's id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// What to do: retry-failed, send-missing or force-resend
    #[arg(long, default_value = "retry-failed",
          value_parser = ["retry-failed", "send-missing", "force-resend"])]
    pub(crate) verb: String,
    /// Where missing events go (with --verb send-missing)
    #[arg(long)]
    pub(crate) to: Option<String>,
    /// Only deliveries with this status: dead or succeeded
    #[arg(long)]
    pub(crate) status: Option<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) remote: Remote,
}

/// What is delivered again. What is not given does not matter.
#[derive(Debug, Default, Args)]
pub(crate) struct FilterArgs {
    /// Only events of this source
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Only events of this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only deliveries to this destination
    #[arg(long)]
    pub(crate) destination: Option<String>,
    /// Only what died for this reason
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only this group of dead letters; `surehook dlq groups` lists them
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Only where the last attempt failed in this way: transient, throttled, permanent, config, ambiguous
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Only where the last answer was this: 503, or 5xx for all that begin with a 5
    #[arg(long)]
    pub(crate) code: Option<StatusPattern>,
    /// Only events received since: a time (2026-11-15T08:00:00Z), or how long ago (2h)
    #[arg(long, value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Only events received before: a time, or how long ago
    #[arg(long, value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
    /// Only the event with this dedup key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only where the key, or the detail of the last attempt, has this text in it
    #[arg(long)]
    pub(crate) search: Option<String>,
}

/// How a job is made and followed.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// How fast, such as 50/s or 300/m [default: 50/s]
    #[arg(long)]
    pub(crate) rate: Option<String>,
    /// Why, for those who look at the job later
    #[arg(long)]
    pub(crate) note: Option<String>,
    /// Only say what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Do not wait for the end
    #[arg(long)]
    pub(crate) detach: bool,
}

/// A time as it is, or as a span before now.
fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(span) = text.parse::<HumanDuration>() {
        return Ok(SystemClock.now() - span.0);
    }
    text.parse().map_err(|_| "expected a time such as 2026-11-15T08:00:00Z, or 2h".to_owned())
}

impl FilterArgs {
    /// Whether nothing is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.json().is_empty()
    }

    /// The filter as the API takes it.
    pub(crate) fn json(&self) -> Map<String, Value> {
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
