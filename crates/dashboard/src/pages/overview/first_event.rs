//! Guide for a new installation: a source, a command that sends to it, and the first event.

use http::HeaderMap;
use serde::Deserialize;

use super::StatsSummary;
use crate::{
    client::{ApiError, ApiList, ApiPath},
    current_user::CurrentUser,
    lang::fill,
    translations::OverviewTexts,
};

/// The guide is shown up to this number of events.
const NEW_EVENTS_MAX: u64 = 3;

#[derive(Deserialize)]
struct SourceSummary {
    name: String,
    provider: String,
    verify: Option<serde_json::Value>,
    #[serde(default)]
    enabled: bool,
}

impl SourceSummary {
    /// Whether an unsigned curl request is accepted.
    fn accepts_unsigned(&self) -> bool {
        let verify = self.verify.as_ref().and_then(|verify| verify.as_str());
        self.enabled && self.provider == "generic" && verify == Some("none")
    }
}

#[derive(Deserialize)]
pub(super) struct EventSummary {
    pub(super) id: String,
    pub(super) source: Option<String>,
    pub(super) received_at: String,
}

impl EventSummary {
    pub(super) fn arrived_text(&self, t: &OverviewTexts) -> String {
        fill(t.arrived_lead, &[&self.source.as_deref().unwrap_or_default()])
    }
}

pub(super) fn source_ready_text(source: &str, t: &OverviewTexts) -> String {
    fill(t.step_source_ready, &[&source])
}

pub(super) enum FirstEventGuide {
    /// Enough events were received.
    Finished,
    NoSource,
    Waiting {
        source: String,
        command: String,
    },
    Arrived(EventSummary),
}

impl FirstEventGuide {
    pub(super) async fn load(
        user: &CurrentUser,
        stats: &StatsSummary,
        headers: &HeaderMap,
    ) -> Result<Self, ApiError> {
        if stats.total > NEW_EVENTS_MAX {
            return Ok(Self::Finished);
        }
        if stats.total > 0 {
            let newest = ApiPath::new(&["events"]).with("limit", "1");
            let mut newest = user.get::<ApiList<EventSummary>>(newest).await?;
            return Ok(newest.data.pop().map_or(Self::Finished, Self::Arrived));
        }
        let sources = user.get::<ApiList<SourceSummary>>(ApiPath::new(&["sources"])).await?.data;
        let demo = sources.iter().find(|source| source.name == "demo" && source.accepts_unsigned());
        let open = demo.or_else(|| sources.iter().find(|source| source.accepts_unsigned()));
        if let Some(SourceSummary { name, .. }) = open {
            return Ok(Self::Waiting {
                source: name.clone(),
                command: curl_command(&user.ingest_base(headers), name),
            });
        }
        Ok(sources.into_iter().next().map_or(Self::NoSource, |SourceSummary { name, .. }| {
            // The source requires signed requests; this command signs like the provider.
            let command = format!("surehook send-test {name}");
            Self::Waiting { source: name, command }
        }))
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::NoSource | Self::Waiting { .. })
    }
}

fn curl_command(base: &str, source: &str) -> String {
    format!(
        "curl -X POST {base}/in/{source} -H 'content-type: application/json' -d '{{\"id\":\"hello-1\",\"text\":\"hello\"}}'"
    )
}
