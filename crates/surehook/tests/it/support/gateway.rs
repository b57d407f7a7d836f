//! A gateway of its own for each test: `run_surehook serve` on a free port and in a fresh folder.

use std::{net::SocketAddr, path::Path, process::ExitStatus};

use bytes::Bytes;
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    process::{CommandOutput, Process, run_surehook},
    raw::RawConnection,
};

/// The admin token of every gateway that was not told otherwise.
pub(crate) const TOKEN: &str = "test-admin-token-0123456789";

/// Settings with one open source `in` and one destination `out`; `more` belongs to the latter.
pub(crate) fn route_settings(url: &str, more: &str) -> String {
    format!(
        r#"
        [[sources]]
        name = "in"
        verify = "none"

        [[routes]]
        from = "in"
        to = "out"

        [[destinations]]
        name = "out"
        url = "{url}"
        {more}
        "#
    )
}

/// How a gateway is started.
#[derive(Clone, Debug)]
pub(crate) struct GatewayBuilder {
    settings: String,
    env: Vec<(String, String)>,
    is_loopback_allowed: bool,
}

impl GatewayBuilder {
    /// TOML for the settings file; top-level keys first, as TOML wants it.
    pub(crate) fn settings(mut self, toml: &str) -> Self {
        self.settings.push_str(toml);
        self
    }

    /// One more variable in the environment of the process.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without `allow_networks`, so that the sink of the test is out of reach.
    pub(crate) fn public_networks_only(mut self) -> Self {
        self.is_loopback_allowed = false;
        self
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(self) -> Gateway {
        self.start_in(tempfile::tempdir().unwrap()).await
    }

    /// The same in a folder that may hold data already.
    pub(crate) async fn start_in(mut self, folder: TempDir) -> Gateway {
        if self.is_loopback_allowed {
            self.settings.insert_str(0, "allow_networks = [\"127.0.0.0/8\"]\n");
        }
        std::fs::write(folder.path().join("surehook.toml"), &self.settings).unwrap();
        self.env.push(("SUREHOOK_ADMIN_TOKEN".to_owned(), TOKEN.to_owned()));
        let (process, address) = serve(folder.path(), &self.env).await;
        let gateway = Gateway {
            folder,
            env: self.env,
            process,
            address,
            token: TOKEN.to_owned(),
            client: Client::new(),
        };
        gateway.wait_until_ready().await;
        gateway
    }
}

/// Starts `serve` and waits for the line with its address.
async fn serve(folder: &Path, env: &[(String, String)]) -> (Process, SocketAddr) {
    let args = ["serve", "--data", "data", "--listen", "127.0.0.1:0"];
    let process = std::sync::Mutex::new(Process::spawn(folder, &args, env));
    let address = eventually(WAIT_LIMIT, || async {
        let mut process = process.lock().unwrap();
        let printed = process.stdout.text();
        let address = printed.lines().find_map(|line| {
            line.trim_start().strip_prefix("address")?.trim().strip_prefix("http://")?.parse().ok()
        });
        if address.is_none() {
            let ended = process.try_exit_status();
            assert!(ended.is_none(), "did not start: {ended:?}\n{}", process.stderr.text());
        }
        address
    })
    .await;
    (process.into_inner().unwrap(), address)
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    folder: TempDir,
    env: Vec<(String, String)>,
    process: Process,
    address: SocketAddr,
    token: String,
    client: Client,
}

impl Gateway {
    /// A gateway that may deliver to this machine, to be told the rest.
    pub(crate) fn builder() -> GatewayBuilder {
        GatewayBuilder { settings: String::new(), env: Vec::new(), is_loopback_allowed: true }
    }

    /// A gateway as it is when nobody configured anything: the source `demo` and the inbox.
    pub(crate) async fn start() -> Self {
        Self::builder().start().await
    }

    /// A gateway with these settings.
    pub(crate) async fn start_with(toml: &str) -> Self {
        Self::builder().settings(toml).start().await
    }

    /// A gateway in an empty folder, without settings and without a token: what a newcomer starts.
    pub(crate) async fn start_unconfigured() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (process, address) = serve(folder.path(), &[]).await;
        let client = Client::new();
        let mut gateway =
            Self { folder, env: Vec::new(), process, address, token: String::new(), client };
        gateway.wait_until_ready().await;
        let printed = gateway.stdout();
        let token = printed.lines().find_map(|line| {
            line.trim_start().strip_prefix("admin token")?.split_whitespace().next()
        });
        token.unwrap_or_else(|| panic!("no token in {printed}")).clone_into(&mut gateway.token);
        gateway
    }

    async fn wait_until_ready(&self) {
        eventually(WAIT_LIMIT, || async {
            let answer = self.client.send(Method::GET, &self.url("/readyz"), &[], "").await;
            answer.ok().filter(|answer| answer.status == 200).map(drop)
        })
        .await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The folder in which the process runs; its data is in `data` below it.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What the process printed to standard output.
    pub(crate) fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// What the process logged.
    pub(crate) fn log(&self) -> String {
        self.process.stderr.text()
    }

    /// Kills the process in the middle of whatever it does.
    pub(crate) fn kill9(&mut self) {
        self.process.kill9();
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait_for_exit().await
    }

    /// Asks the process to end; [`Self::wait_for_exit`] waits for it.
    pub(crate) fn send_sigterm(&self) {
        self.process.signal(Signal::TERM);
    }

    pub(crate) async fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.wait_for_exit().await
    }

    /// Starts anew on the same data; what still runs is killed first. The port is another one.
    pub(crate) async fn restart(&mut self) {
        self.process.kill9();
        self.assert_no_panic();
        (self.process, self.address) = serve(self.folder.path(), &self.env).await;
        self.wait_until_ready().await;
    }

