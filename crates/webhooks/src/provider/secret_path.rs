//! A secret as the first path segment, for senders that can configure only a URL.

use surehook_types::{redact, secret::Secret};

use crate::verify::{SignError, find_matching_secret};

/// The position of the secret in the first path segment, and the rest of the path.
pub(super) fn split_secret<'p>(secrets: &[Secret], path: &'p str) -> Option<(usize, &'p str)> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    find_matching_secret(secrets, first.as_bytes()).map(|index| (index, rest))
}

/// Whether the first path segment may be meant as a secret.
pub(super) fn has_candidate(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or_default();
    !first.is_empty() && !redact::is_event_name(first)
}

/// The path with the first secret.
pub(super) fn path_with_secret(secrets: &[Secret]) -> Result<String, SignError> {
    secrets
        .first()
        .and_then(url_safe_text)
        .map(|secret| format!("/{secret}"))
        .ok_or(SignError("the secret cannot be part of a URL; use letters, digits, `-` and `_`"))
}

/// Warnings about secrets that can never match in a URL.
pub(super) fn warnings(secrets: &[Secret]) -> Vec<String> {
    let numbered = (1..).zip(secrets).filter(|(_, secret)| url_safe_text(secret).is_none());
    let warning = |(number, _)| {
        format!(
            "secret {number} cannot be part of a URL, so requests with it in the path are refused; use \
             letters, digits, `-` and `_`, for example from `openssl rand -hex 32`"
        )
    };
    numbered.map(warning).collect()
}

/// The secret as text, if it needs no escaping in a URL: base64 with `/`, `+` and `=` does.
fn url_safe_text(secret: &Secret) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let text = std::str::from_utf8(secret.expose()).ok()?;
    (!text.is_empty() && text.bytes().all(is_plain)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_must_be_the_whole_first_path_segment() {
        let secrets = [Secret::new("new"), Secret::new("old")];
        let cases = [
            ("/new", Some((0, ""))),
            ("/new/", Some((0, "/"))),
            ("/old/messages-upsert", Some((1, "/messages-upsert"))),
            ("", None),
            ("/", None),
            ("//new", None),
            ("/ne", None),
            ("/newer", None),
            ("/messages-upsert/new", None),
        ];
        for (path, expected) in cases {
            assert_eq!(split_secret(&secrets, path), expected, "{path}");
        }
        for (path, expected) in [
            ("", false),
            ("/", false),
            ("/x", true),
            ("/x/call", true),
            ("/messages-upsert", false),
        ] {
            assert_eq!(has_candidate(path), expected, "{path}");
        }
        assert_eq!(path_with_secret(&secrets).as_deref(), Ok("/new"));
        assert!(warnings(&secrets).is_empty());
        for bad in ["a/b", "a b", "ç", "a?b", "YQ==", "a+b", ""] {
            assert!(path_with_secret(&[Secret::new(bad)]).is_err(), "{bad}");
            assert_eq!(warnings(&[Secret::new(bad)]).len(), 1, "{bad}");
        }
    }
}
