//! The fields of events as data: where a provider puts their kind, keys and attributes.
//!
//! A template is a text with fields in braces, such as `slack:{/team_id|/enterprise_id}:{/event_id}`. A
//! field is a JSON pointer into the body or the name of a header. Of several fields, separated by `|`,
//! the first one present counts; `-` stands for itself. A template with an absent field gives nothing.
//! Strings are unchanged, numbers keep their spelling; other and blank values count as absent.

use std::{borrow::Cow, sync::OnceLock};

use serde_json::value::RawValue;

use super::{EventKey, EventPart, ParsedRequest};
use crate::{
    attribute::{AttributeName, Attributes, EventKind},
    key::{DedupKey, JsonPointerSet, scalar_text},
    request::IncomingRequest,
};

/// The locations of the parts of an event.
#[derive(Debug)]
pub(super) struct EventTemplate {
    /// Templates of the event kind; the first one that gives a text counts. Likewise for the keys.
    pub(super) kind: &'static [&'static str],
    pub(super) key: &'static [&'static str],
    /// Describes the key to people.
    pub(super) key_label: &'static str,
    /// Whether the signature, if there is one, covers the headers in the key.
    pub(super) are_key_headers_signed: bool,
    /// Templates of the ordering key.
    pub(super) ordering_key: &'static [&'static str],
    /// The fields with the values of each attribute.
    pub(super) attributes: &'static [(AttributeName, &'static [&'static str])],
    /// Further fields and templates that the code of the provider uses.
    pub(super) extra_fields: &'static [&'static str],
}

impl EventTemplate {
    pub(super) const EMPTY: Self = Self {
        kind: &[],
        key: &[],
        key_label: "",
        are_key_headers_signed: false,
        ordering_key: &[],
        attributes: &[],
        extra_fields: &[],
    };
}

/// Reads the fields of a template, all in one pass through a body.
#[derive(Debug)]
pub(super) struct EventReader {
    template: &'static EventTemplate,
    /// Built once and used for every request.
    pointers: OnceLock<NamedPointers>,
}

#[derive(Debug, Default)]
struct NamedPointers {
    names: Vec<&'static str>,
    set: JsonPointerSet,
}

impl NamedPointers {
    /// # Panics
    /// If one is not a JSON pointer: they are constants, and tests read them all.
    fn new(template: &EventTemplate) -> Self {
        let EventTemplate { kind, key, ordering_key, extra_fields, .. } = template;
        let attributes = template.attributes.iter().flat_map(|(_, fields)| *fields);
        let texts =
            [*kind, *key, *ordering_key, *extra_fields].into_iter().flatten().chain(attributes);
        let fields = texts.flat_map(|text| text.split(['{', '|', '}']));
        let mut pointers = Self::default();
        for field in fields.filter(|field| field.starts_with('/')) {
            if !pointers.names.contains(&field) {
                pointers.names.push(field);
                pointers.set.push(&field.parse().expect("a JSON pointer"));
            }
        }
        pointers
    }
}

impl EventReader {
    pub(super) const fn new(template: &'static EventTemplate) -> Self {
        Self { template, pointers: OnceLock::new() }
    }

    /// Reads a request. A body that is not JSON has no fields.
    pub(super) fn read<'r>(&'static self, request: &IncomingRequest<'r>) -> FieldValues<'r> {
        FieldValues { request: Some(*request), ..self.read_json(request.body) }
    }

    /// Reads a part of a body; there are no headers.
    pub(super) fn read_json<'r>(&'static self, json: &'r [u8]) -> FieldValues<'r> {
        let pointers = self.pointers.get_or_init(|| NamedPointers::new(self.template));
        let value = |raw: Option<&'r RawValue>| FieldValue {
            raw,
            text: raw.and_then(scalar_text).filter(|text| !text.trim().is_empty()),
        };
        let values = pointers.set.find(json).into_iter().map(value).collect();
        FieldValues { template: self.template, names: &pointers.names, values, request: None }
    }

    /// The only event of a request.
    pub(super) fn parse(&'static self, request: &IncomingRequest<'_>) -> ParsedRequest {
        ParsedRequest::single(self.read(request).event())
    }
}

/// The fields of one request.
#[derive(Debug)]
pub(super) struct FieldValues<'r> {
    template: &'static EventTemplate,
    names: &'static [&'static str],
    /// In the order of the names.
    values: Vec<FieldValue<'r>>,
    request: Option<IncomingRequest<'r>>,
}

#[derive(Debug)]
struct FieldValue<'r> {
    raw: Option<&'r RawValue>,
    text: Option<Cow<'r, str>>,
}

