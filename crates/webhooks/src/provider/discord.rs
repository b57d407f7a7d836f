//! Discord: interactions and webhook events, signed with the application's key pair.
//!
//! Discord regularly sends invalid signatures on purpose and removes the URL of an application that
//! does not answer 401.

use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use http::{HeaderName, StatusCode};
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use surehook_types::{
    secret::Secret,
    time::{HumanDuration, Timestamp},
};

use super::{
    EventKey, EventPart, HandshakeKind, ParsedRequest, Provider, ProviderReply, SampleEvent,
    fields::{EventReader, EventTemplate, FieldValues},
};
use crate::{
    attribute::{
        AttributeName::{Account, Chat, MessageId, Object, User},
        EventKind,
    },
    request::{IncomingRequest, OutgoingRequest},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        check_max_age, decode_signature, parse_epoch, signature_header, timestamp_header,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-signature-ed25519");
static TIMESTAMP: HeaderName = HeaderName::from_static("x-signature-timestamp");

/// Length of an ed25519 key; a signature is twice as long.
const KEY_BYTES: usize = 32;
/// Digits of a Unix timestamp from 2001 until 2286.
const TIMESTAMP_BYTES: usize = 10;
/// Events are retried for ten minutes, and it is undocumented whether retries are signed again.
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

pub(super) static DISCORD: Provider = Provider {
    name: "discord",
    verifier,
    signature_headers: &["x-signature-ed25519"],
    // Events are retried for ten minutes, interactions never.
    handshake: HandshakeKind::Automatic,
    dedup_window: HumanDuration::from_secs(86_400),
    parse_request,
    success_reply: |request| Some(success_reply(request)),
    samples: &[
        SampleEvent::json(
            "interaction.application_command",
            r#"{"application_id":"1234560123453231555","channel_id":"645027906669510667","data":{"id":"771825006014889984","name":"order","options":[{"name":"number","type":3,"value":"A-{{number}}"}],"type":1},"guild_id":"290926798626357999","id":"{{number}}","member":{"user":{"id":"53908232506183680","username":"ana"}},"token":"test-{{id}}","type":2,"version":1}"#,
        ),
        SampleEvent::json(
            "interaction.message_component",
            r#"{"application_id":"1234560123453231555","channel_id":"645027906669510667","data":{"component_type":2,"custom_id":"confirm"},"guild_id":"290926798626357999","id":"{{number}}","member":{"user":{"id":"53908232506183680","username":"ana"}},"message":{"id":"1{{number}}"},"token":"test-{{id}}","type":3,"version":1}"#,
        ),
        SampleEvent::json(
            "APPLICATION_AUTHORIZED",
            r#"{"version":1,"application_id":"1234560123453231555","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"{{now_iso}}","data":{"integration_type":1,"scopes":["applications.commands"],"user":{"id":"{{number}}","username":"ana"}}}}"#,
        ),
    ],
    ..Provider::DEFAULT
};

static REQUEST: EventReader = EventReader::new(&EventTemplate {
    ordering_key: &["{/channel_id}"],
    attributes: &[
        (Account, &["/application_id"]),
        (Chat, &["/channel_id", "/event/data/channel_id"]),
        (User, &["/member/user/id", "/user/id", "/event/data/user/id", "/event/data/user_id"]),
        (Object, &["/event/data/id"]),
        (MessageId, &["/message/id"]),
    ],
    extra_fields: &["/type", "/id", EVENT_KEY],
    ..EventTemplate::EMPTY
});

/// Webhook events have no id, so the key is built from type, time and subject: a user or an object.
const EVENT_KEY: &str = "discord:{/application_id}:{/event/type}:{/event/timestamp}\
     :{/event/data/user/id|/event/data/user_id|/event/data/id|-}";

/// The kind of a request, by its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    InteractionPing,
    EventPing,
    Interaction(InteractionKind),
    Event,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InteractionKind {
    Command,
    Component,
    Autocomplete,
    Modal,
    Other,
}

impl RequestKind {
    /// Webhook events have `event`. Both events and interactions have `type`, with different meanings.
    fn of(fields: &FieldValues<'_>) -> Self {
        let is_event = fields.get("/event/type|/event/timestamp").is_some();
        match (fields.get("/type"), is_event) {
            (_, true) => Self::Event,
            (Some("0"), false) => Self::EventPing,
            (Some("1"), false) => Self::InteractionPing,
            (Some("2"), false) => Self::Interaction(InteractionKind::Command),
            (Some("3"), false) => Self::Interaction(InteractionKind::Component),
            (Some("4"), false) => Self::Interaction(InteractionKind::Autocomplete),
            (Some("5"), false) => Self::Interaction(InteractionKind::Modal),
            (Some(_), false) if fields.get("/id").is_some() => {
                Self::Interaction(InteractionKind::Other)
            }
            (Some(_) | None, false) => Self::Unknown,
        }
    }
}

impl InteractionKind {
    fn kind(self) -> &'static str {
        match self {
            Self::Command => "interaction.application_command",
            Self::Component => "interaction.message_component",
            Self::Autocomplete => "interaction.autocomplete",
            Self::Modal => "interaction.modal_submit",
            Self::Other => "interaction",
        }
    }

    /// The reply due within three seconds; the real answer can follow later with the interaction's
    /// token. Autocomplete choices cannot follow later, so there are none.
    fn deferred_reply(self) -> &'static str {
        match self {
            Self::Command | Self::Modal | Self::Other => r#"{"type":5}"#,
            Self::Component => r#"{"type":6}"#,
            Self::Autocomplete => r#"{"type":8,"data":{"choices":[]}}"#,
        }
    }
}

