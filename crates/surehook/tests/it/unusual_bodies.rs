//! Well-formed requests with unusual content: a body that cannot be parsed is stored unchanged.

use std::{io::Write as _, time::Duration};

use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, Route, route_settings},
    sink::{Reply, Sink},
};

/// A request that must be accepted, and its expected key.
struct BodyCase {
    name: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
    key: Value,
}

fn json_case(name: &'static str, body: impl Into<Vec<u8>>, key: Value) -> BodyCase {
    let headers = vec![("content-type", "application/json")];
    BodyCase { name, headers, body: body.into(), key }
}

fn compressed_case(
    name: &'static str,
    coding: &'static str,
    body: Vec<u8>,
    key: Value,
) -> BodyCase {
    BodyCase { name, headers: vec![("content-encoding", coding)], body, key }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Asserts that every case is accepted with its key, and stored and delivered byte for byte.
async fn check(rows: Vec<BodyCase>) {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let mut ids = Vec::new();
    for BodyCase { name, headers, body, key } in &rows {
        let response = gateway.send_webhook("in", headers, body.clone()).await;
        assert_eq!(response.status, 200, "case: {name}: {}", response.text());
        let event = &response.json()["events"][0];
        assert_eq!(event["status"], "accepted", "case: {name}");
        assert_eq!(event["key"], *key, "case: {name}");
        let id = event["id"].as_str().unwrap().to_owned();
        let stored = gateway.get(&format!("/events/{id}/body?exact=true")).await.expect(200);
        assert!(stored.body == body.as_slice(), "case: {name}: stored otherwise");
        gateway.event(&id).await;
        ids.push(id);
    }
    let arrivals = sink.wait_for_requests(rows.len()).await;
    for (row, id) in rows.iter().zip(&ids) {
        let arrival = arrivals.iter().find(|arrival| arrival.id() == id).unwrap();
        assert!(arrival.body == row.body, "case: {}: delivered otherwise", row.name);
        for (name, value) in &row.headers {
            assert_eq!(arrival.header(name), *value, "case: {}", row.name);
        }
    }
    assert_eq!(gateway.stats().await["total"], rows.len());
    gateway.request(http::Method::GET, "/readyz", &[], "").await.expect(200);
}

#[tokio::test]
async fn unparsable_bodies_are_accepted_and_delivered_unchanged() {
    let megabyte = 1024 * 1024;
    let mut digits = br#"{"id":"#.to_vec();
    digits.extend(vec![b'9'; megabyte - 100]);
    digits.push(b'}');
    let many_keys: Vec<String> = (0..60_000).map(|number| format!("\"k{number}\":1")).collect();
    let many_keys = format!("{{{},\"id\":\"last\"}}", many_keys.join(","));
    let deep = format!(r#"{{"id":"a","x":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let hashed = Value::from(format!("sha256:{}", sha256_hex(&vec![b'9'; megabyte - 100])));
    check(vec![
        json_case("empty", "", json!(null)),
        json_case("cut off", "{\"id\":\"a\"", json!(null)),
        json_case("text", "id=a", json!(null)),
        // Other fields are skipped without recursion, so their depth does not matter.
        json_case("deep", deep, json!("a")),
        json_case("only depth", "[".repeat(megabyte), json!(null)),
        json_case("large number", r#"{"id":1e308}"#, json!("1e308")),
        json_case("too large", r#"{"id":1e999}"#, json!("1e999")),
        json_case("digits", digits, hashed),
        json_case("twice", r#"{"id":"first","id":"second"}"#, json!("second")),
        json_case("surrogate", r#"{"id":"\ud800"}"#, json!(null)),
        json_case("BOM", "\u{feff}{\"id\":\"bom\"}", json!("bom")),
        json_case("NaN", r#"{"id":NaN}"#, json!(null)),
        json_case("not UTF-8", b"{\"id\":\"\xff\"}".to_vec(), json!(null)),
        json_case("many fields", many_keys, json!("last")),
    ])
    .await;
}

fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

// Two different keys stay different after hashing.
#[tokio::test]
async fn long_keys_and_keys_with_nul_are_hashed() {
    let longest = "k".repeat(255);
    let too_long = "k".repeat(256);
    let hash = |text: &str| Value::from(format!("sha256:{}", sha256_hex(text.as_bytes())));
    check(vec![
        json_case("255", json!({ "id": longest }).to_string(), json!(longest)),
        json_case("256", json!({ "id": too_long }).to_string(), hash(&too_long)),
        json_case("NUL", r#"{"id":"a\u0000b"}"#, hash("a\0b")),
        json_case("NUL again", r#"{"id":"a\u0000c"}"#, hash("a\0c")),
        json_case("new line", r#"{"id":"a\nb"}"#, json!("a\nb")),
        json_case("escape", r#"{"id":"\u001b[31m"}"#, json!("\u{1b}[31m")),
    ])
    .await;
}

#[tokio::test]
async fn repeated_idempotency_key_header_is_rejected() {
    let gateway = Gateway::start().await;
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    let refused = gateway.send_webhook("demo", &twice, "{}").await.expect(400);
    assert_eq!(refused.code(), "repeated_key");
    assert_eq!(gateway.stats().await["total"], 0);

    let bare =
        gateway.send_webhook("demo", &[("idempotency-key", "a")], "{}").await.expect(200).json();
    let quoted = gateway.send_webhook("demo", &[("Idempotency-Key", "\"a\"")], "{}").await;

    assert_eq!(bare["status"], "accepted");
    assert_eq!(quoted.expect(200).json()["status"], "duplicate");
}

#[tokio::test]
async fn compressed_bodies_are_stored_and_delivered_compressed() {
    let zlib = |bytes: &[u8]| {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let mut bomb = br#"{"id":"bomb","x":""#.to_vec();
    bomb.extend(vec![b'0'; 64 << 20]);
    bomb.extend(b"\"}");
    let mut broken = gzip(br#"{"id":"broken"}"#);
    let checksum = broken.len() - 8;
    broken[checksum] ^= 1;
    let mut trailing = gzip(br#"{"id":"trailing"}"#);
    trailing.extend(b"more");
    check(vec![
        compressed_case("gzip", "gzip", gzip(br#"{"id":"gzip"}"#), json!("gzip")),
        compressed_case("deflate", "deflate", zlib(br#"{"id":"zlib"}"#), json!("zlib")),
        compressed_case("br", "br", b"\x0b\x02\x80{}\x03".to_vec(), json!(null)),
        compressed_case("zstd", "zstd", b"\x28\xb5\x2f\xfd".to_vec(), json!(null)),
        compressed_case("bomb", "gzip", gzip(&bomb), json!(null)),
        compressed_case("nested", "gzip", gzip(&gzip(br#"{"id":"nested"}"#)), json!(null)),
        compressed_case("two codings", "gzip, gzip", gzip(b"{}"), json!(null)),
        compressed_case("checksum", "gzip", broken, json!(null)),
        compressed_case("trailing", "gzip", trailing, json!(null)),
        // The bytes decide, not the header, which no signature covers.
        compressed_case("not compressed", "gzip", br#"{"id":"plain"}"#.to_vec(), json!("plain")),
    ])
    .await;
}

#[tokio::test]
async fn compressed_bodies_keep_their_key_kind_and_ordering() {
    let sink = Sink::ok().await;
    let url = sink.url();
    let gateway = Gateway::start_with(&format!(
        "[[sources]]\nname = \"n8n\"\nprovider = \"n8n\"\nverify = \"none\"\nkinds = [\"pointer:/what\"]\n\
         [[sources]]\nname = \"list\"\nprovider = \"hubspot\"\nverify = \"none\"\nkeys = [\"pointer:/0/n\"]\n\
         kinds = [\"pointer:/0/what\"]\n\
         [[destinations]]\nname = \"one\"\nurl = \"{url}\"\norder = {{ key = \"/c\" }}\n\
         [[destinations]]\nname = \"many\"\nurl = \"{url}\"\norder = {{ key = \"/0/c\" }}\n\
         [[routes]]\nfrom = \"n8n\"\nto = \"one\"\nfilter = \".c == \\\"a\\\"\"\n\
         [[routes]]\nfrom = \"list\"\nto = \"many\"\nfilter = \".[0].c == \\\"a\\\"\""
    ))
    .await;
    let one = r#"{"idempotency_key":"k-1","what":"paid","c":"a"}"#;
    let many = r#"[{"n":"k-1","what":"paid","c":"a"},{"n":"k-2","what":"paid","c":"a"}]"#;
    for (source, body, keys) in [("n8n", one, vec!["k-1"]), ("list", many, vec!["k-1", "k-2"])] {
        for (coding, body) in [("gzip", gzip(body.as_bytes())), ("identity", body.into())] {
            let headers = [("content-encoding", coding)];
            let response = gateway.send_webhook(source, &headers, body).await.expect(200).json();
            let events = response["events"].as_array().unwrap();
            let event_keys: Vec<_> = events.iter().map(|event| event["key"].clone()).collect();
            assert_eq!(event_keys, keys, "{source} {coding}");
            // The second request is a duplicate, whatever its encoding.
            let status = if coding == "gzip" { "accepted" } else { "duplicate" };
            assert_eq!(response["status"], status, "{source} {coding}");
            for event in events {
                let id = event["id"].as_str().unwrap();
                let delivery = gateway.wait_for_delivery(id, "succeeded").await;
                assert_eq!(delivery["ordering_key"], "a", "{source} {coding}");
                assert_eq!(gateway.event(id).await["kind"], "paid", "{source} {coding}");
            }
        }
    }
}

// The content type selects no other parser.
#[tokio::test]
async fn content_type_does_not_change_key_extraction() {
    let with_type = |name, kind: &'static str, body: &str, key| BodyCase {
        name,
        headers: if kind.is_empty() { Vec::new() } else { vec![("content-type", kind)] },
        body: body.as_bytes().to_vec(),
        key,
    };
    let form = "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\nx\r\n--b--\r\n";
    let entity = "<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><id>&x;</id>";
    check(vec![
        with_type("multipart", "multipart/form-data; boundary=b", form, json!(null)),
        with_type("form", "application/x-www-form-urlencoded", "id=x", json!(null)),
        with_type("XML", "text/xml", entity, json!(null)),
        with_type("CBOR", "application/cbor", "\u{1}bidax", json!(null)),
        with_type("none", "", r#"{"id":"none"}"#, json!("none")),
        with_type("JSON as multipart", "multipart/form-data", r#"{"id":"lie"}"#, json!("lie")),
        with_type("not JSON", "application/json", entity, json!(null)),
        with_type("malformed", ";;;", r#"{"id":"odd"}"#, json!("odd")),
    ])
    .await;
}

// Forwarded headers are tested in `delivery`.
#[tokio::test]
async fn hop_by_hop_headers_are_not_forwarded() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let mut raw = gateway.connect_raw().await;
    raw.write(
        "POST /in/in HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nKeep-Alive: 5\r\n\
         Transfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: x-late\r\nUpgrade: h2c\r\n\
         Proxy-Authorization: Basic eA==\r\nX-Forwarded-Host: evil.example\r\n\r\n\
         2\r\n{}\r\n0\r\nx-late: 1\r\n\r\n",
    )
    .await;
    assert_eq!(raw.read_response().await.unwrap().status, 200);

    let arrived = &sink.wait_for_requests(1).await[0];

    assert_eq!(arrived.body, "{}");
    assert_eq!(arrived.header("content-length"), "2");
    assert_ne!(arrived.header("host"), "evil.example");
    let passed: Vec<&str> = arrived.headers.keys().map(http::HeaderName::as_str).collect();
    for header in [
        "connection",
        "keep-alive",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "x-late",
        "proxy-authorization",
        "x-forwarded-host",
    ] {
        assert!(!passed.contains(&header), "{header} was forwarded: {passed:?}");
    }
}

#[tokio::test]
async fn body_limit_and_enabled_flag_apply_per_source() {
    let gateway = Gateway::start_with(
        "[limits]\nbody_bytes_max = 100\n\
         [[sources]]\nname = \"small\"\nverify = \"none\"\nmax_body_bytes = 10\n\
         [[sources]]\nname = \"large\"\nverify = \"none\"\nmax_body_bytes = 1000\n\
         [[sources]]\nname = \"plain\"\nverify = \"none\"\n\
         [[sources]]\nname = \"off\"\nverify = \"none\"\nenabled = false\n",
    )
    .await;
    for (source, limit) in [("small", 10), ("plain", 100), ("large", 1000)] {
        gateway.send_webhook(source, &[], vec![b'a'; limit]).await.expect(200);
        let refused = gateway.send_webhook(source, &[], vec![b'a'; limit + 1]).await;
        assert_eq!(refused.expect(413).code(), "body_too_large", "case: {source}");
    }
    let off = gateway.send_webhook("off", &[], "{}").await.expect(503);
    assert_eq!((&*off.code(), off.header("retry-after")), ("source_disabled", "60"));
    assert_eq!(gateway.stats().await["total"], 3);
}

/// A gzip body of about 40 KB that is 3 MB unpacked: less than a decompression bomb.
fn packed_body(id: &str) -> Vec<u8> {
    let mut plain = format!("{{\"id\":\"{id}\",\"pad\":\"").into_bytes();
    plain.resize(3_000_000, b'a');
    let mut state = 1_u32;
    plain.extend((0..50_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 24) as u8 % 26
    }));
    plain.extend(b"\"}");
    gzip(&plain)
}

#[tokio::test]
async fn unpacked_body_counts_against_the_memory_for_bodies() {
    let limits = "[limits]\nbody_bytes_max = 1048576\nbodies_in_memory_max = 2097152\n";
    let source = "[[sources]]\nname = \"in\"\nverify = \"none\"\n";
    let gateway = Gateway::start_with(&format!("{limits}{source}")).await;
    let packed = packed_body("evt_1");
    let coding = [("content-encoding", "gzip")];
    // Alone it may be larger than the budget; next to another body it may not.
    let mut other = gateway.connect_raw().await;
    let head = "POST /in/in HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n";
    other.write(format!("{head}{{\"a\":")).await;
    gateway.wait_for_body_memory(|bytes| bytes > 0).await;

    let refused = gateway.send_webhook("in", &coding, packed.clone()).await.expect(503);
    assert_eq!(refused.code(), "overloaded");

    other.write("1234}").await;
    assert_eq!(other.read_response().await.unwrap().status, 200);
    let accepted = gateway.send_webhook("in", &coding, packed).await.expect(200).json();
    assert_eq!(accepted["events"][0]["key"], "evt_1");
}

#[tokio::test]
async fn unpacked_body_is_dropped_before_the_sender_waits() {
    let sink = Sink::with_replies([Reply::status(200).after(Duration::from_secs(600))]).await;
    let source = "verify = \"none\"\nsync = { destination = \"out\", deadline = \"30s\" }";
    let destination = format!("url = \"{}\"", sink.url());
    let settings = Route { source, route: "", destination: &destination }.settings();
    let gateway = Gateway::start_with(&settings).await;
    let packed = packed_body("evt_1");
    let bytes = packed.len() as u64;

    let mut raw = gateway.connect_raw().await;
    let head = format!(
        "POST /in/in HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: {bytes}\r\n\r\n"
    );
    raw.write([head.as_bytes(), &packed].concat()).await;
    sink.wait_for_requests(1).await;

    gateway.wait_for_body_memory(|held| held == bytes).await;
}
