//! The running gateway without its HTTP server: receives requests and delivers their events.
//!
//! - [`body_memory`]: the memory budget of incoming requests.
//! - [`ingest`]: receive → verify → parse → extract keys → plan deliveries → commit.
//! - `lane`: one for each destination: claim → attempt → classify → settle.
//! - `sync`, `waiters`: senders that wait for the delivery result.
//! - [`quarantine`], `refused_sampler`: requests that were not accepted.
//! - `destination_client`, [`sender`]: outgoing requests, through `surehook-guard`.
//! - [`registry`], [`apply`]: the configuration in use, and changes to it.
//! - `node`, `lost_claims`: the lanes that this process owns, and claims without a running attempt.
//! - `signals`, `lane_requests`, `lane_states`: what it tells other nodes, and learns of their lanes.
//! - [`listen`]: programs that ask for their deliveries.
//! - `maintenance`: retention, roll-ups, metrics. [`replays`]: bulk replay jobs.
//! - [`health`]: the health of destinations. `alerts`: rules, and messages about them.
//! - `idempotency`: claims of idempotency keys.
//! - [`feed`]: live updates. [`otlp`]: traces and metrics for a collector.

mod alerts;
mod allowance;
pub mod apply;
pub mod body_memory;
mod callbacks;
mod certificates;
mod clock_guard;
mod control;
mod destination_client;
mod exec;
pub mod feed;
pub mod health;
mod idempotency;
pub mod inbox;
pub mod ingest;
mod lane;
mod lane_requests;
mod lane_states;
pub mod listen;
mod lock;
mod lost_claims;
mod maintenance;
pub mod media;
mod node;
mod non_http;
pub mod otlp;
mod outbound_headers;
pub mod programs;
pub mod quarantine;
mod redis;
mod refused_sampler;
pub mod registry;
pub mod replays;
mod routing;
mod run_to_completion;
pub mod sender;
mod shard_news;
mod signals;
mod smtp;
pub mod sockets;
mod source_secrets;
mod sync;
pub mod system;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod tls;
mod token;
pub mod trial;
pub mod variables;
mod waiters;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
pub use control::LaneError;
pub use lane_states::LaneStates;
pub use node::NodeIdentity;
use surehook_core::{
    alert::AlertRules,
    health::HealthPolicy,
    idempotency::KeyLimits,
    quarantine::QuarantineStore,
    refused::RefusedRequest,
    replay::ReplayStore,
    retention::RetentionPolicy,
    source::{PublicUrl, SourceSpec},
    store::{
        AdminStore, ConfigChange, ConfigChangeResult, Configuration, DeliveryStore, HeldClaim,
        NodeLease, Signal, Store, TokensVersion,
    },
};
use surehook_guard::{address::AddressPolicy, connect::Resolver};
use surehook_messaging::{media::Bucket, store::MessageStore};
use surehook_types::{
    ids::{DeliveryId, DestinationId, NodeId},
    rng::Rng,
    store_error::StoreError,
    time::{Clock, Timestamp},
};
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    alerts::AlertMonitor,
    certificates::{CertificateCache, HttpCertificateFetcher},
    clock_guard::{ClockGuard, RecordingClock},
    feed::{DeliveryChanged, DestinationChange, DestinationChanged, Feed, LiveUpdate},
    health::HealthMonitor,
    idempotency::ClaimMemory,
    inbox::Inbox,
    lane::{LaneContext, MemoryBudget},
    lost_claims::LostClaims,
    media::MediaFiles,
    node::NodeState,
    otlp::{OtlpExport, OtlpParts, OtlpTasks},
    programs::AllowedPrograms,
    quarantine::QuarantineLimiter,
    refused_sampler::RefusedSampler,
    registry::{ConfigError, DestinationPolicy, EnvLookup, OwnedLanes, Registry},
    replays::ReplayTasks,
    run_to_completion::RunToCompletion,
    sender::HttpSenderConfig,
    shard_news::ShardNews,
    signals::SignalOutbox,
    sockets::SocketBudget,
    telemetry::Telemetry,
    tls::TrustStore,
    variables::{AllowedVariables, ConfigOrigin},
};

