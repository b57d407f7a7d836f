//! jq filters for routes (match and transform) and for keys that no JSON pointer can reach.
//!
//! A [`JqFilter`] is compiled once, when it is first used, and used from any thread; a [`JsonInput`] is
//! parsed once per body. A compiled filter contains only those built-in filters that it can reach.
//! Filters of routes also see [`EventVariables`].
//!
//! Filters run on untrusted input, on the thread that serves the request, so every run is bounded:
//!
//! - **Work**: at most [`STEPS_MAX`] steps, else [`JqError::TooMuchWork`]. This also bounds memory, to
//!   some tens of megabytes. The cost of a step is an estimate.
//! - **Stack**: input 128 levels deep, values made by a filter 256, 512 KiB, else [`JqError::TooDeep`].
//! - **Isolation**: no environment, clock, time zone, files, modules, logging or halt.
//!
//! The language is jaq's dialect of jq. Integers are exact; other numbers keep their spelling until
//! something is computed with them.

mod check;
mod filter_set;
mod input;
mod meter;
mod natives;
#[cfg(test)]
mod tests;
mod value;

use std::{fmt, sync::OnceLock, thread};

use jaq_core::{
    Compiler, Ctx, Error, Filter, ValT as _, Vars,
    compile::Undefined,
    load::{Arena, File, Loader},
};
use jaq_json::Val;
use jaq_std::ValT as _;
use serde::de::IgnoredAny;

pub use self::{
    filter_set::JqFilterSet,
    input::{EventVariables, JsonInput, ParseJsonInputError},
};
use self::{
    input::VARIABLES,
    meter::{JqData, JqStopReason, MeteredTerms},
    natives::Builtins,
    value::JqValue,
};

/// The step limit of one run: 0.1 to 0.7 s even in an unoptimized build.
pub const STEPS_MAX: u64 = 1_000_000;

/// The longest text that [`JqFilter::first_output`] and [`JqFilter::transform`] give back.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// jaq's parser and compiler recurse with the structure of a filter, about 10 KiB per token in an
/// unoptimized build. A separate thread has room for the longest filter.
const STACK_BYTES: usize = 16 << 20;

/// Why a filter does not compile, or gave no result for an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JqError {
    /// The text is not a jq program.
    #[error("filter, line {line}, column {column}: expected {expected}, found {found}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// A description of what is allowed there.
        expected: String,
        /// The text that is there.
        found: String,
    },
    /// The filter uses a function or variable that does not exist or is not available.
    #[error("filter, line {line}, column {column}: {what}")]
    Undefined {
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in characters.
        column: usize,
        /// The message of jq.
        what: String,
    },
    /// The program is too long.
    #[error("the filter is too long or nested too deeply")]
    TooLarge,
    /// The filter raised an error on this event, such as indexing a string.
    #[error("the filter failed: {message}")]
    Runtime {
        /// jq's message, shortened.
        message: String,
    },
    /// The step budget is used up.
    #[error("the filter did not end within {STEPS_MAX} steps")]
    TooMuchWork,
    /// A value is nested too deeply.
    #[error("the filter nests calls or values too deeply")]
    TooDeep,
    /// An output is too long.
    #[error("the result of the filter is longer than {OUTPUT_BYTES_MAX} bytes")]
    LongOutput,
    /// There are too many outputs.
    #[error("the transform has more than one output; put them into an array")]
    ManyOutputs,
    /// The result cannot be written as JSON, such as `nan`.
    #[error("the result of the transform is not JSON")]
    ResultNotJson,
    /// A bug in jaq.
    #[error("the filter failed with an internal error")]
    Internal,
}

impl JqError {
    /// A stable code. Unlike the message it contains nothing of the event.
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
            Self::ResultNotJson => "result_not_json",
            Self::Internal => "internal",
        }
    }
}

/// One result of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JqOutput {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Spelled as in the input if it was taken from there.
    Number(String),
    /// A string, without quotes.
    Text(String),
    /// An array or object as compact JSON.
    Json(String),
}

/// A filter. Compiled at most once, for all routes that share it.
pub struct JqFilter {
    text: String,
    /// Whether it may use [`EventVariables`].
    has_variables: bool,
    program: OnceLock<Result<JqProgram, JqError>>,
}

