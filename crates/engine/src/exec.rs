//! Runs a program for one event: the body is its standard input, its exit code is the answer
//! (0: done, 75: retry, other: permanent failure, signal or timeout: retry).
//!
//! The program runs in a process group of its own. When it has ended, the rest of the group is killed, and
//! only then is the program reaped: until then its process id cannot be reused. Dropping the attempt kills
//! the group. Nothing can block forever: input and output are handled while waiting for the end, a program
//! that does not read its input is not a failure, and at the timeout the group gets TERM and then KILL. A
//! process that leaves the group (`setsid`) is out of reach; it loses its pipes.

#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use surehook_core::{destination::exec::ExecConfig, store::ClaimedDelivery};
use surehook_guard::connect::is_resource_shortage;
use surehook_retry::{AttemptFailure, FailureClass};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    lock::lock, non_http::NonHttpResult, otlp::AttemptTrace, programs::AllowedPrograms,
    sender::RESPONSE_BYTES_KEPT,
};

/// The time between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long the output is read after the end, if a process that left the group keeps the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// "Temporary failure" in `sysexits.h`.
const EX_TEMPFAIL: i32 = 75;

/// The search path of the program; the gateway's own is not passed on.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the program, for at most `time_limit` plus the time it takes to end it.
pub(crate) async fn run(
    exec: &ExecConfig,
    programs: &Arc<AllowedPrograms>,
    destination: &str,
    claimed: &ClaimedDelivery,
    trace: Option<&AttemptTrace>,
    time_limit: Duration,
) -> NonHttpResult {
    let (programs, program) = (Arc::clone(programs), exec.program.clone());
    let resolved = tokio::task::spawn_blocking(move || programs.resolve(&program)).await;
    let file = match resolved {
        Ok(Ok(file)) => file,
        Ok(Err(refused)) => {
            let class = FailureClass::Config;
            return NonHttpResult::failed(AttemptFailure::NotStarted, class, refused.to_string());
        }
        Err(_) => return start_failure(&io::ErrorKind::Other.into()),
    };
    let mut command = build_command(exec, &file, destination, claimed, trace);
    let started = start(&mut command, claimed.payload.body.clone());
    // The command holds our copy of the write end of the output pipe.
    drop(command);
    match started {
        Ok(running) => running.wait(time_limit).await,
        Err(error) => start_failure(&error),
    }
}

fn build_command(
    exec: &ExecConfig,
    file: &Path,
    destination: &str,
    claimed: &ClaimedDelivery,
    trace: Option<&AttemptTrace>,
) -> Command {
    let mut command = Command::new(file);
    command
        // The configured name, not the resolved one: some programs behave by their name.
        .arg0(&exec.program)
        .args(&exec.arguments)
        .current_dir("/")
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        // Before the configured variables, which take precedence.
        .envs(trace.map(|trace| ("TRACEPARENT", trace.traceparent())))
        .envs(exec.env.iter().map(|(name, value)| (name, OsStr::from_bytes(value.expose()))))
        .env("SUREHOOK_EVENT_ID", claimed.event.to_string())
        .env("SUREHOOK_DELIVERY_ID", claimed.id.to_string())
        .env("SUREHOOK_ATTEMPT", (claimed.attempts + 1).to_string())
        .env("SUREHOOK_SOURCE", claimed.source.as_str())
        .env("SUREHOOK_DESTINATION", destination)
        .env("SUREHOOK_RECEIVED_AT", claimed.received_at.to_string())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(key) = &claimed.key {
        command.env("SUREHOOK_KEY", key.as_str());
    }
    let mut lines = claimed.payload.head.headers.lines();
    if let Some((_, value)) = lines.find(|(name, _)| *name == CONTENT_TYPE) {
        command.env("SUREHOOK_CONTENT_TYPE", OsStr::from_bytes(value));
    }
    command
}

/// Starts the program. Both outputs use one pipe, so that their lines stay in order.
fn start(command: &mut Command, body: Bytes) -> io::Result<RunningProgram> {
    let (output, write_end) = io::pipe()?;
    let output = pipe::Receiver::from_owned_fd(output.into())?;
    command.stdin(Stdio::piped()).stdout(write_end.try_clone()?).stderr(write_end);
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let group = ProcessGroup::of(child)?;
    let captured = Arc::default();
    Ok(RunningProgram {
        group,
        _input_task: AbortOnDropHandle::new(tokio::spawn(write_input(input, body))),
        output_task: AbortOnDropHandle::new(tokio::spawn(capture(output, Arc::clone(&captured)))),
        captured,
    })
}

struct RunningProgram {
    group: ProcessGroup,
    _input_task: AbortOnDropHandle<()>,
    output_task: AbortOnDropHandle<()>,
    /// The beginning of the output.
    captured: Arc<Mutex<Vec<u8>>>,
}

