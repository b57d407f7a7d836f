//! `/api/v1/idempotency`: keys of other programs, claimed by the rules of `surehook-dedup`.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use surehook_api::{
    ListResponse,
    idempotency::{
        BatchClaim, BatchCompletion, ClaimAnswer, ClaimBatchRequest, ClaimBatchResponse,
        ClaimKeyRequest, ClaimKeyResponse, ClaimState, ClaimUpdateAnswer, ClaimUpdateResponse,
        CompleteClaimRequest, ExtendClaimRequest, FINGERPRINT_BYTES_MAX, IdempotencyStats,
        OperationResponse, ReleaseClaimRequest, StoredKeyResponse,
    },
};
use surehook_core::idempotency::{
    ClaimFilter, ClaimRow, ClaimStep, ClaimStepResult, KeyLimit, StoredClaimStatus, service_key,
};
use surehook_dedup::{
    Claim, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
    Fingerprint,
    claim::{BATCH_MAX, RESULT_BYTES_MAX},
};
use surehook_types::{
    redact::{self, SecretNames},
    store_error::StoreError,
    time::HumanDuration,
};

use super::{
    INVALID_CURSOR, LIMIT_MAX,
    extract::{JsonBody, OptionalJson, PathParamPair, QueryParams},
    page_request,
};
use crate::{
    ServerState,
    auth::{NamespaceAccess, SecretAccess, namespace_not_allowed},
    openapi::{ApiTable, Operation},
    problem::Problem,
};

const TTL_DEFAULT: Duration = Duration::from_secs(24 * 3600);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const SPAN_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
const LEASE_MAX: Duration = Duration::from_secs(3600);
const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let key_operation = |id, summary| {
        Operation::new(id, summary)
            .path::<String>("namespace")
            .path::<String>("key")
            .problem(403, &["namespace_not_allowed"])
    };
    let claim = key_operation("claim_idempotency_key", "Claim a key before you do its work.")
        .description(
            "`claimed`: do the work, then complete or release the key with the token. `in_progress`: \
             another holder works on it; `wait` waits for that one. `completed`: the work is done, and \
             `result` is what its holder stored. If a holder does not complete its claim, the next claim \
             after its lease is granted with the same `operation` and `resumed: true`.",
        )
        .optional_body::<ClaimKeyRequest>(json!({ "ttl": "1h", "lease": "30s", "wait": "0s" }))
        .returns::<ClaimKeyResponse>(200)
        .problem(422, &["fingerprint_mismatch"])
        .problem(429, &["too_many_idempotency_keys"]);
    let token = "00112233445566778899aabbccddeeff";
    let extend = key_operation("extend_idempotency_claim", "Extend the lease of a claim.")
        .body::<ExtendClaimRequest>(json!({ "token": token, "lease": "30s" }))
        .returns::<ClaimUpdateResponse>(200)
        .problem(409, &["stale_token"]);
    let complete =
        key_operation("complete_idempotency_claim", "Complete a claim and store its result.")
            .description("Completing it again with the same token succeeds and changes nothing.")
            .body::<CompleteClaimRequest>(json!({ "token": token, "result": { "order": 17 } }))
            .returns::<ClaimUpdateResponse>(200)
            .problem(409, &["stale_token"])
            .problem(413, &["result_too_large"]);
    let release = key_operation("release_idempotency_claim", "Release a claim without a result.")
        .description(
            "The next claim starts anew. With `force` an operator releases a key whose holder is gone; if \
             it still works, the work may be done twice.",
        )
        .body::<ReleaseClaimRequest>(json!({ "token": token }))
        .returns::<ClaimUpdateResponse>(200)
        .problem(409, &["stale_token", "not_in_progress"]);
    let batch = Operation::new("batch_idempotency", "Claim and complete up to 100 keys at once.")
        .description(
            "All items are in one commit; each has its own answer. Claims run before completions. An item \
             that is refused does not affect the others.",
        )
        .body::<ClaimBatchRequest>(
            json!({ "claims": [{ "namespace": "orders", "key": "4711" }], "completions": [] }),
        )
        .returns::<ClaimBatchResponse>(200);
    let list = Operation::new("list_idempotency_keys", "List keys by namespace and key.")
        .query::<StoredKeyQuery>()
        .returns::<ListResponse<StoredKeyResponse>>(200)
        .problem(403, &["namespace_not_allowed"]);
    let get = key_operation("get_idempotency_key", "Get a key with its result.")
        .returns::<StoredKeyResponse>(200);
    let stats = Operation::new("get_idempotency_stats", "Count keys by namespace.")
        .description("The first 1000 namespaces in alphabetical order.")
        .returns::<ListResponse<IdempotencyStats>>(200);
    let key = "/api/v1/idempotency/{namespace}/{key}";
    api.get("/api/v1/idempotency", list_idempotency_keys, list)
        .post("/api/v1/idempotency", batch_idempotency, batch)
        .get(key, get_idempotency_key, get)
        .post(key, claim_idempotency_key, claim)
        .post("/api/v1/idempotency/{namespace}/{key}/extend", extend_idempotency_claim, extend)
        .post(
            "/api/v1/idempotency/{namespace}/{key}/complete",
            complete_idempotency_claim,
            complete,
        )
        .post("/api/v1/idempotency/{namespace}/{key}/release", release_idempotency_claim, release)
        .get("/api/v1/stats/idempotency", get_idempotency_stats, stats)
}

