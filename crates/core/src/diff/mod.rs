//! What differs between two bodies, for people who look at a duplicate.
//!
//! JSON is compared by its structure: the order of members and the space between tokens mean
//! nothing, and a number is the text that it is written as, so that no digit is lost. What is not
//! JSON is compared by lines, and what is not text by bytes. Everything has a bound; what goes
//! beyond it is said as [`BodyDiff::truncated`].

mod align;
mod scan;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashMap};

use data_encoding::HEXLOWER;

use self::{
    align::{Step, align},
    scan::{Kind, elements, kind, members},
};

/// Changes that are told.
pub const CHANGES_MAX: usize = 200;
/// Characters of each value that are told.
pub const VALUE_CHARS_MAX: usize = 1000;
/// How deep it is looked for differences.
const DEPTH_MAX: usize = 512;
/// The longest path that is followed further.
const PATH_BYTES_MAX: usize = 1000;
/// Bytes that are looked at in all. Each level looks at all that is below it.
const WORK_MAX: usize = 256 << 20;
/// Pairs that wait to be looked at.
const TASKS_MAX: usize = 50_000;
/// Bytes of a body that is no text which are told.
const RAW_BYTES_TOLD: usize = 32;

/// As what two bodies were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffFormat {
    /// Both are JSON.
    Json,
    /// Both are texts.
    Text,
    /// One of them is no text.
    Bytes,
}

impl DiffFormat {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }
}

/// What happened to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyChangeKind {
    /// Only the second body has it.
    Added,
    /// Only the first body has it.
    Removed,
    /// Both have it, and not the same.
    Changed,
}

impl BodyChangeKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyChange {
    /// Where: a JSON pointer (RFC 6901). An index is that of the second body, but for what was
    /// removed that of the first. In texts it is `line N`, in bytes `byte N`, from 1.
    pub path: String,
    /// What.
    pub kind: BodyChangeKind,
    /// The value in the first body, as JSON; lines of a text; bytes in hex. A long one is cut and
    /// ends in `…`.
    pub before: Option<String>,
    /// The same in the second body.
    pub after: Option<String>,
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyDiff {
    /// As what the bodies were compared.
    pub form: DiffFormat,
    /// The first [`CHANGES_MAX`] differences, in the order of the bodies.
    pub changes: Vec<BodyChange>,
    /// Something was cut: a value, the list, or the search itself.
    pub truncated: bool,
}

/// Compares two bodies. Without a change they mean the same, whatever their bytes are.
pub fn diff(before: &[u8], after: &[u8]) -> BodyDiff {
    match (std::str::from_utf8(before), std::str::from_utf8(after)) {
        (Ok(before), Ok(after)) => match (scan::json(before), scan::json(after)) {
            (Some(before), Some(after)) => Search::default().run(before, after),
            _ => by_lines(before, after),
        },
        _ => by_bytes(before, after),
    }
}

/// What is left to be looked at. On a heap of its own: bodies may be nested deeper than a stack.
enum Task<'t> {
    Compare { path: String, depth: usize, before: &'t str, after: &'t str },
    Tell(BodyChange, bool),
}

#[derive(Default)]
struct Search<'t> {
    tasks: Vec<Task<'t>>,
    changes: Vec<BodyChange>,
    truncated: bool,
    work: usize,
}

impl<'t> Search<'t> {
    fn run(mut self, before: &'t str, after: &'t str) -> BodyDiff {
        self.tasks.push(Task::Compare { path: String::new(), depth: 0, before, after });
        while let Some(task) = self.tasks.pop() {
            if self.changes.len() == CHANGES_MAX {
                self.truncated = true;
                break;
            }
            match task {
                Task::Compare { path, depth, before, after } => {
                    self.compare(path, depth, before, after);
                }
                Task::Tell(change, cut) => {
                    self.changes.push(change);
                    self.truncated |= cut;
                }
            }
        }
        BodyDiff { form: DiffFormat::Json, changes: self.changes, truncated: self.truncated }
    }

    fn compare(&mut self, path: String, depth: usize, before: &'t str, after: &'t str) {
        if before == after {
            return;
        }
        self.work += before.len() + after.len();
        let is_too_far = depth == DEPTH_MAX || path.len() > PATH_BYTES_MAX || self.work > WORK_MAX;
        let below = match (kind(before), kind(after)) {
            (Kind::Plain, Kind::Plain) if scan::is_same_text(before, after) => return,
            (Kind::Object, Kind::Object) if !is_too_far => in_objects(&path, depth, before, after),
            (Kind::Array, Kind::Array) if !is_too_far => self.in_lists(&path, depth, before, after),
            _ => None,
        };
        match below.filter(|below| self.tasks.len() + below.len() <= TASKS_MAX) {
            // The last one is taken first.
            Some(below) => self.tasks.extend(below.into_iter().rev()),
            None => {
                // It could have been told in more detail.
                self.truncated |= kind(before) == kind(after) && kind(before) != Kind::Plain;
                let (change, cut) = change(path, Some(before), Some(after));
                self.changes.push(change);
                self.truncated |= cut;
            }
        }
    }

