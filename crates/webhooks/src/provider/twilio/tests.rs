use super::{
    super::testing::{TestCall, assert_events, attribute_pairs, summary},
    scheme::with_and_without_port,
};
use crate::provider::ParsedRequest;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
const SIGNATURE: &str = "x-twilio-signature";

/// Example from Twilio's documentation.
#[test]
fn published_example_gives_published_signature() {
    let body = "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212";
    let call = TestCall::new("twilio", "12345").header(FORM.0, FORM.1).body(body);
    let signed = call.url("https://mycompany.com/myapp.php?foo=1&bar=2").signature().unwrap();
    assert_eq!(signed.headers[0].1, "RSOYDt4T1cUTdK1PDd93/VVr8B8=");
    assert!(!signed.changes_url());
}

fn call(body: &str) -> TestCall {
    let call = TestCall::new("twilio", "12345678901234567890123456789012").header(FORM.0, FORM.1);
    call.url("https://gw.test/in/twilio?conn=1").body(body).signed()
}

#[test]
fn form_fields_are_signed_sorted_by_name() {
    let base = call("b=2&a=1&A=0");
    let cases = [
        ("the same", base.clone(), Ok(0)),
        ("sent in another order", base.clone().body("A=0&a=1&b=2"), Ok(0)),
        ("capitals come first", call("a=1&A=0").body("A=0&a=1"), Ok(0)),
        ("a value twice counts once", call("a=1&a=1").body("a=1"), Ok(0)),
        ("values of one name in order", call("a=2&a=1").body("a=1&a=2"), Ok(0)),
        ("a value more", call("a=1").body("a=1&a=2"), Err("mismatch")),
        ("a space is a space", call("a=b+c").body("a=b%20c"), Ok(0)),
        ("umlauts", call("a=%C3%A1").body("a=á"), Ok(0)),
        ("empty values", call("a=&b").body("a&b="), Ok(0)),
        ("another value", base.clone().body("b=2&a=1&A=1"), Err("mismatch")),
        ("another query", base.clone().url("https://gw.test/in/twilio?conn=2"), Err("mismatch")),
        ("no query", base.clone().url("https://gw.test/in/twilio"), Err("mismatch")),
        ("another path", base.clone().url("https://gw.test/in/twilio/x?conn=1"), Err("mismatch")),
        ("no signature", base.clone().without(SIGNATURE), Err("missing_signature")),
        ("two signatures", base.clone().add_header(SIGNATURE, "AAAA"), Err("malformed")),
        ("not base64", base.clone().header(SIGNATURE, "%%"), Err("malformed")),
        ("cut short", base.clone().header(SIGNATURE, "AAAA"), Err("mismatch")),
        ("another token", base.clone().secrets(&["x"]), Err("mismatch")),
        ("the second token", base.secrets(&["x", "12345678901234567890123456789012"]), Ok(1)),
        (
            "a form with another content type is not covered",
            call("b=2&a=1&A=0").header("content-type", "application/json"),
            Err("malformed"),
        ),
        ("no body", call(""), Ok(0)),
    ];
    for (name, call, expected) in cases {
        assert_eq!(call.verify(), expected, "case: {name}");
    }
    call("MessageSid=SM1&From=551198").assert_every_bit_counts(&[SIGNATURE]);
}

#[test]
fn url_is_accepted_with_and_without_port() {
    let cases = [
        ("https://gw.test/in/s", "https://gw.test:443/in/s"),
        ("http://gw.test/in/s?a=b:1", "http://gw.test:80/in/s?a=b:1"),
        ("https://gw.test:443/in/s", "https://gw.test/in/s"),
        ("https://gw.test:8443/in/s?u=http://x:1", "https://gw.test/in/s?u=http://x:1"),
        ("https://[::1]/in/s", "https://[::1]:443/in/s"),
        ("https://[::1]:8443/in/s", "https://[::1]/in/s"),
    ];
    for (url, other) in cases {
        assert_eq!(with_and_without_port(url), [url, other]);
        assert_eq!(call("a=1").url(other).signed().url(url).verify(), Ok(0), "{url}");
    }
    assert_eq!(
        with_and_without_port("https://gw.test?a"),
        ["https://gw.test?a", "https://gw.test:443?a"]
    );
    let other_port = call("a=1").url("https://gw.test:1/in/s").signed();
    assert_eq!(other_port.url("https://gw.test:2/in/s").verify(), Err("mismatch"));
    let mut guessing = call("a=1").header("host", "gw.test").header("x-forwarded-host", "gw.test");
    guessing.knows_origin = false;
    assert_eq!(guessing.verify(), Err("unknown_address"), "a host in a header is not believed");
}

