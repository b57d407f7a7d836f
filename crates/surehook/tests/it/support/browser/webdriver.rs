//! `WebDriver` on the wire: JSON over HTTP, one call after the other.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};

use super::super::client::Client;

/// Why a call was refused, in the words of the driver.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WebDriverError {
    /// One of the protocol's words, such as `stale element reference`.
    pub(super) error: String,
    pub(super) message: String,
}

/// The connection to one session of a driver.
#[derive(Debug)]
pub(super) struct WebDriverSession {
    client: Client,
    driver: String,
    session: String,
}

impl WebDriverSession {
    pub(super) fn new(port: u16) -> Self {
        let driver = format!("http://127.0.0.1:{port}");
        Self { client: Client::new(), driver, session: String::new() }
    }

    /// Starts the browser; gives back what it is.
    pub(super) async fn open(&mut self, capabilities: &Value) -> Value {
        let wanted = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let opened = self.send("POST", &format!("{}/session", self.driver), &wanted).await;
        let opened = opened.unwrap_or_else(|refusal| panic!("no browser: {refusal:?}"));
        let id = opened["sessionId"].as_str().unwrap();
        self.session = format!("{}/session/{id}", self.driver);
        opened["capabilities"].clone()
    }

    /// Ends the browser and waits until it has.
    pub(super) fn close(&self) {
        let _gone = self.call_blocking("DELETE", "");
    }

    /// A call that neither fails nor needs a runtime, so that it can be made while a test fails.
    pub(super) fn call_blocking(&self, method: &str, path: &str) -> Option<Value> {
        let (address, session) = self.session.strip_prefix("http://")?.split_once('/')?;
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        write!(stream, "{method} /{session}{path} HTTP/1.1\r\nhost: {address}\r\n\r\n").ok()?;
        let mut answer = BufReader::new(stream);
        // The driver keeps the connection, so the length says where the answer ends.
        let (mut line, mut length) = (String::new(), 0);
        while answer.read_line(&mut line).ok()? > 2 {
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            line.clear();
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).ok()?;
        let mut answer: Value = serde_json::from_slice(&body).ok()?;
        Some(answer["value"].take())
    }

    /// A call that may be refused. A dialog fails the test whatever was called: no page of ours
    /// opens one, so something ran that should not have.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, WebDriverError> {
        let answer = self.send(method, &format!("{}{path}", self.session), body).await;
        if let Err(refusal) = &answer {
            assert!(
                refusal.error != "unexpected alert open",
                "a dialog is open: {}",
                refusal.message
            );
        }
        answer
    }

    /// A call that is not refused.
    pub(super) async fn execute(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.call(method, path, body).await;
        answer.unwrap_or_else(|refusal| panic!("{method} {path} {body:.300}: {refusal:?}"))
    }

    async fn send(&self, method: &str, url: &str, body: &Value) -> Result<Value, WebDriverError> {
        let method: Method = method.parse().unwrap();
        let body = if method == Method::POST { body.to_string() } else { String::new() };
        let headers: [(&str, &[u8]); 1] = [("content-type", b"application/json; charset=utf-8")];
        let answer = self.client.send(method, url, &headers, body).await;
        let answer = answer.unwrap_or_else(|error| panic!("chromedriver: {error}"));
        let mut said = answer.json()["value"].take();
        if answer.status == 200 {
            return Ok(said);
        }
        let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
        // The rest of the message is a stack of addresses in the driver.
        let message = text(&said["message"].take());
        let message = message.lines().take(4).collect::<Vec<_>>().join(" ");
        Err(WebDriverError { error: text(&said["error"]), message })
    }
}