fn verifier(secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
    let reason = "it must be the public key of the application: 64 hexadecimal digits";
    let parse = |(number, secret)| {
        ApplicationKey::parse(secret).ok_or(VerifySpecError::Secret { number, reason })
    };
    let keys = (1..).zip(&secrets).map(parse).collect::<Result<_, _>>()?;
    Ok(Verifier::from_scheme(secrets.len(), Ed25519Scheme(keys)))
}

fn parse_request(request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
    let fields = REQUEST.read(request);
    let (kind, key) = match RequestKind::of(&fields) {
        RequestKind::InteractionPing => {
            return ParsedRequest::Handshake(ProviderReply::json(r#"{"type":1}"#));
        }
        RequestKind::EventPing => {
            return ParsedRequest::Handshake(ProviderReply::empty(StatusCode::NO_CONTENT));
        }
        RequestKind::Interaction(interaction) => {
            (Some(interaction.kind()), fields.key("discord:{/id}"))
        }
        RequestKind::Event => (fields.get("/event/type"), fields.key(EVENT_KEY)),
        RequestKind::Unknown => (None, None),
    };
    ParsedRequest::single(EventPart {
        kind: kind.and_then(EventKind::new),
        key: EventKey::known_or_none(key, "discord:id"),
        ..fields.event()
    })
}

/// Any other JSON reply to an interaction is shown to the user or treated as an error.
fn success_reply(request: &IncomingRequest<'_>) -> ProviderReply {
    match RequestKind::of(&REQUEST.read(request)) {
        RequestKind::Interaction(interaction) => ProviderReply::json(interaction.deferred_reply()),
        RequestKind::InteractionPing
        | RequestKind::EventPing
        | RequestKind::Event
        | RequestKind::Unknown => ProviderReply::empty(StatusCode::NO_CONTENT),
    }
}

/// The public key of an application. For tests it can be a key pair, written as 64 hex digits of the
/// private key followed by 64 of the public key.
#[derive(Debug)]
struct ApplicationKey {
    public: Vec<u8>,
    pair: Option<Ed25519KeyPair>,
}

impl ApplicationKey {
    fn parse(secret: &Secret) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(secret.expose().trim_ascii()).ok()?;
        match bytes.split_at_checked(KEY_BYTES)? {
            (public, []) => Some(Self { public: public.to_vec(), pair: None }),
            (seed, public) => {
                let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public).ok()?;
                Some(Self { public: public.to_vec(), pair: Some(pair) })
            }
        }
    }
}

