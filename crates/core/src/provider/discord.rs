//! Discord: interactions and webhook events, signed with the application's key pair.
//!
//! Discord calls now and then with a signature that is wrong, and takes the address away from an
//! application that does not answer 401.

use std::sync::LazyLock;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use http::{HeaderName, StatusCode};
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};

use super::{
    BodyFields, EventKey, EventPart, FieldValues, ParsedRequest, Provider, ProviderReply,
    SampleEvent,
};
use crate::{
    attribute::{AttributeName, EventKind},
    key::DedupKey,
    request::{IncomingRequest, OutgoingRequest},
    secret::Secret,
    time::{HumanDuration, Timestamp},
    verify::{
        RequestSignature, SignError, VerificationScheme, Verifier, VerifyError, VerifySpecError,
        only_value,
    },
};

static SIGNATURE: HeaderName = HeaderName::from_static("x-signature-ed25519");
static TIMESTAMP: HeaderName = HeaderName::from_static("x-signature-timestamp");

/// Bytes of an ed25519 key; a signature has twice as many.
const KEY_BYTES: usize = 32;
/// Digits of a time in seconds, from 2001 until 2286.
const TIMESTAMP_BYTES: usize = 10;

/// What a request is, and what it is about.
static FIELDS: LazyLock<BodyFields> = LazyLock::new(|| {
    BodyFields::new(&[
        "/type",
        "/id",
        "/application_id",
        "/event/type",
        "/event/timestamp",
        "/channel_id",
        "/member/user/id",
        "/user/id",
        "/event/data/user/id",
        "/event/data/user_id",
        "/event/data/id",
        "/guild_id",
        "/message/id",
        "/event/data/channel_id",
    ])
});
const TYPE: usize = 0;
const ID: usize = 1;
const APPLICATION: usize = 2;
const EVENT_TYPE: usize = 3;
const EVENT_TIME: usize = 4;
const CHANNEL: usize = 5;
/// The users that an event may be about, before the id of its object.
const SUBJECTS: [usize; 3] = [8, 9, 10];

const ABOUT: [(AttributeName, usize); 9] = [
    (AttributeName::Account, APPLICATION),
    (AttributeName::Chat, CHANNEL),
    (AttributeName::User, 6),
    (AttributeName::User, 7),
    (AttributeName::User, 8),
    (AttributeName::User, 9),
    (AttributeName::Object, 10),
    (AttributeName::MessageId, 12),
    (AttributeName::Chat, 13),
];

/// What a request is, by its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    InteractionPing,
    EventPing,
    Interaction(Interaction),
    Event,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interaction {
    Command,
    Component,
    Autocomplete,
    Modal,
    Other,
}

impl Form {
    /// A webhook event has `event`; both kinds have a `type`, and mean different things by it.
    fn of(found: &FieldValues<'_>) -> Self {
        let is_event = found.get(EVENT_TYPE).is_some() || found.get(EVENT_TIME).is_some();
        match (found.get(TYPE), is_event) {
            (_, true) => Self::Event,
            (Some("0"), false) => Self::EventPing,
            (Some("1"), false) => Self::InteractionPing,
            (Some("2"), false) => Self::Interaction(Interaction::Command),
            (Some("3"), false) => Self::Interaction(Interaction::Component),
            (Some("4"), false) => Self::Interaction(Interaction::Autocomplete),
            (Some("5"), false) => Self::Interaction(Interaction::Modal),
            (Some(_), false) if found.get(ID).is_some() => Self::Interaction(Interaction::Other),
            (Some(_) | None, false) => Self::Unknown,
        }
    }
}

