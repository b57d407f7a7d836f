//! What fires, what has fired, and which messages are due.
//!
//! The log is changed by one step every few seconds, and saved before anything is sent: a notice is in
//! the log until all its messages are in the outbox. Numbers of alerts and notices come from the log, so
//! a step that is made again after a crash makes the same notice, and its messages are duplicates of
//! themselves.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use surehook_types::{ids::DestinationId, time::Timestamp};

use super::{
    AlertFigures, AlertInputs, AlertRule, AlertRules, AlertStatus, AlertSubject, AlertSubjectKind,
};

/// Alerts that fire at the same time, at most; further ones are raised when others are resolved.
pub const ACTIVE_MAX: usize = 500;
/// Resolved alerts that are kept.
pub const PAST_MAX: usize = 200;
/// Figures of an alert that fires are saved this often.
const FIGURES_EVERY: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// One rule that fires, or has fired, for one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub number: u64,
    pub rule: AlertRule,
    pub subject: AlertSubject,
    pub figures: AlertFigures,
    /// When the figures were read.
    pub figures_at: Timestamp,
    pub fired_at: Timestamp,
    /// Since when the condition has been gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    /// The notice of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<u64>,
    /// The notice of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_notice: Option<u64>,
}

impl Alert {
    pub const fn status(&self) -> AlertStatus {
        match self.resolved_at {
            None => AlertStatus::Firing,
            Some(_) => AlertStatus::Resolved,
        }
    }

    /// People know that it fires, and not yet that it has ended.
    fn lacks_resolution(&self) -> bool {
        self.resolved_at.is_some() && self.notice.is_some() && self.resolved_notice.is_none()
    }

    fn has_cause_of(&self, other: &Self) -> bool {
        self.subject.is_same(&other.subject) && self.rule.has_same_cause(other.rule)
    }
}

/// Alerts that share one message to each channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertNotice {
    pub number: u64,
    pub at: Timestamp,
    pub status: AlertStatus,
    pub alerts: Vec<Alert>,
}

impl AlertNotice {
    /// The part for one channel: not that the channel itself does not work. `None` if nothing
    /// is left.
    pub fn for_channel(&self, channel: DestinationId) -> Option<Self> {
        let id = channel.to_string();
        let is_about_channel = |subject: &AlertSubject| {
            subject.kind == AlertSubjectKind::Destination && subject.id == id
        };
        let mut notice = self.clone();
        notice.alerts.retain(|alert| !is_about_channel(&alert.subject));
        (!notice.alerts.is_empty()).then_some(notice)
    }
}

/// All that is known about alerts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlertLog {
    /// The last number that was given to an alert or notice.
    last_number: u64,
    /// What fires, oldest first.
    pub active: Vec<Alert>,
    /// What has been resolved, newest first.
    pub past: Vec<Alert>,
    /// What is not in the outbox yet, oldest first.
    pub notices: Vec<AlertNotice>,
    /// When notices of the last hour were made.
    noticed_at: Vec<Timestamp>,
}

impl AlertLog {
    /// Updates the log by what the rules say now. Notices are made only if there is a channel. Returns
    /// whether the log has to be saved.
    pub fn step(&mut self, rules: &AlertRules, inputs: &AlertInputs, has_channels: bool) -> bool {
        let mut is_changed = self.update_alerts(rules, inputs);
        is_changed |= self.join_incidents();
        is_changed |= self.drop_old(inputs.now);
        if has_channels {
            is_changed |= self.add_notice(rules, AlertStatus::Firing, inputs.now);
            is_changed |= self.add_notice(rules, AlertStatus::Resolved, inputs.now);
        }
        is_changed
    }

