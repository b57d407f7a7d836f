//! `GET /api/v1/stream`: what happens, as server-sent events.

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
use surehook_core::{access::TokenHash, name::Name};
use surehook_engine::feed::{FeedSubscriber, LiveUpdate, MissedUpdates, NumberedUpdate};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    input::Asked,
    outflow::{Gone, Outflow},
};
use crate::{
    App,
    openapi::{Api, Op},
    problem::Problem,
};

/// Streams at the same time.
pub(crate) const STREAMS_MAX: usize = 64;
/// A stream is never silent for longer, so that both ends notice when the other is gone. A client may
/// close its half and still read, so only writing shows that it is not there: the second time.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a client waits before it comes back.
const RETRY: Duration = Duration::from_secs(2);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What is wanted of the stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamQuery {
    /// Only these kinds, with commas between them; all when left out.
    #[schemars(regex(
        pattern = r"^(event\.received|delivery\.changed|destination\.changed)(,(event\.received|delivery\.changed|destination\.changed))*$"
    ))]
    types: Option<String>,
    /// Of `event.received`: only of this source.
    #[schemars(with = "Option<Name>")]
    source: Option<String>,
    /// Of `delivery.changed` and `destination.changed`: only of this destination.
    #[schemars(with = "Option<Name>")]
    destination: Option<String>,
    /// Goes on after this id; the header `Last-Event-ID` says the same and wins.
    since: Option<String>,
}

/// Which news a client wants.
#[derive(Debug)]
struct Wanted {
    kinds: Vec<&'static str>,
    source: Option<Name>,
    destination: Option<Name>,
}

impl Wanted {
    fn read(query: &StreamQuery) -> Result<Self, Problem> {
        let kinds = match query.types.as_deref() {
            None => LiveUpdate::KINDS.to_vec(),
            Some(words) => words
                .split(',')
                .map(|word| LiveUpdate::KINDS.into_iter().find(|kind| *kind == word))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| {
                    Problem::invalid(format!("types are some of {}", LiveUpdate::KINDS.join(", ")))
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

    fn wants(&self, news: &LiveUpdate) -> bool {
        let is = |wanted: &Option<Name>, name: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| name.as_deref() == Some(wanted.as_str()))
        };
        self.kinds.contains(&news.kind())
            && match news {
                LiveUpdate::EventReceived(received) => is(&self.source, &received.source),
                LiveUpdate::DeliveryChanged(changed) => is(&self.destination, &changed.destination),
                LiveUpdate::DestinationChanged(changed) => is(&self.destination, &changed.name),
            }
    }
}

pub(crate) fn routes(api: Api) -> Api {
    let op = Op::new("stream", "What happens, as server-sent events.")
        .text(
            "Begins with `ready`. Then `event.received`, `delivery.changed` and \
             `destination.changed`, each with an id and, as data, the schema of that name \
             (`EventReceived`, `DeliveryChanged`, `DestinationChanged`). A client that comes back \
             with the last id it has goes on there. `reset` means that something is missing: load \
             what you show anew, then go on. A client that reads too slowly gets `reset` and the \
             stream ends. A comment comes at least every 5 seconds.",
        )
        .query::<StreamQuery>()
        .header("Last-Event-ID", "Goes on after this id.", json!({ "type": "string" }))
        .speaks_of::<LiveUpdate>()
        .answers_as(200, &["text/event-stream"])
        .refuses(503, &["too_many_streams"]);
    api.get("/api/v1/stream", stream, op)
}

/// What happens from now on, or from where the client was.
pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    Asked(query): Asked<StreamQuery>,
    token: Option<Extension<TokenHash>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wanted = Wanted::read(&query)?;
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        let detail = format!("{STREAMS_MAX} streams are open; close one of them");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", detail).retry_after(30)
    })?;
    let last = headers.get(&LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
    let since = last.or(query.since);
    let (listener, missed) = app.engine.feed().subscribe(since.as_deref());
    let (outflow, events) = Outflow::<Result<Event, Infallible>>::new();
    let ending = app.draining.clone();
    let token = token.map(|Extension(hash)| hash);
    let pouring = Pouring { app, token, listener, wanted, outflow, _place: place, ending };
    tokio::spawn(pouring.run(missed));
    Ok(Sse::new(events).into_response())
}

/// One open stream.
struct Pouring {
    app: Arc<App>,
    /// What it was opened with.
    token: Option<TokenHash>,
    listener: FeedSubscriber,
    wanted: Wanted,
    outflow: Outflow<Result<Event, Infallible>>,
    ending: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Pouring {
    async fn run(mut self, missed: Option<MissedUpdates>) {
        let ending = self.ending.clone();
        tokio::select! {
            () = ending.cancelled() => {}
            // The reader went away, or was told why the stream ends.
            Err(Gone) = self.pour(missed) => {}
        }
    }

    /// Pours until there is nobody to pour for.
    async fn pour(&mut self, missed: Option<MissedUpdates>) -> Result<Infallible, Gone> {
        let place = self.listener.position();
        let ready = Event::default().event("ready").retry(RETRY).id(&place);
        self.send(ready.data(json!({ "id": place }).to_string())).await?;
        if missed.is_some() {
            self.send(self.reset()).await?;
        }
        let mut silent_since = Instant::now();
        loop {
            let due = silent_since + HEARTBEAT;
            let news = tokio::select! {
                news = self.listener.next() => news,
                () = self.outflow.gone() => return Err(Gone),
                // A look, not only a sign of life: news that nobody was called for is found here.
                () = tokio::time::sleep_until(due) => self.listener.take_available(),
            };
            if !self.may_go_on() {
                return Err(Gone);
            }
            let Ok(news) = news else {
                // Too slow. It comes back with the id of this, and begins there.
                self.send(self.reset()).await?;
                return Err(Gone);
            };
            let said = self.tell(news).await?;
            if !said && Instant::now() >= due {
                // With an id: news that is not wanted moves the place on as well.
                let beat = Event::default().comment("heartbeat").id(self.listener.position());
                self.send(beat).await?;
            }
            if said || Instant::now() >= due {
                silent_since = Instant::now();
            }
        }
    }

    /// Whether the token is still good: one that was taken away opens nothing, at once.
    fn may_go_on(&self) -> bool {
        let now = self.app.engine.clock().now();
        self.token.is_none_or(|token| self.app.tokens.is_good(&token, now))
    }

    /// Tells what is wanted of it; says whether that was anything.
    async fn tell(&self, news: Vec<NumberedUpdate>) -> Result<bool, Gone> {
        let mut said = false;
        for (number, news) in news {
            if self.wanted.wants(&news) {
                // News is plain data and always becomes JSON.
                let data = serde_json::to_string(&*news).unwrap_or_default();
                let event = Event::default().event(news.kind()).id(self.listener.id(number));
                self.send(event.data(data)).await?;
                said = true;
            }
        }
        Ok(said)
    }

    fn reset(&self) -> Event {
        let data = json!({ "detail": "something is missing; load what you show anew" });
        Event::default().event("reset").id(self.listener.position()).data(data.to_string())
    }

    async fn send(&self, event: Event) -> Result<(), Gone> {
        self.outflow.send(Ok(event)).await
    }
}
