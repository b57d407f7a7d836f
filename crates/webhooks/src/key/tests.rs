//! Key extraction.

use std::io::Write;

use flate2::{Compression, write::GzEncoder, write::ZlibEncoder};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn rules(texts: &[&str]) -> KeyRules {
    let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
    KeyRules::new(Some(&texts)).unwrap()
}

fn key(rules: &KeyRules, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let found = rules.extract(headers, body).unwrap();
    found.map(|found| found.key.as_str().to_owned())
}

fn body_key(rule: &str, body: &str) -> Option<String> {
    key(&rules(&[rule]), &HeaderMap::new(), body.as_bytes())
}

#[test]
fn origin_and_namespace_depend_on_the_rule() {
    let defaults = || KeyRules::new(None).unwrap();
    let preset = KeyRules::of_preset(&["header:x-id", "pointer:/id"]).unwrap();
    let (in_header, in_body) = ([("x-id", &b"1"[..]), ("webhook-id", b"1")], br#"{"id":1}"#);
    let explicit = Some((KeyNamespace::Header, KeyOrigin::Explicit));
    let namespace_and_origin = |rules: &KeyRules, sent: &HeaderMap| {
        let found = rules.extract(sent, in_body).unwrap();
        found.map(|found| (found.namespace, found.origin))
    };
    let none = HeaderMap::new();
    assert_eq!(namespace_and_origin(&defaults(), &headers(&in_header)), explicit);
    assert_eq!(namespace_and_origin(&preset, &headers(&in_header)), explicit);
    assert_eq!(
        namespace_and_origin(&defaults(), &none),
        Some((KeyNamespace::Body, KeyOrigin::Guessed))
    );
    for rules in [rules(&["pointer:/id"]), rules(&["jq:.id"]), preset] {
        assert_eq!(
            namespace_and_origin(&rules, &none),
            Some((KeyNamespace::Body, KeyOrigin::Explicit))
        );
    }
}

#[test]
fn default_rules_ignore_headers_that_are_not_signed() {
    let sent = headers(&[("idempotency-key", b"k"), ("webhook-id", b"w")]);
    let body = br#"{"id":1}"#;
    let signed = |is_signed: fn(&HeaderName) -> bool| {
        let rules = KeyRules::new(None).unwrap().for_signed_requests(is_signed);
        let ignored = rules.ignored_key(&sent).map(|key| key.as_str().to_owned());
        (key(&rules, &sent, body), ignored, rules.are_defaults())
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(signed(|_| false), (text("1"), text("k"), true));
    assert_eq!(signed(|name| name == "webhook-id"), (text("w"), text("k"), true));
    assert_eq!(signed(|_| true), (text("k"), None, true));
    // Configured rules stay.
    let configured = rules(&["header:idempotency-key"]).for_signed_requests(|_| false);
    assert_eq!((key(&configured, &sent, body), configured.ignored_key(&sent)), (text("k"), None));
    assert!(!configured.are_defaults());
}

#[test]
fn default_rules_are_tried_in_order() {
    let defaults = KeyRules::new(None).unwrap();
    type Sent<'a> = &'a [(&'static str, &'a [u8])];
    let cases: [(_, Sent<'_>, _, _); 13] = [
        (
            "idempotency key",
            &[("idempotency-key", b"k"), ("webhook-id", b"w")],
            r#"{"id":1}"#,
            Some((0, "k")),
        ),
        ("webhook id", &[("x-event-id", b"e"), ("webhook-id", b"w")], "{}", Some((1, "w"))),
        ("event id", &[("x-event-id", b"e")], r#"{"id":1}"#, Some((2, "e"))),
        ("id", &[], r#"{"event_id":"e","id":"i"}"#, Some((3, "i"))),
        ("event_id", &[], r#"{"event_id":"e","messageId":"m"}"#, Some((4, "e"))),
        ("idempotency_key", &[], r#"{"idempotency_key":"k"}"#, Some((5, "k"))),
        ("messageId", &[], r#"{"messageId":"m","data":{"messageId":"d"}}"#, Some((6, "m"))),
        ("nested key", &[], r#"{"data":{"idempotency_key":"k","messageId":"d"}}"#, Some((7, "k"))),
        ("nested id", &[], r#"{"data":{"messageId":"d"}}"#, Some((8, "d"))),
        ("blank header", &[("idempotency-key", b" ")], r#"{"id":"i"}"#, Some((3, "i"))),
        ("null continues", &[], r#"{"id":null,"event_id":"e"}"#, Some((4, "e"))),
        ("nothing", &[], r#"{"data":{"id":1}}"#, None),
        ("an array", &[], r#"[{"id":1}]"#, None),
    ];
    for (name, sent, body, expected) in cases {
        let found = defaults.extract(&headers(sent), body.as_bytes()).unwrap();
        let found = found.as_ref().map(|found| (found.rule, found.key.as_str()));
        assert_eq!(found, expected, "case: {name}");
    }
    assert!(KeyRules::new(Some(&[])).unwrap().rules().is_empty());
}

#[test]
fn only_strings_and_numbers_give_keys() {
    let cases = [
        ("string", r#"{"k":"a"}"#, Some("a")),
        ("string as it is", r#"{"k":" a\nB "}"#, Some(" a\nB ")),
        ("escapes are undone", r#"{"k":"\u00e9\ud83d\ude00"}"#, Some("é😀")),
        ("number", r#"{"k":42}"#, Some("42")),
        ("negative", r#"{"k": -7 }"#, Some("-7")),
        ("as it is spelled", r#"{"k":1.50}"#, Some("1.50")),
        ("exponent", r#"{"k":1E308}"#, Some("1E308")),
        ("beyond a double", r#"{"k":9007199254740993}"#, Some("9007199254740993")),
        ("beyond 64 bits", r#"{"k":18446744073709551617}"#, Some("18446744073709551617")),
        ("beyond everything", r#"{"k":1e999999}"#, Some("1e999999")),
        ("absent", "{}", None),
        ("null", r#"{"k":null}"#, None),
        ("empty", r#"{"k":""}"#, None),
        ("white space", "{\"k\":\" \\n\\t\u{a0}\"}", None),
        ("object", r#"{"k":{"k":"a"}}"#, None),
        ("array", r#"{"k":["a"]}"#, None),
        ("boolean", r#"{"k":true}"#, None),
        ("the word null", r#"{"k":"null"}"#, Some("null")),
        ("half a surrogate pair", r#"{"k":"\ud800"}"#, None),
    ];
    for (name, body, expected) in cases {
        assert_eq!(body_key("pointer:/k", body).as_deref(), expected, "case: {name}");
        // A jq filter has another parser, which must give the same keys.
        assert_eq!(body_key("jq:.k", body).as_deref(), expected, "case: {name}, by jq");
    }
}

#[test]
fn pointers_descend_through_objects_and_arrays() {
    let body = r#"{"entry":[{"id":"first"},{"id":"second","0":"zero"}],"a/b":{"~":"odd"},"":"e"}"#;
    let cases = [
        ("/entry/0/id", Some("first")),
        ("/entry/1/id", Some("second")),
        ("/entry/1/0", Some("zero")),
        ("/entry/2/id", None),
        ("/entry/-/id", None),
        ("/entry/01/id", None),
        ("/entry/+1/id", None),
        ("/entry/id", None),
        ("/a~1b/~0", Some("odd")),
        ("/", Some("e")),
        ("", None),
        ("/entry/0/id/deeper", None),
    ];
    for (pointer, expected) in cases {
        let found = body_key(&format!("pointer:{pointer}"), body);
        assert_eq!(found.as_deref(), expected, "pointer: {pointer}");
    }
    assert_eq!(body_key("pointer:", r#" "whole" "#).as_deref(), Some("whole"));
    // One pointer ends where another continues.
    let nested = rules(&["pointer:/data", "pointer:/data/id", "pointer:/data/id/x"]);
    let cases = [
        (r#"{"data":"d"}"#, "d"),
        (r#"{"data":{"id":5}}"#, "5"),
        (r#"{"data":{"id":{"x":"y"}}}"#, "y"),
    ];
    for (body, expected) in cases {
        assert_eq!(key(&nested, &HeaderMap::new(), body.as_bytes()).as_deref(), Some(expected));
    }
}

#[test]
fn last_of_repeated_names_counts() {
    let cases = [
        ("twice", "/id", r#"{"id":"a","id":"b"}"#, Some("b")),
        ("the last is no key", "/id", r#"{"id":"a","id":null}"#, None),
        ("the last has no such part", "/data/id", r#"{"data":{"id":"a"},"data":{}}"#, None),
        ("the last is no object", "/data/id", r#"{"data":{"id":"a"},"data":1}"#, None),
        ("spelled in two ways", "/id", r#"{"id":"a","\u0069d":"b"}"#, Some("b")),
    ];
    for (name, pointer, body, expected) in cases {
        let found = body_key(&format!("pointer:{pointer}"), body);
        assert_eq!(found.as_deref(), expected, "case: {name}");
        let by_jq = body_key(&format!("jq:.{}?", pointer[1..].replace('/', ".")), body);
        assert_eq!(by_jq.as_deref(), expected, "case: {name}, by jq");
    }
}

#[test]
fn body_that_is_not_json_has_no_key() {
    let deep = "[".repeat(10_000);
    let deep_beside = format!(r#"{{"deep":{deep}{},"id":"a"}}"#, "]".repeat(10_000));
    let cases = [
        ("cut off", r#"{"id":"a""#.to_owned(), None),
        ("something after it", r#"{"id":"a"} x"#.to_owned(), None),
        ("empty", String::new(), None),
        ("text", "id=a".to_owned(), None),
        ("not a number", r#"{"id":"a","n":NaN}"#.to_owned(), None),
        ("byte order mark", "\u{feff}{\"id\":\"a\"}".to_owned(), Some("a")),
        ("depth 10,000", deep + &"]".repeat(10_000), None),
        ("depth beside a key", deep_beside, Some("a")),
        ("a megabyte of brackets", "[".repeat(1 << 20), None),
        ("a megabyte of braces", r#"{"id":"#.repeat(1 << 18), None),
        ("half a surrogate pair elsewhere", r#"{"x":"\ud800","id":"a"}"#.to_owned(), Some("a")),
    ];
    for (name, body, expected) in cases {
        assert_eq!(body_key("pointer:/id", &body).as_deref(), expected, "case: {name}");
        // The walk descends here and returns.
        body_key("pointer:/id/id/0/0", &body);
    }
    let not_utf8 = b"{\"x\":\"\xff\",\"id\":\"a\"}";
    assert_eq!(key(&rules(&["pointer:/id", "jq:.id"]), &HeaderMap::new(), not_utf8), None);
}

#[test]
fn long_or_unstorable_key_is_hashed() {
    let hashed =
        |value: &str| Some(format!("sha256:{}", HEXLOWER.encode(&fingerprint(value.as_bytes()))));
    let cases = [
        ("255 bytes", "x".repeat(255), Some("x".repeat(255))),
        ("256 bytes", "x".repeat(256), hashed(&"x".repeat(256))),
        ("128 wide characters", "é".repeat(128), hashed(&"é".repeat(128))),
        ("a megabyte", "x".repeat(1 << 20), hashed(&"x".repeat(1 << 20))),
        ("a zero byte", "a\0b".to_owned(), hashed("a\0b")),
        ("a newline", "a\nb".to_owned(), Some("a\nb".to_owned())),
        ("case", "ID".to_owned(), Some("ID".to_owned())),
        ("composed", "\u{e9}".to_owned(), Some("\u{e9}".to_owned())),
        ("decomposed", "e\u{301}".to_owned(), Some("e\u{301}".to_owned())),
    ];
    for (name, value, expected) in cases {
        let body = serde_json::to_string(&serde_json::json!({ "id": value })).unwrap();
        assert_eq!(body_key("pointer:/id", &body), expected, "case: {name}");
    }
}

#[test]
fn displayed_key_cannot_forge_a_log_line() {
    let key = DedupKey::new("a\r\nERROR \u{1b}[31m\u{202e}\\n é").unwrap();
    assert_eq!(key.to_string(), r"a\r\nERROR \u{1b}[31m\u{202e}\\n é");
    assert_eq!(format!("{key:?}"), r"DedupKey(a\r\nERROR \u{1b}[31m\u{202e}\\n é)");
    assert_eq!(serde_json::to_string(&DedupKey::new("a\nb").unwrap()).unwrap(), r#""a\nb""#);
}

#[test]
fn quoted_idempotency_key_is_unquoted() {
    let defaults = KeyRules::new(None).unwrap();
    let cases: [(_, &[u8], _); 11] = [
        ("bare", b"8e03978e", Some("8e03978e")),
        ("quoted", br#""8e03978e""#, Some("8e03978e")),
        ("white space around it", b"  8e03978e\t", Some("8e03978e")),
        ("escapes", br#""a\"b\\c""#, Some(r#"a"b\c"#)),
        ("unknown escape", br#""a\b""#, Some(r#""a\b""#)),
        ("quote within", br#""a"b""#, Some(r#""a"b""#)),
        ("one quote", br#"""#, Some(r#"""#)),
        ("quoted nothing", br#""""#, None),
        ("empty", b"", None),
        ("UTF-8", "clé".as_bytes(), Some("clé")),
        ("not UTF-8", b"50%\xff", Some("bytes:50%25%FF")),
    ];
    for (name, value, expected) in cases {
        let found = key(&defaults, &headers(&[("idempotency-key", value)]), b"");
        assert_eq!(found.as_deref(), expected, "case: {name}");
    }
    // In every other header the quotes are part of the value.
    let found = key(&defaults, &headers(&[("webhook-id", br#""a""#)]), b"");
    assert_eq!(found.as_deref(), Some(r#""a""#));
}

#[test]
fn repeated_header_is_refused_or_ignored() {
    let defaults = KeyRules::new(None).unwrap();
    let twice = headers(&[("idempotency-key", b"a"), ("idempotency-key", b"a")]);
    let error = defaults.extract(&twice, b"").unwrap_err();
    assert_eq!(error.to_string(), "the request has more than one `idempotency-key` header");

    let same = headers(&[("webhook-id", b"a"), ("webhook-id", b"a")]);
    assert_eq!(key(&defaults, &same, b"").as_deref(), Some("a"));
    let different = headers(&[("webhook-id", b"a"), ("webhook-id", b"b"), ("x-event-id", b"e")]);
    assert_eq!(key(&defaults, &different, b"").as_deref(), Some("e"));
}

#[test]
fn jq_filter_works_as_key_rule() {
    let rules = rules(&[r#"jq:"\(.team):\(.event)""#, "jq:.[0].id", "pointer:/id"]);
    let cases = [
        ("joined", r#"{"team":"T1","event":"Ev2"}"#, Some((0, "T1:Ev2"))),
        ("a filter that fails is no hit", r#"[{"id":7}]"#, Some((1, "7"))),
        ("no JSON", "nope", None),
    ];
    for (name, body, expected) in cases {
        let found = rules.extract(&HeaderMap::new(), body.as_bytes()).unwrap();
        let found = found.as_ref().map(|found| (found.rule, found.key.as_str()));
        assert_eq!(found, expected, "case: {name}");
    }
}

#[test]
fn rules_parse_and_round_trip() {
    for text in ["header:x-request-id", "pointer:/data/a~1b", "jq:.a | .b", "pointer:"] {
        let rule: KeyRule = serde_json::from_str(&format!("{text:?}")).unwrap();
        assert_eq!(serde_json::to_string(&rule).unwrap(), format!("{text:?}"));
    }
    let cases = [
        ("id", "`id` is not a key rule; write header:NAME, pointer:/path or jq:EXPRESSION"),
        ("query:id", "`query:id` is not a key rule"),
        ("header:a b", "`a b` is not a header name"),
        ("header:", "`` is not a header name"),
        ("pointer:id", "`id` is not a JSON pointer"),
        ("jq:.a |", "filter, line 1, column 5: expected term"),
    ];
    for (rule, message) in cases {
        let error = rule.parse::<KeyRule>().unwrap_err().to_string();
        assert!(error.starts_with(message), "{rule}: {error}");
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_body_is_decoded_within_limits() {
    let body = br#"{"id":"a"}"#;
    let padded = |spaces: usize| [body.as_slice(), &vec![b' '; spaces]].concat();
    let broken = |mut bytes: Vec<u8>| {
        let crc = bytes.len() - 8;
        bytes[crc] ^= 1;
        bytes
    };
    let cases: [(_, &[u8], Vec<u8>, _); 14] = [
        ("gzip", b"gzip", gzip(body), Some("a")),
        ("in upper case", b"X-GZIP", gzip(body), Some("a")),
        ("deflate", b"deflate", deflate(body), Some("a")),
        ("identity", b"identity", body.to_vec(), Some("a")),
        ("brotli", b"br", body.to_vec(), None),
        ("zstd", b"zstd", body.to_vec(), None),
        ("more than a hundredfold", b"gzip", gzip(&padded(1 << 20)), None),
        ("more than 10 MiB", b"deflate", deflate(&padded(11 << 20)), None),
        ("twice", b"gzip", gzip(&gzip(body)), None),
        ("a list", b"gzip, gzip", gzip(&gzip(body)), None),
        ("wrong checksum", b"gzip", broken(gzip(body)), None),
        ("something after it", b"gzip", [gzip(body), b"x".to_vec()].concat(), None),
        ("cut off", b"gzip", gzip(body)[..15].to_vec(), None),
        ("not compressed", b"gzip", body.to_vec(), None),
    ];
    for (name, encoding, packed, expected) in cases {
        let sent = headers(&[("content-encoding", encoding)]);
        for rule in ["pointer:/id", "jq:.id"] {
            let found = key(&rules(&[rule]), &sent, &packed);
            assert_eq!(found.as_deref(), expected, "case: {name}, by {rule}");
        }
    }
}

#[test]
fn content_hash_key_has_its_own_prefix() {
    let hash = content_hash_key(b"hello");
    let expected = "hash:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(hash.as_str(), expected);
    assert_eq!(content_hash_key(b"").as_str().len(), expected.len());
    assert_eq!(fingerprint(b"hello")[..4], [0x2c, 0xf2, 0x4d, 0xba]);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-c \"\\\\é]{0,3}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map("[ab0]", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pointers_agree_with_a_parsed_tree(
        value in any_json(),
        paths in prop::collection::vec("(/[ab01]){0,4}", 1..5),
    ) {
        let body = value.to_string();
        for rules in Vec::from_iter(paths.iter().map(|path| rules(&[&format!("pointer:{path}")]))) {
            let KeyRule::Pointer(pointer) = &rules.rules()[0] else { unreachable!() };
            let expected = match value.pointer(&pointer.to_string()) {
                Some(serde_json::Value::String(text)) => DedupKey::new(text),
                Some(serde_json::Value::Number(number)) => DedupKey::new(&number.to_string()),
                _ => None,
            };
            let key = rules.extract(&HeaderMap::new(), body.as_bytes()).unwrap().map(|f| f.key);
            prop_assert_eq!(key, expected, "{} in {}", pointer, body);
        }
        // Together they give the key of the first rule that matches alone.
        let together: Vec<_> = paths.iter().map(|path| format!("pointer:{path}")).collect();
        let alone = together.iter().find_map(|rule| body_key(rule, &body));
        let together = KeyRules::new(Some(&together)).unwrap();
        prop_assert_eq!(key(&together, &HeaderMap::new(), body.as_bytes()), alone);
    }

    #[test]
    fn arbitrary_body_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let all = rules(&["pointer:", "pointer:/a/0", "jq:.a", "header:idempotency-key"]);
        for encoding in ["identity", "gzip", "deflate"] {
            let sent = headers(&[("content-encoding", encoding.as_bytes())]);
            prop_assert!(all.extract(&sent, &body).is_ok());
        }
    }
}

#[test]
fn rule_labels_are_truncated() {
    let long = format!("jq:.{}", "a".repeat(500));
    let rules = rules(&["header:X-Id", "pointer:/a/b", &long]);
    let labels: Vec<_> = (0..4).map(|rule| rules.label(rule)).collect();
    assert_eq!(labels[0].as_deref(), Some("header:x-id"));
    assert_eq!(labels[1].as_deref(), Some("pointer:/a/b"));
    assert_eq!(labels[2].as_deref().map(str::len), Some(64));
    assert_eq!(labels[3], None);
}
