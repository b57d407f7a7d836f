//! The API under `/api/v1`: one file a resource.

pub(crate) mod configuration;
pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod hidden;
mod input;
pub(crate) mod lanes;
mod masked;
pub(crate) mod replays;
pub(crate) mod requests;
pub(crate) mod resources;
pub(crate) mod series;
pub(crate) mod stats;

use axum::Json;
use serde::Serialize;
use surehook_core::{
    ids::{Id, Kind},
    store::Page,
};

use crate::problem::Problem;

/// A list and where it goes on.
#[derive(Debug, Serialize)]
pub(crate) struct List<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 1000;

/// Reads `limit` and `cursor`. A cursor is the id of the last entry of the page before.
fn page<K: Kind>(limit: Option<&str>, cursor: Option<&str>) -> Result<Page<Id<K>>, Problem> {
    let limit = match limit {
        None => LIMIT_DEFAULT,
        Some(text) => {
            text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
                Problem::invalid(format!("limit must be between 1 and {LIMIT_MAX}"))
            })?
        }
    };
    let after = cursor
        .map(|text| text.parse().map_err(|_| Problem::invalid("cursor is not one of this list")))
        .transpose()?;
    Ok(Page { after, limit })
}

/// A page of a list; a full page may have a next one.
fn list<K: Kind, T>(page: Page<Id<K>>, rows: Vec<(Id<K>, T)>) -> Json<List<T>> {
    let full = rows.len() == page.limit;
    let next_cursor = rows.last().filter(|_| full).map(|(id, _)| id.to_string());
    Json(List { data: rows.into_iter().map(|(_, row)| row).collect(), next_cursor })
}
