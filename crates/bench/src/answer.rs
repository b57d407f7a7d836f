//! The answer to one event, read and checked as a careful sender would.

use anyhow::{Result, bail};
use hyper::StatusCode;
use serde::Deserialize;

/// What the gateway decided.
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
    /// Whether it says `expected` of the one event that was sent.
    fn is(&self, expected: EventVerdict, key: &str) -> bool {
        let [event] = &self.events[..] else { return false };
        // The bare server looks at nothing and names no key.
        let is_ours = event.key == key || event.key.is_empty();
        self.status == expected
            && event.status == expected
            && is_ours
            && event.id.starts_with("evt_")
    }
}

/// Refuses every answer but the expected one about the event with this key.
pub(crate) fn check(
    status: StatusCode,
    body: &[u8],
    expected: EventVerdict,
    key: &str,
) -> Result<()> {
    let answer = serde_json::from_slice::<IngestResponse<'_>>(body);
    if status == StatusCode::OK && answer.is_ok_and(|answer| answer.is(expected, key)) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(body);
    bail!("expected 200 {expected:?} for {key}, the server answered {status} {said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_200_for_the_sent_event_is_accepted() {
        let answer = |status: &str, key: &str| {
            format!(
                r#"{{"status":"{status}","events":[{{"id":"evt_1","key":"{key}","status":"{status}"}}]}}"#
            )
        };
        let cases = [
            ("accepted", 200, answer("accepted", "k"), true),
            ("the bare server", 200, answer("accepted", ""), true),
            ("another key", 200, answer("accepted", "j"), false),
            ("a duplicate", 200, answer("duplicate", "k"), false),
            ("shed", 503, answer("accepted", "k"), false),
            ("no event", 200, r#"{"status":"accepted","events":[]}"#.to_owned(), false),
            ("another word", 200, answer("queued", "k"), false),
            ("empty", 200, String::new(), false),
        ];
        for (name, status, body, taken) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let checked = check(status, body.as_bytes(), EventVerdict::Accepted, "k");
            assert_eq!(checked.is_ok(), taken, "case: {name}");
        }
    }
}
