//! HTTP requests that are malformed, too large, or never end.
//!
//! Each case has the bytes to write and the expected response. After all cases only accepted requests are
//! stored, and the gateway still responds.

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, TOKEN},
};

const OPEN_SOURCE: &str = "[[sources]]\nname = \"in\"\nverify = \"none\"\n";

#[derive(Clone, Copy, Debug)]
enum ExpectedResponse {
    Status(u16),
    /// One of two: either the parser or our own limit rejects the request.
    Either(u16, u16),
    /// This status or none; in both cases the connection is closed.
    RefusedOrClosed(u16),
}
use ExpectedResponse::{Either, RefusedOrClosed, Status};

impl ExpectedResponse {
    fn matches_status(self, status: Option<u16>) -> bool {
        match self {
            Status(expected) => status == Some(expected),
            Either(one, other) => status == Some(one) || status == Some(other),
            RefusedOrClosed(expected) => status.is_none_or(|status| status == expected),
        }
    }
}

/// A request to the open source with these header lines and this body.
fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /in/in HTTP/1.1\r\nHost: h\r\n{lines}\r\n{body}").into_bytes()
}

/// A small chunked body after these header lines.
fn chunked(lines: &str) -> Vec<u8> {
    post(lines, "2\r\n{}\r\n0\r\n\r\n")
}

fn request_with_first_line(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: h\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes()
}

/// Writes each case on a separate connection and checks the response.
async fn check(gateway: &Gateway, cases: Vec<(&str, Vec<u8>, ExpectedResponse)>) {
    let accepted = cases.iter().filter(|case| matches!(case.2, Status(200))).count();
    for (name, bytes, expected) in cases {
        let mut raw = gateway.connect_raw().await;
        raw.write(&bytes).await;
        if matches!(expected, RefusedOrClosed(_)) {
            raw.finish_writing().await;
        }
        let response = raw.read_response().await;
        let status = response.as_ref().map(|response| response.status);
        assert!(
            expected.matches_status(status),
            "case: {name}: expected {expected:?}, got {response:?}"
        );
    }
    assert_healthy(gateway, accepted).await;
}

/// Asserts that only requests with a 200 were stored and that the gateway is ready.
async fn assert_healthy(gateway: &Gateway, accepted: usize) {
    assert_eq!(gateway.stats().await["total"], accepted);
    assert_eq!(gateway.list("/events?limit=1000").await.len(), accepted);
    gateway.request(http::Method::GET, "/readyz", &[], "").await.expect(200);
}

#[tokio::test]
async fn ambiguous_body_length_is_rejected() {
    let gateway = Gateway::start_with(OPEN_SOURCE).await;
    let length = |value: &str| post(&format!("Content-Length: {value}\r\n"), "{}");
    let coding = |value: &str| chunked(&format!("Transfer-Encoding: {value}\r\n"));
    let bad_chunk = |chunk: &str| post("Transfer-Encoding: chunked\r\n", chunk);
    let extension = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(20 * 1024));
    check(
        &gateway,
        vec![
            (
                "length and chunked",
                chunked("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
                Status(200),
            ),
            ("two lengths", post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), Status(400)),
            (
                "same length twice",
                post("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
                Status(200),
            ),
            ("length: list", length("2, 3"), Status(400)),
            ("length: plus", length("+2"), Status(400)),
            ("length: minus", length("-1"), Status(400)),
            ("length: hex", length("0x2"), Status(400)),
            ("length: 2^64", length("18446744073709551616"), Status(400)),
            ("length: word", length("two"), Status(400)),
            ("coding: unknown", coding("xchunked"), Status(400)),
            ("coding: not last", coding("chunked, identity"), Status(400)),
            ("gzip before chunked", coding("gzip, chunked"), Status(501)),
            (
                "gzip and chunked in two lines",
                coding("gzip\r\nTransfer-Encoding: chunked"),
                Status(501),
            ),
            ("chunked twice", coding("chunked\r\nTransfer-Encoding: chunked"), Status(501)),
            ("space before the colon", chunked("Transfer-Encoding : chunked\r\n"), Status(400)),
            (
                "chunked in HTTP/1.0",
                b"POST /in/in HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
                    .to_vec(),
                Status(400),
            ),
            ("chunk: overflow", bad_chunk("fffffffffffffffff\r\n{}\r\n0\r\n\r\n"), Status(400)),
            ("chunk: garbage", bad_chunk("zz\r\n{}\r\n0\r\n\r\n"), Status(400)),
            ("chunk: bare LF", bad_chunk("2\n{}\n0\n\n"), Status(400)),
            ("chunk: long extension", bad_chunk(&extension), Status(400)),
            ("chunk: chunk too long", bad_chunk("2\r\n{}}\r\n0\r\n\r\n"), Status(400)),
            ("chunk: cut off", bad_chunk("2\r\n{}"), RefusedOrClosed(400)),
            ("cut off", length("10"), RefusedOrClosed(400)),
        ],
    )
    .await;
}

