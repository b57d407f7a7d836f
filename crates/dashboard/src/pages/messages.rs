//! `/messages`: outgoing messages and their status.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    routing::get,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Dashboard,
    client::{ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    filter::FilterBar,
    format::{Badge, mask_middle},
    list_page::{FilteredList, ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{CommonTexts, MessageTexts},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/messages", get(list_messages).post(send_message))
        .route("/messages/{id}", get(show_message))
}

const LIST: ListDefinition = ListDefinition {
    path: "/messages",
    name: "messages",
    known: &["status", "dest", "to", "since", "until"],
    example: "status:failed dest:support since:1d",
};

#[derive(Deserialize)]
struct MessageItem {
    id: String,
    created_at: String,
    destination: Option<String>,
    to: Option<String>,
    #[serde(rename = "type")]
    of_type: Option<String>,
    status: String,
    reason: Option<String>,
    attempts: u64,
    sent_id: Option<String>,
    #[serde(default)]
    statuses: Vec<MessageStatusItem>,
}

#[derive(Deserialize)]
struct MessageStatusItem {
    at: String,
    state: String,
    error_code: Option<String>,
    error_title: Option<String>,
    event_id: String,
}

impl MessageItem {
    fn masked_recipient(&self) -> String {
        self.to.as_deref().map(mask_middle).unwrap_or_default()
    }
}

pub(super) fn status_badge(status: &str, t: &MessageTexts, c: &CommonTexts) -> Badge {
    match status {
        "accepted" => Badge::new("", "clock", t.accepted),
        "sending" => Badge::new("warn", "clock", t.sending),
        "sent" => Badge::new("ok", "send", t.sent),
        "delivered" => Badge::new("ok", "check", t.delivered),
        "read" => Badge::new("ok", "eye", t.read),
        "failed" => Badge::new("bad", "cross", t.failed),
        "cancelled" => Badge::new("", "cross", c.cancelled),
        other => Badge::new("", "dot", other),
    }
}

#[derive(Deserialize)]
struct MessageDestination {
    name: String,
    #[serde(default)]
    kind: String,
}

/// Names of the destinations that can send messages.
pub(super) async fn sender_names(user: &CurrentUser) -> Vec<String> {
    let address = ApiPath::new(&["destinations"]).with("limit", "200");
    let found = user.get::<ApiList<MessageDestination>>(address).await.unwrap_or_default();
    let sends = |sender: &MessageDestination| {
        matches!(sender.kind.as_str(), "whatsapp-cloud" | "evolution-go" | "evolution-api")
    };
    found.data.into_iter().filter(sends).map(|sender| sender.name).collect()
}

#[derive(Template)]
#[template(path = "messages.html")]
struct MessagesPage {
    frame: PageFrame,
    t: &'static MessageTexts,
    bar: FilterBar,
    messages: Vec<MessageItem>,
    senders: Vec<String>,
    idempotency_key: String,
    typed: MessageForm,
    problem: Option<String>,
    pager: Pager,
}

impl MessagesPage {
    fn badge(&self, status: &str) -> Badge {
        status_badge(status, self.t, self.frame.c)
    }
}

async fn list_messages(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let typed =
        MessageForm { idempotency_key: user.new_idempotency_key(), ..MessageForm::default() };
    messages_page(user, query, typed, None).await
}

async fn messages_page(
    user: CurrentUser,
    query: ListPageQuery,
    typed: MessageForm,
    problem: Option<String>,
) -> PageResult {
    let t = MessageTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Messages);
    let FilteredList { bar, found, pager, .. } = LIST.load(&user, &query).await?;
    let (senders, idempotency_key) = (sender_names(&user).await, typed.idempotency_key.clone());
    let messages = found.data;
    render_page(&MessagesPage {
        frame,
        t,
        bar,
        messages,
        senders,
        idempotency_key,
        typed,
        problem,
        pager,
    })
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: PageFrame,
    t: &'static MessageTexts,
    message: MessageItem,
}

impl MessagePage {
    fn badge(&self, status: &str) -> Badge {
        status_badge(status, self.t, self.frame.c)
    }
}

async fn show_message(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    let t = MessageTexts::of(user.lang());
    let message = user.get::<MessageItem>(ApiPath::new(&["messages", &id])).await?;
    render_page(&MessagePage { frame: PageFrame::of_menu(&user, NavItem::Messages), t, message })
}

#[derive(Default, Deserialize)]
struct MessageForm {
    #[serde(default)]
    destination: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    idempotency_key: String,
}

#[derive(Deserialize)]
struct AcceptedMessage {
    id: String,
}

async fn send_message(user: CurrentUser, Form(form): Form<MessageForm>) -> PageResult {
    let body: Value = json!({
        "destination": form.destination,
        "to": form.to.trim(),
        "text": form.text,
    });
    let address = ApiPath::new(&["messages"]);
    match user.post_idempotent::<AcceptedMessage>(address, Some(body), &form.idempotency_key).await
    {
        Ok(accepted) => {
            let t = MessageTexts::of(user.lang());
            Ok(user.redirect_with_notice(
                &format!("/messages/{}", percent_encode(&accepted.id)),
                t.sent_flash,
            ))
        }
        Err(error) => {
            let idempotency_key = user.idempotency_key_for_retry(&form.idempotency_key, &error);
            let form = MessageForm { idempotency_key, ..form };
            messages_page(user, ListPageQuery::default(), form, Some(error.detail)).await
        }
    }
}
