//! Applying the settings file while the gateway runs: SIGHUP, `surehook reload`, and
//! notifications of systemd.

use std::{
    collections::HashSet,
    os::unix::net::UnixDatagram,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    process::{CommandOutput, run_surehook},
    sink::Sink,
};

fn write_settings(gateway: &Gateway, text: &str) {
    std::fs::write(gateway.folder().join("surehook.toml"), text).unwrap();
}

/// The log lines about reloads, oldest first.
fn reloads(gateway: &Gateway) -> Vec<Value> {
    let lines = gateway.log();
    let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_about_reload = |line: &Value| {
        let message = line["message"].as_str().unwrap_or_default();
        message == "settings reloaded" || message.starts_with("settings not reloaded")
    };
    lines.filter(is_about_reload).collect()
}

/// Sends SIGHUP and waits for its line in the log.
async fn hang_up(gateway: &Gateway) -> Value {
    let before = reloads(gateway).len();
    kill_process(gateway.pid(), Signal::HUP).unwrap();
    eventually(WAIT_LIMIT, || async { reloads(gateway).into_iter().nth(before) }).await
}

async fn reload(gateway: &Gateway) -> CommandOutput {
    gateway.cli(&["reload"]).await
}

#[tokio::test]
async fn changed_file_is_applied_and_what_needs_a_restart_is_named() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let base = "allow_networks = [\"127.0.0.0/8\"]\n";

    let unchanged = reload(&gateway).await;
    let next = format!(
        "{base}log = \"error\"\nretention = \"7d\"\nnode_name = \"two\"\n[limits]\nbody_bytes_max = 9\n{}",
        route_settings(&sink.url(), "concurrency = 3")
    );
    write_settings(&gateway, &format!("{next}\n[[sources]]\nname = \"new\"\nverify = \"none\""));
    let changed = reload(&gateway).await;
    let again = gateway.cli(&["reload", "--json"]).await;

    assert_eq!((unchanged.code, &*unchanged.stdout), (Some(0), ""), "{unchanged:?}");
    assert_eq!(changed.code, Some(0), "{changed:?}");
    for line in [
        "+ source new\n",
        "~ destination out\n",
        "~ log\n",
        "~ retention\n",
        "! limits.body_bytes_max needs a restart\n",
        "! node_name needs a restart\n",
    ] {
        assert!(changed.stdout.contains(line), "{line}: {changed:?}");
    }
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(
        again,
        json!({
            "file": "surehook.toml", "applied": [], "created": [], "updated": [], "unchanged": 4,
            "needs_restart": ["limits.body_bytes_max", "node_name"],
        })
    );
    let about = gateway.get("/about").await.expect(200).json();
    assert_eq!((&about["retention"], &about["body_bytes_max"]), (&json!("7d"), &json!(1_048_576)));
    let out = gateway.get("/destinations/out").await.expect(200).json();
    assert_eq!(out["concurrency"], 3);
    gateway.post_accepted("new", "{}").await;
    assert_eq!(reloads(&gateway).len(), 1, "the log has only errors since the second one");
}

