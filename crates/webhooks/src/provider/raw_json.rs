//! Splitting of JSON bodies without reserializing them.
//!
//! A [`RawObject`] keeps its members in order. Members of interest are parsed, all others stay text, so
//! that numbers, escapes and unknown fields stay as written. [`RawObject::rewrite`] writes the
//! object again with replacements for the parsed members.

use std::{fmt, marker::PhantomData};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::EventPart;

/// The largest total size of split bodies. Each repeats the common envelope; a request that would
/// grow beyond this stays one event.
pub(super) const SPLIT_BYTES_MAX: usize = 32 << 20;

/// The most events that one request is split into: twice the largest documented batch (Meta 1000,
/// `HubSpot` 100). All are stored in one transaction; a larger request stays one event.
pub(super) const EVENTS_MAX: usize = 2000;

/// A member of an object that is parsed.
pub(super) trait NestedMember<'b>: Deserialize<'b> {
    /// Whether the members with this name are parsed. The name has its quotes and escapes.
    fn has_name(name: &str) -> bool;
}

/// An object whose members of interest are parsed as `T`.
pub(super) struct RawObject<'b, T>(Vec<RawMember<'b, T>>);

struct RawMember<'b, T> {
    /// As written, with quotes and escapes.
    name: &'b str,
    value: RawMemberValue<'b, T>,
}

enum RawMemberValue<'b, T> {
    Text(&'b RawValue),
    Nested(T),
    /// `null` in place of a nested member; it is kept.
    Null,
}

impl<'b, T> RawObject<'b, T> {
    /// The parsed members, each with its position and name.
    pub(super) fn nested(&self) -> impl Iterator<Item = (usize, &'b str, &T)> {
        self.0.iter().enumerate().filter_map(|(index, member)| match &member.value {
            RawMemberValue::Nested(value) => Some((index, member.name, value)),
            RawMemberValue::Text(_) | RawMemberValue::Null => None,
        })
    }

    /// A member that is not parsed, by its name with quotes.
    pub(super) fn get(&self, name: &str) -> Option<&'b RawValue> {
        self.0.iter().rev().find_map(|member| match member.value {
            RawMemberValue::Text(value) if member.name == name => Some(value),
            RawMemberValue::Text(_) | RawMemberValue::Nested(_) | RawMemberValue::Null => None,
        })
    }

    /// The text of the object with `replacements` for the parsed members, by position. Parsed members
    /// without a replacement are left out.
    pub(super) fn rewrite(&self, replacements: &[(usize, &str)]) -> String {
        let mut text = String::from("{");
        for (index, member) in self.0.iter().enumerate() {
            let value = match member.value {
                RawMemberValue::Text(value) => Some(value.get()),
                RawMemberValue::Null => Some("null"),
                RawMemberValue::Nested(_) => {
                    let replacement = replacements.iter().find(|(position, _)| *position == index);
                    replacement.map(|(_, text)| *text)
                }
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

/// The text of an array of these items.
pub(super) fn json_array<'t>(items: impl Iterator<Item = &'t str>) -> String {
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

impl<'de, T: NestedMember<'de>> Deserialize<'de> for RawObject<'de, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawObjectVisitor(PhantomData))
    }
}

struct RawObjectVisitor<T>(PhantomData<T>);

impl<'de, T: NestedMember<'de>> Visitor<'de> for RawObjectVisitor<T> {
    type Value = RawObject<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<&'de RawValue>()? {
            let name = name.get();
            let value = if T::has_name(name) {
                map.next_value::<Option<T>>()?.map_or(RawMemberValue::Null, RawMemberValue::Nested)
            } else {
                RawMemberValue::Text(map.next_value()?)
            };
            members.push(RawMember { name, value });
        }
        Ok(RawObject(members))
    }
}

/// One event for each item of an array; `None` if the body is not an array or is too long. The body of
/// each event is an array of that item, as written; a single item keeps the body unchanged.
pub(super) fn split_array(
    body: &[u8],
    read: impl Fn(&[u8]) -> EventPart,
) -> Option<Vec<EventPart>> {
    let items: Vec<&RawValue> = serde_json::from_slice(body).ok()?;
    if items.len() > EVENTS_MAX {
        return None;
    }
    let is_single = items.len() == 1;
    let part = |item: &&RawValue| {
        let text = item.get();
        let body = (!is_single).then(|| Bytes::from(format!("[{text}]")));
        EventPart { body, ..read(text.as_bytes()) }
    };
    Some(items.iter().map(part).collect())
}

