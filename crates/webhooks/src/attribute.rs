//! The kind and the search attributes of an event.
//!
//! [`Attributes::push`] and [`AttributeFilter::new`] normalize a value in the same way, when it is stored
//! and when it is searched: `+55 (11) 98765-4321` finds an event that contained `551187654321`.

pub mod contact_address;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap as _};
use sha2::{Digest, Sha256};

/// Maximum number of attributes of one event. Further ones are dropped.
pub const ATTRIBUTES_MAX: usize = 16;
/// Longest value. A longer one is dropped.
pub const VALUE_BYTES_MAX: usize = 255;
/// Longest kind.
pub const KIND_BYTES_MAX: usize = 128;

/// The name of a search attribute. Sorted by selectivity: fewer events share the first ones.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AttributeName {
    /// Message id: a wamid, `key.id`, `MessageSid`, `ts` of Slack, `message_id` of Telegram. For a
    /// reaction, reply or status, also the id of the message it refers to.
    MessageId,
    /// Id of the object: a payment, an order, an issue, a contact.
    Object,
    /// Id of a conversation or thread.
    Conversation,
    /// Phone number of the other party, in any format.
    Phone,
    /// Other address of a person or group: `…@lid`, `…@g.us`, a BSUID, a chat or channel id.
    Chat,
    /// Email address.
    Email,
    /// The acting user at the provider: a user id or a login.
    User,
    /// Error code of the provider.
    Error,
    /// Our account at the provider: a WABA id, a `phone_number_id`, an instance, a shop, a repository, a
    /// workspace.
    Account,
    /// Status at the provider: `delivered`, `read`, `failed`, `open`, `approved`.
    ProviderStatus,
}

impl AttributeName {
    /// All names, in display order.
    pub const ALL: [Self; 10] = [
        Self::MessageId,
        Self::Object,
        Self::Conversation,
        Self::Phone,
        Self::Chat,
        Self::Email,
        Self::User,
        Self::Error,
        Self::Account,
        Self::ProviderStatus,
    ];

    /// The name in the API, the command line and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MessageId => "message_id",
            Self::Phone => "phone",
            Self::Chat => "chat",
            Self::Conversation => "conversation",
            Self::ProviderStatus => "provider_status",
            Self::Error => "error",
            Self::Account => "account",
            Self::Object => "object",
            Self::User => "user",
            Self::Email => "email",
        }
    }

    /// The attribute with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == word)
    }

    /// The normalized value, for comparison.
    fn normalize(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::Phone => contact_address::canonical_phone(value),
            // Not case-sensitive.
            Self::Chat | Self::Email | Self::ProviderStatus => value.to_lowercase().into(),
            Self::MessageId
            | Self::Object
            | Self::Conversation
            | Self::User
            | Self::Error
            | Self::Account => value.into(),
        }
    }
}

/// The kind of an event, as named by the provider: `message`, `payment_intent.succeeded`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EventKind(Arc<str>);

/// A text that is not a valid event kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event kind must have 1 to {KIND_BYTES_MAX} printable bytes")]
pub struct ParseEventKindError;

impl TryFrom<String> for EventKind {
    type Error = ParseEventKindError;

    fn try_from(text: String) -> Result<Self, ParseEventKindError> {
        Self::new(&text).ok_or(ParseEventKindError)
    }
}

impl From<EventKind> for String {
    fn from(kind: EventKind) -> Self {
        kind.0.as_ref().to_owned()
    }
}

impl EventKind {
    /// `None` if the text is blank, longer than [`KIND_BYTES_MAX`], or not printable.
    pub fn new(text: &str) -> Option<Self> {
        trim_valid(text, KIND_BYTES_MAX).map(|text| Self(text.into()))
    }

