//! Typed ids such as `evt_01jc…`: a prefix for the kind and a version-7 UUID in base32.
//!
//! The text form is a `TypeID`: 26 lower-case characters of Crockford's alphabet, so ids sort by
//! creation time, are selected by a double click, and cannot be mistaken for one another.

use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::time::Timestamp;

/// The kind of object an id refers to.
pub trait IdKind: Copy + 'static {
    /// The part before the underscore.
    const PREFIX: &'static str;
    /// The name of the id's type, as in the API's schemas.
    const NAME: &'static str;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $marker:ident, $alias:ident = $prefix:literal;)*) => {$(
        #[doc = concat!("Marks ids that start with `", $prefix, "_`.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $marker;
        impl IdKind for $marker {
            const PREFIX: &'static str = $prefix;
            const NAME: &'static str = stringify!($alias);
        }
        $(#[$doc])*
        pub type $alias = Id<$marker>;
    )*};
}

kinds! {
    /// An incoming HTTP request.
    RequestIdKind, RequestId = "req";
    /// An event.
    EventIdKind, EventId = "evt";
    /// The delivery of one event to one destination.
    DeliveryIdKind, DeliveryId = "dlv";
    /// One attempt of a delivery.
    AttemptIdKind, AttemptId = "att";
    /// A source.
    SourceIdKind, SourceId = "src";
    /// A destination.
    DestinationIdKind, DestinationId = "dst";
    /// A route.
    RouteIdKind, RouteId = "rte";
    /// A replay job.
    ReplayIdKind, ReplayId = "rpl";
    /// An API token or browser session.
    TokenIdKind, TokenId = "tok";
    /// A media file of messages.
    MediaIdKind, MediaId = "med";
    /// A process that uses the store, from its start to its end.
    NodeIdKind, NodeId = "nod";
    /// A request to the owner of a lane.
    LaneRequestIdKind, LaneRequestId = "lrq";
    /// A group of dead letters with one cause. A digest of what they have in common, without a time.
    GroupIdKind, GroupId = "grp";
}

/// A 128-bit id with its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id<K> {
    uuid: Uuid,
    kind: PhantomData<K>,
}

impl<K: IdKind> Id<K> {
    /// The id of an object created at `at`; `random` is the unpredictable part.
    pub fn new(at: Timestamp, random: u128) -> Self {
        let millis = u64::try_from(at.as_millis()).unwrap_or(0);
        let bytes = random.to_be_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&bytes[..10]);
        Self::from_uuid(uuid::Builder::from_unix_timestamp_millis(millis, &tail).into_uuid())
    }

    /// The id with this UUID, as stored in a database.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self { uuid, kind: PhantomData }
    }

    /// The creation time encoded in the id.
    pub fn created_at(&self) -> Timestamp {
        let millis = self.uuid.as_u128() >> 80;
        Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// The id without its kind.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }
}

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const DIGITS: usize = 26;

fn encode(value: u128) -> [u8; DIGITS] {
    let mut text = [0; DIGITS];
    for (i, digit) in text.iter_mut().enumerate() {
        let shift = 5 * (DIGITS - 1 - i);
        *digit = ALPHABET[((value >> shift) & 31) as usize];
    }
    text
}

fn decode(text: &[u8]) -> Option<u128> {
    // 26 digits hold 130 bits: a first digit above 7 would not fit into 128.
    if text.len() != DIGITS || text[0] > b'7' {
        return None;
    }
    text.iter().try_fold(0u128, |value, byte| {
        let digit = ALPHABET.iter().position(|known| known == byte)?;
        Some(value << 5 | digit as u128)
    })
}

impl<K: IdKind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = encode(self.uuid.as_u128());
        let digits = std::str::from_utf8(&digits).map_err(|_| fmt::Error)?;
        // Formatting machinery would cost more than encoding the digits.
        f.write_str(K::PREFIX)?;
        f.write_str("_")?;
        f.write_str(digits)
    }
}

impl<K: IdKind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an id of the expected kind.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an id that starts with `{prefix}_` and has 26 characters after it")]
pub struct ParseIdError {
    prefix: &'static str,
}

impl<K: IdKind> FromStr for Id<K> {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix(K::PREFIX)
            .and_then(|rest| rest.strip_prefix('_'))
            .and_then(|digits| decode(digits.as_bytes()))
            .map(|value| Self::from_uuid(Uuid::from_u128(value)))
            .ok_or(ParseIdError { prefix: K::PREFIX })
    }
}

impl<K: IdKind> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, K: IdKind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl<K: IdKind> JsonSchema for Id<K> {
    fn schema_name() -> Cow<'static, str> {
        K::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": format!("^{}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$", K::PREFIX),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_match_the_published_typeid_vectors() {
        let cases = [
            ("evt_00000000000000000000000000", "00000000-0000-0000-0000-000000000000"),
            ("evt_00000000000000000000000001", "00000000-0000-0000-0000-000000000001"),
            ("evt_7zzzzzzzzzzzzzzzzzzzzzzzzz", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
            ("evt_0123456789abcdefghjkmnpqrs", "0110c853-1d09-52d8-d73e-1194e95b5f19"),
            ("evt_01h455vb4pex5vsknk084sn02q", "01890a5d-ac96-774b-bcce-b302099a8057"),
        ];
        for (text, uuid) in cases {
            let uuid = Uuid::parse_str(uuid).unwrap();
            assert_eq!(EventId::from_uuid(uuid).to_string(), text);
            assert_eq!(text.parse::<EventId>().unwrap().uuid(), uuid, "case: {text}");
        }
    }

    #[test]
    fn malformed_ids_are_rejected() {
        for text in [
            "",
            "evt_",
            "evt",
            "dlv_01h455vb4pex5vsknk084sn02q",
            "evt_8zzzzzzzzzzzzzzzzzzzzzzzzz",
            "evt_01h455vb4pex5vsknk084sn02",
            "evt_01h455vb4pex5vsknk084sn02qq",
            "evt_01H455VB4PEX5VSKNK084SN02Q",
            "evt_01h455vb4pex5vsknk084sn02u",
            "evt_é1h455vb4pex5vsknk084sn02",
        ] {
            assert!(text.parse::<EventId>().is_err(), "case: {text}");
        }
    }

    proptest! {
        #[test]
        fn id_round_trips_through_text(value: u128) {
            let id = DeliveryId::from_uuid(Uuid::from_u128(value));
            prop_assert_eq!(id.to_string().parse::<DeliveryId>().unwrap(), id);
        }

        #[test]
        fn later_ids_sort_later(a in 0i64..1 << 47, b in 0i64..1 << 47, r1: u128, r2: u128) {
            prop_assume!(a < b);
            let early = EventId::new(Timestamp::from_millis(a), r1);
            let late = EventId::new(Timestamp::from_millis(b), r2);
            prop_assert!(early.to_string() < late.to_string());
        }
    }
}
