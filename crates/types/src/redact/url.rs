//! Masks secrets in configured URLs: in the query, such as `https://…/in?token=…`, and in the path.
//!
//! In a path, a segment is secret if the segment before it has a secret name (`…/key/…`), or if the
//! service says that the URL must be kept secret: Slack, Discord, Telegram, Microsoft Teams, Zapier and
//! Make put a token into the path of their webhooks. Other paths are shown: people must see where
//! requests are sent.

use super::{
    MASK,
    form::{self, is_mask, percent_decode},
    names::SecretNames,
};

/// Services whose webhook URLs have a token in their path: host, or its ending with a dot in front; and
/// the segments before the token, where `*` is any segment. All segments behind these are masked.
const SECRET_PATHS: [(&str, &[&str]); 17] = [
    ("hooks.slack.com", &["*"]),
    ("hooks.slack-gov.com", &["*"]),
    ("discord.com", &["api", "webhooks", "*"]),
    ("discord.com", &["api", "*", "webhooks", "*"]),
    (".discord.com", &["api", "webhooks", "*"]),
    (".discord.com", &["api", "*", "webhooks", "*"]),
    ("discordapp.com", &["api", "webhooks", "*"]),
    ("discordapp.com", &["api", "*", "webhooks", "*"]),
    ("api.telegram.org", &[]),
    ("outlook.office.com", &["*"]),
    ("outlook.office365.com", &["*"]),
    (".webhook.office.com", &["*"]),
    ("hooks.zapier.com", &["hooks", "*", "*"]),
    (".make.com", &[]),
    (".make.celonis.com", &[]),
    ("hook.integromat.com", &[]),
    ("maker.ifttt.com", &["trigger", "*", "with", "key"]),
];

/// The parts of a URL without its query: up to its host, and its path.
fn split_url(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(url.len(), |scheme| scheme + 3);
    let path = url[start..].find('/').map_or(url.len(), |slash| start + slash);
    url.split_at(path)
}

/// The segments of a path behind `base` (scheme and host), each with whether it is secret.
fn path_segments<'p>(base: &str, path: &'p str) -> Vec<(&'p str, bool)> {
    let authority = base.rsplit('/').next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = authority.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let is_host = |known: &str| match known.starts_with('.') {
        true => host.ends_with(known),
        false => host == known,
    };
    // The first is empty: a path begins with a slash.
    let segments: Vec<&str> = path.split('/').collect();
    let named: Vec<&str> = segments.iter().skip(1).copied().collect();
    let fits = |(known, shape): &&(&str, &[&str])| {
        let same = |(expected, segment): (&&str, &&str)| *expected == "*" || expected == segment;
        is_host(known) && named.len() > shape.len() && shape.iter().zip(&named).all(same)
    };
    let first_secret = SECRET_PATHS.iter().find(fits).map(|(_, shape)| 1 + shape.len());
    let names = SecretNames::builtin();
    let is_secret = |index: usize| {
        first_secret.is_some_and(|first| index >= first)
            || index > 0 && names.is_secret_parameter(&percent_decode(segments[index - 1]))
    };
    segments
        .iter()
        .enumerate()
        .map(|(index, segment)| (*segment, !segment.is_empty() && is_secret(index)))
        .collect()
}

/// Masks the path of a URL without a query.
fn mask_path_of(url: &str) -> String {
    let (base, path) = split_url(url);
    let masked = path_segments(base, path);
    let masked = masked.iter().map(|(segment, is_secret)| if *is_secret { MASK } else { segment });
    format!("{base}{}", masked.collect::<Vec<_>>().join("/"))
}

/// Masks the secrets in the path and the query of a URL.
pub fn mask_url(url: &str) -> String {
    match url.split_once('?') {
        Some((url, query)) => {
            let query = form::mask_query(query, &SecretNames::builtin());
            format!("{}?{query}", mask_path_of(url))
        }
        None => mask_path_of(url),
    }
}

/// Replaces the masks in a path by the secrets of `stored`, if all other segments are the same.
fn unmask_path_of(masked: &str, stored: &str) -> String {
    let (base, path) = split_url(masked);
    let (stored_base, stored_path) = split_url(stored);
    let segments = path_segments(stored_base, stored_path);
    let written: Vec<&str> = path.split('/').collect();
    let is_same = |(written, (stored, is_secret)): (&&str, &(&str, bool))| {
        written == stored || *is_secret && is_mask(written)
    };
    if written.len() == segments.len() && written.iter().zip(&segments).all(is_same) {
        return format!("{base}{stored_path}");
    }
    masked.to_owned()
}

