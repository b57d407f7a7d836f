//! Secrets in text of unknown format: a page that quotes a request, broken JSON, XML, a dump.
//!
//! Best effort: a secret name, then `:`, `=` or the end of its tag, then the value. The search for the
//! name is bounded, and no value is read twice.

use std::ops::Range;

use super::{
    MASK,
    edit::{Edit, TextEncoding},
    json,
    names::SecretNames,
};

const NAME_BYTES_MAX: usize = 64;
/// Maximum length of the rest of a part's head.
const PART_HEAD_MAX: usize = 512;

pub(super) fn scan(text: &[u8], start: usize, names: &SecretNames) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut at = start;
    while let Some(found) = text[at..].iter().position(|byte| matches!(byte, b':' | b'=' | b'>')) {
        let sign = at + found;
        at = sign + 1;
        if let Some(span) = secret_at(text, start, sign, names) {
            let value = &text[span.clone()];
            let says_nothing = matches!(value, b"" | b"null" | b"true" | b"false" | b"None");
            at = at.max(span.end);
            if !says_nothing && value != MASK.as_bytes() {
                edits.push(Edit::plain(span));
            }
        } else if text[sign] == b'=' && is_packed_json(&text[at..]) {
            let span = value(text, at);
            let packed = &text[span.clone()];
            let (found, _) = json::scan(&TextEncoding::Percent.decode(packed), names);
            edits.extend(TextEncoding::Percent.map_edits(packed, span.start, found));
            at = span.end.max(at);
        }
    }
    edits
}

/// Whether a text begins with form-encoded JSON.
fn is_packed_json(text: &[u8]) -> bool {
    matches!(text, [b'%', b'7', b'B' | b'b', ..] | [b'%', b'5', b'B' | b'b', ..])
}

/// The secret value after the separator at `sign`.
fn secret_at(text: &[u8], start: usize, sign: usize, names: &SecretNames) -> Option<Range<usize>> {
    let before = PrecedingName::read(text, start, sign)?;
    let is_secret = names.is_secret_field(before.name);
    match text[sign] {
        b'>' if is_secret => in_tag(text, &before, sign),
        b':' if is_secret && before.is_quoted => Some(value(text, sign + 1)),
        // A header line; in the middle of a sentence it would be prose.
        b':' if is_secret && before.begins_line(text, start) => Some(line(text, sign + 1)),
        b'=' if is_secret => {
            let arrow = usize::from(text.get(sign + 1) == Some(&b'>'));
            Some(value(text, sign + 1 + arrow))
        }
        b'=' if before.name.eq_ignore_ascii_case("name") => part(text, sign + 1, names),
        _ => None,
    }
}

/// The name before a separator.
struct PrecedingName<'t> {
    name: &'t str,
    start: usize,
    is_quoted: bool,
}

impl<'t> PrecedingName<'t> {
    fn read(text: &'t [u8], start: usize, sign: usize) -> Option<Self> {
        let from = start.max(sign.saturating_sub(NAME_BYTES_MAX));
        let window = text[from..sign].trim_ascii_end();
        let open = window.strip_suffix(b"\"").or_else(|| window.strip_suffix(b"'"));
        let unquoted = open.map(|open| {
            let slashes = open.iter().rev().take_while(|byte| **byte == b'\\').count();
            &open[..open.len() - slashes]
        });
        let rest = unquoted.unwrap_or(window);
        let length = rest.iter().rev().take_while(|byte| is_of_name(**byte)).count();
        let name = std::str::from_utf8(&rest[rest.len() - length..]).ok()?;
        let start = from + rest.len() - length;
        (!name.is_empty()).then_some(Self { name, start, is_quoted: unquoted.is_some() })
    }

    fn begins_line(&self, text: &[u8], start: usize) -> bool {
        let before = text[start..self.start].iter().rev();
        let first = before.copied().find(|byte| !matches!(byte, b' ' | b'\t' | b'-' | b'>' | b'*'));
        matches!(first, None | Some(b'\n' | b'\r'))
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') || !byte.is_ascii()
}

/// A quoted value, or up to the next delimiter.
fn value(text: &[u8], from: usize) -> Range<usize> {
    let skipped = |at: usize, white: &[u8]| {
        at + text[at..].iter().take_while(|byte| white.contains(byte)).count()
    };
    let start = skipped(from, b" \t");
    let quote = skipped(start, b"\\");
    match text.get(quote) {
        Some(b'"') => quote + 1..closing(text, quote + 1, quote - start),
        Some(b'\'') => quote + 1..until(text, quote + 1, |byte| matches!(byte, b'\'' | b'\n')),
        // Its end is unknown: take the rest of the line.
        Some(b'{' | b'[') => start..line(text, start).end,
        _ => start..until(text, start, |byte| b" \t\r\n&;,\"'<>()[]{}".contains(&byte)),
    }
}

/// The end of a string whose opening quote has this many backslashes before it, because the text is
/// itself inside a string, and so on.
fn closing(text: &[u8], from: usize, slashes: usize) -> usize {
    let mut run = 0;
    for (at, byte) in text.iter().enumerate().skip(from) {
        match byte {
            b'\\' => run += 1,
            b'"' => {
                // A quote in the content is escaped once more than the opening quote.
                if run % (2 * slashes + 2) != 2 * slashes + 1 {
                    return at - run.min(slashes);
                }
                run = 0;
            }
            _ => run = 0,
        }
    }
    text.len()
}

fn line(text: &[u8], from: usize) -> Range<usize> {
    let white = text[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    from + white..until(text, from + white, |byte| matches!(byte, b'\r' | b'\n'))
}

fn until(text: &[u8], from: usize, is_end: impl Fn(u8) -> bool) -> usize {
    from + text[from..].iter().take_while(|byte| !is_end(**byte)).count()
}

/// The content of an XML element.
fn in_tag(text: &[u8], before: &PrecedingName<'_>, sign: usize) -> Option<Range<usize>> {
    const DATA: &[u8] = b"<![CDATA[";
    // `<name>` or `<prefix:name>`, and not `</name>`.
    let head = &text[before.start.saturating_sub(NAME_BYTES_MAX)..before.start];
    let open = head.iter().rposition(|byte| matches!(byte, b'<' | b'>' | b'/' | b' '))?;
    if head[open] != b'<' || before.is_quoted {
        return None;
    }
    let start = sign + 1;
    if text[start..].starts_with(DATA) {
        let start = start + DATA.len();
        return Some(start..until(text, start, |byte| matches!(byte, b']' | b'<')));
    }
    Some(start..until(text, start, |byte| byte == b'<'))
}

/// The content of a `multipart/form-data` part with a secret name.
fn part(text: &[u8], from: usize, names: &SecretNames) -> Option<Range<usize>> {
    let head = &text[from..text.len().min(from + PART_HEAD_MAX)];
    let name = std::str::from_utf8(&head[value(head, 0)]).ok()?;
    if !names.is_secret_field(name) {
        return None;
    }
    let blank = |line_end: &[u8]| {
        let end = head.windows(line_end.len()).position(|window| window == line_end);
        end.map(|end| from + end + line_end.len())
    };
    let start = blank(b"\r\n\r\n").or_else(|| blank(b"\n\n"))?;
    let end = text[start..].windows(3).position(|window| window == b"\n--");
    let content = &text[start..end.map_or(text.len(), |end| start + end)];
    Some(start..start + content.trim_ascii_end().len())
}
