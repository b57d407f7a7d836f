//! Read-only access to a data folder through the API, without a running gateway.

use std::{path::Path, sync::Arc};

use anyhow::anyhow;
use bytes::Bytes;
use http::{Method, Request, Response};
use surehook_engine::Engine;
use surehook_server::{ServerLimits, ServerState};
use surehook_store::{
    OpenError, SqliteStore,
    sqlite::{SecretKey, find_rescued},
};
use tokio_util::sync::CancellationToken;

use crate::{
    commands::serve::{self, ServeArgs},
    error::CliError,
    settings::{Settings, environment},
};

/// A data folder opened read-only.
#[derive(Debug)]
pub(crate) struct DataFolder(Arc<ServerState>);

impl DataFolder {
    /// Opens the folder without a lock, also while a gateway uses it.
    pub(crate) fn open(data: &Path) -> Result<Self, CliError> {
        let store = Arc::new(open_store(data)?);
        let parts =
            serve::build_engine_parts(&Settings::default(), store).map_err(CliError::settings)?;
        let engine = Engine::without_tasks(parts);
        let no_tokens = Vec::new();
        Ok(Self(ServerState::new(
            engine,
            ServerLimits::default(),
            no_tokens,
            CancellationToken::new(),
        )))
    }

    /// Answers a request of the API.
    pub(crate) async fn send(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, CliError> {
        if request.method() != Method::GET {
            let error = anyhow!("--data is read-only");
            return Err(CliError::refused(error).hint("Use the running gateway: omit --data."));
        }
        let path = request.uri().to_string();
        let path = path.strip_prefix("/api/v1").unwrap_or(&path);
        let (status, body) = self.0.get_in_process(path).await?;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        Ok(response)
    }
}

/// Opens the store of a data folder read-only.
pub(crate) fn open_store(data: &Path) -> Result<SqliteStore, CliError> {
    let secret_key = configured_key().map_err(CliError::settings)?;
    SqliteStore::open_read_only(data, secret_key.as_ref()).map_err(open_error)
}

/// The secret key of the settings. Invalid settings count as none: they are not needed for anything else
/// here.
fn configured_key() -> anyhow::Result<Option<SecretKey>> {
    let config = environment("SUREHOOK_CONFIG").map(Into::into);
    let args = ServeArgs { config, data: None, listen: None };
    Settings::load(&args).unwrap_or_default().secret_key()
}

pub(crate) fn open_error(error: OpenError) -> CliError {
    if matches!(error, OpenError::Missing(_)) {
        return CliError::not_found(error).hint("Pass the data folder of a gateway with --data.");
    }
    CliError::settings(error)
}

/// The error of a folder that cannot be opened for writing, with the ways out if it is damaged.
pub(crate) fn damage_error(error: OpenError, data: &Path) -> CliError {
    let hint = damage_advice(&error, data);
    let error = CliError::settings(error);
    match hint {
        Some(hint) => error.hint(&hint),
        None => error,
    }
}

/// What to do about a damaged folder; `None` for other errors.
pub(crate) fn damage_advice(error: &OpenError, data: &Path) -> Option<String> {
    if !error.is_damage() {
        return None;
    }
    let rescued = find_rescued(data);
    let data = data.display();
    Some(match rescued {
        Some(rescued) => format!(
            "Everything acknowledged was saved: surehook restore {} --data {data} --force",
            rescued.display()
        ),
        None => format!(
            "Put the original files back, restore a backup (surehook restore FILE --data {data} --force), \
             or accept the loss (surehook doctor --repair --data {data}). Nothing was changed."
        ),
    })
}
