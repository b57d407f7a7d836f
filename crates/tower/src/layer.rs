//! The layer: settings, and wrapping a service.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderValue, Method, header, request::Parts};
use surehook_dedup::{
    DedupLock,
    claim::{LEASE_MAX, LEASE_MIN, RESULT_BYTES_MAX, TTL_MAX},
};
use tower_layer::Layer;

use crate::service::IdempotencyService;

/// Default of [`IdempotencyLayer::ttl`].
const TTL: Duration = Duration::from_secs(24 * 3600);
/// Default of [`IdempotencyLayer::lease`].
const LEASE: Duration = Duration::from_secs(30);
/// Default of [`IdempotencyLayer::wait`].
const WAIT: Duration = Duration::from_secs(10);
/// No client waits longer.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Default of [`IdempotencyLayer::max_request_bytes`].
const REQUEST_BYTES_MAX: usize = 2 << 20;

type ScopeFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Makes a service idempotent by `Idempotency-Key`. See the [crate].
///
/// Everything has a default; only the store must be chosen.
#[derive(Clone)]
#[must_use]
pub struct IdempotencyLayer {
    config: IdempotencyConfig,
}

/// The settings of a layer, shared by its services.
#[derive(Clone)]
pub(crate) struct IdempotencyConfig {
    pub(crate) lock: Arc<dyn DedupLock>,
    pub(crate) namespace: String,
    pub(crate) methods: Vec<Method>,
    pub(crate) scope: Arc<ScopeFn>,
    pub(crate) is_key_required: bool,
    pub(crate) stores_client_errors: bool,
    pub(crate) ttl: Duration,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_response_bytes: usize,
}

impl IdempotencyLayer {
    /// A layer that remembers keys and responses in `lock`. All instances of a program must share it, so
    /// only a single process can use memory.
    pub fn new(lock: impl DedupLock + 'static) -> Self {
        let config = IdempotencyConfig {
            lock: Arc::new(lock),
            namespace: "http".to_owned(),
            methods: vec![Method::POST, Method::PATCH],
            scope: Arc::new(authorization_scope),
            is_key_required: false,
            stores_client_errors: false,
            ttl: TTL,
            lease: LEASE,
            wait: WAIT,
            max_request_bytes: REQUEST_BYTES_MAX,
            max_response_bytes: RESULT_BYTES_MAX,
        };
        Self { config }
    }

    /// Answers 400 to requests without a key, instead of passing them through.
    pub fn require_key(mut self) -> Self {
        self.config.is_key_required = true;
        self
    }

    /// The methods to which the layer applies. Default: POST and PATCH; GET, HEAD, PUT and DELETE are
    /// idempotent by definition.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        self
    }

    /// To whom a key belongs, such as the signed-in user: the same key in two scopes is two keys. `None`
    /// passes the request through, for instance because it is not authenticated and will be refused.
    ///
    /// Default: the `Authorization` header.
    ///
    /// ```
    /// # use surehook_tower::IdempotencyLayer;
    /// #[derive(Clone)]
    /// struct UserId(u64);
    ///
    /// # let lock = surehook_dedup::MemoryDedupLock::default();
    /// let layer = IdempotencyLayer::new(lock)
    ///     .scope(|request| Some(request.extensions.get::<UserId>()?.0.to_string()));
    /// ```
    pub fn scope(
        mut self,
        scope: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.config.scope = Arc::new(scope);
        self
    }

    /// Keeps the keys of several layers over one store apart. Default: `http`.
    ///
    /// # Panics
    ///
    /// Unless it has 1 to 100 ASCII letters, digits and `. _ : -`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        let key = surehook_dedup::ClaimKey::new(&namespace, "key");
        assert!(key.is_ok(), "invalid namespace `{namespace}` of an idempotency layer");
        self.config.namespace = namespace;
        self
    }

    /// Stores 4xx responses too: a duplicate of a refused request gets the same answer. Default: such a
    /// request frees its key.
    pub fn store_client_errors(mut self) -> Self {
        self.config.stores_client_errors = true;
        self
    }

    /// How long a response is stored. Choose a longer time than clients retry for. Default: 24 hours.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl.clamp(LEASE_MIN, TTL_MAX);
        self
    }

    /// How long a request holds its key without being extended, so how soon a duplicate can run after a
    /// crash of the process. Default: 30 seconds. The lease is extended while the handler runs, so it may
    /// be shorter than the slowest handler, but not shorter than a pause of the whole process.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        self
    }

    /// How long a duplicate waits for a request that still runs, before it gets 409. Default: 10 seconds;
    /// zero answers at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.config.wait = wait.min(WAIT_MAX);
        self
    }

    /// The largest body of a request with a key. Default: 2 MiB.
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.config.max_request_bytes = bytes;
        self
    }

    /// The largest response that is stored, with its headers: at most 64 KiB, which is the default. A body is
    /// held back until it is complete or exceeds this; a larger one is sent on and not stored, and
    /// duplicates get 409.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.config.max_response_bytes = bytes.min(RESULT_BYTES_MAX);
        self
    }
}

fn authorization_scope(request: &Parts) -> Option<String> {
    let values = request.headers.get_all(header::AUTHORIZATION).iter();
    let values: Vec<_> = values.map(HeaderValue::as_bytes).collect();
    Some(String::from_utf8_lossy(&values.join(&b'\n')).into_owned())
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        let mut config = self.config.clone();
        // The lock refuses a time to live below the lease.
        config.ttl = config.ttl.max(config.lease);
        IdempotencyService::new(inner, Arc::new(config))
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl fmt::Debug for IdempotencyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("namespace", &self.namespace)
            .field("methods", &self.methods)
            .field("ttl", &self.ttl)
            .field("lease", &self.lease)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