#[test]
fn json_body_is_covered_by_the_hash_in_the_url() {
    let json = TestCall::new("twilio", "t").header("content-type", "application/json").body("{}");
    let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    let url = json.signature().unwrap().signed_url("https://gw.test/in/s");
    assert_eq!(url, format!("https://gw.test/in/s?bodySHA256={hash}"));
    let signed = json.clone().url(url.clone()).signed();
    let cases = [
        ("good", signed.clone(), Ok(0)),
        ("another body", signed.clone().body("{ }"), Err("mismatch")),
        ("no body", signed.clone().body(""), Err("mismatch")),
        ("another hash", signed.body("[]").url(url.replace("44136", "44137")), Err("mismatch")),
        ("no hash", json.clone().body("").signed().body("{}"), Err("malformed")),
        (
            "invalid hash",
            json.clone().url("https://gw.test/in/s?bodySHA256=x").header(SIGNATURE, "AAAA"),
            Err("malformed"),
        ),
        ("nothing to cover", json.clone().body("").signed(), Ok(0)),
    ];
    for (name, call, expected) in cases {
        assert_eq!(call.verify(), expected, "case: {name}");
    }
    let with_query = "https://gw.test/in/s?a=1";
    let signature = json.url(with_query).signature().unwrap();
    let url = format!("https://gw.test/in/s?a=1&bodySHA256={hash}");
    assert_eq!(signature.signed_url(with_query), url);
}

