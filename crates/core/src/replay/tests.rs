//! Which jobs make sense, and which may run side by side.

use super::*;

fn spec(action: ReplayAction) -> ReplaySpec {
    ReplaySpec {
        action,
        filter: ReplayFilter::default(),
        to: (action == ReplayAction::SendMissing).then(|| destination(9)),
        rate: ReplayRate::default(),
        note: None,
    }
}

fn filtered(action: ReplayAction, filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { filter, ..spec(action) }
}

fn destination(number: u128) -> DestinationId {
    DestinationId::new(Timestamp::from_millis(1), number << 100)
}

fn source(number: u128) -> SourceId {
    SourceId::new(Timestamp::from_millis(1), number << 100)
}

fn at(millis: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millis(millis))
}

#[test]
fn invalid_replay_jobs_are_rejected() {
    let none = ReplayFilter::default;
    let long = |many| Some("é".repeat(many));
    let group = Some(GroupId::from_uuid(uuid::Uuid::nil()));
    let cases = [
        (spec(ReplayAction::RetryFailed), None),
        (spec(ReplayAction::SendMissing), None),
        (spec(ReplayAction::ForceResend), None),
        (
            ReplaySpec { to: None, ..spec(ReplayAction::SendMissing) },
            Some(ReplaySpecError::MissingTo),
        ),
        (
            ReplaySpec { to: Some(destination(1)), ..spec(ReplayAction::RetryFailed) },
            Some(ReplaySpecError::UnexpectedTo),
        ),
        (
            filtered(
                ReplayAction::SendMissing,
                ReplayFilter { class: Some(FailureClass::Config), ..none() },
            ),
            Some(ReplaySpecError::DeliveryFilterForEvents),
        ),
        (
            filtered(
                ReplayAction::RetryFailed,
                ReplayFilter { status: Some(DeliveryStatus::Succeeded), ..none() },
            ),
            Some(ReplaySpecError::Status),
        ),
        (
            filtered(
                ReplayAction::ForceResend,
                ReplayFilter { status: Some(DeliveryStatus::Pending), ..none() },
            ),
            Some(ReplaySpecError::Status),
        ),
        (
            filtered(
                ReplayAction::RetryFailed,
                ReplayFilter { status: Some(DeliveryStatus::Dead), ..none() },
            ),
            None,
        ),
        (
            filtered(
                ReplayAction::ForceResend,
                ReplayFilter {
                    status: Some(DeliveryStatus::Succeeded),
                    reason: Some(DeadReason::Expired),
                    ..none()
                },
            ),
            Some(ReplaySpecError::Reason),
        ),
        (
            filtered(
                ReplayAction::ForceResend,
                ReplayFilter { status: Some(DeliveryStatus::Succeeded), group, ..none() },
            ),
            Some(ReplaySpecError::Reason),
        ),
        (
            filtered(ReplayAction::SendMissing, ReplayFilter { group, ..none() }),
            Some(ReplaySpecError::DeliveryFilterForEvents),
        ),
        (filtered(ReplayAction::ForceResend, ReplayFilter { group, ..none() }), None),
        (
            filtered(
                ReplayAction::RetryFailed,
                ReplayFilter { since: at(5), until: at(5), ..none() },
            ),
            Some(ReplaySpecError::TimeRange),
        ),
        (
            filtered(
                ReplayAction::RetryFailed,
                ReplayFilter { search: Some(String::new()), ..none() },
            ),
            Some(ReplaySpecError::Text),
        ),
        (filtered(ReplayAction::RetryFailed, ReplayFilter { search: long(200), ..none() }), None),
        (
            filtered(ReplayAction::RetryFailed, ReplayFilter { search: long(201), ..none() }),
            Some(ReplaySpecError::Text),
        ),
        (
            filtered(
                ReplayAction::RetryFailed,
                ReplayFilter { key: Some(String::new()), ..none() },
            ),
            Some(ReplaySpecError::Text),
        ),
        (
            ReplaySpec { note: long(501), ..spec(ReplayAction::RetryFailed) },
            Some(ReplaySpecError::Text),
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(spec.check().err(), expected, "case: {spec:?}");
    }
}

#[test]
fn jobs_overlap_unless_immutable_facts_differ() {
    use ReplayAction::{ForceResend, RetryFailed, SendMissing};
    let none = ReplayFilter::default;
    let to = |number| ReplayFilter { destination: Some(destination(number)), ..none() };
    let from = |number| ReplayFilter { source: Some(source(number)), ..none() };
    let kind = |kind: &str| ReplayFilter { kind: EventKind::new(kind), ..none() };
    let key = |key: &str| ReplayFilter { key: Some(key.to_owned()), ..none() };
    let span = |since, until| ReplayFilter { since, until, ..none() };
    let because = |reason| ReplayFilter { reason: Some(reason), ..none() };
    let missing = |number| ReplaySpec { to: Some(destination(number)), ..spec(SendMissing) };
    let cases = [
        (spec(RetryFailed), spec(RetryFailed), true),
        (spec(RetryFailed), spec(ForceResend), true),
        (spec(RetryFailed), spec(SendMissing), false),
        (filtered(RetryFailed, to(1)), filtered(ForceResend, to(1)), true),
        (filtered(RetryFailed, to(1)), filtered(ForceResend, to(2)), false),
        (filtered(RetryFailed, to(1)), spec(ForceResend), true),
        (filtered(RetryFailed, from(1)), filtered(RetryFailed, from(2)), false),
        (filtered(RetryFailed, from(1)), filtered(RetryFailed, to(1)), true),
        (filtered(RetryFailed, key("a")), filtered(RetryFailed, key("b")), false),
        (filtered(RetryFailed, kind("a")), filtered(RetryFailed, kind("b")), false),
        (filtered(RetryFailed, kind("a")), filtered(RetryFailed, kind("a")), true),
        (filtered(RetryFailed, span(None, at(5))), filtered(RetryFailed, span(at(5), None)), false),
        (filtered(RetryFailed, span(None, at(6))), filtered(RetryFailed, span(at(5), None)), true),
        (
            filtered(RetryFailed, because(DeadReason::Expired)),
            filtered(RetryFailed, because(DeadReason::MaxRetries)),
            true,
        ),
        (missing(1), missing(2), false),
        (missing(1), missing(1), true),
    ];
    for (one, other, expected) in cases {
        assert_eq!(one.may_overlap(&other), expected, "{one:?} and {other:?}");
        assert_eq!(other.may_overlap(&one), expected, "it does not matter which came first");
    }
}

#[test]
fn replay_job_round_trips_through_json() {
    let filter = ReplayFilter {
        source: Some(source(1)),
        kind: EventKind::new("message"),
        destination: Some(destination(2)),
        status: Some(DeliveryStatus::Dead),
        reason: Some(DeadReason::MaxRetries),
        group: Some(GroupId::from_uuid(uuid::Uuid::nil())),
        class: Some(FailureClass::Transient),
        code: Some(StatusPattern::Class(5)),
        since: at(1_000),
        until: at(2_000),
        key: Some("k".to_owned()),
        search: Some("refused".to_owned()),
    };
    let note = Some("the CRM was down".to_owned());
    let whole = ReplaySpec { note, ..filtered(ReplayAction::RetryFailed, filter) };
    for spec in [whole, spec(ReplayAction::SendMissing), spec(ReplayAction::ForceResend)] {
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ReplaySpec>(&json).unwrap(), spec, "{json}");
    }
    for action in ReplayAction::ALL {
        assert_eq!(ReplayAction::parse(action.as_str()), Some(action));
    }
}
