//! Idempotency phase: how many keys can other programs claim and complete over HTTP?
//!
//! Every connection has one request in flight. The clients write and read HTTP by hand, because they
//! share the machine with the gateway and a full client costs as much as the server. The bare limit is
//! `SET NX EX` on a Redis server that stores nothing on disk, asked by the same clients, if there is one.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bench_run::BenchRun;
use crate::gateway::{Gateway, GatewayConfig};
use crate::latency::{self, LatencySummary, median};
use crate::request::random_u64;
use crate::server_process::{ServerProcess, free_addr};

const PAIRS_TARGET: f64 = 8_000.0;
const DUPLICATES_TARGET: f64 = 40_000.0;
const HALF_LOAD_P99_TARGET_US: u64 = 20_000;
/// Keys whose duplicates are measured.
const DUPLICATE_KEYS: u64 = 10_000;
const BATCH: u64 = 100;
/// A server that answers nothing for this long has stopped.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Rates of the idempotency service, medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct IdempotencyReport {
    /// Keys claimed and completed per second, two calls each.
    pub pairs_per_second: f64,
    pub pairs_per_second_rounds: Vec<f64>,
    pub pairs_per_second_target: f64,
    /// Claims of completed keys per second.
    pub duplicates_per_second: f64,
    pub duplicates_per_second_rounds: Vec<f64>,
    pub duplicates_per_second_target: f64,
    /// Keys claimed and completed per second in batches of 100.
    pub batch_keys_per_second: f64,
    pub batch_keys_per_second_rounds: Vec<f64>,
    /// Half of the pairs per second.
    pub half_load_pairs_per_second: f64,
    /// Of one call, at half load.
    pub half_load_latency: LatencySummary,
    pub half_load_p99_target_us: u64,
    /// `SET NX EX` per second on a Redis server without persistence; absent if there is none.
    pub redis_per_second: Option<f64>,
    pub redis_per_second_rounds: Vec<f64>,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<IdempotencyReport> {
    let rounds = run.options.rounds;
    run.progress.set_total(rounds as u64 * 5);
    let mut samples = Vec::new();
    for round in 1..=rounds {
        samples.push(measure_round(run, round).await?);
    }
    let values = |part: fn(&RoundSample) -> f64| samples.iter().map(part).collect::<Vec<f64>>();
    let (pairs, duplicates) = (values(|s| s.pairs), values(|s| s.duplicates));
    let (batch, half) = (values(|s| s.batch_keys), values(|s| s.half_load));
    let redis: Vec<f64> = samples.iter().filter_map(|sample| sample.redis).collect();
    let latencies: Vec<LatencySummary> = samples.iter().map(|sample| sample.latency).collect();
    Ok(IdempotencyReport {
        pairs_per_second: median(pairs.iter().copied()),
        pairs_per_second_rounds: pairs,
        pairs_per_second_target: PAIRS_TARGET,
        duplicates_per_second: median(duplicates.iter().copied()),
        duplicates_per_second_rounds: duplicates,
        duplicates_per_second_target: DUPLICATES_TARGET,
        batch_keys_per_second: median(batch.iter().copied()),
        batch_keys_per_second_rounds: batch,
        half_load_pairs_per_second: median(half),
        half_load_latency: LatencySummary::over_rounds(&latencies),
        half_load_p99_target_us: HALF_LOAD_P99_TARGET_US,
        redis_per_second: (!redis.is_empty()).then(|| median(redis.iter().copied())),
        redis_per_second_rounds: redis,
    })
}

struct RoundSample {
    pairs: f64,
    duplicates: f64,
    batch_keys: f64,
    half_load: f64,
    latency: LatencySummary,
    redis: Option<f64>,
}

