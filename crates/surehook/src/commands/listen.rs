//! `surehook listen`: forwards events of a gateway to a program on this machine, and reports its answers.
//!
//! The gateway keeps the deliveries of a destination of kind `listen` until this program asks for them.
//! Three things run at the same time: one call that waits for deliveries (`fetch`), the forwarded
//! requests, and the reports of their answers (`report`). What must hold:
//! - A delivery is `held` from the response that brought it until the gateway has taken its answer: each
//!   call lists what is held, and the gateway hands out again what is missing.
//! - A delivery that was answered with success and comes again under the same id was not recorded by the
//!   gateway, because it was killed or did not wait any more. Its answer is reported again; the program
//!   does not get it a second time.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    error::Error as _,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::Args;
use data_encoding::BASE64;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};
use surehook_api::{
    ApiTransport as _, calls,
    listen::{ListenAnswer, ListenDelivery, ListenHeader, ListenRequest, ListenResponse},
    replays::{CreateReplayRequest, ReplayJobResponse},
};
use surehook_engine::system::{SystemClock, SystemRng};
use surehook_retry::AttemptFailure;
use surehook_types::{
    ids::DeliveryId,
    rng::Rng as _,
    time::{Clock as _, HumanDuration},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc},
};

use crate::{
    cli::GatewayArgs,
    client::{ApiClient, HttpClient, new_http_client},
    error::CliError,
    output::{self, OutputStyle},
};

#[derive(Debug, Args)]
#[command(mut_arg("data", |data| data.hide(true)), mut_arg("database", |url| url.hide(true)))]
pub(crate) struct ListenArgs {
    /// URL on this machine that gets the events, such as `http://localhost:3000/hook`
    #[arg(long, value_name = "URL")]
    forward: Uri,
    /// Only events of this source; may be repeated [default: all sources]
    #[arg(long, value_name = "SOURCE")]
    source: Vec<String>,
    /// Only events that are routed to this destination, with the same filters and transforms; may be
    /// repeated
    #[arg(long, value_name = "DESTINATION", conflicts_with = "source")]
    destination: Vec<String>,
    /// Only events of this kind, such as `invoice.paid` or `invoice.*`; may be repeated
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Use this destination of kind `listen` instead of a temporary one; needs only the role operator
    #[arg(long, value_name = "DESTINATION", conflicts_with_all = ["source", "destination", "kind"])]
    to: Option<String>,
    /// First forward this many of the latest events
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    replay_last: Option<u16>,
    /// Requests that are forwarded at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,
    /// Time to wait for an answer of the program
    #[arg(long, value_name = "SPAN", default_value = "30s")]
    timeout: HumanDuration,
    /// Remove the temporary destination after this time if this command is killed
    #[arg(long, value_name = "SPAN", default_value = "1h")]
    remove_after: HumanDuration,
    #[command(flatten)]
    remote: GatewayArgs,
}

