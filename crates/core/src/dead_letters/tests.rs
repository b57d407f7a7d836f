use proptest::prelude::*;

use super::*;

fn shape_of_response(status: u16, body: &str) -> String {
    shape(Some(status), None, None, body.as_bytes())
}

const NGINX: &str = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center>\
    <h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>";

#[test]
fn shape_is_the_error_message_without_variable_parts() {
    let cases = [
        (502, NGINX, "502: Bad Gateway"),
        (
            503,
            "<html><body><h1>503</h1><p>No server, try 10.0.0.7</p></body></html>",
            "503: No server, try #",
        ),
        (
            500,
            "<!doctype html><style>b{color:#123}</style><p>Oops &amp; sorry</p>",
            "500: Oops & sorry",
        ),
        (
            400,
            r#"{"type":"https://example.com/e","title":"Invalid","detail":"order 8837 is closed","instance":"/orders/8837"}"#,
            "400: <url>; Invalid; order # is closed",
        ),
        (
            400,
            r#"{"error":{"message":"(#131030) Recipient phone number not in allowed list","type":"OAuthException","code":131030,"error_data":{"messaging_product":"whatsapp","details":"Recipient +5511987654321 is not in the list"},"fbtrace_id":"AbC9x_ZkQ12"}}"#,
            "400: (#) Recipient phone number not in allowed list; OAuthException; 131030; Recipient # is not in the list",
        ),
        (
            422,
            r#"{"detail":[{"loc":["body","phone"],"msg":"field required","type":"value_error.missing"}]}"#,
            "422: field required; value_error.missing",
        ),
        (
            422,
            r#"{"errors":["Name is too short","Name is too short"],"id":7}"#,
            "422: Name is too short",
        ),
        (400, r#"{"ok":false,"id":7}"#, "400: {ok, id}"),
        (
            400,
            r#"{"error":"Contact \"Ana Lima\" was not found","#,
            "400: Contact <text> was not found",
        ),
        (
            409,
            "Order 550e8400-e29b-41d4-a716-446655440000 is locked since 2026-11-15T08:00:00.123Z",
            "409: Order <id> is locked since <time>",
        ),
        (
            500,
            "Error id=8a7b6c5d4e3f: Duplicate entry '4411-7' for key `orders.PRIMARY`",
            "500: Error id=<id>: Duplicate entry <text> for key <text>",
        ),
        (
            503,
            "Down since Sun, 15 Nov 2026 10:00:00 GMT, back in 30s",
            "503: Down since <time> back in #s",
        ),
        (400, "ids 1, 2, 3 are unknown; don't retry", "400: ids # are unknown; don't retry"),
        (401, "token=hunter2 is not known", "401: token=••• is not known"),
        (
            400,
            "mail to ana@example.com via https://example.com/a?b=1 bounced",
            "400: mail to <address> via <url> bounced",
        ),
        (404, "", "404"),
        (
            500,
            "ERR_SSL_WRONG_VERSION_NUMBER in UnprocessableEntityException v2",
            "500: ERR_SSL_WRONG_VERSION_NUMBER in UnprocessableEntityException v#",
        ),
    ];
    for (status, body, expected) in cases {
        assert_eq!(shape_of_response(status, body), expected, "case: {body}");
    }
}

#[test]
fn shape_without_response_begins_with_the_failure_code() {
    let cases = [
        (AttemptFailure::Timeout, Some("no answer within 30s"), "timeout: no answer within #s"),
        (
            AttemptFailure::Refused,
            Some("tcp connect error: Connection refused (os error 111)"),
            "refused: tcp connect error: Connection refused (os error #)",
        ),
        (
            AttemptFailure::Dns,
            Some("failed to lookup address information: Name or service not known"),
            "dns: failed to lookup address information: Name or service not known",
        ),
        (AttemptFailure::Reset, None, "reset"),
    ];
    for (failure, detail, expected) in cases {
        assert_eq!(shape(None, Some(failure), detail, b""), expected, "case: {failure:?}");
    }
    let exited =
        shape(None, Some(AttemptFailure::Exit), Some("exit status 3"), b"no such order: 77\n");
    assert_eq!(exited, "exit: exit status #; no such order: #");
}

#[test]
fn messages_with_one_cause_have_one_shape() {
    let bodies: [fn(u32) -> String; 5] = [
        |n| {
            format!(
                r#"{{"error":"order {n} was not found","trace":"{:x}"}}"#,
                u64::from(n) * 7_919_777
            )
        },
        |n| format!("request req_{:026x} failed after {n}ms", u128::from(n) * 104_729),
        |n| format!("<html><title>Error</title><p>Ray {:x}</p></html>", n * 65_537),
        |n| format!("Phone +55 11 9{n:04}-{n:04} is not on WhatsApp"),
        |n| format!("upstream 10.0.{}.{}:8080 said \"{n} no\" at {n:02}:{n:02}:07", n % 9, n % 7),
    ];
    for body in bodies {
        let first = shape_of_response(400, &body(11));
        for n in 12..99 {
            assert_eq!(shape_of_response(400, &body(n)), first);
        }
    }
}

#[test]
fn different_causes_have_different_groups() {
    let destination = DestinationId::new(Timestamp::from_millis(1), 1);
    let other = DestinationId::new(Timestamp::from_millis(1), 1 << 90);
    let cause = |class, http_status, failure, shape: &str| DeadLetterCause {
        class: Some(class),
        http_status,
        failure,
        shape: shape.to_owned(),
    };
    let first = cause(FailureClass::Transient, Some(503), None, "a");
    let all = [
        first.group_id(destination),
        first.group_id(other),
        cause(FailureClass::Permanent, Some(503), None, "a").group_id(destination),
        cause(FailureClass::Transient, Some(502), None, "a").group_id(destination),
        cause(FailureClass::Transient, None, Some(AttemptFailure::Reset), "a")
            .group_id(destination),
        cause(FailureClass::Transient, Some(503), None, "b").group_id(destination),
        DeadLetterCause::from_damaged_body().group_id(destination),
        DeadLetterCause::from_status_update(DeadReason::Unrecoverable).group_id(destination),
        DeadLetterCause::from_removed_attempts(DeadReason::Expired).group_id(destination),
    ];
    let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
    assert_eq!(distinct.len(), all.len());
}

/// A changed id would break links to the group.
#[test]
fn group_id_is_stable() {
    let destination = DestinationId::from_uuid(Uuid::nil());
    let cause = DeadLetterCause {
        class: Some(FailureClass::Transient),
        http_status: Some(502),
        failure: None,
        shape: "502: Bad Gateway".to_owned(),
    };
    assert_eq!(cause.group_id(destination).to_string(), "grp_7hpgsjnt8cg6t1pnx95w4j84c2");
}

proptest! {
    #[test]
    fn any_response_has_a_short_single_line_shape(body: Vec<u8>, detail: Option<String>) {
        let shape = shape(Some(500), None, detail.as_deref(), &body);
        prop_assert!(shape.chars().count() <= SHAPE_CHARS_MAX);
        prop_assert!(!shape.contains(char::is_control), "{shape:?}");
    }

    #[test]
    fn any_punctuated_text_has_a_short_shape(text in "[<>{}\\[\\]\"'\\\\:,a-z0-9 é]{0,200}") {
        let shape = shape_of_response(500, &text);
        prop_assert!(shape.chars().count() <= SHAPE_CHARS_MAX);
    }
}

#[test]
fn only_the_beginning_of_a_message_is_read() {
    let filler = "\u{2018}".repeat(2000);
    let late = format!("{filler} at last");
    assert!(!shape(None, None, Some(&late), b"").contains("at last"));
    let complete = format!("{{\"x\":\"{filler}\",\"message\":\"a\"}}");
    let cut = format!("{{\"x\":\"{filler}");
    assert_eq!(shape_of_response(400, &complete), shape_of_response(400, &cut));
}
