//! What an answer says went wrong, found in JSON, in a page, or in plain text.

/// Bytes of an answer that are looked at.
pub(super) const ANSWER_BYTES_MAX: usize = 1024;
/// Texts of JSON that are taken.
const TEXTS_MAX: usize = 6;
/// Names of JSON that are told where no text is found.
const NAMES_MAX: usize = 8;

/// Names of fields that say what went wrong.
const SAYS: [&str; 18] = [
    "message",
    "messages",
    "error",
    "errors",
    "error_message",
    "errormessage",
    "error_description",
    "error_user_title",
    "error_user_msg",
    "msg",
    "title",
    "detail",
    "details",
    "description",
    "reason",
    "exception",
    "type",
    "fault",
];
/// Names of fields that say it with a code, which is kept as it is.
const CODES: [&str; 6] =
    ["code", "error_code", "errorcode", "error_subcode", "errcode", "statuscode"];

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ErrorMessage {
    /// Texts of fields that say what went wrong; the first of each pair tells that it is a code.
    Fields(Vec<(bool, String)>),
    /// JSON without any of these; the names that it has.
    Names(Vec<String>),
    /// A text for people.
    Text(String),
}

/// Reads an answer. It may be cut off, and need not be what it seems.
pub(super) fn read(answer: &[u8]) -> ErrorMessage {
    let answer = &answer[..answer.len().min(ANSWER_BYTES_MAX)];
    let text = String::from_utf8_lossy(answer);
    let text = text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n', '\u{fffd}']);
    if text.starts_with(['{', '[']) {
        return in_json(text);
    }
    if text.starts_with('<') {
        return ErrorMessage::Text(in_page(text));
    }
    ErrorMessage::Text(text.to_owned())
}

/// Goes through the strings of JSON, also of one that is cut off. A value belongs to the name that
/// was read last, so that those of a list are found too.
fn in_json(text: &str) -> ErrorMessage {
    let (mut texts, mut names) = (Vec::new(), Vec::new());
    let mut name = String::new();
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        rest = &rest[sign.len_utf8()..];
        match sign {
            '"' => {
                let (string, after) = string(rest);
                rest = after;
                match rest.trim_start().strip_prefix(':') {
                    Some(after) => {
                        name = string.to_lowercase();
                        if names.len() < NAMES_MAX {
                            names.push(string);
                        }
                        rest = after;
                    }
                    None => take(&mut texts, &name, &string),
                }
            }
            '0'..='9' => {
                let end = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
                let (digits, after) = rest.split_at(end);
                rest = after;
                if is_in(&CODES, &name) {
                    take(&mut texts, &name, &format!("{sign}{digits}"));
                }
            }
            // Whatever comes next has a name of its own.
            '}' => name.clear(),
            _ => {}
        }
    }
    if texts.is_empty() { ErrorMessage::Names(names) } else { ErrorMessage::Fields(texts) }
}

fn is_in(known: &[&str], name: &str) -> bool {
    known.contains(&name)
}

fn take(texts: &mut Vec<(bool, String)>, name: &str, text: &str) {
    /// A longer one is a text.
    const CODE_CHARS_MAX: usize = 24;
    let text = text.trim();
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "_-.".contains(sign);
    let is_code = is_in(&CODES, name) && text.len() <= CODE_CHARS_MAX && text.chars().all(is_plain);
    let says = is_code || is_in(&SAYS, name) || is_in(&CODES, name);
    let said = (is_code, text.to_owned());
    if says && !text.is_empty() && texts.len() < TEXTS_MAX && !texts.contains(&said) {
        texts.push(said);
    }
}

/// The string that begins behind its quote, and what comes after it.
fn string(text: &str) -> (String, &str) {
    let mut string = String::new();
    let mut signs = text.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '"' => return (string, &text[at + 1..]),
            '\\' => match signs.next().map(|(_, sign)| sign) {
                Some('u') => {
                    let digits: String = signs.by_ref().take(4).map(|(_, sign)| sign).collect();
                    let sign = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    string.push(sign.unwrap_or('\u{fffd}'));
                }
                Some('n' | 'r' | 't' | 'b' | 'f') => string.push(' '),
                Some(sign) => string.push(sign),
                None => {}
            },
            sign => string.push(sign),
        }
    }
    (string, "")
}

/// The title of a page, or else its text without the marks.
fn in_page(page: &str) -> String {
    // Of the same length, so that places in one are places in the other.
    let lower = page.to_ascii_lowercase();
    if let Some(start) = lower.find("<title") {
        let inside = &page[start..];
        let title = inside.split_once('>').map_or("", |(_, rest)| rest);
        let title = title.split('<').next().unwrap_or_default().trim();
        if !title.is_empty() {
            return unescaped(title);
        }
    }
    let mut text = String::new();
    let mut at = 0;
    while let Some(found) = page[at..].find('<') {
        let open = at + found;
        text.push_str(&page[at..open]);
        text.push(' ');
        let hidden =
            ["script", "style", "!--"].into_iter().find(|name| lower[open + 1..].starts_with(name));
        let end = match hidden {
            Some("!--") => lower[open..].find("-->").map(|end| open + end + 3),
            Some(name) => {
                let close = lower[open..].find(&format!("</{name}")).map(|end| open + end);
                close.and_then(|close| page[close..].find('>').map(|end| close + end + 1))
            }
            None => page[open..].find('>').map(|end| open + end + 1),
        };
        at = end.unwrap_or(page.len());
    }
    text.push_str(&page[at..]);
    unescaped(&text)
}

fn unescaped(text: &str) -> String {
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