#[tokio::test]
async fn malformed_or_oversized_request_head_is_rejected() {
    let gateway = Gateway::start_with(OPEN_SOURCE).await;
    let with = |line: &str| post(&format!("{line}\r\nContent-Length: 2\r\n"), "{}");
    let mut not_ascii = b"POST /in/in HTTP/1.1\r\nHost: h\r\nX-A: ".to_vec();
    not_ascii.extend(b"\xc3\xa9\xff\r\nContent-Length: 2\r\n\r\n{}");
    let headers = |count: usize| {
        let lines: Vec<String> = (0..count).map(|number| format!("X-{number}: 1")).collect();
        with(&lines.join("\r\n"))
    };
    check(
        &gateway,
        vec![
            (
                "bare LF",
                b"POST /in/in HTTP/1.1\nHost: h\nContent-Length: 2\n\n{}".to_vec(),
                Status(200),
            ),
            ("header: folded", with("X-A: 1\r\n 2"), Status(400)),
            ("header: NUL", with("X-A: a\0b"), Status(400)),
            ("header: CR", with("X-A: a\rb"), Status(400)),
            ("header: bad name", with("X A: 1"), Status(400)),
            ("header: no name", with(": 1"), Status(400)),
            ("header value that is not ASCII", not_ascii, Status(200)),
            (
                "no host",
                b"POST /in/in HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
                Status(400),
            ),
            ("two hosts", with("Host: other"), Status(400)),
            ("as many headers as fit", headers(98), Status(200)),
            ("too many headers", headers(101), Status(431)),
            ("long header", with(&format!("X-A: {}", "a".repeat(64 * 1024))), Status(431)),
            ("header that fits", with(&format!("X-A: {}", "a".repeat(8 * 1024))), Status(200)),
        ],
    )
    .await;
}

#[tokio::test]
async fn only_post_to_a_known_source_is_accepted() {
    let gateway = Gateway::start_with(OPEN_SOURCE).await;
    let long = |bytes: usize| {
        request_with_first_line(&format!("POST /in/in?{} HTTP/1.1", "a".repeat(bytes)))
    };
    let to = |target: &str| request_with_first_line(&format!("POST {target} HTTP/1.1"));
    check(
        &gateway,
        vec![
            ("URL above the limit", long(3 * 1024), Status(414)),
            ("far too long URL", long(70 * 1024), Either(414, 431)),
            ("URL that fits", long(2000), Status(200)),
            ("absolute URL", to("http://evil.example/in/in"), Status(200)),
            ("absolute URL to another path", to("http://evil.example/elsewhere"), Status(404)),
            ("path: NUL", to("/in/%00"), Status(404)),
            ("path: dots", to("/in/%2e%2e/x"), Status(404)),
            ("path: parent folders", to("/in/../../etc/passwd"), Status(404)),
            ("path: slashes", to("//in//in"), Status(404)),
            ("path: UTF-8", to("/in/é"), Either(400, 404)),
            ("path: nothing", to("/in/"), Status(404)),
            ("request line: space", to("/in/in x"), Status(400)),
            ("request line: HTTP/0.9", b"POST /in/in\r\n\r\n".to_vec(), Status(400)),
            (
                "request line: HTTP/3.0",
                request_with_first_line("POST /in/in HTTP/3.0"),
                Status(400),
            ),
            (
                "request line: TLS",
                b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
                Status(400),
            ),
            ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), RefusedOrClosed(400)),
            ("CONNECT", b"CONNECT in:443 HTTP/1.1\r\nHost: in\r\n\r\n".to_vec(), Status(405)),
            ("TRACE", request_with_first_line("TRACE /in/in HTTP/1.1"), Status(405)),
            ("TRACE api", request_with_first_line("TRACE /api/v1/events HTTP/1.1"), Status(405)),
            (
                "unknown method",
                request_with_first_line(&format!("{} /in/in HTTP/1.1", "X".repeat(4096))),
                Status(405),
            ),
            ("unknown source", to("/in/unknown"), Status(404)),
            ("GET", request_with_first_line("GET /in/in HTTP/1.1"), Status(405)),
            ("PUT", request_with_first_line("PUT /in/in HTTP/1.1"), Status(405)),
            ("HEAD", b"HEAD /in/in HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(), Status(405)),
            (
                "unknown expectation",
                post("Expect: 200-ok\r\nContent-Length: 2\r\n", "{}"),
                Status(200),
            ),
        ],
    )
    .await;
    let mut raw = gateway.connect_raw().await;
    raw.write(request_with_first_line("TRACE /in/in HTTP/1.1")).await;
    let refused = raw.read_response().await.unwrap();
    assert!(!refused.header("allow").is_empty(), "{refused:?}");
    assert_eq!(raw.read_until_closed().await, b"", "a refused method ends the connection");
}

