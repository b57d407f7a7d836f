//! Rate and order of a destination while its lane moves between nodes, judged by what a receiver gets.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use surehook_core::store::ConfigChange;
use surehook_engine::{
    ConfigChangeError,
    system::{SystemClock, SystemRng},
};
use surehook_types::{
    ids::{DestinationId, RouteId},
    rng::new_id,
    time::Clock as _,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    postgres::PostgresNodes,
    support::{put_source, receive_ordered, wait_for},
};

const RATE: usize = 50;
const BURST: usize = 10;
/// Ordering keys.
const KEYS: usize = 7;

/// A request that arrived at the receiver.
#[derive(Clone, Debug)]
struct Arrival {
    at: Instant,
    key: String,
    number: usize,
}

/// An HTTP server that answers every request with 200.
struct Receiver {
    url: String,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let arrivals: Arc<Mutex<Vec<Arrival>>> = Arc::default();
        let shared = Arc::clone(&arrivals);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(answer(connection, Arc::clone(&shared)));
            }
        });
        Self { url, arrivals }
    }

    fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    /// Waits until all of these have arrived, and checks that each key's came in order and none twice.
    async fn wait_for_all_in_order(&self, count: usize) {
        wait_for(async || (self.arrivals().len() >= count).then_some(())).await;
        let arrivals = self.arrivals();
        assert_eq!(arrivals.len(), count, "none arrives twice");
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for Arrival { key, number, .. } in &arrivals {
            let before = last.insert(key, *number);
            assert!(before < Some(*number), "{key}: {number} after {before:?}");
        }
    }

    /// Asserts that no second had more requests than rate and burst permit together.
    fn check_rate(&self) {
        let arrivals = self.arrivals();
        for (first, arrival) in arrivals.iter().enumerate() {
            let end = arrival.at + Duration::from_secs(1);
            let within = arrivals[first..].iter().take_while(|later| later.at < end).count();
            assert!(within <= RATE + BURST, "{within} requests in one second");
        }
    }
}

/// Reads requests with a JSON body from a connection.
async fn answer(mut connection: TcpStream, arrivals: Arc<Mutex<Vec<Arrival>>>) {
    let mut buffer = Vec::new();
    loop {
        let Some((used, body)) = parse_request(&buffer) else {
            match connection.read_buf(&mut buffer).await {
                Ok(read) if read > 0 => continue,
                Ok(_) | Err(_) => return,
            }
        };
        let (key, number) = (body["key"].as_str().unwrap(), body["number"].as_u64().unwrap());
        let number = usize::try_from(number).unwrap();
        arrivals.lock().unwrap().push(Arrival { at: Instant::now(), key: key.to_owned(), number });
        buffer.drain(..used);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if connection.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// The bytes of the first request and its body, if it is complete.
fn parse_request(buffer: &[u8]) -> Option<(usize, Value)> {
    let head_end = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&buffer[..head_end]).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
    let end = head_end + length.trim().parse::<usize>().unwrap();
    let body = buffer.get(head_end..end)?;
    Some((end, serde_json::from_slice(body).unwrap()))
}

/// A destination with a rate and ordering keys.
fn put_destination(id: DestinationId, url: &str, shards: u16) -> ConfigChange {
    let spec = json!({
        "name": "out", "url": url, "rate": format!("{RATE}/s burst {BURST}"), "shards": shards,
        "order": { "key": "/key" },
    });
    ConfigChange::PutDestination(id, serde_json::from_value(spec).unwrap())
}

/// Three nodes, a receiver, and the number of events that were received so far.
struct Drill {
    test: PostgresNodes,
    destination: DestinationId,
    receiver: Receiver,
    received: usize,
}

impl Drill {
    async fn start(shards: u16) -> Option<Self> {
        let receiver = Receiver::start().await;
        let destination: DestinationId = new_id(&SystemRng, SystemClock.now());
        let route: RouteId = new_id(&SystemRng, SystemClock.now());
        let route_spec = json!({ "from": "shop", "to": "out" });
        let changes = vec![
            put_source("shop"),
            put_destination(destination, &receiver.url, shards),
            ConfigChange::PutRoute(route, serde_json::from_value(route_spec).unwrap()),
        ];
        let test = PostgresNodes::start(3, changes).await?;
        Some(Self { test, destination, receiver, received: 0 })
    }

    /// Changes the number of shards, and waits until all of the new lanes have an owner.
    async fn change_shards(&self, shards: u16) {
        let changes = vec![put_destination(self.destination, &self.receiver.url, shards)];
        let change = |_: &_| Ok((changes.clone(), ()));
        self.test.nodes[0].engine.change::<_, ConfigChangeError>(change).await.unwrap();
        wait_for(async || {
            (self.test.owners(shards).await.len() == usize::from(shards)).then_some(())
        })
        .await;
    }

    /// Receives events on all nodes in turn.
    async fn receive(&mut self, count: usize) {
        for number in self.received..self.received + count {
            let node = &self.test.nodes[number % self.test.nodes.len()];
            let key = format!("k{}", number % KEYS);
            receive_ordered(&node.engine, &key, number).await.unwrap();
        }
        self.received += count;
    }

    async fn finish(self) {
        self.receiver.wait_for_all_in_order(self.received).await;
        self.receiver.check_rate();
        self.test.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_planned_handovers_keep_rate_and_order_and_repeat_nothing() {
    let Some(mut drill) = Drill::start(1).await else { return };
    drill.receive(200).await;
    for _ in 0..10 {
        // Before the node leaves: meanwhile there are three.
        drill.test.join().await;
        drill.test.take_owner().await.leave().await;
        drill.receive(10).await;
    }
    drill.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_lost_owners_cost_no_delivery_and_no_order_and_break_no_rate() {
    let Some(mut drill) = Drill::start(1).await else { return };
    drill.receive(200).await;
    for _ in 0..2 {
        drill.test.join().await;
        let lost = drill.test.take_owner().await;
        drill.test.lose(&lost).await;
        drill.receive(20).await;
        lost.stop().await;
    }
    drill.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_shards_keep_rate_and_order_together_while_they_move() {
    let Some(mut drill) = Drill::start(3).await else { return };
    drill.receive(200).await;
    for _ in 0..4 {
        drill.test.join().await;
        drill.test.take_owner().await.leave().await;
        drill.receive(10).await;
    }
    drill.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_change_of_the_number_of_shards_keeps_rate_and_order_and_repeats_nothing() {
    let Some(mut drill) = Drill::start(1).await else { return };
    drill.receive(200).await;
    for shards in [4, 2, 1, 3] {
        drill.change_shards(shards).await;
        drill.receive(10).await;
    }
    drill.finish().await;
}
