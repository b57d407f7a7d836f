//! `/conversations`: all events of one phone number.
//!
//! Lists mask phone numbers and link here by event id, so that no URL contains a phone number the user
//! did not type.

mod message_text;

use std::{collections::HashMap, sync::Arc, time::Duration};

use askama::Template;
use axum::{Form, Router, extract::Query, routing::get};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::Value;
use surehook_types::time::Timestamp;

use super::messages::{sender_names, status_badge};
use crate::{
    Dashboard,
    client::{ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    format::{Badge, mask_middle},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::MessageTexts,
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/conversations", get(show_conversations).post(reveal_phone))
}

/// Recent conversations are taken from this number of events.
const RECENT_EVENTS_LIMIT: &str = "200";
const PAGE_LIMIT: &str = "25";
/// Larger bodies are not read: a page shows many entries.
const TEXT_BODY_BYTES_MAX: u64 = 128 * 1024;
/// Number of messages whose status is loaded: one page, plus messages sent meanwhile.
const MESSAGES_LIMIT: &str = "50";
/// How much older than its event a message id may be.
const ID_AGE_MAX: Duration = Duration::from_secs(60);
/// Concurrent body reads: as many as the store runs at once.
const CONCURRENT_READS: usize = 4;

#[derive(Default, Deserialize)]
struct ConversationQuery {
    /// A phone number as typed.
    #[serde(default)]
    phone: String,
    /// Alternatively the event that contains the phone number.
    #[serde(default)]
    event: String,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct ConversationEvent {
    id: String,
    source: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    body_bytes: u64,
    received_at: String,
    #[serde(default)]
    attributes: HashMap<String, Vec<String>>,
}

impl ConversationEvent {
    fn phone(&self) -> Option<&str> {
        self.attributes.get("phone")?.first().map(String::as_str)
    }

    fn is_outgoing(&self) -> bool {
        self.source.as_deref() == Some("outbox")
    }
}

struct RecentConversation {
    phone: String,
    last_at: String,
    newest: String,
    count: usize,
}

/// An event of the conversation.
struct ConversationEntry {
    event: String,
    at: String,
    side: &'static str,
    label: &'static str,
    source: String,
    kind: String,
    text: Option<String>,
    badge: Option<Badge>,
}

#[derive(Template)]
#[template(path = "conversations.html")]
struct ConversationsPage {
    frame: PageFrame,
    t: &'static MessageTexts,
    query: ConversationQuery,
    /// Masked unless it was revealed.
    phone: Option<String>,
    revealed: bool,
    recent: Vec<RecentConversation>,
    entries: Vec<ConversationEntry>,
    older: Option<String>,
    senders: Vec<String>,
    to: String,
    idempotency_key: String,
}

async fn show_conversations(
    user: CurrentUser,
    Query(query): Query<ConversationQuery>,
) -> PageResult {
    conversations_page(user, query, false).await
}

/// Shows the phone number. The API logs who viewed it.
async fn reveal_phone(user: CurrentUser, Form(query): Form<ConversationQuery>) -> PageResult {
    let address = ApiPath::new(&["events", &query.event, "reveal"]);
    user.post::<Value>(address, None).await?;
    conversations_page(user, query, true).await
}

async fn conversations_page(
    user: CurrentUser,
    mut query: ConversationQuery,
    revealed: bool,
) -> PageResult {
    let t = MessageTexts::of(user.lang());
    let mut page = ConversationsPage {
        frame: PageFrame::of_menu(&user, NavItem::Conversations),
        t,
        query: ConversationQuery::default(),
        phone: None,
        revealed,
        recent: Vec::new(),
        entries: Vec::new(),
        older: None,
        senders: Vec::new(),
        to: String::new(),
        idempotency_key: user.new_idempotency_key(),
    };
    let mut phone = query.phone.trim().to_owned();
    if phone.is_empty() && !query.event.is_empty() {
        let about = ApiPath::new(&["events", &query.event]);
        let event: ConversationEvent = user.get(about).await?;
        phone = event.phone().unwrap_or_default().to_owned();
    }
    if phone.is_empty() {
        let address = ApiPath::new(&["events"]).with("limit", RECENT_EVENTS_LIMIT);
        let newest: ApiList<ConversationEvent> = user.get(address).await?;
        page.recent = recent_conversations(newest.data);
        return render_page(&page);
    }
    let address = ApiPath::new(&["events"])
        .with("phone", &phone)
        .with("limit", PAGE_LIMIT)
        .with_some("cursor", query.cursor.as_deref());
    let found: ApiList<ConversationEvent> = user.get(address).await?;
    if query.event.is_empty() {
        query.event = found.data.first().map(|event| event.id.clone()).unwrap_or_default();
    }
    let by = if query.phone.is_empty() {
        format!("event={}", percent_encode(&query.event))
    } else {
        format!("phone={}", percent_encode(&query.phone))
    };
    page.older = found
        .next_cursor
        .map(|cursor| format!("/conversations?{by}&cursor={}", percent_encode(&cursor)));
    let statuses = load_message_statuses(&user, &phone, query.cursor.as_deref(), &found.data).await;
    // The API lists newest first; a conversation is read top to bottom.
    let entries = stream::iter(found.data.into_iter().rev());
    page.entries = entries
        .map(|event| build_entry(&user, t, &statuses, event))
        .buffered(CONCURRENT_READS)
        .collect()
        .await;
    page.senders = if user.can_operate() { sender_names(&user).await } else { Vec::new() };
    page.phone = Some(if revealed { phone.clone() } else { mask_middle(&phone) });
    page.to = if revealed || !query.phone.is_empty() { phone } else { String::new() };
    page.query = query;
    render_page(&page)
}

/// The phone numbers of the newest events, each with its newest event.
fn recent_conversations(events: Vec<ConversationEvent>) -> Vec<RecentConversation> {
    let mut found: Vec<RecentConversation> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for event in events {
        let Some(phone) = event.phone() else { continue };
        if let Some(at) = known.get(phone) {
            found[*at].count += 1;
        } else {
            known.insert(phone.to_owned(), found.len());
            let phone = mask_middle(phone);
            found.push(RecentConversation {
                phone,
                last_at: event.received_at,
                newest: event.id,
                count: 1,
            });
        }
    }
    found
}

#[derive(Deserialize)]
struct MessageProgress {
    id: String,
    status: String,
}

/// Status of each outgoing message among these events, with one API call for all: messages and events
/// share their cursors.
async fn load_message_statuses(
    user: &CurrentUser,
    phone: &str,
    cursor: Option<&str>,
    events: &[ConversationEvent],
) -> HashMap<String, String> {
    let Some(oldest) = events.iter().rev().find(|event| event.is_outgoing()) else {
        return HashMap::new();
    };
    // A message id is created slightly before its event.
    let since = oldest.received_at.parse::<Timestamp>().map(|at| at - ID_AGE_MAX);
    let since = since.map_or_else(|_| oldest.received_at.clone(), |since| since.to_string());
    let address = ApiPath::new(&["messages"])
        .with("to", phone)
        .with("since", &since)
        .with("limit", MESSAGES_LIMIT)
        .with_some("cursor", cursor);
    let found = user.get::<ApiList<MessageProgress>>(address).await.unwrap_or_default();
    found.data.into_iter().map(|message| (message.id, message.status)).collect()
}

async fn build_entry(
    user: &CurrentUser,
    t: &'static MessageTexts,
    statuses: &HashMap<String, String>,
    event: ConversationEvent,
) -> ConversationEntry {
    let is_outgoing = event.is_outgoing();
    let kind = event.kind.unwrap_or_default();
    let is_status = kind.contains("status") || kind.contains("receipt") || kind.contains("ack");
    let c = crate::translations::CommonTexts::of(user.lang());
    let (side, label) = match (is_outgoing, is_status) {
        (true, _) => ("outgoing", t.outgoing),
        (false, true) => ("status", c.status),
        (false, false) => ("incoming", t.incoming),
    };
    let text = if is_status {
        event.attributes.get("provider_status").and_then(|all| all.first()).cloned()
    } else if event.body_bytes > TEXT_BODY_BYTES_MAX {
        None
    } else {
        let body = user.read_bytes(ApiPath::new(&["events", &event.id, "body"])).await;
        body.ok().and_then(|body| message_text::extract(&body))
    };
    let badge = statuses.get(&event.id).map(|status| status_badge(status, t, c));
    let source = event.source.unwrap_or_default();
    ConversationEntry {
        event: event.id,
        at: event.received_at,
        side,
        label,
        source,
        kind,
        text,
        badge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_conversations_list_each_phone_once() {
        let event = |id: &str, phone: Option<&str>| ConversationEvent {
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
        let found = recent_conversations(events);
        let listed: Vec<_> = found.iter().map(|one| (one.newest.as_str(), one.count)).collect();
        assert_eq!(listed, [("3", 2), ("1", 1)]);
        assert!(found.iter().all(|one| one.phone.contains('•')));
    }
}
