//! The extractor over real sockets, with the payloads of every preset; and the examples.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

#[expect(dead_code, reason = "the test calls `app`, not `main`")]
#[path = "../examples/axum_providers.rs"]
mod axum_providers;
#[expect(dead_code, reason = "the test calls `app`, not `main`")]
#[path = "../examples/axum_whatsapp.rs"]
mod axum_whatsapp;
#[path = "../../core/tests/payload_index/mod.rs"]
mod payload_index;
#[expect(dead_code, reason = "the test calls `describe`, not `main`")]
#[path = "../examples/verify_stripe.rs"]
mod verify_stripe;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{Json, Router};
use bytes::Bytes;
use data_encoding::BASE64;
use flate2::{Compression, write::GzEncoder};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use surehook_webhooks::{
    Receiver, ReceiverBuildError, ReceiverBuilder, Secret, WebhookRequest,
    axum::{Webhook, webhook},
    preset::StandardWebhooks,
    provider::{PROVIDERS, RefusalPolicy, find},
    sign::build_signature_header,
    verify::{HmacSpec, VerifySpec},
};

use self::payload_index::{IndexedPayload, payloads};

/// A web application on a free port.
struct TestServer {
    address: SocketAddr,
    client: Client<hyper_util::client::legacy::connect::HttpConnector, BoxBody<Bytes, Infallible>>,
}

/// Status, content type and body of a response.
type Answer = (u16, String, String);

impl TestServer {
    async fn start(app: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    async fn send(&self, request: &Request<Bytes>) -> Answer {
        let body = Full::new(request.body().clone()).boxed();
        self.send_body(request, body).await
    }

    /// Sends the body in chunks, without a length.
    async fn send_chunked(&self, request: &Request<Bytes>) -> Answer {
        let half = request.body().len() / 2;
        let chunks = [request.body().slice(..half), request.body().slice(half..)];
        let frames = chunks.map(|chunk| Ok(http_body::Frame::data(chunk)));
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed();
        self.send_body(request, body).await
    }

    async fn send_body(
        &self,
        request: &Request<Bytes>,
        body: BoxBody<Bytes, Infallible>,
    ) -> Answer {
        let uri = format!("http://{}{}", self.address, request.uri());
        let mut sent = Request::builder().method(request.method()).uri(uri);
        *sent.headers_mut().unwrap() = request.headers().clone();
        let response = self.client.request(sent.body(body).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.map_or("", |value| value.to_str().unwrap()).to_owned();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), content_type, String::from_utf8(body.to_vec()).unwrap())
    }
}

/// A receiver on a free port whose handler counts its calls and answers with the events.
struct TestReceiver {
    server: TestServer,
    calls: Arc<AtomicUsize>,
}

impl TestReceiver {
    async fn start(receiver: Receiver) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let handler = move |webhook: Webhook| async move {
            counter.fetch_add(1, Ordering::SeqCst);
            let event = |event: &surehook_webhooks::WebhookEvent| {
                json!({
                    "kind": event.kind(),
                    "key": event.key.as_ref().map(|key| key.as_str()),
                    "ordering_key": event.ordering_key.as_ref().map(|key| key.as_str()),
                })
            };
            let events: Vec<Value> = webhook.events.iter().map(event).collect();
            Json(json!({ "events": events, "raw_bytes": webhook.raw_body.len() }))
        };
        // Nested, as in larger applications: the receiver must see the whole path.
        let routes = Router::new().route("/{*path}", webhook(handler)).with_state(receiver);
        let server = TestServer::start(Router::new().nest("/in", routes)).await;
        Self { server, calls }
    }

    /// Sends a request; also returns whether the handler was called.
    async fn send(&self, request: &Request<Bytes>) -> (Answer, bool) {
        let before = self.calls.load(Ordering::SeqCst);
        let answer = self.server.send(request).await;
        (answer, self.calls.load(Ordering::SeqCst) > before)
    }
}

/// The recorded POST requests.
fn recorded() -> impl Iterator<Item = IndexedPayload> {
    payloads().into_iter().filter(|item| item.file != "whatsapp.verify.get.json")
}

/// The path and query at which a recorded request arrived.
fn target(item: &IndexedPayload) -> String {
    match (&item.url, &item.query) {
        (Some(url), _) => url.split_once("example.com").unwrap().1.to_owned(),
        (None, Some(query)) => format!("/in/{}?{query}", item.provider),
        (None, None) => format!("/in/{}", item.provider),
    }
}