async fn measure_round(run: &BenchRun, round: usize) -> Result<RoundSample> {
    let step = |name: &str| {
        run.progress.start_step(format!("round {round} of {}: {name}", run.options.rounds));
    };
    let seconds = Duration::from_secs(run.options.seconds);
    step("Redis SET NX EX");
    let redis = match start_redis(run).await? {
        None => None,
        Some(redis) => {
            let plan = ClientPlan::closed_loop(run, redis.addr(), Workload::RedisSet, "");
            Some(plan.run(seconds).await.context("the load on Redis failed")?.per_second())
        }
    };
    run.progress.finish_step();
    let gateway = run.start_gateway(&GatewayConfig::default()).await?;
    let measure = async |workload, pace: Option<f64>| {
        let addr = gateway.child.addr();
        let plan = ClientPlan::closed_loop(run, addr, workload, gateway.token());
        let plan = ClientPlan { pace, ..plan };
        plan.run(seconds)
            .await
            .with_context(|| format!("the load of {workload:?} failed{}", gateway.child.log_tail()))
    };
    step("pairs");
    let pairs = measure(Workload::Pairs, None).await?.per_second();
    run.progress.finish_step();
    step("pairs at half load");
    let half = measure(Workload::Pairs, Some(pairs / 2.0)).await?;
    run.progress.finish_step();
    step("duplicates");
    complete_keys(&gateway).await?;
    let duplicates = measure(Workload::Duplicates, None).await?.per_second();
    run.progress.finish_step();
    step("batches");
    let batch_keys = measure(Workload::Batches, None).await?.per_second();
    run.progress.finish_step();
    Ok(RoundSample {
        pairs,
        duplicates,
        batch_keys,
        half_load: half.per_second(),
        latency: LatencySummary::from_histogram(&half.latency),
        redis,
    })
}

