//! `surehook serve`: puts the gateway together, runs it, and takes it down in order.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use surehook_core::{
    access::{ApiToken, Role},
    address::AddressPolicy,
    media::BucketSpecError,
    rng::new_id,
    store::{AdminStore as _, Store},
    time::Clock,
};
use surehook_engine::{
    ConfigChangeError, Engine, EngineParts,
    apply::{DesiredConfiguration, plan_changes},
    connect::SystemResolver,
    system::{SystemClock, SystemRng},
};
use surehook_http::{ServerState, hash_token, new_token, server};
use surehook_store::{SqliteOptions, SqliteStore};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::ServeArgs,
    failure::Failure,
    logging, output,
    settings::{Settings, environment},
};

/// What a newcomer can send something to before anything is configured.
const DEMO: &str = r#"
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

pub(super) async fn run(args: &ServeArgs) -> Result<(), Failure> {
    let settings = Settings::load(args).map_err(Failure::settings)?;
    logging::start(&settings.log, &settings.log_format);
    // Before the store: a port that is taken should not cost a recovery.
    let listener = server::listen(settings.listen)
        .with_context(|| {
            format!("cannot listen on {}; give another address with --listen", settings.listen)
        })
        .map_err(Failure::settings)?;
    let address = listener.local_addr()?;
    let store = open(&settings)?;
    let engine = start_engine(&settings, store.clone()).await?;
    let demo = configure(&engine, &settings).await?;
    // After all that can go wrong: a token that was kept and never shown would lock everybody out.
    let first_token = first_token(&store).await?;
    let draining = CancellationToken::new();
    let tokens = store.tokens().await?;
    let app =
        ServerState::new(Arc::clone(&engine), settings.limits.http(), tokens, draining.clone());
    welcome(address, &settings, first_token.as_deref(), &app.create_login_link().0, demo)?;

    let grace = settings.shutdown_grace.0;
    let stop = CancellationToken::new();
    let server = tokio::spawn(server::serve(listener, app, stop.clone(), grace));
    let ended = wait_for_the_end(&store).await?;
    draining.cancel();
    stop.cancel();
    if let End::StoreFailed(why) = ended {
        // Nothing more can be written, so there is nothing to wait for.
        return Err(Failure::store(anyhow::anyhow!("the store has failed: {why}")));
    }
    tracing::info!("shutting down; a second signal stops at once");
    tokio::select! {
        () = async { server.await.unwrap_or(()); engine.stop(grace).await; } => {}
        () = second_signal() => tracing::warn!("stopped at once"),
    }
    Ok(())
}

fn open(settings: &Settings) -> Result<Arc<SqliteStore>, Failure> {
    let options = SqliteOptions {
        keys_remembered: settings.limits.keys_remembered,
        queue_max: settings.limits.commit_queue_max,
        ..SqliteOptions::new(&settings.data)
    };
    let store = SqliteStore::open(&options, SystemClock.now()).map_err(Failure::settings)?;
    Ok(Arc::new(store))
}

async fn start_engine(settings: &Settings, store: Arc<dyn Store>) -> Result<Arc<Engine>, Failure> {
    let parts = parts(settings, store).map_err(Failure::settings)?;
    Engine::start(parts).await.map_err(Failure::settings)
}

/// What an engine is made of, by the settings.
pub(crate) fn parts(
    settings: &Settings,
    store: Arc<dyn Store>,
) -> Result<EngineParts, BucketSpecError> {
    Ok(EngineParts {
        store,
        clock: Arc::new(SystemClock),
        rng: Arc::new(SystemRng),
        addresses: AddressPolicy::new(settings.allow_networks.clone()),
        programs: settings.allow_exec.clone(),
        resolver: Arc::new(SystemResolver),
        env: Arc::new(environment),
        bucket: settings.media.build(&environment)?,
        public_url: settings.public_url.clone(),
        event_retention: settings.retention.0,
        lane_bytes_max: settings.limits.lane_bytes_max,
        quarantine_bytes_max: settings.limits.quarantine_bytes_max,
        stuck_after: settings.ready_max_due_age.0,
    })
}

