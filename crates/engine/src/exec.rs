//! Runs a program for one event: the body on its standard input, its exit as the answer.
//!
//! ```text
//! body ──► stdin ┌─────────┐ stdout + stderr ──► the first bytes are kept, the rest is let go
//!                │ program │
//!                └────┬────┘ exit 0: done · 75: later · other: never · signal, deadline: later
//! ```
//!
//! The program runs in a process group of its own. When it has ended, what is left of the group is
//! killed, and only then is the program reaped: until then its number cannot belong to anybody else.
//! When the attempt is given up from outside (the gateway stops), dropping it kills the group.
//!
//! Nothing can block for ever: the input is written and the output is read beside the wait for the
//! end, a program that does not read or that closes its input is no failure, and at the deadline the
//! group is asked to end (TERM) and then made to (KILL). What leaves the group (`setsid`) is out of
//! reach; it loses its pipes.

#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use surehook_core::{
    delivery::{AttemptFailure, FailureClass},
    destination::exec::ExecConfig,
    store::ClaimedDelivery,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    process::{Child, ChildStdin, Command},
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{non_http::NonHttpResult, programs::AllowedPrograms, sender::RESPONSE_BYTES_KEPT};

/// How long a program may take to end after it was asked to.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long we go on reading after the end, if somebody who left the group holds the other end.
const REST_OF_OUTPUT: Duration = Duration::from_millis(500);

/// "Temporary failure", as sendmail and its successors have it in `sysexits.h`.
const EX_TEMPFAIL: i32 = 75;

/// Where a program finds others. That of the gateway is nobody's business.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs it, for at most `deadline` and the time it takes to end it.
pub(crate) async fn run(
    exec: &ExecConfig,
    programs: &Arc<AllowedPrograms>,
    (destination, claimed): (&str, &ClaimedDelivery),
    deadline: Duration,
) -> NonHttpResult {
    let (known, program) = (Arc::clone(programs), exec.program.clone());
    let found = tokio::task::spawn_blocking(move || known.find(&program)).await;
    let file = match found {
        Ok(Ok(file)) => file,
        Ok(Err(refused)) => {
            return NonHttpResult::badly(
                AttemptFailure::NotStarted,
                FailureClass::Config,
                refused.to_string(),
            );
        }
        Err(_) => return unstartable(&io::ErrorKind::Other.into()),
    };
    let mut command = command(exec, &file, (destination, claimed));
    let started = start(&mut command, claimed.payload.body.clone());
    // It holds our copy of the end that the program writes to.
    drop(command);
    match started {
        Ok(running) => running.end_within(deadline).await,
        Err(error) => unstartable(&error),
    }
}

fn command(
    exec: &ExecConfig,
    file: &Path,
    (destination, claimed): (&str, &ClaimedDelivery),
) -> Command {
    let mut command = Command::new(file);
    command
        // What a program is called by is what was written; some are many programs in one.
        .arg0(&exec.program)
        .args(&exec.arguments)
        .current_dir("/")
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
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

/// Starts it. Both of its outputs go into one pipe, so that their lines stay in order.
fn start(command: &mut Command, body: Bytes) -> io::Result<RunningProgram> {
    let (output, theirs) = io::pipe()?;
    let output = pipe::Receiver::from_owned_fd(output.into())?;
    command.stdin(Stdio::piped()).stdout(theirs.try_clone()?).stderr(theirs);
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let group = ProcessGroup::of(child)?;
    let kept = Arc::<CapturedOutput>::default();
    Ok(RunningProgram {
        group,
        _feeding: AbortOnDropHandle::new(tokio::spawn(feed(input, body))),
        listening: AbortOnDropHandle::new(tokio::spawn(listen(output, Arc::clone(&kept)))),
        kept,
    })
}

/// A program that runs.
struct RunningProgram {
    group: ProcessGroup,
    _feeding: AbortOnDropHandle<()>,
    listening: AbortOnDropHandle<()>,
    kept: Arc<CapturedOutput>,
}

impl RunningProgram {
    async fn end_within(mut self, deadline: Duration) -> NonHttpResult {
        let in_time = timeout(deadline, self.group.has_ended()).await.is_ok();
        if !in_time {
            self.group.signal(Signal::TERM);
            // Whether it took the hint makes no difference to what follows.
            let _hint = timeout(TERM_GRACE, self.group.has_ended()).await;
        }
        let status = self.group.clear().await;
        let _rest = timeout(REST_OF_OUTPUT, &mut self.listening).await;
        let output = std::mem::take(&mut *self.kept.bytes());
        let ended = match status {
            Ok(_) if !in_time => {
                let detail = format!("it did not end within {deadline:?} and was killed");
                NonHttpResult::unanswered(AttemptFailure::Timeout, detail)
            }
            Ok(status) => judge(status),
            Err(_) => NonHttpResult::badly(
                AttemptFailure::Exit,
                FailureClass::Transient,
                "how it ended could not be learned",
            ),
        };
        ended.with_output(output)
    }
}

/// What an exit means.
fn judge(status: ExitStatus) -> NonHttpResult {
    match (status.code(), status.signal()) {
        (Some(0), _) => NonHttpResult::well(Vec::new()),
        (Some(EX_TEMPFAIL), _) => NonHttpResult::badly(
            AttemptFailure::Exit,
            FailureClass::Transient,
            "exit code 75: it asks to be run again later",
        ),
        (Some(code), _) => NonHttpResult::badly(
            AttemptFailure::Exit,
            FailureClass::Permanent,
            format!("exit code {code}"),
        ),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            NonHttpResult::badly(
                AttemptFailure::Exit,
                FailureClass::Transient,
                format!("it was ended by signal {signal}"),
            )
        }
    }
}

