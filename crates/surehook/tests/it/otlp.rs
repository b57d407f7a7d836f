//! Traces and metrics for an OpenTelemetry collector, and the trace context of events.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT, eventually, free_port,
    gateway::{Gateway, Route, route_settings},
    otlp::{Collector, RealCollector, attribute},
    process::run_surehook,
    sink::{Reply, Sink},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SENDER_SPAN: &str = "00f067aa0ba902b7";
const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// An endpoint at which nothing listens.
fn closed_endpoint() -> String {
    format!("http://127.0.0.1:{}", free_port())
}

fn otlp_settings(endpoint: &str, more: &str) -> String {
    format!("[otlp]\nendpoint = \"{endpoint}\"\n{more}\n")
}

/// The trace id and the span id of a `traceparent`.
fn ids(traceparent: &str) -> [&str; 2] {
    let parts: Vec<&str> = traceparent.split('-').collect();
    [parts[1], parts[2]]
}

#[tokio::test]
async fn trace_of_the_sender_continues_through_retry_kill_and_replay() {
    let Some(collector) = Collector::start().await else { return };
    let target = Sink::with_replies([Reply::status(503), Reply::status(200)]).await;
    let otlp = otlp_settings(
        &collector.url(),
        "headers = { x-token = \"canary-1\" }\nresource = { \"deployment.environment.name\" = \"test\" }\nmetrics = false",
    );
    let retry = "circuit = \"off\"\nretry = { max_attempts = 9, initial_delay = \"3s\", max_delay = \"3s\", jitter = 0 }";
    let mut gateway = Gateway::start_with(&(route_settings(&target.url(), retry) + &otlp)).await;
    let headers = [("traceparent", SENT), ("tracestate", "a=b")];
    let event = gateway.send_webhook("in", &headers, "{}").await.expect(200).event_id();
    collector.wait_for_spans("deliver out", 1).await;
    gateway.restart().await;
    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    let replay = format!("/deliveries/{}/replay", delivery["id"].as_str().unwrap());
    gateway.post(&replay, &json!({})).await.expect(202);
    let requests = target.wait_for_requests(3).await;
    gateway.wait_until_idle().await;
    gateway.terminate().await;

    // The last spans were sent at the end of the process.
    let spans = collector.spans();
    assert_eq!(spans.len(), 4, "{spans:#?}");
    assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{spans:#?}");
    let receive = spans.iter().find(|span| span["name"] == "receive in").unwrap();
    assert_eq!(receive["parentSpanId"], SENDER_SPAN);
    assert_eq!(receive["kind"], "SPAN_KIND_SERVER");
    assert_eq!(attribute(receive, "surehook.event.id"), event);
    let attempts: Vec<&Value> = spans.iter().filter(|span| span["name"] == "deliver out").collect();
    let sent: Vec<[&str; 2]> =
        requests.iter().map(|request| ids(request.header("traceparent"))).collect();
    for (attempt, [trace, span]) in attempts.iter().zip(&sent) {
        assert_eq!((*trace, &attempt["spanId"]), (TRACE, &json!(span)));
        assert_eq!(attempt["parentSpanId"], receive["spanId"]);
        assert_eq!(attempt["kind"], "SPAN_KIND_CLIENT");
        assert_eq!(attribute(attempt, "surehook.event.id"), event);
        let time = |name: &str| attempt[name].as_str().unwrap().parse::<u64>().unwrap();
        assert!(time("startTimeUnixNano") < time("endTimeUnixNano"), "{attempt}");
    }
    assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), 3, "{sent:?}");
    assert!(requests.iter().all(|request| request.header("tracestate") == "a=b"));
    assert_eq!(attempts[0]["status"]["code"], "STATUS_CODE_ERROR");
    assert_eq!(attribute(attempts[0], "error.type"), "503");
    let numbers = attempts.iter().map(|attempt| attribute(attempt, "surehook.attempt"));
    assert_eq!(numbers.collect::<Vec<_>>(), ["1", "2", "1"]);
    for attempt in &attempts[1..] {
        assert!(attempt["status"].is_null(), "{attempt}");
        assert_eq!(attribute(attempt, "http.response.status_code"), "200");
    }
    let requests = collector.requests();
    for request in &requests {
        assert_eq!(request.headers["x-token"], "canary-1");
        let resource = &request.message["resourceSpans"][0]["resource"];
        assert_eq!(attribute(resource, "service.name"), "surehook");
        assert_eq!(attribute(resource, "deployment.environment.name"), "test");
        assert_eq!(attribute(resource, "service.instance.id").as_str().unwrap().len(), 36);
    }
    assert!(!gateway.log().contains("canary"), "{}", gateway.log());
}

