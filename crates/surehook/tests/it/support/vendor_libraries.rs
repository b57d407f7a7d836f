//! The vendors' own libraries, which sign and verify webhooks on the other side of a pipe.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use data_encoding::BASE64;
use serde_json::{Value, json};

/// A webhook as a vendor sends it.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    /// The address that the vendor calls.
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Webhook {
    fn as_json(&self) -> Value {
        let headers: serde_json::Map<String, Value> = self
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        json!({ "url": self.url, "headers": headers, "body_base64": BASE64.encode(&self.body) })
    }
}

/// All libraries of one language, in one process. Ends when dropped.
#[derive(Debug)]
pub(crate) struct VendorLibraries {
    language: &'static str,
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    listed: Vec<Value>,
}

impl VendorLibraries {
    /// Those of Python, which are on `PyPI`.
    pub(crate) fn python() -> Self {
        let mut command = Command::new(installed("python/bin/python"));
        command.args(["-c", include_str!("../../vendors/driver.py")]);
        Self::start("Python", command)
    }

    /// Those of Node, which are on npm.
    pub(crate) fn node() -> Self {
        let mut command = Command::new("node");
        // Packages are looked for beside the program, and for this one that is where it runs.
        command.current_dir(installed("node"));
        command.args(["--input-type=module", "--eval", include_str!("../../vendors/driver.mjs")]);
        Self::start("Node", command)
    }

    fn start(language: &'static str, mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut started = Self { language, child, questions, answers, listed: Vec::new() };
        let listed = started.ask(&json!({ "op": "list" }));
        started.listed = listed["libraries"].as_array().unwrap().clone();
        started
    }

    /// The vendors with a library here.
    pub(crate) fn vendors(&self) -> Vec<&str> {
        self.listed.iter().map(|library| library["vendor"].as_str().unwrap()).collect()
    }

    /// The library of a vendor, for people.
    pub(crate) fn name(&self, vendor: &str) -> String {
        let found = self.of(vendor).unwrap();
        let text = |field: &str| found[field].as_str().unwrap();
        format!("{} {} ({})", text("library"), text("version"), self.language)
    }

    pub(crate) fn knows(&self, vendor: &str) -> bool {
        self.of(vendor).is_some()
    }

    pub(crate) fn signs(&self, vendor: &str) -> bool {
        self.of(vendor).is_some_and(|library| library["signs"] == true)
    }

    fn of(&self, vendor: &str) -> Option<&Value> {
        self.listed.iter().find(|library| library["vendor"] == vendor)
    }

    /// A certificate and its key, for vendors that sign with one.
    pub(crate) fn keys(&mut self) -> Value {
        self.ask(&json!({ "op": "keys" }))
    }

    /// The webhook with the vendor's signature on it.
    pub(crate) fn sign(
        &mut self,
        vendor: &str,
        secret: &Value,
        webhook: &Webhook,
        now: i64,
    ) -> Webhook {
        let mut question = webhook.as_json();
        question["op"] = "sign".into();
        question["vendor"] = vendor.into();
        question["secret"] = secret.clone();
        question["now"] = now.into();
        let answer = self.ask(&question);
        let mut signed = webhook.clone();
        for (name, value) in answer["headers"].as_object().unwrap_or_else(|| panic!("{answer}")) {
            signed.headers.push((name.clone(), value.as_str().unwrap().to_owned()));
        }
        if let Some(url) = answer["url"].as_str() {
            url.clone_into(&mut signed.url);
        }
        signed
    }

    /// Whether the library takes the webhook, or why not.
    pub(crate) fn verify(
        &mut self,
        vendor: &str,
        secret: &Value,
        webhook: &Webhook,
    ) -> Result<(), String> {
        let mut question = webhook.as_json();
        question["op"] = "verify".into();
        question["vendor"] = vendor.into();
        question["secret"] = secret.clone();
        let answer = self.ask(&question);
        match answer["ok"].as_bool() {
            Some(true) => Ok(()),
            Some(false) => Err(answer["error"].as_str().unwrap_or("false").to_owned()),
            None => panic!("{} answered {answer}", self.language),
        }
    }

    fn ask(&mut self, question: &Value) -> Value {
        let questions = self.questions.as_mut().unwrap();
        writeln!(questions, "{question}").unwrap();
        questions.flush().unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{} answered {line:?}: {error}", self.language))
    }
}

impl Drop for VendorLibraries {
    fn drop(&mut self) {
        // Without questions there is nothing left to do, and it ends.
        drop(self.questions.take());
        let _ended = self.child.wait();
    }
}

/// Something that `scripts/vendors` has installed. A test without it fails: whoever leaves it out
/// should know.
#[track_caller]
pub(super) fn installed(part: &str) -> PathBuf {
    // Where cargo builds: the program under test is in target/debug.
    let target = Path::new(env!("CARGO_BIN_EXE_surehook")).ancestors().nth(2).unwrap();
    let path = target.join("vendors").join(part);
    assert!(path.exists(), "{} is missing; run scripts/vendors", path.display());
    path
}