fn request(item: &IndexedPayload) -> Request<Bytes> {
    let mut request = Request::post(target(item));
    for (name, value) in &item.headers {
        request = request.header(name, value);
    }
    request.body(item.body().into()).unwrap()
}

fn builder(item: &IndexedPayload, secrets: &[String]) -> ReceiverBuilder {
    let builder = Receiver::for_provider(item.preset()).public_url(public_url(item));
    secrets.iter().fold(builder, |builder, secret| builder.secret(secret.as_str()))
}

fn public_url(item: &IndexedPayload) -> String {
    let url = item.url.clone().unwrap_or_else(|| "https://gw.example.com/in/x".to_owned());
    url.split('?').next().unwrap().to_owned()
}

fn clock(secs: i64) -> impl Fn() -> SystemTime + Send + Sync + 'static {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(secs).unwrap());
    move || time
}

#[expect(clippy::disallowed_methods, reason = "the examples use the clock of the system")]
fn now() -> SystemTime {
    SystemTime::now()
}

fn secrets(item: &IndexedPayload) -> Vec<String> {
    item.secret.values().cloned().collect()
}

/// Other secrets of the same format.
fn other_secrets(item: &IndexedPayload) -> Vec<String> {
    let change = |secret: String| {
        let last = secret.chars().rev().find(char::is_ascii_alphanumeric).unwrap();
        let (at, _) = secret.char_indices().rev().find(|(_, c)| *c == last).unwrap();
        let other = if last == '4' { "8" } else { "4" };
        format!("{}{other}{}", &secret[..at], &secret[at + 1..])
    };
    secrets(item).into_iter().map(change).collect()
}

/// The status of a refused request: providers that do not retry after 401 get 503.
fn refused_status(preset: &str) -> u16 {
    match find(preset).unwrap().on_refusal {
        RefusalPolicy::Quarantine => 503,
        RefusalPolicy::Unauthorized | RefusalPolicy::Keep => 401,
    }
}

fn code(answer: &Answer) -> String {
    assert_eq!(answer.1, "application/problem+json", "{answer:?}");
    let problem: Value = serde_json::from_str(&answer.2).unwrap();
    assert_eq!(problem["status"], answer.0);
    problem["code"].as_str().unwrap().to_owned()
}

fn expected_events(item: &IndexedPayload) -> Vec<Value> {
    let body = item.body();
    let key = |key: String| match key.starts_with("hash:body within") {
        true => surehook_webhooks::key::content_hash_key(&body).as_str().to_owned(),
        false => key,
    };
    let event = |event: payload_index::ExpectedEvent| {
        let key = event.dedup_key.map(key);
        json!({ "kind": event.kind, "key": key, "ordering_key": event.ordering_key })
    };
    item.expected_events().into_iter().map(event).collect()
}

#[tokio::test]
async fn recorded_requests_of_every_preset_reach_the_handler_with_their_events() {
    let mut seen = BTreeSet::new();
    for item in recorded() {
        let name = item.file.as_str();
        let receiver = builder(&item, &secrets(&item)).clock(clock(item.signed_at()));
        let receiver = TestReceiver::start(receiver.build().unwrap()).await;
        let (answer, is_called) = receiver.send(&request(&item)).await;
        if name.starts_with("negative") {
            assert_eq!(json!(answer.0), item.expect_response.as_ref().unwrap()["status"], "{name}");
            assert!(!is_called, "{name}");
        } else if item.preset() == "paypal" {
            // The recording has no genuine signature; see the test with certificates.
            assert_eq!((answer.0, &*code(&answer)), (401, "malformed"), "{name}");
            assert!(!is_called, "{name}");
        } else if let Some(reply) = &item.expect_response {
            assert_eq!(json!(answer.0), reply["status"], "{name}");
            assert!(answer.1.starts_with(reply["content_type"].as_str().unwrap_or("")), "{name}");
            assert_eq!(json!(answer.2), reply["body"], "{name}");
            assert!(!is_called, "{name}: a handshake is answered without the handler");
        } else {
            assert_eq!(answer.0, 200, "{name}: {answer:?}");
            assert!(is_called, "{name}");
            let mut answered: Value = serde_json::from_str(&answer.2).unwrap();
            assert_eq!(answered["raw_bytes"], item.body().len(), "{name}");
            let events = answered["events"].take();
            assert_eq!(events.as_array().unwrap(), &expected_events(&item), "{name}");
        }
        seen.insert(item.preset().to_owned());
    }
    let unseen =
        PROVIDERS.iter().map(|provider| provider.name).filter(|name| !seen.contains(*name));
    assert_eq!(
        unseen.collect::<Vec<_>>(),
        ["evonexus", "generic", "sendgrid"],
        "presets without payloads"
    );
}

