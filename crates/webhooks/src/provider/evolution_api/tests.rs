use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use surehook_types::{secret::Secret, time::Timestamp};

use super::{
    super::testing::{attribute_pairs, headers, incoming, part, summary},
    *,
};
use crate::verify::VerifyError;

const NAME: &str = "evolution-api";
const NOW: i64 = 1_779_024_000;
const SECRET: &str = "evo-jwt-secret-0001";

fn body(event: &str, data: &str) -> String {
    format!(r#"{{"event":"{event}","instance":"i","data":{data},"date_time":"T"}}"#)
}

#[test]
fn each_event_kind_has_its_key() {
    let by_content = |event: &str, data: &str| {
        let hash = HEXLOWER.encode(&fingerprint(data.as_bytes()));
        format!("evolution_api:i:{event}:T:{hash}")
    };
    let polled =
        r#"{"keyId":"k","status":"READ","remoteJid":"c@g.us","pollUpdates":[{"name":"a"}]}"#;
    let contacts = r#"[{"remoteJid":"1@s.whatsapp.net"},{"remoteJid":"2@s.whatsapp.net"}]"#;
    // (name, event, data, expected key, expected ordering key)
    let cases: [(&str, &str, &str, &str, &str); 14] = [
        (
            "a message to us",
            "messages.upsert",
            r#"{"key":{"remoteJid":"c@g.us","fromMe":false,"id":"m","participant":"p@lid"}}"#,
            "evolution_api:i:messages.upsert:c@g.us:m:in",
            "i:c@g.us",
        ),
        (
            "the same id from us",
            "messages.upsert",
            r#"{"key":{"remoteJid":"c@g.us","fromMe":true,"id":"m"}}"#,
            "evolution_api:i:messages.upsert:c@g.us:m:out",
            "i:c@g.us",
        ),
        (
            "sent through the API",
            "send.message",
            r#"{"key":{"remoteJid":"c@g.us","fromMe":true,"id":"m"}}"#,
            "evolution_api:i:send.message:m",
            "i:c@g.us",
        ),
        (
            "an update has keyId",
            "messages.update",
            r#"{"keyId":"k","messageId":"db","remoteJid":"c@g.us","participant":null,"status":"READ"}"#,
            "evolution_api:i:messages.update:k:READ:-",
            "i:c@g.us",
        ),
        (
            "read by one of a group",
            "messages.update",
            r#"{"keyId":"k","remoteJid":"c@g.us","participant":"p@lid","status":"READ"}"#,
            "evolution_api:i:messages.update:k:READ:p@lid",
            "i:c@g.us",
        ),
        ("a vote", "messages.update", polled, &by_content("messages.update", polled), "i:c@g.us"),
        (
            "edited",
            "messages.edited",
            r#"{"key":{"remoteJid":"c@g.us","id":"m"},"timestampMs":17}"#,
            "evolution_api:i:messages.edited:m:17",
            "i:c@g.us",
        ),
        (
            "edited at a long number",
            "messages.edited",
            r#"{"key":{"remoteJid":"c@g.us","id":"m"},"timestampMs":{"low":1}}"#,
            r#"evolution_api:i:messages.edited:m:{"low":1}"#,
            "i:c@g.us",
        ),
        (
            "deleted",
            "messages.delete",
            r#"{"remoteJid":"c@g.us","fromMe":true,"id":"m"}"#,
            "evolution_api:i:messages.delete:m",
            "i:c@g.us",
        ),
        (
            "connected",
            "connection.update",
            r#"{"state":"open","statusReason":200}"#,
            "evolution_api:i:connection.update:open:200:T",
            "i",
        ),
        (
            "connecting without a reason",
            "connection.update",
            r#"{"state":"connecting"}"#,
            &by_content("connection.update", r#"{"state":"connecting"}"#),
            "i",
        ),
        (
            "contacts in a list",
            "contacts.upsert",
            contacts,
            &by_content("contacts.upsert", contacts),
            "i",
        ),
        ("presence has no key", "presence.update", r#"{"id":"c@g.us"}"#, "-", "i"),
        ("no data", "qrcode.updated", "null", &by_content("qrcode.updated", "null"), "i"),
    ];
    for (case, event, data, expected_key, expected_order) in cases {
        let actual = summary(NAME, &[], &body(event, data));
        assert_eq!(actual, [event, expected_key, expected_order], "{case}");
    }
    for odd in ["not json", "[]", r#"{"event":"error","data":{}}"#] {
        let part = part(NAME, &[], odd);
        assert_eq!((part.key, part.body, part.ordering_key), (EventKey::None, None, None), "{odd}");
    }
}

#[test]
fn attributes_include_both_addresses_of_a_person() {
    let data = r#"{"key":{"remoteJid":"234@lid","senderPn":"5511987654321@s.whatsapp.net","fromMe":false,"id":"m"},"contextInfo":{"stanzaId":"q"},"status":"DELIVERY_ACK"}"#;
    let about = attribute_pairs(NAME, &[], &body("messages.upsert", data));
    assert_eq!(
        about,
        [
            "message_id=m",
            "message_id=q",
            "phone=5511987654321",
            "chat=234@lid",
            "account=i",
            "provider_status=DELIVERY_ACK",
        ]
    );
}

fn token(header: &str, claims: &str, secret: &str) -> String {
    let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(&signed);
    format!("Bearer {signed}.{}", encode(&mac.finalize().into_bytes()))
}

type Case<'c> = (&'c str, &'c str, Vec<(&'c str, &'c str)>, i64, Result<usize, VerifyError>);

#[test]
fn secret_is_accepted_in_jwt_header_or_path() {
    let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
    let good = r#"{"exp":1779024000}"#;
    let malformed = || Err(VerifyError::Malformed { part: "credentials" });
    let missing = || Err(VerifyError::MissingCredentials { header: http::header::AUTHORIZATION });
    // (name, path, headers, seconds since the token expired, expected result)
    let jwt = token(hs256, good, SECRET);
    let old = token(hs256, good, "old");
    let none = token(r#"{"alg":"none"}"#, good, SECRET);
    let endless = token(hs256, "{}", SECRET);
    let other = token(hs256, good, "other");
    fn authorized(value: &str) -> Vec<(&str, &str)> {
        vec![("authorization", value)]
    }
    let cases: Vec<Case<'_>> = vec![
        ("a token", "", authorized(&jwt), 0, Ok(0)),
        ("a token with the secret before", "/messages-upsert", authorized(&old), 0, Ok(1)),
        ("the last attempt of all", "", authorized(&jwt), 1800, Ok(0)),
        ("too late", "", authorized(&jwt), 1801, Err(VerifyError::Stale)),
        ("a token with another secret", "", authorized(&other), 0, Err(VerifyError::Mismatch)),
        ("a token that needs no secret", "", authorized(&none), 0, malformed()),
        ("a token without an end", "", authorized(&endless), 0, malformed()),
        ("no token", "", authorized("Bearer x.y"), 0, malformed()),
        ("the secret is not a token", "", authorized("Basic eDp5"), 0, malformed()),
        ("the header", "", vec![("apikey", SECRET)], 0, Ok(0)),
        ("a wrong header", "", vec![("apikey", "x")], 0, Err(VerifyError::Mismatch)),
        (
            "a wrong header beside a token",
            "",
            vec![("apikey", "x"), ("authorization", &jwt)],
            0,
            Ok(0),
        ),
        ("two headers", "", vec![("apikey", SECRET), ("apikey", "x")], 0, malformed()),
        ("the path", "/evo-jwt-secret-0001", vec![], 0, Ok(0)),
        ("the path with an event", "/old/messages-upsert", vec![], 0, Ok(1)),
        ("an event and no secret", "/messages-upsert", vec![], 0, missing()),
        ("the secret elsewhere", "/x/evo-jwt-secret-0001", vec![], 0, Err(VerifyError::Mismatch)),
        ("nothing", "", vec![], 0, missing()),
    ];
    let verifier = EVOLUTION_API.verifier([SECRET, "old"].map(Secret::new).to_vec()).unwrap();
    for (case, path, pairs, late, expected) in cases {
        let sent = headers(&pairs);
        let at = Timestamp::from_millis((NOW + late) * 1000);
        let request = IncomingRequest { path, ..incoming(&sent, "{}") };
        let verified = verifier.verify(&request, at);
        assert_eq!(verified.map(|verified| verified.secret_index), expected, "{case}");
    }
    assert_eq!(verifier.path_without_secret("/old/messages-upsert"), Some("/messages-upsert"));
    assert_eq!(verifier.path_without_secret("/messages-upsert"), None);
}
