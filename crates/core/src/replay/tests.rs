//! Which jobs make sense, and which may run side by side.

use ReplayAction::{ForceResend, RetryFailed, SendMissing};

use super::*;

fn spec(action: ReplayAction) -> ReplaySpec {
    ReplaySpec {
        action,
        filter: ReplayFilter::default(),
        to: (action == SendMissing).then(|| destination(9)),
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
    use ReplaySpecError::{
        DeliveryFilterForEvents, MissingTo, Reason, Status, Text, TimeRange, UnexpectedTo,
    };
    let none = ReplayFilter::default;
    let status = |status| ReplayFilter { status: Some(status), ..none() };
    let search = |search| ReplayFilter { search, ..none() };
    let long = |length| Some("é".repeat(length));
    let group = Some(GroupId::from_uuid(uuid::Uuid::nil()));
    let cases = [
        (spec(RetryFailed), None),
        (spec(SendMissing), None),
        (spec(ForceResend), None),
        (ReplaySpec { to: None, ..spec(SendMissing) }, Some(MissingTo)),
        (ReplaySpec { to: Some(destination(1)), ..spec(RetryFailed) }, Some(UnexpectedTo)),
        (
            filtered(SendMissing, ReplayFilter { class: Some(FailureClass::Config), ..none() }),
            Some(DeliveryFilterForEvents),
        ),
        (filtered(RetryFailed, status(DeliveryStatus::Succeeded)), Some(Status)),
        (filtered(ForceResend, status(DeliveryStatus::Pending)), Some(Status)),
        (filtered(RetryFailed, status(DeliveryStatus::Dead)), None),
        (
            filtered(
                ForceResend,
                ReplayFilter {
                    status: Some(DeliveryStatus::Succeeded),
                    reason: Some(DeadReason::Expired),
                    ..none()
                },
            ),
            Some(Reason),
        ),
        (
            filtered(
                ForceResend,
                ReplayFilter { status: Some(DeliveryStatus::Succeeded), group, ..none() },
            ),
            Some(Reason),
        ),
        (filtered(SendMissing, ReplayFilter { group, ..none() }), Some(DeliveryFilterForEvents)),
        (filtered(ForceResend, ReplayFilter { group, ..none() }), None),
        (
            filtered(RetryFailed, ReplayFilter { since: at(5), until: at(5), ..none() }),
            Some(TimeRange),
        ),
        (filtered(RetryFailed, search(Some(String::new()))), Some(Text)),
        (filtered(RetryFailed, search(long(200))), None),
        (filtered(RetryFailed, search(long(201))), Some(Text)),
        (filtered(RetryFailed, ReplayFilter { key: Some(String::new()), ..none() }), Some(Text)),
        (ReplaySpec { note: long(501), ..spec(RetryFailed) }, Some(Text)),
    ];
    for (spec, expected) in cases {
        assert_eq!(spec.check().err(), expected, "case: {spec:?}");
    }
}

#[test]
fn jobs_overlap_unless_immutable_facts_differ() {
    let none = ReplayFilter::default;
    let to = |number| ReplayFilter { destination: Some(destination(number)), ..none() };
    let from = |number| ReplayFilter { source: Some(source(number)), ..none() };
    let kind = |kind: &str| ReplayFilter { kind: EventKind::new(kind), ..none() };
    let key = |key: &str| ReplayFilter { key: Some(key.to_owned()), ..none() };
    let range = |since, until| ReplayFilter { since, until, ..none() };
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
        (
            filtered(RetryFailed, range(None, at(5))),
            filtered(RetryFailed, range(at(5), None)),
            false,
        ),
        (
            filtered(RetryFailed, range(None, at(6))),
            filtered(RetryFailed, range(at(5), None)),
            true,
        ),
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
    let full = ReplaySpec { note, ..filtered(RetryFailed, filter) };
    for spec in [full, spec(SendMissing), spec(ForceResend)] {
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ReplaySpec>(&json).unwrap(), spec, "{json}");
    }
    for action in ReplayAction::ALL {
        assert_eq!(ReplayAction::parse(action.as_str()), Some(action));
    }
}
