//! Finds the values of secret fields in JSON text, in one pass and without recursion.
//!
//! The results are spans of the text, so that the rest stays byte for byte. The text may be truncated
//! anywhere, and several values may follow each other. JSON inside strings is searched too, a few
//! levels deep.

use std::borrow::Cow;

use super::{
    MASK,
    edit::{Edit, TextEncoding},
    names::{SecretNames, is_card, is_card_number, is_card_number_name},
};

/// Levels of JSON inside JSON strings that are searched.
const NESTED_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanEnd {
    /// At the end of a JSON value.
    Whole,
    /// Inside a value: truncated.
    Cut,
    /// At this position, where it stops being JSON.
    Broken(usize),
}

/// Whether a text begins like an object or array.
pub(super) fn begins(text: &[u8]) -> bool {
    let text = text.strip_prefix(BOM).unwrap_or(text);
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'['))
}

const BOM: &[u8] = b"\xef\xbb\xbf";

pub(super) fn scan(text: &[u8], names: &SecretNames) -> (Vec<Edit>, ScanEnd) {
    scan_nested(text, names, NESTED_MAX)
}

fn scan_nested(text: &[u8], names: &SecretNames, nested: usize) -> (Vec<Edit>, ScanEnd) {
    let at = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let stack = Vec::new();
    let mut scanner = Scanner { text, at, names, nested, stack, hiding: None, edits: Vec::new() };
    let end = scanner.run().err().unwrap_or(ScanEnd::Whole);
    if let Some(HiddenContainer { start, .. }) = scanner.hiding {
        // Its end is unknown: mask everything up to the end of the text.
        scanner.edits.push(Edit::string(start..text.len()));
        return (scanner.edits, ScanEnd::Cut);
    }
    (scanner.edits, end)
}

/// The meaning of the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Plain,
    Secret,
    /// A payment card, or a list of them.
    Card,
    /// A card number, if its digits fit.
    CardNumber,
}

#[derive(Clone, Copy, Debug)]
struct OpenContainer {
    is_object: bool,
    is_card: bool,
}

