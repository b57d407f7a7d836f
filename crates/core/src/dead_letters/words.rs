//! A text without what differs each time: numbers, ids, times, quoted values.
//!
//! Word by word, and each word piece by piece, so that `order-8837` and `order-9` are one, while
//! `ERR_SSL_WRONG_VERSION_NUMBER` stays what it is. What is left is for people too: they recognise the
//! message.

const NUMBER: &str = "#";
const ID: &str = "<id>";
const TIME: &str = "<time>";
const TEXT: &str = "<text>";
const URL: &str = "<url>";
const ADDRESS: &str = "<address>";

/// A word with digits in it that is longer than this is an id.
const WORD_WITH_DIGITS_CHARS_MAX: usize = 15;
/// Any word that is longer than this is one.
const WORD_CHARS_MAX: usize = 40;
/// What is quoted is not longer than this; otherwise it is no quote.
const QUOTED_CHARS_MAX: usize = 200;
/// Signs of a text that are looked at. A shape is made while a delivery is settled, and others wait.
const LOOKED_AT_CHARS_MAX: usize = 1024;
/// Letters behind a number that are its unit.
const UNIT_CHARS_MAX: usize = 3;

/// The text with placeholders, its white space squeezed, at most `chars_max` long.
pub(super) fn normalised(text: &str, chars_max: usize) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut chars = 0;
    for word in unquoted(text).split_whitespace() {
        let word = reduced(word);
        if let Some(last) = words.last_mut()
            && merge(last, &word)
        {
            continue;
        }
        chars += word.chars().count() + 1;
        words.push(word);
        // What comes later would be cut off, but for what times are merged into.
        if chars > 2 * chars_max {
            break;
        }
    }
    shortened(&words.join(" "), chars_max)
}

/// The beginning of a text, with a sign that it is one.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The text with a placeholder for each value in quotes.
fn unquoted(text: &str) -> String {
    let text: Vec<char> = text
        .chars()
        .take(LOOKED_AT_CHARS_MAX)
        .map(|sign| if sign.is_control() { ' ' } else { sign })
        .collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(sign) = text.get(at).copied() {
        match closing(&text, at, sign) {
            Some(end) => {
                out.push_str(TEXT);
                at = end + 1;
            }
            None => {
                out.push(sign);
                at += 1;
            }
        }
    }
    out
}

/// Where the quote ends that begins at `at`. The apostrophe of a word is none.
fn closing(text: &[char], at: usize, sign: char) -> Option<usize> {
    let close = match sign {
        '"' | '\'' | '`' => sign,
        '“' => '”',
        '‘' => '’',
        '«' => '»',
        _ => return None,
    };
    let is_of_word = |sign: Option<&char>| sign.is_some_and(|sign| sign.is_alphanumeric());
    if at > 0 && is_of_word(text.get(at - 1)) {
        return None;
    }
    let reach = text.len().min(at + 2 + QUOTED_CHARS_MAX);
    (at + 1..reach).find(|end| text[*end] == close && !is_of_word(text.get(end + 1)))
}

/// One word with placeholders.
fn reduced(word: &str) -> String {
    let is_around = |sign: char| "()[]{}<>\"',;:!?.*|=".contains(sign);
    if word.contains(TEXT) {
        return word.to_owned();
    }
    let core = word.trim_matches(is_around);
    let Some(start) = word.find(core).filter(|_| !core.is_empty()) else { return word.to_owned() };
    let (before, after) = (&word[..start], &word[start + core.len()..]);
    format!("{before}{}{after}", core_of(core))
}

fn core_of(core: &str) -> String {
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
    if core.chars().all(|sign| sign.is_ascii_digit() || ".,:+-/%$€#()".contains(sign)) {
        return NUMBER.to_owned();
    }
    // Before it is taken apart: where an id has its dashes differs each time.
    let has_parts = core.contains(['/', '=', ':', '.', ',', ';', '&', '?', '(', '[', '{', '"']);
    if !has_parts && core.chars().count() > WORD_WITH_DIGITS_CHARS_MAX {
        let (kept, rest) = prefix(core);
        return match rest.chars().count() > WORD_WITH_DIGITS_CHARS_MAX {
            true => format!("{kept}{ID}"),
            false => in_pieces(core),
        };
    }
    in_pieces(core)
}

/// The part of an id that says what it is of: letters in lower case up to the first `_` or `-`.
fn prefix(core: &str) -> (&str, &str) {
    let end = core.find(['_', '-']).filter(|end| {
        (1..=10).contains(end) && core[..*end].chars().all(|sign| sign.is_ascii_lowercase())
    });
    // Those of hex look like words by chance.
    let end = end.filter(|end| !core[..*end].chars().all(|sign| sign.is_ascii_hexdigit()));
    core.split_at(end.map_or(0, |end| end + 1))
}

