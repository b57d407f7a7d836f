//! A settings file as it was written: where each value stands, and errors that say so.
//!
//! Everything that reads such a file goes through this: `serve`, a reload, `config`, `apply` and `diff`.
//! The file is TOML or JSON; only TOML has positions for errors that are found after parsing.

use std::{fmt, ops::Range, path::Path};

use anyhow::Context as _;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::Settings;

/// A settings file.
#[derive(Clone, Debug)]
pub(crate) struct SettingsDocument {
    name: String,
    text: String,
}

/// Why a settings file is refused: `surehook.toml:12:11: destinations.crm.timeout: …`.
#[derive(Debug)]
pub(crate) struct SettingsFileError {
    file: String,
    position: Option<Position>,
    message: String,
}

/// A place in a file, counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    line: usize,
    column: usize,
}

impl fmt::Display for SettingsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, position, message } = self;
        match position {
            Some(Position { line, column }) => write!(f, "{file}:{line}:{column}: {message}"),
            None => write!(f, "{file}: {message}"),
        }
    }
}

impl std::error::Error for SettingsFileError {}

/// Sections that a running gateway changes over its API; all others are settings of the server.
const CONFIGURATION_SECTIONS: [&str; 3] = ["sources", "destinations", "routes"];

impl SettingsDocument {
    pub(crate) fn new(name: impl Into<String>, text: String) -> Self {
        Self { name: name.into(), text }
    }

    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot read the settings file {}", path.display());
        let text = std::fs::read_to_string(path).with_context(context)?;
        Ok(Self::new(path.display().to_string(), text))
    }

    /// TOML never starts with a brace.
    fn is_json(&self) -> bool {
        self.text.trim_start().starts_with('{')
    }

    /// The content without types, for overriding it with the environment.
    pub(crate) fn table(&self) -> Result<toml::Table, SettingsFileError> {
        match self.is_json() {
            true => serde_json::from_str(&self.text).map_err(|error| self.json_error(&error)),
            false => toml::from_str(&self.text).map_err(|error| self.toml_error(&error)),
        }
    }

    /// The settings of the file alone.
    pub(crate) fn settings(&self) -> Result<Settings, SettingsFileError> {
        match self.is_json() {
            true => serde_json::from_str(&self.text).map_err(|error| self.json_error(&error)),
            false => toml::from_str(&self.text).map_err(|error| self.toml_error(&error)),
        }
    }

    /// The settings of the server in this file, which `apply` does not change.
    pub(crate) fn server_sections(&self) -> Vec<String> {
        let keys = self.table().unwrap_or_default();
        let is_of_server = |key: &String| !CONFIGURATION_SECTIONS.contains(&key.as_str());
        keys.into_iter().map(|(key, _)| key).filter(is_of_server).collect()
    }

    /// Where this file sets `key`: `surehook.toml:3`.
    pub(crate) fn place_of(&self, key: &str) -> String {
        match self.line_of(key) {
            Some(line) => format!("{}:{line}", self.name),
            None => self.name.clone(),
        }
    }

    /// The line of a setting such as `limits.body_bytes_max`, if this file sets it.
    fn line_of(&self, key: &str) -> Option<usize> {
        let tree = self.tree()?;
        let (span, found) = find_key(tree.get_ref(), key)?;
        (found == key).then(|| self.position(span.start).line)
    }

    /// Whether this file sets `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        let table = toml::Value::Table(self.table().unwrap_or_default());
        let mut at = Some(&table);
        for part in key.split('.') {
            at = at.and_then(|value| value.get(part));
        }
        at.is_some()
    }

    /// An error that was found after parsing, such as an unknown destination of a route. The position is
    /// that of the value which the message begins with.
    pub(crate) fn error(&self, message: &str) -> SettingsFileError {
        let span = self.tree().and_then(|tree| find_subject(tree.get_ref(), message));
        SettingsFileError {
            file: self.name.clone(),
            position: span.map(|span| self.position(span.start)),
            message: with_suggestion(message),
        }
    }

    fn toml_error(&self, error: &toml::de::Error) -> SettingsFileError {
        let start = error.span().map(|span| span.start);
        let tree = self.tree();
        let path =
            start.zip(tree.as_ref()).and_then(|(start, tree)| path_at(tree.get_ref(), start));
        let message = with_suggestion(&without_quoted_text(error.message().trim_end()));
        // The header of an unknown table stands for the table; the message names it.
        let is_unknown = |key: &str| message.starts_with(&format!("unknown key `{key}`"));
        let path = path.map(|path| match path.rsplit_once('.') {
            Some((parent, key)) if is_unknown(key) => parent.to_owned(),
            None if is_unknown(&path) => String::new(),
            Some(_) | None => path,
        });
        let message = match path {
            Some(path) if !path.is_empty() && !message.starts_with(&path) => {
                format!("{path}: {message}")
            }
            Some(_) | None => message,
        };
        let position = start.map(|start| self.position(start));
        SettingsFileError { file: self.name.clone(), position, message }
    }

    fn json_error(&self, error: &serde_json::Error) -> SettingsFileError {
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let place = format!(" at line {line} column {column}");
        let message = message.strip_suffix(&place).unwrap_or(&message);
        SettingsFileError {
            file: self.name.clone(),
            position: (line > 0).then_some(Position { line, column }),
            message: with_suggestion(&without_quoted_text(message)),
        }
    }

    /// The values with their positions; `None` if the file is not TOML.
    fn tree(&self) -> Option<Spanned<DeTable<'_>>> {
        DeTable::parse(&self.text).ok()
    }

    fn position(&self, offset: usize) -> Position {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// The path of the value at `offset`, such as `destinations.crm.timeout`. For a key it is the table that
/// the key is in.
fn path_at(table: &DeTable<'_>, offset: usize) -> Option<String> {
    let join = |key: &str, rest: String| match rest.as_str() {
        "" => key.to_owned(),
        rest => format!("{key}.{rest}"),
    };
    for (key, value) in table {
        if key.span().contains(&offset) && !is_header(value, offset) {
            return Some(String::new());
        }
        if let Some(rest) = path_in(value, offset) {
            return Some(join(key.get_ref(), rest));
        }
    }
    None
}

/// Whether the key at `offset` is a part of the header of a table, which stands for the table.
fn is_header(value: &Spanned<DeValue<'_>>, offset: usize) -> bool {
    match value.get_ref() {
        DeValue::Array(items) => items.iter().any(|item| item.span().contains(&offset)),
        DeValue::Table(_) => value.span().contains(&offset),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => false,
    }
}

fn path_in(value: &Spanned<DeValue<'_>>, offset: usize) -> Option<String> {
    let nested = match value.get_ref() {
        DeValue::Table(table) => path_at(table, offset),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            let rest = path_in(item, offset)?;
            let name = text_of(item, "name").map_or_else(|| index.to_string(), ToOwned::to_owned);
            Some(if rest.is_empty() { name } else { format!("{name}.{rest}") })
        }),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    };
    nested.or_else(|| value.span().contains(&offset).then(String::new))
}

