//! One function for each operation that the dashboard or the CLI uses. Query parameters are added with
//! [`ApiCall::query`]; docs/openapi.json lists them.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use serde::Serialize;
use serde_json::Value;
use surehook_core::clock::ClockStatus;

use crate::{
    ApiCall, ListResponse,
    alerts::{AlertsResponse, TestAlertResponse},
    configuration::ApplyResponse,
    dead_letters::{DeadLetterGroupResponse, DeadReasonStats},
    deliveries::{DeliveryResponse, DeliveryWithAttempts, ReplayedAs},
    events::{
        DeliverDuplicateResponse, DuplicateComparison, EventDetailResponse, EventList,
        RevealEventResponse,
    },
    gateway::AboutResponse,
    idempotency::{ClaimUpdateResponse, IdempotencyStats, ReleaseClaimRequest, StoredKeyResponse},
    listen::{ListenRequest, ListenResponse},
    messages::{AcceptedMessageResponse, MediaFileResponse, MessageDetail, MessageResponse},
    nodes::{FreezeResponse, NodesResponse},
    quarantine::{
        QuarantinedRequestDetail, QuarantinedRequestSummary, ReleaseRequest, ReleaseResponse,
        ReleaseSourceRequest, ReleaseSourceResponse,
    },
    reload::ReloadResponse,
    replays::{CreateReplayRequest, ReplayJobResponse, ReplayPreviewResponse},
    requests::{ReceivedRequestSummary, RefusedRequestDetail},
    resources::{
        DestinationResponse, PauseRequest, ProbeResponse, ResumeRequest, RouteResponse,
        SourceResponse, TryRouteRequest, TryRouteResponse,
    },
    stats::{Series, Stats},
    tokens::{CreateTokenRequest, CreatedToken, LoginLink, TokenResponse},
    what_if::{WhatIfReport, WhatIfRequest},
};

fn get<T>(segments: &[&str]) -> ApiCall<T> {
    ApiCall::new(Method::GET, segments)
}

fn post<T>(segments: &[&str]) -> ApiCall<T> {
    ApiCall::new(Method::POST, segments)
}

pub fn list_alerts() -> ApiCall<AlertsResponse> {
    get(&["alerts"])
}

pub fn test_alert_channel(channel: &str) -> ApiCall<TestAlertResponse> {
    post(&["alerts", channel, "test"])
}

pub fn list_events() -> ApiCall<EventList> {
    get(&["events"])
}

pub fn get_event(id: &str) -> ApiCall<EventDetailResponse> {
    get(&["events", id])
}

pub fn get_event_body(id: &str) -> ApiCall<Bytes> {
    get(&["events", id, "body"])
}

pub fn reveal_event(id: &str) -> ApiCall<RevealEventResponse> {
    post(&["events", id, "reveal"])
}

pub fn compare_duplicate(event: &str, number: u32) -> ApiCall<DuplicateComparison> {
    get(&["events", event, "duplicates", &number.to_string()])
}

pub fn deliver_duplicate(event: &str, number: u32) -> ApiCall<DeliverDuplicateResponse> {
    post(&["events", event, "duplicates", &number.to_string(), "deliver"])
}

pub fn list_deliveries() -> ApiCall<ListResponse<DeliveryResponse>> {
    get(&["deliveries"])
}

pub fn get_delivery(id: &str) -> ApiCall<DeliveryWithAttempts> {
    get(&["deliveries", id])
}

pub fn get_delivery_body(id: &str) -> ApiCall<Bytes> {
    get(&["deliveries", id, "body"])
}

pub fn replay_delivery(id: &str) -> ApiCall<ReplayedAs> {
    post(&["deliveries", id, "replay"])
}

pub fn cancel_delivery(id: &str) -> ApiCall<DeliveryWithAttempts> {
    post(&["deliveries", id, "cancel"])
}

pub fn list_dead_letters() -> ApiCall<ListResponse<DeliveryResponse>> {
    get(&["dead-letters"])
}

