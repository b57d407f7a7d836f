//! The envelope around everything that Meta sends, taken apart in one pass.
//!
//! ```text
//! {object, entry: [{id, time?, changes: [{field, value: {metadata, contacts?, messages? …}}]}]}
//! ```

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::super::pieces::{Object, Opened, list};

pub(super) type Root<'b> = Object<'b, Vec<Entry<'b>>>;
pub(super) type Entry<'b> = Object<'b, Vec<Change<'b>>>;
pub(super) type Value<'b> = Object<'b, Items<'b>>;

/// A change, as it is spelled and taken apart.
pub(super) struct Change<'b> {
    pub(super) text: &'b str,
    /// None if something in it is not what it should be. The others need not suffer for that.
    pub(super) object: Option<Object<'b, Value<'b>>>,
}

impl<'de> Deserialize<'de> for Change<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        Ok(Self { text, object: serde_json::from_str(text).ok() })
    }
}

/// A list in a value: events, or the contacts that belong to them.
#[derive(Deserialize)]
pub(super) struct Items<'b>(#[serde(borrow)] pub(super) Vec<&'b RawValue>);

/// Who the events of a value are from or for.
pub(super) const CONTACTS: &str = r#""contacts""#;

/// The lists in a value that hold events. `errors` is the last one: see [`event_lists`].
const EVENT_LISTS: [&str; 10] = [
    r#""messages""#,
    r#""statuses""#,
    r#""message_echoes""#,
    r#""calls""#,
    r#""history""#,
    r#""state_sync""#,
    r#""user_preferences""#,
    r#""user_id_update""#,
    r#""groups""#,
    ERRORS,
];
const ERRORS: &str = r#""errors""#;
const CALLS: &str = r#""calls""#;

impl<'b> Opened<'b> for Vec<Entry<'b>> {
    fn is_called(name: &str) -> bool {
        name == r#""entry""#
    }
}

impl<'b> Opened<'b> for Vec<Change<'b>> {
    fn is_called(name: &str) -> bool {
        name == r#""changes""#
    }
}

impl<'b> Opened<'b> for Value<'b> {
    fn is_called(name: &str) -> bool {
        name == r#""value""#
    }
}

impl<'b> Opened<'b> for Items<'b> {
    fn is_called(name: &str) -> bool {
        name == CONTACTS || EVENT_LISTS.contains(&name)
    }
}

/// The lists of events in a value, by their position and name. Errors beside calls say why these
/// ended, so they stay with them.
pub(super) fn event_lists<'v, 'b>(
    value: &'v Value<'b>,
) -> impl Iterator<Item = (usize, &'b str, &'v Items<'b>)> {
    let has_calls = value.opened().any(|(_, name, _)| name == CALLS);
    value.opened().filter(move |(_, name, _)| is_event_list(name, has_calls))
}

fn is_event_list(name: &str, has_calls: bool) -> bool {
    name != CONTACTS && !(name == ERRORS && has_calls)
}

/// Where a change stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'e, 'b> {
    pub(super) root: &'e Root<'b>,
    /// The position of the list that the entry is in; in the same way with the others.
    pub(super) entries_at: usize,
    pub(super) entry: &'e Entry<'b>,
    pub(super) changes_at: usize,
}

impl Place<'_, '_> {
    /// The envelope with this as its only change.
    pub(super) fn envelope(&self, change: &str) -> String {
        let changes = list([change].into_iter());
        let entry = self.entry.rewrite(&[(self.changes_at, &changes)]);
        let entries = list([entry.as_str()].into_iter());
        self.root.rewrite(&[(self.entries_at, &entries)])
    }
}

/// Where an event stands: a change, and the way to it.
#[derive(Clone, Copy)]
pub(super) struct Spot<'e, 'b> {
    pub(super) place: Place<'e, 'b>,
    pub(super) change: &'e Object<'b, Value<'b>>,
    pub(super) value_at: usize,
    pub(super) value: &'e Value<'b>,
}

impl Spot<'_, '_> {
    /// The envelope with this as its only value.
    pub(super) fn envelope(&self, value: &str) -> String {
        self.place.envelope(&self.change.rewrite(&[(self.value_at, value)]))
    }

    /// The text of a value with this event alone, and of the contacts only those at these
    /// positions.
    pub(super) fn value_with(
        &self,
        (events_at, event): (usize, &str),
        contacts: &[usize],
    ) -> String {
        let has_calls = self.value.opened().any(|(_, name, _)| name == CALLS);
        let kept = self.value.opened().filter_map(|(at, name, items)| {
            let all = || list(items.0.iter().map(|item| item.get()));
            if at == events_at {
                Some((at, list([event].into_iter())))
            } else if name == CONTACTS {
                let own = contacts.iter().filter_map(|at| items.0.get(*at));
                let own = list(own.map(|item| item.get()));
                // None that fits: better all of them than a message without a name.
                Some((at, if contacts.is_empty() { all() } else { own }))
            } else {
                (!is_event_list(name, has_calls)).then(|| (at, all()))
            }
        });
        rewrite(self.value, kept)
    }

    /// The text of the whole value.
    pub(super) fn whole_value(&self) -> String {
        let all = self.value.opened();
        let all = all.map(|(at, _, items)| (at, list(items.0.iter().map(|item| item.get()))));
        rewrite(self.value, all)
    }
}

fn rewrite(value: &Value<'_>, lists: impl Iterator<Item = (usize, String)>) -> String {
    let lists: Vec<_> = lists.collect();
    let lists: Vec<_> = lists.iter().map(|(at, text)| (*at, text.as_str())).collect();
    value.rewrite(&lists)
}
