//! Damaged, incomplete and removed files: every start serves all acknowledged events or refuses.
//!
//! The two drills damage folders at random. A failed case names its seed; `SUREHOOK_DRILL_SEED` runs
//! it alone. `scripts/damage-drill` runs 200 cases of each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use serde_json::Value;

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::Gateway,
    process::{CommandOutput, run_surehook},
};

/// An event that was answered with 200.
#[derive(Clone, Debug)]
struct AcknowledgedEvent {
    id: String,
    body: Vec<u8>,
}

fn data(gateway: &Gateway) -> PathBuf {
    gateway.folder().join("data")
}

fn database(gateway: &Gateway) -> PathBuf {
    data(gateway).join("surehook.db")
}

fn log(gateway: &Gateway) -> PathBuf {
    data(gateway).join("surehook.db-wal")
}

/// A reader that keeps everything after it in the log: the log is not copied beyond its snapshot.
struct LogHolder(Connection);

impl LogHolder {
    fn start(gateway: &Gateway) -> Self {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reader = Connection::open_with_flags(database(gateway), flags).unwrap();
        reader.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM sources").unwrap();
        Self(reader)
    }

    fn kill(self, gateway: &mut Gateway) {
        gateway.kill9();
        self.0.close().unwrap();
    }
}

fn bytes_in(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

async fn send(gateway: &Gateway, numbers: std::ops::Range<usize>) -> Vec<AcknowledgedEvent> {
    let mut acknowledged = Vec::new();
    for number in numbers {
        let body = body(number, 64);
        let id = gateway.post_accepted("demo", body.clone()).await;
        acknowledged.push(AcknowledgedEvent { id, body });
    }
    acknowledged
}

fn body(number: usize, bytes: usize) -> Vec<u8> {
    let text: String = "0123456789abcdef".chars().cycle().take(bytes).collect();
    format!("{{\"id\":\"{number}\",\"text\":\"{text}\"}}").into_bytes()
}

/// Describes an acknowledged event that the gateway does not serve as it was sent, without an error.
async fn find_silent_loss(gateway: &Gateway, events: &[AcknowledgedEvent]) -> Option<String> {
    for event in events {
        let found = gateway.get(&format!("/events/{}", event.id)).await;
        if found.status != 200 {
            return Some(format!("event {} is answered with {}", event.id, found.status));
        }
        let body = gateway.get(&format!("/events/{}/body?exact=true", event.id)).await;
        // A damaged body that is reported as such is not a silent loss.
        let is_reported = body.status == 500 && body.text().contains("body_damaged");
        if !is_reported && (body.status != 200 || body.body != event.body) {
            return Some(format!("the body of {} differs: {}", event.id, body.status));
        }
    }
    None
}

#[track_caller]
fn assert_refused(refused: &CommandOutput, sentence: &str) {
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains(sentence), "{refused:?}");
    assert!(refused.stderr.contains("surehook restore"), "{refused:?}");
}

async fn restart_refused(gateway: &mut Gateway, sentence: &str) {
    let refused = gateway.try_restart().await.expect_err("the gateway starts on damaged files");
    assert_refused(&refused, sentence);
    assert!(refused.stderr.contains("doctor --repair"), "{refused:?}");
}

