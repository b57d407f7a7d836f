use super::{
    super::testing::{assert_events, attribute_pairs, headers, incoming, parse, part, verify},
    *,
};
use crate::verify::VerifyError;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const COMMAND: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";

#[test]
fn published_vector_is_accepted_within_tolerance() {
    let secret = "8f742231b10e8888abcd99yyyzzz85a5";
    let timestamp = ("x-slack-request-timestamp", "1531420618");
    let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let signature = ("x-slack-signature", signature);
    let cases: [(_, &[_], _, Result<usize, &str>); 6] = [
        ("fresh", &[timestamp, signature], 1_531_420_618, Ok(0)),
        ("300 s old", &[timestamp, signature], 1_531_420_918, Ok(0)),
        ("301 s old", &[timestamp, signature], 1_531_420_919, Err("stale")),
        ("301 s ahead", &[timestamp, signature], 1_531_420_317, Err("stale")),
        ("no time", &[signature], 1_531_420_618, Err("missing_timestamp")),
        ("two times", &[timestamp, timestamp, signature], 1_531_420_618, Err("malformed")),
    ];
    for (name, headers, now, expected) in cases {
        let result = verify("slack", &[secret], headers, COMMAND, now);
        let result = result.map(|verified| verified.secret_index);
        assert_eq!(result.map_err(|refused| VerifyError::code(&refused)), expected, "case: {name}");
    }
}

#[test]
fn each_request_kind_has_kind_key_and_order() {
    let block = |json: &str| {
        format!(
            "payload={}",
            url::form_urlencoded::byte_serialize(json.as_bytes()).collect::<String>()
        )
    };
    let button = block(
        r#"{"type":"block_actions","trigger_id":"1.2","team":{"id":"T1"},"user":{"id":"U1"},"container":{"channel_id":"C1"}}"#,
    );
    let view = block(
        r#"{"type":"view_submission","trigger_id":"1.3","team":{"id":"T1"},"user":{"id":"U1"}}"#,
    );
    let closed = block(r#"{"type":"view_closed","team":{"id":"T1"},"user":{"id":"U1"}}"#);
    assert_events(
        "slack",
        &[],
        r#"
        case | body | kind | key | ordering key
        a reaction | {"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"reaction_added","item":{"channel":"C1"}}} | event_callback.reaction_added | slack:T1:Ev1 | T1:C1
        a channel that is an object | {"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"channel_created","channel":{"id":"C1"}}} | event_callback.channel_created | slack:T1:Ev1 | T1:C1
        no channel | {"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"team_join","user":{"id":"U1"}}} | event_callback.team_join | slack:T1:Ev1 | -
        a whole enterprise | {"type":"event_callback","team_id":null,"enterprise_id":"E1","event_id":"Ev1","event":{"type":"message","channel":"C1"}} | event_callback.message | slack:E1:Ev1 | E1:C1
        no event | {"type":"app_rate_limited","team_id":"T1"} | app_rate_limited | - | -
        a challenge without one | {"type":"url_verification"} | url_verification | - | -
        "#,
    );
    let forms = format!(
        "
        case | body | kind | key | ordering key
        a command | {COMMAND} | slash_command | slack:T1DC2JH3J:398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c | T1DC2JH3J:G8PSS9T3V
        a button | {button} | block_actions | slack:T1:1.2 | T1:C1
        a view | {view} | view_submission | slack:T1:1.3 | T1:U1
        a view that was closed | {closed} | view_closed | - | T1:U1
        an unknown form | a=1 | - | - | -
        a form with an invalid payload | payload=x | - | - | -
        "
    );
    assert_events("slack", &[FORM], &forms);
}

#[test]
fn retry_is_parsed_like_the_first_attempt() {
    let body =
        r#"{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"message"}}"#;
    let retry = [("x-slack-retry-num", "1"), ("x-slack-retry-reason", "http_timeout")];
    assert_eq!(parse("slack", &retry, body), parse("slack", &[], body));
    assert!(!part("slack", &retry, body).is_ping);
}

#[test]
fn challenge_is_echoed_and_other_replies_are_empty() {
    let body = r#"{"type":"url_verification","challenge":"abc"}"#;
    assert_eq!(parse("slack", &[], body), ParsedRequest::Handshake(ProviderReply::text("abc")));
    let answer = SLACK.success_reply(&incoming(&headers(&[FORM]), COMMAND)).unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    assert!(part("slack", &[FORM], "ssl_check=1&token=x").is_ping);
}

#[test]
fn attributes_include_channel_user_thread_and_time() {
    let body = r#"{"type":"event_callback","team_id":"T1","event":{"type":"message","channel":"C1","user":"U1","ts":"2.5","thread_ts":"1.5"}}"#;
    let expected = ["message_id=2.5", "conversation=1.5", "chat=C1", "user=U1", "account=T1"];
    assert_eq!(attribute_pairs("slack", &[], body), expected);
    let expected =
        ["object=/webhook-collect", "chat=G8PSS9T3V", "user=U2CERLKJA", "account=T1DC2JH3J"];
    assert_eq!(attribute_pairs("slack", &[FORM], COMMAND), expected);
}
