//! Rotation of the secret key. The gateway must be stopped: the command takes the lock of the folder.
//!
//! The new key is in its file before the database is changed, and everything is encrypted anew in one
//! transaction that names its key. A crash at any point leaves a folder that opens: with the old key
//! before the commit, with the new one after it.

use std::path::Path;

use surehook_types::time::Timestamp;

use super::{
    DATABASE, OpenError, folder,
    schema::{self, MIGRATIONS, read_schema_version},
    sealing::{self, DataKeys},
    secret_key::{self, SecretKey, SecretKeyId},
    start_check,
};

/// The new secret key, by where it is kept.
#[derive(Clone, Debug)]
pub enum NewSecretKey {
    /// In the data folder.
    InFolder(SecretKey),
    /// Elsewhere; the caller has stored it.
    External(SecretKey),
}

/// The result of a rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationReport {
    pub old: SecretKeyId,
    pub new: SecretKeyId,
    /// Why old copies of secrets may be left in unused space of the files, if so.
    pub leftover: Option<String>,
}

/// Encrypts all secrets in the database of `data` with a new key. `current` is the key of the settings;
/// without one it is in the folder.
pub fn rotate_secret_key(
    data: &Path,
    current: Option<&SecretKey>,
    new: &NewSecretKey,
    now: Timestamp,
) -> Result<RotationReport, OpenError> {
    if !data.join(DATABASE).is_file() {
        return Err(OpenError::Missing(data.join(DATABASE)));
    }
    let _lock = folder::lock(data)?;
    if folder::is_restore_interrupted(data) {
        return Err(OpenError::RestoreInterrupted(data.to_owned()));
    }
    let mark = start_check::check_files(data)?;
    let connection = start_check::open_checked(data, mark)?;
    let (found, known) = (read_schema_version(&connection)?, MIGRATIONS.len());
    if found != known || sealing::needed_key(&connection)?.is_none() {
        return Err(OpenError::wrong_version(found.min(known - 1), known));
    }
    let old = sealing::find_secret_key(&connection, data, current)?;
    let key = match new {
        NewSecretKey::InFolder(key) => {
            let file = secret_key::file_of(data, key.id());
            key.create_file(&file).map_err(|error| OpenError::SecretKeyFile(file, error))?;
            key
        }
        NewSecretKey::External(key) => key,
    };
    let mut connection = schema::prepare_writer(connection, &data.join(DATABASE))?;
    let keys = DataKeys::load(&connection, &old)?;
    let keys = keys.ok_or(OpenError::Older { found, known })?;
    let keys = keys.rotate(&mut connection, key, now)?;
    match new {
        NewSecretKey::InFolder(key) => secret_key::promote(data, key.id())?,
        NewSecretKey::External(key) if key.id() == old.id() => {}
        NewSecretKey::External(_) => secret_key::retire(data, old.id())?,
    }
    let removed = keys.remove_remains(&mut connection);
    connection.close().map_err(|(_, error)| error)?;
    let leftover = removed.err().map(|error| error.to_string());
    Ok(RotationReport { old: old.id(), new: key.id(), leftover })
}
