//! A secret that stands first in the path, for senders that have nothing else to show.

use crate::{
    redact,
    secret::Secret,
    verify::{SignError, matching_secret},
};

/// The position of the secret that the path begins with, and what follows it.
pub(super) fn take<'p>(secrets: &[Secret], path: &'p str) -> Option<(usize, &'p str)> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    matching_secret(secrets, first.as_bytes()).map(|index| (index, rest))
}

/// Whether the path begins with what may be meant as a secret.
pub(super) fn is_shown(path: &str) -> bool {
    let first = path.strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or_default();
    !first.is_empty() && !redact::is_event_name(first)
}

/// The path that begins with the first secret.
pub(super) fn put(secrets: &[Secret]) -> Result<String, SignError> {
    secrets.first().and_then(in_path).map(|secret| format!("/{secret}")).ok_or(SignError(
        "the secret cannot stand in an address; make one of letters, digits, `-` and `_`",
    ))
}

/// What is said of secrets that no address can hold, so that they never fit there.
pub(super) fn warnings(secrets: &[Secret]) -> Vec<String> {
    let numbered = (1..).zip(secrets).filter(|(_, secret)| in_path(secret).is_none());
    let warning = |(number, _)| {
        format!(
            "secret {number} cannot stand in an address, and a request that has it there is refused; \
             make one of letters, digits, `-` and `_`, such as `openssl rand -hex 32` does"
        )
    };
    numbered.map(warning).collect()
}

/// A secret that is the same in an address: base64 with its `/`, `+` and `=` is not.
fn in_path(secret: &Secret) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let text = std::str::from_utf8(secret.expose()).ok()?;
    (!text.is_empty() && text.bytes().all(is_plain)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_segment_counts_and_it_counts_whole() {
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
            assert_eq!(take(&secrets, path), expected, "{path}");
        }
        for (path, expected) in [
            ("", false),
            ("/", false),
            ("/x", true),
            ("/x/call", true),
            ("/messages-upsert", false),
        ] {
            assert_eq!(is_shown(path), expected, "{path}");
        }
        assert_eq!(put(&secrets).as_deref(), Ok("/new"));
        assert!(warnings(&secrets).is_empty());
        for bad in ["a/b", "a b", "ç", "a?b", "YQ==", "a+b", ""] {
            assert!(put(&[Secret::new(bad)]).is_err(), "{bad}");
            assert_eq!(warnings(&[Secret::new(bad)]).len(), 1, "{bad}");
        }
    }
}
