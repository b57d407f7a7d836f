//! Requests of Meta, Evolution API and Evolution Go, received and delivered.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::Value;
use sha2::Sha256;

use crate::support::{gateway::Gateway, sink::Sink};

const SECRET: &str = "5f2e1d0c9b8a79685746352413021100";
const SIGNATURE: &str = "x-hub-signature-256";
const BATCH: &str =
    include_str!("../../../../testdata/payloads/whatsapp.batch.multi_entry_multi_change.json");
const RECEIPT: &str =
    include_str!("../../../../testdata/payloads/evolution_go.Receipt.read_many.json");
const UPSERT: &str =
    include_str!("../../../../testdata/payloads/evolution_api.messages.upsert.text.json");

fn signature(body: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap().chain_update(body);
    format!("sha256={}", HEXLOWER.encode(&mac.finalize().into_bytes()))
}

fn settings(source: &str, url: &str) -> String {
    format!(
        "{source}\n[[destinations]]\nname = \"out\"\nurl = \"{url}\"\nconcurrency = 1\n\
         [[routes]]\nfrom = \"in\"\nto = \"out\""
    )
}

fn whatsapp(url: &str) -> String {
    let source = format!(
        "[[sources]]\nname = \"in\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"{SECRET}\"]\n\
         verify_token = \"tok-ç-123\""
    );
    settings(&source, url)
}

#[tokio::test]
async fn meta_verification_request_is_answered_with_challenge() {
    let without_token = format!(
        "[[sources]]\nname = \"no-token\"\nprovider = \"whatsapp-cloud\"\nsecrets = [\"{SECRET}\"]"
    );
    let settings = format!("{without_token}\n{}", whatsapp("http://127.0.0.1:9000/"));
    let gateway = Gateway::start_with(&settings).await;
    let query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=tok-%C3%A7-123";
    let ask = async |path: &str| gateway.request(Method::GET, path, &[], "").await;

    let response = ask(&format!("/in/in?{query}")).await.expect(200);
    assert_eq!(response.text(), "1158201444");
    assert!(response.header("content-type").starts_with("text/plain"));

    let wrong = ask(&format!("/in/in?{query}4")).await.expect(403);
    assert_eq!(wrong.code(), "wrong_verify_token");
    assert!(wrong.detail().contains("verify_token"), "{}", wrong.detail());
    let unset = ask(&format!("/in/no-token?{query}")).await.expect(403);
    assert_eq!(unset.code(), "no_verify_token");
    assert!(unset.detail().contains("verify_token"), "{}", unset.detail());
    ask("/in/in").await.expect(405);
}

#[tokio::test]
async fn batch_is_split_into_events_and_recognized_when_regrouped() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&whatsapp(&sink.url())).await;
    let post = async |body: Vec<u8>| {
        let signature = signature(&body);
        gateway.send_webhook("in", &[(SIGNATURE, &signature)], body).await.expect(200).json()
    };
    let response = post(BATCH.into()).await;
    assert_eq!(response["status"], "accepted");
    assert_eq!(response["events"].as_array().unwrap().len(), 6);

    let arrivals = sink.wait_for_requests(6).await;
    for arrival in &arrivals {
        assert_eq!(arrival.header(SIGNATURE), "", "it does not match the part");
        let body: Value = serde_json::from_slice(&arrival.body).unwrap();
        assert_eq!(body["entry"].as_array().unwrap().len(), 1);
        assert_eq!(body["entry"][0]["changes"].as_array().unwrap().len(), 1);
        // Each part alone is the same event.
        let again = post(arrival.body.to_vec()).await;
        assert_eq!(again["status"], "duplicate");
        assert_eq!(again["events"][0]["id"], arrival.id());
    }
    assert_eq!(post(BATCH.into()).await["status"], "duplicate");
    assert_eq!(gateway.stats().await["total"], 6);
}

#[tokio::test]
async fn path_secret_is_accepted_and_not_stored() {
    const PATH_SECRET: &str = "9f3c1a7e5b2d4f60";
    let source = |name: &str, provider: &str| {
        format!(
            "[[sources]]\nname = \"{name}\"\nprovider = \"{provider}\"\nsecrets = [\"{PATH_SECRET}\"]"
        )
    };
    let sources = format!("{}\n{}", source("api", "evolution-api"), source("go", "evolution-go"));
    let gateway = Gateway::start_with(&sources).await;
    let post =
        async |path: &str, body: &'static str| gateway.request(Method::POST, path, &[], body).await;

    let response =
        post(&format!("/in/api/{PATH_SECRET}/messages-upsert"), UPSERT).await.expect(200);
    let id = response.event_id();
    let event = gateway.event(&id).await;
    assert_eq!(event["request"]["path"], "/messages-upsert", "{event}");
    assert!(!event.to_string().contains(PATH_SECRET));

    let response = post(&format!("/in/go/{PATH_SECRET}"), RECEIPT).await.expect(200).json();
    assert_eq!(response["events"].as_array().unwrap().len(), 3);
    for path in ["/in/go", "/in/go/wrong"] {
        assert_eq!(post(path, RECEIPT).await.expect(401).code(), "mismatch", "{path}");
    }
    assert!(!gateway.log().contains(PATH_SECRET));
}
