//! `surehook requests`: lists incoming requests.

use super::events::print_list;
use crate::{
    cli::{GatewayArgs, PageArgs, RequestsCommand},
    client::{ApiClient, query_string},
    error::CliError,
};

const COLUMNS: [(&str, &str); 8] = [
    ("request", "id"),
    ("at", "at"),
    ("source", "source"),
    ("outcome", "outcome"),
    ("event", "event"),
    ("reason", "reason"),
    ("from", "remote"),
    ("what to do", "what_to_do"),
];

pub(super) async fn run(command: RequestsCommand) -> Result<(), CliError> {
    match command {
        RequestsCommand::List { outcome, source, reason, paging, remote } => {
            let filter = [
                ("outcome", outcome.as_deref()),
                ("source", source.as_deref()),
                ("reason", reason.as_deref()),
            ];
            list(&remote, &filter, &paging).await
        }
    }
}

async fn list(
    remote: &GatewayArgs,
    filter: &[(&str, Option<&str>)],
    paging: &PageArgs,
) -> Result<(), CliError> {
    let limit = paging.limit.to_string();
    let page = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query_string(&[filter, &page].concat());
    let answer = ApiClient::new(remote)?.get(&format!("/requests{query}")).await?;
    print_list(remote, &answer, &COLUMNS, "No matching requests.")
}
