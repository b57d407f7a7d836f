use proptest::prelude::*;

use super::{AttributeName::*, *};

fn stored_as(name: AttributeName, text: &str) -> Option<(AttributeName, String)> {
    let attributes = Attributes::default().with(name, text);
    attributes.iter().next().map(|(name, value)| (name, value.to_owned()))
}

/// An attribute in the tests: name and value.
type Pair<'a> = (AttributeName, &'a str);

fn finds(stored: Pair<'_>, searched: Pair<'_>) -> bool {
    let attributes = Attributes::default().with(stored.0, stored.1);
    let Some(filter) = AttributeFilter::new(searched.0, searched.1) else { return false };
    let by_term = attributes.terms().any(|term| term == filter.term());
    assert_eq!(by_term, attributes.matches(&filter), "{stored:?} {searched:?}");
    by_term
}

#[test]
fn phone_number_is_found_in_every_format() {
    let forms = [
        "5511987654321",
        "551187654321",
        "+55 (11) 98765-4321",
        "+55 11 8765 4321",
        "00 55 11 98765.4321",
        "5511987654321@s.whatsapp.net",
        "551187654321@s.whatsapp.net",
        "5511987654321:12@s.whatsapp.net",
        "5511987654321.0:12@s.whatsapp.net",
        "551187654321@c.us",
        "whatsapp:+5511987654321",
        "WhatsApp: +55 11 8765-4321",
        "tel:+55-11-98765-4321",
        " 5511987654321 ",
    ];
    for stored in forms {
        for searched in forms {
            assert!(finds((Phone, stored), (Phone, searched)), "{stored}, {searched}");
        }
        let name = stored_as(Phone, stored).unwrap().0;
        assert_eq!(name, Phone, "{stored}");
    }
}

#[test]
fn different_phone_numbers_do_not_match() {
    let cases = [
        ("a landline and the mobile with a nine before it", "551132654321", "5511932654321"),
        ("another area", "5511987654321", "5521987654321"),
        ("another digit", "5511987654321", "5511987654322"),
        ("without the country", "5511987654321", "11987654321"),
        ("an area with a zero", "551087654321", "5510987654321"),
        ("another country with eight digits", "491187654321", "4911987654321"),
        ("too long", "55119876543210", "5511987654321"),
    ];
    for (name, stored, searched) in cases {
        assert!(!finds((Phone, stored), (Phone, searched)), "case: {name}");
        assert!(!finds((Phone, searched), (Phone, stored)), "case: {name}");
    }
}

#[test]
fn mexican_and_argentine_numbers_match_in_both_formats() {
    for (one, other) in [("5215512345678", "525512345678"), ("5491123456789", "541123456789")] {
        assert!(finds((Phone, one), (Phone, other)));
        assert!(finds((Phone, other), (Phone, one)));
        assert_eq!(stored_as(Phone, one), Some((Phone, one.to_owned())), "stored unchanged");
    }
}

#[test]
fn addresses_are_stored_as_phone_or_chat() {
    let cases = [
        (Phone, "5511987654321:3@s.whatsapp.net", (Phone, "5511987654321")),
        (Phone, "551187654321@c.us", (Phone, "551187654321")),
        (Chat, "5511987654321@s.whatsapp.net", (Phone, "5511987654321")),
        (Chat, "whatsapp:+5511987654321", (Phone, "5511987654321")),
        (Chat, "+5511987654321", (Phone, "5511987654321")),
        (Phone, "123456789012345:7@lid", (Chat, "123456789012345@lid")),
        (Chat, "123456789012345@lid", (Chat, "123456789012345@lid")),
        (Phone, "120363041234567890@g.us", (Chat, "120363041234567890@g.us")),
        (Chat, "5511987654321-1398765432@g.us", (Chat, "5511987654321-1398765432@g.us")),
        (Chat, "status@broadcast", (Chat, "status@broadcast")),
        (Chat, "120363012345678901@newsletter", (Chat, "120363012345678901@newsletter")),
        (Phone, "BR.1502576394655843", (Chat, "BR.1502576394655843")),
        (Phone, "US.ENT.11815799212886844830", (Chat, "US.ENT.11815799212886844830")),
        (Phone, "messenger:1234", (Chat, "messenger:1234")),
        (Chat, "-1001234567890", (Chat, "-1001234567890")),
        (Chat, "987654321", (Chat, "987654321")),
        (Chat, "C024BE91L", (Chat, "C024BE91L")),
        (Object, "5511987654321@s.whatsapp.net", (Object, "5511987654321@s.whatsapp.net")),
    ];
    for (name, text, (in_name, value)) in cases {
        assert_eq!(stored_as(name, text), Some((in_name, value.to_owned())), "case: {text}");
        // By either of the two names.
        assert!(finds((name, text), (name, text)), "case: {text}");
    }
    for hidden in ["123456789012345@lid", "120363041234567890@g.us", "BR.1502576394655843"] {
        assert!(finds((Chat, hidden), (Phone, hidden)), "case: {hidden}");
        assert!(finds((Phone, hidden), (Chat, &hidden.to_lowercase())), "case: {hidden}");
    }
    assert!(!finds((Chat, "987654321"), (Phone, "987654321")), "a chat id is not a phone number");
}

