//! Values as text: whole and metered for the filter, shortened for messages.

use std::fmt::{self, Write};

use jaq_json::Val;

use super::{super::meter, Value};

/// Enough to recognize a value in a message.
const MESSAGE_BYTES_MAX: usize = 200;

/// The value as compact JSON.
pub(in super::super) fn metered(val: &Val) -> String {
    let mut text = Metered(String::new());
    // Writing into a string does not fail, and running out of steps does not come back here.
    let _ = write!(text, "{val}");
    text.0
}

struct Metered(String);

impl Write for Metered {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        meter::charge(1 + text.len() / 16);
        self.0.push_str(text);
        Ok(())
    }
}

/// Shows the beginning of something that may be long, and stops working on it there.
pub(in super::super) struct Shortened<'t, T>(pub(in super::super) &'t T);

impl<T: fmt::Display> fmt::Display for Shortened<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut beginning = Beginning(String::new());
        let whole = write!(beginning, "{}", self.0);
        f.write_str(&beginning.0)?;
        if whole.is_err() { f.write_str("…") } else { Ok(()) }
    }
}

struct Beginning(String);

impl Write for Beginning {
    /// Fails when there is no more room, which ends the formatting.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MESSAGE_BYTES_MAX - self.0.len();
        let fitting = &text[..text.floor_char_boundary(room)];
        self.0.push_str(fitting);
        if fitting.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// For messages only, so never long; [`metered`] writes all of it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shortened(&self.val).fmt(f)
    }
}
