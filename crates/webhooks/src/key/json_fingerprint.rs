//! A fingerprint of a JSON body that does not depend on the order of members, white space, or how
//! strings are escaped.
//!
//! Numbers keep their spelling: two large integers that are equal as floating-point numbers are different.
//! A body that is large, deeply nested, not JSON, or has a repeated name has no such fingerprint, because
//! a reader may see something else in it; then its bytes are compared.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserializer as _,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::json_walk::{scalar_text, strip_bom};

/// Each level of nesting is read once more.
const BODY_BYTES_MAX: usize = 256 * 1024;
const DEPTH_MAX: usize = 32;

/// The fingerprint, without the members of these names at the top.
pub fn json_fingerprint(body: &[u8], ignored: &[&str]) -> Option<[u8; 32]> {
    if body.len() > BODY_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(strip_bom(body)).ok()?;
    let value: &RawValue = serde_json::from_str(text).ok()?;
    let mut hasher = Sha256::new();
    // Never the fingerprint of bytes.
    hasher.update(b"json\0");
    hash_value(value, ignored, DEPTH_MAX, &mut hasher)?;
    Some(hasher.finalize().into())
}

fn hash_value(
    value: &RawValue,
    ignored: &[&str],
    depth_left: usize,
    hasher: &mut Sha256,
) -> Option<()> {
    let depth_left = depth_left.checked_sub(1)?;
    let text = value.get();
    match text.as_bytes().first()? {
        b'{' => {
            let members = read_members(text)?;
            hasher.update(b"{");
            for (name, value) in members {
                if !ignored.contains(&&*name) {
                    hash_text(b'"', &name, hasher);
                    hash_value(value, &[], depth_left, hasher)?;
                }
            }
            hasher.update(b"}");
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            hasher.update(b"[");
            for item in items {
                hash_value(item, &[], depth_left, hasher)?;
            }
            hasher.update(b"]");
        }
        b'"' => hash_text(b'"', &scalar_text(value)?, hasher),
        _ => hash_text(b'#', text, hasher),
    }
    Some(())
}

/// With its length, so that no two values give the same input.
fn hash_text(kind: u8, text: &str, hasher: &mut Sha256) {
    hasher.update([kind]);
    hasher.update((text.len() as u64).to_be_bytes());
    hasher.update(text);
}

/// The members of an object, sorted; `None` if a name is repeated.
fn read_members(text: &str) -> Option<BTreeMap<Cow<'_, str>, &RawValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(MemberVisitor).ok()
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = BTreeMap<Cow<'de, str>, &'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some(MemberName(name)) = map.next_key()? {
            if members.insert(name, map.next_value()?).is_some() {
                return Err(A::Error::custom("a repeated name"));
            }
        }
        Ok(members)
    }
}

#[derive(serde::Deserialize)]
struct MemberName<'t>(#[serde(borrow)] Cow<'t, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Option<[u8; 32]> {
        json_fingerprint(body.as_bytes(), &["at"])
    }

    #[test]
    fn order_of_members_white_space_and_escapes_do_not_matter() {
        let first = of(r#"{"a":1,"b":[true,null,"x"],"c":{"d":2,"e":"é"}}"#);
        let second = of(r#" { "c" : {"e":"\u00e9","d":2}, "b":[ true,null,"\u0078" ],"a":1 } "#);
        assert!(first.is_some());
        assert_eq!(first, second);
        assert_eq!(of(r#"{"at":1,"id":2}"#), of(r#"{"id":2,"at":"other"}"#));
    }

    #[test]
    fn different_values_have_different_fingerprints() {
        let bodies = [
            r#"{"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":"1"}"#,
            r#"{"a":12345678901234567890123}"#,
            r#"{"a":12345678901234567890124}"#,
            r#"{"a":[1,2]}"#,
            r#"{"a":[2,1]}"#,
            r#"{"a":[12]}"#,
            r#"{"a":null}"#,
            r#"{"a":true}"#,
            r#"{"a":{"at":1}}"#,
            r#"{"a":{}}"#,
            r#"{"a":[]}"#,
            "{}",
            "[]",
            "1",
        ];
        for (index, one) in bodies.iter().enumerate() {
            assert!(of(one).is_some(), "{one}");
            for other in &bodies[index + 1..] {
                assert_ne!(of(one), of(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn ambiguous_large_and_deep_bodies_have_none() {
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        let large = format!("[{}1]", "1,".repeat(BODY_BYTES_MAX));
        for body in
            [r#"{"a":1,"a":2}"#, r#"{"b":{"a":1,"\u0061":2}}"#, "not json", "", &deep, &large]
        {
            assert_eq!(of(body), None);
        }
    }
}