    /// Removes a notice whose messages are in the outbox.
    pub fn end_notice(&mut self, number: u64) {
        self.notices.retain(|notice| notice.number != number);
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn update_alerts(&mut self, rules: &AlertRules, inputs: &AlertInputs) -> bool {
        let now = inputs.now;
        let mut findings = rules.evaluate(inputs);
        let mut is_changed = false;
        let mut resolved = Vec::new();
        for alert in &mut self.active {
            let found = findings.iter().position(|finding| {
                finding.rule == alert.rule && finding.subject.is_same(&alert.subject)
            });
            if let Some(position) = found {
                let finding = findings.swap_remove(position);
                is_changed |= alert.clear_since.take().is_some();
                let is_old = now.since(alert.figures_at) >= FIGURES_EVERY;
                if is_old && (alert.figures != finding.figures || alert.subject != finding.subject)
                {
                    (alert.figures, alert.subject) = (finding.figures, finding.subject);
                    alert.figures_at = now;
                    is_changed = true;
                }
                continue;
            }
            if must_stay(alert, inputs) {
                is_changed |= alert.clear_since.take().is_some();
                continue;
            }
            let clear_since = *alert.clear_since.get_or_insert_with(|| {
                is_changed = true;
                now
            });
            if now.since(clear_since) >= rules.spec().resolve_after.0 {
                resolved.push(alert.number);
            }
        }
        for number in resolved {
            if let Some(position) = self.active.iter().position(|alert| alert.number == number) {
                let alert = self.active.remove(position);
                self.past.insert(0, Alert { resolved_at: Some(now), ..alert });
                is_changed = true;
            }
        }
        let free = ACTIVE_MAX.saturating_sub(self.active.len());
        for finding in findings.into_iter().take(free) {
            let number = self.next_number();
            self.active.push(Alert {
                number,
                rule: finding.rule,
                subject: finding.subject,
                figures: finding.figures,
                figures_at: now,
                fired_at: now,
                clear_since: None,
                resolved_at: None,
                notice: None,
                resolved_notice: None,
            });
            is_changed = true;
        }
        is_changed
    }

    /// Alerts of a subject with one cause are one incident. If people know of it, they get no second
    /// message because it continues under another rule, or because it returns before the message
    /// about its end.
    fn join_incidents(&mut self) -> bool {
        let known: Vec<Alert> = self
            .active
            .iter()
            .filter(|alert| alert.notice.is_some())
            .chain(self.past.iter().filter(|alert| alert.lacks_resolution()))
            .cloned()
            .collect();
        let mut is_changed = false;
        for alert in self.active.iter_mut().filter(|alert| alert.notice.is_none()) {
            if let Some(same) = known.iter().find(|same| same.has_cause_of(alert)) {
                alert.notice = same.notice;
                is_changed = true;
            }
        }
        is_changed
    }

    fn drop_old(&mut self, now: Timestamp) -> bool {
        let before = (self.past.len(), self.noticed_at.len());
        self.noticed_at.retain(|at| now.since(*at) < HOUR);
        // Newest first: what is dropped is the oldest.
        let mut kept = 0;
        self.past.retain(|alert| {
            kept += 1;
            kept <= PAST_MAX || (alert.lacks_resolution() && kept <= PAST_MAX + ACTIVE_MAX)
        });
        before != (self.past.len(), self.noticed_at.len())
    }

    /// Makes a notice of everything that is due, once the oldest of it has waited for the others.
    fn add_notice(&mut self, rules: &AlertRules, status: AlertStatus, now: Timestamp) -> bool {
        let spec = rules.spec();
        let due: Vec<u64> = self.due_alerts(status).map(|alert| alert.number).collect();
        let waits_since = |alert: &Alert| match status {
            AlertStatus::Firing => alert.fired_at,
            AlertStatus::Resolved => alert.resolved_at.unwrap_or(alert.fired_at),
        };
        let is_ripe = |alert: &Alert| now.since(waits_since(alert)) >= spec.group_wait.0;
        let has_room = self.noticed_at.len() < spec.messages_per_hour as usize;
        if !has_room || !self.due_alerts(status).any(is_ripe) {
            return false;
        }
        let number = self.next_number();
        let mut alerts = Vec::with_capacity(due.len());
        let all = self.active.iter_mut().chain(&mut self.past);
        for alert in all.filter(|alert| due.contains(&alert.number)) {
            match status {
                AlertStatus::Firing => alert.notice = Some(number),
                AlertStatus::Resolved => alert.resolved_notice = Some(number),
            }
            alerts.push(alert.clone());
        }
        self.notices.push(AlertNotice { number, at: now, status, alerts });
        self.noticed_at.push(now);
        true
    }

    /// The alerts that lack a message. That about the end of an alert is due when nothing fires any
    /// more for its subject.
    fn due_alerts(&self, status: AlertStatus) -> impl Iterator<Item = &Alert> {
        let (alerts, is_resolved) = match status {
            AlertStatus::Firing => (&self.active, false),
            AlertStatus::Resolved => (&self.past, true),
        };
        alerts.iter().filter(move |alert| match is_resolved {
            false => alert.notice.is_none() && alert.clear_since.is_none(),
            true => {
                let is_same = |other: &Alert| other.subject.is_same(&alert.subject);
                alert.lacks_resolution() && !self.active.iter().any(is_same)
            }
        })
    }
}

/// Whether an alert stays although its rule does not fire now.
///
/// A destination whose retries wait for longer than the window has no attempts; it is fine again when an
/// attempt has succeeded, or nothing waits for it any more. An alert channel must have succeeded: with
/// that, two channels that do not work do not report each other for ever.
fn must_stay(alert: &Alert, inputs: &AlertInputs) -> bool {
    let is_its_subject = |id: DestinationId| {
        alert.subject.kind == AlertSubjectKind::Destination && alert.subject.id == id.to_string()
    };
    let mut readings = inputs.destinations.iter();
    let Some(reading) = readings.find(|reading| is_its_subject(reading.id)) else { return false };
    if reading.attempts.succeeded() > 0 {
        return false;
    }
    let is_about_failures = alert.rule.is_about_delivery() || alert.rule == AlertRule::DeadLetters;
    is_about_failures && reading.is_channel || alert.rule.is_about_delivery() && reading.waiting > 0
}

#[cfg(test)]
mod tests {
    use surehook_types::time::HumanDuration;

