//! Applies a route to an event: the filter accepts or rejects it, the transform builds the body that is
//! sent.
//!
//! Filters and transforms run when the event is received. One that failed then runs again at each
//! attempt ([`apply_failed_route`]), with the route as it is configured at that time.

use std::{borrow::Cow, cell::OnceCell, collections::HashMap};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use surehook_core::{
    decision::NotRoutedReason,
    event::{NewDeliveryBody, Payload, PendingRoute, is_never_forwarded},
    route::Route,
};
use surehook_retry::AttemptFailure;
use surehook_types::{
    ids::{DeliveryId, RouteId},
    inflate,
    name::Name,
};
use surehook_webhooks::{
    attribute::EventKind,
    jq::{EventVariables, JqError, JqFilter, JsonInput, ParseJsonInputError},
};

use crate::telemetry::SourceMetrics;

/// All valid routes.
pub(crate) type RouteTable = HashMap<RouteId, Route>;

/// An event as filters and transforms see it. The body is parsed when the first of them needs it.
pub(crate) struct RouteInput<'e> {
    headers: &'e HeaderMap,
    body: &'e [u8],
    kind: Option<&'e str>,
    variables: EventVariables<'e>,
    json: OnceCell<Result<JsonInput, ParseJsonInputError>>,
}

impl<'e> RouteInput<'e> {
    /// `is_visible` tells which headers are in `$headers`.
    pub(crate) fn new(
        headers: &'e HeaderMap,
        body: &'e [u8],
        kind: Option<&'e EventKind>,
        source: Option<&'e str>,
        is_visible: &'e dyn Fn(&HeaderName) -> bool,
    ) -> Self {
        let kind = kind.map(EventKind::as_str);
        let variables = EventVariables::new(kind, source, headers, is_visible);
        Self { headers, body, kind, variables, json: OnceCell::new() }
    }

    /// The body, decompressed; a form is an object.
    fn json(&self) -> Result<&JsonInput, &ParseJsonInputError> {
        let parse = || {
            let decoded = inflate::decode_body(self.headers, self.body);
            JsonInput::parse_request(self.headers, &decoded.unwrap_or(Cow::Borrowed(self.body)))
        };
        self.json.get_or_init(parse).as_ref()
    }

    /// Runs a filter. It can test `.type` also where the provider's body has no such field.
    pub(crate) fn run_filter(&self, filter: &JqFilter) -> Result<bool, FilterError<'_>> {
        let body = self.json().map_err(FilterError::Body)?;
        let with_type = self.kind.map(|kind| body.clone().with_type(kind));
        Ok(filter.is_match(with_type.as_ref().unwrap_or(body), &self.variables)?)
    }

    /// Runs a transform. Returns the body to send, or `None` if the event is dropped; an error is a
    /// text for people.
    pub(crate) fn run_transform(&self, transform: &JqFilter) -> Result<Option<Bytes>, String> {
        let body = self.json().map_err(ToString::to_string)?;
        let output = transform.transform(body, &self.variables);
        output.map(|text| text.map(Bytes::from)).map_err(|error| error.to_string())
    }
}

/// Whether filters and transforms see a header: those that a destination could get. `secret` are the
/// headers that carry the source's secret.
pub(crate) fn is_visible_header(name: &HeaderName, secret: &[String]) -> bool {
    !is_never_forwarded(name.as_str()) && !secret.iter().any(|header| name == header.as_str())
}

/// Applies a route to an event: returns the body that replaces the original, or why nothing is sent.
pub(crate) fn apply_route(
    route: &Route,
    delivery: DeliveryId,
    input: &RouteInput<'_>,
    metrics: &SourceMetrics,
) -> Result<Option<NewDeliveryBody>, NotRoutedReason> {
    if let Some(filter) = &route.filter {
        apply_filter(filter, input, metrics)?;
    }
    let Some(transform) = &route.transform else { return Ok(None) };
    let body = match input.run_transform(transform) {
        Ok(Some(body)) => Some(body),
        Ok(None) => return Err(NotRoutedReason::DroppedByTransform),
        // The attempt runs it again and reports the error; the delivery is then dead and can be
        // replayed once the route is fixed. Sending the original instead could leak data.
        Err(_) => {
            metrics.filter_errors.inc();
            None
        }
    };
    Ok(Some(NewDeliveryBody { delivery, route: route.id, body, filter_failed: false }))
}

/// Why a filter has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError<'b> {
    #[error(transparent)]
    Filter(#[from] JqError),
    #[error("{0}")]
    Body(&'b ParseJsonInputError),
}

/// A filter that fails does not match: the event is not sent anywhere by accident. If it reaches no
/// other destination either, it becomes a dead letter.
fn apply_filter(
    filter: &JqFilter,
    input: &RouteInput<'_>,
    metrics: &SourceMetrics,
) -> Result<(), NotRoutedReason> {
    let reason = match input.run_filter(filter) {
        Ok(true) => return Ok(()),
        Ok(false) => return Err(NotRoutedReason::FilterFalse),
        Err(FilterError::Filter(error)) => NotRoutedReason::FilterFailed(error.code().to_owned()),
        Err(FilterError::Body(_)) => NotRoutedReason::NotJson,
    };
    metrics.filter_errors.inc();
    // Only the code: the message itself quotes the event.
    tracing::debug!(
        filter = filter.text(),
        reason = reason.to_code(),
        "a route filter failed on an event"
    );
    Err(reason)
}

/// Why a route that failed before makes nothing to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteFailure {
    /// The route works now and does not take the event.
    NotRouted(NotRoutedReason),
    /// The route failed again, with a text for people.
    Failed(AttemptFailure, String),
}

