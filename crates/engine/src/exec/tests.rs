use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use http::HeaderMap;
use surehook_core::{
    delivery::{Lease, LeaseToken},
    event::{HeaderBlock, Payload, RequestHead},
    ids::{DeliveryId, DestinationId, EventId},
    key::DedupKey,
    secret::Secret,
    time::Timestamp,
};
use tempfile::TempDir;

use super::*;
use crate::non_http::NonHttpEnd;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const LONG: Duration = Duration::from_secs(60);

fn claimed(body: &[u8]) -> ClaimedDelivery {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, "text/plain".parse().unwrap())]);
    let head = RequestHead { headers: HeaderBlock::from_map(&headers), ..RequestHead::default() };
    ClaimedDelivery {
        id: DeliveryId::new(NOW, 2),
        event: EventId::new(NOW, 3),
        destination: DestinationId::new(NOW, 1),
        source: "shop".parse().unwrap(),
        key: DedupKey::new("a key"),
        lease: Lease { token: LeaseToken(1), until: NOW },
        attempts: 1,
        throttled: 0,
        created_at: NOW,
        received_at: NOW,
        transform: None,
        ordered: false,
        payload: Payload {
            head: Arc::new(head),
            body: Bytes::copy_from_slice(body),
            fingerprint: [0; 32],
        },
    }
}

/// A folder with one program, which may be run.
struct Hook {
    folder: TempDir,
    exec: ExecConfig,
    programs: Arc<AllowedPrograms>,
}

impl Hook {
    fn new(script: &str) -> Self {
        Self::starting_with("#!/bin/sh", script)
    }

