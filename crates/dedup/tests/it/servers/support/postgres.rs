//! A PostgreSQL server of its own for a test, on a free port and in a temporary folder.

use std::{
    fs::Permissions,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use super::{eventually, find_program, free_port};

/// PostgreSQL refuses to run as root; every system has this unprivileged user.
const UNPRIVILEGED: u32 = 65_534;

/// A running `postgres`. Stops when dropped.
#[derive(Debug)]
pub(crate) struct TestPostgres {
    program: PathBuf,
    folder: TempDir,
    options: Vec<String>,
    port: u16,
    child: Child,
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if getuid().is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Makes the user of the server the owner.
fn give_away(path: &Path) {
    if getuid().is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
}

impl TestPostgres {
    /// Starts a server; `None` if the test is to be skipped.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(Vec::new(), |_| {}).await
    }

    /// Starts a server that has this certificate and key, both in PEM.
    pub(crate) async fn start_with_tls(certificate: String, key: String) -> Option<Self> {
        let options = ["ssl=on", "ssl_cert_file=../server.crt", "ssl_key_file=../server.key"];
        Self::start_with(options.map(str::to_owned).to_vec(), |folder| {
            for (name, pem) in [("server.crt", certificate), ("server.key", key)] {
                let path = folder.join(name);
                std::fs::write(&path, pem).unwrap();
                std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
                give_away(&path);
            }
        })
        .await
    }

    async fn start_with(options: Vec<String>, prepare: impl FnOnce(&Path)) -> Option<Self> {
        // The unprivileged user may not be allowed to look into the folder of the links.
        let initdb = find_program("postgres", "initdb")?.canonicalize().unwrap();
        let program = find_program("postgres", "postgres")?.canonicalize().unwrap();
        let folder = tempfile::tempdir().unwrap();
        give_away(folder.path());
        prepare(folder.path());
        let status = command(&initdb)
            .current_dir(folder.path())
            .args(["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync", "--no-instructions"])
            .status()
            .unwrap();
        assert!(status.success(), "initdb failed: {status}");
        let port = free_port();
        let child = spawn(&program, folder.path(), port, &options);
        let mut server = Self { program, folder, options, port, child };
        server.wait_until_ready().await;
        Some(server)
    }

    async fn wait_until_ready(&mut self) {
        let config = self.config();
        eventually("PostgreSQL is ready", || async { connect(&config).await }).await;
        assert!(self.child.try_wait().unwrap().is_none(), "postgres exited");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn config(&self) -> Config {
        self.url().parse().unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        connect(&self.config()).await.unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Like a crash: without a checkpoint.
    pub(crate) fn stop_at_once(&mut self) {
        self.signal(Signal::QUIT);
        self.child.wait().unwrap();
    }

    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(&self.program, self.folder.path(), self.port, &self.options);
        self.wait_until_ready().await;
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

fn spawn(program: &Path, folder: &Path, port: u16, options: &[String]) -> Child {
    // The server processes of a kill test die with their process, not with the machine: without syncs
    // nothing is lost.
    command(program)
        .current_dir(folder)
        .args(["-D", "data", "-F", "-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
        .args(options.iter().flat_map(|option| ["-c", option]))
        .spawn()
        .unwrap()
}

pub(crate) async fn connect(config: &Config) -> Option<Client> {
    let (client, connection) = config.connect(NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}
