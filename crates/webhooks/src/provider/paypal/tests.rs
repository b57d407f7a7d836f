use std::sync::LazyLock;

use data_encoding::BASE64;
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls_pki_types::{CertificateDer, TrustAnchor, pem::PemObject};
use surehook_types::time::Timestamp;

use super::{
    super::{
        EventKey,
        testing::{TestCall, assert_events, attribute_pairs, event_summary, part},
    },
    parse_certificate_url,
};
use crate::verify::CertificateChain;

const WEBHOOK: &str = "9XL90610J3647323C";
const CERT_URL: &str =
    "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77";
const CHAIN: &[u8] = include_bytes!("../../../../../testdata/paypal/chain.pem");
const LEAF: &[u8] = include_bytes!("../../../../../testdata/paypal/leaf.pem");
const OTHER_NAME: &[u8] = include_bytes!("../../../../../testdata/paypal/other-name.pem");
const ROOT: &[u8] = include_bytes!("../../../../../testdata/paypal/root.pem");
const KEY: &[u8] = include_bytes!("../../../../../testdata/paypal/signing-key.pk8");
/// Two seconds after the signed time in 2027, and 2150, when the certificates have expired.
const NOW: i64 = 1_800_000_000_000;
const LATER: i64 = 5_700_000_000_000;

static ROOTS: LazyLock<Vec<TrustAnchor<'static>>> = LazyLock::new(|| {
    let root = CertificateDer::from_pem_slice(ROOT).unwrap();
    vec![webpki::anchor_from_trusted_cert(&root).unwrap().to_owned()]
});

fn call(body: &str) -> TestCall {
    let line = format!("t1|2027-01-15T07:59:58Z|{WEBHOOK}|{}", crc32fast::hash(body.as_bytes()));
    let pair = RsaKeyPair::from_pkcs8(KEY).unwrap();
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), line.as_bytes(), &mut signature).unwrap();
    TestCall::new("paypal", WEBHOOK)
        .header("paypal-transmission-id", "t1")
        .header("paypal-transmission-time", "2027-01-15T07:59:58Z")
        .header("paypal-auth-algo", "SHA256withRSA")
        .header("paypal-cert-url", CERT_URL)
        .header("paypal-transmission-sig", BASE64.encode(&signature))
        .body(body)
}