/// Takes over the token from the environment, or makes the first one and says it.
async fn first_token(store: &SqliteStore) -> Result<Option<String>, Failure> {
    if let Some(token) = environment("SUREHOOK_ADMIN_TOKEN") {
        if token.len() < 16 {
            let error = anyhow::anyhow!("SUREHOOK_ADMIN_TOKEN must have at least 16 characters");
            return Err(Failure::settings(error));
        }
        store.add_token(admin(&token, "SUREHOOK_ADMIN_TOKEN")).await?;
        return Ok(None);
    }
    let now = SystemClock.now();
    let opens = |token: &ApiToken| {
        token.role == Role::Admin && token.session.is_none() && !token.has_expired(now)
    };
    if store.tokens().await?.iter().any(opens) {
        return Ok(None);
    }
    let token = new_token(&SystemRng);
    store.add_token(admin(&token, "made at the first start")).await?;
    Ok(Some(token))
}

/// A token that may do everything, without an end.
fn admin(token: &str, name: &str) -> ApiToken {
    let now = SystemClock.now();
    ApiToken {
        id: new_id(&SystemRng, now),
        hash: hash_token(token),
        name: Some(name.to_owned()),
        role: Role::Admin,
        created_at: now,
        expires_at: None,
        session: None,
    }
}

/// Applies what the settings want; on an empty gateway without any, the demo. Says if it did.
async fn configure(engine: &Arc<Engine>, settings: &Settings) -> Result<bool, Failure> {
    let mut wanted = settings.wanted();
    let nothing_wanted =
        wanted.sources.is_empty() && wanted.destinations.is_empty() && wanted.routes.is_empty();
    let nothing_there = engine.store().configuration().await?.sources.is_empty();
    if nothing_wanted && nothing_there {
        let demo: Settings = toml::from_str(DEMO)?;
        wanted = demo.wanted();
    }
    apply(engine, wanted).await.map_err(Failure::settings)?;
    let configuration = engine.store().configuration().await?;
    Ok(configuration.sources.iter().any(|source| source.spec.name.as_str() == "demo"))
}

async fn apply(
    engine: &Arc<Engine>,
    wanted: DesiredConfiguration,
) -> Result<(), ConfigChangeError> {
    let (rng, now) = (engine.rng(), engine.clock().now());
    let applied = engine
        .change::<_, ConfigChangeError>(|configuration| {
            Ok(plan_changes(configuration, wanted, rng, now))
        })
        .await?;
    for what in applied.created.iter().chain(&applied.updated) {
        tracing::info!(what, "configured from the settings");
    }
    Ok(())
}

fn welcome(
    address: SocketAddr,
    settings: &Settings,
    first_token: Option<&str>,
    login: &str,
    demo: bool,
) -> anyhow::Result<()> {
    let base = format!("http://{address}");
    output::line(&format!("Surehook {} is ready.\n", env!("CARGO_PKG_VERSION")))?;
    output::line(&format!("  address      {base}"))?;
    output::line(&format!("  dashboard    {base}{login}  (signs you in, once)"))?;
    output::line(&format!("  data         {}", settings.data.display()))?;
    match first_token {
        Some(token) => output::line(&format!("  admin token  {token}  (shown once, kept hashed)"))?,
        None => output::line("  admin token  as given before")?,
    }
    if demo {
        output::line("\nSend a first event:\n")?;
        output::line(&format!(
            "  curl -X POST {base}/in/demo -H 'content-type: application/json' -d '{{\"id\":\"hello-1\",\"text\":\"hello\"}}'"
        ))?;
        output::line("\nSee how it was delivered:\n")?;
        let token = first_token.unwrap_or("$SUREHOOK_TOKEN");
        // In double quotes, so that a shell puts the token in where only its variable is shown.
        output::line(&format!("  curl -H \"Authorization: Bearer {token}\" {base}/api/v1/inbox"))?;
    }
    output::line("")
}

enum End {
    Asked,
    StoreFailed(String),
}

async fn wait_for_the_end(store: &SqliteStore) -> Result<End, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => End::Asked,
        _ = interrupt.recv() => End::Asked,
        why = store.wait_for_failure() => End::StoreFailed(why),
    })
}

async fn second_signal() {
    let once = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                Signal::recv(&mut signal).await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = once(SignalKind::terminate()) => {}
        () = once(SignalKind::interrupt()) => {}
    }
}
