//! Filters and pages of lists, and exports of whole lists as NDJSON and CSV.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, route_settings},
    sink::{Reply, Sink},
    unix_now,
};

fn ids(list: &Value) -> Vec<String> {
    let rows = list["data"].as_array().unwrap();
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn event_and_delivery_lists_are_filtered_by_query() {
    let sink = Sink::with_script(|_, arrival| {
        Reply::status(if arrival.body.starts_with(b"bad") { 400 } else { 200 })
    })
    .await;
    let gateway = Gateway::start_with(&route_settings(&sink.url(), "")).await;
    let good = gateway.post_accepted("in", "good +5511999").await;
    let bad = gateway.post_accepted("in", "bad").await;
    gateway.wait_for_delivery(&good, "succeeded").await;
    let dead = gateway.wait_for_delivery(&bad, "dead").await["id"].as_str().unwrap().to_owned();

    let year = 365 * 86_400;
    let (past, future) = (timestamp(unix_now() - year), timestamp(unix_now() + year));
    let events = [
        ("?status=dead".to_owned(), vec![&bad]),
        ("?status=succeeded".to_owned(), vec![&good]),
        ("?status=held".to_owned(), vec![]),
        ("?search=%2B5511999".to_owned(), vec![&good]),
        ("?search=nothing".to_owned(), vec![]),
        (format!("?since={past}&until={future}"), vec![&bad, &good]),
        (format!("?since={future}"), vec![]),
        (format!("?until={past}"), vec![]),
    ];
    for (query, expected) in events {
        let listed = gateway.get(&format!("/events{query}")).await.expect(200).json();
        assert_eq!(ids(&listed).iter().collect::<Vec<_>>(), expected, "case: {query}");
    }
    for (query, count) in [
        (format!("?event={bad}"), 1),
        ("?source=in".to_owned(), 2),
        ("?code=400".to_owned(), 1),
        ("?code=500".to_owned(), 0),
        ("?class=permanent".to_owned(), 1),
        (format!("?since={future}"), 0),
    ] {
        let listed = gateway.get(&format!("/deliveries{query}")).await.expect(200).json();
        assert_eq!(ids(&listed).len(), count, "case: {query}");
    }
    let dead_letters = gateway.get("/dead-letters?class=permanent&code=400&source=in").await.json();
    assert_eq!(ids(&dead_letters), [dead]);
}

fn timestamp(secs: i64) -> String {
    surehook_types::time::Timestamp::from_millis(secs * 1000).to_string()
}

#[tokio::test]
async fn invalid_list_filter_is_rejected_by_name() {
    let gateway = Gateway::start().await;
    let long = format!("/events?search={}", "x".repeat(257));
    for (path, named) in [
        ("/events?since=yesterday", "since"),
        ("/events?until=2026", "until"),
        ("/events?status=lost", "status"),
        ("/events?search=", "search"),
        (&long, "search"),
        ("/events?format=xml", "format"),
        ("/deliveries?class=bad", "class"),
        ("/deliveries?code=99", "code"),
        ("/deliveries?code=ok", "code"),
        ("/deliveries?event=dlv_01h455vb4pex5vsknk084sn02q", "event"),
        ("/deliveries?source=absent", "absent"),
        ("/sources?limit=0", "limit"),
        ("/sources?cursor=dst_01h455vb4pex5vsknk084sn02q", "cursor"),
        ("/routes?name=x", "name"),
        ("/requests?source=0.5", "source"),
    ] {
        let response = gateway.get(path).await.expect(422);
        assert!(response.detail().contains(named), "case: {path}: {}", response.detail());
    }
}

#[tokio::test]
async fn array_in_place_of_object_is_rejected() {
    let gateway = Gateway::start().await;
    for body in [
        json!({ "sources": [["shop", "generic", "none"]] }),
        json!({ "routes": [["demo", "inbox"]] }),
        json!({ "sources": [{ "name": "shop", "verify": "none", "sync": ["inbox"] }] }),
    ] {
        let response = gateway.put("/configuration", &body).await.expect(422);
        assert!(response.detail().contains("object"), "case: {body}: {}", response.detail());
    }
}

#[tokio::test]
async fn configuration_lists_are_paged() {
    let gateway = Gateway::start().await;
    for name in ["a", "b", "c"] {
        gateway.post("/sources", &json!({ "name": name, "verify": "none" })).await.expect(201);
    }
    let mut names = Vec::new();
    let mut query = "?limit=3".to_owned();
    loop {
        let page = gateway.get(&format!("/sources{query}")).await.expect(200).json();
        names.extend(page["data"].as_array().unwrap().iter().map(|row| row["name"].clone()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        query = format!("?limit=3&cursor={cursor}");
    }
    assert_eq!(names, ["c", "b", "a", "demo"]);
}

#[tokio::test]
async fn export_contains_every_row_of_the_list() {
    let gateway = Gateway::start().await;
    // More rows than an export reads at once.
    let mut sent = Vec::new();
    for number in 0..620 {
        sent.push(gateway.post_accepted("demo", format!("{{\"id\":\"k{number}\"}}")).await);
    }
    // The list shows the number of deliveries per status.
    gateway.wait_until_idle().await;
    // Newest first; events of the same millisecond are ordered by id.
    sent.sort_unstable_by(|a, b| b.cmp(a));

    let export = gateway.get("/events?format=ndjson").await.expect(200);
    let rows: Vec<Value> =
        export.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["id"].as_str().unwrap()).collect::<Vec<_>>(), sent);
    assert_eq!(export.header("content-type"), "application/x-ndjson");
    let file = "attachment; filename=\"surehook-events.ndjson\"";
    assert_eq!(export.header("content-disposition"), file);
    assert_eq!(export.header("x-content-type-options"), "nosniff");
    // Exported rows equal rows of the list.
    let listed = gateway.get("/events?limit=1").await.expect(200).json();
    assert_eq!(rows[0], listed["data"][0]);

    let csv = gateway
        .request_as_admin(Method::GET, "/events", &[("accept", "text/csv")], "")
        .await
        .expect(200);
    assert!(csv.header("content-type").starts_with("text/csv"));
    let text = csv.text();
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 1 + sent.len());
    assert!(lines[0].starts_with("id,request_id,source,key,"), "{}", lines[0]);
    assert!(lines[1].starts_with(&sent[0]) && lines[620].starts_with(&sent[619]));

    let some = gateway.get("/events?format=ndjson&limit=7").await.expect(200);
    assert_eq!(some.text().lines().count(), 7);
    let rest = gateway.get(&format!("/events?format=ndjson&cursor={}", sent[599])).await;
    assert_eq!(rest.expect(200).text().lines().count(), 20);
    let filtered = gateway.get("/events?format=csv&search=nothing").await.expect(200);
    assert_eq!(filtered.text().lines().count(), 1, "only the header row");
    let none = gateway.get("/dead-letters?format=ndjson").await.expect(200);
    assert_eq!(none.text(), "");
}

#[tokio::test]
async fn abandoned_exports_free_their_slots() {
    // More exports than may run at the same time.
    const READERS: usize = 12;
    let gateway = Gateway::start().await;
    for number in 0..620 {
        gateway.post_accepted("demo", format!("{{\"id\":\"k{number}\"}}")).await;
    }
    for _ in 0..READERS {
        let mut raw = gateway.connect_raw().await;
        let request = format!(
            "GET /api/v1/events?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
            gateway.token()
        );
        raw.write(request).await;
        raw.read_until("\r\n").await;
    }

    let export = eventually(WAIT_LIMIT, || async {
        Some(gateway.get("/events?format=ndjson").await).filter(|response| response.status == 200)
    })
    .await;
    assert_eq!(export.text().lines().count(), 620);
}

#[tokio::test]
async fn csv_export_escapes_formula_in_key() {
    let gateway = Gateway::start().await;
    gateway.post_accepted("demo", r#"{"id":"=HYPERLINK(\"http://x\",1)"}"#).await;
    let csv = gateway.get("/events?format=csv").await.expect(200).text();
    assert!(csv.contains("\"'=HYPERLINK(\"\"http://x\"\",1)\""), "{csv}");
}
