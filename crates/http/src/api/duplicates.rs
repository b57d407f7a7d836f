//! `/api/v1/events/{id}/duplicates/{n}`: what came again, looked at and delivered anyway.

use std::{borrow::Cow, sync::Arc};

use axum::{Extension, Json, extract::State};
use http::{HeaderMap, StatusCode, header::CONTENT_ENCODING};
use schemars::JsonSchema;
use serde::Serialize;
use surehook_core::{
    diff::{self, BodyChange, BodyDiff},
    event::DuplicateId,
    ids::EventId,
    inflate,
    redact::{self, MASK, SecretNames},
    store::{DuplicateDetail, DuplicateRow, StoreError},
    time::Timestamp,
};
use surehook_engine::ingest::DeliverAnywayError;
use tokio::sync::Semaphore;

use super::{
    Bytes,
    events::without_body,
    hidden::{self, BodyQuery},
    idempotent::Wished,
    input::{Asked, Segments},
};
use crate::{
    App,
    auth::Insight,
    openapi::{Api, Op},
    problem::Problem,
};

/// Comparisons at the same time: each holds two bodies, and may keep a core busy for a moment.
const COMPARISONS_MAX: usize = 2;
static PLACES: Semaphore = Semaphore::const_new(COMPARISONS_MAX);

/// One sighting of a duplicate.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ShownDuplicate {
    /// Its number, by which it is looked at and delivered; it never changes.
    n: u32,
    seen_at: Timestamp,
    bytes_differ: bool,
    /// The body, if it differs; secrets are masked.
    body: Option<Bytes>,
    /// The body is kept and not here: of one event, up to 256 KiB of them are. What differs in it is
    /// told by the call for one duplicate.
    body_left_out: bool,
    /// How many values of the body are masked.
    masked: usize,
    /// The event that it became, if it was delivered anyway.
    delivered_as: Option<EventId>,
}

/// A sighting. Its own headers are not kept, so that its body is looked into as its bytes say.
pub(super) fn shown(
    row: &DuplicateRow,
    headers: &HeaderMap,
    names: &SecretNames,
) -> ShownDuplicate {
    let DuplicateRow { n, seen_at, bytes_differ, ref body, body_left_out, delivered_as } = *row;
    let masked = |body: &bytes::Bytes| {
        hidden::body(&inflate::headers_for_duplicate(headers, body), body, names)
    };
    let body = body.as_ref().map(masked);
    let (body, masked) = body.map_or((None, 0), |(body, masked)| (Some(body), masked));
    ShownDuplicate { n, seen_at, bytes_differ, body, body_left_out, masked, delivered_as }
}

/// A duplicate beside the event that came first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DuplicateCompared")]
pub(crate) struct Compared {
    n: u32,
    /// When it was seen.
    at: Timestamp,
    /// How long after the event that came first.
    gap_ms: u64,
    /// Its body is the same, byte for byte.
    same_bytes: bool,
    /// Its bytes are still there, so that it can be delivered.
    body_kept: bool,
    /// The event that it became, if it was delivered anyway.
    delivered_as: Option<EventId>,
    /// As what the bodies were compared: `json` by structure, `text` by lines, `bytes`; null if they
    /// were not, because they are the same or not there.
    compared_as: Option<&'static str>,
    /// What differs, in the order of the bodies; at most 200. Without any, bodies that are compared
    /// as JSON differ only in how they are written, or in what is masked.
    diff: Vec<ShownChange>,
    /// Something was cut: a value, the list, or the search.
    truncated: bool,
    /// How many values of both bodies are masked. Masked values are not told apart.
    masked: usize,
}

/// One difference.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DuplicateChange")]
struct ShownChange {
    /// A JSON pointer; an index is that of the duplicate, but of what was removed that of the first.
    /// `line N` or `byte N` where the bodies are not JSON.
    path: String,
    /// `added`, `removed` or `changed`.
    change: &'static str,
    /// The value in the event that came first, as JSON text, at most 1000 characters; the lines; or
    /// bytes in hex. Null if it was added.
    before: Option<String>,
    /// The same in the duplicate. Null if it was removed.
    after: Option<String>,
}

