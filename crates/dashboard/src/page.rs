//! A page: the frame around it, what it says idempotency_key, and what is shown when something went wrong.

use askama::Template;
use axum::response::{Html, IntoResponse, Redirect, Response};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    client::ApiError,
    cookies,
    current_user::{CurrentUser, Preferences, Theme},
    lang::{Lang, fill},
    translations::{CommonTexts, ShortcutTexts},
};

/// The entries of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NavItem {
    Overview,
    Live,
    Requests,
    Events,
    DeadLetters,
    Replays,
    Messages,
    Conversations,
    Sources,
    Destinations,
    Routes,
    Settings,
    /// A page that is in no menu.
    Elsewhere,
}

/// An entry of the menu as the frame shows it.
pub(crate) struct MenuEntry {
    pub(crate) nav: NavItem,
    pub(crate) path: &'static str,
    pub(crate) icon: &'static str,
    /// The second key of its shortcut, after `g`.
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
}

/// What the next page says idempotency_key, after something was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlashMessage {
    #[serde(rename = "good")]
    pub(crate) is_success: bool,
    pub(crate) text: String,
    /// It is in the words of the API, which are English.
    #[serde(default, rename = "foreign")]
    pub(crate) is_english: bool,
}

/// What is said idempotency_key has room in a cookie.
const FLASH_CHARS_MAX: usize = 600;