/// The text of a key in a table.
fn text_of<'a>(value: &'a Spanned<DeValue<'_>>, key: &str) -> Option<&'a str> {
    value.get_ref().as_table()?.get(key)?.get_ref().as_str()
}

/// The value that a message is about, by how the messages of the engine and of the settings begin.
fn find_subject(root: &DeTable<'_>, message: &str) -> Option<Range<usize>> {
    let items = |section: &str| {
        let items = root.get(section).and_then(|section| section.get_ref().as_array());
        items.into_iter().flat_map(|items| items.iter())
    };
    let named = |section: &str, name: &str| -> Vec<_> {
        items(section).filter(|item| text_of(item, "name") == Some(name)).cloned().collect()
    };
    let quoted = |text: &'_ str, prefix: &str| -> Option<(String, String)> {
        let (name, rest) = text.strip_prefix(prefix)?.split_once('`')?;
        Some((name.to_owned(), rest.to_owned()))
    };
    for section in ["source", "destination"] {
        let plural = format!("{section}s");
        if let Some((name, rest)) = quoted(message, &format!("{section} `")) {
            let item = named(&plural, &name).into_iter().next()?;
            let is_about_address = rest.contains(" is not allowed (") && section == "destination";
            let fallback = if is_about_address { "url" } else { "name" };
            return find_in_item(&item, rest.trim_start_matches([':', ' ']), fallback);
        }
        if let Some((name, _)) = quoted(message, &format!("there are two {plural} named `")) {
            let item = named(&plural, &name).into_iter().nth(1)?;
            return find_in_item(&item, "", "name");
        }
    }
    if let Some((from, rest)) = quoted(message, "route from `") {
        let (to, rest) = quoted(&rest, " to `")?;
        let is_it = |item: &&Spanned<DeValue<'_>>| {
            (text_of(item, "from"), text_of(item, "to")) == (Some(&*from), Some(&*to))
        };
        let item = items("routes").find(is_it)?;
        let rest = rest.trim_start_matches([':', ' ']);
        let end = if rest.starts_with("there is no destination") { "to" } else { "from" };
        return find_in_item(item, rest, end);
    }
    find_key(root, message).map(|(span, _)| span)
}