/// Dependencies and settings of an engine.
pub struct EngineParts {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    /// The addresses that may be called.
    pub addresses: AddressPolicy,
    pub programs: AllowedPrograms,
    /// The environment variables that the API may reference.
    pub allow_env: AllowedVariables,
    pub resolver: Arc<dyn Resolver>,
    /// Resolves `env:NAME` in settings.
    pub env: Arc<EnvLookup>,
    /// The bucket for media files of messages, if configured.
    pub bucket: Option<Bucket>,
    /// The base URL that providers call (the part before `/in/`), if configured.
    pub public_url: Option<PublicUrl>,
    /// How long events are kept after their deliveries have ended, unless their source sets its own.
    pub event_retention: Duration,
    /// Bytes of bodies that may wait in all lanes together.
    pub lane_bytes_max: usize,
    /// Sockets that deliveries may have open.
    pub sockets_max: usize,
    /// Bytes of quarantined requests per source.
    pub quarantine_bytes_max: u64,
    /// Stored keys of the idempotency service.
    pub idempotency_limits: KeyLimits,
    /// A lane is reported as stuck if it is idle and a delivery has been due for this long.
    pub stuck_after: Duration,
    /// How this process presents itself to other nodes.
    pub node: NodeIdentity,
    /// What counts as a failing and a degraded destination.
    pub health: HealthPolicy,
    /// When alerts fire.
    pub alerts: AlertRules,
    /// Where traces and metrics are sent, if anywhere.
    pub otlp: Option<OtlpParts>,
}

impl fmt::Debug for EngineParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineParts")
            .field("event_retention", &self.event_retention)
            .finish_non_exhaustive()
    }
}

/// The settings that can be replaced while the engine runs.
#[derive(Debug)]
pub struct ReloadableSettings {
    /// The addresses that may be called.
    pub addresses: AddressPolicy,
    pub programs: Arc<AllowedPrograms>,
    /// The environment variables that the API may reference.
    pub allow_env: AllowedVariables,
    /// How long events are kept after their deliveries have ended, unless their source sets its own.
    pub event_retention: Duration,
    /// A lane is reported as stuck if it is idle and a delivery has been due for this long.
    pub stuck_after: Duration,
}

/// The running gateway, without its HTTP server.
pub struct Engine {
    store: Arc<dyn Store>,
    shared: Arc<LaneContext>,
    registry: ArcSwap<Registry>,
    telemetry: Arc<Telemetry>,
    env: Arc<EnvLookup>,
    settings: ArcSwap<ReloadableSettings>,
    public_url: Option<PublicUrl>,
    quarantine_bytes_max: u64,
    claims: ClaimMemory,
    stuck: ArcSwapOption<String>,
    health: HealthMonitor,
    alerts: AlertMonitor,
    refused_sampler: RefusedSampler,
    quarantine_limiter: QuarantineLimiter,
    certificates: CertificateCache,
    /// Serializes changes of the configuration.
    change_lock: Arc<Mutex<()>>,
    replays: ReplayTasks,
    /// Notifies maintenance tasks that the configuration changed.
    changed: Notify,
    /// The version of the tokens as other nodes have left it.
    tokens: watch::Sender<TokensVersion>,
    otlp: OtlpTasks,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// Why the configuration was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigChangeError {
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Loads the configuration and starts delivering.
    pub async fn start(parts: EngineParts) -> Result<Arc<Self>, ConfigChangeError> {
        let (engine, BackgroundWork { refused, otlp }) = Self::build(parts);
        engine.check_clock_at_start().await?;
        let lease = engine.join_nodes().await?;
        engine.reload().await?;
        if lease != NodeLease::Unlimited {
            engine.start_node_tasks(lease);
        }
        engine.shared.tasks.spawn(Arc::clone(&engine).keep_lanes());
        engine.shared.tasks.spawn(shard_news::spread(Arc::clone(&engine)));
        engine.shared.tasks.spawn(shard_news::compare(Arc::clone(&engine)));
        engine.shared.tasks.spawn(lost_claims::run(Arc::clone(&engine)));
        maintenance::start(&engine);
        engine.shared.tasks.spawn(callbacks::run(Arc::clone(&engine)));
        let writer = Arc::clone(&engine);
        engine.shared.tasks.spawn(async move { writer.write_refused_samples(refused).await });
        if let Some(otlp) = otlp {
            otlp.start(&engine);
        }
        Ok(engine)
    }

