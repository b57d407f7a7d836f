//! A message in the JSON of the API, and the checks that turn it into a [`Message`].
//!
//! A message that no channel could send is rejected with the wrong field and what to do about it.

use std::fmt;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        DeserializeOwned, Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use surehook_types::{ids::MediaId, object};
use url::Url;

use super::{
    CAPTION_CHARS_MAX, CONTACTS_MAX, ContactCard, LocationContent, MediaContent, MediaKind,
    MediaLocation, Message, MessageContent, MessageType, ReactionContent, Recipient, ReplyTo,
    TEXT_CHARS_MAX, TemplateContent, TextContent,
};

/// Longest id of another message or of a file.
const ID_CHARS_MAX: usize = 512;
/// Longest name, street address or URL.
const FIELD_CHARS_MAX: usize = 4096;
/// Longest emoji: some consist of a dozen code points.
const EMOJI_CHARS_MAX: usize = 64;

/// A message in the API: `to`, and one field with the content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSpec {
    /// Recipient: a phone number in any format, a group (`…@g.us`), a BSUID, or another WhatsApp address.
    pub to: String,
    /// Message type. Optional: the content field determines it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageType>,
    /// Text, as a string or as an object.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_object")]
    #[schemars(with = "Option<TextForms>")]
    pub text: Option<TextContent>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub image: Option<MediaSpec>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub video: Option<MediaSpec>,
    /// Audio file or voice message.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub audio: Option<MediaSpec>,
    /// Any file, shown as a document.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub document: Option<MediaSpec>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub sticker: Option<MediaSpec>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub location: Option<LocationContent>,
    /// One contact card or a list of them.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "one_or_many")]
    #[schemars(with = "Option<ContactForms>")]
    pub contact: Option<Vec<ContactCard>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub reaction: Option<ReactionContent>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::option")]
    pub template: Option<TemplateContent>,
    /// The message to reply to: its id, or an object.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_object")]
    #[schemars(with = "Option<ReplyForms>")]
    pub reply_to: Option<ReplyTo>,
}

/// A media file: exactly one of `url`, `media_id` and `file`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MediaSpec {
    /// Address from which the messaging service downloads the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Id of a file that was uploaded to the Cloud API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_id: Option<String>,
    /// Id of a file that was uploaded to this gateway. Every attempt gets a new link to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<MediaId>,
    /// Text below the file. Not for audio and stickers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub caption: Option<String>,
    /// File name, for documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// MIME type, for services that need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Sends audio as a voice message. Evolution Go always does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<bool>,
}

