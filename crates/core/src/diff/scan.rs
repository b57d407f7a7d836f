//! Walks over texts that are known to be JSON, one level at a time and without recursion. Nothing is
//! read into numbers: a token stays the text that it was.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Members or elements of one level that are looked at.
const CHILDREN_MAX: usize = 50_000;
/// How deep a value is looked into when it is hashed. What lies deeper counts as alike.
const HASHED_DEPTH_MAX: usize = 512;

/// What a value is, by its first letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    Plain,
}

pub(super) fn kind(value: &str) -> Kind {
    match value.as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        _ => Kind::Plain,
    }
}

/// A text as JSON, without the space around it.
pub(super) fn json(text: &str) -> Option<&str> {
    // It keeps no values and does not recurse.
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok().map(|_| text.trim_ascii())
}

/// What a string means; none if it is no string, or one that no text can hold.
fn text(token: &str) -> Option<Cow<'_, str>> {
    match token.contains('\\') {
        false => Some(Cow::Borrowed(token.strip_prefix('"')?.strip_suffix('"')?)),
        true => serde_json::from_str(token).ok().map(Cow::Owned),
    }
}

/// Whether both are strings that mean the same, such as `"a"` and `"\u0061"`.
pub(super) fn is_same_text(one: &str, other: &str) -> bool {
    matches!((text(one), text(other)), (Some(one), Some(other)) if one == other)
}

fn meaning(token: &str) -> Cow<'_, str> {
    text(token).unwrap_or(Cow::Borrowed(token))
}

/// The elements of a list; none if there are too many.
pub(super) fn elements(list: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let mut at = next(list, 1);
    while at < list.len() {
        let end = value_end(list, at);
        if end == at {
            break;
        }
        if found.len() == CHILDREN_MAX {
            return None;
        }
        found.push(&list[at..end]);
        at = next(list, end);
    }
    Some(found)
}

/// A name, and how often it stood in the object before: one that is written twice is two members.
pub(super) type Member<'t> = (Cow<'t, str>, usize);

/// The members of an object in their order; none if there are too many.
pub(super) fn members(object: &str) -> Option<Vec<(Member<'_>, &str)>> {
    let mut parts = Vec::new();
    let mut at = next(object, 1);
    while at < object.len() {
        let end = value_end(object, at);
        if end == at {
            break;
        }
        if parts.len() == 2 * CHILDREN_MAX {
            return None;
        }
        parts.push(&object[at..end]);
        at = next(object, end);
    }
    let mut seen: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let pairs = parts.chunks_exact(2).map(|pair| {
        let name = meaning(pair[0]);
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        ((name, *times - 1), pair[1])
    });
    Some(pairs.collect())
}

/// Where the next value begins; a closing bracket is the end.
fn next(text: &str, from: usize) -> usize {
    let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
    from + text.as_bytes()[from..].iter().take_while(|byte| is_between(byte)).count()
}

/// Where the value ends that begins here. `start` itself if there is none.
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

/// An object or list that is being hashed.
#[derive(Default)]
struct Open {
    is_object: bool,
    /// The name that waits for its value.
    name: Option<u64>,
    sum: u64,
}

impl Open {
    fn take(&mut self, value: u64) {
        if !self.is_object {
            self.sum = hash_of(&[self.sum, value], "");
            return;
        }
        // The order of members means nothing, so their sum has none.
        match self.name.take() {
            None => self.name = Some(value),
            Some(name) => self.sum = self.sum.wrapping_add(hash_of(&[name, value], "")),
        }
    }
}

/// Values that mean the same have the same hash. Those that do not almost never have.
pub(super) fn hash(value: &str) -> u64 {
    let bytes = value.as_bytes();
    let mut open = vec![Open::default()];
    let mut at = 0;
    while at < bytes.len() {
        let done = match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {
                at += 1;
                continue;
            }
            b'{' | b'[' if open.len() <= HASHED_DEPTH_MAX => {
                open.push(Open { is_object: bytes[at] == b'{', ..Open::default() });
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
                hash_of(&[], &meaning(token))
            }
            _ => {
                let end = value_end(value, at);
                let token = &value[at..end];
                at = end.max(at + 1);
                hash_of(&[0], token)
            }
        };
        if let Some(around) = open.last_mut() {
            around.take(done);
        }
    }
    open.first().map_or(0, |root| root.sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_cut_where_it_should_be() {
        let list = json(" [1, \"a,]\\\"\" ,[2,[3]], {\"a\":[]},-1.0e5 , null] ").unwrap();
        let expected = ["1", r#""a,]\"""#, "[2,[3]]", r#"{"a":[]}"#, "-1.0e5", "null"];
        assert_eq!(elements(list).unwrap(), expected);
        assert_eq!(elements("[]").unwrap(), Vec::<&str>::new());
        assert_eq!(elements("[ \n]").unwrap(), Vec::<&str>::new());

        let found = members("{\"a\" : 1,\"\\u0061\":{\"b\":2}, \"\":\"x\"}").unwrap();
        let plain: Vec<_> =
            found.iter().map(|((name, times), value)| (&**name, *times, *value)).collect();
        assert_eq!(plain, [("a", 0, "1"), ("a", 1, "{\"b\":2}"), ("", 0, "\"x\"")]);
    }

    #[test]
    fn what_means_the_same_has_the_same_hash() {
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
    fn too_many_are_not_looked_at() {
        let list = format!("[{}1]", "1,".repeat(CHILDREN_MAX));
        assert_eq!(elements(&list), None);
    }
}