fn parse_key(access: &NamespaceAccess, namespace: &str, key: &str) -> Result<ClaimKey, Problem> {
    let key = service_key(namespace, key).map_err(|error| Problem::invalid(error.to_string()))?;
    access.check(namespace)?;
    Ok(key)
}

fn check_span(
    name: &str,
    span: Option<HumanDuration>,
    default: Duration,
    min: Duration,
    max: Duration,
) -> Result<Duration, Problem> {
    let span = span.map_or(default, |span| span.0);
    if (min..=max).contains(&span) {
        return Ok(span);
    }
    let (min, max) = (HumanDuration(min), HumanDuration(max));
    Err(Problem::invalid(format!("`{name}` must be between {min} and {max}.")))
}

fn check_ttl(ttl: Option<HumanDuration>) -> Result<Duration, Problem> {
    check_span("ttl", ttl, TTL_DEFAULT, SPAN_MIN, TTL_MAX)
}

fn parse_token(token: &str) -> Result<ClaimToken, Problem> {
    token.parse().map_err(|_| {
        Problem::invalid("Invalid `token`. Send the 32 hexadecimal digits that the claim returned.")
    })
}

fn claim_request(
    key: ClaimKey,
    ttl: Option<HumanDuration>,
    lease: Option<HumanDuration>,
    fingerprint: Option<&str>,
) -> Result<ClaimRequest, Problem> {
    let ttl = check_ttl(ttl)?;
    let lease = check_span("lease", lease, LEASE_DEFAULT.min(ttl), SPAN_MIN, LEASE_MAX)?;
    if ttl < lease {
        return Err(Problem::invalid("`ttl` must not be shorter than `lease`."));
    }
    if fingerprint.is_some_and(|text| text.len() > FINGERPRINT_BYTES_MAX) {
        let detail = format!("`fingerprint` must have at most {FINGERPRINT_BYTES_MAX} bytes.");
        return Err(Problem::invalid(detail));
    }
    let fingerprint = fingerprint.map(|text| Fingerprint::of(&[text.as_bytes()]));
    Ok(ClaimRequest { key, fingerprint, lease, ttl })
}

