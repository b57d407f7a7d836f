//! Classification of results in other programs: the trait [`Classify`] and its implementations.
//!
//! The class of a result decides whether and when [`crate::Retrier`] attempts again.

use http::{Response, header::RETRY_AFTER};

use crate::{
    AmbiguousPolicy, AttemptOutcome, DeadReason, FailureClass, RetryAfter, SendOutcome,
    StatusRules, classify,
};

/// The class of one attempt: a success, or a kind of failure that is retried or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptClass {
    failure: Option<FailureClass>,
    retry_after: Option<RetryAfter>,
}

impl AttemptClass {
    /// A success.
    pub const SUCCESS: Self = Self { failure: None, retry_after: None };
    /// A failure that may pass: it is retried.
    pub const TRANSIENT: Self = Self::failed(FailureClass::Transient);
    /// The server asks to slow down: it is retried.
    pub const THROTTLED: Self = Self::failed(FailureClass::Throttled);
    /// A failure that will not pass: it is not retried.
    pub const PERMANENT: Self = Self::failed(FailureClass::Permanent);

    /// A failure of this class. Only [`FailureClass::Transient`] and [`FailureClass::Throttled`] are
    /// retried.
    pub const fn failed(class: FailureClass) -> Self {
        Self { failure: Some(class), retry_after: None }
    }

    /// Sets the wait that the server asked for. Waits that are shorter than the policy's delay or a
    /// second are raised to it, waits of more than a day are cut.
    #[must_use]
    pub const fn with_retry_after(mut self, retry_after: Option<RetryAfter>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// The kind of failure; `None` for a success.
    pub const fn failure(self) -> Option<FailureClass> {
        self.failure
    }

    /// The wait that the server asked for.
    pub const fn retry_after(self) -> Option<RetryAfter> {
        self.retry_after
    }

    /// Converts the class to the input of [`crate::decide_retry`].
    pub(crate) fn to_outcome(self) -> AttemptOutcome {
        AttemptOutcome::Interpreted(SendOutcome {
            retry_after: self.retry_after,
            // Without a reason it would wait for a person to change the settings.
            reason: (self.failure == Some(FailureClass::Config))
                .then_some(DeadReason::InvalidEndpoint),
            on_ambiguous: AmbiguousPolicy::Park,
            ..SendOutcome::of(self.failure)
        })
    }
}

/// Decides the class of the result of an attempt.
///
/// Any `Fn(&Result<T, E>) -> AttemptClass` implements it; [`on_error`] takes a function of the error.
/// The result as a whole is classified, because many HTTP clients return a status 503 as `Ok`.
pub trait Classify<T, E> {
    /// The class of this result.
    fn classify(&self, result: &Result<T, E>) -> AttemptClass;
}

impl<T, E, F: Fn(&Result<T, E>) -> AttemptClass> Classify<T, E> for F {
    fn classify(&self, result: &Result<T, E>) -> AttemptClass {
        self(result)
    }
}

/// Retries every error: each `Err` is transient, each `Ok` a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EveryErrorClassifier;

impl<T, E> Classify<T, E> for EveryErrorClassifier {
    fn classify(&self, result: &Result<T, E>) -> AttemptClass {
        if result.is_ok() { AttemptClass::SUCCESS } else { AttemptClass::TRANSIENT }
    }
}

/// Classifies errors with this function; each `Ok` is a success.
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use surehook_retry::{AttemptClass, Classify, on_error};
///
/// let classifier = on_error(|error: &Error| match error.kind() {
///     ErrorKind::NotFound | ErrorKind::PermissionDenied => AttemptClass::PERMANENT,
///     _ => AttemptClass::TRANSIENT,
/// });
/// let missing: Result<(), _> = Err(Error::from(ErrorKind::NotFound));
/// assert_eq!(classifier.classify(&missing), AttemptClass::PERMANENT);
/// ```
pub const fn on_error<E, F: Fn(&E) -> AttemptClass>(classify: F) -> ErrorClassifier<F> {
    ErrorClassifier(classify)
}

/// A classifier made by [`on_error`].
#[derive(Clone, Copy, Debug)]
pub struct ErrorClassifier<F>(F);

impl<T, E, F: Fn(&E) -> AttemptClass> Classify<T, E> for ErrorClassifier<F> {
    fn classify(&self, result: &Result<T, E>) -> AttemptClass {
        result.as_ref().map_or_else(&self.0, |_| AttemptClass::SUCCESS)
    }
}

/// Classifies HTTP responses by the status table that the gateway uses.
///
/// | class | status | |
/// | --- | --- | --- |
/// | success | 2xx | |
/// | transient | 408, 425, 5xx, redirects other than 301 and 308, everything else | retried |
/// | throttled | 429; 503 with `Retry-After` | retried |
/// | config | 301, 308, 401, 403, 404, 405, 410 | not retried |
/// | permanent | every other 4xx | not retried |
///
/// `Retry-After` is honored in both forms. Every `Err` of the client is transient; wrap this type if
/// some of your client's errors are not. [`StatusRules`] override single statuses.
#[derive(Clone, Debug, Default)]
pub struct HttpClassifier {
    rules: StatusRules,
}

impl HttpClassifier {
    /// The status table with exceptions.
    pub const fn with_rules(rules: StatusRules) -> Self {
        Self { rules }
    }

