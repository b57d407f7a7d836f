//! Payloads that run as code on a page that does not escape them: they set `window.__xss` to their
//! number or open a dialog with it, and `support::browser` detects both.

use serde_json::{Value, json};

use super::{
    gateway::{Gateway, Route},
    sink::{Reply, Sink},
};

/// A payload of `payloads/xss.json`.
#[derive(Clone, Debug)]
pub(crate) struct XssPayload {
    /// Numbered from one; the payload reports it when it runs.
    pub(crate) number: usize,
    /// The technique.
    pub(crate) class: String,
    pub(crate) text: String,
}

pub(crate) fn payloads() -> Vec<XssPayload> {
    let classes: Value = serde_json::from_str(include_str!("../payloads/xss.json")).unwrap();
    let mut all = Vec::new();
    for (class, texts) in classes.as_object().unwrap() {
        for text in texts.as_array().unwrap() {
            let text = text.as_str().unwrap().to_owned();
            // The order of the map is lost, so the number is read from the payload.
            let number = parse_number(&text);
            all.push(XssPayload { number, class: class.clone(), text });
        }
    }
    all.sort_by_key(|payload| payload.number);
    all
}

/// The number that the payload would report if it ran.
fn parse_number(text: &str) -> usize {
    let number = ["__xss=", "__&#120;ss=", "alert("].iter().find_map(|prefix| {
        let rest = text.split_once(prefix)?.1;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    });
    // The payload that is written from right to left.
    let number = number.or_else(|| {
        let rest = text.split_once("/<")?.1;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    });
    number.unwrap_or_else(|| panic!("no number in {text}"))
}

/// Settings with a source `in` that takes keys and kinds from the body, and a destination `out`, such
/// as [`start_hostile_destination`], where the first rejection is final.
pub(crate) fn xss_settings(destination: &Sink) -> String {
    let source = r#"
        verify = "none"
        keys = ["pointer:/key"]
        kinds = ["pointer:/kind"]
        "#;
    let destination = format!("url = \"{}\"\nretry = {{ max_attempts = 1 }}", destination.url());
    Route { source, route: "", destination: &destination }.settings()
}

/// Starts a destination that rejects everything, with one payload after the other in headers and body.
pub(crate) async fn start_hostile_destination() -> Sink {
    let replies = payloads().into_iter().map(|XssPayload { text, .. }| {
        let reply = Reply::status(422).header("content-type", "text/html; charset=utf-8");
        reply.header("x-payload", &remove_control_characters(&text)).body(text)
    });
    let replies: Vec<Reply> = replies.collect();
    Sink::with_script(move |number, _| replies[number % replies.len()].clone()).await
}

/// Removes control characters, which a header must not contain.
fn remove_control_characters(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

/// Sends every payload to the source of [`xss_settings`]: as key, kind, value, field name, header,
/// path and query, and once more as a whole body that is not JSON. Returns the events, two per
/// payload. Names of sources and destinations cannot contain payloads.
pub(crate) async fn post_all_payloads(gateway: &Gateway) -> Vec<String> {
    let mut events = Vec::new();
    for XssPayload { text, .. } in payloads() {
        let body = json!({ "key": text, "kind": text, "value": text, &text: [text, { &text: 1 }] });
        let header = remove_control_characters(&text);
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let path = format!("/in/in/{encoded}?q={encoded}");
        let bodies = [("application/json", body.to_string()), ("text/html", text)];
        for (kind, body) in bodies {
            let headers: [(&str, &[u8]); 3] = [
                ("content-type", kind.as_bytes()),
                ("user-agent", header.as_bytes()),
                ("x-payload", header.as_bytes()),
            ];
            let response = gateway.request(http::Method::POST, &path, &headers, body).await;
            events.push(response.expect(200).event_id());
        }
    }
    events
}