impl FlashMessage {
    pub(crate) fn from_cookie(cookie: &str) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(cookie.as_bytes()).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn to_cookie(&self) -> String {
        BASE64URL_NOPAD.encode(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

/// Everything that the frame around a page shows.
pub(crate) struct PageFrame {
    pub(crate) preferences: Preferences,
    /// The words that all pages share.
    pub(crate) c: &'static CommonTexts,
    pub(crate) nav: NavItem,
    pub(crate) title: String,
    pub(crate) who: String,
    pub(crate) here: String,
    pub(crate) flash: Option<FlashMessage>,
    pub(crate) version: &'static str,
    pub(crate) can_operate: bool,
    pub(crate) can_administer: bool,
}

impl PageFrame {
    pub(crate) fn new(user: &CurrentUser, nav: NavItem, title: impl Into<String>) -> Self {
        let caller = user.session();
        let c = CommonTexts::of(user.lang());
        let name = caller.name.as_deref().unwrap_or(caller.role.as_str());
        Self {
            preferences: user.preferences.clone(),
            c,
            nav,
            title: title.into(),
            who: fill(c.signed_in_as, &[&name]),
            here: user.here.clone(),
            flash: user.flash.clone(),
            version: user.gateway().version(),
            can_operate: user.can_operate(),
            can_administer: user.can_administer(),
        }
    }

    pub(crate) fn lang(&self) -> Lang {
        self.preferences.lang
    }

    /// The words of the help for the keyboard.
    pub(crate) fn keys(&self) -> &'static ShortcutTexts {
        ShortcutTexts::of(self.lang())
    }

    pub(crate) fn themes(&self) -> [(Theme, &'static str); 3] {
        let c = self.c;
        [
            (Theme::System, c.theme_system),
            (Theme::Light, c.theme_light),
            (Theme::Dark, c.theme_dark),
        ]
    }

    /// The menu, in groups.
    pub(crate) fn menu(&self) -> [(&'static str, Vec<MenuEntry>); 4] {
        let c = self.c;
        let entry = |nav, path, icon, key, name| MenuEntry { nav, path, icon, key, name };
        [
            (
                c.group_monitor,
                vec![
                    entry(NavItem::Overview, "/", "gauge", "o", c.overview),
                    entry(NavItem::Live, "/live", "pulse", "l", c.live),
                    entry(NavItem::Events, "/events", "event", "e", c.events),
                    entry(NavItem::Requests, "/requests", "door", "q", c.requests),
                ],
            ),
            (
                c.group_recover,
                vec![
                    entry(NavItem::DeadLetters, "/dead-letters", "dead", "d", c.dead_letters),
                    entry(NavItem::Replays, "/replays", "replay", "r", c.replays),
                ],
            ),
            (
                c.group_messaging,
                vec![
                    entry(NavItem::Messages, "/messages", "send", "m", c.messages),
                    entry(NavItem::Conversations, "/conversations", "talk", "c", c.conversations),
                ],
            ),
            (
                c.group_configure,
                vec![
                    entry(NavItem::Sources, "/sources", "source", "s", c.sources),
                    entry(NavItem::Destinations, "/destinations", "target", "t", c.destinations),
                    entry(NavItem::Routes, "/routes", "route", "u", c.routes),
                    entry(NavItem::Settings, "/settings", "settings", "g", c.settings),
                ],
            ),
        ]
    }
}

/// What a handler answers: a page, or the page that says what went wrong.
pub(crate) type PageResult = Result<Response, PageError>;

/// Makes a page of a template.
pub(crate) fn render_page(page: &impl Template) -> PageResult {
    Ok(render(StatusCode::OK, page))
}

fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page cannot be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Something did not work; knows who must be told.
pub(crate) struct PageError {
    user: Box<CurrentUser>,
    error: ApiError,
}

impl CurrentUser {
    /// For `map_err`: shows a page that says what went wrong.
    pub(crate) fn page_error(&self, error: ApiError) -> PageError {
        PageError { user: Box::new(self.clone()), error }
    }

    /// After something was done: says so on the page that is shown next.
    pub(crate) fn redirect_with_notice(&self, to: &str, text: impl Into<String>) -> Response {
        self.redirect_with_flash(
            to,
            FlashMessage { is_success: true, text: text.into(), is_english: false },
        )
    }

    /// After something was refused: says why on the page that is shown next.
    pub(crate) fn redirect_with_error(&self, to: &str, error: &ApiError) -> Response {
        let (text, is_english) = if error.detail.is_empty() {
            (CommonTexts::of(self.lang()).error_title.to_owned(), false)
        } else {
            (error.detail.clone(), error.is_from_api())
        };
        self.redirect_with_flash(to, FlashMessage { is_success: false, text, is_english })
    }

    fn redirect_with_flash(&self, to: &str, flash: FlashMessage) -> Response {
        let flash =
            FlashMessage { text: flash.text.chars().take(FLASH_CHARS_MAX).collect(), ..flash };
        let cookie = cookies::set(cookies::FLASH, &flash.to_cookie(), 60, self.is_secure());
        ([(header::SET_COOKIE, cookie)], Redirect::to(local_path(to))).into_response()
    }
}

/// A path of ours; anything else leads home. `//host` would lead away.
pub(crate) fn local_path(path: &str) -> &str {
    let leads_away = !path.starts_with('/')
        || path.starts_with("//")
        || path.starts_with("/\\")
        || path.bytes().any(|byte| byte.is_ascii_control());
    if leads_away { "/" } else { path }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: PageFrame,
    heading: &'static str,
    text: &'static str,
    detail: String,
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let c = CommonTexts::of(self.user.lang());
        let status = StatusCode::from_u16(self.error.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (heading, text) = match status {
            StatusCode::NOT_FOUND => (c.error_not_found, c.error_not_found_text),
            StatusCode::FORBIDDEN => (c.error_forbidden, c.error_forbidden_text),
            StatusCode::SERVICE_UNAVAILABLE => (c.error_unavailable, c.error_unavailable_text),
            _ => (c.error_title, ""),
        };
        let frame = PageFrame::new(&self.user, NavItem::Elsewhere, heading);
        render(status, &ErrorPage { frame, heading, text, detail: self.error.detail })
    }
}

/// Takes away what was said idempotency_key, when a page has said it.
pub(crate) fn clear_flash(had_flash: bool, mut response: Response) -> Response {
    const NAME: HeaderName = header::SET_COOKIE;
    let is_page = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/html")));
    if had_flash && is_page {
        let expired: HeaderValue = cookies::set(cookies::FLASH, "", 0, false);
        response.headers_mut().append(NAME, expired);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_away() {
        for (path, expected) in [
            ("/events?q=a", "/events?q=a"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("", "/"),
            ("/a\r\nb: c", "/"),
        ] {
            assert_eq!(local_path(path), expected, "case: {path}");
        }
    }

    #[test]
    fn what_is_said_once_survives_its_cookie() {
        let flash = FlashMessage {
            is_success: true,
            text: "pausado: «crm» <b>".to_owned(),
            is_english: true,
        };
        let read = FlashMessage::from_cookie(&flash.to_cookie()).unwrap();
        assert_eq!(
            (read.is_success, read.text, read.is_english),
            (flash.is_success, flash.text, flash.is_english)
        );
        assert!(FlashMessage::from_cookie("%%%").is_none());
    }
}
