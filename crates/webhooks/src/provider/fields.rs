//! Named fields of a JSON body, found in one pass.

use std::{borrow::Cow, ops::Index};

use serde_json::value::RawValue;

use crate::{
    attribute::{AttributeName, Attributes},
    key::{DedupKey, JsonPointer, JsonPointerSet, scalar_text},
};

/// The JSON pointers of the fields that a provider reads, built once and used for every request.
#[derive(Debug)]
pub struct BodyFields(JsonPointerSet);

/// The fields of one body, in the order of [`BodyFields`]. Strings are unchanged, numbers keep their
/// spelling; other and blank values count as absent.
#[derive(Debug)]
pub struct FieldValues<'b>(Vec<FieldValue<'b>>);

#[derive(Debug)]
struct FieldValue<'b> {
    raw: Option<&'b RawValue>,
    text: Option<Cow<'b, str>>,
}

impl BodyFields {
    /// # Panics
    /// If one is not a JSON pointer: they are constants, and tests parse them all.
    pub fn new(fields: &[&str]) -> Self {
        let mut pointers = JsonPointerSet::default();
        for field in fields {
            let pointer: JsonPointer = field.parse().expect("a JSON pointer");
            pointers.push(&pointer);
        }
        Self(pointers)
    }

    /// Reads a body. One that is not JSON has no fields.
    pub fn read<'b>(&self, body: &'b [u8]) -> FieldValues<'b> {
        let field = |raw: Option<&'b RawValue>| FieldValue {
            raw,
            text: raw.and_then(scalar_text).filter(|text| !text.trim().is_empty()),
        };
        FieldValues(self.0.find(body).into_iter().map(field).collect())
    }
}

impl<'b> FieldValues<'b> {
    /// The text of a field, by its number.
    pub fn get(&self, field: usize) -> Option<&str> {
        self.0.get(field).and_then(|field| field.text.as_deref())
    }

    /// The JSON of a field in its spelling; `None` for `null`.
    pub fn raw(&self, field: usize) -> Option<&'b str> {
        let raw = self.0.get(field).and_then(|field| field.raw);
        raw.map(RawValue::get).filter(|text| *text != "null")
    }

    /// Whether a field is `true`.
    pub fn is_true(&self, field: usize) -> bool {
        self.raw(field) == Some("true")
    }

    /// The text of the first of these fields that has one.
    pub fn first(&self, fields: &[usize]) -> Option<&str> {
        fields.iter().find_map(|field| self.get(*field))
    }

    /// The search attributes from these fields.
    pub fn attributes(&self, fields: &[(AttributeName, usize)]) -> Attributes {
        let mut attributes = Attributes::default();
        for (name, field) in fields {
            attributes.push_some(*name, self.get(*field));
        }
        attributes
    }

    /// A key of the prefix and these fields, joined by colons; `None` if one is missing.
    pub fn key(&self, prefix: &str, fields: &[usize]) -> Option<DedupKey> {
        let mut key = prefix.to_owned();
        for field in fields {
            if !key.is_empty() {
                key.push(':');
            }
            key.push_str(self.get(*field)?);
        }
        DedupKey::new(&key)
    }
}

impl Index<usize> for FieldValues<'_> {
    type Output = str;

    /// The text of a field; empty if there is none.
    fn index(&self, field: usize) -> &str {
        self.get(field).unwrap_or_default()
    }
}

/// Declares a static [`BodyFields`] and a constant with the number of each field.
macro_rules! body_fields {
    ($(#[$about:meta])* static $fields:ident { $($field:ident = $pointer:literal,)+ }) => {
        $(#[$about])*
        static $fields: std::sync::LazyLock<$crate::provider::BodyFields> =
            std::sync::LazyLock::new(|| $crate::provider::BodyFields::new(&[$($pointer),+]));
        $crate::provider::fields::body_fields!(@number 0; $($field)+);
    };
    (@number $number:expr; $field:ident $($rest:ident)*) => {
        const $field: usize = $number;
        $crate::provider::fields::body_fields!(@number $number + 1; $($rest)*);
    };
    (@number $number:expr;) => {};
}
pub(crate) use body_fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_spelling() {
        let fields = BodyFields::new(&["/id", "/data/object/id", "/n", "/none"]);
        let found =
            fields.read(br#"{"id":"e1","n":820982911946154500,"data":{"object":{"id":" "}}}"#);
        assert_eq!(
            (found.get(0), found.get(1), &found[2]),
            (Some("e1"), None, "820982911946154500")
        );
        assert_eq!(found.key("p", &[0, 2]).unwrap().as_str(), "p:e1:820982911946154500");
        assert_eq!(found.key("p", &[0, 3]), None);
        assert_eq!(fields.read(b"not json").get(0), None);
        assert_eq!((found.first(&[3, 1, 2, 0]), found.first(&[1, 3])), (found.get(2), None));
        let about = found.attributes(&[(AttributeName::Object, 0), (AttributeName::User, 3)]);
        assert_eq!(about.iter().collect::<Vec<_>>(), [(AttributeName::Object, "e1")]);
    }

    body_fields! {
        static NAMED {
            ID = "/id",
            FLAG = "/flag",
            LIST = "/list",
        }
    }

    #[test]
    fn fields_have_names() {
        let found = NAMED.read(br#"{"list":[1, 2],"flag":true,"id":"a\u0062"}"#);
        assert_eq!((found.get(ID), found.get(FLAG), found.get(LIST)), (Some("ab"), None, None));
        assert_eq!((found.raw(LIST), found.raw(ID)), (Some("[1, 2]"), Some(r#""a\u0062""#)));
        assert!(found.is_true(FLAG) && !found.is_true(ID));
        assert_eq!(found.first(&[LIST, ID]), Some("ab"));
        assert_eq!(NAMED.read(br#"{"id":null,"list":null}"#).raw(LIST), None);
    }
}
