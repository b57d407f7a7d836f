//! Starting on a database, and the commands that use it without a gateway.

use std::{path::Path, process::Command, time::Duration};

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use surehook_test_servers::TestPostgres;

use super::{TestCluster, settings_with_destinations};
use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, SECRET_KEY, TOKEN},
    process::{CommandOutput, Process, run_surehook, run_surehook_within},
    sink::Sink,
    tools::{Tool, target},
};

fn environment(url: &str) -> Vec<(String, String)> {
    [("SUREHOOK_DATABASE", url), ("SUREHOOK_SECRET_KEY", SECRET_KEY)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

async fn run(url: &str, args: &[&str]) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    run_surehook(folder.path(), args, &environment(url)).await
}

#[tokio::test]
async fn nodes_that_start_together_make_one_token_and_one_login_link() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let start = || Gateway::start_unconfigured_on(&server);
    let nodes = tokio::join!(start(), start(), start());
    let nodes = [nodes.0, nodes.1, nodes.2];

    let with = |text: &str| nodes.iter().filter(|node| node.stdout().contains(text)).count();
    assert_eq!((with("shown once"), with("/login?code=")), (1, 1));
    let first = nodes.iter().find(|node| !node.token().is_empty()).unwrap();
    for node in &nodes {
        let stats = node.api_as(first.token(), Method::GET, "/stats", None).await;
        stats.expect(200);
        node.post_accepted("demo", format!(r#"{{"id":"{}"}}"#, node.address())).await;
    }
}

#[tokio::test]
async fn start_without_a_secret_key_says_how_to_create_one() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let env = vec![("SUREHOOK_DATABASE".to_owned(), server.url())];
    let args = ["serve", "--listen", "127.0.0.1:0"];

    let refused = run_surehook(folder.path(), &args, &env).await;

    assert_eq!(refused.code, Some(78), "{refused:?}");
    for part in ["secret key", "surehook secret-key create", "secret_key_file"] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    let created = run_surehook(folder.path(), &["secret-key", "create", "secret.key"], &[]).await;
    assert_eq!(created.code, Some(0), "{created:?}");
    let key = std::fs::read_to_string(folder.path().join("secret.key")).unwrap();
    assert!(!created.stdout.contains(key.trim()), "{created:?}");
    // No key is overwritten.
    let again = run_surehook(folder.path(), &["secret-key", "create", "secret.key"], &[]).await;
    assert_eq!(again.code, Some(5), "{again:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("secret.key")).unwrap(), key);
}

#[tokio::test]
async fn wrong_secret_key_is_refused() {
    let Some(cluster) = TestCluster::start(1, "").await else { return };
    let mut env = environment(&cluster.server.url());
    env[1].1 = "00".repeat(32);
    let folder = tempfile::tempdir().unwrap();
    let refused = run_surehook(folder.path(), &["serve", "--listen", "127.0.0.1:0"], &env).await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("give all nodes the same key"), "{refused:?}");
}

#[tokio::test]
async fn password_of_the_database_is_never_shown() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let url = server.url().replace("postgres@", "postgres:canary-7@");
    let gateway = Gateway::builder().database(&url).settings("log = \"debug\"\n").start().await;
    gateway.post_accepted("demo", r#"{"id":"a"}"#).await;
    let shown = [gateway.stdout(), gateway.log(), gateway.metrics().await];
    for text in shown {
        assert!(!text.contains("canary-7"), "{text}");
    }
    assert!(gateway.stdout().contains("postgres://postgres:•••@127.0.0.1"), "{}", gateway.stdout());
    let missing = server.url().replace("postgres@", "postgres:canary-7@") + "_missing";
    for (url, args) in [
        (&url, &["config", "show", "--origin"][..]),
        (&url, &["doctor"]),
        (&missing, &["doctor"]),
        (&missing, &["serve", "--listen", "127.0.0.1:0"]),
        (&missing, &["events", "list", "--database", "env:SUREHOOK_DATABASE"]),
    ] {
        let output = run(url, args).await;
        let text = format!("{}{}", output.stdout, output.stderr);
        assert!(!text.is_empty() && !text.contains("canary-7"), "{args:?}: {text}");
    }
    let refused = run(&url, &["serve", "--database", "mysql://u:canary-7@h/d"]).await;
    assert!(refused.code == Some(78) && !refused.stderr.contains("canary-7"), "{refused:?}");
}

#[tokio::test]
async fn commands_read_the_database_without_a_gateway() {
    let sink = Sink::ok().await;
    let settings = settings_with_destinations(&sink.origin(), 1, "");
    let Some(cluster) = TestCluster::start(1, &settings).await else { return };
    let event = cluster.nodes[0].post_accepted("in", r#"{"id":"a"}"#).await;
    cluster.nodes[0].wait_for_count("succeeded", 1).await;
    let url = cluster.server.url();

    let listed =
        run(&url, &["events", "list", "--json", "--database", "env:SUREHOOK_DATABASE"]).await;
    assert!(listed.stdout.contains(&event), "{listed:?}");
    let exported = run(&url, &["export", "--database", &url]).await;
    assert!(exported.stdout.contains("name = \"out-0\""), "{exported:?}");

    // What changes data folders alone says what to use instead.
    for (args, instead) in [
        (&["backup", "x.db"][..], "pg_dump"),
        (&["restore", "x.db"], "pg_restore"),
        (&["doctor", "--repair"], "Restore a backup"),
        (&["secret-key", "rotate", "--new-key-file", "new.key"], "Stop all nodes"),
    ] {
        let refused = run(&url, args).await;
        assert!(!matches!(refused.code, Some(0)), "{args:?}: {refused:?}");
        assert!(refused.stderr.contains(instead), "{args:?}: {refused:?}");
    }
}

#[tokio::test]
async fn doctor_says_what_the_server_promises() {
    let Some(cluster) = TestCluster::start(1, "").await else { return };
    let url = cluster.server.url();
    let find = |output: &CommandOutput, check: &str| -> Vec<Value> {
        let rows = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        rows.filter(|row: &Value| row["check"] == check).collect()
    };
    let healthy = run(&url, &["doctor", "--json"]).await;
    for (check, part) in [
        ("database", "PostgreSQL"),
        ("encoding", "UTF8"),
        ("schema", "version"),
        ("nodes", "1 running"),
        ("connections", "in use"),
        ("transactions", "oldest open for"),
        ("bloat", "rows to clean up"),
        ("clock", "ms ahead"),
        ("secret key", "outside the database"),
        ("standby", "no standby"),
    ] {
        let rows = find(&healthy, check);
        let is_ok = rows
            .iter()
            .any(|row| row["level"] == "ok" && row["finding"].as_str().unwrap().contains(part));
        assert!(is_ok, "{check}: {}", healthy.stdout);
    }

    cluster.server.execute("ALTER SYSTEM SET synchronous_standby_names = 'gone'").await;
    cluster.server.execute("ALTER SYSTEM SET full_page_writes = off").await;
    cluster.server.execute("SELECT pg_reload_conf()").await;
    let warned = eventually(WAIT_LIMIT, || async {
        let output = run(&url, &["doctor", "--json"]).await;
        (!find(&output, "durability").is_empty()).then_some(output)
    })
    .await;
    assert_eq!(warned.code, Some(8), "{warned:?}");
    for check in ["durability", "standby"] {
        assert_eq!(find(&warned, check)[0]["level"], "fail", "{}", warned.stdout);
    }
}

#[tokio::test]
async fn secret_key_is_rotated_while_no_node_runs() {
    let destination = json!({
        "name": "crm", "url": "https://example.com/", "headers": { "authorization": "canary-header" },
    });
    let Some(mut cluster) = TestCluster::start(1, "").await else { return };
    cluster.nodes[0].post("/destinations", &destination).await.expect(201);
    assert_eq!(cluster.nodes[0].terminate().await.code(), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let env = environment(&cluster.server.url());

    let args = ["secret-key", "rotate", "--new-key-file", "new.key"];
    let rotated = run_surehook(folder.path(), &args, &env).await;

    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    let key = std::fs::read_to_string(folder.path().join("new.key")).unwrap();
    let builder = Gateway::builder().database(&cluster.server.url());
    let gateway = builder.env("SUREHOOK_SECRET_KEY", key.trim()).start().await;
    gateway.get("/destinations/crm").await.expect(200);
    assert_eq!(gateway.token(), TOKEN);
    let stored = cluster.server.client().await;
    let rows = stored.query("SELECT spec FROM surehook_default.destinations", &[]).await.unwrap();
    assert!(rows.iter().all(|row| !row.get::<_, String>(0).contains("canary")));
}

#[tokio::test]
async fn cluster_script_starts_nodes_behind_nginx_and_stops_them() {
    if !Tool::Nginx.is_available() {
        return;
    }
    let Some(programs) = surehook_test_servers::find_programs() else { return };
    assert!(programs.join("pg_isready").exists(), "the clients of PostgreSQL are missing");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("scripts/cluster"));
    command
        .env("SUREHOOK_BINARY", env!("CARGO_BIN_EXE_surehook"))
        .env("CARGO_TARGET_DIR", target());
    let mut script = Process::start(command);
    let printed = eventually(WAIT_LIMIT, || async {
        Some(script.stdout.text()).filter(|text| text.contains("Ctrl-C stops everything"))
    })
    .await;
    let find = |name: &str| {
        let line = printed.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned()
    };

    let client = Client::new();
    let url = format!("{}/in/demo", find("gateway"));
    for number in 0..4 {
        let body = format!(r#"{{"id":"{number}"}}"#);
        client.send(Method::POST, &url, &[], body).await.unwrap().expect(200);
    }
    // And each can be reached.
    for node in ["node-1", "node-2"] {
        let ready = format!("{}/readyz", find(node));
        client.send(Method::GET, &ready, &[], "").await.unwrap().expect(200);
    }

    script.signal(Signal::TERM);
    let exit = script.wait_for_exit().await;
    assert_eq!(exit.code(), Some(0), "{}", script.stderr.text());
    assert!(client.send(Method::GET, &find("node-1"), &[], "").await.is_err());
    let folder = printed.lines().find_map(|line| line.split_once("(log: ")).unwrap().1;
    assert!(!Path::new(folder.trim_end_matches(')')).parent().unwrap().exists());
}

// Rates are not asserted: other tests run at the same time.
#[tokio::test]
async fn heavy_bench_compares_the_database_with_the_embedded_store() {
    let Some(server) = TestPostgres::start_with(&[]).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let env = environment(&server.url());
    let command = ["bench", "--database", "env:SUREHOOK_DATABASE", "--nodes", "2", "--json"];
    let options = ["--only", "delivered", "--seconds", "1", "--rounds", "1"];
    let path = folder.path().to_str().unwrap();
    let args = [&command[..], &options, &["--folder", path]].concat();

    let output = run_surehook_within(Duration::from_secs(150), folder.path(), &args, &env).await;

    assert_eq!(output.code, Some(0), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let rates = report["database"]["rates"].as_array().unwrap();
    assert_eq!(rates.len(), 2, "{report}");
    for (row, connections) in rates.iter().zip([64, 256]) {
        assert_eq!(row["connections"], connections);
        for name in ["embedded", "database", "nodes"] {
            let rate = row[format!("{name}_per_second")].as_f64().unwrap();
            assert!(rate > 0.0, "{name}: {row}");
        }
    }
    // Its tables are gone.
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'surehook%'";
    let left: i64 = server.client().await.query_one(schemas, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}
