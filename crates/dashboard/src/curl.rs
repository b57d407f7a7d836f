//! A request as a `curl` command.
//!
//! Requests are attacker-controlled and the command is pasted into shells: every argument is
//! single-quoted, a body that cannot be quoted safely is read from a file, masked values are variables.

use surehook_types::redact::MASK;

/// Larger bodies are read from a file.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Headers of the connection, which `curl` sets itself.
const CONNECTION_HEADERS: [&str; 12] = [
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

/// Prefix of the variables for masked values.
const PREFIX: &str = "MASKED_";

pub(crate) struct CurlRequest<'r> {
    /// Scheme and host; `None` is replaced by a variable.
    pub(crate) origin: Option<&'r str>,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, Option<String>)>,
    /// `None` if it is not text, or not known completely.
    pub(crate) body: Option<&'r str>,
}

/// A command, and whether it needs the body in a file called `body.bin`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CurlCommand {
    pub(crate) text: String,
    pub(crate) needs_body_file: bool,
}

impl CurlRequest<'_> {
    pub(crate) fn to_command(&self) -> CurlCommand {
        let url = match self.origin {
            Some(origin) => shell_quote(
                &format!("{origin}{}", self.path),
                &mut query_variable_names(&self.path),
            ),
            None => {
                format!(
                    "\"$SUREHOOK_URL\"{}",
                    shell_quote(&self.path, &mut query_variable_names(&self.path))
                )
            }
        };
        let mut parts = vec![format!("curl --globoff {url}")];
        let is_kept =
            |name: &str| !CONNECTION_HEADERS.iter().any(|other| name.eq_ignore_ascii_case(other));
        for (name, value) in self.headers.iter().filter(|(name, _)| is_kept(name)) {
            // Bytes that are not text cannot be pasted, so the header is left out.
            let Some(value) = value.as_deref().filter(|value| is_safe_to_paste(value)) else {
                continue;
            };
            parts.push(format!("-H {}", quote_header(name, value)));
        }
        let is_sent_content_type = |(name, value): &(String, Option<String>)| {
            name.eq_ignore_ascii_case("content-type")
                && value.as_deref().is_some_and(is_safe_to_paste)
        };
        if !self.headers.iter().any(is_sent_content_type) {
            // Otherwise curl sends a form content type.
            parts.push("-H 'content-type:'".to_owned());
        }
        let inline =
            self.body.filter(|body| body.len() <= INLINE_BYTES_MAX && is_safe_to_paste(body));
        match inline {
            Some("") => parts.push("-X POST".to_owned()),
            Some(body) => {
                let mut count = 0;
                let mut name = || {
                    count += 1;
                    format!("{PREFIX}{count}")
                };
                // Not `--data`, which reads a file if the value begins with `@`.
                parts.push(format!("--data-raw {}", shell_quote(body, &mut name)));
            }
            None => parts.push("--data-binary @body.bin".to_owned()),
        }
        CurlCommand { text: parts.join(" \\\n  "), needs_body_file: inline.is_none() }
    }
}

/// Whether a text can be pasted into a terminal: control characters would act as keys there.
fn is_safe_to_paste(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
}

fn quote_header(name: &str, value: &str) -> String {
    let variable_name = variable_name(name);
    if value.is_empty() {
        return shell_quote(&format!("{name};"), &mut || variable_name.clone());
    }
    shell_quote(&format!("{name}: {value}"), &mut || variable_name.clone())
}

/// The variable for a masked value. Senders choose header names, so the prefix keeps them from naming
/// a variable that exists in the shell of the user, such as cloud credentials.
fn variable_name(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let text: String = name.chars().map(upper).collect();
    format!("{PREFIX}{text}")
}

/// Variables for the masked values of a query, in order.
fn query_variable_names(path: &str) -> impl FnMut() -> String {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let masked = query.split('&').filter(|pair| pair.contains(MASK));
    let names: Vec<String> =
        masked.map(|pair| variable_name(pair.split('=').next().unwrap_or_default())).collect();
    let mut names = names.into_iter();
    move || names.next().unwrap_or_else(|| format!("{PREFIX}VALUE"))
}

