//! The only place that chooses between the embedded store and PostgreSQL.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::anyhow;
use bytes::Bytes;
use http::{Method, Request, Response};
use surehook_core::store::Store;
use surehook_engine::{
    Engine,
    system::{SharedClock, SystemClock},
};
use surehook_server::{ServerLimits, ServerState};
use surehook_store::{
    PostgresOpenError, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore,
    forget_database_move,
    sqlite::{self, SecretKey},
};
use surehook_types::{store_error::StoreError, time::Clock};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{GatewayArgs, LocalArgs},
    commands::serve::{self, ServeArgs},
    data_folder,
    database::{DatabaseAccess, DatabaseUrl, PostgresSettings},
    error::CliError,
    settings::{Settings, environment},
};

/// A store that is open for `serve`.
pub(crate) enum OpenStore {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

impl OpenStore {
    /// Opens the store of the settings for writing.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, CliError> {
        let now = SystemClock.now();
        match &settings.database {
            Some(database) => {
                let options = postgres_options(settings, database)?;
                tracing::info!(%database, "connecting to PostgreSQL");
                let store = PostgresStore::open(&options, now).await.map_err(database_error)?;
                Ok(Self::Postgres(Arc::new(store)))
            }
            None => {
                let options = SqliteOptions {
                    keys_remembered: settings.limits.keys_remembered,
                    queue_max: settings.limits.commit_queue_max,
                    secret_key: settings.secret_key().map_err(CliError::settings)?,
                    ..SqliteOptions::new(&settings.data)
                };
                let store = SqliteStore::open(&options, now)
                    .map_err(|error| data_folder::damage_error(error, &settings.data))?;
                Ok(Self::Sqlite(Arc::new(store)))
            }
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::<SqliteStore>::clone(store),
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// The clock of the gateway: that of the machine, or the one that all nodes of a database share.
    pub(crate) async fn clock(&self) -> Result<Arc<dyn Clock>, CliError> {
        let store = match self {
            Self::Sqlite(_) => return Ok(Arc::new(SystemClock)),
            Self::Postgres(store) => store,
        };
        let clock = Arc::new(SharedClock::default());
        update_clock(&clock, store).await?;
        let (shared, store) = (Arc::clone(&clock), Arc::downgrade(store));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CLOCK_INTERVAL).await;
                let Some(store) = store.upgrade() else { return };
                // Without the server nothing is due for anybody.
                let _unreachable = update_clock(&shared, &store).await;
            }
        });
        Ok(clock)
    }

    /// Writes what is queued.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}

/// How often the clock is compared with the server's, which another server may have replaced.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);

async fn update_clock(clock: &SharedClock, store: &PostgresStore) -> Result<(), StoreError> {
    let offset = store.measure_clock_offset(Arc::new(SystemClock)).await?;
    clock.set_offset(offset.millis, offset.round_trip);
    Ok(())
}

/// Forgets that the store of the settings was moved elsewhere.
pub(crate) async fn forget_move(settings: &Settings) -> Result<(), CliError> {
    match &settings.database {
        Some(database) => {
            let options = postgres_options(settings, database)?;
            Ok(forget_database_move(&options).await.map_err(database_error)?)
        }
        None => {
            if let Some(to) = sqlite::forget_move(&settings.data).map_err(CliError::settings)? {
                tracing::warn!("using data that was moved to {to}");
            }
            Ok(())
        }
    }
}

/// How the store opens the database of the settings.
pub(crate) fn postgres_options(
    settings: &Settings,
    database: &DatabaseUrl,
) -> Result<PostgresOptions, CliError> {
    let secret_key = settings.secret_key().map_err(CliError::settings)?.ok_or_else(|| {
        CliError::settings(anyhow!(
            "PostgreSQL needs a secret key, the same for all nodes: secrets in the database are encrypted with it"
        ))
        .hint(
            "Create one with `surehook secret-key create FILE` and keep a copy. Then set secret_key_file = \
             \"FILE\" or SUREHOOK_SECRET_KEY.",
        )
    })?;
    let PostgresSettings {
        project,
        prepared_statements,
        require_synchronous_standby,
        statement_timeout,
        ..
    } = &settings.postgres;
    let DatabaseAccess { url, tls } =
        settings.postgres.access(database).map_err(CliError::settings)?;
    Ok(PostgresOptions {
        project: project.clone(),
        tls,
        queue_max: settings.limits.commit_queue_max,
        statement_timeout: statement_timeout.0,
        prepared_statements: *prepared_statements,
        require_synchronous_standby: *require_synchronous_standby,
        ..PostgresOptions::new(url, secret_key)
    })
}

