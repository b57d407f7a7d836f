//! `/conversations`: all events of one phone number.
//!
//! Lists mask phone numbers and link here by event id, so that no URL contains a phone number the user
//! did not type.

pub(super) mod message_text;

use std::{collections::HashMap, sync::Arc, time::Duration};

use askama::Template;
use axum::{Form, Router, extract::Query, routing::get};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use surehook_api::{
    ApiTransport as _, ListResponse, calls,
    events::{EventList, EventResponse},
    percent_encode,
};
use surehook_core::message_status::MessageStatus;
use surehook_types::{ids::EventId, time::Timestamp};
use surehook_webhooks::attribute::{AttributeName, EventKind};

use super::messages::{sender_names, status_badge};
use crate::{
    Dashboard,
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

fn phone_of(event: &EventResponse) -> Option<&str> {
    first_value(event, AttributeName::Phone)
}

fn first_value(event: &EventResponse, name: AttributeName) -> Option<&str> {
    event.attributes.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
}

fn is_outgoing(event: &EventResponse) -> bool {
    event.source.as_deref() == Some("outbox")
}

struct RecentConversation {
    phone: String,
    last_at: Timestamp,
    newest: EventId,
    count: usize,
}

/// An event of the conversation.
struct ConversationEntry {
    event: EventId,
    at: Timestamp,
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
    user.call(calls::reveal_event(&query.event)).await?;
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
        let event = user.call(calls::get_event(&query.event)).await?.event;
        phone = phone_of(&event).unwrap_or_default().to_owned();
    }
    let events = async |call| user.call(call).await.map(|found: EventList| found.page);
    if phone.is_empty() {
        let newest = events(calls::list_events().query("limit", RECENT_EVENTS_LIMIT)).await?;
        page.recent = recent_conversations(newest.data.into_iter().map(|listed| listed.event));
        return render_page(&page);
    }
    let call = calls::list_events()
        .query("phone", &phone)
        .query("limit", PAGE_LIMIT)
        .query_some("cursor", query.cursor.as_deref());
    let ListResponse { data, next_cursor } = events(call).await?;
    let found: Vec<EventResponse> = data.into_iter().map(|listed| listed.event).collect();
    if query.event.is_empty() {
        query.event = found.first().map(|event| event.id.to_string()).unwrap_or_default();
    }
    let selector = if query.phone.is_empty() {
        format!("event={}", percent_encode(&query.event))
    } else {
        format!("phone={}", percent_encode(&query.phone))
    };
    page.older = next_cursor
        .map(|cursor| format!("/conversations?{selector}&cursor={}", percent_encode(&cursor)));
    let statuses = load_message_statuses(&user, &phone, query.cursor.as_deref(), &found).await;
    // The API lists newest first; a conversation is read top to bottom.
    let entries = stream::iter(found.into_iter().rev());
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
fn recent_conversations(events: impl Iterator<Item = EventResponse>) -> Vec<RecentConversation> {
    let mut conversations: Vec<RecentConversation> = Vec::new();
    let mut indexes: HashMap<String, usize> = HashMap::new();
    for event in events {
        let Some(phone) = phone_of(&event) else { continue };
        if let Some(index) = indexes.get(phone) {
            conversations[*index].count += 1;
        } else {
            indexes.insert(phone.to_owned(), conversations.len());
            let phone = mask_middle(phone);
            conversations.push(RecentConversation {
                phone,
                last_at: event.received_at,
                newest: event.id,
                count: 1,
            });
        }
    }
    conversations
}

/// Status of each outgoing message among these events, with one API call for all: messages and events
/// share their cursors.
async fn load_message_statuses(
    user: &CurrentUser,
    phone: &str,
    cursor: Option<&str>,
    events: &[EventResponse],
) -> HashMap<EventId, MessageStatus> {
    let Some(oldest) = events.iter().rev().find(|event| is_outgoing(event)) else {
        return HashMap::new();
    };
    // A message id is created slightly before its event.
    let since = oldest.received_at - ID_AGE_MAX;
    let call = calls::list_messages()
        .query("to", phone)
        .query("since", &since.to_string())
        .query("limit", MESSAGES_LIMIT)
        .query_some("cursor", cursor);
    let found = user.call(call).await.unwrap_or_default();
    found.data.into_iter().map(|message| (message.id, message.status)).collect()
}

async fn build_entry(
    user: &CurrentUser,
    t: &'static MessageTexts,
    statuses: &HashMap<EventId, MessageStatus>,
    event: EventResponse,
) -> ConversationEntry {
    let is_outgoing = is_outgoing(&event);
    let kind = event.kind.as_ref().map(EventKind::to_string).unwrap_or_default();
    let is_status = kind.contains("status") || kind.contains("receipt") || kind.contains("ack");
    let c = crate::translations::CommonTexts::of(user.lang());
    let (side, label) = match (is_outgoing, is_status) {
        (true, _) => ("outgoing", t.outgoing),
        (false, true) => ("status", c.status),
        (false, false) => ("incoming", t.incoming),
    };
    let text = if is_status {
        first_value(&event, AttributeName::ProviderStatus).map(str::to_owned)
    } else if event.body_bytes > TEXT_BODY_BYTES_MAX {
        None
    } else {
        let body = user.call_raw(calls::get_event_body(&event.id.to_string())).await;
        body.ok().and_then(|body| message_text::extract(body.body()))
    };
    let badge = statuses.get(&event.id).map(|status| status_badge(*status, user.lang()));
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
        let id = |n: u8| format!("evt_01k0000000000000000000000{n}");
        let event = |n: u8, phones: &[&str]| -> EventResponse {
            serde_json::from_value(serde_json::json!({
                "id": id(n), "request_id": format!("req_01k0000000000000000000000{n}"),
                "no_key": true, "attributes": { "phone": phones },
                "received_at": "2026-11-15T10:00:00.000Z", "body_bytes": 0, "duplicate_count": 0,
                "body_removed": false,
            }))
            .unwrap()
        };
        let events = [
            event(3, &["5511987654321"]),
            event(2, &[]),
            event(1, &["5511900000000"]),
            event(0, &["5511987654321"]),
        ];
        let found = recent_conversations(events.into_iter());
        let listed: Vec<_> = found
            .iter()
            .map(|conversation| (conversation.newest.to_string(), conversation.count))
            .collect();
        assert_eq!(listed, [(id(3), 2), (id(1), 1)]);
        assert!(found.iter().all(|conversation| conversation.phone.contains('•')));
    }
}
