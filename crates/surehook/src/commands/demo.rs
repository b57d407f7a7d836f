//! `surehook demo`: a gateway with traffic, to look at.
//!
//! Starts `surehook serve` as a child process with sources for WhatsApp, Stripe and GitHub, sends them
//! signed events with duplicates and forged ones, and is itself the destinations: one has an outage now
//! and then, one asks to wait, one rejects some events for good.

use std::{
    convert::Infallible,
    fs::File,
    io::ErrorKind,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use surehook_api::{ApiTransport as _, calls};
use surehook_engine::system::SystemRng;
use surehook_server::new_token;
use surehook_types::rng::Rng as _;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use super::send_test::SampleSender;
use crate::{client::ApiClient, error::CliError, output};

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for settings and data, kept at the end [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the gateway
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

/// Time between two events.
const EVENT_INTERVAL: Duration = Duration::from_millis(120);
/// The first outage of the CRM, and the time from one to the next.
const OUTAGE_START: Duration = Duration::from_secs(4);
const OUTAGE_LENGTH: Duration = Duration::from_secs(9);
const OUTAGE_INTERVAL: Duration = Duration::from_secs(60);
/// How long the gateway may take to start and to stop.
const START_TIME: Duration = Duration::from_secs(30);
const STOP_TIME: Duration = Duration::from_secs(15);
const ANSWER_TIME: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);

const WHATSAPP_SECRET: &str = "demo-meta-app-secret";
const STRIPE_SECRET: &str = "whsec_demo_stripe_signing_secret";
const GITHUB_SECRET: &str = "demo-github-webhook-secret";

pub(super) async fn run(args: &DemoArgs) -> Result<(), CliError> {
    let folder = DemoFolder::create(args.data.as_deref())?;
    let started = Instant::now();
    let destinations = start_destinations(started).await?;
    let token = new_token(&SystemRng);
    let mut gateway = DemoGateway::start(&folder.path, args.listen, destinations, &token)?;
    let client = ApiClient::with_token(&format!("http://{}", args.listen), &token);
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        ended = show_and_send(&mut gateway, &client, &folder, started) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    output::note("Stopping …");
    gateway.stop().await?;
    folder.remove()?;
    ended
}

/// Prints how to look at the gateway, and sends events until it fails.
async fn show_and_send(
    gateway: &mut DemoGateway,
    client: &ApiClient,
    folder: &DemoFolder,
    started: Instant,
) -> Result<(), CliError> {
    gateway.wait_until_ready(client).await?;
    let link = client.call(calls::create_login_link()).await?;
    let kept = if folder.is_temporary { "removed at the end" } else { "kept" };
    output::print_line(format!(
        "The demo gateway is ready, with traffic from WhatsApp, Stripe and GitHub.\n\n  \
         dashboard  {}{}  (one-time link)\n  \
         data       {} ({kept})\n\n\
         What to look for: the destination `crm` has an outage after {} s and then every {} s; `billing` asks to\n\
         wait (429) now and then; `ci` rejects some events for good: dead letters to replay. One event in eight is\n\
         sent twice, and some are forged. Ctrl-C ends the demo.\n",
        client.base_url(),
        link.path,
        folder.path.display(),
        OUTAGE_START.as_secs(),
        OUTAGE_INTERVAL.as_secs(),
    ))?;
    let mut traffic = DemoTraffic::new(client.base_url())?;
    let mut next = tokio::time::interval(EVENT_INTERVAL);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_down = false;
    loop {
        next.tick().await;
        gateway.check_running()?;
        let is_down = is_outage(started.elapsed());
        if is_down != was_down {
            was_down = is_down;
            let change = if is_down { "The outage of `crm` begins." } else { "`crm` is back." };
            output::print_line(change)?;
        }
        traffic.send_next(client).await?;
    }
}

fn is_outage(elapsed: Duration) -> bool {
    let Some(since_first) = elapsed.checked_sub(OUTAGE_START) else { return false };
    since_first.as_millis() % OUTAGE_INTERVAL.as_millis() < OUTAGE_LENGTH.as_millis()
}

/// The folder with settings, data and log.
struct DemoFolder {
    path: PathBuf,
    is_temporary: bool,
}

impl DemoFolder {
    fn create(given: Option<&Path>) -> Result<Self, CliError> {
        let (path, is_temporary) = match given {
            Some(path) => (path.to_path_buf(), false),
            None => {
                let name = format!("surehook-demo-{:012x}", SystemRng.next_u128() >> 80);
                (std::env::temp_dir().join(name), true)
            }
        };
        std::fs::create_dir_all(&path)
            .with_context(|| format!("could not create {}", path.display()))?;
        Ok(Self { path, is_temporary })
    }

    fn remove(&self) -> Result<(), CliError> {
        if !self.is_temporary {
            return Ok(());
        }
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(anyhow!("could not remove {}: {error}", self.path.display()).into())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The child process.
struct DemoGateway {
    child: Child,
    log: PathBuf,
}

impl DemoGateway {
    fn start(
        folder: &Path,
        listen: SocketAddr,
        destinations: SocketAddr,
        token: &str,
    ) -> Result<Self, CliError> {
        let settings = folder.join("surehook-demo.toml");
        std::fs::write(&settings, demo_settings(destinations))
            .with_context(|| format!("could not write {}", settings.display()))?;
        let log = folder.join("gateway.log");
        let program = std::env::current_exe().context("the program of this process is unknown")?;
        let child = Command::new(program)
            .args(["serve", "--listen", &listen.to_string(), "--config"])
            .arg(&settings)
            .arg("--data")
            .arg(folder.join("data"))
            // Settings of the user, such as a database, are not for the demo.
            .env_clear()
            .env("SUREHOOK_ADMIN_TOKEN", token)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).context("could not create the log")?)
            // Ctrl-C is for this process, which stops the gateway in order.
            .process_group(0)
            .spawn()
            .context("could not start the gateway")?;
        Ok(Self { child, log })
    }

    async fn wait_until_ready(&mut self, client: &ApiClient) -> Result<(), CliError> {
        let deadline = Instant::now() + START_TIME;
        // Something else may listen there and never answer.
        let answer = || tokio::time::timeout(ANSWER_TIME, client.call(calls::get_about()));
        while !matches!(answer().await, Ok(Ok(_))) {
            self.check_running()?;
            if Instant::now() > deadline {
                return Err(self.failure("the gateway did not start in time"));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn check_running(&mut self) -> Result<(), CliError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("the gateway has stopped ({status})"))),
        }
    }

    /// An error with the last lines of the log.
    fn failure(&self, what: &str) -> CliError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        CliError::settings(anyhow!("{what}:\n{last}"))
            .hint("If the address is in use, choose another one with --listen.")
    }

    async fn stop(&mut self) -> Result<(), CliError> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // It has not been waited for, so the id is still its own.
        let _stopping = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + STOP_TIME;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

