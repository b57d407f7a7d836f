//! Search attributes of an event: labels, and masking of personal data.

use surehook_webhooks::attribute::{AttributeName, Attributes};

use crate::{format::mask_middle, translations::EventTexts};

/// Attributes with personal data.
const PERSONAL_ATTRIBUTES: [AttributeName; 4] =
    [AttributeName::Phone, AttributeName::Email, AttributeName::Chat, AttributeName::User];

/// Shorter values are not masked in other texts, where they may occur by chance.
const MASKED_CHARS_MIN: usize = 6;

/// Translated labels and their values; personal data is masked unless revealed.
pub(super) fn attribute_facts(
    attributes: &Attributes,
    t: &EventTexts,
    revealed: bool,
) -> Vec<(&'static str, Vec<String>)> {
    let mut facts: Vec<(&'static str, Vec<String>)> = Vec::new();
    for (name, value) in attributes.iter() {
        let is_masked = !revealed && PERSONAL_ATTRIBUTES.contains(&name);
        let text = if is_masked { mask_middle(value) } else { value.to_owned() };
        let label = t.attribute(name.as_str());
        match facts.last_mut().filter(|(last, _)| *last == label) {
            Some((_, values)) => values.push(text),
            None => facts.push((label, vec![text])),
        }
    }
    facts
}

/// The person or chat that an event is about, masked; empty without one.
pub(super) fn masked_subject(attributes: &Attributes) -> String {
    let of_name = |name| attributes.iter().find(|(other, _)| *other == name);
    let contact = PERSONAL_ATTRIBUTES.into_iter().find_map(of_name);
    contact.map(|(_, value)| mask_middle(value)).unwrap_or_default()
}

/// Masks personal data of the event in a text: dedup keys often contain phone numbers.
pub(super) fn mask_personal_data(text: &str, attributes: &Attributes) -> String {
    let personal = attributes.iter().filter(|(name, _)| PERSONAL_ATTRIBUTES.contains(name));
    let mut values: Vec<String> = personal
        .flat_map(|(_, value)| {
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            [value.to_owned(), digits]
        })
        .filter(|value| value.chars().count() >= MASKED_CHARS_MIN)
        .collect();
    // Longest first, so that no part is masked separately.
    values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
    values.dedup();
    values
        .iter()
        .fold(text.to_owned(), |text, value| text.replace(value.as_str(), &mask_middle(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_data_in_keys_is_masked() {
        let attributes = Attributes::default()
            .with(AttributeName::Phone, "5511987654321")
            .with(AttributeName::Chat, "120363041234567890@g.us")
            .with(AttributeName::User, "7")
            .with(AttributeName::MessageId, "3EB0");
        for (key, expected) in [
            ("m:120363041234567890@g.us:3EB0:7", "m:1203••••••••us:3EB0:7"),
            ("5511987654321", "5511•••••••21"),
            ("order-1", "order-1"),
        ] {
            assert_eq!(mask_personal_data(key, &attributes), expected);
        }
    }

    #[test]
    fn contact_in_lists_is_masked() {
        let attributes = Attributes::default().with(AttributeName::Email, "joao@example.com");
        assert_eq!(masked_subject(&attributes), "joao••••••••om");
        let attributes = Attributes::default().with(AttributeName::Object, "ord_1");
        assert_eq!(masked_subject(&attributes), "");
    }
}
