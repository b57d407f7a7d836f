//! `surehook quarantine`: requests that failed verification and were stored.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{for_each_id, list::print_page};
use crate::{
    cli::{GatewayArgs, PageArgs},
    client::ApiClient,
    error::CliError,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List quarantined requests, newest first
    List {
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        #[command(flatten)]
        paging: PageArgs,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Show a request with headers and body, secrets masked
    Show {
        /// Request id
        id: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Release requests that now pass verification: by id, or all of a source
    #[command(mut_arg("data", |data| data.hide(true)))]
    Release {
        /// Request ids
        #[arg(required_unless_present = "source")]
        ids: Vec<String>,
        /// Release all requests of this source, oldest first
        #[arg(long, conflicts_with = "ids")]
        source: Option<String>,
        /// Release even if verification still fails; the events are marked
        #[arg(long, conflicts_with = "source")]
        force: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Delete requests
    #[command(mut_arg("data", |data| data.hide(true)))]
    Discard {
        /// Request ids
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

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
            let filter = [("source", source.as_deref())];
            let empty = "No quarantined requests.";
            print_page(&remote, "/quarantine", &filter, &paging, &COLUMNS, empty).await
        }
        QuarantineCommand::Show { id, remote } => show(&remote, &id).await,
        QuarantineCommand::Release { ids, source: None, force, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&ids, "some requests failed", async |id| {
                let path = format!("/quarantine/{id}/release");
                let released = client.post_json(&path, &json!({ "force": force })).await?;
                print_released(&remote, id, &released)
            })
            .await
        }
        QuarantineCommand::Release { source: Some(source), remote, .. } => {
            release_all(&remote, &source).await
        }
        QuarantineCommand::Discard { ids, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&ids, "some requests failed", async |id| {
                client.delete(&format!("/quarantine/{id}")).await?;
                let result = json!({ "id": id, "discarded": true });
                output::print_result(remote.json, &result, &format!("{id} discarded"))
            })
            .await
        }
    }
}

async fn show(remote: &GatewayArgs, id: &str) -> Result<(), CliError> {
    let request = ApiClient::new(remote)?.get(&format!("/quarantine/{id}")).await?;
    if remote.json {
        return output::print_line(&request);
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
        output::print_line(format!("{name}: {text}"))?;
    }
    output::print_line("")?;
    let body = &request["body"];
    let body = if body["text"].is_string() { &body["text"] } else { &body["base64"] };
    output::print_line(output::format_value(body))
}

fn print_released(remote: &GatewayArgs, id: &str, response: &Value) -> Result<(), CliError> {
    if remote.json {
        return output::print_line(json!({ "id": id, "answer": response }));
    }
    let events = response["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    if events.is_empty() {
        return output::print_line(format!("{id} released; it contained no events"));
    }
    events.iter().try_for_each(|event| {
        let [status, event] = ["status", "id"].map(|name| output::format_value(&event[name]));
        output::print_line(format!("{id} released: {status} {event}"))
    })
}

/// Releases all requests of a source that verify, page by page.
async fn release_all(remote: &GatewayArgs, source: &str) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let mut sums = ["released", "events", "duplicates", "left"].map(|name| (name, 0));
    let mut after = Value::Null;
    loop {
        let request = json!({ "source": source, "after": after });
        let page = client.post_json("/quarantine/release", &request).await?;
        for (name, sum) in &mut sums {
            *sum += page[*name].as_u64().unwrap_or(0);
        }
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    let [released, events, duplicates, left] = sums.map(|(_, sum)| sum);
    let text = format!(
        "{released} released: {events} new events, {duplicates} duplicates; {left} still fail verification"
    );
    output::print_result(remote.json, &sums.into_iter().collect(), &text)
}
