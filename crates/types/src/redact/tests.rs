use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use proptest::{
    prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest},
    strategy::Union,
};
use serde_json::{Map, Value, json};

use super::*;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &str)| {
        (http::HeaderName::from_static(name), value.parse().unwrap())
    };
    lines.iter().map(line).collect()
}

fn plain(body: &str) -> (String, usize) {
    let RedactedBody { body, fields, .. } = mask_text(body.as_bytes(), &SecretNames::builtin());
    (String::from_utf8(body.into_owned()).unwrap(), fields)
}

#[test]
fn only_values_of_secret_fields_are_masked() {
    for (body, expected) in [
        // Spelling, white space and order stay.
        (
            "{ \"a\" : 1.50 ,\n\"apikey\"\t: \"x\\\"y\" , \"b\":\"\\u00e9\\/\" }",
            "{ \"a\" : 1.50 ,\n\"apikey\"\t: \"•••\" , \"b\":\"\\u00e9\\/\" }",
        ),
        (r#"[{"x":{"access_token":"t"}}]"#, r#"[{"x":{"access_token":"•••"}}]"#),
        (r#"{"cvv":123,"pan":-1e5}"#, r#"{"cvv":"•••","pan":"•••"}"#),
        // A whole object or array is one secret.
        (r#"{"token":{"value":"t","n":[1]},"z":1}"#, r#"{"token":"•••","z":1}"#),
        (r#"{"secrets":["a",{"token":"b"}]}"#, r#"{"secrets":"•••"}"#),
        // Both of a name that comes twice; a name is compared after it is unescaped.
        (r#"{"token":"a","token":"b"}"#, r#"{"token":"•••","token":"•••"}"#),
        (r#"{"\u0061p\u0069Key":"a"}"#, r#"{"\u0061p\u0069Key":"•••"}"#),
        // The number of a card, and no other number.
        (
            r#"{"card":{"number":"4242 4242 4242 4242","exp":"12/30"}}"#,
            r#"{"card":{"number":"•••","exp":"12/30"}}"#,
        ),
        (r#"{"cards":[{"number":4242424242424242}]}"#, r#"{"cards":[{"number":"•••"}]}"#),
        // JSON in a string, and in a string of that.
        (
            r#"{"Message":"{\"apikey\":\"x\",\"b\":1}"}"#,
            r#"{"Message":"{\"apikey\":\"•••\",\"b\":1}"}"#,
        ),
        (
            r#"{"m":" \n[{\"m\":\"{\\\"jwt\\\":5}\"}]"}"#,
            r#"{"m":" \n[{\"m\":\"{\\\"jwt\\\":\\\"•••\\\"}\"}]"}"#,
        ),
        // One text after the other.
        ("{\"token\":\"a\"}\n{\"token\":\"b\"}\n", "{\"token\":\"•••\"}\n{\"token\":\"•••\"}\n"),
        ("\u{feff}{\"jwt\":\"a\"}", "\u{feff}{\"jwt\":\"•••\"}"),
    ] {
        let (shown, fields) = plain(body);
        assert_eq!(shown, expected, "case: {body}");
        assert!(fields > 0, "case: {body}");
        assert_eq!(plain(&shown), (shown.clone(), 0), "once more: {body}");
    }
}

#[test]
fn body_without_secrets_is_returned_unchanged() {
    for body in [
        r#"{"token":"","password":null,"secret":false,"tokens":[],"credentials":{ }}"#,
        r#"{"key":{"id":"A"},"number":"4242424242424242","card":{"last4":"4242","number":"4242"}}"#,
        r#"{"text":"my token: abc, password=hunter2"}"#,
        r#"{"text":"{not json} \"token\": 5"}"#,
        "",
        "[]",
        "OK",
        "hello, your token: expired",
        "a=1&b=2&token=",
    ] {
        let shown = mask_text(body.as_bytes(), &SecretNames::builtin());
        assert!(matches!(shown.body, Cow::Borrowed(_)), "case: {body}");
        assert_eq!((&*shown.body, shown.fields), (body.as_bytes(), 0), "case: {body}");
    }
}

#[test]
fn truncated_text_reveals_no_part_of_a_secret() {
    let body = r#"{"a":[1,{"token":"CANARY","b":{"secrets":{"x":"CANARY","y":[1,"CANARY"]}}}],
        "m":"{\"apikey\":\"CANARY\"}","card":{"number":4242424242424242}}"#;
    for end in 0..body.len() {
        let (shown, _) = plain(&body[..end]);
        for secret in ["CA", "42424242424242"] {
            assert!(!shown.contains(secret), "cut at {end}: {shown}");
        }
    }
}

#[test]
fn malformed_and_non_json_text_is_searched() {
    for (body, expected) in [
        (r#"Got: {"apikey":"x\"y"} ."#, r#"Got: {"apikey":"•••"} ."#),
        (r#"{"a":1,}{"apikey":"x"}"#, r#"{"a":1,}{"apikey":"•••"}"#),
        (r#"{"a":1, apikey:"x", "token": y }"#, r#"{"a":1, apikey:"x", "token": ••• }"#),
        (r#"error: "{\"token\":\"x\\\"y\"}""#, r#"error: "{\"token\":\"•••\"}""#),
        ("GET /?token=x&a=1 HTTP/1.1", "GET /?token=•••&a=1 HTTP/1.1"),
        ("Host: a\r\nAuthorization: Bearer x\r\n", "Host: a\r\nAuthorization: •••\r\n"),
        ("<a><ns:token>x</ns:token><b>1</b></a>", "<a><ns:token>•••</ns:token><b>1</b></a>"),
        ("<apikey><![CDATA[x]]></apikey>", "<apikey><![CDATA[•••]]></apikey>"),
        ("{'password': 'x'}", "{'password': '•••'}"),
        ("array(\"secret\" => \"x\")", "array(\"secret\" => \"•••\")"),
        (
            "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nx\r\n--b--\r\n",
            "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n•••\r\n--b--\r\n",
        ),
        (
            r#"sent: {"card":{"number":"4242424242424242"}, "n":1}, [1}"#,
            r#"sent: {"card":{"number":"•••"}, "n":1}, [1}"#,
        ),
        (
            "sent: a=1&payload=%7B%22jwt%22%3A1%7D&b=2",
            "sent: a=1&payload=%7B%22jwt%22%3A%22%E2%80%A2%E2%80%A2%E2%80%A2%22%7D&b=2",
        ),
        ("token=x&a=1", "token=%E2%80%A2%E2%80%A2%E2%80%A2&a=1"),
    ] {
        let (shown, fields) = plain(body);
        assert_eq!((shown.as_str(), fields), (expected, 1), "case: {body}");
        assert_eq!(plain(&shown).0, expected, "once more: {body}");
    }
    let torn = mask_text(b"\xff{\"token\":\"\xfe\"}", &SecretNames::builtin());
    assert_eq!(&*torn.body, [b"\xff", "{\"token\":\"•••\"}".as_bytes()].concat());
}

#[test]
fn forms_mask_the_same_fields() {
    let form = headers(&[("content-type", "application/x-www-form-urlencoded; charset=utf-8")]);
    let dots = "%E2%80%A2%E2%80%A2%E2%80%A2";
    for (body, expected) in [
        ("a=1&api%5Fkey=x+y&b=%20", format!("a=1&api%5Fkey={dots}&b=%20")),
        ("user[password]=x&token[]=y", format!("user[password]={dots}&token[]={dots}")),
        ("card%5Bnumber%5D=4242424242424242", format!("card%5Bnumber%5D={dots}")),
        (
            "payload=%7B%22a%22%3A1%2C%22token%22%3A%22x%22%7D&b=1",
            format!("payload=%7B%22a%22%3A1%2C%22token%22%3A%22{dots}%22%7D&b=1"),
        ),
    ] {
        let sent = strip_secrets(&form, body.as_bytes(), &SecretNames::builtin()).unwrap();
        assert_eq!(sent.body, expected.as_bytes(), "case: {body}");
        let again = strip_secrets(&form, expected.as_bytes(), &SecretNames::builtin()).unwrap();
        assert_eq!(again.fields, 0, "case: {body}");
    }
}

#[test]
fn query_secrets_are_masked_and_the_rest_is_kept() {
    for (text, expected) in [
        ("a=1&b=2", "a=1&b=2"),
        ("token=x&a=1", "token=•••&a=1"),
        ("hub.verify_token=x&hub.mode=subscribe", "hub.verify_token=•••&hub.mode=subscribe"),
        ("API_KEY=x=y&apikey=z&key=k&%6Bey=k", "API_KEY=•••&apikey=•••&key=•••&%6Bey=•••"),
        ("flag&keys=all&&", "flag&keys=all&&"),
    ] {
        assert_eq!(mask_query(text, &SecretNames::builtin()), expected, "case: {text}");
    }
}

#[test]
fn compressed_body_is_decompressed_only_to_mask_something() {
    let packed = |body: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    };
    let gzip = headers(&[("content-encoding", "gzip")]);
    let names = SecretNames::builtin();

    let dull = packed(b"{\"a\":1}");
    let kept = RedactedBody { body: Cow::Borrowed(&dull[..]), fields: 0, is_unpacked: false };
    assert_eq!(mask_body(&gzip, &dull, &names), Ok(kept));

    let secret = packed(b"{\"jwt\":\"x\"}");
    let opened = mask_body(&gzip, &secret, &names).unwrap();
    assert_eq!((&*opened.body, opened.is_unpacked), ("{\"jwt\":\"•••\"}".as_bytes(), true));

    let unknown = headers(&[("content-encoding", "br")]);
    assert_eq!(mask_body(&unknown, b"{\"jwt\":\"x\"}", &names), Err(UnreadableBodyError::Packed));
    assert_eq!(mask_body(&gzip, &secret[..9], &names), Err(UnreadableBodyError::Packed));
}

#[test]
fn strip_secrets_fails_for_unreadable_bodies() {
    let names = SecretNames::builtin();
    let none = HeaderMap::new();
    for (body, expected) in [
        ("", Ok("")),
        (" \n", Ok(" \n")),
        ("{\"a\":1}", Ok("{\"a\":1}")),
        ("{\"token\":\"x\"} ", Ok("{\"token\":\"•••\"} ")),
        ("\"text\"", Ok("\"text\"")),
        ("{\"token\":\"x\"", Err(UnreadableBodyError::Unknown)),
        ("{'token':'x'}", Err(UnreadableBodyError::Unknown)),
        ("{\"a\":1} token=x", Err(UnreadableBodyError::Unknown)),
        ("<token>x</token>", Err(UnreadableBodyError::Unknown)),
        ("token=x", Err(UnreadableBodyError::Unknown)),
    ] {
        let sent = strip_secrets(&none, body.as_bytes(), &names).map(|sent| sent.body.into_owned());
        assert_eq!(sent, expected.map(|text| text.as_bytes().to_vec()), "case: {body}");
    }
    let wide: Vec<u8> = "{\"jwt\":1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(strip_secrets(&none, &wide, &names), Err(UnreadableBodyError::Unknown));
}

#[test]
fn error_message_reveals_no_secret_of_its_body() {
    let body = r#"{"apikey":"CAN\"ARY-123456","cvv":12,"tokens":{"a":"OTHER-1"}}"#.as_bytes();
    let told = |message: &str| {
        mask_values_in_message(message, &HeaderMap::new(), body, &SecretNames::builtin())
    };
    for (message, expected) in [
        ("cannot add CAN\"ARY-123456 and 12", "cannot add ••• and 12"),
        ("cannot add CAN\"ARY-1…", "cannot add •••…"),
        ("no OTHER-1", "no •••"),
        ("cannot index null", "cannot index null"),
    ] {
        assert_eq!(told(message), expected);
    }
    // Filters see the fields of a form decoded, and the headers.
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    headers.insert("authorization", "Bearer CANARY-9".parse().unwrap());
    let form = b"password=CAN%2FARY+1&payload=%7B%22token%22%3A%22OTHER-1%22%7D";
    let message = "cannot add CAN/ARY 1, OTHER-1 and Bearer CANARY-9";
    let told = mask_values_in_message(message, &headers, form, &SecretNames::builtin());
    assert_eq!(told, "cannot add •••, ••• and •••");
}

#[test]
fn deep_and_long_texts_are_scanned_in_one_pass() {
    let names = SecretNames::builtin();
    let deep = "[".repeat(1_000_000) + "{\"token\":\"x\"";
    assert!(mask_text(deep.as_bytes(), &names).body.ends_with("{\"token\":\"•••\"".as_bytes()));
    for piece in [
        "name=",
        "name=\"",
        "token:",
        "\"token\":",
        "<token>",
        ":=>",
        "{\"a\":\"{\\",
        "{",
        "{,",
        "[}",
        "{\"a\":1,}",
        "a=%7B",
        "token=\\\"",
    ] {
        let long = piece.repeat(20_000);
        let _ends = mask_text(long.as_bytes(), &names);
        let _ends = mask_text(format!("!{long}").as_bytes(), &names);
    }
}

const CANARY: &str = "c4n4ry";

/// Field names, many of them secret.
fn name() -> impl Strategy<Value = String> {
    let known = ["token", "apiKey", "card", "number", "data", "cvv", "x_secret", "id", "a\"\\b"];
    prop_oneof![Union::new(known.map(|name| Just(name.to_owned()))), "[a-zA-Z_\\-é]{0,8}"]
}

/// Values whose secrets all contain the canary.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("{\"n\":[\"\\\"\"]}")),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let field = (name(), inner.clone()).prop_map(|(name, value)| {
            let secret = json!([CANARY, { CANARY: CANARY }]);
            match SecretNames::builtin().is_secret_field(&name) {
                true if value.is_string() => (name, Value::from(CANARY)),
                true => (name, secret),
                false => (name, value),
            }
        });
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(field, 0..5)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
            inner.prop_map(|value| Value::from(value.to_string())),
        ]
    })
}

proptest! {
    #[test]
    fn masked_json_stays_valid_and_reveals_no_secret(value in value(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        prop_assert!(matches!(json::scan(text.as_bytes(), &SecretNames::builtin()).1, ScanEnd::Whole));
        let (shown, fields) = plain(&text);
        if text.trim_start().starts_with(['{', '[']) {
            let read: Result<Value, _> = serde_json::from_str(&shown);
            prop_assert!(read.is_ok(), "{shown}");
            // JSON in JSON is followed four levels deep; quotes of a fifth level look like this.
            let deepest = text.contains(&r"\".repeat(31));
            prop_assert!(deepest || !shown.contains(CANARY), "{shown}");
        }
        prop_assert_eq!(fields == 0, shown == text);
        let (again, more) = plain(&shown);
        prop_assert_eq!((again, more), (shown, 0));
    }

    #[test]
    fn all_bytes_except_masked_ones_stay(text in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[\\{\\}\\[\\]\",:\\\\a-e =&<>]{0,40}(\"token\"|token|<jwt>)[:=]?[\\{\\}\\[\\]\",:\\\\a-e =&]{0,40}"
            .prop_map(String::into_bytes),
    ]) {
        let edits = find_edits(&text, false, &SecretNames::builtin());
        let mut at = 0;
        for Edit { span, .. } in &edits {
            prop_assert!(at <= span.start && span.start <= span.end && span.end <= text.len());
            at = span.end;
        }
        let shown = apply(&text, &edits);
        let mut rest = &*shown;
        let mut at = 0;
        for Edit { span, replacement } in &edits {
            let kept = &text[at..span.start];
            prop_assert!(rest.starts_with(kept));
            rest = &rest[kept.len() + replacement.len()..];
            at = span.end;
        }
        prop_assert_eq!(rest, &text[at..]);
    }
}
