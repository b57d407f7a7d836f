//! The `chromedriver` between a test and its Chromium.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::program;

/// How often another port is asked for. Even if half of all ports were taken, as many tries in a row
/// would not fail once in a lifetime.
const TRIES: usize = 50;

/// A running `chromedriver`, and the Chromium that it started. Both end when it is dropped.
#[derive(Debug)]
pub(super) struct ChromeDriver {
    child: Child,
    /// Kept open: whoever writes to a closed pipe ends.
    said: BufReader<ChildStdout>,
    browser: Option<Pid>,
}

impl ChromeDriver {
    /// A driver that listens, and its port.
    pub(super) fn start(folder: &Path) -> (Self, u16) {
        (0..TRIES)
            .find_map(|_| {
                let mut driver = Self::spawn(folder);
                let port = read_port(&mut driver.said)?;
                Some((driver, port))
            })
            .expect("chromedriver finds no free port")
    }

    /// They stay in the process group of the test, so that a test that is killed takes them along.
    fn spawn(folder: &Path) -> Self {
        let mut child = Command::new(program("SUREHOOK_CHROMEDRIVER", "chromedriver"))
            .arg("--port=0")
            .current_dir(folder)
            // Nothing of a person's own settings, and all that is left behind in one place.
            .envs(
                ["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].map(|name| (name, folder)),
            )
            .env("TZ", "UTC")
            .env_remove("DISPLAY")
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; run scripts/browser"));
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said, browser: None }
    }

    /// Remembers the browser, which outlives a driver that is killed.
    pub(super) fn started(&mut self, process: &Value) {
        let id = process.as_i64().and_then(|id| i32::try_from(id).ok());
        self.browser = id.and_then(Pid::from_raw);
    }

    pub(super) fn end(&mut self) {
        // Both are gone already if all went well.
        if let Some(browser) = self.browser.take() {
            let _gone = kill_process(browser, Signal::KILL);
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Drop for ChromeDriver {
    fn drop(&mut self) {
        self.end();
    }
}

/// The port on which a driver listens; it says so in its last line. None if it ended because that
/// port was taken: it lets the system choose one of IPv6 and then wants the same of IPv4, where
/// anybody may have it.
fn read_port(said: &mut impl BufRead) -> Option<u16> {
    let mut told = String::new();
    loop {
        let from = told.len();
        if said.read_line(&mut told).unwrap() == 0 {
            assert!(told.contains("port not available"), "chromedriver ended: {told}");
            return None;
        }
        let line = told[from..].trim_end().trim_end_matches('.');
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Some(port.parse().unwrap());
        }
    }
}

const OPENING: &str = "Starting ChromeDriver 156.0.8078.79 (a21ce95) on port 0\n\
                       Only local connections are allowed.\n";

#[test]
fn a_driver_is_heard_when_it_listens_and_when_its_port_is_taken() {
    let said = [
        ("ChromeDriver was started successfully on port 42855.\n", Some(42_855)),
        ("IPv4 port not available. Exiting...\n", None),
        ("IPv6 port not available. Exiting...\n", None),
    ];
    for (last, port) in said {
        assert_eq!(read_port(&mut format!("{OPENING}{last}").as_bytes()), port, "{last}");
    }
}

#[test]
#[should_panic = "chromedriver ended: Starting ChromeDriver"]
fn a_driver_that_ends_for_another_reason_fails_the_test() {
    read_port(&mut OPENING.as_bytes());
}
