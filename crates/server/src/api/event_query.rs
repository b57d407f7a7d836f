//! Query parameters that filter events, shared by events, deliveries and dead letters.

use schemars::JsonSchema;
use serde::Deserialize;
use surehook_core::{
    delivery::state::DeliveryStatus,
    replay::StatusPattern,
    store::{Configuration, EventDeliveryFilter, EventFilter},
};
use surehook_retry::{DeadReason, FailureClass};
use surehook_types::{
    ids::{DestinationId, EventId, SourceId},
    name::Name,
    time::Timestamp,
};
use surehook_webhooks::{
    attribute::{AttributeFilter, AttributeName, EventKind, ParseEventKindError, VALUE_BYTES_MAX},
    body_value::BodyValueFilter,
};

use super::{LIMIT_MAX, parse_time, parse_word};
use crate::problem::Problem;

const SEARCH_BYTES_MAX: usize = 256;
/// `body.PATH` filters per request.
const BODY_VALUES_MAX: usize = 10;

/// Filter of a list of events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Name of the source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Deduplication key: the current event with this key, of `source` or of each source.
    #[schemars(length(min = 1))]
    key: Option<String>,
    /// Event kind.
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// Message id.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    message_id: Option<String>,
    /// Id of the object: a payment, an order, an issue.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    object: Option<String>,
    /// Id of the conversation or thread.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    conversation: Option<String>,
    /// Phone number of sender or recipient, in any form: `+55 (11) 98765-4321`, `551187654321`, a JID.
    /// Brazilian numbers match with and without the ninth digit.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    phone: Option<String>,
    /// Chat address of sender or recipient: `…@lid`, `…@g.us`, a BSUID, the id of a chat or channel.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    chat: Option<String>,
    /// Email address.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    email: Option<String>,
    /// User id at the provider.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    user: Option<String>,
    /// Error code of the provider.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    error: Option<String>,
    /// Account, number, instance, shop, repository or workspace.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    account: Option<String>,
    /// Status at the provider: `delivered`, `read`, `failed`.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    provider_status: Option<String>,
    /// Status of a delivery. `status`, `destination`, `reason`, `class` and `code` must all match the
    /// same delivery.
    #[schemars(with = "Option<DeliveryStatus>")]
    status: Option<String>,
    /// Destination of a delivery.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Why a delivery is dead.
    #[schemars(with = "Option<DeadReason>")]
    reason: Option<String>,
    /// Failure class of a delivery's last attempt.
    #[schemars(with = "Option<FailureClass>")]
    class: Option<String>,
    /// HTTP status of a delivery's last attempt, such as `503` or `5xx`.
    #[schemars(with = "Option<StatusPattern>")]
    code: Option<String>,
    /// Text in the key, or in a body of up to 128 KiB.
    #[schemars(length(min = 1, max = 256))]
    search: Option<String>,
    /// Received at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Received before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// Maximum number of rows; by default 50 per page, all in an export.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    pub(super) limit: Option<String>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<EventId>")]
    pub(super) cursor: Option<String>,
    /// `ndjson` or `csv` export the whole list. Can also be set with `Accept`.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    pub(super) format: Option<String>,
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

pub(super) fn find_source(
    configuration: &Configuration,
    name: Option<&str>,
) -> Result<Option<SourceId>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let found = configuration.sources.iter().find(|s| s.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("No source is named `{name}`."));
    found.map(|source| Some(source.id)).ok_or_else(unknown)
}

pub(super) fn parse_status(text: Option<&str>) -> Result<Option<DeliveryStatus>, Problem> {
    let known: Vec<_> = DeliveryStatus::ALL.iter().map(|status| status.as_str()).collect();
    parse_word("status", text, DeliveryStatus::parse, &known)
}

pub(super) fn parse_kind(text: Option<&str>) -> Result<Option<EventKind>, Problem> {
    let invalid = |error: ParseEventKindError| Problem::invalid(error.to_string());
    text.map(|text| EventKind::try_from(text.to_owned()).map_err(invalid)).transpose()
}

fn parse_attributes(query: &EventQuery) -> Result<Vec<AttributeFilter>, Problem> {
    let given =
        AttributeName::ALL.into_iter().filter_map(|name| Some((name, query.attribute(name)?)));
    given
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
    let reason = parse_reason(query.reason.as_deref())?;
    let status = match (parse_status(query.status.as_deref())?, reason) {
        (None, Some(_)) => Some(DeliveryStatus::Dead),
        (Some(status), Some(_)) if status != DeliveryStatus::Dead => {
            return Err(Problem::invalid("`reason` requires status=dead."));
        }
        (status, _) => status,
    };
    Ok(EventDeliveryFilter {
        status,
        destination: find_destination(configuration, query.destination.as_deref())?,
        reason,
        class: parse_class(query.class.as_deref())?,
        code: parse_code(query.code.as_deref())?,
    })
}

pub(super) fn parse_reason(text: Option<&str>) -> Result<Option<DeadReason>, Problem> {
    let known: Vec<_> = DeadReason::ALL.iter().map(|reason| reason.as_str()).collect();
    parse_word("reason", text, DeadReason::parse, &known)
}

pub(super) fn parse_class(text: Option<&str>) -> Result<Option<FailureClass>, Problem> {
    let known: Vec<_> = FailureClass::ALL.iter().map(|class| class.as_str()).collect();
    parse_word("class", text, FailureClass::parse, &known)
}

pub(super) fn parse_code(text: Option<&str>) -> Result<Option<StatusPattern>, Problem> {
    let invalid = |error| Problem::invalid(format!("code: {error}"));
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

pub(super) fn find_destination(
    configuration: &Configuration,
    name: Option<&str>,
) -> Result<Option<DestinationId>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let found = configuration.destinations.iter().find(|d| d.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("No destination is named `{name}`."));
    found.map(|destination| Some(destination.id)).ok_or_else(unknown)
}

pub(super) fn parse_filter(
    query: EventQuery,
    body: &[(String, String)],
    configuration: &Configuration,
) -> Result<EventFilter, Problem> {
    let source = find_source(configuration, query.source.as_deref())?;
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
        kind: parse_kind(query.kind.as_deref())?,
        attributes: parse_attributes(&query)?,
        key: query.key,
        body: body.iter().map(value).collect::<Result<_, _>>()?,
        search: query.search,
        masked_by: None,
        since: parse_time("since", query.since.as_deref())?,
        until: parse_time("until", query.until.as_deref())?,
    })
}
