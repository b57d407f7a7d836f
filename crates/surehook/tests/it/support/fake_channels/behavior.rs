//! What a service does with a message.

use std::time::Duration;

use serde_json::Value;

use super::{evolution_errors, meta_errors};

/// What a service does with a message.
#[derive(Clone, Debug, Default)]
pub(crate) enum ChannelBehavior {
    /// Delivers the message and reports success.
    #[default]
    Send,
    /// Responds with this status and body. The message is not sent.
    Respond(u16, Value),
    /// Delivers the message and responds with this status and body all the same.
    SendThenRespond(u16, Value),
    /// Sends it and never answers, as long as the caller waits.
    HangAfterBody,
    /// Sends it and closes the connection.
    CloseAfterBody,
    /// Closes the connection. The message is not sent, which the caller cannot know.
    CloseBefore,
    /// First waits.
    After(Duration, Box<ChannelBehavior>),
}

impl ChannelBehavior {
    /// Meta's error with this code, with the status that the list names first.
    #[track_caller]
    pub(crate) fn code(code: u32) -> Self {
        let status = meta_errors::find(code).statuses[0];
        Self::Respond(status, meta_errors::error(code, ""))
    }

    /// The same from an Evolution API instance on the Cloud API: 201, and the error as the body.
    pub(crate) fn code_in_201(code: u32) -> Self {
        Self::Respond(201, meta_errors::error(code, "")["error"].take())
    }

    /// Evolution Go's answer with this text, which is 500 whatever it says.
    pub(crate) fn text(text: &str) -> Self {
        Self::Respond(500, evolution_errors::go_error(text))
    }

    /// Evolution API's answer to an exception while it sent, which is 400 whatever it was.
    pub(crate) fn exception(text: &str) -> Self {
        Self::Respond(400, evolution_errors::api_error(400, &Value::from(vec![text])))
    }

    /// The same, later.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self::After(wait, Box::new(self))
    }
}
