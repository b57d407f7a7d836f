//! Verification of generic schemes.

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use sha2::Sha256;
use surehook_types::{secret::Secret, time::Timestamp};

use super::{
    HeaderNames, HmacAlgorithm, HmacSpec, ParamSeparator, RequestSignature, SignatureEncoding,
    TimestampUnit, VerifiedRequest, Verifier, VerifyError, VerifySpec, VerifySpecError as E,
};
use crate::request::{IncomingRequest, OutgoingRequest};

const SECRET: &str = "It's a Secret to Everybody";
const BODY: &[u8] = b"Hello, World!";
const GITHUB: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const NOW: i64 = 1_531_420_618;

const SLACK_SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const SLACK_BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow\
    &channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner\
    &command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands\
    %2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
    &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
const SLACK: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

fn incoming<'r>(headers: &'r HeaderMap, body: &'r [u8]) -> IncomingRequest<'r> {
    IncomingRequest { source: "s", path: "", query: None, headers, body, origin: None }
}

impl Verifier {
    fn check(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<VerifiedRequest, VerifyError> {
        self.verify(&incoming(headers, body), now)
    }

    fn sign_headers(&self, id: &str, body: &[u8]) -> Vec<(HeaderName, String)> {
        let request = OutgoingRequest { id, url: "", headers: &HeaderMap::new(), body };
        self.sign(&request, at(NOW)).unwrap().headers
    }
}

fn sha256(secret: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn verifier(spec: HmacSpec, secrets: &[&str]) -> Verifier {
    let secrets = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    Verifier::new(&VerifySpec::Hmac(Box::new(spec)), secrets).unwrap()
}

fn github() -> Verifier {
    verifier(HmacSpec { prefix: "sha256=".to_owned(), ..HmacSpec::new("x-sig") }, &[SECRET])
}

fn slack() -> Verifier {
    let spec = HmacSpec {
        prefix: "v0=".to_owned(),
        template: "v0:{timestamp}:{body}".to_owned(),
        timestamp_header: Some("x-slack-request-timestamp".to_owned()),
        ..HmacSpec::new("x-slack-signature")
    };
    verifier(spec, &[SLACK_SECRET])
}

fn stripe() -> Verifier {
    let spec = HmacSpec {
        template: "{timestamp}.{body}".to_owned(),
        signature_param: Some("v1".to_owned()),
        timestamp_param: Some("t".to_owned()),
        ..HmacSpec::new("stripe-signature")
    };
    verifier(spec, &[SECRET])
}

/// The error code, or the name of the scheme that verified the request.
fn outcome(result: &Result<VerifiedRequest, VerifyError>) -> &'static str {
    result.as_ref().map_or_else(VerifyError::code, |verified| verified.by)
}

#[test]
fn published_github_and_slack_vectors_verify() {
    let signature = format!("sha256={GITHUB}");
    let github = github().check(&headers(&[("X-Sig", &signature)]), BODY, at(NOW));
    let sent = [("x-slack-signature", SLACK), ("x-slack-request-timestamp", "1531420618")];
    let slack = slack().check(&headers(&sent), SLACK_BODY.as_bytes(), at(NOW));

    assert_eq!(github, Ok(VerifiedRequest { by: "hmac-sha256", secret_index: 0 }));
    assert_eq!(slack, Ok(VerifiedRequest { by: "hmac-sha256", secret_index: 0 }));
}

#[test]
fn only_the_complete_signature_verifies() {
    let cases = [
        ("right", format!("sha256={GITHUB}"), "hmac-sha256"),
        ("empty", String::new(), "missing_signature"),
        ("only the prefix", "sha256=".to_owned(), "malformed"),
        ("first character", format!("sha256={}", &GITHUB[..1]), "malformed"),
        ("first byte", format!("sha256={}", &GITHUB[..2]), "malformed"),
        ("more", format!("sha256={GITHUB}00"), "malformed"),
        ("upper case", format!("sha256={}", GITHUB.to_uppercase()), "hmac-sha256"),
        ("prefix in upper case", format!("SHA256={GITHUB}"), "malformed"),
        ("no prefix", GITHUB.to_owned(), "malformed"),
        ("not hex", format!("sha256={}", "zz".repeat(32)), "malformed"),
        ("not ASCII", format!("sha256={}", "é".repeat(32)), "malformed"),
        ("another", format!("sha256={}", "0".repeat(64)), "mismatch"),
    ];
    for (name, signature, expected) in cases {
        let result = github().check(&headers(&[("x-sig", &signature)]), BODY, at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
    assert_eq!(outcome(&github().check(&headers(&[]), BODY, at(NOW))), "missing_signature");
    // Reserialized JSON is not the signed text.
    let signature = format!("sha256={}", HEXLOWER.encode(&sha256(SECRET, &[br#"{"a":1}"#])));
    let result = github().check(&headers(&[("x-sig", &signature)]), br#"{"a": 1}"#, at(NOW));
    assert_eq!(outcome(&result), "mismatch");
}

#[test]
fn base64_is_accepted_only_in_canonical_form() {
    let right = sha256(SECRET, &[BODY]);
    let standard = BASE64.encode(&right);
    let url = BASE64URL_NOPAD.encode(&right);
    // The last character before the padding has two unused bits, which must be zero.
    let loose = standard.replace("c=", "d=");
    assert_ne!(loose, standard);
    let cases = [
        ("standard", SignatureEncoding::Base64, standard.clone(), "hmac-sha256"),
        (
            "no padding",
            SignatureEncoding::Base64,
            standard.trim_end_matches('=').to_owned(),
            "malformed",
        ),
        ("url alphabet", SignatureEncoding::Base64, format!("{url}="), "malformed"),
        ("not canonical", SignatureEncoding::Base64, loose, "malformed"),
        ("hex", SignatureEncoding::Base64, HEXUPPER.encode(&right), "malformed"),
        ("url", SignatureEncoding::Base64url, url.clone(), "hmac-sha256"),
        ("url with padding", SignatureEncoding::Base64url, format!("{url}="), "hmac-sha256"),
        ("standard for url", SignatureEncoding::Base64url, standard, "malformed"),
    ];
    for (name, encoding, signature, expected) in cases {
        let verifier = verifier(HmacSpec { encoding, ..HmacSpec::new("x-sig") }, &[SECRET]);
        let result = verifier.check(&headers(&[("x-sig", &signature)]), BODY, at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
}

#[test]
fn every_algorithm_matches_its_published_vector() {
    // RFC 2202 and RFC 4231, test case 2: key "Jefe".
    let body = b"what do ya want for nothing?";
    let cases = [
        ("sha1", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        ("sha256", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (
            "sha512",
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        ),
    ];
    for (algorithm, signature) in cases {
        let spec = format!(r#"{{"hmac":{{"header":"x-sig","algorithm":"{algorithm}"}}}}"#);
        let spec = serde_json::from_str(&spec).unwrap();
        let verifier = Verifier::new(&spec, vec![Secret::new("Jefe")]).unwrap();
        let verified = verifier.check(&headers(&[("x-sig", signature)]), body, at(NOW)).unwrap();
        assert_eq!(verified.by, format!("hmac-{algorithm}"));
    }
}

#[test]
fn timestamp_must_be_digits_within_tolerance() {
    let cases = [
        ("now", "1531420618", "hmac-sha256"),
        ("300 s old", "1531420318", "hmac-sha256"),
        ("300 s ahead", "1531420918", "hmac-sha256"),
        ("301 s old", "1531420317", "stale"),
        ("301 s ahead", "1531420919", "stale"),
        ("zero", "0", "stale"),
        ("milliseconds", "1531420618000", "stale"),
        ("2^63", "9223372036854775808", "malformed"),
        ("negative", "-1531420618", "malformed"),
        ("plus", "+1531420618", "malformed"),
        ("fraction", "1531420618.0", "malformed"),
        ("leading zero", "01531420618", "malformed"),
        ("empty", "", "missing_timestamp"),
        ("text", "soon", "malformed"),
    ];
    for (name, timestamp, expected) in cases {
        let signed = sha256(SLACK_SECRET, &[b"v0:", timestamp.as_bytes(), b":", BODY]);
        let signature = format!("v0={}", HEXLOWER.encode(&signed));
        let sent = [("x-slack-signature", &*signature), ("x-slack-request-timestamp", timestamp)];
        // Late in the second: a fraction must not exclude the last allowed second.
        let now = Timestamp::from_millis(NOW * 1000 + 999);
        let result = slack().check(&headers(&sent), BODY, now);
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
}

#[test]
fn timestamp_is_covered_by_the_signature() {
    let time = "x-slack-request-timestamp";
    let cases = [
        ("changed", vec![("x-slack-signature", SLACK), (time, "1531420619")], "mismatch"),
        ("missing", vec![("x-slack-signature", SLACK)], "missing_timestamp"),
        (
            "twice",
            vec![("x-slack-signature", SLACK), (time, "1531420618"), (time, "1531420618")],
            "malformed",
        ),
    ];
    for (name, sent, expected) in cases {
        let result = slack().check(&headers(&sent), SLACK_BODY.as_bytes(), at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
    // Within the tolerance the same request verifies again; deduplication catches it.
    let sent = headers(&[("x-slack-signature", SLACK), (time, "1531420618")]);
    for _ in 0..2 {
        assert!(slack().check(&sent, SLACK_BODY.as_bytes(), at(NOW + 60)).is_ok());
    }
}

#[test]
fn millisecond_timestamps_are_compared_in_milliseconds() {
    let spec = HmacSpec {
        template: "{timestamp}{body}".to_owned(),
        timestamp_header: Some("x-time".to_owned()),
        timestamp_unit: TimestampUnit::Milliseconds,
        ..HmacSpec::new("x-sig")
    };
    let verifier = verifier(spec, &[SECRET]);
    let cases = [("1531420318000", "hmac-sha256"), ("1531420317999", "stale")];
    for (timestamp, expected) in cases {
        let signature = HEXLOWER.encode(&sha256(SECRET, &[timestamp.as_bytes(), BODY]));
        let sent = headers(&[("x-sig", &signature), ("x-time", timestamp)]);
        assert_eq!(outcome(&verifier.check(&sent, BODY, at(NOW))), expected, "at {timestamp}");
    }
}

#[test]
fn timestamp_can_be_a_date_with_offset_and_fraction() {
    let spec = HmacSpec {
        template: "{timestamp}{body}".to_owned(),
        timestamp_header: Some("x-time".to_owned()),
        timestamp_unit: TimestampUnit::Iso8601,
        ..HmacSpec::new("x-sig")
    };
    let verifier = verifier(spec, &[SECRET]);
    // NOW is 2018-07-12T18:36:58Z.
    let cases = [
        ("2018-07-12T18:36:58Z", "hmac-sha256"),
        ("2018-07-12T18:36:58.634234626Z", "hmac-sha256"),
        ("2018-07-12T15:31:58-03:00", "hmac-sha256"),
        ("2018-07-12T18:31:57.999Z", "stale"),
        ("2018-07-12T18:41:58.001Z", "stale"),
        ("2018-07-12T18:36:58", "malformed"),
        ("2018-07-12", "malformed"),
        ("1531420618", "malformed"),
        ("+10000000000-07-12T18:36:58.000000000000000Z", "malformed"),
    ];
    for (timestamp, expected) in cases {
        let signature = HEXLOWER.encode(&sha256(SECRET, &[timestamp.as_bytes(), BODY]));
        let sent = headers(&[("x-sig", &signature), ("x-time", timestamp)]);
        assert_eq!(outcome(&verifier.check(&sent, BODY, at(NOW))), expected, "at {timestamp}");
    }
}

#[test]
fn parameters_can_be_separated_by_semicolons() {
    let spec = HmacSpec {
        template: "{timestamp}:{body}".to_owned(),
        signature_param: Some("h1".to_owned()),
        timestamp_param: Some("ts".to_owned()),
        param_separator: ParamSeparator::Semicolon,
        ..HmacSpec::new("paddle-signature")
    };
    let verifier = verifier(spec, &[SECRET]);
    let right = HEXLOWER.encode(&sha256(SECRET, &[b"1531420618:", BODY]));
    let wrong = "0".repeat(64);
    let cases = [
        (format!("ts=1531420618;h1={right}"), "hmac-sha256"),
        (format!("ts=1531420618; h1={wrong};h1={right}"), "hmac-sha256"),
        (format!("ts=1531420618,h1={right}"), "missing_signature"),
        (format!("ts=1531420618;ts=1531420618;h1={right}"), "malformed"),
        (format!("h1={right}"), "missing_timestamp"),
    ];
    for (header, expected) in cases {
        let sent = headers(&[("paddle-signature", &header)]);
        assert_eq!(outcome(&verifier.check(&sent, BODY, at(NOW))), expected, "case: {header}");
    }
}

#[test]
fn signature_and_timestamp_can_be_parameters_of_one_header() {
    let right = HEXLOWER.encode(&sha256(SECRET, &[b"1531420618.", BODY]));
    let wrong = "0".repeat(64);
    let many = |count: usize| {
        format!("t=1531420618{},v1={right}", format!(",v1={wrong}").repeat(count - 1))
    };
    let cases = [
        ("one", format!("t=1531420618,v1={right}"), "hmac-sha256"),
        ("spaces", format!("t=1531420618, v1={right} "), "hmac-sha256"),
        ("several", format!("t=1531420618,v1={wrong},v1={right}"), "hmac-sha256"),
        ("malformed beside right", format!("t=1531420618,v1=x,v1={right}"), "hmac-sha256"),
        ("another scheme", format!("t=1531420618,v0={right}"), "missing_signature"),
        ("no timestamp", format!("v1={right}"), "missing_timestamp"),
        ("two timestamps", format!("t=1531420618,t=1531420618,v1={right}"), "malformed"),
        ("empty signature", "t=1531420618,v1=".to_owned(), "malformed"),
        ("no parameters", right.clone(), "missing_signature"),
        ("ten", many(10), "hmac-sha256"),
        ("eleven", many(11), "too_many_signatures"),
        ("thousands", many(10_000), "too_many_signatures"),
    ];
    for (name, value, expected) in cases {
        let result = stripe().check(&headers(&[("stripe-signature", &value)]), BODY, at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
}

#[test]
fn id_is_signed_and_cannot_shift_the_signed_parts() {
    let spec = HmacSpec {
        template: "{id}.{timestamp}.{body}".to_owned(),
        timestamp_header: Some("x-time".to_owned()),
        id_header: Some("x-id".to_owned()),
        ..HmacSpec::new("x-sig")
    };
    let verifier = verifier(spec, &[SECRET]);
    let right = HEXLOWER.encode(&sha256(SECRET, &[b"msg.1531420618.1531420618.b"]));
    let time = ("x-time", "1531420618");
    let cases = [
        ("right", "msg", "1531420618.b", "hmac-sha256"),
        ("the same bytes, cut elsewhere", "msg.1531420618", "b", "malformed"),
        ("other id", "gsm", "1531420618.b", "mismatch"),
        ("no id", "", "1531420618.b", "missing_id"),
    ];
    for (name, id, body, expected) in cases {
        let sent = headers(&[("x-sig", &right), time, ("x-id", id)]);
        let result = verifier.check(&sent, body.as_bytes(), at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
}

#[test]
fn first_present_signature_header_is_used() {
    let spec = HmacSpec {
        header: HeaderNames::Several(vec!["x-webhook-signature".into(), "x-signature".into()]),
        prefix: "sha256=".to_owned(),
        prefix_optional: true,
        ..HmacSpec::new("x-signature")
    };
    let verifier = verifier(spec, &[SECRET]);
    let prefixed = &*format!("sha256={GITHUB}");
    let wrong = &*"0".repeat(64);
    let cases = [
        ("first", vec![("x-webhook-signature", prefixed)], "hmac-sha256"),
        ("second, bare", vec![("x-signature", GITHUB)], "hmac-sha256"),
        ("both", vec![("x-signature", wrong), ("x-webhook-signature", GITHUB)], "hmac-sha256"),
        ("wrong first", vec![("x-signature", GITHUB), ("x-webhook-signature", wrong)], "mismatch"),
        ("empty first", vec![("x-signature", GITHUB), ("x-webhook-signature", "")], "hmac-sha256"),
        ("neither", vec![], "missing_signature"),
    ];
    for (name, sent, expected) in cases {
        let result = verifier.check(&headers(&sent), BODY, at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
}

#[test]
fn previous_secret_verifies_with_its_index_until_removed() {
    let sent = headers(&[("x-sig", GITHUB)]);
    let cases: [(_, &[&str], _); 3] = [
        ("current", &[SECRET, "the one before"], Ok(0)),
        ("previous", &["the one after it", SECRET], Ok(1)),
        ("removed", &["the one after it"], Err(VerifyError::Mismatch)),
    ];
    for (name, secrets, expected) in cases {
        let result = verifier(HmacSpec::new("x-sig"), secrets).check(&sent, BODY, at(NOW));
        assert_eq!(result.map(|verified| verified.secret_index), expected, "case: {name}");
    }
}

#[test]
fn token_must_match_exactly() {
    let spec = VerifySpec::Token { header: "X-Gitlab-Token".to_owned() };
    let secrets = vec![Secret::new("new"), Secret::new("old")];
    let verifier = Verifier::new(&spec, secrets).unwrap();
    let token = "x-gitlab-token";
    let cases = [
        ("current", vec![(token, "new")], Ok(0)),
        ("previous", vec![(token, "old")], Ok(1)),
        ("prefix", vec![(token, "ne")], Err("mismatch")),
        ("other case", vec![(token, "NEW")], Err("mismatch")),
        ("bearer elsewhere", vec![(token, "Bearer new")], Err("mismatch")),
        ("empty", vec![(token, "")], Err("missing_credentials")),
        ("missing", vec![], Err("missing_credentials")),
        ("twice", vec![(token, "new"), (token, "new")], Err("malformed")),
    ];
    for (name, sent, expected) in cases {
        let result = verifier.check(&headers(&sent), BODY, at(NOW));
        let result = result.map(|verified| verified.secret_index).map_err(|e| e.code());
        assert_eq!(result, expected, "case: {name}");
    }
}

#[test]
fn bearer_token_is_accepted_in_authorization_header() {
    let spec = VerifySpec::Token { header: "Authorization".to_owned() };
    let verifier = Verifier::new(&spec, vec![Secret::new("Bearertoken")]).unwrap();
    let cases = [
        ("Bearer Bearertoken", "token"),
        ("bearer  Bearertoken", "token"),
        ("Bearertoken", "token"),
        ("Bearer token", "mismatch"),
        ("Basic Bearertoken", "mismatch"),
    ];
    for (value, expected) in cases {
        let result = verifier.check(&headers(&[("authorization", value)]), BODY, at(NOW));
        assert_eq!(outcome(&result), expected, "case: {value}");
    }
}

#[test]
fn basic_auth_requires_user_and_password() {
    let spec = VerifySpec::Basic { user: "bob".to_owned() };
    let verifier = Verifier::new(&spec, vec![Secret::new("pass:word")]).unwrap();
    let encoded = |text: &str| format!("Basic {}", BASE64.encode(text.as_bytes()));
    let cases = [
        ("right", encoded("bob:pass:word"), "basic"),
        ("scheme in lower case", encoded("bob:pass:word").replace("Basic", "basic"), "basic"),
        ("wrong password", encoded("bob:password"), "mismatch"),
        ("wrong user", encoded("rob:pass:word"), "mismatch"),
        ("no password", encoded("bob:"), "mismatch"),
        ("no colon", encoded("bob"), "malformed"),
        ("not base64", "Basic ???".to_owned(), "malformed"),
        ("no padding", "Basic Ym9iOnBhc3M6d29yZA".to_owned(), "malformed"),
        ("other scheme", "Bearer pass:word".to_owned(), "malformed"),
        ("only the scheme", "Basic".to_owned(), "malformed"),
        ("empty", String::new(), "missing_credentials"),
    ];
    for (name, value, expected) in cases {
        let result = verifier.check(&headers(&[("authorization", &value)]), BODY, at(NOW));
        assert_eq!(outcome(&result), expected, "case: {name}");
    }
}

#[test]
fn each_invalid_setting_has_its_own_error() {
    let hmac = |fields: &str| format!(r#"{{"hmac":{{"header":"x-sig"{fields}}}}}"#);
    let placeholder = |name: &str| E::UnknownPlaceholder { name: name.to_owned() };
    let cases = [
        ("unknown placeholder", hmac(r#","template":"{path}{body}""#), placeholder("path")),
        ("unclosed", hmac(r#","template":"{body""#), E::UnclosedPlaceholder),
        ("no body", hmac(r#","template":"v0""#), E::NoBody),
        ("no timestamp", hmac(r#","template":"{timestamp}.{body}""#), E::NoTimestamp),
        ("no id", hmac(r#","template":"{id}.{body}""#), E::NoId),
        (
            "two timestamps",
            hmac(r#","timestamp_header":"x","timestamp_param":"t","signature_param":"v1""#),
            E::TwoTimestamps,
        ),
        ("lonely parameter", hmac(r#","timestamp_param":"t""#), E::NoSignatureParam),
        (
            "odd parameter",
            hmac(r#","signature_param":"v=1""#),
            E::InvalidParam { name: "v=1".to_owned() },
        ),
        ("no header", r#"{"hmac":{"header":[]}}"#.to_owned(), E::NoHeader),
        (
            "odd header",
            r#"{"token":{"header":"x token"}}"#.to_owned(),
            E::InvalidHeader { name: "x token".to_owned() },
        ),
        ("colon in user", r#"{"basic":{"user":"a:b"}}"#.to_owned(), E::InvalidUser),
        ("secrets unused", r#""none""#.to_owned(), E::UnusedSecrets),
    ];
    for (name, spec, expected) in cases {
        let spec = serde_json::from_str(&spec).unwrap();
        let error = Verifier::new(&spec, vec![Secret::new(SECRET)]).unwrap_err();
        assert_eq!(error, expected, "case: {name}");
    }
    let unkeyed = Verifier::new(&VerifySpec::Basic { user: "bob".to_owned() }, vec![]);
    assert_eq!(unkeyed.unwrap_err(), E::NoSecret);
}

#[test]
fn documented_settings_parse_and_round_trip() {
    let written = r#"{"hmac":{"header":"x-signature","prefix":"sha256=","encoding":"hex",
        "algorithm":"sha256","template":"{body}","timestamp_header":"x-timestamp",
        "timestamp_unit":"s","tolerance":"5m","id_header":"x-id"}}"#;
    let full: VerifySpec = serde_json::from_str(written).unwrap();
    let short: VerifySpec = serde_json::from_str(
        r#"{"hmac":{"header":"x-signature","prefix":"sha256=","timestamp_header":"x-timestamp","id_header":"x-id"}}"#,
    )
    .unwrap();
    assert_eq!(full, short);

    for spec in [full, VerifySpec::None, VerifySpec::Token { header: "x".to_owned() }] {
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<VerifySpec>(&text).unwrap(), spec);
    }
    let unknown = r#"{"hmac":{"header":"x","templte":"{body}"}}"#;
    let error = serde_json::from_str::<VerifySpec>(unknown).unwrap_err();
    assert!(error.to_string().contains("templte"), "{error}");
}

#[test]
fn weak_settings_give_warnings() {
    let spec = HmacSpec {
        timestamp_header: Some("x-time".to_owned()),
        id_header: Some("x-id".to_owned()),
        ..HmacSpec::new("x-sig")
    };
    assert!(github().warnings().is_empty());

    let weak = verifier(spec, &[SECRET]);
    assert!(weak.warnings()[0].contains("timestamp"), "{:?}", weak.warnings());
    assert!(weak.warnings()[1].contains("`id_header`"), "{:?}", weak.warnings());
}

#[test]
fn debug_output_contains_no_secret() {
    let verifiers = [
        github(),
        Verifier::new(
            &VerifySpec::Token { header: "x-token".to_owned() },
            vec![Secret::new(SECRET)],
        )
        .unwrap(),
    ];
    for verifier in verifiers {
        let shown = format!("{verifier:?}");
        assert!(!shown.contains("Secret to Everybody"), "{shown}");
        assert!(!shown.contains("73, 116, 39, 115"), "{shown}");
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    let bit = bit % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

proptest! {
    #[test]
    fn one_changed_bit_is_refused(
        body in prop::collection::vec(any::<u8>(), 1..200),
        secret in prop::collection::vec(any::<u8>(), 1..80),
        bit in any::<usize>(),
        place in 0..3,
    ) {
        let spec = VerifySpec::Hmac(Box::new(HmacSpec::new("x-sig")));
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret).unwrap();
        mac.update(&body);
        let mut signature = mac.finalize().into_bytes();
        let (mut sent_body, mut own_secret) = (body, secret);
        let check = |body: &[u8], signature: &[u8], secret: &[u8]| {
            let verifier = Verifier::new(&spec, vec![Secret::new(secret)]).unwrap();
            let sent = headers(&[("x-sig", &HEXLOWER.encode(signature))]);
            verifier.check(&sent, body, at(NOW)).is_ok()
        };
        prop_assert!(check(&sent_body, &signature, &own_secret));

        match place {
            0 => flip(&mut sent_body, bit),
            1 => flip(&mut signature, bit),
            _ => flip(&mut own_secret, bit),
        }
        // RFC 2104 pads a key with zero bytes, so keys that differ only in trailing zeros are equal;
        // one flipped bit cannot produce such a pair.
        prop_assert!(!check(&sent_body, &signature, &own_secret));
    }

    #[test]
    fn arbitrary_header_never_panics(value in prop::collection::vec(any::<u8>(), 0..100)) {
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        let mut sent = HeaderMap::new();
        for name in ["x-sig", "stripe-signature", "x-slack-signature", "x-slack-request-timestamp"] {
            sent.insert(HeaderName::from_static(name), value.clone());
        }
        for verifier in [github(), stripe(), slack()] {
            prop_assert!(verifier.check(&sent, BODY, at(NOW)).is_err());
        }
    }

    #[test]
    fn generated_signature_verifies(
        algorithm in prop_oneof![
            Just(HmacAlgorithm::Sha1), Just(HmacAlgorithm::Sha256), Just(HmacAlgorithm::Sha512)
        ],
        encoding in prop_oneof![
            Just(SignatureEncoding::Hex), Just(SignatureEncoding::Base64), Just(SignatureEncoding::Base64url)
        ],
        place in 0..3_u8,
        unit in prop_oneof![
            Just(TimestampUnit::Seconds), Just(TimestampUnit::Milliseconds), Just(TimestampUnit::Iso8601)
        ],
        separator in prop_oneof![Just(ParamSeparator::Comma), Just(ParamSeparator::Semicolon)],
        has_id in any::<bool>(),
        prefix in prop_oneof![Just(""), Just("sha256=")],
        body in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut spec = HmacSpec::new("x-sig");
        spec.algorithm = algorithm;
        spec.encoding = encoding;
        spec.timestamp_unit = unit;
        spec.param_separator = separator;
        prefix.clone_into(&mut spec.prefix);
        let mut template = "{body}".to_owned();
        match place {
            1 => spec.timestamp_header = Some("x-time".to_owned()),
            2 => {
                spec.signature_param = Some("v1".to_owned());
                spec.timestamp_param = Some("t".to_owned());
            }
            _ => {}
        }
        if place > 0 {
            template = format!("{{timestamp}}.{template}");
        }
        if has_id {
            spec.id_header = Some("x-id".to_owned());
            template = format!("{{id}}.{template}");
        }
        spec.template = template;
        let verifier = verifier(spec, &[SECRET]);

        let signed = verifier.sign_headers("test_1", &body);

        let pairs: Vec<(&str, &str)> =
            signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let verified = verifier.check(&headers(&pairs), &body, at(NOW));
        prop_assert!(verified.is_ok(), "{signed:?}: {verified:?}");
    }
}

#[test]
fn generated_signature_matches_github_and_simple_schemes() {
    let (name, value) = &github().sign_headers("", BODY)[0];
    assert_eq!((name.as_str(), value.as_str()), ("x-sig", &*format!("sha256={GITHUB}")));
    let specs = [
        VerifySpec::Token { header: "x-token".to_owned() },
        VerifySpec::Token { header: "authorization".to_owned() },
        VerifySpec::Basic { user: "ada".to_owned() },
        VerifySpec::None,
    ];
    for spec in specs {
        let secrets = if spec == VerifySpec::None { vec![] } else { vec![Secret::new(SECRET)] };
        let verifier = Verifier::new(&spec, secrets).unwrap();
        let signed = verifier.sign_headers("", BODY);
        let pairs: Vec<(&str, &str)> =
            signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let verified = verifier.check(&headers(&pairs), BODY, at(NOW));
        assert!(verified.is_ok(), "case: {spec:?}: {verified:?}");
    }
}

#[test]
fn label_names_the_matching_secret() {
    let token = |secrets: &[&str]| {
        let spec = VerifySpec::Token { header: "x-token".to_owned() };
        Verifier::new(&spec, secrets.iter().map(|text| Secret::new(*text)).collect()).unwrap()
    };
    let label = |verifier: &Verifier, given: &str| {
        let verified = verifier.check(&headers(&[("x-token", given)]), b"", at(0)).unwrap();
        verifier.label(verified).unwrap().to_string()
    };
    let rotated = token(&["new-secret-of-today", "old-secret-of-before"]);
    assert_eq!(label(&rotated, "new-secret-of-today"), "token secret 1 of 2");
    assert_eq!(label(&rotated, "old-secret-of-before"), "token secret 2 of 2");
    assert_eq!(label(&token(&["the-only-secret-here"]), "the-only-secret-here"), "token");
    assert_eq!(rotated.secret_header().map(HeaderName::as_str), Some("x-token"));
    let none = Verifier::new(&VerifySpec::None, Vec::new()).unwrap();
    assert_eq!(label(&none, ""), "none");
    assert_eq!(none.secret_header(), None);
}

#[test]
fn signature_is_appended_to_path_or_query() {
    let signature = |path: &str, query: Option<&str>| RequestSignature {
        path: path.to_owned(),
        query: query.map(str::to_owned),
        ..RequestSignature::default()
    };
    let (hash, both) = (Some("bodySHA256=00"), "https://gw/in/t/secret?x=1&bodySHA256=00");
    let cases = [
        ("https://gw/in/t", signature("/secret", None), "https://gw/in/t/secret"),
        ("https://gw/in/t?x=1", signature("/secret", None), "https://gw/in/t/secret?x=1"),
        ("https://gw/in/t", signature("", hash), "https://gw/in/t?bodySHA256=00"),
        ("https://gw/in/t?x=1", signature("", hash), "https://gw/in/t?x=1&bodySHA256=00"),
        ("https://gw/in/t?x=1", signature("/secret", hash), both),
        ("https://gw/in/t?x=1", signature("", None), "https://gw/in/t?x=1"),
    ];
    for (url, signature, expected) in cases {
        assert_eq!(signature.signed_url(url), expected);
        assert_eq!(signature.changes_url(), url != expected, "{url}");
    }
}
