//! JSON values for jq filters: jaq's `Val` with metered operations and a depth limit.
//!
//! Every operation charges its cost (see `meter`). A value can share one part many times, so some of
//! jaq's operations can do far more work than their size suggests: comparing, merging, subtracting
//! and printing are implemented here instead. The depth is tracked as an upper bound: a part is one
//! level less deep than the whole, a new array one level deeper than its deepest item.

use std::{
    cell::{Cell, RefCell},
    cmp::Ordering,
    fmt::{self, Write},
    ops::{Add, Div, Mul, Neg, Rem, Sub},
    sync::Arc,
};

use jaq_core::{
    Error, Exn, ValR, ValX,
    box_iter::{BoxIter, box_once},
    path::Opt,
    val::Range,
};
use jaq_json::{Map, Num, Val};
use jaq_std::ValT as _;

use super::{
    input::JsonInput,
    meter::{self, JqStopReason},
};

/// Twice the deepest input. Destructors recurse once per level and are not metered.
const DEPTH_MAX: u16 = 256;

/// Longer integers are refused: multiplying and printing them takes more than a step.
const INTEGER_BITS_MAX: u64 = 4096;

/// A JSON value whose operations are metered.
#[derive(Debug)]
pub(super) struct JqValue {
    val: Val,
    depth: u16,
}

impl JqValue {
    fn new(val: Val, depth: u16) -> Self {
        if depth > DEPTH_MAX {
            meter::stop(JqStopReason::TooDeep);
        }
        Self { val, depth }
    }

    /// A value without children.
    pub(super) fn scalar(val: Val) -> Self {
        meter::charge(1);
        Self { val, depth: 0 }
    }

    /// A value that is part of one as deep as `depth`.
    fn part(val: Val, depth: u16) -> Self {
        meter::charge(1);
        Self { val, depth: depth.saturating_sub(1) }
    }

    pub(super) fn val(&self) -> &Val {
        &self.val
    }

    pub(super) fn into_val(self) -> Val {
        self.val
    }

    /// The cost of copying the top level; jaq copies a shared value before changing it.
    fn copy_cost(&self) -> usize {
        1 + match &self.val {
            Val::Arr(items) => items.len() / 8,
            Val::Obj(entries) => entries.len() / 4,
            Val::TStr(bytes) | Val::BStr(bytes) => bytes.len() / 64,
            Val::Null | Val::Bool(_) | Val::Num(_) => 0,
        }
    }

    /// jaq allows any value as a name in an object, JSON and jq only strings. Refusing the others
    /// also keeps deep values from being hashed.
    fn require_name(&self, name: &Self) -> Result<(), Error<Self>> {
        match (&self.val, &name.val) {
            (Val::Obj(_), Val::TStr(_)) => Ok(()),
            (Val::Obj(_), _) => Err(Error::index(self.clone(), name.clone())),
            _ => Ok(()),
        }
    }
}

impl From<&JsonInput> for JqValue {
    fn from(input: &JsonInput) -> Self {
        Self { val: input.val.clone(), depth: input.depth }
    }
}

impl Clone for JqValue {
    // Charged also because loops in native filters, such as `range`, evaluate no term.
    fn clone(&self) -> Self {
        meter::charge(1);
        Self { val: self.val.clone(), depth: self.depth }
    }
}

impl From<bool> for JqValue {
    fn from(value: bool) -> Self {
        Self::scalar(value.into())
    }
}

impl From<isize> for JqValue {
    fn from(value: isize) -> Self {
        Self::scalar(value.into())
    }
}

impl From<usize> for JqValue {
    fn from(value: usize) -> Self {
        Self::scalar(value.into())
    }
}

impl From<f64> for JqValue {
    fn from(value: f64) -> Self {
        Self::scalar(value.into())
    }
}

impl From<String> for JqValue {
    fn from(text: String) -> Self {
        meter::charge(text.len() / 16);
        Self::scalar(text.into())
    }
}