/// One event for each item of `list`, an array somewhere in the body as written there; `None` if it is
/// no array or too long. The body of each event is the request with that item alone in the list, all other
/// bytes as written; a single item keeps the body unchanged.
pub(super) fn split_list(
    body: &[u8],
    list: &str,
    read: impl Fn(&[u8]) -> EventPart,
) -> Option<Vec<EventPart>> {
    let items: Vec<&RawValue> = serde_json::from_str(list).ok()?;
    let start = list.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let before = body.get(..start)?;
    let after = body.get(start + list.len()..)?;
    let is_single = items.len() == 1;
    let envelope = before.len() + after.len();
    if items.len() > EVENTS_MAX || (!is_single && items.len() * envelope > SPLIT_BYTES_MAX) {
        return None;
    }
    let part = |item: &&RawValue| {
        let text = item.get().as_bytes();
        let body = (!is_single).then(|| Bytes::from([before, b"[", text, b"]", after].concat()));
        EventPart { body, ..read(text) }
    };
    Some(items.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Inner<'b>(#[serde(borrow)] Vec<&'b RawValue>);

    impl<'b> NestedMember<'b> for Inner<'b> {
        fn has_name(name: &str) -> bool {
            name == r#""list""#
        }
    }

    #[test]
    fn other_members_keep_their_spelling() {
        let text = r#"{ "n":1.50e3, "\u00e9\"":"\/\u00e9" ,"list":[1, {"a" : 2}],"o":{"list":[]}}"#;
        let object: RawObject<'_, Inner<'_>> = serde_json::from_str(text).unwrap();
        let (at, name, inner) = object.nested().next().unwrap();
        assert_eq!((at, name, inner.0[1].get()), (2, r#""list""#, r#"{"a" : 2}"#));
        assert_eq!(
            object.rewrite(&[(at, &json_array(["7", "8"].into_iter()))]),
            r#"{"n":1.50e3,"\u00e9\"":"\/\u00e9","list":[7,8],"o":{"list":[]}}"#
        );
        assert_eq!(object.rewrite(&[]), r#"{"n":1.50e3,"\u00e9\"":"\/\u00e9","o":{"list":[]}}"#);
        assert_eq!(object.get(r#""n""#).unwrap().get(), "1.50e3");
        assert!(object.get(r#""list""#).is_none());
        assert!(serde_json::from_str::<RawObject<'_, Inner<'_>>>("[]").is_err());
        let null: RawObject<'_, Inner<'_>> = serde_json::from_str(r#"{"list": null}"#).unwrap();
        assert!(null.nested().next().is_none());
        assert_eq!(null.rewrite(&[]), r#"{"list":null}"#);
    }

    #[test]
    fn array_with_too_many_items_is_not_split() {
        let of = |many: usize| format!("[{}]", vec!["1"; many].join(","));
        let parts = |many| split_array(of(many).as_bytes(), |_| EventPart::default());
        assert_eq!(parts(EVENTS_MAX).map(|parts| parts.len()), Some(EVENTS_MAX));
        assert_eq!(parts(EVENTS_MAX + 1), None);
    }

    #[test]
    fn each_item_of_a_nested_list_keeps_the_envelope() {
        let split = |body: &str, list: &str| {
            let start = body.find(list).unwrap();
            let list = &body[start..start + list.len()];
            let parts = split_list(body.as_bytes(), list, |_| EventPart::default())?;
            let text =
                |part: EventPart| part.body.map(|body| String::from_utf8(body.to_vec()).unwrap());
            Some(parts.into_iter().map(text).collect::<Vec<_>>())
        };
        let two = r#"{"n":1.50, "data" : {"list": [ {"a":1} ,{"a" : "é"}], "x":[]}}"#;
        assert_eq!(
            split(two, r#"[ {"a":1} ,{"a" : "é"}]"#).unwrap(),
            [
                Some(r#"{"n":1.50, "data" : {"list": [{"a":1}], "x":[]}}"#.to_owned()),
                Some(r#"{"n":1.50, "data" : {"list": [{"a" : "é"}], "x":[]}}"#.to_owned()),
            ]
        );
        assert_eq!(split(r#"{"list":[ 1 ]}"#, "[ 1 ]").unwrap(), [None]);
        assert_eq!(split(r#"{"list":[]}"#, "[]"), Some(Vec::new()));
        assert_eq!(split(r#"{"list":7}"#, "7"), None);
        let long = format!("[{}]", vec!["1"; EVENTS_MAX + 1].join(","));
        assert_eq!(split(&format!(r#"{{"list":{long}}}"#), &long), None, "too many");
        let large = format!(r#"{{"pad":"{}","list":[1,2]}}"#, "x".repeat(SPLIT_BYTES_MAX / 2));
        assert_eq!(split(&large, "[1,2]"), None, "the copies of the envelope are too large");
    }

    #[test]
    fn each_item_becomes_an_array_of_its_own() {
        let cases: [(&str, Option<&[Option<&str>]>); 8] = [
            ("[]", Some(&[])),
            (" [ ] ", Some(&[])),
            (r#"[ {"a" : 1} ]"#, Some(&[None])),
            (
                r#"[{"a": 1.0,"n":820982911946154500} , {"a":"\u00e9"}]"#,
                Some(&[
                    Some(r#"[{"a": 1.0,"n":820982911946154500}]"#),
                    Some(r#"[{"a":"\u00e9"}]"#),
                ]),
            ),
            ("[1,null]", Some(&[Some("[1]"), Some("[null]")])),
            (r#"{"a":1}"#, None),
            ("[{}", None),
            ("", None),
        ];
        for (body, expected) in cases {
            let parts = split_array(body.as_bytes(), |_| EventPart::default());
            let bodies = parts.map(|parts| {
                let text = |part: EventPart| {
                    part.body.map(|body| String::from_utf8(body.to_vec()).unwrap())
                };
                parts.into_iter().map(text).collect::<Vec<_>>()
            });
            let expected = expected.map(|bodies| {
                bodies.iter().map(|body| body.map(str::to_owned)).collect::<Vec<_>>()
            });
            assert_eq!(bodies, expected, "{body}");
        }
    }
}
