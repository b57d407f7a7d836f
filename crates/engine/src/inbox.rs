//! The destination inside the gateway: takes everything, and keeps the latest for a look.
//!
//! It lets a newcomer see a whole delivery before there is any other program to deliver to.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{ids::EventId, time::Timestamp};

/// Deliveries kept.
const KEPT: usize = 50;
/// Bytes kept of each body.
const BODY_BYTES_KEPT: usize = 16 * 1024;

/// One delivery as a destination sees it.
#[derive(Clone, Debug)]
pub struct InboxDelivery {
    /// When it arrived.
    pub at: Timestamp,
    /// Of which event.
    pub event: EventId,
    /// The headers of the attempt.
    pub headers: HeaderMap,
    /// The first part of the body.
    pub body: Bytes,
}

/// The latest deliveries, newest last.
#[derive(Debug, Default)]
pub struct Inbox(Mutex<VecDeque<InboxDelivery>>);

impl Inbox {
    pub(crate) fn take(&self, mut arrival: InboxDelivery) {
        // A copy of the part: a slice would keep the whole body alive.
        arrival.body =
            Bytes::copy_from_slice(&arrival.body[..arrival.body.len().min(BODY_BYTES_KEPT)]);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(arrival);
    }

    /// What is kept, newest first.
    pub fn deliveries(&self) -> Vec<InboxDelivery> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }
}