impl From<Range<Self>> for JqValue {
    fn from(range: Range<Self>) -> Self {
        let bound = |bound: Option<Self>| bound.map(Self::into_val);
        Self::new((bound(range.start)..bound(range.end)).into(), 1)
    }
}

impl FromIterator<Self> for JqValue {
    fn from_iter<I: IntoIterator<Item = Self>>(items: I) -> Self {
        meter::charge(4);
        let mut depth = 0;
        let items = items.into_iter().map(|item| {
            meter::charge(1);
            depth = depth.max(item.depth);
            item.val
        });
        let val = items.collect();
        Self::new(val, depth + 1)
    }
}

/// Converts jaq's error about a `Val` into one about a [`JqValue`].
fn convert_error(error: jaq_json::Error) -> Error<JqValue> {
    let message = TruncatedDisplay(&error).to_string();
    // jaq renders a message that is a value with quotes.
    Error::str(serde_json::from_str(&message).unwrap_or(message))
}

/// Refuses integers of more than [`INTEGER_BITS_MAX`] bits.
fn check_integer_size(val: Val, depth: u16) -> ValR<JqValue> {
    if let Val::Num(Num::BigInt(integer)) = &val
        && integer.bits() > INTEGER_BITS_MAX
    {
        return Err(Error::str("the number is too large"));
    }
    Ok(JqValue::new(val, depth))
}

/// Carries a filter's exception past jaq's update functions, whose error type is another one.
#[derive(Default)]
struct ExceptionCarrier<'a> {
    thrown: RefCell<Option<Exn<'a, JqValue>>>,
    depth: Cell<u16>,
}

impl<'a> ExceptionCarrier<'a> {
    /// Converts a filter's result to jaq's type; keeps an exception for [`Self::finish`].
    fn to_jaq(&self, result: ValX<'a, JqValue>) -> jaq_json::ValX<'a> {
        match result {
            Ok(value) => {
                self.depth.set(self.depth.get().max(value.depth));
                Ok(value.val)
            }
            Err(exception) => {
                self.thrown.replace(Some(exception));
                Err(jaq_json::Error::new(Val::Null).into())
            }
        }
    }

    /// The result of jaq's update function, or the kept exception.
    fn finish(self, result: jaq_json::ValX<'a>, depth: u16) -> ValX<'a, JqValue> {
        if let Some(exception) = self.thrown.into_inner() {
            return Err(exception);
        }
        match result.map_err(Exn::get_err) {
            Ok(val) => Ok(JqValue::new(val, depth.max(self.depth.get() + 1))),
            Err(Ok(error)) => Err(convert_error(error).into()),
            Err(Err(_)) => Err(Error::str("the update was interrupted").into()),
        }
    }
}

impl jaq_core::ValT for JqValue {
    fn from_num(text: &str) -> ValR<Self> {
        check_integer_size(Val::from_num(text).map_err(convert_error)?, 0)
    }

    fn from_map<I: IntoIterator<Item = (Self, Self)>>(entries: I) -> ValR<Self> {
        meter::charge(4);
        let mut depth = 0;
        let mut map = Map::default();
        for (name, value) in entries {
            meter::charge(4);
            if !matches!(name.val, Val::TStr(_)) {
                return Err(Error::typ(name, "string"));
            }
            depth = depth.max(value.depth);
            map.insert(name.val, value.val);
        }
        Ok(Self::new(Val::obj(map), depth + 1))
    }

    fn key_values(self) -> BoxIter<'static, ValR<(Self, Self), Self>> {
        let depth = self.depth;
        match self.val {
            Val::Arr(items) => Box::new((0..items.len()).map(move |index| {
                Ok((Self::from(index), Self::part(items[index].clone(), depth)))
            })),
            Val::Obj(entries) => Box::new((0..entries.len()).map_while(move |index| {
                let (name, value) = entries.get_index(index)?;
                Some(Ok((Self::scalar(name.clone()), Self::part(value.clone(), depth))))
            })),
            Val::Null | Val::Bool(_) | Val::Num(_) | Val::TStr(_) | Val::BStr(_) => {
                box_once(Err(Error::typ(self, "iterable (array or object)")))
            }
        }
    }

    fn values(self) -> Box<dyn Iterator<Item = ValR<Self>>> {
        let depth = self.depth;
        match self.val {
            Val::Arr(items) => Box::new(
                (0..items.len()).map(move |index| Ok(Self::part(items[index].clone(), depth))),
            ),
            Val::Obj(entries) => Box::new((0..entries.len()).map_while(move |index| {
                let (_, value) = entries.get_index(index)?;
                Some(Ok(Self::part(value.clone(), depth)))
            })),
            Val::Null | Val::Bool(_) | Val::Num(_) | Val::TStr(_) | Val::BStr(_) => {
                box_once(Err(Error::typ(self, "iterable (array or object)")))
            }
        }
    }

    fn index(self, index: &Self) -> ValR<Self> {
        meter::charge(1);
        self.require_name(index)?;
        match (&self.val, &index.val) {
            (Val::Arr(_), Val::Arr(_)) => super::natives::indices(&self, index),
            // A slice is as deep as the whole.
            (_, Val::Obj(_)) => {
                meter::charge(self.copy_cost());
                let depth = self.depth;
                self.val.index(&index.val).map(|val| Self::new(val, depth)).map_err(convert_error)
            }
            _ => {
                let depth = self.depth;
                self.val.index(&index.val).map(|val| Self::part(val, depth)).map_err(convert_error)
            }
        }
    }

    fn range(self, range: Range<&Self>) -> ValR<Self> {
        meter::charge(self.copy_cost());
        let depth = self.depth;
        let range = range.start.map(Self::val)..range.end.map(Self::val);
        self.val.range(range).map(|val| Self::new(val, depth)).map_err(convert_error)
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::charge(self.copy_cost());
        let (carrier, depth) = (ExceptionCarrier::default(), self.depth);
        let f = |val| f(Self::part(val, depth)).map(|result| carrier.to_jaq(result));
        let result = self.val.map_values(opt, f);
        carrier.finish(result, depth)
    }

    fn map_index<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        index: &Self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::charge(self.copy_cost());
        if let Err(error) = self.require_name(index) {
            return opt.fail(self, |_| error.into());
        }
        let (carrier, depth) = (ExceptionCarrier::default(), self.depth);
        let f = |val| f(Self::part(val, depth)).map(|result| carrier.to_jaq(result));
        let result = self.val.map_index(&index.val, opt, f);
        carrier.finish(result, depth)
    }

