//! `[otlp]` in the settings: where traces and metrics are sent, by OTLP over HTTP.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    secret::{Env, SecretError, SecretRef},
    time::HumanDuration,
};
use url::Url;

use crate::trace::{Sampler, SamplerKind};

const SERVICE_NAME: &str = "surehook";
/// The attribute of the resource with the name of the service.
const SERVICE_NAME_ATTRIBUTE: &str = "service.name";

const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// `[otlp]` in the settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpSpec {
    /// Base URL of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`; traces go to
    /// `/v1/traces` below it, metrics to `/v1/metrics`. Not set: nothing is sent.
    pub endpoint: Option<String>,
    /// URL for traces, instead of the one below `endpoint`.
    pub traces_endpoint: Option<String>,
    /// URL for metrics, instead of the one below `endpoint`.
    pub metrics_endpoint: Option<String>,
    /// Headers of each request, such as a token.
    pub headers: BTreeMap<String, SecretRef>,
    /// File with the only certificate authorities, in PEM, that may sign the certificate of the
    /// collector. Not set: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Name of this service in traces and metrics. Not set: `surehook`.
    pub service_name: Option<String>,
    /// Attributes of this service, such as `"deployment.environment.name" = "production"`.
    pub resource: BTreeMap<String, String>,
    /// Whether traces are sent.
    pub traces: bool,
    /// Whether metrics are sent.
    pub metrics: bool,
    /// Which traces are sent.
    pub sampler: SamplerKind,
    /// The share of traces that the samplers `traceidratio` and `parentbased_traceidratio` send: 0 to 1.
    pub sample_ratio: f64,
    /// How often metrics are sent, 1s to 1h.
    pub metrics_interval: HumanDuration,
    /// Timeout of a request, 100ms to 1m.
    pub timeout: HumanDuration,
}

impl Default for OtlpSpec {
    fn default() -> Self {
        Self {
            endpoint: None,
            traces_endpoint: None,
            metrics_endpoint: None,
            headers: BTreeMap::new(),
            ca_file: None,
            service_name: None,
            resource: BTreeMap::new(),
            traces: true,
            metrics: true,
            sampler: SamplerKind::default(),
            sample_ratio: 1.0,
            metrics_interval: HumanDuration::from_secs(60),
            timeout: HumanDuration::from_secs(10),
        }
    }
}

/// Why `[otlp]` is refused. No text contains any part of a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpSpecError {
    #[error(
        "otlp.{0} is not a valid URL; use http://… or https://… without user, `?` or `#`, such as http://127.0.0.1:4318"
    )]
    Url(&'static str),
    #[error(
        "otlp.headers: `{0}` is not a valid header; use a name and a value of ASCII characters"
    )]
    Header(String),
    #[error("otlp.headers: `{0}`: {1}")]
    Secret(String, SecretError),
    #[error("otlp.sample_ratio must be between 0 and 1; 0.05 is 5 %")]
    SampleRatio,
    #[error("otlp.metrics_interval must be between 1s and 1h")]
    Interval,
    #[error("otlp.timeout must be between 100ms and 1m")]
    Timeout,
    #[error("otlp.service_name must not be empty")]
    ServiceName,
}

/// Where traces and metrics are sent.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    pub traces: Option<TraceExportConfig>,
    pub metrics: Option<MetricExportConfig>,
    /// Headers of each request.
    pub headers: HeaderMap,
    pub ca_file: Option<PathBuf>,
    /// Attributes of this service, with its name.
    pub resource: BTreeMap<String, String>,
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct TraceExportConfig {
    pub url: Uri,
    pub sampler: Sampler,
}

#[derive(Clone, Debug)]
pub struct MetricExportConfig {
    pub url: Uri,
    pub interval: Duration,
}

impl OtlpSpec {
    /// Checks the settings; `env` looks up an environment variable. `None` if nothing is sent.
    pub fn build(&self, env: Env<'_>) -> Result<Option<OtlpConfig>, OtlpSpecError> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(OtlpSpecError::SampleRatio);
        }
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&self.metrics_interval.0) {
            return Err(OtlpSpecError::Interval);
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout.0) {
            return Err(OtlpSpecError::Timeout);
        }
        let traces_url = self.signal_url("traces_endpoint", self.traces_endpoint.as_deref())?;
        let metrics_url = self.signal_url("metrics_endpoint", self.metrics_endpoint.as_deref())?;
        let (headers, resource) = (self.build_headers(env)?, self.build_resource()?);
        let traces = traces_url.filter(|_| self.traces).map(|url| TraceExportConfig {
            url,
            sampler: Sampler::new(self.sampler, self.sample_ratio),
        });
        let metrics = metrics_url
            .filter(|_| self.metrics)
            .map(|url| MetricExportConfig { url, interval: self.metrics_interval.0 });
        let ca_file = self.ca_file.clone();
        let timeout = self.timeout.0;
        let is_used = traces.is_some() || metrics.is_some();
        Ok(is_used.then_some(OtlpConfig { traces, metrics, headers, ca_file, resource, timeout }))
    }

    /// The URL for traces or metrics: the one in the setting `key`, or the one below `endpoint`.
    fn signal_url(
        &self,
        key: &'static str,
        own: Option<&str>,
    ) -> Result<Option<Uri>, OtlpSpecError> {
        let base = self.endpoint.as_deref().map(|text| parse_url("endpoint", text)).transpose()?;
        let path = key.trim_end_matches("_endpoint");
        let text = match (own, base) {
            (Some(own), _) => parse_url(key, own)?.to_string(),
            (None, Some(base)) => {
                format!("{}/v1/{path}", base.as_str().trim_end_matches('/'))
            }
            (None, None) => return Ok(None),
        };
        text.parse().map(Some).map_err(|_| OtlpSpecError::Url(key))
    }

    fn build_headers(&self, env: Env<'_>) -> Result<HeaderMap, OtlpSpecError> {
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let invalid = || OtlpSpecError::Header(name.clone());
            let secret = value.resolve(env);
            let secret = secret.map_err(|error| OtlpSpecError::Secret(name.clone(), error))?;
            let mut value = HeaderValue::from_bytes(secret.expose()).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(name.parse::<HeaderName>().map_err(|_| invalid())?, value);
        }
        Ok(headers)
    }

    fn build_resource(&self) -> Result<BTreeMap<String, String>, OtlpSpecError> {
        let mut resource = self.resource.clone();
        match &self.service_name {
            Some(name) if name.trim().is_empty() => return Err(OtlpSpecError::ServiceName),
            Some(name) => {
                resource.insert(SERVICE_NAME_ATTRIBUTE.to_owned(), name.clone());
            }
            None => {
                let name = resource.entry(SERVICE_NAME_ATTRIBUTE.to_owned());
                name.or_insert_with(|| SERVICE_NAME.to_owned());
            }
        }
        Ok(resource)
    }
}

