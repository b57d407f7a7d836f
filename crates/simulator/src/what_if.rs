//! Predicts what another policy would have done with a recorded history.
//!
//! The history is simulated twice: under today's settings (the baseline) and under the changed ones. The
//! difference of the two compares like with like; how far the baseline is from what really happened
//! shows how well the model fits. [`WhatIfNote`]s say what the record cannot know.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use surehook_core::{
    delivery::state::DeliveryStatus,
    destination::{Destination, kind::DestinationFamily},
    store::RecordedDelivery,
};
use surehook_retry::circuit::CircuitSpec;
use surehook_types::{
    string_enum,
    time::{HumanDuration, Timestamp},
};

use crate::{
    history::{
        DestinationHistory, EvidenceCounts, HistoryContext, HistoryFacts, RecordedBehavior,
        may_have_arrived,
    },
    policy::{POLICY_FIELDS, PolicySpec, PolicySpecError},
    report::SimulationReport,
    simulation::{ObservationSpec, Simulation, SimulationLane},
};

/// The seed of both policies, so that the same attempt of a delivery gets the same random numbers.
const SEED: u64 = 1;
/// Number of simulations of the changed settings, each with other random numbers, to show what is chance.
const RUNS_MAX: usize = 5;
/// Maximum number of deliveries over all these simulations, so that they do not take too long.
const RUN_DELIVERIES_MAX: usize = 200_000;
/// Deliveries that have not ended so long after the last recorded moment are reported as unfinished.
const HORIZON: Duration = Duration::from_secs(30 * 86_400);
/// Without an attempt for this long while deliveries waited, the destination was paused or the gateway
/// stopped; a circuit tries again earlier.
const HOLD_MIN: Duration = Duration::from_secs(900);
/// The largest relative deviation of the simulated attempts from the recorded ones at which the model is
/// trusted.
const DEVIATION_MAX: f64 = 0.05;
/// The same for dead letters.
const DEAD_DEVIATION_MAX: f64 = 0.10;
/// The smallest relative change of the number of attempts that is reported as another load.
const LOAD_CHANGE_MIN: f64 = 0.2;

/// A recorded history, and the settings to compare with.
#[derive(Debug)]
pub struct WhatIfInput {
    pub deliveries: Vec<RecordedDelivery>,
    pub since: Timestamp,
    pub until: Timestamp,
    /// Older deliveries of the time span were left out.
    pub is_cut: bool,
    /// Today's settings of the destination; only [`POLICY_FIELDS`] are used.
    pub settings: Map<String, Value>,
    /// When they were changed last.
    pub changed_at: Timestamp,
    pub family: DestinationFamily,
    /// When the history was read.
    pub now: Timestamp,
}

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    #[error("no attempts are recorded in this time")]
    NoHistory,
    #[error("{0}")]
    Policy(#[from] PolicySpecError),
}

/// What another policy would have done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfReport {
    pub since: Timestamp,
    pub until: Timestamp,
    /// What really happened.
    pub recorded: WhatIfResult,
    /// Today's settings, simulated on the record.
    pub baseline: WhatIfResult,
    /// The changed settings, simulated on the record.
    pub predicted: WhatIfResult,
    /// `predicted` minus `baseline`.
    pub difference: WhatIfDifference,
    /// The prediction with other random numbers.
    pub range: WhatIfRange,
    pub confidence: WhatIfConfidence,
}

/// Results of the deliveries, without replays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfResult {
    pub deliveries: u64,
    pub succeeded: u64,
    pub dead: u64,
    pub dead_by_reason: BTreeMap<String, u64>,
    /// Neither succeeded nor dead.
    pub unfinished: u64,
    pub attempts: u64,
    /// Attempts that reached the destination although an earlier one may have been processed.
    pub possible_duplicates: u64,
    pub delay: WhatIfDelay,
}

/// Time from creation to success, of those that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfDelay {
    pub p50_seconds: f64,
    pub p95_seconds: f64,
    pub p99_seconds: f64,
    pub total_minutes: f64,
}

/// The difference between two results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfDifference {
    pub succeeded: i64,
    pub dead: i64,
    pub unfinished: i64,
    pub attempts: i64,
    pub possible_duplicates: i64,
    pub delay_minutes: f64,
}

/// The least and the most of several simulations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfRange {
    pub dead_min: u64,
    pub dead_max: u64,
    pub attempts_min: u64,
    pub attempts_max: u64,
}

string_enum! {
    /// How far a prediction can be trusted.
    pub enum ConfidenceLevel {
        Low = "low",
        Medium = "medium",
        High = "high",
    }
}

