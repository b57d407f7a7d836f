//! Caddy and nginx in front of the gateway, with the recipes of docs/operations/production.md.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use tokio::net::TcpStream;

use crate::support::{
    WAIT_LIMIT,
    client::HttpResponse,
    eventually, free_port,
    gateway::{Gateway, TOKEN},
    process::{Process, run_surehook},
    tls::{CertificateAuthority, TlsClient},
    tools::{Tool, proxy_program},
};

const NAME: &str = "hooks.example.com";
const RECIPES: &str = include_str!("../../../../docs/operations/production.md");

/// The code block after a heading of the page.
fn recipe(name: &str) -> &'static str {
    let heading = format!("\n### {name}\n");
    let (_, rest) = RECIPES.split_once(&heading).unwrap();
    let (_, rest) = rest.split_once("\n```").unwrap();
    let (_language, rest) = rest.split_once('\n').unwrap();
    rest.split_once("\n```").unwrap().0
}

/// Replaces text that must be in the recipe.
fn replace(recipe: &str, from: &str, to: &str) -> String {
    assert!(recipe.contains(from), "`{from}` is not in {recipe}");
    recipe.replace(from, to)
}

/// A proxy at `https://hooks.example.com` in front of a gateway.
struct RunningProxy {
    gateway: Gateway,
    _process: Process,
    address: SocketAddr,
    client: TlsClient,
}

async fn start_gateway() -> Gateway {
    let settings = format!(
        r#"
        public_url = "https://{NAME}"

        [[sources]]
        name = "signed"
        provider = "github"
        secrets = ["proxies-secret-0123456789"]
        max_body_bytes = 26214400
        "#
    );
    Gateway::builder().settings(&settings).start().await
}

