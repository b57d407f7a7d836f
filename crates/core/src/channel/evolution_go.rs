//! Evolution Go: `POST /send/…`, with the token of the instance.
//!
//! - The optional `id` becomes the id of the message within WhatsApp, so the same message can be sent
//!   again and stays one. A reaction has no `id` of its own (there it names the other message), and
//!   needs none.
//! - Everything that goes wrong is 500; only the text tells what.
//! - The server tries three times with reconnections and then waits up to 75 s for WhatsApp. Who gives
//!   up earlier sends again while it is still trying.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    AccountRequirements, Channel, ChannelAccount, ChannelResponse, ComposedRequest, ErrorScope,
    Message, ResendPolicy, UnsupportedMessageError,
    answer::{by_status, json},
    evolution::{API_KEY, add, link, number},
    message::{Contact, Location, Media, MediaKind, MessageContent, Reaction},
    sent_id::sent_id,
};
use crate::delivery::DeadReason::{PayloadError, Unrecoverable};

const NAME: &str = "evolution-go";
/// What the ids begin with that WhatsApp's own library makes; 9 bytes in hexadecimal follow.
const ID_PREFIX: &str = "3EB0";
const ID_BYTES: usize = 9;
/// Three tries of 8 s and more, then 75 s for WhatsApp's answer.
const TIMEOUT_MIN: Duration = Duration::from_secs(120);

/// Evolution Go.
#[derive(Debug)]
pub(super) struct EvolutionGo;

impl Channel for EvolutionGo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn requirements(&self) -> AccountRequirements {
        // The token is the instance's own, so it says whom to send as.
        AccountRequirements { base_url: None, version: None, sender: None }
    }

    fn compose(
        &self,
        account: &ChannelAccount,
        message: &Message,
        send_id: &str,
    ) -> Result<ComposedRequest, UnsupportedMessageError> {
        let number = number(NAME, message)?;
        let (path, mut body) = content(&message.content)?;
        body["number"] = json!(number);
        let is_reaction = matches!(message.content, MessageContent::Reaction(_));
        if !is_reaction {
            body["id"] = json!(stanza_id(send_id));
        }
        if let Some(quoted) = quoted(message)? {
            body["quoted"] = quoted;
        }
        Ok(ComposedRequest {
            method: Method::POST,
            url: account.url(path),
            headers: account.headers(API_KEY.clone(), ""),
            body,
            timeout_min: TIMEOUT_MIN,
            resend: if is_reaction { ResendPolicy::Harmless } else { ResendPolicy::SameId },
        })
    }

    fn parse_response(&self, status: u16, body: &[u8]) -> ChannelResponse {
        if let Some(id) = sent_id(status, body, &["data", "Info", "ID"]) {
            return ChannelResponse::sent(&id, "success");
        }
        let body = json(body);
        let Some(text) = body.get("error").and_then(Value::as_str) else {
            return by_status(status, "");
        };
        let code = body.get("code").and_then(Value::as_str).map(str::to_owned);
        ChannelResponse { code, ..by_text(status, text) }
    }
}

/// The id of the message within WhatsApp: the same for the same send, another for every other.
fn stanza_id(send_id: &str) -> String {
    let digest = Sha256::digest(send_id.as_bytes());
    let hex = data_encoding::HEXUPPER.encode(&digest[..ID_BYTES]);
    format!("{ID_PREFIX}{hex}")
}

fn cannot(why: &'static str) -> UnsupportedMessageError {
    UnsupportedMessageError { channel: NAME, why }
}

