//! The health of a destination: one word for what its attempts of the last minutes and its lane say.
//!
//! Everything comes from what the store counted ([`AttemptHistory`]) and from the saved state of the
//! lane, so that it is the same after a restart and on every node. API, metrics, dashboard and alerts
//! use the words of [`HealthStatus`] and nothing else.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    string_enum,
    time::{HumanDuration, Timestamp},
};

use crate::{
    lane::SavedLaneState,
    rollup::{BucketWidth, RollupCounts},
};

string_enum! {
    /// The health of a destination. What weighs most comes first.
    pub enum HealthStatus {
        /// Its settings are unusable, so it gets no deliveries.
        Misconfigured = "misconfigured",
        /// A person or the gateway paused it.
        Paused = "paused",
        /// Its circuit holds all deliveries, apart from probes.
        CircuitOpen = "circuit_open",
        /// At least `failing_ratio` of the attempts failed.
        Failing = "failing",
        /// At least `degraded_ratio` of the attempts failed, or a delivery became dead.
        Degraded = "degraded",
        /// No attempts.
        NoTraffic = "no_traffic",
        /// Attempts, and hardly a failure among them.
        Healthy = "healthy",
    }
}

/// `[health]` in the settings: what counts as failing and degraded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSpec {
    /// The time span whose attempts count, 10s to 1h.
    pub window: HumanDuration,
    /// A destination is failing if at least this share of its attempts failed.
    pub failing_ratio: f64,
    /// A destination is degraded if at least this share of its attempts failed.
    pub degraded_ratio: f64,
}

impl Default for HealthSpec {
    fn default() -> Self {
        Self { window: HumanDuration::from_secs(300), failing_ratio: 0.5, degraded_ratio: 0.05 }
    }
}

const WINDOW_MIN: Duration = Duration::from_secs(10);
const WINDOW_MAX: Duration = Duration::from_secs(3600);

/// Why the settings of health are refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("health: {0}")]
pub struct HealthSpecError(&'static str);

impl HealthSpec {
    pub fn build(&self) -> Result<HealthPolicy, HealthSpecError> {
        let Self { window, failing_ratio, degraded_ratio } = *self;
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&window.0) {
            return Err(HealthSpecError("window must be between 10s and 1h"));
        }
        let is_ratio = |ratio: f64| ratio > 0.0 && ratio <= 1.0;
        if !is_ratio(failing_ratio) || !is_ratio(degraded_ratio) {
            return Err(HealthSpecError(
                "failing_ratio and degraded_ratio must be greater than 0 and at most 1; \
                 0.05 is 5 %",
            ));
        }
        if degraded_ratio > failing_ratio {
            return Err(HealthSpecError("degraded_ratio must not be greater than failing_ratio"));
        }
        Ok(HealthPolicy { window: window.0, failing_ratio, degraded_ratio })
    }
}

/// What counts as failing and degraded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthPolicy {
    /// The time span whose attempts count.
    pub window: Duration,
    failing_ratio: f64,
    degraded_ratio: f64,
}

impl Default for HealthPolicy {
    fn default() -> Self {
        let HealthSpec { window, failing_ratio, degraded_ratio } = HealthSpec::default();
        Self { window: window.0, failing_ratio, degraded_ratio }
    }
}

impl HealthPolicy {
    /// The health of a destination with these attempts in the window. `lane` is `None` if its settings
    /// are unusable.
    pub fn assess(&self, lane: Option<&SavedLaneState>, window: AttemptCounts) -> HealthStatus {
        match lane {
            None => HealthStatus::Misconfigured,
            Some(lane) if lane.paused.is_some() => HealthStatus::Paused,
            Some(lane) if lane.circuit.is_holding() => HealthStatus::CircuitOpen,
            Some(_) => self.assess_attempts(window),
        }
    }

    fn assess_attempts(&self, window: AttemptCounts) -> HealthStatus {
        match window.failure_ratio() {
            Some(ratio) if ratio >= self.failing_ratio => HealthStatus::Failing,
            Some(ratio) if ratio >= self.degraded_ratio => HealthStatus::Degraded,
            // Also deliveries that died without an attempt.
            _ if window.dead > 0 => HealthStatus::Degraded,
            Some(_) => HealthStatus::Healthy,
            None => HealthStatus::NoTraffic,
        }
    }
}

