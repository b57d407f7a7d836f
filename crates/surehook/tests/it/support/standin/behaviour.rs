//! What a service does with a message.

use std::time::Duration;

use serde_json::Value;

use super::{evolution_texts, meta_codes};

/// What a service does with a message.
#[derive(Clone, Debug, Default)]
pub(crate) enum Behaviour {
    /// Sends it and says so.
    #[default]
    Take,
    /// Gives this answer. The message is not sent.
    Answer(u16, Value),
    /// Sends it and gives this answer all the same.
    TakeThenAnswer(u16, Value),
    /// Sends it and never answers, as long as the caller waits.
    HangAfterBody,
    /// Sends it and closes the connection.
    CloseAfterBody,
    /// Closes the connection. The message is not sent, which the caller cannot know.
    CloseBefore,
    /// First waits.
    After(Duration, Box<Behaviour>),
}

impl Behaviour {
    /// Meta's error with this code, with the status that the list names first.
    #[track_caller]
    pub(crate) fn code(code: u32) -> Self {
        let status = meta_codes::find(code).statuses[0];
        Self::Answer(status, meta_codes::error(code, ""))
    }

    /// The same from an Evolution API instance on the Cloud API: 201, and the error as the body.
    pub(crate) fn code_in_201(code: u32) -> Self {
        Self::Answer(201, meta_codes::error(code, "")["error"].take())
    }

    /// Evolution Go's answer with this text, which is 500 whatever it says.
    pub(crate) fn text(text: &str) -> Self {
        Self::Answer(500, evolution_texts::go_error(text))
    }

    /// Evolution API's answer to an exception while it sent, which is 400 whatever it was.
    pub(crate) fn exception(text: &str) -> Self {
        Self::Answer(400, evolution_texts::api_error(400, &Value::from(vec![text])))
    }

    /// The same, later.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self::After(wait, Box::new(self))
    }
}
