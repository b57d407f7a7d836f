//! A separate Redis server for each test, and a fake one with fixed replies.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{
    WAIT_LIMIT, eventually, free_port,
    tls::CertificateAuthority,
    tools::{Tool, redis_server},
};

/// A running `redis-server`. Stops when dropped.
#[derive(Debug)]
pub(crate) struct TestRedis {
    program: PathBuf,
    folder: TempDir,
    options: Vec<String>,
    port: u16,
    child: Child,
}

impl TestRedis {
    /// Starts a server on a free port with further options; `None` if the test is to be skipped.
    pub(crate) async fn start(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, options.iter().map(|&option| option.to_owned()).collect()).await
    }

    /// Starts a server that accepts only TLS, with a certificate for `localhost`.
    pub(crate) async fn with_tls(authority: &CertificateAuthority) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = authority.issue_server_certificate(&["localhost"]);
        let mut options = Vec::new();
        for (option, name, pem) in [
            ("--tls-cert-file", "cert.pem", certificate),
            ("--tls-key-file", "key.pem", key),
            ("--tls-ca-cert-file", "ca.pem", authority.pem()),
        ] {
            std::fs::write(folder.path().join(name), pem).unwrap();
            options.extend([option.to_owned(), name.to_owned()]);
        }
        options.extend(["--tls-auth-clients", "no", "--tls-port"].map(str::to_owned));
        Self::start_in(folder, options).await
    }

    async fn start_in(folder: TempDir, options: Vec<String>) -> Option<Self> {
        if !Tool::Redis.is_available() {
            return None;
        }
        let program = redis_server()?;
        let port = free_port();
        let child = spawn(&program, folder.path(), &options, port);
        let mut redis = Self { program, folder, options, port, child };
        redis.wait_until_listening().await;
        Some(redis)
    }

    async fn wait_until_listening(&mut self) {
        let port = self.port;
        eventually(WAIT_LIMIT, || async {
            TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
        assert!(self.child.try_wait().unwrap().is_none(), "redis-server exited");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a signal, for example to stop and continue the server.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again on the same port, without data.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(&self.program, self.folder.path(), &self.options, self.port);
        self.wait_until_listening().await;
    }

    /// Runs a command in database 0.
    pub(crate) async fn run_command(&self, words: &[&str]) -> redis::Value {
        self.run_command_in(0, words).await
    }

    async fn run_command_in(&self, database: u32, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(format!("{}/{database}", self.url())).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let (command, arguments) = words.split_first().unwrap();
        redis::cmd(command).arg(arguments).query_async(&mut connection).await.unwrap()
    }

    /// Reads the entries of a stream, each with its fields in order.
    pub(crate) async fn read_entries(&self, stream: &str) -> Vec<Vec<(String, Vec<u8>)>> {
        self.read_entries_of(0, stream).await
    }

    /// Like [`Self::read_entries`], from another database.
    pub(crate) async fn read_entries_of(
        &self,
        database: u32,
        stream: &str,
    ) -> Vec<Vec<(String, Vec<u8>)>> {
        let range = self.run_command_in(database, &["XRANGE", stream, "-", "+"]).await;
        let entries: Vec<(String, Vec<Vec<u8>>)> = redis::from_redis_value(range).unwrap();
        let fields = |fields: Vec<Vec<u8>>| {
            fields
                .chunks(2)
                .map(|pair| (String::from_utf8(pair[0].clone()).unwrap(), pair[1].clone()))
                .collect()
        };
        entries.into_iter().map(|(_, all)| fields(all)).collect()
    }

    /// Counts the connections whose last command was `XADD`.
    pub(crate) async fn count_xadd_connections(&self) -> usize {
        let clients: String =
            redis::from_redis_value(self.run_command(&["CLIENT", "LIST"]).await).unwrap();
        clients.lines().filter(|client| client.contains("cmd=xadd")).count()
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn spawn(program: &Path, folder: &Path, options: &[String], port: u16) -> Child {
    let port = port.to_string();
    let mut command = Command::new(program);
    // A server with TLS has `--tls-port` as its last option, followed by the port.
    match options.last().map(String::as_str) {
        Some("--tls-port") => command.args(["--port", "0"]).args(options).arg(&port),
        Some(_) | None => command.args(["--port", &port]).args(options),
    };
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The reaction of a fake server to each command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FakeRedisReply {
    /// Replies with these bytes.
    Reply(&'static [u8]),
    /// Sends these bytes again and again.
    ReplyEndlessly(&'static [u8]),
    /// Reads and never replies.
    Silence,
    /// Closes the connection at the first command.
    Close,
}

/// A server with fixed replies instead of Redis. Stops when dropped.
#[derive(Debug)]
pub(crate) struct FakeRedis {
    port: u16,
    calls: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl FakeRedis {
    pub(crate) async fn start(reply: FakeRedisReply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve_fake_redis(stream, reply));
            }
        });
        Self { port, calls, accepting }
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for FakeRedis {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve_fake_redis(mut stream: TcpStream, reply: FakeRedisReply) {
    let mut command = vec![0; 64 * 1024];
    while stream.read(&mut command).await.is_ok_and(|bytes| bytes > 0) {
        let written = match reply {
            FakeRedisReply::Reply(bytes) => stream.write_all(bytes).await,
            FakeRedisReply::ReplyEndlessly(bytes) => loop {
                if let Err(error) = stream.write_all(bytes).await {
                    break Err(error);
                }
            },
            FakeRedisReply::Silence => Ok(()),
            FakeRedisReply::Close => return,
        };
        if written.is_err() {
            return;
        }
    }
}