pub fn list_dead_letter_groups() -> ApiCall<ListResponse<DeadLetterGroupResponse>> {
    get(&["dead-letters", "groups"])
}

/// Counts of dead letters by reason.
pub fn get_dead_letter_stats() -> ApiCall<BTreeMap<String, DeadReasonStats>> {
    get(&["dead-letters", "stats"])
}

pub fn list_replays() -> ApiCall<ListResponse<ReplayJobResponse>> {
    get(&["replays"])
}

pub fn get_replay(id: &str) -> ApiCall<ReplayJobResponse> {
    get(&["replays", id])
}

pub fn create_replay(request: &CreateReplayRequest) -> ApiCall<ReplayJobResponse> {
    post(&["replays"]).json(request)
}

/// The request must have `dry_run` set.
pub fn preview_replay(request: &CreateReplayRequest) -> ApiCall<ReplayPreviewResponse> {
    post(&["replays"]).json(request)
}

/// `action` is `pause`, `resume` or `cancel`.
pub fn change_replay(id: &str, action: &str) -> ApiCall<ReplayJobResponse> {
    post(&["replays", id, action])
}

pub fn list_requests() -> ApiCall<ListResponse<ReceivedRequestSummary>> {
    get(&["requests"])
}

pub fn get_request(id: &str) -> ApiCall<RefusedRequestDetail> {
    get(&["requests", id])
}

pub fn list_quarantine() -> ApiCall<ListResponse<QuarantinedRequestSummary>> {
    get(&["quarantine"])
}

pub fn get_quarantined_request(id: &str) -> ApiCall<QuarantinedRequestDetail> {
    get(&["quarantine", id])
}

pub fn release_quarantined_request(id: &str, request: &ReleaseRequest) -> ApiCall<ReleaseResponse> {
    post(&["quarantine", id, "release"]).json(request)
}

pub fn release_quarantine(request: &ReleaseSourceRequest) -> ApiCall<ReleaseSourceResponse> {
    post(&["quarantine", "release"]).json(request)
}

pub fn discard_quarantined_request(id: &str) -> ApiCall<()> {
    ApiCall::new(Method::DELETE, &["quarantine", id])
}

/// A message or a webhook, as docs/openapi.json describes them.
pub fn send_message(message: &impl Serialize) -> ApiCall<AcceptedMessageResponse> {
    post(&["messages"]).json(message)
}

pub fn list_messages() -> ApiCall<ListResponse<MessageResponse>> {
    get(&["messages"])
}

pub fn get_message(id: &str) -> ApiCall<MessageDetail> {
    get(&["messages", id])
}

pub fn upload_media(file: Vec<u8>) -> ApiCall<MediaFileResponse> {
    // The gateway detects the media type.
    post(&["media"]).body("application/octet-stream", file)
}

pub fn list_sources() -> ApiCall<ListResponse<SourceResponse>> {
    get(&["sources"])
}

pub fn get_source(id_or_name: &str) -> ApiCall<SourceResponse> {
    get(&["sources", id_or_name])
}

pub fn list_destinations() -> ApiCall<ListResponse<DestinationResponse>> {
    get(&["destinations"])
}

pub fn get_destination(id_or_name: &str) -> ApiCall<DestinationResponse> {
    get(&["destinations", id_or_name])
}

pub fn list_routes() -> ApiCall<ListResponse<RouteResponse>> {
    get(&["routes"])
}

pub fn get_route(id: &str) -> ApiCall<RouteResponse> {
    get(&["routes", id])
}

/// The JSON of a source, destination or route, secrets masked. `resource` is `sources`, `destinations` or
/// `routes`, here and below.
pub fn get_resource(resource: &str, id_or_name: &str) -> ApiCall<Value> {
    get(&[resource, id_or_name])
}

pub fn create_resource(resource: &str, spec: &impl Serialize) -> ApiCall<Value> {
    post(&[resource]).json(spec)
}

