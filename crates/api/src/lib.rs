//! The HTTP API: the types of its requests and responses, and calls for its clients.
//!
//! The server builds these types, and the OpenAPI document is generated from them. The dashboard and
//! the CLI read them: each function in [`calls`] describes one operation, and a [`ApiTransport`] makes
//! the call, inside the process or over HTTP.

pub mod alerts;
pub mod calls;
mod client;
pub mod configuration;
pub mod dead_letters;
pub mod deliveries;
pub mod events;
pub mod gateway;
pub mod idempotency;
pub mod listen;
pub mod messages;
pub mod nodes;
pub mod quarantine;
pub mod reload;
pub mod replays;
pub mod requests;
pub mod resources;
pub mod stats;
pub mod tokens;
pub mod what_if;

use std::borrow::Cow;

use data_encoding::BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use client::{ApiCall, ApiTransport, CallError, percent_encode};

/// An error response (RFC 9457).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemBody {
    /// `urn:surehook:` followed by the code.
    pub r#type: String,
    /// Reason phrase of the status.
    pub title: String,
    pub status: u16,
    /// Machine-readable error code. Stable.
    pub code: String,
    /// What is wrong and what to do, for people. The text may change.
    pub detail: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct ListResponse<T> {
    pub data: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Cursor>")]
    pub next_cursor: Option<String>,
}

impl<T> Default for ListResponse<T> {
    fn default() -> Self {
        Self { data: Vec::new(), next_cursor: None }
    }
}

/// `next_cursor` of a page: pass it as `cursor` to get the next page. Absent on the last page. A page
/// may be short without being the last.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
pub struct Cursor(#[expect(dead_code, reason = "only its schema is used")] String);

/// Bytes, as text if they are valid UTF-8.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BodyContent {
    Text {
        text: String,
    },
    /// For bytes that are not UTF-8.
    Base64 {
        /// RFC 4648, with padding.
        base64: String,
    },
}

impl JsonSchema for BodyContent {
    fn schema_name() -> Cow<'static, str> {
        "BodyContent".into()
    }

    /// One object with two optional fields: a choice of two objects is hard to use in generated clients.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`text` if the bytes are valid UTF-8, otherwise `base64` (RFC 4648, with padding).",
            "type": "object",
            "properties": { "text": { "type": "string" }, "base64": { "type": "string" } },
        })
    }
}

impl BodyContent {
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text { text } => text.clone().into_bytes(),
            Self::Base64 { base64 } => BASE64.decode(base64.as_bytes()).unwrap_or_default(),
        }
    }

    /// As text; invalid UTF-8 is replaced.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

impl From<&[u8]> for BodyContent {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text { text: text.to_owned() },
            Err(_) => Self::Base64 { base64: BASE64.encode(bytes) },
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HeaderField {
    pub name: String,
    #[serde(flatten)]
    pub value: BodyContent,
}
