//! `surehook dlq`: lists and replays dead letters.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::{events::print_list, replay, timing};
use crate::{
    cli::{DlqCommand, GatewayArgs, PageArgs},
    client::{ApiClient, query_string},
    error::CliError,
    output,
};

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
        DlqCommand::List { destination, reason, kind, group, paging, remote } => {
            let query = [
                ("destination", destination.as_deref()),
                ("reason", reason.as_deref()),
                ("kind", kind.as_deref()),
                ("group", group.as_deref()),
            ];
            let answer = get_page(&remote, "/dead-letters", &query, &paging).await?;
            print_list(&remote, &answer, &COLUMNS, "No dead letters.")
        }
        DlqCommand::Groups { destination, source, paging, remote } => {
            let query = [("destination", destination.as_deref()), ("source", source.as_deref())];
            let answer = get_page(&remote, "/dead-letters/groups", &query, &paging).await?;
            print_list(&remote, &answer, &GROUP_COLUMNS, "No dead letters.")
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

async fn get_page(
    remote: &GatewayArgs,
    path: &str,
    filter: &[(&str, Option<&str>)],
    paging: &PageArgs,
) -> Result<Value, CliError> {
    let limit = paging.limit.to_string();
    let page = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query_string(&[filter, &page].concat());
    ApiClient::new(remote)?.get(&format!("{path}{query}")).await
}

async fn show(remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    let delivery = ApiClient::new(remote)?.get(&format!("/deliveries/{id}")).await?;
    if remote.json {
        return Ok(output::print_line(&delivery.to_string())?);
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
        "replayed_by",
    ];
    output::print_fields(&delivery, &names)?;
    let mut attempts = delivery["attempt_list"].as_array().cloned().unwrap_or_default();
    output::print_line("")?;
    if attempts.is_empty() {
        return Ok(output::print_line("No attempts yet.")?);
    }
    let columns = [
        ("attempt", "number"),
        ("started", "started_at"),
        ("duration ms", "took_ms"),
        ("phases ms", "stages"),
        ("status", "status"),
        ("failure", "failure"),
        ("class", "class"),
        ("detail", "detail"),
        ("next", "next_at"),
        ("retry reason", "next_why"),
    ];
    for attempt in &mut attempts {
        attempt["stages"] = timing::format_phases(&attempt["timing"]).into();
    }
    Ok(output::print_table(&columns, &attempts)?)
}

async fn stats(remote: &GatewayArgs) -> Result<(), CliError> {
    let stats = ApiClient::new(remote)?.get("/dead-letters/stats").await?;
    if remote.json {
        return Ok(output::print_line(&stats.to_string())?);
    }
    let rows: Vec<Value> = stats
        .as_object()
        .into_iter()
        .flatten()
        .map(|(reason, count)| {
            json!({ "reason": reason, "total": count["total"], "pending": count["pending"] })
        })
        .collect();
    Ok(output::print_table(
        &[("reason", "reason"), ("dead now", "pending"), ("total", "total")],
        &rows,
    )?)
}

async fn replay_each(remote: &GatewayArgs, ids: &[String]) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let mut failed = None;
    for id in ids {
        match client.post(&format!("/deliveries/{id}/replay")).await {
            Ok(answer) if remote.json => {
                output::print_line(
                    &json!({ "id": id, "delivery_id": answer["delivery_id"] }).to_string(),
                )?;
            }
            Ok(answer) => {
                output::print_line(&format!(
                    "{id} replayed as {}",
                    output::format_value(&answer["delivery_id"])
                ))?;
            }
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => failed = Some((id, failure)),
        }
    }
    match failed {
        None => Ok(()),
        Some((id, failure)) => {
            let first = anyhow!("some deliveries were not replayed; {id}: {failure}");
            Err(CliError::partial(first))
        }
    }
}
