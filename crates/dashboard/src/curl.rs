//! A request as a line for a shell that makes it again.
//!
//! What came is hostile, and this text is pasted into shells: everything stands in single quotes,
//! what no quote can hold safely comes from a file, and what is masked is a variable.

use surehook_core::redact::MASK;

/// The largest body that stands in the line itself.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Lines that belong to a connection and not to what was said; `curl` writes its own.
const OF_THE_CONNECTION: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
    "proxy-connection",
    "proxy-authorization",
];

/// How the name of every variable of a masked value begins.
const PREFIX: &str = "MASKED_";

/// What is made again.
pub(crate) struct Request<'r> {
    /// Scheme and host; a variable stands in for one that nobody knows.
    pub(crate) origin: Option<&'r str>,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, Option<String>)>,
    /// `None` if it is not text, or is not known as a whole.
    pub(crate) body: Option<&'r str>,
}

/// The line, and whether it wants the body in a file called `body.bin`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) wants_file: bool,
}

impl Request<'_> {
    pub(crate) fn line(&self) -> Line {
        let url = match self.origin {
            Some(origin) => quoted(&format!("{origin}{}", self.path), &mut query_names(&self.path)),
            None => {
                format!("\"$SUREHOOK_URL\"{}", quoted(&self.path, &mut query_names(&self.path)))
            }
        };
        let mut parts = vec![format!("curl --globoff {url}")];
        let is_kept =
            |name: &str| !OF_THE_CONNECTION.iter().any(|other| name.eq_ignore_ascii_case(other));
        for (name, value) in self.headers.iter().filter(|(name, _)| is_kept(name)) {
            // Bytes that are not text cannot be typed; whoever needs them sees the line missing.
            let Some(value) = value.as_deref().filter(|value| is_typed(value)) else { continue };
            parts.push(format!("-H {}", header(name, value)));
        }
        let says_kind =
            |(name, _): &(String, Option<String>)| name.eq_ignore_ascii_case("content-type");
        if !self.headers.iter().any(says_kind) {
            // Without this, curl would call it a form.
            parts.push("-H 'content-type:'".to_owned());
        }
        let inline = self.body.filter(|body| body.len() <= INLINE_BYTES_MAX && is_typed(body));
        match inline {
            Some("") => parts.push("-X POST".to_owned()),
            Some(body) => {
                let mut count = 0;
                let mut name = || {
                    count += 1;
                    format!("{PREFIX}{count}")
                };
                // Not `--data`, to which `@` at the beginning is the name of a file.
                parts.push(format!("--data-raw {}", quoted(body, &mut name)));
            }
            None => parts.push("--data-binary @body.bin".to_owned()),
        }
        Line { text: parts.join(" \\\n  "), wants_file: inline.is_none() }
    }
}

/// Whether a terminal takes a text for what it is: keys like escape or return do something there.
fn is_typed(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
}

fn header(name: &str, value: &str) -> String {
    let variable = variable(name);
    if value.is_empty() {
        return quoted(&format!("{name};"), &mut || variable.clone());
    }
    quoted(&format!("{name}: {value}"), &mut || variable.clone())
}

/// The name of a variable for what a name says. Whoever sends chooses that name: the prefix keeps it
/// from being one of a variable that whoever pastes the line has already, such as a key of a cloud.
fn variable(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let text: String = name.chars().map(upper).collect();
    format!("{PREFIX}{text}")
}

/// Names for the masked values of a query, one after the other.
fn query_names(path: &str) -> impl FnMut() -> String {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let masked = query.split('&').filter(|pair| pair.contains(MASK));
    let names: Vec<String> =
        masked.map(|pair| variable(pair.split('=').next().unwrap_or_default())).collect();
    let mut names = names.into_iter();
    move || names.next().unwrap_or_else(|| format!("{PREFIX}VALUE"))
}

