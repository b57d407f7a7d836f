//! The id of a message in the answer of a service, also in an answer that was cut.
//!
//! A service may give back all of the file that it sent, more than anybody keeps. The id stands near the
//! beginning, and whoever does not see it takes a message for lost that arrived.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What the service calls the message, if it took it. `path` leads to it, by the names of fields and the
/// places in lists.
pub(super) fn sent_id(status: u16, body: &[u8], path: &[&str]) -> Option<String> {
    if !(200..300).contains(&status) {
        return None;
    }
    let mut found = None;
    let mut json = serde_json::Deserializer::from_slice(body);
    // It fails at the end of an answer that was cut. What was found before counts.
    At { path, found: &mut found }.deserialize(&mut json).ok();
    found.filter(|id| !id.is_empty())
}

/// Reads a value and keeps the text that a path within it leads to.
struct At<'a> {
    path: &'a [&'a str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

/// Where nothing is visited, it is an error: a value of another type holds no id.
impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what leads to the id of a message")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.path.is_empty() {
            *self.found = Some(text.to_owned());
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            match self.path.split_first() {
                Some((first, path)) if *first == name => {
                    fields.next_value_seed(At { path, found: &mut *self.found })?;
                }
                Some(_) | None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let wanted = self.path.split_first();
        let wanted = wanted.and_then(|(place, path)| Some((place.parse::<usize>().ok()?, path)));
        for place in 0_usize.. {
            let item = match wanted {
                Some((wanted, path)) if wanted == place => {
                    items.next_element_seed(At { path, found: &mut *self.found })?
                }
                Some(_) | None => items.next_element::<IgnoredAny>()?.map(drop),
            };
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_where_it_stands_and_nowhere_else() {
        let path: &[&str] = &["messages", "0", "id"];
        let cases = [
            (200, r#"{"messages":[{"id":"a"}]}"#, Some("a")),
            (
                201,
                r#" { "id":"x", "messages": [ {"n":1,"id":"a\u0041"}, {"id":"b"} ] } "#,
                Some("aA"),
            ),
            (200, r#"{"messages":[{"id":"a"},{"#, Some("a")),
            (200, r#"{"messages":[{"id":"a""#, Some("a")),
            (200, r#"{"messages":[{"id":"a"#, None),
            (200, r#"{"messages":[{"id":""}]}"#, None),
            (200, r#"{"messages":[{"id":7}]}"#, None),
            (200, r#"{"messages":[{"id":null}]}"#, None),
            (200, r#"{"messages":[{"id":{"id":"a"}}]}"#, None),
            (200, r#"{"messages":[{"no":{"id":"a"}},{"id":"b"}]}"#, None),
            (200, r#"{"messages":{"0":{"id":"a"}}}"#, Some("a")),
            (200, r#"{"messages":["a"]}"#, None),
            (200, r#"{"data":"AAAA"#, None),
            (400, r#"{"messages":[{"id":"a"}]}"#, None),
            (200, "<html>", None),
            (200, "", None),
        ];
        for (status, body, expected) in cases {
            let found = sent_id(status, body.as_bytes(), path);
            assert_eq!(found.as_deref(), expected, "case: {status} {body}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(sent_id(200, deep.as_bytes(), path), None);
    }
}
