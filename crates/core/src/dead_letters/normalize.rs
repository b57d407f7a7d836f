//! Normalizes an error message: replaces numbers, ids, times and quoted values by placeholders.
//!
//! Works word by word and piece by piece, so that `order-8837` and `order-9` become equal while
//! `ERR_SSL_WRONG_VERSION_NUMBER` stays. The result is still readable.

use super::SHAPE_CHARS_MAX;

pub(super) const NUMBER: &str = "#";
const ID: &str = "<id>";
const TIME: &str = "<time>";
const TEXT: &str = "<text>";
const URL: &str = "<url>";
const ADDRESS: &str = "<address>";

/// A longer word with digits is an id.
const WORD_WITH_DIGITS_CHARS_MAX: usize = 15;
/// Any longer word is an id.
const WORD_CHARS_MAX: usize = 40;
/// Longer text between quotes is not a quotation.
const QUOTED_CHARS_MAX: usize = 200;
/// Characters that are read. The shape is computed while a delivery is settled, so it must be fast.
const READ_CHARS_MAX: usize = 1024;
/// Maximum length of a unit after a number.
const UNIT_CHARS_MAX: usize = 3;

/// The text with placeholders and single spaces, at most [`SHAPE_CHARS_MAX`] long.
pub(super) fn normalize_message(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut chars = 0;
    for word in replace_quoted(text).split_whitespace() {
        let word = normalize_word(word);
        if let Some(last) = words.last_mut()
            && merge(last, &word)
        {
            continue;
        }
        chars += word.chars().count() + 1;
        words.push(word);
        // The rest would be cut off anyway.
        if chars > 2 * SHAPE_CHARS_MAX {
            break;
        }
    }
    truncate(&words.join(" "))
}

