//! What no service could send is refused, with the field that is wrong and what to do.

use url::Url;

use super::{
    CAPTION_CHARS_MAX, CONTACTS_MAX, Contact, Location, Media, MediaKind, MediaLocation, MediaSpec,
    MessageSpecError, Reaction, Recipient, ReplyTo, TEXT_CHARS_MAX, Template, Text,
};

/// The longest id of another message or of a file.
const ID_CHARS_MAX: usize = 512;
/// The longest name, or address of a place or a file.
const FIELD_CHARS_MAX: usize = 4096;
/// The longest emoji: some are made of a dozen signs.
const EMOJI_CHARS_MAX: usize = 64;

impl Text {
    pub(super) fn checked(self) -> Result<Self, MessageSpecError> {
        filled("text.body", &self.body)?;
        within("text.body", &self.body, TEXT_CHARS_MAX)?;
        Ok(self)
    }
}

impl MediaSpec {
    pub(super) fn build(self, kind: MediaKind) -> Result<Media, MessageSpecError> {
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
                an_id("media_id", &id)?;
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
            within("caption", caption, CAPTION_CHARS_MAX)?;
        }
        if self.voice == Some(true) && kind != MediaKind::Audio {
            return Err(MessageSpecError::Voice(name));
        }
        Ok(Media {
            kind,
            location,
            caption,
            filename: optional("filename", self.filename)?,
            mime_type: optional("mime_type", self.mime_type)?,
            voice: self.voice.unwrap_or_default(),
        })
    }
}

impl Location {
    pub(super) fn checked(self) -> Result<Self, MessageSpecError> {
        // What is no number is in no range.
        if !(-90.0..=90.0).contains(&self.latitude) || !(-180.0..=180.0).contains(&self.longitude) {
            return Err(MessageSpecError::Nowhere);
        }
        let name = optional("location.name", self.name)?;
        let address = optional("location.address", self.address)?;
        Ok(Self { name, address, ..self })
    }
}

pub(super) fn people(people: Vec<Contact>) -> Result<Vec<Contact>, MessageSpecError> {
    if people.is_empty() {
        return Err(MessageSpecError::Empty("contact"));
    }
    if people.len() > CONTACTS_MAX {
        return Err(MessageSpecError::TooManyContacts);
    }
    people.into_iter().map(Contact::checked).collect()
}

impl Contact {
    fn checked(self) -> Result<Self, MessageSpecError> {
        filled("contact.name", &self.name)?;
        within("contact.name", &self.name, FIELD_CHARS_MAX)?;
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

impl Reaction {
    pub(super) fn checked(self) -> Result<Self, MessageSpecError> {
        an_id("reaction.message_id", &self.message_id)?;
        within("reaction.emoji", &self.emoji, EMOJI_CHARS_MAX)?;
        Ok(self)
    }
}

impl Template {
    pub(super) fn checked(self) -> Result<Self, MessageSpecError> {
        filled("template.name", &self.name)?;
        within("template.name", &self.name, ID_CHARS_MAX)?;
        filled("template.language", &self.language)?;
        within("template.language", &self.language, ID_CHARS_MAX)?;
        Ok(self)
    }
}

impl ReplyTo {
    pub(super) fn checked(self) -> Result<Self, MessageSpecError> {
        an_id("reply_to", &self.message_id)?;
        Ok(self)
    }
}

fn filled(field: &'static str, text: &str) -> Result<(), MessageSpecError> {
    if text.trim().is_empty() { Err(MessageSpecError::Empty(field)) } else { Ok(()) }
}

fn within(field: &'static str, text: &str, max: usize) -> Result<(), MessageSpecError> {
    let is_long = text.chars().nth(max).is_some();
    if is_long { Err(MessageSpecError::TooLong { field, max }) } else { Ok(()) }
}

fn an_id(field: &'static str, id: &str) -> Result<(), MessageSpecError> {
    filled(field, id)?;
    within(field, id, ID_CHARS_MAX)
}

/// A field that may be there; an empty one is not.
fn optional(field: &'static str, text: Option<String>) -> Result<Option<String>, MessageSpecError> {
    let text = text.filter(|text| !text.trim().is_empty());
    text.iter().try_for_each(|text| within(field, text, FIELD_CHARS_MAX))?;
    Ok(text)
}