/// A text as one word of a shell; what is masked in it becomes a variable.
fn quoted(text: &str, name: &mut dyn FnMut() -> String) -> String {
    let mut word = String::with_capacity(text.len() + 2);
    for (at, part) in text.split(MASK).enumerate() {
        if at > 0 {
            word.push_str(&format!("\"${{{}}}\"", name()));
        }
        if !part.is_empty() || at == 0 {
            word.push('\'');
            word.push_str(&part.replace('\'', r"'\''"));
            word.push('\'');
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: Option<&str>) -> Request<'_> {
        let kind = ("Content-Type".to_owned(), Some("text/plain".to_owned()));
        Request {
            origin: Some("https://h.example"),
            path: "/in/a".to_owned(),
            headers: vec![kind],
            body,
        }
    }

    #[test]
    fn a_line_says_what_was_said() {
        let mut wanted = request(Some("{\"a\":1}"));
        wanted.path = "/in/a?token=•••&b=[1]".to_owned();
        for (name, value) in [
            ("host", "other.example"),
            ("X-Signature", MASK),
            ("authorization", "Bearer •••"),
            ("x-empty", ""),
            ("x-odd", "a\u{1b}[2J"),
        ] {
            wanted.headers.push((name.to_owned(), Some(value.to_owned())));
        }
        wanted.headers.push(("x-bytes".to_owned(), None));
        let expected = r#"curl --globoff 'https://h.example/in/a?token='"${MASKED_TOKEN}"'&b=[1]' \
  -H 'Content-Type: text/plain' \
  -H 'X-Signature: '"${MASKED_X_SIGNATURE}" \
  -H 'authorization: Bearer '"${MASKED_AUTHORIZATION}" \
  -H 'x-empty;' \
  --data-raw '{"a":1}'"#;
        assert_eq!(wanted.line(), Line { text: expected.to_owned(), wants_file: false });
    }

    #[test]
    fn no_variable_is_one_that_somebody_has_already() {
        for (name, expected) in [
            ("aws-secret-access-key", "MASKED_AWS_SECRET_ACCESS_KEY"),
            ("authorization", "MASKED_AUTHORIZATION"),
            ("1st", "MASKED_1ST"),
            ("", "MASKED_"),
        ] {
            assert_eq!(variable(name), expected, "case: {name}");
        }
    }

    #[test]
    fn nothing_leaves_its_quotes() {
        let last = |body: &str| {
            request(Some(body)).line().text.lines().skip(2).collect::<Vec<_>>().join("\n")
        };
        for (body, expected) in [
            ("'; rm -rf /; '", r"  --data-raw ''\''; rm -rf /; '\'''"),
            ("$(id) `id` $HOME !!", "  --data-raw '$(id) `id` $HOME !!'"),
            ("a\nb", "  --data-raw 'a\nb'"),
            ("@/etc/passwd", "  --data-raw '@/etc/passwd'"),
            ("\\", "  --data-raw '\\'"),
            (
                "{\"p\":\"•••\",\"q\":\"•••\"}",
                "  --data-raw '{\"p\":\"'\"${MASKED_1}\"'\",\"q\":\"'\"${MASKED_2}\"'\"}'",
            ),
            ("", "  -X POST"),
        ] {
            assert_eq!(last(body), expected, "case: {body}");
        }
    }

    #[test]
    fn a_shell_gives_back_every_byte() {
        for body in
            ["'; echo bad; '", "\"$(echo bad)\"\\", "a\n'b'\n", "''", "-x", "~ * ? {a,b} `x`"]
        {
            let word = quoted(body, &mut || String::new());
            let script = format!("printf %s {word}");
            let ran = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(ran.stdout).unwrap(), body);
        }
    }

    #[test]
    fn what_cannot_be_typed_comes_from_a_file() {
        let large = "x".repeat(INLINE_BYTES_MAX + 1);
        for body in [None, Some("a\0b"), Some("a\u{1b}[201~id\r"), Some(large.as_str())] {
            let line = request(body).line();
            assert!(line.wants_file && line.text.ends_with("--data-binary @body.bin"), "{line:?}");
        }
    }

    #[test]
    fn without_a_kind_and_a_host_nothing_is_made_up() {
        let wanted =
            Request { origin: None, path: "/in/a".to_owned(), headers: vec![], body: Some("x") };
        assert_eq!(
            wanted.line().text,
            "curl --globoff \"$SUREHOOK_URL\"'/in/a' \\\n  -H 'content-type:' \\\n  --data-raw 'x'"
        );
    }
}
