//! A server as a child process: started, waited for, asked what it said, killed.
//!
//! Its output goes to a file, of which the end is shown if something fails. It never outlives
//! its [`ServerProcess`].

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::control;

/// How often a starting child is asked; also the error of a measured start.
const ASK_EVERY: Duration = Duration::from_millis(5);
const LOG_LINES_SHOWN: usize = 30;

#[derive(Debug)]
pub(crate) struct ServerProcess {
    name: String,
    process: std::process::Child,
    addr: SocketAddr,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts `command`, which will listen on `addr`. Its output is added to the file `log`.
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

    /// Waits until `GET path` is answered 200. Fails if the child ends first, or after
    /// `patience`.
    pub(crate) async fn ready(&mut self, path: &str, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut last = String::from("nothing was tried");
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("the {} ended with {status}{}", self.name, self.last_words());
            }
            ensure!(
                begun.elapsed() < patience,
                "the {} was not ready in {patience:?}: {last}{}",
                self.name,
                self.last_words()
            );
            match control::call(self.addr, "GET", path).await {
                Ok(said) if said.status == 200 => return Ok(()),
                Ok(said) => last = format!("GET {path} was answered {}", said.status),
                Err(error) => last = format!("{error:#}"),
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the child with SIGKILL and waits for its end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// The end of what the child wrote, as an appendix to an error.
    pub(crate) fn last_words(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        if shown.is_empty() {
            return format!("; the {} wrote nothing", self.name);
        }
        format!("; the {} wrote last:\n  {}\n", self.name, shown.join("\n  "))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody to tell.
        let _ = self.kill();
    }
}

/// An address on the loopback that nobody listens on.
///
/// Another program may take it before the child does; the child then fails to start and says so.
pub(crate) fn free_addr() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .context("there is no free port on 127.0.0.1")?;
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
        let error = child.ready("/readyz", Duration::from_secs(30)).await.unwrap_err().to_string();
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
