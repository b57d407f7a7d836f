//! Values as text: whole and metered for the filter, shortened for messages.

use std::fmt::{self, Write};

use jaq_json::Val;

use super::{super::meter, Value};

/// Enough to recognize a value in a message.
const MESSAGE_BYTES_MAX: usize = 200;

/// The value as compact JSON.
pub(in super::super) fn metered(val: &Val) -> String {
    // Running out of steps does not come back here.
    metered_within(val, usize::MAX).unwrap_or_default()
}

/// The same, or none if that has more than `bytes_max` bytes; no more than those are written.
pub(in super::super) fn metered_within(val: &Val, bytes_max: usize) -> Option<String> {
    let mut text = Metered { text: String::new(), bytes_max };
    write!(text, "{val}").ok()?;
    Some(text.text)
}

struct Metered {
    text: String,
    bytes_max: usize,
}

impl Write for Metered {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        meter::charge(1 + text.len() / 16);
        if text.len() > self.bytes_max - self.text.len() {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
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
