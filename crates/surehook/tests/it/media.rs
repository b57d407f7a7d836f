//! Media of messages: uploads to an S3 bucket that checks signatures, and expiring download links that are
//! created for every attempt.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::channels::{cloud_api_settings, evolution_go_settings};
use crate::support::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    fake_channels::{CloudApi, EvolutionGo},
    fake_clock::FakeClockGateway,
    gateway::{Gateway, GatewayBuilder, TOKEN, route_settings},
    raw::RawConnection,
    s3::{S3Server, SECRET_KEY},
    sink::{Reply, Sink, SinkRequest},
    unix_now,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06";
const PDF: &[u8] = b"%PDF-1.7\n1 0 obj\n";
const TO: &str = "+55 11 98765-4321";

/// The response of Evolution Go to a sent message.
fn sent_reply() -> Reply {
    Reply::status(200).body(r#"{"message":"success","data":{"Info":{"ID":"3EB0AA"}}}"#)
}

/// Settings that route the source `in` to an Evolution Go at `url`.
fn evolution_settings(url: &str) -> String {
    let more = r#"
        kind = "evolution-go"
        account = { token = "instance-token" }
        retry = { max_attempts = 3, initial_delay = "10ms" }
        "#;
    route_settings(url, more)
}

fn gateway(settings: &str) -> GatewayBuilder {
    Gateway::builder().settings(settings).env("S3_SECRET", SECRET_KEY)
}

async fn upload(
    gateway: &Gateway,
    query: &str,
    kind: &str,
    body: impl Into<Bytes>,
) -> HttpResponse {
    let bearer = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 2] =
        [("authorization", bearer.as_bytes()), ("content-type", kind.as_bytes())];
    gateway.request(Method::POST, &format!("/api/v1/media{query}"), &headers, body).await
}

async fn fetch(link: &str) -> HttpResponse {
    Client::new().send(Method::GET, link, &[], "").await.unwrap()
}

async fn nth(sink: &Sink, number: usize) -> SinkRequest {
    sink.wait_for_requests(number + 1).await.swap_remove(number)
}

fn link_of(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["url"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
}

#[tokio::test]
async fn uploaded_file_is_fetched_through_signed_link_of_message() {
    let Some(s3) = S3Server::start() else { return };
    let sink = Sink::with_replies([sent_reply()]).await;
    let gateway =
        gateway(&format!("{}{}", s3.settings(""), evolution_settings(&sink.url()))).start().await;
    // Longer than the part that is inspected, so the rest is streamed.
    let file = [PNG, &vec![7; 300_000]].concat();

    let response = upload(&gateway, "?filename=Conta%20de%20maio.png", "image/jpeg", file.clone())
        .await
        .expect(201)
        .json();

    let id = response["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "kind": "image", "mime_type": "image/png", "size": file.len(),
        "filename": "Conta de maio.png", "created_at": response["created_at"],
    });
    assert_eq!(response, expected);
    assert_eq!(gateway.get(&format!("/media/{id}")).await.expect(200).json(), expected);
    gateway.post_accepted("in", json!({ "to": TO, "image": { "file": id } }).to_string()).await;
    let arrival = nth(&sink, 0).await;
    let link = link_of(&arrival.body);
    let fetched = fetch(&link).await.expect(200);
    assert_eq!(fetched.body, file);
    assert_eq!(fetched.header("content-type"), "image/png");

    // The link works only with its own signature, expiry and file.
    let unsigned = link.split('?').next().unwrap();
    assert!(fetch(unsigned).await.expect(403).text().contains("AccessDenied"));
    let last = if link.ends_with('0') { "1" } else { "0" };
    let tampered = format!("{}{last}", &link[..link.len() - 1]);
    assert!(fetch(&tampered).await.expect(403).text().contains("SignatureDoesNotMatch"));
    let longer = link.replace("X-Amz-Expires=900", "X-Amz-Expires=9000");
    assert_ne!(longer, link);
    assert!(fetch(&longer).await.expect(403).text().contains("SignatureDoesNotMatch"));
    let other = link.replace(".png?", ".pdf?");
    assert!(fetch(&other).await.expect(403).text().contains("SignatureDoesNotMatch"));
    assert!(!gateway.log().contains(SECRET_KEY) && !gateway.log().contains("X-Amz-Signature"));
}

