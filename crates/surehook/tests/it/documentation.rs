//! README and docs: every configuration in them is accepted, and the quick start works as written.
//!
//! The word behind `toml` says what an example is: nothing for a settings file, `destination` for fields of a
//! destination, `route` for a file whose sources and destinations are elsewhere, `scenario` for the
//! simulator, `cargo` for a manifest of a program of the reader's own.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    gateway::Gateway,
    process::{Process, run_surehook},
    sink::Sink,
};

/// Values for variables that accept only a special secret.
const SPECIAL: &[(&str, &str)] = &[
    // The public key of RFC 8032, test 1.
    ("PUBLIC_KEY", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    // Adyen's keys are hexadecimal digits.
    ("HMAC_KEY", "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    // The key in the tests of @sendgrid/eventwebhook 8.0.0.
    (
        "VERIFICATION_KEY",
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==",
    ),
];
/// Accepted by all others: long enough, base64, and without characters that a provider forbids.
const SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Name and text of every page for users.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![repository().join("docs")];
    let mut files = vec![repository().join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.retain(|path| !path.components().any(|part| part.as_os_str() == "decisions"));
    files.sort();
    let name = |path: &Path| path.strip_prefix(repository()).unwrap().display().to_string();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The code blocks of a page whose opening line is exactly this language.
pub(crate) fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("\n```{language}\n");
    let rest = page.split(&fence).skip(1);
    rest.map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// A value for every environment variable used in an example.
fn environment(toml: &str) -> Vec<(String, String)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = toml.split("env:").skip(1).map(|rest| rest.split(|c| !is_part(c)).next().unwrap());
    let value = |name: &str| {
        let special = SPECIAL.iter().find(|(end, _)| name.ends_with(end));
        special.map_or(SECRET, |(_, value)| value).to_owned()
    };
    names.map(|name| (name.to_owned(), value(name))).collect()
}

/// The sources and destinations that an example names in its routes and does not have.
fn missing_parts(toml: &str) -> String {
    let table: toml::Table = toml.parse().unwrap();
    let names = |list: &str, field: &str| -> Vec<String> {
        let rows = table.get(list).and_then(toml::Value::as_array).into_iter().flatten();
        rows.filter_map(|row| row.get(field)?.as_str().map(str::to_owned)).collect()
    };
    let mut parts = String::new();
    let (sources, destinations) = (names("sources", "name"), names("destinations", "name"));
    let (mut from, mut to) = (names("routes", "from"), names("routes", "to"));
    from.dedup();
    to.dedup();
    for name in from.iter().filter(|name| !sources.contains(name)) {
        parts += &format!("[[sources]]\nname = \"{name}\"\nverify = \"none\"\n");
    }
    for name in to.iter().filter(|name| !destinations.contains(name)) {
        parts += &format!("[[destinations]]\nname = \"{name}\"\nurl = \"https://example.com/\"\n");
    }
    parts
}

#[tokio::test]
async fn every_toml_example_is_valid_configuration() {
    for (name, page) in pages() {
        let files = blocks(&page, "toml").into_iter().map(str::to_owned);
        let fields = blocks(&page, "toml destination").into_iter().map(|fields| {
            format!("[[destinations]]\nname = \"crm\"\nurl = \"https://example.com/\"\n{fields}")
        });
        let routes = blocks(&page, "toml route").into_iter();
        let routes = routes.map(|route| format!("{route}\n{}", missing_parts(route)));
        for toml in files.chain(fields).chain(routes) {
            // The program of the examples; every system has this one.
            let toml = toml.replace("/opt/hooks/act", "/bin/sh").replace("/opt/hooks", "/bin");
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("surehook.toml"), &toml).unwrap();
            let args = ["config", "check", "surehook.toml"];

            let checked = run_surehook(folder.path(), &args, &environment(&toml)).await;

            assert_eq!(checked.code, Some(0), "{name}: {toml}\n{checked:?}");
            // Readers copy examples, so they must not contain literal secrets.
            for line in toml.lines().filter(|line| line.starts_with("secrets")) {
                let references = line.matches("env:").count() + line.matches("file:").count();
                assert_eq!(line.matches('"').count(), references * 2, "{name}: {line}");
            }
            // The example is valid even when the variables are not set.
            let unset = run_surehook(folder.path(), &args, &[]).await;
            let needs_key = environment(&toml).iter().any(|(_, value)| value != SECRET);
            assert!(needs_key || unset.code == Some(0), "{name}: {unset:?}");
        }
    }
}

#[tokio::test]
async fn every_scenario_example_can_be_simulated() {
    let mut simulated = 0;
    for (name, page) in pages() {
        for toml in blocks(&page, "toml scenario") {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("scenario.toml"), toml).unwrap();
            let args = ["simulate", "--scenario", "scenario.toml", "--deliveries", "100", "--json"];
            let report = run_surehook(folder.path(), &args, &[]).await;
            assert_eq!(report.code, Some(0), "{name}: {toml}\n{report:?}");
            simulated += 1;
        }
    }
    assert!(simulated > 0);
}

