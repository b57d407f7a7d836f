//! The difference between two bodies, shown when a duplicate has a different body.
//!
//! JSON is compared by structure: the order of members and white space do not matter, and numbers are
//! compared by spelling so that no digit is lost. Other texts are compared by lines, everything else
//! by bytes. All work and output is bounded; [`BodyDiff::truncated`] reports that a limit was hit.

mod align;
mod json_scan;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashMap};

use data_encoding::HEXLOWER;
use surehook_types::string_enum;

use self::{
    align::{AlignStep, align},
    json_scan::{JsonShape, elements, json_shape, members},
};

/// The largest number of changes reported.
pub const CHANGES_MAX: usize = 200;
/// The most characters shown of each value.
pub const VALUE_CHARS_MAX: usize = 1000;
/// The deepest level that is searched for differences.
const DEPTH_MAX: usize = 512;
/// The longest path that is descended into.
const PATH_BYTES_MAX: usize = 1000;
/// The most bytes examined in total. Each level examines everything below it again.
const WORK_MAX: usize = 256 << 20;
/// The most pending comparisons.
const TASKS_MAX: usize = 50_000;
/// The most bytes shown of a body that is not text.
const RAW_BYTES_SHOWN: usize = 32;

string_enum! {
    /// How two bodies were compared.
    pub enum DiffFormat {
        /// Both are JSON.
        Json = "json",
        /// Both are text.
        Text = "text",
        /// At least one is not text.
        Bytes = "bytes",
    }
}

string_enum! {
    pub enum BodyChangeKind {
        Added = "added",
        Removed = "removed",
        Changed = "changed",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyChange {
    /// A JSON pointer (RFC 6901) into the second body, for a removed value into the first. In texts
    /// it is `line N`, in bytes `byte N`, counted from 1.
    pub path: String,
    pub kind: BodyChangeKind,
    /// The value in the first body: JSON, lines of a text, or bytes in hex. A long value is cut and
    /// ends in `…`.
    pub before: Option<String>,
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyDiff {
    pub format: DiffFormat,
    /// The first [`CHANGES_MAX`] differences, in the order of the bodies.
    pub changes: Vec<BodyChange>,
    /// A value, the list of changes or the search was cut at a limit.
    pub truncated: bool,
}

/// Compares two bodies. JSON bodies without a change are equal in meaning but may differ in bytes.
pub fn diff(before: &[u8], after: &[u8]) -> BodyDiff {
    match (std::str::from_utf8(before), std::str::from_utf8(after)) {
        (Ok(before), Ok(after)) => {
            match (json_scan::trimmed_json(before), json_scan::trimmed_json(after)) {
                (Some(before), Some(after)) => JsonDiff::default().run(before, after),
                _ => diff_lines(before, after),
            }
        }
        _ => diff_bytes(before, after),
    }
}

/// A pending comparison. Kept on the heap, because bodies may be nested deeper than the stack.
enum DiffTask<'t> {
    Compare { path: String, depth: usize, before: &'t str, after: &'t str },
    Report { change: BodyChange, is_cut: bool },
}

#[derive(Default)]
struct JsonDiff<'t> {
    tasks: Vec<DiffTask<'t>>,
    changes: Vec<BodyChange>,
    truncated: bool,
    work: usize,
}

impl<'t> JsonDiff<'t> {
    fn run(mut self, before: &'t str, after: &'t str) -> BodyDiff {
        self.tasks.push(DiffTask::Compare { path: String::new(), depth: 0, before, after });
        while let Some(task) = self.tasks.pop() {
            if self.changes.len() == CHANGES_MAX {
                self.truncated = true;
                break;
            }
            match task {
                DiffTask::Compare { path, depth, before, after } => {
                    self.compare(path, depth, before, after);
                }
                DiffTask::Report { change, is_cut } => self.push_change(change, is_cut),
            }
        }
        BodyDiff { format: DiffFormat::Json, changes: self.changes, truncated: self.truncated }
    }

    fn compare(&mut self, path: String, depth: usize, before: &'t str, after: &'t str) {
        if before == after {
            return;
        }
        self.work += before.len() + after.len();
        let is_at_limit = depth == DEPTH_MAX || path.len() > PATH_BYTES_MAX || self.work > WORK_MAX;
        let child_tasks = match (json_shape(before), json_shape(after)) {
            (JsonShape::Scalar, JsonShape::Scalar) if json_scan::is_same_string(before, after) => {
                return;
            }
            (JsonShape::Object, JsonShape::Object) if !is_at_limit => {
                compare_objects(&path, depth, before, after)
            }
            (JsonShape::Array, JsonShape::Array) if !is_at_limit => {
                self.compare_arrays(&path, depth, before, after)
            }
            _ => None,
        };
        match child_tasks.filter(|children| self.tasks.len() + children.len() <= TASKS_MAX) {
            // Reversed, because tasks are popped from the end.
            Some(children) => self.tasks.extend(children.into_iter().rev()),
            None => {
                // The search stopped here although the values could be compared in detail.
                self.truncated |= json_shape(before) == json_shape(after)
                    && json_shape(before) != JsonShape::Scalar;
                let (change, is_cut) = build_change(path, Some(before), Some(after));
                self.push_change(change, is_cut);
            }
        }
    }

    fn push_change(&mut self, change: BodyChange, is_cut: bool) {
        self.changes.push(change);
        self.truncated |= is_cut;
    }

    /// The comparisons needed for two arrays; `None` if they are too large.
    fn compare_arrays(
        &mut self,
        path: &str,
        depth: usize,
        before: &'t str,
        after: &'t str,
    ) -> Option<Vec<DiffTask<'t>>> {
        let (old, new) = (elements(before)?, elements(after)?);
        let (steps, work) = align(&old, &new);
        self.work += work;
        let task = |step| match step {
            AlignStep::Both(a, b) if old[a] == new[b] => None,
            AlignStep::Both(a, b) => Some(DiffTask::Compare {
                path: format!("{path}/{b}"),
                depth: depth + 1,
                before: old[a],
                after: new[b],
            }),
            AlignStep::Removed(a) => Some(report_task(format!("{path}/{a}"), Some(old[a]), None)),
            AlignStep::Added(b) => Some(report_task(format!("{path}/{b}"), None, Some(new[b]))),
        };
        Some(steps.into_iter().filter_map(task).collect())
    }
}

