//! jq filters: which events a route takes, what it makes of them, and keys that no pointer can reach.
//!
//! A [`JqFilter`] is compiled once and then used on any number of events from any thread. A
//! [`JsonInput`] is a body read once and then given to all filters that want to see it.
//!
//! Filters are written by the operator and run on whatever the internet sends, on the thread that
//! serves the request. So a run is bounded, without threads and without a clock:
//!
//! - **Work.** Each term that is evaluated and each operation on a value costs steps, and a run has
//!   [`STEPS_MAX`] of them, a fraction of a second. An endless loop, `range(.n)`, `"x" * .n` or a
//!   costly pattern ends in [`JqError::TooMuchWork`]. The same count bounds the memory, to some
//!   tens of megabytes.
//! - **Stack.** Input is at most 128 levels deep, values made by a filter 256, and a run that uses
//!   more than 512 KiB of stack ends in [`JqError::TooDeep`].
//! - **World.** No environment, no clock, no time zone, no files, no modules, no logging, no halt.
//! - **Panics** of jaq end the run as [`JqError::Internal`].
//!
//! What a step costs is an estimate, so the time of the worst run is known only roughly. A filter
//! that needs a large part of the steps for ordinary events is too slow for this place.
//!
//! The language is jaq's, which is jq's with a few differences. Integers are exact at any size, and
//! other numbers keep their spelling until something is computed with them.

mod check;
mod input;
mod meter;
mod natives;
#[cfg(test)]
mod tests;
mod value;

use std::{fmt, thread};

use jaq_core::{
    Compiler, Ctx, Error, Filter, ValT as _, Vars,
    compile::Undefined,
    load::{Arena, File, Loader},
};
use jaq_json::Val;
use jaq_std::ValT as _;
use serde::de::IgnoredAny;

pub use self::input::{JsonInput, ParseJsonInputError};
use self::{
    meter::{Data, JqStopReason, Terms},
    value::Value,
};

/// The steps that one run may take. Even an unoptimized build does them in 0.1 to 0.7 s.
pub const STEPS_MAX: u64 = 1_000_000;

/// The longest text that [`JqFilter::first`] and [`JqFilter::transform`] give back.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// jaq's parser and compiler recurse with the structure of a filter, in an unoptimized build some
/// 10 KiB for each token. A thread of their own has room for the longest filter.
const STACK_BYTES: usize = 16 << 20;

/// Why a filter cannot be used, or came to no result on an event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JqError {
    /// The filter is malformed.
    #[error("filter, line {line}, column {column}: expected {expected}, found {found}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What could have stood there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// The filter uses something that does not exist, or not here.
    #[error("filter, line {line}, column {column}: {what}")]
    Undefined {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// What is missing, by name.
        what: String,
    },
    /// The filter is too long or nested too deeply.
    #[error("the filter is too long or nested too deeply")]
    TooLarge,
    /// The filter raised an error on this event, such as indexing a string.
    #[error("the filter failed: {message}")]
    Runtime {
        /// jq's message, shortened.
        message: String,
    },
    /// The run took all its steps.
    #[error("the filter did not end within {STEPS_MAX} steps")]
    TooMuchWork,
    /// The filter made calls within calls, or values within values, without end.
    #[error("the filter nests calls or values too deeply")]
    TooDeep,
    /// The result is longer than [`OUTPUT_BYTES_MAX`].
    #[error("the result of the filter is longer than {OUTPUT_BYTES_MAX} bytes")]
    LongOutput,
    /// A transform has one output, or none.
    #[error("the transform has more than one output; put them into an array")]
    ManyOutputs,
    /// The result is something that JSON cannot say, such as `nan`.
    #[error("the result of the transform is not JSON")]
    ParseJsonInputError,
    /// A bug in the interpreter.
    #[error("the filter could not be run to its end")]
    Internal,
}

impl JqError {
    /// A stable word for it. Unlike the message it holds nothing of the event.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "syntax",
            Self::Undefined { .. } => "undefined",
            Self::TooLarge => "too_large",
            Self::Runtime { .. } => "runtime",
            Self::TooMuchWork => "too_much_work",
            Self::TooDeep => "too_deep",
            Self::LongOutput => "long_output",
            Self::ManyOutputs => "many_outputs",
            Self::ParseJsonInputError => "result_not_json",
            Self::Internal => "internal",
        }
    }
}

/// One result of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JqOutput {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it is spelled in the input if it comes from there.
    Number(String),
    /// A string.
    Text(String),
    /// An array or object, as compact JSON.
    Json(String),
}

/// A compiled filter.
pub struct JqFilter {
    text: String,
    filter: Filter<Data>,
}

impl JqFilter {
    /// Compiles a filter, or tells what is wrong with it and where. Takes milliseconds: not for
    /// every request.
    pub fn compile(text: &str) -> Result<Self, JqError> {
        let filter = thread::scope(|scope| {
            let compiler = thread::Builder::new().stack_size(STACK_BYTES);
            let compiled = compiler.spawn_scoped(scope, || compile(text)).map(|it| it.join());
            // There was no thread to be had, or jaq panicked on it.
            compiled.map_or(Err(JqError::Internal), |it| it.unwrap_or(Err(JqError::Internal)))
        })?;
        Ok(Self { text: text.to_owned(), filter })
    }