    /// The kind as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash under which the store finds it.
    pub fn term(&self) -> SearchTerm {
        SearchTerm::new("kind", &self.0)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The trimmed text, if it is not empty, printable and not too long.
fn trim_valid(text: &str, bytes_max: usize) -> Option<&str> {
    let text = text.trim();
    let is_valid = !text.is_empty() && text.len() <= bytes_max && !text.contains(char::is_control);
    is_valid.then_some(text)
}

/// The index entry of an attribute or kind: a short hash. Hashes may collide, so events found by a term
/// must be checked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchTerm([u8; Self::BYTES]);

impl SearchTerm {
    /// Length of the stored form.
    pub const BYTES: usize = 8;

    fn new(name: &str, normalized: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(name);
        hasher.update([0]);
        hasher.update(normalized);
        let digest: [u8; 32] = hasher.finalize().into();
        Self(std::array::from_fn(|index| digest[index]))
    }

    /// The stored form.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// From the stored form.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// A filter for events with a certain attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeFilter {
    name: AttributeName,
    normalized: String,
}

impl AttributeFilter {
    /// `None` if no event can have it: the text is blank, too long or not printable.
    pub fn new(name: AttributeName, text: &str) -> Option<Self> {
        let (name, value) =
            contact_address::classify_address(name, trim_valid(text, VALUE_BYTES_MAX)?);
        let normalized = name.normalize(&value).into_owned();
        (!normalized.is_empty()).then_some(Self { name, normalized })
    }

    /// The attribute that is searched.
    pub fn name(&self) -> AttributeName {
        self.name
    }

    /// The hash under which the store finds it.
    pub fn term(&self) -> SearchTerm {
        SearchTerm::new(self.name.as_str(), &self.normalized)
    }
}

/// The search attributes of an event: a few names, each with one or more values.
///
/// Values that do not fit are dropped silently: an event must not be refused because it has too many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Sorted by name, and within a name in the order of insertion.
    pairs: Vec<(AttributeName, Box<str>)>,
}

impl Attributes {
    /// Adds a value, unless it is blank, too long, not printable, a duplicate, or one too many.
    ///
    /// A phone number may have any format: `+55 11 98765-4321`, `5511987654321:12@s.whatsapp.net`,
    /// `whatsapp:+5511987654321`. Another address given as a phone number (`…@lid`, `…@g.us`, a BSUID) is
    /// stored as a chat, and a chat that is the JID of a phone number as a phone number.
    pub fn push(&mut self, name: AttributeName, value: &str) {
        let Some(value) = trim_valid(value, VALUE_BYTES_MAX) else { return };
        let (name, value) = contact_address::classify_address(name, value);
        let filter = AttributeFilter { name, normalized: name.normalize(&value).into_owned() };
        if filter.normalized.is_empty()
            || self.pairs.len() == ATTRIBUTES_MAX
            || self.matches(&filter)
        {
            return;
        }
        let index = self.pairs.partition_point(|(other, _)| *other <= name);
        self.pairs.insert(index, (name, value.into()));
    }

    /// Adds a value that may be missing.
    pub fn push_some(&mut self, name: AttributeName, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.push(name, value.as_ref());
        }
    }

    /// Adds a value; see [`Self::push`].
    #[must_use]
    pub fn with(mut self, name: AttributeName, value: &str) -> Self {
        self.push(name, value);
        self
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (AttributeName, &str)> {
        self.pairs.iter().map(|(name, value)| (*name, &**value))
    }

    /// Whether there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Whether one of the values is the searched one.
    pub fn matches(&self, filter: &AttributeFilter) -> bool {
        self.iter()
            .any(|(name, value)| name == filter.name && name.normalize(value) == filter.normalized)
    }

    /// The hashes under which the store finds the event.
    pub fn terms(&self) -> impl Iterator<Item = SearchTerm> {
        self.iter().map(|(name, value)| SearchTerm::new(name.as_str(), &name.normalize(value)))
    }

    /// The stored and displayed format: `{"phone":["5511987654321"]}`.
    pub fn to_json(&self) -> String {
        // Cannot fail: all keys and values are strings.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses the stored format.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Unknown names are ignored, as a later version may have written them.
impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = BTreeMap::<String, Vec<String>>::deserialize(deserializer)?;
        let mut attributes = Self::default();
        for (name, values) in &stored {
            let Some(name) = AttributeName::parse(name) else { continue };
            values.iter().for_each(|value| attributes.push(name, value));
        }
        Ok(attributes)
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for group in self.pairs.chunk_by(|one, other| one.0 == other.0) {
            let values: Vec<&str> = group.iter().map(|(_, value)| &**value).collect();
            map.serialize_entry(group[0].0.as_str(), &values)?;
        }
        map.end()
    }
}

impl JsonSchema for EventKind {
    fn schema_name() -> Cow<'static, str> {
        "EventKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "The event type, as the provider names it.",
            "minLength": 1,
            "maxLength": KIND_BYTES_MAX,
            "examples": ["message", "payment_intent.succeeded"],
        })
    }
}

impl JsonSchema for Attributes {
    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let values =
            json_schema!({ "type": "array", "minItems": 1, "items": { "type": "string" } });
        let names =
            AttributeName::ALL.map(|name| (name.as_str().to_owned(), values.clone().to_value()));
        json_schema!({
            "type": "object",
            "description": "Searchable attributes: names, each with its values.",
            "properties": serde_json::Map::from_iter(names),
            "additionalProperties": false,
            "examples": [{ "message_id": ["wamid.A"], "phone": ["5511987654321"] }],
        })
    }
}