impl From<BodyChange> for ShownChange {
    fn from(BodyChange { path, kind, before, after }: BodyChange) -> Self {
        Self { path, change: kind.as_str(), before, after }
    }
}

/// What it became.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeliveredAnyway {
    /// The new event.
    event_id: EventId,
}

pub(crate) fn routes(api: Api) -> Api {
    let look = Op::new("compare_duplicate", "What differs between an event and its duplicate.")
        .text(
            "Values of secret fields are replaced by `•••` before the bodies are compared; with \
             `exact=true` nothing is replaced.",
        )
        .path::<EventId>("id")
        .path::<u32>("n")
        .query::<BodyQuery>()
        .answers::<Compared>(200);
    let deliver = Op::new("deliver_duplicate", "Not a duplicate: delivers it anyway.")
        .text(
            "Makes a new event of the duplicate's own bytes, with the headers of the event that came \
             first and without a key, and sends it where the routes lead now. A duplicate becomes \
             an event once.",
        )
        .path::<EventId>("id")
        .path::<u32>("n")
        .answers::<DeliveredAnyway>(202)
        .refuses(409, &["delivered_before", "is_a_message", "source_gone"])
        .refuses(410, &["body_removed"]);
    api.get("/api/v1/events/{id}/duplicates/{n}", compare, look).post(
        "/api/v1/events/{id}/duplicates/{n}/deliver",
        deliver_anyway,
        deliver,
    )
}

fn unknown() -> Problem {
    Problem::not_found("duplicate of this event")
}

fn copy_id(id: &str, n: &str) -> Result<DuplicateId, Problem> {
    let event = id.parse().map_err(|_| Problem::not_found("event"))?;
    let n = n.parse().map_err(|_| unknown())?;
    Ok(DuplicateId { event, n })
}

/// What differs.
pub(crate) async fn compare(
    State(app): State<Arc<App>>,
    Extension(insight): Extension<Insight>,
    Segments(id, n): Segments,
    Asked(query): Asked<BodyQuery>,
) -> Result<Json<Compared>, Problem> {
    let (copy, exact) = (copy_id(&id, &n)?, query.is_exact(insight)?);
    let place = PLACES.acquire().await.map_err(|_| StoreError::Overloaded)?;
    let store = app.engine.store();
    let found = store.duplicate(copy).await?.ok_or_else(unknown)?;
    let names = match exact {
        true => None,
        false => Some(store.configuration().await?.secret_names(found.event.source)),
    };
    // Large bodies take their time.
    let work = move || {
        // Kept by the work itself: whoever asked may be gone before it ends.
        let _place = place;
        compared(&found, names.as_ref())
    };
    let compared = tokio::task::spawn_blocking(work).await;
    let failed = |error: tokio::task::JoinError| StoreError::Refused(error.to_string());
    Ok(Json(compared.map_err(failed)?))
}

fn compared(found: &DuplicateDetail, names: Option<&SecretNames>) -> Compared {
    let DuplicateDetail { event, original, duplicate } = found;
    let bodies = original.as_ref().zip(duplicate.body.as_ref());
    let looked = bodies.map(|(original, body)| {
        let headers = original.head.headers.to_map();
        let (before, masked) = readable(&headers, &original.body, names);
        let (after, more) = readable(&inflate::headers_for_duplicate(&headers, body), body, names);
        (diff::diff(&before, &after), masked + more)
    });
    let same_bytes = !duplicate.bytes_differ;
    let (compared_as, changes, truncated, masked) = match looked {
        None => (None, Vec::new(), false, 0),
        Some((BodyDiff { form, changes, truncated }, masked)) => {
            (Some(form.as_str()), changes, truncated, masked)
        }
    };
    let gap = duplicate.seen_at.since(event.received_at).as_millis();
    Compared {
        n: duplicate.n,
        at: duplicate.seen_at,
        gap_ms: u64::try_from(gap).unwrap_or(u64::MAX),
        same_bytes,
        body_kept: original.is_some() && (same_bytes || duplicate.body.is_some()),
        delivered_as: duplicate.delivered_as,
        compared_as,
        diff: changes.into_iter().map(ShownChange::from).collect(),
        truncated,
        masked,
    }
}

