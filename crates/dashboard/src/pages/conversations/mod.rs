//! `/conversations`: everything about one phone on one line.
//!
//! Lists show phones masked, and lead here by an event, so that no address of a page holds a phone
//! that nobody typed.

mod text;

use std::{collections::HashMap, sync::Arc, time::Duration};

use askama::Template;
use axum::{Form, Router, extract::Query, routing::get};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;
use surehook_core::time::Timestamp;

use super::messages::{badge, senders};
use crate::{
    Dashboard,
    client::{Address, List, encode},
    page::{Frame, Nav, Shown, show},
    show::{Badge, masked},
    visitor::Visitor,
    words::Messages,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/conversations", get(conversations).post(reveal))
}

/// Of how many events recent conversations are made.
const RECENT: &str = "200";
/// Entries of a conversation on one page.
const PAGE: &str = "25";
/// A larger body is not read for the line of text in it: a page has many of them.
const TEXT_BODY_BYTES_MAX: u64 = 128 * 1024;
/// Messages whose progress is asked for at once: a page of them, and what is sent meanwhile.
const MESSAGES: &str = "50";
/// How much older than its event a message's id may be.
const WISH_AGE_MAX: Duration = Duration::from_secs(60);
/// Entries that are put together at the same time: as many as the store reads at once.
const AT_ONCE: usize = 4;

#[derive(Default, Deserialize)]
struct Asked {
    /// As it was typed.
    #[serde(default)]
    phone: String,
    /// Or that which an event is about.
    #[serde(default)]
    event: String,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    source: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    body_bytes: u64,
    received_at: String,
    #[serde(default)]
    attributes: HashMap<String, Vec<String>>,
}

impl Event {
    fn phone(&self) -> Option<&str> {
        self.attributes.get("phone")?.first().map(String::as_str)
    }

    fn is_outgoing(&self) -> bool {
        self.source.as_deref() == Some("outbox")
    }
}

/// Somebody of whom an event came in lately.
struct Recent {
    phone: String,
    last_at: String,
    newest: String,
    count: usize,
}

/// One thing on the line.
struct Line {
    event: String,
    at: String,
    side: &'static str,
    word: &'static str,
    source: String,
    kind: String,
    text: Option<String>,
    badge: Option<Badge>,
}

#[derive(Template)]
#[template(path = "conversations.html")]
struct ConversationsPage {
    frame: Frame,
    t: &'static Messages,
    asked: Asked,
    /// The phone, masked unless it was revealed.
    phone: Option<String>,
    revealed: bool,
    recent: Vec<Recent>,
    lines: Vec<Line>,
    older: Option<String>,
    senders: Vec<String>,
    to: String,
    once: String,
}

async fn conversations(visitor: Visitor, Query(asked): Query<Asked>) -> Shown {
    page(visitor, asked, false).await
}

/// Shows the phone itself. The API writes down who saw it.
async fn reveal(visitor: Visitor, Form(asked): Form<Asked>) -> Shown {
    let address = Address::new(&["events", &asked.event, "reveal"]);
    visitor.post::<Value>(address, None).await.map_err(|trouble| visitor.failed(trouble))?;
    page(visitor, asked, true).await
}

async fn page(visitor: Visitor, mut asked: Asked, revealed: bool) -> Shown {
    let t = Messages::of(visitor.lang());
    let mut page = ConversationsPage {
        frame: Frame::new(&visitor, Nav::Conversations, t.conversations),
        t,
        asked: Asked::default(),
        phone: None,
        revealed,
        recent: Vec::new(),
        lines: Vec::new(),
        older: None,
        senders: Vec::new(),
        to: String::new(),
        once: visitor.once(),
    };
    let failed = |trouble| visitor.failed(trouble);
    let mut phone = asked.phone.trim().to_owned();
    if phone.is_empty() && !asked.event.is_empty() {
        let about = Address::new(&["events", &asked.event]);
        let event: Event = visitor.get(about).await.map_err(failed)?;
        phone = event.phone().unwrap_or_default().to_owned();
    }
    if phone.is_empty() {
        let address = Address::new(&["events"]).with("limit", RECENT);
        let newest: List<Event> = visitor.get(address).await.map_err(failed)?;
        page.recent = recent(newest.data);
        return show(&page);
    }
    let address = Address::new(&["events"])
        .with("phone", &phone)
        .with("limit", PAGE)
        .with_some("cursor", asked.cursor.as_deref());
    let found: List<Event> = visitor.get(address).await.map_err(failed)?;
    if asked.event.is_empty() {
        asked.event = found.data.first().map(|event| event.id.clone()).unwrap_or_default();
    }
    let by = if asked.phone.is_empty() {
        format!("event={}", encode(&asked.event))
    } else {
        format!("phone={}", encode(&asked.phone))
    };
    page.older =
        found.next_cursor.map(|cursor| format!("/conversations?{by}&cursor={}", encode(&cursor)));
    let became = progress_of(&visitor, &phone, asked.cursor.as_deref(), &found.data).await;
    // The page is newest first, and a conversation is read from the top.
    let lines = stream::iter(found.data.into_iter().rev());
    page.lines =
        lines.map(|event| line(&visitor, t, &became, event)).buffered(AT_ONCE).collect().await;
    page.senders = if visitor.operates() { senders(&visitor).await } else { Vec::new() };
    page.phone = Some(if revealed { phone.clone() } else { masked(&phone) });
    page.to = if revealed || !asked.phone.is_empty() { phone } else { String::new() };
    page.asked = asked;
    show(&page)
}