/// How far the prediction can be trusted, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfConfidence {
    pub level: ConfidenceLevel,
    /// Share of the predicted attempts that ended as a recorded one of the same delivery.
    pub recorded_share: f64,
    /// Share of those with no recorded attempt nearby.
    pub guessed_share: f64,
    /// How far `baseline` is from `recorded`, relative to it.
    pub attempts_deviation: f64,
    pub dead_deviation: f64,
    /// What the record cannot know.
    pub notes: Vec<WhatIfNote>,
}

string_enum! {
    /// What the record cannot know, or what was assumed instead.
    pub enum WhatIfNoteKind {
        ModelDeviates = "model_deviates",
        Guessed = "guessed",
        AfterEnd = "after_end",
        Cut = "cut",
        Open = "open",
        WithoutAttempts = "without_attempts",
        SettingsChanged = "settings_changed",
        Load = "load",
        Throttled = "throttled",
        RetryAfter = "retry_after",
        LongerTimeout = "longer_timeout",
        FailingAlone = "failing_alone",
        Held = "held",
        Replays = "replays",
        Cancelled = "cancelled",
        OrderingKeys = "ordering_keys",
        Channel = "channel",
        Jitter = "jitter",
    }
}

impl WhatIfNoteKind {
    /// The text for people; `{}` stands for a value.
    pub const fn template(self) -> &'static str {
        match self {
            Self::ModelDeviates => {
                "Simulated with today's settings, the record gives {} attempts and {} dead letters; actually there were {} and {}."
            }
            Self::Guessed => {
                "{} of {} predicted attempts are at times with no recorded attempt nearby: they are guessed from the nearest ones."
            }
            Self::AfterEnd => {
                "No attempts are recorded after {}. {} predicted attempts are later; the destination is assumed to stay as it was."
            }
            Self::Cut => "Only the newest {} deliveries of the time span were read.",
            Self::Open => {
                "{} deliveries had not ended. How they would continue under today's settings is predicted, too."
            }
            Self::WithoutAttempts => {
                "Retention has removed the attempts of {} deliveries: their responses are drawn from those of the others."
            }
            Self::SettingsChanged => {
                "The destination was changed at {}. What was recorded before may have been made with other settings or at another address."
            }
            Self::Load => {
                "The destination would have had another load ({} instead of {} attempts). Whether that would have helped or harmed it is unknown."
            }
            Self::Throttled => {
                "The destination asked to slow down {} times. With another rate it might have done so more or less often."
            }
            Self::RetryAfter => {
                "{} answers asked to slow down without a recorded Retry-After; one shorter than the backoff is not recorded."
            }
            Self::LongerTimeout => {
                "{} attempts would have had longer than the {} after which they timed out. Whether they would have been answered then is unknown; they count as timed out."
            }
            Self::FailingAlone => {
                "{} deliveries failed again and again while others succeeded. They are assumed to always fail."
            }
            Self::Held => {
                "For {} nothing was attempted although deliveries waited (paused, quiet hours, or the gateway was stopped). That is assumed to stay the same."
            }
            Self::Replays => {
                "{} replays are not counted; they only show what the destination answered."
            }
            Self::Cancelled => "{} cancelled deliveries are left out.",
            Self::OrderingKeys => {
                "Ordering keys are recorded for {} of {} deliveries only; the others are taken to be independent."
            }
            Self::Channel => {
                "Limits of messages (pace per recipient, daily limits, quiet hours) are not simulated."
            }
            Self::Jitter => {
                "Jitter is random: retries would not have come at exactly the simulated times."
            }
        }
    }
}

/// What the record cannot know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfNote {
    pub kind: WhatIfNoteKind,
    /// The numbers and times in the text, in its order.
    pub values: Vec<String>,
    /// For people, in English.
    pub text: String,
}

impl WhatIfNote {
    fn new(kind: WhatIfNoteKind, values: Vec<String>) -> Self {
        let mut parts = kind.template().split("{}");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (part, value) in parts.zip(&values) {
            text.push_str(value);
            text.push_str(part);
        }
        Self { kind, values, text }
    }
}

/// The policy fields of a destination's settings.
pub fn policy_settings(spec: &Value) -> Map<String, Value> {
    let fields = spec.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| POLICY_FIELDS.contains(&name.as_str()));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Settings with a change: a field that is `null` in it is removed.
pub fn change_settings(
    settings: &Map<String, Value>,
    change: &Map<String, Value>,
) -> Map<String, Value> {
    let mut changed = settings.clone();
    for (name, value) in change {
        if value.is_null() {
            changed.remove(name);
        } else {
            changed.insert(name.clone(), value.clone());
        }
    }
    changed
}