impl Drop for DemoGateway {
    fn drop(&mut self) {
        // After `stop` it has exited already.
        let _killed = self.child.kill();
        let _exited = self.child.wait();
    }
}

/// The settings of the demo. The secrets are only for events of this process.
fn demo_settings(destinations: SocketAddr) -> String {
    format!(
        r#"# Settings of `surehook demo`, written at each start.
allow_networks = ["127.0.0.0/8"]
shutdown_grace = "3s"

[[sources]]
name = "whatsapp"
provider = "whatsapp-cloud"
secrets = ["{WHATSAPP_SECRET}"]
verify_token = "demo"

[[sources]]
name = "stripe"
provider = "stripe"
secrets = ["{STRIPE_SECRET}"]

[[sources]]
name = "github"
provider = "github"
secrets = ["{GITHUB_SECRET}"]

# Has an outage now and then; in order for each customer.
[[destinations]]
name = "crm"
url = "http://{destinations}/crm"
retry = {{ max_attempts = 8, initial_delay = "1s", max_delay = "8s" }}
circuit = {{ failures = 6, open_for = "2s", max_open = "4s" }}
order = {{ key = "provider" }}
concurrency = 8

# Asks to wait now and then.
[[destinations]]
name = "billing"
url = "http://{destinations}/billing"
retry = "quick"
signing_secrets = ["whsec_ZGVtby1zaWduaW5nLXNlY3JldC1vZi1zdXJlaG9vaw=="]

# Rejects some events for good.
[[destinations]]
name = "ci"
url = "http://{destinations}/ci"
retry = "quick"
pause_after_config_failures = 0

[[routes]]
from = "whatsapp"
to = "crm"

[[routes]]
from = "stripe"
to = "billing"

[[routes]]
from = "github"
to = "ci"

[[routes]]
from = "stripe"
to = "crm"
filter = '.type | startswith("payment_intent.")'
"#
    )
}

