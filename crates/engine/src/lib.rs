//! What happens, and when: taking requests in, and delivering what they owe.
//!
//! - [`ingest`]: verify, key, route, commit.
//! - `lane`: one for each destination; claims, attempts, settlements.
//! - `sync` and `waiters`: senders that wait for the result.
//! - `refused_sampler`: a sample of what was not let in.
//! - [`replays`]: jobs that deliver again in bulk.
//! - `certificates`: what providers sign with, fetched and kept.
//! - `destination_client`, [`sender`] and [`connect`]: the only way out, and the guard on it.
//! - [`media`]: the files of messages, into their bucket and out of it.
//! - `exec` and [`programs`]: programs that are run for events, and which may be.
//! - `redis`: streams in Redis.
//! - [`feed`]: what happens, for whoever listens.
//! - `maintenance`: leases, retention, readings.

pub mod apply;
mod certificates;
pub mod connect;
mod control;
mod destination_client;
mod exec;
pub mod feed;
pub mod inbox;
pub mod ingest;
mod lane;
mod maintenance;
pub mod media;
mod non_http;
mod outbound_headers;
mod outbox;
pub mod programs;
pub mod quarantine;
mod redis;
mod refused_sampler;
pub mod registry;
pub mod replays;
mod routing;
mod run_to_completion;
pub mod sender;
mod source_secrets;
mod stopwatch;
mod sync;
pub mod system;
pub mod telemetry;
pub mod tls;
mod token;
mod transform;
pub mod trial;
mod waiters;

pub use control::LaneError;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use surehook_core::{
    address::AddressPolicy,
    idempotency::IdempotencyStore,
    ids::{DeliveryId, DestinationId},
    media::Bucket,
    quarantine::QuarantineStore,
    refused::RefusedRequest,
    replay::ReplayStore,
    retention::RetentionPolicy,
    rng::Rng,
    source::PublicUrl,
    source::SourceSpec,
    store::{AdminStore, ConfigChange, Configuration, DeliveryStore, HeldClaim, Store, StoreError},
    time::{Clock, Timestamp},
};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    certificates::{CertificateCache, HttpCertificateFetcher},
    connect::Resolver,
    feed::{DeliveryChanged, DestinationChange, DestinationChanged, Feed, LiveUpdate},
    inbox::Inbox,
    lane::{LaneContext, MemoryBudget},
    media::MediaFiles,
    programs::AllowedPrograms,
    refused_sampler::RefusedSampler,
    registry::{ConfigError, EnvLookup, Registry},
    replays::ReplayTasks,
    run_to_completion::RunToCompletion,
    sender::HttpSenderConfig,
    telemetry::Telemetry,
    tls::TrustStore,
};

/// What an engine is made of.
pub struct EngineParts {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The dice.
    pub chance: Arc<dyn Rng>,
    /// Which addresses may be called.
    pub addresses: AddressPolicy,
    /// Which programs may be run.
    pub programs: AllowedPrograms,
    /// How names are resolved.
    pub resolver: Arc<dyn Resolver>,
    /// How `env:NAME` is looked up.
    pub env: Arc<EnvLookup>,
    /// Where the files of messages lie, if anywhere.
    pub bucket: Option<Bucket>,
    /// What stands before `/in/` in the addresses that providers call, if that is known.
    pub public_url: Option<PublicUrl>,
    /// How long events are kept after their deliveries have ended, unless their source sets its own.
    pub event_retention: Duration,
    /// Bytes of bodies that may wait in lanes.
    pub lane_bytes_max: usize,
    /// Bytes of requests in quarantine, for each source.
    pub quarantine_bytes_max: u64,
    /// A due delivery older than this, in a lane with room, means that the lane is stuck.
    pub stuck_after: Duration,
}

impl fmt::Debug for EngineParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineParts")
            .field("event_retention", &self.event_retention)
            .finish_non_exhaustive()
    }
}

