//! `exec` destinations: deliveries to a local program.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::{Gateway, Route},
    process::run_surehook,
};

/// A temporary folder with executable scripts.
struct ProgramFolder(TempDir);

impl ProgramFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes an executable shell script and returns its path.
    fn script(&self, name: &str, script: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// Settings that allow programs in `folder` and route the source `in` to `command`.
    fn settings(&self, folder: &str, command: &str, extra_settings: &str) -> String {
        let mark = self.path("mark");
        let destination = format!(
            r#"
            kind = "exec"
            exec = {{ command = ["{command}", "--flag"], env = {{ API_TOKEN = "env:HOOK_TOKEN", MARK = "{}" }} }}
            {extra_settings}
            "#,
            mark.display(),
        );
        let route = Route { destination: &destination, ..Route::default() };
        format!("allow_exec = [\"{}\"]\n{}", self.path(folder).display(), route.settings())
    }
}

async fn start(settings: &str) -> Gateway {
    Gateway::builder()
        .env("HOOK_TOKEN", "canary")
        .env("SUREHOOK_ALLOW_ENV", "[\"HOOK_TOKEN\"]")
        .settings(settings)
        .start()
        .await
}

/// Waits until a program has written its process id to this file.
async fn read_pid(path: &Path) -> Pid {
    eventually(WAIT_LIMIT, || async {
        let text = fs::read_to_string(path).ok()?;
        Pid::from_raw(text.strip_suffix('\n')?.parse().unwrap())
    })
    .await
}

/// Whether a process is running. A zombie that waits to be reaped is not.
fn is_running(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let is_zombie = stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().starts_with(" Z"));
    test_kill_process(process).is_ok() && !is_zombie
}

#[tokio::test]
async fn program_receives_body_on_stdin_and_event_in_environment() {
    let programs = ProgramFolder::new();
    let script = "echo \"$1|$SUREHOOK_EVENT_ID|$SUREHOOK_DELIVERY_ID|$SUREHOOK_ATTEMPT|$SUREHOOK_SOURCE|$SUREHOOK_KEY|$SUREHOOK_DESTINATION|$SUREHOOK_CONTENT_TYPE|$HOME|$SUREHOOK_ADMIN_TOKEN|${API_TOKEN:+set}\"; cat";
    let program = programs.script("bin/act", script);
    let gateway = start(&programs.settings("bin", &program, "")).await;
    let body = "{\"id\":\"a \\u00e9 1\"}";

    let headers = [("content-type", "application/json")];
    let event = gateway.send_webhook("in", &headers, body).await.expect(200).event_id();

    let delivery = gateway.wait_for_delivery(&event, "succeeded").await;
    let id = delivery["id"].as_str().unwrap();
    let expected = format!("--flag|{event}|{id}|1|in|a é 1|out|application/json|||set\n{body}");
    assert_eq!(delivery["attempt_list"][0]["response"], expected.as_str(), "{delivery}");
    assert_eq!(delivery["attempt_list"][0]["status"], 200);
    let timing = &delivery["attempt_list"][0]["timing"];
    let only_total = timing.as_object().unwrap().iter().filter(|(_, spent)| !spent.is_null());
    assert_eq!(only_total.map(|(name, _)| name).collect::<Vec<_>>(), ["total_ms"]);
}

#[tokio::test]
async fn exit_code_decides_whether_delivery_is_retried() {
    let programs = ProgramFolder::new();
    let script = r#"
        case $(cat) in
        never) echo "not like this" >&2; exit 3 ;;
        later) [ "$SUREHOOK_ATTEMPT" = 2 ] || exit 75 ;;
        killed) [ "$SUREHOOK_ATTEMPT" = 2 ] || kill -9 $$ ;;
        slow) [ "$SUREHOOK_ATTEMPT" = 2 ] || sleep 1000 ;;
        esac"#;
    let program = programs.script("bin/act", script);
    let extra_settings = "timeout = \"1s\"\nretry = { max_attempts = 3, initial_delay = \"10ms\" }";
    let gateway = start(&programs.settings("bin", &program, extra_settings)).await;

    let event = gateway.post_accepted("in", "never").await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "unrecoverable", "{dead}");
    let attempt = &dead["attempt_list"][0];
    assert_eq!((&attempt["class"], &attempt["failure"]), (&json!("permanent"), &json!("exit")));
    assert_eq!(attempt["response"], "not like this\n");
    assert!(attempt["detail"].as_str().unwrap().contains("exit code 3"), "{attempt}");

    for (body, failure) in [("later", "exit"), ("killed", "exit"), ("slow", "timeout")] {
        let event = gateway.post_accepted("in", body).await;
        let done = gateway.wait_for_delivery(&event, "succeeded").await;
        let attempts = done["attempt_list"].as_array().unwrap();
        assert_eq!(attempts.len(), 2, "case: {body}: {done}");
        assert_eq!(attempts[0]["class"], "transient", "case: {body}");
        assert_eq!(attempts[0]["failure"], failure, "case: {body}");
    }
}

