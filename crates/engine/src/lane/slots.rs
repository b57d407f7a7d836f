//! Places in the memory of lanes: so many for each, and so many bytes for all of them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::OwnedSemaphorePermit;

/// A bound on bytes, shared by all lanes.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    used: AtomicUsize,
    max: usize,
}

impl MemoryBudget {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    pub(super) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<MemoryShare> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let share = MemoryShare { budget: Arc::clone(self), bytes };
        // A single body that is larger than the whole budget must still get through alone.
        (used == 0 || used + bytes <= self.max).then_some(share)
    }
}

/// Some bytes of the budget, given back when dropped.
#[derive(Debug)]
pub(super) struct MemoryShare {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A place in a lane's memory.
#[derive(Debug)]
pub(crate) struct LaneSlot {
    _place: OwnedSemaphorePermit,
    bytes: MemoryShare,
}

impl LaneSlot {
    pub(super) fn new(place: OwnedSemaphorePermit, bytes: MemoryShare) -> Self {
        Self { _place: place, bytes }
    }

    /// Counts the bytes of a body that is in memory already, beyond the budget if need be.
    pub(super) fn count_bytes(&mut self, bytes: usize) {
        self.bytes.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.bytes += bytes;
    }
}
