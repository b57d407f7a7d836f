//! PostgreSQL servers for tests, from the programs that `scripts/setup` has linked: [`shared_url`] is one for
//! all tests of a run, [`TestPostgres`] one of its own for a test that stops, kills or promotes it, and
//! [`PgBouncer`] a pooler in front of one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod own;
mod pgbouncer;
mod shared;

use std::{
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::getuid;

pub use tokio_postgres::Client as DatabaseClient;

pub use self::{
    own::{TestPostgres, connect},
    pgbouncer::PgBouncer,
    shared::shared_url,
};

/// Set to `1` in the environment, tests whose server is missing are skipped instead of failing.
const ALLOW_SKIPPED: &str = "SUREHOOK_ALLOW_SKIPPED";
/// PostgreSQL refuses to run as root; every system has this unprivileged user.
const UNPRIVILEGED: u32 = 65_534;

/// The target folder of cargo: test programs are in `target/debug/deps`.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// The folder of the programs of PostgreSQL; `None` if the tests are to be skipped.
#[track_caller]
#[expect(clippy::print_stderr, reason = "the output of a test run shows what was skipped")]
pub fn find_programs() -> Option<PathBuf> {
    let initdb = target().join("postgres/initdb");
    if initdb.exists() {
        // The unprivileged user may not be allowed to look into the folder of the links.
        return Some(initdb.canonicalize().unwrap().parent().unwrap().to_owned());
    }
    let is_skip_allowed = std::env::var_os(ALLOW_SKIPPED).is_some_and(|value| value == "1");
    assert!(
        is_skip_allowed,
        "postgres is not installed; run scripts/setup postgres, or set {ALLOW_SKIPPED}=1 to skip"
    );
    eprintln!("skipped: postgres is not installed; run scripts/setup postgres");
    None
}

/// A program that runs as an unprivileged user, in a process group of its own: Ctrl-C is for the tests.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if getuid().is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

/// Makes the user of the server the owner.
fn give_away(path: &Path) {
    if getuid().is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
}

/// Creates a server's files in the folder `data`.
fn run_initdb(programs: &Path, folder: &Path) {
    let status = command(&programs.join("initdb"))
        .current_dir(folder)
        .args(["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"])
        .args(["--locale=C", "--no-sync", "--no-instructions"])
        .status()
        .unwrap();
    assert!(status.success(), "initdb failed: {status}");
}

/// A port below 32,768 that nothing listens on: the system does not hand those out, so it stays free while
/// the server is stopped.
fn free_port() -> u16 {
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 7 + 100 * SEARCHES.fetch_add(1, Ordering::Relaxed);
    (0..22_000)
        .map(|next| 10_240 + u16::try_from((first + next) % 22_000).unwrap())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("all ports are taken")
}
