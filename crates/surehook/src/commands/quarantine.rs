//! `surehook quarantine`: requests that did not verify and are kept until somebody decides.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::events::print_list;
use crate::{
    cli::{QuarantineCommand, Remote},
    client::{Client, query},
    failure::Failure,
    output,
};

const COLUMNS: [(&str, &str); 7] = [
    ("request", "id"),
    ("source", "source"),
    ("received", "received_at"),
    ("times", "times"),
    ("bytes", "body_bytes"),
    ("reason", "reason"),
    ("what to do", "what_to_do"),
];

pub(super) async fn run(command: QuarantineCommand) -> Result<(), Failure> {
    match command {
        QuarantineCommand::List { source, paging, remote } => {
            let limit = paging.limit.to_string();
            let query = query(&[
                ("source", source.as_deref()),
                ("limit", Some(&limit)),
                ("cursor", paging.cursor.as_deref()),
            ]);
            let answer = Client::new(&remote)?.get(&format!("/quarantine{query}")).await?;
            print_list(&remote, &answer, &COLUMNS, "Nothing is in quarantine.")
        }
        QuarantineCommand::Show { id, remote } => show(&remote, &id).await,
        QuarantineCommand::Release { ids, source: None, force, remote } => {
            let client = Client::new(&remote)?;
            each(&ids, async |id| {
                let path = format!("/quarantine/{id}/release");
                let answer = client.post_json(&path, &json!({ "force": force })).await?;
                said_released(&remote, id, &answer)
            })
            .await
        }
        QuarantineCommand::Release { source: Some(source), remote, .. } => {
            release_all(&remote, &source).await
        }
        QuarantineCommand::Discard { ids, remote } => {
            let client = Client::new(&remote)?;
            each(&ids, async |id| {
                client.delete(&format!("/quarantine/{id}")).await?;
                let line = match remote.json {
                    true => json!({ "id": id, "discarded": true }).to_string(),
                    false => format!("{id} is discarded"),
                };
                Ok(output::line(&line)?)
            })
            .await
        }
    }
}

/// Does it for each; the first that fails is told at the end.
async fn each(
    ids: &[String],
    act: impl AsyncFn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = None;
    for id in ids {
        match act(id).await {
            Ok(()) => {}
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => failed = failed.or(Some((id, failure))),
        }
    }
    match failed {
        None => Ok(()),
        Some((id, failure)) => Err(Failure::partial(anyhow!("not all were done; {id}: {failure}"))),
    }
}

async fn show(remote: &Remote, id: &str) -> Result<(), Failure> {
    let request = Client::new(remote)?.get(&format!("/quarantine/{id}")).await?;
    if remote.json {
        return Ok(output::line(&request.to_string())?);
    }
    let names = [
        "id",
        "source",
        "reason",
        "what_to_do",
        "received_at",
        "seen_at",
        "times",
        "remote",
        "method",
        "path",
        "query",
        "body_bytes",
    ];
    output::fields(&request, &names)?;
    output::line("")?;
    for header in request["headers"].as_array().into_iter().flatten() {
        let [name, text] = ["name", "text"].map(|field| output::cell(&header[field]));
        output::line(&format!("{name}: {text}"))?;
    }
    output::line("")?;
    let body = &request["body"];
    let body = if body["text"].is_string() { &body["text"] } else { &body["base64"] };
    Ok(output::line(&output::cell(body))?)
}

fn said_released(remote: &Remote, id: &str, answer: &Value) -> Result<(), Failure> {
    if remote.json {
        let line = json!({ "id": id, "answer": answer });
        return Ok(output::line(&line.to_string())?);
    }
    let events = answer["events"].as_array().cloned().unwrap_or_default();
    if events.is_empty() {
        return Ok(output::line(&format!("{id} is released; it held no event"))?);
    }
    for event in events {
        let [word, event] = ["status", "id"].map(|name| output::cell(&event[name]));
        output::line(&format!("{id} is released: {word} {event}"))?;
    }
    Ok(())
}

/// All that verify, one bounded step after the other.
async fn release_all(remote: &Remote, source: &str) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    let names = ["released", "events", "duplicates", "left"];
    let mut sums = [0_u64; 4];
    let mut after = Value::Null;
    loop {
        let wish = json!({ "source": source, "after": after });
        let answer = client.post_json("/quarantine/release", &wish).await?;
        for (sum, name) in sums.iter_mut().zip(names) {
            *sum += answer[name].as_u64().unwrap_or(0);
        }
        after = answer["next"].clone();
        if after.is_null() {
            break;
        }
    }
    let [released, events, duplicates, left] = sums;
    if remote.json {
        let line = json!({
            "released": released, "events": events, "duplicates": duplicates, "left": left,
        });
        return Ok(output::line(&line.to_string())?);
    }
    output::line(&format!(
        "{released} released: {events} new events, {duplicates} duplicates; {left} still do not verify"
    ))?;
    Ok(())
}
