//! Collectors of OpenTelemetry: a stand-in that reads requests with the published schema, and a real one
//! from `PyPI` that passes everything on to it.

use std::process::Command;

use data_encoding::{BASE64, HEXLOWER};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    WAIT_LIMIT, eventually, free_port,
    process::Process,
    tools::{Tool, otlp_file},
};

/// A running stand-in. Stops when dropped.
#[derive(Debug)]
pub(crate) struct Collector {
    folder: TempDir,
    process: Process,
    port: u16,
}

/// A request that the collector accepted.
#[derive(Clone, Debug)]
pub(crate) struct CollectorRequest {
    pub(crate) path: String,
    pub(crate) headers: Value,
    /// The message as JSON.
    pub(crate) message: Value,
}

impl Collector {
    /// `None` if the test is to be skipped.
    pub(crate) async fn start() -> Option<Self> {
        if !Tool::Otlp.is_available() {
            return None;
        }
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(otlp_file("bin/python"));
        command.args(["-c", include_str!("../../otlp/collector.py"), &port.to_string()]);
        command.current_dir(folder.path());
        let collector = Self { folder, process: Process::start(command), port };
        let is_ready = || collector.process.stdout.text().starts_with("ready");
        eventually(WAIT_LIMIT, || async { is_ready().then_some(()) }).await;
        Some(collector)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Writes a number into a file that decides about answers: `status`, `rejected`.
    pub(crate) fn set(&self, name: &str, number: u64) {
        std::fs::write(self.folder.path().join(name), number.to_string()).unwrap();
    }

    pub(crate) fn requests(&self) -> Vec<CollectorRequest> {
        let errors = self.process.stderr.text();
        assert!(errors.is_empty(), "{errors}");
        let text = self.process.stdout.text();
        let complete = text.lines().filter(|line| line.starts_with('{') && line.ends_with('}'));
        let parse = |line| {
            let mut request: Value = serde_json::from_str(line).unwrap();
            CollectorRequest {
                path: request["path"].as_str().unwrap().to_owned(),
                headers: request["headers"].take(),
                message: request["message"].take(),
            }
        };
        complete.map(parse).collect()
    }

    /// All spans, with ids in hexadecimal digits.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for request in self.requests().iter().filter(|request| request.path == "/v1/traces") {
            for resource in request.message["resourceSpans"].as_array().unwrap() {
                for scope in resource["scopeSpans"].as_array().unwrap() {
                    spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
                }
            }
        }
        for span in &mut spans {
            for id in ["traceId", "spanId", "parentSpanId"] {
                if let Some(text) = span[id].as_str() {
                    span[id] = HEXLOWER.encode(&BASE64.decode(text.as_bytes()).unwrap()).into();
                }
            }
        }
        spans
    }

    /// Waits until there are this many spans of this name.
    pub(crate) async fn wait_for_spans(&self, name: &str, count: usize) -> Vec<Value> {
        eventually(WAIT_LIMIT, || async {
            let mut spans = self.spans();
            spans.retain(|span| span["name"] == name);
            (spans.len() >= count).then_some(spans)
        })
        .await
    }

    /// The metrics of each request, newest last.
    pub(crate) fn metrics(&self) -> Vec<Vec<Value>> {
        let requests = self.requests();
        let requests = requests.iter().filter(|request| request.path == "/v1/metrics");
        let metrics = requests.map(|request| {
            request.message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap()
        });
        metrics.cloned().collect()
    }
}

/// A real collector that sends everything on to the stand-in. Stops when dropped.
#[derive(Debug)]
pub(crate) struct RealCollector {
    process: Process,
    port: u16,
}

impl RealCollector {
    pub(crate) async fn start(next: &Collector) -> Self {
        let (port, grpc_port) = (free_port(), free_port());
        let mut command = Command::new(otlp_file("rotel-agent"));
        command.args(["start", "--exporter", "otlp", "--otlp-exporter-protocol", "http"]);
        command.args(["--otlp-exporter-endpoint", &next.url(), "--batch-timeout", "200ms"]);
        command.args(["--otlp-http-endpoint", &format!("127.0.0.1:{port}")]);
        command.args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc_port}")]);
        let collector = Self { process: Process::start(command), port };
        let connect = || tokio::net::TcpStream::connect(("127.0.0.1", port));
        eventually(WAIT_LIMIT, || async { connect().await.ok() }).await;
        collector
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn log(&self) -> String {
        self.process.stdout.text() + &self.process.stderr.text()
    }
}

/// An attribute of a span, metric point or resource; `null` if it has none of this name.
pub(crate) fn attribute(object: &Value, key: &str) -> Value {
    let attributes = object["attributes"].as_array();
    let found = attributes.into_iter().flatten().find(|pair| pair["key"] == key);
    let value = found.and_then(|pair| pair["value"].as_object()?.values().next().cloned());
    value.unwrap_or_default()
}