    /// The filter as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first output of the filter; none if it has none.
    pub fn first(&self, input: &JsonInput) -> Result<Option<JqOutput>, JqError> {
        self.run(input, |value| output(&value))?.transpose()
    }

    /// Whether the first output is neither `false` nor `null`. Without an output it is false.
    pub fn is_match(&self, input: &JsonInput) -> Result<bool, JqError> {
        self.run(input, |value| value.as_bool()).map(|output| output.unwrap_or(false))
    }

    /// The only output of the filter, as compact JSON; none if it has none. Numbers that nothing was
    /// computed with are spelled as they came.
    pub fn transform(&self, input: &JsonInput) -> Result<Option<String>, JqError> {
        let text = self.outputs(input, |outputs| {
            let Some(first) = outputs.next().transpose()? else { return Ok(None) };
            if outputs.next().transpose()?.is_some() {
                return Err(JqError::ManyOutputs);
            }
            let text = value::metered_within(first.val(), OUTPUT_BYTES_MAX);
            text.map(Some).ok_or(JqError::LongOutput)
        })?;
        // jaq has values that JSON does not: byte strings, infinities, what is not a number.
        let is_json = |text: &String| serde_json::from_str::<IgnoredAny>(text).is_ok();
        if text.as_ref().is_none_or(is_json) { Ok(text) } else { Err(JqError::ParseJsonInputError) }
    }

    fn run<T>(
        &self,
        input: &JsonInput,
        take: impl FnOnce(Value) -> T,
    ) -> Result<Option<T>, JqError> {
        self.outputs(input, |outputs| Ok(outputs.next().transpose()?.map(take)))
    }

    fn outputs<T>(
        &self,
        input: &JsonInput,
        take: impl FnOnce(&mut dyn Iterator<Item = Result<Value, JqError>>) -> Result<T, JqError>,
    ) -> Result<T, JqError> {
        let run = || {
            let context = Ctx::<Data>::new(Terms(&self.filter.lut), Vars::new([]));
            let outputs = self.filter.id.run((context, Value::from(input)));
            // What is no error would be a `halt`, which does not exist here.
            take(&mut outputs.map(|output| {
                output.map_err(|thrown| thrown.get_err().map_or(JqError::Internal, failed))
            }))
        };
        meter::within(STEPS_MAX, run)?
    }
}

fn failed(error: Error<Value>) -> JqError {
    let error = error.into_val();
    // A text is shown as it is, without the quotes it would have as a value.
    let message = match error.as_utf8_bytes() {
        Some(text) => value::Shortened(&String::from_utf8_lossy(text)).to_string(),
        None => error.to_string(),
    };
    JqError::Runtime { message }
}

impl From<JqStopReason> for JqError {
    fn from(stopped: JqStopReason) -> Self {
        match stopped {
            JqStopReason::TooMuchWork => Self::TooMuchWork,
            JqStopReason::TooDeep => Self::TooDeep,
            JqStopReason::Panicked => Self::Internal,
        }
    }
}

impl fmt::Debug for JqFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Jq").field(&self.text).finish()
    }
}

fn compile(text: &str) -> Result<Filter<Data>, JqError> {
    check::check(text)?;
    let arena = Arena::default();
    let file = File { code: text, path: () };
    let modules = Loader::new(natives::defs()).load(&arena, file).map_err(|_| JqError::Internal)?;
    Compiler::default().with_funs(natives::funs()).compile(modules).map_err(|errors| {
        let first = errors.iter().flat_map(|(_, undefined)| undefined).next();
        first.map_or(JqError::Internal, |(name, kind)| undefined(text, name, kind))
    })
}

fn undefined(text: &str, name: &str, kind: &Undefined) -> JqError {
    let (line, column) = check::position(text, name);
    let what = match kind {
        Undefined::Filter(_) if natives::is_left_out(name) => {
            format!("`{name}` is not available here; a filter sees the event and nothing else")
        }
        Undefined::Filter(arity) => format!("there is no filter `{name}` with {arity} arguments"),
        // The enum may grow.
        Undefined::Mod | Undefined::Var | Undefined::Label | _ => {
            format!("there is no {} `{name}`", kind.as_str())
        }
    };
    JqError::Undefined { line, column, what }
}

fn output(value: &Value) -> Result<JqOutput, JqError> {
    let text = match value.val() {
        Val::Null => return Ok(JqOutput::Null),
        Val::Bool(value) => return Ok(JqOutput::Bool(*value)),
        Val::TStr(bytes) | Val::BStr(bytes) => text(bytes)?,
        printed @ (Val::Num(_) | Val::Arr(_) | Val::Obj(_)) => value::metered(printed),
    };
    if text.len() > OUTPUT_BYTES_MAX {
        return Err(JqError::LongOutput);
    }
    Ok(match value.val() {
        Val::Num(_) => JqOutput::Number(text),
        Val::Arr(_) | Val::Obj(_) => JqOutput::Json(text),
        Val::Null | Val::Bool(_) | Val::TStr(_) | Val::BStr(_) => JqOutput::Text(text),
    })
}

fn text(bytes: &[u8]) -> Result<String, JqError> {
    // Only `implode` and `@base64d` can make such a string.
    let text = std::str::from_utf8(bytes);
    text.map(ToOwned::to_owned)
        .map_err(|_| JqError::Runtime { message: "the result is not UTF-8".to_owned() })
}
