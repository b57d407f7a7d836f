//! Query parameters that filter events, shared by events, deliveries and dead letters.

use schemars::JsonSchema;
use serde::Deserialize;
use surehook_api::Cursor;
use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::StatusPattern,
    store::{Configuration, EventDeliveryFilter, EventFilter},
};
use surehook_core::{destination::DestinationSpec, source::SourceSpec};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{ids::EventId, name::Name, time::Timestamp};
use surehook_webhooks::{
    attribute::{AttributeFilter, AttributeName, EventKind, VALUE_BYTES_MAX},
    body_value::BodyValueFilter,
};

use super::{LIMIT_MAX, export::ListFormat, find_by_name};
use crate::problem::Problem;

const SEARCH_BYTES_MAX: usize = 256;
/// `body.PATH` filters per request.
const BODY_VALUES_MAX: usize = 10;

/// Filter of a list of events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Name of the source.
    source: Option<Name>,
    /// Deduplication key: the current event with this key, of `source` or of each source, and those that
    /// had it before with other bodies.
    #[schemars(length(min = 1))]
    key: Option<String>,
    /// Whether another event had the key with another body.
    key_conflict: Option<bool>,
    /// Event type.
    kind: Option<EventKind>,
    #[schemars(length(min = 1))]
    message_id: Option<String>,
    /// Id of the object: a payment, an order, an issue.
    #[schemars(length(min = 1))]
    object: Option<String>,
    /// Id of the conversation or thread.
    #[schemars(length(min = 1))]
    conversation: Option<String>,
    /// Phone number of sender or recipient, in any form: `+55 (11) 98765-4321`, `551187654321`, a JID.
    /// Brazilian numbers match with and without the ninth digit.
    #[schemars(length(min = 1))]
    phone: Option<String>,
    /// Chat address of sender or recipient: `…@lid`, `…@g.us`, a BSUID, the id of a chat or channel.
    #[schemars(length(min = 1))]
    chat: Option<String>,
    #[schemars(length(min = 1))]
    email: Option<String>,
    #[schemars(length(min = 1))]
    user: Option<String>,
    #[schemars(length(min = 1))]
    error: Option<String>,
    /// Account, number, instance, shop, repository or workspace.
    #[schemars(length(min = 1))]
    account: Option<String>,
    /// Status at the provider: `delivered`, `read`, `failed`.
    #[schemars(length(min = 1))]
    provider_status: Option<String>,
    /// Status of a delivery. `status`, `destination`, `reason`, `class` and `code` must all match the
    /// same delivery.
    status: Option<DeliveryStatus>,
    /// Name of the destination.
    destination: Option<Name>,
    /// Why the delivery is dead. For deliveries only with `status=dead`.
    reason: Option<DeadReason>,
    /// Failure class of the last attempt.
    class: Option<FailureClass>,
    /// HTTP status of the last attempt, such as `503` or `5xx`.
    code: Option<StatusPattern>,
    /// Text in the key, or in a body of up to 128 KiB.
    #[schemars(length(min = 1, max = 256))]
    search: Option<String>,
    /// Created or received at this time or later.
    since: Option<Timestamp>,
    /// Created or received before this time.
    until: Option<Timestamp>,
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub(super) limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    pub(super) cursor: Option<EventId>,
    /// `ndjson` or `csv` export the whole list. Can also be set with `Accept`.
    pub(super) format: Option<ListFormat>,
}

impl EventQuery {
    fn attribute(&self, name: AttributeName) -> Option<&str> {
        match name {
            AttributeName::MessageId => self.message_id.as_deref(),
            AttributeName::Object => self.object.as_deref(),
            AttributeName::Conversation => self.conversation.as_deref(),
            AttributeName::Phone => self.phone.as_deref(),
            AttributeName::Chat => self.chat.as_deref(),
            AttributeName::Email => self.email.as_deref(),
            AttributeName::User => self.user.as_deref(),
            AttributeName::Error => self.error.as_deref(),
            AttributeName::Account => self.account.as_deref(),
            AttributeName::ProviderStatus => self.provider_status.as_deref(),
        }
    }
}

fn parse_attributes(query: &EventQuery) -> Result<Vec<AttributeFilter>, Problem> {
    let parameters =
        AttributeName::ALL.into_iter().filter_map(|name| Some((name, query.attribute(name)?)));
    parameters
        .map(|(name, text)| {
            let name_text = name.as_str();
            let invalid = || {
                let detail =
                    format!("`{name_text}` must have 1 to {VALUE_BYTES_MAX} printable bytes.");
                Problem::invalid(detail)
            };
            AttributeFilter::new(name, text).ok_or_else(invalid)
        })
        .collect()
}

fn parse_delivery_filter(
    query: &EventQuery,
    configuration: &Configuration,
) -> Result<EventDeliveryFilter, Problem> {
    let status = match (query.status, query.reason) {
        (None, Some(_)) => Some(DeliveryStatus::Dead),
        (Some(status), Some(_)) if status != DeliveryStatus::Dead => {
            return Err(Problem::invalid("`reason` requires status=dead."));
        }
        (status, _) => status,
    };
    Ok(EventDeliveryFilter {
        status,
        destination: find_by_name::<DestinationSpec>(configuration, query.destination.as_ref())?,
        reason: query.reason,
        class: query.class,
        code: query.code,
    })
}

pub(super) fn parse_filter(
    query: EventQuery,
    body: &[(String, String)],
    configuration: &Configuration,
) -> Result<EventFilter, Problem> {
    let source = find_by_name::<SourceSpec>(configuration, query.source.as_ref())?;
    if body.len() > BODY_VALUES_MAX {
        let detail = format!("Use at most {BODY_VALUES_MAX} `body.PATH` filters.");
        return Err(Problem::invalid(detail));
    }
    let value = |(path, text): &(String, String)| {
        BodyValueFilter::new(path, text).map_err(|error| Problem::invalid(error.to_string()))
    };
    if query.key.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::invalid("`key` must not be empty. Omit it to match any key."));
    }
    if query.search.as_ref().is_some_and(|s| s.is_empty() || s.len() > SEARCH_BYTES_MAX) {
        let detail = format!("`search` must have 1 to {SEARCH_BYTES_MAX} bytes.");
        return Err(Problem::invalid(detail));
    }
    Ok(EventFilter {
        source,
        delivery_filter: parse_delivery_filter(&query, configuration)?,
        attributes: parse_attributes(&query)?,
        kind: query.kind,
        key: query.key,
        key_conflict: query.key_conflict,
        body: body.iter().map(value).collect::<Result<_, _>>()?,
        search: query.search,
        masked_by: None,
        since: query.since,
        until: query.until,
    })
}
