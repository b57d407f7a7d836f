//! The PostgreSQL server of a test run, shared by the processes of all tests.
//!
//! The first test that needs it starts it in a temporary folder. A watchdog stops it when no test uses it
//! any more: each test holds a shared lock on a file as long as its process lives.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::getuid,
};

/// Set to `1` in the environment, tests whose server is missing are skipped instead of failing.
const ALLOW_SKIPPED: &str = "SUREHOOK_ALLOW_SKIPPED";
/// PostgreSQL refuses to run as root; every system has this unprivileged user.
const UNPRIVILEGED: u32 = 65_534;
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

/// The URL of the server, without a database; `None` if the tests are to be skipped.
pub(crate) fn url() -> Option<&'static str> {
    SERVER.get_or_init(use_server).as_ref().map(|server| server.url.as_str())
}

fn use_server() -> Option<SharedServer> {
    let programs = find_programs()?;
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postgres");
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

/// The folder of the programs that `scripts/setup` linked below `target/`.
#[expect(clippy::print_stderr, reason = "the output of a test run shows what was skipped")]
fn find_programs() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let initdb = target.join("postgres/initdb");
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

fn port_of(url: &str) -> Option<u16> {
    url.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

fn answers(url: &str) -> bool {
    port_of(url).is_some_and(|port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if getuid().is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command
}

#[expect(clippy::zombie_processes, reason = "the watchdog stops the server, and then itself")]
fn start(programs: &Path, shared: &Path) -> String {
    let folder = tempfile::tempdir().unwrap().keep();
    if getuid().is_root() {
        chown(&folder, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
    let status = command(&programs.join("initdb"))
        .current_dir(&folder)
        .args(["-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8"])
        .args(["--locale=C", "--no-sync", "--no-instructions"])
        .status()
        .unwrap();
    assert!(status.success(), "initdb failed: {status}");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