impl Interaction {
    fn kind(self) -> &'static str {
        match self {
            Self::Command => "interaction.application_command",
            Self::Component => "interaction.message_component",
            Self::Autocomplete => "interaction.autocomplete",
            Self::Modal => "interaction.modal_submit",
            Self::Other => "interaction",
        }
    }

    /// What must be said within three seconds, so that the real answer can follow later with the
    /// token of the interaction. Suggestions cannot follow later: there are none.
    fn deferred(self) -> &'static str {
        match self {
            Self::Command | Self::Modal | Self::Other => r#"{"type":5}"#,
            Self::Component => r#"{"type":6}"#,
            Self::Autocomplete => r#"{"type":8,"data":{"choices":[]}}"#,
        }
    }
}

#[derive(Debug)]
pub(super) struct Discord;

impl Provider for Discord {
    fn name(&self) -> &'static str {
        "discord"
    }

    fn verifier(&self, secrets: Vec<Secret>) -> Result<Verifier, VerifySpecError> {
        let mut keys = Vec::with_capacity(secrets.len());
        for (number, secret) in (1..).zip(&secrets) {
            let why = "it must be the public key of the application: 64 hexadecimal digits";
            keys.push(Key::read(secret).ok_or(VerifySpecError::Secret { number, why })?);
        }
        let many = keys.len();
        Ok(Verifier::own(Box::new(Keys(keys)), many))
    }

    fn parse_request(&self, request: &IncomingRequest<'_>, _: Option<&Secret>) -> ParsedRequest {
        let found = FIELDS.read(request.body);
        let (kind, key) = match Form::of(&found) {
            Form::InteractionPing => {
                return ParsedRequest::Handshake(ProviderReply::json(r#"{"type":1}"#));
            }
            Form::EventPing => {
                return ParsedRequest::Handshake(ProviderReply::empty(StatusCode::NO_CONTENT));
            }
            Form::Interaction(interaction) => {
                (EventKind::new(interaction.kind()), found.key("discord", &[ID]))
            }
            Form::Event => (found.get(EVENT_TYPE).and_then(EventKind::new), event_key(&found)),
            Form::Unknown => (None, None),
        };
        ParsedRequest::one(EventPart {
            kind,
            key: EventKey::known(key, "discord:id"),
            order: found.get(CHANNEL).and_then(DedupKey::new),
            attributes: found.attributes(&ABOUT),
            ..EventPart::default()
        })
    }

    /// Events come again for ten minutes, interactions never.
    fn dedup_window(&self) -> HumanDuration {
        HumanDuration::from_secs(86_400)
    }

    fn signature_headers(&self) -> &'static [&'static str] {
        &["x-signature-ed25519"]
    }

    /// Any JSON in answer to an interaction is shown to a user or called an error.
    fn success_reply(&self, request: &IncomingRequest<'_>) -> Option<ProviderReply> {
        Some(match Form::of(&FIELDS.read(request.body)) {
            Form::Interaction(interaction) => ProviderReply::json(interaction.deferred()),
            Form::InteractionPing | Form::EventPing | Form::Event | Form::Unknown => {
                ProviderReply::empty(StatusCode::NO_CONTENT)
            }
        })
    }

    fn samples(&self) -> &'static [SampleEvent] {
        SAMPLES
    }
}

/// A webhook event has no id: what happened, when and to whom.
fn event_key(found: &FieldValues<'_>) -> Option<DedupKey> {
    let application = found.get(APPLICATION)?;
    let (kind, time) = (found.get(EVENT_TYPE)?, found.get(EVENT_TIME)?);
    let subject = found.first(&SUBJECTS).unwrap_or("-");
    DedupKey::new(&format!("discord:{application}:{kind}:{time}:{subject}"))
}

/// A key of an application. Discord has the private half; whoever tries things out has a pair of
/// their own, written as 64 digits of the private and 64 of the public one.
#[derive(Debug)]
struct Key {
    public: Vec<u8>,
    pair: Option<Ed25519KeyPair>,
}

