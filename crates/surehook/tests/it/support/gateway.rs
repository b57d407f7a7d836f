//! A separate gateway for each test: `surehook serve` on a free port in a temporary folder.

use std::{net::SocketAddr, path::Path, process::ExitStatus, time::Duration};

use bytes::Bytes;
use http::Method;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use surehook_test_servers::TestPostgres;
use tempfile::TempDir;

use super::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually,
    process::{CommandOutput, Process, run_surehook},
    raw::RawConnection,
};

/// The shell command that does nothing.
const NO_SETUP: &str = ":";

/// The variable with the URL of a database.
const DATABASE: &str = "SUREHOOK_DATABASE";
/// The key of all gateways on a database.
pub(crate) const SECRET_KEY: &str =
    "0a0b0c0d0e0f0a0b0c0d0e0f0a0b0c0d0e0f0a0b0c0d0e0f0a0b0c0d0e0f0a0b";

/// The admin token of every gateway started with settings.
pub(crate) const TOKEN: &str = "test-admin-token-0123456789";

/// Settings with an unverified source `in` routed to a destination `out`; `more` is added to the
/// destination.
pub(crate) fn route_settings(url: &str, more: &str) -> String {
    Route { destination: &format!("url = \"{url}\"\n{more}"), ..Route::default() }.settings()
}

/// Like [`route_settings`], but `/id` is a key that the operator chose: another body with the same id is
/// a duplicate.
pub(crate) fn keyed_route_settings(url: &str) -> String {
    let source = "verify = \"none\"\nkeys = [\"pointer:/id\"]";
    Route { source, destination: &format!("url = \"{url}\""), ..Route::default() }.settings()
}

/// A source `in` routed to a destination `out`; each field is added to its part of the settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<'a> {
    pub(crate) source: &'a str,
    pub(crate) route: &'a str,
    pub(crate) destination: &'a str,
}

impl Default for Route<'_> {
    fn default() -> Self {
        Self { source: "verify = \"none\"", route: "", destination: "" }
    }
}

impl Route<'_> {
    pub(crate) fn settings(&self) -> String {
        let Self { source, route, destination } = self;
        format!(
            r#"
            [[sources]]
            name = "in"
            {source}

            [[routes]]
            from = "in"
            to = "out"
            {route}

            [[destinations]]
            name = "out"
            {destination}
            "#
        )
    }
}

#[derive(Clone, Debug)]
pub(crate) struct GatewayBuilder {
    settings: String,
    env: Vec<(String, String)>,
    setup: String,
    is_loopback_allowed: bool,
}

