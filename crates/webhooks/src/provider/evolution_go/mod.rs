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
    BODY_BYTES_CEILING, EventKey, EventPart, MessageStatusUpdate, ParsedRequest, Provider,
    RefusalPolicy, SampleHeaders,
    fields::{EventReader, EventTemplate, FieldValues},
    secret_path,
};
use crate::{
    attribute::{
        AttributeName::{Account, MessageId, Phone, ProviderStatus},
        EventKind,
    },
    key::DedupKey,
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError,
        find_matching_secret,
    },
};

/// Its five attempts end within this time. A later reconnect has the same bytes and is a new event.
const CONTENT_WINDOW: Duration = Duration::from_secs(180);

const HEADERS: SampleHeaders =
    &[("content-type", "application/json"), ("user-agent", "Go-http-client/1.1")];

pub(super) static EVOLUTION_GO: Provider = Provider {
    name: "evolution-go",
    verifier: |secrets| {
        let (count, warnings) = (secrets.len(), secret_path::warnings(&secrets));
        let scheme = PathOrTokenScheme { secrets };
        Ok(Verifier::from_scheme(count, scheme).with_warnings(warnings))
    },
    // Attempts end after three minutes, so a wrong secret must not lose events. After each reconnect
    // WhatsApp sends missed messages again.
    on_refusal: RefusalPolicy::Keep,
    dedup_window: HumanDuration::from_secs(86_400),
    // Bodies may contain media.
    max_body_bytes: Some(BODY_BYTES_CEILING),
    parse_request: |request, _| ParsedRequest::Events(parse_events(request)),
    // `ReadSelf` and others concern the account's own devices.
    message_status: |kind, _| MessageStatusUpdate::parse(kind.strip_prefix("Receipt.")?),
    samples: &[
        sample!(HEADERS, "Message", "evolution_go/message.json"),
        sample!(HEADERS, "Message", "evolution_go/message_image.json"),
        sample!(HEADERS, "Message.edit", "evolution_go/message_edit.json"),
        sample!(HEADERS, "SendMessage", "evolution_go/send_message.json"),
        sample!(HEADERS, "Receipt.Delivered", "evolution_go/receipt_delivered.json"),
        // Three events: one receipt per message.
        sample!(HEADERS, "Receipt.Read", "evolution_go/receipt_read.json"),
        sample!(HEADERS, "Connected", "evolution_go/connected.json"),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event}"],
    ordering_key: &[
        "{/instanceId|/instanceName}:{/data/Info/Chat|/data/Chat|/data/From}",
        "{/instanceId|/instanceName}",
    ],
    attributes: &[
        (Phone, &["/data/Info/Chat", "/data/Chat"]),
        (Phone, &["/data/Sender", "/data/SenderAlt", "/data/From"]),
        (MessageId, &["/data/Info/ID", "/data/Message/protocolMessage/key/ID"]),
        (MessageId, &["/data/Message/reactionMessage/key/ID", "/data/quoted/stanzaID"]),
        (ProviderStatus, &["/state", "/data/status"]),
        (Account, &["/instanceId", "/instanceName", "/data/jid"]),
    ],
    extra_fields: &[
        "/data/Info/Sender",
        "/data/Info/SenderAlt",
        "/data/Info/IsFromMe",
        "/data/Info/Edit",
        "/data/IsEdit",
        "/data/IsUnavailable",
        "/data/Type",
    ],
    ..EventTemplate::EMPTY
});

static TOKEN: EventReader =
    EventReader::new(&EventTemplate { extra_fields: &["/instanceToken"], ..EventTemplate::EMPTY });

fn parse_events(request: &IncomingRequest<'_>) -> Vec<EventPart> {
    let found = EVENT.read(request);
    let mut event = EventPart { key: EventKey::ContentHash(CONTENT_WINDOW), ..found.event() };
    // The sender of a message from the account is the account itself.
    if !found.is_true("/data/Info/IsFromMe") {
        event.attributes.push_some(Phone, found.get("/data/Info/Sender"));
        event.attributes.push_some(Phone, found.get("/data/Info/SenderAlt"));
    }
    match found.get("/event") {
        Some("Message") => vec![message(&found, event)],
        Some("SendMessage") => {
            let key =
                found.key("evolution_go:{/instanceId|/instanceName}:{/event}:{/data/Info/ID}");
            vec![EventPart { key: known_or_content_hash(key), ..event }]
        }
        Some("Receipt") => receipt::parts(&found, &event, request.body),
        // Repeated presence updates have the same bytes.
        Some("Presence" | "ChatPresence") | None => {
            vec![EventPart { key: EventKey::None, ..event }]
        }
        Some(_) => vec![event],
    }
}

/// This key; without one, duplicates are recognized by their content.
fn known_or_content_hash(key: Option<DedupKey>) -> EventKey {
    key.map_or(EventKey::ContentHash(CONTENT_WINDOW), |key| EventKey::Known(key, "evolution-go:id"))
}

/// A view-once message comes as a placeholder first and may follow with the same id.
fn message(found: &FieldValues<'_>, event: EventPart) -> EventPart {
    let is_unavailable = found.is_true("/data/IsUnavailable");
    let edit = found.get("/data/Info/Edit").unwrap_or_default();
    let kind = match edit {
        _ if is_unavailable => "Message.unavailable",
        "7" | "8" => "Message.revoke",
        "1" => "Message.edit",
        _ if found.is_true("/data/IsEdit") => "Message.edit",
        _ => "Message",
    };
    let id = found.fill(
        "evolution_go:{/instanceId|/instanceName}:{/event}:{/data/Info/Chat}:{/data/Info/ID}",
    );
    let suffix = if is_unavailable { ":unavailable" } else { "" };
    let key = id.and_then(|id| DedupKey::new(&format!("{id}:{edit}{suffix}")));
    EventPart { kind: EventKind::new(kind), key: known_or_content_hash(key), ..event }
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

    fn signs_content(&self) -> bool {
        false
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        if let Some((index, _)) = secret_path::split_secret(&self.secrets, request.path) {
            return Ok(index);
        }
        match TOKEN.read_json(request.body).get("/instanceToken") {
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
