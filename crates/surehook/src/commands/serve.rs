//! `surehook serve`: starts the gateway, runs it, and shuts it down in order.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use surehook_core::{
    access::{ApiToken, ENVIRONMENT_TOKEN, Role},
    idempotency::KeyLimits,
    otlp::OtlpSpec,
    store::{InitialTokenResult, Store},
};
use surehook_engine::{
    ConfigChangeError, Engine, EngineParts, NodeIdentity,
    apply::{DesiredConfiguration, plan_changes},
    otlp::OtlpParts,
    system::{SystemClock, SystemRng},
};
use surehook_guard::{address::AddressPolicy, connect::SystemResolver};
use surehook_server::{
    ServerState, SettingsReloader, hash_token, new_token, server,
    tls::{CertificateError, ListenerTls},
};
use surehook_types::{rng::new_id, time::Clock};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Mutex,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{OpenStore, forget_move},
    database::DatabaseUrl,
    error::CliError,
    file_limit::{FileBudget, raise_file_limit},
    logging, output,
    reload::{FileReloader, SettingValues, reloadable},
    settings::{self, Settings, environment},
    systemd::ServiceManager,
};

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// Settings file [default: surehook.toml, if it exists]
    #[arg(long, env = "SUREHOOK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder [default: data]
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
    /// PostgreSQL database instead of a data folder, for several nodes; others on this machine see it in the
    /// list of processes, so prefer `SUREHOOK_DATABASE` or the settings file if it has a password
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    pub(crate) database: Option<DatabaseUrl>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long)]
    pub(crate) listen: Option<SocketAddr>,
    /// Use data that `surehook migrate` has moved elsewhere, and forget that it was moved
    #[arg(long)]
    pub(crate) use_moved_data: bool,
}

/// Configuration of a new gateway, so that a first event can be sent without any setup.
const DEMO_SETTINGS: &str = r#"
    [[sources]]
    name = "demo"
    verify = "none"

    [[destinations]]
    name = "inbox"
    url = "builtin:inbox"

    [[routes]]
    from = "demo"
    to = "inbox"
"#;

pub(super) async fn run(args: &ServeArgs) -> Result<(), CliError> {
    let settings = Settings::load(args).map_err(CliError::settings)?;
    let log = logging::start(&settings.log, &settings.log_format);
    // Before anything that takes time: the default of SIGHUP ends the process.
    let hangups = signal(SignalKind::hangup())?;
    let manager = ServiceManager::from_environment();
    let files = raise_and_divide_file_limit(&settings);
    log_warnings(&settings);
    // Before the store: a port in use should fail before a slow recovery.
    let listener = server::listen(settings.listen)
        .with_context(|| {
            format!("cannot listen on {}; use another address with --listen", settings.listen)
        })
        .map_err(CliError::settings)?;
    let address = listener.local_addr()?;
    let tls =
        load_tls(&settings).map_err(|error| CliError::settings(settings::locate(args, &error)))?;
    if args.use_moved_data {
        forget_move(&settings).await?;
    }
    let open = OpenStore::open(&settings).await?;
    let store = open.store();
    let engine = start_engine(&settings, files, address, &open).await?;
    let has_demo_source = configure(&engine, &settings, args).await?;
    // After everything that can fail: a token that was stored but never shown would lock everyone out.
    let access = prepare_access(&*store).await?;
    let draining = CancellationToken::new();
    let tokens = store.list_tokens().await?;
    let state = ServerState::new(
        Arc::clone(&engine),
        settings.limits.server_limits(files.connections),
        tokens,
        draining.clone(),
    );
    let login = match access.is_first_start {
        true => Some(state.create_login_link().await?.0),
        false => None,
    };
    let base = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
    print_welcome(
        &base,
        &settings,
        access.new_token.as_deref(),
        login.as_deref(),
        has_demo_source,
    )?;

    let grace = settings.shutdown_grace.0;
    let (stop, frozen) = (CancellationToken::new(), state.frozen());
    let reloader = Arc::new(FileReloader {
        args: args.clone(),
        engine: Arc::clone(&engine),
        tls: tls.clone(),
        log,
        manager: Arc::clone(&manager),
        values: Mutex::new(SettingValues::new(&settings)),
    });
    state.set_reloader(Arc::clone(&reloader) as Arc<dyn SettingsReloader>);
    if let Some(tls) = &tls {
        tokio::spawn(Arc::clone(tls).follow_files(stop.clone()));
    }
    let server = tokio::spawn(server::serve(listener, tls, state, stop.clone(), grace));
    tokio::spawn(reload_on_hangup(hangups, reloader));
    // As long as the process lives: a frozen one waits to be stopped, and must not be restarted.
    tokio::spawn(Arc::clone(&manager).feed_watchdog());
    manager.announce_ready("Ready");
    let failure = tokio::select! {
        signal = wait_for_signal() => signal.map(|()| None)?,
        reason = store.wait_for_failure() => Some(reason),
        () = frozen.cancelled() => None,
    };
    if !frozen.is_cancelled() {
        manager.announce_stop();
    }
    draining.cancel();
    if let Some(reason) = failure {
        stop.cancel();
        // Nothing can be written any more, so there is nothing to wait for.
        return Err(store_failure(&reason));
    }
    shut_down(engine, &open, server, stop, grace, frozen.is_cancelled()).await
}