#[tokio::test]
async fn oversized_body_is_rejected_before_it_is_read() {
    let gateway =
        Gateway::start_with(&format!("[limits]\nbody_bytes_max = 1000\n{OPEN_SOURCE}")).await;
    for length in ["1001", "9223372036854775807"] {
        // The body is never sent, so a response shows that the gateway did not wait for it.
        let mut raw = gateway.connect_raw().await;
        let lines = format!("Expect: 100-continue\r\nContent-Length: {length}\r\n");
        raw.write(post(&lines, "")).await;
        let response = raw.read_response().await.unwrap();
        assert_eq!(response.status, 413, "length {length}: {response:?}");
        assert!(String::from_utf8_lossy(&response.body).contains("body_too_large"), "{response:?}");
        assert_eq!(raw.read_until_closed().await, b"", "length {length}");
    }
    let chunk = |bytes: usize| {
        let chunk = format!("{bytes:x}\r\n{}\r\n", "a".repeat(bytes));
        post("Transfer-Encoding: chunked\r\n", &format!("{chunk}0\r\n\r\n"))
    };
    let exact = |bytes: usize| post(&format!("Content-Length: {bytes}\r\n"), &"a".repeat(bytes));
    check(
        &gateway,
        vec![
            ("chunked, too long", chunk(2000), Status(413)),
            ("chunked, one byte too long", chunk(1001), Status(413)),
            ("chunked, fits", chunk(1000), Status(200)),
            ("exact length", exact(1000), Status(200)),
            ("one byte more", exact(1001), Status(413)),
        ],
    )
    .await;
}

// A sender that waits for 100 Continue gets it, unless the head is rejected.
#[tokio::test]
async fn continue_response_is_sent_only_when_the_body_will_be_read() {
    let gateway = Gateway::start_with(OPEN_SOURCE).await;
    let expect = "Expect: 100-continue\r\nContent-Length: 2\r\n";
    let mut raw = gateway.connect_raw().await;
    raw.write(post(expect, "")).await;
    assert_eq!(raw.read_response().await.unwrap().status, 100);
    raw.write("{}").await;
    assert_eq!(raw.read_response().await.unwrap().status, 200);

    let mut raw = gateway.connect_raw().await;
    raw.write(format!("POST /in/unknown HTTP/1.1\r\nHost: h\r\n{expect}\r\n")).await;
    assert_eq!(raw.read_response().await.unwrap().status, 404);

    assert_healthy(&gateway, 1).await;
}

