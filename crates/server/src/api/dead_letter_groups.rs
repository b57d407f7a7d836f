//! `/api/v1/dead-letters/groups`: dead letters grouped by cause.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::{Cursor, ListResponse, dead_letters::DeadLetterGroupResponse};
use surehook_core::dead_letters::{
    DeadLetterCause, DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter,
};
use surehook_core::{destination::DestinationSpec, source::SourceSpec};
use surehook_types::{
    ids::DestinationId,
    name::Name,
    redact::{self, SecretNames},
    time::Timestamp,
};

use super::{
    INVALID_CURSOR, LIMIT_MAX, deliveries::destination_names, extract::QueryParams, find_by_name,
    page_request,
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

const SAMPLE_CHARS_MAX: usize = 500;

/// Filter of a list of dead letter groups.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterGroupQuery {
    /// Name of the destination.
    destination: Option<Name>,
    /// Name of a source; matches groups with an event of it among their newest 100.
    source: Option<Name>,
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    cursor: Option<String>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = Operation::new(
        "list_dead_letter_groups",
        "List dead letter groups, the most recently grown first.",
    )
    .query::<DeadLetterGroupQuery>()
    .returns::<ListResponse<DeadLetterGroupResponse>>(200);
    api.get("/api/v1/dead-letters/groups", list_groups, list)
}

async fn list_groups(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<DeadLetterGroupQuery>,
) -> Result<Json<ListResponse<DeadLetterGroupResponse>>, Problem> {
    let after = query.cursor.as_deref().map(parse_group_cursor).transpose()?;
    let page = page_request(query.limit, after)?;
    let configuration = server.engine.store().load_configuration().await?;
    let filter = DeadLetterGroupFilter {
        destination: find_by_name::<DestinationSpec>(&configuration, query.destination.as_ref())?,
        source: find_by_name::<SourceSpec>(&configuration, query.source.as_ref())?,
        id: None,
    };
    let page = server.engine.store().list_dead_letter_groups(filter, page).await?;
    let (destinations, names) =
        (destination_names(&configuration), configuration.all_secret_names());
    let data =
        page.rows.into_iter().map(|group| group_response(group, &destinations, &names)).collect();
    Ok(Json(ListResponse { data, next_cursor: page.next.map(format_group_cursor) }))
}

fn format_group_cursor(cursor: DeadLetterGroupCursor) -> String {
    format!("{}-{}", cursor.last_seen.as_millis(), cursor.id)
}

fn parse_group_cursor(text: &str) -> Result<DeadLetterGroupCursor, Problem> {
    let parse = || {
        let (last_seen, id) = text.split_once('-')?;
        let last_seen = Timestamp::from_millis(last_seen.parse().ok()?);
        Some(DeadLetterGroupCursor { last_seen, id: id.parse().ok()? })
    };
    parse().ok_or_else(|| Problem::invalid(INVALID_CURSOR))
}

/// Masks the error message, which may quote secrets of the request.
fn group_response(
    group: DeadLetterGroup,
    destinations: &HashMap<DestinationId, String>,
    names: &SecretNames,
) -> DeadLetterGroupResponse {
    let masked =
        |text: &[u8]| String::from_utf8_lossy(&redact::mask_text(text, names).body).into_owned();
    let DeadLetterCause { class, http_status: code, failure, shape } = group.cause;
    let (detail, response) = (group.sample_detail, group.sample_response);
    let detail = detail.map(String::into_bytes);
    let message = if response.is_empty() { detail } else { Some(response) };
    DeadLetterGroupResponse {
        id: group.id,
        destination: destinations.get(&group.destination).cloned(),
        class,
        code,
        failure,
        reason: group.reason,
        shape: masked(shape.as_bytes()),
        sample: message.map(|message| masked(&message).chars().take(SAMPLE_CHARS_MAX).collect()),
        count: group.count,
        first_seen: group.first_seen,
        last_seen: group.last_seen,
        newest_delivery: group.newest_delivery,
        newest_event: group.newest_event,
    }
}

#[cfg(test)]
mod tests {
    use surehook_retry::DeadReason;
    use surehook_types::ids::{DeliveryId, EventId, GroupId};

    use super::*;

    #[test]
    fn detail_and_response_are_both_masked() {
        let at = Timestamp::from_millis(1);
        let message = "refused: token=hush-hush";
        for (sample_detail, sample_response) in
            [(Some(message.to_owned()), Vec::new()), (None, message.as_bytes().to_vec())]
        {
            let group = DeadLetterGroup {
                id: "grp_7hpgsjnt8cg6t1pnx95w4j84c2".parse().unwrap(),
                destination: DestinationId::new(at, 1),
                cause: DeadLetterCause::from_damaged_body(),
                reason: DeadReason::Unrecoverable,
                count: 1,
                first_seen: at,
                last_seen: at,
                newest_delivery: DeliveryId::new(at, 1),
                newest_event: EventId::new(at, 1),
                sample_detail,
                sample_response,
            };
            let sample =
                group_response(group, &HashMap::new(), &SecretNames::builtin()).sample.unwrap();
            assert_eq!(sample, "refused: token=•••");
        }
    }

    #[test]
    fn group_cursor_round_trips() {
        let id: GroupId = "grp_7hpgsjnt8cg6t1pnx95w4j84c2".parse().unwrap();
        let cursor =
            DeadLetterGroupCursor { last_seen: Timestamp::from_millis(1_800_000_000_123), id };
        assert_eq!(parse_group_cursor(&format_group_cursor(cursor)).unwrap(), cursor);
        for wrong in
            ["", "5", "5-", "x-grp_7hpgsjnt8cg6t1pnx95w4j84c2", "5-evt_7hpgsjnt8cg6t1pnx95w4j84c2"]
        {
            assert!(parse_group_cursor(wrong).is_err(), "case: {wrong}");
        }
    }
}
