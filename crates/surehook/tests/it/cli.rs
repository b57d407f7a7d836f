//! The command line: first start, `apply`, lists and dead letters, errors, and how a gateway starts and stops.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    process::{CommandOutput, run_surehook},
    sink::{Reply, Sink},
};

/// Parses each line of a command's output as JSON.
#[track_caller]
fn parse_json_lines(output: &CommandOutput) -> Vec<Value> {
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a gateway with one dead letter and returns its id; all further attempts succeed.
async fn start_with_dead_letter() -> (Gateway, Sink, String) {
    let sink = Sink::with_replies([Reply::status(400), Reply::status(200)]).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", r#"{"id":"a"}"#).await;
    let delivery =
        gateway.wait_for_delivery(&event, "dead").await["id"].as_str().unwrap().to_owned();
    (gateway, sink, delivery)
}

#[tokio::test]
async fn printed_commands_deliver_a_first_event() {
    let gateway = Gateway::start_unconfigured().await;
    let printed = gateway.stdout();
    assert!(printed.contains("data         data"), "{printed}");
    let curl = printed.lines().find(|line| line.contains("curl -X POST")).unwrap();
    let url = curl.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let body = curl.split_once("-d '").unwrap().1.strip_suffix('\'').unwrap().to_owned();
    let path = url.strip_prefix(&gateway.url("")).unwrap();

    let headers: [(&str, &[u8]); 1] = [("content-type", b"application/json")];
    let sent = gateway.request(http::Method::POST, path, &headers, body.clone()).await;

    let id = sent.expect(200).event_id();
    gateway.wait_for_delivery(&id, "succeeded").await;
    let inbox_command =
        printed.lines().find(|line| line.contains("Authorization: Bearer")).unwrap();
    assert!(
        inbox_command.contains(gateway.token()) && inbox_command.ends_with("/api/v1/inbox"),
        "{inbox_command}"
    );
    let inbox = gateway.get("/inbox").await.expect(200).json();
    assert_eq!(inbox["data"][0]["event"], id);
    assert_eq!(inbox["data"][0]["body"]["text"], body);
}

#[tokio::test]
async fn initial_token_is_printed_once_and_survives_restart() {
    let mut gateway = Gateway::start_unconfigured().await;
    let token = gateway.token().to_owned();
    assert!(token.starts_with("shk_"), "{token}");

    gateway.restart().await;

    assert!(!gateway.stdout().contains(&token), "{}", gateway.stdout());
    // A shell expands the variable in double quotes.
    let inbox_command = "curl -H \"Authorization: Bearer $SUREHOOK_TOKEN\"";
    assert!(gateway.stdout().contains(inbox_command), "{}", gateway.stdout());
    gateway.get("/stats").await.expect(200);
    let files = std::fs::read_dir(gateway.folder().join("data")).unwrap();
    // The reserved space is large, and has no content.
    let has_content = |path: &PathBuf| path.is_file() && !path.ends_with("reserve");
    for file in files.map(|entry| entry.unwrap().path()).filter(has_content) {
        let bytes = std::fs::read(&file).unwrap();
        let contains_token = bytes.windows(token.len()).any(|window| window == token.as_bytes());
        assert!(!contains_token, "the token itself is in {}", file.display());
    }
}

#[tokio::test]
async fn apply_changes_a_running_gateway() {
    let gateway = Gateway::start().await;
    let file = gateway.folder().join("more.toml");
    let settings = route_settings("https://example.com/hook", "");
    std::fs::write(&file, &settings).unwrap();

    let first = gateway.cli(&["apply", "more.toml"]).await;
    let second = parse_json_lines(&gateway.cli(&["apply", "more.toml", "--json"]).await);

    assert_eq!(first.code, Some(0), "{first:?}");
    for created in ["+ source in", "+ destination out", "+ route in to out"] {
        assert!(first.stdout.contains(created), "{first:?}");
    }
    assert_eq!((&second[0]["changes"], &second[0]["unchanged"]), (&json!([]), &json!(3)));
    gateway.post_accepted("in", "{}").await;
    std::fs::write(&file, settings.replace("name = \"in\"", "name = \"in\"\nnam = \"x\"")).unwrap();
    let wrong = gateway.cli(&["apply", "more.toml"]).await;
    assert_eq!(wrong.code, Some(78), "{wrong:?}");
    assert!(wrong.stderr.contains("nam") && wrong.stderr.contains("more.toml"), "{wrong:?}");
    let missing = gateway.cli(&["apply", "nothing.toml"]).await;
    assert_eq!(missing.code, Some(78), "{missing:?}");
}

#[tokio::test]
async fn cli_lists_and_shows_events_without_control_characters() {
    let gateway = Gateway::start().await;
    let first = gateway.post_accepted("demo", r#"{"id":"\u001b[31mred"}"#).await;
    let second = gateway.post_accepted("demo", r#"{"id":"b"}"#).await;
    gateway.wait_for_delivery(&first, "succeeded").await;

    let all = parse_json_lines(&gateway.cli(&["events", "list", "--json"]).await);
    let page = parse_json_lines(&gateway.cli(&["events", "list", "--limit", "1", "--json"]).await);
    let args = ["events", "list", "--source", "demo", "--key", "b", "--json"];
    let one = parse_json_lines(&gateway.cli(&args).await);
    let shown = parse_json_lines(&gateway.cli(&["events", "show", &first, "--json"]).await);

    let ids: Vec<&Value> = all.iter().map(|event| &event["id"]).collect();
    assert_eq!(ids, [&json!(second), &json!(first)]);
    assert_eq!(page.len(), 1);
    assert_eq!((one.len(), &one[0]["id"]), (1, &json!(second)));
    assert_eq!(
        (&shown[0]["id"], &shown[0]["deliveries"][0]["status"]),
        (&json!(first), &json!("succeeded"))
    );
    // Control sequences of a sender must not reach the terminal.
    for args in [&["events", "list"][..], &["events", "show", &first]] {
        let table = gateway.cli(args).await;
        assert_eq!(table.code, Some(0), "{table:?}");
        assert!(table.stdout.contains("[31mred") && !table.stdout.contains('\u{1b}'), "{table:?}");
    }
}

#[tokio::test]
async fn cli_lists_counts_shows_and_replays_dead_letters() {
    let (gateway, sink, id) = start_with_dead_letter().await;

    let listed = parse_json_lines(
        &gateway.cli(&["dlq", "list", "--reason", "payload_error", "--json"]).await,
    );
    let none =
        parse_json_lines(&gateway.cli(&["dlq", "list", "--reason", "expired", "--json"]).await);
    let stats = parse_json_lines(&gateway.cli(&["dlq", "stats", "--json"]).await);
    let shown = parse_json_lines(&gateway.cli(&["dlq", "show", &id, "--json"]).await);
    let replayed = parse_json_lines(&gateway.cli(&["dlq", "replay", &id, "--json"]).await);

    assert_eq!((listed.len(), &listed[0]["id"]), (1, &json!(id)));
    assert_eq!(none.len(), 0);
    assert_eq!(stats[0]["payload_error"], json!({ "total": 1, "pending": 1 }));
    assert_eq!(shown[0]["attempt_list"][0]["status"], 400);
    assert_eq!(replayed[0]["id"], id);
    let new = replayed[0]["delivery_id"].as_str().unwrap();
    gateway.wait_for_delivery_status(new, "succeeded").await;
    assert_eq!(sink.requests().len(), 2);
    let too_soon = gateway.cli(&["dlq", "replay", &id]).await;
    assert_eq!(too_soon.code, Some(5), "{too_soon:?}");
    assert!(too_soon.stderr.contains("again in"), "{too_soon:?}");
    let table = gateway.cli(&["dlq", "stats"]).await;
    assert!(table.stdout.contains("payload_error"), "{table:?}");
}

#[tokio::test]
async fn replay_of_several_reports_each_failure() {
    let (gateway, _sink, id) = start_with_dead_letter().await;
    let missing = "dlv_01h455vb4pex5vsknk084sn02q";

    let output = gateway.cli(&["dlq", "replay", missing, &id]).await;

    assert_eq!(output.code, Some(7), "{output:?}");
    assert!(output.stdout.contains(&id) && output.stderr.contains(missing), "{output:?}");
}

#[tokio::test]
async fn failing_command_prints_the_reason_and_a_hint() {
    let gateway = Gateway::start().await;
    let server = gateway.url("");
    let with = |server: &str, token: &str| {
        vec![
            ("SUREHOOK_SERVER".to_owned(), server.to_owned()),
            ("SUREHOOK_TOKEN".to_owned(), token.to_owned()),
        ]
    };
    let unused_address = {
        // The port is free again when the listener is dropped.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let list: &[&str] = &["events", "list"];
    let show: &[&str] = &["events", "show", "evt_01h455vb4pex5vsknk084sn02q"];
    let good = gateway.token();
    for (name, args, env, code, expected) in [
        ("wrong token", list, with(&server, "guess"), 3, "--token"),
        ("no token", list, vec![("SUREHOOK_SERVER".to_owned(), server.clone())], 3, "--token"),
        ("not running", list, with(&unused_address, good), 6, "surehook serve"),
        ("no address", list, with("not an address", good), 1, "not a URL"),
        ("not there", show, with(&server, good), 4, "No such event"),
        ("bad cursor", &["events", "list", "--cursor", "x"], with(&server, good), 5, "cursor"),
        ("bad option", &["events", "list", "--limit", "0"], with(&server, good), 2, "--limit"),
    ] {
        let output = run_surehook(gateway.folder(), args, &env).await;
        assert_eq!(output.code, Some(code), "case: {name}: {output:?}");
        assert!(output.stderr.contains(expected), "case: {name}: {output:?}");
        assert!(!output.stderr.contains("panicked"), "case: {name}: {output:?}");
    }
}

#[tokio::test]
async fn invalid_settings_are_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("unknown key", "listn = \"127.0.0.1:0\"", &[][..], "listn"),
        ("unknown limit", "[limits]\nbody_max = 1", &[], "body_max"),
        ("wrong type", "retention = 30", &[], "retention"),
        ("overflow", "retention = \"99999999999999999999d\"", &[], "retention"),
        ("port", "listen = \"127.0.0.1:70000\"", &[], "listen"),
        ("network", "allow_networks = [\"everything\"]", &[], "allow_networks"),
        ("not TOML", "listen", &[], "surehook.toml"),
        ("source", "[[sources]]\nname = \"in\"", &[], "verify"),
        (
            "secret",
            "[[sources]]\nname = \"in\"\nverify = { token = { header = \"x\" } }\n\
          secrets = [\"env:NOT_SET\"]",
            &[],
            "NOT_SET",
        ),
        ("route", "[[routes]]\nfrom = \"a\"\nto = \"b\"", &[], "`a`"),
        ("empty variable", "", &[("SUREHOOK_DATA", "")], "SUREHOOK_DATA"),
        ("short token", "", &[("SUREHOOK_ADMIN_TOKEN", "short")], "SUREHOOK_ADMIN_TOKEN"),
    ];
    for (name, settings, env, expected) in cases {
        std::fs::write(folder.path().join("surehook.toml"), settings).unwrap();
        let env: Vec<(String, String)> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let data = name.replace(' ', "-");
        let args = ["serve", "--listen", "127.0.0.1:0", "--data", &data];
        let args = if name == "port" { &args[..1] } else { &args[..] };
        let output = run_surehook(folder.path(), args, &env).await;
        assert_eq!(output.code, Some(78), "case: {name}: {output:?}");
        assert!(output.stderr.contains(expected), "case: {name}: {output:?}");
        assert!(!output.stdout.contains("ready"), "case: {name}: {output:?}");
        // The message is not repeated.
        assert!(output.stderr.matches("is missing").count() <= 1, "case: {name}: {output:?}");
    }
}

#[tokio::test]
async fn second_gateway_on_the_same_data_folder_is_refused() {
    let gateway = Gateway::start().await;
    let serve = |folder: &Path, listen: &str| {
        let (folder, listen) = (folder.to_owned(), listen.to_owned());
        async move {
            run_surehook(&folder, &["serve", "--data", "data", "--listen", &listen], &[]).await
        }
    };

    let second = serve(gateway.folder(), "127.0.0.1:0").await;
    let elsewhere = tempfile::tempdir().unwrap();
    let same_port = serve(elsewhere.path(), &gateway.address().to_string()).await;

    assert_eq!(second.code, Some(78), "{second:?}");
    assert!(second.stderr.contains("another surehook"), "{second:?}");
    assert!(second.stderr.contains("--data"), "{second:?}");
    assert_eq!(same_port.code, Some(78), "{same_port:?}");
    assert!(same_port.stderr.contains("--listen"), "{same_port:?}");
    gateway.post_accepted("demo", "{}").await;
}

#[tokio::test]
async fn sigterm_finishes_running_attempts_and_starts_no_new_ones() {
    let sink = Sink::with_replies([Reply::status(200).after(Duration::from_secs(1))]).await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "concurrency = 1")).await;
    let running = gateway.post_accepted("in", "1").await;
    let waiting = gateway.post_accepted("in", "2").await;
    sink.wait_for_requests(1).await;

    let status = gateway.terminate().await;

    assert_eq!(status.code(), Some(0), "{}", gateway.log());
    assert_eq!(sink.requests().len(), 1, "an attempt was started after the signal");
    gateway.restart().await;
    let finished = gateway.wait_for_delivery(&running, "succeeded").await;
    assert_eq!(finished["attempts"], 1, "{finished}");
    gateway.wait_for_delivery(&waiting, "succeeded").await;
    assert_eq!(sink.requests().len(), 2);
}

