//! Receives webhooks of Stripe and processes each event once, although Stripe may send it several times, at
//! the same time or again after days.
//!
//!     cargo run --example webhooks_once -- whsec_… /tmp/webhooks.db

use std::{
    env,
    error::Error,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{FromRef, State},
    http::StatusCode,
    routing::get,
};
use surehook_dedup::{
    Claim, ClaimKey, ClaimRequest, CompletionRequest, DedupLock, SqliteDedupConfig, SqliteDedupLock,
};
use surehook_webhooks::{
    Receiver, WebhookEvent,
    axum::{Webhook, webhook},
    preset::Stripe,
};

/// How long an event may take. If the process dies meanwhile, the next delivery is processed after this time.
const LEASE: Duration = Duration::from_secs(60);

type ProcessError = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
struct AppState {
    receiver: Receiver<Stripe>,
    lock: Arc<dyn DedupLock>,
    processed: Arc<AtomicUsize>,
}

impl FromRef<AppState> for Receiver<Stripe> {
    fn from_ref(state: &AppState) -> Self {
        state.receiver.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(secret), Some(file)) = (args.next(), args.next()) else {
        return Err("usage: webhooks_once SECRET FILE".into());
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app(&secret, Path::new(&file))?).await?;
    Ok(())
}

/// The web application, which remembers events in a SQLite file.
pub(crate) fn app(secret: &str, file: &Path) -> Result<Router, Box<dyn Error>> {
    let receiver = Receiver::of(Stripe).secret(secret).build()?;
    let lock = SqliteDedupLock::open(SqliteDedupConfig::new(file))?;
    let state = AppState { receiver, lock: Arc::new(lock), processed: Arc::default() };
    let routes = Router::new().route("/stripe", webhook(receive)).route("/processed", get(count));
    Ok(routes.with_state(state))
}

/// 200 only after every event is processed; otherwise Stripe sends the request again.
async fn receive(State(state): State<AppState>, webhook: Webhook<Stripe>) -> StatusCode {
    for event in &webhook.events {
        match process_once(&state, event).await {
            Ok(true) => {}
            // The same event is already being processed. It may still fail, so this one must come again.
            Ok(false) => return StatusCode::CONFLICT,
            Err(_) => return StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
    StatusCode::OK
}

/// Processes an event unless it was processed before. `false` if the same event is being processed.
async fn process_once(state: &AppState, event: &WebhookEvent) -> Result<bool, ProcessError> {
    let Some(event_key) = &event.key else {
        process(state, event).await?;
        return Ok(true);
    };
    let key = ClaimKey::new("stripe", event_key.as_str())?;
    let ttl = state.receiver.dedup_window();
    let claim = ClaimRequest { key: key.clone(), fingerprint: None, lease: LEASE, ttl };
    let token = match state.lock.claim(claim).await? {
        Claim::Claimed(grant) => grant.token,
        Claim::Completed(_) => return Ok(true),
        Claim::InProgress { .. } | Claim::OtherFingerprint => return Ok(false),
    };
    if let Err(error) = process(state, event).await {
        // The next delivery need not wait for the end of the lease.
        let _released = state.lock.release(&key, token).await?;
        return Err(error);
    }
    let done = CompletionRequest { key, token, result: "processed".into(), ttl };
    Ok(state.lock.complete(done).await?.is_applied())
}

/// The work.
#[expect(clippy::print_stdout, reason = "the example shows what it processes")]
async fn process(state: &AppState, event: &WebhookEvent) -> Result<(), ProcessError> {
    let json: serde_json::Value = event.json()?;
    println!("{} for {}", event.kind(), json["data"]["object"]["id"]);
    state.processed.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// How many events were processed.
async fn count(State(state): State<AppState>) -> String {
    state.processed.load(Ordering::SeqCst).to_string()
}
