//! TLS of the listener: certificates from files that are replaced while the gateway runs.

use std::{net::SocketAddr, path::Path};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tempfile::TempDir;

use crate::support::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    gateway::TOKEN,
    process::{Process, run_surehook},
    tls::{CertificateAuthority, TlsClient},
};

const NAME: &str = "hooks.test";

/// A gateway that listens with TLS.
struct TlsGateway {
    folder: TempDir,
    process: Process,
    address: SocketAddr,
    authority: CertificateAuthority,
    client: TlsClient,
}

impl TlsGateway {
    async fn start() -> Self {
        let authority = CertificateAuthority::new();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = authority.issue_server_certificate(&[NAME]);
        write_certificate(folder.path(), &certificate, &key);
        let settings = "[tls]\ncert = \"tls.pem\"\nkey = \"tls.key\"\n\n[[sources]]\nname = \"in\"\nverify = \"none\"\n";
        std::fs::write(folder.path().join("surehook.toml"), settings).unwrap();
        let env = [("SUREHOOK_ADMIN_TOKEN".to_owned(), TOKEN.to_owned())];
        let args = ["serve", "--data", "data", "--listen", "127.0.0.1:0"];
        let process = Process::spawn(folder.path(), &args, &env);
        let address = eventually(WAIT_LIMIT, || async {
            process.stdout.text().lines().find_map(|line| {
                line.trim_start()
                    .strip_prefix("address")?
                    .trim()
                    .strip_prefix("https://")?
                    .parse()
                    .ok()
            })
        })
        .await;
        let client = TlsClient::new(&authority.pem(), &["h2", "http/1.1"]);
        Self { folder, process, address, authority, client }
    }

    /// Sends one request over a new connection; returns the response and the certificate.
    async fn send(&self, request: Request<Full<Bytes>>) -> (HttpResponse, Vec<u8>) {
        self.client.send(self.address, NAME, request).await.unwrap()
    }

    async fn certificate(&self) -> Vec<u8> {
        let request = Request::get("/livez").body(Full::default()).unwrap();
        let (response, certificate) = self.send(request).await;
        response.expect(200);
        certificate
    }

    async fn wait_for_log(&self, text: &str) {
        eventually(WAIT_LIMIT, || async {
            self.process.stderr.text().contains(text).then_some(())
        })
        .await;
    }
}

fn write_certificate(folder: &Path, certificate: &str, key: &str) {
    std::fs::write(folder.join("tls.pem"), certificate).unwrap();
    std::fs::write(folder.join("tls.key"), key).unwrap();
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[tokio::test]
async fn listener_with_tls_takes_webhooks_and_marks_cookies_secure() {
    let gateway = TlsGateway::start().await;
    let post = |path: &str, kind: &str, body: &str| {
        Request::post(path)
            .header(header::CONTENT_TYPE, kind)
            .header(header::ORIGIN, format!("https://{NAME}"))
            .body(Full::from(body.to_owned()))
            .unwrap()
    };

    let (webhook, _) = gateway.send(post("/in/in", "application/json", "{}")).await;
    let form = "application/x-www-form-urlencoded";
    let (login, _) = gateway.send(post("/login", form, &format!("token={TOKEN}"))).await;

    assert_eq!(webhook.expect(200).json()["status"], "accepted");
    let cookie = login.header("set-cookie");
    assert!(cookie.starts_with("__Host-surehook_session=shs_"), "{cookie} {}", login.text());
    assert!(cookie.contains("; Secure"), "{cookie}");
    let healthy = run_surehook(
        gateway.folder.path(),
        &["healthcheck", "--listen", &gateway.address.to_string()],
        &[],
    )
    .await;
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    // A client without TLS gets no answer, and others still get theirs.
    let plain = Client::new();
    let url = format!("http://{}/livez", gateway.address);
    plain.send(Method::GET, &url, &[], "").await.unwrap_err();
    gateway.certificate().await;
}

#[tokio::test]
async fn changed_certificate_is_used_and_an_unusable_one_is_not() {
    let gateway = TlsGateway::start().await;
    let folder = gateway.folder.path();
    let second = gateway.authority.issue_server_certificate(&[NAME]);
    let third = gateway.authority.issue_server_certificate(&[NAME]);
    let first = gateway.certificate().await;

    write_certificate(folder, &second.0, &second.1);
    let is_second = || async { (gateway.certificate().await == der(&second.0)).then_some(()) };
    eventually(WAIT_LIMIT, is_second).await;
    assert_ne!(first, der(&second.0));
    // The key of another certificate: found by the check of the files, and by a reload.
    std::fs::write(folder.join("tls.pem"), &third.0).unwrap();
    gateway.wait_for_log("the changed certificate cannot be used").await;
    gateway.process.signal(Signal::HUP);
    gateway.wait_for_log("surehook.toml:3:7: tls.key: the key does not belong").await;
    assert_eq!(gateway.certificate().await, der(&second.0));
    std::fs::write(folder.join("tls.key"), "no key").unwrap();
    gateway.process.signal(Signal::HUP);
    gateway.wait_for_log("tls.key: `tls.key` contains no PEM private key").await;
    assert_eq!(gateway.certificate().await, der(&second.0));
    // The missing half arrives, and the reload is the first to see it.
    std::fs::write(folder.join("tls.key"), &third.1).unwrap();
    gateway.process.signal(Signal::HUP);
    let is_third = || async { (gateway.certificate().await == der(&third.0)).then_some(()) };
    eventually(WAIT_LIMIT, is_third).await;
}

#[tokio::test]
async fn unusable_certificate_is_refused_at_start_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "log = \"info\"\n[tls]\ncert = \"absent.pem\"\nkey = \"absent.key\"\n";
    std::fs::write(folder.path().join("surehook.toml"), settings).unwrap();

    let refused = run_surehook(folder.path(), &["serve", "--listen", "127.0.0.1:0"], &[]).await;

    assert_eq!(refused.code, Some(78), "{refused:?}");
    let expected =
        "surehook.toml:3:8: tls.cert: `absent.pem` cannot be read: there is no such file";
    assert!(refused.stderr.contains(expected), "{refused:?}");
}