impl GatewayBuilder {
    /// Appends TOML to the settings file; top-level keys must come first.
    pub(crate) fn settings(mut self, toml: &str) -> Self {
        self.settings.push_str(toml);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(other, _)| other != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Uses a PostgreSQL database instead of a data folder.
    pub(crate) fn database(self, url: &str) -> Self {
        self.env(DATABASE, url).env("SUREHOOK_SECRET_KEY", SECRET_KEY)
    }

    /// Runs commands of the shell before the gateway, such as `ulimit -n 256`.
    pub(crate) fn setup(mut self, commands: &str) -> Self {
        commands.clone_into(&mut self.setup);
        self
    }

    /// Leaves out `allow_networks`, so that the sink of the test cannot be reached.
    pub(crate) fn public_networks_only(mut self) -> Self {
        self.is_loopback_allowed = false;
        self
    }

    /// Starts the gateway and waits until it is ready.
    pub(crate) async fn start(self) -> Gateway {
        self.start_in(tempfile::tempdir().unwrap()).await
    }

    /// Like [`Self::start`], in a folder that may already contain data.
    pub(crate) async fn start_in(mut self, folder: TempDir) -> Gateway {
        if self.is_loopback_allowed {
            self.settings.insert_str(0, "allow_networks = [\"127.0.0.0/8\"]\n");
        }
        std::fs::write(folder.path().join("surehook.toml"), &self.settings).unwrap();
        self.env.push(("SUREHOOK_ADMIN_TOKEN".to_owned(), TOKEN.to_owned()));
        let (process, address) = serve(&self.setup, folder.path(), &self.env).await;
        let gateway = Gateway {
            folder,
            env: self.env,
            setup: self.setup,
            process,
            address,
            token: TOKEN.to_owned(),
            client: Client::new(),
        };
        gateway.wait_until_ready().await;
        gateway
    }
}

/// Starts `serve` and waits until it prints its address.
async fn serve(setup: &str, folder: &Path, env: &[(String, String)]) -> (Process, SocketAddr) {
    match try_serve(setup, folder, env).await {
        Ok(started) => started,
        Err(refused) => panic!("did not start: {refused:?}"),
    }
}

/// Like [`serve`]; if the process exits instead, returns its output.
async fn try_serve(
    setup: &str,
    folder: &Path,
    env: &[(String, String)],
) -> Result<(Process, SocketAddr), CommandOutput> {
    let is_on_database = env.iter().any(|(name, _)| name == DATABASE);
    let data: &[&str] = if is_on_database { &[] } else { &["--data", "data"] };
    let args = [&["serve", "--listen", "127.0.0.1:0"], data].concat();
    let process = std::sync::Mutex::new(Process::spawn_after(setup, folder, &args, env));
    let started = eventually(WAIT_LIMIT, || async {
        let mut process = process.lock().unwrap();
        let stdout = process.stdout.text();
        let address = stdout.lines().find_map(|line| {
            line.trim_start().strip_prefix("address")?.trim().strip_prefix("http://")?.parse().ok()
        });
        match address {
            Some(address) => Some(Ok(address)),
            None => process.try_exit_status().map(Err),
        }
    })
    .await;
    let mut process = process.into_inner().unwrap();
    match started {
        Ok(address) => Ok((process, address)),
        Err(exit) => {
            process.wait_for_exit().await;
            let (stdout, stderr) = (process.stdout.text(), process.stderr.text());
            Err(CommandOutput { code: exit.code(), stdout, stderr })
        }
    }
}

#[derive(Debug)]
pub(crate) struct Gateway {
    folder: TempDir,
    env: Vec<(String, String)>,
    setup: String,
    process: Process,
    address: SocketAddr,
    token: String,
    client: Client,
}

impl Gateway {
    /// Builds a gateway that may deliver to loopback addresses.
    pub(crate) fn builder() -> GatewayBuilder {
        GatewayBuilder {
            settings: String::new(),
            env: Vec::new(),
            setup: NO_SETUP.to_owned(),
            is_loopback_allowed: true,
        }
    }

    /// Starts a gateway with the default configuration: the source `demo` and the inbox.
    pub(crate) async fn start() -> Self {
        Self::builder().start().await
    }

    /// Starts a gateway with these settings.
    pub(crate) async fn start_with(toml: &str) -> Self {
        Self::builder().settings(toml).start().await
    }

    /// Starts a gateway in an empty folder without settings and token, as a new user does.
    pub(crate) async fn start_unconfigured() -> Self {
        let gateway = Self::start_unconfigured_with(Vec::new()).await;
        assert!(!gateway.token.is_empty(), "no token in {}", gateway.stdout());
        gateway
    }

    /// Like [`Self::start_unconfigured`], on a database that others may have been started on: without a
    /// token if it did not print one.
    pub(crate) async fn start_unconfigured_on(server: &TestPostgres) -> Self {
        let env = [(DATABASE, server.url()), ("SUREHOOK_SECRET_KEY", SECRET_KEY.to_owned())];
        Self::start_unconfigured_with(env.map(|(name, value)| (name.to_owned(), value)).to_vec())
            .await
    }

