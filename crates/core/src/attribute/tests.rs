use proptest::prelude::*;

use super::{AttributeName::*, *};

fn placed(name: AttributeName, text: &str) -> Option<(AttributeName, String)> {
    let attributes = Attributes::default().with(name, text);
    attributes.iter().next().map(|(name, value)| (name, value.to_owned()))
}

fn finds(stored: (AttributeName, &str), sought: (AttributeName, &str)) -> bool {
    let attributes = Attributes::default().with(stored.0, stored.1);
    let Some(wanted) = AttributeFilter::new(sought.0, sought.1) else { return false };
    let by_term = attributes.terms().any(|term| term == wanted.term());
    assert_eq!(by_term, attributes.has(&wanted), "{stored:?} {sought:?}");
    by_term
}

#[test]
fn a_phone_is_found_in_every_form() {
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
        for sought in forms {
            assert!(finds((Phone, stored), (Phone, sought)), "{stored}, {sought}");
        }
        let name = placed(Phone, stored).unwrap().0;
        assert_eq!(name, Phone, "{stored}");
    }
}

#[test]
fn numbers_that_are_not_the_same_are_not_found() {
    let cases = [
        ("a landline and the mobile with a nine before it", "551132654321", "5511932654321"),
        ("another area", "5511987654321", "5521987654321"),
        ("another digit", "5511987654321", "5511987654322"),
        ("without the country", "5511987654321", "11987654321"),
        ("an area with a zero", "551087654321", "5510987654321"),
        ("another country with eight digits", "491187654321", "4911987654321"),
        ("too long", "55119876543210", "5511987654321"),
    ];
    for (name, stored, sought) in cases {
        assert!(!finds((Phone, stored), (Phone, sought)), "case: {name}");
        assert!(!finds((Phone, sought), (Phone, stored)), "case: {name}");
    }
}

#[test]
fn numbers_of_mexico_and_argentina_are_found_in_both_forms() {
    for (one, other) in [("5215512345678", "525512345678"), ("5491123456789", "541123456789")] {
        assert!(finds((Phone, one), (Phone, other)));
        assert!(finds((Phone, other), (Phone, one)));
        assert_eq!(placed(Phone, one), Some((Phone, one.to_owned())), "shown as it came");
    }
}

#[test]
fn addresses_are_kept_where_they_belong() {
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
        assert_eq!(placed(name, text), Some((in_name, value.to_owned())), "case: {text}");
        // Whichever of the two names it is looked for by.
        assert!(finds((name, text), (name, text)), "case: {text}");
    }
    for hidden in ["123456789012345@lid", "120363041234567890@g.us", "BR.1502576394655843"] {
        assert!(finds((Chat, hidden), (Phone, hidden)), "case: {hidden}");
        assert!(finds((Phone, hidden), (Chat, &hidden.to_lowercase())), "case: {hidden}");
    }
    assert!(!finds((Chat, "987654321"), (Phone, "987654321")), "the id of a chat is no phone");
}

#[test]
fn what_cannot_be_shown_or_looked_for_is_left_out() {
    let long = "x".repeat(VALUE_BYTES_MAX + 1);
    for text in ["", "  ", "\u{0}", "a\nb", &long] {
        assert_eq!(placed(MessageId, text), None, "case: {text:?}");
        assert_eq!(AttributeFilter::new(MessageId, text), None, "case: {text:?}");
    }
    for text in ["+", "()", "00", "--"] {
        assert_eq!(placed(Phone, text), None, "case: {text:?}");
    }
    assert!(placed(MessageId, &long[1..]).is_some());
    assert_eq!(EventKind::new(" "), None);
    assert_eq!(EventKind::new(&"k".repeat(KIND_BYTES_MAX + 1)), None);
    assert_eq!(EventKind::new(" message ").unwrap().as_str(), "message");
}

