//! A minimal HTTP server used as a destination; counts arriving events and records their latency.
//!
//! Every request except the three control calls is an event, with any method and path.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /count` | the number of events, as text |
//! | `GET /arrivals` | [`ArrivalReport`] as JSON |
//! | `DELETE /arrivals` | resets the counters |
//!
//! The latency is measured from when the generator sent the request to the gateway until the sink
//! has the body. A second attempt counts again. Events that were sent before the last reset are
//! replays or late retries and are not counted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::latency::LatencySummary;
use crate::listen::{self, ServerReply};
use crate::{clock, latency, request};

/// How the sink responds to an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SinkMode {
    /// Answers 200 at once.
    #[default]
    Answer,
    /// Reads the event and never answers.
    Hang,
    /// Refuses every event with one of a few error messages.
    Refuse,
}

/// Events that arrived since the last reset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ArrivalReport {
    pub(crate) count: u64,
    /// When the first and the last event arrived; zero if none did.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Events without a send time at the generator's offset: the gateway changed the body.
    pub(crate) unreadable: u64,
    /// Latencies in microseconds with their counts.
    pub(crate) latencies: Vec<(u64, u64)>,
}

impl ArrivalReport {
    /// Adds the arrivals of another sink.
    pub(crate) fn merge(&mut self, other: Self) {
        let first_arrivals = [self.first_ns, other.first_ns].into_iter().filter(|at_ns| *at_ns > 0);
        self.first_ns = first_arrivals.min().unwrap_or(0);
        self.count += other.count;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.unreadable += other.unreadable;
        self.latencies.extend(other.latencies);
    }

    pub(crate) fn latency(&self) -> Result<LatencySummary> {
        let mut histogram = latency::histogram();
        latency::add_recorded_values(&mut histogram, &self.latencies)?;
        Ok(LatencySummary::from_histogram(&histogram))
    }
}

/// Runs a sink on `listen` until the process ends.
pub async fn run_sink(listen: SocketAddr, mode: SinkMode) -> Result<()> {
    let listener = listen::bind(listen)?;
    serve(listener, mode).await
}

pub(crate) async fn serve(listener: TcpListener, mode: SinkMode) -> Result<()> {
    let log = Arc::new(SharedArrivalLog::default());
    listen::serve(listener, move |request| respond(request, mode, Arc::clone(&log))).await
}

async fn respond(
    request: Request<Incoming>,
    mode: SinkMode,
    log: Arc<SharedArrivalLog>,
) -> ServerReply {
    let is_message = request.uri().path().ends_with("/messages");
    let text = match (request.method(), request.uri().path()) {
        (&Method::GET, "/count") => log.lock().arrivals.count.to_string(),
        (&Method::GET, "/arrivals") => {
            serde_json::to_string(&log.lock().report()).expect("a report has only numbers")
        }
        (&Method::DELETE, "/arrivals") => {
            *log.lock() = ArrivalLog { since_ns: clock::wall_ns(), ..ArrivalLog::default() };
            String::new()
        }
        (_, _) => {
            let body = request.into_body().collect().await?.to_bytes();
            let number = log.lock().record(&body);
            match mode {
                SinkMode::Answer if is_message => cloud_api_response(number),
                SinkMode::Answer => String::new(),
                SinkMode::Hang => std::future::pending().await,
                SinkMode::Refuse => return error_response(number),
            }
        }
    };
    Ok(Response::new(Full::new(Bytes::from(text))))
}

