//! `surehook dlq`: lists and replays dead letters.

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::{Value, json};
use surehook_api::{ApiTransport as _, calls};

use super::{
    for_each_id,
    list::print_page,
    replay::{self, ReplayFilterArgs, ReplayRunArgs},
    timing,
};
use crate::{
    cli::{GatewayArgs, PageArgs},
    client::ApiClient,
    error::CliError,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead letters, newest first
    List {
        /// Filter by destination
        #[arg(long)]
        destination: Option<String>,
        /// Filter by reason
        #[arg(long)]
        reason: Option<String>,
        /// Filter by event kind
        #[arg(long)]
        kind: Option<String>,
        /// Filter by dead letter group
        #[arg(long)]
        group: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// List groups of dead letters by cause, most recent first
    Groups {
        /// Filter by destination
        #[arg(long)]
        destination: Option<String>,
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a delivery with its attempts
    Show {
        /// Delivery id
        id: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Count dead letters by reason
    Stats {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Replay dead letters: by id, or all that match a filter as a job
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Replay {
        /// Delivery ids; without ids, all dead letters that match the filter
        ids: Vec<String>,
        #[command(flatten)]
        filter: ReplayFilterArgs,
        #[command(flatten)]
        run: ReplayRunArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const COLUMNS: [(&str, &str); 6] = [
    ("delivery", "id"),
    ("event", "event"),
    ("destination", "destination"),
    ("reason", "reason"),
    ("attempts", "attempts"),
    ("dead since", "ended_at"),
];

const GROUP_COLUMNS: [(&str, &str); 6] = [
    ("group", "id"),
    ("destination", "destination"),
    ("dead letters", "count"),
    ("class", "class"),
    ("error", "shape"),
    ("last seen", "last_seen"),
];

pub(super) async fn run(command: DlqCommand) -> Result<(), CliError> {
    match command {
        DlqCommand::List { destination, reason, kind, group, page } => {
            let call = calls::list_dead_letters()
                .query_some("destination", destination.as_deref())
                .query_some("reason", reason.as_deref())
                .query_some("kind", kind.as_deref())
                .query_some("group", group.as_deref());
            print_page(&page, call, &COLUMNS, "No dead letters.").await
        }
        DlqCommand::Groups { destination, source, page } => {
            let call = calls::list_dead_letter_groups()
                .query_some("destination", destination.as_deref())
                .query_some("source", source.as_deref());
            print_page(&page, call, &GROUP_COLUMNS, "No dead letters.").await
        }
        DlqCommand::Show { id, remote } => show(&remote, &id).await,
        DlqCommand::Stats { remote } => stats(&remote).await,
        DlqCommand::Replay { ids, filter, run, remote } => {
            if ids.is_empty() {
                let job = json!({ "verb": "retry_failed", "filter": filter.to_json() });
                return replay::start(&remote, job, &run).await;
            }
            if !filter.is_empty() {
                let error = anyhow!("pass either ids or a filter, not both");
                return Err(CliError::refused(error));
            }
            replay_each(&remote, &ids).await
        }
    }
}

async fn show(remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    let delivery = ApiClient::new(remote)?.call_json(calls::get_delivery(id)).await?;
    if remote.json {
        return output::print_line(&delivery);
    }
    let names = [
        "id",
        "event",
        "destination",
        "status",
        "reason",
        "created_at",
        "due_at",
        "ended_at",
        "group",
        "replay_of",
        "replayed_as",
    ];
    output::print_fields(&delivery, &names)?;
    let mut attempts = delivery["attempt_list"].as_array().cloned().unwrap_or_default();
    output::print_line("")?;
    if attempts.is_empty() {
        return output::print_line("No attempts yet.");
    }
    let columns = [
        ("attempt", "number"),
        ("started", "started_at"),
        ("duration ms", "duration_ms"),
        ("phases ms", "phases"),
        ("status", "status"),
        ("failure", "failure"),
        ("class", "class"),
        ("detail", "detail"),
        ("next", "next_at"),
        ("retry reason", "next_reason"),
    ];
    for attempt in &mut attempts {
        attempt["phases"] = timing::format_phases(&attempt["timing"]).into();
    }
    output::print_table(&columns, &attempts)
}

async fn stats(remote: &GatewayArgs) -> Result<(), CliError> {
    let stats = ApiClient::new(remote)?.call_json(calls::get_dead_letter_stats()).await?;
    if remote.json {
        return output::print_line(&stats);
    }
    let row = |(reason, counts): (&String, &Value)| json!({ "reason": reason, "total": counts["total"], "pending": counts["pending"] });
    let rows: Vec<Value> = stats.as_object().into_iter().flatten().map(row).collect();
    let columns = [("reason", "reason"), ("dead now", "pending"), ("total", "total")];
    output::print_table(&columns, &rows)
}

async fn replay_each(remote: &GatewayArgs, ids: &[String]) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    for_each_id(ids, "some deliveries were not replayed", async |id| {
        let new = client.call(calls::replay_delivery(id)).await?.delivery_id;
        let text = format!("{id} replayed as {new}");
        output::print_result(remote.json, &json!({ "id": id, "delivery_id": new }), &text)
    })
    .await
}
