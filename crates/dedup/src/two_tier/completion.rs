//! A durable completion as a fast tier keeps it.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use surehook_types::time::Timestamp;

use crate::{
    ClaimKey, ClaimOperation, CompletedClaim, Fingerprint, StoreEpoch, claim::RESULT_BYTES_MAX,
};

/// A completion that the durable store has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedCompletion {
    /// The epoch of the durable store in which it was committed.
    pub epoch: StoreEpoch,
    /// Fingerprint of the claim that the durable store answered with this completion. `None` if that claim
    /// had none: the key may have one all the same.
    pub fingerprint: Option<Fingerprint>,
    /// When the durable store forgets it.
    pub expires_at: Timestamp,
    /// The answer of the durable store; its `expires_in` is of that time.
    pub completed: CompletedClaim,
}

/// Format of the encoding.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 16;

impl CachedCompletion {
    /// As bytes, for a tier outside of this process. The key is part of the checksum.
    pub fn encode(&self, key: &ClaimKey) -> Bytes {
        let result = &self.completed.result;
        let mut bytes = BytesMut::with_capacity(128 + result.len());
        bytes.put_u8(VERSION);
        bytes.put_slice(self.epoch.as_bytes());
        match &self.fingerprint {
            Some(fingerprint) => {
                bytes.put_u8(1);
                bytes.put_slice(fingerprint.as_bytes());
            }
            None => bytes.put_u8(0),
        }
        bytes.put_i64(self.expires_at.as_millis());
        bytes.put_u64(self.completed.fence);
        bytes.put_slice(&self.completed.operation.id);
        bytes.put_i64(self.completed.operation.started_at.as_millis());
        bytes.put_i64(self.completed.completed_at.as_millis());
        bytes.put_slice(result);
        let checksum = checksum(key, &bytes);
        bytes.put_slice(&checksum);
        bytes.freeze()
    }

    /// `None` for anything that [`encode`](Self::encode) did not make for this key.
    pub fn decode(key: &ClaimKey, mut bytes: Bytes) -> Option<Self> {
        let end = bytes.len().checked_sub(CHECKSUM_BYTES)?;
        let stored = bytes.split_off(end);
        if checksum(key, &bytes) != stored[..] || bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let epoch = StoreEpoch::from_bytes(take(&mut bytes)?);
        let fingerprint = match bytes.try_get_u8().ok()? {
            0 => None,
            _ => Some(Fingerprint::from_bytes(take(&mut bytes)?)),
        };
        let expires_at = Timestamp::from_millis(bytes.try_get_i64().ok()?);
        let fence = bytes.try_get_u64().ok()?;
        let id = take(&mut bytes)?;
        let started_at = Timestamp::from_millis(bytes.try_get_i64().ok()?);
        let completed_at = Timestamp::from_millis(bytes.try_get_i64().ok()?);
        if bytes.len() > RESULT_BYTES_MAX {
            return None;
        }
        let completed = CompletedClaim {
            result: bytes,
            fence,
            operation: ClaimOperation { id, started_at },
            completed_at,
            expires_in: std::time::Duration::ZERO,
        };
        Some(Self { epoch, fingerprint, expires_at, completed })
    }
}

fn take<const N: usize>(bytes: &mut Bytes) -> Option<[u8; N]> {
    let mut array = [0; N];
    bytes.try_copy_to_slice(&mut array).ok()?;
    Some(array)
}

fn checksum(key: &ClaimKey, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = Sha256::new();
    hash.update(key.to_string());
    hash.update([0]);
    hash.update(bytes);
    let mut checksum = [0; CHECKSUM_BYTES];
    checksum.copy_from_slice(&hash.finalize()[..CHECKSUM_BYTES]);
    checksum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn example(fingerprint: Option<Fingerprint>) -> CachedCompletion {
        let started_at = Timestamp::from_millis(1_794_700_800_000);
        CachedCompletion {
            epoch: StoreEpoch::from_bytes([1; 16]),
            fingerprint,
            expires_at: Timestamp::from_millis(1_794_700_900_000),
            completed: CompletedClaim {
                result: Bytes::from_static(b"result"),
                fence: u64::MAX,
                operation: ClaimOperation { id: [2; 16], started_at },
                completed_at: started_at,
                expires_in: Duration::ZERO,
            },
        }
    }

    #[test]
    fn encoded_completion_is_read_back_for_its_own_key_only() {
        let key = ClaimKey::new("a", "key").unwrap();
        let other = ClaimKey::new("a", "other").unwrap();
        for fingerprint in [None, Some(Fingerprint::from_bytes([3; 32]))] {
            let completion = example(fingerprint);
            let bytes = completion.encode(&key);
            assert_eq!(CachedCompletion::decode(&key, bytes.clone()), Some(completion));
            assert_eq!(CachedCompletion::decode(&other, bytes), None);
        }
    }

    #[test]
    fn any_changed_or_missing_byte_makes_it_unreadable() {
        let key = ClaimKey::new("a", "key").unwrap();
        let bytes = example(Some(Fingerprint::from_bytes([3; 32]))).encode(&key);
        for index in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[index] ^= 0x10;
            assert_eq!(CachedCompletion::decode(&key, changed.into()), None, "byte {index}");
            assert_eq!(CachedCompletion::decode(&key, bytes.slice(..index)), None);
        }
        assert_eq!(CachedCompletion::decode(&key, Bytes::new()), None);
    }
}