/// Ends what runs, in order. A frozen gateway then waits to be stopped.
async fn shut_down(
    engine: Arc<Engine>,
    open: &OpenStore,
    server: JoinHandle<()>,
    stop: CancellationToken,
    grace: Duration,
    is_frozen: bool,
) -> Result<(), CliError> {
    tracing::info!("shutting down; a second signal stops immediately");
    let stopped = async {
        // First: other nodes deliver while this one still answers the requests that reach it.
        engine.leave(grace).await;
        stop.cancel();
        server.await.unwrap_or(());
        engine.stop(grace).await;
        open.close().await;
    };
    let is_in_order = stop_in_order(stopped).await;
    if let Some(reason) = open.store().health().failure {
        return Err(store_failure(&reason));
    }
    if is_frozen && is_in_order {
        // The server answers 503 meanwhile.
        tracing::info!("the store is closed and can be moved; waiting to be stopped");
        wait_for_signal().await?;
    }
    Ok(())
}

fn log_warnings(settings: &Settings) {
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
}

fn load_tls(settings: &Settings) -> Result<Option<Arc<ListenerTls>>, CertificateError> {
    let Some(files) = settings.certificate_files() else { return Ok(None) };
    Ok(Some(ListenerTls::new(files.load()?)))
}

/// Applies the settings file whenever SIGHUP comes. Several at once count as one.
async fn reload_on_hangup(mut hangups: Signal, reloader: Arc<FileReloader>) {
    while hangups.recv().await.is_some() {
        reloader.reload_and_log().await;
    }
}

/// Waits for an orderly stop, or for a second signal; returns whether the stop was orderly.
async fn stop_in_order(stopped: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = stopped => true,
        Ok(()) = wait_for_signal() => {
            tracing::warn!("stopped immediately");
            false
        }
    }
}

fn store_failure(reason: &str) -> CliError {
    CliError::store(anyhow::anyhow!("the store has failed: {reason}"))
}

/// Raises the limit of open files and divides it between incoming connections and deliveries.
fn raise_and_divide_file_limit(settings: &Settings) -> FileBudget {
    let (files, connections_max) = (raise_file_limit(), settings.limits.connections_max);
    let budget = FileBudget::new(files, connections_max);
    let FileBudget { connections, deliveries } = budget;
    if let Some(connections_max) = connections_max.filter(|max| *max > connections) {
        tracing::warn!(
            files,
            "limits.connections_max is {connections_max}, but the limit of open files allows only {connections}; \
             raise it (LimitNOFILE, ulimit -n)"
        );
    }
    tracing::info!(files, connections, deliveries, "limit of open files");
    budget
}