    use super::{
        super::{AlertRulesSpec, DestinationReading, tests::reading},
        *,
    };
    use crate::health::{AttemptCounts, HealthStatus};

    const SECOND: Duration = Duration::from_secs(1);
    const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn rules() -> AlertRules {
        AlertRulesSpec {
            resolve_after: HumanDuration::from_secs(60),
            group_wait: HumanDuration::from_secs(10),
            messages_per_hour: 4,
            ..AlertRulesSpec::default()
        }
        .build()
        .unwrap()
    }

    fn id(number: u128) -> DestinationId {
        DestinationId::new(START, number << 64)
    }

    fn destination(number: u128, status: HealthStatus) -> DestinationReading {
        let attempts = match status {
            HealthStatus::Healthy => AttemptCounts { attempts: 9, failed: 0, dead: 0 },
            HealthStatus::Failing => AttemptCounts { attempts: 9, failed: 9, dead: 0 },
            HealthStatus::Misconfigured
            | HealthStatus::Paused
            | HealthStatus::CircuitOpen
            | HealthStatus::Degraded
            | HealthStatus::NoTraffic => AttemptCounts::default(),
        };
        DestinationReading {
            id: id(number),
            name: format!("d{number}"),
            attempts,
            ..reading(status)
        }
    }

    /// Rule and subject of each alert of a notice.
    type NoticedAlerts = Vec<(AlertRule, String)>;

    /// A log with its clock.
    struct Timeline {
        log: AlertLog,
        now: Timestamp,
        notices: Vec<(u64, AlertStatus, NoticedAlerts)>,
    }

    impl Timeline {
        fn new() -> Self {
            Self { log: AlertLog::default(), now: START, notices: Vec::new() }
        }

        /// Steps every five seconds for this long, and posts what is due.
        fn run(&mut self, seconds: u64, destinations: &[DestinationReading]) {
            for _ in 0..seconds.div_ceil(5) {
                self.now = self.now + SECOND * 5;
                let inputs = AlertInputs {
                    now: self.now,
                    destinations: destinations.to_vec(),
                    ..AlertInputs::default()
                };
                let before = self.log.clone();
                let is_changed = self.log.step(&rules(), &inputs, true);
                assert_eq!(is_changed, before != self.log, "the log is saved if it has changed");
                if is_changed {
                    // A step after a crash begins from what was saved.
                    let saved = serde_json::to_string(&self.log).unwrap();
                    self.log = serde_json::from_str(&saved).unwrap();
                }
                for notice in self.log.notices.clone() {
                    let alerts = notice.alerts.iter();
                    let alerts = alerts.map(|alert| (alert.rule, alert.subject.name.clone()));
                    self.notices.push((notice.number, notice.status, alerts.collect()));
                    self.log.end_notice(notice.number);
                }
            }
        }

        fn take_notices(&mut self) -> Vec<(AlertStatus, NoticedAlerts)> {
            self.notices.drain(..).map(|(_, status, alerts)| (status, alerts)).collect()
        }
    }

    fn about(rule: AlertRule, names: &[&str]) -> NoticedAlerts {
        names.iter().map(|name| (rule, (*name).to_owned())).collect()
    }