/// The running gateway, without its HTTP face.
pub struct Engine {
    store: Arc<dyn Store>,
    shared: Arc<LaneContext>,
    registry: ArcSwap<Registry>,
    telemetry: Arc<Telemetry>,
    env: Arc<EnvLookup>,
    public_url: Option<PublicUrl>,
    quarantine_bytes_max: u64,
    event_retention: Duration,
    stuck_after: Duration,
    stuck: ArcSwapOption<String>,
    refusals: RefusedSampler,
    certificates: CertificateCache,
    /// One change of the configuration at a time.
    changing: Arc<Mutex<()>>,
    replays: ReplayTasks,
    /// Tells the upkeep that something was changed.
    changed: Notify,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// Why the configuration was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigChangeError {
    /// It would not make sense.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Reads what is configured and starts delivering.
    pub async fn start(parts: EngineParts) -> Result<Arc<Self>, ConfigChangeError> {
        let (engine, refused) = Self::build(parts);
        engine.reload().await?;
        maintenance::start(&engine);
        let writing = Arc::clone(&engine);
        engine.shared.tasks.spawn(async move { writing.write_refusals(refused).await });
        engine.resume_replays().await?;
        Ok(engine)
    }

    /// An engine that does nothing by itself, over a store that is only looked at.
    pub fn without_tasks(parts: EngineParts) -> Arc<Self> {
        Self::build(parts).0
    }

    /// An engine, and the refused requests that somebody has to write down.
    fn build(parts: EngineParts) -> (Arc<Self>, mpsc::Receiver<RefusedRequest>) {
        let telemetry = Arc::new(Telemetry::default());
        let stop = CancellationToken::new();
        let trust = TrustStore::from_system();
        let deliveries: Arc<dyn DeliveryStore> = parts.store.clone();
        let feed = Feed::new(Arc::clone(&parts.clock), &*parts.chance);
        let http = HttpSenderConfig {
            policy: Arc::new(parts.addresses),
            resolver: parts.resolver,
            tls: trust.default_config(),
            proxy: None,
            pool_idle_max: 1024,
        };
        let media = MediaFiles::new(parts.store.clone(), parts.bucket, &http);
        let shared = Arc::new(LaneContext {
            store: deliveries,
            media: Arc::new(media),
            feed,
            clock: parts.clock,
            chance: parts.chance,
            telemetry: Arc::clone(&telemetry),
            inbox: Arc::default(),
            http,
            trust: trust.clone(),
            programs: Arc::new(parts.programs),
            budget: Arc::new(MemoryBudget::new(parts.lane_bytes_max)),
            stop,
            abort: CancellationToken::new(),
            tasks: TaskTracker::new(),
            waiters: Arc::default(),
            transforms: ArcSwap::default(),
            secrets: ArcSwap::default(),
        });
        let (refusals, refused) = RefusedSampler::new();
        let fetcher = HttpCertificateFetcher::new(&shared.http);
        let engine = Arc::new(Self {
            store: parts.store,
            shared,
            registry: ArcSwap::default(),
            telemetry,
            env: parts.env,
            public_url: parts.public_url,
            quarantine_bytes_max: parts.quarantine_bytes_max,
            event_retention: parts.event_retention,
            stuck_after: parts.stuck_after,
            stuck: ArcSwapOption::empty(),
            refusals,
            certificates: CertificateCache::new(Arc::new(fetcher), trust),
            changing: Arc::default(),
            replays: ReplayTasks::default(),
            changed: Notify::new(),
        });
        (engine, refused)
    }

    async fn reload(&self) -> Result<(), ConfigChangeError> {
        let configuration = self.store.configuration().await?;
        let kept = self.store.lanes().await?;
        let around = (&*self.env, self.public_url.is_some());
        let next = self.registry.load().next(&configuration, &self.shared, around, &kept);
        self.registry.store(Arc::new(next));
        // What was committed for a lane that was not there yet is found now.
        self.registry.load().lanes.values().for_each(|lane| lane.wake_lane());
        self.changed.notify_waiters();
        Ok(())
    }

