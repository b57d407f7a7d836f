//! Failure classes, the reasons for giving up, and the reasons for the time of the next attempt.

use surehook_types::string_enum;

string_enum! {
    /// The kind of failure of an attempt.
    pub enum FailureClass {
        /// May succeed later.
        Transient = "transient",
        /// The destination asks to slow down.
        Throttled = "throttled",
        /// The destination will never accept this event.
        Permanent = "permanent",
        /// The destination accepts no event until its settings are fixed.
        Config = "config",
        /// It is unknown whether the event arrived.
        Ambiguous = "ambiguous",
    }
}

string_enum! {
    /// Why a delivery was given up.
    pub enum DeadReason {
        /// The retry policy's attempts are used up.
        MaxRetries = "max_retries",
        /// The settings of the destination are wrong.
        InvalidEndpoint = "invalid_endpoint",
        /// The destination rejects this body.
        PayloadError = "payload_error",
        /// The destination rejects the event permanently.
        Unrecoverable = "unrecoverable",
        /// Older than the retry policy allows.
        Expired = "expired",
        /// It is unknown whether it arrived, and it must not be sent twice.
        Ambiguous = "ambiguous",
    }
}

string_enum! {
    /// Where the time of the next attempt comes from.
    pub enum ScheduleReason {
        /// The backoff of the retry policy, jitter included.
        Backoff = "backoff",
        /// The destination sent `Retry-After`.
        RetryAfter = "retry_after",
        /// The service asked to back off for this long.
        ServiceWait = "service_wait",
        /// It is unknown whether it arrived; a status update may tell until then.
        StatusAwaited = "status_awaited",
        /// The answer paused the destination; it has to be resumed first.
        Paused = "paused",
        /// Later deliveries of its ordering key wait for it, so it is not given up.
        KeepsOrder = "keeps_order",
        /// The gateway shut down during the attempt.
        Interrupted = "interrupted",
        /// A status update during the attempt said that it failed and when to retry.
        StatusFailed = "status_failed",
    }
}

impl ScheduleReason {
    /// Explanation for people, for the attempt with this number.
    pub fn describe(self, number: u32) -> String {
        let text = match self {
            Self::Backoff => {
                return format!("retry policy backoff after attempt {number}");
            }
            Self::RetryAfter => "the destination sent Retry-After",
            Self::ServiceWait => "the service asked us to back off",
            Self::StatusAwaited => "waiting for a status update",
            Self::Paused => "the destination is paused; resume it first",
            Self::KeepsOrder => "later deliveries of its ordering key wait for it",
            Self::Interrupted => "the gateway shut down during the attempt",
            Self::StatusFailed => "a status update reported a failure",
        };
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schedule_reason_parses_from_its_name_and_serializes_to_it() {
        for reason in ScheduleReason::ALL {
            assert_eq!(ScheduleReason::parse(reason.as_str()), Some(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            assert!(!reason.describe(3).is_empty());
        }
        assert_eq!(ScheduleReason::parse("whim"), None);
    }
}
