//! The built-in filters: jaq's, without those that reach outside the event.
//!
//! A filter cannot read the environment, the clock, the time zone or a file, cannot log, and cannot
//! halt the process.

use std::{cmp::Ordering, collections::HashSet, sync::LazyLock};

use jaq_core::{
    Bind, Error, RunPtr, ValR,
    load::parse::Def,
    native::{Filter, Fun, bome, run, unary, v},
};
use jaq_json::Val;
use jaq_std::ValT as _;

use super::{
    input::JsonInput,
    meter::{self, JqData},
    value::{JqValue, compare, to_json},
};

/// jaq's native filters that reach outside. `strptime` reads files if given a time zone name.
const OUTSIDE_NATIVES: [&str; 8] =
    ["env", "now", "halt", "localtime", "strflocaltime", "strptime", "debug_empty", "stderr_empty"];

/// jaq's native filters whose time grows with a numeric argument.
const SLOW_NATIVES: [&str; 2] = ["jn", "yn"];

/// jaq's definitions that call one of [`OUTSIDE_NATIVES`].
const OUTSIDE_DEFINITIONS: [&str; 4] = ["stderr", "debug", "halt", "halt_error"];

/// Native filters that compile a regular expression on each call, and the names under which
/// definitions call them after charging for it.
const REGEX_NATIVES: [(&str, &str); 3] = [
    ("matches", "matches_unmetered"),
    ("split_matches", "split_matches_unmetered"),
    ("split_", "split_unmetered"),
];

const REGEX_DEFINITIONS: &str = r"
    def matches($re; $flags): charge_regex($re) | matches_unmetered($re; $flags);
    def split_matches($re; $flags): charge_regex($re) | split_matches_unmetered($re; $flags);
    def split_($re; $flags): charge_regex($re) | split_unmetered($re; $flags);
";

/// Whether jaq has a filter of this name that is excluded on purpose.
pub(super) fn is_excluded(name: &str) -> bool {
    OUTSIDE_NATIVES.contains(&name)
        || OUTSIDE_DEFINITIONS.contains(&name)
        || name == "input"
        || name == "inputs"
}

/// Built-in filters for one program.
pub(super) struct Builtins {
    pub(super) definitions: Vec<Def<&'static str>>,
    pub(super) natives: Vec<Fun<JqData>>,
}

/// All definitions, in order, each with the words in it. A definition refers only to itself and to
/// earlier ones.
static DEFINITIONS: LazyLock<Vec<(Def<&'static str>, HashSet<String>)>> = LazyLock::new(|| {
    let with_words = |def: Def<&'static str>| {
        let words = words(&format!("{def:?}")).map(ToOwned::to_owned).collect();
        (def, words)
    };
    jq_definitions().map(with_words).collect()
});

impl Builtins {
    pub(super) fn all() -> Self {
        let definitions = DEFINITIONS.iter().map(|(def, _)| def.clone()).collect();
        Self { definitions, natives: native_filters().collect() }
    }

    /// Those whose name is a word of `text`, and those which they need. May contain more than what
    /// is called, because a word may also be a field or part of a string, but not less.
    pub(super) fn reachable_from(text: &str) -> Self {
        let mut needed: HashSet<&str> = words(text).collect();
        let mut definitions = Vec::new();
        for (def, words) in DEFINITIONS.iter().rev() {
            if needed.contains(def.name) {
                needed.extend(words.iter().map(String::as_str));
                definitions.push(def.clone());
            }
        }
        definitions.reverse();
        // jaq calls those with `!` for constructs such as `[]`.
        let is_needed = |name: &str| needed.contains(name) || name.starts_with('!');
        let natives = native_filters().filter(|(name, ..)| is_needed(name)).collect();
        Self { definitions, natives }
    }
}

/// Everything in a text that may be the name of a filter, such as `map` and `@base64`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '@');
    text.split(move |char| !is_part(char)).filter(|word| !word.is_empty())
}

/// The filters that are written in Rust.
pub(super) fn native_filters() -> impl Iterator<Item = Fun<JqData>> {
    let jaq = jaq_core::funs().chain(jaq_std::funs());
    let jaq =
        jaq.filter(|(name, ..)| !OUTSIDE_NATIVES.contains(name) && !SLOW_NATIVES.contains(name));
    let jaq = jaq.map(|(name, args, native)| {
        let renamed = REGEX_NATIVES.iter().find(|(public, _)| *public == name);
        (renamed.map_or(name, |(_, hidden)| *hidden), args, native)
    });
    jaq.chain(own_native_filters().into_iter().map(run::<JqData>))
}

/// The filters that are written in jq.
fn jq_definitions() -> impl Iterator<Item = Def<&'static str>> {
    let regex = jaq_core::load::parse(REGEX_DEFINITIONS, |parser| parser.defs());
    let jaq = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let jaq = jaq.filter(|def| !OUTSIDE_DEFINITIONS.contains(&def.name));
    regex.expect("a test compiles filters that use them").into_iter().chain(jaq)
}

/// Replacements for the filters that jaq-json has only for its own values.
fn own_native_filters() -> [Filter<RunPtr<JqData>>; 8] {
    [
        ("fromjson", v(0), |cv| bome(from_json(&cv.1))),
        ("tojson", v(0), |cv| bome(Ok(JqValue::scalar(to_json(cv.1.val()).into())))),
        ("length", v(0), |cv| bome(length(&cv.1))),
        ("has", v(1), |cv| unary(cv, |value, name| has(&value, &name))),
        ("contains", v(1), |cv| {
            unary(cv, |whole, part| Ok(contains(whole.val(), part.val()).into()))
        }),
        ("indices", v(1), |cv| unary(cv, |whole, part| indices(&whole, &part))),
        ("bsearch", v(1), |cv| unary(cv, |array, item| binary_search(&array, &item))),
        ("charge_regex", Box::new([Bind::Var(())]), |cv| unary(cv, charge_regex)),
    ]
}