#[tokio::test]
async fn each_attempt_gets_a_new_media_link() {
    let Some(s3) = S3Server::start() else { return };
    let down = Reply::status(500).body(r#"{"error":"client disconnected"}"#);
    let sink = Sink::with_replies([down, sent_reply()]).await;
    let now = unix_now();
    let gateway = FakeClockGateway::with_bucket(now, Some(s3.bucket())).await;
    let bearer = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 1] = [("authorization", bearer.as_bytes())];
    let uploaded = gateway.send(Method::POST, "/api/v1/media", &headers, PDF).await.expect(201);
    let file = uploaded.json()["id"].clone();
    for (path, spec) in [
        ("/sources", json!({ "name": "in", "verify": "none" })),
        (
            "/destinations",
            json!({
                "name": "out", "kind": "evolution-go", "url": sink.url(),
                "account": { "token": "instance-token" },
                "retry": { "max_attempts": 3, "initial_delay": "10ms" },
            }),
        ),
        ("/routes", json!({ "from": "in", "to": "out" })),
    ] {
        gateway.api(Method::POST, path, Some(&spec)).await.expect(201);
    }

    // The first attempt is made with the clock an hour back, so its link has expired.
    gateway.set_clock(now - 3600);
    let message = json!({ "to": TO, "document": { "file": file } }).to_string();
    gateway.send(Method::POST, "/in/in", &[], message).await.expect(200);
    let first = link_of(&nth(&sink, 0).await.body);
    gateway.set_clock(now);
    let second = link_of(&nth(&sink, 1).await.body);

    let refused = fetch(&first).await.expect(403).text();
    assert!(refused.contains("expired"), "{refused}");
    assert_eq!(fetch(&second).await.expect(200).body, PDF);
}

#[tokio::test]
async fn media_unused_for_retention_time_is_removed() {
    const DAY: i64 = 86_400;
    let Some(s3) = S3Server::start() else { return };
    let sink = Sink::with_replies([sent_reply()]).await;
    let now = unix_now();
    let gateway = FakeClockGateway::with_bucket(now, Some(s3.bucket())).await;
    let bearer = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 1] = [("authorization", bearer.as_bytes())];
    let mut files = Vec::new();
    for _ in 0..2 {
        let response = gateway.send(Method::POST, "/api/v1/media", &headers, PDF).await.expect(201);
        files.push(response.json()["id"].as_str().unwrap().to_owned());
    }
    let out = json!({
        "name": "out", "kind": "evolution-go", "url": sink.url(),
        "account": { "token": "instance-token" },
    });
    gateway.api(Method::POST, "/destinations", Some(&out)).await.expect(201);

    gateway.set_clock(now + 170 * DAY);
    let message = json!({ "destination": "out", "to": TO, "document": { "file": files[0] } });
    gateway.api(Method::POST, "/messages", Some(&message)).await.expect(202);
    nth(&sink, 0).await;
    gateway.set_clock(now + 181 * DAY);
    // Any configuration change triggers retention.
    let source = json!({ "name": "in", "verify": "none" });
    gateway.api(Method::POST, "/sources", Some(&source)).await.expect(201);

    let status = async |file: &str| {
        gateway.api(Method::GET, &format!("/media/{file}"), None).await.status.as_u16()
    };
    eventually(WAIT_LIMIT, || async { (status(&files[1]).await == 404).then_some(()) }).await;
    assert_eq!(status(&files[0]).await, 200);
    let unknown = json!({ "destination": "out", "to": TO, "document": { "file": files[1] } });
    let refused = gateway.api(Method::POST, "/messages", Some(&unknown)).await.expect(422).text();
    assert!(refused.contains("upload it first"), "{refused}");
}

#[tokio::test]
async fn unsupported_or_unknown_media_makes_delivery_dead_with_reason() {
    let Some(s3) = S3Server::start() else { return };
    let sink = Sink::with_replies([sent_reply()]).await;
    let gateway =
        gateway(&format!("{}{}", s3.settings(""), evolution_settings(&sink.url()))).start().await;
    // The media type is detected from the bytes; the declared type is ignored.
    let pdf = upload(&gateway, "", "image/png", PDF).await.expect(201).json();
    assert_eq!((&pdf["kind"], &pdf["mime_type"]), (&json!("document"), &json!("application/pdf")));
    let unknown = "med_01h455vb4pex5vsknk084sn02q";

    for (file, part) in [(pdf["id"].as_str().unwrap(), "send it as `document`"), (unknown, unknown)]
    {
        let message = json!({ "to": TO, "image": { "file": file } }).to_string();
        let event = gateway.post_accepted("in", message).await;
        let dead = gateway.wait_for_delivery(&event, "dead").await;
        assert_eq!(dead["reason"], "payload_error");
        let detail = &dead["attempt_list"][0]["detail"];
        assert!(detail.as_str().unwrap().contains(part), "{detail}");
    }
    // The API rejects such a message immediately and stores nothing.
    for (field, file, status) in
        [("image", &pdf["id"], 422), ("image", &json!(unknown), 422), ("document", &pdf["id"], 202)]
    {
        let message = json!({ "destination": "out", "to": TO, field: { "file": file } });
        let response = gateway.post("/messages", &message).await.expect(status);
        assert!(status == 202 || response.code() == "unsendable", "{}", response.text());
    }
    let link = link_of(&nth(&sink, 0).await.body);
    assert_eq!(fetch(&link).await.expect(200).body, PDF);
}

