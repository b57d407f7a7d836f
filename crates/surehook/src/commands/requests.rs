//! `surehook requests`: what came to the door.

use super::events::print_list;
use crate::{
    cli::{Paging, Remote, RequestsCommand},
    client::{Client, query},
    failure::Failure,
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

pub(super) async fn run(command: RequestsCommand) -> Result<(), Failure> {
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
    remote: &Remote,
    filter: &[(&str, Option<&str>)],
    paging: &Paging,
) -> Result<(), Failure> {
    let limit = paging.limit.to_string();
    let place = [("limit", Some(limit.as_str())), ("cursor", paging.cursor.as_deref())];
    let query = query(&[filter, &place].concat());
    let answer = Client::new(remote)?.get(&format!("/requests{query}")).await?;
    print_list(remote, &answer, &COLUMNS, "No such requests.")
}
