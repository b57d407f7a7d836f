//! Splits a request of Meta into its events without reserializing them.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    super::{
        DEFAULT_DEDUP_WINDOW, EventKey, EventPart,
        fields::{EventReader, EventTemplate, FieldValues},
        raw_json::{EVENTS_MAX, RawObject, SPLIT_BYTES_MAX},
    },
    envelope::{
        CONTACTS, ChangeLocation, EnvelopeChange, EnvelopeRoot, ValueLocation, event_lists,
    },
    keys::{self, ChangeScope},
};
use crate::{attribute::EventKind, key::scalar_text};

const WHATSAPP: &str = "whatsapp_business_account";

static CONTACT: EventReader = EventReader::new(&EventTemplate {
    extra_fields: &["/wa_id", "/user_id", "/parent_user_id"],
    ..EventTemplate::EMPTY
});

enum ParsedChange<'e, 'b> {
    /// A change with events, or one that is an event itself.
    Parsed(ValueLocation<'e, 'b>),
    /// A malformed change, which is one event.
    Malformed(ChangeLocation<'e, 'b>, &'b str),
}

struct SplitEvent<'b> {
    /// `None` for the change itself.
    item: Option<EventItem<'b>>,
    part: EventPart,
}

struct EventItem<'b> {
    list_index: usize,
    text: &'b str,
    fields: FieldValues<'b>,
}

/// The events of a request, in order. A single event keeps the body.
pub(super) fn parts(body: &[u8]) -> Vec<EventPart> {
    let text = std::str::from_utf8(body).ok();
    let Some(root) = text.and_then(|text| serde_json::from_str::<EnvelopeRoot<'_>>(text).ok())
    else {
        return vec![EventPart { key: EventKey::None, ..EventPart::default() }];
    };
    let object = root.get(r#""object""#).and_then(scalar_text);
    let unsplit = || EventPart {
        kind: object.as_deref().and_then(EventKind::new),
        key: EventKey::ContentHash(DEFAULT_DEDUP_WINDOW.0),
        ..EventPart::default()
    };
    if object.as_deref() != Some(WHATSAPP) {
        return vec![unsplit()];
    }
    let Some(changes) = changes(&root) else { return vec![unsplit()] };
    match changes.iter().map(ParsedChange::event_count).sum() {
        0 => vec![unsplit()],
        1 => changes.iter().flat_map(ParsedChange::events).map(|event| event.part).collect(),
        2..=EVENTS_MAX => with_bodies(&changes).unwrap_or_else(|| vec![unsplit()]),
        _ => vec![unsplit()],
    }
}

/// The changes of the envelope; `None` if an entry has no changes, because splitting would lose it.
fn changes<'e, 'b>(root: &'e EnvelopeRoot<'b>) -> Option<Vec<ParsedChange<'e, 'b>>> {
    let mut parsed = Vec::new();
    for (entries_index, _, entries) in root.nested() {
        for entry in entries {
            let (changes_index, _, changes) = single_nested(entry)?;
            if changes.is_empty() {
                return None;
            }
            let change_location = ChangeLocation { root, entries_index, entry, changes_index };
            parsed.extend(changes.iter().map(|change| ParsedChange::new(change_location, change)));
        }
    }
    Some(parsed)
}

/// The nested member, if there is exactly one.
fn single_nested<'o, 'b, T>(object: &'o RawObject<'b, T>) -> Option<(usize, &'b str, &'o T)> {
    let mut members = object.nested();
    members.next().filter(|_| members.next().is_none())
}

impl<'e, 'b> ParsedChange<'e, 'b> {
    fn new(change_location: ChangeLocation<'e, 'b>, change: &'e EnvelopeChange<'b>) -> Self {
        let location = change.object.as_ref().and_then(|object| {
            let (value_index, _, value) = single_nested(object)?;
            Some(ValueLocation { change_location, change: object, value_index, value })
        });
        location.map_or(Self::Malformed(change_location, change.text), Self::Parsed)
    }

    /// The number of events. A change without any is one event itself.
    fn event_count(&self) -> usize {
        match self {
            Self::Parsed(location) => {
                event_lists(location.value).map(|(_, _, items)| items.0.len()).sum::<usize>().max(1)
            }
            Self::Malformed(..) => 1,
        }
    }

    fn events(&self) -> Vec<SplitEvent<'b>> {
        match *self {
            Self::Parsed(location) => events(&location),
            Self::Malformed(change_location, text) => {
                vec![SplitEvent {
                    item: None,
                    part: ChangeScope::parse_malformed_change(change_location.entry, text),
                }]
            }
        }
    }
}

fn events<'b>(location: &ValueLocation<'_, 'b>) -> Vec<SplitEvent<'b>> {
    let scope = ChangeScope::of(location);
    let mut events = Vec::new();
    for (list_index, name, items) in event_lists(location.value) {
        for text in items.0.iter().map(|item| item.get()) {
            let fields = keys::read_item(text);
            let part = scope.parse_item(name, text, &fields);
            events.push(SplitEvent { item: Some(EventItem { list_index, text, fields }), part });
        }
    }
    if events.is_empty() {
        events.push(SplitEvent { item: None, part: scope.parse_change(location) });
    }
    events
}

/// Gives each event its own envelope; `None` if they would become too large.
fn with_bodies(changes: &[ParsedChange<'_, '_>]) -> Option<Vec<EventPart>> {
    let mut bytes_left = SPLIT_BYTES_MAX;
    let mut parts = Vec::new();
    for change in changes {
        let contacts = match change {
            ParsedChange::Parsed(location) => Contacts::of(location),
            ParsedChange::Malformed(..) => Contacts::default(),
        };
        for SplitEvent { item, mut part } in change.events() {
            let body = match (change, item) {
                (ParsedChange::Parsed(location), Some(item)) => {
                    let positions = contacts.find_positions(&item.fields);
                    location.envelope(&location.value_with(item.list_index, item.text, &positions))
                }
                (ParsedChange::Parsed(location), None) => {
                    location.envelope(&location.whole_value())
                }
                (ParsedChange::Malformed(change_location, text), _) => {
                    change_location.envelope(text)
                }
            };
            bytes_left = bytes_left.checked_sub(body.len())?;
            part.body = Some(Bytes::from(body));
            parts.push(part);
        }
    }
    Some(parts)
}

/// The positions of the contacts of a value, by id.
#[derive(Default)]
struct Contacts(HashMap<String, Vec<usize>>);

impl Contacts {
    fn of(location: &ValueLocation<'_, '_>) -> Self {
        let mut by_id: HashMap<String, Vec<usize>> = HashMap::new();
        let list = location.value.nested().find(|(_, name, _)| *name == CONTACTS);
        let contacts = list.into_iter().flat_map(|(_, _, items)| items.0.iter().enumerate());
        for (position, contact) in contacts {
            let contact = CONTACT.read_json(contact.get().as_bytes());
            let ids = ["/wa_id", "/user_id", "/parent_user_id"];
            for id in ids.iter().filter_map(|id| contact.get(id)) {
                by_id.entry(id.to_owned()).or_default().push(position);
            }
        }
        Self(by_id)
    }

    /// The positions of the sender and recipients of an event.
    fn find_positions(&self, event: &FieldValues<'_>) -> Vec<usize> {
        let mut positions: Vec<usize> =
            keys::contact_ids(event).filter_map(|id| self.0.get(id)).flatten().copied().collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}