/// Predicts what the history would have been with changed settings.
pub fn predict(
    input: WhatIfInput,
    change: &Map<String, Value>,
) -> Result<WhatIfReport, WhatIfError> {
    let build = |fields| PolicySpec { name: String::new(), fields }.build(&Map::new(), 0);
    let today = build(input.settings.clone())?;
    let changed_settings = change_settings(&input.settings, change);
    let changed = build(changed_settings.clone())?;
    let recorded = count_recorded(&input.deliveries);
    let context = HistoryContext {
        timeout: today.timeout,
        delay: today.lane.delay,
        hold_min: hold_min(&input.settings),
        is_interpreted: input.family != DestinationFamily::Webhook,
    };
    let WhatIfInput { deliveries, since, until, is_cut, changed_at, family, now, .. } = input;
    let history = DestinationHistory::new(deliveries, context).ok_or(WhatIfError::NoHistory)?;
    let history = Rc::new(history);
    let has_order = changed.lane.order.is_some();
    let timeout = today.timeout;
    let recorded_until = now.max(history.last_attempt_at());
    // A delivery that blocks its ordering queue is retried forever.
    let recorded_span = recorded_until.since(history.start());
    let horizon = if has_order || today.lane.order.is_some() {
        recorded_span
    } else {
        recorded_span + HORIZON
    };
    let (baseline, _) = simulate(&history, today, horizon, SEED);
    let (predicted, evidence) = simulate(&history, changed, horizon, SEED);
    let mut range = WhatIfRange {
        dead_min: predicted.dead,
        dead_max: predicted.dead,
        attempts_min: predicted.attempts,
        attempts_max: predicted.attempts,
    };
    let runs = (RUN_DELIVERIES_MAX / history.arrivals().len().max(1)).clamp(1, RUNS_MAX);
    for seed in (SEED..).take(runs).skip(1) {
        let (other, _) = simulate(&history, build(changed_settings.clone())?, horizon, seed);
        range.add(&other);
    }
    let context = NoteContext {
        facts: history.facts(),
        evidence,
        last_attempt_at: history.last_attempt_at(),
        is_cut,
        changed_at: Some(changed_at).filter(|at| *at > since.max(history.start()) && *at < until),
        is_channel: family == DestinationFamily::Channel,
        has_order,
        timeout,
    };
    let confidence = context.assess(&recorded, &baseline, &predicted);
    Ok(WhatIfReport {
        since,
        until,
        difference: difference(&predicted, &baseline),
        range,
        recorded,
        baseline,
        predicted,
        confidence,
    })
}

/// The time without an attempt after which a lane counts as held: longer than a circuit stays open.
fn hold_min(settings: &Map<String, Value>) -> Duration {
    let circuit =
        settings.get("circuit").and_then(|spec| serde_json::from_value(spec.clone()).ok());
    let open_max = match circuit {
        Some(CircuitSpec::Custom(custom)) => custom.max_open.max(custom.open_for),
        Some(CircuitSpec::Word(_)) | None => None,
    };
    open_max.map_or(HOLD_MIN, |open_max| HOLD_MIN.max(open_max.0 * 2))
}

fn simulate(
    history: &Rc<DestinationHistory>,
    destination: Destination,
    horizon: Duration,
    seed: u64,
) -> (WhatIfResult, EvidenceCounts) {
    let evidence = Rc::new(Cell::new(EvidenceCounts::default()));
    let behavior = RecordedBehavior::new(Rc::clone(history), seed, Rc::clone(&evidence));
    let lane = SimulationLane { name: String::new(), destination, behavior: Box::new(behavior) };
    let arrivals_end = history.arrivals().last().map_or(Duration::ZERO, |last| last.at);
    let observation =
        ObservationSpec { timeline: arrivals_end, recoveries: Vec::new(), arrivals_end };
    let simulation = Simulation::new(vec![lane], seed, horizon, observation);
    let report = simulation.run("", history.arrivals().iter().copied(), &mut |_| {});
    (WhatIfResult::from(report), evidence.get())
}

impl WhatIfRange {
    fn add(&mut self, result: &WhatIfResult) {
        self.dead_min = self.dead_min.min(result.dead);
        self.dead_max = self.dead_max.max(result.dead);
        self.attempts_min = self.attempts_min.min(result.attempts);
        self.attempts_max = self.attempts_max.max(result.attempts);
    }
}

