//! `/api/v1/dead-letters/groups`: dead letters by what they died of.

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    dead_letters::{DeadLetterGroup, DeadLetterGroupCursor, DeadLetterGroupFilter, DeathCause},
    delivery::{AttemptFailure, DeadReason, FailureClass},
    ids::{DeliveryId, DestinationId, EventId, GroupId},
    name::Name,
    redact::{self, SecretNames},
    store::PageRequest,
    time::Timestamp,
};

use super::{
    LIMIT_DEFAULT, LIMIT_MAX, List, deliveries::destination_names, event_query::find_destination,
    event_query::find_source, input::Asked, limit,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// The longest sample.
const SAMPLE_CHARS_MAX: usize = 500;

/// Which groups are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupQuery {
    /// Only to this destination.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Only with an event of this source among the newest 100 of the group.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// At most this many; 50 when left out.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    cursor: Option<String>,
}

/// All that are dead now of one cause, on their way to one destination.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterGroup")]
pub(crate) struct Group {
    id: GroupId,
    /// The name of the destination; null when that was deleted.
    destination: Option<String>,
    /// What kind of failure it was; null when nobody knows any more.
    class: Option<FailureClass>,
    /// The status of the last answer.
    code: Option<u16>,
    /// Why there was none.
    failure: Option<AttemptFailure>,
    /// Why the one that died last was given up.
    reason: DeadReason,
    /// What was said, without what differs each time.
    shape: String,
    /// The beginning of what was said about `newest_delivery`; secrets are masked. Null when
    /// nothing was said, or retention has removed it.
    sample: Option<String>,
    /// How many are dead now.
    count: u64,
    /// When the first of them died, since the group was last empty.
    first_seen: Timestamp,
    /// When one of them died last.
    last_seen: Timestamp,
    /// Of those that are dead now the one that was made last.
    newest_delivery: DeliveryId,
    newest_event: EventId,
}

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new(
        "list_dead_letter_groups",
        "Dead letters by what they died of, the group that grew last first.",
    )
    .query::<GroupQuery>()
    .answers::<List<Group>>(200);
    api.get("/api/v1/dead-letters/groups", list_groups, list)
}

/// Groups of dead letters, the one that grew last first.
async fn list_groups(
    State(app): State<Arc<App>>,
    Asked(query): Asked<GroupQuery>,
) -> Result<Json<List<Group>>, Problem> {
    let limit = limit(query.limit.as_deref())?.unwrap_or(LIMIT_DEFAULT);
    let after = query.cursor.as_deref().map(place).transpose()?;
    let configuration = app.engine.store().configuration().await?;
    let filter = DeadLetterGroupFilter {
        destination: find_destination(&configuration, query.destination.as_deref())?,
        source: find_source(&configuration, query.source.as_deref())?,
        id: None,
    };
    let page = app.engine.store().dead_groups(filter, PageRequest { after, limit }).await?;
    let (destinations, names) =
        (destination_names(&configuration), configuration.all_secret_names());
    let data = page.rows.into_iter().map(|group| shown(group, &destinations, &names)).collect();
    Ok(Json(List { data, next_cursor: page.next.map(cursor) }))
}

/// A place in the list as text.
fn cursor(place: DeadLetterGroupCursor) -> String {
    format!("{}-{}", place.last_seen.as_millis(), place.id)
}

fn place(text: &str) -> Result<DeadLetterGroupCursor, Problem> {
    let read = || {
        let (last_seen, id) = text.split_once('-')?;
        let last_seen = Timestamp::from_millis(last_seen.parse().ok()?);
        Some(DeadLetterGroupCursor { last_seen, id: id.parse().ok()? })
    };
    read().ok_or_else(|| Problem::invalid("cursor is not one of this list"))
}

/// A group as it may be seen. What a destination said may quote what it was sent.
fn shown(
    group: DeadLetterGroup,
    destinations: &HashMap<DestinationId, String>,
    names: &SecretNames,
) -> Group {
    let masked =
        |text: &[u8]| String::from_utf8_lossy(&redact::mask_text(text, names).body).into_owned();
    let DeathCause { class, code, failure, shape } = group.cause;
    let (detail, response) = group.sample;
    let detail = detail.map(String::into_bytes);
    let said = if response.is_empty() { detail } else { Some(response) };
    Group {
        id: group.id,
        destination: destinations.get(&group.destination).cloned(),
        class,
        code,
        failure,
        reason: group.reason,
        shape: masked(shape.as_bytes()),
        sample: said.map(|said| masked(&said).chars().take(SAMPLE_CHARS_MAX).collect()),
        count: group.count,
        first_seen: group.first_seen,
        last_seen: group.last_seen,
        newest_delivery: group.newest.0,
        newest_event: group.newest.1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_masked_as_an_answer_is() {
        let at = Timestamp::from_millis(1);
        let said = "refused: token=hush-hush";
        for sample in [(Some(said.to_owned()), Vec::new()), (None, said.as_bytes().to_vec())] {
            let group = DeadLetterGroup {
                id: "grp_7hpgsjnt8cg6t1pnx95w4j84c2".parse().unwrap(),
                destination: DestinationId::new(at, 1),
                cause: DeathCause::damaged(),
                reason: DeadReason::Unrecoverable,
                count: 1,
                first_seen: at,
                last_seen: at,
                newest: (DeliveryId::new(at, 1), EventId::new(at, 1)),
                sample,
            };
            let sample = shown(group, &HashMap::new(), &SecretNames::usual()).sample.unwrap();
            assert_eq!(sample, "refused: token=•••");
        }
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let id: GroupId = "grp_7hpgsjnt8cg6t1pnx95w4j84c2".parse().unwrap();
        let at = DeadLetterGroupCursor { last_seen: Timestamp::from_millis(1_800_000_000_123), id };
        assert_eq!(place(&cursor(at)).unwrap(), at);
        for wrong in
            ["", "5", "5-", "x-grp_7hpgsjnt8cg6t1pnx95w4j84c2", "5-evt_7hpgsjnt8cg6t1pnx95w4j84c2"]
        {
            assert!(place(wrong).is_err(), "case: {wrong}");
        }
    }
}
