//! What commands print: tables for people, one JSON object a line for programs.

use std::io::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

/// Prints a line. A reader that went away is the end of the work, not an error.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::anyhow!("the reader of the output went away"))
        }
        written => Ok(written?),
    }
}

/// Says something to a person, beside what was asked for and a program may read.
#[expect(clippy::print_stderr, reason = "what was asked for is on standard output")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
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
        .set_header(columns.iter().map(|(title, _)| title.to_uppercase()));
    for row in rows {
        table.add_row(columns.iter().map(|(_, field)| cell(&row[*field])));
    }
    line(&table.to_string())
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

fn plain(text: &str) -> String {
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