#[tokio::test]
async fn wrong_file_is_refused_with_its_place_and_the_old_settings_stay() {
    let sink = Sink::ok().await;
    let settings = route_settings(&sink.url(), "");
    let gateway = Gateway::start_with(&settings).await;
    let before = gateway.get("/configuration").await.json();
    let first_line = "allow_networks = []\nallow_env = [\"CRM_TOKEN\"]\n";
    for (text, expected) in [
        ("listen = ", "surehook.toml:3:10: "),
        ("listem = 1", "surehook.toml:3:1: unknown key `listem`; did you mean `listen`?"),
        (
            "[[sources]]\nname = \"new\"\nprovider = \"strip\"\nsecrets = [\"env:X\"]",
            "surehook.toml:4:8: source `new`: unknown provider `strip`; did you mean `stripe`?",
        ),
        (
            "[[sources]]\nname = \"new\"\nverify = \"none\"\n[[routes]]\nfrom = \"new\"\nto = \"absent\"",
            "surehook.toml:8:6: route from `new` to `absent`: there is no destination with this name",
        ),
        (
            "[[destinations]]\nname = \"near\"\nurl = \"http://127.0.0.1:8099/\"",
            "surehook.toml:5:7: destination `near`: 127.0.0.1 is not allowed",
        ),
        ("[tls]\ncert = \"a.pem\"", "tls.cert and tls.key belong together"),
    ] {
        write_settings(&gateway, &format!("{first_line}{text}"));

        let logged = hang_up(&gateway).await;
        let answer = reload(&gateway).await;

        let error = logged["error"].as_str().unwrap();
        assert!(error.contains(expected), "case: {text}\n{error}\n{expected}");
        assert_eq!(answer.code, Some(5), "{answer:?}");
        assert!(answer.stderr.contains(error), "{answer:?}");
        assert_eq!(gateway.get("/configuration").await.json(), before, "case: {text}");
    }
    // Neither the networks nor the variables of the refused files are in use.
    gateway.post_accepted("in", "{\"n\":1}").await;
    gateway.wait_for_count("succeeded", 1).await;
    let header = json!({ "x-key": "env:CRM_TOKEN" });
    let spec = json!({ "name": "d", "url": "https://example.com", "headers": header });
    gateway.post("/destinations", &spec).await.expect(422);
}

#[tokio::test]
async fn reload_replaces_networks_and_variables_together_with_what_needs_them() {
    let sink = Sink::ok().await;
    let gateway = Gateway::builder()
        .public_networks_only()
        .env("CRM_TOKEN", "secret-of-crm-0123456789")
        .start()
        .await;
    let next = format!(
        "allow_networks = [\"127.0.0.0/8\"]\nallow_env = [\"CRM_*\"]\n{}",
        route_settings(&sink.url(), "")
    );
    write_settings(&gateway, &next);

    let logged = hang_up(&gateway).await;

    assert_eq!(logged["message"], "settings reloaded", "{logged}");
    gateway.post_accepted("in", "{}").await;
    gateway.wait_for_count("succeeded", 1).await;
    let header = json!({ "x-key": "env:CRM_TOKEN" });
    let spec = json!({ "name": "d", "url": "https://example.com", "headers": header });
    gateway.post("/destinations", &spec).await.expect(201);
}

#[tokio::test]
async fn only_admins_may_reload() {
    let gateway = Gateway::start().await;
    for role in ["viewer", "operator"] {
        let token = gateway.create_token(role).await;
        let refused = gateway.cli_as(&token, &["reload"]).await;
        assert_eq!(refused.code, Some(3), "{role}: {refused:?}");
    }
}

/// Sends webhooks one after the other until `stop`, and returns the bodies that were answered 200.
async fn send_until(gateway: Arc<Gateway>, sender: usize, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut sent = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let body = format!("{{\"id\":\"{sender}-{}\"}}", sent.len());
        gateway.send_webhook("in", &[], body.clone()).await.expect(200);
        sent.push(body);
    }
    sent
}

