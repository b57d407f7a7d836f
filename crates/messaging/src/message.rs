//! A message, independent of the channel that sends it.
//!
//! [`MessageSpec`] is the JSON of the API, [`Message`] the checked value. A message that no channel can
//! send is rejected before it is stored; one that only a certain channel cannot send fails as
//! [`UnsupportedMessageError`](super::UnsupportedMessageError) when it is composed.

mod spec;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use surehook_types::{ids::MediaId, object, string_enum};

pub use self::spec::{MediaSpec, MessageSpec, MessageSpecError};
use super::recipient::Recipient;

/// Longest text, in characters.
pub const TEXT_CHARS_MAX: usize = 4096;
/// Longest caption, in characters.
pub const CAPTION_CHARS_MAX: usize = 1024;
/// Maximum number of contacts in a message.
pub const CONTACTS_MAX: usize = 100;

/// Reason for an uploaded file that was not replaced by a link before composing.
pub(super) const NO_LINK: &str = "needs a link to this `file`, and there is none";

string_enum! {
    /// The type of a message.
    pub enum MessageType {
        Text = "text",
        Image = "image",
        Video = "video",
        /// Audio file or voice message.
        Audio = "audio",
        /// Any file, shown as a document.
        Document = "document",
        Sticker = "sticker",
        Location = "location",
        /// One or more contact cards.
        Contact = "contact",
        Reaction = "reaction",
        /// Template that Meta has approved, with its parameters.
        Template = "template",
    }
}

/// Adds a field if it has a value.
pub(super) fn add_field(body: &mut Value, field: &str, text: Option<&String>) {
    if let Some(text) = text {
        body[field] = Value::from(text.as_str());
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextContent {
    /// Text of 1 to 4096 characters.
    #[schemars(length(min = 1, max = 4096))]
    pub body: String,
    /// Shows a preview of the first link. Not supported by Evolution Go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_url: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocationContent {
    #[schemars(range(min = -90, max = 90))]
    pub latitude: f64,
    #[schemars(range(min = -180, max = 180))]
    pub longitude: f64,
    /// Name of the place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContactCard {
    pub name: String,
    /// Phone number with country code, in any format.
    pub phone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Email address. Not supported by Evolution Go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Web page. Not supported by Evolution Go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReactionContent {
    /// Id of the message to react to.
    pub message_id: String,
    /// The emoji; an empty string removes the reaction.
    pub emoji: String,
    /// Whether the message was sent by this account. Not needed by the Cloud API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_me: Option<bool>,
    /// Author of the message, in a group. Not needed by the Cloud API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateContent {
    pub name: String,
    /// Language code, such as `pt_BR`.
    pub language: String,
    /// Parameters, in the format of the Cloud API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyTo {
    pub message_id: String,
    /// Author of the message, in a group. Not needed by the Cloud API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

/// A checked message that at least one channel can send.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub to: Recipient,
    pub content: MessageContent,
    pub reply_to: Option<ReplyTo>,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    Text(TextContent),
    Media(MediaContent),
    Location(LocationContent),
    /// At least one.
    Contacts(Vec<ContactCard>),
    Reaction(ReactionContent),
    Template(TemplateContent),
}

/// A media file and how to show it.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaContent {
    pub kind: MediaKind,
    pub location: MediaLocation,
    pub caption: Option<String>,
    pub filename: Option<String>,
    pub mime_type: Option<String>,
    /// Whether to send audio as a voice message.
    pub voice: bool,
}

string_enum! {
    /// How a media file is shown.
    pub enum MediaKind {
        Image = "image",
        Video = "video",
        Audio = "audio",
        /// File to download.
        Document = "document",
        Sticker = "sticker",
    }
}

impl MediaKind {
    const fn has_caption(self) -> bool {
        match self {
            Self::Image | Self::Video | Self::Document => true,
            Self::Audio | Self::Sticker => false,
        }
    }
}

/// The location of a media file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaLocation {
    /// The service downloads it from there.
    Url(String),
    /// Uploaded to the Cloud API.
    Id(String),
    /// Stored in our bucket. Replaced by a link before the message is composed.
    File(MediaId),
}

impl Message {
    /// Parses and checks a message, for example the output of a transform.
    pub fn parse(json: &[u8]) -> Result<Self, MessageSpecError> {
        let unreadable = |error: serde_json::Error| MessageSpecError::Unreadable(error.to_string());
        let mut reader = serde_json::Deserializer::from_slice(json);
        let spec: MessageSpec = object::required(&mut reader).map_err(unreadable)?;
        reader.end().map_err(unreadable)?;
        spec.build()
    }

    pub fn kind(&self) -> MessageType {
        match &self.content {
            MessageContent::Text(_) => MessageType::Text,
            MessageContent::Media(media) => media.kind.message_type(),
            MessageContent::Location(_) => MessageType::Location,
            MessageContent::Contacts(_) => MessageType::Contact,
            MessageContent::Reaction(_) => MessageType::Reaction,
            MessageContent::Template(_) => MessageType::Template,
        }
    }
}

impl MediaKind {
    const fn message_type(self) -> MessageType {
        match self {
            Self::Image => MessageType::Image,
            Self::Video => MessageType::Video,
            Self::Audio => MessageType::Audio,
            Self::Document => MessageType::Document,
            Self::Sticker => MessageType::Sticker,
        }
    }
}
