//! The frame around every page, flash messages, and the error page.

use askama::Template;
use axum::{
    Extension,
    extract::{FromRequestParts as _, Request, State},
    middleware::Next,
    response::{Html, IntoResponse, Redirect, Response},
};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    DashboardState,
    client::ApiError,
    cookies,
    current_user::{CurrentUser, Preferences, Theme},
    lang::{Lang, fill},
    translations::{CommonTexts, ShortcutTexts},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NavItem {
    Overview,
    Live,
    Alerts,
    Requests,
    Events,
    DeadLetters,
    Replays,
    Idempotency,
    Messages,
    Conversations,
    Sources,
    Destinations,
    Routes,
    Nodes,
    Settings,
    /// Pages without a menu entry, such as the error page.
    Elsewhere,
}

pub(crate) struct MenuEntry {
    pub(crate) nav: NavItem,
    pub(crate) path: &'static str,
    pub(crate) icon: &'static str,
    /// Second key of the shortcut, after `g`.
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
}

/// A message shown once on the next page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlashMessage {
    #[serde(rename = "good")]
    pub(crate) is_success: bool,
    pub(crate) text: String,
    /// The text comes from the API, which is in English only.
    #[serde(default, rename = "foreign")]
    pub(crate) is_english: bool,
}

/// Keeps the message small enough for a cookie.
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

/// Data of `base.html`.
pub(crate) struct PageFrame {
    pub(crate) preferences: Preferences,
    pub(crate) c: &'static CommonTexts,
    pub(crate) nav: NavItem,
    pub(crate) title: String,
    pub(crate) signed_in_as: String,
    pub(crate) current_path: String,
    pub(crate) flash: Option<FlashMessage>,
    pub(crate) version: &'static str,
    pub(crate) can_operate: bool,
    pub(crate) can_administer: bool,
    /// Set while the clock is in doubt.
    pub(crate) clock_warning: Option<String>,
}

impl PageFrame {
    pub(crate) fn new(user: &CurrentUser, nav: NavItem, title: impl Into<String>) -> Self {
        let caller = user.session();
        let c = CommonTexts::of(user.lang());
        let name = caller.name.as_deref().unwrap_or(caller.role.as_str());
        let clock = user.gateway().clock_status();
        let clock_warning =
            clock.in_doubt.then(|| fill(c.clock_in_doubt, &[&clock.now, &clock.expected]));
        Self {
            preferences: user.preferences.clone(),
            c,
            nav,
            title: title.into(),
            signed_in_as: fill(c.signed_in_as, &[&name]),
            current_path: user.current_path.clone(),
            flash: user.flash.clone(),
            version: user.gateway().version(),
            can_operate: user.can_operate(),
            can_administer: user.can_administer(),
            clock_warning,
        }
    }

    /// The frame of a page that the menu leads to, with its name there as the title.
    pub(crate) fn of_menu(user: &CurrentUser, nav: NavItem) -> Self {
        let mut frame = Self::new(user, nav, "");
        let entries = frame.menu().into_iter().flat_map(|(_, entries)| entries);
        frame.title = entries.filter(|entry| entry.nav == nav).map(|entry| entry.name).collect();
        frame
    }

    pub(crate) fn lang(&self) -> Lang {
        self.preferences.lang
    }

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
                    entry(NavItem::Alerts, "/alerts", "warn", "a", c.alerts),
                    entry(NavItem::Requests, "/requests", "door", "q", c.requests),
                ],
            ),
            (
                c.group_recover,
                vec![
                    entry(NavItem::DeadLetters, "/dead-letters", "dead", "d", c.dead_letters),
                    entry(NavItem::Replays, "/replays", "replay", "r", c.replays),
                    entry(NavItem::Idempotency, "/idempotency", "copy", "i", c.idempotency),
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
                    entry(NavItem::Nodes, "/nodes", "swap", "n", c.nodes),
                    entry(NavItem::Settings, "/settings", "settings", "g", c.settings),
                ],
            ),
        ]
    }
}

/// The result of a handler.
pub(crate) type PageResult = Result<Response, ApiError>;

pub(crate) fn render_page(page: &impl Template) -> PageResult {
    Ok(render(StatusCode::OK, page))
}

pub(crate) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to render a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

impl CurrentUser {
    /// Redirects to `to` and shows a success message there.
    pub(crate) fn redirect_with_notice(&self, to: &str, text: impl Into<String>) -> Response {
        self.redirect_with_flash(
            to,
            FlashMessage { is_success: true, text: text.into(), is_english: false },
        )
    }

    /// Redirects to `to` and shows the result of an action there.
    pub(crate) fn redirect_with_result<T>(
        &self,
        to: &str,
        result: Result<T, ApiError>,
        notice: &str,
    ) -> Response {
        match result {
            Ok(_) => self.redirect_with_notice(to, notice),
            Err(error) => self.redirect_with_error(to, &error),
        }
    }

    /// Redirects to `to` and shows the error there.
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

/// The path, unless it leads to another site (`//host`): then the start page.
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

/// The error as part of a response without a body: [`render_error_pages`] adds the page.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        Extension(self).into_response()
    }
}

/// Renders the page for the error of a handler, in the language of the user.
pub(crate) async fn render_error_pages(
    State(dashboard): DashboardState,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    let mut response = next.run(Request::from_parts(head.clone(), body)).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let user = match CurrentUser::from_request_parts(&mut head, &dashboard).await {
        Ok(user) => user,
        Err(login) => return login,
    };
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let c = CommonTexts::of(user.lang());
    let (heading, text) = match status {
        StatusCode::NOT_FOUND => (c.error_not_found, c.error_not_found_text),
        StatusCode::FORBIDDEN => (c.error_forbidden, c.error_forbidden_text),
        StatusCode::SERVICE_UNAVAILABLE => (c.error_unavailable, c.error_unavailable_text),
        _ => (c.error_title, ""),
    };
    let frame = PageFrame::new(&user, NavItem::Elsewhere, heading);
    render(status, &ErrorPage { frame, heading, text, detail: error.detail })
}

/// Removes the flash cookie once a page has shown its message.
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
    fn redirect_to_another_site_becomes_the_start_page() {
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
    fn flash_message_survives_its_cookie() {
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