/// The value in a source, destination or route that the rest of a message begins with, or that of
/// `fallback`.
fn find_in_item(
    item: &Spanned<DeValue<'_>>,
    message: &str,
    fallback: &str,
) -> Option<Range<usize>> {
    let table = item.get_ref().as_table()?;
    let found = find_key(table, message).map(|(span, _)| span);
    found.or_else(|| table.get(fallback).map(Spanned::span)).or_else(|| Some(item.span()))
}

/// The value of the longest known key at the beginning of a text: `retry.jitter must be …`.
fn find_key<'a>(table: &DeTable<'_>, text: &'a str) -> Option<(Range<usize>, &'a str)> {
    let text = text.strip_prefix('`').unwrap_or(text);
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    let key = text.split(|character| !is_part(character)).next()?.trim_end_matches('.');
    let mut at = table;
    let mut found = None;
    let mut length = 0;
    for part in key.split('.') {
        let Some((written, value)) = at.get_key_value(part) else { break };
        length += part.len();
        let is_container = matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_));
        let span = match is_container && value.span().is_empty() {
            true => written.span(),
            false => value.span(),
        };
        found = Some((span, key.get(..length)?));
        length += 1;
        let Some(inner) = value.get_ref().as_table() else { break };
        at = inner;
    }
    found
}

/// Removes the text that serde quotes when it expected something else: it may be a secret, and errors are
/// logged.
fn without_quoted_text(message: &str) -> String {
    for reason in ["invalid type: string \"", "invalid value: string \""] {
        if let Some((before, quoted)) = message.split_once(reason)
            && let Some((_, expected)) = quoted.rsplit_once("\", expected ")
        {
            let reason = reason.trim_end_matches(" \"");
            return format!("{before}{reason}, expected {expected}");
        }
    }
    message.to_owned()
}

/// The least similarity of a name to the one that was probably meant.
const SIMILARITY_MIN: f64 = 0.8;

/// Adds "did you mean" to a message about an unknown key or value, if one of the known ones is near.
fn with_suggestion(message: &str) -> String {
    let Some(unknown) = UnknownName::find(message) else { return message.to_owned() };
    let UnknownName { before, what, name, known } = &unknown;
    // serde's words for what people write in a file.
    let what = match *what {
        "field" => "key",
        "variant" => "value",
        other => other,
    };
    let list = match known.is_empty() {
        true => String::new(),
        false => format!("; available: {}", known.join(", ")),
    };
    let nearest = nearest(name, known.iter().copied());
    let rest = nearest.map_or(list, |nearest| format!("; did you mean `{nearest}`?"));
    format!("{before}unknown {what} `{name}`{rest}")
}