/// Truncates a text to [`SHAPE_CHARS_MAX`], with an ellipsis.
pub(super) fn truncate(text: &str) -> String {
    if text.chars().count() <= SHAPE_CHARS_MAX {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(SHAPE_CHARS_MAX - 1).collect();
    format!("{}…", beginning.trim_end())
}

/// Replaces quoted values by a placeholder.
fn replace_quoted(text: &str) -> String {
    let text: Vec<char> =
        text.chars().take(READ_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text.get(at).copied() {
        match closing(&text, at, c) {
            Some(end) => {
                out.push_str(TEXT);
                at = end + 1;
            }
            None => {
                out.push(c);
                at += 1;
            }
        }
    }
    out
}

/// The end of the quotation that begins at `at`. An apostrophe inside a word is not a quote.
fn closing(text: &[char], at: usize, c: char) -> Option<usize> {
    let close = match c {
        '"' | '\'' | '`' => c,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    let is_of_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric());
    if at > 0 && is_of_word(text.get(at - 1)) {
        return None;
    }
    let reach = text.len().min(at + 2 + QUOTED_CHARS_MAX);
    (at + 1..reach).find(|end| text[*end] == close && !is_of_word(text.get(end + 1)))
}

/// One word with placeholders.
fn normalize_word(word: &str) -> String {
    let is_punctuation = |c: char| "()[]{}<>\"',;:!?.*|=".contains(c);
    if word.contains(TEXT) {
        return word.to_owned();
    }
    let core = word.trim_matches(is_punctuation);
    let Some(start) = word.find(core).filter(|_| !core.is_empty()) else { return word.to_owned() };
    let (before, after) = (&word[..start], &word[start + core.len()..]);
    format!("{before}{}{after}", normalize_core(core))
}

/// A word without the punctuation around it, with placeholders.
fn normalize_core(core: &str) -> String {
    let digits = core.chars().filter(char::is_ascii_digit).count();
    if core.contains("://") {
        return URL.to_owned();
    }
    if core.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.')) {
        return ADDRESS.to_owned();
    }
    if digits == 0 {
        return if looks_random(core) { ID.to_owned() } else { core.to_owned() };
    }
    if is_time(core, digits) {
        return TIME.to_owned();
    }
    if core.chars().all(|c| c.is_ascii_digit() || ".,:+-/%$€#()".contains(c)) {
        return NUMBER.to_owned();
    }
    // Before splitting: the position of dashes in an id differs each time.
    let has_parts = core.contains(['/', '=', ':', '.', ',', ';', '&', '?', '(', '[', '{', '"']);
    if !has_parts && core.chars().count() > WORD_WITH_DIGITS_CHARS_MAX {
        let (beginning, rest) = prefix(core);
        return match rest.chars().count() > WORD_WITH_DIGITS_CHARS_MAX {
            true => format!("{beginning}{ID}"),
            false => normalize_pieces(core),
        };
    }
    normalize_pieces(core)
}

/// The type prefix of an id: lower-case letters up to the first `_` or `-`.
fn prefix(core: &str) -> (&str, &str) {
    let end = core.find(['_', '-']).filter(|end| {
        (1..=10).contains(end) && core[..*end].chars().all(|c| c.is_ascii_lowercase())
    });
    // Hex digits may look like a word by chance.
    let end = end.filter(|end| !core[..*end].chars().all(|c| c.is_ascii_hexdigit()));
    core.split_at(end.map_or(0, |end| end + 1))
}

/// Normalizes each alphanumeric piece.
fn normalize_pieces(core: &str) -> String {
    let mut out = String::with_capacity(core.len());
    let mut piece = String::new();
    for c in core.chars() {
        if c.is_alphanumeric() {
            piece.push(c);
            continue;
        }
        push_piece(&mut out, &piece);
        piece.clear();
        out.push(c);
    }
    push_piece(&mut out, &piece);
    out
}

fn push_piece(out: &mut String, piece: &str) {
    let normalized = normalize_piece(piece);
    if normalized == NUMBER {
        // `1.18.0` and `10:30` are one number.
        let joined = out.trim_end_matches(['.', ':', ',', '-', '+']);
        if joined.ends_with(NUMBER) && joined.len() < out.len() {
            out.truncate(joined.len());
            return;
        }
    }
    out.push_str(&normalized);
}

/// A piece of letters and digits.
fn normalize_piece(piece: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let Some(first) = piece.find(is_digit) else {
        return if looks_random(piece) { ID.to_owned() } else { piece.to_owned() };
    };
    let count = piece.chars().count();
    let is_hex = piece.chars().all(|c| c.is_ascii_hexdigit());
    let (letters, rest) = piece.split_at(first);
    let after = rest.trim_start_matches(is_digit);
    match (letters.is_empty(), after.is_empty()) {
        (true, true) => NUMBER.to_owned(),
        _ if (is_hex && count >= 8) || count > WORD_WITH_DIGITS_CHARS_MAX => ID.to_owned(),
        (false, true) => format!("{letters}{NUMBER}"),
        (true, false) if after.chars().count() <= UNIT_CHARS_MAX && !after.contains(is_digit) => {
            format!("{NUMBER}{after}")
        }
        (_, false) => ID.to_owned(),
    }
}

/// Whether letters are probably not a word.
fn looks_random(core: &str) -> bool {
    let count = core.chars().count();
    if count > WORD_CHARS_MAX {
        return !core.contains(['/', '.', ':', '=', ',', '_']);
    }
    let mut before = 'A';
    let mut turns = 0;
    for c in core.chars() {
        turns += usize::from(before.is_lowercase() && c.is_uppercase());
        before = c;
    }
    count >= 12 && turns * 5 > count
}

fn is_time(core: &str, digits: usize) -> bool {
    let is_of_time = |c: char| c.is_ascii_digit() || "TtZz:.,+-/".contains(c);
    let count_of = |known: &str| core.chars().filter(|c| known.contains(*c)).count();
    core.starts_with(|c: char| c.is_ascii_digit())
        && digits >= 6
        && core.chars().all(is_of_time)
        && (count_of(":") >= 2 || count_of("-") == 2 || count_of("/") == 2 || count_of("Tt") == 1)
}

/// Words that are part of a time. The last two are time zones: alone they are not a time.
const CALENDAR: [&str; 21] = [
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun",
    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "GMT", "UTC",
];

/// Merges a word into the previous one if both are parts of one time or of a list of placeholders.
fn merge(last: &mut String, word: &str) -> bool {
    let bare = |word: &str| word.trim_matches([',', ';', '.', ':', '[', ']', '(', ')']).to_owned();
    let (before, now) = (bare(last), bare(word));
    let is_name = |word: &str| CALENDAR[..19].contains(&word);
    let is_of_time = |word: &str| word == TIME || CALENDAR.contains(&word);
    let is_count = |word: &str| word == NUMBER;
    let end = |word: &str| word.trim_start_matches(|c| c != ']' && c != ')').to_owned();
    let is_time = (is_name(&before) && (is_count(&now) || is_name(&now) || now == TIME))
        || (is_count(&before) && (is_name(&now) || now == TIME))
        || (before == TIME && (is_count(&now) || is_of_time(&now)));
    if is_time {
        *last = format!("{TIME}{}", end(word));
        return true;
    }
    let is_list = before == now && [NUMBER, ID, TEXT, TIME].contains(&now.as_str());
    if is_list {
        let opening: String = last.chars().take_while(|c| "[(".contains(*c)).collect();
        *last = format!("{opening}{now}{}", end(word));
    }
    is_list
}