/// Attempts of a destination in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptCounts {
    pub attempts: u64,
    pub failed: u64,
    /// Deliveries that became dead.
    pub dead: u64,
}

impl AttemptCounts {
    pub fn succeeded(&self) -> u64 {
        self.attempts.saturating_sub(self.failed)
    }

    /// The share of failed attempts; `None` without attempts.
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts needs no more digits")]
    pub fn failure_ratio(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.failed as f64 / self.attempts as f64)
    }

    fn add(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.failed += other.failed;
        self.dead += other.dead;
    }
}

impl From<&RollupCounts> for AttemptCounts {
    fn from(counts: &RollupCounts) -> Self {
        Self {
            attempts: counts.attempts(),
            failed: counts.failed_attempts(),
            dead: counts.dead_deliveries(),
        }
    }
}

/// The recent attempts of a destination, by bucket.
#[derive(Clone, Debug)]
pub struct AttemptHistory {
    width: BucketWidth,
    /// Start of the oldest bucket that would be known.
    known_since: Timestamp,
    buckets: BTreeMap<Timestamp, AttemptCounts>,
}

impl AttemptHistory {
    /// A history in which everything since `known_since` is known, as soon as it is [set](Self::set).
    pub fn new(width: BucketWidth, known_since: Timestamp) -> Self {
        Self { width, known_since: width.start(known_since), buckets: BTreeMap::new() }
    }

    /// Sets the counts of a bucket, by its start.
    pub fn set(&mut self, start: Timestamp, counts: AttemptCounts) {
        self.buckets.insert(start, counts);
    }

    /// Forgets all buckets that start before this time.
    pub fn forget_before(&mut self, at: Timestamp) {
        let at = self.width.start(at);
        if at > self.known_since {
            self.buckets = self.buckets.split_off(&at);
            self.known_since = at;
        }
    }

    fn step(&self) -> Duration {
        Duration::from_secs(self.width.secs())
    }

    /// The sum of the buckets of a window whose last bucket contains `at`.
    pub fn window(&self, at: Timestamp, length: Duration) -> AttemptCounts {
        let last = self.width.start(at);
        let mut sum = AttemptCounts::default();
        let buckets = self.buckets.range(last + self.step() - length..=last);
        buckets.for_each(|(_, counts)| sum.add(*counts));
        sum
    }

    /// Since when the attempts alone give the status that they give at `now`; `None` if that is longer
    /// than the history.
    pub fn status_since(&self, now: Timestamp, policy: &HealthPolicy) -> Option<Timestamp> {
        let status_at = |at| policy.assess_attempts(self.window(at, policy.window));
        let status = status_at(now);
        let mut since = self.width.start(now);
        while status_at(since - self.step()) == status {
            since = since - self.step();
            // Before that, a part of the window is unknown.
            if since - policy.window < self.known_since {
                return None;
            }
        }
        Some(since)
    }

    pub fn has_success(&self) -> bool {
        self.buckets.values().any(|counts| counts.succeeded() > 0)
    }

    /// Start of the first bucket with a failure.
    pub fn first_failure(&self) -> Option<Timestamp> {
        self.buckets.iter().find(|(_, counts)| counts.failed > 0).map(|(start, _)| *start)
    }

    /// Start of the bucket in which failures began that no success has ended; `None` if the history has
    /// no success.
    pub fn down_since(&self) -> Option<Timestamp> {
        let success = self.buckets.iter().rev().find(|(_, counts)| counts.succeeded() > 0);
        let (last_success, counts) = success?;
        if counts.failed > 0 {
            return Some(*last_success);
        }
        let after = self.buckets.range(*last_success + self.step()..);
        after.into_iter().find(|(_, counts)| counts.failed > 0).map(|(start, _)| *start)
    }

    /// Successes per second in the last full minute, at `now`.
    #[expect(clippy::cast_precision_loss, reason = "an estimate needs no more digits")]
    pub fn success_rate(&self, now: Timestamp) -> f64 {
        let end = self.width.start(now) - Duration::from_millis(1);
        let span = Duration::from_secs(60).max(self.step());
        self.window(end, span).succeeded() as f64 / span.as_secs_f64()
    }
}

