//! Texts that run as code on a page that does not escape them: they set `window.__xss` to their
//! number or open a dialog with it, and the browser of `support::browser` notices both.

use serde_json::{Value, json};

use super::{
    gateway::Gateway,
    sink::{Reply, Sink},
};

/// One text of `payloads/xss.json`.
#[derive(Clone, Debug)]
pub(crate) struct XssPayload {
    /// Counts from one; what runs tells it.
    pub(crate) number: usize,
    /// What kind of trick it is.
    pub(crate) class: String,
    pub(crate) text: String,
}

pub(crate) fn payloads() -> Vec<XssPayload> {
    let classes: Value = serde_json::from_str(include_str!("../payloads/xss.json")).unwrap();
    let mut all = Vec::new();
    for (class, texts) in classes.as_object().unwrap() {
        for text in texts.as_array().unwrap() {
            let text = text.as_str().unwrap().to_owned();
            // The file is a map, and its order is lost; the number stands in the text itself.
            let number = number_in(&text);
            all.push(XssPayload { number, class: class.clone(), text });
        }
    }
    all.sort_by_key(|payload| payload.number);
    all
}

/// The number that the text would tell if it ran.
fn number_in(text: &str) -> usize {
    let number = ["__xss=", "__&#120;ss=", "alert("].iter().find_map(|before| {
        let rest = text.split_once(before)?.1;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    });
    // The one that reads from right to left.
    let number = number.or_else(|| {
        let rest = text.split_once("/<")?.1;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    });
    number.unwrap_or_else(|| panic!("no number in {text}"))
}

/// A source `in` whose keys and kinds are what the sender says, and a destination `out`, for which
/// [`start_hostile_destination`] is meant, where one refusal is the end.
pub(crate) fn xss_settings(destination: &Sink) -> String {
    format!(
        r#"
        [[sources]]
        name = "in"
        verify = "none"
        keys = ["pointer:/key"]
        kinds = ["pointer:/kind"]

        [[routes]]
        from = "in"
        to = "out"

        [[destinations]]
        name = "out"
        url = "{}"
        retry = {{ max_attempts = 1 }}
        "#,
        destination.url()
    )
}

/// A destination that refuses everything, with one payload after the other in headers and body.
pub(crate) async fn start_hostile_destination() -> Sink {
    let replies = payloads().into_iter().map(|XssPayload { text, .. }| {
        let reply = Reply::status(422).header("content-type", "text/html; charset=utf-8");
        reply.header("x-payload", &printable(&text)).body(text)
    });
    let replies: Vec<Reply> = replies.collect();
    Sink::with_script(move |number, _| replies[number % replies.len()].clone()).await
}

/// In a header no control letter may stand.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

/// Sends every payload to the [`xss_settings`] source: as the key, the kind, a value, the name of a field,
/// a header, and in the path and the query, and once more as a whole body that is not JSON. Gives
/// the events back, two for each payload. Names of sources and destinations allow none of them.
pub(crate) async fn post_all_payloads(gateway: &Gateway) -> Vec<String> {
    let mut events = Vec::new();
    for XssPayload { text, .. } in payloads() {
        let body = json!({ "key": text, "kind": text, "value": text, &text: [text, { &text: 1 }] });
        let header = printable(&text);
        let in_path: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let path = format!("/in/in/{in_path}?q={in_path}");
        let bodies = [("application/json", body.to_string()), ("text/html", text)];
        for (kind, body) in bodies {
            let headers: [(&str, &[u8]); 3] = [
                ("content-type", kind.as_bytes()),
                ("user-agent", header.as_bytes()),
                ("x-payload", header.as_bytes()),
            ];
            let answer = gateway.request(http::Method::POST, &path, &headers, body).await;
            events.push(answer.expect(200).event_id());
        }
    }
    events
}
