//! A route: which events of a source go to which destination.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use surehook_types::{
    ids::{DestinationId, RouteId, SourceId},
    name::Name,
};
use surehook_webhooks::jq::{JqError, JqFilter};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    pub from: Name,
    pub to: Name,
    /// jq expression that selects events; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// jq expression whose output is sent instead of the body; no output drops the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
}

/// A route in use. Its filter and transform are compiled when the first event needs them.
#[derive(Clone, Debug)]
pub struct Route {
    pub id: RouteId,
    pub source: SourceId,
    pub destination: DestinationId,
    /// Name of the destination.
    pub to: Name,
    pub filter: Option<Arc<JqFilter>>,
    pub transform: Option<Arc<JqFilter>>,
}

/// An invalid filter or transform.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {error}")]
pub struct RouteSpecError {
    /// `filter` or `transform`.
    pub field: &'static str,
    #[source]
    pub error: Box<JqError>,
}

impl RouteSpec {
    /// Compiles the filter and the transform to check them.
    pub fn check(&self) -> Result<(), RouteSpecError> {
        let check = |field, text: &Option<String>| {
            let checked = text.as_deref().map_or(Ok(()), |text| JqFilter::for_route(text).check());
            checked.map_err(|error| RouteSpecError { field, error: Box::new(error) })
        };
        check("filter", &self.filter)?;
        check("transform", &self.transform)
    }

    /// Builds the route. `shared_filter` returns the filter with a text, so that routes with the same text
    /// share it.
    pub fn build(
        &self,
        id: RouteId,
        source: SourceId,
        destination: DestinationId,
        mut shared_filter: impl FnMut(&str) -> Arc<JqFilter>,
    ) -> Route {
        let filter = self.filter.as_deref().map(&mut shared_filter);
        let transform = self.transform.as_deref().map(&mut shared_filter);
        Route { id, source, destination, to: self.to.clone(), filter, transform }
    }
}