    #[test]
    fn outage_of_many_destinations_is_one_message_and_one_when_it_is_over() {
        let mut timeline = Timeline::new();
        let all = |status| [destination(1, status), destination(2, status)];
        timeline.run(60, &all(HealthStatus::Healthy));
        assert_eq!(timeline.take_notices(), []);

        // The second one fails a little later.
        let (one, two) = (HealthStatus::Failing, HealthStatus::Healthy);
        timeline.run(5, &[destination(1, one), destination(2, two)]);
        timeline.run(600, &all(HealthStatus::Failing));

        let fired = about(AlertRule::DestinationFailing, &["d1", "d2"]);
        assert_eq!(timeline.take_notices(), [(AlertStatus::Firing, fired.clone())]);
        timeline.run(600, &all(HealthStatus::Healthy));
        let mut notices = timeline.take_notices();
        notices[0].1.sort();
        assert_eq!(notices, [(AlertStatus::Resolved, fired)]);
        assert_eq!((timeline.log.active.len(), timeline.log.past.len()), (0, 2));
    }

    #[test]
    fn incident_under_several_rules_is_notified_once() {
        let mut timeline = Timeline::new();
        timeline.run(60, &[destination(1, HealthStatus::Failing)]);
        timeline.run(120, &[destination(1, HealthStatus::CircuitOpen)]);
        timeline.run(120, &[destination(1, HealthStatus::Failing)]);
        let notices = timeline.take_notices();
        assert_eq!(notices, [(AlertStatus::Firing, about(AlertRule::DestinationFailing, &["d1"]))]);

        timeline.run(300, &[destination(1, HealthStatus::Healthy)]);

        let notices = timeline.take_notices();
        assert_eq!((notices.len(), notices[0].0), (1, AlertStatus::Resolved));
        let rules: Vec<AlertRule> = notices[0].1.iter().map(|(rule, _)| *rule).collect();
        assert!(rules.contains(&AlertRule::CircuitOpen), "{rules:?}");
    }

    #[test]
    fn dead_letters_of_a_failing_destination_are_a_second_message() {
        let mut timeline = Timeline::new();
        let failing = destination(1, HealthStatus::Failing);
        timeline.run(60, std::slice::from_ref(&failing));
        let attempts = AttemptCounts { dead: 3, ..failing.attempts };
        timeline.run(60, &[DestinationReading { attempts, ..failing }]);
        timeline.run(300, &[destination(1, HealthStatus::Healthy)]);

        let notices = timeline.take_notices();
        let statuses: Vec<_> = notices.iter().map(|(status, _)| *status).collect();
        let (firing, resolved) = (AlertStatus::Firing, AlertStatus::Resolved);
        assert_eq!(statuses, [firing, firing, resolved], "{notices:?}");
        assert_eq!(notices[1].1, about(AlertRule::DeadLetters, &["d1"]));
        assert_eq!(notices[2].1.len(), 2, "the end of both is one message: {notices:?}");
    }

    #[test]
    fn short_recovery_is_not_notified() {
        let mut timeline = Timeline::new();
        for _ in 0..20 {
            timeline.run(30, &[destination(1, HealthStatus::Failing)]);
            timeline.run(30, &[destination(1, HealthStatus::Healthy)]);
        }
        assert_eq!(timeline.take_notices().len(), 1);
    }

    #[test]
    fn condition_that_clears_within_the_group_wait_is_not_notified() {
        let mut timeline = Timeline::new();
        timeline.run(5, &[destination(1, HealthStatus::Failing)]);
        timeline.run(300, &[destination(1, HealthStatus::Healthy)]);
        assert_eq!((timeline.take_notices(), timeline.log.past.len()), (vec![], 1));
    }

    #[test]
    fn destination_without_attempts_is_not_resolved_while_deliveries_wait() {
        let mut timeline = Timeline::new();
        timeline.run(60, &[destination(1, HealthStatus::Failing)]);
        timeline.take_notices();
        let silent = destination(1, HealthStatus::NoTraffic);
        timeline.run(3600, &[DestinationReading { waiting: 7, ..silent.clone() }]);
        assert_eq!(timeline.take_notices(), []);

        timeline.run(300, &[silent]);

        assert_eq!(timeline.take_notices().len(), 1);
    }

    #[test]
    fn deleted_destination_is_resolved() {
        let mut timeline = Timeline::new();
        timeline.run(60, &[destination(1, HealthStatus::Failing)]);
        timeline.run(300, &[]);
        assert_eq!(timeline.take_notices().len(), 2);
    }

