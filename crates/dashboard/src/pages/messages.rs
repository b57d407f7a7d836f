//! `/messages`: outgoing messages and their status.

use std::sync::Arc;

use askama::Template;
use axum::{
    Form, Router,
    extract::{Path, Query},
    routing::get,
};
use serde::Deserialize;
use serde_json::json;
use surehook_api::{
    ApiTransport as _, calls,
    messages::{MessageDetail, MessageResponse, MessageStatusEntry},
};
use surehook_core::{destination::kind::DestinationFamily, message_status::MessageStatus};
use surehook_webhooks::provider::MessageStatusUpdate;

use super::{conversations::message_text, events::card::DeliveryCard};
use crate::{
    Dashboard,
    current_user::CurrentUser,
    filter::FilterBar,
    format::{Badge, mask_middle},
    lang::Lang,
    list_page::{ListDefinition, ListPageQuery, Pager},
    page::{NavItem, PageFrame, PageResult, render_page},
    translations::{CommonTexts, EventTexts, FailureTexts, MessageTexts},
};

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/messages", get(list_messages).post(send_message))
        .route("/messages/{id}", get(show_message))
}

const LIST: ListDefinition = ListDefinition {
    path: "/messages",
    filters: &["status", "dest", "to", "since", "until"],
    example: "status:failed dest:support since:1d",
};

pub(super) fn status_badge(status: MessageStatus, lang: Lang) -> Badge {
    let t = MessageTexts::of(lang);
    match status {
        MessageStatus::Accepted => Badge::new("", "clock", t.accepted),
        MessageStatus::Sending => Badge::new("warn", "clock", t.sending),
        MessageStatus::Sent => Badge::new("ok", "send", t.sent),
        MessageStatus::Delivered => Badge::new("ok", "check", t.delivered),
        MessageStatus::Read => Badge::new("ok", "eye", t.read),
        MessageStatus::Failed => Badge::new("bad", "cross", t.failed),
        MessageStatus::Cancelled => Badge::new("", "cross", CommonTexts::of(lang).cancelled),
    }
}

fn update_badge(update: MessageStatusUpdate, lang: Lang) -> Badge {
    let status = match update {
        MessageStatusUpdate::Sent => MessageStatus::Sent,
        MessageStatusUpdate::Failed => MessageStatus::Failed,
        MessageStatusUpdate::Delivered => MessageStatus::Delivered,
        MessageStatusUpdate::Read => MessageStatus::Read,
    };
    status_badge(status, lang)
}

fn masked_recipient(message: &MessageResponse) -> String {
    message.to.as_deref().map(mask_middle).unwrap_or_default()
}

/// Names of the destinations that can send messages.
pub(super) async fn sender_names(user: &CurrentUser) -> Vec<String> {
    let destinations = user.call(calls::list_destinations()).await.unwrap_or_default();
    let specs = destinations.data.into_iter().map(|destination| destination.spec);
    let senders = specs.filter(|spec| spec.kind.family() == DestinationFamily::Channel);
    senders.map(|spec| spec.name.to_string()).collect()
}

#[derive(Template)]
#[template(path = "messages.html")]
struct MessagesPage {
    frame: PageFrame,
    t: &'static MessageTexts,
    f: &'static FailureTexts,
    bar: FilterBar,
    messages: Vec<MessageResponse>,
    senders: Vec<String>,
    idempotency_key: String,
    form: MessageForm,
    problem: Option<String>,
    pager: Pager,
}

async fn list_messages(user: CurrentUser, Query(query): Query<ListPageQuery>) -> PageResult {
    let empty_form =
        MessageForm { idempotency_key: user.new_idempotency_key(), ..MessageForm::default() };
    messages_page(user, query, empty_form, None).await
}

async fn messages_page(
    user: CurrentUser,
    query: ListPageQuery,
    form: MessageForm,
    problem: Option<String>,
) -> PageResult {
    let t = MessageTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Messages);
    let (bar, page) = LIST.load(&user, &query, calls::list_messages()).await?;
    let pager = Pager::filtered(&bar, &query, page.next_cursor.as_deref());
    let (senders, idempotency_key) = (sender_names(&user).await, form.idempotency_key.clone());
    let messages = page.data;
    render_page(&MessagesPage {
        frame,
        t,
        f: FailureTexts::of(user.lang()),
        bar,
        messages,
        senders,
        idempotency_key,
        form,
        problem,
        pager,
    })
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: PageFrame,
    t: &'static MessageTexts,
    e: &'static EventTexts,
    message: MessageResponse,
    /// What the message says, as far as it is text.
    text: Option<String>,
    /// Why it was given up, in words.
    reason: Option<&'static str>,
    /// The newest delivery with its attempts.
    delivery: Option<DeliveryCard>,
    statuses: Vec<MessageStatusEntry>,
}

async fn show_message(user: CurrentUser, Path(id): Path<String>) -> PageResult {
    let t = MessageTexts::of(user.lang());
    let lang = user.lang();
    let MessageDetail { message, statuses, .. } = user.call(calls::get_message(&id)).await?;
    // Retention may have removed the body, or the delivery.
    let body = user.call_raw(calls::get_event_body(&id)).await.ok();
    let text = body.and_then(|body| message_text::extract(body.body()));
    let delivery = match message.delivery_id {
        Some(delivery) => user.call(calls::get_delivery(&delivery.to_string())).await.ok(),
        None => None,
    };
    let no_key = String::new;
    let delivery = delivery.map(|found| DeliveryCard::new(found, &[], no_key(), lang));
    let reason = message.reason.map(|reason| FailureTexts::of(lang).reason(reason.as_str()));
    let frame = PageFrame::of_menu(&user, NavItem::Messages);
    let e = EventTexts::of(lang);
    render_page(&MessagePage { frame, t, e, message, text, reason, delivery, statuses })
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

async fn send_message(user: CurrentUser, Form(form): Form<MessageForm>) -> PageResult {
    let message =
        json!({ "destination": form.destination, "to": form.to.trim(), "text": form.text });
    let call = calls::send_message(&message).idempotent(&form.idempotency_key);
    match user.call(call).await {
        Ok(accepted) => {
            let t = MessageTexts::of(user.lang());
            Ok(user.redirect_with_notice(&format!("/messages/{}", accepted.id), t.sent_flash))
        }
        Err(error) => {
            let idempotency_key = user.idempotency_key_for_retry(&form.idempotency_key, &error);
            let form = MessageForm { idempotency_key, ..form };
            messages_page(user, ListPageQuery::default(), form, Some(error.detail)).await
        }
    }
}
