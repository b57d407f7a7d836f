//! Kind, key, ordering key and attributes of each event from Meta.

use std::{borrow::Cow, time::Duration};

use data_encoding::HEXLOWER;

use super::{
    super::{
        EventKey, EventPart,
        fields::{EventReader, EventTemplate, FieldValues},
    },
    envelope::{EnvelopeEntry, ValueLocation},
};
use crate::{
    attribute::{
        AttributeName::{
            Account, Chat, Conversation, Error, MessageId, Object, Phone, ProviderStatus,
        },
        Attributes, EventKind,
    },
    key::{DedupKey, fingerprint, scalar_text},
};

/// Errors without a message have equal bytes; after this time they are another event.
const ERROR_WINDOW: Duration = Duration::from_secs(600);

/// Messages, statuses, echoes and calls. With a username there may be no phone number.
static ITEM: EventReader = EventReader::new(&EventTemplate {
    attributes: &[
        (MessageId, &["/id", "/context/id", "/reaction/message_id"]),
        (Conversation, &["/conversation/id"]),
        (Phone, &["/from", "/to", "/recipient_id", "/recipient_participant_id"]),
        (Phone, &["/system/wa_id"]),
        (Chat, &["/from_user_id", "/to_user_id", "/recipient_user_id", "/group_id"]),
        (ProviderStatus, &["/status", "/event"]),
        (Error, &["/errors/0/code", "/code"]),
        (Object, &["/biz_opaque_callback_data"]),
    ],
    extra_fields: &["/type", "/recipient_type", SENDER, RECEIVER, RECIPIENT, PARTICIPANT],
    ..EventTemplate::EMPTY
});

const SENDER: &str = "/from|/from_user_id|/from_parent_user_id";
const RECEIVER: &str = "/to|/to_user_id|/to_parent_user_id";
const RECIPIENT: &str = "/recipient_id|/recipient_user_id|/recipient_parent_user_id";
const PARTICIPANT: &str = "/recipient_participant_id|/recipient_participant_user_id";

static METADATA: EventReader = EventReader::new(&EventTemplate {
    attributes: &[(Account, &["/phone_number_id", "/display_phone_number"])],
    ..EventTemplate::EMPTY
});

static CHANGE: EventReader =
    EventReader::new(&EventTemplate { extra_fields: &["/field"], ..EventTemplate::EMPTY });

/// Reads the fields of one event.
pub(super) fn read_item(item: &str) -> FieldValues<'_> {
    ITEM.read_json(item.as_bytes())
}

/// The ids of the sender and recipients of an event.
pub(super) fn contact_ids<'f>(item: &'f FieldValues<'_>) -> impl Iterator<Item = &'f str> {
    let fields = [SENDER, RECEIVER, RECIPIENT, PARTICIPANT].into_iter();
    fields.flat_map(|fields| fields.split('|')).filter_map(|field| item.get(field))
}

/// The values that all events of a change share; gives each event its kind, key and attributes.
pub(super) struct ChangeScope<'b> {
    field: Option<Cow<'b, str>>,
    account_id: Option<Cow<'b, str>>,
    time: Option<Cow<'b, str>>,
    metadata: Option<FieldValues<'b>>,
}