#[tokio::test]
async fn without_bucket_media_messages_wait_and_texts_are_sent() {
    let Some(s3) = S3Server::start() else { return };
    let sink = Sink::with_replies([sent_reply()]).await;
    let settings = format!("{}{}", s3.settings(""), evolution_settings(&sink.url()));
    let mut gateway = gateway(&settings).start().await;
    let file = upload(&gateway, "", "image/png", PNG).await.expect(201).json()["id"].clone();
    let without_bucket =
        format!("allow_networks = [\"127.0.0.0/8\"]\n{}", evolution_settings(&sink.url()));
    std::fs::write(gateway.folder().join("surehook.toml"), without_bucket).unwrap();
    gateway.restart().await;

    let message = json!({ "to": TO, "image": { "file": file } }).to_string();
    let event = gateway.post_accepted("in", message).await;
    let waiting = eventually(WAIT_LIMIT, || async {
        let event = gateway.get(&format!("/events/{event}")).await.expect(200).json();
        Some(event["deliveries"][0].clone()).filter(|delivery| delivery["attempts"] == 1)
    })
    .await;
    assert_eq!(waiting["status"], "scheduled");
    let path = format!("/deliveries/{}", waiting["id"].as_str().unwrap());
    let attempt = gateway.get(&path).await.expect(200).json()["attempt_list"][0].clone();
    assert_eq!(attempt["class"], "config");
    assert!(attempt["detail"].as_str().unwrap().contains("[media]"), "{attempt}");
    gateway.post_accepted("in", json!({ "to": TO, "text": "hi" }).to_string()).await;
    assert!(nth(&sink, 0).await.path.ends_with("/send/text"));

    let refused = upload(&gateway, "", "image/png", PNG).await.expect(409);
    assert_eq!(refused.code(), "media_not_configured");
    assert!(refused.detail().contains("[media]"), "{}", refused.detail());
    gateway.get("/media/med_01h455vb4pex5vsknk084sn02q").await.expect(404);
    gateway.get("/media/7").await.expect(404);
}

#[tokio::test]
async fn rejected_upload_says_what_to_do() {
    let Some(s3) = S3Server::start() else { return };
    let small = gateway(&s3.settings("max_bytes = 1000")).start().await;
    assert_eq!(
        upload(&small, "", "image/png", vec![1; 1001]).await.expect(413).code(),
        "body_too_large"
    );
    assert_eq!(upload(&small, "", "image/png", "").await.expect(422).code(), "unfit_media");
    assert_eq!(upload(&small, "?name=a", "image/png", PNG).await.expect(422).code(), "invalid");
    assert_eq!(upload(&small, "?destination=no", "a/b", PNG).await.expect(404).code(), "not_found");

    let cases = [
        ("secret_key", "another", "SignatureDoesNotMatch"),
        ("access_key", "another", "InvalidAccessKeyId"),
        ("region", "eu-west-1", "AuthorizationQueryParametersError"),
        ("bucket", "another", "media.bucket"),
    ];
    for (field, value, part) in cases {
        let variable = format!("SUREHOOK_MEDIA__{}", field.to_uppercase());
        let wrong = gateway(&s3.settings("")).env(&variable, value).start().await;
        let refused = upload(&wrong, "", "image/png", PNG).await.expect(502);
        assert_eq!(refused.code(), "media_refused", "case: {field}");
        assert!(refused.detail().contains(part), "case: {field}: {}", refused.detail());
    }

    let guarded = gateway(&s3.settings("")).public_networks_only().start().await;
    let refused = upload(&guarded, "", "image/png", PNG).await.expect(502);
    assert!(refused.detail().contains("127.0.0.1"), "{}", refused.detail());
}