#[tokio::test]
async fn heavy_hundred_reloads_under_load_lose_nothing_and_refuse_every_wrong_file() {
    const RELOADS: usize = 100;
    let sink = Sink::ok().await;
    let gateway = Arc::new(Gateway::start_with(&route_settings(&sink.url(), "")).await);
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = JoinSet::new();
    for sender in 0..4 {
        senders.spawn(send_until(Arc::clone(&gateway), sender, Arc::clone(&stop)));
    }
    let base = "allow_networks = [\"127.0.0.0/8\"]\n";
    let mut refused = 0;
    for turn in 0..RELOADS {
        let good = format!(
            "{base}retention = \"{}d\"\n{}",
            turn + 1,
            route_settings(&sink.url(), &format!("concurrency = {}", turn % 7 + 1))
        );
        let (text, place) = match turn % 4 {
            1 => (format!("{base}retention = 5\n"), Some("surehook.toml:2:13: retention: ")),
            2 => (format!("{good}\ncircuit = false\n"), Some(": destinations.out.circuit: ")),
            3 => (
                format!("{base}[[routes]]\nfrom = \"in\"\nto = \"absent\"\n"),
                Some("surehook.toml:4:6: route from `in` to `absent`: "),
            ),
            _ => (good, None),
        };
        write_settings(&gateway, &text);

        let logged = hang_up(&gateway).await;

        match place {
            None => assert_eq!(logged["message"], "settings reloaded", "turn {turn}: {logged}"),
            Some(place) => {
                let error = logged["error"].as_str().unwrap();
                assert!(error.contains(place), "turn {turn}: {error}");
                let position = error.split(": ").next().unwrap();
                assert_eq!(position.split(':').count(), 3, "turn {turn}: {error}");
                refused += 1;
            }
        }
    }
    stop.store(true, Ordering::SeqCst);
    let sent: Vec<String> = senders.join_all().await.concat();

    assert_eq!(refused, 75);
    gateway.wait_for_count("succeeded", sent.len()).await;
    let arrived = sink.requests();
    let bodies: HashSet<&[u8]> = arrived.iter().map(|request| &*request.body).collect();
    assert_eq!((arrived.len(), bodies.len()), (sent.len(), sent.len()), "each arrived once");
    // The last good file was that of turn 96.
    assert_eq!(gateway.get("/about").await.json()["retention"], "97d");
}

#[tokio::test]
async fn service_manager_gets_readiness_watchdog_reload_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let receive = || {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut gateway = Gateway::builder()
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("WATCHDOG_USEC", "100000")
        .start()
        .await;

    let ready = std::iter::repeat_with(receive).find(|message| message != "WATCHDOG=1").unwrap();
    let alive = [receive(), receive(), receive()];
    kill_process(gateway.pid(), Signal::HUP).unwrap();
    let mut others = std::iter::repeat_with(receive).filter(|message| message != "WATCHDOG=1");
    let (reloading, ready_again) = (others.next().unwrap(), others.next().unwrap());
    gateway.send_sigterm();
    let stopping = others.next().unwrap();

    assert_eq!(ready, "READY=1\nSTATUS=Ready");
    assert_eq!(alive, ["WATCHDOG=1"; 3]);
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(micros.parse::<u64>().is_ok(), "{reloading}");
    assert_eq!(ready_again, ready);
    assert!(stopping.starts_with("STOPPING=1\n"), "{stopping}");
    assert!(gateway.wait_for_exit().await.success());
}

#[tokio::test]
async fn healthcheck_succeeds_only_while_the_gateway_takes_requests() {
    let mut gateway = Gateway::start().await;
    let address = gateway.address().to_string();
    let check = async |arguments: &[&str]| {
        let arguments = [&["healthcheck"][..], arguments].concat();
        run_surehook(gateway.folder(), &arguments, &[]).await
    };

    let ready = check(&["--listen", &address]).await;
    let live = check(&["--live", "--listen", &address]).await;

    assert_eq!((ready.code, &*ready.stdout), (Some(0), "ok\n"), "{ready:?}");
    assert_eq!(live.code, Some(0), "{live:?}");
    // The settings name the address in production.
    let env = [("SUREHOOK_LISTEN".to_owned(), address.clone())];
    let by_settings = run_surehook(gateway.folder(), &["healthcheck"], &env).await;
    assert_eq!(by_settings.code, Some(0), "{by_settings:?}");
    gateway.kill9();
    let stopped = run_surehook(gateway.folder(), &["healthcheck"], &env).await;
    assert_eq!(stopped.code, Some(6), "{stopped:?}");
    assert!(stopped.stderr.contains(&address), "{stopped:?}");
}
