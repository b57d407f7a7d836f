//! Cookies: the session, display preferences and flash messages.

use http::{HeaderMap, HeaderValue, header};

/// Name of the session cookie. With the `__Host-` prefix browsers guarantee that it was set over TLS
/// by this host.
pub(crate) fn session_name(is_secure: bool) -> &'static str {
    if is_secure { "__Host-surehook_session" } else { "surehook_session" }
}
/// `en`, `pt-BR`, `es`.
pub(crate) const LANG: &str = "surehook_lang";
/// `light` or `dark`; unset for the system theme.
pub(crate) const THEME: &str = "surehook_theme";
/// Time zone name; unset for the time zone of the browser.
pub(crate) const ZONE: &str = "surehook_zone";
/// `off` if keyboard shortcuts are disabled.
pub(crate) const KEYS: &str = "surehook_keys";
pub(crate) const FLASH: &str = "surehook_flash";

pub(crate) fn get<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(cookie, value)| (cookie == name && !value.is_empty()).then_some(value))
}

/// Builds an `HttpOnly` cookie; zero `seconds` deletes it.
pub(crate) fn set(name: &str, value: &str, seconds: u64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let line = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    // A value that is invalid in a header results in no cookie.
    HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_cookie_over_tls_is_bound_to_the_host() {
        for (is_secure, name) in [(true, "__Host-surehook_session"), (false, "surehook_session")] {
            let line = set(session_name(is_secure), "shs_1", 60, is_secure);
            let line = line.to_str().unwrap();
            assert!(line.starts_with(&format!("{name}=shs_1; Path=/;")), "{line}");
            assert_eq!(line.contains("; Secure"), is_secure);
            assert!(!line.contains("Domain"), "browsers reject a __Host- cookie with a domain");
        }
    }

    #[test]
    fn cookie_is_found_among_others() {
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
