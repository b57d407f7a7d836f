//! The measured gateway: its configuration, process and data folder.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::control;
use crate::request::random_u64;
use crate::server_process::{ServerProcess, free_addr};

/// A gateway with an empty store starts at once; later than this means that it failed.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// A gateway that was killed with a large store may need to recover much data.
const RESTART_TIMEOUT: Duration = Duration::from_secs(300);
/// Concurrent deliveries to one destination.
const DESTINATION_CONCURRENCY: usize = 64;

/// The settings file of the gateway.
#[derive(Debug)]
pub(crate) struct GatewayConfig(String);

impl Default for GatewayConfig {
    fn default() -> Self {
        Self("allow_networks = [\"127.0.0.0/8\"]\n".to_owned())
    }
}

impl GatewayConfig {
    pub(crate) fn source(self, name: &str) -> Self {
        self.source_with(name, "provider = \"generic\"\nverify = \"none\"")
    }

    pub(crate) fn source_with(self, name: &str, settings: &str) -> Self {
        self.with(&format!("[[sources]]\nname = \"{name}\"\n{settings}"))
    }

    /// A source and a destination, connected by a route.
    pub(crate) fn connected(self, source: &str, destination: &str, addr: SocketAddr) -> Self {
        let settings = format!("url = \"http://{addr}/\"\nconcurrency = {DESTINATION_CONCURRENCY}");
        self.source(source).destination_with(destination, &settings).route(source, destination)
    }

    pub(crate) fn destination_with(self, name: &str, settings: &str) -> Self {
        self.with(&format!("[[destinations]]\nname = \"{name}\"\n{settings}"))
    }

    pub(crate) fn route(self, source: &str, destination: &str) -> Self {
        self.with(&format!("[[routes]]\nfrom = \"{source}\"\nto = \"{destination}\""))
    }

    fn with(mut self, toml: &str) -> Self {
        self.0.push_str(&format!("\n{toml}\n"));
        self
    }
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) child: ServerProcess,
    launch: GatewayLaunch,
}

impl Gateway {
    /// Starts a gateway with an empty store in `folder`, which does not exist yet, and waits
    /// until it is ready.
    pub(crate) async fn start(exe: &Path, folder: PathBuf, config: &GatewayConfig) -> Result<Self> {
        fs::create_dir(&folder)?;
        Self::open(exe, folder, config, None, START_TIMEOUT).await
    }

    /// Starts a node on a project of a database, which may be empty.
    pub(crate) async fn start_node(
        exe: &Path,
        folder: PathBuf,
        config: &GatewayConfig,
        project: &DatabaseProject,
    ) -> Result<Self> {
        Self::open(exe, folder, config, Some(project.clone()), START_TIMEOUT).await
    }

    /// Starts a gateway with the store that an earlier one left in `folder`, or with an empty one.
    pub(crate) async fn reopen(
        exe: &Path,
        folder: PathBuf,
        config: &GatewayConfig,
    ) -> Result<Self> {
        Self::open(exe, folder, config, None, RESTART_TIMEOUT).await
    }

    async fn open(
        exe: &Path,
        folder: PathBuf,
        config: &GatewayConfig,
        project: Option<DatabaseProject>,
        timeout: Duration,
    ) -> Result<Self> {
        fs::create_dir_all(folder.join("data"))
            .with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(folder.join("surehook.toml"), &config.0)?;
        // All nodes of a project have the same.
        let token = project.as_ref().map_or_else(random_hex, |project| project.token.clone());
        let launch =
            GatewayLaunch { exe: exe.to_owned(), folder, addr: free_addr()?, token, project };
        let mut child = launch.start()?;
        child.wait_until_ready("/readyz", timeout).await?;
        Ok(Self { child, launch })
    }

    /// Kills the gateway with SIGKILL and starts it on the same folder. Returns the time from the
    /// start until it was ready.
    pub(crate) async fn kill_and_restart(&mut self) -> Result<Duration> {
        self.child.kill().context("cannot kill the gateway")?;
        let started_at = Instant::now();
        self.child = self.launch.start()?;
        self.child.wait_until_ready("/readyz", RESTART_TIMEOUT).await?;
        Ok(started_at.elapsed())
    }

    /// Calls the gateway's API; fails unless the status is 2xx.
    pub(crate) async fn api(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let authorization = format!("Bearer {}", self.launch.token);
        let headers =
            [("authorization", authorization.as_str()), ("content-type", "application/json")];
        let body = body.map(Value::to_string).unwrap_or_default();
        let response = control::call_with(self.launch.addr, method, path, &headers, body).await?;
        let (status, text) = (response.status(), String::from_utf8_lossy(response.body()));
        ensure!(status.is_success(), "{method} {path} answered {status}: {text}");
        serde_json::from_str(&text)
            .with_context(|| format!("{method} {path} did not return JSON: {text}"))
    }

