//! `surehook mcp`, asked by the official client of the Model Context Protocol.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    process::{Process, run_surehook},
    sink::{Reply, Sink},
    tools::{Tool, assistant_python},
};

const SECRET: &str = "app-secret-of-the-test";

fn settings(sink: &Sink) -> String {
    format!(
        r#"
        [[sources]]
        name = "whatsapp"
        provider = "whatsapp-cloud"
        secrets = ["{SECRET}"]

        [[destinations]]
        name = "crm"
        url = "{}"
        pause_after_config_failures = 0

        [[routes]]
        from = "whatsapp"
        to = "crm"
        "#,
        sink.url()
    )
}

/// Starts `surehook mcp` through the client, and calls these tools.
fn ask(gateway: &Gateway, token: &str, more: &[&str], calls: &Value) -> Value {
    let mut child = Command::new(assistant_python())
        .args(["-c", include_str!("../assistants/ask.py"), env!("CARGO_BIN_EXE_surehook"), "mcp"])
        .args(more)
        .env("SUREHOOK_SERVER", gateway.url(""))
        .env("SUREHOOK_TOKEN", token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(json!({ "calls": calls }).to_string().as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn call(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

#[tokio::test]
async fn assistant_finds_out_why_a_message_did_not_arrive_and_replays_it() {
    if !Tool::Assistants.is_available() {
        return;
    }
    let sink = Sink::with_replies([
        Reply::status(422).body(r#"{"error":"unknown contact","token":"canary-of-the-answer"}"#),
        Reply::status(200),
    ])
    .await;
    let gateway = Gateway::start_with(&settings(&sink)).await;
    let args = ["send-test", "whatsapp", "--kind", "message.reaction", "--secret", SECRET];
    let sent = gateway.cli(&args).await;
    assert_eq!(sent.code, Some(0), "{sent:?}");
    gateway.wait_for_count("dead", 1).await;
    let event = gateway.list("/events").await.remove(0);
    let phones = event["attributes"]["phone"].as_array().unwrap();
    let phone =
        phones.iter().find_map(|phone| phone.as_str().filter(|text| text.starts_with("5511")));
    let forged =
        ["send-test", "whatsapp", "--kind", "message.system", "--bad-sig", "--secret", SECRET];
    gateway.cli(&forged).await;
    let viewer = gateway.create_token("viewer").await;

    let answers = ask(
        &gateway,
        &viewer,
        &[],
        &json!([
            call("search_events", json!({ "text": phone.unwrap() })),
            call("get_event", json!({ "id": "$EVENT" })),
            call("explain_delivery", json!({ "id": "$DELIVERY" })),
            call("list_dead_letter_groups", json!({})),
            call("get_destination_health", json!({ "name": "crm" })),
            call("get_event_body", json!({ "id": "$EVENT" })),
            call("get_stats", json!({})),
            call("list_sources", json!({})),
            call("list_refused_requests", json!({})),
            call("search_events", json!({ "text": "unknown@example.com" })),
            call("get_event", json!({ "id": "evt_00000000000000000000000000" })),
        ]),
    );

    assert_eq!(
        (&answers["version"], &answers["server"]),
        (&json!("2025-11-25"), &json!("surehook"))
    );
    assert!(answers["instructions"].as_str().unwrap().contains("explain_delivery"));
    let tools = answers["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true), "{tools:?}");
    assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));
    let results = answers["results"].as_array().unwrap();
    let found = &results[0]["structured"];
    assert_eq!((&found["found_by"], &found["events"][0]["id"]), (&json!("phone"), &event["id"]));
    let timeline = results[1]["structured"]["decisions"].as_array().unwrap();
    assert!(
        timeline.iter().any(|entry| entry["text"].as_str().unwrap().contains("422")),
        "{timeline:?}"
    );
    // The question of the user is answered by this text alone.
    let explained = &results[2]["structured"];
    let text = explained["explanation"].as_str().unwrap();
    assert!(
        text.contains("dead letter") && text.contains("answered 422") && text.contains("replay"),
        "{text}"
    );
    assert!(results[2]["text"].as_str().unwrap().contains("unknown contact"));
    assert_eq!(explained["destination"]["name"], "crm");
    assert_eq!(results[3]["structured"]["data"][0]["count"], 1, "{}", results[3]);
    assert_eq!(results[4]["structured"]["name"], "crm");
    assert!(results[5]["structured"]["body"].as_str().unwrap().contains("reaction"));
    assert_eq!(results[6]["structured"]["dlq_size"], 1);
    assert_eq!(results[7]["structured"]["sources"][0]["verified"], true);
    assert_eq!(results[8]["structured"]["refused"][0]["reason"], "mismatch", "{}", results[8]);
    assert_eq!(results[9]["structured"]["events"], json!([]));
    assert_eq!(results[10]["is_error"], true);
    assert!(!answers.to_string().contains("canary-of-the-answer"), "secrets are masked");
    assert!(!answers.to_string().contains(SECRET));

    let delivery = explained["delivery"]["id"].as_str().unwrap();
    let replay = json!([call("replay_delivery", json!({ "id": delivery }))]);
    let refused = ask(&gateway, &viewer, &["--allow-replay"], &replay);
    assert_eq!(refused["results"][0]["is_error"], true, "a viewer may not replay");
    let operator = gateway.create_token("operator").await;
    let replayed = ask(&gateway, &operator, &["--allow-replay"], &replay);
    assert_eq!(replayed["results"][0]["is_error"], false, "{replayed}");
    gateway.wait_for_count("succeeded", 1).await;
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn malformed_messages_are_answered_as_json_rpc_requires() {
    let folder = tempfile::tempdir().unwrap();
    let input = [
        "not json",
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"resources/list"}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"replay_delivery","arguments":{"id":"dlv_1"}}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"get_event","arguments":{"ids":"x"}}}"#,
        r#"[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#,
        "[]",
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_surehook"))
        .args(["mcp", "--token", "unused"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.join("\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let codes: Vec<Value> = answers.iter().map(|answer| answer["error"]["code"].clone()).collect();
    let none = Value::Null;
    let expected = json!([-32700, -32600, none, -32601, -32602, -32602, none, -32600]);
    assert_eq!(Value::from(codes), expected, "{answers:?}");
    assert_eq!((&answers[2]["id"], &answers[2]["result"]), (&json!("a"), &json!({})));
    assert_eq!(answers[6], json!([{ "jsonrpc": "2.0", "id": 5, "result": {} }]));
}

#[tokio::test]
async fn missing_token_is_reported_and_closed_input_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_surehook(folder.path(), &["mcp"], &[]).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("SUREHOOK_TOKEN"), "{output:?}");
    let mut stopped = Process::spawn(folder.path(), &["mcp", "--token", "unused"], &[]);
    // Its input is closed at once.
    assert_eq!(stopped.wait_for_exit().await.code(), Some(0));
}
