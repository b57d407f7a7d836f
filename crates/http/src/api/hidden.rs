//! Which parts of a stored request are not shown: what lets somebody in somewhere.

use surehook_core::{source::SourceSpec, verify::VerifySpec};

/// What stands in place of a value.
pub(crate) const MASK: &str = "•••";

/// Names whose values are secrets.
const NAMES: [&str; 5] = ["authorization", "cookie", "proxy-authorization", "key", "auth"];
/// What such names hold, written without their dashes.
const PARTS: [&str; 5] = ["token", "secret", "password", "apikey", "accesskey"];

/// Says what to hide of the requests of one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hidden<'s> {
    /// The header that holds the source's secret itself.
    token_header: Option<&'s str>,
}

impl<'s> Hidden<'s> {
    pub(super) fn of(source: Option<&'s SourceSpec>) -> Self {
        let token_header = match source.and_then(|source| source.verify.as_ref()) {
            Some(VerifySpec::Token { header }) => Some(header.as_str()),
            Some(VerifySpec::None | VerifySpec::Hmac(_) | VerifySpec::Basic { .. }) | None => None,
        };
        Self { token_header }
    }

    /// The same for a source whose secret comes in this header.
    pub(crate) fn with(token_header: Option<&'s str>) -> Self {
        Self { token_header }
    }

    /// Whether the value under this name is a secret. A signature is not: it opens nothing else.
    pub(crate) fn hides(self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let bare = name.replace(['-', '_'], "");
        self.token_header.is_some_and(|header| header.eq_ignore_ascii_case(&name))
            || NAMES.contains(&name.as_str())
            || PARTS.iter().any(|part| bare.contains(part))
    }

    /// A query with its secrets masked.
    pub(crate) fn query(self, query: &str) -> String {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) if self.hides(name) => format!("{name}={MASK}"),
            Some(_) | None => pair.to_owned(),
        });
        pairs.collect::<Vec<_>>().join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_shows_all_but_its_secrets() {
        let cases = [
            ("a=1&b=2", "a=1&b=2"),
            ("token=x&a=1", "token=•••&a=1"),
            ("hub.verify_token=x&hub.mode=subscribe", "hub.verify_token=•••&hub.mode=subscribe"),
            ("API_KEY=x=y&apikey=z&key=k", "API_KEY=•••&apikey=•••&key=•••"),
            ("flag&keys=all&&", "flag&keys=all&&"),
        ];
        for (query, shown) in cases {
            assert_eq!(Hidden::of(None).query(query), shown, "case: {query}");
        }
    }
}
