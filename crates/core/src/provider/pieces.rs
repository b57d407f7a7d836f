//! JSON objects taken apart without being read: what is inside stays as it is spelled.
//!
//! An [`Object`] knows its members in their order. Those that its type is curious about are opened,
//! all others are kept as text, so that numbers, escapes and fields that nobody knew of come out as
//! they went in. [`Object::rewrite`] puts the text together again with other things in the opened
//! places.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// What the events of one request may have together. Each repeats what they have in common; a
/// request that would grow beyond this is kept as one event.
pub(super) const BODIES_BYTES_MAX: usize = 32 << 20;

/// The most events that one request is cut into: twice what any provider says to send (Meta 1000,
/// `HubSpot` 100). All of them are one transaction; a request of more is kept as one event.
pub(super) const PARTS_MAX: usize = 2000;

/// What an object is opened for.
pub(super) trait Opened<'b>: Deserialize<'b> {
    /// Whether it stands under this name, which is given as it is spelled, with its quotes.
    fn is_called(name: &str) -> bool;
}

/// An object, with the members opened that are a `T`.
pub(super) struct Object<'b, T>(Vec<Member<'b, T>>);

struct Member<'b, T> {
    /// With its quotes.
    name: &'b str,
    value: Value<'b, T>,
}

enum Value<'b, T> {
    Text(&'b RawValue),
    Opened(T),
    /// `null` where something is to be opened: nothing is there, and it stays there.
    Null,
}

impl<'b, T> Object<'b, T> {
    /// The opened members, each with its position.
    pub(super) fn opened(&self) -> impl Iterator<Item = (usize, &'b str, &T)> {
        self.0.iter().enumerate().filter_map(|(at, member)| match &member.value {
            Value::Opened(value) => Some((at, member.name, value)),
            Value::Text(_) | Value::Null => None,
        })
    }

    /// A member that is not opened. The name is given with its quotes.
    pub(super) fn get(&self, name: &str) -> Option<&'b RawValue> {
        self.0.iter().rev().find_map(|member| match member.value {
            Value::Text(value) if member.name == name => Some(value),
            Value::Text(_) | Value::Opened(_) | Value::Null => None,
        })
    }

    /// The object as text, with this in the opened places. Those for which there is nothing are
    /// left out.
    pub(super) fn rewrite(&self, opened: &[(usize, &str)]) -> String {
        let mut text = String::from("{");
        for (at, member) in self.0.iter().enumerate() {
            let value = match member.value {
                Value::Text(value) => Some(value.get()),
                Value::Null => Some("null"),
                Value::Opened(_) => opened.iter().find(|(place, _)| *place == at).map(|put| put.1),
            };
            let Some(value) = value else { continue };
            if text.len() > 1 {
                text.push(',');
            }
            text.extend([member.name, ":", value]);
        }
        text.push('}');
        text
    }
}

/// The text of a list of these.
pub(super) fn list<'t>(items: impl Iterator<Item = &'t str>) -> String {
    let mut text = String::from("[");
    for item in items {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(item);
    }
    text.push(']');
    text
}

impl<'de, T: Opened<'de>> Deserialize<'de> for Object<'de, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members(PhantomData))
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Opened<'de>> Visitor<'de> for Members<T> {
    type Value = Object<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<&'de RawValue>()? {
            let name = name.get();
            let value = if T::is_called(name) {
                map.next_value::<Option<T>>()?.map_or(Value::Null, Value::Opened)
            } else {
                Value::Text(map.next_value()?)
            };
            members.push(Member { name, value });
        }
        Ok(Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Inner<'b>(#[serde(borrow)] Vec<&'b RawValue>);

    impl<'b> Opened<'b> for Inner<'b> {
        fn is_called(name: &str) -> bool {
            name == r#""list""#
        }
    }

    #[test]
    fn what_is_not_opened_stays_as_it_is_spelled() {
        let text = r#"{ "n":1.50e3, "\u00e9\"":"\/\u00e9" ,"list":[1, {"a" : 2}],"o":{"list":[]}}"#;
        let object: Object<'_, Inner<'_>> = serde_json::from_str(text).unwrap();
        let (at, name, inner) = object.opened().next().unwrap();
        assert_eq!((at, name, inner.0[1].get()), (2, r#""list""#, r#"{"a" : 2}"#));
        assert_eq!(
            object.rewrite(&[(at, &list(["7", "8"].into_iter()))]),
            r#"{"n":1.50e3,"\u00e9\"":"\/\u00e9","list":[7,8],"o":{"list":[]}}"#
        );
        assert_eq!(object.rewrite(&[]), r#"{"n":1.50e3,"\u00e9\"":"\/\u00e9","o":{"list":[]}}"#);
        assert_eq!(object.get(r#""n""#).unwrap().get(), "1.50e3");
        assert!(object.get(r#""list""#).is_none());
        assert!(serde_json::from_str::<Object<'_, Inner<'_>>>("[]").is_err());
        let null: Object<'_, Inner<'_>> = serde_json::from_str(r#"{"list": null}"#).unwrap();
        assert!(null.opened().next().is_none());
        assert_eq!(null.rewrite(&[]), r#"{"list":null}"#);
    }
}
