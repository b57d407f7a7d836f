//! Read-only connections for lists and lookups.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::Connection;
use surehook_types::store_error::StoreError;
use tokio::sync::Semaphore;

use super::schema;
use crate::sql::SqlError;

/// Concurrent readers. Each may keep the log from being reset, so they are few.
const READERS_MAX: usize = 4;

/// Read-only connections, opened when first needed.
pub(super) struct ReadPool {
    file: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadPool").field("file", &self.file).finish_non_exhaustive()
    }
}

impl ReadPool {
    pub(super) fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }

    /// Runs `query` on the blocking pool.
    pub(super) async fn read<T, E, F>(&self, query: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, E> + Send + 'static,
        E: Into<SqlError>,
        T: Send + 'static,
    {
        let store_error = |error: &dyn fmt::Display| StoreError::Refused(error.to_string());
        let permit =
            Arc::clone(&self.permits).acquire_owned().await.map_err(|error| store_error(&error))?;
        let (idle, file) = (Arc::clone(&self.idle), self.file.clone());
        let work = move || {
            let _permit = permit;
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = pooled.map_or_else(|| schema::open_reader(&file), Ok)?;
            let result = query(&connection).map_err(Into::into);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result.map_err(|error| match error.damaged_event() {
                Some(event) => StoreError::BodyDamaged(event),
                None => store_error(&error),
            }),
            Err(panicked) => Err(store_error(&panicked)),
        }
    }
}