impl RunningProgram {
    async fn wait(mut self, time_limit: Duration) -> NonHttpResult {
        let in_time = timeout(time_limit, self.group.wait_for_exit()).await.is_ok();
        if !in_time {
            self.group.signal(Signal::TERM);
            // The remaining steps are the same whether it ended by itself or not.
            let _ended = timeout(TERM_GRACE, self.group.wait_for_exit()).await;
        }
        let status = self.group.kill_and_reap().await;
        let _rest = timeout(OUTPUT_GRACE, &mut self.output_task).await;
        let output = std::mem::take(&mut *lock(&self.captured));
        let result = match status {
            Ok(_) if !in_time => {
                let detail =
                    format!("the program did not end within {time_limit:?} and was killed");
                NonHttpResult::unanswered(AttemptFailure::Timeout, detail)
            }
            Ok(status) => interpret_exit(status),
            Err(_) => NonHttpResult::failed(
                AttemptFailure::Exit,
                FailureClass::Transient,
                "the exit status could not be read",
            ),
        };
        result.with_output(output)
    }
}

fn interpret_exit(status: ExitStatus) -> NonHttpResult {
    let (class, detail) = match (status.code(), status.signal()) {
        (Some(0), _) => return NonHttpResult::succeeded(Vec::new()),
        (Some(EX_TEMPFAIL), _) => {
            let detail = "exit code 75: the program asks to be run again later";
            (FailureClass::Transient, detail.to_owned())
        }
        (Some(code), _) => (FailureClass::Permanent, format!("exit code {code}")),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            (FailureClass::Transient, format!("the program was ended by signal {signal}"))
        }
    };
    NonHttpResult::failed(AttemptFailure::Exit, class, detail)
}

/// Why the program did not start: the settings have to be fixed, or the machine lacks resources now.
fn start_failure(error: &io::Error) -> NonHttpResult {
    // EAGAIN: the limit on processes is reached.
    if is_resource_shortage(error) || error.kind() == io::ErrorKind::WouldBlock {
        let detail = "the gateway itself has no free file, process or memory to start the program";
        return NonHttpResult::unanswered(AttemptFailure::NoResources, detail);
    }
    let is_not_executable = error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error());
    let failure = START_FAILURES.iter().find(|(kind, ..)| *kind == error.kind());
    let (class, reason) = match failure {
        _ if is_not_executable => (
            FailureClass::Config,
            "it is not an executable, and has no first line such as #!/bin/sh",
        ),
        Some((_, class, reason)) => (*class, *reason),
        None => (FailureClass::Transient, "the machine cannot start another process now"),
    };
    let detail = format!("the program could not be started: {reason}");
    NonHttpResult::failed(AttemptFailure::NotStarted, class, detail)
}

const START_FAILURES: [(io::ErrorKind, FailureClass, &str); 5] = [
    (
        io::ErrorKind::NotFound,
        FailureClass::Config,
        "it, or the interpreter in its first line, does not exist",
    ),
    (
        io::ErrorKind::PermissionDenied,
        FailureClass::Config,
        "the gateway has no permission to run it",
    ),
    (io::ErrorKind::ArgumentListTooLong, FailureClass::Config, "its arguments are too long"),
    (
        io::ErrorKind::InvalidInput,
        FailureClass::Config,
        "an argument or environment variable is invalid",
    ),
    // The file is open for writing.
    (io::ErrorKind::ExecutableFileBusy, FailureClass::Transient, "it is being replaced"),
];

/// A program and the processes it started. Killed when dropped.
struct ProcessGroup {
    child: Child,
    leader: Pid,
    is_reaped: bool,
}

impl ProcessGroup {
    fn of(child: Child) -> io::Result<Self> {
        let number = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let leader = number.ok_or(io::ErrorKind::Other)?;
        Ok(Self { child, leader, is_reaped: false })
    }

    /// Waits until the program has ended, and does not reap it.
    async fn wait_for_exit(&self) {
        // Subscribed before the check, or an exit in between would be missed.
        let Ok(mut exits) = signal(SignalKind::child()) else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.leader), options), Ok(None)) {
            exits.recv().await;
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails only if no process is left.
        let _gone = kill_process_group(self.leader, signal);
    }

    /// Kills the rest of the group and reaps the program.
    async fn kill_and_reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.child.wait().await;
        self.is_reaped = true;
        status
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::KILL);
        }
    }
}

/// Writes the body. The program may close its input before it has read all.
async fn write_input(input: Option<ChildStdin>, body: Bytes) {
    if let Some(mut input) = input {
        let _closed = input.write_all(&body).await;
    }
}

/// Reads to the end, so that the program never blocks, and keeps the beginning.
async fn capture(mut output: pipe::Receiver, captured: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(read) = output.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        let mut bytes = lock(&captured);
        let room = RESPONSE_BYTES_KEPT - bytes.len();
        bytes.extend_from_slice(&chunk[..read.min(room)]);
    }
}
