//! One pass through a JSON text that picks up what several pointers point at.
//!
//! The pointers form a small tree. Where the text follows a branch of it, the walk goes in; all
//! else is skipped by `serde_json` without recursion and without allocation, so neither a million
//! brackets nor a million names cost more than reading them. The recursion here is as deep as the
//! longest pointer, never as deep as the text.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize as _, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::JsonPointer;

/// Several pointers, ready to be looked up together.
#[derive(Debug, Default)]
pub struct JsonPointerSet {
    root: Node,
    count: usize,
}

/// A place that a pointer leads to or through.
#[derive(Debug, Default)]
struct Node {
    /// The numbers of the pointers that end here.
    ends: Vec<usize>,
    branches: Vec<Branch>,
}

#[derive(Debug)]
struct Branch {
    name: String,
    /// The name as a position in an array, if it can be one.
    index: Option<usize>,
    node: Node,
}

/// What each pointer points at: the text of a JSON value, by the number of the pointer.
type Hits<'b> = Vec<Option<&'b RawValue>>;

impl JsonPointerSet {
    /// Adds a pointer and gives it a number, counted from 0.
    pub fn push(&mut self, pointer: &JsonPointer) -> usize {
        let number = self.count;
        let mut node = &mut self.root;
        for token in pointer.tokens() {
            node = node.branch(token);
        }
        node.ends.push(number);
        self.count += 1;
        number
    }

    /// For each pointer the string or number it points at, if there is one and the body is JSON.
    pub fn look_up<'b>(&self, body: &'b [u8]) -> Vec<Option<Cow<'b, str>>> {
        self.find(body).into_iter().map(|hit| hit.and_then(scalar_text)).collect()
    }

    /// For each pointer the value it points at, as it is spelled.
    pub fn find<'b>(&self, body: &'b [u8]) -> Vec<Option<&'b RawValue>> {
        let mut hits = vec![None; self.count];
        // Text first: then serde_json need not check each string, and all of it is held to UTF-8.
        let text = std::str::from_utf8(without_bom(body)).ok();
        let walked = text.is_some_and(|text| walk(&self.root, text, &mut hits).is_ok());
        if !walked {
            hits.fill(None);
        }
        hits
    }
}

/// RFC 8259 lets a reader pass over a byte order mark.
pub(super) fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

fn walk<'b>(node: &Node, text: &'b str, hits: &mut Hits<'b>) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Step { node, hits }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The value if it can be a key: a string, or a number as it is spelled.
pub(crate) fn scalar_text(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    match text.as_bytes().first()? {
        // Nearly every string is there as it is meant.
        b'"' if !text.contains('\\') => text.get(1..text.len() - 1).map(Cow::Borrowed),
        b'"' => serde_json::from_str::<Unquoted<'_>>(text).ok().map(|unquoted| unquoted.0),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

#[derive(serde::Deserialize)]
struct Unquoted<'b>(#[serde(borrow)] Cow<'b, str>);

impl Node {
    fn branch(&mut self, name: &str) -> &mut Self {
        let position = self.branches.iter().position(|branch| branch.name == name);
        let position = position.unwrap_or_else(|| {
            let (name, node) = (name.to_owned(), Self::default());
            self.branches.push(Branch { index: array_index(&name), name, node });
            self.branches.len() - 1
        });
        &mut self.branches[position].node
    }

    /// Forgets what was found here and below: the name came again, and the last one counts.
    fn forget(&self, hits: &mut Hits<'_>) {
        for number in &self.ends {
            hits[*number] = None;
        }
        for branch in &self.branches {
            branch.node.forget(hits);
        }
    }
}

/// RFC 6901 section 4: digits without a leading zero.
fn array_index(token: &str) -> Option<usize> {
    let is_canonical = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_canonical)
}

/// Reads the value at a node: takes it if a pointer ends here, goes in if one goes on.
struct Step<'n, 'h, 'b> {
    node: &'n Node,
    hits: &'h mut Hits<'b>,
}

impl<'de> DeserializeSeed<'de> for Step<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { node, hits } = self;
        node.forget(hits);
        if node.ends.is_empty() {
            return deserializer.deserialize_any(Inside { node, hits });
        }
        let value = <&RawValue>::deserialize(deserializer)?;
        for number in &node.ends {
            hits[*number] = Some(value);
        }
        if node.branches.is_empty() {
            return Ok(());
        }
        // Rare: one pointer ends where another goes on. This part is read a second time.
        serde_json::Deserializer::from_str(value.get())
            .deserialize_any(Inside { node, hits })
            .map_err(D::Error::custom)
    }
}

/// Follows the branches of a node into an object or an array.
struct Inside<'n, 'h, 'b> {
    node: &'n Node,
    hits: &'h mut Hits<'b>,
}

impl<'de> Visitor<'de> for Inside<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(followed) = map.next_key_seed(Name(&self.node.branches))? {
            match followed {
                Some(node) => map.next_value_seed(Step { node, hits: self.hits })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let mut branches = self.node.branches.iter();
            let item = match branches.find(|branch| branch.index == Some(index)) {
                Some(branch) => {
                    items.next_element_seed(Step { node: &branch.node, hits: self.hits })?
                }
                None => items.next_element::<IgnoredAny>()?.map(drop),
            };
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    // A pointer that goes on into one of these leads nowhere.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Reads an object's name and tells which branch it follows, without keeping the name.
struct Name<'n>(&'n [Branch]);

impl<'de, 'n> DeserializeSeed<'de> for Name<'n> {
    type Value = Option<&'n Node>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for Name<'n> {
    type Value = Option<&'n Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|branch| branch.name == name).map(|branch| &branch.node))
    }
}