#[tokio::test]
async fn flipped_bit_in_the_log_is_refused_until_the_loss_is_accepted() {
    let mut gateway = Gateway::start().await;
    let first = send(&gateway, 0..5).await;
    let holder = LogHolder::start(&gateway);
    send(&gateway, 5..30).await;
    holder.kill(&mut gateway);
    let mut bytes = fs::read(log(&gateway)).unwrap();
    let place = WAL_HEADER + FRAME * (valid_frames(&bytes) * 2 / 3) + 100;
    bytes[place] ^= 1;
    fs::write(log(&gateway), &bytes).unwrap();

    restart_refused(&mut gateway, "acknowledged commits are missing").await;
    // A refused start changes nothing, so that a second one cannot be fooled.
    restart_refused(&mut gateway, "acknowledged commits are missing").await;
    assert_eq!(fs::read(log(&gateway)).unwrap(), bytes);
    let found = run_surehook(gateway.folder(), &["doctor"], &[]).await;
    assert_eq!(found.code, Some(8), "{found:?}");
    assert!(found.stdout.contains("acknowledged commits are missing"), "{found:?}");
    let copy = run_surehook(gateway.folder(), &["backup", "copy.db"], &[]).await;
    assert!(copy.stderr.contains("acknowledged commits are missing"), "{copy:?}");

    let repair = ["doctor", "--repair", "--json"];
    let repaired = run_surehook(gateway.folder(), &repair, &[]).await;
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    let repaired: Value = serde_json::from_str(&repaired.stdout).unwrap();
    assert!(repaired["missing_commits"].as_u64().unwrap() >= 5, "{repaired}");
    let kept = gateway.folder().join(repaired["set_aside"].as_str().unwrap());
    assert_eq!(fs::read(kept.join("surehook.db-wal")).unwrap(), bytes);
    gateway.restart().await;
    assert_eq!(find_silent_loss(&gateway, &first).await, None);
    // The new epoch is protected as well.
    let holder = LogHolder::start(&gateway);
    send(&gateway, 30..40).await;
    holder.kill(&mut gateway);
    fs::remove_file(log(&gateway)).unwrap();
    restart_refused(&mut gateway, "acknowledged commits are missing").await;
}

#[tokio::test]
async fn incomplete_files_are_refused_after_kill() {
    type Damage = fn(&Gateway);
    let missing = "acknowledged commits are missing";
    let cases: [(&str, Damage, &str); 6] = [
        ("log removed", |gateway| fs::remove_file(log(gateway)).unwrap(), missing),
        ("log truncated", |gateway| truncate(&log(gateway), 2, 3), missing),
        ("log empty", |gateway| truncate(&log(gateway), 0, 1), missing),
        ("page of the log zeroed", |gateway| zero_page(&log(gateway), 3), missing),
        ("database removed", |gateway| fs::remove_file(database(gateway)).unwrap(), "is missing"),
        ("database empty", |gateway| truncate(&database(gateway), 0, 1), "is missing"),
    ];
    let mut gateway = Gateway::start().await;
    let holder = LogHolder::start(&gateway);
    let events = send(&gateway, 0..20).await;
    holder.kill(&mut gateway);
    let image = tempfile::tempdir().unwrap();
    copy_files(&data(&gateway), image.path());
    for (case, damage, sentence) in cases {
        damage(&gateway);
        let refused = gateway.try_restart().await.expect_err(case);
        assert_refused(&refused, sentence);
        copy_files(image.path(), &data(&gateway));
    }
    // The original files are accepted again.
    gateway.restart().await;
    assert_eq!(find_silent_loss(&gateway, &events).await, None);
}

fn copy_files(from: &Path, to: &Path) {
    for name in ["surehook.db", "surehook.db-wal", "commit-mark", "secret.key"] {
        match fs::copy(from.join(name), to.join(name)) {
            Ok(_) => {}
            Err(_) => drop(fs::remove_file(to.join(name))),
        }
    }
}

/// Shortens a file to a fraction of its length.
fn truncate(path: &Path, numerator: u64, denominator: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes_in(path) * numerator / denominator).unwrap();
}

const PAGE: usize = 8192;
const WAL_HEADER: usize = 32;
const FRAME: usize = 24 + PAGE;

/// Frames of the log since it was last started again: those with the salts of its header.
fn valid_frames(log: &[u8]) -> usize {
    let salts = &log[16..24];
    log[WAL_HEADER..].chunks_exact(FRAME).take_while(|frame| &frame[8..16] == salts).count()
}

