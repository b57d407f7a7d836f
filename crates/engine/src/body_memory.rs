//! The memory budget for the bodies of incoming requests, from their first byte to their commit.
//!
//! The server reserves memory as bytes arrive, never by the declared length: a sender that declares
//! much and sends nothing holds nothing. Receiving adds what it unpacks and what it splits off, and
//! the reservation ends when the events are on disk.
//!
//! A body that arrives at once pays one atomic addition. Only a body that is still arriving can be
//! held open at will, so only those have shares: one address may use as much as is still free, one
//! source three times as much, and all together leave the last eighth to bodies that arrive at once.
//! However many senders hold on to memory, there is always some left for one more.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use surehook_types::ids::SourceId;

use crate::lock::lock;

/// A source may use this many times as much as is still free: more than one address, so that a single
/// sender cannot use up the share of its source.
const SOURCE_FACTOR: usize = 3;
/// Bodies that are still arriving leave one part in this many to bodies that arrive at once.
const COMPLETE_BODIES_PART: usize = 8;

/// The memory for the bodies of all requests.
#[derive(Debug)]
pub struct BodyMemory {
    max: usize,
    /// The least that one address and one source may use: one body of the usual size.
    one_body: usize,
    used: AtomicUsize,
    /// Bytes of bodies that are still arriving.
    arriving: Mutex<HashMap<BodyOwner, usize>>,
}

/// The address or source that an arriving body counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BodyOwner {
    Address(IpAddr),
    Source(SourceId),
}

/// The sender and the receiver of a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyOwners {
    /// The address that limits count the sender under.
    pub address: IpAddr,
    pub source: SourceId,
}

impl BodyOwners {
    fn each(self) -> [BodyOwner; 2] {
        [BodyOwner::Address(self.address), BodyOwner::Source(self.source)]
    }
}

/// The memory limit is reached, for all bodies or for those of this address or source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory limit for request bodies is reached; retry in a moment")]
pub struct BodyMemoryError;

impl BodyMemory {
    pub fn new(max: usize, one_body: usize) -> Arc<Self> {
        let (used, arriving) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { max, one_body: one_body.min(max), used, arriving })
    }

    /// Bytes that are reserved.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a body of this size has room at the moment. Reserves nothing.
    pub fn has_room(&self, bytes: usize) -> bool {
        let used = self.used();
        used == 0 || used.saturating_add(bytes) <= self.max
    }

    /// Adds `more` to the used bytes, unless the sum exceeds `max`. A body that is alone in memory always
    /// passes.
    fn take(&self, reserved: usize, more: usize, max: usize) -> Result<usize, BodyMemoryError> {
        let before = self.used.fetch_add(more, Ordering::Relaxed);
        if before <= reserved || before.saturating_add(more) <= max {
            return Ok(before + more);
        }
        self.used.fetch_sub(more, Ordering::Relaxed);
        Err(BodyMemoryError)
    }

    /// Takes memory for a body that is still arriving and has already reserved `reserved` bytes.
    fn take_share(
        &self,
        owners: BodyOwners,
        reserved: usize,
        more: usize,
    ) -> Result<(), BodyMemoryError> {
        let mut arriving = lock(&self.arriving);
        let used = self.take(reserved, more, self.max - self.max / COMPLETE_BODIES_PART)?;
        let (free, is_alone) = (self.max.saturating_sub(used), used == reserved + more);
        let has_share = |owner: &BodyOwner| {
            let share = match owner {
                BodyOwner::Address(_) => free,
                BodyOwner::Source(_) => free.saturating_mul(SOURCE_FACTOR),
            };
            let held_bytes = arriving.get(owner).copied().unwrap_or_default();
            is_alone || held_bytes + more <= share.max(self.one_body)
        };
        if !owners.each().iter().all(has_share) {
            self.used.fetch_sub(more, Ordering::Relaxed);
            return Err(BodyMemoryError);
        }
        for owner in owners.each() {
            *arriving.entry(owner).or_default() += more;
        }
        Ok(())
    }

    fn release_share(&self, owners: BodyOwners, bytes: usize) {
        let mut arriving = lock(&self.arriving);
        for owner in owners.each() {
            if let Some(held_bytes) = arriving.get_mut(&owner) {
                *held_bytes = held_bytes.saturating_sub(bytes);
                if *held_bytes == 0 {
                    arriving.remove(&owner);
                }
            }
        }
    }
}

/// The memory that is reserved for one request, returned when dropped.
#[derive(Debug, Default)]
pub struct BodyReservation {
    /// `None`: requests of the API and of the gateway itself have no limit here.
    memory: Option<Arc<BodyMemory>>,
    bytes: usize,
    /// Set while the body is still arriving.
    owners: Option<BodyOwners>,
}

impl BodyReservation {
    pub fn new(memory: &Arc<BodyMemory>) -> Self {
        Self { memory: Some(Arc::clone(memory)), bytes: 0, owners: None }
    }

    /// Reserves memory for something that is complete.
    pub fn grow(&mut self, more: usize) -> Result<(), BodyMemoryError> {
        if let Some(memory) = &self.memory {
            memory.take(self.bytes, more, memory.max)?;
        }
        self.bytes += more;
        Ok(())
    }

