//! Several processes on one backend: who wins, and what follows when the winner is killed.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use surehook_test_servers::TestPostgres;

use super::support::redis_server::TestRedis;

const PROCESSES: usize = 8;
const ROUNDS: usize = 200;
/// Kills of a winner, unless `SUREHOOK_DRILL_CASES` says how many.
const KILLS: usize = 4;

/// An example, which cargo builds along with the tests.
fn example_program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "build it with: cargo build -p surehook-dedup --all-features --examples"
    );
    path
}

/// A worker process. Killed when dropped.
struct WorkerProcess {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl WorkerProcess {
    fn start(address: &str) -> Self {
        let mut child = Command::new(example_program("claim_worker"))
            .arg(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn receive(&mut self) -> Vec<String> {
        let line = self.output.next().expect("the worker runs").unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn ask(&mut self, line: &str) -> Vec<String> {
        self.send(line);
        self.receive()
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn start_workers(address: &str) -> Vec<WorkerProcess> {
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| WorkerProcess::start(address)).collect();
    for worker in &mut workers {
        assert_eq!(worker.receive(), ["ready"]);
    }
    workers
}

fn is_grant(answer: &[String]) -> bool {
    answer[0] == "claimed" || answer[0] == "resumed"
}

/// The process that won a race, and what it was answered.
struct RaceWinner {
    index: usize,
    answer: Vec<String>,
}

/// All processes claim the same key; exactly one gets it.
fn race(workers: &mut [WorkerProcess], key: &str, lease_ms: u32) -> RaceWinner {
    let line = format!("claim {key} {lease_ms}");
    workers.iter_mut().for_each(|worker| worker.send(&line));
    let answers: Vec<_> = workers.iter_mut().map(WorkerProcess::receive).collect();
    let winners: Vec<_> = (0..answers.len()).filter(|index| is_grant(&answers[*index])).collect();
    let [winner] = winners[..] else { panic!("{key}: {answers:?}") };
    for (index, answer) in answers.iter().enumerate() {
        assert!(index == winner || answer[0] == "in_progress", "{key}: {answers:?}");
    }
    RaceWinner { index: winner, answer: answers[winner].clone() }
}

fn check_races(address: &str) {
    let mut workers = start_workers(address);
    let mut wins = [0; PROCESSES];
    for round in 0..ROUNDS {
        wins[race(&mut workers, &format!("race-{round}"), 600_000).index] += 1;
    }
    assert!(wins.iter().filter(|wins| **wins > 0).count() > 1, "no race took place: {wins:?}");
}

fn check_kills(address: &str) {
    let kills = std::env::var_os("SUREHOOK_DRILL_CASES")
        .map_or(KILLS, |cases| cases.to_str().unwrap().parse().unwrap());
    let mut workers = start_workers(address);
    for round in 0..kills {
        let key = format!("killed-{round}");
        let winner = race(&mut workers, &key, 300);
        let claimed = winner.answer;
        workers[winner.index].kill();
        workers[winner.index] = WorkerProcess::start(address);
        assert_eq!(workers[winner.index].receive(), ["ready"]);
        // A retry waits for the time it gets, and is then processed by one of the others.
        let resumed = loop {
            let worker = &mut workers[round % PROCESSES];
            let answer = worker.ask(&format!("claim {key} 600000"));
            match answer[0].as_str() {
                "in_progress" => {
                    thread::sleep(Duration::from_millis(answer[1].parse().unwrap()));
                }
                _ => break answer,
            }
        };
        assert_eq!(resumed[0], "resumed", "{resumed:?}");
        assert_eq!(resumed[3], claimed[3], "the operation continues");
        let fence = |answer: &[String]| answer[2].parse::<u64>().unwrap();
        assert!(fence(&resumed) > fence(&claimed));
        // The killed holder would be refused, were it alive.
        let stale = workers[0].ask(&format!("complete {key} {} stale", claimed[1]));
        assert_eq!(stale, ["stale_token"]);
        let applied = workers[1].ask(&format!("complete {key} {} done-{round}", resumed[1]));
        assert_eq!(applied, ["applied"]);
        for worker in &mut workers {
            let answer = worker.ask(&format!("claim {key} 600000"));
            assert_eq!(answer, ["completed".to_owned(), format!("done-{round}")]);
        }
    }
}

#[test]
fn example_handler_creates_one_order_per_message() {
    let output = Command::new(example_program("idempotent_handler")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("3 orders for 6 deliveries"), "{text}");
}

#[test]
fn heavy_processes_on_one_sqlite_file_have_one_winner_and_survive_its_kill() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("dedup.db").display());
    check_races(&address);
    check_kills(&address);
}

#[tokio::test]
async fn heavy_processes_on_one_postgres_have_one_winner_and_survive_its_kill() {
    let Some(server) = TestPostgres::start().await else { return };
    check_races(&server.url());
    check_kills(&server.url());
}

#[tokio::test]
async fn heavy_processes_on_one_redis_have_one_winner_and_survive_its_kill() {
    let Some(server) = TestRedis::start(&[]).await else { return };
    check_races(&server.url());
    check_kills(&server.url());
}
