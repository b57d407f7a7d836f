//! Which events are wanted, as a query says it.

use schemars::JsonSchema;
use serde::Deserialize;
use surehook_core::{
    attribute::{AttributeName, EventKind, InvalidKind, VALUE_BYTES_MAX, Wanted},
    delivery::state::Status,
    ids::{EventId, SourceId},
    name::Name,
    store::{Configuration, EventFilter},
    time::Timestamp,
};

use super::{LIMIT_MAX, time, word};
use crate::problem::Problem;

/// The longest text that is searched for.
const SEARCH_BYTES_MAX: usize = 256;

/// Which events are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Only of this source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only the event that has this key now; needs `source`.
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
    /// Only with a delivery that has this status.
    #[schemars(with = "Option<Status>")]
    status: Option<String>,
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

pub(super) fn status(word_given: Option<&str>) -> Result<Option<Status>, Problem> {
    let known: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
    word("status", word_given, Status::from_word, &known)
}

/// Reads the kind of the query.
pub(super) fn kind(text: Option<&str>) -> Result<Option<EventKind>, Problem> {
    let invalid = |error: InvalidKind| Problem::invalid(error.to_string());
    text.map(|text| EventKind::try_from(text.to_owned()).map_err(invalid)).transpose()
}

/// Reads the attributes of the query.
fn attributes(query: &EventQuery) -> Result<Vec<Wanted>, Problem> {
    let given =
        AttributeName::ALL.into_iter().filter_map(|name| Some((name, query.attribute(name)?)));
    given
        .map(|(name, text)| {
            let word = name.as_str();
            let invalid = || {
                let detail = format!("{word} has 1 to {VALUE_BYTES_MAX} printable bytes");
                Problem::invalid(detail)
            };
            Wanted::new(name, text).ok_or_else(invalid)
        })
        .collect()
}

pub(super) fn filter(
    query: EventQuery,
    configuration: &Configuration,
) -> Result<EventFilter, Problem> {
    let source = find_source(configuration, query.source.as_deref())?;
    if query.key.is_some() && source.is_none() {
        return Err(Problem::invalid("a key is looked for within a source; give `source` too"));
    }
    if query.search.as_ref().is_some_and(|s| s.is_empty() || s.len() > SEARCH_BYTES_MAX) {
        let detail = format!("search is a text of 1 to {SEARCH_BYTES_MAX} bytes");
        return Err(Problem::invalid(detail));
    }
    Ok(EventFilter {
        source,
        kind: kind(query.kind.as_deref())?,
        attributes: attributes(&query)?,
        key: query.key,
        status: status(query.status.as_deref())?,
        search: query.search,
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    })
}
