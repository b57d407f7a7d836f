//! Arithmetic on values, charged by the size of what it makes.

use std::{
    cmp::Ordering,
    ops::{Add, Div, Mul, Neg, Rem, Sub},
    sync::Arc,
};

use jaq_core::ValR;
use jaq_json::{Map, Num, Val};
use jaq_std::ValT as _;

use super::{super::meter, Value, bounded, compare, lift};

impl Value {
    /// How many parts or sixteenths of text a value would add to another.
    fn size(&self) -> usize {
        1 + match &self.val {
            Val::Arr(items) => items.len(),
            Val::Obj(entries) => entries.len(),
            Val::TStr(bytes) | Val::BStr(bytes) => bytes.len() / 16,
            Val::Null | Val::Bool(_) | Val::Num(_) => 0,
        }
    }
}

impl Add for Value {
    type Output = ValR<Self>;
    fn add(self, other: Self) -> ValR<Self> {
        meter::charge(self.copy_cost() + other.size());
        let depth = self.depth.max(other.depth);
        bounded((self.val + other.val).map_err(lift)?, depth)
    }
}

impl Sub for Value {
    type Output = ValR<Self>;
    fn sub(self, other: Self) -> ValR<Self> {
        meter::charge(1);
        match (self.val, other.val) {
            (Val::Arr(items), Val::Arr(removed)) => {
                let is_removed =
                    |item| removed.iter().any(|other| compare(item, other) == Ordering::Equal);
                let left = items.iter().filter(|item| !is_removed(item)).cloned();
                Ok(Self::new(left.collect(), self.depth))
            }
            (left, right) => bounded((left - right).map_err(lift)?, self.depth),
        }
    }
}

impl Mul for Value {
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
        bounded(product.map_err(lift)?, depth)
    }
}

/// What a text is charged that is to be repeated; before it is, because it may not fit anywhere.
fn repeated_size(text: &Val, times: &Num) -> usize {
    let length = text.as_bytes().map_or(0, <[u8]>::len);
    let times = times.as_isize().map_or(usize::MAX, |times| usize::try_from(times).unwrap_or(0));
    length.saturating_mul(times) / 16
}

/// Puts `right` into `left`, object into object, as `*` does.
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

impl Div for Value {
    type Output = ValR<Self>;
    fn div(self, other: Self) -> ValR<Self> {
        // A text may fall into as many pieces as it has characters.
        meter::charge(16 * self.size());
        Ok(Self::new((self.val / other.val).map_err(lift)?, 1))
    }
}

impl Rem for Value {
    type Output = ValR<Self>;
    fn rem(self, other: Self) -> ValR<Self> {
        meter::charge(1);
        Ok(Self::new((self.val % other.val).map_err(lift)?, 0))
    }
}

impl Neg for Value {
    type Output = ValR<Self>;
    fn neg(self) -> ValR<Self> {
        meter::charge(1);
        Ok(Self::new((-self.val).map_err(lift)?, 0))
    }
}
