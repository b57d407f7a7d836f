//! `/api/v1/messages`: send messages and outbound webhooks, and follow their status.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Json, extract::State};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use surehook_api::{
    Cursor, ListResponse,
    messages::{AcceptedMessageResponse, MessageDetail, MessageResponse, MessageStatusEntry},
};
use surehook_core::{
    callback::{Callback, DeliveryEnd},
    destination::{Destination, DestinationSpec, Transport},
    message_status::{MessageStatus, message_status},
    one_shot::OneShotUrl,
    outbox::{MESSAGE_KIND_PREFIX, OutboxPost},
    store::{Configuration, DeliveryRow, EventFilter, EventRow},
    trace::copy_trace_context,
};
use surehook_engine::ingest::SendTarget;
use surehook_messaging::{
    MessageSpec,
    sender::{MessageSender, send_id},
};
use surehook_retry::RetrySpec;
use surehook_types::{
    ids::{DestinationId, EventId, SourceId},
    time::{HumanDuration, Timestamp},
};
use surehook_webhooks::{
    attribute::{AttributeFilter, AttributeName, EventKind, VALUE_BYTES_MAX},
    provider::{self, MessageStatusUpdate, Provider},
};

use super::{
    LIMIT_MAX, deliveries,
    etag::JsonWithETag,
    extract::{JsonBody, PathParam, QueryParams},
    idempotency::IdempotencyContext,
    page_request,
    resources::{self, find_resource},
};
use crate::{
    ServerState,
    auth::UrlAccess,
    openapi::{ApiTable, OneOf, Operation},
    problem::Problem,
};

/// Status updates read per message.
const STATUSES_MAX: usize = 200;

/// Filter of a list of messages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MessageQuery {
    /// Name or id of the destination.
    #[schemars(with = "Option<resources::ResourceRef<DestinationSpec>>")]
    destination: Option<String>,
    /// Phone number of the recipient, in any form, or another address.
    #[schemars(length(min = 1))]
    to: Option<String>,
    /// Message status. It is checked per page, so a page may be short.
    status: Option<MessageStatus>,
    /// Created or received at this time or later.
    since: Option<Timestamp>,
    /// Created or received before this time.
    until: Option<Timestamp>,
    /// Maximum number of rows per page; by default 50, of sources, destinations and routes 1000, of an
    /// export all.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    #[schemars(with = "Option<Cursor>")]
    cursor: Option<EventId>,
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let list = Operation::new("list_messages", "List messages sent through the API, newest first.")
        .query::<MessageQuery>()
        .returns::<ListResponse<MessageResponse>>(200);
    let get = Operation::new("get_message", "Get a message and its status updates.")
        .path::<EventId>("id")
        .returns::<MessageDetail>(200)
        .with_conditional_get();
    api.post("/api/v1/messages", send_message, send_operation())
        .get("/api/v1/messages", list_messages, list)
        .get("/api/v1/messages/{id}", get_message, get)
}

/// Loads messages with their delivery and status updates.
struct MessageLoader<'a> {
    server: &'a ServerState,
    names: HashMap<DestinationId, String>,
    providers: HashMap<SourceId, &'static Provider>,
}

struct LoadedMessage {
    message: MessageResponse,
    delivery: Option<DeliveryRow>,
    statuses: Vec<(MessageStatusUpdate, EventRow)>,
}

impl<'a> MessageLoader<'a> {
    fn new(server: &'a ServerState, configuration: &Configuration) -> Self {
        let provider = |name: &str| provider::find(name);
        let sources = configuration.sources.iter();
        Self {
            server,
            names: deliveries::destination_names(configuration),
            providers: sources.filter_map(|s| Some((s.id, provider(&s.spec.provider)?))).collect(),
        }
    }

