//! Alerts: notifications of people when something needs attention.
//!
//! [`AlertRules::evaluate`] says which conditions hold, from readings that the engine takes every few
//! seconds. [`log::AlertLog`] keeps what fires and decides which messages are due; the store saves it as
//! a whole, so that it survives a kill and that one node speaks for all. [`message`] renders a message
//! for each channel. A channel is a destination with `alerts`.

pub mod log;
pub mod message;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::{DestinationId, NodeId, SourceId},
    string_enum,
    time::{HumanDuration, Timestamp},
};

use crate::health::{AttemptCounts, HealthStatus};

string_enum! {
    /// A rule that raises alerts.
    pub enum AlertRule {
        /// A destination is misconfigured, or the gateway paused it.
        DestinationUnusable = "destination_unusable",
        /// The circuit of a destination is open.
        CircuitOpen = "circuit_open",
        /// The health of a destination is `failing`.
        DestinationFailing = "destination_failing",
        /// A part of the attempts at a destination fails.
        FailureRatio = "failure_ratio",
        /// The oldest due delivery of a destination waits for long.
        OldestPending = "oldest_pending",
        /// Deliveries of a destination became dead.
        DeadLetters = "dead_letters",
        /// There are many dead letters.
        DeadLetterCount = "dead_letter_count",
        /// A source got no event for longer than its `silent_after`.
        SilentSource = "silent_source",
        /// Many requests to a source had no valid signature.
        SignatureFailures = "signature_failures",
        /// There is little free space on the disk of the store.
        DiskSpace = "disk_space",
        /// The daily limit of a messaging destination is almost used up.
        SendQuota = "send_quota",
        /// A node stopped without leaving.
        NodeLost = "node_lost",
    }
}

string_enum! {
    /// What an alert is about.
    pub enum AlertSubjectKind {
        Destination = "destination",
        Source = "source",
        Node = "node",
        Gateway = "gateway",
    }
}

string_enum! {
    /// Whether an alert fires.
    pub enum AlertStatus {
        Firing = "firing",
        Resolved = "resolved",
    }
}

impl AlertRule {
    /// Whether the rule is about a destination that does not take deliveries. All of them have one
    /// cause, so one message covers them.
    pub const fn is_about_delivery(self) -> bool {
        match self {
            Self::DestinationUnusable
            | Self::CircuitOpen
            | Self::DestinationFailing
            | Self::FailureRatio
            | Self::OldestPending => true,
            Self::DeadLetters
            | Self::DeadLetterCount
            | Self::SilentSource
            | Self::SignatureFailures
            | Self::DiskSpace
            | Self::SendQuota
            | Self::NodeLost => false,
        }
    }

    /// Whether one message covers both if they concern the same subject.
    pub fn has_same_cause(self, other: Self) -> bool {
        self == other || (self.is_about_delivery() && other.is_about_delivery())
    }
}

/// `[alerts]` in the settings: when alerts fire. The rules are in force as soon as a destination has
/// `alerts`; before that, alerts are only shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlertRulesSpec {
    /// Rules that are not used.
    pub off: Vec<AlertRule>,
    /// `dead_letters`: this many deliveries of a destination became dead within `health.window`.
    pub dead_letters: u64,
    /// `dead_letter_count`: there are this many dead letters.
    pub dead_letter_count: u64,
    /// `failure_ratio`: at least this share of the attempts failed within `health.window`.
    pub failure_ratio: f64,
    /// Fewer failed attempts than this raise neither `failure_ratio` nor `destination_failing`.
    pub failed_attempts_min: u64,
    /// `oldest_pending`: the oldest due delivery waits for this long.
    pub oldest_pending: HumanDuration,
    /// `signature_failures`: this many requests to a source failed verification within 5 minutes.
    pub signature_failures: u64,
    /// `disk_space`: fewer free bytes than this.
    pub disk_free_bytes: u64,
    /// `send_quota`: this share of the daily limit `stop_at` of a messaging destination is used.
    pub send_quota: f64,
    /// How long a condition must be gone before its alert is resolved.
    pub resolve_after: HumanDuration,
    /// How long a message waits for further alerts, to cover all of them.
    pub group_wait: HumanDuration,
    /// Messages to each channel within an hour, at most. Further alerts wait and share the next
    /// message.
    pub messages_per_hour: u32,
}

