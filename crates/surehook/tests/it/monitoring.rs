//! The Grafana dashboard and the Prometheus rules below `packaging` name only what `/metrics` has.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    channels::evolution_go_settings,
    support::{
        eventually,
        fake_channels::EvolutionGo,
        gateway::Gateway,
        sink::{Reply, Sink},
        tools::{Tool, promtool},
    },
};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/surehook.json");
const RULES: &str = include_str!("../../../../packaging/prometheus/surehook-rules.yml");
const RULES_PATH: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/surehook-rules.yml");

/// Labels that Prometheus itself adds.
const SCRAPE_LABELS: [&str; 2] = ["job", "instance"];

/// Metrics with the labels of their samples.
type Metrics = BTreeMap<String, BTreeSet<String>>;

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// The names of the label matchers in `{…}`.
fn matcher_labels(matchers: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let mut rest = matchers;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_end_matches(['!', '~']);
        let name = name.rsplit(|char| !is_word(char)).next().unwrap_or_default();
        labels.insert(name.to_owned());
        let value = after.trim_start_matches('~').trim_start_matches('"');
        rest = value.split_once('"').map_or("", |(_, rest)| rest);
    }
    labels
}

fn parse_metrics(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(|char| !is_word(char)).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.rsplit_once('}'));
        let labels = matchers.map(|(matchers, _)| matcher_labels(matchers)).unwrap_or_default();
        metrics.entry(name.to_owned()).or_default().extend(labels);
    }
    metrics
}

/// What is wrong with an expression: metrics and labels that do not exist.
fn unknown_names(expression: &str, metrics: &Metrics) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut known_labels: BTreeSet<&str> = SCRAPE_LABELS.into_iter().collect();
    for (start, _) in expression.match_indices("surehook_") {
        let name: String = expression[start..].chars().take_while(|char| is_word(*char)).collect();
        let Some(labels) = metrics.get(&name) else {
            unknown.push(name);
            continue;
        };
        known_labels.extend(labels.iter().map(String::as_str));
        let after = &expression[start + name.len()..];
        let matchers = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let used = matchers.map(|(matchers, _)| matcher_labels(matchers)).unwrap_or_default();
        let is_unknown = |label: &&String| !labels.contains(*label);
        unknown.extend(used.iter().filter(is_unknown).map(|label| format!("{name}{{{label}}}")));
    }
    for grouping in expression.split(" by (").skip(1) {
        let labels = grouping.split(')').next().unwrap_or_default().split(", ");
        let is_unknown = |label: &&str| !known_labels.contains(label);
        unknown.extend(labels.filter(is_unknown).map(|label| format!("by ({label})")));
    }
    unknown
}

fn rule_expressions() -> Vec<String> {
    let lines = RULES.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    lines.map(str::to_owned).collect()
}

/// All expressions and queries of variables of the dashboard.
fn dashboard_expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("expr", Value::String(text)) => found.push(text.clone()),
                        ("definition", Value::String(text)) => {
                            let call = text.strip_prefix("label_values(").unwrap();
                            let (metric, label) = call.split_once(", ").unwrap();
                            let label = label.trim_end_matches(')');
                            found.push(format!("sum by ({label}) ({metric})"));
                        }
                        _ => collect(value, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    collect(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    found
}

#[tokio::test]
async fn dashboard_and_rules_name_only_metrics_and_labels_that_exist() {
    let sink = Sink::with_script(|number, _| Reply::status([200, 503, 400][number % 3])).await;
    let evolution = EvolutionGo::start().await;
    let settings = format!(
        r#"
        [[sources]]
        name = "in"
        verify = "none"
        [[sources]]
        name = "signed"
        provider = "stripe"
        secrets = ["whsec_0123456789abcdef"]
        [[destinations]]
        name = "out"
        url = "{}"
        retry = {{ max_attempts = 2, initial_delay = "100ms", max_delay = "100ms" }}
        [[routes]]
        from = "in"
        to = "out"
        "#,
        sink.url(),
    );
    let settings = settings + &evolution_go_settings("whatsapp", &evolution.url(), "");
    let gateway = Gateway::start_with(&settings).await;
    gateway.send_webhook("signed", &[], "{}").await;
    for number in 0..3 {
        gateway.send_webhook("in", &[], json!({ "id": number }).to_string()).await.expect(200);
    }
    let message = json!({ "destination": "whatsapp", "to": "+5511987654321", "text": "x" });
    gateway.post("/messages", &message).await.expect(202);
    // Gauges of the store, and messages counted by day, follow within seconds.
    let used = [
        "surehook_dlq_added_total",
        "surehook_dlq_events",
        "surehook_alerts",
        "surehook_messages_sent_today",
        "surehook_delivery_latency_seconds_bucket",
    ];
    let metrics = eventually(crate::support::WAIT_LIMIT, || async {
        let metrics = parse_metrics(&gateway.metrics().await);
        used.iter().all(|name| metrics.contains_key(*name)).then_some(metrics)
    })
    .await;

    let (dashboard, rules) = (dashboard_expressions(), rule_expressions());
    assert!(dashboard.len() >= 25 && rules.len() >= 10, "{} {}", dashboard.len(), rules.len());
    let unknown: Vec<_> = dashboard
        .iter()
        .chain(&rules)
        .map(|expression| (expression, unknown_names(expression, &metrics)))
        .filter(|(_, unknown)| !unknown.is_empty())
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?} of {:#?}", metrics.keys());
}

#[test]
fn unknown_metrics_and_labels_are_found() {
    let metrics =
        parse_metrics("# TYPE x\nsurehook_a_total{source=\"x}=,y\",le=\"1\"} 3\nsurehook_b 1");
    for (expression, expected) in [
        ("sum by (source) (rate(surehook_a_total{le=~\"a|b\"}[5m]))", &[][..]),
        ("surehook_b > 1 and surehook_a_total{source!=\"x\",le=\"1\"} == 1", &[]),
        ("up{job=\"surehook\"} == 0", &[]),
        ("surehook_c", &["surehook_c"]),
        ("surehook_b{source=\"x\"}", &["surehook_b{source}"]),
        ("sum by (le, reason) (surehook_a_total)", &["by (reason)"]),
    ] {
        assert_eq!(unknown_names(expression, &metrics), expected, "case: {expression}");
    }
}

#[test]
fn prometheus_accepts_the_rules() {
    if !Tool::Promtool.is_available() {
        return;
    }
    let output = Command::new(promtool()).args(["check", "rules", RULES_PATH]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{} rules found", rule_expressions().len())), "{text}");
}
