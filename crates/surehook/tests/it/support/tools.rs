//! Tools that `scripts/setup` finds or installs below `target/`: vendor libraries, client generators,
//! interpreters, Redis, a browser.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Set to `1` in the environment, tests whose tool is missing are skipped instead of failing.
const ALLOW_SKIPPED: &str = "SUREHOOK_ALLOW_SKIPPED";

/// A part of `scripts/setup` that some tests need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tool {
    Assistants,
    Browser,
    Clients,
    Faketime,
    Interpreters,
    Nginx,
    Otlp,
    Packaging,
    Proxies,
    Promtool,
    Redis,
    Smtp,
    Vendors,
}

impl Tool {
    fn setup_part(self) -> &'static str {
        match self {
            Self::Assistants => "assistants",
            Self::Browser => "browser",
            Self::Clients => "clients",
            Self::Faketime => "faketime",
            Self::Interpreters => "interpreters",
            Self::Nginx => "nginx",
            Self::Otlp => "otlp",
            Self::Packaging => "packaging",
            Self::Proxies => "proxies",
            Self::Promtool => "promtool",
            Self::Redis => "redis",
            Self::Smtp => "smtp",
            Self::Vendors => "vendors",
        }
    }

    fn is_installed(self) -> bool {
        match self {
            Self::Assistants => assistant_python().exists(),
            Self::Browser => chromium().is_some() && chromedriver().is_some(),
            Self::Clients => {
                client_generator("python").exists() && client_generator("node").exists()
            }
            Self::Faketime => target().join("faketime/libfaketime.so.1").exists(),
            Self::Interpreters => {
                let is_program = |name: &str| Command::new(name).arg("--version").output().is_ok();
                interpreter_file("python").exists()
                    && interpreter_file("node").exists()
                    && ["ruby", "sidekiq", "php"].into_iter().all(is_program)
            }
            Self::Nginx => target().join("nginx/nginx").exists(),
            Self::Otlp => otlp_file("rotel-agent").exists(),
            Self::Packaging => {
                let is_program = |name: &str| Command::new(name).arg("--version").output().is_ok();
                is_program("systemd-analyze") && packaging_tool("taplo").exists()
            }
            Self::Proxies => proxy_program("caddy").is_some() && proxy_program("nginx").is_some(),
            Self::Promtool => promtool().exists(),
            Self::Redis => redis_server().is_some(),
            Self::Smtp => smtp_python().exists(),
            Self::Vendors => vendor_file("python").exists() && vendor_file("node").exists(),
        }
    }

    /// Whether the tool is installed. Fails the test if it is not, so that no test is left out
    /// unnoticed; with `SUREHOOK_ALLOW_SKIPPED=1` returns `false`, and the test returns at once.
    #[track_caller]
    #[expect(clippy::print_stderr, reason = "the output of a test run shows what was skipped")]
    pub(crate) fn is_available(self) -> bool {
        if self.is_installed() {
            return true;
        }
        let part = self.setup_part();
        let is_skip_allowed = std::env::var_os(ALLOW_SKIPPED).is_some_and(|value| value == "1");
        assert!(
            is_skip_allowed,
            "{part} is not installed; run scripts/setup {part}, or set {ALLOW_SKIPPED}=1 to skip"
        );
        eprintln!("skipped: {part} is not installed; run scripts/setup {part}");
        false
    }
}

/// The target folder of cargo: the binary under test is in `target/debug`.
pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_surehook")).ancestors().nth(2).unwrap()
}

/// A file of the vendor libraries.
pub(super) fn vendor_file(path: &str) -> PathBuf {
    target().join("vendors").join(path)
}

/// Python with the client of the Model Context Protocol.
pub(crate) fn assistant_python() -> PathBuf {
    target().join("assistants/python/bin/python")
}

/// The checker of rules for Prometheus.
pub(crate) fn promtool() -> PathBuf {
    target().join("promtool/promtool")
}

/// The Python of the mail server.
pub(crate) fn smtp_python() -> PathBuf {
    target().join("smtp/bin/python")
}

/// The collector of OpenTelemetry, or Python with its published messages.
pub(crate) fn otlp_file(path: &str) -> PathBuf {
    target().join("otlp").join(path)
}

/// A file of the generators of API clients.
pub(crate) fn client_generator(path: &str) -> PathBuf {
    target().join("clients").join(path)
}

/// A file of the web frameworks for Python and Node.
pub(crate) fn interpreter_file(path: &str) -> PathBuf {
    target().join("interpreters").join(path)
}

/// The library that shows a program another time; empty if it is missing and that is allowed.
pub(crate) fn faketime_library() -> String {
    match Tool::Faketime.is_available() {
        true => target().join("faketime/libfaketime.so.1").display().to_string(),
        false => String::new(),
    }
}

/// A program that checks packages.
pub(crate) fn packaging_tool(name: &str) -> PathBuf {
    target().join("packaging/bin").join(name)
}

/// Caddy or nginx, if `scripts/setup` found or unpacked it.
pub(crate) fn proxy_program(name: &str) -> Option<PathBuf> {
    let folder = if name == "nginx" { "nginx" } else { "proxies" };
    Some(target().join(folder).join(name)).filter(|path| path.exists())
}

/// Whether this system has user namespaces; scripts/test reports those that have not.
pub(crate) fn can_unshare() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "--net",
        "ip",
        "link",
        "set",
        "lo",
        "up",
    ]);
    unshare.output().is_ok_and(|output| output.status.success())
}

pub(super) fn chromium() -> Option<PathBuf> {
    find_browser_program("SUREHOOK_CHROMIUM", "chromium")
}

pub(super) fn chromedriver() -> Option<PathBuf> {
    find_browser_program("SUREHOOK_CHROMEDRIVER", "chromedriver")
}

/// The program that the environment names, that `scripts/setup` linked, or that the system has.
fn find_browser_program(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let paths = [target().join("browser").join(name), PathBuf::from("/usr/bin").join(name)];
    paths.into_iter().find(|path| path.exists())
}

/// The server that `scripts/setup` linked, or the one of the system.
pub(super) fn redis_server() -> Option<PathBuf> {
    let linked = target().join("redis/redis-server");
    if linked.exists() {
        return Some(linked);
    }
    let version = Command::new("redis-server").arg("--version").output();
    version.is_ok_and(|output| output.status.success()).then(|| "redis-server".into())
}