impl From<SimulationReport> for WhatIfResult {
    fn from(report: SimulationReport) -> Self {
        let SimulationReport { delivery_seconds: delay, succeeded, .. } = report;
        let named = |(reason, count): (&&str, &u64)| ((*reason).to_owned(), *count);
        Self {
            deliveries: report.deliveries + report.unreached,
            succeeded,
            dead: report.dead,
            dead_by_reason: report.dead_by_reason.iter().map(named).collect(),
            unfinished: report.unfinished + report.unreached,
            attempts: report.attempts.total,
            possible_duplicates: report.possible_duplicates,
            delay: WhatIfDelay {
                p50_seconds: round(delay.p50),
                p95_seconds: round(delay.p95),
                p99_seconds: round(delay.p99),
                total_minutes: round(delay.mean * as_f64(succeeded) / 60.0),
            },
        }
    }
}

/// Counts the recorded results. A replayed delivery counts with its result before the replay.
fn count_recorded(deliveries: &[RecordedDelivery]) -> WhatIfResult {
    let mut result = WhatIfResult::default();
    let mut delays: Vec<Duration> = Vec::new();
    let originals = deliveries.iter().filter(|delivery| {
        delivery.replay_of.is_none() && delivery.status != DeliveryStatus::Cancelled
    });
    for delivery in originals {
        result.deliveries += 1;
        result.attempts += u64::from(delivery.attempts_made);
        result.possible_duplicates += count_possible_duplicates(delivery);
        match (delivery.ended_at, delivery.reason) {
            (None, _) => result.unfinished += 1,
            (Some(_), Some(reason)) => {
                result.dead += 1;
                *result.dead_by_reason.entry(reason.as_str().to_owned()).or_default() += 1;
            }
            (Some(ended_at), None) => {
                result.succeeded += 1;
                delays.push(ended_at.since(delivery.created_at));
            }
        }
    }
    delays.sort_unstable();
    let total: Duration = delays.iter().sum();
    let at = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a position in the list"
        )]
        let position = (share * delays.len() as f64).ceil() as usize;
        delays.get(position.max(1) - 1).map_or(0.0, Duration::as_secs_f64)
    };
    result.delay = WhatIfDelay {
        p50_seconds: at(0.5),
        p95_seconds: at(0.95),
        p99_seconds: at(0.99),
        total_minutes: round(total.as_secs_f64() / 60.0),
    };
    result
}

fn count_possible_duplicates(delivery: &RecordedDelivery) -> u64 {
    let attempts = &delivery.attempts;
    let Some(first) = attempts.iter().position(|attempt| may_have_arrived(attempt.failure)) else {
        return 0;
    };
    let later = attempts[first + 1..].iter();
    let reached =
        later.filter(|attempt| attempt.status.is_some() || may_have_arrived(attempt.failure));
    u64::try_from(reached.count()).unwrap_or(u64::MAX)
}

fn difference(predicted: &WhatIfResult, baseline: &WhatIfResult) -> WhatIfDifference {
    let count = |count: fn(&WhatIfResult) -> u64| {
        count(predicted).cast_signed() - count(baseline).cast_signed()
    };
    WhatIfDifference {
        succeeded: count(|result| result.succeeded),
        dead: count(|result| result.dead),
        unfinished: count(|result| result.unfinished),
        attempts: count(|result| result.attempts),
        possible_duplicates: count(|result| result.possible_duplicates),
        delay_minutes: round(predicted.delay.total_minutes - baseline.delay.total_minutes),
    }
}

/// The facts that decide how far a prediction can be trusted.
#[derive(Clone, Copy, Debug)]
struct NoteContext {
    facts: HistoryFacts,
    evidence: EvidenceCounts,
    last_attempt_at: Timestamp,
    is_cut: bool,
    /// The settings changed within the time span.
    changed_at: Option<Timestamp>,
    is_channel: bool,
    has_order: bool,
    /// Today's timeout of an attempt.
    timeout: Duration,
}

