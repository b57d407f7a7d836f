//! A route: which events of a source go to which destination.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{DestinationId, RouteId, SourceId},
    jq::{JqError, JqFilter},
    name::Name,
};

/// A route as it is written: names, a filter and a transform in jq.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// The source's name.
    pub from: Name,
    /// The destination's name.
    pub to: Name,
    /// Only events for which this jq expression is true; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What is sent instead of the body: the one output of this jq expression; none drops the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
}

/// A route as it is meant.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its id.
    pub id: RouteId,
    /// Where from.
    pub source: SourceId,
    /// Where to.
    pub destination: DestinationId,
    /// The name of that.
    pub to: Name,
    /// Which events.
    pub filter: Option<Arc<JqFilter>>,
    /// What is sent instead of the body.
    pub transform: Option<Arc<JqFilter>>,
}

/// A route that cannot be used as it is written.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {error}")]
pub struct RouteSpecError {
    /// `filter` or `transform`.
    pub field: &'static str,
    /// What is wrong with it.
    #[source]
    pub error: Box<JqError>,
}

impl RouteSpec {
    /// Compiles the filter and the transform.
    pub fn build(
        &self,
        id: RouteId,
        source: SourceId,
        destination: DestinationId,
    ) -> Result<Route, RouteSpecError> {
        let compiled = |field, text: Option<&str>| {
            let compiled = text.map(JqFilter::compile).transpose();
            compiled.map(|jq| jq.map(Arc::new)).map_err(|error| {
                let error = Box::new(error);
                RouteSpecError { field, error }
            })
        };
        let filter = compiled("filter", self.filter.as_deref())?;
        let transform = compiled("transform", self.transform.as_deref())?;
        Ok(Route { id, source, destination, to: self.to.clone(), filter, transform })
    }
}