/// Each piece between signs by itself.
fn in_pieces(core: &str) -> String {
    let mut out = String::with_capacity(core.len());
    let mut piece = String::new();
    for sign in core.chars() {
        if sign.is_alphanumeric() {
            piece.push(sign);
            continue;
        }
        push_piece(&mut out, &piece);
        piece.clear();
        out.push(sign);
    }
    push_piece(&mut out, &piece);
    out
}

fn push_piece(out: &mut String, piece: &str) {
    let reduced = piece_of(piece);
    if reduced == NUMBER {
        // `1.18.0` and `10:30` are one number, however many parts they have.
        let joined = out.trim_end_matches(['.', ':', ',', '-', '+']);
        if joined.ends_with(NUMBER) && joined.len() < out.len() {
            out.truncate(joined.len());
            return;
        }
    }
    out.push_str(&reduced);
}

/// A piece of letters and digits.
fn piece_of(piece: &str) -> String {
    let is_digit = |sign: char| sign.is_ascii_digit();
    let Some(first) = piece.find(is_digit) else {
        return if looks_random(piece) { ID.to_owned() } else { piece.to_owned() };
    };
    let many = piece.chars().count();
    let is_hex = piece.chars().all(|sign| sign.is_ascii_hexdigit());
    let (letters, rest) = piece.split_at(first);
    let after = rest.trim_start_matches(is_digit);
    match (letters.is_empty(), after.is_empty()) {
        (true, true) => NUMBER.to_owned(),
        _ if (is_hex && many >= 8) || many > WORD_WITH_DIGITS_CHARS_MAX => ID.to_owned(),
        (false, true) => format!("{letters}{NUMBER}"),
        (true, false) if after.chars().count() <= UNIT_CHARS_MAX && !after.contains(is_digit) => {
            format!("{NUMBER}{after}")
        }
        (_, false) => ID.to_owned(),
    }
}

/// Letters alone that are no word of any language or program.
fn looks_random(core: &str) -> bool {
    let many = core.chars().count();
    if many > WORD_CHARS_MAX {
        return !core.contains(['/', '.', ':', '=', ',', '_']);
    }
    let mut before = 'A';
    let mut turns = 0;
    for sign in core.chars() {
        turns += usize::from(before.is_lowercase() && sign.is_uppercase());
        before = sign;
    }
    many >= 12 && turns * 5 > many
}

fn is_time(core: &str, digits: usize) -> bool {
    let is_of_time = |sign: char| sign.is_ascii_digit() || "TtZz:.,+-/".contains(sign);
    let signs = |known: &str| core.chars().filter(|sign| known.contains(*sign)).count();
    core.starts_with(|sign: char| sign.is_ascii_digit())
        && digits >= 6
        && core.chars().all(is_of_time)
        && (signs(":") >= 2 || signs("-") == 2 || signs("/") == 2 || signs("Tt") == 1)
}

/// Parts of a time that are words; the last two are not enough for one.
const CALENDAR: [&str; 21] = [
    "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar", "Apr", "May", "Jun",
    "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "GMT", "UTC",
];

/// Puts a word into the one before it, where both together say no more than one: the parts of a time,
/// or a list of numbers.
fn merge(last: &mut String, word: &str) -> bool {
    let bare = |word: &str| word.trim_matches([',', ';', '.', ':', '[', ']', '(', ')']).to_owned();
    let (before, now) = (bare(last), bare(word));
    let is_name = |word: &str| CALENDAR[..19].contains(&word);
    let is_of_time = |word: &str| word == TIME || CALENDAR.contains(&word);
    let is_count = |word: &str| word == NUMBER;
    let end = |word: &str| word.trim_start_matches(|sign| sign != ']' && sign != ')').to_owned();
    let is_time = (is_name(&before) && (is_count(&now) || is_name(&now) || now == TIME))
        || (is_count(&before) && (is_name(&now) || now == TIME))
        || (before == TIME && (is_count(&now) || is_of_time(&now)));
    if is_time {
        *last = format!("{TIME}{}", end(word));
        return true;
    }
    let is_list = before == now && [NUMBER, ID, TEXT, TIME].contains(&now.as_str());
    if is_list {
        let opening: String = last.chars().take_while(|sign| "[(".contains(*sign)).collect();
        *last = format!("{opening}{now}{}", end(word));
    }
    is_list
}
