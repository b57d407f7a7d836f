//! `/api/v1/events/{id}/duplicates/{n}`: compare a duplicate with its event, or deliver it anyway.

use std::{borrow::Cow, sync::Arc};

use axum::{Extension, Json, extract::State};
use http::{HeaderMap, StatusCode, header::CONTENT_ENCODING};
use surehook_api::events::{
    DeliverDuplicateResponse, DuplicateComparison, DuplicateDifference, DuplicateResponse,
};
use surehook_core::{
    diff::{self, BodyChange, BodyDiff},
    event::DuplicateId,
    store::{DuplicateDetail, DuplicateRow},
};
use surehook_engine::ingest::DeliverAnywayError;
use surehook_types::{
    ids::EventId,
    inflate,
    redact::{self, MASK, SecretNames},
    store_error::StoreError,
};
use tokio::sync::Semaphore;

use super::{
    events::missing_body_problem,
    extract::{PathParamPair, QueryParams},
    idempotency::IdempotencyContext,
    redacted_body::{self, BodyQuery},
};
use crate::{
    ServerState,
    auth::SecretAccess,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Comparisons running at the same time: each holds two bodies and may occupy a core for a moment.
const COMPARISONS_MAX: usize = 2;
static COMPARISON_PERMITS: Semaphore = Semaphore::const_new(COMPARISONS_MAX);

/// Headers of a duplicate are not stored, so the encoding of its body is detected from its bytes.
pub(super) fn duplicate_response(
    row: &DuplicateRow,
    headers: &HeaderMap,
    names: &SecretNames,
) -> DuplicateResponse {
    let DuplicateRow {
        n,
        seen_at,
        reason,
        bytes_differ,
        ref body,
        body_left_out: body_omitted,
        delivered_as,
    } = *row;
    let masked = |body: &bytes::Bytes| {
        redacted_body::mask_body(&inflate::headers_for_duplicate(headers, body), body, names)
    };
    let body = body.as_ref().map(masked);
    let (body, masked) = body.map_or((None, 0), |(body, masked)| (Some(body), masked));
    let reason = reason.as_str().to_owned();
    DuplicateResponse { n, seen_at, reason, bytes_differ, body, body_omitted, masked, delivered_as }
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let compare_operation =
        Operation::new("compare_duplicate", "Compare a duplicate with its event.")
            .description(
                "Secret values are masked before the bodies are compared, unless `exact=true`.",
            )
            .path::<EventId>("id")
            .path::<u32>("n")
            .query::<BodyQuery>()
            .returns::<DuplicateComparison>(200)
            .problem(500, &["body_damaged"]);
    let deliver = Operation::new("deliver_duplicate", "Deliver a duplicate anyway.")
        .description(
            "Creates a new event from the duplicate's body and the event's headers, without a key, and \
             delivers it along the current routes. A duplicate can be delivered once.",
        )
        .path::<EventId>("id")
        .path::<u32>("n")
        .returns::<DeliverDuplicateResponse>(202)
        .problem(409, &["delivered_before", "is_a_message", "source_gone"])
        .problem(410, &["body_removed"])
        .problem(500, &["body_damaged"]);
    api.get("/api/v1/events/{id}/duplicates/{n}", compare_duplicate, compare_operation).post(
        "/api/v1/events/{id}/duplicates/{n}/deliver",
        deliver_duplicate,
        deliver,
    )
}

fn not_found() -> Problem {
    Problem::not_found("duplicate of this event")
}

fn parse_duplicate_id(id: &str, n: &str) -> Result<DuplicateId, Problem> {
    let event = id.parse().map_err(|_| Problem::not_found("event"))?;
    let n = n.parse().map_err(|_| not_found())?;
    Ok(DuplicateId { event, n })
}

pub(crate) async fn compare_duplicate(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<SecretAccess>,
    PathParamPair(id, n): PathParamPair,
    QueryParams(query): QueryParams<BodyQuery>,
) -> Result<Json<DuplicateComparison>, Problem> {
    let (duplicate, exact) = (parse_duplicate_id(&id, &n)?, query.is_exact(access)?);
    let permit = COMPARISON_PERMITS.acquire().await.map_err(|_| StoreError::Overloaded)?;
    let store = server.engine.store();
    let found = store.find_duplicate(duplicate).await?.ok_or_else(not_found)?;
    let names = match exact {
        true => None,
        false => Some(store.load_configuration().await?.secret_names(found.event.source)),
    };
    // Comparing large bodies would block the async runtime.
    let work = move || {
        // The work holds the permit, because the client may disconnect before it ends.
        let _permit = permit;
        build_comparison(&found, names.as_ref())
    };
    let comparison = tokio::task::spawn_blocking(work).await;
    let failed = |error: tokio::task::JoinError| StoreError::Refused(error.to_string());
    Ok(Json(comparison.map_err(failed)?))
}

fn build_comparison(found: &DuplicateDetail, names: Option<&SecretNames>) -> DuplicateComparison {
    let DuplicateDetail { event, original, duplicate } = found;
    let bodies = original.as_ref().zip(duplicate.body.as_ref());
    let difference = bodies.map(|(original, body)| {
        let headers = original.head.headers.to_map();
        let (before, masked) = mask_for_comparison(&headers, &original.body, names);
        let (after, more) =
            mask_for_comparison(&inflate::headers_for_duplicate(&headers, body), body, names);
        (diff::diff(&before, &after), masked + more)
    });
    let same_bytes = !duplicate.bytes_differ;
    let (compared_as, changes, truncated, masked) = match difference {
        None => (None, Vec::new(), false, 0),
        Some((BodyDiff { format, changes, truncated }, masked)) => {
            (Some(format.as_str().to_owned()), changes, truncated, masked)
        }
    };
    let difference = |BodyChange { path, kind, before, after }| DuplicateDifference {
        path,
        change: kind.as_str().to_owned(),
        before,
        after,
    };
    let gap = duplicate.seen_at.since(event.received_at).as_millis();
    DuplicateComparison {
        n: duplicate.n,
        at: duplicate.seen_at,
        gap_ms: u64::try_from(gap).unwrap_or(u64::MAX),
        same_bytes,
        body_kept: original.is_some() && (same_bytes || duplicate.body.is_some()),
        delivered_as: duplicate.delivered_as,
        compared_as,
        diff: changes.into_iter().map(difference).collect(),
        truncated,
        masked,
    }
}

/// Decompresses a body and, if `names` is given, masks its secrets; returns the number of masked values.
/// A body that cannot be parsed is masked completely.
fn mask_for_comparison<'b>(
    headers: &HeaderMap,
    body: &'b [u8],
    names: Option<&SecretNames>,
) -> (Cow<'b, [u8]>, usize) {
    let decoded = inflate::decode_body(headers, body);
    let Some(names) = names else { return (decoded.unwrap_or(Cow::Borrowed(body)), 0) };
    let mut bare = headers.clone();
    bare.remove(CONTENT_ENCODING);
    let mask_all = || (Cow::Borrowed(MASK.as_bytes()), 1);
    let Some(decoded) = decoded else { return mask_all() };
    match redact::mask_body(&bare, &decoded, names) {
        Ok(masked) if masked.fields == 0 => (decoded, 0),
        Ok(masked) => (Cow::Owned(masked.body.into_owned()), masked.fields),
        Err(_) => mask_all(),
    }
}

