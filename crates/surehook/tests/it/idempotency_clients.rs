//! The clients of the idempotency service in `clients/`, and the handlers and jobs of
//! `clients/examples`, work against a running gateway.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpStream, task::JoinSet};

use crate::support::{
    WAIT_LIMIT,
    client::{Client, HttpResponse},
    eventually, free_port,
    gateway::{Gateway, TOKEN},
    lossy_proxy::LossyProxy,
    process::Process,
    redis::TestRedis,
    tls::{CertificateAuthority, TlsProxy},
    tools::{Tool, interpreter_file},
};

/// The expected output of the four test programs. A lost answer of a claim is followed by `in_progress`,
/// because the lost one has granted it.
const EXPECTED: &str = r#"README [{"order":7},{"order":7}]
README while held [true]
claim ["claimed",false,true]
claim while held ["in_progress",true]
extend [true]
complete twice ["completed",{"order":7,"note":"açaí"}]
other fingerprint ["FingerprintMismatch"]
claim after release ["claimed",false,true,true]
stale token ["StaleToken","StaleToken","StaleToken"]
claim after the lease ["claimed",true,true]
batch of claims ["claimed","in_progress","completed","InvalidRequest"]
batch of completions [null,"StaleToken"]
result of the batch [[1]]
once [{"run":1},{"run":1},{"run":1}]
once while held ["InProgress"]
once with exception ["boom","second run"]
once longer than its lease [["in_progress"]]
result that is not JSON ["Result",null]
result that is too large ["Result",null]
keys of any text ["a/b c?ü%2F&+","a"]
dot segments ["InvalidRequest","InvalidRequest"]
invalid lease ["InvalidRequest"]
wrong API token ["Unauthorized"]
token of another namespace ["Unauthorized"]
TLS ["claimed"]
untrusted TLS ["Unavailable"]
no gateway ["Unavailable"]
lost answer of a claim ["in_progress"]
lost answer of a completion ["stored"]
50 concurrent callers [1,50,1]
"#;

/// Copies of a webhook or a job that are processed at the same time.
const COPIES: usize = 50;

/// The lease of the examples under test, in seconds. It is long where no process is killed, so that no
/// lease ends on a busy machine.
const LEASE: u64 = 20;
const SHORT_LEASE: u64 = 2;

/// A file or folder below `clients` in the repository.
fn clients(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(path).canonicalize().unwrap()
}

/// A file of the test programs.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/idempotency_clients").join(name)
}

fn python() -> Command {
    let mut command = Command::new(interpreter_file("python/bin/python"));
    let paths = [clients("python"), clients("examples")];
    command.env("PYTHONPATH", std::env::join_paths(paths).unwrap());
    // Compiled modules would be written beside the clients.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn ruby() -> Command {
    let mut command = Command::new("ruby");
    command.arg("-w").arg("-I").arg(clients("ruby"));
    command
}

fn php() -> Command {
    let mut command = Command::new("php");
    command.arg("-d").arg(format!("include_path={}", clients("php").display()));
    command
}

/// Runs a command to its end and returns its standard output.
async fn run(mut command: Command) -> String {
    let description = format!("{command:?}");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{description}\n{stdout}\n{stderr}");
    stdout
}

/// Compiles the client and a program that uses it, with the strictest settings, and returns the folder
/// with both.
async fn compile_typescript(program: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let modules = interpreter_file("node/node_modules");
    std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
    std::fs::write(folder.path().join("package.json"), r#"{ "type": "module" }"#).unwrap();
    let name = program.file_name().unwrap();
    std::fs::copy(program, folder.path().join(name)).unwrap();
    let client = clients("typescript/surehook.ts");
    std::fs::copy(client, folder.path().join("surehook.ts")).unwrap();
    let mut compile = Command::new("node");
    compile.current_dir(&folder).arg(modules.join("typescript/bin/tsc"));
    compile.args(["--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes"]);
    compile.args(["--erasableSyntaxOnly", "--skipLibCheck", "--target", "es2022"]);
    compile.args(["--module", "nodenext", "--lib", "es2022,dom", "--types", "node"]).arg(name);
    run(compile).await;
    folder
}

/// Creates a token for one namespace.
async fn create_token(gateway: &Gateway, namespace: &str) -> String {
    let token = json!({ "role": "operator", "namespaces": [namespace] });
    let created = gateway.post("/tokens", &token).await.expect(201).json();
    created["token"].as_str().unwrap().to_owned()
}

/// Runs one of the four test programs.
async fn check_cases(mut command: Command) {
    let gateway = Gateway::start().await;
    let lossy = LossyProxy::start(&gateway).await;
    let other_token = create_token(&gateway, "other").await;
    let authority = CertificateAuthority::new();
    let trusted = TlsProxy::start(&authority, gateway.address()).await;
    let untrusted = TlsProxy::start(&CertificateAuthority::new(), gateway.address()).await;
    let authorities = gateway.folder().join("authorities.pem");
    std::fs::write(&authorities, authority.pem()).unwrap();
    // Node reads the second variable, the others read the first.
    command.env("SSL_CERT_FILE", &authorities).env("NODE_EXTRA_CA_CERTS", &authorities);
    command.args([gateway.url(""), TOKEN.to_owned(), lossy.url(), other_token]);
    command.args([trusted.url(), untrusted.url()]);
    assert_eq!(run(command).await, EXPECTED);
}

#[tokio::test]
async fn python_client_reports_every_answer_of_the_gateway() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let mut command = python();
    command.arg(program("cases.py"));
    check_cases(command).await;
}

