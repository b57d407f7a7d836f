//! The secret key: 32 bytes, kept outside the database, that encrypt its data keys.
//!
//! It comes from the settings, or is a file in the data folder, which is created when there is none.
//! The current key is `secret.key`. An earlier one is kept as `secret.key.<id>`, for backups from its
//! time; during a rotation the new one has such a name too. So a folder opens with the key that its
//! database names, wherever a rotation was interrupted.

use std::{
    fmt, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use data_encoding::{
    BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE,
};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};

use super::{
    OpenError,
    backup::rename_durably,
    folder::{create_private_file, sync_folder},
    restore::PREVIOUS_PREFIX,
};

/// The file of the key in the data folder.
pub const SECRET_KEY_FILE: &str = "secret.key";

const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 8;

/// The id of a secret key, stored with what the key encrypts. It reveals nothing about the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretKeyId([u8; ID_BYTES]);

impl SecretKeyId {
    pub(crate) const fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn to_bytes(self) -> [u8; ID_BYTES] {
        self.0
    }
}

impl fmt::Display for SecretKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for SecretKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKeyId({self})")
    }
}

/// A secret key. `Debug` shows only its id.
#[derive(Clone)]
pub struct SecretKey {
    bytes: [u8; KEY_BYTES],
    id: SecretKeyId,
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}

/// Why a text or a file is not a secret key. No message contains any part of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretKeyError {
    #[error(
        "it is not a key of 32 bytes in hexadecimal or Base64; create one with `openssl rand -hex 32`"
    )]
    Format,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SecretKey {
    /// A new random key.
    pub fn generate() -> Result<Self, SecretKeyError> {
        let mut bytes = [0; KEY_BYTES];
        let result = SystemRandom::new().fill(&mut bytes);
        result.map_err(|_| io::Error::other("the system gives no random bytes"))?;
        Ok(Self::from_bytes(bytes))
    }

    /// Parses 64 hexadecimal digits, or Base64 in any of its common forms.
    pub fn parse(text: &str) -> Result<Self, SecretKeyError> {
        let text = text.trim().as_bytes();
        let encodings = [HEXLOWER_PERMISSIVE, BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD];
        let decoded = encodings.iter().filter_map(|encoding| encoding.decode(text).ok());
        let mut keys = decoded.filter_map(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        keys.next().map(Self::from_bytes).ok_or(SecretKeyError::Format)
    }

    pub fn read(file: &Path) -> Result<Self, SecretKeyError> {
        Self::parse(&fs::read_to_string(file)?)
    }

    /// Writes the key to a file for its owner only, which must not exist. It is there completely or
    /// not at all, also after a power failure.
    pub fn create_file(&self, file: &Path) -> Result<(), SecretKeyError> {
        let mut name = file.as_os_str().to_owned();
        name.push(".part");
        let part = PathBuf::from(name);
        let mut part_file = create_private_file(&part)?;
        writeln!(part_file, "{}", HEXLOWER.encode(&self.bytes))?;
        part_file.sync_all()?;
        // Fails if the file exists, unlike a rename.
        let link_result = fs::hard_link(&part, file);
        fs::remove_file(&part)?;
        link_result?;
        let parent = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
        Ok(())
    }

    fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&derive(&bytes, b"surehook secret key id v1")[..ID_BYTES]);
        Self { bytes, id: SecretKeyId(id) }
    }

    pub fn id(&self) -> SecretKeyId {
        self.id
    }

    /// The key that encrypts data keys.
    pub(crate) fn wrapping_key(&self) -> [u8; KEY_BYTES] {
        derive(&self.bytes, b"surehook data key wrapping v1")
    }
}

/// The first block of HKDF-Expand with SHA-256 (RFC 5869, 2.3), so that keys for different uses are
/// independent of each other. The extraction before it is not needed for a random key (3.3).
fn derive(key: &[u8; KEY_BYTES], purpose: &[u8]) -> [u8; KEY_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &[purpose, &[1]].concat());
    let mut derived = [0; KEY_BYTES];
    derived.copy_from_slice(tag.as_ref());
    derived
}

/// The file of a key that is not the current one.
pub(super) fn file_of(folder: &Path, id: SecretKeyId) -> PathBuf {
    folder.join(format!("{SECRET_KEY_FILE}.{id}"))
}

/// Reads a key file of the data folder; `None` if there is no such file.
fn read_if_exists(file: &Path) -> Result<Option<SecretKey>, OpenError> {
    match SecretKey::read(file) {
        Ok(key) => Ok(Some(key)),
        Err(SecretKeyError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::SecretKeyFile(file.to_owned(), error)),
    }
}