/// The time until `due` deliveries are sent at this many successes per second; `None` if none succeed.
#[expect(clippy::cast_precision_loss, reason = "an estimate needs no more digits")]
pub fn estimate_drain(due: u64, successes_per_second: f64) -> Option<Duration> {
    Duration::try_from_secs_f64((due as f64 / successes_per_second).ceil()).ok()
}

#[cfg(test)]
mod tests {
    use surehook_retry::circuit::CircuitState;

    use super::*;
    use crate::lane::LanePause;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_007_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn counts(attempts: u64, failed: u64, dead: u64) -> AttemptCounts {
        AttemptCounts { attempts, failed, dead }
    }

    fn history(buckets: &[(u32, AttemptCounts)]) -> AttemptHistory {
        let mut history = AttemptHistory::new(BucketWidth::TenSeconds, NOW - SECOND * 3600);
        for (age, counts) in buckets {
            history.set(BucketWidth::TenSeconds.start(NOW - SECOND * *age), *counts);
        }
        history
    }

    #[test]
    fn every_state_of_a_destination_has_one_status() {
        let policy = HealthPolicy::default();
        let closed = SavedLaneState::default();
        let pause = LanePause { at: NOW, reason: None, automatic: false };
        let paused = SavedLaneState { paused: Some(pause), ..SavedLaneState::default() };
        let circuit = |circuit| SavedLaneState { circuit, ..SavedLaneState::default() };
        let open = circuit(CircuitState::Open { until: NOW, openings: 1 });
        let half_open = circuit(CircuitState::HalfOpen { openings: 1 });
        let ramp = circuit(CircuitState::Ramp { openings: 1 });
        let paused_and_open = SavedLaneState { circuit: open.circuit, ..paused.clone() };
        let cases = [
            (None, counts(10, 0, 0), HealthStatus::Misconfigured),
            (Some(&paused), counts(10, 10, 0), HealthStatus::Paused),
            (Some(&paused_and_open), counts(0, 0, 0), HealthStatus::Paused),
            (Some(&open), counts(10, 0, 0), HealthStatus::CircuitOpen),
            (Some(&half_open), counts(10, 0, 0), HealthStatus::CircuitOpen),
            (Some(&ramp), counts(10, 6, 0), HealthStatus::Failing),
            (Some(&ramp), counts(100, 4, 0), HealthStatus::Healthy),
            (Some(&closed), counts(2, 1, 0), HealthStatus::Failing),
            (Some(&closed), counts(1000, 500, 9), HealthStatus::Failing),
            // 59.7 % of the attempts succeeded, and many deliveries died.
            (Some(&closed), counts(1000, 403, 348), HealthStatus::Degraded),
            (Some(&closed), counts(1000, 499, 0), HealthStatus::Degraded),
            (Some(&closed), counts(1000, 50, 0), HealthStatus::Degraded),
            (Some(&closed), counts(1000, 49, 0), HealthStatus::Healthy),
            (Some(&closed), counts(1000, 1, 1), HealthStatus::Degraded),
            // It died without an attempt: its filter failed, or it expired.
            (Some(&closed), counts(0, 0, 1), HealthStatus::Degraded),
            (Some(&closed), counts(1, 0, 0), HealthStatus::Healthy),
            (Some(&closed), counts(0, 0, 0), HealthStatus::NoTraffic),
        ];
        for (lane, window, expected) in cases {
            assert_eq!(policy.assess(lane, window), expected, "case: {lane:?} {window:?}");
        }
    }

    #[test]
    fn thresholds_are_settings() {
        let spec = HealthSpec { failing_ratio: 0.9, degraded_ratio: 0.2, ..HealthSpec::default() };
        let policy = spec.build().unwrap();
        let closed = SavedLaneState::default();
        for (failed, expected) in [
            (90, HealthStatus::Failing),
            (89, HealthStatus::Degraded),
            (20, HealthStatus::Degraded),
            (19, HealthStatus::Healthy),
        ] {
            assert_eq!(policy.assess(Some(&closed), counts(100, failed, 0)), expected, "{failed}");
        }
    }

