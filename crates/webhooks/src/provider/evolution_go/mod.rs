//! Evolution Go: no signature and no headers; a receipt may be for several messages.
//!
//! A request carries the secret as the first path segment, or as `instanceToken` in its body. Neither
//! covers the rest of the body.

mod receipt;
#[cfg(test)]
mod tests;

use std::time::Duration;

use surehook_types::{
    secret::Secret,
    time::{HumanDuration, Timestamp},
};

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, RefusalPolicy, SampleEvent,
    fields::body_fields, secret_path,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::DedupKey,
    provider::{BODY_BYTES_CEILING, MessageStatusUpdate},
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        find_matching_secret,
    },
};

/// Its five attempts end within this time. A later reconnect has the same bytes and is a new event.
const CONTENT_WINDOW: Duration = Duration::from_secs(180);

body_fields! {
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

body_fields! {
    static TOKEN {
        INSTANCE_TOKEN = "/instanceToken",
    }
}

#[derive(Debug)]
pub(super) struct EvolutionGoPreset;

impl Provider for EvolutionGoPreset {
    fn name(&self) -> &'static str {
        "evolution-go"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let (count, warnings) = (secrets.len(), secret_path::warnings(&secrets));
        Ok(Verifier::from_scheme(Box::new(PathOrTokenScheme { secrets }), count)
            .with_warnings(warnings))
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
            Some("Message") => ParsedRequest::single(message(&found, part)),
            Some("SendMessage") => {
                let key = found.get(ID).and_then(|id| key(&found, "SendMessage", &[id]));
                ParsedRequest::single(EventPart { key: known(key), ..part })
            }
            Some("Receipt") => ParsedRequest::Events(receipt::parts(&found, &part, request.body)),
            // Repeated presence updates have the same bytes.
            Some("Presence" | "ChatPresence") | None => {
                ParsedRequest::single(EventPart { key: EventKey::None, ..part })
            }
            Some(_) => ParsedRequest::single(part),
        }
    }

    /// Attempts end after three minutes, but after each reconnect WhatsApp sends missed messages again.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(86_400)
    }

    /// Bodies may contain media.
    fn max_body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES_CEILING)
    }

    /// Evolution Go hardly retries, so a wrong secret must not lose events.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Keep
    }

    /// `ReadSelf` and others concern the account's own devices.
    fn message_status(&self, kind: &str, _: Option<&str>) -> Option<MessageStatusUpdate> {
        MessageStatusUpdate::parse(kind.strip_prefix("Receipt.")?)
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

/// The known key, or else the content hash.
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

/// A view-once message comes as a placeholder first and may follow with the same id.
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
    // The sender of a message from the account is the account itself.
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

/// Accepts a secret in the path or in the body.
#[derive(Debug)]
struct PathOrTokenScheme {
    secrets: Vec<Secret>,
}

impl VerificationScheme for PathOrTokenScheme {
    fn name(&self) -> &'static str {
        "shared-secret"
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        if let Some((index, _)) = secret_path::split_secret(&self.secrets, request.path) {
            return Ok(index);
        }
        let found = TOKEN.read(request.body);
        match found.get(INSTANCE_TOKEN) {
            Some(token) => {
                find_matching_secret(&self.secrets, token.as_bytes()).ok_or(VerifyError::Mismatch)
            }
            None if secret_path::has_candidate(request.path) => Err(VerifyError::Mismatch),
            None => Err(VerifyError::MissingSecret),
        }
    }

    fn sign(&self, _: &OutgoingRequest<'_>, _: Timestamp) -> Result<RequestSignature, SignError> {
        Ok(RequestSignature {
            path: secret_path::path_with_secret(&self.secrets)?,
            ..RequestSignature::default()
        })
    }

    fn path_without_secret<'p>(&self, path: &'p str) -> Option<&'p str> {
        secret_path::split_secret(&self.secrets, path).map(|(_, rest)| rest)
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
    // Three events: one receipt per message.
    sample!("Receipt.Read", "receipt_read"),
    sample!("Connected", "connected"),
];
