//! The order of values, which is jq's: null, booleans, numbers, strings, arrays, objects.

use std::{cmp::Ordering, sync::Arc};

use jaq_json::{Map, Val};

use super::{super::meter, Value};

/// Compares two values of any size and charges for it.
pub(in super::super) fn compare(left: &Val, right: &Val) -> Ordering {
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

/// First the sorted names, then the values in the order of their names.
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

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.val, &other.val)
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Value {}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