    /// Changes the configuration: `plan` sees what there is and says what to change. Nothing is
    /// stored unless the whole makes sense afterwards.
    pub async fn change<T, E: From<ConfigChangeError>>(
        self: &Arc<Self>,
        plan: impl FnOnce(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        let alone = Arc::clone(&self.changing).lock_owned().await;
        let mut configuration =
            self.store.configuration().await.map_err(ConfigChangeError::from)?;
        let (changes, answer) = plan(&configuration)?;
        let changes = self.with_outbox(&configuration, changes).map_err(ConfigChangeError::from)?;
        // Later than every change before it: two versions of a thing never have the same time.
        let now = self.shared.clock.now().max(last_change(&configuration) + TICK);
        configuration.apply(&changes, now);
        registry::check_configuration(&configuration, &changes, &self.shared.ground(), &*self.env)
            .map_err(ConfigChangeError::from)?;
        let engine = Arc::clone(self);
        // What is stored must also come into force, even if whoever asked for it hangs up.
        let carry_out = async move {
            let _alone = alone;
            let names = names_of_destinations(&configuration, &changes);
            engine.store.change(changes, now).await?;
            engine.reload().await?;
            let gone = |(id, name): &(_, Option<_>)| name.is_none().then_some(*id);
            engine.tell_of_deleted(&names.iter().filter_map(gone).collect::<Vec<_>>()).await;
            engine.tell_destinations(names, now);
            Ok::<_, ConfigChangeError>(())
        };
        RunToCompletion::new(carry_out, &self.shared.tasks).await?;
        Ok(answer)
    }

    /// Says what [`Self::change`] would say, and changes nothing.
    pub async fn preview<T, E: From<ConfigChangeError>>(
        &self,
        plan: impl FnOnce(&Configuration) -> Result<(Vec<ConfigChange>, T), E>,
    ) -> Result<T, E> {
        let mut configuration =
            self.store.configuration().await.map_err(ConfigChangeError::from)?;
        let (changes, answer) = plan(&configuration)?;
        let changes = self.with_outbox(&configuration, changes).map_err(ConfigChangeError::from)?;
        configuration.apply(&changes, self.shared.clock.now());
        registry::check_configuration(&configuration, &changes, &self.shared.ground(), &*self.env)
            .map_err(ConfigChangeError::from)?;
        Ok(answer)
    }

    /// Tells what a delivery is now, if anybody listens. For changes that no lane made.
    pub async fn publish_delivery_change(&self, id: DeliveryId) {
        let at = self.shared.clock.now();
        let found = match self.shared.feed.is_heard(at) {
            true => self.store.delivery(id).await,
            false => Ok(None),
        };
        // What cannot be read is a gap, and listeners learn of those.
        let Ok(Some(found)) = found else { return self.shared.feed.pass_over() };
        let row = found.delivery;
        let lane = self.registry.load().lanes.get(&row.destination).cloned();
        self.shared.feed.publish(at, || {
            LiveUpdate::DeliveryChanged(DeliveryChanged {
                id,
                event: row.event,
                destination: lane.map(|lane| lane.name()),
                status: row.status,
                reason: row.reason,
                attempts: row.attempts,
                due_at: row.due_at,
                at,
            })
        });
    }

    fn tell_destinations(&self, changed: Vec<(DestinationId, Option<String>)>, at: Timestamp) {
        for (id, name) in changed {
            let change =
                if name.is_some() { DestinationChange::Put } else { DestinationChange::Deleted };
            let news = DestinationChanged { id, name, change, at };
            self.shared.feed.publish(at, || LiveUpdate::DestinationChanged(news));
        }
    }

    /// There is something in the store for that destination.
    pub fn wake_lane(&self, destination: DestinationId) {
        if let Some(lane) = self.registry.load().lanes.get(&destination) {
            lane.wake_lane();
        }
    }

    /// Something in the store is due for that destination at this time. Unlike [`Self::wake_lane`] this
    /// does not make what comes in meanwhile wait behind it.
    fn expect_due(&self, destination: DestinationId, at: Timestamp) {
        if let Some(lane) = self.registry.load().lanes.get(&destination) {
            lane.expect_due(at);
        }
    }

    /// The store, for lists and lookups.
    pub fn store(&self) -> &dyn AdminStore {
        &*self.store
    }

    /// The store of what is kept aside, for lists and lookups.
    pub fn quarantine_store(&self) -> &dyn QuarantineStore {
        &*self.store
    }

    /// The store of replay jobs, for lists and lookups.
    pub fn replay_store(&self) -> &dyn ReplayStore {
        &*self.store
    }

    /// How long a source's things are kept.
    pub fn retention_policy(&self, source: &SourceSpec) -> RetentionPolicy {
        source.retention.keep(self.event_retention)
    }

    /// The store, for answers that are kept with a key.
    pub fn idempotency_store(&self) -> &dyn IdempotencyStore {
        &*self.store
    }

    /// What happens, for whoever listens.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.shared.feed
    }