#[tokio::test]
async fn slow_request_is_closed_after_the_timeout() {
    let limits = "[limits]\nhead_timeout = \"1s\"\nbody_timeout = \"1s\"\n";
    let gateway = Gateway::start_with(&format!("{limits}{OPEN_SOURCE}")).await;
    let to_api = |line: &str| {
        format!(
            "POST /api/v1/sources HTTP/1.1\r\nHost: h\r\n{line}\r\n\
             Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{{"
        )
        .into_bytes()
    };
    let to_form = "POST /preferences HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: same-origin\r\n\
                   Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\na=";
    let cases = [
        ("no byte", b"".to_vec(), RefusedOrClosed(408)),
        (
            "incomplete head",
            b"POST /in/in HTTP/1.1\r\nHost: h\r\nX-A".to_vec(),
            RefusedOrClosed(408),
        ),
        ("incomplete body", post("Content-Length: 10\r\n", "{}"), Status(408)),
        ("incomplete chunks", post("Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n"), Status(408)),
        (
            "incomplete body to the API",
            to_api(&format!("Authorization: Bearer {TOKEN}")),
            Status(408),
        ),
        ("incomplete body to a dashboard form", to_form.as_bytes().to_vec(), Status(408)),
        ("incomplete body to the API, without a token", to_api("X-A: 1"), Status(401)),
    ];
    let attempts = cases.into_iter().map(async |(name, bytes, expected)| {
        let mut raw = gateway.connect_raw().await;
        raw.write(&bytes).await;
        let response = raw.read_response().await;
        let status = response.as_ref().map(|response| response.status);
        assert!(expected.matches_status(status), "case: {name}: {response:?}");
        assert_eq!(raw.read_until_closed().await, b"", "case: {name}");
    });
    // Sending byte by byte does not extend the timeout, which is for the whole request.
    let slow_sender = async {
        let mut raw = gateway.connect_raw().await;
        raw.write_slowly(&post(&"X-A: 1\r\n".repeat(90), ""), Duration::from_millis(5)).await;
        raw.read_until_closed().await;
    };
    tokio::join!(futures_util::future::join_all(attempts), slow_sender);

    assert_healthy(&gateway, 0).await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let gateway = Gateway::start_with(OPEN_SOURCE).await;
    let mut bytes = Vec::new();
    for number in 0..20 {
        bytes.extend(post("Content-Length: 11\r\n", &format!("{{\"id\":\"{number:02}\"}}")));
    }
    let mut raw = gateway.connect_raw().await;

    raw.write(&bytes).await;

    for number in 0..20 {
        let response = raw.read_response().await.unwrap();
        assert_eq!(response.status, 200);
        let json: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(json["events"][0]["key"], format!("{number:02}"));
    }
    assert_healthy(&gateway, 20).await;
}

#[tokio::test]
async fn connections_per_address_are_limited() {
    let limits = "[limits]\nconnections_per_address_max = 3\n";
    let gateway = Gateway::start_with(&format!("{limits}{OPEN_SOURCE}")).await;
    let request = post("Content-Length: 2\r\n", "{}");
    let mut open = Vec::new();
    for _ in 0..3 {
        // The gateway may not have noticed the end of an earlier connection yet.
        open.push(
            eventually(WAIT_LIMIT, || async {
                let mut raw = gateway.connect_raw().await;
                raw.write(&request).await;
                raw.read_response().await.map(|_| raw)
            })
            .await,
        );
    }

    let mut one_more = gateway.connect_raw().await;
    one_more.write(&request).await;
    assert!(one_more.read_response().await.is_none(), "the fourth connection was served");

    drop(open);
    eventually(WAIT_LIMIT, || async {
        let mut raw = gateway.connect_raw().await;
        raw.write(&request).await;
        raw.read_response().await
    })
    .await;
}

#[tokio::test]
async fn full_body_memory_returns_overloaded_with_retry_after() {
    let limits = "[limits]\nbody_bytes_max = 10240\nbodies_in_memory_max = 10240\n";
    let gateway = Gateway::start_with(&format!("{limits}{OPEN_SOURCE}")).await;
    // A body that is alone may use all the memory.
    let mut slow = gateway.connect_raw().await;
    slow.write(post("Content-Length: 10240\r\n", &format!("{{\"a\":\"{}", "x".repeat(10_200))))
        .await;
    gateway.wait_for_body_memory(|bytes| bytes >= 10_000).await;

    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(500));
    let refused = gateway.send_webhook("in", &[], body).await.expect(503);
    assert_eq!(refused.code(), "overloaded");
    assert_eq!(refused.header("retry-after"), "1");

    slow.write(format!("{}\"}}", "x".repeat(10_240 - 10_206 - 2))).await;
    assert_eq!(slow.read_response().await.unwrap().status, 200);
    gateway.post_accepted("in", "{}").await;
    assert_healthy(&gateway, 2).await;
}

