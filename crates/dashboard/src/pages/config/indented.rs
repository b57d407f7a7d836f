//! JSON with line breaks, for people: nothing but blanks is changed.

/// The text in lines; as it is if it is no JSON.
pub(super) fn indented(text: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return text.to_owned();
    }
    let mut lines = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let break_line = |lines: &mut String, depth: usize| {
        lines.push('\n');
        lines.extend(std::iter::repeat_n("  ", depth));
    };
    let mut chars = text.chars().filter(|c| *c != '\r').peekable();
    while let Some(c) = chars.next() {
        if in_text {
            lines.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_text = true;
                lines.push(c);
            }
            '{' | '[' => {
                lines.push(c);
                while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    lines.push(end);
                } else {
                    depth += 1;
                    break_line(&mut lines, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut lines, depth);
                lines.push(c);
            }
            ',' => {
                lines.push(c);
                break_line(&mut lines, depth);
            }
            ':' => lines.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => lines.push(c),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blanks_change() {
        for (text, expected) in [
            ("{}", "{}"),
            ("[ ]", "[]"),
            ("no json", "no json"),
            (
                r#"{"a":1.0,"b":[1,"x,\"{y"]}"#,
                "{\n  \"a\": 1.0,\n  \"b\": [\n    1,\n    \"x,\\\"{y\"\n  ]\n}",
            ),
            (
                r#"{"z":820982911946154508123,"a":{}}"#,
                "{\n  \"z\": 820982911946154508123,\n  \"a\": {}\n}",
            ),
            ("\"a\\\\\"", "\"a\\\\\""),
        ] {
            assert_eq!(indented(text), expected, "case: {text}");
        }
    }
}
