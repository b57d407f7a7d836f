//! Dead letters grouped by cause: counts, filters and replay of one group.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use crate::support::{
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink, SinkRequest},
};

/// Answers with one of three errors, each time with different ids.
fn reply_with_error(number: usize, arrival: &SinkRequest) -> Reply {
    let body: Value = serde_json::from_slice(&arrival.body).unwrap();
    let trace = format!("{:032x}", (number + 1) * 7_919);
    match body["error"].as_str().unwrap() {
        "unknown" => {
            let message = format!("order {} was not found", number + 100);
            let error = json!({ "message": message, "code": "not_found", "trace": trace });
            Reply::status(400).body(json!({ "error": error, "token": "hunter2" }).to_string())
        }
        "locked" => Reply::status(400).body(format!("Order '{trace}' is locked by job {number}")),
        _ => Reply::status(422).body(format!(
            "<html><head><title>Refused</title></head><body>Ray {trace}</body></html>"
        )),
    }
}

async fn list_groups(gateway: &Gateway, query: &str) -> Vec<Value> {
    let path = format!("/dead-letters/groups{query}");
    gateway.list(&path).await
}

/// The shape and count of every group, sorted by shape.
async fn group_counts(gateway: &Gateway) -> Vec<(String, u64)> {
    let mut counts: Vec<_> = list_groups(gateway, "")
        .await
        .iter()
        .map(|group| {
            (group["shape"].as_str().unwrap().to_owned(), group["count"].as_u64().unwrap())
        })
        .collect();
    counts.sort();
    counts
}

const UNKNOWN: &str = "400: not_found; order # was not found";
const LOCKED: &str = "400: Order <text> is locked by job #";
const REFUSED: &str = "422: Refused";

#[tokio::test]
async fn three_error_types_form_three_groups_and_one_is_replayed_alone() {
    const EACH: usize = 7;
    let healthy = Arc::new(AtomicBool::new(false));
    let is_healthy = Arc::clone(&healthy);
    let sink = Sink::with_script(move |number, arrival| match is_healthy.load(Ordering::SeqCst) {
        true => Reply::status(200),
        false => reply_with_error(number, arrival),
    })
    .await;
    let mut gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    for number in 0..EACH {
        for error in ["unknown", "locked", "refused"] {
            let body = json!({ "id": format!("{error}-{number}"), "error": error });
            gateway.post_accepted("in", body.to_string()).await;
        }
    }
    gateway.wait_for_count("dead", 3 * EACH).await;
    let each = u64::try_from(EACH).unwrap();
    let pair = |shape: &str, count| (shape.to_owned(), count);
    let expected = [pair(LOCKED, each), pair(UNKNOWN, each), pair(REFUSED, each)];
    assert_eq!(group_counts(&gateway).await, expected);

    gateway.kill9();
    gateway.restart().await;
    assert_eq!(group_counts(&gateway).await, expected, "counts survive a kill");

    let all = list_groups(&gateway, "?destination=out&source=in").await;
    let unknown = all.iter().find(|group| group["shape"] == UNKNOWN).unwrap();
    let sample = unknown["sample"].as_str().unwrap();
    assert!(sample.contains("was not found") && !sample.contains("hunter2"), "{sample}");
    let facts = ["destination", "class", "code", "failure", "reason"].map(|name| &unknown[name]);
    let config = [&json!("out"), &json!("permanent"), &json!(400), &Value::Null];
    assert_eq!(facts[..4], config);
    let id = unknown["id"].as_str().unwrap();
    for list in ["/dead-letters", "/deliveries"] {
        let deliveries = gateway.list(&format!("{list}?group={id}")).await;
        assert_eq!(deliveries.len(), EACH);
        assert_eq!(deliveries[0]["id"], unknown["newest_delivery"]);
        assert_eq!(deliveries[0]["event"], unknown["newest_event"]);
        assert!(deliveries.iter().all(|delivery| delivery["group"] == id), "{deliveries:?}");
    }
    let first = gateway.get("/dead-letters/groups?limit=2").await.expect(200).json();
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(list_groups(&gateway, &format!("?cursor={cursor}")).await.len(), 1);

    let mut request = json!({ "verb": "retry_failed", "filter": { "group": id }, "rate": "500/s" });
    request["dry_run"] = json!(true);
    let preview = gateway.post("/replays", &request).await.expect(200).json();
    assert_eq!((&preview["count"], &preview["complete"]), (&json!(EACH), &json!(true)));
    healthy.store(true, Ordering::SeqCst);
    let replayed = ["dlq", "replay", "--group", id, "--rate", "500/s", "--yes", "--json"];
    let output = gateway.cli(&replayed).await;
    assert_eq!(output.code, Some(0), "{output:?}");

    let left = [pair(LOCKED, each), pair(REFUSED, each)];
    assert_eq!(group_counts(&gateway).await, left);
    gateway.kill9();
    gateway.restart().await;
    assert_eq!(group_counts(&gateway).await, left);
    assert_eq!(gateway.stats().await["dlq_size"], 2 * EACH);
}

