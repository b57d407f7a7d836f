//! The PostgreSQL server of a test run, shared by the processes of all tests.
//!
//! The first test that needs it starts it in a temporary folder. A watchdog stops it when no test uses it
//! any more: each test holds a shared lock on a file as long as its process lives.

use std::{
    fs::{self, File},
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use crate::{command, find_programs, free_port, give_away, run_initdb, target};

/// More than a start takes on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Stops the server and removes its folder when it can lock the file of the users alone. The lock of the
/// start keeps a test from using a server that is being stopped.
const WATCHDOG: &str = r#"
    while sleep 3; do
        flock "$1/start.lock" sh -c '
            flock -n "$1/users.lock" true || exit 1
            rm -f "$1/url"; kill -QUIT "$2"; rm -rf "$3"' sh "$1" "$2" "$3" && exit
    done"#;

/// The server, in use by this process.
struct SharedServer {
    url: String,
    _user: File,
}

static SERVER: OnceLock<Option<SharedServer>> = OnceLock::new();

/// The URL of the server, without a database; `None` if the tests are to be skipped. It syncs nothing: tests
/// that need a server as in production start their own.
pub fn shared_url() -> Option<&'static str> {
    SERVER.get_or_init(use_server).as_ref().map(|server| server.url.as_str())
}

fn use_server() -> Option<SharedServer> {
    let programs = find_programs()?;
    let shared = target().join("tmp/postgres");
    fs::create_dir_all(&shared).unwrap();
    let starting = File::create(shared.join("start.lock")).unwrap();
    flock(&starting, FlockOperation::LockExclusive).unwrap();
    let user = File::create(shared.join("users.lock")).unwrap();
    flock(&user, FlockOperation::LockShared).unwrap();
    let url = match fs::read_to_string(shared.join("url")) {
        Ok(url) if answers(&url) => url,
        Ok(_) | Err(_) => start(&programs, &shared),
    };
    Some(SharedServer { url, _user: user })
}

fn port_of(url: &str) -> Option<u16> {
    url.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

fn answers(url: &str) -> bool {
    port_of(url).is_some_and(|port| TcpStream::connect(("127.0.0.1", port)).is_ok())
}

#[expect(clippy::zombie_processes, reason = "the watchdog stops the server, and then itself")]
fn start(programs: &Path, shared: &Path) -> String {
    let folder = tempfile::tempdir().unwrap().keep();
    give_away(&folder);
    run_initdb(programs, &folder);
    let port = free_port();
    // Without syncs: the processes of a test die, not the machine.
    let server = command(&programs.join("postgres"))
        .current_dir(&folder)
        .args(["-D", "data", "-F", "-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
        .args(["-c", "max_connections=300", "-c", "full_page_writes=off", "-c", "autovacuum=off"])
        .args(["-c", "synchronous_commit=off", "-c", "max_locks_per_transaction=256"])
        .spawn()
        .unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{port}/");
    let started = Instant::now();
    // The last line of the file is the state of the server.
    let is_ready = || {
        let state = fs::read_to_string(folder.join("data/postmaster.pid"));
        state.is_ok_and(|state| state.lines().last().is_some_and(|last| last.trim() == "ready"))
    };
    while !is_ready() {
        assert!(started.elapsed() < START_LIMIT, "PostgreSQL does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("sh")
        .args(["-c", WATCHDOG, "watchdog"])
        .args([shared.as_os_str(), server.id().to_string().as_ref(), folder.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    fs::write(shared.join("url"), &url).unwrap();
    url
}
