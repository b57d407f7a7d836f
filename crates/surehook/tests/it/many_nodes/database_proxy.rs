//! A TCP proxy between a node and its database, that makes the way slow or cuts it in the middle of a commit.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// What happens to the next commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitCut {
    /// The server never sees it.
    Before,
    /// The server commits, and the answer is lost.
    After,
}

#[derive(Debug)]
struct ProxyState {
    target: AtomicU16,
    delay_ms: AtomicU64,
    cut: Mutex<CommitCut>,
    /// Commits that are still to be cut.
    cuts: AtomicU32,
}

/// A proxy on a free port. Stops when dropped.
#[derive(Debug)]
pub(super) struct DatabaseProxy {
    port: u16,
    state: Arc<ProxyState>,
    accepting: JoinHandle<()>,
}

impl DatabaseProxy {
    pub(super) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(ProxyState {
            target: AtomicU16::new(target),
            delay_ms: AtomicU64::new(0),
            cut: Mutex::new(CommitCut::Before),
            cuts: AtomicU32::new(0),
        });
        let accepted = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&accepted);
                // The server may be down: then the client sees a closed connection.
                tokio::spawn(async move { forward(client, &state).await });
            }
        });
        Self { port, state, accepting }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Leads new connections to another server.
    pub(super) fn set_target(&self, port: u16) {
        self.state.target.store(port, Ordering::SeqCst);
    }

    /// Makes each answer take longer.
    pub(super) fn set_delay(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.state.delay_ms.store(delay, Ordering::SeqCst);
    }

    /// Cuts the connections of this many commits.
    pub(super) fn cut_commits(&self, cut: CommitCut, count: u32) {
        *self.state.cut.lock().unwrap() = cut;
        self.state.cuts.store(count, Ordering::SeqCst);
    }

    /// Commits that are still to be cut.
    pub(super) fn cuts_left(&self) -> u32 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for DatabaseProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(client: TcpStream, state: &Arc<ProxyState>) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", state.target.load(Ordering::SeqCst))).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Either end closes both.
    tokio::select! {
        ended = send_requests(from_client, to_server, state) => ended,
        ended = send_answers(from_server, to_client, state) => ended,
    }
}

async fn send_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &ProxyState,
) -> io::Result<()> {
    const COMMIT: &[u8] = b"COMMIT\0";
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let bytes = &buffer[..length];
        let is_commit = bytes.windows(COMMIT.len()).any(|part| part == COMMIT);
        let left = |cuts: u32| cuts.checked_sub(1);
        if is_commit && state.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            let cut = *state.cut.lock().unwrap();
            if cut == CommitCut::After {
                to.write_all(bytes).await?;
                // The server reads what was written before the end.
                to.shutdown().await?;
            }
            return Ok(());
        }
        to.write_all(bytes).await?;
    }
}

async fn send_answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &ProxyState,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let delay = state.delay_ms.load(Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}
