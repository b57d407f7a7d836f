//! A message, the same for every service.
//!
//! [`MessageSpec`] is what people write, as JSON; [`Message`] is what is meant. What no service could
//! send is refused here, before anything is stored; what only one of them cannot send is
//! [`UnsupportedMessageError`](super::UnsupportedMessageError) when it is composed.

mod check;
mod error;
mod spec;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    error::MessageSpecError,
    spec::{MediaSpec, MessageSpec},
};
use super::recipient::Recipient;
use crate::{ids::MediaId, object};

/// The longest text, in characters.
pub const TEXT_CHARS_MAX: usize = 4096;
/// The longest caption, in characters.
pub const CAPTION_CHARS_MAX: usize = 1024;
/// Most contacts in a message.
pub const CONTACTS_MAX: usize = 100;

/// What a service says of a file to which nobody made a link.
pub(super) const NO_LINK: &str = "fetches files by links, and there is none to this `file`";

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageType {
    /// A text.
    Text,
    /// A picture.
    Image,
    /// A film.
    Video,
    /// Sound, or a voice message.
    Audio,
    /// Any file.
    Document,
    /// A sticker.
    Sticker,
    /// A place.
    Location,
    /// One or more people.
    Contact,
    /// An emoji on another message.
    Reaction,
    /// A text that Meta has approved, with its blanks filled in.
    Template,
}

impl MessageType {
    /// The word for it, and the field that holds it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Document => "document",
            Self::Sticker => "sticker",
            Self::Location => "location",
            Self::Contact => "contact",
            Self::Reaction => "reaction",
            Self::Template => "template",
        }
    }
}

/// A text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The text, 1 to 4096 characters.
    #[schemars(length(min = 1, max = 4096))]
    pub body: String,
    /// Whether the first link in it is shown with a preview. Evolution Go never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview_url: Option<bool>,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// Degrees north.
    #[schemars(range(min = -90, max = 90))]
    pub latitude: f64,
    /// Degrees east.
    #[schemars(range(min = -180, max = 180))]
    pub longitude: f64,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Street and city.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// The whole name.
    pub name: String,
    /// The phone number with its country, in any form.
    pub phone: String,
    /// Where they work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// An email address. Evolution Go cannot send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// A web page. Evolution Go cannot send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// An emoji on another message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reaction {
    /// The message.
    pub message_id: String,
    /// The emoji; an empty one takes the reaction back.
    pub emoji: String,
    /// Whether the message was ours. The Cloud API knows by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_me: Option<bool>,
    /// Who wrote the message, in a group. The Cloud API knows by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

/// A template that Meta has approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Its language, such as `pt_BR`.
    pub language: String,
    /// What fills its blanks, in the words of the Cloud API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Value>,
}

/// The message that is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyTo {
    /// Its id.
    pub message_id: String,
    /// Who wrote it, in a group. The Cloud API knows by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant: Option<String>,
}

/// A message as it is meant. It can be sent by at least one service.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who gets it.
    pub to: Recipient,
    /// What they get.
    pub content: MessageContent,
    /// The message that it answers.
    pub reply_to: Option<ReplyTo>,
}

/// What a message holds.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    /// A text.
    Text(Text),
    /// A file that is shown, played or kept.
    Media(Media),
    /// A place.
    Location(Location),
    /// People, at least one.
    Contacts(Vec<Contact>),
    /// An emoji on another message.
    Reaction(Reaction),
    /// An approved template.
    Template(Template),
}

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// How it is shown.
    pub kind: MediaKind,
    /// Where it is.
    pub location: MediaLocation,
    /// The text below it.
    pub caption: Option<String>,
    /// What it is called.
    pub filename: Option<String>,
    /// What it is.
    pub mime_type: Option<String>,
    /// Whether audio is a voice message.
    pub voice: bool,
}

/// How a file is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A film.
    Video,
    /// Sound.
    Audio,
    /// A file to keep.
    Document,
    /// A sticker.
    Sticker,
}

impl MediaKind {
    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Image, Self::Video, Self::Audio, Self::Document, Self::Sticker];
        all.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The word for it, which is the same everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Document => "document",
            Self::Sticker => "sticker",
        }
    }

    /// Whether a text can stand below it.
    const fn has_caption(self) -> bool {
        match self {
            Self::Image | Self::Video | Self::Document => true,
            Self::Audio | Self::Sticker => false,
        }
    }
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaLocation {
    /// The service fetches it there.
    Url(String),
    /// It was uploaded to the Cloud API.
    Id(String),
    /// It lies in our bucket. Before it is sent, this becomes a link to it.
    File(MediaId),
}

impl Message {
    /// Reads a message, for instance one that a transform made.
    pub fn parse(json: &[u8]) -> Result<Self, MessageSpecError> {
        let unreadable = |error: serde_json::Error| MessageSpecError::Unreadable(error.to_string());
        let mut reader = serde_json::Deserializer::from_slice(json);
        let spec: MessageSpec = object::required(&mut reader).map_err(unreadable)?;
        reader.end().map_err(unreadable)?;
        spec.build()
    }

    /// What kind of message it is.
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
