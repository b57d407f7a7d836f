//! The API on a data folder, without a gateway: the same answers, for commands that only look.

use std::{path::Path, sync::Arc};

use anyhow::anyhow;
use bytes::Bytes;
use http::{Method, StatusCode};
use surehook_engine::Engine;
use surehook_http::{ServerLimits, ServerState};
use surehook_store::{OpenError, SqliteStore};
use tokio_util::sync::CancellationToken;

use crate::{commands::serve, failure::Failure, settings::Settings};

/// A data folder that is looked into.
#[derive(Debug)]
pub(crate) struct Folder(Arc<ServerState>);

impl Folder {
    /// Opens it beside whoever has it open; nothing is locked and nothing changes.
    pub(crate) fn open(data: &Path) -> Result<Self, Failure> {
        let store = Arc::new(open(data)?);
        let parts = serve::parts(&Settings::default(), store).map_err(Failure::settings)?;
        let engine = Engine::without_tasks(parts);
        let nobody = Vec::new();
        Ok(Self(ServerState::new(
            engine,
            ServerLimits::default(),
            nobody,
            CancellationToken::new(),
        )))
    }

    /// What the API would answer.
    pub(crate) async fn call(
        &self,
        method: &Method,
        path: &str,
    ) -> Result<(StatusCode, Bytes), Failure> {
        if method != Method::GET {
            let error = anyhow!("this changes something, and --data is only for looking");
            return Err(Failure::refused(error).hint("ask the running gateway: leave --data out"));
        }
        Ok(self.0.get_in_process(path).await?)
    }
}

/// Opens the store in a folder to look at it.
pub(crate) fn open(data: &Path) -> Result<SqliteStore, Failure> {
    SqliteStore::open_read_only(data).map_err(refusal)
}

/// Why a folder cannot be looked into.
pub(crate) fn refusal(error: OpenError) -> Failure {
    if matches!(error, OpenError::Missing(_)) {
        return Failure::not_found(error).hint("name the data folder of a gateway with --data");
    }
    Failure::settings(error)
}
