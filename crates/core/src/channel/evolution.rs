//! What Evolution Go and Evolution API have in common.

use http::HeaderName;
use serde_json::Value;

use super::{
    Message, Recipient, UnsupportedMessageError, message::Media, message::MediaLocation,
    message::NO_LINK,
};

/// The header with the token, in both.
pub(super) static API_KEY: HeaderName = HeaderName::from_static("apikey");

/// The `number` of a request: digits, or an address of WhatsApp's network.
pub(super) fn number<'m>(
    channel: &'static str,
    message: &'m Message,
) -> Result<&'m str, UnsupportedMessageError> {
    match &message.to {
        Recipient::Phone(text) | Recipient::Group(text) | Recipient::Other(text) => Ok(text),
        Recipient::BusinessScoped(_) => Err(UnsupportedMessageError {
            channel,
            why: "cannot reach a BSUID; send by whatsapp-cloud, or to the phone number",
        }),
        Recipient::GroupId(_) => Err(UnsupportedMessageError {
            channel,
            why: "knows groups as …@g.us, not by the id of the Cloud API; write that",
        }),
    }
}

/// Where a file is fetched.
pub(super) fn link<'m>(
    channel: &'static str,
    media: &'m Media,
) -> Result<&'m str, UnsupportedMessageError> {
    match &media.location {
        MediaLocation::Url(url) => Ok(url),
        MediaLocation::Id(_) => Err(UnsupportedMessageError {
            channel,
            why: "knows no `media_id`, only the Cloud API does; write a `url`",
        }),
        MediaLocation::File(_) => Err(UnsupportedMessageError { channel, why: NO_LINK }),
    }
}

/// Adds a field if it has something to say.
pub(super) fn add(body: &mut Value, field: &str, text: Option<&String>) {
    if let Some(text) = text {
        body[field] = Value::from(text.as_str());
    }
}