/// The WhatsApp Cloud API's response to an accepted message.
fn cloud_api_response(number: u64) -> String {
    format!(r#"{{"messaging_product":"whatsapp","messages":[{{"id":"wamid.sent{number}"}}]}}"#)
}

fn error_response(number: u64) -> ServerReply {
    const CAUSES: [(StatusCode, &str); 4] = [
        (StatusCode::BAD_REQUEST, "the field `customer` is missing"),
        (StatusCode::CONFLICT, "the invoice is closed"),
        (StatusCode::UNPROCESSABLE_ENTITY, "the amount is not a number"),
        (StatusCode::UNPROCESSABLE_ENTITY, "the currency is not known here"),
    ];
    let (status, text) = CAUSES[(number % 4) as usize];
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    Ok(response)
}

#[derive(Default)]
struct SharedArrivalLog(Mutex<ArrivalLog>);

impl SharedArrivalLog {
    fn lock(&self) -> MutexGuard<'_, ArrivalLog> {
        // The counts are valid even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct ArrivalLog {
    since_ns: u64,
    /// Without latencies, which are in the histogram.
    arrivals: ArrivalReport,
    latency: Histogram<u64>,
}

impl Default for ArrivalLog {
    fn default() -> Self {
        Self { since_ns: 0, arrivals: ArrivalReport::default(), latency: latency::histogram() }
    }
}

impl ArrivalLog {
    /// Records an event and returns the number of events so far.
    fn record(&mut self, body: &[u8]) -> u64 {
        let now_ns = clock::wall_ns();
        let sent_ns = request::sent_ns(body);
        let arrivals = &mut self.arrivals;
        if sent_ns.is_some_and(|sent_ns| sent_ns < self.since_ns) {
            return arrivals.count;
        }
        if arrivals.count == 0 {
            arrivals.first_ns = now_ns;
        }
        arrivals.count += 1;
        arrivals.last_ns = arrivals.last_ns.max(now_ns);
        match sent_ns {
            Some(sent_ns) => {
                let latency = Duration::from_nanos(now_ns.saturating_sub(sent_ns));
                latency::record(&mut self.latency, latency);
            }
            None => arrivals.unreadable += 1,
        }
        arrivals.count
    }

    fn report(&self) -> ArrivalReport {
        let latencies = latency::recorded_values(&self.latency);
        ArrivalReport { latencies, ..self.arrivals.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control;
    use crate::request::{BodyShape, KeySeries};

    async fn start_sink(mode: SinkMode) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, mode));
        addr
    }

    #[tokio::test]
    async fn sink_counts_until_it_is_reset() {
        let addr = start_sink(SinkMode::Answer).await;
        for _ in 0..3 {
            assert_eq!(control::call(addr, "POST", "/").await.unwrap().status(), 200);
        }
        assert_eq!(control::call(addr, "GET", "/count").await.unwrap().into_body(), "3");
        control::call(addr, "DELETE", "/arrivals").await.unwrap();
        assert_eq!(control::call(addr, "GET", "/count").await.unwrap().into_body(), "0");
    }

    async fn event_body(number: u64, sent_ns: u64) -> Bytes {
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        let series = KeySeries::random();
        let mut request =
            request::RequestTemplate::new(addr, "x", &series, BodyShape::Plain, 512).unwrap();
        request.build(number, sent_ns).into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn sink_counts_changed_bodies_as_unreadable() {
        let mut log = ArrivalLog::default();
        let body = event_body(1, clock::wall_ns()).await;
        log.record(&body);
        log.record(&body[1..]);
        let arrivals = log.report();
        assert_eq!((arrivals.count, arrivals.unreadable, arrivals.latencies.len()), (2, 1, 1));
    }

    #[tokio::test]
    async fn event_sent_before_reset_is_not_counted() {
        let mut log = ArrivalLog { since_ns: 2, ..ArrivalLog::default() };
        log.record(&event_body(1, 1).await);
        assert_eq!(log.report().count, 0);
        log.record(&event_body(2, 2).await);
        assert_eq!(log.report().count, 1);
    }

    #[tokio::test]
    async fn hanging_sink_counts_events_and_answers_control_calls() {
        let addr = start_sink(SinkMode::Hang).await;
        let hung = tokio::spawn(async move { control::call(addr, "POST", "/").await.is_ok() });
        while control::call(addr, "GET", "/count").await.unwrap().into_body() != "1" {
            tokio::task::yield_now().await;
        }
        assert!(!hung.is_finished());
    }
}