    /// Loads the messages of these events, in their order, with two queries in total.
    async fn load(&self, rows: Vec<EventRow>) -> Result<Vec<LoadedMessage>, Problem> {
        let store = self.server.engine.store();
        // Later deliveries replace earlier ones, so the newest remains.
        let events = rows.iter().map(|row| row.id).collect();
        let mut newest: HashMap<(EventId, DestinationId), DeliveryRow> = store
            .list_deliveries_of(events)
            .await?
            .into_iter()
            .map(|delivery| ((delivery.event, delivery.destination), delivery))
            .collect();
        let mut deliveries: Vec<(EventRow, Option<DeliveryRow>)> = Vec::with_capacity(rows.len());
        let (mut with_status, mut filters) = (Vec::new(), Vec::new());
        for row in rows {
            let delivery = destination_of(&row).and_then(|to| newest.remove(&(row.id, to)));
            if let Some(filter) =
                delivery.as_ref().and_then(|delivery| status_filter(&row, delivery))
            {
                with_status.push(row.id);
                filters.push(filter);
            }
            deliveries.push((row, delivery));
        }
        let statuses = match filters.is_empty() {
            true => Vec::new(),
            false => store.list_events_with_each(filters, STATUSES_MAX).await?,
        };
        let mut statuses: HashMap<EventId, Vec<EventRow>> =
            with_status.into_iter().zip(statuses).collect();
        let messages = deliveries.into_iter().map(|(row, delivery)| {
            let statuses = statuses.remove(&row.id).unwrap_or_default();
            self.build(&row, delivery, self.status_updates(statuses))
        });
        Ok(messages.collect())
    }

    fn build(
        &self,
        row: &EventRow,
        delivery: Option<DeliveryRow>,
        statuses: Vec<(MessageStatusUpdate, EventRow)>,
    ) -> LoadedMessage {
        let to =
            attribute(row, AttributeName::Phone).or_else(|| attribute(row, AttributeName::Chat));
        let updates = statuses.iter().map(|(update, _)| *update);
        let kind = row.kind.as_ref().map(|kind| kind.as_str());
        let message = MessageResponse {
            id: row.id,
            destination: destination_of(row).and_then(|id| self.names.get(&id).cloned()),
            kind: kind
                .map(|kind| kind.strip_prefix(MESSAGE_KIND_PREFIX).unwrap_or(kind).to_owned()),
            to: to.map(str::to_owned),
            // The time in the id, which lists are ordered by; the event is stored a moment later.
            created_at: row.id.created_at(),
            status: delivery.as_ref().map_or(MessageStatus::Cancelled, |delivery| {
                message_status(delivery.status, delivery.attempts, updates)
            }),
            reason: delivery.as_ref().and_then(|delivery| delivery.reason),
            attempts: delivery.as_ref().map_or(0, |delivery| delivery.attempts),
            delivery_id: delivery.as_ref().map(|delivery| delivery.id),
            message_id: delivery.as_ref().and_then(|delivery| delivery.sent_id.clone()),
        };
        LoadedMessage { message, delivery, statuses }
    }

    /// The status updates in these events, oldest first.
    fn status_updates(&self, events: Vec<EventRow>) -> Vec<(MessageStatusUpdate, EventRow)> {
        let update = |row: EventRow| {
            let provider = self.providers.get(&row.source)?;
            let status = attribute(&row, AttributeName::ProviderStatus);
            Some((provider.message_status(row.kind.as_ref()?.as_str(), status)?, row))
        };
        events.into_iter().rev().filter_map(update).collect()
    }

    async fn status_entry(
        &self,
        update: MessageStatusUpdate,
        row: EventRow,
    ) -> Result<MessageStatusEntry, Problem> {
        let mut error_title = None;
        if let (MessageStatusUpdate::Failed, Some(provider)) =
            (update, self.providers.get(&row.source))
        {
            let payload = self.server.engine.store().find_body(row.id).await?;
            error_title = payload.and_then(|payload| provider.failure_reason(&payload.body));
        }
        Ok(MessageStatusEntry {
            at: row.received_at,
            state: update,
            error_code: attribute(&row, AttributeName::Error).map(str::to_owned),
            error_title,
            event_id: row.id,
        })
    }
}

fn attribute(row: &EventRow, name: AttributeName) -> Option<&str> {
    row.attributes.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
}

/// The attribute by which status updates of a message are found. If the provider's id is unknown, an
/// update may still carry our own id.
fn status_filter(row: &EventRow, delivery: &DeliveryRow) -> Option<AttributeFilter> {
    match &delivery.sent_id {
        Some(id) => AttributeFilter::new(AttributeName::MessageId, id),
        None if delivery.attempts > 0 => {
            AttributeFilter::new(AttributeName::Object, &send_id(row.id, delivery.destination))
        }
        None => None,
    }
}

