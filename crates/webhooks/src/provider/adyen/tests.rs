use super::super::testing::{TestCall, attribute_pairs, event_summary, parts};

/// Key and signature of the tests of Adyen's own libraries.
const KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
const SIGNATURE: &str = "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=";
const HEADER: &str = "hmacsignature";

fn item(fields: &str) -> String {
    format!(r#"{{"NotificationRequestItem":{{{fields}}}}}"#)
}

fn fields() -> String {
    format!(
        r#""additionalData":{{"hmacSignature":"{SIGNATURE}"}},"amount":{{"value":1130,"currency":"EUR"}},"pspReference":"7914073381342284","eventCode":"AUTHORISATION","merchantAccountCode":"TestMerchant","merchantReference":"TestPayment-1407325143704","reason":"x","success":"true""#
    )
}

fn call(body: String) -> TestCall {
    TestCall::new("adyen", KEY).body(body)
}

fn standard(items: &[String]) -> TestCall {
    call(format!(r#"{{"live":"false","notificationItems":[{}]}}"#, items.join(",")))
}

#[test]
fn signature_of_an_item_covers_its_fields() {
    let good = standard(&[item(&fields())]);
    let changed = |from: &str, to: &str| standard(&[item(&fields().replacen(from, to, 1))]);
    let cases = [
        ("good", good.clone(), Ok(0)),
        ("the second key", good.clone().secrets(&["00", KEY]), Ok(1)),
        (
            "an empty field",
            changed(r#""eventCode""#, r#""originalReference":"","eventCode""#),
            Ok(0),
        ),
        ("success as a boolean", changed(r#""true""#, "true"), Ok(0)),
        ("an unsigned field", changed(r#""reason":"x""#, r#""reason":"y""#), Ok(0)),
        ("two items", standard(&[item(&fields()), item(&fields())]), Ok(0)),
        ("another key", good.clone().secrets(&["00"]), Err("mismatch")),
        ("another amount", changed("1130", "1131"), Err("mismatch")),
        ("another currency", changed("EUR", "USD"), Err("mismatch")),
        ("another reference", changed("7914073381342284", "7914073381342285"), Err("mismatch")),
        ("another account", changed("TestMerchant", "Merchant"), Err("mismatch")),
        ("another order", changed("TestPayment", "Payment"), Err("mismatch")),
        ("another event", changed("AUTHORISATION", "REFUND"), Err("mismatch")),
        ("a failure", changed(r#""true""#, r#""false""#), Err("mismatch")),
        (
            "an original",
            changed(r#""reason""#, r#""originalReference":"1","reason""#),
            Err("mismatch"),
        ),
        ("no signature", changed("hmacSignature", "other"), Err("missing_signature")),
        ("not base64", changed("coqCmt", "!"), Err("malformed")),
        ("no item", standard(&[]), Err("missing_signature")),
        (
            "an unsigned item beside a signed one",
            standard(&[item(&fields()), item(r#""eventCode":"REFUND""#)]),
            Err("missing_signature"),
        ),
        ("no list", call("{}".to_owned()), Err("missing_signature")),
        ("not JSON", call("x".to_owned()), Err("missing_signature")),
        ("a list of something else", standard(&["7".to_owned()]), Err("missing_signature")),
        ("a list that is none", call(r#"{"notificationItems":{}}"#.to_owned()), Err("malformed")),
        ("a wrong header", good.header(HEADER, SIGNATURE), Err("mismatch")),
    ];
    for (name, call, expected) in cases {
        assert_eq!(call.verify(), expected, "case: {name}");
    }
}

/// With `a:b` as the order, other fields could have the same signed text.
#[test]
fn colons_move_no_text_into_another_field() {
    let moved = fields()
        .replace("7914073381342284", "7914073381342284:")
        .replace(r#""merchantAccountCode":"TestMerchant""#, r#""originalReference":"TestMerchant""#)
        .replace(r#""merchantReference":"#, r#""merchantAccountCode":"#);
    assert_eq!(standard(&[item(&moved)]).verify(), Err("malformed"));
}

#[test]
fn header_signs_the_whole_body() {
    let platform =
        call(r#"{"type":"balancePlatform.transfer.updated","data":{"id":"1"}}"#.to_owned());
    platform.signed().assert_every_bit_counts(&[HEADER]);
}

#[test]
fn invalid_key_is_refused_at_configuration() {
    for key in ["", "xyz", "123", "a secret of 24 letters.."] {
        assert!(TestCall::new("adyen", key).verifier().is_none(), "{key}");
    }
    assert!(TestCall::new("adyen", &format!("{KEY}\n")).verifier().is_some());
}

#[test]
fn each_item_is_an_event_and_is_acknowledged() {
    let refund = item(
        r#""pspReference":"2","originalReference":"1","merchantAccountCode":"A","eventCode":"REFUND","success":"false""#,
    );
    let found = |body: &str| {
        let parts = parts("adyen", &[], body);
        parts.iter().map(|part| (event_summary(part), part.body.is_some())).collect::<Vec<_>>()
    };
    let list = |items: &[String]| {
        format!(r#"{{"live":"true","notificationItems":[{}]}}"#, items.join(","))
    };
    let first = [
        "AUTHORISATION",
        "adyen:TestMerchant:7914073381342284:AUTHORISATION:true",
        "7914073381342284",
    ]
    .map(str::to_owned);
    let second = ["REFUND", "adyen:A:2:REFUND:false", "1"].map(str::to_owned);
    assert_eq!(found(&list(&[item(&fields())])), [(first.clone(), false)]);
    assert_eq!(found(&list(&[item(&fields()), refund])), [(first, true), (second, true)]);
    let platform = r#"{"type":"balancePlatform.transfer.updated","data":{"id":"t1"}}"#;
    let expected = ["balancePlatform.transfer.updated", "content 2678400s", "t1"];
    assert_eq!(found(platform), [(expected.map(str::to_owned), false)]);
    assert_eq!(found("{}"), [(["-", "-", "-"].map(str::to_owned), false)]);

    let accepted = Some((200, Some("text/plain; charset=utf-8"), "[accepted]".to_owned()));
    assert_eq!(standard(&[item(&fields())]).reply(), accepted);
    let expected = [
        "object=7914073381342284",
        "object=TestPayment-1407325143704",
        "account=TestMerchant",
        "provider_status=true",
    ];
    assert_eq!(attribute_pairs("adyen", &[], &list(&[item(&fields())])), expected);
}
