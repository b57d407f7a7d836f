//! `surehook requests`: lists incoming requests.

use clap::Subcommand;
use surehook_api::calls;

use super::list::print_page;
use crate::{cli::PageArgs, error::CliError};

#[derive(Debug, Subcommand)]
pub(crate) enum RequestsCommand {
    /// List accepted, duplicate and refused requests, newest first
    List {
        /// Filter by outcome: accepted, duplicate or refused
        #[arg(long)]
        outcome: Option<String>,
        /// Filter by source
        #[arg(long)]
        source: Option<String>,
        /// Filter by reason of refusal
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
}

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
    let RequestsCommand::List { outcome, source, reason, page } = command;
    let call = calls::list_requests()
        .query_some("outcome", outcome.as_deref())
        .query_some("source", source.as_deref())
        .query_some("reason", reason.as_deref());
    print_page(&page, call, &COLUMNS, "No matching requests.").await
}
