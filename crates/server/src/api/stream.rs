//! `GET /api/v1/stream`: live updates as server-sent events.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use http::{HeaderMap, HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use surehook_core::access::TokenHash;
use surehook_engine::feed::{
    DeliveryChanged, DestinationChanged, EventReceived, FeedSubscriber, LiveUpdate, MissedUpdates,
    NumberedUpdate,
};
use surehook_types::name::Name;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    extract::QueryParams,
    response_stream::{ReaderGone, ResponseSender},
};
use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Streams open at the same time. A client that left still counts until the second heartbeat, so this
/// must also hold everyone who goes from page to page of the dashboard within 10 seconds.
pub(crate) const STREAMS_MAX: usize = 512;
/// Interval of comments on a silent stream, so that both ends notice a broken connection. A client may
/// close its half and still read, so only a failed write shows that it is gone.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Reconnection delay suggested to clients.
const RECONNECT_DELAY: Duration = Duration::from_secs(2);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Filter and position of a stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamQuery {
    /// Comma-separated update types; all by default.
    #[schemars(regex(
        pattern = r"^(event\.received|delivery\.changed|destination\.changed)(,(event\.received|delivery\.changed|destination\.changed))*$"
    ))]
    types: Option<String>,
    /// Only `event.received` of this source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Only `delivery.changed` and `destination.changed` of this destination.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Resume after this id. The header `Last-Event-ID` takes precedence.
    since: Option<String>,
}

/// Selects the updates of a stream.
#[derive(Debug)]
struct StreamFilter {
    kinds: Vec<&'static str>,
    source: Option<Name>,
    destination: Option<Name>,
}

impl StreamFilter {
    fn parse(query: &StreamQuery) -> Result<Self, Problem> {
        let kinds = match query.types.as_deref() {
            None => LiveUpdate::KINDS.to_vec(),
            Some(names) => names
                .split(',')
                .map(|name| LiveUpdate::KINDS.into_iter().find(|kind| *kind == name))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| {
                    Problem::invalid(format!(
                        "`types` must be some of: {}",
                        LiveUpdate::KINDS.join(", ")
                    ))
                })?,
        };
        let name = |field, name: Option<&str>| {
            let invalid = |error| Problem::invalid(format!("{field}: {error}"));
            name.map(|name| name.parse::<Name>().map_err(invalid)).transpose()
        };
        Ok(Self {
            kinds,
            source: name("source", query.source.as_deref())?,
            destination: name("destination", query.destination.as_deref())?,
        })
    }

    fn matches(&self, update: &LiveUpdate) -> bool {
        let matches_name = |filter: &Option<Name>, name: &Option<String>| {
            filter.as_ref().is_none_or(|filter| name.as_deref() == Some(filter.as_str()))
        };
        self.kinds.contains(&update.kind())
            && match update {
                LiveUpdate::EventReceived(received) => matches_name(&self.source, &received.source),
                LiveUpdate::DeliveryChanged(changed) => {
                    matches_name(&self.destination, &changed.destination)
                }
                LiveUpdate::DestinationChanged(changed) => {
                    matches_name(&self.destination, &changed.name)
                }
            }
    }
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let operation = Operation::new("stream_updates", "Stream live updates as server-sent events.")
        .description(
            "The first event is `ready`. Then follow `event.received`, `delivery.changed` and \
             `destination.changed`, each with an id and, as data, the schema of that name \
             (`EventReceived`, `DeliveryChanged`, `DestinationChanged`). A client that reconnects \
             with its last id resumes there. `reset` means that updates were missed: reload your \
             data, then continue. A client that reads too slowly gets `reset`, and the stream ends. \
             A comment is sent at least every 5 seconds.",
        )
        .query::<StreamQuery>()
        .header("Last-Event-ID", "Resume after this id.", json!({ "type": "string" }))
        .refers_to::<EventReceived>()
        .refers_to::<DeliveryChanged>()
        .refers_to::<DestinationChanged>()
        .returns_media(200, &["text/event-stream"])
        .problem(503, &["too_many_streams"]);
    api.get("/api/v1/stream", stream_updates, operation)
}

