//! What an event is about, so that it can be found: its kind and its search attributes.
//!
//! A value goes the same way when it is stored and when it is looked for: [`Attributes::push`] and
//! [`AttributeFilter::new`] both find out where it belongs (a phone number or another address) and both
//! compare it in its normal form. So `+55 (11) 98765-4321` finds what came as `551187654321`.

pub(crate) mod address;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use sha2::{Digest, Sha256};

/// Attributes of one event, at most. Further ones are left out.
pub const PAIRS_MAX: usize = 16;
/// The longest value. A longer one is left out: nobody looks for it.
pub const VALUE_BYTES_MAX: usize = 255;
/// The longest kind.
pub const KIND_BYTES_MAX: usize = 128;

/// What a value of an event says about it. The more telling come first: fewer events share them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AttributeName {
    /// The id of a message: a wamid, `key.id`, `MessageSid`, `ts` of Slack, `message_id` of Telegram.
    /// Of a reaction, a reply or a status also that of the message it is about.
    MessageId,
    /// The id of the thing concerned: a payment, an order, an issue, a contact.
    Object,
    /// The id of a conversation or thread within which messages are sent.
    Conversation,
    /// The phone number of the other party, in any form.
    Phone,
    /// Another address of a person or group: `…@lid`, `…@g.us`, a BSUID, the id of a chat or channel.
    Chat,
    /// An email address.
    Email,
    /// Who did it, as the provider knows them: a user id or a login.
    User,
    /// The provider's code of what went wrong.
    Error,
    /// Whose it is on our side: a WABA id, a `phone_number_id`, an instance, an account, a shop, a
    /// repository, a workspace.
    Account,
    /// What the provider says of the thing: `delivered`, `read`, `failed`, `open`, `approved`.
    ProviderStatus,
}

impl AttributeName {
    /// Every name, in the order in which they are shown.
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

    /// The word that the API, the command line and the store use.
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

    /// The name for a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == word)
    }

    /// The form in which values are compared.
    fn normal(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::Phone => address::canonical_phone(value),
            // Written in either case by people, and by some providers.
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

/// What sort of thing happened, in the words of the provider: `message`, `payment_intent.succeeded`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EventKind(Arc<str>);

/// A text that is no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a kind has 1 to {KIND_BYTES_MAX} printable bytes")]
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
        clean(text, KIND_BYTES_MAX).map(|text| Self(text.into()))
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it is found by.
    pub fn term(&self) -> SearchTerm {
        SearchTerm::of("kind", &self.0)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text without blanks around it, if something is left that can be shown and is not too long.
fn clean(text: &str, bytes_max: usize) -> Option<&str> {
    let text = text.trim();
    let is_good = !text.is_empty() && text.len() <= bytes_max && !text.contains(char::is_control);
    is_good.then_some(text)
}

/// What an index holds of an attribute or a kind: short, of one length, spread evenly. Two may have
/// the same, so what is found by it has to be asked once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SearchTerm([u8; Self::BYTES]);

impl SearchTerm {
    /// The length of each.
    pub const BYTES: usize = 8;

    fn of(name: &str, normal: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(name);
        hasher.update([0]);
        hasher.update(normal);
        let whole: [u8; 32] = hasher.finalize().into();
        Self(std::array::from_fn(|index| whole[index]))
    }

    /// As it is kept.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// From what was kept.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

/// An attribute that somebody looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeFilter {
    name: AttributeName,
    normal: String,
}

impl AttributeFilter {
    /// `None` if no event can have it: the text is blank, too long or not printable.
    pub fn new(name: AttributeName, text: &str) -> Option<Self> {
        let (name, value) = address::place(name, clean(text, VALUE_BYTES_MAX)?);
        let normal = name.normal(&value).into_owned();
        (!normal.is_empty()).then_some(Self { name, normal })
    }

    /// What it says of an event.
    pub fn name(&self) -> AttributeName {
        self.name
    }

    /// What it is found by.
    pub fn term(&self) -> SearchTerm {
        SearchTerm::of(self.name.as_str(), &self.normal)
    }
}

/// The search attributes of an event: a few names, each with one value or more.
///
/// What does not fit is left out without a word. That an event can be found by one thing less is no
/// reason to refuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// By name, and within a name as they came.
    pairs: Vec<(AttributeName, Box<str>)>,
}

impl Attributes {
    /// Adds a value, unless it is blank, too long, not printable, there already, or one too many.
    ///
    /// A phone may come in any form: `+55 11 98765-4321`, `5511987654321:12@s.whatsapp.net`,
    /// `whatsapp:+5511987654321`. What is given as a phone and is another address (`…@lid`, `…@g.us`,
    /// a BSUID, a word) is kept as a chat, and a chat that is a phone's JID as a phone.
    pub fn push(&mut self, name: AttributeName, value: &str) {
        let Some(value) = clean(value, VALUE_BYTES_MAX) else { return };
        let (name, value) = address::place(name, value);
        let wanted = AttributeFilter { name, normal: name.normal(&value).into_owned() };
        if wanted.normal.is_empty() || self.pairs.len() == PAIRS_MAX || self.has(&wanted) {
            return;
        }
        let at = self.pairs.partition_point(|(other, _)| *other <= name);
        self.pairs.insert(at, (name, value.into()));
    }

    /// The same for a value that may be missing.
    pub fn push_some(&mut self, name: AttributeName, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.push(name, value.as_ref());
        }
    }

    /// The same with one more value.
    #[must_use]
    pub fn with(mut self, name: AttributeName, value: &str) -> Self {
        self.push(name, value);
        self
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (AttributeName, &str)> {
        self.pairs.iter().map(|(name, value)| (*name, &**value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Whether what is looked for is among them.
    pub fn has(&self, wanted: &AttributeFilter) -> bool {
        self.iter().any(|(name, value)| name == wanted.name && name.normal(value) == wanted.normal)
    }

    /// What each is found by.
    pub fn terms(&self) -> impl Iterator<Item = SearchTerm> {
        self.iter().map(|(name, value)| SearchTerm::of(name.as_str(), &name.normal(value)))
    }

    /// As they are kept and shown: `{"phone":["5511987654321"]}`.
    pub fn to_json(&self) -> String {
        // Cannot fail: all keys are words and all values are texts.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From what was kept. Names that are not known are left out.
    ///
    /// # Errors
    ///
    /// If the text is no object of lists of texts.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let kept: BTreeMap<String, Vec<String>> = serde_json::from_str(text)?;
        let mut attributes = Self::default();
        for (word, values) in &kept {
            let Some(name) = AttributeName::parse(word) else { continue };
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
