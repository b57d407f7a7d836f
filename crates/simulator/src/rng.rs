//! Random numbers that follow from a seed, by the algorithm `SplitMix64`.

use std::sync::atomic::{AtomicU64, Ordering};

use surehook_types::rng::Rng;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random number generator with a seed. Not for secrets.
#[derive(Debug)]
pub struct SeededRng {
    // `Rng` is shared between threads in the gateway, so its methods take `&self`.
    state: AtomicU64,
}

impl SeededRng {
    pub const fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// The numbers of one attempt. They do not depend on what else happens in a simulation: two
    /// policies meet the same fate at the same attempt of the same delivery.
    pub const fn for_attempt(seed: u64, delivery: u64, attempt: u32) -> Self {
        let delivery = mix(seed ^ mix(delivery.wrapping_add(STEP)));
        Self::new(mix(delivery.wrapping_add((attempt as u64).wrapping_mul(STEP))))
    }

    fn next_u64(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

impl Rng for SeededRng {
    fn next_u128(&self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }
}

const fn mix(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