/// The candidate that `name` was probably meant to be.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let similarity = |candidate: &str| strsim::jaro_winkler(name, candidate);
    candidates
        .map(|candidate| (similarity(candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, candidate)| candidate)
}

/// A message such as "unknown field `x`, expected one of `a`, `b`" in its parts.
struct UnknownName<'a> {
    before: &'a str,
    what: &'a str,
    name: &'a str,
    known: Vec<&'a str>,
}

impl<'a> UnknownName<'a> {
    fn find(message: &'a str) -> Option<Self> {
        let start = message.find("unknown ")?;
        let (before, rest) = message.split_at(start);
        let (what, rest) = rest["unknown ".len()..].split_once(" `")?;
        let (name, rest) = rest.split_once('`')?;
        let list = ["expected one of", "expected", "available:", "use"]
            .iter()
            .find_map(|word| rest.trim_start_matches([',', ';', ' ']).strip_prefix(word))?;
        let is_name =
            |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        let known = list
            .split(|character| !is_name(character))
            .filter(|word| !word.is_empty() && *word != "or")
            .collect();
        let is_one_word_list = !what.contains(['`', '\n']);
        is_one_word_list.then_some(Self { before, what, name, known })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"listen = "127.0.0.1:1"
[limits]
body_bytes_max = 10

[[sources]]
name = "shop"
verify = "none"

[[destinations]]
name = "crm"
url = "https://example.com/"
retry = { max_attempts = 3, jitter = 0.5 }

[[destinations]]
name = "crm"
url = "https://example.com/"

[[routes]]
from = "shop"
to = "crm"
filter = ".a"
"#;

    fn document(text: &str) -> SettingsDocument {
        SettingsDocument::new("surehook.toml", text.to_owned())
    }

    #[test]
    fn error_of_a_written_value_has_its_place_its_path_and_advice() {
        let source = |line: &str| format!("[[sources]]\nname = \"in\"\n{line}");
        let destination = |line: &str| {
            format!("[[destinations]]\nname = \"out\"\nurl = \"builtin:inbox\"\n{line}")
        };
        for (text, expected) in [
            ("listen = ", "surehook.toml:1:10: "),
            (
                "log = \"info\"\nlisten = \"x\"",
                "surehook.toml:2:10: listen: invalid socket address",
            ),
            (
                "[limits]\nbody_bytes_max = \"hunter2\"",
                "surehook.toml:2:18: limits.body_bytes_max: invalid type: string, expected usize",
            ),
            ("log = 1", "surehook.toml:1:7: log: invalid type: integer `1`, expected a string"),
            ("listem = \"x\"", "surehook.toml:1:1: unknown key `listem`; did you mean `listen`?"),
            (
                "[limits]\nbody_bytes = 1",
                "surehook.toml:2:1: limits: unknown key `body_bytes`; did you mean `body_bytes_max`?",
            ),
            ("[limit]\nx = 1", "surehook.toml:1:2: unknown key `limit`; did you mean `limits`?"),
            ("zzz = 1", "surehook.toml:1:1: unknown key `zzz`; available: listen, data, "),
            (
                &source("verfy = \"none\""),
                "surehook.toml:3:1: sources.in: unknown key `verfy`; did you mean `verify`?",
            ),
            (
                &source("verify = \"noen\""),
                "surehook.toml:3:10: sources.in.verify: unknown value `noen`; did you mean `none`?",
            ),
            (
                "[[sources]]\nprovider = \"stripe\"",
                "surehook.toml:1:1: sources.0: missing field `name`",
            ),
            (
                &destination("circuit = false"),
                "surehook.toml:4:11: destinations.out.circuit: invalid type: boolean `false`, \
                 expected \"off\", or a table such as { failures = 20, open_for = \"10s\", max_open = \"5m\" }",
            ),
            (
                &destination("circuit = { failure = 3 }"),
                "surehook.toml:4:13: destinations.out.circuit: unknown key `failure`; \
                 did you mean `failures`?",
            ),
            (
                &destination("retry = 3"),
                "surehook.toml:4:9: destinations.out.retry: invalid type: integer `3`, \
                 expected \"quick\", \"short\", \"standard\", or a table such as \
                 { max_attempts = 5, initial_delay = \"1s\" }",
            ),
            (
                &destination("retry = { jitter = true }"),
                "surehook.toml:4:20: destinations.out.retry.jitter: invalid type: boolean `true`, \
                 expected a share such as 0.1, \"full\", \"equal\", \"decorrelated\", \
                 or a duration such as \"+500ms\"",
            ),
            (
                &destination("rules = [{ status = [], then = \"dead\" }]"),
                "surehook.toml:4:21: destinations.out.rules.0.status: expected a status such as",
            ),
            (
                &source("verify = { hmac = { header = 1 } }"),
                "surehook.toml:3:30: sources.in.verify.hmac.header: expected a header name or a list",
            ),
        ] {
            let error = document(text).settings().unwrap_err().to_string();
            assert!(error.starts_with(expected), "case: {text}\n{error}\n{expected}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn error_found_after_parsing_has_the_place_of_its_subject() {
        for (message, place) in [
            ("limits.body_bytes_max must be between 1 and 2", "3:18"),
            ("source `shop`: `verify` is missing", "7:10"),
            ("source `shop`: something else", "6:8"),
            ("destination `crm`: retry.jitter must be between 0 and 1", "12:38"),
            ("destination `crm`: url: relative URL", "11:7"),
            ("destination `crm`: circuit: failures must be", "10:8"),
            ("destination `crm`: 10.0.0.7 is not allowed (private address)", "11:7"),
            ("there are two destinations named `crm`", "15:8"),
            ("route from `shop` to `crm`: filter: filter, line 1", "21:10"),
            ("route from `shop` to `crm`: there is no source with this name", "19:8"),
            ("route from `shop` to `crm`: there is no destination with this name", "20:6"),
        ] {
            let error = document(FILE).error(message).to_string();
            assert_eq!(error, format!("surehook.toml:{place}: {message}"));
        }
        let elsewhere = document(FILE).error("route from `x` to `crm`: filter").to_string();
        assert_eq!(elsewhere, "surehook.toml: route from `x` to `crm`: filter");
    }

    #[test]
    fn unknown_name_gets_the_nearest_known_one() {
        for (message, expected) in [
            (
                "source `a`: unknown provider `strip`; available: stripe, github",
                "source `a`: unknown provider `strip`; did you mean `stripe`?",
            ),
            (
                "destination `b`: unknown retry policy `eager`; use quick, short or standard",
                "destination `b`: unknown retry policy `eager`; available: quick, short, standard",
            ),
            ("the reason is unknown", "the reason is unknown"),
            ("unknown method `x` at line 1", "unknown method `x` at line 1"),
        ] {
            assert_eq!(with_suggestion(message), expected);
        }
    }

    #[test]
    fn json_is_read_too_with_the_place_of_an_error() {
        let good = document(
            "{\"sources\": [{\"name\": \"in\", \"verify\": \"none\"}], \"log\": \"warn\"}",
        );
        assert_eq!(good.settings().unwrap().sources.len(), 1);
        assert_eq!(good.server_sections(), ["log"]);
        assert!(good.has("log") && !good.has("limits.body_bytes_max"));

        let bad = document("{\n \"listem\": 1}").settings().unwrap_err().to_string();

        assert_eq!(bad, "surehook.toml:2:9: unknown key `listem`; did you mean `listen`?");
    }

    #[test]
    fn line_of_a_setting_is_where_the_file_sets_it() {
        let document = document(FILE);
        let lines = ["listen", "limits.body_bytes_max", "sources", "log", "limits.log"];
        assert_eq!(lines.map(|key| document.line_of(key)), [Some(1), Some(3), Some(5), None, None]);
    }
}
