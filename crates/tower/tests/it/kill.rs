//! A server process that is killed while a handler runs.

use std::{
    fs,
    io::{BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{Extension, Router, extract::State, routing::post};
use surehook_tower::{IdempotencyLayer, RequestClaim};
use tempfile::TempDir;

use super::support::{TestRequest, TestServer, open_sqlite};

/// Marks the lines for the test among what the test harness prints.
const MARK: &str = "#server ";
/// Handlers do not end as long as this file exists.
const STALL: &str = "stall";
const EXECUTIONS: &str = "executions";
const TEST: &str = "kill::heavy_kill_during_the_handler_makes_the_retry_run_after_the_lease";

/// The folder of the server, in the process that the test starts: this program with only itself selected.
const FOLDER: &str = "SUREHOOK_TEST_CHILD_FOLDER";

/// The server: appends a line for each execution, with its operation.
#[expect(clippy::print_stdout, reason = "the kill test reads it")]
async fn run_server(folder: PathBuf) {
    let handler = |State(folder): State<PathBuf>, Extension(claim): Extension<RequestClaim>| async move {
        let line = format!("{:x} {}", u128::from_be_bytes(claim.operation.id), claim.is_resumed);
        let mut file =
            fs::OpenOptions::new().append(true).create(true).open(folder.join(EXECUTIONS)).unwrap();
        writeln!(file, "{line}").unwrap();
        println!("{MARK}executing");
        if folder.join(STALL).exists() {
            std::future::pending::<()>().await;
        }
        line
    };
    let layer = IdempotencyLayer::new(open_sqlite(&folder))
        .lease(Duration::from_millis(500))
        .wait(Duration::from_secs(60));
    let app = Router::new().route("/orders", post(handler)).with_state(folder).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{MARK}{}", listener.local_addr().unwrap());
    axum::serve(listener, app).await.unwrap();
}

struct ServerProcess {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    server: TestServer,
}

impl ServerProcess {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let address = next_line(&mut output).parse().unwrap();
        Self { child, output, server: TestServer::at(address) }
    }

    /// Ends the process at once, as a power cut would.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn next_line(output: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the server process ended");
        if let Some((_, text)) = line.split_once(MARK) {
            return text.trim().to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_kill_during_the_handler_makes_the_retry_run_after_the_lease() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_server(PathBuf::from(folder)).await;
    }
    let folder = TempDir::new().unwrap();
    let executions = || fs::read_to_string(folder.path().join(EXECUTIONS)).unwrap_or_default();
    let stall = folder.path().join(STALL);
    for round in 1..=3 {
        fs::write(&stall, "").unwrap();
        let request = TestRequest::keyed(&format!("round-{round}"));
        let before = executions().lines().count();
        let mut process = ServerProcess::start(folder.path());
        let (server, lost_request) = (process.server.clone(), request.clone());
        let lost = tokio::spawn(async move { server.try_send(&lost_request).await.is_err() });
        assert_eq!(next_line(&mut process.output), "executing");
        process.kill();
        assert!(lost.await.unwrap(), "the first request gets no answer");

        fs::remove_file(&stall).unwrap();
        let process = ServerProcess::start(folder.path());
        let retry = process.server.send(&request).await;
        let copy = process.server.send(&request).await;
        assert_eq!((retry.status, retry.is_replayed()), (200, false), "{retry:?}");
        assert!(copy.is_replayed() && copy.body == retry.body, "{copy:?}");
        let lines: Vec<_> = executions().lines().skip(before).map(str::to_owned).collect();
        let operation = retry.body.split(' ').next().unwrap();
        assert_eq!(lines, [format!("{operation} false"), format!("{operation} true")]);
    }
}
