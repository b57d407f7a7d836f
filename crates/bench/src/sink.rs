//! The destination: a bare server that counts what arrives and how long it was on the way.
//!
//! Everything but the three control calls is an event, whatever its method and path.
//!
//! | call | answer |
//! | --- | --- |
//! | `GET /count` | the number of events, as text |
//! | `GET /arrivals` | [`ArrivalReport`] as JSON |
//! | `DELETE /arrivals` | begins to count anew |
//!
//! The latency is from the moment the generator sent the request to the gateway until the body
//! is in the sink. A second attempt counts again, as an event and as a latency. What was sent before
//! the sink began to count anew is an event of long ago that is delivered again: it is not counted.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::latency::LatencySummary;
use crate::listen::{self, ServerReply};
use crate::{clock, latency, request};

/// What the sink does with an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkMode {
    /// Answers 200 at once.
    #[default]
    Answer,
    /// Takes the event and never answers.
    Hang,
    /// Refuses every event, for one of a few causes that tell in the body of the answer.
    Refuse,
}

impl SinkMode {
    /// The mode's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Hang => "hang",
            Self::Refuse => "refuse",
        }
    }
}

impl FromStr for SinkMode {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Answer, Self::Hang, Self::Refuse]
            .into_iter()
            .find(|mode| mode.name() == text)
            .with_context(|| {
                format!("there is no sink mode `{text}`; there are answer, hang, refuse")
            })
    }
}

/// What arrived since the sink began to count.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ArrivalReport {
    pub(crate) count: u64,
    /// When the last event arrived; zero if none did.
    pub(crate) last_ns: u64,
    /// Events without a send time where the generator puts it: the gateway changed the body.
    pub(crate) unreadable: u64,
    /// Latencies in microseconds, each with how often it was seen.
    pub(crate) latencies: Vec<(u64, u64)>,
}

impl ArrivalReport {
    /// Adds what arrived at another sink.
    pub(crate) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.unreadable += other.unreadable;
        self.latencies.extend(other.latencies);
    }

    pub(crate) fn latency(&self) -> Result<LatencySummary> {
        let mut histogram = latency::histogram();
        latency::add_recorded(&mut histogram, &self.latencies)?;
        Ok(LatencySummary::of(&histogram))
    }
}

/// Serves as a sink on `listen` until the process ends.
pub async fn sink_server(listen: SocketAddr, mode: SinkMode) -> Result<()> {
    let listener = listen::listen(listen)?;
    serve(listener, mode).await
}

pub(crate) async fn serve(listener: TcpListener, mode: SinkMode) -> Result<()> {
    let ledger = Arc::new(SharedArrivalLog::default());
    listen::serve(listener, move |request| answer(request, mode, Arc::clone(&ledger))).await
}

async fn answer(
    request: Request<Incoming>,
    mode: SinkMode,
    ledger: Arc<SharedArrivalLog>,
) -> ServerReply {
    let is_message = request.uri().path().ends_with("/messages");
    let text = match (request.method(), request.uri().path()) {
        (&Method::GET, "/count") => ledger.open().count.to_string(),
        (&Method::GET, "/arrivals") => {
            serde_json::to_string(&ledger.open().arrivals()).unwrap_or_default()
        }
        (&Method::DELETE, "/arrivals") => {
            *ledger.open() = ArrivalLog { since_ns: clock::wall_ns(), ..ArrivalLog::default() };
            String::new()
        }
        (_, _) => {
            let body = request.into_body().collect().await?.to_bytes();
            let number = ledger.open().enter(&body);
            match mode {
                SinkMode::Answer if is_message => sent(number),
                SinkMode::Answer => String::new(),
                SinkMode::Hang => std::future::pending().await,
                SinkMode::Refuse => return refused(number),
            }
        }
    };
    Ok(Response::new(Full::new(Bytes::from(text))))
}

