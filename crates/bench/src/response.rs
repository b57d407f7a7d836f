//! Checks the gateway's response to one event, as a careful sender would.

use anyhow::{Result, bail};
use hyper::StatusCode;
use serde::Deserialize;

/// The status that the gateway reports for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EventVerdict {
    Accepted,
    Duplicate,
}

#[derive(Deserialize)]
struct IngestResponse<'a> {
    status: EventVerdict,
    #[serde(borrow)]
    events: Vec<ResponseEvent<'a>>,
}

#[derive(Deserialize)]
struct ResponseEvent<'a> {
    id: &'a str,
    key: &'a str,
    status: EventVerdict,
}

impl IngestResponse<'_> {
    /// Whether the response reports `expected` for the one event that was sent.
    fn reports(&self, expected: EventVerdict, key: &str) -> bool {
        let [event] = &self.events[..] else { return false };
        // The limit server does not extract a key and leaves it empty.
        let is_ours = event.key == key || event.key.is_empty();
        self.status == expected
            && event.status == expected
            && is_ours
            && event.id.starts_with("evt_")
    }
}

/// Fails unless the response is 200 with `expected` for the event with this key.
pub(crate) fn check_response(
    status: StatusCode,
    body: &[u8],
    expected: EventVerdict,
    key: &str,
) -> Result<()> {
    let response = serde_json::from_slice::<IngestResponse<'_>>(body);
    if status == StatusCode::OK && response.is_ok_and(|response| response.reports(expected, key)) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(body);
    bail!("expected 200 {expected:?} for key {key}, but the server answered {status} {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_for_the_sent_event_is_accepted() {
        let response = |status: &str, key: &str| {
            format!(
                r#"{{"status":"{status}","events":[{{"id":"evt_1","key":"{key}","status":"{status}"}}]}}"#
            )
        };
        let cases = [
            ("accepted", 200, response("accepted", "k"), true),
            ("limit server", 200, response("accepted", ""), true),
            ("another key", 200, response("accepted", "j"), false),
            ("duplicate", 200, response("duplicate", "k"), false),
            ("shed", 503, response("accepted", "k"), false),
            ("no event", 200, r#"{"status":"accepted","events":[]}"#.to_owned(), false),
            ("unknown status", 200, response("queued", "k"), false),
            ("empty", 200, String::new(), false),
        ];
        for (name, status, body, is_accepted) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let checked = check_response(status, body.as_bytes(), EventVerdict::Accepted, "k");
            assert_eq!(checked.is_ok(), is_accepted, "case: {name}");
        }
    }
}
