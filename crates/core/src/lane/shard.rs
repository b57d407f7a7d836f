//! Shards: lanes that share the deliveries of one destination.
//!
//! Waiting deliveries belong to the destination, and any of its lanes may take them. Each has its share of
//! rate and concurrency, so that together they never exceed the limits of the destination. The order per key is
//! kept by the store, whichever lane sends.

use surehook_retry::rate::LimitShare;
use surehook_types::ids::DestinationId;

/// The most shards that a destination can have.
pub const SHARDS_MAX: u16 = 64;

/// One of `count` equal lanes of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// From 0.
    pub index: u16,
    pub count: u16,
}

impl Shard {
    /// The only lane of a destination.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// All shards of a destination that has this many.
    pub fn all(count: u16) -> impl Iterator<Item = Self> {
        (0..count).map(move |index| Self { index, count })
    }

    /// Whether it is the only lane of its destination.
    pub const fn is_whole(self) -> bool {
        self.count == 1
    }

    /// Whether it is the one whose state stands for the destination.
    pub const fn is_first(self) -> bool {
        self.index == 0
    }

    /// Its part of the destination's limits.
    pub fn share(self) -> LimitShare {
        LimitShare::new(self.index.into(), self.count.into())
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// A lane. A destination whose number of shards changes gets other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    pub destination: DestinationId,
    pub shard: Shard,
}

impl LaneId {
    /// The only lane of a destination.
    pub const fn whole(destination: DestinationId) -> Self {
        Self { destination, shard: Shard::WHOLE }
    }

    /// All lanes of a destination with this many shards.
    pub fn all(destination: DestinationId, shards: u16) -> impl Iterator<Item = Self> {
        Shard::all(shards).map(move |shard| Self { destination, shard })
    }
}