fn parse_url(key: &'static str, text: &str) -> Result<Url, OtlpSpecError> {
    let url = Url::parse(text).map_err(|_| OtlpSpecError::Url(key))?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    is_plain.then_some(url).ok_or(OtlpSpecError::Url(key))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(spec: Value) -> Result<Option<OtlpConfig>, OtlpSpecError> {
        let spec: OtlpSpec = serde_json::from_value(spec).unwrap();
        spec.build(&|name| (name == "TOKEN").then(|| "canary".to_owned()))
    }

    /// The URLs for traces and metrics.
    fn urls(spec: Value) -> [Option<String>; 2] {
        let config = build(spec).unwrap().unwrap();
        let traces = config.traces.map(|traces| traces.url.to_string());
        [traces, config.metrics.map(|metrics| metrics.url.to_string())]
    }

    #[test]
    fn nothing_is_sent_without_an_endpoint_or_a_signal() {
        for spec in [
            json!({}),
            json!({ "headers": { "a": "b" }, "service_name": "x", "sampler": "always_on" }),
            json!({ "endpoint": "http://c:4318", "traces": false, "metrics": false }),
            json!({ "traces_endpoint": "http://c:4318/v1/traces", "traces": false }),
        ] {
            assert!(build(spec.clone()).unwrap().is_none(), "case: {spec}");
        }
    }

    #[test]
    fn urls_of_signals_are_below_the_endpoint_unless_they_are_set() {
        let some = |text: &str| Some(text.to_owned());
        let both = [some("http://c:4318/v1/traces"), some("http://c:4318/v1/metrics")];
        assert_eq!(urls(json!({ "endpoint": "http://c:4318" })), both);
        assert_eq!(urls(json!({ "endpoint": "http://c:4318/" })), both);
        assert_eq!(
            urls(json!({ "endpoint": "https://c/otlp", "traces_endpoint": "http://t:1/x" })),
            [some("http://t:1/x"), some("https://c/otlp/v1/metrics")]
        );
        assert_eq!(urls(json!({ "traces_endpoint": "http://t/x" })), [some("http://t/x"), None]);
        assert_eq!(
            urls(json!({ "endpoint": "http://c:4318", "metrics": false })),
            [both[0].clone(), None]
        );
    }

    #[test]
    fn headers_are_resolved_and_not_shown() {
        let spec = json!({ "endpoint": "http://c", "headers": { "x-token": "env:TOKEN" } });
        let config = build(spec).unwrap().unwrap();
        assert_eq!(config.headers["x-token"], "canary");
        assert!(!format!("{config:?}").contains("canary"));
    }

    #[test]
    fn service_name_has_precedence_over_the_resource() {
        let name = |spec: Value| build(spec).unwrap().unwrap().resource["service.name"].clone();
        let resource = json!({ "service.name": "of-resource" });
        assert_eq!(name(json!({ "endpoint": "http://c" })), "surehook");
        assert_eq!(name(json!({ "endpoint": "http://c", "resource": resource })), "of-resource");
        let both = json!({ "endpoint": "http://c", "resource": resource, "service_name": "own" });
        assert_eq!(name(both), "own");
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (spec, named) in [
            (json!({ "endpoint": "c:4318" }), "otlp.endpoint"),
            (json!({ "endpoint": "http://user:canary@c" }), "otlp.endpoint"),
            (json!({ "endpoint": "http://c/?x" }), "otlp.endpoint"),
            (json!({ "metrics_endpoint": "ftp://c" }), "otlp.metrics_endpoint"),
            (json!({ "headers": { "a b": "x" } }), "otlp.headers: `a b`"),
            (json!({ "headers": { "a": "canary\n" } }), "otlp.headers: `a`"),
            (json!({ "headers": { "a": "env:UNSET" } }), "UNSET"),
            (json!({ "sample_ratio": 1.5 }), "otlp.sample_ratio"),
            (json!({ "metrics_interval": "2h" }), "otlp.metrics_interval"),
            (json!({ "timeout": "0s" }), "otlp.timeout"),
            (json!({ "service_name": " " }), "otlp.service_name"),
        ] {
            let error = build(spec.clone()).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains("canary"), "case: {spec}: {error}");
        }
    }
}
