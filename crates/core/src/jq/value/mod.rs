//! The values that filters work on: jaq's own, with a meter.
//!
//! Every operation charges what it costs (see `meter`). Where jaq's operation could do much more
//! than its charge, because a value may hold one part many times over, it is written anew here:
//! comparing, merging, subtracting, printing. The depth is tracked as an upper bound: a part of a
//! value is one less deep than the whole, a new array one deeper than its deepest item.

mod compare;
mod ops;
mod print;

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use jaq_core::{
    Error, Exn, ValR, ValX,
    box_iter::{BoxIter, box_once},
    path::Opt,
    val::Range,
};
use jaq_json::{Map, Num, Val};

pub(super) use self::{
    compare::compare,
    print::{Shortened, metered, metered_within},
};
use super::{
    input::JsonInput,
    meter::{self, JqStopReason},
};

/// Twice the deepest input. Destructors recurse with each level, and nothing counts them.
const DEPTH_MAX: u16 = 256;

/// Longer integers are refused: multiplying and printing them takes more than a step.
const INTEGER_BITS_MAX: u64 = 4096;

/// A JSON value that counts what is done with it.
#[derive(Debug)]
pub(super) struct Value {
    val: Val,
    depth: u16,
}

impl Value {
    fn new(val: Val, depth: u16) -> Self {
        if depth > DEPTH_MAX {
            meter::stop(JqStopReason::TooDeep);
        }
        Self { val, depth }
    }

    /// A value that holds no other.
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

    /// What a copy of the topmost level costs; jaq copies before it changes what is shared.
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

impl From<&JsonInput> for Value {
    fn from(input: &JsonInput) -> Self {
        Self { val: input.val.clone(), depth: input.depth }
    }
}

impl Clone for Value {
    // Not only for its cost: loops in native filters, such as `range`, evaluate no term.
    fn clone(&self) -> Self {
        meter::charge(1);
        Self { val: self.val.clone(), depth: self.depth }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::scalar(value.into())
    }
}

impl From<isize> for Value {
    fn from(value: isize) -> Self {
        Self::scalar(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::scalar(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::scalar(value.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        meter::charge(text.len() / 16);
        Self::scalar(text.into())
    }
}

impl From<Range<Self>> for Value {
    fn from(range: Range<Self>) -> Self {
        let bound = |bound: Option<Self>| bound.map(Self::into_val);
        Self::new((bound(range.start)..bound(range.end)).into(), 1)
    }
}

impl FromIterator<Self> for Value {
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

/// jaq's error about one of its own values, as one about ours.
fn lift(error: jaq_json::Error) -> Error<Value> {
    let message = Shortened(&error).to_string();
    // A message that jaq made as a value comes with the quotes of one.
    Error::str(serde_json::from_str(&message).unwrap_or(message))
}

/// Refuses integers that have grown too long; everything else passes.
fn bounded(val: Val, depth: u16) -> ValR<Value> {
    if let Val::Num(Num::BigInt(integer)) = &val
        && integer.bits() > INTEGER_BITS_MAX
    {
        return Err(Error::str("the number is too large"));
    }
    Ok(Value::new(val, depth))
}

/// Carries what a filter throws past jaq's own update functions, whose errors are of another type.
#[derive(Default)]
struct Carry<'a> {
    thrown: RefCell<Option<Exn<'a, Value>>>,
    depth: Cell<u16>,
}

impl<'a> Carry<'a> {
    fn lower(&self, result: ValX<'a, Value>) -> jaq_json::ValX<'a> {
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

    fn finish(self, result: jaq_json::ValX<'a>, depth: u16) -> ValX<'a, Value> {
        if let Some(exception) = self.thrown.into_inner() {
            return Err(exception);
        }
        match result.map_err(Exn::get_err) {
            Ok(val) => Ok(Value::new(val, depth.max(self.depth.get() + 1))),
            Err(Ok(error)) => Err(lift(error).into()),
            Err(Err(_)) => Err(Error::str("the update was interrupted").into()),
        }
    }
}

impl jaq_core::ValT for Value {
    fn from_num(text: &str) -> ValR<Self> {
        bounded(Val::from_num(text).map_err(lift)?, 0)
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
            // A slice, which is as deep as the whole.
            (_, Val::Obj(_)) => {
                meter::charge(self.copy_cost());
                let depth = self.depth;
                self.val.index(&index.val).map(|val| Self::new(val, depth)).map_err(lift)
            }
            _ => {
                let depth = self.depth;
                self.val.index(&index.val).map(|val| Self::part(val, depth)).map_err(lift)
            }
        }
    }

    fn range(self, range: Range<&Self>) -> ValR<Self> {
        meter::charge(self.copy_cost());
        let depth = self.depth;
        let range = range.start.map(Self::val)..range.end.map(Self::val);
        self.val.range(range).map(|val| Self::new(val, depth)).map_err(lift)
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::charge(self.copy_cost());
        let (carry, depth) = (Carry::default(), self.depth);
        let f = |val| f(Self::part(val, depth)).map(|result| carry.lower(result));
        let result = self.val.map_values(opt, f);
        carry.finish(result, depth)
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
        let (carry, depth) = (Carry::default(), self.depth);
        let f = |val| f(Self::part(val, depth)).map(|result| carry.lower(result));
        let result = self.val.map_index(&index.val, opt, f);
        carry.finish(result, depth)
    }

    fn map_range<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        range: Range<&Self>,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        meter::charge(self.copy_cost());
        let (carry, depth) = (Carry::default(), self.depth);
        // What is updated here is a slice, as deep as the whole.
        let f = |val| f(Self::new(val, depth)).map(|result| carry.lower(result));
        let range = range.start.map(Self::val)..range.end.map(Self::val);
        let result = self.val.map_range(range, opt, f);
        carry.finish(result, depth)
    }

    fn as_bool(&self) -> bool {
        !matches!(self.val, Val::Null | Val::Bool(false))
    }

    fn into_string(self) -> Self {
        if matches!(self.val, Val::TStr(_)) {
            return self;
        }
        Self::scalar(metered(&self.val).into())
    }
}

impl jaq_std::ValT for Value {
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
