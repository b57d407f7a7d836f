//! The servers of one benchmark run: each in its own process, all under one temporary folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::gateway::{DatabaseProject, Gateway, GatewayConfig};
use crate::load::{LoadPlan, StopCondition};
use crate::load::{LoadResult, generate_load};
use crate::options::{BenchOptions, value_name};
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
    exe: PathBuf,
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
        let exe = options.exe.clone().map_or_else(std::env::current_exe, Ok)?;
        let (progress, server_count) = (ProgressDisplay::start(), AtomicU64::new(0));
        Ok(Self { options, exe, progress, folder, server_count })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the bare server whose rate is the limit.
    pub(crate) async fn start_limit_server(&self) -> Result<ServerProcess> {
        self.start_server("limit server", &["bench-limit"], "/").await
    }

    /// Starts a sink as a destination.
    pub(crate) async fn start_sink(&self, mode: SinkMode) -> Result<SinkProcess> {
        let args = ["bench-sink", "--mode", &value_name(&mode)];
        Ok(SinkProcess::new(self.start_server("sink", &args, "/count").await?))
    }

    async fn start_server(&self, name: &str, args: &[&str], path: &str) -> Result<ServerProcess> {
        let addr = free_addr()?;
        let mut command = Command::new(&self.exe);
        command.args(args).arg("--listen").arg(addr.to_string());
        let log = self.new_path(&format!("{name}.log"));
        let mut child = ServerProcess::start(name, &mut command, addr, &log)?;
        child.wait_until_ready(path, START_TIMEOUT).await?;
        Ok(child)
    }

    /// Starts a gateway with an empty store.
    pub(crate) async fn start_gateway(&self, config: &GatewayConfig) -> Result<Gateway> {
        Gateway::start(&self.exe, self.new_path("gateway"), config).await
    }

    /// Starts a node on a project of a database.
    pub(crate) async fn start_node(
        &self,
        config: &GatewayConfig,
        project: &DatabaseProject,
    ) -> Result<Gateway> {
        Gateway::start_node(&self.exe, self.new_path("node"), config, project).await
    }

    /// Removes what nodes that have ended left in the database.
    pub(crate) fn remove_project(&self, project: &DatabaseProject) -> Result<()> {
        project.remove(&self.exe)
    }

    /// Starts a gateway on a folder that may be that of an earlier gateway.
    pub(crate) async fn reopen_gateway(
        &self,
        folder: PathBuf,
        config: &GatewayConfig,
    ) -> Result<Gateway> {
        Gateway::reopen(&self.exe, folder, config).await
    }

    pub(crate) fn new_path(&self, name: &str) -> PathBuf {
        let number = self.server_count.fetch_add(1, Ordering::Relaxed);
        self.folder().join(format!("{number:03}-{name}"))
    }

    /// A closed loop of new keys to `source`, for the duration of a phase.
    pub(crate) fn default_plan(&self, addr: SocketAddr, source: &str) -> LoadPlan {
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
