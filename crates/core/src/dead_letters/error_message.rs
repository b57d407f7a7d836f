//! Extracts the error message from a response: JSON, an HTML page, or plain text.

/// Bytes of a response that are read.
pub(super) const RESPONSE_BYTES_MAX: usize = 1024;
/// Maximum number of messages taken from JSON.
const TEXTS_MAX: usize = 6;
/// Maximum number of field names reported when no message is found.
const NAMES_MAX: usize = 8;

/// Fields with an error message.
const MESSAGE_FIELDS: [&str; 18] = [
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
/// Fields with an error code, which is kept unchanged.
const CODE_FIELDS: [&str; 6] =
    ["code", "error_code", "errorcode", "error_subcode", "errcode", "statuscode"];

/// The error message of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ErrorMessage {
    /// Texts of message fields; the flag says whether it is a code.
    Fields(Vec<(bool, String)>),
    /// JSON without message fields: its field names.
    Names(Vec<String>),
    /// Plain text.
    Text(String),
}

/// Parses a response, which may be truncated or malformed.
pub(super) fn parse(response: &[u8]) -> ErrorMessage {
    let response = &response[..response.len().min(RESPONSE_BYTES_MAX)];
    let text = String::from_utf8_lossy(response);
    let text = text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n', '\u{fffd}']);
    if text.starts_with(['{', '[']) {
        return message_in_json(text);
    }
    if text.starts_with('<') {
        return ErrorMessage::Text(message_in_page(text));
    }
    ErrorMessage::Text(text.to_owned())
}

/// Scans the strings of possibly truncated JSON. A value belongs to the last name read, so that items
/// of a list are found too.
fn message_in_json(text: &str) -> ErrorMessage {
    let (mut texts, mut names) = (Vec::new(), Vec::new());
    let mut name = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '"' => {
                let (string, after) = read_string(rest);
                rest = after;
                match rest.trim_start().strip_prefix(':') {
                    Some(after) => {
                        name = string.to_lowercase();
                        if names.len() < NAMES_MAX {
                            names.push(string);
                        }
                        rest = after;
                    }
                    None => add_text(&mut texts, &name, &string),
                }
            }
            '0'..='9' => {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let (digits, after) = rest.split_at(end);
                rest = after;
                if CODE_FIELDS.contains(&name.as_str()) {
                    add_text(&mut texts, &name, &format!("{c}{digits}"));
                }
            }
            // The next value has a name of its own.
            '}' => name.clear(),
            _ => {}
        }
    }
    if texts.is_empty() { ErrorMessage::Names(names) } else { ErrorMessage::Fields(texts) }
}

fn add_text(texts: &mut Vec<(bool, String)>, name: &str, text: &str) {
    /// A longer text is not a code.
    const CODE_CHARS_MAX: usize = 24;
    let text = text.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let is_code_field = CODE_FIELDS.contains(&name);
    let is_code = is_code_field && text.len() <= CODE_CHARS_MAX && text.chars().all(is_plain);
    let is_message = is_code_field || MESSAGE_FIELDS.contains(&name);
    let entry = (is_code, text.to_owned());
    if is_message && !text.is_empty() && texts.len() < TEXTS_MAX && !texts.contains(&entry) {
        texts.push(entry);
    }
}

/// Reads a string after its opening quote; returns it and the rest.
fn read_string(text: &str) -> (String, &str) {
    let mut string = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (string, &text[at + 1..]),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                    let c = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    string.push(c.unwrap_or('\u{fffd}'));
                }
                Some('n' | 'r' | 't' | 'b' | 'f') => string.push(' '),
                Some(c) => string.push(c),
                None => {}
            },
            c => string.push(c),
        }
    }
    (string, "")
}

/// The title of an HTML page, or else its text without tags.
fn message_in_page(page: &str) -> String {
    // Same length, so that positions match.
    let lower = page.to_ascii_lowercase();
    if let Some(start) = lower.find("<title") {
        let title_tag = &page[start..];
        let title = title_tag.split_once('>').map_or("", |(_, rest)| rest);
        let title = title.split('<').next().unwrap_or_default().trim();
        if !title.is_empty() {
            return unescape_html(title);
        }
    }
    let mut text = String::new();
    let mut at = 0;
    while let Some(offset) = page[at..].find('<') {
        let open = at + offset;
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
    unescape_html(&text)
}

fn unescape_html(text: &str) -> String {
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
