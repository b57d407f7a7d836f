//! `surehook quarantine`: requests that failed verification and were stored.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::events::print_list;
use crate::{
    cli::{GatewayArgs, QuarantineCommand},
    client::{ApiClient, query_string},
    error::CliError,
    output,
};

const COLUMNS: [(&str, &str); 7] = [
    ("request", "id"),
    ("source", "source"),
    ("received", "received_at"),
    ("received times", "times"),
    ("bytes", "body_bytes"),
    ("reason", "reason"),
    ("what to do", "what_to_do"),
];

pub(super) async fn run(command: QuarantineCommand) -> Result<(), CliError> {
    match command {
        QuarantineCommand::List { source, paging, remote } => {
            let limit = paging.limit.to_string();
            let query = query_string(&[
                ("source", source.as_deref()),
                ("limit", Some(&limit)),
                ("cursor", paging.cursor.as_deref()),
            ]);
            let answer = ApiClient::new(&remote)?.get(&format!("/quarantine{query}")).await?;
            print_list(&remote, &answer, &COLUMNS, "No quarantined requests.")
        }
        QuarantineCommand::Show { id, remote } => show(&remote, &id).await,
        QuarantineCommand::Release { ids, source: None, force, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&ids, async |id| {
                let path = format!("/quarantine/{id}/release");
                let answer = client.post_json(&path, &json!({ "force": force })).await?;
                print_released(&remote, id, &answer)
            })
            .await
        }
        QuarantineCommand::Release { source: Some(source), remote, .. } => {
            release_all(&remote, &source).await
        }
        QuarantineCommand::Discard { ids, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&ids, async |id| {
                client.delete(&format!("/quarantine/{id}")).await?;
                let line = match remote.json {
                    true => json!({ "id": id, "discarded": true }).to_string(),
                    false => format!("{id} discarded"),
                };
                Ok(output::print_line(&line)?)
            })
            .await
        }
    }
}

/// Runs `act` for each id; the first failure is reported at the end.
async fn for_each_id(
    ids: &[String],
    act: impl AsyncFn(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
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
        Some((id, failure)) => {
            Err(CliError::partial(anyhow!("some requests failed; {id}: {failure}")))
        }
    }
}

async fn show(remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    let request = ApiClient::new(remote)?.get(&format!("/quarantine/{id}")).await?;
    if remote.json {
        return Ok(output::print_line(&request.to_string())?);
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
    output::print_fields(&request, &names)?;
    output::print_line("")?;
    for header in request["headers"].as_array().into_iter().flatten() {
        let [name, text] = ["name", "text"].map(|field| output::format_value(&header[field]));
        output::print_line(&format!("{name}: {text}"))?;
    }
    output::print_line("")?;
    let body = &request["body"];
    let body = if body["text"].is_string() { &body["text"] } else { &body["base64"] };
    Ok(output::print_line(&output::format_value(body))?)
}

fn print_released(remote: &GatewayArgs, id: &str, answer: &Value) -> Result<(), CliError> {
    if remote.json {
        let line = json!({ "id": id, "answer": answer });
        return Ok(output::print_line(&line.to_string())?);
    }
    let events = answer["events"].as_array().cloned().unwrap_or_default();
    if events.is_empty() {
        return Ok(output::print_line(&format!("{id} released; it contained no events"))?);
    }
    for event in events {
        let [word, event] = ["status", "id"].map(|name| output::format_value(&event[name]));
        output::print_line(&format!("{id} released: {word} {event}"))?;
    }
    Ok(())
}

/// Releases all requests of a source that verify, page by page.
async fn release_all(remote: &GatewayArgs, source: &str) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let names = ["released", "events", "duplicates", "left"];
    let mut sums = [0_u64; 4];
    let mut after = Value::Null;
    loop {
        let request = json!({ "source": source, "after": after });
        let answer = client.post_json("/quarantine/release", &request).await?;
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
        return Ok(output::print_line(&line.to_string())?);
    }
    output::print_line(&format!(
        "{released} released: {events} new events, {duplicates} duplicates; {left} still fail verification"
    ))?;
    Ok(())
}