    /// Reserves memory for a body that is still arriving, within the shares of its owners.
    pub fn grow_arriving(
        &mut self,
        owners: BodyOwners,
        more: usize,
    ) -> Result<(), BodyMemoryError> {
        if let Some(memory) = &self.memory {
            memory.take_share(owners, self.bytes, more)?;
            self.owners = Some(owners);
        }
        self.bytes += more;
        Ok(())
    }

    /// The body has arrived: it no longer counts for the shares.
    pub fn finish_arriving(&mut self) {
        if let (Some(memory), Some(owners)) = (&self.memory, self.owners.take()) {
            memory.release_share(owners, self.bytes);
        }
    }

    /// Returns what is no longer needed. The body must have arrived.
    pub fn shrink_to(&mut self, bytes: usize) {
        let excess = self.bytes.saturating_sub(bytes);
        self.bytes -= excess;
        if let Some(memory) = self.memory.as_ref().filter(|_| excess > 0) {
            memory.used.fetch_sub(excess, Ordering::Relaxed);
        }
    }

    /// Reserves exactly this much.
    pub fn resize(&mut self, bytes: usize) -> Result<(), BodyMemoryError> {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        self.shrink_to(bytes);
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a body of this size has room at the moment.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.has_room(bytes))
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.finish_arriving();
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use surehook_types::time::Timestamp;

    use super::*;

    const KIB: usize = 1024;
    const MAX: usize = 1024 * KIB;

    fn owners(address: u8, source: u128) -> BodyOwners {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, address));
        BodyOwners { address, source: SourceId::new(Timestamp::default(), source << 64) }
    }

    /// Bodies of these owners that are held open, each growing until it is refused.
    fn hold_open(memory: &Arc<BodyMemory>, owners: BodyOwners) -> (Vec<BodyReservation>, usize) {
        let mut held = Vec::new();
        loop {
            let mut body = BodyReservation::new(memory);
            if body.grow_arriving(owners, KIB).is_err() {
                let bytes = held.iter().map(BodyReservation::bytes).sum();
                return (held, bytes);
            }
            held.push(body);
        }
    }

    #[test]
    fn one_address_holds_at_most_half_and_leaves_room_for_others() {
        let memory = BodyMemory::new(MAX, 16 * KIB);
        let (_first, bytes) = hold_open(&memory, owners(1, 1));
        assert_eq!(bytes, MAX / 2);
        let (_second, bytes) = hold_open(&memory, owners(2, 1));
        assert_eq!(bytes, MAX / 4);
        assert!(BodyReservation::new(&memory).grow(MAX / 4).is_ok(), "a complete body has room");
    }

    #[test]
    fn one_source_leaves_room_for_other_sources() {
        let memory = BodyMemory::new(MAX, 16 * KIB);
        let held: Vec<_> = (1..100).map(|number| hold_open(&memory, owners(number, 1))).collect();
        let bytes: usize = held.iter().map(|(_, bytes)| bytes).sum();
        assert!(bytes <= MAX / 4 * 3, "{bytes}");
        let mut other = BodyReservation::new(&memory);
        assert!(other.grow_arriving(owners(200, 2), 64 * KIB).is_ok());
    }

    #[test]
    fn many_senders_leave_an_eighth_to_complete_bodies() {
        let memory = BodyMemory::new(MAX, 16 * KIB);
        let open = |number: u8| hold_open(&memory, owners(number, number.into()));
        let _held: Vec<_> = (1..200).map(open).collect();
        assert!(memory.used() <= MAX / 8 * 7, "{}", memory.used());
        assert!(BodyReservation::new(&memory).grow(MAX / 8).is_ok());
    }

    #[test]
    fn body_larger_than_the_budget_passes_alone() {
        let memory = BodyMemory::new(10 * KIB, 10 * KIB);
        let mut large = BodyReservation::new(&memory);
        for _ in 0..20 {
            large.grow_arriving(owners(1, 1), KIB).unwrap();
        }
        assert!(BodyReservation::new(&memory).grow(1).is_err());
        drop(large);
        assert!(BodyReservation::new(&memory).grow(20 * KIB).is_ok());
    }

    #[test]
    fn shrunk_and_dropped_reservations_return_their_memory() {
        let memory = BodyMemory::new(MAX, 16 * KIB);
        let mut body = BodyReservation::new(&memory);
        body.grow_arriving(owners(1, 1), 8 * KIB).unwrap();
        body.finish_arriving();
        assert!(lock(&memory.arriving).is_empty());
        assert_eq!(memory.used(), 8 * KIB);
        body.resize(3 * KIB).unwrap();
        assert_eq!(memory.used(), 3 * KIB);
        let mut open = BodyReservation::new(&memory);
        open.grow_arriving(owners(1, 1), KIB).unwrap();
        assert_eq!(body.grow(MAX), Err(BodyMemoryError));
        assert_eq!(open.grow_arriving(owners(1, 1), MAX), Err(BodyMemoryError));
        assert_eq!((memory.used(), body.bytes(), open.bytes()), (4 * KIB, 3 * KIB, KIB));
        drop((body, open));
        assert_eq!(memory.used(), 0);
        assert!(lock(&memory.arriving).is_empty());
    }

    #[test]
    fn reservation_without_a_budget_has_no_limit() {
        let mut body = BodyReservation::default();
        assert!(body.has_room(usize::MAX));
        body.grow(MAX).unwrap();
        body.grow_arriving(owners(1, 1), MAX).unwrap();
        assert_eq!(body.bytes(), 2 * MAX);
    }
}