#[tokio::test]
async fn ruby_client_reports_every_answer_of_the_gateway() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let mut command = ruby();
    command.arg(program("cases.rb"));
    check_cases(command).await;
}

#[tokio::test]
async fn typescript_client_reports_every_answer_of_the_gateway() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let folder = compile_typescript(&program("cases.ts")).await;
    let mut command = Command::new("node");
    command.arg(folder.path().join("cases.js"));
    check_cases(command).await;
}

#[tokio::test]
async fn php_client_reports_every_answer_of_the_gateway() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let mut command = php();
    command.arg(program("cases.php"));
    check_cases(command).await;
}

/// A gateway with a token for the namespace of the examples, and the file to which they append a line
/// for each order. Holding the lock of the file makes them wait in the middle of their work.
struct OrderScenario {
    gateway: Gateway,
    token: String,
    folder: TempDir,
    /// In seconds.
    lease: u64,
}

impl OrderScenario {
    async fn start(lease: u64) -> Self {
        let gateway = Gateway::start().await;
        let token = create_token(&gateway, "orders").await;
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("orders")).unwrap();
        Self { gateway, token, folder, lease }
    }

    fn lock_orders(&self) -> File {
        let file = File::open(self.folder.path().join("orders")).unwrap();
        file.lock().unwrap();
        file
    }

    /// The receipts of all orders.
    fn orders(&self) -> Vec<Value> {
        let lines = std::fs::read_to_string(self.folder.path().join("orders")).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Adds what every example needs.
    fn configure(&self, command: &mut Command) {
        command
            .current_dir(&self.folder)
            .env("SUREHOOK_URL", self.gateway.url(""))
            .env("SUREHOOK_TOKEN", &self.token)
            .env("ORDERS", self.folder.path().join("orders"))
            .env("LEASE", self.lease.to_string());
    }

    /// Starts a web application on this port and waits until it listens.
    async fn start_handler(&self, mut command: Command, port: u16) -> OrderHandler {
        self.configure(&mut command);
        let mut process = Process::start(command);
        eventually(WAIT_LIMIT, || {
            let exit = process.try_exit_status();
            assert!(exit.is_none(), "{exit:?} {}", process.stderr.text());
            async move { TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop) }
        })
        .await;
        let url = format!("http://127.0.0.1:{port}/orders");
        OrderHandler { process, endpoint: OrderEndpoint { client: Client::new(), url } }
    }

    async fn start_flask(&self) -> OrderHandler {
        let port = free_port();
        let mut command = python();
        command.args(["-m", "flask", "--app", "flask_app", "run", "--port", &port.to_string()]);
        self.start_handler(command, port).await
    }

    /// Waits until a key is claimed.
    async fn wait_until_claimed(&self, key: &str) {
        let path = format!("/idempotency/orders/{key}");
        eventually(WAIT_LIMIT, || async {
            let response = self.gateway.get(&path).await;
            (response.status == 200 && response.json()["status"] == "in_progress").then_some(())
        })
        .await;
    }
}

/// A running web application of `clients/examples`.
struct OrderHandler {
    process: Process,
    endpoint: OrderEndpoint,
}

#[derive(Clone)]
struct OrderEndpoint {
    client: Client,
    url: String,
}