pub fn replace_resource(resource: &str, id_or_name: &str, spec: &impl Serialize) -> ApiCall<Value> {
    ApiCall::new(Method::PUT, &[resource, id_or_name]).json(spec)
}

pub fn delete_resource(resource: &str, id_or_name: &str) -> ApiCall<()> {
    ApiCall::new(Method::DELETE, &[resource, id_or_name])
}

pub fn predict_what_if(id_or_name: &str, request: &WhatIfRequest) -> ApiCall<WhatIfReport> {
    post(&["destinations", id_or_name, "what-if"]).json(request)
}

pub fn pause_destination(id_or_name: &str, request: &PauseRequest) -> ApiCall<DestinationResponse> {
    post(&["destinations", id_or_name, "pause"]).json(request)
}

pub fn resume_destination(
    id_or_name: &str,
    request: &ResumeRequest,
) -> ApiCall<DestinationResponse> {
    post(&["destinations", id_or_name, "resume"]).json(request)
}

pub fn probe_destination(id_or_name: &str) -> ApiCall<ProbeResponse> {
    post(&["destinations", id_or_name, "probe"])
}

pub fn try_route(request: &TryRouteRequest) -> ApiCall<TryRouteResponse> {
    post(&["routes", "try"]).json(request)
}

/// The JSON of a `ConfigurationDocument`, secrets masked.
pub fn get_configuration() -> ApiCall<Value> {
    get(&["configuration"])
}

pub fn apply_configuration(document: &impl Serialize) -> ApiCall<ApplyResponse> {
    ApiCall::new(Method::PUT, &["configuration"]).json(document)
}

pub fn get_stats() -> ApiCall<Stats> {
    get(&["stats"])
}

pub fn get_stats_series(metric: &str) -> ApiCall<Series> {
    get(&["stats", "series"]).query("metric", metric)
}

pub fn list_idempotency_keys() -> ApiCall<ListResponse<StoredKeyResponse>> {
    get(&["idempotency"])
}

pub fn get_idempotency_key(namespace: &str, key: &str) -> ApiCall<StoredKeyResponse> {
    get(&["idempotency", namespace, key])
}

pub fn release_idempotency_key(
    namespace: &str,
    key: &str,
    request: &ReleaseClaimRequest,
) -> ApiCall<ClaimUpdateResponse> {
    post(&["idempotency", namespace, key, "release"]).json(request)
}

pub fn get_idempotency_stats() -> ApiCall<ListResponse<IdempotencyStats>> {
    get(&["stats", "idempotency"])
}

pub fn list_tokens() -> ApiCall<ListResponse<TokenResponse>> {
    get(&["tokens"])
}

pub fn create_token(request: &CreateTokenRequest) -> ApiCall<CreatedToken> {
    post(&["tokens"]).json(request)
}

pub fn create_login_link() -> ApiCall<LoginLink> {
    post(&["tokens", "link"])
}

pub fn revoke_token(id: &str) -> ApiCall<()> {
    ApiCall::new(Method::DELETE, &["tokens", id])
}

pub fn get_about() -> ApiCall<AboutResponse> {
    get(&["about"])
}

pub fn get_clock() -> ApiCall<ClockStatus> {
    get(&["clock"])
}

pub fn freeze() -> ApiCall<FreezeResponse> {
    post(&["freeze"])
}

pub fn confirm_clock() -> ApiCall<ClockStatus> {
    post(&["clock", "confirm"])
}

/// Reports the answers of a listener, and waits for its next deliveries.
pub fn listen(id_or_name: &str, request: &ListenRequest) -> ApiCall<ListenResponse> {
    post(&["destinations", id_or_name, "listen"]).json(request)
}

pub fn reload_settings() -> ApiCall<ReloadResponse> {
    post(&["settings", "reload"])
}

/// Live updates as server-sent events.
pub fn stream_updates() -> ApiCall<Bytes> {
    get(&["stream"])
}

pub fn get_nodes() -> ApiCall<NodesResponse> {
    get(&["nodes"])
}