/// The destination of a message, which `Engine::send_message` stores as an attribute.
fn destination_of(row: &EventRow) -> Option<DestinationId> {
    let mut accounts = row.attributes.iter().filter(|(name, _)| *name == AttributeName::Account);
    accounts.find_map(|(_, value)| value.parse().ok())
}

fn outbox_id(configuration: &Configuration) -> Option<SourceId> {
    configuration.sources.iter().find(|source| source.spec.is_outbox()).map(|source| source.id)
}

async fn list_messages(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<MessageQuery>,
) -> Result<Json<ListResponse<MessageResponse>>, Problem> {
    let page = page_request(query.limit, query.cursor)?;
    let configuration = server.engine.store().load_configuration().await?;
    let filter = parse_filter(&query, &configuration)?;
    if filter.source.is_none() {
        return Ok(Json(ListResponse::default()));
    }
    let events = server.engine.store().list_events(filter, page).await?;
    let loader = MessageLoader::new(&server, &configuration);
    let messages = loader.load(events.rows).await?;
    let matches =
        |message: &MessageResponse| query.status.is_none_or(|status| message.status == status);
    let data = messages.into_iter().map(|loaded| loaded.message).filter(matches).collect();
    Ok(Json(ListResponse { data, next_cursor: events.next.map(|id| id.to_string()) }))
}

fn parse_filter(
    query: &MessageQuery,
    configuration: &Configuration,
) -> Result<EventFilter, Problem> {
    let invalid =
        || Problem::invalid(format!("`to` must have 1 to {VALUE_BYTES_MAX} printable bytes."));
    let to = query.to.as_deref();
    let to = to
        .map(|to| AttributeFilter::new(AttributeName::Phone, to).ok_or_else(invalid))
        .transpose()?;
    let destination = match query.destination.as_deref() {
        None => None,
        Some(name) => {
            let unknown = |_| Problem::invalid(format!("No destination is named `{name}`."));
            let resource =
                find_resource::<DestinationSpec>(configuration, name).map_err(unknown)?;
            AttributeFilter::new(AttributeName::Account, &resource.id.to_string())
        }
    };
    Ok(EventFilter {
        source: outbox_id(configuration),
        attributes: to.into_iter().chain(destination).collect(),
        since: query.since,
        until: query.until,
        ..EventFilter::default()
    })
}

async fn get_message(
    State(server): State<Arc<ServerState>>,
    PathParam(id): PathParam,
) -> Result<JsonWithETag<MessageDetail>, Problem> {
    let not_found = || Problem::not_found("message");
    let id: EventId = id.parse().map_err(|_| not_found())?;
    let configuration = server.engine.store().load_configuration().await?;
    let event = server.engine.store().find_event(id).await?.ok_or_else(not_found)?;
    if outbox_id(&configuration) != Some(event.event.source) {
        return Err(not_found());
    }
    let loader = MessageLoader::new(&server, &configuration);
    let loaded = loader.load(vec![event.event]).await?.pop();
    let LoadedMessage { message, delivery, statuses } = loaded.ok_or_else(not_found)?;
    let mut entries = Vec::with_capacity(statuses.len());
    for (state, row) in statuses {
        entries.push(loader.status_entry(state, row).await?);
    }
    let delivery = delivery.map(|row| deliveries::delivery_response(row, &loader.names));
    Ok(JsonWithETag(StatusCode::OK, MessageDetail { message, delivery, statuses: entries }))
}

/// How far ahead a message may be scheduled.
const DELAY_MAX: Duration = Duration::from_secs(30 * 86_400);

/// A message for a messaging destination such as WhatsApp.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SendMessageRequest {
    /// Name or id of the destination.
    destination: String,
    #[serde(flatten)]
    message: MessageSpec,
    #[serde(flatten)]
    time: SendTime,
}

/// A webhook for any other destination.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SendWebhookRequest {
    /// Name or id of the destination.
    destination: String,
    #[serde(flatten)]
    webhook: WebhookContent,
    callback: Option<CallbackRequest>,
    #[serde(flatten)]
    time: SendTime,
}

