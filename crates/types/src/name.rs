//! Names of sources and destinations; a source's name is part of its URL.

use std::{fmt, str::FromStr, sync::Arc};

use crate::json_text;

/// 1 to 64 lower-case letters, digits, `-` and `_`, beginning with a letter or digit.
/// Cheap to clone: every delivery carries the name of its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// The text is not a valid [`Name`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid name; use 1 to 64 lower-case letters, digits, `-` or `_`, beginning with a letter or digit"
)]
pub struct ParseNameError;

impl Name {
    /// A name that is known to be valid; it is not checked.
    pub fn from_static(text: &'static str) -> Self {
        Self(text.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let is_valid = (1..=64).contains(&bytes.len())
            && is_alphanumeric(bytes[0])
            && bytes.iter().all(|byte| is_alphanumeric(*byte) || matches!(byte, b'-' | b'_'));
        if is_valid { Ok(Self(text.into())) } else { Err(ParseNameError) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

json_text!(Name, "Name", {
    "description": "The name of a source or destination.",
    "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_safe_in_a_path_parse() {
        for good in ["a", "whatsapp", "shop-2", "a_b", "0"] {
            assert!(good.parse::<Name>().is_ok(), "case: {good}");
        }
        for bad in ["", "-a", "_a", "A", "a/b", "a b", "..", "a.b", "é", &"a".repeat(65)] {
            assert_eq!(bad.parse::<Name>(), Err(ParseNameError), "case: {bad}");
        }
    }
}
