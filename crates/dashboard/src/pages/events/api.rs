//! API responses about events.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::Deserialize;

use crate::{format::mask_middle, translations::EventTexts};

/// Search attributes of an event.
pub(super) type EventAttributes = BTreeMap<String, Vec<String>>;

/// Attributes with personal data.
const PERSON_ATTRIBUTES: [&str; 4] = ["phone", "email", "chat", "user"];

/// Shorter values would be masked where they occur by chance.
const MASKED_CHARS_MIN: usize = 6;

#[derive(Deserialize)]
pub(super) struct EventDetails {
    pub(super) id: String,
    pub(super) source: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) key: Option<String>,
    pub(super) received_at: String,
    pub(super) body_bytes: u64,
    pub(super) duplicate_count: u64,
    #[serde(default)]
    pub(super) attributes: EventAttributes,
    pub(super) body_removed: bool,
    pub(super) sha256: String,
    pub(super) request: Option<RequestHeadItem>,
    pub(super) deliveries: Vec<DeliveryItem>,
    pub(super) duplicates: Vec<DuplicateItem>,
    pub(super) decisions: Vec<TimelineItem>,
}

#[derive(Deserialize)]
pub(super) struct RequestHeadItem {
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) remote: String,
    pub(super) headers: Vec<HeaderItem>,
}

impl RequestHeadItem {
    /// Path and query as requested.
    pub(super) fn address(&self, source: Option<&str>) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("/in/{}{}{query}", source.unwrap_or("…"), self.path)
    }
}

#[derive(Deserialize)]
pub(super) struct HeaderItem {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) value: TextOrBase64,
}

/// Bytes as text if possible, otherwise as Base64.
#[derive(Clone, Deserialize)]
pub(super) struct TextOrBase64 {
    pub(super) text: Option<String>,
    base64: Option<String>,
}

impl TextOrBase64 {
    pub(super) fn bytes(&self) -> Vec<u8> {
        match (&self.text, &self.base64) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(base64)) => BASE64.decode(base64.as_bytes()).unwrap_or_default(),
            (None, None) => Vec::new(),
        }
    }

    /// As text; invalid UTF-8 is replaced.
    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

#[derive(Deserialize)]
pub(super) struct TimelineItem {
    pub(super) at: String,
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) delivery: Option<String>,
    #[serde(default)]
    pub(super) detail: serde_json::Value,
}

/// A duplicate request. Older servers do not number them.
#[derive(Deserialize)]
pub(super) struct DuplicateItem {
    #[serde(default)]
    pub(super) n: u32,
    pub(super) seen_at: String,
    pub(super) bytes_differ: bool,
    #[serde(default)]
    pub(super) delivered_as: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct DeliveryItem {
    pub(super) id: String,
    pub(super) destination: Option<String>,
    pub(super) status: String,
    pub(super) order_key: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) attempts: u64,
    pub(super) due_at: Option<String>,
    pub(super) replay_of: Option<String>,
    pub(super) replayed_by: Option<String>,
    pub(super) sent_id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct DeliveryDetails {
    #[serde(flatten)]
    pub(super) delivery: DeliveryItem,
    pub(super) attempts_removed: bool,
    pub(super) attempt_list: Vec<AttemptItem>,
}

#[derive(Deserialize)]
pub(super) struct AttemptItem {
    pub(super) number: u64,
    pub(super) started_at: String,
    pub(super) took_ms: u64,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<String>,
    pub(super) class: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) response: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct TimingItem {
    pub(super) dns_ms: Option<u64>,
    pub(super) connect_ms: Option<u64>,
    pub(super) tls_ms: Option<u64>,
    pub(super) first_byte_ms: Option<u64>,
    pub(super) total_ms: Option<u64>,
    pub(super) reused_connection: Option<bool>,
}

/// Unmasked values.
#[derive(Deserialize)]
pub(super) struct RevealedEventData {
    pub(super) key: Option<String>,
    pub(super) attributes: EventAttributes,
    pub(super) request: Option<RequestHeadItem>,
    pub(super) body: Option<TextOrBase64>,
    #[serde(default, rename = "answers")]
    pub(super) responses: Vec<RevealedResponse>,
}

#[derive(Deserialize)]
pub(super) struct RevealedResponse {
    pub(super) delivery: String,
    pub(super) number: u64,
    pub(super) response: TextOrBase64,
}

pub(super) struct EventFact {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

/// Attributes with translated labels; personal data is masked unless revealed.
pub(super) fn event_facts(
    attributes: &EventAttributes,
    t: &EventTexts,
    revealed: bool,
) -> Vec<EventFact> {
    let fact = |(word, values): (&String, &Vec<String>)| {
        let is_person = !revealed && PERSON_ATTRIBUTES.contains(&word.as_str());
        let shown = |value: &String| if is_person { mask_middle(value) } else { value.clone() };
        EventFact { name: t.attribute(word).to_owned(), values: values.iter().map(shown).collect() }
    };
    attributes.iter().map(fact).collect()
}

/// The masked contact of an event.
pub(super) fn masked_subject(attributes: &EventAttributes) -> String {
    let found = PERSON_ATTRIBUTES.iter().find_map(|name| attributes.get(*name)?.first());
    found.map(|value| mask_middle(value)).unwrap_or_default()
}

/// Masks personal data of the event in a text: dedup keys often contain phone numbers.
pub(super) fn mask_people(text: &str, attributes: &EventAttributes) -> String {
    let people = PERSON_ATTRIBUTES.iter().filter_map(|name| attributes.get(*name)).flatten();
    let mut names: Vec<String> = people
        .flat_map(|value| {
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            [value.clone(), digits]
        })
        .filter(|name| name.chars().count() >= MASKED_CHARS_MIN)
        .collect();
    // Longest first, so that no part is masked separately.
    names.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
    names.dedup();
    names.iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), &mask_middle(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> EventAttributes {
        let list =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()]));
        list.collect()
    }

    #[test]
    fn personal_data_in_keys_is_masked() {
        let about = attributes(&[
            ("phone", "5511987654321"),
            ("chat", "5511987654321@s.whatsapp.net"),
            ("user", "7"),
            ("message_id", "3EB0"),
        ]);
        for (key, expected) in [
            ("m:5511987654321@s.whatsapp.net:3EB0:7", "m:5511••••••••et:3EB0:7"),
            ("5511987654321", "5511•••••••21"),
            ("order-1", "order-1"),
        ] {
            assert_eq!(mask_people(key, &about), expected);
        }
    }

    #[test]
    fn contact_in_lists_is_masked() {
        assert_eq!(masked_subject(&attributes(&[("email", "joao@example.com")])), "joao••••••••om");
        assert_eq!(masked_subject(&attributes(&[("object", "ord_1")])), "");
    }
}