/// Why a message is rejected: no channel could send it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageSpecError {
    #[error("not a valid message: {0}")]
    Unreadable(String),
    #[error(
        "`to` is not a valid recipient; write a phone number with its country (+55 11 98765-4321), a group \
         (…@g.us) or a BSUID (BR.…)"
    )]
    To,
    #[error(
        "the message has no content; add `text`, `image`, `video`, `audio`, `document`, `sticker`, `location`, `contact`, `reaction` or `template`"
    )]
    NoContent,
    #[error("`{0}` and `{1}` are both set; a message has one content, so send two messages")]
    TwoContents(&'static str, &'static str),
    #[error(
        "`type` is `{declared}`, but the message has `{found}`; set the field `{declared}`, or omit `type`"
    )]
    TypeMismatch { declared: &'static str, found: &'static str },
    #[error("`{0}` is empty; set a value, or omit the field if it is optional")]
    Empty(&'static str),
    #[error("`{field}` has more than {max} characters; shorten it, or send several messages")]
    TooLong { field: &'static str, max: usize },
    #[error("`{0}` has none of `url`, `media_id` and `file`; set one of them")]
    NoFile(&'static str),
    #[error("`{0}` has more than one of `url`, `media_id` and `file`; set only one")]
    TwoFiles(&'static str),
    #[error("`{0}.url` is not a valid URL; use http://… or https://…")]
    Url(&'static str),
    #[error("`{0}` cannot have a caption; send the text as a separate message")]
    Caption(&'static str),
    #[error("`{0}.voice` is not allowed; only audio can be a voice message")]
    Voice(&'static str),
    #[error("`location` is out of range; latitude is -90 to 90, longitude -180 to 180")]
    Coordinates,
    #[error(
        "`contact.phone` is not a phone number with its country code, such as +55 11 98765-4321"
    )]
    ContactPhone,
    #[error("`contact` has more than {CONTACTS_MAX} contacts; send several messages")]
    TooManyContacts,
    #[error("a reaction cannot be a reply; omit `reply_to`")]
    ReactionReply,
}

/// The forms of `text` in the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TextForms {
    Plain(String),
    Full(TextContent),
}

/// The forms of `reply_to` in the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ReplyForms {
    Id(String),
    Full(ReplyTo),
}

/// The forms of `contact` in the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ContactForms {
    One(ContactCard),
    Many(Vec<ContactCard>),
}

fn text_or_object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + From<String>,
{
    object::option_or_text::<D, T, T>(from, "a text or an object")
}

struct ContactList;

impl<'de> Visitor<'de> for ContactList {
    type Value = Option<Vec<ContactCard>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of them")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        ContactCard::deserialize(MapAccessDeserializer::new(map)).map(|card| Some(vec![card]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        object::each(SeqAccessDeserializer::new(list)).map(Some)
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<ContactCard>>, D::Error> {
    from.deserialize_any(ContactList)
}

impl From<String> for TextContent {
    fn from(body: String) -> Self {
        Self { body, preview_url: None }
    }
}

impl From<String> for ReplyTo {
    fn from(message_id: String) -> Self {
        Self { message_id, participant: None }
    }
}

impl MessageSpec {
    /// Checks the message and parses its recipient.
    pub fn build(self) -> Result<Message, MessageSpecError> {
        let to = Recipient::parse(&self.to).ok_or(MessageSpecError::To)?;
        let declared = self.kind;
        let reply_to = self.reply_to.clone().map(ReplyTo::checked).transpose()?;
        let message = Message { to, content: self.content()?, reply_to };
        let found = message.kind();
        if let Some(declared) = declared.filter(|declared| *declared != found) {
            let (declared, found) = (declared.as_str(), found.as_str());
            return Err(MessageSpecError::TypeMismatch { declared, found });
        }
        if message.reply_to.is_some() && found == MessageType::Reaction {
            return Err(MessageSpecError::ReactionReply);
        }
        Ok(message)
    }

    /// The single content field, checked.
    fn content(self) -> Result<MessageContent, MessageSpecError> {
        use MediaKind::{Audio, Document, Image, Sticker, Video};
        let media = [
            (Image, self.image),
            (Video, self.video),
            (Audio, self.audio),
            (Document, self.document),
            (Sticker, self.sticker),
        ];
        let media = media.into_iter().map(|(kind, spec)| {
            (kind.as_str(), spec.map(|spec| spec.build(kind).map(MessageContent::Media)))
        });
        let others = [
            ("text", self.text.map(|text| text.checked().map(MessageContent::Text))),
            (
                "location",
                self.location.map(|location| location.checked().map(MessageContent::Location)),
            ),
            (
                "contact",
                self.contact.map(|contacts| check_contacts(contacts).map(MessageContent::Contacts)),
            ),
            (
                "reaction",
                self.reaction.map(|reaction| reaction.checked().map(MessageContent::Reaction)),
            ),
            (
                "template",
                self.template.map(|template| template.checked().map(MessageContent::Template)),
            ),
        ];
        let mut contents = others
            .into_iter()
            .chain(media)
            .filter_map(|(name, content)| content.map(|content| (name, content)));
        let (first, content) = contents.next().ok_or(MessageSpecError::NoContent)?;
        match contents.next() {
            Some((second, _)) => Err(MessageSpecError::TwoContents(first, second)),
            None => content,
        }
    }
}

impl TextContent {
    fn checked(self) -> Result<Self, MessageSpecError> {
        check_filled("text.body", &self.body)?;
        check_length("text.body", &self.body, TEXT_CHARS_MAX)?;
        Ok(self)
    }
}

impl MediaSpec {
    fn build(self, kind: MediaKind) -> Result<MediaContent, MessageSpecError> {
        let name = kind.as_str();
        let location = match (self.url, self.media_id, self.file) {
            (None, None, None) => return Err(MessageSpecError::NoFile(name)),
            (Some(url), None, None) => {
                let parsed = Url::parse(&url).map_err(|_| MessageSpecError::Url(name))?;
                let is_web = matches!(parsed.scheme(), "http" | "https");
                if !is_web || url.len() > FIELD_CHARS_MAX {
                    return Err(MessageSpecError::Url(name));
                }
                MediaLocation::Url(url)
            }
            (None, Some(id), None) => {
                check_id("media_id", &id)?;
                MediaLocation::Id(id)
            }
            (None, None, Some(file)) => MediaLocation::File(file),
            (_, _, _) => return Err(MessageSpecError::TwoFiles(name)),
        };
        let caption = self.caption.filter(|caption| !caption.is_empty());
        if let Some(caption) = &caption {
            if !kind.has_caption() {
                return Err(MessageSpecError::Caption(name));
            }
            check_length("caption", caption, CAPTION_CHARS_MAX)?;
        }
        if self.voice == Some(true) && kind != MediaKind::Audio {
            return Err(MessageSpecError::Voice(name));
        }
        Ok(MediaContent {
            kind,
            location,
            caption,
            filename: optional("filename", self.filename)?,
            mime_type: optional("mime_type", self.mime_type)?,
            voice: self.voice.unwrap_or_default(),
        })
    }
}

impl LocationContent {
    fn checked(self) -> Result<Self, MessageSpecError> {
        // NaN is in no range.
        if !(-90.0..=90.0).contains(&self.latitude) || !(-180.0..=180.0).contains(&self.longitude) {
            return Err(MessageSpecError::Coordinates);
        }
        let name = optional("location.name", self.name)?;
        let address = optional("location.address", self.address)?;
        Ok(Self { name, address, ..self })
    }
}

fn check_contacts(contacts: Vec<ContactCard>) -> Result<Vec<ContactCard>, MessageSpecError> {
    if contacts.is_empty() {
        return Err(MessageSpecError::Empty("contact"));
    }
    if contacts.len() > CONTACTS_MAX {
        return Err(MessageSpecError::TooManyContacts);
    }
    contacts.into_iter().map(ContactCard::checked).collect()
}

impl ContactCard {
    fn checked(self) -> Result<Self, MessageSpecError> {
        check_filled("contact.name", &self.name)?;
        check_length("contact.name", &self.name, FIELD_CHARS_MAX)?;
        let Some(Recipient::Phone(phone)) = Recipient::parse(&self.phone) else {
            return Err(MessageSpecError::ContactPhone);
        };
        Ok(Self {
            name: self.name,
            phone,
            organization: optional("contact.organization", self.organization)?,
            email: optional("contact.email", self.email)?,
            url: optional("contact.url", self.url)?,
        })
    }
}

impl ReactionContent {
    fn checked(self) -> Result<Self, MessageSpecError> {
        check_id("reaction.message_id", &self.message_id)?;
        check_length("reaction.emoji", &self.emoji, EMOJI_CHARS_MAX)?;
        Ok(self)
    }
}

impl TemplateContent {
    fn checked(self) -> Result<Self, MessageSpecError> {
        check_filled("template.name", &self.name)?;
        check_length("template.name", &self.name, ID_CHARS_MAX)?;
        check_filled("template.language", &self.language)?;
        check_length("template.language", &self.language, ID_CHARS_MAX)?;
        Ok(self)
    }
}

impl ReplyTo {
    fn checked(self) -> Result<Self, MessageSpecError> {
        check_id("reply_to", &self.message_id)?;
        Ok(self)
    }
}

fn check_filled(field: &'static str, text: &str) -> Result<(), MessageSpecError> {
    if text.trim().is_empty() { Err(MessageSpecError::Empty(field)) } else { Ok(()) }
}

fn check_length(field: &'static str, text: &str, max: usize) -> Result<(), MessageSpecError> {
    let is_long = text.chars().nth(max).is_some();
    if is_long { Err(MessageSpecError::TooLong { field, max }) } else { Ok(()) }
}

fn check_id(field: &'static str, id: &str) -> Result<(), MessageSpecError> {
    check_filled(field, id)?;
    check_length(field, id, ID_CHARS_MAX)
}

/// An optional field; a blank value counts as missing.
fn optional(field: &'static str, text: Option<String>) -> Result<Option<String>, MessageSpecError> {
    let text = text.filter(|text| !text.trim().is_empty());
    text.iter().try_for_each(|text| check_length(field, text, FIELD_CHARS_MAX))?;
    Ok(text)
}