    fn map_range<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        range: Range<&Self>,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::charge(self.copy_cost());
        let (carrier, depth) = (ExceptionCarrier::default(), self.depth);
        // A slice is as deep as the whole.
        let f = |val| f(Self::new(val, depth)).map(|result| carrier.to_jaq(result));
        let range = range.start.map(Self::val)..range.end.map(Self::val);
        let result = self.val.map_range(range, opt, f);
        carrier.finish(result, depth)
    }

    fn as_bool(&self) -> bool {
        !matches!(self.val, Val::Null | Val::Bool(false))
    }

    fn into_string(self) -> Self {
        if matches!(self.val, Val::TStr(_)) {
            return self;
        }
        Self::scalar(to_json(&self.val).into())
    }
}

impl jaq_std::ValT for JqValue {
    fn into_seq<S: FromIterator<Self>>(self) -> Result<S, Self> {
        let depth = self.depth;
        let Val::Arr(items) = self.val else { return Err(self) };
        let items = Arc::unwrap_or_clone(items).into_iter();
        Ok(items.map(|item| Self::part(item, depth)).collect())
    }

    fn is_int(&self) -> bool {
        self.val.is_int()
    }

    fn as_isize(&self) -> Option<isize> {
        self.val.as_isize()
    }

    fn as_f64(&self) -> Option<f64> {
        self.val.as_f64()
    }

    fn is_utf8_str(&self) -> bool {
        self.val.is_utf8_str()
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        self.val.as_bytes()
    }

    fn as_sub_str(&self, part: &[u8]) -> Self {
        Self::scalar(self.val.as_sub_str(part))
    }