    /// Signs in to the dashboard as the administrator and returns the session cookie.
    pub(crate) async fn sign_in(&self) -> Result<String> {
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("sec-fetch-site", "same-origin"),
        ];
        let form = format!("token={}", self.launch.token);
        let response =
            control::call_with(self.launch.addr, "POST", "/login", &headers, form).await?;
        ensure!(response.status() == 303, "POST /login answered {}", response.status());
        let cookie = response.headers().get("set-cookie").context("POST /login set no cookie")?;
        let cookie = cookie.to_str()?;
        Ok(cookie.split(';').next().unwrap_or(cookie).to_owned())
    }

    pub(crate) fn token(&self) -> &str {
        &self.launch.token
    }

    /// Size of all files in the data folder, without the space that is reserved for a full disk.
    pub(crate) fn data_bytes(&self) -> Result<u64> {
        let data = self.launch.folder.join("data");
        let reserved = fs::metadata(data.join("reserve")).map_or(0, |meta| meta.len());
        Ok(folder_bytes(&data)?.saturating_sub(reserved))
    }
}

/// Everything needed to start the same gateway again.
#[derive(Debug)]
struct GatewayLaunch {
    exe: PathBuf,
    folder: PathBuf,
    addr: SocketAddr,
    token: String,
    project: Option<DatabaseProject>,
}

/// A project of a database: the store of one gateway, or of several nodes.
#[derive(Clone)]
pub(crate) struct DatabaseProject {
    url: String,
    name: String,
    secret_key: String,
    token: String,
}

/// Without the URL, which may have a password.
impl fmt::Debug for DatabaseProject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseProject").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DatabaseProject {
    pub(crate) fn new(url: &str) -> Self {
        let name = format!("bench_{:016x}", random_u64());
        let secret_key = format!("{}{}", random_hex(), random_hex());
        Self { url: url.to_owned(), name, secret_key, token: random_hex() }
    }

    /// Names it in the environment: arguments are shown in the list of processes.
    fn set_environment(&self, command: &mut Command) {
        command.env("SUREHOOK_DATABASE", &self.url);
        command.env("SUREHOOK_POSTGRES__PROJECT", &self.name);
        command.env("SUREHOOK_SECRET_KEY", &self.secret_key);
    }

    /// Removes its tables. No node may run.
    pub(crate) fn remove(&self, exe: &Path) -> Result<()> {
        let mut command = new_command(exe);
        command.arg("bench-cleanup");
        self.set_environment(&mut command);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the tables of {} are left: {text}", self.name);
        Ok(())
    }
}

fn random_hex() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}

/// Settings from the shell would make the result impossible to compare with another run.
fn new_command(exe: &Path) -> Command {
    let mut command = Command::new(exe);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"SUREHOOK_") {
            command.env_remove(name);
        }
    }
    command
}

impl GatewayLaunch {
    fn start(&self) -> Result<ServerProcess> {
        let mut command = new_command(&self.exe);
        command.arg("serve");
        command.arg("--config").arg(self.folder.join("surehook.toml"));
        match &self.project {
            Some(project) => project.set_environment(&mut command),
            None => {
                command.arg("--data").arg(self.folder.join("data"));
            }
        }
        command.arg("--listen").arg(self.addr.to_string());
        command.env("SUREHOOK_ADMIN_TOKEN", &self.token);
        ServerProcess::start("gateway", &mut command, self.addr, &self.folder.join("gateway.log"))
    }
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() { folder_bytes(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_matches_the_documented_format() {
        let sink = SocketAddr::from(([127, 0, 0, 1], 9000));
        let config =
            GatewayConfig::default().source("in-only").connected("delivered", "sink", sink);
        let expected = r#"allow_networks = ["127.0.0.0/8"]

[[sources]]
name = "in-only"
provider = "generic"
verify = "none"

[[sources]]
name = "delivered"
provider = "generic"
verify = "none"

[[destinations]]
name = "sink"
url = "http://127.0.0.1:9000/"
concurrency = 64

[[routes]]
from = "delivered"
to = "sink"
"#;
        assert_eq!(config.0, expected);
    }

    #[test]
    fn folder_size_is_the_sum_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("a"), [0; 10]).unwrap();
        fs::write(folder.path().join("inner/b"), [0; 5]).unwrap();
        assert_eq!(folder_bytes(folder.path()).unwrap(), 15);
    }
}
