//! Things to put into a store, valid and ordinary.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use surehook_core::{
    delivery::{AttemptFailure, AttemptTiming, FailureClass, RetrySpec},
    destination::{DestinationSpec, kind::DestinationKind},
    event::{HeaderBlock, NewEvent, Payload, RequestHead},
    ids::AttemptId,
    key::fingerprint,
    lane::{CircuitSpec, OrderingFailurePolicy, OrderingSpec},
    retention::RetentionSpec,
    source::SourceSpec,
    store::{AttemptRecord, ClaimedDelivery, HeldClaim, NextStep, StoreCounts},
    time::{HumanDuration, Timestamp},
};

use super::world::WINDOW;

/// The attempt that comes next, with a fitting answer of the destination.
pub(super) fn attempt(
    id: AttemptId,
    claimed: &ClaimedDelivery,
    now: Timestamp,
    next: NextStep,
) -> AttemptRecord {
    let (status, class) = match next {
        NextStep::Succeeded => (200, None),
        NextStep::RetryAt(_) => (503, Some(FailureClass::Transient)),
        NextStep::Dead(_) => (400, Some(FailureClass::Permanent)),
    };
    AttemptRecord {
        id,
        number: claimed.attempts + 1,
        started_at: now,
        took: Duration::from_millis(12),
        timing: AttemptTiming::default(),
        status: Some(status),
        failure: None,
        class,
        detail: None,
        response: b"said the destination".to_vec(),
    }
}

/// The same attempt without an answer: it may have arrived or not.
pub(super) fn in_doubt(attempt: AttemptRecord) -> AttemptRecord {
    AttemptRecord {
        status: None,
        failure: Some(AttemptFailure::Interrupted),
        class: Some(FailureClass::Ambiguous),
        response: Vec::new(),
        ..attempt
    }
}

/// What lanes hold of an event from its birth.
pub(super) fn claimed_at_birth(event: &NewEvent) -> impl Iterator<Item = ClaimedDelivery> {
    event.deliveries.iter().filter_map(|owed| {
        Some(ClaimedDelivery {
            id: owed.id,
            event: event.id,
            destination: owed.destination,
            // What is claimed at birth never asked the store, which knows the name.
            source: "claimed-at-birth".parse().ok()?,
            key: event.key.as_ref().map(|claim| claim.key.clone()),
            lease: owed.claim?,
            attempts: 0,
            throttled: 0,
            created_at: event.received_at,
            received_at: event.received_at,
            payload: event.payload.clone(),
            transform: None,
            ordered: owed.order_key.is_some(),
        })
    })
}

/// The proof of a claim.
pub(super) fn held(claimed: &ClaimedDelivery) -> HeldClaim {
    HeldClaim { delivery: claimed.id, token: claimed.lease.token }
}

/// A body that came in the usual way.
pub(super) fn payload(body: &[u8]) -> Payload {
    let head = RequestHead {
        path: "/orders".to_owned(),
        query: Some("a=1&b=".to_owned()),
        headers: HeaderBlock::from_bytes(b"content-type: application/json\r\nx-a: \xff\r\n".into()),
        remote: "192.0.2.1".into(),
    };
    Payload {
        head: Arc::new(head),
        body: Bytes::copy_from_slice(body),
        fingerprint: fingerprint(body),
    }
}

/// A source as people write it.
pub(super) fn source(name: &str) -> SourceSpec {
    SourceSpec {
        name: name.parse().unwrap(),
        provider: "generic".to_owned(),
        verify: None,
        secrets: Vec::new(),
        keys: None,
        verify_token: None,
        public_url: None,
        kinds: None,
        dedup_window: Some(HumanDuration(WINDOW)),
        content_hash_window: None,
        revive_dead: true,
        max_body_bytes: None,
        sync: None,
        on_refusal: None,
        keep_refused_bodies: false,
        redact: Vec::new(),
        strip_secrets: false,
        retention: RetentionSpec::default(),
        enabled: true,
    }
}

/// A destination as people write it.
pub(super) fn destination(name: &str) -> DestinationSpec {
    DestinationSpec {
        name: name.parse().unwrap(),
        kind: DestinationKind::Http,
        url: format!("https://{name}.example/hook"),
        account: None,
        sending: None,
        exec: None,
        stream: None,
        retry: RetrySpec::default(),
        concurrency: 32,
        rate: None,
        delay: None,
        order: None,
        circuit: CircuitSpec::default(),
        pause_after_config_failures: 5,
        timeout: HumanDuration::from_secs(30),
        headers: std::collections::BTreeMap::new(),
        signing_secrets: Vec::new(),
        sign_as: None,
        auth: None,
        proxy: None,
        tls: None,
        rules: Vec::new(),
    }
}

/// The same with an order.
pub(super) fn ordered(name: &str) -> DestinationSpec {
    let order =
        OrderingSpec { key: "/customer".to_owned(), on_failure: OrderingFailurePolicy::Dead };
    DestinationSpec { order: Some(order), ..destination(name) }
}

/// The counts without the zeros: whether a zero is written down is the store's own affair.
pub(super) fn without_zeros(mut counts: StoreCounts) -> StoreCounts {
    counts.by_status.retain(|_, many| *many > 0);
    counts.dead.retain(|_, count| count.total > 0 || count.pending > 0);
    counts
}