    /// Starts what only a process beside others has to do.
    fn start_node_tasks(self: &Arc<Self>, lease: NodeLease) {
        let tasks = &self.shared.tasks;
        tasks.spawn(Arc::clone(self).keep_lease(lease));
        tasks.spawn(signals::publish_waiting(Arc::clone(self)));
        tasks.spawn(signals::follow_others(Arc::clone(self)));
        tasks.spawn(signals::watch_due_deliveries(Arc::clone(self)));
        tasks.spawn(lane_requests::answer_requests(Arc::clone(self)));
    }

    /// An engine without background tasks, for reading a store.
    pub fn without_tasks(parts: EngineParts) -> Arc<Self> {
        Self::build(EngineParts { otlp: None, ..parts }).0
    }

    fn build(parts: EngineParts) -> (Arc<Self>, BackgroundWork) {
        let telemetry = Arc::new(Telemetry::default());
        let (otlp, tracer) = match parts.otlp {
            Some(otlp) => {
                let (export, tracer) = OtlpExport::new(otlp, &telemetry);
                (Some(export), tracer)
            }
            None => (None, None),
        };
        let stop = CancellationToken::new();
        let trust = TrustStore::from_system();
        let deliveries: Arc<dyn DeliveryStore> = parts.store.clone();
        let clock = Arc::new(RecordingClock::new(parts.clock));
        let signals = Arc::new(SignalOutbox::default());
        let feed = Feed::new(clock.clone(), &*parts.rng, Arc::clone(&signals));
        let policy = Arc::new(AddressPolicy::default());
        policy.replace(&parts.addresses);
        let settings = ReloadableSettings {
            addresses: parts.addresses,
            programs: Arc::new(parts.programs),
            allow_env: parts.allow_env,
            event_retention: parts.event_retention,
            stuck_after: parts.stuck_after,
        };
        let http = HttpSenderConfig {
            policy,
            resolver: parts.resolver,
            tls: trust.default_config(),
            proxy: None,
            sockets: SocketBudget::new(parts.sockets_max),
            pool_idle_max: 1024,
        };
        let media = MediaFiles::new(parts.store.clone(), parts.bucket, &http);
        let shared = Arc::new(LaneContext {
            store: deliveries,
            messages: parts.store.clone(),
            media: Arc::new(media),
            feed,
            guard: ClockGuard::new(Arc::clone(&clock)),
            clock,
            rng: parts.rng,
            telemetry: Arc::clone(&telemetry),
            tracer,
            inbox: Arc::default(),
            http,
            trust: trust.clone(),
            programs: ArcSwap::new(Arc::clone(&settings.programs)),
            budget: Arc::new(MemoryBudget::new(parts.lane_bytes_max)),
            shortage_logged_at: AtomicI64::new(0),
            stop,
            abort: CancellationToken::new(),
            tasks: TaskTracker::new(),
            waiters: Arc::default(),
            node: NodeState::new(NodeId::new(Timestamp::default(), 0), parts.node),
            signals,
            lost_claims: LostClaims::default(),
            shard_news: ShardNews::default(),
            callbacks_due: Notify::new(),
            routes: ArcSwap::default(),
            secrets: ArcSwap::default(),
        });
        let (refused_sampler, refused) = RefusedSampler::new();
        let fetcher = HttpCertificateFetcher::new(&shared.http);
        let engine = Arc::new(Self {
            store: parts.store,
            shared,
            registry: ArcSwap::default(),
            telemetry,
            env: parts.env,
            settings: ArcSwap::new(Arc::new(settings)),
            public_url: parts.public_url,
            quarantine_bytes_max: parts.quarantine_bytes_max,
            claims: ClaimMemory::new(parts.idempotency_limits),
            stuck: ArcSwapOption::empty(),
            health: HealthMonitor::new(parts.health),
            alerts: AlertMonitor::new(parts.alerts),
            refused_sampler,
            quarantine_limiter: QuarantineLimiter::default(),
            certificates: CertificateCache::new(Arc::new(fetcher), trust),
            change_lock: Arc::default(),
            replays: ReplayTasks::default(),
            changed: Notify::new(),
            tokens: watch::Sender::default(),
            otlp: OtlpTasks::default(),
        });
        (engine, BackgroundWork { refused, otlp })
    }

