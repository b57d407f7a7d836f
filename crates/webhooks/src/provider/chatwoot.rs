//! Chatwoot: signed over timestamp and body. It sends each event once and never retries.

use surehook_types::{secret::Secret, time::HumanDuration};

use super::{
    EventKey, EventPart, FieldValues, ParsedRequest, Provider, RefusalPolicy, SampleEvent,
    fields::body_fields,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::DedupKey,
    request::IncomingRequest,
    verify::{HmacSpec, Verifier, VerifySpec, VerifySpecError},
};

/// A refused event is never sent again, so clocks may differ by this much.
const TOLERANCE: HumanDuration = HumanDuration::from_secs(900);
/// Unique per Chatwoot job: the same if the job runs again, different for two webhooks.
const DELIVERY: &str = "x-chatwoot-delivery";

body_fields! {
    /// `id` of a conversation is unique only within its account. `conversation.messages[0]` is the latest
    /// message, which may not be the one that the event is about.
    static BODY {
        EVENT = "/event",
        ID = "/id",
        ACCOUNT = "/account/id",
        SOURCE_ID = "/source_id",
        INBOX = "/inbox/id",
        INBOX_ID = "/inbox_id",
        UPDATED_AT = "/updated_at",
        STATUS = "/status",
        PHONE = "/phone_number",
        EMAIL = "/email",
        META_PHONE = "/meta/sender/phone_number",
        META_EMAIL = "/meta/sender/email",
        CONTACT_SOURCE = "/contact_inbox/source_id",
        CONVERSATION = "/conversation/id",
        CONVERSATION_INBOX = "/conversation/inbox_id",
        CONVERSATION_PHONE = "/conversation/meta/sender/phone_number",
        CONVERSATION_EMAIL = "/conversation/meta/sender/email",
        CONVERSATION_SOURCE = "/conversation/contact_inbox/source_id",
        LATEST_ID = "/conversation/messages/0/id",
        LATEST_STATUS = "/conversation/messages/0/status",
        LATEST_UPDATED_AT = "/conversation/messages/0/updated_at",
    }
}

#[derive(Debug)]
pub(super) struct Chatwoot;