    fn from_utf8_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        meter::charge(bytes.as_ref().len() / 16);
        Self::scalar(Val::from_utf8_bytes(bytes))
    }
}

impl JqValue {
    /// The number of items, or of 16-byte pieces of text, that a value adds to another.
    fn size(&self) -> usize {
        1 + match &self.val {
            Val::Arr(items) => items.len(),
            Val::Obj(entries) => entries.len(),
            Val::TStr(bytes) | Val::BStr(bytes) => bytes.len() / 16,
            Val::Null | Val::Bool(_) | Val::Num(_) => 0,
        }
    }
}

impl Add for JqValue {
    type Output = ValR<Self>;
    fn add(self, other: Self) -> ValR<Self> {
        meter::charge(self.copy_cost() + other.size());
        let depth = self.depth.max(other.depth);
        check_integer_size((self.val + other.val).map_err(convert_error)?, depth)
    }
}

impl Sub for JqValue {
    type Output = ValR<Self>;
    fn sub(self, other: Self) -> ValR<Self> {
        meter::charge(1);
        match (self.val, other.val) {
            (Val::Arr(items), Val::Arr(removed)) => {
                let is_removed =
                    |item| removed.iter().any(|other| compare(item, other) == Ordering::Equal);
                let remaining = items.iter().filter(|item| !is_removed(item)).cloned();
                Ok(Self::new(remaining.collect(), self.depth))
            }
            (left, right) => check_integer_size((left - right).map_err(convert_error)?, self.depth),
        }
    }
}

impl Mul for JqValue {
    type Output = ValR<Self>;
    fn mul(self, other: Self) -> ValR<Self> {
        let depth = self.depth.max(other.depth);
        let product = match (self.val, other.val) {
            (Val::Obj(mut left), Val::Obj(right)) => {
                merge(&mut left, &right);
                Ok(Val::Obj(left))
            }
            (text @ Val::TStr(_), Val::Num(times)) | (Val::Num(times), text @ Val::TStr(_)) => {
                meter::charge(repeated_size(&text, &times));
                text * Val::Num(times)
            }
            (left, right) => left * right,
        };
        meter::charge(1);
        check_integer_size(product.map_err(convert_error)?, depth)
    }
}

/// The cost of repeating a text. Charged beforehand, because the result may not fit into memory.
fn repeated_size(text: &Val, times: &Num) -> usize {
    let length = text.as_bytes().map_or(0, <[u8]>::len);
    let times = times.as_isize().map_or(usize::MAX, |times| usize::try_from(times).unwrap_or(0));
    length.saturating_mul(times) / 16
}

/// Merges `right` into `left` recursively, as jq's `*` does.
fn merge(left: &mut Arc<Map>, right: &Arc<Map>) {
    meter::charge(1 + left.len() / 4);
    let left = Arc::make_mut(left);
    for (name, value) in right.iter() {
        meter::charge(4);
        match (left.get_mut(name), value) {
            (Some(Val::Obj(left)), Val::Obj(right)) => merge(left, right),
            (Some(old), new) => *old = new.clone(),
            (None, new) => drop(left.insert(name.clone(), new.clone())),
        }
    }
}

impl Div for JqValue {
    type Output = ValR<Self>;
    fn div(self, other: Self) -> ValR<Self> {
        // Splitting a text may give as many pieces as it has characters.
        meter::charge(16 * self.size());
        Ok(Self::new((self.val / other.val).map_err(convert_error)?, 1))
    }
}

impl Rem for JqValue {
    type Output = ValR<Self>;
    fn rem(self, other: Self) -> ValR<Self> {
        meter::charge(1);
        Ok(Self::new((self.val % other.val).map_err(convert_error)?, 0))
    }
}

impl Neg for JqValue {
    type Output = ValR<Self>;
    fn neg(self) -> ValR<Self> {
        meter::charge(1);
        Ok(Self::new((-self.val).map_err(convert_error)?, 0))
    }
}