/// Starts the `redis-server` of the search path, if there is one.
async fn start_redis(run: &BenchRun) -> Result<Option<ServerProcess>> {
    let addr = free_addr()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
    command.arg(addr.port().to_string());
    let log = run.folder().join("redis.log");
    let Ok(redis) = ServerProcess::start("redis-server", &mut command, addr, &log) else {
        return Ok(None);
    };
    let started_at = Instant::now();
    while TcpStream::connect(addr).await.is_err() {
        ensure!(
            started_at.elapsed() < SILENCE_MAX,
            "redis-server is not ready{}",
            redis.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(Some(redis))
}

/// The keys that [`Workload::Duplicates`] claims.
async fn complete_keys(gateway: &Gateway) -> Result<()> {
    let mut connection = ClientConnection::open(gateway.child.addr()).await?;
    let mut text = RequestText::new(gateway.child.addr(), gateway.token());
    for first in (0..DUPLICATE_KEYS).step_by(BATCH as usize) {
        let keys: Vec<String> = (first..first + BATCH).map(duplicate_key).collect();
        complete_batch(&mut connection, &mut text, &keys).await?;
    }
    Ok(())
}

fn duplicate_key(number: u64) -> String {
    format!("duplicate-{number}")
}

#[derive(Clone, Copy, Debug)]
enum Workload {
    /// Claim a new key, then complete it.
    Pairs,
    /// Claim a completed key.
    Duplicates,
    /// Claim 100 new keys, then complete them.
    Batches,
    RedisSet,
}

#[derive(Clone, Debug)]
struct ClientPlan {
    addr: SocketAddr,
    workload: Workload,
    connections: usize,
    token: String,
    /// Turns per second over all connections; otherwise a closed loop.
    pace: Option<f64>,
}

struct ClientResult {
    units: u64,
    elapsed: Duration,
    /// Of single calls.
    latency: Histogram<u64>,
}

impl ClientResult {
    fn per_second(&self) -> f64 {
        self.units as f64 / self.elapsed.as_secs_f64()
    }
}

impl ClientPlan {
    fn closed_loop(run: &BenchRun, addr: SocketAddr, workload: Workload, token: &str) -> Self {
        let connections = run.options.connections;
        Self { addr, workload, connections, token: token.to_owned(), pace: None }
    }

    async fn run(self, duration: Duration) -> Result<ClientResult> {
        let plan = Arc::new(self);
        let started = Instant::now();
        let mut clients = JoinSet::new();
        for index in 0..plan.connections {
            clients.spawn(run_client(Arc::clone(&plan), index, started, started + duration));
        }
        let mut result =
            ClientResult { units: 0, elapsed: duration, latency: latency::histogram() };
        while let Some(client) = clients.join_next().await {
            let (units, latency) = client.context("a client panicked")??;
            result.units += units;
            result.latency.add(latency).context("histograms differ")?;
        }
        result.elapsed = started.elapsed();
        Ok(result)
    }
}

async fn run_client(
    plan: Arc<ClientPlan>,
    index: usize,
    started: Instant,
    deadline: Instant,
) -> Result<(u64, Histogram<u64>)> {
    let mut connection = ClientConnection::open(plan.addr).await?;
    let mut text = RequestText::new(plan.addr, &plan.token);
    let series = random_u64();
    let interval = plan.pace.map(|pace| plan.connections as f64 / pace);
    let mut units = 0;
    for turn in 0_u64.. {
        let due = interval.map(|interval| {
            let offset = interval * index as f64 / plan.connections as f64;
            started + Duration::from_secs_f64(offset + interval * turn as f64)
        });
        if due.unwrap_or_else(Instant::now) >= deadline {
            break;
        }
        if let Some(due) = due {
            // A turn that is late because the one before was slow counts from when it was due.
            if Instant::now() < due {
                tokio::time::sleep_until(due.into()).await;
            } else {
                connection.late_since = Some(due);
            }
        }
        units += match plan.workload {
            Workload::Pairs => {
                let key = format!("{series:016x}-{turn}");
                let claimed = connection.call(text.claim(&key)).await?;
                let token = find_token(claimed)?.to_owned();
                let answer = connection.call(text.complete(&key, &token)).await?;
                expect(answer, "\"completed\"")?;
                1
            }
            Workload::Duplicates => {
                let number = (index as u64 + turn * plan.connections as u64) % DUPLICATE_KEYS;
                let answer = connection.call(text.claim(&duplicate_key(number))).await?;
                expect(answer, "\"completed\"")?;
                1
            }
            Workload::Batches => {
                let key = |number| format!("{series:016x}-{turn}-{number}");
                let keys: Vec<String> = (0..BATCH).map(key).collect();
                complete_batch(&mut connection, &mut text, &keys).await?;
                BATCH
            }
            Workload::RedisSet => {
                let key = format!("{series:016x}-{turn}");
                connection.call_redis(text.redis_set(&key)).await?;
                1
            }
        };
    }
    Ok((units, connection.latency))
}

/// Claims the keys in one call and completes them in another.
async fn complete_batch(
    connection: &mut ClientConnection,
    text: &mut RequestText,
    keys: &[String],
) -> Result<()> {
    let item = |key: &String| format!(r#"{{"namespace":"bench","key":"{key}"}}"#);
    let claims: Vec<String> = keys.iter().map(item).collect();
    let claims = format!(r#"{{"claims":[{}]}}"#, claims.join(","));
    let answer = connection.call(text.post("/api/v1/idempotency", &claims)).await?;
    let tokens = answer.split(TOKEN_FIELD).skip(1).filter_map(|rest| rest.get(..TOKEN_LEN));
    let completions = keys.iter().zip(tokens).map(|(key, token)| {
        format!(
            r#"{{"namespace":"bench","key":"{key}","token":"{token}","result":{{"order":17}}}}"#
        )
    });
    let completions: Vec<String> = completions.collect();
    ensure!(completions.len() == keys.len(), "a batch was not claimed as a whole: {answer}");
    let completions = format!(r#"{{"completions":[{}]}}"#, completions.join(","));
    let answer = connection.call(text.post("/api/v1/idempotency", &completions)).await?;
    ensure!(answer.matches("\"completed\"").count() == keys.len(), "not all completed: {answer}");
    Ok(())
}

const TOKEN_FIELD: &str = "\"token\":\"";
const TOKEN_LEN: usize = 32;

fn find_token(body: &str) -> Result<&str> {
    let rest = body.split_once(TOKEN_FIELD).map(|(_, rest)| rest);
    rest.and_then(|rest| rest.get(..TOKEN_LEN)).with_context(|| format!("not claimed: {body}"))
}

fn expect(body: &str, text: &str) -> Result<()> {
    ensure!(body.contains(text), "expected {text}, got {body}");
    Ok(())
}

/// Writes requests into one buffer.
struct RequestText {
    addr: SocketAddr,
    token: String,
    text: String,
}

impl RequestText {
    fn new(addr: SocketAddr, token: &str) -> Self {
        Self { addr, token: token.to_owned(), text: String::new() }
    }

    fn post(&mut self, path: &str, body: &str) -> &str {
        let Self { addr, token, text } = self;
        text.clear();
        // Writing into a String cannot fail.
        let _infallible = write!(
            text,
            "POST {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        text
    }

    fn claim(&mut self, key: &str) -> &str {
        let path = format!("/api/v1/idempotency/bench/{key}");
        self.post(&path, r#"{"ttl":"1h","lease":"30s"}"#)
    }

    fn complete(&mut self, key: &str, token: &str) -> &str {
        let path = format!("/api/v1/idempotency/bench/{key}/complete");
        self.post(&path, &format!(r#"{{"token":"{token}","result":{{"order":17}}}}"#))
    }

    fn redis_set(&mut self, key: &str) -> &str {
        self.text.clear();
        let _infallible = write!(
            self.text,
            "*6\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\n1\r\n$2\r\nNX\r\n$2\r\nEX\r\n$4\r\n3600\r\n",
            key.len()
        );
        &self.text
    }
}

/// A connection with one request in flight.
struct ClientConnection {
    stream: TcpStream,
    received: Vec<u8>,
    latency: Histogram<u64>,
    /// The next call counts from this time.
    late_since: Option<Instant>,
}

impl ClientConnection {
    async fn open(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let latency = latency::histogram();
        Ok(Self { stream, received: Vec::new(), latency, late_since: None })
    }

    /// Sends a request and returns the body of its response, which must be 200.
    async fn call(&mut self, request: &str) -> Result<&str> {
        let sent_at = self.send(request).await?;
        let (body, end) = loop {
            if let Some(bounds) = find_body(&self.received)? {
                break bounds;
            }
            self.receive().await?;
        };
        latency::record(&mut self.latency, sent_at.elapsed());
        let body = std::str::from_utf8(&self.received[body..end])?;
        ensure!(self.received.starts_with(b"HTTP/1.1 200"), "unexpected response: {body}");
        Ok(body)
    }

    async fn call_redis(&mut self, request: &str) -> Result<()> {
        let sent_at = self.send(request).await?;
        while !self.received.ends_with(b"\r\n") {
            self.receive().await?;
        }
        latency::record(&mut self.latency, sent_at.elapsed());
        ensure!(self.received == b"+OK\r\n", "{}", String::from_utf8_lossy(&self.received));
        Ok(())
    }

    async fn send(&mut self, request: &str) -> Result<Instant> {
        self.received.clear();
        let sent_at = self.late_since.take().unwrap_or_else(Instant::now);
        self.stream.write_all(request.as_bytes()).await?;
        Ok(sent_at)
    }

    async fn receive(&mut self) -> Result<()> {
        let read = tokio::time::timeout(SILENCE_MAX, self.stream.read_buf(&mut self.received));
        match read.await.context("the server stopped answering")?? {
            0 => bail!("the server closed the connection"),
            _ => Ok(()),
        }
    }
}

/// Where the body of a response begins and ends, once all of it is there.
fn find_body(received: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(head) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&received[..head])?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
    });
    let end = head + 4 + length.context("a response without a length")??;
    Ok((received.len() >= end).then_some((head + 4, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_is_found_when_all_of_it_is_there() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(find_body(response).unwrap(), Some((response.len() - 2, response.len())));
        for len in 0..response.len() {
            assert_eq!(find_body(&response[..len]).unwrap(), None, "case: {len}");
        }
        assert!(find_body(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn token_is_found_in_a_claim() {
        let token = "0".repeat(TOKEN_LEN);
        let body = format!(r#"{{"status":"claimed","token":"{token}","fence":1}}"#);
        assert_eq!(find_token(&body).unwrap(), token);
        assert!(find_token(r#"{"status":"in_progress"}"#).is_err());
    }
}