fn verify(
    call: &TestCall,
    pem: &[u8],
    roots: &[TrustAnchor<'static>],
    now: i64,
) -> Result<usize, String> {
    let verifier = call.verifier().ok_or("secret")?;
    call.with_request(|request| {
        let url = verifier.certificate_url(request).map_err(|refused| refused.code().to_owned())?;
        assert!(url.is_some());
        let certificate = CertificateChain { pem, roots };
        let verified =
            verifier.verify_with_certificate(request, &certificate, Timestamp::from_millis(now));
        verified.map(|verified| verified.secret_index).map_err(|refused| match refused.code() {
            "untrusted_certificate" => refused.to_string(),
            code => code.to_owned(),
        })
    })
}

#[test]
fn request_signed_with_the_certificate_is_accepted() {
    let good = call("{}");
    let id = "paypal-transmission-id";
    let time = "paypal-transmission-time";
    let signature = "paypal-transmission-sig";
    let cases = [
        ("good", good.clone(), Ok(0)),
        ("the second webhook", good.clone().secrets(&["OTHER", WEBHOOK]), Ok(1)),
        ("another webhook", good.clone().secrets(&["OTHER"]), Err("mismatch")),
        ("another body", good.clone().body("{ }"), Err("mismatch")),
        ("another id", good.clone().header(id, "t2"), Err("mismatch")),
        ("another time", good.clone().header(time, "2027-01-15T07:59:59Z"), Err("mismatch")),
        ("no id", good.clone().without(id), Err("missing_id")),
        ("no time", good.clone().without(time), Err("missing_timestamp")),
        ("two ids", good.clone().add_header(id, "t1"), Err("malformed")),
        ("an id with a separator", good.clone().header(id, "t1|2026"), Err("malformed")),
        ("a time with a separator", good.clone().header(time, "a|b"), Err("malformed")),
        ("no signature", good.clone().without(signature), Err("missing_signature")),
        ("not base64", good.clone().header(signature, "(RSA)"), Err("malformed")),
        ("cut short", good.clone().header(signature, "AAAA"), Err("mismatch")),
        ("another algorithm", good.clone().header("paypal-auth-algo", "none"), Err("malformed")),
        ("no algorithm", good.clone().without("paypal-auth-algo"), Ok(0)),
        ("no certificate", good.clone().without("paypal-cert-url"), Err("untrusted_certificate")),
        (
            "a foreign certificate",
            good.clone().header("paypal-cert-url", "https://evil.test/v1/notifications/certs/C"),
            Err("untrusted_certificate"),
        ),
    ];
    for (name, call, expected) in cases {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(verify(&call, CHAIN, &ROOTS, NOW), expected, "case: {name}");
    }
    assert_eq!(good.verify(), Err("untrusted_certificate"), "without a certificate");
    assert!(good.signature().is_err());
}

#[test]
fn transmission_time_is_checked() {
    let day = 86_400_000;
    let cases = [
        ("after three days of retries", NOW + 3 * day, Ok(0)),
        ("after four days", NOW + 4 * day, Err("stale")),
        ("clock five minutes ahead", NOW - 4 * 60_000, Ok(0)),
        ("clock an hour ahead", NOW - 3_600_000, Err("stale")),
    ];
    for (name, now, expected) in cases {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(verify(&call("{}"), CHAIN, &ROOTS, now), expected, "case: {name}");
    }
}

#[test]
fn certificate_must_be_paypals_and_valid_now() {
    let twice = [LEAF, LEAF].concat();
    let long = LEAF.repeat(9);
    type Roots<'t> = &'t [TrustAnchor<'static>];
    type Case<'t> = (&'t str, &'t [u8], Roots<'t>, i64, Result<usize, &'t str>);
    let cases: [Case<'_>; 11] = [
        ("chain to a root", CHAIN, &ROOTS, NOW, Ok(0)),
        ("alone, as the connection was PayPal's", LEAF, &ROOTS, NOW, Ok(0)),
        ("a chain to nowhere", CHAIN, &[], NOW, Err("issuer")),
        ("a repeated leaf", &twice, &ROOTS, NOW, Err("issuer")),
        ("for another name", OTHER_NAME, &ROOTS, NOW, Err("another name")),
        ("no longer valid", CHAIN, &ROOTS, LATER, Err("at this time")),
        ("alone and no longer valid", LEAF, &ROOTS, LATER, Err("at this time")),
        ("not yet valid", CHAIN, &ROOTS, 0, Err("at this time")),
        ("no certificate", b"<html>", &ROOTS, NOW, Err("PEM")),
        ("half of one", &LEAF[..200], &ROOTS, NOW, Err("PEM")),
        ("too many", &long, &ROOTS, NOW, Err("too long")),
    ];
    for (name, pem, roots, now, expected) in cases {
        match (verify(&call("{}"), pem, roots, now), expected) {
            (Ok(index), Ok(expected)) => assert_eq!(index, expected, "case: {name}"),
            (Err(reason), Err(expected)) => {
                assert!(reason.contains(expected), "case: {name}: {reason}");
            }
            (result, _) => panic!("case: {name}: {result:?}"),
        }
    }
}

#[test]
fn only_paypal_certificate_urls_are_accepted() {
    let good = [
        CERT_URL,
        "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-1",
        "https://paypal.com/v1/notifications/certs/CERT-1",
    ];
    for url in good {
        assert_eq!(parse_certificate_url(url).map(String::from).as_deref(), Some(url));
    }
    let path = "/v1/notifications/certs/CERT-1";
    let bad = [
        format!("http://api.paypal.com{path}"),
        format!("https://api.paypal.com.evil.test{path}"),
        format!("https://evilpaypal.com{path}"),
        format!("https://api.paypal.com@evil.test{path}"),
        format!("https://user:pass@api.paypal.com{path}"),
        format!("https://api.paypal.com:443{path}"),
        format!("https://api.paypal.com:8443{path}"),
        format!("https://evil.test/?.paypal.com{path}"),
        format!("https://evil.test#.paypal.com{path}"),
        format!("https://evil.test\\.paypal.com{path}"),
        format!("https:\\\\api.paypal.com{path}"),
        format!("https://API.PAYPAL.COM{path}"),
        format!("https://api.paypal.com.{path}"),
        format!("https://api%2Epaypal.com{path}"),
        format!("https://.paypal.com{path}?x"),
        format!("https://аpi.paypal.com{path}"),
        format!("https://127.0.0.1{path}"),
        format!("https://[::1]{path}"),
        format!("https:/api.paypal.com{path}"),
        format!("https:api.paypal.com{path}"),
        format!("//api.paypal.com{path}"),
        format!(" https://api.paypal.com{path}"),
        format!("https://api.paypal.com{path}?u=1"),
        format!("https://api.paypal.com{path}#f"),
        "https://api.paypal.com/v1/notifications/certs/../../redirect".to_owned(),
        "https://api.paypal.com/v1/notifications/certs/%2e%2e/x".to_owned(),
        "https://api.paypal.com/anything".to_owned(),
        "https://api.paypal.com".to_owned(),
        format!("https://api.paypal.com{path}{}", "a".repeat(300)),
        "file:///v1/notifications/certs/x".to_owned(),
        String::new(),
    ];
    for url in bad {
        assert_eq!(parse_certificate_url(&url), None, "{url}");
    }
}

#[test]
fn any_flipped_bit_is_refused() {
    let good = call(r#"{"id":"WH-1"}"#);
    assert_eq!(verify(&good, LEAF, &[], NOW), Ok(0));
    for at in 0..good.body.len() * 8 {
        let mut call = good.clone();
        call.body[at / 8] ^= 1 << (at % 8);
        assert!(verify(&call, LEAF, &[], NOW).is_err(), "bit {at} of the body");
    }
    for (name, value) in [("id", "t1"), ("time", "2027-01-15T07:59:58Z")] {
        for at in 0..value.len() * 8 {
            let mut bytes = value.as_bytes().to_vec();
            bytes[at / 8] ^= 1 << (at % 8);
            let Ok(value) = String::from_utf8(bytes) else { continue };
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                continue;
            }
            let call = good.clone().header(&format!("paypal-transmission-{name}"), value);
            assert!(verify(&call, LEAF, &[], NOW).is_err(), "bit {at} of {name}");
        }
    }
    for at in 0..WEBHOOK.len() * 8 {
        let mut bytes = WEBHOOK.as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        let Ok(webhook) = String::from_utf8(bytes) else { continue };
        let call = good.clone().secrets(&[&webhook]);
        assert!(verify(&call, LEAF, &[], NOW).is_err(), "bit {at} of the webhook's id");
    }
}

#[test]
fn key_is_the_signed_transmission_id() {
    let transmission = [("paypal-transmission-id", "t1")];
    assert_events(
        "paypal",
        &transmission,
        r#"
        case | body | kind | key | ordering key
        typical | {"id":"WH-1","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"R1"}} | PAYMENT.CAPTURE.COMPLETED | paypal:t1 | R1
        a dispute has no plain id | {"id":"WH-1","event_type":"CUSTOMER.DISPUTE.CREATED","resource":{"dispute_id":"PP-D-1"}} | CUSTOMER.DISPUTE.CREATED | paypal:t1 | PP-D-1
        no id | {"event_type":"A"} | A | paypal:t1 | -
        not JSON | x | - | paypal:t1 | -
        "#,
    );
    let event = part("paypal", &transmission, r#"{"id":"WH-1"}"#);
    assert!(matches!(event.key, EventKey::Known(..)), "{:?}", event.key);
    assert_eq!(event.earlier_key.unwrap().as_str(), "paypal:WH-1");
    let unverified = part("paypal", &[], r#"{"id":"WH-1"}"#);
    assert_eq!(event_summary(&unverified), ["-", "paypal:WH-1", "-"]);
    let body = r#"{"resource":{"id":"R1","status":"COMPLETED","payer":{"email_address":"a@example.com"}}}"#;
    let expected = ["object=R1", "email=a@example.com", "provider_status=COMPLETED"];
    assert_eq!(attribute_pairs("paypal", &[], body), expected);
}

#[test]
fn invalid_webhook_id_is_refused_at_configuration() {
    for id in ["", "a|b", "WH 1", "9XL90610J3647323C\n"] {
        assert!(TestCall::new("paypal", id).verifier().is_none(), "{id:?}");
    }
    assert_eq!(TestCall::new("paypal", "WEBHOOK_ID").verifier().unwrap().warnings().len(), 1);
    assert!(TestCall::new("paypal", WEBHOOK).verifier().unwrap().warnings().is_empty());
}
