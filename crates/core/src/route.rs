//! A route: which events of a source go to which destination.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{DestinationId, RouteId, SourceId},
    jq::{Jq, JqError},
    name::Name,
};

/// A route as it is written: names, and a filter in jq.
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
    /// Which events.
    pub filter: Option<Arc<Jq>>,
}

impl RouteSpec {
    /// Compiles the filter.
    pub fn build(
        &self,
        id: RouteId,
        source: SourceId,
        destination: DestinationId,
    ) -> Result<Route, JqError> {
        let filter = self.filter.as_deref().map(Jq::compile).transpose()?.map(Arc::new);
        Ok(Route { id, source, destination, filter })
    }
}
