//! Helpers shared by the tests of several modules.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use surehook_core::{
    delivery::{ClaimProof, LaneEpoch},
    event::{HeaderBlock, Payload, RequestHead},
    store::ClaimedDelivery,
};
use surehook_types::{
    ids::{DeliveryId, DestinationId, EventId},
    time::Timestamp,
};

/// A delivery of a webhook with these headers and this body, claimed at `now`.
pub(crate) fn claimed_delivery(
    headers: &[(&str, &str)],
    body: &[u8],
    now: Timestamp,
) -> ClaimedDelivery {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    let head = RequestHead { headers: HeaderBlock::from_map(&map), ..RequestHead::default() };
    ClaimedDelivery {
        id: DeliveryId::new(now, 2),
        event: EventId::new(now, 3),
        destination: DestinationId::new(now, 1),
        source: "shop".parse().unwrap(),
        key: None,
        proof: ClaimProof { epoch: LaneEpoch(1), number: 1 },
        attempts: 0,
        throttled: 0,
        created_at: now,
        received_at: now,
        pending_route: None,
        ordered: false,
        payload: Payload {
            head: Arc::new(head),
            body: Bytes::copy_from_slice(body),
            fingerprint: [0; 32],
        },
    }
}