impl<'r> FieldValues<'r> {
    fn value(&self, pointer: &str) -> Option<&FieldValue<'r>> {
        let position = self.names.iter().position(|name| *name == pointer);
        debug_assert!(position.is_some(), "the template does not have the field {pointer}");
        self.values.get(position?)
    }

    /// The text of a field, or of the first one present of several: `/user/id|/user_id`.
    pub(super) fn get(&self, fields: &str) -> Option<&str> {
        fields.split('|').find_map(|field| match field.as_bytes() {
            [b'/', ..] => self.value(field)?.text.as_deref(),
            b"-" => Some("-"),
            _ => self.request.as_ref()?.header(field),
        })
    }

    /// The JSON of a field in its spelling; `None` for `null`.
    pub(super) fn raw(&self, pointer: &str) -> Option<&'r str> {
        self.value(pointer)?.raw.map(RawValue::get).filter(|text| *text != "null")
    }

    pub(super) fn is_true(&self, pointer: &str) -> bool {
        self.raw(pointer) == Some("true")
    }

    /// The text of a template, if all its fields are present.
    pub(super) fn fill<'s>(&'s self, template: &'s str) -> Option<Cow<'s, str>> {
        // Stays borrowed if the template is a single field.
        let mut text = Cow::Borrowed("");
        let mut rest = template;
        while let Some((literal, after)) = rest.split_once('{') {
            let (fields, tail) = after.split_once('}')?;
            text += literal;
            text += self.get(fields)?;
            rest = tail;
        }
        text += rest;
        Some(text)
    }

    /// The key that a template gives.
    pub(super) fn key(&self, template: &str) -> Option<DedupKey> {
        DedupKey::new(&self.fill(template)?)
    }

    pub(super) fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::default();
        self.add_attributes(&mut attributes);
        attributes
    }

    pub(super) fn add_attributes(&self, attributes: &mut Attributes) {
        for (name, fields) in self.template.attributes {
            for field in *fields {
                attributes.push_some(*name, self.get(field));
            }
        }
    }

    /// The event that the template describes.
    pub(super) fn event(&self) -> EventPart {
        let EventTemplate { kind, key, key_label, are_key_headers_signed, ordering_key, .. } =
            self.template;
        let first = |templates: &[&'static str]| templates.iter().find_map(|text| self.fill(text));
        let found = first(key).and_then(|key| DedupKey::new(&key));
        let key = match key.iter().any(|text| has_header(text)) && !are_key_headers_signed {
            true => EventKey::Unsigned(found, key_label),
            false => EventKey::known_or_none(found, key_label),
        };
        EventPart {
            kind: first(kind).and_then(|kind| EventKind::new(&kind)),
            key,
            ordering_key: first(ordering_key).and_then(|key| DedupKey::new(&key)),
            attributes: self.attributes(),
            ..EventPart::default()
        }
    }
}

/// Whether a template has the name of a header.
fn has_header(template: &str) -> bool {
    let fields = template.split('{').skip(1).filter_map(|text| text.split('}').next());
    fields.flat_map(|fields| fields.split('|')).any(|field| !field.starts_with(['/', '-']))
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{event_summary, headers, incoming},
        *,
    };

    static READER: EventReader = EventReader::new(&EventTemplate {
        kind: &["{/kind}.{/none}", "{/kind|/id}"],
        key: &["p:{x-id}:{/none|/n|-}"],
        key_label: "p:n",
        are_key_headers_signed: false,
        ordering_key: &["{/none|-}:{/id}"],
        attributes: &[
            (AttributeName::Object, &["/id", "x-id"]),
            (AttributeName::User, &["/none"]),
            (AttributeName::Account, &["/data/object/id"]),
        ],
        extra_fields: &["/flag", "/list", "{/id}:{/list}"],
    });

    #[test]
    fn fields_keep_their_spelling() {
        let sent = headers(&[("x-id", "h1")]);
        let body = r#"{"id":"e1","n":820982911946154500,"data":{"object":{"id":" "}}}"#;
        let found = READER.read(&incoming(&sent, body));
        assert_eq!(
            (found.get("/id"), found.get("/data/object/id"), found.get("/n")),
            (Some("e1"), None, Some("820982911946154500"))
        );
        assert_eq!(found.get("/none|/data/object/id|/n|/id"), found.get("/n"));
        assert_eq!(found.get("/data/object/id|/none"), None);
        assert_eq!((found.get("x-id"), found.get("x-none|-")), (Some("h1"), Some("-")));
        assert_eq!(found.key("p:{/id}:{/n}").unwrap().as_str(), "p:e1:820982911946154500");
        assert_eq!(found.key("p:{/id}:{/none}"), None);
        assert_eq!(READER.read(&incoming(&sent, "not json")).get("/id"), None);
        let about = found.attributes();
        let expected = [(AttributeName::Object, "e1"), (AttributeName::Object, "h1")];
        assert_eq!(about.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn first_template_with_all_its_fields_counts() {
        let body = r#"{"id":"e1","n":5}"#;
        let cases: [(&[_], _, _); 2] = [
            (&[("x-id", "h1")], body, ["e1", "p:h1:5", "-:e1"]),
            (&[], r#"{"kind":"k","none":"n","id":1}"#, ["k.n", "-", "n:1"]),
        ];
        for (pairs, body, expected) in cases {
            let event = READER.read(&incoming(&headers(pairs), body)).event();
            assert_eq!(event_summary(&event), expected, "{body}");
        }
    }

    #[test]
    fn text_flag_and_json_of_a_field_are_distinct() {
        let sent = headers(&[]);
        let found = READER.read(&incoming(&sent, r#"{"list":[1, 2],"flag":true,"id":"a\u0062"}"#));
        let texts = ["/id", "/flag", "/list"].map(|field| found.get(field));
        assert_eq!(texts, [Some("ab"), None, None]);
        assert_eq!((found.raw("/list"), found.raw("/id")), (Some("[1, 2]"), Some(r#""a\u0062""#)));
        assert!(found.is_true("/flag") && !found.is_true("/id"));
        assert_eq!(found.get("/list|/id"), Some("ab"));
        let absent = READER.read(&incoming(&sent, r#"{"id":null,"list":null}"#));
        assert_eq!(absent.raw("/list"), None);
    }
}
