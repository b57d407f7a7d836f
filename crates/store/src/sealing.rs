//! Encryption of what contains secrets: specs of sources and destinations, and the heads of quarantined
//! requests.
//!
//! Values are sealed with a random data key (AES-256-GCM). The table, the column, the id of the row and
//! the id of the key are authenticated with each value, so a sealed value is refused in any other place.
//! Each database stores its data key itself, encrypted with the secret key.

use data_encoding::BASE64;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom as _, SystemRandom},
};
use serde_json::{Map, Value};
use surehook_core::event::HeaderBlock;

use crate::{
    sql::{Result, SqlError},
    sqlite::{SecretKey, SecretKeyId},
    steps::row::corrupt_value,
};

pub(crate) const DATA_KEY_BYTES: usize = 32;
pub(crate) const KEY_ID_BYTES: usize = 8;

/// First byte of a sealed value: the format.
const FORMAT: u8 = 1;

/// Fields of a source that SQL reads; not secret.
const PLAIN_FIELDS: [&str; 3] = ["redact", "retention", "strip_secrets"];
const SEALED_FIELD: &str = "sealed";

/// The table and row that a sealed value belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealedPlace {
    pub(crate) table: &'static str,
    column: &'static str,
    pub(crate) row: [u8; 16],
}

impl SealedPlace {
    pub(crate) fn source(row: [u8; 16]) -> Self {
        Self { table: "sources", column: "spec", row }
    }

    pub(crate) fn destination(row: [u8; 16]) -> Self {
        Self { table: "destinations", column: "spec", row }
    }

    pub(crate) fn quarantined(row: [u8; 16]) -> Self {
        Self { table: "quarantine", column: "headers", row }
    }

    /// Unambiguous: names contain no zero byte, and the rest has fixed lengths.
    fn authenticated(self, key: [u8; KEY_ID_BYTES]) -> Vec<u8> {
        [self.table.as_bytes(), b"\0", self.column.as_bytes(), b"\0", &key, &self.row].concat()
    }
}

/// A key with its id. Few values are encrypted with one key, so random nonces do not repeat.
pub(crate) struct DataKey {
    id: [u8; KEY_ID_BYTES],
    pub(crate) key: LessSafeKey,
}

impl DataKey {
    pub(crate) fn new(id: [u8; KEY_ID_BYTES], bytes: &[u8; DATA_KEY_BYTES]) -> Result<Self> {
        let key =
            UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| failure("the key is invalid"))?;
        Ok(Self { id, key: LessSafeKey::new(key) })
    }
}

/// The keys that a database encrypts with.
pub(crate) struct DataKeys {
    pub(crate) current: DataKey,
}

impl std::fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DataKeys(•••)")
    }
}

pub(crate) fn failure(what: &str) -> SqlError {
    SqlError::Unstorable(what.to_owned())
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| failure("the system gives no random bytes"))?;
    Ok(bytes)
}

/// Nonce, then the encrypted bytes with their tag.
pub(crate) fn encrypt(key: &LessSafeKey, authenticated: &[u8], plain: &[u8]) -> Result<Vec<u8>> {
    let nonce: [u8; NONCE_LEN] = random()?;
    let mut bytes = plain.to_vec();
    key.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(authenticated),
        &mut bytes,
    )
    .map_err(|_| failure("the value is too long to be encrypted"))?;
    Ok([&nonce[..], &bytes].concat())
}

/// `None` if the bytes were not encrypted with this key for this place.
pub(crate) fn decrypt(key: &LessSafeKey, authenticated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, bytes) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut bytes = bytes.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = key.open_in_place(nonce, Aad::from(authenticated), &mut bytes).ok()?;
    Some(plain.to_vec())
}

/// A data key as it is stored: encrypted with the secret key.
pub(crate) struct WrappedDataKey {
    pub(crate) id: [u8; KEY_ID_BYTES],
    pub(crate) wrapped: Vec<u8>,
    pub(crate) by: SecretKeyId,
}

fn wrapping_place(id: [u8; KEY_ID_BYTES], by: SecretKeyId) -> Vec<u8> {
    [&b"data_keys\0wrapped\0"[..], &by.to_bytes(), &id].concat()
}

fn wrapping_key(secret_key: &SecretKey) -> Result<LessSafeKey> {
    Ok(DataKey::new([0; KEY_ID_BYTES], &secret_key.wrapping_key())?.key)
}