    /// Loads the configuration, and acquires the lanes that it needs.
    async fn reload(&self) -> Result<(), StoreError> {
        let configuration = self.store.load_configuration().await?;
        let runnable = match self.shared.node.is_alone() {
            // Also those that cannot be run now: no other process can run them either.
            true => registry::all_lanes(&configuration).collect(),
            false => registry::find_runnable(&configuration, &self.shared.trust, &*self.env),
        };
        let whole_lanes = registry::count_whole_lanes(&configuration);
        let lanes = self.acquire_lanes(runnable, whole_lanes).await?;
        let saved = self.store.load_lanes().await?;
        let owned = OwnedLanes { lanes, saved };
        let has_public_url = self.public_url.is_some();
        let registry = self.registry.load();
        let next = registry.next(&configuration, &self.shared, &*self.env, has_public_url, &owned);
        self.release_replaced_lanes(&registry, &configuration);
        self.registry.store(Arc::new(next));
        self.forget_idle_times();
        // Finds deliveries that were committed before their lane existed.
        self.registry.load().all_lanes().for_each(|lane| lane.wake());
        self.changed.notify_waiters();
        Ok(())
    }

    /// Changes the configuration as the API does: `plan` gets the current one and returns the changes.
    /// Nothing is stored unless the result is valid as a whole.
    ///
    /// If the configuration changes between planning and storing, `plan` is called again with the new
    /// one. So what it checks holds for the configuration that is changed.
    pub async fn change<T, E: From<ConfigChangeError>>(
        self: &Arc<Self>,
        plan: impl Fn(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        self.change_from(ConfigOrigin::Api, plan).await
    }

    /// Changes the configuration as the settings file does, which may reference every variable, and
    /// replaces the settings of the engine with it: both or neither.
    pub async fn apply_settings<T, E: From<ConfigChangeError>>(
        self: &Arc<Self>,
        settings: ReloadableSettings,
        plan: impl Fn(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        self.change_with(ConfigOrigin::SettingsFile, Some(Arc::new(settings)), plan).await
    }

    /// Like [`Self::change`], with the permissions of another origin.
    pub async fn change_from<T, E: From<ConfigChangeError>>(
        self: &Arc<Self>,
        origin: ConfigOrigin,
        plan: impl Fn(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        self.change_with(origin, None, plan).await
    }

    /// Like [`Self::change_from`], and with other settings from then on.
    async fn change_with<T, E: From<ConfigChangeError>>(
        self: &Arc<Self>,
        origin: ConfigOrigin,
        settings: Option<Arc<ReloadableSettings>>,
        plan: impl Fn(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        for _ in 0..CHANGE_TRIES_MAX {
            // Spares the changes of this process the race; those of other processes are noticed below.
            let change_lock = Arc::clone(&self.change_lock).lock_owned().await;
            let settings = settings.clone().unwrap_or_else(|| self.settings.load_full());
            let (planned, result) = self.plan_change(origin, &settings, &plan).await?;
            let engine = Arc::clone(self);
            // A stored change must also be applied, even if the caller is cancelled.
            let store_and_apply = async move {
                let _change_lock = change_lock;
                let before = engine.settings.load_full();
                // Before the lanes are built that need them.
                engine.use_settings(settings);
                let changed = engine.store_and_apply(planned).await;
                if !matches!(changed, Ok(ConfigChangeResult::Changed(_))) {
                    engine.use_settings(before);
                }
                changed
            };
            match RunToCompletion::new(store_and_apply, &self.shared.tasks).await? {
                ConfigChangeResult::Changed(_) => return Ok(result),
                ConfigChangeResult::Outdated(_) => {}
            }
        }
        Err(ConfigChangeError::from(StoreError::Overloaded).into())
    }

    fn use_settings(&self, settings: Arc<ReloadableSettings>) {
        self.shared.http.policy.replace(&settings.addresses);
        self.shared.programs.store(Arc::clone(&settings.programs));
        self.settings.store(settings);
    }

    async fn store_and_apply(
        &self,
        planned: PlannedChange,
    ) -> Result<ConfigChangeResult, ConfigChangeError> {
        let PlannedChange { configuration, changes, now } = planned;
        let names = touched_destinations(&configuration, &changes);
        let changed = self.store.change(changes, configuration.version, now).await;
        if !matches!(changed, Ok(_) | Err(StoreError::Unknown(_))) {
            return Ok(changed?);
        }
        self.shared.signals.publish(Signal::ConfigurationChanged);
        // Also if it is unknown whether it was stored, or another process has changed something.
        self.reload().await?;
        let changed = changed?;
        if let ConfigChangeResult::Outdated(_) = changed {
            return Ok(changed);
        }
        let deleted = |(id, name): &(_, Option<_>)| name.is_none().then_some(*id);
        self.cancel_waits_for(&names.iter().filter_map(deleted).collect::<Vec<_>>()).await;
        self.publish_destination_changes(names, now);
        Ok(changed)
    }

    /// Returns what [`Self::change`] would return, and changes nothing.
    pub async fn preview<T, E: From<ConfigChangeError>>(
        &self,
        plan: impl Fn(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        Ok(self.plan_change(ConfigOrigin::Api, &self.settings.load_full(), plan).await?.1)
    }

    /// Plans a change and checks the configuration that it leads to.
    async fn plan_change<T, E: From<ConfigChangeError>>(
        &self,
        origin: ConfigOrigin,
        settings: &ReloadableSettings,
        plan: impl Fn(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<(PlannedChange, T), E> {
        let mut configuration =
            self.store.load_configuration().await.map_err(ConfigChangeError::from)?;
        let (changes, result) = plan(&configuration)?;
        let changes = self.with_outbox(&configuration, changes).map_err(ConfigChangeError::from)?;
        variables::check_references(&configuration, &changes, origin, &settings.allow_env)
            .map_err(ConfigChangeError::from)?;
        // Later than every change before it: two versions of an object never have the same time.
        let now = self.shared.clock.now().max(last_change(&configuration) + TICK);
        let before = configuration.clone();
        configuration.apply(&changes, now);
        let ReloadableSettings { addresses, programs, .. } = settings;
        let policy = DestinationPolicy { addresses, trust: &self.shared.trust, programs };
        let has_public_url = self.public_url.is_some();
        registry::check_configuration(
            &before,
            &configuration,
            &changes,
            &policy,
            has_public_url,
            &*self.env,
        )
        .map_err(ConfigChangeError::from)?;
        Ok((PlannedChange { configuration, changes, now }, result))
    }

    /// Publishes the current state of a delivery that was not changed by its lane.
    pub async fn publish_delivery_change(&self, id: DeliveryId) {
        let at = self.shared.clock.now();
        let detail = match self.shared.feed.is_active(at) {
            true => self.store.find_delivery(id).await,
            false => Ok(None),
        };
        // An unreadable delivery becomes a gap, which subscribers notice.
        let Ok(Some(detail)) = detail else { return self.shared.feed.skip() };
        let row = detail.delivery;
        let name = self.registry.load().names.get(&row.destination).cloned();
        self.shared.feed.publish(at, || {
            LiveUpdate::DeliveryChanged(DeliveryChanged {
                id,
                event: row.event,
                destination: name,
                status: row.status,
                reason: row.reason,
                attempts: row.attempts,
                due_at: row.due_at,
                at,
            })
        });
    }

    fn publish_destination_changes(
        &self,
        changed: Vec<(DestinationId, Option<String>)>,
        at: Timestamp,
    ) {
        for (id, name) in changed {
            let change =
                if name.is_some() { DestinationChange::Put } else { DestinationChange::Deleted };
            let update = DestinationChanged { id, name, change, at };
            self.shared.feed.publish(at, || LiveUpdate::DestinationChanged(update));
        }
    }

    /// Notifies a destination's lanes that the store has due deliveries for it: those that run here, or
    /// if there are none, those of other nodes. Lanes find what others leave within a second.
    pub fn wake_lane(&self, destination: DestinationId) {
        match self.registry.load().lanes_of(destination) {
            [] => self.shared.signals.publish(Signal::LaneDue(destination)),
            lanes => lanes.iter().for_each(|lane| lane.wake()),
        }
    }

    /// Notifies a destination's lane that a delivery in the store is due at this time. Unlike
    /// [`Self::wake_lane`], new deliveries do not have to wait behind it.
    fn expect_due(&self, destination: DestinationId, at: Timestamp) {
        match self.registry.load().lanes_of(destination) {
            [] => self.shared.signals.publish(Signal::LaneDue(destination)),
            lanes => lanes.iter().for_each(|lane| lane.expect_due(at)),
        }
    }

    /// The store, for lists and lookups.
    pub fn store(&self) -> &dyn AdminStore {
        &*self.store
    }

    /// The quarantine, for lists and lookups.
    pub fn quarantine_store(&self) -> &dyn QuarantineStore {
        &*self.store
    }

    pub fn message_store(&self) -> &dyn MessageStore {
        &*self.store
    }

    /// The replay jobs, for lists and lookups.
    pub fn replay_store(&self) -> &dyn ReplayStore {
        &*self.store
    }

    /// How long a source's events are kept.
    pub fn retention_policy(&self, source: &SourceSpec) -> RetentionPolicy {
        source.retention.resolve(self.event_retention())
    }

    /// Live updates.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.shared.feed
    }

    /// Runs `work` to completion even if the caller is cancelled; a shutdown waits for it.
    pub fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        RunToCompletion::new(work, &self.shared.tasks)
    }

    pub fn media(&self) -> &Arc<MediaFiles> {
        &self.shared.media
    }

    /// How long events are kept, unless their source sets its own retention.
    pub fn event_retention(&self) -> Duration {
        self.settings.load().event_retention
    }

    /// The base URL that senders call, if configured.
    pub fn public_url(&self) -> Option<&PublicUrl> {
        self.public_url.as_ref()
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    pub fn rng(&self) -> &dyn Rng {
        &*self.shared.rng
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The built-in destination.
    pub fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    /// The name of a destination whose lane is idle although deliveries are due, if there is one.
    pub fn stuck_destination(&self) -> Option<Arc<String>> {
        self.stuck.load_full()
    }

    /// Tells other nodes that a token or session was added, changed or removed.
    pub fn announce_token_change(&self) {
        self.shared.signals.publish(Signal::TokensChanged);
    }

    /// Changes when another node may have added, changed or removed a token or session.
    pub fn token_changes(&self) -> watch::Receiver<TokensVersion> {
        self.tokens.subscribe()
    }

    /// Whether no other process can use the store.
    pub fn is_only_node(&self) -> bool {
        self.shared.node.is_alone()
    }

    /// Stops: starts no new attempts, gives running ones `grace`, and returns queued deliveries to the
    /// store.
    pub async fn stop(&self, grace: Duration) {
        self.shared.stop.cancel();
        let registry = self.registry.load_full();
        let queued: Vec<HeldClaim> =
            registry.all_lanes().flat_map(|lane| lane.take_queued_claims()).collect();
        if !queued.is_empty()
            && let Err(error) = self.store.release(queued, self.shared.clock.now()).await
        {
            // The next owner of their lanes finds them.
            tracing::warn!(%error, "could not return queued deliveries to the store");
        }
        self.shared.tasks.close();
        if tokio::time::timeout(grace, self.shared.tasks.wait()).await.is_err() {
            self.shared.abort.cancel();
            // The attempts that are left only have to record that they were interrupted.
            let _late =
                tokio::time::timeout(Duration::from_secs(5), self.shared.tasks.wait()).await;
        }
        self.leave_nodes().await;
        self.otlp.finish().await;
    }
}

/// Work of an engine that needs tasks of its own.
struct BackgroundWork {
    /// Sampled refused requests to be written.
    refused: mpsc::Receiver<RefusedRequest>,
    otlp: Option<OtlpExport>,
}

/// A change of the configuration that is valid and not stored yet.
struct PlannedChange {
    /// The configuration after the change, with the version before it.
    configuration: Configuration,
    changes: Vec<ConfigChange>,
    now: Timestamp,
}

/// How often a change is planned again because another process has changed the configuration.
const CHANGE_TRIES_MAX: usize = 20;

/// The least time between two changes of the configuration.
const TICK: Duration = Duration::from_millis(1);

fn last_change(configuration: &Configuration) -> Timestamp {
    let sources = configuration.sources.iter().map(|source| source.updated_at);
    let destinations = configuration.destinations.iter().map(|destination| destination.updated_at);
    let routes = configuration.routes.iter().map(|route| route.updated_at);
    sources.chain(destinations).chain(routes).max().unwrap_or_default()
}

/// The destinations that `changes` touch, with their new names; `None` if deleted.
fn touched_destinations(
    configuration: &Configuration,
    changes: &[ConfigChange],
) -> Vec<(DestinationId, Option<String>)> {
    let name = |id: &DestinationId| {
        let stored = configuration.destinations.iter().find(|stored| stored.id == *id);
        stored.map(|stored| stored.spec.name.to_string())
    };
    let touched = changes.iter().filter_map(|change| match change {
        ConfigChange::PutDestination(id, _) | ConfigChange::DeleteDestination(id) => Some(id),
        ConfigChange::PutSource(..)
        | ConfigChange::PutRoute(..)
        | ConfigChange::DeleteSource(_)
        | ConfigChange::DeleteRoute(_) => None,
    });
    touched.map(|id| (*id, name(id))).collect()
}