async fn start_engine(
    settings: &Settings,
    files: FileBudget,
    address: SocketAddr,
    open: &OpenStore,
) -> Result<Arc<Engine>, CliError> {
    let parts = build_engine_parts(settings, open.store()).map_err(CliError::settings)?;
    let node = NodeIdentity { address: Some(address), ..parts.node };
    let clock = open.clock().await?;
    let parts = EngineParts { clock, sockets_max: files.deliveries, node, ..parts };
    Engine::start(parts).await.map_err(CliError::settings)
}

pub(crate) fn build_engine_parts(
    settings: &Settings,
    store: Arc<dyn Store>,
) -> anyhow::Result<EngineParts> {
    Ok(EngineParts {
        store,
        clock: Arc::new(SystemClock),
        rng: Arc::new(SystemRng),
        addresses: AddressPolicy::new(settings.allow_networks.clone()),
        programs: settings.allow_exec.clone(),
        allow_env: settings.allow_env.clone(),
        resolver: Arc::new(SystemResolver),
        env: Arc::new(environment),
        bucket: settings.media.build(&environment)?,
        public_url: settings.public_url.clone(),
        event_retention: settings.retention.0,
        lane_bytes_max: settings.limits.lane_bytes_max,
        // `serve` sets it by the limit of open files.
        sockets_max: usize::MAX,
        quarantine_bytes_max: settings.limits.quarantine_bytes_max,
        idempotency_limits: KeyLimits {
            per_namespace: settings.limits.idempotency_namespace_keys_max,
            total: settings.limits.idempotency_keys_max,
        },
        stuck_after: settings.ready_max_due_age.0,
        node: NodeIdentity { name: settings.node_name(), address: None },
        // The settings were checked.
        health: settings.health.build().unwrap_or_default(),
        alerts: settings.alerts.build().unwrap_or_default(),
        otlp: build_otlp(&settings.otlp)?,
    })
}

/// Where traces and metrics are sent; `None` if nowhere.
fn build_otlp(spec: &OtlpSpec) -> anyhow::Result<Option<OtlpParts>> {
    let config = spec.build(&environment)?;
    config.map(OtlpParts::load).transpose().context("otlp.ca_file")
}

/// How an admin signs in after this start.
struct AdminAccess {
    /// A token that was just created and is shown only now.
    new_token: Option<String>,
    /// Before this start there was no token to sign in with.
    is_first_start: bool,
}

/// Stores the token from the environment, in place of an earlier one. Without it, creates an admin token
/// if there is none. Of several nodes that start together, one finds that it is the first.
async fn prepare_access(store: &dyn Store) -> Result<AdminAccess, CliError> {
    let now = SystemClock.now();
    if let Some(token) = environment(ENVIRONMENT_TOKEN) {
        if token.len() < 16 {
            let error = anyhow::anyhow!("{ENVIRONMENT_TOKEN} must have at least 16 characters");
            return Err(CliError::settings(error));
        }
        let token = admin_token(&token, ENVIRONMENT_TOKEN);
        let hash = token.hash;
        let result = store.add_initial_token(token, false).await?;
        let is_replaced = |old: &&ApiToken| {
            old.name.as_deref() == Some(ENVIRONMENT_TOKEN)
                && old.session.is_none()
                && old.hash != hash
        };
        for old in store.list_tokens().await?.iter().filter(is_replaced) {
            store.remove_token(old.id, now).await?;
            tracing::info!(token = %old.id, "replaced the earlier {ENVIRONMENT_TOKEN}");
        }
        let is_first_start = result == InitialTokenResult::First;
        return Ok(AdminAccess { new_token: None, is_first_start });
    }
    let token = new_token(&SystemRng);
    match store.add_initial_token(admin_token(&token, "initial admin token"), true).await? {
        InitialTokenResult::First | InitialTokenResult::Stored => {
            Ok(AdminAccess { new_token: Some(token), is_first_start: true })
        }
        InitialTokenResult::NotNeeded => Ok(AdminAccess { new_token: None, is_first_start: false }),
    }
}

