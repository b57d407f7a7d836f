//! A page: the frame around it, what it says once, and what is shown when something went wrong.

use askama::Template;
use axum::response::{Html, IntoResponse, Redirect, Response};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    client::Trouble,
    cookies,
    lang::{Lang, fill},
    visitor::{Taste, Theme, Visitor},
    words::{Common, Keys},
};

/// The entries of the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nav {
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
pub(crate) struct Entry {
    pub(crate) nav: Nav,
    pub(crate) path: &'static str,
    pub(crate) icon: &'static str,
    /// The second key of its shortcut, after `g`.
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
}

/// What the next page says once, after something was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Flash {
    pub(crate) good: bool,
    pub(crate) text: String,
    /// It is in the words of the API, which are English.
    #[serde(default)]
    pub(crate) foreign: bool,
}

/// What is said once has room in a cookie.
const FLASH_CHARS_MAX: usize = 600;

impl Flash {
    pub(crate) fn read(cookie: &str) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(cookie.as_bytes()).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn written(&self) -> String {
        BASE64URL_NOPAD.encode(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

/// Everything that the frame around a page shows.
pub(crate) struct Frame {
    pub(crate) taste: Taste,
    /// The words that all pages share.
    pub(crate) c: &'static Common,
    pub(crate) nav: Nav,
    pub(crate) title: String,
    pub(crate) who: String,
    pub(crate) here: String,
    pub(crate) flash: Option<Flash>,
    pub(crate) version: &'static str,
    pub(crate) operates: bool,
    pub(crate) administers: bool,
}

impl Frame {
    pub(crate) fn new(visitor: &Visitor, nav: Nav, title: impl Into<String>) -> Self {
        let caller = visitor.caller();
        let c = Common::of(visitor.lang());
        let name = caller.name.as_deref().unwrap_or(caller.role.as_str());
        Self {
            taste: visitor.taste.clone(),
            c,
            nav,
            title: title.into(),
            who: fill(c.signed_in_as, &[&name]),
            here: visitor.here.clone(),
            flash: visitor.flash.clone(),
            version: visitor.gateway().version(),
            operates: visitor.operates(),
            administers: visitor.administers(),
        }
    }

    pub(crate) fn lang(&self) -> Lang {
        self.taste.lang
    }

    /// The words of the help for the keyboard.
    pub(crate) fn keys(&self) -> &'static Keys {
        Keys::of(self.lang())
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
    pub(crate) fn menu(&self) -> [(&'static str, Vec<Entry>); 4] {
        let c = self.c;
        let entry = |nav, path, icon, key, name| Entry { nav, path, icon, key, name };
        [
            (
                c.group_watch,
                vec![
                    entry(Nav::Overview, "/", "gauge", "o", c.overview),
                    entry(Nav::Live, "/live", "pulse", "l", c.live),
                    entry(Nav::Events, "/events", "event", "e", c.events),
                    entry(Nav::Requests, "/requests", "door", "q", c.requests),
                ],
            ),
            (
                c.group_mend,
                vec![
                    entry(Nav::DeadLetters, "/dead-letters", "dead", "d", c.dead_letters),
                    entry(Nav::Replays, "/replays", "replay", "r", c.replays),
                ],
            ),
            (
                c.group_talk,
                vec![
                    entry(Nav::Messages, "/messages", "send", "m", c.messages),
                    entry(Nav::Conversations, "/conversations", "talk", "c", c.conversations),
                ],
            ),
            (
                c.group_set_up,
                vec![
                    entry(Nav::Sources, "/sources", "source", "s", c.sources),
                    entry(Nav::Destinations, "/destinations", "target", "t", c.destinations),
                    entry(Nav::Routes, "/routes", "route", "u", c.routes),
                    entry(Nav::Settings, "/settings", "settings", "g", c.settings),
                ],
            ),
        ]
    }
}

/// What a handler answers: a page, or the page that says what went wrong.
pub(crate) type Shown = Result<Response, Failed>;

/// Makes a page of a template.
pub(crate) fn show(page: &impl Template) -> Shown {
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
pub(crate) struct Failed {
    visitor: Box<Visitor>,
    trouble: Trouble,
}

impl Visitor {
    /// For `map_err`: shows a page that says what went wrong.
    pub(crate) fn failed(&self, trouble: Trouble) -> Failed {
        Failed { visitor: Box::new(self.clone()), trouble }
    }

    /// After something was done: says so on the page that is shown next.
    pub(crate) fn done(&self, to: &str, text: impl Into<String>) -> Response {
        self.say(to, Flash { good: true, text: text.into(), foreign: false })
    }

    /// After something was refused: says why on the page that is shown next.
    pub(crate) fn refused(&self, to: &str, trouble: &Trouble) -> Response {
        let (text, foreign) = if trouble.detail.is_empty() {
            (Common::of(self.lang()).error_title.to_owned(), false)
        } else {
            (trouble.detail.clone(), trouble.is_foreign())
        };
        self.say(to, Flash { good: false, text, foreign })
    }

    fn say(&self, to: &str, flash: Flash) -> Response {
        let flash = Flash { text: flash.text.chars().take(FLASH_CHARS_MAX).collect(), ..flash };
        let cookie = cookies::set(cookies::FLASH, &flash.written(), 60, self.is_secure());
        ([(header::SET_COOKIE, cookie)], Redirect::to(local(to))).into_response()
    }
}

/// A path of ours; anything else leads home. `//host` would lead away.
pub(crate) fn local(path: &str) -> &str {
    let leads_away = !path.starts_with('/')
        || path.starts_with("//")
        || path.starts_with("/\\")
        || path.bytes().any(|byte| byte.is_ascii_control());
    if leads_away { "/" } else { path }
}

#[derive(Template)]
#[template(path = "failed.html")]
struct FailedPage {
    frame: Frame,
    heading: &'static str,
    text: &'static str,
    detail: String,
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let c = Common::of(self.visitor.lang());
        let status = StatusCode::from_u16(self.trouble.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (heading, text) = match status {
            StatusCode::NOT_FOUND => (c.error_not_found, c.error_not_found_text),
            StatusCode::FORBIDDEN => (c.error_forbidden, ""),
            StatusCode::SERVICE_UNAVAILABLE => (c.error_unavailable, ""),
            _ => (c.error_title, ""),
        };
        let frame = Frame::new(&self.visitor, Nav::Elsewhere, heading);
        render(status, &FailedPage { frame, heading, text, detail: self.trouble.detail })
    }
}

/// Takes away what was said once, when a page has said it.
pub(crate) fn spend_flash(request_had_one: bool, mut response: Response) -> Response {
    const NAME: HeaderName = header::SET_COOKIE;
    let is_page = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/html")));
    if request_had_one && is_page {
        let gone: HeaderValue = cookies::set(cookies::FLASH, "", 0, false);
        response.headers_mut().append(NAME, gone);
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
            assert_eq!(local(path), expected, "case: {path}");
        }
    }

    #[test]
    fn what_is_said_once_survives_its_cookie() {
        let flash = Flash { good: true, text: "pausado: «crm» <b>".to_owned(), foreign: true };
        let read = Flash::read(&flash.written()).unwrap();
        assert_eq!((read.good, read.text, read.foreign), (flash.good, flash.text, flash.foreign));
        assert!(Flash::read("%%%").is_none());
    }
}