impl Key {
    fn read(secret: &Secret) -> Option<Self> {
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

/// The keys of an application, the current one first.
#[derive(Debug)]
struct Keys(Vec<Key>);

impl VerificationScheme for Keys {
    fn name(&self) -> &'static str {
        "ed25519"
    }

    fn verify(&self, request: &IncomingRequest<'_>, _: Timestamp) -> Result<usize, VerifyError> {
        let signature = only_value(request.headers, &SIGNATURE, "signature")?
            .ok_or_else(|| VerifyError::MissingSignature { header: SIGNATURE.clone() })?;
        let signature = HEXLOWER_PERMISSIVE
            .decode(signature.as_bytes())
            .ok()
            .filter(|signature| signature.len() == 2 * KEY_BYTES)
            .ok_or(VerifyError::Malformed { part: "signature" })?;
        let timestamp = only_value(request.headers, &TIMESTAMP, "timestamp")?
            .ok_or(VerifyError::MissingTimestamp)?
            .as_bytes();
        // Nothing stands between the two, so neither may be able to take from the other.
        let is_time = timestamp.iter().all(u8::is_ascii_digit);
        if !is_time || timestamp.len() != TIMESTAMP_BYTES {
            return Err(VerifyError::Malformed { part: "timestamp" });
        }
        let text = [timestamp, request.body].concat();
        let fits = |key: &Key| {
            UnparsedPublicKey::new(&ED25519, &key.public).verify(&text, &signature).is_ok()
        };
        self.0.iter().position(fits).ok_or(VerifyError::Mismatch)
    }

    fn sign(
        &self,
        request: &OutgoingRequest<'_>,
        now: Timestamp,
    ) -> Result<RequestSignature, SignError> {
        let pair = self.0.first().and_then(|key| key.pair.as_ref()).ok_or(SignError(
            "Discord signs with a private key that only Discord has; for a test make a pair and give 64 digits of the private and 64 of the public key as the secret",
        ))?;
        let time = now.as_secs().to_string();
        let signature = pair.sign(&[time.as_bytes(), request.body].concat());
        Ok(RequestSignature::headers(vec![
            (SIGNATURE.clone(), HEXLOWER.encode(signature.as_ref())),
            (TIMESTAMP.clone(), time),
        ]))
    }
}

static SAMPLES: &[SampleEvent] = &[
    sample(
        "interaction.application_command",
        r#"{"application_id":"1234560123453231555","channel_id":"645027906669510667","data":{"id":"771825006014889984","name":"order","options":[{"name":"number","type":3,"value":"A-{{number}}"}],"type":1},"guild_id":"290926798626357999","id":"{{number}}","member":{"user":{"id":"53908232506183680","username":"ana"}},"token":"test-{{id}}","type":2,"version":1}"#,
    ),
    sample(
        "interaction.message_component",
        r#"{"application_id":"1234560123453231555","channel_id":"645027906669510667","data":{"component_type":2,"custom_id":"confirm"},"guild_id":"290926798626357999","id":"{{number}}","member":{"user":{"id":"53908232506183680","username":"ana"}},"message":{"id":"1{{number}}"},"token":"test-{{id}}","type":3,"version":1}"#,
    ),
    sample(
        "APPLICATION_AUTHORIZED",
        r#"{"version":1,"application_id":"1234560123453231555","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"{{now_iso}}","data":{"integration_type":1,"scopes":["applications.commands"],"user":{"id":"{{number}}","username":"ana"}}}}"#,
    ),
];

const fn sample(kind: &'static str, body: &'static str) -> SampleEvent {
    SampleEvent { kind, headers: &[("content-type", "application/json")], target: "", body }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::super::{
        testing::{about, told},
        testing_calls::Call,
    };

    fn signed(body: &str) -> Call {
        signed_at("1779023999", body)
    }

    fn signed_at(time: &str, body: &str) -> Call {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let signature = pair.sign(format!("{time}{body}").as_bytes());
        Call::new("discord", &HEXLOWER.encode(pair.public_key().as_ref()))
            .header("x-signature-ed25519", HEXLOWER.encode(signature.as_ref()))
            .header("x-signature-timestamp", time)
            .body(body)
    }

    #[test]
    fn whoever_does_not_have_the_key_is_refused() {
        let good = signed(r#"{"type":1}"#);
        let cases = [
            ("good", good.clone(), Ok(0)),
            ("another body", good.clone().body("{}"), Err("mismatch")),
            (
                "another time",
                good.clone().header("x-signature-timestamp", "1779023998"),
                Err("mismatch"),
            ),
            ("no time", good.clone().without("x-signature-timestamp"), Err("missing_timestamp")),
            ("no signature", good.clone().without("x-signature-ed25519"), Err("missing_signature")),
            ("two signatures", good.clone().again("x-signature-ed25519", "00"), Err("malformed")),
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
            ("an old key beside it", good.clone().secrets(&[&"0".repeat(64)]), Err("mismatch")),
        ];
        for (name, call, expected) in cases {
            assert_eq!(call.verify(), expected, "case: {name}");
        }
        good.assert_every_bit_counts(&["x-signature-ed25519", "x-signature-timestamp"]);
        assert!(good.signature().is_err());
    }

    #[test]
    fn a_pair_of_ones_own_signs() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let [seed, public] =
            [&[7; 32][..], pair.public_key().as_ref()].map(|key| HEXLOWER.encode(key));
        let call =
            Call::new("discord", &format!("{seed}{public}")).at(1_779_023_999_000).body("{}");
        let signed = call.signed();
        assert_eq!(signed.verify(), Ok(0));
        assert_eq!(signed.secrets(&[&public]).verify(), Ok(0));
    }

    #[test]
    fn what_is_no_public_key_is_refused_when_it_is_configured() {
        for key in ["", "abc", &"z".repeat(64), &"0".repeat(62), &"0".repeat(66)] {
            assert!(Call::new("discord", key).verifier().is_none(), "{key}");
        }
        assert!(Call::new("discord", &format!("{}\n", "Ab".repeat(32))).verifier().is_some());
    }

    #[test]
    fn each_request_is_answered_as_discord_wants() {
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
            ("something new", "{}", (204, None, "")),
        ];
        for (name, body, (status, kind, text)) in cases {
            let expected = Some((status, kind, text.to_owned()));
            assert_eq!(signed(body).reply(), expected, "case: {name}");
        }
    }

