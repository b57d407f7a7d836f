//! Random histories against a model that is written as plainly as possible.
//!
//! All times are multiples of [`UNIT`], and all leases and ttls end in the middle of one. So a backend
//! whose clock cannot be stopped decides as the model does, as long as a history takes less than that.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestCaseResult, TestRng, TestRunner},
};
use tokio::runtime::Runtime;

use super::{
    DedupHarness,
    fixture::{DRIFT, new_namespace},
};
use crate::{
    Claim, ClaimKey, ClaimOperation, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
    DedupLock, Fingerprint,
};

const UNIT: Duration = Duration::from_secs(600);
const KEYS: usize = 3;
/// Number of random histories, unless `PROPTEST_CASES` is set.
const HISTORIES: u32 = 48;
/// Plays only the history of this seed.
const SEED_VARIABLE: &str = "SUREHOOK_TEST_SEED";

#[derive(Clone, Debug)]
enum HistoryStep {
    Claim {
        key: usize,
        fingerprint: Option<u8>,
        lease: u32,
        ttl: u32,
    },
    /// `age` 0 is the token of the last grant, 1 the one before, and so on.
    Extend {
        key: usize,
        age: usize,
        lease: u32,
    },
    Complete {
        key: usize,
        age: usize,
        result: u8,
        ttl: u32,
    },
    Release {
        key: usize,
        age: usize,
    },
    Advance {
        units: u32,
    },
}

fn any_step() -> impl Strategy<Value = HistoryStep> {
    let key = 0..KEYS;
    // Most steps are by the current holder.
    let age = prop_oneof![4 => Just(0_usize), 1 => 1_usize..3];
    prop_oneof![
        5 => (key.clone(), proptest::option::of(1_u8..3), 0_u32..4, 0_u32..6).prop_map(
            |(key, fingerprint, lease, more)| HistoryStep::Claim {
                key,
                fingerprint,
                lease,
                ttl: lease + more,
            }
        ),
        2 => (key.clone(), age.clone(), 0_u32..4)
            .prop_map(|(key, age, lease)| HistoryStep::Extend { key, age, lease }),
        2 => (key.clone(), age.clone(), any::<u8>(), 0_u32..6)
            .prop_map(|(key, age, result, ttl)| HistoryStep::Complete { key, age, result, ttl }),
        2 => (key, age).prop_map(|(key, age)| HistoryStep::Release { key, age }),
        3 => (1_u32..4).prop_map(|units| HistoryStep::Advance { units }),
    ]
}

/// Ends in the middle of a unit.
fn span(units: u32) -> Duration {
    UNIT * units + UNIT / 2
}

#[derive(Clone, Debug)]
enum ModelState {
    Free,
    Held { lease_until: Duration },
    Completed { result: u8 },
}

#[derive(Debug)]
struct ModelKey {
    state: ModelState,
    expires_at: Duration,
    fingerprint: Option<u8>,
    operation: Option<ClaimOperation>,
    tokens: Vec<ClaimToken>,
    fence: u64,
}

impl ModelKey {
    fn new() -> Self {
        Self {
            state: ModelState::Free,
            expires_at: Duration::ZERO,
            fingerprint: None,
            operation: None,
            tokens: Vec::new(),
            fence: 0,
        }
    }

    fn token(&self, age: usize) -> ClaimToken {
        let unknown = ClaimToken::from_bytes([0xff; 16]);
        self.tokens.iter().rev().nth(age).copied().unwrap_or(unknown)
    }

    fn forget_if_expired(&mut self, now: Duration) {
        if now >= self.expires_at {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.state = ModelState::Free;
        self.fingerprint = None;
        self.operation = None;
    }

    fn is_held_by(&self, age: usize) -> bool {
        matches!(self.state, ModelState::Held { .. }) && age == 0
    }
}

struct HistoryRun<'a> {
    lock: Arc<dyn DedupLock>,
    harness: &'a dyn DedupHarness,
    namespace: String,
    now: Duration,
    keys: HashMap<usize, ModelKey>,
}

fn check(holds: bool, message: impl FnOnce() -> String) -> TestCaseResult {
    if holds { Ok(()) } else { Err(TestCaseError::fail(message())) }
}

fn is_about(actual: Duration, expected: Duration) -> bool {
    actual <= expected + Duration::from_secs(1) && actual + DRIFT >= expected
}

