//! Where a newcomer begins: a source, a line that sends to it, and the event when it has come.

use http::HeaderMap;
use serde::Deserialize;

use super::Stats;
use crate::{
    client::{Address, List, Trouble},
    lang::fill,
    visitor::Visitor,
    words::Overview,
};

/// With so few events somebody is still trying things out.
const NEW_EVENTS_MAX: u64 = 3;

#[derive(Deserialize)]
struct Source {
    name: String,
    provider: String,
    verify: Option<serde_json::Value>,
    #[serde(default)]
    enabled: bool,
}

impl Source {
    /// Whether anybody may send to it, so that a plain line of curl is let in.
    fn is_open(&self) -> bool {
        let verify = self.verify.as_ref().and_then(|verify| verify.as_str());
        self.enabled && self.provider == "generic" && verify == Some("none")
    }
}

#[derive(Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) source: Option<String>,
    pub(super) received_at: String,
}

impl Event {
    /// Which source it came to.
    pub(super) fn arrived(&self, t: &Overview) -> String {
        fill(t.arrived_lead, &[&self.source.as_deref().unwrap_or_default()])
    }
}

/// That a source can be sent to.
pub(super) fn ready(source: &str, t: &Overview) -> String {
    fill(t.step_source_ready, &[&source])
}

/// How far a newcomer is.
pub(super) enum Start {
    /// He is none any more.
    Over,
    /// Nothing can be sent to yet.
    NoSource,
    /// A line that sends to a source.
    Waiting { source: String, line: String },
    /// It has come.
    Arrived(Event),
}

impl Start {
    pub(super) async fn of(
        visitor: &Visitor,
        stats: &Stats,
        headers: &HeaderMap,
    ) -> Result<Self, Trouble> {
        if stats.total > NEW_EVENTS_MAX {
            return Ok(Self::Over);
        }
        if stats.total > 0 {
            let newest = Address::new(&["events"]).with("limit", "1");
            let mut newest = visitor.get::<List<Event>>(newest).await?;
            return Ok(newest.data.pop().map_or(Self::Over, Self::Arrived));
        }
        let sources = visitor.get::<List<Source>>(Address::new(&["sources"])).await?.data;
        let demo = sources.iter().find(|source| source.name == "demo" && source.is_open());
        let open = demo.or_else(|| sources.iter().find(|source| source.is_open()));
        if let Some(Source { name, .. }) = open {
            return Ok(Self::Waiting {
                source: name.clone(),
                line: curl(&visitor.base(headers), name),
            });
        }
        Ok(sources.into_iter().next().map_or(Self::NoSource, |Source { name, .. }| {
            // It wants signed requests; this signs as the provider does.
            let line = format!("surehook send-test {name}");
            Self::Waiting { source: name, line }
        }))
    }

    pub(super) fn is_first(&self) -> bool {
        matches!(self, Self::NoSource | Self::Waiting { .. })
    }
}

fn curl(base: &str, source: &str) -> String {
    format!(
        "curl -X POST {base}/in/{source} -H 'content-type: application/json' -d '{{\"id\":\"hello-1\",\"text\":\"hello\"}}'"
    )
}
