//! Evolution API (the Node.js server): the body is not signed; a request carries a shared secret.
//!
//! It sends an event up to ten times within half an hour, but does not retry after 400, 401, 403, 404
//! or 422. Requests that cannot be verified are therefore quarantined and answered with 503.

mod scheme;
#[cfg(test)]
mod tests;

use data_encoding::HEXLOWER;

use super::{
    BODY_BYTES_CEILING, EventKey, EventPart, MessageStatusUpdate, ParsedRequest, Provider,
    RefusalPolicy, SampleHeaders,
    fields::{EventReader, EventTemplate, FieldValues},
    secret_path,
};
use crate::{
    attribute::AttributeName::{Account, Error, MessageId, Phone, ProviderStatus},
    key::{DedupKey, fingerprint},
    request::IncomingRequest,
    verify::Verifier,
};

const HEADERS: SampleHeaders =
    &[("content-type", "application/json"), ("user-agent", "axios/1.7.9")];

pub(super) static EVOLUTION_API: Provider = Provider {
    name: "evolution-api",
    verifier: |secrets| {
        let (count, warnings) = (secrets.len(), secret_path::warnings(&secrets));
        let scheme = scheme::SharedSecretScheme::new(secrets);
        Ok(Verifier::from_scheme(count, scheme).with_warnings(warnings))
    },
    secret_header: Some(scheme::APIKEY),
    on_refusal: RefusalPolicy::Quarantine,
    // Bodies may contain media.
    max_body_bytes: Some(BODY_BYTES_CEILING),
    parse_request: |request, _| ParsedRequest::single(parse_event(request)),
    message_status: |kind, status| {
        MessageStatusUpdate::parse(status.filter(|_| kind == "messages.update")?)
    },
    samples: &[
        sample!(HEADERS, "messages.upsert", "evolution_api/messages_upsert.json"),
        sample!(HEADERS, "messages.upsert", "evolution_api/messages_upsert_image.json"),
        sample!(HEADERS, "messages.update", "evolution_api/messages_update.json"),
        sample!(HEADERS, "send.message", "evolution_api/send_message.json"),
        sample!(HEADERS, "connection.update", "evolution_api/connection_open.json"),
        sample!(HEADERS, "connection.update", "evolution_api/connection_close.json"),
    ],
    ..Provider::DEFAULT
};

/// `keyId` is the id of an updated message; `messageId` next to it is a database id.
static EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/event}"],
    ordering_key: &["{/instance}:{/data/key/remoteJid|/data/remoteJid}", "{/instance}"],
    attributes: &[
        (MessageId, &["/data/key/id", "/data/keyId", "/data/contextInfo/stanzaId"]),
        (MessageId, &["/data/message/reactionMessage/key/id"]),
        (Phone, &["/data/key/remoteJid", "/data/key/remoteJidAlt"]),
        (Phone, &["/data/key/participant", "/data/key/participantAlt", "/data/key/senderPn"]),
        (Phone, &["/data/remoteJid", "/data/participant"]),
        (ProviderStatus, &["/data/status", "/data/state"]),
        (Account, &["/instance", "/sender"]),
    ],
    extra_fields: &[
        "/date_time",
        "/data/key/fromMe",
        "/data/id",
        "/data/pollUpdates",
        "/data/statusReason",
        "/data/timestampMs",
    ],
    ..EventTemplate::EMPTY
});

/// Read separately: bodies may be large, and this is rarely needed.
static DATA: EventReader =
    EventReader::new(&EventTemplate { extra_fields: &["/data"], ..EventTemplate::EMPTY });

fn parse_event(request: &IncomingRequest<'_>) -> EventPart {
    let fields = EVENT.read(request);
    let mut event = fields.event();
    event.key = dedup_key(&fields, request);
    match fields.get("/event") {
        Some("messages.delete") => event.attributes.push_some(MessageId, fields.get("/data/id")),
        Some("connection.update") if fields.get("/data/state") == Some("close") => {
            event.attributes.push_some(Error, fields.get("/data/statusReason"));
        }
        Some(_) | None => {}
    }
    event
}

/// Ids are unique only within a chat, and several events share one id.
fn dedup_key(fields: &FieldValues<'_>, request: &IncomingRequest<'_>) -> EventKey {
    let (Some(scope), Some(event)) = (fields.fill("{/instance}:{/event}"), fields.get("/event"))
    else {
        return EventKey::None;
    };
    let id = match event {
        // Frequent, and only the latest one matters.
        "presence.update" => return EventKey::None,
        "messages.upsert" if fields.is_true("/data/key/fromMe") => {
            fields.fill("{/data/key/remoteJid}:{/data/key/id}:out")
        }
        "messages.upsert" => fields.fill("{/data/key/remoteJid}:{/data/key/id}:in"),
        // Each vote in a poll is an update with the same id and status.
        "messages.update" if fields.raw("/data/pollUpdates").is_none() => {
            fields.fill("{/data/keyId}:{/data/status}:{/data/participant|-}")
        }
        "send.message" => fields.fill("{/data/key/id}"),
        // The id is that of the original message, which may be edited again.
        "messages.edited" | "send.message.update" => {
            let time = fields.get("/data/timestampMs").or(fields.raw("/data/timestampMs"));
            fields.get("/data/key/id").zip(time).map(|(id, time)| format!("{id}:{time}").into())
        }
        "messages.delete" => fields.fill("{/data/id|/data/key/id}"),
        "connection.update" => fields.fill("{/data/state}:{/data/statusReason}:{/date_time}"),
        _ => None,
    };
    let (id, label) = match id {
        Some(id) => (id, "evolution-api:id"),
        // Without an id: the time, which is the same for all attempts, and a hash.
        None => {
            let time = fields.get("/date_time|-").unwrap_or_default();
            let data = DATA.read_json(request.body).raw("/data").unwrap_or("null");
            let hash = HEXLOWER.encode(&fingerprint(data.as_bytes()));
            (format!("{time}:{hash}").into(), "evolution-api:date_time")
        }
    };
    EventKey::known_or_none(DedupKey::new(&format!("evolution_api:{scope}:{id}")), label)
}
