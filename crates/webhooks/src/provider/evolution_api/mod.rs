//! Evolution API (the Node.js server): the body is not signed; a request carries a shared secret.
//!
//! It sends an event up to ten times within half an hour, but does not retry after 400, 401, 403, 404
//! or 422. Requests that cannot be verified are therefore quarantined and answered with 503.

mod scheme;
#[cfg(test)]
mod tests;

use data_encoding::HEXLOWER;
use surehook_types::secret::Secret;

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, RefusalPolicy, SampleEvent,
    fields::body_fields, secret_path,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::{DedupKey, fingerprint},
    provider::{BODY_BYTES_CEILING, MessageStatusUpdate},
    request::IncomingRequest,
    verify::{Verifier, VerifySpecError},
};

body_fields! {
    /// `keyId` is the id of an updated message; `messageId` next to it is a database id.
    static BODY {
        EVENT = "/event",
        INSTANCE = "/instance",
        DATE_TIME = "/date_time",
        OWN_JID = "/sender",
        KEY_ID = "/data/key/id",
        KEY_JID = "/data/key/remoteJid",
        KEY_JID_ALT = "/data/key/remoteJidAlt",
        KEY_FROM_ME = "/data/key/fromMe",
        KEY_PARTICIPANT = "/data/key/participant",
        KEY_PARTICIPANT_ALT = "/data/key/participantAlt",
        KEY_SENDER_PN = "/data/key/senderPn",
        UPDATE_ID = "/data/keyId",
        JID = "/data/remoteJid",
        PARTICIPANT = "/data/participant",
        DATA_ID = "/data/id",
        STATUS = "/data/status",
        POLL = "/data/pollUpdates",
        STATE = "/data/state",
        REASON = "/data/statusReason",
        EDITED_AT = "/data/timestampMs",
        QUOTED = "/data/contextInfo/stanzaId",
        REACTED_TO = "/data/message/reactionMessage/key/id",
    }
}

body_fields! {
    /// Read separately: bodies may be large, and this is rarely needed.
    static DATA {
        ALL_DATA = "/data",
    }
}

/// The chat of an event.
const CHAT: [usize; 2] = [KEY_JID, JID];

#[derive(Debug)]
pub(super) struct EvolutionApiPreset;