fn zero_page(path: &Path, page: usize) {
    let mut bytes = fs::read(path).unwrap();
    let from = (page * PAGE).min(bytes.len());
    let to = (from + PAGE).min(bytes.len());
    bytes[from..to].fill(0);
    fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn database_file_alone_is_complete_after_clean_stop() {
    let mut gateway = Gateway::start().await;
    let events = send(&gateway, 0..20).await;
    assert!(gateway.terminate().await.success());
    assert_eq!(bytes_in(&log(&gateway)), 0, "the log is copied into the database");

    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("data")).unwrap();
    for name in ["surehook.db", "secret.key"] {
        fs::copy(data(&gateway).join(name), other.path().join("data").join(name)).unwrap();
    }
    let copy = Gateway::builder().start_in(other).await;
    assert_eq!(find_silent_loss(&copy, &events).await, None);

    fs::remove_file(database(&gateway)).unwrap();
    restart_refused(&mut gateway, "is missing").await;
}

#[tokio::test]
async fn log_is_copied_while_the_gateway_runs() {
    let mut gateway = Gateway::start().await;
    let events = send(&gateway, 0..20).await;
    // The log is copied after some seconds; a copy of the database alone then has the events.
    let folder = gateway.folder().to_owned();
    eventually(WAIT_LIMIT, || async {
        let bytes = fs::read(folder.join("data/surehook.db")).unwrap();
        let last = &events[19].body;
        bytes.windows(last.len()).any(|window| window == last).then_some(())
    })
    .await;
    gateway.kill9();
    gateway.restart().await;
    assert_eq!(find_silent_loss(&gateway, &events).await, None);
}

#[tokio::test]
async fn healthy_database_starts_with_a_missing_or_damaged_mark() {
    let mut gateway = Gateway::start().await;
    let events = send(&gateway, 0..10).await;
    let mark = data(&gateway).join("commit-mark");
    for content in [None, Some(vec![0; 8192]), Some(b"text".to_vec())] {
        gateway.kill9();
        match content {
            None => fs::remove_file(&mark).unwrap(),
            Some(content) => fs::write(&mark, content).unwrap(),
        }
        gateway.restart().await;
        assert_eq!(find_silent_loss(&gateway, &events).await, None);
    }
    // It was created again.
    let holder = LogHolder::start(&gateway);
    send(&gateway, 10..20).await;
    holder.kill(&mut gateway);
    fs::remove_file(log(&gateway)).unwrap();
    restart_refused(&mut gateway, "acknowledged commits are missing").await;
}

#[tokio::test]
async fn database_of_another_folder_is_refused() {
    let mut gateway = Gateway::start().await;
    send(&gateway, 0..5).await;
    assert!(gateway.terminate().await.success());
    let mut other = Gateway::start().await;
    send(&other, 0..50).await;
    assert!(other.terminate().await.success());
    fs::copy(database(&other), database(&gateway)).unwrap();

    restart_refused(&mut gateway, "is not the database").await;
}

/// Removes or replaces files of a running gateway.
#[derive(Clone, Copy, Debug)]
enum LiveDamage {
    RemoveDatabase,
    RemoveLog,
    MoveDatabase,
    ReplaceDatabase,
    RemoveAll,
    MoveFolder,
}

const LIVE_DAMAGES: [LiveDamage; 6] = [
    LiveDamage::RemoveDatabase,
    LiveDamage::RemoveLog,
    LiveDamage::MoveDatabase,
    LiveDamage::ReplaceDatabase,
    LiveDamage::RemoveAll,
    LiveDamage::MoveFolder,
];

impl LiveDamage {
    fn apply(self, gateway: &Gateway) {
        let data = data(gateway);
        match self {
            Self::RemoveDatabase => fs::remove_file(database(gateway)).unwrap(),
            Self::RemoveLog => fs::remove_file(log(gateway)).unwrap(),
            Self::MoveDatabase => fs::rename(database(gateway), data.join("moved")).unwrap(),
            Self::ReplaceDatabase => {
                fs::copy(database(gateway), data.join("other")).unwrap();
                fs::rename(data.join("other"), database(gateway)).unwrap();
            }
            Self::RemoveAll => fs::remove_dir_all(data).unwrap(),
            Self::MoveFolder => fs::rename(data, gateway.folder().join("elsewhere")).unwrap(),
        }
    }
}

