//! Finds the values of secret fields in a JSON text, in one pass and without recursion.
//!
//! Nothing is parsed into values and printed again: what comes out are spans of the text. A text may
//! be cut off anywhere, and several may follow each other. A string that holds JSON itself is looked
//! into as well, a few levels deep.

use std::borrow::Cow;

use super::{
    MASK,
    edit::{Code, Edit},
    names::{SecretNames, is_card, is_card_number, is_number},
};

/// JSON within strings of JSON is followed this deep.
const NESTED_MAX: usize = 4;

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As JSON does.
    Whole,
    /// In the middle.
    Cut,
    /// Here it was not JSON any more.
    Broken(usize),
}

/// Whether a text may be JSON with names in it.
pub(super) fn begins(text: &[u8]) -> bool {
    let text = text.strip_prefix(BOM).unwrap_or(text);
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'['))
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The edits that a text needs.
pub(super) fn scan(text: &[u8], names: &SecretNames) -> (Vec<Edit>, End) {
    scan_nested(text, names, NESTED_MAX)
}

fn scan_nested(text: &[u8], names: &SecretNames, nested: usize) -> (Vec<Edit>, End) {
    let at = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let stack = Vec::new();
    let mut scanner = Scanner { text, at, names, nested, stack, hiding: None, edits: Vec::new() };
    let end = scanner.run().err().unwrap_or(End::Whole);
    if let Some(Hiding { start, .. }) = scanner.hiding {
        // Nobody knows where it would have ended.
        scanner.edits.push(Edit::string(start..text.len()));
        return (scanner.edits, End::Cut);
    }
    (scanner.edits, end)
}

/// What is known of the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Plain,
    Secret,
    /// The value of a card, or some of them.
    Card,
    /// Perhaps the number of a card.
    Number,
}

/// An object or an array that is open.
#[derive(Clone, Copy, Debug)]
struct Open {
    is_object: bool,
    is_card: bool,
}

/// A secret that is an object or an array.
#[derive(Clone, Copy, Debug)]
struct Hiding {
    start: usize,
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Value(Meaning),
    /// The first value of an array, or its end.
    FirstValue,
    Name,
    /// The first name of an object, or its end.
    FirstName,
    /// A comma or an end.
    More,
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    names: &'t SecretNames,
    /// How many levels of JSON within strings may still be followed.
    nested: usize,
    stack: Vec<Open>,
    hiding: Option<Hiding>,
    edits: Vec<Edit>,
}

impl<'t> Scanner<'t> {
    fn run(&mut self) -> Result<(), End> {
        let mut next = Next::Value(Meaning::Plain);
        loop {
            let Some(byte) = self.peek() else {
                let is_between = self.stack.is_empty() && next == Next::More;
                return if is_between { Ok(()) } else { Err(End::Cut) };
            };
            next = match (next, byte) {
                (Next::FirstName, b'}') | (Next::FirstValue, b']') => self.close(byte, true)?,
                (Next::FirstName | Next::Name, b'"') => Next::Value(self.name()?),
                (Next::FirstValue, _) => self.value(byte, self.of_element())?,
                (Next::Value(meaning), _) => self.value(byte, meaning)?,
                (Next::More, b',') if !self.stack.is_empty() => {
                    self.at += 1;
                    if self.inside().is_object {
                        Next::Name
                    } else {
                        Next::Value(self.of_element())
                    }
                }
                (Next::More, b'}' | b']') => self.close(byte, false)?,
                // Lines of JSON: one text after the other.
                (Next::More, b'{' | b'[') if self.stack.is_empty() => {
                    self.value(byte, Meaning::Plain)?
                }
                _ => return Err(End::Broken(self.at)),
            };
        }
    }

