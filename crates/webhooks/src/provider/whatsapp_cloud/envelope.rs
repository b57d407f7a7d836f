//! The envelope of Meta's webhooks, parsed in one pass.
//!
//! ```text
//! {object, entry: [{id, time?, changes: [{field, value: {metadata, contacts?, messages? …}}]}]}
//! ```

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::super::raw_json::{NestedMember, RawObject, json_array};

pub(super) type EnvelopeRoot<'b> = RawObject<'b, Vec<EnvelopeEntry<'b>>>;
pub(super) type EnvelopeEntry<'b> = RawObject<'b, Vec<EnvelopeChange<'b>>>;
pub(super) type EnvelopeValue<'b> = RawObject<'b, EnvelopeItems<'b>>;

/// A change, as text and parsed.
pub(super) struct EnvelopeChange<'b> {
    pub(super) text: &'b str,
    /// `None` if the change is malformed. Other changes are not affected.
    pub(super) object: Option<RawObject<'b, EnvelopeValue<'b>>>,
}

impl<'de> Deserialize<'de> for EnvelopeChange<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        Ok(Self { text, object: serde_json::from_str(text).ok() })
    }
}

/// An array in a value: events or contacts.
#[derive(Deserialize)]
pub(super) struct EnvelopeItems<'b>(#[serde(borrow)] pub(super) Vec<&'b RawValue>);

/// The senders and recipients of the events in a value.
pub(super) const CONTACTS: &str = r#""contacts""#;

/// The arrays in a value that contain events. For `errors` see [`event_lists`].
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

impl<'b> NestedMember<'b> for Vec<EnvelopeEntry<'b>> {
    fn has_name(name: &str) -> bool {
        name == r#""entry""#
    }
}

impl<'b> NestedMember<'b> for Vec<EnvelopeChange<'b>> {
    fn has_name(name: &str) -> bool {
        name == r#""changes""#
    }
}

impl<'b> NestedMember<'b> for EnvelopeValue<'b> {
    fn has_name(name: &str) -> bool {
        name == r#""value""#
    }
}

impl<'b> NestedMember<'b> for EnvelopeItems<'b> {
    fn has_name(name: &str) -> bool {
        name == CONTACTS || EVENT_LISTS.contains(&name)
    }
}

/// The event arrays of a value, with position and name. Errors next to calls explain why the calls
/// ended, so they stay with them.
pub(super) fn event_lists<'v, 'b>(
    value: &'v EnvelopeValue<'b>,
) -> impl Iterator<Item = (usize, &'b str, &'v EnvelopeItems<'b>)> {
    let has_calls = value.nested().any(|(_, name, _)| name == CALLS);
    value.nested().filter(move |(_, name, _)| is_event_list(name, has_calls))
}

fn is_event_list(name: &str, has_calls: bool) -> bool {
    name != CONTACTS && !(name == ERRORS && has_calls)
}

/// The path to a change in the envelope.
#[derive(Clone, Copy)]
pub(super) struct ChangeLocation<'e, 'b> {
    pub(super) root: &'e EnvelopeRoot<'b>,
    /// The position of the member `entry` in the root.
    pub(super) entries_index: usize,
    pub(super) entry: &'e EnvelopeEntry<'b>,
    /// The position of the member `changes` in the entry.
    pub(super) changes_index: usize,
}

impl ChangeLocation<'_, '_> {
    /// The envelope with a single change.
    pub(super) fn envelope(&self, change: &str) -> String {
        let changes = json_array([change].into_iter());
        let entry = self.entry.rewrite(&[(self.changes_index, &changes)]);
        let entries = json_array([entry.as_str()].into_iter());
        self.root.rewrite(&[(self.entries_index, &entries)])
    }
}

/// The path to the value of a change.
#[derive(Clone, Copy)]
pub(super) struct ValueLocation<'e, 'b> {
    pub(super) change_location: ChangeLocation<'e, 'b>,
    pub(super) change: &'e RawObject<'b, EnvelopeValue<'b>>,
    /// The position of the member `value` in the change.
    pub(super) value_index: usize,
    pub(super) value: &'e EnvelopeValue<'b>,
}

impl ValueLocation<'_, '_> {
    /// The envelope with a single value.
    pub(super) fn envelope(&self, value: &str) -> String {
        self.change_location.envelope(&self.change.rewrite(&[(self.value_index, value)]))
    }

    /// The text of the value with a single event, and only the contacts at these positions.
    pub(super) fn value_with(
        &self,
        events_index: usize,
        event: &str,
        contacts: &[usize],
    ) -> String {
        let has_calls = self.value.nested().any(|(_, name, _)| name == CALLS);
        let lists = self.value.nested().filter_map(|(index, name, items)| {
            let all = || json_array(items.0.iter().map(|item| item.get()));
            if index == events_index {
                Some((index, json_array([event].into_iter())))
            } else if name == CONTACTS {
                let matching = contacts.iter().filter_map(|position| items.0.get(*position));
                let matching = json_array(matching.map(|item| item.get()));
                // Without a match all contacts are kept, so that no message loses its name.
                Some((index, if contacts.is_empty() { all() } else { matching }))
            } else {
                (!is_event_list(name, has_calls)).then(|| (index, all()))
            }
        });
        rewrite(self.value, lists)
    }

    /// The text of the complete value.
    pub(super) fn whole_value(&self) -> String {
        let lists = self
            .value
            .nested()
            .map(|(index, _, items)| (index, json_array(items.0.iter().map(|item| item.get()))));
        rewrite(self.value, lists)
    }
}

fn rewrite(value: &EnvelopeValue<'_>, lists: impl Iterator<Item = (usize, String)>) -> String {
    let lists: Vec<_> = lists.collect();
    let lists: Vec<_> = lists.iter().map(|(index, text)| (*index, text.as_str())).collect();
    value.rewrite(&lists)
}