/// Compares two values in jq's order: null, booleans, numbers, strings, arrays, objects.
pub(super) fn compare(left: &Val, right: &Val) -> Ordering {
    meter::charge(1);
    match (left, right) {
        (Val::Bool(left), Val::Bool(right)) => left.cmp(right),
        (Val::Num(left), Val::Num(right)) => left.cmp(right),
        (Val::TStr(left) | Val::BStr(left), Val::TStr(right) | Val::BStr(right)) => {
            meter::charge(left.len().min(right.len()) / 64);
            left.cmp(right)
        }
        (Val::Arr(left), Val::Arr(right)) if Arc::ptr_eq(left, right) => Ordering::Equal,
        (Val::Arr(left), Val::Arr(right)) => compare_all(left.iter(), right.iter()),
        (Val::Obj(left), Val::Obj(right)) => compare_objects(left, right),
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn compare_all<'v>(
    mut left: impl Iterator<Item = &'v Val>,
    mut right: impl Iterator<Item = &'v Val>,
) -> Ordering {
    loop {
        match (left.next(), right.next()) {
            (Some(left), Some(right)) => {
                let order = compare(left, right);
                if order != Ordering::Equal {
                    return order;
                }
            }
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
        }
    }
}

/// Compares the sorted names first, then the values in the order of their names.
fn compare_objects(left: &Arc<Map>, right: &Arc<Map>) -> Ordering {
    if Arc::ptr_eq(left, right) {
        return Ordering::Equal;
    }
    let (left, right) = (sorted(left), sorted(right));
    let names = compare_all(left.iter().map(|entry| entry.0), right.iter().map(|entry| entry.0));
    names.then_with(|| {
        compare_all(left.iter().map(|entry| entry.1), right.iter().map(|entry| entry.1))
    })
}

fn sorted(map: &Map) -> Vec<(&Val, &Val)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by(|left, right| compare(left.0, right.0));
    entries
}

fn rank(val: &Val) -> u8 {
    match val {
        Val::Null => 0,
        Val::Bool(_) => 1,
        Val::Num(_) => 2,
        Val::TStr(_) | Val::BStr(_) => 3,
        Val::Arr(_) => 4,
        Val::Obj(_) => 5,
    }
}

impl Ord for JqValue {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.val, &other.val)
    }
}

impl PartialOrd for JqValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for JqValue {}

impl PartialEq for JqValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

/// Enough to recognize a value in a message.
const MESSAGE_BYTES_MAX: usize = 200;

/// The value as compact JSON.
pub(super) fn to_json(val: &Val) -> String {
    // Running out of steps unwinds; it does not return here.
    to_json_within(val, usize::MAX).unwrap_or_default()
}

/// Compact JSON, or `None` if it would be longer than `bytes_max`; no more than that is written.
pub(super) fn to_json_within(val: &Val, bytes_max: usize) -> Option<String> {
    let mut text = MeteredString { text: String::new(), bytes_max };
    write!(text, "{val}").ok()?;
    Some(text.text)
}

struct MeteredString {
    text: String,
    bytes_max: usize,
}

impl Write for MeteredString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        meter::charge(1 + text.len() / 16);
        if text.len() > self.bytes_max - self.text.len() {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Displays the first [`MESSAGE_BYTES_MAX`] bytes of a value and stops formatting there.
pub(super) struct TruncatedDisplay<'t, T>(pub(super) &'t T);

impl<T: fmt::Display> fmt::Display for TruncatedDisplay<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut beginning = TruncatedString(String::new());
        let written = write!(beginning, "{}", self.0);
        f.write_str(&beginning.0)?;
        if written.is_err() { f.write_str("…") } else { Ok(()) }
    }
}

struct TruncatedString(String);

impl Write for TruncatedString {
    /// Fails when full, which ends the formatting.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes_left = MESSAGE_BYTES_MAX - self.0.len();
        let fitting = &text[..text.floor_char_boundary(bytes_left)];
        self.0.push_str(fitting);
        if fitting.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// For messages, so truncated; [`to_json`] writes the whole value.
impl fmt::Display for JqValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TruncatedDisplay(&self.val).fmt(f)
    }
}