impl DataKeys {
    /// Creates a random data key, to be stored.
    pub(crate) fn generate(secret_key: &SecretKey) -> Result<(Self, WrappedDataKey)> {
        let (id, bytes) = (random()?, random()?);
        let by = secret_key.id();
        let wrapped = encrypt(&wrapping_key(secret_key)?, &wrapping_place(id, by), &bytes)?;
        Ok((Self { current: DataKey::new(id, &bytes)? }, WrappedDataKey { id, wrapped, by }))
    }

    /// Decrypts a stored data key; `None` if it is damaged.
    pub(crate) fn unwrap(secret_key: &SecretKey, stored: &WrappedDataKey) -> Result<Option<Self>> {
        let WrappedDataKey { id, wrapped, by } = stored;
        let bytes = decrypt(&wrapping_key(secret_key)?, &wrapping_place(*id, *by), wrapped);
        let bytes = bytes.and_then(|bytes| <[u8; DATA_KEY_BYTES]>::try_from(bytes).ok());
        bytes.map(|bytes| Ok(Self { current: DataKey::new(*id, &bytes)? })).transpose()
    }

    pub(crate) fn seal(&self, place: SealedPlace, plain: &[u8]) -> Result<Vec<u8>> {
        let DataKey { id, key } = &self.current;
        let sealed = encrypt(key, &place.authenticated(*id), plain)?;
        Ok([&[FORMAT][..], id, &sealed].concat())
    }

    pub(crate) fn unseal(&self, place: SealedPlace, sealed: &[u8]) -> Result<Vec<u8>> {
        let DataKey { id, key } = &self.current;
        let plain = match sealed.split_first() {
            Some((&FORMAT, rest)) => rest
                .strip_prefix(&id[..])
                .and_then(|sealed| decrypt(key, &place.authenticated(*id), sealed)),
            Some(_) | None => None,
        };
        let SealedPlace { table, column, .. } = place;
        plain.ok_or_else(|| {
            let what = format!(
                "an encrypted value in {table}.{column} is damaged or belongs elsewhere; restore a backup"
            );
            corrupt_value(0, &what)
        })
    }

    /// A spec as it is stored: a JSON object with the sealed text and the fields that SQL reads.
    pub(crate) fn seal_spec(&self, place: SealedPlace, spec: &str) -> Result<String> {
        let sealed = BASE64.encode(&self.seal(place, spec.as_bytes())?);
        let mut stored = Map::from_iter([(SEALED_FIELD.to_owned(), Value::String(sealed))]);
        if let Ok(Value::Object(mut fields)) = serde_json::from_str(spec) {
            let plain = PLAIN_FIELDS.into_iter().filter_map(|name| fields.remove_entry(name));
            stored.extend(plain);
        }
        Ok(Value::Object(stored).to_string())
    }

    /// The text of a stored spec. One that is not sealed is refused: someone else wrote it.
    pub(crate) fn unseal_spec(&self, place: SealedPlace, stored: &str) -> Result<String> {
        let stored: Option<Value> = serde_json::from_str(stored).ok();
        let sealed = stored.as_ref().and_then(|stored| stored[SEALED_FIELD].as_str());
        let sealed = sealed.and_then(|text| BASE64.decode(text.as_bytes()).ok());
        let plain = self.unseal(place, &sealed.unwrap_or_default())?;
        String::from_utf8(plain).map_err(|_| corrupt_value(0, "a spec is not UTF-8"))
    }
}

/// The part of a quarantined request that has its credentials. They may be right: the request is kept
/// until the source is configured with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantinedHead {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderBlock,
}

impl QuarantinedHead {
    pub(crate) fn seal(&self, keys: &DataKeys, id: [u8; 16]) -> Result<Vec<u8>> {
        let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
        let query = self.query.as_deref();
        let plain = [
            &length(&self.path)[..],
            self.path.as_bytes(),
            &[u8::from(query.is_some())],
            &length(query.unwrap_or_default()),
            query.unwrap_or_default().as_bytes(),
            self.headers.as_bytes(),
        ];
        keys.seal(SealedPlace::quarantined(id), &plain.concat())
    }

    pub(crate) fn unseal(keys: &DataKeys, id: [u8; 16], sealed: &[u8]) -> Result<Self> {
        let plain = keys.unseal(SealedPlace::quarantined(id), sealed)?;
        Self::decode(&plain).ok_or_else(|| corrupt_value(0, "a quarantined request is incomplete"))
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (path, rest) = split_text(plain)?;
        let (has_query, rest) = rest.split_first()?;
        let (query, headers) = split_text(rest)?;
        let query = (*has_query == 1).then_some(query);
        Some(Self { path, query, headers: HeaderBlock::from_bytes(headers.to_vec()) })
    }
}

fn split_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}
