//! The vendors' own libraries, which sign and verify webhooks in a child process.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::tools::vendor_file;

/// A webhook as a vendor sends it.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    /// The URL that the vendor calls.
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

/// All libraries of one language in one child process. Stops when dropped.
#[derive(Debug)]
pub(crate) struct VendorLibraries {
    language: &'static str,
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    libraries: Vec<Value>,
}

impl VendorLibraries {
    /// Starts the Python libraries.
    pub(crate) fn python() -> Self {
        let mut command = Command::new(vendor_file("python/bin/python"));
        command.args(["-c", include_str!("../../vendors/driver.py")]);
        Self::start("Python", command)
    }

    /// Starts the Node libraries.
    pub(crate) fn node() -> Self {
        let mut command = Command::new("node");
        // Node resolves the packages of a script given by --eval from the working folder.
        command.current_dir(vendor_file("node"));
        command.args(["--input-type=module", "--eval", include_str!("../../vendors/driver.mjs")]);
        Self::start("Node", command)
    }

    fn start(language: &'static str, mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take();
        let responses = BufReader::new(child.stdout.take().unwrap());
        let mut vendor = Self { language, child, requests, responses, libraries: Vec::new() };
        let response = vendor.request(&json!({ "op": "list" }));
        vendor.libraries = response["libraries"].as_array().unwrap().clone();
        vendor
    }

    /// The vendors that have a library in this language.
    pub(crate) fn vendors(&self) -> Vec<&str> {
        self.libraries.iter().map(|library| library["vendor"].as_str().unwrap()).collect()
    }

    /// Name and version of a vendor's library, for failure messages.
    pub(crate) fn name(&self, vendor: &str) -> String {
        let library = self.find(vendor).unwrap();
        let text = |field: &str| library[field].as_str().unwrap();
        format!("{} {} ({})", text("library"), text("version"), self.language)
    }

    pub(crate) fn has_library(&self, vendor: &str) -> bool {
        self.find(vendor).is_some()
    }

    pub(crate) fn can_sign(&self, vendor: &str) -> bool {
        self.find(vendor).is_some_and(|library| library["signs"] == true)
    }

    fn find(&self, vendor: &str) -> Option<&Value> {
        self.libraries.iter().find(|library| library["vendor"] == vendor)
    }

    /// Generates a certificate and its key, for vendors that sign with one.
    pub(crate) fn generate_keys(&mut self) -> Value {
        self.request(&json!({ "op": "keys" }))
    }

    /// Adds the vendor's signature to a webhook.
    pub(crate) fn sign(
        &mut self,
        vendor: &str,
        secret: &Value,
        webhook: &Webhook,
        now: i64,
    ) -> Webhook {
        let mut request = webhook.as_json();
        request["op"] = "sign".into();
        request["vendor"] = vendor.into();
        request["secret"] = secret.clone();
        request["now"] = now.into();
        let response = self.request(&request);
        let mut signed = webhook.clone();
        for (name, value) in response["headers"].as_object().unwrap_or_else(|| panic!("{response}"))
        {
            signed.headers.push((name.clone(), value.as_str().unwrap().to_owned()));
        }
        if let Some(url) = response["url"].as_str() {
            url.clone_into(&mut signed.url);
        }
        signed
    }

    /// Verifies a webhook with the library; the error is the library's reason.
    pub(crate) fn verify(
        &mut self,
        vendor: &str,
        secret: &Value,
        webhook: &Webhook,
    ) -> Result<(), String> {
        let mut request = webhook.as_json();
        request["op"] = "verify".into();
        request["vendor"] = vendor.into();
        request["secret"] = secret.clone();
        let response = self.request(&request);
        match response["ok"].as_bool() {
            Some(true) => Ok(()),
            Some(false) => Err(response["error"].as_str().unwrap_or("false").to_owned()),
            None => panic!("{} responded {response}", self.language),
        }
    }

    fn request(&mut self, request: &Value) -> Value {
        let requests = self.requests.as_mut().unwrap();
        writeln!(requests, "{request}").unwrap();
        requests.flush().unwrap();
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{} responded {line:?}: {error}", self.language))
    }
}

impl Drop for VendorLibraries {
    fn drop(&mut self) {
        // The process exits when its input is closed.
        drop(self.requests.take());
        let _ended = self.child.wait();
    }
}