/// The points of a metric by the values of their labels.
fn points(metrics: &[Value], name: &str, kind: &str) -> BTreeMap<String, Value> {
    let metric = metrics.iter().find(|metric| metric["name"] == name);
    let points = metric.and_then(|metric| metric[kind]["dataPoints"].as_array());
    let by_labels = points.into_iter().flatten().map(|point| {
        let labels = point["attributes"].as_array().into_iter().flatten();
        let labels: Vec<String> = labels
            .map(|pair| {
                let value = pair["value"]["stringValue"].as_str().unwrap_or_default();
                format!("{}={value}", pair["key"].as_str().unwrap())
            })
            .collect();
        (labels.join(","), point.clone())
    });
    by_labels.collect()
}

#[tokio::test]
async fn metrics_at_the_collector_are_those_of_the_metrics_page() {
    let Some(collector) = Collector::start().await else { return };
    let target = Sink::ok().await;
    let otlp = otlp_settings(&collector.url(), "traces = false\nmetrics_interval = \"1s\"");
    let mut gateway = Gateway::start_with(&(route_settings(&target.url(), "") + &otlp)).await;
    for number in 0..3 {
        gateway.post_accepted("in", json!({ "id": number }).to_string()).await;
    }
    target.wait_for_requests(3).await;
    gateway.wait_until_idle().await;
    let page = gateway.metrics().await;
    gateway.terminate().await;

    let exported = collector.metrics();
    let last = exported.last().unwrap();
    let names: BTreeSet<&str> =
        last.iter().map(|metric| metric["name"].as_str().unwrap()).collect();
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: BTreeSet<&str> = families.filter_map(|family| family.split(' ').next()).collect();
    let missing: Vec<_> = families.difference(&names).collect();
    assert!(missing.is_empty() && names.len() > 20, "{missing:?}: {names:?}");
    let accepted = "source=in,outcome=accepted,reason=";
    let requests = points(last, "surehook_requests", "sum");
    assert_eq!(requests[accepted]["asInt"], "3", "{requests:#?}");
    let metric = last.iter().find(|metric| metric["name"] == "surehook_requests").unwrap();
    assert_eq!(metric["sum"]["isMonotonic"], true);
    assert_eq!(metric["sum"]["aggregationTemporality"], "AGGREGATION_TEMPORALITY_CUMULATIVE");
    let durations = points(last, "surehook_delivery_attempt_duration_seconds", "histogram");
    let attempts = &durations["destination=out"];
    assert_eq!(attempts["count"], "3");
    assert!(attempts["sum"].as_f64().unwrap() > 0.0);
    let numbers = |name: &str| attempts[name].as_array().unwrap().clone();
    let counts = numbers("bucketCounts");
    let counts = counts.iter().map(|count| count.as_str().unwrap().parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), 3);
    assert_eq!(numbers("bucketCounts").len(), numbers("explicitBounds").len() + 1);
    let nanos = |name: &str| attempts[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") < nanos("timeUnixNano"));
    let store = points(last, "surehook_store_bytes", "gauge");
    assert!(store[""]["asInt"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    // No traces: the context of a sender would pass unchanged, and events without one get none.
    assert!(target.requests().iter().all(|request| request.header("traceparent").is_empty()));
    assert!(collector.spans().is_empty());
}

#[tokio::test]
async fn real_collector_accepts_traces_and_metrics_and_passes_them_on() {
    let Some(collector) = Collector::start().await else { return };
    let real = RealCollector::start(&collector).await;
    let target = Sink::with_replies([Reply::status(200), Reply::status(400)]).await;
    let otlp = otlp_settings(&real.url(), "metrics_interval = \"1s\"");
    let gateway = Gateway::start_with(&(route_settings(&target.url(), "") + &otlp)).await;
    gateway.send_webhook("in", &[("traceparent", SENT)], "{\"id\":1}").await.expect(200);
    gateway.send_webhook("in", &[], "{\"id\":2}").await.expect(200);

    let attempts = collector.wait_for_spans("deliver out", 2).await;
    let received = collector.wait_for_spans("receive in", 2).await;
    let parents = |spans: &[Value], name: &str| -> BTreeSet<String> {
        spans.iter().map(|span| span[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(parents(&attempts, "parentSpanId"), parents(&received, "spanId"));
    assert_eq!(parents(&attempts, "traceId"), parents(&received, "traceId"));
    let is_remote = |span: &&Value| span["parentSpanId"] == SENDER_SPAN;
    assert_eq!(received.iter().filter(is_remote).count(), 1, "{received:#?}");
    let delivered = eventually(WAIT_LIMIT, || async {
        let metrics = collector.metrics().concat();
        let latency = points(&metrics, "surehook_delivery_latency_seconds", "histogram");
        latency.get("destination=out").filter(|point| point["count"] == "1").cloned()
    })
    .await;
    assert_eq!(delivered["explicitBounds"].as_array().unwrap().len(), 18);
    assert!(!real.log().contains("ERROR"), "{}", real.log());
}

#[tokio::test]
async fn failing_collector_gets_spans_again_and_losses_are_counted() {
    let Some(collector) = Collector::start().await else { return };
    let target = Sink::ok().await;
    let otlp = otlp_settings(&collector.url(), "metrics = false");
    let gateway = Gateway::start_with(&(route_settings(&target.url(), "") + &otlp)).await;
    let count = |metrics: &str, outcome: &str| -> u64 {
        let name = format!("surehook_otlp_spans_total{{outcome=\"{outcome}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |number| number.parse().unwrap())
    };
    let wait_for_count = async |outcome: &str, expected: u64| {
        eventually(WAIT_LIMIT, || async {
            (count(&gateway.metrics().await, outcome) == expected).then_some(())
        })
        .await;
    };

    // Unavailable: they are sent again.
    collector.set("status", 503);
    gateway.post_accepted("in", "{\"id\":1}").await;
    eventually(WAIT_LIMIT, || async {
        let failed = "surehook_otlp_requests_total{signal=\"traces\",outcome=\"failed\"}";
        gateway.metrics().await.contains(failed).then_some(())
    })
    .await;
    collector.set("status", 0);
    collector.wait_for_spans("deliver out", 1).await;
    wait_for_count("exported", 2).await;
    let log = gateway.log();
    assert!(log.contains("does not accept telemetry") && log.contains("again"), "{log}");

    // Refused: they are lost.
    collector.set("status", 400);
    gateway.post_accepted("in", "{\"id\":2}").await;
    wait_for_count("failed", 2).await;

    // One of both is not accepted.
    collector.set("status", 0);
    collector.set("rejected", 1);
    gateway.post_accepted("in", "{\"id\":3}").await;
    eventually(WAIT_LIMIT, || async {
        let metrics = gateway.metrics().await;
        let [exported, rejected] = ["exported", "rejected"].map(|name| count(&metrics, name));
        (exported + rejected == 4 && rejected >= 1).then_some(())
    })
    .await;
    target.wait_for_requests(3).await;
}

#[tokio::test]
async fn sampler_and_standard_variables_decide_which_spans_are_sent() {
    let Some(collector) = Collector::start().await else { return };
    let target = Sink::ok().await;
    let mut gateway = Gateway::builder()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=canary%2D2")
        .env("OTEL_METRICS_EXPORTER", "none")
        .env("OTEL_SERVICE_NAME", "hooks")
        .settings(&route_settings(&target.url(), ""))
        .start()
        .await;
    gateway.send_webhook("in", &[("traceparent", UNSAMPLED)], "{\"id\":1}").await.expect(200);
    gateway.send_webhook("in", &[("traceparent", SENT)], "{\"id\":2}").await.expect(200);
    let requests = target.wait_for_requests(2).await;
    let flags: BTreeSet<&str> = requests
        .iter()
        .map(|request| {
            let header = request.header("traceparent");
            let [trace, span] = ids(header);
            assert!(trace == TRACE && span != SENDER_SPAN, "{header}");
            &header[53..]
        })
        .collect();
    assert_eq!(flags, BTreeSet::from(["00", "01"]));
    gateway.wait_until_idle().await;
    gateway.terminate().await;
    let names = |spans: Vec<Value>| -> Vec<String> {
        spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(collector.spans()), ["receive in", "deliver out"]);
    let first = &collector.requests()[0];
    let resource = &first.message["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), "hooks");
    assert_eq!(first.headers["x-token"], "canary-2");

    // None, but every request carries its context.
    gateway.set_env("OTEL_TRACES_SAMPLER", "always_off");
    gateway.restart().await;
    gateway.post_accepted("in", "{\"id\":3}").await;
    let requests = target.wait_for_requests(3).await;
    assert!(requests[2].header("traceparent").ends_with("-00"));
    gateway.wait_until_idle().await;
    gateway.terminate().await;
    assert_eq!(collector.spans().len(), 2);

    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=canary%2D2".to_owned()),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    let shown = run_surehook(gateway.folder(), &["config", "show", "--origin"], &env).await;
    let line = |key: &str| shown.stdout.lines().find(|line| line.contains(key)).unwrap().to_owned();
    assert!(line("otlp.endpoint").contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{shown:?}");
    assert!(line("otlp.headers.x-token").contains("•••"), "{shown:?}");
    assert!(line("otlp.sampler").contains("default"), "{shown:?}");
    assert!(shown.stderr.contains("OTEL_TRACES_SAMPLER"), "{shown:?}");
    assert!(!format!("{shown:?}").contains("canary"), "{shown:?}");
}

#[tokio::test]
async fn without_an_endpoint_the_context_passes_unchanged() {
    let target = Sink::ok().await;
    let gateway = Gateway::start_with(&route_settings(&target.url(), "")).await;
    for (number, context) in [SENT, UNSAMPLED, "nonsense"].into_iter().enumerate() {
        let headers = [("traceparent", context), ("tracestate", "a=b")];
        let body = json!({ "id": number }).to_string();
        gateway.send_webhook("in", &headers, body).await.expect(200);
        let requests = target.wait_for_requests(number + 1).await;
        assert_eq!(requests[number].header("traceparent"), context);
        assert_eq!(requests[number].header("tracestate"), "a=b");
    }
    gateway.post_accepted("in", "{\"id\":3}").await;
    let requests = target.wait_for_requests(4).await;
    assert_eq!(requests[3].header("traceparent"), "");
    assert!(!gateway.metrics().await.contains("surehook_otlp_spans_total"));
}

#[tokio::test]
async fn event_stored_before_traces_were_on_continues_its_trace() {
    let target = Sink::with_replies([Reply::status(503), Reply::status(200)]).await;
    let retry = "circuit = \"off\"\nretry = { max_attempts = 9, initial_delay = \"1s\", max_delay = \"1s\", jitter = 0 }";
    let mut gateway = Gateway::start_with(&route_settings(&target.url(), retry)).await;
    gateway.send_webhook("in", &[("traceparent", SENT)], "{}").await.expect(200);
    target.wait_for_requests(1).await;
    gateway.set_env("OTEL_EXPORTER_OTLP_ENDPOINT", &closed_endpoint());
    gateway.restart().await;

    let requests = target.wait_for_requests(2).await;
    let contexts: Vec<&str> =
        requests.iter().map(|request| request.header("traceparent")).collect();
    assert_eq!(contexts[0], SENT);
    let last = contexts[contexts.len() - 1];
    assert!(last.starts_with(&SENT[..36]) && last != SENT, "{contexts:?}");
    gateway.wait_until_idle().await;
}

#[tokio::test]
async fn message_continues_the_trace_of_the_api_request() {
    let target = Sink::ok().await;
    let settings = route_settings(&target.url(), "") + &otlp_settings(&closed_endpoint(), "");
    let gateway = Gateway::start_with(&settings).await;
    let own = "00-11111111111111111111111111111111-2222222222222222-01";
    for (number, (headers, expected)) in
        [(json!({}), TRACE), (json!({ "traceparent": own }), &own[3..35])].into_iter().enumerate()
    {
        let message = json!({ "destination": "out", "headers": headers, "body": {} }).to_string();
        let context = [("traceparent", SENT)];
        let path = "/messages";
        let sent = gateway.request_as_admin(Method::POST, path, &context, &message).await;
        sent.expect(202);
        let requests = target.wait_for_requests(number + 1).await;
        assert_eq!(ids(requests[number].header("traceparent"))[0], expected);
    }
}

#[tokio::test]
async fn hanging_collector_delays_neither_deliveries_nor_the_end() {
    let collector = Sink::with_replies([Reply::Hang]).await;
    let target = Sink::ok().await;
    let otlp = otlp_settings(&collector.origin(), "timeout = \"1m\"\nmetrics_interval = \"1s\"");
    let mut gateway = Gateway::start_with(&(route_settings(&target.url(), "") + &otlp)).await;
    gateway.post_accepted("in", "{\"id\":0}").await;
    collector.wait_for_requests(1).await;
    for number in 1..50 {
        gateway.post_accepted("in", json!({ "id": number }).to_string()).await;
    }
    let requests = target.wait_for_requests(50).await;
    let traces: BTreeSet<&str> =
        requests.iter().map(|request| ids(request.header("traceparent"))[0]).collect();
    assert_eq!(traces.len(), 50, "each event without a context has a trace of its own");
    // The timeout of the collector is longer than the test waits.
    let status = gateway.terminate().await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn program_gets_the_context_of_its_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let found = folder.path().join("found");
    let script = format!("printf %s \"$TRACEPARENT\" > {}", found.display());
    let destination = format!(
        "kind = \"exec\"\nexec = {{ command = [\"/bin/sh\", \"-c\", {} ] }}",
        json!(script)
    );
    let route = Route { destination: &destination, ..Route::default() };
    let settings = format!(
        "allow_exec = [\"/bin/sh\"]\n{}{}",
        route.settings(),
        otlp_settings(&closed_endpoint(), "")
    );
    let gateway = Gateway::start_with(&settings).await;
    let headers = [("traceparent", SENT)];
    let event = gateway.send_webhook("in", &headers, "{}").await.expect(200).event_id();
    gateway.wait_for_delivery(&event, "succeeded").await;

    let context = std::fs::read_to_string(found).unwrap();
    let [trace, span] = ids(&context);
    assert!(trace == TRACE && span != SENDER_SPAN, "{context}");
}

#[tokio::test]
async fn unusable_settings_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("surehook.toml");
    for (settings, expected) in [
        ("[otlp]\nendpoint = \"collector:4318\"\n", "surehook.toml:2:12: otlp.endpoint"),
        ("[otlp]\nsampler = \"sometimes\"\n", "surehook.toml:2:11: otlp.sampler"),
        ("[otlp]\nendpont = \"http://c:4318\"\n", "did you mean `endpoint`"),
    ] {
        std::fs::write(&file, settings).unwrap();
        let checked = run_surehook(folder.path(), &["config", "check", "surehook.toml"], &[]).await;
        assert_ne!(checked.code, Some(0), "case: {settings}");
        assert!(checked.stderr.contains(expected), "case: {settings}: {checked:?}");
    }
}
