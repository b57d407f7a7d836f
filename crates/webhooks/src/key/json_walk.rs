//! Resolves several JSON pointers in one pass over a text.
//!
//! The pointers form a tree. The walk descends only along its branches; everything else is skipped by
//! `serde_json` without recursion or allocation. The recursion is as deep as the longest pointer, never
//! as deep as the text, so hostile nesting costs no more than reading it.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize as _, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::JsonPointer;

/// JSON pointers that are resolved together in one pass.
#[derive(Debug, Default)]
pub struct JsonPointerSet {
    root: PointerNode,
    count: usize,
}

#[derive(Debug, Default)]
struct PointerNode {
    /// The numbers of the pointers that end here.
    ends: Vec<usize>,
    branches: Vec<PointerBranch>,
}

#[derive(Debug)]
struct PointerBranch {
    name: String,
    /// The name as an array index, if it is one.
    index: Option<usize>,
    node: PointerNode,
}

/// The value of each pointer, by the number of the pointer.
type Hits<'b> = Vec<Option<&'b RawValue>>;

impl JsonPointerSet {
    /// Adds a pointer and returns its number, counted from 0.
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

    /// For each pointer its string or number, if there is one and the body is JSON.
    pub fn find_scalars<'b>(&self, body: &'b [u8]) -> Vec<Option<Cow<'b, str>>> {
        self.find(body).into_iter().map(|hit| hit.and_then(scalar_text)).collect()
    }

    /// For each pointer its value, in its spelling.
    pub fn find<'b>(&self, body: &'b [u8]) -> Vec<Option<&'b RawValue>> {
        let mut hits = vec![None; self.count];
        // Checking UTF-8 once is faster than serde_json's check per string, and covers all of it.
        let text = std::str::from_utf8(strip_bom(body)).ok();
        let walked = text.is_some_and(|text| walk(&self.root, text, &mut hits).is_ok());
        if !walked {
            hits.fill(None);
        }
        hits
    }
}

/// RFC 8259 allows a reader to skip a byte order mark.
pub(super) fn strip_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

fn walk<'b>(node: &PointerNode, text: &'b str, hits: &mut Hits<'b>) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    NodeReader { node, hits }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The content of a string, or a number in its spelling; `None` for other values.
pub(crate) fn scalar_text(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    match text.as_bytes().first()? {
        // Most strings have no escapes and need no copy.
        b'"' if !text.contains('\\') => text.get(1..text.len() - 1).map(Cow::Borrowed),
        b'"' => serde_json::from_str::<JsonString<'_>>(text).ok().map(|string| string.0),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

#[derive(serde::Deserialize)]
struct JsonString<'b>(#[serde(borrow)] Cow<'b, str>);

impl PointerNode {
    fn branch(&mut self, name: &str) -> &mut Self {
        let position = self.branches.iter().position(|branch| branch.name == name);
        let position = position.unwrap_or_else(|| {
            let (name, node) = (name.to_owned(), Self::default());
            self.branches.push(PointerBranch { index: array_index(&name), name, node });
            self.branches.len() - 1
        });
        &mut self.branches[position].node
    }

    /// Clears the values found here and below: of repeated names the last one counts.
    fn clear(&self, hits: &mut Hits<'_>) {
        for number in &self.ends {
            hits[*number] = None;
        }
        for branch in &self.branches {
            branch.node.clear(hits);
        }
    }
}

/// RFC 6901 section 4: digits without a leading zero.
fn array_index(token: &str) -> Option<usize> {
    let is_canonical = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_canonical)
}

/// Reads the value at a node: keeps it if a pointer ends here, descends if one continues.
struct NodeReader<'n, 'h, 'b> {
    node: &'n PointerNode,
    hits: &'h mut Hits<'b>,
}

impl<'de> DeserializeSeed<'de> for NodeReader<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.node.clear(self.hits);
        if self.node.ends.is_empty() {
            return deserializer.deserialize_any(self);
        }
        let value = <&RawValue>::deserialize(deserializer)?;
        for number in &self.node.ends {
            self.hits[*number] = Some(value);
        }
        if self.node.branches.is_empty() {
            return Ok(());
        }
        // Rare: one pointer ends where another continues, so this value is read a second time.
        serde_json::Deserializer::from_str(value.get())
            .deserialize_any(self)
            .map_err(D::Error::custom)
    }
}

/// Follows the branches of a node into an object or an array.
impl<'de> Visitor<'de> for NodeReader<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(followed) = map.next_key_seed(BranchSeed(&self.node.branches))? {
            match followed {
                Some(node) => map.next_value_seed(NodeReader { node, hits: self.hits })?,
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
                    items.next_element_seed(NodeReader { node: &branch.node, hits: self.hits })?
                }
                None => items.next_element::<IgnoredAny>()?.map(drop),
            };
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    // A pointer cannot continue into a scalar.
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

/// Reads a member's name and returns the branch that it follows, without keeping the name.
struct BranchSeed<'n>(&'n [PointerBranch]);

impl<'de, 'n> DeserializeSeed<'de> for BranchSeed<'n> {
    type Value = Option<&'n PointerNode>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for BranchSeed<'n> {
    type Value = Option<&'n PointerNode>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|branch| branch.name == name).map(|branch| &branch.node))
    }
}
