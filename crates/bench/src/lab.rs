//! The servers of one run: each in its own process, all under one temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::child::{ServerProcess, free_addr};
use crate::destination::SinkProcess;
use crate::gateway::{Gateway, GatewayConfig};
use crate::load::{LoadResult, drive};
use crate::options::BenchOptions;
use crate::plan::{LoadPlan, StopCondition};
use crate::progress::ProgressDisplay;
use crate::sink::SinkMode;

/// A bare server is ready in milliseconds.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// What a run works with. Children must be dropped before it: it removes their folders.
#[derive(Debug)]
pub(crate) struct BenchRun {
    pub(crate) options: BenchOptions,
    pub(crate) progress: ProgressDisplay,
    folder: TempDir,
    children: AtomicU64,
}

impl BenchRun {
    pub(crate) fn open(options: BenchOptions) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("surehook-bench-");
        let folder = match &options.folder {
            Some(parent) => builder
                .tempdir_in(parent)
                .with_context(|| format!("cannot make a folder in {}", parent.display()))?,
            None => builder.tempdir().context("cannot make a temporary folder")?,
        };
        Ok(Self {
            options,
            progress: ProgressDisplay::begin(),
            folder,
            children: AtomicU64::new(0),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the bare server whose rate is L.
    pub(crate) async fn limit(&self) -> Result<ServerProcess> {
        let addr = free_addr()?;
        let mut command = Command::new(&self.options.exe);
        command.arg("bench-limit").arg("--listen").arg(addr.to_string());
        let mut child = ServerProcess::start(
            "limit server",
            &mut command,
            addr,
            &self.fresh_path("limit.log"),
        )?;
        child.ready("/", START_PATIENCE).await?;
        Ok(child)
    }

    /// Starts a sink to deliver to.
    pub(crate) async fn destination(&self, mode: SinkMode) -> Result<SinkProcess> {
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
            ServerProcess::start("sink", &mut command, addr, &self.fresh_path("sink.log"))?;
        child.ready("/count", START_PATIENCE).await?;
        Ok(SinkProcess::new(child))
    }

    /// Starts a gateway with an empty store.
    pub(crate) async fn gateway(&self, config: &GatewayConfig) -> Result<Gateway> {
        Gateway::start(&self.options.exe, self.fresh_path("gateway"), config).await
    }

    fn fresh_path(&self, name: &str) -> PathBuf {
        let number = self.children.fetch_add(1, Ordering::Relaxed);
        self.folder().join(format!("{number:03}-{name}"))
    }

    /// A closed loop of new keys to `source`, for as long as a phase lasts.
    pub(crate) fn plan(&self, addr: SocketAddr, source: &str) -> LoadPlan {
        let options = &self.options;
        LoadPlan {
            until: StopCondition::Elapsed(Duration::from_secs(options.seconds)),
            ..LoadPlan::closed(addr, source, options.connections, options.body_bytes)
        }
    }
}

/// Loads `child` as `plan` says; on failure shows what the child wrote last.
pub(crate) async fn load(child: &ServerProcess, plan: LoadPlan) -> Result<LoadResult> {
    drive(plan, |_, _| {}).await.with_context(|| format!("the load failed{}", child.last_words()))
}