    fn starting_with(line: &str, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        fs::write(&program, format!("{line}\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let programs = AllowedPrograms::new(vec![folder.path().to_owned()]).unwrap();
        let marks = folder.path().join("mark").into_os_string().into_string().unwrap();
        let env = vec![("MARK".to_owned(), Secret::new(marks))];
        let exec = ExecConfig { program, arguments: vec!["an argument".to_owned()], env };
        Self { folder, exec, programs: Arc::new(programs) }
    }

    async fn run(&self, body: &[u8], deadline: Duration) -> NonHttpResult {
        run(&self.exec, &self.programs, ("out", &claimed(body)), deadline).await
    }

    fn mark(&self) -> PathBuf {
        self.folder.path().join("mark")
    }

    /// The number that the program wrote down.
    async fn marked(&self) -> Pid {
        for _ in 0..1000 {
            let text = fs::read_to_string(self.mark()).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                return Pid::from_raw(number.parse().unwrap()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the program wrote nothing down");
    }
}

/// Waits until a process is gone, or is only waiting to be reaped by whoever took it over.
async fn is_gone(process: Pid) {
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

fn no_child_is_left() {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    assert_eq!(waitid(WaitId::All, how).unwrap_err(), Errno::CHILD);
}

#[tokio::test]
async fn an_exit_is_the_answer() {
    let badly = |class| NonHttpEnd::Badly(AttemptFailure::Exit, class);
    let cases: [(&str, NonHttpEnd, &str); 9] = [
        ("cat", NonHttpEnd::Well, "the body"),
        ("echo one; echo two >&2; echo three", NonHttpEnd::Well, "one\ntwo\nthree\n"),
        ("echo \"$0 $1 $#\" | sed 's,.*/,,'; pwd", NonHttpEnd::Well, "hook an argument 1\n/\n"),
        ("echo no; exit 75", badly(FailureClass::Transient), "no\n"),
        ("exit 1", badly(FailureClass::Permanent), ""),
        ("exit 64", badly(FailureClass::Permanent), ""),
        ("not-a-command-anywhere 2>/dev/null", badly(FailureClass::Permanent), ""),
        ("kill -9 $$", badly(FailureClass::Transient), ""),
        ("kill -TERM $$", badly(FailureClass::Transient), ""),
    ];
    for (script, how, output) in cases {
        let ended = Hook::new(script).run(b"the body", LONG).await;
        assert_eq!(ended.how, how, "case: {script}: {ended:?}");
        assert_eq!(String::from_utf8_lossy(&ended.output), output, "case: {script}");
        assert_eq!(ended.detail.is_some(), how != NonHttpEnd::Well, "case: {script}");
    }
    no_child_is_left();
}

#[tokio::test]
async fn a_program_knows_the_event_and_nothing_of_the_gateway() {
    let hook = Hook::new("env | grep -v '^\\(_\\|PWD\\|OLDPWD\\|SHLVL\\)=' | LC_ALL=C sort");

    let ended = hook.run(b"", LONG).await;

    let event = claimed(b"");
    let expected = format!(
        "LANG=C.UTF-8\nMARK={}\nPATH={PATH}\nSUREHOOK_ATTEMPT=2\nSUREHOOK_CONTENT_TYPE=text/plain\n\
         SUREHOOK_DELIVERY_ID={}\nSUREHOOK_DESTINATION=out\nSUREHOOK_EVENT_ID={}\nSUREHOOK_KEY=a key\n\
         SUREHOOK_RECEIVED_AT={NOW}\nSUREHOOK_SOURCE=shop\n",
        hook.mark().display(),
        event.id,
        event.event,
    );
    assert_eq!(String::from_utf8_lossy(&ended.output), expected);
}

#[tokio::test]
async fn neither_input_nor_output_can_block_it() {
    let large = vec![b'x'; 4 * 1024 * 1024];
    let cases = [
        ("reads nothing", "exit 0", 0),
        ("closes its input", "exec <&-; exit 0", 0),
        ("reads a little", "head -c 10 >/dev/null; exit 0", 0),
        ("says more than is kept", "cat", RESPONSE_BYTES_KEPT),
        (
            "says it before it reads",
            "head -c 4000000 /dev/zero; cat >/dev/null",
            RESPONSE_BYTES_KEPT,
        ),
        ("closes its outputs", "exec >&- 2>&-; cat >/dev/null 2>/dev/null; exit 0", 0),
    ];
    for (name, script, kept) in cases {
        let ended = Hook::new(script).run(&large, LONG).await;
        assert_eq!(ended.how, NonHttpEnd::Well, "case: {name}: {:?}", ended.detail);
        assert_eq!(ended.output.len(), kept, "case: {name}");
    }
}

#[tokio::test]
async fn at_the_deadline_it_is_asked_and_then_made_to_end() {
    let cases = [
        (
            "goes when asked",
            "trap 'echo asked; exit 0' TERM; echo $$ >\"$MARK\"; sleep 1000 & wait",
            "asked\n",
        ),
        ("does not", "trap '' TERM; echo $$ >\"$MARK\"; while :; do sleep 1000; done", ""),
    ];
    for (name, script, output) in cases {
        let hook = Hook::new(script);
        // Long enough for a shell to set its trap.
        let ended = hook.run(b"", Duration::from_secs(3)).await;
        assert_eq!(ended.how, NonHttpEnd::Unanswered(AttemptFailure::Timeout), "case: {name}");
        assert_eq!(String::from_utf8_lossy(&ended.output), output, "case: {name}");
        is_gone(hook.marked().await).await;
    }
    no_child_is_left();
}

#[tokio::test]
async fn what_it_leaves_behind_is_killed() {
    let hook = Hook::new("sleep 1000 & echo $! >\"$MARK\"; echo done");

    let ended = hook.run(b"", LONG).await;

    assert_eq!((ended.how, &*ended.output), (NonHttpEnd::Well, &b"done\n"[..]));
    is_gone(hook.marked().await).await;
}

#[tokio::test]
async fn one_that_left_the_group_holds_up_nobody() {
    let hook = Hook::new("setsid sleep 30 & echo $! >\"$MARK\"; sleep 0.2; echo done");

    let ended = hook.run(b"", LONG).await;

    assert_eq!((ended.how, &*ended.output), (NonHttpEnd::Well, &b"done\n"[..]));
    let _left = rustix::process::kill_process(hook.marked().await, Signal::KILL);
}

#[tokio::test]
async fn an_attempt_that_is_dropped_leaves_nothing_running() {
    let hook = Hook::new("trap '' TERM; sleep 1000 & echo $! >\"$MARK\"; wait");
    let process = tokio::select! {
        ended = hook.run(b"", LONG) => panic!("it ended: {ended:?}"),
        process = hook.marked() => process,
    };

    is_gone(process).await;
}

#[tokio::test]
async fn what_cannot_be_started_is_for_somebody_to_mend() {
    let there = Hook::new("exit 0");
    let with = |program: PathBuf, programs: AllowedPrograms| {
        let exec = ExecConfig { program, ..there.exec.clone() };
        async move { run(&exec, &Arc::new(programs), ("out", &claimed(b"")), LONG).await }
    };
    let listed = || (*there.programs).clone();
    let cases = [
        ("not there", with(there.folder.path().join("none"), listed()).await),
        (
            "not allowed any more",
            with(there.exec.program.clone(), AllowedPrograms::default()).await,
        ),
        ("not in the list", with("/bin/sh".into(), listed()).await),
        ("no interpreter", Hook::starting_with("#!/no/such/thing", "").run(b"", LONG).await),
        ("no program", Hook::starting_with("just text", "").run(b"", LONG).await),
    ];
    for (name, ended) in cases {
        assert_eq!(
            ended.how,
            NonHttpEnd::Badly(AttemptFailure::NotStarted, FailureClass::Config),
            "case: {name}: {:?}",
            ended.detail
        );
    }
    fs::set_permissions(&there.exec.program, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        there.run(b"", LONG).await.how,
        NonHttpEnd::Badly(AttemptFailure::NotStarted, FailureClass::Config)
    );
}