fn completion_request(
    key: ClaimKey,
    token: &str,
    result: Option<Box<RawValue>>,
    ttl: Option<HumanDuration>,
) -> Result<CompletionRequest, Problem> {
    let (token, ttl) = (parse_token(token)?, check_ttl(ttl)?);
    let result = result.map_or(Bytes::from_static(b"null"), |result| {
        Bytes::from(String::from(Box::<str>::from(result)))
    });
    if result.len() > RESULT_BYTES_MAX {
        let detail = format!(
            "`result` has {} bytes and at most {RESULT_BYTES_MAX} can be stored. Store a reference to it \
             instead.",
            result.len()
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "result_too_large", detail));
    }
    Ok(CompletionRequest { key, token, result, ttl })
}

fn operation_response(operation: &ClaimOperation) -> OperationResponse {
    let id = HEXLOWER.encode(&operation.id);
    OperationResponse { id, started_at: operation.started_at }
}

fn raw_json(bytes: &[u8]) -> Result<Box<RawValue>, Problem> {
    let unreadable = || StoreError::Corrupt("the stored result of a key is not JSON".to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable())?;
    RawValue::from_string(text.to_owned()).map_err(|_| unreadable().into())
}

fn stale_token() -> Problem {
    let detail = "The claim is no longer yours: its lease ran out and it was claimed again, it was \
                  released or completed, or it has expired. Nothing was changed.";
    Problem::new(StatusCode::CONFLICT, "stale_token", detail)
}

fn too_many_keys(limit: KeyLimit) -> Problem {
    let (stored, setting) = match limit {
        KeyLimit::PerNamespace(max) => {
            (format!("{max} keys of this namespace"), "idempotency_namespace_keys_max")
        }
        KeyLimit::Total(max) => (format!("{max} idempotency keys"), "idempotency_keys_max"),
        KeyLimit::ApiKeys => ("the maximum of keys".to_owned(), "idempotency_keys_max"),
    };
    let detail = format!(
        "The gateway stores {stored}, and no more are allowed. Retry when some have expired, use a shorter \
         `ttl`, or raise `limits.{setting}`."
    );
    let status = StatusCode::TOO_MANY_REQUESTS;
    Problem::new(status, "too_many_idempotency_keys", detail).retry_after(60)
}

/// A fault of the store: a claim step has the result of another kind of step.
fn unexpected_result() -> Problem {
    StoreError::Refused("a claim step has the result of another one".to_owned()).into()
}

fn empty_claim_response(status: ClaimAnswer) -> ClaimKeyResponse {
    ClaimKeyResponse {
        status,
        token: None,
        fence: None,
        operation: None,
        resumed: None,
        retry_after: None,
        result: None,
        completed_at: None,
        code: None,
        detail: None,
    }
}

fn claim_response(result: ClaimStepResult) -> Result<ClaimKeyResponse, Problem> {
    let claim = match result {
        ClaimStepResult::Claim(claim) => claim,
        ClaimStepResult::Full(limit) => return Err(too_many_keys(limit)),
        ClaimStepResult::Update(_) => return Err(unexpected_result()),
    };
    match claim {
        Claim::Claimed(grant) => Ok(ClaimKeyResponse {
            token: Some(grant.token.to_string()),
            fence: Some(grant.fence),
            operation: Some(operation_response(&grant.operation)),
            resumed: Some(grant.is_resumed),
            ..empty_claim_response(ClaimAnswer::Claimed)
        }),
        Claim::InProgress { retry_after } => Ok(ClaimKeyResponse {
            retry_after: Some(
                retry_after.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX),
            ),
            ..empty_claim_response(ClaimAnswer::InProgress)
        }),
        Claim::Completed(completed) => Ok(ClaimKeyResponse {
            result: Some(raw_json(&completed.result)?),
            completed_at: Some(completed.completed_at),
            ..empty_claim_response(ClaimAnswer::Completed)
        }),
        Claim::OtherFingerprint => {
            let detail = "This key was claimed with another fingerprint. Use a new key for another \
                          request.";
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            Err(Problem::new(status, "fingerprint_mismatch", detail))
        }
    }
}

