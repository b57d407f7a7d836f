//! Filters and transforms of routes: what they see, and what happens to events on which a filter fails.

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, Route},
    process::run_surehook,
    sink::Sink,
};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn settings(url: &str, filter: &str, transform: Option<&str>) -> String {
    let transform = transform.map(|jq| format!("\ntransform = '{jq}'")).unwrap_or_default();
    let route = format!("filter = '{filter}'{transform}");
    let destination = format!("url = \"{url}\"");
    Route { route: &route, destination: &destination, ..Route::default() }.settings()
}

async fn change_filter(gateway: &Gateway, filter: &str) {
    let routes = gateway.list("/routes").await;
    let id = routes[0]["id"].as_str().unwrap();
    let changed = json!({ "from": "in", "to": "out", "filter": filter });
    gateway.put(&format!("/routes/{id}"), &changed).await.expect(200);
}

fn decisions(event: &Value, kind: &str) -> Vec<Value> {
    let all = event["decisions"].as_array().unwrap();
    all.iter().filter(|decision| decision["kind"] == kind).cloned().collect()
}

#[tokio::test]
async fn form_passes_filter_and_transform_with_variables() {
    let sink = Sink::ok().await;
    let filter = r#".command == "/deploy" and $source == "in" and $headers["x-mine"] == "1" and $kind == null"#;
    let transform = r#"{text, action: .payload.action, secret: $headers.authorization}"#;
    let gateway = Gateway::start_with(&settings(&sink.url(), filter, Some(transform))).await;
    let body = "command=%2Fdeploy&text=a+b&payload=%7B%22action%22%3A%22opened%22%7D";

    let headers = [FORM, ("x-mine", "1"), ("authorization", "Bearer canary-123")];
    let sent = gateway.send_webhook("in", &headers, body).await.expect(200);
    let other = gateway.send_webhook("in", &[FORM], "command=%2Fother").await.expect(200);

    let arrived = sink.wait_for_requests(1).await;
    assert_eq!(arrived[0].id(), sent.event_id());
    assert_eq!(arrived[0].body, r#"{"text":"a b","action":"opened","secret":null}"#);
    let skipped = gateway.event(&other.event_id()).await;
    assert_eq!(decisions(&skipped, "not_routed")[0]["detail"]["why"], "filter_false");
    let original = gateway.get(&format!("/events/{}/body", sent.event_id())).await.expect(200);
    assert_eq!(original.text(), body);
}

#[tokio::test]
async fn event_that_no_route_takes_because_of_a_filter_error_is_a_replayable_dead_letter() {
    let sink = Sink::ok().await;
    let filter = r#".ref | startswith("refs/tags/")"#;
    let gateway = Gateway::start_with(&settings(&sink.url(), filter, None)).await;
    let mut dead = Vec::new();
    for (body, why) in [
        (r#"{"id":"a","password":"canary-1"}"#, "the filter failed"),
        (r#"{"id":"b","ref":["refs/tags/v1"]}"#, "the filter failed"),
        ("<xml/>", "not JSON"),
    ] {
        let event = gateway.post_accepted("in", body).await;
        let delivery = gateway.wait_for_delivery(&event, "dead").await;
        let id = delivery["id"].as_str().unwrap().to_owned();
        let detail = gateway.wait_for_delivery_status(&id, "dead").await;
        assert_eq!(detail["reason"], "payload_error", "{detail}");
        let attempt = &detail["attempt_list"][0];
        assert_eq!(attempt["failure"], "filter", "{detail}");
        assert!(attempt["detail"].as_str().unwrap().contains(why), "{detail}");
        assert!(!detail.to_string().contains("canary"), "{detail}");
        dead.push((event, id));
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.contains(r#"surehook_filter_errors_total{source="in"} 3"#), "{metrics}");
    let groups = gateway.list("/dead-letters/groups").await;
    assert!(groups.iter().all(|group| group["failure"] == "filter"), "{groups:?}");

    // The filter works now: events that it matches are delivered, and the others are not failures any more.
    change_filter(&gateway, r#"(.ref // [])[0] // "" | startswith("refs/tags/")"#).await;
    let mut replayed = Vec::new();
    for (_, delivery) in &dead {
        let replay = gateway.post(&format!("/deliveries/{delivery}/replay"), &json!({})).await;
        replayed.push(replay.expect(202).json()["delivery_id"].as_str().unwrap().to_owned());
    }

    assert_eq!(sink.wait_for_requests(1).await[0].id(), dead[1].0);
    gateway.wait_for_delivery_status(&replayed[1], "succeeded").await;
    gateway.wait_for_delivery_status(&replayed[0], "cancelled").await;
    let event = gateway.event(&dead[0].0).await;
    let cancelled = decisions(&event, "cancelled");
    assert_eq!(cancelled[0]["detail"], json!({ "why": "filter_false" }), "{event}");
    // A body that no filter can read fails again.
    gateway.wait_for_delivery_status(&replayed[2], "dead").await;
    assert_eq!(gateway.stats().await["dlq_size"], 1);
    assert_eq!(sink.count(), 1);
}

#[tokio::test]
async fn filter_error_beside_a_matching_route_is_recorded_as_not_routed() {
    let sink = Sink::ok().await;
    let all = r#"
        [[destinations]]
        name = "all"
        url = "builtin:inbox"

        [[routes]]
        from = "in"
        to = "all"
        "#;
    let settings = settings(&sink.url(), ".a.b", None) + all;
    let gateway = Gateway::start_with(&settings).await;

    let event = gateway.post_accepted("in", r#"{"a":"text"}"#).await;

    gateway.wait_for_delivery(&event, "succeeded").await;
    let event = gateway.event(&event).await;
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 1, "{event}");
    let why = json!({ "destination": "out", "why": "filter_failed:runtime" });
    assert_eq!(decisions(&event, "not_routed")[0]["detail"], why);
}

#[tokio::test]
async fn filter_that_matches_no_recent_event_is_warned_of() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(&settings(&sink.url(), ".n == 7", None)).await;
    for body in [r#"{"n":1,"password":"canary"}"#, r#"{"n":"x"}"#] {
        gateway.post_accepted("in", body).await;
    }
    let recent = async |filter: &str| {
        let request = json!({ "filter": filter, "body": {}, "source": "in" });
        let trial = gateway.post("/routes/try", &request).await.expect(200).json();
        trial["recent"].clone()
    };

    let none = recent(".n == 7").await;
    assert_eq!((&none["events"], &none["failed"]), (&json!(2), &json!(0)), "{none}");
    let warning = "the filter matches none of the last 2 events of `in`";
    assert_eq!(none["warning"], warning);
    let failing = recent(".n | .x").await;
    assert_eq!(failing["warning"], format!("{warning} and fails on 2 of them"));
    let matching = recent(".n == 1").await;
    assert_eq!((&matching["matches"], &matching["warning"]), (&json!(true), &Value::Null));
    assert_eq!(recent(".n ==").await, Value::Null);
    // Secrets cannot be guessed by trying filters.
    assert_eq!(recent(r#".password == "canary""#).await["matches"], false);
    let unknown = json!({ "filter": ".", "body": {}, "source": "other" });
    gateway.post("/routes/try", &unknown).await.expect(404);

    let folder = gateway.folder();
    std::fs::write(folder.join("body.txt"), "n=7").unwrap();
    let args = ["routes", "try", "--filter", ".n == \"7\"", "--body", "body.txt", "--source", "in"];
    let header = ["-H", "content-type: application/x-www-form-urlencoded"];
    let tried = gateway.cli(&[&args[..], &header].concat()).await;
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.stderr.contains("The filter matches.") && tried.stderr.contains(warning));
    let checked = run_surehook(folder, &["config", "check", "surehook.toml"], &[]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let expected = format!("route from `in` to `out`: {warning}");
    assert!(checked.stderr.contains(&expected), "{checked:?}");
    let args = ["config", "check", "surehook.toml", "--json", "--data", "elsewhere"];
    let elsewhere = run_surehook(folder, &args, &[]).await;
    assert!(elsewhere.stdout.contains(r#""warnings":[]"#), "{elsewhere:?}");
}