/// Whom the newest events are about, each once.
fn recent(events: Vec<Event>) -> Vec<Recent> {
    let mut found: Vec<Recent> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for event in events {
        let Some(phone) = event.phone() else { continue };
        if let Some(at) = known.get(phone) {
            found[*at].count += 1;
        } else {
            known.insert(phone.to_owned(), found.len());
            let phone = masked(phone);
            found.push(Recent { phone, last_at: event.received_at, newest: event.id, count: 1 });
        }
    }
    found
}

#[derive(Deserialize)]
struct Progress {
    id: String,
    status: String,
}

/// What became of each message among these events, which are a page, newest first. Asked once for
/// all of them: messages and events go on after the same ids.
async fn progress_of(
    visitor: &Visitor,
    phone: &str,
    cursor: Option<&str>,
    events: &[Event],
) -> HashMap<String, String> {
    let Some(oldest) = events.iter().rev().find(|event| event.is_outgoing()) else {
        return HashMap::new();
    };
    // The id of a message is a little older than its event: it was made with the wish.
    let since = oldest.received_at.parse::<Timestamp>().map(|at| at - WISH_AGE_MAX);
    let since = since.map_or_else(|_| oldest.received_at.clone(), |since| since.to_string());
    let address = Address::new(&["messages"])
        .with("to", phone)
        .with("since", &since)
        .with("limit", MESSAGES)
        .with_some("cursor", cursor);
    let found = visitor.get::<List<Progress>>(address).await.unwrap_or_default();
    found.data.into_iter().map(|message| (message.id, message.status)).collect()
}

async fn line(
    visitor: &Visitor,
    t: &'static Messages,
    became: &HashMap<String, String>,
    event: Event,
) -> Line {
    let is_outgoing = event.is_outgoing();
    let kind = event.kind.unwrap_or_default();
    let is_status = kind.contains("status") || kind.contains("receipt") || kind.contains("ack");
    let (side, word) = match (is_outgoing, is_status) {
        (true, _) => ("outgoing", t.outgoing),
        (false, true) => ("status", t.a_status),
        (false, false) => ("incoming", t.incoming),
    };
    let text = if is_status {
        event.attributes.get("provider_status").and_then(|all| all.first()).cloned()
    } else if event.body_bytes > TEXT_BODY_BYTES_MAX {
        None
    } else {
        let body = visitor.read(Address::new(&["events", &event.id, "body"])).await;
        body.ok().and_then(|body| text::of(&body))
    };
    let c = crate::words::Common::of(visitor.lang());
    let badge = became.get(&event.id).map(|status| badge(status, t, c));
    let source = event.source.unwrap_or_default();
    Line { event: event.id, at: event.received_at, side, word, source, kind, text, badge }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phone_is_listed_once_with_its_newest_event() {
        let event = |id: &str, phone: Option<&str>| Event {
            id: id.to_owned(),
            source: None,
            kind: None,
            body_bytes: 0,
            received_at: id.to_owned(),
            attributes: phone
                .map(|phone| ("phone".to_owned(), vec![phone.to_owned()]))
                .into_iter()
                .collect(),
        };
        let events = vec![
            event("3", Some("5511987654321")),
            event("2", None),
            event("1", Some("5511900000000")),
            event("0", Some("5511987654321")),
        ];
        let found = recent(events);
        let told: Vec<_> = found.iter().map(|one| (one.newest.as_str(), one.count)).collect();
        assert_eq!(told, [("3", 2), ("1", 1)]);
        assert!(found.iter().all(|one| one.phone.contains('•')));
    }
}
