//! A PostgreSQL server of its own for a test, on a free port and in a temporary folder.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::{command, find_programs, free_port, give_away, run_initdb};

/// More than anything here takes on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A running `postgres`. Stops when dropped.
#[derive(Debug)]
pub struct TestPostgres {
    programs: PathBuf,
    folder: TempDir,
    options: Vec<String>,
    port: u16,
    child: Child,
}

impl TestPostgres {
    /// Starts a server that syncs nothing: its processes die in a test, not the machine. `None` if the test
    /// is to be skipped.
    pub async fn start() -> Option<Self> {
        Self::start_with(&["fsync=off"]).await
    }

    /// Starts a server with these settings, such as `max_connections=20`. The gateway refuses one without
    /// syncs.
    pub async fn start_with(options: &[&str]) -> Option<Self> {
        Self::start_prepared(options, |_| {}).await
    }

    /// Starts a server that has this certificate and key, both in PEM.
    pub async fn start_with_tls(certificate: String, key: String) -> Option<Self> {
        let options =
            ["fsync=off", "ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key"];
        Self::start_prepared(&options, |folder| {
            for (name, pem) in [("server.crt", certificate), ("server.key", key)] {
                let path = folder.join(name);
                std::fs::write(&path, pem).unwrap();
                std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
                give_away(&path);
            }
        })
        .await
    }

    async fn start_prepared(options: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        let programs = find_programs()?;
        let folder = new_folder();
        prepare(folder.path());
        run_initdb(&programs, folder.path());
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Some(Self::run(programs, folder, options).await)
    }

    /// Starts a standby of this server that replicates under `name`.
    pub async fn start_standby(&self, name: &str) -> Self {
        let folder = new_folder();
        let upstream =
            format!("postgres://postgres@127.0.0.1:{}/?application_name={name}", self.port);
        let backup = command(&self.programs.join("pg_basebackup"))
            .current_dir(folder.path())
            .args(["-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &upstream])
            .status()
            .unwrap();
        assert!(backup.success(), "pg_basebackup failed: {backup}");
        // The settings of the former primary are not those of a standby.
        let overrides = folder.path().join("data/postgresql.auto.conf");
        let kept: String = std::fs::read_to_string(&overrides)
            .unwrap()
            .lines()
            .filter(|line| !line.starts_with("synchronous_standby_names"))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(&overrides, kept).unwrap();
        Self::run(self.programs.clone(), folder, self.options.clone()).await
    }

    async fn run(programs: PathBuf, folder: TempDir, options: Vec<String>) -> Self {
        let port = free_port();
        let child = spawn(&programs, folder.path(), port, &options);
        let mut server = Self { programs, folder, options, port, child };
        server.wait_until_ready().await;
        server
    }

    async fn wait_until_ready(&mut self) {
        let config = self.config();
        let started = Instant::now();
        while connect(&config).await.is_none() {
            assert!(started.elapsed() < WAIT_LIMIT, "PostgreSQL does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(self.child.try_wait().unwrap().is_none(), "postgres exited");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub fn config(&self) -> Config {
        self.url().parse().unwrap()
    }

    pub async fn client(&self) -> Client {
        connect(&self.config()).await.unwrap()
    }

    /// Runs statements on a connection of their own.
    pub async fn execute(&self, sql: &str) {
        self.client().await.batch_execute(sql).await.unwrap();
    }

    /// Makes commits wait for the standby of this name, or for none, and waits until it holds.
    pub async fn wait_for_standby(&self, name: Option<&str>) {
        let names = name.unwrap_or_default();
        let client = self.client().await;
        let change = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
        client.batch_execute(&change).await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let is_synchronous = "SELECT count(*) FROM pg_stat_replication
            WHERE sync_state = 'sync' AND state = 'streaming' AND replay_lsn IS NOT NULL";
        let started = Instant::now();
        while name.is_some() {
            let count: i64 = client.query_one(is_synchronous, &[]).await.unwrap().get(0);
            if count > 0 {
                break;
            }
            assert!(started.elapsed() < WAIT_LIMIT, "the standby does not follow");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes a standby the primary.
    pub async fn promote(&self) {
        let client = self.client().await;
        let promoted: bool =
            client.query_one("SELECT pg_promote(true, 60)", &[]).await.unwrap().get(0);
        assert!(promoted, "the standby was not promoted in time");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Like a crash: without a checkpoint.
    pub fn stop_at_once(&mut self) {
        self.signal(Signal::QUIT);
        self.child.wait().unwrap();
    }

    /// `kill -9` of the server: its sessions find out by themselves that it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    pub async fn start_again(&mut self) {
        // After kill -9, sessions of the old server may still use the shared memory: the start is refused.
        let started = Instant::now();
        loop {
            self.child = spawn(&self.programs, self.folder.path(), self.port, &self.options);
            let config = self.config();
            while self.child.try_wait().unwrap().is_none() {
                if connect(&config).await.is_some() {
                    return;
                }
                assert!(started.elapsed() < WAIT_LIMIT, "PostgreSQL does not start again");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(started.elapsed() < WAIT_LIMIT, "PostgreSQL does not start again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        // Its processes end together, and the folder can be removed.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::QUIT);
        }
        drop(self.child.wait());
    }
}

fn new_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    give_away(folder.path());
    folder
}

fn spawn(programs: &Path, folder: &Path, port: u16, options: &[String]) -> Child {
    command(&programs.join("postgres"))
        .current_dir(folder)
        .args(["-D", "data", "-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
        .args(options.iter().flat_map(|option| ["-c", option]))
        .spawn()
        .unwrap()
}

/// A connection, if the server accepts one.
pub async fn connect(config: &Config) -> Option<Client> {
    let (client, connection) = config.connect(NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}