    /// What is to be looked at in two lists; none if they are too large for that.
    fn in_lists(
        &mut self,
        path: &str,
        depth: usize,
        before: &'t str,
        after: &'t str,
    ) -> Option<Vec<Task<'t>>> {
        let (old, new) = (elements(before)?, elements(after)?);
        let (steps, work) = align(&old, &new);
        self.work += work;
        let task = |step| match step {
            Step::Both(a, b) if old[a] == new[b] => None,
            Step::Both(a, b) => Some(Task::Compare {
                path: format!("{path}/{b}"),
                depth: depth + 1,
                before: old[a],
                after: new[b],
            }),
            Step::Removed(a) => Some(tell(format!("{path}/{a}"), Some(old[a]), None)),
            Step::Added(b) => Some(tell(format!("{path}/{b}"), None, Some(new[b]))),
        };
        Some(steps.into_iter().filter_map(task).collect())
    }
}

/// The same for two objects.
fn in_objects<'t>(
    path: &str,
    depth: usize,
    before: &'t str,
    after: &'t str,
) -> Option<Vec<Task<'t>>> {
    let (old, new) = (members(before)?, members(after)?);
    let place = |name: &str| format!("{path}/{}", escaped(name));
    let mut left: HashMap<_, _> =
        new.iter().map(|(member, value)| ((&*member.0, member.1), *value)).collect();
    let mut tasks = Vec::new();
    for ((name, times), before) in &old {
        match left.remove(&(&**name, *times)) {
            Some(after) if after == *before => {}
            Some(after) => {
                let (path, depth) = (place(name), depth + 1);
                tasks.push(Task::Compare { path, depth, before, after });
            }
            None => tasks.push(tell(place(name), Some(before), None)),
        }
    }
    let added = new.iter().filter(|(member, _)| left.contains_key(&(&*member.0, member.1)));
    tasks.extend(added.map(|((name, _), value)| tell(place(name), None, Some(value))));
    Some(tasks)
}

fn tell<'t>(path: String, before: Option<&str>, after: Option<&str>) -> Task<'t> {
    let (change, cut) = change(path, before, after);
    Task::Tell(change, cut)
}

/// A change within its bounds, and whether something was cut.
fn change(path: String, before: Option<&str>, after: Option<&str>) -> (BodyChange, bool) {
    let kind = match (before, after) {
        (None, _) => BodyChangeKind::Added,
        (_, None) => BodyChangeKind::Removed,
        (Some(_), Some(_)) => BodyChangeKind::Changed,
    };
    let mut cut = false;
    let mut told = |value: &str| {
        let end = value.char_indices().nth(VALUE_CHARS_MAX).map(|(at, _)| at);
        cut |= end.is_some();
        end.map_or_else(|| value.to_owned(), |end| format!("{}…", &value[..end]))
    };
    let (before, after) = (before.map(&mut told), after.map(&mut told));
    let path = told(&path);
    (BodyChange { path, kind, before, after }, cut)
}

/// A name within a JSON pointer.
fn escaped(name: &str) -> Cow<'_, str> {
    match name.contains(['~', '/']) {
        false => Cow::Borrowed(name),
        true => Cow::Owned(name.replace('~', "~0").replace('/', "~1")),
    }
}

/// How many bytes two bodies have in common at their beginning.
fn common(before: &[u8], after: &[u8]) -> usize {
    before.iter().zip(after).take_while(|(a, b)| a == b).count()
}

/// The lines between the first and the last that differ, as one change.
fn by_lines(before: &str, after: &str) -> BodyDiff {
    let (a, b) = (before.as_bytes(), after.as_bytes());
    let same = common(a, b);
    if same == a.len().max(b.len()) {
        return BodyDiff { form: DiffFormat::Text, changes: Vec::new(), truncated: false };
    }
    let start = a[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (a, b) = (&a[start..], &b[start..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    // Whole lines only: what is left of the first common one belongs to what differs.
    let kept = match a[a.len() - tail..].iter().position(|byte| *byte == b'\n') {
        Some(end) => tail - end - 1,
        None => 0,
    };
    let line = before.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
    let before = Some(&before[start..before.len() - kept]).filter(|lines| !lines.is_empty());
    let after = Some(&after[start..after.len() - kept]).filter(|lines| !lines.is_empty());
    let (change, truncated) = change(format!("line {line}"), before, after);
    BodyDiff { form: DiffFormat::Text, changes: vec![change], truncated }
}

/// The first bytes that differ.
fn by_bytes(before: &[u8], after: &[u8]) -> BodyDiff {
    let start = common(before, after);
    if start == before.len().max(after.len()) {
        return BodyDiff { form: DiffFormat::Bytes, changes: Vec::new(), truncated: false };
    }
    let told = |body: &[u8]| {
        let rest = &body[start..];
        let told = &rest[..rest.len().min(RAW_BYTES_TOLD)];
        (!rest.is_empty()).then(|| HEXLOWER.encode(told))
    };
    let (old, new) = (told(before), told(after));
    let (change, _) = change(format!("byte {}", start + 1), old.as_deref(), new.as_deref());
    let truncated = before.len().max(after.len()) - start > RAW_BYTES_TOLD;
    BodyDiff { form: DiffFormat::Bytes, changes: vec![change], truncated }
}