    /// Takes a variable out of the environment; the next start does not have it.
    pub(crate) fn remove_env(&mut self, name: &str) {
        self.env.retain(|(other, _)| other != name);
    }

    /// A connection on which anything can be written.
    pub(crate) async fn connect_raw(&self) -> RawConnection {
        RawConnection::connect(self.address).await
    }

    /// Runs another command of the binary against this gateway.
    pub(crate) async fn cli(&self, args: &[&str]) -> CommandOutput {
        let env = [
            ("SUREHOOK_SERVER".to_owned(), self.url("")),
            ("SUREHOOK_TOKEN".to_owned(), self.token.clone()),
        ];
        run_surehook(self.folder.path(), args, &env).await
    }

    /// The same, as whoever has another token.
    pub(crate) async fn cli_as(&self, token: &str, args: &[&str]) -> CommandOutput {
        let env = [
            ("SUREHOOK_SERVER".to_owned(), self.url("")),
            ("SUREHOOK_TOKEN".to_owned(), token.to_owned()),
        ];
        run_surehook(self.folder.path(), args, &env).await
    }

    /// Any request to any path, without a token.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &[u8])],
        body: impl Into<Bytes>,
    ) -> HttpResponse {
        self.client.send(method, &self.url(path), headers, body).await.unwrap()
    }

    /// A request to the API with the token; `path` is what follows `/api/v1`.
    async fn api(&self, method: Method, path: &str, body: Option<&Value>) -> HttpResponse {
        self.api_as(&self.token, method, path, body).await
    }

    /// The same as whoever has another token.
    pub(crate) async fn api_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let authorization = format!("Bearer {token}");
        let headers: [(&str, &[u8]); 2] =
            [("authorization", authorization.as_bytes()), ("content-type", b"application/json")];
        let headers = if body.is_some() { &headers[..] } else { &headers[..1] };
        let body = body.map(Value::to_string).unwrap_or_default();
        self.request(method, &format!("/api/v1{path}"), headers, body).await
    }

    /// A new token with this role.
    pub(crate) async fn create_token(&self, role: &str) -> String {
        let made = self.post("/tokens", &json!({ "role": role })).await.expect(201).json();
        made["token"].as_str().unwrap().to_owned()
    }

    /// A request with the gateway's own token and further headers, and the body as it is.
    pub(crate) async fn request_as_admin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let authorization = format!("Bearer {}", self.token);
        let mut all: Vec<(&str, &[u8])> = vec![
            ("authorization", authorization.as_bytes()),
            ("content-type", b"application/json"),
        ];
        all.extend(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
        self.request(method, &format!("/api/v1{path}"), &all, body.to_owned()).await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.api(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.api(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> HttpResponse {
        self.api(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> HttpResponse {
        self.api(Method::DELETE, path, None).await
    }

    /// Sends a webhook to a source.
    pub(crate) async fn send_webhook(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> HttpResponse {
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        self.request(Method::POST, &format!("/in/{source}"), &headers, body).await
    }

    /// Sends a webhook that must be taken in; gives back the id of its event.
    pub(crate) async fn post_accepted(&self, source: &str, body: impl Into<Bytes>) -> String {
        let answer = self.send_webhook(source, &[], body).await.expect(200);
        assert_eq!(answer.json()["status"], "accepted", "{}", answer.text());
        answer.event_id()
    }

    pub(crate) async fn stats(&self) -> Value {
        self.get("/stats").await.expect(200).json()
    }

    /// The metrics as Prometheus reads them.
    pub(crate) async fn metrics(&self) -> String {
        let authorization = format!("Bearer {}", self.token);
        let headers: [(&str, &[u8]); 1] = [("authorization", authorization.as_bytes())];
        self.request(Method::GET, "/metrics", &headers, "").await.expect(200).text()
    }

    /// One event with its deliveries.
    pub(crate) async fn event(&self, id: &str) -> Value {
        self.get(&format!("/events/{id}")).await.expect(200).json()
    }

    /// Waits until the only delivery of an event has this status; gives the delivery back.
    pub(crate) async fn wait_for_delivery(&self, event: &str, status: &str) -> Value {
        let event = self.event(event).await;
        // Of several, any may be the first.
        let [only] = event["deliveries"].as_array().unwrap().as_slice() else {
            panic!("not one delivery: {event}")
        };
        self.wait_for_delivery_status(only["id"].as_str().unwrap(), status).await
    }

    /// The id of the newest delivery of an event to a destination.
    pub(crate) async fn find_delivery_to(&self, event: &str, destination: &str) -> Option<String> {
        let event = self.event(event).await;
        let all = event["deliveries"].as_array().unwrap();
        let found = all.iter().rev().find(|delivery| delivery["destination"] == destination);
        found.map(|delivery| delivery["id"].as_str().unwrap().to_owned())
    }

    /// Waits until a delivery has this status; gives it back with its attempts.
    pub(crate) async fn wait_for_delivery_status(&self, id: &str, status: &str) -> Value {
        eventually(WAIT_LIMIT, || async {
            let delivery = self.get(&format!("/deliveries/{id}")).await.expect(200).json();
            (delivery["status"] == status).then_some(delivery)
        })
        .await
    }

    #[track_caller]
    fn assert_no_panic(&self) {
        let log = self.log();
        assert!(!log.contains("panicked"), "the gateway panicked:\n{log}");
    }
}

impl Drop for Gateway {
    #[expect(clippy::print_stderr, reason = "the log of the gateway explains a failed test")]
    fn drop(&mut self) {
        self.process.kill9();
        if std::thread::panicking() {
            eprintln!("--- stdout of the gateway\n{}--- its log\n{}", self.stdout(), self.log());
        } else {
            self.assert_no_panic();
        }
    }
}