#[test]
fn messages_calls_and_events_have_their_own_keys() {
    let token = ("i-twilio-idempotency-token", "t1");
    assert_events(
        "twilio",
        &[FORM, token],
        r#"
        case | body | kind | key | ordering key
        message | MessageSid=SM1&AccountSid=AC1&SmsStatus=received&From=%2B55&To=%2B1 | message.received | twilio:AC1:SM1:received | +55
        message without a status | MessageSid=SM1&AccountSid=AC1&From=%2B55&To=%2B1 | message.received | twilio:AC1:SM1:received | +55
        status | MessageSid=SM1&AccountSid=AC1&MessageStatus=read&SmsStatus=read&From=%2B1&To=%2B55 | message.status.read | twilio:AC1:SM1:read | +55
        status by the old name | SmsSid=SM1&AccountSid=AC1&SmsStatus=sent&From=%2B1&To=%2B55 | message.status.sent | twilio:AC1:SM1:sent | +55
        no account | MessageSid=SM1&From=%2B55 | message.received | twilio:-:SM1:received | +55
        a report of a call | CallSid=CA1&AccountSid=AC1&CallStatus=ringing&SequenceNumber=1 | call.ringing | twilio:AC1:CA1:ringing:1 | CA1
        a call asks after each digit, in one state | CallSid=CA1&AccountSid=AC1&CallStatus=in-progress&Digits=1 | call.in-progress | twilio:AC1:t1 | CA1
        an event of a conversation names a message, and is another one at each change | EventType=onMessageUpdated&MessageSid=IM1&AccountSid=AC1&ConversationSid=CH1 | onMessageUpdated | twilio:AC1:t1 | CH1
        something else | AccountSid=AC1&a=b | - | twilio:AC1:t1 | -
        nothing |  | - | twilio:-:t1 | -
        blank | MessageSid=+&CallSid= | - | twilio:-:t1 | -
        not a form | � | - | twilio:-:t1 | -
        a field twice | MessageSid=SM1&MessageSid=SM2&AccountSid=AC1 | message.received | twilio:AC1:SM1:received | -
        "#,
    );
    let digits = "CallSid=CA1&AccountSid=AC1&CallStatus=in-progress&Digits=1";
    assert_eq!(
        summary("twilio", &[FORM], digits),
        ["call.in-progress", "-", "CA1"],
        "no token, no key"
    );
    let json = [("content-type", "application/json"), token];
    assert_eq!(summary("twilio", &json, r#"{"id":"1"}"#), ["-", "twilio:-:t1", "-"]);
    let streamed =
        r#"[{"id":"EZ1","type":"com.twilio.messaging.message.sent","data":{"messageSid":"SM1"}}]"#;
    let expected = ["com.twilio.messaging.message.sent", "twilio:EZ1", "SM1"];
    assert_eq!(summary("twilio", &json, streamed), expected);
    let two =
        call("").header("content-type", "application/json").body(r#"[{"id":"1"},{"id":"2"}]"#);
    assert!(matches!(two.parse(), ParsedRequest::Events(parts) if parts.len() == 2));
}

#[test]
fn json_events_are_read_like_forms() {
    let json = [("content-type", "application/json")];
    assert_events(
        "twilio",
        &json,
        r#"
        case | body | kind | key | ordering key
        message | {"MessageSid":"SM1","AccountSid":"AC1","From":"+55","To":"+1","NumMedia":0} | message.received | twilio:AC1:SM1:received | +55
        status | {"MessageSid":"SM1","AccountSid":"AC1","MessageStatus":"delivered","From":"+1","To":"+55"} | message.status.delivered | twilio:AC1:SM1:delivered | +55
        the next status | {"MessageSid":"SM1","AccountSid":"AC1","MessageStatus":"read","From":"+1","To":"+55"} | message.status.read | twilio:AC1:SM1:read | +55
        small letters | {"messageSid":"SM1","messageStatus":"sent","to":"+55"} | message.status.sent | twilio:-:SM1:sent | +55
        call | {"CallSid":"CA1","AccountSid":"AC1","CallStatus":"ringing","SequenceNumber":1} | call.ringing | twilio:AC1:CA1:ringing:1 | CA1
        nested | {"MessageSid":{"a":1}} | - | - | -
        not an object | "MessageSid" | - | - | -
        not JSON | {"MessageSid": | - | - | -
        "#,
    );
    let body = r#"{"MessageSid":"SM1","AccountSid":"AC1","MessageStatus":"failed","ErrorCode":63016,"To":"whatsapp:+5511987654321"}"#;
    let found = attribute_pairs("twilio", &json, body);
    for expected in ["message_id=SM1", "provider_status=failed", "error=63016", "account=AC1"] {
        assert!(found.iter().any(|pair| pair == expected), "{expected}: {found:?}");
    }
    assert!(found.iter().any(|pair| pair.starts_with("phone=")), "{found:?}");
}

#[test]
fn attributes_include_both_parties_and_the_error() {
    let body = "MessageSid=SM1&AccountSid=AC1&MessageStatus=failed&ErrorCode=63016&From=whatsapp%3A%2B1415&To=whatsapp%3A%2B5511987654321";
    let found = attribute_pairs("twilio", &[FORM], body);
    for expected in ["message_id=SM1", "provider_status=failed", "error=63016", "account=AC1"] {
        assert!(found.iter().any(|pair| pair == expected), "{expected}: {found:?}");
    }
    assert!(
        found.iter().any(|pair| pair.starts_with("phone=") && pair.contains("5511987654321")),
        "{found:?}"
    );
}

#[test]
fn reply_never_sends_text_to_the_sender() {
    let twiml = Some((200, Some("text/xml"), "<Response/>".to_owned()));
    let nothing = Some((200, None, String::new()));
    assert_eq!(call("MessageSid=SM1").reply(), twiml);
    assert_eq!(call("CallSid=CA1").reply(), twiml);
    assert_eq!(call("EventType=onMessageAdd&MessageSid=IM1").reply(), nothing);
    assert_eq!(call("").header("content-type", "application/json").body("[]").reply(), nothing);
}