#[tokio::test]
async fn incomplete_upload_is_not_stored() {
    let Some(s3) = S3Server::start() else { return };
    let gateway = gateway(&s3.settings("")).start().await;
    let head =
        format!("POST /api/v1/media HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\n");

    let mut chunked: RawConnection = gateway.connect_raw().await;
    chunked.write(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await;
    assert_eq!(chunked.read_response().await.unwrap().status, 411);

    let mut cut: RawConnection = gateway.connect_raw().await;
    cut.write(format!("{head}content-length: 100\r\n\r\n%PDF-1.7").as_bytes()).await;
    cut.finish_writing().await;
    // The response may not reach a client that has disconnected.
    assert!(cut.read_response().await.is_none_or(|response| response.status == 400));
    let store = rusqlite::Connection::open(gateway.folder().join("data/surehook.db")).unwrap();
    let count_files = "SELECT count(*) FROM media";
    assert_eq!(store.query_row(count_files, [], |row| row.get(0)), Ok(0));
}

#[tokio::test]
async fn repeated_upload_with_same_idempotency_key_is_one_file() {
    let Some(s3) = S3Server::start() else { return };
    let gateway = gateway(&s3.settings("")).start().await;
    let bearer = format!("Bearer {TOKEN}");
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", bearer.as_bytes()),
        ("content-type", b"image/png"),
        ("idempotency-key", b"upload-1"),
    ];
    // Larger than any other request body the API accepts.
    let file = [PNG, &vec![0; 3 << 20]].concat();
    let post = |body: Vec<u8>| gateway.request(Method::POST, "/api/v1/media", &headers, body);

    let first = post(file.clone()).await.expect(201);
    let second = post(file.clone()).await.expect(201);

    assert_eq!(first.body, second.body);
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(post(PNG.to_vec()).await.expect(422).code(), "idempotency_key_reused");
}

#[tokio::test]
async fn file_is_uploaded_directly_to_cloud_api() {
    let sink = Sink::with_replies([
        Reply::status(200).body(r#"{"id":"1234567890"}"#),
        Reply::status(400).body(r#"{"error":{"message":"(#100) Param file","code":100}}"#),
    ])
    .await;
    let gateway = gateway(&format!(
        "[[destinations]]\nname = \"wa\"\nkind = \"whatsapp-cloud\"\nurl = \"{}\"\n\
         account = {{ sender = \"106540352242922\", token = \"meta-token\" }}\n\
         [[destinations]]\nname = \"web\"\nurl = \"{0}\"\n",
        sink.url()
    ))
    .start()
    .await;

    let uploaded = upload(&gateway, "?destination=wa&filename=a.png", "image/png", PNG).await;

    let expected = json!({
        "media_id": "1234567890", "kind": "image", "mime_type": "image/png",
        "size": PNG.len(), "filename": "a.png",
    });
    assert_eq!(uploaded.expect(201).json(), expected);
    let arrival = nth(&sink, 0).await;
    assert!(arrival.path.ends_with("/106540352242922/media"), "{}", arrival.path);
    assert_eq!(arrival.header("authorization"), "Bearer meta-token");
    assert_eq!(arrival.header("content-length"), arrival.body.len().to_string());
    assert!(arrival.header("content-type").starts_with("multipart/form-data; boundary="));
    let file = arrival.body.windows(PNG.len()).filter(|part| *part == PNG).count();
    assert_eq!(file, 1);

    let refused = upload(&gateway, "?destination=wa", "image/png", PNG).await.expect(502);
    assert!(
        refused.detail().contains("the Cloud API did not accept the file"),
        "{}",
        refused.detail()
    );
    // Content that Meta would reject is rejected before the upload.
    let unfit = upload(&gateway, "?destination=wa", "image/gif", &b"GIF89a......"[..]).await;
    assert_eq!(unfit.expect(422).code(), "unfit_media");
    assert_eq!(
        upload(&gateway, "?destination=web", "image/png", PNG).await.expect(422).code(),
        "invalid"
    );
    assert_eq!(sink.count(), 2);
}

// The CLI uploads to the Cloud API if that is the destination's channel, and to the bucket otherwise.
#[tokio::test]
async fn cli_uploads_file_and_sends_it() {
    let Some(s3) = S3Server::start() else { return };
    let (meta, evolution) = (CloudApi::start().await, EvolutionGo::start().await);
    let destinations = cloud_api_settings("wa", &meta.url(), "")
        + &evolution_go_settings("go", &evolution.url(), "");
    let gateway = gateway(&format!("{}{destinations}", s3.settings(""))).start().await;
    std::fs::write(gateway.folder().join("maio.png"), PNG).unwrap();
    let send = async |destination: &str| {
        let message = ["--to", TO, "--image", "maio.png", "--caption", "Maio"];
        let key = ["--idempotency-key", destination, "--wait", "--json"];
        let args = [&["send", destination][..], &message, &key].concat();
        let output = gateway.cli(&args).await;
        assert_eq!(output.code, Some(0), "{output:?}");
    };

    send("wa").await;
    send("wa").await;
    send("go").await;

    let message = &meta.messages()[0];
    assert_eq!(message.body["image"]["caption"], "Maio");
    let file = meta.upload(message.body["image"]["id"].as_str().unwrap()).unwrap();
    assert_eq!((&*file.bytes, file.filename.as_deref()), (PNG, Some("maio.png")));
    assert_eq!(meta.count(), 1, "the same key again is the same file and the same message");
    let link = evolution.messages()[0].body["url"].as_str().unwrap().to_owned();
    assert_eq!(fetch(&link).await.expect(200).body, PNG);
}
