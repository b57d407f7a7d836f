//! Requests signed with a certificate that the gateway must fetch first.

use crate::support::gateway::Gateway;

const SETTINGS: &str =
    "[[sources]]\nname = \"pay\"\nprovider = \"paypal\"\nsecrets = [\"9XL90610J3647323C\"]";

fn headers(url: &str) -> [(&str, &str); 4] {
    [
        ("paypal-transmission-id", "t1"),
        ("paypal-transmission-time", "2026-05-17T13:19:58Z"),
        ("paypal-transmission-sig", "AAAA"),
        ("paypal-cert-url", url),
    ]
}

#[tokio::test]
async fn unreachable_certificate_returns_service_unavailable() {
    let gateway = Gateway::builder().settings(SETTINGS).start().await;
    // The host does not exist.
    let url = "https://nowhere.invalid.paypal.com/v1/notifications/certs/CERT-1";

    let response = gateway.send_webhook("pay", &headers(url), "{}").await;

    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(response.code(), "certificate_unavailable");
    assert_ne!(response.header("retry-after"), "");
}

#[tokio::test]
async fn certificate_url_of_another_host_is_rejected() {
    let gateway = Gateway::builder().settings(SETTINGS).start().await;
    for url in ["https://127.0.0.1/v1/notifications/certs/C", "https://paypal.com.test/cert.pem"] {
        let response = gateway.send_webhook("pay", &headers(url), "{}").await;
        assert_eq!(
            (response.status.as_u16(), response.code().as_str()),
            (401, "untrusted_certificate")
        );
    }
    assert_eq!(gateway.stats().await["total"], 0);
}
