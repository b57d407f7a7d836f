//! The built-in destination: accepts everything and keeps the latest deliveries.
//!
//! A new user sees a whole delivery before there is any other program to deliver to.

use std::{collections::VecDeque, sync::Mutex};

use bytes::Bytes;
use http::HeaderMap;
use surehook_types::{ids::EventId, time::Timestamp};

use crate::lock::lock;

/// Deliveries kept.
const DELIVERIES_MAX: usize = 50;
/// Bytes kept of each body.
const BODY_BYTES_KEPT: usize = 16 * 1024;

/// One delivery as the destination receives it.
#[derive(Clone, Debug)]
pub struct InboxDelivery {
    pub at: Timestamp,
    pub event: EventId,
    pub headers: HeaderMap,
    /// At most the first 16 KiB.
    pub body: Bytes,
}

/// The latest deliveries, newest last.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<VecDeque<InboxDelivery>>);

impl Inbox {
    pub(crate) fn store(&self, mut delivery: InboxDelivery) {
        // Copied: a slice would keep the whole body alive.
        let kept = delivery.body.len().min(BODY_BYTES_KEPT);
        delivery.body = Bytes::copy_from_slice(&delivery.body[..kept]);
        let mut deliveries = lock(&self.0);
        if deliveries.len() == DELIVERIES_MAX {
            deliveries.pop_front();
        }
        deliveries.push_back(delivery);
    }

    /// The latest deliveries, newest first.
    pub fn deliveries(&self) -> Vec<InboxDelivery> {
        lock(&self.0).iter().rev().cloned().collect()
    }
}
