//! The `chromedriver` between a test and its Chromium.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::tools::chromedriver;

/// Attempts to find a free port. Even with half of all ports taken, 50 failures in a row do not
/// happen.
const TRIES: usize = 50;

/// A running `chromedriver` and the Chromium that it started. Both stop when dropped.
#[derive(Debug)]
pub(super) struct ChromeDriver {
    child: Child,
    /// Kept open: chromedriver exits when it writes to a closed pipe.
    stdout: BufReader<ChildStdout>,
    browser: Option<Pid>,
}

impl ChromeDriver {
    /// Starts chromedriver and returns it with its port.
    pub(super) fn start(folder: &Path) -> (Self, u16) {
        (0..TRIES)
            .find_map(|_| {
                let mut driver = Self::spawn(folder);
                let port = read_port(&mut driver.stdout)?;
                Some((driver, port))
            })
            .expect("chromedriver finds no free port")
    }

    /// The processes stay in the process group of the test, so that a killed test ends them too.
    fn spawn(folder: &Path) -> Self {
        let mut child = Command::new(
            chromedriver().expect("chromedriver is missing; run scripts/setup browser"),
        )
        .arg("--port=0")
        .current_dir(folder)
        // Ignores personal settings and keeps all files in one folder.
        .envs(["HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"].map(|name| (name, folder)))
        .env("TZ", "UTC")
        .env_remove("DISPLAY")
        .env_remove("DBUS_SESSION_BUS_ADDRESS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("chromedriver: {error}; run scripts/setup browser"));
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, browser: None }
    }

    /// Stores the process id of the browser, which outlives a killed chromedriver.
    pub(super) fn set_browser(&mut self, process: &Value) {
        let id = process.as_i64().and_then(|id| i32::try_from(id).ok());
        self.browser = id.and_then(Pid::from_raw);
    }

    pub(super) fn kill(&mut self) {
        // Both have already exited if nothing failed.
        if let Some(browser) = self.browser.take() {
            let _gone = kill_process(browser, Signal::KILL);
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Drop for ChromeDriver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads the port from the last line that chromedriver prints at start. `None` if it exited because
/// the port was taken: it lets the system choose an IPv6 port and then needs the same one of IPv4.
fn read_port(stdout: &mut impl BufRead) -> Option<u16> {
    let mut output = String::new();
    loop {
        let from = output.len();
        if stdout.read_line(&mut output).unwrap() == 0 {
            assert!(output.contains("port not available"), "chromedriver exited: {output}");
            return None;
        }
        let line = output[from..].trim_end().trim_end_matches('.');
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Some(port.parse().unwrap());
        }
    }
}

const OPENING: &str = "Starting ChromeDriver 156.0.8078.79 (a21ce95) on port 0\n\
                       Only local connections are allowed.\n";

#[test]
fn chromedriver_port_is_read_or_none_when_it_is_taken() {
    let cases = [
        ("ChromeDriver was started successfully on port 42855.\n", Some(42_855)),
        ("IPv4 port not available. Exiting...\n", None),
        ("IPv6 port not available. Exiting...\n", None),
    ];
    for (last, port) in cases {
        assert_eq!(read_port(&mut format!("{OPENING}{last}").as_bytes()), port, "{last}");
    }
}

#[test]
#[should_panic = "chromedriver exited: Starting ChromeDriver"]
fn chromedriver_that_exits_early_fails_the_test() {
    read_port(&mut OPENING.as_bytes());
}
