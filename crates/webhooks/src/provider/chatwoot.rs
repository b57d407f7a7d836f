//! Chatwoot: signed over timestamp and body. It sends each event once and never retries.

use surehook_types::time::HumanDuration;

use super::{
    EventKey, EventPart, ParsedRequest, Provider, RefusalPolicy, SampleHeaders,
    fields::{EventReader, EventTemplate},
};
use crate::{
    attribute::{
        AttributeName::{Account, Conversation, Email, MessageId, Object, Phone, ProviderStatus},
        Attributes, EventKind,
    },
    request::IncomingRequest,
    verify::{HmacSpec, Verifier},
};

/// A refused event is never sent again, so clocks may differ by this much.
const TOLERANCE: HumanDuration = HumanDuration::from_secs(900);

const HEADERS: SampleHeaders = &[
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("x-chatwoot-delivery", "{{uuid}}"),
];

pub(super) static CHATWOOT: Provider = Provider {
    name: "chatwoot",
    verifier: |secrets| {
        let spec = HmacSpec {
            prefix: "sha256=".to_owned(),
            template: "{timestamp}.{body}".to_owned(),
            timestamp_header: Some("x-chatwoot-timestamp".to_owned()),
            tolerance: TOLERANCE,
            ..HmacSpec::new("x-chatwoot-signature")
        };
        Verifier::hmac(spec, secrets)
    },
    signature_headers: &["x-chatwoot-signature", "x-chatwoot-timestamp"],
    // Chatwoot sends only once, so a wrong secret must not lose events. Duplicates come from two
    // webhooks or from a job that ran twice.
    on_refusal: RefusalPolicy::Keep,
    dedup_window: HumanDuration::from_secs(86_400),
    parse_request: |request, _| ParsedRequest::single(parse_event(request)),
    samples: &[
        sample!(HEADERS, "message_created", "chatwoot/message_created_incoming.json"),
        sample!(HEADERS, "message_created", "chatwoot/message_created_outgoing.json"),
        sample!(HEADERS, "message_updated", "chatwoot/message_updated_status_delivered.json"),
        sample!(HEADERS, "conversation_created", "chatwoot/conversation_created.json"),
        sample!(
            HEADERS,
            "conversation_status_changed",
            "chatwoot/conversation_status_changed.json"
        ),
    ],
    ..Provider::DEFAULT
};

static EVENT: EventReader = EventReader::new(&EventTemplate {
    attributes: &[
        (Conversation, &["/conversation/id"]),
        (MessageId, &["/source_id"]),
        (Phone, &["/phone_number", "/meta/sender/phone_number"]),
        (Phone, &["/conversation/meta/sender/phone_number"]),
        (Phone, &["/contact_inbox/source_id", "/conversation/contact_inbox/source_id"]),
        (Email, &["/email", "/meta/sender/email", "/conversation/meta/sender/email"]),
        (Account, &["/account/id", "/inbox/id", "/inbox_id"]),
        (ProviderStatus, &["/status"]),
    ],
    extra_fields: &[
        KEY_BY_ID,
        KEY_BY_MESSAGE_VERSION,
        KEY_BY_CONVERSATION_VERSION,
        KEY_BY_DELIVERY,
        "/conversation/messages/0/id",
        "/conversation/messages/0/status",
    ],
    ..EventTemplate::EMPTY
});

const KEY_BY_ID: &str = "chatwoot:{/account/id}:{/event}:{/id}";
/// Only the latest message has a version (`updated_at`). The status is not part of the key: it changes
/// together with the time.
const KEY_BY_MESSAGE_VERSION: &str =
    "chatwoot:{/account/id}:{/event}:{/id}:{/conversation/messages/0/updated_at}";
/// The id of a conversation is unique only within its account.
const KEY_BY_CONVERSATION_VERSION: &str = "chatwoot:{/inbox_id}:{/event}:{/id}:{/updated_at}";
/// The delivery is unique per Chatwoot job: the same if the job runs again, different for two webhooks.
const KEY_BY_DELIVERY: &str = "chatwoot:{/account/id|/inbox_id|/conversation/inbox_id|-}\
     :{/event}:{/id|/conversation/id|-}:{x-chatwoot-delivery}";

fn parse_event(request: &IncomingRequest<'_>) -> EventPart {
    let found = EVENT.read(request);
    let event = found.get("/event").unwrap_or_default();
    let is_message = event.starts_with("message_");
    let is_conversation =
        event.starts_with("conversation_") && !event.starts_with("conversation_typing");
    // `conversation.messages[0]` is the latest message, which may not be the one of this event.
    let id = found.get("/id");
    let is_latest = id.is_some() && id == found.get("/conversation/messages/0/id");
    let key = match event {
        "message_created" | "contact_created" | "inbox_created" => found.key(KEY_BY_ID),
        "message_updated" if is_latest => found.key(KEY_BY_MESSAGE_VERSION),
        _ if is_conversation => found.key(KEY_BY_CONVERSATION_VERSION),
        _ => None,
    };
    let ordering_key = match event {
        "" => None,
        _ if is_conversation => found.key("{/inbox_id}:{/id}"),
        _ => found.key("{/account/id|/conversation/inbox_id}:{/conversation/id|/id}"),
    };
    let mut attributes = Attributes::default();
    let id_name = match event {
        _ if is_conversation => Conversation,
        _ if is_message => MessageId,
        _ => Object,
    };
    attributes.push_some(id_name, id);
    found.add_attributes(&mut attributes);
    if is_message && is_latest {
        attributes.push_some(ProviderStatus, found.get("/conversation/messages/0/status"));
    }
    EventPart {
        kind: EventKind::new(event),
        key: match key {
            Some(key) => EventKey::Known(key, "chatwoot:id"),
            None => EventKey::Unsigned(found.key(KEY_BY_DELIVERY), "chatwoot:x-chatwoot-delivery"),
        },
        ordering_key,
        attributes,
        ..EventPart::default()
    }
}

