use proptest::prelude::*;

use super::{
    super::{
        raw_json::EVENTS_MAX,
        testing::{attribute_pairs, event_summary, headers, incoming, part, parts, rows, summary},
    },
    *,
};

const NAME: &str = "evolution-go";
const NOW: Timestamp = Timestamp::from_millis(1_779_024_000_000);

fn body(event: &str, data: &str, more: &str) -> String {
    format!(r#"{{"data":{data},"event":"{event}","instanceId":"i","instanceToken":"t"{more}}}"#)
}

/// Case, event, data, other members, expected kind, key and ordering key.
const EVENTS: &str = r#"
a message | Message | {"Info":{$INFO,"Edit":""}} | | Message | evolution_go:i:Message:c@g.us:m: | i:c@g.us
an edit | Message | {"Info":{$INFO,"Edit":"1"},"IsEdit":true} | | Message.edit | evolution_go:i:Message:c@g.us:m:1 | i:c@g.us
revoked | Message | {"Info":{$INFO,"Edit":"7"}} | | Message.revoke | evolution_go:i:Message:c@g.us:m:7 | i:c@g.us
revoked by an admin | Message | {"Info":{$INFO,"Edit":"8"}} | | Message.revoke | evolution_go:i:Message:c@g.us:m:8 | i:c@g.us
the placeholder of a view-once message | Message | {"Info":{$INFO,"Edit":""},"IsUnavailable":true,"UnavailableType":"view_once"} | | Message.unavailable | evolution_go:i:Message:c@g.us:m::unavailable | i:c@g.us
a message without an id | Message | {"Info":{}} | | Message | content 180s | i
sent through the API | SendMessage | {"Info":{$INFO,"Edit":""}} | | SendMessage | evolution_go:i:SendMessage:m | i:c@g.us
a receipt | Receipt | {"MessageIDs":["m"],"Chat":"c@g.us","Sender":"p@lid","Type":""} | ,"state":"Delivered" | Receipt.Delivered | evolution_go:i:Receipt:m:Delivered:p@lid | i:c@g.us
a receipt without a state | Receipt | {"MessageIDs":["m"],"Chat":"c@g.us","Sender":"p@lid","Type":"read-self"} | | Receipt.ReadSelf | evolution_go:i:Receipt:m:ReadSelf:p@lid | i:c@g.us
an empty type means delivered | Receipt | {"MessageIDs":["m"],"Chat":"c@g.us","Sender":"p@lid","Type":""} | | Receipt.Delivered | evolution_go:i:Receipt:m:Delivered:p@lid | i:c@g.us
a receipt for no message | Receipt | {"MessageIDs":[],"Chat":"c@g.us"} | ,"state":"Read" | Receipt.Read | content 180s | i:c@g.us
a receipt of another shape | Receipt | {"MessageIDs":null,"Chat":"c@g.us"} | ,"state":"Read" | Receipt.Read | content 180s | i:c@g.us
connected | Connected | {"status":"open"} | | Connected | content 180s | i
logged out | LoggedOut | {"reason":"x"} | | LoggedOut | content 180s | i
a call | CallOffer | {"CallID":"x"} | | CallOffer | content 180s | i
typing | ChatPresence | {"Chat":"c@g.us","State":"composing"} | | ChatPresence | - | i:c@g.us
presence | Presence | {"From":"p@lid"} | | Presence | - | i:p@lid
"#;

#[test]
fn each_event_kind_has_its_key() {
    let info = r#""Chat":"c@g.us","ID":"m","IsFromMe":false,"Sender":"p@lid""#;
    for row in rows(EVENTS) {
        let [case, event, data, more, expected @ ..] = &row[..] else { panic!("{row:?}") };
        let body = body(event, &data.replace("$INFO", info), more);
        assert_eq!(summary(NAME, &[], &body), expected, "{case}");
        assert_eq!(part(NAME, &[], &body).body, None, "{case}");
    }
    for odd in ["not json", "[]", "{}"] {
        let part = part(NAME, &[], odd);
        assert_eq!((part.key, part.ordering_key), (EventKey::None, None), "{odd}");
    }
}

#[test]
fn receipt_for_several_messages_is_split() {
    let text = |ids: &str| {
        format!(
            r#"{{"data":{{"Chat":"c@g.us","MessageIDs":[{ids}],"Sender":"p@lid","x":1.0}},"event":"Receipt","instanceId":"i","state":"Read","\u00e9":"\/"}}"#
        )
    };
    let parts = parts(NAME, &[], &text(r#""a", "b""#));
    let split: Vec<_> = parts
        .iter()
        .map(|part| {
            let [_, key, _] = event_summary(part);
            (key, String::from_utf8(part.body.clone().unwrap().to_vec()).unwrap())
        })
        .collect();
    assert_eq!(
        split,
        [
            ("evolution_go:i:Receipt:a:Read:p@lid".to_owned(), text(r#""a""#)),
            ("evolution_go:i:Receipt:b:Read:p@lid".to_owned(), text(r#""b""#)),
        ]
    );
    let attributes = r#"{"message_id":["b"],"chat":["c@g.us","p@lid"],"account":["i"],"provider_status":["Read"]}"#;
    assert_eq!(parts[1].attributes.to_json(), attributes);
}

#[test]
fn receipt_for_too_many_messages_is_not_split() {
    let receipt_parts = |many: usize| {
        let ids = vec![r#""a""#; many].join(",");
        let body = format!(
            r#"{{"data":{{"MessageIDs":[{ids}]}},"event":"Receipt","instanceId":"i","state":"Read"}}"#
        );
        parts(NAME, &[], &body)
    };
    assert_eq!(receipt_parts(EVENTS_MAX).len(), EVENTS_MAX);
    let unsplit = receipt_parts(EVENTS_MAX + 1);
    assert_eq!((unsplit.len(), &unsplit[0].body), (1, &None));
    assert!(matches!(unsplit[0].key, EventKey::ContentHash(_)), "{:?}", unsplit[0].key);
}

#[test]
fn own_number_is_not_an_attribute() {
    let data = r#"{"Info":{"Chat":"5511987654321@s.whatsapp.net","Sender":"551140028922:12@s.whatsapp.net","IsFromMe":true,"ID":"m"}}"#;
    let attributes = attribute_pairs(NAME, &[], &body("SendMessage", data, ""));
    assert_eq!(attributes, ["message_id=m", "phone=5511987654321", "account=i"]);
}

#[test]
fn secret_is_accepted_in_path_or_body() {
    let verifier = EVOLUTION_GO.verifier(["url", "token"].map(Secret::new).to_vec()).unwrap();
    let body_with = |token: &str| format!(r#"{{"instanceToken":{token}}}"#);
    let missing = || Err(VerifyError::MissingSecret);
    let cases: [(&str, &str, String, Result<usize, VerifyError>); 10] = [
        ("the path", "/url", body_with(r#""x""#), Ok(0)),
        ("the path and more", "/url/x", "{}".to_owned(), Ok(0)),
        ("the token", "", body_with(r#""token""#), Ok(1)),
        ("the token, escaped", "", body_with(r#""t\u006fken""#), Ok(1)),
        ("the token beside a wrong path", "/x", body_with(r#""token""#), Ok(1)),
        ("a wrong token", "", body_with(r#""tokem""#), Err(VerifyError::Mismatch)),
        ("a wrong path", "/x", "{}".to_owned(), Err(VerifyError::Mismatch)),
        ("no token", "", "{}".to_owned(), missing()),
        ("an empty token", "", body_with(r#""""#), missing()),
        ("no JSON", "", "x".to_owned(), missing()),
    ];
    let empty = headers(&[]);
    for (case, path, body, expected) in cases {
        let verified = verifier.verify(&IncomingRequest { path, ..incoming(&empty, &body) }, NOW);
        assert_eq!(verified.map(|verified| verified.secret_index), expected, "{case}");
    }
    assert_eq!(verifier.path_without_secret("/token/x"), Some("/x"));
    assert!(verifier.warnings().is_empty());
    let warned = EVOLUTION_GO.verifier(["url", "a+b/c="].map(Secret::new).to_vec()).unwrap();
    assert!(warned.warnings()[0].starts_with("secret 2 "), "{:?}", warned.warnings());
    assert!(!warned.warnings()[0].contains("a+b"), "{:?}", warned.warnings());
}

proptest! {
    /// The body is not signed, so only the secret can be wrong: in the path, in the body, or configured.
    #[test]
    fn flipped_bit_is_refused(
        secret in "[a-zA-Z0-9]{1,40}", bit in any::<usize>(), location in 0..3_usize,
    ) {
        let is_accepted = |configured: &[u8], path: &[u8], token: &[u8]| {
            let verifier = EVOLUTION_GO.verifier(vec![Secret::new(configured)]).unwrap();
            let empty = headers(&[]);
            let path = String::from_utf8_lossy(path);
            let token = String::from_utf8_lossy(token);
            let body = serde_json::json!({ "instanceToken": token }).to_string();
            verifier.verify(&IncomingRequest { path: &path, ..incoming(&empty, &body) }, NOW).is_ok()
        };
        let path = format!("/{secret}").into_bytes();
        let (mut configured, mut path, mut token) = (secret.clone().into_bytes(), path, secret.into_bytes());
        prop_assert!(is_accepted(&configured, &path, b"") && is_accepted(&configured, b"", &token));
        let changed = [&mut configured, &mut path, &mut token].into_iter().nth(location).unwrap();
        let bit = bit % (changed.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(location == 2 || !is_accepted(&configured, &path, b""));
        prop_assert!(location == 1 || !is_accepted(&configured, b"", &token));
    }
}
