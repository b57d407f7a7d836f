//! One request of Meta is many events: cuts it up without changing a letter of them.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    super::{
        EventKey, EventPart, FieldValues,
        fields::places,
        pieces::{BODIES_BYTES_MAX, Object, PARTS_MAX},
    },
    envelope::{CONTACTS, Change, Place, Root, Spot, event_lists},
    keys::{self, Scope},
};
use crate::{attribute::EventKind, key::scalar_text, source::DEDUP_WINDOW};

const WHATSAPP: &str = "whatsapp_business_account";

places! {
    static CONTACT {
        WA_ID = "/wa_id",
        USER_ID = "/user_id",
        PARENT_USER_ID = "/parent_user_id",
    }
}

/// A change that was found.
enum Changed<'e, 'b> {
    /// With events in it, or as one itself.
    Read(Spot<'e, 'b>),
    /// It cannot be taken apart, and is one event.
    Odd(Place<'e, 'b>, &'b str),
}

struct Event<'b> {
    /// None is the change itself.
    item: Option<Item<'b>>,
    part: EventPart,
}

struct Item<'b> {
    list_at: usize,
    text: &'b str,
    found: FieldValues<'b>,
}

/// The events of a request, in their order. One that is alone keeps its body.
pub(super) fn parts(body: &[u8]) -> Vec<EventPart> {
    let text = std::str::from_utf8(body).ok();
    let Some(root) = text.and_then(|text| serde_json::from_str::<Root<'_>>(text).ok()) else {
        return vec![EventPart { key: EventKey::None, ..EventPart::default() }];
    };
    let object = root.get(r#""object""#).and_then(scalar_text);
    let whole = || EventPart {
        kind: object.as_deref().and_then(EventKind::new),
        key: EventKey::ContentHash(DEDUP_WINDOW.0),
        ..EventPart::default()
    };
    if object.as_deref() != Some(WHATSAPP) {
        return vec![whole()];
    }
    let Some(changes) = changes(&root) else { return vec![whole()] };
    match changes.iter().map(Changed::many).sum() {
        0 => vec![whole()],
        1 => changes.iter().flat_map(Changed::events).map(|event| event.part).collect(),
        2..=PARTS_MAX => with_bodies(&changes).unwrap_or_else(|| vec![whole()]),
        _ => vec![whole()],
    }
}

/// Finds the changes. Nothing if something in the envelope has no place in it: it must not get lost.
fn changes<'e, 'b>(root: &'e Root<'b>) -> Option<Vec<Changed<'e, 'b>>> {
    let mut found = Vec::new();
    for (entries_at, _, entries) in root.opened() {
        for entry in entries {
            let (changes_at, _, changes) = only(entry)?;
            if changes.is_empty() {
                return None;
            }
            let place = Place { root, entries_at, entry, changes_at };
            found.extend(changes.iter().map(|change| Changed::new(place, change)));
        }
    }
    Some(found)
}

/// The opened member, if there is exactly one.
fn only<'o, 'b, T>(object: &'o Object<'b, T>) -> Option<(usize, &'b str, &'o T)> {
    let mut opened = object.opened();
    opened.next().filter(|_| opened.next().is_none())
}

impl<'e, 'b> Changed<'e, 'b> {
    fn new(place: Place<'e, 'b>, change: &'e Change<'b>) -> Self {
        let read = change.object.as_ref().and_then(|object| {
            let (value_at, _, value) = only(object)?;
            Some(Spot { place, change: object, value_at, value })
        });
        read.map_or(Self::Odd(place, change.text), Self::Read)
    }

    /// How many events it holds. One without any is one itself.
    fn many(&self) -> usize {
        match self {
            Self::Read(spot) => {
                event_lists(spot.value).map(|(_, _, items)| items.0.len()).sum::<usize>().max(1)
            }
            Self::Odd(..) => 1,
        }
    }

    fn events(&self) -> Vec<Event<'b>> {
        match *self {
            Self::Read(spot) => events(&spot),
            Self::Odd(place, text) => {
                vec![Event { item: None, part: Scope::odd(place.entry, text) }]
            }
        }
    }
}

fn events<'b>(spot: &Spot<'_, 'b>) -> Vec<Event<'b>> {
    let scope = Scope::of(spot);
    let mut events = Vec::new();
    for (list_at, name, items) in event_lists(spot.value) {
        for text in items.0.iter().map(|item| item.get()) {
            let found = keys::read_item(text);
            let part = scope.part(name, text, &found);
            events.push(Event { item: Some(Item { list_at, text, found }), part });
        }
    }
    if events.is_empty() {
        events.push(Event { item: None, part: scope.change(spot) });
    }
    events
}

/// Gives each event an envelope of its own. Nothing if they would become too large.
fn with_bodies(changes: &[Changed<'_, '_>]) -> Option<Vec<EventPart>> {
    let mut room = BODIES_BYTES_MAX;
    let mut parts = Vec::new();
    for changed in changes {
        let contacts = match changed {
            Changed::Read(spot) => Contacts::of(spot),
            Changed::Odd(..) => Contacts::default(),
        };
        for Event { item, mut part } in changed.events() {
            let body = match (changed, item) {
                (Changed::Read(spot), Some(item)) => {
                    let whom = contacts.whom(&item.found);
                    spot.envelope(&spot.value_with((item.list_at, item.text), &whom))
                }
                (Changed::Read(spot), None) => spot.envelope(&spot.whole_value()),
                (Changed::Odd(place, text), _) => place.envelope(text),
            };
            room = room.checked_sub(body.len())?;
            part.body = Some(Bytes::from(body));
            parts.push(part);
        }
    }
    Some(parts)
}

/// The contacts of a value, by their ids.
#[derive(Default)]
struct Contacts(HashMap<String, Vec<usize>>);

impl Contacts {
    fn of(spot: &Spot<'_, '_>) -> Self {
        let mut by_id: HashMap<String, Vec<usize>> = HashMap::new();
        let list = spot.value.opened().find(|(_, name, _)| *name == CONTACTS);
        let contacts = list.into_iter().flat_map(|(_, _, items)| items.0.iter().enumerate());
        for (at, contact) in contacts {
            let contact = CONTACT.read(contact.get().as_bytes());
            for id in [WA_ID, USER_ID, PARENT_USER_ID].iter().filter_map(|id| contact.get(*id)) {
                by_id.entry(id.to_owned()).or_default().push(at);
            }
        }
        Self(by_id)
    }

    /// The positions of those whom an event is from or for.
    fn whom(&self, event: &FieldValues<'_>) -> Vec<usize> {
        let mut whom: Vec<usize> =
            keys::parties(event).filter_map(|id| self.0.get(id)).flatten().copied().collect();
        whom.sort_unstable();
        whom.dedup();
        whom
    }
}
