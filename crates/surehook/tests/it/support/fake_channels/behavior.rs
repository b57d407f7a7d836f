//! The behavior of a fake channel when it gets a message.

use std::time::Duration;

use serde_json::Value;

use super::{evolution_errors, meta_errors};

#[derive(Clone, Debug, Default)]
pub(crate) enum ChannelBehavior {
    /// Delivers the message and reports success.
    #[default]
    Send,
    /// Responds with this status and body. The message is not sent.
    Respond(u16, Value),
    /// Delivers the message and responds with this status and body all the same.
    SendThenRespond(u16, Value),
    /// Delivers the message and never responds.
    HangAfterBody,
    /// Delivers the message and closes the connection.
    CloseAfterBody,
    /// Closes the connection. The message is not sent, but the caller cannot know.
    CloseBefore,
    /// Waits, then continues with the inner behavior.
    After(Duration, Box<ChannelBehavior>),
}

impl ChannelBehavior {
    /// Meta's error with this code and its usual status.
    #[track_caller]
    pub(crate) fn code(code: u32) -> Self {
        let status = meta_errors::find(code).statuses[0];
        Self::Respond(status, meta_errors::error(code, ""))
    }

    /// Meta's error as an Evolution API instance on the Cloud API returns it: status 201, and the error
    /// as the body.
    pub(crate) fn code_in_201(code: u32) -> Self {
        Self::Respond(201, meta_errors::error(code, "")["error"].take())
    }

    /// Evolution Go's error with this text, always with status 500.
    pub(crate) fn text(text: &str) -> Self {
        Self::Respond(500, evolution_errors::go_error(text))
    }

    /// Evolution API's response to an exception while sending, always with status 400.
    pub(crate) fn exception(text: &str) -> Self {
        Self::Respond(400, evolution_errors::api_error(400, &Value::from(vec![text])))
    }

    /// Delays the behavior.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self::After(wait, Box::new(self))
    }
}
