//! What Evolution Go and Evolution API have in common.

use http::HeaderName;
use serde_json::Value;

use super::{Message, Recipient, Unsendable, message::Media, message::MediaAt, message::NO_LINK};

/// The header with the token, in both.
pub(super) static API_KEY: HeaderName = HeaderName::from_static("apikey");

/// The `number` of a request: digits, or an address of WhatsApp's network.
pub(super) fn number<'m>(
    service: &'static str,
    message: &'m Message,
) -> Result<&'m str, Unsendable> {
    match &message.to {
        Recipient::Phone(text) | Recipient::Group(text) | Recipient::Other(text) => Ok(text),
        Recipient::BusinessScoped(_) => Err(Unsendable {
            service,
            why: "cannot reach a BSUID; send by whatsapp-cloud, or to the phone number",
        }),
        Recipient::GroupId(_) => Err(Unsendable {
            service,
            why: "knows groups as …@g.us, not by the id of the Cloud API; write that",
        }),
    }
}

/// Where a file is fetched.
pub(super) fn link<'m>(service: &'static str, media: &'m Media) -> Result<&'m str, Unsendable> {
    match &media.at {
        MediaAt::Url(url) => Ok(url),
        MediaAt::Id(_) => Err(Unsendable {
            service,
            why: "knows no `media_id`, only the Cloud API does; write a `url`",
        }),
        MediaAt::File(_) => Err(Unsendable { service, why: NO_LINK }),
    }
}

/// Adds a field if it has something to say.
pub(super) fn add(body: &mut Value, field: &str, text: Option<&String>) {
    if let Some(text) = text {
        body[field] = Value::from(text.as_str());
    }
}
