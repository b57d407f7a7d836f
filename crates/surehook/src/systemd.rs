//! Notifications of systemd: `Type=notify` and the watchdog of packaging/surehook.service.
//!
//! Each message is one datagram to the socket in `NOTIFY_SOCKET`. Without that variable nothing is sent.

use std::{
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::settings::environment;

/// The connection to the service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    pub(crate) fn from_environment() -> Arc<Self> {
        let address = environment("NOTIFY_SOCKET").and_then(|name| parse_address(&name));
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        // The variables may be those of a parent process.
        let is_for_us = |pid: String| pid.parse() == Ok(std::process::id());
        let watchdog = environment("WATCHDOG_USEC")
            .filter(|_| environment("WATCHDOG_PID").is_none_or(is_for_us))
            .and_then(|micros| micros.parse().ok().map(Duration::from_micros))
            .filter(|interval| !interval.is_zero());
        Arc::new(Self { socket, watchdog })
    }

    /// The gateway takes requests, also after a reload.
    pub(crate) fn announce_ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    pub(crate) fn announce_reload(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    pub(crate) fn announce_stop(&self) {
        self.send("STOPPING=1\nSTATUS=Waiting for running requests and attempts");
    }

    /// Shows twice in each interval of the watchdog that tasks run.
    pub(crate) async fn feed_watchdog(self: Arc<Self>) {
        let Some(interval) = self.watchdog else { return };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(interval / 2).await;
        }
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(message.as_bytes(), address)
        {
            tracing::warn!(%error, "could not notify the service manager");
        }
    }
}

/// A path, or with `@` a name in the abstract namespace.
fn parse_address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(Path::new(name)).ok(),
    }
}