impl Provider for EvolutionApiPreset {
    fn name(&self) -> &'static str {
        "evolution-api"
    }

    fn secret_header(&self) -> Option<&'static str> {
        Some(scheme::APIKEY)
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let (count, warnings) = (secrets.len(), secret_path::warnings(&secrets));
        Ok(Verifier::from_scheme(Box::new(scheme::SharedSecretScheme::new(secrets)), count)
            .with_warnings(warnings))
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = BODY.read(request.body);
        ParsedRequest::single(EventPart {
            kind: found.get(EVENT).and_then(EventKind::new),
            key: key(&found, request.body),
            order: order(&found),
            attributes: attributes(&found),
            ..EventPart::default()
        })
    }

    /// Bodies may contain media.
    fn max_body_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES_CEILING)
    }

    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Quarantine
    }

    fn message_status(&self, kind: &str, status: Option<&str>) -> Option<MessageStatusUpdate> {
        MessageStatusUpdate::parse(status.filter(|_| kind == "messages.update")?)
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// Ids are unique only within a chat, and several events share one id.
fn key(found: &FieldValues<'_>, body: &[u8]) -> EventKey {
    let (Some(instance), Some(event)) = (found.get(INSTANCE), found.get(EVENT)) else {
        return EventKey::None;
    };
    let parts = match event {
        // Frequent, and only the latest one matters.
        "presence.update" => return EventKey::None,
        "messages.upsert" => {
            let direction = if found.is_true(KEY_FROM_ME) { "out" } else { "in" };
            found.get(KEY_JID).zip(found.get(KEY_ID)).map(|(chat, id)| vec![chat, id, direction])
        }
        // Each vote in a poll is an update with the same id and status.
        "messages.update" if found.raw(POLL).is_none() => {
            let participant = found.get(PARTICIPANT).unwrap_or("-");
            found
                .get(UPDATE_ID)
                .zip(found.get(STATUS))
                .map(|(id, status)| vec![id, status, participant])
        }
        "send.message" => found.get(KEY_ID).map(|id| vec![id]),
        // The id is that of the original message, which may be edited again.
        "messages.edited" | "send.message.update" => {
            let at = found.get(EDITED_AT).or(found.raw(EDITED_AT));
            found.get(KEY_ID).zip(at).map(|(id, at)| vec![id, at])
        }
        "messages.delete" => found.first(&[DATA_ID, KEY_ID]).map(|id| vec![id]),
        "connection.update" => {
            let state = found.get(STATE).zip(found.get(REASON)).zip(found.get(DATE_TIME));
            state.map(|((state, reason), at)| vec![state, reason, at])
        }
        _ => None,
    };
    match parts {
        Some(parts) => {
            let key = format!("evolution_api:{instance}:{event}:{}", parts.join(":"));
            EventKey::known(DedupKey::new(&key), "evolution-api:id")
        }
        None => by_content(instance, event, found, body),
    }
}

/// The key of an event without an id: `date_time`, which is the same for all attempts, and a hash.
fn by_content(instance: &str, event: &str, found: &FieldValues<'_>, body: &[u8]) -> EventKey {
    let at = found.get(DATE_TIME).unwrap_or("-");
    let data = DATA.read(body).raw(ALL_DATA).unwrap_or("null");
    let hash = HEXLOWER.encode(&fingerprint(data.as_bytes()));
    let key = format!("evolution_api:{instance}:{event}:{at}:{hash}");
    EventKey::known(DedupKey::new(&key), "evolution-api:date_time")
}

fn order(found: &FieldValues<'_>) -> Option<DedupKey> {
    let instance = found.get(INSTANCE)?;
    match found.first(&CHAT) {
        Some(chat) => DedupKey::new(&format!("{instance}:{chat}")),
        None => DedupKey::new(instance),
    }
}

fn attributes(found: &FieldValues<'_>) -> Attributes {
    let mut attributes = found.attributes(&[
        (AttributeName::MessageId, KEY_ID),
        (AttributeName::MessageId, UPDATE_ID),
        (AttributeName::MessageId, QUOTED),
        (AttributeName::MessageId, REACTED_TO),
        (AttributeName::Phone, KEY_JID),
        (AttributeName::Phone, KEY_JID_ALT),
        (AttributeName::Phone, KEY_PARTICIPANT),
        (AttributeName::Phone, KEY_PARTICIPANT_ALT),
        (AttributeName::Phone, KEY_SENDER_PN),
        (AttributeName::Phone, JID),
        (AttributeName::Phone, PARTICIPANT),
        (AttributeName::ProviderStatus, STATUS),
        (AttributeName::ProviderStatus, STATE),
        (AttributeName::Account, INSTANCE),
        (AttributeName::Account, OWN_JID),
    ]);
    match found.get(EVENT) {
        Some("messages.delete") => {
            attributes.push_some(AttributeName::MessageId, found.get(DATA_ID));
        }
        Some("connection.update") if found.get(STATE) == Some("close") => {
            attributes.push_some(AttributeName::Error, found.get(REASON));
        }
        Some(_) | None => {}
    }
    attributes
}

macro_rules! sample {
    ($kind:literal, $file:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[("content-type", "application/json"), ("user-agent", "axios/1.7.9")],
            target: "",
            body: include_str!(concat!("../samples/evolution_api/", $file, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("messages.upsert", "messages_upsert"),
    sample!("messages.upsert", "messages_upsert_image"),
    sample!("messages.update", "messages_update"),
    sample!("send.message", "send_message"),
    sample!("connection.update", "connection_open"),
    sample!("connection.update", "connection_close"),
];