/// A secret object or array that is masked as a whole.
#[derive(Clone, Copy, Debug)]
struct HiddenContainer {
    start: usize,
    /// Number of open containers around it.
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedToken {
    Value(ValueKind),
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
    /// Remaining levels of JSON inside strings.
    nested: usize,
    stack: Vec<OpenContainer>,
    /// The secret container around the current position, which is masked as a whole.
    hiding: Option<HiddenContainer>,
    edits: Vec<Edit>,
}

impl<'t> Scanner<'t> {
    fn run(&mut self) -> Result<(), ScanEnd> {
        let mut next = ExpectedToken::Value(ValueKind::Plain);
        loop {
            let Some(byte) = self.peek() else {
                let is_between = self.stack.is_empty() && next == ExpectedToken::More;
                return if is_between { Ok(()) } else { Err(ScanEnd::Cut) };
            };
            next = match (next, byte) {
                (ExpectedToken::FirstName, b'}') | (ExpectedToken::FirstValue, b']') => {
                    self.close(byte, true)?
                }
                (ExpectedToken::FirstName | ExpectedToken::Name, b'"') => {
                    ExpectedToken::Value(self.name()?)
                }
                (ExpectedToken::FirstValue, _) => self.value(byte, self.element_kind())?,
                (ExpectedToken::Value(kind), _) => self.value(byte, kind)?,
                (ExpectedToken::More, b',') if !self.stack.is_empty() => {
                    self.at += 1;
                    if self.innermost().is_object {
                        ExpectedToken::Name
                    } else {
                        ExpectedToken::Value(self.element_kind())
                    }
                }
                (ExpectedToken::More, b'}' | b']') => self.close(byte, false)?,
                // JSON lines: one value after the other.
                (ExpectedToken::More, b'{' | b'[') if self.stack.is_empty() => {
                    self.value(byte, ValueKind::Plain)?
                }
                _ => return Err(ScanEnd::Broken(self.at)),
            };
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn innermost(&self) -> OpenContainer {
        self.stack.last().copied().unwrap_or(OpenContainer { is_object: false, is_card: false })
    }

    /// The meaning of the next element of the innermost array.
    fn element_kind(&self) -> ValueKind {
        if self.innermost().is_card { ValueKind::Card } else { ValueKind::Plain }
    }

    fn close(&mut self, byte: u8, is_empty: bool) -> Result<ExpectedToken, ScanEnd> {
        let fits = self.stack.last().is_some_and(|open| open.is_object == (byte == b'}'));
        if !fits {
            return Err(ScanEnd::Broken(self.at));
        }
        self.stack.pop();
        self.at += 1;
        if let Some(HiddenContainer { start, depth }) = self.hiding
            && depth == self.stack.len()
        {
            self.hiding = None;
            if !is_empty {
                self.edits.push(Edit::string(start..self.at));
            }
        }
        Ok(ExpectedToken::More)
    }

    /// Reads a name and its colon.
    fn name(&mut self) -> Result<ValueKind, ScanEnd> {
        let raw = self.string()?;
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(ScanEnd::Broken(self.at)),
            None => return Err(ScanEnd::Cut),
        }
        if self.hiding.is_some() {
            return Ok(ValueKind::Plain);
        }
        let decoded_text = match raw.contains(&b'\\') {
            true => Cow::Owned(TextEncoding::Escaped.decode(raw)),
            false => Cow::Borrowed(raw),
        };
        let name = String::from_utf8_lossy(&decoded_text);
        Ok(if self.names.is_secret_field(&name) {
            ValueKind::Secret
        } else if is_card(&name) {
            ValueKind::Card
        } else if self.innermost().is_card && is_card_number_name(&name) {
            ValueKind::CardNumber
        } else {
            ValueKind::Plain
        })
    }

    fn value(&mut self, byte: u8, kind: ValueKind) -> Result<ExpectedToken, ScanEnd> {
        let start = self.at;
        match byte {
            b'{' | b'[' => {
                if kind == ValueKind::Secret && self.hiding.is_none() {
                    self.hiding = Some(HiddenContainer { start, depth: self.stack.len() });
                }
                let is_object = byte == b'{';
                self.stack.push(OpenContainer { is_object, is_card: kind == ValueKind::Card });
                self.at += 1;
                return Ok(if is_object {
                    ExpectedToken::FirstName
                } else {
                    ExpectedToken::FirstValue
                });
            }
            b'"' => {
                let string = self.string();
                let content = match string {
                    Ok(content) => content,
                    Err(_) => &self.text[start + 1..],
                };
                self.string_value(start, content, kind);
                string?;
            }
            b'-' | b'0'..=b'9' => {
                while let Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') =
                    self.text.get(self.at)
                {
                    self.at += 1;
                }
                let number = &self.text[start..self.at];
                if self.needs_mask(kind, number) {
                    self.edits.push(Edit::string(start..self.at));
                }
            }
            _ => self.literal()?,
        }
        Ok(ExpectedToken::More)
    }

    fn needs_mask(&self, kind: ValueKind, text: &[u8]) -> bool {
        self.hiding.is_none()
            && match kind {
                ValueKind::Secret => !text.is_empty() && text != MASK.as_bytes(),
                ValueKind::CardNumber => is_card_number(text),
                ValueKind::Plain | ValueKind::Card => false,
            }
    }

    fn string_value(&mut self, start: usize, content: &[u8], kind: ValueKind) {
        if self.needs_mask(kind, content) {
            self.edits.push(Edit::string(start..self.at));
        } else if self.hiding.is_none()
            && self.nested > 0
            && content.contains(&b'\\')
            && may_hold_json(content)
        {
            let decoded_text = TextEncoding::Escaped.decode(content);
            let (edits, _) = scan_nested(&decoded_text, self.names, self.nested - 1);
            if !edits.is_empty() {
                self.edits.extend(TextEncoding::Escaped.map_edits(content, start + 1, edits));
            }
        }
    }

    /// Reads a string and returns the content between the quotes.
    fn string(&mut self) -> Result<&'t [u8], ScanEnd> {
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
                    return Err(ScanEnd::Cut);
                }
            }
        }
    }

    fn literal(&mut self) -> Result<(), ScanEnd> {
        let rest = &self.text[self.at..];
        for word in [&b"true"[..], b"false", b"null"] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(());
            }
            if word.starts_with(rest) {
                return Err(ScanEnd::Cut);
            }
        }
        Err(ScanEnd::Broken(self.at))
    }
}

/// Whether the content of a string begins like an object or array, after escaped white space.
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
