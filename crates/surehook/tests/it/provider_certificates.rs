//! Requests signed with a certificate that the gateway must fetch first.

use std::{fs, path::Path, process::Command};

use data_encoding::BASE64;
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use surehook_types::time::Timestamp;

use crate::support::{
    gateway::{Gateway, Route},
    sink::{Reply, Sink},
    tls::{CertificateAuthority, TlsProxy},
    unix_now,
};

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

/// Names a folder for the child process below.
const CHILD_FOLDER: &str = "SUREHOOK_TEST_CHILD_FOLDER";
/// A user, its file systems and a network with nothing but a loopback interface. Needs no privileges.
const NAMESPACE: [&str; 6] = ["--user", "--map-root-user", "--mount", "--net", "sh", "-c"];
const NETWORK: &str = "ip link set lo up";
const HOSTS: &str = "mount --bind \"$SUREHOOK_TEST_CHILD_FOLDER/hosts\" /etc/hosts && exec \"$@\"";

/// The gateway fetches certificates only from port 443 of `PayPal`'s hosts. So the test starts itself again in a
/// network where that is this machine.
#[tokio::test]
async fn paypal_body_under_a_received_transmission_id_is_refused() {
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        return receive_from_paypal(Path::new(&folder)).await;
    }
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(NAMESPACE).arg(script).arg("sh");
        command
    };
    if !in_namespace(NETWORK).status().is_ok_and(|status| status.success()) {
        // Some machines forbid namespaces, and scripts/test reports that. `replay_attacks` of the engine
        // has the same attack without sockets.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hosts"), "127.0.0.1 localhost api.paypal.com\n").unwrap();
    let name = "provider_certificates::paypal_body_under_a_received_transmission_id_is_refused";

    let child = in_namespace(&format!("{NETWORK} && {HOSTS}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD_FOLDER, folder.path())
        .output()
        .unwrap();

    let [stdout, stderr] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(child.status.success() && stdout.contains(" 1 passed"), "{stdout}{stderr}");
}

const WEBHOOK: &str = "9XL90610J3647323C";
/// Two bodies with one CRC-32, which is all that is signed of a body.
const GENUINE: &str = r#"{"id":"WH-58D329510W468432D","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"CAP-1","amount":"129.90"}}"#;
const FORGED: &str = r#"{"id":"WH-58D329510W468432D","event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"id":"CAP-1","amount":"9999.90"},"pad":"AaAAAAaaaAaaaaAAaaaAaAaaAAaaAAAa"}"#;
const CHECKSUM: u32 = 1_098_561_571;

/// The headers of a transmission, signed for every body with [`CHECKSUM`].
fn sign_transmission(id: &str) -> [(&str, String); 5] {
    let time = Timestamp::from_millis(unix_now() * 1000).to_string();
    let key = include_bytes!("../../../../testdata/paypal/signing-key.pk8");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.as_slice()));
    let key = any_supported_type(&key).unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).unwrap();
    let line = format!("{id}|{time}|{WEBHOOK}|{CHECKSUM}");
    let signature = BASE64.encode(&signer.sign(line.as_bytes()).unwrap());
    let certificate = "https://api.paypal.com/v1/notifications/certs/CERT-1";
    [
        ("paypal-transmission-id", id.to_owned()),
        ("paypal-transmission-time", time),
        ("paypal-transmission-sig", signature),
        ("paypal-auth-algo", "SHA256withRSA".to_owned()),
        ("paypal-cert-url", certificate.to_owned()),
    ]
}

async fn receive_from_paypal(folder: &Path) {
    let chain = include_bytes!("../../../../testdata/paypal/chain.pem").as_slice();
    let certificates = Sink::with_replies([Reply::status(200).body(chain)]).await;
    let authority = CertificateAuthority::new();
    let _paypal =
        TlsProxy::start_for("api.paypal.com", 443, &authority, certificates.address()).await;
    let roots = folder.join("roots.pem");
    let signing_root = include_str!("../../../../testdata/paypal/root.pem");
    fs::write(&roots, authority.pem() + signing_root).unwrap();
    let sink = Sink::ok().await;
    let source = format!("provider = \"paypal\"\nsecrets = [\"{WEBHOOK}\"]");
    let destination = format!("url = \"{}\"", sink.url());
    let route = Route { source: &source, destination: &destination, ..Route::default() };
    let gateway = Gateway::builder()
        .env("SSL_CERT_FILE", roots.to_str().unwrap())
        .settings(&route.settings())
        .start()
        .await;

    let captured = sign_transmission("t1");
    // A retry of the provider under another id.
    let retried = sign_transmission("t2");
    let altered = GENUINE.replace("129.90", "999.90");
    let steps = [
        (&captured, GENUINE, 200, "accepted"),
        (&captured, FORGED, 422, "other_body"),
        (&captured, GENUINE, 200, "duplicate"),
        (&retried, GENUINE, 200, "duplicate"),
        (&captured, FORGED, 422, "other_body"),
        (&captured, &altered, 401, "mismatch"),
    ];
    let mut original = String::new();
    for (number, (headers, body, status, outcome)) in steps.into_iter().enumerate() {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = gateway.send_webhook("in", &headers, body.to_owned()).await.expect(status);
        let text = answer.text();
        assert!(text.contains(&format!("\"{outcome}\"")), "step {number}: {text}");
        if number == 0 {
            original = answer.event_id();
        }
        assert!(status == 401 || text.contains(&original), "step {number}: {text}");
    }

    gateway.wait_until_idle().await;
    let bodies: Vec<_> = sink.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [GENUINE]);
    assert_eq!(gateway.stats().await["total"], 1);
    assert_eq!(certificates.count(), 1, "the certificate is cached");
}
