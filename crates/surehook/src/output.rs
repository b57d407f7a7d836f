//! Terminal output: tables for people, or one JSON object per line for programs.

use std::{
    fmt::Display,
    io::{ErrorKind, IsTerminal as _, Write as _},
    sync::OnceLock,
};

use clap::ColorChoice;
use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde_json::Value;

use crate::{cli::OutputArgs, error::CliError, settings::environment};

/// Set once, after the command line was parsed.
#[derive(Clone, Copy, Debug, Default)]
struct OutputSettings {
    stdout_color: bool,
    stderr_color: bool,
    quiet: bool,
}

static OUTPUT_SETTINGS: OnceLock<OutputSettings> = OnceLock::new();

pub(crate) fn configure(args: OutputArgs) {
    let is_set = |name| environment(name).is_some_and(|value| !value.is_empty());
    let use_color = |is_terminal| match args.color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => !is_set("NO_COLOR") && (is_terminal || is_set("CLICOLOR_FORCE")),
    };
    // Only `main` calls this, once.
    let _first = OUTPUT_SETTINGS.set(OutputSettings {
        stdout_color: use_color(std::io::stdout().is_terminal()),
        stderr_color: use_color(std::io::stderr().is_terminal()),
        quiet: args.quiet,
    });
}

fn settings() -> OutputSettings {
    OUTPUT_SETTINGS.get().copied().unwrap_or_default()
}

/// Whether a progress bar would be visible.
pub(crate) fn shows_progress() -> bool {
    std::io::stderr().is_terminal() && !settings().quiet
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStyle {
    Success,
    Warning,
    Error,
    Dim,
}

impl OutputStyle {
    fn code(self) -> &'static str {
        match self {
            Self::Success => "32",
            Self::Warning => "33",
            Self::Error => "31",
            Self::Dim => "2",
        }
    }
}

/// Styles text for standard output.
pub(crate) fn style(style: OutputStyle, text: &str) -> String {
    if settings().stdout_color {
        format!("\u{1b}[{}m{text}\u{1b}[0m", style.code())
    } else {
        text.to_owned()
    }
}

/// Styles text for standard error.
pub(crate) fn style_error(text: &str) -> String {
    if settings().stderr_color { format!("\u{1b}[1;31m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Prints a note to standard error, unless `--quiet`. Results go to standard output.
#[expect(clippy::print_stderr, reason = "results are on standard output")]
pub(crate) fn note(text: &str) {
    if !settings().quiet {
        eprintln!("{text}");
    }
}

pub(crate) fn print_line(text: impl Display) -> Result<(), CliError> {
    write_bytes(format!("{text}\n").as_bytes())
}

/// Writes bytes without a line end. A closed output, as after `head`, ends the command without an
/// error.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(CliError::closed_output()),
        written => Ok(written?),
    }
}

/// Prints `value` as JSON, or `text`.
pub(crate) fn print_result(as_json: bool, value: &Value, text: &str) -> Result<(), CliError> {
    if as_json { print_line(value) } else { print_line(text) }
}

/// Prints an object as JSON, or its fields one per line.
pub(crate) fn print_object(as_json: bool, object: &Value, names: &[&str]) -> Result<(), CliError> {
    if as_json { print_line(object) } else { print_fields(object, names) }
}

/// Prints one JSON object per line.
pub(crate) fn print_json_lines(rows: &[Value]) -> Result<(), CliError> {
    rows.iter().try_for_each(print_line)
}

/// Prints a table. `columns` are pairs of title and field.
pub(crate) fn print_table(columns: &[(&str, &str)], rows: &[Value]) -> Result<(), CliError> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(columns.iter().map(|(title, _)| title_cell(title)));
    if settings().stdout_color {
        table.enforce_styling();
    }
    for row in rows {
        table.add_row(columns.iter().map(|(_, field)| format_value(&row[*field])));
    }
    print_line(table)
}

fn title_cell(title: &str) -> Cell {
    let cell = Cell::new(title.to_uppercase());
    if settings().stdout_color { cell.add_attribute(Attribute::Bold) } else { cell }
}

/// Prints fields of an object, one per line.
pub(crate) fn print_fields(object: &Value, names: &[&str]) -> Result<(), CliError> {
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    names
        .iter()
        .try_for_each(|name| print_line(format!("{name:width$}  {}", format_value(&object[*name]))))
}

/// A value as text. Values come from senders, so control characters are escaped: they could rewrite the
/// terminal.
pub(crate) fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => escape_control(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Escapes control characters.
pub(crate) fn escape_control(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(format_value(&Value::from("a\u{1b}[31mb\nc")), "a\\u{1b}[31mb\\nc");
        assert_eq!(format_value(&Value::Null), "-");
        assert_eq!(format_value(&Value::from(3)), "3");
    }
}