impl OrderEndpoint {
    async fn send(self, webhook_id: &str) -> Result<HttpResponse, String> {
        let headers: [(&str, &[u8]); 2] =
            [("webhook-id", webhook_id.as_bytes()), ("content-type", b"application/json")];
        self.client.send(Method::POST, &self.url, &headers, r#"{"id":7}"#).await
    }

    /// Sends a webhook until it is accepted, as a sender does, and returns the receipt.
    async fn send_until_accepted(self, webhook_id: &str) -> Value {
        eventually(WAIT_LIMIT, || async {
            let response = self.clone().send(webhook_id).await.unwrap();
            if response.status == 503 {
                assert_in_progress(&response);
                return None;
            }
            Some(response.expect(200).json())
        })
        .await
    }
}

/// The answer while another copy is processed.
#[track_caller]
fn assert_in_progress(response: &HttpResponse) {
    assert_eq!(response.status, 503, "{}", response.text());
    let seconds: u64 = response.header("retry-after").parse().unwrap();
    assert!((1..=LEASE).contains(&seconds), "{response:?}");
    assert!(response.json()["error"].as_str().unwrap().contains("another holder"));
}

/// Sends copies of a webhook at the same time, in turn to these processes, and another webhook.
async fn check_handlers(scenario: &OrderScenario, handlers: &[OrderHandler]) {
    let mut copies = JoinSet::new();
    for handler in handlers.iter().cycle().take(COPIES) {
        copies.spawn(handler.endpoint.clone().send_until_accepted("wamid.1"));
    }
    let receipts = copies.join_all().await;
    let orders = scenario.orders();
    assert_eq!(orders.len(), 1, "{}", handlers[0].process.stderr.text());
    assert!(receipts.iter().all(|receipt| *receipt == orders[0]), "{receipts:?}");
    assert_eq!(orders[0]["order"], 7);
    assert_eq!(orders[0]["resumed"], false);
    let other = handlers[0].endpoint.clone().send_until_accepted("wamid.2").await;
    assert_eq!(scenario.orders(), [orders[0].clone(), other]);
}

#[tokio::test]
async fn concurrent_copies_of_a_webhook_are_processed_once_by_the_django_view() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let scenario = OrderScenario::start(LEASE).await;
    let port = free_port();
    let mut command = python();
    command.arg(clients("examples/django_app.py")).arg(format!("127.0.0.1:{port}"));
    let handler = scenario.start_handler(command, port).await;
    check_handlers(&scenario, &[handler]).await;
}

#[tokio::test]
async fn concurrent_copies_of_a_webhook_are_processed_once_by_the_rails_controller() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let scenario = OrderScenario::start(LEASE).await;
    let port = free_port();
    let mut command = Command::new("ruby");
    command.arg("-I").arg(clients("ruby")).arg(clients("examples/rails_app.rb"));
    command.env("PORT", port.to_string()).env("RAILS_ENV", "production");
    let handler = scenario.start_handler(command, port).await;
    check_handlers(&scenario, &[handler]).await;
}

#[tokio::test]
async fn concurrent_copies_of_a_webhook_are_processed_once_by_the_express_handler() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let folder = compile_typescript(&clients("examples/express_app.ts")).await;
    let scenario = OrderScenario::start(LEASE).await;
    let port = free_port();
    let mut command = Command::new("node");
    command.arg(folder.path().join("express_app.js")).env("PORT", port.to_string());
    let handler = scenario.start_handler(command, port).await;
    check_handlers(&scenario, &[handler]).await;
}

#[tokio::test]
async fn concurrent_copies_of_a_webhook_are_processed_once_by_the_php_handler() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let scenario = OrderScenario::start(LEASE).await;
    // Each process handles one request at a time.
    let mut handlers = Vec::new();
    for _ in 0..4 {
        let port = free_port();
        let mut command = php();
        command.arg("-S").arg(format!("127.0.0.1:{port}")).arg(clients("examples/handler.php"));
        handlers.push(scenario.start_handler(command, port).await);
    }
    check_handlers(&scenario, &handlers).await;
}

#[tokio::test]
async fn heavy_flask_handler_processes_a_webhook_once_across_copies_and_kills() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let scenario = OrderScenario::start(SHORT_LEASE).await;
    let mut handlers = [scenario.start_flask().await, scenario.start_flask().await];
    check_handlers(&scenario, &handlers).await;

    // While one copy is processed, all others are refused, by both processes.
    let lock = scenario.lock_orders();
    let mut copies = JoinSet::new();
    for handler in handlers.iter().cycle().take(COPIES) {
        copies.spawn(handler.endpoint.clone().send("wamid.3"));
    }
    for _ in 1..COPIES {
        assert_in_progress(&copies.join_next().await.unwrap().unwrap().unwrap());
    }
    drop(lock);
    let receipt = copies.join_next().await.unwrap().unwrap().unwrap().expect(200).json();
    assert_eq!(scenario.orders()[2..], [receipt]);

    // A process that is killed in the middle of its work: the retry does the work after the lease.
    let lock = scenario.lock_orders();
    let [killed, other] = &mut handlers;
    let unanswered = tokio::spawn(killed.endpoint.clone().send("wamid.4"));
    scenario.wait_until_claimed("wamid.4").await;
    killed.process.kill9();
    assert!(unanswered.await.unwrap().is_err());
    drop(lock);
    let receipt = other.endpoint.clone().send_until_accepted("wamid.4").await;
    assert_eq!(receipt["resumed"], true);
    assert_eq!(other.endpoint.clone().send_until_accepted("wamid.4").await, receipt);
    assert_eq!(scenario.orders()[3..], [receipt]);
}

