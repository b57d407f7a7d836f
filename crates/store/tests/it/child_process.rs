//! Tests that need their own process, to kill it or to limit its resources.
//!
//! Such a test starts this program again with only itself selected and a folder in the environment;
//! in the child process [`child_folder`] returns that folder.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

const FOLDER: &str = "SUREHOOK_TEST_CHILD_FOLDER";

/// The folder to work in, if this process is the child.
pub(crate) fn child_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Starts `test` as a child process on `folder`. `wrapper` is a command that runs its last argument.
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
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Sends a line to the parent process.
pub(crate) fn report(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "child: {word}").unwrap();
    out.flush().unwrap();
}

/// The lines that the child process reports until it ends.
pub(crate) fn reported_lines(out: ChildStdout) -> impl Iterator<Item = String> {
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    // The test harness may have written the start of the line.
    lines.filter_map(|line| line.split_once("child: ").map(|(_, word)| word.to_owned()))
}