/// The error of a database that cannot be opened, with what to do.
pub(crate) fn database_error(error: PostgresOpenError) -> CliError {
    let hint = match &error {
        PostgresOpenError::Database(_) => {
            "Check that the server runs, and the URL, the user's password and TLS: surehook doctor"
        }
        PostgresOpenError::Missing(_) => {
            "Start `surehook serve` on it first, or check the URL and postgres.project."
        }
        PostgresOpenError::SecretKeyWrong { .. } => {
            "Take the key from another node: secret_key_file or SUREHOOK_SECRET_KEY."
        }
        PostgresOpenError::Locked => {
            "Another node migrates, or a long transaction is open: look at pg_stat_activity, then start again."
        }
        PostgresOpenError::InUse(_) => "Stop all nodes with SIGTERM, then rotate the key.",
        PostgresOpenError::Url
        | PostgresOpenError::Project(_)
        | PostgresOpenError::OldServer(_)
        | PostgresOpenError::Standby
        | PostgresOpenError::Encoding(_)
        | PostgresOpenError::UnsafeServer(_)
        | PostgresOpenError::NoSynchronousStandby
        | PostgresOpenError::Newer { .. }
        | PostgresOpenError::Older { .. }
        | _ => return CliError::settings(error),
    };
    CliError::settings(error).hint(hint)
}

/// What a command works on without a gateway.
#[derive(Clone, Debug)]
pub(crate) enum StoreLocation {
    Folder(PathBuf),
    Database(DatabaseUrl),
}

impl StoreLocation {
    /// The store that the arguments name; without one, the command talks to a gateway.
    pub(crate) fn of_gateway_args(args: &GatewayArgs) -> Option<Self> {
        let folder = || args.data.clone().map(Self::Folder);
        args.database.clone().map(Self::Database).or_else(folder)
    }

    pub(crate) fn of_settings(settings: &Settings) -> Self {
        match &settings.database {
            Some(database) => Self::Database(database.clone()),
            None => Self::Folder(settings.data.clone()),
        }
    }

    /// Opens the store read-only, also while gateways use it.
    pub(crate) async fn open_read_only(&self) -> Result<Arc<dyn Store>, CliError> {
        // Invalid settings count as none: only the key and the way to the database are needed.
        let config = environment("SUREHOOK_CONFIG").map(Into::into);
        let args = ServeArgs { config, ..ServeArgs::default() };
        let settings = Settings::load(&args).unwrap_or_default();
        match self {
            Self::Folder(data) => {
                let secret_key = settings.secret_key().map_err(CliError::settings)?;
                Ok(Arc::new(open_folder(data, secret_key.as_ref())?))
            }
            Self::Database(database) => {
                let options = postgres_options(&settings, database)?;
                let opened = PostgresStore::open_read_only(&options).await;
                Ok(Arc::new(opened.map_err(database_error)?))
            }
        }
    }
}

fn open_folder(data: &Path, secret_key: Option<&SecretKey>) -> Result<SqliteStore, CliError> {
    SqliteStore::open_read_only(data, secret_key).map_err(data_folder::open_error)
}

/// The data folder that a command changes, from the arguments or from the settings. A database has tools of
/// its own: `instead` names them.
pub(crate) fn require_folder(args: &LocalArgs, instead: &str) -> Result<PathBuf, CliError> {
    if let Some(data) = &args.data {
        return Ok(data.clone());
    }
    let settings = Settings::load(&args.serve_args()).map_err(CliError::settings)?;
    match settings.database {
        Some(_) => {
            let error = anyhow!("the data is in PostgreSQL, which this command does not change");
            Err(CliError::refused(error).hint(instead))
        }
        None => Ok(settings.data),
    }
}

/// Read-only access to a store through the API, without a running gateway.
#[derive(Debug)]
pub(crate) struct DirectApi(Arc<ServerState>);

impl DirectApi {
    pub(crate) async fn open(location: &StoreLocation) -> Result<Self, CliError> {
        let store = location.open_read_only().await?;
        let parts =
            serve::build_engine_parts(&Settings::default(), store).map_err(CliError::settings)?;
        let engine = Engine::without_tasks(parts);
        let no_tokens = Vec::new();
        let (limits, draining) = (ServerLimits::default(), CancellationToken::new());
        Ok(Self(ServerState::new(engine, limits, no_tokens, draining)))
    }

    /// Answers a request of the API.
    pub(crate) async fn send(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, CliError> {
        if request.method() != Method::GET {
            let error = anyhow!("--data and --database are read-only");
            return Err(CliError::refused(error).hint("Use the running gateway: omit the option."));
        }
        let path = request.uri().to_string();
        let path = path.strip_prefix("/api/v1").unwrap_or(&path);
        let (status, body) = self.0.get_in_process(path).await?;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        Ok(response)
    }
}
