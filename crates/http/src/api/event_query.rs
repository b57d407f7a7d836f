//! Which events are wanted, as a query says it.

use schemars::JsonSchema;
use serde::Deserialize;
use surehook_core::{
    attribute::{AttributeFilter, AttributeName, EventKind, ParseEventKindError, VALUE_BYTES_MAX},
    body_value::BodyValueFilter,
    delivery::{DeadReason, FailureClass, state::DeliveryStatus},
    ids::{DestinationId, EventId, SourceId},
    name::Name,
    replay::StatusPattern,
    store::{Configuration, EventDeliveryFilter, EventFilter},
    time::Timestamp,
};

use super::{LIMIT_MAX, time, word};
use crate::problem::Problem;

/// The longest text that is searched for.
const SEARCH_BYTES_MAX: usize = 256;
/// Values in a body that are looked for at a time.
const BODY_VALUES_MAX: usize = 10;

/// Which events are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Only of this source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only the events that have this key now: one of `source`, or one of each.
    #[schemars(length(min = 1))]
    key: Option<String>,
    /// Only of this kind.
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// Only about this message.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    message_id: Option<String>,
    /// Only about this thing: a payment, an order, an issue.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    object: Option<String>,
    /// Only within this conversation or thread.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    conversation: Option<String>,
    /// Only from or to this phone, in any form: `+55 (11) 98765-4321`, `551187654321`, a JID. A Brazilian
    /// one is found with and without its ninth digit.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    phone: Option<String>,
    /// Only from or to this address: `…@lid`, `…@g.us`, a BSUID, the id of a chat or channel.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    chat: Option<String>,
    /// Only with this email address.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    email: Option<String>,
    /// Only by this user of the provider.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    user: Option<String>,
    /// Only with this error code of the provider.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    error: Option<String>,
    /// Only of this account, number, instance, shop, repository or workspace.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    account: Option<String>,
    /// Only with this status of the provider: `delivered`, `read`, `failed`.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    provider_status: Option<String>,
    /// Only with a delivery that has this status. What is said of a delivery holds for one and the same:
    /// `status`, `destination`, `reason`, `class` and `code`.
    #[schemars(with = "Option<DeliveryStatus>")]
    status: Option<String>,
    /// Only with a delivery to this destination.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Only with a delivery that is dead for this reason.
    #[schemars(with = "Option<DeadReason>")]
    reason: Option<String>,
    /// Only with a delivery whose last attempt failed like this.
    #[schemars(with = "Option<FailureClass>")]
    class: Option<String>,
    /// Only with a delivery whose last attempt was answered with this HTTP status, such as `503`, or
    /// `5xx` for all that begin with a 5.
    #[schemars(with = "Option<StatusPattern>")]
    code: Option<String>,
    /// Only with this text in the key, or in a body of up to 128 KiB.
    #[schemars(length(min = 1, max = 256))]
    search: Option<String>,
    /// Only received at this time or later.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Only received before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// At most this many; of a page 50 when left out, of an export all.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    pub(super) limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<EventId>")]
    pub(super) cursor: Option<String>,
    /// `ndjson` and `csv` export the whole list; `Accept` says the same.
    #[schemars(regex(pattern = "^(json|ndjson|csv)$"))]
    pub(super) format: Option<String>,
}

impl EventQuery {
    /// What is wanted of each attribute.
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

/// The source of that name, or what to say when there is none.
pub(super) fn find_source(
    configuration: &Configuration,
    name: Option<&str>,
) -> Result<Option<SourceId>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let found = configuration.sources.iter().find(|s| s.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("there is no source `{name}`"));
    found.map(|source| Some(source.id)).ok_or_else(unknown)
}

pub(super) fn status(word_given: Option<&str>) -> Result<Option<DeliveryStatus>, Problem> {
    let known: Vec<_> = DeliveryStatus::ALL.iter().map(|status| status.as_str()).collect();
    word("status", word_given, DeliveryStatus::from_word, &known)
}