#[tokio::test]
async fn hanging_attempt_does_not_delay_shutdown_beyond_the_grace_period() {
    let sink = Sink::with_replies([Reply::Hang, Reply::status(200)]).await;
    let settings = format!("shutdown_grace = \"100ms\"\n{}", route_settings(&sink.url(), ""));
    let mut gateway = Gateway::start_with(&settings).await;
    let event = gateway.post_accepted("in", "{}").await;
    sink.wait_for_requests(1).await;

    gateway.send_sigterm();
    let status = gateway.wait_for_exit().await;

    assert_eq!(status.code(), Some(0), "{}", gateway.log());
    gateway.restart().await;
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    assert_eq!(delivery["attempt_list"][0]["failure"], "interrupted", "{delivery}");
}

#[tokio::test]
async fn killed_gateway_resumes_its_deliveries_after_restart() {
    let sink = Sink::with_replies([Reply::Hang, Reply::status(200)]).await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let event = gateway.post_accepted("in", "{}").await;
    sink.wait_for_requests(1).await;

    gateway.kill9();
    gateway.restart().await;

    gateway.wait_for_delivery(&event, "succeeded").await;
    let arrivals = eventually(WAIT_LIMIT, || async {
        Some(sink.requests()).filter(|arrivals| arrivals.len() == 2)
    })
    .await;
    assert_eq!(arrivals[0].id(), arrivals[1].id());
    assert!(arrivals[0].at < arrivals[1].at);
}