    #[test]
    fn failing_channels_are_reported_once_and_not_to_themselves() {
        let mut timeline = Timeline::new();
        let channel = |number, status, dead| {
            let reading = destination(number, status);
            let attempts = AttemptCounts { dead, ..reading.attempts };
            DestinationReading { is_channel: true, attempts, ..reading }
        };
        // Each message to the other one fails and dies, and the next one begins with no traffic.
        for _ in 0..50 {
            for (first, second) in [
                (HealthStatus::Failing, HealthStatus::NoTraffic),
                (HealthStatus::NoTraffic, HealthStatus::Failing),
                (HealthStatus::NoTraffic, HealthStatus::NoTraffic),
            ] {
                timeline.run(600, &[channel(1, first, 1), channel(2, second, 1)]);
            }
        }
        let notices = timeline.take_notices();
        assert!(notices.len() <= 4, "{notices:?}");
        assert!(notices.iter().all(|(status, _)| *status == AlertStatus::Firing), "{notices:?}");

        let healthy = HealthStatus::Healthy;
        timeline.run(600, &[channel(1, healthy, 0), channel(2, healthy, 0)]);
        assert_eq!(timeline.take_notices().len(), 1);
        let notice =
            |alerts| AlertNotice { number: 1, at: START, status: AlertStatus::Firing, alerts };
        let both = notice(timeline.log.past.clone());
        let notices = both.for_channel(id(1)).unwrap();
        assert!(notices.alerts.iter().all(|alert| alert.subject.name == "d2"), "{notices:?}");
        assert_eq!(notice(notices.alerts).for_channel(id(2)), None);
    }

    #[test]
    fn messages_beyond_the_hourly_limit_are_merged() {
        let mut timeline = Timeline::new();
        let mut failing = Vec::new();
        for number in 1..=30 {
            failing.push(destination(number, HealthStatus::Failing));
            timeline.run(60, &failing);
        }
        let notices = timeline.take_notices();
        assert_eq!(notices.len(), 4, "{notices:?}");
        timeline.run(3600, &failing);
        let notices = timeline.take_notices();
        assert_eq!((notices.len(), notices[0].1.len()), (1, 26), "{notices:?}");
    }

    #[test]
    fn alerts_wait_for_the_first_channel() {
        let mut log = AlertLog::default();
        let mut inputs = AlertInputs {
            now: START,
            destinations: vec![destination(1, HealthStatus::Failing)],
            ..AlertInputs::default()
        };
        log.step(&rules(), &inputs, false);
        inputs.now = START + SECOND * 600;
        log.step(&rules(), &inputs, false);
        assert_eq!((log.active.len(), log.notices.len()), (1, 0));
        log.step(&rules(), &inputs, true);
        assert_eq!(log.notices.len(), 1);
    }

    #[test]
    fn log_is_limited() {
        let mut log = AlertLog::default();
        let mut now = START;
        for round in 0..10 {
            let failing = (0..ACTIVE_MAX as u128 + 9)
                .map(|number| destination(round * 1000 + number, HealthStatus::Failing));
            let destinations = failing.collect();
            for destinations in [destinations, Vec::new(), Vec::new()] {
                now = now + SECOND * 90;
                let inputs = AlertInputs { now, destinations, ..AlertInputs::default() };
                log.step(&rules(), &inputs, false);
                assert!(log.active.len() <= ACTIVE_MAX);
            }
            assert_eq!((log.active.len(), log.past.len()), (0, PAST_MAX));
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

        /// Whatever happens, and wherever the process is killed: notices of a subject alternate between
        /// firing and resolved, and end with resolved.
        #[test]
        fn every_notified_alert_is_resolved_once(
            statuses in proptest::collection::vec((0_usize..7, 0_usize..7, 5_u64..200), 1..40),
        ) {
            let mut timeline = Timeline::new();
            for (one, two, seconds) in statuses {
                let (one, two) = (HealthStatus::ALL[one], HealthStatus::ALL[two]);
                timeline.run(seconds, &[destination(1, one), destination(2, two)]);
            }
            timeline.run(8_000, &[
                destination(1, HealthStatus::Healthy),
                destination(2, HealthStatus::Healthy),
            ]);
            assert!(timeline.log.active.is_empty() && timeline.log.notices.is_empty());
            for name in ["d1", "d2"] {
                let mut fires = false;
                for (_, status, alerts) in &timeline.notices {
                    if alerts.iter().any(|(_, subject)| subject == name) {
                        let is_firing = *status == AlertStatus::Firing;
                        assert!(is_firing != fires, "{name}: {:?}", timeline.notices);
                        fires = is_firing;
                    }
                }
                assert!(!fires, "{name} lacks its end: {:?}", timeline.notices);
            }
        }
    }
}