impl<'b> ChangeScope<'b> {
    pub(super) fn of(location: &ValueLocation<'_, 'b>) -> Self {
        let metadata = location.value.get(r#""metadata""#);
        Self {
            field: location.change.get(r#""field""#).and_then(scalar_text),
            metadata: metadata.map(|metadata| METADATA.read_json(metadata.get().as_bytes())),
            ..Self::of_entry(location.change_location.entry)
        }
    }

    fn of_entry(entry: &EnvelopeEntry<'b>) -> Self {
        Self {
            field: None,
            account_id: entry.get(r#""id""#).and_then(scalar_text),
            time: entry.get(r#""time""#).and_then(scalar_text),
            metadata: None,
        }
    }

    /// A malformed change is one event, keyed by its content.
    pub(super) fn parse_malformed_change(entry: &EnvelopeEntry<'b>, change: &'b str) -> EventPart {
        let fields = CHANGE.read_json(change.as_bytes());
        let field = fields.get("/field").map(|field| Cow::Owned(field.to_owned()));
        let scope = Self { field, ..Self::of_entry(entry) };
        EventPart {
            kind: EventKind::new(scope.field()),
            key: scope.change_key(None, change),
            ordering_key: scope.ordering_key(None),
            attributes: scope.attributes(),
            ..EventPart::default()
        }
    }

    fn field(&self) -> &str {
        self.field.as_deref().unwrap_or("unknown")
    }

    fn account_id(&self) -> &str {
        self.account_id.as_deref().unwrap_or("-")
    }

    /// The phone number id, or the account id for changes of the whole account.
    fn number_or_account_id(&self) -> &str {
        let number_id =
            self.metadata.as_ref().and_then(|metadata| metadata.get("/phone_number_id"));
        number_id.unwrap_or_else(|| self.account_id())
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::default();
        if let Some(metadata) = &self.metadata {
            metadata.add_attributes(&mut attributes);
        }
        attributes.push_some(Account, self.account_id.as_deref());
        attributes
    }

    /// The ordering key: events with the same contact or template are delivered in order.
    fn ordering_key(&self, subject: Option<&str>) -> Option<DedupKey> {
        match subject {
            Some(subject) => DedupKey::new(&format!("{}:{subject}", self.number_or_account_id())),
            None => DedupKey::new(self.number_or_account_id()),
        }
    }

    /// A key within the number, so that numbers do not share keys.
    fn key(&self, id: &str, label: &'static str) -> EventKey {
        EventKey::known_or_none(
            DedupKey::new(&format!("whatsapp:{}:{id}", self.number_or_account_id())),
            label,
        )
    }

    /// The key of an event by its id; without one, by its text.
    fn key_by_id_or_hash(
        &self,
        id: Option<Cow<'_, str>>,
        label: &'static str,
        word: &str,
        text: &str,
    ) -> EventKey {
        id.map_or_else(|| self.key_by_hash(word, text), |id| self.key(&id, label))
    }

    /// The key of an event without an id: the hash of its text.
    fn key_by_hash(&self, word: &str, text: &str) -> EventKey {
        let hash = HEXLOWER.encode(&fingerprint(text.as_bytes()));
        self.key(&format!("{word}:sha256:{hash}"), "whatsapp:sha256")
    }

    /// The key of a whole change: its time and the hash of its text.
    fn change_key(&self, event: Option<&str>, text: &str) -> EventKey {
        let (event, time) = (event.unwrap_or("-"), self.time.as_deref().unwrap_or("-"));
        self.key_by_hash(&format!("{}:{event}:{time}", self.field()), text)
    }

    /// The event of one array item.
    pub(super) fn parse_item(&self, name: &str, text: &str, item: &FieldValues<'_>) -> EventPart {
        let call = |kind: &'static str, key: &'static str| {
            let kind = item.fill(kind).unwrap_or(Cow::Borrowed("call.unknown"));
            let key = self.key_by_id_or_hash(item.fill(key), "whatsapp:calls.id", "call", text);
            (kind, key, item.get("/id"))
        };
        let is_call = item.get("/type") == Some("call");
        let (kind, key, contact) = match (self.field(), name) {
            ("messages", r#""messages""#) => {
                // Also for a reaction, which has its own id.
                let id = item.fill("message:{/id}");
                let key = self.key_by_id_or_hash(id, "whatsapp:messages.id", "message", text);
                (Cow::Borrowed(message_kind(item)), key, item.get(SENDER))
            }
            ("messages", r#""statuses""#) if !is_call => {
                let kind = item.fill("status.{/status}");
                let key =
                    self.key_by_id_or_hash(status_id(item), "whatsapp:statuses.id", "status", text);
                (kind.unwrap_or(Cow::Borrowed("status.unknown")), key, item.get(RECIPIENT))
            }
            ("messages" | "calls", r#""statuses""#) => {
                call("call.{/status}", "call:{/id}:{/status}")
            }
            ("calls", r#""calls""#) => call("call.{/event}", "call:{/id}:{/event}"),
            // A message written in the WhatsApp Business app of a number that is also on the API.
            ("smb_message_echoes", r#""message_echoes""#) => {
                let id = item.fill("echo:{/id}");
                let key = self.key_by_id_or_hash(id, "whatsapp:message_echoes.id", "echo", text);
                (Cow::Borrowed("echo"), key, item.get(RECEIVER))
            }
            (_, r#""errors""#) => {
                (Cow::Borrowed("error"), EventKey::ContentHash(ERROR_WINDOW), None)
            }
            (field, _) => (Cow::Borrowed(field), self.key_by_hash(field, text), item.get(SENDER)),
        };
        let mut attributes = self.attributes();
        item.add_attributes(&mut attributes);
        EventPart {
            kind: EventKind::new(&kind),
            key,
            ordering_key: self.ordering_key(contact),
            attributes,
            ..EventPart::default()
        }
    }

    /// A change without events: about the account or a template.
    pub(super) fn parse_change(&self, location: &ValueLocation<'_, 'b>) -> EventPart {
        let text = |name| location.value.get(name).and_then(scalar_text);
        let event = text(r#""event""#);
        let template = text(r#""message_template_id""#);
        let language = text(r#""message_template_language""#);
        let mut attributes = self.attributes();
        attributes.push_some(ProviderStatus, event.as_deref());
        attributes.push_some(Object, template.as_deref());
        attributes.push_some(Account, text(r#""display_phone_number""#));
        let key = match (self.field(), &template, &language, &event, &self.time) {
            (
                "message_template_status_update",
                Some(template),
                Some(language),
                Some(event),
                Some(time),
            ) => {
                // A template may be approved again after a pause; only the time differs.
                let id = format!("tmpl:{template}:{language}:{event}:{time}");
                self.key(&id, "whatsapp:message_template_id")
            }
            (_, _, _, event, _) => self.change_key(event.as_deref(), &location.whole_value()),
        };
        EventPart {
            kind: EventKind::new(self.field()),
            key,
            ordering_key: self.ordering_key(template.as_deref()),
            attributes,
            ..EventPart::default()
        }
    }
}

fn message_kind(item: &FieldValues<'_>) -> &'static str {
    match item.get("/type") {
        Some("reaction") => "message.reaction",
        Some("system") => "message.system",
        Some("unsupported") => "message.unsupported",
        Some(_) | None => "message",
    }
}

/// The id of a sent message repeats for each of its statuses, and in a group for each member.
fn status_id<'f>(item: &'f FieldValues<'_>) -> Option<Cow<'f, str>> {
    let is_group = item.get("/recipient_type") == Some("group");
    let chat_recipient = || item.get(RECIPIENT).filter(|_| !is_group);
    let recipient = item.get(PARTICIPANT).or_else(chat_recipient)?;
    let (id, status) = (item.get("/id")?, item.get("/status")?);
    Some(format!("status:{id}:{status}:{recipient}").into())
}
