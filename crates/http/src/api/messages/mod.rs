//! `/api/v1/messages`: what was sent over the API, and what became of it.

mod send;

use std::{collections::HashMap, sync::Arc};

use axum::{Json, extract::State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_core::{
    attribute::{AttributeFilter, AttributeName, VALUE_BYTES_MAX},
    channel::{MessageStatus, MessageStatusUpdate, message_status},
    delivery::DeadReason,
    destination::{DestinationSpec, sender::send_id},
    ids::{DeliveryId, DestinationId, EventId, SourceId},
    outbox::MESSAGE_KIND_PREFIX,
    provider::{self, Provider},
    store::{Configuration, DeliveryRow, EventFilter, EventRow},
    time::Timestamp,
};

use super::{
    LIMIT_MAX, List, cursor,
    deliveries::{self, Delivery},
    input::{Asked, Segment},
    limit, page,
    resources::{self, find_in},
    tagged::Tagged,
    time, word,
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// Statuses of one message that are looked at.
const STATUSES_MAX: usize = 200;

/// Which messages are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MessageQuery {
    /// Only through this destination: its name or its id.
    #[schemars(with = "Option<resources::Wanted<DestinationSpec>>")]
    destination: Option<String>,
    /// Only to this phone, in any form, or to this other address.
    #[schemars(length(min = 1, max = VALUE_BYTES_MAX))]
    to: Option<String>,
    /// Only those of which this became. A page is looked through for them and may be short.
    #[schemars(with = "Option<MessageStatus>")]
    status: Option<String>,
    /// Only asked for at this time or later: by `created_at`.
    #[schemars(with = "Option<Timestamp>")]
    since: Option<String>,
    /// Only asked for before this time.
    #[schemars(with = "Option<Timestamp>")]
    until: Option<String>,
    /// At most this many; 50 when left out.
    #[schemars(with = "Option<u16>", range(min = 1, max = LIMIT_MAX))]
    limit: Option<String>,
    /// Goes on after the page that gave this.
    #[schemars(with = "Option<EventId>")]
    cursor: Option<String>,
}

/// A message and what became of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Message")]
struct Shown {
    /// Its id, which is the id of its event.
    id: EventId,
    /// The name of its destination; null when that was deleted.
    destination: Option<String>,
    /// `text`, `image`, `template` and so on; of a webhook its own type.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Who gets it; null for a webhook.
    to: Option<String>,
    /// When it was asked for, the first time if that was more than once with an `Idempotency-Key`.
    created_at: Timestamp,
    status: MessageStatus,
    /// Why its delivery was given up.
    reason: Option<DeadReason>,
    attempts: u32,
    /// The newest delivery of it.
    delivery_id: Option<DeliveryId>,
    /// What the service calls it.
    sent_id: Option<String>,
}

/// A message with what the service told about it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MessageWithStatuses")]
struct ShownWhole {
    #[serde(flatten)]
    message: Shown,
    /// The newest delivery to its destination; null when that was deleted meanwhile.
    delivery: Option<Delivery>,
    /// What the service told, oldest first. Statuses come in any order, and some twice.
    statuses: Vec<ShownStatus>,
}

/// Something that the service told.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StatusOfMessage")]
struct ShownStatus {
    /// When it came.
    at: Timestamp,
    state: MessageStatusUpdate,
    /// The service's code of what went wrong.
    error_code: Option<String>,
    /// The same in its words.
    error_title: Option<String>,
    /// The event that told it.
    event_id: EventId,
}

pub(crate) fn routes(api: Api) -> Api {
    let list = Op::new("list_messages", "Messages that were sent over the API, newest first.")
        .query::<MessageQuery>()
        .answers::<List<Shown>>(200);
    let find = Op::new("find_message", "One message, and what became of it.")
        .path::<EventId>("id")
        .answers::<ShownWhole>(200)
        .cached();
    api.post("/api/v1/messages", send::send, send::op())
        .get("/api/v1/messages", list_messages, list)
        .get("/api/v1/messages/{id}", find_message, find)
}

/// Knows what is needed to tell what became of messages.
struct Teller<'a> {
    app: &'a App,
    names: HashMap<DestinationId, String>,
    providers: HashMap<SourceId, &'static dyn Provider>,
}

/// A message while it is put together.
struct Known {
    shown: Shown,
    delivery: Option<DeliveryRow>,
    statuses: Vec<(MessageStatusUpdate, EventRow)>,
}

