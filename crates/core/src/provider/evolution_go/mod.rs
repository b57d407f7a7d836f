//! Evolution Go: no signature, no headers; a receipt may be for many messages.
//!
//! A request shows the secret as the first part of its path, or has as `instanceToken` in its body
//! one of the secrets. Neither says anything about the rest of the body.

mod receipt;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, RefusalPolicy, SampleEvent,
    fields::places, secret_path,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    channel::MessageStatusUpdate,
    key::DedupKey,
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    source::BODY_BYTES_CEILING,
    time::{HumanDuration, Timestamp},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        matching_secret,
    },
};

/// Its five attempts are over by then. Whoever connects again later says the same in every byte.
const CONTENT_WINDOW: Duration = Duration::from_secs(180);

places! {
    static BODY {
        EVENT = "/event",
        INSTANCE_ID = "/instanceId",
        INSTANCE_NAME = "/instanceName",
        STATE = "/state",
        ID = "/data/Info/ID",
        INFO_CHAT = "/data/Info/Chat",
        INFO_SENDER = "/data/Info/Sender",
        INFO_SENDER_ALT = "/data/Info/SenderAlt",
        IS_FROM_ME = "/data/Info/IsFromMe",
        EDIT = "/data/Info/Edit",
        IS_EDIT = "/data/IsEdit",
        IS_UNAVAILABLE = "/data/IsUnavailable",
        ORIGINAL_ID = "/data/Message/protocolMessage/key/ID",
        REACTED_TO = "/data/Message/reactionMessage/key/ID",
        QUOTED = "/data/quoted/stanzaID",
        CHAT = "/data/Chat",
        SENDER = "/data/Sender",
        SENDER_ALT = "/data/SenderAlt",
        PRESENT = "/data/From",
        TYPE = "/data/Type",
        STATUS = "/data/status",
        OWN_JID = "/data/jid",
    }
}

places! {
    static TOKEN {
        INSTANCE_TOKEN = "/instanceToken",
    }
}

#[derive(Debug)]
pub(super) struct EvolutionGo;

