//! API clients that generators build from `docs/openapi.json` work against a running gateway.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    gateway::{Gateway, TOKEN},
    tools::{Tool, client_generator},
};

/// The expected output of both clients. Every message is sent once per `Idempotency-Key`, so one event
/// exists.
const EXPECTED: &str = "destinations: whatsapp\nmessage sent once: true\nevents: true\n\
                        problem: unauthorized\n";

/// A gateway with the README's messaging destination. Its channel refuses connections: the clients
/// need only the accepted message.
async fn start_gateway() -> Gateway {
    Gateway::builder()
        .settings(
            r#"
            [[destinations]]
            name = "whatsapp"
            kind = "whatsapp-cloud"
            url = "http://127.0.0.1:1"
            account = { sender = "106540352242922", token = "t" }
            "#,
        )
        .start()
        .await
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
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

#[tokio::test]
async fn generated_python_client_lists_destinations_sends_message_and_reads_events() {
    if !Tool::Clients.is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let programs = client_generator("python/bin");
    let mut generate = Command::new(programs.join("openapi-python-client"));
    generate.args(["generate", "--output-path", "client", "--path"]).arg(document());
    // The generator formats its output with ruff, which it finds by PATH.
    generate.current_dir(&folder).env("PATH", &programs);
    run(generate).await;
    let gateway = start_gateway().await;
    let mut client = Command::new(programs.join("python"));
    client.args(["-c", include_str!("../clients/driver.py"), &gateway.url(""), TOKEN]);
    client.env("PYTHONPATH", folder.path().join("client"));
    assert_eq!(run(client).await, EXPECTED);
}

#[tokio::test]
async fn generated_typescript_client_lists_destinations_sends_message_and_reads_events() {
    if !Tool::Clients.is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let modules = client_generator("node/node_modules");
    std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
    std::fs::write(folder.path().join("package.json"), r#"{ "type": "module" }"#).unwrap();
    std::fs::write(folder.path().join("driver.ts"), include_str!("../clients/driver.ts")).unwrap();
    let node = |program: &str| {
        let mut command = Command::new("node");
        command.current_dir(&folder).arg(modules.join(program));
        command
    };
    let mut generate = node("openapi-typescript/bin/cli.js");
    generate.arg(document()).args(["--output", "api.ts"]);
    run(generate).await;
    let mut compile = node("typescript/bin/tsc");
    compile.args(["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck"]);
    compile.args(["--lib", "es2022,dom", "driver.ts"]);
    run(compile).await;
    let gateway = start_gateway().await;
    let mut client = Command::new("node");
    client.current_dir(&folder).args(["driver.js", &gateway.url(""), TOKEN]);
    assert_eq!(run(client).await, EXPECTED);
}
