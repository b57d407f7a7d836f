//! Encodes the stages of an attempt and the reason of the next due time in one text column: adding
//! a column to a STRICT table makes SQLite read the whole table.

use std::{fmt::Write as _, time::Duration};

use surehook_guard::timing::AttemptTiming;
use surehook_retry::ScheduleReason;

use super::row::duration_millis;

/// `None` if nothing is known.
pub(crate) fn encode(
    timing: AttemptTiming,
    schedule_reason: Option<ScheduleReason>,
) -> Option<String> {
    if timing == AttemptTiming::default() && schedule_reason.is_none() {
        return None;
    }
    let AttemptTiming { dns, connect, tls, first_byte, reused } = timing;
    let mut text = String::with_capacity(40);
    for number in [dns, connect, tls, first_byte].map(|span| span.map(duration_millis)) {
        // Writing to a string does not fail.
        let _ = number.map(|number| write!(text, "{number}"));
        text.push(',');
    }
    text.push_str(reused.map_or("", |reused| if reused { "1" } else { "0" }));
    text.push(',');
    text.push_str(schedule_reason.map_or("", ScheduleReason::as_str));
    Some(text)
}

/// Reads what [`encode`] wrote; `None` if the text is damaged.
pub(crate) fn decode(text: &str) -> Option<(AttemptTiming, Option<ScheduleReason>)> {
    let parts: Vec<&str> = text.split(',').collect();
    let [dns, connect, tls, first_byte, reused, schedule_reason] = parts[..] else { return None };
    let timing = AttemptTiming {
        dns: parse_optional(dns, parse_duration).ok()?,
        connect: parse_optional(connect, parse_duration).ok()?,
        tls: parse_optional(tls, parse_duration).ok()?,
        first_byte: parse_optional(first_byte, parse_duration).ok()?,
        reused: parse_optional(reused, |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
        .ok()?,
    };
    Some((timing, parse_optional(schedule_reason, ScheduleReason::parse).ok()?))
}

fn parse_duration(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// An empty text is unknown; an unreadable one is an error.
fn parse_optional<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, ()> {
    if text.is_empty() { Ok(None) } else { read(text).map(Some).ok_or(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_timing_is_decoded() {
        let ms = |millis| Some(Duration::from_millis(millis));
        let full = AttemptTiming {
            dns: ms(0),
            connect: ms(12),
            tls: ms(25),
            first_byte: ms(140_000),
            reused: Some(false),
        };
        let reused =
            AttemptTiming { first_byte: ms(7), reused: Some(true), ..AttemptTiming::default() };
        for (timing, schedule_reason, text) in [
            (AttemptTiming::default(), None, None),
            (full, Some(ScheduleReason::Backoff), Some("0,12,25,140000,0,backoff")),
            (reused, None, Some(",,,7,1,")),
            (AttemptTiming::default(), Some(ScheduleReason::Backoff), Some(",,,,,backoff")),
        ] {
            let encoded = encode(timing, schedule_reason);
            assert_eq!(encoded.as_deref(), text);
            let read = encoded.map_or(Some((timing, schedule_reason)), |encoded| decode(&encoded));
            assert_eq!(read, Some((timing, schedule_reason)));
        }
        for wrong in ["", "1,2,3,4,0", "1,2,3,4,0,backoff,", "x,,,,,", ",,,,2,", ",,,,,whim"] {
            assert_eq!(decode(wrong), None, "case: {wrong}");
        }
    }
}
