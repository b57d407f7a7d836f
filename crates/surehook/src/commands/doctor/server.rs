//! A running gateway: does it answer, is it ready, does it take the token?

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::Value;

use super::Findings;
use crate::{client::Client, settings::environment};

pub(super) async fn look(server: &str, token: Option<&str>, findings: &mut Findings) {
    let token = token.map(str::to_owned).or_else(|| environment("SUREHOOK_ADMIN_TOKEN"));
    let client = Client::anonymous(server, token.as_deref().unwrap_or_default());
    let Ok(request) =
        Request::get(format!("{}/readyz", client.base())).body(Full::new(Bytes::new()))
    else {
        return findings.bad("server", format!("`{server}` is not an address"), "see --server");
    };
    match client.exchange(request).await {
        Err(failure) => {
            let advice = "is `surehook serve` running there, and is the address right?";
            return findings.bad("server", failure.to_string(), advice);
        }
        Ok((status, _)) if status.is_success() => {
            findings.good("server", format!("{} is ready", client.base()));
        }
        Ok((status, body)) => {
            let problem: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let detail = problem["detail"].as_str().unwrap_or("gives no reason");
            let said = format!("{} is not ready ({status}): {detail}", client.base());
            findings.bad("server", said, "see its log");
        }
    }
    if token.is_none() {
        return;
    }
    match client.get("/stats").await {
        Ok(stats) => {
            findings.good("token", "is known to the gateway");
            look_at_numbers(&stats, findings);
        }
        Err(failure) => {
            let advice = "give another with --token; an admin makes one: surehook token create";
            findings.bad("token", failure.to_string(), advice);
        }
    }
}

/// Numbers that have sent much today.
fn look_at_numbers(stats: &Value, findings: &mut Findings) {
    let destinations = stats["destinations"].as_array().into_iter().flatten();
    for shown in destinations.filter(|shown| shown["over"] == true) {
        let name = shown["name"].as_str().unwrap_or_default();
        let (sent, warn_at) = (&shown["sent_today"], &shown["warn_at"]);
        let said =
            format!("`{name}` has sent {sent} messages today; {warn_at} are worth a warning");
        let advice = "send less, or the number may be banned; see `sending` in docs/settings.md";
        findings.warn("sending", said, advice);
    }
}
