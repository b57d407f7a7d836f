//! Verification of sources: every method with accepted and refused requests.

use data_encoding::{BASE64, HEXLOWER, HEXUPPER};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::support::{gateway::Gateway, unix_now};

const SECRET: &str = "the-current-shared-secret";
const PREVIOUS: &str = "the-previous-shared-secret";
const BODY: &str = r#"{"id":"evt-1"}"#;

fn mac(secret: &str, text: &str) -> Vec<u8> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hex(secret: &str, text: &str) -> String {
    HEXLOWER.encode(&mac(secret, text))
}

/// 200, or 401 with this code.
type ExpectedResult = Result<(), &'static str>;

/// One request with its expected result.
struct Case {
    name: &'static str,
    headers: Vec<(&'static str, String)>,
    expected: ExpectedResult,
}

fn case(name: &'static str, headers: &[(&'static str, &str)], expected: ExpectedResult) -> Case {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Case { name, headers, expected }
}

/// Sends [`BODY`] with the headers of each case to a source with this `verify` and both secrets.
/// Refused requests must not be stored as events.
async fn check(verify: &str, cases: Vec<Case>) {
    let gateway = Gateway::builder()
        .env("PREVIOUS", PREVIOUS)
        .settings(&format!(
            "[[sources]]\nname = \"in\"\nverify = {verify}\n\
             secrets = [\"{SECRET}\", \"env:PREVIOUS\"]\n\
             # Without keys each request is a new event.\nkeys = []"
        ))
        .start()
        .await;
    let accepted = cases.iter().filter(|case| case.expected.is_ok()).count();
    for Case { name, headers, expected } in cases {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let response = gateway.send_webhook("in", &headers, BODY).await;
        match expected {
            Ok(()) => assert_eq!(response.status, 200, "case: {name}: {}", response.text()),
            Err(code) => {
                assert_eq!(response.status, 401, "case: {name}: {}", response.text());
                assert_eq!(response.code(), code, "case: {name}");
            }
        }
    }
    assert_eq!(gateway.stats().await["total"], accepted);
    assert_eq!(gateway.list("/events").await.len(), accepted);
}

