use std::collections::BTreeMap;

use http::HeaderMap;
use proptest::prelude::*;
use serde_json::Value as Json;

use super::{
    super::{
        EventPart, HandshakeRequest,
        raw_json::EVENTS_MAX,
        testing::{event_summary, parts},
    },
    *,
};

const NAME: &str = "whatsapp-cloud";

/// An envelope with one change.
fn change(field: &str, value: &str) -> String {
    format!(
        r#"{{"object":"whatsapp_business_account","entry":[{{"id":"W","changes":[{{"value":{value},"field":"{field}"}}]}}]}}"#
    )
}

/// An envelope with one change of the number `P`.
fn about_number(field: &str, lists: &str) -> String {
    change(field, &format!(r#"{{"metadata":{{"phone_number_id":"P"}},{lists}}}"#))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_event_kind_has_its_key() {
    let hash = |word: &str, text: &str| {
        let hash = data_encoding::HEXLOWER.encode(&crate::key::fingerprint(text.as_bytes()));
        format!("whatsapp:{word}:sha256:{hash}")
    };
    // (name, field, arrays of the value, expected kind, expected key, expected ordering key)
    let cases: [(&str, &str, &str, &str, &str, &str); 18] = [
        (
            "a text",
            "messages",
            r#""messages":[{"from":"55","id":"m","type":"text"}]"#,
            "message",
            "whatsapp:P:message:m",
            "P:55",
        ),
        (
            "a reaction has an id of its own",
            "messages",
            r#""messages":[{"from":"55","id":"m2","type":"reaction","reaction":{"message_id":"m"}}]"#,
            "message.reaction",
            "whatsapp:P:message:m2",
            "P:55",
        ),
        (
            "unsupported is normal, with its errors",
            "messages",
            r#""messages":[{"from":"55","id":"m","type":"unsupported","errors":[{"code":131051}]}]"#,
            "message.unsupported",
            "whatsapp:P:message:m",
            "P:55",
        ),
        (
            "a username and no phone",
            "messages",
            r#""messages":[{"from_user_id":"BR.15","id":"m","type":"text"}]"#,
            "message",
            "whatsapp:P:message:m",
            "P:BR.15",
        ),
        (
            "only the parent's id",
            "messages",
            r#""messages":[{"from_parent_user_id":"US.ENT.1","id":"m"}]"#,
            "message",
            "whatsapp:P:message:m",
            "P:US.ENT.1",
        ),
        (
            "no sender",
            "messages",
            r#""messages":[{"id":"m"}]"#,
            "message",
            "whatsapp:P:message:m",
            "P",
        ),
        (
            "an echo is not a message",
            "smb_message_echoes",
            r#""message_echoes":[{"from":"11","to":"55","id":"m","type":"text"}]"#,
            "echo",
            "whatsapp:P:echo:m",
            "P:55",
        ),
        (
            "a status",
            "messages",
            r#""statuses":[{"id":"m","status":"read","recipient_id":"55"}]"#,
            "status.read",
            "whatsapp:P:status:m:read:55",
            "P:55",
        ),
        (
            "of a voice message",
            "messages",
            r#""statuses":[{"id":"m","status":"played","recipient_id":"55"}]"#,
            "status.played",
            "whatsapp:P:status:m:played:55",
            "P:55",
        ),
        (
            "a status without a phone",
            "messages",
            r#""statuses":[{"id":"m","status":"sent","recipient_user_id":"BR.1"}]"#,
            "status.sent",
            "whatsapp:P:status:m:sent:BR.1",
            "P:BR.1",
        ),
        (
            "in a group, by member",
            "messages",
            r#""statuses":[{"id":"m","status":"read","recipient_id":"G","recipient_type":"group","recipient_participant_id":"77"}]"#,
            "status.read",
            "whatsapp:P:status:m:read:77",
            "P:G",
        ),
        (
            "a call",
            "calls",
            r#""calls":[{"id":"c","event":"connect","from":"55"}]"#,
            "call.connect",
            "whatsapp:P:call:c:connect",
            "P:c",
        ),
        (
            "a call's status",
            "calls",
            r#""statuses":[{"id":"c","type":"call","status":"RINGING"}]"#,
            "call.RINGING",
            "whatsapp:P:call:c:RINGING",
            "P:c",
        ),
        (
            "an error without a message",
            "messages",
            r#""errors":[{"code":130429}]"#,
            "error",
            "content 600s",
            "P",
        ),
        (
            "a message without an id",
            "messages",
            r#""messages":[{"from":"55"}]"#,
            "message",
            &hash("P:message", r#"{"from":"55"}"#),
            "P:55",
        ),
        (
            "a group status without a participant",
            "messages",
            r#""statuses":[{"id":"m","status":"read","recipient_type":"group","recipient_id":"G"}]"#,
            "status.read",
            &hash(
                "P:status",
                r#"{"id":"m","status":"read","recipient_type":"group","recipient_id":"G"}"#,
            ),
            "P:G",
        ),
        (
            "history",
            "history",
            r#""history":[{"threads":[]}]"#,
            "history",
            &hash("P:history", r#"{"threads":[]}"#),
            "P",
        ),
        (
            "messages of a field that is not theirs",
            "history",
            r#""messages":[{"id":"m","from":"5"}]"#,
            "history",
            &hash("P:history", r#"{"id":"m","from":"5"}"#),
            "P:5",
        ),
    ];
    for (case, field, lists, expected_kind, expected_key, expected_order) in cases {
        let parts = parts(NAME, &[], &about_number(field, lists));
        assert_eq!(parts.len(), 1, "{case}");
        let part = &parts[0];
        assert_eq!(part.body, None, "{case}: a single event keeps the body");
        assert_eq!(event_summary(part), [expected_kind, expected_key, expected_order], "{case}");
    }
}

#[test]
fn account_changes_are_keyed_by_content_and_time() {
    let body = |time: &str, value: &str| {
        let body = change("account_update", value);
        body.replace(r#""id":"W","#, &format!(r#""id":"W",{time}"#))
    };
    let key_of = |body: &str| {
        let parts = parts(NAME, &[], body);
        let [kind, key, order] = event_summary(&parts[0]);
        assert_eq!((parts.len(), &*kind, &*order), (1, "account_update", "W"));
        key
    };
    let banned = r#"{"event":"DISABLED_UPDATE","ban_info":{"waba_ban_state":"DISABLE"}}"#;
    let first = key_of(&body(r#""time":17,"#, banned));
    assert!(first.starts_with("whatsapp:W:account_update:DISABLED_UPDATE:17:sha256:"), "{first}");
    assert_eq!(first, key_of(&body(r#""time":17,"#, banned)));
    assert_ne!(first, key_of(&body(r#""time":18,"#, banned)));
    assert_ne!(first, key_of(&body(r#""time":17,"#, r#"{"event":"DISABLED_UPDATE"}"#)));
    assert!(key_of(&body("", "{}")).starts_with("whatsapp:W:account_update:-:-:sha256:"));
}

#[test]
fn unexpected_body_is_one_event() {
    let week = "content 691200s";
    let whatsapp = "whatsapp_business_account";
    let cases = [
        ("not JSON", "hello", "-", "-"),
        ("a byte order mark", "\u{feff}{}", "-", "-"),
        ("a list", "[]", "-", "-"),
        (
            "an entry that is not an object",
            r#"{"object":"whatsapp_business_account","entry":[1]}"#,
            "-",
            "-",
        ),
        ("another object", r#"{"object":"instagram","entry":[{"id":"1"}]}"#, "instagram", week),
        ("nothing", "{}", "-", week),
        ("no entry", r#"{"object":"whatsapp_business_account","entry":[]}"#, whatsapp, week),
        (
            "an entry without changes beside another",
            r#"{"object":"whatsapp_business_account","entry":[{"id":"1"},{"id":"2","changes":[{"field":"a","value":{}}]}]}"#,
            whatsapp,
            week,
        ),
    ];
    for (case, body, expected_kind, expected_key) in cases {
        let parts = parts(NAME, &[], body);
        assert_eq!(parts.len(), 1, "{case}");
        assert_eq!(event_summary(&parts[0]), [expected_kind, expected_key, "-"], "{case}");
        assert_eq!(parts[0].body, None, "{case}");
    }
    // A value without events is one event of its field.
    let parts = parts(NAME, &[], &about_number("messages", r#""messages":[]"#));
    let [kind, key, _] = event_summary(&parts[0]);
    assert_eq!((parts.len(), &*kind), (1, "messages"));
    assert!(key.starts_with("whatsapp:P:messages:-:-:sha256:"), "{key}");
    // So is a change without a value.
    let odd = r#"{"object":"whatsapp_business_account","entry":[{"changes":[{}]}]}"#;
    let parts = super::super::testing::parts(NAME, &[], odd);
    let [kind, key, _] = event_summary(&parts[0]);
    assert_eq!((parts.len(), &*kind, &parts[0].body), (1, "unknown", &None));
    assert!(key.starts_with("whatsapp:-:unknown:-:-:sha256:"), "{key}");
}

#[test]
fn split_body_is_an_envelope_with_one_event_and_its_contacts() {
    let body = r#"{"object":"whatsapp_business_account", "x":1.50, "entry":[{"id":"W","time":7,"changes":[{"value":{"messaging_product":"whatsapp","metadata":{"phone_number_id":"P"},
        "contacts":[{"wa_id":"1","profile":{"name":"Jo\u00e3o"}},{"user_id":"BR.2"},{"wa_id":"3"}],
        "messages":[{"from":"1","id":"a","text":{"body":"\/ \u00e9"}},{"from_user_id":"BR.2","id":"b"},{"from":"9","id":"c"}],"statuses":[{"id":"s","status":"sent","recipient_id":"3"}],"new":{"n":1e400}},"field":"messages","v":[ 1 ]}]}]}"#;
    let envelope = |value: &str| {
        format!(
            r#"{{"object":"whatsapp_business_account","x":1.50,"entry":[{{"id":"W","time":7,"changes":[{{"value":{{"messaging_product":"whatsapp","metadata":{{"phone_number_id":"P"}},{value},"new":{{"n":1e400}}}},"field":"messages","v":[ 1 ]}}]}}]}}"#
        )
    };
    let joao = r#"{"wa_id":"1","profile":{"name":"Jo\u00e3o"}}"#;
    let all = format!(r#""contacts":[{joao},{{"user_id":"BR.2"}},{{"wa_id":"3"}}]"#);
    let expected = [
        envelope(&format!(
            r#""contacts":[{joao}],"messages":[{{"from":"1","id":"a","text":{{"body":"\/ \u00e9"}}}}]"#
        )),
        envelope(
            r#""contacts":[{"user_id":"BR.2"}],"messages":[{"from_user_id":"BR.2","id":"b"}]"#,
        ),
        envelope(&format!(r#"{all},"messages":[{{"from":"9","id":"c"}}]"#)),
        envelope(
            r#""contacts":[{"wa_id":"3"}],"statuses":[{"id":"s","status":"sent","recipient_id":"3"}]"#,
        ),
    ];
    let parts = parts(NAME, &[], body);
    let bodies: Vec<_> = parts
        .iter()
        .map(|part| std::str::from_utf8(part.body.as_ref().unwrap()).unwrap())
        .collect();
    assert_eq!(bodies, expected);
    // A split body parses as the same event.
    for part in &parts {
        let alone = split::parts(part.body.as_ref().unwrap());
        assert_eq!(alone.len(), 1);
        assert_eq!(EventPart { body: None, ..part.clone() }, alone[0]);
    }
}

#[test]
fn call_errors_stay_with_the_call() {
    let body = about_number(
        "calls",
        r#""calls":[{"id":"c","event":"terminate"},{"id":"d","event":"terminate"}],"errors":[{"code":138000}]"#,
    );
    let parts = parts(NAME, &[], &body);
    assert_eq!(parts.len(), 2);
    for part in parts {
        let body: Json = serde_json::from_slice(&part.body.unwrap()).unwrap();
        assert_eq!(body.pointer("/entry/0/changes/0/value/errors/0/code"), Some(&138_000.into()));
    }
}

#[test]
fn request_that_would_grow_too_large_is_not_split() {
    let filler = "x".repeat(1 << 20);
    let messages = vec![r#"{"id":"m"}"#; 100].join(",");
    let body = about_number("messages", &format!(r#""filler":"{filler}","messages":[{messages}]"#));
    let parts = parts(NAME, &[], &body);
    let [_, key, _] = event_summary(&parts[0]);
    assert_eq!((parts.len(), &*key), (1, "content 691200s"));
}

#[test]
fn request_with_too_many_events_is_not_split() {
    for (many, expected) in [(EVENTS_MAX, EVENTS_MAX), (EVENTS_MAX + 1, 1)] {
        let messages = vec!["1"; many].join(",");
        let body = about_number("messages", &format!(r#""messages":[{messages}]"#));
        assert_eq!(parts(NAME, &[], &body).len(), expected);
        let changes = vec![r#"{"field":"a","value":{}}"#; many].join(",");
        let body = format!(
            r#"{{"object":"whatsapp_business_account","entry":[{{"id":"W","changes":[{changes}]}}]}}"#
        );
        let parts = parts(NAME, &[], &body);
        assert_eq!(parts.len(), expected);
        if expected == 1 {
            assert_eq!(event_summary(&parts[0])[1], "content 691200s");
        }
    }
}

#[test]
fn malformed_list_affects_only_its_own_change() {
    let good = |id: &str, more: &str| {
        format!(
            r#"{{"field":"messages","value":{{"metadata":{{"phone_number_id":"P"}},{more}"messages":[{{"from":"55","id":"{id}","type":"text"}}]}}}}"#
        )
    };
    let split_keys = |changes: &str| {
        let body = format!(
            r#"{{"object":"whatsapp_business_account","entry":[{{"id":"W","changes":[{changes}]}},{{"id":"W","changes":[{}]}}]}}"#,
            good("last", "")
        );
        let parts = parts(NAME, &[], &body);
        for part in &parts {
            serde_json::from_slice::<Json>(part.body.as_ref().unwrap()).unwrap();
        }
        let keys = parts.iter().map(|part| event_summary(part)[1].clone());
        (keys.collect::<Vec<_>>(), parts)
    };
    let last = "whatsapp:P:message:last";
    // `null` is not an event and is kept.
    let (keys, parts) = split_keys(&good("m", r#""statuses":null,"contacts":null,"#));
    assert_eq!(keys, ["whatsapp:P:message:m", last]);
    assert!(
        String::from_utf8_lossy(parts[0].body.as_ref().unwrap()).contains(r#""statuses":null"#)
    );
    let (keys, _) = split_keys(r#"{"field":"messages","value":{"messages":null}}"#);
    assert!(keys[0].starts_with("whatsapp:W:messages:-:-:sha256:"), "{keys:?}");
    assert_eq!(keys[1], last);
    // Another type makes its change one event.
    for odd in [
        r#"{"field":"messages","value":{"statuses":{"id":"s"},"messages":[{"id":"a"},{"id":"b"}]}}"#.to_owned(),
        r#"{"field":"messages","value":[1,2]}"#.to_owned(),
        r#"{"field":"messages","value":null}"#.to_owned(),
    ] {
        let (keys, parts) = split_keys(&format!("{},{odd}", good("m", "")));
        assert_eq!(keys.len(), 3, "{odd} {keys:?}");
        assert_eq!((&*keys[0], &*keys[2]), ("whatsapp:P:message:m", last), "{odd}");
        assert!(keys[1].starts_with("whatsapp:W:messages:"), "{odd} {keys:?}");
        let body = String::from_utf8_lossy(parts[1].body.as_ref().unwrap());
        assert!(body.contains(&odd), "{odd} is in {body}");
    }
}

#[test]
fn attributes_include_recipient_and_error() {
    let body = about_number(
        "messages",
        r#""statuses":[{"id":"m","status":"failed","recipient_id":"5511987654321","recipient_user_id":"BR.1","conversation":{"id":"cv"},"biz_opaque_callback_data":"order-1","errors":[{"code":131026}]}]"#,
    );
    let parts = parts(NAME, &[], &body);
    assert_eq!(
        parts[0].attributes.to_json(),
        r#"{"message_id":["m"],"object":["order-1"],"conversation":["cv"],"phone":["5511987654321"],"chat":["BR.1"],"error":["131026"],"account":["P","W"],"provider_status":["failed"]}"#
    );
}

#[test]
fn handshake_is_answered_only_with_the_right_token() {
    let token = Secret::new("tok-ç-123");
    let headers = HeaderMap::new();
    let send = |method: &Method, query: Option<&str>, verify_token: Option<&Secret>| {
        let request =
            HandshakeRequest { method, query, headers: &headers, body: b"", verify_token };
        WHATSAPP_CLOUD.answer_handshake(&request)
    };
    let ask = |query: Option<&str>| send(&Method::GET, query, Some(&token));
    let good = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=tok-%C3%A7-123";
    assert_eq!(ask(Some(good)), Some(Ok(ProviderReply::text("1158201444"))));
    let handshake = VerifyError::Malformed { part: "handshake" };
    let cases = [
        ("a wrong token", good.replace("123", "124"), VerifyError::WrongVerifyToken),
        ("no token", good.replace("hub.verify_token", "token"), VerifyError::WrongVerifyToken),
        ("another mode", good.replace("subscribe", "unsubscribe"), handshake),
        (
            "no challenge",
            good.replace("=1158201444", "="),
            VerifyError::Malformed { part: "handshake" },
        ),
        (
            "a challenge as long as a page",
            good.replace("1158201444", &"1".repeat(513)),
            VerifyError::Malformed { part: "handshake" },
        ),
        (
            "two tokens",
            format!("{good}&hub.verify_token=x"),
            VerifyError::Malformed { part: "handshake" },
        ),
    ];
    for (case, query, refused) in cases {
        assert_eq!(ask(Some(&query)), Some(Err(refused)), "{case}");
    }
    assert_eq!(send(&Method::GET, Some(good), None), Some(Err(VerifyError::NoVerifyToken)));
    assert_eq!(send(&Method::POST, Some(good), Some(&token)), None);
    assert_eq!(ask(None), None);
    assert_eq!(ask(Some("utm=1")), None);
}

/// An event of a batch: account, number, array name and item.
type BatchEvent = (u8, u8, &'static str, String);

fn batch_event() -> impl Strategy<Value = BatchEvent> {
    let status = prop::sample::select(vec!["sent", "delivered", "read", "failed"]);
    let message = (0..6_u8, 0..4_u8).prop_map(|(id, from)| {
        (
            "messages",
            format!(r#"{{"from":"55{from}","id":"m{id}","text":{{"body":"\u00e9 \/{id}"}}}}"#),
        )
    });
    let status = (0..4_u8, status, 0..3_u8).prop_map(|(id, status, recipient)| {
        (
            "statuses",
            format!(r#"{{"id":"s{id}","status":"{status}","recipient_id":"55{recipient}"}}"#),
        )
    });
    (0..2_u8, 0..2_u8, prop_oneof![message, status])
        .prop_map(|(waba, number, (list, item))| (waba, number, list, item))
}

/// Number, array name and items.
type Change<'t> = (u8, &'t str, Vec<&'t str>);

/// A request with these events, grouped into changes and entries by `joins`.
fn batch(events: &[BatchEvent], joins: &[bool]) -> String {
    let mut entries: Vec<(u8, Vec<Change<'_>>)> = Vec::new();
    for (index, (waba, number, list, item)) in events.iter().enumerate() {
        let join = joins.get(index).copied().unwrap_or_default();
        let entry = match entries.last_mut() {
            Some(last) if join && last.0 == *waba => last,
            _ => {
                entries.push((*waba, Vec::new()));
                entries.last_mut().unwrap()
            }
        };
        match entry.1.last_mut() {
            Some(last) if join && (last.0, last.1) == (*number, *list) => last.2.push(item),
            _ => entry.1.push((*number, list, vec![item])),
        }
    }
    let entries = entries.iter().map(|(waba, changes)| {
        let changes = changes.iter().map(|(number, list, items)| {
            let contacts = r#"[{"wa_id":"550"},{"wa_id":"551"},{"wa_id":"552"},{"wa_id":"553"}]"#;
            format!(
                r#"{{"value":{{"metadata":{{"phone_number_id":"P{number}"}},"contacts":{contacts},"{list}":[{}]}},"field":"messages"}}"#,
                items.join(",")
            )
        });
        format!(r#"{{"id":"W{waba}","changes":[{}]}}"#, changes.collect::<Vec<_>>().join(","))
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    format!(r#"{{"object":"whatsapp_business_account","entry":[{entries}]}}"#)
}

/// The content of each event by its key.
fn by_key(bodies: &[String]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for body in bodies {
        for part in parts(NAME, &[], body) {
            let text = part.body.as_deref().unwrap_or(body.as_bytes());
            let text: Json = serde_json::from_slice(text).unwrap();
            let value = text.pointer("/entry/0/changes/0/value").unwrap();
            let event = value.get("messages").or(value.get("statuses")).unwrap();
            assert_eq!(event.as_array().unwrap().len(), 1);
            let [_, key, _] = event_summary(&part);
            all.insert(key, format!("{} {event}", text["entry"][0]["id"]));
        }
    }
    all
}

proptest! {
    #[test]
    fn regrouped_batch_has_the_same_events(
        events in prop::collection::vec(batch_event(), 1..20),
        joins in prop::collection::vec(any::<bool>(), 20),
        other_joins in prop::collection::vec(any::<bool>(), 20),
        cut in any::<prop::sample::Index>(),
        rotation in any::<prop::sample::Index>(),
    ) {
        // The same message id in two accounts is another event only if the number differs.
        let events: Vec<BatchEvent> = events.into_iter().map(|(_, number, list, item)| (number, number, list, item)).collect();
        let whole = batch(&events, &joins);
        prop_assert_eq!(parts(NAME, &[], &whole).len(), events.len());
        let mut turned = events.clone();
        turned.rotate_left(rotation.index(events.len()));
        let (one, other) = turned.split_at(cut.index(turned.len()));
        let again: Vec<String> = [one, other]
            .iter()
            .filter(|events| !events.is_empty())
            .map(|events| batch(events, &other_joins))
            .collect();
        prop_assert_eq!(
            by_key(&[whole]).into_keys().collect::<Vec<_>>(),
            by_key(&again).into_keys().collect::<Vec<_>>()
        );
        let alone: Vec<String> = events.iter().map(|one| batch(std::slice::from_ref(one), &[])).collect();
        prop_assert_eq!(by_key(&[batch(&events, &joins)]), by_key(&alone));
    }
}
