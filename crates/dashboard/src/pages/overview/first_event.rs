//! Where a newcomer begins: a source, a command that sends to it, and the event when it has come.

use http::HeaderMap;
use serde::Deserialize;

use super::StatsSummary;
use crate::{
    client::{ApiError, ApiList, ApiPath},
    current_user::CurrentUser,
    lang::fill,
    translations::OverviewTexts,
};

/// With so few events somebody is still trying things out.
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
    /// Whether anybody may send to it, so that a plain command of curl is let in.
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
    /// Which source it came to.
    pub(super) fn arrived_text(&self, t: &OverviewTexts) -> String {
        fill(t.arrived_lead, &[&self.source.as_deref().unwrap_or_default()])
    }
}

/// That a source can be sent to.
pub(super) fn source_ready_text(source: &str, t: &OverviewTexts) -> String {
    fill(t.step_source_ready, &[&source])
}

/// How far a newcomer is.
pub(super) enum FirstEventGuide {
    /// He is none any more.
    Finished,
    /// Nothing can be sent to yet.
    NoSource,
    /// A command that sends to a source.
    Waiting { source: String, command: String },
    /// It has come.
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
            // It wants signed requests; this signs as the provider does.
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
