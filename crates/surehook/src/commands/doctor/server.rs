//! Checks a running gateway: readiness, token and message limits.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::Value;

use super::Findings;
use crate::{client::ApiClient, settings::environment};

pub(super) async fn check(server: &str, token: Option<&str>, findings: &mut Findings) {
    let token = token.map(str::to_owned).or_else(|| environment("SUREHOOK_ADMIN_TOKEN"));
    let client = ApiClient::with_token(server, token.as_deref().unwrap_or_default());
    let Ok(request) =
        Request::get(format!("{}/readyz", client.base_url())).body(Full::new(Bytes::new()))
    else {
        return findings.fail("server", format!("`{server}` is not a URL"), "Check --server.");
    };
    match client.exchange(request).await {
        Err(failure) => {
            let advice = "Check that `surehook serve` is running there and that the URL is right.";
            return findings.fail("server", failure.to_string(), advice);
        }
        Ok((status, _)) if status.is_success() => {
            findings.ok("server", format!("{} is ready", client.base_url()));
        }
        Ok((status, body)) => {
            let problem: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let detail = problem["detail"].as_str().unwrap_or("no details");
            let message = format!("{} is not ready ({status}): {detail}", client.base_url());
            findings.fail("server", message, "See its log.");
        }
    }
    if token.is_none() {
        return;
    }
    match client.get("/stats").await {
        Ok(stats) => {
            findings.ok("token", "accepted by the gateway");
            check_daily_limits(&stats, findings);
        }
        Err(failure) => {
            let advice = "Pass another one with --token. An admin creates tokens with: surehook token create";
            findings.fail("token", failure.to_string(), advice);
        }
    }
}

/// Warns about destinations beyond their daily warning threshold.
fn check_daily_limits(stats: &Value, findings: &mut Findings) {
    let destinations = stats["destinations"].as_array().into_iter().flatten();
    for destination in destinations.filter(|destination| destination["over"] == true) {
        let name = destination["name"].as_str().unwrap_or_default();
        let (sent, warn_at) = (&destination["sent_today"], &destination["warn_at"]);
        let message =
            format!("`{name}` sent {sent} messages today; the warning threshold is {warn_at}");
        let advice =
            "Send less, or WhatsApp may ban the number; see docs/reference/destinations.md.";
        findings.warn("sending", message, advice);
    }
}
