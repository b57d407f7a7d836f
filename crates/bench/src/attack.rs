//! Attack phase: do genuine senders get through while others try to exhaust the gateway?
//!
//! Genuine senders send small and large bodies at a fixed rate; what counts is how many are accepted.
//! The **baseline** without an attack is compared with a run in which, from other addresses and at the
//! same source, all of this happens at once:
//!
//! - slow sockets that send a byte per second, half of them of the head and half of the body;
//! - bodies that declare 1 MiB, of which a part or nothing is sent;
//! - compressed bodies of 100 KB that are 3 MB unpacked.
//!
//! Attackers connect again as soon as they are closed. The gateway has its default settings.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::bench_run::{BenchRun, run_load};
use crate::gateway::{Gateway, GatewayConfig};
use crate::latency::{LatencySummary, median};
use crate::load::{LoadPlan, LoadResult, SendRate};
use crate::scenario::measure_scenarios;
use crate::usage::UsageMeter;

const SOURCE: &str = "attacked";
/// Genuine senders: small bodies.
const SMALL_PER_SECOND: f64 = 500.0;
const SMALL_CONNECTIONS: usize = 64;
/// Genuine senders: bodies that arrive in many parts.
const LARGE_PER_SECOND: f64 = 5.0;
const LARGE_CONNECTIONS: usize = 8;
const LARGE_BODY_BYTES: usize = 256 * 1024;

const SLOW_SOCKETS: usize = 2000;
/// Sockets that declare a body of [`DECLARED_BYTES`] and never send all of it.
const DECLARED_SOCKETS: usize = 400;
const DECLARED_BYTES: usize = 1024 * 1024;
/// Half of these sockets send this part of the body, the others nothing of it.
const PARTIAL_BODY_BYTES: usize = 600 * 1024;
const GZIP_CONNECTIONS: usize = 40;
const GZIP_PAUSE: Duration = Duration::from_secs(2);
const GZIP_PLAIN_BYTES: usize = 3_000_000;
const GZIP_NOISE_BYTES: usize = 110_000;
/// Attackers use 127.0.0.2 and the next ones: fewer connections of each than one address may open.
const ADDRESSES: usize = 4;
const DRIP_INTERVAL: Duration = Duration::from_secs(1);
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Not counted. Long enough for every attacker to be connected.
const WARM_UP: Duration = Duration::from_secs(3);

const GOODPUT_TARGET: f64 = 0.9;
/// The default of `limits.bodies_in_memory_max`.
const BODIES_IN_MEMORY_MAX: u64 = 256 * 1024 * 1024;
/// Memory that a gateway may use beside the bodies: the store, connections, code.
const OTHER_MEMORY_MAX: u64 = 64_000_000;

/// Genuine senders without and with an attack.
#[derive(Clone, Debug, Serialize)]
pub struct AttackReport {
    pub slow_sockets: usize,
    pub declared_sockets: usize,
    pub gzip_connections: usize,
    pub baseline: GoodputReport,
    pub with_attack: GoodputReport,
    /// The goodput with the attack as a share of the baseline.
    pub goodput_ratio: f64,
    pub goodput_ratio_target: f64,
    /// Peak memory of the gateway in its worst round with the attack.
    pub rss_peak_bytes: Option<u64>,
    pub rss_peak_bytes_max: u64,
    /// Connections that attackers opened, over all rounds.
    pub attack_connections: u64,
}

/// Throughput and latency of the genuine senders: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct GoodputReport {
    /// Accepted requests per second, small and large.
    pub per_second: f64,
    pub per_second_rounds: Vec<f64>,
    pub small_failed: u64,
    pub large_failed: u64,
    /// From sending a small request to its response.
    pub latency: LatencySummary,
}

/// One scenario in one round.
struct AttackSample {
    small: LoadResult,
    large: LoadResult,
    rss_peak_bytes: Option<u64>,
    attack_connections: u64,
}

pub(crate) async fn measure(run: &BenchRun) -> Result<AttackReport> {
    let gzip_request: Arc<[u8]> = gzip_request()?.into();
    let [baseline, attacked] = measure_scenarios(run, "with an attack", async |with_attack| {
        measure_scenario(run, with_attack.then_some(&gzip_request)).await
    })
    .await?;
    Ok(build_report(&baseline, &attacked))
}

