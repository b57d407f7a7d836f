//! The `WebDriver` protocol: JSON over HTTP, one call after the other.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};

use super::super::client::Client;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct WebDriverError {
    /// An error code of the protocol, such as `stale element reference`.
    pub(super) code: String,
    pub(super) message: String,
}

/// One session of a chromedriver.
#[derive(Debug)]
pub(super) struct WebDriverSession {
    client: Client,
    driver_url: String,
    /// Empty until the session is opened.
    session_url: String,
}

impl WebDriverSession {
    pub(super) fn new(port: u16) -> Self {
        let driver_url = format!("http://127.0.0.1:{port}");
        Self { client: Client::new(), driver_url, session_url: String::new() }
    }

    /// Starts the browser and returns its capabilities.
    pub(super) async fn open(&mut self, capabilities: &Value) -> Value {
        let request = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let opened = self.send("POST", &format!("{}/session", self.driver_url), &request).await;
        let opened = opened.unwrap_or_else(|error| panic!("no browser: {error:?}"));
        let id = opened["sessionId"].as_str().unwrap();
        self.session_url = format!("{}/session/{id}", self.driver_url);
        opened["capabilities"].clone()
    }

    /// Closes the browser and waits until it has exited.
    pub(super) fn close(&self) {
        let _closed = self.call_blocking("DELETE", "");
    }

    /// Makes a call that neither panics nor needs a runtime, so that it works while a test fails.
    pub(super) fn call_blocking(&self, method: &str, path: &str) -> Option<Value> {
        let (address, session) = self.session_url.strip_prefix("http://")?.split_once('/')?;
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "{method} /{session}{path} HTTP/1.1\r\nhost: {address}\r\n\r\n").ok()?;
        let mut response = BufReader::new(stream);
        // chromedriver keeps the connection open, so the length tells where the response ends.
        let (mut line, mut length) = (String::new(), 0);
        while response.read_line(&mut line).ok()? > 2 {
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        response.read_exact(&mut body).ok()?;
        let mut response: Value = serde_json::from_slice(&body).ok()?;
        Some(response["value"].take())
    }

    /// Makes a call that may fail. An open dialog fails the test: no page of ours opens one, so foreign
    /// code ran.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, WebDriverError> {
        let result = self.send(method, &format!("{}{path}", self.session_url), body).await;
        if let Err(error) = &result {
            assert!(error.code != "unexpected alert open", "a dialog is open: {}", error.message);
        }
        result
    }

    /// Makes a call that must succeed.
    pub(super) async fn execute(&self, method: &str, path: &str, body: &Value) -> Value {
        let result = self.call(method, path, body).await;
        result.unwrap_or_else(|error| panic!("{method} {path} {body:.300}: {error:?}"))
    }

    async fn send(&self, method: &str, url: &str, body: &Value) -> Result<Value, WebDriverError> {
        let method: Method = method.parse().unwrap();
        let body = if method == Method::POST { body.to_string() } else { String::new() };
        let headers: [(&str, &[u8]); 1] = [("content-type", b"application/json; charset=utf-8")];
        let response = self.client.send(method, url, &headers, body).await;
        let response = response.unwrap_or_else(|error| panic!("chromedriver: {error}"));
        let mut value = response.json()["value"].take();
        if response.status == 200 {
            return Ok(value);
        }
        let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
        // The rest of the message is a stack trace of chromedriver.
        let message = text(&value["message"].take());
        let message = message.lines().take(4).collect::<Vec<_>>().join(" ");
        Err(WebDriverError { code: text(&value["error"]), message })
    }
}
