//! `POST /api/v1/messages`: an outbound webhook, or a message of a service such as WhatsApp.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Json, extract::State};
use bytes::Bytes;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use surehook_core::{
    attribute::EventKind,
    channel::{MessageSpec, MessageStatus},
    destination::{Destination, Transport, sender::MessageSender},
    ids::{DeliveryId, EventId},
    outbox::OutboxPost,
    time::{HumanDuration, Timestamp},
};

use super::super::{idempotent::Wished, input::Input};
use crate::{
    App,
    openapi::{Either, Op},
    problem::Problem,
};

/// The longest that a message may wait before it is sent.
const DELAY_MAX: Duration = Duration::from_secs(30 * 86_400);

/// A message for a destination that sends messages.
#[derive(JsonSchema)]
#[schemars(rename = "NewMessage")]
#[expect(dead_code, reason = "only its schema is used")]
struct NewMessage {
    /// The name or the id of the destination.
    destination: String,
    #[serde(flatten)]
    message: MessageSpec,
    #[serde(flatten)]
    when: When,
}

/// A webhook for any other destination.
#[derive(JsonSchema)]
#[schemars(rename = "NewWebhook")]
#[expect(dead_code, reason = "only its schema is used")]
struct NewWebhook {
    /// The name or the id of the destination.
    destination: String,
    #[serde(flatten)]
    webhook: Webhook,
    #[serde(flatten)]
    when: When,
}

/// What a webhook is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Webhook {
    /// What happened, such as `order.paid`; the kind of its event. `webhook` when left out.
    #[serde(default, rename = "type")]
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// What is sent: any JSON, byte for byte.
    #[schemars(with = "Value")]
    body: Box<RawValue>,
    /// Headers beside it.
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// When it is sent; at once when left out.
#[derive(Default, Deserialize, JsonSchema)]
struct When {
    /// Not before this time, at most 30 days ahead.
    #[serde(default)]
    send_at: Option<Timestamp>,
    /// Not before this long after now, at most 30 days.
    #[serde(default)]
    delay: Option<HumanDuration>,
}

impl When {
    fn delay(&self, now: Timestamp) -> Result<Duration, Problem> {
        let delay = match (self.send_at, self.delay) {
            (None, None) => return Ok(Duration::ZERO),
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("there are both `send_at` and `delay`; write one"));
            }
            (Some(at), None) => at.since(now),
            (None, Some(span)) => span.0,
        };
        match delay <= DELAY_MAX {
            true => Ok(delay),
            false => Err(Problem::invalid("`send_at` and `delay` reach at most 30d ahead")),
        }
    }
}

/// A message that is on the disk.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AcceptedMessage")]
pub(super) struct Accepted {
    /// The id of the message, which is the id of its event.
    id: EventId,
    delivery_id: DeliveryId,
    /// The name of the destination.
    destination: String,
    status: MessageStatus,
}

pub(super) fn op() -> Op {
    let example = json!({ "destination": "whatsapp", "to": "+5511987654321", "text": "Your order is on its way." });
    Op::new("send_message", "Sends a message or a webhook. 202 means that it is on the disk.")
        .text(
            "What the destination's service could not send is refused, and nothing is stored. The \
             message is an event of the source `outbox`, and routes from there get it too. With an \
             `Idempotency-Key` it is sent once, however often it is asked for.",
        )
        .body::<Either<NewMessage, NewWebhook>>(example)
        .answers::<Accepted>(202)
        .refuses(409, &["destination_misconfigured", "outbox_taken", "media_not_configured"])
        .refuses(422, &["unknown_destination", "invalid_message", "unsendable"])
        .refuses(503, &["source_disabled", "source_misconfigured"])
}

/// The fields of what is sent, as they were written.
type Fields = BTreeMap<String, Box<RawValue>>;

/// Sends a message.
pub(super) async fn send(
    State(app): State<Arc<App>>,
    Wished(wish): Wished,
    Input(mut fields): Input<Fields>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let destination: String = take(&mut fields, "destination")?
        .ok_or_else(|| Problem::invalid("`destination` is missing; name who gets the message"))?;
    let when = When { send_at: take(&mut fields, "send_at")?, delay: take(&mut fields, "delay")? };
    let delay = when.delay(app.engine.clock().now())?;
    let to = app.engine.find_send_target(&destination).await?;
    check_order(to.destination(), delay)?;
    let destination = to.destination().name.to_string();
    let post = post(&app, to.destination(), &fields).await?;
    let posted = app.engine.send_message(to, post, wish, delay).await?;
    let (id, delivery_id) = (posted.event, posted.delivery);
    let status = MessageStatus::Accepted;
    Ok((StatusCode::ACCEPTED, Json(Accepted { id, delivery_id, destination, status })))
}

