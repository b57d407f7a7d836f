//! A message as people write it.

use std::{fmt, marker::PhantomData};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{
        DeserializeOwned, Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use super::{
    Contact, Location, MediaKind, Message, MessageContent, MessageSpecError, MessageType, Reaction,
    Recipient, ReplyTo, Template, Text, check::people,
};
use crate::{ids::MediaId, object};

/// A message as it is written: `to`, and one field with what is sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSpec {
    /// A phone number in any form, a group (`…@g.us`), a BSUID, or another address of WhatsApp.
    pub to: String,
    /// What kind of message it is. May be left out: the one field that is there says it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageType>,
    /// A text, as it is or as an object.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_object")]
    #[schemars(with = "Option<TextForms>")]
    pub text: Option<Text>,
    /// A picture.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub image: Option<MediaSpec>,
    /// A film.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub video: Option<MediaSpec>,
    /// Sound, or a voice message.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub audio: Option<MediaSpec>,
    /// Any file.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub document: Option<MediaSpec>,
    /// A sticker.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub sticker: Option<MediaSpec>,
    /// A place.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub location: Option<Location>,
    /// A person, or a list of them.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "one_or_many")]
    #[schemars(with = "Option<ContactForms>")]
    pub contact: Option<Vec<Contact>>,
    /// An emoji on another message.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub reaction: Option<Reaction>,
    /// An approved template.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub template: Option<Template>,
    /// The message that this one answers: its id, or an object.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_object")]
    #[schemars(with = "Option<ReplyForms>")]
    pub reply_to: Option<ReplyTo>,
}

/// A file as it is written: `url`, `media_id` or `file`, one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MediaSpec {
    /// Where the service fetches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What the Cloud API called it when it was uploaded there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_id: Option<String>,
    /// What this gateway called it when it was uploaded here. A link to it is made for every attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<MediaId>,
    /// The text below it. Audio and stickers have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub caption: Option<String>,
    /// What it is called, for documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// What it is, for a service that wants to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Whether audio is a voice message. Evolution Go always makes it one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voice: Option<bool>,
}

/// How a text may be written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TextForms {
    /// Only the text.
    Plain(String),
    /// With what belongs to it.
    Full(Text),
}

/// How the message that is answered may be written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ReplyForms {
    /// Only its id.
    Id(String),
    /// With who wrote it.
    Full(ReplyTo),
}

/// How people may be written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ContactForms {
    /// One.
    One(Contact),
    /// Several.
    Many(Vec<Contact>),
}

/// The forms that a value may come in. An error is about the form that was chosen, which an untagged
/// enum could not say.
struct Forms<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned + From<String>> Visitor<'de> for Forms<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an object")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(T::from(text.to_owned())))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

fn text_or_object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + From<String>,
{
    from.deserialize_any(Forms(PhantomData))
}

struct People;

impl<'de> Visitor<'de> for People {
    type Value = Option<Vec<Contact>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of them")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Contact::deserialize(MapAccessDeserializer::new(map)).map(|one| Some(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        object::each(SeqAccessDeserializer::new(list)).map(Some)
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Contact>>, D::Error> {
    from.deserialize_any(People)
}

impl From<String> for Text {
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
    /// Checks what is written, and says what is meant.
    pub fn build(self) -> Result<Message, MessageSpecError> {
        let to = Recipient::parse(&self.to).ok_or(MessageSpecError::To)?;
        let wanted = self.kind;
        let reply_to = self.reply_to.clone().map(ReplyTo::checked).transpose()?;
        let message = Message { to, content: self.content()?, reply_to };
        let found = message.kind();
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let (wanted, found) = (wanted.as_str(), found.as_str());
            return Err(MessageSpecError::OtherType { wanted, found });
        }
        if message.reply_to.is_some() && found == MessageType::Reaction {
            return Err(MessageSpecError::ReactionReply);
        }
        Ok(message)
    }

    /// The one thing that is there.
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
            ("location", self.location.map(|place| place.checked().map(MessageContent::Location))),
            ("contact", self.contact.map(|them| people(them).map(MessageContent::Contacts))),
            ("reaction", self.reaction.map(|emoji| emoji.checked().map(MessageContent::Reaction))),
            ("template", self.template.map(|text| text.checked().map(MessageContent::Template))),
        ];
        let mut found =
            others.into_iter().chain(media).filter_map(|(name, one)| one.map(|one| (name, one)));
        let (first, content) = found.next().ok_or(MessageSpecError::Nothing)?;
        match found.next() {
            Some((second, _)) => Err(MessageSpecError::TwoThings(first, second)),
            None => content,
        }
    }
}
