//! A Redis server of its own for a test, on a free port.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{eventually, find_program, free_port};

/// A running `redis-server`. Stops when dropped.
#[derive(Debug)]
pub(crate) struct TestRedis {
    program: PathBuf,
    folder: TempDir,
    arguments: Vec<String>,
    port: u16,
    child: Child,
}

impl TestRedis {
    /// Starts a server that stores nothing on disk, with further options; `None` if the test is to be
    /// skipped.
    pub(crate) async fn start(options: &[&str]) -> Option<Self> {
        let port = free_port();
        let mut arguments = vec!["--port".to_owned(), port.to_string()];
        arguments.extend(["--save", "", "--bind", "127.0.0.1"].map(str::to_owned));
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        Self::launch(port, arguments, |_| {}).await
    }

    /// Starts a Sentinel with this configuration.
    pub(crate) async fn start_sentinel(configuration: &str) -> Option<Self> {
        let port = free_port();
        let text = format!("port {port}\nbind 127.0.0.1\n{configuration}");
        let arguments = vec!["sentinel.conf".to_owned(), "--sentinel".to_owned()];
        Self::launch(port, arguments, |folder| {
            std::fs::write(folder.path().join("sentinel.conf"), text).unwrap();
        })
        .await
    }

    async fn launch(
        port: u16,
        arguments: Vec<String>,
        prepare: impl FnOnce(&TempDir),
    ) -> Option<Self> {
        let program = find_program("redis", "redis-server")?;
        let folder = tempfile::tempdir().unwrap();
        prepare(&folder);
        let child = spawn(&program, &folder, &arguments);
        let mut server = Self { program, folder, arguments, port, child };
        server.wait_until_ready().await;
        Some(server)
    }

    async fn wait_until_ready(&mut self) {
        let client = redis::Client::open(self.url()).unwrap();
        let ping = || async {
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("PING").query_async::<String>(&mut connection).await.ok()
        };
        eventually("Redis is ready", ping).await;
        assert!(self.child.try_wait().unwrap().is_none(), "redis-server exited");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, without data unless its options say otherwise.
    pub(crate) async fn start_again(&mut self) {
        self.launch_again();
        self.wait_until_ready().await;
    }

    /// Starts it again without waiting until it can be used.
    pub(crate) fn launch_again(&mut self) {
        self.child = spawn(&self.program, &self.folder, &self.arguments);
    }

    /// Whether it still reads its data and refuses all commands.
    pub(crate) async fn is_loading(&self) -> bool {
        let client = redis::Client::open(self.url()).unwrap();
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
            return false;
        };
        let answer: redis::RedisResult<redis::Value> =
            redis::cmd("GET").arg("key").query_async(&mut connection).await;
        answer.is_err_and(|error| error.code() == Some("LOADING"))
    }

    /// Runs a command on a connection of its own.
    pub(crate) async fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).await.unwrap()
    }

    /// Runs a command on a server that may drop its connections, as one does that changes its role.
    pub(crate) async fn try_run<T: redis::FromRedisValue>(
        &self,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let (command, arguments) = words.split_first().unwrap();
        redis::cmd(command).arg(arguments).query_async(&mut connection).await
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(program: &PathBuf, folder: &TempDir, arguments: &[String]) -> Child {
    Command::new(program)
        .current_dir(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