pub(crate) async fn stream_updates(
    State(server): State<Arc<ServerState>>,
    QueryParams(query): QueryParams<StreamQuery>,
    token: Option<Extension<TokenHash>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let filter = StreamFilter::parse(&query)?;
    let permit = Arc::clone(&server.stream_permits).try_acquire_owned().map_err(|_| {
        let detail = format!("{STREAMS_MAX} streams are already open. Close one of them.");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", detail).retry_after(30)
    })?;
    let last = headers.get(&LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
    let since = last.or(query.since);
    let (subscriber, missed) = server.engine.feed().subscribe(since.as_deref());
    let (sender, events) = ResponseSender::<Result<Event, Infallible>>::new();
    let draining = server.draining.clone();
    let token = token.map(|Extension(hash)| hash);
    let stream =
        UpdateStream { server, token, subscriber, filter, sender, _permit: permit, draining };
    tokio::spawn(stream.run(missed));
    Ok(Sse::new(events).into_response())
}

/// One open stream.
struct UpdateStream {
    server: Arc<ServerState>,
    /// The token that opened the stream.
    token: Option<TokenHash>,
    subscriber: FeedSubscriber,
    filter: StreamFilter,
    sender: ResponseSender<Result<Event, Infallible>>,
    draining: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl UpdateStream {
    async fn run(mut self, missed: Option<MissedUpdates>) {
        let draining = self.draining.clone();
        tokio::select! {
            () = draining.cancelled() => {}
            // The reader disconnected or was too slow.
            Err(ReaderGone) = self.forward_updates(missed) => {}
        }
    }

    /// Sends updates until the stream must end.
    async fn forward_updates(
        &mut self,
        missed: Option<MissedUpdates>,
    ) -> Result<Infallible, ReaderGone> {
        let position = self.subscriber.position();
        let ready = Event::default().event("ready").retry(RECONNECT_DELAY).id(&position);
        self.send(ready.data(json!({ "id": position }).to_string())).await?;
        if missed.is_some() {
            self.send(self.reset_event()).await?;
        }
        let mut silent_since = Instant::now();
        loop {
            let due = silent_since + HEARTBEAT;
            let updates = tokio::select! {
                updates = self.subscriber.next() => updates,
                () = self.sender.closed() => return Err(ReaderGone),
                // Also polls: updates whose wake-up was missed are found here.
                () = tokio::time::sleep_until(due) => self.subscriber.take_available(),
            };
            if !self.is_token_valid() {
                return Err(ReaderGone);
            }
            let Ok(updates) = updates else {
                // Too slow. The client reconnects with the id of this event and resumes there.
                self.send(self.reset_event()).await?;
                return Err(ReaderGone);
            };
            let has_sent = self.send_updates(updates).await?;
            if !has_sent && Instant::now() >= due {
                // With an id: updates that the filter skips advance the position as well.
                let beat = Event::default().comment("heartbeat").id(self.subscriber.position());
                self.send(beat).await?;
            }
            if has_sent || Instant::now() >= due {
                silent_since = Instant::now();
            }
        }
    }

    /// Revoking a token ends its streams at once.
    fn is_token_valid(&self) -> bool {
        let now = self.server.engine.clock().now();
        self.token.is_none_or(|token| self.server.tokens.is_valid(&token, now))
    }

    /// Sends the updates that match the filter; returns whether there were any.
    async fn send_updates(&self, updates: Vec<NumberedUpdate>) -> Result<bool, ReaderGone> {
        let mut has_sent = false;
        for (number, update) in updates {
            if self.filter.matches(&update) {
                // Updates always serialize.
                let data = serde_json::to_string(&*update).unwrap_or_default();
                let event = Event::default().event(update.kind()).id(self.subscriber.id(number));
                self.send(event.data(data)).await?;
                has_sent = true;
            }
        }
        Ok(has_sent)
    }

    fn reset_event(&self) -> Event {
        let data = json!({ "detail": "Updates were missed. Reload your data." });
        Event::default().event("reset").id(self.subscriber.position()).data(data.to_string())
    }

    async fn send(&self, event: Event) -> Result<(), ReaderGone> {
        self.sender.send(Ok(event)).await
    }
}