/// A body unpacked, with its secrets masked by their names if there are any to be hidden; and how
/// many that were. One that cannot be looked into is masked as a whole.
fn readable<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    names: Option<&SecretNames>,
) -> (Cow<'b, [u8]>, usize) {
    let plain = inflate::decode_body(headers, body);
    let Some(names) = names else { return (plain.unwrap_or(Cow::Borrowed(body)), 0) };
    let mut bare = headers.clone();
    bare.remove(CONTENT_ENCODING);
    let hidden = || (Cow::Borrowed(MASK.as_bytes()), 1);
    let Some(plain) = plain else { return hidden() };
    match redact::mask_body(&bare, &plain, names) {
        Ok(shown) if shown.fields == 0 => (plain, 0),
        Ok(shown) => (Cow::Owned(shown.body.into_owned()), shown.fields),
        Err(_) => hidden(),
    }
}

/// Makes an event of it.
pub(crate) async fn deliver_anyway(
    State(app): State<Arc<App>>,
    Wished(wish): Wished,
    Segments(id, n): Segments,
) -> Result<(StatusCode, Json<DeliveredAnyway>), Problem> {
    let copy = copy_id(&id, &n)?;
    match app.engine.deliver_anyway(copy, wish).await {
        Ok(event_id) => Ok((StatusCode::ACCEPTED, Json(DeliveredAnyway { event_id }))),
        Err(DeliverAnywayError::BodyRemoved) => {
            let detail = DeliverAnywayError::BodyRemoved.to_string();
            let gone = Problem::new(StatusCode::GONE, "body_removed", detail);
            Err(without_body(&app, copy.event).await?.unwrap_or(gone))
        }
        Err(error) => Err(Problem::from(error)),
    }
}

impl From<DeliverAnywayError> for Problem {
    fn from(error: DeliverAnywayError) -> Self {
        let (status, code) = match error {
            DeliverAnywayError::NotFound => return unknown(),
            DeliverAnywayError::Store(error) => return Self::from(error),
            DeliverAnywayError::AlreadyDelivered(_) => (StatusCode::CONFLICT, "delivered_before"),
            DeliverAnywayError::Message => (StatusCode::CONFLICT, "is_a_message"),
            DeliverAnywayError::SourceGone => (StatusCode::CONFLICT, "source_gone"),
            DeliverAnywayError::BodyRemoved => (StatusCode::GONE, "body_removed"),
        };
        Self::new(status, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_came_packed_is_masked_though_the_original_was_not() {
        // {"token":"hush-hush"}
        let packed: &[u8] =
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\xc9\xcf\x4e\xcd\x53\xb2\x52\
            \xca\x28\x2d\xce\xd0\x05\x11\x4a\xb5\x00\x98\xf7\xf9\x55\x15\x00\x00\x00";
        let names = SecretNames::usual();
        let mut row = DuplicateRow {
            n: 1,
            seen_at: Timestamp::from_millis(1),
            bytes_differ: true,
            body: Some(bytes::Bytes::from_static(packed)),
            body_left_out: false,
            delivered_as: None,
        };
        for (body, text) in [(packed, "{\"token\":\"•••\"}"), (&packed[..25], MASK)] {
            row.body = Some(bytes::Bytes::copy_from_slice(body));
            let shown = shown(&row, &HeaderMap::new(), &names);
            assert_eq!(shown.masked, 1);
            let body = serde_json::to_value(shown.body).unwrap();
            assert!(body.to_string().contains(&serde_json::json!(text).to_string()), "{body}");
        }
    }
}
