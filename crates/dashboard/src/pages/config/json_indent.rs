//! Pretty-prints JSON by changing whitespace only, so that numbers and duplicate keys stay as received.

/// Deeper levels are not indented further: the indentation of deeply nested JSON would exceed memory.
const LEVELS_MAX: usize = 60;
/// Longer results are returned unformatted.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Formats JSON; anything else, or a result that is too long, is returned unchanged.
pub(super) fn indent_json(text: &str) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return text.to_owned();
    }
    let mut lines = String::with_capacity(text.len().min(BYTES_MAX));
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let break_line = |lines: &mut String, depth: usize| {
        lines.push('\n');
        lines.extend(std::iter::repeat_n("  ", depth.min(LEVELS_MAX)));
    };
    let mut chars = text.chars().filter(|c| *c != '\r').peekable();
    while let Some(c) = chars.next() {
        if lines.len() > BYTES_MAX {
            return text.to_owned();
        }
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
    fn indenting_changes_only_whitespace() {
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
            assert_eq!(indent_json(text), expected, "case: {text}");
        }
    }

    #[test]
    fn indenting_deep_or_long_json_is_bounded() {
        let levels = 100_000;
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(indent_json(&deep), deep, "too long in lines");
        let less = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let lines = indent_json(&less);
        let widest = lines.lines().map(str::len).max().unwrap_or_default();
        assert_eq!((lines.lines().count(), widest), (1001, 2 * LEVELS_MAX + 1));
        let wide = format!("{}{}1{}", "[".repeat(60), "1,".repeat(100_000), "]".repeat(60));
        assert_eq!(indent_json(&wide), wide);
    }
}
