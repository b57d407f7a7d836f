//! `surehook token`: who may use the API.

use anyhow::anyhow;
use serde_json::{Value, json};
use surehook_core::time::HumanDuration;

use super::events::print_list;
use crate::{
    cli::{Remote, TokenCommand},
    client::Client,
    failure::Failure,
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

pub(super) async fn run(command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Create { role, name, expires, remote } => {
            let wanted = json!({
                "role": role,
                "name": name,
                "expires_in": expires.map(|span: HumanDuration| span.to_string()),
            });
            create(&remote, &wanted).await
        }
        TokenCommand::List { remote } => {
            let answer = Client::new(&remote)?.get("/tokens").await?;
            print_list(&remote, &answer, &COLUMNS, "No tokens.")
        }
        TokenCommand::Link { remote } => link(&remote).await,
        TokenCommand::Revoke { ids, remote } => revoke(&remote, &ids).await,
    }
}

/// The token alone goes to standard output, so that a script can keep it.
async fn create(remote: &Remote, wanted: &Value) -> Result<(), Failure> {
    let made = Client::new(remote)?.post_json("/tokens", wanted).await?;
    if remote.json {
        return Ok(output::line(&made.to_string())?);
    }
    let (id, role) = (output::cell(&made["id"]), output::cell(&made["role"]));
    let end = match made["expires_at"].as_str() {
        Some(at) => format!("until {at}"),
        None => "without an end".to_owned(),
    };
    output::note(&format!("{id}: {role}, {end}. It is shown only now:"));
    Ok(output::line(&output::cell(&made["token"]))?)
}

/// The link alone goes to standard output, so that it can be opened from there.
async fn link(remote: &Remote) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    let made = client.post("/tokens/link").await?;
    let url = format!("{}{}", client.base(), output::cell(&made["path"]));
    if remote.json {
        return Ok(output::line(
            &json!({ "url": url, "expires_at": made["expires_at"] }).to_string(),
        )?);
    }
    output::note(&format!("Opens once, until {}:", output::cell(&made["expires_at"])));
    Ok(output::line(&url)?)
}

async fn revoke(remote: &Remote, ids: &[String]) -> Result<(), Failure> {
    let client = Client::new(remote)?;
    let mut failed = None;
    for id in ids {
        match client.delete(&format!("/tokens/{id}")).await {
            Ok(_) if remote.json => {
                output::line(&json!({ "id": id, "revoked": true }).to_string())?;
            }
            Ok(_) => output::line(&format!("{id} is revoked"))?,
            Err(failure) if ids.len() == 1 => return Err(failure),
            Err(failure) => failed = Some((id, failure)),
        }
    }
    match failed {
        None => Ok(()),
        Some((id, failure)) => {
            Err(Failure::partial(anyhow!("not all were revoked; {id}: {failure}")))
        }
    }
}
