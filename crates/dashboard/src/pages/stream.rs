//! `/stream`: live updates in batches, a few per second. `/live` shows them.
//!
//! The stream is pulled: a slow browser causes no waiting and no buffering here. The stream of the API
//! then skips updates and sends `reset`.

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
use surehook_core::delivery::state::DeliveryStatus;
use tokio::time::Instant;

use crate::{
    Dashboard,
    current_user::CurrentUser,
    format::Badge,
    page::{NavItem, PageFrame, PageResult, render_page},
    sse::SseParser,
    tail::{TailBatcher, TailFilter},
    translations::LiveTexts,
};

/// Minimum time between batches.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Collects updates that arrive together, also after a quiet period.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Header with which a reconnecting browser resumes.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new().route("/stream", get(stream_updates)).route("/live", get(show_live))
}

async fn stream_updates(
    user: CurrentUser,
    Query(filter): Query<TailFilter>,
    headers: HeaderMap,
) -> Response {
    let mut request = Request::get("/api/v1/stream");
    // The header of the browser is newer than the query, which was set when the stream was opened.
    let last_event_id = headers.get(LAST_EVENT_ID).and_then(|last| last.to_str().ok());
    if let Some(last) = last_event_id.or(filter.since.as_deref()) {
        request = request.header(LAST_EVENT_ID, last);
    }
    let Ok(request) = request.body(Body::empty()) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let response = user.gateway().call(user.session(), request).await;
    if response.status() != StatusCode::OK {
        // Too many streams or no permission: the browser retries later.
        return response.status().into_response();
    }
    let tail = TailStream {
        updates: response.into_body().into_data_stream(),
        parser: SseParser::default(),
        batcher: TailBatcher::new(filter),
        due: None,
        sent_at: Instant::now(),
        is_over: false,
    };
    let body = stream::unfold(tail, |mut tail| async move {
        let text = tail.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), tail))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (X_ACCEL_BUFFERING, "no")];
    (headers, Body::from_stream(body)).into_response()
}

/// Disables buffering in nginx and compatible proxies.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

struct TailStream {
    updates: BodyDataStream,
    parser: SseParser,
    batcher: TailBatcher,
    /// When the current batch is sent.
    due: Option<Instant>,
    sent_at: Instant,
    is_over: bool,
}

impl TailStream {
    /// The next chunk; `None` when the gateway stops or the session ends.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.is_over {
                return None;
            }
            let due = self.due;
            let bytes = tokio::select! {
                // First, because a flood of updates would otherwise starve the timer.
                biased;
                () = async { tokio::time::sleep_until(due.unwrap_or(self.sent_at)).await },
                    if due.is_some() => return Some(self.flush()),
                bytes = self.updates.next() => bytes,
            };
            let Some(Ok(bytes)) = bytes else {
                self.is_over = true;
                return self.batcher.has_updates().then(|| self.flush());
            };
            let mut is_heartbeat = false;
            for message in self.parser.feed(&bytes) {
                is_heartbeat |= message.name.is_empty() || message.name == "ready";
                self.batcher.add(message);
            }
            if self.batcher.has_updates() {
                let now = Instant::now();
                self.due.get_or_insert((self.sent_at + BATCH_INTERVAL).max(now + BATCH_DELAY));
            } else if is_heartbeat {
                return Some(": heartbeat\n\n".to_owned());
            }
        }
    }

    fn flush(&mut self) -> String {
        self.due = None;
        self.sent_at = Instant::now();
        self.batcher.take_batch().to_sse()
    }
}

#[derive(Template)]
#[template(path = "live.html")]
struct LivePage {
    frame: PageFrame,
    t: &'static LiveTexts,
    sources: Vec<String>,
    destinations: Vec<String>,
    statuses: Vec<(&'static str, String)>,
    filter: TailFilter,
    /// Color, icon and text of each status as JSON: rows are built in the browser.
    badges: String,
}

/// Statuses with which a delivery appears in the live tail.
const STATUSES: [DeliveryStatus; 6] = [
    DeliveryStatus::Succeeded,
    DeliveryStatus::Scheduled,
    DeliveryStatus::Dead,
    DeliveryStatus::Held,
    DeliveryStatus::Cancelled,
    DeliveryStatus::Replayed,
];

async fn show_live(user: CurrentUser, Query(filter): Query<TailFilter>) -> PageResult {
    let t = LiveTexts::of(user.lang());
    let frame = PageFrame::of_menu(&user, NavItem::Live);
    let (sources, destinations) = tokio::try_join!(user.source_names(), user.destination_names())?;
    let received = ("received", Badge::new("", "source", t.received));
    let changed = STATUSES.map(|status| (status.as_str(), Badge::status(status, frame.c)));
    let badges: Vec<_> = [received].into_iter().chain(changed).collect();
    let as_json: serde_json::Map<_, _> = badges
        .iter()
        .map(|(word, b)| ((*word).to_owned(), serde_json::json!([b.tone, b.icon, b.text])))
        .collect();
    let statuses = badges.into_iter().map(|(word, badge)| (word, badge.text)).collect();
    let badges = serde_json::Value::Object(as_json).to_string();
    render_page(&LivePage { frame, t, sources, destinations, statuses, filter, badges })
}
