//! `surehook listen`: events of a gateway reach a program on this machine, its answers are recorded, and
//! neither side loses or repeats anything when the other one disconnects.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, TOKEN},
    process::Process,
    sink::{ArrivalsByRun, Reply, Sink},
};

const SOURCES: &str = r#"
[[sources]]
name = "in"
verify = "none"
kinds = ["pointer:/kind"]

[[sources]]
name = "other"
verify = "none"
"#;

const LAPTOP: &str = r#"
[[destinations]]
name = "laptop"
kind = "listen"
circuit = "off"

[[routes]]
from = "in"
to = "laptop"
"#;

/// Starts the command with these arguments.
fn start_listen(server: &str, gateway: &Gateway, forward: &str, more: &[&str]) -> Process {
    let env = [
        ("SUREHOOK_SERVER".to_owned(), server.to_owned()),
        ("SUREHOOK_TOKEN".to_owned(), TOKEN.to_owned()),
    ];
    let args = [&["listen", "--forward", forward, "--json"], more].concat();
    Process::spawn(gateway.folder(), &args, &env)
}

/// The lines that the command has printed.
fn printed(listener: &Process) -> Vec<Value> {
    listener.stdout.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The name of the temporary destination.
async fn wait_for_temporary_destination(gateway: &Gateway) -> String {
    eventually(WAIT_LIMIT, || async {
        let all = gateway.list("/destinations").await;
        let mut names = all.iter().filter_map(|one| one["name"].as_str());
        names.find(|name| name.starts_with("listen-")).map(ToOwned::to_owned)
    })
    .await
}

/// Waits until the destination has a listener.
async fn wait_for_listener(gateway: &Gateway, destination: &str) {
    eventually(WAIT_LIMIT, || async {
        let state = gateway.destination_state(destination).await;
        (state["listeners"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn listen_forwards_exact_bytes_and_reports_answers_as_attempts() {
    let sink = Sink::with_script(|number, _| match number {
        0 => Reply::status(500).body("boom"),
        _ => Reply::status(201),
    })
    .await;
    let gateway = Gateway::start_with(SOURCES).await;
    let mut listener = start_listen(
        &gateway.url(""),
        &gateway,
        &sink.url(),
        &["--source", "in", "--kind", "order.*"],
    );
    let destination = wait_for_temporary_destination(&gateway).await;
    wait_for_listener(&gateway, &destination).await;

    let body = "{ \"kind\": \"order.paid\",\n \"n\": 1.0, \"é\": \"\u{1f600}\" }";
    let headers = [("content-type", "application/json"), ("x-custom", "caf\u{e9}")];
    let event = gateway.send_webhook("in", &headers, body).await.expect(200).event_id();
    let unwanted = gateway.post_accepted("in", r#"{"kind":"invoice.paid"}"#).await;
    gateway.post_accepted("other", "{}").await;

    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    let attempts = delivery["attempt_list"].as_array().unwrap();
    assert_eq!(
        (attempts[0]["status"].as_u64(), attempts[1]["status"].as_u64()),
        (Some(500), Some(201))
    );
    assert_eq!(attempts[0]["response"], "boom");
    let requests = sink.requests();
    assert_eq!(requests.len(), 2, "only the chosen kind is forwarded");
    for request in &requests {
        assert_eq!((request.id(), &request.body[..]), (event.as_str(), body.as_bytes()));
        assert_eq!(request.headers["x-custom"].as_bytes(), "caf\u{e9}".as_bytes());
        assert_eq!(
            (request.path.as_str(), request.header("content-type")),
            ("/hook", "application/json")
        );
    }
    let lines = eventually(WAIT_LIMIT, || async {
        Some(printed(&listener)).filter(|lines| lines.len() == 2)
    })
    .await;
    assert_eq!((&lines[0]["status"], &lines[1]["attempt"]), (&json!(500), &json!(2)));
    assert_eq!((&lines[0]["kind"], &lines[0]["event"]), (&json!("order.paid"), &json!(event)));
    assert_eq!(gateway.event(&unwanted).await["deliveries"], json!([]));

    listener.signal(Signal::INT);
    assert_eq!(listener.wait_for_exit().await.code(), Some(0), "{}", listener.stderr.text());
    let left = gateway.list("/destinations").await;
    assert!(left.iter().all(|one| one["name"] != *destination), "{left:?}");
    assert_eq!(gateway.list("/routes").await.len(), 0);
}

#[tokio::test]
async fn replay_last_forwards_earlier_events_and_unreachable_program_is_reported() {
    let sink = Sink::ok().await;
    let gateway = Gateway::start_with(SOURCES).await;
    let mut events = Vec::new();
    for number in 0..5 {
        events.push(gateway.post_accepted("in", format!(r#"{{"id":{number}}}"#)).await);
    }

    let arguments = ["--replay-last", "3", "--source", "in"];
    let mut listener = start_listen(&gateway.url(""), &gateway, &sink.url(), &arguments);
    let arrived = sink.wait_for_requests(3).await;
    let ids: HashSet<&str> = arrived.iter().map(|request| request.id()).collect();
    assert_eq!(ids, events[2..].iter().map(String::as_str).collect());
    listener.signal(Signal::TERM);
    assert_eq!(listener.wait_for_exit().await.code(), Some(0));
    assert_eq!(sink.count(), 3);

    let nothing = "http://127.0.0.1:9/hook";
    let listener = start_listen(&gateway.url(""), &gateway, nothing, &["--replay-last", "1"]);
    let line = eventually(WAIT_LIMIT, || async { printed(&listener).pop() }).await;
    assert_eq!((&line["failure"], &line["event"]), (&json!("refused"), &json!(events[4])));
    let destination = wait_for_temporary_destination(&gateway).await;
    let delivery = gateway.find_delivery_to(&events[4], &destination).await.unwrap();
    let recorded = eventually(WAIT_LIMIT, || async {
        let delivery = gateway.get(&format!("/deliveries/{delivery}")).await.expect(200).json();
        Some(delivery["attempt_list"][0].clone()).filter(|attempt| !attempt.is_null())
    })
    .await;
    assert_eq!(recorded["failure"], "refused");
}

#[tokio::test]
async fn unattended_destination_holds_deliveries_and_is_removed_after_its_time() {
    let settings = format!("{SOURCES}{LAPTOP}");
    let settings = settings.replace("circuit = \"off\"", "listen = { remove_after = \"2s\" }");
    let gateway = Gateway::start_with(&settings).await;
    let event = gateway.post_accepted("in", "{}").await;
    let state = gateway.destination_state("laptop").await;
    assert_eq!((&state["listeners"], &state["circuit"]), (&json!(0), &json!("closed")));

    let delivery = gateway.wait_for_delivery(&event, "cancelled").await;
    assert_eq!(delivery["attempts"], 0);
    assert!(gateway.list("/destinations").await.is_empty());
}

#[tokio::test]
async fn invalid_listen_calls_are_refused() {
    let gateway = Gateway::start_with(&format!(
        "{SOURCES}{LAPTOP}[[destinations]]\nname = \"http\"\nurl = \"http://127.0.0.1:9000/\"\n"
    ))
    .await;
    let call = |more: Value| {
        let mut call = json!({ "listener": "one" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let delivery = "dlv_00000000000000000000000000";
    let cases = [
        ("http", json!({}), 409, "not_a_listen_destination"),
        ("absent", json!({}), 404, "not_found"),
        ("laptop", json!({ "listener": "" }), 422, "invalid"),
        ("laptop", json!({ "max": 65 }), 422, "invalid"),
        ("laptop", json!({ "wait_seconds": 21 }), 422, "invalid"),
        (
            "laptop",
            json!({ "answers": [{ "delivery": delivery, "duration_ms": 1 }] }),
            422,
            "invalid",
        ),
        (
            "laptop",
            json!({ "answers": [{ "delivery": delivery, "duration_ms": 1, "failure": "no_resources" }] }),
            422,
            "invalid",
        ),
    ];
    for (destination, more, status, code) in cases {
        let path = format!("/destinations/{destination}/listen");
        let response = gateway.post(&path, &call(more.clone())).await;
        assert_eq!((response.status.as_u16(), response.code().as_str()), (status, code), "{more}");
    }
    let viewer = gateway.create_token("viewer").await;
    let path = "/destinations/laptop/listen";
    gateway.api_as(&viewer, http::Method::POST, path, Some(&call(json!({})))).await.expect(403);
    let operator = gateway.create_token("operator").await;
    gateway.api_as(&operator, http::Method::POST, path, Some(&call(json!({})))).await.expect(200);
}

/// Forwards connections to a gateway whose address changes, and cuts them on request.
struct SwitchedProxy {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    cut: watch::Sender<u32>,
}

impl SwitchedProxy {
    async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(target));
        let (cut, cuts) = watch::channel(0);
        let current = Arc::clone(&target);
        tokio::spawn(async move {
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                let (current, mut cuts) = (Arc::clone(&current), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let target = *current.lock().unwrap();
                    // The gateway may be down.
                    let Ok(mut to) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut from, &mut to) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { address, target, cut }
    }

    fn cut_all(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

#[tokio::test]
async fn heavy_twenty_disconnects_of_client_and_server_lose_nothing_and_repeat_only_unrecorded_answers()
 {
    const ROUNDS: usize = 20;
    const EVENTS_PER_ROUND: usize = 15;
    // Slow enough that something is under way at each disconnect.
    let sink = Sink::with_script(|number, _| {
        Reply::status(200).after(Duration::from_millis(20 + (number as u64 * 37) % 80))
    })
    .await;
    let mut gateway = Gateway::start_with(&format!("{SOURCES}{LAPTOP}")).await;
    let proxy = SwitchedProxy::start(gateway.address()).await;
    let server = format!("http://{}", proxy.address);
    let arguments = ["--to", "laptop", "--concurrency", "4"];
    let mut listener = start_listen(&server, &gateway, &sink.url(), &arguments);
    let mut sent = HashSet::new();
    let mut client_runs = ArrivalsByRun::default();
    let mut recorded_at_kill: Vec<(usize, HashSet<String>)> = Vec::new();

    for round in 0..ROUNDS {
        for number in 0..EVENTS_PER_ROUND {
            sent.insert(
                gateway.post_accepted("in", format!(r#"{{"id":"{round}-{number}"}}"#)).await,
            );
        }
        // In the middle of the round, with requests under way.
        sink.wait_for_requests(round * EVENTS_PER_ROUND + EVENTS_PER_ROUND / 2).await;
        match round % 3 {
            0 => {
                listener.kill9();
                client_runs.end_run(&sink);
                let arrived = sink.count();
                let recorded = gateway.list("/deliveries?status=succeeded&limit=1000").await;
                let recorded = recorded.iter().map(|row| row["event"].as_str().unwrap().to_owned());
                recorded_at_kill.push((arrived, recorded.collect()));
                listener = start_listen(&server, &gateway, &sink.url(), &arguments);
            }
            1 => {
                gateway.restart().await;
                *proxy.target.lock().unwrap() = gateway.address();
            }
            _ => proxy.cut_all(),
        }
    }
    gateway.wait_for_stats(WAIT_LIMIT, |stats| stats["by_status"]["succeeded"] == sent.len()).await;
    listener.kill9();
    client_runs.end_run(&sink);

    let arrivals = sink.requests();
    let arrived: HashSet<String> = arrivals.iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(arrived, sent, "every event arrives, under its own id");
    // Within one run of the command the program gets no event twice, whatever happens to the gateway.
    client_runs.assert_none_repeated_in_one_run();
    for (count, recorded) in recorded_at_kill {
        let later = arrivals.iter().skip(count);
        let repeated: Vec<&str> =
            later.map(|request| request.id()).filter(|id| recorded.contains(*id)).collect();
        assert!(repeated.is_empty(), "recorded answers are not asked for again: {repeated:?}");
    }
    for delivery in gateway.list("/deliveries?limit=1000").await {
        assert_eq!(delivery["attempts"], 1, "a lost listener costs no attempt: {delivery}");
    }
}
