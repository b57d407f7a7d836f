//! `surehook dlq`: what could not be delivered, and delivering it again.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::{events::print_list, replay, timing};
use crate::{
    cli::{DlqCommand, Paging, Remote},
    client::{Client, query},
    failure::Failure,
    output,
};

const COLUMNS: [(&str, &str); 6] = [
    ("delivery", "id"),
    ("event", "event"),
    ("destination", "destination"),
    ("reason", "reason"),
    ("attempts", "attempts"),
    ("died", "ended_at"),
];

const GROUP_COLUMNS: [(&str, &str); 6] = [
    ("group", "id"),
    ("destination", "destination"),
    ("dead now", "count"),
    ("class", "class"),
    ("what was said", "shape"),
    ("last died", "last_seen"),
];

pub(super) async fn run(command: DlqCommand) -> Result<(), Failure> {
    match command {
        DlqCommand::List { destination, reason, kind, group, paging, remote } => {
            let query = [
                ("destination", destination.as_deref()),
                ("reason", reason.as_deref()),
                ("kind", kind.as_deref()),
                ("group", group.as_deref()),
            ];
            let answer = get(&remote, "/dead-letters", &query, &paging).await?;
            print_list(&remote, &answer, &COLUMNS, "No dead letters.")
        }
        DlqCommand::Groups { destination, source, paging, remote } => {
            let query = [("destination", destination.as_deref()), ("source", source.as_deref())];
            let answer = get(&remote, "/dead-letters/groups", &query, &paging).await?;
            print_list(&remote, &answer, &GROUP_COLUMNS, "No dead letters.")
        }
        DlqCommand::Show { id, remote } => show(&remote, &id).await,
        DlqCommand::Stats { remote } => stats(&remote).await,
        DlqCommand::Replay { ids, filter, run, remote } => {
            if ids.is_empty() {
                let job = json!({ "verb": "retry_failed", "filter": filter.json() });
                return replay::start(&remote, job, &run).await;
            }
            if !filter.is_empty() {
                let error = anyhow!("give the ids of dead letters, or a filter, not both");
                return Err(Failure::refused(error));
            }
            replay_each(&remote, &ids).await
        }
    }
}

/// A page of a list.
async fn get(
    remote: &Remote,
    path: &str,
    filter: &[(&str, Option<&str>)],
    paging: &Paging,
) -> Result<Value, Failure> {
    let limit = paging.limit.to_string();
    let place = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query(&[filter, &place].concat());
    Client::new(remote)?.get(&format!("{path}{query}")).await
}

async fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let delivery = Client::new(remote)?.get(&format!("/deliveries/{id}")).await?;
    if remote.json {
        return Ok(output::line(&delivery.to_string())?);
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
    output::fields(&delivery, &names)?;
    let mut attempts = delivery["attempt_list"].as_array().cloned().unwrap_or_default();
    output::line("")?;
    if attempts.is_empty() {
        return Ok(output::line("No attempt yet.")?);
    }
    let columns = [
        ("attempt", "number"),
        ("started", "started_at"),
        ("took ms", "took_ms"),
        ("of which", "stages"),
        ("status", "status"),
        ("failure", "failure"),
        ("class", "class"),
        ("detail", "detail"),
        ("next", "next_at"),
        ("why then", "next_why"),
    ];
    for attempt in &mut attempts {
        attempt["stages"] = timing::in_words(&attempt["timing"]).into();
    }
    Ok(output::table(&columns, &attempts)?)
}

async fn stats(remote: &Remote) -> Result<(), Failure> {
    let stats = Client::new(remote)?.get("/dead-letters/stats").await?;
    if remote.json {
        return Ok(output::line(&stats.to_string())?);
    }
    let rows: Vec<Value> = stats
        .as_object()
        .into_iter()
        .flatten()
        .map(|(reason, count)| {
            json!({ "reason": reason, "total": count["total"], "pending": count["pending"] })
        })
        .collect();
    Ok(output::table(&[("reason", "reason"), ("dead now", "pending"), ("ever", "total")], &rows)?)
}

async fn replay_each(remote: &Remote, ids: &[String]) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    let mut failed = None;
    for id in ids {
        match client.post(&format!("/deliveries/{id}/replay")).await {
            Ok(answer) if remote.json => {
                output::line(
                    &json!({ "id": id, "delivery_id": answer["delivery_id"] }).to_string(),
                )?;
            }
            Ok(answer) => {
                output::line(&format!(
                    "{id} is replayed by {}",
                    output::cell(&answer["delivery_id"])
                ))?;
            }
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => failed = Some((id, failure)),
        }
    }
    match failed {
        None => Ok(()),
        Some((id, failure)) => {
            let first = anyhow!("not all were replayed; {id}: {failure}");
            Err(Failure::partial(first))
        }
    }
}
