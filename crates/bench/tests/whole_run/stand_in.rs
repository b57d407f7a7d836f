//! A gateway that keeps everything in memory: just enough for the benchmark to run.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A program with this name accepts every key as new.
pub(crate) const ACCEPTS_DUPLICATES: &str = "accepts-duplicates";

/// A replay job that never ends and delivers nothing.
const REPLAY_JOB: &str =
    r#"{"id":"rpl_00000000000000000000000000","state":"running","dispatched":1}"#;

#[derive(Deserialize)]
struct StandInConfig {
    sources: Vec<SourceConfig>,
    #[serde(default)]
    destinations: Vec<DestinationConfig>,
    #[serde(default)]
    routes: Vec<RouteConfig>,
}

#[derive(Deserialize)]
struct SourceConfig {
    name: String,
}

#[derive(Deserialize)]
struct DestinationConfig {
    name: String,
    url: String,
    concurrency: usize,
}

#[derive(Deserialize)]
struct RouteConfig {
    from: String,
    to: String,
}

/// Each destination has its own permits, so a hanging one does not slow down the others.
struct StandInDestination {
    url: String,
    permits: Arc<Semaphore>,
}

struct StandInGateway {
    accepts_duplicates: bool,
    known_keys: Mutex<HashSet<String>>,
    sources: HashMap<String, Option<StandInDestination>>,
    client: Client<HttpConnector, Full<Bytes>>,
}

#[derive(Deserialize)]
struct EventBody {
    id: String,
}

pub(crate) async fn serve(listen: SocketAddr, config: &Path) -> Result<()> {
    let config: StandInConfig = toml::from_str(&std::fs::read_to_string(config)?)?;
    let program = std::env::args_os().next().unwrap_or_default();
    let gateway = Arc::new(StandInGateway {
        accepts_duplicates: Path::new(&program)
            .file_name()
            .is_some_and(|name| name == ACCEPTS_DUPLICATES),
        known_keys: Mutex::default(),
        sources: connect_sources(&config),
        client: Client::builder(TokioExecutor::new()).build_http(),
    });
    let listener = TcpListener::bind(listen).await?;
    println!("stand-in listens on {listen}");
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let gateway = Arc::clone(&gateway);
        let service = service_fn(move |request| respond(request, Arc::clone(&gateway)));
        tokio::spawn(async move {
            // The generator reports a broken connection.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn connect_sources(config: &StandInConfig) -> HashMap<String, Option<StandInDestination>> {
    let destination = |name: &str| {
        let route = config.routes.iter().find(|route| route.from == name)?;
        let to = config.destinations.iter().find(|destination| destination.name == route.to)?;
        let permits = Arc::new(Semaphore::new(to.concurrency));
        Some(StandInDestination { url: to.url.clone(), permits })
    };
    config.sources.iter().map(|source| (source.name.clone(), destination(&source.name))).collect()
}

async fn respond(
    request: Request<Incoming>,
    gateway: Arc<StandInGateway>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match request.uri().path() {
        "/readyz" => (StatusCode::OK, String::new()),
        path if path.starts_with("/api/v1/replays") => (StatusCode::OK, REPLAY_JOB.to_owned()),
        _ => match receive(request, &gateway).await {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}")),
        },
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    Ok(response)
}

async fn receive(request: Request<Incoming>, gateway: &Arc<StandInGateway>) -> Result<String> {
    let source = request.uri().path().strip_prefix("/in/").unwrap_or_default().to_owned();
    let destination = gateway.sources.get(&source).context("unknown source")?;
    let body = request.into_body().collect().await?.to_bytes();
    let key = serde_json::from_slice::<EventBody>(&body)?.id;
    let is_new = gateway.accepts_duplicates
        || gateway
            .known_keys
            .lock()
            .expect("no thread panics while it holds the lock")
            .insert(key.clone());
    let id = "evt_00000000000000000000000000";
    if !is_new {
        return Ok(format!(
            r#"{{"status":"duplicate","skipped":true,"events":[{{"id":"{id}","key":"{key}","status":"duplicate"}}]}}"#
        ));
    }
    if let Some(destination) = destination {
        deliver(gateway, destination, body);
    }
    Ok(format!(
        r#"{{"status":"accepted","events":[{{"id":"{id}","key":"{key}","status":"accepted"}}]}}"#
    ))
}

/// Makes one attempt in the background, without a retry.
fn deliver(gateway: &Arc<StandInGateway>, destination: &StandInDestination, body: Bytes) {
    let (client, url) = (gateway.client.clone(), destination.url.clone());
    let permits = Arc::clone(&destination.permits);
    tokio::spawn(async move {
        let _permit = permits.acquire().await?;
        let response = client.request(Request::post(url).body(Full::new(body))?).await?;
        response.into_body().collect().await?;
        anyhow::Ok(())
    });
}