pub(crate) async fn claim_idempotency_key(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    PathParamPair(namespace, key): PathParamPair,
    OptionalJson(request): OptionalJson<ClaimKeyRequest>,
) -> Result<Response, Problem> {
    let key = parse_key(&access, &namespace, &key)?;
    let wait = check_span("wait", request.wait, Duration::ZERO, Duration::ZERO, WAIT_MAX)?;
    let claim = claim_request(key, request.ttl, request.lease, request.fingerprint.as_deref())?;
    let body = claim_response(server.engine.claim_key(claim, wait).await?)?;
    let retry_after = body.retry_after;
    let mut response = Json(body).into_response();
    if let Some(secs) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    Ok(response)
}

fn update_response(status: ClaimUpdateAnswer) -> ClaimUpdateResponse {
    ClaimUpdateResponse { status, code: None, detail: None }
}

async fn update_claim(
    server: &Arc<ServerState>,
    step: ClaimStep,
    on_success: ClaimUpdateAnswer,
) -> Result<Json<ClaimUpdateResponse>, Problem> {
    match server.engine.update_claim(step).await? {
        ClaimStepResult::Update(ClaimUpdate::Applied) => Ok(Json(update_response(on_success))),
        ClaimStepResult::Update(ClaimUpdate::StaleToken) => Err(stale_token()),
        ClaimStepResult::Claim(_) | ClaimStepResult::Full(_) => Err(unexpected_result()),
    }
}

pub(crate) async fn extend_idempotency_claim(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    PathParamPair(namespace, key): PathParamPair,
    JsonBody(request): JsonBody<ExtendClaimRequest>,
) -> Result<Json<ClaimUpdateResponse>, Problem> {
    let key = parse_key(&access, &namespace, &key)?;
    let token = parse_token(&request.token)?;
    let lease = check_span("lease", request.lease, LEASE_DEFAULT, SPAN_MIN, LEASE_MAX)?;
    let step = ClaimStep::Extend { key, token, lease };
    update_claim(&server, step, ClaimUpdateAnswer::Extended).await
}

pub(crate) async fn complete_idempotency_claim(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    PathParamPair(namespace, key): PathParamPair,
    JsonBody(request): JsonBody<CompleteClaimRequest>,
) -> Result<Json<ClaimUpdateResponse>, Problem> {
    let key = parse_key(&access, &namespace, &key)?;
    let request = completion_request(key, &request.token, request.result, request.ttl)?;
    update_claim(&server, ClaimStep::Complete(request), ClaimUpdateAnswer::Completed).await
}

pub(crate) async fn release_idempotency_claim(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    PathParamPair(namespace, key): PathParamPair,
    JsonBody(request): JsonBody<ReleaseClaimRequest>,
) -> Result<Json<ClaimUpdateResponse>, Problem> {
    let key = parse_key(&access, &namespace, &key)?;
    let token = match (request.token, request.force) {
        (Some(token), false) => Some(parse_token(&token)?),
        (None, true) => None,
        (Some(_), true) | (None, false) => {
            return Err(Problem::invalid(
                "Send the `token` of the claim, or `\"force\": true` to release it without the token.",
            ));
        }
    };
    let is_forced = token.is_none();
    let step = ClaimStep::Release { key: key.clone(), token };
    match update_claim(&server, step, ClaimUpdateAnswer::Released).await {
        Err(_) if is_forced => {
            let as_of = server.engine.expiry_time();
            server
                .engine
                .idempotency_store()
                .find_claim(key, as_of)
                .await?
                .ok_or_else(|| Problem::not_found("idempotency key"))?;
            let detail = "This key is completed or released already. There is nothing to release.";
            Err(Problem::new(StatusCode::CONFLICT, "not_in_progress", detail))
        }
        response => response,
    }
}

/// Whether an item of a batch became a step, or why it was refused. Steps have results in the order of
/// their items.
type BatchItem = Result<(), Problem>;