    /// Does `work` to its end, even when whoever waits for it goes away; a stop waits for it.
    pub fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        RunToCompletion::new(work, &self.shared.tasks)
    }

    /// The files of messages.
    pub fn media(&self) -> &Arc<MediaFiles> {
        &self.shared.media
    }

    /// How long events are kept, unless their source says otherwise.
    pub fn event_retention(&self) -> Duration {
        self.event_retention
    }

    /// Where senders reach us, if the settings say so.
    pub fn public_url(&self) -> Option<&PublicUrl> {
        self.public_url.as_ref()
    }

    /// The time.
    pub fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    /// The dice.
    pub fn chance(&self) -> &dyn Rng {
        &*self.shared.chance
    }

    /// The metrics.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The destination inside the gateway.
    pub fn inbox(&self) -> &Inbox {
        &self.shared.inbox
    }

    /// A destination whose lane does not take what is due, if there is one.
    pub fn stuck_destination(&self) -> Option<Arc<String>> {
        self.stuck.load_full()
    }

    /// Until when each destination asked us to wait.
    pub fn cooling_until(&self, destination: DestinationId) -> Option<Timestamp> {
        self.registry.load().lanes.get(&destination)?.cooling_until()
    }

    /// Stops: no new attempts; those that run get `grace`; the rest goes back to the store.
    pub async fn stop(&self, grace: Duration) {
        self.shared.stop.cancel();
        let registry = self.registry.load_full();
        let held: Vec<HeldClaim> =
            registry.lanes.values().flat_map(|lane| lane.surrender()).collect();
        if !held.is_empty()
            && let Err(error) = self.store.release(held, self.shared.clock.now()).await
        {
            // The next start finds them by their leases.
            tracing::warn!(%error, "could not give waiting deliveries back");
        }
        self.shared.tasks.close();
        if tokio::time::timeout(grace, self.shared.tasks.wait()).await.is_err() {
            self.shared.abort.cancel();
            // What is left only has to write down that it was interrupted.
            let _late =
                tokio::time::timeout(Duration::from_secs(5), self.shared.tasks.wait()).await;
        }
    }
}

/// The step from one change of the configuration to the next, at least.
const TICK: Duration = Duration::from_millis(1);

fn last_change(configuration: &Configuration) -> Timestamp {
    let sources = configuration.sources.iter().map(|source| source.updated_at);
    let destinations = configuration.destinations.iter().map(|destination| destination.updated_at);
    let routes = configuration.routes.iter().map(|route| route.updated_at);
    sources.chain(destinations).chain(routes).max().unwrap_or_default()
}

/// The destinations that `changes` touch, with the names they have afterwards.
fn names_of_destinations(
    configuration: &Configuration,
    changes: &[ConfigChange],
) -> Vec<(DestinationId, Option<String>)> {
    let name = |id: &DestinationId| {
        let found = configuration.destinations.iter().find(|destination| destination.id == *id);
        found.map(|destination| destination.spec.name.to_string())
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
