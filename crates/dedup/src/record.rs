//! The rules of a claim as a pure state machine, for backends that read and write whole records.
//!
//! Those are memory, SQLite, and your own storage inside your own transactions, of which only one at a time
//! works on a key. PostgreSQL and Redis state the same rules in SQL and Lua, because there a step must be one statement;
//! the conformance suite holds all of them to the same behavior.

use std::time::Duration;

use bytes::Bytes;
use surehook_types::{rng::Rng, time::Timestamp};

use crate::claim::{
    Claim, ClaimGrant, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletedClaim,
    CompletionRequest, Fingerprint,
};

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// Under a lease.
    InProgress {
        /// When the lease ends.
        lease_until: Timestamp,
    },
    /// Done.
    Completed {
        /// When it was completed.
        completed_at: Timestamp,
        /// The stored result.
        result: Bytes,
    },
    /// Kept for its fence only.
    Released,
}

/// The stored record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// Its state.
    pub state: RecordState,
    /// The token of its last grant.
    pub token: ClaimToken,
    /// The fence of its last grant.
    pub fence: u64,
    /// The fingerprint of the request, if it has one.
    pub fingerprint: Option<Fingerprint>,
    /// The operation of its last grant.
    pub operation: ClaimOperation,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// The answer to a claim, and the record to store if there is one.
#[derive(Debug)]
pub struct ClaimDecision {
    /// The answer.
    pub claim: Claim,
    /// The record to store, if it changes.
    pub write: Option<ClaimRecord>,
}

impl ClaimDecision {
    fn unchanged(claim: Claim) -> Self {
        Self { claim, write: None }
    }
}

/// The smallest fence at a time: its microseconds. A key that was forgotten continues above the
/// fences it had before as long as the clock does not go back.
fn fence_floor(now: Timestamp) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(0).saturating_mul(1000)
}

/// Decides a claim over the record of its key, if there is one.
pub fn decide_claim(
    existing: Option<&ClaimRecord>,
    request: &ClaimRequest,
    now: Timestamp,
    rng: &dyn Rng,
) -> ClaimDecision {
    let unexpired = existing.filter(|record| now < record.expires_at);
    if let Some(record) = unexpired {
        let differs = match (&record.fingerprint, &request.fingerprint) {
            (Some(stored), Some(asked)) => stored != asked,
            (None, _) | (_, None) => false,
        };
        match &record.state {
            RecordState::InProgress { .. } | RecordState::Completed { .. } if differs => {
                return ClaimDecision::unchanged(Claim::OtherFingerprint);
            }
            RecordState::Completed { completed_at, result } => {
                return ClaimDecision::unchanged(Claim::Completed(CompletedClaim {
                    result: result.clone(),
                    fence: record.fence,
                    operation: record.operation,
                    completed_at: *completed_at,
                    expires_in: record.expires_at.since(now),
                }));
            }
            RecordState::InProgress { lease_until } if now < *lease_until => {
                let retry_after = lease_until.since(now).max(Duration::from_millis(1));
                return ClaimDecision::unchanged(Claim::InProgress { retry_after });
            }
            RecordState::InProgress { .. } | RecordState::Released => {}
        }
    }
    grant(existing, unexpired, request, now, rng)
}

fn grant(
    existing: Option<&ClaimRecord>,
    unexpired: Option<&ClaimRecord>,
    request: &ClaimRequest,
    now: Timestamp,
    rng: &dyn Rng,
) -> ClaimDecision {
    let resumed = unexpired.filter(|record| record.state != RecordState::Released);
    let operation = resumed.map_or_else(
        || ClaimOperation { id: rng.next_u128().to_be_bytes(), started_at: now },
        |record| record.operation,
    );
    let token = ClaimToken::from_bytes(rng.next_u128().to_be_bytes());
    let fence = existing.map_or(0, |record| record.fence.saturating_add(1)).max(fence_floor(now));
    let record = ClaimRecord {
        state: RecordState::InProgress { lease_until: now + request.lease },
        token,
        fence,
        fingerprint: resumed.and_then(|record| record.fingerprint).or(request.fingerprint),
        operation,
        expires_at: now + request.ttl,
    };
    let grant = ClaimGrant { token, fence, operation, is_resumed: resumed.is_some() };
    ClaimDecision { claim: Claim::Claimed(grant), write: Some(record) }
}

impl ClaimRecord {
    fn is_held_by(&self, token: ClaimToken, now: Timestamp) -> bool {
        matches!(self.state, RecordState::InProgress { .. })
            && self.token == token
            && now < self.expires_at
    }

    /// Extends the lease of its holder.
    pub fn extend(&mut self, token: ClaimToken, lease: Duration, now: Timestamp) -> ClaimUpdate {
        if !self.is_held_by(token, now) {
            return ClaimUpdate::StaleToken;
        }
        let lease_until = now + lease;
        self.state = RecordState::InProgress { lease_until };
        self.expires_at = self.expires_at.max(lease_until);
        ClaimUpdate::Applied
    }

    /// Completing again with the same token changes nothing and succeeds: the first answer may have
    /// been lost on its way.
    pub fn complete(&mut self, request: &CompletionRequest, now: Timestamp) -> ClaimUpdate {
        let is_completed = matches!(self.state, RecordState::Completed { .. });
        if is_completed && self.token == request.token && now < self.expires_at {
            return ClaimUpdate::Applied;
        }
        if !self.is_held_by(request.token, now) {
            return ClaimUpdate::StaleToken;
        }
        self.state = RecordState::Completed { completed_at: now, result: request.result.clone() };
        self.expires_at = now + request.ttl;
        ClaimUpdate::Applied
    }

    /// Gives the key back.
    pub fn release(&mut self, token: ClaimToken, now: Timestamp) -> ClaimUpdate {
        if !self.is_held_by(token, now) {
            return ClaimUpdate::StaleToken;
        }
        self.state = RecordState::Released;
        self.fingerprint = None;
        ClaimUpdate::Applied
    }
}
