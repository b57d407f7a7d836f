//! Resources of the gateway itself: files, sockets, connections, the size of files, and who may read
//! them.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use http::Method;
use rustix::process::{Resource, Rlimit, getrlimit, getuid, prlimit};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{
    WAIT_LIMIT,
    client::Client,
    eventually,
    gateway::{Gateway, Route, route_settings},
    sink::{Reply, Sink},
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn data_folder_and_files_are_private_whatever_the_umask() {
    for umask in ["000", "777"] {
        let gateway = Gateway::builder()
            .setup(&format!("umask {umask}"))
            .settings("[[sources]]\nname = \"in\"\nverify = \"none\"\n")
            .start()
            .await;
        gateway.post_accepted("in", "{}").await;

        let data = gateway.folder().join("data");
        assert_eq!(mode(&data), 0o700, "umask {umask}");
        let files: Vec<_> =
            fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "umask {umask}, {}", file.display());
        }
    }
}

#[tokio::test]
async fn data_folder_that_others_can_read_is_tightened_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();

    let gateway = Gateway::builder().start_in(folder).await;

    assert_eq!(mode(&data), 0o700);
    assert!(gateway.log().contains("was accessible to other users (mode 755)"));
}

#[test]
fn data_folder_of_another_user_that_others_can_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Ends a gateway that starts all the same.
    let mut serve = Command::new("timeout");
    serve.env_clear().env("PATH", "/usr/bin:/bin");
    serve.args([
        "30",
        env!("CARGO_BIN_EXE_surehook"),
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
    ]);
    if getuid().is_root() {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        serve.arg(folder.path()).current_dir(folder.path()).uid(65534);
    } else {
        serve.arg("/usr").current_dir(folder.path());
    }

    let refused = serve.output().unwrap();

    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{stderr}");
    assert!(
        stderr.contains("is accessible to other users") && stderr.contains("chmod"),
        "{stderr}"
    );
}

#[tokio::test]
async fn write_beyond_the_file_size_limit_ends_the_process_with_an_error_not_a_signal() {
    let mut gateway = Gateway::builder()
        .setup("ulimit -f 8192")
        .settings("[[sources]]\nname = \"in\"\nverify = \"none\"\n")
        .start()
        .await;
    let (client, url) = (Client::new(), gateway.url("/in/in"));
    let mut statuses = Vec::new();
    for number in 0..200 {
        let body = format!("{{\"id\":{number},\"text\":\"{}\"}}", "x".repeat(100_000));
        let Ok(response) = client.send(Method::POST, &url, &[], body).await else { break };
        statuses.push(response.status.as_u16());
        if response.status != 200 {
            break;
        }
    }

    let status = gateway.wait_for_exit().await;

    assert!(statuses.len() > 1 && statuses[0] == 200, "{statuses:?}");
    assert_eq!(status.code(), Some(70), "{status:?} after {statuses:?}");
    assert!(gateway.log().contains("the store failed"));
}

#[tokio::test]
async fn soft_limit_of_open_files_is_raised_and_setting_beyond_the_hard_limit_is_lowered() {
    let raised = Gateway::builder().setup("ulimit -S -n 128").start().await;
    let limited = Gateway::builder()
        .setup("ulimit -n 256")
        .settings("[limits]\nconnections_max = 10000\n")
        .start()
        .await;

    let open_files = |gateway: &Gateway| {
        let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid().as_raw_nonzero()));
        let limits = limits.unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let mut values = line["Max open files".len()..].split_whitespace();
        let mut next = || values.next().unwrap().parse::<u64>().unwrap();
        (next(), next())
    };
    let (soft, hard) = open_files(&raised);
    assert_eq!(soft, hard.min(1 << 20));
    assert_eq!(open_files(&limited), (256, 256));
    let warning = "limits.connections_max is 10000, but the limit of open files allows only 165";
    assert!(limited.log().contains(warning), "{}", limited.log());
}