#[tokio::test]
async fn cli_lists_dead_letter_groups() {
    let sink = Sink::with_script(reply_with_error).await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let output = gateway.cli(&["dlq", "groups"]).await;
    assert!(
        output.stdout.contains("No dead letters.") || output.stderr.contains("No dead"),
        "{output:?}"
    );
    let event =
        gateway.post_accepted("in", json!({ "id": 1, "error": "locked" }).to_string()).await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;

    let output = gateway.cli(&["dlq", "groups", "--json"]).await;
    let group: Value = serde_json::from_str(output.stdout.trim()).unwrap();
    assert_eq!((&group["count"], &group["shape"]), (&json!(1), &json!(LOCKED)));
    let id = group["id"].as_str().unwrap();
    let output = gateway.cli(&["dlq", "groups", "--destination", "out"]).await;
    assert!(output.stdout.contains(id) && output.stdout.contains("is locked"), "{output:?}");
    let output = gateway.cli(&["dlq", "list", "--group", id]).await;
    assert!(output.stdout.contains(dead["id"].as_str().unwrap()), "{output:?}");
}

#[tokio::test]
async fn invalid_group_filters_are_rejected() {
    let gateway = Gateway::start().await;
    let id = "grp_7hpgsjnt8cg6t1pnx95w4j84c2";
    for path in [
        "/dead-letters/groups?destination=absent",
        "/dead-letters/groups?cursor=evt",
        "/dead-letters/groups?status=dead",
        "/dead-letters?group=evt_01h455vb4pex5vsknk084sn02q",
        &format!("/deliveries?status=succeeded&group={id}"),
    ] {
        assert_eq!(gateway.get(path).await.expect(422).code(), "invalid", "case: {path}");
    }
    let none = gateway.get(&format!("/dead-letters?group={id}")).await.expect(200).json();
    assert_eq!(none["data"], json!([]));
    let request = json!({ "verb": "retry_failed", "filter": { "group": id }, "dry_run": true });
    assert_eq!(gateway.post("/replays", &request).await.expect(200).json()["count"], 0);
}

#[tokio::test]
async fn death_of_a_delivery_is_reported_once_and_success_is_not() {
    let crm = Sink::with_replies([Reply::status(422).body("unknown"), Reply::status(200)]).await;
    // A report that dies is not reported.
    let ops = Sink::with_replies([Reply::status(422)]).await;
    let settings = format!(
        "{}\n[[destinations]]\nname = \"ops\"\nurl = \"{}\"\non_dead = \"out\"\n",
        route_settings(&crm.url(), "on_dead = \"ops\""),
        ops.url(),
    );
    let gateway = Gateway::start_with(&settings).await;

    let dead = gateway.post_accepted("in", "{}").await;
    let delivery = gateway.wait_for_delivery(&dead, "dead").await;
    let delivered = gateway.post_accepted("in", "{}").await;
    gateway.wait_for_delivery(&delivered, "succeeded").await;

    let reports = ops.wait_for_requests(1).await;
    let report: Value = serde_json::from_slice(&reports[0].body).unwrap();
    assert_eq!((&report["type"], &report["message_id"]), (&json!("delivery.dead"), &json!(dead)));
    assert_eq!((&report["delivery_id"], &report["destination"]), (&delivery["id"], &json!("out")));
    assert_eq!(report["last_attempt"]["status"], 422);
    // The report is dead as well, and nothing follows from that.
    gateway.wait_for_count("dead", 2).await;
    assert_eq!((crm.count(), ops.count()), (2, 1));

    for (name, to) in [("other", "absent"), ("other", "other")] {
        let spec = json!({ "name": name, "url": crm.url(), "on_dead": to });
        let refused = gateway.post("/destinations", &spec).await.expect(422);
        assert!(refused.detail().contains("on_dead"), "{}", refused.detail());
    }
    let deleted = gateway.delete("/destinations/ops").await;
    assert!(deleted.status.is_client_error(), "it is in use: {deleted:?}");
}