pub(crate) async fn batch_idempotency(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    JsonBody(request): JsonBody<ClaimBatchRequest>,
) -> Result<Json<ClaimBatchResponse>, Problem> {
    let items = request.claims.len() + request.completions.len();
    if items > BATCH_MAX {
        let detail = format!("The batch has {items} items and at most {BATCH_MAX} are allowed.");
        return Err(Problem::invalid(detail));
    }
    let mut steps = Vec::with_capacity(items);
    let mut add_step = |step: Result<ClaimStep, Problem>| step.map(|step| steps.push(step));
    let claims: Vec<BatchItem> =
        request.claims.into_iter().map(|claim| add_step(batch_claim(&access, &claim))).collect();
    let completions: Vec<BatchItem> = request
        .completions
        .into_iter()
        .map(|completion| add_step(batch_completion(&access, completion)))
        .collect();
    let mut results = match steps.is_empty() {
        true => Vec::new(),
        false => server.engine.run_claim_steps(steps).await?,
    }
    .into_iter();
    let mut next_result = move || results.next().ok_or_else(unexpected_result);
    let claims = claims.into_iter().map(|item| {
        item.and_then(|()| claim_response(next_result()?)).unwrap_or_else(|problem| {
            ClaimKeyResponse {
                code: Some(problem.code().to_owned()),
                detail: Some(problem.detail().to_owned()),
                ..empty_claim_response(ClaimAnswer::Error)
            }
        })
    });
    let claims = claims.collect();
    let completions = completions.into_iter().map(|item| match item.and_then(|()| next_result()) {
        Ok(ClaimStepResult::Update(ClaimUpdate::Applied)) => {
            update_response(ClaimUpdateAnswer::Completed)
        }
        Ok(ClaimStepResult::Update(ClaimUpdate::StaleToken)) => {
            update_response(ClaimUpdateAnswer::StaleToken)
        }
        Ok(ClaimStepResult::Claim(_) | ClaimStepResult::Full(_)) => {
            refused_update(&unexpected_result())
        }
        Err(problem) => refused_update(&problem),
    });
    let completions = completions.collect();
    Ok(Json(ClaimBatchResponse { claims, completions }))
}

fn refused_update(problem: &Problem) -> ClaimUpdateResponse {
    ClaimUpdateResponse {
        status: ClaimUpdateAnswer::Error,
        code: Some(problem.code().to_owned()),
        detail: Some(problem.detail().to_owned()),
    }
}

fn batch_claim(access: &NamespaceAccess, claim: &BatchClaim) -> Result<ClaimStep, Problem> {
    let key = parse_key(access, &claim.namespace, &claim.key)?;
    claim_request(key, claim.ttl, claim.lease, claim.fingerprint.as_deref()).map(ClaimStep::Claim)
}

fn batch_completion(
    access: &NamespaceAccess,
    completion: BatchCompletion,
) -> Result<ClaimStep, Problem> {
    let BatchCompletion { namespace, key, token, result, ttl } = completion;
    let key = parse_key(access, &namespace, &key)?;
    completion_request(key, &token, result, ttl).map(ClaimStep::Complete)
}

/// Filter of a list of keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredKeyQuery {
    /// Only keys of this namespace. Required for a token that is limited to namespaces.
    namespace: Option<String>,
    /// Only keys that begin with this text. Requires `namespace`.
    key: Option<String>,
    /// Maximum number of rows per page; 50 by default.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// The same as `cursor`.
    after: Option<String>,
}