    #[test]
    fn interactions_have_an_id_and_events_have_a_time() {
        let cases = [
            (
                "command",
                r#"{"type":2,"id":"99","application_id":"1","channel_id":"c1"}"#,
                ["interaction.application_command", "discord:99", "c1"],
            ),
            ("a new kind", r#"{"type":9,"id":"99"}"#, ["interaction", "discord:99", "-"]),
            (
                "event",
                r#"{"type":1,"application_id":"1","event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2026-05-17T13:00:00.123456","data":{"user":{"id":"7"}}}}"#,
                [
                    "APPLICATION_AUTHORIZED",
                    "discord:1:APPLICATION_AUTHORIZED:2026-05-17T13:00:00.123456:7",
                    "-",
                ],
            ),
            (
                "purchase",
                r#"{"type":1,"application_id":"1","event":{"type":"ENTITLEMENT_CREATE","timestamp":"t","data":{"id":"e1","user_id":"7"}}}"#,
                ["ENTITLEMENT_CREATE", "discord:1:ENTITLEMENT_CREATE:t:7", "-"],
            ),
            (
                "event without a time",
                r#"{"type":1,"application_id":"1","event":{"type":"A"}}"#,
                ["A", "-", "-"],
            ),
            ("not JSON", "x", ["-", "-", "-"]),
        ];
        for (name, body, expected) in cases {
            assert_eq!(told("discord", &[], body), expected, "case: {name}");
        }
        let body = r#"{"type":3,"id":"9","application_id":"1","channel_id":"c1","member":{"user":{"id":"u1"}},"message":{"id":"m1"}}"#;
        assert_eq!(
            about("discord", &[], body),
            ["message_id=m1", "chat=c1", "user=u1", "account=1"]
        );
    }
}
