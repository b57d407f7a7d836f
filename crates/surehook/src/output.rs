//! What commands print: tables for people, one JSON object a line for programs.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::OnceLock,
};

use clap::ColorChoice;
use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde_json::Value;

use crate::{cli::Look, settings::environment};

/// How this process prints; set once, when the command line is known.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// Colours on standard output, and on standard error.
    colour: (bool, bool),
    quiet: bool,
}

static MANNER: OnceLock<Manner> = OnceLock::new();

/// Decides how to print.
pub(crate) fn look(look: Look) {
    let is_set = |name| environment(name).is_some_and(|value| !value.is_empty());
    let colour = |is_terminal| match look.color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => !is_set("NO_COLOR") && (is_terminal || is_set("CLICOLOR_FORCE")),
    };
    let colour = (colour(std::io::stdout().is_terminal()), colour(std::io::stderr().is_terminal()));
    // Only `main` decides, and it does so once.
    let _first = MANNER.set(Manner { colour, quiet: look.quiet });
}

fn manner() -> Manner {
    MANNER.get().copied().unwrap_or_default()
}

/// Whether a bar that moves would be seen by a person.
pub(crate) fn shows_progress() -> bool {
    std::io::stderr().is_terminal() && !manner().quiet
}

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warn,
    Bad,
    Dim,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "31",
            Self::Dim => "2",
        }
    }
}

/// Colours a text for standard output.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    if manner().colour.0 {
        format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
    } else {
        text.to_owned()
    }
}

/// Colours a text for standard error.
pub(crate) fn paint_error(text: &str) -> String {
    if manner().colour.1 { format!("\u{1b}[1;31m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Says something beside what was asked for.
#[expect(clippy::print_stderr, reason = "what was asked for is on standard output")]
pub(crate) fn note(text: &str) {
    if !manner().quiet {
        eprintln!("{text}");
    }
}

/// Whoever read the output has read enough, as `head` does.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of the output went away")
    }
}

impl std::error::Error for ReaderGone {}

/// Prints a line. A reader that went away is the end of the work, not an error.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => Ok(written?),
    }
}

/// Writes bytes and nothing else.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        written => Ok(written?),
    }
}

/// Prints each object on a line of its own.
pub(crate) fn json_lines(rows: &[Value]) -> anyhow::Result<()> {
    rows.iter().try_for_each(|row| line(&row.to_string()))
}

/// Prints a table with the given fields of each row.
pub(crate) fn table(columns: &[(&str, &str)], rows: &[Value]) -> anyhow::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(columns.iter().map(|(title, _)| title_cell(title)));
    if manner().colour.0 {
        table.enforce_styling();
    }
    for row in rows {
        table.add_row(columns.iter().map(|(_, field)| cell(&row[*field])));
    }
    line(&table.to_string())
}

fn title_cell(title: &str) -> Cell {
    let cell = Cell::new(title.to_uppercase());
    if manner().colour.0 { cell.add_attribute(Attribute::Bold) } else { cell }
}

/// Prints the fields of one object under each other.
pub(crate) fn fields(object: &Value, names: &[&str]) -> anyhow::Result<()> {
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    names.iter().try_for_each(|name| line(&format!("{name:width$}  {}", cell(&object[*name]))))
}

/// A value as a person reads it. Control characters come from strangers and could rewrite the
/// terminal: they are shown, not sent.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A text without control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped: Box<dyn Iterator<Item = char>> = if c.is_control() {
                Box::new(c.escape_default())
            } else {
                Box::new(std::iter::once(c))
            };
            escaped
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(cell(&Value::from("a\u{1b}[31mb\nc")), "a\\u{1b}[31mb\\nc");
        assert_eq!(cell(&Value::Null), "-");
        assert_eq!(cell(&Value::from(3)), "3");
    }
}