fn from_json(text: &JqValue) -> ValR<JqValue> {
    let bytes = text.try_as_utf8_bytes()?;
    // Two bytes of JSON can become a value of fifty.
    meter::charge(bytes.len() / 2);
    // The same limits as for a body: the text may be a part of one.
    JsonInput::parse(bytes).map(|input| JqValue::from(&input)).map_err(Error::str)
}

fn length(value: &JqValue) -> ValR<JqValue> {
    Ok(match value.val() {
        Val::Null => 0_usize.into(),
        Val::Bool(_) => return Err(Error::typ(value.clone(), "something with a length")),
        Val::Num(_) if *value < JqValue::from(0_isize) => return -value.clone(),
        Val::Num(_) => value.clone(),
        Val::TStr(bytes) => {
            meter::charge(bytes.len() / 64);
            String::from_utf8_lossy(bytes).chars().count().into()
        }
        Val::BStr(bytes) => bytes.len().into(),
        Val::Arr(items) => items.len().into(),
        Val::Obj(entries) => entries.len().into(),
    })
}

fn has(value: &JqValue, name: &JqValue) -> ValR<JqValue> {
    match (value.val(), name.val()) {
        (Val::Obj(entries), name @ Val::TStr(_)) => Ok(entries.contains_key(name).into()),
        (Val::Arr(items), Val::Num(index)) => {
            let index = index.as_isize().and_then(|index| usize::try_from(index).ok());
            Ok(index.is_some_and(|index| index < items.len()).into())
        }
        _ => Err(Error::index(value.clone(), name.clone())),
    }
}

/// jq's `contains`: every part of `part` occurs in `whole`; strings match by substring.
fn contains(whole: &Val, part: &Val) -> bool {
    meter::charge(1);
    match (whole, part) {
        (Val::TStr(whole), Val::TStr(part)) => {
            meter::charge((whole.len() + part.len()) / 16);
            String::from_utf8_lossy(whole).contains(&*String::from_utf8_lossy(part))
        }
        (Val::Arr(whole), Val::Arr(parts)) => {
            parts.iter().all(|part| whole.iter().any(|whole| contains(whole, part)))
        }
        (Val::Obj(whole), Val::Obj(parts)) => parts
            .iter()
            .all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part))),
        (whole, part) => compare(whole, part) == Ordering::Equal,
    }
}

/// The positions of `part` in `whole`, a string or an array.
pub(super) fn indices(whole: &JqValue, part: &JqValue) -> ValR<JqValue> {
    match (whole.val(), part.val()) {
        (Val::TStr(text), Val::TStr(part)) => {
            meter::charge(text.len());
            Ok(text_indices(&String::from_utf8_lossy(text), &String::from_utf8_lossy(part)))
        }
        (Val::Arr(_), Val::Arr(part)) if part.is_empty() => Ok(JqValue::from_iter([])),
        (Val::Arr(items), Val::Arr(part)) => {
            let is_equal = |(item, part): (&Val, &Val)| compare(item, part) == Ordering::Equal;
            let windows = items.windows(part.len()).enumerate();
            let found = windows.filter(|(_, window)| window.iter().zip(&**part).all(is_equal));
            Ok(found.map(|(index, _)| index.into()).collect())
        }
        (Val::Arr(items), item) => {
            let is_equal = |(_, other): &(usize, &Val)| compare(other, item) == Ordering::Equal;
            Ok(items.iter().enumerate().filter(is_equal).map(|(index, _)| index.into()).collect())
        }
        _ => Err(Error::index(whole.clone(), part.clone())),
    }
}

/// Positions are counted in characters, as everywhere in jq.
fn text_indices(text: &str, part: &str) -> JqValue {
    let starts = text.char_indices().enumerate();
    let found = starts.filter(|(_, (byte, _))| !part.is_empty() && text[*byte..].starts_with(part));
    found.map(|(position, _)| position.into()).collect()
}

fn binary_search(array: &JqValue, item: &JqValue) -> ValR<JqValue> {
    let Val::Arr(items) = array.val() else {
        return Err(Error::typ(array.clone(), "array"));
    };
    let found = items.binary_search_by(|other| compare(other, item.val()));
    let position = |index| isize::try_from(index).unwrap_or(isize::MAX);
    Ok(found.map_or_else(|index| -1 - position(index), position).into())
}

/// Charges the worst case of a search: the states of the pattern for each byte of the text.
fn charge_regex(text: JqValue, pattern: JqValue) -> ValR<JqValue> {
    let length = |value: &JqValue| value.as_bytes().map_or(0, <[u8]>::len);
    let states = length(&pattern).saturating_mul(repetitions(pattern.as_bytes().unwrap_or(&[])));
    // Compiling takes some microseconds even for a small pattern.
    meter::charge(100_usize.saturating_add(states.saturating_mul(length(&text) + 1) / 64));
    Ok(text)
}

/// How many times a pattern is expanded: the product of its repetition counts, as in `(a{5}){3}`.
fn repetitions(pattern: &[u8]) -> usize {
    let counts = pattern.split(|byte| *byte == b'{').skip(1);
    counts.fold(1_usize, |product, count| {
        let end = count.iter().position(|byte| *byte == b'}').unwrap_or(count.len());
        let digits = count[..end].split(|byte| *byte == b',');
        let numbers = digits.filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        product.saturating_mul(numbers.max().unwrap_or(1_usize).max(1))
    })
}