/// Quotes a text as one shell word; masked parts become variables.
fn shell_quote(text: &str, name: &mut dyn FnMut() -> String) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    for (at, part) in text.split(MASK).enumerate() {
        if at > 0 {
            quoted.push_str(&format!("\"${{{}}}\"", name()));
        }
        if !part.is_empty() || at == 0 {
            quoted.push('\'');
            quoted.push_str(&part.replace('\'', r"'\''"));
            quoted.push('\'');
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: Option<&str>) -> CurlRequest<'_> {
        let kind = ("Content-Type".to_owned(), Some("text/plain".to_owned()));
        CurlRequest {
            origin: Some("https://h.example"),
            path: "/in/a".to_owned(),
            headers: vec![kind],
            body,
        }
    }

    #[test]
    fn command_repeats_the_request_without_connection_headers() {
        let mut request = request(Some("{\"a\":1}"));
        request.path = "/in/a?token=•••&b=[1]".to_owned();
        for (name, value) in [
            ("host", "other.example"),
            ("X-Signature", MASK),
            ("authorization", "Bearer •••"),
            ("x-empty", ""),
            ("x-odd", "a\u{1b}[2J"),
        ] {
            request.headers.push((name.to_owned(), Some(value.to_owned())));
        }
        request.headers.push(("x-bytes".to_owned(), None));
        let expected = r#"curl --globoff 'https://h.example/in/a?token='"${MASKED_TOKEN}"'&b=[1]' \
  -H 'Content-Type: text/plain' \
  -H 'X-Signature: '"${MASKED_X_SIGNATURE}" \
  -H 'authorization: Bearer '"${MASKED_AUTHORIZATION}" \
  -H 'x-empty;' \
  --data-raw '{"a":1}'"#;
        assert_eq!(
            request.to_command(),
            CurlCommand { text: expected.to_owned(), needs_body_file: false }
        );
    }

    #[test]
    fn dropped_content_type_counts_as_missing() {
        let mut request = request(Some("a"));
        request.headers = vec![("content-type".to_owned(), None)];
        let command = request.to_command().text;
        assert!(command.contains("-H 'content-type:'"), "{command}");
    }

    #[test]
    fn variable_names_have_prefix_that_avoids_existing_variables() {
        for (name, expected) in [
            ("aws-secret-access-key", "MASKED_AWS_SECRET_ACCESS_KEY"),
            ("authorization", "MASKED_AUTHORIZATION"),
            ("1st", "MASKED_1ST"),
            ("", "MASKED_"),
        ] {
            assert_eq!(variable_name(name), expected, "case: {name}");
        }
    }

    #[test]
    fn body_is_quoted_so_that_no_shell_syntax_is_executed() {
        let last = |body: &str| {
            request(Some(body)).to_command().text.lines().skip(2).collect::<Vec<_>>().join("\n")
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
    fn quoted_text_survives_the_shell_unchanged() {
        for body in
            ["'; echo bad; '", "\"$(echo bad)\"\\", "a\n'b'\n", "''", "-x", "~ * ? {a,b} `x`"]
        {
            let quoted = shell_quote(body, &mut || String::new());
            let script = format!("printf %s {quoted}");
            let ran = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(ran.stdout).unwrap(), body);
        }
    }

    #[test]
    fn binary_or_large_body_is_read_from_a_file() {
        let large = "x".repeat(INLINE_BYTES_MAX + 1);
        for body in [None, Some("a\0b"), Some("a\u{1b}[201~id\r"), Some(large.as_str())] {
            let line = request(body).to_command();
            assert!(
                line.needs_body_file && line.text.ends_with("--data-binary @body.bin"),
                "{line:?}"
            );
        }
    }

    #[test]
    fn missing_host_and_content_type_are_not_invented() {
        let request = CurlRequest {
            origin: None,
            path: "/in/a".to_owned(),
            headers: vec![],
            body: Some("x"),
        };
        assert_eq!(
            request.to_command().text,
            "curl --globoff \"$SUREHOOK_URL\"'/in/a' \\\n  -H 'content-type:' \\\n  --data-raw 'x'"
        );
    }
}