    async fn start_unconfigured_with(env: Vec<(String, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (process, address) = serve(NO_SETUP, folder.path(), &env).await;
        let mut gateway = Self {
            folder,
            env,
            setup: NO_SETUP.to_owned(),
            process,
            address,
            token: String::new(),
            client: Client::new(),
        };
        gateway.wait_until_ready().await;
        let stdout = gateway.stdout();
        let token = stdout.lines().find_map(|line| {
            line.trim_start().strip_prefix("admin token")?.split_whitespace().next()
        });
        let token = token.unwrap_or_default();
        (if token == "unchanged" { "" } else { token }).clone_into(&mut gateway.token);
        gateway
    }

    async fn wait_until_ready(&self) {
        eventually(WAIT_LIMIT, || async {
            let response = self.client.send(Method::GET, &self.url("/readyz"), &[], "").await;
            response.ok().filter(|response| response.status == 200).map(drop)
        })
        .await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The working folder of the process; its data is in the subfolder `data`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr.text()
    }

    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill9(&mut self) {
        self.process.kill9();
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait_for_exit().await
    }

    pub(crate) fn send_sigterm(&self) {
        self.process.signal(Signal::TERM);
    }

    pub(crate) async fn wait_for_exit(&mut self) -> ExitStatus {
        self.process.wait_for_exit().await
    }

    /// Restarts on the same data, on another port; a running process is killed first.
    pub(crate) async fn restart(&mut self) {
        self.process.kill9();
        self.assert_no_panic();
        (self.process, self.address) = serve(&self.setup, self.folder.path(), &self.env).await;
        self.wait_until_ready().await;
    }

    /// Sets an environment variable; takes effect at the next start.
    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.remove_env(name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Like [`Self::restart`], of a gateway that may refuse to start; returns its output then.
    pub(crate) async fn try_restart(&mut self) -> Result<(), CommandOutput> {
        self.process.kill9();
        self.assert_no_panic();
        (self.process, self.address) =
            try_serve(&self.setup, self.folder.path(), &self.env).await?;
        self.wait_until_ready().await;
        Ok(())
    }

    /// Sends a request that may get no answer, because the gateway ends.
    pub(crate) async fn try_send_webhook(
        &self,
        source: &str,
        body: impl Into<Bytes>,
    ) -> Option<HttpResponse> {
        self.client.send(Method::POST, &self.url(&format!("/in/{source}")), &[], body).await.ok()
    }

    /// Removes an environment variable; takes effect at the next start.
    pub(crate) fn remove_env(&mut self, name: &str) {
        self.env.retain(|(other, _)| other != name);
    }

    /// Opens a connection for arbitrary bytes.
    pub(crate) async fn connect_raw(&self) -> RawConnection {
        RawConnection::connect(self.address).await
    }

    /// Like [`Self::connect_raw`], from another address of the loopback network.
    pub(crate) async fn connect_raw_from(&self, local: [u8; 4]) -> RawConnection {
        RawConnection::connect_from(local, self.address).await
    }

    /// Resident memory of the process.
    pub(crate) fn rss_bytes(&self) -> u64 {
        self.process.rss_bytes()
    }

    /// The highest resident memory of the process so far.
    pub(crate) fn peak_rss_bytes(&self) -> u64 {
        self.process.peak_rss_bytes()
    }

    /// Runs a CLI command against this gateway.
    pub(crate) async fn cli(&self, args: &[&str]) -> CommandOutput {
        self.cli_as(&self.token, args).await
    }

    /// Like [`Self::cli`], with another token.
    pub(crate) async fn cli_as(&self, token: &str, args: &[&str]) -> CommandOutput {
        let env = [
            ("SUREHOOK_SERVER".to_owned(), self.url("")),
            ("SUREHOOK_TOKEN".to_owned(), token.to_owned()),
        ];
        run_surehook(self.folder.path(), args, &env).await
    }

    /// Sends a request to any path, without a token.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &[u8])],
        body: impl Into<Bytes>,
    ) -> HttpResponse {
        self.client.send(method, &self.url(path), headers, body).await.unwrap()
    }

    /// Calls the API with the gateway's token; `path` follows `/api/v1`.
    async fn api(&self, method: Method, path: &str, body: Option<&Value>) -> HttpResponse {
        self.api_as(&self.token, method, path, body).await
    }

    /// Calls the API with another token.
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

    /// Creates a token with this role.
    pub(crate) async fn create_token(&self, role: &str) -> String {
        let created = self.post("/tokens", &json!({ "role": role })).await.expect(201).json();
        created["token"].as_str().unwrap().to_owned()
    }

    /// Calls the API with the gateway's token, further headers and this exact body.
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

    /// Sends a webhook, asserts that it is accepted and returns the event id.
    pub(crate) async fn post_accepted(&self, source: &str, body: impl Into<Bytes>) -> String {
        let response = self.send_webhook(source, &[], body).await.expect(200);
        assert_eq!(response.json()["status"], "accepted", "{}", response.text());
        response.event_id()
    }

    /// Reads the rows of a list.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let Value::Array(rows) = self.get(path).await.expect(200).json()["data"].take() else {
            panic!("{path} is not a list")
        };
        rows
    }