impl<'a> Teller<'a> {
    fn new(app: &'a App, configuration: &Configuration) -> Self {
        let provider = |name: &str| provider::find(name);
        let of = configuration.sources.iter();
        Self {
            app,
            names: deliveries::destination_names(configuration),
            providers: of.filter_map(|s| Some((s.id, provider(&s.spec.provider)?))).collect(),
        }
    }

    /// All that is known of the messages that are these events, in their order: in two looks at the
    /// store, however many they are.
    async fn tell(&self, rows: Vec<EventRow>) -> Result<Vec<Known>, Problem> {
        let store = self.app.engine.store();
        // Later ones take the place of earlier ones: the newest is left.
        let events = rows.iter().map(|row| row.id).collect();
        let mut newest: HashMap<(EventId, DestinationId), DeliveryRow> = store
            .deliveries_of(events)
            .await?
            .into_iter()
            .map(|delivery| ((delivery.event, delivery.destination), delivery))
            .collect();
        let mut found: Vec<(EventRow, Option<DeliveryRow>)> = Vec::with_capacity(rows.len());
        let (mut named, mut asked) = (Vec::new(), Vec::new());
        for row in rows {
            let delivery = destination_of(&row).and_then(|to| newest.remove(&(row.id, to)));
            if let Some(wanted) = delivery.as_ref().and_then(|delivery| named_in(&row, delivery)) {
                named.push(row.id);
                asked.push(wanted);
            }
            found.push((row, delivery));
        }
        let statuses = match asked.is_empty() {
            true => Vec::new(),
            false => store.events_with_each(asked, STATUSES_MAX).await?,
        };
        let mut statuses: HashMap<EventId, Vec<EventRow>> =
            named.into_iter().zip(statuses).collect();
        let known = found.into_iter().map(|(row, delivery)| {
            let statuses = statuses.remove(&row.id).unwrap_or_default();
            self.known(&row, delivery, self.told(statuses))
        });
        Ok(known.collect())
    }

    fn known(
        &self,
        row: &EventRow,
        delivery: Option<DeliveryRow>,
        statuses: Vec<(MessageStatusUpdate, EventRow)>,
    ) -> Known {
        let to =
            attribute(row, AttributeName::Phone).or_else(|| attribute(row, AttributeName::Chat));
        let told = statuses.iter().map(|(told, _)| *told);
        let kind = row.kind.as_ref().map(|kind| kind.as_str());
        let shown = Shown {
            id: row.id,
            destination: destination_of(row).and_then(|id| self.names.get(&id).cloned()),
            kind: kind
                .map(|kind| kind.strip_prefix(MESSAGE_KIND_PREFIX).unwrap_or(kind).to_owned()),
            to: to.map(str::to_owned),
            // What its id says, by which lists find it; the event is there a moment later.
            created_at: row.id.at(),
            status: delivery.as_ref().map_or(MessageStatus::Cancelled, |delivery| {
                message_status(delivery.status, delivery.attempts, told)
            }),
            reason: delivery.as_ref().and_then(|delivery| delivery.reason),
            attempts: delivery.as_ref().map_or(0, |delivery| delivery.attempts),
            delivery_id: delivery.as_ref().map(|delivery| delivery.id),
            sent_id: delivery.as_ref().and_then(|delivery| delivery.sent_id.clone()),
        };
        Known { shown, delivery, statuses }
    }

    /// What these events tell about a message, oldest first.
    fn told(&self, found: Vec<EventRow>) -> Vec<(MessageStatusUpdate, EventRow)> {
        let told = |row: EventRow| {
            let provider = self.providers.get(&row.source)?;
            let status = attribute(&row, AttributeName::ProviderStatus);
            Some((provider.message_status(row.kind.as_ref()?.as_str(), status)?, row))
        };
        found.into_iter().rev().filter_map(told).collect()
    }

    /// One status as it is shown.
    async fn shown(
        &self,
        told: MessageStatusUpdate,
        row: EventRow,
    ) -> Result<ShownStatus, Problem> {
        let mut error_title = None;
        if let (MessageStatusUpdate::Failed, Some(provider)) =
            (told, self.providers.get(&row.source))
        {
            let payload = self.app.engine.store().body(row.id).await?;
            error_title = payload.and_then(|payload| provider.failure_reason(&payload.body));
        }
        Ok(ShownStatus {
            at: row.received_at,
            state: told,
            error_code: attribute(&row, AttributeName::Error).map(str::to_owned),
            error_title,
            event_id: row.id,
        })
    }
}