/// A webhook for a URL without a configured destination.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SendToUrlRequest {
    /// URL to deliver to; the token must allow it (`urls`). The first request to a host creates a
    /// destination of kind `origin`.
    url: String,
    /// Retry policy; by default that of the host's destination, which is `standard` at first.
    retry: Option<RetrySpec>,
    /// Timeout of one attempt; by default that of the host's destination, 30s at first.
    timeout: Option<HumanDuration>,
    #[serde(flatten)]
    webhook: WebhookContent,
    callback: Option<CallbackRequest>,
    #[serde(flatten)]
    time: SendTime,
}

/// Webhook that reports how the delivery ended. Set either `url` or `destination`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallbackRequest {
    /// URL to report to; the token must allow it.
    #[serde(default)]
    url: Option<String>,
    /// Name or id of the destination to report to.
    #[serde(default)]
    destination: Option<String>,
    /// Ends to report; all by default.
    #[serde(default = "all_ends")]
    #[schemars(length(min = 1))]
    on: Vec<DeliveryEnd>,
}

fn all_ends() -> Vec<DeliveryEnd> {
    DeliveryEnd::ALL.to_vec()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WebhookContent {
    /// Event type, such as `order.paid`; `webhook` by default.
    #[serde(default, rename = "type")]
    #[schemars(with = "Option<EventKind>")]
    kind: Option<String>,
    /// Any JSON; sent byte for byte.
    #[schemars(with = "Value")]
    body: Box<RawValue>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// When to send; immediately by default.
#[derive(Default, Deserialize, JsonSchema)]
struct SendTime {
    /// Earliest time to send, at most 30 days ahead.
    #[serde(default)]
    send_at: Option<Timestamp>,
    /// Delay before sending, at most 30 days.
    #[serde(default)]
    delay: Option<HumanDuration>,
}

impl SendTime {
    fn delay_from(&self, now: Timestamp) -> Result<Duration, Problem> {
        let delay = match (self.send_at, self.delay) {
            (None, None) => return Ok(Duration::ZERO),
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("Set either `send_at` or `delay`, not both."));
            }
            (Some(at), None) => at.since(now),
            (None, Some(delay)) => delay.0,
        };
        match delay <= DELAY_MAX {
            true => Ok(delay),
            false => Err(Problem::invalid("`send_at` and `delay` must be at most 30d ahead.")),
        }
    }
}

fn send_operation() -> Operation {
    let example = json!({ "destination": "whatsapp", "to": "+5511987654321", "text": "Your order is on its way." });
    Operation::new(
        "send_message",
        "Send a message or a webhook.",
    )
    .description(
        "202 means that the message is stored on disk. A message that the provider could not send is \
             refused, and nothing is stored. The message becomes an event of the source `outbox`, so \
             routes from `outbox` apply. With an `Idempotency-Key` it is sent only once. With a `url` \
             instead of a `destination`, a webhook is delivered to any URL that the token allows. A \
             `callback` reports how the delivery of a webhook ended.",
    )
    .body::<OneOf<SendMessageRequest, OneOf<SendWebhookRequest, SendToUrlRequest>>>(example)
    .returns::<AcceptedMessageResponse>(202)
    .problem(403, &["url_not_allowed"])
    .problem(
        409,
        &["destination_misconfigured", "outbox_taken", "media_not_configured", "too_many_origins"],
    )
    .problem(422, &["unknown_destination", "invalid_message", "unsendable"])
    .problem(503, &["source_disabled", "source_misconfigured"])
}

/// The fields of the request, unparsed.
type JsonFields = BTreeMap<String, Box<RawValue>>;

/// Where a message goes, and the URL if the request named one.
struct MessageTarget {
    to: SendTarget,
    url: Option<OneShotUrl>,
}

