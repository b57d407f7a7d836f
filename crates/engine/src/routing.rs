//! What one route does with an event: takes it or not, and what it makes of it.

use std::ops::Deref;

use surehook_core::{
    decision::NotRoutedReason,
    event::NewDeliveryBody,
    ids::DeliveryId,
    jq::{JqError, JqFilter, JsonInput, ParseJsonInputError},
    route::Route,
};

use crate::{telemetry::SourceMetrics, transform};

/// What one route does with an event: the body that is sent in place of the original, or why nothing
/// is. Only a route that has a filter or a transform asks for the body as JSON.
pub(crate) fn choose(
    route: &Route,
    delivery: DeliveryId,
    input: &dyn Deref<Target = Result<JsonInput, ParseJsonInputError>>,
    kind: Option<&str>,
    metrics: &SourceMetrics,
) -> Result<Option<NewDeliveryBody>, NotRoutedReason> {
    if let Some(filter) = &route.filter {
        matches(filter, input.as_ref(), kind, metrics)?;
    }
    let Some(transform) = &route.transform else { return Ok(None) };
    let body = match transform::run(transform, input.as_ref()) {
        Ok(Some(body)) => Some(body),
        Ok(None) => return Err(NotRoutedReason::DroppedByTransform),
        // The attempt tries it again and says what is wrong; the delivery is dead and can be
        // replayed when the route is mended. Sending the original instead would be a leak.
        Err(_) => {
            metrics.filter_errors.inc();
            None
        }
    };
    Ok(Some(NewDeliveryBody { delivery, route: route.id, body }))
}

/// Why a filter came to no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError<'b> {
    /// It failed on this event.
    #[error(transparent)]
    Filter(#[from] JqError),
    /// There is nothing that it could look at.
    #[error("{0}")]
    Body(&'b ParseJsonInputError),
}

/// What a filter says of an event. It can ask for the kind where the provider's body has no field for
/// it.
pub(crate) fn test<'b>(
    filter: &JqFilter,
    input: Result<&JsonInput, &'b ParseJsonInputError>,
    kind: Option<&str>,
) -> Result<bool, FilterError<'b>> {
    let body = input.map_err(FilterError::Body)?;
    let named = kind.map(|kind| body.clone().with_type(kind));
    Ok(filter.is_match(named.as_ref().unwrap_or(body))?)
}

/// Whether a route's filter lets the event through. One that fails does not: what cannot be judged
/// is stored and visible, but goes nowhere by accident.
fn matches(
    filter: &JqFilter,
    input: Result<&JsonInput, &ParseJsonInputError>,
    kind: Option<&str>,
    metrics: &SourceMetrics,
) -> Result<(), NotRoutedReason> {
    let why = match test(filter, input, kind) {
        Ok(true) => return Ok(()),
        Ok(false) => return Err(NotRoutedReason::FilterFalse),
        Err(FilterError::Filter(error)) => NotRoutedReason::FilterFailed(error.code().to_owned()),
        Err(FilterError::Body(_)) => NotRoutedReason::NotJson,
    };
    metrics.filter_errors.inc();
    // Only the word for it: the message itself quotes the event.
    tracing::debug!(filter = filter.text(), why = why.word(), "a filter failed on an event");
    Err(why)
}