/// Damages a running gateway, sends until it ends, and restores the copy that it has made. Returns
/// what is missing then.
async fn run_live_damage(
    gateway: &mut Gateway,
    damage: LiveDamage,
    mut events: Vec<AcknowledgedEvent>,
) -> Option<String> {
    damage.apply(gateway);
    for number in 100_000.. {
        let body = body(number, 64);
        match gateway.try_send_webhook("demo", body.clone()).await {
            Some(answer) if answer.status == 200 => {
                events.push(AcknowledgedEvent { id: answer.event_id(), body });
            }
            Some(answer) => {
                assert_eq!(answer.status, 503, "{}", answer.text());
                break;
            }
            None => break,
        }
    }
    let exit = gateway.wait_for_exit().await;
    assert_eq!(exit.code(), Some(70), "{}", gateway.log());
    let stderr = gateway.log();
    let rescued = stderr.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once("everything acknowledged is in ")?;
        rest.split_once(": restore").map(|(file, _)| file.to_owned())
    });
    let rescued = rescued.unwrap_or_else(|| panic!("no rescued file is named: {stderr}"));
    // What is left is refused, even an empty folder, unless it holds everything.
    if let Err(refused) = gateway.try_restart().await {
        assert_refused(&refused, &rescued);
        let restore = ["restore", &rescued, "--data", "data", "--force"];
        let restored = run_surehook(gateway.folder(), &restore, &[]).await;
        assert_eq!(restored.code, Some(0), "{restored:?}");
        gateway.restart().await;
    }
    find_silent_loss(gateway, &events).await
}

#[tokio::test]
async fn files_lost_while_running_are_rescued_with_everything_acknowledged() {
    for damage in LIVE_DAMAGES {
        let mut gateway = Gateway::start().await;
        let events = send(&gateway, 0..10).await;
        let loss = run_live_damage(&mut gateway, damage, events).await;
        assert_eq!(loss, None, "{damage:?}");
    }
}

/// Random numbers from a seed (splitmix64), so that a failed case can be repeated.
struct SeededRng(u64);

impl SeededRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }
}

/// The seeds to run: as many as `SUREHOOK_DRILL_CASES` says, or the one of `SUREHOOK_DRILL_SEED`.
fn drill_seeds(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u64>().ok();
    match number("SUREHOOK_DRILL_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("SUREHOOK_DRILL_CASES").unwrap_or(default)).collect(),
    }
}

/// A gateway with events of random sizes in its database and its log.
async fn start_random(rng: &mut SeededRng) -> (Gateway, Vec<AcknowledgedEvent>) {
    let mut gateway = Gateway::start().await;
    let mut events = Vec::new();
    for _ in 0..=rng.below(3) {
        for _ in 0..4 + rng.below(16) {
            let bytes = if rng.below(4) == 0 { rng.below(30_000) } else { rng.below(500) };
            let body = body(events.len(), bytes);
            let id = gateway.post_accepted("demo", body.clone()).await;
            events.push(AcknowledgedEvent { id, body });
        }
        if rng.below(2) == 0 {
            // Moves everything into the database.
            assert!(gateway.terminate().await.success());
            gateway.restart().await;
        }
    }
    (gateway, events)
}

/// Damages one file of a stopped gateway; returns a description.
fn damage_at_random(gateway: &Gateway, rng: &mut SeededRng) -> String {
    let has_log = bytes_in(&log(gateway)) > 0;
    let path = if has_log && rng.below(3) > 0 { log(gateway) } else { database(gateway) };
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut bytes = fs::read(&path).unwrap();
    match rng.below(8) {
        0 => {
            fs::remove_file(&path).unwrap();
            format!("removed {name}")
        }
        1 => {
            let left = rng.below(bytes.len());
            bytes.truncate(left);
            fs::write(&path, bytes).unwrap();
            format!("truncated {name} to {left}")
        }
        2 | 3 => {
            let page = rng.below(bytes.len() / PAGE);
            zero_page(&path, page);
            format!("zeroed page {page} of {name}")
        }
        _ => {
            let mut places = Vec::new();
            for _ in 0..=rng.below(3) {
                let bit = rng.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                places.push(bit);
            }
            fs::write(&path, bytes).unwrap();
            format!("flipped bits {places:?} of {name}")
        }
    }
}

