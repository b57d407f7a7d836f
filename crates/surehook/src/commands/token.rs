//! `surehook token`: manages API tokens.

use clap::Subcommand;
use serde_json::{Value, json};
use surehook_core::access::Role;
use surehook_types::time::HumanDuration;

use super::{for_each_id, list::print_list};
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; it is shown only once
    #[command(mut_arg("data", |data| data.hide(true)))]
    Create {
        /// Role: `viewer` reads, `operator` also replays and pauses, `admin` does everything
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Name of the token
        #[arg(long)]
        name: Option<String>,
        /// Token lifetime, such as `30d` [default: unlimited]
        #[arg(long, value_name = "SPAN")]
        expires: Option<HumanDuration>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// List tokens
    #[command(mut_arg("data", |data| data.hide(true)))]
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Create a one-time login link for the dashboard
    #[command(mut_arg("data", |data| data.hide(true)))]
    Link {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Revoke tokens immediately
    #[command(mut_arg("data", |data| data.hide(true)))]
    Revoke {
        /// Token ids (`tok_…`)
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const COLUMNS: [(&str, &str); 6] = [
    ("id", "id"),
    ("role", "role"),
    ("name", "name"),
    ("created", "created_at"),
    ("expires", "expires_at"),
    ("expired", "expired"),
];

pub(super) async fn run(command: TokenCommand) -> Result<(), CliError> {
    match command {
        TokenCommand::Create { role, name, expires, remote } => {
            let request = json!({
                "role": role,
                "name": name,
                "expires_in": expires.map(|span| span.to_string()),
            });
            create(&remote, &request).await
        }
        TokenCommand::List { remote } => {
            let tokens = ApiClient::new(&remote)?.get("/tokens").await?;
            print_list(&remote, &tokens, &COLUMNS, "No tokens.")
        }
        TokenCommand::Link { remote } => link(&remote).await,
        TokenCommand::Revoke { ids, remote } => revoke(&remote, &ids).await,
    }
}

/// Only the token goes to standard output, for scripts.
async fn create(remote: &GatewayArgs, request: &Value) -> Result<(), CliError> {
    let created = ApiClient::new(remote)?.post_json("/tokens", request).await?;
    if remote.json {
        return output::print_line(&created);
    }
    let (id, role) = (output::format_value(&created["id"]), output::format_value(&created["role"]));
    let expiry = match created["expires_at"].as_str() {
        Some(at) => format!("expires {at}"),
        None => "never expires".to_owned(),
    };
    output::note(&format!("{id}: {role}, {expiry}. The token is shown only once:"));
    output::print_line(output::format_value(&created["token"]))
}

/// Only the link goes to standard output, for scripts.
async fn link(remote: &GatewayArgs) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let created = client.post("/tokens/link").await?;
    let url = format!("{}{}", client.base_url(), output::format_value(&created["path"]));
    if remote.json {
        return output::print_line(json!({ "url": url, "expires_at": created["expires_at"] }));
    }
    output::note(&format!(
        "One-time login link, valid until {}:",
        output::format_value(&created["expires_at"])
    ));
    output::print_line(url)
}

async fn revoke(remote: &GatewayArgs, ids: &[String]) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    for_each_id(ids, "some tokens were not revoked", async |id| {
        client.delete(&format!("/tokens/{id}")).await?;
        let result = json!({ "id": id, "revoked": true });
        output::print_result(remote.json, &result, &format!("{id} revoked"))
    })
    .await
}
