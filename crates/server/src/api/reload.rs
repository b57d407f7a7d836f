//! `/api/v1/settings/reload`: applies the settings file of a running gateway.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use axum::{Json, extract::State};
use surehook_api::reload::ReloadResponse;
use surehook_types::store_error::StoreError;

use crate::{
    ServerState,
    openapi::{ApiTable, Operation},
    problem::Problem,
};

/// Reads the settings file again and applies what can be applied without a restart.
#[async_trait]
pub trait SettingsReloader: fmt::Debug + Send + Sync {
    /// Applies the whole file or nothing.
    async fn reload(&self) -> Result<ReloadResponse, SettingsReloadError>;
}

/// Why the settings were not applied.
#[derive(Debug, thiserror::Error)]
pub enum SettingsReloadError {
    /// With the file, line and column.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) fn add_routes(api: ApiTable) -> ApiTable {
    let reload = Operation::new("reload_settings", "Apply the settings file again.")
        .description(
            "Applies sources, destinations, routes and the settings of the server that need no \
             restart, all or nothing. The same as SIGHUP. Only the node that answers reads its file.",
        )
        .problem(422, &["invalid"])
        .returns::<ReloadResponse>(200);
    api.post("/api/v1/settings/reload", reload_settings, reload)
}

pub(crate) async fn reload_settings(
    State(server): State<Arc<ServerState>>,
) -> Result<Json<ReloadResponse>, Problem> {
    // Only a server without a settings file of its own, in tests.
    let Some(reloader) = server.reloader.get() else { return Err(Problem::not_found("endpoint")) };
    match reloader.reload().await {
        Ok(report) => Ok(Json(report)),
        Err(SettingsReloadError::Invalid(detail)) => Err(Problem::invalid(detail)),
        Err(SettingsReloadError::Store(error)) => Err(error.into()),
    }
}