#[tokio::test]
async fn requests_signed_with_another_secret_are_refused_before_the_handler() {
    for item in recorded() {
        let name = item.file.as_str();
        let receiver = builder(&item, &other_secrets(&item)).clock(clock(item.signed_at()));
        let receiver = TestReceiver::start(receiver.build().unwrap()).await;
        let (answer, is_called) = receiver.send(&request(&item)).await;
        let expected = (refused_status(item.preset()), false);
        assert_eq!((answer.0, is_called), expected, "{name}: {answer:?}");
    }
}

/// Presets whose recorded requests are signed with their time.
const TIMED: [&str; 13] = [
    "calendly",
    "chatwoot",
    "discord",
    "evolution-api",
    "gitlab",
    "hubspot",
    "linear",
    "mercado-pago",
    "slack",
    "standard-webhooks",
    "stripe",
    "twitch",
    "zoom",
];

#[tokio::test]
async fn old_requests_are_refused_where_the_signature_covers_the_time() {
    let mut stale = BTreeSet::new();
    for item in recorded().filter(|item| !item.file.starts_with("negative")) {
        let name = item.file.as_str();
        let month = 30 * 86_400;
        let receiver = builder(&item, &secrets(&item)).clock(clock(item.signed_at() + month));
        let receiver = TestReceiver::start(receiver.build().unwrap()).await;
        let (answer, is_called) = receiver.send(&request(&item)).await;
        if answer.0 != 200 && item.preset() != "paypal" {
            assert_eq!(answer.0, refused_status(item.preset()), "{name}: {answer:?}");
            assert_eq!((&*code(&answer), is_called), ("stale", false), "{name}");
            stale.insert(item.preset().to_owned());
        }
    }
    assert_eq!(stale.into_iter().collect::<Vec<_>>(), TIMED);
}

#[tokio::test]
async fn oversized_bodies_are_answered_413_with_and_without_a_declared_length() {
    for item in recorded().filter(|item| !item.file.starts_with("negative")) {
        let name = item.file.as_str();
        let limited = |bytes| builder(&item, &secrets(&item)).max_body_bytes(bytes).build();
        let receiver = TestReceiver::start(limited(item.body().len() - 1).unwrap()).await;
        let request = request(&item);
        let (declared, _) = receiver.send(&request).await;
        let chunked = receiver.server.send_chunked(&request).await;
        for answer in [declared, chunked] {
            assert_eq!((answer.0, &*code(&answer)), (413, "body_too_large"), "{name}");
        }
        assert_eq!(receiver.calls.load(Ordering::SeqCst), 0, "{name}");
    }
}

#[tokio::test]
async fn other_methods_are_answered_405() {
    let receiver = Receiver::for_provider("stripe").secret("whsec_a secret").build().unwrap();
    let receiver = TestReceiver::start(receiver).await;
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::HEAD] {
        let request = Request::builder().method(method).uri("/in/x").body(Bytes::new()).unwrap();
        let (answer, is_called) = receiver.send(&request).await;
        assert_eq!((answer.0, is_called), (405, false), "{}", request.method());
    }
}