fn build_report(baseline: &[AttackSample], attacked: &[AttackSample]) -> AttackReport {
    let [baseline_report, attack_report] = [baseline, attacked].map(GoodputReport::from_samples);
    AttackReport {
        slow_sockets: SLOW_SOCKETS,
        declared_sockets: DECLARED_SOCKETS,
        gzip_connections: GZIP_CONNECTIONS,
        goodput_ratio: attack_report.per_second / baseline_report.per_second.max(f64::MIN_POSITIVE),
        goodput_ratio_target: GOODPUT_TARGET,
        rss_peak_bytes: attacked.iter().filter_map(|sample| sample.rss_peak_bytes).max(),
        rss_peak_bytes_max: BODIES_IN_MEMORY_MAX + OTHER_MEMORY_MAX,
        attack_connections: attacked.iter().map(|sample| sample.attack_connections).sum(),
        baseline: baseline_report,
        with_attack: attack_report,
    }
}

impl AttackReport {
    pub(crate) fn goodput_met(&self) -> bool {
        self.goodput_ratio >= self.goodput_ratio_target
    }

    pub(crate) fn memory_met(&self) -> bool {
        self.rss_peak_bytes.is_none_or(|peak| peak <= self.rss_peak_bytes_max)
    }
}

impl GoodputReport {
    fn from_samples(samples: &[AttackSample]) -> Self {
        let rate = |sample: &AttackSample| sample.small.per_second() + sample.large.per_second();
        let per_second_rounds: Vec<f64> = samples.iter().map(rate).collect();
        let latencies: Vec<LatencySummary> = samples
            .iter()
            .map(|sample| LatencySummary::from_histogram(&sample.small.latency))
            .collect();
        Self {
            per_second: median(per_second_rounds.iter().copied()),
            per_second_rounds,
            small_failed: samples.iter().map(|sample| sample.small.failed).sum(),
            large_failed: samples.iter().map(|sample| sample.large.failed).sum(),
            latency: LatencySummary::over_rounds(&latencies),
        }
    }
}

/// Measures genuine senders on a new gateway; attacks it if there is a compressed request to attack with.
async fn measure_scenario(
    run: &BenchRun,
    gzip_request: Option<&Arc<[u8]>>,
) -> Result<AttackSample> {
    let gateway = run.start_gateway(&GatewayConfig::default().source(SOURCE)).await?;
    let opened = Arc::new(AtomicU64::new(0));
    let meter = UsageMeter::start(gateway.child.pid());
    // Dropped at the end of the scenario, which ends the attack.
    let mut attackers = JoinSet::new();
    if let Some(gzip_request) = gzip_request {
        start_attack(&mut attackers, gateway.child.addr(), gzip_request, &opened);
        tokio::time::sleep(WARM_UP).await;
        ensure!(opened.load(Ordering::Relaxed) > 0, "no attacker could connect");
    }
    let (small, large) = send_genuine(run, &gateway).await?;
    let attack_connections = opened.load(Ordering::Relaxed);
    Ok(AttackSample {
        small,
        large,
        rss_peak_bytes: meter.read().rss_peak_bytes,
        attack_connections,
    })
}

async fn send_genuine(run: &BenchRun, gateway: &Gateway) -> Result<(LoadResult, LoadResult)> {
    let small = LoadPlan {
        pace: SendRate::PerSecond(SMALL_PER_SECOND),
        connections: SMALL_CONNECTIONS,
        counts_failures: true,
        ..run.default_plan(gateway.child.addr(), SOURCE)
    };
    let large = LoadPlan {
        pace: SendRate::PerSecond(LARGE_PER_SECOND),
        connections: LARGE_CONNECTIONS,
        body_bytes: LARGE_BODY_BYTES,
        ..small.clone()
    };
    tokio::try_join!(run_load(&gateway.child, small), run_load(&gateway.child, large))
}

/// How one attacker connection behaves.
#[derive(Clone, Debug)]
enum Attacker {
    /// Sends `head` at once, and then a byte at a time: the rest of the head or, if that is complete, the
    /// body.
    Drip { head: Vec<u8> },
    /// Sends this and then nothing.
    Hold { request: Arc<[u8]> },
    /// Sends this, reads the response, and pauses.
    Repeat { request: Arc<[u8]> },
}