impl Provider for Chatwoot {
    fn name(&self) -> &'static str {
        "chatwoot"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let spec = HmacSpec {
            prefix: "sha256=".to_owned(),
            template: "{timestamp}.{body}".to_owned(),
            timestamp_header: Some("x-chatwoot-timestamp".to_owned()),
            tolerance: TOLERANCE,
            ..HmacSpec::new("x-chatwoot-signature")
        };
        Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets)
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = BODY.read(request.body);
        ParsedRequest::single(EventPart {
            kind: found.get(EVENT).and_then(EventKind::new),
            key: key(&found, request.header(DELIVERY)),
            order: order(&found),
            attributes: attributes(&found),
            ..EventPart::default()
        })
    }

    /// Chatwoot does not retry; duplicates come from two webhooks or from a job that ran twice.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-chatwoot-signature", "x-chatwoot-timestamp"]
    }

    /// Chatwoot sends only once, so a wrong secret must not lose events.
    fn on_refusal(&self) -> RefusalPolicy {
        RefusalPolicy::Keep
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

fn is_conversation(event: &str) -> bool {
    event.starts_with("conversation_") && !event.starts_with("conversation_typing")
}

fn is_message(event: &str) -> bool {
    event.starts_with("message_")
}

/// Whether the event is about the latest message of the conversation.
fn is_latest(found: &FieldValues<'_>) -> bool {
    found.get(ID).is_some() && found.get(ID) == found.get(LATEST_ID)
}

fn key(found: &FieldValues<'_>, delivery: Option<&str>) -> EventKey {
    let Some(event) = found.get(EVENT) else { return EventKey::None };
    let account = found.get(ACCOUNT);
    let of = |scope: &str, parts: &[&str]| {
        DedupKey::new(&format!("chatwoot:{scope}:{event}:{}", parts.join(":")))
    };
    let by_id = match event {
        "message_created" | "contact_created" | "inbox_created" => {
            account.zip(found.get(ID)).and_then(|(account, id)| of(account, &[id]))
        }
        // Only the latest message has a version (`updated_at`). The status is not part of the key: it
        // changes together with the time.
        "message_updated" if is_latest(found) => {
            let message = account.zip(found.get(ID)).zip(found.get(LATEST_UPDATED_AT));
            message.and_then(|((account, id), at)| of(account, &[id, at]))
        }
        event if is_conversation(event) => {
            let conversation = found.get(INBOX_ID).zip(found.get(ID)).zip(found.get(UPDATED_AT));
            conversation.and_then(|((inbox, id), at)| of(inbox, &[id, at]))
        }
        _ => None,
    };
    if let Some(key) = by_id {
        return EventKey::Known(key, "chatwoot:id");
    }
    let scope = found.first(&[ACCOUNT, INBOX_ID, CONVERSATION_INBOX]).unwrap_or("-");
    let id = found.first(&[ID, CONVERSATION]).unwrap_or("-");
    let by_delivery = delivery.and_then(|delivery| of(scope, &[id, delivery]));
    EventKey::known(by_delivery, "chatwoot:x-chatwoot-delivery")
}

fn order(found: &FieldValues<'_>) -> Option<DedupKey> {
    let event = found.get(EVENT)?;
    let (scope, conversation) = if is_conversation(event) {
        (found.get(INBOX_ID)?, found.get(ID)?)
    } else {
        (found.first(&[ACCOUNT, CONVERSATION_INBOX])?, found.first(&[CONVERSATION, ID])?)
    };
    DedupKey::new(&format!("{scope}:{conversation}"))
}

fn attributes(found: &FieldValues<'_>) -> Attributes {
    let event = found.get(EVENT).unwrap_or_default();
    let id = match event {
        event if is_conversation(event) => AttributeName::Conversation,
        event if is_message(event) => AttributeName::MessageId,
        _ => AttributeName::Object,
    };
    let mut attributes = found.attributes(&[
        (id, ID),
        (AttributeName::Conversation, CONVERSATION),
        (AttributeName::MessageId, SOURCE_ID),
        (AttributeName::Phone, PHONE),
        (AttributeName::Phone, META_PHONE),
        (AttributeName::Phone, CONVERSATION_PHONE),
        (AttributeName::Phone, CONTACT_SOURCE),
        (AttributeName::Phone, CONVERSATION_SOURCE),
        (AttributeName::Email, EMAIL),
        (AttributeName::Email, META_EMAIL),
        (AttributeName::Email, CONVERSATION_EMAIL),
        (AttributeName::Account, ACCOUNT),
        (AttributeName::Account, INBOX),
        (AttributeName::Account, INBOX_ID),
        (AttributeName::ProviderStatus, STATUS),
    ]);
    if is_message(event) && is_latest(found) {
        attributes.push_some(AttributeName::ProviderStatus, found.get(LATEST_STATUS));
    }
    attributes
}

macro_rules! sample {
    ($kind:literal, $file:literal) => {
        SampleEvent {
            kind: $kind,
            headers: &[
                ("content-type", "application/json"),
                ("accept", "application/json"),
                (DELIVERY, "{{uuid}}"),
            ],
            target: "",
            body: include_str!(concat!("samples/chatwoot/", $file, ".json")),
        }
    };
}

static SAMPLES: &[SampleEvent] = &[
    sample!("message_created", "message_created_incoming"),
    sample!("message_created", "message_created_outgoing"),
    sample!("message_updated", "message_updated_status_delivered"),
    sample!("conversation_created", "conversation_created"),
    sample!("conversation_status_changed", "conversation_status_changed"),
];

#[cfg(test)]
mod tests {
    use surehook_types::time::Timestamp;

    use super::{
        super::testing::{attribute_pairs, headers, incoming, part, summary},
        *,
    };
    use crate::{request::OutgoingRequest, verify::VerifyError};

    const NAME: &str = "chatwoot";

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
        // (name, event, body, delivery header, expected key, expected ordering key)
        let cases: [(&str, &str, &str, &str, &str, &str); 12] = [
            (
                "a message",
                "message_created",
                &latest,
                "d",
                "chatwoot:3:message_created:90",
                "3:481",
            ),
            (
                "without a delivery",
                "message_created",
                &latest,
                "",
                "chatwoot:3:message_created:90",
                "3:481",
            ),
            (
                "the latest message",
                "message_updated",
                &latest,
                "d",
                "chatwoot:3:message_updated:90:T",
                "3:481",
            ),
            (
                "not the latest message",
                "message_updated",
                &later,
                "d",
                "chatwoot:3:message_updated:90:d",
                "3:481",
            ),
            ("no version", "message_updated", &later, "", "-", "3:481"),
            (
                "a conversation",
                "conversation_created",
                conversation,
                "d",
                "chatwoot:12:conversation_created:481:17.02",
                "12:481",
            ),
            (
                "a change of it",
                "conversation_updated",
                conversation,
                "",
                "chatwoot:12:conversation_updated:481:17.02",
                "12:481",
            ),
            (
                "a contact",
                "contact_created",
                r#""account":{"id":3},"id":77"#,
                "",
                "chatwoot:3:contact_created:77",
                "3:77",
            ),
            (
                "a change of it",
                "contact_updated",
                r#""account":{"id":3},"id":77"#,
                "d",
                "chatwoot:3:contact_updated:77:d",
                "3:77",
            ),
            (
                "typing",
                "conversation_typing_on",
                r#""conversation":{"id":481,"inbox_id":12}"#,
                "d",
                "chatwoot:12:conversation_typing_on:481:d",
                "12:481",
            ),
            (
                "a visit",
                "webwidget_triggered",
                r#""id":null"#,
                "d",
                "chatwoot:-:webwidget_triggered:-:d",
                "-",
            ),
            ("unknown event", "new_thing", r#""id":1"#, "", "-", "-"),
        ];
        for (case, event, body, delivery, expected_key, expected_order) in cases {
            let body = format!(r#"{{{body},"event":"{event}"}}"#);
            let sent = [(DELIVERY, delivery)];
            let sent: &[_] = if delivery.is_empty() { &[] } else { &sent };
            let actual = summary(NAME, sent, &body);
            assert_eq!(actual, [event, expected_key, expected_order], "{case}");
        }
        assert_eq!(part(NAME, &[(DELIVERY, "d")], "not json").key, EventKey::None);
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
        let verifier = Chatwoot.verifier(vec![Secret::new("cwsec_8kQ2mZ")]).unwrap();
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