#[test]
fn they_are_few_and_each_is_there_once() {
    let mut attributes = Attributes::default();
    attributes.push(Phone, "5511987654321");
    attributes.push(Phone, "551187654321@s.whatsapp.net");
    attributes.push(ProviderStatus, "read");
    attributes.push(ProviderStatus, "READ");
    assert_eq!(attributes.iter().count(), 2);
    for number in 0..2 * PAIRS_MAX {
        attributes.push(MessageId, &number.to_string());
    }
    assert_eq!(attributes.iter().count(), PAIRS_MAX);
    assert_eq!(attributes.terms().count(), PAIRS_MAX);
}

#[test]
fn they_are_written_as_an_object_of_lists() {
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
fn names_and_words_agree() {
    for name in AttributeName::ALL {
        assert_eq!(AttributeName::parse(name.as_str()), Some(name));
        assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
    }
    assert_eq!(AttributeName::parse("kind"), None, "a kind is no attribute");
    assert!(AttributeName::ALL.is_sorted());
}

#[test]
fn a_term_is_the_same_in_every_version_and_on_every_machine() {
    // printf 'phone\0005511987654321' | sha256sum | cut -c1-16
    let wanted = AttributeFilter::new(Phone, "551187654321").unwrap();
    assert_eq!(data_encoding::HEXLOWER.encode(&wanted.term().to_bytes()), "1fc6c7d521ea2bef");
    assert_eq!(SearchTerm::from_bytes(wanted.term().to_bytes()), wanted.term());
    // printf 'kind\000message' | sha256sum | cut -c1-16
    let kind = EventKind::new("message").unwrap();
    assert_eq!(data_encoding::HEXLOWER.encode(&kind.term().to_bytes()), "cec69f325b0c9e7f");
}

fn any_name() -> impl Strategy<Value = AttributeName> {
    prop::sample::select(AttributeName::ALL.to_vec())
}

/// Texts that look like addresses more often than chance would have it.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(whatsapp:|tel:)?[+]?(00)?(55|52|54)?[0-9() .-]{0,14}(:[0-9])?(@(s.whatsapp.net|c.us|lid|g.us))?",
        "[A-Z]{2}\\.[0-9]{1,20}",
    ]
}

proptest! {
    #[test]
    fn what_is_stored_is_found_by_what_came_and_by_what_is_shown(
        name in any_name(),
        text in any_text(),
    ) {
        let Some((in_name, shown)) = placed(name, &text) else {
            prop_assert_eq!(AttributeFilter::new(name, &text), None);
            return Ok(());
        };
        prop_assert!(finds((name, &text), (name, &text)));
        prop_assert!(finds((name, &text), (in_name, &shown)));
        prop_assert_eq!(placed(in_name, &shown), Some((in_name, shown)));
    }

    #[test]
    fn every_brazilian_mobile_is_found_with_and_without_its_ninth_digit(
        area in "[1-9][1-9]", number in "[6-9][0-9]{7}", device in 0..99,
    ) {
        let with = format!("55{area}9{number}");
        let without = format!("55{area}{number}:{device}@s.whatsapp.net");
        prop_assert!(finds((Phone, &with), (Phone, &without)));
        prop_assert!(finds((Chat, &without), (Phone, &with)));
    }

    #[test]
    fn what_is_kept_is_read_back(pairs in prop::collection::vec((any_name(), any_text()), 0..24)) {
        let mut attributes = Attributes::default();
        pairs.iter().for_each(|(name, text)| attributes.push(*name, text));
        let back = Attributes::from_json(&attributes.to_json()).unwrap();
        prop_assert_eq!(back.terms().collect::<Vec<_>>(), attributes.terms().collect::<Vec<_>>());
        prop_assert_eq!(back, attributes);
    }
}

#[test]
fn zeros_alone_are_no_number() {
    for text in ["00@c.us", "0000", "+00", "00"] {
        let kept = Attributes::default().with(Phone, text);
        assert!(kept.is_empty(), "case: {text}");
    }
}
