//! `surehook requests`: what was refused at the door.

use super::events::print_list;
use crate::{
    cli::{Paging, Remote, RequestsCommand},
    client::{Client, query},
    failure::Failure,
};

const COLUMNS: [(&str, &str); 6] = [
    ("request", "id"),
    ("at", "at"),
    ("source", "source"),
    ("reason", "reason"),
    ("from", "remote"),
    ("what to do", "what_to_do"),
];

pub(super) async fn run(command: RequestsCommand) -> Result<(), Failure> {
    match command {
        RequestsCommand::List { source, reason, paging, remote } => {
            list(&remote, source.as_deref(), reason.as_deref(), &paging).await
        }
    }
}

async fn list(
    remote: &Remote,
    source: Option<&str>,
    reason: Option<&str>,
    paging: &Paging,
) -> Result<(), Failure> {
    let limit = paging.limit.to_string();
    let query = query(&[
        ("source", source),
        ("reason", reason),
        ("limit", Some(&limit)),
        ("cursor", paging.cursor.as_deref()),
    ]);
    let answer = Client::new(remote)?.get(&format!("/requests{query}")).await?;
    print_list(remote, &answer, &COLUMNS, "No refused requests.")
}