impl Default for AlertRulesSpec {
    fn default() -> Self {
        Self {
            off: Vec::new(),
            dead_letters: 1,
            dead_letter_count: 1000,
            failure_ratio: 0.2,
            failed_attempts_min: 5,
            oldest_pending: HumanDuration::from_secs(900),
            signature_failures: 20,
            disk_free_bytes: 1 << 30,
            send_quota: 0.9,
            resolve_after: HumanDuration::from_secs(60),
            group_wait: HumanDuration::from_secs(15),
            messages_per_hour: 20,
        }
    }
}

/// Why `[alerts]` is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("alerts: {0}")]
pub struct AlertRulesSpecError(&'static str);

/// The span over which signature failures are counted.
pub const SIGNATURE_WINDOW: Duration = Duration::from_secs(300);
const GROUP_WAIT_MAX: Duration = Duration::from_secs(600);
const RESOLVE_AFTER_MAX: Duration = Duration::from_secs(86_400);

impl AlertRulesSpec {
    pub fn build(&self) -> Result<AlertRules, AlertRulesSpecError> {
        let is_ratio = |ratio: f64| ratio > 0.0 && ratio <= 1.0;
        let counts = [
            self.dead_letters,
            self.dead_letter_count,
            self.failed_attempts_min,
            self.signature_failures,
        ];
        let error = match () {
            () if !is_ratio(self.failure_ratio) || !is_ratio(self.send_quota) => {
                "failure_ratio and send_quota must be greater than 0 and at most 1; 0.2 is 20 %"
            }
            () if counts.contains(&0) => {
                "thresholds must be at least 1; to turn a rule off, add its name to `off`"
            }
            () if self.oldest_pending.0.is_zero() => "oldest_pending must be longer than 0s",
            () if self.group_wait.0 > GROUP_WAIT_MAX => "group_wait must be at most 10m",
            () if self.resolve_after.0 > RESOLVE_AFTER_MAX => "resolve_after must be at most 1d",
            () if !(1..=1000).contains(&self.messages_per_hour) => {
                "messages_per_hour must be between 1 and 1000"
            }
            () => return Ok(AlertRules(self.clone())),
        };
        Err(AlertRulesSpecError(error))
    }
}

/// The checked rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertRules(AlertRulesSpec);

/// What the rules look at, as of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertInputs {
    pub now: Timestamp,
    /// The time span of the attempts of the destinations.
    pub window: Duration,
    pub destinations: Vec<DestinationReading>,
    pub sources: Vec<SourceReading>,
    /// All dead letters.
    pub dead_letters: u64,
    /// Free bytes on the disk of the store, if known.
    pub disk_free: Option<u64>,
    /// Nodes whose lease has ended.
    pub lost_nodes: Vec<LostNode>,
}

/// What the rules know about a destination.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationReading {
    pub id: DestinationId,
    pub name: String,
    pub status: HealthStatus,
    /// Why the gateway itself paused it; `None` if it is not paused, or by a person.
    pub paused_by_gateway: Option<String>,
    /// The attempts of the window.
    pub attempts: AttemptCounts,
    /// Deliveries that wait for it.
    pub waiting: u64,
    /// For how long the oldest due delivery has been due.
    pub overdue: Option<Duration>,
    /// The most recent failure, in a few words.
    pub last_error: Option<String>,
    pub quota: Option<SendQuota>,
    /// It is an alert channel itself.
    pub is_channel: bool,
}

/// How much of a daily limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendQuota {
    pub sent: u64,
    pub limit: u64,
}

/// What the rules know about a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReading {
    pub id: SourceId,
    pub name: String,
    /// How long it may be silent, and for how long it has been; `None` if it may always be.
    pub silence: Option<SourceSilence>,
    /// Requests that failed verification within [`SIGNATURE_WINDOW`].
    pub signature_failures: u64,
}

/// For how long a source has had no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSilence {
    pub allowed: Duration,
    pub lasted: Duration,
}

/// A node whose lease has ended without leaving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostNode {
    pub id: NodeId,
    pub name: String,
    pub silent_for: Duration,
}

/// The destination, source or node that an alert is about. Two with the same kind and id are the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertSubject {
    pub kind: AlertSubjectKind,
    /// Empty for the gateway.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub name: String,
}