    /// The next byte that is not white.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn inside(&self) -> Open {
        self.stack.last().copied().unwrap_or(Open { is_object: false, is_card: false })
    }

    fn of_element(&self) -> Meaning {
        if self.inside().is_card { Meaning::Card } else { Meaning::Plain }
    }

    fn close(&mut self, byte: u8, is_empty: bool) -> Result<Next, End> {
        let fits = self.stack.last().is_some_and(|open| open.is_object == (byte == b'}'));
        if !fits {
            return Err(End::Broken(self.at));
        }
        self.stack.pop();
        self.at += 1;
        if let Some(Hiding { start, depth }) = self.hiding
            && depth == self.stack.len()
        {
            self.hiding = None;
            if !is_empty {
                self.edits.push(Edit::string(start..self.at));
            }
        }
        Ok(Next::More)
    }

    /// Reads a name and its colon.
    fn name(&mut self) -> Result<Meaning, End> {
        let raw = self.string()?;
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(End::Broken(self.at)),
            None => return Err(End::Cut),
        }
        if self.hiding.is_some() {
            return Ok(Meaning::Plain);
        }
        let meant = match raw.contains(&b'\\') {
            true => Cow::Owned(Code::Escaped.decode(raw)),
            false => Cow::Borrowed(raw),
        };
        let name = String::from_utf8_lossy(&meant);
        Ok(if self.names.is_secret_field(&name) {
            Meaning::Secret
        } else if is_card(&name) {
            Meaning::Card
        } else if self.inside().is_card && is_number(&name) {
            Meaning::Number
        } else {
            Meaning::Plain
        })
    }

    fn value(&mut self, byte: u8, meaning: Meaning) -> Result<Next, End> {
        let start = self.at;
        match byte {
            b'{' | b'[' => {
                if meaning == Meaning::Secret && self.hiding.is_none() {
                    self.hiding = Some(Hiding { start, depth: self.stack.len() });
                }
                let is_object = byte == b'{';
                self.stack.push(Open { is_object, is_card: meaning == Meaning::Card });
                self.at += 1;
                return Ok(if is_object { Next::FirstName } else { Next::FirstValue });
            }
            b'"' => {
                let string = self.string();
                let content = match string {
                    Ok(content) => content,
                    Err(_) => &self.text[start + 1..],
                };
                self.string_value(start, content, meaning);
                string?;
            }
            b'-' | b'0'..=b'9' => {
                while let Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') =
                    self.text.get(self.at)
                {
                    self.at += 1;
                }
                let number = &self.text[start..self.at];
                if self.is_hidden(meaning, number) {
                    self.edits.push(Edit::string(start..self.at));
                }
            }
            _ => self.literal()?,
        }
        Ok(Next::More)
    }

    fn is_hidden(&self, meaning: Meaning, text: &[u8]) -> bool {
        self.hiding.is_none()
            && match meaning {
                Meaning::Secret => !text.is_empty() && text != MASK.as_bytes(),
                Meaning::Number => is_card_number(text),
                Meaning::Plain | Meaning::Card => false,
            }
    }

    fn string_value(&mut self, start: usize, content: &[u8], meaning: Meaning) {
        if self.is_hidden(meaning, content) {
            self.edits.push(Edit::string(start..self.at));
        } else if self.hiding.is_none()
            && self.nested > 0
            && content.contains(&b'\\')
            && may_hold_json(content)
        {
            let meant = Code::Escaped.decode(content);
            let (edits, _) = scan_nested(&meant, self.names, self.nested - 1);
            if !edits.is_empty() {
                self.edits.extend(Code::Escaped.place(content, start + 1, edits));
            }
        }
    }

    /// Reads a string to its end and gives what is between the quotes.
    fn string(&mut self) -> Result<&'t [u8], End> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(&self.text[start..at]);
                }
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => {
                    self.at = self.text.len();
                    return Err(End::Cut);
                }
            }
        }
    }

    fn literal(&mut self) -> Result<(), End> {
        let rest = &self.text[self.at..];
        for word in [&b"true"[..], b"false", b"null"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(());
            }
            if word.starts_with(rest) {
                return Err(End::Cut);
            }
        }
        Err(End::Broken(self.at))
    }
}

/// Whether the content of a string begins like an object or an array; the white before it may be
/// escaped.
fn may_hold_json(content: &[u8]) -> bool {
    let mut rest = content.trim_ascii_start();
    while let Some(more) = rest
        .strip_prefix(br"\n")
        .or_else(|| rest.strip_prefix(br"\r"))
        .or_else(|| rest.strip_prefix(br"\t"))
    {
        rest = more.trim_ascii_start();
    }
    matches!(rest.first(), Some(b'{' | b'['))
}