struct JqProgram {
    filter: Filter<JqData>,
    /// Whether it was compiled with [`VARIABLES`].
    has_variables: bool,
}

impl JqFilter {
    /// Compiles a filter that sees its input and nothing else. Takes a fraction of a millisecond, so
    /// never call it per request.
    pub fn compile(text: &str) -> Result<Self, JqError> {
        let filter = Self::new(text, false);
        filter.check()?;
        Ok(filter)
    }

    /// A filter that also sees [`EventVariables`]. It is compiled when it is first used; until then,
    /// only [`Self::check`] tells whether it is valid.
    pub fn for_route(text: &str) -> Self {
        Self::new(text, true)
    }

    fn new(text: &str, has_variables: bool) -> Self {
        Self { text: text.to_owned(), has_variables, program: OnceLock::new() }
    }

    /// Compiles the filter, unless that has been done.
    pub fn check(&self) -> Result<(), JqError> {
        self.program().map(drop)
    }

    /// Whether the filter is compiled already.
    pub fn is_compiled(&self) -> bool {
        self.program.get().is_some()
    }

    fn program(&self) -> Result<&JqProgram, JqError> {
        let program =
            self.program.get_or_init(|| compile_in_thread(&self.text, self.has_variables));
        program.as_ref().map_err(Clone::clone)
    }

    /// The source text of the filter.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first output of the filter, if there is one.
    pub fn first_output(&self, input: &JsonInput) -> Result<Option<JqOutput>, JqError> {
        self.run_first(input, &EventVariables::default(), |value| to_output(&value))?.transpose()
    }

    /// Whether the first output is neither `false` nor `null`; `false` without an output.
    pub fn is_match(
        &self,
        input: &JsonInput,
        variables: &EventVariables<'_>,
    ) -> Result<bool, JqError> {
        let output = self.run_first(input, variables, |value| value.as_bool());
        output.map(|output| output.unwrap_or(false))
    }

    /// The single output of the filter as compact JSON, if there is one. Numbers that were only
    /// passed through keep their spelling.
    pub fn transform(
        &self,
        input: &JsonInput,
        variables: &EventVariables<'_>,
    ) -> Result<Option<String>, JqError> {
        let text = self.run_all(input, variables, |outputs| {
            let Some(first) = outputs.next().transpose()? else { return Ok(None) };
            if outputs.next().transpose()?.is_some() {
                return Err(JqError::ManyOutputs);
            }
            let text = value::to_json_within(first.val(), OUTPUT_BYTES_MAX);
            text.map(Some).ok_or(JqError::LongOutput)
        })?;
        // jaq has values that JSON lacks: byte strings, infinities, NaN.
        let is_json = |text: &String| serde_json::from_str::<IgnoredAny>(text).is_ok();
        if text.as_ref().is_none_or(is_json) { Ok(text) } else { Err(JqError::ResultNotJson) }
    }

    fn run_first<T>(
        &self,
        input: &JsonInput,
        variables: &EventVariables<'_>,
        take: impl FnOnce(JqValue) -> T,
    ) -> Result<Option<T>, JqError> {
        self.run_all(input, variables, |outputs| Ok(outputs.next().transpose()?.map(take)))
    }

    fn run_all<T>(
        &self,
        input: &JsonInput,
        variables: &EventVariables<'_>,
        take: impl FnOnce(&mut dyn Iterator<Item = Result<JqValue, JqError>>) -> Result<T, JqError>,
    ) -> Result<T, JqError> {
        let JqProgram { filter, has_variables } = self.program()?;
        let run = || {
            let values = has_variables.then(|| variables.values()).into_iter().flatten();
            let values = Vars::new(values.map(|value| JqValue::from(&value)));
            let context = Ctx::<JqData>::new(MeteredTerms(&filter.lut), values);
            let outputs = filter.id.run((context, JqValue::from(input)));
            // An exception that is not an error would be a `halt`, which is not available.
            take(&mut outputs.map(|output| {
                output.map_err(|thrown| thrown.get_err().map_or(JqError::Internal, runtime_error))
            }))
        };
        meter::run_metered(STEPS_MAX, run)?
    }
}

