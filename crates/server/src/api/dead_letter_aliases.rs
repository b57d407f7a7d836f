//! `/admin/dlq/…`: the names under which hand-written webhook services offer their dead letters, so that
//! their scripts and dashboards need only another host. The same handlers as `/api/v1/dead-letters/…`.

use std::collections::BTreeMap;

use serde_json::json;
use surehook_api::{
    ListResponse,
    dead_letters::DeadReasonStats,
    deliveries::DeliveryResponse,
    replays::{ReplayJobResponse, ReplayPreviewResponse, ReprocessRequest},
};

use super::{
    deliveries::{DeliveryQuery, list_dead_letters},
    export,
    replays::reprocess_dead_letters,
    stats::get_dead_letter_stats,
};
use crate::openapi::{ApiTable, Operation};

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let stats = Operation::new("get_dlq_stats", "Same as `GET /api/v1/dead-letters/stats`.")
        .returns::<BTreeMap<String, DeadReasonStats>>(200);
    let pending = Operation::new("list_dlq_pending", "Same as `GET /api/v1/dead-letters`.")
        .query::<DeliveryQuery>()
        .exclude_query(&["status"])
        .returns::<ListResponse<DeliveryResponse>>(200)
        .returns_media(200, export::MEDIA_TYPES)
        .problem(503, &["too_many_exports"]);
    let reprocess =
        Operation::new("reprocess_dlq", "Same as `POST /api/v1/dead-letters/reprocess`.")
            .body::<ReprocessRequest>(json!({ "filter": {}, "dry_run": true }))
            .returns::<ReplayJobResponse>(202)
            .returns::<ReplayPreviewResponse>(200)
            .problem(409, &["replay_overlaps"]);
    api.get("/admin/dlq/stats", get_dead_letter_stats, stats)
        .get("/admin/dlq/pending", list_dead_letters, pending)
        .post("/admin/dlq/reprocess", reprocess_dead_letters, reprocess)
}
