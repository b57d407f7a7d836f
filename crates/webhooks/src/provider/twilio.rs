//! Twilio: messages, calls and their statuses as web forms; other products send JSON.

mod scheme;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

use http::StatusCode;
use serde_json::value::RawValue;
use surehook_types::{secret::Secret, time::HumanDuration};
use url::form_urlencoded;

use self::scheme::TwilioScheme;
use super::{
    EventKey, EventPart, MessageStatusUpdate, ParsedRequest, Provider, ProviderReply,
    RefusalPolicy, SampleEvent,
    fields::{EventReader, EventTemplate},
    form, raw_json,
};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::{DedupKey, scalar_text},
    request::IncomingRequest,
    verify::Verifier,
};

/// The same for all attempts of one request.
const TOKEN: &str = "i-twilio-idempotency-token";

pub(super) static TWILIO: Provider = Provider {
    name: "twilio",
    verifier: |secrets| Ok(Verifier::from_scheme(secrets.len(), TwilioScheme(secrets))),
    signature_headers: &["x-twilio-signature"],
    // Twilio retries once, or as configured in the URL, within minutes. So a wrong secret must not
    // lose events.
    dedup_window: HumanDuration::from_secs(2 * 86_400),
    on_refusal: RefusalPolicy::Keep,
    parse_request,
    success_reply: |request| Some(success_reply(request)),
    message_status: |kind, _| MessageStatusUpdate::parse(kind.strip_prefix("message.status.")?),
    samples: &[
        sample(
            "message.received",
            "SmsMessageSid=SM{{id}}&NumMedia=0&ProfileName=Ana&MessageType=text&SmsSid=SM{{id}}&WaId={{phone}}&SmsStatus=received&Body=Is+it+still+there%3F&To=whatsapp%3A%2B14155238886&NumSegments=1&MessageSid=SM{{id}}&AccountSid=AC00000000000000000000000000000000&From=whatsapp%3A%2B{{phone}}&ApiVersion=2010-04-01",
        ),
        sample(
            "message.status.delivered",
            "SmsSid=SM{{id}}&SmsStatus=delivered&MessageStatus=delivered&To=whatsapp%3A%2B{{phone}}&MessageSid=SM{{id}}&AccountSid=AC00000000000000000000000000000000&From=whatsapp%3A%2B14155238886&ApiVersion=2010-04-01",
        ),
        sample(
            "message.status.failed",
            "ErrorCode=63016&SmsSid=SM{{id}}&SmsStatus=failed&MessageStatus=failed&To=whatsapp%3A%2B{{phone}}&MessageSid=SM{{id}}&AccountSid=AC00000000000000000000000000000000&From=whatsapp%3A%2B14155238886&ApiVersion=2010-04-01",
        ),
        sample(
            "call.completed",
            "CallSid=CA{{id}}&CallStatus=completed&CallDuration=42&SequenceNumber=3&CallbackSource=call-progress-events&Direction=inbound&AccountSid=AC00000000000000000000000000000000&From=%2B{{phone}}&To=%2B14155238886&ApiVersion=2010-04-01",
        ),
        // Of Event Streams; signed by its hash in the URL.
        SampleEvent::json(
            "com.twilio.messaging.message.sent",
            r#"[{"specversion":"1.0","type":"com.twilio.messaging.message.sent","source":"/2010-04-01/Accounts/AC00000000000000000000000000000000/Messages/SM{{id}}","id":"EZ{{id}}","dataschema":"https://events-schemas.twilio.com/Messaging.MessageStatus/5","datacontenttype":"application/json","time":"{{now_iso}}","data":{"accountSid":"AC00000000000000000000000000000000","messageSid":"SM{{id}}","messageStatus":"SENT","to":"+{{phone}}","from":"+14155238886"}}]"#,
        ),
    ],
    ..Provider::DEFAULT
};

/// An item of an Event Streams array.
static STREAM_EVENT: EventReader = EventReader::new(&EventTemplate {
    kind: &["{/type}"],
    key: &["twilio:{/id}"],
    key_label: "twilio:id",
    ordering_key: &["{/data/messageSid}"],
    attributes: &[
        (AttributeName::Account, &["/data/accountSid"]),
        (AttributeName::MessageId, &["/data/messageSid"]),
        (AttributeName::Phone, &["/data/to", "/data/from"]),
        (AttributeName::ProviderStatus, &["/data/messageStatus"]),
    ],
    ..EventTemplate::EMPTY
});

const fn sample(kind: &'static str, body: &'static str) -> SampleEvent {
    let headers = &[
        ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
        ("i-twilio-idempotency-token", "{{uuid}}"),
    ];
    SampleEvent::new(kind, headers, body)
}

fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    if form::is_form(request.headers) {
        return ParsedRequest::single(TwilioFields::of_form(request.body).part(request));
    }
    let parts = raw_json::split_array(request.body, |item| STREAM_EVENT.read_json(item).event());
    ParsedRequest::Events(
        parts.unwrap_or_else(|| vec![TwilioFields::of_json(request.body).part(request)]),
    )
}