impl AlertSubject {
    fn new(kind: AlertSubjectKind, id: &impl ToString, name: &str) -> Self {
        Self { kind, id: id.to_string(), name: name.to_owned() }
    }

    fn gateway() -> Self {
        Self::new(AlertSubjectKind::Gateway, &"", "surehook")
    }

    pub fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.id) == (other.kind, &other.id)
    }

    /// The page of the dashboard about it.
    pub fn path(&self) -> String {
        match self.kind {
            AlertSubjectKind::Destination => format!("/destinations/{}", self.id),
            AlertSubjectKind::Source => format!("/sources/{}", self.id),
            AlertSubjectKind::Node => "/nodes".to_owned(),
            AlertSubjectKind::Gateway => "/".to_owned(),
        }
    }
}

/// The figures behind an alert. What each means depends on the rule, see
/// [`AlertFigures::describe`](message).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AlertFigures {
    /// What was counted.
    pub count: u64,
    /// What it is compared with: a threshold, a limit, or all attempts.
    pub of: u64,
    /// A time span.
    pub seconds: u64,
    /// The last error, or a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertFinding {
    pub rule: AlertRule,
    pub subject: AlertSubject,
    pub figures: AlertFigures,
}

impl AlertRules {
    /// The settings of the rules.
    pub fn spec(&self) -> &AlertRulesSpec {
        &self.0
    }

    /// The conditions that hold.
    pub fn evaluate(&self, inputs: &AlertInputs) -> Vec<AlertFinding> {
        let mut findings = Vec::new();
        let mut find = |rule, subject: AlertSubject, figures| {
            findings.push(AlertFinding { rule, subject, figures });
        };
        for destination in &inputs.destinations {
            let subject = AlertSubject::new(
                AlertSubjectKind::Destination,
                &destination.id,
                &destination.name,
            );
            for (rule, figures) in self.assess_destination(destination, inputs.window) {
                find(rule, subject.clone(), figures);
            }
        }
        for source in &inputs.sources {
            let subject = AlertSubject::new(AlertSubjectKind::Source, &source.id, &source.name);
            if let Some(SourceSilence { allowed, lasted }) = source.silence
                && lasted > allowed
            {
                let figures = AlertFigures {
                    seconds: lasted.as_secs(),
                    of: allowed.as_secs(),
                    ..AlertFigures::default()
                };
                find(AlertRule::SilentSource, subject.clone(), figures);
            }
            if source.signature_failures >= self.0.signature_failures {
                let figures = AlertFigures {
                    count: source.signature_failures,
                    of: self.0.signature_failures,
                    seconds: SIGNATURE_WINDOW.as_secs(),
                    text: None,
                };
                find(AlertRule::SignatureFailures, subject, figures);
            }
        }
        for node in &inputs.lost_nodes {
            let subject = AlertSubject::new(AlertSubjectKind::Node, &node.id, &node.name);
            let seconds = node.silent_for.as_secs();
            find(AlertRule::NodeLost, subject, AlertFigures { seconds, ..AlertFigures::default() });
        }
        let compared = |count, of| AlertFigures { count, of, ..AlertFigures::default() };
        if inputs.dead_letters >= self.0.dead_letter_count {
            let figures = compared(inputs.dead_letters, self.0.dead_letter_count);
            find(AlertRule::DeadLetterCount, AlertSubject::gateway(), figures);
        }
        if let Some(free) = inputs.disk_free.filter(|free| *free < self.0.disk_free_bytes) {
            let figures = compared(free, self.0.disk_free_bytes);
            find(AlertRule::DiskSpace, AlertSubject::gateway(), figures);
        }
        findings.retain(|finding| !self.0.off.contains(&finding.rule));
        findings
    }

