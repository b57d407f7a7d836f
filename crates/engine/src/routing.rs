//! What one route does with an event: takes it or not, and what it makes of it.

use std::ops::Deref;

use surehook_core::{
    decision::Why,
    event::NewBody,
    ids::DeliveryId,
    jq::{Jq, JsonInput, NotJson},
    route::Route,
};

use crate::{telemetry::SourceMetrics, transform};

/// What one route does with an event: the body that is sent in place of the original, or why nothing
/// is. Only a route that has a filter or a transform asks for the body as JSON.
pub(crate) fn choose(
    route: &Route,
    delivery: DeliveryId,
    input: &dyn Deref<Target = Result<JsonInput, NotJson>>,
    kind: Option<&str>,
    metrics: &SourceMetrics,
) -> Result<Option<NewBody>, Why> {
    if let Some(filter) = &route.filter {
        // Filters can ask for the kind where the provider's body has no field for it.
        let body = input.as_ref();
        let named = kind.and_then(|kind| Some(body.ok()?.clone().with_type(kind)));
        matches(filter, named.as_ref().map_or(body, Ok), metrics)?;
    }
    let Some(transform) = &route.transform else { return Ok(None) };
    let body = match transform::run(transform, input.as_ref()) {
        Ok(Some(body)) => Some(body),
        Ok(None) => return Err(Why::DroppedByTransform),
        // The attempt tries it again and says what is wrong; the delivery is dead and can be
        // replayed when the route is mended. Sending the original instead would be a leak.
        Err(_) => {
            metrics.filter_errors.inc();
            None
        }
    };
    Ok(Some(NewBody { delivery, route: route.id, body }))
}

/// Whether a route's filter lets the event through. One that fails does not: what cannot be judged
/// is stored and visible, but goes nowhere by accident.
fn matches(
    filter: &Jq,
    input: Result<&JsonInput, &NotJson>,
    metrics: &SourceMetrics,
) -> Result<(), Why> {
    let why = match input.map(|json| filter.test(json)) {
        Ok(Ok(true)) => return Ok(()),
        Ok(Ok(false)) => return Err(Why::FilterFalse),
        Ok(Err(error)) => Why::FilterFailed(error.code().to_owned()),
        Err(_) => Why::NotJson,
    };
    metrics.filter_errors.inc();
    // Only the word for it: the message itself quotes the event.
    tracing::debug!(filter = filter.text(), why = why.word(), "a filter failed on an event");
    Err(why)
}
