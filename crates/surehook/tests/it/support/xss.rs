//! Texts that run as code on a page that does not escape them: they set `window.__xss` to their
//! number or open a dialog with it, and the browser of `support::browser` notices both.

use http::HeaderValue;
use serde_json::{Value, json};

use super::gateway::Gateway;

/// One text of `payloads/xss.json`.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    /// Counts from one; what runs tells it.
    pub(crate) number: usize,
    /// What kind of trick it is.
    pub(crate) class: String,
    pub(crate) text: String,
}

pub(crate) fn payloads() -> Vec<Payload> {
    let classes: Value = serde_json::from_str(include_str!("../payloads/xss.json")).unwrap();
    let mut all = Vec::new();
    for (class, texts) in classes.as_object().unwrap() {
        for text in texts.as_array().unwrap() {
            let text = text.as_str().unwrap().to_owned();
            // The file is a map, and its order is lost; the number stands in the text itself.
            let number = number_in(&text);
            all.push(Payload { number, class: class.clone(), text });
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

/// A source whose keys and kinds are what the sender says.
pub(crate) fn credulous(source: &str) -> String {
    format!(
        r#"
        [[sources]]
        name = "{source}"
        verify = "none"
        keys = ["pointer:/key"]
        kinds = ["pointer:/kind"]
        "#
    )
}

/// Sends every payload to a [`credulous`] source: as the key, the kind, a value, the name of a field,
/// a header, and in the path and the query, and once more as a whole body that is not JSON. Gives
/// the events back, two for each payload. Names of sources and destinations allow none of them.
pub(crate) async fn post_all(gateway: &Gateway, source: &str) -> Vec<String> {
    let mut events = Vec::new();
    for Payload { text, .. } in payloads() {
        let body = json!({ "key": text, "kind": text, "value": text, &text: [text, { &text: 1 }] });
        // In a header no control letter may stand.
        let letters: String = text.chars().filter(|letter| !letter.is_control()).collect();
        let legal = HeaderValue::from_bytes(letters.as_bytes()).unwrap();
        let in_path: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let path = format!("/in/{source}/{in_path}?q={in_path}");
        let bodies = [("application/json", body.to_string()), ("text/html", text)];
        for (kind, body) in bodies {
            let headers: [(&str, &[u8]); 3] = [
                ("content-type", kind.as_bytes()),
                ("user-agent", legal.as_bytes()),
                ("x-payload", legal.as_bytes()),
            ];
            let answer = gateway.call(http::Method::POST, &path, &headers, body).await;
            let answer = answer.expect(200).json();
            events.push(answer["events"][0]["id"].as_str().unwrap().to_owned());
        }
    }
    events
}