#[test]
fn every_toml_example_says_what_it_is() {
    let known = ["", "destination", "route", "scenario", "cargo"];
    for (name, page) in pages() {
        for line in page.lines().filter(|line| line.starts_with("```toml")) {
            let kind = line.trim_start_matches("```toml").trim();
            assert!(known.contains(&kind), "{name}: {line}");
        }
    }
}

/// Runs the lines of an example in a shell, as a reader would, and returns what they print.
async fn run_example(gateway: &Gateway, lines: &str, secret: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_surehook"));
    let programs = gateway.folder().join("programs");
    if !programs.exists() {
        fs::create_dir(&programs).unwrap();
        symlink(binary, programs.join("surehook")).unwrap();
    }
    let address = gateway.address().to_string();
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", &lines.replace("127.0.0.1:8080", &address)])
        .current_dir(gateway.folder())
        .env_clear()
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()))
        .env("SUREHOOK_SERVER", format!("http://{address}"))
        .env("SUREHOOK_TOKEN", gateway.token())
        .env("SHOP_SECRET", secret);
    let mut running = Process::start(shell);
    let status = running.wait_for_exit().await;
    let output = running.stdout.text();
    assert!(status.success(), "{lines}: {output}{}", running.stderr.text());
    output
}

#[tokio::test]
async fn quick_start_works_as_written() {
    let sink = Sink::ok().await;
    let page = fs::read_to_string(repository().join("docs/quick-start.md")).unwrap();
    let [start, login, send, list, serve_shop, send_shop] = blocks(&page, "sh")[..] else {
        panic!("the quick start has other steps than this test");
    };
    assert!(start.ends_with("surehook serve"), "{start}");
    assert!(login.contains("SUREHOOK_TOKEN="), "{login}");
    let mut gateway = Gateway::start_unconfigured().await;

    let first = run_example(&gateway, send, "").await;
    let second = run_example(&gateway, send, "").await;
    let answer: serde_json::Value = serde_json::from_str(&first).unwrap();
    let event = answer["events"][0]["id"].as_str().unwrap();
    assert_eq!(answer["status"], "accepted", "{first}");
    assert!(second.contains("duplicate") && second.contains(event), "{second}");
    let shown =
        run_example(&gateway, &list.replace("evt_01m7f9q6sve58s2feq1vvmsnfm", event), "").await;
    assert!(shown.contains("hello-1"), "{shown}");

    gateway.terminate().await;
    let settings = blocks(&page, "toml")[0].replace("http://127.0.0.1:9000/hook", &sink.url());
    fs::write(gateway.folder().join("surehook.toml"), settings).unwrap();
    let (check, serve) = serve_shop.split_once('\n').unwrap();
    let secret = serve.strip_prefix("SHOP_SECRET=").unwrap().split(' ').next().unwrap();
    assert!(serve.ends_with("surehook serve"), "{serve}");
    run_example(&gateway, check, secret).await;
    gateway.set_env("SHOP_SECRET", secret);
    gateway.restart().await;
    let events = run_example(&gateway, send_shop, secret).await;
    assert!(events.contains("inv-1"), "{events}");
    assert_eq!(
        &sink.wait_for_requests(1).await[0].body[..],
        br#"{"id":"inv-1","type":"invoice.paid"}"#
    );
}