    /// The class of a response with this status and this value of `Retry-After`, for HTTP clients
    /// that have their own response types.
    ///
    /// ```
    /// use surehook_retry::{FailureClass, HttpClassifier};
    ///
    /// let class = HttpClassifier::default().classify_status(503, Some("120"));
    /// assert_eq!(class.failure(), Some(FailureClass::Throttled));
    /// ```
    pub fn classify_status(&self, status: u16, retry_after: Option<&str>) -> AttemptClass {
        let retry_after = retry_after.and_then(RetryAfter::parse);
        let failure = classify(&AttemptOutcome::Answered { status, retry_after }, &self.rules);
        AttemptClass { failure, retry_after }
    }
}

impl<B, E> Classify<Response<B>, E> for HttpClassifier {
    fn classify(&self, result: &Result<Response<B>, E>) -> AttemptClass {
        match result {
            Ok(response) => {
                let retry_after = response.headers().get(RETRY_AFTER);
                let retry_after = retry_after.and_then(|value| value.to_str().ok());
                self.classify_status(response.status().as_u16(), retry_after)
            }
            Err(_) => AttemptClass::TRANSIENT,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use surehook_types::time::Timestamp;

    use super::*;

    fn response(status: u16, retry_after: Option<&str>) -> Result<Response<()>, ()> {
        let mut response = Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        Ok(response.body(()).unwrap())
    }

    #[test]
    fn responses_are_classified_by_the_table_of_the_gateway() {
        let classifier = HttpClassifier::default();
        for status in 100..=999 {
            let outcome = AttemptOutcome::Answered { status, retry_after: None };
            let expected = classify(&outcome, &StatusRules::none());
            assert_eq!(classifier.classify(&response(status, None)).failure(), expected);
        }
        assert_eq!(
            Classify::<Response<()>, _>::classify(&classifier, &Err(())),
            AttemptClass::TRANSIENT
        );
    }

    #[test]
    fn both_forms_of_retry_after_are_read_from_a_response() {
        let date = Timestamp::from_millis(1_763_193_690_000);
        let cases = [
            ("90", Some(RetryAfter::Delay(Duration::from_secs(90)))),
            ("Sat, 15 Nov 2025 08:01:30 GMT", Some(RetryAfter::At(date))),
            ("soon", None),
        ];
        for (text, expected) in cases {
            let class = HttpClassifier::default().classify(&response(429, Some(text)));
            assert_eq!(class.retry_after(), expected, "case: {text}");
            assert_eq!(class.failure(), Some(FailureClass::Throttled), "case: {text}");
        }
    }

    #[test]
    fn status_rules_override_the_table() {
        let rules = serde_json::from_str::<Vec<_>>(r#"[{"status":409,"then":"retry"}]"#).unwrap();
        let classifier = HttpClassifier::with_rules(StatusRules::new(&rules).unwrap());
        assert_eq!(classifier.classify(&response(409, None)), AttemptClass::TRANSIENT);
        assert_eq!(classifier.classify(&response(400, None)), AttemptClass::PERMANENT);
    }

    #[test]
    fn functions_and_errors_are_classifiers() {
        let by_value = |result: &Result<u8, ()>| match result {
            Ok(0) => AttemptClass::TRANSIENT,
            Ok(_) => AttemptClass::SUCCESS,
            Err(()) => AttemptClass::PERMANENT,
        };
        assert_eq!(by_value.classify(&Ok(0)), AttemptClass::TRANSIENT);
        assert_eq!(by_value.classify(&Err(())), AttemptClass::PERMANENT);
        assert_eq!(EveryErrorClassifier.classify(&Err::<(), _>("no")), AttemptClass::TRANSIENT);
        assert_eq!(EveryErrorClassifier.classify(&Ok::<_, ()>(1)), AttemptClass::SUCCESS);
        let throttled = on_error(|_: &()| AttemptClass::THROTTLED);
        assert_eq!(throttled.classify(&Err::<(), _>(())), AttemptClass::THROTTLED);
        assert_eq!(throttled.classify(&Ok(())), AttemptClass::SUCCESS);
    }
}
