//! The binary under test, and other programs, as child processes with captured output.

use std::{
    io::{BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{WAIT_LIMIT, eventually};

/// The output so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapturedOutput(Arc<Mutex<String>>);

impl CapturedOutput {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    /// Appends everything read from `stream` on a thread until it ends.
    fn capture(&self, stream: impl Read + Send + 'static) -> JoinHandle<()> {
        let output = Arc::clone(&self.0);
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                output.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        })
    }
}

/// The result of a finished command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running program. Killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) stdout: CapturedOutput,
    pub(crate) stderr: CapturedOutput,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts the binary in `folder` with only the given environment, so that variables of the
    /// machine cannot change a test.
    pub(crate) fn spawn(folder: &Path, args: &[&str], env: &[(String, String)]) -> Self {
        Self::spawn_after(":", folder, args, env)
    }

    /// Like [`Self::spawn`], after commands of the shell such as `ulimit -n 256`.
    pub(crate) fn spawn_after(
        setup: &str,
        folder: &Path,
        args: &[&str],
        env: &[(String, String)],
    ) -> Self {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("{setup}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_surehook"))
            .args(args)
            .current_dir(folder)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)));
        Self::start(command)
    }

    /// Starts any program.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (stdout, stderr) = (CapturedOutput::default(), CapturedOutput::default());
        let readers = vec![
            stdout.capture(child.stdout.take().unwrap()),
            stderr.capture(child.stderr.take().unwrap()),
        ];
        Self { child, stdout, stderr, readers }
    }

    /// Sends SIGKILL: no instruction of the process runs after this.
    pub(crate) fn kill9(&mut self) {
        // Fails only if the process has already exited.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
        self.read_remaining_output();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Resident memory, from `/proc`.
    pub(crate) fn rss_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The highest resident memory so far.
    pub(crate) fn peak_rss_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn try_exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the exit and reads the rest of the output.
    pub(crate) async fn wait_for_exit(&mut self) -> ExitStatus {
        self.wait_for_exit_within(WAIT_LIMIT).await
    }

    async fn wait_for_exit_within(&mut self, limit: Duration) -> ExitStatus {
        let status = {
            let child = Mutex::new(&mut self.child);
            eventually(limit, || async { child.lock().unwrap().try_wait().unwrap() }).await
        };
        self.read_remaining_output();
        status
    }

    fn read_remaining_output(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Runs the binary until it exits.
pub(crate) async fn run_surehook(
    folder: &Path,
    args: &[&str],
    env: &[(String, String)],
) -> CommandOutput {
    run_surehook_within(WAIT_LIMIT, folder, args, env).await
}

/// Like [`run_surehook`], for a command that takes its time.
pub(crate) async fn run_surehook_within(
    limit: Duration,
    folder: &Path,
    args: &[&str],
    env: &[(String, String)],
) -> CommandOutput {
    let mut process = Process::spawn(folder, args, env);
    let code = process.wait_for_exit_within(limit).await.code();
    CommandOutput { code, stdout: process.stdout.text(), stderr: process.stderr.text() }
}
