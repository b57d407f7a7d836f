//! The cookies of the dashboard: the session, and what somebody prefers.

use http::{HeaderMap, HeaderValue, header};

/// The name of the session's cookie, whose value scripts cannot read. Over TLS browsers see to it, by
/// the name, that no other host and no page without TLS has set it.
pub(crate) fn session(is_secure: bool) -> &'static str {
    if is_secure { "__Host-surehook_session" } else { "surehook_session" }
}
/// `en`, `pt-BR`, `es`.
pub(crate) const LANG: &str = "surehook_lang";
/// `light`, `dark`; nothing for the system's.
pub(crate) const THEME: &str = "surehook_theme";
/// The name of a time zone; nothing for the browser's.
pub(crate) const ZONE: &str = "surehook_zone";
/// `off` if the keyboard's shortcuts are not wanted.
pub(crate) const KEYS: &str = "surehook_keys";
/// What the next page says idempotency_key.
pub(crate) const FLASH: &str = "surehook_flash";

/// The value of a cookie of a request.
pub(crate) fn get<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(known, value)| (known == name && !value.is_empty()).then_some(value))
}

/// A cookie that scripts cannot read; `seconds` of zero takes it away.
pub(crate) fn set(name: &str, value: &str, seconds: u64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let line = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    // Whatever cannot be in a header cannot be in a cookie either.
    HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_tls_the_session_is_for_this_host_only() {
        for (is_secure, name) in [(true, "__Host-surehook_session"), (false, "surehook_session")] {
            let line = set(session(is_secure), "shs_1", 60, is_secure);
            let line = line.to_str().unwrap();
            assert!(line.starts_with(&format!("{name}=shs_1; Path=/;")), "{line}");
            assert_eq!(line.contains("; Secure"), is_secure);
            assert!(!line.contains("Domain"), "browsers refuse such a name with it");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        for (line, expected) in [
            ("surehook_lang=es", Some("es")),
            ("a=b; surehook_lang=pt-BR;c=d", Some("pt-BR")),
            ("xsurehook_lang=es", None),
            ("surehook_lang=", None),
            ("surehook_lang", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_static(line));
            assert_eq!(get(&headers, LANG), expected, "case: {line}");
        }
    }
}
