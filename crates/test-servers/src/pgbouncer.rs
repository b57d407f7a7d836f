//! `PgBouncer` in transaction mode, which gives each transaction another connection.

use std::{
    fs,
    net::TcpStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{command, free_port, give_away, target};

/// More than a start takes on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Ends `PgBouncer` when this process has closed the pipe, at the latest with its own end.
const UNTIL_CLOSED: &str = r#""$1" "$2" & cat >/dev/null; kill $!"#;

/// A `PgBouncer` of its own in front of a server on this machine, whose user is `postgres`.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ended = self.process.wait();
    }
}

impl PgBouncer {
    pub fn start(server_port: u16) -> Self {
        let program = target().join("pgbouncer/pgbouncer");
        assert!(program.exists(), "PgBouncer is not installed; run scripts/setup pgbouncer");
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let settings = folder.path().join("pgbouncer.ini");
        // Servers in turns, so that transactions of one client get different connections.
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\nmax_client_conn = 500\n\
             default_pool_size = 12\nserver_round_robin = 1\n"
        );
        fs::write(&settings, text).unwrap();
        give_away(folder.path());
        let mut process = command("sh".as_ref());
        process.args(["-c", UNTIL_CLOSED, "pgbouncer"]);
        process.arg(program.canonicalize().unwrap()).arg(&settings).current_dir("/");
        let process = process.stdin(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < START_LIMIT, "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, port, _folder: folder }
    }

    /// The address, without a database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/", self.port)
    }
}