pub(crate) async fn list_idempotency_keys(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    QueryParams(query): QueryParams<StoredKeyQuery>,
) -> Result<Json<ListResponse<StoredKeyResponse>>, Problem> {
    match &query.namespace {
        Some(namespace) => access.check(namespace)?,
        None if access.is_limited() => {
            let detail = "This token is limited to namespaces. Pass one of them as `namespace`.";
            return Err(namespace_not_allowed(detail));
        }
        None => {}
    }
    let filter = match (query.namespace, query.key) {
        (None, None) => ClaimFilter::All,
        (Some(namespace), key) => {
            ClaimFilter::Namespace { namespace, key_prefix: key.unwrap_or_default() }
        }
        (None, Some(_)) => return Err(Problem::invalid("`key` requires `namespace`.")),
    };
    let invalid = || Problem::invalid(INVALID_CURSOR);
    let after = match query.cursor.or(query.after) {
        None => None,
        Some(cursor) => {
            let (namespace, key) = cursor.split_once('/').ok_or_else(invalid)?;
            Some(service_key(namespace, key).map_err(|_| invalid())?)
        }
    };
    let page = page_request(query.limit, after)?;
    let limit = page.limit;
    let as_of = server.engine.expiry_time();
    let store = server.engine.idempotency_store();
    let rows = store.list_claims(filter, page, as_of).await?;
    let last = rows.last().filter(|_| rows.len() == limit);
    let next_cursor = last.map(|row| row.key.to_string());
    Ok(Json(ListResponse { data: rows.iter().map(stored_key).collect(), next_cursor }))
}

fn stored_key(row: &ClaimRow) -> StoredKeyResponse {
    let (status, lease_until, completed) = match row.status {
        StoredClaimStatus::InProgress { lease_until } => {
            (ClaimState::InProgress, Some(lease_until), None)
        }
        StoredClaimStatus::Abandoned { lease_until } => {
            (ClaimState::Abandoned, Some(lease_until), None)
        }
        StoredClaimStatus::Completed { completed_at, result_bytes } => {
            (ClaimState::Completed, None, Some((completed_at, result_bytes)))
        }
        StoredClaimStatus::Released => (ClaimState::Released, None, None),
    };
    StoredKeyResponse {
        namespace: row.key.namespace().to_owned(),
        key: row.key.name().to_owned(),
        status,
        fence: row.fence,
        operation: operation_response(&row.operation),
        expires_at: row.expires_at,
        lease_until,
        completed_at: completed.map(|(at, _)| at),
        result_bytes: completed.map(|(_, bytes)| bytes),
        result: None,
    }
}

pub(crate) async fn get_idempotency_key(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
    Extension(secret_access): Extension<SecretAccess>,
    PathParamPair(namespace, key): PathParamPair,
) -> Result<Json<StoredKeyResponse>, Problem> {
    let key = parse_key(&access, &namespace, &key)?;
    let as_of = server.engine.expiry_time();
    let claim = server.engine.idempotency_store().find_claim(key, as_of).await?;
    let detail = claim.ok_or_else(|| Problem::not_found("idempotency key"))?;
    let result = match detail.result {
        None => None,
        Some(result) if secret_access.is_granted() => Some(raw_json(&result)?),
        Some(result) => Some(raw_json(&redact::mask_text(&result, &SecretNames::default()).body)?),
    };
    Ok(Json(StoredKeyResponse { result, ..stored_key(&detail.row) }))
}

pub(crate) async fn get_idempotency_stats(
    State(server): State<Arc<ServerState>>,
    Extension(access): Extension<NamespaceAccess>,
) -> Result<Json<ListResponse<IdempotencyStats>>, Problem> {
    let as_of = server.engine.expiry_time();
    let counts = server.engine.idempotency_store().count_claims(as_of).await?;
    let data = counts
        .into_iter()
        .filter(|counts| access.allows(&counts.namespace))
        .map(|counts| IdempotencyStats {
            namespace: counts.namespace,
            in_progress: counts.in_progress,
            abandoned: counts.abandoned,
            completed: counts.completed,
            released: counts.released,
            result_bytes: counts.result_bytes,
        })
        .collect();
    Ok(Json(ListResponse { data, next_cursor: None }))
}
