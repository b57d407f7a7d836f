//! Which jobs make sense, and which may run side by side.

use super::*;

fn spec(verb: Verb) -> ReplaySpec {
    ReplaySpec {
        verb,
        filter: ReplayFilter::default(),
        to: (verb == Verb::SendMissing).then(|| destination(9)),
        rate: Pace::default(),
        note: None,
    }
}

fn filtered(verb: Verb, filter: ReplayFilter) -> ReplaySpec {
    ReplaySpec { filter, ..spec(verb) }
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
fn what_makes_no_sense_is_refused() {
    let none = ReplayFilter::default;
    let long = |many| Some("é".repeat(many));
    let group = Some(GroupId::from_uuid(uuid::Uuid::nil()));
    let cases = [
        (spec(Verb::RetryFailed), None),
        (spec(Verb::SendMissing), None),
        (spec(Verb::ForceResend), None),
        (ReplaySpec { to: None, ..spec(Verb::SendMissing) }, Some(InvalidReplay::ToIsMissing)),
        (
            ReplaySpec { to: Some(destination(1)), ..spec(Verb::RetryFailed) },
            Some(InvalidReplay::ToIsTooMuch),
        ),
        (
            filtered(Verb::SendMissing, ReplayFilter { class: Some(Class::Config), ..none() }),
            Some(InvalidReplay::NotOfEvents),
        ),
        (
            filtered(Verb::RetryFailed, ReplayFilter { status: Some(Status::Succeeded), ..none() }),
            Some(InvalidReplay::Status),
        ),
        (
            filtered(Verb::ForceResend, ReplayFilter { status: Some(Status::Pending), ..none() }),
            Some(InvalidReplay::Status),
        ),
        (filtered(Verb::RetryFailed, ReplayFilter { status: Some(Status::Dead), ..none() }), None),
        (
            filtered(
                Verb::ForceResend,
                ReplayFilter {
                    status: Some(Status::Succeeded),
                    reason: Some(DeadReason::Expired),
                    ..none()
                },
            ),
            Some(InvalidReplay::Reason),
        ),
        (
            filtered(
                Verb::ForceResend,
                ReplayFilter { status: Some(Status::Succeeded), group, ..none() },
            ),
            Some(InvalidReplay::Reason),
        ),
        (
            filtered(Verb::SendMissing, ReplayFilter { group, ..none() }),
            Some(InvalidReplay::NotOfEvents),
        ),
        (filtered(Verb::ForceResend, ReplayFilter { group, ..none() }), None),
        (
            filtered(Verb::RetryFailed, ReplayFilter { since: at(5), until: at(5), ..none() }),
            Some(InvalidReplay::Span),
        ),
        (
            filtered(Verb::RetryFailed, ReplayFilter { search: Some(String::new()), ..none() }),
            Some(InvalidReplay::Text),
        ),
        (filtered(Verb::RetryFailed, ReplayFilter { search: long(200), ..none() }), None),
        (
            filtered(Verb::RetryFailed, ReplayFilter { search: long(201), ..none() }),
            Some(InvalidReplay::Text),
        ),
        (
            filtered(Verb::RetryFailed, ReplayFilter { key: Some(String::new()), ..none() }),
            Some(InvalidReplay::Text),
        ),
        (ReplaySpec { note: long(501), ..spec(Verb::RetryFailed) }, Some(InvalidReplay::Text)),
    ];
    for (spec, expected) in cases {
        assert_eq!(spec.check().err(), expected, "case: {spec:?}");
    }
}

#[test]
fn jobs_overlap_unless_facts_keep_them_apart() {
    use Verb::{ForceResend, RetryFailed, SendMissing};
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
fn a_job_is_written_and_read_back() {
    let filter = ReplayFilter {
        source: Some(source(1)),
        kind: EventKind::new("message"),
        destination: Some(destination(2)),
        status: Some(Status::Dead),
        reason: Some(DeadReason::MaxRetries),
        group: Some(GroupId::from_uuid(uuid::Uuid::nil())),
        class: Some(Class::Transient),
        code: Some(Code::Hundred(5)),
        since: at(1_000),
        until: at(2_000),
        key: Some("k".to_owned()),
        search: Some("refused".to_owned()),
    };
    let note = Some("the CRM was down".to_owned());
    let whole = ReplaySpec { note, ..filtered(Verb::RetryFailed, filter) };
    for spec in [whole, spec(Verb::SendMissing), spec(Verb::ForceResend)] {
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ReplaySpec>(&json).unwrap(), spec, "{json}");
    }
    for verb in Verb::ALL {
        assert_eq!(Verb::from_word(verb.as_str()), Some(verb));
    }
}