async fn send_message(
    State(server): State<Arc<ServerState>>,
    Extension(urls): Extension<UrlAccess>,
    IdempotencyContext(identity): IdempotencyContext,
    headers: HeaderMap,
    JsonBody(mut fields): JsonBody<JsonFields>,
) -> Result<(StatusCode, Json<AcceptedMessageResponse>), Problem> {
    let time = SendTime {
        send_at: take_field(&mut fields, "send_at")?,
        delay: take_field(&mut fields, "delay")?,
    };
    let delay = time.delay_from(server.engine.clock().now())?;
    let callback: Option<CallbackRequest> = take_field(&mut fields, "callback")?;
    let MessageTarget { to, url } = find_target(&server, &urls, &mut fields).await?;
    check_ordering(to.destination(), delay)?;
    let destination = to.destination().name.to_string();
    let mut post = build_post(&server, to.destination(), &fields).await?;
    copy_trace_context(&headers, &mut post.headers);
    let post = match url {
        Some(OneShotUrl { path, query, .. }) => OutboxPost { path, query, ..post },
        None => post,
    };
    let callback = match callback {
        Some(request) => Some(build_callback(&server, &urls, to.destination(), request).await?),
        None => None,
    };
    let posted = server.engine.send_message(to, post, identity, delay, callback).await?;
    let (id, delivery_id) = (posted.event, posted.delivery);
    let status = MessageStatus::Accepted;
    Ok((
        StatusCode::ACCEPTED,
        Json(AcceptedMessageResponse { id, delivery_id, destination, status }),
    ))
}

/// Finds the destination that the request names, or the one behind its URL.
async fn find_target(
    server: &ServerState,
    urls: &UrlAccess,
    fields: &mut JsonFields,
) -> Result<MessageTarget, Problem> {
    let destination: Option<String> = take_field(fields, "destination")?;
    // A media message has no field of this name.
    let url: Option<String> = take_field(fields, "url")?;
    match (destination, url) {
        (Some(name), None) => {
            let to = server.engine.find_send_target(&name).await?;
            if matches!(to.destination().transport, Transport::Origin(_)) {
                return Err(Problem::invalid(format!(
                    "Destination `{name}` stands for all URLs of a host. Set `url` instead of `destination`."
                )));
            }
            Ok(MessageTarget { to, url: None })
        }
        (None, Some(url)) => {
            let (retry, timeout) = (take_field(fields, "retry")?, take_field(fields, "timeout")?);
            let url = parse_url("url", &url, urls)?;
            let to = server.engine.find_one_shot_target(&url, retry, timeout).await?;
            Ok(MessageTarget { to, url: Some(url) })
        }
        (None, None) => Err(Problem::invalid(
            "`destination` is missing. Set it, or `url` for a one-shot webhook.",
        )),
        (Some(_), Some(_)) => Err(Problem::invalid("Set either `destination` or `url`, not both.")),
    }
}

fn parse_url(field: &str, text: &str, urls: &UrlAccess) -> Result<OneShotUrl, Problem> {
    let url = text.parse::<OneShotUrl>();
    let url = url.map_err(|error| Problem::invalid(format!("{field}: {error}")))?;
    urls.check(&url)?;
    Ok(url)
}

async fn build_callback(
    server: &ServerState,
    urls: &UrlAccess,
    destination: &Destination,
    request: CallbackRequest,
) -> Result<Callback, Problem> {
    if destination.sender().is_some() {
        return Err(Problem::invalid(
            "`callback` is for webhooks. Follow a message by its status, or by the status events of its source.",
        ));
    }
    let CallbackRequest { url, destination, on } = request;
    if on.is_empty() {
        return Err(Problem::invalid("callback: `on` is empty. Omit it to report every end."));
    }
    match (destination, url) {
        (Some(name), None) => {
            let to = server.engine.find_send_target(&name).await?;
            if !matches!(to.destination().transport, Transport::Http(_) | Transport::Inbox) {
                return Err(Problem::invalid(format!(
                    "callback: destination `{name}` cannot report an end. Use one of kind `http`."
                )));
            }
            let destination = to.destination().id;
            Ok(Callback { destination, path: String::new(), query: None, on })
        }
        (None, Some(url)) => {
            let url = parse_url("callback", &url, urls)?;
            let to = server.engine.find_one_shot_target(&url, None, None).await?;
            let OneShotUrl { path, query, .. } = url;
            Ok(Callback { destination: to.destination().id, path, query, on })
        }
        (None, None) | (Some(_), Some(_)) => {
            Err(Problem::invalid("callback: set either `url` or `destination`."))
        }
    }
}