fn start_attack(
    attackers: &mut JoinSet<()>,
    target: SocketAddr,
    gzip_request: &Arc<[u8]>,
    opened: &Arc<AtomicU64>,
) {
    let head = format!(
        "POST /in/{SOURCE} HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n\
         Content-Length: {DECLARED_BYTES}\r\n\r\n"
    );
    let declared: Arc<[u8]> = head.as_bytes().into();
    let partial: Arc<[u8]> = [head.as_bytes(), &vec![b'x'; PARTIAL_BODY_BYTES]].concat().into();
    let slow = (0..SLOW_SOCKETS).map(|number| {
        let sent = if number % 2 == 0 { head.as_str() } else { "POST /in/" };
        Attacker::Drip { head: sent.as_bytes().to_vec() }
    });
    let held = (0..DECLARED_SOCKETS).map(|number| Attacker::Hold {
        request: Arc::clone(if number % 2 == 0 { &declared } else { &partial }),
    });
    let repeated =
        (0..GZIP_CONNECTIONS).map(|_| Attacker::Repeat { request: Arc::clone(gzip_request) });
    for (number, attacker) in slow.chain(held).chain(repeated).enumerate() {
        let local = Ipv4Addr::new(127, 0, 0, 2 + (number % ADDRESSES) as u8);
        let opened = Arc::clone(opened);
        attackers.spawn(async move {
            loop {
                // The gateway closes attackers; they come back.
                let _closed = attacker.run(local, target, &opened).await;
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        });
    }
}

impl Attacker {
    /// Attacks until the connection is closed.
    async fn run(&self, local: Ipv4Addr, target: SocketAddr, opened: &AtomicU64) -> Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((local, 0).into())?;
        let mut stream = socket.connect(target).await?;
        opened.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Drip { head } => {
                stream.write_all(head).await?;
                loop {
                    tokio::select! {
                        closed = read_some(&mut stream) => return closed,
                        () = tokio::time::sleep(DRIP_INTERVAL) => stream.write_all(b"x").await?,
                    }
                }
            }
            Self::Hold { request } => {
                stream.write_all(request).await?;
                read_some(&mut stream).await
            }
            Self::Repeat { request } => loop {
                stream.write_all(request).await?;
                read_some(&mut stream).await?;
                tokio::time::sleep(GZIP_PAUSE).await;
            },
        }
    }
}

/// Waits for a response; fails if the connection is closed instead.
async fn read_some(stream: &mut TcpStream) -> Result<()> {
    let mut response = [0; 1024];
    ensure!(stream.read(&mut response).await? > 0, "closed");
    Ok(())
}

/// A request with a compressed body, just below what the gateway takes for a decompression bomb.
fn gzip_request() -> Result<Vec<u8>> {
    let mut plain = br#"{"pad":""#.to_vec();
    plain.resize(GZIP_PLAIN_BYTES, b'a');
    let mut state = 1_u32;
    plain.extend((0..GZIP_NOISE_BYTES).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 24) as u8 % 26
    }));
    plain.extend(br#""}"#);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&plain)?;
    let body = encoder.finish()?;
    let head = format!(
        "POST /in/{SOURCE} HTTP/1.1\r\nHost: attacked\r\nContent-Type: application/json\r\n\
         Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Ok([head.into_bytes(), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClockReading;
    use crate::latency::histogram;

    #[test]
    fn goodput_is_compared_with_the_baseline() {
        let load = |answered, failed| LoadResult {
            answered,
            failed,
            elapsed: Duration::from_secs(10),
            started: ClockReading::now(),
            latency: histogram(),
        };
        let sample = |answered, failed, rss_peak_bytes| AttackSample {
            small: load(answered, failed),
            large: load(50, 1),
            rss_peak_bytes: Some(rss_peak_bytes),
            attack_connections: 7,
        };
        let report = build_report(
            &[sample(4950, 0, 1), sample(4950, 0, 1)],
            &[sample(4450, 500, 100), sample(4450, 500, 1 << 40)],
        );
        assert_eq!(report.goodput_ratio, 0.9);
        assert!(report.goodput_met() && !report.memory_met());
        assert_eq!((report.with_attack.small_failed, report.with_attack.large_failed), (1000, 2));
        assert_eq!((report.rss_peak_bytes, report.attack_connections), (Some(1 << 40), 14));
    }

    #[test]
    fn gzip_body_is_small_and_not_a_decompression_bomb() {
        let bytes = gzip_request().unwrap().len();
        assert!((GZIP_PLAIN_BYTES / 100..200_000).contains(&bytes), "{bytes}");
    }
}
