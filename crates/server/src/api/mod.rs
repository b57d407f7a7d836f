//! The API under `/api/v1`. Each file holds the endpoints of one resource.

pub(crate) mod about;
pub(crate) mod configuration;
pub(crate) mod dead_letter_groups;
pub(crate) mod deliveries;
pub(crate) mod duplicates;
pub(crate) mod etag;
mod event_query;
pub(crate) mod events;
pub(crate) mod export;
mod extract;
pub(crate) mod idempotency;
pub(crate) mod inbox;
pub(crate) mod lanes;
pub mod masked_spec;
pub(crate) mod media;
pub(crate) mod messages;
pub(crate) mod quarantine;
pub(crate) mod redacted_body;
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

use axum::Json;
use surehook_api::ListResponse;
use surehook_core::store::PageRequest;
use surehook_types::{
    ids::{Id, IdKind},
    time::Timestamp,
};

use crate::problem::Problem;

const INVALID_CURSOR: &str = "Invalid `cursor`. Use `next_cursor` of the same list.";

const LIMIT_DEFAULT: usize = 50;
pub(crate) const LIMIT_MAX: usize = 1000;

fn parse_limit(text: Option<&str>) -> Result<Option<usize>, Problem> {
    let parse = |text: &str| {
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| Problem::invalid(format!("`limit` must be between 1 and {LIMIT_MAX}.")))
    };
    text.map(parse).transpose()
}

/// Parses `cursor`, the id of the last row that the previous page examined.
fn parse_cursor<K: IdKind>(text: Option<&str>) -> Result<Option<Id<K>>, Problem> {
    let invalid = |_| Problem::invalid(INVALID_CURSOR);
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

fn page_request<K: IdKind>(limit: Option<usize>, cursor: Option<Id<K>>) -> PageRequest<Id<K>> {
    PageRequest { after: cursor, limit: limit.unwrap_or(LIMIT_DEFAULT) }
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

fn parse_time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let invalid = |error| Problem::invalid(format!("{name}: {error}"));
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// Parses a query parameter that is one of a fixed set of words.
fn parse_word<T>(
    name: &str,
    text: Option<&str>,
    parse: fn(&str) -> Option<T>,
    known: &[&str],
) -> Result<Option<T>, Problem> {
    let unknown = || Problem::invalid(format!("`{name}` must be one of: {}", known.join(", ")));
    text.map(|text| parse(text).ok_or_else(unknown)).transpose()
}