/// The comparisons needed for two objects; `None` if they are too large.
fn compare_objects<'t>(
    path: &str,
    depth: usize,
    before: &'t str,
    after: &'t str,
) -> Option<Vec<DiffTask<'t>>> {
    let (old, new) = (members(before)?, members(after)?);
    let path_of = |name: &str| format!("{path}/{}", escape_pointer_token(name));
    let mut unmatched: HashMap<_, _> =
        new.iter().map(|(member, value)| ((&*member.0, member.1), *value)).collect();
    let mut tasks = Vec::new();
    for ((name, occurrence), before) in &old {
        match unmatched.remove(&(&**name, *occurrence)) {
            Some(after) if after == *before => {}
            Some(after) => {
                let (path, depth) = (path_of(name), depth + 1);
                tasks.push(DiffTask::Compare { path, depth, before, after });
            }
            None => tasks.push(report_task(path_of(name), Some(before), None)),
        }
    }
    let added = new.iter().filter(|(member, _)| unmatched.contains_key(&(&*member.0, member.1)));
    tasks.extend(added.map(|((name, _), value)| report_task(path_of(name), None, Some(value))));
    Some(tasks)
}

fn report_task<'t>(path: String, before: Option<&str>, after: Option<&str>) -> DiffTask<'t> {
    let (change, is_cut) = build_change(path, before, after);
    DiffTask::Report { change, is_cut }
}

/// A change with values of bounded length, and whether one was cut.
fn build_change(path: String, before: Option<&str>, after: Option<&str>) -> (BodyChange, bool) {
    let kind = match (before, after) {
        (None, _) => BodyChangeKind::Added,
        (_, None) => BodyChangeKind::Removed,
        (Some(_), Some(_)) => BodyChangeKind::Changed,
    };
    let mut is_cut = false;
    let mut shorten = |value: &str| {
        let end = value.char_indices().nth(VALUE_CHARS_MAX).map(|(at, _)| at);
        is_cut |= end.is_some();
        end.map_or_else(|| value.to_owned(), |end| format!("{}…", &value[..end]))
    };
    let (before, after) = (before.map(&mut shorten), after.map(&mut shorten));
    let path = shorten(&path);
    (BodyChange { path, kind, before, after }, is_cut)
}

fn escape_pointer_token(name: &str) -> Cow<'_, str> {
    match name.contains(['~', '/']) {
        false => Cow::Borrowed(name),
        true => Cow::Owned(name.replace('~', "~0").replace('/', "~1")),
    }
}

fn common_prefix_len(before: &[u8], after: &[u8]) -> usize {
    before.iter().zip(after).take_while(|(a, b)| a == b).count()
}

/// Reports the lines from the first to the last difference as one change.
fn diff_lines(before: &str, after: &str) -> BodyDiff {
    let (a, b) = (before.as_bytes(), after.as_bytes());
    let prefix = common_prefix_len(a, b);
    if prefix == a.len().max(b.len()) {
        return BodyDiff { format: DiffFormat::Text, changes: Vec::new(), truncated: false };
    }
    let start = a[..prefix].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (a, b) = (&a[start..], &b[start..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    // Whole lines only: the rest of a partly equal line belongs to the difference.
    let common_tail = match a[a.len() - tail..].iter().position(|byte| *byte == b'\n') {
        Some(end) => tail - end - 1,
        None => 0,
    };
    let line = before.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
    let before = Some(&before[start..before.len() - common_tail]).filter(|lines| !lines.is_empty());
    let after = Some(&after[start..after.len() - common_tail]).filter(|lines| !lines.is_empty());
    let (change, truncated) = build_change(format!("line {line}"), before, after);
    BodyDiff { format: DiffFormat::Text, changes: vec![change], truncated }
}

/// Reports the first differing bytes as one change.
fn diff_bytes(before: &[u8], after: &[u8]) -> BodyDiff {
    let start = common_prefix_len(before, after);
    if start == before.len().max(after.len()) {
        return BodyDiff { format: DiffFormat::Bytes, changes: Vec::new(), truncated: false };
    }
    let text = |body: &[u8]| {
        let rest = &body[start..];
        let head = &rest[..rest.len().min(RAW_BYTES_SHOWN)];
        (!rest.is_empty()).then(|| HEXLOWER.encode(head))
    };
    let (old, new) = (text(before), text(after));
    let (change, _) = build_change(format!("byte {}", start + 1), old.as_deref(), new.as_deref());
    let truncated = before.len().max(after.len()) - start > RAW_BYTES_SHOWN;
    BodyDiff { format: DiffFormat::Bytes, changes: vec![change], truncated }
}
