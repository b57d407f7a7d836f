//! Signatures that cover the called URL: it comes from the settings, not from headers of the request.

use std::{fs, path::Path};

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::json;
use sha2::Sha256;

use crate::support::{
    gateway::Gateway,
    process::{CommandOutput, run_surehook},
};

const SECRET: &str = "square-signature-key-of-the-test";
const ORIGIN: &str = "https://hooks.example.com";
const SOURCE: &str = "[[sources]]\nname = \"in\"\nprovider = \"square\"\n\
                      secrets = [\"square-signature-key-of-the-test\"]\n";

fn with_origin() -> String {
    format!("public_url = \"{ORIGIN}\"\n{SOURCE}")
}

/// Sends a request that is signed for this origin and claims to have called this host; returns the status
/// and the problem code.
async fn send(gateway: &Gateway, origin: &str, claimed_host: &str, id: u32) -> (u16, String) {
    let body = format!(r#"{{"merchant_id":"m","event_id":"{id}"}}"#);
    let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let signed = mac.chain_update(format!("{origin}/in/in{body}")).finalize().into_bytes();
    let signature = BASE64.encode(&signed);
    let headers: [(&str, &[u8]); 2] = [
        ("x-square-hmacsha256-signature", signature.as_bytes()),
        ("x-forwarded-host", claimed_host.as_bytes()),
    ];
    let response = gateway.request(Method::POST, "/in/in", &headers, body).await;
    let code = if response.status == 200 { String::new() } else { response.code() };
    (response.status.as_u16(), code)
}

async fn doctor(folder: &Path) -> CommandOutput {
    run_surehook(folder, &["doctor", "--json"], &[]).await
}

fn write_settings(gateway: &Gateway, settings: &str) {
    fs::write(gateway.folder().join("surehook.toml"), settings).unwrap();
}

#[tokio::test]
async fn new_source_without_public_url_is_refused_if_its_signature_covers_the_url() {
    let gateway = Gateway::start().await;
    for provider in ["square", "twilio", "hubspot"] {
        let mut source = json!({ "name": provider, "provider": provider, "secrets": [SECRET] });
        let refused = gateway.post("/sources", &source).await;
        assert_eq!(refused.status, 422, "{provider}: {}", refused.text());
        assert!(refused.text().contains("`public_url` is missing"), "{}", refused.text());
        source["public_url"] = json!(ORIGIN);
        gateway.post("/sources", &source).await.expect(201);
    }
    let checked = run_surehook(gateway.folder(), &["config", "check", "new.toml"], &[]).await;
    assert_ne!(checked.code, Some(0));
    fs::write(gateway.folder().join("new.toml"), SOURCE).unwrap();
    let checked = run_surehook(gateway.folder(), &["config", "check", "new.toml"], &[]).await;
    assert_ne!(checked.code, Some(0), "{checked:?}");
    assert!(format!("{checked:?}").contains("public_url"), "{checked:?}");
    fs::write(gateway.folder().join("new.toml"), with_origin()).unwrap();
    let checked = run_surehook(gateway.folder(), &["config", "check", "new.toml"], &[]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[tokio::test]
async fn host_headers_are_not_trusted_even_when_public_url_is_removed() {
    let mut gateway =
        Gateway::builder().settings(&with_origin()).public_networks_only().start().await;
    assert_eq!(send(&gateway, ORIGIN, "evil.example.com", 1).await.0, 200);
    let forged = send(&gateway, "https://evil.example.com", "evil.example.com", 2).await;
    assert_eq!(forged, (401, "mismatch".to_owned()));

    gateway.terminate().await;
    write_settings(&gateway, SOURCE);
    gateway.restart().await;

    let forged = send(&gateway, "https://evil.example.com", "evil.example.com", 3).await;
    assert_eq!(forged, (401, "unknown_address".to_owned()));
    let output = doctor(gateway.folder()).await;
    assert!(output.stdout.contains("`public_url` is missing"), "{output:?}");
    assert_eq!(output.code, Some(8), "{output:?}");
}

#[tokio::test]
async fn source_from_before_the_rule_works_with_a_warning_until_changed() {
    let mut gateway =
        Gateway::builder().settings(&with_origin()).public_networks_only().start().await;
    gateway.terminate().await;
    // As the migration leaves it.
    let file = rusqlite::Connection::open(gateway.folder().join("data/surehook.db")).unwrap();
    let mark = "INSERT INTO lenient_sources (id) SELECT id FROM sources WHERE name = 'in'";
    assert_eq!(file.execute(mark, []).unwrap(), 1);
    drop(file);
    write_settings(&gateway, SOURCE);
    gateway.restart().await;

    assert_eq!(send(&gateway, ORIGIN, "hooks.example.com", 1).await.0, 200);
    assert_eq!(send(&gateway, "http://hooks.example.com", "hooks.example.com", 2).await.0, 200);
    let other = send(&gateway, ORIGIN, "other.example.com", 3).await;
    assert_eq!(other, (401, "mismatch".to_owned()));
    let output = doctor(gateway.folder()).await;
    assert!(output.stdout.contains("`in`: the signature covers the called URL"), "{output:?}");
    assert!(!output.stdout.contains("\"fail\""), "{output:?}");

    let mut source = json!({ "name": "in", "provider": "square", "secrets": [SECRET] });
    source["revive_dead"] = json!(false);
    let refused = gateway.put("/sources/in", &source).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(send(&gateway, ORIGIN, "hooks.example.com", 4).await.0, 200, "it is unchanged");
    source["public_url"] = json!(ORIGIN);
    gateway.put("/sources/in", &source).await.expect(200);
    let forged = send(&gateway, "https://evil.example.com", "evil.example.com", 5).await;
    assert_eq!(forged, (401, "mismatch".to_owned()));
}

#[tokio::test]
async fn source_that_accepts_signatures_for_longer_than_it_remembers_keys_is_refused() {
    let gateway = Gateway::start().await;
    let mut source =
        json!({ "name": "in", "provider": "linear", "secrets": [SECRET], "dedup_window": "1h" });
    let refused = gateway.post("/sources", &source).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("dedup_window"), "{}", refused.text());
    source["dedup_window"] = json!("12h");
    gateway.post("/sources", &source).await.expect(201);
}