/// Verifies with the application's keys, the current one first.
#[derive(Debug)]
struct Ed25519Scheme(Vec<ApplicationKey>);

impl VerificationScheme for Ed25519Scheme {
    fn name(&self) -> &'static str {
        "ed25519"
    }

    fn max_age(&self) -> Option<Duration> {
        Some(MAX_AGE)
    }

    fn verify(&self, request: &IncomingRequest<'_>, now: Timestamp) -> Result<usize, VerifyError> {
        let signature = signature_header(request.headers, &SIGNATURE)?;
        let signature = decode_signature(&HEXLOWER_PERMISSIVE, signature)?;
        if signature.len() != 2 * KEY_BYTES {
            return Err(VerifyError::Malformed { part: "signature" });
        }
        let timestamp = timestamp_header(request.headers, &TIMESTAMP)?;
        // Timestamp and body are joined without a separator, so the length must be fixed.
        let is_number = timestamp.iter().all(u8::is_ascii_digit);
        if !is_number || timestamp.len() != TIMESTAMP_BYTES {
            return Err(VerifyError::Malformed { part: "timestamp" });
        }
        check_max_age(parse_epoch(timestamp)?, now, MAX_AGE)?;
        let signed_text = [timestamp, request.body].concat();
        let is_match = |key: &ApplicationKey| {
            UnparsedPublicKey::new(&ED25519, &key.public).verify(&signed_text, &signature).is_ok()
        };
        self.0.iter().position(is_match).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let pair = self.0.first().and_then(|key| key.pair.as_ref()).ok_or(SignError(
            "only Discord has the private key; for tests, use your own key pair as the secret: 64 hex digits of the private key followed by 64 of the public key",
        ))?;
        let time = now.as_secs().to_string();
        let signature = pair.sign(&[time.as_bytes(), request.body].concat());
        Ok(RequestSignature::headers(vec![
            (SIGNATURE.clone(), HEXLOWER.encode(signature.as_ref())),
            (TIMESTAMP.clone(), time),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::super::testing::{TestCall, assert_events, attribute_pairs};

    fn signed(body: &str) -> TestCall {
        signed_at("1779023999", body)
    }

    fn signed_at(time: &str, body: &str) -> TestCall {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let signature = pair.sign(format!("{time}{body}").as_bytes());
        TestCall::new("discord", &HEXLOWER.encode(pair.public_key().as_ref()))
            .at(1_779_024_000_000)
            .header("x-signature-ed25519", HEXLOWER.encode(signature.as_ref()))
            .header("x-signature-timestamp", time)
            .body(body)
    }

    #[test]
    fn request_signed_with_another_key_is_refused() {
        let good = signed(r#"{"type":1}"#);
        let cases = [
            ("good", good.clone(), Ok(0)),
            ("another body", good.clone().body("{}"), Err("mismatch")),
            ("after all retries", good.clone().at(1_779_024_600_000), Ok(0)),
            ("replayed after an hour", good.clone().at(1_779_027_600_000), Err("stale")),
            ("from a clock an hour ahead", good.clone().at(1_779_020_400_000), Err("stale")),
            (
                "another time",
                good.clone().header("x-signature-timestamp", "1779023998"),
                Err("mismatch"),
            ),
            ("no time", good.clone().without("x-signature-timestamp"), Err("missing_timestamp")),
            ("no signature", good.clone().without("x-signature-ed25519"), Err("missing_signature")),
            (
                "two signatures",
                good.clone().add_header("x-signature-ed25519", "00"),
                Err("malformed"),
            ),
            ("cut short", good.clone().header("x-signature-ed25519", "00ff"), Err("malformed")),
            ("not hex", good.clone().header("x-signature-ed25519", "zz"), Err("malformed")),
            ("a body that begins in the time", signed_at("{", "}"), Err("malformed")),
            (
                "a time that ends in the body",
                good.clone().header("x-signature-timestamp", "1779023").body("999{\"type\":1}"),
                Err("malformed"),
            ),
            ("a body that begins with digits", signed("999{}"), Ok(0)),
            (
                "a body whose digits are taken for the time",
                signed("999{}").header("x-signature-timestamp", "1779023999999").body("{}"),
                Err("malformed"),
            ),
            ("another key", good.clone().secrets(&[&"0".repeat(64)]), Err("mismatch")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        good.assert_every_bit_counts(&["x-signature-ed25519", "x-signature-timestamp"]);
        assert!(good.signature().is_err());
    }

    #[test]
    fn own_key_pair_can_sign_tests() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let [seed, public] =
            [&[7; 32][..], pair.public_key().as_ref()].map(|key| HEXLOWER.encode(key));
        let call =
            TestCall::new("discord", &format!("{seed}{public}")).at(1_779_023_999_000).body("{}");
        let signed = call.signed();
        assert_eq!(signed.verify(), Ok(0));
        assert_eq!(signed.secrets(&[&public]).verify(), Ok(0));
    }

    #[test]
    fn invalid_public_key_is_refused_at_configuration() {
        for key in ["", "abc", &"z".repeat(64), &"0".repeat(62), &"0".repeat(66)] {
            assert!(TestCall::new("discord", key).verifier().is_none(), "{key}");
        }
        assert!(TestCall::new("discord", &format!("{}\n", "Ab".repeat(32))).verifier().is_some());
    }

    #[test]
    fn each_request_kind_gets_its_reply() {
        let json = Some("application/json");
        let cases = [
            ("ping", r#"{"type":1}"#, (200, json, r#"{"type":1}"#)),
            ("ping of events", r#"{"version":1,"application_id":"1","type":0}"#, (204, None, "")),
            ("command", r#"{"type":2,"id":"1"}"#, (200, json, r#"{"type":5}"#)),
            ("button", r#"{"type":3,"id":"1"}"#, (200, json, r#"{"type":6}"#)),
            (
                "suggestions",
                r#"{"type":4,"id":"1"}"#,
                (200, json, r#"{"type":8,"data":{"choices":[]}}"#),
            ),
            ("modal", r#"{"type":5,"id":"1"}"#, (200, json, r#"{"type":5}"#)),
            ("event", r#"{"type":1,"event":{"type":"A","timestamp":"t"}}"#, (204, None, "")),
            ("unknown", "{}", (204, None, "")),
        ];
        for (name, body, (status, kind, text)) in cases {
            let expected = Some((status, kind, text.to_owned()));
            assert_eq!(signed(body).reply(), expected, "case: {name}");
        }
    }

    #[test]
    fn interactions_are_keyed_by_id_and_events_by_time() {
        assert_events(
            "discord",
            &[],
            r#"
            case | body | kind | key | ordering key
            command | {"type":2,"id":"99","application_id":"1","channel_id":"c1"} | interaction.application_command | discord:99 | c1
            a new kind | {"type":9,"id":"99"} | interaction | discord:99 | -
            event | {"type":1,"application_id":"1","event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026-05-17T13:00:00.123456","data":{"user":{"id":"7"}}}} | APPLICATION_AUTHORIZED | discord:1:APPLICATION_AUTHORIZED:2026-05-17T13:00:00.123456:7 | -
            purchase | {"type":1,"application_id":"1","event":{"type":"ENTITLEMENT_CREATE","timestamp":"t","data":{"id":"e1","user_id":"7"}}} | ENTITLEMENT_CREATE | discord:1:ENTITLEMENT_CREATE:t:7 | -
            event without a time | {"type":1,"application_id":"1","event":{"type":"A"}} | A | - | -
            not JSON | x | - | - | -
            "#,
        );
        let body = r#"{"type":3,"id":"9","application_id":"1","channel_id":"c1","member":{"user":{"id":"u1"}},"message":{"id":"m1"}}"#;
        assert_eq!(
            attribute_pairs("discord", &[], body),
            ["message_id=m1", "chat=c1", "user=u1", "account=1"]
        );
    }
}
