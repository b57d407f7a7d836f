//! A few places in a JSON body, found in one pass.

use std::{borrow::Cow, ops::Index};

use serde_json::value::RawValue;

use crate::{
    attribute::{AttributeName, Attributes},
    key::{DedupKey, JsonPointer, JsonPointerSet, scalar_text},
};

/// Places in a body, as JSON pointers. Made once for a provider and used for every request.
#[derive(Debug)]
pub struct BodyFields(JsonPointerSet);

/// What was found in one body, in the order of the places. A string is there as it is, a number as
/// it is spelled; everything else, and what is empty, is not there.
#[derive(Debug)]
pub struct FieldValues<'b>(Vec<Place<'b>>);

#[derive(Debug)]
struct Place<'b> {
    raw: Option<&'b RawValue>,
    text: Option<Cow<'b, str>>,
}

impl BodyFields {
    /// The places, each `/a/b`.
    ///
    /// # Panics
    /// If one is no JSON pointer: they are written in the code, and a test reads them all.
    pub fn new(places: &[&str]) -> Self {
        let mut pointers = JsonPointerSet::default();
        for place in places {
            let pointer: JsonPointer = place.parse().expect("a JSON pointer");
            pointers.push(&pointer);
        }
        Self(pointers)
    }

    /// Reads a body. One that is not JSON has nothing in it.
    pub fn read<'b>(&self, body: &'b [u8]) -> FieldValues<'b> {
        let place = |raw: Option<&'b RawValue>| Place {
            raw,
            text: raw.and_then(scalar_text).filter(|text| !text.trim().is_empty()),
        };
        FieldValues(self.0.find(body).into_iter().map(place).collect())
    }
}

impl<'b> FieldValues<'b> {
    /// The text at a place, by its number.
    pub fn get(&self, place: usize) -> Option<&str> {
        self.0.get(place).and_then(|place| place.text.as_deref())
    }

    /// The JSON at a place, as it is spelled; `null` is nothing.
    pub fn raw(&self, place: usize) -> Option<&'b str> {
        let raw = self.0.get(place).and_then(|place| place.raw);
        raw.map(RawValue::get).filter(|text| *text != "null")
    }

    /// Whether it says `true` at a place.
    pub fn is_true(&self, place: usize) -> bool {
        self.raw(place) == Some("true")
    }

    /// The text at the first of these places that has one.
    pub fn first(&self, places: &[usize]) -> Option<&str> {
        places.iter().find_map(|place| self.get(*place))
    }

    /// What was found at these places, to find the event by.
    pub fn attributes(&self, places: &[(AttributeName, usize)]) -> Attributes {
        let mut attributes = Attributes::default();
        for (name, place) in places {
            attributes.push_some(*name, self.get(*place));
        }
        attributes
    }

    /// A key of all these parts, joined by colons; none if one is missing.
    pub fn key(&self, prefix: &str, places: &[usize]) -> Option<DedupKey> {
        let mut key = prefix.to_owned();
        for place in places {
            if !key.is_empty() {
                key.push(':');
            }
            key.push_str(self.get(*place)?);
        }
        DedupKey::new(&key)
    }
}

impl Index<usize> for FieldValues<'_> {
    type Output = str;

    /// The text at a place; empty if there is none.
    fn index(&self, place: usize) -> &str {
        self.get(place).unwrap_or_default()
    }
}

/// Gives the places of a body names: a static [`BodyFields`], and the number of each place as a constant.
macro_rules! places {
    ($(#[$about:meta])* static $fields:ident { $($place:ident = $pointer:literal,)+ }) => {
        $(#[$about])*
        static $fields: std::sync::LazyLock<$crate::provider::BodyFields> =
            std::sync::LazyLock::new(|| $crate::provider::BodyFields::new(&[$($pointer),+]));
        $crate::provider::fields::places!(@number 0; $($place)+);
    };
    (@number $number:expr; $place:ident $($rest:ident)*) => {
        const $place: usize = $number;
        $crate::provider::fields::places!(@number $number + 1; $($rest)*);
    };
    (@number $number:expr;) => {};
}
pub(crate) use places;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_as_they_are_spelled() {
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

    places! {
        static NAMED {
            ID = "/id",
            FLAG = "/flag",
            LIST = "/list",
        }
    }

    #[test]
    fn places_have_names() {
        let found = NAMED.read(br#"{"list":[1, 2],"flag":true,"id":"a\u0062"}"#);
        assert_eq!((found.get(ID), found.get(FLAG), found.get(LIST)), (Some("ab"), None, None));
        assert_eq!((found.raw(LIST), found.raw(ID)), (Some("[1, 2]"), Some(r#""a\u0062""#)));
        assert!(found.is_true(FLAG) && !found.is_true(ID));
        assert_eq!(found.first(&[LIST, ID]), Some("ab"));
        assert_eq!(NAMED.read(br#"{"id":null,"list":null}"#).raw(LIST), None);
    }
}