fn content(
    content: &MessageContent,
) -> Result<([&'static str; 2], Value), UnsupportedMessageError> {
    Ok(match content {
        MessageContent::Text(text) => (["send", "text"], json!({ "text": text.body })),
        MessageContent::Media(file) if file.kind == MediaKind::Sticker => {
            (["send", "sticker"], json!({ "sticker": link(NAME, file)? }))
        }
        MessageContent::Media(file) => (["send", "media"], media(file)?),
        MessageContent::Location(place) => (["send", "location"], location(place)?),
        MessageContent::Contacts(people) => (["send", "contact"], contact(people)?),
        MessageContent::Reaction(emoji) => (["message", "react"], reaction(emoji)),
        MessageContent::Template(_) => {
            return Err(cannot("has no templates; send them by whatsapp-cloud or evolution-api"));
        }
    })
}

fn media(file: &Media) -> Result<Value, UnsupportedMessageError> {
    let mut body = json!({ "url": link(NAME, file)?, "type": file.kind.as_str() });
    add(&mut body, "caption", file.caption.as_ref());
    add(&mut body, "filename", file.filename.as_ref());
    Ok(body)
}

fn location(place: &Location) -> Result<Value, UnsupportedMessageError> {
    let (Some(name), Some(address)) = (&place.name, &place.address) else {
        return Err(cannot("wants `name` and `address` of a location; write both"));
    };
    if place.latitude == 0.0 || place.longitude == 0.0 {
        return Err(cannot(
            "takes a latitude or longitude of 0 for a missing one; write 0.00001 instead",
        ));
    }
    Ok(json!({
        "latitude": place.latitude,
        "longitude": place.longitude,
        "name": name,
        "address": address,
    }))
}

fn contact(people: &[Contact]) -> Result<Value, UnsupportedMessageError> {
    let [person] = people else {
        return Err(cannot("sends one contact in a message; send one message for each"));
    };
    let mut vcard = json!({ "fullName": person.name, "phone": person.phone });
    add(&mut vcard, "organization", person.organization.as_ref());
    Ok(json!({ "vcard": vcard }))
}

fn reaction(reaction: &Reaction) -> Value {
    let emoji = if reaction.emoji.is_empty() { "remove" } else { &reaction.emoji };
    let from_me = reaction.from_me.unwrap_or_default();
    let mut body = json!({ "id": reaction.message_id, "reaction": emoji, "fromMe": from_me });
    add(&mut body, "participant", reaction.participant.as_ref());
    body
}

/// The message that is answered, and who wrote it: in a chat of two that is the other one.
fn quoted(message: &Message) -> Result<Option<Value>, UnsupportedMessageError> {
    let Some(reply) = &message.reply_to else { return Ok(None) };
    let author = match &reply.participant {
        Some(participant) => participant.clone(),
        None if message.to.is_group() => {
            return Err(cannot(
                "must be told who wrote the message that is answered in a group; write \
                 `reply_to` with `message_id` and `participant`",
            ));
        }
        None => message.to.jid().unwrap_or_default(),
    };
    Ok(Some(json!({ "messageId": reply.message_id, "participant": author })))
}

/// What follows from a text.
type Meaning = fn(&str) -> ChannelResponse;

/// The texts that are known, in lower case. The first that is found decides.
static TEXTS: &[(&str, Meaning)] = &[
    ("service not activated", holds),
    ("the store doesn't contain a device jid", holds),
    ("not authorized", holds),
    ("is not registered on whatsapp", nobody),
    ("invalid file format", refused),
    ("invalid media type", refused),
    ("could not parse phone", refused),
    ("could not parse formatted phone", refused),
    ("documentos não são suportados", refused),
    ("timed out waiting for message send response", ChannelResponse::ambiguous),
    ("server returned error", ChannelResponse::ambiguous),
    ("client disconnected", again),
    ("no active session found", again),
    ("failed to connect client", again),
    ("websocket not connected", again),
    ("info query timed out", again),
    ("failed to send ", again),
];

fn holds(text: &str) -> ChannelResponse {
    ChannelResponse::config(ErrorScope::Number, text)
}

fn nobody(text: &str) -> ChannelResponse {
    ChannelResponse::permanent(Unrecoverable, ErrorScope::Recipient, text)
}

fn refused(text: &str) -> ChannelResponse {
    ChannelResponse::permanent(PayloadError, ErrorScope::Message, text)
}

/// The instance is not connected: nothing passes until it is.
fn again(text: &str) -> ChannelResponse {
    ChannelResponse::transient(ErrorScope::Number, text)
}

fn by_text(status: u16, text: &str) -> ChannelResponse {
    let lower = text.to_lowercase();
    let known = TEXTS.iter().find(|(part, _)| lower.contains(part));
    match known {
        Some((_, meaning)) => meaning(text),
        // It says that something went wrong here, and the same id makes another try safe.
        None if status >= 500 => ChannelResponse::transient(ErrorScope::Message, text),
        None => by_status(status, text),
    }
}
