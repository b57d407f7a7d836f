//! The servers of one benchmark run: each in its own process, all under one temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::gateway::{Gateway, GatewayConfig};
use crate::load::{LoadPlan, StopCondition};
use crate::load::{LoadResult, generate_load};
use crate::options::BenchOptions;
use crate::progress::ProgressDisplay;
use crate::server_process::{ServerProcess, free_addr};
use crate::sink::SinkMode;
use crate::sink_process::SinkProcess;

/// A bare server is ready in milliseconds; later than this means that it failed.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Options, progress display and folder of one run. Drop all servers before it: dropping it removes
/// their folders.
#[derive(Debug)]
pub(crate) struct BenchRun {
    pub(crate) options: BenchOptions,
    pub(crate) progress: ProgressDisplay,
    folder: TempDir,
    server_count: AtomicU64,
}

impl BenchRun {
    pub(crate) fn open(options: BenchOptions) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("surehook-bench-");
        let folder = match &options.folder {
            Some(parent) => builder
                .tempdir_in(parent)
                .with_context(|| format!("cannot create a folder in {}", parent.display()))?,
            None => builder.tempdir().context("cannot create a temporary folder")?,
        };
        Ok(Self {
            options,
            progress: ProgressDisplay::start(),
            folder,
            server_count: AtomicU64::new(0),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the bare server whose rate is the limit.
    pub(crate) async fn start_limit_server(&self) -> Result<ServerProcess> {
        let addr = free_addr()?;
        let mut command = Command::new(&self.options.exe);
        command.arg("bench-limit").arg("--listen").arg(addr.to_string());
        let mut child =
            ServerProcess::start("limit server", &mut command, addr, &self.new_path("limit.log"))?;
        child.wait_until_ready("/", START_TIMEOUT).await?;
        Ok(child)
    }

    /// Starts a sink as a destination.
    pub(crate) async fn start_sink(&self, mode: SinkMode) -> Result<SinkProcess> {
        let addr = free_addr()?;
        let mut command = Command::new(&self.options.exe);
        command.arg("bench-sink").arg("--listen").arg(addr.to_string());
        match mode {
            SinkMode::Answer => {}
            SinkMode::Hang | SinkMode::Refuse => {
                command.arg("--mode").arg(mode.name());
            }
        }
        let mut child =
            ServerProcess::start("sink", &mut command, addr, &self.new_path("sink.log"))?;
        child.wait_until_ready("/count", START_TIMEOUT).await?;
        Ok(SinkProcess::new(child))
    }

    /// Starts a gateway with an empty store.
    pub(crate) async fn start_gateway(&self, config: &GatewayConfig) -> Result<Gateway> {
        Gateway::start(&self.options.exe, self.new_path("gateway"), config).await
    }

    fn new_path(&self, name: &str) -> PathBuf {
        let number = self.server_count.fetch_add(1, Ordering::Relaxed);
        self.folder().join(format!("{number:03}-{name}"))
    }

    /// A closed loop of new keys to `source`, for the duration of a phase.
    pub(crate) fn closed_loop(&self, addr: SocketAddr, source: &str) -> LoadPlan {
        let options = &self.options;
        LoadPlan {
            until: StopCondition::Elapsed(Duration::from_secs(options.seconds)),
            ..LoadPlan::closed_loop(addr, source, options.connections, options.body_bytes)
        }
    }
}

/// Runs the load of `plan` against `child`; an error includes the last output of the process.
pub(crate) async fn run_load(child: &ServerProcess, plan: LoadPlan) -> Result<LoadResult> {
    generate_load(plan, |_, _| {})
        .await
        .with_context(|| format!("the load failed{}", child.log_tail()))
}
