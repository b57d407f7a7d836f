//! `surehook token`: manages API tokens.

use clap::Subcommand;
use serde_json::json;
use surehook_api::{
    ApiTransport as _, calls,
    tokens::{CreateTokenRequest, LoginLink, TokenResponse},
};
use surehook_core::{access::Role, one_shot::UrlPattern};
use surehook_types::time::HumanDuration;

use super::{for_each_id, list::print_list};
use crate::{cli::GatewayArgs, client::ApiClient, error::CliError, output};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; it is shown only once
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
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
        /// Limit the token to this namespace of the idempotency service; may be repeated
        #[arg(long = "namespace", value_name = "NAMESPACE")]
        namespaces: Vec<String>,
        /// Let the token deliver to these URLs without a configured destination, such as
        /// `https://*.app.example/hooks/*`; may be repeated
        #[arg(long = "url-pattern", value_name = "PATTERN")]
        urls: Vec<UrlPattern>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// List tokens
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    List {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Create a one-time login link for the dashboard
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Link {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Revoke tokens immediately
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Revoke {
        /// Token ids (`tok_…`)
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const COLUMNS: [(&str, &str); 8] = [
    ("id", "id"),
    ("role", "role"),
    ("name", "name"),
    ("namespaces", "namespaces"),
    ("urls", "urls"),
    ("created", "created_at"),
    ("expires", "expires_at"),
    ("expired", "expired"),
];

pub(super) async fn run(command: TokenCommand) -> Result<(), CliError> {
    match command {
        TokenCommand::Create { role, name, expires, namespaces, urls, remote } => {
            let namespaces = (!namespaces.is_empty()).then_some(namespaces);
            let urls = (!urls.is_empty()).then_some(urls);
            let request = CreateTokenRequest { role, name, expires_in: expires, namespaces, urls };
            create(&remote, &request).await
        }
        TokenCommand::List { remote } => {
            let tokens = ApiClient::new(&remote)?.call_json(calls::list_tokens()).await?;
            print_list(&remote, &tokens, &COLUMNS, "No tokens.")
        }
        TokenCommand::Link { remote } => link(&remote).await,
        TokenCommand::Revoke { ids, remote } => revoke(&remote, &ids).await,
    }
}

/// Only the token goes to standard output, for scripts.
async fn create(remote: &GatewayArgs, request: &CreateTokenRequest) -> Result<(), CliError> {
    let created = ApiClient::new(remote)?.call(calls::create_token(request)).await?;
    if remote.json {
        return output::print_line(json!(created));
    }
    let TokenResponse { id, role, expires_at, .. } = &created.details;
    let expiry = match expires_at {
        Some(at) => format!("expires {at}"),
        None => "never expires".to_owned(),
    };
    output::note(&format!("{id}: {role}, {expiry}. The token is shown only once:"));
    output::print_line(&created.token)
}

/// Only the link goes to standard output, for scripts.
async fn link(remote: &GatewayArgs) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    let LoginLink { path, expires_at } = client.call(calls::create_login_link()).await?;
    let url = format!("{}{path}", client.base_url());
    if !remote.json {
        output::note(&format!("One-time login link, valid until {expires_at}:"));
    }
    output::print_result(remote.json, &json!({ "url": url, "expires_at": expires_at }), &url)
}

async fn revoke(remote: &GatewayArgs, ids: &[String]) -> Result<(), CliError> {
    let client = ApiClient::new(remote)?;
    for_each_id(ids, "some tokens were not revoked", async |id| {
        client.call(calls::revoke_token(id)).await?;
        let result = json!({ "id": id, "revoked": true });
        output::print_result(remote.json, &result, &format!("{id} revoked"))
    })
    .await
}
