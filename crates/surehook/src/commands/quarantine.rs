//! `surehook quarantine`: requests that failed verification and were stored.

use clap::Subcommand;
use serde_json::json;
use surehook_api::{
    ApiTransport as _, calls,
    quarantine::{ReleaseRequest, ReleaseResponse, ReleaseSourceRequest},
};

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
        page: PageArgs,
    },
    /// Show a request with headers and body, secrets masked
    Show {
        /// Request id
        id: String,
        /// Print the exact body, including secrets (role operator)
        #[arg(long)]
        exact: bool,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Release requests that now pass verification: by id, or all of a source
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
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
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
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
        QuarantineCommand::List { source, page } => {
            let call = calls::list_quarantine().query_some("source", source.as_deref());
            print_page(&page, call, &COLUMNS, "No quarantined requests.").await
        }
        QuarantineCommand::Show { id, exact, remote } => show(&remote, &id, exact).await,
        QuarantineCommand::Release { ids, source: None, force, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&ids, "some requests failed", async |id| {
                let call = calls::release_quarantined_request(id, &ReleaseRequest { force });
                print_released(&remote, id, &client.call(call).await?)
            })
            .await
        }
        QuarantineCommand::Release { source: Some(source), remote, .. } => {
            release_all(&remote, &source).await
        }
        QuarantineCommand::Discard { ids, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&ids, "some requests failed", async |id| {
                client.call(calls::discard_quarantined_request(id)).await?;
                let result = json!({ "id": id, "discarded": true });
                output::print_result(remote.json, &result, &format!("{id} discarded"))
            })
            .await
        }
    }
}

async fn show(remote: &GatewayArgs, id: &str, exact: bool) -> Result<(), CliError> {
    let call = calls::get_quarantined_request(id);
    let call = call.query_some("exact", exact.then_some("true"));
    let request = ApiClient::new(remote)?.call_json(call).await?;
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

fn print_released(
    remote: &GatewayArgs,
    id: &str,
    released: &ReleaseResponse,
) -> Result<(), CliError> {
    if remote.json {
        return output::print_line(json!({ "id": id, "answer": released }));
    }
    if released.events.is_empty() {
        return output::print_line(format!("{id} released; it contained no events"));
    }
    released.events.iter().try_for_each(|event| {
        output::print_line(format!("{id} released: {} {}", event.status, event.id))
    })
}

/// Releases all requests of a source that verify, page by page.
async fn release_all(remote: &GatewayArgs, source: &str) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let mut request = ReleaseSourceRequest { source: source.to_owned(), after: None };
    let (mut released, mut events, mut duplicates, mut left) = (0, 0, 0, 0);
    loop {
        let page = client.call(calls::release_quarantine(&request)).await?;
        released += page.released;
        events += page.events;
        duplicates += page.duplicates;
        left += page.left;
        request.after = page.next;
        if request.after.is_none() {
            break;
        }
    }
    let result = json!({
        "released": released, "events": events, "duplicates": duplicates, "left": left,
    });
    let text = format!(
        "{released} released: {events} new events, {duplicates} duplicates; {left} still fail verification"
    );
    output::print_result(remote.json, &result, &text)
}