/// Applies the route that failed when the event was received, as it is configured now.
pub(crate) fn apply_failed_route(
    routes: &RouteTable,
    pending: &PendingRoute,
    payload: &Payload,
    source: &Name,
    secret_headers: &[String],
) -> Result<Payload, RouteFailure> {
    let failed_step =
        if pending.runs_filter { AttemptFailure::Filter } else { AttemptFailure::Transform };
    let Some(route) = routes.get(&pending.id) else {
        let text = format!("the route whose {} failed was deleted", failed_step.as_str());
        return Err(RouteFailure::Failed(failed_step, text));
    };
    let headers = payload.head.headers.to_map();
    let is_visible = |name: &HeaderName| is_visible_header(name, secret_headers);
    let (kind, source) = (pending.kind.as_ref(), Some(source.as_str()));
    let input = RouteInput::new(&headers, &payload.body, kind, source, &is_visible);
    if let Some(filter) = route.filter.as_ref().filter(|_| pending.runs_filter) {
        let is_match = input.run_filter(filter);
        let failed = |error: FilterError<'_>| {
            RouteFailure::Failed(AttemptFailure::Filter, error.to_string())
        };
        if !is_match.map_err(failed)? {
            return Err(RouteFailure::NotRouted(NotRoutedReason::FilterFalse));
        }
    }
    // Without a transform, or if it was removed from the route, the original is sent.
    let Some(transform) = &route.transform else { return Ok(payload.clone()) };
    let failed = |text| RouteFailure::Failed(AttemptFailure::Transform, text);
    match input.run_transform(transform).map_err(failed)? {
        Some(body) => Ok(payload.with_transformed_body(body)),
        None => Err(RouteFailure::NotRouted(NotRoutedReason::DroppedByTransform)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use surehook_core::event::{HeaderBlock, RequestHead};
    use surehook_types::{
        ids::{DestinationId, SourceId},
        time::Timestamp,
    };
    use surehook_webhooks::key::fingerprint;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn route_id(number: u128) -> RouteId {
        RouteId::new(NOW, number << 100)
    }

    fn route(number: u128, filter: Option<&str>, transform: Option<&str>) -> (RouteId, Route) {
        let jq = |text: Option<&str>| text.map(|text| Arc::new(JqFilter::for_route(text)));
        let route = Route {
            id: route_id(number),
            source: SourceId::new(NOW, 1),
            destination: DestinationId::new(NOW, 1),
            to: "out".parse().unwrap(),
            filter: jq(filter),
            transform: jq(transform),
        };
        (route.id, route)
    }

    #[test]
    fn failed_route_is_applied_again_as_it_is_configured_now() {
        use NotRoutedReason::{DroppedByTransform, FilterFalse};
        let routes = RouteTable::from([
            route(1, Some("error(\"no\")"), Some("{sum: (.a + 1)}")),
            route(2, None, None),
            route(3, Some(".a > 1"), Some("error(\"no\")")),
            route(4, Some("$kind == \"paid\""), Some("empty")),
            route(5, Some(".a < 1"), None),
            route(6, Some(".a.b"), None),
            route(7, None, Some("[$source, $headers]")),
        ]);
        let body = Bytes::from_static(br#"{"a":9007199254740993}"#);
        let headers = b"x-token: secret\r\nx-one: 1\r\nauthorization: secret\r\n";
        let head = RequestHead {
            headers: HeaderBlock::from_bytes(headers.to_vec()),
            ..RequestHead::default()
        };
        let original = Payload { head: Arc::new(head), fingerprint: fingerprint(&body), body };
        let run = |number, runs_filter| {
            let kind = EventKind::new("paid");
            let pending = PendingRoute { id: route_id(number), runs_filter, kind };
            let secret = ["x-token".to_owned()];
            let source = "shop".parse().unwrap();
            let applied = apply_failed_route(&routes, &pending, &original, &source, &secret);
            applied.map(|new| String::from_utf8(new.body.to_vec()).unwrap())
        };
        let sum = Ok(r#"{"sum":9007199254740994}"#.to_owned());
        let unchanged = Ok(r#"{"a":9007199254740993}"#.to_owned());
        let headers = Ok(r#"["shop",{"x-one":"1"}]"#.to_owned());
        let failed = |step, text: &str| Err(RouteFailure::Failed(step, text.to_owned()));
        let not_routed = |reason| Err(RouteFailure::NotRouted(reason));
        let missing =
            |step| failed(step, &format!("the route whose {} failed was deleted", step.as_str()));
        let (filter, transform) = (AttemptFailure::Filter, AttemptFailure::Transform);
        for (number, runs_filter, expected) in [
            // The filter had matched when the transform failed.
            (1, false, sum),
            (1, true, failed(filter, "the filter failed: no")),
            (2, false, unchanged.clone()),
            (2, true, unchanged),
            (3, true, failed(transform, "the filter failed: no")),
            (4, true, not_routed(DroppedByTransform)),
            (5, true, not_routed(FilterFalse)),
            (7, true, headers),
            (8, false, missing(transform)),
            (8, true, missing(filter)),
        ] {
            assert_eq!(run(number, runs_filter), expected, "route {number}, {runs_filter}");
        }
        assert!(matches!(run(6, true), Err(RouteFailure::Failed(AttemptFailure::Filter, _))));
    }
}