/// Seconds that a call waits for deliveries.
const WAIT_SECONDS: u64 = 15;
/// Pauses between attempts to reach the gateway.
const RECONNECT_MIN: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Successful answers that are remembered, to report them again.
const REMEMBERED_MAX: usize = 10_000;
/// Bytes of an answer that are reported, and that are read.
const ANSWER_BYTES_KEPT: usize = 4096;
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// How long the end waits for requests that are under way.
const FINISH_TIME: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &ListenArgs) -> Result<(), CliError> {
    if !matches!(args.forward.scheme_str(), Some("http" | "https")) {
        let error = anyhow!("`{}` is not a URL", args.forward);
        return Err(CliError::refused(error).hint("Use http://localhost:PORT/PATH."));
    }
    let client = ApiClient::new(&args.remote)?;
    let setup = ListenSetup::prepare(&client, args).await?;
    output::note(&format!(
        "Forwarding {} of {} to {}. Ctrl-C ends.",
        setup.description,
        client.base_url(),
        args.forward
    ));
    let (reports, reported) = mpsc::unbounded_channel();
    let listener = Arc::new(Listener {
        client,
        program: new_http_client(),
        url: args.forward.clone(),
        destination: setup.destination.clone(),
        name: format!("{:016x}", SystemRng.next_u128() >> 64),
        concurrency: usize::from(args.concurrency),
        as_json: args.remote.json,
        state: Mutex::default(),
        changed: Notify::new(),
        reports,
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut reporting = tokio::spawn(Arc::clone(&listener).report(reported));
    let ended = tokio::select! {
        failed = Arc::clone(&listener).fetch(&setup, args) => failed,
        failed = &mut reporting => failed?,
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    if ended.is_ok() {
        let _finished = tokio::time::timeout(FINISH_TIME, listener.wait_until_reported()).await;
    }
    reporting.abort();
    listener.leave().await;
    setup.clean_up(&listener.client).await;
    ended
}

/// The destination that hands out the events.
struct ListenSetup {
    destination: String,
    is_temporary: bool,
    description: String,
}

impl ListenSetup {
    async fn prepare(client: &ApiClient, args: &ListenArgs) -> Result<Self, CliError> {
        if let Some(name) = &args.to {
            let destination = client.call(calls::get_destination(name)).await?;
            let kind = destination.spec.kind.as_str();
            if kind != "listen" {
                let error = anyhow!("destination `{name}` has the kind {kind}");
                return Err(CliError::refused(error)
                    .hint("Use a destination of kind `listen`, or leave out --to."));
            }
            let setup = Self {
                destination: name.clone(),
                is_temporary: false,
                description: format!("the events for `{name}`"),
            };
            setup.replay_last(client, args).await?;
            return Ok(setup);
        }
        let suffix = SystemRng.next_u128() >> 104;
        let destination = format!("listen-{suffix:06x}");
        let setup = Self {
            destination,
            is_temporary: true,
            description: match (&args.source[..], &args.destination[..]) {
                ([], []) => "all events".to_owned(),
                ([], names) => format!("the events for {}", names.join(", ")),
                (names, _) => format!("the events from {}", names.join(", ")),
            },
        };
        setup.create(client, args).await?;
        if let Err(error) = setup.replay_last(client, args).await {
            setup.clean_up(client).await;
            return Err(error);
        }
        Ok(setup)
    }

    /// Creates the destination and its routes.
    async fn create(&self, client: &ApiClient, args: &ListenArgs) -> Result<(), CliError> {
        let routes = self.routes(client, args).await?;
        let spec = json!({
            "name": self.destination,
            "kind": "listen",
            "listen": { "remove_after": args.remove_after },
            "timeout": args.timeout,
            "concurrency": args.concurrency,
            // A program in development breaks now and then, and its author wants to see the next attempt.
            "retry": "quick",
            "circuit": "off",
            "pause_after_config_failures": 0,
        });
        client.call(calls::create_resource("destinations", &spec)).await?;
        for route in routes {
            if let Err(error) = client.call(calls::create_resource("routes", &route)).await {
                self.clean_up(client).await;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn routes(&self, client: &ApiClient, args: &ListenArgs) -> Result<Vec<Value>, CliError> {
        let kinds = kind_filter(&args.kind);
        if !args.destination.is_empty() {
            let all = client.call(calls::list_routes()).await?.data;
            let is_chosen = |name: &str| args.destination.iter().any(|chosen| chosen == name);
            let routes: Vec<Value> = all
                .into_iter()
                .filter(|route| is_chosen(route.spec.to.as_str()))
                .map(|route| {
                    let filters = [route.spec.filter, kinds.clone()];
                    self.route(route.spec.from.as_str(), &filters, route.spec.transform)
                })
                .collect();
            if routes.is_empty() {
                let names = args.destination.join(", ");
                return Err(CliError::not_found(anyhow!("no route leads to {names}")));
            }
            return Ok(routes);
        }
        let sources = match &args.source[..] {
            [] => {
                let all = client.call(calls::list_sources()).await?.data;
                let names = all.into_iter().map(|source| source.spec.name.to_string());
                names.filter(|name| name != surehook_core::outbox::OUTBOX).collect()
            }
            chosen => chosen.to_vec(),
        };
        if sources.is_empty() {
            return Err(CliError::not_found(anyhow!("the gateway has no sources")));
        }
        Ok(sources
            .iter()
            .map(|from| self.route(from, std::slice::from_ref(&kinds), None))
            .collect())
    }

    fn route(&self, from: &str, filters: &[Option<String>], transform: Option<String>) -> Value {
        let filters: Vec<String> =
            filters.iter().flatten().map(|filter| format!("({filter})")).collect();
        let mut route = json!({ "from": from, "to": self.destination });
        if !filters.is_empty() {
            route["filter"] = filters.join(" and ").into();
        }
        if let Some(transform) = transform {
            route["transform"] = transform.into();
        }
        route
    }

    /// Creates replay jobs for the latest events.
    async fn replay_last(&self, client: &ApiClient, args: &ListenArgs) -> Result<(), CliError> {
        let Some(count) = args.replay_last else { return Ok(()) };
        let routes = client.call(calls::list_routes()).await?.data;
        let sources: HashSet<String> = routes
            .into_iter()
            .filter(|route| route.spec.to.as_str() == self.destination)
            .map(|route| route.spec.from.to_string())
            .collect();
        let is_wanted = |kind: &Value| {
            args.kind.is_empty() || kind.as_str().is_some_and(|kind| matches_any(&args.kind, kind))
        };
        let mut latest: Vec<(String, String, Value)> = Vec::new();
        for source in &sources {
            let call = calls::list_events().query("source", source).query("limit", "1000");
            let page = client.call_json(call).await?;
            let events = page["data"].as_array().cloned().unwrap_or_default();
            latest.extend(events.into_iter().filter(|event| is_wanted(&event["kind"])).map(
                |event| {
                    let at = event["received_at"].as_str().unwrap_or_default().to_owned();
                    (at, source.clone(), event["kind"].clone())
                },
            ));
        }
        latest.sort_by(|one, other| other.0.cmp(&one.0));
        latest.truncate(usize::from(count));
        // One job for each source and kind, from its oldest event on.
        let mut jobs: Vec<(String, Value, String)> = Vec::new();
        for (at, source, kind) in latest {
            let kind = if args.kind.is_empty() { Value::Null } else { kind };
            match jobs.iter_mut().find(|job| job.0 == source && job.1 == kind) {
                Some(job) => job.2 = at,
                None => jobs.push((source, kind, at)),
            }
        }
        for (source, kind, since) in jobs {
            let mut filter = json!({ "source": source, "since": since });
            if !kind.is_null() {
                filter["kind"] = kind;
            }
            let request: CreateReplayRequest = serde_json::from_value(json!({
                "verb": "send_missing", "to": self.destination, "filter": filter,
                "note": "surehook listen --replay-last",
            }))?;
            let _job: ReplayJobResponse = client.call(calls::create_replay(&request)).await?;
        }
        Ok(())
    }

    /// Removes the temporary destination. If that fails, the gateway removes it later.
    async fn clean_up(&self, client: &ApiClient) {
        if !self.is_temporary {
            return;
        }
        let call = calls::delete_resource("destinations", &self.destination);
        if client.call(call).await.is_err() {
            let name = &self.destination;
            output::note(&format!(
                "note: could not remove the destination `{name}`; the gateway removes it later"
            ));
        }
    }
}

/// A jq filter for these kinds; `*` at the end stands for any rest.
fn kind_filter(kinds: &[String]) -> Option<String> {
    let terms = kinds.iter().map(|kind| match kind.strip_suffix('*') {
        Some(prefix) => format!("($kind // \"\" | startswith({}))", json!(prefix)),
        None => format!("$kind == {}", json!(kind)),
    });
    let terms: Vec<String> = terms.collect();
    (!terms.is_empty()).then(|| terms.join(" or "))
}

fn matches_any(patterns: &[String], kind: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => kind.starts_with(prefix),
        None => kind == pattern,
    })
}

/// What is under way.
#[derive(Default)]
struct ListenerState {
    /// Deliveries that the gateway waits for, each with the number of its latest request.
    held: HashMap<DeliveryId, u64>,
    requests: u64,
    /// Requests that the program has not answered.
    running: usize,
    /// Successful answers, oldest first, to report them again.
    remembered: HashMap<DeliveryId, ListenAnswer>,
    remembered_order: VecDeque<DeliveryId>,
}

impl ListenerState {
    fn remember(&mut self, answer: &ListenAnswer) {
        if !is_success(answer) || self.remembered.contains_key(&answer.delivery) {
            return;
        }
        if self.remembered_order.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.remembered_order.pop_front()
        {
            self.remembered.remove(&oldest);
        }
        self.remembered.insert(answer.delivery, answer.clone());
        self.remembered_order.push_back(answer.delivery);
    }
}

fn is_success(answer: &ListenAnswer) -> bool {
    answer.status.is_some_and(|status| (200..300).contains(&status))
}

/// An answer for the gateway, with what is printed about it.
struct Report {
    answer: ListenAnswer,
    request: u64,
    delivery: Arc<ListenDelivery>,
    is_repeated: bool,
}

struct Listener {
    client: ApiClient,
    program: HttpClient,
    url: Uri,
    destination: String,
    /// The name by which the gateway knows this listener.
    name: String,
    concurrency: usize,
    as_json: bool,
    state: Mutex<ListenerState>,
    /// A request has ended.
    changed: Notify,
    reports: mpsc::UnboundedSender<Report>,
}

impl Listener {
    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self) -> ListenRequest {
        ListenRequest {
            listener: self.name.clone(),
            max: 0,
            wait_seconds: 0,
            holding: Vec::new(),
            answers: Vec::new(),
            leave: false,
        }
    }

    /// Asks for deliveries and forwards them, until that makes no sense any more.
    async fn fetch(
        self: Arc<Self>,
        setup: &ListenSetup,
        args: &ListenArgs,
    ) -> Result<(), CliError> {
        let mut link = GatewayLink::default();
        loop {
            let free = loop {
                let changed = self.changed.notified();
                let free = self.concurrency.saturating_sub(self.lock().running);
                if free > 0 {
                    break free;
                }
                changed.await;
            };
            let holding = self.lock().held.keys().copied().collect();
            let request =
                ListenRequest { max: free, wait_seconds: WAIT_SECONDS, holding, ..self.request() };
            match self.client.call(calls::listen(&self.destination, &request)).await {
                Ok(ListenResponse { deliveries, .. }) => {
                    link.note_success();
                    for delivery in deliveries {
                        self.start(delivery);
                    }
                }
                Err(error) if error.is_missing() && setup.is_temporary => {
                    // Removed while this machine was asleep.
                    setup.create(&self.client, args).await?;
                }
                Err(error) => link.note_failure(error).await?,
            }
        }
    }

    fn start(self: &Arc<Self>, delivery: ListenDelivery) {
        let mut state = self.lock();
        state.requests += 1;
        let request = state.requests;
        state.held.insert(delivery.id, request);
        let delivery = Arc::new(delivery);
        if let Some(answer) = state.remembered.get(&delivery.id).cloned() {
            // The receiver lives as long as this listener.
            let _sent = self.reports.send(Report { answer, request, delivery, is_repeated: true });
            return;
        }
        state.running += 1;
        drop(state);
        let listener = Arc::clone(self);
        tokio::spawn(async move {
            let answer = listener.forward(&delivery).await;
            let mut state = listener.lock();
            state.running -= 1;
            state.remember(&answer);
            drop(state);
            listener.changed.notify_waiters();
            let _sent =
                listener.reports.send(Report { answer, request, delivery, is_repeated: false });
        });
    }

    /// Sends a delivery to the program.
    async fn forward(&self, delivery: &ListenDelivery) -> ListenAnswer {
        let started = Instant::now();
        let limit = Duration::from_millis(delivery.timeout_ms);
        let failure = |failure, detail: String| ListenAnswer {
            delivery: delivery.id,
            status: None,
            failure: Some(failure),
            detail: Some(detail),
            duration_ms: 0,
            retry_after_seconds: None,
            response: String::new(),
        };
        let request = match self.build_request(delivery) {
            Ok(request) => request,
            Err(error) => return failure(AttemptFailure::Protocol, error.to_string()),
        };
        let answer = match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(Ok((status, retry_after_seconds, response))) => ListenAnswer {
                delivery: delivery.id,
                status: Some(status.as_u16()),
                failure: None,
                detail: None,
                duration_ms: 0,
                retry_after_seconds,
                response,
            },
            Ok(Err((reason, detail))) => failure(reason, detail),
            Err(_) => failure(
                AttemptFailure::Timeout,
                format!("the program did not answer within {limit:?}"),
            ),
        };
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        ListenAnswer { duration_ms, ..answer }
    }

    fn build_request(&self, delivery: &ListenDelivery) -> Result<Request<Full<Bytes>>, CliError> {
        let body =
            BASE64.decode(delivery.body_base64.as_bytes()).context("the body is not Base64")?;
        let mut headers = HeaderMap::new();
        for ListenHeader { name, value } in &delivery.headers {
            let bytes = value.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>();
            let bytes = bytes.context("a header is not made of bytes")?;
            headers.append(name.parse::<HeaderName>()?, HeaderValue::from_bytes(&bytes)?);
        }
        let mut request = Request::post(self.url.clone()).body(Full::new(Bytes::from(body)))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Option<u64>, String), (AttemptFailure, String)> {
        let (head, body) = match self.program.request(request).await {
            Ok(response) => response.into_parts(),
            Err(error) => return Err(describe_error(&error)),
        };
        let retry_after = head.headers.get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            // A success counts when its body is complete, as it does for the gateway.
            Err(_) if head.status.is_success() => {
                return Err((AttemptFailure::Reset, "the response was cut off".to_owned()));
            }
            Err(_) => Bytes::new(),
        };
        let kept = body.get(..ANSWER_BYTES_KEPT).unwrap_or(&body);
        Ok((head.status, retry_after, String::from_utf8_lossy(kept).into_owned()))
    }

    /// Reports answers until that makes no sense any more.
    async fn report(
        self: Arc<Self>,
        mut reported: mpsc::UnboundedReceiver<Report>,
    ) -> Result<(), CliError> {
        let mut link = GatewayLink::default();
        let mut batch = Vec::new();
        while reported.recv_many(&mut batch, ListenRequest::DELIVERIES_MAX).await > 0 {
            loop {
                let answers = batch.iter().map(|report| report.answer.clone()).collect();
                let request = ListenRequest { answers, ..self.request() };
                match self.client.call(calls::listen(&self.destination, &request)).await {
                    Ok(ListenResponse { unknown, .. }) => {
                        link.note_success();
                        for report in batch.drain(..) {
                            self.finish(&report, unknown.contains(&report.answer.delivery))?;
                        }
                        break;
                    }
                    // The deliveries of a destination that is gone are cancelled.
                    Err(error) if error.is_missing() => {
                        batch.drain(..).for_each(|report| self.release(&report));
                        break;
                    }
                    Err(error) => link.note_failure(error).await?,
                }
            }
        }
        Ok(())
    }

    fn release(&self, report: &Report) {
        let mut state = self.lock();
        let delivery = report.answer.delivery;
        // It may have been handed out again meanwhile.
        if state.held.get(&delivery) == Some(&report.request) {
            state.held.remove(&delivery);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn finish(&self, report: &Report, is_unknown: bool) -> Result<(), CliError> {
        self.release(report);
        if report.is_repeated {
            return Ok(());
        }
        let (delivery, answer) = (&report.delivery, &report.answer);
        if self.as_json {
            return output::print_line(json!({
                "at": SystemClock.now(),
                "event": delivery.event,
                "delivery": delivery.id,
                "source": delivery.source,
                "kind": delivery.kind,
                "attempt": delivery.attempt,
                "status": answer.status,
                "failure": answer.failure,
                "duration_ms": answer.duration_ms,
                "recorded": !is_unknown,
            }));
        }
        output::print_line(format_report(delivery, answer, is_unknown))
    }

    /// Waits until the program has answered what it got, and the gateway has the answers.
    async fn wait_until_reported(&self) {
        loop {
            let changed = self.changed.notified();
            if self.lock().held.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Tells the gateway that this listener stops.
    async fn leave(&self) {
        let request = ListenRequest { leave: true, ..self.request() };
        let call = self.client.call(calls::listen(&self.destination, &request));
        // The gateway notices it anyway.
        let _left = tokio::time::timeout(FINISH_TIME, call).await;
    }
}

fn format_report(delivery: &ListenDelivery, answer: &ListenAnswer, is_unknown: bool) -> String {
    let time = SystemClock.now().to_string();
    let time = time.get(11..19).unwrap_or(&time);
    let (style, result) = match (answer.status, answer.failure) {
        (Some(status), _) if is_success(answer) => (OutputStyle::Success, status.to_string()),
        (Some(status), _) => (OutputStyle::Error, status.to_string()),
        (None, Some(failure)) => (OutputStyle::Error, failure.as_str().to_owned()),
        (None, None) => (OutputStyle::Error, "failed".to_owned()),
    };
    let result = output::style(style, &format!("{result:>11}"));
    let (source, kind) = (&delivery.source, output::format_value(&json!(delivery.kind)));
    let duration = format!("{} ms", answer.duration_ms);
    let mut line = format!("{time} {result} {duration:>8}  {source}  {kind}  {}", delivery.event);
    if delivery.attempt > 1 {
        line.push_str(&format!("  attempt {}", delivery.attempt));
    }
    if let Some(detail) = &answer.detail {
        line.push_str(&format!("  {}", output::escape_control(detail)));
    }
    if is_unknown {
        line.push_str("  (the gateway did not wait for it any more)");
    }
    line
}

/// Why the program could not be reached, from the cause of the error.
fn describe_error(error: &hyper_util::client::legacy::Error) -> (AttemptFailure, String) {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return describe_io_error(error);
        }
        cause = inner.source();
    }
    match error.is_connect() {
        true => (AttemptFailure::Unreachable, "the address cannot be reached".to_owned()),
        false => (AttemptFailure::Reset, "the program closed the connection".to_owned()),
    }
}

fn describe_io_error(error: &io::Error) -> (AttemptFailure, String) {
    let kind = error.kind();
    let is_unreachable =
        matches!(kind, io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable);
    let (failure, text) = if kind == io::ErrorKind::ConnectionRefused {
        (AttemptFailure::Refused, "nothing listens at the address; is the program running?")
    } else if is_unreachable {
        (AttemptFailure::Unreachable, "the address cannot be reached")
    } else if error.to_string().contains("lookup") {
        (AttemptFailure::Dns, "the name of the address does not resolve")
    } else {
        (AttemptFailure::Reset, "the connection broke")
    };
    (failure, text.to_owned())
}

/// The connection to the gateway, as one of the two loops sees it.
#[derive(Default)]
struct GatewayLink {
    failures: u32,
}

impl GatewayLink {
    fn note_success(&mut self) {
        if self.failures > 0 {
            output::note("Connected again.");
        }
        self.failures = 0;
    }

    /// Waits before the next attempt. An error that will not go away is returned.
    async fn note_failure(&mut self, error: CliError) -> Result<(), CliError> {
        if !error.may_go_away() {
            return Err(error);
        }
        if self.failures == 0 {
            output::note(&format!("{error}. Trying again …"));
        }
        let wait = RECONNECT_MIN * 2_u32.pow(self.failures.min(5));
        self.failures += 1;
        tokio::time::sleep(wait.min(RECONNECT_MAX)).await;
        Ok(())
    }
}

impl CliError {
    /// Whether the gateway answered that something does not exist.
    fn is_missing(&self) -> bool {
        self.problem().is_some_and(|(status, _)| status == StatusCode::NOT_FOUND)
    }

    /// Whether the same call may work later: the gateway is restarted, overloaded, or another node has to
    /// be asked.
    fn may_go_away(&self) -> bool {
        match self.problem() {
            Some((_, "owned_by_other_node")) => true,
            Some((status, _)) => {
                status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
            }
            None => self.is_unreachable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_patterns_become_one_filter() {
        assert_eq!(kind_filter(&[]), None);
        let kinds = ["invoice.paid".to_owned(), "order.*".to_owned()];
        let expected = r#"$kind == "invoice.paid" or ($kind // "" | startswith("order."))"#;
        assert_eq!(kind_filter(&kinds).unwrap(), expected);
        assert!(matches_any(&kinds, "order.created") && !matches_any(&kinds, "invoice.paid.more"));
    }

    #[test]
    fn only_successes_are_remembered_and_the_oldest_is_forgotten() {
        let answer = |number: u128, status| ListenAnswer {
            delivery: DeliveryId::new(
                surehook_types::time::Timestamp::from_millis(1),
                number << 64,
            ),
            status: Some(status),
            failure: None,
            detail: None,
            duration_ms: 1,
            retry_after_seconds: None,
            response: String::new(),
        };
        let mut state = ListenerState::default();
        state.remember(&answer(0, 500));
        assert!(state.remembered.is_empty());
        for number in 0..=REMEMBERED_MAX as u128 {
            state.remember(&answer(number, 204));
        }
        assert_eq!(state.remembered.len(), REMEMBERED_MAX);
        assert!(!state.remembered.contains_key(&answer(0, 204).delivery));
    }
}
