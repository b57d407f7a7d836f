//! What a route does with an event: its filter takes it or not, its transform makes the body that is
//! sent.
//!
//! Filters and transforms run when the event is received. A transform that failed then is run again at
//! each attempt ([`run_failed_transform`]), with the route as it is configured at that time.

use std::{borrow::Cow, collections::HashMap, ops::Deref, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use surehook_core::{
    decision::NotRoutedReason,
    event::{NewDeliveryBody, Payload},
    route::Route,
};
use surehook_types::{
    ids::{DeliveryId, RouteId},
    inflate,
};
use surehook_webhooks::jq::{JqError, JqFilter, JsonInput, ParseJsonInputError};

use crate::telemetry::SourceMetrics;

/// The transforms of all routes; a route without a transform is present with `None`.
pub(crate) type RouteTransforms = HashMap<RouteId, Option<Arc<JqFilter>>>;

/// A body as filters and transforms see it, decompressed.
pub(crate) fn json_input(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<JsonInput, ParseJsonInputError> {
    let plain = inflate::decode_body(headers, body);
    JsonInput::parse(&plain.unwrap_or(Cow::Borrowed(body)))
}

/// Applies a route to an event: returns the body that replaces the original, or why nothing is sent.
/// `input` is only evaluated if the route has a filter or a transform.
pub(crate) fn apply_route(
    route: &Route,
    delivery: DeliveryId,
    input: &dyn Deref<Target = Result<JsonInput, ParseJsonInputError>>,
    kind: Option<&str>,
    metrics: &SourceMetrics,
) -> Result<Option<NewDeliveryBody>, NotRoutedReason> {
    if let Some(filter) = &route.filter {
        apply_filter(filter, input.as_ref(), kind, metrics)?;
    }
    let Some(transform) = &route.transform else { return Ok(None) };
    let body = match run_transform(transform, input.as_ref()) {
        Ok(Some(body)) => Some(body),
        Ok(None) => return Err(NotRoutedReason::DroppedByTransform),
        // The attempt runs it again and reports the error; the delivery is then dead and can be
        // replayed once the route is fixed. Sending the original instead could leak data.
        Err(_) => {
            metrics.filter_errors.inc();
            None
        }
    };
    Ok(Some(NewDeliveryBody { delivery, route: route.id, body }))
}

/// Why a filter has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError<'b> {
    #[error(transparent)]
    Filter(#[from] JqError),
    #[error("{0}")]
    Body(&'b ParseJsonInputError),
}

/// Runs a filter. It can test `.type` also where the provider's body has no such field.
pub(crate) fn run_filter<'b>(
    filter: &JqFilter,
    input: Result<&JsonInput, &'b ParseJsonInputError>,
    kind: Option<&str>,
) -> Result<bool, FilterError<'b>> {
    let body = input.map_err(FilterError::Body)?;
    let with_type = kind.map(|kind| body.clone().with_type(kind));
    Ok(filter.is_match(with_type.as_ref().unwrap_or(body))?)
}

/// A filter that fails does not match: the event is stored and visible, but is not sent anywhere by
/// accident.
fn apply_filter(
    filter: &JqFilter,
    input: Result<&JsonInput, &ParseJsonInputError>,
    kind: Option<&str>,
    metrics: &SourceMetrics,
) -> Result<(), NotRoutedReason> {
    let why = match run_filter(filter, input, kind) {
        Ok(true) => return Ok(()),
        Ok(false) => return Err(NotRoutedReason::FilterFalse),
        Err(FilterError::Filter(error)) => NotRoutedReason::FilterFailed(error.code().to_owned()),
        Err(FilterError::Body(_)) => NotRoutedReason::NotJson,
    };
    metrics.filter_errors.inc();
    // Only the code: the message itself quotes the event.
    tracing::debug!(
        filter = filter.text(),
        why = why.to_code(),
        "a route filter failed on an event"
    );
    Err(why)
}

/// Runs a transform. Returns the body to send, or `None` if the event is dropped; an error is a text
/// for people.
pub(crate) fn run_transform(
    transform: &JqFilter,
    input: Result<&JsonInput, &ParseJsonInputError>,
) -> Result<Option<Bytes>, String> {
    let input = input.map_err(ToString::to_string)?;
    let output = transform.transform(input).map_err(|error| error.to_string())?;
    Ok(output.map(Bytes::from))
}

/// Runs the transform that failed when the event was received, as the route is configured now.
pub(crate) fn run_failed_transform(
    transforms: &RouteTransforms,
    route: RouteId,
    payload: &Payload,
) -> Result<Payload, String> {
    let transform = match transforms.get(&route) {
        Some(Some(transform)) => transform,
        // The transform was removed from the route, so the original is sent.
        Some(None) => return Ok(payload.clone()),
        None => return Err("the route whose transform failed was deleted".to_owned()),
    };
    let input = json_input(&payload.head.headers.to_map(), &payload.body);
    match run_transform(transform, input.as_ref())? {
        Some(body) => Ok(payload.with_transformed_body(body)),
        None => Err("the transform now drops this event; nothing was sent".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use surehook_core::event::{HeaderBlock, RequestHead};
    use surehook_types::time::Timestamp;
    use surehook_webhooks::key::fingerprint;

    use super::*;

    #[test]
    fn failed_transform_runs_again_with_the_current_route() {
        let id = |number: u128| RouteId::new(Timestamp::from_millis(1), number << 100);
        let jq = |text| Some(Arc::new(JqFilter::compile(text).unwrap()));
        let transforms = RouteTransforms::from([
            (id(1), jq("{sum: (.a + 1)}")),
            (id(2), None),
            (id(3), jq("error(\"no\")")),
            (id(4), jq("empty")),
        ]);
        let body = Bytes::from_static(br#"{"a":9007199254740993}"#);
        let head = RequestHead {
            headers: HeaderBlock::from_bytes(b"content-type: text/plain\r\n".to_vec()),
            ..RequestHead::default()
        };
        let original = Payload { head: Arc::new(head), fingerprint: fingerprint(&body), body };
        let run =
            |number| run_failed_transform(&transforms, id(number), &original).map(|new| new.body);

        assert_eq!(run(1).as_deref(), Ok(&br#"{"sum":9007199254740994}"#[..]));
        assert_eq!(run(2).as_ref(), Ok(&original.body));
        assert_eq!(run(3), Err("the filter failed: no".to_owned()));
        assert!(run(4).is_err_and(|why| why.contains("drops")));
        assert!(run(5).is_err_and(|why| why.contains("deleted")));
    }
}