#[tokio::test]
async fn program_outside_allow_exec_is_rejected_and_never_run() {
    let programs = ProgramFolder::new();
    let program = programs.script("bin/act", "exit 0");
    let outside = programs.script("other/act", "touch \"$MARK\"");
    symlink(&outside, programs.path("bin/link")).unwrap();
    symlink("/bin", programs.path("bin/folder")).unwrap();
    let gateway = start(&programs.settings("bin", &program, "")).await;
    let path_of = |name: &str| programs.path(name).into_os_string().into_string().unwrap();
    let cases = [
        (json!([outside]), "allow_exec"),
        (json!(["/bin/sh", "-c", "true"]), "allow_exec"),
        (json!([path_of("bin/../other/act")]), "absolute path"),
        (json!([path_of("bin/link")]), "allow_exec"),
        (json!([path_of("bin/folder/sh"), "-c", "true"]), "allow_exec"),
        (json!([path_of("bin/none")]), "does not exist"),
        (json!([path_of("bin")]), "not a file"),
        (json!(["act"]), "absolute path"),
        (json!([]), "command"),
    ];
    for (command, expected_text) in cases {
        let spec = json!({ "name": "evil", "kind": "exec", "exec": { "command": command } });
        let refused = gateway.post("/destinations", &spec).await.expect(422).json();
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(expected_text), "case: {command}: {detail}");
    }
    let exec = json!({ "command": [program], "env": { "LD_PRELOAD": "/tmp/evil.so" } });
    let spec = json!({ "name": "evil", "kind": "exec", "exec": exec });
    gateway.post("/destinations", &spec).await.expect(422);

    // The path was allowed when it was saved; now it is a link to a program outside the folder.
    fs::remove_file(&program).unwrap();
    symlink(&outside, &program).unwrap();
    let event = gateway.post_accepted("in", "{}").await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "invalid_endpoint", "{dead}");
    assert_eq!(dead["attempt_list"][0]["class"], "config");
    assert!(!programs.path("mark").exists(), "a program outside the list was run");
}

#[tokio::test]
async fn stored_exec_destination_is_not_run_without_allow_exec() {
    let programs = ProgramFolder::new();
    let program = programs.script("bin/act", "touch \"$MARK\"");
    let settings = programs.settings("bin", &program, "");
    let mut gateway = start(&settings).await;
    gateway.terminate().await;

    // The destination is stored, and the settings no longer allow any program.
    let rest = settings.split_once("[[sources]]").unwrap().0;
    fs::write(gateway.folder().join("surehook.toml"), settings.replace(rest, "log = \"warn\"\n"))
        .unwrap();
    let env = [("SUREHOOK_ADMIN_TOKEN".to_owned(), "0123456789abcdef".to_owned())];
    let output = run_surehook(gateway.folder(), &["config", "check", "surehook.toml"], &env).await;
    assert_eq!(output.code, Some(78), "{}", output.stderr);
    assert!(output.stderr.contains("allow_exec"), "{}", output.stderr);
    fs::write(gateway.folder().join("surehook.toml"), "").unwrap();
    gateway.restart().await;

    let event = gateway.post_accepted("in", "{}").await;
    let dead = gateway.wait_for_delivery(&event, "dead").await;
    assert_eq!(dead["reason"], "invalid_endpoint", "{dead}");
    assert!(dead["attempt_list"][0]["detail"].as_str().unwrap().contains("allow_exec"), "{dead}");
    assert!(!programs.path("mark").exists(), "it was run");
    let spec = json!({ "name": "new", "kind": "exec", "exec": { "command": [program] } });
    let refused = gateway.post("/destinations", &spec).await.expect(422).json();
    assert!(refused["detail"].as_str().unwrap().contains("allow_exec"), "{refused}");
}

#[tokio::test]
async fn running_program_is_killed_at_shutdown_and_run_again_after_restart() {
    let programs = ProgramFolder::new();
    let script = "[ -e \"$MARK\" ] && exit 0\ntrap '' TERM\nsleep 1000 &\necho $! >\"$MARK\"\nwait";
    let program = programs.script("bin/act", script);
    let settings = programs.settings("bin", &program, "timeout = \"10m\"");
    let mut gateway = start(&format!("shutdown_grace = \"100ms\"\n{settings}")).await;
    let event = gateway.post_accepted("in", "{}").await;
    let process = read_pid(&programs.path("mark")).await;

    gateway.terminate().await;

    eventually(WAIT_LIMIT, || async { (!is_running(process)).then_some(()) }).await;
    gateway.restart().await;
    let done = gateway.wait_for_delivery(&event, "succeeded").await;
    assert_eq!(done["attempt_list"][0]["failure"], "interrupted", "{done}");
}

#[tokio::test]
async fn exec_environment_is_masked_and_http_settings_are_rejected() {
    let programs = ProgramFolder::new();
    let program = programs.script("bin/act", "exit 0");
    let gateway = start(&programs.settings("bin", &program, "")).await;
    let exec = json!({ "command": [program], "env": { "A": "canary", "B": "env:HOOK_TOKEN" } });
    let spec = json!({ "name": "two", "kind": "exec", "exec": exec });

    let created = gateway.post("/destinations", &spec).await.expect(201).json();

    assert_eq!(created["exec"]["env"], json!({ "A": "•••", "B": "env:HOOK_TOKEN" }));
    assert!(!gateway.get("/destinations").await.expect(200).text().contains("canary"));
    assert!(!gateway.log().contains("canary"));
    let cases = [
        ("url", json!("https://example.com")),
        ("headers", json!({ "a": "b" })),
        ("auth", json!({ "bearer": "x" })),
        ("signing_secrets", json!(["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"])),
        ("proxy", json!("http://example.com")),
        ("rules", json!([{ "status": 400, "then": "retry" }])),
        ("stream", json!({ "key": "k" })),
    ];
    for (field, value) in cases {
        let mut spec = json!({ "name": "three", "kind": "exec", "exec": { "command": [program] } });
        spec[field] = value;
        let refused = gateway.post("/destinations", &spec).await.expect(422).json();
        assert!(refused["detail"].as_str().unwrap().contains(field), "case: {field}: {refused}");
    }
    let spec =
        json!({ "name": "three", "url": "https://example.com", "exec": { "command": [program] } });
    gateway.post("/destinations", &spec).await.expect(422);
}