    fn assess_destination(
        &self,
        reading: &DestinationReading,
        window: Duration,
    ) -> Vec<(AlertRule, AlertFigures)> {
        let mut found = Vec::new();
        let attempts = reading.attempts;
        let of_attempts = || AlertFigures {
            count: attempts.failed,
            of: attempts.attempts,
            seconds: window.as_secs(),
            text: reading.last_error.clone(),
        };
        let waiting = |seconds, text: &Option<String>| AlertFigures {
            count: reading.waiting,
            of: 0,
            seconds,
            text: text.clone(),
        };
        let has_failures = attempts.failed >= self.0.failed_attempts_min;
        match reading.status {
            HealthStatus::Misconfigured => {
                found.push((AlertRule::DestinationUnusable, waiting(0, &None)));
            }
            HealthStatus::Paused => {
                if reading.paused_by_gateway.is_some() {
                    let figures = waiting(0, &reading.paused_by_gateway);
                    found.push((AlertRule::DestinationUnusable, figures));
                }
            }
            HealthStatus::CircuitOpen => {
                found.push((AlertRule::CircuitOpen, waiting(0, &reading.last_error)));
            }
            HealthStatus::Failing if has_failures => {
                found.push((AlertRule::DestinationFailing, of_attempts()));
            }
            HealthStatus::Failing
            | HealthStatus::Degraded
            | HealthStatus::Healthy
            | HealthStatus::NoTraffic => {
                let is_high =
                    attempts.failure_ratio().is_some_and(|ratio| ratio >= self.0.failure_ratio);
                if has_failures && is_high {
                    found.push((AlertRule::FailureRatio, of_attempts()));
                }
            }
        }
        // A person who pauses a destination wants its deliveries to wait.
        let is_wanted =
            reading.status == HealthStatus::Paused && reading.paused_by_gateway.is_none();
        if let Some(overdue) = reading.overdue
            && overdue >= self.0.oldest_pending.0
            && !is_wanted
        {
            let figures = waiting(overdue.as_secs(), &reading.last_error);
            found.push((AlertRule::OldestPending, figures));
        }
        if attempts.dead >= self.0.dead_letters {
            let figures = AlertFigures { count: attempts.dead, of: 0, ..of_attempts() };
            found.push((AlertRule::DeadLetters, figures));
        }
        if let Some(SendQuota { sent, limit }) = reading.quota
            && is_share(sent, limit, self.0.send_quota)
        {
            let figures = AlertFigures { count: sent, of: limit, ..AlertFigures::default() };
            found.push((AlertRule::SendQuota, figures));
        }
        found
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts needs no more digits")]
fn is_share(part: u64, whole: u64, share: f64) -> bool {
    part as f64 >= whole as f64 * share
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn attempts(attempts: u64, failed: u64, dead: u64) -> AttemptCounts {
        AttemptCounts { attempts, failed, dead }
    }

    pub(in crate::alert) fn reading(status: HealthStatus) -> DestinationReading {
        DestinationReading {
            id: DestinationId::new(Timestamp::default(), 1),
            name: "crm".to_owned(),
            status,
            paused_by_gateway: None,
            attempts: AttemptCounts::default(),
            waiting: 0,
            overdue: None,
            last_error: None,
            quota: None,
            is_channel: false,
        }
    }

    fn source() -> SourceReading {
        SourceReading {
            id: SourceId::new(Timestamp::default(), 1),
            name: "stripe".to_owned(),
            silence: None,
            signature_failures: 0,
        }
    }

    fn fired(inputs: &AlertInputs) -> Vec<&'static str> {
        let findings = AlertRules::default().evaluate(inputs);
        findings.iter().map(|finding| finding.rule.as_str()).collect()
    }

    #[test]
    fn rules_of_a_destination_fire_at_their_thresholds() {
        use HealthStatus::{CircuitOpen, Degraded, Failing, Healthy, Misconfigured, Paused};
        let base = reading(Healthy);
        let with_attempts = |status, attempts| DestinationReading { attempts, ..reading(status) };
        let overdue = |status, seconds| DestinationReading {
            overdue: Some(SECOND * seconds),
            ..reading(status)
        };
        let quota = |sent| DestinationReading {
            quota: Some(SendQuota { sent, limit: 100 }),
            ..reading(Healthy)
        };
        let paused_by_gateway = DestinationReading {
            paused_by_gateway: Some("the token has expired".to_owned()),
            ..reading(Paused)
        };
        let overdue_and_paused =
            DestinationReading { overdue: Some(SECOND * 900), ..paused_by_gateway.clone() };
        let cases: [(DestinationReading, &[&str]); 18] = [
            (base, &[]),
            (reading(Misconfigured), &["destination_unusable"]),
            (reading(Paused), &[]),
            (paused_by_gateway, &["destination_unusable"]),
            (overdue_and_paused, &["destination_unusable", "oldest_pending"]),
            (reading(CircuitOpen), &["circuit_open"]),
            // One failure at night is no reason to wake a person.
            (with_attempts(Failing, attempts(1, 1, 0)), &[]),
            (with_attempts(Failing, attempts(4, 4, 0)), &[]),
            (with_attempts(Failing, attempts(5, 5, 0)), &["destination_failing"]),
            (with_attempts(Degraded, attempts(100, 20, 0)), &["failure_ratio"]),
            (with_attempts(Degraded, attempts(100, 19, 0)), &[]),
            (with_attempts(Degraded, attempts(100, 5, 1)), &["dead_letters"]),
            (overdue(Healthy, 899), &[]),
            (overdue(Healthy, 900), &["oldest_pending"]),
            (overdue(Paused, 9000), &[]),
            (quota(89), &[]),
            (quota(90), &["send_quota"]),
            (quota(150), &["send_quota"]),
        ];
        for (reading, expected) in cases {
            let case = format!("{reading:?}");
            let inputs = AlertInputs { destinations: vec![reading], ..AlertInputs::default() };
            assert_eq!(fired(&inputs), expected, "case: {case}");
        }
    }

    #[test]
    fn rules_of_sources_nodes_and_the_gateway_fire_at_their_thresholds() {
        let silence = |lasted| SourceReading {
            silence: Some(SourceSilence { allowed: SECOND * 60, lasted: SECOND * lasted }),
            ..source()
        };
        let with_source = |source| AlertInputs { sources: vec![source], ..AlertInputs::default() };
        let failures = |signature_failures| SourceReading { signature_failures, ..source() };
        let node = LostNode {
            id: NodeId::new(Timestamp::default(), 1),
            name: "a".to_owned(),
            silent_for: SECOND,
        };
        let with_disk = |free| AlertInputs { disk_free: Some(free), ..AlertInputs::default() };
        let with_dead = |dead_letters| AlertInputs { dead_letters, ..AlertInputs::default() };
        let cases: [(AlertInputs, &[&str]); 10] = [
            (AlertInputs::default(), &[]),
            (with_source(silence(60)), &[]),
            (with_source(silence(61)), &["silent_source"]),
            (with_source(failures(19)), &[]),
            (with_source(failures(20)), &["signature_failures"]),
            (with_disk(1 << 30), &[]),
            (with_disk((1 << 30) - 1), &["disk_space"]),
            (with_dead(999), &[]),
            (with_dead(1000), &["dead_letter_count"]),
            (AlertInputs { lost_nodes: vec![node], ..AlertInputs::default() }, &["node_lost"]),
        ];
        for (inputs, expected) in cases {
            assert_eq!(fired(&inputs), expected, "case: {inputs:?}");
        }
    }

    #[test]
    fn rule_that_is_off_raises_nothing() {
        let spec =
            AlertRulesSpec { off: vec![AlertRule::CircuitOpen], ..AlertRulesSpec::default() };
        let destinations = vec![reading(HealthStatus::CircuitOpen)];
        let inputs = AlertInputs { destinations, ..AlertInputs::default() };
        assert_eq!(spec.build().unwrap().evaluate(&inputs), []);
    }

    #[test]
    fn invalid_rules_are_refused() {
        let spec = AlertRulesSpec::default();
        for invalid in [
            AlertRulesSpec { failure_ratio: 0.0, ..spec.clone() },
            AlertRulesSpec { failure_ratio: f64::NAN, ..spec.clone() },
            AlertRulesSpec { send_quota: 1.1, ..spec.clone() },
            AlertRulesSpec { dead_letters: 0, ..spec.clone() },
            AlertRulesSpec { signature_failures: 0, ..spec.clone() },
            AlertRulesSpec { oldest_pending: HumanDuration::from_secs(0), ..spec.clone() },
            AlertRulesSpec { group_wait: HumanDuration::from_secs(601), ..spec.clone() },
            AlertRulesSpec { resolve_after: HumanDuration::from_secs(86_401), ..spec.clone() },
            AlertRulesSpec { messages_per_hour: 0, ..spec.clone() },
        ] {
            assert!(invalid.build().is_err(), "case: {invalid:?}");
        }
        assert_eq!(spec.build(), Ok(AlertRules::default()));
    }
}