async fn wait_until_listening(address: SocketAddr) {
    eventually(WAIT_LIMIT, || async { TcpStream::connect(address).await.ok().map(drop) }).await;
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl RunningProxy {
    async fn caddy() -> Self {
        let gateway = start_gateway().await;
        let (folder, port) = (gateway.folder(), free_port());
        let site = replace(recipe("Caddy"), NAME, &format!("https://{NAME}:{port}"));
        let site = replace(&site, "127.0.0.1:8080", &gateway.address().to_string());
        // Certificates of its own authority, and no port but this one.
        let options = "{\n  admin off\n  local_certs\n  skip_install_trust\n  auto_https disable_redirects\n}\n";
        std::fs::write(folder.join("Caddyfile"), format!("{options}{site}\n")).unwrap();
        let mut command = Command::new(proxy_program("caddy").unwrap());
        command
            .args(["run", "--adapter", "caddyfile", "--config", "Caddyfile"])
            .current_dir(folder)
            .env_clear()
            .env("HOME", folder)
            .env("XDG_DATA_HOME", folder);
        let process = Process::start(command);
        let root = folder.join("caddy/pki/authorities/local/root.crt");
        let root = eventually(WAIT_LIMIT, || async { std::fs::read_to_string(&root).ok() }).await;
        let client = TlsClient::new(&root, &["http/1.1"]);
        let address = at(port);
        // The certificate of the site is issued after the port is open.
        eventually(WAIT_LIMIT, || async {
            let request = Request::get("/livez").body(Full::default()).unwrap();
            client.send(address, NAME, request).await.ok().map(drop)
        })
        .await;
        Self { gateway, _process: process, address, client }
    }

    async fn nginx() -> Self {
        let gateway = start_gateway().await;
        let (folder, port) = (gateway.folder(), free_port());
        let authority = CertificateAuthority::new();
        let (certificate, key) = authority.issue_server_certificate(&[NAME]);
        let file = |name: &str, text: &str| -> PathBuf {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name)
        };
        let (certificate, key) = (file("site.pem", &certificate), file("site.key", &key));
        let server =
            replace(recipe("nginx"), "listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl"));
        let server = replace(&server, "/etc/ssl/hooks.example.com.pem", path(&certificate));
        let server = replace(&server, "/etc/ssl/hooks.example.com.key", path(&key));
        let server = replace(&server, "127.0.0.1:8080", &gateway.address().to_string());
        let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
        let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {}/{kind};\n", path(folder)))
            .collect();
        let settings = format!(
            "{user}daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{folders}{server}\n}}\n"
        );
        file("nginx.conf", &settings);
        let mut command = Command::new(proxy_program("nginx").unwrap());
        command.args(["-p", path(folder), "-c", "nginx.conf", "-e", "stderr"]).env_clear();
        let process = Process::start(command);
        let address = at(port);
        wait_until_listening(address).await;
        let client = TlsClient::new(&authority.pem(), &["http/1.1"]);
        Self { gateway, _process: process, address, client }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> HttpResponse {
        self.client.send(self.address, NAME, request).await.unwrap().0
    }

    /// What every proxy must let through unchanged.
    async fn check(&self) {
        self.check_signed_webhooks().await;
        self.check_sign_in().await;
        self.check_live_updates().await;
    }

    /// Bodies byte for byte, also a large one: the signature covers them.
    async fn check_signed_webhooks(&self) {
        let odd = "{ \"id\" : 1,\r\n\t\"a\":\"\\u00e9 é \" }".to_owned();
        let large = format!("{{\"id\":2,\"text\":\"{}\"}}", "x".repeat(5 << 20));
        for body in [odd, large] {
            std::fs::write(self.gateway.folder().join("body"), &body).unwrap();
            let secret = [("SUREHOOK_SECRET".to_owned(), "proxies-secret-0123456789".to_owned())];
            let arguments = ["sign", "github", "body"];
            let signed = run_surehook(self.gateway.folder(), &arguments, &secret).await;
            assert_eq!(signed.code, Some(0), "{signed:?}");
            let mut request = Request::post("/in/signed")
                .header("content-type", "application/json")
                .header("x-github-event", "push")
                .header("x-github-delivery", format!("delivery-{}", body.len()));
            for (name, value) in signed.stdout.lines().filter_map(|line| line.split_once(": ")) {
                request = request.header(name, value);
            }
            let response = self.send(request.body(Full::from(body)).unwrap()).await;
            assert_eq!(response.expect(200).json()["status"], "accepted");
        }
    }

    async fn check_sign_in(&self) {
        let login = Request::post("/login")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ORIGIN, format!("https://{NAME}"))
            .body(Full::from(format!("token={TOKEN}")))
            .unwrap();
        let response = self.send(login).await;
        let cookie = response.header("set-cookie");
        assert!(cookie.starts_with("__Host-surehook_session=shs_"), "{cookie} {}", response.text());
        assert!(cookie.contains("; Secure"), "{cookie}");
    }

    /// A live update arrives before the response ends.
    async fn check_live_updates(&self) {
        let request = Request::get("/api/v1/stream")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Full::default())
            .unwrap();
        let (stream, _) = self.client.open(self.address, NAME, request).await.unwrap();
        assert_eq!(stream.status(), 200);
        let mut stream = stream.into_body();
        self.gateway
            .post("/sources", &serde_json::json!({ "name": "open", "verify": "none" }))
            .await;
        self.gateway.post_accepted("open", "{}").await;
        let mut text = String::new();
        while !text.contains("event.received") {
            let frame = tokio::time::timeout(WAIT_LIMIT, stream.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("the proxy holds updates back: {text}"));
            if let Ok(data) = frame.unwrap().unwrap().into_data() {
                text.push_str(&String::from_utf8_lossy(&data));
            }
        }
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn caddy_with_the_documented_recipe_passes_everything_on() {
    if !Tool::Proxies.is_available() {
        return;
    }
    RunningProxy::caddy().await.check().await;
}

#[tokio::test]
async fn nginx_with_the_documented_recipe_passes_everything_on() {
    if !Tool::Proxies.is_available() {
        return;
    }
    RunningProxy::nginx().await.check().await;
}
