use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use surehook_types::{secret::Secret, time::Timestamp};
use surehook_webhooks::key::DedupKey;
use tempfile::TempDir;

use super::*;
use crate::{non_http::NonHttpEnd, testing::claimed_delivery};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const LONG: Duration = Duration::from_secs(60);

fn claimed(body: &[u8]) -> ClaimedDelivery {
    let key = DedupKey::new("a key");
    ClaimedDelivery {
        key,
        attempts: 1,
        ..claimed_delivery(&[("content-type", "text/plain")], body, NOW)
    }
}

/// A folder with one allowed program.
struct TestProgram {
    folder: TempDir,
    exec: ExecConfig,
    programs: Arc<AllowedPrograms>,
}

impl TestProgram {
    fn new(script: &str) -> Self {
        Self::with_first_line("#!/bin/sh", script)
    }

    fn with_first_line(line: &str, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        fs::write(&program, format!("{line}\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let programs = AllowedPrograms::new(vec![folder.path().to_owned()]).unwrap();
        let mark_file = folder.path().join("mark").into_os_string().into_string().unwrap();
        let env = vec![("MARK".to_owned(), Secret::new(mark_file))];
        let exec = ExecConfig { program, arguments: vec!["an argument".to_owned()], env };
        Self { folder, exec, programs: Arc::new(programs) }
    }

    async fn run(&self, body: &[u8], deadline: Duration) -> NonHttpResult {
        run(&self.exec, &self.programs, "out", &claimed(body), None, deadline).await
    }

    fn mark_file(&self) -> PathBuf {
        self.folder.path().join("mark")
    }

    /// The process id that the program wrote to its mark file.
    async fn wait_for_mark(&self) -> Pid {
        for _ in 0..1000 {
            let text = fs::read_to_string(self.mark_file()).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                return Pid::from_raw(number.parse().unwrap()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the program wrote no mark");
    }
}

/// Waits until a process has ended, reaped or not.
async fn wait_until_gone(process: Pid) {
    for _ in 0..1000 {
        let path = format!("/proc/{}/stat", process.as_raw_nonzero());
        let stat = fs::read_to_string(path).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{process:?} still runs");
}

fn assert_no_child_is_left() {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    assert_eq!(waitid(WaitId::All, options).unwrap_err(), Errno::CHILD);
}

#[tokio::test]
async fn exit_status_is_the_result() {
    let failed = |class| NonHttpEnd::Failed(AttemptFailure::Exit, class);
    let cases: [(&str, NonHttpEnd, &str); 9] = [
        ("cat", NonHttpEnd::Succeeded, "the body"),
        ("echo one; echo two >&2; echo three", NonHttpEnd::Succeeded, "one\ntwo\nthree\n"),
        (
            "echo \"$0 $1 $#\" | sed 's,.*/,,'; pwd",
            NonHttpEnd::Succeeded,
            "hook an argument 1\n/\n",
        ),
        ("echo no; exit 75", failed(FailureClass::Transient), "no\n"),
        ("exit 1", failed(FailureClass::Permanent), ""),
        ("exit 64", failed(FailureClass::Permanent), ""),
        ("not-a-command-anywhere 2>/dev/null", failed(FailureClass::Permanent), ""),
        ("kill -9 $$", failed(FailureClass::Transient), ""),
        ("kill -TERM $$", failed(FailureClass::Transient), ""),
    ];
    for (script, end, output) in cases {
        let result = TestProgram::new(script).run(b"the body", LONG).await;
        assert_eq!(result.end, end, "case: {script}: {result:?}");
        assert_eq!(String::from_utf8_lossy(&result.output), output, "case: {script}");
        assert_eq!(result.detail.is_some(), end != NonHttpEnd::Succeeded, "case: {script}");
    }
    assert_no_child_is_left();
}

#[tokio::test]
async fn program_environment_has_the_event_and_nothing_of_the_gateway() {
    let hook = TestProgram::new("env | grep -v '^\\(_\\|PWD\\|OLDPWD\\|SHLVL\\)=' | LC_ALL=C sort");

    let result = hook.run(b"", LONG).await;

    let event = claimed(b"");
    let expected = format!(
        "LANG=C.UTF-8\nMARK={}\nPATH={PATH}\nSUREHOOK_ATTEMPT=2\nSUREHOOK_CONTENT_TYPE=text/plain\n\
         SUREHOOK_DELIVERY_ID={}\nSUREHOOK_DESTINATION=out\nSUREHOOK_EVENT_ID={}\nSUREHOOK_KEY=a key\n\
         SUREHOOK_RECEIVED_AT={NOW}\nSUREHOOK_SOURCE=shop\n",
        hook.mark_file().display(),
        event.id,
        event.event,
    );
    assert_eq!(String::from_utf8_lossy(&result.output), expected);
}

#[tokio::test]
async fn unread_input_and_large_output_do_not_block() {
    let large = vec![b'x'; 4 * 1024 * 1024];
    let cases = [
        ("reads nothing", "exit 0", 0),
        ("closes its input", "exec <&-; exit 0", 0),
        ("reads a little", "head -c 10 >/dev/null; exit 0", 0),
        ("writes more than is stored", "cat", RESPONSE_BYTES_KEPT),
        (
            "writes before it reads",
            "head -c 4000000 /dev/zero; cat >/dev/null",
            RESPONSE_BYTES_KEPT,
        ),
        ("closes its outputs", "exec >&- 2>&-; cat >/dev/null 2>/dev/null; exit 0", 0),
    ];
    for (name, script, output_bytes) in cases {
        let result = TestProgram::new(script).run(&large, LONG).await;
        assert_eq!(result.end, NonHttpEnd::Succeeded, "case: {name}: {:?}", result.detail);
        assert_eq!(result.output.len(), output_bytes, "case: {name}");
    }
}

#[tokio::test]
async fn timeout_sends_term_and_then_kill() {
    let cases = [
        (
            "ends on TERM",
            "trap 'echo terminated; exit 0' TERM; echo $$ >\"$MARK\"; sleep 1000 & wait",
            "terminated\n",
        ),
        ("ignores TERM", "trap '' TERM; echo $$ >\"$MARK\"; while :; do sleep 1000; done", ""),
    ];
    for (name, script, output) in cases {
        let hook = TestProgram::new(script);
        // Long enough for a shell to set its trap.
        let result = hook.run(b"", Duration::from_secs(3)).await;
        assert_eq!(result.end, NonHttpEnd::Unanswered(AttemptFailure::Timeout), "case: {name}");
        assert_eq!(String::from_utf8_lossy(&result.output), output, "case: {name}");
        wait_until_gone(hook.wait_for_mark().await).await;
    }
    assert_no_child_is_left();
}

#[tokio::test]
async fn background_processes_of_the_program_are_killed() {
    let hook = TestProgram::new("sleep 1000 & echo $! >\"$MARK\"; echo done");

    let result = hook.run(b"", LONG).await;

    assert_eq!((result.end, &*result.output), (NonHttpEnd::Succeeded, &b"done\n"[..]));
    wait_until_gone(hook.wait_for_mark().await).await;
}

#[tokio::test]
async fn process_that_left_the_group_does_not_delay_the_result() {
    let hook = TestProgram::new("setsid sleep 30 & echo $! >\"$MARK\"; sleep 0.2; echo done");

    let result = hook.run(b"", LONG).await;

    assert_eq!((result.end, &*result.output), (NonHttpEnd::Succeeded, &b"done\n"[..]));
    let _left = rustix::process::kill_process(hook.wait_for_mark().await, Signal::KILL);
}

#[tokio::test]
async fn dropped_attempt_leaves_no_process_running() {
    let hook = TestProgram::new("trap '' TERM; sleep 1000 & echo $! >\"$MARK\"; wait");
    let process = tokio::select! {
        result = hook.run(b"", LONG) => panic!("it ended: {result:?}"),
        process = hook.wait_for_mark() => process,
    };

    wait_until_gone(process).await;
}

#[tokio::test]
async fn program_that_cannot_start_is_a_config_failure() {
    let program = TestProgram::new("exit 0");
    let run_program = |path: PathBuf, programs: AllowedPrograms| {
        let exec = ExecConfig { program: path, ..program.exec.clone() };
        async move { run(&exec, &Arc::new(programs), "out", &claimed(b""), None, LONG).await }
    };
    let listed = || (*program.programs).clone();
    let cases = [
        ("missing", run_program(program.folder.path().join("none"), listed()).await),
        (
            "no longer allowed",
            run_program(program.exec.program.clone(), AllowedPrograms::default()).await,
        ),
        ("not in the list", run_program("/bin/sh".into(), listed()).await),
        (
            "no interpreter",
            TestProgram::with_first_line("#!/no/such/thing", "").run(b"", LONG).await,
        ),
        ("not an executable", TestProgram::with_first_line("just text", "").run(b"", LONG).await),
    ];
    for (name, result) in cases {
        assert_eq!(
            result.end,
            NonHttpEnd::Failed(AttemptFailure::NotStarted, FailureClass::Config),
            "case: {name}: {:?}",
            result.detail
        );
    }
    fs::set_permissions(&program.exec.program, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        program.run(b"", LONG).await.end,
        NonHttpEnd::Failed(AttemptFailure::NotStarted, FailureClass::Config)
    );
}
