//! An event and the request that brought it, byte for byte.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    delivery::Lease,
    ids::{DeliveryId, DestinationId, EventId, RequestId, SourceId},
    key::DedupKey,
    time::Timestamp,
};

/// All of a request but its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// What follows the source's name in the path, `/` included.
    pub path: String,
    /// The query without the question mark.
    pub query: Option<String>,
    /// The headers in the order in which they came, as a block of `name: value` lines.
    pub headers: HeaderBlock,
    /// Who sent it.
    pub remote: String,
}

/// Headers as raw lines, `name: value\r\n`: the one form that keeps order, repeats and bytes that
/// are not text, and that can still be read with the bare eye.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderBlock(Vec<u8>);

impl HeaderBlock {
    /// Writes the lines down.
    pub fn from_map(map: &HeaderMap) -> Self {
        let mut block = Vec::with_capacity(map.len() * 64);
        for (name, value) in map {
            block.extend_from_slice(name.as_str().as_bytes());
            block.extend_from_slice(b": ");
            block.extend_from_slice(value.as_bytes());
            block.extend_from_slice(b"\r\n");
        }
        Self(block)
    }

    /// As it is kept in a database.
    pub fn from_bytes(block: Vec<u8>) -> Self {
        Self(block)
    }

    /// The raw lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Names and values, in order.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // A value holds neither CR nor LF (the HTTP parser sees to that), so the split is exact.
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.windows(2).position(|pair| pair == b": ")?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 2..]))
        })
    }

    /// The same as a map.
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in self.lines() {
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_bytes(value))
            {
                map.append(name, value);
            }
        }
        map
    }
}

/// What is stored of an event and sent to destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// How it came.
    pub head: Arc<RequestHead>,
    /// What came, exactly.
    pub body: Bytes,
    /// The SHA-256 of the body.
    pub fingerprint: [u8; 32],
}

/// A key and how long it is to be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// The key.
    pub key: DedupKey,
    /// Until when a second one is a duplicate.
    pub expires_at: Timestamp,
}

/// An event that asks to be admitted, with the deliveries it owes.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its id, if it is admitted.
    pub id: EventId,
    /// The request it came with.
    pub request_id: RequestId,
    /// Its source.
    pub source: SourceId,
    /// When it came.
    pub received_at: Timestamp,
    /// What makes it the same as another; `None` means that it is never a duplicate.
    pub key: Option<KeyClaim>,
    /// What came.
    pub payload: Payload,
    /// Where it has to go.
    pub deliveries: Vec<NewDelivery>,
    /// Whether it revives the original if it is a duplicate and all of that is dead.
    pub revive_dead: bool,
}

/// A delivery to be created together with its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub destination: DestinationId,
    /// Taken by a lane from the start; `None` leaves it pending in the store.
    pub claim: Option<Lease>,
    /// Its first attempt comes no earlier than this long after its event. Goes without a claim.
    pub delay: Duration,
    /// Of those to the same destination with the same ordering key, one at a time is tried.
    pub order_key: Option<DedupKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_repeats_and_bytes_that_are_not_text() {
        let mut map = HeaderMap::new();
        map.append("x-a", HeaderValue::from_bytes(b"caf\xc3\xa9 \xff: x").unwrap());
        map.append("x-b", HeaderValue::from_static("1"));
        map.append("x-b", HeaderValue::from_static(""));

        let block = HeaderBlock::from_map(&map);

        assert_eq!(HeaderBlock::from_bytes(block.as_bytes().to_vec()).to_map(), map);
        assert_eq!(block.lines().count(), 3);
    }
}