fn attribute(row: &EventRow, name: AttributeName) -> Option<&str> {
    row.attributes.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
}

/// What a status of a message has. Where nobody knows what the service calls it, a status may still
/// name our own id.
fn named_in(row: &EventRow, delivery: &DeliveryRow) -> Option<AttributeFilter> {
    match &delivery.sent_id {
        Some(id) => AttributeFilter::new(AttributeName::MessageId, id),
        None if delivery.attempts > 0 => {
            AttributeFilter::new(AttributeName::Object, &send_id(row.id, delivery.destination))
        }
        None => None,
    }
}

/// Where a message was sent to: `Engine::send` writes it down.
fn destination_of(row: &EventRow) -> Option<DestinationId> {
    let mut accounts = row.attributes.iter().filter(|(name, _)| *name == AttributeName::Account);
    accounts.find_map(|(_, value)| value.parse().ok())
}

/// The id of the outbox, if there is one.
fn outbox(configuration: &Configuration) -> Option<SourceId> {
    configuration.sources.iter().find(|source| source.spec.is_outbox()).map(|source| source.id)
}

/// Messages, newest first.
async fn list_messages(
    State(app): State<Arc<App>>,
    Asked(query): Asked<MessageQuery>,
) -> Result<Json<List<Shown>>, Problem> {
    let limit = limit(query.limit.as_deref())?;
    let after = cursor(query.cursor.as_deref())?;
    let known = MessageStatus::ALL.map(MessageStatus::as_str);
    let status = word("status", query.status.as_deref(), MessageStatus::from_word, &known)?;
    let configuration = app.engine.store().configuration().await?;
    let filter = filter(&query, &configuration)?;
    if filter.source.is_none() {
        return Ok(Json(List { data: Vec::new(), next_cursor: None }));
    }
    let found = app.engine.store().events(filter, page(limit, after)).await?;
    let teller = Teller::new(&app, &configuration);
    let told = teller.tell(found.rows).await?;
    let is_meant = |shown: &Shown| status.is_none_or(|status| shown.status == status);
    let data = told.into_iter().map(|told| told.shown).filter(is_meant).collect();
    Ok(Json(List { data, next_cursor: found.next.map(|id| id.to_string()) }))
}

fn filter(query: &MessageQuery, configuration: &Configuration) -> Result<EventFilter, Problem> {
    let invalid = || Problem::invalid(format!("to has 1 to {VALUE_BYTES_MAX} printable bytes"));
    let to = query.to.as_deref();
    let to = to
        .map(|to| AttributeFilter::new(AttributeName::Phone, to).ok_or_else(invalid))
        .transpose()?;
    let through = match query.destination.as_deref() {
        None => None,
        Some(wanted) => {
            let unknown = |_| Problem::invalid(format!("there is no destination `{wanted}`"));
            let found = find_in::<DestinationSpec>(configuration, wanted).map_err(unknown)?;
            AttributeFilter::new(AttributeName::Account, &found.id.to_string())
        }
    };
    Ok(EventFilter {
        source: outbox(configuration),
        attributes: to.into_iter().chain(through).collect(),
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
        ..EventFilter::default()
    })
}

/// One message, and what became of it.
async fn find_message(
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> Result<Tagged<ShownWhole>, Problem> {
    let none = || Problem::not_found("message");
    let id: EventId = id.parse().map_err(|_| none())?;
    let configuration = app.engine.store().configuration().await?;
    let event = app.engine.store().event(id).await?.ok_or_else(none)?;
    if outbox(&configuration) != Some(event.event.source) {
        return Err(none());
    }
    let teller = Teller::new(&app, &configuration);
    let told = teller.tell(vec![event.event]).await?.pop();
    let Known { shown, delivery, statuses } = told.ok_or_else(none)?;
    let mut told = Vec::with_capacity(statuses.len());
    for (state, row) in statuses {
        told.push(teller.shown(state, row).await?);
    }
    let delivery = delivery.map(|row| deliveries::delivery(row, &teller.names));
    Ok(Tagged(StatusCode::OK, ShownWhole { message: shown, delivery, statuses: told }))
}
