use http::HeaderValue;

use super::*;

// Examples from the specification's libraries and from the Svix server.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
const PRIVATE: &str =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
const SEED: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";
const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const SECS: i64 = 1_614_265_330;
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const V1: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const V1A: &str =
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

fn scheme(secrets: &[&str]) -> StandardWebhooksScheme {
    parse(secrets).0
}

/// The scheme and its warnings.
fn parse(secrets: &[&str]) -> (StandardWebhooksScheme, Vec<String>) {
    let secrets: Vec<_> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    StandardWebhooksScheme::new(&secrets).unwrap()
}

fn verify(
    secrets: &[&str],
    pairs: &[(&'static str, &str)],
    body: &[u8],
    now: i64,
) -> Result<usize, &'static str> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    let (headers, origin) = (&headers, None);
    let request = IncomingRequest { source: "s", path: "", query: None, headers, body, origin };
    let verified = scheme(secrets).verify(&request, Timestamp::from_millis(now * 1000));
    verified.map_err(|refused| refused.code())
}

#[test]
fn published_signatures_verify() {
    let long = ["v1,AAAA"; 11].join(" ");
    let cases = [
        ("shared secret", &[SECRET][..], V1.to_owned(), Ok(0)),
        ("public key", &[PUBLIC], V1A.to_owned(), Ok(0)),
        ("private key", &[PRIVATE], V1A.to_owned(), Ok(0)),
        ("private key without its public half", &[SEED], V1A.to_owned(), Ok(0)),
        ("second secret", &[OTHER, SECRET], V1.to_owned(), Ok(1)),
        ("second signature", &[SECRET], format!("v1,AAAA {V1}"), Ok(0)),
        ("both kinds, the sender is moving", &[PUBLIC], format!("{V1} {V1A}"), Ok(0)),
        ("both kinds of secrets", &[OTHER, PUBLIC], format!("{V1} {V1A}"), Ok(1)),
        ("a version that is not known yet", &[SECRET], format!("v2,AAAA {V1}"), Ok(0)),
        ("garbage beside it", &[SECRET], format!("garbage v1,% {V1}"), Ok(0)),
        ("another secret", &[OTHER], V1.to_owned(), Err("mismatch")),
        ("the other kind", &[PUBLIC], V1.to_owned(), Err("mismatch")),
        (
            "bytes of one kind called the other",
            &[SECRET],
            V1.replace("v1,", "v1a,"),
            Err("mismatch"),
        ),
        ("version not known", &[SECRET], V1.replace("v1,", "v2,"), Err("malformed")),
        ("no version", &[SECRET], V1.replace("v1,", ""), Err("malformed")),
        ("cut short", &[SECRET], V1[..20].to_owned(), Err("malformed")),
        ("cut short, and base64", &[SECRET], V1[..23].to_owned(), Err("mismatch")),
        ("only a version", &[SECRET], "v1,".to_owned(), Err("mismatch")),
        ("empty", &[SECRET], String::new(), Err("missing_signature")),
        ("eleven", &[SECRET], long, Err("too_many_signatures")),
    ];
    for (name, secrets, signature, expected) in cases {
        let pairs = [
            ("webhook-id", ID),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", &signature),
        ];
        assert_eq!(verify(secrets, &pairs, BODY, SECS), expected, "case: {name}");
        let svix =
            [("svix-id", ID), ("svix-timestamp", "1614265330"), ("svix-signature", &signature)];
        assert_eq!(verify(secrets, &svix, BODY, SECS), expected, "case: {name}, by Svix");
    }
}

#[test]
fn each_signed_part_must_be_present_once_and_match() {
    let id = ("webhook-id", ID);
    let time = ("webhook-timestamp", "1614265330");
    let signature = ("webhook-signature", V1);
    let good = [id, time, signature];
    type Pairs<'t> = &'t [(&'static str, &'t str)];
    let cases: [(&str, Pairs<'_>, &[u8], i64, _); 15] = [
        ("good", &good, BODY, SECS, Ok(0)),
        ("300 s old", &good, BODY, SECS + 300, Ok(0)),
        ("300 s ahead", &good, BODY, SECS - 300, Ok(0)),
        ("301 s old", &good, BODY, SECS + 301, Err("stale")),
        ("301 s ahead", &good, BODY, SECS - 301, Err("stale")),
        ("another body", &good, b"{}", SECS, Err("mismatch")),
        ("another id", &[("webhook-id", "msg_2"), time, signature], BODY, SECS, Err("mismatch")),
        ("no id", &[time, signature], BODY, SECS, Err("missing_id")),
        ("no time", &[id, signature], BODY, SECS, Err("missing_timestamp")),
        ("two ids", &[id, id, time, signature], BODY, SECS, Err("malformed")),
        ("two times", &[id, time, time, signature], BODY, SECS, Err("malformed")),
        (
            "a dot in the id cuts the text elsewhere",
            &[("webhook-id", "msg_1.1614265330"), time, signature],
            BODY,
            SECS,
            Err("malformed"),
        ),
        (
            "a dot in the time",
            &[id, ("webhook-timestamp", "1614265330.0"), signature],
            BODY,
            SECS,
            Err("malformed"),
        ),
        (
            "a time in words",
            &[id, ("webhook-timestamp", "now"), signature],
            BODY,
            SECS,
            Err("malformed"),
        ),
        (
            "the id of the other header family is not signed",
            &[("svix-id", ID), time, signature],
            BODY,
            SECS,
            Err("missing_id"),
        ),
    ];
    for (name, pairs, body, now, expected) in cases {
        assert_eq!(verify(&[SECRET], pairs, body, now), expected, "case: {name}");
    }
    let twice = [id, time, ("webhook-signature", "v1,AAAA"), signature];
    assert_eq!(verify(&[SECRET], &twice, BODY, SECS), Ok(0), "signatures in two headers");
}

#[test]
fn invalid_secret_is_refused_at_configuration() {
    let cases = [
        ("no prefix", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "it must start with `whsec_`"),
        ("that of Stripe", "whsec_test_0a1b", "not valid base64"),
        ("empty", "whsec_", "nothing follows"),
        ("a short public key", "whpk_AAAA", "32 bytes"),
        ("a short private key", "whsk_AAAA", "shorter than"),
        ("two halves of different keys", &PRIVATE.replace("VKIDi", "VKIDj"), "do not match"),
    ];
    for (name, secret, reason) in cases {
        let secrets = [Secret::new(SECRET), Secret::new(secret)];
        let error = StandardWebhooksScheme::new(&secrets).unwrap_err().to_string();
        assert!(error.starts_with("secret 2: ") && error.contains(reason), "case: {name}: {error}");
    }
    // A secret read from a file may end in a line break.
    assert!(parse(&[&format!("{SECRET}\n")]).1.is_empty());
    assert_eq!(parse(&["whsec_AAAA"]).1.len(), 1);
    assert_eq!(parse(&[PRIVATE]).1.len(), 1);
    let shown = format!("{:?}", scheme(&[SECRET, PRIVATE]));
    assert_eq!(shown, "StandardWebhooksScheme([SignatureKey(redacted), SignatureKey(redacted)])");
}

#[test]
fn generated_signature_equals_published_one() {
    let headers = HeaderMap::new();
    let request = OutgoingRequest { id: ID, url: "", headers: &headers, body: BODY };
    for (secret, expected) in [(SECRET, V1), (PRIVATE, V1A), (SEED, V1A)] {
        let signed = scheme(&[secret]).sign(&request, Timestamp::from_millis(SECS * 1000)).unwrap();
        let values: Vec<_> = signed.headers.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, [ID, "1614265330", expected]);
    }
    assert!(scheme(&[PUBLIC]).sign(&request, Timestamp::from_millis(0)).is_err());
}
