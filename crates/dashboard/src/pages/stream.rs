//! `/stream`: what happens, told to a page a few times a second. `/live` shows it.
//!
//! A tab has one stream. It is pulled: a browser that reads slowly makes nothing wait and nothing
//! grow here; the API's stream falls behind, says `reset` and begins again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use askama::Template;
use axum::{
    Router,
    body::{Body, BodyDataStream},
    extract::Query,
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, Request, StatusCode, header};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    Dashboard,
    client::{Address, List},
    page::{Frame, Nav, Shown, show},
    show::Badge,
    tail::{Gathering, Parser, Wanted},
    visitor::Visitor,
    words::Live,
};

/// A page is told something at most so often.
const PACE: Duration = Duration::from_millis(250);
/// What comes together is told together, also after a silence.
const GATHER: Duration = Duration::from_millis(20);
/// With this, a browser that comes back says where it was.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/stream", get(follow)).route("/live", get(live))
}

async fn follow(visitor: Visitor, Query(wanted): Query<Wanted>, headers: HeaderMap) -> Response {
    let mut request = Request::get("/api/v1/stream");
    // What the browser says by itself is newer than what the page said when it opened the stream.
    let said = headers.get(LAST_EVENT_ID).and_then(|last| last.to_str().ok());
    if let Some(last) = said.or(wanted.since.as_deref()) {
        request = request.header(LAST_EVENT_ID, last);
    }
    let Ok(request) = request.body(Body::empty()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let answer = visitor.gateway().call(visitor.caller(), request).await;
    if answer.status() != StatusCode::OK {
        // Too many streams, or no rights any more: the browser comes back later.
        return answer.status().into_response();
    }
    let told = Telling {
        news: answer.into_body().into_data_stream(),
        parser: Parser::default(),
        gathering: Gathering::new(wanted),
        due: None,
        told_at: Instant::now(),
        is_over: false,
    };
    let body = stream::unfold(told, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), telling))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (X_ACCEL_BUFFERING, "no")];
    (headers, Body::from_stream(body)).into_response()
}

/// Tells proxies of the nginx kind to pass each batch on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// One open stream.
struct Telling {
    news: BodyDataStream,
    parser: Parser,
    gathering: Gathering,
    /// When what was gathered is told.
    due: Option<Instant>,
    told_at: Instant,
    is_over: bool,
}

impl Telling {
    /// What is told next; nothing when the gateway ends, or the session does.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.is_over {
                return None;
            }
            let due = self.due;
            let bytes = tokio::select! {
                // First: a flood of news would never let it be told.
                biased;
                () = async { tokio::time::sleep_until(due.unwrap_or(self.told_at)).await },
                    if due.is_some() => return Some(self.tell()),
                bytes = self.news.next() => bytes,
            };
            let Some(Ok(bytes)) = bytes else {
                self.is_over = true;
                return self.gathering.has_news().then(|| self.tell());
            };
            let mut is_alive = false;
            for piece in self.parser.feed(&bytes) {
                is_alive |= piece.name.is_empty() || piece.name == "ready";
                self.gathering.add(piece);
            }
            if self.gathering.has_news() {
                let now = Instant::now();
                self.due.get_or_insert((self.told_at + PACE).max(now + GATHER));
            } else if is_alive {
                return Some(": here\n\n".to_owned());
            }
        }
    }

    fn tell(&mut self) -> String {
        self.due = None;
        self.told_at = Instant::now();
        self.gathering.take().written()
    }
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Template)]
#[template(path = "live.html")]
struct LivePage {
    frame: Frame,
    t: &'static Live,
    sources: Vec<String>,
    destinations: Vec<String>,
    statuses: Vec<(&'static str, String)>,
    wanted: Wanted,
    /// Tone, icon and word of each status, as JSON: rows are made in the browser.
    badges: String,
}

const STATUSES: [&str; 7] =
    ["received", "succeeded", "scheduled", "dead", "held", "cancelled", "replayed"];

async fn live(visitor: Visitor, Query(wanted): Query<Wanted>) -> Shown {
    let t = Live::of(visitor.lang());
    let frame = Frame::new(&visitor, Nav::Live, t.title);
    let names = async |what: &str| -> Result<Vec<String>, _> {
        let found = visitor.get::<List<Named>>(Address::new(&[what]).with("limit", "1000")).await;
        Ok(found
            .map_err(|trouble| visitor.failed(trouble))?
            .data
            .into_iter()
            .map(|n| n.name)
            .collect())
    };
    let (mut sources, mut destinations) =
        tokio::try_join!(names("sources"), names("destinations"))?;
    sources.sort();
    destinations.sort();
    let badge = |word: &'static str| match word {
        "received" => Badge::new("", "source", t.received),
        word => Badge::status(word, frame.c),
    };
    let badges = STATUSES.map(|word| (word, badge(word)));
    let as_json: serde_json::Map<_, _> = badges
        .iter()
        .map(|(word, b)| ((*word).to_owned(), serde_json::json!([b.tone, b.icon, b.text])))
        .collect();
    let statuses = badges.into_iter().map(|(word, badge)| (word, badge.text)).collect();
    let badges = serde_json::Value::Object(as_json).to_string();
    show(&LivePage { frame, t, sources, destinations, statuses, wanted, badges })
}