impl Provider for EvolutionGo {
    fn name(&self) -> &'static str {
        "evolution-go"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let (many, warnings) = (secrets.len(), secret_path::warnings(&secrets));
        Ok(Verifier::own(Box::new(PathOrToken { secrets }), many).warning(warnings))
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = BODY.read(request.body);
        let part = EventPart {
            kind: found.get(EVENT).and_then(EventKind::new),
            key: EventKey::ContentHash(CONTENT_WINDOW),
            order: order(&found),
            attributes: attributes(&found),
            ..EventPart::default()
        };
        match found.get(EVENT) {
            Some("Message") => ParsedRequest::one(message(&found, part)),
            Some("SendMessage") => {
                let key = found.get(ID).and_then(|id| key(&found, "SendMessage", &[id]));
                ParsedRequest::one(EventPart { key: known(key), ..part })
            }
            Some("Receipt") => ParsedRequest::Events(receipt::parts(&found, &part, request.body)),
            // Somebody who types again does so in the same bytes.
            Some("Presence" | "ChatPresence") | None => {
                ParsedRequest::one(EventPart { key: EventKey::None, ..part })
            }
            Some(_) => ParsedRequest::one(part),
        }
    }

    /// Its attempts are over after three minutes. Messages come again later too: with every new
    /// connection it is told what it missed.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(86_400)
    }

    /// Media may stand in the body.
    fn max_body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES_CEILING)
    }

    /// It sends once, or little more: a wrong secret must not lose what came meanwhile.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Keep
    }

    /// `ReadSelf` and others are about our own devices.
    fn message_status(&self, kind: &str, _: Option<&str>) -> Option<MessageStatusUpdate> {
        MessageStatusUpdate::from_word(kind.strip_prefix("Receipt.")?)
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

fn instance<'f>(found: &'f FieldValues<'_>) -> Option<&'f str> {
    found.first(&[INSTANCE_ID, INSTANCE_NAME])
}

fn key(found: &FieldValues<'_>, event: &str, parts: &[&str]) -> Option<DedupKey> {
    let instance = instance(found)?;
    DedupKey::new(&format!("evolution_go:{instance}:{event}:{}", parts.join(":")))
}

/// By what is known of it, or else by its content.
fn known(key: Option<DedupKey>) -> EventKey {
    key.map_or(EventKey::ContentHash(CONTENT_WINDOW), |key| EventKey::Known(key, "evolution-go:id"))
}

fn order(found: &FieldValues<'_>) -> Option<DedupKey> {
    let instance = instance(found)?;
    match found.first(&[INFO_CHAT, CHAT, PRESENT]) {
        Some(chat) => DedupKey::new(&format!("{instance}:{chat}")),
        None => DedupKey::new(instance),
    }
}

/// A message that can be seen once comes as a placeholder first, and may follow with the same id.
fn message(found: &FieldValues<'_>, part: EventPart) -> EventPart {
    let is_unavailable = found.is_true(IS_UNAVAILABLE);
    let edit = found.get(EDIT).unwrap_or_default();
    let kind = match edit {
        _ if is_unavailable => "Message.unavailable",
        "7" | "8" => "Message.revoke",
        "1" => "Message.edit",
        _ if found.is_true(IS_EDIT) => "Message.edit",
        _ => "Message",
    };
    let key = found.get(INFO_CHAT).zip(found.get(ID)).and_then(|(chat, id)| {
        let parts = [chat, id, edit, "unavailable"];
        key(found, "Message", &parts[..if is_unavailable { 4 } else { 3 }])
    });
    EventPart { kind: EventKind::new(kind), key: known(key), ..part }
}

fn attributes(found: &FieldValues<'_>) -> Attributes {
    let mut attributes = Attributes::default();
    // Of what we sent, the sender is ourselves.
    let senders: &[usize] =
        if found.is_true(IS_FROM_ME) { &[] } else { &[INFO_SENDER, INFO_SENDER_ALT] };
    for place in [&[INFO_CHAT, CHAT, SENDER, SENDER_ALT, PRESENT], senders].concat() {
        attributes.push_some(AttributeName::Phone, found.get(place));
    }
    for (name, place) in [
        (AttributeName::MessageId, ID),
        (AttributeName::MessageId, ORIGINAL_ID),
        (AttributeName::MessageId, REACTED_TO),
        (AttributeName::MessageId, QUOTED),
        (AttributeName::ProviderStatus, STATE),
        (AttributeName::ProviderStatus, STATUS),
        (AttributeName::Account, INSTANCE_ID),
        (AttributeName::Account, INSTANCE_NAME),
        (AttributeName::Account, OWN_JID),
    ] {
        attributes.push_some(name, found.get(place));
    }
    attributes
}

/// Looks for a secret in the path, and then in the body.
#[derive(Debug)]
struct PathOrToken {
    secrets: Vec<Secret>,
}

impl VerificationScheme for PathOrToken {
    fn name(&self) -> &'static str {
        "shared-secret"
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        if let Some((index, _)) = secret_path::take(&self.secrets, request.path) {
            return Ok(index);
        }
        let found = TOKEN.read(request.body);
        match found.get(INSTANCE_TOKEN) {
            Some(token) => {
                matching_secret(&self.secrets, token.as_bytes()).ok_or(VerifyError::Mismatch)
            }
            None if secret_path::is_shown(request.path) => Err(VerifyError::Mismatch),
            None => Err(VerifyError::MissingSecret),
        }
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Ok(RequestSignature {
            path: secret_path::put(&self.secrets)?,
            ..RequestSignature::default()
        })
    }

    fn path_without_secret<'p>(&self, path: &'p str) -> Option<&'p str> {
        secret_path::take(&self.secrets, path).map(|(_, rest)| rest)
    }
}

macro_rules! sample {
    ($kind:literal, $file:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[("content-type", "application/json"), ("user-agent", "Go-http-client/1.1")],
            target: "",
            body: include_str!(concat!("../samples/evolution_go/", $file, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("Message", "message"),
    sample!("Message", "message_image"),
    sample!("Message.edit", "message_edit"),
    sample!("SendMessage", "send_message"),
    sample!("Receipt.Delivered", "receipt_delivered"),
    // Three events: a receipt for each message.
    sample!("Receipt.Read", "receipt_read"),
    sample!("Connected", "connected"),
];