/// A delayed message would hold up all later ones in its ordering queue.
fn check_ordering(destination: &Destination, delay: Duration) -> Result<(), Problem> {
    if delay.is_zero() || destination.lane.order.is_none() {
        return Ok(());
    }
    Err(Problem::invalid(format!(
        "Destination `{}` delivers in order, so a delayed message would hold up all later ones. Remove \
         `send_at` and `delay`, or use a destination without `order`.",
        destination.name
    )))
}

/// Removes and parses a field that is not part of the message.
fn take_field<T: DeserializeOwned>(
    fields: &mut JsonFields,
    name: &str,
) -> Result<Option<T>, Problem> {
    let Some(json_text) = fields.remove(name) else { return Ok(None) };
    let invalid = |error| Problem::invalid(format!("{name}: {error}"));
    serde_json::from_str(json_text.get()).map_err(invalid)
}

/// Builds the message or webhook from the remaining fields.
async fn build_post(
    server: &ServerState,
    destination: &Destination,
    fields: &JsonFields,
) -> Result<OutboxPost, Problem> {
    let sends_messages = matches!(destination.transport, Transport::Channel(_));
    check_fields(destination, sends_messages, fields)?;
    if let Transport::Channel(sender) = &destination.transport {
        build_message(server, sender, fields).await
    } else {
        build_webhook(fields)
    }
}

/// Checks that a messaging destination gets a message, and any other a webhook.
fn check_fields(
    destination: &Destination,
    sends_messages: bool,
    fields: &JsonFields,
) -> Result<(), Problem> {
    let name = &destination.name;
    match (sends_messages, fields.contains_key("body"), fields.contains_key("to")) {
        (true, true, false) => Err(Problem::invalid(format!(
            "Destination `{name}` sends messages. Use `to` and `text` or another message field, not `body`."
        ))),
        (false, false, true) => Err(Problem::invalid(format!(
            "Destination `{name}` receives webhooks. Use `body` with any JSON, not a message with `to`."
        ))),
        (_, _, _) => Ok(()),
    }
}

async fn build_message(
    server: &ServerState,
    sender: &MessageSender,
    fields: &JsonFields,
) -> Result<OutboxPost, Problem> {
    let invalid = |error: &dyn std::fmt::Display| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "invalid_message", error.to_string())
    };
    let spec: MessageSpec = parse_fields(fields).map_err(|error| invalid(&error))?;
    let mut message = spec.clone().build().map_err(|error| invalid(&error))?;
    let post = OutboxPost::message(&spec, &message);
    // Composes the request only to check that the provider could send it; nothing is sent here.
    let now = server.engine.clock().now();
    server.engine.media().resolve_files(&mut message, sender.channel.name(), now).await?;
    sender.channel.compose(&sender.account, &message, "trial").map_err(|error| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unsendable", error.to_string())
    })?;
    Ok(post)
}

fn build_webhook(fields: &JsonFields) -> Result<OutboxPost, Problem> {
    let WebhookContent { kind, body, headers } =
        parse_fields(fields).map_err(|error| Problem::invalid(error.to_string()))?;
    let body = Bytes::from(String::from(Box::<str>::from(body)));
    OutboxPost::webhook(kind.as_deref(), &headers, body)
        .map_err(|e| Problem::invalid(e.to_string()))
}

fn parse_fields<T: DeserializeOwned>(fields: &JsonFields) -> serde_json::Result<T> {
    serde_json::from_slice(&serde_json::to_vec(fields)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delayed_message_to_ordered_destination_is_refused() {
        let later = Duration::from_secs(60);
        let cases = [
            (json!(null), later, true),
            (json!({ "key": "/to" }), Duration::ZERO, true),
            (json!({ "key": "/to" }), later, false),
        ];
        for (order, delay, is_accepted) in cases {
            let spec = json!({ "name": "out", "url": "https://out.example/", "order": order });
            let spec: DestinationSpec = serde_json::from_value(spec).unwrap();
            let id = DestinationId::new(Timestamp::from_millis(1), 1);
            let destination = spec.build(id, &|_| None).unwrap();
            let checked = check_ordering(&destination, delay);
            assert_eq!(checked.is_ok(), is_accepted, "case: {order} {delay:?}");
        }
    }
}
