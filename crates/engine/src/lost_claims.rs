//! Claims that no task works on any more: their deliveries become due again in the running process.
//!
//! An attempt that panics, a result that cannot be written, and a claim of which it is unknown whether it
//! was made leave a delivery in flight in the store that no lane has in memory. They are collected here
//! and abandoned in the background, until the store has confirmed it. At a stop nothing is left to do:
//! the next owner of the lane ends the claims of this one.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use surehook_core::store::AbandonedClaim;
use tokio::sync::Notify;

use crate::{Engine, lock::lock};

/// When a delivery is due again whose attempt ended without a result: whatever prevented it must not
/// repeat attempts without a pause.
pub(crate) const LOST_ATTEMPT_DELAY: Duration = Duration::from_secs(60);
/// The pause before claims are abandoned again after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(crate) struct LostClaims {
    claims: Mutex<Vec<AbandonedClaim>>,
    added: Notify,
}

impl LostClaims {
    pub(crate) fn add(&self, claims: impl IntoIterator<Item = AbandonedClaim>) {
        lock(&self.claims).extend(claims);
        self.added.notify_one();
    }
}

/// Abandons lost claims until the engine stops.
pub(crate) async fn run(engine: Arc<Engine>) {
    let shared = &engine.shared;
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.lost_claims.added.notified() => {}
        }
        let claims = mem::take(&mut *lock(&shared.lost_claims.claims));
        if claims.is_empty() {
            continue;
        }
        match shared.store.abandon(claims.clone(), shared.clock.now()).await {
            Ok(()) => {
                for claim in claims {
                    tracing::warn!(destination = %claim.destination, "a delivery in flight has no attempt any more; it is due again");
                    engine.expect_due(claim.destination, claim.due_at);
                    // A crash outcome may have made the next one of an ordering key due.
                    engine.wake_lane(claim.destination);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "could not return lost deliveries to the store; it is tried again");
                shared.lost_claims.add(claims);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}