/// A Sidekiq process that runs `OrderJob`.
fn start_sidekiq(scenario: &OrderScenario, redis: &TestRedis) -> Process {
    // Looks for scheduled jobs each half second instead of each five.
    let options = scenario.folder.path().join("sidekiq.yml");
    std::fs::write(&options, ":poll_interval_average: 0.5\n").unwrap();
    let mut command = Command::new("sidekiq");
    command.arg("-r").arg(clients("examples/order_job.rb")).arg("-C").arg(options);
    command.args(["-c", "10", "-t", "20"]);
    command.env("RUBYLIB", clients("ruby")).env("REDIS_URL", redis.url());
    scenario.configure(&mut command);
    Process::start(command)
}

/// Enqueues copies of a job, as a web process does.
async fn enqueue(scenario: &OrderScenario, redis: &TestRedis, message_id: &str, copies: usize) {
    let mut command = ruby();
    command.arg("-r").arg(clients("examples/order_job.rb")).arg("-e").arg(format!(
        r#"{copies}.times {{ OrderJob.perform_async("{message_id}", {{ "id" => 7 }}) }}"#
    ));
    command.env("REDIS_URL", redis.url());
    scenario.configure(&mut command);
    run(command).await;
}

/// Counts the entries of a list or a sorted set.
async fn count(redis: &TestRedis, command: &str, key: &str) -> usize {
    redis::from_redis_value(redis.run_command(&[command, key]).await).unwrap()
}

#[tokio::test]
async fn heavy_sidekiq_job_processes_a_message_once_across_copies_and_kills() {
    if !Tool::Interpreters.is_available() {
        return;
    }
    let Some(redis) = TestRedis::start(&[]).await else { return };
    let scenario = OrderScenario::start(SHORT_LEASE).await;
    let mut sidekiq = start_sidekiq(&scenario, &redis);

    // While one copy is processed, the others are rescheduled.
    let lock = scenario.lock_orders();
    enqueue(&scenario, &redis, "wamid.1", COPIES).await;
    eventually(WAIT_LIMIT, || async {
        (count(&redis, "ZCARD", "schedule").await >= COPIES / 2).then_some(())
    })
    .await;
    assert_eq!(scenario.orders(), [] as [Value; 0]);
    drop(lock);
    eventually(WAIT_LIMIT, || async { (scenario.orders().len() == 1).then_some(()) }).await;

    // A process that is killed in the middle of its work: the copy does the work after the lease.
    let lock = scenario.lock_orders();
    enqueue(&scenario, &redis, "wamid.2", 1).await;
    scenario.wait_until_claimed("wamid.2").await;
    sidekiq.kill9();
    drop(lock);
    let mut sidekiq = start_sidekiq(&scenario, &redis);
    enqueue(&scenario, &redis, "wamid.2", 2).await;
    eventually(WAIT_LIMIT, || async { (scenario.orders().len() == 2).then_some(()) }).await;

    // All copies end, and a regular stop waits for those that run.
    eventually(WAIT_LIMIT, || async {
        let waiting = count(&redis, "LLEN", "queue:default").await
            + count(&redis, "ZCARD", "schedule").await
            + count(&redis, "ZCARD", "retry").await;
        (waiting == 0).then_some(())
    })
    .await;
    sidekiq.signal(Signal::TERM);
    sidekiq.wait_for_exit().await;
    let orders = scenario.orders();
    assert_eq!(orders.len(), 2, "{orders:?} {}", sidekiq.stdout.text());
    assert_eq!(orders[0]["resumed"], false);
    assert_eq!(orders[1]["resumed"], true);
}

/// The examples of the documentation: language and code of each block.
fn documented_examples(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn examples_of_the_guide_are_parts_of_the_tested_programs() {
    let folders = [clients("examples"), program("")];
    let programs = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let programs: Vec<String> =
        programs.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let guides = std::fs::read_dir(clients("../docs/guides")).unwrap();
    let mut pages = vec![clients("README.md")];
    pages.extend(guides.map(|page| page.unwrap().path()).filter(|page| {
        page.file_name().unwrap().to_string_lossy().starts_with("idempotent-handlers")
    }));
    let mut languages = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for (language, code) in documented_examples(&text) {
            if ["python", "ruby", "ts", "php"].contains(&language) {
                let is_tested = programs.iter().any(|program| program.contains(code.trim_end()));
                assert!(is_tested, "{} has an untested example:\n{code}", page.display());
                languages.push(language.to_owned());
            }
        }
    }
    for language in ["python", "ruby", "ts", "php"] {
        assert!(languages.iter().filter(|other| *other == language).count() >= 2, "{language}");
    }
}