/// Finds the key that the database names: the configured one if there is one, otherwise in the data folder.
pub(super) fn find(
    folder: &Path,
    configured: Option<&SecretKey>,
    needed: SecretKeyId,
) -> Result<SecretKey, OpenError> {
    if let Some(key) = configured {
        return match key.id == needed {
            true => Ok(key.clone()),
            false => Err(OpenError::SecretKeyWrong {
                folder: folder.to_owned(),
                needed,
                found: key.id,
                in_folder: find_in_folder(folder, needed)?.is_some(),
            }),
        };
    }
    match find_in_folder(folder, needed)? {
        Some(key) => Ok(key),
        None => match read_if_exists(&folder.join(SECRET_KEY_FILE))? {
            Some(other) => Err(OpenError::SecretKeyWrong {
                folder: folder.to_owned(),
                needed,
                found: other.id,
                in_folder: false,
            }),
            None => Err(OpenError::SecretKeyMissing { folder: folder.to_owned(), needed }),
        },
    }
}

fn find_in_folder(folder: &Path, needed: SecretKeyId) -> Result<Option<SecretKey>, OpenError> {
    // A database that was replaced is in a subfolder; its key stays where it was.
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let is_replaced = name.starts_with(PREVIOUS_PREFIX);
    let folders = [Some(folder), folder.parent().filter(|_| is_replaced)];
    for folder in folders.into_iter().flatten() {
        for file in [folder.join(SECRET_KEY_FILE), file_of(folder, needed)] {
            if let Some(key) = read_if_exists(&file)?.filter(|key| key.id == needed) {
                return Ok(Some(key));
            }
        }
    }
    Ok(None)
}

/// The key for a database that has no data keys yet.
pub(super) fn find_or_create(
    folder: &Path,
    configured: Option<&SecretKey>,
) -> Result<SecretKey, OpenError> {
    if let Some(key) = configured {
        return Ok(key.clone());
    }
    let file = folder.join(SECRET_KEY_FILE);
    if let Some(key) = read_if_exists(&file)? {
        return Ok(key);
    }
    let create = || {
        let key = SecretKey::generate()?;
        key.create_file(&file)?;
        Ok(key)
    };
    create().map_err(|error| OpenError::SecretKeyFile(file.clone(), error))
}

/// Makes `key` the current key of the folder. The previous one is kept under its id.
pub(super) fn promote(folder: &Path, key: SecretKeyId) -> Result<(), OpenError> {
    let current = folder.join(SECRET_KEY_FILE);
    let key_file = file_of(folder, key);
    let previous = read_if_exists(&current)?;
    if previous.as_ref().is_some_and(|previous| previous.id == key) || !key_file.exists() {
        return Ok(());
    }
    let file_error = |error: io::Error| OpenError::Folder(current.clone(), error);
    if let Some(previous) = previous {
        rename_durably(&current, &file_of(folder, previous.id)).map_err(file_error)?;
    }
    rename_durably(&key_file, &current).map_err(file_error)
}

/// Keeps the current key of the folder under its id, because a configured key replaces it.
pub(super) fn retire(folder: &Path, key: SecretKeyId) -> Result<(), OpenError> {
    let current = folder.join(SECRET_KEY_FILE);
    if read_if_exists(&current)?.is_none_or(|current| current.id != key) {
        return Ok(());
    }
    rename_durably(&current, &file_of(folder, key))
        .map_err(|error| OpenError::Folder(current, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_read_in_hexadecimal_and_base64() {
        let bytes: Vec<u8> = (200..232).collect();
        let encodings = [
            HEXLOWER.encode(&bytes),
            HEXLOWER.encode(&bytes).to_uppercase(),
            BASE64.encode(&bytes),
            BASE64_NOPAD.encode(&bytes),
            BASE64URL.encode(&bytes),
            format!("  {}\n", BASE64URL_NOPAD.encode(&bytes)),
        ];
        let expected = SecretKey::parse(&encodings[0]).unwrap();
        for text in &encodings {
            assert_eq!(SecretKey::parse(text).unwrap().bytes, expected.bytes, "case: {text}");
        }
        let short = HEXLOWER.encode(&bytes[1..]);
        for text in ["", "secret", &short, &format!("{}00", HEXLOWER.encode(&bytes))] {
            assert!(matches!(SecretKey::parse(text), Err(SecretKeyError::Format)), "case: {text}");
        }
    }

    #[test]
    fn id_and_debug_output_reveal_nothing_about_the_key() {
        let key = SecretKey::parse(&"0a".repeat(32)).unwrap();
        assert_ne!(key.wrapping_key(), key.bytes);
        assert_ne!(key.wrapping_key()[..ID_BYTES], key.id.0);
        assert_eq!(format!("{key:?}"), format!("SecretKey({})", key.id));
        assert!(!format!("{key:?}").contains("0a0a0a"));
    }

    #[test]
    fn existing_key_file_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let first = SecretKey::generate().unwrap();
        first.create_file(&file).unwrap();

        assert!(SecretKey::generate().unwrap().create_file(&file).is_err());

        assert_eq!(SecretKey::read(&file).unwrap().id, first.id);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no partial file is left");
    }
}