impl HistoryRun<'_> {
    fn name(&self, key: usize) -> ClaimKey {
        ClaimKey::new(&self.namespace, &format!("key-{key}")).unwrap()
    }

    fn model(&mut self, key: usize) -> &mut ModelKey {
        let now = self.now;
        let model = self.keys.entry(key).or_insert_with(ModelKey::new);
        model.forget_if_expired(now);
        model
    }

    async fn play(&mut self, step: &HistoryStep) -> TestCaseResult {
        match *step {
            HistoryStep::Claim { key, fingerprint, lease, ttl } => {
                let request = ClaimRequest {
                    key: self.name(key),
                    fingerprint: fingerprint.map(|byte| Fingerprint::from_bytes([byte; 32])),
                    lease: span(lease),
                    ttl: span(ttl),
                };
                let claim = self.lock.claim(request).await.map_err(fail)?;
                self.check_claim(key, fingerprint, span(lease), span(ttl), claim)
            }
            HistoryStep::Extend { key, age, lease } => {
                let (name, token) = (self.name(key), self.model(key).token(age));
                let update = self.lock.extend(&name, token, span(lease)).await.map_err(fail)?;
                let lease_until = self.now + span(lease);
                let model = self.model(key);
                let is_held = model.is_held_by(age);
                if is_held {
                    model.state = ModelState::Held { lease_until };
                    model.expires_at = model.expires_at.max(lease_until);
                }
                check_update(update, is_held)
            }
            HistoryStep::Complete { key, age, result, ttl } => {
                let request = CompletionRequest {
                    key: self.name(key),
                    token: self.model(key).token(age),
                    result: Bytes::copy_from_slice(&[result; 3]),
                    ttl: span(ttl),
                };
                let update = self.lock.complete(request).await.map_err(fail)?;
                let expires_at = self.now + span(ttl);
                let model = self.model(key);
                let was_completed = matches!(model.state, ModelState::Completed { .. }) && age == 0;
                let is_held = model.is_held_by(age);
                if is_held {
                    model.state = ModelState::Completed { result };
                    model.expires_at = expires_at;
                }
                check_update(update, is_held || was_completed)
            }
            HistoryStep::Release { key, age } => {
                let (name, token) = (self.name(key), self.model(key).token(age));
                let update = self.lock.release(&name, token).await.map_err(fail)?;
                let model = self.model(key);
                let is_held = model.is_held_by(age);
                if is_held {
                    model.forget();
                }
                check_update(update, is_held)
            }
            HistoryStep::Advance { units } => {
                self.harness.advance(UNIT * units).await;
                self.now += UNIT * units;
                Ok(())
            }
        }
    }

    fn check_claim(
        &mut self,
        key: usize,
        fingerprint: Option<u8>,
        lease: Duration,
        ttl: Duration,
        claim: Claim,
    ) -> TestCaseResult {
        let now = self.now;
        let model = self.model(key);
        let differs =
            model.fingerprint.zip(fingerprint).is_some_and(|(stored, asked)| stored != asked);
        let text = format!("{claim:?} where the model has {model:?} at {now:?}");
        match (&model.state, claim) {
            (ModelState::Held { .. } | ModelState::Completed { .. }, answer) if differs => {
                check(answer == Claim::OtherFingerprint, || text)
            }
            (ModelState::Completed { result }, Claim::Completed(completed)) => check(
                completed.result == [*result; 3][..]
                    && completed.fence == model.fence
                    && Some(completed.operation) == model.operation
                    && is_about(completed.expires_in, model.expires_at - now),
                || text,
            ),
            (ModelState::Held { lease_until }, Claim::InProgress { retry_after })
                if now < *lease_until =>
            {
                check(is_about(retry_after, *lease_until - now), || text)
            }
            (ModelState::Held { lease_until }, Claim::Claimed(grant)) if now >= *lease_until => {
                check(grant.is_resumed && Some(grant.operation) == model.operation, || {
                    text.clone()
                })?;
                check(grant.fence > model.fence && !model.tokens.contains(&grant.token), || text)?;
                model.fingerprint = model.fingerprint.or(fingerprint);
                model.grant(grant.token, grant.fence, now + lease, now + ttl);
                Ok(())
            }
            (ModelState::Free, Claim::Claimed(grant)) => {
                check(!grant.is_resumed && grant.fence > model.fence, || text.clone())?;
                check(!model.tokens.contains(&grant.token), || text)?;
                model.fingerprint = fingerprint;
                model.operation = Some(grant.operation);
                model.grant(grant.token, grant.fence, now + lease, now + ttl);
                Ok(())
            }
            (
                ModelState::Free | ModelState::Held { .. } | ModelState::Completed { .. },
                Claim::Claimed(_)
                | Claim::InProgress { .. }
                | Claim::Completed(_)
                | Claim::OtherFingerprint,
            ) => Err(TestCaseError::fail(text)),
        }
    }
}

impl ModelKey {
    fn grant(
        &mut self,
        token: ClaimToken,
        fence: u64,
        lease_until: Duration,
        expires_at: Duration,
    ) {
        self.state = ModelState::Held { lease_until };
        self.tokens.push(token);
        self.fence = fence;
        self.expires_at = expires_at;
    }
}

fn check_update(update: ClaimUpdate, is_current: bool) -> TestCaseResult {
    check(update.is_applied() == is_current, || {
        format!("{update:?} where the model says that the token is current: {is_current}")
    })
}

fn fail(error: crate::DedupError) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

async fn play_history(harness: &dyn DedupHarness, steps: &[HistoryStep]) -> TestCaseResult {
    let mut run = HistoryRun {
        lock: harness.lock(),
        harness,
        namespace: new_namespace(),
        now: Duration::ZERO,
        keys: HashMap::new(),
    };
    for (index, step) in steps.iter().enumerate() {
        run.play(step)
            .await
            .map_err(|error| TestCaseError::fail(format!("step {index}, {step:?}: {error}")))?;
    }
    Ok(())
}

/// Plays random histories on one backend, each in a namespace of its own.
pub fn history_agrees_with_the_model(runtime: &Runtime, harness: &dyn DedupHarness) {
    let play_seed = |seed: u64| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config { cases: 1, failure_persistence: None, ..Config::default() };
        let strategy = proptest::collection::vec(any_step(), 1..60);
        let result = TestRunner::new_with_rng(config, rng)
            .run(&strategy, |steps| runtime.block_on(play_history(harness, &steps)));
        if let Err(failure) = result {
            panic!("{failure}\nto play this history again, set {SEED_VARIABLE}={seed}");
        }
    };
    if let Some(seed) = std::env::var_os(SEED_VARIABLE) {
        play_seed(seed.to_str().unwrap().parse().unwrap());
    } else {
        let has_case_count = std::env::var_os("PROPTEST_CASES").is_some();
        let histories = if has_case_count { Config::default().cases } else { HISTORIES };
        (0..histories).for_each(|_| play_seed(RandomState::new().hash_one(0_u8)));
    }
}
