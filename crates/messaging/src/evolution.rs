//! Helpers shared by Evolution Go and Evolution API.

use http::HeaderName;
use serde_json::Value;

use super::{
    Message, Recipient, UnsupportedMessageError, message::MediaContent, message::MediaLocation,
    message::NO_LINK,
};

/// The header that carries the token.
pub(super) static API_KEY: HeaderName = HeaderName::from_static("apikey");

/// The `number` field of a request: digits, or a WhatsApp address.
pub(super) fn recipient_number<'m>(
    channel: &'static str,
    message: &'m Message,
) -> Result<&'m str, UnsupportedMessageError> {
    match &message.to {
        Recipient::Phone(text) | Recipient::Group(text) | Recipient::Other(text) => Ok(text),
        Recipient::BusinessScoped(_) => Err(UnsupportedMessageError {
            channel,
            reason: "cannot send to a BSUID; use whatsapp-cloud, or the phone number",
        }),
        Recipient::GroupId(_) => Err(UnsupportedMessageError {
            channel,
            reason: "identifies groups by …@g.us, not by a Cloud API id; use that address",
        }),
    }
}

/// The link from which the server downloads a file.
pub(super) fn media_link<'m>(
    channel: &'static str,
    media: &'m MediaContent,
) -> Result<&'m str, UnsupportedMessageError> {
    match &media.location {
        MediaLocation::Url(url) => Ok(url),
        MediaLocation::Id(_) => Err(UnsupportedMessageError {
            channel,
            reason: "does not support `media_id`, only the Cloud API does; use `url`",
        }),
        MediaLocation::File(_) => Err(UnsupportedMessageError { channel, reason: NO_LINK }),
    }
}

/// Adds a field if it has a value.
pub(super) fn add_field(body: &mut Value, field: &str, text: Option<&String>) {
    if let Some(text) = text {
        body[field] = Value::from(text.as_str());
    }
}
