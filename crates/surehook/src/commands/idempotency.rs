//! `surehook idempotency`: keys of the idempotency service.

use clap::Subcommand;
use serde_json::json;
use surehook_api::{ApiTransport as _, calls, idempotency::ReleaseClaimRequest};

use super::{
    for_each_id,
    list::{print_list, print_page},
};
use crate::{
    cli::{GatewayArgs, PageArgs},
    client::ApiClient,
    error::CliError,
    output,
};

#[derive(Debug, Subcommand)]
pub(crate) enum IdempotencyCommand {
    /// List keys by namespace and key
    List {
        /// Only keys of this namespace
        #[arg(long)]
        namespace: Option<String>,
        /// Only keys that begin with this text
        #[arg(long, requires = "namespace")]
        key: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a key with its result; secrets in it are masked for viewers
    Show {
        /// Namespace of the key
        namespace: String,
        /// The key
        key: String,
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Count keys by namespace and status
    Stats {
        #[command(flatten)]
        remote: GatewayArgs,
    },
    /// Release keys whose holder is gone; if it still works, the work may be done twice
    #[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
    Release {
        /// Namespace of the keys
        namespace: String,
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        remote: GatewayArgs,
    },
}

const COLUMNS: [(&str, &str); 7] = [
    ("namespace", "namespace"),
    ("key", "key"),
    ("status", "status"),
    ("lease until", "lease_until"),
    ("completed", "completed_at"),
    ("expires", "expires_at"),
    ("result bytes", "result_bytes"),
];

const STATS_COLUMNS: [(&str, &str); 6] = [
    ("namespace", "namespace"),
    ("in progress", "in_progress"),
    ("abandoned", "abandoned"),
    ("completed", "completed"),
    ("released", "released"),
    ("result bytes", "result_bytes"),
];

pub(super) async fn run(command: IdempotencyCommand) -> Result<(), CliError> {
    match command {
        IdempotencyCommand::List { namespace, key, page } => {
            let call = calls::list_idempotency_keys()
                .query_some("namespace", namespace.as_deref())
                .query_some("key", key.as_deref());
            print_page(&page, call, &COLUMNS, "No idempotency keys.").await
        }
        IdempotencyCommand::Show { namespace, key, remote } => {
            show(&remote, &namespace, &key).await
        }
        IdempotencyCommand::Stats { remote } => {
            let call = calls::get_idempotency_stats();
            let stats = ApiClient::new(&remote)?.call_json(call).await?;
            print_list(&remote, &stats, &STATS_COLUMNS, "No idempotency keys.")
        }
        IdempotencyCommand::Release { namespace, keys, remote } => {
            let client = ApiClient::new(&remote)?;
            for_each_id(&keys, "some keys were not released", async |key| {
                let request = ReleaseClaimRequest { force: true, ..ReleaseClaimRequest::default() };
                client.call(calls::release_idempotency_key(&namespace, key, &request)).await?;
                let result = json!({ "namespace": namespace, "key": key, "released": true });
                output::print_result(remote.json, &result, &format!("{namespace}/{key} released"))
            })
            .await
        }
    }
}

async fn show(remote: &GatewayArgs, namespace: &str, key: &str) -> Result<(), CliError> {
    let call = calls::get_idempotency_key(namespace, key);
    let mut stored = ApiClient::new(remote)?.call_json(call).await?;
    if remote.json {
        return output::print_line(&stored);
    }
    let operation = stored["operation"].take();
    stored["operation"] = operation["id"].clone();
    stored["started_at"] = operation["started_at"].clone();
    let names = [
        "namespace",
        "key",
        "status",
        "fence",
        "operation",
        "started_at",
        "lease_until",
        "completed_at",
        "expires_at",
        "result_bytes",
    ];
    output::print_fields(&stored, &names)?;
    if let Some(result) = stored.get("result") {
        output::print_line("")?;
        output::print_line(result)?;
    }
    Ok(())
}
