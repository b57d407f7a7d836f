//! The API under `/api/v1`: one file a resource, each with the lines of its calls in the table.

pub(crate) mod about;
mod changes;
pub(crate) mod configuration;
pub(crate) mod deliveries;
pub(crate) mod duplicates;
mod event_query;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod groups;
pub(crate) mod hidden;
pub(crate) mod idempotent;
pub(crate) mod inbox;
mod input;
mod kept;
pub(crate) mod lanes;
pub mod masked;
pub(crate) mod media;
pub(crate) mod messages;
mod outflow;
pub(crate) mod quarantine;
pub(crate) mod replays;
pub(crate) mod requests;
pub(crate) mod resources;
pub(crate) mod reveal;
pub(crate) mod series;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod tagged;
pub(crate) mod tokens;
pub(crate) mod trials;

use axum::Json;
use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{
    ids::{Id, IdKind},
    store::PageRequest,
    time::Timestamp,
};

use crate::problem::Problem;

/// A list and where it goes on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub(crate) struct List<T> {
    data: Vec<T>,
    /// Give it as `cursor` for the next page; null at the end. A page may be short and not the last.
    next_cursor: Option<String>,
}

const LIMIT_DEFAULT: usize = 50;
pub(crate) const LIMIT_MAX: usize = 1000;

/// Reads `limit`.
fn limit(text: Option<&str>) -> Result<Option<usize>, Problem> {
    let read = |text: &str| {
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| Problem::invalid(format!("limit must be between 1 and {LIMIT_MAX}")))
    };
    text.map(read).transpose()
}

/// Reads `cursor`. It is the id of the last entry that the page before looked at.
fn cursor<K: IdKind>(text: Option<&str>) -> Result<Option<Id<K>>, Problem> {
    let invalid = |_| Problem::invalid("cursor is not one of this list");
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// Reads `limit` and `cursor`.
fn page<K: IdKind>(limit: Option<usize>, cursor: Option<Id<K>>) -> PageRequest<Id<K>> {
    PageRequest { after: cursor, limit: limit.unwrap_or(LIMIT_DEFAULT) }
}

/// The page that `rows` are, where every row that was looked at is one of the list.
fn whole_page<K: IdKind, T>(page: PageRequest<Id<K>>, rows: Vec<(Id<K>, T)>) -> Json<List<T>> {
    let last = rows.last().filter(|_| rows.len() == page.limit);
    let next_cursor = last.map(|(id, _)| id.to_string());
    Json(List { data: rows.into_iter().map(|(_, row)| row).collect(), next_cursor })
}

/// Reads a time of the query.
fn time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let invalid = |error| Problem::invalid(format!("{name}: {error}"));
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// Reads a word of the query that is one of a few.
fn word<T>(
    name: &str,
    text: Option<&str>,
    from_word: fn(&str) -> Option<T>,
    known: &[&str],
) -> Result<Option<T>, Problem> {
    let unknown = || Problem::invalid(format!("{name} is one of {}", known.join(", ")));
    text.map(|text| from_word(text).ok_or_else(unknown)).transpose()
}

/// Bytes as text where they are text.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Bytes {
    /// They are UTF-8.
    Text {
        /// The text.
        text: String,
    },
    /// They are not.
    Base64 {
        /// RFC 4648, with padding.
        base64: String,
    },
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text { text: text.to_owned() },
            Err(_) => Self::Base64 { base64: BASE64.encode(bytes) },
        }
    }
}

/// One line of a head.
#[derive(Debug, Serialize, JsonSchema)]
struct HeaderLine {
    name: String,
    #[serde(flatten)]
    value: Bytes,
}
