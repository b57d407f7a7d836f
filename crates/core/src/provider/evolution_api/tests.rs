use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderValue;
use proptest::prelude::*;
use sha2::Sha256;

use super::{
    super::testing_events::{
        NOW, check_samples, flip, headers, key, kind, now, order, read, request, secrets,
    },
    *,
};
use crate::{request::Outgoing, time::Timestamp, verify::Refused};

const SECRET: &str = "evo-jwt-secret-0001";

fn body(event: &str, data: &str) -> String {
    format!(r#"{{"event":"{event}","instance":"i","data":{data},"date_time":"T"}}"#)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_kind_has_its_key() {
    let by_content = |event: &str, data: &str| {
        let hash = HEXLOWER.encode(&fingerprint(data.as_bytes()));
        format!("evolution_api:i:{event}:T:{hash}")
    };
    let polled =
        r#"{"keyId":"k","status":"READ","remoteJid":"c@g.us","pollUpdates":[{"name":"a"}]}"#;
    let contacts = r#"[{"remoteJid":"1@s.whatsapp.net"},{"remoteJid":"2@s.whatsapp.net"}]"#;
    // What it is, event, data; key, ordering key.
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
        ("presence is not told apart", "presence.update", r#"{"id":"c@g.us"}"#, "-", "i"),
        ("no data", "qrcode.updated", "null", &by_content("qrcode.updated", "null"), "i"),
    ];
    for (case, event, data, expected_key, expected_order) in cases {
        let parts = read(&EvolutionApi, &[], &body(event, data));
        assert_eq!(parts.len(), 1, "{case}");
        assert_eq!(
            (kind(&parts[0]), &*key(&parts[0]), order(&parts[0])),
            (event, expected_key, expected_order),
            "{case}"
        );
    }
    for odd in ["not json", "[]", r#"{"event":"error","data":{}}"#] {
        let parts = read(&EvolutionApi, &[], odd);
        assert_eq!((parts.len(), &*key(&parts[0]), &parts[0].body), (1, "-", &None), "{odd}");
    }
}

#[test]
fn attributes_know_both_addresses_of_a_person() {
    let data = r#"{"key":{"remoteJid":"234@lid","senderPn":"5511987654321@s.whatsapp.net","fromMe":false,"id":"m"},"contextInfo":{"stanzaId":"q"},"status":"DELIVERY_ACK"}"#;
    let parts = read(&EvolutionApi, &[], &body("messages.upsert", data));
    assert_eq!(
        parts[0].attributes.to_json(),
        r#"{"message_id":["m","q"],"phone":["5511987654321"],"chat":["234@lid"],"account":["i"],"provider_status":["DELIVERY_ACK"]}"#
    );
}

fn token(header: &str, claims: &str, secret: &str) -> String {
    let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(&signed);
    format!("Bearer {signed}.{}", encode(&mac.finalize().into_bytes()))
}

type Case<'c> = (&'c str, &'c str, Vec<(&'c str, &'c str)>, i64, Result<usize, Refused>);

#[test]
fn there_are_three_ways_to_show_a_secret() {
    let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
    let good = r#"{"exp":1779024000}"#;
    let malformed = || Err(Refused::Malformed { part: "credentials" });
    let missing = || Err(Refused::MissingCredentials { header: http::header::AUTHORIZATION });
    // What it is, path, headers, seconds since the token ended; what comes of it.
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
        ("too late", "", authorized(&jwt), 1801, Err(Refused::Stale)),
        ("somebody else's token", "", authorized(&other), 0, Err(Refused::Mismatch)),
        ("a token that needs no secret", "", authorized(&none), 0, malformed()),
        ("a token without an end", "", authorized(&endless), 0, malformed()),
        ("no token", "", authorized("Bearer x.y"), 0, malformed()),
        ("the secret is no token", "", authorized("Basic eDp5"), 0, malformed()),
        ("the header", "", vec![("apikey", SECRET)], 0, Ok(0)),
        ("a wrong header", "", vec![("apikey", "x")], 0, Err(Refused::Mismatch)),
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
        ("the secret elsewhere", "/x/evo-jwt-secret-0001", vec![], 0, missing()),
        ("nothing", "", vec![], 0, missing()),
    ];
    let verifier = EvolutionApi.verifier(secrets(&[SECRET, "old"])).unwrap();
    for (case, path, pairs, late, expected) in cases {
        let sent = headers(&pairs);
        let at = Timestamp::from_millis((NOW + late) * 1000);
        let verified = verifier.verify(&request(path, &sent, b"{}"), at);
        assert_eq!(verified.map(|verified| verified.secret_index), expected, "{case}");
    }
    assert_eq!(verifier.bare_path("/old/messages-upsert"), Some("/messages-upsert"));
    assert_eq!(verifier.bare_path("/messages-upsert"), None);
}

proptest! {
    /// The token does not cover the body, so only it and the secret can be wrong.
    #[test]
    fn one_changed_bit_is_refused(
        secret in prop::collection::vec(any::<u8>(), 1..40),
        bit in any::<usize>(),
        in_token: bool,
    ) {
        let verifier = |secret: &[u8]| EvolutionApi.verifier(vec![Secret::new(secret)]).unwrap();
        let empty = headers(&[]);
        let outgoing = Outgoing { id: "", url: "", headers: &empty, body: b"" };
        let signed = verifier(&secret).sign(&outgoing, now()).unwrap();
        let (mut secret, mut value) = (secret, signed.headers[0].1.clone().into_bytes());
        let is_let_in = |secret: &[u8], value: &[u8]| {
            let Ok(value) = HeaderValue::from_bytes(value) else { return false };
            let mut headers = headers(&[]);
            headers.insert("authorization", value);
            verifier(secret).verify(&request("", &headers, b""), now()).is_ok()
        };
        prop_assert!(is_let_in(&secret, &value));
        if in_token {
            flip(&mut value["Bearer ".len()..], bit);
        } else {
            flip(&mut secret, bit);
        }
        prop_assert!(!is_let_in(&secret, &value));
    }
}

#[test]
fn samples_are_as_they_say() {
    check_samples(&EvolutionApi);
}