#[cfg(test)]
mod tests {
    use surehook_types::{secret::Secret, time::Timestamp};

    use super::{
        super::testing::{attribute_pairs, headers, incoming, part, rows, summary},
        *,
    };
    use crate::{request::OutgoingRequest, verify::VerifyError};

    const NAME: &str = "chatwoot";
    const DELIVERY: &str = "x-chatwoot-delivery";

    #[test]
    fn each_event_kind_has_its_key() {
        let message = |latest: &str| {
            format!(
                r#""account":{{"id":3}},"id":90,"inbox":{{"id":12}},"source_id":"wamid.x","conversation":{{"id":481,"inbox_id":12,"messages":[{{"id":{latest},"status":"read","updated_at":"T"}}]}}"#
            )
        };
        let (latest, later) = (message("90"), message("91"));
        let conversation =
            r#""id":481,"inbox_id":12,"status":"open","updated_at":17.02,"messages":[{"id":90}]"#;
        // Case, event, body, delivery header, expected key and ordering key.
        let table = r#"
        a message | message_created | $LATEST | d | chatwoot:3:message_created:90 | 3:481
        without a delivery | message_created | $LATEST | | chatwoot:3:message_created:90 | 3:481
        the latest message | message_updated | $LATEST | d | chatwoot:3:message_updated:90:T | 3:481
        not the latest message | message_updated | $LATER | d | chatwoot:3:message_updated:90:d | 3:481
        no version | message_updated | $LATER | | - | 3:481
        a conversation | conversation_created | $CONVERSATION | d | chatwoot:12:conversation_created:481:17.02 | 12:481
        a change of it | conversation_updated | $CONVERSATION | | chatwoot:12:conversation_updated:481:17.02 | 12:481
        a contact | contact_created | "account":{"id":3},"id":77 | | chatwoot:3:contact_created:77 | 3:77
        a change of it | contact_updated | "account":{"id":3},"id":77 | d | chatwoot:3:contact_updated:77:d | 3:77
        typing | conversation_typing_on | "conversation":{"id":481,"inbox_id":12} | d | chatwoot:12:conversation_typing_on:481:d | 12:481
        a visit | webwidget_triggered | "id":null | d | chatwoot:-:webwidget_triggered:-:d | -
        unknown event | new_thing | "id":1 | | - | -
        "#;
        let table = table.replace("$LATEST", &latest).replace("$LATER", &later);
        for row in rows(&table.replace("$CONVERSATION", conversation)) {
            let [case, event, body, delivery, key, order] = row[..] else { panic!("{row:?}") };
            let body = format!(r#"{{{body},"event":"{event}"}}"#);
            let sent = [(DELIVERY, delivery)];
            let sent: &[_] = if delivery.is_empty() { &[] } else { &sent };
            assert_eq!(summary(NAME, sent, &body), [event, key, order], "{case}");
        }
        let key = part(NAME, &[(DELIVERY, "d")], "not json").key;
        assert_eq!(key, EventKey::Unsigned(None, "chatwoot:x-chatwoot-delivery"));
    }

    #[test]
    fn attributes_include_message_and_contact() {
        let body = r#"{"account":{"id":3},"id":90,"inbox":{"id":12},"source_id":"wamid.x","event":"message_updated","sender":{"email":"agent@example.com"},"conversation":{"id":481,"meta":{"sender":{"phone_number":"+5511987654321","email":"a@b.c"}},"contact_inbox":{"source_id":"5511987654321"},"status":"open","messages":[{"id":90,"status":"delivered"}]}}"#;
        assert_eq!(
            attribute_pairs(NAME, &[], body),
            [
                "message_id=90",
                "message_id=wamid.x",
                "conversation=481",
                "phone=5511987654321",
                "email=a@b.c",
                "account=3",
                "account=12",
                "provider_status=delivered",
            ]
        );
    }

    #[test]
    fn timestamp_within_fifteen_minutes_is_accepted() {
        let verifier = CHATWOOT.verifier(vec![Secret::new("cwsec_8kQ2mZ")]).unwrap();
        let now = Timestamp::from_millis(1_779_024_000_000);
        let empty = headers(&[]);
        let outgoing = OutgoingRequest { id: "", url: "", headers: &empty, body: b"{}" };
        let signed = verifier.sign(&outgoing, now).unwrap();
        let pairs: Vec<_> =
            signed.headers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let sent = headers(&pairs);
        for (late, is_good) in [(0, true), (-900, true), (900, true), (901, false), (-901, false)] {
            let at = Timestamp::from_millis(now.as_millis() + late * 1000);
            let verified = verifier.verify(&incoming(&sent, "{}"), at);
            assert_eq!(verified.is_ok(), is_good, "{late} s");
        }
        let unsigned = verifier.verify(&incoming(&empty, "{}"), now);
        assert!(matches!(unsigned, Err(VerifyError::MissingSignature { .. })));
    }
}