#[test]
fn blank_long_or_unprintable_values_are_dropped() {
    let long = "x".repeat(VALUE_BYTES_MAX + 1);
    for text in ["", "  ", "\u{0}", "a\nb", &long] {
        assert_eq!(stored_as(MessageId, text), None, "case: {text:?}");
        assert_eq!(AttributeFilter::new(MessageId, text), None, "case: {text:?}");
    }
    for text in ["+", "()", "00", "--"] {
        assert_eq!(stored_as(Phone, text), None, "case: {text:?}");
    }
    assert!(stored_as(MessageId, &long[1..]).is_some());
    assert_eq!(EventKind::new(" "), None);
    assert_eq!(EventKind::new(&"k".repeat(KIND_BYTES_MAX + 1)), None);
    assert_eq!(EventKind::new(" message ").unwrap().as_str(), "message");
}

#[test]
fn attributes_are_bounded_and_deduplicated() {
    let mut attributes = Attributes::default();
    attributes.push(Phone, "5511987654321");
    attributes.push(Phone, "551187654321@s.whatsapp.net");
    attributes.push(ProviderStatus, "read");
    attributes.push(ProviderStatus, "READ");
    assert_eq!(attributes.iter().count(), 2);
    for number in 0..2 * ATTRIBUTES_MAX {
        attributes.push(MessageId, &number.to_string());
    }
    assert_eq!(attributes.iter().count(), ATTRIBUTES_MAX);
    assert_eq!(attributes.terms().count(), ATTRIBUTES_MAX);
}

#[test]
fn attributes_are_serialized_as_object_of_lists() {
    let mut attributes = Attributes::default()
        .with(Account, "102290129340398")
        .with(Phone, "5511987654321@s.whatsapp.net")
        .with(MessageId, "wamid.B")
        .with(MessageId, "wamid.A");
    attributes.push_some(Object, None::<&str>);
    let json = r#"{"message_id":["wamid.B","wamid.A"],"phone":["5511987654321"],"account":["102290129340398"]}"#;
    assert_eq!(attributes.to_json(), json);
    assert_eq!(Attributes::from_json(json).unwrap(), attributes);
    assert_eq!(Attributes::default().to_json(), "{}");
    assert!(Attributes::from_json(r#"{"of_a_later_version":["x"]}"#).unwrap().is_empty());
    assert!(Attributes::from_json("[]").is_err());
}

#[test]
fn attribute_names_roundtrip_as_text() {
    for name in AttributeName::ALL {
        assert_eq!(AttributeName::parse(name.as_str()), Some(name));
        assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
    }
    assert_eq!(AttributeName::parse("kind"), None, "a kind is not an attribute");
    assert!(AttributeName::ALL.is_sorted());
}

#[test]
fn search_terms_are_stable_across_versions() {
    // printf 'phone\0005511987654321' | sha256sum | cut -c1-16
    let filter = AttributeFilter::new(Phone, "551187654321").unwrap();
    assert_eq!(data_encoding::HEXLOWER.encode(&filter.term().to_bytes()), "1fc6c7d521ea2bef");
    assert_eq!(SearchTerm::from_bytes(filter.term().to_bytes()), filter.term());
    // printf 'kind\000message' | sha256sum | cut -c1-16
    let kind = EventKind::new("message").unwrap();
    assert_eq!(data_encoding::HEXLOWER.encode(&kind.term().to_bytes()), "cec69f325b0c9e7f");
}

fn any_name() -> impl Strategy<Value = AttributeName> {
    prop::sample::select(AttributeName::ALL.to_vec())
}

/// Texts that often look like addresses.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(whatsapp:|tel:)?[+]?(00)?(55|52|54)?[0-9() .-]{0,14}(:[0-9])?(@(s.whatsapp.net|c.us|lid|g.us))?",
        "[A-Z]{2}\\.[0-9]{1,20}",
    ]
}

proptest! {
    #[test]
    fn stored_value_is_found_by_original_and_stored_form(
        name in any_name(),
        text in any_text(),
    ) {
        let Some((in_name, stored)) = stored_as(name, &text) else {
            prop_assert_eq!(AttributeFilter::new(name, &text), None);
            return Ok(());
        };
        prop_assert!(finds((name, &text), (name, &text)));
        prop_assert!(finds((name, &text), (in_name, &stored)));
        prop_assert_eq!(stored_as(in_name, &stored), Some((in_name, stored)));
    }

    #[test]
    fn brazilian_mobile_is_found_with_and_without_ninth_digit(
        area in "[1-9][1-9]", number in "[6-9][0-9]{7}", device in 0..99,
    ) {
        let with = format!("55{area}9{number}");
        let without = format!("55{area}{number}:{device}@s.whatsapp.net");
        prop_assert!(finds((Phone, &with), (Phone, &without)));
        prop_assert!(finds((Chat, &without), (Phone, &with)));
    }

    #[test]
    fn attributes_survive_json_roundtrip(pairs in prop::collection::vec((any_name(), any_text()), 0..24)) {
        let mut attributes = Attributes::default();
        pairs.iter().for_each(|(name, text)| attributes.push(*name, text));
        let parsed = Attributes::from_json(&attributes.to_json()).unwrap();
        prop_assert_eq!(parsed.terms().collect::<Vec<_>>(), attributes.terms().collect::<Vec<_>>());
        prop_assert_eq!(parsed, attributes);
    }
}

#[test]
fn zeros_alone_are_not_a_phone_number() {
    for text in ["00@c.us", "0000", "+00", "00"] {
        let attributes = Attributes::default().with(Phone, text);
        assert!(attributes.is_empty(), "case: {text}");
    }
}