/// Replaces the masks in a URL by the secrets of `stored`.
///
/// In the query, for each name the first mask stands for the first secret. A mask without a secret stays.
pub fn unmask_url(masked: &str, stored: &str) -> String {
    let (masked, masked_query) = split_query(masked);
    let (stored, stored_query) = split_query(stored);
    let url = unmask_path_of(masked, stored);
    let (Some(query), Some(stored)) = (masked_query, stored_query) else {
        return masked_query.map_or_else(|| url.clone(), |query| format!("{url}?{query}"));
    };
    let names = SecretNames::builtin();
    let mut secrets: Vec<_> =
        stored.split('&').filter_map(|pair| form::secret_pair(pair, &names)).collect();
    let mut unmasked = |pair: &str| {
        let (name, _) = pair.split_once('=').filter(|(_, value)| is_mask(value))?;
        let decoded_name = percent_decode(name);
        let index = secrets.iter().position(|(name, _)| percent_decode(name) == decoded_name)?;
        Some(format!("{name}={}", secrets.remove(index).1))
    };
    let pairs = query.split('&').map(|pair| unmasked(pair).unwrap_or_else(|| pair.to_owned()));
    format!("{url}?{}", pairs.collect::<Vec<_>>().join("&"))
}

fn split_query(url: &str) -> (&str, Option<&str>) {
    url.split_once('?').map_or((url, None), |(before, query)| (before, Some(query)))
}

/// Whether a path or a query contains a mask: as a segment, or alone or as a value.
pub fn has_mask(path_and_query: &str) -> bool {
    let (path, query) = split_query(path_and_query);
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let mut values = pairs.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    values.any(is_mask) || path.split('/').any(is_mask)
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
            let tail = expected.strip_prefix("https://h").unwrap();
            assert_eq!(has_mask(tail), tail.contains('•'), "case: {shown}");
        }
        assert_eq!(unmask_url("https://h/?key=•••", "https://h/"), "https://h/?key=•••");
    }

    #[test]
    fn token_in_the_path_of_a_webhook_url_is_masked_and_kept() {
        let encoded = "%E2%80%A2%e2%80%a2%E2%80%A2";
        for (stored, expected) in [
            (
                "https://hooks.slack.com/services/T0/B0/canary",
                "https://hooks.slack.com/services/•••/•••/•••",
            ),
            (
                "https://HOOKS.slack.com:443/triggers/T0/canary/canary",
                "https://HOOKS.slack.com:443/triggers/•••/•••/•••",
            ),
            (
                "https://discord.com/api/webhooks/12/canary?wait=true",
                "https://discord.com/api/webhooks/12/•••?wait=true",
            ),
            (
                "https://discord.com/api/v10/webhooks/12/canary/slack",
                "https://discord.com/api/v10/webhooks/12/•••/•••",
            ),
            (
                "https://ptb.discord.com/api/webhooks/12/canary",
                "https://ptb.discord.com/api/webhooks/12/•••",
            ),
            (
                "https://api.telegram.org/bot12:canary/sendMessage",
                "https://api.telegram.org/•••/•••",
            ),
            (
                "https://x.webhook.office.com/webhookb2/canary@t/IncomingWebhook/canary/g",
                "https://x.webhook.office.com/webhookb2/•••/•••/•••/•••",
            ),
            (
                "https://hooks.zapier.com/hooks/catch/1/canary/",
                "https://hooks.zapier.com/hooks/catch/1/•••/",
            ),
            ("https://hook.eu1.make.com/canary", "https://hook.eu1.make.com/•••"),
            (
                "https://maker.ifttt.com/trigger/e/with/key/canary",
                "https://maker.ifttt.com/trigger/e/with/key/•••",
            ),
            (
                "https://h.example/api-key/canary/in?token=canary",
                "https://h.example/api-key/•••/in?token=•••",
            ),
            ("https://discord.com/channels/1/2", "https://discord.com/channels/1/2"),
            ("https://slack.com/api/chat.postMessage", "https://slack.com/api/chat.postMessage"),
            (
                "https://evil-discord.com/api/webhooks/12/x",
                "https://evil-discord.com/api/webhooks/12/x",
            ),
            ("redis://h:6379/0", "redis://h:6379/0"),
        ] {
            assert_eq!(mask_url(stored), expected, "case: {stored}");
            assert_eq!(mask_url(expected), expected, "case: {stored}, shown again");
            assert_eq!(unmask_url(expected, stored), stored, "case: {stored}");
            let by_parser = expected.replace(MASK, encoded);
            assert_eq!(unmask_url(&by_parser, stored), stored, "case: {stored}, encoded");
        }
        let stored = "https://discord.com/api/webhooks/12/canary";
        for other in [
            "https://discord.com/api/webhooks/13/•••",
            "https://discord.com/api/webhooks/12/•••/•••",
            "https://discord.com/•••/webhooks/12/•••",
        ] {
            assert_eq!(unmask_url(other, stored), other, "case: {other}");
            assert!(has_mask(other.strip_prefix("https://discord.com").unwrap()));
        }
    }
}
