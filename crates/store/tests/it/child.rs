//! Tests that need a process of their own: to be killed, or to live under a limit.
//!
//! Such a test starts this very program again, with only itself selected and a folder in the
//! environment; the copy finds the folder there and plays the other part.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

const FOLDER: &str = "SUREHOOK_TEST_CHILD_FOLDER";

/// The folder to work in, if this process is the child.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Starts `test` as a child on `folder`, through `wrapper`: a program whose last argument it is.
pub(crate) fn start(test: &str, folder: &OsStr, wrapper: &[&str]) -> Child {
    let this = std::env::current_exe().unwrap();
    let mut command = match wrapper {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command
        .args(["--exact", test, "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Tells the parent something that is true from now on.
pub(crate) fn tell(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "child: {word}").unwrap();
    out.flush().unwrap();
}

/// What the child tells, until it ends.
pub(crate) fn told(out: ChildStdout) -> impl Iterator<Item = String> {
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    // The test harness may have begun a line of its own before ours.
    lines.filter_map(|line| line.split_once("child: ").map(|(_, word)| word.to_owned()))
}