impl NoteContext {
    fn assess(
        &self,
        recorded: &WhatIfResult,
        baseline: &WhatIfResult,
        predicted: &WhatIfResult,
    ) -> WhatIfConfidence {
        let EvidenceCounts { same_delivery, nearby, guessed, .. } = self.evidence;
        let deviation = |count: fn(&WhatIfResult) -> u64| {
            let (simulated, actual) = (count(baseline), count(recorded));
            round(as_f64(simulated.abs_diff(actual)) / as_f64(actual.max(1)))
        };
        let attempts_deviation = deviation(|result| result.attempts);
        let dead_deviation = deviation(|result| result.dead);
        // A few dead letters more or less are chance.
        let chance = 3.0 * as_f64(recorded.dead.max(baseline.dead)).sqrt();
        let is_dead_off = dead_deviation > DEAD_DEVIATION_MAX
            && as_f64(recorded.dead.abs_diff(baseline.dead)) > chance;
        let deviates = attempts_deviation > DEVIATION_MAX || is_dead_off;
        let all = same_delivery + nearby + guessed;
        let guessed_share = share(guessed, all);
        let drawn_guessed = share(guessed, nearby + guessed);
        let level = match (guessed_share, drawn_guessed) {
            (of_all, of_drawn) if of_all <= 0.02 && of_drawn <= 0.2 => ConfidenceLevel::High,
            (of_all, of_drawn) if of_all <= 0.1 && of_drawn <= 0.6 => ConfidenceLevel::Medium,
            _ => ConfidenceLevel::Low,
        };
        let level = match level {
            ConfidenceLevel::High if deviates => ConfidenceLevel::Medium,
            ConfidenceLevel::Low | ConfidenceLevel::Medium if deviates => ConfidenceLevel::Low,
            ConfidenceLevel::Low | ConfidenceLevel::Medium | ConfidenceLevel::High => level,
        };
        let mut notes = Vec::new();
        if deviates {
            let values = [baseline.attempts, baseline.dead, recorded.attempts, recorded.dead];
            notes.push(WhatIfNote::new(
                WhatIfNoteKind::ModelDeviates,
                values.map(|value| value.to_string()).to_vec(),
            ));
        }
        self.add_notes(&mut notes, baseline, predicted);
        WhatIfConfidence {
            level,
            recorded_share: share(same_delivery, all),
            guessed_share,
            attempts_deviation,
            dead_deviation,
            notes,
        }
    }

    fn add_notes(
        &self,
        notes: &mut Vec<WhatIfNote>,
        baseline: &WhatIfResult,
        predicted: &WhatIfResult,
    ) {
        use WhatIfNoteKind as Kind;
        let Self { facts, evidence, .. } = *self;
        let mut add = |kind, applies: bool, values: &[&dyn ToString]| {
            if applies {
                let values = values.iter().map(|value| value.to_string()).collect();
                notes.push(WhatIfNote::new(kind, values));
            }
        };
        let count = |count: &u64| *count > 0;
        let attempts = predicted.attempts;
        let seconds = |span: Duration| HumanDuration(Duration::from_secs(span.as_secs().max(1)));
        let changed = self.changed_at.unwrap_or_default();
        let load_change = share(attempts.abs_diff(baseline.attempts), baseline.attempts);
        let held = HumanDuration(Duration::from_secs(facts.held_seconds / 60 * 60));
        let last = format_minute(self.last_attempt_at);
        add(Kind::Guessed, count(&evidence.guessed), &[&evidence.guessed, &attempts]);
        add(Kind::AfterEnd, count(&evidence.after_end), &[&last, &evidence.after_end]);
        add(Kind::Cut, self.is_cut, &[&facts.deliveries]);
        add(Kind::Open, count(&facts.open), &[&facts.open]);
        add(Kind::WithoutAttempts, count(&facts.without_attempts), &[&facts.without_attempts]);
        add(Kind::SettingsChanged, self.changed_at.is_some(), &[&format_minute(changed)]);
        add(Kind::Load, load_change >= LOAD_CHANGE_MIN, &[&attempts, &baseline.attempts]);
        add(Kind::Throttled, count(&facts.throttled), &[&facts.throttled]);
        let without_wait = facts.throttled_without_wait;
        add(Kind::RetryAfter, count(&without_wait), &[&without_wait]);
        let longer = evidence.longer_timeouts;
        add(Kind::LongerTimeout, count(&longer), &[&longer, &seconds(self.timeout)]);
        add(Kind::FailingAlone, count(&facts.failing_alone), &[&facts.failing_alone]);
        add(Kind::Held, count(&facts.held_seconds), &[&held]);
        add(Kind::Replays, count(&facts.replays), &[&facts.replays]);
        add(Kind::Cancelled, count(&facts.cancelled), &[&facts.cancelled]);
        let is_unordered = self.has_order && facts.ordered < facts.deliveries;
        add(Kind::OrderingKeys, is_unordered, &[&facts.ordered, &facts.deliveries]);
        add(Kind::Channel, self.is_channel, &[]);
        add(Kind::Jitter, attempts > predicted.deliveries, &[]);
    }
}

/// A time to the minute: `2026-11-18 21:04 UTC`.
fn format_minute(at: Timestamp) -> String {
    let text = at.to_string();
    let text = text.get(..16).unwrap_or(&text);
    format!("{} UTC", text.replace('T', " "))
}

fn share(part: u64, whole: u64) -> f64 {
    round(as_f64(part) / as_f64(whole.max(1)))
}

/// To thousandths: more would pretend a precision that is not there.
fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