/// A text reply to a message would be sent to its author, and a reply to a call that is not `TwiML`
/// ends it with an error. Empty `TwiML` does nothing.
fn success_reply(request: &IncomingRequest<'_>) -> ProviderReply {
    let wants_twiml = form::is_form(request.headers)
        && TwilioFields::of_form(request.body).get("EventType").is_none();
    if wants_twiml {
        ProviderReply { content_type: Some("text/xml"), ..ProviderReply::text("<Response/>") }
    } else {
        ProviderReply::empty(StatusCode::OK)
    }
}

/// The fields of a form, or of a JSON object with the same names.
struct TwilioFields<'b>(Vec<(Cow<'b, str>, Cow<'b, str>)>);

impl<'b> TwilioFields<'b> {
    fn of_form(body: &'b [u8]) -> Self {
        Self(form_urlencoded::parse(body).collect())
    }

    /// The strings and numbers of an object; anything else has no fields.
    fn of_json(body: &'b [u8]) -> Self {
        let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
        let texts = members
            .into_iter()
            .filter_map(|(name, value)| Some((Cow::Owned(name), scalar_text(value)?)));
        Self(texts.collect())
    }

    /// By name in any case: JSON also has `messageSid`.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(found.1.as_ref()).filter(|value| !value.trim().is_empty())
    }

    fn part(&self, request: &IncomingRequest<'_>) -> EventPart {
        let account = self.get("AccountSid");
        // Conversations and other products send an event type and the message it is about.
        if let Some(event) = self.get("EventType") {
            return EventPart {
                kind: EventKind::new(event),
                key: EventKey::Unsigned(token_key(request, account), TOKEN),
                ordering_key: self.get("ConversationSid").and_then(DedupKey::new),
                attributes: self.attributes(self.get("Author")),
                ..EventPart::default()
            };
        }
        if let Some(message) = self.get("MessageSid").or_else(|| self.get("SmsSid")) {
            return self.message(account, message);
        }
        if let Some(call) = self.get("CallSid") {
            return self.call(request, account, call);
        }
        EventPart {
            key: EventKey::Unsigned(token_key(request, account), TOKEN),
            attributes: self.attributes(None),
            ..EventPart::default()
        }
    }

    /// An incoming message, or the status of a sent one.
    fn message(&self, account: Option<&str>, message: &str) -> EventPart {
        let status = self.get("MessageStatus").or_else(|| self.get("SmsStatus"));
        let status = status.filter(|status| !matches!(*status, "received" | "receiving"));
        let (kind, other) = match status {
            Some(status) => (Cow::Owned(format!("message.status.{status}")), self.get("To")),
            None => (Cow::Borrowed("message.received"), self.get("From")),
        };
        let (account, state) = (account.unwrap_or("-"), status.unwrap_or("received"));
        let key = DedupKey::new(&format!("twilio:{account}:{message}:{state}"));
        EventPart {
            kind: EventKind::new(&kind),
            // Not quite signed: the signature does not say where a name ends and its value begins.
            key: EventKey::Unsigned(key, "twilio:MessageSid"),
            ordering_key: other.and_then(DedupKey::new),
            attributes: self.attributes(other),
            ..EventPart::default()
        }
    }

    /// A call sends several requests in one state, for example after each digit; only status callbacks
    /// have a sequence number.
    fn call(&self, request: &IncomingRequest<'_>, account: Option<&str>, call: &str) -> EventPart {
        let status = self.get("CallStatus");
        let other = match self.get("Direction") {
            Some(direction) if direction.starts_with("outbound") => self.get("To"),
            Some(_) | None => self.get("From"),
        };
        let numbered = account.zip(status).zip(self.get("SequenceNumber"));
        let numbered = numbered.and_then(|((account, status), number)| {
            DedupKey::new(&format!("twilio:{account}:{call}:{status}:{number}"))
        });
        let key = numbered.or_else(|| token_key(request, account));
        EventPart {
            kind: status.and_then(|status| EventKind::new(&format!("call.{status}"))),
            key: EventKey::Unsigned(key, "twilio:CallSid"),
            ordering_key: DedupKey::new(call),
            attributes: self.attributes(other),
            ..EventPart::default()
        }
    }

    fn attributes(&self, other: Option<&str>) -> Attributes {
        let mut attributes = Attributes::default();
        let mut push = |name, field: &str| attributes.push_some(name, self.get(field));
        push(AttributeName::MessageId, "MessageSid");
        push(AttributeName::MessageId, "OriginalRepliedMessageSid");
        push(AttributeName::Phone, "WaId");
        push(AttributeName::Conversation, "ConversationSid");
        push(AttributeName::Object, "CallSid");
        push(AttributeName::ProviderStatus, "MessageStatus");
        push(AttributeName::ProviderStatus, "CallStatus");
        push(AttributeName::Error, "ErrorCode");
        push(AttributeName::Account, "AccountSid");
        push(AttributeName::Account, "MessagingServiceSid");
        attributes.push_some(AttributeName::Phone, other);
        attributes
    }
}

/// The key of a request without an id of its own: its idempotency token.
fn token_key(request: &IncomingRequest<'_>, account: Option<&str>) -> Option<DedupKey> {
    let token = request.header(TOKEN)?;
    DedupKey::new(&format!("twilio:{}:{token}", account.unwrap_or("-")))
}