    /// Reads the delivery state of a destination.
    pub(crate) async fn destination_state(&self, name: &str) -> Value {
        self.get(&format!("/destinations/{name}")).await.expect(200).json()["state"].take()
    }

    /// The nodes of the store with what they own.
    pub(crate) async fn nodes_report(&self) -> Value {
        self.get("/nodes").await.expect(200).json()
    }

    pub(crate) async fn stats(&self) -> Value {
        self.get("/stats").await.expect(200).json()
    }

    /// Waits until the totals fulfil a condition and returns them.
    pub(crate) async fn wait_for_stats(
        &self,
        deadline: Duration,
        is_met: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(deadline, || async { Some(self.stats().await).filter(&is_met) }).await
    }

    /// Waits until this many deliveries have a status.
    pub(crate) async fn wait_for_count(&self, status: &str, count: usize) {
        self.wait_for_stats(WAIT_LIMIT, |stats| stats["by_status"][status] == count).await;
    }

    /// Waits until no delivery is left to attempt.
    pub(crate) async fn wait_until_idle(&self) {
        let is_idle = |stats: &Value| {
            ["pending", "in_flight", "scheduled"]
                .iter()
                .all(|status| stats["by_status"][status] == 0)
        };
        self.wait_for_stats(WAIT_LIMIT, is_idle).await;
    }

    pub(crate) async fn metrics(&self) -> String {
        let authorization = format!("Bearer {}", self.token);
        let headers: [(&str, &[u8]); 1] = [("authorization", authorization.as_bytes())];
        self.request(Method::GET, "/metrics", &headers, "").await.expect(200).text()
    }

    /// Waits until the memory used for bodies, in bytes, is as expected.
    pub(crate) async fn wait_for_body_memory(&self, is_expected: impl Fn(u64) -> bool) {
        eventually(WAIT_LIMIT, || async {
            let metrics = self.metrics().await;
            let mut values = metrics
                .lines()
                .filter_map(|line| line.strip_prefix("surehook_bodies_in_memory_bytes "));
            values.next()?.parse().ok().filter(|bytes| is_expected(*bytes)).map(drop)
        })
        .await;
    }

    /// Reads an event with its deliveries.
    pub(crate) async fn event(&self, id: &str) -> Value {
        self.get(&format!("/events/{id}")).await.expect(200).json()
    }

    /// Waits until the only delivery of an event has this status and returns the delivery.
    pub(crate) async fn wait_for_delivery(&self, event: &str, status: &str) -> Value {
        let event = self.event(event).await;
        // The order of several deliveries is not defined.
        let [only] = event["deliveries"].as_array().unwrap().as_slice() else {
            panic!("not one delivery: {event}")
        };
        self.wait_for_delivery_status(only["id"].as_str().unwrap(), status).await
    }

    /// Finds the newest delivery of an event to a destination and returns its id.
    pub(crate) async fn find_delivery_to(&self, event: &str, destination: &str) -> Option<String> {
        let event = self.event(event).await;
        let all = event["deliveries"].as_array().unwrap();
        let newest = all.iter().rev().find(|delivery| delivery["destination"] == destination);
        newest.map(|delivery| delivery["id"].as_str().unwrap().to_owned())
    }

    /// Waits until a delivery has this status and returns it with its attempts.
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