#[tokio::test]
async fn secret_in_the_path_is_accepted_after_the_configured_path_only() {
    let secret = "9f3c1a7e5b2d4f60";
    let receiver = Receiver::for_provider("evolution-api").secret(secret).path("/in/evo");
    let receiver = TestReceiver::start(receiver.build().unwrap()).await;
    let cases = [
        (format!("/in/evo/{secret}"), 200),
        (format!("/in/evo/{secret}/messages-upsert"), 200),
        ("/in/evo/9f3c1a7e5b2d4f61".to_owned(), 503),
        (format!("/in/evo{secret}"), 503),
        (format!("/in/other/{secret}"), 503),
        (format!("/in/evo?{secret}"), 503),
    ];
    for (path, expected) in cases {
        let request = Request::post(&path).body(Bytes::from(r#"{"event":"call"}"#)).unwrap();
        let (answer, is_called) = receiver.send(&request).await;
        assert_eq!((answer.0, is_called), (expected, expected == 200), "{path}: {answer:?}");
    }
}

const PAYPAL_CERTIFICATE: &str =
    "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77";

fn paypal_file(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/paypal/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

fn paypal_request(body: &'static str) -> Request<Bytes> {
    let checksum = crc32fast::hash(body.as_bytes());
    let line = format!("t1|2027-01-15T07:59:58Z|9XL90610J3647323C|{checksum}");
    let pair = RsaKeyPair::from_pkcs8(&paypal_file("signing-key.pk8")).unwrap();
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), line.as_bytes(), &mut signature).unwrap();
    Request::post("/in/paypal")
        .header("paypal-transmission-id", "t1")
        .header("paypal-transmission-time", "2027-01-15T07:59:58Z")
        .header("paypal-auth-algo", "SHA256withRSA")
        .header("paypal-cert-url", PAYPAL_CERTIFICATE)
        .header("paypal-transmission-sig", BASE64.encode(&signature))
        .body(Bytes::from_static(body.as_bytes()))
        .unwrap()
}

#[tokio::test]
async fn paypal_is_verified_with_the_fetched_certificate() {
    let root = CertificateDer::from_pem_slice(&paypal_file("root.pem")).unwrap();
    let root = webpki::anchor_from_trusted_cert(&root).unwrap().to_owned();
    let paypal = || {
        let receiver = Receiver::for_provider("paypal").secret("9XL90610J3647323C");
        receiver.clock(clock(1_800_000_000))
    };
    let fetched = |file: &'static str| {
        paypal().certificates(vec![root.clone()], move |url: url::Url| async move {
            assert_eq!(url.as_str(), PAYPAL_CERTIFICATE);
            Ok(paypal_file(file).into())
        })
    };
    let unreachable =
        paypal().certificates(vec![], |_| async { Err("connection refused".to_owned()) });
    let genuine = paypal_request(r#"{"event_type":"A"}"#);
    let mut forged = paypal_request(r#"{"event_type":"A"}"#);
    *forged.body_mut() = Bytes::from_static(b"{}");
    let cases = [
        ("genuine", fetched("chain.pem"), &genuine, 200, ""),
        ("forged", fetched("chain.pem"), &forged, 401, "mismatch"),
        ("other name", fetched("other-name.pem"), &genuine, 401, "untrusted_certificate"),
        ("unreachable", unreachable, &genuine, 503, "certificate_unavailable"),
        ("nothing configured", paypal(), &genuine, 503, "certificate_unavailable"),
    ];
    for (case, builder, request, expected, expected_code) in cases {
        let receiver = TestReceiver::start(builder.build().unwrap()).await;
        let (answer, is_called) = receiver.send(request).await;
        assert_eq!((answer.0, is_called), (expected, expected == 200), "{case}: {answer:?}");
        if expected != 200 {
            assert_eq!(code(&answer), expected_code, "{case}");
        }
    }
}

#[tokio::test]
async fn generic_preset_verifies_as_configured() {
    let verify = VerifySpec::Hmac(Box::new(HmacSpec::new("x-signature")));
    let receiver = Receiver::for_provider("generic").verify(verify).secret("a secret of mine");
    let receiver = receiver.keys(["pointer:/order/id"]).build().unwrap();
    let mut signed = Request::post("/in/x").body(Bytes::from(r#"{"order":{"id":7}}"#)).unwrap();
    receiver.sign(&mut signed, "1", now()).unwrap();
    let server = TestReceiver::start(receiver).await;
    let (answer, _) = server.send(&signed).await;
    let events: Value = serde_json::from_str(&answer.2).unwrap();
    assert_eq!(events["events"][0]["key"], "7", "{answer:?}");
    let (answer, _) = server.send(&Request::post("/in/x").body(Bytes::new()).unwrap()).await;
    assert_eq!((answer.0, &*code(&answer)), (401, "missing_signature"));
}

#[test]
fn settings_that_verify_nothing_are_refused() {
    type Case = (&'static str, ReceiverBuilder, fn(&ReceiverBuildError) -> bool);
    let stripe = || Receiver::for_provider("stripe");
    let twilio = || Receiver::for_provider("twilio").secret("a");
    let cases: [Case; 9] = [
        ("unknown", Receiver::for_provider("strip"), |error| {
            matches!(error, ReceiverBuildError::UnknownProvider(_))
        }),
        ("no secret", stripe(), |error| matches!(error, ReceiverBuildError::SecretMissing(_))),
        ("empty", stripe().secret(" "), |error| matches!(error, ReceiverBuildError::EmptySecret)),
        ("empty token", stripe().secret("a").verify_token(""), |error| {
            matches!(error, ReceiverBuildError::EmptySecret)
        }),
        ("generic", Receiver::for_provider("generic").secret("a"), |error| {
            matches!(error, ReceiverBuildError::VerifyMissing(_))
        }),
        ("no URL", twilio(), |error| matches!(error, ReceiverBuildError::PublicUrlMissing(_))),
        ("bad URL", twilio().public_url("example.com/x"), |error| {
            matches!(error, ReceiverBuildError::InvalidPublicUrl(_))
        }),
        ("query", twilio().public_url("https://example.com/x?y=1"), |error| {
            matches!(error, ReceiverBuildError::InvalidPublicUrl(_))
        }),
        ("limit", stripe().secret("a").max_body_bytes(0), |error| {
            matches!(error, ReceiverBuildError::BodyLimit)
        }),
    ];
    for (case, builder, is_expected) in cases {
        let error = builder.build().unwrap_err();
        assert!(is_expected(&error), "{case}: {error:?}");
    }
}

#[test]
fn debug_output_hides_the_secret() {
    let builder = Receiver::for_provider("stripe").secret("whsec_very secret").verify_token("tok");
    let text = format!("{builder:?} {:?}", Secret::new("tok"));
    let text = format!("{text} {:?}", builder.build().unwrap());
    assert!(!text.contains("very secret") && !text.contains("tok"), "{text}");
}

#[test]
fn every_preset_that_can_sign_accepts_its_own_signature() {
    let mut refuses_to_sign = BTreeSet::new();
    for item in recorded().filter(|item| !item.file.starts_with("negative")) {
        let receiver = builder(&item, &secrets(&item)).path("/in/x").build().unwrap();
        let mut signed = request(&item);
        let query = item.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        *signed.uri_mut() = format!("/in/x{query}").parse().unwrap();
        for header in find(item.preset()).unwrap().signature_headers {
            signed.headers_mut().remove(*header);
        }
        let now = clock(item.signed_at())();
        if receiver.sign(&mut signed, "msg_1", now).is_err() {
            refuses_to_sign.insert(item.preset().to_owned());
            continue;
        }
        let accepted = receiver.accept(&signed, now);
        assert!(accepted.is_ok(), "{}: {accepted:?}", item.file);
    }
    assert_eq!(refuses_to_sign.into_iter().collect::<Vec<_>>(), ["discord", "paypal"]);
}

#[test]
fn deliveries_of_the_gateway_are_accepted_as_standard_webhooks() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = r#"{"type":"order.paid"}"#;
    let keys = [secret.parse().unwrap()];
    let signature = build_signature_header(&keys, "evt_1", 1_800_000_000, body.as_bytes());
    let request = Request::post("/hooks")
        .header("webhook-id", "evt_1")
        .header("webhook-timestamp", "1800000000")
        .header("webhook-signature", signature)
        .body(Bytes::from(body))
        .unwrap();
    let receiver = Receiver::of(StandardWebhooks).secret(secret).build().unwrap();
    let accepted = receiver.accept(&request, clock(1_800_000_060)()).unwrap();
    let WebhookRequest::Webhook(webhook) = accepted else { panic!("{accepted:?}") };
    assert!(webhook.events[0].key.as_ref().unwrap().as_str().ends_with("evt_1"), "{webhook:?}");
    assert_eq!(webhook.events[0].replay_key, None, "the signature covers the id");
    let late = receiver.accept(&request, clock(1_800_001_000)()).unwrap_err();
    assert_eq!((late.status(), late.code()), (StatusCode::UNAUTHORIZED, "stale"));
}

#[test]
fn compressed_request_is_verified_as_received_and_read_decompressed() {
    let plain = r#"{"id":"evt_1","type":"charge.succeeded"}"#;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain.as_bytes()).unwrap();
    let compressed = Bytes::from(encoder.finish().unwrap());
    let mut request = Request::post("/").header("content-encoding", "gzip");
    request = request.header("content-type", "application/json");
    let mut request = request.body(compressed.clone()).unwrap();
    let receiver = Receiver::for_provider("stripe").secret("whsec_stripe").build().unwrap();
    receiver.sign(&mut request, "evt_1", now()).unwrap();
    let accepted = receiver.accept(&request, now()).unwrap();
    let WebhookRequest::Webhook(webhook) = accepted else { panic!("{accepted:?}") };
    let event = &webhook.events[0];
    assert_eq!((&event.body[..], &webhook.raw_body), (plain.as_bytes(), &compressed));
    assert_eq!(event.key.as_ref().unwrap().as_str(), "stripe:evt_1");
    assert_eq!(event.json::<Value>().unwrap()["type"], "charge.succeeded");
}

#[test]
fn captured_request_under_another_unsigned_id_keeps_its_replay_key() {
    let item = recorded().find(|item| item.file == "github.push.json").unwrap();
    let receiver = builder(&item, &secrets(&item)).build().unwrap();
    let event = |request: &Request<Bytes>| {
        let accepted = receiver.accept(request, clock(item.now)()).unwrap();
        let WebhookRequest::Webhook(mut webhook) = accepted else { panic!("{accepted:?}") };
        webhook.events.remove(0)
    };
    let genuine = request(&item);
    let mut replayed = request(&item);
    replayed.headers_mut().insert("x-github-delivery", "another".parse().unwrap());
    let (genuine, replayed) = (event(&genuine), event(&replayed));
    assert_ne!(genuine.key, replayed.key);
    assert!(genuine.replay_key.is_some() && genuine.replay_key == replayed.replay_key);
}

#[tokio::test]
async fn whatsapp_example_answers_handshake_and_verifies() {
    let server = TestServer::start(axum_whatsapp::app("an app secret", "tok-ç-123").unwrap()).await;
    let get = |query: &str| Request::get(format!("/whatsapp?{query}")).body(Bytes::new()).unwrap();
    let handshake = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    let answer = server.send(&get(&format!("{handshake}tok-%C3%A7-123"))).await;
    assert_eq!((answer.0, &*answer.2), (200, "1158201444"));
    let answer = server.send(&get(&format!("{handshake}other"))).await;
    assert_eq!((answer.0, &*code(&answer)), (403, "wrong_verify_token"));
    assert_eq!(server.send(&get("")).await.0, 405);

    let item = recorded().find(|item| item.file == "whatsapp.message.text.json").unwrap();
    let mut post = Request::post("/whatsapp").body(Bytes::from(item.body())).unwrap();
    let receiver = Receiver::for_provider("whatsapp-cloud").secret("an app secret");
    receiver.build().unwrap().sign(&mut post, "1", now()).unwrap();
    assert_eq!(server.send(&post).await.0, 200);
    *post.body_mut() = Bytes::from_static(b"{}");
    assert_eq!(server.send(&post).await.0, 401);
}

#[tokio::test]
async fn providers_example_keeps_the_receivers_apart() {
    let server =
        TestServer::start(axum_providers::app("whsec_stripe", "slack-secret").unwrap()).await;
    let sign = |provider: &str, secret: &str, path: &str, body: &'static str| {
        let receiver = Receiver::for_provider(provider).secret(secret).build().unwrap();
        let mut request = Request::post(path).body(Bytes::from_static(body.as_bytes())).unwrap();
        receiver.sign(&mut request, "1", now()).unwrap();
        request
    };
    let paid = r#"{"id":"evt_1","type":"charge.succeeded"}"#;
    let answer = server.send(&sign("stripe", "whsec_stripe", "/stripe", paid)).await;
    assert_eq!((answer.0, &*answer.2), (200, r#"["charge.succeeded"]"#));
    assert_eq!(server.send(&sign("stripe", "whsec_stripe", "/slack", paid)).await.0, 401);
    let url_verification = r#"{"type":"url_verification","challenge":"3eZb"}"#;
    let answer = server.send(&sign("slack", "slack-secret", "/slack", url_verification)).await;
    assert_eq!((answer.0, &*answer.2), (200, "3eZb"));
    let message = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
    let answer = server.send(&sign("slack", "slack-secret", "/slack", message)).await;
    assert_eq!((answer.0, &*answer.2), (StatusCode::OK.as_u16(), ""));
}

#[test]
fn stripe_example_describes_genuine_requests_only() {
    let item = recorded().find(|item| item.preset() == "stripe").unwrap();
    let (secret, signature) = (&secrets(&item)[0], &item.headers["stripe-signature"]);
    let described = verify_stripe::describe(secret, signature, item.body()).unwrap();
    assert!(described.starts_with("payment_intent.succeeded with key stripe:evt_"), "{described}");
    let forged = verify_stripe::describe("whsec_other", signature, item.body()).unwrap_err();
    assert!(forged.to_string().contains("does not match"), "{forged}");
}
