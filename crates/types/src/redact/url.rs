//! Masks secrets in the queries of configured URLs, such as `https://…/in?token=…`.

use super::{
    form::{self, decoded, is_mask},
    names::SecretNames,
};

/// Masks the secrets in the query of a URL.
pub fn mask_url(url: &str) -> String {
    match url.split_once('?') {
        Some((place, query)) => {
            format!("{place}?{}", form::mask_query(query, &SecretNames::builtin()))
        }
        None => url.to_owned(),
    }
}

/// Replaces the masks in a URL by the secrets of `stored`.
///
/// For each name the first mask stands for the first secret. A mask without a secret stays.
pub fn unmask_url(shown: &str, stored: &str) -> String {
    let (Some((place, query)), Some((_, stored))) = (shown.split_once('?'), stored.split_once('?'))
    else {
        return shown.to_owned();
    };
    let names = SecretNames::builtin();
    let mut secrets: Vec<_> =
        stored.split('&').filter_map(|pair| form::secret_pair(pair, &names)).collect();
    let mut uncovered = |pair: &str| {
        let (name, _) = pair.split_once('=').filter(|(_, value)| is_mask(value))?;
        let decoded_text = decoded(name);
        let under = secrets.iter().position(|(name, _)| decoded(name) == decoded_text)?;
        Some(format!("{name}={}", secrets.remove(under).1))
    };
    let pairs = query.split('&').map(|pair| uncovered(pair).unwrap_or_else(|| pair.to_owned()));
    format!("{place}?{}", pairs.collect::<Vec<_>>().join("&"))
}

/// Whether a query contains a mask, alone or as a value.
pub fn has_mask(query: &str) -> bool {
    let mut values =
        query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    values.any(is_mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_destination_urls_are_masked() {
        for (shown, expected) in [
            ("https://h.example/a", "https://h.example/a"),
            ("https://h.example/a?b=1", "https://h.example/a?b=1"),
            ("https://h.example/a?b=1&token=canary", "https://h.example/a?b=1&token=•••"),
            ("https://h.example?Api-Key=canary&b", "https://h.example?Api-Key=•••&b"),
            ("builtin:inbox", "builtin:inbox"),
            ("env:REDIS", "env:REDIS"),
            ("", ""),
        ] {
            assert_eq!(mask_url(shown), expected, "case: {shown}");
            assert_eq!(mask_url(expected), expected, "case: {shown}, shown again");
        }
    }

    #[test]
    fn masks_are_replaced_by_the_stored_secret_of_the_same_name() {
        let stored = "https://h/a?token=1&b=2&token=3&k%65y=4";
        for (shown, expected) in [
            ("https://h/a?token=•••&b=2&token=•••&k%65y=•••", stored),
            ("https://h/b?key=•••&token=•••", "https://h/b?key=4&token=1"),
            ("https://h/a?token=%e2%80%a2%E2%80%A2%e2%80%a2", "https://h/a?token=1"),
            ("https://h/a?token=9&b=8", "https://h/a?token=9&b=8"),
            ("https://h/a", "https://h/a"),
            // A mask is never replaced by the secret of another name.
            ("https://h/a?b=•••", "https://h/a?b=•••"),
            ("https://h/a?x=•••&•••", "https://h/a?x=•••&•••"),
            ("https://h/a?key=•••&key=•••", "https://h/a?key=4&key=•••"),
        ] {
            assert_eq!(unmask_url(shown, stored), expected, "case: {shown}");
            let query = expected.split_once('?').map_or("", |(_, query)| query);
            assert_eq!(has_mask(query), query.contains('•'), "case: {shown}");
        }
        assert_eq!(unmask_url("https://h/?key=•••", "https://h/"), "https://h/?key=•••");
    }
}