pub(crate) async fn deliver_duplicate(
    State(server): State<Arc<ServerState>>,
    IdempotencyContext(request): IdempotencyContext,
    PathParamPair(id, n): PathParamPair,
) -> Result<(StatusCode, Json<DeliverDuplicateResponse>), Problem> {
    let duplicate = parse_duplicate_id(&id, &n)?;
    match server.engine.deliver_anyway(duplicate, request).await {
        Ok(event_id) => Ok((StatusCode::ACCEPTED, Json(DeliverDuplicateResponse { event_id }))),
        Err(DeliverAnywayError::BodyRemoved) => {
            let detail = DeliverAnywayError::BodyRemoved.to_string();
            let removed = Problem::new(StatusCode::GONE, "body_removed", detail);
            Err(missing_body_problem(&server, duplicate.event).await?.unwrap_or(removed))
        }
        Err(error) => Err(Problem::from(error)),
    }
}

impl From<DeliverAnywayError> for Problem {
    fn from(error: DeliverAnywayError) -> Self {
        let (status, code) = match error {
            DeliverAnywayError::NotFound => return not_found(),
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
    use surehook_types::time::Timestamp;

    use super::*;

    #[test]
    fn compressed_duplicate_is_masked_although_its_event_is_not_compressed() {
        // {"token":"hush-hush"}
        let compressed: &[u8] =
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\xc9\xcf\x4e\xcd\x53\xb2\x52\
            \xca\x28\x2d\xce\xd0\x05\x11\x4a\xb5\x00\x98\xf7\xf9\x55\x15\x00\x00\x00";
        let names = SecretNames::builtin();
        let mut row = DuplicateRow {
            n: 1,
            seen_at: Timestamp::from_millis(1),
            reason: surehook_core::event::DuplicateReason::SameKey,
            bytes_differ: true,
            body: Some(bytes::Bytes::from_static(compressed)),
            body_left_out: false,
            delivered_as: None,
        };
        for (body, text) in [(compressed, "{\"token\":\"•••\"}"), (&compressed[..25], MASK)] {
            row.body = Some(bytes::Bytes::copy_from_slice(body));
            let response = duplicate_response(&row, &HeaderMap::new(), &names);
            assert_eq!(response.masked, 1);
            let body = serde_json::to_value(response.body).unwrap();
            assert!(body.to_string().contains(&serde_json::json!(text).to_string()), "{body}");
        }
    }
}