/// How a case of the drill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrillOutcome {
    Served,
    Refused,
    Rescued,
}

async fn run_damage_case(seed: u64) -> DrillOutcome {
    let mut rng = SeededRng(seed);
    let (mut gateway, events) = start_random(&mut rng).await;
    if rng.below(8) == 0 {
        let damage = LIVE_DAMAGES[rng.below(LIVE_DAMAGES.len())];
        let loss = run_live_damage(&mut gateway, damage, events).await;
        assert_eq!(loss, None, "seed {seed}: {damage:?}");
        return DrillOutcome::Rescued;
    }
    if rng.below(2) == 0 {
        gateway.kill9();
    } else {
        assert!(gateway.terminate().await.success());
    }
    let damage = damage_at_random(&gateway, &mut rng);
    match gateway.try_restart().await {
        Ok(()) => {
            let loss = find_silent_loss(&gateway, &events).await;
            assert_eq!(loss, None, "seed {seed}: {damage}");
            DrillOutcome::Served
        }
        Err(refused) => {
            let is_explained =
                refused.code == Some(78) && refused.stderr.contains("doctor --repair");
            assert!(is_explained, "seed {seed}: {damage}: {refused:?}");
            DrillOutcome::Refused
        }
    }
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "the figures of the drill")]
async fn heavy_random_damage_is_never_a_silent_loss() {
    let mut outcomes = Vec::new();
    for seed in drill_seeds(24) {
        outcomes.push(run_damage_case(seed).await);
    }
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    eprintln!(
        "{} damages: {} refused, {} served completely, {} rescued, 0 silent losses",
        outcomes.len(),
        count(DrillOutcome::Refused),
        count(DrillOutcome::Served),
        count(DrillOutcome::Rescued)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "the figures of the drill")]
async fn heavy_undamaged_folder_is_never_refused_after_kill() {
    let seeds = drill_seeds(12);
    for seed in &seeds {
        let mut rng = SeededRng(*seed);
        let (mut gateway, mut events) = start_random(&mut rng).await;
        // Killed while requests are being committed.
        let wanted = rng.below(60);
        let (acknowledged, mut received) = tokio::sync::mpsc::unbounded_channel();
        let url = gateway.url("/in/demo");
        let senders = (0..4).map(|sender| {
            let (acknowledged, url) = (acknowledged.clone(), url.clone());
            tokio::spawn(async move {
                let client = crate::support::client::Client::new();
                for number in 0.. {
                    let body = body(1_000_000 * (sender + 1) + number, 100);
                    let answer = client.send(http::Method::POST, &url, &[], body.clone()).await;
                    let Ok(answer) = answer else { return };
                    let id = answer.expect(200).event_id();
                    if acknowledged.send(AcknowledgedEvent { id, body }).is_err() {
                        return;
                    }
                }
            })
        });
        let senders: Vec<_> = senders.collect();
        drop(acknowledged);
        for _ in 0..wanted {
            events.push(received.recv().await.unwrap());
        }
        gateway.kill9();
        while let Some(event) = received.recv().await {
            events.push(event);
        }
        for sender in senders {
            sender.await.unwrap();
        }
        if let Err(refused) = gateway.try_restart().await {
            panic!("seed {seed}: refused an undamaged folder: {refused:?}");
        }
        assert_eq!(find_silent_loss(&gateway, &events).await, None, "seed {seed}");
    }
    eprintln!("{} undamaged folders after kill -9: 0 refused", seeds.len());
}
