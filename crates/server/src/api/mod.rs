//! The API under `/api/v1`. Each file holds the endpoints of one resource.

pub(crate) mod about;
pub(crate) mod alerts;
pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod configuration;
pub(crate) mod dead_letter_aliases;
pub(crate) mod dead_letter_groups;
pub(crate) mod deliveries;
pub(crate) mod duplicates;
pub(crate) mod etag;
mod event_query;
pub(crate) mod events;
pub(crate) mod export;
mod extract;
pub(crate) mod freeze;
pub(crate) mod idempotency;
pub(crate) mod inbox;
pub(crate) mod lanes;
pub(crate) mod listen;
pub mod masked_spec;
pub(crate) mod media;
pub(crate) mod messages;
pub(crate) mod nodes;
pub(crate) mod quarantine;
pub(crate) mod redacted_body;
pub(crate) mod reload;
pub(crate) mod replays;
pub(crate) mod requests;
pub(crate) mod resources;
mod response_stream;
pub(crate) mod reveal;
pub(crate) mod route_trials;
pub(crate) mod series;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod tokens;
pub(crate) mod what_if;

use std::{fmt::Display, str::FromStr};

use axum::Json;
use surehook_api::ListResponse;
use surehook_core::store::{Configuration, ListPage, PageRequest};
use surehook_types::ids::{Id, IdKind};

use self::resources::Resource;
use crate::problem::Problem;

const INVALID_CURSOR: &str = "Invalid `cursor`. Use `next_cursor` of the same list.";

const LIMIT_DEFAULT: usize = 50;
pub(crate) const LIMIT_MAX: usize = 1000;

fn check_limit(limit: Option<u16>) -> Result<Option<usize>, Problem> {
    let limit = limit.map(usize::from);
    match limit.is_none_or(|limit| (1..=LIMIT_MAX).contains(&limit)) {
        true => Ok(limit),
        false => Err(Problem::invalid(format!("`limit` must be between 1 and {LIMIT_MAX}."))),
    }
}

/// Parses a cursor, the position of the last row that the previous page examined.
fn parse_cursor<C: FromStr>(text: Option<&str>) -> Result<Option<C>, Problem> {
    let invalid = |_| Problem::invalid(INVALID_CURSOR);
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

fn page_request<C>(limit: Option<u16>, after: Option<C>) -> Result<PageRequest<C>, Problem> {
    Ok(PageRequest { after, limit: check_limit(limit)?.unwrap_or(LIMIT_DEFAULT) })
}

fn list_response<T, C: ToString>(page: ListPage<T, C>) -> ListResponse<T> {
    ListResponse { next_cursor: page.next.map(|cursor| cursor.to_string()), data: page.rows }
}

/// Builds a page of a list without a filter: every row that was read is part of it.
fn unfiltered_page<K: IdKind, T>(
    page: PageRequest<Id<K>>,
    rows: Vec<(Id<K>, T)>,
) -> Json<ListResponse<T>> {
    let last = rows.last().filter(|_| rows.len() == page.limit);
    let next_cursor = last.map(|(id, _)| id.to_string());
    Json(ListResponse { data: rows.into_iter().map(|(_, row)| row).collect(), next_cursor })
}

/// Finds a resource that a query or request refers to by name.
fn find_by_name<R: Resource>(
    configuration: &Configuration,
    name: Option<&(impl Display + ?Sized)>,
) -> Result<Option<Id<R::IdKind>>, Problem> {
    let Some(name) = name.map(ToString::to_string) else { return Ok(None) };
    let found = R::all(configuration).iter().find(|stored| stored.spec.name() == Some(&name));
    let unknown = || Problem::invalid(format!("No {} is named `{name}`.", R::WORD));
    found.map(|stored| Some(stored.id)).ok_or_else(unknown)
}