#[tokio::test]
async fn hex_signature_with_prefix_is_verified() {
    let good = hex(SECRET, BODY);
    let signed = |value: String| vec![("x-signature", value)];
    let case = |name, value, expected| Case { name, headers: signed(value), expected };
    let upper = HEXUPPER.encode(&mac(SECRET, BODY));
    let mut cases = vec![
        case("good", format!("sha256={good}"), Ok(())),
        case("upper case", format!("sha256={upper}"), Ok(())),
        case("the previous secret", format!("sha256={}", hex(PREVIOUS, BODY)), Ok(())),
        case("another secret", format!("sha256={}", hex("another", BODY)), Err("mismatch")),
        case("another body", format!("sha256={}", hex(SECRET, "{}")), Err("mismatch")),
        // The same JSON formatted differently: the signature covers the raw bytes.
        case("spaces", format!("sha256={}", hex(SECRET, r#"{"id": "evt-1"}"#)), Err("mismatch")),
        case("empty", String::new(), Err("missing_signature")),
        case("only the prefix", "sha256=".to_owned(), Err("malformed")),
        case("no prefix", good.clone(), Err("malformed")),
        case("a part", format!("sha256={}", &good[..2]), Err("malformed")),
        case("half", format!("sha256={}", &good[..32]), Err("malformed")),
        case("and more", format!("sha256={good}00"), Err("malformed")),
        case("base64", format!("sha256={}", BASE64.encode(&mac(SECRET, BODY))), Err("malformed")),
    ];
    let many = (0..11).map(|_| ("x-signature", format!("sha256={good}"))).collect();
    cases.push(Case { name: "eleven", headers: many, expected: Err("too_many_signatures") });
    let rotation = vec![
        ("x-signature", format!("sha256={}", hex("next", BODY))),
        ("x-signature", format!("sha256={good}")),
    ];
    cases.push(Case { name: "one of two", headers: rotation, expected: Ok(()) });
    cases.push(Case { name: "missing", headers: Vec::new(), expected: Err("missing_signature") });

    check(r#"{ hmac = { header = "x-signature", prefix = "sha256=" } }"#, cases).await;
}

#[tokio::test]
async fn base64_signature_is_verified() {
    let good = BASE64.encode(&mac(SECRET, BODY));
    let sent = |value: &str| [("x-sig", value.to_owned())];
    let bare = good.trim_end_matches('=').to_owned();
    // The last character before the padding has unused bits; only zeros are canonical.
    let mut odd = bare.clone();
    let last = odd.pop().unwrap();
    odd.push(char::from(u32::from(last) as u8 + 1));
    let cases = [
        ("good", sent(&good), Ok(())),
        ("no padding", sent(&bare), Err("malformed")),
        ("not canonical", sent(&format!("{odd}=")), Err("malformed")),
        ("hex", sent(&hex(SECRET, BODY)), Err("malformed")),
        ("nonsense", sent("%%%"), Err("malformed")),
    ];
    let cases =
        cases.map(|(name, headers, expected)| Case { name, headers: headers.to_vec(), expected });

    check(r#"{ hmac = { header = "x-sig", encoding = "base64" } }"#, cases.into()).await;
}

// The exact limit is covered by unit tests with a fixed clock.
#[tokio::test]
async fn signature_with_timestamp_is_verified() {
    let now = unix_now();
    let signed_at = |name, timestamp: &str, expected| {
        let signature = hex(SECRET, &format!("v0:{timestamp}:{BODY}"));
        case(name, &[("x-time", timestamp), ("x-signature", &signature)], expected)
    };
    let at = |secs: i64| secs.to_string();
    let mut cases = vec![
        signed_at("now", &at(now), Ok(())),
        signed_at("a while ago", &at(now - 200), Ok(())),
        signed_at("a fast clock", &at(now + 200), Ok(())),
        signed_at("old", &at(now - 400), Err("stale")),
        signed_at("future", &at(now + 400), Err("stale")),
        signed_at("zero", "0", Err("stale")),
        signed_at("milliseconds", &at(now * 1000), Err("stale")),
        signed_at("negative", &at(-now), Err("malformed")),
        signed_at("plus", &format!("+{now}"), Err("malformed")),
        signed_at("leading zero", &format!("0{now}"), Err("malformed")),
        signed_at("fraction", &format!("{now}.5"), Err("malformed")),
        signed_at("huge", "9223372036854775808", Err("malformed")),
        signed_at("word", "now", Err("malformed")),
        signed_at("empty", "", Err("missing_timestamp")),
    ];
    let signature = hex(SECRET, &format!("v0:{now}:{BODY}"));
    let later = at(now + 1);
    let changed = [("x-time", later.as_str()), ("x-signature", &signature)];
    cases.push(case("another time", &changed, Err("mismatch")));
    cases.push(case("no time", &[("x-signature", &signature)], Err("missing_timestamp")));
    cases.push(case("no signature", &[("x-time", &at(now))], Err("missing_signature")));

    check(
        r#"{ hmac = { header = "x-signature", timestamp_header = "x-time", template = "v0:{timestamp}:{body}" } }"#,
        cases,
    )
    .await;
}

// The parameters of one header, as Stripe has them.
#[tokio::test]
async fn signature_in_header_parameters_is_verified() {
    let now = unix_now();
    let signed = |at: i64| hex(SECRET, &format!("{at}.{BODY}"));
    let good = signed(now);
    let eleven = format!("t={now}{}", format!(",v1={good}").repeat(11));
    let cases = vec![
        case("good", &[("x-sig", &format!("t={now},v1={good}"))], Ok(())),
        case("two", &[("x-sig", &format!("t={now},v1={},v1={good}", signed(1)))], Ok(())),
        case("other", &[("x-sig", &format!("t={now},v0={good}"))], Err("missing_signature")),
        case("empty", &[("x-sig", &format!("t={now},v1="))], Err("malformed")),
        case("no time", &[("x-sig", &format!("v1={good}"))], Err("missing_timestamp")),
        case("two times", &[("x-sig", &format!("t={now},t={now},v1={good}"))], Err("malformed")),
        case("old", &[("x-sig", &format!("t={},v1={}", 1, signed(1)))], Err("stale")),
        case("eleven", &[("x-sig", &eleven)], Err("too_many_signatures")),
    ];

    check(
        r#"{ hmac = { header = "x-sig", signature_param = "v1", timestamp_param = "t", template = "{timestamp}.{body}" } }"#,
        cases,
    )
    .await;
}

#[tokio::test]
async fn token_header_is_verified() {
    let cases = vec![
        case("good", &[("x-token", SECRET)], Ok(())),
        case("the previous one", &[("x-token", PREVIOUS)], Ok(())),
        case("wrong", &[("x-token", "guess")], Err("mismatch")),
        case("a part", &[("x-token", &SECRET[..8])], Err("mismatch")),
        case("and more", &[("x-token", &format!("{SECRET}x"))], Err("mismatch")),
        case("other case", &[("x-token", &SECRET.to_uppercase())], Err("mismatch")),
        case("twice", &[("x-token", SECRET), ("x-token", SECRET)], Err("malformed")),
        case("empty", &[("x-token", "")], Err("missing_credentials")),
        case("missing", &[], Err("missing_credentials")),
    ];

    check(r#"{ token = { header = "x-token" } }"#, cases).await;
}

#[tokio::test]
async fn basic_credentials_are_verified() {
    let basic = |text: &str| format!("Basic {}", BASE64.encode(text.as_bytes()));
    let good = format!("shop:{SECRET}");
    let sent = |value: String| vec![("authorization", value)];
    let case = |name, headers, expected| Case { name, headers, expected };
    let cases = vec![
        case("good", sent(basic(&good)), Ok(())),
        case("the previous one", sent(basic(&format!("shop:{PREVIOUS}"))), Ok(())),
        case("scheme in lower case", sent(basic(&good).replace("Basic", "basic")), Ok(())),
        case("wrong password", sent(basic("shop:guess")), Err("mismatch")),
        case("no password", sent(basic("shop:")), Err("mismatch")),
        case("wrong user", sent(basic(&format!("shop2:{SECRET}"))), Err("mismatch")),
        case("no colon", sent(basic("shop")), Err("malformed")),
        case("not base64", sent("Basic %%%".to_owned()), Err("malformed")),
        case("bearer", sent(format!("Bearer {SECRET}")), Err("malformed")),
        case("missing", Vec::new(), Err("missing_credentials")),
    ];

    check(r#"{ basic = { user = "shop" } }"#, cases).await;
}

#[tokio::test]
async fn unverified_source_accepts_every_request() {
    let gateway = Gateway::start_with("[[sources]]\nname = \"in\"\nverify = \"none\"").await;

    gateway.send_webhook("in", &[], BODY).await.expect(200);
    gateway.send_webhook("in", &[("authorization", "Basic nonsense")], "{}").await.expect(200);

    assert_eq!(gateway.stats().await["total"], 2);
}

#[tokio::test]
async fn removed_secret_is_refused() {
    let source = |secrets: &[&str]| {
        serde_json::json!({
            "name": "in",
            "verify": { "token": { "header": "x-token" } },
            "secrets": secrets,
        })
    };
    let gateway = Gateway::start().await;
    gateway.post("/sources", &source(&[SECRET, PREVIOUS])).await.expect(201);
    let old = [("x-token", PREVIOUS)];
    gateway.send_webhook("in", &old, BODY).await.expect(200);
    let again = gateway.send_webhook("in", &old, BODY).await.expect(200).json();
    assert_eq!((&again["status"], &again["skipped"]), (&"duplicate".into(), &true.into()));

    gateway.put("/sources/in", &source(&[SECRET])).await.expect(200);

    assert_eq!(gateway.send_webhook("in", &old, BODY).await.expect(401).code(), "mismatch");
    gateway.send_webhook("in", &[("x-token", SECRET)], BODY).await.expect(200);
    assert_eq!(gateway.stats().await["total"], 1);
}

#[tokio::test]
async fn source_with_unset_secret_refuses_requests_and_other_sources_work() {
    let mut gateway = Gateway::builder()
        .env("SHOP_SECRET", SECRET)
        .env("SUREHOOK_ALLOW_ENV", "[\"SHOP_SECRET\"]")
        .start()
        .await;
    let source = serde_json::json!({
        "name": "shop",
        "verify": { "token": { "header": "x-token" } },
        "secrets": ["env:SHOP_SECRET"],
    });
    gateway.post("/sources", &source).await.expect(201);
    gateway.send_webhook("shop", &[("x-token", SECRET)], BODY).await.expect(200);

    gateway.remove_env("SHOP_SECRET");
    gateway.restart().await;

    for headers in [&[][..], &[("x-token", SECRET)], &[("x-token", "")]] {
        let refused = gateway.send_webhook("shop", headers, "{}").await.expect(503);
        assert_eq!(refused.code(), "source_misconfigured");
        // The request may be valid, so the sender is asked to retry.
        assert_eq!(refused.header("retry-after"), "60");
    }
    gateway.post_accepted("demo", "{}").await;
    gateway
        .post("/sources", &serde_json::json!({ "name": "in", "verify": "none" }))
        .await
        .expect(201);
    assert_eq!(gateway.stats().await["total"], 2);
}