/// Starts the destinations on a free port.
async fn start_destinations(started: Instant) -> Result<SocketAddr, CliError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(POLL).await;
                continue;
            };
            let service = service_fn(move |request| answer(request, started));
            tokio::spawn(async move {
                // A connection that breaks is not an error of the demo.
                let _ended =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Ok(address)
}

/// Answers as the destination of that path does at this moment.
async fn answer(
    request: Request<Incoming>,
    started: Instant,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let _body = request.into_body().collect().await;
    let (roll, delay) = (SystemRng.next_f64(), SystemRng.next_f64());
    tokio::time::sleep(Duration::from_millis(10) + Duration::from_millis(140).mul_f64(delay)).await;
    let (status, text) = match path.as_str() {
        "/crm" if is_outage(started.elapsed()) => (StatusCode::SERVICE_UNAVAILABLE, "maintenance"),
        "/crm" if roll < 0.04 => (StatusCode::BAD_GATEWAY, "upstream timed out"),
        "/billing" if roll < 0.06 => (StatusCode::TOO_MANY_REQUESTS, "slow down"),
        "/ci" if roll < 0.15 => {
            (StatusCode::UNPROCESSABLE_ENTITY, r#"{"error":"unknown branch: release/legacy"}"#)
        }
        _ => (StatusCode::OK, r#"{"ok":true}"#),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("2"));
    }
    Ok(response)
}

/// The senders, each with its share of the traffic.
struct DemoTraffic {
    senders: Vec<(f64, Arc<SampleSender>)>,
    sent: u32,
}

/// Every event with such a number is sent twice, or has an invalid signature.
const DUPLICATE_EVERY: u32 = 8;
const FORGED_EVERY: u32 = 30;

impl DemoTraffic {
    fn new(base_url: &str) -> Result<Self, CliError> {
        let sender = |share, source, provider, secret| {
            SampleSender::new(base_url, source, provider, secret)
                .map(|sender| (share, Arc::new(sender)))
        };
        Ok(Self {
            senders: vec![
                sender(0.6, "whatsapp", "whatsapp-cloud", WHATSAPP_SECRET)?,
                sender(0.85, "stripe", "stripe", STRIPE_SECRET)?,
                sender(1.0, "github", "github", GITHUB_SECRET)?,
            ],
            sent: 0,
        })
    }

    async fn send_next(&mut self, client: &ApiClient) -> Result<(), CliError> {
        let roll = SystemRng.next_f64();
        let Some((_, sender)) = self.senders.iter().find(|(share, _)| roll < *share) else {
            return Ok(());
        };
        self.sent = self.sent.wrapping_add(1);
        // An even and an odd remainder, so that no event is both.
        let request = sender.next_request(self.sent % FORGED_EVERY == 4)?;
        let times = if self.sent % DUPLICATE_EVERY == 3 { 2 } else { 1 };
        for _ in 0..times {
            client.exchange(request.clone()).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_begins_within_ten_seconds_and_repeats() {
        let at = |seconds| is_outage(Duration::from_secs(seconds));
        assert!(!at(0) && !at(3) && at(4) && at(12) && !at(13) && !at(63) && at(64));
    }
}