/// Why it did not start: what somebody must mend, or what this machine has too little of now.
fn unstartable(error: &io::Error) -> NonHttpResult {
    let is_no_program = error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error());
    let known = UNSTARTABLE.iter().find(|(kind, ..)| *kind == error.kind());
    let (class, why) = match known {
        _ if is_no_program => {
            (FailureClass::Config, "it is no program, and has no first line such as #!/bin/sh")
        }
        Some((_, class, why)) => (*class, *why),
        None => (FailureClass::Transient, "this machine has no room for another process"),
    };
    let detail = format!("the program could not be started: {why}");
    NonHttpResult::badly(AttemptFailure::NotStarted, class, detail)
}

const UNSTARTABLE: [(io::ErrorKind, FailureClass, &str); 5] = [
    (
        io::ErrorKind::NotFound,
        FailureClass::Config,
        "it, or what its first line names, is not there",
    ),
    (io::ErrorKind::PermissionDenied, FailureClass::Config, "the gateway may not run it"),
    (io::ErrorKind::ArgumentListTooLong, FailureClass::Config, "its arguments are too long"),
    (io::ErrorKind::InvalidInput, FailureClass::Config, "an argument or variable cannot be passed"),
    // The file is being written at this moment.
    (io::ErrorKind::ExecutableFileBusy, FailureClass::Transient, "it is being replaced"),
];

/// A program and all that it started, as long as they stay together. Killed when dropped.
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

    /// Waits until the program has ended, and leaves it unreaped.
    async fn has_ended(&self) {
        // Listening comes before looking, or an end in between would be missed.
        let Ok(mut ends) = signal(SignalKind::child()) else { return };
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.leader), how), Ok(None)) {
            ends.recv().await;
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails only if nobody is left.
        let _gone = kill_process_group(self.leader, signal);
    }

    /// Kills what is left, and reaps the program.
    async fn clear(&mut self) -> io::Result<ExitStatus> {
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

/// Writes the body. A program that does not want all of it closes its end, and may do so.
async fn feed(input: Option<ChildStdin>, body: Bytes) {
    if let Some(mut input) = input {
        let _closed = input.write_all(&body).await;
    }
}

/// The beginning of the output.
#[derive(Debug, Default)]
struct CapturedOutput(Mutex<Vec<u8>>);

impl CapturedOutput {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads to the end, so that the program is never held up, and keeps the beginning.
async fn listen(mut output: pipe::Receiver, kept: Arc<CapturedOutput>) {
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(read) = output.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        let mut bytes = kept.bytes();
        let room = RESPONSE_BYTES_KEPT - bytes.len();
        bytes.extend_from_slice(&chunk[..read.min(room)]);
    }
}
