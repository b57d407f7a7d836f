//! A few places in a JSON body, found in one pass.

use std::{borrow::Cow, ops::Index};

use crate::{
    attribute::{AttributeName, Attributes},
    key::{DedupKey, Pointer, Pointers},
};

/// Places in a body, as JSON pointers. Made once for a provider and used for every request.
#[derive(Debug)]
pub struct Fields(Pointers);

/// What was found in one body, in the order of the places. A string is there as it is, a number as
/// it is spelled; everything else, and what is empty, is not there.
#[derive(Debug)]
pub struct Found<'b>(Vec<Option<Cow<'b, str>>>);

impl Fields {
    /// The places, each `/a/b`.
    ///
    /// # Panics
    /// If one is no JSON pointer: they are written in the code, and a test reads them all.
    pub fn new(places: &[&str]) -> Self {
        let mut pointers = Pointers::default();
        for place in places {
            let pointer: Pointer = place.parse().expect("a JSON pointer");
            pointers.push(&pointer);
        }
        Self(pointers)
    }

    /// Reads a body. One that is not JSON has nothing in it.
    pub fn read<'b>(&self, body: &'b [u8]) -> Found<'b> {
        let found = self.0.look_up(body).into_iter();
        Found(found.map(|value| value.filter(|text| !text.trim().is_empty())).collect())
    }
}

impl Found<'_> {
    /// The text at a place, by its number.
    pub fn get(&self, place: usize) -> Option<&str> {
        self.0.get(place).and_then(Option::as_deref)
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

impl Index<usize> for Found<'_> {
    type Output = str;

    /// The text at a place; empty if there is none.
    fn index(&self, place: usize) -> &str {
        self.get(place).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_as_they_are_spelled() {
        let fields = Fields::new(&["/id", "/data/object/id", "/n", "/none"]);
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
}