/// Reads the kind of the query.
pub(super) fn kind(text: Option<&str>) -> Result<Option<EventKind>, Problem> {
    let invalid = |error: ParseEventKindError| Problem::invalid(error.to_string());
    text.map(|text| EventKind::try_from(text.to_owned()).map_err(invalid)).transpose()
}

/// Reads the attributes of the query.
fn attributes(query: &EventQuery) -> Result<Vec<AttributeFilter>, Problem> {
    let given =
        AttributeName::ALL.into_iter().filter_map(|name| Some((name, query.attribute(name)?)));
    given
        .map(|(name, text)| {
            let word = name.as_str();
            let invalid = || {
                let detail = format!("{word} has 1 to {VALUE_BYTES_MAX} printable bytes");
                Problem::invalid(detail)
            };
            AttributeFilter::new(name, text).ok_or_else(invalid)
        })
        .collect()
}

/// Reads what is wanted of a delivery.
fn owed(query: &EventQuery, configuration: &Configuration) -> Result<EventDeliveryFilter, Problem> {
    let reason = reason(query.reason.as_deref())?;
    let status = match (status(query.status.as_deref())?, reason) {
        (None, Some(_)) => Some(DeliveryStatus::Dead),
        (Some(status), Some(_)) if status != DeliveryStatus::Dead => {
            return Err(Problem::invalid("a reason goes with status=dead"));
        }
        (status, _) => status,
    };
    Ok(EventDeliveryFilter {
        status,
        destination: find_destination(configuration, query.destination.as_deref())?,
        reason,
        class: class(query.class.as_deref())?,
        code: code(query.code.as_deref())?,
    })
}

/// Reads why something is dead.
pub(super) fn reason(text: Option<&str>) -> Result<Option<DeadReason>, Problem> {
    let known: Vec<_> = DeadReason::ALL.iter().map(|reason| reason.as_str()).collect();
    word("reason", text, DeadReason::from_word, &known)
}

/// Reads how an attempt failed.
pub(super) fn class(text: Option<&str>) -> Result<Option<FailureClass>, Problem> {
    let known: Vec<_> = FailureClass::ALL.iter().map(|class| class.as_str()).collect();
    word("class", text, FailureClass::from_word, &known)
}

/// Reads how an attempt was answered.
pub(super) fn code(text: Option<&str>) -> Result<Option<StatusPattern>, Problem> {
    let invalid = |error| Problem::invalid(format!("code: {error}"));
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// The destination of that name, or what to say when there is none.
pub(super) fn find_destination(
    configuration: &Configuration,
    name: Option<&str>,
) -> Result<Option<DestinationId>, Problem> {
    let Some(name) = name else { return Ok(None) };
    let found = configuration.destinations.iter().find(|d| d.spec.name.as_str() == name);
    let unknown = || Problem::invalid(format!("there is no destination `{name}`"));
    found.map(|destination| Some(destination.id)).ok_or_else(unknown)
}

pub(super) fn filter(
    query: EventQuery,
    body: &[(String, String)],
    configuration: &Configuration,
) -> Result<EventFilter, Problem> {
    let source = find_source(configuration, query.source.as_deref())?;
    if body.len() > BODY_VALUES_MAX {
        let detail = format!("at most {BODY_VALUES_MAX} values in a body are looked for at a time");
        return Err(Problem::invalid(detail));
    }
    let value = |(path, text): &(String, String)| {
        BodyValueFilter::new(path, text).map_err(|error| Problem::invalid(error.to_string()))
    };
    if query.key.as_ref().is_some_and(String::is_empty) {
        return Err(Problem::invalid(
            "key must not be empty; leave it out for events with any key",
        ));
    }
    if query.search.as_ref().is_some_and(|s| s.is_empty() || s.len() > SEARCH_BYTES_MAX) {
        let detail = format!("search is a text of 1 to {SEARCH_BYTES_MAX} bytes");
        return Err(Problem::invalid(detail));
    }
    Ok(EventFilter {
        source,
        owes: owed(&query, configuration)?,
        kind: kind(query.kind.as_deref())?,
        attributes: attributes(&query)?,
        key: query.key,
        body: body.iter().map(value).collect::<Result<_, _>>()?,
        search: query.search,
        masked_by: None,
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    })
}