/// One that is sent later would hold up all that come after it in its line.
fn check_order(destination: &Destination, delay: Duration) -> Result<(), Problem> {
    if delay.is_zero() || destination.lane.order.is_none() {
        return Ok(());
    }
    Err(Problem::invalid(format!(
        "`{}` keeps an order, and a message that is sent later would hold up all that come after it; \
         leave `send_at` and `delay` out, or send it to a destination without `order`",
        destination.name
    )))
}

/// Takes a field out that is not part of what is sent.
fn take<T: DeserializeOwned>(fields: &mut Fields, name: &str) -> Result<Option<T>, Problem> {
    let Some(written) = fields.remove(name) else { return Ok(None) };
    let invalid = |error| Problem::invalid(format!("{name}: {error}"));
    serde_json::from_str(written.get()).map_err(invalid)
}

/// What the fields that are left are for that destination.
async fn post(
    app: &App,
    destination: &Destination,
    fields: &Fields,
) -> Result<OutboxPost, Problem> {
    let sends_messages = matches!(destination.transport, Transport::Channel(_));
    check_sort(destination, sends_messages, fields)?;
    if let Transport::Channel(sender) = &destination.transport {
        message(app, sender, fields).await
    } else {
        webhook(fields)
    }
}

/// Whether it is a message where messages are sent, and a webhook elsewhere.
fn check_sort(
    destination: &Destination,
    sends_messages: bool,
    fields: &Fields,
) -> Result<(), Problem> {
    let name = &destination.name;
    match (sends_messages, fields.contains_key("body"), fields.contains_key("to")) {
        (true, true, false) => Err(Problem::invalid(format!(
            "`{name}` sends messages; write `to` and `text` or another message, not `body`"
        ))),
        (false, false, true) => Err(Problem::invalid(format!(
            "`{name}` gets webhooks; write `body`, which is any JSON, not a message with `to`"
        ))),
        (_, _, _) => Ok(()),
    }
}

async fn message(
    app: &App,
    sender: &MessageSender,
    fields: &Fields,
) -> Result<OutboxPost, Problem> {
    let invalid = |error: &dyn std::fmt::Display| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "invalid_message", error.to_string())
    };
    let spec: MessageSpec = read(fields).map_err(|error| invalid(&error))?;
    let mut message = spec.clone().build().map_err(|error| invalid(&error))?;
    let post = OutboxPost::message(&spec, &message);
    // Only to see whether the service could send it; nothing goes out here.
    let now = app.engine.clock().now();
    app.engine.media().resolve_files(&mut message, sender.channel.name(), now).await?;
    sender.channel.compose(&sender.account, &message, "trial").map_err(|error| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unsendable", error.to_string())
    })?;
    Ok(post)
}

fn webhook(fields: &Fields) -> Result<OutboxPost, Problem> {
    let Webhook { kind, body, headers } =
        read(fields).map_err(|error| Problem::invalid(error.to_string()))?;
    let body = Bytes::from(String::from(Box::<str>::from(body)));
    OutboxPost::webhook(kind.as_deref(), &headers, body)
        .map_err(|e| Problem::invalid(e.to_string()))
}

/// The fields together, as one thing.
fn read<T: DeserializeOwned>(fields: &Fields) -> serde_json::Result<T> {
    serde_json::from_slice(&serde_json::to_vec(fields)?)
}

#[cfg(test)]
mod tests {
    use surehook_core::{destination::DestinationSpec, ids::DestinationId};

    use super::*;

    #[test]
    fn what_is_sent_later_must_not_hold_up_a_line() {
        let later = Duration::from_secs(60);
        let cases = [
            (json!(null), later, true),
            (json!({ "key": "/to" }), Duration::ZERO, true),
            (json!({ "key": "/to" }), later, false),
        ];
        for (order, delay, is_taken) in cases {
            let spec = json!({ "name": "out", "url": "https://out.example/", "order": order });
            let spec: DestinationSpec = serde_json::from_value(spec).unwrap();
            let id = DestinationId::new(Timestamp::from_millis(1), 1);
            let destination = spec.build(id, &|_| None).unwrap();
            let checked = check_order(&destination, delay);
            assert_eq!(checked.is_ok(), is_taken, "case: {order} {delay:?}");
        }
    }
}