    #[test]
    fn invalid_thresholds_are_refused() {
        let spec = HealthSpec::default();
        for invalid in [
            HealthSpec { window: HumanDuration::from_secs(9), ..spec },
            HealthSpec { window: HumanDuration::from_secs(3601), ..spec },
            HealthSpec { failing_ratio: 1.1, ..spec },
            HealthSpec { degraded_ratio: 0.0, ..spec },
            HealthSpec { degraded_ratio: f64::NAN, ..spec },
            HealthSpec { degraded_ratio: 0.6, ..spec },
        ] {
            assert!(invalid.build().is_err(), "case: {invalid:?}");
        }
        assert_eq!(spec.build(), Ok(HealthPolicy::default()));
    }

    #[test]
    fn window_ends_with_the_current_bucket() {
        let each = counts(1, 1, 0);
        let history = history(&[(0, each), (100, each), (290, each), (300, each), (400, each)]);
        assert_eq!(history.window(NOW, SECOND * 300).attempts, 3);
        assert_eq!(history.window(NOW + SECOND * 20, SECOND * 300).attempts, 2);
        assert_eq!(history.window(NOW + SECOND * 600, SECOND * 300).attempts, 0);
    }

    #[test]
    fn status_began_when_the_window_first_gave_it() {
        let policy = HealthPolicy::default();
        let start = |age| Some(BucketWidth::TenSeconds.start(NOW - SECOND * age));
        let (good, bad) = (counts(10, 0, 0), counts(10, 10, 0));
        // The second bad bucket makes half of all attempts failures.
        let failing = history(&[(60, good), (50, good), (40, bad), (30, bad), (0, bad)]);
        assert_eq!(failing.status_since(NOW, &policy), start(30));
        let silent = history(&[(400, good)]);
        assert_eq!(silent.status_since(NOW, &policy), start(100));
        let busy: Vec<_> = (0..360).map(|n| (n * 10, good)).collect();
        assert_eq!(history(&busy).status_since(NOW, &policy), None);
        assert_eq!(history(&[]).status_since(NOW, &policy), None);
    }

    #[test]
    fn destination_is_down_since_its_first_failure_after_the_last_success() {
        let start = |age| Some(BucketWidth::TenSeconds.start(NOW - SECOND * age));
        let (good, bad, both) = (counts(1, 0, 0), counts(1, 1, 0), counts(2, 1, 0));
        for (buckets, expected) in [
            (vec![(100, bad), (90, good), (60, bad), (20, bad)], start(60)),
            (vec![(90, both), (20, bad)], start(90)),
            (vec![(90, good)], None),
            (vec![(90, bad)], None),
        ] {
            assert_eq!(history(&buckets).down_since(), expected, "case: {buckets:?}");
        }
        let never = history(&[(90, bad), (20, bad)]);
        assert_eq!((never.has_success(), never.first_failure()), (false, start(90)));
    }

    #[test]
    fn forgotten_buckets_shorten_the_known_time() {
        let mut history = history(&[(3000, counts(1, 0, 0)), (0, counts(1, 0, 0))]);
        history.forget_before(NOW - SECOND * 600);
        assert_eq!(history.window(NOW, SECOND * 3600).attempts, 1);
        assert_eq!(
            history.status_since(NOW, &HealthPolicy::default()),
            Some(BucketWidth::TenSeconds.start(NOW))
        );
    }

    #[test]
    fn drain_is_estimated_from_the_last_full_minute() {
        // The current bucket is not full yet.
        let history =
            history(&[(0, counts(500, 0, 0)), (10, counts(70, 10, 0)), (65, counts(60, 0, 0))]);
        let rate = history.success_rate(NOW);
        assert!((rate - 2.0).abs() < 1e-9, "{rate}");
        assert_eq!(estimate_drain(101, rate), Some(SECOND * 51));
        assert_eq!(estimate_drain(0, rate), Some(Duration::ZERO));
        assert_eq!(estimate_drain(5, 0.0), None);
        assert_eq!(estimate_drain(0, 0.0), None);
    }
}