fn runtime_error(error: Error<JqValue>) -> JqError {
    let error = error.into_val();
    // A text is shown without the quotes that it would have as a value.
    let message = match error.as_utf8_bytes() {
        Some(text) => value::TruncatedDisplay(&String::from_utf8_lossy(text)).to_string(),
        None => error.to_string(),
    };
    JqError::Runtime { message }
}

impl From<JqStopReason> for JqError {
    fn from(reason: JqStopReason) -> Self {
        match reason {
            JqStopReason::TooMuchWork => Self::TooMuchWork,
            JqStopReason::TooDeep => Self::TooDeep,
            JqStopReason::Panicked => Self::Internal,
        }
    }
}

impl fmt::Debug for JqFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JqFilter").field(&self.text).finish()
    }
}

/// Compiles on a thread with a large stack, see [`STACK_BYTES`].
fn compile_in_thread(text: &str, may_have_variables: bool) -> Result<JqProgram, JqError> {
    thread::scope(|scope| {
        let compiler = thread::Builder::new().stack_size(STACK_BYTES);
        let work = || compile(text, may_have_variables);
        let compiled = compiler.spawn_scoped(scope, work).map(|it| it.join());
        // The thread could not be started, or jaq panicked on it.
        compiled.map_or(Err(JqError::Internal), |it| it.unwrap_or(Err(JqError::Internal)))
    })
}

fn compile(text: &str, may_have_variables: bool) -> Result<JqProgram, JqError> {
    check::check_syntax(text)?;
    let has_variables = may_have_variables && VARIABLES.iter().any(|name| text.contains(name));
    let variables = if has_variables { &VARIABLES[..] } else { &[] };
    // With all built-in filters a program takes 200 KiB and some milliseconds. They are needed only to
    // tell why a filter does not compile.
    let filter = compile_with(text, variables, Builtins::reachable_from(text))
        .or_else(|_| compile_with(text, variables, Builtins::all()))?;
    Ok(JqProgram { filter, has_variables })
}

fn compile_with(
    text: &str,
    variables: &[&'static str],
    builtins: Builtins,
) -> Result<Filter<JqData>, JqError> {
    let arena = Arena::default();
    let file = File { code: text, path: () };
    let modules =
        Loader::new(builtins.definitions).load(&arena, file).map_err(|_| JqError::Internal)?;
    let compiler = Compiler::default().with_funs(builtins.natives);
    let compiled = compiler.with_global_vars(variables.iter().copied()).compile(modules);
    compiled.map_err(|errors| {
        let first = errors.iter().flat_map(|(_, undefined)| undefined).next();
        first.map_or(JqError::Internal, |(name, kind)| undefined_error(text, name, kind))
    })
}

fn undefined_error(text: &str, name: &str, kind: &Undefined) -> JqError {
    let (line, column) = check::position(text, name);
    let what = match kind {
        Undefined::Filter(_) if natives::is_excluded(name) => {
            format!("`{name}` is not available here; a filter sees the event and nothing else")
        }
        Undefined::Filter(arity) => format!("there is no filter `{name}` with {arity} arguments"),
        // The enum is non-exhaustive.
        Undefined::Mod | Undefined::Var | Undefined::Label | _ => {
            format!("there is no {} `{name}`", kind.as_str())
        }
    };
    JqError::Undefined { line, column, what }
}

fn to_output(value: &JqValue) -> Result<JqOutput, JqError> {
    let text = match value.val() {
        Val::Null => return Ok(JqOutput::Null),
        Val::Bool(value) => return Ok(JqOutput::Bool(*value)),
        Val::TStr(bytes) | Val::BStr(bytes) => utf8_text(bytes)?,
        printed @ (Val::Num(_) | Val::Arr(_) | Val::Obj(_)) => value::to_json(printed),
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

fn utf8_text(bytes: &[u8]) -> Result<String, JqError> {
    // Only `implode` and `@base64d` can produce such a string.
    let text = std::str::from_utf8(bytes);
    text.map(ToOwned::to_owned)
        .map_err(|_| JqError::Runtime { message: "the result is not UTF-8".to_owned() })
}
