//! Scans valid JSON text one level at a time, without recursion. Tokens keep their spelling; numbers
//! are never parsed.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// The most members or elements of one level.
const CHILDREN_MAX: usize = 50_000;
/// The deepest level that a hash covers. Deeper values count as equal.
const HASHED_DEPTH_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonShape {
    Object,
    Array,
    /// A string, a number, a boolean or `null`.
    Scalar,
}

pub(super) fn json_shape(value: &str) -> JsonShape {
    match value.as_bytes().first() {
        Some(b'{') => JsonShape::Object,
        Some(b'[') => JsonShape::Array,
        _ => JsonShape::Scalar,
    }
}

/// The text without surrounding white space, if it is valid JSON.
pub(super) fn trimmed_json(text: &str) -> Option<&str> {
    // `IgnoredAny` keeps no values and does not recurse.
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok().map(|_| text.trim_ascii())
}

/// The content of a JSON string; `None` for other tokens and for lone surrogates.
fn decode_string(token: &str) -> Option<Cow<'_, str>> {
    match token.contains('\\') {
        false => Some(Cow::Borrowed(token.strip_prefix('"')?.strip_suffix('"')?)),
        true => serde_json::from_str(token).ok().map(Cow::Owned),
    }
}

/// Whether both are strings of equal content, such as `"a"` and `"\u0061"`.
pub(super) fn is_same_string(one: &str, other: &str) -> bool {
    matches!((decode_string(one), decode_string(other)), (Some(one), Some(other)) if one == other)
}

fn decoded_token(token: &str) -> Cow<'_, str> {
    decode_string(token).unwrap_or(Cow::Borrowed(token))
}

/// The elements of an array; `None` if there are too many.
pub(super) fn elements(list: &str) -> Option<Vec<&str>> {
    let mut elements = Vec::new();
    let mut at = next_value(list, 1);
    while at < list.len() {
        let end = value_end(list, at);
        if end == at {
            break;
        }
        if elements.len() == CHILDREN_MAX {
            return None;
        }
        elements.push(&list[at..end]);
        at = next_value(list, end);
    }
    Some(elements)
}

/// A member's name and how often it occurred before: a repeated name makes two members.
pub(super) type MemberName<'t> = (Cow<'t, str>, usize);

/// The members of an object in order; `None` if there are too many.
pub(super) fn members(object: &str) -> Option<Vec<(MemberName<'_>, &str)>> {
    let mut parts = Vec::new();
    let mut at = next_value(object, 1);
    while at < object.len() {
        let end = value_end(object, at);
        if end == at {
            break;
        }
        if parts.len() == 2 * CHILDREN_MAX {
            return None;
        }
        parts.push(&object[at..end]);
        at = next_value(object, end);
    }
    let mut counts: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let pairs = parts.chunks_exact(2).map(|pair| {
        let name = decoded_token(pair[0]);
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        ((name, *count - 1), pair[1])
    });
    Some(pairs.collect())
}

/// The start of the next value, or of the closing bracket.
fn next_value(text: &str, from: usize) -> usize {
    let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
    from + text.as_bytes()[from..].iter().take_while(|byte| is_between(byte)).count()
}

/// The end of the value at `start`; `start` itself if there is none.
fn value_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = string_end(bytes, at);
                if depth == 0 {
                    return at;
                }
            }
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            b'}' | b']' => {
                (at, depth) = (at + 1, depth - 1);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn hash_of(parts: &[u64], text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    text.hash(&mut hasher);
    hasher.finish()
}

/// An object or array that is being hashed.
#[derive(Default)]
struct OpenContainer {
    is_object: bool,
    /// The hash of a member's name, until its value is read.
    name: Option<u64>,
    sum: u64,
}

impl OpenContainer {
    fn add(&mut self, value: u64) {
        if !self.is_object {
            self.sum = hash_of(&[self.sum, value], "");
            return;
        }
        // A sum does not depend on the order of the members.
        match self.name.take() {
            None => self.name = Some(value),
            Some(name) => self.sum = self.sum.wrapping_add(hash_of(&[name, value], "")),
        }
    }
}

/// A hash that is equal for values of equal meaning; others almost never collide.
pub(super) fn hash(value: &str) -> u64 {
    let bytes = value.as_bytes();
    let mut open = vec![OpenContainer::default()];
    let mut at = 0;
    while at < bytes.len() {
        let value_hash = match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {
                at += 1;
                continue;
            }
            b'{' | b'[' if open.len() <= HASHED_DEPTH_MAX => {
                open.push(OpenContainer {
                    is_object: bytes[at] == b'{',
                    ..OpenContainer::default()
                });
                at += 1;
                continue;
            }
            bracket @ (b'{' | b'[') => {
                at = value_end(value, at);
                hash_of(&[u64::from(bracket)], "deep")
            }
            b'}' | b']' => {
                at += 1;
                let Some(closed) = open.pop() else { break };
                hash_of(&[u64::from(closed.is_object), closed.sum], "")
            }
            b'"' => {
                let end = string_end(bytes, at);
                let token = &value[at..end];
                at = end;
                hash_of(&[], &decoded_token(token))
            }
            _ => {
                let end = value_end(value, at);
                let token = &value[at..end];
                at = end.max(at + 1);
                hash_of(&[0], token)
            }
        };
        if let Some(parent) = open.last_mut() {
            parent.add(value_hash);
        }
    }
    open.first().map_or(0, |root| root.sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_members_are_split_at_one_level() {
        let list = trimmed_json(" [1, \"a,]\\\"\" ,[2,[3]], {\"a\":[]},-1.0e5 , null] ").unwrap();
        let expected = ["1", r#""a,]\"""#, "[2,[3]]", r#"{"a":[]}"#, "-1.0e5", "null"];
        assert_eq!(elements(list).unwrap(), expected);
        assert_eq!(elements("[]").unwrap(), Vec::<&str>::new());
        assert_eq!(elements("[ \n]").unwrap(), Vec::<&str>::new());

        let split = members("{\"a\" : 1,\"\\u0061\":{\"b\":2}, \"\":\"x\"}").unwrap();
        let plain: Vec<_> =
            split.iter().map(|((name, count), value)| (&**name, *count, *value)).collect();
        assert_eq!(plain, [("a", 0, "1"), ("a", 1, "{\"b\":2}"), ("", 0, "\"x\"")]);
    }

    #[test]
    fn equal_json_values_have_equal_hashes() {
        let same = [
            (r#"{"a":1,"b":[true,null]}"#, "{ \"b\": [true, null],\n \"\\u0061\": 1 }"),
            ("[]", "[ ]"),
        ];
        for (one, other) in same {
            assert_eq!(hash(one), hash(other), "case: {one}");
        }
        let differ = [
            ("1", "1.0"),
            ("1", "\"1\""),
            ("[]", "{}"),
            ("[1,2]", "[2,1]"),
            ("[[1],2]", "[1,[2]]"),
        ];
        for (one, other) in differ {
            assert_ne!(hash(one), hash(other), "case: {one}");
        }
    }

    #[test]
    fn array_with_too_many_elements_is_not_split() {
        let list = format!("[{}1]", "1,".repeat(CHILDREN_MAX));
        assert_eq!(elements(&list), None);
    }
}
