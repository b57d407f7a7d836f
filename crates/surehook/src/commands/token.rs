//! `surehook token`: manages API tokens.

use anyhow::anyhow;
use serde_json::{Value, json};
use surehook_types::time::HumanDuration;

use super::events::print_list;
use crate::{
    cli::{GatewayArgs, TokenCommand},
    client::ApiClient,
    error::CliError,
    output,
};

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
                "expires_in": expires.map(|span: HumanDuration| span.to_string()),
            });
            create(&remote, &request).await
        }
        TokenCommand::List { remote } => {
            let answer = ApiClient::new(&remote)?.get("/tokens").await?;
            print_list(&remote, &answer, &COLUMNS, "No tokens.")
        }
        TokenCommand::Link { remote } => link(&remote).await,
        TokenCommand::Revoke { ids, remote } => revoke(&remote, &ids).await,
    }
}

/// Only the token goes to standard output, for scripts.
async fn create(remote: &GatewayArgs, request: &Value) -> Result<(), CliError> {
    let created = ApiClient::new(remote)?.post_json("/tokens", request).await?;
    if remote.json {
        return Ok(output::print_line(&created.to_string())?);
    }
    let (id, role) = (output::format_value(&created["id"]), output::format_value(&created["role"]));
    let expiry = match created["expires_at"].as_str() {
        Some(at) => format!("expires {at}"),
        None => "never expires".to_owned(),
    };
    output::note(&format!("{id}: {role}, {expiry}. The token is shown only once:"));
    Ok(output::print_line(&output::format_value(&created["token"]))?)
}

/// Only the link goes to standard output, for scripts.
async fn link(remote: &GatewayArgs) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let created = client.post("/tokens/link").await?;
    let url = format!("{}{}", client.base_url(), output::format_value(&created["path"]));
    if remote.json {
        return Ok(output::print_line(
            &json!({ "url": url, "expires_at": created["expires_at"] }).to_string(),
        )?);
    }
    output::note(&format!(
        "One-time login link, valid until {}:",
        output::format_value(&created["expires_at"])
    ));
    Ok(output::print_line(&url)?)
}

async fn revoke(remote: &GatewayArgs, ids: &[String]) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let mut failed = None;
    for id in ids {
        match client.delete(&format!("/tokens/{id}")).await {
            Ok(_) if remote.json => {
                output::print_line(&json!({ "id": id, "revoked": true }).to_string())?;
            }
            Ok(_) => output::print_line(&format!("{id} revoked"))?,
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => failed = Some((id, failure)),
        }
    }
    match failed {
        None => Ok(()),
        Some((id, failure)) => {
            Err(CliError::partial(anyhow!("some tokens were not revoked; {id}: {failure}")))
        }
    }
}