/// What the Cloud API says of a message that it sends.
fn sent(number: u64) -> String {
    format!(r#"{{"messaging_product":"whatsapp","messages":[{{"id":"wamid.sent{number}"}}]}}"#)
}

fn refused(number: u64) -> ServerReply {
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
    fn open(&self) -> MutexGuard<'_, ArrivalLog> {
        // A count is right even if the thread that made it panicked afterwards.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct ArrivalLog {
    since_ns: u64,
    count: u64,
    last_ns: u64,
    unreadable: u64,
    latency: Histogram<u64>,
}

impl Default for ArrivalLog {
    fn default() -> Self {
        Self { since_ns: 0, count: 0, last_ns: 0, unreadable: 0, latency: latency::histogram() }
    }
}

impl ArrivalLog {
    /// Gives back how many events there are with this one.
    fn enter(&mut self, body: &[u8]) -> u64 {
        let now_ns = clock::wall_ns();
        let sent_ns = request::sent_ns(body);
        if sent_ns.is_some_and(|sent_ns| sent_ns < self.since_ns) {
            return self.count;
        }
        self.count += 1;
        self.last_ns = self.last_ns.max(now_ns);
        match sent_ns {
            Some(sent_ns) => {
                let on_the_way = Duration::from_nanos(now_ns.saturating_sub(sent_ns));
                latency::record(&mut self.latency, on_the_way);
            }
            None => self.unreadable += 1,
        }
        self.count
    }

    fn arrivals(&self) -> ArrivalReport {
        ArrivalReport {
            count: self.count,
            last_ns: self.last_ns,
            unreadable: self.unreadable,
            latencies: latency::recorded(&self.latency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control;
    use crate::load::drive;
    use crate::plan::{LoadPlan, StopCondition};
    use crate::request::{BodyShape, KeySeries};

    async fn sink(mode: SinkMode) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, mode));
        addr
    }

    #[tokio::test]
    async fn sink_counts_until_it_is_cleared() {
        let addr = sink(SinkMode::Answer).await;
        for _ in 0..3 {
            assert_eq!(control::call(addr, "POST", "/").await.unwrap().status, 200);
        }
        assert_eq!(control::call(addr, "GET", "/count").await.unwrap().body, b"3");
        control::call(addr, "DELETE", "/arrivals").await.unwrap();
        assert_eq!(control::call(addr, "GET", "/count").await.unwrap().body, b"0");
    }

    #[tokio::test]
    async fn sink_counts_changed_bodies_as_unreadable() {
        let mut page = ArrivalLog::default();
        let series = KeySeries::fresh();
        let addr = SocketAddr::from(([127, 0, 0, 1], 80));
        let mut sent =
            request::RequestTemplate::new(addr, "x", &series, BodyShape::Plain, 512).unwrap();
        let body = sent.make(1, clock::wall_ns()).into_body().collect().await.unwrap().to_bytes();
        page.enter(&body);
        page.enter(&body[1..]);
        let old = sent.make(2, 1).into_body().collect().await.unwrap().to_bytes();
        page.since_ns = 2;
        page.enter(&old);
        let arrivals = page.arrivals();
        assert_eq!((arrivals.count, arrivals.unreadable, arrivals.latencies.len()), (2, 1, 1));
    }

    #[tokio::test]
    async fn hanging_sink_counts_events_and_answers_control_calls() {
        let addr = sink(SinkMode::Hang).await;
        let hung = tokio::spawn(async move { control::call(addr, "POST", "/").await.is_ok() });
        while control::call(addr, "GET", "/count").await.unwrap().body != b"1" {
            tokio::task::yield_now().await;
        }
        assert!(!hung.is_finished());
    }

    #[tokio::test]
    async fn foreign_response_fails_the_load() {
        let addr = sink(SinkMode::Answer).await;
        let plan =
            LoadPlan { until: StopCondition::Answers(1), ..LoadPlan::closed(addr, "any", 1, 512) };
        let error = drive(plan, |_, _| {}).await.unwrap_err();
        assert!(format!("{error:#}").contains("answered 200"), "{error:#}");
    }
}