#[tokio::test]
async fn reader_that_stops_reading_is_disconnected() {
    let gateway = Gateway::builder()
        .settings("[limits]\nconnections_per_address_max = 1\nhead_timeout = \"1s\"\nwrite_timeout = \"1s\"\n")
        .start()
        .await;
    let request = b"GET /api/openapi.json HTTP/1.1\r\nHost: h\r\n\r\n";
    // The client that waited for the start may still be connected.
    let stuck = eventually(WAIT_LIMIT, || async {
        let mut raw = gateway.connect_raw().await;
        raw.write(request).await;
        raw.read_response().await.map(|_| raw)
    });
    let mut stuck = stuck.await;

    // More responses than the buffers of both sides hold.
    stuck.write(request.repeat(300)).await;

    eventually(WAIT_LIMIT, || async {
        let mut raw = gateway.connect_raw().await;
        raw.write(b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n").await;
        raw.read_response().await
    })
    .await;
    drop(stuck);
}

#[tokio::test]
async fn request_that_is_not_finished_in_time_is_answered_503_and_closed() {
    let sink = Sink::with_replies([Reply::Hang]).await;
    let source = "verify = \"none\"\nsync = { destination = \"out\", deadline = \"1m\" }";
    let destination = format!("url = \"{}\"", sink.url());
    let route = Route { source, destination: &destination, ..Route::default() };
    let limits = "[limits]\nrequest_timeout = \"1s\"\n";
    let gateway = Gateway::start_with(&format!("{limits}{}", route.settings())).await;
    let claim = "/idempotency/orders/1";
    gateway.post(claim, &json!({ "lease": "1h" })).await.expect(200);

    // A sender that waits for its delivery, and a caller that waits for the holder of a key.
    let wait = r#"{"wait":"30s"}"#;
    let authorization = format!("Authorization: Bearer {}\r\n", gateway.token());
    let waiting = [
        ("/in/in".to_owned(), String::new(), r#"{"id":1}"#),
        (format!("/api/v1{claim}"), authorization, wait),
    ];
    for (path, headers, body) in waiting {
        let mut raw = gateway.connect_raw().await;
        raw.write(format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        let response = raw.read_response().await.unwrap();
        let text = String::from_utf8(response.body).unwrap();
        assert_eq!(response.status, 503, "{path}: {text}");
        assert!(text.contains("request_timeout"), "{path}: {text}");
        assert_eq!(raw.read_until_closed().await, b"", "{path}");
    }
    // What was received before is stored all the same.
    sink.wait_for_requests(1).await;
    assert_eq!(gateway.stats().await["total"], 1);
}

/// Settings with `count` destinations that get every event of the source `in`.
fn fan_out(count: usize, url: &str) -> String {
    let mut settings = "[[sources]]\nname = \"in\"\nverify = \"none\"\n".to_owned();
    for number in 0..count {
        settings.push_str(&format!(
            "[[destinations]]\nname = \"out-{number}\"\nurl = \"{url}\"\nconcurrency = 8\n\
             [[routes]]\nfrom = \"in\"\nto = \"out-{number}\"\n"
        ));
    }
    settings
}

#[tokio::test]
async fn heavy_slow_destinations_with_few_files_stop_no_request_and_cost_no_attempts() {
    const DESTINATIONS: usize = 30;
    const EVENTS: usize = 10;
    let (gate, is_open) = watch::channel(false);
    let sink = Sink::with_script(move |_, _| Reply::status(200).behind(is_open.clone())).await;
    // 88 of the 256 files are for deliveries; the destinations would use 240.
    let gateway = Gateway::builder()
        .setup("ulimit -n 256")
        .settings(&fan_out(DESTINATIONS, &sink.url()))
        .start()
        .await;

    for number in 0..EVENTS {
        gateway.post_accepted("in", format!("{{\"id\":{number}}}")).await;
        let mut probe = gateway.connect_raw().await;
        probe.write(b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert_eq!(probe.read_response().await.unwrap().status, 200);
    }
    eventually(WAIT_LIMIT, || async {
        gateway.log().contains("postponed for lack of resources").then_some(())
    })
    .await;
    gate.send(true).unwrap();

    let all = DESTINATIONS * EVENTS;
    let is_done = |stats: &Value| stats["by_status"]["succeeded"] == all;
    gateway.wait_for_stats(WAIT_LIMIT * 4, is_done).await;
    assert_eq!(sink.count(), all, "no delivery was sent twice");
    for delivery in gateway.list("/deliveries?limit=1000").await {
        assert_eq!(delivery["attempts"], 1, "{delivery}");
    }
    assert!(gateway.metrics().await.contains("surehook_resource_shortages_total{destination="));
}

#[tokio::test]
async fn attempt_that_gets_no_file_from_the_system_is_postponed_and_not_counted() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    // On this connection the next event needs no file.
    let mut sender = gateway.connect_raw().await;
    sender.write("GET /livez HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!(sender.read_response().await.unwrap().status, 200);
    let none_left = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(Some(gateway.pid()), Resource::Nofile, none_left).unwrap();

    sender.write("POST /in/in HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}").await;
    let accepted: Value =
        serde_json::from_slice(&sender.read_response().await.unwrap().body).unwrap();
    let event = accepted["events"][0]["id"].as_str().unwrap();
    eventually(WAIT_LIMIT, || async {
        gateway.log().contains("postponed for lack of resources").then_some(())
    })
    .await;
    prlimit(Some(gateway.pid()), Resource::Nofile, before).unwrap();

    let delivery = gateway.wait_for_delivery(event, "succeeded").await;
    assert_eq!(delivery["attempts"], 1, "{delivery}");
}