#[tokio::test]
async fn declared_length_without_a_body_reserves_no_memory() {
    let limits = "[limits]\nbody_bytes_max = 1048576\nbodies_in_memory_max = 2097152\n";
    let gateway = Gateway::start_with(&format!("{limits}{OPEN_SOURCE}")).await;
    let mut idle = Vec::new();
    for lines in ["Content-Length: 1048576\r\n", "Transfer-Encoding: chunked\r\n"].repeat(20) {
        let mut raw = gateway.connect_raw().await;
        // The 100 Continue shows that the gateway waits for the body.
        raw.write(post(&format!("Expect: 100-continue\r\n{lines}"), "")).await;
        assert_eq!(raw.read_response().await.unwrap().status, 100);
        idle.push(raw);
    }

    gateway.post_accepted("in", format!("{{\"a\":\"{}\"}}", "x".repeat(200_000))).await;

    assert_healthy(&gateway, 1).await;
}

#[tokio::test]
async fn address_that_holds_its_share_of_memory_does_not_stop_others() {
    let limits = "[limits]\nbody_bytes_max = 1048576\nbodies_in_memory_max = 8388608\n";
    let gateway = Gateway::start_with(&format!("{limits}{OPEN_SOURCE}")).await;
    let part = "x".repeat(1_000_000);
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut raw = gateway.connect_raw().await;
        raw.write(post("Content-Length: 1048576\r\n", &part)).await;
        held.push(raw);
    }
    gateway.wait_for_body_memory(|bytes| bytes >= 3_000_000).await;

    let mut other = gateway.connect_raw_from([127, 0, 0, 2]).await;
    other.write(post("Content-Length: 1048576\r\n", &part)).await;
    other.write("x".repeat(1_048_576 - part.len())).await;
    assert_eq!(other.read_response().await.unwrap().status, 200);
    gateway.post_accepted("in", "{}").await;
    assert_healthy(&gateway, 2).await;
}

#[tokio::test]
async fn bodies_that_end_at_once_take_no_more_memory_than_their_size() {
    const BODIES: u64 = 100;
    let gateway = Gateway::start_with(OPEN_SOURCE).await;
    let part = "x".repeat(1_048_575);
    let before = gateway.rss_bytes();
    let mut open = Vec::new();
    for _ in 0..BODIES {
        let mut raw = gateway.connect_raw().await;
        raw.write(post("Content-Length: 1048576\r\n", "")).await;
        // Small writes: the gateway reads into blocks that it does not fill.
        for piece in part.as_bytes().chunks(3000) {
            raw.write(piece).await;
        }
        open.push(raw);
    }
    gateway.wait_for_body_memory(|bytes| bytes >= BODIES * 1_048_575).await;

    // While the process stands still, so that it then finds all of them complete. A body that is put
    // together from its parts only now takes twice its size.
    kill_process(gateway.pid(), Signal::STOP).unwrap();
    for raw in &mut open {
        raw.write("x").await;
    }
    kill_process(gateway.pid(), Signal::CONT).unwrap();
    for mut raw in open {
        assert_eq!(raw.read_response().await.unwrap().status, 200);
    }
    let grown = gateway.peak_rss_bytes().saturating_sub(before);
    assert!(grown < BODIES * 1_500_000, "{grown} bytes for {BODIES} bodies of 1 MiB");
}

#[tokio::test]
async fn body_slower_than_the_minimum_rate_is_closed() {
    let limits = "[limits]\nbody_rate_min = 1000000\n";
    let gateway = Gateway::start_with(&format!("{limits}{OPEN_SOURCE}")).await;
    let mut raw = gateway.connect_raw().await;
    raw.write(post("Content-Length: 100000\r\n", "{\"a\":")).await;

    let response = raw.read_response().await.unwrap();

    assert_eq!(response.status, 408);
    let detail = String::from_utf8(response.body).unwrap();
    assert!(detail.contains("too slowly"), "{detail}");
    assert_healthy(&gateway, 0).await;
}