fn admin_token(token: &str, name: &str) -> ApiToken {
    let now = SystemClock.now();
    ApiToken {
        id: new_id(&SystemRng, now),
        hash: hash_token(token),
        name: Some(name.to_owned()),
        role: Role::Admin,
        created_at: now,
        expires_at: None,
        namespaces: None,
        urls: None,
        session: None,
    }
}

/// Applies the configuration of the settings, or the demo if neither the settings nor the store have one.
/// Returns whether the demo source exists.
async fn configure(
    engine: &Arc<Engine>,
    settings: &Settings,
    args: &ServeArgs,
) -> Result<bool, CliError> {
    let mut desired = settings.desired_configuration();
    let nothing_desired =
        desired.sources.is_empty() && desired.destinations.is_empty() && desired.routes.is_empty();
    let nothing_configured = engine.store().load_configuration().await?.sources.is_empty();
    if nothing_desired && nothing_configured {
        let demo: Settings = toml::from_str(DEMO_SETTINGS)?;
        desired = demo.desired_configuration();
    }
    let applied = apply_configuration(engine, settings, desired).await;
    applied.map_err(|error| CliError::settings(settings::locate(args, &error)))?;
    let configuration = engine.store().load_configuration().await?;
    Ok(configuration.sources.iter().any(|source| source.spec.name.as_str() == "demo"))
}

async fn apply_configuration(
    engine: &Arc<Engine>,
    settings: &Settings,
    desired: DesiredConfiguration,
) -> Result<(), ConfigChangeError> {
    let (rng, now) = (engine.rng(), engine.clock().now());
    let applied = engine
        .apply_settings::<_, ConfigChangeError>(reloadable(settings), |configuration| {
            Ok(plan_changes(configuration, desired.clone(), rng, now))
        })
        .await?;
    for resource in applied.created.iter().chain(&applied.updated) {
        tracing::info!(resource, "configured from the settings");
    }
    Ok(())
}

fn print_welcome(
    base: &str,
    settings: &Settings,
    first_token: Option<&str>,
    login: Option<&str>,
    has_demo_source: bool,
) -> Result<(), CliError> {
    let token = match first_token {
        Some(token) => format!("{token}  (shown once, stored as a hash)"),
        None => "unchanged".to_owned(),
    };
    let dashboard = match login {
        Some(path) => format!("{base}{path}  (one-time login link, valid for 15 minutes)"),
        None => format!("{base}/  (sign in with a token, or create a link: surehook token link)"),
    };
    output::print_line(format!(
        "Surehook {} is ready.\n\n  \
         address      {base}\n  \
         dashboard    {dashboard}\n  \
         {}\n  \
         admin token  {token}",
        env!("CARGO_PKG_VERSION"),
        describe_store(settings),
    ))?;
    if has_demo_source {
        let token = first_token.unwrap_or("$SUREHOOK_TOKEN");
        // In double quotes, so that a shell expands $SUREHOOK_TOKEN.
        output::print_line(format!(
            "\nSend a first event:\n\n  \
             curl -X POST {base}/in/demo -H 'content-type: application/json' -d '{{\"id\":\"hello-1\",\"text\":\"hello\"}}'\n\n\
             See the delivery:\n\n  \
             curl -H \"Authorization: Bearer {token}\" {base}/api/v1/inbox"
        ))?;
    }
    output::print_line("")
}

fn describe_store(settings: &Settings) -> String {
    match &settings.database {
        Some(database) => format!("database     {database}"),
        None => format!("data         {}", settings.data.display()),
    }
}

/// Waits for SIGTERM or SIGINT.
async fn wait_for_signal() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
