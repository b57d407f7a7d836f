//! Checks a running gateway: readiness, token and message limits.

use std::num::NonZeroU64;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use surehook_api::{ApiTransport as _, CallError, calls, stats::Stats};

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
        Ok(response) if response.status().is_success() => {
            findings.ok("server", format!("{} is ready", client.base_url()));
        }
        Ok(response) => {
            let problem = CallError::from_response(response.status(), response.body());
            let message = format!("{} is not ready: {problem}", client.base_url());
            findings.fail("server", message, "See its log.");
        }
    }
    if token.is_none() {
        return;
    }
    match client.call(calls::get_stats()).await {
        Ok(stats) => {
            findings.ok("token", "accepted by the gateway");
            check_daily_limits(&stats, findings);
        }
        Err(failure) => {
            let advice = "If the token is wrong, pass another with --token. An admin creates tokens with: surehook token create";
            findings.fail("token", failure.to_string(), advice);
        }
    }
}

/// Warns about destinations beyond their daily warning threshold.
fn check_daily_limits(stats: &Stats, findings: &mut Findings) {
    for destination in stats.destinations.iter().filter(|destination| destination.warning_reached) {
        let message = format!(
            "`{}` sent {} messages today; the warning threshold is {}",
            destination.name,
            destination.sent_today.unwrap_or_default(),
            destination.warn_at.map_or(0, NonZeroU64::get),
        );
        let advice =
            "Send less, or WhatsApp may ban the number; see docs/reference/destinations.md.";
        findings.warn("sending", message, advice);
    }
}
