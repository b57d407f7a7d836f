//! Helpers shared by Evolution Go and Evolution API.

use http::HeaderName;

use super::{Message, Recipient, message::MediaContent, message::MediaLocation, message::NO_LINK};

/// The header that carries the token.
pub(super) static API_KEY: HeaderName = HeaderName::from_static("apikey");

/// The `number` field of a request: digits, or a WhatsApp address.
pub(super) fn recipient_number(message: &Message) -> Result<&str, &'static str> {
    match &message.to {
        Recipient::Phone(text) | Recipient::Group(text) | Recipient::Other(text) => Ok(text),
        Recipient::BusinessScoped(_) => {
            Err("cannot send to a BSUID; use whatsapp-cloud, or the phone number")
        }
        Recipient::GroupId(_) => {
            Err("identifies groups by …@g.us, not by a Cloud API id; use that address")
        }
    }
}

/// The link from which the server downloads a file.
pub(super) fn media_link(media: &MediaContent) -> Result<&str, &'static str> {
    match &media.location {
        MediaLocation::Url(url) => Ok(url),
        MediaLocation::Id(_) => {
            Err("does not support `media_id`, only the Cloud API does; use `url`")
        }
        MediaLocation::File(_) => Err(NO_LINK),
    }
}
