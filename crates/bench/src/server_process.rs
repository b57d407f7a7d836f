//! A server that runs as a child process: start, wait until ready, quote its log, kill.
//!
//! Its output goes to a file whose last lines are shown if something fails. The process is killed
//! when its [`ServerProcess`] is dropped.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::control;

/// Poll interval while the process starts; also the error of a measured start time.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const LOG_LINES_SHOWN: usize = 30;

#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: String,
    process: std::process::Child,
    addr: SocketAddr,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts `command`, which will listen on `addr`. Its output is appended to the file `log`.
    pub(crate) fn start(
        name: &str,
        command: &mut Command,
        addr: SocketAddr,
        log: &Path,
    ) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        let process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), process, addr, log: log.to_owned() })
    }

    /// Waits until `GET path` is answered 200. Fails if the process ends first, or after
    /// `timeout`.
    pub(crate) async fn wait_until_ready(&mut self, path: &str, timeout: Duration) -> Result<()> {
        let started_at = Instant::now();
        let mut last = String::from("no request was sent");
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("the {} ended with {status}{}", self.name, self.log_tail());
            }
            ensure!(
                started_at.elapsed() < timeout,
                "the {} was not ready in {timeout:?}: {last}{}",
                self.name,
                self.log_tail()
            );
            match control::call(self.addr, "GET", path).await {
                Ok(response) if response.status() == 200 => return Ok(()),
                Ok(response) => last = format!("GET {path} was answered {}", response.status()),
                Err(error) => last = format!("{error:#}"),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// The last lines of the process output, as a suffix for an error message.
    pub(crate) fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        if shown.is_empty() {
            return format!("; the {} wrote nothing", self.name);
        }
        format!("; last output of the {}:\n  {}\n", self.name, shown.join("\n  "))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have ended already, and drop cannot report an error.
        let _ = self.kill();
    }
}

/// A free address on the loopback interface.
///
/// Another program may bind it first; the server then fails to start and reports that.
pub(crate) fn free_addr() -> Result<SocketAddr> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> ServerProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ServerProcess::start("shell", &mut command, free_addr().unwrap(), log).unwrap()
    }

    #[tokio::test]
    async fn error_after_an_early_exit_quotes_the_process_output() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = shell("echo no such table; exit 3", &folder.path().join("log"));
        let error = child
            .wait_until_ready("/readyz", Duration::from_secs(30))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such table"), "{error}");
    }

    #[test]
    fn dropped_server_process_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let child = shell("exec sleep 1000", &folder.path().join("log"));
        let proc = format!("/proc/{}", child.pid());
        assert!(Path::new(&proc).exists());
        drop(child);
        assert!(!Path::new(&proc).exists());
    }
}
